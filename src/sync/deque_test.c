/* deque_test.c - the deque on one thread: order, sizes, wrap-around, and races staged through the allocator. Tests
 * with many threads are in test/stress/deque_stress.c. */
#include "sync/deque.h"

#include <stdlib.h>

#include "support/check.h"

/* A function that the allocator `heap` below calls while a ring grows. */
typedef void act(void *arg);

/* An allocator that can refuse memory, and that calls `meanwhile` once, at the next allocation. */
typedef struct heap {
    size_t bytes;     /* bytes allocated now */
    bool   dry;       /* every allocation is refused */
    act   *meanwhile; /* function that is called once, at the next allocation */
    void  *arg;
} heap;

static void *heap_alloc(void *user, void *old, size_t old_size, size_t size)
{
    heap *h = user;
    if (size == 0) {
        h->bytes -= old_size;
        /* Overwrites freed memory, so that a thread that still reads it gets garbage. Volatile, because the compiler
         * would drop stores just before a free. */
        for (size_t i = 0; i < old_size; i++) ((volatile unsigned char *)old)[i] = 0xee;
        free(old);
        return NULL;
    }
    assert_null(old);
    if (h->meanwhile != NULL) {
        act *meanwhile = h->meanwhile;
        h->meanwhile = NULL;
        meanwhile(h->arg);
    }
    if (h->dry) return NULL;
    h->bytes += size;
    return malloc(size);
}

static void begin(fli_deque *deque, heap *h)
{
    fli_mem mem;
    *h = (heap){ 0 };
    fli_mem_init(&mem, heap_alloc, h);
    ok(fli_deque_init(deque, &mem));
}

static void end(fli_deque *deque, heap *h)
{
    fli_deque_fini(deque);
    same(h->bytes, 0);
}

/* Puts the deque into the state of one that was used for long: the next item gets the index `at`, and the tag is
 * `tag`. */
static void start_at(fli_deque *deque, uint32_t tag, uint32_t at)
{
    fli_store_rlx(&deque->word, ((uint64_t)tag << 32) | at);
    fli_store_rlx(&deque->bottom, at);
}

static uint32_t slots_of(fli_deque *deque)
{
    return fli_load_rlx(&deque->ring)->mask + 1;
}

/* Makes an item from a number. */
static void *item(uintptr_t number)
{
    return (void *)number; /* never dereferenced */
}

static uintptr_t number(void *it)
{
    return (uintptr_t)it;
}

static void push(fli_deque *deque, uintptr_t from, uintptr_t to)
{
    for (uintptr_t i = from; i <= to; i++) assert_true(fli_deque_push(deque, item(i)));
}

static uintptr_t pop(fli_deque *deque)
{
    return number(fli_deque_pop(deque));
}

static uintptr_t steal_one(fli_deque *deque)
{
    void *it = NULL;
    same(fli_deque_steal_one(deque, &it), FLI_STEAL_GOT);
    return number(it);
}

TEST(owner_gets_the_newest_first)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, 3);
    same(pop(&d), 3);
    push(&d, 4, 4);
    same(pop(&d), 4);
    same(pop(&d), 2);
    same(pop(&d), 1);
    same(pop(&d), 0);
    same(pop(&d), 0);
    end(&d, &h);
}

TEST(thieves_get_the_oldest_first)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, 4);
    same(steal_one(&d), 1);
    same(steal_one(&d), 2);
    same(pop(&d), 4);
    same(steal_one(&d), 3);
    void *it = item(77);
    same(fli_deque_steal_one(&d, &it), FLI_STEAL_EMPTY);
    same(number(it), 77);
    end(&d, &h);
}

TEST(owner_can_take_the_oldest)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    assert_null(fli_deque_take_oldest(&d));
    push(&d, 1, 3);
    same(number(fli_deque_take_oldest(&d)), 1);
    same(pop(&d), 3);
    same(number(fli_deque_take_oldest(&d)), 2);
    assert_null(fli_deque_take_oldest(&d));
    same(pop(&d), 0);
    push(&d, 4, 4);
    same(number(fli_deque_take_oldest(&d)), 4);
    end(&d, &h);
}

