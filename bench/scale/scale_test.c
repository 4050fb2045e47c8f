/* scale_test.c - the engine of the scale model: known patterns of accesses have the cost that can be computed by hand,
 * and equal runs are equal. Addresses are only names here, no memory is accessed. */
#include "scale/engine.h"
#include "scale/heap.h"
#include "support/check.h"

/* A machine with round numbers. Times that the tests do not check are 0. */
static const scale_machine round_machine = { .hit = 1000,
                                             .rmw = 10000,
                                             .l2 = 3000,
                                             .l3 = 30000,
                                             .near = 100000,
                                             .far = 1000000,
                                             .overlap = 4,
                                             .window = 0,
                                             .buffers = 10,
                                             .readers = 4,
                                             .cores = 2 };

#define A UINT64_C(0x10000000)
#define B UINT64_C(0x20000000)

/* ---- lines ---- */

typedef struct fixture {
    scale_lines *lines;
    scale_core   cores[4]; /* cores 0 and 1 are on socket 0, cores 2 and 3 on socket 1 */
} fixture;

static fixture open_fixture(const scale_machine *machine)
{
    fixture f = { .lines = scale_lines_create(machine) };
    for (uint32_t i = 0; i < 4; i++) scale_core_init(&f.cores[i], i, i / 2);
    return f;
}

static void close_fixture(fixture *f)
{
    for (uint32_t i = 0; i < 4; i++) scale_core_fini(&f->cores[i]);
    scale_lines_destroy(f->lines);
}

/* Makes the access and returns by how much it advanced the clock of the core. */
static scale_ps cost(fixture *f, uint32_t core, uint64_t at, scale_access access)
{
    scale_ps before = f->cores[core].now;
    (void)scale_lines_access(f->lines, &f->cores[core], (uintptr_t)at, access);
    return f->cores[core].now - before;
}

TEST(own_line_is_a_hit)
{
    fixture f = open_fixture(&round_machine);
    same(cost(&f, 0, A, SCALE_STORE), 1000 + 3000); /* a new cache line is in L2 */
    same(cost(&f, 0, A, SCALE_STORE), 1000);
    same(cost(&f, 0, A + 63, SCALE_LOAD), 1000);
    same(cost(&f, 0, A, SCALE_RMW), 11000);
    same(f.cores[0].counts.transfers, 0);
    same(f.cores[0].counts.stall, 0);
    close_fixture(&f);
}

TEST(first_access_to_a_page_is_a_page_fault)
{
    scale_machine machine = round_machine;
    machine.page = 7000;
    fixture f = open_fixture(&machine);
    same(cost(&f, 0, A, SCALE_LOAD), 1000 + 7000 + 3000);
    same(cost(&f, 0, A + 64, SCALE_LOAD), 1000 + 3000);
    same(cost(&f, 0, A + 4096, SCALE_LOAD), 1000 + 7000 + 3000);
    same(f.cores[0].counts.pages, 2);
    close_fixture(&f);
}

TEST(line_costs_by_the_distance_of_its_owner)
{
    fixture f = open_fixture(&round_machine);
    (void)cost(&f, 0, A, SCALE_STORE);
    /* the accesses are far apart in time, so that none waits for the transfer of another */
    for (uint32_t i = 1; i < 4; i++) f.cores[i].now = i * 10000000;
    same(cost(&f, 1, A, SCALE_LOAD), 1000 + 100000);
    same(cost(&f, 2, A, SCALE_LOAD), 1000 + 1000000);
    same(cost(&f, 3, A, SCALE_LOAD), 1000 + 100000); /* core 2 has a copy */
    same(cost(&f, 0, A, SCALE_LOAD), 1000);          /* core 0, which owned the line before, has kept its copy */
    same(f.cores[2].counts.far, 1);
    same(f.cores[3].counts.far, 0);
    close_fixture(&f);
}

TEST(write_takes_the_copies_of_all_others)
{
    fixture f = open_fixture(&round_machine);
    (void)cost(&f, 0, A, SCALE_STORE);
    (void)cost(&f, 1, A, SCALE_LOAD);
    f.cores[0].now = f.cores[1].now = 10000000;
    same(cost(&f, 0, A, SCALE_RMW), 11000 + 100000);
    same(cost(&f, 0, A, SCALE_RMW), 11000);
    f.cores[1].now = 20000000;
    same(cost(&f, 1, A, SCALE_LOAD), 1000 + 100000);
    close_fixture(&f);
}

TEST(second_writer_waits_until_the_first_has_the_line)
{
    fixture f = open_fixture(&round_machine);
    (void)cost(&f, 0, A, SCALE_STORE);
    for (uint32_t i = 1; i < 4; i++) f.cores[i].now = 10000000;
    same(cost(&f, 1, A, SCALE_RMW), 11000 + 100000);
    /* Core 2 accesses the line at the same time: it waits 100 ns for the transfer to core 1, then for the transfer
     * between the sockets. */
    same(cost(&f, 2, A, SCALE_RMW), 11000 + 100000 + 1000000);
    same(cost(&f, 3, A, SCALE_RMW), 11000 + 100000 + 1000000 + 100000);
    close_fixture(&f);
}

