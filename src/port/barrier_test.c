/* barrier_test.c - if one side of a handshake uses fli_barrier_everywhere(), the other side needs no barrier
 * instruction. */
#include "port/barrier.h"

#include "port/atomic.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

/* Each of two threads writes its own variable and then reads the other's: at least one of them must see the other's
 * write. */
static FLI_ATOMIC(uint32_t) mine, yours, round_of_other, saw;
static uint64_t             rounds;

static void other(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; i <= rounds; i++) {
        while (fli_load_acq(&round_of_other) < i) yield_slice(); /* PAIR barrier_test.round, acquire half */
        fli_store_rlx(&mine, i);
        fli_barrier_here();
        uint32_t seen = fli_load_rlx(&yours);
        fli_store_rel(&saw, seen == i ? 2 * i + 1 : 2 * i); /* PAIR barrier_test.saw, release half */
    }
}

TEST(of_two_threads_that_write_and_then_read_one_sees_the_others_write)
{
    fli_thread thread;
    /* the barrier is not available on this system: callers of the barrier check this and work without it */
    if (!fli_barrier_ready()) return;
    rounds = scaled(10000);
    ok(fli_thread_start(&thread, "other", other, NULL));
    for (uint32_t i = 1; i <= rounds; i++) {
        fli_store_rel(&round_of_other, i); /* PAIR barrier_test.round, release half */
        fli_store_rlx(&yours, i);
        fli_barrier_everywhere();
        bool     saw_other = fli_load_rlx(&mine) == i;
        uint32_t answer;
        while ((answer = fli_load_acq(&saw)) / 2 < i) yield_slice(); /* PAIR barrier_test.saw, acquire half */
        if (!saw_other && answer % 2 == 0) fail_msg("round %u: neither thread saw the write of the other", i);
    }
    fli_thread_join(&thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        of_two_threads_that_write_and_then_read_one_sees_the_others_write) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
