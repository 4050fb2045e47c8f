/* inline_yield_test.c - a process whose yields are completed synchronously, many times in a row: each completion
 * arrives once and in order, and any other event that arrives between two completions has its usual effect. */
#include "api/fixture.h"

enum {
    ECHO = FILCH_CMD_USER, /* the handler completes the yield with the data of the command */
    OTHER,                 /* like ECHO, but the handler is registered with another `user` */
    NUMBER,                /* the handler completes the yield with ten times its tag */
    TEXT,
    REFUSE,
    BOTH,  /* the handler completes the yield, and returns an error as well */
    TWICE, /* the handler completes its yield twice, and tries to complete all earlier yields again */
    KEEP,
    /* the handlers of SEND, CANCEL and KILL send to, cancel or terminate the process, then complete the yield */
    SEND,
    CANCEL,
    KILL,
    YIELD,  /* the handler makes another yield with the `out` of the process */
    BEATEN, /* the handler completes the yield after another thread has completed it */
    LAST = BEATEN,
    UNKNOWN
};

#define ROUNDS 20
#define SPECIAL 9 /* number of the round in which the process does something other than yield NUMBER and wait */
#define LONG "a text that is longer than what fits into an event"

static fixture w;

static struct {
    filch_receiver kept[ROUNDS + 1];
    uint32_t       kept_count;
    filch_out     *out;
    filch_err      call_result;
    uint64_t       others;  /* number of calls of the handler of OTHER with the right `user` */
    uint64_t       targets; /* number of commands with a target */
} table;

static filch_err number(filch_receiver receiver, uint64_t tag)
{
    return filch_complete(receiver, tag, filch_int((int64_t)tag * 10), FILCH_OK);
}

/* Checks that a late completion was refused. If it was accepted, a node would be in two lists and the run might loop
 * for ever; therefore, if the thread of the test runs the process, a failure ends the program at once. */
static void is_late(filch_err err)
{
    if (err != FILCH_ESTALE) table.call_result = FILCH_EUSER;
    if (w.ticks) same(err, FILCH_ESTALE);
}

static void by_another(void *receiver)
{
    const filch_receiver *r = receiver;
    table.call_result = number(*r, r->tag);
}

static filch_err beaten(filch_receiver receiver, uint64_t tag)
{
    fli_thread thread;
    if (fli_thread_start(&thread, "faster", by_another, &receiver) != FILCH_OK) return FILCH_EUSER;
    fli_thread_join(&thread);
    is_late(filch_complete(receiver, tag, filch_int(1), FILCH_OK));
    return FILCH_OK;
}

static filch_err twice(filch_receiver receiver, uint64_t tag)
{
    for (uint32_t i = 0; i + 1 < table.kept_count; i++) {
        is_late(number(table.kept[i], table.kept[i].tag));
    }
    filch_err err = number(receiver, tag);
    is_late(filch_complete(receiver, tag, filch_int(1), FILCH_OK));
    return err;
}

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    table.targets += command->target.serial != 0 || command->target.node != 0;
    if (table.kept_count <= ROUNDS) table.kept[table.kept_count++] = receiver;
    switch (command->id) {
    case OTHER: table.others += user == &table; return filch_complete(receiver, tag, command->data, FILCH_OK);
    case ECHO: return filch_complete(receiver, tag, command->data, FILCH_OK);
    case TEXT: return filch_complete(receiver, tag, filch_str(LONG), FILCH_OK);
    case REFUSE: return FILCH_EUSER + 1;
    case BOTH: table.call_result = number(receiver, tag); return FILCH_EUSER + 1;
    case TWICE: return twice(receiver, tag);
    case KEEP: return FILCH_OK;
    case BEATEN: return beaten(receiver, tag);
    case SEND: table.call_result = filch_send(receiver.sched, command->from, filch_int(7)); break;
    case CANCEL: table.call_result = filch_cancel(receiver.sched, command->from); break;
    case KILL: table.call_result = filch_terminate(receiver.sched, command->from); break;
    case YIELD: table.call_result = filch_yield(table.out, NUMBER, 100, filch_none()); break;
    default: break;
    }
    return number(receiver, tag);
}

static void begin(int32_t workers)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&opt.registry));
    for (uint32_t id = ECHO; id <= LAST; id++) {
        ok(filch_registry_add(opt.registry, id, handle, id == OTHER ? &table : NULL));
    }
    opt.fair_every = 8;
    memset(&table, 0, sizeof table);
    fixture_begin_with(&w, workers, opt);
    filch_registry_destroy(opt.registry);
}

