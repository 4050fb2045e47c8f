/* drain_test.c - what a stop completes before it ends: it lets processes read the messages in their mailboxes, and ends
 * supervised processes in order. Also: what the report counts if there is no time for that. Files and sockets are in
 * io_drain_test.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

enum { HOLD = FILCH_CMD_USER, MESSAGES = 1000 };

static struct {
    FLI_ATOMIC(uint64_t) read, before_cancel, cancels, steps, spawned;
    /* number of processes that have ended so far: gives each ending process its position in the order of ends */
    FLI_ATOMIC(uint32_t) order;
    FLI_ATOMIC(bool)     held, inside, release, late;
    FLI_ATOMIC(int)      code;
    filch_receiver       receiver;
    test_alloc           alloc;
} seen;

static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 3 };
#define EACH_WORKER_COUNT(w) for (size_t w = 0; w < sizeof worker_counts / sizeof *worker_counts; w++)

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    seen.receiver = receiver;
    fli_store_rel(&seen.held, true);
    return FILCH_OK;
}

static filch_sched *begin_with(int32_t workers, uint32_t batch_max)
{
    memset(&seen, 0, sizeof seen);
    filch_options options = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, HOLD, hold, NULL));
    options.workers = workers;
    options.batch_max = batch_max;
    options.alloc = test_alloc_fn;
    options.alloc_user = &seen.alloc;
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    return sched;
}

static filch_sched *begin(int32_t workers)
{
    return begin_with(workers, 0);
}

static filch_pid start(filch_sched *sched, const filch_type *type, filch_data args)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    options.args = args;
    ok(filch_spawn(sched, type, &options, &pid));
    return pid;
}

static void turn(filch_sched *sched, int32_t workers)
{
    if (workers < 0) ok(filch_tick(sched, 0, NULL));
}

/* Stops the scheduler with this deadline and these flags; all other options have their defaults. */
static filch_err stop_with(filch_sched *sched, uint64_t deadline_ns, uint32_t flags, filch_report *report)
{
    filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    options.deadline_ns = deadline_ns;
    options.flags = flags;
    return filch_sched_stop_with(sched, &options, report);
}

/* ---- processes read their messages before the cancel of a stop ---- */

/* Reads messages until a cancel arrives. Ends on a cancel even if it has other events, as filch.h requires. */
static filch_err reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    bool is_cancelled = false;
    (void)self;
    fli_add_rlx(&seen.steps, 1);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) {
            fli_add_rlx(&seen.cancels, 1);
            fli_store_rlx(&seen.before_cancel, fli_load_rlx(&seen.read));
            is_cancelled = true;
        }
        if (events[i].type == FILCH_EVENT_MESSAGE) fli_add_rlx(&seen.read, 1);
    }
    return is_cancelled ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type reader = { .name = "reader", .step = reader_step };

TEST(a_thousand_queued_messages_are_read_before_the_cancel)
{
    static const uint32_t batches[] = { 0, 1, 2, 1024 };
    EACH_WORKER_COUNT(w)
    {
        for (int b = 0; b < 4; b++) {
            filch_sched *sched = begin_with(worker_counts[w], batches[b]);
            filch_pid    pid = start(sched, &reader, filch_none());
            for (int i = 0; i < MESSAGES; i++)
                ok(filch_send(sched, pid, i % 3 == 0 ? filch_str("more than a value") : filch_int(i)));
            filch_report report = FILCH_REPORT_INIT;
            ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
            same(fli_load_rlx(&seen.before_cancel), MESSAGES);
            same(fli_load_rlx(&seen.cancels), 1);
            assert_true(report.unread == 0 && report.loss_count == 0 && report.ended == 1);
            filch_report_free(&report);
            test_alloc_balanced(&seen.alloc);
        }
    }
}

/* Reports that its step has begun, then stays in the step until the test releases it. Messages sent in that time stay
 * queued. */
static filch_err held_reader_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (fli_load_rlx(&seen.steps) == 0) {
        fli_store_rel(&seen.inside, true);
        while (!fli_load_acq(&seen.release)) yield_slice();
    }
    return reader_step(self, events, count, out);
}

static const filch_type held_reader = { .name = "held reader", .step = held_reader_step };

