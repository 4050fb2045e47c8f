/* litmus.c - tests of the explorer itself: small programs with known outcomes under C11. A program fails on a forbidden
 * outcome; explore.c compares the number of its outcomes with the number in `promise`. */
#include "parts.h"
#include "port/atomic.h"
#include "port/thread.h"

typedef struct words {
    FLI_ATOMIC(uint32_t) a, b;
    FLI_ATOMIC(uint64_t) c;
    uint32_t             payload, r[4];
    fli_mutex            lock;
    fli_cond             cond;
} words;

static words *w;

static void setup(void)
{
    w = fli_weak_new(sizeof *w);
    (void)fli_mutex_init(&w->lock);
    (void)fli_cond_init(&w->cond);
}

static void report_outcome(void)
{
    for (int i = 0; i < 4; i++) fli_weak_outcome(w->r[i] + 10);
}

/* Store buffering: each thread may miss the other's store. All four outcomes are allowed. */
static void sb_1(void)
{
    fli_store_rel(&w->a, 1);
    w->r[0] = fli_load_acq(&w->b);
}
static void sb_2(void)
{
    fli_store_rel(&w->b, 1);
    w->r[1] = fli_load_acq(&w->a);
}

/* Store buffering with read-modify-writes of one word: at least one of the two threads sees the store of the other. */
static void one_1(void)
{
    fli_store_rlx(&w->a, 1);
    (void)fli_add_acqrel(&w->c, 1);
    w->r[0] = fli_load_rlx(&w->b);
}
static void one_2(void)
{
    fli_store_rlx(&w->b, 1);
    (void)fli_add_acqrel(&w->c, 1);
    w->r[1] = fli_load_rlx(&w->a);
}
static void one_check(void)
{
    must(w->r[0] == 1 || w->r[1] == 1, "one of the two threads sees the store of the other");
    report_outcome();
}

/* Store buffering with a process-wide barrier in one thread: the barrier orders the accesses of both threads. */
static void barrier_1(void)
{
    fli_store_rlx(&w->a, 1);
    fli_weak_barrier();
    w->r[0] = fli_load_rlx(&w->b);
}
static void barrier_2(void)
{
    fli_store_rlx(&w->b, 1);
    w->r[1] = fli_load_rlx(&w->a);
}

/* The process-wide barrier does not order non-atomic accesses. */
static void barrier_3(void)
{
    w->payload = 7;
    fli_weak_barrier();
    fli_store_rlx(&w->a, 1);
}
static void barrier_4(void)
{
    if (fli_load_rlx(&w->a) == 1) w->r[0] = w->payload;
}

/* Message passing with a release store and an acquire load: the reader sees the payload. */
static void mp_1(void)
{
    w->payload = 7;
    fli_store_rel(&w->a, 1);
}
static void mp_2(void)
{
    w->r[0] = fli_load_acq(&w->a);
    if (w->r[0] == 1) must(w->payload == 7, "a write before the release is seen");
}

/* Message passing through a third thread: its relaxed read-modify-write continues the release sequence. */
static void mp_3(void)
{
    (void)fli_add_rlx(&w->a, 1);
}
static void mp_4(void)
{
    w->r[0] = fli_load_acq(&w->a);
    if (w->r[0] == 2 && fli_load_rlx(&w->b) == 1) w->r[1] = w->payload;
}
static void mp_5(void)
{
    w->payload = 7;
    fli_store_rlx(&w->b, 1);
    (void)fli_add_rel(&w->a, 1);
}

/* Independent reads of independent writes: the two readers may see the writes in different orders. All 16 outcomes are
 * allowed. */
static void iriw_1(void)
{
    fli_store_rel(&w->a, 1);
}
static void iriw_2(void)
{
    fli_store_rel(&w->b, 1);
}
static void iriw_3(void)
{
    w->r[0] = fli_load_acq(&w->a);
    w->r[1] = fli_load_acq(&w->b);
}
static void iriw_4(void)
{
    w->r[2] = fli_load_acq(&w->b);
    w->r[3] = fli_load_acq(&w->a);
}

/* Coherence: all readers see the values of one location in the same order. */
static void co_1(void)
{
    fli_store_rlx(&w->a, 1);
    fli_store_rlx(&w->a, 2);
}
static void co_2(void)
{
    w->r[0] = fli_load_rlx(&w->a);
    fli_store_rel(&w->b, 1);
}
static void co_3(void)
{
    w->r[2] = fli_load_acq(&w->b);
    w->r[1] = fli_load_rlx(&w->a);
    if (w->r[2] == 1) must(w->r[1] >= w->r[0], "an earlier read has seen no newer value");
}

/* Condition variable: a thread that checks the condition under the lock before it waits is always woken. */
static void cond_1(void)
{
    fli_mutex_lock(&w->lock);
    while (w->payload == 0) fli_cond_wait(&w->cond, &w->lock);
    fli_mutex_unlock(&w->lock);
}
static void cond_2(void)
{
    fli_mutex_lock(&w->lock);
    w->payload = 1;
    fli_mutex_unlock(&w->lock);
    fli_cond_signal(&w->cond);
}

