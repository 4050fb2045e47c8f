/* wheel.h - a hierarchical timer wheel: constant-time add and remove, no allocation, any number of timers. Knows
 * nothing of processes or threads; the caller locks. See wheel.c for the layout. */
#ifndef FLI_CLOCK_WHEEL_H
#define FLI_CLOCK_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLI_WHEEL_LEVELS 6
#define FLI_WHEEL_SLOTS 64

/* Part of whatever is timed. Zeroed means not armed. */
typedef struct fli_timer {
    struct fli_timer *next, *prev; /* in a slot's circular list; both NULL when not armed */
    uint64_t          due_ns;
    uint16_t          place; /* level * FLI_WHEEL_SLOTS + slot */
} fli_timer;

typedef struct fli_wheel {
    uint64_t  now_tick;                                       /* everything due at or before it has been handed out */
    uint64_t  used[FLI_WHEEL_LEVELS];                         /* one bit per slot that holds timers */
    fli_timer slots[FLI_WHEEL_LEVELS][FLI_WHEEL_SLOTS];       /* list heads */
    size_t    count;
} fli_wheel;

void fli_wheel_init(fli_wheel *wheel, uint64_t now_ns);

/* Arms `timer` (which is not armed) for `due_ns`. A time in the past is due at the next expire. */
void fli_wheel_add(fli_wheel *wheel, fli_timer *timer, uint64_t due_ns);

/* True if it was armed, and is not any more. */
bool fli_wheel_remove(fli_wheel *wheel, fli_timer *timer);

/* Hands out one timer that is due at `now_ns`, disarmed, earliest tick first; NULL when there is none. Call until NULL.
 * Never early: only timers with due_ns <= now_ns. May be up to one tick late. */
fli_timer *fli_wheel_expire(fli_wheel *wheel, uint64_t now_ns);

/* When to call expire again: the moment the earliest timer can be handed out, or for far timers an earlier moment at
 * which the wheel has to turn (at most LEVELS such moments per timer). FLI_NEVER (UINT64_MAX) when empty. */
uint64_t fli_wheel_next_ns(const fli_wheel *wheel);

#endif
