/* scope_test.c - deadlines and scopes in the context that children inherit. */
#include "api/fixture.h"

#define REASON (FILCH_EUSER + 4)

/* What the processes of a test record. The argument of a process is a number n. If n > 0, the process spawns a child
 * with the argument n - 1. Then it idles until it is cancelled. */
static struct {
    FLI_ATOMIC(uint32_t) alive, cancelled;
    FLI_ATOMIC(int)      reason, error; /* at the last cancel: filch_ctx_cancelled(), and the error of the event */
    FLI_ATOMIC(uint64_t) deadline_ns;
} tree;

static const filch_type descendant;

static filch_err descendant_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(int64_t *)self = filch_as_int(args);
    fli_add_rlx(&tree.alive, 1);
    return FILCH_OK;
}

static void descendant_close(void *self)
{
    (void)self;
    fli_add_rel(&tree.alive, (uint32_t)0 - 1);
}

static filch_err descendant_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t *left = self;
    if (has_cancel(events, count)) {
        fli_add_rlx(&tree.cancelled, 1);
        fli_store_rlx(&tree.reason, filch_ctx_cancelled(filch_out_ctx(out)));
        fli_store_rlx(&tree.error, events[0].error);
        return filch_done(out, filch_none());
    }
    fli_store_rlx(&tree.deadline_ns, filch_ctx_deadline(filch_out_ctx(out)));
    if (*left > 0) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = filch_int(*left - 1);
        filch_err err = filch_spawn(filch_out_sched(out), &descendant, &opt, NULL);
        if (err != FILCH_OK) return err;
        *left = 0;
    }
    return filch_idle(out);
}

static const filch_type descendant = {
    .name = "heir", .size = sizeof(int64_t), .init = descendant_init, .step = descendant_step, .close = descendant_close
};

static void found(filch_sched *sched, filch_values *values, int64_t depth)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int(depth);
    opt.values = values;
    ok(filch_spawn(sched, &descendant, &opt, NULL));
}

static uint32_t alive(void)
{
    return fli_load_acq(&tree.alive);
}

TEST(cancelling_a_scope_reaches_exactly_the_processes_that_inherited_it)
{
    fixture       w, other;
    filch_values *outer, *inner;
    memset(&tree, 0, sizeof tree);
    fixture_begin(&w, FILCH_NO_WORKERS);
    fixture_begin(&other, FILCH_NO_WORKERS);
    ok(filch_values_scope(NULL, &outer));
    ok(filch_values_scope(outer, &inner));
    found(w.sched, outer, 3);     /* a chain of four processes in the outer scope */
    found(w.sched, inner, 4);     /* five processes in both scopes */
    found(other.sched, inner, 0); /* one process in another scheduler */
    found(w.sched, NULL, 1);      /* two processes in no scope */
    fixture_tick(&w);
    fixture_tick(&other);
    same(alive(), 12);
    ok(filch_values_cancel(inner, REASON));
    fixture_tick(&w);
    fixture_tick(&other);
    same(alive(), 6);
    same(fli_load_rlx(&tree.cancelled), 6);
    same(fli_load_rlx(&tree.reason), REASON);
    same(fli_load_rlx(&tree.error), REASON);
    ok(filch_values_cancel(inner, REASON + 1)); /* a second cancel of the scope changes nothing */
    /* the scope is cancelled already: the process is cancelled before it spawns a child */
    found(w.sched, inner, 2);
    fixture_tick(&w);
    same(alive(), 6);
    same(fli_load_rlx(&tree.reason), REASON);
    same(fli_load_rlx(&tree.error), REASON);
    ok(filch_values_cancel(outer, REASON + 2));
    fixture_tick(&w);
    same(alive(), 2);
    same(fli_load_rlx(&tree.error), REASON + 2);
    filch_values_drop(outer);
    filch_values_drop(inner);
    fixture_end(&w);
    fixture_end(&other);
    same(alive(), 0);
    same(fli_load_rlx(&tree.error), FILCH_ECANCELLED); /* the stop has cancelled the processes that are in no scope */
}

/* Time added to the library's clock. Tests without workers advance the clock by this, so that they do not depend on the
 * machine's speed. */
static FLI_ATOMIC(uint64_t) forward_ns;
uint64_t                    __real_fli_clock_ns(void);
uint64_t                    __wrap_fli_clock_ns(void);
uint64_t                    __wrap_fli_clock_ns(void)
{
    return __real_fli_clock_ns() + fli_load_rlx(&forward_ns);
}

