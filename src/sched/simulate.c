/* simulate.c - a run of the user's processes whose every choice comes from a seed: filch_sim_*.
 *
 * The scheduler is the real one: its workers, queues, stealing, steps, timers and mailboxes. Only its threads are
 * missing. This file takes their turns, on the caller's thread: it draws a worker, is that worker for one turn
 * (fli_here), and lets it find and step one process. Time is a number that grows a little with each turn, and jumps to
 * the next timer when nothing is ready.
 *
 *   1. create: workers without threads, a work pool by hand, node and seeds fixed, so that pids are the same each time
 *   2. scenario
 *   3. turns, until nothing is left to do, a violation, or a limit
 *   4. check
 *   5. stop: cancel, more turns for a while, kill; after a violation at once, and nothing is written down any more
 *
 * Steps are interrupted. Where a process acts on others (fli_simulator.point), other workers may take turns first,
 * nested on the same stack; the interrupted worker is busy meanwhile, as it would be on a CPU of its own. No lock is
 * ever held at such a point. What this cannot show is two steps that interrupt each other by turns: a nested turn
 * always ends before the outer step goes on. src/sim explores those, for the runtime itself.
 *
 * INVARIANT  nothing here depends on an address, on the real clock or on the order of a table keyed by pointers.
 * INVARIANT  two draws never stand in one expression: their order would be the compiler's choice.
 */
#include "sched/simulate.h"

#include <stdio.h>
#include <string.h>

#include "observe/chart.h"
#include "proc/data.h"
#include "proc/mailbox.h"
#include "proc/yields.h"

#define WORKERS_MAX 64
#define DEPTH_MAX 8
#define NODE 1

/* The allocator with holes in it. Blocks that the program keeps may outlive the run: the last one frees this. */
typedef struct faulty_mem {
    fli_mem            mem; /* the one behind */
    struct simulation *sim; /* plain: whoever may fail is on the simulation's thread. NULL: the run is over */
    /* Blocks that are out, and one for the run.  PAIR simulate.blocks */
    FLI_ATOMIC(uint64_t) blocks;
} faulty_mem;

/* Something that happens later. */
typedef struct pending {
    enum { LATER, ANSWER, AGAIN } kind;
    uint64_t           due_ns;
    filch_sim_later_fn fn; /* LATER */
    void              *arg;
    fli_node          *node;     /* ANSWER: claimed and filled */
    filch_receiver     receiver; /* AGAIN: was answered */
} pending;

/* Who is in a slot: its number in the chart. */
typedef struct occupant {
    uint32_t gen, number;
} occupant;

/* Faults and interruptions are for RUNNING alone; from OVER on, nothing is written down. */
typedef enum stage { SETTING_UP, RUNNING, CHECKING, STOPPING, OVER } stage;

typedef struct simulation {
    fli_simulator     face; /* first: rt.sim points here */
    filch_sched      *sched;
    filch_sim_options opt;
    fli_mem           mem;
    faulty_mem       *faulty; /* NULL without no_memory */
    fli_prng          prng;
    fli_chart         chart;
    stage             stage;
    filch_sim_report  report;
    /* A call that was refused; NULL none. The first by the simulation's own thread, and by others.
     * writes: any thread.  reads: the simulation. Relaxed: constant texts. */
    FLI_ATOMIC(const char *) refused;
    FLI_ATOMIC(const char *) refused_elsewhere;
    /* How this seed chooses, of 100: the oldest of its own, somebody else's; otherwise as a worker would. */
    uint32_t oldest, far;
    uint32_t interrupt; /* per mille of points */
    uint32_t pace_ns;   /* a turn takes up to so long */
    uint32_t depth;     /* interrupted steps */
    uint64_t turns;
    bool     busy[WORKERS_MAX];
    uint64_t stalled_until[WORKERS_MAX]; /* in turns */
    pending *pending;
    uint32_t pending_count, pending_room;
    occupant *occupants; /* by slot */
    uint32_t  occupant_room;
    uint32_t  numbers; /* given out */
} simulation;

static simulation *of(const fli_runtime *rt)
{
    return (simulation *)rt->sim;
}

