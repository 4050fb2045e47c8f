/* limit_test.c - the load of a mailbox: which senders reserve space, which senders wait, and the largest values of
 * the word. */
#include "proc/limit.h"

#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

#define GEN 4101u /* a generation of more than 12 bits: the load holds its low 12 bits, which are 5 */

static fli_proc *open_proc(fli_proc *p, uint32_t gen, uint32_t max, uint32_t units, filch_overflow overflow)
{
    *p = (fli_proc){ .slot = 1 };
    fli_store_rlx(&p->mailbox_max, max);
    fli_store_rlx(&p->mailbox_units, units);
    fli_store_rlx(&p->overflow, (uint8_t)overflow);
    fli_limit_open(p, gen);
    return p;
}

#define expect_load(p, want_count, want_units)     \
    do {                                           \
        uint64_t load_ = fli_load_rlx(&(p)->load); \
        same(fli_load_count(load_), (want_count)); \
        same(fli_load_units(load_), (want_units)); \
    } while (0)

TEST(a_mailbox_takes_as_many_messages_as_its_limit)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 3, 0, FILCH_OVERFLOW_FAIL);
    for (int i = 0; i < 3; i++) same(fli_limit_reserve(p, GEN, 2, false), FLI_ADMIT);
    expect_load(p, 3, 6);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_FULL);
    assert_false(fli_limit_release(p, GEN, 2, 4));
    expect_load(p, 1, 2);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT);
}

TEST(a_mailbox_takes_as_many_bytes_as_its_limit)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 0, 10, FILCH_OVERFLOW_FAIL);
    assert_true(fli_limit_fits(p, 160));
    assert_false(fli_limit_fits(p, 161));
    same(fli_limit_units(0), 0);
    same(fli_limit_units(1), 1);
    same(fli_limit_units(16), 1);
    same(fli_limit_units(17), 2);
    same(fli_limit_reserve(p, GEN, 6, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 5, false), FLI_ADMIT_FULL);
    same(fli_limit_reserve(p, GEN, 4, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT_FULL);
    /* 0 units: a message without payload bytes fits although all units are used */
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT);
    expect_load(p, 3, 10);
}

TEST(a_sender_with_a_stale_generation_changes_nothing)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 1, 0, FILCH_OVERFLOW_WAIT);
    uint64_t before = fli_load_rlx(&p->load);
    for (uint32_t gen = GEN - 2; gen <= GEN + 2; gen++) {
        if (gen == GEN) continue;
        same(fli_limit_reserve(p, gen, 1, true), FLI_ADMIT_DEAD);
        same(fli_limit_wait(p, gen, 1), FLI_ADMIT_DEAD);
        assert_false(fli_limit_release(p, gen, 1, 1));
        fli_limit_overflowed(p, gen);
        fli_limit_wait_over(p, gen);
        fli_limit_dropped(p, gen, 1);
    }
    /* GEN + 4096 has the same low 12 bits as GEN. But fli_limit_dropped() compares all bits of the generation, so it
     * changes nothing. */
    fli_limit_dropped(p, GEN + 4096, 1);
    same(fli_load_rlx(&p->load), before);
    same(fli_limit_take_dropped(p), 0);
}

TEST(waiting_senders_are_not_overtaken)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 2, 0, FILCH_OVERFLOW_WAIT);
    same(fli_limit_wait(p, GEN, 1), FLI_ADMIT); /* the mailbox has space, so the sender must not wait */
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT);
    same(fli_limit_wait(p, GEN, 1), FLI_ADMIT_FULL);
    same(fli_limit_wait(p, GEN, 1), FLI_ADMIT_FULL);
    assert_true(fli_limit_release(p, GEN, 1, 1)); /* true: senders wait for the released space */
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT_FULL);
    same(fli_limit_wait(p, GEN, 1), FLI_ADMIT_FULL);
    same(fli_limit_reserve(p, GEN, 1, true), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 1, true), FLI_ADMIT_FULL);
    fli_limit_wait_over(p, GEN);
    assert_false(fli_limit_release(p, GEN, 1, 1));
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT);
}

TEST(drop_oldest_admits_up_to_twice_the_limit)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 2, 0, FILCH_OVERFLOW_DROP_OLDEST);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT);
    same(fli_limit_excess(p), 0);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_OVER);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_OVER);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_FULL);
    same(fli_limit_excess(p), 2);
    assert_false(fli_limit_release(p, GEN, 2, 0));
    same(fli_limit_excess(p), 0);
}

TEST(bytes_over_the_limit_are_excess_until_released)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 0, 10, FILCH_OVERFLOW_DROP_OLDEST);
    same(fli_limit_reserve(p, GEN, 8, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, 8, false), FLI_ADMIT_OVER);
    same(fli_limit_excess(p), 1);
    assert_false(fli_limit_release(p, GEN, 1, 8));
    same(fli_limit_excess(p), 0);
}

/* With the largest limit in messages, and with a limit in bytes only, the number of messages must not overflow into the
 * neighbouring bits of the load. */