static filch_sched *queue_up(uint32_t batch_max, filch_pid *pid)
{
    filch_sched *sched = begin_with(1, batch_max);
    *pid = start(sched, &held_reader, filch_none());
    until(fli_load_acq(&seen.inside));
    for (int i = 0; i < MESSAGES; i++) ok(filch_send(sched, *pid, filch_int(i)));
    return sched;
}

typedef struct stopping {
    filch_sched *sched;
    uint64_t     deadline_ns, patience_ns;
    uint32_t     flags;
    filch_err    err;
    filch_report report;
    fli_thread   thread;
} stopping;

static void stop_in_background(void *arg)
{
    stopping          *s = arg;
    filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    options.deadline_ns = s->deadline_ns;
    options.patience_ns = s->patience_ns;
    options.flags = s->flags;
    s->report = (filch_report)FILCH_REPORT_INIT;
    s->err = filch_sched_stop_with(s->sched, &options, &s->report);
}

/* Begins a stop on another thread. Returns when the stop has begun: the scheduler refuses calls of foreign threads. */
static void stop_begin(stopping *s)
{
    s->flags |= FILCH_STOP_KEEP;
    ok(fli_thread_start(&s->thread, "stopper", stop_in_background, s));
    until(filch_sched_stopping(s->sched));
}

static filch_err stop_end(stopping *s)
{
    fli_thread_join(&s->thread);
    return s->err;
}

static void stop_over(stopping *s)
{
    filch_report_free(&s->report);
    ok(filch_sched_stop(s->sched, 0, NULL));
    test_alloc_balanced(&seen.alloc);
}

TEST(a_cancel_that_overtakes_messages_counts_them_as_unread)
{
    filch_pid pid;
    stopping  s = { .sched = queue_up(8, &pid), .deadline_ns = FILCH_SECONDS(60), .flags = FILCH_STOP_CANCEL_FIRST };
    stop_begin(&s);
    fli_store_rel(&seen.release, true);
    same(stop_end(&s), FILCH_OK);
    uint64_t read = fli_load_rlx(&seen.read);
    assert_true(fli_load_rlx(&seen.before_cancel) == 0);
    same(s.report.unread, MESSAGES - read);
    same(s.report.loss_count, 1);
    same(s.report.losses[0].pid.serial, pid.serial);
    same(s.report.losses[0].unread, MESSAGES - read);
    assert_string_equal(s.report.losses[0].name, "held reader");
    stop_over(&s);
}

TEST(filch_cancel_overtakes_messages_also_during_a_stop)
{
    filch_pid pid;
    stopping  s = { .sched = queue_up(8, &pid), .deadline_ns = FILCH_SECONDS(60) };
    stop_begin(&s);
    ok(filch_cancel(s.sched, pid));
    fli_store_rel(&seen.release, true);
    same(stop_end(&s), FILCH_OK);
    same(fli_load_rlx(&seen.before_cancel), 0);
    same(fli_load_rlx(&seen.read) + s.report.unread, MESSAGES);
    stop_over(&s);
}

/* Cancels itself when it has read one message. The stop has already queued a cancel behind the messages; the process's
 * own cancel makes the runtime deliver the queued cancel at once. */
static filch_err impatient_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    if (fli_load_rlx(&seen.read) == 1) ok(filch_cancel(filch_out_sched(out), filch_ctx_self(filch_out_ctx(out))));
    return held_reader_step(self, events, count, out);
}

TEST(a_cancel_during_a_drain_advances_the_cancel_behind_the_messages)
{
    static const filch_type impatient = { .name = "impatient", .step = impatient_step };
    filch_sched            *sched = begin_with(1, 1);
    filch_pid               pid = start(sched, &impatient, filch_none());
    until(fli_load_acq(&seen.inside));
    for (int i = 0; i < MESSAGES; i++) ok(filch_send(sched, pid, filch_int(i)));
    stopping s = { .sched = sched, .deadline_ns = FILCH_SECONDS(60) };
    stop_begin(&s);
    fli_store_rel(&seen.release, true);
    same(stop_end(&s), FILCH_OK);
    same(fli_load_rlx(&seen.cancels), 1);
    assert_true(fli_load_rlx(&seen.before_cancel) <= 2);
    same(fli_load_rlx(&seen.read) + s.report.unread, MESSAGES);
    stop_over(&s);
}

