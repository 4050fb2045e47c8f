/* cpu_test.c - CPU counting with prepared file trees, and with a real affinity mask. */
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/cpu.h"
#include "support/check.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/filch-cpu-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes root/path, creating the folders of the path. */
static void put(const char *path, const char *text)
{
    char full[512];
    assert_true(snprintf(full, sizeof full, "%s%s", root, path) < (int)sizeof full);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    ok(fclose(file));
}

#define NO_LIMIT UINT32_MAX
#define quota_is(want) same(fli_cpu_quota(root), (want))

TEST(no_proc_means_no_limit)
{
    quota_is(NO_LIMIT);
}

TEST(v2_quota_is_rounded_up)
{
    put("/proc/self/cgroup", "0::/app\n");
    put("/sys/fs/cgroup/app/cpu.max", "150000 100000\n");
    quota_is(2);
    put("/sys/fs/cgroup/app/cpu.max", "200000 100000\n");
    quota_is(2);
    put("/sys/fs/cgroup/app/cpu.max", "1000 100000\n");
    quota_is(1);
    put("/sys/fs/cgroup/app/cpu.max", "350000 50000");
    quota_is(7);
}

TEST(v2_max_and_missing_files_mean_no_limit)
{
    put("/proc/self/cgroup", "0::/app\n");
    quota_is(NO_LIMIT);
    put("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
    quota_is(NO_LIMIT);
}

TEST(v2_tighter_ancestor_wins)
{
    put("/proc/self/cgroup", "0::/slice/app/worker\n");
    put("/sys/fs/cgroup/slice/app/worker/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
    quota_is(3);
    put("/sys/fs/cgroup/slice/app/worker/cpu.max", "200000 100000\n");
    quota_is(2);
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    quota_is(1);
}

TEST(the_quota_of_another_group_does_not_count)
{
    put("/proc/self/cgroup", "0::/slice/app\n");
    put("/sys/fs/cgroup/slice/other/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/slice/app/child/cpu.max", "100000 100000\n");
    put("/sys/fs/cpu.max", "100000 100000\n");
    quota_is(NO_LIMIT);
}

TEST(the_root_group_is_read_too)
{
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    quota_is(4);
}

TEST(garbage_means_no_limit)
{
    static const char *const lines[] = { "",
                                         "\n",
                                         "lots\n",
                                         "200000\n",
                                         "-1 100000\n",
                                         "100000 -1\n",
                                         "0 100000\n",
                                         "100000 0\n",
                                         "100000x 100000\n",
                                         "99999999999999999999999 100000\n",
                                         "18446744073709551615 1\n",
                                         "100000 100000x\n",
                                         "100000 99999999999999999999999\n" };
    put("/proc/self/cgroup", "0::/app\n");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        put("/sys/fs/cgroup/app/cpu.max", lines[i]);
        quota_is(NO_LIMIT);
    }
}

TEST(garbage_groups_mean_no_limit)
{
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    put("/proc/self/cgroup", "what is this\n:\n::\n0:\n1:memory:/\n0::relative\n\n");
    quota_is(NO_LIMIT);
}

TEST(v1_quota_and_its_ancestors_are_read)
{
    put("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/docker/abc\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    quota_is(NO_LIMIT);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "550000\n");
    quota_is(6);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "40000\n");
    quota_is(6); /* the new quota is ignored, because its folder has no period file yet */
    put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "20000\n");
    quota_is(2);
}

TEST(v1_may_be_mounted_as_cpu_alone)
{
    put("/proc/self/cgroup", "3:cpuacct:/b\n1:cpu:/a\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n");
    quota_is(3);
}

TEST(the_tree_is_read_where_mountinfo_says)
{
    put("/proc/self/cgroup", "0::/app\n");
    put("/proc/self/mountinfo", "20 1 0:5 / /proc rw - proc proc rw\n"
                                "31 23 0:28 / /groups\\040here rw,relatime shared:9 - cgroup2 none rw\n");
    put("/groups here/app/cpu.max", "500000 100000\n");
    put("/sys/fs/cgroup/app/cpu.max", "100000 100000\n");
    quota_is(5);
}

