/* pipeline.c - a pipeline with back pressure: the producer cannot get far ahead of a slow consumer.
 *
 *     producer  ->  squarer  ->  consumer          each mailbox holds at most 4 messages
 *
 * The consumer takes a millisecond for each item. The others could make thousands in that time, but their sends are
 * yields (filch_yield_send) that complete only when the next mailbox has space (FILCH_OVERFLOW_WAIT). So no
 * thread is blocked, nothing is dropped, and memory stays small. At the end an empty message marks the end of the
 * stream.
 */
#include <filch.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>

#define ITEMS 40
#define ROOM 4
/* Maximum number of items that the producer has sent and the consumer has not used. The consumer has up to ROOM items
 * in its mailbox and up to ROOM items in its step. The squarer has up to ROOM items in its mailbox, and up to ROOM
 * items whose squares are not sent yet. The producer has one item whose send waits for space in the squarer's
 * mailbox. */
#define LEAD_MAX (2 * ROOM + 2 * ROOM + 1)

static atomic_int made; /* number of items that the producer has sent; the program reads it only to print and check the
                           producer's lead */

/* Returns how many of `events` are completions. Sets *err if a completion has an error (to that error), or if the
 * process was cancelled (to FILCH_ECANCELLED). */
static int count_answers(const filch_event *events, size_t count, filch_err *err)
{
    int answers = 0;
    for (size_t i = 0; i < count && *err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) *err = FILCH_ECANCELLED;
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        *err = events[i].error;
        answers++;
    }
    return answers;
}

/* Init function of all three types. The state of each type begins with the pid of the next process in the pipeline. */
static filch_err stage_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    *(filch_pid *)self = filch_as_pid(args);
    return FILCH_OK;
}

/* ---- producer: sends one item after the other, the next item when the previous send has been completed ---- */

struct producer {
    filch_pid next;
    int       sent;
};

static filch_err producer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct producer *p = self;
    filch_err        err = FILCH_OK;
    atomic_fetch_add(&made, count_answers(events, count, &err));
    if (err != FILCH_OK) return err;
    if (p->sent > ITEMS) return filch_done(out, filch_int(p->sent));
    p->sent++;
    err = filch_yield_send(out, 0, p->next, p->sent <= ITEMS ? filch_int(p->sent) : filch_none());
    return err != FILCH_OK ? err : filch_wait(out); /* the producer is not stepped until this send is completed */
}

/* ---- squarer: sends the square of each number to `next`; reads no message while such a send is outstanding ---- */

struct squarer {
    filch_pid next;
    int       under_way;
    int       last;
};

static filch_err squarer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct squarer *s = self;
    filch_err       err = FILCH_OK;
    s->under_way -= count_answers(events, count, &err);
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        s->last = filch_kind_of(&events[i].data) == FILCH_KIND_NONE;
        int64_t n = filch_as_int(&events[i].data);
        err = filch_yield_send(out, 0, s->next, s->last ? filch_none() : filch_int(n * n));
        s->under_way++;
    }
    if (err != FILCH_OK) return err;
    if (s->under_way > 0) return filch_wait(out); /* while the process waits, new messages stay in the mailbox */
    return s->last ? filch_done(out, filch_none()) : filch_idle(out);
}

/* ---- consumer: takes a millisecond per item ---- */

struct consumer {
    filch_pid unused; /* stage_init stores a pid here; not used, because the consumer is the last stage */
    int       used, lead_max, last;
    int64_t   sum;
};

static filch_err consumer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct consumer *c = self;
    filch_err        err = FILCH_OK;
    int              before = c->used;
    (void)count_answers(events, count, &err);
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        c->last = filch_kind_of(&events[i].data) == FILCH_KIND_NONE;
        c->sum += filch_as_int(&events[i].data);
        c->used += !c->last;
    }
    if (err != FILCH_OK) return err;
    if (c->used > before) {
        int lead = atomic_load(&made) - before;
        if (lead > c->lead_max) c->lead_max = lead;
        printf("consumer: item %2d to %2d; the producer is %2d ahead\n", before + 1, c->used, lead);
        err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(c->used - before)); /* one millisecond per item */
        return err != FILCH_OK ? err : filch_wait(out);
    }
    if (!c->last) return filch_idle(out);
    int good = c->used == ITEMS && c->sum == (int64_t)ITEMS * (ITEMS + 1) * (2 * ITEMS + 1) / 6;
    printf("%d items, sum of the squares %lld, the producer was at most %d ahead\n", c->used, (long long)c->sum,
           c->lead_max);
    return filch_done(out, filch_int(good && c->lead_max <= LEAD_MAX));
}

/* ---- main: builds the pipeline, the last process first ---- */

static const filch_type producer = {
    .name = "producer", .size = sizeof(struct producer), .init = stage_init, .step = producer_step
};
static const filch_type squarer = {
    .name = "squarer", .size = sizeof(struct squarer), .init = stage_init, .step = squarer_step
};
static const filch_type consumer = {
    .name = "consumer", .size = sizeof(struct consumer), .init = stage_init, .step = consumer_step
};

static sem_t over;
static int   good;

static void on_exit_of_consumer(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    good = error == FILCH_OK && filch_as_int(result) == 1;
    sem_post(&over);
}

int main(void)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    filch_pid           next = { 0, 0 };

    sem_init(&over, 0, 0);
    options.mailbox_max = ROOM;
    options.overflow = FILCH_OVERFLOW_WAIT;
    options.on_exit = on_exit_of_consumer;
    filch_err err = filch_sched_create(&sched, NULL);
    if (err == FILCH_OK) err = filch_spawn(sched, &consumer, &options, &next);
    options.on_exit = NULL;
    options.args = filch_of_pid(next);
    if (err == FILCH_OK) err = filch_spawn(sched, &squarer, &options, &next);
    options.args = filch_of_pid(next);
    if (err == FILCH_OK) err = filch_spawn(sched, &producer, &options, NULL);
    if (err != FILCH_OK) {
        fprintf(stderr, "pipeline: %s\n", filch_err_text(err));
        return 1;
    }
    while (sem_wait(&over) != 0) {}
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL) != FILCH_OK || !good;
}
