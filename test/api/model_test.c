/* model_test.c - processes with relations: monitors, links, names, spawning with relations, cancel with a deadline. */
#include <stdio.h>

#include "api/fixture.h"

/* The process ends at its first message, an int n: with the error -n if n < 0, otherwise with the result n. */
static filch_err play_ends_on_message(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        int64_t n = filch_as_int(&events[i].data);
        if (n < 0) return (filch_err)-n;
        return filch_done(out, filch_int(n));
    }
    return filch_idle(out);
}

#define FAILURE (FILCH_EUSER + 7)

static void send_number(fixture *w, actor *a, int64_t n)
{
    ok(filch_send(w->sched, a->pid, filch_int(n)));
}

static void see(const actor *a, size_t i, int32_t type, filch_pid from, filch_err error, uint64_t tag)
{
    assert_true(a->seen_count > i);
    same(a->seen[i].type, type);
    assert_true(same_pid(a->seen[i].from, from));
    same(a->seen[i].error, error);
    same(a->seen[i].tag, tag);
}

/* A play function that traps links from its first step on. */
static filch_err play_trap(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    me->note = filch_trap_links(out, 1);
    return play_idle(me, events, count, out);
}

/* ---- monitors ---- */

TEST(a_monitor_delivers_the_result_or_the_error_once)
{
    fixture  w;
    actor    watcher = { 0 }, good = { 0 }, bad = { 0 };
    uint64_t ref = 0;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_idle);
    actor_start(&w, &good, play_ends_on_message);
    actor_start(&w, &bad, play_ends_on_message);
    ok(filch_monitor(w.sched, watcher.pid, good.pid, 11, &ref));
    assert_true(ref != 0);
    ok(filch_monitor(w.sched, watcher.pid, bad.pid, 12, NULL));
    fixture_tick(&w);
    same(watcher.seen_count, 0);
    send_number(&w, &good, 42);
    fixture_tick(&w);
    send_number(&w, &bad, -FAILURE);
    fixture_tick(&w);
    same(watcher.seen_count, 2);
    see(&watcher, 0, FILCH_EVENT_EXIT, good.pid, FILCH_OK, 11);
    same(watcher.seen[0].number, 42);
    see(&watcher, 1, FILCH_EVENT_EXIT, bad.pid, FAILURE, 12);
    same(filch_unmonitor(w.sched, watcher.pid, ref), FILCH_ESTALE);
    fixture_end(&w);
}

TEST(a_monitor_of_an_ended_process_gets_exit_at_once)
{
    fixture  w;
    actor    watcher = { 0 }, target = { 0 };
    uint64_t ref = 1;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_idle);
    actor_start(&w, &target, play_ends_on_message);
    send_number(&w, &target, 1);
    actor_ends(&w, &target, FILCH_OK);
    ok(filch_monitor(w.sched, watcher.pid, target.pid, 5, &ref));
    same(ref, 0);
    fixture_tick(&w);
    same(watcher.seen_count, 1);
    see(&watcher, 0, FILCH_EVENT_EXIT, target.pid, FILCH_EDEAD, 5);
    /* A pid that never existed counts as ended. */
    filch_pid nonsense = { watcher.pid.node, UINT64_C(0x0000000100ffffff) };
    ok(filch_monitor(w.sched, watcher.pid, nonsense, 6, NULL));
    fixture_tick(&w);
    see(&watcher, 1, FILCH_EVENT_EXIT, nonsense, FILCH_EDEAD, 6);
    same(filch_monitor(w.sched, target.pid, watcher.pid, 0, NULL), FILCH_EDEAD);
    fixture_end(&w);
}