/* ---- choices ---- */

static uint32_t below(simulation *sim, uint32_t bound)
{
    return fli_prng_below(&sim->prng, bound);
}

static uint64_t span(simulation *sim, uint64_t max_ns)
{
    return 1 + fli_prng_next(&sim->prng) % max_ns;
}

/* True so often in a thousand. Draws nothing for a rate of zero. */
static bool chance(simulation *sim, uint32_t per_mille)
{
    return per_mille > 0 && below(sim, 1000) < per_mille;
}

static uint32_t one_of(simulation *sim, const uint32_t *values, uint32_t count)
{
    return values[below(sim, count)];
}

/* ---- the chart ---- */

static uint32_t number_of(simulation *sim, uint64_t serial)
{
    uint32_t slot = fli_serial_slot(serial);
    if (serial == 0) return FLI_CHART_OUTSIDE;
    if (slot >= sim->occupant_room || sim->occupants[slot].gen != fli_serial_gen(serial)) return FLI_CHART_UNKNOWN;
    return sim->occupants[slot].number;
}

static bool writes(const simulation *sim)
{
    return sim->stage != OVER;
}

static void note(simulation *sim, fli_chart_event event)
{
    if (!writes(sim)) return;
    event.time_ns = sim->face.now_ns;
    fli_chart_add(&sim->chart, &event);
}

static void note_fault(simulation *sim, const char *text)
{
    note(sim, (fli_chart_event){ .kind = FLI_CHART_FAULT, .text = text });
}

static void give_verdict(simulation *sim, filch_sim_verdict verdict, const char *text)
{
    if (!writes(sim) || sim->report.verdict != FILCH_SIM_OK) return;
    sim->report.verdict = (int32_t)verdict;
    snprintf(sim->report.text, sizeof sim->report.text, "%s", text);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_FAIL, .text = text });
}

static void name_process(simulation *sim, uint64_t serial, const filch_type *type)
{
    uint32_t slot = fli_serial_slot(serial), number = ++sim->numbers;
    if (slot >= sim->occupant_room) {
        uint32_t  room = slot < 128 ? 256 : slot * 2;
        occupant *all = fli_resize(&sim->mem, sim->occupants, sim->occupant_room * sizeof *all, room * sizeof *all);
        if (all == NULL) return;
        memset(all + sim->occupant_room, 0, (room - sim->occupant_room) * sizeof *all);
        sim->occupants = all;
        sim->occupant_room = room;
    }
    sim->occupants[slot] = (occupant){ .gen = fli_serial_gen(serial), .number = number };
    fli_chart_name(&sim->chart, number, fli_type_name(type));
}

void fli_simulate_spawned(filch_sched *sched, const fli_local *here, uint64_t serial, const filch_type *type)
{
    simulation *sim = of(&sched->rt);
    name_process(sim, serial, type);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_SPAWN, .from = number_of(sim, here->serial),
                                 .to = number_of(sim, serial) });
}

void fli_simulate_ended(filch_sched *sched, uint64_t serial, filch_err error, const filch_data *result)
{
    simulation *sim = of(&sched->rt);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_EXIT, .from = number_of(sim, serial), .error = error,
                                 .data = result });
}

static void on_sent(fli_runtime *rt, filch_pid from, filch_pid to, const filch_data *data, filch_err err)
{
    simulation *sim = of(rt);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_SEND, .from = number_of(sim, from.serial),
                                 .to = number_of(sim, to.serial), .data = data, .error = err });
}

static void note_event(simulation *sim, uint32_t number, const filch_event *event)
{
    static const fli_chart_kind kinds[] = {
        [FILCH_EVENT_MESSAGE] = FLI_CHART_GET,   [FILCH_EVENT_YIELD] = FLI_CHART_RESULT,
        [FILCH_EVENT_CANCEL] = FLI_CHART_CANCEL, [FILCH_EVENT_DROPPED] = FLI_CHART_DROPS,
    };
    note(sim, (fli_chart_event){ .kind = kinds[event->type], .from = number_of(sim, event->from.serial), .to = number,
                                 .tag = event->tag, .error = event->error, .data = &event->data });
}

