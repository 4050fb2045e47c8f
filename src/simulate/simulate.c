/* simulate.c - filch_sim_*: runs the user's processes with all scheduling choices drawn from a seed. See simulation.h.
 *
 * Workers, queues, stealing, steps, timers and mailboxes are those of the scheduler; only the threads are replaced. The
 * caller's thread runs the turns of all workers. Time is virtual: it advances by up to `pace_ns` with each turn, and
 * jumps to the next timer when no process is ready. A run:
 *
 *   1. create a scheduler whose workers and work pool have no threads; fixed node id and seeds, so that equal runs have
 *      equal pids
 *   2. call the user's scenario
 *   3. do turns until nothing is left to do, a violation is found, or a limit is reached
 *   4. call the user's check
 *   5. stop: cancel all processes, do turns until `stop_ns` has passed, kill the rest. After a violation all processes
 *      are killed at once, and nothing is added to the chart
 */
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "base/versioned.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/sched.h"
#include "sched/stats.h"
#include "sched/stop.h"
#include "sched/worker.h"
#include "simulate/simulate.h"
#include "simulate/simulation.h"

#define NODE 1

/* Called when no event is left that could complete a yield. If a process still waits for a completion, reports the
 * first such process. */
static void look_for_blocked(fli_simulation *sim)
{
    fli_runtime *rt = &sim->sched->rt;
    uint32_t     fresh = fli_load_rlx(&rt->procs.fresh);
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&rt->procs, slot);
        if (fli_word_state(fli_state_peek(&p->state)) != FLI_BLOCKED) continue;
        char     label[32], text[sizeof sim->report.text];
        uint32_t command = 0;
        uint64_t tag = 0;
        fli_chart_label(&sim->chart, fli_simulation_number(sim, fli_proc_serial(p)), label, sizeof label);
        (void)fli_yield_first(rt, p, &command, &tag);
        snprintf(text, sizeof text, "%s waits for ever: command %u, tag %llu", label, command, (unsigned long long)tag);
        fli_simulation_verdict(sim, FILCH_SIM_BLOCKED, text);
        return;
    }
}

/* Calls the scenario or the check of the user. If it returns an error, the verdict is FILCH_SIM_FAILED. */
static void call_user(fli_simulation *sim, filch_sim_fn fn, void *user, const char *what)
{
    fli_current_set(&sim->sched->caller_worker->local);
    filch_err err = fn(sim->sched, user);
    if (err == FILCH_OK) return;
    char text[sizeof sim->report.text];
    snprintf(text, sizeof text, "the %s returned %d: %s", what, err, filch_err_text(err));
    fli_simulation_verdict(sim, FILCH_SIM_FAILED, text);
}

/* The drain of a simulated stop: runs the processes for `stop_ns`. After half of that time, or as soon as nothing is
 * pending, cancels the remaining processes again, because the supervisor that had to cancel them may have ended. */
static void drain(fli_simulation *sim)
{
    uint64_t until_ns = fli_clock_after(sim->simulator.now_ns, sim->opt.stop_ns);
    (void)fli_simulation_play(sim, sim->simulator.now_ns + (until_ns - sim->simulator.now_ns) / 2);
    fli_current_set(&sim->sched->caller_worker->local);
    fli_stop_round(sim->sched, true);
    (void)fli_simulation_play(sim, until_ns);
}

static void stop(fli_simulation *sim)
{
    filch_sched *sched = sim->sched;
    bool         politely = sim->report.verdict == FILCH_SIM_OK;
    sim->stage = politely ? FLI_STAGE_STOP : FLI_STAGE_OVER;
    fli_current_set(&sched->caller_worker->local);
    fli_stop_begin(sched);
    if (politely) drain(sim);
    sim->stage = FLI_STAGE_OVER;
    fli_simulation_settle(sim);
    while (fli_stats_alive(sched) > 0) {
        fli_stop_force(sched);
        while (fli_simulation_turn(sim)) {}
    }
    uint64_t forced = fli_stop_over(sched);
    if (politely) sim->report.forced = forced;
}

