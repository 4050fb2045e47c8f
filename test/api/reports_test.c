/* reports_test.c - the hooks by which a host receives failures (on_failure) and log lines of the runtime and its
 * processes (on_log), instead of polling for them. */
#include <stdio.h>
#include <string.h>

#include "api/fixture.h"

enum { REPORTS_MAX = 32 };

/* What the callbacks on_failure and on_log received, in order. Only `many` is atomic: it is the only field that the
 * test with several workers uses; in all other tests one thread runs everything. */
static struct {
    size_t               failures, lines;
    filch_pid            pid[REPORTS_MAX];
    filch_err            error[REPORTS_MAX];
    char                 type[REPORTS_MAX][32], name[REPORTS_MAX][64], detail[REPORTS_MAX][64];
    int32_t              level[REPORTS_MAX];
    filch_pid            line_pid[REPORTS_MAX];
    filch_err            line_error[REPORTS_MAX];
    char                 line_type[REPORTS_MAX][32], text[REPORTS_MAX][FILCH_LOG_MAX];
    filch_sched         *sched; /* scheduler in which on_failure_acts() spawns */
    filch_pid            to;    /* process to which on_failure_acts() sends */
    FLI_ATOMIC(uint32_t) many;
} reports;

static void on_failure(void *user, const filch_failure *f)
{
    size_t n = reports.failures++;
    (void)user;
    if (n >= REPORTS_MAX || f->size != sizeof *f) return;
    reports.pid[n] = f->pid;
    reports.error[n] = f->error;
    snprintf(reports.type[n], sizeof reports.type[n], "%s", f->type);
    snprintf(reports.name[n], sizeof reports.name[n], "%s", f->name != NULL ? f->name : "(none)");
    snprintf(reports.detail[n], sizeof reports.detail[n], "%s", filch_text(f->detail));
}

static void on_log(void *user, const filch_log_line *l)
{
    size_t n = reports.lines++;
    (void)user;
    if (n >= REPORTS_MAX || l->size != sizeof *l) return;
    reports.level[n] = l->level;
    reports.line_pid[n] = l->pid;
    reports.line_error[n] = l->error;
    snprintf(reports.line_type[n], sizeof reports.line_type[n], "%s", l->type != NULL ? l->type : "(none)");
    snprintf(reports.text[n], sizeof reports.text[n], "%s", l->text);
}

static void begin(fixture *w, filch_options opt)
{
    memset(&reports, 0, sizeof reports);
    opt.on_failure = on_failure;
    opt.on_log = on_log;
    fixture_begin_with(w, FILCH_NO_WORKERS, opt);
}

static void begin_default(fixture *w)
{
    begin(w, (filch_options)FILCH_OPTIONS_INIT);
}

/* ---- failures ---- */

/* The process ends at its first message. The number in the message says how: 1: without an error; 2: with an error and
 * a detail; 3: with an error only; 4: because the step chooses no status; 5: because it waits without a yield. */
static filch_err play_ends(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        switch (filch_as_int(&events[i].data)) {
        case 1: return filch_done(out, filch_str("fine"));
        case 2: return filch_fail(out, FILCH_EUSER + 2, filch_str("the disk is full"));
        case 3: return FILCH_EUSER + 3;
        case 4: return FILCH_OK;
        case 5: return filch_wait(out);
        default: break;
        }
    }
    return filch_idle(out);
}

static void ends_with(fixture *w, int64_t how, filch_err error, const char *detail)
{
    actor  a = { 0 };
    size_t before = reports.failures;
    actor_start(w, &a, play_ends);
    fixture_tick(w);
    ok(filch_send(w->sched, a.pid, filch_int(how)));
    actor_ends(w, &a, error);
    same(reports.failures, before + 1);
    assert_true(same_pid(reports.pid[before], a.pid));
    same(reports.error[before], error);
    assert_string_equal(reports.type[before], "actor");
    assert_string_equal(reports.name[before], "(none)");
    assert_string_equal(reports.detail[before], detail);
}

