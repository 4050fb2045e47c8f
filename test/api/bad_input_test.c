/* bad_input_test.c - calls every public function with arguments that it cannot use: the function reports an error,
 * changes nothing and leaks nothing. */
#include <stdio.h>

#include "api/fixture.h"

static fixture     w;
static filch_stats before;

static void begin_and_count(void)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    (void)fixture_tick(&w);
    before = fixture_stats(&w);
}

/* Checks that the statistics of the scheduler are unchanged since `before`. */
static void nothing_changed(void)
{
    filch_stats now = fixture_stats(&w);
    assert_memory_equal(&now, &before, sizeof now);
}

#define REFUSED(call, why)   \
    do {                     \
        same((call), (why)); \
        nothing_changed();   \
    } while (0)

static filch_err never_called(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag, (void)receiver;
    return FILCH_EUSER;
}

static filch_err step_never(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count, (void)out;
    return FILCH_EUSER;
}

TEST(null_is_refused_by_every_function_that_needs_an_object)
{
    begin_and_count();
    filch_pid      null_pid = { 0, 0 }, pid = { 7, 7 };
    filch_data     data = filch_int(1), out = filch_int(2);
    filch_type     no_step = { .name = "no step" };
    filch_package  package = { .to = null_pid };
    filch_info     info = { .size = sizeof info };
    filch_stats    stats = FILCH_STATS_INIT;
    filch_values  *values = NULL;
    filch_receiver receiver = { NULL, 0, 0 };

    REFUSED(filch_sched_create(NULL, NULL), FILCH_EINVAL);
    REFUSED(filch_spawn(NULL, &actor_type, NULL, &pid), FILCH_EINVAL);
    REFUSED(filch_spawn(w.sched, NULL, NULL, &pid), FILCH_EINVAL);
    REFUSED(filch_spawn(w.sched, &no_step, NULL, &pid), FILCH_EINVAL);
    assert_true(pid.node == 7 && pid.serial == 7);
    REFUSED(filch_send(NULL, null_pid, data), FILCH_EINVAL);
    REFUSED(filch_cancel(NULL, null_pid), FILCH_EINVAL);
    REFUSED(filch_terminate(NULL, null_pid), FILCH_EINVAL);
    REFUSED(filch_inspect(NULL, null_pid, &info), FILCH_EINVAL);
    REFUSED(filch_inspect(w.sched, null_pid, NULL), FILCH_EINVAL);
    REFUSED(filch_sched_stats(NULL, &stats), FILCH_EINVAL);
    REFUSED(filch_sched_stats(w.sched, NULL), FILCH_EINVAL);
    REFUSED(filch_deliver(NULL, &package), FILCH_EINVAL);
    REFUSED(filch_deliver(w.sched, NULL), FILCH_EINVAL);
    REFUSED(filch_tick(NULL, 0, NULL), FILCH_EINVAL);
    REFUSED(filch_sched_stop(NULL, 0, NULL), FILCH_EINVAL);
    REFUSED(filch_sched_close(NULL, 0, NULL), FILCH_EINVAL);
    same(filch_wake_fd(NULL), -1);
    assert_true(filch_next_timeout(NULL) == FILCH_FOREVER);

    REFUSED(filch_continue(NULL), FILCH_EINVAL);
    REFUSED(filch_wait(NULL), FILCH_EINVAL);
    REFUSED(filch_idle(NULL), FILCH_EINVAL);
    REFUSED(filch_done(NULL, data), FILCH_EINVAL);
    REFUSED(filch_upgrade(NULL, &actor_type, NULL, data), FILCH_EINVAL);
    REFUSED(filch_yield(NULL, FILCH_CMD_USER, 1, data), FILCH_EINVAL);
    REFUSED(filch_yield_sleep(NULL, 1, 1), FILCH_EINVAL);
    REFUSED(filch_yield_timer(NULL, 1, 1), FILCH_EINVAL);
    REFUSED(filch_yield_ticker(NULL, 1, 1), FILCH_EINVAL);
    REFUSED(filch_yield_timer_cancel(NULL, 1, 1), FILCH_EINVAL);
    REFUSED(filch_yield_work(NULL, 1, NULL, NULL), FILCH_EINVAL);
    REFUSED(filch_yield_send(NULL, 1, null_pid, data), FILCH_EINVAL);
    assert_null(filch_out_ctx(NULL));
    assert_null(filch_out_sched(NULL));
    same(filch_should_yield(NULL), 0);
    assert_true(is_null_pid(filch_ctx_self(NULL)));
    assert_null(filch_ctx_sched(NULL));
    same(filch_kind_of(filch_ctx_value(NULL, "key")), FILCH_KIND_NONE);

    REFUSED(filch_complete(receiver, 0, data, FILCH_OK), FILCH_EINVAL);
    receiver.sched = w.sched;
    REFUSED(filch_complete(receiver, 0, data, FILCH_OK), FILCH_EINVAL);
    REFUSED(filch_share(NULL, 0, NULL, NULL, &out), FILCH_EINVAL);
    REFUSED(filch_share(&data, 1, NULL, NULL, NULL), FILCH_EINVAL);
    assert_null(filch_shared_user(NULL, NULL));
    assert_null(filch_shared_user(&data, NULL));
    REFUSED(filch_keep(NULL, &out), FILCH_EINVAL);
    REFUSED(filch_keep(&data, NULL), FILCH_EINVAL);
    same(filch_as_int(&out), 2);
    REFUSED(filch_values_create(NULL, NULL, data, &values), FILCH_EINVAL);
    REFUSED(filch_values_create(NULL, "key", data, NULL), FILCH_EINVAL);
    REFUSED(filch_values_create(NULL, "key", filch_bytes(NULL, 3), &values), FILCH_EINVAL);
    assert_null(values);
    REFUSED(filch_registry_create(NULL), FILCH_EINVAL);
    REFUSED(filch_registry_add(NULL, FILCH_CMD_USER, never_called, NULL), FILCH_EINVAL);

    /* With the argument NULL each of these functions does nothing. */
    filch_drop(NULL);
    filch_values_drop(NULL);
    filch_registry_destroy(NULL);
    filch_report_free(NULL);
    nothing_changed();
    fixture_end(&w);
}