/* ---- what is pending ---- */

static bool add_pending(simulation *sim, pending item)
{
    if (sim->pending_count == sim->pending_room) {
        uint32_t room = sim->pending_room == 0 ? 16 : sim->pending_room * 2;
        pending *all = fli_resize(&sim->mem, sim->pending, sim->pending_room * sizeof *all, room * sizeof *all);
        if (all == NULL) return false;
        sim->pending = all;
        sim->pending_room = room;
    }
    sim->pending[sim->pending_count++] = item;
    return true;
}

static uint32_t count_due(const simulation *sim)
{
    uint32_t due = 0;
    for (uint32_t i = 0; i < sim->pending_count; i++) due += sim->pending[i].due_ns <= sim->face.now_ns;
    return due;
}

static uint64_t next_due_ns(const simulation *sim)
{
    uint64_t next = FLI_NEVER;
    for (uint32_t i = 0; i < sim->pending_count; i++) {
        if (sim->pending[i].due_ns < next) next = sim->pending[i].due_ns;
    }
    return next;
}

/* Posts an answer that was held back. Its process may have ended meanwhile. */
static void post(simulation *sim, fli_node *node)
{
    fli_runtime *rt = &sim->sched->rt;
    fli_local   *here = fli_here(rt);
    fli_proc    *p = fli_proc_find(rt, node->peer);
    if (fli_mail_post(rt, here, p, fli_serial_gen(node->peer), node) == FILCH_OK) return;
    filch_data data = filch_none();
    fli_node_get_data(node, &data);
    fli_data_free(&data);
    fli_yield_drop(rt, here, node);
    FLI_TALLY(rt, here, late_completions, 1);
}

/* The nth of those that are due, in the order they were added. */
static void happen(simulation *sim, uint32_t nth)
{
    uint32_t i = 0;
    for (;; i++) {
        if (sim->pending[i].due_ns <= sim->face.now_ns && nth-- == 0) break;
    }
    pending item = sim->pending[i];
    memmove(&sim->pending[i], &sim->pending[i + 1], (--sim->pending_count - i) * sizeof item);
    if (item.kind == LATER) item.fn(sim->sched, item.arg);
    else if (item.kind == ANSWER) post(sim, item.node);
    else FLI_ASSERT(filch_complete(item.receiver, item.receiver.tag, filch_none(), FILCH_OK) != FILCH_OK);
}

static bool is_of_the_clock(uint32_t command)
{
    return command == FILCH_CMD_TIMER || command == FILCH_CMD_TICKER || command == FILCH_CMD_TIMER_CANCEL;
}

/* The first answer counts, also when it is late: it has claimed its node, and is only slow to post it. */
static bool on_answered(fli_runtime *rt, fli_node *node, uint32_t command)
{
    simulation *sim = of(rt);
    filch_data  data = filch_none();
    uint64_t    now_ns = sim->face.now_ns;
    fli_node_get_data(node, &data);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_ANSWER, .to = number_of(sim, node->peer), .tag = node->tag,
                                 .error = node->error, .data = &data, .command = command });
    if (sim->stage != RUNNING) return false;
    if (chance(sim, sim->opt.double_answer)) {
        filch_receiver receiver = fli_yield_receiver(rt, node);
        uint64_t       due_ns = fli_clock_after(now_ns, span(sim, sim->opt.late_ns));
        if (add_pending(sim, (pending){ .kind = AGAIN, .due_ns = due_ns, .receiver = receiver })) {
            sim->report.double_answers++;
            note_fault(sim, "this answer will come twice");
        }
    }
    if (is_of_the_clock(command) || !chance(sim, sim->opt.late_answer)) return false;
    uint64_t due_ns = fli_clock_after(now_ns, span(sim, sim->opt.late_ns));
    if (!add_pending(sim, (pending){ .kind = ANSWER, .due_ns = due_ns, .node = node })) return false;
    sim->report.late_answers++;
    note_fault(sim, "this answer will be late");
    return true;
}

/* ---- faults ---- */

