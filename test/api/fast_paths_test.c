/* fast_paths_test.c - the fast paths of spawn, send, yield and complete. A case that misses the precondition of a fast
 * path must have the result of the slow path; the tests take each branch between the two. There are no workers, so that
 * every branch can be forced. */
#include "api/fixture.h"

enum { KEEP = FILCH_CMD_USER, COMPLETE, OTHERS, WRONG_TAG, CHILD, TO_NO_SCHEDULER, FIRST };

static fixture        w, other;
static filch_receiver kept;

static void begin(fixture *it, uint32_t batch_max);

/* ---- spawning inside a step ---- */

static struct {
    filch_pid pid;           /* pid that the child with the failing init got */
    uint32_t  inits, closes; /* number of inits and closes of all children */
    uint32_t  spawned;
    filch_err err, method, send_result, limit;
} births;

static filch_err child_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self, (void)method;
    births.inits++;
    if (filch_as_int(args) == 0) return FILCH_OK;
    births.pid = filch_ctx_self(ctx);
    return FILCH_EUSER;
}

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static void child_close(void *self)
{
    (void)self;
    births.closes++;
}

static const filch_type child = {
    .name = "child", .size = 200, .init = child_init, .step = child_step, .close = child_close
};
static const filch_type simple = { .name = "simple", .step = child_step };

static filch_err play_spawns_with_failures(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    /* this spawn leaves spare slots at the worker, so the next spawns take the fast path */
    me->note = filch_spawn(w.sched, &child, NULL, NULL);
    opt.args = filch_int(1);
    births.err = filch_spawn(w.sched, &child, &opt, NULL);
    births.send_result = filch_send(w.sched, births.pid, filch_none());
    opt.args = filch_none();
    opt.method = "none such";
    births.method = filch_spawn(w.sched, &simple, &opt, NULL);
    me->note |= filch_spawn(w.sched, &child, NULL, NULL);
    return filch_idle(out);
}

TEST(a_child_whose_init_fails_inside_a_step_leaks_nothing)
{
    actor a = { 0 };
    memset(&births, 0, sizeof births);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_spawns_with_failures);
    fixture_tick(&w);
    ok(a.note);
    same(births.err, FILCH_EUSER);
    same(births.method, FILCH_EMETHOD);
    same(births.send_result, FILCH_EDEAD);
    filch_info info = { .size = sizeof info };
    same(filch_inspect(w.sched, births.pid, &info), FILCH_EDEAD);
    same(fixture_stats(&w).alive, 3);
    same(births.inits, 3);
    fixture_end(&w);
    same(births.closes, 2);
}

static filch_err play_spawns_until_refused(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    while ((births.limit = filch_spawn(w.sched, &simple, NULL, NULL)) == FILCH_OK) births.spawned++;
    return filch_idle(out);
}

TEST(a_step_spawns_no_more_than_max_processes)
{
    static const uint32_t most[] = { 2, 63, 64, 65, 1000 };
    for (size_t i = 0; i < COUNT_OF(most); i++) {
        actor         a = { 0 };
        filch_options opt = FILCH_OPTIONS_INIT;
        opt.max_processes = most[i];
        memset(&births, 0, sizeof births);
        fixture_begin_with(&w, FILCH_NO_WORKERS, opt);
        actor_start(&w, &a, play_spawns_until_refused);
        fixture_tick(&w);
        same(births.limit, FILCH_ELIMIT);
        same(births.spawned, most[i] - 1);
        fixture_end(&w);
    }
}

/* ---- processes that end in the first step, at the first message, or at an asynchronous completion ---- */

/* What the process does in its last step. */
typedef enum last_action { NOTHING, WRITES_TO_ITSELF, TAKES_A_NAME, YIELDS_SLEEP, ENDS_WITH_TEXT, ACTIONS } last_action;

typedef enum moment { AT_ONCE, AT_A_MESSAGE, AT_A_COMPLETION } moment;

static struct {
    filch_pid pid; /* pid of the last started process */
    moment    when;
    uint32_t  steps, closes, exits;
    size_t    answered; /* size in bytes of the result that on_exit got */
} brief;

static const char answer[] = "an answer that does not fit into a value and has to be freed by somebody";

static filch_err brief_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

