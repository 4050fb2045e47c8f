/* timers_test.c - tests sleeps, timers and tickers, which are armed by the real clock and polled at times that the test
 * chooses. A timer never fires early, never twice, and not after it was cancelled or its process ended. */
#include "clock/timers.h"

#include "port/clock.h"
#include "proc/ext.h"
#include "support/bench_runtime.h"
#include "support/until.h"

#define TICK_NS (UINT64_C(1) << FLI_WHEEL_TICK_BITS)
#define HOUR_NS FILCH_SECONDS(3600)

/* The timers that every test and the hooks below use. */
static fli_timers timers;

/* If not NULL, the `ready` hook calls this function while a timer is firing. */
static void (*while_firing)(bench *b);

static void on_abandon(fli_runtime *rt, uint64_t cookie)
{
    fli_add_rlx(&((bench *)rt)->abandoned, 1);
    fli_timers_abandon(&timers, cookie);
}

static uint64_t on_ticks(fli_runtime *rt, uint64_t ticker)
{
    (void)rt;
    return fli_timers_ticks(&timers, ticker);
}

static void on_ready(fli_runtime *rt, fli_local *worker, fli_proc *p)
{
    bench_on_ready(rt, worker, p);
    if (while_firing != NULL) while_firing((bench *)rt);
}

static void begin_with(bench *b, uint32_t shards)
{
    bench_begin(b);
    b->rt.hooks.abandon = on_abandon;
    b->rt.hooks.ticks = on_ticks;
    b->rt.hooks.ready = on_ready;
    while_firing = NULL;
    ok(fli_timers_init(&timers, &b->rt, shards, fli_clock_ns()));
}

static void begin(bench *b)
{
    begin_with(b, 2);
}

static void end(bench *b)
{
    same(fli_timers_count(&timers), 0);
    same(fli_timers_next_ns(&timers), FLI_NEVER);
    fli_timers_fini(&timers);
    bench_end(b);
}

static fli_proc *spawn(bench *b)
{
    fli_proc *p = bench_spawn(b, 0, 0, FILCH_OVERFLOW_FAIL);
    p->ext = NULL;
    return p;
}

static void finish(bench *b, fli_proc *p)
{
    fli_yield_abandon(&b->rt, &b->worker, p);
    for (uint32_t i = 0; p->ext != NULL && i < p->ext->timer_count; i++) fli_timers_abandon(&timers, p->ext->timers[i]);
    (void)fli_mail_discard(&b->rt, &b->worker, p, fli_state_finish(&p->state));
    fli_ext_free(&b->rt, p);
    assert_true(fli_state_free(&p->state));
    fli_slab_give(&b->rt.procs, &b->worker.procs, p);
}

/* Dispatches a clock command that `p` has yielded, as a worker does. Returns the result of the handler. */
static filch_err command(bench *b, fli_proc *p, uint32_t id, int64_t value, uint64_t tag)
{
    fli_event_node *node = fli_yield_open(&b->rt, &b->worker, p, id, tag);
    assert_non_null(node);
    filch_receiver receiver = fli_yield_receiver(&b->rt, node);
    filch_command  order = { .id = id, .from = bench_pid(p), .data = filch_int(value) };
    b->worker.current = p;
    b->worker.serial = fli_proc_serial(p);
    b->worker.dispatching = true;
    filch_err err = fli_timers_handle(&timers, &order, receiver);
    if (err != FILCH_OK) (void)!filch_complete(receiver, tag, filch_none(), err);
    b->worker.dispatching = false;
    b->worker.current = NULL;
    b->worker.serial = 0;
    return err;
}

/* Reads one event of `p` into *event. Returns false if there is none. */
static bool read_one(bench *b, fli_proc *p, filch_event *event)
{
    fli_event_node *node;
    bench_unstack(b, p);
    if (fli_mail_collect(&b->rt, p, false, event, &node, 1) == 0) return false;
    fli_mail_release(&b->rt, &b->worker, p, event, &node, 1);
    /* Clears the mark FLI_NODE_PASSED of the oldest message. If the mark stayed set, the next read_one() would read
     * this message before the completions that are waiting. The tests expect all completions before the message. */
    if (p->messages != 0) {
        fli_node_at(&b->rt, fli_node_at(&b->rt, p->messages)->next)->what &= (uint8_t)~FLI_NODE_PASSED;
    }
    return true;
}

static int64_t expect_completion(bench *b, fli_proc *p, uint64_t tag)
{
    filch_event event;
    assert_true(read_one(b, p, &event));
    same(event.type, FILCH_EVENT_YIELD);
    same(event.tag, tag);
    same(event.error, FILCH_OK);
    return filch_as_int(&event.data);
}

static void expect_message(bench *b, fli_proc *p, uint64_t tag, int64_t value)
{
    filch_event event;
    assert_true(read_one(b, p, &event));
    same(event.type, FILCH_EVENT_MESSAGE);
    same(event.tag, tag);
    same(event.from.serial, 0);
    same(filch_as_int(&event.data), value);
}

static void expect_nothing(bench *b, fli_proc *p)
{
    filch_event event;
    assert_false(read_one(b, p, &event));
}

/* Arms a timer or ticker. Returns its id. */
static int64_t arm(bench *b, fli_proc *p, uint32_t id, uint64_t span_ns, uint64_t tag)
{
    ok(command(b, p, id, (int64_t)span_ns, tag));
    int64_t timer = expect_completion(b, p, tag);
    assert_true(timer > 0);
    return timer;
}

