/* thread_test.c - threads, locks, condition variables and parkers. Assertions are in the main thread only, because
 * cmocka leaves a failed test by longjmp. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "port/clock.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/counted.h"
#include "support/instead.h"

INSTEAD_BEGIN(long, syscall, (long number, ...))
{
    long    with[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) with[i] = va_arg(list, long);
    va_end(list);
    return fault_strikes(&fault_of_syscall)
               ? -1
               : __real_syscall(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

/* Data that the threads of a test share. `turn` is protected by `lock`. */
typedef struct shared {
    fli_mutex lock;
    fli_cond  changed;
    int       turn;
    long      sum;
    bool      got_lock;
    void     *current;
    sigset_t  mask;
    char      name[16];
} shared;

static void shared_init(shared *s)
{
    memset(s, 0, sizeof *s);
    ok(fli_mutex_init(&s->lock));
    ok(fli_cond_init(&s->changed));
}

static void shared_fini(shared *s)
{
    fli_cond_fini(&s->changed);
    fli_mutex_fini(&s->lock);
}

static void set_turn(shared *s, int turn)
{
    fli_mutex_lock(&s->lock);
    s->turn = turn;
    fli_cond_broadcast(&s->changed);
    fli_mutex_unlock(&s->lock);
}

static void await_turn(shared *s, int turn)
{
    fli_mutex_lock(&s->lock);
    while (s->turn != turn) fli_cond_wait(&s->changed, &s->lock);
    fli_mutex_unlock(&s->lock);
}

/* ---- locks --------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 20000 };

static void add_many(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        fli_mutex_lock(&s->lock);
        long seen = s->sum;
        if (i % 64 == 0) fli_thread_yield();
        else fli_thread_pause();
        s->sum = seen + 1;
        fli_mutex_unlock(&s->lock);
    }
}

TEST(a_mutex_admits_one_thread_at_a_time)
{
    shared     s;
    fli_thread threads[3];
    shared_init(&s);
    for (int i = 0; i < 3; i++) ok(fli_thread_start(&threads[i], "adder", add_many, &s));
    for (int i = 0; i < 3; i++) fli_thread_join(&threads[i]);
    same(s.sum, 3 * ROUNDS);
    shared_fini(&s);
}

static void try_once(void *arg)
{
    shared *s = arg;
    s->got_lock = fli_mutex_try_lock(&s->lock);
    if (s->got_lock) fli_mutex_unlock(&s->lock);
}

TEST(try_lock_fails_only_while_the_lock_is_held)
{
    shared     s;
    fli_thread thread;
    shared_init(&s);
    fli_mutex_lock(&s.lock);
    ok(fli_thread_start(&thread, "trier", try_once, &s));
    fli_thread_join(&thread);
    assert_false(s.got_lock);
    fli_mutex_unlock(&s.lock);
    ok(fli_thread_start(&thread, "trier", try_once, &s));
    fli_thread_join(&thread);
    assert_true(s.got_lock);
    shared_fini(&s);
}

/* ---- conditions ---------------------------------------------------------------------------------------------- */

static void reply_to_turns(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < 100; i++) {
        await_turn(s, 2 * i + 1);
        set_turn(s, 2 * i + 2);
    }
}

TEST(a_condition_variable_wakes_two_threads_in_turn)
{
    shared     s;
    fli_thread thread;
    shared_init(&s);
    ok(fli_thread_start(&thread, "replier", reply_to_turns, &s));
    for (int i = 0; i < 100; i++) {
        set_turn(&s, 2 * i + 1);
        await_turn(&s, 2 * i + 2);
    }
    fli_thread_join(&thread);
    shared_fini(&s);
}

TEST(a_timed_wait_ends_at_its_time_and_not_before)
{
    shared s;
    shared_init(&s);
    fli_mutex_lock(&s.lock);
    uint64_t until = fli_clock_ns() + 3000000;
    while (fli_cond_wait_until(&s.changed, &s.lock, until)) {} /* true: a spurious wake-up */
    assert_true(fli_clock_ns() >= until);
    assert_false(fli_mutex_try_lock(&s.lock)); /* the wait has reacquired the lock */
    fli_mutex_unlock(&s.lock);
    shared_fini(&s);
}

TEST(a_timed_wait_until_a_past_time_returns_at_once)
{
    shared s;
    shared_init(&s);
    fli_mutex_lock(&s.lock);
    while (fli_cond_wait_until(&s.changed, &s.lock, 1)) {}
    while (fli_cond_wait_until(&s.changed, &s.lock, 0)) {}
    fli_mutex_unlock(&s.lock);
    shared_fini(&s);
}

