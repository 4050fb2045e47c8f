/* step_test.c - a step and its effects: statuses, errors, upgrades, ends, and the order of events. */
#include "api/fixture.h"

static fixture w;

static void actor_stop(actor *a)
{
    ok(filch_cancel(w.sched, a->pid));
    actor_ends(&w, a, FILCH_OK);
}

/* ---- statuses ---- */

static filch_err play_statuses(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    switch (me->stage++) {
    case 0: return filch_continue(out);
    case 1: return filch_continue(out);
    case 2: return filch_idle(out);
    case 3: me->note = filch_yield_sleep(out, 5, 0); return filch_wait(out);
    default: return filch_done(out, filch_int(77));
    }
}

TEST(continue_idle_wait_and_done_do_what_they_say)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_statuses);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_READY);
    (void)fixture_tick(&w);
    same(a.steps, 3); /* two steps returned CONTINUE without events, and the third idled */
    same(a.seen_count, 0);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_READY);
    UNTIL(&w, is_over(&a));
    same(a.note, FILCH_OK);
    same(a.exit_error, FILCH_OK);
    same(filch_as_int(&a.result), 77);
    same(a.steps, 5);
    same(a.seen_count, 2);
    same(a.seen[0].type, FILCH_EVENT_MESSAGE);
    same(a.seen[1].type, FILCH_EVENT_YIELD);
    same(a.seen[1].tag, 5);
    assert_true(is_null_pid(a.seen[0].from) && is_null_pid(a.seen[1].from));
    actor_ends(&w, &a, FILCH_OK);
    filch_stats stats = fixture_stats(&w);
    same(stats.steps, 5);
    same(stats.spawned, 1);
    same(stats.ended, 1);
    same(stats.failed, 0);
    same(stats.alive, 0);
    fixture_end(&w);
}

static filch_err play_many_minds(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    static char big[100];
    if (me->stage++ == 0) {
        /* the next call replaces this status; the copy of `big` is freed */
        (void)filch_done(out, filch_bytes(big, sizeof big));
        (void)filch_wait(out);
        (void)filch_done(out, filch_bytes(big, sizeof big));
        (void)filch_done(out, filch_bytes(big, sizeof big));
        return filch_continue(out);
    }
    (void)filch_continue(out);
    /* the next call replaces this status: the state of the new type is closed and never stepped */
    (void)filch_upgrade(out, &actor_type, NULL, filch_ptr(me));
    return filch_done(out, filch_int(2));
}

TEST(the_last_status_counts)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_many_minds);
    UNTIL(&w, is_over(&a));
    same(a.steps, 2);
    same(filch_as_int(&a.result), 2);
    same(a.inits, 2);
    same(a.closes, 2); /* close was called once for each init that succeeded */
    fixture_end(&w);
}

static filch_err play_returns(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count, (void)out;
    return (filch_err)me->stage;
}

static filch_err play_waits_for_nothing(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me, (void)events, (void)count;
    return filch_wait(out);
}

static filch_err play_fails_after_done(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char big[100];
    (void)me, (void)events, (void)count;
    (void)filch_done(out, filch_bytes(big, sizeof big));
    (void)!filch_yield(out, FILCH_CMD_USER, 1, filch_bytes(big, sizeof big));
    return FILCH_EUSER + 3;
}

TEST(a_step_that_fails_ends_with_its_error)
{
    static const struct {
        play_fn   play;
        int64_t   stage;
        filch_err error;
    } cases[] = { { play_returns, FILCH_EUSER + 5, FILCH_EUSER + 5 },
                  { play_returns, FILCH_ENOMEM, FILCH_ENOMEM },
                  { play_returns, -7, -7 },
                  { play_returns, FILCH_OK, FILCH_ENOSTATUS },
                  { play_waits_for_nothing, 0, FILCH_ENOYIELD },
                  { play_fails_after_done, 0, FILCH_EUSER + 3 } };
    static actor a[COUNT_OF(cases)];
    memset(a, 0, sizeof a);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        a[i].stage = cases[i].stage;
        actor_start(&w, &a[i], cases[i].play);
        UNTIL(&w, is_over(&a[i]));
        same(filch_kind_of(&a[i].result), FILCH_KIND_NONE);
        actor_ends(&w, &a[i], cases[i].error);
        same(fixture_stats(&w).failed, i + 1);
    }
    same(fixture_stats(&w).yields, 0); /* the yield of the failing step was not made */
    fixture_end(&w);
}