TEST(every_failure_is_reported_with_type_error_and_detail)
{
    fixture w;
    actor   a = { 0 };
    begin_default(&w);
    ends_with(&w, 2, FILCH_EUSER + 2, "the disk is full");
    ends_with(&w, 3, FILCH_EUSER + 3, "");
    ends_with(&w, 4, FILCH_ENOSTATUS, "");
    ends_with(&w, 5, FILCH_ENOYIELD, "");
    actor_start(&w, &a, play_ends);
    fixture_tick(&w);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    same(reports.failures, 5);
    same(reports.error[4], FILCH_EKILLED);
    fixture_end(&w);
}

TEST(a_process_that_ends_without_error_is_no_failure)
{
    fixture w;
    actor   a = { 0 }, b = { 0 };
    begin_default(&w);
    actor_start(&w, &a, play_ends);
    actor_start(&w, &b, play_ends);
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
    same(reports.failures, 0);
}

TEST(a_failure_report_has_the_name_of_the_process)
{
    fixture w;
    actor   a = { 0 }, b = { 0 }, c = { 0 };
    begin_default(&w);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.name = "printer";
    actor_start_with(&w, &a, play_ends, opt);
    actor_start(&w, &b, play_ends);
    actor_start(&w, &c, play_ends);
    ok(filch_register(w.sched, "first", b.pid));
    ok(filch_register(w.sched, "second", b.pid));
    ok(filch_monitor(w.sched, c.pid, a.pid, 0, NULL)); /* process c has a relation, but no name */
    fixture_tick(&w);
    ok(filch_send(w.sched, a.pid, filch_int(3)));
    ok(filch_send(w.sched, b.pid, filch_int(3)));
    ok(filch_send(w.sched, c.pid, filch_int(3)));
    fixture_tick(&w);
    same(reports.failures, 3);
    for (size_t i = 0; i < 3; i++) {
        const char *want = same_pid(reports.pid[i], a.pid)   ? "printer"
                           : same_pid(reports.pid[i], b.pid) ? "second"
                                                             : "(none)";
        assert_string_equal(reports.name[i], want);
    }
    actor_ends(&w, &a, FILCH_EUSER + 3);
    actor_ends(&w, &b, FILCH_EUSER + 3);
    actor_ends(&w, &c, FILCH_EUSER + 3);
    fixture_end(&w);
}

static void on_failure_acts(void *user, const filch_failure *f)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(user);
    on_failure(NULL, f);
    if (filch_spawn(reports.sched, &actor_type, &opt, NULL) != FILCH_OK) reports.failures = 99;
    if (filch_send(reports.sched, reports.to, filch_int(f->error)) != FILCH_OK) reports.failures = 99;
}

TEST(on_failure_may_spawn_and_send)
{
    fixture       w;
    actor         a = { 0 }, next = { .play = play_idle }, listener = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    memset(&reports, 0, sizeof reports);
    opt.on_failure = on_failure_acts;
    opt.on_failure_user = &next;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_ends);
    actor_start(&w, &listener, play_idle);
    reports.sched = w.sched;
    reports.to = listener.pid;
    ok(filch_send(w.sched, a.pid, filch_int(3)));
    actor_ends(&w, &a, FILCH_EUSER + 3);
    fixture_tick(&w);
    same(reports.failures, 1);
    same(next.inits, 1);
    same(listener.seen[listener.seen_count - 1].number, FILCH_EUSER + 3);
    fixture_end(&w);
}

static void on_failure_counts(void *user, const filch_failure *f)
{
    (void)user;
    if (f->name == NULL || strcmp(f->name, f->type) != 0) fli_add_rlx(&reports.many, 1);
}

static filch_err play_fails(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    (void)events;
    (void)count;
    return filch_fail(out, FILCH_EUSER, filch_str("one of many that fail on several workers at once"));
}

