/* children.c - orders to a supervisor from a thread of the host, with their answers: calls by filch.h alone. */
#include <filch.h>

/* The answer to an order is what it gives, or an error as a number. */
static filch_err error_of(const filch_data *reply)
{
    return filch_kind_of(reply) == FILCH_KIND_INT ? (filch_err)filch_as_int(reply) : FILCH_OK;
}

static filch_err ask_start(filch_sched *sched, filch_pid supervisor, void *child)
{
    return filch_child_start(sched, supervisor, child);
}

static filch_err ask_stop(filch_sched *sched, filch_pid supervisor, void *id)
{
    return filch_child_stop(sched, supervisor, id);
}

static filch_err ask_list(filch_sched *sched, filch_pid supervisor, void *unused)
{
    (void)unused;
    return filch_child_list(sched, supervisor);
}

static filch_err ask_await(filch_sched *sched, filch_pid supervisor, void *unused)
{
    (void)unused;
    return filch_child_await(sched, supervisor);
}

filch_err filch_child_start_wait(filch_sched *sched, filch_pid supervisor, const filch_child *child, uint64_t deadline_ns,
                                 filch_pid *pid)
{
    filch_data reply = filch_none();
    if (child == NULL) return filch_invalid("child is NULL");
    filch_err err = filch_call_with(sched, supervisor, ask_start, (void *)(uintptr_t)child, deadline_ns, &reply);
    if (err == FILCH_OK) err = error_of(&reply);
    if (err == FILCH_OK && pid != NULL) *pid = filch_as_pid(&reply);
    return err;
}

filch_err filch_child_stop_wait(filch_sched *sched, filch_pid supervisor, const char *id, uint64_t deadline_ns)
{
    filch_data reply = filch_none();
    if (id == NULL) return filch_invalid("id is NULL");
    filch_err err = filch_call_with(sched, supervisor, ask_stop, (void *)(uintptr_t)id, deadline_ns, &reply);
    return err == FILCH_OK ? error_of(&reply) : err;
}

filch_err filch_child_list_wait(filch_sched *sched, filch_pid supervisor, uint64_t deadline_ns, filch_data *list)
{
    filch_data reply = filch_none();
    filch_err  err = filch_call_with(sched, supervisor, ask_list, NULL, deadline_ns, &reply);
    if (err == FILCH_OK) err = error_of(&reply);
    if (err == FILCH_OK && list != NULL) *list = reply;
    else filch_drop(&reply);
    return err;
}

filch_err filch_child_await_wait(filch_sched *sched, filch_pid supervisor, uint64_t deadline_ns)
{
    filch_data reply = filch_none();
    filch_err  err = filch_call_with(sched, supervisor, ask_await, NULL, deadline_ns, &reply);
    return err == FILCH_OK ? error_of(&reply) : err;
}
