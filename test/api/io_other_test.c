/* io_other_test.c - datagrams, names, files, programs and signals; I/O commands in a simulation; errors of I/O commands
 * with invalid arguments. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/io_script.h"
#include "clock/timers.h"
#include "support/until.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* ---- datagrams ---- */

TEST(datagrams_arrive_whole_with_the_address_of_the_sender)
{
    FOR_WORKER_COUNTS({
        script server = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS, DO_RECEIVE_FROM(0), DO_RECEIVE_FROM(4),
                               DO_TIMEOUT(FILCH_MILLISECONDS(5)), DO_RECEIVE_FROM(0));
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        script client = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS,
                               DO_SEND_TO(server.local, "a datagram that is longer than an event"),
                               DO_SEND_TO(server.local, "truncated"), DO_SEND_TO("nonsense", "x"));
        script_start(&w, &client);
        script_ends(&w, &client);
        script_ends(&w, &server);
        same(client.result[2].number, 39);
        same(client.result[4].error, FILCH_EINVAL);
        assert_string_equal(server.result[2].bytes, "a datagram that is longer than an event");
        ok(server.result[2].error);
        assert_string_equal(server.result[3].bytes, "trun");
        /* FILCH_ETOOBIG: the datagram was longer than the 4 bytes requested, and its other bytes are lost */
        same(server.result[3].error, FILCH_ETOOBIG);
        same(server.result[5].error, FILCH_EDEADLINE);
        assert_string_equal(server.sender, client.local);
    })
}

enum { KEPT = 50 };

/* Receives KEPT datagrams and keeps all their payloads in the array that `user` points to. */
static filch_err play_keeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_data *kept = me->user;
    if (me->stage == 0) {
        me->stage++;
        me->note = filch_yield_datagram(out, 1, "unix:@filch-io-other-test", NULL);
        return filch_wait(out);
    }
    static filch_stream stream;
    if (count != 1 || events[0].error != FILCH_OK) return FILCH_EUSER;
    if (me->stage == 1) stream = filch_as_stream(&events[0].data);
    else me->note |= filch_keep(&events[0].data, &kept[me->stage - 2]);
    if (me->stage++ == KEPT + 1) return filch_done(out, filch_none());
    me->note |= filch_yield_receive_from(out, 2, stream, 0, FILCH_FOREVER);
    return filch_wait(out);
}

TEST(a_process_that_keeps_datagrams_keeps_little_more_than_their_bytes)
{
    static filch_data kept[KEPT];
    actor             keeper = { .user = kept };
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &keeper, play_keeps);
    UNTIL(&w, keeper.stage == 2);
    script client = SCRIPT(DO_DATAGRAM("unix:@filch-io-other-test-2"), DO_PAUSE);
    script_start(&w, &client);
    UNTIL(&w, script_stage(&client) == 1);
    int64_t before = fli_load_rlx(&w.bytes);
    for (int i = 0; i < KEPT; i++) {
        struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "\0filch-io-other-test" };
        char               bytes[200] = { (char)i };
        int                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        same(sendto(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&at,
                    offsetof(struct sockaddr_un, sun_path) + strlen("_filch-io-other-test")),
             sizeof bytes);
        close(fd);
        UNTIL(&w, keeper.stage == i + 3);
    }
    int64_t after = fli_load_rlx(&w.bytes);
    /* all datagrams are kept in one common buffer of 65536 bytes */
    assert_true(after - before < 65536 + KEPT * 1024);
    actor_ends(&w, &keeper, FILCH_OK);
    ok(keeper.note);
    for (int i = 0; i < KEPT; i++) {
        same(filch_size(&kept[i]), 200);
        same(*(const char *)filch_raw(&kept[i]), i);
        filch_drop(&kept[i]);
    }
    ok(filch_send(w.sched, client.actor.pid, filch_none()));
    script_ends(&w, &client);
    fixture_end(&w);
}

