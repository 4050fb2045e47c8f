/* wheel_test.c - compares the wheel with a simple model, a list that is searched for its earliest entry; and tests edge
 * cases one by one. */
#include "clock/wheel.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "port/clock.h"
#include "support/check.h"

#define TICK (1ull << FLI_WHEEL_TICK_BITS)
#define LAST_TICK (1ull << (64 - FLI_WHEEL_TICK_BITS))
/* The layout of the levels, written down independently of wheel.c: lowest bit in a tick, index of the first slot,
 * number of slots. */
static const struct {
    unsigned shift, first, slots;
} levels[FLI_WHEEL_LEVELS] = {
    { 0, 0, 256 }, { 8, 256, 256 }, { 16, 512, 64 }, { 22, 576, 64 }, { 28, 640, 64 }, { 34, 704, 64 },
};
#define TOP_SHIFT 34
#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define YEAR (8766 * HOUR)

static uint64_t up(uint64_t ns)
{
    return ns / TICK + (ns % TICK != 0);
}

static uint64_t down(uint64_t ns)
{
    return ns == UINT64_MAX ? LAST_TICK : ns / TICK;
}

/* Checks the whole wheel: bits and lists agree, every timer is in the slot that it names, and no timer above level 0 is
 * due. */
static void check_wheel(const fli_wheel *wheel)
{
    size_t count = 0;
    for (unsigned word = 0; word < FLI_WHEEL_WORDS; word++) {
        assert_int_equal(wheel->used[word] != 0, wheel->words >> word & 1);
    }
    for (unsigned level = 0; level < FLI_WHEEL_LEVELS; level++) {
        uint64_t now_slot = wheel->now_tick >> levels[level].shift & (levels[level].slots - 1);
        for (unsigned slot = 0; slot < levels[level].slots; slot++) {
            unsigned         place = levels[level].first + slot;
            const fli_timer *head = &wheel->slots[place];
            assert_int_equal(head->next != head, wheel->used[place / 64] >> place % 64 & 1);
            const fli_timer *prev = head;
            /* becomes true when the loop finds the timer head->ahead in the list; true at once if the list is empty,
             * because then head->ahead may be any address */
            bool open = head->next == head;
            for (const fli_timer *timer = head->next; timer != head; prev = timer, timer = timer->next) {
                assert_ptr_equal(timer->prev, prev);
                if (timer == head->ahead) open = true;
                assert_true(head->due_ns <= timer->due_ns);
                assert_int_equal(timer->place, place);
                if (level > 0) assert_int_not_equal(slot, now_slot);
                if (level > 0) assert_true(up(timer->due_ns) > wheel->now_tick);
                count++;
            }
            assert_ptr_equal(head->prev, prev);
            assert_true(open);
        }
    }
    assert_int_equal(count, wheel->count);
}

/* ---- the model ---------------------------------------------------------------------------------------------- */

#define ITEMS 256

typedef struct item {
    fli_timer timer;
    bool      armed;
    /* the timer was added farther in the future than the wheel reaches: then its order among timers of one tick is not
     * defined */
    bool     beyond_range;
    uint64_t due_ns, tick, serial;
} item;

typedef struct model {
    fli_wheel wheel;
    fli_prng  prng;
    uint64_t  now_ns; /* the latest time given to expire */
    /* tick of the timer that fli_wheel_expire() returned last; after it returned NULL, the tick of now_ns */
    uint64_t tick;
    uint64_t serial;
    item     items[ITEMS];
} model;

static const item *earliest(const model *m)
{
    const item *found = NULL;
    for (size_t i = 0; i < ITEMS; i++) {
        const item *it = &m->items[i];
        if (!it->armed) continue;
        if (found == NULL || it->tick < found->tick) found = it;
        if (it->tick == found->tick && it->serial < found->serial) found = it;
    }
    return found;
}

static size_t armed_count(const model *m)
{
    size_t count = 0;
    for (size_t i = 0; i < ITEMS; i++) count += m->items[i].armed;
    return count;
}

/* Returns a random time span from 0 to hours. All orders of magnitude are equally likely. */
static uint64_t random_span(model *m)
{
    unsigned bits = fli_prng_below(&m->prng, 45);
    return fli_prng_next(&m->prng) & ((1ull << bits) - 1);
}

