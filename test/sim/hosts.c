/* hosts.c - several hosts of one node: their processes link, unlink, monitor, name and spawn across hosts while all
 * hosts but the first stop. See workload.h.
 *
 * A process on the first host monitors processes of the other hosts: each accepted monitor delivers exactly one EXIT,
 * however the process ended. When all have arrived, the first host stops too.
 */
#include <string.h>

#include "port/thread.h"
#include "sim/engine.h"
#include "sim/seam.h"
#include "sim/workload.h"

enum { HOSTS = 3, BOARD = 6, MONITORS_MAX = 4096 };

#define MUST(condition, why)                 \
    do {                                     \
        if (!(condition)) fli_sim_fail(why); \
    } while (0)

static struct {
    filch_node   *node;
    filch_sched  *hosts[HOSTS];
    filch_pid     board[HOSTS][BOARD], watcher;
    int64_t       opened, closed;
    uint32_t      monitored, resolved, limit;
    uint8_t       exit_seen[MONITORS_MAX];
    bool          over;
    fli_sim_queue waiting; /* queue in which the first thread waits until the last EXIT notice has arrived */
} fixture;

typedef struct actor {
    int64_t steps;
} actor;

static const filch_type actor_type;

static filch_pid draw(void)
{
    return fixture.board[fli_sim_choose(HOSTS)][fli_sim_choose(BOARD)];
}

static bool is_expected(filch_err err)
{
    return err == FILCH_OK || err == FILCH_EDEAD || err == FILCH_EINVAL || err == FILCH_ESTALE ||
           err == FILCH_EEXISTS || err == FILCH_ECLOSED;
}

/* Spawns a process on host number `host` by a call to the host `sched`. Some spawns ask for a name that may be taken.
 * If the name is taken, the spawn must be undone with all its relations. */
static void spawn_on(filch_sched *sched, uint32_t host, uint32_t relations)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    opt.relations = relations;
    opt.name = fli_sim_choose(3) == 0 ? "taken" : NULL;
    filch_err err = filch_spawn_on(sched, 100 + host, &actor_type, &opt, &pid);
    MUST(is_expected(err), "a spawn on another host returned an unexpected error");
    if (err == FILCH_OK) fixture.board[host][fli_sim_choose(BOARD)] = pid;
}

static void monitor_target(filch_sched *sched, filch_pid target)
{
    if (fixture.monitored == MONITORS_MAX || target.serial == 0 || target.node == 100) return;
    uint32_t  id = fixture.monitored++;
    filch_err err = filch_monitor(sched, fixture.watcher, target, id, NULL);
    MUST(is_expected(err), "a monitor returned an unexpected error");
    if (err == FILCH_OK) return;
    fixture.exit_seen[id] = 1; /* the monitor was refused, so no EXIT notice will arrive */
    fixture.resolved++;
}

/* Makes one random call to the host `sched` about processes of any host. */
static void act(filch_sched *sched, filch_pid me)
{
    filch_pid a = me.serial != 0 && fli_sim_choose(2) == 0 ? me : draw(), b = draw();
    filch_err err = FILCH_OK;
    uint64_t  ref;
    switch (fli_sim_choose(10)) {
    case 0:
    case 1:
    case 2: err = filch_link(sched, a, b); break;
    case 3:
    case 4: err = filch_unlink(sched, a, b); break;
    case 5:
        err = filch_monitor(sched, a, b, 1, &ref);
        if (err == FILCH_OK && fli_sim_choose(2) == 0) err = filch_unmonitor(sched, a, ref);
        break;
    case 6: err = filch_register(sched, "name", a); break;
    case 7: err = filch_terminate(sched, b); break;
    case 8: spawn_on(sched, fli_sim_choose(HOSTS), me.serial != 0 ? FILCH_SPAWN_LINK | FILCH_SPAWN_MONITOR : 0); break;
    default: err = filch_send(sched, b, filch_int(1)); break;
    }
    MUST(is_expected(err), "a relation between hosts returned an unexpected error");
}

static filch_err actor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)self;
    (void)ctx;
    (void)method;
    (void)args;
    fixture.opened++;
    return FILCH_OK;
}

