/* blob.c - the library `blob`, and the cache of long strings of a process. See blob.h.
 *
 *     local b = blob.new(text)     #b     b:sub(1, 10)     tostring(b)     process.send(pid, { name = "x", body = b })
 */
#include "lua/message/blob.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/message/codec.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"

/* HEAD: bytes before the contents of a blob. The block of a blob is a complete message: it begins with the mark of
 * encoded values (fli_lua_mark) and the tag FLI_LUA_TAG_BLOB. */
enum { HEAD = FLI_LUA_MARK_SIZE + 1 };

/* A blob. The value of Lua is a *holder*, a userdata with a pointer to the blob, which is NULL once the holder is
 * finalized. All blobs of a process are on a list, so that their blocks can be dropped when the process ends: the
 * collector, which would finalize the holders, does not run then.
 *
 * INVARIANT  the list has no pointer into a holder. The collector may free a holder without a call of its finalizer:
 *            stock Lua drops the finalizer if it cannot call it, because too many C calls are nested or the Lua stack
 *            cannot grow. Then the blob stays on the list, and charged, until the process ends. */
typedef struct fli_lua_blob {
    filch_data            data;
    size_t                charged;
    struct fli_lua_blob  *next;
    struct fli_lua_blob **link;
} fli_lua_blob;

static const char blob_key; /* its address is used as the registry key of the metatable of blobs */

/* Returns the holder at `index`, or NULL if the value is not a blob. Raises no error. */
static fli_lua_blob **to_holder(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_checkstack(L, 2) || !lua_getmetatable(L, index)) return NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &blob_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is ? lua_touserdata(L, index) : NULL;
}

/* Returns the blob at `index`. Returns NULL if the value is not a blob, or if the collector has finalized it: a program
 * can still get such a value from a table with weak keys. Raises no error. */
static fli_lua_blob *to_blob(lua_State *L, int index)
{
    fli_lua_blob **holder = to_holder(L, index);
    return holder != NULL ? *holder : NULL;
}

const filch_data *fli_lua_to_blob(lua_State *L, int index)
{
    fli_lua_blob *blob = to_blob(L, index);
    return blob != NULL ? &blob->data : NULL;
}

const char *fli_lua_blob_bytes(const filch_data *blob, size_t *size)
{
    *size = filch_size(blob) - HEAD;
    return (const char *)filch_raw(blob) + HEAD;
}

static fli_lua_blob *check_blob(lua_State *L, int index)
{
    fli_lua_blob *blob = to_blob(L, index);
    if (blob == NULL) luaL_typeerror(L, index, "blob");
    return blob;
}

/* ---- creating and dropping blobs ------------------------------------------------------------------------------- */

/* Takes the blob off the list and drops its block. Does not free the blob itself. */
static void let_go(fli_lua_proc *p, fli_lua_blob *blob)
{
    *blob->link = blob->next;
    if (blob->next != NULL) blob->next->link = blob->link;
    fli_lua_heap_discharge(&p->heap, blob->charged);
    filch_drop(&blob->data);
}

static int blob_gc(lua_State *L)
{
    fli_lua_proc  *p = fli_lua_self(L);
    fli_lua_blob **holder = to_holder(L, 1), *blob = holder != NULL ? *holder : NULL;
    if (blob == NULL) return 0;
    *holder = NULL;
    let_go(p, blob);
    (void)fli_lua_heap_resize(&p->heap, blob, sizeof *blob, 0);
    return 0;
}

/* Charges the process for memory outside of Lua's heap, and lets the collector do a corresponding amount of work.
 * Raises a memory error if the limit of the process does not allow the charge. */
static void charge(lua_State *L, fli_lua_proc *p, size_t size)
{
    lua_gc(L, LUA_GCSTEP, (int)(size / 1024 < 1 << 20 ? size / 1024 : 1 << 20));
    if (fli_lua_heap_charge(&p->heap, size)) return;
    lua_gc(L, LUA_GCCOLLECT);
    if (fli_lua_heap_charge(&p->heap, size)) return;
    p->out_of_memory = true;
    luaL_error(L, "not enough memory");
}

static void push_meta(lua_State *L);

static fli_lua_rare *rare_of(lua_State *L, fli_lua_proc *p)
{
    fli_lua_rare *rare = fli_lua_rarely(p);
    if (rare == NULL) {
        p->out_of_memory = true;
        luaL_error(L, "not enough memory");
    }
    return rare;
}

/* Allocates a blob in the heap of the process. Raises a memory error if the limit of the process does not allow it. */
static fli_lua_blob *allocate(lua_State *L, fli_lua_proc *p)
{
    fli_lua_blob *blob = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *blob);
    if (blob != NULL) return blob;
    lua_gc(L, LUA_GCCOLLECT);
    blob = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *blob);
    if (blob != NULL) return blob;
    p->out_of_memory = true;
    luaL_error(L, "not enough memory");
    return NULL;
}

