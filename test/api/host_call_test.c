/* host_call_test.c - a thread that is not a worker calls processes and waits for replies, for exits, or for space in a
 * mailbox. Covers deadlines, a stop in the middle, wrong threads, and missing memory. */
#include <string.h>

#include "api/fixture.h"
#include "support/alloc.h"
#include "support/gate.h"

/* ---- processes ---- */

/* Replies to a number n with n + 1, and to a text with that text. Does not reply to the number 0. */
static filch_err play_echo(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        const filch_event *e = &events[i];
        if (e->type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (e->type != FILCH_EVENT_MESSAGE ||
            (filch_kind_of(&e->data) == FILCH_KIND_INT && filch_as_int(&e->data) == 0))
            continue;
        filch_data back = filch_kind_of(&e->data) == FILCH_KIND_INT ? filch_int(filch_as_int(&e->data) + 1) : e->data;
        me->note = filch_send(filch_out_sched(out), e->from, back);
    }
    return filch_idle(out);
}

/* The process ends at its first message. The number in the message says how: 1: after a reply; 2: without a reply; 3:
 * with an error; 4: with FILCH_EDEAD. */
static filch_err play_once(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (count == 0 || events[0].type != FILCH_EVENT_MESSAGE) return filch_idle(out);
    int64_t what = filch_as_int(&events[0].data);
    if (what == 1) me->note = filch_send(filch_out_sched(out), events[0].from, filch_int(11));
    if (what == 4) return FILCH_EDEAD;
    return what == 3 ? filch_fail(out, FILCH_EUSER + 3, filch_str("why it failed"))
                     : filch_done(out, filch_str("the result"));
}

/* Forwards the pid of the message's sender to the process in `user`. */
static filch_err play_passes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        me->note = filch_send(filch_out_sched(out), ((actor *)me->user)->pid, filch_of_pid(events[i].from));
    }
    return filch_idle(out);
}

static filch_err play_serves(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            me->note = filch_send(filch_out_sched(out), filch_as_pid(&events[i].data), filch_int(77));
        }
    }
    return filch_idle(out);
}

/* ---- threads that wait ---- */

typedef struct waiting {
    fixture   *w;
    filch_pid  to;
    filch_err  err, ended;
    filch_data reply;
    fli_thread thread;
} waiting;

static void wait_for_end(void *arg)
{
    waiting *x = arg;
    x->err = filch_sched_wait(x->w->sched, x->to, FILCH_FOREVER, &x->ended, &x->reply);
}

static void call_for_ever(void *arg)
{
    waiting *x = arg;
    x->err = filch_call(x->w->sched, x->to, filch_int(0), FILCH_FOREVER, &x->reply);
}

static void call_one(void *arg)
{
    waiting *x = arg;
    x->err = filch_call(x->w->sched, x->to, filch_int(1), FILCH_FOREVER, &x->reply);
}

static void send_for_ever(void *arg)
{
    waiting *x = arg;
    do x->err = filch_send_wait(x->w->sched, x->to, filch_str("a text that does not fit into an event"), FILCH_FOREVER);
    while (x->err == FILCH_OK);
}

static void begin_waiting(waiting *x, fixture *w, filch_pid to, void (*run)(void *))
{
    *x = (waiting){ .w = w, .to = to, .err = FILCH_EUSER };
    ok(fli_thread_start(&x->thread, "host", run, x));
}

/* ---- replies ---- */

TEST(a_thread_gets_the_reply_of_a_process)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_echo);
    for (int64_t i = 1; i <= fixture_scale(500, 20); i++) {
        filch_data reply = filch_none();
        ok(filch_call(w.sched, a.pid, filch_int(i), FILCH_FOREVER, &reply));
        same(filch_as_int(&reply), i + 1);
        ok(filch_call(w.sched, a.pid, filch_int(i), FILCH_SECONDS(60), NULL));
    }
    fixture_end(&w);
}

TEST(payloads_of_any_size_go_there_and_back)
{
    static char large[5000];
    fixture     w;
    actor       a = { 0 };
    memset(large, 'x', sizeof large - 1);
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_echo);
    filch_data reply = filch_none();
    ok(filch_call(w.sched, a.pid, filch_str("short"), FILCH_FOREVER, &reply));
    assert_string_equal(filch_text(&reply), "short");
    filch_drop(&reply);
    ok(filch_call(w.sched, a.pid, filch_str(large), FILCH_FOREVER, &reply));
    assert_string_equal(filch_text(&reply), large);
    filch_drop(&reply);
    /* the calling thread passes NULL for the reply, so the runtime frees the reply */
    ok(filch_call(w.sched, a.pid, filch_str(large), FILCH_FOREVER, NULL));
    fixture_end(&w);
}

TEST(a_receiver_may_forward_the_request)
{
    fixture w;
    actor   serves = { 0 }, passes = { .user = &serves };
    fixture_begin(&w, 2);
    actor_start(&w, &serves, play_serves);
    actor_start(&w, &passes, play_passes);
    filch_data reply = filch_none();
    ok(filch_call(w.sched, passes.pid, filch_int(1), FILCH_FOREVER, &reply));
    same(filch_as_int(&reply), 77);
    fixture_end(&w);
}

/* The process replies and ends in one step. The caller gets the exit notice before the queued reply; filch_call() must
 * return the reply nevertheless. */
TEST(a_reply_counts_although_the_process_ends_in_the_same_step)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    for (opt.batch_max = 1; opt.batch_max < 3; opt.batch_max++) {
        fixture w;
        fixture_begin_with(&w, 2, opt);
        for (uint32_t i = 0; i < fixture_scale(200, 10); i++) {
            actor      a = { 0 };
            filch_data reply = filch_none();
            actor_start(&w, &a, play_once);
            ok(filch_call(w.sched, a.pid, filch_int(1), FILCH_FOREVER, &reply));
            same(filch_as_int(&reply), 11);
            actor_ends(&w, &a, FILCH_OK);
        }
        fixture_end(&w);
    }
}

/* Replies to a number: to 1 with a text, to any other number with an error code. The reply states the waiting process
 * itself as its sender (`from`). */
