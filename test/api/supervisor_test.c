/* supervisor_test.c - supervisors: which children are restarted, in which order, how often, and when the supervisor
 * gives up. Back-offs are tested in virtual time (filch_sim_run). Faults at random times are in
 * test/stress/supervisor_storm.c. */
#include "api/child_log.h"

static void fails_with(uint32_t strategy, const char *expected)
{
    const filch_supervisor spec = { .strategy = strategy, .children = three, .child_count = 3 };
    fixture                w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a +b +c");
    send_child(&w, 1, FAILURE);
    assert_string_equal(child_log_from(3), expected);
    same(child_log.alive, 3);
    size_t before = child_log.count;
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(before), "-c -b -a"); /* the supervisor stops its children in reverse order */
    same(child_log.exit_count, 1);
    same(child_log.gone, FILCH_OK);
    fixture_end(&w);
}

TEST(one_for_one_restarts_the_child_that_ended)
{
    fails_with(FILCH_ONE_FOR_ONE, "-b +b");
}

TEST(one_for_all_stops_the_others_in_reverse_and_starts_all_in_order)
{
    fails_with(FILCH_ONE_FOR_ALL, "-b -c -a +a +b +c");
}

TEST(rest_for_one_restarts_the_children_after_the_failed_one)
{
    fails_with(FILCH_REST_FOR_ONE, "-b -c +b +c");
}

TEST(permanent_transient_and_temporary_children_restart_as_documented)
{
    static const filch_child child_specs[] = {
        { .id = "a", .type = &child_type, .options = ARGS(0), .restart = FILCH_PERMANENT },
        { .id = "b", .type = &child_type, .options = ARGS(1), .restart = FILCH_TRANSIENT },
        { .id = "c", .type = &child_type, .options = ARGS(2), .restart = FILCH_TEMPORARY },
    };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 3, .intensity = 10 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    send_child(&w, 0, 0);
    send_child(&w, 0, FAILURE);
    send_child(&w, 1, FAILURE);
    send_child(&w, 1, 0);
    send_child(&w, 2, FAILURE);
    assert_string_equal(child_log_from(3), "-a +a -a +a -b +b -b -c");
    fixture_end(&w);
}

TEST(a_temporary_child_stopped_with_its_siblings_is_not_restarted)
{
    static const filch_child child_specs[] = {
        { .id = "a", .type = &child_type, .options = ARGS(0) },
        { .id = "b", .type = &child_type, .options = ARGS(1), .restart = FILCH_TEMPORARY },
        { .id = "c", .type = &child_type, .options = ARGS(2) },
    };
    static const filch_supervisor all = { .strategy = FILCH_ONE_FOR_ALL, .children = child_specs, .child_count = 3 };
    static const filch_supervisor rest = { .strategy = FILCH_REST_FOR_ONE, .children = child_specs, .child_count = 3 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &all);
    fixture_tick(&w);
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(3), "-a -c -b +a +c");
    /* child c fails; the temporary child b was stopped before and is not in the list, so it is not restarted */
    send_child(&w, 2, FAILURE);
    assert_string_equal(child_log_from(8), "-c -a +a +c");
    (void)supervise(w.sched, &rest);
    fixture_tick(&w);
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(3), "-a -c -b +a +c");
    fixture_end(&w);
}

TEST(a_transient_child_that_ends_before_its_stop_is_not_restarted)
{
    static const filch_child child_specs[] = {
        { .id = "a", .type = &child_type, .options = ARGS(0), .restart = FILCH_TRANSIENT },
        { .id = "c", .type = &child_type, .options = ARGS(2) },
        { .id = "b", .type = &child_type, .options = ARGS(4) }, /* child b ignores a cancel */
    };
    static const filch_supervisor spec = { .strategy = FILCH_ONE_FOR_ALL, .children = child_specs, .child_count = 3 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    /* child c fails; the supervisor stops child b, which ignores the cancel, and would stop child a after that */
    send_child(&w, 2, FAILURE);
    send_child(&w, 0, 0);
    send_child(&w, 1, 0);
    assert_string_equal(child_log_from(3), "-c -a -b +c +b");
    fixture_end(&w);
}

TEST(a_restart_over_the_limit_ends_the_supervisor_and_its_children)
{
    static const filch_supervisor spec = { .children = three, .child_count = 3, .intensity = 2 };
    static const filch_supervisor none = { .children = three, .child_count = 3, .intensity = FILCH_NO_RESTARTS };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    for (int i = 0; i < 3; i++) send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(3), "-a +a -a +a -a -c -b");
    same(child_log.gone, FILCH_ELIMIT);
    assert_non_null(strstr(child_log.end_text, "too many restarts, the last of '"));
    same(fixture_stats(&w).alive, 0);
    (void)supervise(w.sched, &none);
    fixture_tick(&w);
    send_child(&w, 2, FAILURE);
    assert_string_equal(child_log_from(3), "-c -b -a");
    same(child_log.gone, FILCH_ELIMIT);
    fixture_end(&w);
}