/* Creates a scheduler with `workers` workers and starts `a` in it; `with` becomes a->user. */
static bool plays(actor *a, int32_t workers, play_fn play, uintptr_t with)
{
    *a = (actor){ .user = (void *)with };
    begin(workers);
    actor_start(&w, a, play);
    return true;
}

static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1, 2 };

/* Runs the statement that follows once for each number of workers, each time in a new scheduler in which `a` was
 * started. The scheduler without workers comes first, because failures are easiest to see there. */
#define EVERYWHERE(a, play, with) \
    for (size_t at = 0; at < COUNT_OF(worker_counts) && plays(a, worker_counts[at], play, with); at++, fixture_end(&w))

/* Makes a yield and waits for its completion, ROUNDS times; then idles. The command is NUMBER; in round SPECIAL it is
 * the command with the id `user`. The tag is the number of the round. */
static filch_err play_rounds(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count) && me->stage == ROUNDS) return filch_done(out, filch_none());
    if (me->stage == ROUNDS) return filch_idle(out);
    int64_t  round = me->stage++;
    uint32_t command = round == SPECIAL ? (uint32_t)(uintptr_t)me->user : NUMBER;
    table.out = out;
    me->note |= filch_yield(out, command, (uint64_t)round, filch_int(round));
    return filch_wait(out);
}

/* Waits until the process `a` is in `state`. Without workers, one filch_tick() of 10 * ROUNDS steps must suffice. */
static void comes_to(actor *a, int32_t state)
{
    if (w.ticks) ok(filch_tick(w.sched, 10 * ROUNDS, NULL));
    else UNTIL(&w, fixture_inspect(&w, a->pid).state == state);
    same(fixture_inspect(&w, a->pid).state, state);
    ok(a->note);
}

/* Checks that completion `n` belongs to round `round`. */
static void check_completion(const actor *a, size_t n, uint64_t round)
{
    same(a->seen[n].type, FILCH_EVENT_YIELD);
    same(a->seen[n].tag, round);
    same(a->seen[n].error, FILCH_OK);
    same(a->seen[n].kind, FILCH_KIND_INT);
    same(a->seen[n].number, round * 10);
    assert_true(is_null_pid(a->seen[n].from));
}

/* Checks that all completions except the one of round SPECIAL are right, and that the process is idle. */
static void has_all(actor *a)
{
    comes_to(a, FILCH_STATE_IDLE);
    same(a->seen_count, ROUNDS);
    same(a->steps, ROUNDS + 1);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (i == SPECIAL) same(a->seen[i].tag, SPECIAL);
        else check_completion(a, i, i);
    }
}

static void counts(uint64_t completions, uint64_t late)
{
    filch_stats stats = fixture_stats(&w);
    same(stats.steps, ROUNDS + 1);
    same(stats.yields, ROUNDS);
    same(stats.completions, completions);
    same(stats.late_completions, late);
    same(stats.abandoned, 0);
}

TEST(each_completion_comes_once_and_in_order_and_is_counted)
{
    actor a;
    EVERYWHERE(&a, play_rounds, NUMBER)
    {
        has_all(&a);
        check_completion(&a, SPECIAL, SPECIAL);
        counts(ROUNDS, 0);
    }
}

/* In even rounds yields NUMBER, in odd rounds a send to the actor in `user`. */
static filch_err play_number_and_send(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const actor *to = me->user;
    if (has_cancel(events, count) && me->stage == ROUNDS) return filch_done(out, filch_none());
    if (me->stage == ROUNDS) return filch_idle(out);
    uint64_t round = (uint64_t)me->stage++;
    me->note |= round % 2 == 0 ? filch_yield(out, NUMBER, round, filch_none())
                               : filch_yield_send(out, round, to->pid, filch_int((int64_t)round));
    return filch_wait(out);
}