static filch_err brief_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_err err = FILCH_OK;
    (void)events;
    brief.steps++;
    if (brief.when == AT_A_MESSAGE && count == 0) return filch_idle(out);
    if (brief.when == AT_A_COMPLETION && count == 0) {
        err = filch_yield(out, KEEP, 1, filch_none());
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    filch_pid pid = filch_ctx_self(filch_out_ctx(out));
    switch (*(int64_t *)self) {
    case WRITES_TO_ITSELF: err = filch_send(w.sched, pid, filch_int(1)); break;
    case TAKES_A_NAME: err = filch_register(w.sched, "brief", pid); break;
    case YIELDS_SLEEP: err = filch_yield(out, FILCH_CMD_SLEEP, 1, filch_int((int64_t)FILCH_SECONDS(1000))); break;
    case ENDS_WITH_TEXT: return filch_done(out, filch_str(answer));
    }
    return err == FILCH_OK ? filch_done(out, filch_none()) : err;
}

static void brief_close(void *self)
{
    (void)self;
    brief.closes++;
}

static void brief_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid;
    brief.exits += error == FILCH_OK;
    if (result->kind == FILCH_KIND_TEXT) brief.answered = filch_size(result);
}

static const filch_type brief_type = { .name = "brief", .size = 8, .init = brief_init, .step = brief_step };
static const filch_type large_type = { .name = "large", .size = 100, .init = brief_init, .step = brief_step };
static const filch_type tidy_type = {
    .name = "tidy", .size = 8, .init = brief_init, .step = brief_step, .close = brief_close
};

static filch_err play_spawns_short_lived(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const filch_type   *types[] = { &brief_type, &large_type, &tidy_type };
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    if (has_cancel(events, count) || me->stage == 12) return play_idle(me, events, count, out);
    /* The child spawned last must run its first step before it can get its message or completion. It has run this step
     * when brief.steps is me->stage, because each earlier child has run two steps. */
    if (brief.when != AT_ONCE && me->stage % 2 == 1 && brief.steps < (uint32_t)me->stage) return filch_continue(out);
    if (me->stage % 2 == 1) {
        if (brief.when == AT_A_MESSAGE) me->note |= filch_send(w.sched, brief.pid, filch_int(1));
        if (brief.when == AT_A_COMPLETION) me->note |= filch_complete(kept, 1, filch_str(answer), FILCH_OK);
    } else {
        opt.args = filch_int((int64_t)(intptr_t)me->user);
        opt.on_exit = me->stage >= 6 ? brief_exit : NULL;
        me->note |= filch_spawn(w.sched, types[me->stage / 2 % 3], &opt, &brief.pid);
    }
    me->stage++;
    return filch_continue(out);
}

static void end_after_each_action(moment when)
{
    for (intptr_t action = NOTHING; action < ACTIONS; action++) {
        actor     a = { .user = (void *)action };
        filch_pid found;
        memset(&brief, 0, sizeof brief);
        brief.when = when;
        begin(&w, 0);
        actor_start(&w, &a, play_spawns_short_lived);
        fixture_tick(&w);
        ok(a.note);
        filch_stats stats = fixture_stats(&w);
        same(stats.alive, 1);
        same(stats.ended, 6);
        same(stats.failed, 0);
        same(stats.undelivered, action == WRITES_TO_ITSELF ? 6 : 0);
        same(brief.steps, when == AT_ONCE ? 6 : 12);
        same(brief.closes, 2);
        same(brief.exits, 3);
        same(brief.answered, action == ENDS_WITH_TEXT ? sizeof answer - 1 : 0);
        same(filch_send(w.sched, brief.pid, filch_int(1)), FILCH_EDEAD);
        same(filch_whereis(w.sched, "brief", &found), FILCH_EDEAD);
        fixture_end(&w);
    }
}

TEST(a_process_may_end_in_its_first_step)
{
    end_after_each_action(AT_ONCE);
}

TEST(a_process_may_end_at_its_first_message)
{
    end_after_each_action(AT_A_MESSAGE);
}

TEST(a_process_may_end_at_an_asynchronous_completion)
{
    end_after_each_action(AT_A_COMPLETION);
}

/* ---- synchronous completions ---- */