TEST(a_child_that_cannot_start_fails_the_start_of_the_supervisor)
{
    static const filch_supervisor spec = { .children = three, .child_count = 3 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    child_log.refuse[2] = 1;
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a +b -b -a");
    same(child_log.gone, FAILURE);
    /* A restart that fails is repeated, as often as the intensity allows. */
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    child_log.refuse[1] = 2;
    send_child(&w, 1, FAILURE);
    assert_string_equal(child_log_from(0), "+a +b +c -b +b");
    same(child_log.exit_count, 0);
    child_log.refuse[1] = 100;
    send_child(&w, 1, FAILURE);
    same(child_log.gone, FILCH_ELIMIT);
    same(child_log.alive, 0);
    fixture_end(&w);
}

TEST(a_name_is_free_again_for_each_start)
{
    filch_spawn_options named = FILCH_SPAWN_OPTIONS_INIT;
    named.args = filch_int(0);
    named.name = "the one";
    const filch_child      child_specs[] = { { .id = "a", .type = &child_type, .options = &named } };
    const filch_supervisor spec = { .children = child_specs, .child_count = 1, .intensity = 1000 };
    fixture                w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    for (int i = 0; i < 100; i++) {
        ok(filch_send_name(w.sched, "the one", filch_int(FAILURE)));
        fixture_tick(&w);
    }
    same(child_log.count, 201);
    same(child_log.exit_count, 0);
    fixture_end(&w);
}

/* ---- in virtual time ---- */

static const filch_supervisor slow = { .children = three,
                                       .child_count = 1,
                                       .intensity = 100,
                                       .period_ns = FILCH_SECONDS(1000),
                                       .backoff_ns = FILCH_MILLISECONDS(100),
                                       .backoff_percent = 300,
                                       .backoff_max_ns = FILCH_SECONDS(2),
                                       .stable_ns = FILCH_SECONDS(60) };

static void fail_a(filch_sched *sched, void *arg)
{
    (void)arg;
    (void)!filch_send(sched, child_log.pids[0], filch_int(FAILURE));
}

static filch_err slow_scenario(filch_sched *sched, void *user)
{
    (void)supervise(sched, user);
    /* The child fails six times, each time soon after its restart, and a seventh time after a stable period. */
    static const uint32_t at_ms[] = { 1000, 2000, 3000, 5000, 8000, 11000, 90000 };
    for (size_t i = 0; i < COUNT_OF(at_ms); i++) {
        if (filch_sim_later(sched, FILCH_MILLISECONDS(at_ms[i]), fail_a, NULL) != FILCH_OK) return FILCH_ENOMEM;
    }
    return FILCH_OK;
}

/* Returns the time between end number `nth` in the log and the start that follows it. */
static uint64_t waited_ns(size_t nth)
{
    return child_log.times_ns[2 + 2 * nth] - child_log.times_ns[1 + 2 * nth];
}

TEST(back_off_grows_by_its_factor_to_its_cap_and_a_stable_time_resets_it)
{
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    opt.seed = 5;
    opt.sched = &sched;
    opt.time_max_ns = FILCH_SECONDS(200);
    ok(filch_sim_run(&opt, slow_scenario, (void *)(uintptr_t)&slow, &report));
    same(report.verdict, FILCH_SIM_OK);
    static const uint64_t expected_ms[] = { 100, 300, 900, 2000, 2000, 2000, 100 };
    assert_true(child_log.count >= 15);
    for (size_t i = 0; i < COUNT_OF(expected_ms); i++) {
        uint64_t wait_ns = waited_ns(i), least = FILCH_MILLISECONDS(expected_ms[i]);
        assert_true(wait_ns >= least && wait_ns < least + least / 10 + FILCH_MILLISECONDS(5));
    }
    filch_sim_report_free(&report);
}

TEST(jitter_stays_within_its_share_and_is_the_same_for_the_same_seed)
{
    filch_supervisor jittery = slow;
    uint64_t         first[7];
    bool             any = false;
    jittery.jitter = 500;
    for (int run = 0; run < 2; run++) {
        filch_sim_report  report = FILCH_SIM_REPORT_INIT;
        filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
        opt.seed = 9;
        opt.time_max_ns = FILCH_SECONDS(200);
        ok(filch_sim_run(&opt, slow_scenario, &jittery, &report));
        static const uint64_t middle_ms[] = { 100, 300, 900, 2000, 2000, 2000, 100 };
        for (size_t i = 0; i < 7; i++) {
            uint64_t wait_ns = waited_ns(i), middle = FILCH_MILLISECONDS(middle_ms[i]);
            assert_true(wait_ns >= middle - middle / 4 && wait_ns <= middle + middle / 4 + FILCH_MILLISECONDS(50));
            any = any || wait_ns > middle + middle / 20 || wait_ns < middle - middle / 20;
            if (run == 0) first[i] = wait_ns;
            else same(first[i], wait_ns);
        }
        filch_sim_report_free(&report);
    }
    assert_true(any);
}

static const filch_child stubborn_specs[] = {
    { .id = "a", .type = &child_type, .options = ARGS(0) },
    { .id = "b", .type = &child_type, .options = ARGS(4), .stop_ns = FILCH_SECONDS(3) },
    { .id = "c", .type = &child_type, .options = ARGS(2) },
};
static const filch_supervisor stubborn = { .children = stubborn_specs, .child_count = 3 };
static filch_pid              stubborn_pid;

static void cancel_it(filch_sched *sched, void *arg)
{
    (void)arg;
    (void)!filch_cancel(sched, stubborn_pid);
}

static filch_err stubborn_scenario(filch_sched *sched, void *user)
{
    stubborn_pid = supervise(sched, user);
    return filch_sim_later(sched, FILCH_SECONDS(10), cancel_it, NULL);
}

TEST(a_child_that_does_not_end_is_forced_at_its_deadline)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(NULL, stubborn_scenario, (void *)(uintptr_t)&stubborn, &report));
    same(report.verdict, FILCH_SIM_OK);
    assert_string_equal(child_log_from(3), "-c -b -a");
    uint64_t took_ns = child_log.times_ns[4] - child_log.times_ns[3];
    assert_true(took_ns >= FILCH_SECONDS(3) && took_ns < FILCH_SECONDS(4));
    same(child_log.gone, FILCH_OK);
    filch_sim_report_free(&report);
}

