/* supervisor_edge_test.c - edge cases of supervisors: restarts that fail, missing memory, invalid messages, unrelated
 * events, ends at the same time, back-offs that do not fit into 64 bits. */
#include "api/child_log.h"
#include "support/alloc.h"
#include "support/until.h"

/* ---- restarts that fail ---- */

TEST(one_for_all_a_failed_restart_stops_the_restarted_ones_before_a_retry)
{
    static const filch_supervisor all = {
        .strategy = FILCH_ONE_FOR_ALL, .children = three, .child_count = 3, .intensity = 10
    };
    static const filch_supervisor rest = {
        .strategy = FILCH_REST_FOR_ONE, .children = three, .child_count = 3, .intensity = 10
    };
    fixture w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &all);
    fixture_tick(&w);
    child_log.refuse[1] = 2;
    send_child(&w, 2, FAILURE);
    /* Each time child b cannot start, the supervisor stops child a, which it had restarted before b. No child runs
     * twice at the same time. */
    assert_string_equal(child_log_from(3), "-c -b -a +a -a +a -a +a +b +c");
    same(child_log.alive, 3);
    /* With rest_for_one, the children before the failed child keep running. */
    (void)supervise(w.sched, &rest);
    fixture_tick(&w);
    child_log.refuse[2] = 1;
    send_child(&w, 1, FAILURE);
    /* c refused its first start and was started again; b was started once */
    assert_string_equal(child_log_from(3), "-b -c +b +c");
    child_log.refuse[1] = 1;
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(7), "-a -c -b +a +b +c");
    fixture_end(&w);
}

TEST(one_for_all_restarts_that_keep_failing_end_the_supervisor)
{
    static const filch_supervisor all = { .strategy = FILCH_ONE_FOR_ALL, .children = three, .child_count = 3 };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &all);
    fixture_tick(&w);
    child_log.refuse[1] = 100;
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(3), "-a -c -b +a -a +a -a +a -a");
    same(child_log.gone, FILCH_ELIMIT);
    /* three starts of b failed (100 - 97): after the third, the supervisor had reached its limit of restarts */
    same(child_log.refuse[1], 97);
    same(fixture_stats(&w).alive, 0);
    fixture_end(&w);
}

TEST(options_that_became_invalid_fail_the_restart)
{
    filch_spawn_options    opt = FILCH_SPAWN_OPTIONS_INIT;
    const filch_child      child_specs[] = { { .id = "a", .type = &child_type, .options = &opt } };
    const filch_supervisor spec = { .children = child_specs, .child_count = 1 };
    fixture                w;
    opt.args = filch_int(0);
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    opt.size = 1;
    send_child(&w, 0, FAILURE);
    assert_string_equal(child_log_from(0), "+a -a");
    same(child_log.gone, FILCH_ELIMIT);
    fixture_end(&w);
}

/* ---- a stop during a start ---- */

static FLI_ATOMIC(bool) may_close;

/* An init function that returns when the scheduler stops, so that the next child cannot be started. */
static filch_err stop_waiter_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)method, (void)args;
    fli_store_rel(&may_close, true);
    uint64_t give_up_ns = fli_clock_ns() + FILCH_SECONDS(60);
    while (!filch_sched_stopping(filch_ctx_sched(ctx))) {
        if (fli_clock_ns() > give_up_ns) return FILCH_EDEADLINE;
        yield_slice();
    }
    return FILCH_OK;
}

static filch_err stop_waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(a_scheduler_that_stops_while_children_are_started_is_no_failure)
{
    static const filch_type stop_waiter = { .name = "stop_waiter", .init = stop_waiter_init, .step = stop_waiter_step };
    static const filch_child      child_specs[] = { { .id = "stop_waiter", .type = &stop_waiter },
                                                    { .id = "a", .type = &child_type, .options = ARGS(0) } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 2 };
    fixture                       w;
    fli_store_rel(&may_close, false);
    fixture_begin(&w, 1);
    (void)supervise(w.sched, &spec);
    UNTIL(&w, fli_load_acq(&may_close));
    fixture_end(&w);
    same(child_log.exit_count, 1);
    same(child_log.gone, FILCH_OK);
    same(child_log.count, 0); /* child a was never started */
}

TEST(a_child_started_while_the_supervisor_ends_is_refused)
{
    /* Child b ignores a cancel. */
    static const filch_child      child_specs[] = { { .id = "b", .type = &child_type, .options = ARGS(4) } };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 1 };
    static const filch_child      late = { .id = "late", .type = &child_type, .options = ARGS(0) };
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    ok(filch_child_start(w.sched, pid, &late));
    ok(filch_cancel(w.sched, pid)); /* a second cancel changes nothing */
    fixture_tick(&w);
    same(child_log.exit_count, 0);
    send_child(&w, 1, FAILURE);
    assert_string_equal(child_log_from(0), "+b -b");
    same(child_log.exit_count, 1);
    fixture_end(&w);
}

/* ---- requests ---- */

static struct {
    filch_pid          supervisor;
    filch_err          sent[8];
    const char        *stop;
    const filch_child *start;
    bool               list;
    filch_kind         kind[8];
    int64_t            number[8];
    size_t             size[8], answers;
} boss;

