/* fan_out_test.c - one process sends to thousands of processes in one step, while two others send to each other: these
 * two must not wait until the thousands have run. Measured in turns of the only worker, which is this thread. */
#include "api/fixture.h"

enum { SINKS = 3000, FAN = 3 };

static struct {
    filch_pid sinks[SINKS], pinger, echo;
    uint32_t  sent, turns, last_turn, longest;
    bool      measures;
} scene;

/* A sink that reads the number n > 0 sends n - 1 to another sink. So each message that flood_step() sends (with the
 * number FAN) causes FAN further messages. Each step of a sink takes 10 us. */
static filch_err sink_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    scene.turns++;
    for (uint64_t until = fli_clock_ns() + 10000; fli_clock_ns() < until;) {}
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
        int64_t  left = filch_as_int(&events[i].data);
        uint32_t other = (uint32_t)left * 1009 % SINKS;
        if (left > 0) (void)!filch_send(filch_out_sched(out), scene.sinks[other], filch_int(left - 1));
    }
    return filch_idle(out);
}

static filch_err flood_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    scene.turns++;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    while (scene.sent < SINKS && !filch_should_yield(out)) {
        (void)!filch_send(filch_out_sched(out), scene.sinks[scene.sent++], filch_int(FAN));
    }
    return scene.sent < SINKS ? filch_continue(out) : filch_idle(out);
}

/* Sends each message to the other process of the pair. Records the maximum number of turns that the worker makes
 * between two steps of the pair. */
static filch_err exchange_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    scene.turns++;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
        if (scene.measures && scene.turns - scene.last_turn > scene.longest)
            scene.longest = scene.turns - scene.last_turn;
        scene.last_turn = scene.turns;
        filch_pid self_pid = filch_ctx_self(filch_out_ctx(out));
        filch_pid other = same_pid(self_pid, scene.pinger) ? scene.echo : scene.pinger;
        if (scene.sent < SINKS) (void)!filch_send(filch_out_sched(out), other, filch_int(1));
    }
    return filch_idle(out);
}

static const filch_type sink_type = { .name = "sink", .step = sink_step };
static const filch_type flood_type = { .name = "flood", .step = flood_step };
static const filch_type exchange_type = { .name = "talk", .step = exchange_step };

TEST(a_fan_out_does_not_starve_two_processes_that_exchange_messages)
{
    fixture w;
    memset(&scene, 0, sizeof scene);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (uint32_t i = 0; i < SINKS; i++) ok(filch_spawn(w.sched, &sink_type, NULL, &scene.sinks[i]));
    ok(filch_spawn(w.sched, &exchange_type, NULL, &scene.pinger));
    ok(filch_spawn(w.sched, &exchange_type, NULL, &scene.echo));
    fixture_tick(&w);
    /* A first round of messages, in which the worker measures how long steps take. */
    for (uint32_t i = 0; i < SINKS / 4; i++) ok(filch_send(w.sched, scene.sinks[i], filch_int(0)));
    fixture_tick(&w);
    scene.sent = 0;
    scene.turns = 0;
    scene.measures = true;
    ok(filch_send(w.sched, scene.pinger, filch_int(1)));
    ok(filch_spawn(w.sched, &flood_type, NULL, NULL));
    UNTIL(&w, scene.sent == SINKS);
    fixture_tick(&w);
    print_message("%u turns, the longest wait %u\n", scene.turns, scene.longest);
    assert_true(scene.turns >= SINKS);
    assert_true(scene.longest <= 900);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fan_out_does_not_starve_two_processes_that_exchange_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
