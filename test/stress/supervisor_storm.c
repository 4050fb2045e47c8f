/* supervisor_storm.c - five minutes of virtual time in which faults hit a supervised tree; then the tree must be
 * complete, or have given up as configured. Takes the number of seeds, and optionally the first one.
 *
 * The tree: a root, and under it one supervisor of each strategy with three workers each. The faults kill workers and
 * supervisors, make workers fail, and make them ignore cancels, so that they must be killed. Half of the trees may
 * restart without limit; the other half gives up soon. Some trees also meet failing allocations, stalls and a jumping
 * clock.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <filch.h>

enum { BRANCHES = 3, LEAVES = 3, WORKERS = BRANCHES * LEAVES, IGNORES_CANCEL = 1 };
#define STORM_NS FILCH_SECONDS(300)

static struct {
    int      alive[WORKERS];
    int      instances;
    uint64_t starts, faults;
    /* true: the limit of restarts of the supervisors in this tree is so high that they never reach it */
    bool      patient;
    bool      low_memory; /* true: allocations fail now and then */
    filch_pid root;
    int       exits;
    filch_err gone;
} run;

static struct {
    uint64_t starts, faults, gave_up, stood;
} all;

/* ---- workers ---- */

typedef struct worker {
    filch_sched *sched;
    int64_t      which;
    bool         ignores_cancel;
} worker;

static filch_err worker_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    worker *w = self;
    (void)method;
    w->sched = filch_ctx_sched(ctx);
    w->which = filch_as_int(args);
    if (++run.alive[w->which] > 1) (void)filch_sim_fail(w->sched, "a worker was started while it was still there");
    run.instances++;
    run.starts++;
    return FILCH_OK;
}

static filch_err worker_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    worker *w = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL && !w->ignores_cancel) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        if (filch_as_int(&events[i].data) != IGNORES_CANCEL) return FILCH_EUSER + 1;
        w->ignores_cancel = true;
    }
    return filch_idle(out);
}

static void worker_close(void *self)
{
    worker *w = self;
    run.alive[w->which]--;
    run.instances--;
}

static const filch_type worker_type = {
    .name = "worker", .size = sizeof(worker), .init = worker_init, .step = worker_step, .close = worker_close
};

/* ---- the tree ---- */

#define NAMED(n, text)                                                               \
    {                                                                                \
        .size = sizeof(filch_spawn_options), .name = text, .args = FILCH_INT_INIT(n) \
    }
static const char *const         names[WORKERS] = { "one 1", "one 2",  "one 3",  "all 1", "all 2",
                                                    "all 3", "rest 1", "rest 2", "rest 3" };
static const char *const         branch_names[BRANCHES] = { "ones", "alls", "rests" };
static const filch_spawn_options worker_options[WORKERS] = {
    NAMED(0, "one 1"), NAMED(1, "one 2"),  NAMED(2, "one 3"),  NAMED(3, "all 1"),  NAMED(4, "all 2"),
    NAMED(5, "all 3"), NAMED(6, "rest 1"), NAMED(7, "rest 2"), NAMED(8, "rest 3"),
};
static const filch_spawn_options branch_options[BRANCHES] = { NAMED(0, "ones"), NAMED(0, "alls"), NAMED(0, "rests") };

typedef struct tree {
    filch_child      leaves[WORKERS], branches[BRANCHES];
    filch_supervisor supervisors[BRANCHES], root;
} tree;

static void plant(tree *t, bool patient)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < WORKERS; i++) {
        t->leaves[i] = (filch_child){
            .id = names[i], .type = &worker_type, .options = &worker_options[i], .stop_ns = FILCH_MILLISECONDS(500)
        };
    }
    for (uint32_t i = 0; i < BRANCHES; i++) {
        t->supervisors[i] = (filch_supervisor){ .strategy = i,
                                                .intensity = patient ? 10000 : 3,
                                                .period_ns = FILCH_SECONDS(10),
                                                .backoff_ns = FILCH_MILLISECONDS(10),
                                                .backoff_max_ns = FILCH_SECONDS(2),
                                                .jitter = 300,
                                                .children = &t->leaves[i * LEAVES],
                                                .child_count = LEAVES };
        t->branches[i] =
            (filch_child){ .id = branch_names[i], .supervisor = &t->supervisors[i], .options = &branch_options[i] };
    }
    t->root = (filch_supervisor){ .intensity = patient ? 10000 : 2,
                                  .period_ns = FILCH_SECONDS(30),
                                  .children = t->branches,
                                  .child_count = BRANCHES };
}

