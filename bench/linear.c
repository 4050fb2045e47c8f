/* linear.c - whether an operation costs more when there are many of its kind: groups, members, monitors, links, names,
 * timers, children. One program for each; --size is their number.
 *
 *     linear OPERATION [--size N]     prints a line; an operation is one undo and one redo, N stays
 *     linear list                     prints the operations
 *
 * The work is done by `measured`, so that callgrind counts its instructions (--toggle-collect=measured): see
 * bench/linear_test. `linear_counted` counts read-modify-writes.
 * Design: docs/design/costs.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROUNDS = 500 };

static bench      b;
static filch_pid *pids;
static uint64_t  *numbers; /* of the monitors */
static filch_pid  hub, second_hub;

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type idle_type = { .name = "idle", .step = idle_step };

static filch_pid spawn_idle(void)
{
    return bench_spawn(&b, &idle_type, filch_none());
}

static void spawn_all(void)
{
    pids = bench_alloc(b.size, sizeof *pids);
    for (uint64_t i = 0; i < b.size; i++) pids[i] = spawn_idle();
    hub = spawn_idle();
    second_hub = spawn_idle();
}

static const char *text(uint64_t index)
{
    static char name[32];
    snprintf(name, sizeof name, "number %llu", (unsigned long long)index);
    return name;
}

/* Returns the index that round `round` uses. The indexes of successive rounds are spread over the whole range. */
static uint64_t pick(uint64_t round)
{
    return round * UINT64_C(0x9e3779b97f4a7c15) % b.size;
}

/* ---- groups ---- */

static void groups_of_process_setup(void)
{
    hub = spawn_idle();
    for (uint64_t i = 0; i < b.size; i++) bench_must(filch_join(b.sched, text(i), hub), "join");
}

static void groups_of_process(uint64_t round)
{
    bench_must(filch_leave(b.sched, text(pick(round)), hub), "leave");
    bench_must(filch_join(b.sched, text(pick(round)), hub), "join");
}

static void members_of_group_setup(void)
{
    spawn_all();
    for (uint64_t i = 0; i < b.size; i++) bench_must(filch_join(b.sched, "group", pids[i]), "join");
}

static void members_of_group(uint64_t round)
{
    bench_must(filch_leave(b.sched, "group", pids[pick(round)]), "leave");
    bench_must(filch_join(b.sched, "group", pids[pick(round)]), "join");
}

static void joins_of_member_setup(void)
{
    hub = spawn_idle();
    for (uint64_t i = 0; i < b.size; i++) bench_must(filch_join(b.sched, "group", hub), "join");
}

static void joins_of_member(uint64_t round)
{
    (void)round;
    bench_must(filch_leave(b.sched, "group", hub), "leave");
    bench_must(filch_join(b.sched, "group", hub), "join");
}

/* ---- monitors and links ---- */

static void monitors_of_process_setup(void)
{
    spawn_all();
    numbers = bench_alloc(b.size, sizeof *numbers);
    for (uint64_t i = 0; i < b.size; i++) {
        bench_must(filch_monitor(b.sched, hub, pids[i], i, &numbers[i]), "monitor");
        bench_must(filch_monitor(b.sched, pids[i], hub, i, NULL), "monitor");
    }
}

static void monitors_of_process(uint64_t round)
{
    uint64_t i = pick(round);
    bench_must(filch_unmonitor(b.sched, hub, numbers[i]), "unmonitor");
    bench_must(filch_monitor(b.sched, hub, pids[i], i, &numbers[i]), "monitor");
}

static void links_of_process_setup(void)
{
    spawn_all();
    for (uint64_t i = 0; i < b.size; i++) bench_must(filch_link(b.sched, hub, pids[i]), "link");
}

static void links_of_process(uint64_t round)
{
    bench_must(filch_unlink(b.sched, hub, pids[pick(round)]), "unlink");
    bench_must(filch_link(b.sched, hub, pids[pick(round)]), "link");
}

static void links_of_hubs_setup(void)
{
    spawn_all();
    for (uint64_t i = 0; i < b.size; i++)
        bench_must(filch_link(b.sched, i % 2 == 0 ? hub : second_hub, pids[i]), "link");
    bench_must(filch_link(b.sched, hub, second_hub), "link");
}