TEST(reading_null_reads_an_empty_payload)
{
    same(filch_kind_of(NULL), FILCH_KIND_NONE);
    same(filch_as_int(NULL), 0);
    assert_true(filch_as_num(NULL) == 0.0);
    assert_true(is_null_pid(filch_as_pid(NULL)));
    assert_null(filch_as_ptr(NULL));
    assert_string_equal(filch_text(NULL), "");
    assert_null(filch_raw(NULL));
    same(filch_size(NULL), 0);
}

/* ---- pids ---- */

TEST(invalid_ended_and_foreign_pids_are_told_apart)
{
    actor   a = { .stage = 0 }, b = { .stage = 0 };
    fixture other;
    fixture_begin(&other, FILCH_NO_WORKERS);
    actor_start(&other, &b, play_idle);
    (void)fixture_tick(&other);
    begin_and_count();
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);
    filch_info info = { .size = sizeof info };

    const filch_pid dead[] = { { 0, 0 },
                               { a.pid.node, 0 },
                               { a.pid.node, a.pid.serial + 1 },
                               { a.pid.node, a.pid.serial + (UINT64_C(1) << 32) },
                               { a.pid.node, UINT64_MAX },
                               { a.pid.node, UINT32_MAX } };
    for (size_t i = 0; i < COUNT_OF(dead); i++) {
        before = fixture_stats(&w);
        REFUSED(filch_cancel(w.sched, dead[i]), FILCH_EDEAD);
        REFUSED(filch_terminate(w.sched, dead[i]), FILCH_EDEAD);
        REFUSED(filch_inspect(w.sched, dead[i], &info), FILCH_EDEAD);
        same(filch_send(w.sched, dead[i], filch_int(1)), FILCH_EDEAD);
        before.undelivered++; /* only `undelivered` changes */
        nothing_changed();
    }
    before = fixture_stats(&w);
    REFUSED(filch_send(w.sched, b.pid, filch_int(1)), FILCH_EFOREIGN);
    REFUSED(filch_cancel(w.sched, b.pid), FILCH_EFOREIGN);
    REFUSED(filch_terminate(w.sched, b.pid), FILCH_EFOREIGN);
    REFUSED(filch_inspect(w.sched, b.pid, &info), FILCH_EFOREIGN);
    filch_package package = { .to = b.pid };
    REFUSED(filch_deliver(w.sched, &package), FILCH_EFOREIGN);

    /* The process ends. The calls below with its pid are refused. */
    ok(filch_cancel(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_OK);
    before = fixture_stats(&w);
    REFUSED(filch_cancel(w.sched, a.pid), FILCH_EDEAD);
    REFUSED(filch_terminate(w.sched, a.pid), FILCH_EDEAD);
    REFUSED(filch_inspect(w.sched, a.pid, &info), FILCH_EDEAD);
    fixture_end(&w);
    ok(filch_cancel(other.sched, b.pid));
    actor_ends(&other, &b, FILCH_OK);
    fixture_end(&other);
}