static filch_err play_fails_with_words(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    if (me->stage == 1)
        return filch_fail(out, FILCH_EUSER + 4, filch_str("a text that is too long for the event itself"));
    if (me->stage == 2) (void)filch_fail(out, FILCH_EUSER + 4, filch_str("changed its mind"));
    if (me->stage == 2) return filch_done(out, filch_int(1));
    me->note =
        filch_fail(out, FILCH_OK, filch_none()) == FILCH_EINVAL && filch_fail(NULL, 7, filch_none()) == FILCH_EINVAL;
    (void)filch_fail(out, FILCH_EUSER + 4, filch_str("but no error"));
    return FILCH_OK;
}

TEST(a_step_that_fails_may_add_a_detail)
{
    static actor a[3];
    memset(a, 0, sizeof a);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int i = 0; i < 3; i++) {
        a[i].stage = i;
        actor_start(&w, &a[i], play_fails_with_words);
        UNTIL(&w, is_over(&a[i]));
    }
    assert_string_equal(filch_text(&a[1].result), "a text that is too long for the event itself");
    actor_ends(&w, &a[1], FILCH_EUSER + 4);
    same(filch_as_int(&a[2].result), 1);
    actor_ends(&w, &a[2], FILCH_OK);
    same(a[0].note, 1);
    actor_ends(&w, &a[0], FILCH_ENOSTATUS);
    fixture_end(&w);
}

/* ---- results ---- */

static filch_err play_result(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    return filch_done(out, *(filch_data *)me->user);
}

TEST(every_kind_of_result_reaches_on_exit)
{
    static const char long_text[] = "a text that does not fit into an event";
    int               thing = 0;
    filch_pid         pid = { 3, 4 };
    filch_data        all[] = { filch_none(),
                                filch_int(-1),
                                filch_num(0.5),
                                filch_of_pid(pid),
                                filch_ptr(&thing),
                                filch_str("short"),
                                filch_str(long_text),
                                filch_bytes(long_text, 30),
                                filch_move(malloc(50), 50, NULL),
                                filch_none() };
    ok(filch_share(malloc(60), 60, NULL, NULL, &all[9]));
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        actor a = { .user = &all[i] };
        actor_start(&w, &a, play_result);
        UNTIL(&w, is_over(&a));
        same(filch_kind_of(&a.result), filch_kind_of(&all[i]));
        same(filch_size(&a.result), filch_size(&all[i]));
        same(filch_as_int(&a.result), filch_as_int(&all[i]));
        assert_true(filch_as_num(&a.result) == filch_as_num(&all[i]));
        assert_true(same_pid(filch_as_pid(&a.result), filch_as_pid(&all[i])));
        assert_ptr_equal(filch_as_ptr(&a.result), filch_as_ptr(&all[i]));
        if (i >= 5 && i <= 7) assert_memory_equal(filch_raw(&a.result), filch_raw(&all[i]), filch_size(&all[i]));
        if (i >= 8) assert_ptr_equal(filch_raw(&a.result), filch_raw(&all[i]));
        actor_ends(&w, &a, FILCH_OK);
    }
    filch_drop(&all[9]);
    fixture_end(&w);
}

/* ---- batches of events, and their order ---- */

TEST(a_step_gets_at_most_batch_max_events)
{
    static const uint32_t max[] = { 1, 2, 63, 1024 };
    for (size_t i = 0; i < COUNT_OF(max); i++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.batch_max = max[i];
        actor a = { .stage = 0 };
        fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
        actor_start(&w, &a, play_idle);
        for (int k = 0; k < 3000; k++) ok(filch_send(w.sched, a.pid, filch_int(k)));
        (void)fixture_tick(&w);
        same(a.seen_count, 3000);
        same(a.count_max, max[i]);
        for (int k = 0; k < SIGHTINGS_MAX; k++) same(a.seen[k].number, k); /* messages arrive in order */
        actor_stop(&a);
        fixture_end(&w);
    }
}

