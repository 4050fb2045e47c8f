/* tasks.c - one process spawns --size tasks, 256 in a step; each is a process that computes for a while and ends.
 *
 * tasks: each takes 1 us. skewed: every hundredth takes 50 us, the others half a microsecond. With two workers that
 * share the tasks evenly, an operation takes half of the mean.
 */
#include "programs.h"

enum { AT_ONCE = 256, LONG_EVERY = 100 };

static bool is_skewed;

struct task {
    uint64_t index;
};

static filch_err task_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct task *task = self;
    (void)events;
    if (count > 0) return FILCH_ECANCELLED;
    if (!is_skewed) spin(FILCH_MICROSECONDS(1));
    else spin(task->index % LONG_EVERY == 0 ? FILCH_MICROSECONDS(50) : 500);
    return filch_done(out, filch_none());
}

static const filch_type task_type = {
    .name = "task", .size = sizeof(struct task), .init = copy_state, .step = task_step
};

struct spawner {
    uint64_t spawned;
};

static filch_err spawner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct spawner *spawner = self;
    if (count > 0 && events[0].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
    for (int i = 0; i < AT_ONCE && spawner->spawned < run.size; i++) {
        filch_err err = spawn_child(out, &task_type, &(struct task){ spawner->spawned++ }, NULL);
        if (err != FILCH_OK) return err;
    }
    return spawner->spawned == run.size ? filch_done(out, filch_none()) : filch_continue(out);
}

static const filch_type spawner_type = {
    .name = "spawner", .size = sizeof(struct spawner), .init = copy_state, .step = spawner_step
};

static bool run_tasks(void)
{
    bench_start(&run, NULL);
    bench_quiet(&run);
    bench_begin(&run);
    start(&spawner_type, &(struct spawner){ 0 });
    bench_wait_ended(&run, run.size + 1);
    bench_end(&run, run.size);
    filch_stats stats = FILCH_STATS_INIT;
    bench_must(filch_sched_stats(run.sched, &stats), "stats");
    return stats.ended == run.size + 1 && stats.failed == 0;
}

bool tasks(uint64_t variant)
{
    (void)variant;
    return run_tasks();
}

bool skewed(uint64_t variant)
{
    (void)variant;
    is_skewed = true;
    return run_tasks();
}