/* The process sends its requests to the supervisor and records the answers. */
static filch_err play_boss(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count && boss.answers < 8; i++, boss.answers++) {
        boss.kind[boss.answers] = filch_kind_of(&events[i].data);
        boss.number[boss.answers] = filch_as_int(&events[i].data);
        boss.size[boss.answers] = filch_size(&events[i].data);
    }
    if (me->stage++ > 0) return filch_idle(out);
    if (boss.start != NULL) me->note |= filch_child_start(sched, boss.supervisor, boss.start);
    if (boss.stop != NULL) me->note |= filch_child_stop(sched, boss.supervisor, boss.stop);
    if (boss.list) me->note |= filch_child_list(sched, boss.supervisor);
    return filch_idle(out);
}

TEST(a_list_of_no_children_is_empty_and_a_foreign_stop_gets_no_answer)
{
    static const filch_supervisor spec = { .children = three, .child_count = 1 };
    fixture                       w;
    actor                         me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&boss, 0, sizeof boss);
    boss.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    ok(filch_child_stop(w.sched, boss.supervisor, "nobody"));
    ok(filch_child_stop(w.sched, boss.supervisor, "a"));
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a -a");
    boss.list = true;
    actor_start(&w, &me, play_boss);
    fixture_tick(&w);
    ok(me.note);
    same(boss.answers, 1);
    same(boss.kind[0], FILCH_KIND_BYTES);
    same(boss.size[0], 0);
    same(child_log.exit_count, 0); /* the supervisor has not ended, although it has no children */
    fixture_end(&w);
}

TEST(a_dynamic_child_that_cannot_start_is_reported_and_removed)
{
    static const filch_supervisor spec = { .children = three, .child_count = 1 };
    static const filch_child      late = { .id = "late", .type = &child_type, .options = ARGS(3) };
    fixture                       w;
    actor                         me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&boss, 0, sizeof boss);
    boss.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    child_log.refuse[3] = 1;
    boss.start = &late;
    boss.stop = "late";
    boss.list = true;
    actor_start(&w, &me, play_boss);
    fixture_tick(&w);
    ok(me.note);
    same(boss.answers, 3);
    same(boss.number[0], FAILURE);
    same(boss.number[1], FILCH_EDEAD);
    same(boss.size[2], sizeof(filch_child_info));
    assert_string_equal(child_log_from(0), "+a");
    fixture_end(&w);
}

/* For each child, the args that it got: their kind, and their text or bytes. */
static char       args_seen[3][64];
static filch_kind args_kind[3];
static size_t     args_size[3], args_count;

static filch_err recording_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method;
    size_t n = args_count++ % 3;
    args_kind[n] = filch_kind_of(args);
    args_size[n] = filch_size(args);
    memset(args_seen[n], 0, sizeof args_seen[n]);
    memcpy(args_seen[n], filch_size(args) > 0 ? filch_raw(args) : "", filch_size(args));
    return FILCH_OK;
}

static filch_err recording_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) return FAILURE;
    }
    return filch_idle(out);
}

TEST(the_args_of_a_dynamic_child_are_the_same_at_each_start)
{
    static const filch_type recording_type = { .name = "hearing", .init = recording_init, .step = recording_step };
    static const filch_supervisor spec = { .children = three, .child_count = 1, .intensity = 100 };
    static const char             words[] = "a text that does not fit into an event";
    static char                   lent[40];
    filch_data                    shared;
    void                         *bytes = malloc(10);
    fixture                       w;
    memcpy(bytes, "0123456789", 10);
    ok(filch_share(bytes, 10, NULL, NULL, &shared));
    memset(lent, 'x', sizeof lent);
    const filch_data args[] = { filch_str(words), filch_bytes(lent, sizeof lent), shared, filch_int(7), filch_str("") };
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(args); i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        filch_child         late = { .id = "late", .type = &recording_type, .options = &opt };
        opt.args = args[i];
        opt.name = "late";
        args_count = 0;
        memset(lent, 'x', sizeof lent);
        ok(filch_child_start(w.sched, pid, &late));
        memset(lent, 'y', sizeof lent); /* the supervisor has copied the args, so the caller may overwrite them */
        opt.args = filch_none();
        fixture_tick(&w);
        opt.args = filch_none();
        for (int k = 0; k < 2; k++) {
            ok(filch_send_name(w.sched, "late", filch_none()));
            fixture_tick(&w);
        }
        same(args_count, 3);
        for (size_t k = 0; k < 3; k++) {
            same(args_kind[k], filch_kind_of(&args[i]));
            same(args_size[k], filch_size(&args[i]));
            if (i == 0) assert_string_equal(args_seen[k], words);
            if (i == 1) assert_int_equal(args_seen[k][39], 'x');
            if (i == 2) assert_memory_equal(args_seen[k], "0123456789", 10);
        }
        ok(filch_child_stop(w.sched, pid, "late"));
        fixture_tick(&w);
    }
    filch_drop(&shared);
    fixture_end(&w);
}

