/* calls.c - the public functions of the model: each call, and each command of a yield, becomes an fli_request that
 * fli_relate() carries out.
 *
 * A public call runs the hooks of recording and simulation first. For a yield, these hooks have run when the step
 * yielded.
 */
#include <string.h>

#include "base/assert.h"
#include "model/model.h"
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"
#include "sched/out.h"
#include "sched/sched.h"

static filch_err bad_name(void)
{
    return filch_invalid("name is NULL or not 1 to 255 bytes");
}

static filch_err bad_group(void)
{
    return filch_invalid("group is NULL or not 1 to 255 bytes");
}

/* ---- carrying out requests ---- */

/* Carries out a request about two processes: `from`, which makes the request, and `target`. */
static filch_err relate_two(fli_model *m, fli_runtime *rt, fli_request *request, const fli_endpoint *from,
                            const fli_endpoint *target)
{
    switch (request->op) {
    case FILCH_CMD_MONITOR: return fli_monitor(m, from, target, request->tag, &request->given);
    case FILCH_CMD_LINK: return fli_link(m, from, target);
    default: (void)rt; return fli_unlink(m, from, target);
    }
}

static filch_err relate_pair(fli_model *m, fli_runtime *rt, fli_request *request)
{
    fli_endpoint from, target;
    filch_pid    a = request->from, b = request->target;
    if (a.node == b.node && a.serial == b.serial)
        return filch_invalid("pid is given twice: a process cannot be related to itself");
    filch_err err = fli_endpoint_pin(m, rt, a, &from);
    if (err != FILCH_OK) return err;
    err = fli_endpoint_pin(m, rt, b, &target);
    if (err == FILCH_OK) {
        err = fli_access_check(m, rt, request->op, &from, b);
        if (err == FILCH_OK) err = fli_access_check(m, rt, request->op, &target, b);
        if (err == FILCH_OK) err = relate_two(m, rt, request, &from, &target);
        fli_endpoint_unpin(m, rt, &target);
    }
    fli_endpoint_unpin(m, rt, &from);
    return err;
}

static filch_err end_by_force(const fli_endpoint *endpoint)
{
    fli_proc *p = fli_proc_find(endpoint->rt, endpoint->serial);
    if (p == NULL) return FILCH_EDEAD;
    switch (fli_state_set_flag(&p->state, fli_serial_gen(endpoint->serial), FLI_KILL)) {
    case FLI_DELIVERY_DEAD: return FILCH_EDEAD;
    case FLI_DELIVERY_WOKE: endpoint->rt->hooks.ready(endpoint->rt, fli_current_worker(endpoint->rt), p); break;
    case FLI_DELIVERY_NOTED: break;
    }
    return FILCH_OK;
}

/* Carries out a request about one process; the host of the process is pinned as `endpoint`. */
static filch_err relate_one(fli_model *m, fli_runtime *rt, fli_request *request, const fli_endpoint *endpoint)
{
    switch (request->op) {
    case FILCH_CMD_TERMINATE: return end_by_force(endpoint);
    case FILCH_CMD_CANCEL: return fli_cancel_with(m, rt, endpoint, request->reason, request->tag);
    case FILCH_CMD_UNMONITOR: return fli_unmonitor(m, endpoint, request->tag);
    case FILCH_CMD_REGISTER: return fli_name_add(m, rt, request->name, endpoint);
    case FILCH_CMD_JOIN: return fli_group_join(m, rt, request->name, endpoint);
    case FILCH_CMD_LEAVE: return fli_group_leave(m, rt, request->name, endpoint);
    case FILCH_CMD_WATCH: return fli_group_watch(m, rt, request->name, endpoint, request->tag);
    default: return fli_group_unwatch(m, rt, request->name, endpoint);
    }
}

static filch_err send_name(fli_model *m, fli_runtime *rt, const fli_request *request)
{
    filch_pid pid;
    filch_err err = fli_name_find(m, rt, request->name, &pid);
    return err == FILCH_OK ? filch_send((filch_sched *)rt, pid, *request->data) : err;
}