static void let_go(faulty_mem *faulty)
{
    /* PAIR simulate.blocks, both halves: whoever frees this comes after all others. */
    if (fli_sub_acqrel(&faulty->blocks, 1) != 1) return;
    fli_mem mem = faulty->mem;
    fli_free(&mem, faulty, sizeof *faulty);
}

static void *faulty_alloc(void *user, void *old, size_t old_size, size_t size)
{
    faulty_mem *faulty = user;
    if (size == 0) {
        (void)faulty->mem.alloc(faulty->mem.user, old, old_size, 0);
        let_go(faulty);
        return NULL;
    }
    simulation *sim = faulty->sim;
    if (sim != NULL && sim->stage == RUNNING && chance(sim, sim->opt.no_memory)) {
        sim->report.no_memory++;
        note_fault(sim, "no memory");
        return NULL;
    }
    void *at = faulty->mem.alloc(faulty->mem.user, old, old_size, size);
    if (at != NULL && old == NULL) fli_add_rlx(&faulty->blocks, 1);
    return at;
}

filch_err fli_simulate_handle(fli_worker *w, const fli_handler *handler, const filch_command *command,
                              filch_receiver receiver)
{
    simulation *sim = of(&w->sched->rt);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_YIELD, .from = number_of(sim, command->from.serial),
                                 .tag = receiver.tag, .command = command->id });
    if (handler == NULL) return FILCH_ECOMMAND;
    bool may_fail = command->id == FILCH_CMD_WORK || command->id >= FILCH_CMD_USER;
    if (may_fail && sim->stage == RUNNING && chance(sim, sim->opt.handler_error)) {
        sim->report.handler_errors++;
        note_fault(sim, "its handler fails");
        return command->id == FILCH_CMD_WORK ? FILCH_EFULL : FILCH_ESYS;
    }
    return handler->handle(handler->user, command, receiver.tag, receiver);
}

bool fli_simulate_refuses(filch_sched *sched, const char *call)
{
    if (FLI_LIKELY(sched->rt.sim == NULL)) return false;
    simulation *sim = of(&sched->rt);
    if (fli_here(&sched->rt) == NULL) fli_store_rlx(&sim->refused_elsewhere, call);
    else if (fli_load_rlx(&sim->refused) == NULL) fli_store_rlx(&sim->refused, call);
    return true;
}

/* ---- turns ---- */

/* May there be another turn? Gives the verdict if not for a good reason. */
static bool goes_on(simulation *sim)
{
    const char *call = fli_load_rlx(&sim->refused), *elsewhere = fli_load_rlx(&sim->refused_elsewhere);
    if (sim->report.verdict == FILCH_SIM_OK && (call != NULL || elsewhere != NULL)) {
        char text[sizeof sim->report.text];
        snprintf(text, sizeof text, "%s cannot be simulated%s", call != NULL ? call : elsewhere,
                 call != NULL ? "" : " from another thread");
        give_verdict(sim, FILCH_SIM_REFUSED, text);
    }
    if (sim->report.verdict == FILCH_SIM_OK && sim->report.steps >= sim->opt.steps_max) {
        give_verdict(sim, FILCH_SIM_ENDLESS, "steps_max is reached, and there is still something to do");
    }
    return sim->report.verdict == FILCH_SIM_OK;
}

filch_err fli_simulate_step(fli_worker *w, fli_proc *p, uint32_t count)
{
    simulation *sim = of(&w->sched->rt);
    uint32_t    number = number_of(sim, w->local.serial);
    if (writes(sim)) {
        sim->report.steps++;
        fli_chart_stir(&sim->chart, ((uint64_t)number << 32) ^ ((uint64_t)w->local.index << 16) ^ count);
        for (uint32_t i = 0; i < count; i++) note_event(sim, number, &w->events[i]);
    }
    return fli_proc_type(p)->step(p->self, w->events, count, &w->out);
}