static void links_of_hubs(uint64_t round)
{
    (void)round;
    bench_must(filch_unlink(b.sched, hub, second_hub), "unlink");
    bench_must(filch_link(b.sched, hub, second_hub), "link");
}

/* ---- names ---- */

static void names_of_process_setup(void)
{
    hub = spawn_idle();
    for (uint64_t i = 0; i < b.size; i++) bench_must(filch_register(b.sched, text(i), hub), "register");
}

static void names_of_process(uint64_t round)
{
    filch_pid found;
    bench_must(filch_unregister(b.sched, text(pick(round))), "unregister");
    bench_must(filch_register(b.sched, text(pick(round)), hub), "register");
    bench_must(filch_whereis(b.sched, text(pick(round)), &found), "whereis");
}

/* ---- the end of a process while other processes have many relations ---- */

static void ends_setup(void)
{
    monitors_of_process_setup();
}

static void ends(uint64_t round)
{
    filch_pid ends_soon = spawn_idle();
    char      name[48];
    snprintf(name, sizeof name, "ends %llu", (unsigned long long)round);
    bench_must(filch_monitor(b.sched, hub, ends_soon, 0, NULL), "monitor");
    bench_must(filch_register(b.sched, name, ends_soon), "register");
    bench_must(filch_cancel(b.sched, ends_soon), "cancel");
    bench_must(filch_tick(b.sched, 0, NULL), "tick");
}

/* ---- the children of a supervisor ---- */

static filch_child *children;

static void children_setup(void)
{
    children = bench_alloc(b.size, sizeof *children);
    for (uint64_t i = 0; i < b.size; i++) children[i] = (filch_child){ .id = strdup(text(i)), .type = &idle_type };
    filch_supervisor tree = { .children = children, .child_count = b.size };
    bench_must(filch_supervise(b.sched, &tree, NULL, &hub), "supervise");
}

static void children_of_supervisor(uint64_t round)
{
    bench_must(filch_child_stop(b.sched, hub, children[pick(round)].id), "stop");
    for (int i = 0; i < 4; i++) bench_must(filch_tick(b.sched, 0, NULL), "tick");
    bench_must(filch_child_start(b.sched, hub, &children[pick(round)]), "start");
    for (int i = 0; i < 4; i++) bench_must(filch_tick(b.sched, 0, NULL), "tick");
}

/* ---- the operations ---- */

static const struct {
    const char *name;
    void (*setup)(void);
    void (*round)(uint64_t round);
} operations[] = {
    { "groups_of_process", groups_of_process_setup, groups_of_process },
    { "members_of_group", members_of_group_setup, members_of_group },
    { "joins_of_member", joins_of_member_setup, joins_of_member },
    { "monitors_of_process", monitors_of_process_setup, monitors_of_process },
    { "links_of_process", links_of_process_setup, links_of_process },
    { "links_of_hubs", links_of_hubs_setup, links_of_hubs },
    { "names_of_process", names_of_process_setup, names_of_process },
    { "ends", ends_setup, ends },
    { "children_of_supervisor", children_setup, children_of_supervisor },
};

__attribute__((noinline)) void measured(void (*round)(uint64_t round));
void                           measured(void (*round)(uint64_t round))
{
    for (uint64_t i = 0; i < ROUNDS; i++) round(i);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (argc > 1 && strcmp(argv[1], "list") == 0) puts(operations[i].name);
        if (argc < 2 || strcmp(argv[1], operations[i].name) != 0) continue;
        bench_open(&b, operations[i].name, 1000, argc - 1, argv + 1);
        b.workers = 0; /* no workers, so that all counts are the same in each run */
        bench_start(&b, NULL);
        operations[i].setup();
        bench_quiet(&b);
        measured(operations[i].round); /* a first pass, so that all tables have grown before the measurement */
        bench_quiet(&b);
        bench_begin(&b);
        measured(operations[i].round);
        bench_end(&b, ROUNDS);
        return bench_close(&b, true);
    }
    if (argc > 1 && strcmp(argv[1], "list") == 0) return 0;
    fprintf(stderr, "usage: linear OPERATION [--size N]\n       linear list\n");
    return 2;
}
