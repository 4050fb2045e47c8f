/* wheel.c - a hierarchical timer wheel.
 *
 * Time is counted in ticks of 2^14 ns. Read a tick as a number with two lowest digits in base 256 and all others in
 * base 64. Level L has one slot for each value of digit L; a timer sits at the level of the highest digit in which its
 * tick differs from now_tick:
 *
 *     level 0   this very block of 256 ticks        a slot is one tick, 16 us
 *     level 1   another block of these 65,536       a slot is 256 ticks, 4.2 ms
 *     level 2   and so on                           a slot is 2^16 ticks, 1.07 s
 *     ...
 *     level 5   anything further                    a slot is 2^34 ticks, 3.3 days
 *
 * So a lower level is always due before a higher one, and the first set bit of the lowest word in use is where the
 * next timer is: finding it takes two looks, whatever the time between. When a slot above level 0 comes due,
 * its timers move to lower levels (a cascade), each timer at most once per level.
 *
 * The top level alone is a ring: its slots are the next 63 values of tick >> 34, so nothing special happens where the
 * higher digits change. A timer further away than that waits in the farthest of them and is placed anew from there.
 *
 * INVARIANT  a timer's tick is its due time rounded up, or the now_tick of its add if that was later.
 * INVARIANT  no armed timer's tick is before now_tick, and now_tick is never after the latest time given to expire.
 * INVARIANT  an armed timer is in the slot that its tick and now_tick give; beyond the reach, in one due earlier.
 * INVARIANT  a bit in `used` is set exactly when that slot's list is not empty; one in `words`, when that word is not
 * 0. INVARIANT  above level 0, the slot of now_tick itself is empty. INVARIANT  `due_ns` of a head is not after the
 * earliest due time in its list. (Removing that one leaves it as it is.) INVARIANT  `ahead` of a head names a timer of
 * its list, if there is one. (`ahead` of a timer may name anything.)
 *
 * The third one survives now_tick moving ahead because it never moves past the start of a slot in use without emptying
 * it: between now_tick and that start, no digit that decides a timer's level or slot changes.
 *
 * A cascade moves a whole slot in one call: with 200,000 timers in one far slot, a single expire takes milliseconds.
 * The cost is cache misses on timers that were not touched since they were armed, so each timer has a pointer to the
 * timer FETCH_AHEAD places further on in its list, and the walk prefetches that one. See docs/design/timers.md.
 * Rejected: a heap, a wheel that never cascades, a sorted list per slot; see docs/design/timers.md.
 */
#include "clock/wheel.h"

#include "base/assert.h"
#include "port/clock.h"

#define TOP (FLI_WHEEL_LEVELS - 1u)
#define TOP_MASK 63u
#define LOW_MASK 255u /* of the lowest digit */

/* How far ahead a walk along a list asks for memory. 4, 8 and 16 measured alike: 160 to 190 ns for a cold timer,
 * against 560 without. See docs/design/timers.md. */
#define FETCH_AHEAD 8

/* The last tick: UINT64_MAX rounded up. The only tick with a start that does not fit into a uint64_t. */
#define LAST_TICK (1ull << (64 - FLI_WHEEL_TICK_BITS))

/* Where the digit of a level begins: 0, 8, 16, and then every 6 bits. */
static inline unsigned shift_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? 8 * level : 6 * level + 4;
}

/* The first slot of a level, and of how many. */
static inline unsigned base_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? 256 * level : 64 * level + 384;
}

static inline unsigned mask_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? LOW_MASK : TOP_MASK;
}

/* Returns the level of the digit that this bit of a tick belongs to: the inverse of shift_of(). */
static inline unsigned level_of_bit(unsigned bit)
{
    return bit < 8 * FLI_WHEEL_WIDE ? bit / 8 : (bit - 4) / 6;
}

/* Returns the level of the slots that this word of `used` describes: wide levels have four words. */
static inline unsigned level_of_word(unsigned word)
{
    return word < 4 * FLI_WHEEL_WIDE ? word / 4 : word - 6;
}