/* A worker that is not in the middle of a step and, if there is one, not stalled. */
static fli_worker *draw_worker(simulation *sim)
{
    uint32_t workers = sim->opt.workers, awake[WORKERS_MAX], idle[WORKERS_MAX], awake_count = 0, idle_count = 0;
    for (uint32_t i = 0; i < workers; i++) {
        if (sim->busy[i]) continue;
        idle[idle_count++] = i;
        if (sim->stalled_until[i] <= sim->turns) awake[awake_count++] = i;
    }
    if (idle_count == 0) return NULL;
    uint32_t drawn = below(sim, awake_count > 0 ? awake_count : idle_count);
    return sim->sched->workers[awake_count > 0 ? awake[drawn] : idle[drawn]];
}

/* As a worker finds one, but for the order, which the seed may change. */
static fli_proc *find(simulation *sim, fli_worker *w)
{
    bool      retry = false;
    fli_proc *p = NULL;
    uint32_t  way = below(sim, 100);
    if (way < sim->oldest) p = fli_deque_take_oldest(&w->deque);
    else if (way < sim->oldest + sim->far) p = fli_find_far(w, true, &retry);
    if (p == NULL) p = fli_find_near(w);
    if (p == NULL) p = fli_find_far(w, true, &retry);
    return p;
}

static void bad_luck(simulation *sim)
{
    if (sim->stage != RUNNING) return;
    if (chance(sim, sim->opt.clock_jump)) {
        uint64_t jump_ns = span(sim, sim->opt.jump_ns);
        sim->face.now_ns = fli_clock_after(sim->face.now_ns, jump_ns);
        sim->report.clock_jumps++;
        note_fault(sim, "the clock jumps");
    }
    if (chance(sim, sim->opt.stall)) {
        uint32_t index = below(sim, sim->opt.workers);
        sim->stalled_until[index] = sim->turns + 10 + below(sim, 500);
        sim->report.stalls++;
        note_fault(sim, "a worker stalls");
    }
}

/* Runs one of the jobs that would be with a thread of the pool. */
static void run_job(simulation *sim)
{
    fli_workpool *pool = &sim->sched->workpool;
    uint64_t      threads = pool->thread_max;
    uint32_t      nth = below(sim, (uint32_t)(pool->queue_count < threads ? pool->queue_count : threads));
    fli_here_set(&sim->sched->guest->local);
    (void)fli_workpool_run(pool, nth);
}

/* Something from outside. */
static void outside_happens(simulation *sim, uint32_t due)
{
    uint32_t nth = below(sim, due);
    fli_here_set(&sim->sched->guest->local);
    happen(sim, nth);
}

/* One turn. False: nothing can be done at this time. */
static bool turn(simulation *sim)
{
    filch_sched *sched = sim->sched;
    sim->turns++;
    sim->face.now_ns = fli_clock_after(sim->face.now_ns, 1 + below(sim, sim->pace_ns));
    bad_luck(sim);
    fli_worker *w = draw_worker(sim);
    if (w == NULL) return false;
    fli_here_set(&w->local);
    fli_worker_clock(w);
    uint32_t due = count_due(sim);
    uint64_t jobs = sched->workpool.queue_count;
    if (due > 0 && below(sim, 4) == 0) {
        outside_happens(sim, due);
        return true;
    }
    if (jobs > 0 && below(sim, 4) == 0) {
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

static bool on_point(fli_runtime *rt, fli_local *here, const char *call)
{
    simulation *sim = of(rt);
    if (here == NULL) return !fli_simulate_refuses((filch_sched *)rt, call);
    if (here->current == NULL || sim->stage != RUNNING || sim->depth == DEPTH_MAX) return true;
    if (sim->report.verdict != FILCH_SIM_OK || !chance(sim, sim->interrupt)) return true;
    uint32_t turns = 1 + below(sim, 6);
    sim->depth++;
    sim->report.interrupted++;
    while (turns-- > 0 && goes_on(sim) && turn(sim)) {}
    sim->depth--;
    fli_here_set(here);
    return true;
}

/* Takes turns until `until_ns`, or until nothing can ever happen: then true. */
static bool play(simulation *sim, uint64_t until_ns)
{
    while (goes_on(sim) && sim->face.now_ns < until_ns) {
        if (turn(sim)) continue;
        uint64_t timer_ns = fli_timers_next_ns(&sim->sched->timers), next_ns = next_due_ns(sim);
        if (timer_ns < next_ns) next_ns = timer_ns;
        if (next_ns == FLI_NEVER) return true;
        if (next_ns > until_ns) next_ns = until_ns;
        if (next_ns > sim->face.now_ns) sim->face.now_ns = next_ns;
    }
    return false;
}

/* ---- a run ---- */

/* Somebody who waits for an answer that cannot come. */
static void look_for_blocked(simulation *sim)
{
    fli_runtime *rt = &sim->sched->rt;
    uint32_t     fresh = fli_load_rlx(&rt->procs.fresh);
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&rt->procs, slot);
        if (fli_word_state(fli_state_peek(&p->state)) != FLI_BLOCKED) continue;
        char     who[32], text[sizeof sim->report.text];
        uint32_t command = 0;
        uint64_t tag = 0;
        fli_chart_who(&sim->chart, number_of(sim, fli_proc_serial(p)), who, sizeof who);
        (void)fli_yield_first(rt, p, &command, &tag);
        snprintf(text, sizeof text, "%s waits for ever: command %u, tag %llu", who, command, (unsigned long long)tag);
        give_verdict(sim, FILCH_SIM_BLOCKED, text);
        return;
    }
}