static uint64_t random_due(model *m)
{
    switch (fli_prng_below(&m->prng, 32)) {
    case 0: return m->now_ns - (m->now_ns < SECOND ? 0 : random_span(m) % SECOND);
    case 1: return m->now_ns;
    case 2: return UINT64_MAX - random_span(m);
    case 3: return fli_clock_after(m->now_ns, fli_prng_next(&m->prng) >> 8); /* a due time up to 2.3 years ahead */
    case 4: return (m->tick + fli_prng_below(&m->prng, 200)) * TICK;         /* many timers in one tick */
    default: return fli_clock_after(m->now_ns, random_span(m));
    }
}

static void model_add(model *m, item *it, uint64_t due_ns)
{
    uint64_t tick = up(due_ns);
    it->armed = true;
    it->due_ns = due_ns;
    it->tick = tick > m->tick ? tick : m->tick;
    it->serial = m->serial++;
    it->beyond_range = (it->tick >> TOP_SHIFT) - (m->tick >> TOP_SHIFT) > 63;
    fli_wheel_add(&m->wheel, &it->timer, due_ns);
}

static void model_remove(model *m, item *it)
{
    assert_int_equal(fli_wheel_remove(&m->wheel, &it->timer), it->armed);
    assert_null(it->timer.next);
    it->armed = false;
}

/* Calls expire once and compares with the model. Returns false if expire returned NULL. */
static bool model_expire(model *m, uint64_t now_ns)
{
    const item *want = earliest(m);
    fli_wheel_fetch(&m->wheel, now_ns);
    fli_timer *timer = fli_wheel_expire(&m->wheel, now_ns);
    if (down(now_ns) < m->tick) {
        assert_null(timer);
        return false;
    }
    if (timer == NULL) {
        assert_true(want == NULL || want->tick > down(now_ns)); /* no timer was lost or is late */
        m->tick = down(now_ns);
        return false;
    }
    item *it = FLI_OUTER(item, timer, timer);
    assert_true(it->armed); /* no timer is returned twice */
    assert_null(timer->next);
    assert_true(it->due_ns <= now_ns); /* no timer is early */
    assert_true(timer->due_ns == it->due_ns);
    assert_non_null(want);
    assert_true(it->tick == want->tick);
    if (!it->beyond_range && !want->beyond_range) assert_ptr_equal(it, want);
    it->armed = false;
    m->tick = it->tick;
    return true;
}

/* Checks fli_wheel_next_ns: not after the due time of any timer, and exact for timers in the current block of 256
 * ticks. */
static void model_check_next(const model *m)
{
    uint64_t    next_ns = fli_wheel_next_ns(&m->wheel);
    const item *want = earliest(m);
    if (want == NULL || want->tick >= LAST_TICK) {
        if (want == NULL) assert_true(next_ns == FLI_NEVER);
        return;
    }
    assert_true(next_ns <= want->tick * TICK);
    assert_true(next_ns >= m->tick * TICK);
    if (want->tick / 256 == m->tick / 256) assert_true(next_ns == want->tick * TICK);
}

static void model_sweep(model *m)
{
    /* Sometimes the handler of an expired timer adds or removes other timers or the timer itself, or the loop ends
     * early. */
    for (unsigned calls = 0; model_expire(m, m->now_ns); calls++) {
        if (calls > 4 * ITEMS || fli_prng_below(&m->prng, 64) == 0) return;
        item *it = &m->items[fli_prng_below(&m->prng, ITEMS)];
        if (fli_prng_below(&m->prng, 4) != 0) continue;
        if (it->armed) {
            model_remove(m, it);
        } else {
            model_add(m, it, random_due(m));
        }
    }
}

static void run_model(uint64_t seed, uint64_t start_ns, unsigned operations)
{
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    fli_prng_init(&m->prng, seed);
    fli_wheel_init(&m->wheel, start_ns);
    m->now_ns = start_ns;
    m->tick = down(start_ns);
    for (unsigned i = 0; i < operations; i++) {
        item *it = &m->items[fli_prng_below(&m->prng, ITEMS)];
        switch (fli_prng_below(&m->prng, 8)) {
        case 0:
        case 1:
        case 2:
        case 3:
            if (!it->armed) model_add(m, it, random_due(m));
            break;
        case 4: model_remove(m, it); break;
        case 5:
            m->now_ns = fli_clock_after(m->now_ns, random_span(m));
            model_sweep(m);
            break;
        case 6: /* sets the clock to exactly the time that fli_wheel_next_ns() returned */
            if (fli_wheel_next_ns(&m->wheel) != FLI_NEVER && fli_wheel_next_ns(&m->wheel) > m->now_ns) {
                m->now_ns = fli_wheel_next_ns(&m->wheel);
            }
            model_sweep(m);
            break;
        case 7: /* the clock is set back */
            if (m->now_ns > HOUR) (void)model_expire(m, m->now_ns - random_span(m) % HOUR);
            break;
        }
        model_check_next(m);
        assert_int_equal(m->wheel.count, armed_count(m));
        if (i % 64 == 0) check_wheel(&m->wheel);
    }
    m->now_ns = UINT64_MAX;
    while (model_expire(m, UINT64_MAX)) {}
    assert_int_equal(m->wheel.count, 0);
    check_wheel(&m->wheel);
    free(m);
}