/* ---- structs of older and newer versions of filch.h ---- */

typedef struct newer_options {
    filch_options known;
    uint64_t      later[2];
} newer_options;

TEST(options_of_an_older_or_newer_header_are_understood)
{
    filch_sched  *sched = NULL;
    newer_options newer = { .known = FILCH_OPTIONS_INIT };
    newer.known.size = sizeof newer;
    newer.known.workers = FILCH_NO_WORKERS;
    /* the fields that this version does not know are 0, so the struct is accepted */
    ok(filch_sched_create(&sched, &newer.known));
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);

    sched = NULL;
    newer.later[1] = 1; /* a field that this version does not know is not 0, so the struct is refused */
    same(filch_sched_create(&sched, &newer.known), FILCH_EINVAL);
    assert_null(sched);

    /* The options struct of an older version ends after `workers`. The library does not read the bytes after it, which
     * are set to 0xff. */
    filch_options older = FILCH_OPTIONS_INIT;
    memset(&older, 0xff, sizeof older);
    older.size = offsetof(filch_options, max_processes);
    older.workers = FILCH_NO_WORKERS;
    ok(filch_sched_create(&sched, &older));
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);

    sched = NULL;
    older.size = 0;
    same(filch_sched_create(&sched, &older), FILCH_EINVAL);
    older.size = sizeof older.size - 1;
    same(filch_sched_create(&sched, &older), FILCH_EINVAL);
    assert_null(sched);
}

TEST(impossible_options_are_refused)
{
    filch_options wild[9];
    for (size_t i = 0; i < COUNT_OF(wild); i++) wild[i] = (filch_options)FILCH_OPTIONS_INIT;
    wild[0].workers = -2;
    wild[1].workers = INT32_MAX;
    wild[2].workers = INT32_MIN;
    wild[3].batch_max = 1025;
    wild[4].global_batch = UINT32_MAX;
    wild[5].max_processes = UINT32_MAX;
    wild[6].work_threads = UINT32_MAX;
    wild[7].spare = 1;
    wild[8].spare_too = 1;
    for (size_t i = 0; i < COUNT_OF(wild); i++) {
        fixture refused = { .sched = NULL };
        wild[i].alloc = fixture_alloc;
        wild[i].alloc_user = &refused;
        same(filch_sched_create(&refused.sched, &wild[i]), FILCH_EINVAL);
        assert_null(refused.sched);
        same(fli_load_rlx(&refused.blocks), 0);
    }
}

