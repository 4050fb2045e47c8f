/* hosts_edge_test.c - edge cases of hosts: spawns on other hosts from every place, groups of a single host, names that
 * lead to another host, a full node, options of other versions. */
#include "api/node_fixture.h"

/* ---- spawning on another host of the node ---- */

/* What the init function of the process "settler" found. */
static struct {
    filch_pid pid;
    int64_t   inherited;
    uint32_t  made;
} settler;

static filch_err settler_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)args;
    if (method != NULL) return FILCH_EMETHOD;
    settler.pid = filch_ctx_self(ctx);
    settler.inherited = filch_as_int(filch_ctx_value(ctx, "key"));
    settler.made++;
    return FILCH_OK;
}

static filch_err settler_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type settler_type = { .name = "settler", .init = settler_init, .step = settler_step };

TEST(a_foreign_thread_spawns_on_any_host_with_or_without_a_name)
{
    static const filch_type stepless = { .name = "stepless" };
    node_fixture            c;
    filch_spawn_options     opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid               pid, found;
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    filch_sched *first_host = c.hosts[0].sched;
    ok(filch_spawn_on(first_host, 101, &settler_type, NULL, &pid));
    same(pid.node, 101);
    /* host 100 is first_host itself, so the node's policy function is not called */
    ok(filch_spawn_on(first_host, 100, &settler_type, NULL, &pid));
    same(pid.node, 100);
    same(fli_load_rlx(&c.policy_calls), 1);
    opt.name = "settler";
    ok(filch_spawn_on(first_host, 102, &settler_type, &opt, &pid));
    same(filch_spawn_on(first_host, 102, &settler_type, &opt, NULL), FILCH_EEXISTS);
    /* the name is registered only at host 102, where the process was spawned */
    same(filch_whereis(first_host, "settler", &found), FILCH_EDEAD);
    ok(filch_whereis(c.hosts[2].sched, "settler", &found));
    assert_true(same_pid(found, pid));
    /* A spawn from a foreign thread cannot monitor: only a process can. */
    opt.name = NULL;
    opt.relations = FILCH_SPAWN_MONITOR;
    same(filch_spawn_on(first_host, 101, &settler_type, &opt, NULL), FILCH_ESTATE);
    opt.relations = 1u << 20;
    same(filch_spawn_on(first_host, 101, &settler_type, &opt, NULL), FILCH_EINVAL);
    same(filch_spawn_on(first_host, 101, &stepless, NULL, NULL), FILCH_EINVAL);
    node_fixture_tick(&c);
    node_fixture_end(&c);
}

static struct {
    filch_err err[4];
    filch_pid pid[4];
} founder;

static filch_err play_founder(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched = filch_out_sched(out);
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    founder.err[0] = filch_spawn_on(sched, 101, &settler_type, NULL, &founder.pid[0]);
    me->note = settler.inherited == 42 ? FILCH_OK : FILCH_EUSER;
    ok(filch_values_create(NULL, "key", filch_int(43), &opt.values));
    founder.err[1] = filch_spawn_on(sched, 101, &settler_type, &opt, &founder.pid[1]);
    me->note |= settler.inherited == 43 ? FILCH_OK : FILCH_EUSER;
    filch_values_drop(opt.values);
    return filch_idle(out);
}

TEST(a_child_on_another_host_inherits_the_values_of_its_parent)
{
    node_fixture        c;
    actor               a = { 0 };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    memset(&founder, 0, sizeof founder);
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    ok(filch_values_create(NULL, "key", filch_int(42), &opt.values));
    actor_start_with(&c.hosts[0], &a, play_founder, opt);
    filch_values_drop(opt.values);
    node_fixture_tick(&c);
    ok(founder.err[0] | founder.err[1] | a.note);
    assert_true(same_pid(c.last.who, a.pid)); /* the node's policy function gets the pid of the spawning process */
    node_fixture_end(&c);
}

