/* model_bad_input_test.c - functions about relations, called with NULL, ended processes, pids of other schedulers,
 * invalid names, or at a wrong time: each call returns an error and changes nothing. */
#include <stdio.h>

#include "api/fixture.h"

static const filch_pid null_pid = { 0, 0 };

static filch_err play_plain(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    return play_idle(me, events, count, out);
}

TEST(null_schedulers_and_names_are_refused)
{
    fixture   w;
    actor     a = { 0 };
    filch_pid pid;
    size_t    count;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_plain);
    same(filch_monitor(NULL, a.pid, a.pid, 0, NULL), FILCH_EINVAL);
    same(filch_unmonitor(NULL, a.pid, 1), FILCH_EINVAL);
    same(filch_link(NULL, a.pid, a.pid), FILCH_EINVAL);
    same(filch_unlink(NULL, a.pid, a.pid), FILCH_EINVAL);
    same(filch_cancel_with(NULL, a.pid, 1, 0), FILCH_EINVAL);
    same(filch_register(NULL, "a", a.pid), FILCH_EINVAL);
    same(filch_unregister(NULL, "a"), FILCH_EINVAL);
    same(filch_whereis(NULL, "a", &pid), FILCH_EINVAL);
    same(filch_whereis(w.sched, "a", NULL), FILCH_EINVAL);
    same(filch_send_name(NULL, "a", filch_none()), FILCH_EINVAL);
    same(filch_join(NULL, "g", a.pid), FILCH_EINVAL);
    same(filch_leave(NULL, "g", a.pid), FILCH_EINVAL);
    same(filch_watch(NULL, "g", a.pid, 0), FILCH_EINVAL);
    same(filch_unwatch(NULL, "g", a.pid), FILCH_EINVAL);
    same(filch_broadcast(NULL, "g", filch_none(), NULL), FILCH_EINVAL);
    same(filch_members(NULL, "g", NULL, 0, &count), FILCH_EINVAL);
    same(filch_members(w.sched, "g", NULL, 0, NULL), FILCH_EINVAL);
    same(filch_members(w.sched, "g", NULL, 1, &count), FILCH_EINVAL);
    same(filch_spawn_on(NULL, 1, &actor_type, NULL, NULL), FILCH_EINVAL);
    same(filch_spawn_on(w.sched, 1, NULL, NULL, NULL), FILCH_EINVAL);
    /* w.sched is not a host of a node, so no host can be reached */
    same(filch_spawn_on(w.sched, 1, &actor_type, NULL, NULL), FILCH_EFOREIGN);
    same(filch_supervise(NULL, NULL, NULL, NULL), FILCH_EINVAL);
    static const char *const none[] = { NULL, "" };
    for (int i = 0; i < 2; i++) {
        same(filch_unregister(w.sched, none[i]), FILCH_EINVAL);
        same(filch_whereis(w.sched, none[i], &pid), FILCH_EINVAL);
        same(filch_send_name(w.sched, none[i], filch_none()), FILCH_EINVAL);
        same(filch_join(w.sched, none[i], a.pid), FILCH_EINVAL);
        same(filch_leave(w.sched, none[i], a.pid), FILCH_EINVAL);
        same(filch_watch(w.sched, none[i], a.pid, 0), FILCH_EINVAL);
        same(filch_unwatch(w.sched, none[i], a.pid), FILCH_EINVAL);
        same(filch_broadcast(w.sched, none[i], filch_none(), NULL), FILCH_EINVAL);
        same(filch_members(w.sched, none[i], NULL, 0, &count), FILCH_EINVAL);
    }
    /* No process has had a relation yet: every lookup finds nothing. */
    same(filch_whereis(w.sched, "a", &pid), FILCH_EDEAD);
    ok(filch_members(w.sched, "g", NULL, 0, &count));
    same(count, 0);
    fixture_end(&w);
}

