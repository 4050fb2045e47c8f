/* io_stuck_test.c - blocking calls that do not return: other kinds of calls continue, a deadline or a cancel completes
 * the yield, and the late result of the call is released. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/io_script.h"
#include "port/net.h"
#include "port/program.h"
#include "support/until.h"
#include "work/pool.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* ---- replaced blocking calls, which wait while the gate is closed ---- */

static FLI_ATOMIC(bool)     closed;
static FLI_ATOMIC(uint32_t) waiting; /* number of calls that wait at the gate */

static void wait_at_gate(void)
{
    fli_add_acqrel(&waiting, 1);
    while (fli_load_acq(&closed)) until_pause(1000);
    fli_sub_acqrel(&waiting, 1);
}

static void gate(bool shut)
{
    fli_store_rel(&closed, shut);
}

filch_err __real_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);
filch_err __wrap_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size);
filch_err __wrap_fli_net_resolve(const char *host, const char *service, char *text, size_t room, size_t *size)
{
    if (host != NULL && strcmp(host, "dead") == 0) wait_at_gate();
    return __real_fli_net_resolve("127.0.0.1", service, text, room, size);
}

int __real_fli_program_start(const fli_program_plan *plan, fli_program *out);
int __wrap_fli_program_start(const fli_program_plan *plan, fli_program *out);
int __wrap_fli_program_start(const fli_program_plan *plan, fli_program *out)
{
    if (strcmp(plan->argv[0], "sleep") == 0) wait_at_gate();
    return __real_fli_program_start(plan, out);
}

/* ---- yielder: a process that makes one yield and stores its completion ---- */

typedef struct yielder {
    actor actor;
    filch_err (*make_yield)(filch_out *out, const struct yielder *a);
    const char         *text;
    uint64_t            timeout_ns;
    filch_stream        stream;
    result              result;
    FLI_ATOMIC(bool)    completed, reading;
    FLI_ATOMIC(int64_t) cancelled; /* number of operations that filch_yield_io_cancel has reported as cancelled */
} yielder;

