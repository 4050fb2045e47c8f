/* model_oom_test.c - relations when there is no memory: notices arrive nevertheless. Every call reports missing memory
 * and leaves no trace. */
#include <stdio.h>

#include "api/fixture.h"
#include "support/alloc.h"

#define FAILURE (FILCH_EUSER + 2)

static filch_err play_ends_on_message(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        filch_err err = (filch_err)filch_as_int(&events[i].data);
        return err != FILCH_OK ? err : filch_done(out, filch_none());
    }
    return filch_idle(out);
}

TEST(notices_arrive_even_without_memory)
{
    enum { WATCHERS = 20 };
    fixture w;
    actor   watchers[WATCHERS] = { { 0 } }, target = { 0 }, linked = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &target, play_ends_on_message);
    actor_start(&w, &linked, play_ends_on_message);
    ok(filch_link(w.sched, target.pid, linked.pid));
    ok(filch_register(w.sched, "target", target.pid));
    ok(filch_join(w.sched, "group", target.pid));
    for (int i = 0; i < WATCHERS; i++) {
        actor_start(&w, &watchers[i], play_ends_on_message);
        ok(filch_monitor(w.sched, watchers[i].pid, target.pid, 1, NULL));
        ok(filch_watch(w.sched, "group", watchers[i].pid, 2));
    }
    fixture_tick(&w);
    fli_store_rlx(&w.deny, true);
    ok(filch_terminate(w.sched, target.pid));
    fixture_tick(&w);
    fli_store_rlx(&w.deny, false);
    for (int i = 0; i < WATCHERS; i++) {
        same(watchers[i].seen_count, 2);
        /* the notices of groups and names come before the EXIT notice */
        same(watchers[i].seen[0].type, FILCH_EVENT_LEFT);
        same(watchers[i].seen[1].type, FILCH_EVENT_EXIT);
        same(watchers[i].seen[1].error, FILCH_EKILLED);
    }
    actor_ends(&w, &linked, FILCH_ELINK);
    fixture_end(&w);
}

/* ---- all relations, while each allocation in turn fails ---- */

static struct {
    actor     child, yields;
    filch_pid first;
    uint32_t  refused;
} sweep;

static bool fine(filch_err err)
{
    if (err == FILCH_ENOMEM) sweep.refused++;
    else if (err != FILCH_OK && err != FILCH_ESTALE && err != FILCH_EDEAD) fail_msg("%s", filch_err_name(err));
    return err == FILCH_OK;
}

/* The process makes every kind of yield. It ends on a cancel. */
static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_data          first = filch_str("a first message that does not fit into an event");
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD) (void)fine(events[i].error);
    }
    if (me->stage++ > 0) return filch_idle(out);
    sweep.child.play = play_ends_on_message;
    opt.args = filch_ptr(&sweep.child);
    opt.messages = &first;
    opt.message_count = 1;
    opt.relations = FILCH_SPAWN_MONITOR;
    opt.name = "child";
    (void)fine(filch_spawn(filch_out_sched(out), &actor_type, &opt, NULL));
    opt.name = NULL;
    (void)fine(filch_yield_spawn(out, 1, &actor_type, &opt));
    (void)fine(filch_yield_monitor(out, 3, sweep.first));
    (void)fine(filch_yield_join(out, 4, "group"));
    (void)fine(filch_yield_watch(out, 5, "group"));
    (void)fine(filch_yield_broadcast(out, 6, "group", first));
    (void)fine(filch_yield_members(out, 7, "group"));
    (void)fine(filch_yield_register(out, 8, "yields"));
    (void)fine(filch_yield_cancel(out, 9, sweep.first, FAILURE, FILCH_SECONDS(100)));
    return filch_idle(out);
}

/* Makes every call once while allocation number `nth` fails. Returns true if there were fewer than `nth`
 * allocations. */