TEST(operations_that_do_not_fit_the_kind_of_stream_are_refused){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_READ(0), DO_WRITE("x"), DO_ACCEPT, DO_SHUTDOWN, DO_SEEK(0, 0),
                      DO_EXIT, DO_KILL(9), DO_LISTEN("127.0.0.1:0"), DO_READ(0), DO_WRITE("x"),
                      DO_SEND_TO("127.0.0.1:9", "x"), DO_RECEIVE_FROM(0));
    script_start(&w, &s);
    script_ends(&w, &s);
    for (int i = 1; i <= 12; i++) {
        if (i != 8) same(s.result[i].error, FILCH_EINVAL);
    }
}) }

/* ---- names ---- */

TEST(a_numeric_address_resolves_to_itself_and_an_unknown_name_to_enohost){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_RESOLVE("127.0.0.1", "80"), DO_RESOLVE("no-such-host.invalid", "80"), DO_RESOLVE("::1", "443"),
                      DO_RESOLVE(NULL, NULL));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[0].error, FILCH_OK);
    assert_string_equal(s.result[0].bytes, "127.0.0.1:80");
    same(s.result[1].error, FILCH_ENOHOST);
    assert_string_equal(s.result[2].bytes, "[::1]:443");
    same(s.result[3].error, FILCH_EINVAL);
}) }

TEST(an_invalid_port_resolves_to_enohost){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_RESOLVE(NULL, "99999999"), DO_RESOLVE("127.0.0.1", "65536"), DO_RESOLVE("127.0.0.1", "-2"),
                      DO_RESOLVE("127.0.0.1", " 80"), DO_RESOLVE("127.0.0.1", "no such service"),
                      DO_RESOLVE("127.0.0.1", "65535"), DO_RESOLVE("127.0.0.1", "0"));
    script_start(&w, &s);
    script_ends(&w, &s);
    for (int i = 0; i < 5; i++) same(s.result[i].error, FILCH_ENOHOST);
    assert_string_equal(s.result[5].bytes, "127.0.0.1:65535");
    assert_string_equal(s.result[6].bytes, "127.0.0.1:0");
}) }

/* ---- files ---- */

TEST(files_are_written_read_and_sought)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/filch-io-test-%d", (int)getpid());
    FOR_WORKER_COUNTS({
        (void)unlink(path);
        script s = SCRIPT(
            DO_OPEN(path, FILCH_OPEN_READ), DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE),
            DO_WRITE("line one\nline two, which is longer than an event\n"), DO_SEEK(5, 0), DO_UNTIL("\n", 99),
            DO_SEEK(0, 1), DO_EXACTLY(40), DO_EXACTLY(40), DO_READ(0), DO_SEEK(-4, 2), DO_READ(0), DO_SEEK(-1, 0),
            DO_OPEN(path, FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_NEW), DO_SHUTDOWN, DO_CLOSE);
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[0].error, FILCH_ENOFILE);
        same(s.result[0].number, ENOENT);
        same(s.result[2].number, 49);
        same(s.result[3].number, 5);
        assert_string_equal(s.result[4].bytes, "one\n");
        /* the position counts only bytes that the process has got, not bytes that the runtime has read ahead */
        same(s.result[5].number, 9);
        assert_string_equal(s.result[6].bytes, "line two, which is longer than an event\n");
        same(s.result[7].error, FILCH_EEND);
        same(s.result[8].error, FILCH_EEND);
        assert_string_equal(s.result[10].bytes, "ent\n");
        same(s.result[11].error, FILCH_ESYS);
        same(s.result[11].number, EINVAL);
        same(s.result[12].error, FILCH_EEXISTS);
        same(s.result[13].error, FILCH_EINVAL);
        same(s.result[14].error, FILCH_OK);
    })
    ok(unlink(path));
}

TEST(a_large_file_is_read_in_one_piece)
{
    enum { LARGE = 3 << 20 };
    char  path[64];
    char *bytes = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++) bytes[i] = (char)(i * 7);
    snprintf(path, sizeof path, "/tmp/filch-io-large-%d", (int)getpid());
    fixture_begin(&w, 2);
    script s = SCRIPT(DO_OPEN(path, FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE),
                      DO_WRITE_LOTS(bytes, LARGE), DO_SEEK(0, 0), DO_EXACTLY(LARGE), DO_KEEP);
    script_start(&w, &s);
    UNTIL(&w, script_is_over(&s));
    same(filch_size(&s.kept[0]), LARGE);
    assert_memory_equal(filch_raw(&s.kept[0]), bytes, LARGE);
    filch_drop(&s.kept[0]);
    script_ends(&w, &s);
    fixture_end(&w);
    free(bytes);
    ok(unlink(path));
}