TEST(an_item_pushed_under_the_mark_comes_after_items_pushed_since)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, 1);
    uint32_t mark = fli_deque_mark(&d);
    push(&d, 3, 4);
    assert_true(fli_deque_push_under(&d, item(2), mark));
    same(fli_deque_count(&d), 4);
    same(pop(&d), 4);
    same(pop(&d), 3);
    same(pop(&d), 2);
    same(pop(&d), 1);
    /* No item was pushed since the mark: push_under is an ordinary push. */
    assert_true(fli_deque_push_under(&d, item(5), fli_deque_mark(&d)));
    same(pop(&d), 5);
    same(pop(&d), 0);
    end(&d, &h);
}

TEST(push_under_does_not_give_stolen_items_back)
{
    fli_deque d;
    heap      h;
    for (uint32_t stolen = 1; stolen <= 3; stolen++) {
        begin(&d, &h);
        uint32_t mark = fli_deque_mark(&d);
        push(&d, 1, 3);
        for (uint32_t i = 1; i <= stolen; i++) same(steal_one(&d), i);
        assert_true(fli_deque_push_under(&d, item(9), mark));
        for (uint32_t i = 3; i > stolen; i--) same(pop(&d), i);
        same(pop(&d), 9);
        same(pop(&d), 0);
        end(&d, &h);
    }
}

TEST(push_under_grows_a_full_ring_and_without_memory_changes_nothing)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, FLI_DEQUE_SLOTS - 2);
    uint32_t mark = fli_deque_mark(&d);
    push(&d, FLI_DEQUE_SLOTS - 1, FLI_DEQUE_SLOTS);
    h.dry = true;
    assert_false(fli_deque_push_under(&d, item(9999), mark));
    same(fli_deque_count(&d), FLI_DEQUE_SLOTS);
    h.dry = false;
    assert_true(fli_deque_push_under(&d, item(9999), mark));
    same(pop(&d), FLI_DEQUE_SLOTS);
    same(pop(&d), FLI_DEQUE_SLOTS - 1);
    same(pop(&d), 9999);
    for (uintptr_t i = FLI_DEQUE_SLOTS - 2; i >= 1; i--) same(pop(&d), i);
    same(pop(&d), 0);
    end(&d, &h);
}

TEST(count_follows_every_operation)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    same(fli_deque_count(&d), 0);
    push(&d, 1, 4);
    same(fli_deque_count(&d), 4);
    (void)pop(&d);
    same(fli_deque_count(&d), 3);
    (void)steal_one(&d);
    same(fli_deque_count(&d), 2);
    assert_non_null(fli_deque_take_oldest(&d));
    same(fli_deque_count(&d), 1);
    (void)pop(&d);
    (void)pop(&d);
    same(fli_deque_count(&d), 0);
    end(&d, &h);
}

TEST(growth_keeps_every_item_and_the_order)
{
    enum { MANY = FLI_DEQUE_SLOTS * 8 + 1 };
    fli_deque d;
    heap      h;
    begin(&d, &h);
    /* Moves the first item to the middle of the ring, so that the items that growth copies wrap around its end. */
    push(&d, 1, FLI_DEQUE_SLOTS - 1);
    for (uintptr_t i = 1; i < FLI_DEQUE_SLOTS; i++) same(steal_one(&d), i);
    push(&d, 1, MANY);
    same(slots_of(&d), FLI_DEQUE_SLOTS * 16);
    for (uintptr_t i = 1; i <= MANY / 2; i++) same(steal_one(&d), i);
    for (uintptr_t i = MANY; i > MANY / 2; i--) same(pop(&d), i);
    same(pop(&d), 0);
    end(&d, &h);
}

TEST(a_full_ring_that_is_emptied_is_used_again_without_growing)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    size_t before = h.bytes;
    for (uintptr_t round = 0; round < 100; round++) {
        push(&d, 1, FLI_DEQUE_SLOTS);
        for (uintptr_t i = 1; i <= FLI_DEQUE_SLOTS; i++) same(steal_one(&d), i);
    }
    same(h.bytes, before);
    end(&d, &h);
}

TEST(outgrown_rings_together_are_smaller_than_the_current_one)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    size_t overhead = h.bytes - FLI_DEQUE_SLOTS * sizeof(void *);
    push(&d, 1, FLI_DEQUE_SLOTS * 64);
    size_t current = slots_of(&d) * sizeof(void *);
    assert_true(h.bytes < 2 * current + 7 * (overhead + FLI_LINE));
    end(&d, &h);
}

