/* call.c - see call.h: the object that a waiting thread and a process share. docs/design/host-threads.md says why a
 * process serves each wait. */
#include "call/call.h"

#include "payload/data.h"
#include "port/clock.h"
#include "port/thread.h"
#include "proc/runtime.h"
#include "sched/sched.h"

filch_err fli_hostcall_check(filch_sched *sched, const char *name)
{
    if (fli_simulator_refuses(&sched->rt, name)) return FILCH_ESTATE;
    /* A worker of any scheduler must not wait: its processes would not run, and the awaited process may be one of
     * them. */
    if (fli_current_get() != NULL || sched->worker_count == 0) return FILCH_ESTATE;
    return FILCH_OK;
}

static filch_err own_request(const filch_sched *sched, const filch_data *data, filch_data *out)
{
    *out = filch_none();
    if (data == NULL) return FILCH_OK;
    if (data->form == FLI_FORM_MOVE) return filch_invalid("data is a filch_move: use filch_share");
    return fli_data_own(&sched->rt.mem, sched->rt.payload_max, data, out);
}

filch_err fli_hostcall_create(filch_sched *sched, fli_hostcall_kind kind, uint64_t deadline_ns, const filch_data *data,
                              fli_hostcall **out)
{
    const fli_mem *mem = &sched->rt.mem;
    fli_hostcall  *call = fli_zalloc(mem, sizeof *call);
    if (call == NULL) return FILCH_ENOMEM;
    call->mem = *mem;
    call->sched = sched;
    call->kind = (uint32_t)kind;
    call->until_ns = fli_clock_after(fli_clock_ns(), deadline_ns);
    fli_atomic_init(&call->refs, 1);
    filch_err err = own_request(sched, data, &call->data);
    if (err != FILCH_OK) goto no_data;
    err = fli_parker_init(&call->done);
    if (err != FILCH_OK) goto no_parker;
    *out = call;
    return FILCH_OK;
no_parker:
    fli_data_free(&call->data);
no_data:
    fli_free(mem, call, sizeof *call);
    return err;
}

void fli_hostcall_drop(fli_hostcall *call)
{
    /* PAIR call.refs, both halves: the thread that drops the last reference sees what the thread that dropped the other
     * reference did. */
    if (fli_sub_acqrel(&call->refs, 1) != 1) return;
    fli_mem mem = call->mem;
    fli_parker_fini(&call->done);
    fli_data_free(&call->data);
    fli_data_free(&call->reply);
    fli_free(&mem, call, sizeof *call);
}

void fli_hostcall_finish(fli_hostcall *call)
{
    fli_unpark(&call->done);
    fli_hostcall_drop(call);
}

/* Ends the loan of ask_arg when the waiting thread leaves. If `ask` is running, waits until it has returned; `ask`
 * does not block. */
static void take_back(fli_hostcall *call)
{
    uint32_t ask_state = FLI_ASK_NOT_CALLED;
    /* PAIR call.ask, both halves: if the CAS succeeds, the process will not call `ask`; otherwise it has begun. */
    if (fli_cas_acqrel(&call->ask_state, &ask_state, FLI_ASK_OVER)) return;
    while (fli_load_acq(&call->ask_state) == FLI_ASK_RUNNING) fli_thread_yield(); /* PAIR call.ask, acquire half */
}

filch_err fli_hostcall_wait(fli_hostcall *call, filch_err *ended, filch_data *reply)
{
    filch_err err = FILCH_EDEADLINE;
    if (fli_park(&call->done, call->until_ns)) err = call->err;
    else if (call->ask != NULL) take_back(call);
    if (err == FILCH_EINVAL) err = filch_invalid(call->detail);
    if (err == FILCH_OK) {
        if (ended != NULL) *ended = call->ended;
        if (reply != NULL) {
            *reply = call->reply;
            call->reply = filch_none();
        }
    }
    fli_hostcall_drop(call);
    return err;
}