/* ---- trees ---- */

static const filch_child inner_specs[] = {
    { .id = "b", .type = &child_type, .options = ARGS(1) },
    { .id = "c", .type = &child_type, .options = ARGS(2) },
};
static const filch_supervisor inner = { .children = inner_specs, .child_count = 2, .intensity = 1 };
static const filch_child      outer_specs[] = {
         { .id = "a", .type = &child_type, .options = ARGS(0) },
         { .id = "inner", .supervisor = &inner },
         { .id = "d", .type = &child_type, .options = ARGS(3) },
};
static const filch_supervisor outer = { .strategy = FILCH_REST_FOR_ONE, .children = outer_specs, .child_count = 3 };

TEST(a_subtree_that_gives_up_is_restarted_by_its_supervisor)
{
    fixture w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &outer);
    fixture_tick(&w);
    /* each child starts when all children before it have started, including whole subtrees */
    assert_string_equal(child_log_from(0), "+a +b +c +d");
    size_t before = child_log.count;
    send_child(&w, 2, FAILURE);
    assert_string_equal(child_log_from(before), "-c +c");
    before = child_log.count;
    /* this failure exceeds the limit of the subtree: the subtree and all children after it are restarted */
    send_child(&w, 2, FAILURE);
    assert_string_equal(child_log_from(before), "-c -b -d +b +c +d");
    before = child_log.count;
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(before), "-d -c -b -a");
    same(child_log.gone, FILCH_OK);
    fixture_end(&w);
}