static filch_err call_result;

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    switch (command->id) {
    case KEEP: kept = receiver; return FILCH_OK;
    /* The handler first completes the receiver `kept` of another yield, then its own receiver. If `kept` belongs to
     * another scheduler, both receivers have the same key. */
    case OTHERS:
        call_result = filch_complete(kept, kept.tag, filch_int(1), FILCH_OK);
        return filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    case WRONG_TAG:
        call_result = filch_complete(receiver, tag + 1, filch_int(1), FILCH_OK);
        return filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    case FIRST: /* the handler completes its own receiver first, then the receiver `kept` */
        call_result = filch_complete(receiver, tag, filch_int(2), FILCH_OK);
        return filch_complete(kept, kept.tag, filch_int(1), FILCH_OK);
    case CHILD:
        call_result = filch_spawn(receiver.sched, &simple, NULL, NULL);
        return filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    case TO_NO_SCHEDULER:
        call_result = filch_send(NULL, command->from, filch_int(1));
        return filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    default: return filch_complete(receiver, tag, filch_int(2), FILCH_OK);
    }
}

static void begin(fixture *it, uint32_t batch_max)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&opt.registry));
    for (uint32_t id = KEEP; id <= FIRST; id++) ok(filch_registry_add(opt.registry, id, handle, NULL));
    opt.batch_max = batch_max;
    fixture_begin_with(it, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
    call_result = FILCH_OK;
}

/* Makes a yield of the command that `user` points to, with tag 5, and waits for the completion. */
static filch_err play_yields(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_yield(out, *(const uint32_t *)me->user, 5, filch_none());
    return filch_wait(out);
}

static void start_yielder(fixture *it, actor *a, const uint32_t *command)
{
    *a = (actor){ .user = (void *)(uintptr_t)command };
    actor_start(it, a, play_yields);
    fixture_tick(it);
    ok(a->note);
}

static void check_completed(const actor *a, int64_t number)
{
    same(a->seen_count, 1);
    same(a->seen[0].type, FILCH_EVENT_YIELD);
    same(a->seen[0].tag, 5);
    same(a->seen[0].number, number);
}

TEST(a_completion_goes_to_its_scheduler_though_another_has_an_equal_key)
{
    static const uint32_t keep = KEEP, others = OTHERS;
    actor                 own, there;
    begin(&w, 0);
    begin(&other, 0);
    start_yielder(&other, &there, &keep);
    same(there.seen_count, 0);
    /* each of the two processes makes the first yield of its scheduler, so the keys of both yields are equal */
    start_yielder(&w, &own, &others);
    ok(call_result);
    fixture_tick(&other);
    check_completed(&own, 2);
    check_completed(&there, 1);
    fixture_end(&w);
    fixture_end(&other);
}

TEST(a_handler_may_complete_another_yield_before_its_own)
{
    static const uint32_t keep = KEEP, others = OTHERS;
    actor                 first, second;
    begin(&w, 0);
    start_yielder(&w, &first, &keep);
    start_yielder(&w, &second, &others);
    ok(call_result);
    check_completed(&first, 1);
    check_completed(&second, 2);
    fixture_end(&w);
}

static filch_err play_yields_twice(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_yield(out, KEEP, 4, filch_none());
    me->note |= filch_yield(out, FIRST, 5, filch_none());
    return filch_wait(out);
}

TEST(completions_made_by_one_handler_arrive_in_their_order)
{
    actor a = { 0 };
    begin(&w, 0);
    actor_start(&w, &a, play_yields_twice);
    fixture_tick(&w);
    ok(a.note);
    ok(call_result);
    same(a.seen_count, 2);
    same(a.seen[0].tag, 5);
    same(a.seen[0].number, 2);
    same(a.seen[1].tag, 4);
    same(a.seen[1].number, 1);
    same(fixture_stats(&w).completions, 2);
    fixture_end(&w);
}

TEST(a_completion_with_a_wrong_tag_is_refused)
{
    static const uint32_t wrong = WRONG_TAG;
    actor                 a;
    begin(&w, 0);
    start_yielder(&w, &a, &wrong);
    same(call_result, FILCH_EINVAL);
    check_completed(&a, 2);
    same(fixture_stats(&w).completions, 1);
    fixture_end(&w);
}

TEST(a_handler_may_spawn)
{
    static const uint32_t spawns = CHILD;
    actor                 a;
    begin(&w, 0);
    start_yielder(&w, &a, &spawns);
    ok(call_result);
    check_completed(&a, 2);
    same(fixture_stats(&w).alive, 2);
    fixture_end(&w);
}

