/* timers.h - the clock commands: sleep, timer, ticker, cancel timer. One timer wheel per worker, each with its lock.
 * The worker fires the timers of its wheel; other workers help if it is away or late. Design: docs/design/timers.md. */
#ifndef FLI_CLOCK_TIMERS_H
#define FLI_CLOCK_TIMERS_H

#include <stdalign.h>
#include <stdbool.h>

#include <filch.h>

#include "clock/wheel.h"
#include "proc/runtime.h"

/* How late the timers of another worker must be before a worker fires them, unless their owner is away. */
#define FLI_TIMERS_HELP_NS UINT64_C(100000)

/* The timers that one worker, their owner, has armed. The owner fires the timers. Other workers fire them if the owner
 * is away (parked, paused by the throttle, or without a thread), or if a timer is late by FLI_TIMERS_HELP_NS, for
 * example because the owner is in a long step. */
typedef struct fli_timer_shard {
    alignas(FLI_LINE) fli_mutex lock;
    fli_wheel    wheel;                          /* not atomic: protected by `lock` */
    fli_magazine spare_sleeps, spare_msg_timers; /* spare entries of the two slabs. Not atomic: protected by `lock` */
    /* Number of armed timers.  writes: under lock.  reads: any thread, for reports, relaxed. */
    FLI_ATOMIC(uint64_t) count;
    uint32_t             polls; /* number of polls by the owner. Not atomic: used by the owner alone */
    uint32_t next_other; /* index of the shard of another worker at which the owner's next poll begins to help. Not
                            atomic: used by the owner alone */
    /* Time at which the next timer of the wheel may be due. On a cache line without other fields that change often,
     * because other workers read it at their clock readings.  writes: under lock, if it changes.  reads: any thread, as
     * a hint, relaxed. A stale hint that is too early costs one useless poll. A stale hint that is too late delays no
     * timer: a worker that arms a timer reads next_ns again before it parks. */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) next_ns;
    /* The owner is parked, paused or without a thread.  writes: the owner, which writes true only under lock.  reads:
     * any thread, relaxed; a thread that arms a timer under lock relies on the value, all others use it as a hint. */
    FLI_ATOMIC(bool) away;
} fli_timer_shard;

typedef struct fli_timers {
    fli_runtime     *rt;
    fli_timer_shard *shards;
    uint32_t         shard_count;
    /* No timer of an owner that is away is due before this time.  writes: an owner that goes away, and any thread that
     * arms a timer for an owner that is away, lower this time; a worker that finds that this time has passed swaps it.
     * reads: all workers, at their clock readings.  PAIR timers.away */
    alignas(FLI_LINE) FLI_ATOMIC(uint64_t) away_ns;
    alignas(FLI_LINE) fli_slab sleeps,
        msg_timers; /* the entries of timers.c: one slab for sleeps, one for all other timers */
} fli_timers;

filch_err fli_timers_init(fli_timers *timers, fli_runtime *rt, uint32_t shard_count, uint64_t now_ns);
/* Frees the memory of all timers. Thread: any, after all processes and workers have ended. */
void fli_timers_fini(fli_timers *timers);

/* Handles every clock command. Thread: the worker that dispatches the command. */
filch_err fli_timers_handle(fli_timers *timers, const filch_command *command, filch_receiver receiver);

/* Fires the timers that are due at `now_ns`: those of the calling worker, those of owners that are away, and those of
 * all other workers that are late by FLI_TIMERS_HELP_NS. Returns how many timers it fired. Thread: a worker. */
uint32_t fli_timers_poll(fli_timers *timers, uint64_t now_ns);
/* As fli_timers_poll(), but fires at most `most` timers; further due timers fire in a later call. Every second call
 * begins with the wheel of the calling worker and the other calls with the wheels of other workers, so that no wheel is
 * starved. */
uint32_t fli_timers_poll_some(fli_timers *timers, uint64_t now_ns, uint32_t most);
/* As fli_timers_poll_some(), but looks only at the wheel of the calling worker, at the wheels of two other workers,
 * which change from call to call, and, if a timer of an owner that is away is due, at the wheels of all owners that are
 * away. */
uint32_t fli_timers_poll_near(fli_timers *timers, uint64_t now_ns, uint32_t most);
/* Says whether the worker `index`, which calls this function, is away: parked, paused, or about to end. */
void fli_timers_set_away(fli_timers *timers, uint32_t index, bool away);
/* Returns the time at which the next timer may be due, or FLI_NEVER if no timer is armed. */
uint64_t fli_timers_next_ns(const fli_timers *timers);
/* Returns the earliest time at which fli_timers_poll(), called by the worker `index`, would fire a timer, or FLI_NEVER
 * if no timer is armed. */
uint64_t fli_timers_help_ns(const fli_timers *timers, uint32_t index);
/* Returns how late the timers of the worker `index` are at `now_ns`; 0: none is due. */
uint64_t fli_timers_late_ns(const fli_timers *timers, uint32_t index, uint64_t now_ns);
/* Returns true if a timer is armed. */
bool     fli_timers_any(const fli_timers *timers);
uint64_t fli_timers_count(const fli_timers *timers);

/* After `delay_ns`, sets the flag FLI_KILL or FLI_CANCEL of the process with `serial`. Returns the id of the timer, or
 * 0 if there is no memory. When the process ends, the timer must be stopped with fli_timers_abandon(). Thread: any; a
 * thread that is no worker must then wake a worker that checks the timers. */
FILCH_MUST_USE uint64_t fli_timers_set_flag_later(fli_timers *timers, uint64_t serial, uint64_t delay_ns,
                                                  uint64_t flag);

/* Arms a timer that calls hooks.alarm(cookie) at `due_ns`. Returns an id for fli_timers_abandon(), or 0 if there is no
 * memory. If the alarm fires while fli_timers_abandon() runs, the hook may still be called after fli_timers_abandon()
 * has returned. Thread: any. */
FILCH_MUST_USE uint64_t fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);

/* Completes the yield of `receiver` with FILCH_EDEADLINE at `due_ns`, unless it has been completed before. Returns
 * an id for fli_timers_abandon(), or 0 if there is no memory. The end of the process stops the timer too. Thread:
 * the worker that dispatches the yield, before any other thread has the receiver. */
FILCH_MUST_USE uint64_t fli_timers_deadline(fli_timers *timers, filch_receiver receiver, uint64_t due_ns);

/* Stops the timer `id`. Has no effect if the timer has fired or if `id` was never the id of a timer. */
void fli_timers_abandon(fli_timers *timers, uint64_t id);
/* Returns the number of ticks that the unread message of ticker `id` stands for, and sets this number to 0. Returns 1
 * if the ticker no longer exists or has no unread tick. */
uint64_t fli_timers_ticks(fli_timers *timers, uint64_t id);

#endif