_Static_assert(FLI_WHEEL_WIDE == 2 && FLI_WHEEL_PLACES <= UINT16_MAX && FLI_WHEEL_WORDS < 64,
               "as the numbers above have it");

/* The first tick that is not before `ns`. Shifts first: adding first would overflow near the end of time. */
static uint64_t tick_up(uint64_t ns)
{
    uint64_t rest = ns & ((1ull << FLI_WHEEL_TICK_BITS) - 1);
    return (ns >> FLI_WHEEL_TICK_BITS) + (rest != 0);
}

/* The last tick that has begun at `ns`. At the end of time all of them have. */
static uint64_t tick_down(uint64_t ns)
{
    return ns == FLI_NEVER ? LAST_TICK : ns >> FLI_WHEEL_TICK_BITS;
}

void fli_wheel_init(fli_wheel *wheel, uint64_t now_ns)
{
    wheel->now_tick = tick_down(now_ns);
    wheel->count = 0;
    wheel->words = 0;
    for (unsigned word = 0; word < FLI_WHEEL_WORDS; word++) wheel->used[word] = 0;
    for (unsigned place = 0; place < FLI_WHEEL_PLACES; place++) {
        fli_timer *head = &wheel->slots[place];
        *head = (fli_timer){ .next = head, .prev = head };
    }
}

/* Adds to the end of a slot's list, remembers the earliest due time, and lets the one that is now FETCH_AHEAD before it
 * know. */
static void append(fli_timer *head, fli_timer *timer)
{
    fli_timer *open = head->ahead;
    bool       first = head->next == head;
    timer->next = head;
    timer->prev = head->prev;
    timer->ahead = head;
    head->prev->next = timer;
    head->prev = timer;
    if (first || timer->due_ns < head->due_ns) head->due_ns = timer->due_ns;
    if (first) {
        head->ahead = timer;
        head->place = 0;
    } else if (head->place < FETCH_AHEAD) {
        head->place++;
    } else {
        open->ahead = timer;
        head->ahead = open->next;
    }
}

static void mark_used(fli_wheel *wheel, unsigned place)
{
    wheel->used[place / 64] |= 1ull << place % 64;
    wheel->words |= 1ull << place / 64;
}

static void mark_empty(fli_wheel *wheel, unsigned place)
{
    uint64_t *used = &wheel->used[place / 64];
    *used &= ~(1ull << place % 64);
    if (*used == 0) wheel->words &= ~(1ull << place / 64);
}

/* Puts the timer at the end of the slot where `tick`, which is not before now_tick, belongs. */
static void place(fli_wheel *wheel, fli_timer *timer, uint64_t tick)
{
    /* The highest bit that differs names the digit. Setting the lowest digit's bits makes "none differs" level 0. */
    unsigned highest = 63u - (unsigned)__builtin_clzll((tick ^ wheel->now_tick) | LOW_MASK);
    unsigned level = level_of_bit(highest), slot;
    if (FLI_LIKELY(level < TOP)) {
        slot = (unsigned)(tick >> shift_of(level)) & mask_of(level);
    } else {
        level = TOP;
        uint64_t column = tick >> shift_of(TOP), farthest = (wheel->now_tick >> shift_of(TOP)) + TOP_MASK;
        slot = (unsigned)(column > farthest ? farthest : column) & TOP_MASK;
    }
    timer->place = (uint16_t)(base_of(level) + slot);
    append(&wheel->slots[timer->place], timer);
    mark_used(wheel, timer->place);
}

void fli_wheel_add(fli_wheel *wheel, fli_timer *timer, uint64_t due_ns)
{
    FLI_ASSERT(timer->next == NULL);
    uint64_t tick = tick_up(due_ns);
    timer->due_ns = due_ns;
    place(wheel, timer, tick > wheel->now_tick ? tick : wheel->now_tick);
    wheel->count++;
}

bool fli_wheel_remove(fli_wheel *wheel, fli_timer *timer)
{
    fli_timer *next = timer->next, *prev = timer->prev;
    if (next == NULL) return false;
    next->prev = prev;
    prev->next = next;
    fli_timer *head = &wheel->slots[timer->place];
    /* If both neighbours are the same entry, it is the head, and the slot is empty now. */
    if (next == prev) {
        mark_empty(wheel, timer->place);
    } else if (head->ahead == timer) {
        head->ahead = next != head ? next : prev;
    }
    timer->next = timer->prev = NULL;
    wheel->count--;
    return true;
}