filch_err fli_relate(fli_runtime *rt, fli_request *request)
{
    fli_model   *m;
    fli_endpoint endpoint;
    filch_pid    pid = request->target;
    filch_err    err = fli_model_get(rt, &m);
    if (err != FILCH_OK) return err;
    switch (request->op) {
    case FILCH_CMD_MONITOR:
    case FILCH_CMD_LINK:
    case FILCH_CMD_UNLINK: return relate_pair(m, rt, request);
    case FILCH_CMD_UNREGISTER: return fli_name_remove(m, rt, request->name);
    case FILCH_CMD_SEND_NAME: return send_name(m, rt, request);
    case FILCH_CMD_BROADCAST:
        return fli_group_broadcast(m, rt, request->name, request->from, request->data, &request->given);
    case FILCH_CMD_UNMONITOR: pid = request->from; break;
    default: break;
    }
    err = fli_endpoint_pin(m, rt, pid, &endpoint);
    if (err != FILCH_OK) return err;
    err = fli_access_check(m, rt, request->op, &endpoint, pid);
    if (err == FILCH_OK) err = relate_one(m, rt, request, &endpoint);
    fli_endpoint_unpin(m, rt, &endpoint);
    return err;
}

/* ---- public calls ---- */

/* Returns true if the phase of the scheduler refuses the request. A request of a step or handler is never refused here;
 * all other requests come from outside. During a stop, messages from outside are refused, as filch_send() refuses them;
 * other requests from outside are refused when the scheduler is closed. In a simulation one thread runs everything, so
 * a caller without a current process counts as outside. */
static bool is_refused(fli_runtime *rt, const fli_local *worker, uint32_t op)
{
    bool outside = worker == NULL || (rt->sim != NULL && worker->current == NULL);
    bool sends = op == FILCH_CMD_BROADCAST || op == FILCH_CMD_SEND_NAME;
    if (!outside) return false;
    uint32_t phase = fli_load_acq(&rt->phase); /* PAIR runtime.phase, acquire half */
    return sends ? phase != FLI_OPEN : worker == NULL && phase == FLI_CLOSED;
}

static filch_err relate_checked(filch_sched *sched, fli_request *request, const char *call)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    fli_runtime *rt = &sched->rt;
    fli_local   *worker = fli_current_worker(rt);
    if (FLI_UNLIKELY(worker != NULL && worker->rec_hooks != NULL)) return worker->rec_hooks->relate(worker, request);
    if (FLI_UNLIKELY(rt->sim != NULL) && !rt->sim->point(rt, worker, call)) return FILCH_ESTATE;
    if (is_refused(rt, worker, request->op)) return FILCH_ECLOSED;
    return fli_relate(rt, request);
}

filch_err filch_monitor(filch_sched *sched, filch_pid watcher, filch_pid target, uint64_t tag, uint64_t *ref)
{
    fli_request request = { .op = FILCH_CMD_MONITOR, .from = watcher, .target = target, .tag = tag };
    filch_err   err = relate_checked(sched, &request, "filch_monitor");
    if (err == FILCH_OK && ref != NULL) *ref = request.given;
    return err;
}

filch_err filch_unmonitor(filch_sched *sched, filch_pid watcher, uint64_t ref)
{
    fli_request request = { .op = FILCH_CMD_UNMONITOR, .from = watcher, .tag = ref };
    return relate_checked(sched, &request, "filch_unmonitor");
}

filch_err filch_link(filch_sched *sched, filch_pid a, filch_pid b)
{
    fli_request request = { .op = FILCH_CMD_LINK, .from = a, .target = b };
    return relate_checked(sched, &request, "filch_link");
}

