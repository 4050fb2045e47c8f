/* sim_test.c - filch_sim_*: equal seeds give equal runs; bugs are found, faults happen, and what cannot be simulated is
 * refused. This program also runs schedulers with threads, because simulation needs no build switch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <filch.h>

#include "port/thread.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

#define COMMAND_SLOW FILCH_CMD_USER        /* a command that another thread completes later */
#define COMMAND_NOW (FILCH_CMD_USER + 1)   /* a command that its handler completes */
#define COMMAND_NEVER (FILCH_CMD_USER + 2) /* a command that is never completed: its handler keeps the receiver */

/* ---- players: processes that run a function of the test ---- */

struct player;
typedef filch_err (*play_fn)(struct player *me, const filch_event *events, size_t count, filch_out *out);

typedef struct player {
    play_fn play;
    void   *stage; /* state of the test, shared by all its players */
    int64_t role;
    int64_t state;
} player;

static filch_err player_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    memcpy(self, filch_raw(args), sizeof(player));
    return FILCH_OK;
}

static filch_err player_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    player *me = self;
    return me->play(me, events, count, out);
}

static const filch_type player_type = {
    .name = "player", .size = sizeof(player), .init = player_init, .step = player_step
};

static filch_err enter(filch_sched *sched, play_fn play, void *stage, int64_t role, filch_pid *pid)
{
    player              new_one = { .play = play, .stage = stage, .role = role };
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_bytes(&new_one, sizeof new_one);
    return filch_spawn(sched, &player_type, &options, pid);
}

static filch_sched *sched_of(filch_out *out)
{
    return filch_out_sched(out);
}

static bool is_cancel(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL;
}

static filch_sim_report run(const filch_sim_options *options, filch_sim_fn scenario, void *user)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(options, scenario, user, &report));
    assert_non_null(report.chart);
    same(report.runs, 1);
    return report;
}

static filch_sim_report sweep(const filch_sim_options *options, uint64_t count, filch_sim_fn scenario, void *user)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_sweep(options, 1, count, scenario, user, &report));
    return report;
}

/* Runs a simulation, and checks that it ends with `verdict` and that the text of the report contains `words`. */
static void expect(const filch_sim_options *options, filch_sim_fn scenario, void *user, filch_sim_verdict verdict,
                   const char *words)
{
    filch_sim_report report = run(options, scenario, user);
    if (report.verdict != (int32_t)verdict || strstr(report.text, words) == NULL) {
        fail_msg("verdict %d, \"%s\"\n%s", report.verdict, report.text, report.chart);
    }
    filch_sim_report_free(&report);
}

/* ---- a market: a mixed workload ---- */

#define TRADERS 6
#define ROUNDS 20

typedef struct market {
    filch_registry *registry;
    filch_pid       traders[TRADERS], hall;
    int64_t         next[TRADERS]; /* for each trader: the number that the hall expects in its next message */
    int64_t         received, sent;
    int64_t         answers, errors, failed_sends;
    int64_t         first_failure; /* the first unexpected error code */
    bool            disorder;
} market;

typedef struct slow_answer {
    filch_receiver receiver;
    filch_err      outcome;
} slow_answer;

static void complete_slowly(filch_sched *sched, void *arg)
{
    slow_answer *a = arg;
    (void)sched;
    a->outcome = filch_complete(a->receiver, a->receiver.tag, filch_int(7), FILCH_OK);
    free(a);
}

static filch_err on_slow(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    slow_answer *a = malloc(sizeof *a);
    if (a == NULL) return FILCH_ENOMEM;
    a->receiver = receiver;
    filch_sched *sched = filch_ctx_sched(command->ctx);
    filch_err    err = filch_sim_later(sched, filch_sim_draw(sched, 100000), complete_slowly, a);
    if (err != FILCH_OK) free(a);
    return err;
}

static filch_err on_now(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    return filch_complete(receiver, tag, filch_int(8), FILCH_OK);
}

static filch_err on_never(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    (void)tag;
    (void)receiver;
    return FILCH_OK;
}

static filch_err think(void *arg, filch_data *result)
{
    market *m = arg;
    *result = filch_int(m->received);
    return FILCH_OK;
}

static filch_err hall_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    market *m = me->stage;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        int trader = 0, number = 0;
        m->received++;
        if (sscanf(filch_text(&events[i].data), "trader %d of the north side, number %d", &trader, &number) != 2) {
            (void)filch_sim_fail(sched_of(out), "garbled");
            continue;
        }
        if (number < m->next[trader]) m->disorder = true;
        m->next[trader] = number + 1;
    }
    return filch_idle(out);
}

/* In each round, the trader sends a long message to the hall and makes a yield of a random kind. */
static filch_err trader_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    market *m = me->stage;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        m->answers++;
        if (events[i].error != FILCH_OK) m->errors++;
        if (events[i].error != FILCH_OK && m->first_failure == 0) m->first_failure = events[i].error;
    }
    if (me->state == ROUNDS) return filch_done(out, filch_int(me->role));
    char text[80];
    snprintf(text, sizeof text, "trader %d of the north side, number %d", (int)me->role, (int)me->state++);
    if (filch_send(sched_of(out), m->hall, filch_str(text)) == FILCH_OK) m->sent++;
    else m->failed_sends++;
    filch_err err;
    switch ((me->role + me->state) % 5) {
    case 0: err = filch_yield_sleep(out, 1, FILCH_MICROSECONDS(300)); break;
    case 1: err = filch_yield(out, COMMAND_SLOW, 2, filch_none()); break;
    case 2: err = filch_yield(out, COMMAND_NOW, 3, filch_none()); break;
    case 3: err = filch_yield_work(out, 4, think, m); break;
    default: err = filch_yield_send(out, 5, filch_ctx_self(filch_out_ctx(out)), filch_int(1)); break;
    }
    return err == FILCH_OK ? filch_wait(out) : filch_continue(out);
}

static filch_err open_market(filch_sched *sched, void *user)
{
    if (!filch_sim_active(sched) || filch_sim_active(NULL)) return FILCH_EINVAL;
    market         *m = user;
    filch_registry *registry = m->registry;
    *m = (market){ .registry = registry };
    filch_err err = enter(sched, hall_play, m, 0, &m->hall);
    for (int i = 0; i < TRADERS && err == FILCH_OK; i++) err = enter(sched, trader_play, m, i, &m->traders[i]);
    return err;
}

static filch_err close_market(filch_sched *sched, void *user)
{
    market *m = user;
    if (m->disorder) (void)filch_sim_fail(sched, "messages of one sender overtook each other");
    if (m->received != m->sent) (void)filch_sim_fail(sched, "messages were lost or doubled");
    return FILCH_OK;
}

