/* service.c - the acceptor, the process that waits for signals, and their supervisor. See service.h for the tree. */
#include "service.h"

#include <filch_await.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>

#include "complain.h"
#include "connection.h"

#define CHILDREN_MAX 8

/* The only service of the program. Fields without a comment are written before the scheduler starts. */
static struct {
    const service *what;
    /* Address to listen on. After the first listen it contains the port that the system chose. Used only by the
     * acceptor. */
    char address[64];
    bool listening; /* the acceptor has listened at least once. Used only by the acceptor */
    /* Number of live connections. A connection outlives an acceptor that fails. Relaxed because the number is only a
     * counter. writes: the acceptor before it starts a connection, and on_exit of each connection. */
    _Atomic uint64_t connections;
    /* true: the program is ending; set before `over` is posted. Then errors of connections are not reported, because
     * the stop causes them */
    _Atomic bool ending;
    sem_t        over;
    /* exit code of the program; written before `over` is posted, read after main has waited for `over` */
    int code;
} here;

service_limits service_may;

static void finish(int code)
{
    if (code != 0) here.code = code;
    atomic_store_explicit(&here.ending, true, memory_order_relaxed);
    sem_post(&here.over);
}

static void complain(const char *what, filch_err err)
{
    complain_line("%s: %s: %s", here.what->name, what, filch_err_text(err));
}

/* ---- acceptor ---- */

struct acceptor {
    filch_await  at;
    filch_stream listener;
};

/* Called when the process of a connection has ended, even if the acceptor that started the process has failed. */
static void on_exit_of_connection(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    (void)result;
    atomic_fetch_sub_explicit(&here.connections, 1, memory_order_relaxed);
    /* FILCH_EKILLED: welcome() terminated a process that did not get its stream, and accepted() has reported the
     * error. */
    if (error == FILCH_OK || error == FILCH_ECANCELLED || error == FILCH_EKILLED) return;
    if (!atomic_load_explicit(&here.ending, memory_order_relaxed)) complain("a connection failed", error);
}

static filch_err welcome(filch_out *out, filch_stream stream)
{
    const service      *what = here.what;
    filch_sched        *sched = filch_out_sched(out);
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    if (atomic_load_explicit(&here.connections, memory_order_relaxed) >= service_may.connections) return FILCH_ELIMIT;
    if (what->connection_options != NULL) how = *what->connection_options;
    how.on_exit = on_exit_of_connection;
    if (what->connection == NULL) how.args = filch_ptr((void *)(uintptr_t)what);
    /* the connection is counted before its process is started, because the process may end at any time */
    atomic_fetch_add_explicit(&here.connections, 1, memory_order_relaxed);
    filch_err err = filch_spawn(sched, what->connection != NULL ? what->connection : &connection_type, &how, &pid);
    if (err != FILCH_OK) {
        atomic_fetch_sub_explicit(&here.connections, 1, memory_order_relaxed);
        return err;
    }
    err = filch_stream_give(out, stream, pid);
    /* Without its stream the connection's process would wait for ever. If the process has ended, filch_terminate() has
     * no effect. */
    if (err != FILCH_OK) (void)!filch_terminate(sched, pid);
    return err;
}

/* Handles the completion of an accept. A connection that cannot be served is closed; other connections continue. */
static filch_err accepted(filch_out *out, const filch_event *event)
{
    filch_err err = event->error;
    if (err == FILCH_ESTREAM || err == FILCH_ECANCELLED) return err; /* the listener has been closed */
    if (err == FILCH_OK) {
        filch_stream stream = filch_as_stream(&event->data);
        err = welcome(out, stream);
        if (err != FILCH_OK && filch_yield_close(out, 0, stream) != FILCH_OK) return err;
    }
    /* FILCH_EDEAD, FILCH_ECLOSED: during the stop, the process may have ended before it got the connection, or could
     * not be started. These errors are not reported. */
    bool over = err == FILCH_EDEAD || err == FILCH_ECLOSED;
    if (err != FILCH_OK && !over) complain("a connection could not be served", err);
    return FILCH_OK;
}

