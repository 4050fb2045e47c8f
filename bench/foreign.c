/* foreign.c - messages from a foreign thread, in alternation: the foreign thread sends one message, then this
 * thread calls filch_tick(). Runs always without workers. Not for timing: it counts how many read-modify-writes
 * and moved cache lines a message between two threads costs, and the counts are equal in every run. An operation
 * is one message. */
#include "bench.h"

#include <pthread.h>

static bench     b;
static filch_pid to;
static uint64_t  received;
static sem_t     send_turn, tick_turn;

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        received++;
    }
    return filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listener_step };

static void *send_all(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < b.size; i++) {
        while (sem_wait(&send_turn) != 0) {}
        bench_send(&b, to, filch_int(1));
        sem_post(&tick_turn);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    bench_open(&b, "foreign", 10000, argc, argv);
    b.workers = 0;
    bench_start(&b, NULL);
    to = bench_spawn(&b, &listener, filch_none());
    bench_quiet(&b);
    sem_init(&send_turn, 0, 0);
    sem_init(&tick_turn, 0, 0);
    if (pthread_create(&thread, NULL, send_all, NULL) != 0) bench_must(FILCH_ESYS, "thread");
    bench_begin(&b);
    for (uint64_t i = 0; i < b.size; i++) {
        sem_post(&send_turn);
        while (sem_wait(&tick_turn) != 0) {}
        bench_must(filch_tick(b.sched, 0, NULL), "tick");
    }
    bench_end(&b, b.size);
    pthread_join(thread, NULL);
    return bench_close(&b, received == b.size);
}