static filch_err play_replies_as_caller(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        filch_package package = { .to = events[i].from, .from = events[i].from };
        package.data = filch_as_int(&events[i].data) == 1 ? filch_str("a text") : filch_int(FILCH_EEXISTS);
        me->note = filch_deliver(filch_out_sched(out), &package);
    }
    return filch_idle(out);
}

TEST(a_reply_that_names_the_waiting_process_as_its_sender_is_a_reply)
{
    fixture    w;
    actor      a = { 0 };
    filch_data reply = filch_none();
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_replies_as_caller);
    ok(filch_call(w.sched, a.pid, filch_int(1), FILCH_FOREVER, &reply));
    assert_string_equal(filch_text(&reply), "a text");
    filch_drop(&reply);
    ok(filch_call(w.sched, a.pid, filch_int(2), FILCH_FOREVER, &reply));
    same(filch_as_int(&reply), FILCH_EEXISTS);
    fixture_end(&w);
}

/* Replies to a message, then cancels the process that waits for the reply, in two ways, and ends. */
static filch_err play_replies_and_cancels(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (count == 0 || events[0].type != FILCH_EVENT_MESSAGE) return filch_idle(out);
    filch_sched *sched = filch_out_sched(out);
    filch_pid    from = events[0].from;
    me->note = filch_send(sched, from, filch_int(11));
    if (me->note == FILCH_OK) me->note = filch_cancel_with(sched, from, FILCH_EUSER, FILCH_FOREVER);
    if (me->note == FILCH_OK) me->note = filch_cancel(sched, from);
    return filch_done(out, filch_none());
}

TEST(a_reply_counts_although_cancels_and_an_exit_follow_it)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    for (opt.batch_max = 1; opt.batch_max < 3; opt.batch_max++) {
        fixture w;
        fixture_begin_with(&w, 1, opt); /* one worker: the reply and the cancels arrive before the next step */
        for (uint32_t i = 0; i < fixture_scale(200, 10); i++) {
            actor      a = { 0 };
            filch_data reply = filch_none();
            actor_start(&w, &a, play_replies_and_cancels);
            ok(filch_call(w.sched, a.pid, filch_int(1), FILCH_FOREVER, &reply));
            same(filch_as_int(&reply), 11);
            actor_ends(&w, &a, FILCH_OK);
            ok(a.note);
        }
        fixture_end(&w);
    }
}

/* Cancels the waiting process in each step, for ever. */
static filch_err cancel_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_pid *from = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) *from = events[i].from;
    }
    if (from->serial == 0) return filch_idle(out);
    (void)!filch_cancel(filch_out_sched(out), *from);
    return filch_continue(out);
}

TEST(a_receiver_that_cancels_the_waiting_process_again_and_again_does_not_keep_it)
{
    static const filch_type canceller = { .name = "canceller", .size = sizeof(filch_pid), .step = cancel_step };
    fixture                 w;
    filch_pid               pid;
    filch_data              reply = filch_none();
    fixture_begin(&w, 1);
    ok(filch_spawn(w.sched, &canceller, NULL, &pid));
    same(filch_call(w.sched, pid, filch_int(1), FILCH_SECONDS(100), &reply), FILCH_ECANCELLED);
    fixture_end(&w);
}

TEST(a_call_to_an_ended_process_or_one_that_ends_without_a_reply_fails)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_once);
    same(filch_call(w.sched, a.pid, filch_int(2), FILCH_FOREVER, NULL), FILCH_EDEAD);
    actor_ends(&w, &a, FILCH_OK);
    same(filch_call(w.sched, a.pid, filch_int(2), FILCH_FOREVER, NULL), FILCH_EDEAD);
    same(filch_call(w.sched, (filch_pid){ 0, 0 }, filch_int(2), FILCH_FOREVER, NULL), FILCH_EDEAD);
    same(filch_sched_wait(w.sched, a.pid, FILCH_FOREVER, NULL, NULL), FILCH_EDEAD);
    same(filch_send_wait(w.sched, a.pid, filch_int(2), FILCH_FOREVER), FILCH_EDEAD);
    fixture_end(&w);
}

TEST(a_pid_of_another_scheduler_needs_a_route)
{
    fixture       w, other;
    actor         a = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.node = 7;
    fixture_begin_with(&other, 1, opt);
    actor_start(&other, &a, play_once);
    opt.node = 8;
    fixture_begin_with(&w, 1, opt);
    same(filch_call(w.sched, a.pid, filch_int(1), FILCH_FOREVER, NULL), FILCH_EFOREIGN);
    same(filch_sched_wait(w.sched, a.pid, FILCH_FOREVER, NULL, NULL), FILCH_EFOREIGN);
    same(filch_send_wait(w.sched, a.pid, filch_int(1), FILCH_FOREVER), FILCH_EFOREIGN);
    fixture_end(&w);
    opt.node = 9;
    opt.route = filch_deliver;
    opt.route_user = other.sched;
    fixture_begin_with(&w, 1, opt);
    /* The request arrives, but the receiver's scheduler has no route to the caller's scheduler: the reply fails with
     * FILCH_EFOREIGN. */
    waiting x;
    begin_waiting(&x, &w, a.pid, call_one);
    actor_ends(&other, &a, FILCH_OK);
    same(a.note, FILCH_EFOREIGN);
    ok(filch_sched_close(w.sched, FILCH_SECONDS(60), NULL));
    fli_thread_join(&x.thread);
    same(x.err, FILCH_ECLOSED);
    fixture_end(&w);
    fixture_end(&other);
}

/* ---- deadlines ---- */

TEST(a_call_without_a_reply_ends_at_its_deadline)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_echo);
    same(filch_call(w.sched, a.pid, filch_int(0), 0, NULL), FILCH_EDEADLINE);
    same(filch_call(w.sched, a.pid, filch_int(0), 1, NULL), FILCH_EDEADLINE);
    same(filch_call(w.sched, a.pid, filch_int(0), FILCH_MILLISECONDS(2), NULL), FILCH_EDEADLINE);
    same(filch_sched_wait(w.sched, a.pid, 0, NULL, NULL), FILCH_EDEADLINE);
    same(filch_sched_wait(w.sched, a.pid, FILCH_MILLISECONDS(2), NULL, NULL), FILCH_EDEADLINE);
    UNTIL(&w, fixture_stats(&w).alive == 1); /* the helper processes of the waiting threads have ended by themselves */
    ok(filch_call(w.sched, a.pid, filch_int(1), UINT64_MAX - 1, NULL));
    fixture_end(&w);
}

