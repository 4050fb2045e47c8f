/* connection.c - reads, answers, writes; one process per connection.
 *
 * Requests are answered from the buffer that they were received in; only the beginning of an incomplete request is
 * copied, and later bytes are added to it. All requests of one read are answered with one write. While that write waits
 * nothing is read, so a client that does not read its answers delays only itself.
 *
 * A request has to arrive within service_may.request_ns of its first byte, and all incomplete requests share
 * service_may.pending_bytes. A long reply is written in pieces, each within service_may.write_ns: a client that reads
 * slowly is served, one that does not read is disconnected.
 *
 * When the program ends, connections that are writing finish their replies; all other connections end at once.
 *
 * An idle connection has no buffer: replies are built in a buffer of the worker's thread, which is possible because a
 * step never ends in the middle of a reply. A reply that is too large for this buffer moves to the heap, and the write
 * takes ownership of it.
 */
#include "connection.h"

#include <filch_await.h>
#include <stdatomic.h>
#include <time.h>

#include "service.h"

/* A reply of at most this many bytes is copied when it is written. */
#define COPY_MAX 16384
/* A reply of more than COPY_MAX bytes is written in pieces of this size. */
#define PIECE_BYTES ((size_t)1 << 20)
/* Maximum number of reads after the last reply: the process closes the socket after them, even if the client still
 * sends. */
#define LINGER_READS 64

struct connection {
    filch_await    at;
    const service *what;
    filch_stream   stream;
    bytes          in;         /* received bytes of a request that is not complete yet */
    bytes          long_reply; /* a long reply that is being written in pieces */
    size_t         written;    /* bytes of long_reply that have been written */
    size_t         counted;    /* bytes of `in` that are counted in `pending` */
    uint64_t       due_ns;     /* time at which the request in `in` must be complete; 0: no request has begun */
    filch_err      failed;     /* error with which the process ends after the reply is written */
    bool           writing, stopping;
    uint64_t       memory; /* a number that only the service's answer function uses */
    uint32_t       next;   /* a service_next */
    uint32_t       reads;  /* number of reads since the last reply */
};

/* total size of the incomplete requests of all connections; relaxed because it is only a counter */
static _Atomic uint64_t pending;

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
    bytes_free(&c->long_reply);
    atomic_fetch_sub_explicit(&pending, c->counted, memory_order_relaxed);
    filch_await_drop(&c->at);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Counts the kept bytes of the incomplete request in `pending`. Returns FILCH_ELIMIT if all connections together keep
 * too many bytes. */
static filch_err count_pending(struct connection *c, bool answered)
{
    uint64_t before = atomic_fetch_add_explicit(&pending, c->in.size - c->counted, memory_order_relaxed);
    uint64_t sum = before + (c->in.size - c->counted);
    bool     more = c->in.size > c->counted;
    c->counted = c->in.size;
    if (c->in.size == 0) c->due_ns = 0;
    else if (c->due_ns == 0 || answered) c->due_ns = now_ns() + service_may.request_ns;
    return more && sum > service_may.pending_bytes ? FILCH_ELIMIT : FILCH_OK;
}

/* Returns the timeout for the next read. */
static uint64_t read_within(const struct connection *c)
{
    uint64_t idle_limit = c->what->idle_limit_ns != 0 ? c->what->idle_limit_ns : FILCH_FOREVER;
    if (c->due_ns == 0) return idle_limit;
    uint64_t now = now_ns(), left = c->due_ns > now ? c->due_ns - now : 0;
    return left < idle_limit ? left : idle_limit;
}

/* Answers the complete requests in `data`, or in the kept bytes followed by `data`, and keeps the incomplete rest.
 * After a failure the earlier answers are still in `reply`, and c->failed is the error with which the process ends
 * after they are written. */
