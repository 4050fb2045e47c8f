/* clock_test.c - sleeps, timers and tickers: they never fire early, are never lost, and are removed when their process
 * ends. */
#include "api/fixture.h"
#include "support/manual_clock.h"

static fixture w;

static void actor_stop(actor *a)
{
    ok(filch_cancel(w.sched, a->pid));
    actor_ends(&w, a, FILCH_OK);
}

/* ---- sleep ---- */

typedef struct sleep_record {
    uint64_t delay_ns, began_ns, woke_ns;
} sleep_record;

static filch_err play_sleep(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    sleep_record *n = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        n->woke_ns = fli_clock_ns();
        return events[i].error != FILCH_OK ? events[i].error : filch_done(out, filch_none());
    }
    n->began_ns = fli_clock_ns();
    filch_err err = filch_yield_sleep(out, 4, n->delay_ns);
    return err == FILCH_OK ? filch_wait(out) : err;
}

TEST(a_sleep_is_never_early)
{
    static const uint64_t delays[] = { 0, 1, 1000, 65535, 65536, 65537, 999999, 1000000, 3333333, 20000000 };
    static actor          a[COUNT_OF(delays)];
    static sleep_record   sleep_records[COUNT_OF(delays)];
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 2; workers += 3) {
        memset(a, 0, sizeof a);
        fixture_begin(&w, workers);
        for (size_t i = 0; i < COUNT_OF(delays); i++) {
            sleep_records[i] = (sleep_record){ .delay_ns = delays[i] };
            a[i].user = &sleep_records[i];
            actor_start(&w, &a[i], play_sleep);
        }
        for (size_t i = 0; i < COUNT_OF(delays); i++) {
            actor_ends(&w, &a[i], FILCH_OK);
            assert_true(sleep_records[i].woke_ns - sleep_records[i].began_ns >= delays[i]);
            same(a[i].seen[0].tag, 4);
            same(a[i].seen[0].error, FILCH_OK);
        }
        same(fixture_stats(&w).timers, 0);
        fixture_end(&w);
    }
}

TEST(sleeps_for_ever_end_with_their_process)
{
    static const uint64_t delays[] = { UINT64_MAX, FILCH_FOREVER - 1, (uint64_t)INT64_MAX + 1,
                                       INT64_MAX,  UINT64_C(1) << 62, FILCH_SECONDS(86400) * 365 };
    static actor          a[COUNT_OF(delays)];
    static sleep_record   sleep_records[COUNT_OF(delays)];
    memset(a, 0, sizeof a);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        sleep_records[i] = (sleep_record){ .delay_ns = delays[i] };
        a[i].user = &sleep_records[i];
        actor_start(&w, &a[i], play_sleep);
    }
    (void)fixture_tick(&w);
    same(fixture_stats(&w).timers, COUNT_OF(delays));
    assert_true(filch_next_timeout(w.sched) > FILCH_SECONDS(1));
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        assert_false(is_over(&a[i]));
        same(fixture_inspect(&w, a[i].pid).state, FILCH_STATE_BLOCKED);
        actor_stop(&a[i]);
        same(fixture_stats(&w).timers, COUNT_OF(delays) - 1 - i);
    }
    assert_true(filch_next_timeout(w.sched) == FILCH_FOREVER);
    fixture_end(&w);
}

TEST(thousands_of_sleeping_processes_all_wake)
{
    uint32_t      n = fixture_scale(100000, 1000);
    actor        *a = calloc(n, sizeof *a);
    sleep_record *sleep_records = calloc(n, sizeof *sleep_records);
    fixture_begin(&w, 2);
    for (uint32_t i = 0; i < n; i++) {
        sleep_records[i].delay_ns = UINT64_C(7919) * i % FILCH_MILLISECONDS(50);
        a[i].user = &sleep_records[i];
        actor_start(&w, &a[i], play_sleep);
    }
    for (uint32_t i = 0; i < n; i++) {
        actor_ends(&w, &a[i], FILCH_OK);
        assert_true(sleep_records[i].woke_ns - sleep_records[i].began_ns >= sleep_records[i].delay_ns);
    }
    same(fixture_stats(&w).timers, 0);
    same(fixture_stats(&w).completions, n);
    fixture_end(&w);
    free(sleep_records);
    free(a);
}

/* ---- timers and tickers, and cancelling them ---- */

enum { TAG_TIMER = 11, TAG_TICKER, TAG_CANCEL };

