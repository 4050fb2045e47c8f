/* runtimes_test.c - several schedulers in one program. They are independent unless the program connects them. */
#include <stdatomic.h>
#include <string.h>

#include <filch.h>

#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

enum { HOW_MANY = 4, WHERE = FILCH_CMD_USER };

static struct {
    atomic_uint_fast64_t echoed, answers, wrong;
    atomic_int           code;
    atomic_bool          done;
    filch_pid            partner;
    filch_sched         *other;
    uint64_t             rounds;
    test_alloc           alloc[HOW_MANY];
} seen;

static filch_sched *make(int32_t workers, test_alloc *alloc, filch_registry *registry, filch_route_fn route, void *user)
{
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = workers;
    options.alloc = alloc != NULL ? test_alloc_fn : NULL;
    options.alloc_user = alloc;
    options.registry = registry;
    options.route = route;
    options.route_user = user;
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    return sched;
}

/* The process sends each message back to its sender. */
static filch_err echo_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    bool cancelled = false;
    (void)self;
    for (size_t i = 0; i < count; i++) {
        cancelled |= events[i].type == FILCH_EVENT_CANCEL;
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        atomic_fetch_add(&seen.echoed, 1);
        if (events[i].from.serial == 0) continue;
        filch_err err = filch_send(filch_out_sched(out), events[i].from, events[i].data);
        if (err != FILCH_OK) atomic_fetch_add(&seen.wrong, 1);
    }
    return cancelled ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type echo = { .name = "echo", .step = echo_step };

TEST(pids_of_one_scheduler_are_foreign_to_the_others)
{
    memset(&seen, 0, sizeof seen);
    filch_sched *sched[HOW_MANY];
    filch_pid    pid[HOW_MANY];
    for (int i = 0; i < HOW_MANY; i++) {
        sched[i] = make(i % 2 == 0 ? FILCH_NO_WORKERS : 1, NULL, NULL, NULL, NULL);
        ok(filch_spawn(sched[i], &echo, NULL, &pid[i]));
    }
    for (int i = 0; i < HOW_MANY; i++) {
        for (int j = 0; j < HOW_MANY; j++) {
            filch_info info = { .size = sizeof info };
            filch_err  want = i == j ? FILCH_OK : FILCH_EFOREIGN;
            same(filch_send(sched[i], pid[j], filch_str("a text of more than twenty-four bytes")), want);
            same(filch_inspect(sched[i], pid[j], &info), want);
            if (i == j) continue;
            assert_true(pid[i].node != pid[j].node);
            same(filch_cancel(sched[i], pid[j]), FILCH_EFOREIGN);
            same(filch_terminate(sched[i], pid[j]), FILCH_EFOREIGN);
            same(filch_deliver(sched[i], &(filch_package){ .to = pid[j] }), FILCH_EFOREIGN);
        }
    }
    for (int i = 0; i < HOW_MANY; i++) same(filch_sched_stop(sched[i], FILCH_SECONDS(30), NULL), FILCH_OK);
    same(atomic_load(&seen.echoed), HOW_MANY);
}

/* ---- routes ---- */

/* State of a process that sends `rounds` messages to its partner in the other scheduler, one after the other, and
 * checks the answers. */
typedef struct caller {
    int64_t next;
    uint8_t filler[64];
} caller;

