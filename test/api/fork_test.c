/* fork_test.c - a program that forks while schedulers run. Checks what the comment of filch_sched_create() in filch.h
 * promises for the child. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

static FLI_ATOMIC(uint64_t) steps;

static filch_err busy_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    fli_add_rlx(&steps, 1);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_continue(out);
}

static const filch_type busy = { .name = "busy", .step = busy_step };

static filch_sched *begin(int32_t workers)
{
    filch_options options = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    options.workers = workers;
    ok(filch_sched_create(&sched, &options));
    for (int i = 0; i < 4; i++) ok(filch_spawn(sched, &busy, NULL, NULL));
    return sched;
}

/* A function that runs in the child process. Returns the number of the check that failed, 0 if none failed. */
typedef int (*child_fn)(filch_sched *parents);

static int stops_the_parents(filch_sched *parents)
{
    filch_stop_options options = FILCH_STOP_OPTIONS_INIT;
    filch_report       report = FILCH_REPORT_INIT;
    if (filch_sched_stop(parents, FILCH_SECONDS(1), &report) != FILCH_EFORKED || report.count != 0) return 1;
    if (filch_sched_close(parents, 0, NULL) != FILCH_EFORKED) return 2;
    if (filch_sched_stop_with(parents, &options, NULL) != FILCH_EFORKED) return 3;
    return 0;
}

static int has_its_own(filch_sched *parents)
{
    for (int32_t workers = 0; workers < 3; workers++) {
        filch_options options = FILCH_OPTIONS_INIT;
        filch_sched  *own;
        options.workers = workers == 0 ? FILCH_NO_WORKERS : workers;
        if (filch_sched_create(&own, &options) != FILCH_OK) return 10;
        if (filch_spawn(own, &busy, NULL, NULL) != FILCH_OK) return 11;
        if (filch_sched_stop(parents, 0, NULL) != FILCH_EFORKED)
            /* check 12: the child cannot stop the parent's scheduler, even while it has a scheduler of its own */
            return 12;
        if (filch_sched_stop(own, FILCH_SECONDS(60), NULL) != FILCH_OK) return 13;
        if (filch_sched_stop(parents, 0, NULL) != FILCH_EFORKED) return 14;
    }
    return 0;
}

static void in_a_child(filch_sched *sched, child_fn fn)
{
    pid_t child = fork();
    int   status = -1;
    if (child == 0) _exit(fn(sched));
    assert_true(child > 0);
    same(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    same(WEXITSTATUS(status), 0);
}

TEST(in_a_child_the_parents_scheduler_is_not_stopped_and_its_own_works)
{
    if (emulator() != NULL) return;
    static const child_fn parts[] = { stops_the_parents, has_its_own };
    for (int32_t workers = 0; workers < 4; workers++) {
        filch_sched *sched = begin(workers == 0 ? FILCH_NO_WORKERS : workers);
        uint64_t     before = fli_load_rlx(&steps);
        if (workers > 0) until(fli_load_rlx(&steps) > before + 100);
        for (uint64_t i = 0; i < scaled(20); i++) /* many forks, so that another thread holds a lock in some */
            in_a_child(sched, parts[i % 2]);
        ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL)); /* the forks have not changed the parent's scheduler */
    }
}

/* A step that forks. The child process exits from inside the step. */
static filch_err forks_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    pid_t child = fork();
    int   status = -1;
    if (child == 0) _exit(stops_the_parents(filch_out_sched(out)) + has_its_own(filch_out_sched(out)));
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return FILCH_EUSER;
    return filch_done(out, filch_none());
}

static FLI_ATOMIC(int) ended_with;

static void on_exit_note(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    fli_store_rel(&ended_with, error);
}

TEST(a_step_may_fork_and_its_child_make_a_scheduler)
{
    if (emulator() != NULL) return;
    static const filch_type forks = { .name = "forks", .step = forks_step };
    filch_spawn_options     options = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched            *sched = begin(2);
    fli_store_rel(&ended_with, -1);
    options.on_exit = on_exit_note;
    ok(filch_spawn(sched, &forks, &options, NULL));
    until(fli_load_acq(&ended_with) != -1);
    ok(fli_load_acq(&ended_with));
    ok(filch_sched_stop(sched, FILCH_SECONDS(60), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_child_the_parents_scheduler_is_not_stopped_and_its_own_works),
        cmocka_unit_test(a_step_may_fork_and_its_child_make_a_scheduler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
