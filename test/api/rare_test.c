/* rare_test.c - input and states that are allowed but rare: a report for which there is no memory, options of a later
 * version, completions without a process, payloads for a receiver that has ended. */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fixture.h"
#include "support/until.h"

static fixture w;

/* ---- a report without memory ---- */

/* The process waits for a completion that never comes, and reads no messages. */
static filch_err play_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    if (me->stage++ == 0) {
        me->note = filch_yield_sleep(out, 1, FILCH_SECONDS(3600));
        return filch_wait(out);
    }
    return filch_wait(out);
}

TEST(a_stop_without_memory_counts_processes_it_cannot_list)
{
    enum { WAITERS = 3 };
    actor        waiters[WAITERS] = { { 0 } };
    filch_report report = FILCH_REPORT_INIT;
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (int i = 0; i < WAITERS; i++) actor_start(&w, &waiters[i], play_waits);
    (void)fixture_tick(&w);
    for (int i = 0; i < WAITERS; i++) {
        for (int k = 0; k < 5; k++) ok(filch_send(w.sched, waiters[i].pid, filch_int(k)));
    }
    fli_store_rlx(&w.deny, true);
    (void)filch_sched_stop(w.sched, 0, &report);
    fli_store_rlx(&w.deny, false);
    same(report.forced, WAITERS);
    same(report.unread, WAITERS * 5);
    same(report.count, 0);
    same(report.loss_count, 0);
    assert_true(report.omitted >= WAITERS);
    filch_report_free(&report);
    for (int i = 0; i < WAITERS; i++) same(waiters[i].closes, 1);
    same(fli_load_rlx(&w.blocks), 0);
    assert_false(fli_load_rlx(&w.miscounted));
}

/* ---- run options of a program that is newer than the library ---- */

static struct {
    filch_err none, longer, unknown, environment, kind, empty, low, high;
} yield_results;

static filch_err play_options(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const char *const argv[] = { "true", NULL };
    static struct {
        filch_run_options now;
        uint64_t          later;
    } more = { .now = FILCH_RUN_OPTIONS_INIT };
    (void)events;
    if (me->stage > 0) me->stage += (int64_t)count; /* one step may get the completions of both child programs */
    if (me->stage > 0) return me->stage > 2 ? filch_done(out, filch_none()) : filch_idle(out);
    me->stage = 1;
    more.now.size = sizeof more;
    yield_results.longer = filch_yield_run_with(out, 1, argv, &more.now);
    yield_results.none = filch_yield_run_with(out, 2, argv, NULL);
    more.later = 1;
    yield_results.unknown = filch_yield_run_with(out, 3, argv, &more.now);
    /* an environment larger than any system accepts */
    size_t            size = (16u << 20) + 2;
    char             *large = malloc(size);
    const char       *list[] = { large, NULL };
    filch_run_options options = FILCH_RUN_OPTIONS_INIT;
    memset(large, 'x', size - 1);
    large[size - 1] = '\0';
    options.environment = list;
    yield_results.environment = filch_yield_run_with(out, 4, argv, &options);
    free(large);
    return filch_idle(out);
}

#if FLI_IO
TEST(run_options_of_a_newer_header_are_accepted_if_the_rest_is_zero)
{
    actor me = { 0 };
    fixture_begin(&w, 1);
    actor_start(&w, &me, play_options);
    actor_ends(&w, &me, FILCH_OK);
    same(yield_results.longer, FILCH_OK);
    same(yield_results.none, FILCH_OK);
    same(yield_results.unknown, FILCH_EINVAL);
    same(yield_results.environment, FILCH_ETOOBIG);
    same(me.seen[0].error, FILCH_OK);
    same(me.seen[1].error, FILCH_OK);
    fixture_end(&w);
}
#endif

#if FLI_IO
static int ends[2];

static filch_err play_poll(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    me->stage++;
    if (me->stage == 1 && filch_yield_poll(out, 1, ends[1], FILCH_POLL_OUT, FILCH_FOREVER) != FILCH_OK)
        return FILCH_EUSER;
    if (count == 0 || events[0].type != FILCH_EVENT_MESSAGE) return filch_idle(out);
    if (filch_yield_poll(out, 2, ends[0], FILCH_POLL_IN, FILCH_FOREVER) != FILCH_OK) return FILCH_EUSER;
    if (filch_yield_adopt(out, 3, ends[0], 0) != FILCH_OK) return FILCH_EUSER;
    return filch_idle(out);
}

