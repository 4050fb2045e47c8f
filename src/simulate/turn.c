/* turn.c - the turns of a simulated run. See simulation.h.
 *
 * A turn: virtual time advances; a worker is drawn, and the calling thread acts as that worker for the turn
 * (fli_current_worker). It fires the timers that are due, then finds and steps one process with the scheduler's own
 * functions. Instead of the step, an event from outside or a job of the work pool may be executed.
 *
 * Steps are interrupted. Where a process acts on others (fli_simulator.point), turns of other workers may come first,
 * nested on the stack of the interrupted step; the interrupted worker is busy until they end. No lock is held at such a
 * point. A nested turn ends before the outer step continues, so two steps never alternate. src/sim explores
 * alternating steps, for the runtime alone.
 */
#include <stdio.h>

#include "clock/timers.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/find.h"
#include "sched/sched.h"
#include "sched/step.h"
#include "sched/worker.h"
#include "simulate/simulation.h"
#include "sync/deque.h"
#include "work/pool.h"

/* The largest number of interrupted steps on the stack. */
#define DEPTH_MAX 8

void fli_simulation_refused(fli_runtime *rt, const char *call)
{
    fli_simulation *sim = fli_simulation_of(rt);
    if (fli_current_worker(rt) == NULL) fli_store_rlx(&sim->refused_elsewhere, call);
    else if (fli_load_rlx(&sim->refused) == NULL) fli_store_rlx(&sim->refused, call);
}

bool fli_simulation_goes_on(fli_simulation *sim)
{
    const char *call = fli_load_rlx(&sim->refused), *elsewhere = fli_load_rlx(&sim->refused_elsewhere);
    if (sim->report.verdict == FILCH_SIM_OK && (call != NULL || elsewhere != NULL)) {
        char text[sizeof sim->report.text];
        snprintf(text, sizeof text, "%s cannot be simulated%s", call != NULL ? call : elsewhere,
                 call != NULL ? "" : " from another thread");
        fli_simulation_verdict(sim, FILCH_SIM_REFUSED, text);
    }
    if (sim->report.verdict == FILCH_SIM_OK && sim->report.steps >= sim->opt.steps_max) {
        fli_simulation_verdict(sim, FILCH_SIM_ENDLESS,
                               "steps_max is reached, and there is still something to do: raise it, or look for an "
                               "endless loop");
    }
    return sim->report.verdict == FILCH_SIM_OK;
}

/* Returns a worker that is not inside a step, preferably one that is not stalled. Returns NULL if all are inside
 * steps. */
static fli_worker *draw_worker(fli_simulation *sim)
{
    uint32_t workers = sim->opt.workers, awake[FLI_SIMULATED_WORKERS_MAX], idle[FLI_SIMULATED_WORKERS_MAX],
             awake_count = 0, idle_count = 0;
    for (uint32_t i = 0; i < workers; i++) {
        if (sim->busy[i]) continue;
        idle[idle_count++] = i;
        if (sim->stalled_until[i] <= sim->turns) awake[awake_count++] = i;
    }
    if (idle_count == 0) return NULL;
    uint32_t drawn = fli_draw_below(sim, awake_count > 0 ? awake_count : idle_count);
    return sim->sched->workers[awake_count > 0 ? awake[drawn] : idle[drawn]];
}

/* Finds a ready process for `w`: in the order of the scheduler, or in another order if the seed says so. Returns NULL
 * if no process is ready. */
static fli_proc *find(fli_simulation *sim, fli_worker *w)
{
    bool      retry = false;
    fli_proc *p = NULL;
    uint32_t  way = fli_draw_below(sim, 100);
    if (way < sim->oldest) p = fli_deque_take_oldest(&w->deque);
    else if (way < sim->oldest + sim->far) p = fli_find_far(w, true, &retry);
    if (p == NULL) p = fli_find_near(w);
    if (p == NULL) p = fli_find_far(w, true, &retry);
    return p;
}

static void inject_faults(fli_simulation *sim)
{
    if (sim->stage != FLI_STAGE_RUN) return;
    if (fli_draw_chance(sim, sim->opt.clock_jump)) {
        uint64_t jump_ns = fli_draw_span(sim, sim->opt.jump_ns);
        sim->simulator.now_ns = fli_clock_after(sim->simulator.now_ns, jump_ns);
        sim->report.clock_jumps++;
        fli_simulation_fault(sim, "the clock jumps");
    }
    if (fli_draw_chance(sim, sim->opt.stall)) {
        uint32_t index = fli_draw_below(sim, sim->opt.workers);
        sim->stalled_until[index] = sim->turns + 10 + fli_draw_below(sim, 500);
        sim->report.stalls++;
        fli_simulation_fault(sim, "a worker stalls");
    }
}

