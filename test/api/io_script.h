/* io_script.h - for tests: a process that runs a script of I/O operations one after the other and stores their results.
 * The script object belongs to the test. The process ends after the last line, or when it is cancelled. */
#ifndef FILCH_TEST_IO_SCRIPT_H
#define FILCH_TEST_IO_SCRIPT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/fixture.h"
#include "support/descriptors.h"

/* Runs the body once for each number of workers in `worker_counts`, each time in a new scheduler, the fixture `w`. */
#define FOR_WORKER_COUNTS(...)                                      \
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) { \
        fixture_begin(&w, worker_counts[each]);                     \
        __VA_ARGS__;                                                \
        fixture_end(&w);                                            \
    }

#define LINES_MAX 20

typedef enum verb {
    END,
    LISTEN,
    CONNECT,
    DATAGRAM,
    ADDRESS,
    ACCEPT,
    READ,
    EXACTLY,
    UNTIL_,
    WRITE,
    WRITE_BACK,
    SHUTDOWN,
    CLOSE,
    CANCEL,
    USE,
    USE_LISTENER,
    GIVE,
    TAKE,
    KEEP,
    TIMEOUT,
    READ_AND,
    SEND_TO,
    RECEIVE_FROM,
    RESOLVE,
    OPEN,
    SEEK,
    RUN,
    EXIT,
    KILL,
    SIGNALS,
    USE_INPUT,
    USE_OUTPUT,
    USE_ERRORS,
    USE_PROGRAM,
    PAUSE,
    CALL,
    POLL,
    POLL_CANCEL,
    ADOPT,
    SYNC,
    TRUNCATE,
    STAT,
    RENAME,
    REMOVE,
    MKDIR,
    RMDIR,
    LIST
} verb;

struct script;

typedef struct line {
    verb               what;
    const char        *text, *more;
    size_t             size;
    uint64_t           number;
    filch_stream       stream;
    filch_pid          pid;
    const char *const *argv;
    const int         *numbers;
    filch_err (*call)(struct script *s, filch_out *out);
} line;

#define DO_LISTEN(at)                \
    {                                \
        .what = LISTEN, .text = (at) \
    }
#define DO_CONNECT(at)                \
    {                                 \
        .what = CONNECT, .text = (at) \
    }
#define DO_CONNECT_WITHIN(at, ns)                     \
    {                                                 \
        .what = CONNECT, .text = (at), .number = (ns) \
    }
#define DO_DATAGRAM(at)                \
    {                                  \
        .what = DATAGRAM, .text = (at) \
    }
#define DO_ADDRESS      \
    {                   \
        .what = ADDRESS \
    }
#define DO_ACCEPT      \
    {                  \
        .what = ACCEPT \
    }
#define DO_READ(most)                \
    {                                \
        .what = READ, .size = (most) \
    }
#define DO_EXACTLY(n)                \
    {                                \
        .what = EXACTLY, .size = (n) \
    }
#define DO_UNTIL(end, n)                           \
    {                                              \
        .what = UNTIL_, .text = (end), .size = (n) \
    }
#define DO_WRITE(words)                                       \
    {                                                         \
        .what = WRITE, .text = (words), .size = strlen(words) \
    }
#define DO_WRITE_LOTS(bytes, n)                     \
    {                                               \
        .what = WRITE, .text = (bytes), .size = (n) \
    }
#define DO_WRITE_BACK      \
    {                      \
        .what = WRITE_BACK \
    }
#define DO_SHUTDOWN      \
    {                    \
        .what = SHUTDOWN \
    }
#define DO_CLOSE      \
    {                 \
        .what = CLOSE \
    }
#define DO_CANCEL      \
    {                  \
        .what = CANCEL \
    }
#define DO_USE(...)                        \
    {                                      \
        .what = USE, .stream = __VA_ARGS__ \
    }
#define DO_USE_LISTENER      \
    {                        \
        .what = USE_LISTENER \
    }
#define DO_GIVE(...)                     \
    {                                    \
        .what = GIVE, .pid = __VA_ARGS__ \
    }
#define DO_TAKE      \
    {                \
        .what = TAKE \
    }
#define DO_KEEP      \
    {                \
        .what = KEEP \
    }
#define DO_TIMEOUT(ns)                  \
    {                                   \
        .what = TIMEOUT, .number = (ns) \
    }
#define DO_READ_AND(command)                  \
    {                                         \
        .what = READ_AND, .number = (command) \
    }
#define DO_SEND_TO(at, words)                          \
    {                                                  \
        .what = SEND_TO, .text = (at), .more = (words) \
    }
