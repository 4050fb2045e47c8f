/* regular_test.c - a file is read if it is regular, small enough and inside the folders; every other path is
 * refused, and no call waits. */
#include "port/regular.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"

static char top[64], inside[80], roots[256];

static const char *at(const char *folder, const char *name)
{
    static char path[4][256];
    static int  next;
    char       *p = path[next++ % 4];
    snprintf(p, 256, "%s/%s", folder, name);
    return p;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_true(file != NULL);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(top, "/tmp/filch_regular_XXXXXX");
    assert_true(mkdtemp(top) != NULL);
    snprintf(inside, sizeof inside, "%s/in", top);
    snprintf(roots, sizeof roots, "/no/such/folder;%s", inside);
    same(mkdir(inside, 0700), 0);
    put(at(inside, "code.lua"), "return 1");
    put(at(inside, "empty.lua"), "");
    put(at(top, "secret.lua"), "password");
    same(symlink("code.lua", at(inside, "again.lua")), 0);
    same(symlink("../secret.lua", at(inside, "out.lua")), 0);
    same(symlink("/dev/zero", at(inside, "zero.lua")), 0);
    same(mkfifo(at(inside, "fifo.lua"), 0600), 0);
    put(at(inside, "huge.lua"), "");
    same(truncate(at(inside, "huge.lua"), (off_t)1 << 40), 0);
    same(mkdir(at(inside, "folder.lua"), 0700), 0);
    return 0;
}

static int clean_up(void **state)
{
    static const char *const names[] = { "code.lua", "empty.lua", "again.lua", "out.lua",
                                         "zero.lua", "fifo.lua",  "huge.lua" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) same(unlink(at(inside, names[i])), 0);
    same(rmdir(at(inside, "folder.lua")), 0);
    same(unlink(at(top, "secret.lua")), 0);
    return rmdir(inside) | rmdir(top);
}

static fli_regular read_it(const char *path, size_t max, const char *text)
{
    char       *bytes = NULL;
    size_t      size = 0;
    fli_regular result = fli_regular_read(path, roots, max, &bytes, &size);
    if (result == FLI_REGULAR_OK) {
        same(size, strlen(text));
        assert_memory_equal(bytes, text, size);
        free(bytes);
    }
    return result;
}

TEST(files_inside_the_roots_are_read_also_through_links)
{
    same(read_it(at(inside, "code.lua"), 8, "return 1"), FLI_REGULAR_OK);
    same(read_it(at(inside, "again.lua"), 100, "return 1"), FLI_REGULAR_OK);
    same(read_it(at(inside, "folder.lua/../code.lua"), 100, "return 1"), FLI_REGULAR_OK);
    same(read_it(at(inside, "empty.lua"), 100, ""), FLI_REGULAR_OK);
    assert_true(fli_regular_exists(at(inside, "code.lua"), roots, NULL, 0));
    char real[PATH_MAX], other[PATH_MAX];
    assert_true(fli_regular_exists(at(inside, "code.lua"), roots, real, sizeof real));
    assert_true(fli_regular_exists(at(inside, "././/./code.lua"), roots, other, sizeof other));
    assert_string_equal(real, other);
    assert_true(fli_regular_exists(at(inside, "code.lua"), roots, other, strlen(real) + 1));
    assert_false(fli_regular_exists(at(inside, "code.lua"), roots, other, strlen(real)));
}

TEST(missing_outside_irregular_and_too_large_files_are_refused)
{
    same(read_it(at(inside, "none.lua"), 100, ""), FLI_REGULAR_MISSING);
    same(read_it(at(inside, "out.lua"), 100, ""), FLI_REGULAR_OUTSIDE);
    same(read_it(at(inside, "zero.lua"), 100, ""), FLI_REGULAR_OUTSIDE);
    same(read_it(at(inside, "../secret.lua"), 100, ""), FLI_REGULAR_OUTSIDE);
    same(read_it(at(inside, "fifo.lua"), 100, ""), FLI_REGULAR_OTHER);
    same(read_it(at(inside, "folder.lua"), 100, ""), FLI_REGULAR_OTHER);
    same(read_it(at(inside, "code.lua"), 7, ""), FLI_REGULAR_TOO_LARGE);
    /* a sparse file of 1 TiB: refused by its size, before memory is allocated or a byte is read */
    same(read_it(at(inside, "huge.lua"), 262144, ""), FLI_REGULAR_TOO_LARGE);
    same(read_it("", 100, ""), FLI_REGULAR_MISSING);
    assert_false(fli_regular_exists(at(inside, "fifo.lua"), roots, NULL, 0));
    assert_false(fli_regular_exists(at(inside, "out.lua"), roots, NULL, 0));
}

TEST(a_root_that_is_a_prefix_of_the_directory_name_does_not_match)
{
    char  *bytes = NULL, part[96];
    size_t size;
    snprintf(part, sizeof part, "%s/i", top);
    same(mkdir(part, 0700), 0);
    same(fli_regular_read(at(inside, "code.lua"), part, 100, &bytes, &size), FLI_REGULAR_OUTSIDE);
    same(rmdir(part), 0);
    same(fli_regular_read(at(inside, "code.lua"), "/", 100, &bytes, &size), FLI_REGULAR_OK);
    free(bytes);
    same(fli_regular_read(at(inside, "code.lua"), NULL, 100, &bytes, &size), FLI_REGULAR_OK);
    free(bytes);
    same(fli_regular_read(at(inside, "fifo.lua"), NULL, 100, &bytes, &size), FLI_REGULAR_OTHER);
    same(fli_regular_read("/dev/zero", NULL, 100, &bytes, &size), FLI_REGULAR_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, clean_up)
        T(files_inside_the_roots_are_read_also_through_links),
        T(missing_outside_irregular_and_too_large_files_are_refused),
        T(a_root_that_is_a_prefix_of_the_directory_name_does_not_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
