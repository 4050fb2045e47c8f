/* sockets.c - a TCP server on the loopback interface with one process per connection that sends back what it reads,
 * and its clients, in one program.
 *
 * echo: `variant` connections (fewer if the limit of open files is lower) are made first; then --size round trips of
 * 64 bytes are shared out among them, one in flight on each.
 * accepts: 256 clients at a time connect, do one round trip, close and begin again: --size connections in all.
 */
#include "programs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

enum { BYTES = 64, AT_ONCE = 256, OTHER_FILES = 64 };
enum { LISTEN = 1, ACCEPT, CONNECT, READ, WRITE, CLOSE }; /* tags of yields */

static char             address[128];
static uint64_t         client_count, rounds_each, connects_each;
static bool             waits_for_start; /* true: each client waits for a message before its first round trip */
static filch_pid       *clients;
static _Atomic uint64_t started;

/* ---- server ---- */

struct connection {
    filch_stream stream;
};

static filch_err connection_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct connection *connection = self;
    for (size_t i = 0; i < count; i++) {
        filch_err err = FILCH_OK;
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            err = filch_stream_take(out, &events[i].data, &connection->stream);
        } else if (events[i].error != FILCH_OK) {
            return filch_done(out, filch_none()); /* the client has closed its connection */
        } else if (events[i].tag == READ) {
            err = filch_yield_write(out, WRITE, connection->stream, events[i].data, FILCH_FOREVER);
        } else {
            continue;
        }
        if (err == FILCH_OK) err = filch_yield_read(out, READ, connection->stream, 0, FILCH_FOREVER);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type connection_type = { .name = "connection",
                                            .size = sizeof(struct connection),
                                            .step = connection_step };

struct listener {
    filch_stream stream;
};

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct listener *listener = self;
    filch_err        err = count == 0 ? filch_yield_listen(out, LISTEN, "127.0.0.1:0", NULL) : FILCH_OK;
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        filch_pid server;
        if (events[i].type != FILCH_EVENT_YIELD) return FILCH_ECANCELLED;
        if (events[i].error != FILCH_OK) return events[i].error;
        if (events[i].tag == LISTEN) {
            listener->stream = filch_as_stream(&events[i].data);
            err = filch_stream_address(out, listener->stream, FILCH_ADDRESS_LOCAL, address, sizeof address);
            report(1);
        } else {
            err = filch_spawn(filch_out_sched(out), &connection_type, NULL, &server);
            if (err == FILCH_OK) err = filch_stream_give(out, filch_as_stream(&events[i].data), server);
        }
        if (err == FILCH_OK) err = filch_yield_accept(out, ACCEPT, listener->stream, FILCH_FOREVER);
    }
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type listener_type = { .name = "listener", .size = sizeof(struct listener), .step = listener_step };

/* ---- clients ---- */

struct client {
    filch_stream stream;
    uint64_t     connects, rounds;
    char         request[BYTES];
};

static filch_err client_start(filch_sched *sched);

static filch_err client_ask(struct client *client, filch_out *out)
{
    memset(client->request, (int)(client->rounds % 256), BYTES);
    filch_err err = filch_yield_write(out, WRITE, client->stream, filch_bytes(client->request, BYTES), FILCH_FOREVER);
    return err != FILCH_OK ? err : filch_yield_read_exactly(out, READ, client->stream, BYTES, FILCH_FOREVER);
}

static filch_err client_connected(struct client *client, const filch_event *event, filch_out *out)
{
    client->stream = filch_as_stream(&event->data);
    client->connects++;
    if (!waits_for_start) return client_ask(client, out);
    report(1);
    return client_start(filch_out_sched(out));
}

static filch_err client_answered(struct client *client, const filch_event *event, filch_out *out)
{
    if (memcmp(filch_raw(&event->data), client->request, BYTES) != 0) return FILCH_EUSER;
    client->rounds++;
    if (client->rounds < rounds_each * client->connects) return client_ask(client, out);
    return filch_yield_close(out, CLOSE, client->stream);
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct client *client = self;
    filch_err      err = count == 0 ? filch_yield_connect(out, CONNECT, address, NULL) : FILCH_OK;
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].error != FILCH_OK) return events[i].error;
        if (events[i].type == FILCH_EVENT_MESSAGE) err = client_ask(client, out);
        else if (events[i].tag == CONNECT) err = client_connected(client, &events[i], out);
        else if (events[i].tag == READ) err = client_answered(client, &events[i], out);
        else if (events[i].tag == CLOSE && client->connects < connects_each) {
            err = filch_yield_connect(out, CONNECT, address, NULL);
        } else if (events[i].tag == CLOSE) {
            report((int64_t)client->rounds);
            return filch_done(out, filch_none());
        }
    }
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type client_type = { .name = "client", .size = sizeof(struct client), .step = client_step };

/* Spawns the next client, unless all clients have been spawned already. */
static filch_err client_start(filch_sched *sched)
{
    uint64_t index = atomic_fetch_add(&started, 1);
    return index < client_count ? filch_spawn(sched, &client_type, NULL, &clients[index]) : FILCH_OK;
}

/* ---- the programs ---- */

static void on_failure(void *user, const filch_failure *failure)
{
    (void)user;
    if (failure->error != FILCH_ECANCELLED) bench_must(failure->error, failure->type);
}

static void prepare(uint64_t most)
{
    struct rlimit files = { 0, 0 };
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    client_count = most;
    if (2 * most + OTHER_FILES > files.rlim_cur) client_count = (files.rlim_cur - OTHER_FILES) / 2;
    clients = bench_alloc(client_count, sizeof *clients);
    filch_options options = FILCH_OPTIONS_INIT;
    options.on_failure = on_failure;
    bench_start(&run, &options);
    expect_results(1);
    bench_spawn(&run, &listener_type, filch_none());
    (void)wait_for_results();
}

bool echo(uint64_t variant)
{
    prepare(run.size < variant ? run.size : variant);
    rounds_each = run.size / client_count;
    connects_each = 1;
    waits_for_start = true;
    expect_results(client_count);
    for (int i = 0; i < AT_ONCE; i++) bench_must(client_start(run.sched), "client");
    (void)wait_for_results();
    bench_quiet(&run);
    expect_results(client_count);
    bench_begin(&run);
    for (uint64_t i = 0; i < client_count; i++) bench_send(&run, clients[i], filch_none());
    int64_t rounds = wait_for_results();
    bench_end(&run, client_count * rounds_each);
    bench_extra(&run, "connections", (double)client_count);
    return rounds == (int64_t)(client_count * rounds_each);
}

bool accepts(uint64_t variant)
{
    (void)variant;
    prepare(AT_ONCE);
    rounds_each = 1;
    connects_each = run.size / client_count + 1;
    expect_results(client_count);
    bench_begin(&run);
    for (uint64_t i = 0; i < client_count; i++) bench_must(client_start(run.sched), "client");
    int64_t rounds = wait_for_results();
    bench_end(&run, client_count * connects_each);
    return rounds == (int64_t)(client_count * connects_each);
}