#define DO_RECEIVE_FROM(most)                \
    {                                        \
        .what = RECEIVE_FROM, .size = (most) \
    }
#define DO_RESOLVE(host, service)                          \
    {                                                      \
        .what = RESOLVE, .text = (host), .more = (service) \
    }
#define DO_OPEN(path, flags)                            \
    {                                                   \
        .what = OPEN, .text = (path), .number = (flags) \
    }
#define DO_SEEK(to, from)                                      \
    {                                                          \
        .what = SEEK, .number = (uint64_t)(to), .size = (from) \
    }
#define DO_RUN(list, flags)                            \
    {                                                  \
        .what = RUN, .argv = (list), .number = (flags) \
    }
#define DO_EXIT      \
    {                \
        .what = EXIT \
    }
#define DO_KILL(n)                  \
    {                               \
        .what = KILL, .number = (n) \
    }
#define DO_SIGNALS(list, n)                             \
    {                                                   \
        .what = SIGNALS, .numbers = (list), .size = (n) \
    }
#define DO_POLL(fd, events)                                      \
    {                                                            \
        .what = POLL, .number = (uint64_t)(fd), .size = (events) \
    }
#define DO_POLL_CANCEL(fd)                            \
    {                                                 \
        .what = POLL_CANCEL, .number = (uint64_t)(fd) \
    }
#define DO_ADOPT(fd, flags)                                      \
    {                                                            \
        .what = ADOPT, .number = (uint64_t)(fd), .size = (flags) \
    }
#define DO_SYNC(flags)                  \
    {                                   \
        .what = SYNC, .number = (flags) \
    }
#define DO_TRUNCATE(n)                  \
    {                                   \
        .what = TRUNCATE, .number = (n) \
    }
#define DO_STAT(path, flags)                            \
    {                                                   \
        .what = STAT, .text = (path), .number = (flags) \
    }
#define DO_RENAME(from, to, flags)                                      \
    {                                                                   \
        .what = RENAME, .text = (from), .more = (to), .number = (flags) \
    }
#define DO_REMOVE(path)                \
    {                                  \
        .what = REMOVE, .text = (path) \
    }
#define DO_MKDIR(path)                \
    {                                 \
        .what = MKDIR, .text = (path) \
    }
#define DO_RMDIR(path)                \
    {                                 \
        .what = RMDIR, .text = (path) \
    }
#define DO_LIST(path)                \
    {                                \
        .what = LIST, .text = (path) \
    }
#define DO_PAUSE      \
    {                 \
        .what = PAUSE \
    } /* this line waits until a message comes */
#define DO_CALL(function)                \
    {                                    \
        .what = CALL, .call = (function) \
    } /* this line calls `function`; the result of the line is the return value of `function` */
#define DO_USE_INPUT      \
    {                     \
        .what = USE_INPUT \
    }
#define DO_USE_OUTPUT      \
    {                      \
        .what = USE_OUTPUT \
    }
#define DO_USE_ERRORS      \
    {                      \
        .what = USE_ERRORS \
    }
#define DO_USE_PROGRAM      \
    {                       \
        .what = USE_PROGRAM \
    }

/* The result of one line of a script. */
typedef struct result {
    filch_err error;
    int64_t   number;
    size_t    size;
    char      bytes[128]; /* the first bytes of the payload, and a NUL */
} result;

typedef struct script {
    actor                actor;
    line                 lines[LINES_MAX + 1];
    result               result[LINES_MAX];
    result               extra[LINES_MAX]; /* for lines that make two yields: result of the second yield */
    FLI_ATOMIC(uint32_t) extra_seen;
    FLI_ATOMIC(uint32_t) stage;    /* index of the line that runs now; the process waits for its completion */
    FLI_ATOMIC(bool)     is_ready; /* true: `local` holds the address of the listener */
    filch_stream         stream, listener;
    filch_program        program;
    uint64_t             timeout_ns;
    char                 local[128], sender[128];
    filch_data           last; /* the payload of the last read; the script holds a reference to it */
    filch_data           kept[4];
    size_t               kept_count;
} script;

#define SCRIPT(...)                                           \
    {                                                         \
        .lines = { __VA_ARGS__ }, .timeout_ns = FILCH_FOREVER \
    }

static inline void note(result *r, const filch_event *event)
{
    r->error = event->error;
    r->number = filch_as_int(&event->data);
    r->size = filch_size(&event->data);
    size_t n = r->size < sizeof r->bytes - 1 ? r->size : sizeof r->bytes - 1;
    if (n > 0 && filch_raw(&event->data) != NULL) memcpy(r->bytes, filch_raw(&event->data), n);
    r->bytes[n] = '\0';
}