TEST(agrees_with_a_searched_list_over_random_operations)
{
    for (uint64_t seed = 1; seed <= 8; seed++) run_model(seed, fli_prng_mix(seed) >> 16, 60000);
}

TEST(agrees_with_a_searched_list_from_time_zero)
{
    run_model(100, 0, 60000);
}

TEST(agrees_with_a_searched_list_near_uint64_max)
{
    for (uint64_t seed = 200; seed < 204; seed++) run_model(seed, UINT64_MAX - 50 * HOUR, 20000);
}

/* ---- edges -------------------------------------------------------------------------------------------------- */

TEST(an_empty_wheel_has_no_next_time)
{
    fli_wheel wheel;
    fli_wheel_init(&wheel, 12345);
    assert_true(fli_wheel_next_ns(&wheel) == FLI_NEVER);
    assert_null(fli_wheel_expire(&wheel, 12345));
    assert_null(fli_wheel_expire(&wheel, UINT64_MAX - 1));
    assert_true(fli_wheel_next_ns(&wheel) == FLI_NEVER);
}

TEST(a_timer_is_never_early_and_at_most_one_tick_late)
{
    /* Due times around the boundaries of ticks, slots and levels, from start times at and off these boundaries. */
    for (unsigned bits = FLI_WHEEL_TICK_BITS; bits < 60; bits++) {
        for (int64_t off = -2; off <= 2; off++) {
            for (uint64_t start_ns = TICK - 1; start_ns <= TICK + 1; start_ns++) {
                uint64_t  due_ns = start_ns + (1ull << bits) + (uint64_t)off;
                fli_wheel wheel;
                fli_timer timer = { 0 };
                fli_wheel_init(&wheel, start_ns);
                fli_wheel_add(&wheel, &timer, due_ns);
                assert_null(fli_wheel_expire(&wheel, due_ns - 1));
                assert_true(fli_wheel_next_ns(&wheel) < due_ns + TICK);
                assert_ptr_equal(fli_wheel_expire(&wheel, due_ns + TICK - 1), &timer);
                assert_null(fli_wheel_expire(&wheel, due_ns + TICK - 1));
            }
        }
    }
}

TEST(a_timer_due_on_a_tick_boundary_expires_at_that_time)
{
    fli_wheel wheel;
    fli_timer timer = { 0 };
    fli_wheel_init(&wheel, 0);
    fli_wheel_add(&wheel, &timer, 77 * TICK);
    assert_null(fli_wheel_expire(&wheel, 77 * TICK - 1));
    assert_ptr_equal(fli_wheel_expire(&wheel, 77 * TICK), &timer);
}

TEST(a_time_in_the_past_is_due_at_the_next_expire)
{
    fli_wheel wheel;
    fli_timer old = { 0 }, oldest = { 0 };
    fli_wheel_init(&wheel, HOUR);
    fli_wheel_add(&wheel, &old, HOUR - SECOND);
    fli_wheel_add(&wheel, &oldest, 0);
    assert_true(fli_wheel_next_ns(&wheel) <= HOUR);
    assert_ptr_equal(fli_wheel_expire(&wheel, HOUR), &old);
    assert_ptr_equal(fli_wheel_expire(&wheel, HOUR), &oldest);
    assert_null(fli_wheel_expire(&wheel, HOUR));
}

TEST(timers_of_one_tick_expire_in_the_order_they_were_added)
{
    fli_wheel wheel;
    fli_timer timers[5] = { 0 };
    fli_wheel_init(&wheel, 0);
    /* a timer for this time is in level 1 when it is added at tick 0, and in level 0 when it is added at tick 3999 */
    uint64_t due_ns = 4000 * TICK;
    fli_wheel_add(&wheel, &timers[0], due_ns);
    fli_wheel_add(&wheel, &timers[1], due_ns - 1);
    assert_null(fli_wheel_expire(&wheel, 3900 * TICK));
    fli_wheel_add(&wheel, &timers[2], due_ns - 2);
    assert_null(fli_wheel_expire(&wheel, 3999 * TICK));
    fli_wheel_add(&wheel, &timers[3], due_ns);
    fli_wheel_add(&wheel, &timers[4], due_ns - 1);
    for (unsigned i = 0; i < 5; i++) assert_ptr_equal(fli_wheel_expire(&wheel, due_ns), &timers[i]);
}