TEST(a_send_without_a_scheduler_in_a_handler_is_refused)
{
    static const uint32_t astray = TO_NO_SCHEDULER;
    actor                 first, second;
    begin(&w, 0);
    /* `first` leaves spare nodes at the worker, so that `second` takes the fast path */
    start_yielder(&w, &first, &astray);
    start_yielder(&w, &second, &astray);
    same(call_result, FILCH_EINVAL);
    check_completed(&second, 2);
    fixture_end(&w);
}

/* ---- steps that get a single event ---- */

static filch_err play_sends_to_itself(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (count > 0 && me->stage++ < 3) me->note |= filch_send(w.sched, me->pid, filch_int(me->stage));
    return filch_idle(out);
}

/* Pids to which the writer sends, with the results. The first and the last pid belong to a live process; the other pids
 * differ from it in a few bits. */
static struct {
    filch_pid to[8];
    filch_err call_result[8];
} sends;

static filch_err play_writes_to_all(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0) return filch_idle(out);
    if (events[0].type != FILCH_EVENT_MESSAGE) return play_idle(me, events, count, out);
    for (size_t i = 0; i < COUNT_OF(sends.to); i++)
        sends.call_result[i] = filch_send(w.sched, sends.to[i], filch_int(7));
    return filch_idle(out);
}

TEST(a_send_in_a_step_to_an_invalid_pid_returns_edead)
{
    actor writer = { 0 }, reader = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &reader, play_idle);
    actor_start(&w, &writer, play_writes_to_all);
    fixture_tick(&w);
    filch_pid pid = reader.pid;
    sends.to[0] = pid; /* a valid pid; this send leaves spare nodes at the worker for the next sends */
    sends.to[1] = (filch_pid){ pid.node, pid.serial ^ (UINT64_C(3) << 32) }; /* another generation */
    sends.to[2] = (filch_pid){ pid.node, (uint32_t)pid.serial };             /* a pid of generation 0 */
    sends.to[3] = (filch_pid){ pid.node, pid.serial + (UINT64_C(1) << 57) }; /* generation too large */
    /* the pid that the next process in this slot will have */
    sends.to[4] = (filch_pid){ pid.node, pid.serial + (UINT64_C(1) << 32) };
    sends.to[5] = (filch_pid){ pid.node, (pid.serial & ~(uint64_t)UINT32_MAX) }; /* a pid of slot 0 */
    sends.to[6] = (filch_pid){ pid.node, pid.serial | UINT32_MAX };              /* slot never allocated */
    sends.to[7] = pid;
    ok(filch_send(w.sched, writer.pid, filch_none()));
    fixture_tick(&w);
    for (size_t i = 1; i < 7; i++) same(sends.call_result[i], FILCH_EDEAD);
    ok(sends.call_result[0]);
    ok(sends.call_result[7]);
    same(reader.seen_count, 2);
    same(reader.seen[0].number, 7);
    assert_true(same_pid(reader.seen[0].from, writer.pid));
    fixture_end(&w);
}

/* The process yields and waits. A message is sent to it before the completion. */
TEST(a_message_before_an_awaited_completion_is_delivered_after_it)
{
    static const uint32_t keep = KEEP;
    actor                 yielder, writer = { 0 };
    begin(&w, 0);
    start_yielder(&w, &yielder, &keep);
    actor_start(&w, &writer, play_writes_to_all);
    fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(sends.to); i++) sends.to[i] = yielder.pid;
    ok(filch_send(w.sched, writer.pid, filch_none()));
    fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(sends.to); i++) ok(sends.call_result[i]);
    same(yielder.seen_count, 0);
    ok(filch_complete(kept, kept.tag, filch_int(1), FILCH_OK));
    fixture_tick(&w);
    same(yielder.seen_count, 1 + COUNT_OF(sends.to));
    same(yielder.seen[0].type, FILCH_EVENT_YIELD);
    for (size_t i = 1; i < yielder.seen_count; i++) same(yielder.seen[i].type, FILCH_EVENT_MESSAGE);
    fixture_end(&w);
}

/* The process yields and waits. At the asynchronous completion it does what `user` selects; then it reads its events
 * and idles. */
enum { IDLES, SENDS_TO_ITSELF, YIELDS_AGAIN, GOES_ON, YIELDS_TWO };

