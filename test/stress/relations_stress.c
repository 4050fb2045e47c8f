/* relations_stress.c - monitors, links, names and groups made and broken while their processes end, on two hosts.
 *
 *     relations_stress LIVES
 *
 * Citizens of two hosts live for a few steps. In each step a citizen calls one function for other processes of either
 * host: monitor, link, unlink, name, join, terminate, cancel. A census process on each host receives the exit of every
 * citizen of both hosts, by monitors made at birth or later: when both have received all LIVES exits, each exactly
 * once, the first part ends. The second part is a storm: 10,000 processes in a ring of links with chords; one fails,
 * and all must end. In the third part hosts are created and stopped, while threads of the others send to, monitor and
 * name their processes: each accepted monitor delivers one EXIT.
 *
 * Exit: 0 no error found; 1 a notice was lost or duplicated; 2 wrong usage, or the runtime failed.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "support/stress.h"
#include "support/yield_slice.h"

enum { HOSTS = 2, KNOWN = 64, CROWD = 200, STORM = 10000 };

static struct {
    filch_node  *node;
    filch_sched *hosts[HOSTS];
    filch_pid    census[HOSTS];
    /* serial numbers of the pids of live processes; the host of an element is its index modulo HOSTS */
    FLI_ATOMIC(uint64_t) known[KNOWN];
    FLI_ATOMIC(uint64_t) spawned, exits_received[HOSTS], doubled, ended;
    /* for each host: number of EXIT notices received about each citizen. Each array is used only by the census process
     * of its host */
    uint8_t *exits_seen[HOSTS];
    uint64_t citizen_count;
} town;

typedef struct citizen {
    fli_prng prng;
    int      host, days;
} citizen;

static const filch_type citizen_type;

static filch_pid random_pid(fli_prng *prng)
{
    uint32_t i = fli_prng_below(prng, KNOWN);
    return (filch_pid){ 100 + i % HOSTS, fli_load_rlx(&town.known[i]) };
}

/* Spawns one more citizen (a process under test) on `host`; the census processes of both hosts monitor the citizen. */
static void spawn_citizen(int host, uint64_t seed)
{
    uint64_t number = fli_add_rlx(&town.spawned, 1);
    if (number >= town.citizen_count) return;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    struct {
        uint64_t seed;
        int64_t  host;
    } args = { seed ^ fli_prng_mix(number), host };
    opt.args = filch_bytes(&args, sizeof args);
    stress_must("spawn", filch_spawn(town.hosts[host], &citizen_type, &opt, &pid));
    fli_store_rlx(&town.known[(number * HOSTS + (uint64_t)host) % KNOWN], pid.serial);
    for (int i = 0; i < HOSTS; i++) {
        stress_must("monitor", filch_monitor(town.hosts[i], town.census[i], pid, number, NULL));
    }
}

static filch_err citizen_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    citizen       *c = self;
    const int64_t *given = filch_raw(args);
    (void)ctx;
    (void)method;
    fli_prng_init(&c->prng, (uint64_t)given[0]);
    c->host = (int)given[1];
    return FILCH_OK;
}

static void act(citizen *c, filch_pid me, filch_out *out)
{
    static const char *const names[] = { "mayor", "clerk", "guard" };
    filch_sched             *sched = town.hosts[c->host];
    const char              *name = names[fli_prng_below(&c->prng, 3)];
    filch_pid                other = random_pid(&c->prng);
    uint64_t                 ref;
    filch_err                err = FILCH_OK;
    switch (fli_prng_below(&c->prng, 12)) {
    case 0:
        err = filch_monitor(sched, me, other, 1, &ref);
        if (err == FILCH_OK && fli_prng_below(&c->prng, 2) == 0) err = filch_unmonitor(sched, me, ref);
        break;
    case 1: err = filch_link(sched, me, other); break;
    case 2: err = filch_link(sched, other, random_pid(&c->prng)); break;
    case 3: err = filch_unlink(sched, me, other); break;
    case 4: err = filch_trap_links(out, (int)fli_prng_below(&c->prng, 2)); break;
    case 5: err = filch_register(sched, name, me); break;
    case 6: err = filch_unregister(sched, name); break;
    case 7: err = filch_join(sched, "square", me); break;
    case 8: err = filch_broadcast(sched, "square", filch_int(1), NULL); break;
    case 9: err = filch_terminate(sched, other); break;
    case 10:
        err = filch_cancel_with(sched, other, FILCH_EUSER, FILCH_MICROSECONDS(fli_prng_below(&c->prng, 2000)));
        break;
    default: err = filch_watch(sched, "square", me, 2); break;
    }
    if (err == FILCH_ENOMEM) stress_must("a relation", err);
}

