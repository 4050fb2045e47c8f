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
    fli_wheel    wheel;                          /* not atomic: protected by `lock` */
    fli_magazine spare_sleeps, spare_msg_timers; /* spare entries of the two slabs. Not atomic: protected by `lock` */
    /* Time at which the next timer of the wheel may be due.  writes: under lock.  reads: any thread, as a hint,
     * relaxed. A worker that arms a timer reads next_ns again before it parks, so a stale hint costs at most one
     * useless poll. */
    FLI_ATOMIC(uint64_t) next_ns;
    FLI_ATOMIC(uint64_t) count; /* number of armed timers; written and read like `next_ns` */
} fli_timer_shard;

typedef struct fli_timers {
    fli_runtime     *rt;
    fli_timer_shard *shards;
    uint32_t         shard_count;
    /* Number of calls of fli_timers_poll_some with a limit; selects the wheel at which a call starts.  writes and
     * reads: workers, relaxed because it is only a counter. */
    FLI_ATOMIC(uint32_t) looks;
    fli_slab sleeps, msg_timers; /* the entries of timers.c: one slab for sleeps, one for all other timers */
} fli_timers;

filch_err fli_timers_init(fli_timers *timers, fli_runtime *rt, uint32_t shard_count, uint64_t now_ns);
/* Frees the memory of all timers. Thread: any, after all processes and workers have ended. */
void fli_timers_fini(fli_timers *timers);

/* Handles every clock command. Thread: the worker that dispatches the command. */
filch_err fli_timers_handle(fli_timers *timers, const filch_command *command, filch_receiver receiver);

/* Fires all timers that are due at `now_ns`. Returns how many timers it fired. Thread: a worker. */
uint32_t fli_timers_poll(fli_timers *timers, uint64_t now_ns);
/* Fires at most `most` timers that are due at `now_ns`; the others stay due. Each call starts at another wheel, so
 * that no wheel is starved. */
uint32_t fli_timers_poll_some(fli_timers *timers, uint64_t now_ns, uint32_t most);
/* Returns the time at which the next timer may be due, or FLI_NEVER if no timer is armed. */
uint64_t fli_timers_next_ns(const fli_timers *timers);
uint64_t fli_timers_count(const fli_timers *timers);

/* After `delay_ns`, sets the flag FLI_KILL or FLI_CANCEL of the process with `serial`. Returns the id of the timer, or
 * 0 if there is no memory. When the process ends, the timer must be stopped with fli_timers_abandon(). Thread: any; a
 * thread that is no worker must then wake a worker that checks the timers. */
FILCH_MUST_USE uint64_t fli_timers_raise(fli_timers *timers, uint64_t serial, uint64_t delay_ns, uint64_t flag);

/* Sets an alarm that calls hooks.alarm(cookie) at `due_ns`. Returns an id for fli_timers_abandon(), or 0 if there is no
 * memory. The alarm may still be called after fli_timers_abandon() if it was firing at that time. Thread: any. */
FILCH_MUST_USE uint64_t fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);

/* Completes the yield of `receiver` with FILCH_EDEADLINE at `due_ns`, unless it has been completed before. Returns
 * an id for fli_timers_abandon(), or 0 if there is no memory. The end of the process stops the timer too. Thread:
 * the worker that dispatches the yield, before any other thread has the receiver. */
FILCH_MUST_USE uint64_t fli_timers_deadline(fli_timers *timers, filch_receiver receiver, uint64_t due_ns);

/* Stops the timer `id`. Has no effect if the timer has fired or if `id` was never the id of a timer. */
void fli_timers_abandon(fli_timers *timers, uint64_t id);
/* Returns the number of ticks that the message of ticker `id` stands for, and sets the number to 0. Returns 1 if the
 * ticker no longer exists. */
uint64_t fli_timers_ticks(fli_timers *timers, uint64_t id);

#endif
