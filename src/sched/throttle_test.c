/* throttle_test.c - which worker pauses, for how long, and what happens to its queue. The worker threads are parked or
 * held inside a step. The worker that pauses is caller_worker, which the test thread runs. */
#include "sched/throttle.h"

#include <string.h>

#include "port/clock.h"
#include "port/thread.h"
#include "sched/sched.h"
#include "sched/stop.h"
#include "sched/worker.h"
#include "support/until.h"
#include "sync/deque.h"
#include "sync/inject.h"
#include "sync/lifo_slot.h"

static FLI_ATOMIC(uint32_t) steps, held;
static FLI_ATOMIC(bool)     released;

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    fli_add_rlx(&steps, 1);
    return filch_done(out, filch_none());
}

static const filch_type type = { .name = "one", .step = on_step };

/* Keeps its worker inside the step until `released` is set. */
static filch_err hold(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    fli_add_rlx(&held, 1);
    for (unsigned looks = 0; !fli_load_rlx(&released); looks++) until_pause(looks);
    return filch_done(out, filch_none());
}

static const filch_type holder = { .name = "holder", .step = hold };

/* Counts messages, and ends when `released` is set. */
static filch_err listen(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    fli_add_rlx(&steps, (uint32_t)count);
    return fli_load_rlx(&released) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listen };

static filch_sched *begin(int32_t workers)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = workers;
    ok(filch_sched_create(&sched, &options));
    fli_store_rlx(&steps, 0);
    return sched;
}

static void end(filch_sched *sched)
{
    ok(filch_sched_stop(sched, FILCH_SECONDS(30), NULL));
}

static uint32_t paused(filch_sched *sched)
{
    return fli_load_rlx(&sched->throttle.paused);
}

/* Reads the clock `readings` times, 10 us apart, each time after `remote_count` remote events of caller_worker. Returns
 * the last result of fli_throttle_is_due(). */
static bool read_clock_often(fli_worker *w, uint32_t readings, uint32_t remote_count)
{
    bool is_due = false;
    for (uint32_t i = 0; i < readings; i++) {
        w->clock_ns += 10000;
        w->local.remote_events = remote_count;
        is_due = fli_throttle_is_due(w);
    }
    return is_due;
}

/* Returns caller_worker after 1.5 ms of clock readings without a pause and without remote events. */
static fli_worker *caller_worker_of(filch_sched *sched)
{
    fli_worker *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    assert_false(read_clock_often(w, 150, 0));
    return w;
}

TEST(a_worker_with_many_remote_events_for_long_is_due_to_pause)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    assert_false(read_clock_often(w, 100, 20));
#ifndef FLI_SMALL
    /* not due yet: each reading adds 16 us of remote cost, and the 10 us between two readings are subtracted */
    assert_false(read_clock_often(w, 30, 40));
#endif
    assert_true(read_clock_often(w, 10, 40));
    assert_false(read_clock_often(w, 200, 0));
    same(w->local.remote_events, 0);
    end(sched);
}

TEST(many_remote_events_in_one_reading_make_a_pause_due)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    assert_true(read_clock_often(w, 1, 10000));
    assert_true(read_clock_often(w, 20, 0));
    assert_false(read_clock_often(w, 100, 0)); /* the cost decays */
    end(sched);
}

TEST(a_worker_that_parks_between_remote_events_is_not_due_to_pause)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    for (int i = 0; i < 1000; i++) {
        w->clock_ns += 90000; /* simulates a park of 90 us */
        assert_false(read_clock_often(w, 1, 100));
    }
    end(sched);
}

/* Reads the clock `readings` times, 10 us apart. Before each reading caller_worker ran one step that sent `sent`
 * messages to a process that was ready, and `others` other steps; all workers together received `received` messages.
 * Returns the last result of fli_throttle_is_due(). */
static bool add_backlog(fli_worker *w, uint32_t readings, uint32_t sent, uint32_t others, uint32_t received)
{
    bool is_due = false;
    for (uint32_t i = 0; i < readings; i++) {
        w->clock_ns += 10000;
        fli_throttle_note_backlog(&w->throttle, sent);
        fli_count(&w->local.counters.steps, 1 + others);
        fli_count(&w->sched->workers[0]->local.counters.sent, sent);
        fli_count(&w->sched->workers[0]->throttle.batched, received);
        is_due = fli_throttle_is_due(w);
    }
    return is_due;
}

TEST(a_worker_that_only_adds_to_a_backlog_is_due_to_pause)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    /* Not due, because there is no backlog: all workers together receive as many messages as are sent. */
    assert_false(add_backlog(w, 100, 64, 0, 64));
    assert_false(add_backlog(w, 100, 64, 1, 0)); /* not due: besides the steps that send, the worker runs other steps */
#ifndef FLI_SMALL
    assert_false(add_backlog(w, 30, 64, 0, 0)); /* not due: the backlog is so small that it would soon be received */
#endif
    assert_true(add_backlog(w, 10, 64, 0, 0));
    assert_true(add_backlog(w, 100, 64, 0, 8)); /* due: 64 messages are sent for each 8 that are received */
    assert_false(add_backlog(w, 1, 64, 1, 0));
    end(sched);
}

