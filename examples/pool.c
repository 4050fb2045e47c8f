/* pool.c - a pool of workers under supervision, and jobs that make them fail.
 *
 *     root       rest-for-one: when the desk fails, the crew is restarted too
 *       desk     hands out jobs, one to each free worker; collects results
 *       crew     a supervisor: restarts a worker that fails
 *         worker, worker, worker
 *
 * Job 7 fails the first time and works the second. Job 13 always fails: the desk gives it up after three attempts. A
 * job is sent to a worker by a message, and the worker is monitored, so the desk receives the outcome of each: a
 * result, or an EXIT.
 */
#include <filch.h>
#include <filch_await.h>
#include <semaphore.h>
#include <stdio.h>

#define JOBS 20
#define ATTEMPTS 3
#define FLAKY 7
#define POISON 13
#define JOB_FAILED (FILCH_EUSER + 1)

/* Result of the program. The process that hands out the jobs writes it; main() reads it after the stop. */
static struct {
    sem_t   over;
    int     done, given_up, failures;
    int64_t sum;
} book;

/* ---- worker: tells the desk that it is free, gets a job, sends the result, and repeats this ---- */

struct worker {
    filch_await at;
    filch_pid   desk;
    int64_t     number, attempt;
};

static filch_err worker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct worker *w = self;
    filch_await   *at = &w->at;
    filch_sched   *sched = filch_out_sched(out);
    filch_err      err = FILCH_OK;
    FILCH_BEGIN(at, events, count, out);
    err = filch_whereis(sched, "desk", &w->desk);
    /* an empty message means: this worker is free */
    if (err == FILCH_OK) err = filch_send(sched, w->desk, filch_none());
    while (err == FILCH_OK) {
        FILCH_AWAIT_MESSAGE(at);
        w->number = filch_as_int(at->data) / ATTEMPTS;
        w->attempt = filch_as_int(at->data) % ATTEMPTS;
        FILCH_AWAIT(at, filch_yield_sleep(out, at->tag, FILCH_MICROSECONDS(100))); /* the sleep stands for work */
        if (w->number == POISON || (w->number == FLAKY && w->attempt == 0)) return JOB_FAILED;
        err = filch_send(sched, w->desk, filch_int(w->number * w->number));
    }
    return err;
    FILCH_END(at);
}

static const filch_type worker = {
    .name = "worker", .size = sizeof(struct worker), .step = worker_step, .close = filch_await_close
};

/* ---- desk ---- */

struct desk {
    int       queue[JOBS * ATTEMPTS]; /* an entry is job number * ATTEMPTS + attempt */
    int       first, last;            /* the queue is queue[first] to queue[last - 1] */
    filch_pid idle[JOBS];             /* workers without a job; the array is larger than needed */
    int       idle_count;
    uint64_t  ref[JOBS]; /* for each job: reference of the monitor of the worker that has the job */
};

static filch_err desk_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct desk *d = self;
    (void)ctx;
    (void)args;
    if (method != NULL) return FILCH_EMETHOD;
    for (d->last = 0; d->last < JOBS; d->last++) d->queue[d->last] = d->last * ATTEMPTS;
    return FILCH_OK;
}

/* Sends jobs to free workers. The tag of the monitor is the job, so the EXIT event tells which job was lost. */
static filch_err hand_out(struct desk *d, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    filch_err        err = FILCH_OK;
    while (err == FILCH_OK && d->idle_count > 0 && d->first < d->last) {
        filch_pid free_worker = d->idle[--d->idle_count];
        int       job = d->queue[d->first];
        err = filch_send(sched, free_worker, filch_int(job));
        if (err == FILCH_EDEAD) { /* the worker ended while it was free: the next free worker gets the job */
            err = FILCH_OK;
            continue;
        }
        if (err == FILCH_OK) {
            err = filch_monitor(sched, filch_ctx_self(ctx), free_worker, (uint64_t)job, &d->ref[job / ATTEMPTS]);
            d->first++;
        }
    }
    return err;
}

static void lost(struct desk *d, uint64_t job)
{
    book.failures++;
    if (job % ATTEMPTS + 1 < ATTEMPTS) {
        d->queue[d->last++] = (int)job + 1; /* queues the next attempt */
    } else {
        printf("job %d: given up after %d attempts\n", (int)job / ATTEMPTS, ATTEMPTS);
        book.given_up++;
    }
}

/* Handles a result, which must be the square of the job's number. */
static filch_err finished(struct desk *d, filch_out *out, int64_t result)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    int              number = 0;
    while ((int64_t)number * number < result) number++;
    book.done++;
    book.sum += result;
    return filch_unmonitor(filch_ctx_sched(ctx), filch_ctx_self(ctx), d->ref[number]);
}

static filch_err desk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct desk *d = self;
    filch_err    err = FILCH_OK;
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        const filch_event *e = &events[i];
        if (e->type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (e->type == FILCH_EVENT_EXIT) lost(d, e->tag);
        if (e->type != FILCH_EVENT_MESSAGE) continue;
        if (filch_kind_of(&e->data) == FILCH_KIND_INT) err = finished(d, out, filch_as_int(&e->data));
        d->idle[d->idle_count++] = e->from;
    }
    if (err == FILCH_OK) err = hand_out(d, out);
    if (err != FILCH_OK) return err;
    if (book.done + book.given_up == JOBS && count > 0) sem_post(&book.over);
    return filch_idle(out);
}

static const filch_type desk = { .name = "desk", .size = sizeof(struct desk), .init = desk_init, .step = desk_step };

/* ---- the supervision tree ---- */

static const filch_child workers[] = {
    { .id = "worker 1", .type = &worker },
    { .id = "worker 2", .type = &worker },
    { .id = "worker 3", .type = &worker },
};
static const filch_supervisor crew = {
    .intensity = 10, .backoff_ns = FILCH_MICROSECONDS(100), .children = workers, .child_count = 3
};
static const filch_spawn_options as_desk = { .size = sizeof as_desk, .name = "desk" };
static const filch_child         parts[] = {
            { .id = "desk", .type = &desk, .options = &as_desk },
            { .id = "crew", .supervisor = &crew },
};
static const filch_supervisor root = { .strategy = FILCH_REST_FOR_ONE, .children = parts, .child_count = 2 };

int main(void)
{
    filch_sched *sched;
    int64_t      wanted = 0;
    sem_init(&book.over, 0, 0);
    for (int i = 0; i < JOBS; i++) wanted += i == POISON ? 0 : i * i;
    if (filch_sched_create(&sched, NULL) || filch_supervise(sched, &root, NULL, NULL)) return 1;
    while (sem_wait(&book.over) != 0) {}
    filch_err err = filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
    printf("%d jobs done, %d given up, workers failed %d times\n", book.done, book.given_up, book.failures);
    return err != FILCH_OK || book.done != JOBS - 1 || book.given_up != 1 || book.failures != 1 + ATTEMPTS ||
           book.sum != wanted;
}
