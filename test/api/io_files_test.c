/* io_files_test.c - durable files: sync, truncate, stat, rename, remove, directories; full devices, a close that fails,
 * paths of any bytes. A file that is replaced is never half written, even if the program is killed at any moment. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/io_script.h"
#include "base/prng.h"
#include "support/instead.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* While `close_fails` is set, a close() of a regular file closes the file, but fails with ENOSPC. */
static FLI_ATOMIC(bool) close_fails;
int                     __real_close(int fd);
int                     __wrap_close(int fd);
int                     __wrap_close(int fd)
{
    struct stat what;
    bool        file = fli_load_rlx(&close_fails) && fstat(fd, &what) == 0 && S_ISREG(what.st_mode);
    int         n = __real_close(fd);
    if (!file) return n;
    errno = ENOSPC;
    return -1;
}
INSTEAD(int, fsync, (int fd), (fd))
INSTEAD(int, fdatasync, (int fd), (fd))

/* Path of the folder of the test, and paths of files in it. */
static char folder[64], paths[8][128];

static const char *in_folder(int i, const char *name)
{
    snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
    return paths[i];
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/filch-io-files-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#define WRITES (FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY)

/* ---- open files ---- */

TEST(a_file_is_synced_and_truncated){ FOR_WORKER_COUNTS({
    const char *path = in_folder(0, "a");
    script      s = SCRIPT(DO_OPEN(path, WRITES), DO_WRITE("0123456789"), DO_SYNC(0), DO_SYNC(FILCH_SYNC_DATA),
                           DO_TRUNCATE(4), DO_SEEK(0, 0), DO_READ(0), DO_TRUNCATE(6), DO_SEEK(0, 0), DO_EXACTLY(6), DO_CLOSE,
                           DO_SYNC(0), DO_OPEN(folder, FILCH_OPEN_READ), DO_SYNC(0), DO_TRUNCATE(0), DO_SYNC(2),
                           DO_TRUNCATE(UINT64_C(1) << 63));
    script_start(&w, &s);
    script_ends(&w, &s);
    for (int i = 0; i <= 10; i++) ok(s.result[i].error);
    assert_string_equal(s.result[6].bytes, "0123");
    assert_memory_equal(s.result[9].bytes, "0123\0\0", 6);
    same(s.result[11].error, FILCH_ESTREAM);
    ok(s.result[13].error); /* sync of a directory */
    assert_int_not_equal(s.result[14].error, FILCH_OK);
    same(s.result[15].error, FILCH_EINVAL);
    same(s.result[16].error, FILCH_EINVAL);
}) }

/* The read that fails leaves the whole file in the read buffer, so the position for the write is 0. */
TEST(a_write_after_a_line_that_was_too_long_begins_where_the_line_begins){ FOR_WORKER_COUNTS({
    const char *path = in_folder(0, "line");
    script s = SCRIPT(DO_OPEN(path, WRITES), DO_WRITE("0123456789"), DO_SEEK(0, 0), DO_UNTIL("\n", 4), DO_WRITE("AB"),
                      DO_READ(0), DO_SEEK(0, 0), DO_READ(0));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[3].error, FILCH_ETOOBIG);
    ok(s.result[4].error);
    assert_string_equal(s.result[5].bytes, "23456789");
    ok(s.result[6].error);
    assert_string_equal(s.result[7].bytes, "AB23456789");
}) }

TEST(a_stream_that_is_no_file_is_not_synced){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_SYNC(0), DO_TRUNCATE(0));
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[1].error, FILCH_EINVAL);
    same(s.result[2].error, FILCH_EINVAL);
}) }

TEST(a_write_to_a_full_device_returns_enospace){ FOR_WORKER_COUNTS({
    script s = SCRIPT(DO_OPEN("/dev/full", FILCH_OPEN_WRITE), DO_WRITE("x"), DO_CLOSE);
    script_start(&w, &s);
    script_ends(&w, &s);
    same(s.result[1].error, FILCH_ENOSPACE);
    same(s.result[1].number, ENOSPC);
    ok(s.result[2].error);
}) }

TEST(a_delayed_write_error_is_reported_by_sync_and_by_close)
{
    int before = open_descriptors();
    FOR_WORKER_COUNTS({
        refuse(fsync, 1, EIO);
        refuse(fdatasync, 1, ENOSPC);
        fli_store_rlx(&close_fails, true);
        script s = SCRIPT(DO_OPEN(in_folder(0, "a"), WRITES), DO_WRITE("x"), DO_SYNC(0), DO_SYNC(FILCH_SYNC_DATA),
                          DO_CLOSE, DO_READ(0));
        script_start(&w, &s);
        script_ends(&w, &s);
        fli_store_rlx(&close_fails, false);
        same(s.result[2].error, FILCH_EIO);
        same(s.result[3].error, FILCH_ENOSPACE);
        same(s.result[4].error, FILCH_ENOSPACE);
        same(s.result[4].number, ENOSPC);
        same(s.result[5].error, FILCH_ESTREAM); /* the file was closed although close() failed */
    })
    same(open_descriptors(), before);
}