static void signal_once(void *arg)
{
    shared *s = arg;
    /* succeeds only while the main thread waits: at all other times the main thread holds the lock */
    fli_mutex_lock(&s->lock);
    s->turn = 1;
    fli_cond_signal(&s->changed);
    fli_mutex_unlock(&s->lock);
}

static void wait_for_signal(uint64_t until_ns)
{
    shared     s;
    fli_thread thread;
    shared_init(&s);
    fli_mutex_lock(&s.lock);
    ok(fli_thread_start(&thread, "signaller", signal_once, &s));
    bool in_time = true;
    while (s.turn == 0 && in_time) in_time = fli_cond_wait_until(&s.changed, &s.lock, until_ns);
    same(s.turn, 1);
    assert_true(in_time);
    fli_mutex_unlock(&s.lock);
    fli_thread_join(&thread);
    shared_fini(&s);
}

TEST(a_signal_ends_a_timed_wait)
{
    wait_for_signal(fli_clock_after(fli_clock_ns(), FILCH_SECONDS(1000)));
}

TEST(a_wait_until_the_largest_times_ends_by_a_signal)
{
    wait_for_signal(UINT64_MAX);
    wait_for_signal((uint64_t)INT64_MAX);
    wait_for_signal((uint64_t)INT64_MAX - 1);
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

static void look_around(void *arg)
{
    shared *s = arg;
    s->current = fli_current_get();
    fli_current_set(arg);
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
}

TEST(a_new_thread_blocks_all_signals_and_its_starter_does_not)
{
    shared     s;
    fli_thread thread;
    sigset_t   before, after;
    shared_init(&s);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ok(fli_thread_start(&thread, "looker", look_around, &s));
    fli_thread_join(&thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    static const int asked[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        same(sigismember(&s.mask, asked[i]), 1);
        same(sigismember(&after, asked[i]), sigismember(&before, asked[i]));
        same(sigismember(&after, asked[i]), 0);
    }
    shared_fini(&s);
}

TEST(a_thread_has_the_first_15_bytes_of_its_name)
{
    shared     s;
    fli_thread thread;
    shared_init(&s);
    ok(fli_thread_start(&thread, "short", look_around, &s));
    fli_thread_join(&thread);
    assert_string_equal(s.name, "short");
    ok(fli_thread_start(&thread, "a name that is too long", look_around, &s));
    fli_thread_join(&thread);
    assert_string_equal(s.name, "a name that is ");
    shared_fini(&s);
}

TEST(the_current_pointer_is_separate_for_each_thread)
{
    shared     s;
    fli_thread thread;
    shared_init(&s);
    assert_null(fli_current_get());
    fli_current_set(&thread);
    s.current = &s;
    ok(fli_thread_start(&thread, "looker", look_around, &s));
    fli_thread_join(&thread);
    assert_null(s.current);
    assert_ptr_equal(fli_current_get(), &thread);
    fli_current_set(NULL);
    shared_fini(&s);
}

static size_t stack_of_this_thread(void)
{
    pthread_attr_t attr;
    size_t         size = 0;
    ok(pthread_getattr_np(pthread_self(), &attr));
    ok(pthread_attr_getstacksize(&attr, &size));
    pthread_attr_destroy(&attr);
    return size;
}

static void measure_stack(void *arg)
{
    *(size_t *)arg = stack_of_this_thread();
}

TEST(a_thread_has_the_smallest_stack_if_the_default_is_less)
{
    pthread_attr_t before, little;
    fli_thread     thread;
    size_t         size = 0;
    ok(pthread_getattr_default_np(&before));
    ok(pthread_attr_init(&little));
    ok(pthread_attr_setstacksize(&little, 128 << 10));
    ok(pthread_setattr_default_np(&little));
    filch_err err = fli_thread_start(&thread, "little", measure_stack, &size);
    ok(pthread_setattr_default_np(&before));
    ok(err);
    fli_thread_join(&thread);
    assert_true(size >= FLI_THREAD_STACK_MIN - 4096); /* some C libraries count the guard page as part of the stack */
    pthread_attr_destroy(&little);
    pthread_attr_destroy(&before);
}

#ifdef __GLIBC__ /* not with musl, which limits the default size so that every thread can start */
/* The stack is larger than the address space, so the thread cannot start. */
TEST(a_thread_that_cannot_start_is_an_error)
{
    shared         s;
    fli_thread     thread;
    pthread_attr_t before, huge;
    shared_init(&s);
    ok(pthread_getattr_default_np(&before));
    ok(pthread_attr_init(&huge));
    ok(pthread_attr_setstacksize(&huge, (size_t)1 << 50));
    ok(pthread_setattr_default_np(&huge));
    filch_err err = fli_thread_start(&thread, "never", look_around, &s);
    ok(pthread_setattr_default_np(&before));
    same(err, FILCH_ESYS);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&before);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    same(sigismember(&mask, SIGINT), 0);
    shared_fini(&s);
}
#endif

TEST(an_unpark_ends_the_next_park_and_several_count_once)
{
    fli_parker parker;
    ok(fli_parker_init(&parker));
    assert_false(fli_park(&parker, 0)); /* the time is in the past, and there was no unpark */
    fli_unpark(&parker);
    fli_unpark(&parker);
    assert_true(fli_park(&parker, UINT64_MAX));
    uint64_t until_ns = fli_clock_after(fli_clock_ns(), 2000000);
    assert_false(fli_park(&parker, until_ns));
    assert_true(fli_clock_ns() >= until_ns);
    fli_unpark(&parker);
    assert_true(fli_park(&parker, 0)); /* the unpark came before the wait, so the wait succeeds although its time is
                                          in the past */
#if defined(__linux__)
    /* The system call returns because of a signal, or of an unpark that was already consumed: the park continues until
     * its time is up. */
    static const int reasons[] = { EINTR, EAGAIN };
    for (int i = 0; i < 2; i++) {
        until_ns = fli_clock_ns() + 1000000;
        refuse(syscall, 2, reasons[i]);
        assert_false(fli_park(&parker, until_ns));
        same(refused(syscall), 2);
        assert_true(fli_clock_ns() >= until_ns);
    }
#endif
    fli_parker_fini(&parker);
}

#define TURNS 20000

typedef struct pair {
    fli_parker parkers[2];
    uint64_t   turns; /* not atomic: written by the thread whose turn it is */
} pair;

static void reply_to_unparks(void *arg)
{
    pair *p = arg;
    for (int i = 0; i < TURNS; i++) {
        while (!fli_park(&p->parkers[1], fli_clock_after(fli_clock_ns(), 1000000))) {}
        p->turns++;
        fli_unpark(&p->parkers[0]);
    }
}

TEST(two_threads_unpark_each_other_and_no_unpark_is_lost)
{
    pair       p = { .turns = 0 };
    fli_thread thread;
    ok(fli_parker_init(&p.parkers[0]));
    ok(fli_parker_init(&p.parkers[1]));
    ok(fli_thread_start(&thread, "answers", reply_to_unparks, &p));
    for (uint64_t i = 0; i < TURNS; i++) {
        p.turns++;
        fli_unpark(&p.parkers[1]);
        assert_true(fli_park(&p.parkers[0], UINT64_MAX));
        same(p.turns, 2 * (i + 1));
    }
    fli_thread_join(&thread);
    fli_parker_fini(&p.parkers[0]);
    fli_parker_fini(&p.parkers[1]);
}

#if defined(__linux__) && defined(SYS_sched_setattr) && defined(PR_GET_SECCOMP)
/* The scheduling attributes of a thread: the system's sched_attr. */
typedef struct turns {
    uint32_t size, policy;
    uint64_t flags;
    int32_t  nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} turns;

typedef struct prompted {
    int   rank, refusals; /* `rank`: nice value; `refusals`: which call of syscall() is refused, 0: none */
    turns before, after, child;
} prompted;

static void read_attributes(void *arg)
{
    turns *t = arg;
    (void)__real_syscall(SYS_sched_getattr, 0, t, sizeof *t, 0, 0, 0);
}

static void be_prompt(void *arg)
{
    prompted  *p = arg;
    fli_thread child;
    if (p->rank != 0) (void)setpriority(PRIO_PROCESS, (id_t)__real_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0), p->rank);
    read_attributes(&p->before);
    if (p->refusals != 0) refuse_after(syscall, p->refusals - 1, 1, EPERM);
    fli_thread_prompt();
    fli_thread_prompt();
    refuse_no_more(syscall);
    read_attributes(&p->after);
    if (fli_thread_start(&child, "child", read_attributes, &p->child) == FILCH_OK) fli_thread_join(&child);
}

