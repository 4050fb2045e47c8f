/* oom_test.c - each allocation in turn fails. Each call reports missing memory, nothing leaks, no process waits for
 * ever, and when there is memory again everything works. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <filch.h>

#include "support/alloc.h"
#include "support/check.h"
#include "support/manual_clock.h"
#include "support/until.h"

enum { ECHO = FILCH_CMD_USER, LATER, LARGE = 100, CHILDREN = 300, STUBBORN = 20, LATER_MAX = 64 };

static struct {
    atomic_uint_fast64_t wrong; /* number of results that are neither FILCH_OK nor FILCH_ENOMEM */
    atomic_int           wrong_code;
    atomic_uint_fast64_t no_memory; /* number of results that are FILCH_ENOMEM */
    atomic_uint_fast64_t opened, closed, lives, exits;
    atomic_uint_fast64_t moved, freed;
    filch_pid            sink;
    uint64_t             stubborn; /* number of processes that ignore a cancel */
    filch_data           shared;
    filch_receiver       later[LATER_MAX];
    atomic_uint          later_count;
    test_alloc           alloc;
} seen;

/* ---- results ---- */

static bool fine(filch_err err)
{
    if (err == FILCH_ENOMEM) {
        atomic_fetch_add(&seen.no_memory, 1);
    } else if (err != FILCH_OK) {
        atomic_fetch_add(&seen.wrong, 1);
        atomic_store(&seen.wrong_code, err);
    }
    return err == FILCH_OK;
}

static void free_moved(void *user, void *bytes, size_t size)
{
    (void)user;
    memset(bytes, 0, size);
    atomic_fetch_add(&seen.freed, 1);
    free(bytes);
}

/* Returns bytes for filch_move. The bytes come from malloc(), which does not fail in this test. */
static filch_data to_move(void)
{
    void *bytes = calloc(1, LARGE);
    if (bytes == NULL) abort();
    atomic_fetch_add(&seen.moved, 1);
    return filch_move(bytes, LARGE, free_moved);
}

/* Frees the moved bytes if the call has not taken them. Returns true if the call has taken them. */
static bool took(filch_err err, filch_data moved)
{
    if (err != FILCH_OK) free_moved(NULL, moved.as.move.at, LARGE);
    return fine(err);
}

/* ---- processes ---- */

static filch_err open_instance(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    if (method != NULL && strcmp(method, "loud") != 0) return FILCH_EMETHOD;
    if (method != NULL && filch_size(args) != LARGE) return FILCH_EINVAL;
    if (filch_as_int(filch_ctx_value(ctx, "answer")) != 42) return FILCH_EUSER;
    atomic_fetch_add(&seen.opened, 1);
    return FILCH_OK;
}

static void close_instance(void *self)
{
    (void)self;
    atomic_fetch_add(&seen.closed, 1);
}

static const char large[LARGE] = "large enough not to fit into an event";

static filch_err end_with(filch_out *out, filch_data result)
{
    return fine(filch_done(out, result)) ? FILCH_OK : filch_done(out, filch_none());
}

/* The type to which the subject changes by filch_upgrade. */
static filch_err upgraded_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    filch_data moved = to_move();
    return took(filch_done(out, moved), moved) ? FILCH_OK : filch_done(out, filch_none());
}

static const filch_type upgraded_type = {
    .name = "afterlife", .size = 64, .init = open_instance, .step = upgraded_step, .close = close_instance
};

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_done(out, filch_none());
}

static const filch_type child = { .name = "child", .step = child_step };

static filch_err work(void *arg, filch_data *result)
{
    (void)arg;
    *result = to_move(); /* the runtime takes these bytes, whatever error code the job returns */
    return FILCH_OK;
}

enum { TAG_TIMER = 100, TAG_TICKER, TAG_TICKER_END };

typedef struct subject {
    bool     begun, ticker_armed, ticker_over;
    unsigned yields, timers, tries;
    int64_t  ticker;
    uint64_t filler[4];
} subject;

static filch_err send_one_kind(filch_sched *sched, filch_pid to, int kind)
{
    switch (kind) {
    case 0: return filch_send(sched, to, filch_str("small"));
    case 1: return filch_send(sched, to, filch_bytes(large, LARGE));
    case 2: return filch_send(sched, to, seen.shared);
    default: break;
    }
    filch_data moved = to_move();
    filch_err  err = filch_send(sched, to, moved);
    if (err != FILCH_OK) free_moved(NULL, moved.as.move.at, LARGE);
    return err;
}

