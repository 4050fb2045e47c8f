/* crowd.c - few live processes, many that start and end, and a process limit that is never reached. See workload.h.
 *
 * Each keeper has one child at a time, and spawns the next child when it receives the exit event of the last one. The
 * last child may still be counted then, so there are at most three processes per keeper. With this number as the limit,
 * no spawn may fail, and the statistics must never show more processes.
 */
#include <string.h>

#include "port/thread.h"
#include "sim/engine.h"
#include "sim/seam.h"
#include "sim/workload.h"

enum { KEEPERS = 2, MOST = 3 * KEEPERS };

#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

static struct {
    filch_sched  *sched;
    int64_t       opened, closed, left, keepers, line;
    fli_sim_queue waiting;
} crowd;

static filch_err open_instance(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)method;
    (void)args;
    crowd.opened++;
    return FILCH_OK;
}

static void close_instance(void *self)
{
    (void)self;
    crowd.closed++;
}

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    (void)events;
    (void)count;
    return fli_sim_choose(2) == 0 ? filch_done(out, filch_none()) : filch_continue(out);
}

static const filch_type child = {
    .name = "child", .size = 8, .init = open_instance, .step = child_step, .close = close_instance
};

static filch_err keeper_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t            *begun = self;
    bool                free = (*begun)++ == 0;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    for (size_t i = 0; i < count; i++) free = free || events[i].type == FILCH_EVENT_EXIT;
    if (!free) return filch_idle(out);
    if (crowd.left-- <= 0) {
        crowd.keepers--;
        (void)fli_sim_wake(&crowd.waiting, true);
        return filch_done(out, filch_none());
    }
    opt.relations = FILCH_SPAWN_MONITOR;
    filch_err err = filch_spawn(crowd.sched, &child, &opt, NULL);
    MUST(err != FILCH_ELIMIT, "a spawn was refused although fewer processes were alive than the limit");
    MUST(err == FILCH_OK, "no child");
    return filch_idle(out);
}

static const filch_type keeper = {
    .name = "keeper", .size = 8, .init = open_instance, .step = keeper_step, .close = close_instance
};

/* on_exit function of the processes with the name "line": spawns the next process with this name, also during a
 * stop. */
static void next_of_line(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    (void)user;
    (void)pid;
    (void)error;
    (void)result;
    if (crowd.line-- <= 0) return;
    opt.name = "line";
    opt.on_exit = next_of_line;
    filch_err err = filch_spawn(crowd.sched, &child, &opt, NULL);
    MUST(err == FILCH_OK || err == FILCH_ECLOSED, "on_exit could not spawn the next process under the same name");
}

void workload_crowd(uint32_t workers, uint32_t size)
{
    filch_options opt = workload_options(workers);
    memset(&crowd, 0, sizeof crowd);
    crowd.left = size;
    crowd.keepers = KEEPERS;
    opt.max_processes = MOST;
    MUST(filch_sched_create(&crowd.sched, &opt) == FILCH_OK, "no scheduler");
    for (int i = 0; i < KEEPERS; i++) MUST(filch_spawn(crowd.sched, &keeper, NULL, NULL) == FILCH_OK, "no keeper");
    for (uint32_t i = 0; crowd.keepers > 0 && i < 20; i++) {
        filch_stats stats = FILCH_STATS_INIT;
        MUST(filch_sched_stats(crowd.sched, &stats) == FILCH_OK, "no statistics");
        MUST(stats.alive <= MOST, "more processes are counted as alive than there can be");
        fli_thread_yield();
    }
    while (crowd.keepers > 0) (void)fli_sim_block(&crowd.waiting, UINT64_MAX, "for the keepers");
    crowd.line = 8;
    next_of_line(NULL, (filch_pid){ 0, 0 }, FILCH_OK, NULL);
    for (uint32_t n = fli_sim_choose(16); n > 0; n--) fli_thread_yield();
    MUST(filch_sched_stop(crowd.sched, FILCH_FOREVER, NULL) == FILCH_OK, "the scheduler did not stop");
    MUST(crowd.opened == crowd.closed, "an instance was not closed exactly once");
    MUST(workload_alloc_live() == 0, "memory was left behind");
}
