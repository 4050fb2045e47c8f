/* hosts_test.c - several schedulers of one node: which calls and messages pass between them, and which the policy
 * refuses. */
#include <stdio.h>

#include "api/node_fixture.h"

static filch_err play_ends_on_message(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        int64_t n = filch_as_int(&events[i].data);
        return n != 0 ? (filch_err)n : filch_done(out, filch_str("a result that is longer than an event can hold"));
    }
    return filch_idle(out);
}

static filch_err play_trap(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    me->note = filch_trap_links(out, 1);
    return play_idle(me, events, count, out);
}

TEST(sends_monitors_and_links_reach_other_hosts)
{
    node_fixture c;
    actor        watcher = { 0 }, trapper = { 0 }, target = { 0 }, linked = { 0 }, good = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    filch_sched *first_host = c.hosts[0].sched;
    actor_start(&c.hosts[0], &watcher, play_ends_on_message);
    actor_start(&c.hosts[0], &trapper, play_trap);
    actor_start(&c.hosts[1], &target, play_ends_on_message);
    actor_start(&c.hosts[2], &linked, play_ends_on_message);
    actor_start(&c.hosts[2], &good, play_ends_on_message);
    node_fixture_tick(&c);
    ok(filch_monitor(first_host, watcher.pid, target.pid, 3, NULL));
    ok(filch_monitor(first_host, watcher.pid, good.pid, 4, NULL));
    ok(filch_link(first_host, trapper.pid, target.pid));
    ok(filch_link(first_host, linked.pid, target.pid)); /* first_host links two processes of other hosts */
    ok(filch_send(first_host, good.pid, filch_int(0)));
    ok(filch_send(first_host, target.pid, filch_int(FAILURE)));
    node_fixture_tick(&c);
    same(watcher.seen_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const sighting *s = &watcher.seen[i];
        same(s->type, FILCH_EVENT_EXIT);
        assert_true(same_pid(s->from, s->tag == 3 ? target.pid : good.pid));
        same(s->error, s->tag == 3 ? FAILURE : FILCH_OK);
        same(s->kind, s->tag == 3 ? FILCH_KIND_NONE : FILCH_KIND_TEXT);
    }
    same(trapper.seen_count, 1);
    same(trapper.seen[0].type, FILCH_EVENT_LINK_DOWN);
    assert_true(same_pid(trapper.seen[0].from, target.pid));
    actor_ends(&c.hosts[1], &target, FAILURE);
    same(filch_as_int(&linked.result), FAILURE);
    actor_ends(&c.hosts[2], &linked, FILCH_ELINK);
    filch_drop(&good.result);
    node_fixture_end(&c);
}

TEST(without_a_policy_calls_work_only_inside_a_host)
{
    node_fixture c;
    actor        a = { 0 }, b = { 0 }, there = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, false);
    filch_sched *first_host = c.hosts[0].sched;
    actor_start(&c.hosts[0], &a, play_ends_on_message);
    actor_start(&c.hosts[0], &b, play_ends_on_message);
    actor_start(&c.hosts[1], &there, play_ends_on_message);
    same(filch_send(first_host, there.pid, filch_int(0)), FILCH_EDENIED);
    same(filch_monitor(first_host, a.pid, there.pid, 0, NULL), FILCH_EDENIED);
    same(filch_link(first_host, a.pid, there.pid), FILCH_EDENIED);
    same(filch_terminate(first_host, there.pid), FILCH_EDENIED);
    same(filch_cancel(first_host, there.pid), FILCH_EDENIED);
    same(filch_cancel_with(first_host, there.pid, FAILURE, 0), FILCH_EDENIED);
    same(filch_register(first_host, "there", there.pid), FILCH_EDENIED);
    same(filch_spawn_on(first_host, 101, &actor_type, NULL, NULL), FILCH_EDENIED);
    ok(filch_monitor(first_host, a.pid, b.pid, 0, NULL));
    ok(filch_link(first_host, a.pid, b.pid));
    ok(filch_register(first_host, "b", b.pid));
    same(filch_send(first_host, (filch_pid){ 55, 1 }, filch_none()), FILCH_EFOREIGN);
    same(filch_monitor(first_host, a.pid, (filch_pid){ 55, 1 }, 0, NULL), FILCH_EFOREIGN);
    node_fixture_end(&c);
}

TEST(the_policy_decides_by_command_host_and_process)
{
    node_fixture c;
    actor        a = { 0 }, there = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    filch_sched *first_host = c.hosts[0].sched;
    actor_start(&c.hosts[0], &a, play_ends_on_message);
    actor_start(&c.hosts[1], &there, play_ends_on_message);
    c.allowed = UINT64_C(1) << FILCH_CMD_MONITOR;
    ok(filch_monitor(first_host, a.pid, there.pid, 0, NULL));
    same(c.last.command, FILCH_CMD_MONITOR);
    assert_ptr_equal(c.last.from, first_host);
    assert_ptr_equal(c.last.to, c.hosts[1].sched);
    assert_true(same_pid(c.last.target, there.pid));
    assert_true(is_null_pid(c.last.who));
    same(filch_send(first_host, there.pid, filch_int(0)), FILCH_EDENIED);
    same(c.last.command, FILCH_CMD_SEND);
    same(filch_link(first_host, a.pid, there.pid), FILCH_EDENIED);
    c.allowed = UINT64_C(1) << FILCH_CMD_TERMINATE;
    ok(filch_terminate(first_host, there.pid));
    actor_ends(&c.hosts[1], &there, FILCH_EKILLED);
    same(filch_terminate(first_host, there.pid), FILCH_EDEAD);
    node_fixture_end(&c);
}