/* The process stays in its step while the gate in `user` is closed. */
static filch_err play_at_gate(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    gate_pass(me->user);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE)
            me->note = filch_send(filch_out_sched(out), events[i].from, filch_str("late"));
    }
    return filch_idle(out);
}

TEST(a_deadline_holds_while_every_worker_is_inside_a_step)
{
    fixture w;
    gate    g = { 0 };
    actor   a = { .user = &g };
    gate_shut(&g);
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_at_gate);
    until(gate_is_waiting(&g));
    same(filch_call(w.sched, a.pid, filch_int(1), FILCH_MILLISECONDS(1), NULL), FILCH_EDEADLINE);
    same(filch_sched_wait(w.sched, a.pid, FILCH_MILLISECONDS(1), NULL, NULL), FILCH_EDEADLINE);
    gate_open(&g);
    fixture_end(&w);
}

/* The process gets the request, but replies only after the calling thread has given up. */
static filch_err play_late(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        if (events[i].from.serial != 0) me->seen[0].from = events[i].from;
        else
            me->note =
                filch_send(filch_out_sched(out), me->seen[0].from, filch_str("a reply that nobody waits for any more"));
    }
    return filch_idle(out);
}

TEST(a_reply_that_comes_too_late_is_refused_and_leaks_nothing)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_late);
    same(filch_call(w.sched, a.pid, filch_int(1), FILCH_MILLISECONDS(2), NULL), FILCH_EDEADLINE);
    UNTIL(&w, fixture_stats(&w).alive == 1);
    ok(filch_send(w.sched, a.pid, filch_int(2)));
    UNTIL(&w, fixture_stats(&w).undelivered == 1);
    fixture_end(&w);
    same(a.note, FILCH_EDEAD);
}

/* ---- exits ---- */

TEST(a_thread_waits_for_the_end_of_a_process_and_gets_its_result)
{
    fixture w;
    actor   a = { 0 }, b = { 0 };
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_once);
    actor_start(&w, &b, play_once);
    waiting for_a, for_b;
    begin_waiting(&for_a, &w, a.pid, wait_for_end);
    begin_waiting(&for_b, &w, b.pid, wait_for_end);
    UNTIL(&w, fixture_stats(&w).steps >= 4 && fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
    UNTIL(&w, fixture_stats(&w).alive == 4);
    /* When both workers are parked, the two helper processes of the waiting threads have run, and each monitors the
     * process for which its thread waits. */
    UNTIL(&w, fixture_stats(&w).asleep == 2);
    ok(filch_send(w.sched, a.pid, filch_int(2)));
    ok(filch_send(w.sched, b.pid, filch_int(3)));
    fli_thread_join(&for_a.thread);
    fli_thread_join(&for_b.thread);
    ok(for_a.err);
    ok(for_a.ended);
    assert_string_equal(filch_text(&for_a.reply), "the result");
    ok(for_b.err);
    same(for_b.ended, FILCH_EUSER + 3);
    assert_string_equal(filch_text(&for_b.reply), "why it failed");
    filch_drop(&for_a.reply);
    filch_drop(&for_b.reply);
    actor_ends(&w, &a, FILCH_OK);
    actor_ends(&w, &b, FILCH_EUSER + 3);
    fixture_end(&w);
}

TEST(a_process_that_fails_with_edead_is_told_apart_from_one_ended_before)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_once);
    waiting x;
    begin_waiting(&x, &w, a.pid, wait_for_end);
    UNTIL(&w, fixture_stats(&w).alive == 2 && fixture_stats(&w).steps >= 2);
    UNTIL(&w, fixture_stats(&w).asleep == 2); /* the monitor exists */
    ok(filch_send(w.sched, a.pid, filch_int(4)));
    fli_thread_join(&x.thread);
    ok(x.err);
    same(x.ended, FILCH_EDEAD);
    actor_ends(&w, &a, FILCH_EDEAD);
    same(filch_sched_wait(w.sched, a.pid, FILCH_FOREVER, NULL, NULL), FILCH_EDEAD);
    fixture_end(&w);
}

static filch_err play_result(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)count;
    return me->stage == 0 ? filch_done(out, filch_int(5)) : filch_fail(out, FILCH_EUSER, filch_str("detail"));
}