TEST(push_without_memory_fails_and_changes_nothing)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, FLI_DEQUE_SLOTS);
    h.dry = true;
    uint64_t  word = fli_load_rlx(&d.word);
    uint32_t  bottom = fli_load_rlx(&d.bottom);
    fli_ring *ring = fli_load_rlx(&d.ring);
    assert_false(fli_deque_push(&d, item(99999)));
    assert_false(fli_deque_push(&d, item(99999)));
    assert_true(fli_load_rlx(&d.word) == word);
    same(fli_load_rlx(&d.bottom), bottom);
    assert_ptr_equal(fli_load_rlx(&d.ring), ring);
    /* One item is stolen and one is pushed into the free slot, which needs no memory. */
    same(steal_one(&d), 1);
    push(&d, FLI_DEQUE_SLOTS + 1, FLI_DEQUE_SLOTS + 1);
    assert_false(fli_deque_push(&d, item(99999)));
    h.dry = false;
    push(&d, FLI_DEQUE_SLOTS + 2, FLI_DEQUE_SLOTS + 2);
    for (uintptr_t i = FLI_DEQUE_SLOTS + 2; i >= 2; i--) same(pop(&d), i);
    same(pop(&d), 0);
    end(&d, &h);
}

TEST(init_without_memory_fails_and_leaves_nothing)
{
    fli_deque d;
    heap      h = { .dry = true };
    fli_mem   mem;
    fli_mem_init(&mem, heap_alloc, &h);
    same(fli_deque_init(&d, &mem), FILCH_ENOMEM);
    same(h.bytes, 0);
}

TEST(steal_half_takes_half_rounded_up_and_keeps_the_age_order)
{
    for (uint32_t size = 1; size <= 2 * FLI_DEQUE_STEAL_MAX + 9; size++) {
        fli_deque from, into;
        heap      hf, hi;
        begin(&from, &hf);
        begin(&into, &hi);
        push(&from, 1, size);
        uint32_t want = (size + 1) / 2;
        if (want > FLI_DEQUE_STEAL_MAX) want = FLI_DEQUE_STEAL_MAX;
        void    *first = NULL;
        uint32_t count = 0;
        same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_GOT);
        same(count, want);
        same(number(first), 1);
        same(fli_deque_count(&into), want - 1);
        for (uintptr_t i = 2; i <= want; i++) same(pop(&into), i);
        same(pop(&into), 0);
        for (uintptr_t i = size; i > want; i--) same(pop(&from), i);
        same(pop(&from), 0);
        end(&from, &hf);
        end(&into, &hi);
    }
}

TEST(steal_half_from_an_empty_deque_is_empty_and_writes_nothing)
{
    fli_deque from, into;
    heap      hf, hi;
    begin(&from, &hf);
    begin(&into, &hi);
    push(&into, 5, 5);
    void    *first = item(77);
    uint32_t count = 88;
    same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_EMPTY);
    push(&from, 1, 1);
    same(pop(&from), 1);
    same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_EMPTY);
    same(number(first), 77);
    same(count, 88);
    same(pop(&into), 5);
    same(pop(&into), 0);
    end(&from, &hf);
    end(&into, &hi);
}

TEST(stolen_items_go_above_what_the_thief_had)
{
    fli_deque from, into;
    heap      hf, hi;
    begin(&from, &hf);
    begin(&into, &hi);
    push(&from, 1, 6);
    push(&into, 100, 101);
    void    *first;
    uint32_t count;
    same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_GOT);
    same(count, 3);
    same(number(first), 1);
    same(pop(&into), 2);
    same(pop(&into), 3);
    same(pop(&into), 101);
    same(pop(&into), 100);
    end(&from, &hf);
    end(&into, &hi);
}

TEST(steal_half_takes_only_what_fits_when_the_thief_cannot_grow)
{
    for (uint32_t room = 0; room <= FLI_DEQUE_SLOTS; room++) {
        fli_deque from, into;
        heap      hf, hi;
        begin(&from, &hf);
        begin(&into, &hi);
        push(&from, 1, 2 * FLI_DEQUE_STEAL_MAX);
        push(&into, 1001, 1000 + FLI_DEQUE_SLOTS - room);
        hi.dry = true;
        uint32_t want = room + 1 < FLI_DEQUE_STEAL_MAX ? room + 1 : FLI_DEQUE_STEAL_MAX;
        void    *first;
        uint32_t count;
        same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_GOT);
        same(count, want);
        same(number(first), 1);
        for (uintptr_t i = 2; i <= want; i++) same(pop(&into), i);
        for (uintptr_t i = FLI_DEQUE_SLOTS - room; i >= 1; i--) same(pop(&into), 1000 + i);
        same(pop(&into), 0);
        same(steal_one(&from), want + 1);
        same(fli_deque_count(&from), 2 * FLI_DEQUE_STEAL_MAX - want - 1);
        end(&from, &hf);
        end(&into, &hi);
    }
}