static struct {
    filch_pid child;
    filch_err err;
    uint32_t  relations;
    actor     plays;
} colony;

static filch_err play_founder(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        filch_data          first = filch_int(FAILURE);
        colony.plays.play = play_ends_on_message;
        opt.args = filch_ptr(&colony.plays);
        opt.relations = colony.relations;
        opt.name = "colony";
        opt.tag = 8;
        opt.messages = &first;
        opt.message_count = 1;
        colony.err = filch_spawn_on(filch_out_sched(out), 102, &actor_type, &opt, &colony.child);
        return filch_idle(out);
    }
    return play_idle(me, events, count, out);
}

TEST(a_child_on_another_host_can_be_monitored_and_linked)
{
    node_fixture c;
    actor        founder = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    memset(&colony, 0, sizeof colony);
    colony.relations = FILCH_SPAWN_MONITOR;
    actor_start(&c.hosts[0], &founder, play_founder);
    node_fixture_tick(&c);
    ok(colony.err);
    same(colony.child.node, 102);
    same(founder.seen_count, 1);
    same(founder.seen[0].type, FILCH_EVENT_EXIT);
    same(founder.seen[0].error, FAILURE);
    same(founder.seen[0].tag, 8);
    assert_true(same_pid(founder.seen[0].from, colony.child));
    same(filch_spawn_on(c.hosts[0].sched, 55, &actor_type, NULL, NULL), FILCH_EFOREIGN);
    node_fixture_end(&c);
}

TEST(a_name_for_a_process_of_another_host_ends_with_either)
{
    node_fixture c;
    actor        there = { 0 };
    filch_pid    found;
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[1], &there, play_ends_on_message);
    ok(filch_register(c.hosts[0].sched, "there", there.pid));
    ok(filch_register(c.hosts[2].sched, "there", there.pid));
    same(filch_whereis(c.hosts[1].sched, "there", &found), FILCH_EDEAD);
    ok(filch_whereis(c.hosts[0].sched, "there", &found));
    assert_true(same_pid(found, there.pid));
    /* Stops the third host, where the name was registered too. The process belongs to another host and continues. */
    ok(filch_sched_stop(c.hosts[2].sched, FILCH_SECONDS(10), NULL));
    c.hosts[2].sched = NULL;
    ok(filch_send_name(c.hosts[0].sched, "there", filch_int(FAILURE)));
    node_fixture_tick(&c);
    actor_ends(&c.hosts[1], &there, FAILURE);
    same(filch_whereis(c.hosts[0].sched, "there", &found), FILCH_EDEAD);
    node_fixture_end(&c);
}

static filch_err play_yields_send_name(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_yield_send_name(out, 7, "there", filch_str("a text that is longer than an event can hold"));
    return filch_idle(out);
}

TEST(a_yielded_send_to_a_name_reaches_another_host)
{
    node_fixture c;
    actor        there = { 0 }, sender = { 0 }, refused = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[1], &there, play_idle);
    ok(filch_register(c.hosts[0].sched, "there", there.pid));
    actor_start(&c.hosts[0], &sender, play_yields_send_name);
    node_fixture_tick(&c);
    ok(sender.note);
    same(sender.seen_count, 1);
    same(sender.seen[0].type, FILCH_EVENT_YIELD);
    same(sender.seen[0].tag, 7);
    same(sender.seen[0].error, FILCH_OK);
    same(there.seen_count, 1);
    same(there.seen[0].kind, FILCH_KIND_TEXT);
    assert_true(same_pid(there.seen[0].from, sender.pid));
    /* The policy function of the node now refuses all sends, both yielded ones and filch_send_name(). */
    c.allowed = 0;
    actor_start(&c.hosts[0], &refused, play_yields_send_name);
    node_fixture_tick(&c);
    same(refused.seen_count, 1);
    same(refused.seen[0].error, FILCH_EDENIED);
    same(there.seen_count, 1);
    same(filch_send_name(c.hosts[0].sched, "there", filch_int(1)), FILCH_EDENIED);
    node_fixture_end(&c);
}