static void run(fli_simulation *sim, filch_sim_fn scenario, void *user)
{
    call_user(sim, scenario, user, "scenario");
    sim->stage = FLI_STAGE_RUN;
    bool quiet = fli_simulation_play(sim, sim->opt.time_max_ns);
    if (quiet && sim->opt.blocked_ok == 0) look_for_blocked(sim);
    sim->stage = FLI_STAGE_CHECK;
    if (sim->opt.check != NULL && fli_simulation_goes_on(sim)) call_user(sim, sim->opt.check, user, "check");
    (void)fli_simulation_goes_on(sim);
    sim->report.time_ns = sim->simulator.now_ns;
    stop(sim);
}

/* Draws the scheduling parameters of this run from its seed. Scheduler options that the user has set keep their
 * values. */
static void draw_style(fli_simulation *sim, filch_options *sched)
{
    static const uint32_t shares[] = { 0, 0, 10, 45 }, rates[] = { 0, 20, 100, 400 }, paces[] = { 400, 4000, 40000 },
                          batches[] = { 1, 2, 8, 64 }, fair[] = { 2, 8, 8, 32 }, globals[] = { 1, 4, 16, 16 };
    sim->oldest = fli_draw_one_of(sim, shares, 4);
    sim->far = fli_draw_one_of(sim, shares, 4);
    sim->interrupt = fli_draw_one_of(sim, rates, 4);
    sim->pace_ns = fli_draw_one_of(sim, paces, 3);
    if (sched->batch_max == 0) sched->batch_max = fli_draw_one_of(sim, batches, 4);
    if (sched->fair_every == 0) sched->fair_every = fli_draw_one_of(sim, fair, 4);
    if (sched->global_batch == 0) sched->global_batch = fli_draw_one_of(sim, globals, 4);
    if (sim->opt.whole_steps != 0) sim->interrupt = 0;
}

static filch_err make_sched(fli_simulation *sim)
{
    filch_options opt = *sim->opt.sched;
    draw_style(sim, &opt);
    opt.workers = (int32_t)sim->opt.workers;
    opt.node = NODE;
    opt.seed = fli_prng_mix(sim->opt.seed) | 1;
    if (sim->faulty != NULL) {
        opt.alloc = fli_faulty_alloc;
        opt.alloc_user = sim->faulty;
    }
    return fli_sched_make(&sim->sched, &opt, &sim->simulator, sim->upper);
}

/* Does one simulated run. With `last`, draws the chart even if there is no violation. */
static filch_err run_one(const fli_upper_ops *upper, const filch_sim_options *opt, const fli_mem *mem,
                         filch_sim_fn scenario, void *user, bool last, filch_sim_report *report)
{
    fli_simulation *sim = fli_zalloc(mem, sizeof *sim);
    if (sim == NULL) return FILCH_ENOMEM;
    sim->mem = *mem;
    sim->opt = *opt;
    sim->upper = upper;
    sim->simulator = (fli_simulator){ .point = fli_simulation_point,
                                      .sent = fli_simulation_sent,
                                      .completed = fli_simulation_completed,
                                      .step = fli_simulation_step,
                                      .handle = fli_simulation_handle,
                                      .timer_due = fli_simulation_timer_due,
                                      .spawned = fli_simulation_spawned,
                                      .ended = fli_simulation_ended,
                                      .refused = fli_simulation_refused };
    fli_prng_init(&sim->prng, opt->seed);
    filch_err err = fli_chart_init(&sim->chart, mem, opt->chart_events);
    if (err != FILCH_OK) goto no_chart;
    sim->chart.describe = opt->describe;
    sim->chart.describe_user = opt->describe_user;
    if (opt->no_memory > 0) {
        err = FILCH_ENOMEM;
        sim->faulty = fli_alloc(mem, sizeof *sim->faulty);
        if (sim->faulty == NULL) goto no_faulty;
        *sim->faulty = (fli_faulty_mem){ .mem = *mem, .sim = sim };
        fli_atomic_init(&sim->faulty->blocks, 1);
    }
    void *before = fli_current_get(); /* this thread's worker, if it is one of another scheduler; NULL: none */
    err = make_sched(sim);
    if (err != FILCH_OK) goto no_sched;
    /* This thread runs all workers of the simulation in turn, caller_worker included. */
    for (uint32_t i = 0; i <= sim->sched->worker_count; i++) sim->sched->workers[i]->local.outer = before;
    run(sim, scenario, user);
    fli_current_set(before);

    size_t size = 0;
    *report = sim->report;
    report->hash = sim->chart.hash;
    report->seed = opt->seed;
    if (last || report->verdict != FILCH_SIM_OK) report->chart = fli_chart_draw(&sim->chart, &size);
    memcpy(&report->reserved[0], mem, sizeof *mem);
    memcpy(&report->reserved[2], &size, sizeof size);
    fli_sched_free(sim->sched);
no_sched:
    if (sim->faulty != NULL) sim->faulty->sim = NULL;
    if (sim->faulty != NULL) fli_faulty_let_go(sim->faulty);
    fli_free(mem, sim->pending, sim->pending_room * sizeof *sim->pending);
    fli_free(mem, sim->occupants, sim->occupant_room * sizeof *sim->occupants);
no_faulty:
    fli_chart_fini(&sim->chart);
no_chart:
    fli_free(mem, sim, sizeof *sim);
    return err;
}