TEST(every_option_may_be_extreme)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.max_processes = 1;
    opt.batch_max = 1024;
    opt.send_budget = opt.fair_every = opt.spin_tight = opt.work_queue = UINT32_MAX;
    opt.global_batch = 256;
    opt.spin_yield = 1;
    opt.search_ns = 1;
    opt.node = opt.seed = UINT64_MAX;
    opt.payload_max = SIZE_MAX;
    opt.work_threads = 1;
    actor a = { .stage = 0 };
    fixture_begin_with(&w, 2, opt);
    actor_start(&w, &a, play_idle);
    same(a.pid.node, UINT64_MAX);
    ok(filch_cancel(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
}

typedef struct newer_spawn_options {
    filch_spawn_options known;
    unsigned char       later[8];
} newer_spawn_options;

TEST(spawn_options_of_an_older_or_newer_header_are_understood)
{
    actor a = { .stage = 0 }, b = { .stage = 0 };
    begin_and_count();
    newer_spawn_options newer = { .known = FILCH_SPAWN_OPTIONS_INIT };
    newer.known.size = sizeof newer;
    actor_start_with(&w, &a, play_idle, (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT);
    newer.known.args = filch_ptr(&b);
    b.play = play_idle;
    ok(filch_spawn(w.sched, &actor_type, &newer.known, NULL));
    (void)fixture_tick(&w);
    before = fixture_stats(&w);

    newer.later[7] = 1;
    REFUSED(filch_spawn(w.sched, &actor_type, &newer.known, NULL), FILCH_EINVAL);

    /* The spawn options of an older version end after `args`. */
    filch_spawn_options older = FILCH_SPAWN_OPTIONS_INIT;
    memset(&older, 0xff, sizeof older);
    older.size = offsetof(filch_spawn_options, values);
    older.method = NULL;
    older.args = filch_ptr(&b);
    ok(filch_spawn(w.sched, &actor_type, &older, NULL));
    (void)fixture_tick(&w);
    before = fixture_stats(&w);
    same(before.alive, 3);

    older.size = 0;
    REFUSED(filch_spawn(w.sched, &actor_type, &older, NULL), FILCH_EINVAL);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(&b);
    opt.overflow = FILCH_OVERFLOW_STOP + 1;
    REFUSED(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    opt.overflow = 0;
    opt.spare = 1;
    REFUSED(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    opt.spare = 0;
    opt.mailbox_max = UINT32_MAX;
    REFUSED(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    opt.mailbox_max = 0;
    opt.mailbox_bytes = SIZE_MAX;
    REFUSED(filch_spawn(w.sched, &actor_type, &opt, NULL), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(stats_and_info_of_an_older_or_newer_header_are_filled_as_far_as_they_go)
{
    actor a = { .stage = 0 };
    begin_and_count();
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);

    struct {
        filch_stats   known;
        unsigned char later[16];
    } stats = { .known = FILCH_STATS_INIT };
    memset(stats.later, 0xee, sizeof stats.later);
    stats.known.size = sizeof stats;
    ok(filch_sched_stats(w.sched, &stats.known));
    same(stats.known.alive, 1);
    /* the library writes only the fields that it knows, and sets `size` to their size */
    same(stats.known.size, sizeof(filch_stats));
    for (size_t i = 0; i < sizeof stats.later; i++) same(stats.later[i], 0xee);

    memset(&stats.known, 0xee, sizeof stats.known);
    stats.known.size = offsetof(filch_stats, spawned);
    ok(filch_sched_stats(w.sched, &stats.known));
    same(stats.known.alive, 1);
    same(stats.known.spawned, UINT64_C(0xeeeeeeeeeeeeeeee));
    stats.known.size = 0;
    same(filch_sched_stats(w.sched, &stats.known), FILCH_EINVAL);

    struct {
        filch_info    known;
        unsigned char later[16];
    } info = { .known = { .size = sizeof info } };
    memset(info.later, 0xee, sizeof info.later);
    ok(filch_inspect(w.sched, a.pid, &info.known));
    same(info.known.state, FILCH_STATE_IDLE);
    for (size_t i = 0; i < sizeof info.later; i++) same(info.later[i], 0xee);
    memset(&info.known, 0xee, sizeof info.known);
    info.known.size = offsetof(filch_info, dropped);
    ok(filch_inspect(w.sched, a.pid, &info.known));
    assert_string_equal(info.known.name, "actor");
    same(info.known.dropped, UINT64_C(0xeeeeeeeeeeeeeeee));
    info.known.size = 0;
    same(filch_inspect(w.sched, a.pid, &info.known), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(a_report_that_is_too_small_stops_nothing)
{
    actor a = { .stage = 0 };
    begin_and_count();
    actor_start(&w, &a, play_idle);
    (void)fixture_tick(&w);
    before = fixture_stats(&w);
    filch_report report = FILCH_REPORT_INIT;
    report.size = 0;
    REFUSED(filch_sched_stop(w.sched, 0, &report), FILCH_EINVAL);
    /* a report smaller than the first version of filch_report */
    report.size = offsetof(filch_report, terminated) - 1;
    REFUSED(filch_sched_close(w.sched, 0, &report), FILCH_EINVAL);
    ok(filch_send(w.sched, a.pid, filch_int(1))); /* the scheduler is still open */

    struct {
        filch_report  known;
        unsigned char later[16];
    } newer = { .known = FILCH_REPORT_INIT };
    memset(newer.later, 0xee, sizeof newer.later);
    newer.known.size = sizeof newer;
    ok(filch_sched_close(w.sched, FILCH_SECONDS(60), &newer.known));
    same(newer.known.ended, 1);
    for (size_t i = 0; i < sizeof newer.later; i++) same(newer.later[i], 0xee);
    filch_report_free(&newer.known);
    filch_report_free(&newer.known);
    fixture_end(&w);
}

/* ---- the registry ---- */

TEST(a_registry_takes_each_id_once_and_none_while_in_use)
{
    filch_registry *registry = NULL;
    ok(filch_registry_create(&registry));
    same(filch_registry_add(registry, 0, never_called, NULL), FILCH_EINVAL);
    same(filch_registry_add(registry, FILCH_CMD_USER, NULL, NULL), FILCH_EINVAL);
    const uint32_t built_in[] = { FILCH_CMD_SEND,   FILCH_CMD_SLEEP,        FILCH_CMD_TIMER,
                                  FILCH_CMD_TICKER, FILCH_CMD_TIMER_CANCEL, FILCH_CMD_WORK };
    for (size_t i = 0; i < COUNT_OF(built_in); i++) {
        same(filch_registry_add(registry, built_in[i], never_called, NULL), FILCH_EEXISTS);
    }
    ok(filch_registry_add(registry, FILCH_CMD_USER - 1, never_called, NULL));
    for (uint32_t id = FILCH_CMD_USER; id < FILCH_CMD_USER + 1000; id++) {
        ok(filch_registry_add(registry, id, never_called, NULL));
    }
    ok(filch_registry_add(registry, UINT32_MAX, never_called, NULL));
    same(filch_registry_add(registry, FILCH_CMD_USER - 1, never_called, NULL), FILCH_EEXISTS);
    same(filch_registry_add(registry, FILCH_CMD_USER + 500, never_called, NULL), FILCH_EEXISTS);
    same(filch_registry_add(registry, UINT32_MAX, never_called, NULL), FILCH_EEXISTS);

    /* Two schedulers share the registry. Commands cannot be added while one of the schedulers exists. The last
     * scheduler that stops frees the registry. */
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    fixture other;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    fixture_begin_with(&other, FILCH_NO_WORKERS, opt);
    same(filch_registry_add(registry, 5000, never_called, NULL), FILCH_EFROZEN);
    fixture_end(&other);
    same(filch_registry_add(registry, 5000, never_called, NULL), FILCH_EFROZEN);
    filch_registry_destroy(registry);
    fixture_end(&w);
}

/* ---- malformed payloads ---- */

/* One payload of each malformed kind; no public function creates such payloads. */
static const struct {
    uint8_t kind, form, small;
} malformed[] = { { 255, 0, 0 },
                  { FILCH_KIND_BYTES + 1, 0, 0 },
                  { FILCH_KIND_TEXT, 0, 0 },
                  { FILCH_KIND_BYTES, 0, 0 },
                  { 0, 255, 0 },
                  { FILCH_KIND_BYTES, 9, 0 },
                  { FILCH_KIND_BYTES, 1, 25 },
                  { FILCH_KIND_INT, 1, 1 },
                  { FILCH_KIND_INT, 2, 0 },
                  { 255, 3, 0 },
                  { 255, 4, 0 },
                  { FILCH_KIND_BYTES, 3, 0 },
                  { FILCH_KIND_BYTES, 4, 0 } };

static filch_data bad_data(size_t i)
{
    filch_data data = { .kind = malformed[i].kind, .form = malformed[i].form, .small = malformed[i].small };
    return data;
}

static filch_err play_bad_payloads(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    for (size_t i = 0; i < COUNT_OF(malformed) + 2; i++) {
        filch_data bad = i < COUNT_OF(malformed)    ? bad_data(i)
                         : i == COUNT_OF(malformed) ? filch_bytes(NULL, 1)
                                                    : filch_move(NULL, 1, NULL);
        if (filch_yield(out, FILCH_CMD_USER, 1, bad) != FILCH_EINVAL) me->note = 10 + (int)i;
        if (filch_yield_send(out, 1, me->pid, bad) != FILCH_EINVAL) me->note = 100 + (int)i;
        if (filch_done(out, bad) != FILCH_EINVAL) me->note = 200 + (int)i;
        if (filch_upgrade(out, &actor_type, NULL, bad) != FILCH_EINVAL) me->note = 300 + (int)i;
    }
    return filch_idle(out);
}

static filch_err init_takes_anything(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)ctx, (void)method;
    (void)filch_kind_of(args);
    return FILCH_OK;
}

TEST(malformed_payloads_are_refused_everywhere)
{
    static const filch_type takes_anything = { .name = "any", .init = init_takes_anything, .step = step_never };
    actor                   a = { .stage = 0 };
    begin_and_count();
    actor_start(&w, &a, play_bad_payloads);
    (void)fixture_tick(&w);
    same(a.note, 0);
    before = fixture_stats(&w);
    same(before.yields, 0);
    for (size_t i = 0; i < COUNT_OF(malformed) + 2; i++) {
        filch_data bad = i < COUNT_OF(malformed)    ? bad_data(i)
                         : i == COUNT_OF(malformed) ? filch_bytes(NULL, 1)
                                                    : filch_move(NULL, 1, NULL);
        filch_data kept = filch_int(5);
        REFUSED(filch_send(w.sched, a.pid, bad), FILCH_EINVAL);
        filch_package package = { .to = a.pid, .data = bad };
        REFUSED(filch_deliver(w.sched, &package), FILCH_EINVAL);
        REFUSED(filch_keep(&bad, &kept), FILCH_EINVAL);
        same(filch_as_int(&kept), 5);
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.args = bad;
        REFUSED(filch_spawn(w.sched, &takes_anything, &opt, NULL), FILCH_EINVAL);
    }
    same(a.steps, 1);
    fixture_end(&w);
}

/* ---- payloads that are too large ---- */

#define PAYLOAD_MAX 100

static filch_receiver waiting_for;

static filch_err remember_receiver(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    waiting_for = receiver;
    return FILCH_OK;
}

static filch_err play_too_big(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const char big[PAYLOAD_MAX + 1];
    if (has_cancel(events, count)) return filch_done(out, filch_bytes(big, sizeof big));
    if (me->stage++ > 0) return filch_idle(out);
    if (filch_yield(out, FILCH_CMD_USER, 1, filch_bytes(big, sizeof big)) != FILCH_ETOOBIG) me->note = 1;
    if (filch_yield_send(out, 1, me->pid, filch_bytes(big, sizeof big)) != FILCH_ETOOBIG) me->note = 2;
    if (filch_yield(out, FILCH_CMD_USER, 1, filch_bytes(big, PAYLOAD_MAX)) != FILCH_OK) me->note = 3;
    return filch_idle(out);
}

TEST(a_payload_over_payload_max_is_refused_everywhere)
{
    static char     big[PAYLOAD_MAX + 1];
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, remember_receiver, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    opt.payload_max = PAYLOAD_MAX;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(registry);
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_too_big);
    (void)fixture_tick(&w);
    same(a.note, 0);
    before = fixture_stats(&w);
    same(before.yields, 1);

    REFUSED(filch_send(w.sched, a.pid, filch_bytes(big, sizeof big)), FILCH_ETOOBIG);
    REFUSED(filch_send(w.sched, a.pid, filch_move(big, sizeof big, NULL)), FILCH_ETOOBIG); /* the caller still owns
                                                                                            * `big` */
    filch_data shared;
    char      *heap = malloc(sizeof big);
    ok(filch_share(heap, sizeof big, NULL, NULL, &shared));
    REFUSED(filch_send(w.sched, a.pid, shared), FILCH_ETOOBIG);
    filch_drop(&shared);
    REFUSED(filch_complete(waiting_for, 1, filch_bytes(big, sizeof big), FILCH_OK), FILCH_ETOOBIG);
    /* payload_max does not apply to args: init reads them in place, and they are not sent. */
    static const filch_type takes_anything = { .name = "any", .init = init_takes_anything, .step = step_never };
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.args = filch_bytes(big, sizeof big);
    ok(filch_spawn(w.sched, &takes_anything, &spawn, NULL));

    /* the yield is still outstanding, because its completion with more than PAYLOAD_MAX bytes was refused */
    ok(filch_complete(waiting_for, 1, filch_bytes(big, PAYLOAD_MAX), FILCH_OK));
    ok(filch_send(w.sched, a.pid, filch_bytes(big, PAYLOAD_MAX)));
    (void)fixture_tick(&w);
    same(a.seen_count, 2);
    ok(filch_cancel(w.sched, a.pid));
    /* filch_done() refused the payload with FILCH_ETOOBIG, and the step returned this error */
    actor_ends(&w, &a, FILCH_ETOOBIG);
    fixture_end(&w);
}

/* ---- calls from a wrong thread, or at a wrong time ---- */

static filch_out *kept_out;

static filch_err play_wrong_moment(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    kept_out = out;
    if (filch_tick(filch_out_sched(out), 0, NULL) != FILCH_ESTATE) me->note = 1;
    if (filch_sched_stop(filch_out_sched(out), 0, NULL) != FILCH_ESTATE) me->note = 2;
    if (filch_sched_close(filch_out_sched(out), 0, NULL) != FILCH_ESTATE) me->note = 3;
    return play_idle(me, events, count, out);
}

TEST(a_step_can_neither_tick_nor_stop_its_own_scheduler)
{
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 1; workers += 2) {
        actor a = { .stage = 0 };
        fixture_begin(&w, workers);
        actor_start(&w, &a, play_wrong_moment);
        ok(filch_cancel(w.sched, a.pid));
        actor_ends(&w, &a, FILCH_OK);
        same(a.note, 0);
        fixture_end(&w);
    }
}

TEST(the_output_of_a_step_is_refused_outside_of_it)
{
    actor a = { .stage = 0 };
    begin_and_count();
    actor_start(&w, &a, play_wrong_moment);
    (void)fixture_tick(&w);
    before = fixture_stats(&w);
    REFUSED(filch_yield(kept_out, FILCH_CMD_USER, 1, filch_none()), FILCH_ESTATE);
    REFUSED(filch_yield_sleep(kept_out, 1, 1), FILCH_ESTATE);
    REFUSED(filch_upgrade(kept_out, &actor_type, NULL, filch_ptr(&a)), FILCH_ESTATE);
    same(filch_should_yield(kept_out), 0);
    same(a.inits, 1);
    fixture_end(&w);
}

TEST(a_scheduler_with_workers_is_not_ticked)
{
    fixture_begin(&w, 1);
    same(filch_tick(w.sched, 0, NULL), FILCH_ESTATE);
    same(filch_wake_fd(w.sched), -1);
    assert_true(filch_next_timeout(w.sched) == FILCH_FOREVER);
    fixture_end(&w);
}

/* Synchronises the step of play_long with another thread. The step sets 1, then the other thread makes its calls and
 * sets 2, then the step returns. */
static FLI_ATOMIC(int) turn;

static filch_err play_long(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        fli_store_rel(&turn, 1);
        while (fli_load_acq(&turn) != 2) yield_slice();
    }
    return play_idle(me, events, count, out);
}

static void tick_once(void *arg)
{
    *(filch_err *)arg = filch_tick(w.sched, 1, NULL);
}

TEST(a_second_thread_that_ticks_or_stops_gets_ebusy)
{
    actor      a = { .stage = 0 };
    fli_thread thread;
    filch_err  ticked = FILCH_EUSER;
    fli_store_rel(&turn, 0);
    begin_and_count();
    actor_start(&w, &a, play_long);
    ok(fli_thread_start(&thread, "ticker", tick_once, &ticked));
    while (fli_load_acq(&turn) != 1) yield_slice();
    same(filch_tick(w.sched, 0, NULL), FILCH_EBUSY);
    same(filch_sched_stop(w.sched, 0, NULL), FILCH_EBUSY);
    filch_pid           pid;
    actor               b = { .play = play_idle };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(&b);
    ok(filch_spawn(w.sched, &actor_type, &opt, &pid)); /* the scheduler is still open, because the stop was refused */
    fli_store_rel(&turn, 2);
    fli_thread_join(&thread);
    same(ticked, FILCH_OK);
    fixture_end(&w);
}

TEST(calls_on_a_closed_scheduler_return_eclosed)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, remember_receiver, NULL));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    opt.payload_max = PAYLOAD_MAX;
    fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(registry);
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_too_big); /* leaves a yield outstanding */
    (void)fixture_tick(&w);
    ok(filch_terminate(w.sched, a.pid));
    actor_ends(&w, &a, FILCH_EKILLED);
    ok(filch_sched_close(w.sched, FILCH_SECONDS(60), NULL));
    before = fixture_stats(&w);

    filch_package       package = { .to = a.pid };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.args = filch_ptr(&a);
    REFUSED(filch_spawn(w.sched, &actor_type, &spawn, NULL), FILCH_ECLOSED);
    REFUSED(filch_send(w.sched, a.pid, filch_none()), FILCH_ECLOSED);
    REFUSED(filch_deliver(w.sched, &package), FILCH_ECLOSED);
    REFUSED(filch_complete(waiting_for, 1, filch_none(), FILCH_OK), FILCH_ECLOSED);
    REFUSED(filch_tick(w.sched, 0, NULL), FILCH_ECLOSED);
    REFUSED(filch_cancel(w.sched, a.pid), FILCH_EDEAD);
    REFUSED(filch_terminate(w.sched, a.pid), FILCH_EDEAD);
    assert_true(filch_next_timeout(w.sched) == FILCH_FOREVER);
    ok(filch_sched_close(w.sched, 0, NULL)); /* a second close is allowed */
    fixture_end(&w);
}

