/* out_test.c - the `out` of a step is valid in that step only: not in handlers, on_exit functions and callbacks, nor in
 * a step on another worker or of another scheduler. Also: a status that a step replaces leaves nothing behind. */
#include <stdio.h>

#include "api/fixture.h"

#define FAILURE (FILCH_EUSER + 8)

static filch_err still_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* A type without init and close functions. */
static const filch_type still = { .name = "still", .size = 200, .step = still_step };

/* Makes every call that is allowed only in the step to which `out` belongs. Returns true if each call is refused. */
static bool is_of_no_use(filch_out *out)
{
    return filch_yield(out, 1000, 1, filch_none()) == FILCH_ESTATE &&
           filch_yield(out, 1000, 1, filch_str("a text that does not fit into an event")) == FILCH_ESTATE &&
           filch_yield_sleep(out, 1, 0) == FILCH_ESTATE &&
           filch_yield_send(out, 1, (filch_pid){ 1, 1 }, filch_none()) == FILCH_ESTATE &&
           filch_upgrade(out, &still, NULL, filch_none()) == FILCH_ESTATE && filch_trap_links(out, 1) == FILCH_ESTATE &&
           filch_done(out, filch_str("a result that does not fit into an event")) == FILCH_ESTATE;
}

/* ---- a step that chooses a status and then another ---- */

static filch_err play_thinks_better(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_upgrade(out, &still, NULL, filch_none());
    me->note |= filch_upgrade(out, &still, NULL, filch_none());
    me->note |= filch_done(out, filch_str("a result that does not fit into an event"));
    return filch_idle(out); /* the last status that the step chooses counts */
}

TEST(an_upgrade_replaced_by_another_status_leaks_nothing)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_thinks_better);
    fixture_tick(&w);
    ok(a.note);
    ok(filch_send(w.sched, a.pid, filch_none()));
    fixture_tick(&w);
    same(a.steps, 2); /* the process was stepped again: it has neither ended nor changed its type */
    same(a.closes, 0);
    ok(filch_cancel(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
}

static filch_err play_fails_at_length(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    me->note = filch_fail(out, FILCH_OK, filch_none());
    return filch_fail(out, FAILURE, filch_str(me->stage == 0 ? "short" : "words that are longer than they may be"));
}

TEST(a_failure_with_a_detail_that_is_too_long_has_no_detail)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w;
    opt.payload_max = 20;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    for (int i = 0; i < 2; i++) {
        actor a = { .stage = i };
        actor_start(&w, &a, play_fails_at_length);
        fixture_tick(&w);
        same(a.note, FILCH_EINVAL);
        same(filch_kind_of(&a.result), i == 0 ? FILCH_KIND_TEXT : FILCH_KIND_NONE);
        actor_ends(&w, &a, FAILURE);
    }
    fixture_end(&w);
}

/* ---- a process that uses the `out` of another process ---- */

static struct {
    filch_out       *out;
    fixture         *inner;
    FLI_ATOMIC(bool) there, tried, useless, named;
} lent;

static filch_err play_uses(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    fli_store_rel(&lent.tried, true);
    return filch_idle(out);
}

/* ---- `out` after its step: in close and in on_exit ---- */

static struct {
    filch_out *out;
    uint32_t   handled, useless, tries, received;
} after;

static void after_try(void)
{
    after.tries++;
    if (is_of_no_use(after.out)) after.useless++;
    (void)!filch_yield(after.out, FILCH_CMD_USER, 9, filch_int(1));
}

static filch_err after_handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    after.handled++;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void after_close(void *self)
{
    (void)self;
    after_try();
}

static void after_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
    after_try();
}

/* The process ends at its first message. */
static filch_err after_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    after.out = out;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err after_change(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    after.out = out;
    return filch_upgrade(out, &still, NULL, filch_none());
}

static const filch_type ends = { .name = "ends", .step = after_step, .close = after_close };
static const filch_type changes = { .name = "changes", .step = after_change, .close = after_close };

static filch_err hears(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    after.received += (uint32_t)count;
    return filch_idle(out);
}

static const filch_type bystander = { .name = "bystander", .step = hears };