TEST(the_child_list_grows_beyond_its_first_capacity)
{
    static const char *const      ids[] = { "0", "1", "2",  "3",  "4",  "5",  "6",  "7",
                                            "8", "9", "10", "11", "12", "13", "14", "15" };
    static const filch_supervisor spec = { .strategy = FILCH_ONE_FOR_ONE };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        filch_child late = { .id = ids[i], .type = &child_type, .options = &opt };
        opt.args = filch_int((int64_t)i);
        ok(filch_child_start(w.sched, pid, &late));
    }
    fixture_tick(&w);
    same(child_log.alive, 16);
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(16), "-p -o -n -m -l -k -j -i -h -g -f -e -d -c -b -a");
    fixture_end(&w);
}

TEST(a_temporary_child_that_is_stopped_is_removed_once)
{
    static const filch_child child_specs[] = {
        { .id = "a", .type = &child_type, .options = ARGS(0), .restart = FILCH_TEMPORARY },
        { .id = "b", .type = &child_type, .options = ARGS(1), .restart = FILCH_TRANSIENT },
    };
    static const filch_supervisor spec = { .children = child_specs, .child_count = 2 };
    fixture                       w;
    actor                         me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&boss, 0, sizeof boss);
    boss.supervisor = supervise(w.sched, &spec);
    fixture_tick(&w);
    boss.stop = "a";
    boss.list = true;
    actor_start(&w, &me, play_boss);
    fixture_tick(&w);
    same(boss.answers, 2);
    same(boss.size[0], 2 * sizeof(filch_child_info)); /* the list came at once, while child a was still stopping */
    same(boss.number[1], FILCH_OK);
    send_child(&w, 1, 0); /* child b ends without an error; it stays in the list, as not running */
    actor again = { 0 };
    boss.answers = 0;
    boss.stop = "b";
    actor_start(&w, &again, play_boss);
    fixture_tick(&w);
    same(boss.size[0], sizeof(filch_child_info));
    same(boss.number[1], FILCH_OK);
    assert_string_equal(child_log_from(0), "+a +b -a -b");
    fixture_end(&w);
}

/* ---- invalid specs, invalid messages and unrelated events ---- */

TEST(each_invalid_child_or_supervisor_spec_is_refused)
{
    static const filch_type       stepless = { .name = "stepless" };
    static const filch_supervisor sub = { .strategy = FILCH_ONE_FOR_ONE };
    char                          longest[FILCH_CHILD_ID_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const filch_child bad[] = {
        { .type = &child_type },
        { .id = "", .type = &child_type },
        { .id = longest, .type = &child_type },
        { .id = "a", .type = &child_type, .restart = FILCH_TEMPORARY + 1 },
        { .id = "a", .type = &child_type, .spare = 1 },
        { .id = "a", .type = &stepless },
        { .id = "a" },
        { .id = "a", .type = &stepless, .supervisor = &sub },
    };
    const filch_supervisor spares = { .spare = 1 }, nothing = { .child_count = 1 };
    fixture                w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &sub);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        filch_supervisor spec = { .children = &bad[i], .child_count = 1 };
        same(filch_supervise(w.sched, &spec, NULL, NULL), FILCH_EINVAL);
        same(filch_child_start(w.sched, pid, &bad[i]), FILCH_EINVAL);
    }
    same(filch_supervise(w.sched, &spares, NULL, NULL), FILCH_EINVAL);
    same(filch_supervise(w.sched, &nothing, NULL, NULL), FILCH_EINVAL);
    same(filch_child_start(NULL, pid, &three[0]), FILCH_EINVAL);
    same(filch_child_start(w.sched, pid, NULL), FILCH_EINVAL);
    same(filch_child_stop(NULL, pid, "a"), FILCH_EINVAL);
    same(filch_child_stop(w.sched, pid, NULL), FILCH_EINVAL);
    same(filch_child_stop(w.sched, pid, longest), FILCH_EINVAL);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_child         child = { .id = "a", .type = &child_type, .options = &opt };
    opt.args = filch_bytes(NULL, 5);
    same(filch_child_start(w.sched, pid, &child), FILCH_EINVAL);
    opt.args = filch_bytes(longest, SIZE_MAX);
    same(filch_child_start(w.sched, pid, &child), FILCH_ETOOBIG);
    /* spawns a process of the supervisor type with args that are not a spec */
    opt.args = filch_int(3);
    same(filch_spawn(w.sched, &filch_supervisor_type, &opt, NULL), FILCH_EINVAL);
    opt.args = filch_ptr((void *)(uintptr_t)&sub);
    opt.method = "run";
    same(filch_spawn(w.sched, &filch_supervisor_type, &opt, NULL), FILCH_EMETHOD);
    opt.method = NULL;
    ok(filch_spawn(w.sched, &filch_supervisor_type, &opt, NULL));
    fixture_tick(&w);
    same(fixture_stats(&w).alive, 2);
    fixture_end(&w);
}

