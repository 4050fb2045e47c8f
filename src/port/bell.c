/* bell.c - the bell of thread.h, twice: out of a word that the system lets threads sleep on (port/futex.h), and, for systems
 * without that, out of a lock and a condition. Both are explored under weak memory (test/parts/bell_parts.c). */
#include "port/thread.h"

#if defined(FLI_BELL_OF_LOCK)

/* Looking and falling asleep are one step, under the lock. */

filch_err fli_bell_init(fli_bell *bell)
{
    bell->rung = false;
    filch_err err = fli_mutex_init(&bell->lock);
    if (err != FILCH_OK) return err;
    err = fli_cond_init(&bell->cond);
    if (err != FILCH_OK) fli_mutex_fini(&bell->lock);
    return err;
}

void fli_bell_fini(fli_bell *bell)
{
    fli_cond_fini(&bell->cond);
    fli_mutex_fini(&bell->lock);
}

void fli_bell_ring(fli_bell *bell)
{
    fli_mutex_lock(&bell->lock);
    bell->rung = true;
    fli_cond_signal(&bell->cond);
    fli_mutex_unlock(&bell->lock);
}

bool fli_bell_wait(fli_bell *bell, uint64_t until_ns)
{
    fli_mutex_lock(&bell->lock);
    while (!bell->rung && fli_cond_wait_until(&bell->cond, &bell->lock, until_ns)) {}
    bool rung = bell->rung;
    bell->rung = false;
    fli_mutex_unlock(&bell->lock);
    return rung;
}

#else

#include "port/futex.h"

/* A condition variable would do the same with two words and a lock more, and its waiter takes the lock again as one that has
 * been waited for: a system call on the way to the work. */

filch_err fli_bell_init(fli_bell *bell)
{
    fli_atomic_init(&bell->rung, 0);
    return FILCH_OK;
}

void fli_bell_fini(fli_bell *bell)
{
    (void)bell;
}

void fli_bell_ring(fli_bell *bell)
{
    /* PAIR bell.rung, release half. Rung before and not heard: the thread that rang wakes the listener, or it is awake. */
    if (fli_swap_acqrel(&bell->rung, 1) == 0) fli_futex_wake(&bell->rung);
}

bool fli_bell_wait(fli_bell *bell, uint64_t until_ns)
{
    bool in_time = true;
    for (;;) {
        if (fli_swap_acqrel(&bell->rung, 0) != 0) return true; /* PAIR bell.rung, acquire half */
        if (!in_time) return false;
        /* Woken, interrupted, not 0 any more, or the time is up: in every case look at the word again. */
        in_time = fli_futex_wait(&bell->rung, until_ns);
    }
}

#endif
