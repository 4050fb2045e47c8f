/* stress.h - shared by the stress programs: parses arguments, reports errors, prints names of states, and detects that
 * no progress is made. */
#ifndef FILCH_TEST_STRESS_H
#define FILCH_TEST_STRESS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <filch.h>

#include "port/clock.h"
#include "port/thread.h"

/* If there is no progress for this time, the test fails, because an event was lost. */
#define STRESS_LIMIT FILCH_SECONDS(60)

/* Parses a number from `min` to `max`. Returns false if `text` is not such a number. */
static inline bool stress_parse(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *rest;
    errno = 0;
    unsigned long long value = strtoull(text, &rest, 10);
    /* The first digit is checked because strtoull would accept signs and blanks. */
    if (errno != 0 || *text < '0' || *text > '9' || *rest != '\0' || value < min || value > max) return false;
    *out = value;
    return true;
}

/* Ends the program with a message and exit code 2 if `err` is not FILCH_OK. For calls, before and during the run, whose
 * failure says nothing about the property that the test checks: memory or threads may be missing, for example. */
static inline void stress_must(const char *what, filch_err err)
{
    if (err == FILCH_OK) return;
    fprintf(stderr, "\n%s: %s: %s\n", program_invocation_short_name, what, filch_err_text(err));
    _exit(2);
}

/* Returns the name of a filch_info.state, or `gone` if the inspection found no process. */
static inline const char *stress_state_name(int32_t state)
{
    static const char *const names[] = { "gone", "ready", "running", "blocked", "idle", "complete" };
    return state >= 0 && state <= FILCH_STATE_COMPLETE ? names[state] : "?";
}

/* ---- progress ---- */

/* The main thread uses this struct to wait until all players (threads or processes of the test) have ended, and to
 * check once per second that they make progress. */
typedef struct stress_watch {
    fli_mutex lock;
    fli_cond  ended;
    uint32_t  left; /* number of players still running; protected by the lock */
    /* value of `progress` at the last check. Not atomic, like `until_ns`: used only by the main thread */
    uint64_t seen;
    uint64_t until_ns; /* time at which missing progress counts as a failure; 0: no check was made yet */
} stress_watch;

typedef enum stress_news { STRESS_OVER, STRESS_MOVES, STRESS_STANDS_STILL } stress_news;

static inline void stress_watch_init(stress_watch *watch, uint32_t players)
{
    *watch = (stress_watch){ .left = players };
    stress_must("lock", fli_mutex_init(&watch->lock));
    stress_must("condition", fli_cond_init(&watch->ended));
}

static inline void stress_watch_fini(stress_watch *watch)
{
    fli_cond_fini(&watch->ended);
    fli_mutex_fini(&watch->lock);
}

/* Called when a player ends. Thread: any. */
static inline void stress_watch_leave(stress_watch *watch)
{
    fli_mutex_lock(&watch->lock);
    if (--watch->left == 0) fli_cond_signal(&watch->ended);
    fli_mutex_unlock(&watch->lock);
}

/* Waits one second, or until all players have ended. `progress` is any number that changes while the players make
 * progress. */
static inline stress_news stress_watch_wait(stress_watch *watch, uint64_t progress)
{
    uint64_t    now_ns = fli_clock_ns();
    stress_news news = STRESS_MOVES;
    if (watch->until_ns == 0 || progress != watch->seen) watch->until_ns = fli_clock_after(now_ns, STRESS_LIMIT);
    else if (now_ns >= watch->until_ns) news = STRESS_STANDS_STILL;
    watch->seen = progress;
    fli_mutex_lock(&watch->lock);
    if (watch->left > 0 && news == STRESS_MOVES) {
        (void)fli_cond_wait_until(&watch->ended, &watch->lock, fli_clock_after(now_ns, FILCH_SECONDS(1)));
    }
    if (watch->left == 0) news = STRESS_OVER;
    fli_mutex_unlock(&watch->lock);
    return news;
}

#endif
