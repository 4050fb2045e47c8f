/* supervise.c - a failed process is restarted, and inherits its settings.
 *
 * on_exit is told how a process ended, and may spawn another process. That is enough for a simple supervisor. The job's
 * settings are named values (filch_values): every process spawned with them, and every child of such a process, can
 * read them.
 */
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>

#define FAILURES 2
#define RESTARTS_MAX 5
#define OUT_OF_LUCK (FILCH_EUSER + 1)

/* ---- job: a process that fails while the value "attempt" is at most FAILURES ---- */

static filch_err job_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    int64_t          attempt = filch_as_int(filch_ctx_value(ctx, "attempt"));
    /* each attempt has a new value "attempt"; the value "place" is in the chain `common`, which all attempts inherit */
    const char *place = filch_text(filch_ctx_value(ctx, "place"));
    (void)self;
    (void)events;
    (void)count;
    printf("attempt %d in %s\n", (int)attempt, place);
    return attempt <= FAILURES ? OUT_OF_LUCK : filch_done(out, filch_int(attempt));
}

static const filch_type job = { .name = "job", .step = job_step };

/* ---- supervisor: a struct, not a process; start_job() and on_exit_of_job() use it in turn ---- */

struct supervisor {
    filch_sched  *sched;
    filch_values *common; /* values that all attempts of the job inherit */
    int           restarts;
    int64_t       result;
    filch_err     error;
    sem_t         over;
};

static filch_err start_job(struct supervisor *s);

static void on_exit_of_job(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    struct supervisor *s = user;
    (void)pid;
    if (error == OUT_OF_LUCK && s->restarts < RESTARTS_MAX) {
        s->restarts++;
        error = start_job(s);
        /* the job was restarted; on_exit_of_job() will be called when the new process ends */
        if (error == FILCH_OK) return;
    }
    s->error = error;
    s->result = filch_as_int(result);
    sem_post(&s->over);
}

static filch_err start_job(struct supervisor *s)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_err           err = filch_values_create(s->common, "attempt", filch_int(s->restarts + 1), &options.values);
    if (err != FILCH_OK) return err;
    options.on_exit = on_exit_of_job;
    options.on_exit_user = s;
    err = filch_spawn(s->sched, &job, &options, NULL);
    filch_values_drop(options.values); /* the new process holds a reference of its own to the values */
    return err;
}

int main(void)
{
    struct supervisor s = { .restarts = 0 };
    sem_init(&s.over, 0, 0);
    if (filch_sched_create(&s.sched, NULL)) return 1;
    if (filch_values_create(NULL, "place", filch_str("the engine room"), &s.common)) return 1;
    if (start_job(&s)) return 1;
    while (sem_wait(&s.over) != 0) {}
    filch_err err = filch_sched_stop(s.sched, FILCH_SECONDS(5), NULL);
    filch_values_drop(s.common);
    printf("done after %d restarts\n", s.restarts);
    return err != FILCH_OK || s.error != FILCH_OK || s.restarts != FAILURES || s.result != FAILURES + 1;
}
