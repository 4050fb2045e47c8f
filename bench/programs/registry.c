/* registry.c - groups and names that come and go.
 *
 * groups_many: one process joins --size groups, then leaves them, the oldest first.
 * groups_one: --size processes join one group, then leave it, the oldest first.
 * names: eight processes register a name, look it up and unregister it again; each keeps 1,000 names.
 */
#include "programs.h"

#include <stdio.h>

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL ? FILCH_ECANCELLED : filch_idle(out);
}

static const filch_type idle_type = { .name = "idle", .step = idle_step };

static uint64_t members_of(const char *group)
{
    size_t count = 0;
    bench_must(filch_members(run.sched, group, NULL, 0, &count), "members");
    return count;
}

static const char *group_of(uint64_t index)
{
    static char name[32];
    snprintf(name, sizeof name, "group %llu", (unsigned long long)index);
    return name;
}

bool groups_many(uint64_t variant)
{
    (void)variant;
    bench_start(&run, NULL);
    filch_pid member = bench_spawn(&run, &idle_type, filch_none());
    bench_quiet(&run);
    bench_begin(&run);
    for (uint64_t i = 0; i < run.size; i++) bench_must(filch_join(run.sched, group_of(i), member), "join");
    bool right = members_of(group_of(run.size - 1)) == 1;
    for (uint64_t i = 0; i < run.size; i++) bench_must(filch_leave(run.sched, group_of(i), member), "leave");
    bench_end(&run, run.size);
    return right && members_of(group_of(0)) == 0;
}

bool groups_one(uint64_t variant)
{
    (void)variant;
    filch_pid *members = bench_alloc(run.size, sizeof *members);
    bench_start(&run, NULL);
    for (uint64_t i = 0; i < run.size; i++) members[i] = bench_spawn(&run, &idle_type, filch_none());
    bench_quiet(&run);
    bench_begin(&run);
    for (uint64_t i = 0; i < run.size; i++) bench_must(filch_join(run.sched, "group", members[i]), "join");
    bool right = members_of("group") == run.size;
    for (uint64_t i = 0; i < run.size; i++) bench_must(filch_leave(run.sched, "group", members[i]), "leave");
    bench_end(&run, run.size);
    return right && members_of("group") == 0;
}

/* ---- names ---- */

enum { REGISTRARS = 8, KEPT = 1000, AT_ONCE = 32 };

struct registrar {
    uint64_t index, next, found;
};

static filch_err rename_once(struct registrar *registrar, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    filch_pid    self = filch_ctx_self(filch_out_ctx(out)), found;
    char         name[48];
    unsigned     index = (unsigned)registrar->index;
    snprintf(name, sizeof name, "name %u.%llu", index, (unsigned long long)registrar->next);
    filch_err err = filch_register(sched, name, self);
    if (err == FILCH_OK) err = filch_whereis(sched, name, &found);
    if (err != FILCH_OK) return err;
    registrar->found += found.serial == self.serial;
    if (registrar->next >= KEPT) {
        snprintf(name, sizeof name, "name %u.%llu", index, (unsigned long long)(registrar->next - KEPT));
        err = filch_unregister(sched, name);
    }
    registrar->next++;
    return err;
}

static filch_err registrar_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct registrar *registrar = self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    for (int i = 0; i < AT_ONCE && registrar->next < run.size / REGISTRARS; i++) {
        filch_err err = rename_once(registrar, out);
        if (err != FILCH_OK) return err;
    }
    if (registrar->next < run.size / REGISTRARS) return filch_continue(out);
    report((int64_t)registrar->found);
    return filch_done(out, filch_none());
}

static const filch_type registrar_type = {
    .name = "registrar", .size = sizeof(struct registrar), .init = copy_state, .step = registrar_step
};

bool names(uint64_t variant)
{
    (void)variant;
    uint64_t total = run.size / REGISTRARS * REGISTRARS;
    bench_start(&run, NULL);
    bench_quiet(&run);
    expect_results(REGISTRARS);
    bench_begin(&run);
    for (uint64_t i = 0; i < REGISTRARS; i++) start(&registrar_type, &(struct registrar){ i, 0, 0 });
    int64_t found = wait_for_results();
    bench_end(&run, total);
    return found == (int64_t)total;
}