TEST(after_unmonitor_no_event_comes)
{
    fixture  w;
    actor    watcher = { 0 }, target = { 0 };
    uint64_t first, second;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_idle);
    actor_start(&w, &target, play_ends_on_message);
    ok(filch_monitor(w.sched, watcher.pid, target.pid, 1, &first));
    ok(filch_monitor(w.sched, watcher.pid, target.pid, 2, &second));
    assert_true(first != second);
    /* `first` is the reference of a monitor that `watcher` made, so `target` cannot remove the monitor */
    same(filch_unmonitor(w.sched, target.pid, first), FILCH_ESTALE);
    ok(filch_unmonitor(w.sched, watcher.pid, first));
    same(filch_unmonitor(w.sched, watcher.pid, first), FILCH_ESTALE);
    same(filch_unmonitor(w.sched, watcher.pid, 0), FILCH_ESTALE);
    same(filch_unmonitor(w.sched, watcher.pid, UINT64_MAX), FILCH_ESTALE);
    send_number(&w, &target, 0);
    fixture_tick(&w);
    same(watcher.seen_count, 1);
    see(&watcher, 0, FILCH_EVENT_EXIT, target.pid, FILCH_OK, 2);
    fixture_end(&w);
}

TEST(a_monitoring_process_that_ends_first_leaks_nothing)
{
    fixture w;
    actor   watcher = { 0 }, target = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_ends_on_message);
    actor_start(&w, &target, play_ends_on_message);
    for (int i = 0; i < 100; i++) ok(filch_monitor(w.sched, watcher.pid, target.pid, 1, NULL));
    send_number(&w, &watcher, 0);
    actor_ends(&w, &watcher, FILCH_OK);
    send_number(&w, &target, 0);
    actor_ends(&w, &target, FILCH_OK);
    fixture_end(&w);
}

/* The process waits for a yield that is never completed. It ends when an exit notice arrives. */
static filch_err play_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        me->note = filch_yield_sleep(out, 1, FILCH_FOREVER);
        return filch_wait(out);
    }
    if (count > 0 && events[0].type == FILCH_EVENT_EXIT) return filch_done(out, filch_int(events[0].error));
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_wait(out);
}

TEST(an_exit_reaches_a_waiting_process_before_earlier_messages)
{
    fixture w;
    actor   watcher = { 0 }, target = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &watcher, play_waits);
    actor_start(&w, &target, play_ends_on_message);
    fixture_tick(&w);
    for (int i = 0; i < 5; i++) ok(filch_send(w.sched, watcher.pid, filch_int(i)));
    ok(filch_monitor(w.sched, watcher.pid, target.pid, 9, NULL));
    send_number(&w, &target, -FAILURE);
    (void)fixture_tick(&w);
    assert_true(is_over(&watcher));
    actor_ends(&w, &watcher, FILCH_OK);
    same(watcher.seen_count, 1);
    see(&watcher, 0, FILCH_EVENT_EXIT, target.pid, FAILURE, 9);
    fixture_end(&w);
}

/* ---- links ---- */

TEST(a_failure_ends_all_linked_processes_with_the_first_reason)
{
    fixture w;
    actor   chain[4] = { { 0 } };
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int i = 0; i < 4; i++) actor_start(&w, &chain[i], play_ends_on_message);
    for (int i = 0; i < 3; i++) ok(filch_link(w.sched, chain[i].pid, chain[i + 1].pid));
    fixture_tick(&w);
    send_number(&w, &chain[1], -FAILURE);
    UNTIL(&w, is_over(&chain[0]) && is_over(&chain[3]));
    same(filch_as_int(&chain[0].result), FAILURE);
    same(filch_as_int(&chain[2].result), FAILURE);
    same(filch_as_int(&chain[3].result), FAILURE);
    actor_ends(&w, &chain[0], FILCH_ELINK);
    actor_ends(&w, &chain[1], FAILURE);
    actor_ends(&w, &chain[2], FILCH_ELINK);
    actor_ends(&w, &chain[3], FILCH_ELINK);
    fixture_end(&w);
}

TEST(an_end_without_error_only_removes_the_link)
{
    fixture w;
    actor   a = { 0 }, b = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    ok(filch_link(w.sched, a.pid, b.pid));
    send_number(&w, &a, 3);
    actor_ends(&w, &a, FILCH_OK);
    fixture_tick(&w);
    assert_false(is_over(&b));
    same(b.seen_count, 0);
    same(filch_unlink(w.sched, a.pid, b.pid), FILCH_ESTALE);
    fixture_end(&w);
}