static int64_t cancel(bench *b, fli_proc *p, int64_t id)
{
    ok(command(b, p, FILCH_CMD_TIMER_CANCEL, id, 999));
    return expect_completion(b, p, 999);
}

TEST(a_sleep_is_never_early_and_at_most_a_tick_late)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    uint64_t  before_ns = fli_clock_ns();
    ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, 3));
    uint64_t after_ns = fli_clock_ns();
    same(fli_timers_count(&timers), 1);
    assert_true(fli_timers_next_ns(&timers) <= after_ns + HOUR_NS + TICK_NS);
    same(fli_timers_poll(&timers, before_ns + HOUR_NS - 1), 0);
    expect_nothing(&b, p);
    same(fli_timers_poll(&timers, after_ns + HOUR_NS + TICK_NS), 1);
    (void)expect_completion(&b, p, 3);
    same(fli_timers_poll(&timers, after_ns + 2 * HOUR_NS), 0);
    finish(&b, p);
    end(&b);
}

TEST(a_timer_yield_returns_its_id_and_the_timer_sends_one_message)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 8);
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, 8, 1);
    expect_nothing(&b, p);
    same(cancel(&b, p, id), 0); /* 0: the timer has fired */
    finish(&b, p);
    end(&b);
}

/* fli_timers_next_ns limits how long a worker parks. It must return the due time of the earliest timer, whatever the
 * order in which timers are added and removed. */
TEST(next_ns_is_the_due_time_of_the_earliest_timer)
{
    static const uint64_t hours[] = { 5, 7, 3, 4, 2, 9, 2, 1 };
    enum { COUNT = sizeof hours / sizeof hours[0] };
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   ids[COUNT];
    uint64_t  began_ns = fli_clock_ns(), least = UINT64_MAX;
    for (size_t i = 0; i < COUNT; i++) {
        ids[i] = arm(&b, p, FILCH_CMD_TIMER, hours[i] * HOUR_NS, i);
        if (hours[i] < least) least = hours[i];
        same(fli_timers_count(&timers), i + 1);
        assert_true(fli_timers_next_ns(&timers) >= began_ns + least * HOUR_NS);
        assert_true(fli_timers_next_ns(&timers) <= fli_clock_ns() + least * HOUR_NS + TICK_NS);
    }
    /* only the timer that was armed last, the earliest one, is due */
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, COUNT - 1, 1);
    assert_true(fli_timers_next_ns(&timers) >= began_ns + 2 * HOUR_NS);
    for (size_t i = 0; i < COUNT - 1; i++) same(cancel(&b, p, ids[i]), 1);
    finish(&b, p);
    end(&b);
}

static uint64_t next_while_firing_ns;

static void read_next_ns(bench *b)
{
    (void)b;
    next_while_firing_ns = fli_timers_next_ns(&timers);
}

/* fli_timers_next_ns() must not return the due time of a timer that is firing. Otherwise the other workers would take
 * the lock, find no due timer, and not park. */
TEST(next_ns_ignores_a_timer_that_is_firing)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    (void)arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 1);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    while_firing = read_next_ns;
    next_while_firing_ns = 0;
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    same(next_while_firing_ns, FLI_NEVER);
    expect_message(&b, p, 1, 1);
    finish(&b, p);
    end(&b);
}

TEST(a_timer_wakes_an_idle_process)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    (void)arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 8);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    same(fli_load_rlx(&b.woken), 1);
    expect_message(&b, p, 8, 1);
    finish(&b, p);
    end(&b);
}

/* Tick n is due n periods after the ticker was armed, however late the ticker is polled. */
TEST(a_ticker_keeps_its_phase_and_merges_missed_ticks)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 4);
    uint64_t  start_ns = fli_clock_ns();
    same(fli_timers_poll(&timers, start_ns + HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, 4, 1);
    /* The second tick fires half an hour late and has its own message. The third tick is due half an hour after the
     * second has fired. */
    same(fli_timers_poll(&timers, start_ns + 2 * HOUR_NS + HOUR_NS / 2), 1);
    expect_message(&b, p, 4, 1);
    same(fli_timers_poll(&timers, start_ns + 3 * HOUR_NS - FILCH_SECONDS(60)), 0);
    same(fli_timers_poll(&timers, start_ns + 3 * HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, 4, 1);
    /* No poll for four hours: the next poll sends one message, which stands for the four ticks that were due. */
    same(fli_timers_poll(&timers, start_ns + 7 * HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, 4, 4);
    expect_nothing(&b, p);
    /* Ticks that fire while the message is unread are counted in that message. */
    for (uint64_t i = 8; i < 12; i++) same(fli_timers_poll(&timers, start_ns + i * HOUR_NS + TICK_NS), 1);
    expect_message(&b, p, 4, 4);
    expect_nothing(&b, p);
    same(cancel(&b, p, id), 1);
    finish(&b, p);
    end(&b);
}

TEST(the_tick_count_of_a_message_saturates)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TICKER, 1, 6); /* a tick every nanosecond */
    uint64_t  start_ns = fli_clock_ns();
    same(fli_timers_poll(&timers, start_ns + FILCH_SECONDS(3)), 1);
    same(fli_timers_poll(&timers, start_ns + FILCH_SECONDS(3600)), 1);
    expect_message(&b, p, 6, UINT32_MAX);
    same(fli_timers_poll(&timers, start_ns + FILCH_SECONDS(3600) + TICK_NS), 1); /* the ticker continues */
    same(cancel(&b, p, id), 1);
    finish(&b, p);
    end(&b);
}