TEST(failures_on_several_workers_are_all_reported)
{
    fixture       w;
    uint32_t      count = fixture_scale(2000, 100);
    static actor  actors[2000];
    filch_options opt = FILCH_OPTIONS_INIT;
    memset(&reports, 0, sizeof reports);
    memset(actors, 0, sizeof actors);
    opt.on_failure = on_failure_counts;
    fixture_begin_with(&w, 4, opt);
    for (uint32_t i = 0; i < count; i++) {
        char                name[32];
        filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
        snprintf(name, sizeof name, "n%u", i);
        if (i % 3 == 0) spawn.name = name;
        actor_start_with(&w, &actors[i], play_fails, spawn);
    }
    UNTIL(&w, fixture_stats(&w).failed == count);
    same(fli_load_rlx(&reports.many), count);
    for (uint32_t i = 0; i < count; i++) actor_ends(&w, &actors[i], FILCH_EUSER);
    fixture_end(&w);
}

/* ---- log lines ---- */

static filch_err play_logs(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) me->note = filch_log(filch_out_sched(out), FILCH_LOG_INFO, FILCH_EUSER, "a process says");
    return play_idle(me, events, count, out);
}

TEST(log_lines_of_a_process_carry_its_pid_and_type)
{
    fixture w;
    actor   a = { 0 };
    begin_default(&w);
    actor_start(&w, &a, play_logs);
    fixture_tick(&w);
    ok(a.note);
    ok(filch_log(w.sched, FILCH_LOG_DEBUG, FILCH_OK, "from outside"));
    same(reports.lines, 2);
    same(reports.level[0], FILCH_LOG_INFO);
    same(reports.line_error[0], FILCH_EUSER);
    assert_true(same_pid(reports.line_pid[0], a.pid));
    assert_string_equal(reports.line_type[0], "actor");
    assert_string_equal(reports.text[0], "a process says");
    same(reports.level[1], FILCH_LOG_DEBUG);
    assert_true(is_null_pid(reports.line_pid[1]));
    same(reports.line_pid[1].node, 0);
    assert_string_equal(reports.line_type[1], "(none)");
    same(filch_log(NULL, FILCH_LOG_INFO, FILCH_OK, "x"), FILCH_EINVAL);
    same(filch_log(w.sched, FILCH_LOG_INFO, FILCH_OK, NULL), FILCH_EINVAL);
    same(filch_log(w.sched, (filch_log_level)0, FILCH_OK, "x"), FILCH_EINVAL);
    same(filch_log(w.sched, (filch_log_level)5, FILCH_OK, "x"), FILCH_EINVAL);
    same(reports.lines, 2);
    fixture_end(&w);
}

TEST(without_on_log_nothing_is_logged)
{
    fixture w;
    memset(&reports, 0, sizeof reports);
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_log(w.sched, FILCH_LOG_ERROR, FILCH_OK, "nobody hears it"));
    same(reports.lines, 0);
    fixture_end(&w);
}

static filch_err failing_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    return FILCH_EUSER + 9;
}

TEST(a_supervisor_logs_each_restart_and_that_it_gives_up)
{
    static const filch_type       failing = { .name = "failing", .step = failing_step };
    static const filch_child      children[] = { { .id = "one", .type = &failing } };
    static const filch_supervisor tree = { .children = children, .child_count = 1, .intensity = 2 };
    fixture                       w;
    filch_pid                     pid;
    begin_default(&w);
    ok(filch_supervise(w.sched, &tree, NULL, &pid));
    fixture_tick(&w);
    same(reports.lines, 3);
    for (size_t i = 0; i < 3; i++) {
        same(reports.level[i], i < 2 ? FILCH_LOG_WARNING : FILCH_LOG_ERROR);
        same(reports.line_error[i], FILCH_EUSER + 9);
        assert_true(same_pid(reports.line_pid[i], pid));
        assert_string_equal(reports.line_type[i], "supervisor");
        assert_non_null(strstr(reports.text[i], "'one'"));
    }
    assert_non_null(strstr(reports.text[2], "gives up"));
    same(reports.failures, 4); /* three failures of the child, then the failure of the supervisor */
    same(reports.error[3], FILCH_ELIMIT);
    fixture_end(&w);
}

