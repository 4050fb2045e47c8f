/* yields_test.c - the first completion of a yield takes effect; later completions are refused, and no memory leaks. */
#include "proc/yields.h"

#include <stdlib.h>

#include "payload/data.h"
#include "support/bench_runtime.h"
#include "support/until.h"

static fli_event_node *open_yield(bench *b, fli_proc *p, uint64_t tag)
{
    fli_event_node *node = fli_yield_open(&b->rt, &b->worker, p, 300, tag);
    assert_non_null(node);
    return node;
}

/* Reads all completions, as a step would. Returns the number of completions. */
static uint32_t read_completions(bench *b, fli_proc *p)
{
    filch_event     events[BENCH_EVENTS];
    fli_event_node *nodes[BENCH_EVENTS];
    bench_unstack(b, p);
    uint32_t count = fli_mail_collect(&b->rt, p, false, events, nodes, BENCH_EVENTS);
    fli_mail_release(&b->rt, &b->worker, p, events, nodes, count);
    return count;
}

TEST(the_first_completion_counts_and_later_ones_are_stale)
{
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver receiver = fli_yield_receiver(&b.rt, open_yield(&b, p, 7));
    assert_true(fli_yield_is_pending(&b.rt, receiver.key));
    ok(filch_complete(receiver, 7, filch_int(1), FILCH_OK));
    assert_false(fli_yield_is_pending(&b.rt, receiver.key));
    same(filch_complete(receiver, 7, filch_int(2), FILCH_OK), FILCH_ESTALE);
    same(read_completions(&b, p), 1);
    same(filch_complete(receiver, 7, filch_int(3), FILCH_OK), FILCH_ESTALE);
    same(fli_load_rlx(&b.worker.counters.completions), 1);
    same(fli_load_rlx(&b.worker.counters.late_completions), 2);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_wrong_receiver_is_refused)
{
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver good = fli_yield_receiver(&b.rt, open_yield(&b, p, 7)), bad = good;
    same(filch_complete(good, 8, filch_none(), FILCH_OK), FILCH_EINVAL);
    bad.sched = NULL;
    same(filch_complete(bad, 7, filch_none(), FILCH_OK), FILCH_EINVAL);
    bad = good;
    bad.key = 0;
    same(filch_complete(bad, 7, filch_none(), FILCH_OK), FILCH_EINVAL);
    for (unsigned bit = 0; bit < 64; bit++) {
        bad.key = good.key ^ UINT64_C(1) << bit;
        same(filch_complete(bad, 7, filch_none(), FILCH_OK),
             (uint32_t)bad.key == 0 && bad.key == 0 ? FILCH_EINVAL : FILCH_ESTALE);
    }
    ok(filch_complete(good, 7, filch_none(), FILCH_OK));
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* When a node is reused, an old receiver of that node must not complete the later yield that uses the node. */
TEST(an_old_receiver_never_completes_a_later_yield)
{
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver old[50];
    for (int i = 0; i < 50; i++) {
        old[i] = fli_yield_receiver(&b.rt, open_yield(&b, p, 7));
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(old[k].key, old[i].key);
            same(filch_complete(old[k], 7, filch_none(), FILCH_OK), FILCH_ESTALE);
        }
        assert_true(fli_yield_is_pending(&b.rt, old[i].key));
        if (i % 2 == 0) {
            fli_yield_abandon(&b.rt, &b.worker, p);
            continue;
        }
        ok(filch_complete(old[i], 7, filch_none(), FILCH_OK));
        same(read_completions(&b, p), 1);
        assert_true(bench_settle(&b, p, FLI_IDLE));
        same(fli_state_wake(&p->state, bench_gen(p)), FLI_DELIVERY_WOKE);
    }
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(any_number_of_yields_may_be_completed_in_any_order)
{
    enum { MANY = 100 };
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver receivers[MANY];
    for (uint64_t i = 0; i < MANY; i++) receivers[i] = fli_yield_receiver(&b.rt, open_yield(&b, p, i));
    same(p->yield_count, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t at = i * 37 % MANY;
        ok(filch_complete(receivers[at], at, filch_none(), FILCH_OK));
        if (i % 10 == 0) assert_in_range(read_completions(&b, p), 1, 10);
    }
    same(read_completions(&b, p), 9);
    same(p->yield_count, 0);
    /* Opens the yields again, in the list that is already allocated. */
    for (uint64_t i = 0; i < MANY; i++) (void)open_yield(&b, p, i);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(one_or_two_outstanding_yields_need_no_allocation)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    (void)open_yield(&b, p, 0); /* makes the slab allocate its first block of nodes */
    fli_yield_abandon(&b.rt, &b.worker, p);
    uint64_t asked = atomic_load(&b.alloc.asked);
    for (uint64_t i = 0; i < FLI_YIELDS_FEW; i++) (void)open_yield(&b, p, i);
    same(atomic_load(&b.alloc.asked), asked);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(no_memory_for_a_yield_changes_nothing)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    for (uint64_t i = 0; i < FLI_YIELDS_FEW; i++) (void)open_yield(&b, p, i);
    test_alloc_fail(&b.alloc, 1, true);
    assert_null(fli_yield_open(&b.rt, &b.worker, p, 300, 9));
    same(p->yield_count, FLI_YIELDS_FEW);
    test_alloc_fail(&b.alloc, 0, false);
    (void)open_yield(&b, p, 9);
    same(p->yield_count, FLI_YIELDS_FEW + 1);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(the_end_voids_outstanding_yields_and_calls_the_abandon_hook)
{
    bench b;
    bench_begin(&b);
    fli_proc       *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    fli_event_node *with = open_yield(&b, p, 1);
    with->data[0] = 4711;
    filch_receiver receiver = fli_yield_receiver(&b.rt, with), other = fli_yield_receiver(&b.rt, open_yield(&b, p, 2));
    uint32_t       command = 0;
    uint64_t       tag = 0;
    assert_true(fli_yield_first(&b.rt, p, &command, &tag));
    same(command, 300);
    same(tag, 1);
    assert_true(fli_yield_is_pending(&b.rt, receiver.key)); /* fli_yield_first() has given its claim back */
    same(bench_finish(&b, p), 0);
    same(fli_load_rlx(&b.abandoned), 1);
    same(b.cookie, 4711);
    same(filch_complete(receiver, 1, filch_none(), FILCH_OK), FILCH_ESTALE);
    same(filch_complete(other, 2, filch_none(), FILCH_OK), FILCH_ESTALE);
    bench_end(&b);
}

TEST(a_completed_yield_is_not_named_in_the_report)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    uint32_t  command = 0;
    uint64_t  tag = 0;
    assert_false(fli_yield_first(&b.rt, p, &command, &tag));
    ok(filch_complete(fli_yield_receiver(&b.rt, open_yield(&b, p, 1)), 1, filch_none(), FILCH_OK));
    assert_false(fli_yield_first(&b.rt, p, &command, &tag));
    (void)open_yield(&b, p, 2);
    assert_true(fli_yield_first(&b.rt, p, &command, &tag));
    same(tag, 2);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* A completion claims the node before the process ends and pushes it afterwards. The push finds no process, so the
 * completing thread frees the node itself. */
TEST(a_completion_after_the_end_is_freed_by_its_sender)
{
    bench b;
    bench_begin(&b);
    fli_proc       *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver  receiver = fli_yield_receiver(&b.rt, open_yield(&b, p, 1));
    fli_event_node *node;
    uint32_t        gen = bench_gen(p);
    assert_true(fli_yield_claim(&b.rt, receiver.key, &node));
    fli_event_node *again;
    assert_false(fli_yield_claim(&b.rt, receiver.key, &again));
    same(bench_finish(&b, p), 0);
    same(bench_nodes_out(&b), 1);
    same(fli_mail_post(&b.rt, &b.worker, p, gen, node), FILCH_EDEAD);
    fli_yield_drop(&b.rt, &b.worker, node);
    bench_end(&b);
}

/* Inside a handler the worker owns the process: a completion is appended to the process's list in order, without a
 * push and a wake-up. */
TEST(a_completion_inside_the_handler_needs_no_push)
{
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver receiver = fli_yield_receiver(&b.rt, open_yield(&b, p, 1));
    b.worker.current = p;
    b.worker.serial = fli_proc_serial(p);
    b.worker.dispatching = true;
    ok(filch_complete(receiver, 1, filch_none(), FILCH_OK));
    b.worker.dispatching = false;
    same(fli_word_head(fli_state_peek(&p->state)), 0);
    same(read_completions(&b, p), 1);
    same(fli_mail_held_head(p), 0);
    same(bench_nodes_out(&b), 0);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(a_completion_that_cannot_be_copied_leaves_the_yield_pending)
{
    bench b;
    bench_begin(&b);
    fli_proc      *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    filch_receiver receiver = fli_yield_receiver(&b.rt, open_yield(&b, p, 1));
    char           bytes[64] = { 0 };
    test_alloc_fail(&b.alloc, 1, true);
    same(filch_complete(receiver, 1, filch_bytes(bytes, sizeof bytes), FILCH_OK), FILCH_ENOMEM);
    test_alloc_fail(&b.alloc, 0, false);
    b.rt.payload_max = 63;
    same(filch_complete(receiver, 1, filch_bytes(bytes, sizeof bytes), FILCH_OK), FILCH_ETOOBIG);
    same(filch_complete(receiver, 1, filch_bytes(NULL, 5), FILCH_OK), FILCH_EINVAL);
    b.rt.payload_max = 0;
    ok(filch_complete(receiver, 1, filch_bytes(bytes, sizeof bytes), FILCH_OK));
    same(read_completions(&b, p), 1);
    fli_store_rel(&b.rt.phase, FLI_CLOSED);
    same(filch_complete(receiver, 1, filch_none(), FILCH_OK), FILCH_ECLOSED);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

/* ---- threads ---- */

enum { OUT = 8, COMPLETERS = 2 };

/* The owner opens yields and ends the process at some moment; meanwhile two threads complete all yields repeatedly. */
typedef struct race {
    bench                b;
    FLI_ATOMIC(uint64_t) keys[OUT];
    FLI_ATOMIC(bool)     over;
    FLI_ATOMIC(uint64_t) accepted, refused;
    FLI_ATOMIC(bool)     wrong;
} race;

typedef struct completer {
    race      *r;
    fli_local  worker;
    fli_thread thread;
} completer;

static FLI_ATOMIC(int64_t) blocks; /* number of payloads that are not freed */

static void on_free(void *user, void *bytes, size_t size)
{
    (void)user;
    (void)size;
    free(bytes);
    (void)fli_sub_acqrel(&blocks, 1);
}

static void complete_all(void *arg)
{
    completer *a = arg;
    race      *r = a->r;
    a->worker.rt = &r->b.rt;
    fli_current_set(&a->worker);
    for (uint64_t i = 0; !fli_load_acq(&r->over); i++) {
        uint64_t key = fli_load_acq(&r->keys[i % OUT]);
        if (key == 0) {
            if (i % OUT == 0) yield_slice();
            continue;
        }
        filch_receiver receiver = { .sched = (filch_sched *)&r->b.rt, .key = key, .tag = i % OUT };
        void          *bytes = malloc(32);
        (void)fli_add_acqrel(&blocks, 1);
        filch_err err = filch_complete(receiver, i % OUT, filch_move(bytes, 32, on_free), FILCH_OK);
        if (err == FILCH_OK) {
            fli_add_rlx(&r->accepted, 1);
        } else {
            if (err != FILCH_ESTALE && err != FILCH_EDEAD) fli_store_rlx(&r->wrong, true);
            on_free(NULL, bytes, 32); /* a refused completion does not take the payload, so this thread frees it */
            fli_add_rlx(&r->refused, 1);
        }
    }
    fli_slab_empty(&r->b.rt.nodes, &a->worker.nodes);
    fli_current_set(NULL);
}

TEST(completions_racing_with_the_end_are_delivered_or_refused_and_leak_nothing)
{
    static race      r;
    static completer completers[COMPLETERS];
    uint64_t         rounds = scaled(12000), read = 0, discarded = 0;
    memset(&r, 0, sizeof r);
    bench_begin(&r.b);
    fli_store_rlx(&blocks, 0);
    for (int i = 0; i < COMPLETERS; i++) {
        memset(&completers[i], 0, sizeof completers[i]);
        completers[i].r = &r;
        ok(fli_thread_start(&completers[i].thread, "completer", complete_all, &completers[i]));
    }
    /* On a loaded machine the completing threads may not run during the first rounds: the test continues until at least
     * one completion was refused. */
    for (uint64_t round = 0; round < rounds || (fli_load_rlx(&r.refused) == 0 && round < rounds * 1000); round++) {
        fli_proc *p = bench_spawn(&r.b, 0, 0, FILCH_OVERFLOW_FAIL);
        for (uint64_t i = 0; i < OUT; i++) {
            fli_event_node *node = open_yield(&r.b, p, i);
            fli_store_rel(&r.keys[i], fli_yield_receiver(&r.b.rt, node).key);
        }
        for (uint64_t k = 0; k < round % 4; k++) {
            if (k == 1) yield_slice();
            uint32_t command;
            uint64_t tag;
            (void)fli_yield_first(&r.b.rt, p, &command, &tag);
            read += read_completions(&r.b, p);
            assert_true(p->yield_count <= OUT);
        }
        /* Does what bench_finish() does, and also counts the completions that were pushed but not read. */
        uint32_t gen = bench_gen(p);
        fli_yield_abandon(&r.b.rt, &r.b.worker, p);
        uint64_t last = fli_state_finish(&p->state);
        fli_mail_unstack(&r.b.rt, &r.b.worker, p, fli_word_head(last));
        if (p->completions != 0) {
            uint32_t at = p->completions;
            do {
                discarded++;
                at = fli_node_at(&r.b.rt, at)->next;
            } while (at != p->completions);
        }
        same(fli_mail_discard(&r.b.rt, &r.b.worker, p, last), 0);
        (void)fli_limit_close(p, gen);
        assert_true(fli_state_free(&p->state));
        fli_slab_give(&r.b.rt.procs, &r.b.worker.procs, p);
    }
    fli_store_rel(&r.over, true);
    for (int i = 0; i < COMPLETERS; i++) fli_thread_join(&completers[i].thread);
    assert_false(fli_load_rlx(&r.wrong));
    same(fli_load_rlx(&r.accepted), read + discarded);
    same(fli_load_rlx(&blocks), 0);
    assert_true(fli_load_rlx(&r.refused) > 0);
    bench_end(&r.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_completion_counts_and_later_ones_are_stale),
        cmocka_unit_test(a_wrong_receiver_is_refused),
        cmocka_unit_test(an_old_receiver_never_completes_a_later_yield),
        cmocka_unit_test(any_number_of_yields_may_be_completed_in_any_order),
        cmocka_unit_test(one_or_two_outstanding_yields_need_no_allocation),
        cmocka_unit_test(no_memory_for_a_yield_changes_nothing),
        cmocka_unit_test(the_end_voids_outstanding_yields_and_calls_the_abandon_hook),
        cmocka_unit_test(a_completed_yield_is_not_named_in_the_report),
        cmocka_unit_test(a_completion_after_the_end_is_freed_by_its_sender),
        cmocka_unit_test(a_completion_inside_the_handler_needs_no_push),
        cmocka_unit_test(a_completion_that_cannot_be_copied_leaves_the_yield_pending),
        cmocka_unit_test(completions_racing_with_the_end_are_delivered_or_refused_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
