/* stream_state_test.c - tests of the state word of a stream: every transition, and each race between two transitions in
 * both orders. */
#include "port/atomic.h"

/* A weak compare-and-swap may fail spuriously, as it does on machines other than x86. Here it fails spuriously as often
 * as a test sets in `spurious`. */
#include <stdbool.h>
#include <stdint.h>

static int spurious;

static bool cas_weak(FLI_ATOMIC(uint64_t) *at, uint64_t *expected, uint64_t wanted)
{
    return spurious > 0 && spurious-- > 0 ? false : fli_cas_acqrel(at, expected, wanted);
}

#undef fli_cas_weak_acqrel
#define fli_cas_weak_acqrel(at, expected, wanted) cas_weak((at), (expected), (wanted))

#include "io/stream_state.h"

#include "support/check.h"

static fli_stream_state state;
enum { GEN = 5 };

static void begin(void)
{
    fli_store_rlx(&state, (uint64_t)GEN << FLI_STREAM_GEN_SHIFT);
    fli_stream_state_open(&state);
}

/* Starts an operation, makes one attempt that would block, and arms the operation. */
static void begin_armed(fli_direction direction)
{
    begin();
    same(fli_stream_state_begin_op(&state, GEN, direction), FLI_BEGIN_TRY);
    same(fli_stream_state_arm_op(&state, direction), FLI_ARM_DONE);
}

TEST(a_new_stream_is_ready_in_both_directions)
{
    begin();
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
    same(fli_stream_state_begin_op(&state, GEN, FLI_WRITING), FLI_BEGIN_TRY);
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_BUSY);
}

TEST(after_eagain_the_next_operation_waits_for_a_report)
{
    begin();
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
    assert_false(fli_stream_state_end_op(&state, FLI_READING, false));
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_WAIT);
    assert_false(fli_stream_state_end_op(&state, FLI_READING, false));
    same(fli_stream_state_report(&state, GEN, true, false, false), 0);
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
}

TEST(a_report_takes_only_waiting_operations)
{
    begin_armed(FLI_READING);
    same(fli_stream_state_report(&state, GEN, false, true, false), 0);
    same(fli_stream_state_report(&state, GEN, true, true, false), 1u << FLI_READING);
    /* 0: no direction is taken, because the operation is BUSY and has a holder */
    same(fli_stream_state_report(&state, GEN, true, true, false), 0);
}

TEST(a_report_between_the_try_and_the_wait_is_not_lost)
{
    begin();
    same(fli_stream_state_begin_op(&state, GEN, FLI_WRITING), FLI_BEGIN_TRY);
    same(fli_stream_state_report(&state, GEN, false, true, false), 0);
    same(fli_stream_state_arm_op(&state, FLI_WRITING), FLI_ARM_AGAIN);
    same(fli_stream_state_arm_op(&state, FLI_WRITING), FLI_ARM_DONE);
}

TEST(an_end_of_stream_that_is_reported_once_stays_readable)
{
    begin_armed(FLI_READING);
    same(fli_stream_state_report(&state, GEN, true, false, true), 1u << FLI_READING);
    /* `ready` is false: the last read got fewer bytes than it had space for */
    assert_false(fli_stream_state_end_op(&state, FLI_READING, false));
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
}

TEST(a_timeout_or_cancel_takes_a_waiting_operation_or_marks_a_busy_one)
{
    begin_armed(FLI_READING);
    assert_true(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_EXPIRED));
    assert_false(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_EXPIRED));
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_EXPIRED);
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_DONE); /* the call that returned FLI_ARM_EXPIRED has
                                                                         cleared the flag EXPIRED */
    same(fli_stream_state_report(&state, GEN, true, false, false), 1u << FLI_READING);
    assert_false(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_CANCELLED));
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_CANCELLED);
    assert_false(fli_stream_state_end_op(&state, FLI_READING, true));
    /* returns false: no operation is outstanding */
    assert_false(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_CANCELLED));
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
    same(fli_stream_state_arm_op(&state, FLI_READING),
         FLI_ARM_DONE); /* fli_stream_state_end_op() has cleared the flag CANCELLED */
}

