/* cap.c - see cap.h. Payloads may outlive their scheduler and come back later, so the limit counts its holders together
 * with its bytes: one for the scheduler, one for each byte; the last one frees it. */
#include "sched/cap.h"

#include "port/atomic.h"

typedef struct cap {
    fli_mem  mem;
    uint64_t max;
    /* Bytes that are out, and 1 for the scheduler.  PAIR cap.used */
    FLI_ATOMIC(uint64_t) used;
} cap;

static void let_go(cap *c, uint64_t count)
{
    /* PAIR cap.used, both halves: whoever frees this comes after all others. */
    if (fli_sub_acqrel(&c->used, count) != count) return;
    fli_mem mem = c->mem;
    fli_free(&mem, c, sizeof *c);
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
    /* Taken first, so that two who ask at once cannot both have the last bytes. */
    if (more > 0 && fli_add_acqrel(&c->used, more) - 1 + more > c->max) {
        let_go(c, more);
        return NULL;
    }
    void *at = c->mem.alloc(c->mem.user, old, old_size, size);
    if (at == NULL && more > 0) let_go(c, more);
    if (at != NULL && size < old_size) let_go(c, old_size - size);
    return at;
}

filch_err fli_cap_create(fli_mem *mem, size_t max)
{
    cap *c = fli_alloc(mem, sizeof *c);
    if (c == NULL) return FILCH_ENOMEM;
    c->mem = *mem;
    c->max = max;
    fli_atomic_init(&c->used, 1);
    *mem = (fli_mem){ .alloc = capped, .user = c };
    return FILCH_OK;
}

void fli_cap_drop(const fli_mem *mem)
{
    if (mem->alloc == capped) let_go(mem->user, 1);
}