TEST(all_operations_work_while_indices_wrap_around)
{
    for (uint32_t before = 0; before <= 2 * FLI_DEQUE_SLOTS; before++) {
        fli_deque d, into;
        heap      h, hi;
        begin(&d, &h);
        begin(&into, &hi);
        start_at(&d, 7, UINT32_MAX - before);
        start_at(&into, 7, UINT32_MAX - before / 2);
        same(pop(&d), 0);
        push(&d, 1, 2 * FLI_DEQUE_SLOTS + 3); /* the deque also grows while the indices wrap around */
        same(fli_deque_count(&d), 2 * FLI_DEQUE_SLOTS + 3);
        same(number(fli_deque_take_oldest(&d)), 1);
        same(steal_one(&d), 2);
        void    *first;
        uint32_t count;
        same(fli_deque_steal_half_into(&d, &into, &first, &count), FLI_STEAL_GOT);
        same(number(first), 3);
        for (uintptr_t i = 4; i < 3 + count; i++) same(pop(&into), i);
        same(pop(&into), 0);
        for (uintptr_t i = 2 * FLI_DEQUE_SLOTS + 3; i >= 3 + count; i--) same(pop(&d), i);
        same(pop(&d), 0);
        void *it;
        same(fli_deque_steal_one(&d, &it), FLI_STEAL_EMPTY);
        end(&d, &h);
        end(&into, &hi);
    }
}

TEST(the_tag_wraps_without_touching_the_top)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    start_at(&d, UINT32_MAX, UINT32_MAX);
    push(&d, 1, 3);
    same(pop(&d), 3);
    assert_true(fli_load_rlx(&d.word) == UINT32_MAX); /* the tag wraps to 0, top is unchanged */
    same(steal_one(&d), 1);
    assert_true(fli_load_rlx(&d.word) == 0); /* top wraps to 0 and does not carry into the tag */
    same(pop(&d), 2);
    same(pop(&d), 0);
    end(&d, &h);
}

/* Staged races: the thief's deque has to grow between look() and claim(); the allocator then calls a function that
 * changes the victim's deque. */

enum { FULL = 2 * FLI_DEQUE_STEAL_MAX };

static void begin_race(fli_deque *from, heap *hf, fli_deque *into, heap *hi, act *meanwhile)
{
    begin(from, hf);
    begin(into, hi);
    push(from, 1, FULL);
    push(into, 1001, 1000 + FLI_DEQUE_SLOTS);
    hi->meanwhile = meanwhile;
    hi->arg = from;
}

static void check_untouched_thief(fli_deque *into)
{
    same(fli_deque_count(into), FLI_DEQUE_SLOTS);
    for (uintptr_t i = FLI_DEQUE_SLOTS; i >= 1; i--) same(pop(into), 1000 + i);
}

static void owner_pops_one(void *deque)
{
    same(pop(deque), FULL);
}

static void owner_pops_all(void *deque)
{
    for (uintptr_t i = FULL; i >= 1; i--) same(pop(deque), i);
}

static void owner_pops_and_pushes(void *deque)
{
    same(pop(deque), FULL);
    push(deque, FULL, FULL);
}

static void another_thief_takes_one(void *deque)
{
    same(steal_one(deque), 1);
}

static void owner_pushes_until_it_grows(void *deque)
{
    uint32_t slots = slots_of(deque);
    for (uintptr_t i = FULL + 1; slots_of(deque) == slots; i++) push(deque, i, i);
}

