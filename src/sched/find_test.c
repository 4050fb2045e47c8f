/* find_test.c - where a worker takes its next process from: the newest of its deque, the oldest at a fairness pick, a
 * batch of the global queue, half of another worker's deque. The scheduler has no threads: the test runs every step. */
#include "base/prng.h"
#include "port/thread.h"
#include "sched/find.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/step.h"
#include "sched/worker.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"

#include "port/clock.h"
#include "support/alloc.h"
#include "support/check.h"

enum { MANY = 64 };

/* Each reading of the clock is 20 ns after the last one, so that no step counts as long, also under valgrind. */
static uint64_t now_ns;

uint64_t __wrap_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void)
{
    return now_ns += 20;
}

/* The numbers of the processes, in the order of their steps. */
static int64_t order[4096];
static size_t  stepped;

typedef struct one {
    int64_t number;
    int     goes_on; /* 0: the process goes idle; 'm': wakes itself by a message, for ever; 'c': continues for ever;
                        's': sends to all `receivers` in its first step and goes idle; 't': like 's', but continues
                        once; 'l': like 's', but its worker has measured long steps; 'p': spawns process 1 in its first
                        step and continues once; 'b': wakes itself by a message, for ever, and sends to all `receivers`
                        in step `send_at`; 'y': like 'b', but yields with synchronous completions instead */
    uint32_t steps;
} one;

static filch_pid receivers[40];
static int       receiver_count;
static uint32_t  send_at;

static filch_pid spawn(filch_sched *sched, int64_t number, bool goes_on);

static filch_err on_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    one *me = self;
    (void)ctx;
    me->goes_on = method != NULL ? method[0] : 0;
    me->number = filch_as_int(args);
    return FILCH_OK;
}

/* The step of a process 'b' or 'y'. */
static filch_err send_once(one *me, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    bool             sends = me->steps++ == send_at;
    for (int i = 0; sends && i < receiver_count; i++) ok(filch_send(filch_ctx_sched(ctx), receivers[i], filch_none()));
    if (me->goes_on == 'b') {
        ok(filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_none()));
        return filch_idle(out);
    }
    filch_err err = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    one *me = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    if (stepped < sizeof order / sizeof order[0]) order[stepped++] = me->number;
    const filch_ctx *ctx = filch_out_ctx(out);
    if (me->goes_on == 'b' || me->goes_on == 'y') return send_once(me, out);
    if (me->goes_on == 'm') ok(filch_send(filch_ctx_sched(ctx), filch_ctx_self(ctx), filch_none()));
    bool sends = me->goes_on == 's' || me->goes_on == 't' || me->goes_on == 'l', spawns = me->goes_on == 'p';
    bool again = me->goes_on == 'c' || me->goes_on == 't' || spawns;
    if (me->goes_on == 'l') fli_worker_of(fli_current_get())->step_ns = 1000;
    if (spawns) (void)spawn(filch_ctx_sched(ctx), 1, false);
    for (int i = 0; sends && i < receiver_count; i++) ok(filch_send(filch_ctx_sched(ctx), receivers[i], filch_none()));
    if (sends || spawns) me->goes_on = 0;
    return again ? filch_continue(out) : filch_idle(out);
}

static const filch_type type = { .name = "one", .size = sizeof(one), .init = on_init, .step = on_step };

static filch_pid spawn_as(filch_sched *sched, int64_t number, const char *method)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    options.method = method;
    options.args = filch_int(number);
    ok(filch_spawn(sched, &type, &options, &pid));
    return pid;
}

static filch_pid spawn(filch_sched *sched, int64_t number, bool goes_on)
{
    return spawn_as(sched, number, goes_on ? "messages" : NULL);
}

static filch_err complete_now(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_sched *begin(uint32_t fair_every, uint32_t global_batch)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    options.fair_every = fair_every;
    options.global_batch = global_batch;
    options.seed = 1;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, FILCH_CMD_USER, complete_now, NULL));
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    stepped = 0;
    return sched;
}