TEST(a_process_that_traps_links_gets_link_down_and_continues)
{
    fixture w;
    actor   trapper = { 0 }, killed = { 0 }, failed = { 0 }, linked = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &trapper, play_trap);
    actor_start(&w, &killed, play_ends_on_message);
    actor_start(&w, &failed, play_ends_on_message);
    actor_start(&w, &linked, play_ends_on_message);
    fixture_tick(&w);
    ok(trapper.note);
    ok(filch_link(w.sched, trapper.pid, killed.pid));
    ok(filch_link(w.sched, failed.pid, linked.pid));
    ok(filch_link(w.sched, linked.pid, trapper.pid));
    ok(filch_terminate(w.sched, killed.pid));
    fixture_tick(&w);
    send_number(&w, &failed, -FAILURE);
    fixture_tick(&w);
    same(trapper.seen_count, 2);
    see(&trapper, 0, FILCH_EVENT_LINK_DOWN, killed.pid, FILCH_EKILLED, 0);
    see(&trapper, 1, FILCH_EVENT_LINK_DOWN, linked.pid, FILCH_ELINK, 0);
    same(trapper.seen[1].number, FAILURE);
    assert_false(is_over(&trapper));
    fixture_end(&w);
    filch_drop(&linked.result);
}

TEST(linking_twice_is_one_link)
{
    fixture w;
    actor   a = { 0 }, b = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    ok(filch_link(w.sched, a.pid, b.pid));
    ok(filch_link(w.sched, b.pid, a.pid));
    ok(filch_unlink(w.sched, a.pid, b.pid));
    same(filch_unlink(w.sched, a.pid, b.pid), FILCH_ESTALE);
    send_number(&w, &a, -FAILURE);
    actor_ends(&w, &a, FAILURE);
    fixture_tick(&w);
    assert_false(is_over(&b));
    fixture_end(&w);
}

/* Processes with many links find a link by an index (model/relations.c). */
TEST(links_between_processes_with_many_links_are_found_and_removed)
{
    enum { HUBS = 4, OTHERS = 300 };
    fixture w;
    actor   hubs[HUBS] = { { 0 } }, *others = calloc(OTHERS, sizeof *others), late = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int i = 0; i < HUBS; i++) actor_start(&w, &hubs[i], play_ends_on_message);
    for (int i = 0; i < OTHERS; i++) actor_start(&w, &others[i], play_trap);
    actor_start(&w, &late, play_ends_on_message);
    fixture_tick(&w);
    for (int i = 0; i < OTHERS; i++) {
        for (int k = 0; k < HUBS; k++) ok(filch_link(w.sched, hubs[k].pid, others[i].pid));
    }
    for (int round = 0; round < 3; round++) {
        /* Linking two hubs that have no index of links makes an index for one of them. */
        for (int k = 0; k < HUBS; k++) {
            for (int j = 0; j < HUBS; j++) {
                if (j != k) ok(filch_link(w.sched, hubs[k].pid, hubs[j].pid));
            }
        }
        for (int k = 0; k < HUBS; k++) {
            for (int j = 0; j < k; j++) {
                ok(filch_unlink(w.sched, hubs[round % 2 == 0 ? k : j].pid, hubs[round % 2 == 0 ? j : k].pid));
                same(filch_unlink(w.sched, hubs[k].pid, hubs[j].pid), FILCH_ESTALE);
            }
        }
    }
    for (int i = 0; i < OTHERS; i += 2) {
        ok(filch_unlink(w.sched, others[i].pid, hubs[0].pid));
        same(filch_unlink(w.sched, hubs[0].pid, others[i].pid), FILCH_ESTALE);
    }
    ok(filch_link(w.sched, hubs[0].pid, hubs[1].pid));
    ok(filch_link(w.sched, late.pid, hubs[0].pid));
    ok(filch_link(w.sched, hubs[2].pid, hubs[3].pid));
    send_number(&w, &hubs[0], -FAILURE);
    actor_ends(&w, &hubs[0], FAILURE);
    UNTIL(&w, is_over(&hubs[1]) && is_over(&late));
    fixture_tick(&w);
    assert_false(is_over(&hubs[2]) || is_over(&hubs[3]));
    /* hubs[0] and hubs[1] have failed. Of these two hubs, the actors others[i] with an even i were linked only with
     * hubs[1], the actors with an odd i with both. */
    for (int i = 0; i < OTHERS; i++) same(others[i].seen_count, i % 2 == 0 ? 1 : 2);
    same(filch_unlink(w.sched, hubs[2].pid, hubs[0].pid), FILCH_ESTALE);
    ok(filch_unlink(w.sched, hubs[3].pid, hubs[2].pid));
    for (int i = 0; i < OTHERS; i++) ok(filch_unlink(w.sched, hubs[2].pid, others[i].pid));
    fixture_end(&w);
    free(others);
}

