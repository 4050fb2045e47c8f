/* interrupt_test.c - a signal to one thread: which handlers are called, and which handler is in place afterwards. */
#include "port/interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

static volatile sig_atomic_t calls, plain_calls, full_calls, full_number;

static void on_interrupt(void)
{
    calls++;
    errno = EPIPE; /* the handler changes errno; the interrupted code must not see the change */
}

static void on_interrupt_too(void)
{
    calls += 100;
}

static void on_plain(int number)
{
    (void)number;
    plain_calls++;
}

static void on_full(int number, siginfo_t *info, void *context)
{
    (void)context;
    full_calls++;
    full_number = info->si_signo == number ? number : -1;
}

static void set_action(int flags, void (*plain)(int), void (*full)(int, siginfo_t *, void *))
{
    struct sigaction action = { .sa_flags = flags };
    sigemptyset(&action.sa_mask);
    if (full != NULL) action.sa_sigaction = full;
    else action.sa_handler = plain;
    ok(sigaction(SIGURG, &action, NULL));
}

static struct sigaction current_action(void)
{
    struct sigaction now;
    ok(sigaction(SIGURG, NULL, &now));
    return now;
}

static void begin(void)
{
    calls = plain_calls = full_calls = full_number = 0;
    ok(fli_interrupt_install(0, on_interrupt));
    fli_interrupt_allow();
}

/* Interrupts the calling thread. The signal is delivered at once, except under TSan, which delivers it at the next
 * system call. */
static void interrupt_me(void)
{
    int before = calls;
    fli_interrupt_send(fli_interrupt_me());
    until(calls > before);
}

TEST(an_interrupt_calls_the_handler_and_keeps_errno)
{
    set_action(0, SIG_DFL, NULL);
    begin();
    errno = ENOENT;
    interrupt_me();
    same(errno, ENOENT);
    same(calls, 1);
    fli_interrupt_remove();
    assert_true(current_action().sa_handler == SIG_DFL);
}

/* The previous handler is called as well, with its own signature, and is restored at the end. */
TEST(a_handler_installed_before_is_called_too)
{
    set_action(0, on_plain, NULL);
    begin();
    interrupt_me();
    same(calls, 1);
    same(plain_calls, 1);
    fli_interrupt_remove();
    assert_true(current_action().sa_handler == on_plain);

    set_action(SA_SIGINFO, NULL, on_full);
    begin();
    interrupt_me();
    same(calls, 1);
    same(full_calls, 1);
    same(full_number, SIGURG);
    fli_interrupt_remove();
    assert_true(current_action().sa_sigaction == on_full);
}

TEST(sig_ign_and_sig_dfl_are_not_called_whatever_their_flags)
{
    static const int flags[] = { 0, SA_SIGINFO };
    for (size_t i = 0; i < 2; i++) {
        set_action(flags[i], SIG_IGN, NULL);
        begin();
        interrupt_me();
        same(calls, 1);
        fli_interrupt_remove();
        set_action(flags[i], SIG_DFL, NULL);
        begin();
        interrupt_me();
        same(calls, 1);
        fli_interrupt_remove();
    }
}

/* Fills with garbage the stack memory that the next call uses for its variables. */
__attribute__((noinline)) static void soil_the_stack(void)
{
    volatile unsigned char rubbish[4096];
    for (size_t i = 0; i < sizeof rubbish; i++) rubbish[i] = 0xff;
}

TEST(only_the_installed_signal_is_unblocked)
{
    sigset_t all, now, before;
    ok(fli_interrupt_install(SIGUSR2, NULL));
    sigfillset(&all);
    ok(pthread_sigmask(SIG_BLOCK, &all, &before));
    soil_the_stack();
    fli_interrupt_allow();
    ok(pthread_sigmask(SIG_SETMASK, &before, &now));
    same(sigismember(&now, SIGUSR2), 0);
    same(sigismember(&now, SIGUSR1), 1);
    same(sigismember(&now, SIGTERM), 1);
    fli_interrupt_remove();
}

TEST(a_second_equal_install_is_counted_and_a_different_one_is_refused)
{
    set_action(0, on_plain, NULL);
    begin();
    ok(fli_interrupt_install(SIGURG, on_interrupt));
    same(fli_interrupt_install(SIGUSR1, on_interrupt), FILCH_EBUSY);
    same(fli_interrupt_install(SIGURG, on_interrupt_too), FILCH_EBUSY);
    fli_interrupt_remove();
    interrupt_me();
    same(calls, 1); /* one of two installations is removed, so the handler is still installed */
    fli_interrupt_remove();
    assert_true(current_action().sa_handler == on_plain);
    ok(fli_interrupt_install(SIGURG, on_interrupt_too)); /* now another handler can be installed */
    interrupt_me();
    same(calls, 101);
    fli_interrupt_remove();
}

TEST(signals_that_do_not_exist_or_cannot_be_caught_are_refused)
{
    same(fli_interrupt_install(-1, on_interrupt), FILCH_ESYS);
    same(fli_interrupt_install(SIGKILL, on_interrupt), FILCH_ESYS);
    begin(); /* succeeds, because the refused calls have left nothing installed */
    fli_interrupt_remove();
}

static FLI_ATOMIC(uint64_t) other_id;
static FLI_ATOMIC(bool)     is_enough;
static FLI_ATOMIC(bool)     other_was_called;
static __thread bool        is_other;

static void on_some_thread(void)
{
    fli_store_rlx(&other_was_called, is_other);
    calls++;
}

static void other(void *unused)
{
    (void)unused;
    is_other = true;
    fli_interrupt_allow(); /* threads of the library start with all signals blocked */
    fli_store_rel(&other_id, fli_interrupt_me());
    while (!fli_load_acq(&is_enough)) yield_slice();
}

TEST(only_the_target_thread_is_interrupted)
{
    fli_thread thread;
    calls = 0;
    set_action(0, SIG_DFL, NULL);
    ok(fli_interrupt_install(0, on_some_thread));
    ok(fli_thread_start(&thread, "other", other, NULL));
    until(fli_load_acq(&other_id) != 0);
    fli_interrupt_send(fli_load_acq(&other_id));
    until(fli_load_acq(&other_was_called));
    fli_store_rel(&is_enough, true);
    fli_thread_join(&thread);
    same(calls, 1);
    fli_interrupt_send(fli_load_rlx(&other_id)); /* the thread has ended: no thread is interrupted */
    same(calls, 1);
    fli_interrupt_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_calls_the_handler_and_keeps_errno),
        cmocka_unit_test(a_handler_installed_before_is_called_too),
        cmocka_unit_test(sig_ign_and_sig_dfl_are_not_called_whatever_their_flags),
        cmocka_unit_test(only_the_installed_signal_is_unblocked),
        cmocka_unit_test(a_second_equal_install_is_counted_and_a_different_one_is_refused),
        cmocka_unit_test(signals_that_do_not_exist_or_cannot_be_caught_are_refused),
        cmocka_unit_test(only_the_target_thread_is_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
