/* balance_test.c - counters add up, and references are returned exactly once. After a random run of many processes
 * every figure of filch_stats is compared with the test's own count. Another test checks the references that spawns by
 * yield hold. */
#include "api/fixture.h"

enum { CMD_AT_ONCE = FILCH_CMD_USER, CMD_LATER, CMD_NEVER, CMD_TWICE, CMD_FAILS, CMD_UNKNOWN, PROCESSES = 200 };

static fixture w;

/* ---- a random run, and the test's own counts of what happens in it ---- */

static struct {
    uint64_t       draws; /* state of the test's random generator */
    uint64_t       spawned, ended, failed, sent, undelivered, yields, late, steps;
    filch_receiver later[4096], never[4096];
    size_t         later_count, never_count;
} mine;

static uint32_t draw(uint32_t below)
{
    mine.draws = mine.draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(mine.draws >> 33) % below;
}

static filch_err at_once(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    return filch_complete(receiver, tag, filch_int(1), FILCH_OK);
}

static filch_err later(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    if (mine.later_count == COUNT_OF(mine.later)) return FILCH_EUSER;
    mine.later[mine.later_count++] = receiver;
    return FILCH_OK;
}

static filch_err never(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag, (void)receiver;
    return FILCH_OK;
}

static filch_err twice(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    (void)!filch_complete(receiver, tag, filch_int(1), FILCH_OK);
    (void)!filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    mine.late++;
    return FILCH_OK;
}

static filch_err fails(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag, (void)receiver;
    return FILCH_EUSER + 1;
}

/* Yields up to three commands of any kind, then continues, waits, idles, ends or fails. */
static filch_err random_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    mine.steps++;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    uint32_t how = draw(8), many = draw(4);
    if (how == 0) return FILCH_EUSER + 2; /* the step fails before it makes a yield */
    for (uint32_t i = 0; i < many; i++) {
        uint32_t command = CMD_AT_ONCE + draw(6);
        ok(command == CMD_UNKNOWN && draw(2) ? filch_yield_sleep(out, i, draw(2) ? 1 : FILCH_SECONDS(3600))
                                             : filch_yield(out, command, i, filch_none()));
    }
    mine.yields += many;
    if (how == 1) return filch_done(out, filch_none());
    if (how == 2 && many > 0) return filch_wait(out);
    return how == 3 ? filch_continue(out) : filch_idle(out);
}

static const filch_type random_type = { .name = "life", .step = random_step };

static void on_end(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    mine.ended++;
    mine.failed += error != FILCH_OK;
}

static void begin(int32_t workers)
{
    static const struct {
        uint32_t         id;
        filch_handler_fn handler;
    } table[] = {
        { CMD_AT_ONCE, at_once }, { CMD_LATER, later }, { CMD_NEVER, never }, { CMD_TWICE, twice }, { CMD_FAILS, fails }
    };
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    for (size_t i = 0; i < COUNT_OF(table); i++) ok(filch_registry_add(registry, table[i].id, table[i].handler, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    memset(&mine, 0, sizeof mine);
    fixture_begin_with(&w, workers, opt);
    filch_registry_destroy(registry);
}

/* Checks the statistics of the scheduler against the test's own counts. Called while no process runs. The yields that
 * were made must equal the sum of those that are completed, those given up because their process ended, and those
 * outstanding. */
static void adds_up(void)
{
    filch_stats stats = fixture_stats(&w);
    same(stats.spawned, mine.spawned);
    same(stats.ended, mine.ended);
    same(stats.failed, mine.failed);
    same(stats.alive, mine.spawned - mine.ended);
    same(stats.steps, mine.steps);
    same(stats.yields, mine.yields);
    same(stats.sent, mine.sent);
    assert_true(stats.completions + stats.abandoned <= stats.yields);
    if (stats.alive == 0) same(stats.completions + stats.abandoned, stats.yields);
}

static void act_on_one(filch_pid *pids)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = on_end;
    uint32_t   i = draw(PROCESSES);
    filch_info info = { .size = sizeof info };
    bool       alive = pids[i].serial != 0 && filch_inspect(w.sched, pids[i], &info) == FILCH_OK;
    if (!alive) {
        ok(filch_spawn(w.sched, &random_type, &opt, &pids[i]));
        mine.spawned++;
    } else if (draw(4) == 0) {
        ok(filch_terminate(w.sched, pids[i]));
    } else {
        ok(filch_send(w.sched, pids[i], filch_int(1)));
        mine.sent++;
    }
    if (mine.later_count > 0 && draw(2) == 0) {
        filch_receiver receiver = mine.later[--mine.later_count];
        /* filch_complete() fails if the process of `receiver` has ended */
        (void)!filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK);
    }
}

