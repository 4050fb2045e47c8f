/* slab_test.c - handles are unique and may be given back by any thread; a slab that cannot grow stays unchanged. */
#include "sync/slab.h"

#include <stdlib.h>
#include <string.h>

#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

typedef struct thing {
    uint32_t self;
    uint32_t made; /* number of times the object was initialised by `make` */
    uint32_t mark;
    uint32_t fill[13];
} thing;

static void make_thing(void *object, uint32_t handle)
{
    thing *t = object;
    t->self = handle;
    t->made++;
}

static fli_mem mem_of(test_alloc *alloc)
{
    fli_mem mem;
    fli_mem_init(&mem, test_alloc_fn, alloc);
    return mem;
}

static void begin(fli_slab *slab, test_alloc *alloc, uint32_t max)
{
    fli_mem mem = mem_of(alloc);
    ok(fli_slab_init(slab, &mem, sizeof(thing), max, make_thing));
}

static void end(fli_slab *slab, test_alloc *alloc)
{
    fli_slab_fini(slab);
    test_alloc_balanced(alloc);
}

/* Takes an object and returns its handle. */
static uint32_t take(fli_slab *slab, fli_magazine *magazine)
{
    thing *t = fli_slab_take(slab, magazine);
    assert_non_null(t);
    assert_ptr_equal(fli_slab_at(slab, t->self), t);
    return t->self;
}

static void give(fli_slab *slab, fli_magazine *magazine, uint32_t handle)
{
    fli_slab_give(slab, magazine, fli_slab_at(slab, handle));
}

TEST(a_handle_names_its_own_object_which_was_made_once)
{
    test_alloc alloc = { 0 };
    fli_slab   slab;
    begin(&slab, &alloc, UINT32_MAX - 1);
    /* Takes enough objects for several segments, each as large as all earlier segments together. */
    for (uint32_t i = 1; i <= 5000; i++) {
        uint32_t handle = take(&slab, NULL);
        thing   *t = fli_slab_at(&slab, handle);
        same((uintptr_t)t % 64, 0);
        same(t->self, handle);
        same(t->made, 1);
        same(t->mark, 0);
        t->mark = handle;
        assert_ptr_equal(fli_slab_find(&slab, handle), t);
    }
    for (uint32_t handle = 1; handle <= 5000; handle++) same(((thing *)fli_slab_at(&slab, handle))->mark, handle);
    end(&slab, &alloc);
}

TEST(no_handle_is_taken_twice)
{
    enum { MANY = 3000 };
    static uint8_t out[MANY * 2];
    test_alloc     alloc = { 0 };
    fli_slab       slab;
    fli_magazine   magazine = { 0 };
    uint32_t       held[MANY], count = 0, seed = 1;
    memset(out, 0, sizeof out);
    begin(&slab, &alloc, UINT32_MAX - 1);
    for (int i = 0; i < 100000; i++) {
        seed = seed * 1664525u + 1013904223u;
        fli_magazine *with = seed >> 31 != 0 ? &magazine : NULL;
        /* Long runs of takes and of gives, so that the magazine fills and empties. */
        bool taking = count == 0 || (count < MANY && (i / 700) % 2 == 0);
        if (taking) {
            uint32_t handle = take(&slab, with);
            assert_true(handle < MANY * 2);
            same(out[handle]++, 0);
            held[count++] = handle;
        } else {
            uint32_t at = (seed >> 8) % count, handle = held[at];
            held[at] = held[--count];
            out[handle]--;
            give(&slab, with, handle);
        }
    }
    end(&slab, &alloc);
}

TEST(an_object_keeps_its_content_between_give_and_take)
{
    test_alloc alloc = { 0 };
    fli_slab   slab;
    begin(&slab, &alloc, 1);
    uint32_t handle = take(&slab, NULL);
    ((thing *)fli_slab_at(&slab, handle))->mark = 77;
    give(&slab, NULL, handle);
    same(take(&slab, NULL), handle);
    same(((thing *)fli_slab_at(&slab, handle))->mark, 77);
    same(((thing *)fli_slab_at(&slab, handle))->made, 1);
    end(&slab, &alloc);
}