TEST(a_process_that_ends_while_its_file_is_read_closes_it_once)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        for (uint32_t i = 0; i < fixture_scale(50, 5); i++) {
            script s = SCRIPT(DO_OPEN("/dev/zero", FILCH_OPEN_READ), DO_EXACTLY(1 << 20), DO_EXACTLY(1 << 20));
            script_start(&w, &s);
            if (i % 2 == 0) UNTIL(&w, script_stage(&s) >= 1);
            (void)!filch_terminate(w.sched, s.actor.pid);
            script_ends(&w, &s);
        }
    })
    same(open_descriptors(), before);
}

/* ---- programs ---- */

/* If old_system is set, pidfd_open fails as on systems without pidfds. The linker replaces syscall() by
 * __wrap_syscall() (test/CMakeLists.txt). */
static FLI_ATOMIC(bool) old_system;
long                    __real_syscall(long number, ...);
long                    __wrap_syscall(long number, ...);
long                    __wrap_syscall(long number, ...)
{
    long    with[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) with[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_pidfd_open && fli_load_rlx(&old_system)) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

/* Runs the body with every number of workers, with and without pidfds. */
#define EACH_SYSTEM(...)                 \
    for (int old = 0; old <= 1; old++) { \
        fli_store_rlx(&old_system, old); \
        FOR_WORKER_COUNTS(__VA_ARGS__)   \
    }                                    \
    fli_store_rlx(&old_system, false)

static const char *const cat[] = { "cat", NULL }, *const no_such[] = { "no-such-program-anywhere", NULL },
                         *const dies[] = { "sh", "-c", "echo out; echo err >&2; exit 7", NULL },
                         *const merged[] = { "sh", "-c", "echo out; echo err >&2", NULL },
                         *const sleeps[] = { "sleep", "1000", NULL },
                         *const prints[] = { "sh", "-c", "head -c 10485760 /dev/zero", NULL },
                         *const masks[] = { "sh", "-c", "grep SigBlk /proc/self/status; ls /proc/self/fd | wc -l",
                                            NULL };

/* If true, the next call of fli_timers_alarm(), which starts the timeout of an operation, returns only after the
 * timeout has fired, so before the operation waits. In a program this happens if the worker is suspended after it has
 * started the timeout, and another worker reads the clock. */
static FLI_ATOMIC(bool) alarm_is_quick;
uint64_t                __real_fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);
uint64_t                __wrap_fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie);
uint64_t                __wrap_fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie)
{
    uint64_t id = __real_fli_timers_alarm(timers, due_ns, cookie);
    if (!fli_load_rlx(&alarm_is_quick)) return id;
    fli_store_rlx(&alarm_is_quick, false);
    while (fli_timers_poll(timers, fli_clock_ns()) == 0) {}
    return id;
}

TEST(the_exit_of_a_program_is_reported_though_its_poll_timer_fired_early)
{
    fli_store_rlx(&old_system, true); /* without a pidfd the runtime polls whether the program has ended */
    fixture_begin(&w, FILCH_NO_WORKERS);
    script s = SCRIPT(DO_RUN(sleeps, 0), DO_EXIT);
    fli_store_rlx(&alarm_is_quick, true);
    script_start(&w, &s);
    UNTIL(&w, script_stage(&s) == 1);
    assert_false(fli_load_rlx(&alarm_is_quick));
    ok(kill((pid_t)s.program.pid, SIGKILL));
    script_ends(&w, &s);
    ok(s.result[1].error);
    same(s.result[1].number, -SIGKILL);
    fixture_end(&w);
    fli_store_rlx(&old_system, false);
}

