/* state_test.c - every transition of the state word and its result, and that no wake-up between threads is lost. */
#include "proc/state.h"

#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

#define GEN 5u

static uint64_t at(unsigned state, uint64_t flags, uint32_t head)
{
    return fli_word_make(GEN, state, flags) | head;
}

#define expect_word(state, want_state, want_flags, want_head)                                           \
    do {                                                                                                \
        uint64_t word_ = fli_state_peek(&(state));                                                      \
        same(fli_word_state(word_), (want_state));                                                      \
        same(word_ &(FLI_LIMITED | FLI_CANCEL | FLI_KILL | FLI_HAS_RELATIONS | FLI_ASK), (want_flags)); \
        same(fli_word_head(word_), (want_head));                                                        \
        same(fli_word_gen(word_), GEN);                                                                 \
    } while (0)

static const unsigned live_states[] = { FLI_ACTIVE, FLI_IDLE, FLI_BLOCKED };

TEST(a_new_process_is_active_with_an_empty_mailbox)
{
    fli_state state = at(FLI_FREE, 0, 0);
    fli_state_open(&state, GEN, false);
    expect_word(state, FLI_ACTIVE, 0, 0);
    state = at(FLI_FREE, 0, 0);
    fli_state_open(&state, GEN, true);
    expect_word(state, FLI_ACTIVE, FLI_LIMITED, 0);
}

TEST(a_message_wakes_an_idle_process_and_only_queues_for_others)
{
    uint32_t  next = 99;
    fli_state state = at(FLI_ACTIVE, FLI_LIMITED, 3);
    same(fli_state_push(&state, GEN, 8, &next, false), FLI_DELIVERY_NOTED);
    same(next, 3);
    expect_word(state, FLI_ACTIVE, FLI_LIMITED, 8);

    state = at(FLI_BLOCKED, 0, 0);
    same(fli_state_push(&state, GEN, 8, &next, false), FLI_DELIVERY_NOTED);
    same(next, 0);
    expect_word(state, FLI_BLOCKED, 0, 8);

    state = at(FLI_IDLE, FLI_LIMITED, 0);
    same(fli_state_push(&state, GEN, 8, &next, false), FLI_DELIVERY_WOKE);
    expect_word(state, FLI_ACTIVE, FLI_LIMITED, 8);
}

TEST(a_completion_wakes_idle_and_blocked_processes)
{
    uint32_t next;
    for (int i = 0; i < 3; i++) {
        fli_state state = at(live_states[i], 0, 0);
        same(fli_state_push(&state, GEN, 8, &next, true),
             live_states[i] == FLI_ACTIVE ? FLI_DELIVERY_NOTED : FLI_DELIVERY_WOKE);
        expect_word(state, FLI_ACTIVE, 0, 8);
    }
}

TEST(a_cancel_or_kill_wakes_a_sleeping_process_and_counts_once)
{
    const uint64_t flags[] = { FLI_CANCEL, FLI_KILL, FLI_ASK };
    for (int f = 0; f < 3; f++) {
        for (int i = 0; i < 3; i++) {
            fli_state state = at(live_states[i], 0, 4);
            same(fli_state_set_flag(&state, GEN, flags[f]),
                 live_states[i] == FLI_ACTIVE ? FLI_DELIVERY_NOTED : FLI_DELIVERY_WOKE);
            expect_word(state, FLI_ACTIVE, flags[f], 4);
            same(fli_state_set_flag(&state, GEN, flags[f]), FLI_DELIVERY_NOTED);
            expect_word(state, FLI_ACTIVE, flags[f], 4);
        }
    }
    fli_state state = at(FLI_IDLE, 0, 0);
    same(fli_state_set_flag(&state, GEN, FLI_CANCEL), FLI_DELIVERY_WOKE);
    same(fli_state_set_flag(&state, GEN, FLI_KILL), FLI_DELIVERY_NOTED);
    expect_word(state, FLI_ACTIVE, FLI_CANCEL | FLI_KILL, 0);
    fli_state_take_cancel(&state);
    expect_word(state, FLI_ACTIVE, FLI_KILL, 0);
}

TEST(a_process_can_be_woken_without_an_event)
{
    for (int i = 0; i < 3; i++) {
        fli_state state = at(live_states[i], FLI_LIMITED, 6);
        same(fli_state_wake(&state, GEN), live_states[i] == FLI_ACTIVE ? FLI_DELIVERY_NOTED : FLI_DELIVERY_WOKE);
        expect_word(state, FLI_ACTIVE, FLI_LIMITED, 6);
    }
}

