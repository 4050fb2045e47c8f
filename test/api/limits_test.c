/* limits_test.c - mailboxes with a limit: the five overflow policies, as observed by the sender, by the receiver, and
 * by filch_inspect. */
#include "api/fixture.h"
#include "support/until.h"

static fixture w;

static filch_spawn_options limited(uint32_t overflow, uint32_t max, size_t bytes)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.overflow = overflow;
    opt.mailbox_max = max;
    opt.mailbox_bytes = bytes;
    return opt;
}

static void actor_stop(actor *a)
{
    ok(filch_cancel(w.sched, a->pid));
    actor_ends(&w, a, FILCH_OK);
}

/* Sends the numbers [from, from + n); each send must return `expected`. */
static void send_numbers(actor *to, int from, int n, filch_err expected)
{
    for (int i = 0; i < n; i++) same(filch_send(w.sched, to->pid, filch_int(from + i)), expected);
}

TEST(the_largest_limit_is_accepted_and_a_larger_one_refused)
{
    actor               a = { .stage = 0 };
    filch_spawn_options largest = limited(FILCH_OVERFLOW_FAIL, 8388607, 0), larger = largest;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, largest);
    larger.mailbox_max++;
    same(filch_spawn(w.sched, &actor_type, &larger, NULL), FILCH_EINVAL);
    actor_stop(&a);
    fixture_end(&w);
}

/* ---- what each overflow policy does, seen by sender and receiver ---- */

TEST(fail_and_wait_return_efull_to_a_direct_send)
{
    static const uint32_t policies[] = { FILCH_OVERFLOW_FAIL, FILCH_OVERFLOW_WAIT };
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        actor a = { .stage = 0 };
        fixture_begin(&w, FILCH_NO_WORKERS);
        actor_start_with(&w, &a, play_idle, limited(policies[i], 10, 0));
        send_numbers(&a, 0, 10, FILCH_OK);
        same(fixture_inspect(&w, a.pid).messages, 10);
        send_numbers(&a, 10, 5, FILCH_EFULL);
        same(fixture_inspect(&w, a.pid).messages, 10);
        filch_stats stats = fixture_stats(&w);
        same(stats.sent, 10);
        same(stats.refused, 5);
        same(stats.dropped, 0);
        (void)fixture_tick(&w);
        same(fixture_inspect(&w, a.pid).messages, 0);
        same(a.seen_count, 10);             /* no message was dropped, so there is no DROPPED event */
        send_numbers(&a, 20, 10, FILCH_OK); /* the process has read its messages, so the mailbox has space again */
        actor_stop(&a);
        fixture_end(&w);
    }
}

TEST(drop_newest_returns_edropped_and_reports_the_count_to_the_receiver)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_DROP_NEWEST, 3, 0));
    send_numbers(&a, 0, 3, FILCH_OK);
    send_numbers(&a, 3, 4, FILCH_EDROPPED);
    filch_info info = fixture_inspect(&w, a.pid);
    same(info.messages, 3);
    same(info.dropped, 4);
    (void)fixture_tick(&w);
    same(a.seen_count, 4);
    same(a.seen[0].type, FILCH_EVENT_DROPPED);
    same(a.seen[0].kind, FILCH_KIND_INT);
    same(a.seen[0].number, 4);
    /* the messages 0 to 2 were kept, and the four newer messages were dropped */
    for (int i = 0; i < 3; i++) same(a.seen[1 + i].number, i);
    filch_stats stats = fixture_stats(&w);
    same(stats.sent, 3);
    same(stats.dropped, 4);
    same(stats.refused, 0);
    same(fixture_inspect(&w, a.pid).dropped, 4); /* counts all drops since the spawn, also those that were reported */

    send_numbers(&a, 10, 3, FILCH_OK);
    send_numbers(&a, 13, 1, FILCH_EDROPPED);
    (void)fixture_tick(&w);
    same(a.seen[4].type, FILCH_EVENT_DROPPED);
    same(a.seen[4].number, 1); /* the DROPPED event has the number of drops since the last DROPPED event */
    same(fixture_inspect(&w, a.pid).dropped, 5);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(drop_oldest_accepts_new_messages_and_reports_the_count)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_DROP_OLDEST, 5, 0));
    send_numbers(&a, 0, 9, FILCH_OK);
    (void)fixture_tick(&w);
    same(a.seen_count, 6);
    same(a.seen[0].type, FILCH_EVENT_DROPPED);
    same(a.seen[0].number, 4);
    for (int i = 0; i < 5; i++) same(a.seen[1 + i].number, 4 + i); /* the five newest messages were kept */
    same(fixture_stats(&w).dropped, 4);
    same(fixture_inspect(&w, a.pid).dropped, 4);
    same(fixture_inspect(&w, a.pid).messages, 0);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(drop_oldest_refuses_the_newest_at_twice_the_limit)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_DROP_OLDEST, 5, 0));
    send_numbers(&a, 0, 10, FILCH_OK); /* the mailbox is trimmed to 5 messages only when the process runs */
    same(fixture_inspect(&w, a.pid).messages, 10);
    send_numbers(&a, 10, 3, FILCH_EDROPPED);
    (void)fixture_tick(&w);
    same(a.seen_count, 6);
    same(a.seen[0].type, FILCH_EVENT_DROPPED);
    same(a.seen[0].number, 8);
    for (int i = 0; i < 5; i++) same(a.seen[1 + i].number, 5 + i);
    same(fixture_stats(&w).dropped, 8);
    actor_stop(&a);
    fixture_end(&w);
}