TEST(a_program_uses_stdin_stdout_and_stderr_and_exits)
{
    EACH_SYSTEM({
        script s =
            SCRIPT(DO_RUN(dies, FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS), DO_USE_OUTPUT, DO_UNTIL("\n", 99), DO_USE_ERRORS,
                   DO_UNTIL("\n", 99), DO_READ(0), DO_USE_PROGRAM, DO_EXIT, DO_EXIT, DO_RUN(no_such, 0),
                   DO_RUN(cat, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT), DO_USE_INPUT, DO_WRITE("through a pipe\n"),
                   DO_CLOSE, DO_USE_OUTPUT, DO_UNTIL("\n", 99), DO_READ(0), DO_USE_PROGRAM, DO_EXIT);
        script_start(&w, &s);
        script_ends(&w, &s);
        assert_string_equal(s.result[2].bytes, "out\n");
        assert_string_equal(s.result[4].bytes, "err\n");
        same(s.result[5].error, FILCH_EEND);
        same(s.result[7].number, 7);
        /* the second yield for the exit of the program has the same result as the first */
        same(s.result[8].number, 7);
        if (!is_under_valgrind() && emulator() == NULL)
            /* result 9 is that of starting a program whose file does not exist; under valgrind or an emulator this
             * start seems to succeed, so it is not checked there */
            same(s.result[9].error, FILCH_ENOFILE);
        assert_string_equal(s.result[15].bytes, "through a pipe\n");
        same(s.result[16].error, FILCH_EEND);
        same(s.result[18].error, FILCH_OK);
        same(s.result[18].number, 0);
    });
}

TEST(a_program_starts_with_no_blocked_signals_and_three_descriptors)
{
    fixture_begin(&w, 1);
    script s = SCRIPT(DO_RUN(masks, FILCH_RUN_OUTPUT), DO_USE_OUTPUT, DO_UNTIL("\n", 99), DO_UNTIL("\n", 99),
                      DO_RUN(merged, FILCH_RUN_OUTPUT | FILCH_RUN_MERGE), DO_USE_OUTPUT, DO_EXACTLY(8));
    script_start(&w, &s);
    script_ends(&w, &s);
    assert_string_equal(s.result[2].bytes, "SigBlk:\t0000000000000000\n");
    same(atoi(s.result[3].bytes), 4); /* ls lists the three standard descriptors, and one that it opens */
    assert_string_equal(s.result[6].bytes, "out\nerr\n");
    fixture_end(&w);
}

TEST(the_exit_of_a_killed_program_has_its_signal)
{
    EACH_SYSTEM({
        script s = SCRIPT(DO_RUN(sleeps, 0), DO_TIMEOUT(FILCH_MILLISECONDS(5)), DO_EXIT, DO_TIMEOUT(FILCH_FOREVER),
                          DO_KILL(SIGTERM), DO_EXIT);
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[2].error, FILCH_EDEADLINE);
        same(s.result[4].error, FILCH_OK);
        same(s.result[5].number, -SIGTERM);
    });
}

TEST(a_program_does_not_outlive_the_process_that_started_it)
{
    EACH_SYSTEM({
        script s = SCRIPT(DO_RUN(sleeps, FILCH_RUN_INPUT), DO_EXIT);
        script_start(&w, &s);
        UNTIL(&w, script_stage(&s) == 1);
        int64_t pid = s.program.pid;
        ok(kill((pid_t)pid, 0));
        ok(filch_cancel(w.sched, s.actor.pid));
        script_ends(&w, &s);
        UNTIL(&w, kill((pid_t)pid, 0) != 0); /* the program has ended and was waited for */
        same(errno, ESRCH);
    });
}

TEST(ten_megabytes_of_a_programs_output_arrive)
{
    fixture_begin(&w, 2);
    script s = SCRIPT(DO_RUN(prints, FILCH_RUN_OUTPUT), DO_USE_OUTPUT, DO_EXACTLY(10485760), DO_READ(0), DO_USE_PROGRAM,
                      DO_EXIT);
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[2].size, 10485760);
    same(s.result[3].error, FILCH_EEND);
    same(s.result[5].number, 0);
    fixture_end(&w);
}

TEST(writing_to_a_program_that_has_exited_is_an_error_and_not_a_signal)
{
    EACH_SYSTEM({
        script s = SCRIPT(DO_RUN(merged, FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS), DO_EXIT, DO_USE_INPUT,
                          DO_WRITE("anybody?"));
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[3].error, FILCH_ERESET);
        same(s.result[3].number, EPIPE);
    });
}

