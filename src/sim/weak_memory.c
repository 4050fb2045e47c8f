/* weak_memory.c - decides which stores a load may read, and finds data races on non-atomic memory. See weak.h.
 *
 * Each atomic location keeps all its stores, in modification order, which is the order in which they were executed.
 * A store records its thread and time (an entry of that thread's vector clock), and the clock that an acquiring load
 * gets: the clock of the releasing thread and, for a read-modify-write, also the clock of the store before it (the
 * release sequence). A store that is no read-modify-write begins a new release sequence, even in the same thread (the
 * rule of C++20, which promises less than C11).
 *
 * INVARIANT  memory itself always holds the newest store.
 * A thread may read store i unless a later store is already visible to it: the later store happened before (by the
 * thread's clock), the thread itself has read or made a later store, or another thread has read a later store in a load
 * that happened before.
 *
 * Non-atomic memory: each byte records its last write and the last read of each thread. Two accesses, one of them a
 * write, must be ordered by happens-before. Atomic accesses count as reads here: a non-atomic write (initialisation, or
 * freeing) that is not ordered with them is a race.
 */
#include <string.h>

#include "base/assert.h"
#include "sim/weak.h"

#define HISTORY 64
#define LOCATIONS 1024
#define READS 24
#define THREAD_ROOM (32u << 10)
#define SETUP_ROOM (FLI_WEAK_ARENA - (FLI_WEAK_THREADS + 1) * THREAD_ROOM)

typedef struct store {
    uint64_t       value;
    fli_weak_clock carries;
    uint16_t       clock;
    uint8_t        thread;
} store;

/* Records a load: a thread read the store with this index when its own clock was `clock`. */
typedef struct found {
    uint16_t clock, index;
} found;

typedef struct location {
    uint32_t offset, count;
    uint8_t  found_count[FLI_WEAK_THREADS + 1];
    found    found[FLI_WEAK_THREADS + 1][READS];
    store    stores[HISTORY];
} location;

/* The accesses to one byte of non-atomic memory. Valid if `stamp` is the number of the current execution. */
typedef struct shadow {
    uint32_t stamp;
    uint16_t write_clock;
    uint8_t  write_thread;
    bool     freed;
    uint16_t reads[FLI_WEAK_THREADS + 1];
} shadow;

static _Alignas(4096) unsigned char arena[FLI_WEAK_ARENA];
static unsigned char saved[SETUP_ROOM];
static uint32_t      used[FLI_WEAK_THREADS + 1]; /* number of used bytes of each thread's arena; [0]: arena of setup */
static uint32_t      setup_used;
static shadow        shadows[FLI_WEAK_ARENA];
static uint32_t      stamp;
static location      locations[LOCATIONS];
static uint32_t      location_count;
static uint16_t      location_at[FLI_WEAK_ARENA];

fli_weak_clock fli_weak_clocks[FLI_WEAK_THREADS + 1];

uint32_t fli_weak_offset(const volatile void *at)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)arena;
    return offset < FLI_WEAK_ARENA ? (uint32_t)offset : UINT32_MAX;
}

void *fli_weak_at(uint32_t offset)
{
    return arena + offset;
}

/* ---- arenas ---- */

void fli_weak_memory_clear(void)
{
    memset(arena, 0, sizeof arena);
    memset(used, 0, sizeof used);
    setup_used = 0;
}

void fli_weak_memory_snapshot(void)
{
    setup_used = used[0];
    memcpy(saved, arena, setup_used);
}

void fli_weak_memory_begin(void)
{
    memcpy(arena, saved, setup_used);
    memset(used, 0, sizeof used);
    used[0] = setup_used;
    location_count = 0;
    stamp++;
    memset(fli_weak_clocks, 0, sizeof fli_weak_clocks);
    for (uint32_t t = 1; t <= FLI_WEAK_THREADS; t++) fli_weak_clocks[t].at[t] = 1;
}

/* Each thread allocates from an arena of its own, so that addresses do not depend on the interleaving. */
void *fli_weak_new(size_t size)
{
    uint32_t self = fli_weak_self, room = self == 0 ? SETUP_ROOM : THREAD_ROOM;
    uint32_t base = self == 0 ? 0 : SETUP_ROOM + (self - 1) * THREAD_ROOM;
    uint32_t whole = ((uint32_t)size + 127) & ~127u;
    FLI_ASSERT(used[self] + whole <= room);
    void *at = arena + base + used[self];
    used[self] += whole;
    if (self != 0) memset(at, 0, whole);
    return at;
}

/* ---- non-atomic memory ---- */