filch_err filch_unlink(filch_sched *sched, filch_pid a, filch_pid b)
{
    fli_request request = { .op = FILCH_CMD_UNLINK, .from = a, .target = b };
    return relate_checked(sched, &request, "filch_unlink");
}

filch_err filch_trap_links(filch_out *out, int on)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE;
    fli_runtime *rt = &out->ctx.sched->rt;
    fli_proc    *p = fli_current_worker(rt)->current;
    if (on) {
        p->flags |= FLI_PROC_TRAPS;
        return FILCH_OK;
    }
    p->flags &= (uint8_t)~FLI_PROC_TRAPS;
    /* The process no longer traps links. If a LINK_DOWN notice has arrived but no step has received it yet, the failure
     * of that link now ends the process. */
    if (p->completions != 0 && fli_mail_link_reason(rt, p) != FILCH_OK) p->flags |= FLI_PROC_LINK_FAILED;
    return FILCH_OK;
}

filch_err filch_cancel_with(filch_sched *sched, filch_pid pid, filch_err reason, uint64_t deadline_ns)
{
    fli_request request = { .op = FILCH_CMD_CANCEL, .target = pid, .reason = reason, .tag = deadline_ns };
    if (reason == FILCH_OK) return filch_invalid("reason is FILCH_OK: give an error");
    return relate_checked(sched, &request, "filch_cancel_with");
}

filch_err filch_register(filch_sched *sched, const char *name, filch_pid pid)
{
    fli_request request = { .op = FILCH_CMD_REGISTER, .target = pid, .name = name };
    return fli_name_is_sound(name) ? relate_checked(sched, &request, "filch_register") : bad_name();
}

filch_err filch_unregister(filch_sched *sched, const char *name)
{
    fli_request request = { .op = FILCH_CMD_UNREGISTER, .name = name };
    return fli_name_is_sound(name) ? relate_checked(sched, &request, "filch_unregister") : bad_name();
}

filch_err filch_send_name(filch_sched *sched, const char *name, filch_data data)
{
    fli_request request = { .op = FILCH_CMD_SEND_NAME, .name = name, .data = &data };
    return fli_name_is_sound(name) ? relate_checked(sched, &request, "filch_send_name") : bad_name();
}

filch_err filch_join(filch_sched *sched, const char *group, filch_pid pid)
{
    fli_request request = { .op = FILCH_CMD_JOIN, .target = pid, .name = group };
    return fli_name_is_sound(group) ? relate_checked(sched, &request, "filch_join") : bad_group();
}

filch_err filch_leave(filch_sched *sched, const char *group, filch_pid pid)
{
    fli_request request = { .op = FILCH_CMD_LEAVE, .target = pid, .name = group };
    return fli_name_is_sound(group) ? relate_checked(sched, &request, "filch_leave") : bad_group();
}

filch_err filch_watch(filch_sched *sched, const char *group, filch_pid watcher, uint64_t tag)
{
    fli_request request = { .op = FILCH_CMD_WATCH, .target = watcher, .name = group, .tag = tag };
    return fli_name_is_sound(group) ? relate_checked(sched, &request, "filch_watch") : bad_group();
}

filch_err filch_unwatch(filch_sched *sched, const char *group, filch_pid watcher)
{
    fli_request request = { .op = FILCH_CMD_UNWATCH, .target = watcher, .name = group };
    return fli_name_is_sound(group) ? relate_checked(sched, &request, "filch_unwatch") : bad_group();
}

filch_err filch_broadcast(filch_sched *sched, const char *group, filch_data data, uint64_t *sent)
{
    fli_request request = { .op = FILCH_CMD_BROADCAST, .name = group, .data = &data };
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!fli_name_is_sound(group)) return filch_invalid("group is NULL or not 1 to 255 bytes");
    /* As in filch_send(): a message that a process sends has this process as its sender, a message that a handler sends
     * has no sender. */
    const fli_local *worker = fli_current_worker(&sched->rt);
    bool             inside = worker != NULL && worker->serial != 0 && !worker->dispatching;
    if (inside) request.from = (filch_pid){ sched->rt.node_id, worker->serial };
    filch_err err = relate_checked(sched, &request, "filch_broadcast");
    if (err == FILCH_OK && sent != NULL) *sent = request.given;
    return err;
}