static void answer(struct connection *c, const filch_data *data)
{
    size_t used = 0;
    reply = (bytes){ .at = desk, .room = sizeof desk, .borrowed = true };
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
    if (c->in.failed || reply.failed) c->failed = FILCH_ENOMEM;
    else if (c->next == SERVICE_FAIL) c->failed = FILCH_EUSER;
    if (c->in.size == 0) bytes_free(&c->in);
    if (reply.failed || c->next == SERVICE_FAIL) bytes_cut(&reply);
    if (c->failed == FILCH_OK) c->failed = count_pending(c, used > 0);
    if (c->failed != FILCH_OK) c->next = SERVICE_CLOSE;
    if (reply.size == 0) bytes_free(&reply);
}

static filch_err write_reply(struct connection *c, filch_out *out)
{
    if (reply.size > PIECE_BYTES) {
        c->long_reply = reply;
        c->written = PIECE_BYTES;
        return filch_yield_write(out, c->at.tag, c->stream, filch_bytes(reply.at, PIECE_BYTES), service_may.write_ns);
    }
    filch_data data = reply.borrowed ? filch_bytes(reply.at, reply.size) : filch_move(reply.at, reply.size, NULL);
    filch_err  err = filch_yield_write(out, c->at.tag, c->stream, data, service_may.write_ns);
    if (err != FILCH_OK) bytes_free(&reply);
    return err;
}

static filch_err write_piece(struct connection *c, filch_out *out)
{
    size_t      left = c->long_reply.size - c->written, size = left < PIECE_BYTES ? left : PIECE_BYTES;
    const char *at = c->long_reply.at + c->written;
    c->written += size;
    return filch_yield_write(out, c->at.tag, c->stream, filch_bytes(at, size), service_may.write_ns);
}

/* Returns true if `events` begins with a cancel and the connection continues, because a reply must be written first. */
static bool goes_on(struct connection *c, const filch_event *events, size_t count)
{
    if (count == 0 || events[0].type != FILCH_EVENT_CANCEL) return false;
    c->stopping = true;
    return c->writing;
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct connection *c = self;
    filch_await       *at = &c->at;
    filch_err          err = FILCH_OK;
    bool               skip = goes_on(c, events, count);
    FILCH_BEGIN(at, events + skip, count - skip, out);
    FILCH_AWAIT_MESSAGE(at);
    err = filch_stream_take(out, at->data, &c->stream);
    if (err != FILCH_OK) return err;
    do {
        FILCH_AWAIT(at, filch_yield_read(out, at->tag, c->stream, 0, read_within(c)));
        /* the client has closed the connection, or has sent nothing for too long */
        if (at->error != FILCH_OK) return filch_done(out, filch_none());
        do {
            answer(c, at->data);
            c->writing = reply.size > 0;
            if (c->writing) {
                FILCH_AWAIT(at, write_reply(c, out));
                while (at->error == FILCH_OK && c->written < c->long_reply.size) {
                    FILCH_AWAIT(at, write_piece(c, out));
                }
                if (at->error != FILCH_OK) return filch_done(out, filch_none());
                bytes_free(&c->long_reply);
                c->written = 0;
            }
            at->data = NULL; /* the next iteration parses only the bytes kept in c->in */
        } while (c->next == SERVICE_AGAIN);
        /* while c->writing is true, a cancel does not interrupt the shutdown of the socket below */
        c->writing = c->stopping || c->next == SERVICE_CLOSE;
    } while (c->next == SERVICE_READ && !c->stopping);
    if (c->failed != FILCH_OK) return filch_fail(out, c->failed, filch_none());
    /* If a socket is closed while it has unread bytes, the system may discard the reply. So the process reads on until
     * the client has closed its side. */
    FILCH_AWAIT(at, filch_yield_shutdown(out, at->tag, c->stream));
    while (at->error == FILCH_OK && c->reads++ < (c->stopping ? 2 : LINGER_READS)) {
        FILCH_AWAIT(at, filch_yield_read(out, at->tag, c->stream, 0, FILCH_SECONDS(1)));
    }
    FILCH_END(at);
}

const filch_type connection_type = {
    .name = "connection", .size = sizeof(struct connection), .init = init, .step = step, .close = close_connection
};