TEST(yielded_sends_and_other_yields_alternate)
{
    for (uint32_t max = 0; max <= ROUNDS; max += ROUNDS) {
        for (size_t at = 0; at < COUNT_OF(worker_counts); at++) {
            actor               a, to = { .stage = 0 };
            filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
            opt.mailbox_max = max;
            opt.overflow = FILCH_OVERFLOW_WAIT;
            begin(worker_counts[at]);
            actor_start_with(&w, &to, play_idle, opt);
            a = (actor){ .user = &to };
            actor_start(&w, &a, play_number_and_send);
            comes_to(&a, FILCH_STATE_IDLE);
            UNTIL(&w, fixture_stats(&w).steps >= ROUNDS + 3 && fixture_inspect(&w, to.pid).state == FILCH_STATE_IDLE);
            same(a.seen_count, ROUNDS);
            for (uint32_t i = 0; i < ROUNDS; i += 2) check_completion(&a, i, i);
            for (uint32_t i = 1; i < ROUNDS; i += 2) {
                same(a.seen[i].type, FILCH_EVENT_YIELD);
                same(a.seen[i].tag, i);
                same(a.seen[i].error, FILCH_OK);
                same(a.seen[i].kind, FILCH_KIND_NONE);
                same(to.seen[i / 2].number, i);
                assert_true(same_pid(to.seen[i / 2].from, a.pid));
            }
            same(to.seen_count, ROUNDS / 2);
            same(table.targets, 0);
            fixture_end(&w);
        }
    }
}

TEST(a_tick_runs_as_many_steps_as_requested)
{
    for (uint32_t most = 1; most <= ROUNDS + 2; most++) {
        actor    a;
        uint32_t ran = most, all = 0;
        (void)plays(&a, FILCH_NO_WORKERS, play_rounds, NUMBER);
        for (; ran == most; all += ran) {
            ok(filch_tick(w.sched, most, &ran));
            assert_true(ran <= most);
            same(a.steps, all + ran);
            same(fixture_stats(&w).steps, all + ran);
        }
        same(all, ROUNDS + 1);
        has_all(&a);
        fixture_end(&w);
    }
}

TEST(errors_and_texts_come_in_order)
{
    static const struct {
        uint32_t   special_command;
        filch_err  error;
        filch_kind kind;
    } cases[] = { { REFUSE, FILCH_EUSER + 1, FILCH_KIND_NONE },
                  { UNKNOWN, FILCH_ECOMMAND, FILCH_KIND_NONE },
                  { TEXT, FILCH_OK, FILCH_KIND_TEXT } };
    actor a;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        EVERYWHERE(&a, play_rounds, cases[i].special_command)
        {
            has_all(&a);
            same(a.seen[SPECIAL].error, cases[i].error);
            same(a.seen[SPECIAL].kind, cases[i].kind);
            counts(ROUNDS, 0);
        }
    }
}

TEST(an_error_after_the_completion_is_late)
{
    actor a;
    EVERYWHERE(&a, play_rounds, BOTH)
    {
        has_all(&a);
        ok(table.call_result);
        check_completion(&a, SPECIAL, SPECIAL);
        counts(ROUNDS, 1);
    }
}

TEST(a_receiver_completes_only_once)
{
    actor a;
    EVERYWHERE(&a, play_rounds, TWICE)
    {
        has_all(&a);
        ok(table.call_result);
        check_completion(&a, SPECIAL, SPECIAL);
        counts(ROUNDS, SPECIAL + 1);
        for (uint32_t n = 0; n < ROUNDS; n++) same(number(table.kept[n], n), FILCH_ESTALE);
    }
}

TEST(a_process_waits_for_an_asynchronous_completion)
{
    actor a;
    EVERYWHERE(&a, play_rounds, KEEP)
    {
        comes_to(&a, FILCH_STATE_BLOCKED);
        same(a.seen_count, SPECIAL);
        same(table.kept[SPECIAL].tag, SPECIAL);
        ok(number(table.kept[SPECIAL], SPECIAL));
        has_all(&a);
        check_completion(&a, SPECIAL, SPECIAL);
        counts(ROUNDS, 0);
    }
}

/* Like play_rounds(), but begins with round SPECIAL. */
static filch_err play_special_first(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage == 0) me->stage = SPECIAL;
    return play_rounds(me, events, count, out);
}

/* Another thread completes the yield before its handler does: in the first round, or in a round in the middle. */
TEST(of_two_completions_the_first_counts)
{
    for (uint32_t first = 0; first <= SPECIAL; first += SPECIAL) {
        actor a;
        EVERYWHERE(&a, first == 0 ? play_rounds : play_special_first, BEATEN)
        {
            comes_to(&a, FILCH_STATE_IDLE);
            ok(table.call_result);
            same(a.seen_count, ROUNDS - first);
            for (uint32_t n = 0; n < a.seen_count; n++) check_completion(&a, n, first + n);
            same(fixture_stats(&w).completions, a.seen_count);
            same(fixture_stats(&w).late_completions, 1);
        }
    }
}

