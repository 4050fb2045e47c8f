/* echo.c - round trips over loopback sockets: clients send 64 bytes, servers send the bytes back. An operation is one
 * round trip.
 *
 * --size N is the number of round trips in total. CONNECTIONS (environment, 1) connections share the round trips; on
 * each connection PIPELINE (1) round trips are in flight. Client and server are processes of one scheduler: a round
 * trip is two writes, two reads, and the waits of both ends. With IDLE (environment) set to a number N, another program
 * makes N idle connections, and the printed line says how much memory of this program each takes: its process, its
 * stream, and its outstanding read. Memory of the kernel is not included.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 64

static bench    b;
static uint64_t connections, pipeline, idle_connections, per_client;
static char     address[128];
static uint64_t over, rounds_done, accepted;

static filch_err must(filch_err err, const char *what)
{
    if (err != FILCH_OK) fprintf(stderr, "echo: %s: %s\n", what, filch_err_text(err));
    return err;
}

/* ---- server: one process per connection; the first message to the process contains its stream ---- */

struct server {
    filch_stream stream;
};

static filch_err server_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct server *s = self;
    for (size_t i = 0; i < count; i++) {
        filch_err err = FILCH_OK;
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            err = filch_stream_take(out, &events[i].data, &s->stream);
            if (err == FILCH_OK) err = filch_yield_read(out, 1, s->stream, 0, FILCH_FOREVER);
        } else if (events[i].error != FILCH_OK) {
            return filch_done(out, filch_none()); /* the client has closed its connection */
        } else if (events[i].tag == 1) {
            /* Writes the bytes from the buffer in which they were received, without a copy. */
            err = filch_yield_write(out, 2, s->stream, events[i].data, FILCH_FOREVER);
            if (err == FILCH_OK) err = filch_yield_read(out, 1, s->stream, 0, FILCH_FOREVER);
        }
        if (err != FILCH_OK) return must(err, "server");
    }
    return filch_idle(out);
}

static const filch_type server_type = { .name = "server", .size = sizeof(struct server), .step = server_step };

struct listener {
    filch_stream stream;
};

static filch_err client_start(filch_sched *sched);

static filch_err listener_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct listener *l = self;
    filch_err        err = FILCH_OK;
    if (count == 0) {
        err = filch_yield_listen(out, 1, "127.0.0.1:0", NULL);
        return err == FILCH_OK ? filch_idle(out) : err;
    }
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].error != FILCH_OK) return must(events[i].error, "listener");
        if (events[i].tag == 1) {
            l->stream = filch_as_stream(&events[i].data);
            err = filch_stream_address(out, l->stream, FILCH_ADDRESS_LOCAL, address, sizeof address);
            if (err == FILCH_OK && idle_connections == 0) err = client_start(filch_out_sched(out));
            if (idle_connections > 0) bench_over(&b);
        } else {
            filch_pid server;
            err = filch_spawn(filch_out_sched(out), &server_type, NULL, &server);
            if (err == FILCH_OK) err = filch_stream_give(out, filch_as_stream(&events[i].data), server);
            uint64_t now = __atomic_add_fetch(&accepted, 1, __ATOMIC_RELEASE);
            if (idle_connections == 0 && now < connections && err == FILCH_OK) err = client_start(filch_out_sched(out));
        }
        if (err == FILCH_OK) err = filch_yield_accept(out, 2, l->stream, FILCH_FOREVER);
    }
    return err == FILCH_OK ? filch_idle(out) : must(err, "listener");
}

static const filch_type listener_type = { .name = "listener", .size = sizeof(struct listener), .step = listener_step };

/* ---- client ---- */

struct client {
    filch_stream stream;
    uint64_t     left, got;
};

static filch_err client_done(filch_out *out)
{
    if (__atomic_add_fetch(&over, 1, __ATOMIC_ACQ_REL) == connections) bench_over(&b);
    return filch_done(out, filch_none());
}