static void market_begin(market *m)
{
    *m = (market){ 0 };
    ok(filch_registry_create(&m->registry));
    ok(filch_registry_add(m->registry, COMMAND_SLOW, on_slow, NULL));
    ok(filch_registry_add(m->registry, COMMAND_NOW, on_now, NULL));
    ok(filch_registry_add(m->registry, COMMAND_NEVER, on_never, NULL));
}

static filch_sim_options market_options(const filch_options *sched)
{
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.sched = sched;
    options.check = close_market;
    return options;
}

static void all_faults(filch_sim_options *options)
{
    options->no_memory = options->handler_error = options->late_answer = options->double_answer = 50;
    options->stall = options->clock_jump = 5;
}

/* ---- equal runs ---- */

TEST(the_same_seed_gives_the_same_run)
{
    market m;
    market_begin(&m);
    filch_options     sched = { .size = sizeof sched, .registry = m.registry };
    filch_sim_options options = market_options(&sched);
    all_faults(&options);
    options.chart_events = 2000;
    for (options.seed = 1; options.seed <= 20; options.seed++) {
        filch_sim_report a = run(&options, open_market, &m), b = run(&options, open_market, &m);
        same(a.hash, b.hash);
        same(a.steps, b.steps);
        same(a.time_ns, b.time_ns);
        same(a.seed, options.seed);
        assert_string_equal(a.chart, b.chart);
        assert_string_equal(a.text, b.text);
        filch_sim_report_free(&a);
        filch_sim_report_free(&b);
        assert_null(a.chart);
    }
    filch_registry_destroy(m.registry);
}

TEST(different_seeds_give_different_runs)
{
    enum { RUNS = 50 };
    market m;
    market_begin(&m);
    filch_options     sched = { .size = sizeof sched, .registry = m.registry };
    filch_sim_options options = market_options(&sched);
    uint64_t          hashes[RUNS];
    for (options.seed = 0; options.seed < RUNS; options.seed++) {
        filch_sim_report report = run(&options, open_market, &m);
        hashes[options.seed] = report.hash;
        for (uint64_t i = 0; i < options.seed; i++) assert_true(hashes[i] != report.hash);
        filch_sim_report_free(&report);
    }
    filch_registry_destroy(m.registry);
}

static filch_err over_at_once(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    return filch_done(out, filch_none());
}

static filch_err spawn_long_names(filch_sched *sched, void *user)
{
    static const filch_type types[] = { { .name = "sixteen_letters_", .step = over_at_once },
                                        { .name = "basket_test.lua:15", .step = over_at_once },
                                        { .name = "basket_test.lua:18", .step = over_at_once } };
    (void)user;
    for (int i = 0; i < 3; i++) ok(filch_spawn(sched, &types[i], NULL, NULL));
    return FILCH_OK;
}

TEST(the_chart_shows_both_ends_of_a_long_name)
{
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  r = run(&options, spawn_long_names, NULL);
    assert_non_null(strstr(r.chart, "sixteen_letters_#1"));
    assert_non_null(strstr(r.chart, "basket_...lua:15#2"));
    assert_non_null(strstr(r.chart, "basket_...lua:18#3"));
    filch_sim_report_free(&r);
}

TEST(the_hash_covers_events_that_the_chart_leaves_out)
{
    market m;
    market_begin(&m);
    filch_options     sched = { .size = sizeof sched, .registry = m.registry };
    filch_sim_options options = market_options(&sched);
    options.chart_events = 1;
    filch_sim_report a = run(&options, open_market, &m);
    options.chart_events = 1000;
    filch_sim_report b = run(&options, open_market, &m);
    same(a.hash, b.hash);
    assert_true(strlen(a.chart) < strlen(b.chart));
    filch_sim_report_free(&a);
    filch_sim_report_free(&b);
    filch_registry_destroy(m.registry);
}

TEST(pids_are_the_same_each_time)
{
    market m;
    market_begin(&m);
    filch_options     sched = { .size = sizeof sched, .registry = m.registry, .node = 77, .seed = 3 };
    filch_sim_options options = market_options(&sched);
    filch_pid         before[TRADERS];
    for (int i = 0; i < 2; i++) {
        filch_sim_report report = run(&options, open_market, &m);
        if (i > 0) assert_memory_equal(before, m.traders, sizeof before);
        memcpy(before, m.traders, sizeof before);
        same(before[0].node, 1);
        filch_sim_report_free(&report);
    }
    filch_registry_destroy(m.registry);
}

/* ---- nothing is lost ---- */

TEST(no_message_is_lost_under_any_fault)
{
    static const uint32_t workers[] = { 1, 2, 4, 17, 64 };
    market                m;
    market_begin(&m);
    test_alloc    alloc = { 0 };
    filch_options sched = {
        .size = sizeof sched, .registry = m.registry, .alloc = test_alloc_fn, .alloc_user = &alloc
    };
    filch_sim_options options = market_options(&sched);
    for (int faults = 0; faults < 2; faults++) {
        if (faults > 0) all_faults(&options);
        for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
            options.workers = workers[i];
            filch_sim_report report = sweep(&options, scaled(400), open_market, &m);
            if (report.verdict != FILCH_SIM_OK) {
                fail_msg("%u workers, seed %d: %s\n%s", workers[i], (int)report.seed, report.text, report.chart);
            }
            filch_sim_report_free(&report);
            test_alloc_balanced(&alloc);
        }
    }
    filch_registry_destroy(m.registry);
}

TEST(the_same_processes_run_on_threads)
{
    market m;
    market_begin(&m);
    filch_options options = { .size = sizeof options, .registry = m.registry, .workers = 2 };
    filch_sched  *sched;
    ok(filch_sched_create(&sched, &options));
    m.hall = (filch_pid){ 0, 0 };
    ok(enter(sched, hall_play, &m, 0, &m.hall));
    char text[80];
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "trader 1 of the north side, number %d", i);
        ok(filch_send(sched, m.hall, filch_str(text)));
    }
    /* filch_sim_fail() and the other functions of simulations are refused outside of a simulation, and do nothing. */
    same(filch_sim_fail(sched, "no"), FILCH_ESTATE);
    same(filch_sim_note(sched, "no"), FILCH_ESTATE);
    same(filch_sim_later(sched, 0, complete_slowly, NULL), FILCH_ESTATE);
    same(filch_sim_draw(sched, 100), 0);
    uint64_t before = fli_clock_ns(), now = filch_sim_now(sched);
    assert_true(before <= now && now <= fli_clock_ns());
    filch_stats stats = FILCH_STATS_INIT;
    do {
        ok(filch_sched_stats(sched, &stats));
    } while (stats.steps == 0);
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    filch_registry_destroy(m.registry);
}