/* A handler that spawns processes. A handler is not a process, so its spawns cannot ask for relations. */
static filch_err spawning_handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched = filch_ctx_sched(command->ctx);
    (void)user;
    founder.err[0] = filch_spawn_on(sched, 101, &settler_type, NULL, NULL);
    opt.relations = FILCH_SPAWN_LINK;
    founder.err[1] = filch_spawn_on(sched, 101, &settler_type, &opt, NULL);
    opt.relations = 0;
    opt.name = "by a handler";
    founder.err[2] = filch_spawn_on(sched, 100, &settler_type, &opt, NULL);
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return filch_idle(out);
}

/* An on_exit function that spawns. The ended process counts as the caller; it can have no relations any more. */
static void on_exit_spawns(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    node_fixture       *c = user;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    (void)pid, (void)error, (void)result;
    opt.name = "heir";
    founder.err[0] = filch_spawn_on(c->hosts[0].sched, 101, &settler_type, &opt, &founder.pid[0]);
    founder.err[1] = filch_spawn(c->hosts[0].sched, &settler_type, &opt, &founder.pid[1]);
    opt.relations = FILCH_SPAWN_MONITOR;
    opt.name = NULL;
    founder.err[2] = filch_spawn(c->hosts[0].sched, &settler_type, &opt, NULL);
    founder.err[3] = filch_broadcast(c->hosts[0].sched, "listeners", filch_int(1), NULL);
}

TEST(handlers_and_on_exit_cannot_spawn_with_relations)
{
    node_fixture        c;
    actor               a = { 0 }, listener = { 0 };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_registry     *registry;
    filch_pid           pid;
    memset(&c, 0, sizeof c);
    memset(&founder, 0, sizeof founder);
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    ok(filch_sched_stop(c.hosts[0].sched, FILCH_SECONDS(10), NULL));
    filch_options sched = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, spawning_handler, NULL));
    sched.registry = registry;
    sched.node = 110;
    sched.workers = FILCH_NO_WORKERS;
    sched.alloc = fixture_alloc;
    sched.alloc_user = &c.hosts[0];
    ok(filch_node_add(c.node, &sched, &c.hosts[0].sched));
    filch_registry_destroy(registry);
    actor_start(&c.hosts[0], &a, play_yields);
    node_fixture_tick(&c);
    ok(a.note | founder.err[0]);
    /* the node's policy function gets the pid of the process that made the yield */
    assert_true(same_pid(c.last.who, a.pid));
    same(founder.err[1], FILCH_ESTATE);
    same(founder.err[2], FILCH_EDEAD); /* the host on which the process should be spawned has stopped */
    memset(&founder, 0, sizeof founder);
    actor_start(&c.hosts[0], &listener, play_idle);
    ok(filch_join(c.hosts[0].sched, "listeners", listener.pid));
    opt.on_exit = on_exit_spawns;
    opt.on_exit_user = &c;
    ok(filch_spawn(c.hosts[0].sched, &settler_type, &opt, &pid));
    ok(filch_terminate(c.hosts[0].sched, pid));
    node_fixture_tick(&c);
    ok(founder.err[0] | founder.err[1] | founder.err[3]);
    assert_true(same_pid(c.last.who, pid));
    same(founder.pid[0].node, 101);
    same(founder.pid[1].node, 110);
    same(founder.err[2], FILCH_EDEAD);
    same(listener.seen_count, 1);
    assert_true(same_pid(listener.seen[0].from, pid));
    node_fixture_end(&c);
}

static void on_blackbox(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    (void)user, (void)pid, (void)error, (void)bytes, (void)size;
}

static filch_err play_recorded(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    me->note = filch_spawn_on(filch_out_sched(out), 101, &settler_type, NULL, NULL);
    return filch_done(out, filch_none());
}