/* The scenario or the check. */
static void call_user(simulation *sim, filch_sim_fn fn, void *user, const char *what)
{
    fli_here_set(&sim->sched->guest->local);
    filch_err err = fn(sim->sched, user);
    if (err == FILCH_OK) return;
    char text[sizeof sim->report.text];
    snprintf(text, sizeof text, "the %s returned %d: %s", what, err, filch_err_text(err));
    give_verdict(sim, FILCH_SIM_FAILED, text);
}

/* Whatever is still pending happens now. */
static void settle_pending(simulation *sim)
{
    fli_here_set(&sim->sched->guest->local);
    while (sim->pending_count > 0) {
        sim->pending[0].due_ns = 0;
        happen(sim, 0);
    }
}

static void stop(simulation *sim)
{
    filch_sched *sched = sim->sched;
    bool         politely = sim->report.verdict == FILCH_SIM_OK;
    sim->stage = politely ? STOPPING : OVER;
    fli_here_set(&sched->guest->local);
    fli_stop_begin(sched);
    if (politely) (void)play(sim, fli_clock_after(sim->face.now_ns, sim->opt.stop_ns));
    sim->stage = OVER;
    settle_pending(sim);
    while (fli_stats_alive(sched) > 0) {
        fli_stop_force(sched);
        while (turn(sim)) {}
    }
    uint64_t forced = fli_stop_over(sched);
    if (politely) sim->report.forced = forced;
}

static void run(simulation *sim, filch_sim_fn scenario, void *user)
{
    call_user(sim, scenario, user, "scenario");
    sim->stage = RUNNING;
    bool quiet = play(sim, sim->opt.time_max_ns);
    if (quiet && sim->opt.blocked_ok == 0) look_for_blocked(sim);
    sim->stage = CHECKING;
    if (sim->opt.check != NULL && goes_on(sim)) call_user(sim, sim->opt.check, user, "check");
    (void)goes_on(sim);
    sim->report.time_ns = sim->face.now_ns;
    stop(sim);
}

/* How this seed goes about it. */
static void draw_style(simulation *sim, filch_options *sched)
{
    static const uint32_t shares[] = { 0, 0, 10, 45 }, rates[] = { 0, 20, 100, 400 }, paces[] = { 400, 4000, 40000 },
                          batches[] = { 1, 2, 8, 64 }, fair[] = { 2, 8, 8, 32 }, globals[] = { 1, 4, 16, 16 };
    sim->oldest = one_of(sim, shares, 4);
    sim->far = one_of(sim, shares, 4);
    sim->interrupt = one_of(sim, rates, 4);
    sim->pace_ns = one_of(sim, paces, 3);
    if (sched->batch_max == 0) sched->batch_max = one_of(sim, batches, 4);
    if (sched->fair_every == 0) sched->fair_every = one_of(sim, fair, 4);
    if (sched->global_batch == 0) sched->global_batch = one_of(sim, globals, 4);
    if (sim->opt.whole_steps != 0) sim->interrupt = 0;
}