TEST(if_the_clock_goes_back_no_timer_expires_and_none_is_lost)
{
    fli_wheel wheel;
    fli_timer soon = { 0 }, past = { 0 }, far = { 0 };
    fli_wheel_init(&wheel, HOUR);
    assert_null(fli_wheel_expire(&wheel, HOUR + SECOND));
    fli_wheel_add(&wheel, &past, HOUR);
    fli_wheel_add(&wheel, &soon, HOUR + 2 * SECOND);
    assert_null(fli_wheel_expire(&wheel, HOUR));
    assert_null(fli_wheel_expire(&wheel, 0));
    fli_wheel_add(&wheel, &far, 3 * HOUR);
    check_wheel(&wheel);
    assert_ptr_equal(fli_wheel_expire(&wheel, HOUR + SECOND), &past);
    assert_null(fli_wheel_expire(&wheel, HOUR + SECOND));
    assert_ptr_equal(fli_wheel_expire(&wheel, HOUR + 2 * SECOND + TICK), &soon);
    assert_ptr_equal(fli_wheel_expire(&wheel, 3 * HOUR + TICK), &far);
}

TEST(times_near_uint64_max_do_not_overflow)
{
    static const uint64_t starts_ns[] = { 0, 1, HOUR, UINT64_MAX / 2, UINT64_MAX - HOUR, UINT64_MAX - 1 };
    for (size_t s = 0; s < sizeof starts_ns / sizeof starts_ns[0]; s++) {
        fli_wheel wheel;
        fli_timer never = { 0 }, almost = { 0 }, last = { 0 };
        fli_wheel_init(&wheel, starts_ns[s]);
        fli_wheel_add(&wheel, &never, UINT64_MAX);
        fli_wheel_add(&wheel, &almost, UINT64_MAX - 1);
        fli_wheel_add(&wheel, &last, UINT64_MAX - 2 * TICK);
        check_wheel(&wheel);
        assert_true(fli_wheel_next_ns(&wheel) <= UINT64_MAX - TICK || starts_ns[s] > UINT64_MAX - TICK);
        fli_timer *first = fli_wheel_expire(&wheel, UINT64_MAX - 1);
        assert_ptr_equal(first, &last);
        assert_null(fli_wheel_expire(&wheel, UINT64_MAX - 1));
        /* The wheel rounds due times up to ticks. The two remaining timers are due at a tick after UINT64_MAX, a time
         * that fli_wheel_next_ns() cannot return. At UINT64_MAX the wheel expires every timer, so these two as well. */
        assert_true(fli_wheel_next_ns(&wheel) == FLI_NEVER);
        assert_non_null(fli_wheel_expire(&wheel, UINT64_MAX));
        assert_non_null(fli_wheel_expire(&wheel, UINT64_MAX));
        assert_null(fli_wheel_expire(&wheel, UINT64_MAX));
        assert_null(fli_wheel_expire(&wheel, HOUR));
    }
}

TEST(timers_beyond_the_range_of_the_wheel_expire_on_time)
{
    fli_wheel wheel;
    fli_timer timers[40] = { 0 };
    fli_wheel_init(&wheel, 17 * HOUR);
    for (unsigned i = 40; i-- > 0;) fli_wheel_add(&wheel, &timers[i], 17 * HOUR + (i + 1) * YEAR / 3);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t due_ns = 17 * HOUR + (i + 1) * YEAR / 3;
        assert_null(fli_wheel_expire(&wheel, due_ns - 1));
        check_wheel(&wheel);
        assert_ptr_equal(fli_wheel_expire(&wheel, due_ns + TICK), &timers[i]);
    }
}

