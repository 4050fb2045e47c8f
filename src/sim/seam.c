/* seam.c - implements src/port on the simulator's engine: threads, locks, clock, CPUs, descriptors, entropy. */
#include "sim/seam.h"
#include "base/assert.h"
#include "port/clock.h"
#include "port/cpu.h"
#include "port/random.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "sim/engine.h"

filch_err fli_mutex_init(fli_mutex *mutex)
{
    *mutex = (fli_mutex){ .held = false };
    return FILCH_OK;
}

void fli_mutex_fini(fli_mutex *mutex)
{
    if (mutex->held || mutex->waiters.first != NULL) fli_sim_fail("a lock was destroyed while in use");
}

void fli_mutex_lock(fli_mutex *mutex)
{
    fli_sim_point("mutex_lock");
    while (mutex->held) (void)fli_sim_block(&mutex->waiters, UINT64_MAX, "mutex_lock");
    mutex->held = true;
}

bool fli_mutex_try_lock(fli_mutex *mutex)
{
    fli_sim_point("mutex_try_lock");
    if (mutex->held) return false;
    mutex->held = true;
    return true;
}

void fli_mutex_unlock(fli_mutex *mutex)
{
    if (!mutex->held) fli_sim_fail("a lock was released that was not held");
    mutex->held = false;
    (void)fli_sim_wake(&mutex->waiters, false);
    fli_sim_point("mutex_unlock");
}

filch_err fli_cond_init(fli_cond *cond)
{
    *cond = (fli_cond){ .waiters = { 0 } };
    return FILCH_OK;
}

void fli_cond_fini(fli_cond *cond)
{
    if (cond->waiters.first != NULL) fli_sim_fail("a condition was destroyed while a thread waited on it");
}

void fli_cond_signal(fli_cond *cond)
{
    fli_sim_point("cond_signal");
    (void)fli_sim_wake(&cond->waiters, false);
}

void fli_cond_broadcast(fli_cond *cond)
{
    fli_sim_point("cond_broadcast");
    (void)fli_sim_wake(&cond->waiters, true);
}

bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns)
{
    bool called = true;
    if (fli_sim_spurious()) {
        fli_mutex_unlock(mutex);
    } else {
        /* Unlocking the mutex and starting to wait are one atomic step: there is no scheduling point between them. */
        if (!mutex->held) fli_sim_fail("waiting on a condition without its lock");
        mutex->held = false;
        (void)fli_sim_wake(&mutex->waiters, false);
        called = fli_sim_block(&cond->waiters, until_ns, "cond_wait");
    }
    fli_mutex_lock(mutex);
    return called;
}

void fli_cond_wait(fli_cond *cond, fli_mutex *mutex)
{
    (void)fli_cond_wait_until(cond, mutex, UINT64_MAX);
}

filch_err fli_parker_init(fli_parker *parker)
{
    *parker = (fli_parker){ .waiters = { 0 } };
    return FILCH_OK;
}

void fli_parker_fini(fli_parker *parker)
{
    if (parker->waiters.first != NULL) fli_sim_fail("a parker was destroyed while a thread was parked on it");
}

void fli_unpark(fli_parker *parker)
{
    fli_sim_point("unpark");
    parker->signalled = true;
    (void)fli_sim_wake(&parker->waiters, false);
}

bool fli_park(fli_parker *parker, uint64_t until_ns)
{
    fli_sim_point("park");
    /* Checking `signalled` and blocking are one atomic step, as in the kernel: there is no scheduling point between
     * them. */
    while (!parker->signalled && fli_sim_block(&parker->waiters, until_ns, "park")) {}
    bool signalled = parker->signalled;
    parker->signalled = false;
    return signalled;
}

filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    (void)name;
    fli_sim_point("thread_start");
    if (fli_sim_no_thread()) return FILCH_ESYS;
    thread->index = fli_sim_thread_start(run, arg);
    return FILCH_OK;
}

void fli_thread_join(fli_thread *thread)
{
    fli_sim_point("thread_join");
    fli_sim_thread_join(thread->index);
}

/* Returns FLI_THREAD_UNKNOWN: all virtual threads share one real thread, so none has a CPU time of its own. */
fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns)
{
    (void)thread;
    *cpu_ns = 0;
    return FLI_THREAD_UNKNOWN;
}

/* No effect: the seed alone decides which thread runs next. */
void fli_thread_prompt(void)
{
}

uint64_t fli_program_self(void)
{
    return 1;
}

void fli_thread_yield(void)
{
    fli_sim_yield("thread_yield");
}

void fli_thread_pause(void)
{
    fli_sim_yield("thread_pause");
}

void *fli_current_get(void)
{
    return fli_sim_current_get();
}

void fli_current_set(void *worker)
{
    fli_sim_current_set(worker);
}

void *fli_inside_get(void)
{
    return fli_sim_inside_get();
}

void fli_inside_set(void *call)
{
    fli_sim_inside_set(call);
}

uint64_t fli_clock_ns(void)
{
    fli_sim_point("clock");
    return fli_sim_now_ns();
}

uint32_t fli_cpu_count(void)
{
    return 4;
}

uint32_t fli_cpu_quota(const char *root)
{
    (void)root;
    return UINT32_MAX;
}

uint64_t fli_random_u64(void)
{
    /* two variables, because the order of two calls in one expression depends on the compiler */
    uint64_t high = fli_sim_choose(UINT32_MAX), low = fli_sim_choose(UINT32_MAX);
    return ((high << 32) | low) + 1;
}

/* A simulated descriptor is an index into these arrays. readable[fd]: the descriptor is readable. pollers[fd]: the
 * threads that wait for it. */
static bool          readable[64];
static fli_sim_queue pollers[64];
static uint64_t      open_fds;

filch_err fli_wakefd_open(int *out)
{
    for (int fd = 0; fd < 64; fd++) {
        if (open_fds & (UINT64_C(1) << fd)) continue;
        open_fds |= UINT64_C(1) << fd;
        readable[fd] = false;
        pollers[fd].first = NULL;
        *out = fd;
        return FILCH_OK;
    }
    return FILCH_ESYS;
}

void fli_wakefd_close(int fd)
{
    open_fds &= ~(UINT64_C(1) << fd);
}

void fli_wakefd_signal(int fd)
{
    fli_sim_point("wakefd_signal");
    readable[fd] = true;
    (void)fli_sim_wake(&pollers[fd], true);
}

void fli_wakefd_clear(int fd)
{
    fli_sim_point("wakefd_clear");
    readable[fd] = false;
}

/* The alarm never fires: the simulated programs pass filch_next_timeout() to fli_sim_poll() themselves. */
filch_err fli_alarmfd_open(fli_alarmfd *alarm, int fd)
{
    *alarm = (fli_alarmfd){ .poll = fd, .timer = -1, .at_ns = FLI_NEVER };
    return FILCH_OK;
}

void fli_alarmfd_close(fli_alarmfd *alarm)
{
    alarm->poll = -1;
}

void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns)
{
    alarm->at_ns = at_ns;
}

bool fli_sim_poll(int fd, uint64_t timeout_ns)
{
    fli_sim_point("poll");
    if (!readable[fd]) (void)fli_sim_block(&pollers[fd], fli_clock_after(fli_sim_now_ns(), timeout_ns), "poll");
    return readable[fd];
}