TEST(the_tick_count_of_an_unknown_ticker_is_one)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
    same(fli_timers_ticks(&timers, (uint64_t)id), 1); /* 1: no tick has fired yet, but the number is at least 1 */
    same(fli_timers_ticks(&timers, UINT32_MAX), 1);   /* 1: no ticker has this id */
    same(fli_timers_poll(&timers, fli_clock_ns() + 3 * HOUR_NS + TICK_NS), 1);
    /* 1: the generation in the id is not the generation of the entry */
    same(fli_timers_ticks(&timers, (uint64_t)id + (UINT64_C(1) << 32)), 1);
    same(fli_timers_ticks(&timers, (uint64_t)id), 3);
    same(fli_timers_ticks(&timers, (uint64_t)id), 1);
    same(cancel(&b, p, id), 1);
    finish(&b, p);
    end(&b);
}

static uint64_t alarm_cookie;

static void on_alarm(fli_runtime *rt, uint64_t cookie)
{
    (void)rt;
    alarm_cookie = cookie;
}

TEST(an_alarm_may_be_set_by_a_foreign_thread)
{
    bench b;
    begin(&b);
    b.rt.hooks.alarm = on_alarm;
    uint64_t now_ns = fli_clock_ns();
    alarm_cookie = 0;
    fli_current_set(NULL);
    uint64_t id = fli_timers_alarm(&timers, now_ns + HOUR_NS, 77),
             other = fli_timers_alarm(&timers, now_ns + HOUR_NS, 78);
    fli_current_set(&b.worker);
    assert_true(id != 0 && other != 0);
    fli_timers_abandon(&timers, other);
    same(fli_timers_poll(&timers, now_ns + HOUR_NS - TICK_NS), 0);
    same(fli_timers_poll(&timers, now_ns + HOUR_NS + TICK_NS), 1);
    same(alarm_cookie, 77);
    end(&b);
}

TEST(a_timer_of_a_process_that_has_just_ended_sends_nothing)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    uint32_t  gen = bench_gen(p);
    (void)arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 6);
    (void)fli_mail_discard(&b.rt, &b.worker, p,
                           fli_state_finish(&p->state)); /* the process has ended, but its timers are not stopped yet */
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    same(bench_gen(p), gen);
    fli_ext_free(&b.rt, p);
    assert_true(fli_state_free(&p->state));
    fli_slab_give(&b.rt.procs, &b.worker.procs, p);
    end(&b); /* checks that the node of the timer's message has been freed */
}

TEST(a_cancelled_timer_never_fires)
{
    const uint32_t kinds[] = { FILCH_CMD_TIMER, FILCH_CMD_TICKER };
    bench          b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (int i = 0; i < 2; i++) {
        int64_t id = arm(&b, p, kinds[i], HOUR_NS, 1);
        same(fli_timers_count(&timers), 1);
        same(cancel(&b, p, id), 1);
        same(cancel(&b, p, id), 0);
        same(fli_timers_count(&timers), 0);
        same(fli_timers_poll(&timers, fli_clock_ns() + 5 * HOUR_NS), 0);
        expect_nothing(&b, p);
        /* The entry is reused for a new timer: the old id does not stop the new timer. */
        int64_t next = arm(&b, p, kinds[i], HOUR_NS, 2);
        assert_int_not_equal(next, id);
        same(cancel(&b, p, id), 0);
        same(cancel(&b, p, next), 1);
    }
    finish(&b, p);
    end(&b);
}

TEST(invalid_ids_stop_no_timer)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b), *other = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 1);
    ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, 2));
    const int64_t ids[] = { 0, 1, -1, INT64_MAX, INT64_MIN, id + 1, id - 1, id + (INT64_C(1) << 32) };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) same(cancel(&b, p, ids[i]), 0);
    same(cancel(&b, other, id), 0); /* 0: the timer belongs to another process */
    same(fli_timers_count(&timers), 2);
    same(command(&b, p, FILCH_CMD_TICKER, 0, 7), FILCH_EINVAL);
    filch_event event;
    assert_true(read_one(&b, p, &event));
    same(event.error, FILCH_EINVAL);
    finish(&b, other);
    finish(&b, p);
    end(&b);
}

/* ---- while firing ---- */

static fli_proc *firing_proc;
static int64_t   firing_id;

static void abandon_it(bench *b)
{
    (void)b;
    fli_timers_abandon(&timers, (uint64_t)firing_id);
}

/* A timer fires while its shard is not locked. In this test the `ready` hook abandons a ticker while it fires (its
 * entry is FIRING). */
TEST(a_ticker_cancelled_while_it_fires_is_gone)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    firing_id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    while_firing = abandon_it;
    uint64_t start_ns = fli_clock_ns();
    same(fli_timers_poll(&timers, start_ns + HOUR_NS + TICK_NS), 1);
    while_firing = NULL;
    same(fli_timers_count(&timers), 0);
    expect_message(&b, p, 6, 1); /* the ticker was abandoned while its message was being sent, so the message has
                                    arrived */
    same(fli_timers_poll(&timers, start_ns + 9 * HOUR_NS), 0);
    expect_nothing(&b, p);
    same(cancel(&b, p, firing_id), 0);
    finish(&b, p);
    end(&b);
}

static void abandon_it_twice(bench *b)
{
    abandon_it(b);
    abandon_it(b);
}

