/* timers_parts.c - the word `away_ns` of clock/timers.c, by which workers find the timers of owners that are away. An
 * owner goes away, or a thread arms a timer in the shard of such an owner, while a worker fires the timers of other
 * owners that are away. Afterwards no timer of an owner that is away may be due before `away_ns`. */
#include "harness.h"

/* sched_parts.c has replacements for these functions, for programs without timers. */
#define fli_timers_next_ns explored_timers_next_ns
#define fli_timers_help_ns explored_timers_help_ns
#define fli_timers_any explored_timers_any
#define fli_timers_set_away explored_timers_set_away
#define fli_timers_count explored_timers_count
#include "clock/timers.c"

#define TICK_NS (UINT64_C(1) << FLI_WHEEL_TICK_BITS)

enum { OWNER = 1, HELPER = 2, SHARDS = 3 }; /* OWNER, HELPER: indices of workers, also of their threads */

static struct {
    fli_timers timers;
    uint64_t   ticker_ns; /* time of the ticker's first tick; 0: no ticker */
    uint32_t   fired[FLI_WEAK_THREADS + 1];
} * g;

static void on_alarm(fli_runtime *rt, uint64_t cookie)
{
    (void)rt, (void)cookie;
    g->fired[fli_weak_self]++;
}

/* Arms a timer in shard `index`, the shard of the worker with this index. */
static void arm_in(uint32_t index, uint64_t due_ns)
{
    fli_current_set(&b->worker[index]);
    must(fli_timers_alarm(&g->timers, due_ns, 0) != 0, "there is memory for the timer");
    fli_current_set(NULL);
}

static void setup(void)
{
    harness_setup();
    g = fli_weak_new(sizeof *g);
    b->rt.hooks.alarm = on_alarm;
    must(fli_timers_init(&g->timers, &b->rt, SHARDS, 0) == FILCH_OK, "there is memory for the timers");
    for (uint32_t i = 0; i < SHARDS; i++) fli_timers_set_away(&g->timers, i, false);
}

/* Worker 0 is away (parked), so other workers must fire its timer, which is due at the first tick. Worker OWNER is not
 * away, and has a timer that is due at the third tick. */
static void setup_park(void)
{
    setup();
    arm_in(0, TICK_NS);
    fli_timers_set_away(&g->timers, 0, true);
    arm_in(OWNER, 3 * TICK_NS);
}

/* Worker OWNER is away (parked), so other workers must fire its timer, which is due at the first tick. Worker 0 is away
 * too, and has no timer. */
static void setup_armed(void)
{
    setup();
    arm_in(OWNER, TICK_NS);
    fli_timers_set_away(&g->timers, OWNER, true);
    fli_timers_set_away(&g->timers, 0, true);
}

/* Worker OWNER has a ticker, and does not fire its first tick in time. */
static void setup_ticker(void)
{
    setup();
    fli_local     *worker = &b->worker[OWNER];
    fli_proc      *p = harness_spawn(0, FILCH_OVERFLOW_FAIL);
    filch_receiver receiver = fli_yield_receiver(&b->rt, fli_yield_open(&b->rt, worker, p, 5, 9));
    filch_command  command = { .id = FILCH_CMD_TICKER, .from = harness_pid(p), .data = filch_int((int64_t)TICK_NS) };
    worker->current = p;
    worker->serial = fli_proc_serial(p);
    worker->dispatching = true;
    fli_current_set(worker);
    must(fli_timers_handle(&g->timers, &command, receiver) == FILCH_OK, "the ticker is armed");
    fli_current_set(NULL);
    worker->dispatching = false;
    g->ticker_ns = fli_load_rlx(&g->timers.shards[OWNER].next_ns);
}

static void park(void)
{
    fli_timers_set_away(&g->timers, OWNER, true);
}

static void park_worker_0(void)
{
    fli_timers_set_away(&g->timers, 0, true);
}

/* Arms a timer as a foreign thread does: in shard 0. The timer is due later than the timer of setup_park(). */
static void arm_foreign(void)
{
    fli_current_set(NULL);
    must(fli_timers_alarm(&g->timers, 4 * TICK_NS, 0) != 0, "there is memory for the timer");
}

/* Worker HELPER fires the timers that are due by the second tick: its own, and those of other workers that are away or
 * late. */
static void help(void)
{
    fli_current_set(&b->worker[HELPER]);
    (void)fli_timers_poll_near(&g->timers, 2 * TICK_NS, UINT32_MAX);
}

/* Worker HELPER fires the late tick of worker OWNER's ticker, and arms the next tick in the shard of OWNER. */
static void help_late(void)
{
    fli_current_set(&b->worker[HELPER]);
    g->fired[HELPER] = fli_timers_poll_near(&g->timers, g->ticker_ns + FLI_TIMERS_HELP_NS, UINT32_MAX);
}

static void check(void)
{
    uint64_t away_ns = fli_load_rlx(&g->timers.away_ns);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const fli_timer_shard *shard = &g->timers.shards[i];
        if (!fli_load_rlx(&shard->away)) continue;
        must(away_ns <= fli_load_rlx(&shard->next_ns), "away_ns is not later than a timer of an owner that is away");
    }
    fli_weak_outcome(harness_sum(g->fired));
    fli_weak_outcome(away_ns);
}

static void check_fired(void)
{
    must(harness_sum(g->fired) == 1, "the timer that was due has fired");
    check();
}

const fli_weak_program parts_timers[] = {
    { .name = "timers_park_collect",
      .promise = "an owner with a timer goes away, a worker fires the timers of owners that are away",
      .setup = setup_park,
      .threads = { park, help },
      .check = check_fired },
    { .name = "timers_arm_collect",
      .promise = "a thread arms a timer for an owner that is away, a worker fires the timers of such owners",
      .setup = setup_armed,
      .threads = { arm_foreign, help },
      .check = check_fired },
    { .name = "timers_arm_park",
      .promise = "a thread arms a timer for an owner that goes away",
      .setup = setup,
      .threads = { park_worker_0, arm_foreign },
      .check = check },
    { .name = "timers_tick_park",
      .promise = "a worker arms the next tick of an owner that goes away",
      .setup = setup_ticker,
      .threads = { park, help_late },
      .check = check },
    { .name = "timers_park_arm_collect",
      .promise = "an owner goes away, a thread arms a timer for another one, a worker fires the timers of such owners",
      .setup = setup_park,
      .threads = { park, help, arm_foreign },
      .check = check,
      .bound = 2 },
    { 0 },
};
