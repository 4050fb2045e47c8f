/* hosts_storm.c - processes of several hosts link, unlink, monitor and end each other while the hosts stop.
 *
 *     hosts_storm ROUNDS
 *
 * Each round makes a node with HOSTS hosts. Their processes make relations with processes of all hosts (the pids are
 * on a board), spawn linked processes on other hosts, and end, some of them with an error. Foreign threads make such
 * calls too, through the first host. Meanwhile all hosts but the first stop, each by a thread of its own; then the
 * first one stops. A round passes if every host stops and the model of the node has no relation left (it asserts that
 * when it is freed).
 *
 * Exit: 0 no error found; 1 a host did not stop; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "support/stress.h"

enum { HOSTS = 4, BOARD = 32, MEDDLERS = 2, FIRST = 12 };

static struct {
    filch_node          *node;
    filch_sched         *hosts[HOSTS];
    FLI_ATOMIC(uint64_t) board[HOSTS][BOARD]; /* serials of processes */
    FLI_ATOMIC(uint64_t) spawned, linked, unlinked, refused;
    FLI_ATOMIC(bool)     over;
    FLI_ATOMIC(uint32_t) acted;
    filch_err            stopped[HOSTS];
} storm;

typedef struct actor {
    fli_prng prng;
    uint32_t host, steps;
} actor;

static const filch_type actor_type;

static filch_pid draw(fli_prng *prng)
{
    uint32_t host = fli_prng_below(prng, HOSTS), place = fli_prng_below(prng, BOARD);
    return (filch_pid){ 100 + host, fli_load_rlx(&storm.board[host][place]) };
}

static void count(FLI_ATOMIC(uint64_t) *counter, filch_err err)
{
    if (err == FILCH_ENOMEM) stress_must("a relation", err);
    fli_add_rlx(err == FILCH_OK ? counter : &storm.refused, 1);
}

static void spawn_on(filch_sched *sched, uint32_t host, uint32_t relations, fli_prng *prng)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    uint64_t            args[2] = { fli_prng_next(prng), host };
    opt.args = filch_bytes(args, sizeof args);
    opt.relations = relations;
    /* The name "taken" may be in use. If it is, the spawn must be undone with all its relations. */
    opt.name = fli_prng_below(prng, 4) == 0 ? "taken" : NULL;
    filch_err err = filch_spawn_on(sched, 100 + host, &actor_type, &opt, &pid);
    count(&storm.spawned, err);
    if (err == FILCH_OK) fli_store_rlx(&storm.board[host][fli_prng_below(prng, BOARD)], pid.serial);
}

/* Makes one random call to the host `sched` about processes of any host. `me` is the calling process, or an invalid pid
 * if a foreign thread calls. */
static void act(filch_sched *sched, filch_pid me, fli_prng *prng)
{
    filch_pid a = me.serial != 0 && fli_prng_below(prng, 2) == 0 ? me : draw(prng), b = draw(prng);
    uint64_t  ref;
    switch (fli_prng_below(prng, 10)) {
    case 0:
    case 1:
    case 2:
    case 3: count(&storm.linked, filch_link(sched, a, b)); break;
    case 4:
    case 5: count(&storm.unlinked, filch_unlink(sched, a, b)); break;
    case 6:
        if (filch_monitor(sched, a, b, 1, &ref) == FILCH_OK) count(&storm.unlinked, filch_unmonitor(sched, a, ref));
        break;
    case 7: count(&storm.linked, filch_register(sched, "name", a)); break;
    case 8: count(&storm.linked, filch_terminate(sched, b)); break;
    default:
        spawn_on(sched, fli_prng_below(prng, HOSTS), me.serial != 0 ? FILCH_SPAWN_LINK | FILCH_SPAWN_MONITOR : 0, prng);
        break;
    }
    fli_add_rlx(&storm.acted, 1);
}

static filch_err actor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    actor          *a = self;
    const uint64_t *given = filch_raw(args);
    (void)ctx;
    (void)method;
    fli_prng_init(&a->prng, given[0]);
    a->host = (uint32_t)given[1];
    return FILCH_OK;
}