TEST(descriptors_that_cannot_be_copied_are_neither_waited_for_nor_adopted)
{
    actor         me = { 0 };
    struct rlimit limit, none;
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(pipe(ends));
    actor_start(&w, &me, play_poll);
    UNTIL(&w, me.seen_count >= 1); /* the first poll was made, so the poller exists */
    same(me.seen[0].error, FILCH_OK);
    ok(filch_send(w.sched, me.pid, filch_int(1)));
    ok(getrlimit(RLIMIT_NOFILE, &limit));
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
    ok(setrlimit(RLIMIT_NOFILE, &none));
    UNTIL(&w, me.seen_count >= 4);
    ok(setrlimit(RLIMIT_NOFILE, &limit));
    for (int i = 2; i < 4; i++) {
        same(me.seen[i].type, FILCH_EVENT_YIELD);
        assert_int_not_equal(me.seen[i].error, FILCH_OK);
    }
    fixture_end(&w);
    filch_drop(&me.result);
    ok(close(ends[0]));
    ok(close(ends[1]));
}
#endif

TEST(bytes_that_are_no_list_of_a_directory_are_refused)
{
    static const struct {
        const char *bytes;
        size_t      size;
    } wrong[] = { { "\1\0x", 3 }, { "\0name", 6 }, { "\177name", 6 }, { "\1nam", 4 }, { "\1n", 2 } };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        filch_data      data = filch_bytes(wrong[i].bytes, wrong[i].size);
        size_t          at = 0;
        const char     *name = "x";
        filch_file_kind kind = FILCH_FILE_OTHER;
        same(filch_as_entry(&data, &at, &name, &kind), FILCH_EINVAL);
        assert_null(name);
        same(at, 0);
    }
}

/* ---- jobs that return after their process has ended ---- */

static FLI_ATOMIC(bool)     may_return;
static FLI_ATOMIC(uint32_t) begun, freed;

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    fli_add_rel(&freed, 1);
}

static filch_err give_late(void *arg, filch_data *result)
{
    fli_add_rel(&begun, 1);
    while (!fli_load_acq(&may_return)) yield_slice();
    /* The result is freed by count_free() if `arg` is set, otherwise by free(). */
    *result = filch_move(malloc(100), 100, arg != NULL ? count_free : NULL);
    return FILCH_OK;
}

static filch_err give_nothing(void *arg, filch_data *result)
{
    (void)arg;
    *result = filch_move(NULL, 100, count_free);
    return FILCH_OK;
}

static filch_err play_work(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].tag == 3) me->note = events[i].error;
    }
    if (me->stage++ > 0) return filch_idle(out);
    if (filch_yield_work(out, 1, give_late, me) != FILCH_OK || filch_yield_work(out, 2, give_late, NULL) != FILCH_OK ||
        filch_yield_work(out, 3, give_nothing, NULL) != FILCH_OK) {
        return FILCH_EUSER;
    }
    return filch_idle(out);
}

TEST(a_result_for_a_process_that_has_ended_is_freed)
{
    actor         me = { 0 };
    filch_options options = FILCH_OPTIONS_INIT;
    options.work_threads = 3;
    /* without workers, steps run on this thread, so the test may read `me` */
    fixture_begin_with(&w, FILCH_NO_WORKERS, options);
    actor_start(&w, &me, play_work);
    UNTIL(&w, fli_load_acq(&begun) == 2);
    UNTIL(&w, me.seen_count >= 1);
    same(me.seen[0].error, FILCH_EINVAL); /* the result of one job was filch_move() of NULL */
    ok(filch_cancel(w.sched, me.pid));
    actor_ends(&w, &me, FILCH_OK);
    fli_store_rel(&may_return, true);
    fixture_end(&w);
    same(fli_load_acq(&freed), 1);
}

/* ---- log lines written by a handler, which name no process ---- */

typedef struct lines {
    filch_pid pids[8];
    uint32_t  count;
} lines;

static void keep_line(void *user, const filch_log_line *line)
{
    lines *all = user;
    if (all->count < COUNT_OF(all->pids)) all->pids[all->count++] = line->pid;
}

