/* fairness_test.c - no process starves: tests the bound of sched/find.c on real schedulers.
 *
 * Every worker gets a hog: a process that always continues. The hogs wait for each other in their first step, so there
 * is one hog on each worker. From then on no worker runs out of work, so no worker steals and every process stays on
 * its worker. Then OTHERS processes (the crowd) become ready in each queue: spawned by a hog inside its step (the deque
 * of its worker), and by a foreign thread (the global queue). Meanwhile the hogs stay in their step, so that no clock
 * advances: the clock is the worker's count of steps. Each process records all clocks when it becomes ready, and reads
 * the clock of its worker when it is stepped.
 *
 * If a process is never stepped, the hogs end when every worker has made more steps than the bound for all processes,
 * and the test fails.
 */
#include "port/clock.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/sched.h"
#include "support/check.h"
#include "support/until.h"

enum { OTHERS = 1000, WORKERS_MOST = 4, ROUNDS = 40 };

#define LIMIT FILCH_SECONDS(30)

/* What one process of the crowd has measured. Not atomic: written by the spawning process, then by the process's own
 * steps, which the runtime orders. The test reads it after all processes have ended. */
typedef struct wait_record {
    uint64_t ready_at[WORKERS_MOST]; /* step count of each worker (clock_of) when the process became ready */
    uint64_t waited;                 /* longest wait of the process, in steps */
    uint32_t steps;
} wait_record;

typedef struct arena {
    filch_sched *sched;
    uint32_t     workers;
    uint32_t     rounds; /* number of steps of each process of the crowd; all steps but the last return CONTINUE */
    /* one record per process: wait_records[i] for processes in the deque of worker i, the last row for the global
     * queue */
    wait_record wait_records[WORKERS_MOST + 1][OTHERS];
    /* Accessed with relaxed order, because these counts and flags order no other memory. */
    FLI_ATOMIC(uint32_t) hogs, settled, crowd_ended;
    FLI_ATOMIC(bool)     begin, go, over;
} arena;

static arena *the; /* not atomic: changes only while there is no scheduler */

static uint64_t clock_of(uint32_t worker)
{
    return fli_load_rlx(&the->sched->workers[worker]->local.counters.steps);
}

static uint32_t my_worker(void)
{
    return fli_current_worker(&the->sched->rt)->index;
}

static void note_ready(wait_record *s)
{
    for (uint32_t i = 0; i < the->workers; i++) s->ready_at[i] = clock_of(i);
}

/* ---- the crowd ---- */

typedef struct member {
    wait_record *wait_record;
} member;

static filch_err member_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    ((member *)self)->wait_record = filch_as_ptr(args);
    return FILCH_OK;
}

static filch_err member_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    wait_record *s = ((member *)self)->wait_record;
    uint32_t     worker = my_worker();
    uint64_t     now = clock_of(worker), waited = now - s->ready_at[worker];
    if (waited > s->waited) s->waited = waited;
    if (++s->steps == the->rounds) {
        (void)fli_add_rlx(&the->crowd_ended, 1);
        return filch_done(out, filch_none());
    }
    note_ready(s);
    return filch_continue(out);
}

static const filch_type member_type = {
    .name = "member", .size = sizeof(member), .init = member_init, .step = member_step
};

static filch_err spawn_crowd(uint32_t queue)
{
    for (uint32_t i = 0; i < OTHERS; i++) {
        wait_record *s = &the->wait_records[queue][i];
        note_ready(s);
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_ptr(s);
        filch_err err = filch_spawn(the->sched, &member_type, &opt, NULL);
        if (err != FILCH_OK) return err;
    }
    return FILCH_OK;
}

/* ---- the hogs ---- */

static filch_err hog_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    bool *settled = self;
    if (!*settled) {
        *settled = true;
        (void)fli_add_rlx(&the->hogs, 1);
        while (!fli_load_rlx(&the->begin)) yield_slice();
        filch_err err = spawn_crowd(my_worker());
        if (err != FILCH_OK) return err;
        (void)fli_add_rlx(&the->settled, 1);
        while (!fli_load_rlx(&the->go)) yield_slice();
    }
    return fli_load_rlx(&the->over) ? filch_done(out, filch_none()) : filch_continue(out);
}