TEST(a_ticker_cancelled_twice_while_it_fires_is_gone_once)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    firing_id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    while_firing = abandon_it_twice;
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    while_firing = NULL;
    same(fli_timers_count(&timers), 0);
    expect_message(&b, p, 6, 1);
    /* The entry is used by another timer now: the old id stops nothing. */
    int64_t next = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 7);
    assert_int_not_equal(next, firing_id);
    same(cancel(&b, p, firing_id), 0);
    same(cancel(&b, p, next), 1);
    finish(&b, p);
    end(&b);
}

/* If the message of a ticker is in the mailbox when the ticker is cancelled, the message is delivered after the
 * completion of the cancel, with its number of ticks. */
TEST(a_cancelled_ticker_keeps_the_number_of_its_unread_ticks)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
    uint64_t  start_ns = fli_clock_ns() + TICK_NS;
    same(fli_timers_poll(&timers, start_ns + 3 * HOUR_NS), 1);
    same(cancel(&b, p, id), 1);
    same(cancel(&b, p, id), 0);
    same(fli_timers_count(&timers), 0);
    int64_t next = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 7);
    assert_int_not_equal((uint32_t)next, (uint32_t)id); /* the entry is not reused before the message was read */
    expect_message(&b, p, 6, 3);
    expect_nothing(&b, p);
    same(cancel(&b, p, next), 1);
    finish(&b, p);
    end(&b);
}

static void cancel_it(bench *b)
{
    while_firing = NULL;
    ok(command(b, firing_proc, FILCH_CMD_TIMER_CANCEL, firing_id, 9));
}

TEST(a_ticker_cancelled_while_it_fires_keeps_the_number_of_its_ticks)
{
    bench b;
    begin(&b);
    fli_proc *p = firing_proc = spawn(&b);
    firing_id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    while_firing = cancel_it;
    same(fli_timers_poll(&timers, fli_clock_ns() + 4 * HOUR_NS + TICK_NS), 1);
    assert_null(while_firing);
    same(fli_timers_count(&timers), 0);
    same(expect_completion(&b, p, 9), 1);
    int64_t next = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 7);
    assert_int_not_equal((uint32_t)next, (uint32_t)firing_id);
    expect_message(&b, p, 6, 4);
    same(cancel(&b, p, next), 1);
    finish(&b, p);
    end(&b);
}

static void cancel_and_abandon_it(bench *b)
{
    cancel_it(b);
    abandon_it(b);
}

TEST(an_abandoned_ticker_is_freed_with_unread_ticks)
{
    bench b;
    begin(&b);
    fli_proc *p = firing_proc = spawn(&b);
    for (int i = 0; i < 3; i++) {
        firing_id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
        assert_true(bench_settle(&b, p, FLI_IDLE));
        if (i == 1) while_firing = cancel_and_abandon_it; /* the ticker is abandoned while it fires */
        same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
        if (i == 1) same(expect_completion(&b, p, 9), 1);
        if (i == 2) same(cancel(&b, p, firing_id), 1); /* the ticker is abandoned while its entry is UNREAD */
        abandon_it(&b);
        int64_t next = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 7);
        same((uint32_t)next, (uint32_t)firing_id);
        same(cancel(&b, p, next), 1);
        expect_message(&b, p, 6, 1);
    }
    finish(&b, p);
    end(&b);
}

TEST(entries_of_cancelled_tickers_are_reused_after_their_messages_were_read)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (int i = 0; i < 100; i++) {
        int64_t id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 6);
        same(fli_timers_poll(&timers, fli_clock_ns() + 2 * HOUR_NS + TICK_NS), 1);
        same(cancel(&b, p, id), 1);
        expect_message(&b, p, 6, 2);
    }
    assert_true(p->ext->timer_cap <= 8);
    finish(&b, p);
    end(&b);
}

TEST(a_timer_may_be_abandoned_while_it_fires)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    firing_id = arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 6);
    assert_true(bench_settle(&b, p, FLI_IDLE));
    while_firing = abandon_it;
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1);
    while_firing = NULL;
    expect_message(&b, p, 6, 1);
    finish(&b, p);
    end(&b);
}

static void finish_it(bench *b)
{
    while_firing = NULL;
    finish(b, firing_proc);
}

TEST(a_ticker_is_stopped_if_its_process_ends_while_it_fires)
{
    bench b;
    begin(&b);
    firing_proc = spawn(&b);
    (void)arm(&b, firing_proc, FILCH_CMD_TICKER, HOUR_NS, 6);
    (void)arm(&b, firing_proc, FILCH_CMD_TICKER, HOUR_NS * 3 / 2, 7);
    ok(command(&b, firing_proc, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, 8));
    assert_true(bench_settle(&b, firing_proc, FLI_IDLE));
    while_firing = finish_it;
    assert_in_range(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 1, 2);
    same(fli_timers_count(&timers), 0);
    end(&b);
}

/* ---- the end of a process, and failing allocations ---- */

TEST(timers_end_with_their_process)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (uint64_t i = 0; i < 20; i++) {
        (void)arm(&b, p, i % 2 == 0 ? FILCH_CMD_TIMER : FILCH_CMD_TICKER, HOUR_NS + i, i);
        ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, 100 + i));
    }
    same(fli_timers_count(&timers), 40);
    finish(&b, p);
    same(fli_timers_count(&timers), 0);
    same(fli_timers_poll(&timers, fli_clock_ns() + 9 * HOUR_NS), 0);
    end(&b);
}

