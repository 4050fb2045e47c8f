/* limit.c - see limit.h. All accesses to the load word are relaxed, because the word carries numbers only; the
 * messages themselves are published by PAIR state.push. */
#include "proc/limit.h"

#include "base/assert.h"

static bool is_of(uint64_t load, uint32_t gen)
{
    return (load >> FLI_LOAD_GEN_SHIFT) == (gen & 0xfffu);
}

bool fli_limit_fits(fli_proc *p, size_t bytes)
{
    uint32_t units = fli_load_rlx(&p->mailbox_units);
    if (units == 0) return bytes / 16 < FLI_MAILBOX_UNITS_MAX;
    return bytes <= (size_t)units * 16;
}

/* count_max() returns the limit of the mailbox in messages, units_max() its limit in units of payload. If the process
 * has no such limit, they return FLI_MAILBOX_MAX and FLI_MAILBOX_UNITS_MAX. */
static uint32_t count_max(fli_proc *p)
{
    uint32_t max = fli_load_rlx(&p->mailbox_max);
    return max != 0 ? max : FLI_MAILBOX_MAX;
}

static uint32_t units_max(fli_proc *p)
{
    uint32_t max = fli_load_rlx(&p->mailbox_units);
    return max != 0 ? max : FLI_MAILBOX_UNITS_MAX;
}

/* Returns true if the mailbox with load `load` and one more message of `units` units would exceed `times` times its
 * limit, in messages or in units. */
static bool is_beyond(fli_proc *p, uint64_t load, uint32_t units, uint32_t times)
{
    uint64_t count = (uint64_t)fli_load_count(load) + 1, sum = (uint64_t)fli_load_units(load) + units;
    return count > (uint64_t)count_max(p) * times || sum > (uint64_t)units_max(p) * times;
}

fli_admit fli_limit_reserve(fli_proc *p, uint32_t gen, uint32_t units, bool queued)
{
    uint64_t load = fli_load_rlx(&p->load);
    for (;;) {
        if (!is_of(load, gen)) return FLI_ADMIT_DEAD;
        if ((load & FLI_LOAD_WAITING) != 0 && !queued) return FLI_ADMIT_FULL;
        bool over = is_beyond(p, load, units, 1);
        bool spares = fli_load_rlx(&p->overflow) == FILCH_OVERFLOW_DROP_OLDEST;
        if (over && (!spares || is_beyond(p, load, units, 2))) return FLI_ADMIT_FULL;
        if (fli_cas_weak_rlx(&p->load, &load, load + FLI_LOAD_COUNT_ONE + units)) {
            return over ? FLI_ADMIT_OVER : FLI_ADMIT;
        }
    }
}

bool fli_limit_release(fli_proc *p, uint32_t gen, uint32_t count, uint32_t units)
{
    uint64_t load = fli_load_rlx(&p->load);
    do {
        /* There is no space to release in two cases. If the load belongs to another generation, the process has ended.
         * If the load is 0, the memory of the slot was returned to the system (sync/slab.h) after a sender with a stale
         * pid had reserved space. */
        if (!is_of(load, gen) || load == 0) return false;
        FLI_ASSERT(fli_load_count(load) >= count && fli_load_units(load) >= units);
    } while (!fli_cas_weak_rlx(&p->load, &load, load - count * FLI_LOAD_COUNT_ONE - units));
    return (load & FLI_LOAD_WAITING) != 0;
}

fli_admit fli_limit_wait(fli_proc *p, uint32_t gen, uint32_t units)
{
    uint64_t load = fli_load_rlx(&p->load);
    for (;;) {
        if (!is_of(load, gen)) return FLI_ADMIT_DEAD;
        if ((load & FLI_LOAD_WAITING) != 0) return FLI_ADMIT_FULL;
        if (!is_beyond(p, load, units, 1)) return FLI_ADMIT;
        if (fli_cas_weak_rlx(&p->load, &load, load | FLI_LOAD_WAITING)) return FLI_ADMIT_FULL;
    }
}

void fli_limit_wait_over(fli_proc *p, uint32_t gen)
{
    uint64_t load = fli_load_rlx(&p->load);
    while (is_of(load, gen) && !fli_cas_weak_rlx(&p->load, &load, load & ~FLI_LOAD_WAITING)) {}
}

void fli_limit_overflowed(fli_proc *p, uint32_t gen)
{
    uint64_t load = fli_load_rlx(&p->load);
    while (is_of(load, gen) && !fli_cas_weak_rlx(&p->load, &load, load | FLI_LOAD_OVERFLOWED)) {}
}

uint64_t fli_limit_close(fli_proc *p, uint32_t gen)
{
    /* Relaxed, like every operation on the load: the load is a counter, and publishes no other data. The list of
     * waiting senders has a lock (dispatch/send_waiters.c). */
    return fli_swap_rlx(&p->load, (uint64_t)((gen + 1) & 0xfffu) << FLI_LOAD_GEN_SHIFT);
}

uint32_t fli_limit_excess(fli_proc *p)
{
    uint64_t load = fli_load_rlx(&p->load);
    uint32_t count = fli_load_count(load), max = count_max(p);
    if (count > max) return count - max;
    /* The number of messages is within its limit, but the units may exceed theirs: then returns 1, so that the caller
     * drops one message and calls again. */
    return fli_load_units(load) > units_max(p) ? 1 : 0;
}

void fli_limit_dropped(fli_proc *p, uint32_t gen, uint32_t n)
{
    uint64_t drops = fli_load_rlx(&p->drops_pending), sum;
    do {
        if (drops >> 32 != gen) return;
        /* Saturates at 2^32 - 1, so that the generation in the high half stays intact. The number of unreported drops
         * gets that large only if the process does not step. */
        sum = (uint64_t)(uint32_t)drops + n > UINT32_MAX ? drops | UINT32_MAX : drops + n;
    } while (!fli_cas_weak_rlx(&p->drops_pending, &drops, sum));
}

uint32_t fli_limit_take_dropped(fli_proc *p)
{
    uint64_t drops = fli_load_rlx(&p->drops_pending);
    while ((uint32_t)drops != 0 && !fli_cas_weak_rlx(&p->drops_pending, &drops, drops & ~(uint64_t)UINT32_MAX)) {}
    return (uint32_t)drops;
}