TEST(a_recorded_process_can_spawn_only_on_its_own_host)
{
    filch_node         *node;
    filch_node_options  how = FILCH_NODE_OPTIONS_INIT;
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_sched        *first_host, *far;
    actor               a = { .play = play_recorded };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    ok(filch_node_create(&node, &how));
    opt.workers = FILCH_NO_WORKERS;
    opt.node = 101;
    ok(filch_node_add(node, &opt, &far));
    opt.node = 100;
    opt.on_blackbox = on_blackbox;
    opt.blackbox = 16;
    ok(filch_node_add(node, &opt, &first_host));
    spawn.args = filch_ptr(&a);
    ok(filch_spawn(first_host, &actor_type, &spawn, NULL));
    ok(filch_tick(first_host, 0, NULL));
    same(a.note, FILCH_ESTATE);
    ok(filch_sched_stop(first_host, FILCH_SECONDS(1), NULL));
    ok(filch_sched_stop(far, FILCH_SECONDS(1), NULL));
    filch_node_destroy(node);
}

/* ---- relations between hosts, and relations that end when a host stops ---- */

TEST(groups_have_members_of_one_host_only)
{
    node_fixture c;
    actor        there = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[1], &there, play_idle);
    same(filch_join(c.hosts[0].sched, "g", there.pid), FILCH_EFOREIGN);
    same(filch_watch(c.hosts[0].sched, "g", there.pid, 1), FILCH_EFOREIGN);
    same(filch_leave(c.hosts[0].sched, "g", there.pid), FILCH_EFOREIGN);
    same(filch_unwatch(c.hosts[0].sched, "g", there.pid), FILCH_EFOREIGN);
    ok(filch_join(c.hosts[1].sched, "g", there.pid));
    node_fixture_tick(&c);
    same(there.seen_count, 0);
    node_fixture_end(&c);
}

TEST(two_processes_of_other_hosts_are_linked_only_if_both_hosts_allow_it)
{
    node_fixture c;
    actor        a = { 0 }, b = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[1], &a, play_idle);
    actor_start(&c.hosts[2], &b, play_idle);
    for (c.closed = 101; c.closed <= 102; c.closed++) {
        same(filch_link(c.hosts[0].sched, a.pid, b.pid), FILCH_EDENIED);
        same(filch_monitor(c.hosts[0].sched, a.pid, b.pid, 1, NULL), FILCH_EDENIED);
    }
    c.closed = 0;
    ok(filch_link(c.hosts[0].sched, a.pid, b.pid));
    ok(filch_unlink(c.hosts[0].sched, a.pid, b.pid));
    node_fixture_end(&c);
}

TEST(a_ready_process_on_another_host_can_be_terminated_twice)
{
    node_fixture c;
    actor        a = { 0 };
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[1], &a, play_idle);
    ok(filch_terminate(c.hosts[0].sched, a.pid)); /* terminates the process before its first step */
    ok(filch_terminate(c.hosts[0].sched, a.pid));
    node_fixture_tick(&c);
    actor_ends(&c.hosts[1], &a, FILCH_EKILLED);
    same(filch_terminate(c.hosts[0].sched, a.pid), FILCH_EDEAD);
    same(filch_terminate(c.hosts[0].sched, (filch_pid){ 101, UINT64_MAX }), FILCH_EDEAD);
    node_fixture_end(&c);
}

static filch_pid routed;

static filch_err far_route(void *user, const filch_package *package)
{
    (void)user;
    routed = package->to;
    return FILCH_OK;
}

TEST(a_message_for_no_host_goes_to_the_route_of_the_sending_host)
{
    filch_node   *node;
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *first_host;
    opt.workers = FILCH_NO_WORKERS;
    opt.route = far_route;
    ok(filch_node_create(&node, NULL));
    ok(filch_node_add(node, &opt, &first_host));
    ok(filch_send(first_host, (filch_pid){ 7, 8 }, filch_none()));
    same(routed.serial, 8);
    ok(filch_sched_stop(first_host, FILCH_SECONDS(1), NULL));
    filch_node_destroy(node);
}