static filch_err make_sched(simulation *sim)
{
    filch_options opt = *sim->opt.sched;
    draw_style(sim, &opt);
    opt.workers = (int32_t)sim->opt.workers;
    opt.node = NODE;
    opt.seed = fli_prng_mix(sim->opt.seed) | 1;
    if (sim->faulty != NULL) {
        opt.alloc = faulty_alloc;
        opt.alloc_user = sim->faulty;
    }
    return fli_sched_make(&sim->sched, &opt, &sim->face);
}

/* One run; `last`: draw the chart even if all is well. */
static filch_err run_one(const filch_sim_options *opt, const fli_mem *mem, filch_sim_fn scenario, void *user, bool last,
                         filch_sim_report *report)
{
    simulation *sim = fli_zalloc(mem, sizeof *sim);
    if (sim == NULL) return FILCH_ENOMEM;
    sim->mem = *mem;
    sim->opt = *opt;
    sim->face = (fli_simulator){ .point = on_point, .sent = on_sent, .answered = on_answered };
    fli_prng_init(&sim->prng, opt->seed);
    filch_err err = fli_chart_init(&sim->chart, mem, opt->chart_events);
    if (err != FILCH_OK) goto no_chart;
    if (opt->no_memory > 0) {
        err = FILCH_ENOMEM;
        sim->faulty = fli_alloc(mem, sizeof *sim->faulty);
        if (sim->faulty == NULL) goto no_faulty;
        *sim->faulty = (faulty_mem){ .mem = *mem, .sim = sim };
        fli_atomic_init(&sim->faulty->blocks, 1);
    }
    void *before = fli_here_get(); /* the caller may be a worker of another scheduler */
    err = make_sched(sim);
    if (err != FILCH_OK) goto no_sched;
    run(sim, scenario, user);
    fli_here_set(before);

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
    if (sim->faulty != NULL) let_go(sim->faulty);
    fli_free(mem, sim->pending, sim->pending_room * sizeof *sim->pending);
    fli_free(mem, sim->occupants, sim->occupant_room * sizeof *sim->occupants);
no_faulty:
    fli_chart_fini(&sim->chart);
no_chart:
    fli_free(mem, sim, sizeof *sim);
    return err;
}

/* ---- the public face ---- */

static void fill(uint64_t *field, uint64_t value)
{
    if (*field == 0) *field = value;
}

/* The caller's struct, with `sched` pointing to a complete one. */
static filch_err read_options(const filch_sim_options *given, filch_sim_options *opt, filch_options *sched)
{
    *opt = (filch_sim_options)FILCH_SIM_OPTIONS_INIT;
    if (given != NULL) {
        if (given->size < sizeof given->size) return FILCH_EINVAL;
        for (size_t i = sizeof *opt; i < given->size; i++) {
            if (((const unsigned char *)given)[i] != 0) return FILCH_EINVAL;
        }
        memcpy(opt, given, given->size < sizeof *opt ? given->size : sizeof *opt);
    }
    *sched = (filch_options)FILCH_OPTIONS_INIT;
    if (opt->sched != NULL) {
        if (opt->sched->size < sizeof opt->sched->size || opt->sched->size > sizeof *sched) return FILCH_EINVAL;
        memcpy(sched, opt->sched, opt->sched->size);
        sched->size = sizeof *sched;
    }
    opt->sched = sched;
    if (opt->workers == 0) opt->workers = 4;
    if (opt->chart_events == 0) opt->chart_events = 200;
    fill(&opt->steps_max, 1000000);
    fill(&opt->time_max_ns, FILCH_SECONDS(3600));
    fill(&opt->stop_ns, FILCH_SECONDS(5));
    fill(&opt->late_ns, FILCH_MILLISECONDS(10));
    fill(&opt->jump_ns, FILCH_SECONDS(1));
    uint32_t rates[] = { opt->no_memory,     opt->late_answer, opt->double_answer,
                         opt->handler_error, opt->stall,       opt->clock_jump };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (rates[i] > 1000) return FILCH_EINVAL;
    }
    bool sound = opt->workers <= WORKERS_MAX && opt->chart_events <= 1000000 && opt->blocked_ok <= 1 &&
                 opt->whole_steps <= 1;
    return sound ? FILCH_OK : FILCH_EINVAL;
}