TEST(a_deadline_is_inherited_and_cancels_all_processes_under_it)
{
    fixture       w;
    filch_values *late, *early;
    memset(&tree, 0, sizeof tree);
    fixture_begin(&w, FILCH_NO_WORKERS);
    uint64_t now_ns = filch_now(w.sched), at_ns = now_ns + FILCH_SECONDS(5000);
    ok(filch_values_deadline(NULL, at_ns, &early));
    /* `late` contains both deadlines, and the earlier one counts */
    ok(filch_values_deadline(early, now_ns + FILCH_SECONDS(9000), &late));
    found(w.sched, late, 2);
    fixture_tick(&w);
    same(fli_load_rlx(&tree.deadline_ns), at_ns);
    same(alive(), 3);
    fli_store_rlx(&forward_ns, FILCH_SECONDS(5000));
    UNTIL(&w, alive() == 0);
    assert_true(filch_now(w.sched) >= at_ns);
    same(fli_load_rlx(&tree.cancelled), 3);
    same(fli_load_rlx(&tree.reason), FILCH_OK); /* FILCH_OK: a passed deadline is not the cancel of a scope */
    /* a process that is spawned after its deadline is cancelled at once */
    found(w.sched, late, 2);
    fixture_tick(&w);
    same(alive(), 0);
    same(fixture_stats(&w).timers, 0);
    filch_values_drop(late);
    filch_values_drop(early);
    fixture_end(&w);
    fli_store_rlx(&forward_ns, 0); /* later tests need the real clock, because their threads sleep */
}

TEST(a_process_that_ends_before_its_deadline_leaves_no_timer)
{
    fixture       w;
    filch_values *values;
    memset(&tree, 0, sizeof tree);
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_values_deadline(NULL, filch_now(w.sched) + FILCH_SECONDS(1000), &values));
    found(w.sched, values, 3);
    fixture_tick(&w);
    same(fixture_stats(&w).timers, 4);
    filch_values_drop(values);
    fixture_end(&w);
    same(alive(), 0);
}

/* Handler that records the context values and deadline that it finds. */
static filch_err on_look(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    filch_err reason = filch_ctx_cancelled(command->ctx);
    bool      bounded = filch_ctx_deadline(command->ctx) != FILCH_FOREVER;
    return filch_complete(receiver, tag, filch_int(reason * 10 + bounded), FILCH_OK);
}

static filch_err play_look(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    me->note |= filch_yield(out, FILCH_CMD_USER, 1, filch_none());
    return has_cancel(events, count) && me->stage++ > 0 ? filch_done(out, filch_none()) : filch_wait(out);
}

TEST(handlers_see_deadline_and_cancellation)
{
    filch_registry     *registry;
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_values       *scope, *both;
    fixture             w;
    actor               a = { 0 };
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, on_look, NULL));
    opt.registry = registry;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    ok(filch_values_scope(NULL, &scope));
    ok(filch_values_deadline(scope, filch_now(w.sched) + FILCH_SECONDS(1000), &both));
    how.values = both;
    actor_start_with(&w, &a, play_look, how);
    ok(filch_tick(w.sched, 2, NULL));
    ok(filch_values_cancel(scope, REASON));
    ok(filch_tick(w.sched, 3, NULL));
    ok(a.note);
    same(a.seen[0].number, 1);
    assert_true(a.seen_count >= 3);
    same(a.seen[a.seen_count - 1].number, REASON * 10 + 1);
    filch_values_drop(scope);
    filch_values_drop(both);
    filch_registry_destroy(registry);
    fixture_end(&w);
}

/* The test thread cancels the scope while workers spawn chains of processes in it. */
TEST(no_process_escapes_a_scope_that_is_being_cancelled)
{
    uint32_t rounds = fixture_scale(300, 10);
    fixture  w;
    memset(&tree, 0, sizeof tree);
    fixture_begin(&w, 2);
    for (uint32_t i = 0; i < rounds; i++) {
        filch_values *scope;
        ok(filch_values_scope(NULL, &scope));
        for (int k = 0; k < 4; k++) found(w.sched, scope, 50);
        if (i % 3 > 0) UNTIL(&w, fli_load_rlx(&tree.alive) > i % 3 * 20);
        ok(filch_values_cancel(scope, REASON));
        UNTIL(&w, alive() == 0);
        filch_values_drop(scope);
    }
    fixture_end(&w);
}

TEST(invalid_arguments_about_scopes_are_refused)
{
    filch_values *scope, *plain;
    same(filch_values_scope(NULL, NULL), FILCH_EINVAL);
    same(filch_values_deadline(NULL, 1, NULL), FILCH_EINVAL);
    ok(filch_values_scope(NULL, &scope));
    ok(filch_values_create(scope, "a", filch_int(1), &plain));
    same(filch_values_cancel(plain, REASON), FILCH_EINVAL);
    same(filch_values_cancel(NULL, REASON), FILCH_EINVAL);
    same(filch_values_cancel(scope, FILCH_OK), FILCH_EINVAL);
    same(filch_ctx_deadline(NULL), FILCH_FOREVER);
    same(filch_ctx_cancelled(NULL), FILCH_OK);
    filch_values_drop(plain);
    filch_values_drop(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelling_a_scope_reaches_exactly_the_processes_that_inherited_it),
        cmocka_unit_test(a_deadline_is_inherited_and_cancels_all_processes_under_it),
        cmocka_unit_test(a_process_that_ends_before_its_deadline_leaves_no_timer),
        cmocka_unit_test(handlers_see_deadline_and_cancellation),
        cmocka_unit_test(no_process_escapes_a_scope_that_is_being_cancelled),
        cmocka_unit_test(invalid_arguments_about_scopes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
