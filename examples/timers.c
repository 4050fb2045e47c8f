/* timers.c - three ways to use time: a sleep, a timeout that is cancelled, a ticker with merged ticks.
 *
 * A yield is completed by a FILCH_EVENT_YIELD. A sleep is completed when it is over. A timer and a ticker are completed
 * at once, with an id for cancelling; when they fire they send a FILCH_EVENT_MESSAGE with the same tag.
 */
#define _POSIX_C_SOURCE 200809L
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>

/* Tags: they tell to which yield a completion belongs. */
enum { NAP = 1, TIMEOUT, TIMEOUT_CANCELLED, TICK, BUSY, TICKER_CANCELLED };

#define NAP_MS 10
#define TICK_MS 2
#define BUSY_MS 20

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct watch {
    double  began_ms;
    int64_t timeout, ticker; /* ids of the running timer and of the running ticker */
};

/* Handles one completion. Every case makes the next yield. */
static filch_err on_yield(struct watch *w, const filch_event *event, filch_out *out)
{
    filch_err err = event->error;
    if (err != FILCH_OK) return err;
    switch (event->tag) {
    case NAP: {
        double slept_ms = now_ms() - w->began_ms;
        printf("sleep:   asked for %d ms, slept %.1f ms\n", NAP_MS, slept_ms);
        if (slept_ms < NAP_MS) return FILCH_EUSER; /* a sleep must never end early */
        err = filch_yield_timer(out, TIMEOUT, FILCH_SECONDS(3600));
        break;
    }
    case TIMEOUT: /* the timer is set. This example does not need it any more and cancels it */
        w->timeout = filch_as_int(&event->data);
        err = filch_yield_timer_cancel(out, TIMEOUT_CANCELLED, w->timeout);
        break;
    case TIMEOUT_CANCELLED:
        printf("timeout: %s\n", filch_as_int(&event->data) == 1 ? "cancelled in time" : "too late");
        if (filch_as_int(&event->data) != 1) return FILCH_EUSER;
        err = filch_yield_ticker(out, TICK, FILCH_MILLISECONDS(TICK_MS));
        break;
    /* The ticker runs. While the process waits for the sleep BUSY, messages stay in the mailbox, and ticks are merged
     * into one message. */
    case TICK:
        w->ticker = filch_as_int(&event->data);
        err = filch_yield_sleep(out, BUSY, FILCH_MILLISECONDS(BUSY_MS));
        break;
    case BUSY: return filch_idle(out); /* the process idles, so it receives messages again */
    case TICKER_CANCELLED: return filch_done(out, filch_none());
    default: return FILCH_EUSER;
    }
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err on_message(struct watch *w, const filch_event *event, filch_out *out)
{
    int ticks = (int)filch_as_int(&event->data);
    if (event->tag != TICK) return FILCH_EUSER;
    printf("ticker:  every %d ms; after %d ms one message says %d ticks\n", TICK_MS, BUSY_MS, ticks);
    if (ticks < 2) return FILCH_EUSER; /* normally ten ticks, fewer if the machine is very busy */
    filch_err err = filch_yield_timer_cancel(out, TICKER_CANCELLED, w->ticker);
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err watch_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct watch *w = self;
    if (w->began_ms == 0) {
        w->began_ms = now_ms();
        filch_err err = filch_yield_sleep(out, NAP, FILCH_MILLISECONDS(NAP_MS));
        return err != FILCH_OK ? err : filch_wait(out);
    }
    filch_err err = FILCH_OK;
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) err = FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_YIELD) err = on_yield(w, &events[i], out);
        if (events[i].type == FILCH_EVENT_MESSAGE) err = on_message(w, &events[i], out);
    }
    return err; /* each handled event has set a status for the step (wait, idle or done); the last status counts */
}

static const filch_type watch = { .name = "watch", .size = sizeof(struct watch), .step = watch_step };

static sem_t over;

static void on_exit_of_watch(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    (void)result;
    *(filch_err *)user = error;
    sem_post(&over);
}

int main(void)
{
    filch_err           outcome = FILCH_ESTATE;
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    options.on_exit = on_exit_of_watch;
    options.on_exit_user = &outcome;
    sem_init(&over, 0, 0);
    if (filch_sched_create(&sched, NULL) || filch_spawn(sched, &watch, &options, NULL)) return 1;
    while (sem_wait(&over) != 0) {}
    filch_err err = filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
    if (err == FILCH_OK) err = outcome;
    if (err != FILCH_OK) fprintf(stderr, "timers: %s\n", filch_err_text(err));
    return err != FILCH_OK;
}