static filch_err actor_step(void *self, const filch_event *events, size_t n, filch_out *out)
{
    actor *a = self;
    for (size_t i = 0; i < n; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    if (a->steps == 0) (void)!filch_trap_links(out, (int)fli_prng_below(&a->prng, 2));
    act(filch_out_sched(out), filch_ctx_self(filch_out_ctx(out)), &a->prng);
    if (a->steps++ > 20) return fli_prng_below(&a->prng, 2) == 0 ? FILCH_EUSER : filch_done(out, filch_none());
    return filch_continue(out);
}

static const filch_type actor_type = { .name = "actor", .size = sizeof(actor), .init = actor_init, .step = actor_step };

static void meddle(void *arg)
{
    fli_prng prng;
    fli_prng_init(&prng, (uint64_t)(uintptr_t)arg);
    while (!fli_load_rlx(&storm.over)) act(storm.hosts[0], (filch_pid){ 0, 0 }, &prng);
}

static void stop(void *arg)
{
    uintptr_t i = (uintptr_t)arg;
    storm.stopped[i] = filch_sched_stop(storm.hosts[i], FILCH_FOREVER, NULL);
}

static int allow(void *user, const filch_access *access)
{
    (void)user;
    (void)access;
    return 1;
}

static void open_round(uint64_t seed)
{
    filch_node_options opt = FILCH_NODE_OPTIONS_INIT;
    fli_prng           prng;
    opt.policy = allow;
    fli_prng_init(&prng, seed);
    stress_must("node", filch_node_create(&storm.node, &opt));
    for (uint32_t i = 0; i < HOSTS; i++) {
        filch_options sched = FILCH_OPTIONS_INIT;
        sched.node = 100 + i;
        sched.workers = 1;
        for (int k = 0; k < BOARD; k++) fli_store_rlx(&storm.board[i][k], 1);
        stress_must("host", filch_node_add(storm.node, &sched, &storm.hosts[i]));
    }
    fli_store_rlx(&storm.over, false);
    fli_store_rlx(&storm.acted, 0);
    for (uint32_t i = 0; i < HOSTS; i++) {
        for (int n = 0; n < FIRST; n++) spawn_on(storm.hosts[i], i, 0, &prng);
    }
}

static bool play_round(uint64_t number)
{
    fli_thread meddlers[MEDDLERS], stoppers[HOSTS];
    bool       fine = true;
    open_round(number);
    for (uintptr_t i = 0; i < MEDDLERS; i++) {
        stress_must("thread", fli_thread_start(&meddlers[i], "meddle", meddle, (void *)(number * MEDDLERS + i + 1)));
    }
    /* The hosts are stopped only after 100 random calls, so that processes and relations exist by then. */
    while (fli_load_rlx(&storm.acted) < 100) fli_thread_yield();
    for (uintptr_t i = 1; i < HOSTS; i++) {
        stress_must("thread", fli_thread_start(&stoppers[i], "stop", stop, (void *)i));
    }
    for (int i = 1; i < HOSTS; i++) fli_thread_join(&stoppers[i]);
    fli_store_rlx(&storm.over, true);
    for (int i = 0; i < MEDDLERS; i++) fli_thread_join(&meddlers[i]);
    stop((void *)0);
    filch_node_destroy(storm.node);
    for (int i = 0; i < HOSTS; i++) fine = fine && storm.stopped[i] == FILCH_OK;
    return fine;
}

int main(int argc, char **argv)
{
    uint64_t rounds;
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_C(1) << 32, &rounds)) {
        fprintf(stderr, "usage: hosts_storm ROUNDS\n");
        return 2;
    }
    for (uint64_t n = 0; n < rounds; n++) {
        if (play_round(n)) continue;
        fprintf(stderr, "round %" PRIu64 ": a host did not stop\n", n);
        return 1;
    }
    printf("%" PRIu64 " rounds of %d hosts: %" PRIu64 " spawned, %" PRIu64 " relations, %" PRIu64 " undone, %" PRIu64
           " refused\n",
           rounds, HOSTS, fli_load_rlx(&storm.spawned), fli_load_rlx(&storm.linked), fli_load_rlx(&storm.unlinked),
           fli_load_rlx(&storm.refused));
    return 0;
}