/* ---- signals ---- */

TEST(signals_blocked_by_the_program_arrive_as_events)
{
    static const int numbers[] = { SIGUSR1, SIGUSR2 }, wrong[] = { 0 };
    sigset_t         set;
    sigset_t         before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    ok(pthread_sigmask(SIG_BLOCK, &set, &before));
    FOR_WORKER_COUNTS({
        script s = SCRIPT(DO_SIGNALS(wrong, 1), DO_SIGNALS(numbers, 2), DO_READ(0), DO_READ(0),
                          DO_TIMEOUT(FILCH_MILLISECONDS(5)), DO_READ(0));
        script_start(&w, &s);
        UNTIL(&w, script_stage(&s) == 2);
        ok(kill(getpid(), SIGUSR1));
        UNTIL(&w, script_stage(&s) == 3);
        ok(kill(getpid(), SIGUSR2));
        script_ends(&w, &s);
        same(s.result[0].error, FILCH_EINVAL);
        same(s.result[2].number, SIGUSR1);
        same(s.result[3].number, SIGUSR2);
        same(s.result[5].error, FILCH_EDEADLINE);
    })
    ok(pthread_sigmask(SIG_SETMASK, &before, NULL));
}

/* ---- invalid arguments ---- */

static filch_err play_nonsense(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_stream      none = { 0 };
    filch_data        bytes = filch_bytes("x", 1);
    char              text[8];
    const char *const empty[] = { NULL };
    const char *const blank[] = { "", NULL };
    int               number = 65;
    (void)events, (void)count;
    filch_socket_options bad = { .size = 1 };
    filch_socket_options worse = { .size = sizeof worse, .flags = 1u << 30 };
    char                 longer[600];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    const filch_err got[] = {
        filch_yield_connect(NULL, 0, "127.0.0.1:1", NULL),
        filch_yield_connect(out, 0, NULL, NULL),
        filch_yield_connect(out, 0, "", NULL),
        filch_yield_connect(out, 0, longer, NULL),
        filch_yield_connect(out, 0, "127.0.0.1:1", &bad),
        filch_yield_listen(out, 0, "127.0.0.1:1", &worse),
        filch_yield_listen(out, 0, NULL, NULL),
        filch_yield_accept(NULL, 0, none, 0),
        filch_yield_datagram(NULL, 0, "127.0.0.1:1", NULL),
        filch_yield_send_to(out, 0, none, NULL, bytes, 0),
        filch_yield_send_to(out, 0, none, "127.0.0.1:1", filch_bytes(NULL, 5), 0),
        filch_yield_receive_from(NULL, 0, none, 0, 0),
        filch_yield_resolve(out, 0, NULL, NULL),
        filch_yield_resolve(out, 0, longer, NULL),
        filch_yield_read(NULL, 0, none, 0, 0),
        filch_yield_read_exactly(out, 0, none, 0, 0),
        filch_yield_read_until(out, 0, none, NULL, 1, 10, 0),
        filch_yield_read_until(out, 0, none, "x", 0, 10, 0),
        filch_yield_read_until(out, 0, none, "123456789", 9, 10, 0),
        filch_yield_read_until(out, 0, none, "ab", 2, 1, 0),
        filch_yield_write(out, 0, none, filch_int(5), 0),
        filch_yield_write(NULL, 0, none, bytes, 0),
        filch_yield_write(out, 0, none, filch_bytes(NULL, 5), 0),
        filch_yield_shutdown(NULL, 0, none),
        filch_yield_close(NULL, 0, none),
        filch_yield_io_cancel(NULL, 0, none),
        filch_yield_open(out, 0, NULL, FILCH_OPEN_READ),
        filch_yield_open(out, 0, "", FILCH_OPEN_READ),
        filch_yield_open(out, 0, "/tmp", 0),
        filch_yield_open(out, 0, "/tmp", FILCH_OPEN_READ | FILCH_OPEN_EMPTY),
        filch_yield_seek(out, 0, none, 0, 3),
        filch_yield_seek(out, 0, none, 0, -1),
        filch_yield_run(out, 0, NULL, 0),
        filch_yield_run(out, 0, empty, 0),
        filch_yield_run(out, 0, blank, 0),
        filch_yield_run(out, 0, cat, 1u << 20),
        filch_yield_run(NULL, 0, cat, 0),
        filch_yield_run(out, 0, cat, FILCH_RUN_ERRORS | FILCH_RUN_MERGE),
        filch_yield_exit(NULL, 0, none, 0),
        filch_yield_kill(out, 0, none, 0),
        filch_yield_kill(out, 0, none, 65),
        filch_yield_signals(out, 0, NULL, 1),
        filch_yield_signals(out, 0, &number, 1),
        filch_yield_signals(out, 0, &number, 0),
        filch_stream_give(NULL, none, (filch_pid){ 0, 0 }),
        filch_stream_take(out, NULL, &none),
        filch_stream_take(out, &bytes, NULL),
        filch_stream_take(out, &bytes, &none),
        filch_stream_address(out, none, FILCH_ADDRESS_LOCAL, NULL, 8),
        filch_stream_address(out, none, FILCH_ADDRESS_LOCAL, text, 0),
    };
    for (size_t i = 0; i < COUNT_OF(got); i++) {
        if (got[i] != FILCH_EINVAL) me->stage = (int64_t)i + 1;
    }
    me->note = filch_stream_address(out, none, FILCH_ADDRESS_LOCAL, text, sizeof text);
    return filch_done(out, filch_none());
}