static filch_err caller_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    caller      *c = self;
    filch_sched *sched = filch_out_sched(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        bool right = events[i].from.node == seen.partner.node && events[i].from.serial == seen.partner.serial;
        if (filch_size(&events[i].data) == sizeof c->filler) {
            right &= memcmp(filch_raw(&events[i].data), c->filler, sizeof c->filler) == 0;
        } else {
            right &= filch_as_int(&events[i].data) == c->next - 1;
        }
        atomic_fetch_add(right ? &seen.answers : &seen.wrong, 1);
    }
    if (count == 0 || events[0].type == FILCH_EVENT_MESSAGE) {
        if ((uint64_t)c->next == seen.rounds) {
            atomic_store(&seen.done, true);
            return filch_done(out, filch_none());
        }
        memset(c->filler, (int)(c->next & 0xff), sizeof c->filler);
        filch_data data = c->next % 2 == 0 ? filch_int(c->next) : filch_bytes(c->filler, sizeof c->filler);
        c->next++;
        filch_err err = filch_send(sched, seen.partner, data);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static const filch_type calling = { .name = "caller", .size = sizeof(caller), .step = caller_step };

/* Route function that delivers to another scheduler. `user` points to a pointer to that scheduler, because the second
 * scheduler does not exist yet when the first is created. */
static filch_err to_other(void *user, const filch_package *package)
{
    return filch_deliver(*(filch_sched **)user, package);
}

static void call_across(int32_t workers_a, int32_t workers_b)
{
    memset(&seen, 0, sizeof seen);
    seen.rounds = scaled(5000);
    filch_sched *b = NULL, *a = make(workers_a, &seen.alloc[0], NULL, to_other, &b);
    b = make(workers_b, &seen.alloc[1], NULL, filch_deliver, a);
    ok(filch_spawn(b, &echo, NULL, &seen.partner));
    ok(filch_spawn(a, &calling, NULL, NULL));
    while (!atomic_load(&seen.done)) {
        uint32_t ran_a = 0, ran_b = 0;
        if (workers_a < 0) ok(filch_tick(a, 0, &ran_a));
        if (workers_b < 0) ok(filch_tick(b, 0, &ran_b));
        if (ran_a + ran_b == 0) until_pause(0);
    }
    same(atomic_load(&seen.answers), seen.rounds);
    same(atomic_load(&seen.wrong), 0);
    /* A foreign thread sends through the route. Such messages have no sender that could get an answer. */
    ok(filch_send(a, seen.partner, filch_int(1)));
    same(filch_send(a, (filch_pid){ seen.partner.node, seen.partner.serial + 77 }, filch_int(1)), FILCH_EDEAD);
    same(filch_send(a, (filch_pid){ seen.partner.node + 1, seen.partner.serial }, filch_int(1)), FILCH_EFOREIGN);
    same(filch_sched_close(a, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(filch_sched_stop(b, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(filch_sched_stop(a, 0, NULL), FILCH_OK);
    test_alloc_balanced(&seen.alloc[0]);
    test_alloc_balanced(&seen.alloc[1]);
}

TEST(routed_messages_go_both_ways_and_keep_their_sender)
{
    call_across(FILCH_NO_WORKERS, FILCH_NO_WORKERS);
    call_across(FILCH_NO_WORKERS, 1);
    call_across(1, FILCH_NO_WORKERS);
    call_across(1, 1);
    call_across(2, 2);
}

TEST(a_route_to_a_closing_scheduler_returns_eclosed)
{
    memset(&seen, 0, sizeof seen);
    filch_sched *b = make(1, NULL, NULL, NULL, NULL), *a = make(FILCH_NO_WORKERS, NULL, NULL, filch_deliver, b);
    ok(filch_spawn(b, &echo, NULL, &seen.partner));
    ok(filch_send(a, seen.partner, filch_int(1)));
    same(filch_sched_close(b, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(filch_send(a, seen.partner, filch_int(1)), FILCH_ECLOSED);
    same(filch_sched_stop(a, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(filch_sched_stop(b, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(atomic_load(&seen.echoed), 1);
}

/* Like caller_step(), but sends by filch_yield_send(): the result of the route function completes the yield. */
static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) {
        filch_err err = filch_yield_send(out, 1, seen.partner, filch_int(5));
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    if (events[0].type == FILCH_EVENT_YIELD) {
        atomic_store(&seen.code, events[0].error);
        return events[0].error != FILCH_OK ? filch_done(out, filch_none()) : filch_idle(out);
    }
    if (events[0].type == FILCH_EVENT_MESSAGE && filch_as_int(&events[0].data) == 5) atomic_store(&seen.done, true);
    return filch_done(out, filch_none());
}

TEST(yielded_sends_are_routed_too)
{
    static const filch_type yielder = { .name = "yielder", .step = yielder_step };
    memset(&seen, 0, sizeof seen);
    filch_sched *b = NULL, *a = make(FILCH_NO_WORKERS, NULL, NULL, to_other, &b);
    b = make(FILCH_NO_WORKERS, NULL, NULL, filch_deliver, a);
    atomic_store(&seen.code, -1);
    ok(filch_spawn(b, &echo, NULL, &seen.partner));
    ok(filch_spawn(a, &yielder, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        ok(filch_tick(a, 0, NULL));
        ok(filch_tick(b, 0, NULL));
    }
    same(atomic_load(&seen.code), FILCH_OK);
    assert_true(atomic_load(&seen.done));
    same(filch_sched_close(b, FILCH_SECONDS(30), NULL), FILCH_OK);
    ok(filch_spawn(a, &yielder, NULL, NULL));
    ok(filch_tick(a, 0, NULL));
    /* scheduler `b` is closed: its FILCH_ECLOSED is the error of the yield */
    same(atomic_load(&seen.code), FILCH_ECLOSED);
    same(filch_sched_stop(a, FILCH_SECONDS(30), NULL), FILCH_OK);
    same(filch_sched_stop(b, 0, NULL), FILCH_OK);
}

/* ---- one registry ---- */

static filch_err where(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    atomic_uint_fast64_t *calls = user;
    atomic_fetch_add(calls, 1);
    if (filch_ctx_sched(command->ctx) != receiver.sched) return FILCH_EUSER;
    return filch_complete(receiver, tag, filch_of_pid(command->from), FILCH_OK);
}

/* The process makes a yield, which the handler completes with the pid of the yielding process, and a short sleep. It
 * ends after the sleep. */
static filch_err where_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (count == 0) {
        filch_err err = filch_yield(out, WHERE, 1, filch_none());
        if (err == FILCH_OK) err = filch_yield_sleep(out, 2, FILCH_MICROSECONDS(100));
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    for (size_t i = 0; i < count; i++) {
        filch_pid me = filch_ctx_self(filch_out_ctx(out)), handler_pid = filch_as_pid(&events[i].data);
        if (events[i].error != FILCH_OK) return events[i].error;
        if (events[i].tag == 1 && (handler_pid.node != me.node || handler_pid.serial != me.serial))
            atomic_fetch_add(&seen.wrong, 1);
        if (events[i].tag == 2) {
            atomic_fetch_add(&seen.answers, 1);
            return filch_done(out, filch_none());
        }
    }
    return filch_wait(out);
}

TEST(schedulers_share_a_registry_and_the_last_one_frees_it)
{
    static const filch_type where_type = { .name = "where", .step = where_step };
    memset(&seen, 0, sizeof seen);
    atomic_uint_fast64_t calls = 0;
    filch_registry      *registry;
    filch_sched         *sched[HOW_MANY];
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, WHERE, where, &calls));
    for (int i = 0; i < HOW_MANY; i++)
        sched[i] = make(i == 0 ? FILCH_NO_WORKERS : i, &seen.alloc[i], registry, NULL, NULL);
    same(filch_registry_add(registry, WHERE + 1, where, &calls), FILCH_EFROZEN);
    filch_registry_destroy(registry);
    for (int n = 0; n < 100; n++) {
        for (int i = 0; i < HOW_MANY; i++) ok(filch_spawn(sched[i], &where_type, NULL, NULL));
    }
    while (atomic_load(&seen.answers) < 100 * HOW_MANY) {
        ok(filch_tick(sched[0], 0, NULL));
        until_pause(1000);
    }
    same(atomic_load(&calls), 100 * HOW_MANY);
    same(atomic_load(&seen.wrong), 0);
    for (int i = 0; i < HOW_MANY; i++) {
        same(filch_sched_stop(sched[i], FILCH_SECONDS(30), NULL), FILCH_OK);
        test_alloc_balanced(&seen.alloc[i]);
    }
}

/* ---- a scheduler that runs inside a step of another scheduler ---- */

/* The process ticks the inner scheduler in each of its steps, and sends to processes of both schedulers. */
static filch_err host_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t    *laps = self;
    filch_sched *mine = filch_out_sched(out);
    uint32_t     ran = 0;
    (void)events, (void)count;
    if (filch_tick(seen.other, 0, &ran) != FILCH_OK) atomic_fetch_add(&seen.wrong, 1);
    /* After the tick of the inner scheduler the thread is in the step of the outer scheduler again: sends carry the pid
     * of this process, a tick of the outer scheduler is refused, and yields work. */
    if (filch_tick(mine, 0, NULL) != FILCH_ESTATE) atomic_fetch_add(&seen.wrong, 1);
    if (filch_send(mine, filch_ctx_self(filch_out_ctx(out)), filch_int(1)) != FILCH_OK)
        atomic_fetch_add(&seen.wrong, 1);
    if (filch_send(seen.other, seen.partner, filch_int(1)) != FILCH_OK) atomic_fetch_add(&seen.wrong, 1);
    if (++*laps == seen.rounds) {
        atomic_store(&seen.done, true);
        return filch_done(out, filch_none());
    }
    filch_err err = filch_yield_sleep(out, 1, 0);
    return err == FILCH_OK ? filch_idle(out) : err;
}

/* Step of a process of the inner scheduler; it runs inside a step of the outer scheduler. Sends messages back to their
 * senders, and checks that a step cannot stop its own scheduler. */
static filch_err inner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_err err = echo_step(self, events, count, out);
    filch_err stop = filch_sched_stop(filch_out_sched(out), 0, NULL);
    if (stop != FILCH_ESTATE) atomic_fetch_add(&seen.wrong, 1);
    return err;
}

TEST(scheduler_can_be_ticked_inside_a_step_of_another)
{
    static const filch_type host = { .name = "host", .size = sizeof(uint64_t), .step = host_step };
    static const filch_type inner = { .name = "inner", .step = inner_step };
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 2; workers += workers < 0 ? 2 : 1) {
        memset(&seen, 0, sizeof seen);
        seen.rounds = scaled(5000);
        filch_sched *outer = make(workers, &seen.alloc[0], NULL, NULL, NULL);
        seen.other = make(FILCH_NO_WORKERS, &seen.alloc[1], NULL, NULL, NULL);
        ok(filch_spawn(seen.other, &inner, NULL, &seen.partner));
        ok(filch_spawn(outer, &host, NULL, NULL));
        until((workers >= 0 || filch_tick(outer, 0, NULL) == FILCH_OK) && atomic_load(&seen.done));
        same(filch_sched_stop(outer, FILCH_SECONDS(30), NULL), FILCH_OK);
        same(filch_sched_stop(seen.other, FILCH_SECONDS(30), NULL), FILCH_OK);
        same(atomic_load(&seen.wrong), 0);
        assert_true(atomic_load(&seen.echoed) + 1 >= seen.rounds);
        test_alloc_balanced(&seen.alloc[0]);
        test_alloc_balanced(&seen.alloc[1]);
    }
}

/* ---- a thread that is inside steps of several schedulers ---- */

enum { NEST = 3 };

/* The thread is inside a step of sched[0]; that step ticks sched[1], and so on. */
static struct {
    filch_sched *sched[NEST];
    atomic_int   steps, closed, simulated;
    filch_err    wrong; /* the last error that is not FILCH_ESTATE; FILCH_OK: none */
} nest;

/* Tries to stop and to tick the first `count` schedulers. Each call must be refused with FILCH_ESTATE; any other result
 * is kept in nest.wrong. */
static void try_to_stop(int count)
{
    filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    for (int i = 0; i < count; i++) {
        const filch_err errors[] = { filch_sched_stop(nest.sched[i], 0, NULL),
                                     filch_sched_close(nest.sched[i], 0, NULL),
                                     filch_sched_stop_with(nest.sched[i], &options, NULL),
                                     filch_tick(nest.sched[i], 0, NULL) };
        for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
            if (errors[k] != FILCH_ESTATE) nest.wrong = errors[k] != FILCH_OK ? errors[k] : FILCH_EINVAL;
        }
    }
}

/* Without arguments the depth of the process is 0. */
static filch_err nest_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

/* In its first step the process ticks the next scheduler; the process of the last scheduler tries to stop them all. */
static filch_err nest_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int depth = (int)*(int64_t *)self;
    if (count > 0) return events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
    if (depth + 1 < NEST && filch_tick(nest.sched[depth + 1], 0, NULL) != FILCH_OK) nest.wrong = FILCH_EUSER;
    try_to_stop(depth + 1);
    atomic_fetch_add(&nest.steps, 1);
    return filch_idle(out);
}

/* Close function of all nested processes. A step of the first scheduler stops the last scheduler; inside this stop the
 * close function tries to stop the first scheduler. */
static void nest_close(void *self)
{
    if (*(int64_t *)self != NEST - 1 || atomic_load(&nest.steps) < NEST) return;
    try_to_stop(1);
    atomic_fetch_add(&nest.closed, 1);
}

static const filch_type nest_type = {
    .name = "nest", .size = sizeof(int64_t), .init = nest_init, .step = nest_step, .close = nest_close
};

/* Stops the last scheduler, in which the thread is not inside a step any more. */
static filch_err stop_last_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    filch_err err = filch_sched_stop(nest.sched[NEST - 1], 0, NULL);
    if (err != FILCH_EDEADLINE) nest.wrong = FILCH_EUSER;
    return filch_done(out, filch_none());
}

static void nest_begin(int32_t workers, int depth)
{
    memset(&nest, 0, sizeof nest);
    for (int i = 0; i < depth; i++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        nest.sched[i] = make(i == 0 ? workers : FILCH_NO_WORKERS, NULL, NULL, NULL, NULL);
        options.args = filch_int(i);
        if (i > 0) ok(filch_spawn(nest.sched[i], &nest_type, &options, NULL));
    }
}

static bool nest_has_reached(atomic_int *count, int want)
{
    (void)!filch_tick(nest.sched[0], 0, NULL); /* refused if the scheduler has workers */
    return atomic_load(count) == want;
}

/* Runs a process of `type` in the first scheduler until *count is `want`. */
static void nest_run(const filch_type *type, atomic_int *count, int want)
{
    ok(filch_spawn(nest.sched[0], type, NULL, NULL));
    until(nest_has_reached(count, want));
}

static const int32_t nest_workers[] = { FILCH_NO_WORKERS, 1, 2 };

/* If these stops and ticks were not refused, the step would wait for its own end. */
TEST(a_stop_in_a_tick_inside_a_step_of_the_scheduler_is_refused_at_once)
{
    static const filch_type stops_last = { .name = "stops last", .step = stop_last_step };
    for (size_t i = 0; i < sizeof nest_workers / sizeof *nest_workers; i++) {
        nest_begin(nest_workers[i], NEST);
        nest_run(&nest_type, &nest.steps, NEST);
        same(nest.wrong, FILCH_OK);
        nest_run(&stops_last, &nest.closed, 1);
        same(filch_sched_stop(nest.sched[1], FILCH_SECONDS(30), NULL), FILCH_OK);
        same(filch_sched_stop(nest.sched[0], FILCH_SECONDS(30), NULL), FILCH_OK);
        same(nest.wrong, FILCH_OK);
    }
}

static filch_err simulated_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    try_to_stop(1);
    return filch_done(out, filch_none());
}

static filch_err simulate_one(filch_sched *sched, void *user)
{
    static const filch_type simulated = { .name = "simulated", .step = simulated_step };
    (void)user;
    try_to_stop(1);
    return filch_spawn(sched, &simulated, NULL, NULL);
}

static filch_err simulates_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    (void)self, (void)events, (void)count;
    filch_err err = filch_sim_run(NULL, simulate_one, NULL, &report);
    if (err != FILCH_OK || report.verdict != FILCH_SIM_OK) nest.wrong = FILCH_EUSER;
    filch_sim_report_free(&report);
    atomic_fetch_add(&nest.simulated, 1);
    return filch_done(out, filch_none());
}

TEST(a_stop_in_a_simulation_inside_a_step_of_the_scheduler_is_refused_at_once)
{
    static const filch_type simulates = { .name = "simulates", .step = simulates_step };
    for (size_t i = 0; i < sizeof nest_workers / sizeof *nest_workers; i++) {
        nest_begin(nest_workers[i], 1);
        nest_run(&simulates, &nest.simulated, 1);
        same(filch_sched_stop(nest.sched[0], FILCH_SECONDS(30), NULL), FILCH_OK);
        same(nest.wrong, FILCH_OK);
    }
}

/* ---- memory ---- */

TEST(each_scheduler_uses_its_own_allocator_and_only_that)
{
    memset(&seen, 0, sizeof seen);
    filch_sched *sched[2] = { make(1, &seen.alloc[0], NULL, NULL, NULL), make(1, &seen.alloc[1], NULL, NULL, NULL) };
    filch_pid    pid;
    uint64_t     before = atomic_load(&seen.alloc[0].asked);
    size_t       bytes = atomic_load(&seen.alloc[0].bytes);
    char         text[1000];
    memset(text, 'x', sizeof text);
    ok(filch_spawn(sched[1], &echo, NULL, &pid));
    for (int i = 0; i < 1000; i++) ok(filch_send(sched[1], pid, filch_bytes(text, sizeof text)));
    until(atomic_load(&seen.echoed) == 1000);
    assert_true(atomic_load(&seen.alloc[1].asked) >= 1000);
    same(atomic_load(&seen.alloc[0].asked), before);
    same(atomic_load(&seen.alloc[0].bytes), bytes);

    /* Allocations fail in one scheduler; the other is not affected. */
    test_alloc_fail(&seen.alloc[0], 1, true);
    ok(filch_send(sched[1], pid, filch_bytes(text, sizeof text)));
    same(filch_spawn(sched[0], &echo, NULL, NULL), FILCH_ENOMEM);
    test_alloc_fail(&seen.alloc[0], 0, false);
    ok(filch_spawn(sched[0], &echo, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        same(filch_sched_stop(sched[i], FILCH_SECONDS(30), NULL), FILCH_OK);
        test_alloc_balanced(&seen.alloc[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pids_of_one_scheduler_are_foreign_to_the_others),
        cmocka_unit_test(routed_messages_go_both_ways_and_keep_their_sender),
        cmocka_unit_test(a_route_to_a_closing_scheduler_returns_eclosed),
        cmocka_unit_test(yielded_sends_are_routed_too),
        cmocka_unit_test(schedulers_share_a_registry_and_the_last_one_frees_it),
        cmocka_unit_test(scheduler_can_be_ticked_inside_a_step_of_another),
        cmocka_unit_test(a_stop_in_a_tick_inside_a_step_of_the_scheduler_is_refused_at_once),
        cmocka_unit_test(a_stop_in_a_simulation_inside_a_step_of_the_scheduler_is_refused_at_once),
        cmocka_unit_test(each_scheduler_uses_its_own_allocator_and_only_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
