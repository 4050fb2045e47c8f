/* parker.c - the parker of thread.h, twice: with a futex (port/futex.h) and, for other systems, with a lock and a
 * condition variable. Both are explored under weak memory (test/parts/parker_parts.c). */
#include "port/thread.h"

#if defined(FLI_PARKER_OF_LOCK)

/* Looking and falling asleep are one step, under the lock. */

filch_err fli_parker_init(fli_parker *parker)
{
    parker->signalled = false;
    filch_err err = fli_mutex_init(&parker->lock);
    if (err != FILCH_OK) return err;
    err = fli_cond_init(&parker->cond);
    if (err != FILCH_OK) fli_mutex_fini(&parker->lock);
    return err;
}

void fli_parker_fini(fli_parker *parker)
{
    fli_cond_fini(&parker->cond);
    fli_mutex_fini(&parker->lock);
}

void fli_unpark(fli_parker *parker)
{
    fli_mutex_lock(&parker->lock);
    parker->signalled = true;
    fli_cond_signal(&parker->cond);
    fli_mutex_unlock(&parker->lock);
}

bool fli_park(fli_parker *parker, uint64_t until_ns)
{
    fli_mutex_lock(&parker->lock);
    while (!parker->signalled && fli_cond_wait_until(&parker->cond, &parker->lock, until_ns)) {}
    bool signalled = parker->signalled;
    parker->signalled = false;
    fli_mutex_unlock(&parker->lock);
    return signalled;
}

#else

#include "port/futex.h"

/* A condition variable would need two words and a lock more, and its waiter reacquires the lock after the wake: a
 * system call before the work starts. */

filch_err fli_parker_init(fli_parker *parker)
{
    fli_atomic_init(&parker->signalled, 0);
    return FILCH_OK;
}

void fli_parker_fini(fli_parker *parker)
{
    (void)parker;
}

void fli_unpark(fli_parker *parker)
{
    /* PAIR parker.signal, release half. If it was signalled already, the earlier caller wakes the parked thread, or the
     * thread is awake. */
    if (fli_swap_acqrel(&parker->signalled, 1) == 0) fli_futex_wake(&parker->signalled);
}

bool fli_park(fli_parker *parker, uint64_t until_ns)
{
    bool in_time = true;
    for (;;) {
        if (fli_swap_acqrel(&parker->signalled, 0) != 0) return true; /* PAIR parker.signal, acquire half */
        if (!in_time) return false;
        /* Woken, interrupted, not 0 any more, or the time is up: in every case look at the word again. */
        in_time = fli_futex_wait(&parker->signalled, until_ns);
    }
}

#endif