TEST(a_process_is_started_and_waited_for_in_one_call)
{
    fixture w;
    actor   a = { .play = play_result }, b = { .play = play_result, .stage = 1 }, c = { .play = play_idle };
    fixture_begin(&w, 1);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    filch_err           ended = FILCH_EUSER;
    filch_data          result = filch_none();
    opt.args = filch_ptr(&a);
    opt.on_exit = actor_exit;
    opt.on_exit_user = &a;
    ok(filch_spawn_wait(w.sched, &actor_type, &opt, FILCH_FOREVER, &pid, &ended, &result));
    ok(ended);
    same(filch_as_int(&result), 5);
    assert_true(same_pid(pid, a.pid));
    assert_true(is_over(&a));
    opt = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(&b);
    ok(filch_spawn_wait(w.sched, &actor_type, &opt, FILCH_FOREVER, NULL, &ended, &result));
    same(ended, FILCH_EUSER);
    assert_string_equal(filch_text(&result), "detail");
    filch_drop(&result);
    opt.args = filch_ptr(&c);
    same(filch_spawn_wait(w.sched, &actor_type, &opt, 0, &pid, NULL, NULL), FILCH_EDEADLINE);
    assert_true(same_pid(pid, c.pid)); /* filch_spawn_wait() has timed out, but process c was spawned and lives */
    same(filch_spawn_wait(w.sched, &actor_type, NULL, 0, NULL, NULL, NULL), FILCH_EINVAL);
    same(filch_spawn_wait(w.sched, NULL, NULL, 0, NULL, NULL, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

/* ---- space in a mailbox ---- */

TEST(a_thread_waits_for_room_in_a_mailbox)
{
    fixture w;
    gate    g = { 0 };
    actor   a = { .user = &g }, full = { .user = &g };
    gate_shut(&g);
    fixture_begin(&w, 2);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.mailbox_max = 1;
    opt.overflow = FILCH_OVERFLOW_WAIT;
    actor_start_with(&w, &a, play_at_gate, opt);
    until(gate_is_waiting(&g));
    /* the mailbox has space, so filch_send_wait() returns at once */
    ok(filch_send_wait(w.sched, a.pid, filch_int(1), FILCH_FOREVER));
    same(filch_send_wait(w.sched, a.pid, filch_int(2), 0), FILCH_EFULL);
    same(filch_send_wait(w.sched, a.pid, filch_int(2), FILCH_MILLISECONDS(1)), FILCH_EDEADLINE);
    opt.overflow = FILCH_OVERFLOW_FAIL;
    actor_start_with(&w, &full, play_idle, opt);
    gate_open(&g);
    ok(filch_send_wait(w.sched, a.pid, filch_int(3), FILCH_FOREVER));
    fixture_end(&w);
    fixture_begin(&w, 2);
    gate_shut(&g);
    full = (actor){ .user = &g };
    actor_start_with(&w, &full, play_at_gate, opt);
    until(gate_is_waiting(&g));
    ok(filch_send_wait(w.sched, full.pid, filch_int(1), FILCH_FOREVER));
    /* the overflow policy of `full` refuses messages, so the call does not wait */
    same(filch_send_wait(w.sched, full.pid, filch_int(2), FILCH_FOREVER), FILCH_EFULL);
    gate_open(&g);
    fixture_end(&w);
}

/* ---- stop ---- */

static filch_err play_deaf(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)count;
    (void)me;
    return me->stage++ == 0 ? filch_yield_sleep(out, 1, FILCH_SECONDS(3600)) | filch_wait(out) : filch_wait(out);
}

TEST(stop_ends_every_wait_with_eclosed)
{
    for (uint32_t i = 0; i < fixture_scale(30, 3); i++) {
        fixture w;
        actor   silent = { 0 }, deaf = { 0 };
        fixture_begin(&w, 2);
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.mailbox_max = 1;
        opt.overflow = FILCH_OVERFLOW_WAIT;
        actor_start_with(&w, &deaf, play_deaf, opt);
        actor_start(&w, &silent, play_echo);
        waiting all[4];
        begin_waiting(&all[0], &w, silent.pid, call_for_ever);
        begin_waiting(&all[1], &w, silent.pid, wait_for_end);
        begin_waiting(&all[2], &w, deaf.pid, send_for_ever);
        begin_waiting(&all[3], &w, deaf.pid, call_for_ever);
        UNTIL(&w, fixture_stats(&w).alive == 6);
        (void)filch_sched_close(w.sched, FILCH_MILLISECONDS(i % 3), NULL);
        for (size_t n = 0; n < 4; n++) {
            fli_thread_join(&all[n].thread);
            /* all[1] waits for the end of `silent`. If `silent` ends before the stop ends this wait, the wait returns
             * FILCH_OK. */
            bool ended = n == 1 && all[n].err == FILCH_OK;
            if (all[n].err != FILCH_ECLOSED && !ended)
                fail_msg("wait %zu ended with %s", n, filch_err_name(all[n].err));
            filch_drop(&all[n].reply);
        }
        same(filch_call(w.sched, silent.pid, filch_int(1), FILCH_FOREVER, NULL), FILCH_ECLOSED);
        same(filch_sched_wait(w.sched, silent.pid, FILCH_FOREVER, NULL, NULL), FILCH_ECLOSED);
        same(filch_send_wait(w.sched, silent.pid, filch_int(1), FILCH_FOREVER), FILCH_ECLOSED);
        (void)filch_sched_stop(w.sched, 0, NULL);
        same(fli_load_rlx(&w.bytes), 0);
    }
}

/* The process that is called is older than the helper processes of the calling threads. So the stop ends it first, and
 * the helper processes get its exit notice before their own cancel. */
TEST(calls_cut_off_by_stop_return_eclosed_and_not_edead)
{
    for (uint32_t i = 0; i < fixture_scale(20, 3); i++) {
        fixture w;
        actor   silent = { 0 };
        waiting all[4];
        fixture_begin(&w, 1);
        actor_start(&w, &silent, play_echo);
        for (size_t n = 0; n < COUNT_OF(all); n++) begin_waiting(&all[n], &w, silent.pid, call_for_ever);
        UNTIL(&w, fixture_stats(&w).sent >= COUNT_OF(all) && fixture_stats(&w).asleep == 1);
        ok(filch_sched_close(w.sched, FILCH_SECONDS(60), NULL));
        for (size_t n = 0; n < COUNT_OF(all); n++) {
            fli_thread_join(&all[n].thread);
            same(all[n].err, FILCH_ECLOSED);
        }
        fixture_end(&w);
    }
}

/* ---- requests to a supervisor ---- */

static filch_err idle_child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type idle_child = { .name = "child", .step = idle_child_step };

static FLI_ATOMIC(uint32_t) released;

static void release(const filch_child *child)
{
    (void)child;
    fli_add_rlx(&released, 1);
}

TEST(requests_to_a_supervisor_are_answered_to_a_thread)
{
    static const filch_child      first[] = { { .id = "first", .type = &idle_child } };
    static const filch_supervisor tree = { .children = first, .child_count = 1 };
    const filch_child             late = { .id = "late", .type = &idle_child, .release = release }, bad = { .id = "" };
    fixture                       w;
    filch_pid                     pid, child = { 0, 0 };
    filch_data                    list = filch_none();
    fixture_begin(&w, 2);
    fli_store_rlx(&released, 0);
    ok(filch_supervise(w.sched, &tree, NULL, &pid));
    ok(filch_child_await_wait(w.sched, pid, FILCH_FOREVER));
    ok(filch_child_start_wait(w.sched, pid, &late, FILCH_FOREVER, &child));
    (void)fixture_inspect(&w, child); /* fixture_inspect() fails if the child does not live */
    same(filch_child_start_wait(w.sched, pid, &late, FILCH_FOREVER, &child), FILCH_EEXISTS);
    same(filch_child_start_wait(w.sched, pid, &bad, FILCH_FOREVER, NULL), FILCH_EINVAL);
    assert_string_equal(filch_err_detail(), "child.id is NULL or not 1 to 63 bytes");
    ok(filch_child_list_wait(w.sched, pid, FILCH_FOREVER, &list));
    same(filch_size(&list), 2 * sizeof(filch_child_info));
    assert_string_equal(((const filch_child_info *)filch_raw(&list))[1].id, "late");
    filch_drop(&list);
    ok(filch_child_list_wait(w.sched, pid, FILCH_FOREVER, NULL));
    ok(filch_child_stop_wait(w.sched, pid, "late", FILCH_FOREVER));
    same(filch_child_stop_wait(w.sched, pid, "late", FILCH_FOREVER), FILCH_EDEAD);
    ok(filch_cancel(w.sched, pid));
    UNTIL(&w, fixture_stats(&w).alive == 0);
    same(filch_child_await_wait(w.sched, pid, FILCH_FOREVER), FILCH_EDEAD);
    same(filch_child_list_wait(w.sched, (filch_pid){ 0, 0 }, FILCH_FOREVER, NULL), FILCH_EDEAD);
    fixture_end(&w);
    same(fli_load_rlx(&released), 2); /* `release` was called for both children, also for the refused one */
}

/* Sends each message back to its sender, also a request that is meant for a supervisor. */
static filch_err echo_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) ok(filch_send(filch_out_sched(out), events[i].from, events[i].data));
    }
    return filch_idle(out);
}