static void end(filch_sched *sched)
{
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

static void run(filch_sched *sched, uint32_t steps)
{
    uint32_t ran;
    ok(filch_tick(sched, steps, &ran));
    same(ran, steps);
}

TEST(the_global_queue_gives_one_process_and_a_batch_of_sixteen)
{
    filch_sched *sched = begin(1000000, 0);
    for (int i = 0; i < 40; i++) (void)spawn(sched, i, false);
    same(fli_inject_count(&sched->global), 40);
    run(sched, 1);
    same(fli_deque_count(&sched->caller_worker->deque), 16);
    same(fli_inject_count(&sched->global), 40 - 17);
    run(sched, 16);
    same(fli_deque_count(&sched->caller_worker->deque), 0);
    same(fli_inject_count(&sched->global), 40 - 17);
    run(sched, 1);
    same(fli_inject_count(&sched->global), 40 - 34);
    run(sched, 22);
    /* The processes run in the order in which they were queued, also those that were moved to the deque. */
    for (int i = 0; i < 40; i++) same(order[i], i);
    end(sched);
}

TEST(the_local_deque_gives_the_newest_first)
{
    filch_sched *sched = begin(1000000, 0);
    filch_pid    pids[4];
    for (int i = 0; i < 4; i++) pids[i] = spawn(sched, i, false);
    run(sched, 4);
    stepped = 0;
    /* Sends as the worker, so that the processes go to its deque as if a step had sent to them. */
    fli_current_set(&sched->caller_worker->local);
    for (int i = 0; i < 4; i++) ok(filch_send(sched, pids[i], filch_int(0)));
    fli_current_set(NULL);
    (void)spawn(sched, 4, false); /* goes to the global queue: runs after the processes in the deque */
    run(sched, 5);
    const int64_t want[] = { 3, 2, 1, 0, 4 };
    for (int i = 0; i < 5; i++) same(order[i], want[i]);
    end(sched);
}

/* Spawns processes 0 to n - 1 as the receivers of the next sends, and runs them until they are idle. */
static void make_receivers(filch_sched *sched, int n)
{
    for (int i = 0; i < n; i++) receivers[i] = spawn(sched, i, false);
    run(sched, (uint32_t)n);
    receiver_count = n;
    stepped = 0;
    /* Disables samples of queue waits, because a sample reads the clock. */
    sched->caller_worker->slow_push_from = sched->caller_worker->sample_in = 1000;
    sched->caller_worker->local.ready = fli_ready_next;
}

static void stepped_were(const int64_t *want, size_t count)
{
    for (size_t i = 0; i < count; i++) same(order[i], want[i]);
}

TEST(the_first_process_that_a_step_wakes_runs_next)
{
    filch_sched *sched = begin(1000000, 0);
    make_receivers(sched, 4);
    (void)spawn_as(sched, 9, "sends");
    run(sched, 1);
    same(fli_worker_queued(sched->caller_worker), 4);
    same(fli_deque_count(&sched->caller_worker->deque), 3);
    run(sched, 4);
    stepped_were((int64_t[]){ 9, 0, 3, 2, 1 }, 5);
    end(sched);
}

/* Processes 9 and 7 are ready. 9 sends to 0 and continues: 9 runs again after 0 and before 7. */
TEST(a_process_that_sends_and_continues_runs_after_its_receiver)
{
    filch_sched *sched = begin(1000000, 0);
    make_receivers(sched, 1);
    (void)spawn_as(sched, 9, "then continues");
    (void)spawn(sched, 7, false);
    run(sched, 4);
    stepped_were((int64_t[]){ 9, 0, 9, 7 }, 4);
    end(sched);
}

/* Processes 9 and 7 are ready. 9 spawns 1 and continues: 9 runs again after 1 and before 7. */
TEST(a_process_that_spawns_and_continues_runs_after_its_child)
{
    filch_sched *sched = begin(1000000, 0);
    make_receivers(sched, 0);
    (void)spawn_as(sched, 9, "p: spawns");
    (void)spawn(sched, 7, false);
    run(sched, 4);
    stepped_were((int64_t[]){ 9, 1, 9, 7 }, 4);
    end(sched);
}

/* Process 7 is queued before 9 sends to 34 processes in one step, and steps take long: the receivers of the last two
 * sends go to the end of the global queue and run after 7. */
TEST(from_the_33rd_send_of_a_long_step_on_receivers_do_not_overtake_queued_processes)
{
    filch_sched *sched = begin(1000000, 0);
    make_receivers(sched, 34);
    /* FANOUT_MIN of ready.c, the usual value; make_receivers() has changed it. */
    sched->caller_worker->slow_push_from = 33;
    (void)spawn_as(sched, 9, "long step that sends");
    (void)spawn(sched, 7, false);
    run(sched, 1);
    same(fli_worker_queued(sched->caller_worker), 32 + 1);
    same(fli_inject_count(&sched->global), 2);
    run(sched, 35);
    stepped_were((int64_t[]){ 9, 0, 31 }, 3);
    same(order[33], 7);
    same(order[34], 32);
    same(order[35], 33);
    end(sched);
}

/* Each turn is a fairness pick. Process 0 is in the LIFO slot, and must not stay there for ever. */
TEST(the_process_in_the_lifo_slot_runs_beside_endless_loops)
{
    filch_sched *sched = begin(1, 0);
    make_receivers(sched, 1);
    (void)spawn_as(sched, 9, "sends");
    for (int i = 1; i <= 3; i++) (void)spawn_as(sched, i, "continues");
    run(sched, 41);
    same(order[0], 9);
    size_t at = 1;
    while (at < stepped && order[at] != 0) at++;
    assert_true(at < stepped);
    end(sched);
}

/* Runs `turns` turns without reading the clock. `threaded`: as on a worker thread, which may step a process again
 * without a queue. */
static void run_turns(filch_sched *sched, uint32_t turns, bool threaded)
{
    fli_worker *w = sched->caller_worker;
    fli_current_set(&w->local);
    w->may_rerun = threaded;
    w->steps_left = UINT32_MAX;
    w->clock_countdown = turns;
    assert_true(fli_step_on(w));
    w->may_rerun = false;
    fli_current_set(NULL);
}

/* A process that continues runs after the processes that were ready before it. Fairness picks alternate between the
 * oldest of the global queue and the oldest of the deque. No clock reading is due during these turns, so no step counts
 * as long. */
TEST(a_process_that_continues_runs_after_the_oldest)
{
    filch_sched        *sched = begin(1000000, 0);
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.method = "continues";
    ok(filch_spawn(sched, &type, &options, NULL));
    run(sched, 1);
    /* The clock was due at step 1, so the step counted as long and began a series of picks. Ends the series. */
    sched->caller_worker->fair_series = 0;
    for (int i = 1; i <= 3; i++) (void)spawn(sched, i, false);
    run_turns(sched, 7, false);
    const int64_t want[] = { 0, 1, 0, 0, 2, 0, 0, 3 };
    for (int i = 0; i < 8; i++) same(order[i], want[i]);
    end(sched);
}

/* Process 9 wakes 0 to 15: 0 is in the LIFO slot, the others are in the deque. A series of four picks takes the oldest
 * of them, and the process in the slot runs after one pick. After the series, each eighth turn is a pick. */
TEST(a_series_of_picks_ends_and_passes_over_the_lifo_slot_once)
{
    filch_sched *sched = begin(8, 0);
    fli_worker  *w = sched->caller_worker;
    make_receivers(sched, 16);
    (void)spawn_as(sched, 9, "sends");
    run(sched, 1);
    w->fair_countdown = 1;
    w->fair_series = 3;
    run_turns(sched, 16, false);
    same(w->fair_series, 0);
    stepped_were((int64_t[]){ 9, 1, 0, 2, 3, 4, 15, 14, 13, 12, 11, 10, 9, 5, 8, 7, 6 }, 17);
    end(sched);
}

/* Process 9 is always ready and alone in the deque, so each fairness pick takes it. At some step it wakes process 0,
 * which enters the LIFO slot. Only one pick may come before process 0. */
TEST(the_process_in_the_lifo_slot_is_passed_over_at_one_fairness_pick_at_most)
{
    const uint32_t every[] = { 2, 3, 8, 64 };
    for (size_t i = 0; i < 16; i++) {
        uint32_t n = every[i % 4];
        for (send_at = 0; send_at < 2 * n; send_at++) {
            filch_sched *sched = begin(n, 0);
            make_receivers(sched, 1);
            (void)spawn_as(sched, 9, i < 8 ? "b: by messages" : "yields");
            run_turns(sched, 1000, i / 4 % 2 == 1);
            size_t at = 0;
            while (at < stepped && order[at] != 0) at++;
            assert_in_range(at, send_at + 1, send_at + 2 * n);
            end(sched);
        }
    }
}

/* Every turn is a fairness pick, and the deque is full and cannot grow: the process in the LIFO slot goes to the global
 * queue. */
TEST(the_process_in_the_lifo_slot_is_not_lost_if_the_deque_cannot_grow)
{
    enum { CROWD = 1000 };
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    test_alloc    alloc = { 0 };
    void         *p = NULL;
    bool          pushed = true;
    int           seen[CROWD] = { 0 };
    options.workers = FILCH_NO_WORKERS;
    options.fair_every = 1;
    options.alloc = test_alloc_fn;
    options.alloc_user = &alloc;
    ok(filch_sched_create(&sched, &options));
    stepped = 0;
    fli_worker *w = sched->caller_worker;
    for (int i = 0; i < CROWD; i++) (void)spawn(sched, i, false);
    test_alloc_fail(&alloc, 1, true);
    fli_current_set(&w->local);
    while (pushed && fli_inject_take(&sched->global, &p, 1) == 1) pushed = fli_deque_push(&w->deque, p);
    assert_false(pushed);
    assert_true(fli_lifo_slot_put(&w->lifo_slot, p));
    uint32_t waiting = (uint32_t)fli_inject_count(&sched->global);
    w->fair_local_next = true;
    fli_inject_put(&sched->global, fli_find_oldest(w));
    fli_current_set(NULL);
    assert_false(fli_lifo_slot_is_full(&w->lifo_slot));
    same(fli_inject_count(&sched->global), waiting + 2);
    test_alloc_fail(&alloc, 0, false);
    run(sched, CROWD);
    for (int i = 0; i < CROWD; i++) same(++seen[order[i]], 1);
    end(sched);
    test_alloc_balanced(&alloc);
}

/* Process 0 is always ready. Every fourth turn is a fairness pick, alternately from the global queue and from the
 * deque. */
TEST(every_nth_turn_runs_an_oldest_process)
{
    filch_sched *sched = begin(4, 0);
    (void)spawn(sched, 0, true);
    run(sched, 1); /* step 1: process 0, which goes back to the deque */
    for (int i = 1; i <= 3; i++) (void)spawn(sched, i, false);
    run(sched, 11);
    /* Steps 4 and 12 pick from the global queue first, step 8 from the deque, which holds 0 alone. */
    const int64_t want[] = { 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2 };
    for (int i = 0; i < 12; i++) same(order[i], want[i]);
    end(sched);
}

TEST(a_fairness_pick_takes_from_the_other_queue_if_one_is_empty)
{
    filch_sched *sched = begin(4, 0);
    (void)spawn(sched, 0, true);
    (void)spawn(sched, 1, true);
    run(sched, 16);
    /* Both processes are in the deque. The fairness pick of step 4 finds the global queue empty and takes the oldest of
     * the deque. */
    size_t ones = 0;
    for (size_t i = 0; i < 16; i++) ones += order[i] == 1;
    assert_in_range(ones, 4, 12);
    end(sched);
}

TEST(no_ready_process_waits_longer_than_the_bound)
{
    const uint32_t shapes[][2] = { { 1, 1 }, { 2, 4 }, { 8, 16 }, { 16, 3 } };
    for (size_t s = 0; s < 4; s++) {
        for (uint32_t ready = 1; ready <= MANY; ready *= 4) {
            filch_sched *sched = begin(shapes[s][0], shapes[s][1]);
            for (uint32_t i = 0; i < ready; i++) (void)spawn(sched, i, true);
            uint64_t bound = FLI_FAIR_BOUND(sched, ready), last[MANY] = { 0 }, turn = 0;
            while (turn < bound * 4) {
                stepped = 0;
                run(sched, 1000);
                for (size_t i = 0; i < 1000; i++) {
                    turn++;
                    assert_true(turn - last[order[i]] <= bound);
                    last[order[i]] = turn;
                }
            }
            for (uint32_t i = 0; i < ready; i++) assert_true(turn - last[i] <= bound);
            end(sched);
        }
    }
}

/* ---- thieves ---- */

/* A second worker without a thread, which steals from caller_worker. */
typedef struct theft {
    filch_sched        *sched;
    fli_worker         *thief;
    fli_worker         *both[2], **before;
    fli_victim_progress victim_progress[2];
} theft;

static void theft_begin(theft *d)
{
    *d = (theft){ .sched = begin(1000000, 0) };
    filch_sched *sched = d->sched;
    d->thief = fli_zalloc_aligned(&sched->rt.mem, sizeof *d->thief, FLI_LINE);
    assert_non_null(d->thief);
    d->thief->sched = sched;
    d->thief->local.rt = &sched->rt;
    d->thief->local.index = 1;
    d->thief->victim_progress = d->victim_progress;
    d->thief->clock_ns = 1000;
    fli_prng_init(&d->thief->prng, 7);
    ok(fli_deque_init(&d->thief->deque, &sched->rt.mem));
    d->both[0] = sched->caller_worker;
    d->both[1] = d->thief;
    d->before = sched->workers;
    sched->workers = d->both;
    sched->worker_total = 2;
}

/* Moves the processes of the thief to the global queue, frees the thief, and stops the scheduler. */
static void theft_end(theft *d)
{
    filch_sched *sched = d->sched;
    for (fli_proc *p; (p = fli_deque_pop(&d->thief->deque)) != NULL;) fli_ready(&sched->rt, NULL, p);
    sched->workers = d->before;
    sched->worker_total = 1;
    fli_deque_fini(&d->thief->deque);
    fli_free_aligned(&sched->rt.mem, d->thief, sizeof *d->thief, FLI_LINE);
    end(sched);
}

static int64_t number_of(fli_proc *p)
{
    return ((one *)p->self)->number;
}

/* Puts processes 0 to n - 1 into the deque of caller_worker; 0 is the oldest. */
static void fill(theft *d, int n)
{
    filch_sched *sched = d->sched;
    for (int i = 0; i < n; i++) (void)spawn(sched, i, false);
    void *batch[MANY];
    same(fli_inject_take(&sched->global, batch, MANY), n);
    for (int i = 0; i < n; i++) assert_true(fli_deque_push(&sched->caller_worker->deque, batch[i]));
}

TEST(a_thief_takes_the_older_half_and_runs_the_oldest_first)
{
    for (int n = 2; n < 20; n++) {
        theft d;
        bool  retry = false;
        theft_begin(&d);
        fill(&d, n);
        int       half = n - n / 2;
        fli_proc *p = fli_find_far(d.thief, false, &retry);
        assert_non_null(p);
        assert_false(retry);
        same(number_of(p), 0);
        same(fli_deque_count(&d.thief->deque), half - 1);
        same(fli_deque_count(&d.sched->caller_worker->deque), n - half);
        same(fli_load_rlx(&d.thief->local.counters.steals), 1);
        same(fli_load_rlx(&d.thief->local.counters.stolen), half);
        fli_ready(&d.sched->rt, NULL, p);
        for (int i = 1; i < half; i++) {
            p = fli_deque_pop(&d.thief->deque);
            same(number_of(p), i);
            fli_ready(&d.sched->rt, NULL, p);
        }
        theft_end(&d);
    }
}

TEST(a_thief_finds_nothing_if_all_queues_are_empty)
{
    theft d;
    bool  retry = false;
    theft_begin(&d);
    assert_null(fli_find_far(d.thief, true, &retry));
    assert_false(retry);
    assert_false(fli_find_visible(d.sched, 1));
    fill(&d, 1);
    assert_true(fli_find_visible(d.sched, 1));
    assert_false(fli_find_visible(d.sched, 2));
    theft_end(&d);
}

/* A thief leaves a single process to its worker, because that worker is about to run it with warm caches. */
TEST(a_single_process_is_not_stolen_from_a_worker_with_progress)
{
    theft     d;
    bool      retry = false;
    fli_proc *p;
    theft_begin(&d);
    fill(&d, 1);
    for (int i = 0; i < 10; i++) {
        d.thief->clock_ns += 1000000;
        fli_count(&d.sched->caller_worker->local.counters.steps, 1);
        assert_null(fli_find_far(d.thief, false, &retry));
    }
    /* The worker makes no progress: the process is stolen after 20 us, not before. */
    d.thief->clock_ns += 19999;
    assert_null(fli_find_far(d.thief, false, &retry));
    d.thief->clock_ns += 1;
    assert_non_null(p = fli_find_far(d.thief, false, &retry));
    fli_ready(&d.sched->rt, NULL, p);
    theft_end(&d);
}

/* A process in the LIFO slot of a worker without progress is stolen after 20 us too. */
TEST(the_lifo_slot_of_a_worker_without_progress_is_stolen)
{
    theft     d;
    bool      retry = false;
    fli_proc *p;
    theft_begin(&d);
    fill(&d, 1);
    assert_true(fli_lifo_slot_put(&d.sched->caller_worker->lifo_slot, fli_deque_pop(&d.sched->caller_worker->deque)));
    assert_true(fli_find_visible(d.sched, 1));
    assert_false(fli_find_visible(d.sched, 2));
    assert_null(fli_find_far(d.thief, false, &retry));
    d.thief->clock_ns += 19999;
    assert_null(fli_find_far(d.thief, false, &retry));
    d.thief->clock_ns += 1;
    assert_non_null(p = fli_find_far(d.thief, false, &retry));
    assert_false(retry);
    same(fli_worker_queued(d.sched->caller_worker), 0);
    same(fli_load_rlx(&d.thief->local.counters.stolen), 1);
    assert_true(fli_lifo_slot_put(&d.sched->caller_worker->lifo_slot, p));
    assert_ptr_equal(fli_find_far(d.thief, true, &retry), p); /* with `any`, as in a stop, `p` is stolen at once */
    fli_ready(&d.sched->rt, NULL, p);
    theft_end(&d);
}

TEST(a_thief_takes_from_the_deque_before_the_lifo_slot)
{
    theft d;
    bool  retry = false;
    theft_begin(&d);
    fill(&d, 2);
    fli_proc *next = fli_deque_pop(&d.sched->caller_worker->deque);
    assert_true(fli_lifo_slot_put(&d.sched->caller_worker->lifo_slot, next));
    assert_true(fli_find_visible(d.sched, 2));
    fli_proc *p = fli_find_far(d.thief, false, &retry); /* the thief may steal, because two processes are queued */
    assert_non_null(p);
    same(number_of(p), 0);
    assert_true(fli_lifo_slot_is_full(&d.sched->caller_worker->lifo_slot));
    fli_ready(&d.sched->rt, NULL, p);
    theft_end(&d);
}

TEST(a_single_process_is_stolen_at_once_during_a_stop)
{
    theft d;
    bool  retry = false;
    theft_begin(&d);
    fill(&d, 1);
    fli_proc *p = fli_find_far(d.thief, true, &retry);
    assert_non_null(p);
    fli_ready(&d.sched->rt, NULL, p);
    theft_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_global_queue_gives_one_process_and_a_batch_of_sixteen),
        cmocka_unit_test(the_local_deque_gives_the_newest_first),
        cmocka_unit_test(the_first_process_that_a_step_wakes_runs_next),
        cmocka_unit_test(a_process_that_sends_and_continues_runs_after_its_receiver),
        cmocka_unit_test(a_process_that_spawns_and_continues_runs_after_its_child),
        cmocka_unit_test(from_the_33rd_send_of_a_long_step_on_receivers_do_not_overtake_queued_processes),
        cmocka_unit_test(the_process_in_the_lifo_slot_runs_beside_endless_loops),
        cmocka_unit_test(the_process_in_the_lifo_slot_is_passed_over_at_one_fairness_pick_at_most),
        cmocka_unit_test(the_process_in_the_lifo_slot_is_not_lost_if_the_deque_cannot_grow),
        cmocka_unit_test(every_nth_turn_runs_an_oldest_process),
        cmocka_unit_test(a_process_that_continues_runs_after_the_oldest),
        cmocka_unit_test(a_series_of_picks_ends_and_passes_over_the_lifo_slot_once),
        cmocka_unit_test(a_fairness_pick_takes_from_the_other_queue_if_one_is_empty),
        cmocka_unit_test(no_ready_process_waits_longer_than_the_bound),
        cmocka_unit_test(a_thief_takes_the_older_half_and_runs_the_oldest_first),
        cmocka_unit_test(a_thief_finds_nothing_if_all_queues_are_empty),
        cmocka_unit_test(a_single_process_is_not_stolen_from_a_worker_with_progress),
        cmocka_unit_test(the_lifo_slot_of_a_worker_without_progress_is_stolen),
        cmocka_unit_test(a_thief_takes_from_the_deque_before_the_lifo_slot),
        cmocka_unit_test(a_single_process_is_stolen_at_once_during_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