TEST(store_goes_on_and_the_next_rmw_waits_for_it)
{
    fixture f = open_fixture(&round_machine);
    (void)cost(&f, 0, A, SCALE_STORE);
    (void)cost(&f, 1, B, SCALE_STORE);
    f.cores[1].now = 10000000;
    /* the store stalls the core for a tenth of the transfer, because the machine has ten store buffers */
    same(cost(&f, 1, A, SCALE_STORE), 1000 + 10000);
    /* the RMW waits for the rest of the 100 ns of the store, less the 1 ns of its own access */
    same(cost(&f, 1, B, SCALE_RMW), 11000 + 89000);
    same(cost(&f, 1, B, SCALE_RMW), 11000);
    close_fixture(&f);
}

TEST(load_misses_close_together_overlap)
{
    scale_machine machine = round_machine;
    machine.window = 1;
    fixture f = open_fixture(&machine);
    for (uint64_t i = 0; i < 3; i++) (void)cost(&f, 0, A + 64 * i, SCALE_STORE);
    f.cores[1].counts.accesses = 100;
    same(cost(&f, 1, A, SCALE_LOAD), 1000 + 100000);
    same(cost(&f, 1, A + 64, SCALE_LOAD), 1000 + 25000);
    (void)cost(&f, 1, A, SCALE_LOAD);
    same(cost(&f, 1, A + 128, SCALE_LOAD), 1000 + 100000);
    close_fixture(&f);
}

TEST(caches_are_finite)
{
    fixture        f = open_fixture(&round_machine);
    const uint64_t lines = 4 << 20 >> 6; /* twice the L2 */
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 700; i++) (void)cost(&f, 0, A + 64 * i, SCALE_STORE);
    }
    /* in the first round all 700 lines come from L2; in the second, only lines that conflicts have evicted from L1 */
    assert_in_range(f.cores[0].counts.l2, 700, 760);
    for (uint64_t i = 0; i < lines; i++) (void)cost(&f, 0, B + 64 * i, SCALE_STORE);
    same(f.cores[0].counts.l3, 0);
    same(cost(&f, 0, B, SCALE_LOAD), 1000 + 30000);
    same(f.cores[0].counts.l3, 1);
    close_fixture(&f);
}

TEST(cost_does_not_depend_on_addresses)
{
    scale_ps ends[2];
    for (int run = 0; run < 2; run++) {
        fixture  f = open_fixture(&round_machine);
        uint64_t state = 1, base = run == 0 ? A : UINT64_C(0x7fff12345000);
        for (int i = 0; i < 20000; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            (void)cost(&f, (uint32_t)(state >> 62), base + (state >> 40) % 262144, (scale_access)((state >> 33) % 3));
        }
        ends[run] = f.cores[0].now + f.cores[1].now + f.cores[2].now + f.cores[3].now;
        close_fixture(&f);
    }
    same(ends[0], ends[1]);
}

/* ---- threads ---- */

static scale_config config = { .cores = 32, .seed = 1 };

static struct {
    uint64_t    order[16];
    unsigned    count;
    scale_queue queue;
    scale_ps    began, called, woke, ended;
    uint64_t    sum;
} shared;

static void note(uint64_t what)
{
    if (shared.count < 16) shared.order[shared.count++] = what;
}

static void spend_and_note(void *arg)
{
    uint64_t step = *(uint64_t *)arg;
    for (int i = 0; i < 3; i++) {
        scale_spend(step * SCALE_NS);
        scale_sync();
        note(step);
    }
}

static void start_two(void *arg)
{
    static uint64_t steps[2] = { 20, 30 };
    (void)arg;
    uint32_t a = scale_thread_start(spend_and_note, &steps[0]), b = scale_thread_start(spend_and_note, &steps[1]);
    scale_thread_join(a);
    scale_thread_join(b);
}

/* The first thread runs at the times 20, 40 and 60, the second at 30, 60 and 90. At the time 60 the thread with the
 * lower number runs first. */
TEST(earliest_thread_runs)
{
    static const uint64_t wanted[] = { 20, 30, 20, 20, 30, 30 };
    shared.count = 0;
    config.machine = round_machine;
    scale_run(&config, start_two, NULL);
    same(shared.count, 6);
    for (unsigned i = 0; i < 6; i++) same(shared.order[i], wanted[i]);
}

static void wait_in_queue(void *arg)
{
    (void)arg;
    scale_ps until = scale_now() + 5 * SCALE_US;
    note(scale_block(&shared.queue, until));
    shared.woke = scale_now();
    note(scale_block(&shared.queue, shared.woke + 5 * SCALE_US));
}

