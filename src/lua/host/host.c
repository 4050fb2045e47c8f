/* host.c - filch_lua_create and filch_lua_destroy, the pools of chunks, and spawning from C. See filch_lua.h. */
#include "lua/host/host.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "base/versioned.h"
#include "lua/host/code.h"
#include "lua/host/print.h"
#include "lua/host/sources.h"
#include "lua/host/state.h"
#include "lua/memory/heap.h"
#include "lua/process/proc.h"
#include "lua/process/supervisor_tree.h"
#include "lua/process/work.h"
#include "port/random.h"

/* ---- chunks ------------------------------------------------------------------------------------------------- */

/* Each thread has its own copy of this variable. The address of the copy determines which pool the thread uses. */
static __thread char thread_mark;

static fli_lua_pool *pool_of(struct filch_lua *lua)
{
    return &lua->pools[fli_prng_mix((uint64_t)(uintptr_t)&thread_mark >> 8) % FLI_LUA_POOLS];
}

static void *take_new(struct filch_lua *lua, size_t size)
{
    if (!fli_lua_total_take(&lua->total, size)) return NULL;
    void *chunk = malloc(size);
    if (chunk == NULL) fli_lua_total_give(&lua->total, size);
    return chunk;
}

void *fli_lua_chunk_take(struct filch_lua *lua, size_t size)
{
    fli_lua_pool *pool = pool_of(lua);
    void         *chunk = NULL;
    if (size != FLI_LUA_CHUNK) return take_new(lua, size);
    fli_mutex_lock(&pool->lock);
    if (pool->count > 0) chunk = pool->chunks[--pool->count];
    fli_mutex_unlock(&pool->lock);
    return chunk != NULL ? chunk : take_new(lua, size);
}

void fli_lua_chunk_give(struct filch_lua *lua, void *chunk, size_t size)
{
    fli_lua_pool *pool = pool_of(lua);
    bool          kept = false;
    if (size == FLI_LUA_CHUNK) {
        fli_mutex_lock(&pool->lock);
        kept = pool->count < FLI_LUA_POOLED;
        if (kept) pool->chunks[pool->count++] = chunk;
        fli_mutex_unlock(&pool->lock);
    }
    if (kept) return;
    free(chunk);
    fli_lua_total_give(&lua->total, size);
}

/* Frees the chunks that are kept for new processes, and unused code. Called when the memory of all processes together
 * reaches its limit. */
static void free_kept(void *user)
{
    struct filch_lua *lua = user;
    for (size_t i = 0; i < FLI_LUA_POOLS; i++) {
        fli_lua_pool *pool = &lua->pools[i];
        fli_mutex_lock(&pool->lock);
        while (pool->count > 0) {
            free(pool->chunks[--pool->count]);
            fli_lua_total_give(&lua->total, FLI_LUA_CHUNK);
        }
        fli_mutex_unlock(&pool->lock);
    }
    fli_lua_code_evict(lua);
}

static void free_pools(struct filch_lua *lua, size_t made)
{
    for (size_t i = 0; i < made; i++) {
        fli_lua_pool *pool = &lua->pools[i];
        while (pool->count > 0) free(pool->chunks[--pool->count]);
        fli_mutex_fini(&pool->lock);
    }
}

/* ---- the host ----------------------------------------------------------------------------------------------- */

#define RIGHTS (FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_NET | FILCH_LUA_MAY_FILES | FILCH_LUA_MAY_EXEC)