/* Requests to the process under test: start a timer, start a ticker, or cancel one of them. */
enum { DO_TIMER = 1, DO_TICKER, DO_CANCEL };

typedef struct timer_log {
    int64_t  id;        /* id of the last timer or ticker */
    int64_t  cancelled; /* result of the last cancel yield; -1: no cancel has completed yet */
    uint32_t timers, ticks_events;
    int64_t  ticks;
    uint64_t armed_ns, last_ns;
    uint32_t wrong;
} timer_log;

typedef struct timer_request {
    int      what;
    uint64_t ns;
    int64_t  id;
} timer_request;

static filch_err arm_or_cancel(actor *me, const filch_event *event, filch_out *out)
{
    const timer_request *o = filch_as_ptr(&event->data);
    timer_log           *d = me->user;
    d->armed_ns = fli_clock_ns();
    switch (o->what) {
    case DO_TIMER: return filch_yield_timer(out, TAG_TIMER, o->ns);
    case DO_TICKER: return filch_yield_ticker(out, TAG_TICKER, o->ns);
    default: return filch_yield_timer_cancel(out, TAG_CANCEL, o->id);
    }
}

static filch_err play_timers(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    timer_log *d = me->user;
    for (size_t i = 0; i < count; i++) {
        const filch_event *e = &events[i];
        int64_t            number = filch_as_int(&e->data);
        filch_err          err = FILCH_OK;
        if (e->type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (e->type == FILCH_EVENT_YIELD && e->tag == TAG_CANCEL) d->cancelled = number;
        else if (e->type == FILCH_EVENT_YIELD) d->id = number;
        else if (e->tag == 0) err = arm_or_cancel(me, e, out);
        else if (e->tag == TAG_TIMER) d->timers++;
        else if (e->tag == TAG_TICKER) d->ticks_events++, d->ticks += number;
        if (e->type == FILCH_EVENT_MESSAGE && e->tag != 0) {
            d->last_ns = fli_clock_ns();
            if (!is_null_pid(e->from) || number < 1) d->wrong++;
        }
        if (err != FILCH_OK || e->error != FILCH_OK) d->wrong++;
    }
    return filch_idle(out);
}

static void send_request(actor *a, int what, uint64_t ns, int64_t id)
{
    static timer_request requests[64];
    static size_t        next;
    timer_request       *o = &requests[next++ % COUNT_OF(requests)];
    timer_log           *d = a->user;
    *o = (timer_request){ .what = what, .ns = ns, .id = id };
    if (what == DO_CANCEL) d->cancelled = -1;
    else d->id = 0;
    ok(filch_send(w.sched, a->pid, filch_ptr(o)));
    (void)fixture_tick(&w);
    (void)fixture_tick(&w);
}

/* Lets `a` cancel the timer `id`. Returns the completion: 1 if the timer was cancelled, 0 if not. */
static int64_t cancel(actor *a, int64_t id)
{
    send_request(a, DO_CANCEL, 0, id);
    timer_log *d = a->user;
    UNTIL(&w, d->cancelled >= 0);
    return d->cancelled;
}

TEST(a_timer_gives_its_id_at_once_and_its_message_in_time)
{
    timer_log d = { .id = 0 };
    actor     a = { .user = &d };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_timers);
    static const uint64_t delays[] = { 0, 1, 100000, 5000000 };
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        send_request(&a, DO_TIMER, delays[i], 0);
        UNTIL(&w, d.timers == i + 1);
        assert_true(d.id != 0);
        assert_true(d.last_ns - d.armed_ns >= delays[i]);
        same(cancel(&a, d.id), 0); /* the timer has fired, so the cancel finds no timer */
        same(fixture_stats(&w).timers, 0);
    }
    same(d.wrong, 0);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(a_timer_stopped_in_time_never_fires)
{
    timer_log d = { .id = 0 };
    actor     a = { .user = &d };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_timers);
    send_request(&a, DO_TIMER, FILCH_SECONDS(3600), 0);
    same(fixture_stats(&w).timers, 1);
    int64_t id = d.id;
    same(cancel(&a, id), 1);
    same(cancel(&a, id), 0); /* a second cancel finds no timer */
    same(fixture_stats(&w).timers, 0);
    send_request(&a, DO_TIMER, FILCH_SECONDS(3600), 0); /* this timer may reuse the memory of the cancelled one */
    assert_true(d.id != id);
    same(cancel(&a, id), 0); /* the old id does not cancel the new timer */
    same(fixture_stats(&w).timers, 1);
    same(cancel(&a, d.id), 1);
    same(d.timers, 0);
    same(d.wrong, 0);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(a_process_cannot_stop_timers_or_sleeps_of_another)
{
    timer_log    d = { .id = 0 }, e = { .id = 0 };
    sleep_record n = { .delay_ns = FILCH_MILLISECONDS(30) };
    actor        a = { .user = &d }, b = { .user = &e }, c = { .user = &n };
    clock_stop();
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_timers);
    actor_start(&w, &b, play_timers);
    actor_start(&w, &c, play_sleep);
    send_request(&a, DO_TIMER, FILCH_MILLISECONDS(30), 0);
    int64_t timer = d.id;
    send_request(&a, DO_TICKER, FILCH_SECONDS(3600), 0);
    same(fixture_stats(&w).timers, 3);
    same(cancel(&b, timer), 0);
    same(cancel(&b, d.id), 0);
    /* Timer ids are numbers that another process can guess. */
    for (int64_t k = -3; k < 20; k++) {
        for (int64_t generation = 0; generation < 4; generation++) same(cancel(&b, (generation << 32) + k), 0);
    }
    static const int64_t wild[] = { INT64_MAX, INT64_MIN, -1, UINT32_MAX, INT64_C(0x7fffffff00000001) };
    for (size_t i = 0; i < COUNT_OF(wild); i++) same(cancel(&b, wild[i]), 0);
    clock_advance(FILCH_MILLISECONDS(31));
    actor_ends(&w, &c, FILCH_OK); /* the cancels did not remove the sleep of process c: it wakes and ends */
    UNTIL(&w, d.timers == 1);
    same(cancel(&a, d.id), 1);
    clock_go();
    actor_stop(&a);
    actor_stop(&b);
    same(fixture_stats(&w).timers, 0);
    fixture_end(&w);
}