TEST(a_message_waits_until_the_process_stops_waiting)
{
    actor a;
    EVERYWHERE(&a, play_rounds, SEND)
    {
        comes_to(&a, FILCH_STATE_IDLE);
        ok(table.call_result);
        same(a.seen_count, ROUNDS + 1);
        for (uint32_t n = 0; n < ROUNDS; n++) check_completion(&a, n, n);
        same(a.seen[ROUNDS].type, FILCH_EVENT_MESSAGE);
        same(a.seen[ROUNDS].number, 7);
    }
}

TEST(a_cancel_comes_before_the_completion)
{
    actor a;
    EVERYWHERE(&a, play_rounds, CANCEL)
    {
        comes_to(&a, FILCH_STATE_IDLE);
        ok(table.call_result);
        same(a.seen_count, ROUNDS + 1);
        same(a.seen[SPECIAL].type, FILCH_EVENT_CANCEL);
        same(a.seen[SPECIAL].step, SPECIAL + 2);
        check_completion(&a, SPECIAL + 1, SPECIAL);
        same(a.seen[SPECIAL + 1].step, SPECIAL + 2);
        check_completion(&a, ROUNDS, ROUNDS - 1);
    }
}

TEST(a_killed_process_gets_no_more_completions)
{
    actor a;
    EVERYWHERE(&a, play_rounds, KILL)
    {
        actor_ends(&w, &a, FILCH_EKILLED);
        ok(table.call_result);
        same(a.seen_count, SPECIAL);
        same(fixture_stats(&w).completions, SPECIAL + 1);
    }
}

TEST(a_handler_cannot_yield_for_the_process)
{
    actor a;
    EVERYWHERE(&a, play_rounds, YIELD)
    {
        has_all(&a);
        same(table.call_result, FILCH_ESTATE);
        counts(ROUNDS, 0);
    }
}

/* ---- rounds in which the step does something unusual ---- */

static const double     a_number = 2.5;
static const filch_data kinds[] = { FILCH_INT_INIT(-3),
                                    { .kind = FILCH_KIND_NONE },
                                    { .kind = FILCH_KIND_NUM, .as = { .d = 2.5 } },
                                    { .kind = FILCH_KIND_PTR, .as = { .ptr = &table } },
                                    { .kind = FILCH_KIND_PID, .as = { .pid = { 11, 12 } } } };

static bool is_kind(const filch_data *data, size_t n)
{
    if (filch_kind_of(data) != (filch_kind)kinds[n].kind) return false;
    switch (filch_kind_of(data)) {
    case FILCH_KIND_INT: return filch_as_int(data) == -3;
    case FILCH_KIND_NUM: return filch_as_num(data) == a_number;
    case FILCH_KIND_PTR: return filch_as_ptr(data) == &table;
    case FILCH_KIND_PID: return filch_as_pid(data).node == 11 && filch_as_pid(data).serial == 12;
    default: return true;
    }
}

/* Yields values of each kind, with ECHO and OTHER in turn, and checks that each value comes back. */
static filch_err play_kinds(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    size_t round = (size_t)me->stage++;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (round > 0 && !is_kind(&events[0].data, (round - 1) % COUNT_OF(kinds))) me->note = FILCH_EUSER;
    if (round == ROUNDS) return filch_idle(out);
    me->note |= filch_yield(out, round % 2 == 0 ? ECHO : OTHER, round, kinds[round % COUNT_OF(kinds)]);
    return filch_wait(out);
}

TEST(yields_and_completions_may_have_payloads_of_any_kind)
{
    actor a;
    EVERYWHERE(&a, play_kinds, 0)
    {
        comes_to(&a, FILCH_STATE_IDLE);
        same(a.seen_count, ROUNDS);
        same(table.others, ROUNDS / 2);
    }
}