/* ---- chaos: processes that make random calls of all kinds, chosen by the seed ---- */

#define CHAOS_PIDS 32

typedef struct chaos {
    filch_pid pids[CHAOS_PIDS];
    int       begun, ended;
} chaos;

static filch_err chaos_play(player *me, const filch_event *events, size_t count, filch_out *out);
static filch_err chaos_step(void *self, const filch_event *events, size_t count, filch_out *out);

static void on_exit_of_chaos(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    chaos *c = user;
    (void)pid;
    (void)error;
    (void)result;
    c->ended++;
}

static const filch_type chaos_type = {
    .name = "changed", .size = sizeof(player), .init = player_init, .step = chaos_step
};

static void chaos_enter(filch_sched *sched, chaos *c)
{
    player              new_one = { .play = chaos_play, .stage = c };
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_bytes(&new_one, sizeof new_one);
    options.on_exit = on_exit_of_chaos;
    options.on_exit_user = c;
    options.mailbox_max = filch_sim_draw(sched, 4);
    options.overflow = filch_sim_draw(sched, 5);
    filch_pid pid;
    if (c->begun - c->ended >= 20 || filch_spawn(sched, &player_type, &options, &pid) != FILCH_OK) return;
    c->begun++;
    c->pids[filch_sim_draw(sched, CHAOS_PIDS)] = pid;
}

static void chaos_act(chaos *c, filch_out *out)
{
    filch_sched *sched = sched_of(out);
    filch_pid    other = c->pids[filch_sim_draw(sched, CHAOS_PIDS)];
    uint64_t     tag = filch_sim_draw(sched, 5), span_ns = filch_sim_draw(sched, 1000000) + 1;
    filch_data   text = filch_str("a text that is too long to fit into a node");
    switch (filch_sim_draw(sched, 14)) {
    case 0: (void)!filch_send(sched, other, filch_int(1)); break;
    case 1: (void)!filch_send(sched, other, text); break;
    case 2: (void)!filch_yield_send(out, tag, other, text); break;
    case 3: (void)!filch_yield_sleep(out, tag, span_ns); break;
    case 4: (void)!filch_yield_timer(out, tag, span_ns); break;
    case 5: (void)!filch_yield_ticker(out, tag, span_ns); break;
    case 6: (void)!filch_yield_timer_cancel(out, tag, (int64_t)((1ull << 32) | (tag + 1))); break;
    case 7: (void)!filch_yield(out, COMMAND_SLOW, tag, text); break;
    case 8: (void)!filch_yield(out, COMMAND_NEVER, tag, text); break;
    case 9: (void)!filch_yield(out, COMMAND_NEVER + 1, tag, filch_none()); break;
    case 10: (void)!filch_yield(out, COMMAND_NOW, tag, filch_none()); break;
    case 11: chaos_enter(sched, c); break;
    case 12: (void)!filch_cancel(sched, other); break;
    default:
        if (tag == 0) (void)!filch_terminate(sched, other);
        break;
    }
}

static filch_err chaos_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    chaos       *c = me->stage;
    filch_sched *sched = sched_of(out);
    if (is_cancel(events, count) && filch_sim_draw(sched, 3) > 0) return filch_done(out, filch_none());
    for (uint32_t n = filch_sim_draw(sched, 4); n > 0; n--) chaos_act(c, out);
    switch (filch_sim_draw(sched, 40)) {
    case 0: return filch_done(out, filch_str("a result that is too long to fit into a node"));
    case 1: return FILCH_EUSER;
    case 2: return filch_upgrade(out, &chaos_type, NULL, filch_bytes(me, sizeof *me)) == FILCH_OK ? 0 : FILCH_EUSER;
    case 3: return FILCH_OK; /* the step returns without choosing a status */
    default: break;
    }
    uint32_t status = filch_sim_draw(sched, 10);
    if (status == 0) return filch_continue(out);
    return status < 4 ? filch_wait(out) : filch_idle(out);
}

static filch_err chaos_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    return player_step(self, events, count, out);
}

static filch_err start_chaos(filch_sched *sched, void *user)
{
    chaos *c = user;
    *c = (chaos){ .begun = 0 };
    for (int i = 0; i < 12; i++) chaos_enter(sched, c);
    return FILCH_OK;
}

TEST(all_faults_together_are_survived_and_repeat_with_the_seed)
{
    chaos  c;
    market m;
    market_begin(&m);
    test_alloc    alloc = { 0 };
    filch_options sched = {
        .size = sizeof sched, .registry = m.registry, .alloc = test_alloc_fn, .alloc_user = &alloc
    };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.sched = &sched;
    options.blocked_ok = 1;
    options.time_max_ns = FILCH_MILLISECONDS(20);
    all_faults(&options);
    uint64_t seeds = scaled(1000), interrupted = 0;
    for (options.seed = 1; options.seed <= seeds; options.seed++) {
        options.workers = 1 + (uint32_t)options.seed % 8;
        options.no_memory = options.seed % 2 == 0 ? 0 : 20;
        options.jump_ns = FILCH_MILLISECONDS(2);
        filch_sim_report a = run(&options, start_chaos, &c);
        if (a.verdict != FILCH_SIM_OK) fail_msg("seed %d: %s\n%s", (int)options.seed, a.text, a.chart);
        same(c.begun, c.ended);
        filch_sim_report b = run(&options, start_chaos, &c);
        same(a.hash, b.hash);
        assert_string_equal(a.chart, b.chart);
        interrupted += a.interrupted;
        filch_sim_report_free(&a);
        filch_sim_report_free(&b);
        test_alloc_balanced(&alloc);
    }
    assert_true(interrupted > 0);
    filch_registry_destroy(m.registry);
}

/* ---- bugs are found ---- */

/* Two clients increment a counter of a server by reading it and writing it back, so an increment can get lost. */
typedef struct counter {
    filch_pid server, clients[2];
    int64_t   value;
    bool      fixed;
} counter;

static filch_err counter_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    counter *c = me->stage;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (filch_kind_of(&events[i].data) == FILCH_KIND_NONE) {
            if (filch_send(sched_of(out), events[i].from, filch_int(c->value))) return FILCH_EFULL;
        } else if (c->fixed) {
            c->value += 1;
        } else {
            c->value = filch_as_int(&events[i].data);
        }
    }
    return filch_idle(out);
}