#ifndef FLI_SMALL
/* 2048 sends to ready processes, and more than 2048 messages that were sent and not received, are enough. */
TEST(a_backlog_of_exactly_the_minimum_makes_a_pause_due)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    /* Not due: the second step sends nothing, and so sets the count of sends to ready processes to 0. */
    assert_false(add_backlog(w, 1, 64, 1, 0));
    assert_false(add_backlog(w, 31, 64, 0, 0));
    assert_false(add_backlog(w, 1, 63, 0, 0));
    assert_true(add_backlog(w, 1, 1, 0, 0));
    end(sched);
}
#endif

TEST(a_backlog_makes_no_pause_due_during_the_back_off)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    fli_store_rlx(&sched->throttle.backoff_until_ns, w->clock_ns + FILCH_SECONDS(1));
    assert_false(add_backlog(w, 100, 64, 0, 0));
    end(sched);
}

TEST(the_rate_is_measured_from_the_end_of_the_last_pause)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    uint64_t     ended_ns = w->clock_ns + 5000;
    fli_store_rlx(&sched->throttle.ended_done, 12345);
    fli_store_rlx(&sched->throttle.ended_ns, ended_ns);
    bool is_due = read_clock_often(w, 1, 10000);
#ifndef FLI_SMALL
    /* Not due so soon after the last pause: the rate without a pause was measured for too short a time. */
    assert_false(is_due);
#else
    (void)is_due;
#endif
    same(w->throttle.before.ns, ended_ns);
    same(w->throttle.before.done, 12345);
    assert_true(read_clock_often(w, 50, 0));
    end(sched);
}

#ifndef FLI_SMALL /* with FLI_SMALL a pause is due even if no rate was measured */
TEST(after_a_pause_with_a_proven_rate_the_next_is_due_sooner)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    fli_store_rlx(&sched->throttle.ended_ns, w->clock_ns);
    assert_false(read_clock_often(w, 20, 40)); /* not due: only 200 us have passed since the last pause */
    assert_false(read_clock_often(w, 1, 10000));
    fli_store_rlx(&sched->throttle.proven_rate, 1000);
    assert_true(read_clock_often(w, 1, 0));
    /* 160 events in 230 us are 695 per millisecond: more than 2/3 of proven_rate, so no pause is due */
    fli_count(&sched->workers[0]->throttle.batched, 160);
    assert_false(read_clock_often(w, 1, 0));
    fli_store_rlx(&sched->throttle.ended_ns, w->clock_ns);
    fli_store_rlx(&sched->throttle.ended_done, 160);
    assert_false(read_clock_often(w, 9, 0)); /* not due: too soon after the last pause */
    assert_true(read_clock_often(w, 2, 0));
    end(sched);
}
#endif

/* Makes `times` steals of `count` processes each, and runs `ran` steps after each steal. Returns the last result of
 * fli_throttle_steals_are_weak(). */
static bool steal_often(fli_worker *w, uint32_t times, uint32_t count, uint32_t ran)
{
    bool weak = false;
    for (uint32_t i = 0; i < times; i++) {
        fli_throttle_note_steal(w, count);
        fli_count(&w->local.counters.steps, ran);
        weak = fli_throttle_steals_are_weak(w);
    }
    return weak;
}

TEST(a_thief_whose_steals_lead_to_few_steps_is_due_to_pause)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    /* Makes steals until a pause is due: at first, the rate without a pause has not been measured for long enough. */
    until(steal_often(w, 200, 10, 10));
    assert_false(steal_often(w, 1, 10, 100)); /* not weak: the steal led to many steps */
    w->step_ns = 10000;
    assert_false(steal_often(w, 200, 10, 10));     /* not weak: the steps were long */
    assert_false(fli_throttle_steals_are_weak(w)); /* not weak: no steal since the last call */
    end(sched);
}

TEST(a_thief_is_not_due_to_pause_during_the_back_off)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    until(steal_often(w, 200, 10, 10));
    fli_store_rlx(&sched->throttle.backoff_until_ns, fli_clock_ns() + FILCH_SECONDS(3600));
    assert_false(steal_often(w, 200, 10, 10));
    fli_store_rlx(&sched->throttle.backoff_until_ns, 0);
    assert_true(steal_often(w, 200, 10, 10));
    end(sched);
}

/* Creates a scheduler with `workers` workers that stay inside a step until `released` is set. Meanwhile they cannot
 * steal, and a pause of caller_worker ends early. */
static filch_sched *begin_held_by(uint32_t workers)
{
    filch_sched *sched = begin((int32_t)workers);
    fli_store_rlx(&held, 0);
    fli_store_rlx(&released, false);
    for (uint32_t i = 0; i < workers; i++) ok(filch_spawn(sched, &holder, NULL, NULL));
    until(fli_load_rlx(&held) == workers);
    return sched;
}

static filch_sched *begin_held(void)
{
    return begin_held_by(2);
}

#ifndef FLI_SMALL /* with the constants of FLI_SMALL two weak steals make a pause due */
/* Makes a steal that is not weak, then a weak steal. Then sets the time of the mark `before` back by 1 ms, as if the
 * rate had been measured for 1 ms longer. */
static void begin_again(fli_worker *w)
{
    assert_false(steal_often(w, 1, 10, 100));
    assert_false(steal_often(w, 1, 10, 10));
    w->throttle.before.ns -= FILCH_MILLISECONDS(1);
}

