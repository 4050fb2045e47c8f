/* code.c - see code.h.
 *
 * Code and templates count in the memory limit of all processes together (total.h). Code to which only the cache refers
 * is unused. Unused code is removed in three cases: its bytes exceed UNUSED_MAX, the cache has many entries
 * (CODES_MAX), or the memory limit of all processes is reached.
 */
#include "lua/host/code.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "lua/host/compile.h"
#include "lua/host/host.h"
#include "lua/host/state.h"
#include "lua/message/codec.h"
#include "lua/process/proc.h"

enum { CODES_MAX = 4096, KINDS_MAX = 4096, UNUSED_MAX = 4 << 20 };

uint64_t fli_lua_hash_of(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t       hash = UINT64_C(0xCBF29CE484222325) ^ size;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    for (; size > 0; size--) hash = (hash ^ *at++) * UINT64_C(0x100000001B3);
    return hash ^ (hash >> 32);
}

/* ---- kinds -------------------------------------------------------------------------------------------------- */

/* Returns the kind of process (fli_lua_kind) called `name`, and creates this kind if it does not exist. Returns NULL if
 * the kind must be created, but `most` kinds exist already or memory is short. */
static fli_lua_kind *add_kind(struct filch_lua *lua, const char *name, size_t most)
{
    for (fli_lua_kind *kind = lua->kinds; kind != NULL; kind = kind->next) {
        if (strcmp(kind->name, name) == 0) return kind;
    }
    fli_lua_kind *kind = lua->kind_count < most ? malloc(sizeof *kind) : NULL;
    if (kind == NULL) return NULL;
    snprintf(kind->name, sizeof kind->name, "%s", name);
    kind->type = (filch_type){
        .name = kind->name, .size = sizeof(void *), .init = fli_lua_init, .step = fli_lua_step, .close = fli_lua_close
    };
    kind->next = lua->kinds;
    lua->kinds = kind;
    lua->kind_count++;
    return kind;
}

/* Returns the kind of the processes that run the function on top of L's stack. Its name is "counter.lua" for a whole
 * file, "counter.lua:12" for a function that begins at line 12 of the file. The name is escaped here, once for all
 * logs, reports and charts that show it, because a script chooses it with the chunk name of load(). The caller holds
 * the host's lock. Returns NULL if memory is short. */
static fli_lua_kind *kind_of(struct filch_lua *lua, lua_State *L)
{
    lua_Debug ar;
    char      base[51], name[64];
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    const char *slash = strrchr(ar.short_src, '/');
    const char *from = slash != NULL ? slash + 1 : ar.short_src;
    (void)fli_escape(base, sizeof base, from, strlen(from));
    if (ar.linedefined > 0) snprintf(name, sizeof name, "%s:%d", base, ar.linedefined);
    else snprintf(name, sizeof name, "%s", base);
    fli_lua_kind *kind = add_kind(lua, name, KINDS_MAX);
    /* When KINDS_MAX kinds exist, all further code gets the kind "lua". The limit KINDS_MAX + 1 leaves space for this
     * kind. */
    return kind != NULL ? kind : add_kind(lua, "lua", KINDS_MAX + 1);
}

/* ---- the cache ---------------------------------------------------------------------------------------------- */

static fli_lua_code **bucket_of(struct filch_lua *lua, uint64_t hash)
{
    return &lua->code[hash % FLI_LUA_BUCKETS];
}

/* Returns the number of bytes that the code takes, with its template if it has one. */
static size_t size_of(fli_lua_code *code)
{
    /* PAIR lua.template, acquire half: the size of the template is read below */
    fli_lua_template *template = fli_load_acq(&code->template);
    return sizeof *code + code->size + fli_lua_template_size(template);
}

static void free_code(fli_lua_code *code)
{
    fli_lua_total_give(&code->lua->total, size_of(code));
    fli_lua_template_free(fli_load_rlx(&code->template));
    free(code);
}

