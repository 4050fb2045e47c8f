/* host.h - the data that all Lua processes of one filch_lua (a Lua host) share. */
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

/* Memory blocks that were the first chunks of ended processes, kept for new processes. The host has several such pools;
 * each thread uses one of them. */
typedef struct fli_lua_pool {
    alignas(FLI_LINE) fli_mutex lock;
    unsigned count;
    void    *chunks[FLI_LUA_POOLED];
} fli_lua_pool;

struct filch_lua {
    filch_lua_options opt; /* the options with all defaults filled in: 0 no longer means "default" */
    char             *path;
    char             *roots; /* folders from which code may be loaded, separated by ';': sources.h */
    fli_lua_names     names;
    uint64_t          seed;                    /* seed of all random numbers, except in a simulation */
    size_t            seed_offset, proto_word; /* see state.h */

    filch_type tree_type; /* type of supervisors: see supervisor_tree.h */

    fli_mutex              lock; /* protects code, kinds, jobs, files, modules and subscribers */
    struct filch_lua_code *code[FLI_LUA_BUCKETS];
    size_t                 code_count;
    size_t                 code_scan; /* when code_count has reached this number, add() of code.c frees unused code */
    /* Bytes of code to which only the cache refers; see fli_lua_code_drop().  writes and reads: any thread. The number
     * orders no other memory access. */
    FLI_ATOMIC(uint64_t) code_unused;
    struct fli_lua_kind *kinds;
    size_t               kind_count;
    struct fli_lua_job  *jobs; /* jobs of work.run */

    struct fli_lua_file   *files; /* known files: see files.h */
    struct fli_lua_module *modules;
    struct fli_lua_proc   *subscribers;
    size_t                 file_count, subscriber_count;
    fli_mutex              reloading; /* held by the thread that checks the files for changes */

    /* Buffers for standard output and standard error. Used if the embedder gave no functions for print and log:
     * print.c. */
    fli_output out, err;
    /* Number of dropped lines of output that have been reported in the log.  writes and reads: any thread. The
     * number orders no other memory access. */
    FLI_ATOMIC(uint64_t) dropped_reported;

    fli_lua_pool     pools[FLI_LUA_POOLS];
    fli_lua_watchdog watchdog;
    fli_lua_total    total;

    /* Number of Lua processes, supervisors and running jobs of this host.  writes and reads: any thread that starts or
     * ends one of them.  PAIR lua.alive */
    FLI_ATOMIC(uint64_t) alive;
    /* Number of steps that were interrupted.  writes: workers.  reads: any thread. The number orders no other memory
     * access. */
    FLI_ATOMIC(uint64_t) interrupted;
};

/* fli_lua_chunk_take() returns a block of `size` bytes for the struct and the heap of a new process (its first chunk),
 * reused or new. It returns NULL if memory is short, or if the memory limit for all processes together would be
 * exceeded. fli_lua_chunk_give() frees a chunk, or keeps it for a new process if it has FLI_LUA_CHUNK bytes. Kept
 * chunks still count towards the limit for all processes. */
void *fli_lua_chunk_take(struct filch_lua *lua, size_t size);
void  fli_lua_chunk_give(struct filch_lua *lua, void *chunk, size_t size);

/* Sets the limit of the mailbox of a Lua process (option `mailbox_bytes`), unless `spawn` has a limit in bytes. */
static inline void fli_lua_limit_mailbox(const struct filch_lua *lua, filch_spawn_options *spawn)
{
    if (spawn->mailbox_bytes == 0) spawn->mailbox_bytes = lua->opt.mailbox_bytes;
}

/* Returns the seed of the random numbers of a process that is started from C. In a simulation the seed is drawn from
 * the seed of the run. */
uint64_t fli_lua_seed(struct filch_lua *lua, filch_sched *sched);

#endif