TEST(a_stopping_host_sends_exit_notices_to_monitors_on_other_hosts)
{
    node_fixture c;
    actor        watcher = { 0 }, target = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[0], &watcher, play_ends_on_message);
    actor_start(&c.hosts[1], &target, play_ends_on_message);
    ok(filch_monitor(c.hosts[0].sched, watcher.pid, target.pid, 2, NULL));
    ok(filch_sched_stop(c.hosts[1].sched, FILCH_SECONDS(10), NULL));
    c.hosts[1].sched = NULL;
    node_fixture_tick(&c);
    same(watcher.seen_count, 1);
    same(watcher.seen[0].type, FILCH_EVENT_EXIT);
    assert_true(same_pid(watcher.seen[0].from, target.pid));
    same(filch_send(c.hosts[0].sched, target.pid, filch_int(0)), FILCH_EDEAD);
    same(filch_monitor(c.hosts[0].sched, watcher.pid, target.pid, 2, NULL), FILCH_EDEAD);
    /* The number of a stopped host is never used again. */
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *again;
    opt.node = 101;
    opt.workers = FILCH_NO_WORKERS;
    same(filch_node_add(c.node, &opt, &again), FILCH_EEXISTS);
    node_fixture_end(&c);
}

/* ---- limits of a host, and commands that it does not allow ---- */

static filch_err play_forbidden(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        me->note = filch_yield_sleep(out, 1, 0);
        me->note |= filch_yield_work(out, 2, NULL, NULL) == FILCH_EINVAL ? FILCH_OK : FILCH_EUSER;
        return filch_wait(out);
    }
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err nothing_handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

TEST(commands_can_be_removed_from_a_registry)
{
    filch_registry *registry;
    filch_options   opt = FILCH_OPTIONS_INIT;
    fixture         w;
    actor           a = { 0 };
    ok(filch_registry_create(&registry));
    ok(filch_registry_remove(registry, FILCH_CMD_SLEEP));
    same(filch_registry_remove(registry, FILCH_CMD_SLEEP), FILCH_ECOMMAND);
    ok(filch_registry_add(registry, 1000, nothing_handler, NULL));
    ok(filch_registry_remove(registry, 1000));
    same(filch_registry_remove(registry, 1000), FILCH_ECOMMAND);
    ok(filch_registry_add(registry, 1000, nothing_handler, NULL));
    same(filch_registry_remove(NULL, 1), FILCH_EINVAL);
    same(filch_registry_remove(registry, 0), FILCH_EINVAL);
    opt.registry = registry;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    same(filch_registry_remove(registry, FILCH_CMD_TIMER), FILCH_EFROZEN);
    actor_start(&w, &a, play_forbidden);
    fixture_tick(&w);
    ok(a.note);
    same(a.seen_count, 1);
    same(a.seen[0].error, FILCH_ECOMMAND);
    filch_registry_destroy(registry);
    fixture_end(&w);
}

TEST(a_host_uses_no_more_memory_than_memory_max)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w;
    actor         a = { 0 };
    static char   large[100000];
    filch_err     err = FILCH_OK;
    uint32_t      sent = 0;
    opt.memory_max = 3000000;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_idle);
    ok(filch_send(w.sched, a.pid, filch_bytes(large, sizeof large)));
    while (err == FILCH_OK && sent < 100) {
        err = filch_send(w.sched, a.pid, filch_bytes(large, sizeof large));
        sent++;
    }
    same(err, FILCH_ENOMEM);
    assert_true(sent < 30);
    assert_true(fli_load_rlx(&w.bytes) <= 3000000 + 4096);
    fixture_tick(&w);
    /* the process has read its messages, so their memory is free again */
    ok(filch_send(w.sched, a.pid, filch_bytes(large, sizeof large)));
    fixture_tick(&w);
    fixture_end(&w);
    opt.memory_max = 1000;
    opt.workers = FILCH_NO_WORKERS;
    same(filch_sched_create(&w.sched, &opt), FILCH_ENOMEM);
}

TEST(invalid_arguments_about_nodes_are_refused)
{
    filch_node        *node;
    filch_node_options opt = FILCH_NODE_OPTIONS_INIT;
    filch_sched       *sched;
    same(filch_node_create(NULL, NULL), FILCH_EINVAL);
    opt.size = 1;
    same(filch_node_create(&node, &opt), FILCH_EINVAL);
    ok(filch_node_create(&node, NULL));
    same(filch_node_add(NULL, NULL, &sched), FILCH_EINVAL);
    same(filch_node_add(node, NULL, NULL), FILCH_EINVAL);
    filch_node_destroy(node);
    filch_node_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_monitors_and_links_reach_other_hosts),
        cmocka_unit_test(without_a_policy_calls_work_only_inside_a_host),
        cmocka_unit_test(the_policy_decides_by_command_host_and_process),
        cmocka_unit_test(a_child_on_another_host_can_be_monitored_and_linked),
        cmocka_unit_test(a_name_for_a_process_of_another_host_ends_with_either),
        cmocka_unit_test(a_yielded_send_to_a_name_reaches_another_host),
        cmocka_unit_test(a_stopping_host_sends_exit_notices_to_monitors_on_other_hosts),
        cmocka_unit_test(commands_can_be_removed_from_a_registry),
        cmocka_unit_test(a_host_uses_no_more_memory_than_memory_max),
        cmocka_unit_test(invalid_arguments_about_nodes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