static shadow *shadow_of(uint32_t offset)
{
    shadow *s = &shadows[offset];
    if (s->stamp != stamp) *s = (shadow){ .stamp = stamp };
    return s;
}

static void race(uint32_t offset, uint32_t other, const char *why, const void *from)
{
    FLI_WEAK_NOTE("plain memory at +%u: thread %u and thread %u, nothing orders them (code at %p)", offset, other,
                  fli_weak_self, from);
    fli_weak_fail(why);
}

static void check_write(const shadow *s, uint32_t offset, const void *from)
{
    const fli_weak_clock *now = &fli_weak_clocks[fli_weak_self];
    if (s->freed) fli_weak_fail("memory is used after it was freed");
    if (s->write_clock > now->at[s->write_thread]) race(offset, s->write_thread, "a data race", from);
}

static void plain_read(uint32_t offset, const void *from)
{
    shadow *s = shadow_of(offset);
    check_write(s, offset, from);
    s->reads[fli_weak_self] = fli_weak_clocks[fli_weak_self].at[fli_weak_self];
}

static void plain_write(uint32_t offset, const void *from)
{
    shadow               *s = shadow_of(offset);
    const fli_weak_clock *now = &fli_weak_clocks[fli_weak_self];
    check_write(s, offset, from);
    for (uint32_t t = 1; t <= FLI_WEAK_THREADS; t++) {
        if (s->reads[t] > now->at[t]) race(offset, t, "a data race (read and write)", from);
    }
    memset(s->reads, 0, sizeof s->reads);
    s->write_thread = (uint8_t)fli_weak_self;
    s->write_clock = now->at[fli_weak_self];
}

static void plain(const void *at, size_t size, size_t stride, bool write, const void *from)
{
    if (!fli_weak_running) return;
    uint32_t offset = fli_weak_offset(at);
    if (offset == UINT32_MAX) return;
    for (size_t i = 0; i < size; i += stride) {
        if (write) plain_write(offset + (uint32_t)i, from);
        else plain_read(offset + (uint32_t)i, from);
    }
}

/* Freeing counts as a write to each byte. Bytes that were not accessed in this execution are not checked, because no
 * earlier access can race with the free. Most bytes of a large block were not accessed. */
static void retire(const void *at, size_t size, const void *from)
{
    uint32_t offset = fli_weak_offset(at);
    if (!fli_weak_running || offset == UINT32_MAX) return;
    for (uint32_t i = offset; i < offset + size; i++) {
        if (shadows[i].stamp == stamp) plain_write(i, from);
        shadows[i] = (shadow){ .stamp = stamp, .freed = true };
    }
}

void *fli_weak_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user;
    void *at = NULL;
    if (size > 0) at = fli_weak_new(size);
    if (old == NULL) return at;
    if (at != NULL) {
        plain(old, old_size, 1, false, __builtin_return_address(0));
        memcpy(at, old, old_size < size ? old_size : size);
    }
    retire(old, old_size, __builtin_return_address(0));
    return at;
}

/* malloc, realloc and free for the modelled files, which are compiled with these names instead of the usual names. The
 * size of a block is stored in front of it. */
void *fli_weak_malloc(size_t size);
void *fli_weak_realloc(void *old, size_t size);
void  fli_weak_free(void *old);

void *fli_weak_malloc(size_t size)
{
    size_t *at = fli_weak_new(size + 128);
    *at = size;
    return (unsigned char *)at + 128;
}

void *fli_weak_realloc(void *old, size_t size)
{
    size_t old_size = *(size_t *)(void *)((unsigned char *)old - 128);
    void  *at = fli_weak_malloc(size);
    plain(old, old_size, 1, false, __builtin_return_address(0));
    memcpy(at, old, old_size < size ? old_size : size);
    fli_weak_free(old);
    return at;
}

void fli_weak_free(void *old)
{
    if (old != NULL) (void)fli_weak_alloc(NULL, old, *(size_t *)(void *)((unsigned char *)old - 128), 0);
}

/* The functions that -fsanitize=thread calls for non-atomic accesses. An access of 8 or 16 bytes marks
 * every fourth byte, because fields may be written together and read one by one. */
#define HOOK(name, size, stride, write)                              \
    void name(void *at);                                             \
    void name(void *at)                                              \
    {                                                                \
        plain(at, size, stride, write, __builtin_return_address(0)); \
    }