TEST(bad_io_arguments_are_refused_before_a_yield_is_made)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor a = { .user = NULL };
    actor_start(&w, &a, play_nonsense);
    actor_ends(&w, &a, FILCH_OK);
    same(a.stage, 0);
    same(a.note, FILCH_ESTREAM);
    same(fixture_stats(&w).yields, 0);
    filch_program program;
    filch_data    number = filch_int(3);
    same(filch_as_program(NULL, &program), FILCH_EINVAL);
    same(filch_as_program(&number, &program), FILCH_EINVAL);
    same(filch_as_program(&number, NULL), FILCH_EINVAL);
    same(filch_as_stream(NULL).id, 0);
    filch_data stream = filch_of_stream((filch_stream){ 77 });
    same(filch_as_stream(&stream).id, 77);
    filch_command    command = { .id = FILCH_CMD_READ, .data = filch_str("not an order") };
    filch_io_request request = { .size = sizeof request };
    same(filch_io_read(NULL, &request), FILCH_EINVAL);
    same(filch_io_read(&command, NULL), FILCH_EINVAL);
    for (uint32_t id = 0; id < 256; id++) {
        command.id = id;
        bool bare = id == FILCH_CMD_WRITE || id == FILCH_CMD_ACCEPT || id == FILCH_CMD_CLOSE ||
                    id == FILCH_CMD_SHUTDOWN || id == FILCH_CMD_IO_CANCEL || id == FILCH_CMD_EXIT;
        same(filch_io_read(&command, &request), bare ? FILCH_OK : FILCH_EINVAL);
    }
    fixture_end(&w);
}

static filch_err play_raw(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    if (me->steps == 1) {
        for (uint32_t id = 30; id < 160; id++) {
            bool ours = (id >= 30 && id <= 36) || (id >= 40 && id <= 42) || (id >= 50 && id <= 57) ||
                        (id >= 60 && id <= 67) || (id >= 150 && id <= 153);
            if (!ours) continue;
            if (filch_yield(out, id, id, filch_str("made by hand, and longer than what fits into an event")) ==
                FILCH_OK) {
                me->stage++;
            }
        }
        return filch_idle(out);
    }
    for (size_t i = 0; i < count; i++) {
        me->stage--;
        if (events[i].error != FILCH_EINVAL && events[i].error != FILCH_ESTREAM) me->note = events[i].error;
    }
    return me->stage == 0 ? filch_done(out, filch_none()) : filch_idle(out);
}

TEST(io_commands_with_handmade_data_are_refused)
{
    FOR_WORKER_COUNTS({
        actor a = { .user = NULL };
        actor_start(&w, &a, play_raw);
        actor_ends(&w, &a, FILCH_OK);
        same(a.note, FILCH_OK);
    })
}