TEST(a_link_with_an_ended_process_acts_as_if_it_had_failed)
{
    fixture w;
    actor   a = { 0 }, b = { 0 }, dead = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_trap);
    actor_start(&w, &dead, play_ends_on_message);
    send_number(&w, &dead, 0);
    actor_ends(&w, &dead, FILCH_OK);
    ok(filch_link(w.sched, a.pid, dead.pid));
    ok(filch_link(w.sched, dead.pid, b.pid));
    UNTIL(&w, is_over(&a));
    same(filch_as_int(&a.result), FILCH_EDEAD);
    actor_ends(&w, &a, FILCH_ELINK);
    fixture_tick(&w);
    see(&b, 0, FILCH_EVENT_LINK_DOWN, dead.pid, FILCH_EDEAD, 0);
    same(filch_link(w.sched, a.pid, dead.pid), FILCH_EDEAD);
    fixture_end(&w);
}

/* ---- names ---- */

TEST(a_name_has_one_process_until_that_ends)
{
    fixture   w;
    actor     a = { 0 }, b = { 0 };
    filch_pid found = { 0, 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    same(filch_whereis(w.sched, "a", &found), FILCH_EDEAD);
    ok(filch_register(w.sched, "a", a.pid));
    ok(filch_register(w.sched, "also a", a.pid));
    same(filch_register(w.sched, "a", b.pid), FILCH_EEXISTS);
    ok(filch_whereis(w.sched, "also a", &found));
    assert_true(same_pid(found, a.pid));
    ok(filch_unregister(w.sched, "also a"));
    same(filch_unregister(w.sched, "also a"), FILCH_EDEAD);
    ok(filch_send_name(w.sched, "a", filch_int(8)));
    actor_ends(&w, &a, FILCH_OK);
    same(a.seen[0].number, 8);
    same(filch_whereis(w.sched, "a", &found), FILCH_EDEAD);
    same(filch_send_name(w.sched, "a", filch_int(8)), FILCH_EDEAD);
    same(filch_register(w.sched, "a", a.pid), FILCH_EDEAD);
    ok(filch_register(w.sched, "a", b.pid));
    ok(filch_whereis(w.sched, "a", &found));
    assert_true(same_pid(found, b.pid));
    fixture_end(&w);
}

TEST(names_are_1_to_255_bytes)
{
    fixture w;
    actor   a = { 0 };
    char    name[258];
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    memset(name, 'x', sizeof name);
    name[256] = '\0';
    same(filch_register(w.sched, name, a.pid), FILCH_EINVAL);
    name[255] = '\0';
    ok(filch_register(w.sched, name, a.pid));
    same(filch_register(w.sched, "", a.pid), FILCH_EINVAL);
    same(filch_register(w.sched, NULL, a.pid), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(thousands_of_names_are_found_and_all_are_released)
{
    fixture   w;
    actor     a = { 0 };
    uint32_t  count = fixture_scale(20000, 200);
    char      name[32];
    filch_pid found;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_ends_on_message);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "name %u", i);
        ok(filch_register(w.sched, name, a.pid));
    }
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "name %u", i);
        ok(filch_whereis(w.sched, name, &found));
    }
    send_number(&w, &a, 0);
    actor_ends(&w, &a, FILCH_OK);
    same(filch_whereis(w.sched, "name 0", &found), FILCH_EDEAD);
    fixture_end(&w);
}

