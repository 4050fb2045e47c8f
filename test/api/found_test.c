/* found_test.c - regression tests for bugs that the fuzzers found (test/fuzz), each as a user would have seen the
 * bug. */
#include <stdlib.h>

#include <filch.h>

#include "port/clock.h"
#include "support/check.h"

enum { TELL = FILCH_CMD_USER };

static filch_pid ear, heard_from;
static int       heard;
static bool      by_group;

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
    if (by_group) ok(filch_broadcast(receiver.sched, "ears", filch_int(1), NULL));
    else ok(filch_send(receiver.sched, ear, filch_int(1)));
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void a_handler_tells(bool group)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    filch_sched    *sched;
    by_group = group;
    heard = 0;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, TELL, on_tell, NULL));
    opt.workers = FILCH_NO_WORKERS;
    opt.registry = registry;
    ok(filch_sched_create(&sched, &opt));
    filch_registry_destroy(registry);
    ok(filch_spawn(sched, &listener, NULL, &ear));
    ok(filch_join(sched, "ears", ear));
    ok(filch_spawn(sched, &asker, NULL, NULL));
    ok(filch_tick(sched, 0, NULL));
    same(heard, 1);
    same(heard_from.node, 0);
    same(heard_from.serial, 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
}

TEST(a_handlers_message_comes_from_nobody)
{
    a_handler_tells(false);
}

TEST(a_handlers_broadcast_comes_from_nobody)
{
    a_handler_tells(true);
}

/* ---- deadlines ---- */

static struct {
    uint64_t deadline_ns;
    int      cancels, steps;
} heir;

/* Ignores the first cancel; ends on the second one, or on a message. */
static filch_err inherit(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    heir.steps++;
    heir.deadline_ns = filch_ctx_deadline(filch_out_ctx(out));
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
        heir.cancels += events[i].type == FILCH_EVENT_CANCEL;
    }
    return filch_idle(out);
}

/* An allocator whose call number `nth` waits until the clock shows `until_ns`. */
static struct {
    uint64_t nth, asked, until_ns;
} slow;

static void *slow_alloc(void *user, void *old, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size == 0) {
        free(old);
        return NULL;
    }
    if (++slow.asked == slow.nth) {
        while (fli_clock_ns() <= slow.until_ns) {}
    }
    return realloc(old, size);
}

/* Spawns one process with these values, lets the process end, and drops the values. */
static void live_with(filch_values *values)
{
    static const filch_type type = { .name = "heir", .step = inherit };
    filch_spawn_options     how = FILCH_SPAWN_OPTIONS_INIT;
    filch_options           opt = FILCH_OPTIONS_INIT;
    filch_sched            *sched;
    filch_pid               pid;
    heir.cancels = heir.steps = 0;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = slow_alloc;
    how.values = values;
    ok(filch_sched_create(&sched, &opt));
    slow.asked = 0;
    ok(filch_spawn(sched, &type, &how, &pid));
    uint64_t asked = slow.asked;
    filch_values_drop(values);
    while (fli_clock_ns() <= slow.until_ns + FILCH_MILLISECONDS(1)) {}
    for (int i = 0; i < 10; i++) ok(filch_tick(sched, 0, NULL));
    same(filch_next_timeout(sched), FILCH_FOREVER); /* no timer is left */
    ok(filch_send(sched, pid, filch_none()));
    ok(filch_tick(sched, 0, NULL));
    ok(filch_sched_stop(sched, FILCH_SECONDS(10), NULL));
    slow.asked = asked;
}

TEST(a_deadline_for_ever_is_none)
{
    filch_values *values;
    ok(filch_values_deadline(NULL, FILCH_FOREVER, &values));
    live_with(values);
    same(heir.deadline_ns, FILCH_FOREVER);
    same(heir.cancels, 0);
}

TEST(a_value_that_is_called_like_the_deadline_does_no_harm)
{
    filch_values *values;
    ok(filch_values_create(NULL, "filch.deadline", filch_str("soon"), &values));
    live_with(values); /* before the fix, the end of the process crashed here */
    same(heir.deadline_ns, FILCH_FOREVER);
}

TEST(whoever_is_born_after_its_deadline_is_asked_once)
{
    filch_values *values;
    ok(filch_values_deadline(NULL, 1, &values));
    live_with(values);
    same(heir.deadline_ns, 1);
    same(heir.cancels, 1);
}

/* The deadline passes during each allocation of the spawn in turn: before the process has a timer, when it has a timer
 * but is not open yet, and after that. */
TEST(whoever_is_being_born_when_its_deadline_comes_is_asked_once)
{
    slow.asked = UINT64_MAX;
    for (slow.nth = 1; slow.nth <= slow.asked; slow.nth++) {
        filch_values *values, *scope;
        slow.until_ns = fli_clock_ns() + FILCH_MILLISECONDS(1);
        ok(filch_values_scope(NULL, &scope));
        ok(filch_values_deadline(scope, slow.until_ns, &values));
        filch_values_drop(scope);
        live_with(values);
        same(heir.cancels, 1);
    }
    slow.until_ns = 0;
    assert_true(slow.nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handlers_message_comes_from_nobody),
        cmocka_unit_test(a_handlers_broadcast_comes_from_nobody),
        cmocka_unit_test(a_deadline_for_ever_is_none),
        cmocka_unit_test(a_value_that_is_called_like_the_deadline_does_no_harm),
        cmocka_unit_test(whoever_is_born_after_its_deadline_is_asked_once),
        cmocka_unit_test(whoever_is_being_born_when_its_deadline_comes_is_asked_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