TEST(a_cancel_overtakes_all_messages_however_many)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);
    uint32_t n = fixture_scale(100000, 1000);
    for (uint32_t i = 0; i < n; i++) ok(filch_send(w.sched, a.pid, filch_int(i)));
    ok(filch_cancel(w.sched, a.pid));
    ok(filch_cancel(w.sched, a.pid)); /* a second cancel, which is not delivered */
    actor_ends(&w, &a, FILCH_OK);
    same(a.steps, 2);
    same(a.seen[0].type, FILCH_EVENT_CANCEL);
    same(a.seen[0].step, 2);
    same(a.seen[0].error, FILCH_ECANCELLED);
    for (size_t i = 1; i < SIGHTINGS_MAX; i++) same(a.seen[i].type, FILCH_EVENT_MESSAGE);
    same(fixture_stats(&w).sent, n);
    same(fixture_stats(&w).undelivered, n - (a.seen_count - 1));
    fixture_end(&w);
}

static filch_err play_stubborn(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL && ++me->stage == 3) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

TEST(a_process_may_continue_after_a_cancel_and_be_cancelled_again)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_stubborn);
    for (int i = 0; i < 3; i++) {
        same(a.stage, i);
        ok(filch_cancel(w.sched, a.pid));
        (void)fixture_tick(&w);
    }
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
}

/* ---- steps that wait or idle while yields are outstanding ---- */

static filch_receiver receivers[8];
static uint32_t       receiver_count;

static filch_err handle_keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    receivers[receiver_count++] = receiver;
    return FILCH_OK;
}

static void begin_with_handler(void)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle_keep, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    receiver_count = 0;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(registry);
}

/* The process makes one yield and waits until it is completed, even if a cancel comes before. Then it idles until a
 * cancel. */
static filch_err play_wait(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD) me->stage = 2;
    }
    if (me->stage == 0) {
        me->stage = 1;
        me->note = filch_yield(out, FILCH_CMD_USER, 42, filch_none());
    }
    if (me->stage == 1) return filch_wait(out);
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(messages_queue_during_a_wait_and_come_in_order_afterwards)
{
    actor a = { .stage = 0 };
    begin_with_handler();
    actor_start(&w, &a, play_wait);
    (void)fixture_tick(&w);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_BLOCKED);
    for (int i = 0; i < 30; i++) {
        ok(filch_send(w.sched, a.pid, filch_int(i)));
        (void)fixture_tick(&w);
    }
    same(a.steps, 1);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_BLOCKED);
    ok(filch_cancel(w.sched, a.pid)); /* a cancel is delivered */
    (void)fixture_tick(&w);
    same(a.steps, 2);
    same(a.seen_count, 1);
    same(a.seen[0].type, FILCH_EVENT_CANCEL);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_BLOCKED);
    ok(filch_complete(receivers[0], 42, filch_int(7), FILCH_OK));
    (void)fixture_tick(&w);
    same(a.seen_count, 32);
    same(a.seen[1].type, FILCH_EVENT_YIELD);
    same(a.seen[1].tag, 42);
    same(a.seen[1].number, 7);
    for (int i = 0; i < 30; i++) same(a.seen[2 + i].number, i);
    assert_true(a.seen[2].step > a.seen[1].step); /* the messages came in a later step than the completion */
    actor_stop(&a);
    fixture_end(&w);
}