static bool run_with(uint64_t nth)
{
    test_alloc    memory = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    fixture       w = { .ticks = true };
    actor         a = { 0 }, b = { 0 };
    uint64_t      ref;
    char          name[16];
    memset(&sweep, 0, sizeof sweep);
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &memory;
    ok(filch_sched_create(&sched, &opt));
    w.sched = sched;
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    sweep.first = b.pid;
    test_alloc_fail(&memory, nth, nth % 2 == 0);
    for (int i = 0; i < 20; i++) {
        if (fine(filch_monitor(sched, a.pid, b.pid, 1, &ref)) && i % 2 == 0)
            (void)fine(filch_unmonitor(sched, a.pid, ref));
        (void)fine(filch_link(sched, a.pid, b.pid));
        if (i % 2 == 0) (void)fine(filch_unlink(sched, a.pid, b.pid));
        (void)fine(filch_join(sched, "group", a.pid));
        (void)fine(filch_watch(sched, "group", b.pid, 2));
        snprintf(name, sizeof name, "name %d", i);
        (void)fine(filch_register(sched, name, a.pid));
        if (i % 2 == 0) (void)fine(filch_unregister(sched, name));
    }
    (void)fine(filch_broadcast(sched, "group", filch_str("a message that does not fit into an event"), NULL));
    (void)fine(filch_cancel_with(sched, a.pid, FAILURE, FILCH_SECONDS(10)));
    sweep.yields.play = play_yields;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    how.args = filch_ptr(&sweep.yields);
    (void)fine(filch_spawn(sched, &actor_type, &how, NULL));
    /* The process is in two scopes and has a deadline. Scopes and deadlines are allocated by malloc, which does not
     * fail here; the relations of the process are allocated by the scheduler's allocator. */
    filch_values *scope, *inner, *deadline;
    actor         third = { .play = play_ends_on_message };
    ok(filch_values_scope(NULL, &scope));
    ok(filch_values_scope(scope, &inner));
    ok(filch_values_deadline(inner, filch_now(sched) + FILCH_SECONDS(1000), &deadline));
    how.args = filch_ptr(&third);
    how.values = deadline;
    (void)fine(filch_spawn(sched, &actor_type, &how, NULL));
    fixture_tick(&w);
    bool over = atomic_load(&memory.refused) == 0;
    test_alloc_fail(&memory, 0, false);
    ok(filch_values_cancel(scope, FAILURE));
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    filch_values_drop(scope);
    filch_values_drop(inner);
    filch_values_drop(deadline);
    filch_drop(&a.result);
    filch_drop(&b.result);
    test_alloc_balanced(&memory);
    return over;
}

/* ---- each kind of relation, made as the first relation of a scheduler ---- */

static const char long_name[] = "a name that does not fit into an event, and so needs memory of its own";

static filch_err first_relation(filch_sched *sched, int which, filch_pid a, filch_pid b)
{
    filch_values       *scope = NULL;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    actor              *child = &sweep.child;
    filch_err           err;
    switch (which) {
    case 0: return filch_register(sched, long_name, a);
    case 1: return filch_join(sched, long_name, a);
    case 2: return filch_watch(sched, long_name, a, 1);
    case 3: return filch_cancel_with(sched, a, FAILURE, FILCH_SECONDS(100));
    case 4: return filch_monitor(sched, a, b, 1, NULL);
    case 5: return filch_link(sched, a, b);
    default: break;
    }
    child->play = play_ends_on_message;
    how.args = filch_ptr(child);
    how.name = which == 6 ? long_name : NULL;
    err = which == 7 ? filch_values_scope(NULL, &scope) : FILCH_OK;
    if (which == 8) err = filch_values_deadline(NULL, filch_now(sched) + FILCH_SECONDS(1000), &scope);
    ok(err);
    how.values = scope;
    err = filch_spawn(sched, &actor_type, &how, NULL);
    filch_values_drop(scope);
    return err;
}

enum { RELATIONS = 9 };

/* Returns true if the relation was made and no allocation failed. */
static bool first_with(int which, uint64_t nth)
{
    test_alloc    memory = { 0 };
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w = { .ticks = true };
    actor         a = { 0 }, b = { 0 };
    memset(&sweep, 0, sizeof sweep);
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &memory;
    ok(filch_sched_create(&w.sched, &opt));
    actor_start(&w, &a, play_ends_on_message);
    actor_start(&w, &b, play_ends_on_message);
    fixture_tick(&w);
    test_alloc_fail(&memory, nth, false);
    filch_err err = first_relation(w.sched, which, a.pid, b.pid);
    bool      refused = atomic_load(&memory.refused) > 0;
    if (refused) same(err, FILCH_ENOMEM);
    else ok(err);
    same(sweep.child.inits - sweep.child.closes, err == FILCH_OK && which >= 6 ? 1 : 0);
    test_alloc_fail(&memory, 0, false);
    if (refused) ok(first_relation(w.sched, which, a.pid, b.pid)); /* no allocation fails any more */
    fixture_tick(&w);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(10), NULL));
    filch_drop(&a.result);
    filch_drop(&b.result);
    test_alloc_balanced(&memory);
    return !refused;
}

TEST(the_first_relation_of_each_kind_is_made_completely_or_not_at_all)
{
    for (int which = 0; which < RELATIONS; which++) {
        uint64_t nth = 1;
        while (!first_with(which, nth)) nth++;
        assert_true(nth > 3);
    }
}

