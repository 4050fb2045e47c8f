/* port.c - implements src/port on the engine: threads, locks, parkers, clock.
 *
 * Locks behave as those of the C library: taking a lock is a read-modify-write, and so is releasing it. A thread that
 * finds the lock held goes into the kernel, and the thread that releases the lock wakes one waiting thread. There is no
 * spinning. A wait is charged to the code that called the function of this file. */
#include "port/clock.h"
#include "port/cpu.h"
#include "port/pages.h"
#include "port/random.h"
#include "port/thread.h"
#include "port/wakefd.h"
#include "scale/blame.h"
#include "scale/engine.h"

#define CALLER __builtin_return_address(0)

static void touch(const void *at, scale_access access, const void *pc)
{
    scale_touch((uintptr_t)at, access, pc);
}

static void spend_call(void)
{
    scale_spend(scale_machine_now()->call);
    scale_sync();
}

static scale_ps until_ps(uint64_t until_ns)
{
    return until_ns >= SCALE_NEVER / 1000 ? SCALE_NEVER : until_ns * 1000;
}

/* Makes a system call that wakes the first thread in `waiters`. */
static void wake_one(scale_queue *waiters, scale_blame_kind kind, const void *pc)
{
    if (waiters->first == NULL) return;
    scale_spend(scale_machine_now()->wake_call);
    scale_blame(kind, pc, scale_machine_now()->wake_call);
    (void)scale_wake(waiters, scale_now());
}

/* ---- locks ---- */

filch_err fli_mutex_init(fli_mutex *mutex)
{
    *mutex = (fli_mutex){ .held = false };
    return FILCH_OK;
}

void fli_mutex_fini(fli_mutex *mutex)
{
    (void)mutex;
}

static void wait_for_lock(fli_mutex *mutex, const void *pc)
{
    scale_ps since = scale_now();
    spend_call();
    /* if the lock was released during spend_call(), the futex call returns at once */
    if (mutex->held) (void)scale_block(&mutex->waiters, SCALE_NEVER);
    scale_sync();
    touch(mutex, SCALE_RMW, pc);
    scale_count_lock_wait(since);
    scale_blame(SCALE_BLAME_LOCK, pc, scale_now() - since);
}

static void lock_for(fli_mutex *mutex, const void *pc)
{
    scale_sync();
    touch(mutex, SCALE_RMW, pc);
    while (mutex->held) wait_for_lock(mutex, pc);
    mutex->held = true;
}

static void unlock_for(fli_mutex *mutex, const void *pc)
{
    scale_sync();
    touch(mutex, SCALE_RMW, pc);
    mutex->held = false;
    wake_one(&mutex->waiters, SCALE_BLAME_LOCK, pc);
}

void fli_mutex_lock(fli_mutex *mutex)
{
    lock_for(mutex, CALLER);
}

bool fli_mutex_try_lock(fli_mutex *mutex)
{
    scale_sync();
    touch(mutex, SCALE_RMW, CALLER);
    if (mutex->held) return false;
    mutex->held = true;
    return true;
}

void fli_mutex_unlock(fli_mutex *mutex)
{
    unlock_for(mutex, CALLER);
}

/* ---- conditions ---- */

filch_err fli_cond_init(fli_cond *cond)
{
    *cond = (fli_cond){ .waiters = { NULL } };
    return FILCH_OK;
}

void fli_cond_fini(fli_cond *cond)
{
    (void)cond;
}

void fli_cond_signal(fli_cond *cond)
{
    scale_sync();
    touch(cond, SCALE_RMW, CALLER);
    wake_one(&cond->waiters, SCALE_BLAME_WAKE, CALLER);
}

void fli_cond_broadcast(fli_cond *cond)
{
    scale_sync();
    touch(cond, SCALE_RMW, CALLER);
    while (cond->waiters.first != NULL) wake_one(&cond->waiters, SCALE_BLAME_WAKE, CALLER);
}

static bool wait_on(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns, const void *pc)
{
    touch(cond, SCALE_RMW, pc);
    unlock_for(mutex, pc);
    /* No scale_sync() between the unlock and the wait: it would let another thread run, and a signal of that thread
     * would be lost. */
    scale_spend(scale_machine_now()->call);
    bool called = scale_block(&cond->waiters, until_ps(until_ns));
    if (!called) scale_spend(scale_machine_now()->alarm);
    lock_for(mutex, pc);
    return called;
}

bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns)
{
    return wait_on(cond, mutex, until_ns, CALLER);
}

void fli_cond_wait(fli_cond *cond, fli_mutex *mutex)
{
    (void)wait_on(cond, mutex, UINT64_MAX, CALLER);
}