TEST(a_mount_whose_root_is_a_parent_group_is_used)
{
    put("/proc/self/cgroup", "0::/docker/abc/app\n");
    put("/proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    quota_is(2);
}

TEST(a_mount_of_another_group_is_ignored)
{
    put("/proc/self/cgroup", "0::/docker/abcdef\n");
    put("/proc/self/mountinfo", "31 23 0:28 /docker/abc /theirs ro - cgroup2 cgroup rw\n"
                                "32 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/theirs/cpu.max", "100000 100000\n");
    put("/theirsdef/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/docker/abcdef/cpu.max", "300000 100000\n");
    quota_is(3);
}

TEST(v1_and_v2_together_take_the_smaller)
{
    put("/proc/self/cgroup", "1:cpu:/a\n0::/a\n");
    put("/proc/self/mountinfo", "broken\n31 23 0:28 / /v1 rw - cgroup cgroup rw,cpuacct,cpu\n"
                                "32 23 0:29 / /v2 rw - cgroup2 cgroup2 rw\n");
    put("/v1/a/cpu.cfs_quota_us", "400000\n");
    put("/v1/a/cpu.cfs_period_us", "100000\n");
    quota_is(4);
    put("/v2/a/cpu.max", "300000 100000\n");
    quota_is(3);
}

TEST(a_malformed_mount_line_is_skipped)
{
    put("/proc/self/cgroup", "0::/app\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /a rw shared:1\n" /* the first line has no dash */
                                "32 23 0:28 / /b rw -\n"
                                "33 23 0:28 / /c rw - cgroup2\n"
                                "34 23 0:28 / /d rw - cgroup2 none\n"
                                "35 23 0:28 / /not\\9octal rw - cgroup2 none rw\n");
    for (const char *at = "abcd"; *at != '\0'; at++) {
        char path[] = "/?/app/cpu.max";
        path[1] = *at;
        put(path, "100000 100000\n");
    }
    put("/not\\9octal/app/cpu.max", "600000 100000\n");
    quota_is(6);
}

TEST(the_default_path_is_used_if_no_mount_matches)
{
    put("/proc/self/cgroup", "0::/app\n");
    put("/proc/self/mountinfo", "31 23 0:28 /else /theirs rw - cgroup2 none rw\n");
    put("/theirs/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
    quota_is(3);
}

/* The group as seen from a namespace of another group: "/../else". The visible tree has no such folder. */
TEST(a_group_outside_the_namespace_falls_back_to_the_root_group)
{
    put("/proc/self/cgroup", "0::/../else\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n");
    put("/sys/fs/else/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    quota_is(4);
}

TEST(a_hierarchy_without_controllers_and_with_another_number_is_not_v2)
{
    put("/proc/self/cgroup", "7::/app\n");
    put("/sys/fs/cgroup/app/cpu.max", "100000 100000\n");
    quota_is(NO_LIMIT);
}

TEST(paths_longer_than_path_max_are_ignored)
{
    static char line[9000];
    memset(line, 'x', sizeof line - 1);
    memcpy(line, "0::/", 4);
    put("/proc/self/cgroup", line);
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    quota_is(NO_LIMIT);
    /* The path of the group's folder just fits into PATH_MAX, but the paths of the files in that folder do not. */
    line[4096 - strlen(root) - strlen("/sys/fs/cgroup") + 1] = '\0';
    put("/proc/self/cgroup", line);
    quota_is(1);
    memset(line, 'x', sizeof line - 1);
    same(fli_cpu_quota(line), NO_LIMIT);
}

/* Runs in a child, so that the test program keeps its own mask. Exit status 0: one CPU was counted while the child
 * was confined to one. */
TEST(count_follows_the_affinity_mask)
{
    cpu_set_t now[64];
    ok(sched_getaffinity(0, sizeof now, now));
    uint32_t before = fli_cpu_count();
    assert_in_range(before, 1, (uint32_t)CPU_COUNT_S(sizeof now, now));

    size_t cpu = 0;
    while (!CPU_ISSET_S(cpu, sizeof now, now)) cpu++;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cpu_set_t one[64];
        CPU_ZERO_S(sizeof one, one);
        CPU_SET_S(cpu, sizeof one, one);
        if (sched_setaffinity(0, sizeof one, one) != 0) _exit(2);
        _exit(fli_cpu_count() == 1 ? 0 : 1);
    }
    int status = -1;
    same(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    same(WEXITSTATUS(status), 0);
    same(fli_cpu_count(), before);
}

#define with_root(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_root(no_proc_means_no_limit),
        with_root(v2_quota_is_rounded_up),
        with_root(v2_max_and_missing_files_mean_no_limit),
        with_root(v2_tighter_ancestor_wins),
        with_root(the_quota_of_another_group_does_not_count),
        with_root(the_root_group_is_read_too),
        with_root(garbage_means_no_limit),
        with_root(garbage_groups_mean_no_limit),
        with_root(v1_quota_and_its_ancestors_are_read),
        with_root(v1_may_be_mounted_as_cpu_alone),
        with_root(the_tree_is_read_where_mountinfo_says),
        with_root(a_mount_whose_root_is_a_parent_group_is_used),
        with_root(a_mount_of_another_group_is_ignored),
        with_root(v1_and_v2_together_take_the_smaller),
        with_root(a_malformed_mount_line_is_skipped),
        with_root(the_default_path_is_used_if_no_mount_matches),
        with_root(a_group_outside_the_namespace_falls_back_to_the_root_group),
        with_root(a_hierarchy_without_controllers_and_with_another_number_is_not_v2),
        with_root(paths_longer_than_path_max_are_ignored),
        cmocka_unit_test(count_follows_the_affinity_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
