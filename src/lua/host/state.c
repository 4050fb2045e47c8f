/* state.c - see state.h. */
#include "lua/host/state.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/message/blob.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"

/* ---- the seed ----------------------------------------------------------------------------------------------- */

enum { FIRST_MAX = 4096 };

/* State of an allocator that finds Lua's seed. lua_newstate writes the seed into the first block before it requests the
 * second block. At that request the allocator copies the first block to `seen` and returns NULL, so that lua_newstate
 * gives up. */
typedef struct peek {
    alignas(16) unsigned char block[FIRST_MAX];
    unsigned char seen[FIRST_MAX];
    size_t        size;
} peek;

static void *peek_alloc(void *user, void *old, size_t old_size, size_t size)
{
    peek *p = user;
    (void)old_size;
    if (size == 0 || old != NULL) return NULL;
    if (p->size == 0 && size <= FIRST_MAX) {
        p->size = size;
        memset(p->block, 0, sizeof p->block);
        return p->block;
    }
    memcpy(p->seen, p->block, p->size);
    return NULL;
}

/* Creates a state after `depth` nested calls. Addresses on the stack are part of Lua's seed, so each depth gives
 * another seed. */
static __attribute__((noinline)) void peek_at(peek *p, size_t depth)
{
    volatile char room[256];
    room[depth % sizeof room] = 1;
    p->size = 0;
    if (depth > 0) peek_at(p, depth - 1);
    else (void)lua_newstate(peek_alloc, p);
    room[0] = room[depth % sizeof room];
}

/* Returns true if the word looks like a pointer into this thread's stack. Lua stores such a pointer in the state: the
 * place to jump to on an error. */
static bool is_on_stack(const unsigned char *at)
{
    uint64_t word, near = (uint64_t)(uintptr_t)&word;
    memcpy(&word, at, sizeof word);
    return word - (near - 65536) < 2 * 65536;
}

/* Compares the first blocks of two Lua states, except for words that point into the stack. Returns the offset of the
 * only word of 4 bytes that differs; 0 if no word or more than one word differs. */
static size_t difference(const unsigned char *a, const unsigned char *b, size_t size)
{
    size_t found = 0;
    for (size_t at = 0; at + 4 <= size; at += 4) {
        if (memcmp(a + at, b + at, 4) == 0) continue;
        if (is_on_stack(a + at / 8 * 8) && is_on_stack(b + at / 8 * 8)) continue;
        if (found != 0) return 0;
        found = at;
    }
    return found;
}

size_t fli_lua_seed_offset(void)
{
    peek  *p = malloc(sizeof *p);
    size_t offset = 0;
    if (p == NULL) return 0;
    unsigned char first[FIRST_MAX];
    peek_at(p, 0);
    memcpy(first, p->seen, sizeof first);
    /* Makes three more Lua states, at other depths of the stack. The first block of each of these states must differ
     * from `first` in exactly one word, the seed, and the offset of this word must be the same in all three states. */
    for (size_t depth = 1; depth <= 3 && p->size > 0; depth++) {
        peek_at(p, depth * 7);
        size_t found = difference(first, p->seen, p->size);
        if (found == 0 || (offset != 0 && found != offset)) {
            offset = 0;
            break;
        }
        offset = found;
    }
    free(p);
    return offset;
}

/* ---- prototypes ------------------------------------------------------------------------------------------------ */

enum { CLOSURE_WORDS = 5 }; /* size of a Lua closure with one upvalue, in words */

/* Finds the word in which closures of one prototype agree, and closures of different prototypes differ. */
static int compare_closures(lua_State *L)
{
    static const char chunk[] =
        "local function make() return function() end end return make(), make(), function() return 1 end";
    const uint64_t *closures[3];
    lua_Integer     found = 0;
    if (luaL_loadstring(L, chunk) != LUA_OK) return 0;
    lua_call(L, 0, 3);
    for (int i = 0; i < 3; i++) closures[i] = lua_topointer(L, i - 3);
    /* The first word is skipped because it points to the next object of the collector. */
    for (int word = 1; word < CLOSURE_WORDS - 1; word++) {
        uint64_t a = closures[0][word], b = closures[1][word], c = closures[2][word];
        if (a != b || a == c) continue;
        if (found != 0) return 0;
        found = word;
    }
    lua_pushinteger(L, found);
    return 1;
}

