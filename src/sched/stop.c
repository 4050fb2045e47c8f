/* stop.c - everything ends. In this order:
 *
 *   1. phase CLOSING: no new processes, no messages from outside, no new blocking work
 *   2. every process that lives gets a cancel: those asleep by the flag in their word, any that slip through by the
 *      worker that steps them
 *   3. wait until nobody is left, or the deadline
 *   4. force: a kill for everybody left; workers end them instead of stepping them, and note them for the report.
 *      The stopping thread helps, as the guest worker: it may be the only one that is not stuck in a step
 *   5. those that are still there after a grace are inside a step (or, spawned from outside, an init) that does not
 *      return: they are named, nothing is freed, FILCH_EBUSY
 *   6. otherwise the work pool and the workers leave; phase CLOSED
 *   7. stop frees everything; close leaves that to a later stop
 */
#include <string.h>

#include "port/clock.h"
#include "port/wakefd.h"
#include "proc/log.h"
#include "proc/yields.h"
#include "sched/sched.h"
#include "sched/simulate.h"

/* How long forced processes may take to go. If no step is seen to run all that time, the machine is busy, not we: then
 * it may take longer. */
#define GRACE_NS FILCH_MILLISECONDS(100)
#define GRACE_LONG_NS FILCH_SECONDS(2)
#define LOOK_NS FILCH_MILLISECONDS(5)

void fli_stop_nudge(filch_sched *sched)
{
    fli_mutex_lock(&sched->stop.lock);
    fli_cond_broadcast(&sched->stop.changed);
    fli_mutex_unlock(&sched->stop.lock);
}

/* Stop sees that we have gone when it comes to this lock, or at a look outside of it; then it still has to come to it, for
 * the report, before it frees anything. */
void fli_stop_left(filch_sched *sched)
{
    fli_mutex_lock(&sched->stop.lock);
    (void)fli_sub_acqrel(&sched->stop.spawning, 1); /* PAIR spawn.door, release half: we have been counted */
    fli_cond_broadcast(&sched->stop.changed);
    fli_mutex_unlock(&sched->stop.lock);
}

/* How many threads from outside are in filch_spawn. */
static uint32_t count_spawning(filch_sched *sched)
{
    /* PAIR spawn.door, acquire half: whoever has left the door is counted among the living. */
    return fli_load_acq(&sched->stop.spawning) & ~FLI_DOOR_CLOSED;
}

/* ---- the report ---- */

static void note_locked(filch_sched *sched, const filch_straggler *straggler)
{
    fli_stop *stop = &sched->stop;
    if (stop->count == stop->room) {
        size_t           room = stop->room == 0 ? 16 : stop->room * 2;
        filch_straggler *list = fli_resize(&sched->rt.mem, stop->stragglers, stop->room * sizeof *list,
                                           room * sizeof *list);
        if (list == NULL) {
            stop->omitted++;
            return;
        }
        stop->stragglers = list;
        stop->room = room;
    }
    stop->stragglers[stop->count++] = *straggler;
}

void fli_stop_note(filch_sched *sched, fli_proc *p)
{
    fli_runtime    *rt = &sched->rt;
    filch_straggler straggler = {
        .pid = { rt->node, fli_proc_serial(p) },
        .name = fli_type_name(fli_proc_type(p)),
        .state = p->rest,
        .waiting = p->yield_count,
    };
    (void)fli_yield_first(rt, p, &straggler.command, &straggler.tag);
    fli_mutex_lock(&sched->stop.lock);
    sched->stop.forced++;
    note_locked(sched, &straggler);
    fli_mutex_unlock(&sched->stop.lock);
    fli_log(rt, FILCH_LOG_WARNING, straggler.pid, straggler.name, FILCH_ECANCELLED,
            "stop ends it by force: %u yields are outstanding, one of command %u", straggler.waiting, straggler.command);
}

