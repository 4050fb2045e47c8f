/* model_edge_test.c - edge cases of relations: the first relations of a scheduler made by two threads at once, members
 * that join while they are counted, invalid names, spawns by yield with and without relations, leaving a group without
 * being a member. */
#include "api/fixture.h"
#include "proc/proc.h"
#include "support/until.h"
#include "sync/slab.h"

/* ---- actions of another thread during an allocation ---- */

/* State of an allocator. In one of its calls it runs `meanwhile` on another thread before it returns. */
static struct {
    size_t   least; /* `meanwhile` runs during an allocation of at least this size; 0: it never runs */
    uint32_t skip;  /* number of allocations of at least `least` bytes before the one in which `meanwhile` runs */
    void (*meanwhile)(fixture *w);
    bool happened;
} pause_at;

static void run_meanwhile(void *arg)
{
    pause_at.meanwhile(arg);
}

static void *pausing_alloc(void *user, void *old, size_t old_size, size_t size)
{
    if (pause_at.least != 0 && size >= pause_at.least && pause_at.skip-- == 0) {
        fli_thread other;
        pause_at.least = 0;
        ok(fli_thread_start(&other, "other", run_meanwhile, user));
        fli_thread_join(&other);
        pause_at.happened = true;
    }
    return fixture_alloc(user, old, old_size, size);
}

static void begin(fixture *w)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    memset(&pause_at, 0, sizeof pause_at);
    *w = (fixture){ .ticks = true };
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = pausing_alloc;
    opt.alloc_user = w;
    ok(filch_sched_create(&w->sched, &opt));
}

static actor     first_actor;
static filch_err meanwhile_err;

static void register_meanwhile(fixture *w)
{
    meanwhile_err = filch_register(w->sched, "meanwhile", first_actor.pid);
}

TEST(two_calls_that_make_the_first_relation_at_once_both_succeed)
{
    fixture   w;
    filch_pid found;
    begin(&w);
    first_actor = (actor){ 0 };
    actor_start(&w, &first_actor, play_idle);
    pause_at.least = 1;
    pause_at.meanwhile = register_meanwhile;
    ok(filch_register(w.sched, "first", first_actor.pid));
    assert_true(pause_at.happened);
    ok(meanwhile_err);
    ok(filch_whereis(w.sched, "first", &found));
    ok(filch_whereis(w.sched, "meanwhile", &found));
    assert_true(same_pid(found, first_actor.pid));
    fixture_end(&w);
}

static actor late_actor;

static void join_meanwhile(fixture *w)
{
    meanwhile_err = filch_join(w->sched, "group", late_actor.pid);
    meanwhile_err |= filch_join(w->sched, "group", late_actor.pid);
}

TEST(a_broadcast_reaches_members_that_join_while_it_allocates)
{
    fixture  w;
    uint64_t sent = 0;
    begin(&w);
    first_actor = late_actor = (actor){ 0 };
    actor_start(&w, &first_actor, play_idle);
    actor_start(&w, &late_actor, play_idle);
    ok(filch_join(w.sched, "group", first_actor.pid));
    pause_at.least = sizeof(filch_pid);
    pause_at.meanwhile = join_meanwhile;
    ok(filch_broadcast(w.sched, "group", filch_int(1), &sent));
    assert_true(pause_at.happened);
    ok(meanwhile_err);
    same(sent, 3);
    fixture_tick(&w);
    same(first_actor.seen_count, 1);
    same(late_actor.seen_count, 2);
    fixture_end(&w);
}

static filch_err play_members(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ == 0) {
        me->note = filch_yield_members(out, 1, "group");
        return filch_idle(out);
    }
    for (size_t i = 0; i < count; i++) me->stage = (int64_t)(filch_size(&events[i].data) / sizeof(filch_pid));
    return filch_idle(out);
}

