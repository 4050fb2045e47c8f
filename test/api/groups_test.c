/* groups_test.c - groups: members, broadcasts, notices; and what an upgrade keeps. */
#include "api/fixture.h"

#define FAILURE (FILCH_EUSER + 9)

/* The process ends at its first message, with the number in the message as its error; 0: without an error. */
static filch_err play_ends_on_message(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE || filch_kind_of(&events[i].data) != FILCH_KIND_INT) continue;
        filch_err err = (filch_err)filch_as_int(&events[i].data);
        return err != FILCH_OK ? err : filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static size_t count_of(fixture *w, const char *group)
{
    size_t count = 99;
    ok(filch_members(w->sched, group, NULL, 0, &count));
    return count;
}

TEST(members_are_listed_once_per_join_and_in_join_order)
{
    fixture   w;
    actor     a = { 0 }, b = { 0 };
    filch_pid pids[4];
    size_t    count;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    same(count_of(&w, "g"), 0);
    ok(filch_join(w.sched, "g", a.pid));
    ok(filch_join(w.sched, "g", b.pid));
    ok(filch_join(w.sched, "g", a.pid));
    ok(filch_join(w.sched, "another", a.pid));
    ok(filch_members(w.sched, "g", pids, 4, &count));
    same(count, 3);
    assert_true(same_pid(pids[0], a.pid) && same_pid(pids[1], b.pid) && same_pid(pids[2], a.pid));
    ok(filch_members(w.sched, "g", pids, 1, &count));
    same(count, 3);
    ok(filch_leave(w.sched, "g", a.pid));
    ok(filch_members(w.sched, "g", pids, 4, &count));
    same(count, 2); /* `a` had joined twice; leaving removed the newer of its two entries */
    assert_true(same_pid(pids[0], a.pid) && same_pid(pids[1], b.pid));
    ok(filch_leave(w.sched, "g", a.pid));
    same(filch_leave(w.sched, "g", a.pid), FILCH_ESTALE);
    same(filch_leave(w.sched, "nowhere", a.pid), FILCH_ESTALE);
    ok(filch_send(w.sched, b.pid, filch_int(0)));
    actor_ends(&w, &b, FILCH_OK);
    same(count_of(&w, "g"), 0);
    same(count_of(&w, "another"), 1);
    same(filch_join(w.sched, "g", b.pid), FILCH_EDEAD);
    same(count_of(&w, "g"), 0);
    fixture_end(&w);
}

/* Each filch_leave() of a process that has joined a group several times removes the newest of its memberships, whether
 * it watches the group or not. The end of the process removes its remaining memberships. */
TEST(a_process_that_joined_several_times_leaves_its_newest_place)
{
    enum { TIMES = 5 };
    fixture   w;
    actor     a = { 0 }, b = { 0 }, watcher = { 0 };
    filch_pid pids[2 * TIMES];
    size_t    count;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    actor_start(&w, &watcher, play_ends_on_message);
    ok(filch_watch(w.sched, "g", watcher.pid, 1));
    for (int i = 0; i < TIMES; i++) {
        ok(filch_join(w.sched, "g", a.pid));
        ok(filch_watch(w.sched, "g", a.pid, 2));
        ok(filch_join(w.sched, "g", b.pid));
    }
    for (int i = 0; i < TIMES; i++) ok(filch_unwatch(w.sched, "g", a.pid));
    same(filch_unwatch(w.sched, "g", a.pid), FILCH_ESTALE);
    for (size_t left = TIMES; left-- > 2;) {
        ok(filch_leave(w.sched, "g", a.pid));
        ok(filch_members(w.sched, "g", pids, 2 * TIMES, &count));
        same(count, left + TIMES);
        for (size_t i = 0; i < count; i++) {
            assert_true(same_pid(pids[i], i < 2 * left && i % 2 == 0 ? a.pid : b.pid));
        }
    }
    ok(filch_join(w.sched, "g", a.pid));
    ok(filch_members(w.sched, "g", pids, 2 * TIMES, &count));
    assert_true(same_pid(pids[count - 1], a.pid));
    ok(filch_send(w.sched, a.pid, filch_int(0)));
    actor_ends(&w, &a, FILCH_OK);
    same(count_of(&w, "g"), TIMES);
    for (int i = 0; i < TIMES; i++) ok(filch_leave(w.sched, "g", b.pid));
    same(filch_leave(w.sched, "g", b.pid), FILCH_ESTALE);
    same(count_of(&w, "g"), 0);
    fixture_tick(&w);
    same(watcher.seen_count, 4 * TIMES + 2); /* notices JOINED and LEFT for each of 2 * TIMES + 1 joins */
    fixture_end(&w);
}