/* In round SPECIAL makes several yields, one for each letter of `pattern`: v with a value, t with the text LONG. */
static filch_err play_several(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    const char *pattern = me->user;
    size_t      sum = ROUNDS + strlen(pattern) - 1;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->seen_count == sum) return filch_idle(out);
    if (me->stage > SPECIAL && me->seen_count < SPECIAL + strlen(pattern)) return filch_wait(out);
    for (const char *p = me->stage == SPECIAL ? pattern : "v"; *p != 0; p++) {
        filch_data data = *p == 't' ? filch_str(LONG) : filch_int((int64_t)table.others * 10);
        me->note |= filch_yield(out, ECHO, table.others++, data);
    }
    me->stage++;
    return filch_wait(out);
}

TEST(a_step_of_the_inline_loop_may_make_several_yields)
{
    static const char *const patterns[] = { "vv", "vt", "tv", "t", "tt", "vvv", "tvv", "vtvtvtvtvtvtvtvtvt" };
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        const char *pattern = patterns[i];
        actor       a;
        EVERYWHERE(&a, play_several, (uintptr_t)pattern)
        {
            comes_to(&a, FILCH_STATE_IDLE);
            same(a.seen_count, ROUNDS + strlen(pattern) - 1);
            for (size_t n = 0; n < a.seen_count; n++) {
                bool text = n >= SPECIAL && n < SPECIAL + strlen(pattern) && pattern[n - SPECIAL] == 't';
                if (!text) check_completion(&a, n, n);
                same(a.seen[n].tag, n);
                if (text) same(a.seen[n].kind, FILCH_KIND_TEXT);
            }
            same(fixture_stats(&w).yields, a.seen_count);
            same(fixture_stats(&w).completions, a.seen_count);
        }
    }
}

enum { IDLES = 1, CONTINUES, NO_STATUS, FAILS, ENDS, WAITS_FOR_NOTHING, ENDS_WITHOUT };

/* In the first SPECIAL rounds yields and waits. In round SPECIAL returns the status that `user` selects; before that it
 * makes one more yield, except for WAITS_FOR_NOTHING and ENDS_WITHOUT. */
static filch_err play_leaves(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    uintptr_t how = (uintptr_t)me->user;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage > SPECIAL) return me->seen_count > SPECIAL ? filch_idle(out) : filch_wait(out);
    if (me->stage < SPECIAL || how < WAITS_FOR_NOTHING) {
        me->note |= filch_yield(out, NUMBER, (uint64_t)me->stage, filch_none());
    }
    if (me->stage++ < SPECIAL) return filch_wait(out);
    switch (how) {
    case IDLES: return filch_idle(out);
    case CONTINUES: return filch_continue(out);
    case NO_STATUS: return FILCH_OK;
    case FAILS: return FILCH_EUSER;
    case WAITS_FOR_NOTHING: return filch_wait(out);
    default: return filch_done(out, filch_none());
    }
}

TEST(a_step_may_leave_the_inline_loop_with_any_status_and_leaks_nothing)
{
    static const struct {
        uintptr_t how;
        filch_err err;
    } cases[] = { { NO_STATUS, FILCH_ENOSTATUS },
                  { FAILS, FILCH_EUSER },
                  { ENDS, FILCH_OK },
                  { WAITS_FOR_NOTHING, FILCH_ENOYIELD },
                  { ENDS_WITHOUT, FILCH_OK } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        actor a;
        EVERYWHERE(&a, play_leaves, cases[i].how)
        {
            int64_t bytes = 0;
            /* A lost node is detected when the scheduler ends; any other lost memory shows as growth over many runs. */
            for (uint32_t n = 0, most = fixture_scale(8000, 4000); n < most; n++) {
                actor_ends(&w, &a, cases[i].err);
                ok(a.note);
                same(a.seen_count, SPECIAL);
                if (n == 100) bytes = fli_load_rlx(&w.bytes);
                a = (actor){ .user = a.user };
                actor_start(&w, &a, play_leaves);
            }
            actor_ends(&w, &a, cases[i].err);
            /* Allowed growth: the yield buffer of a worker's first step (704 bytes). With two workers, processes and
             * nodes may each need a second segment (64 KB and 32 KB) while the magazines fill up. */
            int64_t more = worker_counts[at] == 2 ? 112 * 1024 : 0;
            assert_true(fli_load_rlx(&w.bytes) - bytes < 16384 + more);
        }
    }
}

TEST(idle_or_continue_in_the_inline_loop_still_gets_the_completion)
{
    static const uintptr_t cases[] = { IDLES, CONTINUES };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        actor a;
        EVERYWHERE(&a, play_leaves, cases[i])
        {
            UNTIL(&w, fixture_stats(&w).completions == SPECIAL + 1);
            comes_to(&a, FILCH_STATE_IDLE);
            same(a.seen_count, SPECIAL + 1);
            for (uint32_t n = 0; n <= SPECIAL; n++) check_completion(&a, n, n);
        }
    }
}