/* Allocates zeroed memory, so that words that Lua does not write are equal in all closures. */
static void *zero_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    if (size == 0) {
        free(old);
        return NULL;
    }
    char  *block = realloc(old, size);
    size_t kept = old != NULL ? old_size : 0;
    if (block != NULL && size > kept) memset(block + kept, 0, size - kept);
    return block;
}

size_t fli_lua_proto_word(void)
{
    lua_State *L = lua_newstate(zero_alloc, NULL);
    size_t     word = 0;
    if (L == NULL) return 0;
    lua_pushcfunction(L, compare_closures);
    if (lua_pcall(L, 0, 1, 0) == LUA_OK) word = (size_t)lua_tointeger(L, -1);
    lua_close(L);
    return word;
}

/* State of the allocator while a Lua state is created: `first` is the first block, and `seed` is written to it at
 * `offset`. */
typedef struct birth {
    fli_lua_heap *heap;
    char         *first;
    size_t        offset;
    uint32_t      seed;
    bool          done;
} birth;

static void *birth_alloc(void *user, void *old, size_t old_size, size_t size)
{
    birth *b = user;
    if (b->first != NULL && !b->done) {
        if (b->offset != 0) memcpy(b->first + b->offset, &b->seed, sizeof b->seed);
        b->done = true;
    }
    void *block = fli_lua_heap_alloc(b->heap, old, old_size, size);
    if (b->first == NULL) b->first = block;
    return block;
}

/* ---- a state ------------------------------------------------------------------------------------------------ */

static fli_lua_proc *state_in(struct filch_lua *lua, void *chunk, size_t size, size_t memory_max, uint32_t seed)
{
    fli_lua_proc *p = chunk;
    memset(p, 0, sizeof *p);
    p->chunk = size;
    p->lua = lua;
    fli_lua_heap_init(&p->heap, (char *)(p + 1), size - sizeof *p, memory_max);
    p->heap.total = &lua->total;
    birth b = { .heap = &p->heap, .offset = lua->seed_offset, .seed = seed };
    p->L = lua_newstate(birth_alloc, &b);
    if (p->L == NULL) return NULL;
    lua_setallocf(p->L, fli_lua_heap_alloc, &p->heap);
    *(void **)lua_getextraspace(p->L) = p;
    p->heap.may_grow = fli_lua_budget_may_grow;
    p->heap.on_move = fli_lua_moves_note;
    return p;
}

void fli_lua_state_free(struct filch_lua *lua, fli_lua_proc *p)
{
    fli_lua_blocks_drop(p);
    fli_lua_heap_fini(&p->heap);
    fli_lua_chunk_give(lua, p, p->chunk);
}

/* Does what fli_lua_state_new() does. If it returns NULL, *status says which memory was missing: see
 * fli_lua_state_for(). */
static fli_lua_proc *new_state(struct filch_lua *lua, size_t memory_max, uint32_t seed, int *status)
{
    void *chunk = fli_lua_chunk_take(lua, FLI_LUA_CHUNK);
    *status = chunk != NULL ? LUA_ERRMEM : FLI_LUA_ERRCHUNK;
    if (chunk == NULL) return NULL;
    fli_lua_proc *p = state_in(lua, chunk, FLI_LUA_CHUNK, memory_max, seed);
    if (p == NULL) {
        fli_lua_heap_fini(&((fli_lua_proc *)chunk)->heap);
        fli_lua_chunk_give(lua, chunk, FLI_LUA_CHUNK);
    }
    return p;
}

fli_lua_proc *fli_lua_state_new(struct filch_lua *lua, size_t memory_max, uint32_t seed)
{
    int status;
    return new_state(lua, memory_max, seed, &status);
}