/* State of a process that counts its messages and does not use them. Its close function reports their number in
 * several calls of filch_close_unread(). */
typedef struct keeper {
    filch_sched *sched;
    uint64_t     kept;
} keeper;

static filch_err keeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    keeper *k = self;
    bool    is_cancelled = false;
    k->sched = filch_out_sched(out);
    same(filch_close_unread(k->sched, 1), FILCH_ESTATE);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) is_cancelled = true;
        if (events[i].type == FILCH_EVENT_MESSAGE) k->kept++;
    }
    fli_store_rel(&seen.read, k->kept);
    return is_cancelled ? filch_done(out, filch_none()) : filch_idle(out);
}

static void keeper_close(void *self)
{
    const keeper *k = self;
    ok(filch_close_unread(k->sched, 1));
    ok(filch_close_unread(k->sched, 0));
    ok(filch_close_unread(k->sched, k->kept - 1));
}

TEST(messages_that_a_process_got_and_did_not_use_are_counted_as_unread)
{
    static const filch_type keeping = {
        .name = "keeper", .size = sizeof(keeper), .step = keeper_step, .close = keeper_close
    };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        filch_pid    early = start(sched, &keeping, filch_none());
        filch_stats  stats = FILCH_STATS_INIT;
        for (int i = 0; i < 3; i++) ok(filch_send(sched, early, filch_int(i)));
        turn(sched, worker_counts[w]);
        until(fli_load_acq(&seen.read) == 3);
        ok(filch_cancel(sched, early));
        turn(sched, worker_counts[w]);
        until(filch_sched_stats(sched, &stats) == FILCH_OK && stats.ended == 1);
        same(stats.undelivered, 3);

        fli_store_rlx(&seen.read, 0);
        filch_pid pid = start(sched, &keeping, filch_none());
        for (int i = 0; i < 5; i++) ok(filch_send(sched, pid, filch_int(i)));
        turn(sched, worker_counts[w]);
        until(fli_load_acq(&seen.read) == 5);
        same(filch_close_unread(sched, 1), FILCH_ESTATE); /* not inside a close */
        filch_report report = FILCH_REPORT_INIT;
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
        same(report.unread, 5); /* the three messages of `early` do not count: it ended before the stop */
        same(report.loss_count, 1);
        same(report.losses[0].pid.serial, pid.serial);
        same(report.losses[0].unread, 5);
        assert_string_equal(report.losses[0].name, "keeper");
        filch_report_free(&report);
        test_alloc_balanced(&seen.alloc);
    }
}

/* Sends itself three messages for each message that it reads, until 3000 were sent. So the mailbox is not empty when
 * the cancel arrives. */
static filch_err self_sender_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        /* the test reuses `seen.read` to count the messages that this step sends */
        for (int k = 0; k < 3 && fli_load_rlx(&seen.read) < 3000; k++) {
            filch_err err = filch_send(filch_out_sched(out), filch_ctx_self(filch_out_ctx(out)), filch_int(k));
            if (err != FILCH_OK) return err;
            fli_add_rlx(&seen.read, 1);
        }
    }
    return filch_idle(out);
}

TEST(messages_sent_after_the_cancel_of_a_drain_do_not_delay_it)
{
    static const filch_type self_sender = { .name = "self_sender", .step = self_sender_step };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin_with(worker_counts[w], 4);
        filch_pid    pid = start(sched, &self_sender, filch_none());
        ok(filch_send(sched, pid, filch_int(0)));
        filch_report report = FILCH_REPORT_INIT;
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
        same(report.ended, 1);
        filch_report_free(&report);
        test_alloc_balanced(&seen.alloc);
    }
}

/* ---- stop while a process waits for a yield ---- */

/* The process waits for its HOLD yield, then reads messages. It ends on a cancel. */
static filch_err waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *began = self;
    if (*began == 0) {
        *began = 1;
        ok(filch_yield(out, HOLD, 7, filch_none()));
        return filch_wait(out);
    }
    return reader_step(self, events, count, out);
}

static const filch_type waiter = { .name = "waiter", .size = sizeof(uint64_t), .step = waiter_step };

static filch_sched *waiter_with_mail(int32_t workers, int messages)
{
    filch_sched *sched = begin(workers);
    filch_pid    pid = start(sched, &waiter, filch_none());
    turn(sched, workers);
    until(fli_load_acq(&seen.held));
    for (int i = 0; i < messages; i++) ok(filch_send(sched, pid, filch_int(i)));
    return sched;
}

