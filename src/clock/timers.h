/* timers.h - the clock commands: sleep, timer, ticker, cancel timer. One wheel per worker, each with its lock; any
 * worker may fire what is due in any of them. Design: docs/design/timers.md. */
#ifndef FLI_CLOCK_TIMERS_H
#define FLI_CLOCK_TIMERS_H

#include <stdalign.h>

#include <filch.h>

#include "clock/wheel.h"
#include "proc/runtime.h"

typedef struct fli_timer_shard {
    alignas(FLI_LINE) fli_mutex lock;
    fli_wheel    wheel;                          /* plain: under lock */
    fli_magazine spare_sleeps, spare_msg_timers; /* plain: under lock. Entries of the slabs, kept close */
    /* When to look again.  writes: under lock.  reads: any, as a hint: relaxed. A worker that arms a timer looks again
     * before it sleeps, so a hint that is read too old costs one look at most. */
    FLI_ATOMIC(uint64_t) next_ns;
    FLI_ATOMIC(uint64_t) count; /* armed. As next_ns */
} fli_timer_shard;

typedef struct fli_timers {
    fli_runtime     *rt;
    fli_timer_shard *shards;
    uint32_t         shard_count;
    /* Number of fli_timers_poll_some() calls: each starts at another wheel.  writes and reads: workers; relaxed, it is
     * only a number. */
    FLI_ATOMIC(uint32_t) looks;
    fli_slab sleeps, msg_timers; /* timers.c's entries: those of sleeps, and all others */
} fli_timers;

filch_err fli_timers_init(fli_timers *timers, fli_runtime *rt, uint32_t shard_count, uint64_t now_ns);
/* Thread: no process and no worker is left. */
void fli_timers_fini(fli_timers *timers);

/* The handler of all clock commands. Thread: the worker that dispatches. */
filch_err fli_timers_handle(fli_timers *timers, const filch_command *command, filch_receiver receiver);

/* Fires what is due at `now_ns`; returns how many. Thread: a worker. */
uint32_t fli_timers_poll(fli_timers *timers, uint64_t now_ns);
/* Fires at most `most` due timers; the others stay due. Every wheel gets its turn. */
uint32_t fli_timers_poll_some(fli_timers *timers, uint64_t now_ns, uint32_t most);
/* When the next timer may be due; FLI_NEVER if there is none. */
uint64_t fli_timers_next_ns(const fli_timers *timers);
uint64_t fli_timers_count(const fli_timers *timers);

/* Sets FLI_KILL or FLI_CANCEL of the process `serial` in `delay_ns`. Returns the timer's id; 0: out of memory. Stop it
 * with fli_timers_abandon() when the process ends. Thread: any; a foreign thread must then wake a worker that checks
 * the clock. */
FILCH_MUST_USE uint64_t fli_timers_raise(fli_timers *timers, uint64_t serial, uint64_t delay_ns, uint64_t flag);

/* Sets an alarm: hooks.alarm(cookie) at `due_ns`. Gives an id for fli_timers_abandon, which may come too late; 0: no
 * memory. Thread: any. */
FILCH_MUST_USE uint64_t fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);

/* Completes the yield of `receiver` with FILCH_EDEADLINE at `due_ns`, unless it has been completed before. Gives an id
 * for fli_timers_abandon; 0: no memory. It is also abandoned when the process ends. Thread: the worker that dispatches
 * the yield, before any other thread knows the receiver. */
FILCH_MUST_USE uint64_t fli_timers_deadline(fli_timers *timers, filch_receiver receiver, uint64_t due_ns);

/* Stops a timer after the end of its process. Any id is accepted. */
void fli_timers_abandon(fli_timers *timers, uint64_t id);
/* Takes the ticks that a ticker's message stands for; 1 if the ticker is gone. */
uint64_t fli_timers_ticks(fli_timers *timers, uint64_t id);

#endif