TEST(a_process_lists_only_armed_timers)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (int i = 0; i < 1000; i++) same(cancel(&b, p, arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 1)), 1);
    assert_true(p->ext->timer_cap <= 8);
    finish(&b, p);
    end(&b);
}

TEST(no_memory_for_a_timer_leaves_nothing_behind)
{
    const uint32_t kinds[] = { FILCH_CMD_SLEEP, FILCH_CMD_TIMER, FILCH_CMD_TICKER };
    for (int kind = 0; kind < 3; kind++) {
        for (uint64_t nth = 1; nth <= 6; nth++) {
            bench b;
            begin(&b);
            fli_proc *p = spawn(&b);
            /* makes the slab allocate its first block of nodes, so that the loop below does not count this
             * allocation */
            assert_non_null(fli_yield_open(&b.rt, &b.worker, p, 1, 1));
            fli_yield_abandon(&b.rt, &b.worker, p);
            test_alloc_fail(&b.alloc, nth, false);
            filch_err err = command(&b, p, kinds[kind], (int64_t)HOUR_NS, 5);
            test_alloc_fail(&b.alloc, 0, false);
            same(fli_timers_count(&timers), err == FILCH_OK ? 1 : 0);
            if (err != FILCH_OK) same(err, FILCH_ENOMEM);
            finish(&b, p);
            end(&b);
        }
    }
}

/* Allocates all nodes that exist, and lets further allocations fail. Each node contains the address of the node
 * allocated before it. Returns the last node. */
static fli_event_node *use_up_nodes(bench *b, fli_event_node *last)
{
    test_alloc_fail(&b->alloc, 1, true);
    for (fli_event_node *node; (node = fli_node_take(&b->rt, &b->worker)) != NULL; last = node) {
        node->data[0] = (uint64_t)(uintptr_t)last;
    }
    return last;
}

static void give_nodes_back(bench *b, fli_event_node *last)
{
    test_alloc_fail(&b->alloc, 0, false);
    for (fli_event_node *before; last != NULL; last = before) {
        before = (fli_event_node *)(uintptr_t)last->data[0];
        fli_node_give(&b->rt, &b->worker, last);
    }
}

/* The node for a ticker's first message is allocated when the ticker is armed; nodes for later messages are not. */
TEST(ticks_without_memory_for_a_message_are_counted_in_the_next)
{
    bench b;
    begin(&b);
    fli_proc       *p = spawn(&b);
    int64_t         id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 4);
    uint64_t        start_ns = fli_clock_ns() + TICK_NS;
    fli_event_node *used_up = use_up_nodes(&b, NULL);
    same(fli_timers_poll(&timers, start_ns + HOUR_NS), 1);
    expect_message(&b, p, 4, 1);
    used_up = use_up_nodes(&b, used_up); /* takes also the node that was freed when the message was read */
    for (uint64_t i = 2; i <= 3; i++) {
        same(fli_timers_poll(&timers, start_ns + i * HOUR_NS), 1);
        expect_nothing(&b, p);
    }
    same(fli_timers_count(&timers), 1); /* the ticker is still armed */
    give_nodes_back(&b, used_up);
    expect_nothing(&b, p);
    same(fli_timers_poll(&timers, start_ns + 4 * HOUR_NS), 1);
    expect_message(&b, p, 4, 3);
    expect_nothing(&b, p);
    /* The message that could not be sent earlier has been sent now. So further unread ticks are merged into one message
     * again. */
    for (uint64_t i = 5; i <= 6; i++) same(fli_timers_poll(&timers, start_ns + i * HOUR_NS), 1);
    expect_message(&b, p, 4, 2);
    expect_nothing(&b, p);
    same(cancel(&b, p, id), 1);
    finish(&b, p);
    end(&b);
}

TEST(a_ticker_with_a_delayed_message_can_be_stopped)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   id = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 4);
    uint64_t  start_ns = fli_clock_ns() + TICK_NS;
    same(fli_timers_poll(&timers, start_ns + HOUR_NS), 1);
    expect_message(&b, p, 4, 1);
    fli_event_node *used_up = use_up_nodes(&b, NULL);
    same(fli_timers_poll(&timers, start_ns + 2 * HOUR_NS), 1);
    give_nodes_back(&b, used_up);
    same(cancel(&b, p, id), 1);
    same(fli_timers_poll(&timers, start_ns + 9 * HOUR_NS), 0);
    expect_nothing(&b, p);
    finish(&b, p);
    end(&b);
}

TEST(poll_some_fires_at_most_max_timers_and_the_others_stay_due)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (uint64_t i = 0; i < 200; i++) {
        b.worker.index = (uint32_t)(i % 2); /* alternates between the two wheels */
        ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, i));
    }
    uint64_t              due_ns = fli_clock_ns() + HOUR_NS + TICK_NS;
    static const uint32_t some[] = { 0, 1, 64, 65, 0, 7 }; /* limits of one poll; timers are fired in batches of 64 */
    uint32_t              left = 200;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        same(fli_timers_poll_some(&timers, due_ns, some[i]), some[i]);
        left -= some[i];
        same(fli_timers_count(&timers), left);
        assert_true(fli_timers_next_ns(&timers) <= due_ns);
    }
    same(fli_timers_poll_some(&timers, due_ns, 1000), left);
    same(fli_timers_poll(&timers, due_ns), 0);
    filch_event event;
    for (int i = 0; i < 200; i++) assert_true(read_one(&b, p, &event));
    finish(&b, p);
    end(&b);
}