static filch_err blocking(void *arg, filch_data *result)
{
    *result = filch_int(*(const int64_t *)arg);
    return FILCH_OK;
}

/* In round SPECIAL the process yields a function that runs on the thread pool. */
static filch_err play_works(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const int64_t special_command = SPECIAL * 10;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage == ROUNDS) return filch_idle(out);
    uint64_t round = (uint64_t)me->stage++;
    me->note |= round == SPECIAL ? filch_yield_work(out, round, blocking, (void *)(uintptr_t)&special_command)
                                 : filch_yield(out, NUMBER, round, filch_none());
    return filch_wait(out);
}

TEST(blocking_work_may_be_yielded_in_the_inline_loop)
{
    actor a;
    EVERYWHERE(&a, play_works, 0)
    {
        /* waits for the count: a thread of the pool completes the yield first, and counts the completion later */
        UNTIL(&w, fixture_stats(&w).completions == ROUNDS);
        has_all(&a);
        check_completion(&a, SPECIAL, SPECIAL);
        counts(ROUNDS, 0);
    }
}

/* In round SPECIAL there is no memory: the process sends to the pid that `user` points to until no node is left, makes
 * a yield that needs a node, and then continues as in other rounds. */
static filch_err play_no_memory(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage == ROUNDS) return filch_idle(out);
    uint64_t round = (uint64_t)me->stage++;
    fli_store_rlx(&w.deny, round == SPECIAL);
    while (round == SPECIAL && filch_send(w.sched, *(const filch_pid *)me->user, filch_none()) == FILCH_OK) continue;
    if (round == SPECIAL) table.call_result = filch_yield(out, ECHO, 100, filch_str("short"));
    me->note |= filch_yield(out, NUMBER, round, filch_none());
    fli_store_rlx(&w.deny, false);
    return filch_wait(out);
}

TEST(after_a_yield_without_memory_a_yield_that_needs_none_works)
{
    actor reader = { 0 }, a = { .user = &reader.pid };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &reader, play_idle);
    fixture_tick(&w);
    actor_start(&w, &a, play_no_memory);
    fixture_tick(&w);
    same(table.call_result, FILCH_ENOMEM);
    has_all(&a);
    check_completion(&a, SPECIAL, SPECIAL);
    assert_true(reader.seen_count > 0);
    fixture_end(&w);
}

/* ---- with other processes ---- */

static FLI_ATOMIC(int64_t) endless; /* rounds so far */

static filch_err play_endless(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    fli_add_rlx(&endless, 1);
    me->note |= filch_yield(out, NUMBER, 1, filch_none());
    return filch_wait(out);
}

/* Records how many rounds the other process had made when this process was stepped. */
static filch_err play_looks(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    me->stage = fli_load_rlx(&endless);
    return play_idle(me, events, count, out);
}

TEST(the_inline_loop_lets_others_run_within_the_bound)
{
    actor a = { 0 }, b = { 0 };
    begin(FILCH_NO_WORKERS);
    actor_start(&w, &a, play_endless);
    actor_start(&w, &b, play_looks);
    for (int i = 0; i < 100; i++) {
        ok(filch_tick(w.sched, 1000, NULL));
        int64_t began = fli_load_rlx(&endless);
        ok(filch_send(w.sched, b.pid, filch_none()));
        ok(filch_tick(w.sched, 1000, NULL));
        same(b.seen_count, i + 1);
        /* fair_every is 8 here. The first process of the global queue runs within 2 * fair_every turns
         * (src/sched/find.c). */
        assert_true(b.stage - began <= 2 * 8);
    }
    fixture_end(&w);
    ok(a.note);
}

enum { HOG_ROUNDS = 20000, HOG_SENDS_EVERY = 100 };

/* Not atomic: used by the steps of the single worker, and by the test while there is no worker. */
static int64_t  sent_at, longest;
static uint32_t hog_command;

/* Yields again and again: NUMBER, which the inline completion loop runs, or TEXT, after which rerun_or_queue() of
 * step.c runs the process again. Sends to the process `user` in every HOG_SENDS_EVERY-th round. */