/* Answers each message with bytes as large as those of a list of children. */
static filch_err bytes_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    static const char bytes[50 * sizeof(filch_child_info)];
    filch_data        data = filch_bytes(bytes, sizeof bytes);
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) ok(filch_send(filch_out_sched(out), events[i].from, data));
    }
    return filch_idle(out);
}

/* Answers each message with FILCH_EBUSY. A supervisor does this while another supervisor, which got the same request,
 * writes the answer. */
static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE)
            ok(filch_send(filch_out_sched(out), events[i].from, filch_int(FILCH_EBUSY)));
    }
    return filch_idle(out);
}

TEST(an_error_that_a_supervisor_sends_in_place_of_its_answer_is_the_error_of_the_call)
{
    static const filch_type busy = { .name = "busy", .step = busy_step };
    fixture                 w;
    filch_pid               pid;
    fixture_begin(&w, 2);
    ok(filch_spawn(w.sched, &busy, NULL, &pid));
    same(filch_child_stop_wait(w.sched, pid, "late", FILCH_FOREVER), FILCH_EBUSY);
    same(filch_child_await_wait(w.sched, pid, FILCH_FOREVER), FILCH_EBUSY);
    fixture_end(&w);
}

/* A thread sends its request to a process that is no supervisor, but answers the request. */
TEST(a_request_to_a_process_that_is_no_supervisor_fails_and_is_released)
{
    static const filch_type types[] = { { .name = "echo", .step = echo_step },
                                        { .name = "bytes", .step = bytes_step } };
    const filch_child       child = { .id = "late", .type = &idle_child, .release = release };
    fixture                 w;
    fixture_begin(&w, 2);
    fli_store_rlx(&released, 0);
    for (uint32_t i = 0; i < COUNT_OF(types); i++) {
        filch_pid  pid, started = { 7, 7 };
        filch_data list = filch_int(7);
        ok(filch_spawn(w.sched, &types[i], NULL, &pid));
        same(filch_child_start_wait(w.sched, pid, &child, FILCH_FOREVER, &started), FILCH_EINVAL);
        assert_non_null(strstr(filch_err_detail(), "supervisor is not a supervisor"));
        same(started.serial, 7);
        UNTIL(&w, fli_load_rlx(&released) == i + 1);
        same(filch_child_stop_wait(w.sched, pid, "late", FILCH_FOREVER), FILCH_EINVAL);
        same(filch_child_await_wait(w.sched, pid, FILCH_FOREVER), FILCH_EINVAL);
        same(filch_child_list_wait(w.sched, pid, FILCH_FOREVER, &list), FILCH_EINVAL);
        same(filch_as_int(&list), 7);
    }
    fixture_end(&w);
    same(fli_load_rlx(&released), COUNT_OF(types));
}

TEST(a_supervisor_without_children_has_an_empty_list)
{
    static const filch_supervisor tree = { 0 };
    fixture                       w;
    filch_pid                     pid;
    filch_data                    list = filch_int(7);
    fixture_begin(&w, 2);
    ok(filch_supervise(w.sched, &tree, NULL, &pid));
    ok(filch_child_list_wait(w.sched, pid, FILCH_FOREVER, &list));
    same(filch_kind_of(&list), FILCH_KIND_BYTES);
    same(filch_size(&list), 0);
    filch_drop(&list);
    fixture_end(&w);
}

/* An init function that fails with the error in its args. */
static filch_err refuse(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)method;
    return (filch_err)filch_as_int(args);
}

static const filch_type refusing = { .name = "refusing", .init = refuse, .step = idle_child_step };

/* An error code of filch_child_start_wait() can mean that the call failed, or that the supervisor answered with this
 * code. In both cases `release` must be called once. */