TEST(a_durable_rename_syncs_both_directories)
{
    FOR_WORKER_COUNTS({
        const char *a = in_folder(0, "a");
        const char *other = in_folder(1, "other");
        const char *moved = in_folder(2, "other/a");
        refuse_after(fsync, 1, 3, EIO);
        script s = SCRIPT(DO_OPEN(a, WRITES), DO_CLOSE, DO_MKDIR(other), DO_RENAME(a, moved, FILCH_RENAME_SYNC),
                          DO_STAT(moved, 0), DO_RENAME(moved, moved, FILCH_RENAME_SYNC), DO_RENAME(moved, a, 0),
                          DO_RMDIR(other));
        script_start(&w, &s);
        script_ends(&w, &s);
        /* the fsync of the first directory succeeds, the fsync of the second directory fails */
        same(s.result[3].error, FILCH_EIO);
        ok(s.result[4].error); /* the file was renamed although the fsync failed */
        same(s.result[5].error, FILCH_EIO);
        ok(s.result[6].error);
        ok(s.result[7].error);
        /* two calls of fsync failed: for the second directory of the first rename, and for the only directory of the
         * second rename. The third rename, without FILCH_RENAME_SYNC, calls no fsync */
        same(refused(fsync), 2);
        refuse_no_more(fsync);
    })
}

/* ---- paths ---- */

static filch_file_info info_of(const result *r)
{
    filch_file_info info = FILCH_FILE_INFO_INIT;
    filch_data      data = filch_bytes(r->bytes, r->size);
    ok(filch_as_file_info(&data, &info));
    return info;
}

TEST(stat_reports_kind_size_and_times_of_a_path){ FOR_WORKER_COUNTS({
    const char *file = in_folder(0, "a");
    const char *link = in_folder(1, "link");
    (void)unlink(link);
    ok(symlink("a", link));
    script s = SCRIPT(DO_OPEN(file, WRITES), DO_WRITE("12345"), DO_CLOSE, DO_STAT(file, 0), DO_STAT(folder, 0),
                      DO_STAT(link, 0), DO_STAT(link, FILCH_STAT_LINK), DO_STAT("/dev/null", 0),
                      DO_STAT(in_folder(2, "none"), 0), DO_STAT(file, 2), DO_STAT("", 0), DO_STAT(NULL, 0));
    script_start(&w, &s);
    script_ends(&w, &s);
    struct stat want;
    ok(stat(file, &want));
    filch_file_info info = info_of(&s.result[3]);
    same(info.kind, FILCH_FILE_REGULAR);
    same(info.byte_count, 5);
    same(info.mode, want.st_mode & 07777);
    same(info.modified_ns, want.st_mtim.tv_sec * 1000000000 + want.st_mtim.tv_nsec);
    same(info.inode, want.st_ino);
    same(info.device, want.st_dev);
    same(info_of(&s.result[4]).kind, FILCH_FILE_DIRECTORY);
    same(info_of(&s.result[5]).inode, want.st_ino);
    same(info_of(&s.result[6]).kind, FILCH_FILE_LINK);
    same(info_of(&s.result[7]).kind, FILCH_FILE_OTHER);
    same(s.result[8].error, FILCH_ENOFILE);
    for (int i = 9; i <= 11; i++) same(s.result[i].error, FILCH_EINVAL);
}) }