static filch_err client_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    counter   *c = me->stage;
    filch_data request = filch_none();
    filch_err  err;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    if (me->state++ == 0) {
        /* The clients sleep for times that differ by 5 ms, so that usually one client has finished when the other
         * begins. */
        err = filch_yield_sleep(out, 0, FILCH_MILLISECONDS(1 + 5 * me->role));
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    if (events[0].type == FILCH_EVENT_MESSAGE) {
        err = filch_send(sched_of(out), c->server, filch_int(filch_as_int(&events[0].data) + 1));
        return err == FILCH_OK ? filch_done(out, filch_none()) : err;
    }
    err = filch_send(sched_of(out), c->server, request);
    return err == FILCH_OK ? filch_idle(out) : err;
}

static filch_err start_counting(filch_sched *sched, void *user)
{
    counter *c = user;
    c->value = 0;
    ok(enter(sched, counter_play, c, 0, &c->server));
    ok(enter(sched, client_play, c, 0, &c->clients[0]));
    ok(enter(sched, client_play, c, 1, &c->clients[1]));
    return FILCH_OK;
}

static filch_err count_is_right(filch_sched *sched, void *user)
{
    counter *c = user;
    return c->value == 2 ? FILCH_OK : filch_sim_fail(sched, "an update was lost");
}

TEST(a_lost_update_is_found_replayed_and_absent_once_fixed)
{
    counter           c = { .fixed = false };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.check = count_is_right;
    options.stall = options.clock_jump = 20;
    options.jump_ns = FILCH_MILLISECONDS(10);
    filch_sim_report found = sweep(&options, 300, start_counting, &c);
    same(found.verdict, FILCH_SIM_FAILED);
    assert_string_equal(found.text, "an update was lost");
    assert_true(found.runs > 1 && found.seed == found.runs);
    assert_non_null(strstr(found.chart, "VIOLATION: an update was lost"));
    options.seed = found.seed;
    filch_sim_report again = run(&options, start_counting, &c);
    same(again.hash, found.hash);
    assert_string_equal(again.chart, found.chart);
    filch_sim_report_free(&found);
    filch_sim_report_free(&again);
    c.fixed = true;
    filch_sim_report cured = sweep(&options, 300, start_counting, &c);
    same(cured.verdict, FILCH_SIM_OK);
    same(cured.runs, 300);
    filch_sim_report_free(&cured);
}

/* One process sends a message to `middle` and to `last`. `middle` forwards the message to `last`, which wrongly assumes
 * that the direct message has arrived before the forwarded one. */
typedef struct relay {
    filch_pid middle, last;
    int       arrivals;
} relay;

static filch_err relay_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    relay *g = me->stage;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    if (me->role == 0) {
        if (filch_send(sched_of(out), g->middle, filch_none()) || filch_send(sched_of(out), g->last, filch_int(1))) {
            return FILCH_EFULL;
        }
        return filch_done(out, filch_none());
    }
    for (size_t i = 0; i < count; i++) {
        if (me->role == 1 && filch_send(sched_of(out), g->last, filch_int(2))) return FILCH_EFULL;
        if (me->role == 2 && filch_as_int(&events[i].data) == 2 && g->arrivals == 0) {
            (void)filch_sim_fail(sched_of(out), "the second hand was faster");
        }
        if (me->role == 2) g->arrivals++;
    }
    return filch_idle(out);
}

static filch_err start_relay(filch_sched *sched, void *user)
{
    relay *g = user;
    g->arrivals = 0;
    ok(enter(sched, relay_play, g, 1, &g->middle));
    ok(enter(sched, relay_play, g, 2, &g->last));
    ok(enter(sched, relay_play, g, 0, NULL));
    return FILCH_OK;
}

TEST(a_step_is_interrupted_between_two_sends)
{
    relay             g = { .arrivals = 0 };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  found = sweep(&options, 300, start_relay, &g);
    same(found.verdict, FILCH_SIM_FAILED);
    assert_true(found.interrupted > 0);
    filch_sim_report_free(&found);
    options.whole_steps = 1;
    filch_sim_report whole = sweep(&options, 300, start_relay, &g);
    same(whole.verdict, FILCH_SIM_OK);
    same(whole.interrupted, 0);
    filch_sim_report_free(&whole);
}

/* ---- verdicts ---- */

static filch_err idle_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return is_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err never_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    return filch_yield(out, COMMAND_NEVER, 42, filch_none()) ? FILCH_ENOMEM : filch_wait(out);
}

static filch_err start_never(filch_sched *sched, void *user)
{
    ok(enter(sched, idle_play, user, 0, NULL));
    return enter(sched, never_play, user, 0, NULL);
}

TEST(a_process_that_waits_for_ever_is_a_violation)
{
    market m;
    market_begin(&m);
    filch_options     sched = { .size = sizeof sched, .registry = m.registry };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.sched = &sched;
    expect(&options, start_never, NULL, FILCH_SIM_BLOCKED, "player#2 waits for ever: command 258, tag 42");
    options.blocked_ok = 1;
    expect(&options, start_never, NULL, FILCH_SIM_OK, "");
    filch_registry_destroy(m.registry);
}

static filch_err busy_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    (void)events;
    (void)count;
    return filch_continue(out);
}

static filch_err start_busy(filch_sched *sched, void *user)
{
    return enter(sched, busy_play, user, 0, NULL);
}

TEST(a_run_that_does_not_end_is_stopped)
{
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.steps_max = 1000;
    filch_sim_report report = run(&options, start_busy, NULL);
    same(report.verdict, FILCH_SIM_ENDLESS);
    same(report.steps, 1000);
    filch_sim_report_free(&report);
    /* A run that reaches its time limit is not a violation. A process that ignores the cancel is killed. */
    options.steps_max = 0;
    options.time_max_ns = options.stop_ns = FILCH_MILLISECONDS(1);
    report = run(&options, start_busy, NULL);
    same(report.verdict, FILCH_SIM_OK);
    same(report.forced, 1);
    assert_true(report.time_ns >= FILCH_MILLISECONDS(1) && report.time_ns < FILCH_MILLISECONDS(2));
    filch_sim_report_free(&report);
}

/* The functions below call filch_sim_fail() in different places: in a job, in a handler and so on. `user` selects
 * one. */
static filch_err fail_here(void *arg, filch_data *result)
{
    (void)result;
    return filch_sim_fail(arg, "in work");
}

static filch_err failing_handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)filch_sim_fail(filch_ctx_sched(command->ctx), "in a handler");
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static filch_err failing_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    const char *where = me->stage;
    filch_err   err = FILCH_OK;
    if (is_cancel(events, count) && strcmp(where, "cancel") == 0) (void)filch_sim_fail(sched_of(out), "in cancel");
    if (me->state++ > 0) return filch_done(out, filch_none());
    if (strcmp(where, "step") == 0) (void)filch_sim_fail(sched_of(out), "in a step");
    if (strcmp(where, "step") == 0) (void)filch_sim_fail(sched_of(out), "too late");
    if (strcmp(where, "work") == 0) err = filch_yield_work(out, 0, fail_here, sched_of(out));
    if (strcmp(where, "handler") == 0) err = filch_yield(out, COMMAND_NEVER, 0, filch_none());
    return err == FILCH_OK ? filch_idle(out) : err;
}

