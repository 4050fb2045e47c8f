/* interrupt.c - see interrupt.h. */
#include "port/interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    unsigned        count;
    int             number;
    void (*handler)(void);
    struct sigaction before;
} installed = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The signal handler. Also calls the handler that was installed before, because the signal may be meant for that
 * handler. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    installed.handler();
    /* SIG_DFL and SIG_IGN can be compared through either member, because sa_handler and sa_sigaction are one field. */
    bool was_there = installed.before.sa_handler != SIG_DFL && installed.before.sa_handler != SIG_IGN;
    if (was_there && (installed.before.sa_flags & SA_SIGINFO) != 0) {
        installed.before.sa_sigaction(number, info, context);
    } else if (was_there) {
        installed.before.sa_handler(number);
    }
    errno = error;
}

filch_err fli_interrupt_install(int number, void (*handler)(void))
{
    filch_err err = FILCH_OK;
    if (number == 0) number = SIGURG;
    pthread_mutex_lock(&installed.lock);
    if (installed.count > 0) {
        if (number != installed.number || handler != installed.handler) err = FILCH_EBUSY;
    } else {
        struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
        sigemptyset(&action.sa_mask);
        installed.number = number;
        installed.handler = handler;
        if (sigaction(number, NULL, &installed.before) != 0 || sigaction(number, &action, NULL) != 0) err = FILCH_ESYS;
    }
    if (err == FILCH_OK) installed.count++;
    pthread_mutex_unlock(&installed.lock);
    return err;
}

void fli_interrupt_remove(void)
{
    pthread_mutex_lock(&installed.lock);
    if (--installed.count == 0) (void)sigaction(installed.number, &installed.before, NULL);
    pthread_mutex_unlock(&installed.lock);
}

void fli_interrupt_allow(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, installed.number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

uint64_t fli_interrupt_me(void)
{
    return (uint64_t)syscall(SYS_gettid);
}

void fli_interrupt_send(uint64_t thread)
{
    (void)syscall(SYS_tgkill, getpid(), (pid_t)thread, installed.number);
}