static filch_err play_async_completion(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_err err = FILCH_OK;
    intptr_t  then = (intptr_t)me->user;
    int64_t   stage = me->stage++;
    if (stage == 0 || (stage < 3 && then == YIELDS_AGAIN)) {
        err = filch_yield(out, KEEP, 5, filch_none());
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    if (stage == 1 && then == SENDS_TO_ITSELF) me->note |= filch_send(w.sched, me->pid, filch_int(7));
    if (stage == 1 && then == GOES_ON) return filch_continue(out);
    if (stage == 1 && then == YIELDS_TWO) {
        me->note |= filch_yield(out, COMPLETE, 6, filch_none());
        me->note |= filch_yield(out, KEEP, 5, filch_none());
        return filch_wait(out);
    }
    if (stage == 2 && then == YIELDS_TWO)
        /* the synchronous completion has arrived; the process waits for the asynchronous completion */
        return filch_wait(out);
    return play_idle(me, events, count, out);
}

TEST(a_process_may_go_on_in_any_way_after_an_asynchronous_completion)
{
    static const struct {
        intptr_t then;
        uint32_t answers, seen;
        int64_t  steps;
    } cases[] = {
        { IDLES, 1, 1, 2 },   { SENDS_TO_ITSELF, 1, 2, 3 }, { YIELDS_AGAIN, 3, 3, 4 },
        { GOES_ON, 1, 1, 3 }, { YIELDS_TWO, 2, 3, 4 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        actor a = { .user = (void *)cases[i].then };
        begin(&w, 0);
        actor_start(&w, &a, play_async_completion);
        fixture_tick(&w);
        for (uint32_t n = 1; n <= cases[i].answers; n++) {
            same(fixture_inspect(&w, a.pid).state, FILCH_STATE_BLOCKED);
            ok(filch_complete(kept, 5, filch_int(n), FILCH_OK));
            same(filch_complete(kept, 5, filch_int(n), FILCH_OK), FILCH_ESTALE);
            fixture_tick(&w);
            same(a.seen[a.seen_count - 1].number, cases[i].then == SENDS_TO_ITSELF ? 7
                                                  : cases[i].then == YIELDS_TWO    ? 2
                                                                                   : n);
        }
        ok(a.note);
        same(a.seen_count, cases[i].seen);
        same(a.stage, cases[i].steps);
        same(a.seen[0].type, FILCH_EVENT_YIELD);
        same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
        ok(filch_send(w.sched, a.pid, filch_int(9))); /* the process reads the next message */
        fixture_tick(&w);
        same(a.seen_count, cases[i].seen + 1);
        same(a.seen[a.seen_count - 1].number, 9);
        fixture_end(&w);
    }
}

/* Sends as many messages to the process in `user` as its own message says, in one step. The messages are numbered, so
 * that the test can check that each arrives once and in order. */
static filch_err play_writes_many(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count == 0) return filch_idle(out);
    if (events[0].type != FILCH_EVENT_MESSAGE) return play_idle(me, events, count, out);
    for (int64_t i = 0; i < filch_as_int(&events[0].data); i++) {
        me->note |= filch_send(w.sched, *(filch_pid *)me->user, filch_int(me->stage++));
    }
    return filch_idle(out);
}

static filch_err play_counts(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++)
        me->note |= filch_as_int(&events[i].data) == me->stage++ ? FILCH_OK : FILCH_EUSER;
    return filch_idle(out);
}

TEST(messages_of_one_step_arrive_in_order_in_batches_of_at_most_batch_max)
{
    static const int64_t many[] = { 1, 2, 7, 8, 9, 15, 16, 17, 24, 25, 100, 1 };
    actor                writer, reader;
    /* If `policy` is 0, the mailbox has no limit. Otherwise it has a limit, which is not reached, and the overflow
     * policy `policy` - 1. */
    for (uint32_t run = 0; run < 4 * (1 + FILCH_OVERFLOW_STOP + 1); run++) {
        int64_t             sum = 0;
        uint32_t            batch_max = 1u << run % 4, policy = run / 4;
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        if (policy > 0) opt.overflow = policy - 1;
        if (policy > 0) opt.mailbox_max = 100;
        writer = reader = (actor){ .user = &reader.pid };
        begin(&w, batch_max);
        actor_start_with(&w, &reader, play_counts, opt);
        actor_start(&w, &writer, play_writes_many);
        fixture_tick(&w);
        for (size_t i = 0; i < COUNT_OF(many); i++) {
            ok(filch_send(w.sched, writer.pid, filch_int(many[i])));
            fixture_tick(&w);
            ok(writer.note);
            ok(reader.note);
            same(reader.stage, sum += many[i]);
            same(fixture_inspect(&w, reader.pid).messages, 0);
        }
        same(reader.count_max, batch_max);
        fixture_end(&w);
    }
}