TEST(the_id_of_a_child_cannot_look_like_a_line_of_the_log)
{
    static const filch_type       failing = { .name = "failing", .step = failing_step };
    static const filch_child      children[] = { { .id = "a\nerror: b\x1b[31m", .type = &failing } };
    static const filch_supervisor tree = { .children = children, .child_count = 1, .intensity = 2 };
    fixture                       w;
    filch_pid                     pid;
    begin_default(&w);
    ok(filch_supervise(w.sched, &tree, NULL, &pid));
    fixture_tick(&w);
    same(reports.lines, 3);
    for (size_t i = 0; i < 3; i++) assert_non_null(strstr(reports.text[i], "'a\\nerror: b\\x1b[31m'"));
    fixture_end(&w);
}

TEST(dropped_messages_are_logged_with_their_number)
{
    fixture w;
    actor   a = { 0 };
    begin_default(&w);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.mailbox_max = 2;
    opt.overflow = FILCH_OVERFLOW_DROP_NEWEST;
    actor_start_with(&w, &a, play_idle, opt);
    for (int i = 0; i < 5; i++) (void)!filch_send(w.sched, a.pid, filch_int(i));
    fixture_tick(&w);
    same(reports.lines, 1);
    same(reports.line_error[0], FILCH_EDROPPED);
    assert_true(same_pid(reports.line_pid[0], a.pid));
    assert_non_null(strstr(reports.text[0], "3 messages"));
    fixture_end(&w);
}

TEST(steps_that_take_long_are_logged)
{
    fixture       w;
    actor         a = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.long_step_ns = 1;
    begin(&w, opt);
    actor_start(&w, &a, play_idle);
    fixture_tick(&w);
    assert_true(reports.lines > 0);
    assert_non_null(strstr(reports.text[0], "a step took"));
    fixture_end(&w);
}

static filch_err play_stays(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)count;
    if (me->stage++ == 0) me->note = filch_yield_sleep(out, 1, FILCH_SECONDS(3600));
    return filch_wait(out);
}

TEST(a_process_ended_by_force_is_logged_and_reported_as_a_failure)
{
    fixture w;
    actor   a = { 0 };
    begin_default(&w);
    actor_start(&w, &a, play_stays);
    fixture_tick(&w);
    fixture_end_as(&w, 0, FILCH_EDEADLINE);
    ok(a.note);
    same(reports.failures, 1);
    same(reports.error[0], FILCH_ECANCELLED);
    assert_true(reports.lines >= 1);
    assert_non_null(strstr(reports.text[0], "by force"));
    same(reports.level[0], FILCH_LOG_WARNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_is_reported_with_type_error_and_detail),
        cmocka_unit_test(a_process_that_ends_without_error_is_no_failure),
        cmocka_unit_test(a_failure_report_has_the_name_of_the_process),
        cmocka_unit_test(on_failure_may_spawn_and_send),
        cmocka_unit_test(failures_on_several_workers_are_all_reported),
        cmocka_unit_test(log_lines_of_a_process_carry_its_pid_and_type),
        cmocka_unit_test(without_on_log_nothing_is_logged),
        cmocka_unit_test(a_supervisor_logs_each_restart_and_that_it_gives_up),
        cmocka_unit_test(the_id_of_a_child_cannot_look_like_a_line_of_the_log),
        cmocka_unit_test(dropped_messages_are_logged_with_their_number),
        cmocka_unit_test(steps_that_take_long_are_logged),
        cmocka_unit_test(a_process_ended_by_force_is_logged_and_reported_as_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
