/* stats.h - counts of processes. See stats.c. */
#ifndef FLI_SCHED_STATS_H
#define FLI_SCHED_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "proc/runtime.h"

/* Adds `count` to the number of spawned processes; -1: a spawn has failed. Thread: the worker `worker`; NULL: a foreign
 * thread. */
static inline void fli_stats_count_spawned(fli_runtime *rt, fli_local *worker, uint64_t count)
{
    /* PAIR stats.spawned, release half: a thread that counts this process as spawned also counts as ended all processes
     * that ended before this spawn. */
    if (worker != NULL) fli_count_rel(&worker->counters.spawned, count);
    else fli_add_rel(&rt->foreign.spawned, count);
}

/* Returns the number of processes that have not ended, including processes with an on_exit that still runs. */
uint64_t fli_stats_alive(filch_sched *sched);
/* Returns true if the number of processes was at option `max_processes` at some moment during the call. May return
 * false although the limit was reached, if processes end and are spawned all the time. */
bool fli_stats_is_full(filch_sched *sched);

#endif