TEST(a_timer_can_be_removed_from_every_slot)
{
    /* Each slot of each level gets three timers, so that its list has a first, a middle and a last timer. Exception:
     * slot 0 of every level begins at tick 0, and the wheel puts a timer for tick 0 into level 0. So the slots 0 of the
     * other levels stay empty. */
    enum { COUNT = FLI_WHEEL_PLACES * 3 };
    static fli_timer timers[COUNT];
    fli_wheel        wheel;
    fli_prng         prng;
    fli_prng_init(&prng, 5);
    for (unsigned round = 0; round < 20; round++) {
        memset(timers, 0, sizeof timers);
        fli_wheel_init(&wheel, 0);
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned level = FLI_WHEEL_LEVELS - 1;
            while (i / 3 < levels[level].first) level--;
            fli_wheel_add(&wheel, &timers[i], ((uint64_t)(i / 3 - levels[level].first) << levels[level].shift) * TICK);
        }
        /* All slots are used, except the slot of now_tick itself above level 0. */
        for (unsigned level = 0; level < FLI_WHEEL_LEVELS; level++) {
            unsigned word = levels[level].first / 64;
            assert_true(wheel.used[word] == (level == 0 ? UINT64_MAX : UINT64_MAX - 1));
            while (++word < (levels[level].first + levels[level].slots) / 64)
                assert_true(wheel.used[word] == UINT64_MAX);
        }
        unsigned order[COUNT];
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned j = fli_prng_below(&prng, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (unsigned i = 0; i < COUNT; i++) {
            assert_true(fli_wheel_remove(&wheel, &timers[order[i]]));
            assert_false(fli_wheel_remove(&wheel, &timers[order[i]]));
            if (i % 32 == 0) check_wheel(&wheel);
        }
        assert_true(wheel.words == 0);
        assert_int_equal(wheel.count, 0);
        assert_null(fli_wheel_expire(&wheel, UINT64_MAX));
    }
}

TEST(a_due_timer_can_be_removed_while_others_expire)
{
    fli_wheel wheel;
    fli_timer timers[6] = { 0 };
    fli_wheel_init(&wheel, 0);
    for (unsigned i = 0; i < 6; i++) fli_wheel_add(&wheel, &timers[i], (i / 3) * 100 * TICK + TICK);
    assert_ptr_equal(fli_wheel_expire(&wheel, SECOND), &timers[0]);
    assert_false(fli_wheel_remove(&wheel, &timers[0])); /* expire has returned this timer already */
    assert_true(fli_wheel_remove(&wheel, &timers[1]));  /* due in the same tick as timers[0] */
    assert_true(fli_wheel_remove(&wheel, &timers[5]));  /* due in a later tick than timers[0] */
    assert_ptr_equal(fli_wheel_expire(&wheel, SECOND), &timers[2]);
    assert_ptr_equal(fli_wheel_expire(&wheel, SECOND), &timers[3]);
    assert_true(fli_wheel_remove(&wheel, &timers[4])); /* the last timer of its slot */
    assert_null(fli_wheel_expire(&wheel, SECOND));
    assert_int_equal(wheel.count, 0);
}

TEST(a_ticker_can_be_added_again_inside_the_loop)
{
    fli_wheel wheel;
    fli_timer ticker = { 0 }, end = { 0 };
    uint64_t  period_ns = SECOND / 1000, seen = 0;
    fli_wheel_init(&wheel, 0);
    fli_wheel_add(&wheel, &ticker, period_ns);
    fli_wheel_add(&wheel, &end, SECOND);
    /* Each call of fli_wheel_expire() gets a time that is more than a second after `end` is due. Together the calls
     * return each tick of the ticker once, in order, and `end` between tick 999 and tick 1000. */
    for (fli_timer *timer; (timer = fli_wheel_expire(&wheel, 2 * SECOND + TICK)) != NULL;) {
        if (timer == &end) {
            assert_int_equal(seen, 999);
            continue;
        }
        assert_ptr_equal(timer, &ticker);
        seen++;
        assert_true(ticker.due_ns == seen * period_ns);
        fli_wheel_add(&wheel, &ticker, ticker.due_ns + period_ns);
    }
    assert_int_equal(seen, 2000);
    assert_int_equal(wheel.count, 1);
}

TEST(a_jump_of_500_years_does_not_advance_tick_by_tick)
{
    /* A wheel that advances tick by tick would pass about 2^49 ticks in each jump of 250 years. */
    fli_wheel wheel;
    fli_timer first = { 0 }, second = { 0 };
    fli_wheel_init(&wheel, 0);
    assert_null(fli_wheel_expire(&wheel, 250 * YEAR));
    fli_wheel_add(&wheel, &first, 250 * YEAR + SECOND);
    fli_wheel_add(&wheel, &second, 250 * YEAR + HOUR);
    assert_ptr_equal(fli_wheel_expire(&wheel, 500 * YEAR), &first);
    assert_ptr_equal(fli_wheel_expire(&wheel, 500 * YEAR), &second);
    assert_null(fli_wheel_expire(&wheel, 500 * YEAR));
    check_wheel(&wheel);
}