TEST(a_due_sleep_is_not_starved_by_timers_of_another_wheel)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    uint64_t  due_ns = fli_clock_ns() + 2 * HOUR_NS, mine = 1000;
    for (uint64_t i = 0; i < 3; i++) ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, i));
    b.worker.index = 1;
    ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, mine));
    b.worker.index = 0;
    filch_event event = { .tag = 0 };
    for (int looks = 0; event.tag != mine; looks++) {
        assert_in_range(looks, 0, 3);
        same(fli_timers_poll_some(&timers, due_ns, 1), 1);
        assert_true(read_one(&b, p, &event));
        /* the process sleeps again, in the first wheel */
        if (event.tag != mine) ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, event.tag));
    }
    same(fli_timers_poll(&timers, due_ns), 3);
    finish(&b, p);
    end(&b);
}

TEST(all_timers_due_at_once_fire)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    for (uint64_t i = 0; i < 300; i++) {
        b.worker.index = (uint32_t)(i % 2); /* alternates between the two wheels */
        ok(command(&b, p, FILCH_CMD_SLEEP, (int64_t)HOUR_NS, i));
    }
    same(fli_timers_count(&timers), 300);
    same(fli_timers_poll(&timers, fli_clock_ns() + HOUR_NS + TICK_NS), 300);
    filch_event event;
    for (int i = 0; i < 300; i++) assert_true(read_one(&b, p, &event));
    expect_nothing(&b, p);
    finish(&b, p);
    end(&b);
}

TEST(a_timer_with_the_longest_span_can_be_armed_and_stopped)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b);
    int64_t   timer = arm(&b, p, FILCH_CMD_TIMER, INT64_MAX, 1), ticker = arm(&b, p, FILCH_CMD_TICKER, INT64_MAX, 2);
    same(fli_timers_poll(&timers, fli_clock_ns() + 1000 * HOUR_NS), 0);
    same(cancel(&b, p, timer), 1);
    same(cancel(&b, p, ticker), 1);
    finish(&b, p);
    end(&b);
}

/* The entries of sleeps and of timers come from two slabs, so their handles may be equal; their ids must differ. */
TEST(ids_of_sleeps_and_timers_are_distinct)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b), *q = spawn(&b);
    int64_t   ticker = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 1);
    ok(command(&b, q, FILCH_CMD_SLEEP, HOUR_NS, 2));
    uint64_t sleep = fli_node_at(&b.rt, fli_yield_list(q)[0])->data[0];
    assert_int_not_equal(sleep, ticker);
    same(cancel(&b, p, (int64_t)sleep), 0);
    same(cancel(&b, q, (int64_t)sleep), 0);
    same(fli_timers_ticks(&timers, sleep), 1);
    same(fli_timers_count(&timers), 2);
    fli_yield_abandon(&b.rt, &b.worker, q);
    same(fli_timers_count(&timers), 1);
    fli_timers_abandon(&timers, sleep);
    same(cancel(&b, p, ticker), 1);
    finish(&b, p);
    finish(&b, q);
    end(&b);
}

/* When a timer is cancelled, its message node is freed. A sleep that is armed later must not free that node again. */
TEST(an_abandoned_sleep_does_not_free_the_node_of_an_earlier_timer)
{
    bench b;
    begin(&b);
    fli_proc *p = spawn(&b), *q = spawn(&b);
    for (int i = 0; i < 3; i++) {
        same(cancel(&b, p, arm(&b, p, FILCH_CMD_TIMER, HOUR_NS, 1)), 1);
        ok(command(&b, q, FILCH_CMD_SLEEP, HOUR_NS, 2));
        fli_yield_abandon(&b.rt, &b.worker, q);
        same(fli_timers_count(&timers), 0);
        same(bench_nodes_out(&b), 0);
    }
    finish(&b, p);
    finish(&b, q);
    end(&b);
}

/* ---- owners and helpers ---- */

enum { SHARDS = 9 };

/* Worker `index` arms a sleep of an hour. Worker 0 is the current worker afterwards. */
static void sleep_at(bench *b, fli_proc *p, uint32_t index)
{
    b->worker.index = index;
    ok(command(b, p, FILCH_CMD_SLEEP, HOUR_NS, index));
    b->worker.index = 0;
}

TEST(a_worker_leaves_the_timers_of_a_working_owner_to_it_until_they_are_late)
{
    bench b;
    begin_with(&b, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&timers, i, false);
    fli_proc *p = spawn(&b);
    sleep_at(&b, p, 5);
    uint64_t due_ns = fli_timers_next_ns(&timers);
    same(fli_timers_help_ns(&timers, 0), due_ns + FLI_TIMERS_HELP_NS);
    same(fli_timers_help_ns(&timers, 5), due_ns);
    same(fli_timers_poll(&timers, due_ns + FLI_TIMERS_HELP_NS - 1), 0);
    /* Each poll looks at two of the eight other shards. */
    uint32_t fired = 0;
    for (int i = 0; i < (SHARDS - 1) / 2; i++)
        fired += fli_timers_poll_near(&timers, due_ns + FLI_TIMERS_HELP_NS, UINT32_MAX);
    same(fired, 1);
    sleep_at(&b, p, 5);
    b.worker.index = 5;
    same(fli_timers_poll_near(&timers, fli_timers_next_ns(&timers), UINT32_MAX), 1);
    finish(&b, p);
    end(&b);
}