/* A call with another generation, and every call after the end of the process, changes nothing. */
TEST(a_stale_pid_reaches_no_process)
{
    for (unsigned s = FLI_FREE; s <= FLI_DONE; s++) {
        for (uint32_t gen = GEN - 1; gen <= GEN + 1; gen++) {
            if (gen == GEN && s != FLI_FREE && s != FLI_DONE) continue;
            fli_state state = at(s, 0, 0);
            uint64_t  before = fli_state_peek(&state);
            uint32_t  next;
            same(fli_state_push(&state, gen, 8, &next, true), FLI_DELIVERY_DEAD);
            same(fli_state_set_flag(&state, gen, FLI_CANCEL), FLI_DELIVERY_DEAD);
            same(fli_state_set_flag(&state, gen, FLI_KILL), FLI_DELIVERY_DEAD);
            same(fli_state_wake(&state, gen), FLI_DELIVERY_DEAD);
            assert_false(fli_word_lives(before, gen));
            same(fli_state_peek(&state), before);
        }
    }
}

/* A pid's generation has more bits than the state word: the upper bits of the pid's generation must not be ignored. */
TEST(a_generation_too_large_for_the_word_reaches_no_process)
{
    fli_state state = at(FLI_IDLE, 0, 0);
    for (unsigned bit = 26; bit < 32; bit++) same(fli_state_wake(&state, GEN | 1u << bit), FLI_DELIVERY_DEAD);
    expect_word(state, FLI_IDLE, 0, 0);
}

static unsigned raw_state(fli_state *state)
{
    return (unsigned)((fli_state_peek(state) & FLI_STATE_MASK) >> FLI_STATE_SHIFT);
}

/* Returns the word of a process that is ACTIVE_ONE with node 8 as its head. */
static uint64_t active_one(uint64_t flags)
{
    uint32_t  next = 99;
    fli_state state = at(FLI_IDLE, flags, 0);
    assert_true(fli_state_push_idle(&state, fli_state_peek(&state), 8, &next));
    same(next, 0);
    same(raw_state(&state), FLI_ACTIVE_ONE);
    /* fli_word_state(), which expect_word() uses, reports ACTIVE_ONE as ACTIVE */
    expect_word(state, FLI_ACTIVE, flags, 8);
    return fli_state_peek(&state);
}

TEST(any_further_event_turns_active_one_into_active)
{
    uint32_t  next;
    fli_state state = active_one(0);
    same(fli_state_push(&state, GEN, 9, &next, true), FLI_DELIVERY_NOTED);
    same(next, 8);
    same(raw_state(&state), FLI_ACTIVE);
    expect_word(state, FLI_ACTIVE, 0, 9);

    state = active_one(0);
    assert_true(fli_state_push_awake(&state, fli_state_peek(&state), 9, &next));
    same(next, 8);
    same(raw_state(&state), FLI_ACTIVE);
    expect_word(state, FLI_ACTIVE, 0, 9);

    const uint64_t flags[] = { FLI_CANCEL, FLI_KILL, FLI_ASK };
    for (int f = 0; f < 3; f++) {
        state = active_one(FLI_HAS_RELATIONS);
        same(fli_state_set_flag(&state, GEN, flags[f]), FLI_DELIVERY_NOTED);
        same(raw_state(&state), FLI_ACTIVE);
        expect_word(state, FLI_ACTIVE, FLI_HAS_RELATIONS | flags[f], 8);
    }
}

TEST(active_one_survives_a_relation_and_a_wake_without_event)
{
    fli_state state = active_one(0);
    assert_true(fli_state_set_related(&state, GEN));
    same(fli_state_wake(&state, GEN), FLI_DELIVERY_NOTED);
    same(raw_state(&state), FLI_ACTIVE_ONE);
    expect_word(state, FLI_ACTIVE, FLI_HAS_RELATIONS, 8);
}

TEST(active_one_settles_as_idle_or_blocked_unless_an_event_arrived)
{
    uint32_t  next;
    fli_state state = active_one(FLI_HAS_RELATIONS);
    uint64_t  word = fli_state_peek(&state);
    same(fli_state_settle_one(&state, word), FLI_SETTLED);
    same(raw_state(&state), FLI_IDLE);
    expect_word(state, FLI_IDLE, FLI_HAS_RELATIONS, 0);

    state = active_one(0);
    same(fli_state_settle(&state, 8, FLI_BLOCKED), FLI_SETTLED);
    same(raw_state(&state), FLI_BLOCKED);
    expect_word(state, FLI_BLOCKED, 0, 0);

    state = active_one(0);
    word = fli_state_peek(&state);
    same(fli_state_push(&state, GEN, 9, &next, false), FLI_DELIVERY_NOTED);
    same(fli_state_settle_one(&state, word), FLI_SETTLE_NOTIFIED);
    expect_word(state, FLI_ACTIVE, 0, 9);

    state = active_one(0);
    fli_state last = fli_state_finish(&state);
    expect_word(last, FLI_ACTIVE, 0, 8);
    expect_word(state, FLI_DONE, 0, 0);
}