TEST(a_waiting_process_gets_its_completion_its_messages_then_the_cancel)
{
    EACH_WORKER_COUNT(w)
    {
        stopping s = { .sched = waiter_with_mail(worker_counts[w], MESSAGES),
                       .deadline_ns = FILCH_SECONDS(60),
                       .patience_ns = FILCH_FOREVER };
        stop_begin(&s);
        ok(filch_complete(seen.receiver, 7, filch_none(), FILCH_OK));
        same(stop_end(&s), FILCH_OK);
        same(fli_load_rlx(&seen.before_cancel), MESSAGES);
        same(s.report.unread, 0);
        stop_over(&s);
    }
}

TEST(a_waiting_process_without_completion_is_cancelled_after_patience_ns)
{
    EACH_WORKER_COUNT(w)
    {
        stopping s = { .sched = waiter_with_mail(worker_counts[w], MESSAGES),
                       .deadline_ns = FILCH_SECONDS(60),
                       .patience_ns = FILCH_MILLISECONDS(20) };
        stop_begin(&s);
        same(stop_end(&s), FILCH_OK);
        same(fli_load_rlx(&seen.cancels), 1);
        same(fli_load_rlx(&seen.before_cancel), 0);
        same(fli_load_rlx(&seen.read) + s.report.unread, MESSAGES);
        stop_over(&s);
    }
}

TEST(a_waiting_process_without_messages_is_cancelled_at_once_without_a_deadline)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = waiter_with_mail(worker_counts[w], 0);
        ok(filch_sched_stop(sched, FILCH_FOREVER, NULL));
        same(fli_load_rlx(&seen.cancels), 1);
        test_alloc_balanced(&seen.alloc);
    }
}

/* ---- options ---- */

TEST(a_drain_with_no_time_forces_and_counts)
{
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = waiter_with_mail(worker_counts[w], MESSAGES);
        filch_report report = FILCH_REPORT_INIT;
        same(filch_sched_stop(sched, 0, &report), FILCH_EDEADLINE);
        same(report.forced, 1);
        same(fli_load_rlx(&seen.read) + report.unread, MESSAGES);
        filch_report_free(&report);
        test_alloc_balanced(&seen.alloc);
    }
}

TEST(invalid_stop_options_are_refused_and_change_nothing)
{
    struct {
        filch_stop_options known;
        uint64_t           more;
    } newer = { .known = FILCH_STOP_OPTIONS_INIT };
    filch_sched       *sched = begin(1);
    filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    same(filch_sched_stop_with(sched, NULL, NULL), FILCH_EINVAL);
    same(filch_sched_stop_with(NULL, &options, NULL), FILCH_EINVAL);
    same(stop_with(sched, 0, FILCH_STOP_ALL + 1, NULL), FILCH_EINVAL);
    options.spare = 1;
    same(filch_sched_stop_with(sched, &options, NULL), FILCH_EINVAL);
    options = (filch_stop_options)FILCH_STOP_OPTIONS_INIT;
    options.size = 1;
    same(filch_sched_stop_with(sched, &options, NULL), FILCH_EINVAL);
    newer.known.size = sizeof newer;
    newer.more = 1;
    same(filch_sched_stop_with(sched, &newer.known, NULL), FILCH_EINVAL);
    assert_false(filch_sched_stopping(sched));
    assert_false(filch_sched_stopping(NULL));
    newer.more = 0;
    newer.known.flags = FILCH_STOP_KEEP;
    ok(filch_sched_stop_with(sched, &newer.known, NULL));
    assert_true(filch_sched_stopping(sched));
    ok(filch_sched_stop(sched, 0, NULL));
    test_alloc_balanced(&seen.alloc);
}