static filch_err subject_begin(subject *l, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    l->begun = true;
    for (uint64_t i = 0; i < 21; i++) {
        if (i % 2 == 1) {
            l->yields += fine(filch_yield(out, LATER, i, filch_bytes(large, i < 4 ? LARGE : 4)));
        } else {
            /* If the list of yields cannot grow for this yield, the yield fails, and took() frees the moved bytes. */
            filch_data moved = to_move();
            l->yields += took(filch_yield(out, ECHO, i, moved), moved);
        }
    }
    l->yields += fine(filch_yield_sleep(out, 21, FILCH_MICROSECONDS(200)));
    l->yields += fine(filch_yield_work(out, 22, work, NULL));
    l->yields += fine(filch_yield_timer(out, TAG_TIMER, FILCH_MICROSECONDS(300)));
    l->yields += fine(filch_yield_ticker(out, TAG_TICKER, FILCH_MICROSECONDS(100)));
    for (uint64_t i = 0; i < 4; i++) {
        l->yields += fine(filch_yield_send(out, 30 + i, seen.sink, filch_bytes(large, LARGE)));
    }
    for (int i = 0; i < 4; i++) (void)fine(send_one_kind(sched, filch_ctx_self(ctx), i));
    for (int i = 0; i < CHILDREN; i++) (void)fine(filch_spawn(sched, &child, NULL, NULL));
    return filch_continue(out); /* continues instead of idling: if all calls failed, no event would come */
}

static void subject_read_event(subject *l, const filch_event *e, filch_out *out)
{
    if (e->type == FILCH_EVENT_MESSAGE) {
        if (e->tag == TAG_TIMER) l->timers--;
        if (e->tag != TAG_TICKER || l->ticker_over) return;
        /* Yields a cancel of the ticker. Gives up after ten failures, because a ticker ends with its process anyway. */
        bool asked = fine(filch_yield_timer_cancel(out, TAG_TICKER_END, l->ticker));
        l->yields += asked;
        l->ticker_over = asked || ++l->tries > 10;
        return;
    }
    if (e->type != FILCH_EVENT_YIELD) return;
    l->yields--;
    if (!fine(e->error)) return;
    if (e->tag == TAG_TIMER) l->timers++;
    if (e->tag == TAG_TICKER) {
        l->ticker_armed = true;
        l->ticker = filch_as_int(&e->data);
    }
}

static filch_err subject_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    subject *l = self;
    if (!l->begun) return subject_begin(l, out);
    for (size_t i = 0; i < count; i++) subject_read_event(l, &events[i], out);
    if (l->yields > 0 || l->timers > 0 || (l->ticker_armed && !l->ticker_over)) return filch_idle(out);
    if (fine(filch_upgrade(out, &upgraded_type, "loud", filch_bytes(large, LARGE)))) return FILCH_OK;
    return end_with(out, filch_bytes(large, LARGE));
}

static const filch_type subject_type = {
    .name = "life", .size = sizeof(subject), .init = open_instance, .step = subject_step, .close = close_instance
};

static filch_err listen_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    bool cancelled = false;
    (void)self;
    for (size_t i = 0; i < count; i++) cancelled |= events[i].type == FILCH_EVENT_CANCEL;
    return cancelled ? end_with(out, filch_str("a farewell of more than twenty-four bytes")) : filch_idle(out);
}

static const filch_type listening = { .name = "listening", .step = listen_step };

static filch_err stubborn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_idle(out);
}

static const filch_type stubborn = { .name = "deaf", .step = stubborn_step };

/* ---- commands ---- */

static filch_err echo(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    if (filch_size(&command->data) < 4) return FILCH_EINVAL;
    return filch_complete(receiver, tag, filch_bytes(large, LARGE), FILCH_OK);
}

static filch_err later(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    unsigned at = atomic_load(&seen.later_count);
    if (at == LATER_MAX) return FILCH_EFULL;
    seen.later[at] = receiver; /* no race: only one process at a time yields LATER */
    atomic_store(&seen.later_count, at + 1);
    return FILCH_OK;
}

/* Completes yields from the test's thread with a large payload, or with a small one if there is no memory for the large
 * payload. */
static void complete_some(unsigned *done)
{
    for (unsigned n = atomic_load(&seen.later_count); *done < n; ++*done) {
        filch_receiver receiver = seen.later[*done];
        if (fine(filch_complete(receiver, receiver.tag, filch_bytes(large, LARGE), FILCH_OK))) continue;
        if (filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK) != FILCH_OK)
            atomic_fetch_add(&seen.wrong, 1);
    }
}

/* ---- the run ---- */

