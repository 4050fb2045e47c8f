/* program_old_libc_test.c - descriptors of the host where the C library cannot close all of them for a program it starts:
 * glibc before 2.34, and musl. Includes program.c itself, so that this way is forced. */
#define FLI_PROGRAM_CLOSEFROM 0
#include "port/program.c"

#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/until.h"

static void list_descriptors(char *text, size_t room)
{
    static char *const lists[] = { "sh", "-c", "ls /proc/self/fd | tr '\\n' ' '", NULL };
    fli_program        program;
    size_t             used = 0;
    ssize_t            n = -1;
    ok(fli_program_start(&(fli_program_plan){ .argv = lists, .flags = FILCH_RUN_OUTPUT }, &program));
    do {
        until((n = read(program.output, text + used, room - 1 - used)) >= 0 || errno != EAGAIN);
        used += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    text[used] = '\0';
    assert_true(fli_program_bury(program.pid, program.group, true));
    ok(close(program.output));
    if (program.fd >= 0) ok(close(program.fd));
}

TEST(a_program_inherits_nothing_from_a_host_with_an_older_c_library)
{
    char          text[256];
    int           leaks[200];
    struct rlimit limit;
    ok(getrlimit(RLIMIT_NOFILE, &limit));
    int high = limit.rlim_cur > DENSE_MAX + 100 ? fcntl(2, F_DUPFD, DENSE_MAX + 50) : -1;
    for (int i = 0; i < 200; i++) leaks[i] = dup(2); /* without close-on-exec */
    list_descriptors(text, sizeof text);
    for (int i = 0; i < 200; i++) ok(close(leaks[i]));
    if (high >= 0) ok(close(high));
    assert_string_equal(text, "0 1 2 3 ");
    list_descriptors(text, sizeof text);
    assert_string_equal(text, "0 1 2 3 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_inherits_nothing_from_a_host_with_an_older_c_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