TEST(a_child_that_a_thread_starts_is_released_once_whatever_the_error)
{
    static const filch_supervisor tree = { 0 };
    static const filch_err        errors[] = { FILCH_EINVAL, FILCH_ENOMEM, FILCH_ESTATE, FILCH_ELIMIT, FILCH_EUSER };
    const filch_child             bad = { .id = "", .release = release };
    filch_spawn_options           opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_child                   child = { .id = "late", .type = &refusing, .options = &opt, .release = release };
    fixture                       w;
    filch_pid                     pid;
    uint32_t                      calls = 0;
    fixture_begin(&w, 2);
    fli_store_rlx(&released, 0);
    ok(filch_supervise(w.sched, &tree, NULL, &pid));
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        opt.args = filch_int(errors[i]);
        same(filch_child_start_wait(w.sched, pid, &child, FILCH_FOREVER, NULL), errors[i]);
        calls++;
        UNTIL(&w, fli_load_rlx(&released) == calls);
    }
    same(filch_child_start_wait(w.sched, pid, &bad, FILCH_FOREVER, NULL), FILCH_EINVAL);
    same(fli_load_rlx(&released), ++calls);
    same(filch_child_start_wait(w.sched, (filch_pid){ 0, 0 }, &child, FILCH_FOREVER, NULL), FILCH_EDEAD);
    same(fli_load_rlx(&released), ++calls);
    same(filch_child_start_wait(NULL, pid, &child, FILCH_FOREVER, NULL), FILCH_EINVAL);
    ok(filch_sched_close(w.sched, FILCH_SECONDS(60), NULL));
    same(filch_child_start_wait(w.sched, pid, &child, FILCH_FOREVER, NULL), FILCH_ECLOSED);
    same(fli_load_rlx(&released), ++calls);
    fixture_end(&w);
    same(fli_load_rlx(&released), calls);
}

/* What the request function of filch_call_with() finds in its argument. The argument is memory of the calling thread
 * and is invalid after the call has returned. */
typedef struct lent {
    FLI_ATOMIC(uint32_t) asked;
    bool                 gone;
    gate                *g;
} lent;

static filch_err ask_slowly(filch_sched *sched, filch_pid to, void *arg)
{
    lent *l = arg;
    fli_add_rlx(&l->asked, 1);
    gate_pass(l->g);
    return l->gone ? FILCH_EUSER : filch_send(sched, to, filch_int(0));
}

TEST(an_error_of_the_request_function_is_the_error_of_the_call)
{
    fixture w;
    gate    g = { 0 };
    actor   a = { 0 };
    lent    l = { .gone = true, .g = &g };
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_echo);
    same(filch_call_with(w.sched, a.pid, ask_slowly, &l, FILCH_FOREVER, NULL), FILCH_EUSER);
    same(fli_load_rlx(&l.asked), 1);
    same(filch_call_with(w.sched, a.pid, NULL, &l, FILCH_FOREVER, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

/* ---- wrong threads ---- */

typedef struct asked {
    filch_sched *sched;
    filch_pid    to;
    filch_err    errs[6];
} asked;

static void make_all_waits(asked *x)
{
    x->errs[0] = filch_call(x->sched, x->to, filch_int(1), FILCH_FOREVER, NULL);
    x->errs[1] = filch_send_wait(x->sched, x->to, filch_int(1), FILCH_FOREVER);
    x->errs[2] = filch_sched_wait(x->sched, x->to, FILCH_FOREVER, NULL, NULL);
    x->errs[4] = filch_call_with(x->sched, x->to, ask_slowly, NULL, FILCH_FOREVER, NULL);
    x->errs[5] = filch_child_await_wait(x->sched, x->to, FILCH_FOREVER);
    x->errs[3] = filch_spawn_wait(x->sched, &actor_type, NULL, FILCH_FOREVER, NULL, NULL, NULL);
}

static void all_refused(const asked *x)
{
    for (size_t i = 0; i < COUNT_OF(x->errs); i++) same(x->errs[i], FILCH_ESTATE);
}

static filch_err play_waits_in_step(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    (void)count;
    make_all_waits(me->user);
    return filch_yield(out, FILCH_CMD_USER, 1, filch_none()) | filch_done(out, filch_none());
}

static filch_err handler_waits(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)command;
    make_all_waits(user);
    (void)!filch_complete(receiver, tag, filch_none(), FILCH_OK);
    return FILCH_OK;
}

static void exit_waits(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    actor *me = user;
    make_all_waits((asked *)me->user + 2);
    actor_exit(user, pid, error, result);
}

TEST(waits_on_a_worker_thread_are_refused)
{
    fixture       w, other;
    actor         target = { 0 }, waiting_actor = { 0 }, unrelated = { 0 };
    asked         xs[3] = { 0 }, elsewhere = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&opt.registry));
    ok(filch_registry_add(opt.registry, FILCH_CMD_USER, handler_waits, &xs[1]));
    fixture_begin_with(&w, 1, opt);
    filch_registry_destroy(opt.registry);
    opt.registry = NULL;
    fixture_begin_with(&other, 1, opt);
    actor_start(&w, &target, play_echo);
    for (size_t i = 0; i < 3; i++) xs[i] = (asked){ .sched = w.sched, .to = target.pid };
    elsewhere = (asked){ .sched = w.sched, .to = target.pid };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    waiting_actor.play = play_waits_in_step;
    waiting_actor.user = xs;
    spawn.args = filch_ptr(&waiting_actor);
    spawn.on_exit = exit_waits;
    spawn.on_exit_user = &waiting_actor;
    ok(filch_spawn(w.sched, &actor_type, &spawn, NULL));
    actor_ends(&w, &waiting_actor, FILCH_OK);
    for (size_t i = 0; i < 3; i++) all_refused(&xs[i]);
    unrelated.user = &elsewhere; /* `unrelated` runs on a worker of another scheduler */
    actor_start(&other, &unrelated, play_waits_in_step);
    actor_ends(&other, &unrelated, FILCH_OK);
    all_refused(&elsewhere);
    fixture_end(&w);
    fixture_end(&other);
}

TEST(waits_of_a_thread_are_refused_without_workers)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_echo);
    asked x = { .sched = w.sched, .to = a.pid };
    make_all_waits(&x);
    all_refused(&x);
    fixture_end(&w);
}

static filch_err scenario(filch_sched *sched, void *user)
{
    asked *x = user;
    x->sched = sched;
    make_all_waits(x);
    return FILCH_OK;
}

TEST(a_simulation_names_the_wait_that_it_refuses)
{
    asked            x = { 0 };
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(NULL, scenario, &x, &report));
    all_refused(&x);
    same(report.verdict, FILCH_SIM_REFUSED);
    assert_non_null(strstr(report.text, "filch_call"));
    filch_sim_report_free(&report);
}

/* ---- bad input ---- */