/* ---- spawning with relations ---- */

static struct {
    actor       child;
    filch_pid   pid;
    uint32_t    relations;
    const char *name;
    filch_err   err;
} spawn_case;

static filch_err play_parent(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        filch_data first[3] = { filch_int(1), filch_str("a text that needs more than 24 bytes"), filch_int(-FAILURE) };
        spawn_case.child.play = play_ends_on_message;
        opt.args = filch_ptr(&spawn_case.child);
        opt.relations = spawn_case.relations;
        opt.name = spawn_case.name;
        opt.tag = 77;
        opt.messages = &first[2];
        opt.message_count = 1;
        spawn_case.err = filch_spawn(filch_out_sched(out), &actor_type, &opt, &spawn_case.pid);
        return filch_idle(out);
    }
    return play_idle(me, events, count, out);
}

static void run_spawn(fixture *w, actor *parent, play_fn play, uint32_t relations, const char *name)
{
    memset(&spawn_case, 0, sizeof spawn_case);
    spawn_case.relations = relations;
    spawn_case.name = name;
    actor_start(w, parent, play);
    fixture_tick(w);
}

TEST(a_child_spawned_with_a_monitor_is_monitored_from_its_start)
{
    fixture w;
    actor   parent = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    run_spawn(&w, &parent, play_parent, FILCH_SPAWN_MONITOR, "child");
    ok(spawn_case.err);
    same(parent.seen_count, 1);
    see(&parent, 0, FILCH_EVENT_EXIT, spawn_case.pid, FAILURE, 77);
    /* the parent counts as the sender of the first message */
    assert_true(same_pid(spawn_case.child.seen[0].from, parent.pid));
    fixture_end(&w);
}

TEST(a_linked_child_that_fails_ends_its_parent)
{
    fixture w;
    actor   parent = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    run_spawn(&w, &parent, play_parent, FILCH_SPAWN_LINK, NULL);
    ok(spawn_case.err);
    assert_true(is_over(&parent));
    same(filch_as_int(&parent.result), FAILURE);
    actor_ends(&w, &parent, FILCH_ELINK);
    fixture_end(&w);
}

TEST(a_spawn_with_monitor_link_and_a_taken_name_fails)
{
    fixture w;
    actor   parent = { 0 }, holder = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &holder, play_ends_on_message);
    ok(filch_register(w.sched, "taken", holder.pid));
    run_spawn(&w, &parent, play_parent, FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK, "taken");
    same(spawn_case.err, FILCH_EEXISTS);
    same(spawn_case.child.inits, 0); /* the init function of the child was not called */
    same(fixture_stats(&w).alive, 2);
    /* A spawn outside of a step has no parent that could monitor the child or be linked with it. */
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(&spawn_case.child);
    opt.relations = FILCH_SPAWN_LINK;
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_ESTATE);
    opt.relations = 8;
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(first_messages_come_first_and_in_order)
{
    fixture             w;
    actor               a = { 0 };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_data          first[3] = { filch_int(1), filch_str("a text that needs more than its twenty-four bytes"),
                                     filch_int(3) };
    fixture_begin(&w, FILCH_NO_WORKERS);
    opt.messages = first;
    opt.message_count = 3;
    opt.mailbox_max = 1; /* messages in the spawn options do not count against mailbox_max */
    opt.name = "first";
    actor_start_with(&w, &a, play_idle, opt);
    ok(filch_send_name(w.sched, "first", filch_int(4)));
    fixture_tick(&w);
    same(a.seen_count, 4);
    same(a.seen[0].number, 1);
    same(a.seen[1].kind, FILCH_KIND_TEXT);
    same(a.seen[2].number, 3);
    same(a.seen[3].number, 4);
    opt.name = NULL;
    opt.messages = NULL;
    opt.args = filch_ptr(&a);
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

/* ---- as yields ---- */

static struct {
    actor     child;
    filch_pid target;
    int64_t   first_message; /* the number that the child gets as its first message */
    filch_err err;
} exec_job;

/* Starts a child by an exec yield, with first_message as its message. Waits for the completion and ends with the
 * child's result. */
static filch_err play_exec(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        filch_data          first = filch_int(exec_job.first_message);
        exec_job.child.play = play_ends_on_message;
        opt.args = filch_ptr(&exec_job.child);
        opt.messages = &first;
        opt.message_count = 1;
        exec_job.err = filch_yield_exec(out, 5, &actor_type, &opt);
        return filch_wait(out);
    }
    if (count != 1 || events[0].type != FILCH_EVENT_YIELD || events[0].tag != 5) return FILCH_EUSER;
    return events[0].error != FILCH_OK ? events[0].error : filch_done(out, events[0].data);
}