/* How many steps, and inits of processes from outside, are running. */
static uint64_t count_stuck(filch_sched *sched)
{
    uint64_t stuck = count_spawning(sched);
    for (uint32_t i = 0; i < sched->worker_count; i++) stuck += fli_load_rlx(&sched->workers[i]->window.serial) != 0;
    return stuck;
}

/* Names the steps that have not returned. */
static uint64_t note_stuck(filch_sched *sched)
{
    uint64_t stuck = 0;
    fli_mutex_lock(&sched->stop.lock);
    for (uint32_t i = 0; i < sched->worker_count; i++) {
        fli_shopwindow *window = &sched->workers[i]->window;
        uint64_t        serial = fli_load_rlx(&window->serial);
        if (serial == 0) continue;
        filch_straggler straggler = { .pid = { sched->rt.node, serial },
                                      .name = fli_type_name(fli_type_of(&sched->rt, serial)),
                                      .state = FILCH_STATE_RUNNING };
        note_locked(sched, &straggler);
        stuck++;
    }
    fli_mutex_unlock(&sched->stop.lock);
    return stuck;
}

static uint64_t ended_so_far(filch_sched *sched)
{
    uint64_t ended = 0;
    for (uint32_t i = 0; i < sched->victim_count; i++) ended += fli_load_acq(&sched->workers[i]->local.counters.ended);
    return ended;
}

/* Moves the list into the caller's report, or throws it away. Each report tells what the one before it did not. */
static void hand_over(filch_sched *sched, uint64_t stuck, filch_report *out)
{
    fli_stop *stop = &sched->stop;
    fli_mutex_lock(&stop->lock);
    size_t bytes = stop->room * sizeof *stop->stragglers;
    /* One that was forced is noted before it counts as ended: until then the difference is too small. */
    uint64_t ended = ended_so_far(sched) - stop->ended_before, polite = ended > stop->forced ? ended - stop->forced : 0;
    if (polite < stop->polite_told) polite = stop->polite_told;
    if (out == NULL) {
        fli_free(&sched->rt.mem, stop->stragglers, bytes);
    } else {
        *out = (filch_report){ .size = out->size, .ended = polite - stop->polite_told,
                               .forced = stop->forced - stop->forced_told, .stuck = stuck,
                               .stragglers = stop->stragglers, .count = stop->count, .omitted = stop->omitted };
        memcpy(&out->reserved[0], &sched->rt.mem, sizeof sched->rt.mem);
        memcpy(&out->reserved[2], &bytes, sizeof bytes);
    }
    stop->stragglers = NULL;
    stop->count = stop->room = stop->omitted = 0;
    stop->polite_told = polite;
    stop->forced_told = stop->forced;
    fli_mutex_unlock(&stop->lock);
}

void filch_report_free(filch_report *report)
{
    if (report == NULL || report->size < sizeof *report) return;
    if (report->stragglers != NULL) {
        fli_mem mem;
        size_t  bytes;
        memcpy(&mem, &report->reserved[0], sizeof mem);
        memcpy(&bytes, &report->reserved[2], sizeof bytes);
        fli_free(&mem, report->stragglers, bytes);
    }
    *report = (filch_report)FILCH_REPORT_INIT;
}

/* ---- the steps ---- */

/* Raises `flag` for every process that lives. */
static void raise_all(filch_sched *sched, uint64_t flag)
{
    fli_runtime *rt = &sched->rt;
    uint32_t     fresh = fli_load_acq(&rt->procs.fresh); /* PAIR slab.fresh, acquire half */
    for (uint32_t slot = 1; slot < fresh; slot++) {
        fli_proc *p = fli_slab_at(&rt->procs, slot);
        uint32_t  gen = fli_word_gen(fli_state_peek(&p->state));
        if (fli_state_raise(&p->state, gen, flag) == FLI_KNOCK_WOKE) fli_ready(rt, fli_here(rt), p);
    }
}

/* Nobody lives, and nobody is being spawned from outside. */
static bool is_empty(filch_sched *sched)
{
    return count_spawning(sched) == 0 && fli_stats_alive(sched) == 0;
}