filch_err filch_sim_sweep(const filch_sim_options *options, uint64_t first, uint64_t count, filch_sim_fn scenario,
                          void *user, filch_sim_report *report)
{
    filch_sim_options opt;
    filch_options     sched;
    if (scenario == NULL || report == NULL || report->size < sizeof *report || count == 0) return FILCH_EINVAL;
    filch_err err = read_options(options, &opt, &sched);
    if (err != FILCH_OK) return err;
    fli_mem          mem;
    filch_sim_report last = FILCH_SIM_REPORT_INIT;
    uint64_t         runs = 0;
    fli_mem_init(&mem, sched.alloc, sched.alloc_user);
    do {
        filch_sim_report_free(&last);
        opt.seed = first + runs;
        err = run_one(&opt, &mem, scenario, user, runs + 1 == count, &last);
        if (err != FILCH_OK) return err;
        runs++;
    } while (runs < count && last.verdict == FILCH_SIM_OK);
    size_t size = report->size;
    *report = last;
    report->size = size;
    report->runs = runs;
    return FILCH_OK;
}

filch_err filch_sim_run(const filch_sim_options *options, filch_sim_fn scenario, void *user, filch_sim_report *report)
{
    uint64_t seed = options != NULL && options->size >= offsetof(filch_sim_options, workers) ? options->seed : 0;
    return filch_sim_sweep(options, seed, 1, scenario, user, report);
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

/* The simulation of `sched`, if this is the thread it runs on; NULL and why in *err. */
static simulation *inside(filch_sched *sched, const char *call, filch_err *err)
{
    *err = sched == NULL ? FILCH_EINVAL : FILCH_ESTATE;
    if (sched == NULL || sched->rt.sim == NULL) return NULL;
    fli_local *here = fli_here(&sched->rt);
    if (here != NULL) {
        *err = FILCH_OK;
        return of(&sched->rt);
    }
    (void)on_point(&sched->rt, NULL, call);
    return NULL;
}

filch_err filch_sim_fail(filch_sched *sched, const char *text)
{
    filch_err   err;
    simulation *sim = inside(sched, "filch_sim_fail", &err);
    if (text == NULL) return FILCH_EINVAL;
    if (sim != NULL) give_verdict(sim, FILCH_SIM_FAILED, text);
    return err;
}

filch_err filch_sim_note(filch_sched *sched, const char *text)
{
    filch_err   err;
    simulation *sim = inside(sched, "filch_sim_note", &err);
    if (text == NULL) return FILCH_EINVAL;
    if (sim == NULL) return err;
    uint32_t from = number_of(sim, fli_here(&sched->rt)->serial);
    note(sim, (fli_chart_event){ .kind = FLI_CHART_NOTE, .from = from, .text = text });
    return FILCH_OK;
}

filch_err filch_sim_later(filch_sched *sched, uint64_t delay_ns, filch_sim_later_fn fn, void *arg)
{
    filch_err   err;
    simulation *sim = inside(sched, "filch_sim_later", &err);
    if (fn == NULL) return FILCH_EINVAL;
    if (sim == NULL) return err;
    if (sim->stage >= STOPPING) return FILCH_ECLOSED;
    pending item = { .kind = LATER, .due_ns = fli_clock_after(sim->face.now_ns, delay_ns), .fn = fn, .arg = arg };
    return add_pending(sim, item) ? FILCH_OK : FILCH_ENOMEM;
}

uint32_t filch_sim_draw(filch_sched *sched, uint32_t bound)
{
    filch_err   err;
    simulation *sim = inside(sched, "filch_sim_draw", &err);
    return sim != NULL && bound > 0 ? below(sim, bound) : 0;
}

uint64_t filch_sim_now(filch_sched *sched)
{
    return sched != NULL ? fli_now(&sched->rt) : 0;
}