static filch_err complete(filch_lua_options *opt, const filch_lua_options *given)
{
    filch_err err = FLI_VERSIONED_READ(opt, given, "options", FILCH_LUA_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if (opt->memory_max == 0) opt->memory_max = (size_t)16 << 20;
    if (opt->slice_ns == 0) opt->slice_ns = FILCH_MILLISECONDS(5);
    if (opt->runaway_ns == 0) opt->runaway_ns = FILCH_MILLISECONDS(25);
    if (opt->memory_total == 0) opt->memory_total = SIZE_MAX;
    if (opt->code_max == 0) opt->code_max = (size_t)256 << 10;
    if (opt->path == NULL) opt->path = "./?.lua";
    if (opt->log_level > FILCH_LUA_LOG_NONE) return filch_invalid("options.log_level is not one of FILCH_LUA_LOG_*");
    if (opt->mailbox_bytes >= (size_t)1 << 28) return filch_invalid("options.mailbox_bytes is 256 MiB or more");
    if (opt->count > INT32_MAX) return filch_invalid("options.count is over 2^31 - 1");
    if (!fli_lua_names_known(opt->without))
        return filch_invalid("options.without has a name of no function: use full names, such as process.terminate");
    if ((opt->rights & ~(uint32_t)RIGHTS) != 0)
        return filch_invalid(
            "options.rights has bits besides FILCH_LUA_MAY_*"); /* the caller has a newer header, and expects a right
                                                                   that this library lacks */
    if (opt->signal < 0 || opt->signal > 64) return filch_invalid("options.signal is not a signal from 1 to 64, or 0");
    if (opt->watch > FILCH_LUA_WATCH_NONE) return filch_invalid("options.watch is not one of FILCH_LUA_WATCH_*");
    if (opt->signal != 0 && opt->watch != FILCH_LUA_WATCH_THREAD)
        return filch_invalid("options.signal is set, but options.watch is not FILCH_LUA_WATCH_THREAD");
    return FILCH_OK;
}

filch_err filch_lua_create(filch_lua **out, const filch_lua_options *options)
{
    filch_lua_options opt;
    if (out == NULL) return filch_invalid("out is NULL");
    filch_err err = complete(&opt, options);
    if (err != FILCH_OK) return err;
    err = FILCH_ENOMEM;
    size_t     pools = 0;
    filch_lua *lua = aligned_alloc(FLI_LINE, sizeof *lua);
    if (lua == NULL) goto no_lua;
    memset(lua, 0, sizeof *lua);
    lua->opt = opt;
    fli_atomic_init(&lua->total.held, 0);
    fli_atomic_init(&lua->code_unused, 0);
    lua->total.max = opt.memory_total;
    lua->total.spare = free_kept;
    lua->total.spare_user = lua;
    lua->seed = fli_random_u64();
    lua->seed_offset = fli_lua_seed_offset();
    lua->proto_word = fli_lua_proto_word();
    lua->tree_type = fli_lua_supervisor_tree_type();
    lua->path = strdup(opt.path);
    if (lua->path == NULL) goto no_path;
    lua->roots = fli_lua_source_roots(lua->path, opt.roots);
    if (lua->roots == NULL) goto no_roots;
    if (!fli_lua_names_init(&lua->names, opt.rights, opt.without)) goto no_names;
    err = fli_lua_print_init(lua);
    if (err != FILCH_OK) goto no_names;
    /* not kept: the string `without` belongs to the caller and may be freed after this call */
    lua->names.without = NULL;
    err = fli_mutex_init(&lua->lock);
    if (err != FILCH_OK) goto no_lock;
    err = fli_mutex_init(&lua->reloading);
    if (err != FILCH_OK) goto no_reloading;
    for (; pools < FLI_LUA_POOLS; pools++) {
        err = fli_mutex_init(&lua->pools[pools].lock);
        if (err != FILCH_OK) goto no_pools;
    }
    err = fli_lua_watchdog_init(lua);
    if (err != FILCH_OK) goto no_pools;
    *out = lua;
    return FILCH_OK;
no_pools:
    free_pools(lua, pools);
    fli_mutex_fini(&lua->reloading);
no_reloading:
    fli_mutex_fini(&lua->lock);
no_lock:
    fli_lua_print_fini(lua);
no_names:
    free(lua->roots);
no_roots:
    free(lua->path);
no_path:
    free(lua);
no_lua:
    return err;
}

filch_err filch_lua_destroy(filch_lua *lua)
{
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (fli_load_acq(&lua->alive) != 0) return FILCH_EBUSY; /* PAIR lua.alive, acquire half */
    fli_lua_watchdog_fini(lua);
    fli_lua_jobs_fini(lua);
    free_pools(lua, FLI_LUA_POOLS);
    fli_lua_files_fini(lua);
    fli_lua_code_fini(lua);
    fli_mutex_fini(&lua->reloading);
    fli_mutex_fini(&lua->lock);
    fli_lua_print_fini(lua);
    free(lua->roots);
    free(lua->path);
    free(lua);
    return FILCH_OK;
}

/* ---- code and processes ------------------------------------------------------------------------------------- */

filch_err filch_lua_load(filch_lua *lua, const char *chunk, size_t size, const char *name, filch_lua_code **out,
                         char *text, size_t text_size)
{
    char shown[256];
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    if (chunk == NULL && size > 0) return filch_invalid("chunk is NULL although size is not 0");
    snprintf(shown, sizeof shown, "=%s", name != NULL ? name : "chunk");
    return fli_lua_code_text(lua, size > 0 ? chunk : "", size, shown, 0, out, text, text_size);
}

filch_err filch_lua_load_file(filch_lua *lua, const char *path, filch_lua_code **out, char *text, size_t text_size)
{
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (path == NULL) return filch_invalid("path is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    return fli_lua_code_file(lua, path, out, text, text_size);
}

void filch_lua_code_drop(filch_lua *lua, filch_lua_code *code)
{
    (void)lua;
    fli_lua_code_drop(code);
}

filch_err filch_lua_spawn(filch_lua *lua, filch_sched *sched, filch_lua_code *code,
                          const filch_lua_spawn_options *options, filch_pid *pid)
{
    filch_lua_spawn_options opt;
    filch_spawn_options     spawn;
    if (lua == NULL) return filch_invalid("lua is NULL");
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (code == NULL) return filch_invalid("code is NULL");
    filch_err err = FLI_VERSIONED_READ(&opt, options, "options", FILCH_LUA_SPAWN_OPTIONS_INIT);
    if (err == FILCH_OK) err = FLI_VERSIONED_READ(&spawn, opt.spawn, "options.spawn", FILCH_SPAWN_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if (opt.args == NULL && opt.arg_count > 0) return filch_invalid("options.args is NULL although arg_count is not 0");
    if (spawn.method != NULL || filch_kind_of(&spawn.args) != FILCH_KIND_NONE)
        return filch_invalid("options.spawn has a method or args: set them in filch_lua_spawn_options");
    fli_lua_limit_mailbox(lua, &spawn);
    fli_lua_start start = { .lua = lua,
                            .code = code,
                            .method = opt.method,
                            .args = opt.args,
                            .arg_count = opt.arg_count,
                            .memory_max = opt.memory_max != 0 ? opt.memory_max : lua->opt.memory_max,
                            .seed = fli_lua_seed(lua, sched) };
    spawn.args = filch_ptr(&start);
    return filch_spawn(sched, &code->kind->type, &spawn, pid);
}

uint64_t fli_lua_seed(struct filch_lua *lua, filch_sched *sched)
{
    if (!filch_sim_active(sched)) return lua->seed;
    return (uint64_t)filch_sim_draw(sched, UINT32_MAX) << 32 | filch_sim_draw(sched, UINT32_MAX);
}

/* ---- functions that the embedder's C functions call ----------------------------------------------------------- */

filch_pid filch_lua_self(lua_State *L)
{
    const fli_lua_proc *p = L != NULL ? fli_lua_self(L) : NULL;
    return p != NULL ? p->self : (filch_pid){ 0, 0 };
}

filch_sched *filch_lua_sched(lua_State *L)
{
    const fli_lua_proc *p = L != NULL ? fli_lua_self(L) : NULL;
    return p != NULL ? p->sched : NULL;
}

void filch_lua_settle(lua_State *L)
{
    fli_lua_proc *p = L != NULL ? fli_lua_self(L) : NULL;
    if (p != NULL) fli_lua_preempt_settle(p);
}

void filch_lua_push(lua_State *L, const filch_data *data)
{
    luaL_checkstack(L, 4, NULL);
    fli_lua_unpack(L, data);
}

filch_err filch_lua_pack(lua_State *L, int index, filch_data *out, char *text, size_t text_size)
{
    if (L == NULL) return filch_invalid("L is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    fli_lua_bytes_init(&bytes, SIZE_MAX / 4);
    filch_err err = FILCH_EINVAL;
    if (fli_lua_pack(L, index, "value", &bytes, &data, &why)) {
        err = fli_lua_bytes_keep(&bytes, &data, out);
    } else if (text != NULL && text_size > 0) {
        snprintf(text, text_size, "%s", why.text);
    }
    fli_lua_bytes_fini(&bytes);
    return err;
}