TEST(a_killed_supervisor_ends_its_tree)
{
    fixture w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &outer);
    fixture_tick(&w);
    ok(filch_terminate(w.sched, pid));
    fixture_tick(&w);
    same(child_log.gone, FILCH_EKILLED);
    same(child_log.alive, 0);
    same(fixture_stats(&w).alive, 0);
    fixture_end(&w);
}

/* ---- children that are started and stopped by request ---- */

static struct {
    filch_pid   supervisor;
    filch_child child;
    int64_t     answers[8];
    filch_pid   started;
    size_t      count, listed;
    char        ids[64];
} clerk;

static filch_err play_clerk(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        const filch_data *data = &events[i].data;
        if (filch_kind_of(data) == FILCH_KIND_PID) clerk.started = filch_as_pid(data);
        if (filch_kind_of(data) == FILCH_KIND_BYTES) {
            const filch_child_info *list = filch_raw(data);
            clerk.listed = filch_size(data) / sizeof *list;
            for (size_t k = 0; k < clerk.listed; k++) strcat(clerk.ids, list[k].id);
        }
        if (filch_kind_of(data) == FILCH_KIND_INT) clerk.answers[clerk.count % 8] = filch_as_int(data);
        if (filch_kind_of(data) == FILCH_KIND_INT) clerk.count++;
    }
    switch (me->stage++) {
    case 0: me->note |= filch_child_start(sched, clerk.supervisor, &clerk.child); break;
    /* a second start of this child: the id is in use */
    case 1: me->note |= filch_child_start(sched, clerk.supervisor, &clerk.child); break;
    case 2: me->note |= filch_child_list(sched, clerk.supervisor); break;
    case 3: me->note |= filch_child_stop(sched, clerk.supervisor, "late"); break;
    case 4: me->note |= filch_child_stop(sched, clerk.supervisor, "late"); break;
    default: break;
    }
    return filch_idle(out);
}