enum { TAG_EXTRA = 1000 };

/* Begins line `at` of the script. Sets *over if the line is complete without waiting. */
static inline filch_err begin_line(script *s, const line *l, uint32_t at, filch_out *out, bool *over)
{
    filch_socket_options opt = FILCH_SOCKET_OPTIONS_INIT;
    filch_err            err = FILCH_OK;
    *over = false;
    switch (l->what) {
    case LISTEN: return filch_yield_listen(out, at, l->text, NULL);
    case CONNECT: opt.timeout_ns = l->number; return filch_yield_connect(out, at, l->text, &opt);
    case DATAGRAM: return filch_yield_datagram(out, at, l->text, NULL);
    case ACCEPT: return filch_yield_accept(out, at, s->stream, s->timeout_ns);
    case READ: return filch_yield_read(out, at, s->stream, l->size, s->timeout_ns);
    case EXACTLY: return filch_yield_read_exactly(out, at, s->stream, l->size, s->timeout_ns);
    case UNTIL_: return filch_yield_read_until(out, at, s->stream, l->text, strlen(l->text), l->size, s->timeout_ns);
    case WRITE: return filch_yield_write(out, at, s->stream, filch_bytes(l->text, l->size), s->timeout_ns);
    case WRITE_BACK: return filch_yield_write(out, at, s->stream, s->last, s->timeout_ns);
    case SHUTDOWN: return filch_yield_shutdown(out, at, s->stream);
    case CLOSE: return filch_yield_close(out, at, s->stream);
    case CANCEL: return filch_yield_io_cancel(out, at, s->stream);
    case SEND_TO: return filch_yield_send_to(out, at, s->stream, l->text, filch_str(l->more), s->timeout_ns);
    case RECEIVE_FROM: return filch_yield_receive_from(out, at, s->stream, l->size, s->timeout_ns);
    case RESOLVE: return filch_yield_resolve(out, at, l->text, l->more);
    case OPEN: return filch_yield_open(out, at, l->text, (uint32_t)l->number);
    case SEEK: return filch_yield_seek(out, at, s->stream, (int64_t)l->number, (int)l->size);
    case RUN: return filch_yield_run(out, at, l->argv, (uint32_t)l->number);
    case EXIT: return filch_yield_exit(out, at, s->stream, s->timeout_ns);
    case KILL: return filch_yield_kill(out, at, s->stream, (int)l->number);
    case SIGNALS: return filch_yield_signals(out, at, l->numbers, l->size);
    case POLL: return filch_yield_poll(out, at, (int)l->number, (uint32_t)l->size, s->timeout_ns);
    case POLL_CANCEL: return filch_yield_poll_cancel(out, at, (int)l->number);
    case ADOPT: return filch_yield_adopt(out, at, (int)l->number, (uint32_t)l->size);
    case SYNC: return filch_yield_sync(out, at, s->stream, (uint32_t)l->number);
    case TRUNCATE: return filch_yield_truncate(out, at, s->stream, l->number);
    case STAT: return filch_yield_stat(out, at, l->text, (uint32_t)l->number);
    case RENAME: return filch_yield_rename(out, at, l->text, l->more, (uint32_t)l->number);
    case REMOVE: return filch_yield_remove(out, at, l->text);
    case MKDIR: return filch_yield_mkdir(out, at, l->text);
    case RMDIR: return filch_yield_rmdir(out, at, l->text);
    case LIST: return filch_yield_list(out, at, l->text);
    case READ_AND:
        err = filch_yield_read(out, at, s->stream, 0, s->timeout_ns);
        if (err != FILCH_OK) return err;
        if (l->number == FILCH_CMD_CLOSE) return filch_yield_close(out, TAG_EXTRA + at, s->stream);
        if (l->number == FILCH_CMD_READ) return filch_yield_read(out, TAG_EXTRA + at, s->stream, 0, s->timeout_ns);
        return filch_yield_io_cancel(out, TAG_EXTRA + at, s->stream);
    case PAUSE:
    case TAKE: return FILCH_OK; /* PAUSE and TAKE wait for a message; the message for TAKE carries a stream */
    case ADDRESS:
        s->result[at].error = filch_stream_address(out, s->stream, FILCH_ADDRESS_LOCAL, s->local, sizeof s->local);
        fli_store_rel(&s->is_ready, true);
        break;
    case USE: s->stream = l->stream; break;
    case USE_LISTENER: s->stream = s->listener; break;
    case USE_INPUT: s->stream = s->program.input; break;
    case USE_OUTPUT: s->stream = s->program.output; break;
    case USE_ERRORS: s->stream = s->program.errors; break;
    case USE_PROGRAM: s->stream = s->program.self; break;
    case GIVE: s->result[at].error = filch_stream_give(out, s->stream, l->pid); break;
    case KEEP: s->result[at].error = filch_keep(&s->last, &s->kept[s->kept_count++]); break;
    case TIMEOUT: s->timeout_ns = l->number; break;
    case CALL: s->result[at].error = l->call(s, out); break;
    default: break;
    }
    *over = true;
    return FILCH_OK;
}

