/* on_exit_test.c - when on_exit is called, the name, the count and the slot of the ended process are free again. */
#include <filch.h>

#include "api/fixture.h"
#include "port/atomic.h"
#include "support/until.h"

enum { PROCESSES = 200 };

typedef struct line {
    filch_sched         *sched;
    FLI_ATOMIC(uint32_t) ended, found_alive, refused;
    FLI_ATOMIC(int32_t)  last_error;
    const char          *name; /* name under which each process is spawned; NULL: none */
} line;

static filch_err short_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    return filch_done(out, filch_none());
}

static const filch_type short_lived = { .name = "short", .step = short_step };

static void spawn_next(line *l);

/* An on_exit function that spawns the next process of a sequence. */
static void next_of_line(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    line     *l = user;
    filch_pid found;
    (void)pid;
    (void)error;
    (void)result;
    if (l->name != NULL && filch_whereis(l->sched, l->name, &found) != FILCH_EDEAD) fli_add_rlx(&l->found_alive, 1);
    if (fli_load_rlx(&l->ended) + 1 < PROCESSES) spawn_next(l);
    fli_add_rel(&l->ended, 1);
}

static void spawn_next(line *l)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.name = l->name;
    opt.on_exit = next_of_line;
    opt.on_exit_user = l;
    filch_err err = filch_spawn(l->sched, &short_lived, &opt, NULL);
    if (err == FILCH_OK) return;
    fli_store_rlx(&l->last_error, (int32_t)err);
    fli_add_rlx(&l->refused, 1);
    fli_store_rel(&l->ended, PROCESSES);
}

static void run_line(const char *name, uint32_t max_processes)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    line          l = { .name = name };
    opt.workers = FILCH_NO_WORKERS;
    opt.max_processes = max_processes;
    ok(filch_sched_create(&l.sched, &opt));
    spawn_next(&l);
    until(filch_tick(l.sched, 100, NULL) == FILCH_OK && fli_load_acq(&l.ended) >= PROCESSES);
    same(fli_load_rlx(&l.last_error), FILCH_OK);
    same(fli_load_rlx(&l.refused), 0);
    same(fli_load_rlx(&l.found_alive), 0);
    ok(filch_sched_stop(l.sched, FILCH_FOREVER, NULL));
}

TEST(on_exit_may_spawn_a_process_with_the_same_name)
{
    run_line("the one", 0);
}

TEST(on_exit_may_spawn_a_process_at_the_limit_of_processes)
{
    run_line(NULL, 1);
    run_line("the one", 1);
}

/* ---- in close, the name of the ended process is not found and can be registered again ---- */

static struct {
    filch_sched *sched;
    filch_pid    other;
    filch_err    found, registered;
} name_taker;

/* A close function. The process has ended, but its exit has not been reported yet. */
static void leave_name(void *self)
{
    filch_pid pid;
    (void)self;
    name_taker.found = filch_whereis(name_taker.sched, "throne", &pid);
    name_taker.registered = filch_register(name_taker.sched, "throne", name_taker.other);
}

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type idler = { .name = "idler", .step = idle_step };
static const filch_type king = { .name = "king", .step = short_step, .close = leave_name };

TEST(a_name_that_whereis_does_not_find_can_be_registered)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           found;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&name_taker.sched, &opt));
    ok(filch_spawn(name_taker.sched, &idler, NULL, &name_taker.other));
    spawn.name = "throne";
    ok(filch_spawn(name_taker.sched, &king, &spawn, NULL));
    for (int i = 0; i < 10; i++) ok(filch_tick(name_taker.sched, 100, NULL));
    same(name_taker.found, FILCH_EDEAD);
    same(name_taker.registered, FILCH_OK);
    ok(filch_whereis(name_taker.sched, "throne", &found));
    same(found.serial, name_taker.other.serial);
    ok(filch_sched_stop(name_taker.sched, FILCH_FOREVER, NULL));
}

/* ---- stop waits for on_exit ---- */

typedef struct late {
    filch_sched         *sched;
    FLI_ATOMIC(uint32_t) inside, go, over;
} late;

