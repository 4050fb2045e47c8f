/* io_stress.c - connections that open and close in every way at once: nothing is lost, mixed up or left open.
 *
 *     io_stress LIVES
 *
 * Many clients connect over a unix socket. Each client writes rounds of random size, with bytes that are computed from
 * a number, and a server process, which was *given* the connection, sends the bytes back. Clients check every byte.
 * Reads take the bytes that are there, or an exact number of bytes, or have a timeout so short that it often expires in
 * the middle; some reads are cancelled while they wait. Some clients end in the middle of a round, and another thread
 * kills clients and servers at any moment. LIVES is divided among schedulers with 1, 2 and 4 workers, with the usual
 * spin time and without spinning (then workers park at every opportunity, and each report has to unpark the worker in
 * the poller).
 *
 * A lost report shows as missing progress for STRESS_LIMIT. At the end all processes have ended and the program has as
 * many descriptors as before.
 *
 * Exit: 0 no error found; 1 something was lost, mixed up or left open; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "support/descriptors.h"
#include "support/stress.h"
#include "support/yield_slice.h"

#define CROWD 24
#define ROUND_MAX 70000

typedef struct game {
    filch_sched         *sched;
    uint64_t             client_count;
    char                 address[64];
    filch_pid            listener;
    stress_watch         watch;
    FLI_ATOMIC(uint64_t) begun, ended, rounds, wrong, timeouts, cancels, kills;
} game;

static game g;

static void wrong(const char *what, uint64_t a, uint64_t b)
{
    fprintf(stderr, "\nio_stress: %s (%" PRIu64 ", %" PRIu64 ")\n", what, a, b);
    fli_add_rlx(&g.wrong, 1);
}

/* ---- servers: processes that send back what they receive ---- */

typedef struct server {
    filch_stream stream;
} server;

static filch_err server_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    server *s = self;
    for (size_t i = 0; i < count; i++) {
        filch_err err = FILCH_OK;
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            err = filch_stream_take(out, &events[i].data, &s->stream);
            if (err == FILCH_OK) err = filch_yield_read(out, 1, s->stream, 0, FILCH_FOREVER);
        } else if (events[i].error != FILCH_OK) {
            return filch_done(out, filch_none());
        } else if (events[i].tag == 1) {
            /* The server reads again only when this write is completed: otherwise two writes of the stream could be
             * outstanding at once. */
            err = filch_yield_write(out, 2, s->stream, events[i].data, FILCH_FOREVER);
        } else {
            err = filch_yield_read(out, 1, s->stream, 0, FILCH_FOREVER);
        }
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type server_type = { .name = "server", .size = sizeof(server), .step = server_step };

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_stream *listener = self;
    filch_err     err = FILCH_OK;
    if (count == 0) {
        err = filch_yield_listen(out, 1, g.address, NULL);
        return err == FILCH_OK ? filch_idle(out) : err;
    }
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].error != FILCH_OK) return events[i].error;
        if (events[i].tag == 1) {
            *listener = filch_as_stream(&events[i].data);
            fli_add_rel(&g.begun, 1); /* counts a server that listens: when all servers listen, clients may connect */
        } else {
            filch_pid pid;
            err = filch_spawn(g.sched, &server_type, NULL, &pid);
            if (err == FILCH_OK) err = filch_stream_give(out, filch_as_stream(&events[i].data), pid);
            if (err == FILCH_OK && pid.serial % 7 == 0) (void)!filch_terminate(g.sched, pid);
        }
        if (err == FILCH_OK) err = filch_yield_accept(out, 2, *listener, FILCH_FOREVER);
    }
    if (err != FILCH_OK && err != FILCH_ECLOSED) wrong("the listener fails", (uint64_t)err, 0);
    return err == FILCH_OK ? filch_idle(out) : err;
}

static const filch_type listener_type = { .name = "listener", .size = sizeof(filch_stream), .step = listener_step };

/* ---- clients ---- */

