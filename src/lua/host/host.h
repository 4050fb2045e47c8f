/* host.h - what all Lua processes of a filch_lua share. */
#ifndef FLI_LUA_HOST_H
#define FLI_LUA_HOST_H

#include <filch_lua.h>
#include <stdalign.h>
#include <stdbool.h>

#include "lua/host/libs.h"
#include "lua/memory/total.h"
#include "lua/preempt/preempt.h"
#include "port/atomic.h"
#include "port/output.h"
#include "port/thread.h"

struct filch_lua_code;
struct fli_lua_kind;

enum { FLI_LUA_POOLS = 8, FLI_LUA_POOLED = 256, FLI_LUA_BUCKETS = 256 };

/* First chunks of ended processes, for the next. Each thread has its own favourite among the pools. */
typedef struct fli_lua_pool {
    alignas(FLI_LINE) fli_mutex lock;
    unsigned count;
    void    *chunks[FLI_LUA_POOLED];
} fli_lua_pool;

struct filch_lua {
    filch_lua_options opt; /* complete: no zero means a default any more */
    char             *path;
    char             *roots; /* where code comes from: sources.h */
    fli_lua_names     names;
    uint64_t          seed;                    /* what everything random begins with, but in a simulation */
    size_t            seed_offset, proto_word; /* see state.h */

    filch_type tree_type; /* of supervisors: see tree.h */

    fli_mutex              lock; /* of code, kinds and jobs */
    struct filch_lua_code *code[FLI_LUA_BUCKETS];
    size_t                 code_count;
    struct fli_lua_kind   *kinds;
    size_t                 kind_count;
    struct fli_lua_job    *jobs; /* of work.run */

    struct fli_lua_file   *files; /* see files.h; under the lock too */
    struct fli_lua_module *modules;
    struct fli_lua_proc   *subscribers;
    size_t                 file_count, subscriber_count;
    fli_mutex              reloading; /* one at a time looks at the files */

    /* Standard output and standard error, where the host gave no functions for them: print.c. */
    fli_output out, err;
    /* Dropped lines that the log has told.  writes and reads: workers, as a count. */
    FLI_ATOMIC(uint64_t) dropped_told;

    fli_lua_pool     pools[FLI_LUA_POOLS];
    fli_lua_watchdog watchdog;
    fli_lua_total    total;

    /* How many processes there are.  writes and reads: any thread that starts or ends one. Only counts. */
    FLI_ATOMIC(uint64_t) alive;
    /* Steps that ran too long.  writes: workers. reads: any. Only counts. */
    FLI_ATOMIC(uint64_t) interrupted;
};

/* A first chunk of `size` bytes, used or new. NULL: no memory, or the processes hold all that they may together. Only
 * those of FLI_LUA_CHUNK bytes are kept for the next process; they go on counting. */
void *fli_lua_chunk_take(struct filch_lua *lua, size_t size);
void  fli_lua_chunk_give(struct filch_lua *lua, void *chunk, size_t size);

/* The seed for a process started from outside: in a simulation drawn from its seed. */
uint64_t fli_lua_seed(struct filch_lua *lua, filch_sched *sched);

#endif