TEST(a_full_magazine_gives_its_oldest_objects_to_the_depot)
{
    test_alloc   alloc = { 0 };
    fli_slab     slab;
    fli_magazine ours = { 0 }, theirs = { 0 };
    uint32_t     handles[FLI_MAGAZINE + 1];
    begin(&slab, &alloc, FLI_MAGAZINE + 1);
    for (int i = 0; i <= FLI_MAGAZINE; i++) handles[i] = take(&slab, NULL);
    for (int i = 0; i <= FLI_MAGAZINE; i++) give(&slab, &ours, handles[i]);
    same(ours.count, FLI_MAGAZINE - FLI_SLAB_BATCH + 1);
    /* The object that was given last is taken first; the objects that were given first are in the depot. */
    same(take(&slab, &ours), handles[FLI_MAGAZINE]);
    for (int i = 0; i < FLI_SLAB_BATCH; i++) {
        uint32_t handle = take(&slab, &theirs);
        bool     older = false;
        for (int k = 0; k < FLI_SLAB_BATCH; k++) older |= handles[k] == handle;
        assert_true(older);
    }
    assert_null(fli_slab_take(&slab, &theirs));
    end(&slab, &alloc);
}

TEST(an_emptied_magazine_leaves_its_handles_to_others)
{
    test_alloc   alloc = { 0 };
    fli_slab     slab;
    fli_magazine magazine = { 0 };
    begin(&slab, &alloc, FLI_SLAB_BATCH);
    uint32_t handle = take(&slab, &magazine);
    give(&slab, &magazine, handle);
    assert_null(fli_slab_take(&slab, NULL)); /* NULL: the magazine holds all objects that may exist */
    fli_slab_empty(&slab, &magazine);
    same(magazine.count, 0);
    for (int i = 0; i < FLI_SLAB_BATCH; i++) (void)take(&slab, NULL);
    assert_null(fli_slab_take(&slab, NULL));
    end(&slab, &alloc);
}

TEST(there_are_never_more_objects_than_max)
{
    for (uint32_t max = 1; max < 70; max++) {
        test_alloc alloc = { 0 };
        fli_slab   slab;
        begin(&slab, &alloc, max);
        for (uint32_t i = 0; i < max; i++) (void)take(&slab, NULL);
        assert_null(fli_slab_take(&slab, NULL));
        give(&slab, NULL, max);
        same(take(&slab, NULL), max);
        end(&slab, &alloc);
    }
}

TEST(a_retired_object_is_replaced_by_a_new_one)
{
    fli_slab   slab;
    test_alloc alloc = { 0 };
    begin(&slab, &alloc, 3);
    for (uint32_t i = 1; i <= 100; i++) {
        void *all[3];
        for (int n = 0; n < 3; n++) assert_non_null(all[n] = fli_slab_take(&slab, NULL));
        assert_null(fli_slab_take(&slab, NULL));
        fli_slab_retire(&slab); /* retires all[0] */
        for (int n = 1; n < 3; n++) fli_slab_give(&slab, NULL, all[n]);
        same(fli_load_rlx(&slab.fresh), 3 + i);
    }
    end(&slab, &alloc);
}

TEST(invalid_handles_find_no_object)
{
    test_alloc alloc = { 0 };
    fli_slab   slab;
    begin(&slab, &alloc, UINT32_MAX - 1);
    assert_null(fli_slab_find(&slab, 0));
    assert_null(fli_slab_find(&slab, 1));
    assert_null(fli_slab_find(&slab, UINT32_MAX));
    uint32_t handle = take(&slab, NULL);
    assert_non_null(fli_slab_find(&slab, handle));
    assert_null(fli_slab_find(&slab, handle + 1));
    for (unsigned bit = 8; bit < 32; bit++) assert_null(fli_slab_find(&slab, 1u << bit));
    /* An object that was given back can still be read. */
    give(&slab, NULL, handle);
    assert_non_null(fli_slab_find(&slab, handle));
    end(&slab, &alloc);
}

TEST(growth_that_fails_changes_nothing)
{
    /* Makes the allocation number `nth` fail once; taken objects stay taken, and the next attempt succeeds. */
    for (uint64_t nth = 1; nth <= 12; nth++) {
        test_alloc alloc = { 0 };
        fli_slab   slab;
        uint32_t   taken = 0;
        begin(&slab, &alloc, 3000);
        test_alloc_fail(&alloc, nth, false);
        for (int failed = 0; taken < 3000; failed++) {
            size_t       bytes = atomic_load(&alloc.bytes);
            const thing *t = fli_slab_take(&slab, NULL);
            if (t == NULL) {
                same(atomic_load(&alloc.bytes), bytes);
                assert_true(failed < 5000);
                continue;
            }
            same(t->self, ++taken);
        }
        assert_null(fli_slab_take(&slab, NULL));
        end(&slab, &alloc);
    }
}