/* Ends the helper process of the calling thread, in the way that `stage` selects. */
static filch_err play_ends_caller(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        filch_sched *sched = filch_out_sched(out);
        me->note = me->stage == 0 ? filch_cancel(sched, events[i].from) : filch_terminate(sched, events[i].from);
    }
    return filch_idle(out);
}

TEST(ending_the_waiting_process_ends_the_wait)
{
    fixture w;
    actor   cancels = { 0 }, kills = { .stage = 1 };
    fixture_begin(&w, 2);
    actor_start(&w, &cancels, play_ends_caller);
    actor_start(&w, &kills, play_ends_caller);
    same(filch_call(w.sched, cancels.pid, filch_int(1), FILCH_FOREVER, NULL), FILCH_ECANCELLED);
    same(filch_call(w.sched, kills.pid, filch_int(1), FILCH_FOREVER, NULL), FILCH_EKILLED);
    fixture_end(&w);
}

/* Returns the pid of the helper process by which a thread waits in filch_sched_wait(). No call returns this pid, so
 * this function searches for the helper process in the slots behind the slot of `other`. */
static filch_pid find_caller(filch_sched *sched, filch_pid other)
{
    filch_info info = { .size = sizeof info };
    for (uint64_t distance = 1; distance < 100; distance++) {
        filch_pid pid = { other.node, other.serial + distance };
        if (filch_inspect(sched, pid, &info) == FILCH_OK && strcmp(info.name, "filch.call") == 0) return pid;
    }
    return (filch_pid){ 0, 0 };
}

TEST(a_message_to_a_guessed_pid_does_not_end_a_wait_for_an_end)
{
    fixture w;
    gate    g = { 0 };
    actor   first = { 0 }, a = { .user = &g };
    waiting x;
    fixture_begin(&w, 1);
    actor_start(&w, &first, play_once);
    gate_shut(&g);
    actor_start(&w, &a, play_at_gate);
    until(gate_is_waiting(&g));
    begin_waiting(&x, &w, first.pid, wait_for_end);
    until(find_caller(w.sched, first.pid).serial != 0);
    /* the worker stands at the gate, so both messages arrive before the first step of the helper process */
    filch_pid caller = find_caller(w.sched, first.pid);
    ok(filch_send(w.sched, caller, filch_int(5)));
    ok(filch_deliver(w.sched, &(filch_package){ .to = caller, .from = caller, .data = filch_int(FILCH_EEXISTS) }));
    gate_open(&g);
    ok(filch_send(w.sched, first.pid, filch_int(2)));
    fli_thread_join(&x.thread);
    ok(x.err);
    assert_string_equal(filch_text(&x.reply), "the result");
    filch_drop(&x.reply);
    fixture_end(&w);
}

TEST(a_call_with_bad_arguments_changes_nothing)
{
    fixture       w;
    actor         a = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    char         *bytes = strdup("moved");
    opt.payload_max = 8;
    opt.max_processes = 1;
    fixture_begin_with(&w, 1, opt);
    actor_start(&w, &a, play_echo);
    same(filch_call(NULL, a.pid, filch_int(1), 0, NULL), FILCH_EINVAL);
    same(filch_send_wait(NULL, a.pid, filch_int(1), 0), FILCH_EINVAL);
    same(filch_sched_wait(NULL, a.pid, 0, NULL, NULL), FILCH_EINVAL);
    same(filch_spawn_wait(NULL, &actor_type, NULL, 0, NULL, NULL, NULL), FILCH_EINVAL);
    same(filch_call(w.sched, a.pid, filch_move(bytes, 6, NULL), 0, NULL), FILCH_EINVAL);
    same(filch_send_wait(w.sched, a.pid, filch_move(bytes, 6, NULL), 0), FILCH_EINVAL);
    same(filch_call(w.sched, a.pid, filch_bytes(NULL, 1), FILCH_FOREVER, NULL), FILCH_EINVAL);
    same(filch_call(w.sched, a.pid, filch_str("123456789"), FILCH_FOREVER, NULL), FILCH_ETOOBIG);
    same(filch_send_wait(w.sched, a.pid, filch_str("123456789"), FILCH_FOREVER), FILCH_ETOOBIG);
    same(filch_call(w.sched, a.pid, filch_int(1), FILCH_FOREVER, NULL), FILCH_ELIMIT);
    free(bytes); /* the calls were refused, so this test still owns `bytes` */
    fixture_end(&w);
}

/* ---- no memory ---- */