TEST(a_supervisor_ignores_unknown_messages_and_unrelated_exits)
{
    static const filch_supervisor spec = { .children = three, .child_count = 2 };
    static const char             zeros[512];
    fixture                       w;
    actor                         unrelated = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    for (size_t size = 0; size <= sizeof zeros; size += 8) ok(filch_send(w.sched, pid, filch_bytes(zeros, size)));
    ok(filch_send(w.sched, pid, filch_ptr(&w)));
    ok(filch_send(w.sched, pid, filch_int(1)));
    /* The supervisor is made to monitor an unrelated process and to watch a group, so that it gets events that do not
     * belong to its children. */
    actor_start(&w, &unrelated, play_idle);
    ok(filch_monitor(w.sched, pid, unrelated.pid, 0, NULL));
    ok(filch_watch(w.sched, "group", pid, 0));
    ok(filch_join(w.sched, "group", unrelated.pid));
    ok(filch_terminate(w.sched, unrelated.pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a +b");
    same(child_log.exit_count, 0);
    fixture_end(&w);
}

TEST(a_supervisor_with_a_failed_link_stops_its_children_and_fails)
{
    static const filch_supervisor spec = { .children = three, .child_count = 2 };
    fixture                       w;
    actor                         partner = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    actor_start(&w, &partner, play_idle);
    fixture_tick(&w);
    ok(filch_link(w.sched, pid, partner.pid));
    ok(filch_terminate(w.sched, partner.pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(2), "-b -a");
    same(child_log.gone, FILCH_ELINK);
    fixture_end(&w);
}

/* ---- supervisors in which a subtree has not started completely ---- */

TEST(a_tree_of_three_levels_is_up_when_its_lowest_level_is)
{
    static const filch_child      low_specs[] = { { .id = "a", .type = &child_type, .options = ARGS(0) } };
    static const filch_supervisor low = { .children = low_specs, .child_count = 1 };
    static const filch_child      mid_specs[] = { { .id = "low", .supervisor = &low },
                                                  { .id = "b", .type = &child_type, .options = ARGS(1) } };
    static const filch_supervisor mid = { .children = mid_specs, .child_count = 2 };
    static const filch_child      top_specs[] = { { .id = "mid", .supervisor = &mid },
                                                  { .id = "c", .type = &child_type, .options = ARGS(2) } };
    static const filch_supervisor top = { .children = top_specs, .child_count = 2 };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid                     pid;
    fixture                       w;
    memset(&child_log, 0, sizeof child_log);
    opt.on_exit = on_gone;
    /* with this mailbox, reports of children get lost; the supervisor asks a child again if its report is missing */
    opt.mailbox_max = 1;
    opt.overflow = FILCH_OVERFLOW_DROP_OLDEST;
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_supervise(w.sched, &top, &opt, &pid));
    for (int i = 0; i < 40; i++) {
        ok(filch_tick(w.sched, 1, NULL));
        (void)!filch_send(w.sched, pid, filch_int(1));
    }
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a +b +c");
    ok(filch_cancel(w.sched, pid));
    fixture_tick(&w);
    assert_string_equal(child_log_from(3), "-c -b -a");
    fixture_end(&w);
}

TEST(a_subtree_whose_child_waits_for_its_name_is_not_up)
{
    static const filch_spawn_options opt = { .size = sizeof(filch_spawn_options),
                                             .name = "taken",
                                             .args = FILCH_INT_INIT(1) };
    static const filch_child         low_specs[] = {
                { .id = "a", .type = &child_type, .options = ARGS(0), .restart = FILCH_TEMPORARY },
                { .id = "b", .type = &child_type, .options = &opt },
    };
    static const filch_supervisor low = { .children = low_specs, .child_count = 2, .intensity = 10000 };
    static const filch_child      top_specs[] = { { .id = "low", .supervisor = &low },
                                                  { .id = "c", .type = &child_type, .options = ARGS(2) } };
    static const filch_supervisor top = { .children = top_specs, .child_count = 2 };
    fixture                       w;
    actor                         holder = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &holder, play_idle);
    ok(filch_register(w.sched, "taken", holder.pid));
    (void)supervise(w.sched, &top);
    fixture_tick(&w);
    assert_string_equal(child_log_from(0), "+a");
    send_child(&w, 0, 0); /* child a ends and is not restarted, so the supervisor does not wait for it */
    assert_string_equal(child_log_from(0), "+a -a");
    ok(filch_unregister(w.sched, "taken"));
    UNTIL(&w, child_log.count == 4);
    assert_string_equal(child_log_from(0), "+a -a +b +c");
    fixture_end(&w);
}

/* ---- back-offs ---- */

typedef struct waiting {
    filch_supervisor spec;
    uint32_t         fails_at_ms[4];
    uint32_t         fails[4]; /* indices of the children that fail */
    /* number of processes spawned before the supervisor: they change its pid, and so its random numbers */
    uint32_t before;
} waiting;

static void fail_one(filch_sched *sched, void *arg)
{
    (void)!filch_send(sched, child_log.pids[*(uint32_t *)arg], filch_int(FAILURE));
}

static filch_err waiting_scenario(filch_sched *sched, void *user)
{
    waiting                *how = user;
    filch_err               err = FILCH_OK;
    static const filch_type plain = { .name = "plain", .step = stop_waiter_step };
    for (uint32_t i = 0; i < how->before; i++) err |= filch_spawn(sched, &plain, NULL, NULL);
    (void)supervise(sched, &how->spec);
    for (size_t i = 0; i < 4 && how->fails_at_ms[i] != 0; i++) {
        err |= filch_sim_later(sched, FILCH_MILLISECONDS(how->fails_at_ms[i]), fail_one, &how->fails[i]);
    }
    return err;
}

static void runs(waiting *how, uint64_t time_max_ns)
{
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    opt.time_max_ns = time_max_ns;
    ok(filch_sim_run(&opt, waiting_scenario, how, &report));
    same(report.verdict, FILCH_SIM_OK);
    filch_sim_report_free(&report);
}

static void waited(size_t nth, uint64_t least_ns)
{
    uint64_t wait_ns = child_log.times_ns[2 + 2 * nth] - child_log.times_ns[1 + 2 * nth];
    assert_true(wait_ns >= least_ns && wait_ns < least_ns + least_ns / 10);
}

TEST(a_back_off_is_never_longer_than_its_maximum)
{
    waiting how = { .spec = { .children = three, .child_count = 1, .intensity = 10, .backoff_ns = FILCH_SECONDS(10) },
                    .fails_at_ms = { 1, 20000, 60000 } };
    how.spec.backoff_max_ns = FILCH_SECONDS(2); /* this maximum is shorter than the initial back-off */
    how.spec.stable_ns = FILCH_SECONDS(1000);
    runs(&how, FILCH_SECONDS(200));
    for (size_t i = 0; i < 3; i++) waited(i, FILCH_SECONDS(2));
    how.spec.backoff_max_ns = 0; /* 0: the default, 30 s */
    runs(&how, FILCH_SECONDS(200));
    waited(0, FILCH_SECONDS(10));
    waited(1, FILCH_SECONDS(20));
    waited(2, FILCH_SECONDS(30));
}

TEST(a_back_off_of_filch_forever_with_jitter_does_not_wrap_around)
{
    /* The back-off is FILCH_FOREVER, the largest time of 64 bits. The jitter makes half of the back-offs longer, by up
     * to 2562 hours. If such a sum wrapped around, some of the twelve children (three in each of four runs) would be
     * restarted before the run ends, after 3000 hours. No child may be restarted. */
    for (uint32_t before = 0; before < 4; before++) {
        waiting how = { .spec = { .children = three, .child_count = 3, .jitter = 1 },
                        .fails_at_ms = { 1, 2, 3 },
                        .fails = { 0, 1, 2 },
                        .before = before };
        how.spec.backoff_ns = how.spec.backoff_max_ns = FILCH_FOREVER;
        runs(&how, FILCH_SECONDS(3600 * UINT64_C(3000)));
        assert_string_equal(child_log_from(0), "+a +b +c -a -b -c");
    }
}

TEST(rest_for_one_waits_for_the_back_off_of_the_later_failure)
{
    /* Child c fails at 1 s and would be restarted at 11 s. Child a fails at 6 s, so all children are restarted at 16 s,
     * none before. */
    waiting how = { .spec = { .strategy = FILCH_REST_FOR_ONE, .children = three, .child_count = 3, .intensity = 10 },
                    .fails_at_ms = { 1000, 6000 },
                    .fails = { 2, 0 } };
    how.spec.backoff_ns = FILCH_SECONDS(10);
    runs(&how, FILCH_SECONDS(60));
    /* ignores later entries of the log, which come from the end of the run */
    child_log.count = child_log.count < 9 ? child_log.count : 9;
    assert_string_equal(child_log_from(0), "+a +b +c -c -a -b +a +b +c");
    assert_true(child_log.times_ns[6] - child_log.times_ns[4] >= FILCH_SECONDS(10));
}

/* ---- memory ---- */

static const filch_child      grove_low_specs[] = { { .id = "b", .type = &child_type, .options = ARGS(1) },
                                                    { .id = "c", .type = &child_type, .options = ARGS(2) } };
static const filch_supervisor grove_low = { .children = grove_low_specs, .child_count = 2 };
static const filch_child      grove_specs[] = { { .id = "a", .type = &child_type, .options = ARGS(0) },
                                                { .id = "low", .supervisor = &grove_low } };
static const filch_supervisor grove = { .strategy = FILCH_ONE_FOR_ALL, .children = grove_specs, .child_count = 2 };

typedef struct requester {
    filch_pid supervisor;
    size_t    requests_sent, answered;
    bool      stopped; /* the child "late" was started and stopped again */
    bool      wrong;
} requester;

/* The process requests to start a child, to stop it, to list all children (with and without a tag), and to be told when
 * all are up. The supervisor must answer each request that was sent. */
static filch_err play_requester(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const char words[] = "args that do not fit into an event";
    /* static, because the supervisor uses the options as long as it lives */
    static filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    const filch_child          late = { .id = "late", .type = &child_type, .options = &opt };
    requester                 *e = me->user;
    filch_sched               *sched = filch_out_sched(out);
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        const filch_data *data = &events[i].data;
        e->answered++;
        e->stopped = e->stopped || (filch_kind_of(data) == FILCH_KIND_INT && filch_as_int(data) == FILCH_OK);
    }
    if (me->stage++ > 0) return filch_idle(out);
    opt.args = filch_bytes(words, sizeof words);
    filch_err sent[5];
    sent[0] = filch_child_start(sched, e->supervisor, &late);
    sent[1] = filch_child_list(sched, e->supervisor);
    sent[2] = filch_child_stop(sched, e->supervisor, "late");
    sent[3] = filch_child_list_tagged(sched, e->supervisor, 1);
    sent[4] = filch_child_await_tagged(sched, e->supervisor, 2);
    for (int i = 0; i < 5; i++) {
        e->requests_sent += sent[i] == FILCH_OK;
        if (sent[i] != FILCH_OK && sent[i] != FILCH_ENOMEM && sent[i] != FILCH_EDEAD) e->wrong = true;
    }
    return filch_idle(out);
}