TEST(a_broadcast_reaches_every_member_and_is_copied_once)
{
    enum { MEMBERS = 10, SIZE = 100000 };
    fixture  w;
    actor    a[MEMBERS] = { { 0 } };
    uint64_t sent = 0;
    char    *bytes = malloc(SIZE);
    memset(bytes, 'b', SIZE);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int i = 0; i < MEMBERS; i++) {
        actor_start(&w, &a[i], play_ends_on_message);
        ok(filch_join(w.sched, "g", a[i].pid));
    }
    fixture_tick(&w);
    int64_t before = fli_load_rlx(&w.bytes);
    ok(filch_broadcast(w.sched, "g", filch_bytes(bytes, SIZE), &sent));
    same(sent, MEMBERS);
    assert_true(fli_load_rlx(&w.bytes) - before < 2 * SIZE);
    fixture_tick(&w);
    for (int i = 0; i < MEMBERS; i++) same(a[i].seen_count, 1);
    /* filch_broadcast() frees the moved bytes although the group has no member */
    ok(filch_broadcast(w.sched, "nobody", filch_move(bytes, SIZE, NULL), &sent));
    same(sent, 0);
    fixture_end(&w);
}

TEST(watchers_get_notices_of_joins_and_leaves_in_order)
{
    fixture w;
    actor   watcher = { 0 }, late = { 0 }, a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_ends_on_message);
    actor_start(&w, &late, play_ends_on_message);
    actor_start(&w, &a, play_ends_on_message);
    ok(filch_watch(w.sched, "a group with a name that does not fit into an event", watcher.pid, 6));
    const char *g = "a group with a name that does not fit into an event";
    ok(filch_join(w.sched, g, a.pid));
    ok(filch_watch(w.sched, g, late.pid, 7));
    ok(filch_join(w.sched, g, a.pid));
    ok(filch_leave(w.sched, g, a.pid));
    ok(filch_send(w.sched, a.pid, filch_int(FAILURE)));
    actor_ends(&w, &a, FAILURE);
    fixture_tick(&w);
    static const int32_t types[] = { FILCH_EVENT_JOINED, FILCH_EVENT_JOINED, FILCH_EVENT_LEFT, FILCH_EVENT_LEFT };
    same(watcher.seen_count, 4);
    same(late.seen_count, 3);
    for (size_t i = 0; i < 4; i++) {
        same(watcher.seen[i].type, types[i]);
        same(watcher.seen[i].tag, 6);
        same(watcher.seen[i].kind, FILCH_KIND_TEXT);
        assert_true(same_pid(watcher.seen[i].from, a.pid));
        if (i < 3) same(late.seen[i].type, types[i + 1]);
    }
    ok(filch_unwatch(w.sched, g, watcher.pid));
    same(filch_unwatch(w.sched, g, watcher.pid), FILCH_ESTALE);
    ok(filch_join(w.sched, g, late.pid));
    fixture_tick(&w);
    same(watcher.seen_count, 4);
    same(late.seen_count, 4); /* `late` still watches the group, so it gets the notice of its own join */
    fixture_end(&w);
}

static filch_err play_group_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ == 0) {
        me->note |= filch_yield_watch(out, 1, "g");
        me->note |= filch_yield_join(out, 2, "g");
        me->note |= filch_yield_members(out, 3, "g");
        me->note |= filch_yield_broadcast(out, 4, "g", filch_int(5));
        me->note |= filch_yield_leave(out, 5, "g");
        me->note |= filch_yield_leave(out, 6, "g");
        me->note |= filch_yield_unwatch(out, 7, "g");
        me->note |= filch_yield_members(out, 8, "g");
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        if (events[i].tag == 3 && filch_size(&events[i].data) != sizeof(filch_pid)) me->note = FILCH_EUSER;
        if (events[i].tag == 8 && filch_size(&events[i].data) != 0) me->note = FILCH_EUSER + 1;
        if (events[i].tag == 4 && filch_as_int(&events[i].data) != 1) me->note = FILCH_EUSER + 2;
        if (events[i].error != (events[i].tag == 6 ? FILCH_ESTALE : FILCH_OK)) me->note = FILCH_EUSER + 3;
    }
    return filch_idle(out);
}