static void actor_close(void *self)
{
    (void)self;
    fixture.closed++;
}

static bool wants_to_end(const filch_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return true;
    }
    return false;
}

static filch_err actor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    actor *a = self;
    if (wants_to_end(events, count)) return filch_done(out, filch_none());
    if (a->steps == 0) MUST(filch_trap_links(out, (int)fli_sim_choose(2)) == FILCH_OK, "no trap");
    act(filch_out_sched(out), filch_ctx_self(filch_out_ctx(out)));
    if (a->steps++ > 6) return fli_sim_choose(2) == 0 ? FILCH_EUSER : filch_done(out, filch_none());
    return fli_sim_choose(4) == 0 ? filch_idle(out) : filch_continue(out);
}

static const filch_type actor_type = {
    .name = "actor", .size = sizeof(actor), .init = actor_init, .step = actor_step, .close = actor_close
};

static filch_err watcher_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_EXIT) continue;
        MUST(events[i].tag < fixture.monitored && fixture.exit_seen[events[i].tag]++ == 0,
             "an exit event arrived twice, or without a monitor");
        fixture.resolved++;
    }
    (void)fli_sim_wake(&fixture.waiting, true);
    return wants_to_end(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type watcher_type = {
    .name = "watcher", .size = 8, .init = actor_init, .step = watcher_step, .close = actor_close
};

/* Runs on a thread that is not a worker: links, monitors and sends through the API of the first host. The targets are
 * processes of other hosts, and these hosts may have stopped. */
static void change_at_random(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; !fixture.over && i < fixture.limit; i++) {
        if (fli_sim_choose(3) == 0) monitor_target(fixture.hosts[0], draw());
        else act(fixture.hosts[0], (filch_pid){ 0, 0 });
        fli_thread_yield();
    }
}

static void stop(void *arg)
{
    filch_sched *host = fixture.hosts[(intptr_t)arg];
    MUST(filch_sched_stop(host, FILCH_FOREVER, NULL) == FILCH_OK, "a host did not stop");
}

static int allow(void *user, const filch_access *access)
{
    (void)user;
    (void)access;
    return 1;
}

static void open_hosts(uint32_t workers)
{
    filch_node_options node = FILCH_NODE_OPTIONS_INIT;
    node.policy = allow;
    node.alloc = workload_alloc;
    MUST(filch_node_create(&fixture.node, &node) == FILCH_OK, "no node");
    for (uint32_t i = 0; i < HOSTS; i++) {
        filch_options opt = workload_options(workers / HOSTS > 0 ? workers / HOSTS : 1);
        opt.node = 100 + i;
        MUST(filch_node_add(fixture.node, &opt, &fixture.hosts[i]) == FILCH_OK, "no host");
    }
    MUST(filch_spawn(fixture.hosts[0], &watcher_type, NULL, &fixture.watcher) == FILCH_OK, "no watcher");
    for (uint32_t i = 0; i < HOSTS; i++) {
        for (int n = 0; n < BOARD / 2; n++) spawn_on(fixture.hosts[i], i, 0);
    }
}

void workload_hosts(uint32_t workers, uint32_t size)
{
    fli_thread outside, stoppers[HOSTS];
    memset(&fixture, 0, sizeof fixture);
    fixture.limit = size;
    open_hosts(workers);
    MUST(fli_thread_start(&outside, "change_at_random", change_at_random, NULL) == FILCH_OK, "no thread");
    for (uint32_t n = fli_sim_choose(size); n > 0; n--) fli_thread_yield();
    for (intptr_t i = 1; i < HOSTS; i++) {
        MUST(fli_thread_start(&stoppers[i], "stop", stop, (void *)i) == FILCH_OK, "no thread");
    }
    for (int i = 1; i < HOSTS; i++) fli_thread_join(&stoppers[i]);
    fixture.over = true;
    fli_thread_join(&outside);
    while (fixture.resolved < fixture.monitored) (void)fli_sim_block(&fixture.waiting, UINT64_MAX, "for the last exit");
    stop((void *)0);
    filch_node_destroy(fixture.node);
    MUST(fixture.opened == fixture.closed, "an instance was not closed exactly once");
    MUST(workload_alloc_live() == 0, "memory was left behind");
}