/* Removes and frees all code to which only the cache has a reference. The caller holds the host's lock. */
static void evict(struct filch_lua *lua)
{
    for (size_t i = 0; i < FLI_LUA_BUCKETS; i++) {
        for (fli_lua_code **at = &lua->code[i]; *at != NULL;) {
            fli_lua_code *code = *at;
            if (fli_load_acq(&code->refs) > 1) { /* PAIR lua.code, acquire half */
                at = &code->next;
                continue;
            }
            *at = code->next;
            free_code(code);
            lua->code_count--;
        }
    }
    /* Sets how many pieces of code must exist before add() scans for unused code again: twice the number in use now, at
     * least CODES_MAX. */
    lua->code_scan = lua->code_count > CODES_MAX / 2 ? lua->code_count * 2 : CODES_MAX;
    fli_store_rlx(&lua->code_unused, 0);
}

void fli_lua_code_evict(struct filch_lua *lua)
{
    fli_mutex_lock(&lua->lock);
    evict(lua);
    fli_mutex_unlock(&lua->lock);
}

/* Returns equal code from the cache, with a new reference, or NULL. The caller holds the host's lock. */
static fli_lua_code *find(struct filch_lua *lua, uint64_t hash, const fli_lua_bytes *bytes, int env)
{
    for (fli_lua_code *code = *bucket_of(lua, hash); code != NULL; code = code->next) {
        if (code->hash == hash && code->size == bytes->size && code->env == env &&
            memcmp(code->bytes, bytes->at, bytes->size) == 0) {
            if (fli_add_rlx(&code->refs, 1) == 1) (void)fli_add_rlx(&lua->code_unused, (uint64_t)0 - size_of(code));
            return code;
        }
    }
    return NULL;
}

/* Adds code to the cache, with one reference for the caller. The caller holds the host's lock. */
static fli_lua_code *add(struct filch_lua *lua, lua_State *L, uint64_t hash, const fli_lua_bytes *bytes, int env)
{
    lua_Debug ar;
    if (lua->code_count >= CODES_MAX && lua->code_count >= lua->code_scan) evict(lua);
    fli_lua_code *code = malloc(sizeof *code + bytes->size);
    fli_lua_kind *kind = code != NULL ? kind_of(lua, L) : NULL;
    if (kind == NULL) {
        free(code);
        return NULL;
    }
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">u", &ar);
    *code = (fli_lua_code){ .next = *bucket_of(lua, hash),
                            .lua = lua,
                            .hash = hash,
                            .kind = kind,
                            .env = env,
                            .upvalues = ar.nups,
                            .size = bytes->size };
    fli_atomic_init(&code->refs, 2);
    fli_atomic_init(&code->starts, 0);
    fli_atomic_init(&code->template, NULL);
    memcpy(code->bytes, bytes->at, bytes->size);
    *bucket_of(lua, hash) = code;
    lua->code_count++;
    return code;
}

static int write_piece(lua_State *L, const void *piece, size_t size, void *bytes)
{
    (void)L;
    return fli_lua_bytes_add(bytes, piece, size) ? 0 : 1;
}

/* Sets *out to new code, or to equal code if another thread has added it in the meantime. The memory is counted before
 * the host's lock is taken, because counting may call fli_lua_code_evict(). */
static filch_err add_counted(struct filch_lua *lua, lua_State *L, uint64_t hash, const fli_lua_bytes *bytes, int env,
                             fli_lua_code **out)
{
    size_t size = sizeof **out + bytes->size;
    if (!fli_lua_total_take(&lua->total, size)) return FILCH_LUA_EMEMORY;
    fli_mutex_lock(&lua->lock);
    fli_lua_code *found = find(lua, hash, bytes, env);
    fli_lua_code *code = found != NULL ? found : add(lua, L, hash, bytes, env);
    fli_mutex_unlock(&lua->lock);
    if (found != NULL || code == NULL) fli_lua_total_give(&lua->total, size);
    *out = code;
    return code != NULL ? FILCH_OK : FILCH_ENOMEM;
}

void fli_lua_code_refusal(const struct filch_lua *lua, filch_err err, char *text, size_t size)
{
    if (err != FILCH_LUA_EMEMORY || text == NULL || size == 0) return;
    snprintf(text, size, "not enough memory for the code: all processes together may hold %llu bytes",
             (unsigned long long)lua->total.max);
}