TEST(after_a_pause_that_helped_fewer_weak_steals_make_one_due)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    begin_again(w);
    assert_false(steal_often(w, 100, 10, 15));
    assert_true(steal_often(w, 100, 10, 15));
    fli_store_rlx(&sched->throttle.pause_ns, FILCH_MILLISECONDS(4)); /* as if the last pause had helped */
    begin_again(w);
    assert_false(steal_often(w, 20, 10, 15));
    assert_true(steal_often(w, 20, 10, 15));
    end(sched);
}

TEST(dead_steals_make_a_pause_due_after_fewer_steals)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    begin_again(w);
    assert_false(steal_often(w, 20, 10, 10));
    assert_true(steal_often(w, 20, 10, 10));
    /* this steal led to 11 steps for 10 processes: it is not dead, and sets the count of dead steals to 0 */
    assert_false(steal_often(w, 1, 10, 11));
    assert_false(steal_often(w, 30, 10, 10));
    assert_true(steal_often(w, 10, 10, 10));
    end(sched);
}

TEST(dead_steals_make_a_pause_due_sooner_but_not_at_once)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    begin_again(w);
    /* as if the rate had been measured for too short a time */
    w->throttle.before.ns = fli_clock_ns() + FILCH_SECONDS(3600);
    assert_false(steal_often(w, 100, 10, 10));
    w->throttle.before.ns = fli_clock_ns() - FILCH_MICROSECONDS(150);
    assert_true(steal_often(w, 1, 10, 10));
    end(sched);
}
#endif

TEST(a_pausing_worker_moves_its_deque_to_the_global_queue)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    fli_current_set(&w->local); /* the spawns below go to the deque of caller_worker */
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &type, NULL, NULL));
    same(fli_deque_count(&w->deque), 10);
    w->clock_ns = fli_clock_ns();
    fli_throttle_pause(w); /* the pause ends early, because the other workers are inside steps */
    same(fli_deque_count(&w->deque), 0);
    same(fli_inject_count(&sched->global), 10);
    same(paused(sched), 0);
    fli_store_rlx(&released, true);
    fli_current_set(NULL);
    until(fli_load_rlx(&steps) == 10);
    end(sched);
}

TEST(a_worker_joins_the_pause_of_another_until_that_ends)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    uint64_t until_ns = w->clock_ns + FILCH_MILLISECONDS(20);
    assert_false(fli_throttle_is_due(w));
    fli_store_rlx(&sched->throttle.until_ns, until_ns);
    assert_true(fli_throttle_is_due(w));
    assert_true(fli_throttle_steals_are_weak(w));
    fli_throttle_pause(w);
    assert_true(w->clock_ns >= until_ns);
    /* 0: only the worker that leads a pause stores its end, and `w` has not led the pause. */
    same(fli_load_rlx(&sched->throttle.ended_ns), 0);
    same(paused(sched), 0);
    assert_false(fli_load_rlx(&w->throttle.follows));
    assert_false(fli_throttle_is_due(w)); /* not due: the pause is over */
    fli_store_rlx(&released, true);
    end(sched);
}

TEST(no_more_workers_join_a_pause_than_may_sleep)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    w->clock_ns = fli_clock_ns();
    fli_store_rlx(&sched->throttle.until_ns, w->clock_ns + FILCH_SECONDS(3600));
    fli_store_rlx(&sched->throttle.paused, 1); /* one of two workers is paused, so no other may join: active is 1 */
    assert_false(fli_throttle_is_due(w));
    fli_store_rlx(&sched->throttle.paused, 0);
    fli_store_rlx(&sched->throttle.active, 2);
    assert_false(fli_throttle_is_due(w));
    fli_store_rlx(&sched->throttle.active, 1);
    assert_true(fli_throttle_is_due(w));
    fli_store_rlx(&sched->throttle.until_ns, 0);
    fli_store_rlx(&released, true);
    end(sched);
}

#ifndef FLI_SMALL /* with FLI_SMALL one contended send makes a pause due */
TEST(many_sends_to_contended_mailboxes_make_a_pause_due)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = caller_worker_of(sched);
    fli_count(&w->local.counters.sent, 1000);
    w->local.contended_sends = 200; /* one in five */
    assert_false(read_clock_often(w, 1, 0));
    same(w->local.contended_sends, 0);
    fli_count(&w->local.counters.sent, 1000);
    w->local.contended_sends = 300;
    assert_true(read_clock_often(w, 1, 0));
    assert_false(read_clock_often(w, 1, 0));
    fli_count(&w->local.counters.sent, 30);
    w->local.contended_sends = 30; /* below FLI_CONTENDED_MIN */
    assert_false(read_clock_often(w, 1, 0));
    end(sched);
}
#endif

TEST(one_worker_always_stays_unpaused)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    fli_store_rlx(&sched->throttle.paused, 1); /* another worker pauses */
    w->clock_ns = fli_clock_ns();
    fli_throttle_pause(w);
    same(fli_load_rlx(&sched->throttle.ended_ns), 0);         /* 0: no pause has ended, because `w` has not paused */
    same(fli_load_rlx(&sched->throttle.backoff_until_ns), 0); /* 0: there is no back-off */
    same(paused(sched), 1);
    fli_store_rlx(&sched->throttle.paused, 0);
    fli_throttle_pause(w); /* `w` pauses now, because the other worker is not paused */
    assert_true(fli_load_rlx(&sched->throttle.ended_ns) > 0);
    fli_store_rlx(&released, true);
    end(sched);
}