TEST(files_and_directories_are_renamed_and_removed)
{
    FOR_WORKER_COUNTS({
        const char *a = in_folder(0, "a");
        const char *b = in_folder(1, "b");
        const char *deep = in_folder(2, "deep");
        const char *inside = in_folder(3, "deep/c");
        script      s = SCRIPT(DO_OPEN(a, WRITES), DO_WRITE("of a"), DO_CLOSE, DO_OPEN(b, WRITES), DO_CLOSE,
                               DO_RENAME(a, b, FILCH_RENAME_NEW), DO_RENAME(a, b, FILCH_RENAME_SYNC), DO_STAT(a, 0),
                               DO_MKDIR(deep), DO_MKDIR(deep), DO_RENAME(b, inside, FILCH_RENAME_SYNC | FILCH_RENAME_NEW),
                               DO_RMDIR(deep), DO_REMOVE(deep), DO_OPEN(inside, FILCH_OPEN_READ), DO_REMOVE(inside),
                               DO_READ(0), DO_REMOVE(inside), DO_RMDIR(deep), DO_RENAME(a, "", 0), DO_RENAME(a, b, 4));
        script_start(&w, &s);
        script_ends(&w, &s);
        same(s.result[5].error, FILCH_EEXISTS);
        ok(s.result[6].error);
        same(s.result[7].error, FILCH_ENOFILE);
        ok(s.result[8].error);
        same(s.result[9].error, FILCH_EEXISTS);
        ok(s.result[10].error);
        same(s.result[11].error, FILCH_EDIRECTORY);
        same(s.result[12].error, FILCH_EDIRECTORY);
        ok(s.result[14].error);
        /* the script still has the file open, but the file has no name any more */
        assert_string_equal(s.result[15].bytes, "of a");
        same(s.result[16].error, FILCH_ENOFILE);
        ok(s.result[17].error);
        same(s.result[18].error, FILCH_EINVAL);
        same(s.result[19].error, FILCH_EINVAL);
    })
}

/* Writes the names in the list `data` to `text`, each after a digit for the kind of the entry. */
static void read_list(const filch_data *data, char *text, size_t room)
{
    const char     *name;
    filch_file_kind kind;
    size_t          at = 0, used = 0;
    filch_err       err;
    text[0] = '\0';
    while ((err = filch_as_entry(data, &at, &name, &kind)) == FILCH_OK) {
        used += (size_t)snprintf(text + used, room - used, "%d%s;", kind, name);
    }
    same(err, FILCH_EEND);
    assert_null(name);
}

TEST(a_directory_is_listed_in_order_whatever_bytes_its_names_have){ FOR_WORKER_COUNTS({
    const char *deep = in_folder(0, "list");
    script      before = SCRIPT(DO_MKDIR(deep), DO_LIST(deep), DO_LIST(in_folder(7, "none")));
    script_start(&w, &before);
    script_ends(&w, &before);
    ok(before.result[1].error);
    same(before.result[1].size, 0);
    same(before.result[2].error, FILCH_ENOFILE);
    script s = SCRIPT(DO_OPEN(in_folder(1, "list/with\nnewline"), WRITES), DO_CLOSE,
                      DO_OPEN(in_folder(2, "list/\xff\xfe"), WRITES), DO_CLOSE, DO_OPEN(in_folder(3, "list/b"), WRITES),
                      DO_CLOSE, DO_MKDIR(in_folder(4, "list/a")), DO_LIST(deep), DO_KEEP, DO_REMOVE(paths[1]),
                      DO_REMOVE(paths[2]), DO_REMOVE(paths[3]), DO_RMDIR(paths[4]), DO_RMDIR(deep));
    script_start(&w, &s);
    UNTIL(&w, script_is_over(&s));
    char text[200];
    for (int i = 0; i <= 13; i++) ok(s.result[i].error);
    read_list(&s.kept[0], text, sizeof text);
    assert_string_equal(text, "2a;1b;1with\nnewline;1\xff\xfe;");
    filch_drop(&s.kept[0]);
    script_ends(&w, &s);
}) }

TEST(a_large_directory_is_listed_whole)
{
    enum { MANY = 500 };
    char deep[128];
    snprintf(deep, sizeof deep, "%s/many", folder);
    ok(mkdir(deep, 0755));
    for (int i = 0; i < MANY; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%0100d", deep, i);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    }
    fixture_begin(&w, FILCH_NO_WORKERS);
    script s = SCRIPT(DO_LIST(deep), DO_KEEP);
    script_start(&w, &s);
    UNTIL(&w, script_is_over(&s));
    const char *name;
    size_t      at = 0;
    for (int i = 0; i < MANY; i++) {
        ok(filch_as_entry(&s.kept[0], &at, &name, NULL));
        same(atoi(name), i);
    }
    same(filch_as_entry(&s.kept[0], &at, &name, NULL), FILCH_EEND);
    filch_drop(&s.kept[0]);
    script_ends(&w, &s);
    fixture_end(&w);
}

TEST(payloads_that_are_no_list_or_file_info_are_refused)
{
    filch_file_info info = FILCH_FILE_INFO_INIT, none = { .size = 1 };
    filch_data      number = filch_int(1), one_byte = filch_bytes("\1", 1), bare = filch_bytes("\1abc", 4),
               empty = filch_bytes("\1\0", 2), kind = filch_bytes("\7a\0", 3), good = filch_bytes("\1a\0", 3);
    const filch_data *bad[] = { &number, &one_byte, &bare, &empty, &kind, NULL };
    const char       *name;
    size_t            at = 0, far = 9;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        same(filch_as_entry(bad[i], &at, &name, NULL), FILCH_EINVAL);
        same(at, 0);
        same(filch_as_file_info(bad[i], &info), FILCH_EINVAL);
    }
    same(filch_as_entry(&good, &far, &name, NULL), FILCH_EINVAL);
    same(filch_as_entry(&good, NULL, &name, NULL), FILCH_EINVAL);
    same(filch_as_entry(&good, &at, NULL, NULL), FILCH_EINVAL);
    ok(filch_as_entry(&good, &at, &name, NULL));
    assert_string_equal(name, "a");
    same(at, 3);
    same(filch_as_file_info(&good, NULL), FILCH_EINVAL);
    same(filch_as_file_info(&good, &none), FILCH_EINVAL);
}