TEST(members_are_counted_again_when_some_join_during_the_allocation)
{
    fixture w;
    actor   asks = { 0 }, again = { 0 };
    begin(&w);
    first_actor = late_actor = (actor){ 0 };
    actor_start(&w, &asks, play_members); /* at this time no process of the scheduler has ever had a relation */
    fixture_tick(&w);
    same(asks.stage, 0);
    actor_start(&w, &first_actor, play_idle);
    actor_start(&w, &late_actor, play_idle);
    ok(filch_join(w.sched, "group", first_actor.pid));
    actor_start(&w, &again, play_members);
    ok(filch_send(w.sched, first_actor.pid, filch_none())); /* the message leaves spare event nodes at the worker */
    pause_at.least = sizeof(filch_pid);
    pause_at.meanwhile = join_meanwhile;
    fixture_tick(&w);
    assert_true(pause_at.happened);
    ok(again.note | meanwhile_err);
    same(again.stage, 3);
    fixture_end(&w);
}

/* ---- filch_leave() for a process that is not a member, filch_unwatch() for one that is not a watcher ---- */

TEST(a_process_that_is_not_in_a_group_cannot_leave_it)
{
    fixture w;
    actor   in = { 0 }, out = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &in, play_idle);
    actor_start(&w, &out, play_idle);
    ok(filch_join(w.sched, "group", in.pid));
    same(filch_leave(w.sched, "group", out.pid), FILCH_ESTALE); /* process `out` has no relations */
    same(filch_leave(w.sched, "group", (filch_pid){ in.pid.node, UINT64_MAX }), FILCH_ESTALE);
    same(filch_unwatch(w.sched, "group", in.pid), FILCH_ESTALE); /* process `in` is a member, not a watcher */
    ok(filch_register(w.sched, "out", out.pid));
    same(filch_leave(w.sched, "group", out.pid), FILCH_ESTALE); /* process `out` has a name, but is not in the group */
    ok(filch_terminate(w.sched, out.pid));
    fixture_tick(&w);
    same(filch_leave(w.sched, "group", out.pid), FILCH_ESTALE); /* process `out` has ended */
    ok(filch_leave(w.sched, "group", in.pid));
    same(filch_leave(w.sched, "group", in.pid), FILCH_ESTALE); /* the group no longer exists */
    fixture_end(&w);
}

/* ---- calls in the close function, while a process ends ---- */

static struct {
    filch_sched *sched;
    filch_err    named;
    size_t       members;
} last_look;

/* A close function. It runs when its process has ended, before any notice is sent. */
static void look_around(void *self)
{
    filch_pid pid;
    (void)self;
    last_look.named = filch_whereis(last_look.sched, "somebody", &pid);
    ok(filch_members(last_look.sched, "group", NULL, 0, &last_look.members));
}