TEST(the_newest_of_a_pausing_worker_goes_to_the_front_of_the_global_queue)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    filch_pid    newest;
    void        *first = NULL;
    /* no worker is set on this thread: these processes go to the global queue */
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &type, NULL, NULL));
    fli_current_set(&w->local);
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &type, NULL, &newest));
    w->clock_ns = fli_clock_ns();
    fli_throttle_pause(w);
    same(fli_inject_take(&sched->global, &first, 1), 1);
    same(fli_proc_serial(first), newest.serial);
    fli_inject_put(&sched->global, first);
    fli_current_set(NULL);
    fli_store_rlx(&released, true);
    until(fli_load_rlx(&steps) == 20);
    end(sched);
}

/* The worker has sent to a process, and pauses before that process has run. */
TEST(the_lifo_slot_of_a_pausing_worker_goes_to_the_front_of_the_global_queue)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    void        *first = NULL;
    fli_current_set(&w->local);
    for (int i = 0; i < 10; i++) ok(filch_spawn(sched, &type, NULL, NULL));
    fli_proc *next = fli_deque_take_oldest(&w->deque);
    assert_true(fli_lifo_slot_put(&w->lifo_slot, next));
    w->clock_ns = fli_clock_ns();
    fli_throttle_pause(w);
    same(fli_worker_queued(w), 0);
    same(fli_inject_count(&sched->global), 10);
    same(fli_inject_take(&sched->global, &first, 1), 1);
    assert_ptr_equal(first, next);
    fli_inject_put(&sched->global, first);
    fli_current_set(NULL);
    fli_store_rlx(&released, true);
    until(fli_load_rlx(&steps) == 10);
    end(sched);
}

TEST(a_pause_that_costs_at_most_an_eighth_of_the_rate_helped)
{
    assert_true(fli_throttle_helped(800, 700));
    assert_false(fli_throttle_helped(800, 699));
    assert_true(fli_throttle_helped(0, 0));
}

/* Pauses `w`. The mark `before` says that all events counted so far were received in the last millisecond. No events
 * are received during the pause. */
static void pause_after_a_millisecond(fli_worker *w)
{
    w->clock_ns = fli_clock_ns();
    w->throttle.before = (fli_throttle_mark){ .ns = w->clock_ns - FILCH_MILLISECONDS(1) };
    fli_throttle_pause(w);
}

/* Makes a pause that does not help: many events are received before the pause, none during it. */
static void pause_without_help(fli_worker *w)
{
    fli_count(&w->sched->workers[0]->throttle.batched, 1000000000);
    pause_after_a_millisecond(w);
}

/* Makes a pause that does not help: many steps of inline completion loops (inline_yield.c) run before the pause, none
 * during it. */
static void pause_after_inline_steps(fli_worker *w)
{
    fli_count(&w->sched->workers[0]->local.counters.inline_steps, 1000000000);
    pause_after_a_millisecond(w);
}

/* Makes a pause that counts as one that helped: no events are received before it or during it. */
static void pause_with_help(fli_worker *w)
{
    w->clock_ns = fli_clock_ns();
    w->throttle.before = (fli_throttle_mark){ .ns = w->clock_ns };
    fli_throttle_pause(w);
}

static uint64_t backoff_of(fli_worker *w)
{
    uint64_t until_ns = fli_load_rlx(&w->sched->throttle.backoff_until_ns);
    return until_ns > w->clock_ns ? until_ns - w->clock_ns : 0;
}

TEST(a_pause_that_did_not_help_starts_the_back_off)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    pause_without_help(w);
    assert_true(backoff_of(w) > 0);
    assert_false(read_clock_often(w, 100, 40));
    end(sched);
}

TEST(inline_steps_before_a_pause_count_as_work)
{
    filch_sched *sched = begin(2);
    pause_after_inline_steps(sched->caller_worker);
    assert_true(backoff_of(sched->caller_worker) > 0);
    end(sched);
}

TEST(after_a_pause_that_did_not_help_the_next_leaves_more_workers_awake)
{
    filch_sched *sched = begin(8);
    fli_worker  *w = sched->caller_worker;
    same(fli_load_rlx(&sched->throttle.active), 1);
    pause_without_help(w);
    same(fli_load_rlx(&sched->throttle.active), 4);
    pause_with_help(w);
    same(fli_load_rlx(&sched->throttle.active), 4);
    pause_without_help(w);
    same(fli_load_rlx(&sched->throttle.active), 1); /* active is 1 again: 4 times 4 would be more than half of the 8
                                                       workers */
    end(sched);
}

TEST(each_pause_that_did_not_help_doubles_the_back_off_up_to_a_limit)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    pause_without_help(w);
    uint64_t first = backoff_of(w);
    pause_without_help(w);
    same(backoff_of(w), 2 * first);
    for (int i = 0; i < 10; i++) pause_without_help(w);
    same(backoff_of(w), 16 * first);
    pause_with_help(w);
    pause_without_help(w);
    same(backoff_of(w), first);
    end(sched);
}

TEST(a_pause_that_helped_makes_the_next_one_longer)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    uint64_t     pause_ns = fli_load_rlx(&sched->throttle.pause_ns);
    pause_with_help(w);
    assert_true(fli_load_rlx(&sched->throttle.pause_ns) > pause_ns);
    same(backoff_of(w), 0);
    pause_without_help(w);
    same(fli_load_rlx(&sched->throttle.pause_ns), pause_ns);
    end(sched);
}