static filch_err play_yielder(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    yielder *a = me->user;
    if (me->steps == 1) {
        filch_err err = a->make_yield(out, a);
        return err == FILCH_OK ? filch_idle(out) : err;
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        note(&a->result, &events[i]);
        fli_store_rel(&a->completed, true);
    }
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static void start(yielder *a)
{
    a->actor.user = a;
    actor_start(&w, &a->actor, play_yielder);
}

static bool is_completed(yielder *a)
{
    return fli_load_acq(&a->completed);
}

static void finish(yielder *a)
{
    ok(filch_cancel(w.sched, a->actor.pid));
    actor_ends(&w, &a->actor, FILCH_OK);
}

static filch_err yield_open(filch_out *out, const yielder *a)
{
    return filch_yield_open_within(out, 1, a->text, FILCH_OPEN_READ, a->timeout_ns);
}

static filch_err yield_resolve(filch_out *out, const yielder *a)
{
    return filch_yield_resolve_within(out, 1, a->text, "80", a->timeout_ns);
}

enum { ALL = FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS };

static filch_err yield_run(filch_out *out, const yielder *a)
{
    static const char *const sleeps[] = { "sleep", "1000", NULL };
    filch_run_options        options = FILCH_RUN_OPTIONS_INIT;
    options.flags = ALL;
    options.timeout_ns = a->timeout_ns;
    return filch_yield_run_with(out, 1, sleeps, &options);
}

#define YIELDER(function, what, ns)                                  \
    {                                                                \
        .make_yield = (function), .text = (what), .timeout_ns = (ns) \
    }

/* ---- a FIFO without a writer ---- */

static char fifo[64];

static void make_fifo(void)
{
    snprintf(fifo, sizeof fifo, "/tmp/filch-io-fifo-%d", (int)getpid());
    (void)unlink(fifo);
    ok(mkfifo(fifo, 0600));
}

/* Opens the FIFO also for writing, so that each open for reading returns: one that hangs now, and each later one. */
static int open_fifo(void)
{
    int fd = open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

/* ---- tests ---- */

TEST(opens_and_name_lookups_that_hang_do_not_delay_others)
{
    enum { HUNG = FLI_LANE_MOST > 12 ? 12 : FLI_LANE_MOST - 1 };
    make_fifo();
    FOR_WORKER_COUNTS({
        yielder opens[HUNG], names[HUNG];
        gate(true);
        for (int i = 0; i < HUNG; i++) {
            opens[i] = (yielder)YIELDER(yield_open, fifo, FILCH_FOREVER);
            names[i] = (yielder)YIELDER(yield_resolve, "dead", FILCH_FOREVER);
            start(&opens[i]);
            start(&names[i]);
        }
        UNTIL(&w, fli_load_acq(&waiting) == HUNG);
        static const char *const argv[] = { "true", NULL };
        script s = SCRIPT(DO_OPEN("/etc/passwd", FILCH_OPEN_READ), DO_READ(10), DO_RESOLVE("alive", "80"),
                          DO_RUN(argv, 0), DO_EXIT);
        script_start(&w, &s);
        script_ends(&w, &s);
        for (int i = 0; i < 5; i++) same(s.result[i].error, FILCH_OK);
        for (int i = 0; i < HUNG; i++) assert_false(is_completed(&opens[i]) || is_completed(&names[i]));
        int fd = open_fifo();
        gate(false);
        for (int i = 0; i < HUNG; i++) {
            UNTIL(&w, is_completed(&opens[i]) && is_completed(&names[i]));
            same(opens[i].result.error, FILCH_OK);
            same(names[i].result.error, FILCH_OK);
            finish(&opens[i]);
            finish(&names[i]);
        }
        close(fd);
    })
    ok(unlink(fifo));
}

TEST(more_name_lookups_than_threads_wait_and_none_is_refused)
{
    enum { MANY = 200 };
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.work_threads = 1;
    opt.work_queue = 1;
    static yielder names[MANY];
    fixture_begin_with(&w, 2, opt);
    gate(true);
    for (int i = 0; i < MANY; i++) {
        names[i] = (yielder)YIELDER(yield_resolve, "dead", FILCH_FOREVER);
        start(&names[i]);
    }
    UNTIL(&w, fli_load_acq(&waiting) >= 2);
    gate(false);
    for (int i = 0; i < MANY; i++) {
        UNTIL(&w, is_completed(&names[i]));
        same(names[i].result.error, FILCH_OK);
        finish(&names[i]);
    }
    fixture_end(&w);
}

TEST(an_open_that_hangs_ends_at_its_deadline_and_leaves_no_descriptor)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        yielder a = YIELDER(yield_open, fifo, FILCH_MILLISECONDS(5));
        int     before = open_descriptors();
        start(&a);
        UNTIL(&w, is_completed(&a));
        same(a.result.error, FILCH_EDEADLINE);
        int fd = open_fifo(); /* open_fifo() lets the hanging open return, with a descriptor */
        UNTIL(&w, w.sched != NULL && open_descriptors() <= before + 1);
        finish(&a);
        close(fd);
    })
    ok(unlink(fifo));
}

TEST(a_deadline_that_does_not_pass_changes_nothing){ FOR_WORKER_COUNTS({
    yielder a = YIELDER(yield_open, "/etc/passwd", FILCH_SECONDS(3600)),
            b = YIELDER(yield_resolve, "alive", FILCH_SECONDS(3600));
    start(&a);
    start(&b);
    UNTIL(&w, is_completed(&a) && is_completed(&b));
    same(a.result.error, FILCH_OK);
    same(b.result.error, FILCH_OK);
    assert_string_equal(b.result.bytes, "127.0.0.1:80");
    same(fixture_stats(&w).timers, 0); /* the timer of the deadline was removed before it fired */
    finish(&a);
    finish(&b);
}) }