/* Runs a tree, the requests, a failure and a stop while allocation number `nth` fails. Returns true if there were fewer
 * than `nth` allocations. */
static bool grows_without(uint64_t nth, bool and_after)
{
    test_alloc          memory = { 0 };
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    fixture             w = { .ticks = true };
    requester           e = { .requests_sent = 0 };
    actor               runner = { .user = &e, .play = play_requester };
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &memory;
    memset(&child_log, 0, sizeof child_log);
    ok(filch_sched_create(&w.sched, &opt));
    test_alloc_fail(&memory, nth, and_after);
    how.on_exit = on_gone;
    filch_err err = filch_supervise(w.sched, &grove, &how, &e.supervisor);
    assert_true(err == FILCH_OK || err == FILCH_ENOMEM);
    bool there = err == FILCH_OK;
    how.args = filch_ptr(&runner);
    if (there && filch_spawn(w.sched, &actor_type, &how, NULL) != FILCH_OK) runner.user = NULL;
    /* 300 steps at most: a child that has no memory to report its start tries again and again */
    if (and_after) ok(filch_tick(w.sched, 300, NULL));
    else fixture_tick(&w);
    if (child_log.pids[1].serial != 0) (void)!filch_send(w.sched, child_log.pids[1], filch_int(FAILURE));
    if (!and_after) fixture_tick(&w);
    bool over = atomic_load(&memory.refused) == 0;
    test_alloc_fail(&memory, 0, false);
    fixture_tick(&w);
    bool ended = child_log.exit_count > 0 && fixture_stats(&w).alive <= 1;
    if (there && !ended) /* three children run, and "late" may run too, whichever allocation failed */
        assert_in_range(child_log.alive, 3, e.stopped ? 3 : 4);
    if (ended) same(child_log.alive, 0);
    assert_true(e.answered <= e.requests_sent);
    if (there && !ended && !and_after) /* if all later allocations fail too, there may be no memory for an answer */
        same(e.answered, e.requests_sent);
    assert_false(e.wrong);
    if (over) same(e.answered, 5);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(10), NULL));
    same(child_log.alive, 0);
    test_alloc_balanced(&memory);
    return over;
}