TEST(a_yield_in_close_or_on_exit_is_refused_and_reaches_no_other_process)
{
    fixture             w;
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           ends_itself, killed;
    memset(&after, 0, sizeof after);
    how.on_exit = after_exit;
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, FILCH_CMD_USER, after_handle, NULL));
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
    ok(filch_spawn(w.sched, &ends, &how, &ends_itself));
    ok(filch_spawn(w.sched, &ends, &how, &killed));
    fixture_tick(&w);
    ok(filch_send(w.sched, ends_itself, filch_none())); /* `ends_itself` ends by itself */
    fixture_tick(&w);
    ok(filch_terminate(w.sched, killed)); /* `killed` is ended by force */
    fixture_tick(&w);
    ok(filch_spawn(w.sched, &changes, NULL, NULL)); /* `changes` upgrades */
    fixture_tick(&w);
    same(after.tries, 5);
    same(after.useless, 5);
    ok(filch_spawn(w.sched, &bystander, NULL, NULL));
    fixture_tick(&w);
    same(after.handled, 0);
    same(after.received, 0);
    same(fixture_stats(&w).yields, 0);
    fixture_end(&w);
}

/* ---- a status set by the close function of the old type, during an upgrade ---- */

static void sets_status_close(void *self)
{
    (void)self;
    after.tries++;
    after.useless += filch_done(after.out, filch_int(1)) == FILCH_ESTATE && filch_idle(after.out) == FILCH_ESTATE &&
                     filch_fail(after.out, FAILURE, filch_str("a text that does not fit into an event")) == FAILURE;
}

static const filch_type sets_status = { .name = "says", .step = after_change, .close = sets_status_close };

TEST(a_status_set_in_close_does_not_change_the_upgraded_process)
{
    fixture    w;
    filch_pid  pid;
    filch_info info = { .size = sizeof info };
    memset(&after, 0, sizeof after);
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_spawn(w.sched, &sets_status, NULL, &pid));
    fixture_tick(&w);
    same(after.tries, 1);
    same(after.useless, 1);
    ok(filch_inspect(w.sched, pid, &info));
    assert_string_equal(info.name, "still");
    fixture_end(&w);
}

static filch_err play_ticks_another(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    me->note = filch_tick(lent.inner->sched, 0, NULL);
    /* filch_tick() of the inner scheduler has returned, so `out` is valid again */
    me->note |= filch_yield_sleep(out, 7, 0);
    return filch_idle(out);
}

TEST(a_step_may_tick_another_scheduler_which_cannot_use_its_out)
{
    fixture outer, inner;
    actor   ticks = { 0 }, uses = { 0 };
    memset(&lent, 0, sizeof lent);
    fixture_begin(&outer, FILCH_NO_WORKERS);
    fixture_begin(&inner, FILCH_NO_WORKERS);
    lent.inner = &inner;
    actor_start(&outer, &ticks, play_ticks_another);
    actor_start(&inner, &uses, play_uses);
    UNTIL(&outer, ticks.seen_count == 1);
    ok(ticks.note);
    same(ticks.seen[0].tag, 7);
    assert_true(fli_load_acq(&lent.tried) && fli_load_rlx(&lent.useless));
    fixture_end(&outer);
    fixture_end(&inner);
}

/* The process stays in its step until another worker has tried to use `out`. */
static filch_err play_lends(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    fli_store_rel(&lent.there, true);
    uint64_t give_up_ns = fli_clock_ns() + FILCH_SECONDS(60);
    while (!fli_load_acq(&lent.tried) && fli_clock_ns() < give_up_ns) yield_slice();
    return filch_idle(out);
}

TEST(the_out_of_a_step_is_refused_on_another_worker)
{
    fixture w;
    actor   lends = { 0 }, uses = { 0 };
    memset(&lent, 0, sizeof lent);
    fixture_begin(&w, 2);
    actor_start(&w, &lends, play_lends);
    UNTIL(&w, fli_load_acq(&lent.there));
    /* the thread of the test is a foreign thread, so all calls with `out` are refused */
    assert_true(is_of_no_use(lent.out));
    actor_start(&w, &uses, play_uses);
    UNTIL(&w, fli_load_acq(&lent.tried));
    assert_true(fli_load_rlx(&lent.useless));
    fixture_end(&w);
}