/* In its first step makes five yields with tag 77, so that the later messages reuse the nodes of these yields. At a
 * message sends five numbers in one step to the process in `user`, which has a mailbox for three messages. */
static filch_err play_writes_five(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (int i = 0; count == 0 && i < 5; i++) me->note |= filch_yield(out, COMPLETE, 77, filch_none());
    if (count == 0 || events[0].type != FILCH_EVENT_MESSAGE) return play_idle(me, events, count, out);
    for (int i = 0; i < 5; i++) me->stage += filch_send(w.sched, *(filch_pid *)me->user, filch_int(i)) == FILCH_OK;
    return filch_idle(out);
}

TEST(drops_among_values_of_one_step_are_reported_in_the_next_step)
{
    static const uint32_t policies[] = { FILCH_OVERFLOW_DROP_NEWEST, FILCH_OVERFLOW_DROP_OLDEST };
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        actor               writer, reader;
        bool                newest = policies[i] == FILCH_OVERFLOW_DROP_NEWEST;
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        opt.mailbox_max = 3;
        opt.overflow = policies[i];
        writer = reader = (actor){ .user = &reader.pid };
        begin(&w, 0);
        actor_start_with(&w, &reader, play_idle, opt);
        actor_start(&w, &writer, play_writes_five);
        fixture_tick(&w);
        ok(filch_send(w.sched, writer.pid, filch_int(0)));
        fixture_tick(&w);
        same(writer.stage, newest ? 3 : 5);
        same(reader.steps, 2);
        same(reader.seen_count, 4);
        same(reader.seen[0].type, FILCH_EVENT_DROPPED);
        same(reader.seen[0].number, 2);
        for (int k = 0; k < 3; k++) {
            same(reader.seen[1 + k].number, newest ? k : k + 2);
            same(reader.seen[1 + k].tag, 0);
            assert_true(same_pid(reader.seen[1 + k].from, writer.pid));
        }
        same(fixture_inspect(&w, reader.pid).messages, 0);
        fixture_end(&w);
    }
}

/* In the second step that gets several messages, makes 20 yields, for which the buffer for yields must grow. */
static filch_err play_yields_many(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (count < 2 || me->stage++ != 1) return play_idle(me, events, count, out);
    for (uint64_t i = 0; i < 20; i++) me->note |= filch_yield(out, COMPLETE, i, filch_none());
    return filch_wait(out);
}

TEST(many_yields_in_a_step_with_several_messages_all_complete)
{
    actor writer, reader;
    writer = reader = (actor){ .user = &reader.pid };
    begin(&w, 0);
    actor_start(&w, &reader, play_yields_many);
    actor_start(&w, &writer, play_writes_many);
    fixture_tick(&w);
    /* this step leaves spare nodes at the worker for the next messages */
    ok(filch_send(w.sched, writer.pid, filch_int(2)));
    fixture_tick(&w);
    ok(filch_send(w.sched, writer.pid, filch_int(3)));
    fixture_tick(&w);
    ok(reader.note);
    same(reader.seen_count, 5 + 20);
    for (uint32_t i = 0; i < 20; i++) {
        same(reader.seen[5 + i].type, FILCH_EVENT_YIELD);
        same(reader.seen[5 + i].tag, i);
    }
    /* Further messages arrive while the process still has its grown buffer for yields; fixture_end() checks that the
     * buffer is freed. */
    ok(filch_send(w.sched, writer.pid, filch_int(4)));
    fixture_tick(&w);
    same(reader.seen_count, 5 + 20 + 4);
    fixture_end(&w);
}

static filch_err play_yields_and_sends_to_itself(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note = filch_send(w.sched, me->pid, filch_int(1));
    me->note |= filch_yield(out, COMPLETE, 5, filch_none());
    return filch_idle(out);
}

