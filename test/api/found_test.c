/* found_test.c - regression tests for bugs that the fuzzers found (test/fuzz), each as a user would have seen the
 * bug. */
#include <stdlib.h>

#include <filch.h>

#include "port/clock.h"
#include "support/check.h"

enum { CMD_SEND_ON = FILCH_CMD_USER };

static filch_pid listener_pid, received_from;
static int       received;
static bool      by_group;

static filch_err listen(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        received++;
        received_from = events[i].from;
    }
    return filch_idle(out);
}

static const filch_type listener = { .name = "listener", .step = listen };

static filch_err yield_once_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    if (count > 0) return filch_done(out, filch_none());
    ok(filch_yield(out, CMD_SEND_ON, 1, filch_none()));
    return filch_idle(out);
}

static const filch_type yielder = { .name = "yielder", .step = yield_once_step };

static filch_err on_send_on(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    if (by_group) ok(filch_broadcast(receiver.sched, "ears", filch_int(1), NULL));
    else ok(filch_send(receiver.sched, listener_pid, filch_int(1)));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void check_handler_sends(bool group)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    filch_sched    *sched;
    by_group = group;
    received = 0;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, CMD_SEND_ON, on_send_on, NULL));
    opt.workers = FILCH_NO_WORKERS;
    opt.registry = registry;
    ok(filch_sched_create(&sched, &opt));
    filch_registry_destroy(registry);
    ok(filch_spawn(sched, &listener, NULL, &listener_pid));
    ok(filch_join(sched, "ears", listener_pid));
    ok(filch_spawn(sched, &yielder, NULL, NULL));
    ok(filch_tick(sched, 0, NULL));
    same(received, 1);
    same(received_from.node, 0);
    same(received_from.serial, 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(a_message_of_a_handler_has_no_sender)
{
    check_handler_sends(false);
}

TEST(a_broadcast_of_a_handler_has_no_sender)
{
    check_handler_sends(true);
}

/* ---- deadlines ---- */

static struct {
    uint64_t deadline_ns;
    int      cancels, steps;
} observed;

/* Step of a process that counts its cancels, and ends on a message. */
static filch_err inherit(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    observed.steps++;
    observed.deadline_ns = filch_ctx_deadline(filch_out_ctx(out));
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
        observed.cancels += events[i].type == FILCH_EVENT_CANCEL;
    }
    return filch_idle(out);
}

/* State of slow_alloc(): its call number `nth` waits until the clock shows `until_ns`. */
static struct {
    uint64_t nth, allocations, until_ns;
} slow;

static void *slow_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size == 0) {
        free(old);
        return NULL;
    }
    if (++slow.allocations == slow.nth) {
        while (fli_clock_ns() <= slow.until_ns) {}
    }
    return realloc(old, size);
}

/* Spawns one process that inherits `values`, lets the process end, and drops `values`. */
static void live_with(filch_values *values)
{
    static const filch_type type = { .name = "heir", .step = inherit };
    filch_spawn_options     how = FILCH_SPAWN_OPTIONS_INIT;
    filch_options           opt = FILCH_OPTIONS_INIT;
    filch_sched            *sched;
    filch_pid               pid;
    observed.cancels = observed.steps = 0;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = slow_alloc;
    how.values = values;
    ok(filch_sched_create(&sched, &opt));
    slow.allocations = 0;
    ok(filch_spawn(sched, &type, &how, &pid));
    uint64_t allocations = slow.allocations;
    filch_values_drop(values);
    while (fli_clock_ns() <= slow.until_ns + FILCH_MILLISECONDS(1)) {}
    for (int i = 0; i < 10; i++) ok(filch_tick(sched, 0, NULL));
    same(filch_next_timeout(sched), FILCH_FOREVER); /* no timer of the deadline is left */
    ok(filch_send(sched, pid, filch_none()));
    ok(filch_tick(sched, 0, NULL));
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    slow.allocations = allocations;
}

TEST(a_deadline_of_filch_forever_is_none)
{
    filch_values *values;
    ok(filch_values_deadline(NULL, FILCH_FOREVER, &values));
    live_with(values);
    same(observed.deadline_ns, FILCH_FOREVER);
    same(observed.cancels, 0);
}

TEST(a_user_value_named_like_the_deadline_is_not_taken_for_it)
{
    filch_values *values;
    ok(filch_values_create(NULL, "filch.deadline", filch_str("soon"), &values));
    live_with(values); /* when the process ends, the runtime must not read "soon" as a deadline */
    same(observed.deadline_ns, FILCH_FOREVER);
}

TEST(a_process_spawned_after_its_deadline_is_cancelled_once)
{
    filch_values *values;
    ok(filch_values_deadline(NULL, 1, &values));
    live_with(values);
    same(observed.deadline_ns, 1);
    same(observed.cancels, 1);
}

/* The deadline passes during each allocation of the spawn in turn: before the process has a timer, when it has a timer
 * but cannot receive events yet, and when it can receive events. */
TEST(a_deadline_that_passes_during_the_spawn_cancels_once)
{
    slow.allocations = UINT64_MAX;
    for (slow.nth = 1; slow.nth <= slow.allocations; slow.nth++) {
        filch_values *values, *scope;
        slow.until_ns = fli_clock_ns() + FILCH_MILLISECONDS(1);
        ok(filch_values_scope(NULL, &scope));
        ok(filch_values_deadline(scope, slow.until_ns, &values));
        filch_values_drop(scope);
        live_with(values);
        same(observed.cancels, 1);
    }
    slow.until_ns = 0;
    assert_true(slow.nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_of_a_handler_has_no_sender),
        cmocka_unit_test(a_broadcast_of_a_handler_has_no_sender),
        cmocka_unit_test(a_deadline_of_filch_forever_is_none),
        cmocka_unit_test(a_user_value_named_like_the_deadline_is_not_taken_for_it),
        cmocka_unit_test(a_process_spawned_after_its_deadline_is_cancelled_once),
        cmocka_unit_test(a_deadline_that_passes_during_the_spawn_cancels_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