TEST(a_worker_fires_the_timers_of_owners_that_are_away_when_they_are_due)
{
    bench b;
    begin_with(&b, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&timers, i, false);
    fli_proc *p = spawn(&b);
    /* The sleep of worker 4 is armed before worker 4 goes away, the sleep of worker 8 after worker 8 has gone away. */
    sleep_at(&b, p, 4);
    fli_timers_set_away(&timers, 4, true);
    fli_timers_set_away(&timers, 8, true);
    sleep_at(&b, p, 8);
    uint64_t first_ns = fli_load_rlx(&timers.shards[4].next_ns), second_ns = fli_load_rlx(&timers.shards[8].next_ns);
    same(fli_timers_help_ns(&timers, 0), first_ns);
    same(fli_timers_poll_near(&timers, first_ns - 1, UINT32_MAX), 0);
    for (int i = 0; i < SHARDS; i++) same(fli_timers_poll_near(&timers, first_ns - 1, UINT32_MAX), 0);
    /* Each poll fires one of the two sleeps, and away_ns keeps the time of the other sleep. With next_other set to 1, a
     * poll looks at the shards 1 and 2, and finds the sleeps in the shards 4 and 8 only because of away_ns. */
    for (int i = 0; i < 2; i++) {
        timers.shards[0].next_other = 1;
        same(fli_timers_poll_near(&timers, second_ns, 1), 1);
    }
    same(fli_timers_count(&timers), 0);
    finish(&b, p);
    end(&b);
}

TEST(a_timer_that_is_armed_for_an_owner_that_is_away_fires_when_it_is_due)
{
    bench b;
    begin_with(&b, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&timers, i, false);
    fli_timers_set_away(&timers, 7, true);
    fli_proc *p = spawn(&b);
    sleep_at(&b, p, 7);
    same(fli_timers_poll_near(&timers, fli_timers_next_ns(&timers), UINT32_MAX), 1);
    finish(&b, p);
    end(&b);
}

/* When the owner goes away, it lowers away_ns to the first tick. The worker that fires a tick lowers away_ns to the
 * next tick. */
TEST(a_ticker_of_an_owner_that_is_away_ticks_in_time)
{
    bench b;
    begin_with(&b, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&timers, i, false);
    fli_proc *p = spawn(&b);
    b.worker.index = 6;
    int64_t ticker = arm(&b, p, FILCH_CMD_TICKER, HOUR_NS, 1);
    b.worker.index = 0;
    fli_timers_set_away(&timers, 6, true);
    for (int i = 0; i < 20; i++) same(fli_timers_poll_near(&timers, fli_timers_next_ns(&timers), UINT32_MAX), 1);
    same(cancel(&b, p, ticker), 1);
    finish(&b, p);
    end(&b);
}

TEST(timers_are_late_if_the_worker_or_an_owner_that_is_away_is)
{
    bench b;
    begin_with(&b, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&timers, i, false);
    fli_proc *p = spawn(&b);
    assert_false(fli_timers_any(&timers));
    sleep_at(&b, p, 3);
    assert_true(fli_timers_any(&timers));
    uint64_t due_ns = fli_timers_next_ns(&timers);
    same(fli_timers_late_ns(&timers, 3, due_ns - 1), 0);
    same(fli_timers_late_ns(&timers, 3, due_ns + 5), 5);
    same(fli_timers_late_ns(&timers, 0, due_ns + 5), 0);
    fli_timers_set_away(&timers, 3, true);
    same(fli_timers_late_ns(&timers, 0, due_ns + 5), 5);
    same(fli_timers_poll_near(&timers, due_ns, UINT32_MAX), 1);
    finish(&b, p);
    end(&b);
}

/* ---- threads ---- */

enum { POLLERS = 2 };

typedef struct poller {
    bench     *b;
    fli_local  worker;
    fli_thread thread;
} poller;

static FLI_ATOMIC(bool) polled_enough;

static void poll_on(void *arg)
{
    poller *me = arg;
    me->worker.rt = &me->b->rt;
    fli_current_set(&me->worker);
    fli_timers_set_away(&timers, me->worker.index, false);
    while (!fli_load_acq(&polled_enough)) {
        (void)fli_timers_poll(&timers, fli_clock_ns());
        yield_slice();
    }
    fli_slab_empty(&me->b->rt.nodes, &me->worker.nodes);
    fli_current_set(NULL);
}

/* Reads events up to the next completion and returns the number in that completion. Adds the number of timer messages
 * before the completion to *timer_messages. */
static int64_t completion_of(bench *b, fli_proc *p, uint64_t *timer_messages)
{
    filch_event event;
    for (;;) {
        assert_true(read_one(b, p, &event));
        if (event.type == FILCH_EVENT_YIELD) return filch_as_int(&event.data);
        *timer_messages += event.tag == FILCH_CMD_TIMER;
    }
}

/* Two threads fire timers while the owner arms and cancels timers, and other processes end. Each timer is either
 * stopped or its message arrives, never both and never neither. */
