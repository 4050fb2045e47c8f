/* failed_spawn_test.c - a failed spawn leaves nothing behind, and its pid is not used again. A slot is not used again
 * after its last generation. */
#include "port/thread.h"
#include "sched/sched.h"

#include "sched/worker.h"
#include "support/alloc.h"
#include "support/check.h"

static filch_pid seen_by_init;
static filch_err init_result;

static filch_err on_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)method;
    (void)args;
    seen_by_init = filch_ctx_self(ctx);
    return init_result;
}

static filch_err on_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type type = { .name = "fussy", .size = 100, .init = on_init, .step = on_step };

/* The init of a process may pass its own pid on before it fails. The process that is spawned next must not get that
 * pid. */
TEST(the_pid_of_a_failed_spawn_is_never_used_again)
{
    test_alloc    alloc = { 0 };
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = test_alloc_fn;
    options.alloc_user = &alloc;
    ok(filch_sched_create(&sched, &options));
    init_result = FILCH_EUSER + 1;
    same(filch_spawn(sched, &type, NULL, &pid), FILCH_EUSER + 1);
    filch_pid failed = seen_by_init;
    same(filch_send(sched, failed, filch_int(1)), FILCH_EDEAD);
    init_result = FILCH_OK;
    ok(filch_spawn(sched, &type, NULL, &pid));
    assert_memory_equal(&pid, &seen_by_init, sizeof pid);
    assert_int_not_equal(pid.serial, failed.serial);
    same(filch_send(sched, failed, filch_int(1)), FILCH_EDEAD);
    same(filch_cancel(sched, failed), FILCH_EDEAD);
    ok(filch_send(sched, pid, filch_int(1)));
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    test_alloc_balanced(&alloc);
}

/* A slot is retired (never used again) when its generations are used up, also if failed spawns have used them up. */
TEST(a_slot_without_generations_is_retired)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    init_result = FILCH_EUSER;
    same(filch_spawn(sched, &type, NULL, &pid), FILCH_EUSER);
    uint32_t  slot = fli_serial_slot(seen_by_init.serial);
    fli_proc *p = fli_slab_at(&sched->rt.procs, slot);
    fli_store_rlx(&p->state, fli_word_make(FLI_GEN_LAST, FLI_FREE, 0));
    same(filch_spawn(sched, &type, NULL, &pid), FILCH_EUSER);
    same(fli_serial_slot(seen_by_init.serial), slot);
    same(fli_serial_gen(seen_by_init.serial), FLI_GEN_LAST);
    init_result = FILCH_OK;
    ok(filch_spawn(sched, &type, NULL, &pid));
    assert_int_not_equal(fli_serial_slot(pid.serial), slot);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

/* Two cases: the last process of the slot is killed; or it ends by itself on the fast path, without exit notices. */
TEST(a_slot_is_retired_when_its_last_process_ends)
{
    static const filch_type brief = { .name = "brief", .init = on_init, .step = brief_step };
    for (int i = 0; i < 2; i++) {
        const filch_type *kind = i == 0 ? &type : &brief;
        filch_options     options = FILCH_OPTIONS_INIT;
        filch_sched      *sched;
        filch_pid         last, next;
        options.workers = FILCH_NO_WORKERS;
        ok(filch_sched_create(&sched, &options));
        init_result = FILCH_EUSER;
        same(filch_spawn(sched, kind, NULL, &next), FILCH_EUSER);
        init_result = FILCH_OK;
        uint32_t  slot = fli_serial_slot(seen_by_init.serial);
        fli_proc *p = fli_slab_at(&sched->rt.procs, slot);
        fli_store_rlx(&p->state, fli_word_make(FLI_GEN_LAST, FLI_FREE, 0));
        ok(filch_spawn(sched, kind, NULL, &last));
        same(last.serial, fli_serial(FLI_GEN_LAST, slot));
        if (kind == &type) ok(filch_terminate(sched, last));
        ok(filch_tick(sched, 0, NULL));
        /* The thread acts as caller_worker, so that the spawn takes slots from the magazine of caller_worker. */
        fli_current_set(&sched->caller_worker->local);
        ok(filch_spawn(sched, kind, NULL, &next));
        fli_current_set(NULL);
        assert_int_not_equal(fli_serial_slot(next.serial), slot);
        same(filch_send(sched, last, filch_none()), FILCH_EDEAD);
        ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    }
}

static filch_err spawn_result;

/* Spawns a child for each message. The child gets a slot from the magazine of the parent's worker. */
static filch_err parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    if (count > 0) spawn_result = filch_spawn(filch_out_sched(out), &type, NULL, NULL);
    (void)self;
    return filch_idle(out);
}

TEST(a_spawn_in_a_step_retires_a_slot_without_generations_too)
{
    static const filch_type parent = { .name = "parent", .step = parent_step };
    filch_options           options = FILCH_OPTIONS_INIT;
    filch_sched            *sched;
    filch_pid               pid;
    options.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &options));
    ok(filch_spawn(sched, &parent, NULL, &pid));
    uint32_t slot = 0;
    for (int i = 0; i < 4; i++) {
        init_result = i < 3 ? FILCH_EUSER : FILCH_OK;
        ok(filch_send(sched, pid, filch_none()));
        ok(filch_tick(sched, 0, NULL));
        same(spawn_result, init_result);
        if (i == 1) {
            slot = fli_serial_slot(seen_by_init.serial);
            fli_store_rlx(&((fli_proc *)fli_slab_at(&sched->rt.procs, slot))->state,
                          fli_word_make(FLI_GEN_LAST, FLI_FREE, 0));
        }
        if (i == 2) same(seen_by_init.serial, fli_serial(FLI_GEN_LAST, slot));
        if (i == 3) assert_int_not_equal(fli_serial_slot(seen_by_init.serial), slot);
    }
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pid_of_a_failed_spawn_is_never_used_again),
        cmocka_unit_test(a_slot_without_generations_is_retired),
        cmocka_unit_test(a_spawn_in_a_step_retires_a_slot_without_generations_too),
        cmocka_unit_test(a_slot_is_retired_when_its_last_process_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
