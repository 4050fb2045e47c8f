/* thread.c - threads, locks and condition variables over POSIX. See thread.h. */
#include "port/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "base/assert.h"
#include "port/futex.h"

__thread void *fli_current_slot FLI_TLS_DIRECT, *fli_inside_slot FLI_TLS_DIRECT;

filch_err fli_mutex_init(fli_mutex *mutex)
{
    return pthread_mutex_init(&mutex->posix, NULL) == 0 ? FILCH_OK : FILCH_ESYS;
}

void fli_mutex_fini(fli_mutex *mutex)
{
    FLI_ASSERT(pthread_mutex_destroy(&mutex->posix) == 0);
}

void fli_mutex_lock(fli_mutex *mutex)
{
    FLI_ASSERT(pthread_mutex_lock(&mutex->posix) == 0);
}

bool fli_mutex_try_lock(fli_mutex *mutex)
{
    int err = pthread_mutex_trylock(&mutex->posix);
    FLI_ASSERT(err == 0 || err == EBUSY);
    return err == 0;
}

void fli_mutex_unlock(fli_mutex *mutex)
{
    FLI_ASSERT(pthread_mutex_unlock(&mutex->posix) == 0);
}

filch_err fli_cond_init(fli_cond *cond)
{
    filch_err          err = FILCH_ESYS;
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) return err;
    if (pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&cond->posix, &attr) == 0) {
        err = FILCH_OK;
    }
    pthread_condattr_destroy(&attr);
    return err;
}

void fli_cond_fini(fli_cond *cond)
{
    FLI_ASSERT(pthread_cond_destroy(&cond->posix) == 0);
}

void fli_cond_signal(fli_cond *cond)
{
    FLI_ASSERT(pthread_cond_signal(&cond->posix) == 0);
}

void fli_cond_broadcast(fli_cond *cond)
{
    FLI_ASSERT(pthread_cond_broadcast(&cond->posix) == 0);
}

void fli_cond_wait(fli_cond *cond, fli_mutex *mutex)
{
    FLI_ASSERT(pthread_cond_wait(&cond->posix, &mutex->posix) == 0);
}

bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns)
{
    /* A time that does not fit into time_t means for ever. */
    if (until_ns >= (uint64_t)INT64_MAX) {
        fli_cond_wait(cond, mutex);
        return true;
    }
    struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u) };
    int             err = pthread_cond_timedwait(&cond->posix, &mutex->posix, &until);
    FLI_ASSERT(err == 0 || err == ETIMEDOUT);
    return err == 0;
}

#if defined(__linux__)
static long futex(FLI_ATOMIC(uint32_t) *at, int operation, uint32_t value, const struct timespec *until)
{
#if defined(SYS_futex_time64)
    /* 32-bit systems have two futex calls, for two sizes of time_t. */
    int call = sizeof(time_t) > 4 ? SYS_futex_time64 : SYS_futex;
#else
    int call = SYS_futex;
#endif
    return syscall(call, at, operation | FUTEX_PRIVATE_FLAG, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void fli_futex_wake(FLI_ATOMIC(uint32_t) *word)
{
    (void)futex(word, FUTEX_WAKE, 1, NULL);
}

bool fli_futex_wait(FLI_ATOMIC(uint32_t) *word, uint64_t until_ns)
{
    struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u) };
    bool            ever = until_ns >= (uint64_t)INT64_MAX; /* a time that does not fit into time_t means for ever */
    long            err = futex(word, FUTEX_WAIT_BITSET, 0, ever ? NULL : &until);
    FLI_ASSERT(err == 0 || errno == ETIMEDOUT || errno == EAGAIN || errno == EINTR);
    return err == 0 || errno != ETIMEDOUT;
}
#endif

/* Arguments of the new thread; freed by that thread. */
typedef struct start {
    void (*run)(void *arg);
    void *arg;
    char  name[16];
} start;

static void *begin_thread(void *arg)
{
    start s = *(start *)arg;
    free(arg);
#if defined(__linux__)
    (void)pthread_setname_np(pthread_self(), s.name);
    /* Sets the timer slack to 1 ns. By default Linux adds up to 50 us to every timed sleep, so that several threads
     * share a wake-up. The scheduler needs no slack, because it combines the wake-ups for timers itself
     * (sched/sentinel.c). */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
#endif
    s.run(s.arg);
    return NULL;
}