static FLI_ATOMIC(int) inside;

static filch_err play_held(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && events[0].type == FILCH_EVENT_MESSAGE && me->stage++ == 0) {
        fli_store_rel(&inside, 1);
        while (fli_load_acq(&inside) != 2) yield_slice();
    }
    return play_idle(me, events, count, out);
}

TEST(a_drop_during_a_step_is_reported_before_the_process_idles)
{
    actor a = { .stage = 0 };
    fli_store_rel(&inside, 0);
    fixture_begin(&w, 1);
    actor_start_with(&w, &a, play_held, limited(FILCH_OVERFLOW_DROP_NEWEST, 1, 0));
    UNTIL(&w, fixture_inspect(&w, a.pid).state == FILCH_STATE_IDLE);
    send_numbers(&a, 0, 1, FILCH_OK);
    while (fli_load_acq(&inside) != 1) yield_slice();
    send_numbers(&a, 1, 2, FILCH_EDROPPED); /* the message that the step is reading still occupies the mailbox */
    fli_store_rel(&inside, 2);
    /* the third step gets the event DROPPED, although no further message has arrived */
    UNTIL(&w, fixture_stats(&w).steps == 3);
    actor_stop(&a);
    same(a.seen[1].type, FILCH_EVENT_DROPPED);
    same(a.seen[1].number, 2);
    fixture_end(&w);
}

TEST(stop_ends_the_receiver_with_overflow)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_STOP, 4, 0));
    (void)fixture_tick(&w);
    send_numbers(&a, 0, 4, FILCH_OK);
    send_numbers(&a, 4, 1, FILCH_EFULL);
    actor_ends(&w, &a, FILCH_EOVERFLOW);
    same(a.steps, 1); /* the process was ended without another step */
    filch_stats stats = fixture_stats(&w);
    same(stats.refused, 1);
    same(stats.undelivered, 4);
    same(stats.failed, 1);
    send_numbers(&a, 5, 1, FILCH_EDEAD);
    fixture_end(&w);
}

/* ---- bytes ---- */

TEST(a_limit_in_bytes_counts_payloads_and_releases_the_space)
{
    static char bytes[1000];
    actor       a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_FAIL, 0, 1600));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 16)));
        same(filch_send(w.sched, a.pid, filch_bytes(bytes, 16)), FILCH_EFULL);
        same(filch_send(w.sched, a.pid, filch_bytes(bytes, 1)), FILCH_EFULL);
        ok(filch_send(w.sched, a.pid, filch_int(1))); /* a value message uses no bytes of the limit */
        same(fixture_inspect(&w, a.pid).messages, 101);
        (void)fixture_tick(&w);
        same(fixture_inspect(&w, a.pid).messages, 0);
        ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 1000)));
        same(filch_send(w.sched, a.pid, filch_bytes(bytes, 1000)), FILCH_EFULL);
        ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 592)));
        (void)fixture_tick(&w);
    }
    actor_stop(&a);
    fixture_end(&w);
}

TEST(drop_oldest_in_bytes_drops_until_the_newest_fit)
{
    static char bytes[64];
    actor       a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_idle, limited(FILCH_OVERFLOW_DROP_OLDEST, 0, 64));
    for (int i = 0; i < 4; i++) ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 16)));
    ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 64)));
    (void)fixture_tick(&w);
    same(a.seen_count, 2);
    same(a.seen[0].type, FILCH_EVENT_DROPPED);
    same(a.seen[0].number, 4);
    same(a.seen[1].kind, FILCH_KIND_BYTES);
    actor_stop(&a);
    fixture_end(&w);
}

static filch_err play_send_big(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char bytes[4096];
    actor      *to = me->user;
    if (me->stage++ == 0) {
        filch_err err = filch_yield_send(out, 3, to->pid, filch_bytes(bytes, sizeof bytes));
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    return count == 1 && events[0].type == FILCH_EVENT_YIELD ? events[0].error : FILCH_EUSER;
}

TEST(a_payload_that_can_never_fit_is_too_big_under_every_policy)
{
    static char bytes[4096];
    for (uint32_t policy = FILCH_OVERFLOW_FAIL; policy <= FILCH_OVERFLOW_STOP; policy++) {
        actor a = { .stage = 0 }, b = { .user = &a };
        fixture_begin(&w, FILCH_NO_WORKERS);
        actor_start_with(&w, &a, play_idle, limited(policy, 0, 1024));
        same(filch_send(w.sched, a.pid, filch_bytes(bytes, sizeof bytes)), FILCH_ETOOBIG);
        actor_start(&w, &b, play_send_big);
        /* the completion of the yielded send had the error FILCH_ETOOBIG, and the process ended with it */
        actor_ends(&w, &b, FILCH_ETOOBIG);
        same(fixture_inspect(&w, a.pid).messages, 0);
        same(fixture_inspect(&w, a.pid).dropped, 0);
        ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 1024))); /* 1024 bytes just fit */
        actor_stop(&a);
        fixture_end(&w);
    }
}