/* ---- in a simulation ---- */

static filch_err step_simulated(void *self, const filch_event *events, size_t count, filch_out *out)
{
    filch_err *seen = *(filch_err **)self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    if (count > 0) {
        *seen = events[0].error != FILCH_OK ? events[0].error : (filch_err)filch_as_int(&events[0].data);
        return filch_done(out, filch_none());
    }
    filch_err err = filch_yield_read_until(out, 1, (filch_stream){ 42 }, "\n", 1, 100, FILCH_SECONDS(1));
    return err == FILCH_OK ? filch_wait(out) : err;
}

static filch_err init_simulated(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(void **)self = filch_as_ptr(args);
    return FILCH_OK;
}

static const filch_type simulated = {
    .name = "simulated", .size = sizeof(void *), .init = init_simulated, .step = step_simulated
};

static filch_err scenario(filch_sched *sched, void *user)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_ptr(user);
    return filch_spawn(sched, &simulated, &opt, NULL);
}

static filch_err own_read(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    filch_io_request request = { .size = sizeof request };
    (void)user;
    filch_err err = filch_io_read(command, &request);
    if (err != FILCH_OK) return err;
    bool right = request.stream.id == 42 && request.how == 2 && request.most == 100 && request.delimiter_size == 1 &&
                 request.delimiter[0] == '\n' && request.timeout_ns == FILCH_SECONDS(1);
    return filch_complete(receiver, tag, filch_int(right ? 77 : 78), FILCH_OK);
}

TEST(a_simulation_refuses_real_io_and_accepts_users_handlers)
{
    filch_err        seen = FILCH_OK;
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(NULL, scenario, &seen, &report));
    same(report.verdict, FILCH_SIM_REFUSED);
    assert_non_null(strstr(report.text, "I/O"));
    filch_sim_report_free(&report);

    filch_options     sched = FILCH_OPTIONS_INIT;
    filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;
    ok(filch_registry_create(&sched.registry));
    ok(filch_registry_remove(sched.registry, FILCH_CMD_READ));
    ok(filch_registry_add(sched.registry, FILCH_CMD_READ, own_read, NULL));
    opt.sched = &sched;
    report = (filch_sim_report)FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(&opt, scenario, &seen, &report));
    same(report.verdict, FILCH_SIM_OK);
    same(seen, 77);
    filch_sim_report_free(&report);
    filch_registry_destroy(sched.registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datagrams_arrive_whole_with_the_address_of_the_sender),
        cmocka_unit_test(a_process_that_keeps_datagrams_keeps_little_more_than_their_bytes),
        cmocka_unit_test(operations_that_do_not_fit_the_kind_of_stream_are_refused),
        cmocka_unit_test(a_numeric_address_resolves_to_itself_and_an_unknown_name_to_enohost),
        cmocka_unit_test(an_invalid_port_resolves_to_enohost),
        cmocka_unit_test(files_are_written_read_and_sought),
        cmocka_unit_test(a_large_file_is_read_in_one_piece),
        cmocka_unit_test(a_process_that_ends_while_its_file_is_read_closes_it_once),
        cmocka_unit_test(the_exit_of_a_program_is_reported_though_its_poll_timer_fired_early),
        cmocka_unit_test(a_program_uses_stdin_stdout_and_stderr_and_exits),
        cmocka_unit_test(a_program_starts_with_no_blocked_signals_and_three_descriptors),
        cmocka_unit_test(the_exit_of_a_killed_program_has_its_signal),
        cmocka_unit_test(a_program_does_not_outlive_the_process_that_started_it),
        cmocka_unit_test(ten_megabytes_of_a_programs_output_arrive),
        cmocka_unit_test(writing_to_a_program_that_has_exited_is_an_error_and_not_a_signal),
        cmocka_unit_test(signals_blocked_by_the_program_arrive_as_events),
        cmocka_unit_test(bad_io_arguments_are_refused_before_a_yield_is_made),
        cmocka_unit_test(io_commands_with_handmade_data_are_refused),
        cmocka_unit_test(a_simulation_refuses_real_io_and_accepts_users_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
