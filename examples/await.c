/* await.c - straight-line steps (filch_await.h): a step that returns in the middle and continues there.
 *
 * The brewer makes tea: it waits for an order, for water (a function on the work pool) and for time to pass, several
 * things at once where possible, and cleans up when it is cancelled. timers.c and work.c show similar processes written
 * as state machines.
 */
#include <filch.h>
#include <filch_await.h>
#include <semaphore.h>
#include <stdio.h>

#define CUPS 3

/* ---- blocking work that runs on the thread pool ---- */

static filch_err boil(void *arg, filch_data *result)
{
    (void)arg;
    *result = filch_int(100);
    return FILCH_OK;
}

/* ---- the brewer ---- */

struct brewer {
    filch_await at; /* must be the first field, because filch_await_close() expects it there */
    filch_pid   guest;
    int64_t     degrees;
    int         cups;
};

/* true when the brewer has cleaned up after a cancel; main reads it after all processes have ended */
static int swept;

enum { WATER = 1, LEAVES = 2 };

static filch_err brewer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct brewer *b = self;
    filch_await   *at = &b->at;
    filch_sched   *sched = filch_out_sched(out);
    FILCH_BEGIN(at, events, count, out);
    for (;;) {
        FILCH_AWAIT_MESSAGE(at);
        b->guest = at->event->from;

        /* Makes two yields, each with its own tag, then waits for both completions, which may come in any order. */
        if (filch_yield_work(out, WATER, boil, NULL) != FILCH_OK) return FILCH_ENOMEM;
        if (filch_yield_sleep(out, LEAVES, FILCH_MILLISECONDS(1)) != FILCH_OK) return FILCH_ENOMEM;
        FILCH_AWAIT_TAG(at, WATER);
        b->degrees = at->error == FILCH_OK ? filch_as_int(at->data) : 0;
        FILCH_AWAIT_TAG(at, LEAVES);

        /* Makes one yield and waits for its completion. The tag of the yield must be `at->tag`. */
        FILCH_AWAIT(at, filch_yield_sleep(out, at->tag, FILCH_MILLISECONDS(3)));
        b->cups++;
        printf("cup %d, brewed at %d degrees\n", b->cups, (int)b->degrees);
        if (filch_send(sched, b->guest, filch_int(b->cups)) != FILCH_OK) break;
    }
    FILCH_FINALLY(at);
    swept = at->reason == FILCH_ECANCELLED; /* true if a cancel ended the loop */
    FILCH_END(at);
}

static const filch_type brewer = {
    .name = "brewer", .size = sizeof(struct brewer), .step = brewer_step, .close = filch_await_close
};

/* ---- guest: a process that sends all orders at once, and drinks one cup after the other ---- */

struct guest {
    filch_await at;
    int         cups;
};

static filch_pid the_brewer; /* set before the guest is spawned, so the guest can read it */

static filch_err guest_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct guest *g = self;
    filch_await  *at = &g->at;
    filch_sched  *sched = filch_out_sched(out);
    FILCH_BEGIN(at, events, count, out);
    for (int i = 0; i < CUPS; i++) { /* `i` may be a local variable because the loop body contains no await */
        filch_err err = filch_send(sched, the_brewer, filch_none());
        if (err != FILCH_OK) return err;
    }
    while (g->cups < CUPS) {
        FILCH_AWAIT_MESSAGE(at);
        if (filch_as_int(at->data) != ++g->cups) return FILCH_EUSER; /* the cups come in the order of the requests */
    }
    return filch_done(out, filch_int(g->cups));
    FILCH_END(at);
}

static const filch_type guest = {
    .name = "guest", .size = sizeof(struct guest), .step = guest_step, .close = filch_await_close
};

struct evening {
    sem_t     over;
    filch_err error;
    int64_t   cups;
};

static void on_exit_of_guest(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    struct evening *evening = user;
    (void)pid;
    evening->error = error;
    evening->cups = filch_as_int(result);
    sem_post(&evening->over);
}

int main(void)
{
    filch_sched        *sched;
    struct evening      evening = { .cups = 0 };
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    sem_init(&evening.over, 0, 0);
    how.on_exit = on_exit_of_guest;
    how.on_exit_user = &evening;
    if (filch_sched_create(&sched, NULL)) return 1;
    if (filch_spawn(sched, &brewer, NULL, &the_brewer)) return 1;
    if (filch_spawn(sched, &guest, &how, NULL)) return 1;
    while (sem_wait(&evening.over) != 0) {}
    filch_err err = filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
    return err != FILCH_OK || evening.error != FILCH_OK || evening.cups != CUPS || !swept;
}