typedef struct adder {
    filch_sched     *sched;
    fli_thread       thread;
    FLI_ATOMIC(bool) enough;
} adder;

static void add_on(void *arg)
{
    adder *a = arg;
    for (unsigned looks = 0; !fli_load_rlx(&a->enough); looks++) {
        fli_count(&a->sched->workers[0]->throttle.batched, 1000000);
        until_pause(looks);
    }
}

/* Pauses for 1 ms. The mark `before` says that almost no events were received in the second before. Returns true if the
 * pause set proven_rate. */
static bool pause_with_proven_rate(fli_worker *w, uint64_t last_rate)
{
    fli_throttle *throttle = &w->sched->throttle;
    fli_store_rlx(&throttle->pause_ns, FILCH_MILLISECONDS(1));
    fli_store_rlx(&throttle->proven_rate, last_rate);
    w->clock_ns = fli_clock_ns();
    w->throttle.before = (fli_throttle_mark){ .ns = w->clock_ns - FILCH_SECONDS(1),
                                              .done = fli_load_rlx(&w->sched->workers[0]->throttle.batched) };
    fli_throttle_pause(w);
    return fli_load_rlx(&throttle->proven_rate) > 0;
}

TEST(two_pauses_with_a_proven_rate_make_the_next_much_longer)
{
    filch_sched *sched = begin(2);
    adder        a = { .sched = sched };
    fli_atomic_init(&a.enough, false);
    ok(fli_thread_start(&a.thread, "adder", add_on, &a));
    until(pause_with_proven_rate(sched->caller_worker, 0));
    same(fli_load_rlx(&sched->throttle.pause_ns), FILCH_MILLISECONDS(4));
    until(pause_with_proven_rate(sched->caller_worker, 1));
    same(fli_load_rlx(&sched->throttle.pause_ns), FILCH_MILLISECONDS(16));
    fli_store_rlx(&a.enough, true);
    fli_thread_join(&a.thread);
    pause_without_help(sched->caller_worker);
    same(fli_load_rlx(&sched->throttle.proven_rate), 0);
    end(sched);
}

static filch_pid target;

/* Sends ten messages to `target`, and ends. */
static filch_err send_ten(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    for (int i = 0; i < 10; i++) {
        filch_err err = filch_send(filch_out_sched(out), target, filch_int(i));
        if (err != FILCH_OK) return err;
    }
    return filch_done(out, filch_none());
}

static const filch_type sender = { .name = "sender", .step = send_ten };

TEST(no_pause_is_longer_than_the_maximum)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    uint64_t     longest = FILCH_MILLISECONDS(64);
    fli_store_rlx(&sched->throttle.pause_ns, longest);
    pause_with_help(w);
    same(fli_load_rlx(&sched->throttle.pause_ns), longest);
    end(sched);
}

TEST(each_received_message_counts_as_work)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    fli_worker  *w = sched->caller_worker;
    uint32_t     ran = 0;
    fli_store_rlx(&released, false);
    ok(filch_spawn(sched, &listener, NULL, &target));
    for (int i = 0; i < 10; i++) ok(filch_send(sched, target, filch_int(i)));
    ok(filch_tick(sched, 0, &ran));
    /* the step got ten events: one is counted by the count of steps, nine by `batched` */
    same(fli_load_rlx(&w->throttle.batched), 9);
    ok(filch_spawn(sched, &sender, NULL, NULL));
    ok(filch_tick(sched, 0, &ran));
    same(fli_load_rlx(&w->throttle.batched), 18);
    same(fli_load_rlx(&steps), 20);
    fli_store_rlx(&released, true); /* lets the listener end */
    end(sched);
}

TEST(messages_only_sent_before_a_pause_do_not_count_as_work)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    fli_count(&sched->workers[0]->local.counters.sent, 1000000000);
    pause_after_a_millisecond(w);
    same(backoff_of(w), 0);
    end(sched);
}

TEST(an_interrupted_pause_changes_nothing_but_starts_the_back_off)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    fli_store_rlx(&sched->throttle.pause_ns, FILCH_SECONDS(1000));
    pause_with_help(w); /* the pause ends early, because the other workers are inside steps */
    same(fli_load_rlx(&sched->throttle.pause_ns), FILCH_SECONDS(1000));
    assert_true(backoff_of(w) > 0);
    fli_store_rlx(&released, true);
    end(sched);
}

/* During a pause the leader checks whether a worker is in a long step. It does not check at the end of the pause,
 * because that check could come right after a late check. */
TEST(a_pause_of_full_length_is_judged_though_a_worker_is_in_a_long_step)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    pause_with_help(w); /* 1 ms, as long as the time before the first look */
    same(fli_load_rlx(&sched->throttle.pause_ns), FILCH_MILLISECONDS(4));
    same(backoff_of(w), 0);
    fli_store_rlx(&released, true);
    end(sched);
}

TEST(contended_sends_before_a_pause_make_no_pause_due_after_it)
{
    filch_sched *sched = begin(2);
    fli_worker  *w = sched->caller_worker;
    w->local.contended_sends = 1000;
    pause_with_help(w);
    same(w->local.contended_sends, 0);
    same(w->throttle.sent, fli_load_rlx(&w->local.counters.sent));
    assert_false(w->throttle.contended);
    end(sched);
}

typedef struct pauser {
    filch_sched *sched;
    fli_thread   thread;
} pauser;

