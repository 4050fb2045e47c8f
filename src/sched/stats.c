/* stats.c - sums the counters of the workers, and reports the state of one process. */
#include <string.h>

#include "clock/timers.h"
#include "proc/limit.h"
#include "proc/runtime.h"
#include "sched/cap.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/stats.h"
#include "sched/trim.h"
#include "sched/worker.h"

static uint64_t sum_ended(filch_sched *sched)
{
    uint64_t ended = 0;
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        ended += fli_load_acq(&sched->workers[i]->local.counters.ended); /* PAIR finish.ended, acquire half */
    }
    return ended;
}

static uint64_t sum_spawned(filch_sched *sched)
{
    uint64_t spawned = fli_load_acq(&sched->rt.foreign.spawned); /* PAIR stats.spawned, acquire half: see look() */
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        spawned += fli_load_acq(&sched->workers[i]->local.counters.spawned); /* PAIR stats.spawned, acquire half */
    }
    return spawned;
}

/* Returns the number of processes that are counted as ended but still run their on_exit, which may spawn processes. */
static uint64_t sum_leaving(filch_sched *sched)
{
    uint64_t leaving = 0;
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        leaving += fli_load_acq(&sched->workers[i]->local.counters.leaving); /* PAIR finish.ended, acquire half */
    }
    return leaving;
}

/* `ended` is read first: a process is counted in `spawned` before it can end, so spawned - ended is never negative, and
 * is 0 only if no process is left. `leaving` is read before `spawned`: when an on_exit has returned, the processes that
 * it spawned are counted in `spawned`. A process that is spawned and ends between the readings is counted as alive. */
uint64_t fli_stats_alive(filch_sched *sched)
{
    uint64_t ended = sum_ended(sched), leaving = sum_leaving(sched);
    return sum_spawned(sched) - ended + leaving;
}

/* Bounds of the number of living processes. look() reads `ended`, then `spawned`, then `ended` again. `least` is a
 * lower bound for a moment between the second and the third reading, `most` an upper bound for a moment between the
 * first and the second. If no process ended during the call of look(), both bounds are equal, and exact for one
 * moment. */
typedef struct between {
    uint64_t least, most;
} between;

static between look(filch_sched *sched)
{
    uint64_t first = sum_ended(sched), spawned = sum_spawned(sched), second = sum_ended(sched);
    return (between){ .least = spawned > second ? spawned - second : 0, .most = spawned - first };
}

#define LOOKS_MAX 64 /* upper limit of calls of look(): if processes end during each call, more calls do not help */

bool fli_stats_is_full(filch_sched *sched)
{
    uint64_t max = sched->opt.max_processes;
    for (int i = 0; i < LOOKS_MAX; i++) {
        between alive = look(sched);
        if (alive.most < max) return false;
        if (alive.least >= max) return true;
    }
    return false;
}

/* Returns the number of living processes. Calls look() several times and takes the result with the closest bounds. */
static uint64_t count_alive(filch_sched *sched)
{
    between best = look(sched);
    for (int i = 1; i < LOOKS_MAX && best.least != best.most; i++) {
        between alive = look(sched);
        if (alive.most - alive.least < best.most - best.least) best = alive;
    }
    return best.least;
}

static void add_up(filch_stats *stats, fli_counters *counters)
{
#define X(name) stats->name += fli_load_rlx(&counters->name);
    FLI_COUNTER_MAP(X)
#undef X
    uint64_t inline_steps = fli_load_rlx(&counters->inline_steps);
    stats->steps += inline_steps;
    stats->yields += inline_steps;
    stats->completions += inline_steps;
}

filch_err filch_sched_stats(filch_sched *sched, filch_stats *out)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (out == NULL) return filch_invalid("stats is NULL");
    if (out->size < sizeof out->size) return filch_invalid("stats.size is not set: begin with FILCH_STATS_INIT");
    filch_stats stats = { .size = out->size < sizeof stats ? out->size : sizeof stats };
    stats.alive = count_alive(sched);
    add_up(&stats, &sched->rt.foreign);
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        fli_worker *w = sched->workers[i];
        add_up(&stats, &w->local.counters);
        for (int b = 0; b < FILCH_WAIT_BUCKETS; b++) stats.queue_wait[b] += fli_load_rlx(&w->queue_wait[b]);
    }
    stats.workers = sched->worker_count;
    stats.asleep = fli_idle_parked(&sched->idle);
    stats.timers = fli_timers_count(&sched->timers);
    stats.memory = fli_cap_used(&sched->rt.mem);
    stats.memory_returned = fli_trim_returned_bytes(sched);
    memcpy(out, &stats, stats.size);
    return FILCH_OK;
}

/* Returns true if a worker is stepping the process of this serial. */
static bool is_running(filch_sched *sched, uint64_t serial)
{
    for (uint32_t i = 0; i < sched->worker_total; i++) {
        if (fli_load_rlx(&sched->workers[i]->status.serial) == serial) return true;
    }
    return false;
}

static int32_t state_seen(uint64_t word, bool running)
{
    switch (fli_word_state(word)) {
    case FLI_IDLE: return FILCH_STATE_IDLE;
    case FLI_BLOCKED: return FILCH_STATE_BLOCKED;
    case FLI_ACTIVE: return running ? FILCH_STATE_RUNNING : FILCH_STATE_READY;
    default: return FILCH_STATE_COMPLETE;
    }
}

filch_err filch_inspect(filch_sched *sched, filch_pid pid, filch_info *out)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (out == NULL) return filch_invalid("info is NULL");
    if (out->size < sizeof out->size) return filch_invalid("info.size is not set: set it to sizeof(filch_info)");
    fli_proc *p;
    filch_err err = fli_pid_find(&sched->rt, pid, &p);
    if (err != FILCH_OK) return err;
    uint64_t   drops = fli_load_rlx(&p->drops_pending);
    uint64_t   dropped = fli_limit_may_drop(p) ? fli_load_rlx(&p->drops_reported) : 0;
    filch_info info = {
        .size = out->size < sizeof info ? out->size : sizeof info,
        .name = fli_type_name(fli_proc_type(p)),
        .messages = fli_load_count(fli_load_rlx(&p->load)),
        .dropped = dropped + (uint32_t)drops,
        .overflow = fli_load_rlx(&p->overflow),
    };
    uint64_t word = fli_state_look(&p->state);
    /* Reads the state word again: if the slot has passed to another process, the fields above may belong to that
     * process. All loads are relaxed, so on a machine with weak ordering the report may still mix two processes. No
     * decision depends on the report. */
    if (!fli_word_lives(word, fli_serial_gen(pid.serial))) return FILCH_EDEAD;
    info.state = state_seen(word, is_running(sched, pid.serial));
    if ((word & FLI_HAS_RELATIONS) != 0 && out->size > offsetof(filch_info, relation_bytes))
        sched->rt.model_ops->relation_bytes(&sched->rt, pid.serial, &info);
    memcpy(out, &info, info.size);
    return FILCH_OK;
}