TEST(a_monitor_reference_works_only_for_its_owner)
{
    node_fixture c;
    actor        a = { 0 }, twin = { 0 }, target = { 0 };
    uint64_t     ref;
    node_fixture_begin(&c, FILCH_NO_WORKERS, true);
    actor_start(&c.hosts[0], &a, play_idle);
    actor_start(&c.hosts[1], &twin, play_idle);
    actor_start(&c.hosts[0], &target, play_idle);
    same(a.pid.serial, twin.pid.serial); /* the pids of `a` and `twin` are equal except for the host */
    ok(filch_monitor(c.hosts[0].sched, a.pid, target.pid, 1, &ref));
    ok(filch_link(c.hosts[0].sched, a.pid, target.pid));
    same(filch_unmonitor(c.hosts[1].sched, twin.pid, ref), FILCH_ESTALE);
    same(filch_unmonitor(c.hosts[0].sched, target.pid, ref), FILCH_ESTALE);
    /* The guessed references include that of the link of process a. filch_unmonitor() must refuse it, because a link is
     * not a monitor. */
    for (uint64_t i = 1; i < 70; i++) {
        same(filch_unmonitor(c.hosts[0].sched, a.pid, ref + i), FILCH_ESTALE);
        if (ref > i) same(filch_unmonitor(c.hosts[0].sched, a.pid, ref - i), FILCH_ESTALE);
    }
    ok(filch_unlink(c.hosts[0].sched, a.pid, target.pid)); /* filch_unmonitor() has not removed the link */
    ok(filch_unmonitor(c.hosts[0].sched, a.pid, ref));
    node_fixture_end(&c);
}

/* ---- nodes ---- */

TEST(a_node_takes_at_most_256_hosts)
{
    enum { ALL = 256 };
    static filch_sched *hosts[ALL];
    filch_node         *node;
    filch_node_options  how = FILCH_NODE_OPTIONS_INIT;
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_sched        *more = NULL;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_node_create(&node, &how));
    for (uint64_t i = 0; i < ALL; i++) {
        opt.node = 1000 + i;
        ok(filch_node_add(node, &opt, &hosts[i]));
    }
    opt.node = 5;
    same(filch_node_add(node, &opt, &more), FILCH_ELIMIT);
    opt.node = 1255;
    same(filch_node_add(node, &opt, &more), FILCH_EEXISTS);
    assert_null(more);
    same(filch_send(hosts[0], (filch_pid){ 5, 1 }, filch_none()), FILCH_EFOREIGN);
    same(filch_send(hosts[0], (filch_pid){ 1255, 1 }, filch_none()), FILCH_EDENIED);
    for (int i = 0; i < ALL; i++) ok(filch_sched_stop(hosts[i], FILCH_SECONDS(1), NULL));
    filch_node_destroy(node);
}

TEST(options_of_a_node_may_be_of_another_version)
{
    struct {
        filch_node_options known;
        uint64_t           later;
    } newer = { .known = { .size = sizeof newer } };
    filch_node_options older = { .size = offsetof(filch_node_options, policy), .policy = decide };
    filch_options      bad = FILCH_OPTIONS_INIT;
    filch_node        *node;
    filch_sched       *sched = NULL;
    ok(filch_node_create(&node, &newer.known));
    bad.workers = -7;
    same(filch_node_add(node, &bad, &sched), FILCH_EINVAL);
    assert_null(sched);
    filch_node_destroy(node);
    newer.later = 1;
    same(filch_node_create(&node, &newer.known), FILCH_EINVAL);
    ok(filch_node_create(&node, &older)); /* `size` says that the struct of this older version ends before `policy` */
    filch_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_thread_spawns_on_any_host_with_or_without_a_name),
        cmocka_unit_test(a_child_on_another_host_inherits_the_values_of_its_parent),
        cmocka_unit_test(handlers_and_on_exit_cannot_spawn_with_relations),
        cmocka_unit_test(a_recorded_process_can_spawn_only_on_its_own_host),
        cmocka_unit_test(groups_have_members_of_one_host_only),
        cmocka_unit_test(two_processes_of_other_hosts_are_linked_only_if_both_hosts_allow_it),
        cmocka_unit_test(a_ready_process_on_another_host_can_be_terminated_twice),
        cmocka_unit_test(a_message_for_no_host_goes_to_the_route_of_the_sending_host),
        cmocka_unit_test(a_monitor_reference_works_only_for_its_owner),
        cmocka_unit_test(a_node_takes_at_most_256_hosts),
        cmocka_unit_test(options_of_a_node_may_be_of_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
