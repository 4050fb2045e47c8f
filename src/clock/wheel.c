/* wheel.c - a hierarchical timer wheel.
 *
 * Time is counted in ticks of 2^14 ns. A tick is read as a number: its two lowest digits have base 256, all others base
 * 64. Level L has one slot for each value of digit L. A timer is at the level of the highest digit in which its tick
 * differs from now_tick:
 *
 *     level 0   the current block of 256 ticks      a slot is one tick, 16 us
 *     level 1   the current block of 65,536 ticks   a slot is 256 ticks, 4.2 ms
 *     level 2   the current block of 2^22 ticks     a slot is 2^16 ticks, 1.07 s
 *     ...
 *     level 5   all later ticks                     a slot is 2^34 ticks, 3.3 days
 *
 * So timers of a lower level are always due before timers of a higher level, and the first set bit of the lowest
 * non-zero word leads to the next timer: two bit scans, however long the time until that timer. When a slot above level
 * 0 comes due, its timers move to lower levels (a cascade), each timer at most once per level.
 *
 * Only the top level is a ring: its slots are the next 63 values of tick >> 34, so a change of higher digits needs no
 * special case. A timer that is due later than the wheel covers waits in the farthest slot and is placed
 * again when that slot comes due.
 *
 * INVARIANT  the tick of a timer is its due time rounded up, or now_tick at its fli_wheel_add() if that was later.
 * INVARIANT  no armed timer has a tick before now_tick, and now_tick is never after the latest time given to expire.
 * INVARIANT  an armed timer is in the slot given by its tick and now_tick; a timer due later than the wheel covers
 *            is in a slot due earlier.
 * INVARIANT  a bit in `used` is set exactly if the list of its slot is not empty; a bit in `words` is set exactly if
 *            its word of `used` is not 0.
 * INVARIANT  above level 0, the slot of now_tick itself is empty.
 * INVARIANT  `due_ns` of a list head is not after the earliest due time in the list. (Removing the earliest timer does
 *            not change `due_ns` of the head.)
 * INVARIANT  `ahead` of a list head is a timer of the list, unless the list is empty. (`ahead` of a timer may be any
 *            address.)
 *
 * The third invariant holds while now_tick advances, because now_tick never passes the start of a used slot without
 * emptying that slot: between now_tick and that start, no digit that decides the level or slot of a timer changes.
 *
 * A cascade moves a whole slot in one call: with 200,000 timers in one slot, a single fli_wheel_expire() takes
 * milliseconds. Most of this is cache misses on timers that were not touched since they were armed. So each timer keeps
 * the address of the timer that comes FETCH_AHEAD timers later in its list, and the walk prefetches that address.
 * Rejected: a heap, a wheel that never cascades, a sorted list per slot; see docs/design/timers.md.
 */
#include "clock/wheel.h"

#include "base/assert.h"
#include "port/clock.h"

#define TOP (FLI_WHEEL_LEVELS - 1u)
#define TOP_MASK 63u
#define LOW_MASK 255u /* mask of the digit of level 0 in a tick */

/* A walk along a list prefetches the timer that comes this number of timers later in the list. Distances of 4, 8 and 16
 * gave equal times: 160 to 190 ns for a timer that is not in the cache, 560 ns without prefetch
 * (docs/design/timers.md). */
#define FETCH_AHEAD 8

/* The tick of the last representable time, UINT64_MAX rounded up. It is the only tick with a start in ns that does not
 * fit into a uint64_t. */
#define LAST_TICK (1ull << (64 - FLI_WHEEL_TICK_BITS))

/* Returns the number of the lowest bit of a level's digit in a tick: 0, 8 and 16 for the levels 0 to 2, then 6 more per
 * level. */
static inline unsigned shift_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? 8 * level : 6 * level + 4;
}

/* Returns the index in `slots` of the first slot of a level. */
static inline unsigned base_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? 256 * level : 64 * level + 384;
}

static inline unsigned mask_of(unsigned level)
{
    return level < FLI_WHEEL_WIDE ? LOW_MASK : TOP_MASK;
}

/* Returns the level of the digit that contains bit `bit` of a tick: the inverse of shift_of(). */
static inline unsigned level_of_bit(unsigned bit)
{
    return bit < 8 * FLI_WHEEL_WIDE ? bit / 8 : (bit - 4) / 6;
}