TEST(the_largest_load_does_not_overflow_its_bit_fields)
{
    const uint32_t limits[] = { FLI_MAILBOX_MAX, 0 };
    for (int i = 0; i < 2; i++) {
        fli_proc proc, *p = open_proc(&proc, GEN, limits[i], FLI_MAILBOX_UNITS_MAX, FILCH_OVERFLOW_DROP_OLDEST);
        uint64_t over = 0;
        for (fli_admit admit; (admit = fli_limit_reserve(p, GEN, 1, false)) != FLI_ADMIT_FULL;) {
            if (admit == FLI_ADMIT_OVER && over++ == 0) {
                /* Raises the count in one store, to 10 below the largest count that is accepted. */
                fli_store_rlx(&p->load, fli_load_rlx(&p->load) + (FLI_MAILBOX_MAX - 10) * FLI_LOAD_COUNT_ONE);
            }
        }
        uint64_t load = fli_load_rlx(&p->load);
        same(load & (FLI_LOAD_WAITING | FLI_LOAD_OVERFLOWED), 0);
        same(fli_load_count(load), 2 * (uint64_t)FLI_MAILBOX_MAX);
        same(load >> FLI_LOAD_GEN_SHIFT, GEN & 0xfffu);
        same(fli_limit_excess(p), FLI_MAILBOX_MAX);
    }
    /* The units of payload must not overflow into the neighbouring bits either. */
    fli_proc proc, *p = open_proc(&proc, GEN, 0, 0, FILCH_OVERFLOW_DROP_OLDEST);
    same(fli_limit_reserve(p, GEN, FLI_MAILBOX_UNITS_MAX, false), FLI_ADMIT);
    same(fli_limit_reserve(p, GEN, FLI_MAILBOX_UNITS_MAX, false), FLI_ADMIT_OVER);
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT_FULL);
    expect_load(p, 2, 2 * FLI_MAILBOX_UNITS_MAX);
    assert_false(fli_limit_fits(p, (size_t)FLI_MAILBOX_UNITS_MAX * 16));
}

/* Calls fli_limit_reserve_value() up to 100 times, because its weak CAS may fail spuriously. */
static bool reserves_value(fli_proc *p, uint32_t gen)
{
    bool reserved = false;
    for (int i = 0; i < 100 && !reserved; i++) reserved = fli_limit_reserve_value(p, gen);
    return reserved;
}

TEST(the_fast_reservation_of_a_value_agrees_with_the_general_one)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 2, 0, FILCH_OVERFLOW_WAIT);
    assert_false(reserves_value(p, GEN - 1));
    assert_false(reserves_value(p, GEN + 1));
    assert_true(reserves_value(p, GEN));
    assert_true(reserves_value(p, GEN));
    expect_load(p, 2, 0);
    assert_false(reserves_value(p, GEN)); /* full */
    same(fli_limit_wait(p, GEN, 0), FLI_ADMIT_FULL);
    assert_true(fli_limit_release(p, GEN, 2, 0));
    assert_false(reserves_value(p, GEN)); /* false: a value message does not overtake a waiting sender */
    fli_limit_wait_over(p, GEN);
    assert_true(reserves_value(p, GEN));
    fli_limit_overflowed(p, GEN);
    assert_false(reserves_value(p, GEN));
    (void)fli_limit_close(p, GEN);
    assert_false(reserves_value(p, GEN));

    /* Value messages use no units of a limit in bytes, but there is still a maximum number of messages,
     * FLI_MAILBOX_MAX. */
    p = open_proc(&proc, GEN, 0, 1, FILCH_OVERFLOW_FAIL);
    same(fli_limit_reserve(p, GEN, 1, false), FLI_ADMIT);
    assert_true(reserves_value(p, GEN));
    expect_load(p, 2, 1);
    fli_store_rlx(&p->load, fli_load_rlx(&p->load) + (FLI_MAILBOX_MAX - 3) * FLI_LOAD_COUNT_ONE);
    assert_true(reserves_value(p, GEN));
    expect_load(p, FLI_MAILBOX_MAX, 1);
    assert_false(reserves_value(p, GEN));
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_FULL);
}

TEST(closing_returns_the_last_load_and_refuses_later_senders)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 1, 0, FILCH_OVERFLOW_STOP);
    same(fli_limit_reserve(p, GEN, 3, false), FLI_ADMIT);
    fli_limit_overflowed(p, GEN);
    same(fli_limit_wait(p, GEN, 0), FLI_ADMIT_FULL);
    uint64_t last = fli_limit_close(p, GEN);
    same(last & (FLI_LOAD_OVERFLOWED | FLI_LOAD_WAITING), FLI_LOAD_OVERFLOWED | FLI_LOAD_WAITING);
    same(fli_limit_reserve(p, GEN, 0, false), FLI_ADMIT_DEAD);
    /* false: the load is closed already, so the release of space that was reserved before has no effect */
    assert_false(fli_limit_release(p, GEN, 1, 3));
    fli_limit_open(p, GEN + 1);
    expect_load(p, 0, 0);
    same(fli_limit_reserve(p, GEN + 1, 0, false), FLI_ADMIT);
}