/* Case: the caller was compiled with the first version of filch_report, which has no counts of messages and jobs. */
TEST(a_caller_with_the_first_version_of_the_report_gets_its_fields)
{
    union {
        filch_report report;
        uint8_t      bytes[sizeof(filch_report)];
    } u;
    size_t    first = offsetof(filch_report, terminated);
    filch_pid pid;
    stopping  s = { .sched = queue_up(8, &pid), .deadline_ns = FILCH_SECONDS(60), .flags = FILCH_STOP_CANCEL_FIRST };
    stop_begin(&s);
    fli_store_rel(&seen.release, true);
    same(stop_end(&s), FILCH_OK);
    stop_over(&s);
    filch_sched *sched = waiter_with_mail(1, 3);
    memset(&u, 0xa5, sizeof u);
    u.report.size = first;
    same(filch_sched_stop(sched, 0, &u.report), FILCH_EDEADLINE);
    assert_true(u.report.size == first && u.report.forced == 1 && u.report.count == 1);
    for (size_t i = first; i < sizeof u; i++) same(u.bytes[i], 0xa5);
    filch_report_free(&u.report);
    for (size_t i = first; i < sizeof u; i++) same(u.bytes[i], 0xa5);
    assert_true(u.report.stragglers == NULL && u.report.size == first);
    test_alloc_balanced(&seen.alloc);
}

/* ---- supervision ---- */

static uint32_t ends_of[8];

/* A supervised child; its args are its number. The child ends one step after its cancel: if a sibling were cancelled at
 * the same time, the sibling would end first. */
typedef struct child {
    int64_t number, stage;
} child;

static filch_err child_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    ((child *)self)->number = filch_as_int(args);
    fli_add_rlx(&seen.spawned, 1);
    return FILCH_OK;
}

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    child *me = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) fli_add_rlx(&seen.read, 1);
        if (events[i].type == FILCH_EVENT_YIELD) {
            ends_of[me->number] = fli_add_rlx(&seen.order, 1) + 1;
            return filch_done(out, filch_none());
        }
        if (events[i].type == FILCH_EVENT_CANCEL) {
            fli_add_rlx(&seen.cancels, 1);
            me->stage = 1;
            filch_err err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS(2));
            if (err != FILCH_OK) return err;
        }
        /* A message -1 that arrives before the cancel makes the child fail. */
        if (me->stage == 0 && filch_as_int(&events[i].data) == -1) return FILCH_EUSER;
    }
    return filch_idle(out);
}

static const filch_type child_type = { .name = "child", .size = sizeof(child), .init = child_init, .step = child_step };

#define CHILD(n)                                                                       \
    &(const filch_spawn_options)                                                       \
    {                                                                                  \
        .size = sizeof(filch_spawn_options), .args = FILCH_INT_INIT(n), .name = "c" #n \
    }

static void send_children(filch_sched *sched, int from, int to, int messages)
{
    for (int n = from; n <= to; n++) {
        char      name[8];
        filch_pid pid;
        snprintf(name, sizeof name, "c%d", n);
        until(filch_whereis(sched, name, &pid) == FILCH_OK);
        for (int i = 0; i < messages; i++) ok(filch_send(sched, pid, filch_int(i)));
    }
}

TEST(stop_ends_children_in_reverse_order_after_their_messages)
{
    const filch_child      inner_specs[] = { { .id = "3", .type = &child_type, .options = CHILD(3) },
                                             { .id = "4", .type = &child_type, .options = CHILD(4) } };
    const filch_supervisor inner = { .children = inner_specs, .child_count = 2 };
    const filch_child      child_specs[] = { { .id = "1", .type = &child_type, .options = CHILD(1) },
                                             { .id = "2", .type = &child_type, .options = CHILD(2) },
                                             { .id = "in", .supervisor = &inner },
                                             { .id = "5", .type = &child_type, .options = CHILD(5) } };
    const filch_supervisor tree = { .children = child_specs, .child_count = 4 };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin_with(worker_counts[w], 4);
        memset(ends_of, 0, sizeof ends_of);
        ok(filch_supervise(sched, &tree, NULL, NULL));
        while (worker_counts[w] < 0 && fli_load_rlx(&seen.spawned) < 5) turn(sched, worker_counts[w]);
        send_children(sched, 1, 5, 100);
        filch_report report = FILCH_REPORT_INIT;
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), &report));
        for (uint32_t n = 1; n <= 5; n++) same(ends_of[n], 6 - n);
        same(fli_load_rlx(&seen.read), 500);
        same(fli_load_rlx(&seen.cancels), 5);
        assert_true(report.unread == 0 && report.ended == 7 && report.terminated == 0);
        filch_report_free(&report);
        test_alloc_balanced(&seen.alloc);
    }
}