TEST(a_name_lookup_that_hangs_ends_at_its_deadline)
{
    FOR_WORKER_COUNTS({
        yielder a = YIELDER(yield_resolve, "dead", FILCH_MILLISECONDS(5)), at_once = YIELDER(yield_resolve, "dead", 0);
        gate(true);
        start(&a);
        start(&at_once);
        UNTIL(&w, is_completed(&a) && is_completed(&at_once));
        same(a.result.error, FILCH_EDEADLINE);
        same(at_once.result.error, FILCH_EDEADLINE);
        gate(false);
        finish(&a);
        finish(&at_once);
    })
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

TEST(a_program_whose_start_hangs_is_killed_if_it_starts_after_the_deadline)
{
    FOR_WORKER_COUNTS({
        yielder first = YIELDER(yield_run, NULL, FILCH_FOREVER), a = YIELDER(yield_run, NULL, FILCH_MILLISECONDS(5));
        start(&first);
        UNTIL(&w, is_completed(&first));
        finish(&first);
        UNTIL(&w, !has_children());
        int before = open_descriptors(); /* the poller exists already, so its descriptors are in `before` */
        gate(true);
        start(&a);
        UNTIL(&w, is_completed(&a));
        same(a.result.error, FILCH_EDEADLINE);
        gate(false);
        UNTIL(&w, fli_load_acq(&waiting) == 0);
        /* the program was killed and its pipes were closed although the process lives, because the process has no
         * stream ids for the pipes */
        UNTIL(&w, !has_children() && open_descriptors() <= before);
        finish(&a);
    })
}

/* ---- environment and directory of a child program ---- */

static filch_err yield_shell(filch_out *out, const yielder *a)
{
    const char *const        argv[] = { "/bin/sh", "-c", a->text, NULL };
    static const char *const environment[] = { "ONE=1", NULL };
    filch_run_options        options = FILCH_RUN_OPTIONS_INIT;
    options.flags = FILCH_RUN_SAME_GROUP;
    options.environment = environment;
    options.directory = "/";
    return filch_yield_run_with(out, 1, argv, &options);
}

static filch_err play_shell(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    yielder *a = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        filch_program program;
        if (filch_as_program(&events[i].data, &program) == FILCH_OK) {
            me->note = filch_yield_exit(out, 2, program.self, FILCH_FOREVER);
        } else {
            note(&a->result, &events[i]);
            return filch_done(out, filch_none());
        }
    }
    if (me->steps == 1) me->note = yield_shell(out, a);
    return filch_idle(out);
}

TEST(a_program_finds_the_environment_and_the_directory_of_its_options)
{
    FOR_WORKER_COUNTS({
        yielder a = { .text = "test \"$ONE$HOME\" = 1 && test $(pwd) = / && exit 42" };
        a.actor.user = &a;
        actor_start(&w, &a.actor, play_shell);
        actor_ends(&w, &a.actor, FILCH_OK);
        same(a.result.error, FILCH_OK);
        same(a.result.number, 42);
    })
}

static filch_err yield_bad_run(filch_out *out, const yielder *a)
{
    static const char *const argv[] = { "true", NULL };
    filch_run_options        options = FILCH_RUN_OPTIONS_INIT;
    options.directory = "";
    same(filch_yield_run_with(out, 1, argv, &options), FILCH_EINVAL);
    options.directory = NULL;
    options.flags = FILCH_RUN_ERRORS | FILCH_RUN_MERGE;
    same(filch_yield_run_with(out, 1, argv, &options), FILCH_EINVAL);
    options.flags = 1u << 20;
    same(filch_yield_run_with(out, 1, argv, &options), FILCH_EINVAL);
    options.flags = 0;
    options.spare = 1;
    same(filch_yield_run_with(out, 1, argv, &options), FILCH_EINVAL);
    options.spare = 0;
    options.size = 1;
    same(filch_yield_run_with(out, 1, argv, &options), FILCH_EINVAL);
    same(filch_yield_run_with(out, 1, NULL, NULL), FILCH_EINVAL);
    same(filch_yield_run_with(NULL, 1, argv, NULL), FILCH_EINVAL);
    return filch_yield_resolve_within(out, 1, "alive", "80", a->timeout_ns);
}