/* The slot that comes due first. */
typedef struct due_slot {
    unsigned level, place;
    uint64_t tick; /* its first one */
} due_slot;

/* False when the wheel is empty. */
static bool first_due_slot(const fli_wheel *wheel, due_slot *first)
{
    if (wheel->words == 0) return false;
    unsigned word = (unsigned)__builtin_ctzll(wheel->words), level = level_of_word(word), shift = shift_of(level);
    uint64_t column = wheel->now_tick >> shift, used = wheel->used[word];
    unsigned place;
    if (FLI_LIKELY(level < TOP)) {
        /* None is behind that of now_tick: the lowest bit is the nearest slot. */
        place = word * 64 + (unsigned)__builtin_ctzll(used);
        column = (column & ~(uint64_t)mask_of(level)) + (place - base_of(level));
    } else {
        /* The ring. Turned so that the slot of now_tick is bit 0, it is so again. */
        unsigned now_slot = (unsigned)column & TOP_MASK;
        column += (unsigned)__builtin_ctzll(used >> now_slot | used << ((64 - now_slot) & TOP_MASK));
        place = base_of(TOP) + ((unsigned)column & TOP_MASK);
    }
    *first = (due_slot){ .level = level, .place = place, .tick = column << shift };
    return true;
}

/* Moves the timers of a slot that has come due to lower levels (from beyond the reach: to where they belong by now),
 * in their order. */
static void cascade(fli_wheel *wheel, const due_slot *due)
{
    fli_timer *head = &wheel->slots[due->place];
    fli_timer *timer = head->next;
    /* Emptied before the first one is placed. None is placed back here: this is the slot of now_tick now, and that one
     * stays empty above level 0. */
    head->next = head->prev = head;
    mark_empty(wheel, due->place);
    while (timer != head) {
        fli_timer *next = timer->next;
        FLI_FETCH(timer->ahead);
        place(wheel, timer, tick_up(timer->due_ns));
        timer = next;
    }
}

fli_timer *fli_wheel_expire(fli_wheel *wheel, uint64_t now_ns)
{
    uint64_t until = tick_down(now_ns);
    if (until < wheel->now_tick) return NULL;

    due_slot due;
    while (first_due_slot(wheel, &due) && due.tick <= until) {
        wheel->now_tick = due.tick;
        if (due.level == 0) {
            fli_timer *timer = wheel->slots[due.place].next;
            (void)fli_wheel_remove(wheel, timer);
            return timer;
        }
        cascade(wheel, &due);
    }
    wheel->now_tick = until;
    return NULL;
}

void fli_wheel_fetch(const fli_wheel *wheel, uint64_t now_ns)
{
    uint64_t until = tick_down(now_ns), block = wheel->now_tick & ~(uint64_t)LOW_MASK;
    for (unsigned word = 0; word < 4; word++) {
        for (uint64_t used = wheel->used[word]; used != 0; used &= used - 1) {
            unsigned slot = word * 64 + (unsigned)__builtin_ctzll(used);
            if (block + slot > until) return;
            FLI_FETCH(wheel->slots[slot].next);
            FLI_FETCH(wheel->slots[slot].prev);
        }
    }
}

uint64_t fli_wheel_next_ns(const fli_wheel *wheel)
{
    due_slot first;
    if (!first_due_slot(wheel, &first)) return FLI_NEVER;
    /* No wake-up is needed just for a cascade: the slot is emptied when the first of its timers is due. Only if all of
     * them are beyond the reach, timers of the next slot may be due before them. */
    uint64_t tick = tick_up(wheel->slots[first.place].due_ns);
    if (tick < first.tick || (tick - first.tick) >> shift_of(first.level) != 0) tick = first.tick;
    return tick < LAST_TICK ? tick << FLI_WHEEL_TICK_BITS : FLI_NEVER;
}