TEST(children_are_started_and_stopped_by_request)
{
    static const filch_supervisor spec = { .children = three, .child_count = 2 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    fixture                       w;
    actor                         me = { 0 };
    memset(&clerk, 0, sizeof clerk);
    opt.args = filch_int(5);
    clerk.child = (filch_child){ .id = "late", .type = &child_type, .options = &opt };
    fixture_begin(&w, FILCH_NO_WORKERS);
    clerk.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    actor_start(&w, &me, play_clerk);
    fixture_tick(&w);
    ok(me.note);
    same(clerk.listed, 3);
    assert_string_equal(clerk.ids, "ablate");
    assert_true(same_pid(clerk.started, child_log.pids[5]));
    same(clerk.count, 3);
    same(clerk.answers[0], FILCH_EEXISTS);
    same(clerk.answers[1], FILCH_OK);
    same(clerk.answers[2], FILCH_EDEAD);
    assert_string_equal(child_log_from(0), "+a +b +f -f");
    /* A child that a foreign thread adds is restarted like the other children. */
    ok(filch_child_start(w.sched, clerk.supervisor, &clerk.child));
    fixture_tick(&w);
    send_child(&w, 5, FAILURE);
    assert_string_equal(child_log_from(4), "+f -f +f");
    /* A message that is not a request is ignored. */
    ok(filch_send(w.sched, clerk.supervisor, filch_str("hello")));
    fixture_tick(&w);
    same(child_log.exit_count, 0);
    fixture_end(&w);
}

TEST(invalid_supervisor_specs_are_refused)
{
    static const filch_child      twins[] = { { .id = "a", .type = &child_type, .options = ARGS(0) },
                                              { .id = "a", .type = &child_type, .options = ARGS(0) } };
    static const filch_child      nameless[] = { { .type = &child_type } }, typeless[] = { { .id = "a" } };
    static const filch_supervisor bad[] = {
        { .children = nameless, .child_count = 1 },
        { .children = typeless, .child_count = 1 },
        { .child_count = 1 },
        { .strategy = 3 },
        { .intensity = 10001 },
        { .jitter = 1001 },
    };
    static const filch_supervisor same_ids = { .children = twins, .child_count = 2 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(bad); i++) same(filch_supervise(w.sched, &bad[i], NULL, NULL), FILCH_EINVAL);
    same(filch_supervise(w.sched, &same_ids, NULL, NULL), FILCH_EEXISTS);
    same(filch_supervise(w.sched, NULL, NULL, NULL), FILCH_EINVAL);
    same(filch_child_start(w.sched, (filch_pid){ 0, 0 }, &typeless[0]), FILCH_EINVAL);
    same(filch_child_stop(w.sched, (filch_pid){ 0, 0 }, ""), FILCH_EINVAL);
    same(filch_child_list(NULL, (filch_pid){ 0, 0 }), FILCH_EINVAL);
    same(filch_child_await(NULL, (filch_pid){ 0, 0 }), FILCH_EINVAL);
    fixture_end(&w);
}

static int releases;

static void count_release(const filch_child *child)
{
    assert_string_equal(child->id, "late");
    releases++;
}

TEST(a_dynamic_child_is_released_once_when_it_is_removed)
{
    static const filch_supervisor spec = { .children = three, .child_count = 1 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_child late = { .id = "late", .type = &child_type, .options = &opt, .release = count_release };
    fixture     w;
    releases = 0;
    opt.args = filch_int(1);
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    ok(filch_child_start(w.sched, pid, &late));
    fixture_tick(&w);
    send_child(&w, 1, FAILURE); /* the child is restarted and stays in the list */
    same(releases, 0);
    ok(filch_child_stop(w.sched, pid, "late"));
    fixture_tick(&w);
    same(releases, 1);
    child_log.refuse[1] = 1; /* the next init of this child fails */
    ok(filch_child_start(w.sched, pid, &late));
    fixture_tick(&w);
    same(releases, 2);
    ok(filch_child_start(w.sched, pid, &late)); /* the child of this start ends when its supervisor ends */
    fixture_tick(&w);
    ok(filch_child_start(w.sched, pid, &late)); /* this start is refused, because the id is in use */
    fixture_tick(&w);
    same(releases, 3);
    ok(filch_terminate(w.sched, pid));
    fixture_tick(&w);
    same(releases, 4);
    /* the start was refused with FILCH_EDEAD: `release` is not called, and the caller still owns the args */
    same(filch_child_start(w.sched, pid, &late), FILCH_EDEAD);
    same(releases, 4);
    fixture_end(&w);
}

static filch_err play_await(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ == 0) me->note = filch_child_await(filch_out_sched(out), clerk.supervisor);
    else if (count > 0) clerk.answers[clerk.count++ % 8] = filch_as_int(&events[0].data);
    return filch_idle(out);
}

TEST(await_of_a_tree_is_answered_when_all_children_are_up)
{
    fixture w;
    actor   me = { 0 }, other = { 0 };
    memset(&clerk, 0, sizeof clerk);
    fixture_begin(&w, FILCH_NO_WORKERS);
    clerk.supervisor = supervise(w.sched, &outer);
    /* the last child of the outer supervisor fails its first start, so the supervisor ends */
    child_log.refuse[3] = 1;
    fixture_tick(&w);
    same(child_log.exit_count, 1);
    clerk.supervisor = supervise(w.sched, &outer);
    actor_start(&w, &me, play_await); /* sends its await before any child has started */
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a +b +c +d");
    same(clerk.count, 1);
    actor_start(&w, &other, play_await); /* sends its await when all children have started: answered at once */
    fixture_tick(&w);
    same(clerk.count, 2);
    same(clerk.answers[0] | clerk.answers[1] | me.note | other.note, FILCH_OK);
    fixture_end(&w);
}

/* Number of live processes of the test's own supervisor type. */
static int wrapped;

static filch_err wrap_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    wrapped++;
    return filch_supervisor_type.init(self, ctx, method, args);
}

static filch_err wrap_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    return filch_supervisor_type.step(self, events, count, out);
}

static void wrap_close(void *self)
{
    wrapped--;
    filch_supervisor_type.close(self);
}

TEST(a_subtree_may_have_a_type_that_wraps_the_supervisors)
{
    const filch_type wrap = {
        .name = "wrap", .size = filch_supervisor_type.size, .init = wrap_init, .step = wrap_step, .close = wrap_close
    };
    const filch_child      child_specs[] = { { .id = "a", .type = &child_type, .options = ARGS(0) },
                                             { .id = "inner", .supervisor = &inner, .type = &wrap },
                                             { .id = "d", .type = &child_type, .options = ARGS(3) } };
    const filch_supervisor spec = { .children = child_specs, .child_count = 3 };
    fixture                w;
    wrapped = 0;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    /* as with Filch's own supervisor type, child d starts when b and c have started */
    assert_string_equal(child_log_from(0), "+a +b +c +d");
    same(wrapped, 1);
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(4), "-d -c -b -a");
    same(wrapped, 0);
    fixture_end(&w);
}

