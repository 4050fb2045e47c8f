/* connection.c - reads, answers, writes; one process per connection.
 *
 * What was read is answered from where it was received; only the beginning of a request that is not complete is copied,
 * and what follows is added to it. All that one read brought is answered with one write. While that waits nothing is
 * read, so a client that does not read its answers is the only one to wait for them.
 *
 * A connection that is idle holds no buffer: replies are put together in memory of the worker's thread, because a step
 * never stops in the middle of one. A reply that outgrows it moves to the heap and is handed over to the write.
 */
#include "connection.h"

#include <filch_await.h>

#include "service.h"

/* A reply up to this is copied when it is written. */
#define COPY_MAX 16384
/* What a client may still send after it was told to go, before the socket is closed on it. */
#define LINGER_READS 64

struct connection {
    filch_await    at;
    const service *what;
    filch_stream   stream;
    bytes          in;     /* of requests that are not complete */
    uint64_t       memory; /* the service's */
    uint32_t       next;   /* service_next */
    uint32_t       reads;  /* while lingering */
};

static _Thread_local char  desk[COPY_MAX];
static _Thread_local bytes reply;

static filch_err init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct connection *c = self;
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    c->what = filch_as_ptr(args);
    return c->what != NULL ? FILCH_OK : FILCH_EINVAL;
}

static void close_connection(void *self)
{
    struct connection *c = self;
    bytes_free(&c->in);
    filch_await_drop(&c->at);
}

/* Answers what is there: `data`, or what was kept and `data` behind it. Keeps what is left. */
static filch_err answer(struct connection *c, const filch_data *data)
{
    size_t used = 0;
    reply = (bytes){ .at = desk, .room = sizeof desk, .lent = true };
    if (c->in.size == 0) {
        const char *in = filch_raw(data);
        size_t      size = filch_size(data);
        c->next = c->what->answer(&c->memory, in, size, &used, &reply);
        if (c->next <= SERVICE_AGAIN) bytes_add(&c->in, in + used, size - used);
    } else {
        if (filch_size(data) > 0) bytes_add(&c->in, filch_raw(data), filch_size(data));
        c->next = c->what->answer(&c->memory, c->in.at, c->in.size, &used, &reply);
        bytes_eat(&c->in, used);
    }
    if (c->in.size == 0) bytes_free(&c->in);
    if (!c->in.failed && !reply.failed && c->next != SERVICE_FAIL) return FILCH_OK;
    bytes_free(&reply);
    return c->next == SERVICE_FAIL ? FILCH_OK : FILCH_ENOMEM;
}

static filch_err write_reply(struct connection *c, filch_out *out)
{
    filch_data data = reply.lent ? filch_bytes(reply.at, reply.size) : filch_move(reply.at, reply.size, NULL);
    filch_err  err = filch_yield_write(out, c->at.tag, c->stream, data, FILCH_FOREVER);
    if (err != FILCH_OK) bytes_free(&reply);
    return err;
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct connection *c = self;
    filch_await       *at = &c->at;
    filch_err          err = FILCH_OK;
    uint64_t           patience = c->what->patience_ns != 0 ? c->what->patience_ns : FILCH_FOREVER;
    FILCH_BEGIN(at, events, count, out);
    FILCH_AWAIT_MESSAGE(at);
    err = filch_stream_take(out, at->data, &c->stream);
    if (err != FILCH_OK) return err;
    do {
        FILCH_AWAIT(at, filch_yield_read(out, at->tag, c->stream, 0, patience));
        if (at->error != FILCH_OK) return filch_done(out, filch_none()); /* it has gone, or has nothing to say */
        do {
            err = answer(c, at->data);
            if (err != FILCH_OK) return err;
            if (c->next != SERVICE_FAIL && reply.size > 0) {
                FILCH_AWAIT(at, write_reply(c, out));
                if (at->error != FILCH_OK) return filch_done(out, filch_none());
            }
            at->data = NULL; /* the second time round only what was kept */
        } while (c->next == SERVICE_AGAIN);
    } while (c->next == SERVICE_READ);
    if (c->next == SERVICE_FAIL) return filch_fail(out, FILCH_EUSER, filch_str("asked to fail"));
    /* Closing with bytes unread would make the system throw away what we wrote: wait until the client has gone. */
    FILCH_AWAIT(at, filch_yield_shutdown(out, at->tag, c->stream));
    while (at->error == FILCH_OK && c->reads++ < LINGER_READS) {
        FILCH_AWAIT(at, filch_yield_read(out, at->tag, c->stream, 0, FILCH_SECONDS(1)));
    }
    FILCH_END(at);
}

const filch_type connection_type = {
    .name = "connection", .size = sizeof(struct connection), .init = init, .step = step, .close = close_connection
};