static filch_err start_failing(filch_sched *sched, void *user)
{
    if (strcmp(user, "scenario") == 0) return FILCH_EUSER + 5;
    return enter(sched, failing_play, user, 0, NULL);
}

static filch_err failing_check(filch_sched *sched, void *user)
{
    if (strcmp(user, "check") == 0) (void)filch_sim_fail(sched, "in the check");
    return strcmp(user, "check error") == 0 ? FILCH_EDEAD : FILCH_OK;
}

TEST(a_violation_can_be_reported_from_any_callback)
{
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, COMMAND_NEVER, failing_handler, NULL));
    filch_options     sched = { .size = sizeof sched, .registry = registry };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.sched = &sched;
    options.check = failing_check;
    static const char *const places[][2] = {
        { "step", "in a step" },
        { "work", "in work" },
        { "handler", "in a handler" },
        { "check", "in the check" },
        { "cancel", "in cancel" },
        { "scenario", "the scenario returned 1005" },
        { "check error", "the check returned 5: no such process" },
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char place[32];
        snprintf(place, sizeof place, "%s", places[i][0]);
        expect(&options, start_failing, place, FILCH_SIM_FAILED, places[i][1]);
    }
    char fine[] = "nowhere";
    expect(&options, start_failing, fine, FILCH_SIM_OK, "");
    filch_registry_destroy(registry);
}

/* ---- time ---- */

typedef struct sleeper_log {
    uint64_t woke_ns[4];
    int64_t  ticks;
} sleeper_log;

static filch_err sleeper_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    sleeper_log *log = me->stage;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        uint64_t now_ns = filch_sim_now(sched_of(out));
        if (events[i].type == FILCH_EVENT_YIELD && events[i].tag < 4) log->woke_ns[events[i].tag] = now_ns;
        if (events[i].type == FILCH_EVENT_MESSAGE && events[i].tag == 9) log->ticks += filch_as_int(&events[i].data);
    }
    if (me->state++ > 0) return filch_idle(out);
    ok(filch_yield_sleep(out, 1, FILCH_SECONDS(1)));
    ok(filch_yield_sleep(out, 2, FILCH_SECONDS(1000)));
    ok(filch_yield_sleep(out, 3, FILCH_MICROSECONDS(1)));
    if (me->role == 1) ok(filch_yield_ticker(out, 9, FILCH_SECONDS(10)));
    return filch_idle(out);
}

static filch_err start_sleeper(filch_sched *sched, void *user)
{
    memset(user, 0, sizeof(sleeper_log));
    same(filch_sim_now(sched), 0);
    return enter(sched, sleeper_play, user, 0, NULL);
}

static filch_err start_ticker(filch_sched *sched, void *user)
{
    memset(user, 0, sizeof(sleeper_log));
    return enter(sched, sleeper_play, user, 1, NULL);
}

TEST(time_is_virtual_and_a_run_does_not_wait_for_it)
{
    sleeper_log       log;
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    uint64_t          began_ns = fli_clock_ns();
    for (options.seed = 1; options.seed <= 50; options.seed++) {
        filch_sim_report report = run(&options, start_sleeper, &log);
        same(report.verdict, FILCH_SIM_OK);
        assert_true(log.woke_ns[1] >= FILCH_SECONDS(1) && log.woke_ns[1] < FILCH_SECONDS(1) + FILCH_MILLISECONDS(1));
        assert_true(log.woke_ns[2] >= FILCH_SECONDS(1000));
        assert_true(log.woke_ns[3] >= FILCH_MICROSECONDS(1) && log.woke_ns[3] < FILCH_MILLISECONDS(1));
        assert_true(report.time_ns >= FILCH_SECONDS(1000) && report.time_ns < FILCH_SECONDS(1001));
        filch_sim_report_free(&report);
    }
    assert_true(fli_clock_ns() - began_ns < FILCH_SECONDS(100));
    /* The process has a ticker, so the run lasts until its time limit. */
    options.time_max_ns = FILCH_SECONDS(2005);
    filch_sim_report report = run(&options, start_ticker, &log);
    same(report.verdict, FILCH_SIM_OK);
    same(log.ticks, 200);
    same(report.time_ns, FILCH_SECONDS(2005));
    filch_sim_report_free(&report);
}

/* ---- faults ---- */

static filch_sim_report market_with(market *m, filch_sim_options options, filch_options *sched)
{
    sched->size = sizeof *sched;
    sched->registry = m->registry;
    options.sched = sched;
    options.check = close_market;
    options.chart_events = 2000;
    filch_sim_report report = run(&options, open_market, m);
    if (report.verdict != FILCH_SIM_OK) fail_msg("%s\n%s", report.text, report.chart);
    return report;
}

TEST(each_fault_happens_if_and_only_if_enabled)
{
    market        m;
    filch_options sched = { 0 };
    market_begin(&m);
    filch_sim_options none = FILCH_SIM_OPTIONS_INIT, one = none;
    filch_sim_report  r = market_with(&m, none, &sched);
    same(r.no_memory + r.late_answers + r.double_answers + r.handler_errors + r.stalls + r.clock_jumps, 0);
    same(r.late_timers, 0);
    same(m.errors + m.failed_sends, 0);
    same(m.answers, TRADERS * ROUNDS);
    assert_null(strstr(r.chart, "fault"));
    filch_sim_report_free(&r);

    one.no_memory = 200;
    r = market_with(&m, one, &sched);
    assert_true(r.no_memory > 0);
    assert_true(m.failed_sends > 0);
    assert_non_null(strstr(r.chart, "fault: no memory"));
    same(r.late_answers + r.double_answers + r.handler_errors + r.stalls + r.clock_jumps, 0);
    filch_sim_report_free(&r);

    one = none;
    one.late_answer = 200;
    r = market_with(&m, one, &sched);
    assert_true(r.late_answers > 0);
    assert_non_null(strstr(r.chart, "fault: this completion will be late"));
    same(m.answers, TRADERS * ROUNDS);
    filch_sim_report_free(&r);

    one = none;
    one.double_answer = 500;
    r = market_with(&m, one, &sched);
    assert_true(r.double_answers > 0);
    assert_non_null(strstr(r.chart, "fault: this completion will come twice"));
    same(m.answers, TRADERS * ROUNDS);
    filch_sim_report_free(&r);

    one = none;
    one.handler_error = 300;
    r = market_with(&m, one, &sched);
    assert_true(r.handler_errors > 0);
    same(m.errors, r.handler_errors);
    assert_true(m.first_failure == FILCH_ESYS || m.first_failure == FILCH_EFULL);
    filch_sim_report_free(&r);

    one = none;
    one.stall = 100;
    r = market_with(&m, one, &sched);
    assert_true(r.stalls > 0);
    assert_non_null(strstr(r.chart, "fault: a worker stalls"));
    filch_sim_report_free(&r);

    one = none;
    one.clock_jump = 100;
    r = market_with(&m, one, &sched);
    assert_true(r.clock_jumps > 0);
    assert_true(r.time_ns > FILCH_MILLISECONDS(100));
    filch_sim_report_free(&r);
    filch_registry_destroy(m.registry);
}