/* Pushes a blob that refers to no block yet. */
static fli_lua_blob *push_empty(lua_State *L, size_t size)
{
    fli_lua_proc *p = fli_lua_self(L);
    luaL_checkstack(L, 6, NULL);
    fli_lua_blob **holder = lua_newuserdatauv(L, sizeof *holder, 0), **all = &rare_of(L, p)->blobs;
    *holder = NULL;
    push_meta(L);
    lua_setmetatable(L, -2);
    fli_lua_blob *blob = *holder = allocate(L, p);
    *blob = (fli_lua_blob){ .data = filch_none(), .next = *all, .link = all };
    if (*all != NULL) (*all)->link = &blob->next;
    *all = blob;
    charge(L, p, size);
    blob->charged = size;
    return blob;
}

void fli_lua_push_blob(lua_State *L, const filch_data *data)
{
    fli_lua_blob *blob = push_empty(L, filch_size(data));
    if (filch_keep(data, &blob->data) != FILCH_OK) luaL_error(L, "not enough memory");
}

/* blob.new(text) -> blob */
static int blob_new(lua_State *L)
{
    size_t        size;
    const char   *text = luaL_checklstring(L, 1, &size);
    fli_lua_blob *blob = push_empty(L, size + HEAD);
    uint8_t      *bytes = malloc(size + HEAD);
    if (bytes == NULL || !fli_lua_total_share(&fli_lua_self(L)->lua->total, bytes, size + HEAD, &blob->data)) {
        free(bytes);
        return luaL_error(L, "not enough memory");
    }
    memcpy(bytes, fli_lua_mark, FLI_LUA_MARK_SIZE);
    bytes[FLI_LUA_MARK_SIZE] = FLI_LUA_TAG_BLOB;
    memcpy(bytes + HEAD, text, size);
    return 1;
}

static int blob_is(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, to_blob(L, 1) != NULL);
    return 1;
}

/* ---- methods --------------------------------------------------------------------------------------------------- */

static int blob_len(lua_State *L)
{
    size_t size;
    (void)fli_lua_blob_bytes(&check_blob(L, 1)->data, &size);
    lua_pushinteger(L, (lua_Integer)size);
    return 1;
}

static int go_on_text(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    size_t      size;
    const char *bytes = fli_lua_blob_bytes(&check_blob(L, 1)->data, &size);
    lua_pushlstring(L, bytes, size);
    return 1;
}

static int blob_text(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_text);
    return go_on_text(L, LUA_OK, 0);
}

static int go_on_sub(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    size_t      size;
    const char *bytes = fli_lua_blob_bytes(&check_blob(L, 1)->data, &size);
    lua_Integer length = (lua_Integer)size, from = luaL_checkinteger(L, 2), to = luaL_optinteger(L, 3, -1);
    if (from < 0) from = from < -length ? 1 : length + from + 1;
    if (from == 0) from = 1;
    if (to < 0) to = to < -length ? 0 : length + to + 1;
    if (to > length) to = length;
    if (from > to) lua_pushliteral(L, "");
    else lua_pushlstring(L, bytes + from - 1, (size_t)(to - from + 1));
    return 1;
}

/* b:sub(i [, j]) -> text; i and j count as in string.sub */
static int blob_sub(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_sub);
    return go_on_sub(L, LUA_OK, 0);
}

static int go_on_equal(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    const fli_lua_blob *a = to_blob(L, 1), *b = to_blob(L, 2);
    bool                same = a != NULL && b != NULL && filch_size(&a->data) == filch_size(&b->data) &&
                (filch_raw(&a->data) == filch_raw(&b->data) ||
                 memcmp(filch_raw(&a->data), filch_raw(&b->data), filch_size(&a->data)) == 0);
    lua_pushboolean(L, same);
    return 1;
}

static int blob_equal(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_equal);
    return go_on_equal(L, LUA_OK, 0);
}

FLI_LUA_RETURNING(blob_len)
FLI_LUA_RETURNING(blob_sub)

static const luaL_Reg blob_methods[] = { { "len", returning_blob_len }, { "sub", returning_blob_sub }, { NULL, NULL } };
static const luaL_Reg blob_events[] = { { "__len", returning_blob_len },
                                        { "__tostring", blob_text },
                                        { "__eq", blob_equal },
                                        { "__gc", blob_gc },
                                        { NULL, NULL } };

static void push_meta(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &blob_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_createtable(L, 0, 6);
    luaL_setfuncs(L, blob_events, 0);
    luaL_newlib(L, blob_methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &blob_key);
}

/* ---- long strings ----------------------------------------------------------------------------------------------- */

enum { REMEMBERED = 4 };

/* Cache of long strings, by address. The strings are anchored in a table of the registry as long as they are in the
 * cache. */
typedef struct fli_lua_long {
    const char *text[REMEMBERED];
    filch_data  block[REMEMBERED];
    unsigned    next;
    bool        any;
} fli_lua_long;

static const char long_key;

