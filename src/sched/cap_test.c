/* cap_test.c - the counter of option memory_max counts allocated bytes exactly, also if the program's allocator fails.
 * The counter is freed with the last block or with the scheduler, whichever is freed last. */
#include "sched/cap.h"

#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "support/alloc.h"
#include "support/check.h"

static const size_t MAX = 1000;

/* Returns the number of bytes that the counter of cap.c itself occupies; they count against the limit. */
static size_t own_bytes(void)
{
    test_alloc alloc = { 0 };
    fli_mem    mem;
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    ok(fli_cap_create(&mem, MAX, 2));
    size_t bytes = atomic_load(&alloc.bytes);
    fli_cap_drop(&mem);
    test_alloc_balanced(&alloc);
    return bytes;
}

/* Returns an allocator with a limit of MAX bytes plus the bytes of the counter itself. */
static fli_mem capped(test_alloc *alloc)
{
    fli_mem mem;
    fli_mem_init(&mem, test_alloc_fn, alloc);
    ok(fli_cap_create(&mem, own_bytes() + MAX, 2));
    return mem;
}

/* Checks that exactly MAX bytes can be allocated, so no freed block is still counted. */
static void all_is_free(const fli_mem *mem)
{
    assert_null(fli_alloc(mem, MAX + 1));
    void *all = fli_alloc(mem, MAX);
    assert_non_null(all);
    assert_null(fli_alloc(mem, 1));
    fli_free(mem, all, MAX);
}

TEST(the_limit_is_exact)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = capped(&alloc);
    all_is_free(&mem);
    fli_cap_drop(&mem);
    test_alloc_balanced(&alloc);
}

/* The size of the counter does not depend on the number of workers here: workers have stripes only if there is no
 * limit. */
TEST(the_counter_itself_is_within_the_limit)
{
    for (size_t max = 1; max < 2 * MAX; max++) {
        test_alloc alloc = { 0 };
        fli_mem    mem;
        fli_mem_init(&mem, test_alloc_fn, &alloc);
        filch_err err = fli_cap_create(&mem, max, 1024);
        same(err, max < own_bytes() ? FILCH_ENOMEM : FILCH_OK);
        if (err != FILCH_OK) {
            same(atomic_load(&alloc.asked), 0);
            continue;
        }
        void *rest = max > own_bytes() ? fli_alloc(&mem, max - own_bytes()) : NULL;
        same(atomic_load(&alloc.bytes), max);
        same(fli_cap_used(&mem), max);
        assert_null(fli_alloc(&mem, 1));
        fli_free(&mem, rest, max - own_bytes());
        fli_cap_drop(&mem);
        test_alloc_balanced(&alloc);
    }
}

TEST(a_block_that_grows_or_shrinks_is_counted_with_its_current_size)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = capped(&alloc);
    void      *at = fli_alloc(&mem, 400);
    at = fli_resize(&mem, at, 400, 900);
    assert_non_null(at);
    assert_null(fli_alloc(&mem, 101));
    assert_null(fli_resize(&mem, at, 900, 1001));
    at = fli_resize(&mem, at, 900, 900);
    assert_non_null(at);
    at = fli_resize(&mem, at, 900, 100);
    assert_non_null(at);
    void *rest = fli_alloc(&mem, 900);
    assert_non_null(rest);
    fli_free(&mem, rest, 900);
    fli_free(&mem, at, 100);
    all_is_free(&mem);
    fli_cap_drop(&mem);
    test_alloc_balanced(&alloc);
}

TEST(a_block_that_the_programs_allocator_refuses_is_not_counted)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = capped(&alloc);
    test_alloc_fail(&alloc, 1, false);
    assert_null(fli_alloc(&mem, MAX));
    all_is_free(&mem);
    void *at = fli_alloc(&mem, 500);
    test_alloc_fail(&alloc, 1, false);
    assert_null(fli_resize(&mem, at, 500, 800)); /* fails, and the block `at` still has 500 bytes */
    test_alloc_fail(&alloc, 1, false);
    assert_null(fli_resize(&mem, at, 500, 200));
    test_alloc_fail(&alloc, 0, false);
    assert_null(fli_alloc(&mem, 501));
    fli_free(&mem, at, 500);
    all_is_free(&mem);
    fli_cap_drop(&mem);
    test_alloc_balanced(&alloc);
}

TEST(without_memory_for_the_counter_no_limit_is_installed)
{
    test_alloc alloc = { 0 };
    fli_mem    mem;
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    test_alloc_fail(&alloc, 1, false);
    same(fli_cap_create(&mem, MAX, 2), FILCH_ENOMEM);
    assert_true(mem.alloc == test_alloc_fn && mem.user == &alloc);
    fli_cap_begin(&mem, NULL);
    same(fli_cap_used(&mem), 0);
    fli_cap_end(&mem);
    fli_cap_drop(&mem); /* does nothing, because `mem` has no counter */
    test_alloc_balanced(&alloc);
}

