/* found_test.c - what the fuzzers found (test/fuzz), each as the user would have seen it. */
#include <filch.h>

#include "support/check.h"

enum { TELL = FILCH_CMD_USER };

static filch_pid ear, heard_from;
static int       heard;

static filch_err listen(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        heard++;
        heard_from = events[i].from;
    }
    return filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listen };

static filch_err ask(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count > 0) return filch_done(out, filch_none());
    ok(filch_yield(out, TELL, 1, filch_none()));
    return filch_idle(out);
}

static const filch_type asker = { .name = "asker", .step = ask };

static filch_err on_tell(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    ok(filch_send(receiver.sched, ear, filch_int(1)));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

TEST(a_handlers_message_comes_from_nobody)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    filch_sched    *sched;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, TELL, on_tell, NULL));
    opt.workers = FILCH_NO_WORKERS;
    opt.registry = registry;
    ok(filch_sched_create(&sched, &opt));
    filch_registry_destroy(registry);
    ok(filch_spawn(sched, &listener, NULL, &ear));
    ok(filch_spawn(sched, &asker, NULL, NULL));
    ok(filch_tick(sched, 0, NULL));
    same(heard, 1);
    same(heard_from.node, 0);
    same(heard_from.serial, 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handlers_message_comes_from_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
