/* pollloop.c - Filch inside a program that has its own poll loop. It starts no thread.
 *
 * The loop waits for three things at once: its own pipe, Filch's wake descriptor (a message from another thread), and
 * the next timer (filch_next_timeout). Then it reads its pipe and calls filch_tick, which runs what is ready.
 *
 *     clock process  --writes-->  pipe  --the loop reads it, and sends-->  reader process
 *     another thread -------------------- filch_send ------------------->  reader process
 */
#define _POSIX_C_SOURCE 200809L
#include <filch.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define TICKS 3
#define VISITS 1
/* maximum number of polls, checked at the end: a loop that sleeps between events needs about ten, a loop that spins far
 * more */
#define POLLS_MAX 100

/* ---- clock: writes a letter into the host's pipe, then sleeps, and repeats this ---- */

struct clock {
    int fd, ticks;
};

static filch_err clock_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    ((struct clock *)self)->fd = (int)filch_as_int(args);
    return FILCH_OK;
}

static filch_err clock_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct clock *c = self;
    (void)events;
    if (count > 0 && write(c->fd, &"abc"[c->ticks++], 1) != 1) return FILCH_EUSER;
    if (c->ticks == TICKS) return filch_done(out, filch_none());
    filch_err err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(5));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type clock_type = {
    .name = "clock", .size = sizeof(struct clock), .init = clock_init, .step = clock_step
};

/* ---- reader: prints its messages ---- */

struct reader {
    int got;
};

static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct reader *r = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        printf("reader: %s\n", filch_text(&events[i].data));
        r->got++;
    }
    return r->got < TICKS + VISITS ? filch_idle(out) : filch_done(out, filch_none());
}

static const filch_type reader_type = { .name = "reader", .size = sizeof(struct reader), .step = reader_step };

/* ---- the host ---- */

struct host {
    filch_sched *sched;
    filch_pid    reader;
    int          pipe[2];
    int          over; /* not atomic: only the visitor runs on another thread, and the visitor does not use `over` */
};

static void on_exit_of_reader(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    (void)result;
    ((struct host *)user)->over = error == FILCH_OK ? 1 : -1;
}

static void *visit(void *user)
{
    struct host *host = user;
    return filch_send(host->sched, host->reader, filch_str("a visitor from another thread")) ? host : NULL;
}

/* Converts nanoseconds to milliseconds for poll. Rounds up, because otherwise poll would return too early and the loop
 * would spin. */
static int poll_timeout(uint64_t ns)
{
    if (ns == FILCH_FOREVER) return -1;
    return ns < FILCH_SECONDS(60) ? (int)((ns + 999999) / 1000000) : 60000;
}

static filch_err start(struct host *host)
{
    filch_options       options = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    options.workers = FILCH_NO_WORKERS;
    filch_err err = filch_sched_create(&host->sched, &options);
    how.on_exit = on_exit_of_reader;
    how.on_exit_user = host;
    if (err == FILCH_OK) err = filch_spawn(host->sched, &reader_type, &how, &host->reader);
    how = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    how.args = filch_int(host->pipe[1]);
    if (err == FILCH_OK) err = filch_spawn(host->sched, &clock_type, &how, NULL);
    return err;
}

/* Makes one iteration of the host's loop: polls, reads the pipe, and runs the scheduler. */
static filch_err turn(struct host *host)
{
    struct pollfd fds[2] = {
        { .fd = host->pipe[0], .events = POLLIN },
        /* the loop only polls this descriptor; filch_tick reads it */
        { .fd = filch_wake_fd(host->sched), .events = POLLIN },
    };
    /* poll() was interrupted by a signal: the next iteration polls again */
    if (poll(fds, 2, poll_timeout(filch_next_timeout(host->sched))) < 0) return FILCH_OK;
    if (fds[0].revents & POLLIN) {
        char      letter[2] = "";
        filch_err err = read(host->pipe[0], letter, 1) == 1 ? FILCH_OK : FILCH_ESYS;
        if (err == FILCH_OK) err = filch_send(host->sched, host->reader, filch_str(letter));
        if (err != FILCH_OK) return err;
    }
    return filch_tick(host->sched, 0, NULL);
}

int main(void)
{
    struct host host = { .over = 0 };
    pthread_t   visitor;
    void       *visit_failed;
    int         turns = 0;
    if (pipe(host.pipe) != 0) return 1;
    filch_err err = start(&host);
    if (err != FILCH_OK || pthread_create(&visitor, NULL, visit, &host) != 0) return 1;
    for (; err == FILCH_OK && host.over == 0; turns++) err = turn(&host);
    pthread_join(visitor, &visit_failed);
    if (err != FILCH_OK) fprintf(stderr, "pollloop: %s\n", filch_err_text(err));
    filch_err stopped = filch_sched_stop(host.sched, FILCH_SECONDS(5), NULL);
    close(host.pipe[0]);
    close(host.pipe[1]);
    if (turns > POLLS_MAX) fprintf(stderr, "pollloop: %d turns for %d messages\n", turns, TICKS + VISITS);
    return err || stopped || visit_failed || host.over != 1 || turns > POLLS_MAX;
}
