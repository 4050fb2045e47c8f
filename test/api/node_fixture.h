/* node_fixture.h - three hosts of one node, and a policy that the test controls, for the tests of hosts. */
#ifndef FILCH_TEST_NODE_FIXTURE_H
#define FILCH_TEST_NODE_FIXTURE_H

#include "api/fixture.h"

#define FAILURE (FILCH_EUSER + 5)

enum { HOSTS = 3 };

typedef struct node_fixture {
    filch_node *node;
    fixture     hosts[HOSTS];
    /* bit i: the policy allows command i; commands from 64 on are allowed if any bit is set */
    uint64_t             allowed;
    uint64_t             closed; /* number (100 and up) of a host to which the policy refuses access; 0: no host */
    FLI_ATOMIC(uint32_t) policy_calls;
    filch_access         last;
} node_fixture;

static inline int decide(void *user, const filch_access *access)
{
    node_fixture *c = user;
    fli_add_rlx(&c->policy_calls, 1);
    /* without workers all hosts run on one thread, so `last` needs no lock */
    if (c->hosts[0].ticks) c->last = *access;
    if (c->closed != 0 && access->to == c->hosts[c->closed - 100].sched) return 0;
    return access->command < 64 ? (c->allowed >> access->command & 1) != 0 : c->allowed != 0;
}

static inline void node_fixture_begin(node_fixture *c, int32_t workers, bool policy)
{
    filch_node_options opt = FILCH_NODE_OPTIONS_INIT;
    memset(c, 0, sizeof *c);
    opt.policy = policy ? decide : NULL;
    opt.policy_user = c;
    c->allowed = UINT64_MAX;
    ok(filch_node_create(&c->node, &opt));
    for (int i = 0; i < HOSTS; i++) {
        filch_options sched = FILCH_OPTIONS_INIT;
        fixture      *w = &c->hosts[i];
        w->ticks = workers == FILCH_NO_WORKERS;
        sched.workers = workers;
        sched.alloc = fixture_alloc;
        sched.alloc_user = w;
        sched.node = 100 + (uint64_t)i;
        ok(filch_node_add(c->node, &sched, &w->sched));
    }
}

static inline void node_fixture_tick(node_fixture *c)
{
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < HOSTS; i++) {
            if (c->hosts[i].sched != NULL) fixture_tick(&c->hosts[i]);
        }
    }
}

/* Stops all hosts before it checks that their memory was freed, because processes of one host may hold payloads of
 * another host. */
static inline void node_fixture_end(node_fixture *c)
{
    filch_node_destroy(c->node);
    for (int i = 0; i < HOSTS; i++) {
        if (c->hosts[i].sched != NULL) ok(filch_sched_stop(c->hosts[i].sched, FILCH_SECONDS(60), NULL));
    }
    for (int i = 0; i < HOSTS; i++) {
        same(fli_load_rlx(&c->hosts[i].bytes), 0);
        assert_false(fli_load_rlx(&c->hosts[i].miscounted));
    }
}

#endif