/* Acts as another worker: while the pause of the test lasts, replaces `until_ns`, as the leader of a new pause does.
 * Does nothing if the pause has ended before this thread ran. */
static void replace_end(void *arg)
{
    fli_throttle *throttle = &((pauser *)arg)->sched->throttle;
    while (fli_load_rlx(&throttle->until_ns) == 0 && fli_load_rlx(&throttle->ended_ns) == 0) yield_slice();
    if (fli_load_rlx(&throttle->until_ns) != 0) fli_store_rlx(&throttle->until_ns, 7);
}

/* Returns false if the other thread ran too late. */
static bool other_pause_survives(void)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    pauser       other = { .sched = sched };
    fli_store_rlx(&sched->throttle.pause_ns, FILCH_SECONDS(1000));
    ok(fli_thread_start(&other.thread, "other", replace_end, &other));
    pause_with_help(w); /* the pause ends early, because the other workers are inside steps */
    fli_thread_join(&other.thread);
    bool survived = fli_load_rlx(&sched->throttle.until_ns) == 7;
    fli_store_rlx(&sched->throttle.until_ns, 0);
    fli_store_rlx(&released, true);
    end(sched);
    return survived;
}

TEST(a_leader_does_not_end_the_pause_of_another)
{
    until(other_pause_survives());
}

static void pause_long(void *arg)
{
    pauser *n = arg;
    n->sched->caller_worker->clock_ns = fli_clock_ns();
    fli_throttle_pause(n->sched->caller_worker);
}

TEST(an_interrupted_pause_for_a_backlog_starts_no_back_off)
{
    filch_sched *sched = begin_held();
    fli_worker  *w = sched->caller_worker;
    fli_store_rlx(&sched->throttle.pause_ns, FILCH_SECONDS(1000));
    fli_throttle_note_backlog(&w->throttle, 1000000);
    pause_with_help(w); /* the pause ends early, because the other workers are inside steps */
    same(backoff_of(w), 0);
    same(w->throttle.backlog_sends, 0);
    fli_store_rlx(&released, true);
    end(sched);
}

/* Sends ten messages to `target`, which is this process itself, and continues. So no other process is queued. */
static filch_err send_itself_ten(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL || fli_load_rlx(&steps) > 0) return filch_done(out, filch_none());
    }
    fli_add_rlx(&steps, 1);
    for (int i = 0; i < 10; i++) {
        filch_err err = filch_send(filch_out_sched(out), target, filch_int(i));
        if (err != FILCH_OK) return err;
    }
    return filch_continue(out);
}

static const filch_type to_itself = { .name = "to itself", .step = send_itself_ten };

/* ---- pauses for contention ---------------------------------------------------------------------------------- */

#define RELEASE_NS FILCH_MILLISECONDS(3)

typedef struct long_senders {
    filch_sched *sched;
    fli_thread   thread;
    uint64_t     released_ns;
    uint64_t     last_ns; /* time of the last round of messages; at first, of the start of the thread */
    uint64_t     gap_ns;  /* longest time between two rounds of messages: long if the thread had to wait for a CPU */
} long_senders;

/* Counts a message for each worker, as if the steps had sent it. Returns true if a worker is still inside a step. */
static bool count_messages(filch_sched *sched)
{
    bool busy = false;
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_count(&sched->workers[i]->local.counters.sent, 1);
        if (fli_load_rlx(&sched->workers[i]->status.serial) != 0) busy = true;
    }
    return busy;
}

/* Returns true if the pause of the test has begun. It may have ended already: until_ns is 0 then, and ended_ns is not.
 */
static bool has_begun(filch_sched *sched)
{
    return fli_load_rlx(&sched->throttle.until_ns) != 0 || fli_load_rlx(&sched->throttle.ended_ns) != 0;
}

/* Counts messages all the time, as if the workers inside steps sent them. Lets these steps end RELEASE_NS after the
 * pause has begun, and continues until they have ended. */
static void send_long(void *arg)
{
    long_senders *s = arg;
    uint64_t      began_ns = 0;
    for (bool busy = true; busy;) {
        busy = count_messages(s->sched);
        uint64_t now_ns = fli_clock_ns();
        if (now_ns - s->last_ns > s->gap_ns) s->gap_ns = now_ns - s->last_ns;
        s->last_ns = now_ns;
        if (began_ns == 0 && has_begun(s->sched)) began_ns = now_ns;
        if (began_ns == 0 || s->released_ns != 0 || now_ns < began_ns + RELEASE_NS) continue;
        s->released_ns = now_ns;
        fli_store_rlx(&released, true);
    }
}

/* Four workers are in long steps that send. If the leader did not wait for them (JOIN_NS), a pause of 1 ms would end
 * before one of them joins, and the rate during the pause would be the rate of a mailbox that is still contended. A
 * worker that sends nothing for 1 ms counts as stuck, so the result counts only if the threads of the test did not have
 * to wait for a CPU. Returns false if they had to wait, or if the rate fell during the pause, as it does when other
 * programs take the CPUs. */
