/* report.h - what the report of a stop contains. See report.c. */
#ifndef FLI_SCHED_REPORT_H
#define FLI_SCHED_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

#include "proc/proc.h"

/* Called when a process is ended by force: notes it for the report. Thread: the worker that owns the process. */
void fli_stop_note(filch_sched *sched, fli_proc *p);
/* Counts a process that is ended by filch_terminate, if a stop has begun. */
void fli_stop_killed(filch_sched *sched);
/* If a stop has begun: notes `unread` messages that the process `serial` has not read. Thread: any. */
void fli_stop_unread(filch_sched *sched, uint64_t serial, uint64_t unread);
/* If a stop has begun: notes a write of the process `serial` that ended with `bytes` not written. Thread: any. */
void fli_stop_cut(filch_sched *sched, uint64_t serial, uint64_t bytes);
/* Adds to the report each process with a step that has not returned. Returns the number of these processes. */
uint64_t fli_report_stuck(filch_sched *sched);
/* Moves the noted entries into the caller's report, or frees them if `out` is NULL. */
void fli_report_give(filch_sched *sched, const filch_report *found, filch_report *out);
/* Returns false if report->size is smaller than the first version of filch_report. NULL is allowed. */
bool     fli_report_is_sound(const filch_report *report);
uint64_t fli_report_ended(filch_sched *sched);

#endif
