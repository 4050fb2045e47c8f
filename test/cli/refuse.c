/* refuse.c - makes calls into libc fail (LD_PRELOAD): the n-th call of one function.
 *
 *     FILCH_REFUSE="memory 12 marker"     malloc and its like; creates the file `marker` when the call has failed
 *
 * Kinds and their failures: memory (all but realloc) and grow (realloc of a page or more) NULL, thread EAGAIN, pipe
 * EMFILE, open (fopen) EACCES, flush (fclose) ENOSPC, and write, read and poll EINTR. The kind late makes no call fail.
 * It delays the write of the one byte that reports the end of the first process: the write waits until the main thread
 * polls with timeout 0 or without a time limit, so that this poll does not find the byte.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Internal names of the C library's allocator. Looking up malloc by dlsym() would itself allocate memory. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static struct {
    char *marker;
    char  what[16];
    /* number of calls of the kind `what` up to and including the call that fails; 0: that call has failed, or no
     * failure is planned */
    atomic_long left;
} plan;

__attribute__((constructor)) static void read_plan(void)
{
    static char marker[256];
    const char *text = getenv("FILCH_REFUSE");
    long        nth = 0;
    if (text == NULL || sscanf(text, "%15s %ld %255s", plan.what, &nth, marker) != 3) return;
    plan.marker = marker;
    atomic_store(&plan.left, nth);
}

static bool refuses(const char *what)
{
    if (atomic_load(&plan.left) <= 0 || strcmp(plan.what, what) != 0 || atomic_fetch_sub(&plan.left, 1) != 1)
        return false;
    int marker = open(plan.marker, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (marker >= 0) close(marker);
    return true;
}

/* Called after main(). From then on no call fails, so that a coverage build can write its counters. */
static void give_up(void)
{
    atomic_store(&plan.left, 0);
}

static int (*program_main)(int, char **, char **);

static int main_then_give_up(int argc, char **argv, char **environment)
{
    (void)atexit(give_up);
    return program_main(argc, argv, environment);
}

/* Replaces the function of the C library that calls main(), so that give_up() is registered by atexit() at the start of
 * main(). A constructor cannot register give_up(): functions registered before main() are called last at exit, after
 * the coverage counters were written. */
int __libc_start_main(int (*fn)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*fn)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    typedef int (*start_fn)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                            void (*)(void), void *);
    program_main = fn;
    start_fn start = (start_fn)(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
    return start(main_then_give_up, argc, argv, init, fini, rtld_fini, stack_end);
}

static void *nothing(void)
{
    errno = ENOMEM;
    return NULL;
}

static int failed(int why)
{
    errno = why;
    return -1;
}

void *malloc(size_t size)
{
    return refuses("memory") ? nothing() : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refuses("memory") ? nothing() : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return size >= 4096 && refuses("grow") ? nothing() : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refuses("memory") ? nothing() : __libc_memalign(alignment, size);
}

/* Calls the function `name` of the next library after this one, usually the C library. */
#define REAL(type, name, ...) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))(__VA_ARGS__)

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    typedef int (*fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return refuses("thread") ? EAGAIN : REAL(fn, "pthread_create", thread, attr, run, arg);
}

int pipe(int ends[2])
{
    typedef int (*fn)(int *);
    return refuses("pipe") ? failed(EMFILE) : REAL(fn, "pipe", ends);
}

FILE *fopen(const char *path, const char *mode)
{
    typedef FILE *(*fn)(const char *, const char *);
    if (!refuses("open")) return REAL(fn, "fopen", path, mode);
    errno = EACCES;
    return NULL;
}

int fclose(FILE *file)
{
    typedef int (*fn)(FILE *);
    int result = REAL(fn, "fclose", file);
    return refuses("flush") ? failed(ENOSPC) : result;
}

/* looked: a poll with timeout 0 has returned; waited: a poll without a time limit has begun */
static atomic_bool looked, waited;

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    typedef ssize_t (*fn)(int, const void *, size_t);
    if (size == 1 && refuses("late")) {
        atomic_store(&looked, false);
        while (!atomic_load(&looked) && !atomic_load(&waited)) (void)sched_yield();
    }
    return refuses("write") ? failed(EINTR) : REAL(fn, "write", descriptor, bytes, size);
}

/* Replaces syscall(), because the program writes texts by pwritev2, a system call that it calls by number. */
long syscall(long number, ...)
{
    typedef long (*fn)(long, long, long, long, long, long, long);
    long    a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_pwritev2 && refuses("write")) return failed(EINTR);
    return REAL(fn, "syscall", number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

ssize_t read(int descriptor, void *bytes, size_t size)
{
    typedef ssize_t (*fn)(int, void *, size_t);
    return refuses("read") ? failed(EINTR) : REAL(fn, "read", descriptor, bytes, size);
}

int poll(struct pollfd *waits, nfds_t count, int timeout)
{
    typedef int (*fn)(struct pollfd *, nfds_t, int);
    if (refuses("poll")) return failed(EINTR);
    if (timeout < 0) atomic_store(&waited, true);
    int result = REAL(fn, "poll", waits, count, timeout);
    if (timeout == 0) atomic_store(&looked, true);
    return result;
}