/* ---- public functions ---- */

static void fill(uint64_t *field, uint64_t value)
{
    if (*field == 0) *field = value;
}

/* Copies the caller's options to *opt and its scheduler options to *sched, with defaults for fields that are not set.
 * Makes opt->sched point to *sched. */
static filch_err read_options(const filch_sim_options *given, filch_sim_options *opt, filch_options *sched)
{
    filch_err err = FLI_VERSIONED_READ(opt, given, "options", FILCH_SIM_OPTIONS_INIT);
    if (err == FILCH_OK) err = FLI_VERSIONED_READ(sched, opt->sched, "options.sched", FILCH_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    opt->sched = sched;
    if (opt->workers == 0) opt->workers = 4;
    if (opt->chart_events == 0) opt->chart_events = 200;
    fill(&opt->steps_max, 1000000);
    fill(&opt->time_max_ns, FILCH_SECONDS(3600));
    fill(&opt->stop_ns, FILCH_SECONDS(5));
    fill(&opt->late_ns, FILCH_MILLISECONDS(10));
    fill(&opt->jump_ns, FILCH_SECONDS(1));
    const struct {
        uint32_t    rate;
        const char *text;
    } rates[] = {
        { opt->no_memory, "options.no_memory is over 1000" },
        { opt->late_answer, "options.late_answer is over 1000" },
        { opt->double_answer, "options.double_answer is over 1000" },
        { opt->handler_error, "options.handler_error is over 1000" },
        { opt->stall, "options.stall is over 1000" },
        { opt->clock_jump, "options.clock_jump is over 1000" },
        { opt->late_timer, "options.late_timer is over 1000" },
    };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (rates[i].rate > 1000) return filch_invalid(rates[i].text);
    }
    if (opt->workers > FLI_SIMULATED_WORKERS_MAX) return filch_invalid("options.workers is over 64");
    if (opt->chart_events > 1000000) return filch_invalid("options.chart_events is over a million");
    if (opt->blocked_ok > 1) return filch_invalid("options.blocked_ok is neither 0 nor 1");
    if (opt->whole_steps > 1) return filch_invalid("options.whole_steps is neither 0 nor 1");
    return opt->spare == 0 ? FILCH_OK : filch_invalid("options.spare is not 0: begin with the FILCH_*_INIT macro");
}