TEST(invalid_pids_the_process_itself_and_foreign_pids_are_refused)
{
    fixture w;
    actor   a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_plain);
    filch_pid foreign = { a.pid.node + 1, a.pid.serial }, never = { a.pid.node, UINT64_MAX };
    same(filch_monitor(w.sched, a.pid, null_pid, 0, NULL), FILCH_EINVAL);
    same(filch_monitor(w.sched, null_pid, a.pid, 0, NULL), FILCH_EINVAL);
    same(filch_monitor(w.sched, a.pid, a.pid, 0, NULL), FILCH_EINVAL);
    same(filch_monitor(w.sched, a.pid, foreign, 0, NULL), FILCH_EFOREIGN);
    same(filch_monitor(w.sched, foreign, a.pid, 0, NULL), FILCH_EFOREIGN);
    same(filch_link(w.sched, a.pid, a.pid), FILCH_EINVAL);
    same(filch_link(w.sched, a.pid, foreign), FILCH_EFOREIGN);
    same(filch_link(w.sched, never, (filch_pid){ a.pid.node, UINT64_MAX - 1 }), FILCH_EDEAD);
    same(filch_unlink(w.sched, a.pid, never), FILCH_ESTALE);
    same(filch_unmonitor(w.sched, null_pid, 1), FILCH_EINVAL);
    same(filch_cancel_with(w.sched, null_pid, 1, 0), FILCH_EINVAL);
    same(filch_cancel_with(w.sched, never, 1, 0), FILCH_EDEAD);
    same(filch_cancel_with(w.sched, foreign, 1, 0), FILCH_EFOREIGN);
    same(filch_register(w.sched, "x", null_pid), FILCH_EINVAL);
    same(filch_register(w.sched, "x", never), FILCH_EDEAD);
    same(filch_register(w.sched, "x", foreign), FILCH_EFOREIGN);
    same(filch_join(w.sched, "g", never), FILCH_EDEAD);
    same(filch_join(w.sched, "g", foreign), FILCH_EFOREIGN);
    same(filch_leave(w.sched, "g", never), FILCH_ESTALE);
    same(filch_terminate(w.sched, foreign), FILCH_EFOREIGN);
    same(filch_cancel(w.sched, foreign), FILCH_EFOREIGN);
    fixture_tick(&w);
    same(a.seen_count, 0);
    fixture_end(&w);
}

TEST(payloads_over_payload_max_are_refused_in_sends_and_spawns)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    static char         large[1000];
    fixture             w;
    actor               a = { 0 }, b = { 0 };
    opt.payload_max = 100;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_plain);
    ok(filch_register(w.sched, "a", a.pid));
    ok(filch_join(w.sched, "g", a.pid));
    same(filch_send_name(w.sched, "a", filch_bytes(large, sizeof large)), FILCH_ETOOBIG);
    same(filch_broadcast(w.sched, "g", filch_bytes(large, sizeof large), NULL), FILCH_ETOOBIG);
    filch_data first = filch_bytes(large, sizeof large);
    how.messages = &first;
    how.message_count = 1;
    b.play = play_plain;
    how.args = filch_ptr(&b);
    same(filch_spawn(w.sched, &actor_type, &how, NULL), FILCH_ETOOBIG);
    same(b.inits, 1);
    same(b.closes, 1);
    same(fixture_stats(&w).alive, 1);
    fixture_end(&w);
}

static filch_out *kept_out;

static filch_err play_keeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    static char         large[1000];
    kept_out = out;
    if (me->stage++ == 0) {
        /* Errors that a call inside a step returns. */
        me->note |= filch_yield_spawn(out, 1, NULL, NULL) != FILCH_EINVAL;
        me->note |= filch_yield_exec(NULL, 1, &actor_type, NULL) != FILCH_EINVAL;
        opt.relations = 64;
        me->note |= filch_yield_spawn(out, 1, &actor_type, &opt) != FILCH_EINVAL;
        opt.relations = 0;
        opt.args = filch_bytes(large, sizeof large);
        me->note |= filch_yield_spawn(out, 1, &actor_type, &opt) != FILCH_ETOOBIG;
        filch_data first[2] = { filch_int(1), filch_bytes(large, sizeof large) };
        opt.args = filch_none();
        opt.messages = first;
        opt.message_count = 2;
        me->note |= filch_yield_exec(out, 1, &actor_type, &opt) != FILCH_ETOOBIG;
        me->note |= filch_yield_broadcast(out, 1, "g", filch_bytes(large, sizeof large)) != FILCH_ETOOBIG;
        me->note |= filch_yield_broadcast(NULL, 1, "g", filch_none()) != FILCH_EINVAL;
        me->note |= filch_yield_send_name(out, 1, "", filch_none()) != FILCH_EINVAL;
        me->note |= filch_yield_register(out, 1, NULL) != FILCH_EINVAL;
        me->note |= filch_yield_cancel(out, 1, me->pid, FILCH_OK, 0) != FILCH_EINVAL;
        me->note |= filch_trap_links(NULL, 1) != FILCH_EINVAL;
        /* Errors that only the completion can report. */
        me->note |= filch_yield_send_name(out, 20, "nobody", filch_none());
        me->note |= filch_yield_unregister(out, 21, "nobody");
        me->note |= filch_yield_unmonitor(out, 22, 99);
        me->note |= filch_yield_monitor(out, 23, me->pid);
        me->note |= filch_yield_terminate(out, 24, (filch_pid){ me->pid.node, UINT64_MAX });
        me->note |= filch_yield_unwatch(out, 25, "g");
        /* completes with an error, because the init of actor_type needs an actor as argument */
        me->note |= filch_yield_exec(out, 26, &actor_type, NULL);
        return filch_idle(out);
    }
    return play_idle(me, events, count, out);
}