TEST(a_call_without_memory_returns_enomem_and_leaks_nothing)
{
    test_alloc    alloc = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = 1;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    for (uint64_t nth = 1, failed = 1; failed > 0; nth++) {
        fixture w = { 0 };
        actor   a = { 0 };
        ok(filch_sched_create(&w.sched, &opt));
        actor_start(&w, &a, play_echo);
        UNTIL(&w, fixture_stats(&w).steps > 0 && fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
        uint64_t before = atomic_load(&alloc.refused);
        test_alloc_fail(&alloc, nth, false);
        filch_data reply = filch_none();
        filch_err  err =
            filch_call(w.sched, a.pid, filch_str("a text that does not fit into an event"), FILCH_FOREVER, &reply);
        if (err != FILCH_OK) same(err, FILCH_ENOMEM);
        filch_drop(&reply);
        err = filch_sched_wait(w.sched, a.pid, 0, NULL, NULL);
        if (err != FILCH_EDEADLINE) same(err, FILCH_ENOMEM);
        filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
        actor               b = { .play = play_result };
        spawn.args = filch_ptr(&b);
        err = filch_spawn_wait(w.sched, &actor_type, &spawn, FILCH_FOREVER, NULL, NULL, NULL);
        if (err != FILCH_OK) same(err, FILCH_ENOMEM);
        test_alloc_fail(&alloc, 0, false);
        failed = atomic_load(&alloc.refused) - before;
        ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
        test_alloc_balanced(&alloc);
    }
}

typedef struct hour {
    fixture         *w;
    filch_pid        to;
    bool             calls; /* true: filch_call; false: filch_sched_wait */
    filch_err        err;
    FLI_ATOMIC(bool) over;
    fli_thread       thread;
} hour;

static void wait_an_hour(void *arg)
{
    hour          *h = arg;
    const uint64_t hour_ns = FILCH_SECONDS(3600);
    if (h->calls) h->err = filch_call(h->w->sched, h->to, filch_int(1), hour_ns, NULL);
    else h->err = filch_sched_wait(h->w->sched, h->to, hour_ns, NULL, NULL);
    fli_store_rel(&h->over, true);
}

/* Waits for at most an hour, and lets allocation number `nth` of the wait fail. Returns true if that allocation was
 * made. */
static bool wait_without_memory(const filch_options *opt, test_alloc *alloc, bool calls, uint64_t nth)
{
    fixture w = { 0 };
    actor   a = { 0 };
    ok(filch_sched_create(&w.sched, opt));
    actor_start(&w, &a, calls ? play_late : play_once);
    UNTIL(&w, fixture_stats(&w).steps > 0 && fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
    uint64_t before = atomic_load(&alloc->refused);
    hour     h = { .w = &w, .to = a.pid, .calls = calls };
    test_alloc_fail(alloc, nth, false);
    ok(fli_thread_start(&h.thread, "host", wait_an_hour, &h));
    until(fli_load_acq(&h.over) || fixture_stats(&w).timers == 1); /* 1: the timer for the deadline runs */
    test_alloc_fail(alloc, 0, false);
    bool failed = atomic_load(&alloc->refused) > before;
    until(
        ((void)!filch_send(w.sched, a.pid, filch_int(2)), fli_load_acq(&h.over))); /* makes the process reply or end */
    fli_thread_join(&h.thread);
    /* FILCH_EDEADLINE would come an hour too early */
    if (h.err != FILCH_OK) same(h.err, FILCH_ENOMEM);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    test_alloc_balanced(alloc);
    return failed;
}

TEST(a_wait_without_memory_for_its_deadline_returns_enomem)
{
    test_alloc    alloc = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = 1;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    for (int calls = 0; calls < 2; calls++) {
        for (uint64_t nth = 1; wait_without_memory(&opt, &alloc, calls == 1, nth);) nth++;
    }
}

/* ---- many callers ---- */

static void call_often(void *arg)
{
    waiting *x = arg;
    for (int64_t i = 1; i <= fixture_scale(300, 20); i++) {
        filch_data reply = filch_none();
        x->err =
            filch_call(x->w->sched, x->to, filch_int(i), i % 3 == 0 ? FILCH_MICROSECONDS(20) : FILCH_FOREVER, &reply);
        if (x->err == FILCH_EDEADLINE && i % 3 == 0) x->err = FILCH_OK;
        else if (x->err == FILCH_OK && filch_as_int(&reply) != i + 1) x->err = FILCH_EUSER;
        if (x->err != FILCH_OK) return;
    }
}

TEST(many_threads_call_at_once)
{
    fixture w;
    actor   a = { 0 };
    waiting all[6];
    fixture_begin(&w, 2);
    actor_start(&w, &a, play_echo);
    for (size_t i = 0; i < COUNT_OF(all); i++) begin_waiting(&all[i], &w, a.pid, call_often);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        fli_thread_join(&all[i].thread);
        ok(all[i].err);
    }
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_gets_the_reply_of_a_process),
        cmocka_unit_test(payloads_of_any_size_go_there_and_back),
        cmocka_unit_test(a_receiver_may_forward_the_request),
        cmocka_unit_test(a_reply_counts_although_the_process_ends_in_the_same_step),
        cmocka_unit_test(a_reply_that_names_the_waiting_process_as_its_sender_is_a_reply),
        cmocka_unit_test(a_reply_counts_although_cancels_and_an_exit_follow_it),
        cmocka_unit_test(a_receiver_that_cancels_the_waiting_process_again_and_again_does_not_keep_it),
        cmocka_unit_test(a_call_to_an_ended_process_or_one_that_ends_without_a_reply_fails),
        cmocka_unit_test(a_pid_of_another_scheduler_needs_a_route),
        cmocka_unit_test(a_call_without_a_reply_ends_at_its_deadline),
        cmocka_unit_test(a_deadline_holds_while_every_worker_is_inside_a_step),
        cmocka_unit_test(a_reply_that_comes_too_late_is_refused_and_leaks_nothing),
        cmocka_unit_test(a_thread_waits_for_the_end_of_a_process_and_gets_its_result),
        cmocka_unit_test(a_process_that_fails_with_edead_is_told_apart_from_one_ended_before),
        cmocka_unit_test(a_process_is_started_and_waited_for_in_one_call),
        cmocka_unit_test(a_thread_waits_for_room_in_a_mailbox),
        cmocka_unit_test(stop_ends_every_wait_with_eclosed),
        cmocka_unit_test(calls_cut_off_by_stop_return_eclosed_and_not_edead),
        cmocka_unit_test(an_error_that_a_supervisor_sends_in_place_of_its_answer_is_the_error_of_the_call),
        cmocka_unit_test(a_request_to_a_process_that_is_no_supervisor_fails_and_is_released),
        cmocka_unit_test(a_supervisor_without_children_has_an_empty_list),
        cmocka_unit_test(requests_to_a_supervisor_are_answered_to_a_thread),
        cmocka_unit_test(a_child_that_a_thread_starts_is_released_once_whatever_the_error),
        cmocka_unit_test(an_error_of_the_request_function_is_the_error_of_the_call),
        cmocka_unit_test(waits_on_a_worker_thread_are_refused),
        cmocka_unit_test(waits_of_a_thread_are_refused_without_workers),
        cmocka_unit_test(a_simulation_names_the_wait_that_it_refuses),
        cmocka_unit_test(ending_the_waiting_process_ends_the_wait),
        cmocka_unit_test(a_message_to_a_guessed_pid_does_not_end_a_wait_for_an_end),
        cmocka_unit_test(a_call_with_bad_arguments_changes_nothing),
        cmocka_unit_test(a_call_without_memory_returns_enomem_and_leaks_nothing),
        cmocka_unit_test(a_wait_without_memory_for_its_deadline_returns_enomem),
        cmocka_unit_test(many_threads_call_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