/* Returns the model of `sched`, or NULL if none was created yet. Queries are no scheduling points of the simulation.
 * The result of filch_whereis() is recorded, because a replay must return the recorded pid. */
static fli_model *look(filch_sched *sched)
{
    return fli_load_acq(&sched->rt.model); /* PAIR runtime.model, acquire half */
}

filch_err filch_whereis(filch_sched *sched, const char *name, filch_pid *pid)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (pid == NULL) return filch_invalid("pid is NULL");
    if (!fli_name_is_sound(name)) return filch_invalid("name is NULL or not 1 to 255 bytes");
    fli_local *worker = fli_current_worker(&sched->rt);
    if (FLI_UNLIKELY(worker != NULL && worker->rec_hooks != NULL)) return worker->rec_hooks->whereis(worker, name, pid);
    fli_model *m = look(sched);
    return m != NULL ? fli_name_find(m, &sched->rt, name, pid) : FILCH_EDEAD;
}

filch_err filch_members(filch_sched *sched, const char *group, filch_pid *pids, size_t room, size_t *count)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (count == NULL) return filch_invalid("count is NULL");
    if (!fli_name_is_sound(group)) return filch_invalid("group is NULL or not 1 to 255 bytes");
    if (pids == NULL && room > 0) return filch_invalid("pids is NULL although room is not 0");
    fli_model *m = look(sched);
    *count = m != NULL ? fli_group_members(m, &sched->rt, group, pids, room) : 0;
    return FILCH_OK;
}

/* ---- public functions that yield a command ---- */

/* The data of the command that filch_yield_cancel() yields. */
typedef struct cancel_request {
    int64_t  reason;
    uint64_t deadline_ns;
} cancel_request;

filch_err filch_yield_terminate(filch_out *out, uint64_t tag, filch_pid pid)
{
    filch_data nothing = filch_none();
    return fli_out_yield(out, FILCH_CMD_TERMINATE, tag, pid, &nothing);
}

filch_err filch_yield_cancel(filch_out *out, uint64_t tag, filch_pid pid, filch_err reason, uint64_t deadline_ns)
{
    cancel_request cancel = { .reason = reason, .deadline_ns = deadline_ns };
    filch_data     data = filch_bytes(&cancel, sizeof cancel);
    return reason != FILCH_OK ? fli_out_yield(out, FILCH_CMD_CANCEL, tag, pid, &data)
                              : filch_invalid("reason is FILCH_OK: give an error");
}

filch_err filch_yield_monitor(filch_out *out, uint64_t tag, filch_pid pid)
{
    filch_data nothing = filch_none();
    return fli_out_yield(out, FILCH_CMD_MONITOR, tag, pid, &nothing);
}

filch_err filch_yield_unmonitor(filch_out *out, uint64_t tag, uint64_t ref)
{
    return filch_yield(out, FILCH_CMD_UNMONITOR, tag, filch_int((int64_t)ref));
}

filch_err filch_yield_link(filch_out *out, uint64_t tag, filch_pid pid)
{
    filch_data nothing = filch_none();
    return fli_out_yield(out, FILCH_CMD_LINK, tag, pid, &nothing);
}

filch_err filch_yield_unlink(filch_out *out, uint64_t tag, filch_pid pid)
{
    filch_data nothing = filch_none();
    return fli_out_yield(out, FILCH_CMD_UNLINK, tag, pid, &nothing);
}

static filch_err yield_name(filch_out *out, uint32_t command, uint64_t tag, const char *name)
{
    return fli_name_is_sound(name) ? filch_yield(out, command, tag, filch_str(name)) : bad_name();
}