static void count_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    if (error != FILCH_OK) {
        atomic_fetch_add(&seen.wrong, 1);
        atomic_store(&seen.wrong_code, error);
    }
    atomic_fetch_add(&seen.exits, 1);
}

static void spawn_all(filch_sched *sched, filch_values *values, int first, int32_t workers)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.mailbox_max = 1;
    options.overflow = FILCH_OVERFLOW_WAIT;
    seen.sink = (filch_pid){ 0, 0 };
    if (!fine(filch_spawn(sched, &listening, &options, &seen.sink))) return;
    for (int i = 0; i < STUBBORN; i++) seen.stubborn += fine(filch_spawn(sched, &stubborn, NULL, NULL));
    options = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    options.method = "loud";
    options.args = filch_bytes(large, LARGE);
    options.values = values;
    options.on_exit = count_exit;
    filch_pid pid;
    if (!fine(filch_spawn(sched, &subject_type, &options, &pid))) return;
    atomic_fetch_add(&seen.lives, 1);
    /* FILCH_EDEAD is allowed: with workers, the process may end before this send, if its yields failed for lack of
     * memory. */
    for (int i = 0; i < 4; i++) {
        filch_err err = send_one_kind(sched, pid, (first + i) % 4);
        if (err != FILCH_EDEAD || workers == FILCH_NO_WORKERS) (void)fine(err);
    }
}

typedef struct plan {
    int32_t  workers;
    uint64_t nth;       /* number of the allocation that fails */
    bool     and_after; /* all allocations after number `nth` fail too */
    bool     recovers;  /* allocations succeed again before the stop */
    int      first;     /* kind of the message that is sent first, when there is no spare event node */
} plan;

static atomic_bool got_message;

/* Notes a message, and ends on a cancel. */
static filch_err late_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) atomic_store(&got_message, true);
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type late = { .name = "late", .step = late_step };

/* Called when allocations succeed again. Checks that a process starts, gets its messages, and ends on a cancel.
 * The process has a type of its own, because the sink may still receive messages meanwhile. */
static void works_again(filch_sched *sched, int32_t workers)
{
    filch_pid pid;
    atomic_store(&got_message, false);
    ok(filch_spawn(sched, &late, NULL, &pid));
    ok(filch_send(sched, pid, filch_bytes(large, LARGE)));
    until((workers > 0 || filch_tick(sched, 0, NULL) == FILCH_OK) && atomic_load(&got_message));
    ok(filch_cancel(sched, pid));
    until((workers > 0 || filch_tick(sched, 0, NULL) == FILCH_OK) && filch_cancel(sched, pid) == FILCH_EDEAD);
}

static void stop_with_report(filch_sched *sched)
{
    filch_report report = FILCH_REPORT_INIT;
    /* If some processes ignore a cancel, the deadline is short: 2 ms, in which the other processes can end. */
    filch_err err = filch_sched_stop(sched, seen.stubborn > 0 ? FILCH_MILLISECONDS(2) : FILCH_SECONDS(30), &report);
    uint64_t  forced = report.forced, named = report.count + report.omitted;
    filch_report_free(&report);
    while (err == FILCH_EBUSY) /* repeats the stop, because a loaded machine may be too slow */
        err = filch_sched_stop(sched, FILCH_SECONDS(1), NULL);
    same(err, seen.stubborn > 0 ? FILCH_EDEADLINE : FILCH_OK);
    same(forced, named);
}

/* Runs the scheduler until all processes have ended, except those that only a stop ends. */
static void until_quiet(filch_sched *sched, int32_t workers)
{
    uint64_t    staying = seen.stubborn + (seen.sink.serial != 0);
    filch_stats stats = FILCH_STATS_INIT;
    until((workers > 0 || filch_tick(sched, 0, NULL) == FILCH_OK) && filch_sched_stats(sched, &stats) == FILCH_OK &&
          stats.alive == staying);
}

static void everything_once(filch_sched *sched, const plan *p, filch_values *values)
{
    unsigned completed = 0;
    spawn_all(sched, values, p->first, p->workers);
    until((p->workers > 0 || filch_tick(sched, 0, NULL) == FILCH_OK) &&
          (complete_some(&completed), atomic_load(&seen.exits) == atomic_load(&seen.lives)));
    until_quiet(sched, p->workers);
    if (p->recovers) {
        test_alloc_fail(&seen.alloc, 0, false);
        works_again(sched, p->workers);
        until_quiet(sched, p->workers);
    }
    stop_with_report(sched);
}

