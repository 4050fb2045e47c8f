/* state.h - new states: made by Lua, with the seed of its hash tables chosen by us, or copied from a template.
 *
 * Stock Lua takes that seed from the clock and from addresses, so no two runs visit the fields of a table in the same
 * order. It is a word of the state's first block, written before the second block is asked for: the allocator can
 * change it in between. Where that word is we find out once, by comparing two states made in the same place, in which
 * nothing else differs.
 *
 * A template is a state in one chunk, ready to run some code. A copy of it at another address, with every pointer into
 * the chunk moved along, is a state too. Which words are pointers is found out in the same way: states made in
 * different places differ in nothing but those. If they differ in anything else there is no template, and
 * processes are made the ordinary way; so nothing here relies on how Lua lays out its memory.
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

/* Where the seed is in the first block, in bytes; 0: unknown. */
size_t fli_lua_seed_offset(void);

/* Which word of a closure is its prototype, found out by comparing closures of the same and of different ones; 0:
 * unknown. */
size_t fli_lua_proto_word(void);

/* A process with an empty state in a new chunk: only the heap and L are set. NULL: no memory. */
struct fli_lua_proc *fli_lua_state_new(struct filch_lua *lua, size_t memory_max, uint32_t seed);

/* A process whose state has its libraries and the code's function on the stack. NULL: no memory, and *status says
 * whether it was the limit's (LUA_ERRMEM). */
struct fli_lua_proc *fli_lua_state_for(struct filch_lua *lua, struct filch_lua_code *code, size_t memory_max,
                                       uint32_t seed, int *status);

/* Gives back all its memory. */
void fli_lua_state_free(struct filch_lua *lua, struct fli_lua_proc *p);

typedef struct fli_lua_template fli_lua_template;
void                            fli_lua_template_free(fli_lua_template *template);

#endif