filch_err filch_yield_register(filch_out *out, uint64_t tag, const char *name)
{
    return yield_name(out, FILCH_CMD_REGISTER, tag, name);
}

filch_err filch_yield_unregister(filch_out *out, uint64_t tag, const char *name)
{
    return yield_name(out, FILCH_CMD_UNREGISTER, tag, name);
}

filch_err filch_yield_join(filch_out *out, uint64_t tag, const char *group)
{
    return yield_name(out, FILCH_CMD_JOIN, tag, group);
}

filch_err filch_yield_leave(filch_out *out, uint64_t tag, const char *group)
{
    return yield_name(out, FILCH_CMD_LEAVE, tag, group);
}

filch_err filch_yield_members(filch_out *out, uint64_t tag, const char *group)
{
    return yield_name(out, FILCH_CMD_MEMBERS, tag, group);
}

filch_err filch_yield_watch(filch_out *out, uint64_t tag, const char *group)
{
    return yield_name(out, FILCH_CMD_WATCH, tag, group);
}

filch_err filch_yield_unwatch(filch_out *out, uint64_t tag, const char *group)
{
    return yield_name(out, FILCH_CMD_UNWATCH, tag, group);
}

/* ---- handlers of the commands of src/model ---- */

static filch_err handle_members(fli_runtime *rt, const char *name, filch_receiver receiver)
{
    fli_model *m = look((filch_sched *)rt);
    fli_pids   members = { .count = 0 };
    filch_err  err = m != NULL ? fli_group_list(m, rt, name, &members) : FILCH_OK;
    if (err != FILCH_OK) return err;
    filch_data pids = filch_bytes(members.at, members.count * sizeof *members.at);
    err = filch_complete(receiver, receiver.tag, pids, FILCH_OK);
    fli_group_unlist(rt, &members);
    return err;
}

/* Makes the request from a command. Returns false if the command's data is malformed. */
static bool read_command(const filch_command *command, uint64_t tag, fli_request *request)
{
    const filch_data *data = &command->data;
    *request = (fli_request){ .op = command->id, .from = command->from, .target = command->target, .tag = tag };
    switch (command->id) {
    case FILCH_CMD_TERMINATE:
    case FILCH_CMD_MONITOR:
    case FILCH_CMD_LINK:
    case FILCH_CMD_UNLINK: return true;
    case FILCH_CMD_UNMONITOR: request->tag = (uint64_t)filch_as_int(data); return true;
    case FILCH_CMD_CANCEL: {
        cancel_request cancel;
        if (filch_size(data) != sizeof cancel) return false;
        memcpy(&cancel, filch_raw(data), sizeof cancel);
        request->reason = (filch_err)cancel.reason;
        request->tag = cancel.deadline_ns;
        return request->reason != FILCH_OK;
    }
    default: break;
    }
    /* All other commands are about the yielding process and a name or group. */
    request->target = command->from;
    request->name = filch_text(data);
    return filch_kind_of(data) == FILCH_KIND_TEXT && fli_name_is_sound(request->name);
}

filch_err fli_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver)
{
    fli_request request;
    if (command->id == FILCH_CMD_SPAWN || command->id == FILCH_CMD_EXEC)
        return fli_spawn_request_handle(rt, command, receiver);
    if (command->id == FILCH_CMD_BROADCAST || command->id == FILCH_CMD_SEND_NAME) {
        return fli_named_message_handle(rt, command, receiver);
    }
    if (!read_command(command, receiver.tag, &request)) return FILCH_EINVAL;
    if (command->id == FILCH_CMD_MEMBERS) return handle_members(rt, request.name, receiver);
    filch_err err = fli_relate(rt, &request);
    if (err != FILCH_OK) return err;
    bool gives = command->id == FILCH_CMD_MONITOR;
    return filch_complete(receiver, receiver.tag, gives ? filch_int((int64_t)request.given) : filch_none(), FILCH_OK);
}