static filch_err citizen_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    citizen *c = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    for (uint32_t n = fli_prng_below(&c->prng, 4); n > 0; n--) act(c, filch_ctx_self(filch_out_ctx(out)), out);
    if (c->days++ > 4) return fli_prng_below(&c->prng, 2) ? FILCH_EUSER + 1 : filch_done(out, filch_none());
    return fli_prng_below(&c->prng, 10) == 0 ? FILCH_EUSER + 2 : filch_continue(out);
}

static const filch_type citizen_type = {
    .name = "citizen", .size = sizeof(citizen), .init = citizen_init, .step = citizen_step
};

/* Counts the EXIT notices of citizens. Spawns a new citizen for each citizen that has ended. */
static filch_err census_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t  *steps = self;
    filch_pid me = filch_ctx_self(filch_out_ctx(out));
    int       host = (int)(me.node - 100);
    (*steps)++;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (events[i].type == FILCH_EVENT_MESSAGE) {
            for (int n = 0; n < CROWD / HOSTS; n++) spawn_citizen(host, (uint64_t)n);
        }
        if (events[i].type != FILCH_EVENT_EXIT) continue;
        if (town.exits_seen[host][events[i].tag]++ != 0) fli_add_rlx(&town.doubled, 1);
        fli_add_rlx(&town.exits_received[host], 1);
        if (events[i].from.node == me.node) spawn_citizen(host, (uint64_t)*steps);
    }
    return filch_idle(out);
}

static const filch_type census_type = { .name = "census", .size = 8, .step = census_step };

static int allow(void *user, const filch_access *access)
{
    (void)user;
    (void)access;
    return 1;
}

/* Waits until `count` reaches `wanted`. Returns false if `count` stops changing before it has reached `wanted`. */
static bool reaches(FLI_ATOMIC(uint64_t) *count, uint64_t wanted)
{
    uint64_t seen = 0, since_ns = fli_clock_ns();
    for (;;) {
        uint64_t now = fli_load_rlx(count);
        if (now >= wanted) return true;
        if (now != seen) since_ns = fli_clock_ns();
        seen = now;
        if (fli_clock_ns() - since_ns > STRESS_LIMIT) return false;
        yield_slice();
    }
}

/* ---- the storm ---- */

static void on_end(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    bool first = error == FILCH_EUSER + 9, other = error == FILCH_ELINK && filch_as_int(result) == FILCH_EUSER + 9;
    if (first || other) fli_add_rlx(&town.ended, 1);
}

static filch_err bystander_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return count > 0 && events[0].type == FILCH_EVENT_MESSAGE ? FILCH_EUSER + 9 : filch_idle(out);
}

static const filch_type bystander = { .name = "bystander", .step = bystander_step };

static bool storm(void)
{
    static filch_pid pids[STORM];
    fli_prng         prng;
    fli_prng_init(&prng, 7);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.on_exit = on_end;
    for (int i = 0; i < STORM; i++)
        stress_must("spawn", filch_spawn(town.hosts[i % HOSTS], &bystander, &opt, &pids[i]));
    for (int i = 0; i < STORM; i++) {
        stress_must("link", filch_link(town.hosts[0], pids[i], pids[(i + 1) % STORM]));
        uint32_t far = fli_prng_below(&prng, STORM);
        if (far != (uint32_t)i) stress_must("link", filch_link(town.hosts[1], pids[i], pids[far]));
    }
    uint64_t began_ns = fli_clock_ns();
    stress_must("send", filch_send(town.hosts[STORM / 2 % HOSTS], pids[STORM / 2], filch_int(1)));
    bool all = reaches(&town.ended, STORM);
    printf("storm: %" PRIu64 " of %d ended in %.1f ms\n", fli_load_rlx(&town.ended), STORM,
           (double)(fli_clock_ns() - began_ns) / 1e6);
    return all;
}

/* ---- hosts that are created and stopped while other threads use pids of their processes ---- */

enum { VISITS = 12, VISITORS = 64, MEDDLERS = 2 };

static struct {
    /* serial numbers of the visitors' pids, and number of the current host */
    FLI_ATOMIC(uint64_t) serials[VISITORS], node;
    FLI_ATOMIC(uint64_t) monitored, exits_seen;
    FLI_ATOMIC(bool)     over;
    filch_pid            watcher;
} visit;

static filch_err watcher_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    uint64_t exits = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        exits += events[i].type == FILCH_EVENT_EXIT;
    }
    fli_add_rlx(&visit.exits_seen, exits);
    return filch_idle(out);
}

static const filch_type watcher_type = { .name = "watcher", .step = watcher_step };