TEST(each_timer_fires_or_is_stopped_whichever_worker_polls)
{
    static bench  b;
    static poller pollers[POLLERS];
    uint64_t      rounds = scaled(50000), armed = 0, stopped = 0, timer_messages = 0, ignored = 0;
    filch_event   event;
    begin(&b);
    fli_store_rlx(&polled_enough, false);
    for (int i = 0; i < POLLERS; i++) {
        memset(&pollers[i], 0, sizeof pollers[i]);
        pollers[i].b = &b;
        pollers[i].worker.index = (uint32_t)i;
        ok(fli_thread_start(&pollers[i].thread, "poller", poll_on, &pollers[i]));
    }
    fli_proc *p = spawn(&b);
    for (uint64_t i = 0; i < rounds; i++) {
        int64_t span_ns = (int64_t)(1000 + i % 7 * 20000);
        b.worker.index = (uint32_t)(i % 2);
        if (i % 5 == 0) {
            /* A ticker and a sleep that are stopped by the end of their process, perhaps while they fire. */
            fli_proc *q = spawn(&b);
            ok(command(&b, q, FILCH_CMD_TICKER, span_ns, FILCH_CMD_TICKER));
            ok(command(&b, q, FILCH_CMD_SLEEP, span_ns, FILCH_CMD_SLEEP));
            if (i % 3 == 0) (void)completion_of(&b, q, &ignored);
            finish(&b, q);
            continue;
        }
        bool timer = i % 3 != 0;
        ok(command(&b, p, timer ? FILCH_CMD_TIMER : FILCH_CMD_TICKER, span_ns,
                   timer ? FILCH_CMD_TIMER : FILCH_CMD_TICKER));
        int64_t id = completion_of(&b, p, &timer_messages);
        armed += timer;
        if (timer && i % 4 == 1) continue;
        ok(command(&b, p, FILCH_CMD_TIMER_CANCEL, id, FILCH_CMD_TIMER_CANCEL));
        int64_t gone = completion_of(&b, p, &timer_messages);
        if (timer) stopped += (uint64_t)gone;
        /* 1: the cancel stopped the ticker, because a ticker always has a next tick that can be stopped */
        else same(gone, 1);
    }
    until(fli_timers_count(&timers) == 0);
    fli_store_rel(&polled_enough, true);
    for (int i = 0; i < POLLERS; i++) fli_thread_join(&pollers[i].thread);
    while (read_one(&b, p, &event)) timer_messages += event.tag == FILCH_CMD_TIMER;
    same(timer_messages + stopped, armed);
    finish(&b, p);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleep_is_never_early_and_at_most_a_tick_late),
        cmocka_unit_test(a_timer_yield_returns_its_id_and_the_timer_sends_one_message),
        cmocka_unit_test(next_ns_is_the_due_time_of_the_earliest_timer),
        cmocka_unit_test(next_ns_ignores_a_timer_that_is_firing),
        cmocka_unit_test(a_timer_wakes_an_idle_process),
        cmocka_unit_test(a_ticker_keeps_its_phase_and_merges_missed_ticks),
        cmocka_unit_test(the_tick_count_of_a_message_saturates),
        cmocka_unit_test(the_tick_count_of_an_unknown_ticker_is_one),
        cmocka_unit_test(an_alarm_may_be_set_by_a_foreign_thread),
        cmocka_unit_test(a_timer_of_a_process_that_has_just_ended_sends_nothing),
        cmocka_unit_test(a_cancelled_timer_never_fires),
        cmocka_unit_test(invalid_ids_stop_no_timer),
        cmocka_unit_test(a_ticker_cancelled_while_it_fires_is_gone),
        cmocka_unit_test(a_ticker_cancelled_twice_while_it_fires_is_gone_once),
        cmocka_unit_test(a_cancelled_ticker_keeps_the_number_of_its_unread_ticks),
        cmocka_unit_test(a_ticker_cancelled_while_it_fires_keeps_the_number_of_its_ticks),
        cmocka_unit_test(an_abandoned_ticker_is_freed_with_unread_ticks),
        cmocka_unit_test(entries_of_cancelled_tickers_are_reused_after_their_messages_were_read),
        cmocka_unit_test(a_timer_may_be_abandoned_while_it_fires),
        cmocka_unit_test(a_ticker_is_stopped_if_its_process_ends_while_it_fires),
        cmocka_unit_test(timers_end_with_their_process),
        cmocka_unit_test(a_process_lists_only_armed_timers),
        cmocka_unit_test(no_memory_for_a_timer_leaves_nothing_behind),
        cmocka_unit_test(ticks_without_memory_for_a_message_are_counted_in_the_next),
        cmocka_unit_test(a_ticker_with_a_delayed_message_can_be_stopped),
        cmocka_unit_test(poll_some_fires_at_most_max_timers_and_the_others_stay_due),
        cmocka_unit_test(a_worker_leaves_the_timers_of_a_working_owner_to_it_until_they_are_late),
        cmocka_unit_test(a_worker_fires_the_timers_of_owners_that_are_away_when_they_are_due),
        cmocka_unit_test(a_timer_that_is_armed_for_an_owner_that_is_away_fires_when_it_is_due),
        cmocka_unit_test(a_ticker_of_an_owner_that_is_away_ticks_in_time),
        cmocka_unit_test(timers_are_late_if_the_worker_or_an_owner_that_is_away_is),
        cmocka_unit_test(a_due_sleep_is_not_starved_by_timers_of_another_wheel),
        cmocka_unit_test(all_timers_due_at_once_fire),
        cmocka_unit_test(a_timer_with_the_longest_span_can_be_armed_and_stopped),
        cmocka_unit_test(ids_of_sleeps_and_timers_are_distinct),
        cmocka_unit_test(an_abandoned_sleep_does_not_free_the_node_of_an_earlier_timer),
        cmocka_unit_test(each_timer_fires_or_is_stopped_whichever_worker_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
