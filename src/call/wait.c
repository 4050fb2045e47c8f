/* wait.c - the public functions by which a thread of the host waits. */
#include "call/caller.h"

#include "payload/data.h"
#include "sched/spawn.h"

/* Makes a call of kind `kind` and waits for its outcome. FLI_CALL_REQUEST and FLI_CALL_SEND send `data` to `to`;
 * FLI_CALL_END waits for the end of `to`. `data` is lent. */
static filch_err run(filch_sched *sched, fli_hostcall_kind kind, filch_pid to, const filch_data *data,
                     uint64_t deadline_ns, filch_err *ended, filch_data *reply)
{
    fli_hostcall *call;
    if (to.serial == 0) return FILCH_EDEAD; /* pid 0 names no process */
    filch_err err = fli_hostcall_create(sched, kind, deadline_ns, data, &call);
    if (err != FILCH_OK) return err;
    call->to = to;
    return fli_caller_run(sched, call, ended, reply);
}

filch_err filch_call(filch_sched *sched, filch_pid to, filch_data data, uint64_t deadline_ns, filch_data *reply)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    filch_err err = fli_hostcall_check(sched, "filch_call");
    if (err != FILCH_OK) return err;
    return run(sched, FLI_CALL_REQUEST, to, &data, deadline_ns, NULL, reply);
}

filch_err filch_call_with(filch_sched *sched, filch_pid to, filch_ask_fn ask, void *arg, uint64_t deadline_ns,
                          filch_data *reply)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (ask == NULL) return filch_invalid("ask is NULL");
    filch_err err = fli_hostcall_check(sched, "filch_call_with");
    if (err != FILCH_OK) return err;
    if (to.serial == 0) return FILCH_EDEAD; /* pid 0 names no process */
    fli_hostcall *call;
    err = fli_hostcall_create(sched, FLI_CALL_REQUEST, deadline_ns, NULL, &call);
    if (err != FILCH_OK) return err;
    call->to = to;
    call->ask = ask;
    call->ask_arg = arg;
    return fli_caller_run(sched, call, NULL, reply);
}

filch_err filch_send_wait(filch_sched *sched, filch_pid to, filch_data data, uint64_t deadline_ns)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    filch_err err = fli_hostcall_check(sched, "filch_send_wait");
    if (err != FILCH_OK) return err;
    if (data.form == FLI_FORM_MOVE) return filch_invalid("data is a filch_move: use filch_share");
    err = filch_send(sched, to, data);
    if (err != FILCH_EFULL || deadline_ns == 0) return err;
    return run(sched, FLI_CALL_SEND, to, &data, deadline_ns, NULL, NULL);
}

filch_err filch_sched_wait(filch_sched *sched, filch_pid pid, uint64_t deadline_ns, filch_err *ended,
                           filch_data *result)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    filch_err err = fli_hostcall_check(sched, "filch_sched_wait");
    if (err != FILCH_OK) return err;
    return run(sched, FLI_CALL_END, pid, NULL, deadline_ns, ended, result);
}

/* The on_exit hook of the process that filch_spawn_wait() started. */
static void exited(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    fli_hostcall *call = user;
    if (call->on_exit != NULL) call->on_exit(call->on_exit_user, pid, error, result);
    call->ended = error;
    call->err = filch_keep(result, &call->reply);
    fli_hostcall_finish(call);
}

filch_err filch_spawn_wait(filch_sched *sched, const filch_type *type, const filch_spawn_options *options,
                           uint64_t deadline_ns, filch_pid *pid, filch_err *ended, filch_data *result)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    filch_spawn_options opt;
    filch_err           err = fli_hostcall_check(sched, "filch_spawn_wait");
    if (err == FILCH_OK) err = fli_spawn_options_read(options, &opt);
    if (err != FILCH_OK) return err;
    fli_hostcall *call;
    err = fli_hostcall_create(sched, FLI_CALL_END, deadline_ns, NULL, &call);
    if (err != FILCH_OK) return err;
    call->on_exit = opt.on_exit;
    call->on_exit_user = opt.on_exit_user;
    opt.on_exit = exited;
    opt.on_exit_user = call;
    fli_store_rlx(&call->refs, 2); /* relaxed: the process does not exist yet; its on_exit drops a reference */
    err = filch_spawn(sched, type, &opt, pid);
    if (err == FILCH_OK) return fli_hostcall_wait(call, ended, result);
    fli_store_rlx(&call->refs, 1);
    fli_hostcall_drop(call);
    return err;
}
