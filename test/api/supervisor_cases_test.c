/* supervisor_cases_test.c - which children are restarted after they were stopped because of a sibling, how much time a
 * child and a subtree have to end, that jitter spreads restarts, and the boundary of each default. Runs in virtual
 * time. */
#include "api/child_log.h"

/* ---- restart types: which children are restarted ---- */

static const filch_child mixed[] = {
    { .id = "a", .type = &child_type, .options = ARGS(0) },
    { .id = "b", .type = &child_type, .options = ARGS(1), .restart = FILCH_TRANSIENT },
    { .id = "c", .type = &child_type, .options = ARGS(2) },
};

static void returns_with(uint32_t strategy)
{
    const filch_supervisor spec = { .strategy = strategy, .children = mixed, .child_count = 3 };
    fixture                w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(3), "-a -c -b +a +b +c");
    send_child(&w, 1, 0); /* child b ends without an error, so it is not restarted */
    assert_string_equal(child_log_from(9), "-b");
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(10), "-a -c +a +c");
    fixture_end(&w);
}

TEST(a_transient_child_stopped_with_its_siblings_is_restarted)
{
    returns_with(FILCH_ONE_FOR_ALL);
    returns_with(FILCH_REST_FOR_ONE);
}

/* ---- simulated runs in which a supervisor is cancelled after ten seconds of virtual time ---- */

static filch_pid root;

static void cancel_root(filch_sched *sched, void *arg)
{
    (void)arg;
    (void)!filch_cancel(sched, root);
}

static filch_err cancelled_scenario(filch_sched *sched, void *user)
{
    root = supervise(sched, user);
    return filch_sim_later(sched, FILCH_SECONDS(10), cancel_root, NULL);
}

static void run_cancelled(const filch_supervisor *spec)
{
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    opt.time_max_ns = FILCH_SECONDS(3600);
    ok(filch_sim_run(&opt, cancelled_scenario, (void *)(uintptr_t)spec, &report));
    if (report.verdict != FILCH_SIM_OK) fail_msg("%s", report.text);
    same(child_log.exit_count, 1);
    same(child_log.gone, FILCH_OK);
    filch_sim_report_free(&report);
}

/* Returns the time of entry `nth` of the log, counted from the cancel of the supervisor. */
static uint64_t at_ns(size_t nth)
{
    return child_log.times_ns[nth] - FILCH_SECONDS(10);
}

#define WITHIN(ns, least) assert_true((ns) >= (least) && (ns) < (least) + FILCH_SECONDS(1))

TEST(a_child_without_a_shutdown_time_has_five_seconds_to_end)
{
    static const filch_child      child_specs[] = { { .id = "b", .type = &child_type, .options = ARGS(4) } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 1 };
    run_cancelled(&spec);
    assert_string_equal(child_log_from(0), "+b -b");
    WITHIN(at_ns(1), FILCH_SECONDS(5));
}

TEST(a_nested_supervisor_has_the_time_its_children_need_to_end)
{
    static const filch_child low_specs[] = {
        { .id = "a", .type = &child_type, .options = ARGS(0) },
        { .id = "b", .type = &child_type, .options = ARGS(4), .stop_ns = FILCH_SECONDS(60) }
    };
    static const filch_supervisor low = { .children = low_specs, .child_count = 2 };
    static const filch_child      child_specs[] = { { .id = "c", .type = &child_type, .options = ARGS(2) },
                                                    { .id = "low", .supervisor = &low } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 2 };
    run_cancelled(&spec);
    assert_string_equal(child_log_from(0),
                        /* child b, which ignores a cancel, was killed after its 60 s; then a and c ended */
                        "+c +a +b -b -a -c");
    WITHIN(at_ns(3), FILCH_SECONDS(60));
    WITHIN(at_ns(4), FILCH_SECONDS(60));
}

TEST(a_nested_supervisor_has_no_more_than_its_own_shutdown_time)
{
    static const filch_child low_specs[] = {
        { .id = "b", .type = &child_type, .options = ARGS(4), .stop_ns = FILCH_SECONDS(60) }
    };
    static const filch_supervisor low = { .children = low_specs, .child_count = 1 };
    static const filch_child      child_specs[] = { { .id = "low", .supervisor = &low, .stop_ns = FILCH_SECONDS(7) } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 1 };
    run_cancelled(&spec);
    assert_string_equal(child_log_from(0), "+b -b");
    WITHIN(at_ns(1), FILCH_SECONDS(7));
}

