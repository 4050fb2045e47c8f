/* mixed.c - a mixed load: 200 clients, each 500 times: send a request to a server and wait for the reply, spawn a
 * helper that computes a number on the work pool and reports it, and every tenth time sleep up to 2 ms. An operation is
 * one round. */
#include "bench.h"

#define CLIENTS 200
#define SLEEP_EVERY 10
enum { SLEEP = 1 };

static bench     b; /* b.size (option --size) is the number of rounds per client */
static filch_pid server_pid;

/* ---- server: replies to a number with that number plus one ---- */

static filch_err server_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        filch_err err = filch_send(filch_out_sched(out), events[i].from, filch_int(filch_as_int(&events[i].data) + 1));
        if (err != FILCH_OK && err != FILCH_EDEAD) return err;
    }
    return filch_idle(out);
}

static const filch_type server = { .name = "server", .step = server_step };

/* ---- helper: computes a number on the thread pool, sends it to its client, and ends ---- */

struct helper {
    filch_pid client;
};

static filch_err helper_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct helper *)self)->client = filch_as_pid(args);
    return FILCH_OK;
}

static filch_err work(void *arg, filch_data *result)
{
    uint64_t state = 88172645463325252u, sum = 0;
    (void)arg;
    for (int i = 0; i < 200; i++) sum += bench_random(&state) & 1;
    *result = filch_int(sum > 0 ? 1000 : 0);
    return FILCH_OK;
}

static filch_err helper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct helper *helper = self;
    filch_err      err;
    if (count == 0) {
        err = filch_yield_work(out, 1, work, NULL);
        return err != FILCH_OK ? err : filch_wait(out);
    }
    if (events[0].type != FILCH_EVENT_YIELD || events[0].error != FILCH_OK) return FILCH_ECANCELLED;
    err = filch_send(filch_out_sched(out), helper->client, events[0].data);
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

static const filch_type helper = {
    .name = "helper", .size = sizeof(struct helper), .init = helper_init, .step = helper_step
};

/* ---- a client ---- */

struct client {
    uint64_t random, round;
    int      missing; /* number of replies of the present round that have not arrived yet */
};

static filch_err client_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct client *)self)->random = (uint64_t)filch_as_int(args) * 7919 + 1;
    return FILCH_OK;
}

static filch_err next_round(struct client *client, filch_out *out)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_of_pid(filch_ctx_self(filch_out_ctx(out)));
    if (client->round == b.size) return filch_done(out, filch_none());
    client->round++;
    client->missing = 2;
    filch_err err = filch_send(filch_out_sched(out), server_pid, filch_int(1));
    if (err == FILCH_OK) err = filch_spawn(filch_out_sched(out), &helper, &options, NULL);
    if (err == FILCH_OK && client->round % SLEEP_EVERY == 0) {
        client->missing++;
        err = filch_yield_sleep(out, SLEEP, bench_random(&client->random) % FILCH_MILLISECONDS(2));
    }
    return err != FILCH_OK ? err : filch_idle(out);
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct client *client = self;
    /* the first step has no events: the client waits for the message that starts it */
    if (count == 0) return filch_idle(out);
    for (size_t i = 0; i < count; i++) {
        int64_t number = filch_as_int(&events[i].data);
        if (events[i].type == FILCH_EVENT_CANCEL || events[i].error != FILCH_OK) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE && client->missing > 0 && number != 2 && number != 1000)
            return FILCH_EUSER;
        if (client->missing > 0) client->missing--;
    }
    return client->missing > 0 ? filch_idle(out) : next_round(client, out);
}

static const filch_type client = {
    .name = "client", .size = sizeof(struct client), .init = client_init, .step = client_step
};

int main(int argc, char **argv)
{
    filch_pid     clients[CLIENTS];
    filch_options options = FILCH_OPTIONS_INIT;
    bench_open(&b, "mixed", 500, argc, argv);
    bench_start(&b, &options);
    server_pid = bench_spawn(&b, &server, filch_none());
    for (int i = 0; i < CLIENTS; i++) clients[i] = bench_spawn(&b, &client, filch_int(i));
    bench_quiet(&b);
    bench_begin(&b);
    for (int i = 0; i < CLIENTS; i++) bench_send(&b, clients[i], filch_none());
    bench_wait_ended(&b, CLIENTS + CLIENTS * b.size);
    bench_end(&b, CLIENTS * b.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(b.sched, &stats), "stats");
    return bench_close(&b, stats.failed == 0 && stats.spawned == 1 + CLIENTS + CLIENTS * b.size);
}
