/* parker.c - the parker of thread.h in two versions: with a futex (port/futex.h) and, for other systems, with a lock
 * and a condition variable. Both are explored under weak memory (test/modelcheck/parker_parts.c). */
#include "port/thread.h"

#if defined(FLI_PARKER_OF_LOCK)

/* Version with a lock and a condition variable: because of the lock, no unpark can come between the check of the flag
 * and the start of the wait. */

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

/* Version with a futex. A condition variable would need two more words and a lock, and its waiter reacquires the lock
 * after the wake-up, which can cost a system call before the work starts. */

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
    /* PAIR parker.signal, release half. If the word was already 1, the earlier caller of fli_unpark() wakes the
     * parked thread, or the thread is awake. There is no acquire half: the parked thread hands nothing to this thread,
     * and a swap continues the release sequence of the earlier caller. */
    if (fli_swap_rel(&parker->signalled, 1) == 0) fli_futex_wake(&parker->signalled);
}

bool fli_park(fli_parker *parker, uint64_t until_ns)
{
    bool in_time = true;
    for (;;) {
        if (fli_swap_acq(&parker->signalled, 0) != 0) return true; /* PAIR parker.signal, acquire half */
        if (!in_time) return false;
        /* fli_futex_wait() returns after a wake-up, after a signal, if the word is not 0, or when the time is up. In
         * each case the loop checks the word again. */
        in_time = fli_futex_wait(&parker->signalled, until_ns);
    }
}

#endif