TEST(a_ticker_ticks_on_time_until_it_is_stopped)
{
    timer_log d = { .id = 0 };
    actor     a = { .user = &d };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_timers);
    send_request(&a, DO_TICKER, FILCH_MILLISECONDS(1), 0);
    uint64_t armed_ns = d.armed_ns;
    int64_t  id = d.id;
    UNTIL(&w, d.ticks >= 20);
    /* The number of ticks is at most the number of periods that have passed. */
    assert_true((uint64_t)d.ticks <= (d.last_ns - armed_ns) / FILCH_MILLISECONDS(1));
    same(fixture_stats(&w).timers, 1);
    same(cancel(&a, id), 1);
    same(cancel(&a, id), 0);
    same(fixture_stats(&w).timers, 0);
    (void)fixture_tick(&w);
    int64_t ticks = d.ticks;
    UNTIL(&w, fli_clock_ns() > d.last_ns + FILCH_MILLISECONDS(5));
    same(d.ticks, ticks);
    same(d.wrong, 0);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(ticks_that_were_not_read_are_merged_and_counted)
{
    timer_log d = { .id = 0 };
    actor     a = { .user = &d };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_timers);
    send_request(&a, DO_TICKER, FILCH_MILLISECONDS(1), 0);
    uint64_t armed_ns = d.armed_ns;
    /* filch_tick() is not called for 25 ms, so many ticks come due */
    while (fli_clock_ns() < armed_ns + FILCH_MILLISECONDS(25)) yield_slice();
    uint32_t events = d.ticks_events;
    uint64_t before_ns = fli_clock_ns();
    (void)fixture_tick(&w);
    uint64_t during = (fli_clock_ns() - before_ns) / FILCH_MILLISECONDS(1);
    assert_true(d.ticks_events - events <=
                /* One event for all ticks that came due in the 25 ms, and at most 1 + `during` events for the ticks
                 * that came due while fixture_tick() ran. It ran for `during` whole milliseconds. */
                2 + during);
    uint64_t due = (before_ns - armed_ns) / FILCH_MILLISECONDS(1);
    /* one tick less is allowed, because the ticker was started a little after the request */
    assert_true((uint64_t)d.ticks + 1 >= due);
    assert_true((uint64_t)d.ticks <= (d.last_ns - armed_ns) / FILCH_MILLISECONDS(1));
    same(d.wrong, 0);
    actor_stop(&a);
    fixture_end(&w);
}

static filch_receiver kept_receiver;

static filch_err handle_keep(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    kept_receiver = receiver;
    return FILCH_OK;
}