TEST(exec_completes_with_the_result_or_the_error)
{
    fixture w;
    actor   good = { 0 }, bad = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    exec_job.first_message = 1234;
    memset(&exec_job.child, 0, sizeof exec_job.child);
    actor_start(&w, &good, play_exec);
    UNTIL(&w, is_over(&good));
    same(filch_as_int(&good.result), 1234);
    actor_ends(&w, &good, FILCH_OK);
    same(exec_job.child.closes, 1);
    exec_job.first_message = -FAILURE;
    memset(&exec_job.child, 0, sizeof exec_job.child);
    actor_start(&w, &bad, play_exec);
    actor_ends(&w, &bad, FAILURE);
    fixture_end(&w);
}

/* In each stage makes one yield about the process `target`. The actor records the completions. */
static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    switch (me->stage++) {
    case 0:
        exec_job.child.play = play_ends_on_message;
        opt.args = filch_ptr(&exec_job.child);
        opt.relations = FILCH_SPAWN_MONITOR;
        opt.tag = 500;
        opt.name = "yielded";
        exec_job.err = filch_yield_spawn(out, 1, &actor_type, &opt);
        return filch_wait(out);
    case 1:
        exec_job.target = filch_as_pid(&events[0].data);
        exec_job.err |= filch_trap_links(out, 1);
        exec_job.err |= filch_yield_monitor(out, 2, exec_job.target);
        exec_job.err |= filch_yield_link(out, 3, exec_job.target);
        exec_job.err |= filch_yield_register(out, 4, "me");
        exec_job.err |= filch_yield_send_name(out, 5, "me", filch_str("hello, me: this is longer than 24 bytes"));
        return filch_idle(out);
    default: break;
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD || events[i].tag != 2) continue;
        exec_job.err |= filch_yield_unmonitor(out, 6, (uint64_t)filch_as_int(&events[i].data));
        exec_job.err |= filch_yield_unlink(out, 7, exec_job.target);
        exec_job.err |= filch_yield_unlink(out, 8, exec_job.target);
        exec_job.err |= filch_yield_unregister(out, 9, "me");
        exec_job.err |= filch_yield_cancel(out, 10, exec_job.target, FAILURE, FILCH_SECONDS(1));
        exec_job.err |= filch_yield_terminate(out, 11, exec_job.target);
    }
    return filch_idle(out);
}

static const sighting *completion_of(const actor *a, uint64_t tag)
{
    for (size_t i = 0; i < a->seen_count; i++) {
        if (a->seen[i].type == FILCH_EVENT_YIELD && a->seen[i].tag == tag) return &a->seen[i];
    }
    fail_msg("no answer to %d", (int)tag);
    return NULL;
}

TEST(every_relation_can_be_yielded)
{
    fixture w;
    actor   me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&exec_job, 0, sizeof exec_job);
    actor_start(&w, &me, play_yields);
    fixture_tick(&w);
    ok(exec_job.err);
    for (uint64_t tag = 1; tag <= 11; tag++) same(completion_of(&me, tag)->error, tag == 8 ? FILCH_ESTALE : FILCH_OK);
    const sighting *exit = &me.seen[me.seen_count - 1];
    size_t          exits = 0, texts = 0;
    for (size_t i = 0; i < me.seen_count; i++) {
        exits += me.seen[i].type == FILCH_EVENT_EXIT;
        texts += me.seen[i].type == FILCH_EVENT_MESSAGE && me.seen[i].kind == FILCH_KIND_TEXT;
        if (me.seen[i].type == FILCH_EVENT_EXIT) exit = &me.seen[i];
    }
    /* the EXIT notice of the monitor that the spawn made; the second monitor and the link were removed before */
    same(exits, 1);
    same(exit->tag, 500);
    same(exit->error, FILCH_EKILLED);
    same(texts, 1);
    fixture_end(&w);
}