static filch_err play_idle_with_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        for (uint64_t tag = 1; tag <= 3; tag++) me->note |= filch_yield(out, FILCH_CMD_USER, tag, filch_none());
    }
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(an_idle_process_with_yields_is_woken_by_messages_and_completions)
{
    actor a = { .stage = 0 };
    begin_with_handler();
    actor_start(&w, &a, play_idle_with_yields);
    (void)fixture_tick(&w);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    (void)fixture_tick(&w);
    same(a.steps, 2);
    ok(filch_complete(receivers[2], 3, filch_int(3), FILCH_OK));
    (void)fixture_tick(&w);
    same(a.steps, 3);
    ok(filch_send(w.sched, a.pid, filch_int(2)));
    ok(filch_complete(receivers[0], 1, filch_int(1), FILCH_OK));
    (void)fixture_tick(&w);
    same(a.steps, 4);
    const int32_t  types[] = { FILCH_EVENT_MESSAGE, FILCH_EVENT_YIELD, FILCH_EVENT_YIELD, FILCH_EVENT_MESSAGE };
    const uint64_t tags[] = { 0, 3, 1, 0 };
    same(a.seen_count, 4);
    for (size_t i = 0; i < 4; i++) {
        same(a.seen[i].type, types[i]);
        same(a.seen[i].tag, tags[i]);
    }
    actor_stop(&a);
    same(filch_complete(receivers[1], 2, filch_none(), FILCH_OK), FILCH_ESTALE); /* the process ended while this yield
                                                                                  * was outstanding */
    fixture_end(&w);
}

/* ---- upgrade ---- */

/* State of the type to which the process upgrades; it fits into the control block. */
typedef struct second {
    struct second *me; /* address of this state, set by init: later steps compare it */
    actor         *a;
} second;

static actor *upgraded;

static filch_err second_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    second *s = self;
    if (method != NULL && strcmp(method, "fail") == 0) return FILCH_EUSER + 9;
    if (method != NULL) return FILCH_EMETHOD;
    if (s->me != NULL || s->a != NULL) return FILCH_EUSER; /* error: the state is not zeroed */
    s->me = s;
    s->a = filch_as_ptr(args);
    if (!same_pid(filch_ctx_self(ctx), s->a->pid)) return FILCH_EUSER;
    s->a->inits++;
    return FILCH_OK;
}

static filch_err second_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    second *s = self;
    if (s->me != s) s->a->note = 50; /* error: the state has moved since init */
    if (upgraded->closes != 1) s->a->note = 51;
    for (size_t i = 0; i < count; i++) {
        s->a->seen[s->a->seen_count++] =
            (sighting){ .type = events[i].type, .tag = events[i].tag, .number = filch_as_int(&events[i].data) };
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int(1000));
    }
    return filch_idle(out);
}

static void second_close(void *self)
{
    second *s = self;
    if (s->me != s) s->a->note = 52;
    s->a->closes++;
}

static const filch_type second_type = {
    .name = "second", .size = sizeof(second), .init = second_init, .step = second_step, .close = second_close
};

static filch_err play_upgrade(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    if (me->stage == 0) {
        me->stage = 1;
        me->note = filch_yield(out, FILCH_CMD_USER, 42, filch_none());
        return filch_idle(out);
    }
    if (count == 0) return filch_idle(out);
    /* Tries every invalid upgrade. A refused upgrade does not change the status that was chosen before it. */
    static const filch_type no_step = { .name = "no step" }, no_init = { .name = "no init", .step = second_step };
    (void)filch_idle(out);
    if (filch_upgrade(out, NULL, NULL, filch_none()) != FILCH_EINVAL) me->note = 1;
    if (filch_upgrade(out, &no_step, NULL, filch_none()) != FILCH_EINVAL) me->note = 2;
    if (filch_upgrade(out, &no_init, "method", filch_none()) != FILCH_EMETHOD) me->note = 3;
    if (filch_upgrade(out, &no_init, NULL, filch_int(1)) != FILCH_EINVAL) me->note = 4;
    if (filch_upgrade(out, &second_type, "fail", filch_ptr(me->user)) != FILCH_EUSER + 9) me->note = 5;
    if (filch_upgrade(out, &second_type, "unheard of", filch_ptr(me->user)) != FILCH_EMETHOD) me->note = 6;
    if (me->stage++ == 1) return FILCH_OK; /* the status of this step is idle, chosen by filch_idle() above */
    filch_err err = filch_upgrade(out, &second_type, NULL, filch_ptr(me->user));
    if (me->closes != 0) me->note = 7; /* error: close of the old type must be called after the step, not inside it */
    return err;
}