static bool long_senders_delay_the_judgement(void)
{
    filch_sched *sched = begin_held_by(4);
    fli_worker  *w = sched->caller_worker;
    long_senders s = { .sched = sched, .last_ns = fli_clock_ns() };
    ok(fli_thread_start(&s.thread, "senders", send_long, &s));
    w->throttle.contended = true;
    pause_with_help(w);
    fli_thread_join(&s.thread);
    bool undisturbed = s.gap_ns < FILCH_MICROSECONDS(900) && w->clock_ns < s.released_ns + FILCH_MILLISECONDS(10);
    if (undisturbed) assert_true(fli_load_rlx(&sched->throttle.ended_ns) >= s.released_ns + FILCH_MILLISECONDS(1));
    /* 4 ms: the pause was judged, and it helped. 0: the pause was ended before its time limit. */
    bool helped = fli_load_rlx(&sched->throttle.pause_ns) == FILCH_MILLISECONDS(4) &&
                  fli_load_rlx(&sched->throttle.until_ns) == 0 && backoff_of(w) == 0 && !w->throttle.contended;
    end(sched);
    return undisturbed && helped;
}

TEST(a_pause_for_contention_is_judged_when_the_others_have_joined)
{
    /* Valgrind runs one thread at a time, so there the rate of the senders falls in every run. */
    if (is_under_valgrind()) (void)long_senders_delay_the_judgement();
    else until(long_senders_delay_the_judgement());
}

TEST(a_pause_for_contention_ends_early_if_a_step_neither_sends_nor_ends)
{
    filch_sched *sched = begin_held_by(4);
    fli_worker  *w = sched->caller_worker;
    w->throttle.contended = true;
    pause_with_help(w);
    same(fli_load_rlx(&sched->throttle.pause_ns), FILCH_MILLISECONDS(1));
    same(fli_load_rlx(&sched->throttle.until_ns), 0);
    assert_true(backoff_of(w) > 0);
    fli_store_rlx(&released, true);
    end(sched);
}

static int hints[3];

/* Stores what filch_should_yield() returns before and after many contended sends, and in a recorded step. */
static filch_err ask_for_hints(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    fli_worker    *w = fli_current_get();
    fli_local     *worker = &w->local;
    fli_rec_hooks *none = worker->rec_hooks;
    fli_rec_hooks  some = { 0 };
    for (uint32_t i = 1; i < FLI_CONTENDED_MIN; i++) fli_contended_send(worker);
    hints[0] = filch_should_yield(out);
    fli_contended_send(worker);
    hints[1] = filch_should_yield(out);
    worker->rec_hooks = &some;
    hints[2] = filch_should_yield(out);
    worker->rec_hooks = none;
    fli_store_rlx(&released, true);
    return filch_done(out, filch_none());
}

static const filch_type asker = { .name = "asker", .step = ask_for_hints };

TEST(a_step_whose_sends_are_contended_should_yield)
{
    filch_sched *sched = begin(1);
    fli_store_rlx(&released, false);
    ok(filch_spawn(sched, &asker, NULL, NULL));
    until(fli_load_rlx(&released));
    end(sched);
    same(hints[0], 0);
    same(hints[1], 1);
    /* 0: in a recorded step contended sends do not count, so that a replay of the step gets the same result. */
    same(hints[2], 0);
}

/* The sends of the program's threads and of the steps that filch_tick() runs may be contended, too. */
TEST(contended_sends_of_one_tick_do_not_shorten_the_next)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    for (int i = 0; i < 2; i++) {
        ok(filch_spawn(sched, &asker, NULL, NULL));
        ok(filch_tick(sched, 0, NULL));
        same(hints[0], 0);
        same(hints[1], 1);
    }
    end(sched);
}

TEST(sends_to_a_ready_process_count_as_backlog_when_the_sender_continues)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    uint32_t     ran = 0;
    ok(filch_spawn(sched, &to_itself, NULL, &target));
    ok(filch_tick(sched, 0, &ran));
    same(sched->caller_worker->throttle.backlog_sends, 10);
    same(sched->caller_worker->throttle.backlog_steps, 1);
    end(sched);
}

TEST(stop_ends_pauses)
{
    filch_sched *sched = begin(2);
    pauser       n = { .sched = sched };
    fli_store_rlx(&sched->throttle.pause_ns, FILCH_SECONDS(1000));
    ok(fli_thread_start(&n.thread, "pauser", pause_long, &n));
    until(paused(sched) == 1);
    fli_stop_begin(sched);
    fli_thread_join(&n.thread);
    same(paused(sched), 0);
    end(sched);
}

static uint64_t         probe_ns;
static FLI_ATOMIC(bool) probed;
static uint32_t         probe_fired; /* not atomic: written before `probed` */

/* Acts as a clock reading: fires the timers that the worker of this step may fire at the time probe_ns. */
static filch_err probe(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    probe_fired = fli_timers_poll_near(&filch_out_sched(out)->timers, probe_ns, 64);
    fli_store_rel(&probed, true);
    return filch_done(out, filch_none());
}

static const filch_type prober = { .name = "prober", .step = probe };

/* caller_worker pauses, and its timer is due in an hour. At that time another worker reads its clock. A worker that
 * reads its clock looks at the wheels of two workers; from the wheel of a worker that is awake, it fires only timers
 * that are late. So the other worker fires the timer of caller_worker only if it knows that caller_worker is asleep. */