/* Three threads append their numbers under one lock: there are 3! = 6 outcomes. */
static void count_up(void)
{
    fli_mutex_lock(&w->lock);
    w->r[0] = w->r[0] * 4 + fli_weak_self;
    fli_mutex_unlock(&w->lock);
}

/* A try_lock runs before, after or during the locked section of the other thread; in the last case it fails. */
static void try_up(void)
{
    if (!fli_mutex_try_lock(&w->lock)) {
        w->r[1] = 1;
        return;
    }
    w->r[0] = w->r[0] * 4 + fli_weak_self;
    fli_mutex_unlock(&w->lock);
}

/* ---- programs with errors that the explorer must report ---- */
static void bad_mp_1(void)
{
    w->payload = 7;
    fli_store_rlx(&w->a, 1);
}
static void bad_mp_2(void)
{
    if (fli_load_rlx(&w->a) == 1) w->r[0] = w->payload;
}
static void bad_sb_check(void)
{
    must(w->r[0] == 1 || w->r[1] == 1, "one of the two threads sees the store of the other");
}
/* A store that is no read-modify-write ends the release sequence, even if the thread that made the release store makes
 * it. */
static void bad_seq_1(void)
{
    w->payload = 7;
    fli_store_rel(&w->a, 1);
    fli_store_rlx(&w->a, 2);
}
static void bad_seq_2(void)
{
    if (fli_load_acq(&w->a) == 2) w->r[0] = w->payload;
}
/* The thread checks the condition before it takes the lock, and then waits: a wake-up can be lost. */
static void bad_cond_1(void)
{
    if (fli_load_acq(&w->a) != 0) return;
    fli_mutex_lock(&w->lock);
    fli_cond_wait(&w->cond, &w->lock);
    fli_mutex_unlock(&w->lock);
}
static void bad_cond_2(void)
{
    fli_store_rel(&w->a, 1);
    fli_mutex_lock(&w->lock);
    fli_cond_signal(&w->cond);
    fli_mutex_unlock(&w->lock);
}
static void bad_free_1(void)
{
    uint32_t *mine = fli_weak_new(sizeof *mine);
    fli_store_rel(&w->c, (uint64_t)(uintptr_t)mine);
    (void)fli_weak_alloc(NULL, mine, sizeof *mine, 0);
}
static void bad_free_2(void)
{
    uint32_t *theirs = (uint32_t *)(uintptr_t)fli_load_acq(&w->c);
    if (theirs != NULL) w->r[0] = *theirs;
}

const fli_weak_program parts_litmus[] = {
    { .name = "litmus_store_buffering",
      .promise = "4 outcomes",
      .setup = setup,
      .threads = { sb_1, sb_2 },
      .check = report_outcome },
    { .name = "litmus_one_word",
      .promise = "3 outcomes",
      .setup = setup,
      .threads = { one_1, one_2 },
      .check = one_check },
    { .name = "litmus_barrier",
      .promise = "3 outcomes",
      .setup = setup,
      .threads = { barrier_1, barrier_2 },
      .check = one_check },
    { .name = "litmus_bad_barrier", .promise = "a violation", .setup = setup, .threads = { barrier_3, barrier_4 } },
    { .name = "litmus_message",
      .promise = "2 outcomes",
      .setup = setup,
      .threads = { mp_1, mp_2 },
      .check = report_outcome },
    { .name = "litmus_release_sequence",
      .promise = "3 outcomes",
      .setup = setup,
      .threads = { mp_5, mp_3, mp_4 },
      .check = report_outcome },
    { .name = "litmus_iriw",
      .promise = "16 outcomes",
      .setup = setup,
      .threads = { iriw_1, iriw_2, iriw_3, iriw_4 },
      .check = report_outcome },
    { .name = "litmus_coherence",
      .promise = "15 outcomes",
      .setup = setup,
      .threads = { co_1, co_2, co_3 },
      .check = report_outcome },
    { .name = "litmus_condition",
      .promise = "1 outcome",
      .setup = setup,
      .threads = { cond_1, cond_2 },
      .check = report_outcome },
    { .name = "litmus_lock",
      .promise = "6 outcomes",
      .setup = setup,
      .threads = { count_up, count_up, count_up },
      .check = report_outcome },
    { .name = "litmus_try_lock",
      .promise = "3 outcomes",
      .setup = setup,
      .threads = { count_up, try_up },
      .check = report_outcome },
    { .name = "litmus_bad_message", .promise = "a violation", .setup = setup, .threads = { bad_mp_1, bad_mp_2 } },
    { .name = "litmus_bad_buffering",
      .promise = "a violation",
      .setup = setup,
      .threads = { sb_1, sb_2 },
      .check = bad_sb_check },
    { .name = "litmus_bad_sequence", .promise = "a violation", .setup = setup, .threads = { bad_seq_1, bad_seq_2 } },
    { .name = "litmus_bad_condition", .promise = "a violation", .setup = setup, .threads = { bad_cond_1, bad_cond_2 } },
    { .name = "litmus_bad_free", .promise = "a violation", .setup = setup, .threads = { bad_free_1, bad_free_2 } },
    { 0 },
};
