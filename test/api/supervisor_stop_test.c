/* supervisor_stop_test.c - a child ends by itself while the scheduler stops, before its supervisor is cancelled. The
 * child is not restarted, and the strategy is not applied to its siblings: the siblings are stopped when their
 * supervisor is stopped. */
#include <string.h>

#include <filch.h>

#include "port/atomic.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

enum { FIRST, SECOND, THIRD, LAST, CHILDREN, STEPS = 300 };

/* What the children record. Written by their steps, which end one after the other; read after the scheduler has
 * stopped. */
static struct {
    FLI_ATOMIC(uint32_t) started[CHILDREN];
    FLI_ATOMIC(uint32_t) order,
        cancelled_as[CHILDREN];      /* place of the cancel in the order of recorded events; 0: not cancelled */
    FLI_ATOMIC(uint32_t) last_ended; /* place of the end of child LAST in the order of recorded events */
    FLI_ATOMIC(uint64_t) victim;
    int64_t              fails; /* number of the child that child LAST makes fail */
    test_alloc           alloc;
} seen;

typedef struct child {
    int64_t number, steps;
} child;

static filch_err child_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)method;
    int64_t number = ((child *)self)->number = filch_as_int(args);
    fli_add_rlx(&seen.started[number], 1);
    if (number == seen.fails) fli_store_rlx(&seen.victim, filch_ctx_self(ctx).serial);
    return FILCH_OK;
}

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const child *me = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) return FILCH_EUSER;
        if (events[i].type != FILCH_EVENT_CANCEL) continue;
        fli_store_rlx(&seen.cancelled_as[me->number], fli_add_rlx(&seen.order, 1) + 1);
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

/* Step of child LAST, which is stopped first. On the cancel it makes the child `victim` fail, and then continues for
 * so many steps that every ready process runs before child LAST ends. */
static filch_err last_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    child *me = self;
    if (me->steps == 0) {
        if (count == 0 || events[0].type != FILCH_EVENT_CANCEL) return filch_idle(out);
        filch_pid victim = { filch_ctx_self(filch_out_ctx(out)).node, fli_load_rlx(&seen.victim) };
        filch_err err = filch_send(filch_out_sched(out), victim, filch_none());
        if (err != FILCH_OK) return err;
    }
    if (++me->steps < STEPS) return filch_continue(out);
    fli_store_rlx(&seen.last_ended, fli_add_rlx(&seen.order, 1) + 1);
    return filch_done(out, filch_none());
}

static const filch_type child_type = { .name = "child", .size = sizeof(child), .init = child_init, .step = child_step };
static const filch_type last_type = { .name = "last", .size = sizeof(child), .init = child_init, .step = last_step };

#define ARGS(n)                                                        \
    &(const filch_spawn_options)                                       \
    {                                                                  \
        .size = sizeof(filch_spawn_options), .args = FILCH_INT_INIT(n) \
    }

static void fails_during_stop(uint32_t strategy, int32_t workers, int64_t fails)
{
    const filch_child three[] = {
        { .id = "first", .type = &child_type, .options = ARGS(FIRST), .stop_ns = FILCH_SECONDS(60) },
        { .id = "second", .type = &child_type, .options = ARGS(SECOND), .stop_ns = FILCH_SECONDS(60) },
        { .id = "third", .type = &child_type, .options = ARGS(THIRD), .stop_ns = FILCH_SECONDS(60) }
    };
    const filch_supervisor inner = { .strategy = strategy, .children = three, .child_count = 3 };
    const filch_child      child_specs[] = {
             { .id = "inner", .supervisor = &inner },
             { .id = "last", .type = &last_type, .options = ARGS(LAST), .stop_ns = FILCH_SECONDS(60) }
    };
    const filch_supervisor tree = { .children = child_specs, .child_count = 2 };
    filch_options          options = FILCH_OPTIONS_INIT;
    filch_report           report = FILCH_REPORT_INIT;
    filch_sched           *sched;
    uint32_t               ran;
    memset(&seen, 0, sizeof seen);
    seen.fails = fails;
    options.workers = workers;
    options.alloc = test_alloc_fn;
    options.alloc_user = &seen.alloc;
    ok(filch_sched_create(&sched, &options));
    ok(filch_supervise(sched, &tree, NULL, NULL));
    if (workers == FILCH_NO_WORKERS) {
        do ok(filch_tick(sched, 0, &ran));
        while (ran > 0);
    }
    until(fli_load_rlx(&seen.started[LAST]) == 1);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
    same(report.ended, 6);
    /* child LAST ends first; then the siblings of the failed child end, from the last to the first */
    uint32_t place = 1;
    same(fli_load_rlx(&seen.last_ended), place++);
    for (int64_t n = THIRD; n >= FIRST; n--) {
        same(fli_load_rlx(&seen.started[n]), 1);
        same(fli_load_rlx(&seen.cancelled_as[n]), n == fails ? 0 : place++);
    }
    filch_report_free(&report);
    test_alloc_balanced(&seen.alloc);
}

static void fails_with(uint32_t strategy)
{
    for (int64_t n = FIRST; n <= THIRD; n++) {
        fails_during_stop(strategy, FILCH_NO_WORKERS, n);
        fails_during_stop(strategy, 2, n);
    }
}

TEST(one_for_one_does_not_restart_a_child_during_a_stop)
{
    fails_with(FILCH_ONE_FOR_ONE);
}

TEST(one_for_all_leaves_the_siblings_alone_during_a_stop)
{
    fails_with(FILCH_ONE_FOR_ALL);
}

TEST(rest_for_one_leaves_the_siblings_alone_during_a_stop)
{
    fails_with(FILCH_REST_FOR_ONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_one_does_not_restart_a_child_during_a_stop),
        cmocka_unit_test(one_for_all_leaves_the_siblings_alone_during_a_stop),
        cmocka_unit_test(rest_for_one_leaves_the_siblings_alone_during_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
