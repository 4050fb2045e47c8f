/* memory_test.c - filch_stats.memory is the number of bytes that the host's allocator has given out, exactly. Also:
 * filch_now returns the time of the library's clock. */
#include "api/fixture.h"

static void same_bytes(fixture *w)
{
    same(fixture_stats(w).memory, fli_load_rlx(&w->bytes));
}

static filch_err play_large(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char large[4000];
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (filch_as_int(&events[i].data) != 0)
            me->note = filch_send(filch_out_sched(out), me->pid, filch_bytes(large, sizeof large));
    }
    return filch_idle(out);
}

static void memory_is_counted(size_t memory_max)
{
    fixture       w;
    static actor  actors[200];
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.memory_max = memory_max;
    memset(actors, 0, sizeof actors);
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    same_bytes(&w);
    for (size_t i = 0; i < COUNT_OF(actors); i++) {
        actor_start(&w, &actors[i], play_large);
        if (i == 7) ok(filch_register(w.sched, "seventh", actors[i].pid));
        ok(filch_send(w.sched, actors[i].pid, filch_int(1)));
    }
    same_bytes(&w);
    for (int i = 0; i < 20; i++) {
        ok(filch_tick(w.sched, 17, NULL));
        same_bytes(&w);
    }
    fixture_tick(&w);
    same_bytes(&w);
    fixture_end(&w);
}

TEST(the_statistics_show_the_memory_in_use_to_the_byte)
{
    memory_is_counted(0);
    memory_is_counted(64u << 20);
}

/* In this test blocks are allocated on one worker and freed on another. */
TEST(with_many_workers_the_sum_is_exact_once_they_are_parked)
{
    fixture      w;
    static actor actors[50];
    memset(actors, 0, sizeof actors);
    fixture_begin(&w, 4);
    for (size_t i = 0; i < COUNT_OF(actors); i++) {
        actor_start(&w, &actors[i], play_large);
        ok(filch_send(w.sched, actors[i].pid, filch_int(1)));
    }
    UNTIL(&w, fixture_stats(&w).sent == 2 * COUNT_OF(actors));
    UNTIL(&w, fixture_stats(&w).asleep == 4);
    UNTIL(&w, fixture_stats(&w).memory == (uint64_t)fli_load_rlx(&w.bytes));
    fixture_end(&w);
}

TEST(an_older_and_shorter_struct_of_stats_is_filled_as_far_as_it_goes)
{
    fixture     w;
    filch_stats stats = { .size = offsetof(filch_stats, memory), .memory = 77 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_sched_stats(w.sched, &stats));
    same(stats.memory, 77);
    fixture_end(&w);
}

TEST(filch_now_is_the_monotonic_clock_under_both_names)
{
    fixture w;
    fixture_begin(&w, FILCH_NO_WORKERS);
    uint64_t before = fli_clock_ns(), now = filch_now(w.sched), old = filch_sim_now(w.sched), after = fli_clock_ns();
    assert_true(before <= now && now <= old && old <= after);
    same(filch_now(NULL), 0);
    same(filch_sim_now(NULL), 0);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_statistics_show_the_memory_in_use_to_the_byte),
        cmocka_unit_test(with_many_workers_the_sum_is_exact_once_they_are_parked),
        cmocka_unit_test(an_older_and_shorter_struct_of_stats_is_filled_as_far_as_it_goes),
        cmocka_unit_test(filch_now_is_the_monotonic_clock_under_both_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
