/* stats.h - counts of processes. See stats.c. */
#ifndef FLI_SCHED_STATS_H
#define FLI_SCHED_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

/* Returns the number of processes that have not ended, including those whose on_exit still runs. */
uint64_t fli_stats_alive(filch_sched *sched);
/* Returns true if the number of processes was at option `max_processes` at some moment during the call. May return
 * false although the limit was reached, if processes end and are spawned all the time. */
bool fli_stats_is_full(filch_sched *sched);

#endif
