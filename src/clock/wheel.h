/* wheel.h - a hierarchical timer wheel: constant-time add and remove, no allocation, any number of timers. Knows
 * nothing of processes or threads; the caller locks. See wheel.c for the layout. */
#ifndef FLI_CLOCK_WHEEL_H
#define FLI_CLOCK_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^14 ns, 16 us: rounding up to a tick makes a timer 8 us late on average, little beside the 30-85 us that waking a
 * sleeping thread costs. How often to wake is not for the tick to decide: sched/sentinel.c leaves a gap between two
 * wakes. See docs/design/timers.md. */
#define FLI_WHEEL_TICK_BITS 14

#define FLI_WHEEL_LEVELS 6 /* reach 2^40 ticks, 208 days; timers beyond that work too, they are moved a little more */
/* The two lowest levels are wide, 256 slots each, and reach 1.07 s: what is due within a second is moved once on its
 * way, and each move is a wait for cold memory. The others have 64. See docs/design/timers.md. */
#define FLI_WHEEL_WIDE 2
#define FLI_WHEEL_WORDS (4 * FLI_WHEEL_WIDE + FLI_WHEEL_LEVELS - FLI_WHEEL_WIDE)
/* The slots of all levels, the lowest first; one bit each in a word. */
#define FLI_WHEEL_PLACES (64 * FLI_WHEEL_WORDS)

/* Part of whatever is timed. Zeroed means not armed. Must not move while armed. */
typedef struct fli_timer {
    struct fli_timer *next, *prev; /* in a slot's circular list; both NULL when not armed */
    uint64_t          due_ns;
    /* A timer that was a few places further on when this one was added: prefetched by a walk of the list, never
     * followed. */
    struct fli_timer *ahead;
    uint16_t          place; /* which slot of all */
} fli_timer;

typedef struct fli_wheel {
    uint64_t now_tick;              /* everything due before it has been handed out */
    uint64_t words;                 /* one bit for each of `used` that is not 0 */
    uint64_t used[FLI_WHEEL_WORDS]; /* one bit per slot that holds timers */
    /* List heads. `due_ns` is the earliest due time, or was; `ahead` the timer that has no `ahead` of its own yet,
     * `place` the distance of that timer from the end. */
    fli_timer slots[FLI_WHEEL_PLACES];
    size_t    count; /* armed timers */
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

/* Prefetches the timers that expire will return at `now_ns`, as far as they can be found without a cache miss. Changes
 * nothing. */
void fli_wheel_fetch(const fli_wheel *wheel, uint64_t now_ns);

/* When to call expire again: the moment the earliest timer can be handed out. Earlier only if timers were removed (at
 * most once for each one that was the earliest of its slot), and once for each 208 days that the earliest is away.
 * FLI_NEVER (UINT64_MAX) when empty. */
uint64_t fli_wheel_next_ns(const fli_wheel *wheel);

#endif