/* ---- back-off without memory ---- */

enum { MANY = 12 };

/* Lets `fail` of 12 children fail while no allocation succeeds, and checks that no child is restarted before its
 * back-off is over. `warm`: the supervisor has delayed a restart before, so it has memory for a few sleeps (as many
 * yields as fit into the process), but not for more. */
static void backs_off_without_memory(uint32_t strategy, int fail, bool warm)
{
    static const uint64_t backoff_ns = FILCH_MILLISECONDS(150);
    filch_spawn_options   how[MANY];
    filch_child           specs[MANY];
    char                  ids[MANY][2];
    fixture               w;
    filch_supervisor      spec = { .strategy = strategy,
                                   .children = specs,
                                   .child_count = MANY,
                                   .intensity = 50,
                                   .backoff_ns = backoff_ns,
                                   .backoff_percent = 100 };
    for (int i = 0; i < MANY; i++) {
        how[i] = (filch_spawn_options){ .size = sizeof how[i], .args = filch_int(i) };
        snprintf(ids[i], sizeof ids[i], "%c", 'a' + i);
        specs[i] = (filch_child){ .id = ids[i], .type = &child_type, .options = &how[i] };
    }
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    same(child_log.alive, MANY);
    if (warm) {
        ok(filch_send(w.sched, child_log.pids[0], filch_int(FAILURE)));
        fixture_tick(&w);
        UNTIL(&w, child_log.alive == MANY);
    }
    size_t   before = child_log.count, ended = strategy == FILCH_ONE_FOR_ONE ? (size_t)fail : MANY;
    uint64_t began_ns = filch_now(w.sched);
    for (int i = 0; i < fail; i++) ok(filch_send(w.sched, child_log.pids[i], filch_int(FAILURE)));
    fli_store_rlx(&w.deny, true);
    for (int i = 0; i < 100; i++) ok(filch_tick(w.sched, 10, NULL)); /* the supervisor sleeps, or polls if it cannot */
    if (filch_now(w.sched) - began_ns < backoff_ns) same(child_log.count, before + ended);
    /* Time passes without memory: restarts that fail are repeated after another back-off, not at once. */
    while (filch_now(w.sched) - began_ns < 2 * backoff_ns) ok(filch_tick(w.sched, 10, NULL));
    same(child_log.exit_count, 0);
    fli_store_rlx(&w.deny, false);
    UNTIL(&w, child_log.alive == MANY);
    size_t starts = 0;
    for (size_t i = before; i < child_log.count; i++) {
        if (child_log.entries[i][0] != '+') continue;
        starts++;
        assert_true(child_log.times_ns[i] - began_ns >= backoff_ns);
    }
    assert_true(starts >= ended);
    same(child_log.exit_count, 0);
    fixture_end(&w);
}