TEST(errors_of_yields_are_returned_at_once_or_in_the_completion)
{
    static const filch_err answers[] = { FILCH_EDEAD, FILCH_EDEAD,  FILCH_ESTALE, FILCH_EINVAL,
                                         FILCH_EDEAD, FILCH_ESTALE, FILCH_EINVAL };
    filch_options          opt = FILCH_OPTIONS_INIT;
    fixture                w;
    actor                  a = { 0 };
    opt.payload_max = 100;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    actor_start(&w, &a, play_keeps);
    fixture_tick(&w);
    ok(a.note);
    same(a.seen_count, COUNT_OF(answers));
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        same(a.seen[i].tag, 20 + i);
        same(a.seen[i].error, answers[i]);
    }
    /* Calls with the `out` of a step that has returned. */
    same(filch_trap_links(kept_out, 1), FILCH_ESTATE);
    same(filch_yield_spawn(kept_out, 1, &actor_type, NULL), FILCH_ESTATE);
    same(filch_yield_broadcast(kept_out, 1, "g", filch_int(1)), FILCH_ESTATE);
    void *moved = malloc(64);
    same(filch_yield_broadcast(kept_out, 1, "g", filch_move(moved, 64, NULL)), FILCH_ESTATE);
    free(moved); /* the calls were refused, so the test still owns the memory */
    same(filch_yield_join(kept_out, 1, "g"), FILCH_ESTATE);
    fixture_end(&w);
}

TEST(a_closed_scheduler_returns_eclosed_and_has_no_names)
{
    fixture   w;
    actor     a = { 0 }, b = { 0 };
    filch_pid pid;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_plain);
    actor_start(&w, &b, play_plain);
    ok(filch_register(w.sched, "a", a.pid));
    ok(filch_sched_close(w.sched, FILCH_SECONDS(10), NULL));
    same(filch_monitor(w.sched, a.pid, b.pid, 0, NULL), FILCH_ECLOSED);
    same(filch_register(w.sched, "a", b.pid), FILCH_ECLOSED);
    same(filch_whereis(w.sched, "a", &pid), FILCH_EDEAD);
    fixture_end(&w);
}

/* Spawn options of an older header end before `relations` and the fields that were added after it. */
TEST(spawn_options_without_relations_are_understood)
{
    fixture             w;
    actor               a = { .play = play_plain };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    fixture_begin(&w, FILCH_NO_WORKERS);
    memset(&opt, 0xff, sizeof opt);
    memset(&opt, 0, offsetof(filch_spawn_options, name));
    opt.size = offsetof(filch_spawn_options, name);
    opt.args = filch_ptr(&a);
    ok(filch_spawn(w.sched, &actor_type, &opt, NULL));
    fixture_tick(&w);
    same(a.inits, 1);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_schedulers_and_names_are_refused),
        cmocka_unit_test(invalid_pids_the_process_itself_and_foreign_pids_are_refused),
        cmocka_unit_test(payloads_over_payload_max_are_refused_in_sends_and_spawns),
        cmocka_unit_test(errors_of_yields_are_returned_at_once_or_in_the_completion),
        cmocka_unit_test(a_closed_scheduler_returns_eclosed_and_has_no_names),
        cmocka_unit_test(spawn_options_without_relations_are_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
