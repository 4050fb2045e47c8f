/* blank_test.c - every end of a process leaves its slot blank. The fast path of spawn relies on that: it does not clear
 * the slot. */
#include "sched/sched.h"

#include "sched/worker.h"
#include "support/alloc.h"
#include "support/check.h"

#define PAYLOAD_MAX 100

static test_alloc   alloc;
static filch_sched *sched;

static filch_err refusing_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method;
    return (filch_err)filch_as_int(args);
}

/* Yields once for each message, and ends when a message is a number below 0. */
static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        if (filch_as_int(&events[i].data) < 0) return filch_done(out, filch_none());
        filch_err err = filch_yield(out, FILCH_CMD_SLEEP, i, filch_int((int64_t)FILCH_SECONDS(3600)));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type refusing = { .name = "refusing", .init = refusing_init, .step = yielder_step };
static const filch_type yielder = { .name = "yielder", .step = yielder_step };

static void on_exit_fn(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
}

static void begin(void)
{
    filch_options options = FILCH_OPTIONS_INIT;
    alloc = (test_alloc){ 0 };
    options.workers = FILCH_NO_WORKERS;
    options.payload_max = PAYLOAD_MAX;
    options.alloc = test_alloc_fn;
    options.alloc_user = &alloc;
    ok(filch_sched_create(&sched, &options));
}

static void tick(void)
{
    uint32_t ran;
    do ok(filch_tick(sched, 0, &ran));
    while (ran > 0);
}

/* Checks that all slots are blank (finish.c): nothing of an earlier process is left in them. Precondition: no slot is
 * in use. */
static void expect_blank(void)
{
    uint32_t fresh = fli_load_rlx(&sched->rt.procs.fresh);
    assert_true(fresh > 1);
    for (uint32_t slot = 1; slot < fresh; slot++) {
        const fli_proc *p = fli_slab_at(&sched->rt.procs, slot);
        same(fli_word_state(fli_load_rlx(&p->state)), FLI_FREE);
        same(p->head_taken | p->completions | p->messages | p->yield_count, 0);
        assert_null(p->ext);
        assert_null(p->values);
        same((uint32_t)fli_load_rlx(&p->drops_pending), 0);
        same(fli_load_rlx(&p->drops_reported), 0);
        same((fli_load_rlx(&p->load) << 12), 0); /* the shift removes the generation; the other bits of `load` must
                                                    be 0 */
    }
}

static void end(void)
{
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    test_alloc_balanced(&alloc);
}

/* Spawns a process with values, on_exit and a mailbox limit of 4 messages. */
static void spawn_laden(const filch_type *type, filch_data args, filch_values *values, filch_err expected,
                        filch_pid *pid)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = args;
    opt.values = values;
    opt.on_exit = on_exit_fn;
    opt.mailbox_max = 4;
    opt.overflow = FILCH_OVERFLOW_DROP_NEWEST;
    same(filch_spawn(sched, type, &opt, pid), expected);
}

TEST(a_slot_is_blank_after_a_process_with_values_yields_and_drops)
{
    for (int ends_itself = 0; ends_itself < 2; ends_itself++) {
        filch_values *values;
        filch_pid     pid;
        begin();
        ok(filch_values_create(NULL, "key", filch_int(1), &values));
        spawn_laden(&yielder, filch_none(), values, FILCH_OK, &pid);
        tick();
        for (int i = 0; i < 4; i++) ok(filch_send(sched, pid, filch_int(i)));
        tick(); /* four yields are outstanding: their list is on the heap */
        for (int i = 0; i < 10; i++) same(filch_send(sched, pid, filch_int(-i)), i < 4 ? FILCH_OK : FILCH_EDROPPED);
        if (ends_itself == 0)
            /* The process has unread messages, and six drops that were not reported to the process. */
            ok(filch_terminate(sched, pid));
        tick();
        filch_values_drop(values);
        expect_blank();
        end();
    }
}

TEST(a_slot_is_blank_after_a_spawn_that_failed)
{
    filch_values *values;
    filch_pid     pid;
    begin();
    ok(filch_values_create(NULL, "key", filch_int(1), &values));
    spawn_laden(&refusing, filch_int(FILCH_EUSER), values, FILCH_EUSER, &pid);
    expect_blank();
    /* This spawn fails late: the first of its two messages is already in the mailbox, and the second message is too
     * large. */
    static const char   large[PAYLOAD_MAX + 1];
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_data          first[] = { filch_int(1), filch_none() };
    opt.values = values;
    opt.messages = first;
    opt.message_count = 2;
    opt.mailbox_max = 4;
    opt.on_exit = on_exit_fn;
    first[1] = filch_bytes(large, sizeof large);
    same(filch_spawn(sched, &yielder, &opt, &pid), FILCH_ETOOBIG);
    filch_values_drop(values);
    expect_blank();
    end();
}

/* Spawns a child for each message. The child gets a slot from the magazine of the parent's worker. */
static filch_err spawner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_pid *child = *(filch_pid **)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    if (count > 0) {
        filch_err err = filch_spawn(sched, &yielder, NULL, child);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static filch_err spawner_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(void **)self = filch_as_ptr(args);
    return FILCH_OK;
}

static const filch_type spawner = {
    .name = "spawner", .size = sizeof(void *), .init = spawner_init, .step = spawner_step
};

TEST(a_process_in_a_reused_slot_has_no_drops_of_its_predecessor)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid, child, parent;
    filch_info          info = { .size = sizeof info };
    begin();
    opt.args = filch_ptr(&child);
    ok(filch_spawn(sched, &spawner, &opt, &parent));
    tick();
    /* The first spawn inside a step fills the magazine of caller_worker with free slots. */
    ok(filch_send(sched, parent, filch_int(1)));
    tick();
    fli_magazine *own = &sched->caller_worker->local.procs;
    assert_true(own->count > 0);
    /* When the process spawned here has ended, its slot is the next one that a spawn inside a step takes. */
    spawn_laden(&yielder, filch_none(), NULL, FILCH_OK, &pid);
    for (int i = 0; i < 9; i++) same(filch_send(sched, pid, filch_int(-1)), i < 4 ? FILCH_OK : FILCH_EDROPPED);
    tick();
    same(filch_inspect(sched, pid, &info), FILCH_EDEAD);
    fli_proc *next = own->objects[own->count - 1];
    same(next->slot, fli_serial_slot(pid.serial));
    ok(filch_send(sched, parent, filch_int(1)));
    tick();
    same(fli_serial_slot(child.serial), next->slot);
    ok(filch_inspect(sched, child, &info));
    same(info.dropped, 0);
    same(info.messages, 0);
    same(info.state, FILCH_STATE_IDLE);
    for (int i = 0; i < 9; i++) ok(filch_send(sched, child, filch_int(i)));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_blank_after_a_process_with_values_yields_and_drops),
        cmocka_unit_test(a_slot_is_blank_after_a_spawn_that_failed),
        cmocka_unit_test(a_process_in_a_reused_slot_has_no_drops_of_its_predecessor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