/* ---- a program that is killed while it replaces a file ---- */

#define LONG_BYTES 40000

/* Replaces the file again and again until the program is killed. Each version of the file repeats one byte; the next
 * version repeats another byte. */
static filch_err play_replaces(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static filch_stream stream;
    static char         bytes[LONG_BYTES];
    if (count > 0 && events[0].error != FILCH_OK) return events[0].error;
    if (me->stage % 5 == 1) stream = filch_as_stream(&events[0].data);
    filch_err err = FILCH_OK;
    switch (me->stage++ % 5) {
    case 0: err = filch_yield_open(out, 1, paths[1], FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY); break;
    case 1:
        memset(bytes, (int)('a' + me->stage % 26), sizeof bytes);
        err = filch_yield_write(out, 1, stream, filch_bytes(bytes, sizeof bytes), FILCH_FOREVER);
        break;
    case 2: err = filch_yield_sync(out, 1, stream, 0); break;
    case 3: err = filch_yield_close(out, 1, stream); break;
    default: err = filch_yield_rename(out, 1, paths[1], paths[0], FILCH_RENAME_SYNC); break;
    }
    return err == FILCH_OK ? filch_wait(out) : err;
}

static void replace_until_killed(void)
{
    actor a = { 0 };
    fixture_begin(&w, 1);
    actor_start(&w, &a, play_replaces);
    for (;;) (void)pause();
}

static void check_whole(const char *path)
{
    static char bytes[LONG_BYTES + 1];
    int         fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    same(read(fd, bytes, sizeof bytes), LONG_BYTES);
    for (size_t i = 1; i < LONG_BYTES; i++) same(bytes[i], bytes[0]);
    close(fd);
}

static uint32_t kills = 12; /* how often the child is killed; the first argument of the test program can raise it */

TEST(a_replaced_file_is_complete_wherever_the_program_is_killed)
{
    static char old[LONG_BYTES];
    fli_prng    prng;
    fli_prng_init(&prng, 1);
    (void)in_folder(0, "state");
    (void)in_folder(1, "state.new");
    memset(old, 'o', sizeof old);
    int fd = open(paths[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    same(write(fd, old, sizeof old), sizeof old);
    close(fd);
    for (uint32_t i = 0; i < kills; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            replace_until_killed();
            _exit(1);
        }
        struct timespec span = { .tv_nsec = (long)(fli_prng_next(&prng) % 8000000) }; /* a random time until the kill */
        (void)nanosleep(&span, NULL);
        ok(kill(child, SIGKILL));
        int status;
        same(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* the program was killed, it had not ended by itself */
        check_whole(paths[0]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_synced_and_truncated),
        cmocka_unit_test(a_write_after_a_line_that_was_too_long_begins_where_the_line_begins),
        cmocka_unit_test(a_stream_that_is_no_file_is_not_synced),
        cmocka_unit_test(a_write_to_a_full_device_returns_enospace),
        cmocka_unit_test(a_delayed_write_error_is_reported_by_sync_and_by_close),
        cmocka_unit_test(a_durable_rename_syncs_both_directories),
        cmocka_unit_test(stat_reports_kind_size_and_times_of_a_path),
        cmocka_unit_test(files_and_directories_are_renamed_and_removed),
        cmocka_unit_test(a_directory_is_listed_in_order_whatever_bytes_its_names_have),
        cmocka_unit_test(a_large_directory_is_listed_whole),
        cmocka_unit_test(payloads_that_are_no_list_or_file_info_are_refused),
        cmocka_unit_test(a_replaced_file_is_complete_wherever_the_program_is_killed),
    };
    if (argc > 1) kills = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
