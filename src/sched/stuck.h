/* stuck.h - judges steps that do not return while the scheduler stops. See stuck.c. */
#ifndef FLI_SCHED_STUCK_H
#define FLI_SCHED_STUCK_H

#include <stdint.h>

#include <filch.h>

#include "port/thread.h"

/* A step that the stopping thread has found running, see stuck.c. Not atomic: used by the stopping thread alone. */
typedef struct fli_stuck {
    uint64_t serial, steps; /* identify the step: its process, and the count of steps of its worker; serial 0: none */
    uint64_t cpu_ns;        /* CPU time of the worker's thread when the step was first seen */
    /* `since_ns`: when the step was first seen. `asleep_ns`: when its thread was last seen awake, or `since_ns` if it
     * was never seen awake; since then the thread may have slept without a break. */
    uint64_t since_ns, asleep_ns;
} fli_stuck;

typedef enum fli_verdict { FLI_VERDICT_WAIT, FLI_VERDICT_STUCK, FLI_VERDICT_STARVED } fli_verdict;
/* Judges a step that has not returned. `mood` and `cpu_ns` are the state and the CPU time of its thread now. */
fli_verdict fli_stuck_judge(fli_stuck *seen, uint64_t now_ns, fli_thread_mood mood, uint64_t cpu_ns);
/* Judges the running step of each worker. Returns FLI_VERDICT_WAIT if the stop should wait for one of these steps,
 * otherwise FLI_VERDICT_STUCK. *starved is the number of steps on threads that the system does not run. `began_ns`:
 * when force() in stop.c began, or when a process last ended, if that was later. Thread: the stopping one, after the
 * deadline. */
fli_verdict fli_stuck_look(filch_sched *sched, uint64_t began_ns, uint64_t *starved);

#endif