/* ---- jitter ---- */

enum { MANY = 16 };

static filch_spawn_options many_options[MANY];
static filch_child         many_specs[MANY];
static char                many_ids[MANY][4];

static void fail_all(filch_sched *sched, void *arg)
{
    (void)arg;
    for (int i = 0; i < MANY; i++) (void)!filch_send(sched, child_log.pids[i], filch_int(FAILURE));
}

static filch_err together_scenario(filch_sched *sched, void *user)
{
    (void)supervise(sched, user);
    return filch_sim_later(sched, FILCH_SECONDS(1), fail_all, NULL);
}

/* Lets all children fail at once and measures how long each waits for its restart. */
static void waits_of(uint16_t jitter, uint64_t waits[MANY])
{
    for (int i = 0; i < MANY; i++) {
        many_options[i] = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
        many_options[i].args = filch_int(i);
        snprintf(many_ids[i], sizeof many_ids[i], "k%d", i);
        many_specs[i] = (filch_child){ .id = many_ids[i], .type = &child_type, .options = &many_options[i] };
    }
    const filch_supervisor spec = {
        .children = many_specs, .child_count = MANY, .intensity = 100, .backoff_ns = FILCH_SECONDS(10), .jitter = jitter
    };
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    opt.time_max_ns = FILCH_SECONDS(60);
    ok(filch_sim_run(&opt, together_scenario, (void *)(uintptr_t)&spec, &report));
    filch_sim_report_free(&report);
    for (int i = 0; i < MANY; i++) {
        uint64_t down = 0;
        waits[i] = 0;
        for (size_t n = 0; n < child_log.count; n++) {
            if (child_log.entries[n][1] != 'a' + i) continue;
            if (child_log.entries[n][0] == '-' && down == 0) down = child_log.times_ns[n];
            if (child_log.entries[n][0] == '+' && down != 0 && waits[i] == 0) waits[i] = child_log.times_ns[n] - down;
        }
    }
}

TEST(children_that_fail_together_are_restarted_at_different_times)
{
    uint64_t waits[MANY], least = UINT64_MAX, most = 0;
    waits_of(1000, waits); /* waits between 5 s and 15 s */
    for (int i = 0; i < MANY; i++) {
        assert_true(waits[i] >= FILCH_SECONDS(5) && waits[i] <= FILCH_SECONDS(15) + FILCH_MILLISECONDS(100));
        if (waits[i] < least) least = waits[i];
        if (waits[i] > most) most = waits[i];
        for (int k = 0; k < i; k++) {
            uint64_t apart = waits[i] > waits[k] ? waits[i] - waits[k] : waits[k] - waits[i];
            assert_true(apart > FILCH_MILLISECONDS(1));
        }
    }
    assert_true(least < FILCH_SECONDS(8) && most > FILCH_SECONDS(12));
}

TEST(without_jitter_children_are_restarted_together)
{
    uint64_t waits[MANY];
    waits_of(0, waits);
    for (int i = 0; i < MANY; i++) WITHIN(waits[i], FILCH_SECONDS(10));
}

TEST(a_small_jitter_changes_the_back_off_a_little)
{
    uint64_t waits[MANY];
    waits_of(10, waits); /* one percent: 9.95 s to 10.05 s */
    for (int i = 0; i < MANY; i++) {
        assert_true(waits[i] >= FILCH_MILLISECONDS(9950) && waits[i] < FILCH_MILLISECONDS(10150));
    }
}

/* ---- default values of a supervisor, tested at their boundaries ---- */

typedef struct failing {
    filch_supervisor spec;
    uint32_t         at_ms[8]; /* virtual times in ms at which child `a` is made to fail; 0: end of the list */
} failing;

static void fail_a(filch_sched *sched, void *arg)
{
    (void)arg;
    (void)!filch_send(sched, child_log.pids[0], filch_int(FAILURE));
}