TEST(blocks_freed_after_the_scheduler_still_find_the_counter)
{
    test_alloc alloc = { 0 };
    fli_mem    mem = capped(&alloc);
    void      *first = fli_alloc(&mem, 10), *last = fli_alloc(&mem, 20);
    fli_cap_drop(&mem);
    fli_free(&mem, first, 10);
    assert_true(atomic_load(&alloc.blocks) == 2); /* two blocks are left: `last` and the counter */
    fli_free(&mem, last, 20);
    test_alloc_balanced(&alloc);
}

/* This thread acts in turn as two workers of one runtime and as a worker of another runtime. */
TEST(without_a_limit_each_worker_has_a_stripe_and_the_sum_is_exact)
{
    static fli_runtime rt, stranger;
    static fli_local   first, second, foreign;
    test_alloc         alloc = { 0 };
    fli_mem            mem;
    first = (fli_local){ .rt = &rt };
    second = (fli_local){ .rt = &rt, .index = 1 };
    foreign = (fli_local){ .rt = &stranger, .index = 1000 };
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    ok(fli_cap_create(&mem, 0, 2));
    void *early = fli_alloc(&mem, 5); /* counted in no stripe, because fli_cap_begin() has not been called */
    fli_cap_begin(&mem, &rt);
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    fli_current_set(&first);
    void *a = fli_alloc(&mem, 1000), *b = fli_alloc(&mem, 70);
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    /* The second worker frees bytes that the first worker has allocated: the stripe of the second worker falls below
     * 0. */
    fli_current_set(&second);
    fli_free(&mem, a, 1000);
    b = fli_resize(&mem, b, 70, 20);
    test_alloc_fail(&alloc, 1, false);
    assert_null(fli_alloc(&mem, 1));
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    fli_current_set(&foreign);
    void *c = fli_alloc(&mem, 300);
    fli_free(&mem, early, 5);
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    fli_current_set(NULL);
    fli_cap_end(&mem);
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    fli_current_set(&first); /* acts as a worker of a later runtime at the same address as `rt` */
    void *d = fli_alloc(&mem, 7);
    same(fli_cap_used(&mem), atomic_load(&alloc.bytes));
    fli_cap_drop(&mem); /* b, c and d are still allocated */
    fli_free(&mem, c, 300);
    fli_free(&mem, d, 7);
    assert_true(atomic_load(&alloc.blocks) == 2);
    fli_current_set(NULL);
    fli_free(&mem, b, 20);
    test_alloc_balanced(&alloc);
}

/* The allocator late_alloc() frees `block` at the moment when the memory of the scheduler `sched` itself is freed.
 * late_alloc() then acts as a worker of a later scheduler that has been created at the same address. That worker may
 * have any index, so the counter of the first scheduler may have no stripe for it. */
static struct {
    test_alloc   alloc;
    filch_sched *sched;
    fli_mem      mem;
    void        *block;
    bool         happened;
} late;

static void *late_alloc(void *user, void *old, size_t old_size, size_t size)
{
    char *sched = (char *)late.sched;
    if (size == 0 && sched != NULL && (char *)old < sched && sched < (char *)old + old_size) {
        static fli_local later;
        later = (fli_local){ .rt = &late.sched->rt, .index = 1u << 26 };
        late.sched = NULL;
        late.happened = true;
        fli_current_set(&later);
        fli_free(&late.mem, late.block, 100);
        fli_current_set(NULL);
    }
    return test_alloc_fn(user, old, old_size, size);
}

TEST(a_later_scheduler_at_the_same_address_is_not_the_first)
{
    filch_options options = FILCH_OPTIONS_INIT;
    memset(&late, 0, sizeof late);
    options.workers = FILCH_NO_WORKERS;
    options.alloc = late_alloc;
    options.alloc_user = &late.alloc;
    ok(filch_sched_create(&late.sched, &options));
    late.mem = late.sched->rt.mem;
    late.block = fli_alloc(&late.mem, 100);
    assert_non_null(late.block);
    ok(filch_sched_stop(late.sched, FILCH_SECONDS(60), NULL));
    assert_true(late.happened);
    test_alloc_balanced(&late.alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_exact),
        cmocka_unit_test(the_counter_itself_is_within_the_limit),
        cmocka_unit_test(a_block_that_grows_or_shrinks_is_counted_with_its_current_size),
        cmocka_unit_test(a_block_that_the_programs_allocator_refuses_is_not_counted),
        cmocka_unit_test(without_memory_for_the_counter_no_limit_is_installed),
        cmocka_unit_test(blocks_freed_after_the_scheduler_still_find_the_counter),
        cmocka_unit_test(without_a_limit_each_worker_has_a_stripe_and_the_sum_is_exact),
        cmocka_unit_test(a_later_scheduler_at_the_same_address_is_not_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