static filch_err log_handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)command;
    filch_err err = filch_log(((fixture *)user)->sched, FILCH_LOG_INFO, FILCH_OK, "from a handler");
    return filch_complete(receiver, tag, filch_none(), err);
}

static filch_err play_log(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    if (me->stage++ > 0) return filch_idle(out);
    me->note = filch_log(filch_out_sched(out), FILCH_LOG_INFO, FILCH_OK, "from a step");
    if (filch_yield(out, FILCH_CMD_USER, 1, filch_none()) != FILCH_OK) return FILCH_EUSER;
    return filch_idle(out);
}

TEST(a_line_logged_by_a_handler_names_no_process)
{
    actor           me = { 0 };
    lines           all = { .count = 0 };
    filch_registry *registry;
    filch_options   options = FILCH_OPTIONS_INIT;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, log_handler, &w));
    options.registry = registry;
    options.on_log = keep_line;
    options.on_log_user = &all;
    fixture_begin_with(&w, FILCH_NO_WORKERS, options);
    actor_start(&w, &me, play_log);
    (void)fixture_tick(&w);
    ok(filch_log(w.sched, FILCH_LOG_INFO, FILCH_OK, "from a thread"));
    same(all.count, 3);
    assert_true(same_pid(all.pids[0], me.pid));
    assert_true(is_null_pid(all.pids[1]));
    assert_true(is_null_pid(all.pids[2]));
    fixture_end(&w);
    filch_registry_destroy(registry);
    filch_drop(&me.result);
}

/* ---- deadlines inside deadlines ---- */

TEST(the_earliest_of_several_deadlines_counts_wherever_it_is)
{
    actor               me = { 0 };
    filch_values       *outer, *inner;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    fixture_begin(&w, FILCH_NO_WORKERS);
    uint64_t now_ns = filch_now(w.sched);
    ok(filch_values_deadline(NULL, now_ns + FILCH_SECONDS(3600), &outer));
    /* `inner` contains the deadline of `outer` and an earlier deadline */
    ok(filch_values_deadline(outer, now_ns, &inner));
    opt.values = inner;
    actor_start_with(&w, &me, play_idle, opt);
    actor_ends(&w, &me, FILCH_OK); /* process `me` is cancelled at once, because its deadline has passed */
    same(me.seen[0].type, FILCH_EVENT_CANCEL);
    filch_values_drop(inner);
    filch_values_drop(outer);
    fixture_end(&w);
}

/* ---- threads that make requests to supervisors ---- */

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

/* The process fails with an error detail that is no ordinary text: bytes of two lines, an empty text, or a number. */
static filch_err failing_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)events, (void)count;
    int64_t how = *(int64_t *)self;
    return filch_fail(out, FILCH_EUSER,
                      how == 0   ? filch_bytes("first\nsecond", 12)
                      : how == 1 ? filch_str("")
                                 : filch_int(5));
}

static filch_err failing_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(int64_t *)self = filch_as_int(args);
    return FILCH_OK;
}

static const filch_type idle_type = { .name = "idle", .step = idle_step };
static const filch_type failing_type = {
    .name = "failing", .size = sizeof(int64_t), .init = failing_init, .step = failing_step
};

static void start_supervisor(const filch_supervisor *spec, actor *exit_record, filch_pid *pid)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr((void *)(uintptr_t)spec);
    opt.on_exit = actor_exit;
    opt.on_exit_user = exit_record;
    ok(filch_spawn(w.sched, &filch_supervisor_type, &opt, &exit_record->pid));
    *pid = exit_record->pid;
}

TEST(a_thread_may_start_a_child_without_taking_its_pid)
{
    filch_supervisor   spec = { .strategy = FILCH_ONE_FOR_ONE };
    filch_child        child = { .id = "late", .type = &idle_type };
    filch_child_answer answer;
    actor              exit_record = { 0 };
    filch_pid          pid;
    fixture_begin(&w, 1);
    start_supervisor(&spec, &exit_record, &pid);
    ok(filch_child_await(w.sched, pid)); /* returns at once; no thread gets the answer of this request */
    ok(filch_child_start_wait(w.sched, pid, &child, FILCH_SECONDS(3600), NULL));
    same(filch_child_start_wait(w.sched, pid, &child, FILCH_SECONDS(3600), NULL), FILCH_EEXISTS);
    ok(filch_child_stop_wait(w.sched, pid, "late", FILCH_SECONDS(3600)));
    filch_data no_answer = filch_str("no answer");
    same(filch_child_answered(&no_answer, &answer), 0);
    same(filch_child_answered(NULL, &answer), 0);
    ok(filch_cancel(w.sched, pid));
    UNTIL(&w, is_over(&exit_record));
    filch_drop(&exit_record.result);
    fixture_end(&w);
}