typedef struct souvenir {
    filch_data kept;
} souvenir;

static filch_err keeper_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    souvenir *s = me->stage;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) ok(filch_keep(&events[i].data, &s->kept));
    return filch_idle(out);
}

static filch_err start_keeper(filch_sched *sched, void *user)
{
    filch_pid pid;
    ok(enter(sched, keeper_play, user, 0, &pid));
    return filch_send(sched, pid, filch_str("a text that is too long to fit into a node"));
}

TEST(a_payload_that_was_kept_outlives_the_run)
{
    souvenir          s = { .kept = filch_none() };
    test_alloc        alloc = { 0 };
    filch_options     sched = { .size = sizeof sched, .alloc = test_alloc_fn, .alloc_user = &alloc };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    options.sched = &sched;
    options.no_memory = 1;
    expect(&options, start_keeper, &s, FILCH_SIM_OK, "");
    assert_string_equal(filch_text(&s.kept), "a text that is too long to fit into a node");
    filch_drop(&s.kept);
    test_alloc_balanced(&alloc);
}

TEST(a_run_that_gets_no_memory_leaves_nothing_behind)
{
    market m;
    market_begin(&m);
    test_alloc    alloc = { 0 };
    filch_options sched = {
        .size = sizeof sched, .registry = m.registry, .alloc = test_alloc_fn, .alloc_user = &alloc
    };
    filch_sim_options options = market_options(&sched);
    options.no_memory = 1;
    uint64_t refused = 0, created = 0;
    for (uint64_t nth = 1; nth < 400; nth += 1 + nth / 100) {
        filch_sim_report report = FILCH_SIM_REPORT_INIT;
        test_alloc_fail(&alloc, nth, false);
        filch_err err = filch_sim_run(&options, open_market, &m, &report);
        test_alloc_fail(&alloc, 0, false);
        assert_true(err == FILCH_OK || err == FILCH_ENOMEM);
        refused += err == FILCH_ENOMEM;
        created += err == FILCH_OK;
        filch_sim_report_free(&report);
        test_alloc_balanced(&alloc);
    }
    assert_true(refused > 10 && created > 10);
    filch_registry_destroy(m.registry);
}

enum { MANY_ANSWERS = 40 };

static uint32_t many_answered;

static filch_err complete_at_once(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command;
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

/* The process makes many yields in one step, and ends when all are completed. */
static filch_err yielder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    many_answered += (uint32_t)count;
    for (uint64_t i = 0; count == 0 && i < MANY_ANSWERS; i++) {
        filch_err err = filch_yield(out, FILCH_CMD_USER, i, filch_none());
        if (err != FILCH_OK) return err;
    }
    return many_answered < MANY_ANSWERS ? filch_wait(out) : filch_done(out, filch_none());
}

static filch_err start_yielder(filch_sched *sched, void *user)
{
    static const filch_type yielder = { .name = "yielder", .step = yielder_step };
    (void)user;
    return filch_spawn(sched, &yielder, NULL, NULL);
}

/* The simulation holds late completions in a list that grows. If there is no memory for the list, completions are not
 * late. */
TEST(a_completion_without_memory_to_delay_it_comes_at_once)
{
    test_alloc        alloc = { 0 };
    filch_options     sched = { .size = sizeof sched, .alloc = test_alloc_fn, .alloc_user = &alloc };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    uint64_t          least = UINT64_MAX, most = 0;
    ok(filch_registry_create(&sched.registry));
    ok(filch_registry_add(sched.registry, FILCH_CMD_USER, complete_at_once, NULL));
    options.sched = &sched;
    options.late_answer = options.double_answer = 1000;
    options.seed = 7;
    for (uint64_t nth = 1; nth < 300; nth++) {
        filch_sim_report report = FILCH_SIM_REPORT_INIT;
        many_answered = 0;
        test_alloc_fail(&alloc, nth, nth % 2 == 0);
        filch_err err = filch_sim_run(&options, start_yielder, NULL, &report);
        test_alloc_fail(&alloc, 0, false);
        /* Skips runs that failed or completed no yield: an allocation of the process or of the scheduler has failed. */
        if (err == FILCH_OK && report.verdict == FILCH_SIM_OK && many_answered > 0) {
            same(many_answered, MANY_ANSWERS);
            if (report.late_answers < least) least = report.late_answers;
            if (report.late_answers > most) most = report.late_answers;
        }
        filch_sim_report_free(&report);
        test_alloc_balanced(&alloc);
    }
    same(most, MANY_ANSWERS);
    assert_true(least < MANY_ANSWERS);
    filch_registry_destroy(sched.registry);
}

/* ---- foreign threads ---- */

typedef struct visitors {
    filch_pid host;
    bool      by_group; /* sends to a group that has `host` as its only member */
    int       calls, messages, refused;
} visitors;

static void visit(filch_sched *sched, void *arg)
{
    visitors *v = arg;
    v->calls++;
    filch_err err = v->by_group ? filch_broadcast(sched, "hosts", filch_int(v->calls), NULL)
                                : filch_send(sched, v->host, filch_int(v->calls));
    if (err != FILCH_OK) {
        same(err, FILCH_ECLOSED);
        v->refused++;
        return;
    }
    if (v->calls < 5) ok(filch_sim_later(sched, FILCH_SECONDS(1), visit, v));
}

static filch_err host_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    visitors *v = me->stage;
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        same(events[i].from.serial, 0);
        v->messages++;
    }
    return filch_idle(out);
}

static filch_err start_visits(filch_sched *sched, void *user)
{
    visitors *v = user;
    *v = (visitors){ .by_group = v->by_group };
    ok(enter(sched, host_play, v, 0, &v->host));
    ok(filch_join(sched, "hosts", v->host));
    return filch_sim_later(sched, FILCH_SECONDS(1), visit, v);
}