static const filch_type hog_type = { .name = "hog", .size = sizeof(bool), .step = hog_step };

/* ---- the test ---- */

static void wait_for(FLI_ATOMIC(uint32_t) *count, uint32_t wanted)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), LIMIT);
    while (fli_load_rlx(count) < wanted && fli_clock_ns() < until) yield_slice();
}

/* Waits until all processes of the crowd have ended. Gives up when LIMIT has passed, or when each worker has made more
 * than `rounds` times `bound` steps: a process makes `rounds` steps, and waits for each of them at most `bound` steps
 * of a worker. */
static void wait_for_the_crowd(uint64_t bound)
{
    uint64_t until = fli_clock_after(fli_clock_ns(), LIMIT), enough = 0;
    for (uint32_t i = 0; i < the->workers; i++) enough = clock_of(i) > enough ? clock_of(i) : enough;
    enough += the->rounds * bound;
    for (uint32_t done = 0; done < the->workers && fli_clock_ns() < until;) {
        if (fli_load_rlx(&the->crowd_ended) == (the->workers + 1) * OTHERS) return;
        if (clock_of(done) > enough) done++;
        else yield_slice();
    }
}

static void judge(uint32_t queue, uint64_t bound, const char *name)
{
    uint64_t most = 0;
    uint32_t unserved = 0;
    for (uint32_t i = 0; i < OTHERS; i++) {
        const wait_record *s = &the->wait_records[queue][i];
        if (s->steps < the->rounds) unserved++;
        if (s->waited > most) most = s->waited;
    }
    print_message("%u workers, %u rounds, %s: longest wait %llu steps, bound %llu\n", the->workers, the->rounds, name,
                  (unsigned long long)most, (unsigned long long)bound);
    same(unserved, 0);
    assert_true(most <= bound);
}

static void play(uint32_t workers, uint32_t rounds, uint32_t fair_every)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = (int32_t)workers;
    opt.fair_every = fair_every;
    the = test_calloc(1, sizeof *the);
    assert_non_null(the);
    the->workers = workers;
    the->rounds = rounds;
    ok(filch_sched_create(&the->sched, &opt));

    /* `ready` is the maximum number of processes in the queue in which a process waits. With one round, each process
     * stays in the queue into which it was spawned. With more rounds, a process that returns CONTINUE moves to the
     * deque of the worker that ran it, so in the worst case one deque has all processes. */
    uint64_t ready = rounds == 1 ? OTHERS + 1 : (uint64_t)(workers + 1) * OTHERS + workers;
    uint64_t bound = FLI_FAIR_BOUND(the->sched, ready);
    for (uint32_t i = 0; i < workers; i++) ok(filch_spawn(the->sched, &hog_type, NULL, NULL));
    wait_for(&the->hogs, workers);
    same(fli_load_rlx(&the->hogs), workers);

    fli_store_rlx(&the->begin, true);
    wait_for(&the->settled, workers);
    ok(spawn_crowd(workers));
    fli_store_rlx(&the->go, true);
    wait_for_the_crowd(bound);
    fli_store_rlx(&the->over, true);
    ok(filch_sched_stop(the->sched, LIMIT, NULL));

    for (uint32_t i = 0; i < workers; i++) judge(i, bound, "a deque");
    judge(workers, bound, "the global queue");
    test_free(the);
    the = NULL;
}

TEST(every_ready_process_is_stepped_within_the_bound)
{
    for (uint32_t workers = 1; workers <= WORKERS_MOST; workers *= 2) play(workers, 1, 0);
}

TEST(many_continuing_processes_share_the_workers_within_the_bound)
{
    for (uint32_t workers = 1; workers <= 2; workers++) play(workers, ROUNDS, 0);
}

TEST(fair_every_sets_the_bound)
{
    play(2, 1, 2);
    play(1, 1, 61);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ready_process_is_stepped_within_the_bound),
        cmocka_unit_test(many_continuing_processes_share_the_workers_within_the_bound),
        cmocka_unit_test(fair_every_sets_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