/* Starts a ticker, then waits for the completion of another yield. */
static filch_err play_busy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    timer_log *d = me->user;
    if (me->stage == 0) {
        me->stage = 1;
        me->note |= filch_yield_ticker(out, TAG_TICKER, FILCH_MICROSECONDS(200));
        me->note |= filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 1) me->stage = 2;
        if (events[i].type == FILCH_EVENT_MESSAGE) d->ticks_events++, d->ticks += filch_as_int(&events[i].data);
    }
    return me->stage == 1 ? filch_wait(out) : filch_idle(out);
}

TEST(a_waiting_process_finds_one_message_for_all_ticks)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle_keep, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(registry);
    timer_log d = { .id = 0 };
    actor     a = { .user = &d };
    clock_stop();
    actor_start(&w, &a, play_busy);
    (void)fixture_tick(&w);
    for (int i = 0; i < 100; i++) { /* 50 ticks come due, and fire one by one */
        clock_advance(FILCH_MICROSECONDS(100));
        (void)fixture_tick(&w);
    }
    same(d.ticks_events, 0);
    ok(filch_complete(kept_receiver, 1, filch_none(), FILCH_OK));
    (void)fixture_tick(&w);
    same(d.ticks_events, 1);
    assert_in_range(d.ticks, 45, 50);
    clock_go();
    same(a.note, 0);
    actor_stop(&a);
    same(fixture_stats(&w).timers, 0);
    fixture_end(&w);
}

/* ---- timers of a process that ends before they fire ---- */

static filch_err play_arm_many(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    for (uint64_t i = 0; i < 100; i++) {
        me->note |= filch_yield_timer(out, i, FILCH_SECONDS(1000 + i));
        me->note |= filch_yield_ticker(out, i, FILCH_SECONDS(1000 + i));
        me->note |= filch_yield_sleep(out, i, FILCH_SECONDS(1000 + i));
    }
    return filch_idle(out);
}

TEST(timers_tickers_and_sleeps_end_with_their_process)
{
    actor a = { .stage = 0 }, b = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_arm_many);
    actor_start(&w, &b, play_arm_many);
    (void)fixture_tick(&w);
    same(a.note, 0);
    same(fixture_stats(&w).timers, 600);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    same(fixture_stats(&w).timers, 300);
    actor_stop(&b);
    same(fixture_stats(&w).timers, 0);
    fixture_end(&w);
}

/* Starts a ticker of the shortest period and a timer, and ends after six events, while the ticker is still running. */
static filch_err play_fleeting(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events;
    if (me->stage == 0) {
        me->note |= filch_yield_ticker(out, 1, 1);
        me->note |= filch_yield_timer(out, 2, 0);
    }
    me->stage += (int64_t)count;
    return me->stage >= 6 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(processes_that_end_while_their_timers_fire_leave_none_behind)
{
    uint32_t n = fixture_scale(5000, 100);
    actor   *a = calloc(n, sizeof *a);
    fixture_begin(&w, 3);
    for (uint32_t i = 0; i < n; i++) actor_start(&w, &a[i], play_fleeting);
    for (uint32_t i = 0; i < n; i++) {
        actor_ends(&w, &a[i], FILCH_OK);
        same(a[i].note, 0);
    }
    UNTIL(&w, fixture_stats(&w).timers == 0);
    fixture_end(&w);
    free(a);
}

static filch_err play_bad_period(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    me->note = filch_yield_ticker(out, 1, 0);
    return filch_done(out, filch_none());
}

TEST(a_ticker_needs_a_period)
{
    actor a = { .stage = 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_bad_period);
    actor_ends(&w, &a, FILCH_OK);
    same(a.note, FILCH_EINVAL);
    same(fixture_stats(&w).yields, 0);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleep_is_never_early),
        cmocka_unit_test(sleeps_for_ever_end_with_their_process),
        cmocka_unit_test(thousands_of_sleeping_processes_all_wake),
        cmocka_unit_test(a_timer_gives_its_id_at_once_and_its_message_in_time),
        cmocka_unit_test(a_timer_stopped_in_time_never_fires),
        cmocka_unit_test(a_process_cannot_stop_timers_or_sleeps_of_another),
        cmocka_unit_test(a_ticker_ticks_on_time_until_it_is_stopped),
        cmocka_unit_test(ticks_that_were_not_read_are_merged_and_counted),
        cmocka_unit_test(a_waiting_process_finds_one_message_for_all_ticks),
        cmocka_unit_test(timers_tickers_and_sleeps_end_with_their_process),
        cmocka_unit_test(processes_that_end_while_their_timers_fire_leave_none_behind),
        cmocka_unit_test(a_ticker_needs_a_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