TEST(during_a_stop_a_failed_child_and_its_siblings_are_not_restarted)
{
    const filch_child      child_specs[] = { { .id = "1", .type = &child_type, .options = CHILD(1) },
                                             { .id = "2", .type = &child_type, .options = CHILD(2) },
                                             { .id = "h", .type = &held_reader } };
    const filch_supervisor tree = { .strategy = FILCH_ONE_FOR_ALL, .children = child_specs, .child_count = 3 };
    filch_sched           *sched = begin(2);
    memset(ends_of, 0, sizeof ends_of);
    ok(filch_supervise(sched, &tree, NULL, NULL));
    /* a supervisor stops its last child first: while child "h" stays inside a step, the siblings are not cancelled */
    until(fli_load_acq(&seen.inside));
    stopping  s = { .sched = sched, .deadline_ns = FILCH_SECONDS(60) };
    filch_pid first;
    ok(filch_whereis(sched, "c1", &first));
    stop_begin(&s);
    ok(filch_terminate(sched, first));
    filch_info info = { .size = sizeof info };
    until(filch_inspect(sched, first, &info) == FILCH_EDEAD);
    fli_store_rel(&seen.release, true);
    same(stop_end(&s), FILCH_OK);
    same(fli_load_rlx(&seen.spawned), 2);
    same(ends_of[2], 1);
    assert_true(s.report.terminated == 1 && s.report.ended == 4);
    stop_over(&s);
}

/* A supervisor written by a user: ends without cancelling its child. The child is not linked with the supervisor. */
static filch_err careless_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *begun = self;
    if (*begun == 0) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        *begun = 1;
        options.relations = FILCH_SPAWN_SUPERVISED;
        same(filch_spawn(filch_out_sched(out), &reader, &options, NULL), FILCH_EINVAL);
        options.relations |= FILCH_SPAWN_MONITOR;
        ok(filch_spawn(filch_out_sched(out), &reader, &options, NULL));
        fli_store_rel(&seen.inside, true);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_CANCEL) continue;
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.relations = FILCH_SPAWN_SUPERVISED | FILCH_SPAWN_MONITOR;
        fli_store_rlx(&seen.code, filch_spawn(filch_out_sched(out), &reader, &options, NULL));
        return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

TEST(a_child_whose_supervisor_has_ended_is_cancelled_by_the_stop)
{
    static const filch_type careless = { .name = "careless", .size = sizeof(uint64_t), .step = careless_step };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        (void)start(sched, &careless, filch_none());
        turn(sched, worker_counts[w]);
        until(fli_load_acq(&seen.inside));
        filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
        options.deadline_ns = FILCH_SECONDS(30);
        /* patience_ns has no limit: the child is cancelled only if the stop sets the child's ASK (see stop.c) again */
        options.patience_ns = FILCH_FOREVER;
        ok(filch_sched_stop_with(sched, &options, NULL));
        same(fli_load_rlx(&seen.cancels), 1);
        same(fli_load_rlx(&seen.code), FILCH_ECLOSED);
        test_alloc_balanced(&seen.alloc);
    }
}

/* The process sends each message back to its sender. It ends on a cancel. */
static filch_err echo_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++)
        if (events[i].type == FILCH_EVENT_MESSAGE) ok(filch_send(filch_out_sched(out), events[i].from, events[i].data));
    return reader_step(self, events, count, out);
}

static const filch_type echo = { .name = "echo", .step = echo_step };

/* Step of a supervisor that, when it is cancelled, sends a message to its child and ends only after the answer. Without
 * workers the stop sets ASK (the flag that requests a cancel, proc/state.h) for all processes before it runs a step. So
 * before the supervisor ends, the child has been stepped with ASK, and the stop has left the child's cancel to the
 * supervisor. */
static filch_err slow_supervisor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_pid *to = self;
    if (to->serial == 0) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        /* In the list of relations, name and link precede the monitor by which the stop finds the supervisor. */
        options.relations = FILCH_SPAWN_SUPERVISED | FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK;
        options.name = "child";
        ok(filch_spawn(filch_out_sched(out), &echo, &options, to));
        fli_store_rel(&seen.inside, true);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) ok(filch_send(filch_out_sched(out), *to, filch_int(1)));
        if (events[i].type == FILCH_EVENT_MESSAGE) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