/* Draws and runs one of the jobs that the threads of the work pool could have taken by now: the first `thread_max` jobs
 * in the queue. */
static void run_job(fli_simulation *sim)
{
    fli_workpool *pool = &sim->sched->workpool;
    uint64_t      threads = pool->thread_max;
    uint32_t      nth = fli_draw_below(sim, (uint32_t)(pool->queue_count < threads ? pool->queue_count : threads));
    fli_current_set(&sim->sched->caller_worker->local);
    (void)fli_workpool_run(pool, nth);
}

/* Draws and executes one of the `due` events from outside that are due. */
static void outside_happens(fli_simulation *sim, uint32_t due)
{
    uint32_t nth = fli_draw_below(sim, due);
    fli_current_set(&sim->sched->caller_worker->local);
    fli_simulation_happen(sim, nth);
}

bool fli_simulation_turn(fli_simulation *sim)
{
    filch_sched *sched = sim->sched;
    sim->turns++;
    sim->simulator.now_ns = fli_clock_after(sim->simulator.now_ns, 1 + fli_draw_below(sim, sim->pace_ns));
    inject_faults(sim);
    fli_worker *w = draw_worker(sim);
    if (w == NULL) return false;
    fli_current_set(&w->local);
    fli_worker_clock(w);
    uint32_t due = fli_simulation_due(sim);
    uint64_t jobs = sched->workpool.queue_count;
    if (due > 0 && fli_draw_below(sim, 4) == 0) {
        outside_happens(sim, due);
        return true;
    }
    if (jobs > 0 && fli_draw_below(sim, 4) == 0) {
        run_job(sim);
        return true;
    }
    fli_proc *p = find(sim, w);
    if (p != NULL) {
        sim->busy[w->local.index] = true;
        fli_step(w, p);
        sim->busy[w->local.index] = false;
        return true;
    }
    if (due > 0) outside_happens(sim, due);
    else if (jobs > 0) run_job(sim);
    return due > 0 || jobs > 0;
}

bool fli_simulation_point(fli_runtime *rt, fli_local *worker, const char *call)
{
    fli_simulation *sim = fli_simulation_of(rt);
    if (worker == NULL) return !fli_simulator_refuses(rt, call);
    if (worker->current == NULL || sim->stage != FLI_STAGE_RUN || sim->depth == DEPTH_MAX) return true;
    if (sim->report.verdict != FILCH_SIM_OK || !fli_draw_chance(sim, sim->interrupt)) return true;
    uint32_t turns = 1 + fli_draw_below(sim, 6);
    sim->depth++;
    sim->report.interrupted++;
    while (turns-- > 0 && fli_simulation_goes_on(sim) && fli_simulation_turn(sim)) {}
    sim->depth--;
    fli_current_set(worker);
    return true;
}

/* Returns the time at which a wait until `next_ns` ends. At random the machine sleeps longer, by up to jump_ns. All
 * magnitudes of the delay are equally likely, so that timers with distant due times are sometimes due together. */
static uint64_t oversleep(fli_simulation *sim, uint64_t next_ns)
{
    if (sim->stage != FLI_STAGE_RUN || !fli_draw_chance(sim, sim->opt.stall * 4)) return next_ns;
    sim->report.stalls++;
    fli_simulation_fault(sim, "the machine sleeps");
    return fli_clock_after(next_ns, fli_draw_magnitude(sim, sim->opt.jump_ns, 24));
}

bool fli_simulation_play(fli_simulation *sim, uint64_t until_ns)
{
    while (fli_simulation_goes_on(sim) && sim->simulator.now_ns < until_ns) {
        if (fli_simulation_turn(sim)) continue;
        uint64_t timer_ns = fli_timers_next_ns(&sim->sched->timers), next_ns = fli_simulation_next_ns(sim);
        if (timer_ns < next_ns) next_ns = timer_ns;
        if (next_ns == FLI_NEVER) return true;
        next_ns = oversleep(sim, next_ns);
        if (next_ns > until_ns) next_ns = until_ns;
        if (next_ns > sim->simulator.now_ns) sim->simulator.now_ns = next_ns;
    }
    return false;
}