TEST(every_yield_is_completed_or_abandoned_and_all_statistics_are_exact)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static filch_pid pids[PROCESSES];
        memset(pids, 0, sizeof pids);
        begin(FILCH_NO_WORKERS);
        mine.draws = seed;
        for (int i = 0; i < 500; i++) {
            act_on_one(pids);
            fixture_tick(&w);
            adds_up();
        }
        for (int i = 0; i < PROCESSES; i++) (void)!filch_terminate(w.sched, pids[i]);
        fixture_tick(&w);
        same(fixture_stats(&w).alive, 0);
        adds_up();
        assert_true(fixture_stats(&w).abandoned > 0 && fixture_stats(&w).late_completions >= mine.late);
        fixture_end(&w);
    }
}

TEST(each_message_to_an_ended_process_is_counted_as_undelivered)
{
    begin(FILCH_NO_WORKERS);
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_idle);
    fixture_tick(&w);
    filch_stats before = fixture_stats(&w);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    same(fixture_stats(&w).late_completions, before.late_completions);
    for (uint64_t i = 1; i <= 3; i++) {
        same(filch_send(w.sched, a.pid, filch_none()), FILCH_EDEAD);
        same(fixture_stats(&w).undelivered, before.undelivered + i);
    }
    fixture_end(&w);
}

/* ---- references ---- */

static int freed;

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    freed++;
}

typedef struct spawn_job {
    filch_values *values;
    bool          exec, twice, fails;
    int           answers;
    int64_t       seen; /* number of children that found the inherited value */
    actor         child;
} spawn_job;

static spawn_job job;

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    const filch_data *value = filch_ctx_value(filch_out_ctx(out), "treasure");
    job.seen += filch_size(value) == 100;
    return filch_done(out, filch_none());
}

static const filch_type child = { .name = "child", .step = child_step };

static filch_err child_refuses(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method, (void)args;
    return FILCH_EUSER;
}

static const filch_type stillborn = { .name = "stillborn", .init = child_refuses, .step = child_step };

static filch_err parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.values = job.values;
    for (size_t i = 0; i < count; i++) job.answers += events[i].type == FILCH_EVENT_YIELD;
    int wanted = job.twice ? 2 : 1;
    if (job.answers == wanted) return filch_done(out, filch_none());
    if (count > 0) return filch_wait(out);
    for (int i = 0; i < wanted; i++) {
        const filch_type *type = job.fails ? &stillborn : &child;
        ok(job.exec ? filch_yield_exec(out, 1, type, &opt) : filch_yield_spawn(out, 1, type, &opt));
    }
    return filch_wait(out);
}

static const filch_type parent = { .name = "parent", .step = parent_step };

TEST(a_yielded_spawn_drops_its_reference_to_the_values_once)
{
    for (int how = 0; how < 8; how++) {
        char *treasure = malloc(100);
        memset(treasure, 1, 100);
        job = (spawn_job){ .exec = (how & 1) != 0, .twice = (how & 2) != 0, .fails = (how & 4) != 0 };
        freed = 0;
        begin(FILCH_NO_WORKERS);
        ok(filch_values_create(NULL, "treasure", filch_move(treasure, 100, count_free), &job.values));
        ok(filch_spawn(w.sched, &parent, NULL, NULL));
        UNTIL(&w, fixture_stats(&w).alive == 0);
        same(job.answers, job.twice ? 2 : 1);
        same(job.seen, job.fails ? 0 : job.answers);
        same(freed, 0); /* `job.values` still holds a reference */
        filch_values_drop(job.values);
        same(freed, 1);
        fixture_end(&w);
    }
}

TEST(values_are_freed_if_the_process_that_would_spawn_is_killed_first)
{
    char *treasure = malloc(100);
    memset(treasure, 1, 100);
    job = (spawn_job){ .exec = false };
    freed = 0;
    begin(FILCH_NO_WORKERS);
    ok(filch_values_create(NULL, "treasure", filch_move(treasure, 100, count_free), &job.values));
    filch_pid pid;
    ok(filch_spawn(w.sched, &parent, NULL, &pid));
    /* terminates the process before its first step, in which it would yield the spawn */
    ok(filch_terminate(w.sched, pid));
    UNTIL(&w, fixture_stats(&w).alive == 0);
    filch_values_drop(job.values);
    same(freed, 1);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_yield_is_completed_or_abandoned_and_all_statistics_are_exact),
        cmocka_unit_test(each_message_to_an_ended_process_is_counted_as_undelivered),
        cmocka_unit_test(a_yielded_spawn_drops_its_reference_to_the_values_once),
        cmocka_unit_test(values_are_freed_if_the_process_that_would_spawn_is_killed_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
