/* programs.h - shared by the programs of the second suite: the run, states that are copied at the spawn, results of
 * processes, processes that hold back their messages.
 *
 * A program is a function `bool NAME(uint64_t variant)`: it starts the scheduler, does its work between bench_begin()
 * and bench_end(), and returns true if its result is right. programs.c reads the arguments and prints the line.
 */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include "bench.h"
#include "list.h"

extern bench run;

/* ---- processes ---- */

/* Init function of most types: copies the bytes in `args` to the state of the process. */
filch_err copy_state(void *self, const filch_ctx *ctx, const char *method, const filch_data *args);
/* Spawns a process with copy_state(); `state` has type->size bytes. Ends the program on an error. */
filch_pid start(const filch_type *type, const void *state);
/* As start(), but the mailbox holds at most `room` messages, and senders wait for space (FILCH_OVERFLOW_WAIT). */
filch_pid start_limited(const filch_type *type, const void *state, uint32_t room);
/* As filch_spawn() in a step; the child's init is copy_state(), and `state` has type->size bytes. */
filch_err spawn_child(filch_out *out, const filch_type *type, const void *state, filch_pid *pid);

static inline filch_err send_to(filch_out *out, filch_pid to, filch_data data)
{
    return filch_send(filch_out_sched(out), to, data);
}

/* Occupies the CPU for `ns` nanoseconds. */
void spin(uint64_t ns);

/* ---- results ---- */

/* The next wait_for_results() waits for `count` calls of report(). */
void expect_results(uint64_t count);
/* Adds the result of one process to the sum that wait_for_results() returns. Thread: any. */
void report(int64_t result);
/* Waits until report() was called as often as expect_results() has set. Returns the sum of the results. */
int64_t wait_for_results(void);

/* ---- HOLD: processes wait for a command, so that messages stay in their mailboxes ---- */

/* Starts the scheduler with the command HOLD, of which up to `most` may be outstanding. A process that yields HOLD and
 * returns filch_wait() reads no message until release_all(). */
#define HOLD FILCH_CMD_USER
void start_with_hold(uint64_t most);
/* Waits until `count` processes have yielded HOLD. */
void wait_until_held(uint64_t count);
void release_all(void);

#define DECLARE(name, function, variant, size, test_size, operation) bool function(uint64_t kind);
PROGRAMS(DECLARE)
PROGRAMS_IN_LUA(DECLARE)
#undef DECLARE

#endif