/* Lua function with the code as argument. Installs Filch's libraries and the libraries of the embedder, and returns the
 * function of the code. */
static int furnish(lua_State *L)
{
    const fli_lua_code *code = lua_touserdata(L, 1);
    struct filch_lua   *lua = fli_lua_self(L)->lua;
    lua_settop(L, 0);
    fli_lua_libs_install(L);
    if (lua->opt.open != NULL) {
        lua_pushglobaltable(L);
        lua->opt.open(L, lua->opt.open_user);
        lua_settop(L, 0);
    }
    if (fli_lua_code_push(L, code) != LUA_OK) return lua_error(L);
    return 1;
}

static int furnish_state(fli_lua_proc *p, const fli_lua_code *code)
{
    lua_pushcfunction(p->L, furnish);
    lua_pushlightuserdata(p->L, (void *)(uintptr_t)code);
    return lua_pcall(p->L, 1, 1, 0);
}

/* ---- templates ---------------------------------------------------------------------------------------------- */

enum { PLACES = 3, CHUNK_MAX = 65536 - 16, ROOM = 512 };

struct fli_lua_template {
    size_t    used;  /* size of `image` in bytes */
    size_t    chunk; /* size in bytes of the chunk that is allocated for a copy of `image` */
    uint32_t  count;
    uint32_t *pointers; /* indexes of the words in the image that are pointers */
    uint64_t  image[];
};

void fli_lua_template_free(fli_lua_template *template)
{
    if (template == NULL) return;
    free(template->pointers);
    free(template);
}

size_t fli_lua_template_size(const fli_lua_template *template)
{
    if (template == NULL) return 0;
    return sizeof *template + template->used + template->used / 8 * sizeof *template->pointers;
}

/* Builds a state for `code` in the chunk of `size` bytes. Returns the number of bytes used, or 0 on failure. */
static size_t build_image(struct filch_lua *lua, const fli_lua_code *code, char *chunk, size_t size)
{
    memset(chunk, 0, size);
    fli_lua_proc *p = state_in(lua, chunk, size, SIZE_MAX / 2, (uint32_t)lua->seed);
    size_t        used = 0;
    if (p != NULL && furnish_state(p, code) == LUA_OK && p->heap.chunks == NULL && p->heap.bigs == NULL) {
        lua_gc(p->L, LUA_GCCOLLECT); /* frees objects that were needed only while building */
        used = ((size_t)(p->heap.at - chunk) + 7) & ~(size_t)7;
    }
    if (used == 0) fli_lua_heap_fini(&((fli_lua_proc *)(void *)chunk)->heap);
    return used;
}

/* Collects the words that differ by exactly the distance between the two images: these are the pointers. Returns false
 * if a word differs by another amount. */
static bool find_pointers(const uint64_t *a, const uint64_t *b, size_t words, uint32_t *pointers, uint32_t *count)
{
    uint64_t distance = (uint64_t)(uintptr_t)b - (uint64_t)(uintptr_t)a;
    *count = 0;
    for (size_t i = 0; i < words; i++) {
        if (a[i] == b[i]) continue;
        if (b[i] - a[i] != distance) return false;
        pointers[(*count)++] = (uint32_t)i;
    }
    return true;
}

/* Makes the template: builds the state for `code` at PLACES addresses inside one block and compares the images. Returns
 * NULL if the images differ in more than their pointers. A hash table with addresses as keys must not be in a template,
 * because a copy at another address needs another layout. The distances between the PLACES addresses are chosen so that
 * such a table has another layout at each address; then the comparison fails. */