static void slow_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    late *l = user;
    (void)pid;
    (void)error;
    (void)result;
    fli_store_rel(&l->inside, 1);
    while (fli_load_acq(&l->go) == 0) yield_slice();
    fli_store_rel(&l->over, 1);
}

static void open_gate(void *arg)
{
    late *l = arg;
    /* Waits until the stop has begun. From then on the scheduler refuses calls of foreign threads. */
    filch_err err;
    do {
        yield_slice();
        err = filch_spawn(l->sched, &short_lived, NULL, NULL);
    } while (err == FILCH_OK);
    fli_store_rel(&l->go, 1);
}

TEST(stop_waits_for_on_exit)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    late                l = { .sched = NULL };
    fli_thread          other;
    opt.workers = 1;
    ok(filch_sched_create(&l.sched, &opt));
    spawn.on_exit = slow_exit;
    spawn.on_exit_user = &l;
    ok(filch_spawn(l.sched, &short_lived, &spawn, NULL));
    until(fli_load_acq(&l.inside) != 0);
    ok(fli_thread_start(&other, "gate", open_gate, &l));
    filch_sched *sched = l.sched;
    filch_err    err = filch_sched_stop(sched, FILCH_FOREVER, NULL);
    same(fli_load_acq(&l.over), 1);
    fli_thread_join(&other);
    ok(err);
}

/* ---- inherited values are still valid in on_exit ---- */

static filch_err looks_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    const filch_data *value = filch_ctx_value(filch_out_ctx(out), "key");
    return filch_done(out, filch_int(value != NULL ? filch_as_int(value) : 0));
}

static const filch_type looks = { .name = "looks", .step = looks_step };

typedef struct successors {
    filch_sched *sched;
    int64_t      sum;
    uint32_t     ended;
} successors;

static void add_successor(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    successors *h = user;
    (void)pid;
    (void)error;
    h->sum += filch_as_int(result);
    if (h->ended++ > 0) return;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.on_exit = add_successor;
    spawn.on_exit_user = h;
    ok(filch_spawn(h->sched, &looks, &spawn, NULL));
}

TEST(a_process_spawned_by_on_exit_inherits_values_of_the_ended_one)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    successors          h = { .sched = NULL };
    filch_values       *values;
    opt.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&h.sched, &opt));
    ok(filch_values_create(NULL, "key", filch_int(21), &values));
    spawn.values = values;
    spawn.on_exit = add_successor;
    spawn.on_exit_user = &h;
    ok(filch_spawn(h.sched, &looks, &spawn, NULL));
    filch_values_drop(values);
    until(filch_tick(h.sched, 100, NULL) == FILCH_OK && h.ended >= 2);
    same(h.sum, 42);
    ok(filch_sched_stop(h.sched, FILCH_FOREVER, NULL));
}

/* Record of closer_close(): seen[i] is the result of filch_close_error() in call i. */
static struct {
    filch_sched *sched;
    filch_err    seen[4];
    uint32_t     count;
} closes;

static void closer_close(void *self)
{
    (void)self;
    closes.seen[closes.count++ % 4] = filch_close_error(closes.sched);
}

static filch_err closer_step(void *self, const filch_event *events, size_t count, filch_out *out);

static const filch_type closer = { .name = "closer", .step = closer_step, .close = closer_close };

static filch_err closer_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    static const char large[200];
    (void)self;
    same(filch_close_error(filch_out_sched(out)), FILCH_OK);
    if (count == 0 || events[0].type != FILCH_EVENT_MESSAGE) return filch_idle(out);
    switch (filch_as_int(&events[0].data)) {
    case 0: return filch_done(out, filch_none());
    case 1: return filch_upgrade(out, &closer, NULL, filch_none());
    case 3: /* filch_fail closes the instance that filch_upgrade has made */
        ok(filch_upgrade(out, &closer, NULL, filch_none()));
        return filch_fail(out, FILCH_EUSER + 4, filch_str("a detail"));
    case 4: /* filch_fail leaves out the detail, because it is too large */
        ok(filch_upgrade(out, &closer, NULL, filch_none()));
        return filch_fail(out, FILCH_EUSER + 5, filch_bytes(large, sizeof large));
    case 5: /* the new instance is closed after the step */
        ok(filch_upgrade(out, &closer, NULL, filch_none()));
        return FILCH_EUSER + 6;
    case 6: /* the process ends without an error */
        ok(filch_upgrade(out, &closer, NULL, filch_none()));
        return filch_done(out, filch_none());
    default: return FILCH_EUSER + 3;
    }
}