static filch_err play_send_one(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    actor *to = me->user;
    if (me->stage++ == 0) {
        filch_err err = filch_yield_send(out, 3, to->pid, filch_int(99));
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    if (count != 1 || events[0].type != FILCH_EVENT_YIELD || events[0].tag != 3) return FILCH_EUSER;
    return events[0].error != FILCH_OK ? events[0].error : filch_done(out, filch_none());
}

TEST(a_yielded_send_to_an_ended_process_is_an_error_event)
{
    actor a = { .stage = 0 }, b = { .user = &a };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    actor_stop(&a);
    actor_start(&w, &b, play_send_one);
    actor_ends(&w, &b, FILCH_EDEAD);
    same(fixture_stats(&w).undelivered, 1);
    actor c = { .user = &a };
    a.pid.node++;
    actor_start(&w, &c, play_send_one);
    actor_ends(&w, &c, FILCH_EFOREIGN);
    fixture_end(&w);
}

/* ---- events that a full mailbox accepts ---- */

static filch_receiver kept_receiver;

static filch_err handle_keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    kept_receiver = receiver;
    return FILCH_OK;
}

static void begin_with_handler_and(int32_t workers, filch_options opt)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle_keep, NULL));
    opt.registry = registry;
    fixture_begin_with(&w, workers, opt);
    filch_registry_destroy(registry);
}

static void begin_with_handler(int32_t workers)
{
    begin_with_handler_and(workers, (filch_options)FILCH_OPTIONS_INIT);
}

/* The process waits for the completion of its yield, and then idles. */
static filch_err play_wait(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD) me->stage = 2;
        if (events[i].type == FILCH_EVENT_CANCEL && me->stage == 2) return filch_done(out, filch_none());
    }
    if (me->stage == 0) {
        me->stage = 1;
        me->note = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    }
    return me->stage == 1 ? filch_wait(out) : filch_idle(out);
}

TEST(a_yielded_send_gets_the_result_of_the_overflow_policy)
{
    static const struct {
        uint32_t  policy;
        filch_err error;
    } cases[] = { { FILCH_OVERFLOW_FAIL, FILCH_EFULL },
                  { FILCH_OVERFLOW_DROP_NEWEST, FILCH_EDROPPED },
                  { FILCH_OVERFLOW_DROP_OLDEST, FILCH_OK },
                  { FILCH_OVERFLOW_STOP, FILCH_EFULL } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        actor a = { .stage = 0 }, b = { .user = &a };
        begin_with_handler(FILCH_NO_WORKERS);
        actor_start_with(&w, &a, play_wait, limited(cases[i].policy, 1, 0));
        (void)fixture_tick(&w);
        send_numbers(&a, 0, 1, FILCH_OK);
        actor_start(&w, &b, play_send_one);
        actor_ends(&w, &b, cases[i].error);
        filch_stats stats = fixture_stats(&w);
        same(stats.refused, cases[i].error == FILCH_EFULL ? 1 : 0);
        if (cases[i].policy == FILCH_OVERFLOW_STOP) {
            actor_ends(&w, &a, FILCH_EOVERFLOW);
        } else {
            same(stats.dropped, cases[i].policy == FILCH_OVERFLOW_FAIL ? 0 : 1);
            ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
            (void)fixture_tick(&w);
            same(a.seen[a.seen_count - 1].number, cases[i].policy == FILCH_OVERFLOW_DROP_OLDEST ? 99 : 0);
            actor_stop(&a);
        }
        fixture_end(&w);
    }
}

TEST(cancels_and_completions_pass_a_full_mailbox)
{
    for (uint32_t policy = FILCH_OVERFLOW_FAIL; policy <= FILCH_OVERFLOW_DROP_NEWEST; policy++) {
        actor a = { .stage = 0 };
        begin_with_handler(FILCH_NO_WORKERS);
        actor_start_with(&w, &a, play_wait, limited(policy, 1, 0));
        (void)fixture_tick(&w);
        send_numbers(&a, 0, 1, FILCH_OK);
        send_numbers(&a, 1, 1, policy == FILCH_OVERFLOW_DROP_NEWEST ? FILCH_EDROPPED : FILCH_EFULL);
        ok(filch_cancel(w.sched, a.pid));
        (void)fixture_tick(&w);
        same(a.seen_count, 1);
        same(a.seen[0].type, FILCH_EVENT_CANCEL);
        ok(filch_complete(kept_receiver, 1, filch_int(5), FILCH_OK));
        (void)fixture_tick(&w);
        same(a.seen[1].type, FILCH_EVENT_YIELD);
        same(a.seen[1].number, 5);
        same(a.seen[a.seen_count - 1].type, FILCH_EVENT_MESSAGE);
        same(fixture_inspect(&w, a.pid).messages, 0);
        actor_stop(&a);
        fixture_end(&w);
    }
}