/* pthread_create with the program's default stack size, or FLI_THREAD_STACK_MIN if the default is less. Returns the
 * error number of pthread_create. */
static int create(pthread_t *thread, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    size_t         size;
    if (pthread_attr_init(&attr) != 0) return pthread_create(thread, NULL, run, arg);
    if (pthread_attr_getstacksize(&attr, &size) == 0 && size < FLI_THREAD_STACK_MIN)
        (void)pthread_attr_setstacksize(&attr, FLI_THREAD_STACK_MIN);
    int err = pthread_create(thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return err;
}

/* Starts a thread. Passes the arguments in memory from malloc, because src/port has no allocator hooks, and
 * pthread_create allocates far more than this. */
filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg)
{
    start *s = malloc(sizeof *s);
    if (s == NULL) return FILCH_ENOMEM;
    *s = (start){ .run = run, .arg = arg };
    strncpy(s->name, name, sizeof s->name - 1);

    sigset_t all, before;
    sigfillset(&all);
    bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    int  err = create(&thread->posix, begin_thread, s);
    if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == 0) return FILCH_OK;
    free(s);
    return FILCH_ESYS;
}

void fli_thread_join(fli_thread *thread)
{
    FLI_ASSERT(pthread_join(thread->posix, NULL) == 0);
}

#if defined(__linux__)
/* Returns the state letter in /proc/self/task/TID/stat, which follows the name in parentheses; 0: cannot be read. */
static char task_state(int tid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[size > 0 ? size : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 0;
}

fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns)
{
    clockid_t       clock;
    struct timespec used;
    *cpu_ns = 0;
    if (pthread_getcpuclockid(thread->posix, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return FLI_THREAD_UNKNOWN;
    *cpu_ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    /* Extracts the thread id from the clock id, which Linux builds as ~tid << 3 | 6. */
    switch (task_state((int)~(clock >> 3))) {
    case 0: return FLI_THREAD_UNKNOWN;
    case 'R': return FLI_THREAD_RUNS;
    default: return FLI_THREAD_SLEEPS;
    }
}
#else
fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns)
{
    (void)thread;
    *cpu_ns = 0;
    return FLI_THREAD_UNKNOWN;
}
#endif

#if defined(__linux__) && defined(SYS_sched_setattr) && defined(PR_GET_SECCOMP)
/* The system's struct sched_attr in its first published version. Declared here, because different versions of the
 * system's headers define it in different files. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t  nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} attributes;

#define TURN_NS UINT64_C(100000) /* the shortest time slice that Linux grants */
#define RESET_ON_FORK UINT64_C(1)

/* Asks for short time slices. Since Linux 6.12 each ordinary thread can set its slice length, and a woken thread with a
 * shorter slice runs before one with a longer slice. Without a shorter slice, the waking thread usually goes on until
 * it sleeps: with both threads on one CPU, a woken thread starts after 10 us instead of 5 us (docs/design/parking.md).
 * Older systems ignore the request. Behind a system call filter (seccomp) no request is made, because some filters
 * answer with a signal that ends the program. */
void fli_thread_prompt(void)
{
    attributes a = { .size = sizeof a };
    if (prctl(PR_GET_SECCOMP, 0UL, 0UL, 0UL, 0UL) != 0) return;
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0, 0, 0) != 0 || a.policy != SCHED_OTHER) return;
    /* the slice is short already: set by an earlier call, or inherited from the parent thread */
    if (a.runtime_ns != 0 && a.runtime_ns <= TURN_NS) return;
    a.size = sizeof a;
    a.runtime_ns = TURN_NS;
    /* RESET_ON_FORK is not set for a thread with raised priority (nice below 0), because it would also reset the
     * priority of the threads and programs that this thread starts. */
    if (a.nice >= 0) a.flags |= RESET_ON_FORK;
    (void)syscall(SYS_sched_setattr, 0, &a, 0, 0, 0, 0);
}
#else
void fli_thread_prompt(void)
{
}
#endif

void fli_thread_yield(void)
{
    sched_yield();
}

uint64_t fli_program_self(void)
{
    return (uint64_t)getpid();
}