static void check_visits(bool by_group)
{
    visitors          v = { .by_group = by_group };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  report = run(&options, start_visits, &v);
    same(report.verdict, FILCH_SIM_OK);
    same(v.calls, 5);
    same(v.messages, 5);
    assert_true(report.time_ns >= FILCH_SECONDS(5) && report.time_ns < FILCH_SECONDS(6));
    filch_sim_report_free(&report);
    /* The run ends before the third outside call is due. That call is made nevertheless, and finds the scheduler
     * closed. */
    options.time_max_ns = FILCH_MILLISECONDS(2500);
    options.stop_ns = 1;
    report = run(&options, start_visits, &v);
    same(v.calls, 3);
    same(v.messages, 2);
    same(v.refused, 1);
    filch_sim_report_free(&report);
}

TEST(scheduled_outside_calls_happen_once_and_in_time)
{
    check_visits(false);
    check_visits(true);
}

static _Thread_local int on_this_thread;

static filch_err job(void *arg, filch_data *result)
{
    int *done = arg;
    *done += on_this_thread;
    *result = filch_int(*done);
    return FILCH_OK;
}

static filch_err employer_play(player *me, const filch_event *events, size_t count, filch_out *out)
{
    if (is_cancel(events, count)) return filch_done(out, filch_none());
    if (me->state++ > 0) return filch_idle(out);
    for (uint64_t i = 0; i < 10; i++) ok(filch_yield_work(out, i, job, me->stage));
    return filch_idle(out);
}

static filch_err start_employer(filch_sched *sched, void *user)
{
    return enter(sched, employer_play, user, 0, NULL);
}

TEST(blocking_work_runs_on_this_thread)
{
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    int               done = 0;
    on_this_thread = 1;
    expect(&options, start_employer, &done, FILCH_SIM_OK, "");
    same(done, 10);
}

/* ---- what is refused ---- */

typedef struct intruder {
    filch_sched *sched;
    filch_pid    pid;
    int          call;
    filch_err    answer;
} intruder;

static filch_err refused_scenario(filch_sched *sched, void *user)
{
    intruder *i = user;
    uint32_t  ran;
    switch (i->call) {
    case 0: i->answer = filch_tick(sched, 0, &ran); break;
    case 1: i->answer = filch_wake_fd(sched) == -1 ? FILCH_ESTATE : FILCH_OK; break;
    case 2: i->answer = filch_next_timeout(sched) == FILCH_FOREVER ? FILCH_ESTATE : FILCH_OK; break;
    case 3: i->answer = filch_sched_stop(sched, 0, NULL); break;
    default: i->answer = filch_sched_close(sched, 0, NULL); break;
    }
    return FILCH_OK;
}

TEST(calls_that_cannot_be_simulated_are_refused_by_name)
{
    static const char *const names[] = { "filch_tick", "filch_wake_fd", "filch_next_timeout", "filch_sched_stop",
                                         "filch_sched_close" };
    for (int call = 0; call < 5; call++) {
        intruder i = { .call = call, .answer = FILCH_OK };
        char     words[64];
        snprintf(words, sizeof words, "%s cannot be simulated", names[call]);
        expect(NULL, refused_scenario, &i, FILCH_SIM_REFUSED, words);
        same(i.answer, FILCH_ESTATE);
    }
}

static void intrude(void *arg)
{
    intruder     *i = arg;
    filch_package package = { .to = i->pid, .data = filch_none() };
    switch (i->call) {
    case 0: i->answer = filch_send(i->sched, i->pid, filch_none()); break;
    case 1: i->answer = enter(i->sched, idle_play, NULL, 0, NULL); break;
    case 2: i->answer = filch_cancel(i->sched, i->pid); break;
    case 3: i->answer = filch_terminate(i->sched, i->pid); break;
    case 4: i->answer = filch_deliver(i->sched, &package); break;
    case 5: i->answer = filch_complete((filch_receiver){ .sched = i->sched, .key = 1 }, 0, filch_none(), 0); break;
    case 6: i->answer = filch_sim_fail(i->sched, "from elsewhere"); break;
    case 7: i->answer = filch_sim_later(i->sched, 0, complete_slowly, NULL); break;
    default: i->answer = filch_tick(i->sched, 0, NULL); break;
    }
}

static filch_err intruded_scenario(filch_sched *sched, void *user)
{
    intruder  *i = user;
    fli_thread thread;
    i->sched = sched;
    ok(enter(sched, idle_play, NULL, 0, &i->pid));
    ok(fli_thread_start(&thread, "intruder", intrude, i));
    fli_thread_join(&thread);
    return FILCH_OK;
}

TEST(calls_from_other_threads_are_refused_by_name)
{
    static const char *const names[] = { "filch_send",      "filch_spawn",     "filch_cancel",
                                         "filch_terminate", "filch_deliver",   "filch_complete",
                                         "filch_sim_fail",  "filch_sim_later", "filch_tick" };
    for (int call = 0; call < 9; call++) {
        intruder i = { .call = call, .answer = FILCH_OK };
        char     words[64];
        snprintf(words, sizeof words, "%s cannot be simulated from another thread", names[call]);
        expect(NULL, intruded_scenario, &i, FILCH_SIM_REFUSED, words);
        same(i.answer, FILCH_ESTATE);
    }
}

/* ---- edge cases ---- */

static filch_err do_nothing(filch_sched *sched, void *user)
{
    (void)sched;
    (void)user;
    return FILCH_OK;
}