static filch_err on_command(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    lent.out = out;
    me->note = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return filch_idle(out);
}

TEST(the_out_of_a_step_is_refused_in_the_handler_of_its_yield)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w;
    actor         a = { 0 };
    memset(&lent, 0, sizeof lent);
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, FILCH_CMD_USER, on_command, NULL));
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
    actor_start(&w, &a, play_yields);
    fixture_tick(&w);
    ok(a.note);
    same(a.seen_count, 1);
    assert_true(fli_load_rlx(&lent.useless));
    fixture_end(&w);
}

/* ---- a callback that runs on another worker, outside of any step ---- */

static struct {
    filch_sched *sched;
    filch_err    broadcast, spawn, related, sent;
} watcher;

/* on_long_step callback. With `finished` 0 another worker calls it while the long step runs, outside of any step; this
 * call tests the functions. With `finished` 1 the worker of the long step calls it after the step; this call returns at
 * once. */
static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    (void)user, (void)pid, (void)name, (void)took_ns;
    if (finished || fli_load_rlx(&lent.named)) return;
    /* Each long step is reported once. On a slow machine the report may come before the step has published its `out`,
     * so this callback waits for it. */
    while (!fli_load_acq(&lent.there)) yield_slice();
    fli_store_rlx(&lent.useless, is_of_no_use(lent.out));
    watcher.broadcast = filch_broadcast(watcher.sched, "ears", filch_int(1), NULL);
    watcher.sent = filch_send_name(watcher.sched, "ear", filch_int(2));
    opt.name = "made by a watcher";
    watcher.spawn = filch_spawn(watcher.sched, &still, &opt, NULL);
    opt.relations = FILCH_SPAWN_MONITOR;
    opt.name = NULL;
    watcher.related = filch_spawn(watcher.sched, &still, &opt, NULL);
    fli_store_rel(&lent.named, true);
    fli_store_rel(&lent.tried, true);
}

TEST(calls_in_on_long_step_have_no_sender)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w;
    actor         lends = { 0 }, listener = { 0 };
    memset(&lent, 0, sizeof lent);
    opt.long_step_ns = FILCH_MILLISECONDS(1);
    opt.on_long_step = on_long_step;
    fixture_begin_with(&w, 2, opt);
    watcher.sched = w.sched;
    actor_start(&w, &listener, play_idle);
    UNTIL(&w, fixture_stats(&w).alive == 1);
    ok(filch_join(w.sched, "ears", listener.pid));
    ok(filch_register(w.sched, "ear", listener.pid));
    actor_start(&w, &lends, play_lends);
    UNTIL(&w, fli_load_acq(&lent.named));
    ok(watcher.broadcast | watcher.sent | watcher.spawn);
    /* a monitor needs a process as its owner, and this callback is not inside a process */
    same(watcher.related, FILCH_ESTATE);
    assert_true(fli_load_rlx(&lent.useless));
    fixture_end(&w);
    same(listener.seen_count, 3);
    for (size_t i = 0; i < 3; i++) {
        if (listener.seen[i].type == FILCH_EVENT_MESSAGE) assert_true(is_null_pid(listener.seen[i].from));
    }
}

TEST(filch_report_free_ignores_a_report_of_an_older_header)
{
    filch_report report = { .size = 8, .ended = 5 };
    filch_report_free(&report);
    same(report.ended, 5);
    filch_report_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_yield_in_close_or_on_exit_is_refused_and_reaches_no_other_process),
        cmocka_unit_test(a_status_set_in_close_does_not_change_the_upgraded_process),
        cmocka_unit_test(an_upgrade_replaced_by_another_status_leaks_nothing),
        cmocka_unit_test(a_failure_with_a_detail_that_is_too_long_has_no_detail),
        cmocka_unit_test(a_step_may_tick_another_scheduler_which_cannot_use_its_out),
        cmocka_unit_test(the_out_of_a_step_is_refused_on_another_worker),
        cmocka_unit_test(the_out_of_a_step_is_refused_in_the_handler_of_its_yield),
        cmocka_unit_test(calls_in_on_long_step_have_no_sender),
        cmocka_unit_test(filch_report_free_ignores_a_report_of_an_older_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