/* Makes one run. Returns true if an allocation failed, that is, if the run had at least p->nth allocations. */
static bool run(const plan *p)
{
    memset(&seen, 0, sizeof seen);
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = p->workers;
    options.alloc = test_alloc_fn;
    options.alloc_user = &seen.alloc;
    options.work_threads = 1;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, ECHO, echo, NULL));
    ok(filch_registry_add(options.registry, LATER, later, NULL));
    filch_values *values;
    ok(filch_values_create(NULL, "answer", filch_int(42), &values));
    void *bytes = calloc(1, LARGE);
    atomic_fetch_add(&seen.moved, 1);
    ok(filch_share(bytes, LARGE, free_moved, NULL, &seen.shared));

    test_alloc_fail(&seen.alloc, p->nth, p->and_after);
    filch_sched *sched = NULL;
    if (fine(filch_sched_create(&sched, &options))) everything_once(sched, p, values);
    else assert_null(sched);

    filch_drop(&seen.shared);
    filch_values_drop(values);
    filch_registry_destroy(options.registry);
    bool refused = atomic_load(&seen.alloc.refused) > 0;
    if (atomic_load(&seen.wrong) != 0) print_error("unexpected: %s\n", filch_err_name(atomic_load(&seen.wrong_code)));
    same(atomic_load(&seen.wrong), 0);
    same(atomic_load(&seen.closed), atomic_load(&seen.opened));
    same(atomic_load(&seen.freed), atomic_load(&seen.moved));
    test_alloc_balanced(&seen.alloc);
    if (!refused) same(atomic_load(&seen.no_memory), 0);
    return refused;
}

/* Fails allocation 1, 2, 3, ... in one run each, until a run has fewer allocations. */
static void sweep(plan p)
{
    uint64_t share = scaled(100), stride = share >= 100 ? 1 : share >= 10 ? 2 : 13;
    for (p.nth = 1; run(&p); p.nth += stride) {}
    assert_true(p.nth > 20); /* if more than 20 allocations failed, the runs did allocate */
}

TEST(without_failures_nothing_is_refused)
{
    for (int32_t workers = FILCH_NO_WORKERS; workers <= 2; workers++) {
        plan p = { .workers = workers, .recovers = true };
        if (workers != 0) assert_false(run(&p));
        if (workers != 0) same(atomic_load(&seen.lives), 1);
    }
}

TEST(a_single_failed_allocation_is_reported_and_leaks_nothing)
{
    for (int first = 0; first < 4; first++) sweep((plan){ .workers = FILCH_NO_WORKERS, .first = first });
    sweep((plan){ .workers = FILCH_NO_WORKERS, .recovers = true });
}

TEST(permanent_lack_of_memory_is_reported_and_leaks_nothing)
{
    sweep((plan){ .workers = FILCH_NO_WORKERS, .and_after = true });
}

TEST(everything_works_again_when_there_is_memory_again)
{
    sweep((plan){ .workers = FILCH_NO_WORKERS, .and_after = true, .recovers = true });
}

TEST(workers_survive_failed_allocations)
{
    sweep((plan){ .workers = 1, .recovers = true });
    sweep((plan){ .workers = 2, .and_after = true });
    sweep((plan){ .workers = 2, .and_after = true, .recovers = true });
}

/* ---- yields while only a few event nodes are left ---- */

/* State of the greedy process. The process takes all event nodes except a few by making yields that are never
 * completed. Then it makes every call that needs event nodes. */
static struct {
    /* true: small blocks can be allocated, but not the blocks from which event nodes are made */
    bool            no_blocks;
    uint64_t        hold_max; /* number of nodes to take; UINT64_MAX: all */
    bool            asks;
    bool            asked, armed, all_held;
    int             begun; /* how many of the first sleep and the first timer have completed, 0 to 2 */
    uint64_t        open, ticks;
    filch_receiver *held;
    uint64_t        held_count, held_room;
} last;

static void *few_blocks(void *user, void *old, size_t old_size, size_t size)
{
    return last.no_blocks && size >= 4096 ? NULL : test_alloc_fn(user, old, old_size, size);
}

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    if (last.held_count == last.held_room) {
        last.held_room = last.held_room * 2 + 64;
        last.held = realloc(last.held, last.held_room * sizeof *last.held);
        if (last.held == NULL) abort();
    }
    last.held[last.held_count++] = receiver;
    return FILCH_OK;
}

