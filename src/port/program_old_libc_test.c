/* program_old_libc_test.c - closing the host's descriptors in a started program if the C library has no function to
 * close all of them: glibc before 2.34, and musl. Includes program.c to force that code. */
#define FLI_PROGRAM_CLOSEFROM 0
#include "port/program.c"

#include <stdio.h>
#include <string.h>

#include "support/check.h"
#include "support/descriptors.h"
#include "support/instead.h"
#include "support/until.h"

INSTEAD_CODE(posix_spawn_file_actions_addclose, (posix_spawn_file_actions_t * actions, int fd), (actions, fd))
INSTEAD_BEGIN(DIR *, opendir, (const char *path))
{
    return fault_strikes(&fault_of_opendir) ? NULL : __real_opendir(path);
}

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
    assert_true(fli_program_reap(program.pid, program.group, true));
    ok(close(program.output));
    if (program.fd >= 0) ok(close(program.fd));
}

TEST(a_program_inherits_nothing_from_a_host_with_an_older_c_library)
{
    char          text[256];
    int           leaks[200];
    struct rlimit limit;
    ok(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max < 2 * DENSE_MAX ? limit.rlim_max : 2 * DENSE_MAX;
    ok(setrlimit(RLIMIT_NOFILE, &limit));
    int high = limit.rlim_cur > DENSE_MAX + 100 ? fcntl(2, F_DUPFD, DENSE_MAX + 50) : -1;
    for (int i = 0; i < 200; i++) leaks[i] = dup(2); /* without close-on-exec */
    list_descriptors(text, sizeof text);
    for (int i = 0; i < 200; i++) ok(close(leaks[i]));
    if (high >= 0) ok(close(high));
    assert_string_equal(text, "0 1 2 3 ");
    list_descriptors(text, sizeof text);
    assert_string_equal(text, "0 1 2 3 ");
}

TEST(no_program_is_started_if_the_open_descriptors_cannot_be_listed)
{
    static char *const ends[] = { "true", NULL };
    fli_program        program;
    char               text[256];
    int                before = open_descriptors();
    refuse(opendir, 1, ENOENT); /* without /proc, /dev/fd is read */
    list_descriptors(text, sizeof text);
    assert_string_equal(text, "0 1 2 3 ");
    refuse(opendir, 2, EMFILE);
    same(fli_program_start(&(fli_program_plan){ .argv = ends }, &program), -EMFILE);
    for (int nth = 0; nth < 2; nth++) {
        int high = nth == 1 ? fcntl(2, F_DUPFD, DENSE_MAX + 50) : -1;
        refuse(posix_spawn_file_actions_addclose, 1, ENOMEM);
        same(fli_program_start(&(fli_program_plan){ .argv = ends }, &program), -ENOMEM);
        if (high >= 0) ok(close(high));
    }
    same(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_inherits_nothing_from_a_host_with_an_older_c_library),
        cmocka_unit_test(no_program_is_started_if_the_open_descriptors_cannot_be_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