/* A join allocates the notices for all watchers; a watch allocates the notices for all members. Both report missing
 * memory, and no notice is sent for a join or watch that failed. While w->deny is set, this allocator refuses the
 * blocks from which event nodes are made. */
static void *few_blocks(void *user, void *old, size_t old_size, size_t size)
{
    const fixture *w = user;
    bool           deny = fli_load_rlx(&w->deny);
    if (deny && size >= 4096) return NULL; /* refuses blocks of event nodes: they have at least 4096 bytes */
    fli_store_rlx(&((fixture *)user)->deny, false);
    void *at = fixture_alloc(user, old, old_size, size);
    fli_store_rlx(&((fixture *)user)->deny, deny);
    return at;
}

TEST(join_and_watch_without_memory_for_notices_have_no_effect)
{
    enum { MANY = 5000 };
    filch_options opt = FILCH_OPTIONS_INIT;
    fixture       w = { .ticks = true };
    actor         member = { 0 }, watcher = { 0 };
    size_t        count;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = few_blocks;
    opt.alloc_user = &w;
    ok(filch_sched_create(&w.sched, &opt));
    actor_start(&w, &member, play_ends_on_message);
    actor_start(&w, &watcher, play_ends_on_message);
    fixture_tick(&w);
    filch_err err = FILCH_OK;
    uint32_t  joined = 0, watched = 0;
    while (joined < 100 && filch_join(w.sched, "group", member.pid) == FILCH_OK) joined++;
    fli_store_rlx(&w.deny, true);
    for (; err == FILCH_OK && watched < MANY; watched += err == FILCH_OK) {
        err = filch_watch(w.sched, "group", watcher.pid, 1);
    }
    same(err, FILCH_ENOMEM);
    uint32_t more = 0;
    do err = filch_join(w.sched, "group", member.pid);
    while (err == FILCH_OK && ++more < MANY);
    same(err, FILCH_ENOMEM);
    fli_store_rlx(&w.deny, false);
    ok(filch_members(w.sched, "group", NULL, 0, &count));
    same(count, joined + more);
    fixture_tick(&w);
    same(watcher.seen_count, (size_t)more * watched);
    for (uint32_t i = 0; i < watched; i++) ok(filch_unwatch(w.sched, "group", watcher.pid));
    same(filch_unwatch(w.sched, "group", watcher.pid), FILCH_ESTALE);
    fixture_end(&w);
}

TEST(any_single_failed_allocation_is_reported_and_leaks_nothing)
{
    uint64_t nth = 1, step = fixture_scale(100, 1) >= 100 ? 1 : 7;
    while (!run_with(nth)) nth += step;
    assert_true(nth > 50);
}

/* ---- many relations ---- */

/* Returns the bytes that `count` monitors of one process and `count` links with it use. */
static int64_t bytes_of(uint32_t count)
{
    fixture    w;
    actor      hub = { 0 };
    filch_pid *pids = malloc(count * sizeof *pids);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &hub, play_ends_on_message);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    actor               other = { .play = play_ends_on_message };
    opt.args = filch_ptr(&other);
    for (uint32_t i = 0; i < count; i++) ok(filch_spawn(w.sched, &actor_type, &opt, &pids[i]));
    fixture_tick(&w);
    int64_t before = fli_load_rlx(&w.bytes);
    for (uint32_t i = 0; i < count; i++) {
        ok(filch_monitor(w.sched, hub.pid, pids[i], i, NULL));
        ok(filch_link(w.sched, pids[i], hub.pid));
    }
    int64_t held = fli_load_rlx(&w.bytes) - before;
    ok(filch_send(w.sched, hub.pid, filch_int(FAILURE)));
    UNTIL(&w, fixture_stats(&w).alive == 0);
    same(hub.exit_error, FAILURE);
    fixture_end(&w);
    free(pids);
    return held;
}

TEST(the_memory_per_relation_does_not_grow_with_their_number)
{
    uint32_t few = fixture_scale(4096, 64), many = few * 16;
    int64_t  little = bytes_of(few), much = bytes_of(many);
    /* 16 times the relations may take up to 32 times the bytes, because slabs grow by doubling */
    assert_true(much < little * 32);
    assert_true(much / (2 * (int64_t)many) < 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notices_arrive_even_without_memory),
        cmocka_unit_test(the_first_relation_of_each_kind_is_made_completely_or_not_at_all),
        cmocka_unit_test(join_and_watch_without_memory_for_notices_have_no_effect),
        cmocka_unit_test(any_single_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(the_memory_per_relation_does_not_grow_with_their_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