static void yield_everything(filch_out *out)
{
    last.asked = true;
    last.open += fine(filch_yield_ticker(out, TAG_TICKER, FILCH_MICROSECONDS(50)));
    last.open += fine(filch_yield_timer(out, TAG_TIMER, 1));
    last.open += fine(filch_yield_send(out, 30, seen.sink, filch_bytes(large, LARGE)));
    last.open += fine(filch_yield_send(out, 31, seen.sink, filch_none()));
    last.open += fine(filch_yield_sleep(out, 32, 1));
    for (int i = 0; i < 2; i++) (void)fine(send_one_kind(filch_out_sched(out), seen.sink, i));
    (void)fine(filch_send(filch_out_sched(out), seen.sink, filch_int(1)));
}

static filch_err greedy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    /* the first step yields a sleep and a timer, so that blocks for them are allocated */
    if (count == 0 && !last.no_blocks) {
        ok(filch_yield_sleep(out, 0, 1));
        ok(filch_yield_timer(out, 0, 1));
        return filch_wait(out);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE && events[i].tag == TAG_TICKER) last.ticks++;
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        if (events[i].tag == 0) {
            if (!last.all_held && ++last.begun == 2) last.no_blocks = true;
            continue; /* last.open does not count tag 0: the first sleep and timer, and yields that take nodes */
        }
        last.open--;
        if (fine(events[i].error) && events[i].tag == TAG_TICKER) last.armed = true;
    }
    if (!last.no_blocks && !last.all_held) return filch_wait(out);
    for (int i = 0; i < 8 && last.held_count + (uint64_t)i < last.hold_max && !last.all_held; i++) {
        last.all_held = filch_yield(out, LATER, 0, filch_none()) != FILCH_OK;
    }
    if (!last.all_held && last.held_count < last.hold_max) return filch_continue(out);
    last.all_held = true;
    if (last.asks && !last.asked) yield_everything(out);
    return filch_idle(out);
}

static const filch_type greedy = { .name = "greedy", .step = greedy_step };

static filch_err tick_later(filch_sched *sched)
{
    clock_advance(FILCH_MICROSECONDS(100));
    return filch_tick(sched, 0, NULL);
}

/* Runs the greedy process. Returns the number of event nodes that the process could take by yields. The clock is
 * advanced by hand. Otherwise the speed of the machine would decide whether one step gets both the completion of the
 * sleep and that of the timer, or two steps get one each; in the second case the mailbox keeps a node. */
static uint64_t with_few_events(uint64_t hold_max, bool asks)
{
    memset(&seen, 0, sizeof seen);
    memset(&last, 0, sizeof last);
    last.hold_max = hold_max;
    clock_stop();
    last.asks = asks;
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    options.workers = FILCH_NO_WORKERS;
    options.alloc = few_blocks;
    options.alloc_user = &seen.alloc;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, LATER, hold, NULL));
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    ok(filch_spawn(sched, &listening, NULL, &seen.sink));
    ok(filch_spawn(sched, &listening, NULL, &pid));
    /* this message makes the scheduler allocate its first block of event nodes */
    ok(filch_send(sched, pid, filch_none()));
    ok(filch_cancel(sched, pid));
    ok(filch_tick(sched, 0, NULL));
    ok(filch_spawn(sched, &greedy, NULL, &pid));
    until(tick_later(sched) == FILCH_OK && last.all_held && last.open == 0);
    uint64_t held = last.held_count, ticks = last.ticks;
    last.no_blocks = false;
    for (uint64_t i = 0; i < held; i++) ok(filch_complete(last.held[i], 0, filch_none(), FILCH_OK));
    until(tick_later(sched) == FILCH_OK && (!last.armed || last.ticks > ticks));
    clock_go();
    ok(filch_cancel(sched, pid));
    ok(filch_cancel(sched, seen.sink));
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
    same(atomic_load(&seen.wrong), 0);
    test_alloc_balanced(&seen.alloc);
    free(last.held);
    return held;
}

TEST(with_few_event_nodes_every_yield_is_still_completed)
{
    uint64_t all = with_few_events(UINT64_MAX, false), answers = 0;
    assert_true(all > 16);
    for (uint64_t spare = 0; spare <= 16; spare++) {
        same(with_few_events(all - spare, true), all - spare);
        if (spare == 0) assert_true(atomic_load(&seen.no_memory) > 0);
        answers += atomic_load(&seen.no_memory) > 0;
    }
    assert_true(answers < 17); /* with enough spare nodes (at most 16) no call fails */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_failures_nothing_is_refused),
        cmocka_unit_test(a_single_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(permanent_lack_of_memory_is_reported_and_leaks_nothing),
        cmocka_unit_test(everything_works_again_when_there_is_memory_again),
        cmocka_unit_test(workers_survive_failed_allocations),
        cmocka_unit_test(with_few_event_nodes_every_yield_is_still_completed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
