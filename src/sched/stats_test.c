/* stats_test.c - statistics count every event once; the shorter struct of an older caller is filled up to its size;
 * other threads never read a wrong number of living processes. */
#include "proc/runtime.h"
#include "sched/ready.h"
#include "sched/sched.h"
#include "sched/worker.h"

#include <string.h>

#include "support/check.h"
#include "support/until.h"

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        switch (filch_as_int(&events[i].data)) {
        case 1: return filch_done(out, filch_none());
        case 2: return FILCH_EUSER;
        case 3: ok(filch_yield_sleep(out, 1, FILCH_SECONDS(1000))); return filch_wait(out);
        case 4:
            ok(filch_yield(out, 4000, 1, filch_none())); /* no handler has the id 4000: the completion is an error */
            return filch_wait(out);
        default: break;
        }
    }
    return filch_idle(out);
}

static const filch_type type = { .name = "counted", .step = on_step };

static filch_sched *begin(void)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    return sched;
}

static filch_stats stats_of(filch_sched *sched)
{
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    return stats;
}

static void tick(filch_sched *sched)
{
    ok(filch_tick(sched, 0, NULL));
}

TEST(processes_steps_and_messages_are_counted)
{
    filch_sched *sched = begin();
    filch_pid    pids[4];
    for (int i = 0; i < 4; i++) ok(filch_spawn(sched, &type, NULL, &pids[i]));
    filch_stats stats = stats_of(sched);
    same(stats.spawned, 4);
    same(stats.alive, 4);
    same(stats.steps, 0);
    same(stats.workers, 0);
    tick(sched);
    same(stats_of(sched).steps, 4);
    ok(filch_send(sched, pids[0], filch_int(1)));
    ok(filch_send(sched, pids[1], filch_int(2)));
    ok(filch_send(sched, pids[2], filch_int(3)));
    ok(filch_send(sched, pids[3], filch_int(4)));
    tick(sched);
    same(filch_send(sched, pids[0], filch_int(0)), FILCH_EDEAD);
    ok(filch_terminate(sched, pids[2]));
    tick(sched);
    stats = stats_of(sched);
    same(stats.spawned, 4);
    same(stats.ended, 3);
    same(stats.failed, 2); /* pids[1] failed by its own error, pids[2] by filch_terminate */
    same(stats.alive, 1);
    same(stats.sent, 4);
    same(stats.undelivered, 1);
    same(stats.yields, 2);
    same(stats.completions, 1);
    same(stats.timers, 0); /* the timer of pids[2] was removed when pids[2] ended */
    same(stats.steps, 4 + 4 + 1);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(refused_and_dropped_messages_are_counted)
{
    filch_sched        *sched = begin();
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           fails, drops;
    filch_info          info = { .size = sizeof info };
    options.mailbox_max = 1;
    ok(filch_spawn(sched, &type, &options, &fails));
    options.overflow = FILCH_OVERFLOW_DROP_NEWEST;
    ok(filch_spawn(sched, &type, &options, &drops));
    for (int i = 0; i < 3; i++) {
        same(filch_send(sched, fails, filch_int(0)), i == 0 ? FILCH_OK : FILCH_EFULL);
        same(filch_send(sched, drops, filch_int(0)), i == 0 ? FILCH_OK : FILCH_EDROPPED);
    }
    same(stats_of(sched).refused, 2);
    same(stats_of(sched).dropped, 2);
    ok(filch_inspect(sched, drops, &info));
    same(info.messages, 1);
    same(info.dropped, 2); /* the drops are counted although the process has not got the event DROPPED yet */
    tick(sched);
    ok(filch_inspect(sched, drops, &info));
    same(info.messages, 0);
    same(info.dropped, 2);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(inspect_returns_the_state_of_a_process)
{
    filch_sched *sched = begin();
    filch_pid    pid;
    filch_info   info = { .size = sizeof info };
    ok(filch_spawn(sched, &type, NULL, &pid));
    ok(filch_inspect(sched, pid, &info));
    same(info.state, FILCH_STATE_READY);
    assert_string_equal(info.name, "counted");
    tick(sched);
    ok(filch_inspect(sched, pid, &info));
    same(info.state, FILCH_STATE_IDLE);
    ok(filch_send(sched, pid, filch_int(3)));
    ok(filch_inspect(sched, pid, &info));
    same(info.state, FILCH_STATE_READY);
    tick(sched);
    ok(filch_inspect(sched, pid, &info));
    same(info.state, FILCH_STATE_BLOCKED);
    same(stats_of(sched).timers, 1);
    ok(filch_terminate(sched, pid));
    tick(sched);
    info.state = 77;
    same(filch_inspect(sched, pid, &info), FILCH_EDEAD);
    same(info.state, 77);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(the_shorter_struct_of_an_older_caller_is_filled_up_to_its_size)
{
    filch_sched *sched = begin();
    filch_pid    pid;
    ok(filch_spawn(sched, &type, NULL, &pid));
    union {
        filch_stats   stats;
        filch_info    info;
        unsigned char bytes[sizeof(filch_stats) + 64];
    } u;
    memset(&u, 0xee, sizeof u);
    u.stats.size = offsetof(filch_stats, ended);
    ok(filch_sched_stats(sched, &u.stats));
    same(u.stats.spawned, 1);
    for (size_t i = offsetof(filch_stats, ended); i < sizeof u; i++) same(u.bytes[i], 0xee);
    memset(&u, 0xee, sizeof u);
    u.info.size = offsetof(filch_info, state);
    ok(filch_inspect(sched, pid, &u.info));
    assert_string_equal(u.info.name, "counted");
    for (size_t i = offsetof(filch_info, state); i < sizeof u; i++) same(u.bytes[i], 0xee);
    /* Simulates a newer caller with a larger struct: only the fields known to this version are written. */
    memset(&u, 0xee, sizeof u);
    u.stats.size = sizeof(filch_stats) + 64;
    ok(filch_sched_stats(sched, &u.stats));
    same(u.stats.size, sizeof(filch_stats));
    for (size_t i = sizeof(filch_stats); i < sizeof u; i++) same(u.bytes[i], 0xee);
    u.stats.size = sizeof u.stats.size - 1;
    same(filch_sched_stats(sched, &u.stats), FILCH_EINVAL);
    same(filch_sched_stats(sched, NULL), FILCH_EINVAL);
    same(filch_sched_stats(NULL, &u.stats), FILCH_EINVAL);
    same(filch_inspect(sched, pid, NULL), FILCH_EINVAL);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

/* ---- threads ---- */

/* A process that spawns two children and ends. Each child does the same, down to the depth given in args. */
static filch_err        on_branch(void *self, const filch_event *events, size_t count, filch_out *out);
static filch_err        on_branch_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
static const filch_type branch = { .name = "branch", .size = 8, .init = on_branch_init, .step = on_branch };

static filch_err on_branch_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

static filch_err on_branch(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t depth = *(int64_t *)self;
    (void)events;
    (void)count;
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_int(depth - 1);
    for (int i = 0; i < 2 && depth > 0; i++) {
        filch_err err = filch_spawn(filch_out_sched(out), &branch, &options, NULL);
        if (err != FILCH_OK) return err;
    }
    return filch_done(out, filch_none());
}

TEST(the_count_of_living_processes_is_never_too_low)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     root;
    options.workers = 2;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &type, NULL, &root)); /* `root` lives during the whole test */
    uint64_t lives = 0, rounds = scaled(60);
    for (uint64_t round = 0; round < rounds; round++) {
        filch_spawn_options tree = FILCH_SPAWN_OPTIONS_INIT;
        tree.args = filch_int(10);
        ok(filch_spawn(sched, &branch, &tree, NULL));
        lives += (1u << 11) - 1;
        for (uint64_t alive = 0; alive != 1;) {
            alive = stats_of(sched).alive;
            assert_in_range(alive, 1, 1 << 12); /* the count is never 0, and never wraps below 0 */
        }
        /* One process is alive: `root`. The whole tree has been spawned and has ended. */
        filch_stats stats = stats_of(sched);
        same(stats.spawned, lives + 1);
        same(stats.ended, lives);
    }
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

static filch_err sleeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    filch_err err = filch_yield_sleep(out, 1, FILCH_SECONDS(3600));
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type sleeper = { .name = "sleeper", .step = sleeper_step };

TEST(yields_of_an_ended_process_are_counted_as_abandoned)
{
    filch_sched *sched = begin();
    filch_pid    pid;
    ok(filch_spawn(sched, &sleeper, NULL, &pid));
    tick(sched);
    filch_stats stats = stats_of(sched);
    same(stats.yields - stats.completions - stats.abandoned, 1);
    same(stats.abandoned, 0);
    ok(filch_terminate(sched, pid));
    tick(sched);
    stats = stats_of(sched);
    same(stats.abandoned, 1);
    same(stats.yields, stats.completions + stats.abandoned);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

/* The first three steps yield and wait; the fourth yields twice and fails. */
static filch_err failing_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    uint64_t *left = self;
    ok(filch_yield(out, FILCH_CMD_TIMER, 1, filch_int((int64_t)FILCH_SECONDS(1000))));
    if (count == 0) *left = 3;
    if ((*left)-- > 0) return filch_wait(out);
    ok(filch_yield(out, FILCH_CMD_TIMER, 1, filch_str("not a time")));
    return FILCH_EUSER;
}

TEST(yields_of_a_failed_step_are_not_counted)
{
    static const filch_type failing = { .name = "failing", .size = sizeof(uint64_t), .step = failing_step };
    filch_sched            *sched = begin();
    ok(filch_spawn(sched, &failing, NULL, NULL));
    tick(sched);
    filch_stats stats = stats_of(sched);
    same(stats.failed, 1);
    same(stats.completions, 3);
    same(stats.abandoned, 0);
    same(stats.yields, 3);
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

/* Sends one message to the pid in its args, and ends. */
static filch_err        on_sender_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
static filch_err        on_sender(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type sender = {
    .name = "sender", .size = sizeof(filch_pid), .init = on_sender_init, .step = on_sender
};

static filch_err on_sender_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(filch_pid *)self = filch_as_pid(args);
    return FILCH_OK;
}

static filch_err on_sender(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)count;
    ok(filch_send(filch_ctx_sched(filch_out_ctx(out)), *(filch_pid *)self, filch_none()));
    return filch_done(out, filch_none());
}

/* Returns how many queue waits of at least 2^bucket ns were counted. */
static uint64_t waits_from(filch_sched *sched, int bucket)
{
    filch_stats stats = stats_of(sched);
    uint64_t    waits = 0;
    for (int b = bucket; b < FILCH_WAIT_BUCKETS; b++) waits += stats.queue_wait[b];
    return waits;
}

/* Creates a scheduler with one idle process, and fills spawn options for a `sender` process that sends to it. */
static filch_sched *begin_with_listener(filch_pid *pid, filch_spawn_options *options)
{
    filch_sched *sched = begin();
    ok(filch_spawn(sched, &type, NULL, pid));
    tick(sched);
    *options = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    options->args = filch_of_pid(*pid);
    return sched;
}

TEST(each_sample_measures_the_queue_wait_of_one_process_that_a_step_wakes)
{
    filch_spawn_options options;
    filch_pid           pid;
    filch_sched        *sched = begin_with_listener(&pid, &options);
    fli_worker         *w = sched->caller_worker;
    w->sample_in = 1000;                             /* clock readings of `w` request no sample */
    ok(filch_spawn(sched, &sender, &options, NULL)); /* a worker always measures its first queue wait */
    tick(sched);
    uint64_t waits = waits_from(sched, 0);
    same(waits, 1);
    for (int sample_requested = 0; sample_requested < 2; sample_requested++) {
        if (sample_requested) fli_ready_sample(w);
        for (int i = 0; i < 3; i++) {
            ok(filch_spawn(sched, &sender, &options, NULL));
            tick(sched);
        }
        same(waits_from(sched, 0), waits + (sample_requested ? 1 : 0));
    }
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

TEST(a_queue_wait_that_ended_on_another_worker_is_not_counted_later)
{
    filch_spawn_options options;
    filch_pid           pid;
    filch_sched        *sched = begin_with_listener(&pid, &options);
    fli_worker         *w = sched->caller_worker;
    fli_proc           *p = fli_proc_find(&sched->rt, pid.serial);
    /* The first send of a worker fills its magazine of message nodes. Only later sends take the fast path. */
    ok(filch_spawn(sched, &sender, &options, NULL));
    tick(sched);
    for (int by_neighbour = 0; by_neighbour < 2; by_neighbour++) {
        /* Ten seconds ago this worker began to measure the wait of `p`, but another worker stole and stepped `p`. */
        w->sample_serial = pid.serial;
        w->sample_ns = fli_now(&sched->rt) - FILCH_SECONDS(10);
        p->last_worker = 7;
        if (by_neighbour) ok(filch_spawn(sched, &sender, &options, NULL));
        else ok(filch_send(sched, pid, filch_none()));
        w->slow_push_from = UINT32_MAX; /* this line and the next one disable further samples */
        w->local.ready = fli_ready_next;
        uint64_t steps = stats_of(sched).steps;
        tick(sched);
        same(stats_of(sched).steps, steps + (by_neighbour ? 2 : 1));
        same(waits_from(sched, 31), 0); /* no wait of 2 s or more was counted */
    }
    /* A wait that ends on the worker that began to measure it is counted. */
    p->last_worker = FLI_MARK_SAMPLED;
    ok(filch_send(sched, pid, filch_none()));
    tick(sched);
    same(waits_from(sched, 31), 1);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(a_process_with_a_sampled_wait_has_the_idle_word_of_no_worker)
{
    fli_proc p = { .report_state = FILCH_STATE_IDLE, .last_worker = FLI_MARK_SAMPLED };
    for (uint32_t index = 0; index < 1025; index++) { /* the indexes of all possible workers, and of caller_worker */
        assert_false(fli_proc_is_idle_word(&p, fli_proc_idle_word(index)));
        assert_true(fli_worker_mark(index) != FLI_MARK_SAMPLED);
    }
    filch_sched *sched = begin();
    p.last_worker = sched->caller_worker->local.worker_mark;
    assert_true(fli_proc_is_idle_word(&p, sched->caller_worker->idle_word));
    ok(filch_sched_stop(sched, FILCH_SECONDS(5), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_steps_and_messages_are_counted),
        cmocka_unit_test(refused_and_dropped_messages_are_counted),
        cmocka_unit_test(inspect_returns_the_state_of_a_process),
        cmocka_unit_test(the_shorter_struct_of_an_older_caller_is_filled_up_to_its_size),
        cmocka_unit_test(the_count_of_living_processes_is_never_too_low),
        cmocka_unit_test(yields_of_an_ended_process_are_counted_as_abandoned),
        cmocka_unit_test(yields_of_a_failed_step_are_not_counted),
        cmocka_unit_test(each_sample_measures_the_queue_wait_of_one_process_that_a_step_wakes),
        cmocka_unit_test(a_process_with_a_sampled_wait_has_the_idle_word_of_no_worker),
        cmocka_unit_test(a_queue_wait_that_ended_on_another_worker_is_not_counted_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
