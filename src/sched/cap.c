/* cap.c - see cap.h. Payloads may outlive their scheduler, so the counter must live until the scheduler and all blocks
 * are freed. The free that comes last frees the counter.
 *
 * The counter counts its own bytes too, from the beginning: with a limit, the program's allocator is never asked for
 * more than the limit.
 *
 * With a limit all bytes are counted in one word, `shared`, so that two allocations cannot both get the last bytes.
 * Without a limit each worker counts in a stripe of its own, without read-modify-writes: the cache line of a shared
 * word would move between workers with each allocation. A stripe may be below 0, because a block may be freed on
 * another worker than the one that allocated it.
 *
 * INVARIANT  bytes in use = shared - HELD + the sum of the stripes, while the scheduler lives. After fli_cap_drop():
 *            bytes in use = shared, without the bytes of the counter. HELD is larger than any number of bytes, so
 *            `shared` is 0 only when the scheduler and all blocks are freed.
 * INVARIANT  `rt` is NULL, and all stripes are 0, before the memory of the scheduler is freed: a later scheduler at the
 *            same address never counts in the stripes of this one.
 * Design: docs/design/memory.md.
 */
#include "sched/cap.h"

#define HELD (UINT64_C(1) << 62)

typedef struct stripe {
    /* Bytes that one worker has allocated minus bytes that it has freed. writes: that worker. reads: any; relaxed: a
     * statistic. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) bytes;
} stripe;

typedef struct cap {
    fli_mem  mem;
    uint64_t max;          /* 0: no limit */
    uint32_t stripe_count; /* number of stripes: one for each worker; 0 if there is a limit */
    /* The runtime of the workers that have stripes. NULL before fli_cap_begin() and after fli_cap_end().
     * writes: fli_cap_begin() and fli_cap_end(). reads: any; relaxed: a worker of `rt` is started after the write in
     * fli_cap_begin(), and has ended before the write in fli_cap_end(). If a later scheduler has the same address, its
     * workers were started after the write in fli_cap_end(), because the allocator can reuse the address only then. */
    FLI_ATOMIC(fli_runtime *) rt;
    /* Bytes in use that no stripe counts. Before fli_cap_drop(), `shared` also contains the constant HELD and the bytes
     * of the counter itself.  PAIR cap.shared */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) shared;
    stripe stripes[];
} cap;

static size_t size_of(uint32_t stripe_count)
{
    return sizeof(cap) + stripe_count * sizeof(stripe);
}

/* Returns the number of bytes that the counter itself occupies. */
static uint64_t own_bytes(uint32_t stripe_count)
{
    return fli_aligned_size(size_of(stripe_count), FLI_LINE);
}

static void let_go(cap *c, uint64_t count)
{
    /* PAIR cap.shared, both halves: freeing the counter is ordered after all other uses of it. */
    if (fli_sub_acqrel(&c->shared, count) != count) return;
    fli_mem mem = c->mem;
    fli_free_aligned(&mem, c, size_of(c->stripe_count), FLI_LINE);
}

/* Adds `more` to the number of bytes in use. To subtract n, pass 2^64 - n. */
static void count(cap *c, uint64_t more)
{
    fli_local *worker = fli_current_get();
    if (worker != NULL && worker->rt == fli_load_rlx(&c->rt)) fli_count(&c->stripes[worker->index].bytes, more);
    else let_go(c, 0 - more);
}

static void *counted(void *user, void *old, size_t old_size, size_t size)
{
    cap  *c = user;
    void *at = c->mem.alloc(c->mem.user, old, old_size, size);
    if (at != NULL || size == 0) count(c, (uint64_t)size - old_size);
    return at;
}

static void *capped(void *user, void *old, size_t old_size, size_t size)
{
    cap *c = user;
    if (size == 0) {
        (void)c->mem.alloc(c->mem.user, old, old_size, 0);
        let_go(c, old_size);
        return NULL;
    }
    uint64_t more = size > old_size ? size - old_size : 0;
    /* The bytes are counted before the allocation, so that two concurrent allocations cannot both get the last bytes
     * below the limit. */
    if (more > 0 && fli_add_acqrel(&c->shared, more) - HELD + more > c->max) {
        let_go(c, more);
        return NULL;
    }
    void *at = c->mem.alloc(c->mem.user, old, old_size, size);
    if (at == NULL && more > 0) let_go(c, more);
    if (at != NULL && size < old_size) let_go(c, old_size - size);
    return at;
}

filch_err fli_cap_create(fli_mem *mem, size_t max, uint32_t worker_count)
{
    uint32_t stripe_count = max == 0 ? worker_count : 0;
    if (max != 0 && own_bytes(stripe_count) > max) return FILCH_ENOMEM;
    cap *c = fli_zalloc_aligned(mem, size_of(stripe_count), FLI_LINE);
    if (c == NULL) return FILCH_ENOMEM;
    c->mem = *mem;
    c->max = max;
    c->stripe_count = stripe_count;
    fli_atomic_init(&c->shared, HELD + own_bytes(stripe_count));
    *mem = (fli_mem){ .alloc = max != 0 ? capped : counted, .user = c };
    return FILCH_OK;
}

/* Returns the counter of allocated bytes that the allocator `mem` keeps, or NULL if `mem` does not count. */
static cap *cap_of(const fli_mem *mem)
{
    return mem->alloc == capped || mem->alloc == counted ? mem->user : NULL;
}

void fli_cap_begin(const fli_mem *mem, fli_runtime *rt)
{
    cap *c = cap_of(mem);
    if (c != NULL && c->max == 0) fli_store_rlx(&c->rt, rt);
}

static uint64_t sum_stripes(cap *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->stripe_count; i++) sum += fli_load_rlx(&c->stripes[i].bytes);
    return sum;
}

void fli_cap_end(const fli_mem *mem)
{
    cap *c = cap_of(mem);
    if (c == NULL) return;
    fli_store_rlx(&c->rt, NULL);
    fli_add_acqrel(&c->shared, sum_stripes(c)); /* does not free the counter: HELD is still in `shared` */
    for (uint32_t i = 0; i < c->stripe_count; i++) fli_store_rlx(&c->stripes[i].bytes, 0);
}

void fli_cap_drop(const fli_mem *mem)
{
    cap *c = cap_of(mem);
    if (c != NULL) let_go(c, HELD + own_bytes(c->stripe_count));
}

uint64_t fli_cap_used(const fli_mem *mem)
{
    cap *c = cap_of(mem);
    if (c == NULL) return 0;
    uint64_t bytes = fli_load_rlx(&c->shared) - HELD + sum_stripes(c);
    /* Returns 0 if the sum is negative. The sum is negative if one worker has allocated a block, another worker has
     * freed it, and sum_stripes() has read the stripe of the first worker before the allocation, but the stripe of the
     * other worker after the free. */
    return bytes < HELD ? bytes : 0;
}