/* Runs the scheduler, which must close exactly one instance. Returns what filch_close_error() returned in its close. */
static filch_err told(void)
{
    closes.count = 0;
    ok(filch_tick(closes.sched, 0, NULL));
    same(closes.count, 1);
    return closes.seen[0];
}

TEST(both_instances_of_an_upgrade_that_fails_are_told_the_error)
{
    static const filch_err errors[] = { FILCH_EUSER + 4, FILCH_EUSER + 5, FILCH_EUSER + 6, FILCH_OK };
    filch_options          opt = FILCH_OPTIONS_INIT;
    filch_pid              a;
    opt.workers = FILCH_NO_WORKERS;
    opt.payload_max = 100;
    memset(&closes, 0, sizeof closes);
    ok(filch_sched_create(&closes.sched, &opt));
    for (int i = 0; i < 4; i++) {
        closes.count = 0;
        ok(filch_spawn(closes.sched, &closer, NULL, &a));
        ok(filch_send(closes.sched, a, filch_int(3 + i)));
        ok(filch_tick(closes.sched, 0, NULL));
        same(closes.count, 2);
        same(closes.seen[0], errors[i]);
        same(closes.seen[1], errors[i]);
    }
    ok(filch_sched_stop(closes.sched, FILCH_SECONDS(10), NULL));
}

TEST(close_is_told_the_error_of_the_end)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options small = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           a, b;
    opt.workers = FILCH_NO_WORKERS;
    small.mailbox_max = 1;
    small.overflow = FILCH_OVERFLOW_STOP;
    memset(&closes, 0, sizeof closes);
    ok(filch_sched_create(&closes.sched, &opt));
    same(filch_close_error(NULL), FILCH_OK);
    same(filch_close_error(closes.sched), FILCH_OK); /* FILCH_OK is the result outside of a close function */

    ok(filch_spawn(closes.sched, &closer, NULL, &a));
    ok(filch_send(closes.sched, a, filch_int(0)));
    same(told(), FILCH_OK);

    ok(filch_spawn(closes.sched, &closer, NULL, &a));
    ok(filch_send(closes.sched, a, filch_int(2)));
    same(told(), FILCH_EUSER + 3);

    ok(filch_spawn(closes.sched, &closer, NULL, &a));
    ok(filch_terminate(closes.sched, a));
    same(told(), FILCH_EKILLED);

    ok(filch_spawn(closes.sched, &closer, &small, &a));
    ok(filch_send(closes.sched, a, filch_int(1)));
    same(filch_send(closes.sched, a, filch_int(1)), FILCH_EFULL);
    same(told(), FILCH_EOVERFLOW);

    /* The old instance of an upgrade is closed without an error. */
    ok(filch_spawn(closes.sched, &closer, NULL, &a));
    ok(filch_send(closes.sched, a, filch_int(1)));
    same(told(), FILCH_OK);

    ok(filch_spawn(closes.sched, &closer, NULL, &b));
    ok(filch_link(closes.sched, a, b));
    ok(filch_send(closes.sched, b, filch_int(2)));
    closes.count = 0;
    ok(filch_tick(closes.sched, 0, NULL));
    same(closes.count, 2);
    same(closes.seen[0], FILCH_EUSER + 3);
    same(closes.seen[1], FILCH_ELINK);
    ok(filch_sched_stop(closes.sched, FILCH_SECONDS(10), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_exit_may_spawn_a_process_with_the_same_name),
        cmocka_unit_test(on_exit_may_spawn_a_process_at_the_limit_of_processes),
        cmocka_unit_test(a_name_that_whereis_does_not_find_can_be_registered),
        cmocka_unit_test(stop_waits_for_on_exit),
        cmocka_unit_test(a_process_spawned_by_on_exit_inherits_values_of_the_ended_one),
        cmocka_unit_test(close_is_told_the_error_of_the_end),
        cmocka_unit_test(both_instances_of_an_upgrade_that_fails_are_told_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