static filch_err end_at_once(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    return count > 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(an_ending_process_has_no_name_and_no_group_before_notices_are_sent)
{
    static const filch_type mortal = { .name = "mortal", .step = end_at_once, .close = look_around };
    filch_spawn_options     opt = FILCH_SPAWN_OPTIONS_INIT;
    fixture                 w;
    filch_pid               pid, found;
    size_t                  members;
    fixture_begin(&w, FILCH_NO_WORKERS);
    opt.name = "somebody";
    ok(filch_spawn(w.sched, &mortal, &opt, &pid));
    ok(filch_join(w.sched, "group", pid));
    fixture_tick(&w);
    ok(filch_whereis(w.sched, "somebody", &found));
    assert_true(same_pid(found, pid));
    ok(filch_members(w.sched, "group", NULL, 0, &members));
    same(members, 1);
    last_look.sched = w.sched;
    last_look.named = FILCH_OK;
    last_look.members = 7;
    ok(filch_send(w.sched, pid, filch_none()));
    fixture_tick(&w);
    same(last_look.named, FILCH_EDEAD);
    same(last_look.members, 0);
    fixture_end(&w);
}

/* ---- spawning ---- */

TEST(a_spawn_with_an_invalid_name_leaks_nothing)
{
    fixture             w;
    actor               a = { .play = play_idle };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_data          first = filch_int(1);
    char                name[257];
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    fixture_begin(&w, FILCH_NO_WORKERS);
    opt.args = filch_ptr(&a);
    opt.name = name;
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    same(a.closes, a.inits);
    opt.name = "";
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    name[255] = '\0';
    opt.name = name;
    ok(filch_spawn(w.sched, &actor_type, &opt, NULL));
    opt.name = NULL;
    opt.messages = &first;
    opt.message_count = (1u << 26) + 1;
    same(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    same(fixture_stats(&w).alive, 1);
    fixture_end(&w);
}

static struct {
    actor     children[4];
    filch_err err;
} brood;

static filch_err play_brood(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const filch_type stepless = { .name = "stepless" };
    filch_spawn_options     opt = FILCH_SPAWN_OPTIONS_INIT;
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    for (int i = 0; i < 4; i++) brood.children[i].play = play_idle;
    if (filch_yield_spawn(out, 9, &stepless, NULL) != FILCH_EINVAL) brood.err = FILCH_EUSER;
    opt.args = filch_ptr(&brood.children[0]);
    /* spawns a process without name and without relations */
    brood.err |= filch_yield_spawn(out, 0, &actor_type, &opt);
    opt.args = filch_ptr(&brood.children[1]);
    opt.name = "taken";
    brood.err |= filch_yield_spawn(out, 1, &actor_type, &opt); /* spawns a process with a name, without relations */
    opt.args = filch_ptr(&brood.children[2]);
    opt.relations = FILCH_SPAWN_LINK | FILCH_SPAWN_MONITOR;
    /* spawns a process with relations and with a name that is in use */
    brood.err |= filch_yield_spawn(out, 2, &actor_type, &opt);
    opt.args = filch_ptr(&brood.children[3]);
    opt.relations = 0;
    brood.err |= filch_yield_exec(out, 3, &actor_type, &opt);
    /* a join command made by filch_yield(), with an empty name, which filch_yield_join() would refuse */
    brood.err |= filch_yield(out, FILCH_CMD_JOIN, 4, filch_str(""));
    brood.err |= filch_yield(out, FILCH_CMD_REGISTER, 5, filch_int(3));
    return filch_idle(out);
}

TEST(yielded_spawns_report_a_taken_name_and_leak_nothing)
{
    fixture w;
    actor   me = { 0 };
    memset(&brood, 0, sizeof brood);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_brood);
    fixture_tick(&w);
    ok(brood.err);
    static const filch_err expected[] = {
        FILCH_OK, FILCH_OK, FILCH_EEXISTS, FILCH_EEXISTS, FILCH_EINVAL, FILCH_EINVAL
    };
    same(me.seen_count, COUNT_OF(expected));
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        same(me.seen[i].tag, i);
        same(me.seen[i].error, expected[i]);
    }
    same(fixture_stats(&w).alive, 3);
    for (int i = 0; i < 4; i++) same(brood.children[i].inits - brood.children[i].closes, i < 2 ? 1 : 0);
    fixture_end(&w);
}

/* Yields a spawn and a broadcast while the scheduler's allocator fails: both must return FILCH_ENOMEM, because the
 * command is allocated by the scheduler and not by malloc. */
static filch_err play_counts(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    fixture            *w = me->user;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    opt.args = filch_ptr(&brood.children[0]);
    fli_store_rlx(&w->deny, true);
    if (filch_yield_spawn(out, 1, &actor_type, &opt) != FILCH_ENOMEM) me->note = FILCH_EUSER;
    if (filch_yield_broadcast(out, 2, "group", filch_none()) != FILCH_ENOMEM) me->note = FILCH_EUSER + 1;
    fli_store_rlx(&w->deny, false);
    return filch_idle(out);
}

TEST(without_scheduler_memory_a_yielded_spawn_or_broadcast_is_refused)
{
    fixture w;
    actor   me = { .user = &w };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &me, play_counts);
    fixture_tick(&w);
    ok(me.note);
    fixture_end(&w);
}

/* ---- in a simulation ---- */

static filch_err foreign_err;

static void relate_from_elsewhere(void *arg)
{
    foreign_err = filch_register(arg, "strange", (filch_pid){ 1, 1 });
}

static filch_err lonely_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    fli_thread other;
    (void)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    filch_err err = fli_thread_start(&other, "other", relate_from_elsewhere, filch_out_sched(out));
    if (err != FILCH_OK) return err;
    fli_thread_join(&other);
    return filch_idle(out);
}

static filch_err lonely_scenario(filch_sched *sched, void *user)
{
    static const filch_type lonely = { .name = "lonely", .step = lonely_step };
    (void)user;
    return filch_spawn(sched, &lonely, NULL, NULL);
}