TEST(group_functions_can_be_yielded)
{
    fixture w;
    actor   me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_group_yields);
    fixture_tick(&w);
    ok(me.note);
    same(me.seen_count, 8 + 2 + 1); /* 8 completions, the notices JOINED and LEFT, and the broadcast */
    same(count_of(&w, "g"), 0);
    fixture_end(&w);
}

/* ---- upgrade ---- */

static struct {
    uint32_t  inits, closes;
    filch_err init_result;
} second;

static filch_err second_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    (void)args;
    second.inits++;
    *(int *)self = 2;
    return second.init_result;
}

static filch_err second_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (*(int *)self != 2) return FILCH_EUSER;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_LINK_DOWN) return filch_done(out, filch_int(events[i].error));
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static void second_close(void *self)
{
    (void)self;
    second.closes++;
}

static const filch_type second_type = {
    .name = "second", .size = sizeof(int), .init = second_init, .step = second_step, .close = second_close
};

static filch_err play_upgrade(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && events[0].type == FILCH_EVENT_MESSAGE) return filch_upgrade(out, &second_type, NULL, filch_none());
    me->note = filch_trap_links(out, 1);
    return play_idle(me, events, count, out);
}

TEST(an_upgrade_keeps_names_groups_monitors_links_and_traps)
{
    fixture   w;
    actor     me = { 0 }, watcher = { 0 }, linked = { 0 };
    filch_pid found;
    memset(&second, 0, sizeof second);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_upgrade);
    actor_start(&w, &watcher, play_ends_on_message);
    actor_start(&w, &linked, play_ends_on_message);
    ok(filch_monitor(w.sched, watcher.pid, me.pid, 3, NULL));
    ok(filch_link(w.sched, me.pid, linked.pid));
    ok(filch_register(w.sched, "me", me.pid));
    ok(filch_join(w.sched, "g", me.pid));
    fixture_tick(&w);
    ok(filch_send(w.sched, me.pid, filch_int(1)));
    fixture_tick(&w);
    same(second.inits, 1);
    same(me.closes, 1);
    assert_string_equal(fixture_inspect(&w, me.pid).name, "second");
    ok(filch_whereis(w.sched, "me", &found));
    assert_true(same_pid(found, me.pid));
    same(count_of(&w, "g"), 1);
    same(watcher.seen_count, 0);
    ok(filch_send(w.sched, linked.pid, filch_int(FAILURE)));
    UNTIL(&w, is_over(&me));
    same(filch_as_int(&me.result), FAILURE);
    fixture_tick(&w);
    same(watcher.seen_count, 1);
    same(watcher.seen[0].type, FILCH_EVENT_EXIT);
    same(watcher.seen[0].number, FAILURE);
    same(second.closes, 1);
    same(me.closes, 1);
    same(filch_whereis(w.sched, "me", &found), FILCH_EDEAD);
    fixture_end(&w);
}

TEST(an_upgrade_that_fails_ends_the_process_and_monitors_get_its_error)
{
    fixture w;
    actor   me = { 0 }, watcher = { 0 };
    memset(&second, 0, sizeof second);
    second.init_result = FAILURE;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_upgrade);
    actor_start(&w, &watcher, play_ends_on_message);
    ok(filch_monitor(w.sched, watcher.pid, me.pid, 3, NULL));
    fixture_tick(&w);
    ok(filch_send(w.sched, me.pid, filch_int(1)));
    actor_ends(&w, &me, FAILURE); /* actor_ends() also checks that close was called once */
    fixture_tick(&w);
    same(second.inits, 1);
    same(second.closes, 0); /* `second` is the state of the new type: its init failed, so its close is not called */
    same(watcher.seen[0].type, FILCH_EVENT_EXIT);
    same(watcher.seen[0].error, FAILURE);
    fixture_end(&w);
}

static uint64_t bytes_of(fixture *w, filch_pid pid)
{
    filch_info info = fixture_inspect(w, pid);
    return info.relation_bytes + info.given_bytes;
}