/* Goes through all states, with several flags: FLI_IS_AWAKE must hold exactly for words to which the fast path may push
 * without a wake-up. */
TEST(the_difference_to_an_idle_word_tells_which_words_are_awake)
{
    for (unsigned s = FLI_FREE; s <= FLI_ACTIVE_ONE; s++) {
        bool awake = s == FLI_ACTIVE || s == FLI_BLOCKED || s == FLI_ACTIVE_ONE;
        same(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN, s, 5), GEN)), awake);
        same(fli_word_differs(fli_word_make(GEN, s, 0), GEN) == 0, s == FLI_IDLE);
        assert_false(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN + 1, s, 5), GEN)));
        assert_false(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN, s, 5), GEN | 1u << 24)));
        assert_false(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN, s, FLI_LIMITED | 5), GEN)));
        assert_false(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN, s, FLI_KILL | 5), GEN)));
        same(FLI_IS_AWAKE(fli_word_differs(fli_word_make(GEN, s, FLI_HAS_RELATIONS | 5), GEN)), awake);
    }
}

TEST(settling_clears_the_head)
{
    fli_state state = at(FLI_ACTIVE, FLI_LIMITED, 9);
    same(fli_state_settle(&state, 9, FLI_IDLE), FLI_SETTLED);
    expect_word(state, FLI_IDLE, FLI_LIMITED, 0);
    state = at(FLI_ACTIVE, 0, 0);
    same(fli_state_settle(&state, 0, FLI_BLOCKED), FLI_SETTLED);
    expect_word(state, FLI_BLOCKED, 0, 0);
}

TEST(settling_is_refused_if_an_event_or_flag_arrived)
{
    uint32_t  next;
    fli_state state = at(FLI_ACTIVE, 0, 9);
    same(fli_state_push(&state, GEN, 10, &next, false), FLI_DELIVERY_NOTED);
    same(fli_state_settle(&state, 9, FLI_IDLE), FLI_SETTLE_NOTIFIED);
    expect_word(state, FLI_ACTIVE, 0, 10);
    same(fli_state_settle(&state, 10, FLI_IDLE), FLI_SETTLED);

    const uint64_t flags[] = { FLI_CANCEL, FLI_KILL, FLI_ASK };
    for (int f = 0; f < 3; f++) {
        state = at(FLI_ACTIVE, 0, 9);
        same(fli_state_set_flag(&state, GEN, flags[f]), FLI_DELIVERY_NOTED);
        same(fli_state_settle(&state, 9, FLI_BLOCKED), FLI_SETTLE_NOTIFIED);
        expect_word(state, FLI_ACTIVE, flags[f], 9);
    }
    state = at(FLI_ACTIVE, FLI_CANCEL, 9);
    fli_state_take_cancel(&state);
    same(fli_state_settle(&state, 9, FLI_IDLE), FLI_SETTLED);
}

TEST(finishing_returns_the_last_nodes_and_refuses_pushes)
{
    uint32_t  next;
    fli_state state = at(FLI_ACTIVE, FLI_CANCEL | FLI_LIMITED, 12);
    same(fli_word_head(fli_state_finish(&state)), 12);
    expect_word(state, FLI_DONE, 0, 0);
    same(fli_state_push(&state, GEN, 8, &next, true), FLI_DELIVERY_DEAD);
    assert_true(fli_state_free(&state));
    same(fli_word_state(fli_state_peek(&state)), FLI_FREE);
    same(fli_word_gen(fli_state_peek(&state)), GEN + 1);
}

TEST(the_last_generation_of_a_slot_is_never_used_again)
{
    fli_state state = fli_word_make(FLI_GEN_LAST - 1, FLI_DONE, 0);
    assert_true(fli_state_free(&state));
    fli_state_open(&state, FLI_GEN_LAST, false);
    (void)fli_state_finish(&state);
    assert_false(fli_state_free(&state));
    same(fli_word_gen(fli_state_peek(&state)), FLI_GEN_LAST);
    same(fli_state_wake(&state, FLI_GEN_LAST), FLI_DELIVERY_DEAD);
}