filch_err fli_sim_sweep(const fli_upper_ops *upper, const filch_sim_options *options, uint64_t first, uint64_t count,
                        filch_sim_fn scenario, void *user, filch_sim_report *report)
{
    filch_sim_options opt;
    filch_options     sched;
    if (scenario == NULL) return filch_invalid("scenario is NULL");
    if (report == NULL) return filch_invalid("report is NULL");
    if (report->size < sizeof *report) return filch_invalid("report.size is not set: begin with FILCH_SIM_REPORT_INIT");
    if (count == 0) return filch_invalid("count is 0: run at least one seed");
    filch_err err = read_options(options, &opt, &sched);
    if (err != FILCH_OK) return err;
    fli_mem          mem;
    filch_sim_report last = FILCH_SIM_REPORT_INIT;
    uint64_t         runs = 0;
    fli_mem_init(&mem, sched.alloc, sched.alloc_user);
    do { /* a report before the last one has no chart, so nothing of it has to be freed */
        opt.seed = first + runs;
        err = run_one(upper, &opt, &mem, scenario, user, runs + 1 == count, &last);
        if (err != FILCH_OK) return err;
        runs++;
    } while (runs < count && last.verdict == FILCH_SIM_OK);
    size_t size = report->size;
    *report = last;
    report->size = size;
    report->runs = runs;
    return FILCH_OK;
}

void filch_sim_report_free(filch_sim_report *report)
{
    if (report == NULL || report->size < sizeof *report) return;
    if (report->chart != NULL) {
        fli_mem mem;
        size_t  size;
        memcpy(&mem, &report->reserved[0], sizeof mem);
        memcpy(&size, &report->reserved[2], sizeof size);
        fli_free(&mem, report->chart, size);
    }
    *report = (filch_sim_report)FILCH_SIM_REPORT_INIT;
}

/* Returns the simulation of `sched` if the calling thread runs it; otherwise NULL, and the reason in *err. */
static fli_simulation *inside(filch_sched *sched, const char *call, filch_err *err)
{
    *err = sched == NULL ? filch_invalid("sched is NULL") : FILCH_ESTATE;
    if (sched == NULL || sched->rt.sim == NULL) return NULL;
    fli_local *worker = fli_current_worker(&sched->rt);
    if (worker != NULL) {
        *err = FILCH_OK;
        return fli_simulation_of(&sched->rt);
    }
    (void)fli_simulation_point(&sched->rt, NULL, call);
    return NULL;
}

filch_err filch_sim_fail(filch_sched *sched, const char *text)
{
    filch_err       err;
    fli_simulation *sim = inside(sched, "filch_sim_fail", &err);
    if (text == NULL) return filch_invalid("text is NULL");
    if (sim != NULL) fli_simulation_verdict(sim, FILCH_SIM_FAILED, text);
    return err;
}

filch_err filch_sim_note(filch_sched *sched, const char *text)
{
    filch_err       err;
    fli_simulation *sim = inside(sched, "filch_sim_note", &err);
    if (text == NULL) return filch_invalid("text is NULL");
    if (sim == NULL) return err;
    uint32_t from = fli_simulation_number(sim, fli_current_worker(&sched->rt)->serial);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_NOTE, .from = from, .text = text });
    return FILCH_OK;
}

filch_err filch_sim_later(filch_sched *sched, uint64_t delay_ns, filch_sim_later_fn fn, void *arg)
{
    filch_err       err;
    fli_simulation *sim = inside(sched, "filch_sim_later", &err);
    if (fn == NULL) return filch_invalid("fn is NULL");
    if (sim == NULL) return err;
    if (sim->stage >= FLI_STAGE_STOP) return FILCH_ECLOSED;
    fli_pending item = {
        .kind = FLI_PENDING_LATER, .due_ns = fli_clock_after(sim->simulator.now_ns, delay_ns), .fn = fn, .arg = arg
    };
    return fli_simulation_add(sim, item) ? FILCH_OK : FILCH_ENOMEM;
}

uint32_t filch_sim_draw(filch_sched *sched, uint32_t bound)
{
    filch_err       err;
    fli_simulation *sim = inside(sched, "filch_sim_draw", &err);
    return sim != NULL && bound > 0 ? fli_draw_below(sim, bound) : 0;
}

int filch_sim_active(const filch_sched *sched)
{
    return sched != NULL && sched->rt.sim != NULL;
}

uint64_t filch_sim_now(filch_sched *sched)
{
    return filch_now(sched);
}
