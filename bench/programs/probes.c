/* probes.c - how long a short request waits while the workers are busy. Probes come every millisecond, whether the
 * last one was answered or not, and the delay counts from the moment when the probe was due. --size is the number of
 * probes; the value is the 99th percentile.
 *
 * probe_outside: a thread sends to an idle process, which takes the time.
 * probe_inside: a process sleeps until the probe is due, sends to an idle process and gets its reply; wake_p50 and
 * wake_p99 are the part until the sleep has ended.
 * Variant 0: churn; 200 processes at a time compute for 5 us, spawn their successor and end. Other variants: 100
 * processes compute for 20 us at a fixed rate, which takes `variant` per cent of the workers' time.
 */
#include "programs.h"

#include <stdatomic.h>

enum { CHAINS = 200, WORKING = 100 };
#define GAP_NS FILCH_MILLISECONDS(1)
#define CHURN_NS FILCH_MICROSECONDS(5)
#define WORK_NS FILCH_MICROSECONDS(20)

static atomic_bool is_over;
static uint64_t    work_period_ns, *delays_ns, *wakes_ns;

/* ---- load: processes that keep the workers busy ---- */

static filch_err        churn_step(void *self, const filch_event *events, size_t count, filch_out *out);
static const filch_type churn_type = { .name = "churn", .step = churn_step };

static filch_err churn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    spin(CHURN_NS);
    filch_err err = atomic_load(&is_over) ? FILCH_OK : filch_spawn(filch_out_sched(out), &churn_type, NULL, NULL);
    return err != FILCH_OK ? err : filch_done(out, filch_none());
}

struct paced {
    uint64_t due_ns;
};

static filch_err sleep_until(filch_out *out, uint64_t due_ns)
{
    uint64_t  now_ns = bench_now_ns();
    filch_err err = filch_yield_sleep(out, 0, due_ns > now_ns ? due_ns - now_ns : 0);
    return err != FILCH_OK ? err : filch_wait(out);
}

static filch_err working_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct paced *working = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_YIELD || atomic_load(&is_over)) return FILCH_ECANCELLED;
        spin(WORK_NS);
        working->due_ns += work_period_ns;
    }
    return sleep_until(out, working->due_ns);
}

static const filch_type working_type = {
    .name = "working", .size = sizeof(struct paced), .init = copy_state, .step = working_step
};

static void start_load(uint64_t percent)
{
    if (percent == 0) {
        for (int i = 0; i < CHAINS; i++) (void)bench_spawn(&run, &churn_type, filch_none());
        return;
    }
    work_period_ns = WORKING * WORK_NS * 100 / (percent * run.workers);
    uint64_t now_ns = bench_now_ns();
    for (uint64_t i = 0; i < WORKING; i++) {
        start(&working_type, &(struct paced){ now_ns + i * work_period_ns / WORKING });
    }
}

/* ---- the probes ---- */

struct target {
    uint64_t first_ns, seen;
};

/* Step of the probed process. A probe without a sender comes from a foreign thread: the step stores the delay of the
 * probe. A probe with a sender comes from the process `prober`: the step replies to it. */
static filch_err target_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct target *target = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (events[i].from.serial != 0) {
            filch_err err = send_to(out, events[i].from, filch_none());
            if (err != FILCH_OK) return err;
            continue;
        }
        delays_ns[target->seen++] = bench_now_ns() - (uint64_t)filch_as_int(&events[i].data);
        if (target->seen == run.size) report((int64_t)target->seen);
    }
    return filch_idle(out);
}

static const filch_type target_type = {
    .name = "target", .size = sizeof(struct target), .init = copy_state, .step = target_step
};

struct prober {
    filch_pid target;
    uint64_t  due_ns, done;
};

static filch_err prober_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct prober *prober = self;
    if (count == 0) return sleep_until(out, prober->due_ns);
    if (events[0].type == FILCH_EVENT_YIELD) {
        wakes_ns[prober->done] = bench_now_ns() - prober->due_ns;
        filch_err err = send_to(out, prober->target, filch_none());
        return err != FILCH_OK ? err : filch_idle(out);
    }
    if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
    delays_ns[prober->done++] = bench_now_ns() - prober->due_ns;
    prober->due_ns += GAP_NS;
    if (prober->done < run.size) return sleep_until(out, prober->due_ns);
    report((int64_t)prober->done);
    return filch_done(out, filch_none());
}

static const filch_type prober_type = {
    .name = "prober", .size = sizeof(struct prober), .init = copy_state, .step = prober_step
};

/* Starts the scheduler, the probed process and the load (processes that keep the workers busy), and lets the load run
 * for 20 ms. Returns the pid of the probed process. */
static filch_pid prepare(uint64_t percent)
{
    delays_ns = bench_alloc(run.size, sizeof *delays_ns);
    wakes_ns = bench_alloc(run.size, sizeof *wakes_ns);
    bench_start(&run, NULL);
    filch_pid target = start(&target_type, &(struct target){ 0, 0 });
    start_load(percent);
    bench_sleep_ns(FILCH_MILLISECONDS(20));
    expect_results(1);
    bench_begin(&run);
    return target;
}

static bool conclude(void)
{
    bool right = wait_for_results() == (int64_t)run.size;
    bench_end(&run, run.size);
    atomic_store(&is_over, true);
    (void)bench_percentiles(&run, "", delays_ns, run.size);
    bench_value(&run, (double)delays_ns[(run.size - 1) * 99 / 100] / 1000, "us p99");
    return right;
}

bool probe_outside(uint64_t variant)
{
    filch_pid target = prepare(variant);
    uint64_t  due_ns = bench_now_ns();
    for (uint64_t i = 0; i < run.size; i++, due_ns += GAP_NS) {
        uint64_t now_ns = bench_now_ns();
        if (now_ns < due_ns) bench_sleep_ns(due_ns - now_ns);
        /* The message carries the present time, not due_ns, so that a late wake-up of this thread does not count as
         * delay. */
        bench_send(&run, target, filch_int((int64_t)bench_now_ns()));
    }
    return conclude();
}

bool probe_inside(uint64_t variant)
{
    filch_pid target = prepare(variant);
    start(&prober_type, &(struct prober){ target, bench_now_ns() + GAP_NS, 0 });
    bool right = conclude();
    (void)bench_percentiles(&run, "wake_", wakes_ns, run.size);
    return right;
}