/* ---- out of memory ---- */

static filch_err play_no_memory(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char big[PAYLOAD_MAX];
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ > 0) return filch_idle(out);
    fixture *fx = me->user;
    fli_store_rlx(&fx->deny, true);
    if (filch_yield(out, FILCH_CMD_USER, 1, filch_bytes(big, sizeof big)) != FILCH_ENOMEM) me->note = 1;
    if (filch_yield_send(out, 1, me->pid, filch_move(big, sizeof big, NULL)) != FILCH_ENOMEM) me->note = 2;
    if (filch_done(out, filch_bytes(big, sizeof big)) != FILCH_ENOMEM) me->note = 3;
    fli_store_rlx(&fx->deny, false);
    return filch_idle(out);
}

TEST(without_memory_calls_return_enomem_and_nothing_is_lost)
{
    static const filch_type large = { .size = 1 << 20, .step = step_never };
    static char             big[PAYLOAD_MAX];
    actor                   a = { .user = &w };
    begin_and_count();
    actor_start(&w, &a, play_no_memory);
    (void)fixture_tick(&w);
    same(a.note, 0);
    before = fixture_stats(&w);
    same(before.yields, 0);
    fli_store_rlx(&w.deny, true);
    REFUSED(filch_send(w.sched, a.pid, filch_bytes(big, sizeof big)), FILCH_ENOMEM);
    REFUSED(filch_send(w.sched, a.pid, filch_move(big, sizeof big, NULL)), FILCH_ENOMEM);
    REFUSED(filch_spawn(w.sched, &large, NULL, NULL), FILCH_ENOMEM);
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.alloc = fixture_alloc;
    opt.alloc_user = &w;
    filch_sched *none = NULL;
    REFUSED(filch_sched_create(&none, &opt), FILCH_ENOMEM);
    ok(filch_cancel(w.sched, a.pid)); /* filch_cancel() needs no memory */
    fli_store_rlx(&w.deny, false);
    actor_ends(&w, &a, FILCH_OK);
    fixture_end(&w);
}