/* ---- regression tests for bugs that users found ---- */

static filch_err play_stops(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ == 0) {
        me->note = filch_child_stop(filch_out_sched(out), clerk.supervisor, "a");
    }
    return filch_idle(out);
}

TEST(every_process_that_requested_a_stop_gets_an_answer)
{
    /* The child ignores a cancel. */
    static const filch_child      child_specs[] = { { .id = "a", .type = &child_type, .options = ARGS(4) } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 1 };
    fixture                       w;
    actor                         me = { 0 }, you = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    clerk.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    actor_start(&w, &me, play_stops);
    actor_start(&w, &you, play_stops);
    fixture_tick(&w);
    same(me.note | you.note, FILCH_OK);
    same(me.seen_count + you.seen_count, 0);
    send_child(&w, 1, 0);
    same(me.seen_count, 1);
    same(you.seen_count, 1);
    same(me.seen[0].number, FILCH_OK);
    same(you.seen[0].number, FILCH_OK);
    fixture_end(&w);
}

/* The mailbox of the upper supervisor holds one message. The mailbox is full when the lower supervisor reports that its
 * children have started. */
static void fill_upper_mailbox(uint32_t overflow)
{
    static const filch_supervisor lower = { .children = &three[1], .child_count = 1 };
    static const filch_child      child_specs[] = { { .id = "lower", .supervisor = &lower },
                                                    { .id = "a", .type = &child_type, .options = ARGS(0) } };
    static const filch_supervisor upper = { .children = child_specs, .child_count = 2 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid                     pid;
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&child_log, 0, sizeof child_log);
    opt.mailbox_max = 1;
    opt.overflow = overflow;
    ok(filch_supervise(w.sched, &upper, &opt, &pid));
    ok(filch_tick(w.sched, 1, NULL));
    /* with DROP_OLDEST the lower supervisor makes its report first, and the message below drops the report */
    if (overflow == FILCH_OVERFLOW_DROP_OLDEST) ok(filch_tick(w.sched, 1, NULL));
    ok(filch_send(w.sched, pid, filch_int(1)));
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+b +a");
    fixture_end(&w);
}

TEST(a_supervisor_with_a_full_mailbox_still_starts_all_its_children)
{
    fill_upper_mailbox(FILCH_OVERFLOW_FAIL);
    fill_upper_mailbox(FILCH_OVERFLOW_DROP_NEWEST);
    fill_upper_mailbox(FILCH_OVERFLOW_DROP_OLDEST);
}

TEST(a_list_that_is_too_large_is_answered_with_etoobig)
{
    static const filch_supervisor spec = { .children = three, .child_count = 3 };
    filch_options                 opt = FILCH_OPTIONS_INIT;
    fixture                       w;
    actor                         me = { .stage = 2 }; /* stage 2: the clerk begins with its request for a list */
    memset(&clerk, 0, sizeof clerk);
    opt.payload_max = 2 * sizeof(filch_child_info);
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    clerk.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    actor_start(&w, &me, play_clerk);
    fixture_tick(&w);
    same(clerk.answers[0], FILCH_ETOOBIG);
    same(clerk.listed, 0);
    fixture_end(&w);
}

