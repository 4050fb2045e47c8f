/* host.c - several schedulers in one program, behind one node: filch_node_*. Each scheduler is a host of one model
 * (model.h).
 *
 * An operation on a process of another host goes through the caller's own scheduler, which finds the host by the
 * pid: a send uses the route function, every other operation uses the model. The node's policy is asked for every
 * operation between hosts, and for none inside a host.
 * Design: docs/design/hosts.md.
 */
#include <string.h>

#include "base/versioned.h"
#include "model/model.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "sched/sched.h"
#include "sched/spawn.h"

static fli_model *model_of(filch_node *node)
{
    return (fli_model *)node;
}

filch_err filch_node_create(filch_node **out, const filch_node_options *options)
{
    filch_node_options opt;
    if (out == NULL) return filch_invalid("out is NULL");
    filch_err err = FLI_VERSIONED_READ(&opt, options, "options", FILCH_NODE_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    fli_mem    mem;
    fli_model *m;
    fli_mem_init(&mem, opt.alloc, opt.alloc_user);
    err = fli_mem_probe(&mem);
    if (err == FILCH_OK) err = fli_model_create(&mem, &m);
    if (err != FILCH_OK) return err;
    m->policy = opt.policy;
    m->policy_user = opt.policy_user;
    *out = (filch_node *)m;
    return FILCH_OK;
}

void filch_node_destroy(filch_node *node)
{
    if (node != NULL) fli_model_drop(model_of(node));
}

/* The filch_route_fn of a host: delivers a message to a pid of another host. */
static filch_err route(void *user, const filch_package *package)
{
    fli_runtime *rt = user;
    fli_model   *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint endpoint;
    filch_err    err = fli_endpoint_pin(m, rt, package->to, &endpoint);
    if (err == FILCH_EFOREIGN) {
        const fli_host *host = fli_host_at(m, rt->host);
        return host->route != NULL ? host->route(host->route_user, package) : FILCH_EFOREIGN;
    }
    if (err != FILCH_OK) return err;
    err = fli_access_check(m, rt, FILCH_CMD_SEND, &endpoint, package->to);
    if (err == FILCH_OK) err = filch_deliver(endpoint.rt, package);
    fli_endpoint_unpin(m, rt, &endpoint);
    return err;
}

/* Makes `rt` a host of the model. Thread: no other thread uses `rt` yet. */
static filch_err attach(fli_model *m, fli_runtime *rt, const filch_options *opt)
{
    uint32_t  number;
    filch_err err = fli_model_add(m, rt, &number);
    if (err != FILCH_OK) return err;
    fli_host *host = fli_host_at(m, number);
    host->route = opt->route;
    host->route_user = opt->route_user;
    rt->host = number;
    rt->route = route;
    rt->route_user = rt;
    fli_store_rel(&rt->model, m); /* PAIR runtime.model, release half */
    return FILCH_OK;
}

filch_err filch_node_add(filch_node *node, const filch_options *options, filch_sched **out)
{
    if (node == NULL) return filch_invalid("node is NULL");
    if (out == NULL) return filch_invalid("out is NULL");
    filch_sched *sched;
    filch_err    err = filch_sched_create(&sched, options);
    if (err != FILCH_OK) return err;
    err = attach(model_of(node), &sched->rt, &sched->opt);
    if (err != FILCH_OK) {
        (void)filch_sched_stop(sched, 0, NULL);
        return err;
    }
    *out = sched;
    return FILCH_OK;
}

filch_err filch_spawn_on(filch_sched *sched, uint64_t node, const filch_type *type, const filch_spawn_options *options,
                         filch_pid *pid)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!fli_type_is_sound(type)) return FILCH_EINVAL;
    fli_runtime *rt = &sched->rt;
    if (node == rt->node_id) return filch_spawn(sched, type, options, pid);
    filch_spawn_options opt;
    fli_model          *m = fli_load_acq(&rt->model); /* PAIR runtime.model, acquire half */
    fli_endpoint        endpoint;
    filch_err           err = fli_spawn_options_read(options, &opt);
    if (err != FILCH_OK) return err;
    if (m == NULL) return FILCH_EFOREIGN;
    fli_local *worker = fli_current_worker(rt);
    if (worker != NULL && worker->rec_hooks != NULL)
        /* a recorded step cannot spawn on another host, because a recording covers one scheduler */
        return FILCH_ESTATE;
    bool     inside = worker != NULL && worker->serial != 0 && !worker->dispatching;
    uint32_t relations = opt.relations & (FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK);
    if (relations != 0 && !inside) return FILCH_ESTATE;
    /* serial 1 stands for any process of the node: only its host is needed */
    err = fli_endpoint_pin(m, rt, (filch_pid){ node, 1 }, &endpoint);
    if (err != FILCH_OK) return err;
    err = fli_access_check(m, rt, FILCH_CMD_SPAWN, &endpoint, (filch_pid){ 0, 0 });
    if (err == FILCH_OK) {
        fli_birth birth = { .relations = relations, .tag = opt.tag, .name = opt.name };
        if (inside) birth.parent = (filch_pid){ rt->node_id, worker->serial };
        if (opt.values == NULL && inside) opt.values = worker->current->values;
        bool unrelated = relations == 0 && opt.name == NULL;
        err = fli_spawn((filch_sched *)endpoint.rt, type, &opt, unrelated ? NULL : &birth, pid);
    }
    fli_endpoint_unpin(m, rt, &endpoint);
    return err;
}