TEST(bad_options_of_a_program_are_refused)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    yielder a = YIELDER(yield_bad_run, NULL, FILCH_FOREVER);
    start(&a);
    UNTIL(&w, is_completed(&a));
    finish(&a);
    fixture_end(&w);
}

TEST(the_call_and_timer_of_an_ended_process_are_cleaned_up)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        yielder a = YIELDER(yield_open, fifo, FILCH_SECONDS(3600));
        start(&a);
        UNTIL(&w, fixture_stats(&w).timers == 1);
        finish(&a);
        same(fixture_stats(&w).timers, 0);
        int fd = open_fifo();
        UNTIL(&w, fixture_stats(&w).alive == 0);
        close(fd);
    })
    ok(unlink(fifo));
}

/* Opens the FIFO for reading and writing, and reads it with a timeout. Message 1 cancels the read; any other message
 * starts another read. */
static filch_err play_read(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    yielder *a = me->user;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            bool cancels = filch_as_int(&events[i].data) == 1;
            me->note = cancels ? filch_yield_io_cancel(out, 9, a->stream)
                               : filch_yield_read(out, 3, a->stream, 0, FILCH_FOREVER);
            return filch_idle(out);
        }
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        if (events[i].tag == 9) {
            fli_store_rel(&a->cancelled, filch_as_int(&events[i].data));
            continue;
        }
        note(&a->result, &events[i]);
        fli_store_rel(&a->completed, events[i].tag >= 2);
        if (events[i].tag == 1) a->stream = filch_as_stream(&events[i].data);
        if (events[i].tag == 1) me->note = filch_yield_read(out, 2, a->stream, 0, a->timeout_ns);
        fli_store_rel(&a->reading, true);
    }
    if (me->steps == 1) me->note = filch_yield_open(out, 1, fifo, FILCH_OPEN_READ | FILCH_OPEN_WRITE);
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static void start_reading(yielder *a)
{
    a->actor.user = a;
    actor_start(&w, &a->actor, play_read);
}

/* Checks that the stream is busy until the hanging read has returned, and can be read after that. */
static void read_again(yielder *a, filch_err first)
{
    int fd = open_fifo();
    same(a->result.error, first);
    fli_store_rel(&a->completed, false);
    ok(filch_send(w.sched, a->actor.pid, filch_int(2)));
    UNTIL(&w, is_completed(a));
    same(a->result.error, FILCH_EBUSY);
    do {
        fli_store_rel(&a->completed, false);
        ok(filch_send(w.sched, a->actor.pid, filch_int(2)));
        while (!is_completed(a)) {
            /* the first byte lets the hanging read return; a byte of a later iteration is for the new read */
            (void)!write(fd, "x", 1);
            fixture_turn(&w);
        }
    } while (a->result.error == FILCH_EBUSY);
    same(a->result.error, FILCH_OK);
    close(fd);
}

TEST(a_file_read_that_hangs_ends_at_its_deadline_and_the_file_can_be_used_later)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        yielder a = { .timeout_ns = FILCH_MILLISECONDS(5) };
        start_reading(&a);
        UNTIL(&w, is_completed(&a));
        read_again(&a, FILCH_EDEADLINE);
        finish(&a);
    })
    ok(unlink(fifo));
}

TEST(a_file_read_that_hangs_can_be_cancelled)
{
    make_fifo();
    FOR_WORKER_COUNTS({
        yielder a = { .timeout_ns = FILCH_FOREVER };
        start_reading(&a);
        UNTIL(&w, fli_load_acq(&a.reading));
        ok(filch_send(w.sched, a.actor.pid, filch_int(1)));
        UNTIL(&w, is_completed(&a));
        UNTIL(&w, fli_load_acq(&a.cancelled) == 1);
        read_again(&a, FILCH_ECANCELLED);
        finish(&a);
    })
    ok(unlink(fifo));
}

/* ---- yielded functions of the program, which run on the thread pool ---- */

static FLI_ATOMIC(uint32_t) freed;

