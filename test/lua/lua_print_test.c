/* lua_print_test.c - print when the reader of standard output is slow or gone, and the host has set no function for
 * printing. Standard output of this program is a pipe while a test runs. */
#include <fcntl.h>
#include <filch_lua.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"
#include "support/until.h"

static struct {
    filch_sched *sched;
    filch_lua   *lua;
    int          reader, stdout_kept;
    atomic_int   over;
    filch_err    error;
    char         text[256];
} w;

static int begin(void **state)
{
    int ends[2];
    (void)state;
    memset(&w, 0, sizeof w);
    fflush(stdout);
    w.stdout_kept = dup(STDOUT_FILENO);
    ok(pipe(ends));
    assert_true(dup2(ends[1], STDOUT_FILENO) >= 0);
    ok(close(ends[1]));
    w.reader = ends[0];
    ok(fcntl(w.reader, F_SETFL, O_NONBLOCK));
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = 1;
    ok(filch_lua_create(&w.lua, NULL));
    ok(filch_sched_create(&w.sched, &options));
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)filch_sched_stop(w.sched, FILCH_SECONDS(30), NULL);
    ok(filch_lua_destroy(w.lua));
    (void)dup2(w.stdout_kept, STDOUT_FILENO);
    ok(close(w.stdout_kept));
    if (w.reader >= 0) ok(close(w.reader));
    return 0;
}

static void ended(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid;
    size_t size = filch_size(result);
    w.error = error;
    if (size < sizeof w.text && filch_raw(result) != NULL) memcpy(w.text, filch_raw(result), size);
    atomic_store(&w.over, 1);
}

static filch_pid start(const char *chunk)
{
    filch_lua_code         *code;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_pid               pid;
    spawn.on_exit = ended;
    how.spawn = &spawn;
    ok(filch_lua_load(w.lua, chunk, strlen(chunk), "test", &code, NULL, 0));
    ok(filch_lua_spawn(w.lua, w.sched, code, &how, &pid));
    filch_lua_code_drop(w.lua, code);
    return pid;
}

/* Fills the pipe to which print writes, until a write would block. */
static void fill_pipe(void)
{
    static const char dots[4096];
    int               flags = fcntl(STDOUT_FILENO, F_GETFL);
    ok(fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK));
    while (write(STDOUT_FILENO, dots, sizeof dots) > 0) {}
    ok(fcntl(STDOUT_FILENO, F_SETFL, flags));
}

static size_t empty_pipe(char *last, size_t room)
{
    static char bytes[1 << 16];
    size_t      all = 0;
    for (ssize_t n; (n = read(w.reader, bytes, sizeof bytes)) > 0; all += (size_t)n) {
        size_t kept = (size_t)n < room ? (size_t)n : room;
        memcpy(last, bytes + (size_t)n - kept, kept);
    }
    return all;
}

static bool sleeps(filch_pid pid)
{
    filch_info info = { .size = sizeof info };
    return filch_inspect(w.sched, pid, &info) == FILCH_OK &&
           (info.state == FILCH_STATE_BLOCKED || info.state == FILCH_STATE_IDLE);
}

TEST(a_printed_line_waits_for_a_slow_reader)
{
    char last[6];
    fill_pipe();
    filch_pid pid = start("print('hello') return 'done'");
    until(sleeps(pid));
    same(filch_lua_flush(w.lua, FILCH_SECONDS(0), NULL),
         /* nothing is left to flush: the printed line waits in the process that printed it, not in the buffer */
         FILCH_OK);
    size_t before = empty_pipe(last, sizeof last);
    assert_true(before >= 4096);
    until(atomic_load(&w.over));
    ok(w.error);
    same(empty_pipe(last, sizeof last), 6);
    assert_memory_equal(last, "hello\n", 6);
}

TEST(print_returns_after_a_line_longer_than_the_pipe_is_written)
{
    uint64_t  dropped = 77;
    char      last[2];
    size_t    got = 0;
    filch_pid pid = start("print(('x'):rep(300000)) return 'done'");
    until(sleeps(pid));
    /* only a part of the line was written, so a flush without waiting fails */
    same(filch_lua_flush(w.lua, FILCH_SECONDS(0), &dropped), FILCH_EDEADLINE);
    same(dropped, 0);
    until(((got += empty_pipe(last, sizeof last)), atomic_load(&w.over)));
    got += empty_pipe(last, sizeof last);
    ok(w.error);
    same(got, 300001);
    ok(filch_lua_flush(w.lua, FILCH_SECONDS(0), &dropped));
}

