/* programs.c - the second suite: ordinary programs, written as a user would write them, that no part of the runtime
 * was tuned for. See programs.h.
 *
 *     programs NAME [--size N] [--workers N] [--run K]     runs one program and prints a line of JSON
 *     programs list                                        prints names, default sizes and what an operation is
 */
#include "programs.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

bench run;

/* ---- processes ---- */

filch_err copy_state(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    memcpy(self, filch_raw(args), filch_size(args));
    return FILCH_OK;
}

filch_pid start(const filch_type *type, const void *state)
{
    return bench_spawn(&run, type, filch_bytes(state, type->size));
}

filch_pid start_limited(const filch_type *type, const void *state, uint32_t room)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    options.args = filch_bytes(state, type->size);
    options.mailbox_max = room;
    options.overflow = FILCH_OVERFLOW_WAIT;
    bench_must(filch_spawn(run.sched, type, &options, &pid), "spawn");
    return pid;
}

filch_err spawn_child(filch_out *out, const filch_type *type, const void *state, filch_pid *pid)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.args = filch_bytes(state, type->size);
    return filch_spawn(filch_out_sched(out), type, &options, pid);
}

void spin(uint64_t ns)
{
    uint64_t until_ns = bench_now_ns() + ns;
    while (bench_now_ns() < until_ns) {}
}

/* ---- results ---- */

static _Atomic int64_t  results_sum;
static _Atomic uint64_t results_left;

void expect_results(uint64_t count)
{
    atomic_store(&results_sum, 0);
    atomic_store(&results_left, count);
}

void report(int64_t result)
{
    atomic_fetch_add(&results_sum, result);
    if (atomic_fetch_sub(&results_left, 1) == 1) bench_over(&run);
}

int64_t wait_for_results(void)
{
    bench_wait(&run);
    return atomic_load(&results_sum);
}

/* ---- HOLD: processes wait for a command, so that messages stay in their mailboxes ---- */

static filch_receiver  *held;
static uint64_t         held_most;
static _Atomic uint64_t held_count;

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    (void)tag;
    uint64_t index = atomic_fetch_add(&held_count, 1);
    if (index >= held_most) return FILCH_ELIMIT;
    held[index] = receiver;
    return FILCH_OK;
}

void start_with_hold(uint64_t most)
{
    filch_options   options = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    held = bench_alloc(most, sizeof *held);
    /* touches the pages of the array now, so that later measurements of memory do not count them */
    memset(held, 1, most * sizeof *held);
    held_most = most;
    bench_must(filch_registry_create(&registry), "registry");
    bench_must(filch_registry_add(registry, HOLD, hold, NULL), "registry");
    options.registry = registry;
    bench_start(&run, &options);
    filch_registry_destroy(registry);
}

void wait_until_held(uint64_t count)
{
    while (atomic_load(&held_count) < count) bench_sleep_ns(200000);
    bench_quiet(&run);
}

void release_all(void)
{
    uint64_t count = atomic_load(&held_count);
    for (uint64_t i = 0; i < count; i++) bench_must(filch_complete(held[i], held[i].tag, filch_none(), 0), "release");
}

/* ---- the programs ---- */

static const struct program {
    const char *name;
    bool (*function)(uint64_t variant);
    uint64_t    variant, size;
    const char *operation;
} all[] = {
#define ROW(name, function, variant, size, test_size, operation) { #name, function, variant, size, operation },
    PROGRAMS(ROW) PROGRAMS_IN_LUA(ROW)
#undef ROW
};

static int list(void)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        printf("%s %llu %s\n", all[i].name, (unsigned long long)all[i].size, all[i].operation);
    }
    return 0;
}

static bool runs_without_workers(bool (*function)(uint64_t variant))
{
    return function == bounded || function == pipeline || function == crowd;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) return list();
    for (size_t i = 0; argc > 1 && i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(argv[1], all[i].name) != 0) continue;
        bench_open(&run, all[i].name, all[i].size, argc - 1, argv + 1);
        /* Without workers (--workers 0) only the programs run for which tools/bench_gate counts operations. */
        if (run.workers > 0 || runs_without_workers(all[i].function)) {
            return bench_close(&run, all[i].function(all[i].variant));
        }
    }
    fprintf(stderr, "usage: programs NAME [--workers N] [--size N] [--run K]\n       programs list\n");
    return 2;
}
