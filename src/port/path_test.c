/* path_test.c - files by path: descriptors that a synced rename leaves open, paths with additional slashes, lists
 * without memory. test/api/io_files_test.c tests the commands. */
#include "port/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/alloc.h"
#include "support/check.h"
#include "support/descriptors.h"

static char folder[64];

static const char *in(const char *name)
{
    static char paths[4][128];
    static int  next;
    char       *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    ok(close(fd));
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/filch-path-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

TEST(a_synced_rename_leaves_nothing_open_whatever_the_form_of_its_paths)
{
    int before = open_descriptors();
    ok(fli_path_mkdir(in("a")));
    touch(in("f"));
    ok(fli_path_rename(in("a"), in("b/"), FILCH_RENAME_SYNC)); /* a target with a trailing slash: its last name is b */
    ok(fli_path_rename(in("f"), in("b//g"), FILCH_RENAME_SYNC));
    ok(fli_path_rename(in("b//g"), in("b/h"), FILCH_RENAME_SYNC));
    ok(fli_path_unlink(in("b/h")));
    ok(fli_path_rmdir(in("b")));
    same(fli_path_rename(in("none"), in("b"), FILCH_RENAME_SYNC), -ENOENT);
    /* Renames inside the working directory, and inside the root directory. */
    char *was = getcwd(NULL, 0);
    ok(chdir(folder));
    touch("x");
    ok(fli_path_rename("x", "y", FILCH_RENAME_SYNC));
    ok(fli_path_unlink("y"));
    ok(chdir(was));
    free(was);
    same(fli_path_rename("/", "/filch-path-test", FILCH_RENAME_SYNC | FILCH_RENAME_NEW) < 0, true);
    same(open_descriptors(), before);
}

/* First no descriptor is left for the target directory, then none for the source directory. */
TEST(a_synced_rename_that_cannot_open_its_directories_changes_nothing)
{
    struct rlimit was, few;
    int           before = open_descriptors(), next = dup(0);
    ok(close(next));
    ok(fli_path_mkdir(in("a")));
    touch(in("f"));
    ok(getrlimit(RLIMIT_NOFILE, &was));
    for (int room = 0; room < 2; room++) {
        few = (struct rlimit){ .rlim_cur = (rlim_t)(next + room), .rlim_max = was.rlim_max };
        ok(setrlimit(RLIMIT_NOFILE, &few));
        same(fli_path_rename(in("f"), in("a/f"), FILCH_RENAME_SYNC), -EMFILE);
        ok(access(in("f"), F_OK));
        same(access(in("a/f"), F_OK), -1);
    }
    same(fli_path_rename(in("f"), in("g"), FILCH_RENAME_SYNC), 0);  /* the same directory: one descriptor is enough */
    same(fli_path_rename(in("g"), in("/h"), FILCH_RENAME_SYNC), 0); /* the same directory, although one path has two
                                                                       slashes */
    ok(setrlimit(RLIMIT_NOFILE, &was));
    ok(fli_path_unlink(in("h")));
    ok(fli_path_rmdir(in("a")));
    same(open_descriptors(), before);
}

TEST(a_directory_list_without_memory_or_space_fails_and_leaks_nothing)
{
    static test_alloc alloc;
    fli_mem           mem;
    char             *bytes = NULL;
    size_t            room = 0, size = 0;
    int               before = open_descriptors(), why = -ENOMEM;
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    touch(in("one"));
    touch(in("two"));
    for (uint64_t nth = 1; nth <= 3; nth++) {
        test_alloc_fail(&alloc, nth, false);
        same(fli_path_list(&mem, folder, 1000, &bytes, &room, &size), -ENOMEM);
        test_alloc_balanced(&alloc);
    }
    test_alloc_fail(&alloc, 0, false);
    same(fli_path_list(&mem, folder, 9, &bytes, &room, &size), -EMSGSIZE);
    test_alloc_balanced(&alloc);
    why = fli_path_list(&mem, folder, 10, &bytes, &room, &size); /* each entry has a kind byte, three letters and a
                                                                    NUL */
    ok(why);
    same(size, 10);
    assert_memory_equal(bytes, "\1one\0\1two\0", 10);
    fli_free(&mem, bytes, room);
    test_alloc_balanced(&alloc);
    same(fli_path_list(&mem, in("one"), 10, &bytes, &room, &size), -ENOTDIR);
    ok(fli_path_unlink(in("one")));
    ok(fli_path_unlink(in("two")));
    same(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synced_rename_leaves_nothing_open_whatever_the_form_of_its_paths),
        cmocka_unit_test(a_synced_rename_that_cannot_open_its_directories_changes_nothing),
        cmocka_unit_test(a_directory_list_without_memory_or_space_fails_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