#define HOOKS(size, stride)                           \
    HOOK(__tsan_read##size, size, stride, false)      \
    HOOK(__tsan_write##size, size, stride, true)      \
    HOOK(__tsan_unaligned_read##size, size, 1, false) \
    HOOK(__tsan_unaligned_write##size, size, 1, true)
HOOKS(1, 1)
HOOKS(2, 2)
HOOKS(4, 4)
HOOKS(8, 4)
HOOKS(16, 4)

void  __tsan_init(void);
void  __tsan_func_entry(void *from);
void  __tsan_func_exit(void);
void  __tsan_read_range(void *at, size_t size);
void  __tsan_write_range(void *at, size_t size);
void *fli_weak_memset(void *at, int value, size_t size);
void *fli_weak_memcpy(void *to, const void *from, size_t size);
void *fli_weak_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *at, int value, size_t size);
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);

void __tsan_init(void)
{
}
void __tsan_func_entry(void *from)
{
    (void)from;
}
void __tsan_func_exit(void)
{
}
void __tsan_read_range(void *at, size_t size)
{
    plain(at, size, 1, false, __builtin_return_address(0));
}
void __tsan_write_range(void *at, size_t size)
{
    plain(at, size, 1, true, __builtin_return_address(0));
}

/* memset, memcpy and memmove for the modelled files, which are compiled with these names instead of the usual names. */
void *fli_weak_memset(void *at, int value, size_t size)
{
    plain(at, size, 1, true, __builtin_return_address(0));
    return memset(at, value, size);
}
void *fli_weak_memmove(void *to, const void *from, size_t size)
{
    plain(from, size, 1, false, __builtin_return_address(0));
    plain(to, size, 1, true, __builtin_return_address(0));
    return memmove(to, from, size);
}
void *fli_weak_memcpy(void *to, const void *from, size_t size)
{
    return fli_weak_memmove(to, from, size);
}
void *__tsan_memset(void *at, int value, size_t size)
{
    return fli_weak_memset(at, value, size);
}
void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    return fli_weak_memmove(to, from, size);
}
void *__tsan_memmove(void *to, const void *from, size_t size)
{
    return fli_weak_memmove(to, from, size);
}

/* ---- vector clocks ---- */

static void join(fli_weak_clock *into, const fli_weak_clock *from)
{
    for (int i = 0; i < 8; i++) {
        if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
    }
}

void fli_weak_acquire(const fli_weak_clock *from)
{
    join(&fli_weak_clocks[fli_weak_self], from);
}

/* Joins the running thread's clock into `into`, then advances the thread's own entry, so that its later operations are
 * not covered by this release. */
void fli_weak_release(fli_weak_clock *into)
{
    fli_weak_clock *now = &fli_weak_clocks[fli_weak_self];
    join(into, now);
    now->at[fli_weak_self]++;
    FLI_ASSERT(now->at[fli_weak_self] < UINT16_MAX);
}

/* ---- memory orders ---- */

#define SITES 512
#define SITE_SLOTS 2048

static fli_weak_site sites[SITES];
static uint32_t      site_count;
/* Cache: maps the address of a `where` string to its site. A `where` string in a header has a different address in each
 * file that includes the header. */
static struct {
    const char *where;
    uint32_t    site;
} site_slots[SITE_SLOTS];

static uint32_t site_of(const char *where, const char *function, int order)
{
    for (uint32_t i = 0; i < site_count; i++) {
        if (strcmp(sites[i].where, where) == 0) return i;
    }
    FLI_ASSERT(site_count < SITES);
    sites[site_count] = (fli_weak_site){ .where = where, .function = function, .order = order, .now = order };
    return site_count++;
}

/* Returns the memory order of an operation: as written, or as weakened by fli_weak_weaken(). */
static int order_at(const char *where, const char *function, int order)
{
    if (order == FLI_WEAK_RLX) return order;
    uint32_t i = (uint32_t)((uintptr_t)where >> 3) % SITE_SLOTS;
    while (site_slots[i].where != where) {
        if (site_slots[i].where == NULL) {
            site_slots[i].where = where;
            site_slots[i].site = site_of(where, function, order);
        } else {
            i = (i + 1) % SITE_SLOTS;
        }
    }
    fli_weak_site *site = &sites[site_slots[i].site];
    site->used = true;
    return site->now;
}

fli_weak_site *fli_weak_site_at(uint32_t n)
{
    return n < site_count ? &sites[n] : NULL;
}

void fli_weak_weaken(fli_weak_site *site, int order)
{
    site->now &= order;
}

void fli_weak_restore(void)
{
    for (uint32_t i = 0; i < site_count; i++) sites[i].now = sites[i].order;
}

/* ---- atomic memory ---- */

static uint64_t get(const volatile void *at, size_t size)
{
    switch (size) {
    case 1: return *(const volatile uint8_t *)at;
    case 2: return *(const volatile uint16_t *)at;
    case 4: return *(const volatile uint32_t *)at;
    default: FLI_ASSERT(size == 8); return *(const volatile uint64_t *)at;
    }
}

static void store_bytes(volatile void *at, size_t size, uint64_t value)
{
    switch (size) {
    case 1: *(volatile uint8_t *)at = (uint8_t)value; break;
    case 2: *(volatile uint16_t *)at = (uint16_t)value; break;
    case 4: *(volatile uint32_t *)at = (uint32_t)value; break;
    default:
        FLI_ASSERT(size == 8);
        *(volatile uint64_t *)at = value;
        break;
    }
}

static uint64_t cut_to(size_t size, uint64_t value)
{
    return size == 8 ? value : value & ((UINT64_C(1) << (size * 8)) - 1);
}

static location *known(uint32_t offset)
{
    uint32_t i = location_at[offset];
    return i < location_count && locations[i].offset == offset ? &locations[i] : NULL;
}

uint32_t fli_weak_stores(uint32_t offset)
{
    const location *l = known(offset);
    return l != NULL ? l->count : 1;
}

/* Returns the record of a location. A new record has the value in memory as its first store. */
static location *location_of(const volatile void *at, size_t size)
{
    uint32_t offset = fli_weak_offset(at);
    FLI_ASSERT(offset != UINT32_MAX);
    plain_read(offset, __builtin_return_address(0));
    location *l = known(offset);
    if (l != NULL) return l;
    FLI_ASSERT(location_count < LOCATIONS);
    location_at[offset] = (uint16_t)location_count;
    l = &locations[location_count++];
    l->offset = offset;
    l->count = 1;
    memset(l->found_count, 0, sizeof l->found_count);
    l->stores[0] = (store){ .value = get(at, size) };
    return l;
}

void fli_weak_init(volatile void *at, size_t size, uint64_t value)
{
    plain((const void *)at, size, size, true, __builtin_return_address(0));
    store_bytes(at, size, value);
    uint32_t offset = fli_weak_offset(at);
    if (fli_weak_running && offset != UINT32_MAX && known(offset) != NULL) known(offset)->offset = UINT32_MAX;
}

static bool knows(const fli_weak_clock *now, const store *s)
{
    return s->clock <= now->at[s->thread];
}

/* Returns the index of the oldest store that the running thread may still read. */
static uint32_t oldest(const location *l)
{
    const fli_weak_clock *now = &fli_weak_clocks[fli_weak_self];
    uint32_t              from = l->count - 1;
    while (from > 0 && !knows(now, &l->stores[from])) from--;
    if (from == l->count - 1) return from;
    for (uint32_t t = 1; t <= FLI_WEAK_THREADS; t++) {
        uint32_t i = l->found_count[t];
        while (i > 0 && l->found[t][i - 1].clock > now->at[t]) i--;
        if (i > 0 && l->found[t][i - 1].index > from) from = l->found[t][i - 1].index;
    }
    return from;
}

static void remember_for(location *l, uint32_t thread, uint32_t index)
{
    uint32_t n = l->found_count[thread];
    found   *list = l->found[thread];
    if (n > 0 && list[n - 1].index >= index) return;
    FLI_ASSERT(n < READS);
    list[n] = (found){ .clock = fli_weak_clocks[thread].at[thread], .index = (uint16_t)index };
    l->found_count[thread] = (uint8_t)(n + 1);
}

static void remember(location *l, uint32_t index)
{
    remember_for(l, fli_weak_self, index);
}

void fli_weak_find_newest(uint32_t thread)
{
    for (uint32_t i = 0; i < location_count; i++) {
        location *l = &locations[i];
        if (l->offset == UINT32_MAX) continue;
        for (uint32_t t = 1; t <= FLI_WEAK_THREADS; t++) {
            if (thread == 0 || thread == t) remember_for(l, t, l->count - 1);
        }
    }
}

uint64_t fli_weak_newest(const volatile void *at, size_t size)
{
    return get(at, size); /* memory always contains the newest store */
}

static uint64_t find(location *l, uint32_t index, int order)
{
    const store *s = &l->stores[index];
    remember(l, index);
    if ((order & FLI_WEAK_ACQ) != 0) fli_weak_acquire(&s->carries);
    return s->value;
}

/* Appends a store to the location. A read-modify-write (`rmw`) continues the release sequence of the store before
 * it. */
static void append(location *l, volatile void *at, size_t size, uint64_t value, int order, bool rmw)
{
    if (l->count == HISTORY) fli_weak_fail("more stores to one location than the explorer has room for");
    const store *before = &l->stores[l->count - 1];
    if (!rmw && !knows(&fli_weak_clocks[fli_weak_self], before)) fli_weak_loose();
    store *s = &l->stores[l->count++];
    *s = (store){ .value = cut_to(size, value),
                  .thread = (uint8_t)fli_weak_self,
                  .clock = fli_weak_clocks[fli_weak_self].at[fli_weak_self] };
    if (rmw) s->carries = before->carries;
    store_bytes(at, size, value);
    if ((order & FLI_WEAK_REL) != 0) fli_weak_release(&s->carries);
}

uint64_t fli_weak_load(const volatile void *at, size_t size, int order, const char *where, const char *function)
{
    if (!fli_weak_running) return get(at, size);
    uint32_t  fresh = fli_weak_point(FLI_WEAK_KIND_LOAD, at);
    location *l = location_of(at, size);
    uint32_t  from = oldest(l), all = l->count - from;
    if (fresh > from) from = fresh;
    uint32_t index = l->count - 1 - fli_weak_choose(l->count - from, all);
    uint64_t value = find(l, index, order_at(where, function, order));
    FLI_WEAK_NOTE("%s = %#lx%s", where, (unsigned long)value, index + 1 == l->count ? "" : "   (an old value)");
    return value;
}

void fli_weak_store(volatile void *at, size_t size, uint64_t value, int order, const char *where, const char *function)
{
    if (!fli_weak_running) {
        store_bytes(at, size, value);
        return;
    }
    (void)fli_weak_point(FLI_WEAK_KIND_WRITE, at);
    location *l = location_of(at, size);
    append(l, at, size, value, order_at(where, function, order), false);
    FLI_WEAK_NOTE("%s := %#lx", where, (unsigned long)cut_to(size, value));
}

static uint64_t compute(int what, uint64_t old, uint64_t value)
{
    switch (what) {
    case FLI_WEAK_ADD: return old + value;
    case FLI_WEAK_SUB: return old - value;
    case FLI_WEAK_AND: return old & value;
    default: return value;
    }
}

uint64_t fli_weak_rmw(volatile void *at, size_t size, int what, uint64_t value, int order, const char *where,
                      const char *function)
{
    if (!fli_weak_running) {
        uint64_t old = get(at, size);
        store_bytes(at, size, compute(what, old, value));
        return old;
    }
    (void)fli_weak_point(FLI_WEAK_KIND_WRITE, at);
    location *l = location_of(at, size);
    order = order_at(where, function, order);
    uint64_t old = find(l, l->count - 1, order);
    append(l, at, size, compute(what, old, value), order, true);
    FLI_WEAK_NOTE("%s: %#lx := %#lx", where, (unsigned long)old, (unsigned long)l->stores[l->count - 1].value);
    return old;
}

/* Compare-and-swap. Succeeds only if the newest store has the expected value. May fail on any readable store with
 * another value; a weak compare-and-swap may also fail spuriously. */
bool fli_weak_cas(volatile void *at, size_t size, void *expected, uint64_t wanted, int order, int fail_order,
                  bool may_fail, const char *where, const char *function)
{
    uint64_t want = get(expected, size);
    if (!fli_weak_running) {
        uint64_t old = get(at, size);
        if (old == want) store_bytes(at, size, wanted);
        else store_bytes(expected, size, old);
        return old == want;
    }
    (void)fli_weak_point(FLI_WEAK_KIND_WRITE, at);
    location *l = location_of(at, size);
    uint32_t  candidates[HISTORY + 1], n = 0, newest = l->count - 1;
    /* The candidate HISTORY stands for success of the compare-and-swap; every other candidate is the index of a store
     * on which it fails. */
    if (l->stores[newest].value == want) candidates[n++] = HISTORY;
    for (uint32_t i = newest + 1; i-- > oldest(l);) {
        if (l->stores[i].value != want) candidates[n++] = i;
    }
    order = order_at(where, function, order);
    uint32_t chosen = candidates[fli_weak_choose(n, n)];
    if (chosen == HISTORY && may_fail && fli_weak_spurious()) chosen = newest;
    if (chosen == HISTORY) {
        (void)find(l, newest, order);
        append(l, at, size, wanted, order, true);
        FLI_WEAK_NOTE("%s: %#lx := %#lx", where, (unsigned long)want, (unsigned long)cut_to(size, wanted));
        return true;
    }
    uint64_t value = find(l, chosen, fail_order);
    store_bytes(expected, size, value);
    FLI_WEAK_NOTE("%s: no, found %#lx%s", where, (unsigned long)value, chosen == newest ? "" : " (an old value)");
    return false;
}