static prompted prompt(int rank, int refusals)
{
    prompted   p = { .rank = rank, .refusals = refusals };
    fli_thread thread;
    ok(fli_thread_start(&thread, "prompt", be_prompt, &p));
    fli_thread_join(&thread);
    return p;
}

/* Returns true if the system has a slice length per thread. Linux has it since 6.12; false also if a seccomp filter
 * is active. */
static bool has_time_slices(const prompted *p)
{
    return p->before.policy == SCHED_OTHER && p->before.runtime_ns > 100000 &&
           prctl(PR_GET_SECCOMP, 0UL, 0UL, 0UL, 0UL) == 0;
}

TEST(a_prompt_thread_has_a_short_time_slice_and_its_children_do_not)
{
    static const int ranks[] = { 0, 5 };
    for (int i = 0; i < 2; i++) {
        prompted p = prompt(ranks[i], 0);
        same(p.after.policy, p.before.policy);
        same(p.after.nice, p.before.nice);
        same(p.child.policy, p.before.policy);
        same(p.child.nice, p.before.nice);
        same(p.child.runtime_ns, p.before.runtime_ns);
        if (has_time_slices(&p)) same(p.after.runtime_ns, 100000);
    }
}

TEST(a_prompt_thread_passes_its_nice_value_to_its_children)
{
    prompted p = prompt(-5, 0); /* setting a negative nice value needs privileges; without them the value stays 0 */
    same(p.after.nice, p.before.nice);
    same(p.child.nice, p.before.nice);
    if (has_time_slices(&p)) same(p.after.runtime_ns, 100000);
}