TEST(if_growth_fails_for_good_existing_objects_stay_usable)
{
    /* Allocation number `nth` of the growth fails, and all later allocations fail too. */
    for (uint64_t nth = 1; nth <= 4; nth++) {
        test_alloc alloc = { 0 };
        fli_slab   slab;
        begin(&slab, &alloc, UINT32_MAX - 1);
        uint32_t handle = take(&slab, NULL), last = handle;
        while (last < (1u << FLI_SLAB_FIRST_BITS) - 1) last = take(&slab, NULL);
        size_t bytes = atomic_load(&alloc.bytes);
        test_alloc_fail(&alloc, nth, true);
        if (fli_slab_take(&slab, NULL) == NULL) {
            same(atomic_load(&alloc.bytes), bytes);
            give(&slab, NULL, handle);
            same(take(&slab, NULL), handle);
            test_alloc_fail(&alloc, 0, false);
            same(take(&slab, NULL), last + 1);
        }
        end(&slab, &alloc);
    }
}

/* ---- memory that is returned to the system ---- */

/* The field `mark` of a thing holds its generation: the one that it will have when it is used next. */
static uint32_t generation_of(void *object)
{
    return ((const thing *)object)->mark;
}

static void remake(void *object, uint32_t handle, uint32_t generation)
{
    thing *t = object;
    t->self = handle;
    t->mark = generation;
}

static const fli_slab_return_ops return_ops = { .generation = generation_of, .remake = remake };

enum { PAGES = 40, THINGS = FLI_SLAB_SPARE + PAGES * FLI_SLAB_PAGE };

/* Takes THINGS objects, sets their generation to `generation`, and gives all of them back. */
static void make_peak(fli_slab *slab, thing **things, uint32_t generation)
{
    for (uint32_t i = 0; i < THINGS; i++) {
        things[i] = fli_slab_take(slab, NULL);
        assert_non_null(things[i]);
        things[i]->mark = generation;
    }
    for (uint32_t i = 0; i < THINGS; i++) fli_slab_give(slab, NULL, things[i]);
}

static uint64_t returned(fli_slab *slab)
{
    return fli_load_rlx(&slab->returned_bytes) / (sizeof(thing) * FLI_SLAB_PAGE);
}

TEST(pages_that_were_not_used_since_the_last_trim_are_returned)
{
    test_alloc alloc = { 0 };
    fli_slab   slab;
    thing    **things = calloc(THINGS, sizeof *things);
    begin(&slab, &alloc, UINT32_MAX - 1);
    fli_slab_allow_return(&slab, &return_ops);
    make_peak(&slab, things, 1);
    uint32_t free_pages = fli_load_rlx(&slab.free_pages);
    /* free_pages can be less than PAGES: the first page is never FREE, because object 0 is never stored */
    assert_in_range(free_pages, PAGES - 2, PAGES);
    same(fli_slab_trim(&slab, UINT32_MAX), 0); /* this call begins the first interval of fli_slab_trim() */
    same(returned(&slab), 0);
    make_peak(&slab, things, 1);
    same(fli_slab_trim(&slab, UINT32_MAX), 0); /* 0: make_peak() has used all pages in this interval */
    same(returned(&slab), 0);
    same(fli_slab_trim(&slab, 3), free_pages - 3);
    same(returned(&slab), 3);
    same(fli_slab_trim(&slab, UINT32_MAX), 0);
    same(returned(&slab), free_pages);
    same(fli_load_rlx(&slab.free_pages), 0);
    assert_true(fli_slab_is_whole(&slab));
    /* The next peak needs no new objects: it takes the objects in `spare` and in partial pages first, then the
     * objects of returned pages. */
    uint32_t fresh = fli_load_rlx(&slab.fresh);
    make_peak(&slab, things, 1);
    same(fli_load_rlx(&slab.fresh), fresh);
    same(returned(&slab), 0);
    free(things);
    end(&slab, &alloc);
}

TEST(objects_of_a_returned_page_go_on_with_its_largest_generation)
{
    test_alloc alloc = { 0 };
    fli_slab   slab;
    thing    **things = calloc(THINGS, sizeof *things);
    begin(&slab, &alloc, UINT32_MAX - 1);
    fli_slab_allow_return(&slab, &return_ops);
    make_peak(&slab, things, 5);
    /* One object gets generation 9: when its page has been returned, all objects of this page must get generation 9. An
     * object of another page gets FLI_SLAB_STAYS: its page must not be returned. */
    uint32_t newest = (THINGS / FLI_SLAB_PAGE - 4) * FLI_SLAB_PAGE + 1;
    thing   *stays = fli_slab_at(&slab, newest + 2 * FLI_SLAB_PAGE);
    ((thing *)fli_slab_at(&slab, newest))->mark = 9;
    stays->mark = FLI_SLAB_STAYS;
    uint32_t free_pages = fli_load_rlx(&slab.free_pages);
    (void)fli_slab_trim(&slab, 0);
    same(fli_slab_trim(&slab, UINT32_MAX), 0);
    same(returned(&slab), free_pages - 1);
    for (uint32_t i = 0; i < THINGS; i++) {
        const thing *t = things[i] = fli_slab_take(&slab, NULL);
        assert_ptr_equal(fli_slab_at(&slab, t->self), t);
        bool is_newest = t->self / FLI_SLAB_PAGE == newest / FLI_SLAB_PAGE;
        if (t->self / FLI_SLAB_PAGE != stays->self / FLI_SLAB_PAGE) same(t->mark, is_newest ? 9 : 5);
    }
    same(stays->mark, FLI_SLAB_STAYS);
    for (uint32_t i = 0; i < THINGS; i++) fli_slab_give(&slab, NULL, things[i]);
    assert_true(fli_slab_is_whole(&slab));
    free(things);
    end(&slab, &alloc);
}