/* Stores the address with its actual port, because a restarted acceptor must use the same port. Prints the address the
 * first time. */
static filch_err announce(filch_out *out, filch_stream listener)
{
    filch_err err = filch_stream_address(out, listener, FILCH_ADDRESS_LOCAL, here.address, sizeof here.address);
    if (err != FILCH_OK || here.listening) return err;
    here.listening = true;
    announce_line("listening on %s", here.address); /* not printf: this is a worker, and stdout may be a full pipe */
    return FILCH_OK;
}

static filch_err acceptor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    enum { ACCEPT = 1 };
    struct acceptor *a = self;
    filch_await     *at = &a->at;
    filch_err        err = FILCH_OK;
    FILCH_BEGIN(at, events, count, out);
    FILCH_AWAIT(at, filch_yield_listen(out, at->tag, here.address, NULL));
    if (at->error != FILCH_OK) {
        complain_line("%s: cannot listen on %s: %s", here.what->name, here.address, filch_err_text(at->error));
        /* the acceptor has listened before: it fails, and the supervisor starts it again */
        if (here.listening) return at->error;
        finish(1);
        return filch_done(out, filch_none());
    }
    a->listener = filch_as_stream(at->data);
    err = announce(out, a->listener);
    if (err == FILCH_OK) err = filch_yield_accept(out, ACCEPT, a->listener, FILCH_FOREVER);
    while (err == FILCH_OK) {
        FILCH_AWAIT_EVENT(at);
        if (at->event->type == FILCH_EVENT_YIELD && at->event->tag == ACCEPT) {
            err = accepted(out, at->event);
            if (err == FILCH_OK) err = filch_yield_accept(out, ACCEPT, a->listener, FILCH_FOREVER);
        }
    }
    return err;
    FILCH_END(at);
}

static const filch_type acceptor = {
    .name = "acceptor", .size = sizeof(struct acceptor), .step = acceptor_step, .close = filch_await_close
};

/* ---- watch: the process that waits for signals ---- */

struct watch {
    filch_await  at;
    filch_stream signals;
};

static filch_err watch_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    struct watch    *w = self;
    filch_await     *at = &w->at;
    FILCH_BEGIN(at, events, count, out);
    FILCH_AWAIT(at, filch_yield_signals(out, at->tag, numbers, 2));
    w->signals = filch_as_stream(at->data);
    FILCH_AWAIT(at, filch_yield_read(out, at->tag, w->signals, 0, FILCH_FOREVER));
    if (at->error != FILCH_OK) complain("cannot wait for signals", at->error);
    finish(at->error == FILCH_OK ? 0 : 1);
    FILCH_END(at);
}

static const filch_type watch = {
    .name = "watch", .size = sizeof(struct watch), .step = watch_step, .close = filch_await_close
};

/* ---- the program ---- */

/* Called when the supervisor ends: because restarts did not help, or at the end of the program. */
static void on_exit_of_supervisor(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    (void)result;
    if (error == FILCH_OK || error == FILCH_ECANCELLED) return;
    complain("giving up, restarts did not help", error);
    finish(1);
}

static bool number(const char *text, unsigned long most, unsigned long *out)
{
    char *end;
    *out = text != NULL ? strtoul(text, &end, 10) : 0;
    return text != NULL && text[0] >= '0' && text[0] <= '9' && *end == '\0' && *out <= most;
}

/* Values of the command line options. */
typedef struct settings {
    unsigned long port, workers, connections, request, write, stop, pending;
} settings;

/* Returns false, and says why, if there is no option `name` or if `value` is no number in its range. */
static bool option_read(settings *s, const char *name, const char *value)
{
    const struct {
        const char   *name;
        unsigned long most, *to;
    } options[] = {
        { "--port", 65535, &s->port },
        { "--workers", 1024, &s->workers },
        { "--connections", 1000000, &s->connections },
        { "--request-seconds", 86400, &s->request },
        { "--write-seconds", 86400, &s->write },
        { "--stop-seconds", 86400, &s->stop },
        { "--pending-mb", 1048576, &s->pending },
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strcmp(name, options[i].name) != 0) continue;
        if (number(value, options[i].most, options[i].to)) return true;
        complain_line("%s: %s must be a whole number from 0 to %lu, not '%s'", here.what->name, name, options[i].most,
                      value != NULL ? value : "");
        return false;
    }
    complain_line("%s: there is no option '%s'", here.what->name, name);
    return false;
}

