/* assert_test.c - a broken invariant is reported with file, line and condition before the program stops. The assertion
 * fails in a child process, and the test reads the child's output. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filch.h>

#include "base/assert.h"
#include "support/check.h"
#include "support/counted.h"

static int words; /* descriptor to which the child process writes the report of the failed assertion */

static void write_report(const char *file, int line, const char *text)
{
    char    line_text[200];
    int     size = snprintf(line_text, sizeof line_text, "%s:%d: %s\n", file, line, text);
    ssize_t wrote = write(words, line_text, (size_t)size);
    (void)wrote;
}

static void report_and_fail_again(const char *file, int line, const char *text)
{
    write_report(file, line, text);
    FLI_ASSERT(line < 0);
}

static void break_invariant(void)
{
    int told = 0;
    FLI_ASSERT(told != 0 && "told");
}

static void fail_by_name(void)
{
    filch_assert_failed("part.c", 12, "a < b");
}

/* Runs `how`, which breaks an assertion, in a child process that has set `handler`. Returns the child's output in
 * `text`, and its exit status. */
static void die_of(void (*how)(void), filch_assert_fn handler, char *text, size_t room, int *status)
{
    int ends[2];
    ok(pipe(ends));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGILL, COUNTED_DEATH);
        (void)signal(SIGTRAP, COUNTED_DEATH);
        words = ends[1];
        (void)filch_assert_handler(handler);
        how();
        _exit(0);
    }
    close(ends[1]);
    size_t  got = 0;
    ssize_t n;
    while ((n = read(ends[0], text + got, room - 1 - got)) > 0) got += (size_t)n;
    text[got] = '\0';
    close(ends[0]);
    same(waitpid(child, status, 0), child);
}

static void die(filch_assert_fn handler, char *text, size_t room, int *status)
{
    die_of(break_invariant, handler, text, room, status);
}

TEST(a_failed_assertion_gives_the_handler_place_and_text_and_aborts)
{
    char text[400];
    int  status;
    die(write_report, text, sizeof text, &status);
    assert_true(WIFSIGNALED(status));
    assert_non_null(strstr(text, "assert_test.c:"));
    assert_non_null(strstr(text, "told != 0 && \"told\""));
    assert_null(strchr(text, '/')); /* the report contains no path of the build machine */
}

TEST(filch_assert_failed_passes_its_arguments_on_and_does_not_return)
{
    char text[400];
    int  status;
    die_of(fail_by_name, write_report, text, sizeof text, &status);
    assert_true(WIFSIGNALED(status));
    assert_string_equal(text, "part.c:12: a < b\n");
}

TEST(without_a_handler_a_failed_assertion_aborts_silently)
{
    char text[400];
    int  status;
    die_of(fail_by_name, NULL, text, sizeof text, &status);
    assert_true(WIFSIGNALED(status));
    assert_string_equal(text, "");
    die(NULL, text, sizeof text, &status);
    assert_true(WIFSIGNALED(status));
    assert_string_equal(text, "");
}

TEST(a_handler_that_fails_itself_is_called_once)
{
    char text[400];
    int  status;
    die(report_and_fail_again, text, sizeof text, &status);
    assert_true(WIFSIGNALED(status));
    assert_true(strchr(text, '\n') == strrchr(text, '\n'));
}

TEST(filch_assert_handler_returns_the_previous_handler)
{
    assert_true(filch_assert_handler(write_report) == NULL);
    assert_true(filch_assert_handler(NULL) == write_report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_assertion_gives_the_handler_place_and_text_and_aborts),
        cmocka_unit_test(filch_assert_failed_passes_its_arguments_on_and_does_not_return),
        cmocka_unit_test(without_a_handler_a_failed_assertion_aborts_silently),
        cmocka_unit_test(a_handler_that_fails_itself_is_called_once),
        cmocka_unit_test(filch_assert_handler_returns_the_previous_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
