/* code.h - compiled code, kept once for all processes: bytecode made by ourselves, found again by its bytes. */
#ifndef FLI_LUA_CODE_H
#define FLI_LUA_CODE_H

#include <filch_lua.h>
#include <lua.h>

#include "port/atomic.h"

struct fli_lua_proc;

/* What a kind of process is called in reports. Kept until the host goes: schedulers refer to it. */
typedef struct fli_lua_kind {
    struct fli_lua_kind *next;
    filch_type           type;
    char                 name[64];
} fli_lua_kind;

typedef struct filch_lua_code {
    struct filch_lua_code *next;
    uint64_t               hash;
    /* The cache's own, processes, callers.  writes: whoever has one; only under the host's lock from 1 to 2. */
    FLI_ATOMIC(size_t) refs;
    /* How often it was started, up to 2, and then what copies are made from.  writes: the one that counted to 2. */
    FLI_ATOMIC(uint32_t) starts;
    FLI_ATOMIC(struct fli_lua_template *) template;
    fli_lua_kind *kind;
    int           env;      /* which upvalue is the globals, from 1; 0 none */
    int           upvalues; /* how many there are */
    size_t        size;
    char          bytes[];
} fli_lua_code;

/* The function on top of L's stack as code, from the cache or new. It stays on the stack. `env`: which upvalue is the
 * globals. Gives *out one reference. */
filch_err fli_lua_code_of(struct filch_lua *lua, lua_State *L, int env, fli_lua_code **out);

/* The same, by way of a short memory of the process: a function that it starts again and again is not written out each
 * time. */
filch_err fli_lua_code_known(struct fli_lua_proc *p, lua_State *L, int env, fli_lua_code **out);
/* Gives back what that memory holds. */
void fli_lua_code_forget(struct fli_lua_proc *p);

/* Compiles text, or what a file of the host's choice holds now; `limit_ns` as fli_lua_compile's. Gives *out one
 * reference; `text` gets why not. For what a program names see files.h. */
filch_err fli_lua_code_text(struct filch_lua *lua, const char *chunk, size_t size, const char *name, uint64_t limit_ns,
                            fli_lua_code **out, char *text, size_t text_size);
filch_err fli_lua_code_file(struct filch_lua *lua, const char *path, fli_lua_code **out, char *text, size_t text_size);

uint64_t fli_lua_hash_of(const void *bytes, size_t size);

/* Pushes the function; its upvalue for the globals is set. A status as lua_load's, then with a message instead. */
int fli_lua_code_push(lua_State *L, const fli_lua_code *code);

void fli_lua_code_hold(fli_lua_code *code);
void fli_lua_code_drop(fli_lua_code *code);

/* Frees everything that is cached. */
void fli_lua_code_fini(struct filch_lua *lua);

#endif