/* Runs what is ready on this thread, as the guest, but not beyond `until_ns`: there may be no end to it. With `any`,
 * also what other workers have queued. */
static void help(filch_sched *sched, bool any, uint64_t until_ns)
{
    fli_worker *w = sched->guest;
    void       *before = fli_here_get();
    fli_here_set(&w->local);
    fli_worker_clock(w);
    while (fli_clock_ns() < until_ns) {
        bool      retry = false;
        fli_proc *p = NULL;
        if (fli_worker_turn(w)) continue;
        if (any) p = fli_find_far(w, true, &retry);
        if (p != NULL) fli_step(w, p);
        else if (!retry) break;
    }
    fli_here_set(before);
}

/* Waits for a nudge, at most until `until_ns`. Whoever nudges takes the lock after what he has to tell happened: we
 * see it here, or are asleep when he comes. */
static void wait_for_nudge(filch_sched *sched, uint64_t until_ns)
{
    fli_mutex_lock(&sched->stop.lock);
    bool ready = sched->worker_count == 0 && fli_inject_count(&sched->global) > 0;
    if (!ready && !is_empty(sched)) (void)fli_cond_wait_until(&sched->stop.changed, &sched->stop.lock, until_ns);
    fli_mutex_unlock(&sched->stop.lock);
}

/* Until nobody is left or the deadline. Without workers, this thread does the work. */
static void wait_politely(filch_sched *sched, uint64_t until_ns)
{
    bool again = true;
    while (!is_empty(sched)) {
        uint64_t wake_ns = until_ns;
        if (fli_clock_ns() >= until_ns) return;
        if (sched->worker_count == 0) {
            /* PAIR tick.bell, both halves: whoever queues after this sees CLOSING and nudges. */
            if (fli_swap_acqrel(&sched->rung, false)) fli_wakefd_clear(sched->wake_fd);
            help(sched, false, until_ns);
            uint64_t timer_ns = fli_timers_next_ns(&sched->timers);
            if (timer_ns < wake_ns) wake_ns = timer_ns;
            /* Descriptors do not nudge: look at them now and then. */
            uint64_t look_ns = fli_io_watches(&sched->io) ? fli_clock_ns() + LOOK_NS : wake_ns;
            if (look_ns < wake_ns) wake_ns = look_ns;
        }
        wait_for_nudge(sched, wake_ns);
        /* A process that was spawned inside a step while we went round may have been missed, and its worker may not
         * have heard yet that everything ends. Now it has, so one more round finds it. Who was told is not told again. */
        if (again) raise_all(sched, FLI_CANCEL);
        again = false;
    }
}

/* Kills what is left, and helps to bury it. True: nobody is left. */
static bool force(filch_sched *sched)
{
    uint64_t began_ns = fli_clock_ns();
    fli_store_rlx(&sched->stop.force, true);
    while (!is_empty(sched)) {
        raise_all(sched, FLI_KILL);
        help(sched, true, FLI_NEVER); /* what it finds is ended, not stepped */
        uint64_t now_ns = fli_clock_ns();
        if (is_empty(sched)) break;
        if (now_ns - began_ns >= (count_stuck(sched) > 0 ? GRACE_NS : GRACE_LONG_NS)) return false;
        wait_for_nudge(sched, now_ns + LOOK_NS);
    }
    return true;
}

static void send_home(filch_sched *sched)
{
    fli_idle_leave(sched);
    for (uint32_t i = 0; i < sched->worker_count; i++) fli_thread_join(&sched->workers[i]->thread);
}

/* The first cancel. */
void fli_stop_begin(filch_sched *sched)
{
    fli_store_rel(&sched->rt.phase, FLI_CLOSING); /* PAIR runtime.phase, release half */
    /* A worker that goes to sleep after this knows, and nudges us; what one did before that, we see. */
    fli_mutex_lock(&sched->idle.lock);
    fli_mutex_unlock(&sched->idle.lock);
    fli_talk_over(sched);
    /* PAIR spawn.door, both halves: whoever comes to the door after this finds it closed; the others we wait for. */
    uint32_t spawning = fli_load_rlx(&sched->stop.spawning);
    while (!fli_cas_weak_acqrel(&sched->stop.spawning, &spawning, spawning | FLI_DOOR_CLOSED)) {}
    fli_workpool_close(&sched->workpool);
    raise_all(sched, FLI_CANCEL);
}