TEST(an_upgrade_keeps_pid_mailbox_and_yields_and_closes_the_old_instance)
{
    actor a = { .stage = 0 }, b = { .stage = 0 };
    a.user = &b;
    upgraded = &a;
    begin_with_handler();
    actor_start(&w, &a, play_upgrade);
    b.pid = a.pid;
    (void)fixture_tick(&w);
    /* this message makes the process try the invalid upgrades, after which it is still idle */
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    (void)fixture_tick(&w);
    same(a.note, 0);
    same(a.stage, 2);
    assert_string_equal(fixture_inspect(&w, a.pid).name, "actor");
    ok(filch_send(w.sched, a.pid, filch_int(2)));
    uint32_t ran = 0;
    ok(filch_tick(w.sched, 1, &ran)); /* runs the step that upgrades the process */
    same(a.stage, 3);
    same(a.note, 0);
    assert_string_equal(fixture_inspect(&w, a.pid).name, "second");
    same(a.closes, 1);
    ok(filch_send(w.sched, a.pid, filch_int(3)));
    /* the old type made this yield before the upgrade */
    ok(filch_complete(receivers[0], 42, filch_int(4), FILCH_OK));
    (void)fixture_tick(&w);
    same(b.seen_count, 2);
    same(b.seen[0].type, FILCH_EVENT_YIELD);
    same(b.seen[0].tag, 42);
    same(b.seen[1].number, 3);
    ok(filch_cancel(w.sched, a.pid));
    UNTIL(&w, is_over(&a));
    same(a.exit_error, FILCH_OK);
    same(filch_as_int(&a.result), 1000); /* on_exit gets the result that the step of the new type set */
    same(b.note, 0);
    same(b.inits, 1);
    same(b.closes, 1);
    same(a.closes, 1);
    same(fixture_stats(&w).spawned, 1);
    fixture_end(&w);
}

/* ---- kills ---- */

static filch_err play_kill_self(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    if (filch_terminate(filch_out_sched(out), me->pid) != FILCH_OK) me->note = 1;
    if (me->closes != 0) me->note = 2; /* error: close was called during a step */
    return me->stage == 0 ? filch_continue(out) : filch_idle(out);
}

TEST(terminate_ends_a_process_in_any_state_without_another_step)
{
    actor ready = { .stage = 0 }, idle = { .stage = 0 }, blocked = { .stage = 0 },
          self[2] = { { .stage = 0 }, { .stage = 1 } };
    begin_with_handler();
    actor_start(&w, &idle, play_idle);
    actor_start(&w, &blocked, play_wait);
    (void)fixture_tick(&w);
    actor_start(&w, &ready, play_idle);
    ok(filch_terminate(w.sched, ready.pid));
    ok(filch_terminate(w.sched, idle.pid));
    ok(filch_terminate(w.sched, blocked.pid));
    ok(filch_terminate(w.sched, blocked.pid)); /* a second filch_terminate() has no effect */
    same(idle.closes, 0);
    actor_ends(&w, &ready, FILCH_EKILLED);
    actor_ends(&w, &idle, FILCH_EKILLED);
    actor_ends(&w, &blocked, FILCH_EKILLED);
    same(ready.steps, 0);
    same(idle.steps, 1);
    same(blocked.steps, 1);
    for (int i = 0; i < 2; i++) {
        actor_start(&w, &self[i], play_kill_self);
        actor_ends(&w, &self[i], FILCH_EKILLED);
        same(self[i].note, 0);
        same(self[i].steps, 1);
    }
    same(fixture_stats(&w).failed, 5);
    fixture_end(&w);
}

/* ---- budget hints ---- */

static filch_err play_sends_a_lot(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    filch_sched *sched = filch_out_sched(out);
    actor       *other = me->user;
    for (int i = 0; i < 10; i++) {
        if (filch_should_yield(out) != 0) me->note = 1;
        if (filch_send(sched, other->pid, filch_int(i)) != FILCH_OK) me->note = 2;
    }
    if (filch_should_yield(out) == 0) me->note = 3;
    /* the next step may again make send_budget sends */
    return me->stage++ == 0 ? filch_continue(out) : filch_done(out, filch_none());
}