TEST(the_12_bit_generation_of_a_load_may_wrap)
{
    fli_proc proc, *p = open_proc(&proc, 0xfff, 1, 0, FILCH_OVERFLOW_FAIL);
    (void)fli_limit_close(p, 0xfff);
    fli_limit_open(p, 0x1000);
    same(fli_limit_reserve(p, 0xfff, 0, false), FLI_ADMIT_DEAD);
    same(fli_limit_reserve(p, 0x1000, 0, false), FLI_ADMIT);
}

TEST(drops_are_taken_once_and_their_count_saturates)
{
    fli_proc proc, *p = open_proc(&proc, GEN, 1, 0, FILCH_OVERFLOW_DROP_NEWEST);
    fli_limit_dropped(p, GEN, 2);
    fli_limit_dropped(p, GEN, 1);
    same(fli_limit_take_dropped(p), 3);
    same(fli_limit_take_dropped(p), 0);
    fli_limit_dropped(p, GEN, UINT32_MAX - 1);
    fli_limit_dropped(p, GEN, 1);
    fli_limit_dropped(p, GEN, 5);
    same(fli_limit_take_dropped(p), UINT32_MAX);
    fli_limit_dropped(p, GEN, 1);
    same(fli_limit_take_dropped(p), 1);
}

/* ---- threads ---- */

enum { THREADS = 3, MAX = 4 };

typedef struct crowd {
    fli_proc             proc;
    FLI_ATOMIC(int32_t)  inside;
    FLI_ATOMIC(bool)     broken;
    FLI_ATOMIC(uint64_t) drops;
    uint64_t             rounds;
} crowd;

static void reserve_and_release(void *arg)
{
    crowd *c = arg;
    for (uint64_t i = 0; i < c->rounds; i++) {
        if (fli_limit_reserve(&c->proc, GEN, 2, false) != FLI_ADMIT) {
            fli_limit_dropped(&c->proc, GEN, 1);
            fli_add_rlx(&c->drops, 1);
            yield_slice();
            continue;
        }
        if (fli_add_acqrel(&c->inside, 1) >= MAX) fli_store_rlx(&c->broken, true);
        (void)fli_sub_acqrel(&c->inside, 1);
        if (fli_limit_release(&c->proc, GEN, 1, 2)) fli_store_rlx(&c->broken, true);
    }
}

TEST(concurrent_senders_never_exceed_the_limit)
{
    static crowd c;
    fli_thread   threads[THREADS];
    (void)open_proc(&c.proc, GEN, MAX, 0, FILCH_OVERFLOW_FAIL);
    c.rounds = scaled(500000);
    /* Reserves space for two messages in a mailbox of four. The space that is left is for two, and there are three
     * threads: some sends are refused. */
    same(fli_limit_reserve(&c.proc, GEN, 0, false), FLI_ADMIT);
    same(fli_limit_reserve(&c.proc, GEN, 0, false), FLI_ADMIT);
    fli_store_rlx(&c.inside, 2);
    for (int i = 0; i < THREADS; i++) ok(fli_thread_start(&threads[i], "sender", reserve_and_release, &c));
    for (int i = 0; i < THREADS; i++) fli_thread_join(&threads[i]);
    assert_false(fli_load_rlx(&c.broken));
    expect_load(&c.proc, 2, 0);
    same(fli_limit_take_dropped(&c.proc), fli_load_rlx(&c.drops));
}

/* Tests the case that the memory of a slot is returned to the system after a sender with a stale pid has reserved
 * space. */
TEST(a_release_after_the_memory_was_returned_does_nothing)
{
    fli_proc p = { 0 };
    /* The low 12 bits of 4096 are 0. If the memory of a load was returned to the system, the load is read as 0, so its
     * generation has the same 12 bits. */
    uint32_t gen = 4096;
    fli_limit_open(&p, gen);
    same(fli_limit_reserve(&p, gen, 3, false), FLI_ADMIT);
    fli_store_rlx(&p.load, 0);
    assert_false(fli_limit_release(&p, gen, 1, 3));
    same(fli_load_rlx(&p.load), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_after_the_memory_was_returned_does_nothing),
        cmocka_unit_test(a_mailbox_takes_as_many_messages_as_its_limit),
        cmocka_unit_test(a_mailbox_takes_as_many_bytes_as_its_limit),
        cmocka_unit_test(a_sender_with_a_stale_generation_changes_nothing),
        cmocka_unit_test(waiting_senders_are_not_overtaken),
        cmocka_unit_test(drop_oldest_admits_up_to_twice_the_limit),
        cmocka_unit_test(bytes_over_the_limit_are_excess_until_released),
        cmocka_unit_test(the_largest_load_does_not_overflow_its_bit_fields),
        cmocka_unit_test(the_fast_reservation_of_a_value_agrees_with_the_general_one),
        cmocka_unit_test(closing_returns_the_last_load_and_refuses_later_senders),
        cmocka_unit_test(the_12_bit_generation_of_a_load_may_wrap),
        cmocka_unit_test(drops_are_taken_once_and_their_count_saturates),
        cmocka_unit_test(concurrent_senders_never_exceed_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