TEST(the_fast_exit_frees_the_slot_with_the_next_generation)
{
    uint32_t  next;
    fli_state state = at(FLI_ACTIVE, 0, 0);
    assert_true(fli_state_exit(&state, at(FLI_ACTIVE, 0, 0)));
    same(fli_state_peek(&state), fli_word_make(GEN + 1, FLI_FREE, 0));
    same(fli_state_push(&state, GEN, 8, &next, true), FLI_DELIVERY_DEAD);
    same(fli_state_push(&state, GEN + 1, 8, &next, true), FLI_DELIVERY_DEAD);
}

TEST(the_fast_exit_needs_an_empty_mailbox)
{
    fli_state state = at(FLI_ACTIVE, 0, 8);
    assert_false(fli_state_exit(&state, at(FLI_ACTIVE, 0, 7)));
    assert_false(fli_state_exit(&state, at(FLI_ACTIVE, 0, 0)));
    same(fli_state_peek(&state), at(FLI_ACTIVE, 0, 8));
    assert_true(fli_state_exit(&state, at(FLI_ACTIVE, 0, 8)));
    same(fli_state_peek(&state), fli_word_make(GEN + 1, FLI_FREE, 0));
    state = at(FLI_ACTIVE_ONE, 0, 8);
    assert_false(fli_state_exit(&state, at(FLI_ACTIVE, 0, 8)));
    assert_true(fli_state_exit(&state, at(FLI_ACTIVE_ONE, 0, 8)));
    same(fli_state_peek(&state), fli_word_make(GEN + 1, FLI_FREE, 0));
}

TEST(the_fast_exit_refuses_flags_and_the_last_generation)
{
    const uint64_t words[] = { at(FLI_ACTIVE, FLI_LIMITED, 0),
                               at(FLI_ACTIVE, FLI_CANCEL, 0),
                               at(FLI_ACTIVE, FLI_KILL, 0),
                               at(FLI_ACTIVE, FLI_HAS_RELATIONS, 8),
                               at(FLI_IDLE, 0, 0),
                               at(FLI_DONE, 0, 0),
                               fli_word_make(FLI_GEN_LAST, FLI_ACTIVE, 0),
                               fli_word_make(FLI_GEN_LAST, FLI_ACTIVE, 0) | 8 };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        /* The first call passes words[i] itself. The second call passes a word without flag and head, as if the worker
         * had read the state before it became words[i]. */
        fli_state state = words[i];
        assert_false(fli_state_exit(&state, words[i]));
        same(fli_state_peek(&state), words[i]);
        assert_false(fli_state_exit(&state, at(FLI_ACTIVE, 0, 0)));
        same(fli_state_peek(&state), words[i]);
    }
}

/* ---- threads ---- */

enum { PUSHERS = 3, NODES = 64 };

/* State of the thread test: pusher threads push their own nodes and wait until the owner gives the nodes back. A pusher
 * that gets WOKE puts the process on the "queue" (`queued`), which must be empty. The owner takes the process from the
 * queue, takes all nodes from the mailbox, and settles. */
typedef struct arena {
    fli_state            state;
    FLI_ATOMIC(bool)     queued;
    FLI_ATOMIC(uint64_t) doubles; /* number of wake-ups while the process was queued or running */
    FLI_ATOMIC(uint64_t) sleeps, wakes;
    FLI_ATOMIC(uint32_t) pushing;                   /* number of pushers that are not finished */
    uint32_t             next[1 + PUSHERS * NODES]; /* link of each node. Not atomic: passed to the owner by the push */
    FLI_ATOMIC(bool)     back[1 + PUSHERS * NODES];
    /* value that the pusher wrote into each node. Not atomic: passed to the owner by the push */
    uint64_t seen[1 + PUSHERS * NODES];
    uint64_t expected[PUSHERS]; /* next number expected of each pusher. Not atomic: used by the owner alone */
    bool     disorder;
    uint64_t rounds, taken;
} arena;

typedef struct pusher {
    arena     *a;
    uint32_t   index;
    fli_thread thread;
} pusher;

static void push_many(void *arg)
{
    pusher *me = arg;
    arena  *a = me->a;
    for (uint64_t i = 0; i < a->rounds; i++) {
        uint32_t node = 1 + me->index * NODES + (uint32_t)(i % NODES);
        while (!fli_load_acq(&a->back[node])) yield_slice();
        fli_store_rlx(&a->back[node], false);
        a->seen[node] = i;
        fli_delivery delivery = i % 16 == 3 ? fli_state_wake(&a->state, GEN) : FLI_DELIVERY_NOTED;
        for (int k = 0; k < 2; k++) {
            if (delivery == FLI_DELIVERY_WOKE) {
                fli_add_rlx(&a->wakes, 1);
                if (fli_swap_acqrel(&a->queued, true)) fli_add_rlx(&a->doubles, 1);
            }
            if (k == 0) delivery = fli_state_push(&a->state, GEN, node, &a->next[node], true);
        }
    }
    (void)fli_sub_acqrel(&a->pushing, 1);
}

