/* wheel.h - a hierarchical timer wheel: constant-time add and remove, no allocation, any number of timers. Knows
 * nothing of processes or threads; the caller locks. See wheel.c for the layout. */
#ifndef FLI_CLOCK_WHEEL_H
#define FLI_CLOCK_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^16 ns, 66 us: rounding up to a tick makes a timer 33 us late on average, less than the 41-85 us that waking a
 * sleeping thread costs anyway; 2^15 takes 1.3-1.8 times the CPU when timers are dense. See docs/notes/0006. */
#define FLI_WHEEL_TICK_BITS 16

#define FLI_WHEEL_LEVELS 6 /* reach 2^36 ticks, 52 days; timers beyond that work too, they are moved a little more */
#define FLI_WHEEL_SLOTS 64 /* one bit each in a word */

/* Part of whatever is timed. Zeroed means not armed. Must not move while armed. */
typedef struct fli_timer {
    struct fli_timer *next, *prev; /* in a slot's circular list; both NULL when not armed */
    uint64_t          due_ns;
    uint16_t          place; /* level * FLI_WHEEL_SLOTS + slot */
} fli_timer;

typedef struct fli_wheel {
    uint64_t  now_tick;                                 /* everything due before it has been handed out */
    uint64_t  used[FLI_WHEEL_LEVELS];                   /* one bit per slot that holds timers */
    fli_timer slots[FLI_WHEEL_LEVELS][FLI_WHEEL_SLOTS]; /* list heads; only next and prev mean anything */
    size_t    count;                                    /* armed timers */
} fli_wheel;

/* The wheel points into itself: it must not move. Nothing to undo at the end. */
void fli_wheel_init(fli_wheel *wheel, uint64_t now_ns);

/* Arms `timer` (which is not armed) for `due_ns`. A time in the past is due at the next expire, even if that is the
 * next call of a loop that is handing out timers right now. */
void fli_wheel_add(fli_wheel *wheel, fli_timer *timer, uint64_t due_ns);

/* True if it was armed, and is not any more. */
bool fli_wheel_remove(fli_wheel *wheel, fli_timer *timer);

/* Hands out one timer that is due at `now_ns`, disarmed, earliest tick first; NULL when there is none. Call until NULL.
 * Never early: only timers with due_ns <= now_ns. May be up to one tick late.
 * Between calls any timer may be added or removed. Timers of one tick come in the order they were added, unless one of
 * them was added from beyond the wheel's reach. A `now_ns` before an earlier one gives NULL and changes nothing;
 * UINT64_MAX, the end of time, gives every timer there is. */
fli_timer *fli_wheel_expire(fli_wheel *wheel, uint64_t now_ns);

/* When to call expire again: the moment the earliest timer can be handed out, or for far timers an earlier moment at
 * which the wheel has to turn (at most LEVELS such moments per timer, and one more for each 52 days it is away).
 * FLI_NEVER (UINT64_MAX) when empty. */
uint64_t fli_wheel_next_ns(const fli_wheel *wheel);

#endif