static void wake_once(void *arg)
{
    (void)arg;
    uint32_t waiter = scale_thread_start(wait_in_queue, NULL);
    scale_spend(1 * SCALE_US);
    scale_sync();
    shared.called = scale_now();
    note(scale_wake(&shared.queue, shared.called));
    note(scale_wake(&shared.queue, shared.called));
    scale_thread_join(waiter);
    shared.ended = scale_now();
}

TEST(blocked_thread_continues_when_woken_or_at_its_alarm)
{
    /* results of two calls of scale_wake(), then of two calls of scale_block() */
    static const uint64_t wanted[] = { true, false, true, false };
    shared.count = 0;
    config.machine = round_machine;
    scale_run(&config, wake_once, NULL);
    same(shared.count, 4);
    for (unsigned i = 0; i < 4; i++) same(shared.order[i], wanted[i]);
    same(shared.woke, shared.called);
    same(shared.ended, shared.called + 5 * SCALE_US); /* the second wait ended at its alarm, after 5 us */
}

/* ---- a whole run ---- */

static void add_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++) {
        scale_sync();
        scale_touch(A, SCALE_RMW, NULL);
        shared.sum++;
    }
}

static scale_totals totals;

static void start_adders(void *arg)
{
    uint32_t threads[8], count = *(uint32_t *)arg;
    shared.began = scale_now();
    for (uint32_t i = 0; i < count; i++) threads[i] = scale_thread_start(add_many, NULL);
    for (uint32_t i = 0; i < count; i++) scale_thread_join(threads[i]);
    shared.ended = scale_now();
    totals = scale_totals_now();
}

/* Several threads add to one word. Every addition except the first transfers the cache line, and the transfers happen
 * one after another, in the order of the threads. */
TEST(contended_word_is_served_one_by_one)
{
    uint32_t count = 2;
    config.machine = round_machine;
    config.cores = 2;
    shared.sum = 0;
    scale_run(&config, start_adders, &count);
    same(shared.sum, 200);
    same(totals.counts.transfers, 199);
    same(totals.counts.far, 0);
    same(shared.ended - shared.began, 11000 + 199 * 100000);
    count = 8; /* the 8 threads run on four sockets, so every second transfer is between sockets */
    scale_run(&config, start_adders, &count);
    same(totals.counts.transfers, 799);
    same(totals.counts.far, 399);
    same(shared.ended - shared.began, 11000 + 400 * 100000 + 399 * 1000000);
}

TEST(equal_runs_are_equal)
{
    scale_counts first;
    uint32_t     count = 8;
    config.machine = scale_machine_default;
    for (int i = 0; i < 3; i++) {
        scale_run(&config, start_adders, &count);
        if (i == 0) first = totals.counts;
        assert_memory_equal(&first, &totals.counts, sizeof first);
    }
}

/* ---- the rest ---- */

TEST(values_of_the_machine_can_be_set)
{
    scale_machine machine = scale_machine_default;
    assert_true(scale_machine_set(&machine, "near=50000"));
    same(machine.near, 50000);
    same(machine.far, scale_machine_default.far);
    assert_false(scale_machine_set(&machine, "near"));
    assert_false(scale_machine_set(&machine, "near="));
    assert_false(scale_machine_set(&machine, "near=1x"));
    assert_false(scale_machine_set(&machine, "nearer=1"));
}

TEST(freed_block_goes_to_the_thread_that_freed_it)
{
    void *a = scale_heap_alloc(1, 40), *b = scale_heap_alloc(2, 40);
    assert_true(scale_heap_owns(a));
    same(scale_heap_size(a), 48);
    assert_true((uintptr_t)a >> 16 != (uintptr_t)b >> 16); /* each thread allocates from a chunk of its own */
    scale_heap_free(2, a);
    assert_ptr_not_equal(scale_heap_alloc(1, 40), a);
    assert_ptr_equal(scale_heap_alloc(2, 48), a);
    assert_false(scale_heap_owns(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_line_is_a_hit),
        cmocka_unit_test(first_access_to_a_page_is_a_page_fault),
        cmocka_unit_test(line_costs_by_the_distance_of_its_owner),
        cmocka_unit_test(write_takes_the_copies_of_all_others),
        cmocka_unit_test(second_writer_waits_until_the_first_has_the_line),
        cmocka_unit_test(store_goes_on_and_the_next_rmw_waits_for_it),
        cmocka_unit_test(load_misses_close_together_overlap),
        cmocka_unit_test(caches_are_finite),
        cmocka_unit_test(cost_does_not_depend_on_addresses),
        cmocka_unit_test(earliest_thread_runs),
        cmocka_unit_test(blocked_thread_continues_when_woken_or_at_its_alarm),
        cmocka_unit_test(contended_word_is_served_one_by_one),
        cmocka_unit_test(equal_runs_are_equal),
        cmocka_unit_test(values_of_the_machine_can_be_set),
        cmocka_unit_test(freed_block_goes_to_the_thread_that_freed_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