static filch_err play_bad_commands(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)count;
    static const uint32_t commands[] = { FILCH_CMD_SPAWN,     FILCH_CMD_EXEC,      FILCH_CMD_CANCEL,  FILCH_CMD_JOIN,
                                         FILCH_CMD_BROADCAST, FILCH_CMD_SEND_NAME, FILCH_CMD_REGISTER };
    if (me->stage++ == 0) {
        for (size_t i = 0; i < COUNT_OF(commands); i++) {
            me->note |= filch_yield(out, commands[i], i, filch_bytes("12345678", 8));
            me->note |= filch_yield(out, commands[i], i, filch_none());
        }
    }
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(commands_with_invalid_data_are_refused)
{
    fixture w;
    actor   me = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_bad_commands);
    fixture_tick(&w);
    ok(me.note);
    same(me.seen_count, 14);
    for (size_t i = 0; i < me.seen_count; i++) same(me.seen[i].error, FILCH_EINVAL);
    fixture_end(&w);
}

/* ---- cancel with a reason and a deadline ---- */

TEST(a_cancel_carries_reason_and_deadline_and_comes_first)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    fixture_tick(&w);
    for (int i = 0; i < 5; i++) ok(filch_send(w.sched, a.pid, filch_int(i)));
    ok(filch_cancel_with(w.sched, a.pid, FAILURE, FILCH_SECONDS(100)));
    actor_ends(&w, &a, FILCH_OK);
    see(&a, 0, FILCH_EVENT_CANCEL, (filch_pid){ 0, 0 }, FAILURE, 0);
    same(a.seen[0].number, FILCH_SECONDS(100));
    same(fixture_stats(&w).timers, 0); /* the timer of the deadline was removed when the process ended */
    same(filch_cancel_with(w.sched, a.pid, FAILURE, 0), FILCH_EDEAD);
    same(filch_cancel_with(w.sched, a.pid, FILCH_OK, 0), FILCH_EINVAL);
    fixture_end(&w);
}

static filch_err play_stubborn(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    (void)events;
    (void)count;
    return filch_idle(out);
}

TEST(after_its_deadline_a_cancelled_process_is_ended)
{
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 2; workers += 3) {
        fixture w;
        actor   a = { 0 };
        fixture_begin(&w, workers);
        actor_start(&w, &a, play_stubborn);
        ok(filch_cancel_with(w.sched, a.pid, FAILURE, FILCH_MILLISECONDS(1)));
        actor_ends(&w, &a, FILCH_EKILLED);
        fixture_end(&w);
    }
}

TEST(a_cancel_without_a_deadline_waits_for_ever)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_stubborn);
    ok(filch_cancel_with(w.sched, a.pid, FAILURE, FILCH_FOREVER));
    fixture_tick(&w);
    same(a.seen_count, 1);
    same(fixture_stats(&w).timers, 0);
    fixture_end_as(&w, 0, FILCH_EDEADLINE);
}

/* ---- recordings (blackbox) of processes with relations ---- */

static struct {
    void     *bytes;
    size_t    size;
    filch_pid other;
    uint64_t  refs[2]; /* reference of the monitor: [0] while recording, [1] in the replay */
    int       run;
} recorded;

static void keep_box(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    (void)user;
    (void)pid;
    (void)error;
    recorded.bytes = malloc(size);
    recorded.size = size;
    memcpy(recorded.bytes, bytes, size);
}

