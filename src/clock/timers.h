/* timers.h - the clock commands: sleep, timer, ticker, cancel timer. One timer wheel per worker, each with its lock;
 * any worker may fire what is due in any wheel. Design: docs/design/timers.md. */
#ifndef FLI_CLOCK_TIMERS_H
#define FLI_CLOCK_TIMERS_H

#include <stdalign.h>

#include <filch.h>

#include "clock/wheel.h"
#include "proc/runtime.h"

typedef struct fli_timer_shard {
    alignas(FLI_LINE) fli_mutex lock;
    fli_wheel    wheel;                          /* plain: under lock */
    fli_magazine spare_sleeps, spare_msg_timers; /* plain: under lock. Spare entries of the two slabs */
    /* When the next timer of the wheel may be due.  writes: under lock.  reads: any, as a hint: relaxed. A worker
     * that arms a timer reads it again before it parks, so a stale hint costs one poll at most. */
    FLI_ATOMIC(uint64_t) next_ns;
    FLI_ATOMIC(uint64_t) count; /* armed timers; written and read as next_ns */
} fli_timer_shard;

typedef struct fli_timers {
    fli_runtime     *rt;
    fli_timer_shard *shards;
    uint32_t         shard_count;
    /* Calls of fli_timers_poll_some with a limit: each starts at the next wheel.  writes and reads: workers;
     * relaxed: a counter. */
    FLI_ATOMIC(uint32_t) looks;
    fli_slab sleeps, msg_timers; /* the entries of timers.c: those of sleeps, and all others */
} fli_timers;

filch_err fli_timers_init(fli_timers *timers, fli_runtime *rt, uint32_t shard_count, uint64_t now_ns);
/* Thread: no process and no worker is left. */
void fli_timers_fini(fli_timers *timers);

/* The handler of all clock commands. Thread: the worker that dispatches. */
filch_err fli_timers_handle(fli_timers *timers, const filch_command *command, filch_receiver receiver);

/* Fires all timers that are due at `now_ns`. Returns how many. Thread: a worker. */
uint32_t fli_timers_poll(fli_timers *timers, uint64_t now_ns);
/* Fires at most `most` timers that are due at `now_ns`; the others stay due. Each call starts at another wheel, so
 * that no wheel is starved. */
uint32_t fli_timers_poll_some(fli_timers *timers, uint64_t now_ns, uint32_t most);
/* Returns when the next timer may be due, or FLI_NEVER if there is none. */
uint64_t fli_timers_next_ns(const fli_timers *timers);
uint64_t fli_timers_count(const fli_timers *timers);

/* Sets the flag FLI_KILL or FLI_CANCEL of the process with `serial` in `delay_ns`. Returns the id of the timer, or 0
 * if there is no memory. Stop it with fli_timers_abandon() when the process ends. Thread: any; a thread other than a
 * worker must then wake a worker that checks the timers. */
FILCH_MUST_USE uint64_t fli_timers_raise(fli_timers *timers, uint64_t serial, uint64_t delay_ns, uint64_t flag);

/* Sets an alarm: calls hooks.alarm(cookie) at `due_ns`. Returns an id for fli_timers_abandon(), which may come too
 * late to stop it, or 0 if there is no memory. Thread: any. */
FILCH_MUST_USE uint64_t fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);

/* Completes the yield of `receiver` with FILCH_EDEADLINE at `due_ns`, unless it has been completed before. Returns
 * an id for fli_timers_abandon(), or 0 if there is no memory. The end of the process stops the timer too. Thread:
 * the worker that dispatches the yield, before any other thread has the receiver. */
FILCH_MUST_USE uint64_t fli_timers_deadline(fli_timers *timers, filch_receiver receiver, uint64_t due_ns);

/* Stops the timer `id`. An id of a timer that is over, or that never was one, has no effect. */
void fli_timers_abandon(fli_timers *timers, uint64_t id);
/* Returns the number of ticks that the message of a ticker stands for, and resets it; 1 if the ticker is gone. */
uint64_t fli_timers_ticks(fli_timers *timers, uint64_t id);

#endif