/* The process ignores a cancel; it ends only when it is killed. */
static filch_err stubborn_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_idle(out);
}

static FLI_ATOMIC(uint32_t) released;

static void count_release(const filch_child *child)
{
    (void)child;
    fli_add_rel(&released, 1);
}

TEST(a_waiting_child_start_is_released_when_the_supervisor_is_killed)
{
    static const filch_type stubborn = { .name = "stubborn", .step = stubborn_step };
    filch_supervisor        spec = { .strategy = FILCH_ONE_FOR_ONE };
    filch_child child = { .id = "same", .type = &stubborn, .stop_ns = FILCH_FOREVER, .release = count_release };
    actor       exit_record = { 0 };
    filch_pid   pid;
    fixture_begin(&w, FILCH_NO_WORKERS);
    start_supervisor(&spec, &exit_record, &pid);
    ok(filch_child_start(w.sched, pid, &child));
    (void)fixture_tick(&w);
    ok(filch_child_stop(w.sched, pid, "same"));
    (void)fixture_tick(&w);
    /* both starts wait for the end of the first child, which ignores its cancel */
    ok(filch_child_start(w.sched, pid, &child));
    ok(filch_child_start(w.sched, pid, &child));
    (void)fixture_tick(&w);
    same(fli_load_acq(&released), 0);
    ok(filch_terminate(w.sched, pid));
    UNTIL(&w, is_over(&exit_record));
    filch_drop(&exit_record.result);
    fixture_end(&w); /* the first child ended because it was linked with the supervisor */
    same(fli_load_acq(&released), 3);
}

TEST(a_supervisor_gives_up_with_the_first_line_of_the_childs_error_text)
{
    static const char *const want[] = { "first", "", "" };
    for (int64_t how = 0; how < 3; how++) {
        filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
        options.args = filch_int(how);
        filch_child      child = { .id = "fails", .type = &failing_type, .options = &options };
        filch_supervisor spec = { .strategy = FILCH_ONE_FOR_ONE };
        actor            exit_record = { 0 };
        filch_pid        pid;
        spec.children = &child;
        spec.child_count = 1;
        spec.intensity = FILCH_NO_RESTARTS;
        fixture_begin(&w, 1);
        start_supervisor(&spec, &exit_record, &pid);
        UNTIL(&w, is_over(&exit_record));
        same(exit_record.exit_error, FILCH_ELIMIT);
        const char *text = filch_text(&exit_record.result);
        if (how == 0) {
            assert_non_null(strstr(text, want[how]));
            assert_null(strstr(text, "second"));
        } else {
            assert_non_null(strstr(text, filch_err_text(FILCH_EUSER)));
        }
        filch_drop(&exit_record.result);
        fixture_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_without_memory_counts_processes_it_cannot_list),
#if FLI_IO
        cmocka_unit_test(descriptors_that_cannot_be_copied_are_neither_waited_for_nor_adopted),
        cmocka_unit_test(run_options_of_a_newer_header_are_accepted_if_the_rest_is_zero),
#endif
        cmocka_unit_test(bytes_that_are_no_list_of_a_directory_are_refused),
        cmocka_unit_test(a_result_for_a_process_that_has_ended_is_freed),
        cmocka_unit_test(a_line_logged_by_a_handler_names_no_process),
        cmocka_unit_test(the_earliest_of_several_deadlines_counts_wherever_it_is),
        cmocka_unit_test(a_thread_may_start_a_child_without_taking_its_pid),
        cmocka_unit_test(a_waiting_child_start_is_released_when_the_supervisor_is_killed),
        cmocka_unit_test(a_supervisor_gives_up_with_the_first_line_of_the_childs_error_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