TEST(a_pop_or_steal_between_look_and_claim_makes_the_thief_try_again)
{
    static act *const     acts[] = { owner_pops_one, owner_pops_all, owner_pops_and_pushes, another_thief_takes_one };
    static const uint32_t left[] = { FULL - 1, 0, FULL, FULL - 1 };
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        fli_deque from, into;
        heap      hf, hi;
        begin_race(&from, &hf, &into, &hi, acts[i]);
        void    *first = item(77);
        uint32_t count = 88;
        same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_RETRY);
        same(number(first), 77);
        same(count, 88);
        same(fli_deque_count(&from), left[i]);
        check_untouched_thief(&into);
        end(&from, &hf);
        end(&into, &hi);
    }
}

TEST(a_growth_between_look_and_claim_does_not_disturb_the_thief)
{
    fli_deque from, into;
    heap      hf, hi;
    begin_race(&from, &hf, &into, &hi, owner_pushes_until_it_grows);
    void    *first;
    uint32_t count;
    same(fli_deque_steal_half_into(&from, &into, &first, &count), FLI_STEAL_GOT);
    same(count, FLI_DEQUE_STEAL_MAX);
    same(number(first), 1);
    for (uintptr_t i = 2; i <= count; i++) same(pop(&into), i);
    check_untouched_thief(&into);
    for (uintptr_t i = count + fli_deque_count(&from); i > count; i--) same(pop(&from), i);
    same(pop(&from), 0);
    end(&from, &hf);
    end(&into, &hi);
}

TEST(a_pop_that_has_lost_its_item_looks_empty_to_a_thief)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    push(&d, 1, 1);
    same(steal_one(&d), 1);
    /* Sets the state inside a pop that has lost its item: bottom is one below top. */
    fli_store_rlx(&d.bottom, 0);
    void *it;
    same(fli_deque_steal_one(&d, &it), FLI_STEAL_EMPTY);
    same(fli_deque_count(&d), 0);
    fli_store_rlx(&d.bottom, 1);
    end(&d, &h);
}

TEST(a_steal_with_inconsistent_loads_is_a_retry_and_not_empty)
{
    fli_deque d;
    heap      h;
    begin(&d, &h);
    /* Sets the values that a thief reads if it was suspended between its loads of `word` and `bottom`: the distance
     * from top to `bottom` is larger than the ring. */
    fli_store_rlx(&d.bottom, FLI_DEQUE_SLOTS + 1);
    void *it;
    same(fli_deque_steal_one(&d, &it), FLI_STEAL_RETRY);
    fli_store_rlx(&d.bottom, UINT32_C(1) << 31);
    same(fli_deque_steal_one(&d, &it), FLI_STEAL_RETRY);
    fli_store_rlx(&d.bottom, 0);
    end(&d, &h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owner_gets_the_newest_first),
        cmocka_unit_test(thieves_get_the_oldest_first),
        cmocka_unit_test(owner_can_take_the_oldest),
        cmocka_unit_test(an_item_pushed_under_the_mark_comes_after_items_pushed_since),
        cmocka_unit_test(push_under_does_not_give_stolen_items_back),
        cmocka_unit_test(push_under_grows_a_full_ring_and_without_memory_changes_nothing),
        cmocka_unit_test(count_follows_every_operation),
        cmocka_unit_test(growth_keeps_every_item_and_the_order),
        cmocka_unit_test(a_full_ring_that_is_emptied_is_used_again_without_growing),
        cmocka_unit_test(outgrown_rings_together_are_smaller_than_the_current_one),
        cmocka_unit_test(push_without_memory_fails_and_changes_nothing),
        cmocka_unit_test(init_without_memory_fails_and_leaves_nothing),
        cmocka_unit_test(steal_half_takes_half_rounded_up_and_keeps_the_age_order),
        cmocka_unit_test(steal_half_from_an_empty_deque_is_empty_and_writes_nothing),
        cmocka_unit_test(stolen_items_go_above_what_the_thief_had),
        cmocka_unit_test(steal_half_takes_only_what_fits_when_the_thief_cannot_grow),
        cmocka_unit_test(all_operations_work_while_indices_wrap_around),
        cmocka_unit_test(the_tag_wraps_without_touching_the_top),
        cmocka_unit_test(a_pop_or_steal_between_look_and_claim_makes_the_thief_try_again),
        cmocka_unit_test(a_growth_between_look_and_claim_does_not_disturb_the_thief),
        cmocka_unit_test(a_pop_that_has_lost_its_item_looks_empty_to_a_thief),
        cmocka_unit_test(a_steal_with_inconsistent_loads_is_a_retry_and_not_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