/* The process starts a timer, then waits for a yield while its mailbox is full. */
static filch_err play_timer_then_wait(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage == 0) {
        me->note |= filch_yield_timer(out, 77, 0);
        me->note |= filch_yield(out, FILCH_CMD_USER, 1, filch_none());
        me->stage = 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 1) me->stage = 2;
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return me->stage == 1 ? filch_wait(out) : filch_idle(out);
}

TEST(a_timers_message_passes_a_full_mailbox_and_is_never_dropped)
{
    static const uint32_t policies[] = { FILCH_OVERFLOW_FAIL, FILCH_OVERFLOW_DROP_OLDEST };
    for (size_t k = 0; k < COUNT_OF(policies); k++) {
        actor a = { .stage = 0 };
        begin_with_handler(FILCH_NO_WORKERS);
        actor_start_with(&w, &a, play_timer_then_wait, limited(policies[k], 2, 0));
        (void)fixture_tick(&w);
        send_numbers(&a, 0, 2, FILCH_OK);
        UNTIL(&w, fixture_stats(&w).timers == 0); /* the timer fired although the mailbox was full */
        if (policies[k] == FILCH_OVERFLOW_DROP_OLDEST) {
            for (int i = 0; i < 20; i++) {
                send_numbers(&a, 10 + i, 1, FILCH_OK);
                (void)fixture_tick(&w);
            }
        }
        ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
        (void)fixture_tick(&w);
        uint32_t timers = 0, messages = 0;
        for (size_t i = 0; i < a.seen_count; i++) {
            timers += a.seen[i].type == FILCH_EVENT_MESSAGE && a.seen[i].tag == 77;
            messages += a.seen[i].type == FILCH_EVENT_MESSAGE && a.seen[i].tag == 0;
        }
        same(timers, 1);
        same(messages, 2);
        actor_stop(&a);
        fixture_end(&w);
    }
}

TEST(drop_oldest_trims_while_the_receiver_is_blocked)
{
    actor a = { .stage = 0 };
    begin_with_handler(FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_wait, limited(FILCH_OVERFLOW_DROP_OLDEST, 4, 0));
    (void)fixture_tick(&w);
    for (int i = 0; i < 100; i++) {
        send_numbers(&a, i, 1, FILCH_OK);
        (void)fixture_tick(&w);
        assert_true(fixture_inspect(&w, a.pid).messages <= 4);
        same(fixture_inspect(&w, a.pid).state, FILCH_STATE_BLOCKED);
    }
    same(a.steps, 1);
    same(fixture_inspect(&w, a.pid).dropped, 96);
    ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
    (void)fixture_tick(&w);
    same(a.seen[0].type, FILCH_EVENT_YIELD);
    same(a.seen[1].type, FILCH_EVENT_DROPPED);
    same(a.seen[1].number, 96);
    for (int i = 0; i < 4; i++) same(a.seen[2 + i].number, 96 + i);
    same(a.seen_count, 6);
    actor_stop(&a);
    fixture_end(&w);
}

/* ---- senders that wait for space in a mailbox ---- */

/* State of a process that sends `times` numbers to the actor `to`, one at a time by filch_yield_send(). The process
 * ends when all numbers are sent, or with the first error of a completion. */
typedef struct pusher {
    actor  *to;
    int64_t number, times, sent;
} pusher;

static filch_err play_push(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    pusher *p = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD && events[i].error != FILCH_OK) return events[i].error;
    }
    if (p->sent++ == p->times) return filch_done(out, filch_none());
    filch_err err = filch_yield_send(out, 1, p->to->pid, filch_int(p->number * 1000000 + p->sent - 1));
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(senders_that_wait_for_room_are_admitted_in_order_of_arrival)
{
    enum { SENDERS = 20 };
    static actor  senders[SENDERS];
    static pusher pushers[SENDERS];
    actor         a = { .stage = 0 };
    memset(senders, 0, sizeof senders);
    begin_with_handler(FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_wait, limited(FILCH_OVERFLOW_WAIT, 3, 0));
    (void)fixture_tick(&w);
    for (int i = 0; i < SENDERS; i++) {
        pushers[i] = (pusher){ .to = &a, .number = i, .times = 1 };
        senders[i].user = &pushers[i];
        actor_start(&w, &senders[i], play_push);
        (void)fixture_tick(&w); /* each sender waits before the next one starts, so that their order is known */
    }
    for (int i = 0; i < SENDERS; i++) {
        assert_true(is_over(&senders[i]) == (i < 3));
        if (i >= 3) same(fixture_inspect(&w, senders[i].pid).state, FILCH_STATE_BLOCKED);
    }
    same(fixture_inspect(&w, a.pid).messages, 3);
    send_numbers(&a, 0, 1, FILCH_EFULL); /* a direct send does not overtake a waiting sender */
    same(fixture_stats(&w).refused, 1);  /* sends that wait do not count as refused */
    ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
    (void)fixture_tick(&w);
    for (int i = 0; i < SENDERS; i++) actor_ends(&w, &senders[i], FILCH_OK);
    same(a.seen_count, 1 + SENDERS);
    for (int i = 0; i < SENDERS; i++) {
        same(a.seen[1 + i].number, i * 1000000);
        assert_true(same_pid(a.seen[1 + i].from, senders[i].pid));
    }
    assert_true(a.count_max <= 3);
    same(fixture_inspect(&w, a.pid).messages, 0);
    send_numbers(&a, 0, 3, FILCH_OK); /* no sender waits any more, so the mailbox accepts messages of all senders */
    actor_stop(&a);
    fixture_end(&w);
}

