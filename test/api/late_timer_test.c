/* late_timer_test.c - option late_timer of a simulation: a due timer is held back until after the next other timer. */
#include <filch.h>
#include <string.h>

#include "support/check.h"

enum { SEEDS = 100, RATE = 100, PROCESSES_MAX = 4, TAG = 5 };

/* How a process of a run waits. */
typedef enum wait_kind { BY_SLEEP, BY_TIMER, BY_TICKER } wait_kind;

typedef struct wait {
    wait_kind kind;
    uint64_t  ns;
    int       times;
} wait;

/* The processes of a run, and the order in which their first waits ended. */
static struct {
    wait waits[PROCESSES_MAX];
    int  count, order[PROCESSES_MAX], ended;
    /* early: a wait ended before its time; shifted: a ticker ticked at another time than a multiple of its period */
    bool early, shifted;
} run;

typedef struct waiter {
    int      number, waited;
    uint64_t began_ns;
} waiter;

static filch_err waiter_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    ((waiter *)self)->number = (int)filch_as_int(args);
    return FILCH_OK;
}

static filch_err begin_wait(waiter *me, filch_out *out)
{
    const wait *w = &run.waits[me->number];
    if (w->kind == BY_TICKER && me->waited > 0) return filch_idle(out);
    me->began_ns = filch_now(filch_out_sched(out));
    if (w->kind == BY_SLEEP) return filch_yield_sleep(out, TAG, w->ns) | filch_idle(out);
    if (w->kind == BY_TIMER) return filch_yield_timer(out, TAG, w->ns) | filch_idle(out);
    return filch_yield_ticker(out, TAG, w->ns) | filch_idle(out);
}

/* Returns true if the event ends the wait: the completion of a sleep, or the message of a timer or ticker. The yield of
 * a timer or ticker is completed at once, with the id. */
static bool ends_wait(const wait *w, const filch_event *event)
{
    return event->type == (w->kind == BY_SLEEP ? FILCH_EVENT_YIELD : FILCH_EVENT_MESSAGE);
}

static void note_end(const waiter *me, uint64_t now_ns)
{
    const wait *w = &run.waits[me->number];
    uint64_t    passed_ns = now_ns - me->began_ns;
    if (me->waited == 1) run.order[run.ended++] = me->number;
    if (w->kind != BY_TICKER && passed_ns < w->ns) run.early = true;
    if (w->kind == BY_TICKER && passed_ns % w->ns > w->ns / 2) run.shifted = true;
}

static filch_err waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    waiter     *me = self;
    const wait *w = &run.waits[me->number];
    if (me->began_ns == 0) return begin_wait(me, out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (!ends_wait(w, &events[i])) continue;
        me->waited++;
        note_end(me, filch_now(filch_out_sched(out)));
        return me->waited == w->times ? filch_done(out, filch_none()) : begin_wait(me, out);
    }
    return filch_idle(out);
}

static const filch_type waiter_type = {
    .name = "waiter", .size = sizeof(waiter), .init = waiter_init, .step = waiter_step
};

static filch_err scenario(filch_sched *sched, void *user)
{
    (void)user;
    run.ended = 0;
    for (int i = 0; i < run.count; i++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.args = filch_int(i);
        ok(filch_spawn(sched, &waiter_type, &options, NULL));
    }
    return FILCH_OK;
}

static filch_sim_report simulate(uint64_t seed, uint32_t late_timer)
{
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    options.seed = seed;
    options.late_timer = late_timer;
    options.time_max_ns = FILCH_SECONDS(100 * 3600);
    ok(filch_sim_run(&options, scenario, NULL, &report));
    if (report.verdict != FILCH_SIM_OK) fail_msg("%s\n%s", report.text, report.chart);
    same(run.ended, run.count);
    assert_false(run.early);
    return report;
}

static void two_waits(wait_kind kind, uint64_t gap_ns)
{
    memset(&run, 0, sizeof run);
    run.count = 2;
    run.waits[0] = (wait){ .kind = kind, .ns = FILCH_SECONDS(1), .times = 1 };
    run.waits[1] = (wait){ .kind = kind, .ns = FILCH_SECONDS(1) + gap_ns, .times = 1 };
}

