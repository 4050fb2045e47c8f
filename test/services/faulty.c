/* faulty.c - a service for faulty_test.py: calls of its acceptor fail on request, and each connection reports how many
 * live.
 *
 *     FAIL_GIVE="2 3"    the 2nd and the 3rd filch_stream_give fail with FILCH_ENOMEM
 *     FAIL_ACCEPT="3"    the 3rd filch_yield_accept fails with FILCH_ENOMEM: the acceptor ends and is restarted
 *
 * A connection writes "live N" and reads until the client closes.
 */
#include <filch.h>
#include <filch_await.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "service.h"

filch_err __real_filch_stream_give(filch_out *out, filch_stream stream, filch_pid to);
filch_err __wrap_filch_stream_give(filch_out *out, filch_stream stream, filch_pid to);
filch_err __real_filch_yield_accept(filch_out *out, uint64_t tag, filch_stream listener, uint64_t timeout_ns);
filch_err __wrap_filch_yield_accept(filch_out *out, uint64_t tag, filch_stream listener, uint64_t timeout_ns);

/* Returns true if the list of numbers in the environment variable `variable` contains `nth`. */
static bool fails(const char *variable, unsigned nth)
{
    const char *text = getenv(variable);
    for (char *end; text != NULL && *text != '\0'; text = end) {
        unsigned long number = strtoul(text, &end, 10);
        if (number == nth) return true;
        if (end == text) return false;
    }
    return false;
}

/* not atomic: only the acceptor uses them, and the supervisor starts a new acceptor after the old one has ended */
static unsigned gives, accepts;

filch_err __wrap_filch_stream_give(filch_out *out, filch_stream stream, filch_pid to)
{
    return fails("FAIL_GIVE", ++gives) ? FILCH_ENOMEM : __real_filch_stream_give(out, stream, to);
}

filch_err __wrap_filch_yield_accept(filch_out *out, uint64_t tag, filch_stream listener, uint64_t timeout_ns)
{
    return fails("FAIL_ACCEPT", ++accepts) ? FILCH_ENOMEM : __real_filch_yield_accept(out, tag, listener, timeout_ns);
}

static _Atomic int live;

struct client {
    filch_await  at;
    filch_stream stream;
};

static filch_err client_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)method;
    (void)args;
    atomic_fetch_add(&live, 1);
    return FILCH_OK;
}

static void client_close(void *self)
{
    atomic_fetch_sub(&live, 1);
    filch_await_drop(self);
}

static filch_err write_live(struct client *g, filch_out *out)
{
    char line[32];
    int  size = snprintf(line, sizeof line, "live %d\n", atomic_load(&live));
    return filch_yield_write(out, g->at.tag, g->stream, filch_bytes(line, (size_t)size), FILCH_FOREVER);
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct client *g = self;
    filch_await   *at = &g->at;
    filch_err      err;
    FILCH_BEGIN(at, events, count, out);
    FILCH_AWAIT_MESSAGE(at);
    err = filch_stream_take(out, at->data, &g->stream);
    if (err != FILCH_OK) return err;
    FILCH_AWAIT(at, write_live(g, out));
    FILCH_AWAIT(at, filch_yield_read(out, at->tag, g->stream, 0, FILCH_FOREVER));
    FILCH_END(at);
}

static const filch_type client = {
    .name = "guest", .size = sizeof(struct client), .init = client_init, .step = client_step, .close = client_close
};

int main(int argc, char **argv)
{
    static const service faulty = { .name = "faulty", .connection = &client };
    return service_run(&faulty, argc, argv);
}
