/* code.h - compiled code (bytecode), stored once for all processes of a host. A cache finds equal code by comparing its
 * bytes. */
#ifndef FLI_LUA_CODE_H
#define FLI_LUA_CODE_H

#include <filch_lua.h>
#include <lua.h>

#include "port/atomic.h"

struct fli_lua_proc;

/* A kind of process: its filch_type and its name in reports. Kept until the host is destroyed, because schedulers refer
 * to the type. */
typedef struct fli_lua_kind {
    struct fli_lua_kind *next;
    filch_type           type;
    char                 name[64];
} fli_lua_kind;

typedef struct filch_lua_code {
    struct filch_lua_code *next;
    struct filch_lua      *lua;
    uint64_t               hash;
    /* Number of references: one by the cache, others by processes and callers.  writes: any thread that holds a
     * reference; the change from 1 to 2 only under the host's lock. */
    FLI_ATOMIC(size_t) refs;
    /* `starts`: how often the code was started, counted up to 2.  writes: any thread that starts the code. `template`:
     * the image from which states for this code are copied (state.h); NULL: none.  writes: the thread that starts the
     * code for the second time. */
    FLI_ATOMIC(uint32_t) starts;
    FLI_ATOMIC(struct fli_lua_template *) template;
    fli_lua_kind *kind;
    int           env;      /* number of the upvalue that holds the globals (_ENV), from 1; 0: none */
    int           upvalues; /* number of upvalues */
    size_t        size;
    char          bytes[];
} fli_lua_code;

/* Sets *out to the code of the function on top of L's stack: equal code from the cache, or new code. The function stays
 * on the stack. `env`: number of the upvalue that holds the globals. The caller gets one reference to *out. Returns
 * FILCH_LUA_EMEMORY if the memory limit of all processes together would be exceeded. */
filch_err fli_lua_code_of(struct filch_lua *lua, lua_State *L, int env, fli_lua_code **out);

/* Does what fli_lua_code_of() does, but looks first in a small cache that each process has. So a function that the
 * process starts again and again is not converted to bytes each time. */
filch_err fli_lua_code_known(struct fli_lua_proc *p, lua_State *L, int env, fli_lua_code **out);
/* Drops the references to code that the small cache of the process (fli_lua_code_known) holds. */
void fli_lua_code_forget(struct fli_lua_proc *p);

/* fli_lua_code_text() compiles a text; fli_lua_code_file() reads and compiles a file that the host, not a Lua program,
 * has named (files named by a program: files.h). `limit_ns`: see fli_lua_compile(). The caller gets one reference to
 * *out; on failure `text` gets the reason. */
filch_err fli_lua_code_text(struct filch_lua *lua, const char *chunk, size_t size, const char *name, uint64_t limit_ns,
                            fli_lua_code **out, char *text, size_t text_size);
filch_err fli_lua_code_file(struct filch_lua *lua, const char *path, fli_lua_code **out, char *text, size_t text_size);

uint64_t fli_lua_hash_of(const void *bytes, size_t size);

/* Pushes the function of the code, with its upvalue for the globals set. Returns the status of lua_load; if it is
 * not LUA_OK, an error message is pushed instead. */
int fli_lua_code_push(lua_State *L, const fli_lua_code *code);

/* `err` is the result of a function that makes code. If it is FILCH_LUA_EMEMORY, writes to `text` that the memory limit
 * of all processes refuses the code. Otherwise does not change `text`. */
void fli_lua_code_refusal(const struct filch_lua *lua, filch_err err, char *text, size_t size);

/* fli_lua_code_drop() takes the host's lock when there is much unused code; the caller must not hold it. */
void fli_lua_code_hold(fli_lua_code *code);
void fli_lua_code_drop(fli_lua_code *code);

/* Frees all code that only the cache refers to. */
void fli_lua_code_evict(struct filch_lua *lua);

/* Frees the host's cache of code, with all code in it. */
void fli_lua_code_fini(struct filch_lua *lua);

#endif