TEST(a_process_waiting_in_print_can_be_cancelled)
{
    fill_pipe();
    filch_pid pid = start("local ok, why = pcall(print, 'hello') error(tostring(why), 0)");
    until(sleeps(pid));
    ok(filch_cancel(w.sched, pid));
    until(atomic_load(&w.over));
    assert_memory_equal(w.text, "cancelled", 9);
}

TEST(print_without_yield_drops_and_counts_a_line)
{
    uint64_t dropped = 0;
    char     last[6];
    fill_pipe();
    (void)start("return tostring(setmetatable({}, { __tostring = function() print('never') return 'done' end }))");
    until(atomic_load(&w.over));
    ok(w.error);
    ok(filch_lua_flush(w.lua, FILCH_SECONDS(0), &dropped));
    same(dropped, 1);
    (void)empty_pipe(last, sizeof last);
    assert_memory_equal(last, "\0\0\0\0\0\0", 6);
}

TEST(flush_writes_the_rest_of_a_line_printed_without_yield)
{
    char last[2];
    (void)start(
        "return tostring(setmetatable({}, { __tostring = function() print(('x'):rep(300000)) return 'done' end }))");
    until(atomic_load(&w.over));
    ok(w.error);
    uint64_t dropped = 77;
    size_t   got = empty_pipe(last, sizeof last);
    assert_true(got > 0 && got < 300001);
    while (filch_lua_flush(w.lua, FILCH_SECONDS(0), &dropped) == FILCH_EDEADLINE) got += empty_pipe(last, sizeof last);
    same(got + empty_pipe(last, sizeof last), 300001);
    same(dropped, 0);
}

TEST(print_fails_when_the_reader_has_closed_the_pipe)
{
    ok(close(w.reader));
    w.reader = -1;
    (void)start("for i = 1, 10 do print('hello') end");
    until(atomic_load(&w.over));
    assert_non_null(strstr(w.text, "print: standard output is closed: its reader has ended"));
}

TEST(print_fails_when_the_reader_closes_the_pipe_meanwhile)
{
    fill_pipe();
    filch_pid pid = start("print('hello')");
    until(sleeps(pid));
    ok(close(w.reader));
    w.reader = -1;
    until(atomic_load(&w.over));
    assert_non_null(strstr(w.text, "print: standard output is closed: its reader has ended"));
}

TEST(flush_reports_an_unwritten_rest_of_the_log)
{
    static char line[300000];
    int         ends[2], kept = dup(STDERR_FILENO);
    uint64_t    dropped = 77;
    filch_lua  *lua;
    fflush(stderr);
    ok(pipe(ends));
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    ok(filch_lua_create(&lua, NULL));
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    ok(filch_lua_log(lua, line, sizeof line)); /* logs more bytes than fit into the pipe */
    filch_err left = filch_lua_flush(lua, 0, &dropped);
    /* this line is dropped, because the rest of the line before it cannot be written */
    ok(filch_lua_log(lua, "lost\n", 5));
    filch_err still = filch_lua_flush(lua, 0, &dropped);
    ok(filch_lua_destroy(lua));
    (void)dup2(kept, STDERR_FILENO);
    same(left, FILCH_EDEADLINE);
    same(still, FILCH_EDEADLINE);
    same(dropped, 1);
    ok(close(kept));
    ok(close(ends[0]));
    ok(close(ends[1]));
}

TEST(log_and_flush_refuse_wrong_arguments)
{
    same(filch_lua_log(NULL, "x", 1), FILCH_EINVAL);
    same(filch_lua_log(w.lua, NULL, 1), FILCH_EINVAL);
    ok(filch_lua_log(w.lua, NULL, 0));
    ok(filch_lua_log(w.lua, "x", 0));
    same(filch_lua_flush(NULL, 0, NULL), FILCH_EINVAL);
}

#define WITH_PIPE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PIPE(a_printed_line_waits_for_a_slow_reader),
        WITH_PIPE(print_returns_after_a_line_longer_than_the_pipe_is_written),
        WITH_PIPE(a_process_waiting_in_print_can_be_cancelled),
        WITH_PIPE(print_without_yield_drops_and_counts_a_line),
        WITH_PIPE(flush_writes_the_rest_of_a_line_printed_without_yield),
        WITH_PIPE(print_fails_when_the_reader_has_closed_the_pipe),
        WITH_PIPE(print_fails_when_the_reader_closes_the_pipe_meanwhile),
        WITH_PIPE(flush_reports_an_unwritten_rest_of_the_log),
        WITH_PIPE(log_and_flush_refuse_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
