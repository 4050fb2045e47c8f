/* tour.h - how the tour prints and waits: headings, a progress line, checks, and a gate at which main waits. */
#ifndef TOUR_H
#define TOUR_H

#include <errno.h>
#include <filch.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* ---- time ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double seconds_since(uint64_t began_ns)
{
    return (double)(now_ns() - began_ns) / 1e9;
}

/* ---- printing ---- */

static int failures; /* number of failed checks; changed only by the thread of main */

static void heading(const char *title, const char *what)
{
    static int number;
    printf("\n%d. %s\n   %s\n", ++number, title, what);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("   ");
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

/* If `holds` is false, prints `what` and counts a failure. */
static int check(int holds, const char *what)
{
    if (!holds) {
        failures++;
        say("FAILED: %s", what);
    }
    return holds;
}

static int check_ok(filch_err err, const char *what)
{
    if (err != FILCH_OK) {
        failures++;
        say("FAILED: %s: %s (%s)", what, filch_err_text(err), filch_err_name(err));
    }
    return err == FILCH_OK;
}

/* Prints progress: on a terminal a line that is overwritten, otherwise a new line every two seconds. */
static void progress(const char *what, uint64_t done, uint64_t all)
{
    static uint64_t last_ns;
    int             terminal = isatty(STDOUT_FILENO);
    if (last_ns != 0 && now_ns() - last_ns < (terminal ? FILCH_MILLISECONDS(100) : FILCH_SECONDS(2))) return;
    last_ns = now_ns();
    printf(terminal ? "\r   %s %llu of %llu\033[K" : "   %s %llu of %llu\n", what, (unsigned long long)done,
           (unsigned long long)all);
    fflush(stdout);
}

static void progress_over(void)
{
    if (isatty(STDOUT_FILENO)) printf("\r\033[K");
}

/* Formats a number with commas: "1234567" -> "1,234,567". */
static const char *grouped(uint64_t n, char text[32])
{
    char   digits[24];
    int    length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* ---- waiting ---- */

/* Control-C stops the scheduler and ends the tour; a second Control-C ends the program at once. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_interrupt(void)
{
    struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A gate at which main waits for a process. It opens when that process ends, or when a process posts it. */
typedef struct gate {
    sem_t     open;
    filch_err error;  /* error code of the ended process */
    int64_t   result; /* result of the ended process */
} gate;

static void gate_on_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    gate *g = user;
    (void)pid;
    g->error = error;
    g->result = filch_as_int(result);
    sem_post(&g->open);
}

static filch_spawn_options gate_options(gate *g, filch_data args)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    sem_init(&g->open, 0, 0);
    g->error = FILCH_OK;
    g->result = 0;
    options.args = args;
    options.on_exit = gate_on_exit;
    options.on_exit_user = g;
    return options;
}

/* Waits at most a tenth of a second. Returns true if the gate opened. */
static int gate_try(gate *g)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return sem_timedwait(&g->open, &until) == 0;
}

/* Returns true if main should stop waiting: it was interrupted, or has waited too long since `began_ns`. */
static int must_give_up(uint64_t began_ns, const char *what)
{
    if (interrupted) {
        failures++;
        say("interrupted while waiting for %s", what);
        return 1;
    }
    return !check(now_ns() - began_ns < FILCH_SECONDS(60), what) ? (say("gave up after a minute"), 1) : 0;
}

/* Waits until the gate opens. Returns false if interrupted, after a minute, or if the process failed; the reason is
 * printed. */
static int gate_wait(gate *g, const char *what)
{
    uint64_t began_ns = now_ns();
    while (!gate_try(g)) {
        if (must_give_up(began_ns, what)) return 0;
    }
    return check_ok(g->error, what);
}

#endif