TEST(relations_count_for_the_process_that_made_them_until_they_end)
{
    fixture  w;
    actor    a = { 0 }, b = { 0 };
    uint64_t monitor, twice;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    same(bytes_of(&w, a.pid), 0);
    ok(filch_monitor(w.sched, a.pid, b.pid, 0, &monitor));
    uint64_t one = bytes_of(&w, a.pid);
    assert_true(one >= 128 && one <= 160);
    ok(filch_monitor(w.sched, a.pid, b.pid, 0, &twice));
    same(bytes_of(&w, a.pid), 2 * one);
    ok(filch_link(w.sched, a.pid, b.pid));
    same(bytes_of(&w, a.pid), 3 * one);
    same(bytes_of(&w, b.pid), 0);
    ok(filch_unmonitor(w.sched, a.pid, twice));
    same(bytes_of(&w, a.pid), 2 * one);
    /* the end of the other process ends the monitor and the link */
    ok(filch_send(w.sched, b.pid, filch_int(0)));
    actor_ends(&w, &b, FILCH_OK);
    same(bytes_of(&w, a.pid), 0);
    fixture_end(&w);
}

TEST(names_memberships_and_deadlines_count_for_their_process)
{
    static const char long_name[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    fixture           w;
    actor             a = { 0 }, b = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    ok(filch_register(w.sched, "n", a.pid));
    uint64_t name = bytes_of(&w, a.pid);
    assert_true(name >= 100 && name < 300);
    ok(filch_unregister(w.sched, "n"));
    same(bytes_of(&w, a.pid), 0);
    ok(filch_register(w.sched, long_name, a.pid));
    assert_true(bytes_of(&w, a.pid) >= name + sizeof long_name - 32);
    ok(filch_unregister(w.sched, long_name));
    ok(filch_join(w.sched, "g", a.pid));
    uint64_t member = bytes_of(&w, a.pid);
    assert_true(member >= 300 && member < 800);
    ok(filch_join(w.sched, "g", b.pid));
    ok(filch_leave(w.sched, "g", a.pid));
    same(bytes_of(&w, a.pid), 0);
    same(bytes_of(&w, b.pid), member);
    ok(filch_cancel_with(w.sched, a.pid, FILCH_ECANCELLED, FILCH_SECONDS(1000)));
    assert_true(bytes_of(&w, a.pid) >= 128 && bytes_of(&w, a.pid) < 200);
    fixture_end(&w);
}

/* A group reserves a node for each pair of a member and a watcher. The younger of both counts the node. */
TEST(reserved_notices_of_a_group_count_for_its_processes)
{
    fixture w;
    actor   a = { 0 }, b = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    ok(filch_watch(w.sched, "g", a.pid, 0));
    uint64_t watch = bytes_of(&w, a.pid), before = 0, grown = 0;
    for (int i = 0; i < 10; i++) ok(filch_watch(w.sched, "g", a.pid, 0));
    same(bytes_of(&w, a.pid), 11 * watch);
    ok(filch_join(w.sched, "g", b.pid));
    assert_true(bytes_of(&w, b.pid) >= 11 * 64);
    for (int i = 0; i < 10; i++) ok(filch_join(w.sched, "g", b.pid));
    before = bytes_of(&w, a.pid);
    ok(filch_watch(w.sched, "g", a.pid, 0));
    grown = bytes_of(&w, a.pid) - before;
    assert_true(grown >= 11 * 64);
    for (int i = 0; i < 11; i++) ok(filch_leave(w.sched, "g", b.pid));
    same(bytes_of(&w, b.pid), 0);
    same(bytes_of(&w, a.pid), before + grown);
    for (int i = 0; i < 12; i++) ok(filch_unwatch(w.sched, "g", a.pid));
    same(bytes_of(&w, a.pid), 0);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_listed_once_per_join_and_in_join_order),
        cmocka_unit_test(a_process_that_joined_several_times_leaves_its_newest_place),
        cmocka_unit_test(a_broadcast_reaches_every_member_and_is_copied_once),
        cmocka_unit_test(watchers_get_notices_of_joins_and_leaves_in_order),
        cmocka_unit_test(group_functions_can_be_yielded),
        cmocka_unit_test(an_upgrade_keeps_names_groups_monitors_links_and_traps),
        cmocka_unit_test(an_upgrade_that_fails_ends_the_process_and_monitors_get_its_error),
        cmocka_unit_test(relations_count_for_the_process_that_made_them_until_they_end),
        cmocka_unit_test(names_memberships_and_deadlines_count_for_their_process),
        cmocka_unit_test(reserved_notices_of_a_group_count_for_its_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