TEST(a_back_off_without_memory_lasts_as_long)
{
    for (int warm = 0; warm < 2; warm++) {
        backs_off_without_memory(FILCH_ONE_FOR_ONE, 1, warm != 0);
        backs_off_without_memory(FILCH_ONE_FOR_ONE, MANY, warm != 0);
        backs_off_without_memory(FILCH_ONE_FOR_ALL, 1, warm != 0);
    }
}

TEST(a_supervisor_that_had_no_memory_for_its_back_off_sleeps_when_there_is_memory)
{
    for (uint32_t strategy = FILCH_ONE_FOR_ONE; strategy <= FILCH_REST_FOR_ONE; strategy++) {
        filch_supervisor spec = { .strategy = strategy,
                                  .children = three,
                                  .child_count = 3,
                                  .backoff_ns = FILCH_SECONDS(3600),
                                  .backoff_max_ns = FILCH_SECONDS(3600) };
        fixture          w;
        fixture_begin(&w, FILCH_NO_WORKERS);
        (void)supervise(w.sched, &spec);
        fixture_tick(&w);
        ok(filch_send(w.sched, child_log.pids[0], filch_int(FAILURE)));
        fli_store_rlx(&w.deny, true);
        for (int i = 0; i < 20; i++) ok(filch_tick(w.sched, 10, NULL));
        same(fixture_stats(&w).timers, 0);
        same(filch_next_timeout(w.sched), 0); /* the supervisor polls */
        fli_store_rlx(&w.deny, false);
        for (int i = 0; i < 20; i++) ok(filch_tick(w.sched, 10, NULL));
        same(fixture_stats(&w).timers, 1);
        assert_true(filch_next_timeout(w.sched) > FILCH_SECONDS(1800));
        fixture_end(&w);
    }
}

/* Handler of sleeps: there is never memory for the timer, so each sleep completes with FILCH_ENOMEM. */
static filch_err refuse_sleep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)command;
    (void)tag;
    (void)receiver;
    ++*(int *)user;
    return FILCH_ENOMEM;
}

static void backs_off_without_timers(uint32_t strategy)
{
    static const filch_child children[] = { { .id = "a", .type = &child_type, .options = ARGS(0) },
                                            { .id = "b", .type = &child_type, .options = ARGS(1) } };
    filch_supervisor         spec = { .strategy = strategy,
                                      .children = children,
                                      .child_count = 2,
                                      .backoff_ns = FILCH_MILLISECONDS(50),
                                      .backoff_percent = 100 };
    int                      refused = 0;
    fixture                  w;
    filch_options            opt = FILCH_OPTIONS_INIT;
    filch_registry          *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_remove(registry, FILCH_CMD_SLEEP));
    ok(filch_registry_add(registry, FILCH_CMD_SLEEP, refuse_sleep, &refused));
    opt.registry = registry;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    (void)supervise(w.sched, &spec);
    fixture_tick(&w);
    same(child_log.count, 2);
    ok(filch_send(w.sched, child_log.pids[0], filch_int(FAILURE)));
    UNTIL(&w, child_log.count > 2 && child_log.alive == 2);
    assert_true(refused > 0);
    assert_string_equal(child_log_from(2), strategy == FILCH_ONE_FOR_ONE ? "-a +a" : "-a -b +a +b");
    size_t first = strategy == FILCH_ONE_FOR_ONE ? 3 : 4; /* index of the restart of `a` */
    assert_true(child_log.times_ns[first] - child_log.times_ns[2] >= spec.backoff_ns);
    fixture_end(&w);
    filch_registry_destroy(registry);
}

TEST(a_back_off_whose_sleep_completes_with_an_error_lasts_as_long)
{
    backs_off_without_timers(FILCH_ONE_FOR_ONE);
    backs_off_without_timers(FILCH_ONE_FOR_ALL);
}

