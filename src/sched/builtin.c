/* builtin.c - the built-in commands. Their handlers find the scheduler through the receiver, so one registry serves all
 * schedulers. */
#include "sched/builtin.h"
#include "base/assert.h"
#include "clock/timers.h"
#include "dispatch/registry.h"
#include "dispatch/send_waiters.h"
#include "io/io.h"
#include "port/clock.h"
#include "proc/runtime.h"
#include "sched/sched.h"
#include "sched/worker.h"
#include "work/command.h"

static filch_err on_send(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    return fli_send_waiters_send(&receiver.sched->send_waiters, &receiver.sched->rt, command, receiver);
}

static filch_err on_clock(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    return fli_timers_handle(&receiver.sched->timers, command, receiver);
}

static filch_err on_work(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    filch_sched *sched = receiver.sched;
    uint64_t     timer = 0, timeout_ns = command->target.serial; /* 0: no timeout */
    if (timeout_ns != 0) {
        timer = fli_timers_deadline(&sched->timers, receiver, fli_clock_after(fli_now(&sched->rt), timeout_ns));
        if (timer == 0) return FILCH_ENOMEM;
    }
    filch_err err = fli_work_handle(&sched->workpool, &sched->rt, command, receiver, timer);
    if (err != FILCH_OK && timer != 0) fli_timers_abandon(&sched->timers, timer);
    return err;
}

static filch_err on_cancel(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    filch_sched     *sched = receiver.sched;
    filch_io_request request = { .size = sizeof request };
    filch_err        err = filch_io_read(command, &request);
    if (err != FILCH_OK) return err;
    uint64_t which = (uint64_t)request.number, serial = command->from.serial;
    uint32_t count = fli_work_cancel(&sched->workpool, &sched->rt, serial, which);
    count += fli_io_cancel(&sched->io, serial, which);
    return filch_complete(receiver, tag, filch_int(count), FILCH_OK);
}

static filch_err on_model(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    fli_runtime *rt = &receiver.sched->rt;
    return rt->model_ops->handle(rt, command, receiver);
}

/* Handler of all I/O commands. Refuses them in a simulation, because a simulated run can be replayed, and real
 * descriptors would give other results in the replay. */
static filch_err on_io(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)tag;
    if (fli_simulator_refuses(&receiver.sched->rt, "I/O")) return FILCH_ESTATE;
    fli_local *worker = fli_current_worker(&receiver.sched->rt);
    filch_err  err = fli_io_handle(&receiver.sched->io, command, receiver);
    if (fli_io_clock_due(&receiver.sched->io, worker)) fli_worker_of(worker)->clock_countdown = 0;
    return err;
}

filch_err fli_builtin_registry(filch_registry **out)
{
    static const struct {
        uint32_t         id;
        filch_handler_fn handler;
    } table[] = {
        { FILCH_CMD_SEND, on_send },        { FILCH_CMD_SLEEP, on_clock },        { FILCH_CMD_TIMER, on_clock },
        { FILCH_CMD_TICKER, on_clock },     { FILCH_CMD_TIMER_CANCEL, on_clock }, { FILCH_CMD_WORK, on_work },
        { FILCH_CMD_SPAWN, on_model },      { FILCH_CMD_TERMINATE, on_model },    { FILCH_CMD_CANCEL, on_model },
        { FILCH_CMD_MONITOR, on_model },    { FILCH_CMD_UNMONITOR, on_model },    { FILCH_CMD_LINK, on_model },
        { FILCH_CMD_UNLINK, on_model },     { FILCH_CMD_EXEC, on_model },         { FILCH_CMD_JOIN, on_model },
        { FILCH_CMD_LEAVE, on_model },      { FILCH_CMD_MEMBERS, on_model },      { FILCH_CMD_BROADCAST, on_model },
        { FILCH_CMD_WATCH, on_model },      { FILCH_CMD_UNWATCH, on_model },      { FILCH_CMD_REGISTER, on_model },
        { FILCH_CMD_UNREGISTER, on_model }, { FILCH_CMD_SEND_NAME, on_model },    { FILCH_CMD_TAG_CANCEL, on_cancel },
    };
    static const uint32_t io[] = {
        FILCH_CMD_CONNECT,   FILCH_CMD_LISTEN,   FILCH_CMD_ACCEPT,       FILCH_CMD_RESOLVE, FILCH_CMD_DATAGRAM,
        FILCH_CMD_SEND_TO,   FILCH_CMD_READ,     FILCH_CMD_WRITE,        FILCH_CMD_CLOSE,   FILCH_CMD_SEEK,
        FILCH_CMD_OPEN,      FILCH_CMD_SHUTDOWN, FILCH_CMD_RUN,          FILCH_CMD_EXIT,    FILCH_CMD_KILL,
        FILCH_CMD_IO_CANCEL, FILCH_CMD_SIGNALS,  FILCH_CMD_RECEIVE_FROM, FILCH_CMD_POLL,    FILCH_CMD_POLL_CANCEL,
        FILCH_CMD_ADOPT,     FILCH_CMD_SYNC,     FILCH_CMD_TRUNCATE,     FILCH_CMD_STAT,    FILCH_CMD_RENAME,
        FILCH_CMD_REMOVE,    FILCH_CMD_MKDIR,    FILCH_CMD_RMDIR,        FILCH_CMD_LIST,
    };
    filch_registry *registry;
    filch_err       err = fli_registry_create(&registry);
    for (size_t i = 0; err == FILCH_OK && i < sizeof table / sizeof table[0]; i++) {
        err = filch_registry_add(registry, table[i].id, table[i].handler, NULL);
        FLI_ASSERT(err == FILCH_OK); /* cannot fail: adding a command with a small id allocates no memory */
    }
    for (size_t i = 0; err == FILCH_OK && i < sizeof io / sizeof io[0]; i++) {
        err = filch_registry_add(registry, io[i], on_io, NULL);
        FLI_ASSERT(err == FILCH_OK);
    }
    if (err == FILCH_OK) *out = registry;
    return err;
}

filch_err filch_registry_create(filch_registry **out)
{
    return out != NULL ? fli_builtin_registry(out) : filch_invalid("out is NULL");
}
