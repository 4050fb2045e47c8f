/* bell.c - the bell of thread.h out of a lock and a condition: for systems without anything better, and for the explorer,
 * which has its own locks and conditions (src/sim/weakseam). Looking and falling asleep are one step, under the lock. */
#include "port/thread.h"

#if defined(FLI_BELL_OF_LOCK)

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

#endif
