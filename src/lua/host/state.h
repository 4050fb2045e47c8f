/* state.h - creates Lua states: by lua_newstate with a chosen seed for the hash tables, or as a copy of a template.
 *
 * Stock Lua takes the seed from the clock and from addresses, so each run visits the fields of a table in another
 * order. The seed is a word in the first block of the state, and Lua writes it before it requests the second block. So
 * the allocator can change the word when the second block is requested. The offset of the word is found once, by
 * comparing states made at the same address, which differ in this word only.
 *
 * A template is a state in one chunk, ready to run one piece of code. A copy of it at another address, with every
 * pointer into the chunk adjusted, is a state too. The pointers are found by comparing states made at different
 * addresses, which differ in their pointers only. If such states differ in another word, no template is made, and
 * processes are created by lua_newstate. So nothing here depends on how Lua lays out its memory.
 *
 * Design: docs/design/lua/states.md.
 */
#ifndef FLI_LUA_STATE_H
#define FLI_LUA_STATE_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct filch_lua;
struct filch_lua_code;
struct fli_lua_proc;

/* Returns the offset in bytes of the seed in the first block that lua_newstate allocates; 0: unknown. */
size_t fli_lua_seed_offset(void);

/* Returns the index of the word in a closure that points to its prototype; 0: unknown. Found by comparing closures of
 * one prototype and of different prototypes. */
size_t fli_lua_proto_word(void);

/* Creates a Lua state without libraries, and the process struct for it, in a new chunk. In the struct, only `lua`, `L`,
 * `chunk` and `heap` are set. Returns NULL if memory is short. */
struct fli_lua_proc *fli_lua_state_new(struct filch_lua *lua, size_t memory_max, uint32_t seed);

/* A status besides those of lua.h: a state got no chunk, because the memory limit of all processes together would be
 * exceeded, or because the system has no memory left. */
enum { FLI_LUA_ERRCHUNK = 100 };

/* Creates a process with a state that has all libraries, and with the function of the code on its stack. On success
 * *status is LUA_OK. If *status is FLI_LUA_ERRCHUNK, or if it is LUA_ERRMEM because `memory_max` is too small for a
 * state, returns NULL. After any other failure returns the process with the error on its stack. */
struct fli_lua_proc *fli_lua_state_for(struct filch_lua *lua, struct filch_lua_code *code, size_t memory_max,
                                       uint32_t seed, int *status);

/* Frees all memory of the process, including `p` itself. */
void fli_lua_state_free(struct filch_lua *lua, struct fli_lua_proc *p);

typedef struct fli_lua_template fli_lua_template;
void                            fli_lua_template_free(fli_lua_template *template);
/* Returns the number of bytes that the template takes; 0 for NULL. */
size_t fli_lua_template_size(const fli_lua_template *template);

#endif