TEST(the_last_holder_closes_the_stream)
{
    unsigned ours;
    begin_armed(FLI_READING); /* a waiting operation: the thread that closes the stream completes it */
    assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
    same(ours, 1u << FLI_READING);
    assert_false(fli_stream_state_begin_close(&state, GEN, &ours)); /* false: only the first call starts the close */
    assert_false(fli_stream_state_end_op(&state, FLI_READING, false));
    assert_true(fli_stream_state_end_close(&state));

    begin(); /* the writing direction has a holder, which releases it after the close */
    same(fli_stream_state_begin_op(&state, GEN, FLI_WRITING), FLI_BEGIN_TRY);
    assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
    same(ours, 0);
    same(fli_stream_state_arm_op(&state, FLI_WRITING), FLI_ARM_CLOSING);
    assert_false(fli_stream_state_end_close(&state));
    assert_true(fli_stream_state_end_op(&state, FLI_WRITING, true));

    begin(); /* the operation that holds the writing direction ends before the close does */
    same(fli_stream_state_begin_op(&state, GEN, FLI_WRITING), FLI_BEGIN_TRY);
    assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
    assert_false(fli_stream_state_end_op(&state, FLI_WRITING, true));
    assert_true(fli_stream_state_end_close(&state));
}

TEST(a_closing_stream_starts_no_operation_and_an_old_generation_is_ignored)
{
    unsigned ours;
    begin();
    assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_GONE);
    same(fli_stream_state_report(&state, GEN, true, true, true), 0);
    assert_true(fli_stream_state_end_close(&state));
    assert_true(fli_stream_state_retire(&state));
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_GONE);
    /* the slot has its next generation but no stream has been opened in it */
    same(fli_stream_state_begin_op(&state, GEN + 1, FLI_READING), FLI_BEGIN_GONE);
    fli_stream_state_open(&state);
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_GONE);
    same(fli_stream_state_report(&state, GEN, true, true, false), 0);
    assert_false(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_EXPIRED));
    assert_false(fli_stream_state_begin_close(&state, GEN, &ours));
    same(fli_stream_state_begin_op(&state, GEN + 1, FLI_READING), FLI_BEGIN_TRY);
}

TEST(a_slot_without_generations_is_retired)
{
    fli_store_rlx(&state, (uint64_t)FLI_STREAM_GEN_LAST << FLI_STREAM_GEN_SHIFT);
    assert_false(fli_stream_state_retire(&state));
}

TEST(a_cas_that_fails_spuriously_is_repeated_with_the_same_result)
{
    unsigned ours;
    begin();
    spurious = 2;
    same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
    same(spurious, 0);
    spurious = 2;
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_DONE);
    same(spurious, 0);
    spurious = 2;
    same(fli_stream_state_report(&state, GEN, true, true, false), 1u << FLI_READING);
    same(spurious, 0);
    spurious = 2;
    assert_false(fli_stream_state_stop_op(&state, GEN, FLI_READING, FLI_OP_EXPIRED));
    same(spurious, 0);
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_EXPIRED);
    same(fli_stream_state_arm_op(&state, FLI_READING), FLI_ARM_DONE);
    spurious = 2;
    assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
    same(spurious, 0);
    same(ours, 1u << FLI_READING);
    spurious = 2;
    /* false: the holder of CLOSE_OWNER frees the stream */
    assert_false(fli_stream_state_end_op(&state, FLI_READING, false));
    same(spurious, 0);
    assert_true(fli_stream_state_end_close(&state));
}

/* Both directions are BUSY when the stream is closed. The thread that ends the operation of its direction second must
 * free the stream, whichever direction this is. */
TEST(the_second_holder_to_release_a_closing_stream_is_the_last)
{
    for (int first = FLI_READING; first <= FLI_WRITING; first++) {
        unsigned ours;
        begin();
        same(fli_stream_state_begin_op(&state, GEN, FLI_READING), FLI_BEGIN_TRY);
        same(fli_stream_state_begin_op(&state, GEN, FLI_WRITING), FLI_BEGIN_TRY);
        assert_true(fli_stream_state_begin_close(&state, GEN, &ours));
        same(ours, 0);
        assert_false(fli_stream_state_end_close(&state));
        assert_false(fli_stream_state_end_op(&state, (fli_direction)first, false));
        assert_true(fli_stream_state_end_op(&state, (fli_direction)(FLI_WRITING - first), false));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cas_that_fails_spuriously_is_repeated_with_the_same_result),
        cmocka_unit_test(the_second_holder_to_release_a_closing_stream_is_the_last),
        cmocka_unit_test(a_new_stream_is_ready_in_both_directions),
        cmocka_unit_test(after_eagain_the_next_operation_waits_for_a_report),
        cmocka_unit_test(a_report_takes_only_waiting_operations),
        cmocka_unit_test(a_report_between_the_try_and_the_wait_is_not_lost),
        cmocka_unit_test(an_end_of_stream_that_is_reported_once_stays_readable),
        cmocka_unit_test(a_timeout_or_cancel_takes_a_waiting_operation_or_marks_a_busy_one),
        cmocka_unit_test(the_last_holder_closes_the_stream),
        cmocka_unit_test(a_closing_stream_starts_no_operation_and_an_old_generation_is_ignored),
        cmocka_unit_test(a_slot_without_generations_is_retired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