static fli_lua_template *compare(struct filch_lua *lua, const fli_lua_code *code, char *block, size_t size)
{
    char  *places[PLACES] = { block, block + size + 1040, block + 2 * size + 3 * 1040 + 48 };
    size_t used = build_image(lua, code, places[0], size);
    if (used == 0) return NULL;
    size_t words = used / 8;
    fli_lua_template *template = malloc(sizeof *template + used);
    uint32_t *pointers = malloc(words * sizeof *pointers), *again = malloc(words * sizeof *again), count = 0;
    bool      fine = template != NULL && pointers != NULL && again != NULL;
    for (int i = 1; fine && i < PLACES; i++) {
        uint32_t n = 0;
        fine = build_image(lua, code, places[i], size) == used &&
               find_pointers((uint64_t *)(void *)places[0], (uint64_t *)(void *)places[i], words,
                             i == 1 ? pointers : again, &n) &&
               (i == 1 || (n == count && memcmp(pointers, again, n * sizeof *again) == 0));
        count = n;
    }
    free(again);
    if (!fine) {
        free(template);
        free(pointers);
        return NULL;
    }
    *template = (fli_lua_template){ .used = used, .chunk = size, .count = count, .pointers = pointers };
    memcpy(template->image, places[0], used);
    /* Stores each pointer as an offset from the beginning of the image; copy() adds the address of the new chunk. */
    for (uint32_t i = 0; i < count; i++) template->image[pointers[i]] -= (uint64_t)(uintptr_t)places[0];
    return template;
}

static fli_lua_template *make_template(struct filch_lua *lua, const fli_lua_code *code)
{
    fli_lua_template *template = NULL;
    if (lua->seed_offset == 0) return NULL;
    for (size_t size = FLI_LUA_CHUNK; template == NULL && size <= CHUNK_MAX; size = size * 2 + 16) {
        char *block = malloc(PLACES * (size + 2080));
        if (block == NULL) return NULL;
        template = compare(lua, code, block, size);
        free(block);
        /* A copy of a small template gets a pooled chunk (FLI_LUA_CHUNK bytes). For a larger template, the size of the
         * chunk plus malloc's own 16 bytes is rounded up to a multiple of 1024. */
        if (template != NULL && (template->used + ROOM > size || size > FLI_LUA_CHUNK)) {
            template->chunk = (template->used + ROOM + 16 + 1023) / 1024 * 1024 - 16;
        }
    }
    return template;
}

static fli_lua_proc *copy(struct filch_lua *lua, const fli_lua_template *template, size_t memory_max)
{
    char *chunk = fli_lua_chunk_take(lua, template->chunk);
    if (chunk == NULL) return NULL;
    memcpy(chunk, template->image, template->used);
    uint64_t *words = (uint64_t *)(void *)chunk, at = (uint64_t)(uintptr_t)chunk;
    for (uint32_t i = 0; i < template->count; i++) words[template->pointers[i]] += at;
    fli_lua_proc *p = (fli_lua_proc *)(void *)chunk;
    p->chunk = template->chunk;
    p->heap.end = chunk + template->chunk;
    p->heap.max = memory_max;
    return p;
}

/* Returns the template of `code`. The template is made when the code is started for the second time. Returns NULL if
 * the code has no template. */
static const fli_lua_template *template_of(struct filch_lua *lua, fli_lua_code *code)
{
    /* PAIR lua.template, acquire half: the contents of the template. */
    fli_lua_template *template = fli_load_acq(&code->template);
    if (template != NULL || fli_load_rlx(&code->starts) > 1) return template;
    if (fli_add_rlx(&code->starts, 1) != 1) return NULL;
    template = make_template(lua, code);
    if (!fli_lua_total_take(&lua->total, fli_lua_template_size(template))) {
        fli_lua_template_free(template);
        template = NULL;
    }
    fli_store_rel(&code->template, template); /* PAIR lua.template, release half */
    return template;
}

fli_lua_proc *fli_lua_state_for(struct filch_lua *lua, fli_lua_code *code, size_t memory_max, uint32_t seed,
                                int *status)
{
    const fli_lua_template *template = seed == (uint32_t)lua->seed ? template_of(lua, code) : NULL;
    if (template != NULL && template->used < memory_max) {
        fli_lua_proc *p = copy(lua, template, memory_max);
        *status = p != NULL ? LUA_OK : FLI_LUA_ERRCHUNK;
        return p;
    }
    fli_lua_proc *p = new_state(lua, memory_max, seed, status);
    if (p != NULL) *status = furnish_state(p, code);
    return p;
}