void fli_lua_long_prepare(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    p->wants_long = false;
    fli_lua_rare *rare = rare_of(L, p);
    if (rare->longs != NULL) return;
    luaL_checkstack(L, 4, NULL);
    lua_createtable(L, REMEMBERED, 0);
    for (int i = 1; i <= REMEMBERED; i++) {
        lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i);
    }
    lua_rawsetp(L, LUA_REGISTRYINDEX, &long_key);
    rare->longs = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *rare->longs);
    if (rare->longs != NULL) *rare->longs = (fli_lua_long){ .next = 0 };
}

/* Stores the value on top of L's stack (a string, or false) for entry `n` of the cache, in the registry table under
 * long_key. Allocates nothing, because the table has an element for each entry already. */
static void anchor(lua_State *L, unsigned n)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &long_key);
    lua_insert(L, -2);
    lua_rawseti(L, -2, (lua_Integer)n + 1);
    lua_pop(L, 1);
}

static void forget(fli_lua_proc *p, fli_lua_long *longs, unsigned n)
{
    if (longs->text[n] == NULL) return;
    longs->text[n] = NULL;
    fli_lua_heap_discharge(&p->heap, filch_size(&longs->block[n]));
    filch_drop(&longs->block[n]);
}

static fli_lua_long *longs_of(const fli_lua_proc *p)
{
    return p->rare != NULL ? p->rare->longs : NULL;
}

/* Frees the oldest entry of the cache for a string of `size` bytes, and charges the process for the string. Returns the
 * number of the entry, or REMEMBERED if the memory limit does not allow the charge. */
static unsigned make_place(fli_lua_proc *p, size_t size)
{
    fli_lua_long *longs = p->rare->longs;
    unsigned      n = longs->next++ % REMEMBERED;
    forget(p, longs, n);
    if (!fli_lua_heap_charge(&p->heap, size)) return REMEMBERED;
    return n;
}

static void fill_place(lua_State *L, fli_lua_proc *p, unsigned n, int index, const filch_data *block)
{
    fli_lua_long *longs = p->rare->longs;
    longs->text[n] = lua_tostring(L, index);
    longs->block[n] = *block;
    longs->any = true;
    lua_pushvalue(L, index);
    anchor(L, n);
}

const filch_data *fli_lua_long_block(lua_State *L, int index)
{
    fli_lua_proc *p = fli_lua_self(L);
    size_t        size;
    const char   *text = lua_tolstring(L, index, &size);
    if (p == NULL || !lua_checkstack(L, 4)) return NULL;
    fli_lua_long *longs = longs_of(p);
    if (longs == NULL) {
        p->wants_long = true;
        return NULL;
    }
    for (unsigned i = 0; i < REMEMBERED; i++) {
        if (longs->text[i] == text) return &longs->block[i];
    }
    unsigned n = make_place(p, size);
    if (n == REMEMBERED) return NULL;
    filch_data block;
    void      *bytes = malloc(size);
    if (bytes == NULL || !fli_lua_total_share(&p->lua->total, bytes, size, &block)) {
        free(bytes);
        fli_lua_heap_discharge(&p->heap, size);
        return NULL;
    }
    memcpy(bytes, text, size);
    fill_place(L, p, n, lua_absindex(L, index), &block);
    return &longs->block[n];
}

void fli_lua_long_made(lua_State *L, const filch_data *data)
{
    fli_lua_proc *p = fli_lua_self(L);
    /* Stores nothing outside a step, because the cache of long strings is emptied only at the end of a step. */
    if (p == NULL || p->out == NULL) return;
    fli_lua_long_prepare(L);
    if (longs_of(p) == NULL || !lua_checkstack(L, 4)) return;
    unsigned n = make_place(p, filch_size(data));
    if (n == REMEMBERED) return;
    filch_data block;
    if (filch_keep(data, &block) != FILCH_OK) {
        fli_lua_heap_discharge(&p->heap, filch_size(data));
        return;
    }
    fill_place(L, p, n, lua_gettop(L), &block);
}

void fli_lua_long_forget(fli_lua_proc *p)
{
    fli_lua_long *longs = longs_of(p);
    if (longs == NULL || !longs->any) return;
    longs->any = false;
    for (unsigned i = 0; i < REMEMBERED; i++) {
        forget(p, longs, i);
        /* without stack space the string stays anchored until the cache entry is reused */
        if (!lua_checkstack(p->L, 4)) continue;
        lua_pushboolean(p->L, 0);
        anchor(p->L, i);
    }
}

void fli_lua_blocks_drop(fli_lua_proc *p)
{
    fli_lua_long *longs = longs_of(p);
    /* the blobs themselves are freed with the heap */
    while (p->rare != NULL && p->rare->blobs != NULL) let_go(p, p->rare->blobs);
    for (unsigned i = 0; longs != NULL && i < REMEMBERED; i++) forget(p, longs, i);
}

const fli_lua_member fli_lua_blob_members[] = {
    { .library = "blob", .name = "new", .fn = blob_new },
    { .library = "blob", .name = "is", .fn = blob_is },
    { .name = NULL },
};