static void count_freed(void *user, void *bytes, size_t size)
{
    (void)user, (void)size;
    free(bytes);
    fli_add_acqrel(&freed, 1);
}

static filch_err hang(void *arg, filch_data *answer)
{
    (void)arg;
    wait_at_gate();
    return filch_share(malloc(100), 100, count_freed, NULL, answer);
}

static filch_err yield_work(filch_out *out, const yielder *a)
{
    return filch_yield_work_within(out, 1, hang, NULL, a->timeout_ns);
}

TEST(a_function_that_hangs_ends_at_its_deadline_and_its_result_is_released)
{
    FOR_WORKER_COUNTS({
        yielder late = YIELDER(yield_work, NULL, FILCH_MILLISECONDS(5));
        fli_store_rlx(&freed, 0);
        gate(true);
        start(&late);
        UNTIL(&w, is_completed(&late));
        same(late.result.error, FILCH_EDEADLINE);
        gate(false);
        UNTIL(&w, fli_load_acq(&freed) == 1);
        finish(&late);
        yielder good = YIELDER(yield_work, NULL, FILCH_SECONDS(3600));
        start(&good);
        UNTIL(&w, is_completed(&good));
        same(good.result.error, FILCH_OK);
        same(good.result.size, 100);
        same(fixture_stats(&w).timers, 0);
        finish(&good);
        UNTIL(&w, fli_load_acq(&freed) == 2);
        yielder forever = YIELDER(yield_work, NULL, FILCH_FOREVER);
        start(&forever);
        UNTIL(&w, is_completed(&forever));
        same(forever.result.error, FILCH_OK);
        finish(&forever);
    })
}

static filch_err yield_nonsense(filch_out *out, const yielder *a)
{
    same(filch_yield_work_within(out, 1, NULL, NULL, 5), FILCH_EINVAL);
    same(filch_yield_work_within(NULL, 1, hang, NULL, 5), FILCH_EINVAL);
    same(filch_yield_open_within(out, 1, NULL, FILCH_OPEN_READ, 5), FILCH_EINVAL);
    same(filch_yield_open_within(NULL, 1, "x", FILCH_OPEN_READ, 5), FILCH_EINVAL);
    same(filch_yield_resolve_within(out, 1, NULL, NULL, 5), FILCH_EINVAL);
    same(filch_yield_resolve_within(NULL, 1, "x", NULL, 5), FILCH_EINVAL);
    return filch_yield_resolve_within(out, 1, "alive", "80", a->timeout_ns);
}

TEST(bad_io_arguments_with_a_deadline_are_refused)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    yielder a = YIELDER(yield_nonsense, NULL, FILCH_FOREVER);
    start(&a);
    UNTIL(&w, is_completed(&a));
    same(a.result.error, FILCH_OK);
    finish(&a);
    fixture_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_and_name_lookups_that_hang_do_not_delay_others),
        cmocka_unit_test(more_name_lookups_than_threads_wait_and_none_is_refused),
        cmocka_unit_test(an_open_that_hangs_ends_at_its_deadline_and_leaves_no_descriptor),
        cmocka_unit_test(a_deadline_that_does_not_pass_changes_nothing),
        cmocka_unit_test(a_name_lookup_that_hangs_ends_at_its_deadline),
        cmocka_unit_test(a_program_whose_start_hangs_is_killed_if_it_starts_after_the_deadline),
        cmocka_unit_test(a_program_finds_the_environment_and_the_directory_of_its_options),
        cmocka_unit_test(bad_options_of_a_program_are_refused),
        cmocka_unit_test(the_call_and_timer_of_an_ended_process_are_cleaned_up),
        cmocka_unit_test(a_file_read_that_hangs_ends_at_its_deadline_and_the_file_can_be_used_later),
        cmocka_unit_test(a_file_read_that_hangs_can_be_cancelled),
        cmocka_unit_test(a_function_that_hangs_ends_at_its_deadline_and_its_result_is_released),
        cmocka_unit_test(bad_io_arguments_with_a_deadline_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