filch_err fli_lua_code_of(struct filch_lua *lua, lua_State *L, int env, fli_lua_code **out)
{
    fli_lua_bytes bytes;
    fli_lua_bytes_init(&bytes, SIZE_MAX / 4);
    filch_err err = lua_dump(L, write_piece, &bytes, 0) == 0 ? FILCH_OK : FILCH_ENOMEM;
    if (err == FILCH_OK) {
        uint64_t hash = fli_lua_hash_of(bytes.at, bytes.size);
        fli_mutex_lock(&lua->lock);
        fli_lua_code *code = find(lua, hash, &bytes, env);
        fli_mutex_unlock(&lua->lock);
        if (code == NULL) err = add_counted(lua, L, hash, &bytes, env, &code);
        if (err == FILCH_OK) *out = code;
    }
    fli_lua_bytes_fini(&bytes);
    return err;
}

/* ---- a process's cache of the functions that it has started ---------------------------------------------------- */

enum { KNOWN = 8 };

/* Cache of one process: the last KNOWN functions that it started, with their code. The key is the address of the
 * function's prototype. The address stays valid because one closure of the prototype is anchored in the registry. */
typedef struct fli_lua_known {
    const void   *protos[KNOWN];
    fli_lua_code *codes[KNOWN];
    unsigned      next;
} fli_lua_known;

static const void *proto_of(const struct filch_lua *lua, lua_State *L)
{
    const void *const *closure = lua_topointer(L, -1);
    return lua->proto_word != 0 ? closure[lua->proto_word] : NULL;
}

/* Lua function anchor(address, function): stores `function` in the registry with `address` as its key. */
static int anchor(lua_State *L)
{
    lua_rawsetp(L, LUA_REGISTRYINDEX, lua_touserdata(L, 1));
    return 0;
}

/* Stores `code` in the cache p->known, in place of the oldest entry. The function with prototype `proto` is on top of
 * L's stack. If memory is short, stores nothing. Raises no error, because an error would leak what the caller holds: a
 * reference to the code, and a buffer of bytes for the spawn. */
static void remember(fli_lua_proc *p, lua_State *L, const void *proto, fli_lua_code *code)
{
    fli_lua_known *known = p->known;
    if (!lua_checkstack(L, LUA_MINSTACK + 4))
        /* stores nothing: without this space lua_pcall would grow the stack, and that could run the collector */
        return;
    if (known == NULL) {
        known = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *known);
        if (known == NULL) return;
        *known = (fli_lua_known){ .next = 0 };
        p->known = known;
    }
    unsigned at = known->next++ % KNOWN;
    fli_lua_code_drop(known->codes[at]);
    known->codes[at] = NULL;
    lua_pushcfunction(L, anchor);
    lua_pushlightuserdata(L, (char *)known + at);
    lua_pushvalue(L, -3);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
        lua_pop(L, 1);
        return;
    }
    known->protos[at] = proto;
    known->codes[at] = code;
    fli_lua_code_hold(code);
}

filch_err fli_lua_code_known(fli_lua_proc *p, lua_State *L, int env, fli_lua_code **out)
{
    const void    *proto = proto_of(p->lua, L);
    fli_lua_known *known = p->known;
    for (unsigned i = 0; known != NULL && proto != NULL && i < KNOWN; i++) {
        if (known->protos[i] != proto || known->codes[i] == NULL || known->codes[i]->env != env) continue;
        *out = known->codes[i];
        fli_lua_code_hold(*out);
        return FILCH_OK;
    }
    filch_err err = fli_lua_code_of(p->lua, L, env, out);
    if (err == FILCH_OK && proto != NULL) remember(p, L, proto, *out);
    return err;
}

void fli_lua_code_forget(fli_lua_proc *p)
{
    for (unsigned i = 0; p->known != NULL && i < KNOWN; i++) fli_lua_code_drop(p->known->codes[i]);
}

void fli_lua_code_hold(fli_lua_code *code)
{
    fli_add_rlx(&code->refs, 1);
}

void fli_lua_code_drop(fli_lua_code *code)
{
    if (code == NULL) return;
    /* The size is read before the reference is given back: from then on evict() may free the code. */
    struct filch_lua *lua = code->lua;
    size_t            size = size_of(code);
    /* PAIR lua.code, release half: this thread's reads of the code come before evict() frees the code. The count stays
     * above 0, because the cache keeps one reference. */
    if (fli_sub_acqrel(&code->refs, 1) != 2) return;
    /* lua->code_unused may become too small, and below zero, so it is compared as a signed number: if another thread
     * publishes the template of this code after `size` was read, `size` lacks the template, but find() later subtracts
     * the code's size with the template. The error is at most the size of all templates in the cache, and lasts until
     * evict() sets the number to 0. */
    if ((int64_t)(fli_add_rlx(&lua->code_unused, size) + size) > UNUSED_MAX) fli_lua_code_evict(lua);
}

