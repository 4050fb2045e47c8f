/* faults.c - events from outside in a simulated run: late and double completions, handlers that fail, failed
 * allocations, and functions that the program has deferred (filch_sim_later). See simulation.h. */
#include <string.h>

#include "base/assert.h"
#include "dispatch/registry.h"
#include "payload/data.h"
#include "port/thread.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "proc/yields.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "simulate/simulation.h"

bool fli_simulation_add(fli_simulation *sim, fli_pending item)
{
    if (sim->pending_count == sim->pending_room) {
        uint32_t     room = sim->pending_room == 0 ? 16 : sim->pending_room * 2;
        fli_pending *all = fli_resize(&sim->mem, sim->pending, sim->pending_room * sizeof *all, room * sizeof *all);
        if (all == NULL) return false;
        sim->pending = all;
        sim->pending_room = room;
    }
    sim->pending[sim->pending_count++] = item;
    return true;
}

uint32_t fli_simulation_due(const fli_simulation *sim)
{
    uint32_t due = 0;
    for (uint32_t i = 0; i < sim->pending_count; i++) due += sim->pending[i].due_ns <= sim->simulator.now_ns;
    return due;
}

uint64_t fli_simulation_next_ns(const fli_simulation *sim)
{
    uint64_t next = FLI_NEVER;
    for (uint32_t i = 0; i < sim->pending_count; i++) {
        if (sim->pending[i].due_ns < next) next = sim->pending[i].due_ns;
    }
    return next;
}

/* Delivers a delayed completion. If its process has ended, frees the completion. */
static void post(fli_simulation *sim, fli_event_node *node)
{
    fli_runtime *rt = &sim->sched->rt;
    fli_local   *worker = fli_current_worker(rt);
    fli_proc    *p = fli_proc_find(rt, node->owner);
    if (fli_mail_post(rt, worker, p, fli_serial_gen(node->owner), node) == FILCH_OK) return;
    filch_data data = filch_none();
    fli_node_get_data(node, &data);
    fli_data_free(&data);
    fli_yield_drop(rt, worker, node);
    FLI_TALLY(rt, worker, late_completions, 1);
}

void fli_simulation_happen(fli_simulation *sim, uint32_t nth)
{
    uint32_t i = 0;
    for (;; i++) {
        if (sim->pending[i].due_ns <= sim->simulator.now_ns && nth-- == 0) break;
    }
    fli_pending item = sim->pending[i];
    memmove(&sim->pending[i], &sim->pending[i + 1], (--sim->pending_count - i) * sizeof item);
    if (item.kind == FLI_PENDING_LATER) item.fn(sim->sched, item.arg);
    else if (item.kind == FLI_PENDING_COMPLETION) post(sim, item.node);
    else FLI_ASSERT(filch_complete(item.receiver, item.receiver.tag, filch_none(), FILCH_OK) != FILCH_OK);
}

void fli_simulation_settle(fli_simulation *sim)
{
    fli_current_set(&sim->sched->caller_worker->local);
    while (sim->pending_count > 0) {
        sim->pending[0].due_ns = 0;
        fli_simulation_happen(sim, 0);
    }
}

static bool is_of_the_clock(uint32_t command)
{
    return command == FILCH_CMD_TIMER || command == FILCH_CMD_TICKER || command == FILCH_CMD_TIMER_CANCEL;
}

/* Injects faults into a completion. A delayed completion has already claimed the event node; only its delivery is
 * late. A second completion of the same yield is therefore refused, even if it is made before the delivery. Returns
 * true if the completion is delayed. */
bool fli_simulation_completed(fli_runtime *rt, fli_event_node *node, uint32_t command)
{
    fli_simulation *sim = fli_simulation_of(rt);
    filch_data      data = filch_none();
    uint64_t        now_ns = sim->simulator.now_ns;
    fli_node_get_data(node, &data);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_COMPLETION,
                                                .to = fli_simulation_number(sim, node->owner),
                                                .tag = node->tag,
                                                .error = node->error,
                                                .data = &data,
                                                .command = command });
    if (sim->stage != FLI_STAGE_RUN) return false;
    if (fli_draw_chance(sim, sim->opt.double_answer)) {
        filch_receiver receiver = fli_yield_receiver(rt, node);
        uint64_t       due_ns = fli_clock_after(now_ns, fli_draw_span(sim, sim->opt.late_ns));
        if (fli_simulation_add(sim,
                               (fli_pending){ .kind = FLI_PENDING_AGAIN, .due_ns = due_ns, .receiver = receiver })) {
            sim->report.double_answers++;
            fli_simulation_fault(sim, "this completion will come twice");
        }
    }
    if (is_of_the_clock(command) || !fli_draw_chance(sim, sim->opt.late_answer)) return false;
    uint64_t due_ns = fli_clock_after(now_ns, fli_draw_span(sim, sim->opt.late_ns));
    if (!fli_simulation_add(sim, (fli_pending){ .kind = FLI_PENDING_COMPLETION, .due_ns = due_ns, .node = node }))
        return false;
    sim->report.late_answers++;
    fli_simulation_fault(sim, "this completion will be late");
    return true;
}

