/* sentinel_test.c - a worker that parks while another one runs becomes the sentinel in the moment in which it is
 * counted as parked. Otherwise a sender could see a parked worker and no sentinel, and unpark the worker for
 * nothing. */
#include "api/fixture.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/idle.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "support/until.h"

static FLI_ATOMIC(filch_sched *) looked_at;
/* parks: number of calls of __wrap_fli_clock_ns() by a worker that parks; gaps: how many of these calls found some but
 * not all workers parked, and no sentinel. Relaxed order suffices: the test reads the counts after the workers have
 * ended, or in a loop that waits for a larger count. */
static FLI_ATOMIC(uint32_t) parks, gaps;

uint64_t __real_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void);

/* Replaces the clock of the library. A worker that parks reads the clock while it holds the lock of the parked list,
 * after it is counted as parked and before it sets its timeout. At that moment this function checks how many workers
 * are parked. */
uint64_t __wrap_fli_clock_ns(void)
{
    fli_local   *worker = fli_current_get();
    filch_sched *sched = fli_load_rlx(&looked_at);
    if (worker != NULL && sched != NULL && fli_worker_of(worker)->sched == sched &&
        fli_worker_of(worker)->idle.is_parked) {
        uint32_t parked = fli_parked_in(fli_load_rlx(&sched->idle.word));
        fli_add_rlx(&parks, 1);
        if (parked > 0 && parked < sched->worker_count && (fli_load_rlx(&sched->idle.word) & FLI_SENTINEL) == 0)
            fli_add_rlx(&gaps, 1);
    }
    return __real_fli_clock_ns();
}

/* The process is always ready, and so keeps one worker busy. */
static filch_err play_busy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_continue(out);
}

TEST(a_worker_that_parks_beside_a_running_one_counts_as_sentinel_at_once)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, 2);
    fli_store_rlx(&looked_at, w.sched);
    actor_start(&w, &a, play_busy);
    until(fli_load_rlx(&parks) >= 50);
    fixture_end(&w);
    same(fli_load_rlx(&gaps), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_parks_beside_a_running_one_counts_as_sentinel_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