TEST(a_timer_of_a_paused_worker_fires_at_the_next_clock_reading_of_another)
{
    filch_sched *sched = begin(8);
    fli_worker  *w = sched->caller_worker;
    pauser       n = { .sched = sched };
    filch_pid    pid;
    fli_store_rlx(&released, false);
    fli_store_rlx(&probed, false);
    ok(filch_spawn(sched, &listener, NULL, &pid));
    fli_timers_set_away(&sched->timers, w->local.index, false);
    fli_current_set(&w->local);
    assert_true(fli_timers_set_flag_later(&sched->timers, pid.serial, FILCH_SECONDS(3600), FLI_CANCEL) != 0);
    fli_current_set(NULL);
    probe_ns = fli_timers_next_ns(&sched->timers);
    until(fli_idle_parked(&sched->idle) == 8); /* parked workers do not join the pause */
    fli_store_rlx(&sched->throttle.until_ns, FLI_NEVER);
    ok(fli_thread_start(&n.thread, "pauser", pause_long, &n));
    until(fli_load_acq(&w->throttle.follows));
    ok(filch_spawn(sched, &prober, NULL, NULL));
    until(fli_load_acq(&probed));
    same(probe_fired, 1);
    /* Ends the pause of caller_worker without fli_throttle_end_all(), which wakes worker threads only. */
    fli_store_rlx(&sched->throttle.until_ns, 0);
    assert_true(fli_swap_acqrel(&w->throttle.follows, false));
    fli_unpark(&w->idle.parker);
    fli_thread_join(&n.thread);
    assert_false(fli_load_rlx(&sched->timers.shards[w->local.index].away));
    fli_store_rlx(&released, true);
    end(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_with_many_remote_events_for_long_is_due_to_pause),
        cmocka_unit_test(many_remote_events_in_one_reading_make_a_pause_due),
        cmocka_unit_test(a_worker_that_parks_between_remote_events_is_not_due_to_pause),
        cmocka_unit_test(a_worker_that_only_adds_to_a_backlog_is_due_to_pause),
#ifndef FLI_SMALL
        cmocka_unit_test(a_backlog_of_exactly_the_minimum_makes_a_pause_due),
#endif
        cmocka_unit_test(a_backlog_makes_no_pause_due_during_the_back_off),
        cmocka_unit_test(the_rate_is_measured_from_the_end_of_the_last_pause),
#ifndef FLI_SMALL
        cmocka_unit_test(after_a_pause_with_a_proven_rate_the_next_is_due_sooner),
#endif
        cmocka_unit_test(a_thief_whose_steals_lead_to_few_steps_is_due_to_pause),
        cmocka_unit_test(a_thief_is_not_due_to_pause_during_the_back_off),
#ifndef FLI_SMALL
        cmocka_unit_test(after_a_pause_that_helped_fewer_weak_steals_make_one_due),
        cmocka_unit_test(dead_steals_make_a_pause_due_after_fewer_steals),
        cmocka_unit_test(dead_steals_make_a_pause_due_sooner_but_not_at_once),
#endif
        cmocka_unit_test(a_pausing_worker_moves_its_deque_to_the_global_queue),
        cmocka_unit_test(a_worker_joins_the_pause_of_another_until_that_ends),
        cmocka_unit_test(no_more_workers_join_a_pause_than_may_sleep),
#ifndef FLI_SMALL
        cmocka_unit_test(many_sends_to_contended_mailboxes_make_a_pause_due),
#endif
        cmocka_unit_test(one_worker_always_stays_unpaused),
        cmocka_unit_test(the_newest_of_a_pausing_worker_goes_to_the_front_of_the_global_queue),
        cmocka_unit_test(the_lifo_slot_of_a_pausing_worker_goes_to_the_front_of_the_global_queue),
        cmocka_unit_test(a_pause_that_costs_at_most_an_eighth_of_the_rate_helped),
        cmocka_unit_test(a_pause_that_did_not_help_starts_the_back_off),
        cmocka_unit_test(inline_steps_before_a_pause_count_as_work),
        cmocka_unit_test(after_a_pause_that_did_not_help_the_next_leaves_more_workers_awake),
        cmocka_unit_test(each_pause_that_did_not_help_doubles_the_back_off_up_to_a_limit),
        cmocka_unit_test(a_pause_that_helped_makes_the_next_one_longer),
        cmocka_unit_test(two_pauses_with_a_proven_rate_make_the_next_much_longer),
        cmocka_unit_test(no_pause_is_longer_than_the_maximum),
        cmocka_unit_test(each_received_message_counts_as_work),
        cmocka_unit_test(messages_only_sent_before_a_pause_do_not_count_as_work),
        cmocka_unit_test(an_interrupted_pause_changes_nothing_but_starts_the_back_off),
        cmocka_unit_test(an_interrupted_pause_for_a_backlog_starts_no_back_off),
        cmocka_unit_test(a_pause_of_full_length_is_judged_though_a_worker_is_in_a_long_step),
        cmocka_unit_test(contended_sends_before_a_pause_make_no_pause_due_after_it),
        cmocka_unit_test(a_leader_does_not_end_the_pause_of_another),
        cmocka_unit_test(a_pause_for_contention_is_judged_when_the_others_have_joined),
        cmocka_unit_test(a_pause_for_contention_ends_early_if_a_step_neither_sends_nor_ends),
        cmocka_unit_test(a_step_whose_sends_are_contended_should_yield),
        cmocka_unit_test(contended_sends_of_one_tick_do_not_shorten_the_next),
        cmocka_unit_test(sends_to_a_ready_process_count_as_backlog_when_the_sender_continues),
        cmocka_unit_test(stop_ends_pauses),
        cmocka_unit_test(a_timer_of_a_paused_worker_fires_at_the_next_clock_reading_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