TEST(a_refused_short_time_slice_is_set_by_the_next_call)
{
    prompted asked = prompt(0, 1);
    if (has_time_slices(&asked))
        same(asked.after.runtime_ns, 100000); /* the second call of fli_thread_prompt() has
                                                 succeeded */
    prompted set_refused = prompt(0, 2);
    if (has_time_slices(&set_refused)) same(set_refused.after.runtime_ns, 100000);
}

/* Calls fli_thread_prompt() behind a filter that ends the program at any of the scheduling calls of
 * fli_thread_prompt(). Returns 0 if none of these calls was made. */
static int prompt_behind_a_filter(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setattr, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getattr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = sizeof program / sizeof program[0], .filter = program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0) return 2;
    if (prctl(PR_SET_SECCOMP, (unsigned long)SECCOMP_MODE_FILTER, &filter, 0UL, 0UL) != 0) return 2;
    fli_thread_prompt();
    return 0;
}

TEST(behind_a_seccomp_filter_no_scheduling_call_is_made)
{
    int   status = 0;
    pid_t child = fork();
    if (child == 0) {
        int result = prompt_behind_a_filter();
        counted_dump();
        _exit(result);
    }
    assert_true(child > 0);
    same(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2); /* 2: the system does not allow a filter */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unpark_ends_the_next_park_and_several_count_once),
        cmocka_unit_test(two_threads_unpark_each_other_and_no_unpark_is_lost),
        cmocka_unit_test(a_mutex_admits_one_thread_at_a_time),
        cmocka_unit_test(try_lock_fails_only_while_the_lock_is_held),
        cmocka_unit_test(a_condition_variable_wakes_two_threads_in_turn),
        cmocka_unit_test(a_timed_wait_ends_at_its_time_and_not_before),
        cmocka_unit_test(a_timed_wait_until_a_past_time_returns_at_once),
        cmocka_unit_test(a_signal_ends_a_timed_wait),
        cmocka_unit_test(a_wait_until_the_largest_times_ends_by_a_signal),
        cmocka_unit_test(a_new_thread_blocks_all_signals_and_its_starter_does_not),
        cmocka_unit_test(a_thread_has_the_first_15_bytes_of_its_name),
        cmocka_unit_test(the_current_pointer_is_separate_for_each_thread),
        cmocka_unit_test(a_thread_has_the_smallest_stack_if_the_default_is_less),
#ifdef __GLIBC__
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error),
#endif
#if defined(__linux__) && defined(SYS_sched_setattr) && defined(PR_GET_SECCOMP)
        cmocka_unit_test(a_prompt_thread_has_a_short_time_slice_and_its_children_do_not),
        cmocka_unit_test(a_prompt_thread_passes_its_nice_value_to_its_children),
        cmocka_unit_test(a_refused_short_time_slice_is_set_by_the_next_call),
        cmocka_unit_test(behind_a_seccomp_filter_no_scheduling_call_is_made),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