static filch_err failing_scenario(filch_sched *sched, void *user)
{
    const failing *how = user;
    (void)supervise(sched, &how->spec);
    for (size_t i = 0; i < COUNT_OF(how->at_ms) && how->at_ms[i] != 0; i++) {
        if (filch_sim_later(sched, FILCH_MILLISECONDS(how->at_ms[i]), fail_a, NULL) != FILCH_OK) return FILCH_ENOMEM;
    }
    return FILCH_OK;
}

static void run_failing(failing *how)
{
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    opt.time_max_ns = FILCH_SECONDS(600);
    how->spec.children = three;
    how->spec.child_count = 1;
    ok(filch_sim_run(&opt, failing_scenario, how, &report));
    filch_sim_report_free(&report);
}

TEST(three_restarts_in_five_seconds_are_allowed_and_a_fourth_is_not)
{
    /* the fourth failure comes 5.1 s after the first, so only three failures are within five seconds */
    failing few = { .at_ms = { 1000, 2000, 3000, 6100 } };
    run_failing(&few);
    assert_string_equal(child_log_from(0), "+a -a +a -a +a -a +a -a +a -a");
    assert_true(child_log.gone != FILCH_ELIMIT);
    failing many = { .at_ms = { 1000, 2000, 3000, 5900 } };
    run_failing(&many);
    assert_string_equal(child_log_from(0), "+a -a +a -a +a -a +a -a");
    same(child_log.gone, FILCH_ELIMIT);
}

TEST(a_back_off_doubles_up_to_half_a_minute_and_five_seconds_reset_it)
{
    /* The child runs for 1 s, 1 s, 4 s and 4 s, which are too short to reset the back-off, and then for 16 s, which
     * resets it. */
    failing how = { .spec = { .intensity = 100, .backoff_ns = FILCH_SECONDS(8) },
                    .at_ms = { 1000, 10000, 30000, 64000, 110000 } };
    run_failing(&how);
    static const uint64_t expected_s[] = { 8, 16, 30, 30, 8 };
    for (size_t i = 0; i < COUNT_OF(expected_s); i++) {
        uint64_t wait = child_log.times_ns[2 + 2 * i] - child_log.times_ns[1 + 2 * i];
        WITHIN(wait, FILCH_SECONDS(expected_s[i]));
    }
}

/* ---- what is refused ---- */

TEST(options_of_size_0_and_args_of_all_memory_have_errors_of_their_own)
{
    static const filch_supervisor spec = { .children = three, .child_count = 1 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid                     pid;
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t size = 0; size < sizeof opt.size; size++) {
        opt.size = size;
        same(filch_supervise(w.sched, &spec, &opt, &pid), FILCH_EINVAL);
    }
    pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    opt = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    const filch_child late = { .id = "late", .type = &child_type, .options = &opt };
    fli_store_rlx(&w.deny, true); /* allocations fail, as they would for a size that no machine has */
    opt.args = filch_bytes("x", SIZE_MAX / 2);
    same(filch_child_start(w.sched, pid, &late), FILCH_ENOMEM);
    opt.args = filch_bytes("x", SIZE_MAX / 2 + 1);
    same(filch_child_start(w.sched, pid, &late), FILCH_ETOOBIG);
    fli_store_rlx(&w.deny, false);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transient_child_stopped_with_its_siblings_is_restarted),
        cmocka_unit_test(a_child_without_a_shutdown_time_has_five_seconds_to_end),
        cmocka_unit_test(a_nested_supervisor_has_the_time_its_children_need_to_end),
        cmocka_unit_test(a_nested_supervisor_has_no_more_than_its_own_shutdown_time),
        cmocka_unit_test(children_that_fail_together_are_restarted_at_different_times),
        cmocka_unit_test(without_jitter_children_are_restarted_together),
        cmocka_unit_test(a_small_jitter_changes_the_back_off_a_little),
        cmocka_unit_test(three_restarts_in_five_seconds_are_allowed_and_a_fourth_is_not),
        cmocka_unit_test(options_of_size_0_and_args_of_all_memory_have_errors_of_their_own),
        cmocka_unit_test(a_back_off_doubles_up_to_half_a_minute_and_five_seconds_reset_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