TEST(a_supervisor_allocates_from_its_scheduler_and_not_from_the_system)
{
    static const filch_supervisor spec = { .children = three, .child_count = 3, .intensity = 10000 };
    filch_options                 opt = FILCH_OPTIONS_INIT;
    fixture                       w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    filch_pid pid = supervise(w.sched, &spec);
    fixture_tick(&w);
    int64_t before = fli_load_rlx(&w.bytes);
    ok(filch_supervise(w.sched, &spec, NULL, NULL));
    /* the supervisor has allocated an array for the times of 10000 restarts */
    assert_true(fli_load_rlx(&w.bytes) >= before + 80000);
    fli_store_rlx(&w.deny, true);
    same(filch_supervise(w.sched, &spec, NULL, NULL), FILCH_ENOMEM);
    same(filch_child_start(w.sched, pid, &three[0]), FILCH_ENOMEM);
    fli_store_rlx(&w.deny, false);
    fixture_end(&w);
    opt.memory_max = 500000;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_err err = FILCH_OK;
    for (int i = 0; i < 100 && err == FILCH_OK; i++) err = filch_supervise(w.sched, &spec, NULL, NULL);
    same(err, FILCH_ENOMEM); /* the memory of a supervisor counts against the memory limit of its scheduler */
    fixture_end_as(&w, FILCH_SECONDS(60), FILCH_OK);
}

TEST(a_tree_starts_or_reports_enomem_whichever_allocation_fails)
{
    uint64_t nth = 1, step = fixture_scale(100, 1) >= 100 ? 1 : 5;
    while (!grows_without(nth, false)) nth += step;
    assert_true(nth > 15);
    for (nth = 1; !grows_without(nth, true);) nth += step;
}

TEST(a_type_may_use_the_memory_of_its_scheduler_within_its_limit)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_memory  memory = filch_sched_memory(NULL);
    fixture       w;
    void         *plain = memory.alloc(memory.user, NULL, 0, 8);
    assert_non_null(plain);
    free(plain); /* `plain` was allocated by malloc, so it is freed by free() */
    opt.memory_max = 3000000;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    memory = filch_sched_memory(w.sched);
    int64_t before = fli_load_rlx(&w.bytes);
    char   *at = memory.alloc(memory.user, NULL, 0, 1000);
    assert_non_null(at);
    memset(at, 7, 1000);
    same(fli_load_rlx(&w.bytes), before + 1000);
    at = memory.alloc(memory.user, at, 1000, 5000);
    assert_non_null(at);
    assert_int_equal(at[999], 7);
    same(fli_load_rlx(&w.bytes), before + 5000);
    /* the new size exceeds the limit: the call fails, and the block is unchanged */
    assert_null(memory.alloc(memory.user, at, 5000, 4000000));
    assert_int_equal(at[999], 7);
    assert_null(memory.alloc(memory.user, NULL, 0, 4000000));
    assert_null(memory.alloc(memory.user, at, 5000, 0));
    same(fli_load_rlx(&w.bytes), before);
    /* A block may be freed after its scheduler was freed. */
    at = memory.alloc(memory.user, NULL, 0, 100);
    assert_non_null(at);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    memset(at, 1, 100);
    assert_null(memory.alloc(memory.user, at, 100, 0));
    same(fli_load_rlx(&w.bytes), 0);
    assert_false(fli_load_rlx(&w.miscounted));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_all_a_failed_restart_stops_the_restarted_ones_before_a_retry),
        cmocka_unit_test(one_for_all_restarts_that_keep_failing_end_the_supervisor),
        cmocka_unit_test(options_that_became_invalid_fail_the_restart),
        cmocka_unit_test(a_scheduler_that_stops_while_children_are_started_is_no_failure),
        cmocka_unit_test(a_child_started_while_the_supervisor_ends_is_refused),
        cmocka_unit_test(a_list_of_no_children_is_empty_and_a_foreign_stop_gets_no_answer),
        cmocka_unit_test(a_dynamic_child_that_cannot_start_is_reported_and_removed),
        cmocka_unit_test(the_args_of_a_dynamic_child_are_the_same_at_each_start),
        cmocka_unit_test(the_child_list_grows_beyond_its_first_capacity),
        cmocka_unit_test(a_temporary_child_that_is_stopped_is_removed_once),
        cmocka_unit_test(each_invalid_child_or_supervisor_spec_is_refused),
        cmocka_unit_test(a_supervisor_ignores_unknown_messages_and_unrelated_exits),
        cmocka_unit_test(a_supervisor_with_a_failed_link_stops_its_children_and_fails),
        cmocka_unit_test(a_tree_of_three_levels_is_up_when_its_lowest_level_is),
        cmocka_unit_test(a_subtree_whose_child_waits_for_its_name_is_not_up),
        cmocka_unit_test(a_back_off_is_never_longer_than_its_maximum),
        cmocka_unit_test(a_back_off_of_filch_forever_with_jitter_does_not_wrap_around),
        cmocka_unit_test(rest_for_one_waits_for_the_back_off_of_the_later_failure),
        cmocka_unit_test(a_back_off_without_memory_lasts_as_long),
        cmocka_unit_test(a_supervisor_that_had_no_memory_for_its_back_off_sleeps_when_there_is_memory),
        cmocka_unit_test(a_back_off_whose_sleep_completes_with_an_error_lasts_as_long),
        cmocka_unit_test(a_supervisor_allocates_from_its_scheduler_and_not_from_the_system),
        cmocka_unit_test(a_tree_starts_or_reports_enomem_whichever_allocation_fails),
        cmocka_unit_test(a_type_may_use_the_memory_of_its_scheduler_within_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