/* From the first cancel to the last thread. FILCH_EBUSY: *stuck of them have not returned. */
static filch_err end_all(filch_sched *sched, uint64_t deadline_ns, uint64_t *stuck)
{
    uint64_t until_ns = fli_clock_after(fli_clock_ns(), deadline_ns);
    fli_stop_begin(sched);
    wait_politely(sched, until_ns);
    if (!is_empty(sched) && !force(sched)) {
        *stuck = note_stuck(sched) + count_spawning(sched);
        return FILCH_EBUSY;
    }
    uint64_t grace_ns = fli_clock_after(fli_clock_ns(), GRACE_NS);
    if (!fli_workpool_join(&sched->workpool, until_ns > grace_ns ? until_ns : grace_ns)) {
        *stuck = fli_workpool_busy(&sched->workpool);
        return FILCH_EBUSY;
    }
    send_home(sched);
    fli_store_rel(&sched->rt.phase, FLI_CLOSED); /* PAIR runtime.phase, release half */
    return FILCH_OK;
}

void fli_stop_force(filch_sched *sched)
{
    fli_store_rlx(&sched->stop.force, true);
    raise_all(sched, FLI_KILL);
}

uint64_t fli_stop_over(filch_sched *sched)
{
    uint64_t forced = sched->stop.forced;
    FLI_ASSERT(is_empty(sched));
    hand_over(sched, 0, NULL);
    fli_store_rel(&sched->rt.phase, FLI_CLOSED); /* PAIR runtime.phase, release half */
    return forced;
}

static filch_err shut(filch_sched *sched, uint64_t deadline_ns, filch_report *report, const char *call)
{
    if (sched == NULL || (report != NULL && report->size < sizeof *report)) return FILCH_EINVAL;
    if (fli_simulate_refuses(sched, call)) return FILCH_ESTATE;
    if (fli_here(&sched->rt) != NULL) return FILCH_ESTATE;
    /* PAIR stop.turn, acquire half: one at a time, and the next one sees what the last one did. */
    if (fli_swap_acqrel(&sched->stop.busy, true)) return FILCH_EBUSY;
    filch_err err = FILCH_OK;
    uint64_t  stuck = 0;
    uint32_t  phase = fli_load_acq(&sched->rt.phase); /* PAIR runtime.phase, acquire half */
    if (phase == FLI_OPEN) sched->stop.ended_before = ended_so_far(sched);
    if (phase != FLI_CLOSED) {
        /* Without workers we are about to be the one who ticks. */
        err = sched->worker_count == 0 && fli_swap_acqrel(&sched->ticking, true) ? FILCH_EBUSY : FILCH_OK;
        if (err == FILCH_OK) {
            err = end_all(sched, deadline_ns, &stuck);
            fli_store_rel(&sched->ticking, false); /* PAIR tick.turn, release half */
        }
        if (err == FILCH_OK && sched->stop.forced > 0) err = FILCH_EDEADLINE;
    }
    hand_over(sched, stuck, report);
    fli_store_rel(&sched->stop.busy, false); /* PAIR stop.turn, release half */
    return err;
}

filch_err filch_sched_close(filch_sched *sched, uint64_t deadline_ns, filch_report *report)
{
    return shut(sched, deadline_ns, report, "filch_sched_close");
}

filch_err filch_sched_stop(filch_sched *sched, uint64_t deadline_ns, filch_report *report)
{
    filch_err err = shut(sched, deadline_ns, report, "filch_sched_stop");
    if (err == FILCH_OK || err == FILCH_EDEADLINE) fli_sched_free(sched);
    return err;
}