typedef struct client {
    fli_prng     prng;
    filch_stream stream;
    uint64_t     sent, got; /* number of bytes sent and received so far; the value of byte n is computed from n */
    uint64_t     aim;       /* the client reads until `got` reaches this number */
    uint64_t     exactly;   /* size of the outstanding read; 0: a read of any size */
    uint32_t     rounds;
    bool         reading, writing;
} client;

static uint8_t byte_at(uint64_t n)
{
    return (uint8_t)(n * 31 + (n >> 8));
}

static filch_err client_read(client *c, filch_out *out)
{
    uint64_t left = c->aim - c->got;
    uint64_t timeout_ns = fli_prng_below(&c->prng, 4) == 0 ? fli_prng_below(&c->prng, 20000) : FILCH_FOREVER;
    c->exactly = fli_prng_below(&c->prng, 3) == 0 ? 1 + fli_prng_below(&c->prng, (uint32_t)left) : 0;
    c->reading = true;
    filch_err err = c->exactly > 0 ? filch_yield_read_exactly(out, 3, c->stream, c->exactly, timeout_ns)
                                   : filch_yield_read(out, 3, c->stream, 0, timeout_ns);
    if (err == FILCH_OK && fli_prng_below(&c->prng, 16) == 0) err = filch_yield_io_cancel(out, 4, c->stream);
    return err;
}

static filch_err client_round(client *c, filch_out *out)
{
    static const uint32_t sizes[] = { 1, 30, 5000, ROUND_MAX };
    uint32_t              size = 1 + fli_prng_below(&c->prng, sizes[fli_prng_below(&c->prng, 4)]);
    uint8_t              *bytes = malloc(size);
    if (bytes == NULL) return FILCH_ENOMEM;
    for (uint32_t i = 0; i < size; i++) bytes[i] = byte_at(c->sent + i);
    c->sent += size;
    c->aim = c->sent;
    c->writing = true;
    filch_err err = filch_yield_write(out, 2, c->stream, filch_move(bytes, size, NULL), FILCH_FOREVER);
    if (err != FILCH_OK) free(bytes);
    return err == FILCH_OK ? client_read(c, out) : err;
}

static void client_got(client *c, const filch_data *data)
{
    const uint8_t *bytes = filch_raw(data);
    size_t         size = filch_size(data);
    if (c->exactly > 0 && size != c->exactly) wrong("not exactly", size, c->exactly);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == byte_at(c->got + i)) continue;
        wrong("another byte than was sent", c->got + i, bytes[i]);
        break;
    }
    c->got += size;
    if (c->got > c->sent) wrong("more than was sent", c->got, c->sent);
}

static filch_err client_event(client *c, const filch_event *event, filch_out *out, bool *done)
{
    if (event->tag == 4) return FILCH_OK;
    if (event->tag == 1 && event->error == FILCH_OK) {
        c->stream = filch_as_stream(&event->data);
        return client_round(c, out);
    }
    if (event->tag == 2) c->writing = false;
    if (event->tag == 3) c->reading = false;
    if (event->tag == 3 && (event->error == FILCH_EDEADLINE || event->error == FILCH_ECANCELLED)) {
        fli_add_rlx(event->error == FILCH_EDEADLINE ? &g.timeouts : &g.cancels, 1);
        return client_read(c, out);
    }
    if (event->error != FILCH_OK) {
        /* These errors are allowed: the server may have been killed, or may not have taken the connection. */
        *done = true;
        if (event->error == FILCH_EEND || event->error == FILCH_ERESET || event->error == FILCH_EFULL) return FILCH_OK;
        if (event->error == FILCH_ECANCELLED && event->tag == 2) return FILCH_OK;
        wrong("an unexpected error", (uint64_t)event->error, event->tag);
        return FILCH_OK;
    }
    if (event->tag == 3) client_got(c, &event->data);
    if (event->tag == 3 && c->got < c->aim) return client_read(c, out);
    if (c->reading || c->writing) return FILCH_OK;
    fli_add_rlx(&g.rounds, 1);
    if (c->rounds-- > 0) return client_round(c, out);
    *done = true;
    return FILCH_OK;
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    client *c = self;
    bool    done = false;
    if (count == 0) {
        uint64_t number = fli_add_rlx(&g.begun, 1);
        fli_prng_init(&c->prng, number);
        c->rounds = fli_prng_below(&c->prng, 6);
        filch_err err = filch_yield_connect(out, 1, g.address, NULL);
        return err == FILCH_OK ? filch_idle(out) : err;
    }
    for (size_t i = 0; i < count && !done; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        filch_err err = client_event(c, &events[i], out, &done);
        if (err != FILCH_OK) return err;
    }
    if (fli_prng_below(&c->prng, 20) == 0) done = true; /* the client ends at a random moment */
    return done ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type client_type = { .name = "client", .size = sizeof(client), .step = client_step };

/* on_exit function of a client: spawns the next client. */
static void client_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    if (error != FILCH_OK && error != FILCH_EKILLED && error != FILCH_ECANCELLED)
        wrong("a client fails", (uint64_t)error, 0);
    uint64_t ended = fli_add_rlx(&g.ended, 1) + 1;
    if (ended + CROWD > g.client_count) {
        stress_watch_leave(&g.watch);
        return;
    }
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           next;
    opt.on_exit = client_exit;
    stress_must("spawn", filch_spawn(g.sched, &client_type, &opt, &next));
    if (ended % 5 == 0) {
        fli_add_rlx(&g.kills, 1);
        (void)!filch_terminate(g.sched, next);
    }
}