/* ---- parkers: a futex, as in src/port/parker.c ---- */

/* Queues of waiting threads, found by the address of their futex word, as in the kernel. A parker belongs to a thread,
 * so there are far fewer words than FUTEXES. */
#define FUTEXES 4096
static struct futex {
    const void *word;
    scale_queue waiters;
} futexes[FUTEXES];

static scale_queue *futex_of(const void *word)
{
    size_t at = (size_t)(((uintptr_t)word * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % FUTEXES;
    while (futexes[at].word != NULL && futexes[at].word != word) at = (at + 1) % FUTEXES;
    futexes[at].word = word;
    return &futexes[at].waiters;
}

filch_err fli_parker_init(fli_parker *parker)
{
    parker->signalled = 0;
    return FILCH_OK;
}

void fli_parker_fini(fli_parker *parker)
{
    (void)parker;
}

void fli_unpark(fli_parker *parker)
{
    scale_sync();
    touch(parker, SCALE_RMW, CALLER);
    if (parker->signalled == 1) return;
    parker->signalled = 1;
    scale_queue *waiters = futex_of(parker);
    if (waiters->first == NULL) spend_call();
    else wake_one(waiters, SCALE_BLAME_WAKE, CALLER);
}

bool fli_park(fli_parker *parker, uint64_t until_ns)
{
    bool in_time = true;
    for (;;) {
        scale_sync();
        touch(parker, SCALE_RMW, CALLER);
        bool signalled = parker->signalled != 0;
        parker->signalled = 0;
        if (signalled || !in_time) return signalled;
        spend_call();
        /* fli_unpark() was called during the system call: the futex call returns at once */
        if (parker->signalled != 0) continue;
        in_time = scale_block(futex_of(parker), until_ps(until_ns));
        if (!in_time) scale_spend(scale_machine_now()->alarm);
    }
}

/* ---- threads ---- */

filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    (void)name;
    thread->index = scale_thread_start(run, arg);
    return FILCH_OK;
}

void fli_thread_join(fli_thread *thread)
{
    scale_thread_join((uint32_t)thread->index);
}

fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns)
{
    (void)thread;
    *cpu_ns = 0;
    return FLI_THREAD_UNKNOWN;
}

void fli_thread_prompt(void)
{
}

void fli_thread_yield(void)
{
    scale_spend(scale_machine_now()->yield);
    scale_sync();
}

void fli_thread_pause(void)
{
    scale_spend(scale_machine_now()->pause);
    scale_sync();
}

void *fli_current_get(void)
{
    return scale_current_get();
}

void fli_current_set(void *worker)
{
    scale_current_set(worker);
}

void *fli_inside_get(void)
{
    return scale_inside_get();
}

void fli_inside_set(void *call)
{
    scale_inside_set(call);
}

/* ---- clocks, CPU counts, random numbers and wake descriptors ---- */

uint64_t fli_program_self(void)
{
    return 1;
}

uint64_t fli_clock_ns(void)
{
    scale_spend(scale_machine_now()->clock);
    scale_sync();
    return scale_now() / 1000;
}

uint64_t fli_clock_wall_ns(void)
{
    return fli_clock_ns();
}

uint64_t fli_clock_cpu_ns(void)
{
    scale_spend(scale_machine_now()->call);
    return scale_cpu(false) / 1000;
}

/* No benchmark calls this function: each benchmark sets its number of workers. */
uint32_t fli_cpu_count(void)
{
    return 1;
}

uint32_t fli_cpu_quota(const char *root)
{
    (void)root;
    return UINT32_MAX;
}

uint64_t fli_random_u64(void)
{
    return scale_random() | 1;
}

/* Only schedulers without workers use wake descriptors, and the scale model has none: returns FILCH_ESYS. */
filch_err fli_wakefd_open(int *out)
{
    (void)out;
    return FILCH_ESYS;
}

void fli_wakefd_close(int fd)
{
    (void)fd;
}

void fli_wakefd_signal(int fd)
{
    (void)fd;
}

void fli_wakefd_clear(int fd)
{
    (void)fd;
}

filch_err fli_alarmfd_open(fli_alarmfd *alarm, int fd)
{
    (void)alarm;
    (void)fd;
    return FILCH_ESYS;
}

void fli_alarmfd_close(fli_alarmfd *alarm)
{
    (void)alarm;
}

void fli_alarmfd_set(fli_alarmfd *alarm, uint64_t at_ns)
{
    (void)alarm;
    (void)at_ns;
}

/* The scale model returns no memory to the system: its pages are those of its own heap. */
void fli_pages_discard(void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}