TEST(a_synchronous_completion_comes_before_a_message_sent_earlier)
{
    actor before = { 0 }, a = { 0 };
    begin(&w, 0);
    /* `before` leaves spare nodes at the worker for the next actor */
    actor_start(&w, &before, play_yields_and_sends_to_itself);
    fixture_tick(&w);
    actor_start(&w, &a, play_yields_and_sends_to_itself);
    fixture_tick(&w);
    ok(a.note);
    same(a.seen_count, 2);
    same(a.seen[0].type, FILCH_EVENT_YIELD);
    same(a.seen[1].type, FILCH_EVENT_MESSAGE);
    fixture_end(&w);
}

TEST(a_process_that_sends_to_itself_before_idling_is_woken)
{
    actor a = { 0 };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_sends_to_itself);
    fixture_tick(&w);
    ok(filch_send(w.sched, a.pid, filch_int(0)));
    fixture_tick(&w);
    ok(a.note);
    same(a.seen_count, 4);
    for (int i = 0; i < 4; i++) same(a.seen[i].number, i);
    same(fixture_inspect(&w, a.pid).state, FILCH_STATE_IDLE);
    fixture_end(&w);
}

/* Makes three monitors of a pid that belongs to no process, and so gets three EXIT notices. With batches of one event
 * the second notice is queued while the first is read. At the first notice the process yields the command that `user`
 * points to, and waits. */
static filch_err play_waits_among_notices(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        filch_pid gone = { me->pid.node, me->pid.serial + (UINT64_C(1) << 32) };
        for (uint64_t i = 1; i <= 3; i++) me->note |= filch_monitor(w.sched, me->pid, gone, i, NULL);
        return filch_idle(out);
    }
    if (me->stage == 2) me->note |= filch_yield(out, *(const uint32_t *)me->user, 5, filch_none());
    if (me->stage == 2) return filch_wait(out);
    return play_idle(me, events, count, out);
}

TEST(earlier_notices_come_before_the_completion_of_the_only_yield)
{
    static const uint32_t commands[] = { COMPLETE, KEEP };
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        actor a = { .user = (void *)(uintptr_t)&commands[i] };
        begin(&w, 1);
        actor_start(&w, &a, play_waits_among_notices);
        fixture_tick(&w);
        if (commands[i] == KEEP) ok(filch_complete(kept, kept.tag, filch_int(2), FILCH_OK));
        fixture_tick(&w);
        ok(a.note);
        same(a.seen_count, 4);
        for (uint32_t n = 0; n < 3; n++) {
            same(a.seen[n].type, FILCH_EVENT_EXIT);
            same(a.seen[n].tag, n + 1);
            same(a.seen[n].step, n + 2);
        }
        same(a.seen[3].type, FILCH_EVENT_YIELD);
        same(a.seen[3].number, 2);
        fixture_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_whose_init_fails_inside_a_step_leaks_nothing),
        cmocka_unit_test(a_step_spawns_no_more_than_max_processes),
        cmocka_unit_test(a_process_may_end_in_its_first_step),
        cmocka_unit_test(a_process_may_end_at_its_first_message),
        cmocka_unit_test(a_process_may_end_at_an_asynchronous_completion),
        cmocka_unit_test(a_completion_goes_to_its_scheduler_though_another_has_an_equal_key),
        cmocka_unit_test(a_handler_may_complete_another_yield_before_its_own),
        cmocka_unit_test(completions_made_by_one_handler_arrive_in_their_order),
        cmocka_unit_test(a_completion_with_a_wrong_tag_is_refused),
        cmocka_unit_test(a_handler_may_spawn),
        cmocka_unit_test(a_send_without_a_scheduler_in_a_handler_is_refused),
        cmocka_unit_test(a_send_in_a_step_to_an_invalid_pid_returns_edead),
        cmocka_unit_test(a_message_before_an_awaited_completion_is_delivered_after_it),
        cmocka_unit_test(a_process_may_go_on_in_any_way_after_an_asynchronous_completion),
        cmocka_unit_test(messages_of_one_step_arrive_in_order_in_batches_of_at_most_batch_max),
        cmocka_unit_test(drops_among_values_of_one_step_are_reported_in_the_next_step),
        cmocka_unit_test(many_yields_in_a_step_with_several_messages_all_complete),
        cmocka_unit_test(a_synchronous_completion_comes_before_a_message_sent_earlier),
        cmocka_unit_test(a_process_that_sends_to_itself_before_idling_is_woken),
        cmocka_unit_test(earlier_notices_come_before_the_completion_of_the_only_yield),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