/* Simulates a run with each seed from 1 to `seeds`. Returns the number of runs in which the wait of the last process
 * ended first. */
static int count_reversed(uint64_t seeds, uint32_t late_timer)
{
    int reversed = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        filch_sim_report report = simulate(seed, late_timer);
        reversed += run.order[0] == run.count - 1;
        if (late_timer == 0) same(report.late_timers, 0);
        filch_sim_report_free(&report);
    }
    return reversed;
}

static const uint64_t gaps_ns[] = { FILCH_MILLISECONDS(10), FILCH_SECONDS(1), FILCH_SECONDS(3600) };
#define EACH_GAP(g) for (size_t g = 0; g < sizeof gaps_ns / sizeof gaps_ns[0]; g++)

TEST(two_waits_of_any_distance_are_reversed_in_some_of_100_seeds)
{
    EACH_GAP(g)
    {
        for (wait_kind kind = BY_SLEEP; kind <= BY_TIMER; kind++) {
            two_waits(kind, gaps_ns[g]);
            int reversed = count_reversed(SEEDS, RATE);
            if (reversed < 2 || reversed > 30) fail_msg("kind %d, gap %zu: %d of %d", (int)kind, g, reversed, SEEDS);
        }
    }
}

TEST(without_the_option_waits_are_never_reversed)
{
    EACH_GAP(g)
    {
        two_waits(BY_SLEEP, gaps_ns[g]);
        same(count_reversed(10 * SEEDS, 0), 0);
    }
}

TEST(a_late_timer_may_let_several_others_pass)
{
    two_waits(BY_SLEEP, FILCH_SECONDS(9));
    run.count = 3;
    run.waits[2] = run.waits[1];
    run.waits[1].ns = FILCH_SECONDS(4);
    int last = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        filch_sim_report report = simulate(seed, 1000);
        last += run.order[2] == 0; /* the shortest wait ends last */
        filch_sim_report_free(&report);
    }
    assert_true(last > 10 && last < 90);
}

TEST(a_single_wait_is_neither_early_nor_late)
{
    two_waits(BY_SLEEP, 0);
    run.count = 1;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        filch_sim_report report = simulate(seed, 1000);
        same(report.late_timers, 0);
        assert_true(report.time_ns < FILCH_MILLISECONDS(1002));
        filch_sim_report_free(&report);
    }
}

/* If two due timers were each held back until the other has fired, neither would ever fire. */
TEST(waits_end_also_if_every_timer_is_held_back)
{
    two_waits(BY_SLEEP, FILCH_MILLISECONDS(1));
    run.waits[0].times = run.waits[1].times = 50;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        filch_sim_report report = simulate(seed, 1000);
        assert_true(report.late_timers > 10);
        assert_non_null(strstr(report.chart, "fault: a timer will be late"));
        filch_sim_report_free(&report);
    }
}

TEST(tickers_keep_their_times_while_other_timers_are_late)
{
    two_waits(BY_TICKER, 0);
    run.waits[0].times = 40;
    run.waits[1] = (wait){ .kind = BY_SLEEP, .ns = FILCH_MILLISECONDS(777), .times = 40 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        filch_sim_report report = simulate(seed, 1000);
        assert_true(report.late_timers > 0);
        assert_false(run.shifted);
        filch_sim_report_free(&report);
    }
}

TEST(the_same_seed_holds_back_the_same_timers)
{
    two_waits(BY_SLEEP, FILCH_SECONDS(1));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        filch_sim_report first = simulate(seed, RATE), second = simulate(seed, RATE);
        same(first.hash, second.hash);
        same(first.late_timers, second.late_timers);
        filch_sim_report_free(&first);
        filch_sim_report_free(&second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_waits_of_any_distance_are_reversed_in_some_of_100_seeds),
        cmocka_unit_test(without_the_option_waits_are_never_reversed),
        cmocka_unit_test(a_late_timer_may_let_several_others_pass),
        cmocka_unit_test(a_single_wait_is_neither_early_nor_late),
        cmocka_unit_test(waits_end_also_if_every_timer_is_held_back),
        cmocka_unit_test(tickers_keep_their_times_while_other_timers_are_late),
        cmocka_unit_test(the_same_seed_holds_back_the_same_timers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