TEST(bad_input_is_refused)
{
    filch_sim_report  report = FILCH_SIM_REPORT_INIT;
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    same(filch_sim_run(NULL, NULL, NULL, &report), FILCH_EINVAL);
    same(filch_sim_run(NULL, do_nothing, NULL, NULL), FILCH_EINVAL);
    same(filch_sim_sweep(NULL, 1, 0, do_nothing, NULL, &report), FILCH_EINVAL);
    filch_sim_report small = { .size = 8 };
    same(filch_sim_run(NULL, do_nothing, NULL, &small), FILCH_EINVAL);

#define REFUSES(field, value)                                               \
    do {                                                                    \
        filch_sim_options bad = FILCH_SIM_OPTIONS_INIT;                     \
        bad.field = (value);                                                \
        same(filch_sim_run(&bad, do_nothing, NULL, &report), FILCH_EINVAL); \
        assert_null(report.chart);                                          \
    } while (0)
    REFUSES(size, 0);
    REFUSES(workers, 65);
    REFUSES(workers, UINT32_MAX);
    REFUSES(chart_events, UINT32_MAX);
    REFUSES(blocked_ok, 2);
    REFUSES(whole_steps, 2);
    REFUSES(no_memory, 1001);
    REFUSES(late_answer, 1001);
    REFUSES(double_answer, 1001);
    REFUSES(handler_error, 1001);
    REFUSES(stall, 1001);
    REFUSES(clock_jump, 1001);
    REFUSES(late_timer, 1001);
    REFUSES(spare, 1);
    filch_options sched = { .size = 0 };
    REFUSES(sched, &sched);
    struct {
        filch_options known;
        unsigned char later[8];
    } newer_sched = { .known = { .size = sizeof newer_sched },
                      .later[7] = 1 }; /* an option that this library does not know */
    REFUSES(sched, &newer_sched.known);
    sched = (filch_options){ .size = sizeof sched, .batch_max = 5000 };
    REFUSES(sched, &sched);

    struct {
        filch_sim_options known;
        unsigned char     later[8];
    } newer = { .known = FILCH_SIM_OPTIONS_INIT };
    newer.known.size = sizeof newer;
    newer.later[7] = 1; /* an option that this library does not know */
    same(filch_sim_run(&newer.known, do_nothing, NULL, &report), FILCH_EINVAL);
    newer.later[7] = 0;
    ok(filch_sim_run(&newer.known, do_nothing, NULL, &report));
    filch_sim_report_free(&report);
    /* these options are set, so the simulation does not choose them at random */
    sched = (filch_options){ .size = sizeof sched, .fair_every = 3, .global_batch = 2 };
    options.sched = &sched;
    ok(filch_sim_run(&options, do_nothing, NULL, &report));
    filch_sim_report_free(&report);
    options.sched = NULL;

    /* Valid options: 0 workers (the default), 64 workers, and a shorter struct of an older version. */
    ok(filch_sim_run(&options, do_nothing, NULL, &report));
    filch_sim_report_free(&report);
    options.workers = 64;
    ok(filch_sim_run(&options, do_nothing, NULL, &report));
    filch_sim_report_free(&report);
    options.size = offsetof(filch_sim_options, chart_events);
    ok(filch_sim_run(&options, do_nothing, NULL, &report));
    filch_sim_report_free(&report);
    options.size = sizeof options.size;
    ok(filch_sim_run(&options, do_nothing, NULL, &report));
    same(report.seed, 0);
    filch_sim_report_free(&report);
    filch_sim_report_free(&report);
    filch_sim_report_free(NULL);

    same(filch_sim_fail(NULL, "x"), FILCH_EINVAL);
    same(filch_sim_note(NULL, "x"), FILCH_EINVAL);
    same(filch_sim_later(NULL, 0, complete_slowly, NULL), FILCH_EINVAL);
    same(filch_sim_draw(NULL, 5), 0);
    same(filch_sim_now(NULL), 0);
}

static filch_err nested_calls(filch_sched *sched, void *user)
{
    (void)user;
    same(filch_sim_fail(sched, NULL), FILCH_EINVAL);
    same(filch_sim_note(sched, NULL), FILCH_EINVAL);
    same(filch_sim_later(sched, 0, NULL, NULL), FILCH_EINVAL);
    same(filch_sim_draw(sched, 0), 0);
    same(filch_sim_draw(sched, 1), 0);
    for (int i = 0; i < 100; i++) assert_true(filch_sim_draw(sched, 7) < 7);
    filch_package package = { .to = { 12345, 1 } };
    same(filch_deliver(sched, &package), FILCH_EFOREIGN);
    /* Inside a simulation, another simulation and a scheduler with threads can run. */
    expect(NULL, do_nothing, NULL, FILCH_SIM_OK, "");
    filch_sched *threads;
    ok(filch_sched_create(&threads, NULL));
    ok(filch_sched_stop(threads, FILCH_SECONDS(60), NULL));
    return filch_sim_note(sched, "still here");
}

TEST(a_run_inside_a_run_works)
{
    filch_sim_report report = run(NULL, nested_calls, NULL);
    same(report.verdict, FILCH_SIM_OK);
    assert_non_null(strstr(report.chart, "outside: still here"));
    filch_sim_report_free(&report);
}

TEST(the_chart_shows_senders_messages_and_receivers)
{
    counter                  c = { .fixed = true };
    filch_sim_options        options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report         report = run(&options, start_counting, &c);
    static const char *const lines[] = {
        " outside  player#1  player#2  player#3",
        "    o-------->+                          outside spawns player#1\n",
        "    |         |<--------o         |      player#2 sends an empty message to player#1\n",
        "    |         o-------->|         |      player#1 sends 0 to player#2\n",
        "    |         |         *         |      player#2 gets 0 from player#1\n",
        "    |         |         x         |      player#2 ends: ok\n",
        "    |         *                   |      player#1 gets 1 from player#2\n",
        "    |         |         ?         |      player#2 yields a sleep, 0\n",
        "player#1 is asked to end\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (strstr(report.chart, lines[i]) == NULL) fail_msg("no line \"%s\" in\n%s", lines[i], report.chart);
    }
    filch_sim_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(different_seeds_give_different_runs),
        cmocka_unit_test(the_chart_shows_both_ends_of_a_long_name),
        cmocka_unit_test(the_hash_covers_events_that_the_chart_leaves_out),
        cmocka_unit_test(pids_are_the_same_each_time),
        cmocka_unit_test(no_message_is_lost_under_any_fault),
        cmocka_unit_test(the_same_processes_run_on_threads),
        cmocka_unit_test(all_faults_together_are_survived_and_repeat_with_the_seed),
        cmocka_unit_test(a_lost_update_is_found_replayed_and_absent_once_fixed),
        cmocka_unit_test(a_step_is_interrupted_between_two_sends),
        cmocka_unit_test(a_process_that_waits_for_ever_is_a_violation),
        cmocka_unit_test(a_run_that_does_not_end_is_stopped),
        cmocka_unit_test(a_violation_can_be_reported_from_any_callback),
        cmocka_unit_test(time_is_virtual_and_a_run_does_not_wait_for_it),
        cmocka_unit_test(each_fault_happens_if_and_only_if_enabled),
        cmocka_unit_test(a_payload_that_was_kept_outlives_the_run),
        cmocka_unit_test(a_run_that_gets_no_memory_leaves_nothing_behind),
        cmocka_unit_test(a_completion_without_memory_to_delay_it_comes_at_once),
        cmocka_unit_test(scheduled_outside_calls_happen_once_and_in_time),
        cmocka_unit_test(blocking_work_runs_on_this_thread),
        cmocka_unit_test(calls_that_cannot_be_simulated_are_refused_by_name),
        cmocka_unit_test(calls_from_other_threads_are_refused_by_name),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(a_run_inside_a_run_works),
        cmocka_unit_test(the_chart_shows_senders_messages_and_receivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