static filch_err play_hogs(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    if (me->stage++ == HOG_ROUNDS) return filch_done(out, filch_none());
    if (me->stage % HOG_SENDS_EVERY == 0) {
        sent_at = me->stage;
        me->note |= filch_send(w.sched, ((const actor *)me->user)->pid, filch_none());
    }
    fli_store_rlx(&endless, me->stage);
    me->note |= filch_yield(out, hog_command, 1, filch_none());
    return filch_wait(out);
}

static filch_err play_notes_wait(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    int64_t waited = fli_load_rlx(&endless) - sent_at;
    if (waited > longest) longest = waited;
    return play_idle(me, events, count, out);
}

/* The receiver is in the LIFO slot, and at each fairness pick the sender is the oldest process in the deque. */
TEST(a_process_that_yields_without_end_does_not_keep_back_the_process_it_woke)
{
    static const uint32_t commands[] = { NUMBER, TEXT };
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        actor a = { 0 }, b = { 0 };
        hog_command = commands[i];
        sent_at = longest = 0;
        fli_store_rlx(&endless, 0);
        begin(1);
        actor_start(&w, &b, play_notes_wait);
        UNTIL(&w, fixture_inspect(&w, b.pid).state == FILCH_STATE_IDLE);
        a.user = &b;
        actor_start(&w, &a, play_hogs);
        actor_ends(&w, &a, FILCH_OK);
        UNTIL(&w, fixture_inspect(&w, b.pid).state == FILCH_STATE_IDLE);
        ok(a.note);
        /* fair_every is 8: at most 7 turns until the pick, and the turn of the picked process */
        assert_in_range(longest, 1, 2 * 8);
        fixture_end(&w);
    }
}

static filch_err play_sleeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0 || has_cancel(events, count)) return filch_done(out, filch_none());
    me->note |= filch_yield_sleep(out, 1, FILCH_MILLISECONDS(1));
    return filch_wait(out);
}

TEST(timers_fire_beside_the_inline_loop_and_stop_ends_it)
{
    for (size_t i = 0; i < COUNT_OF(worker_counts); i++) {
        actor a, b = { 0 };
        (void)plays(&a, worker_counts[i], play_endless, 0);
        actor_start(&w, &b, play_sleeps);
        for (patience left = patience_begin(FILCH_SECONDS(10)); !is_over(&b);) {
            if (w.ticks) ok(filch_tick(w.sched, 1000, NULL));
            yield_slice();
            assert_false(patience_is_over(&left));
        }
        actor_ends(&w, &b, FILCH_OK);
        same(b.seen_count, 1);
        fixture_end(&w);
        ok(a.note);
        same(fli_load_rlx(&a.exits), 1);
        same(a.exit_error, FILCH_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_completion_comes_once_and_in_order_and_is_counted),
        cmocka_unit_test(yielded_sends_and_other_yields_alternate),
        cmocka_unit_test(a_tick_runs_as_many_steps_as_requested),
        cmocka_unit_test(errors_and_texts_come_in_order),
        cmocka_unit_test(an_error_after_the_completion_is_late),
        cmocka_unit_test(a_receiver_completes_only_once),
        cmocka_unit_test(a_process_waits_for_an_asynchronous_completion),
        cmocka_unit_test(of_two_completions_the_first_counts),
        cmocka_unit_test(a_message_waits_until_the_process_stops_waiting),
        cmocka_unit_test(a_cancel_comes_before_the_completion),
        cmocka_unit_test(a_killed_process_gets_no_more_completions),
        cmocka_unit_test(a_handler_cannot_yield_for_the_process),
        cmocka_unit_test(yields_and_completions_may_have_payloads_of_any_kind),
        cmocka_unit_test(a_step_of_the_inline_loop_may_make_several_yields),
        cmocka_unit_test(a_step_may_leave_the_inline_loop_with_any_status_and_leaks_nothing),
        cmocka_unit_test(idle_or_continue_in_the_inline_loop_still_gets_the_completion),
        cmocka_unit_test(blocking_work_may_be_yielded_in_the_inline_loop),
        cmocka_unit_test(after_a_yield_without_memory_a_yield_that_needs_none_works),
        cmocka_unit_test(the_inline_loop_lets_others_run_within_the_bound),
        cmocka_unit_test(a_process_that_yields_without_end_does_not_keep_back_the_process_it_woke),
        cmocka_unit_test(timers_fire_beside_the_inline_loop_and_stop_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