/* ---- texts ---- */

TEST(every_error_code_has_a_name_and_a_text)
{
#define ROW(name, value, text)                        \
    same(name, value);                                \
    assert_string_equal(filch_err_name(name), #name); \
    assert_string_equal(filch_err_text(name), text);
    FILCH_ERR_MAP(ROW)
#undef ROW
    const filch_err unknown[] = { FILCH_EACCESS + 500, FILCH_EUSER - 1, -1, INT32_MIN };
    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        assert_string_equal(filch_err_text(unknown[i]), "unknown error");
        assert_non_null(filch_err_name(unknown[i]));
    }
    const filch_err yours[] = { FILCH_EUSER, FILCH_EUSER + 1, INT32_MAX };
    for (size_t i = 0; i < COUNT_OF(yours); i++) {
        assert_string_equal(filch_err_text(yours[i]), "application error");
        assert_non_null(filch_err_name(yours[i]));
    }
}

TEST(the_library_version_is_the_version_of_the_header)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", FILCH_VERSION_MAJOR, FILCH_VERSION_MINOR, FILCH_VERSION_PATCH);
    assert_string_equal(filch_version(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_refused_by_every_function_that_needs_an_object),
        cmocka_unit_test(reading_null_reads_an_empty_payload),
        cmocka_unit_test(invalid_ended_and_foreign_pids_are_told_apart),
        cmocka_unit_test(options_of_an_older_or_newer_header_are_understood),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(every_option_may_be_extreme),
        cmocka_unit_test(spawn_options_of_an_older_or_newer_header_are_understood),
        cmocka_unit_test(stats_and_info_of_an_older_or_newer_header_are_filled_as_far_as_they_go),
        cmocka_unit_test(a_report_that_is_too_small_stops_nothing),
        cmocka_unit_test(a_registry_takes_each_id_once_and_none_while_in_use),
        cmocka_unit_test(malformed_payloads_are_refused_everywhere),
        cmocka_unit_test(a_payload_over_payload_max_is_refused_everywhere),
        cmocka_unit_test(a_step_can_neither_tick_nor_stop_its_own_scheduler),
        cmocka_unit_test(the_output_of_a_step_is_refused_outside_of_it),
        cmocka_unit_test(a_scheduler_with_workers_is_not_ticked),
        cmocka_unit_test(a_second_thread_that_ticks_or_stops_gets_ebusy),
        cmocka_unit_test(calls_on_a_closed_scheduler_return_eclosed),
        cmocka_unit_test(without_memory_calls_return_enomem_and_nothing_is_lost),
        cmocka_unit_test(every_error_code_has_a_name_and_a_text),
        cmocka_unit_test(the_library_version_is_the_version_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