TEST(should_yield_is_true_when_the_send_budget_is_spent)
{
    actor         a = { .stage = 0 }, b = { .user = &a };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.send_budget = 10;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_idle);
    actor_start(&w, &b, play_sends_a_lot);
    actor_ends(&w, &b, FILCH_OK);
    same(b.note, 0);
    (void)fixture_tick(&w);
    same(a.seen_count, 20);
    assert_true(same_pid(a.seen[0].from, b.pid));
    actor_stop(&a);
    fixture_end(&w);
}

/* ---- inspecting a running process from a foreign thread ---- */

static FLI_ATOMIC(int) inside;

static filch_err play_held(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        fli_store_rel(&inside, 1);
        while (fli_load_acq(&inside) != 2) yield_slice();
    }
    return play_idle(me, events, count, out);
}

TEST(a_process_in_a_step_is_shown_running_and_gets_messages_sent_meanwhile)
{
    actor a = { .stage = 0 };
    fli_store_rel(&inside, 0);
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_held);
    while (fli_load_acq(&inside) != 1) yield_slice();
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_RUNNING);
    assert_string_equal(fixture_inspect(&w, a.pid).name, "actor");
    /* this message, sent while the step runs, must not get lost when the step ends */
    ok(filch_send(w.sched, a.pid, filch_int(1)));
    fli_store_rel(&inside, 2);
    UNTIL(&w, fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
    same(fixture_stats(&w).steps, 2);
    actor_stop(&a);
    same(a.seen_count, 2);
    same(a.seen[0].number, 1);
    fixture_end(&w);
}

/* ---- inspecting a process while its worker ends another process ---- */

static filch_pid doomed;

static void held_close(void *self)
{
    (void)self;
    fli_store_rel(&inside, 1);
    while (fli_load_acq(&inside) != 2) yield_slice();
}

static filch_err doomed_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_idle(out);
}

static const filch_type doomed_type = { .name = "doomed", .step = doomed_step, .close = held_close };

/* The process continues for 1000 steps, which keep its worker busy, and then terminates the process `doomed`. */
static filch_err play_kills(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ < 1000) return filch_continue(out);
    if (me->stage == 1001) me->note = filch_terminate(w.sched, doomed);
    return play_idle(me, events, count, out);
}

TEST(a_waiting_process_is_not_shown_running_while_another_is_closed)
{
    for (int i = 0; i < 20; i++) {
        actor a = { .stage = 0 };
        fli_store_rel(&inside, 0);
        fixture_begin(&w, 1);
        ok(filch_spawn(w.sched, &doomed_type, NULL, &doomed));
        UNTIL(&w, fixture_inspect(&w, doomed).state == FILCH_STATE_IDLE);
        actor_start(&w, &a, play_kills);
        while (fli_load_acq(&inside) != 1) yield_slice();
        ok(a.note);
        same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
        ok(filch_send(w.sched, a.pid, filch_int(1)));
        same(fixture_inspect(&w, a.pid).state, FILCH_STATE_READY);
        fli_store_rel(&inside, 2);
        UNTIL(&w, fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
        actor_stop(&a);
        fixture_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continue_idle_wait_and_done_do_what_they_say),
        cmocka_unit_test(the_last_status_counts),
        cmocka_unit_test(a_step_that_fails_ends_with_its_error),
        cmocka_unit_test(a_step_that_fails_may_add_a_detail),
        cmocka_unit_test(every_kind_of_result_reaches_on_exit),
        cmocka_unit_test(a_step_gets_at_most_batch_max_events),
        cmocka_unit_test(a_cancel_overtakes_all_messages_however_many),
        cmocka_unit_test(a_process_may_continue_after_a_cancel_and_be_cancelled_again),
        cmocka_unit_test(messages_queue_during_a_wait_and_come_in_order_afterwards),
        cmocka_unit_test(an_idle_process_with_yields_is_woken_by_messages_and_completions),
        cmocka_unit_test(an_upgrade_keeps_pid_mailbox_and_yields_and_closes_the_old_instance),
        cmocka_unit_test(terminate_ends_a_process_in_any_state_without_another_step),
        cmocka_unit_test(should_yield_is_true_when_the_send_budget_is_spent),
        cmocka_unit_test(a_process_in_a_step_is_shown_running_and_gets_messages_sent_meanwhile),
        cmocka_unit_test(a_waiting_process_is_not_shown_running_while_another_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