/* ---- runs ---- */

static bool play(uint64_t client_count, int32_t workers, bool hasty)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    int           before = open_descriptors();
    memset(&g, 0, sizeof g);
    g.client_count = client_count > CROWD ? client_count : CROWD;
    snprintf(g.address, sizeof g.address, "unix:@filch-io-stress-%d-%d-%d", (int)getpid(), workers, hasty);
    opt.workers = workers;
    if (hasty) opt.search_ns = opt.spin_tight = opt.spin_yield = 1;
    stress_watch_init(&g.watch, CROWD);
    stress_must("create", filch_sched_create(&g.sched, &opt));
    stress_must("listener", filch_spawn(g.sched, &listener_type, NULL, &g.listener));
    while (fli_load_acq(&g.begun) == 0) yield_slice();
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.on_exit = client_exit;
    for (int i = 0; i < CROWD; i++) stress_must("spawn", filch_spawn(g.sched, &client_type, &spawn, NULL));
    stress_news news;
    do {
        uint64_t progress = fli_load_rlx(&g.rounds) + fli_load_rlx(&g.ended) + fli_load_rlx(&g.timeouts);
        news = stress_watch_wait(&g.watch, progress);
    } while (news == STRESS_MOVES && fli_load_rlx(&g.wrong) == 0);
    if (news == STRESS_STANDS_STILL) wrong("nothing moves any more", fli_load_rlx(&g.ended), g.client_count);
    if (fli_load_rlx(&g.wrong) > 0) return false;
    filch_err err = filch_sched_stop(g.sched, FILCH_SECONDS(60), NULL);
    if (err != FILCH_OK) wrong("stop", (uint64_t)err, 0);
    if (open_descriptors() != before)
        wrong("descriptors are left open", (uint64_t)open_descriptors(), (uint64_t)before);
    printf("%d workers%s: %" PRIu64 " clients, %" PRIu64 " rounds, %" PRIu64 " timeouts, %" PRIu64
           " cancelled, %" PRIu64 " killed\n",
           workers, hasty ? ", hasty" : "", fli_load_rlx(&g.ended), fli_load_rlx(&g.rounds), fli_load_rlx(&g.timeouts),
           fli_load_rlx(&g.cancels), fli_load_rlx(&g.kills));
    stress_watch_fini(&g.watch);
    return fli_load_rlx(&g.wrong) == 0;
}

int main(int argc, char **argv)
{
    static const int32_t workers[] = { 1, 2, 4 };
    uint64_t             client_count;
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_MAX / 2, &client_count)) {
        fprintf(stderr, "usage: io_stress LIVES\n");
        return 2;
    }
    for (int i = 0; i < 6; i++) {
        if (!play(client_count / 6, workers[i % 3], i >= 3)) return 1;
    }
    return 0;
}