static bool options_read(int argc, char **argv, settings *s)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (option_read(s, argv[i], value)) continue;
        complain_line(
            "usage: %s [--port N] [--workers N] [--connections N] [--request-seconds N] [--write-seconds N]"
            " [--stop-seconds N] [--pending-mb N]\n"
            "exit codes: 0 stopped by a signal, 1 failed or had to end connections by force, 2 wrong usage; a second"
            " signal ends it at once",
            here.what->name);
        return false;
    }
    service_may = (service_limits){ .connections = s->connections,
                                    .request_ns = FILCH_SECONDS(s->request),
                                    .write_ns = FILCH_SECONDS(s->write),
                                    .stop_ns = FILCH_SECONDS(s->stop),
                                    .pending_bytes = (uint64_t)s->pending << 20 };
    return true;
}

/* Each connection needs a descriptor, so the limit of descriptors is raised to its maximum. */
static void raise_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static filch_err start(filch_sched *sched, filch_supervisor *tree, filch_child *children)
{
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    size_t              count = here.what->child_count;
    for (size_t i = 0; i < count; i++) children[i] = here.what->children[i];
    children[count] = (filch_child){ .id = "acceptor", .type = &acceptor, .restart = FILCH_TRANSIENT };
    *tree = (filch_supervisor){ .children = children,
                                .child_count = count + 1,
                                /* many restarts are allowed, because running out of memory now and then is not a reason
                                 * to give up */
                                .intensity = 100,
                                .period_ns = FILCH_SECONDS(1),
                                .backoff_ns = FILCH_MILLISECONDS(20),
                                .backoff_max_ns = FILCH_MILLISECONDS(500) };
    how.on_exit = on_exit_of_supervisor;
    filch_err err = filch_supervise(sched, tree, &how, NULL);
    return err == FILCH_OK ? filch_spawn(sched, &watch, NULL, NULL) : err;
}

int service_run(const service *what, int argc, char **argv)
{
    settings         given = { .connections = 20000, .request = 30, .write = 30, .stop = 10, .pending = 256 };
    sigset_t         signals;
    filch_child      children[CHILDREN_MAX + 1];
    filch_supervisor tree;
    filch_sched     *sched;
    filch_options    options = FILCH_OPTIONS_INIT;
    here.what = what;
    if (what->request_ns != 0) given.request = (unsigned long)(what->request_ns / FILCH_SECONDS(1));
    if (what->child_count > CHILDREN_MAX || !options_read(argc, argv, &given)) return 2;
    /* The signals are blocked before any thread is started, so that they arrive only as events. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    raise_limit();
    sem_init(&here.over, 0, 0);
    snprintf(here.address, sizeof here.address, "127.0.0.1:%lu", given.port);
    options.workers = (int32_t)given.workers;
    filch_err err = filch_sched_create(&sched, &options);
    if (err != FILCH_OK) {
        complain("cannot create the scheduler", err);
        return 1;
    }
    err = start(sched, &tree, children);
    if (err != FILCH_OK) complain("cannot start the service", err);
    while (err == FILCH_OK && sem_wait(&here.over) != 0) {}
    /* Unblocks the signals: a second SIGINT or SIGTERM ends the program at once (default action of the system). */
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    filch_err stopped = filch_sched_stop(sched, service_may.stop_ns, NULL);
    if (stopped != FILCH_OK)
        complain(stopped == FILCH_EDEADLINE ? "processes were ended by force after --stop-seconds"
                                            : "cannot stop the scheduler",
                 stopped);
    return err != FILCH_OK || stopped != FILCH_OK ? 1 : here.code;
}