TEST(a_child_asked_before_its_supervisor_ends_is_cancelled_by_the_stop)
{
    static const filch_type slow = { .name = "slow", .size = sizeof(filch_pid), .step = slow_supervisor_step };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        (void)start(sched, &slow, filch_none());
        turn(sched, worker_counts[w]);
        until(fli_load_acq(&seen.inside));
        filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
        options.deadline_ns = FILCH_SECONDS(30);
        /* patience_ns has no limit: the child is cancelled only if the stop sets the child's ASK (see stop.c) again */
        options.patience_ns = FILCH_FOREVER;
        ok(filch_sched_stop_with(sched, &options, NULL));
        same(fli_load_rlx(&seen.read), 1);
        same(fli_load_rlx(&seen.cancels), 1);
        test_alloc_balanced(&seen.alloc);
    }
}

enum { LINKED = 80 }; /* more links than a process has without an index of its links */

/* Spawns LINKED readers that are linked with it. After its cancel it ends when 2 * LINKED readers have been cancelled.
 */
static filch_err parent_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    bool *begun = self;
    for (int n = 0; !*begun && n < LINKED; n++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.relations = FILCH_SPAWN_LINK;
        ok(filch_spawn(filch_out_sched(out), &reader, &options, NULL));
        fli_add_rel(&seen.spawned, 1);
    }
    *begun = true;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_CANCEL && events[i].type != FILCH_EVENT_YIELD) continue;
        if (fli_load_rlx(&seen.cancels) == 2 * LINKED) return filch_done(out, filch_none());
        filch_err err = filch_yield_sleep(out, 1, FILCH_MILLISECONDS(1));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

/* Two processes with many links are linked with each other, so one of them gets an index of its links. Regression: the
 * stop took the mark of an indexed link for the mark of a supervisor's monitor. So the stop did not cancel the readers:
 * it left their cancel to a supervisor, but the readers have no supervisor. */
TEST(processes_linked_with_a_process_of_many_links_are_cancelled_by_the_stop)
{
    static const filch_type parent = { .name = "parent", .size = sizeof(bool), .step = parent_step };
    EACH_WORKER_COUNT(w)
    {
        filch_sched *sched = begin(worker_counts[w]);
        filch_pid    first = start(sched, &parent, filch_none()), second = start(sched, &parent, filch_none());
        turn(sched, worker_counts[w]);
        until(fli_load_acq(&seen.spawned) == 2 * LINKED);
        ok(filch_link(sched, first, second));
        ok(stop_with(sched, FILCH_SECONDS(10), 0, NULL));
        same(fli_load_rlx(&seen.cancels), 2 * LINKED);
        test_alloc_balanced(&seen.alloc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_queued_messages_are_read_before_the_cancel),
        cmocka_unit_test(a_cancel_that_overtakes_messages_counts_them_as_unread),
        cmocka_unit_test(messages_that_a_process_got_and_did_not_use_are_counted_as_unread),
        cmocka_unit_test(filch_cancel_overtakes_messages_also_during_a_stop),
        cmocka_unit_test(a_cancel_during_a_drain_advances_the_cancel_behind_the_messages),
        cmocka_unit_test(messages_sent_after_the_cancel_of_a_drain_do_not_delay_it),
        cmocka_unit_test(a_waiting_process_gets_its_completion_its_messages_then_the_cancel),
        cmocka_unit_test(a_waiting_process_without_completion_is_cancelled_after_patience_ns),
        cmocka_unit_test(a_waiting_process_without_messages_is_cancelled_at_once_without_a_deadline),
        cmocka_unit_test(a_drain_with_no_time_forces_and_counts),
        cmocka_unit_test(invalid_stop_options_are_refused_and_change_nothing),
        cmocka_unit_test(a_caller_with_the_first_version_of_the_report_gets_its_fields),
        cmocka_unit_test(stop_ends_children_in_reverse_order_after_their_messages),
        cmocka_unit_test(during_a_stop_a_failed_child_and_its_siblings_are_not_restarted),
        cmocka_unit_test(a_child_whose_supervisor_has_ended_is_cancelled_by_the_stop),
        cmocka_unit_test(a_child_asked_before_its_supervisor_ends_is_cancelled_by_the_stop),
        cmocka_unit_test(processes_linked_with_a_process_of_many_links_are_cancelled_by_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