void fli_lua_code_fini(struct filch_lua *lua)
{
    for (size_t i = 0; i < FLI_LUA_BUCKETS; i++) {
        while (lua->code[i] != NULL) {
            fli_lua_code *code = lua->code[i];
            lua->code[i] = code->next;
            free_code(code);
        }
    }
    while (lua->kinds != NULL) {
        fli_lua_kind *kind = lua->kinds;
        lua->kinds = kind->next;
        free(kind);
    }
}

/* ---- compiling ---------------------------------------------------------------------------------------------- */

static void set_error_text(char *text, size_t size, const char *what)
{
    if (text != NULL && size > 0) snprintf(text, size, "%s", what);
}

filch_err fli_lua_code_text(struct filch_lua *lua, const char *chunk, size_t size, const char *name, uint64_t limit_ns,
                            fli_lua_code **out, char *text, size_t text_size)
{
    lua_State *L = luaL_newstate();
    if (L == NULL) return FILCH_ENOMEM;
    *(void **)lua_getextraspace(L) = NULL;
    /* A file may begin with a line "#!...". That line is skipped like a comment, and still counts as line 1. */
    if (size > 0 && chunk[0] == '#') {
        const char *end = memchr(chunk, '\n', size);
        size_t      skip = end != NULL ? (size_t)(end - chunk) : size;
        chunk += skip;
        size -= skip;
    }
    int       status = fli_lua_compile(L, chunk, size, name, limit_ns);
    filch_err err = status == LUA_OK ? FILCH_OK : status == LUA_ERRMEM ? FILCH_ENOMEM : FILCH_LUA_ESYNTAX;
    if (err == FILCH_OK) {
        err = fli_lua_code_of(lua, L, 1, out);
        fli_lua_code_refusal(lua, err, text, text_size);
    } else set_error_text(text, text_size, lua_tostring(L, -1));
    lua_close(L);
    return err;
}

static char *read_all(FILE *file, size_t *size)
{
    size_t room = 16384;
    char  *all = malloc(room);
    *size = 0;
    while (all != NULL) {
        *size += fread(all + *size, 1, room - *size, file);
        if (*size < room) break;
        room *= 2;
        char *more = realloc(all, room);
        if (more == NULL) free(all);
        all = more;
    }
    return all;
}

static filch_err read_file(const char *path, char **all, size_t *size, char *text, size_t text_size)
{
    char  why[1024];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        snprintf(why, sizeof why, "cannot open %s: %s", path, strerror(errno));
        set_error_text(text, text_size, why);
        return FILCH_LUA_EFILE;
    }
    *all = read_all(file, size);
    int  failed = errno;
    bool readable = ferror(file) == 0;
    fclose(file);
    if (*all == NULL) return FILCH_ENOMEM;
    if (readable) return FILCH_OK;
    free(*all);
    snprintf(why, sizeof why, "cannot read %s: %s", path, strerror(failed));
    set_error_text(text, text_size, why);
    return FILCH_LUA_EFILE;
}

filch_err fli_lua_code_file(struct filch_lua *lua, const char *path, fli_lua_code **out, char *text, size_t text_size)
{
    char      name[1024];
    char     *all;
    size_t    size;
    filch_err err = read_file(path, &all, &size, text, text_size);
    if (err != FILCH_OK) return err;
    snprintf(name, sizeof name, "@%s", path);
    err = fli_lua_code_text(lua, all, size, name, 0, out, text, text_size);
    free(all);
    return err;
}

int fli_lua_code_push(lua_State *L, const fli_lua_code *code)
{
    int status = luaL_loadbufferx(L, code->bytes, code->size, code->kind->name, "b");
    if (status != LUA_OK || code->env == 1 || code->upvalues == 0) return status;
    /* lua_load has put the globals into the first upvalue. Moves them to upvalue number `env`, or removes them if `env`
     * is 0. */
    lua_pushnil(L);
    lua_setupvalue(L, -2, 1);
    if (code->env != 0) {
        lua_pushglobaltable(L);
        lua_setupvalue(L, -2, code->env);
    }
    return status;
}