/* Makes every relation with another process, and fails when that process ends. */
static filch_err recorded_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t     *steps = self;
    filch_sched *sched = filch_out_sched(out);
    filch_pid    me = filch_ctx_self(filch_out_ctx(out));
    filch_err    err = FILCH_OK;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_EXIT) return events[i].error;
    }
    if ((*steps)++ == 0) {
        uint64_t ref;
        err |= filch_monitor(sched, me, recorded.other, 4, &recorded.refs[recorded.run]);
        err |= filch_monitor(sched, me, recorded.other, 5, &ref);
        err |= filch_unmonitor(sched, me, ref);
        err |= filch_register(sched, "taped", me);
        err |= filch_join(sched, "taped", me);
        err |= filch_broadcast(sched, "taped", filch_int(3), NULL);
        err |= filch_send_name(sched, "taped", filch_str("a message to itself, longer than an event can hold"));
        err |= filch_cancel_with(sched, recorded.other, FAILURE, FILCH_SECONDS(100));
    }
    return err != FILCH_OK ? FILCH_EUSER : filch_idle(out);
}

static const filch_type recorded_type = { .name = "taped", .size = sizeof(int64_t), .step = recorded_step };

/* The process fails when it is cancelled. */
static filch_err play_sulks(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return has_cancel(events, count) ? events[0].error : filch_idle(out);
}

TEST(a_process_with_relations_fails_again_in_a_replay)
{
    filch_options         opt = FILCH_OPTIONS_INIT;
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    fixture               w;
    actor                 other = { 0 };
    memset(&recorded, 0, sizeof recorded);
    opt.on_blackbox = keep_box;
    opt.blackbox = 100;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start_with(&w, &other, play_sulks,
                     (filch_spawn_options){ .size = sizeof(filch_spawn_options), .blackbox = FILCH_BLACKBOX_OFF });
    recorded.other = other.pid;
    ok(filch_spawn(w.sched, &recorded_type, NULL, NULL));
    fixture_tick(&w);
    assert_non_null(recorded.bytes);
    recorded.run = 1;
    ok(filch_blackbox_replay(recorded.bytes, recorded.size, &recorded_type, &report));
    assert_string_equal(report.text, "");
    same(report.again, 1);
    same(report.error, FAILURE);
    assert_true(recorded.refs[0] != 0 &&
                recorded.refs[0] == recorded.refs[1]); /* the replay returns the recorded reference of the monitor */
    free(recorded.bytes);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_monitor_delivers_the_result_or_the_error_once),
        cmocka_unit_test(a_monitor_of_an_ended_process_gets_exit_at_once),
        cmocka_unit_test(after_unmonitor_no_event_comes),
        cmocka_unit_test(a_monitoring_process_that_ends_first_leaks_nothing),
        cmocka_unit_test(an_exit_reaches_a_waiting_process_before_earlier_messages),
        cmocka_unit_test(a_failure_ends_all_linked_processes_with_the_first_reason),
        cmocka_unit_test(an_end_without_error_only_removes_the_link),
        cmocka_unit_test(a_process_that_traps_links_gets_link_down_and_continues),
        cmocka_unit_test(linking_twice_is_one_link),
        cmocka_unit_test(links_between_processes_with_many_links_are_found_and_removed),
        cmocka_unit_test(a_link_with_an_ended_process_acts_as_if_it_had_failed),
        cmocka_unit_test(a_name_has_one_process_until_that_ends),
        cmocka_unit_test(names_are_1_to_255_bytes),
        cmocka_unit_test(thousands_of_names_are_found_and_all_are_released),
        cmocka_unit_test(a_child_spawned_with_a_monitor_is_monitored_from_its_start),
        cmocka_unit_test(a_linked_child_that_fails_ends_its_parent),
        cmocka_unit_test(a_spawn_with_monitor_link_and_a_taken_name_fails),
        cmocka_unit_test(first_messages_come_first_and_in_order),
        cmocka_unit_test(exec_completes_with_the_result_or_the_error),
        cmocka_unit_test(every_relation_can_be_yielded),
        cmocka_unit_test(commands_with_invalid_data_are_refused),
        cmocka_unit_test(a_cancel_carries_reason_and_deadline_and_comes_first),
        cmocka_unit_test(after_its_deadline_a_cancelled_process_is_ended),
        cmocka_unit_test(a_cancel_without_a_deadline_waits_for_ever),
        cmocka_unit_test(a_process_with_relations_fails_again_in_a_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