TEST(a_simulation_refuses_relations_made_by_other_threads)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(NULL, lonely_scenario, NULL, &report));
    same(report.verdict, FILCH_SIM_REFUSED);
    assert_non_null(strstr(report.text, "filch_register"));
    same(foreign_err, FILCH_ESTATE);
    filch_sim_report_free(&report);
}

/* ---- monitoring a pid that is known before its process is spawned ---- */

static filch_err end_when_cancelled(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* number of the first slot in a slab segment that is not allocated at the start */
enum { BEFORE = 1 << FLI_SLAB_FIRST_BITS };

static const filch_type idle_type = { .name = "idle", .step = end_when_cancelled };
static filch_pid        newborn;
static uint32_t         exits_reported;

static filch_err count_exits(void *self, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++)
        exits_reported += events[i].type == FILCH_EVENT_EXIT && events[i].error == FILCH_EDEAD;
    return end_when_cancelled(self, events, count, out);
}

static void spawn_meanwhile(fixture *w)
{
    meanwhile_err = filch_spawn(w->sched, &idle_type, NULL, &newborn);
}

/* Spawns processes until the next one would get slot BEFORE. Returns the first process, which counts the exits that it
 * receives. */
static filch_pid spawn_until_before(fixture *w)
{
    static const filch_type counting = { .name = "counting", .step = count_exits };
    filch_pid               first, pid;
    ok(filch_spawn(w->sched, &counting, NULL, &first));
    pid = first;
    while (fli_serial_slot(pid.serial) != BEFORE - 1) ok(filch_spawn(w->sched, &idle_type, NULL, &pid));
    return first;
}

/* Returns the pid of slot BEFORE in a scheduler that has not used the slot yet. */
static filch_pid predict_pid(void)
{
    fixture   w;
    filch_pid pid;
    begin(&w);
    (void)spawn_until_before(&w);
    ok(filch_spawn(w.sched, &idle_type, NULL, &pid));
    same(fli_serial_slot(pid.serial), BEFORE);
    fixture_end(&w);
    return pid;
}

/* For each n, another thread spawns the process during allocation number n of filch_monitor(). So in some rounds the
 * spawn comes before filch_monitor() looks up the pid, and in other rounds after it. */
TEST(a_pid_monitored_while_its_process_is_spawned_is_monitored_or_dead)
{
    filch_pid pid = predict_pid();
    uint32_t  reported = 0, monitored = 0;
    for (uint32_t n = 1;; n++) {
        fixture w;
        begin(&w);
        filch_pid watcher = spawn_until_before(&w);
        pid.node = watcher.node;
        exits_reported = 0;
        pause_at.least = 1;
        pause_at.skip = n - 1;
        pause_at.meanwhile = spawn_meanwhile;
        ok(filch_monitor(w.sched, watcher, pid, 0, NULL));
        pause_at.least = 0;
        fixture_tick(&w);
        bool happened = pause_at.happened;
        if (happened) {
            ok(meanwhile_err);
            assert_true(same_pid(newborn, pid));
            reported += exits_reported;
            monitored += 1 - exits_reported;
        }
        fixture_end(&w);
        if (!happened) break;
    }
    assert_true(reported > 0 && monitored > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_calls_that_make_the_first_relation_at_once_both_succeed),
        cmocka_unit_test(a_broadcast_reaches_members_that_join_while_it_allocates),
        cmocka_unit_test(members_are_counted_again_when_some_join_during_the_allocation),
        cmocka_unit_test(a_process_that_is_not_in_a_group_cannot_leave_it),
        cmocka_unit_test(an_ending_process_has_no_name_and_no_group_before_notices_are_sent),
        cmocka_unit_test(a_spawn_with_an_invalid_name_leaks_nothing),
        cmocka_unit_test(yielded_spawns_report_a_taken_name_and_leak_nothing),
        cmocka_unit_test(without_scheduler_memory_a_yielded_spawn_or_broadcast_is_refused),
        cmocka_unit_test(a_pid_monitored_while_its_process_is_spawned_is_monitored_or_dead),
        cmocka_unit_test(a_simulation_refuses_relations_made_by_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