/* Returns the level of the slots in word `word` of `used`: a wide level has four words. */
static inline unsigned level_of_word(unsigned word)
{
    return word < 4 * FLI_WHEEL_WIDE ? word / 4 : word - 6;
}

_Static_assert(FLI_WHEEL_WIDE == 2 && FLI_WHEEL_PLACES <= UINT16_MAX && FLI_WHEEL_WORDS < 64,
               "as the numbers above have it");

/* Returns the first tick that does not start before `ns`. Shifts before it adds, because adding first would overflow
 * near UINT64_MAX. */
static uint64_t tick_up(uint64_t ns)
{
    uint64_t rest = ns & ((1ull << FLI_WHEEL_TICK_BITS) - 1);
    return (ns >> FLI_WHEEL_TICK_BITS) + (rest != 0);
}

/* Returns the last tick that has started at `ns`. At UINT64_MAX all ticks count as started. */
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

/* Appends `timer` to the list of a slot. Updates `due_ns` of the list head, and sets `ahead` of the timer that comes
 * FETCH_AHEAD timers earlier in the list. */
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

/* Appends the timer to the slot of `tick`, which is not before now_tick. */
static void place(fli_wheel *wheel, fli_timer *timer, uint64_t tick)
{
    /* The highest bit in which `tick` and now_tick differ decides the level. LOW_MASK is set in their difference, so
     * that equal ticks give level 0. */
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
    /* next and prev are equal only if both are the head: the slot is empty now. */
    if (next == prev) {
        mark_empty(wheel, timer->place);
    } else if (head->ahead == timer) {
        head->ahead = next != head ? next : prev;
    }
    timer->next = timer->prev = NULL;
    wheel->count--;
    return true;
}

/* The slot that is due before all other used slots. */
typedef struct due_slot {
    unsigned level, place;
    uint64_t tick; /* first tick of the slot */
} due_slot;

/* Finds the slot that is due first. Returns false if the wheel is empty. */
static bool first_due_slot(const fli_wheel *wheel, due_slot *first)
{
    if (wheel->words == 0) return false;
    unsigned word = (unsigned)__builtin_ctzll(wheel->words), level = level_of_word(word), shift = shift_of(level);
    uint64_t column = wheel->now_tick >> shift, used = wheel->used[word];
    unsigned place;
    if (FLI_LIKELY(level < TOP)) {
        /* No used slot of this level is before the slot of now_tick, so the lowest set bit is the slot due first. */
        place = word * 64 + (unsigned)__builtin_ctzll(used);
        column = (column & ~(uint64_t)mask_of(level)) + (place - base_of(level));
    } else {
        /* Rotates the bits of the top level so that bit 0 is the slot of now_tick: then the lowest set bit is the slot
         * due first. */
        unsigned now_slot = (unsigned)column & TOP_MASK;
        column += (unsigned)__builtin_ctzll(used >> now_slot | used << ((64 - now_slot) & TOP_MASK));
        place = base_of(TOP) + ((unsigned)column & TOP_MASK);
    }
    *first = (due_slot){ .level = level, .place = place, .tick = column << shift };
    return true;
}

/* Moves the timers of a slot that has come due to lower levels, in list order. Exception: a timer that was added
 * farther in the future than the wheel reaches may still be too far ahead; it goes to the slot of its tick, or again to
 * the farthest slot. */
static void cascade(fli_wheel *wheel, const due_slot *due)
{
    fli_timer *head = &wheel->slots[due->place];
    fli_timer *timer = head->next;
    /* The list is emptied before the first timer is placed. place() puts no timer back into this slot, because above
     * level 0 the slot of now_tick stays empty, and this slot is now the slot of now_tick. */
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
    /* Returns the first due time in the slot, not the start of the slot, because a worker need not wake only to
     * cascade: the slot is cascaded when its first timer is due. Exceptions, for which the start of the slot is
     * returned: the first timer was due before it was added; or all timers of the slot are due after the slot's end
     * (they were added farther in the future than the wheel reaches), so that timers of a later slot may be due
     * earlier. */
    uint64_t tick = tick_up(wheel->slots[first.place].due_ns);
    if (tick < first.tick || (tick - first.tick) >> shift_of(first.level) != 0) tick = first.tick;
    return tick < LAST_TICK ? tick << FLI_WHEEL_TICK_BITS : FLI_NEVER;
}