/* ---- threads ---- */

enum { TRADERS = 3, SHELF = 64 };

/* Threads take handles, put them into the common array `shelf`, and give back the handles that they find in it, so that
 * a handle is often given back by another thread than the one that took it. */
typedef struct exchange {
    fli_slab             slab;
    FLI_ATOMIC(uint32_t) shelf[SHELF];
    FLI_ATOMIC(bool)     clash;
    uint64_t             rounds;
} exchange;

typedef struct trader {
    exchange    *market;
    fli_thread   thread;
    fli_magazine magazine;
    uint32_t     number;
    bool         no_magazine; /* the thread has no magazine */
} trader;

static void trade(void *arg)
{
    trader       *h = arg;
    exchange     *market = h->market;
    fli_magazine *magazine = h->no_magazine ? NULL : &h->magazine;
    for (uint64_t i = 0; i < market->rounds; i++) {
        thing   *t = fli_slab_take(&market->slab, magazine);
        uint32_t handle = t->self;
        /* The fields are not atomic: if an object had two owners at once, TSan would report a race, and `mark` would be
         * wrong. */
        if (fli_slab_at(&market->slab, handle) != t || t->mark != 0) fli_store_rlx(&market->clash, true);
        t->mark = h->number;
        uint32_t other = fli_swap_acqrel(&market->shelf[(i * 7 + h->number) % SHELF], handle);
        if (fli_slab_find(&market->slab, (uint32_t)(i * 2654435761u)) == (void *)1) fli_store_rlx(&market->clash, true);
        if (other == 0) continue;
        ((thing *)fli_slab_at(&market->slab, other))->mark = 0;
        give(&market->slab, magazine, other);
    }
    if (magazine != NULL) fli_slab_empty(&market->slab, magazine);
}

TEST(handles_given_back_by_other_threads_are_never_taken_twice)
{
    test_alloc alloc = { 0 };
    exchange   market = { .rounds = scaled(300000) };
    trader     traders[TRADERS] = { 0 };
    begin(&market.slab, &alloc, UINT32_MAX - 1);
    for (uint32_t i = 0; i < TRADERS; i++) {
        traders[i].market = &market;
        traders[i].number = i + 1;
        traders[i].no_magazine = i == TRADERS - 1;
        ok(fli_thread_start(&traders[i].thread, "trader", trade, &traders[i]));
    }
    for (int i = 0; i < TRADERS; i++) fli_thread_join(&traders[i].thread);
    assert_false(fli_load_rlx(&market.clash));
    /* No object is lost: the objects on the shelf and in the depot are all that were ever made. */
    uint32_t fresh = fli_load_rlx(&market.slab.fresh), out = 0;
    for (int i = 0; i < SHELF; i++) out += fli_load_rlx(&market.shelf[i]) != 0;
    same(out + market.slab.spare_count + market.slab.stored, fresh - 1);
    assert_true(fresh <= SHELF + TRADERS * (FLI_MAGAZINE + 1));
    end(&market.slab, &alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_names_its_own_object_which_was_made_once),
        cmocka_unit_test(no_handle_is_taken_twice),
        cmocka_unit_test(an_object_keeps_its_content_between_give_and_take),
        cmocka_unit_test(a_full_magazine_gives_its_oldest_objects_to_the_depot),
        cmocka_unit_test(an_emptied_magazine_leaves_its_handles_to_others),
        cmocka_unit_test(there_are_never_more_objects_than_max),
        cmocka_unit_test(a_retired_object_is_replaced_by_a_new_one),
        cmocka_unit_test(invalid_handles_find_no_object),
        cmocka_unit_test(growth_that_fails_changes_nothing),
        cmocka_unit_test(if_growth_fails_for_good_existing_objects_stay_usable),
        cmocka_unit_test(pages_that_were_not_used_since_the_last_trim_are_returned),
        cmocka_unit_test(objects_of_a_returned_page_go_on_with_its_largest_generation),
        cmocka_unit_test(handles_given_back_by_other_threads_are_never_taken_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