static filch_err play_send_bytes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char bytes[64];
    actor      *to = me->user;
    (void)events;
    if (count > 0) return filch_done(out, filch_none());
    filch_err err = filch_yield_send(out, 1, to->pid, filch_bytes(bytes, (size_t)me->stage));
    return err == FILCH_OK ? filch_wait(out) : err;
}

/* Like play_wait(), but also records the sizes of its messages. */
static filch_err play_sizes(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    size_t *sizes = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) sizes[me->note++] = filch_size(&events[i].data);
    }
    return play_wait(me, events, count, out);
}

TEST(a_small_message_does_not_overtake_a_large_one_that_waits)
{
    static char   bytes[16];
    size_t        sizes[8] = { 0 };
    actor         a = { .user = sizes }, large = { .user = &a, .stage = 64 }, small = { .user = &a, .stage = 16 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.batch_max = 1; /* with batches of one message, space in the mailbox becomes free one message at a time */
    begin_with_handler_and(FILCH_NO_WORKERS, opt);
    actor_start_with(&w, &a, play_sizes, limited(FILCH_OVERFLOW_WAIT, 0, 64));
    (void)fixture_tick(&w);
    for (int i = 0; i < 4; i++) ok(filch_send(w.sched, a.pid, filch_bytes(bytes, 16)));
    actor_start(&w, &large, play_send_bytes);
    (void)fixture_tick(&w);
    actor_start(&w, &small, play_send_bytes);
    (void)fixture_tick(&w);
    ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
    actor_ends(&w, &large, FILCH_OK);
    actor_ends(&w, &small, FILCH_OK);
    UNTIL(&w, a.note == 6);
    static const size_t expected[] = { 16, 16, 16, 16, 64, 16 };
    assert_memory_equal(sizes, expected, sizeof expected);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(waiting_senders_fail_when_the_receiver_ends)
{
    enum { SENDERS = 5 };
    static actor  senders[SENDERS];
    static pusher pushers[SENDERS];
    actor         a = { .stage = 0 };
    memset(senders, 0, sizeof senders);
    begin_with_handler(FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_wait, limited(FILCH_OVERFLOW_WAIT, 1, 0));
    for (int i = 0; i < SENDERS; i++) {
        pushers[i] = (pusher){ .to = &a, .number = i, .times = 2 };
        senders[i].user = &pushers[i];
        actor_start(&w, &senders[i], play_push);
    }
    (void)fixture_tick(&w);
    same(fixture_stats(&w).alive, 1 + SENDERS);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    for (int i = 0; i < SENDERS; i++) actor_ends(&w, &senders[i], FILCH_EDEAD);
    /* the undelivered messages are one message of each waiting sender, and the message in the mailbox */
    same(fixture_stats(&w).undelivered, SENDERS + 1);
    fixture_end(&w);
}

TEST(a_sender_that_ends_while_it_waits_blocks_no_other_sender)
{
    actor  a = { .stage = 0 }, b = { .stage = 0 }, c = { .stage = 0 };
    pusher first = { .to = &a, .number = 1, .times = 1 }, second = { .to = &a, .number = 2, .times = 1 };
    b.user = &first;
    c.user = &second;
    begin_with_handler(FILCH_NO_WORKERS);
    actor_start_with(&w, &a, play_wait, limited(FILCH_OVERFLOW_WAIT, 1, 0));
    (void)fixture_tick(&w);
    send_numbers(&a, 7, 1, FILCH_OK);
    actor_start(&w, &b, play_push);
    (void)fixture_tick(&w);
    actor_start(&w, &c, play_push);
    (void)fixture_tick(&w);
    ok(filch_terminate(w.sched, b.pid));
    actor_ends(&w, &b, FILCH_EKILLED);
    ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
    actor_ends(&w, &c, FILCH_OK);
    (void)fixture_tick(&w);
    /* Process a reads its messages in the order sent: 7 from the test, 1000000 from process b, 2000000 from process c.
     * Process b ended while its send waited for space; process c, which waited behind it, must not wait for ever. */
    same(a.seen[1].number, 7);
    same(a.seen[a.seen_count - 1].number, 2000000);
    same(fixture_inspect(&w, a.pid).messages, 0);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(stop_ends_senders_and_receivers_that_wait_for_each_other)
{
    actor  a = { .stage = 0 }, b = { .stage = 0 };
    pusher push = { .to = &a, .number = 1, .times = 1000 };
    b.user = &push;
    begin_with_handler(2);
    actor_start_with(&w, &a, play_wait, limited(FILCH_OVERFLOW_WAIT, 1, 0));
    actor_start(&w, &b, play_push);
    UNTIL(&w, fixture_inspect(&w, b.pid).state == FILCH_STATE_BLOCKED && fixture_stats(&w).yields >= 3);
    fixture_end_as(&w, 0, FILCH_EDEADLINE); /* both processes ignore a cancel, so the stop ends them by force */
    same(a.exit_error, FILCH_ECANCELLED);
    assert_true(b.exit_error == FILCH_EDEAD || b.exit_error == FILCH_ECANCELLED);
    same(a.closes, 1);
    same(b.closes, 1);
}

/* ---- the end of a receiver for which very many senders wait ---- */

/* told: number of completions with FILCH_EDEAD; told_otherwise: number of completions with another result */
static FLI_ATOMIC(uint64_t) told, told_otherwise;

/* In its first step yields `me->stage` sends to the actor `me->user`. Counts the completions in `told` and
 * `told_otherwise`. */
static filch_err play_crowd(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    actor *to = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        fli_add_rlx(events[i].error == FILCH_EDEAD ? &told : &told_otherwise, 1);
        if (--me->stage == 0) return filch_done(out, filch_none());
    }
    for (int64_t i = 0; me->steps == 1 && i < me->stage; i++) {
        filch_data data = i % 1000 == 0 ? filch_str("a text that needs a block of its own") : filch_int(i);
        me->note = filch_yield_send(out, 1, to->pid, data);
        if (me->note != FILCH_OK) return me->note;
    }
    return filch_idle(out);
}

/* Starts `count` actors. Each yields `times` sends to `to`, all of which wait for space in the mailbox of `to`. */
static void start_crowd(actor *to, actor *crowd, int count, int64_t times)
{
    fli_store_rlx(&told, 0);
    fli_store_rlx(&told_otherwise, 0);
    actor_start_with(&w, to, play_wait, limited(FILCH_OVERFLOW_WAIT, 1, 0));
    (void)fixture_tick(&w);
    send_numbers(to, 1, 1, FILCH_OK);
    for (int i = 0; i < count; i++) {
        crowd[i] = (actor){ .user = to, .stage = times };
        actor_start(&w, &crowd[i], play_crowd);
    }
    (void)fixture_tick(&w);
    same(fixture_stats(&w).yields, 1 + count * times);
}

/* Continues until `me->note` sends of the crowd were completed with FILCH_EDEAD. Counts in `me->stage` its own steps
 * after the end of the receiver `me->user`. */
static filch_err play_beside(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    actor *to = me->user;
    (void)events, (void)count;
    me->stage += is_over(to);
    return fli_load_rlx(&told) < (uint64_t)me->note ? filch_continue(out) : filch_done(out, filch_none());
}

TEST(a_million_waiting_senders_are_told_that_the_receiver_ended)
{
    enum { CROWD = 250 };
    static actor crowd[CROWD];
    int64_t      times = fixture_scale(4000, 40), total = times * CROWD;
    actor        a = { .stage = 0 }, beside = { .user = &a, .note = (filch_err)total };
    begin_with_handler(FILCH_NO_WORKERS);
    start_crowd(&a, crowd, CROWD, times);
    actor_start(&w, &beside, play_beside);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    actor_ends(&w, &beside, FILCH_OK);
    for (int i = 0; i < CROWD; i++) actor_ends(&w, &crowd[i], FILCH_OK);
    same(fli_load_rlx(&told), total);
    same(fli_load_rlx(&told_otherwise), 0);
    same(fixture_stats(&w).undelivered, total + 1);
    /* The runtime completes 1024 sends in each step of a process of its own (sched/refuser.c), so `beside` is stepped
     * between these steps. */
    assert_true(beside.stage >= total / 1024 / 2);
    fixture_end(&w);
}

TEST(waiting_senders_are_told_of_the_end_though_no_process_can_be_spawned)
{
    actor         a = { .stage = 0 }, crowd;
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.max_processes = 2;
    begin_with_handler_and(FILCH_NO_WORKERS, opt);
    start_crowd(&a, &crowd, 1, 5000);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    actor_ends(&w, &crowd, FILCH_OK);
    same(fli_load_rlx(&told), 5000);
    same(fixture_stats(&w).spawned, 2);
    fixture_end(&w);
}

TEST(a_stop_by_force_frees_the_messages_of_many_waiting_senders)
{
    enum { CROWD = 3 };
    actor a = { .stage = 0 }, crowd[CROWD];
    begin_with_handler(FILCH_NO_WORKERS);
    start_crowd(&a, crowd, CROWD, 5000);
    fixture_end_as(&w, 0, FILCH_EDEADLINE); /* checks that all blocks are freed */
    same(a.closes, 1);
    for (int i = 0; i < CROWD; i++) same(crowd[i].closes, 1);
}

/* The stop begins when the receiver has ended and most of the sends to it are not completed yet. */
TEST(a_stop_by_force_while_waiting_senders_are_refused_frees_their_messages)
{
    actor a = { .stage = 0 }, crowd;
    begin_with_handler(FILCH_NO_WORKERS);
    start_crowd(&a, &crowd, 1, 50000);
    ok(filch_terminate(w.sched, a.pid));
    until(filch_tick(w.sched, 1, NULL) == FILCH_OK && is_over(&a));
    /* the process of `crowd`, and the process of the runtime that completes its yields (sched/refuser.c) */
    same(fixture_stats(&w).alive, 2);
    fixture_end_as(&w, 0, FILCH_EDEADLINE);
    same(crowd.closes, 1);
}

/* ---- full mailboxes with many senders at once ---- */

enum { MANY_SENDERS = 8 };

/* State of a process that counts its messages, and checks that the messages of each sender arrive in order. */
typedef struct tally {
    int64_t  next[MANY_SENDERS];
    int64_t  received, dropped, out_of_order;
    uint32_t max_seen;
} tally;

static filch_err play_tally(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    tally   *t = me->user;
    uint32_t messages = 0;
    bool     over = false;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) over = true;
        if (events[i].type == FILCH_EVENT_DROPPED) t->dropped += filch_as_int(&events[i].data);
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        int64_t number = filch_as_int(&events[i].data), sender = number / 1000000, k = number % 1000000;
        if (k < t->next[sender]) t->out_of_order++;
        t->next[sender] = k + 1;
        t->received++;
        messages++;
    }
    if (messages > t->max_seen) t->max_seen = messages;
    return over ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(many_senders_wait_for_room_on_all_workers_and_none_is_lost)
{
    static actor  senders[MANY_SENDERS];
    static pusher pushers[MANY_SENDERS];
    uint32_t      times = fixture_scale(20000, 200);
    tally         t = { .received = 0 };
    actor         a = { .user = &t };
    memset(senders, 0, sizeof senders);
    fixture_begin(&w, 4);
    actor_start_with(&w, &a, play_tally, limited(FILCH_OVERFLOW_WAIT, 3, 0));
    for (int i = 0; i < MANY_SENDERS; i++) {
        pushers[i] = (pusher){ .to = &a, .number = i, .times = times };
        senders[i].user = &pushers[i];
        actor_start(&w, &senders[i], play_push);
    }
    for (int i = 0; i < MANY_SENDERS; i++) actor_ends(&w, &senders[i], FILCH_OK);
    UNTIL(&w, fixture_inspect(&w, a.pid).messages == 0);
    actor_stop(&a);
    same(t.received, (int64_t)times * MANY_SENDERS);
    same(t.out_of_order, 0);
    for (int i = 0; i < MANY_SENDERS; i++) same(t.next[i], times);
    assert_true(t.max_seen <= 3);
    same(fixture_stats(&w).refused, 0);
    same(fixture_stats(&w).sent, (int64_t)times * MANY_SENDERS);
    fixture_end(&w);
}

/* State of a process that sends by filch_send() and counts the results. */
typedef struct shouter {
    actor  *to;
    int64_t number, times, sent, accepted, full, dropped, other;
} shouter;

static filch_err play_shout(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    shouter *s = me->user;
    (void)events, (void)count;
    filch_sched *sched = filch_out_sched(out);
    for (int i = 0; i < 10 && s->sent < s->times; i++, s->sent++) {
        switch (filch_send(sched, s->to->pid, filch_int(s->number * 1000000 + s->sent))) {
        case FILCH_OK: s->accepted++; break;
        case FILCH_EFULL: s->full++; break;
        case FILCH_EDROPPED: s->dropped++; break;
        default: s->other++; break;
        }
    }
    return s->sent < s->times ? filch_continue(out) : filch_done(out, filch_none());
}

TEST(every_message_to_a_full_mailbox_is_accounted_for)
{
    static const uint32_t policies[] = { FILCH_OVERFLOW_FAIL, FILCH_OVERFLOW_WAIT, FILCH_OVERFLOW_DROP_NEWEST,
                                         FILCH_OVERFLOW_DROP_OLDEST };
    static actor          senders[MANY_SENDERS];
    static shouter        shouters[MANY_SENDERS];
    for (size_t k = 0; k < COUNT_OF(policies); k++) {
        uint32_t times = fixture_scale(20000, 200);
        tally    t = { .received = 0 };
        actor    a = { .user = &t };
        memset(senders, 0, sizeof senders);
        fixture_begin(&w, 4);
        actor_start_with(&w, &a, play_tally, limited(policies[k], 20, 0));
        for (int i = 0; i < MANY_SENDERS; i++) {
            shouters[i] = (shouter){ .to = &a, .number = i, .times = times };
            senders[i].user = &shouters[i];
            actor_start(&w, &senders[i], play_shout);
        }
        shouter sum = { .to = NULL };
        for (int i = 0; i < MANY_SENDERS; i++) {
            actor_ends(&w, &senders[i], FILCH_OK);
            sum.accepted += shouters[i].accepted;
            sum.full += shouters[i].full;
            sum.dropped += shouters[i].dropped;
            sum.other += shouters[i].other;
        }
        /* A DROPPED event comes with the next message. Messages may have been dropped after the last message that was
         * read, so the test sends one more. */
        UNTIL(&w, fixture_inspect(&w, a.pid).messages == 0);
        ok(filch_send(w.sched, a.pid, filch_int(999999)));
        UNTIL(&w, fixture_inspect(&w, a.pid).messages == 0);
        int64_t dropped = (int64_t)fixture_inspect(&w, a.pid).dropped;
        actor_stop(&a);
        t.received--;
        filch_stats stats = fixture_stats(&w);
        same(sum.other, 0);
        same(sum.accepted + sum.full + sum.dropped, (int64_t)times * MANY_SENDERS);
        same(stats.sent, sum.accepted + 1);
        same(stats.refused, sum.full);
        same(stats.dropped, dropped);
        same(t.dropped, dropped); /* the sum of all DROPPED events is the number of drops */
        same(t.out_of_order, 0);
        if (policies[k] == FILCH_OVERFLOW_DROP_OLDEST) same(t.received, sum.accepted - (dropped - sum.dropped));
        else same(t.received, sum.accepted);
        if (policies[k] == FILCH_OVERFLOW_DROP_NEWEST) same(dropped, sum.dropped);
        assert_true(t.max_seen <= 20);
        same(stats.undelivered, 0);
        fixture_end(&w);
    }
}

static filch_err end_when_cancelled(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* Spawns a process with the limits of `opt`; the spawn must return `expected`. Cancels the process if it was
 * spawned. */
static void spawn_limited(filch_spawn_options opt, filch_err expected)
{
    static const filch_type type = { .name = "limited", .step = end_when_cancelled };
    filch_pid               pid;
    same(filch_spawn(w.sched, &type, &opt, &pid), expected);
    if (expected == FILCH_OK) ok(filch_cancel(w.sched, pid));
}

TEST(the_largest_documented_limits_are_accepted_and_larger_ones_refused)
{
    const uint32_t most = (1u << 23) - 1;
    const size_t   bytes = (size_t)256 << 20;
    fixture_begin(&w, FILCH_NO_WORKERS);
    spawn_limited(limited(FILCH_OVERFLOW_FAIL, most, 0), FILCH_OK);
    spawn_limited(limited(FILCH_OVERFLOW_FAIL, most + 1, 0), FILCH_EINVAL);
    spawn_limited(limited(FILCH_OVERFLOW_FAIL, 0, bytes - 1), FILCH_OK);
    spawn_limited(limited(FILCH_OVERFLOW_FAIL, 0, bytes), FILCH_EINVAL);
    (void)fixture_tick(&w);
    same(fixture_stats(&w).alive, 0);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_limit_is_accepted_and_a_larger_one_refused),
        cmocka_unit_test(fail_and_wait_return_efull_to_a_direct_send),
        cmocka_unit_test(drop_newest_returns_edropped_and_reports_the_count_to_the_receiver),
        cmocka_unit_test(drop_oldest_accepts_new_messages_and_reports_the_count),
        cmocka_unit_test(drop_oldest_refuses_the_newest_at_twice_the_limit),
        cmocka_unit_test(a_drop_during_a_step_is_reported_before_the_process_idles),
        cmocka_unit_test(stop_ends_the_receiver_with_overflow),
        cmocka_unit_test(a_limit_in_bytes_counts_payloads_and_releases_the_space),
        cmocka_unit_test(drop_oldest_in_bytes_drops_until_the_newest_fit),
        cmocka_unit_test(a_payload_that_can_never_fit_is_too_big_under_every_policy),
        cmocka_unit_test(a_yielded_send_gets_the_result_of_the_overflow_policy),
        cmocka_unit_test(a_yielded_send_to_an_ended_process_is_an_error_event),
        cmocka_unit_test(cancels_and_completions_pass_a_full_mailbox),
        cmocka_unit_test(a_timers_message_passes_a_full_mailbox_and_is_never_dropped),
        cmocka_unit_test(drop_oldest_trims_while_the_receiver_is_blocked),
        cmocka_unit_test(senders_that_wait_for_room_are_admitted_in_order_of_arrival),
        cmocka_unit_test(a_small_message_does_not_overtake_a_large_one_that_waits),
        cmocka_unit_test(waiting_senders_fail_when_the_receiver_ends),
        cmocka_unit_test(a_sender_that_ends_while_it_waits_blocks_no_other_sender),
        cmocka_unit_test(stop_ends_senders_and_receivers_that_wait_for_each_other),
        cmocka_unit_test(a_million_waiting_senders_are_told_that_the_receiver_ended),
        cmocka_unit_test(waiting_senders_are_told_of_the_end_though_no_process_can_be_spawned),
        cmocka_unit_test(a_stop_by_force_frees_the_messages_of_many_waiting_senders),
        cmocka_unit_test(a_stop_by_force_while_waiting_senders_are_refused_frees_their_messages),
        cmocka_unit_test(many_senders_wait_for_room_on_all_workers_and_none_is_lost),
        cmocka_unit_test(every_message_to_a_full_mailbox_is_accounted_for),
        cmocka_unit_test(the_largest_documented_limits_are_accepted_and_larger_ones_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