TEST(sleeping_until_next_ns_wakes_once_for_each_timer)
{
    fli_prng prng;
    fli_prng_init(&prng, 9);
    for (unsigned i = 0; i < 20000; i++) {
        fli_wheel wheel;
        fli_timer timer = { 0 };
        uint64_t  now_ns = fli_prng_next(&prng) >> 8;
        uint64_t  span_ns = fli_prng_next(&prng) >> (16 + fli_prng_below(&prng, 40));
        uint64_t  due_ns = now_ns + span_ns, wakes = 1;
        /* fli_wheel_expire() may return NULL once for each full turn of the top level before the due time. */
        uint64_t columns = (up(due_ns) >> TOP_SHIFT) - (down(now_ns) >> TOP_SHIFT);
        uint64_t allowed = 1 + (columns > 0 ? (columns - 1) / 63 : 0);
        fli_wheel_init(&wheel, now_ns);
        fli_wheel_add(&wheel, &timer, due_ns);
        for (;; wakes++) {
            now_ns = fli_wheel_next_ns(&wheel);
            if (fli_wheel_expire(&wheel, now_ns) != NULL) break;
        }
        assert_true(now_ns >= due_ns && now_ns - due_ns < TICK);
        assert_true(wakes <= allowed);
    }
}

static int by_due(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

TEST(two_hundred_thousand_timers_expire_once_and_in_order)
{
    enum { COUNT = 200000 };
    fli_timer *timers = calloc(COUNT, sizeof *timers);
    uint64_t  *due_ns = calloc(COUNT, sizeof *due_ns);
    assert_non_null(timers);
    assert_non_null(due_ns);
    fli_wheel wheel;
    fli_prng  prng;
    fli_prng_init(&prng, 3);
    fli_wheel_init(&wheel, HOUR);
    for (size_t i = 0; i < COUNT; i++) {
        due_ns[i] = HOUR + fli_prng_next(&prng) % (i % 2 == 0 ? SECOND : 10 * HOUR);
        fli_wheel_add(&wheel, &timers[i], due_ns[i]);
    }
    check_wheel(&wheel);
    qsort(due_ns, COUNT, sizeof *due_ns, by_due);
    size_t   seen = 0;
    uint64_t now_ns = HOUR;
    while (wheel.count > 0) {
        now_ns = fli_clock_after(now_ns, seen < COUNT / 2 ? SECOND / 1000 : HOUR / 7);
        for (fli_timer *timer; (timer = fli_wheel_expire(&wheel, now_ns)) != NULL; seen++) {
            assert_true(timer->due_ns <= now_ns);
            assert_int_equal(up(timer->due_ns), up(due_ns[seen]));
        }
        assert_true(seen == COUNT || up(due_ns[seen]) > down(now_ns));
    }
    assert_int_equal(seen, COUNT);
    free(due_ns);
    free(timers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_wheel_has_no_next_time),
        cmocka_unit_test(a_timer_is_never_early_and_at_most_one_tick_late),
        cmocka_unit_test(a_timer_due_on_a_tick_boundary_expires_at_that_time),
        cmocka_unit_test(a_time_in_the_past_is_due_at_the_next_expire),
        cmocka_unit_test(timers_of_one_tick_expire_in_the_order_they_were_added),
        cmocka_unit_test(if_the_clock_goes_back_no_timer_expires_and_none_is_lost),
        cmocka_unit_test(times_near_uint64_max_do_not_overflow),
        cmocka_unit_test(timers_beyond_the_range_of_the_wheel_expire_on_time),
        cmocka_unit_test(a_timer_can_be_removed_from_every_slot),
        cmocka_unit_test(a_due_timer_can_be_removed_while_others_expire),
        cmocka_unit_test(a_ticker_can_be_added_again_inside_the_loop),
        cmocka_unit_test(a_jump_of_500_years_does_not_advance_tick_by_tick),
        cmocka_unit_test(sleeping_until_next_ns_wakes_once_for_each_timer),
        cmocka_unit_test(agrees_with_a_searched_list_over_random_operations),
        cmocka_unit_test(agrees_with_a_searched_list_from_time_zero),
        cmocka_unit_test(agrees_with_a_searched_list_near_uint64_max),
        cmocka_unit_test(two_hundred_thousand_timers_expire_once_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