/* Foreign thread: calls the first host with pids of a host that may have stopped. */
static void meddle(void *arg)
{
    fli_prng prng;
    fli_prng_init(&prng, (uint64_t)(uintptr_t)arg);
    while (!fli_load_rlx(&visit.over)) {
        /* Gives up the CPU while the watcher has more than 1000 EXIT notices still to receive. */
        if (fli_load_rlx(&visit.monitored) - fli_load_rlx(&visit.exits_seen) > 1000) {
            yield_slice();
            continue;
        }
        filch_pid visitor = { fli_load_rlx(&visit.node),
                              fli_load_rlx(&visit.serials[fli_prng_below(&prng, VISITORS)]) };
        filch_err err = FILCH_OK;
        switch (fli_prng_below(&prng, 5)) {
        case 0:
            err = filch_monitor(town.hosts[0], visit.watcher, visitor, 1, NULL);
            if (err == FILCH_OK) fli_add_rlx(&visit.monitored, 1);
            break;
        case 1: err = filch_send(town.hosts[0], visitor, filch_int(2)); break;
        case 2: err = filch_terminate(town.hosts[0], visitor); break;
        case 3: err = filch_register(town.hosts[0], "visitor", visitor); break;
        default: err = filch_unregister(town.hosts[0], "visitor"); break;
        }
        if (err == FILCH_ENOMEM) stress_must("meddling", err);
    }
}

static filch_err visitor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type visitor_type = { .name = "visitor", .step = visitor_step };

static bool visits(void)
{
    fli_thread meddlers[MEDDLERS];
    stress_must("spawn", filch_spawn(town.hosts[0], &watcher_type, NULL, &visit.watcher));
    fli_store_rlx(&visit.node, 1);
    for (int i = 0; i < MEDDLERS; i++) {
        stress_must("thread", fli_thread_start(&meddlers[i], "meddle", meddle, (void *)(uintptr_t)(i + 1)));
    }
    for (uint64_t n = 0; n < VISITS; n++) {
        filch_options opt = FILCH_OPTIONS_INIT;
        filch_sched  *host;
        filch_pid     pid;
        opt.node = 1000 + n;
        opt.workers = 1;
        stress_must("host", filch_node_add(town.node, &opt, &host));
        fli_store_rlx(&visit.node, opt.node);
        for (int i = 0; i < 4 * VISITORS; i++) {
            stress_must("spawn", filch_spawn(host, &visitor_type, NULL, &pid));
            fli_store_rlx(&visit.serials[i % VISITORS], pid.serial);
            yield_slice();
        }
        stress_must("stop", filch_sched_stop(host, FILCH_SECONDS(60), NULL));
    }
    fli_store_rlx(&visit.over, true);
    for (int i = 0; i < MEDDLERS; i++) fli_thread_join(&meddlers[i]);
    uint64_t monitored = fli_load_rlx(&visit.monitored);
    bool     all = reaches(&visit.exits_seen, monitored) && fli_load_rlx(&visit.exits_seen) == monitored;
    printf("visits: %d hosts came and went, %" PRIu64 " of %" PRIu64 " exits received\n", VISITS,
           fli_load_rlx(&visit.exits_seen), monitored);
    return all;
}

int main(int argc, char **argv)
{
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_C(1) << 32, &town.citizen_count)) {
        fprintf(stderr, "usage: relations_stress LIVES\n");
        return 2;
    }
    filch_node_options opt = FILCH_NODE_OPTIONS_INIT;
    opt.policy = allow;
    stress_must("node", filch_node_create(&town.node, &opt));
    for (int i = 0; i < HOSTS; i++) {
        filch_options sched = FILCH_OPTIONS_INIT;
        sched.node = 100 + (uint64_t)i;
        sched.workers = 2;
        town.exits_seen[i] = calloc(town.citizen_count, 1);
        stress_must("host", filch_node_add(town.node, &sched, &town.hosts[i]));
    }
    for (int i = 0; i < HOSTS; i++)
        stress_must("spawn", filch_spawn(town.hosts[i], &census_type, NULL, &town.census[i]));
    for (int i = 0; i < HOSTS; i++) stress_must("send", filch_send(town.hosts[i], town.census[i], filch_int(1)));
    bool fine = true;
    for (int i = 0; i < HOSTS; i++) {
        bool exits_received = reaches(&town.exits_received[i], town.citizen_count);
        if (!exits_received)
            fprintf(stderr, "host %d received %" PRIu64 " exits\n", i, fli_load_rlx(&town.exits_received[i]));
        fine = fine && exits_received;
    }
    if (fli_load_rlx(&town.doubled) > 0)
        fprintf(stderr, "%" PRIu64 " exits received twice\n", fli_load_rlx(&town.doubled));
    fine = fine && fli_load_rlx(&town.doubled) == 0;
    printf("%" PRIu64 " processes, each exit received on %d hosts\n", town.citizen_count, HOSTS);
    fine = fine && storm();
    fine = fine && visits();
    filch_node_destroy(town.node);
    for (int i = 0; i < HOSTS; i++) (void)filch_sched_stop(town.hosts[i], FILCH_SECONDS(10), NULL);
    for (int i = 0; i < HOSTS; i++) free(town.exits_seen[i]);
    return fine ? 0 : 1;
}