TEST(borrowed_args_of_a_dynamic_child_still_belong_to_the_caller)
{
    static const filch_supervisor spec = { .children = three, .child_count = 1 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_child                   late = { .id = "late", .type = &child_type, .options = &opt };
    fixture                       w;
    char                         *bytes = malloc(40);
    assert_non_null(bytes);
    opt.args = filch_move(bytes, 40, NULL);
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    ok(filch_child_start(w.sched, pid, &late));
    fixture_tick(&w);
    ok(filch_terminate(w.sched, pid));
    fixture_tick(&w);
    same(filch_child_start(w.sched, pid, &late), FILCH_EDEAD);
    memset(bytes, 1, 40);
    free(bytes);
    fixture_end(&w);
}

TEST(options_of_a_child_without_their_size_are_refused)
{
    struct {
        filch_spawn_options known;
        uint64_t            later;
    } newer = { .known = { .name = "b" } };
    filch_child            one_child = { .id = "a", .type = &child_type, .options = &newer.known };
    const filch_supervisor spec = { .children = &one_child, .child_count = 1 };
    fixture                w;
    filch_pid              pid;
    fixture_begin(&w, FILCH_NO_WORKERS);
    same(filch_supervise(w.sched, &spec, NULL, NULL), FILCH_EINVAL);
    same(filch_child_start(w.sched, (filch_pid){ 0, 0 }, &one_child), FILCH_EINVAL);
    /* Options of a newer header are accepted if the fields that this version does not know are zero. */
    newer.known.size = sizeof newer;
    pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    ok(filch_whereis(w.sched, "b", &pid));
    newer.later = 1;
    same(filch_supervise(w.sched, &spec, NULL, NULL), FILCH_EINVAL);
    one_child.options = NULL;
    same(filch_supervise(w.sched, &spec, &newer.known, NULL), FILCH_EINVAL);
    newer.later = 0;
    newer.known.name = NULL;
    ok(filch_supervise(w.sched, &spec, &newer.known, NULL));
    fixture_end(&w);
}

TEST(a_name_that_stays_taken_fails_the_start_of_the_supervisor)
{
    static const filch_spawn_options opt = { .size = sizeof(filch_spawn_options), .name = "taken" };
    static const filch_child         child_specs[] = { { .id = "a", .type = &child_type, .options = &opt } };
    static const filch_supervisor    spec = { .children = child_specs, .child_count = 1 };
    fixture                          w;
    actor                            holder = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &holder, play_idle);
    ok(filch_register(w.sched, "taken", holder.pid));
    (void)supervise(w.sched, &spec);
    UNTIL(&w, child_log.exit_count == 1);
    same(child_log.gone, FILCH_EEXISTS);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_one_restarts_the_child_that_ended),
        cmocka_unit_test(one_for_all_stops_the_others_in_reverse_and_starts_all_in_order),
        cmocka_unit_test(rest_for_one_restarts_the_children_after_the_failed_one),
        cmocka_unit_test(permanent_transient_and_temporary_children_restart_as_documented),
        cmocka_unit_test(a_temporary_child_stopped_with_its_siblings_is_not_restarted),
        cmocka_unit_test(a_transient_child_that_ends_before_its_stop_is_not_restarted),
        cmocka_unit_test(a_restart_over_the_limit_ends_the_supervisor_and_its_children),
        cmocka_unit_test(a_child_that_cannot_start_fails_the_start_of_the_supervisor),
        cmocka_unit_test(a_name_is_free_again_for_each_start),
        cmocka_unit_test(back_off_grows_by_its_factor_to_its_cap_and_a_stable_time_resets_it),
        cmocka_unit_test(jitter_stays_within_its_share_and_is_the_same_for_the_same_seed),
        cmocka_unit_test(a_child_that_does_not_end_is_forced_at_its_deadline),
        cmocka_unit_test(a_subtree_that_gives_up_is_restarted_by_its_supervisor),
        cmocka_unit_test(a_killed_supervisor_ends_its_tree),
        cmocka_unit_test(children_are_started_and_stopped_by_request),
        cmocka_unit_test(invalid_supervisor_specs_are_refused),
        cmocka_unit_test(a_dynamic_child_is_released_once_when_it_is_removed),
        cmocka_unit_test(await_of_a_tree_is_answered_when_all_children_are_up),
        cmocka_unit_test(a_subtree_may_have_a_type_that_wraps_the_supervisors),
        cmocka_unit_test(every_process_that_requested_a_stop_gets_an_answer),
        cmocka_unit_test(a_supervisor_with_a_full_mailbox_still_starts_all_its_children),
        cmocka_unit_test(a_list_that_is_too_large_is_answered_with_etoobig),
        cmocka_unit_test(borrowed_args_of_a_dynamic_child_still_belong_to_the_caller),
        cmocka_unit_test(options_of_a_child_without_their_size_are_refused),
        cmocka_unit_test(a_name_that_stays_taken_fails_the_start_of_the_supervisor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