static filch_err client_write(struct client *c, filch_out *out, uint64_t count)
{
    static const char bytes[BYTES * 1024];
    return filch_yield_write(out, 2, c->stream, filch_bytes(bytes, count * BYTES), FILCH_FOREVER);
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct client *c = self;
    filch_err      err = FILCH_OK;
    if (count == 0) {
        c->left = per_client;
        err = filch_yield_connect(out, 1, address, NULL);
        return err == FILCH_OK ? filch_idle(out) : must(err, "client");
    }
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].error != FILCH_OK) return must(events[i].error, "client");
        if (events[i].tag == 1) {
            c->stream = filch_as_stream(&events[i].data);
            err = client_write(c, out, pipeline);
            if (err == FILCH_OK) err = filch_yield_read(out, 3, c->stream, 0, FILCH_FOREVER);
        } else if (events[i].tag == 3) {
            c->got += filch_size(&events[i].data);
            uint64_t rounds = c->got / BYTES;
            c->got %= BYTES;
            __atomic_add_fetch(&rounds_done, rounds, __ATOMIC_RELAXED);
            c->left -= rounds < c->left ? rounds : c->left;
            if (c->left == 0) return client_done(out);
            if (rounds > 0) err = client_write(c, out, rounds);
            if (err == FILCH_OK) err = filch_yield_read(out, 3, c->stream, 0, FILCH_FOREVER);
        }
    }
    return err == FILCH_OK ? filch_idle(out) : must(err, "client");
}

static const filch_type client_type = { .name = "client", .size = sizeof(struct client), .step = client_step };

static filch_err client_start(filch_sched *sched)
{
    return filch_spawn(sched, &client_type, NULL, NULL);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t    value = text != NULL ? strtoull(text, NULL, 10) : otherwise;
    return value > 0 ? value : otherwise;
}

/* Starts another program that makes the idle connections and then does nothing. */
static pid_t start_idle_clients(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    const char        *colon = strrchr(address, ':');
    at.sin_port = htons((uint16_t)atoi(colon != NULL ? colon + 1 : "0"));
    pid_t child = fork();
    if (child != 0) return child;
    for (uint64_t i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) _exit(1);
    }
    (void)pause();
    _exit(0);
}

static int measure_idle_clients(void)
{
    bench_spawn(&b, &listener_type, filch_none());
    bench_wait(&b);
    uint64_t rss = bench_rss_bytes();
    bench_begin(&b);
    pid_t child = start_idle_clients();
    while (child > 0 && __atomic_load_n(&accepted, __ATOMIC_ACQUIRE) < connections &&
           waitpid(child, NULL, WNOHANG) == 0) {
        bench_sleep_ns(1000000);
    }
    bool all = __atomic_load_n(&accepted, __ATOMIC_ACQUIRE) == connections;
    if (all) bench_quiet(&b);
    bench_end(&b, connections);
    bench_value(&b, (double)(bench_rss_bytes() - rss) / (double)connections, "bytes");
    bench_extra(&b, "connections", (double)connections);
    if (child > 0 && all) (void)kill(child, SIGKILL);
    return bench_close(&b, all);
}

int main(int argc, char **argv)
{
    bench_open(&b, "echo", 200000, argc, argv);
    idle_connections = number("IDLE", 0);
    connections = idle_connections > 0 ? idle_connections : number("CONNECTIONS", 1);
    pipeline = number("PIPELINE", 1);
    if (pipeline > 1024) pipeline = 1024;
    per_client = b.size / connections;
    if (per_client < pipeline) per_client = pipeline;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    bench_start(&b, NULL);
    if (idle_connections > 0) return measure_idle_clients();
    bench_begin(&b);
    bench_spawn(&b, &listener_type, filch_none());
    bench_wait(&b);
    bench_end(&b, per_client * connections);
    bench_extra(&b, "connections", (double)connections);
    bench_extra(&b, "pipeline", (double)pipeline);
    return bench_close(&b, rounds_done >= per_client * connections);
}
