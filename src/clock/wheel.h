/* wheel.h - a hierarchical timer wheel: constant-time add and remove, no allocation, any number of timers. Independent
 * of processes and threads; the caller must lock. See wheel.c for the layout. */
#ifndef FLI_CLOCK_WHEEL_H
#define FLI_CLOCK_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ticks of 2^14 ns, 16 us. Rounding up to a tick makes a timer 8 us late on average, which is little compared with the
 * 30-85 us that waking a parked thread takes. The tick does not decide how often a worker wakes: after several timers
 * have fired at once, sched/sentinel.c delays the next wake-up for timers. See docs/design/timers.md. */
#define FLI_WHEEL_TICK_BITS 14

/* The levels cover 2^40 ticks, 208 days; later timers are allowed and are moved more often. */
#define FLI_WHEEL_LEVELS 6
/* The two lowest levels are wide, 256 slots each, and cover 1.07 s. So a timer that is due within a second is moved
 * to a lower level at most once; each move costs cache misses. The other levels have 64 slots. See
 * docs/design/timers.md. */
#define FLI_WHEEL_WIDE 2
#define FLI_WHEEL_WORDS (4 * FLI_WHEEL_WIDE + FLI_WHEEL_LEVELS - FLI_WHEEL_WIDE)
/* Number of slots of all levels. Slots are numbered from the lowest level up; each slot has one bit in
 * fli_wheel.used. */
#define FLI_WHEEL_PLACES (64 * FLI_WHEEL_WORDS)

/* Embedded in each object that has a timer. All zero: the timer is not armed. The address must not change while the
 * timer is armed. */
typedef struct fli_timer {
    struct fli_timer *next, *prev; /* links in the circular list of a slot; both NULL if the timer is not armed */
    uint64_t          due_ns;
    /* The timer that came FETCH_AHEAD timers later in the list when this was set; it may have been removed since. A
     * walk along the list prefetches this address and never dereferences it. */
    struct fli_timer *ahead;
    uint16_t          place; /* index of the timer's slot in fli_wheel.slots */
} fli_timer;

typedef struct fli_wheel {
    uint64_t now_tick;              /* fli_wheel_expire() has returned all timers that were due before this tick */
    uint64_t words;                 /* one bit for each word of `used` that is not 0 */
    uint64_t used[FLI_WHEEL_WORDS]; /* one bit per slot that holds timers */
    /* List heads. In a head, `due_ns` is the earliest due time in the list, or an earlier time; `ahead` is the first
     * timer of the list that has no `ahead` yet; `place` is the distance of that timer from the end of the list. */
    fli_timer slots[FLI_WHEEL_PLACES];
    size_t    count; /* number of armed timers */
} fli_wheel;

/* Initialises the wheel. The wheel contains pointers to itself and must not move. There is no fini. */
void fli_wheel_init(fli_wheel *wheel, uint64_t now_ns);

/* Arms `timer`, which must not be armed, for `due_ns`. If `due_ns` is in the past, the timer is due at once: a loop
 * over fli_wheel_expire() that is already running returns it too. */
void fli_wheel_add(fli_wheel *wheel, fli_timer *timer, uint64_t due_ns);

/* Disarms `timer`. Returns false if the timer was not armed. */
bool fli_wheel_remove(fli_wheel *wheel, fli_timer *timer);

/* Disarms and returns one timer that is due at `now_ns`, the earliest tick first; NULL if no timer is due. Call
 * fli_wheel_expire() until it returns NULL. A timer is never early (due_ns <= now_ns), and up to one tick late. Between
 * two calls any timer may be added or removed. Timers of one tick are returned in the order in which they were added,
 * unless one of them was added more than 208 days before it was due. If `now_ns` is lower than in an earlier call,
 * returns NULL and changes nothing. If `now_ns` is UINT64_MAX, the end of time, every timer is due. */
fli_timer *fli_wheel_expire(fli_wheel *wheel, uint64_t now_ns);

/* Prefetches the timers that fli_wheel_expire() will return at `now_ns`, as far as their addresses can be read without
 * a cache miss. Does not change the wheel. */
void fli_wheel_fetch(const fli_wheel *wheel, uint64_t now_ns);

/* Returns the time at which the next call of fli_wheel_expire() is useful: when it will return the earliest timer. The
 * result is sometimes too early, and fli_wheel_expire() then returns NULL: at most once for each removed timer that was
 * the earliest of its slot, and once for each 208 days until the earliest timer. FLI_NEVER (UINT64_MAX): the wheel is
 * empty. */
uint64_t fli_wheel_next_ns(const fli_wheel *wheel);

#endif