/* Stores those results of the completed line `at` that later lines use. */
static inline void end_line(script *s, uint32_t at, const filch_event *event, filch_out *out)
{
    verb what = s->lines[at].what;
    note(&s->result[at], event);
    bool opened = what == LISTEN || what == CONNECT || what == ACCEPT || what == DATAGRAM || what == OPEN ||
                  what == SIGNALS || what == ADOPT;
    if (event->error == FILCH_OK && opened) s->stream = filch_as_stream(&event->data);
    if (event->error == FILCH_OK && what == LISTEN) s->listener = s->stream;
    if (event->error == FILCH_OK && what == RUN) {
        s->result[at].error = filch_as_program(&event->data, &s->program);
        s->stream = s->program.self;
    }
    if (what == RECEIVE_FROM && event->error == FILCH_OK) {
        filch_err err = filch_stream_address(out, s->stream, FILCH_ADDRESS_SENDER, s->sender, sizeof s->sender);
        if (err != FILCH_OK) s->result[at].error = err;
    }
    if (what == READ || what == EXACTLY || what == UNTIL_ || what == RECEIVE_FROM || what == LIST) {
        filch_drop(&s->last);
        if (filch_keep(&event->data, &s->last) != FILCH_OK) s->result[at].error = FILCH_ENOMEM;
    }
}

static inline filch_err play_script(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    script  *s = me->user;
    uint32_t at = fli_load_rlx(&s->stage);
    bool     on = me->steps == 1;
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE && s->lines[at].what == TAKE) {
            s->result[at].error = filch_stream_take(out, &events[i].data, &s->stream);
            filch_stream again;
            if (filch_stream_take(out, &events[i].data, &again) != FILCH_ESTREAM) s->result[at].error = FILCH_EUSER;
            on = true;
            at++;
        } else if (events[i].type == FILCH_EVENT_MESSAGE && s->lines[at].what == PAUSE) {
            on = true;
            at++;
        } else if (events[i].tag >= TAG_EXTRA) {
            note(&s->extra[events[i].tag - TAG_EXTRA], &events[i]);
            fli_add_rel(&s->extra_seen, 1);
        } else if (events[i].type == FILCH_EVENT_YIELD) {
            end_line(s, at++, &events[i], out);
            on = true;
        }
    }
    while (on && s->lines[at].what != END) {
        bool      over;
        filch_err err = begin_line(s, &s->lines[at], at, out, &over);
        if (err != FILCH_OK) s->result[at].error = err;
        on = over || err != FILCH_OK;
        if (on) at++;
    }
    fli_store_rel(&s->stage, at);
    return s->lines[at].what == END ? filch_done(out, filch_none()) : filch_idle(out);
}

static inline void script_start(fixture *w, script *s)
{
    s->actor.user = s;
    actor_start(w, &s->actor, play_script);
}

static inline uint32_t script_stage(script *s)
{
    return fli_load_acq(&s->stage);
}

static inline bool is_ready(script *s)
{
    return fli_load_acq(&s->is_ready);
}

static inline bool script_is_over(script *s)
{
    return is_over(&s->actor);
}

/* Waits until the process has ended, by itself or because it was cancelled. */
static inline void script_ends(fixture *w, script *s)
{
    UNTIL(w, is_over(&s->actor));
    same(s->actor.closes, 1);
    filch_drop(&s->last);
}

/* ---- a peer without Filch ---- */

/* Lines of a script that listen, publish the address and accept one connection, which the following lines use. */
#define SERVE DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT

static inline uint16_t port_of(const script *s)
{
    const char *colon = strrchr(s->local, ':');
    assert_non_null(colon);
    return (uint16_t)atoi(colon + 1);
}

static inline int peer_connect(const script *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port_of(s)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    ok(connect(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

#endif