/* Takes all nodes that are newer than `*seen`, oldest first. Gives the node `*seen` back to its pusher, because the
 * head has moved on. */
static void empty(arena *a, uint32_t head, uint32_t *seen)
{
    uint32_t turned = 0, stop = *seen;
    if (head == stop) return;
    for (uint32_t node = head; node != stop;) {
        uint32_t older = a->next[node];
        a->next[node] = turned;
        turned = node;
        node = older;
    }
    if (stop != 0) fli_store_rel(&a->back[stop], true);
    while (turned != 0) {
        uint32_t node = turned, pusher_index = (node - 1) / NODES;
        turned = a->next[node];
        if (a->seen[node] != a->expected[pusher_index]++) a->disorder = true;
        a->taken++;
        if (node != head) fli_store_rel(&a->back[node], true);
    }
    *seen = head;
}

static void own(arena *a)
{
    while (fli_load_acq(&a->pushing) > 0 || fli_load_acq(&a->queued)) {
        if (!fli_load_acq(&a->queued)) {
            yield_slice();
            continue;
        }
        fli_store_rel(&a->queued, false);
        uint32_t seen = 0;
        unsigned settle_to = a->taken % 2 == 0 ? FLI_IDLE : FLI_BLOCKED;
        for (;;) {
            empty(a, fli_word_head(fli_state_look(&a->state)), &seen);
            if (fli_state_settle(&a->state, seen, settle_to) == FLI_SETTLED) break;
        }
        fli_add_rlx(&a->sleeps, 1);
        if (seen != 0) fli_store_rel(&a->back[seen], true);
    }
}

TEST(each_sleep_has_one_waker_and_no_node_is_lost)
{
    static arena a;
    pusher       pushers[PUSHERS];
    a = (arena){ .rounds = scaled(2000000) };
    fli_store_rlx(&a.state, fli_word_make(GEN, FLI_ACTIVE, 0));
    fli_store_rlx(&a.queued, true);
    fli_store_rlx(&a.pushing, PUSHERS);
    for (int i = 1; i <= PUSHERS * NODES; i++) fli_store_rlx(&a.back[i], true);
    for (uint32_t i = 0; i < PUSHERS; i++) {
        pushers[i] = (pusher){ .a = &a, .index = i };
        ok(fli_thread_start(&pushers[i].thread, "pusher", push_many, &pushers[i]));
    }
    own(&a);
    for (int i = 0; i < PUSHERS; i++) fli_thread_join(&pushers[i].thread);
    same(a.taken, PUSHERS * a.rounds);
    assert_false(a.disorder);
    same(fli_load_rlx(&a.doubles), 0);
    same(fli_load_rlx(&a.sleeps), fli_load_rlx(&a.wakes) + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_process_is_active_with_an_empty_mailbox),
        cmocka_unit_test(a_message_wakes_an_idle_process_and_only_queues_for_others),
        cmocka_unit_test(a_completion_wakes_idle_and_blocked_processes),
        cmocka_unit_test(a_cancel_or_kill_wakes_a_sleeping_process_and_counts_once),
        cmocka_unit_test(a_process_can_be_woken_without_an_event),
        cmocka_unit_test(a_stale_pid_reaches_no_process),
        cmocka_unit_test(a_generation_too_large_for_the_word_reaches_no_process),
        cmocka_unit_test(any_further_event_turns_active_one_into_active),
        cmocka_unit_test(active_one_survives_a_relation_and_a_wake_without_event),
        cmocka_unit_test(active_one_settles_as_idle_or_blocked_unless_an_event_arrived),
        cmocka_unit_test(the_difference_to_an_idle_word_tells_which_words_are_awake),
        cmocka_unit_test(settling_clears_the_head),
        cmocka_unit_test(settling_is_refused_if_an_event_or_flag_arrived),
        cmocka_unit_test(finishing_returns_the_last_nodes_and_refuses_pushes),
        cmocka_unit_test(the_last_generation_of_a_slot_is_never_used_again),
        cmocka_unit_test(the_fast_exit_frees_the_slot_with_the_next_generation),
        cmocka_unit_test(the_fast_exit_needs_an_empty_mailbox),
        cmocka_unit_test(the_fast_exit_refuses_flags_and_the_last_generation),
        cmocka_unit_test(each_sleep_has_one_waker_and_no_node_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
