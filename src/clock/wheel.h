/* wheel.h - a hierarchical timer wheel: constant-time add and remove, no allocation, any number of timers.
 * Independent of processes and threads; the caller locks. See wheel.c for the layout. */
#ifndef FLI_CLOCK_WHEEL_H
#define FLI_CLOCK_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^14 ns, 16 us: rounding up to a tick makes a timer 8 us late on average, which is little compared with the 30-85
 * us that waking a parked thread takes. The tick does not decide how often a worker wakes: sched/sentinel.c keeps a
 * minimum distance between two wakes. See docs/design/timers.md. */
#define FLI_WHEEL_TICK_BITS 14

#define FLI_WHEEL_LEVELS 6 /* reach 2^40 ticks, 208 days; timers beyond that are allowed and are moved more often */
/* The two lowest levels are wide, 256 slots each, and reach 1.07 s: a timer that is due within a second is moved
 * once, and each move waits for cold memory. The other levels have 64 slots. See docs/design/timers.md. */
#define FLI_WHEEL_WIDE 2
#define FLI_WHEEL_WORDS (4 * FLI_WHEEL_WIDE + FLI_WHEEL_LEVELS - FLI_WHEEL_WIDE)
/* The slots of all levels, the lowest level first. Each slot has one bit in a word. */
#define FLI_WHEEL_PLACES (64 * FLI_WHEEL_WORDS)

/* Embedded in each object that has a timer. All zero: not armed. Must not move while armed. */
typedef struct fli_timer {
    struct fli_timer *next, *prev; /* in a slot's circular list; both NULL when not armed */
    uint64_t          due_ns;
    /* A timer that was FETCH_AHEAD places further on when it was added. Prefetched by a walk along the list, never
     * dereferenced. */
    struct fli_timer *ahead;
    uint16_t          place; /* index of its slot in fli_wheel.slots */
} fli_timer;

typedef struct fli_wheel {
    uint64_t now_tick;              /* all timers due before this tick have been handed out */
    uint64_t words;                 /* one bit for each word of `used` that is not 0 */
    uint64_t used[FLI_WHEEL_WORDS]; /* one bit per slot that holds timers */
    /* List heads. `due_ns` is the earliest due time in the list, or earlier; `ahead` is the first timer that has no
     * `ahead` yet, and `place` its distance from the end. */
    fli_timer slots[FLI_WHEEL_PLACES];
    size_t    count; /* armed timers */
} fli_wheel;

/* Initialises the wheel. It contains pointers to itself and must not move. There is no fini. */
void fli_wheel_init(fli_wheel *wheel, uint64_t now_ns);

/* Arms `timer`, which is not armed, for `due_ns`. A time in the past is due at the next fli_wheel_expire(), also
 * inside a loop of such calls. */
void fli_wheel_add(fli_wheel *wheel, fli_timer *timer, uint64_t due_ns);

/* Disarms `timer`. Returns false if it was not armed. */
bool fli_wheel_remove(fli_wheel *wheel, fli_timer *timer);

/* Disarms and returns one timer that is due at `now_ns`, the earliest tick first; NULL if there is none. Call it
 * until NULL. A timer is never early (due_ns <= now_ns), and up to one tick late. Between two calls any timer may be
 * added or removed. Timers of one tick come in the order in which they were added, unless one of them was added
 * beyond the reach of the wheel. With a `now_ns` before that of an earlier call it returns NULL and changes nothing;
 * with UINT64_MAX, the end of time, it returns every timer. */
fli_timer *fli_wheel_expire(fli_wheel *wheel, uint64_t now_ns);

/* Prefetches the timers that fli_wheel_expire() will return at `now_ns`, as far as they are known without waiting
 * for memory. Changes nothing. */
void fli_wheel_fetch(const fli_wheel *wheel, uint64_t now_ns);

/* Returns when to call fli_wheel_expire() again: when the earliest timer can be handed out. Earlier only after
 * timers were removed (at most once for each removed timer that was the earliest of its slot), and once for each 208
 * days that the earliest timer is away. FLI_NEVER (UINT64_MAX) if the wheel is empty. */
uint64_t fli_wheel_next_ns(const fli_wheel *wheel);

#endif