uint64_t fli_draw_magnitude(fli_simulation *sim, uint64_t max_ns, uint32_t magnitudes)
{
    uint64_t longest = max_ns >> fli_draw_below(sim, magnitudes);
    return longest > 0 ? fli_draw_span(sim, longest) : 0;
}

/* ---- timers that are late ---- */

/* Decides whether the due timer `id` fires now. A timer that is already held back is held back again with probability
 * 1/2, so that more than one other timer may fire before it. */
static bool may_fire(fli_simulation *sim, uint64_t id, uint64_t next_ns)
{
    if (sim->stage != FLI_STAGE_RUN || next_ns == FLI_NEVER) return true;
    if (id == sim->held_timer) return fli_draw_below(sim, 2) == 0;
    /* While a timer is held back, every other timer fires. If the timer that is held back was cancelled, another timer
     * may be held back after held_until_ns. */
    if (sim->held_timer != 0 && sim->simulator.now_ns <= sim->held_until_ns) return true;
    return !fli_draw_chance(sim, sim->opt.late_timer);
}

/* A timer that is held back fires after the next other timer, even if the other timer is due much later. It fires a
 * random time after the other timer, so that the processes that the other timer wakes can make some steps, or many. */
uint64_t fli_simulation_timer_due(fli_runtime *rt, uint64_t id, uint64_t next_ns)
{
    fli_simulation *sim = fli_simulation_of(rt);
    uint64_t        now_ns = sim->simulator.now_ns;
    if (may_fire(sim, id, next_ns)) {
        if (id == sim->held_timer) sim->held_timer = 0;
        return FLI_NEVER;
    }
    sim->held_timer = id;
    sim->held_until_ns =
        fli_clock_after(next_ns > now_ns ? next_ns : now_ns, fli_draw_magnitude(sim, sim->opt.jump_ns, 12));
    sim->report.late_timers++;
    fli_simulation_fault(sim, "a timer will be late");
    return sim->held_until_ns;
}

/* ---- allocations that fail ---- */

void fli_faulty_let_go(fli_faulty_mem *faulty)
{
    /* PAIR simulate.blocks, both halves: every use of the struct by other threads comes before the struct is freed. */
    if (fli_sub_acqrel(&faulty->blocks, 1) != 1) return;
    fli_mem mem = faulty->mem;
    fli_free(&mem, faulty, sizeof *faulty);
}

void *fli_faulty_alloc(void *user, void *old, size_t old_size, size_t size)
{
    fli_faulty_mem *faulty = user;
    if (size == 0) {
        (void)faulty->mem.alloc(faulty->mem.user, old, old_size, 0);
        fli_faulty_let_go(faulty);
        return NULL;
    }
    fli_simulation *sim = faulty->sim;
    if (sim != NULL && sim->stage == FLI_STAGE_RUN && fli_draw_chance(sim, sim->opt.no_memory)) {
        sim->report.no_memory++;
        fli_simulation_fault(sim, "no memory");
        return NULL;
    }
    void *at = faulty->mem.alloc(faulty->mem.user, old, old_size, size);
    if (at != NULL && old == NULL) fli_add_rlx(&faulty->blocks, 1);
    return at;
}

filch_err fli_simulation_handle(fli_local *worker, const fli_handler *handler, const filch_command *command,
                                filch_receiver receiver)
{
    fli_simulation *sim = fli_simulation_of(worker->rt);
    fli_simulation_note(sim, (fli_chart_event){ .kind = FLI_CHART_YIELD,
                                                .from = fli_simulation_number(sim, command->from.serial),
                                                .tag = receiver.tag,
                                                .command = command->id });
    if (handler == NULL) return FILCH_ECOMMAND;
    bool may_fail = command->id == FILCH_CMD_WORK || command->id >= FILCH_CMD_USER;
    if (may_fail && sim->stage == FLI_STAGE_RUN && fli_draw_chance(sim, sim->opt.handler_error)) {
        sim->report.handler_errors++;
        fli_simulation_fault(sim, "its handler fails");
        return command->id == FILCH_CMD_WORK ? FILCH_EFULL : FILCH_ESYS;
    }
    return handler->handle(handler->user, command, receiver.tag, receiver);
}