/* ---- faults ---- */

static void strike(filch_sched *sched)
{
    filch_pid   pid;
    uint32_t    what = filch_sim_draw(sched, 20);
    bool        branch = what == 0;
    const char *name = branch ? branch_names[filch_sim_draw(sched, BRANCHES)] : names[filch_sim_draw(sched, WORKERS)];
    run.faults++;
    if (filch_whereis(sched, name, &pid) != FILCH_OK) return;
    if (branch || what < 8) (void)!filch_terminate(sched, pid);
    else (void)!filch_send(sched, pid, filch_int(what < 11 ? IGNORES_CANCEL : 0));
}

static void blow(filch_sched *sched, void *arg)
{
    (void)arg;
    for (uint32_t n = 1 + filch_sim_draw(sched, 3); n > 0; n--) strike(sched);
    if (filch_now(sched) > STORM_NS) return;
    uint64_t calm = FILCH_MILLISECONDS(1 + filch_sim_draw(sched, filch_sim_draw(sched, 4) == 0 ? 8000 : 800));
    (void)!filch_sim_later(sched, calm, blow, NULL);
}

static void on_gone(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    (void)result;
    run.exits++;
    run.gone = error;
}

static filch_err begin(filch_sched *sched, void *user)
{
    const tree         *t = user;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = on_gone;
    filch_err err = filch_supervise(sched, &t->root, &opt, &run.root);
    return err == FILCH_OK ? filch_sim_later(sched, FILCH_SECONDS(1), blow, NULL) : err;
}

/* Checks the tree. Called when the faults have ended and no process is ready. */
static filch_err check(filch_sched *sched, void *user)
{
    filch_pid pid;
    (void)user;
    if (run.exits > 0) {
        /* FILCH_ENOMEM: the root supervisor could not start because an allocation failed. */
        bool low_memory = run.low_memory && run.gone == FILCH_ENOMEM;
        if (run.patient && !low_memory)
            return filch_sim_fail(sched, "a tree gave up that may restart as often as it likes");
        if (run.exits > 1 || (run.gone != FILCH_ELIMIT && !low_memory))
            return filch_sim_fail(sched, "it gave up for a wrong reason");
        if (run.instances != 0) return filch_sim_fail(sched, "the tree is gone, and workers are left");
        return FILCH_OK;
    }
    for (int i = 0; i < WORKERS; i++) {
        if (run.alive[i] != 1) return filch_sim_fail(sched, "a worker is missing");
        if (filch_whereis(sched, names[i], &pid) != FILCH_OK) return filch_sim_fail(sched, "a worker has no name");
    }
    for (int i = 0; i < BRANCHES; i++) {
        if (filch_whereis(sched, branch_names[i], &pid) != FILCH_OK)
            return filch_sim_fail(sched, "a branch is missing");
    }
    return FILCH_OK;
}

static bool weather(uint64_t seed)
{
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    tree              t;
    memset(&run, 0, sizeof run);
    run.patient = seed % 2 == 0;
    run.low_memory = seed % 7 == 0;
    plant(&t, run.patient);
    opt.seed = seed;
    opt.check = check;
    opt.steps_max = 10000000;
    if (seed % 3 == 0) opt.stall = 10;
    if (seed % 5 == 0) opt.clock_jump = 2;
    if (run.low_memory) opt.no_memory = 20;
    if (filch_sim_run(&opt, begin, &t, &report) != FILCH_OK) return false;
    bool fine = report.verdict == FILCH_SIM_OK && run.instances == 0;
    if (!fine) {
        fprintf(stderr, "seed %" PRIu64 ": %s; %d instances left\n%s\n", seed,
                report.text[0] != '\0' ? report.text : "stopped", run.instances,
                report.chart != NULL ? report.chart : "");
    }
    all.starts += run.starts;
    all.faults += run.faults;
    all.gave_up += run.gone == FILCH_ELIMIT;
    all.stood += run.gone != FILCH_ELIMIT;
    filch_sim_report_free(&report);
    return fine;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 40, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (count == 0) count = 1;
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (!weather(seed)) return 1;
    }
    printf("%" PRIu64 " storms: %" PRIu64 " faults, %" PRIu64 " starts; %" PRIu64 " trees stood, %" PRIu64 " gave up\n",
           count, all.faults, all.starts, all.stood, all.gave_up);
    return 0;
}
