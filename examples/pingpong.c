/* pingpong.c - two processes exchange messages, and main waits for the result.
 *
 * New in this example: a process with an argument (init), a process that replies to the sender (event.from), a process
 * that ends when it is cancelled (FILCH_EVENT_CANCEL), and a thread that waits for the end of a process (on_exit and a
 * semaphore).
 */
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>

#define ROUNDS 5

/* ---- ping: sends a number, waits until it comes back, and repeats this; its result is the number of round trips
 * ---- */

struct ping {
    filch_pid pong;
    int       returned;
};

/* Runs inside filch_spawn. `self` is zeroed. An error returned here is returned by filch_spawn. */
static filch_err ping_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct ping *ping = self;
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD; /* this type has no named methods */
    ping->pong = filch_as_pid(args);
    return FILCH_OK;
}

static filch_err ping_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct ping *ping = self;
    for (size_t i = 0; i < count; i++) {
        /* returning an error ends the process with that error */
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) ping->returned++;
    }
    if (ping->returned >= ROUNDS) return filch_done(out, filch_int(ping->returned));

    /* The first step has no events: it starts the exchange. */
    int round = ping->returned + 1;
    printf("ping %d\n", round);
    filch_err err = filch_send(filch_out_sched(out), ping->pong, filch_int(round));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type ping = { .name = "ping", .size = sizeof(struct ping), .init = ping_init, .step = ping_step };

/* ---- pong: sends everything back, until it is cancelled ---- */

static filch_err pong_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self; /* `self` is unused: the type has no state, its .size is 0 */
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        printf("     pong %d\n", (int)filch_as_int(&events[i].data));
        filch_err err = filch_send(filch_out_sched(out), events[i].from, events[i].data);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type pong = { .name = "pong", .step = pong_step };

/* ---- main ---- */

struct outcome {
    sem_t     over;
    filch_err error;
    int64_t   result;
};

/* Runs on the worker that ended the process. It must not block; sem_post() does not block. */
static void on_exit_of_ping(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    struct outcome *outcome = user;
    (void)pid;
    outcome->error = error;
    outcome->result = filch_as_int(result); /* `result` is valid only during this call: copy what you need */
    sem_post(&outcome->over);
}

int main(void)
{
    struct outcome      outcome = { .error = FILCH_OK };
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    filch_pid           partner;

    sem_init(&outcome.over, 0, 0);
    filch_err err = filch_sched_create(&sched, NULL);
    if (err == FILCH_OK) err = filch_spawn(sched, &pong, NULL, &partner);
    if (err == FILCH_OK) {
        options.args = filch_of_pid(partner);
        options.on_exit = on_exit_of_ping;
        options.on_exit_user = &outcome;
        err = filch_spawn(sched, &ping, &options, NULL);
    }
    if (err != FILCH_OK) {
        fprintf(stderr, "pingpong: %s\n", filch_err_text(err));
        return 1;
    }
    while (sem_wait(&outcome.over) != 0) {} /* sem_wait() fails if a signal interrupts it, so it is repeated */

    /* Ping has ended. Pong is idle; the stop cancels it, and it ends. */
    err = filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
    printf("%d rounds\n", (int)outcome.result);
    return err != FILCH_OK || outcome.error != FILCH_OK || outcome.result != ROUNDS;
}
