/* children.c - requests to a supervisor from a thread of the host, with their replies. Uses filch.h alone. */
#include <filch.h>

#include <stdbool.h>

/* Returns the error in a reply: a supervisor replies with the result, or with an error as a number. */
static filch_err error_of(const filch_data *reply)
{
    return filch_kind_of(reply) == FILCH_KIND_INT ? (filch_err)filch_as_int(reply) : FILCH_OK;
}

/* Argument that filch_child_start_wait() lends to ask_start(). ask_start() does not use it after filch_call_with() has
 * returned. */
typedef struct starting {
    const filch_child *child;
    bool               sent; /* the supervisor has taken the request, and has to call `release` */
} starting;

static filch_err ask_start(filch_sched *sched, filch_pid supervisor, void *arg)
{
    starting *start = arg;
    filch_err err = filch_child_start(sched, supervisor, start->child);
    start->sent = err == FILCH_OK;
    return err;
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

filch_err filch_child_start_wait(filch_sched *sched, filch_pid supervisor, const filch_child *child,
                                 uint64_t deadline_ns, filch_pid *pid)
{
    filch_data reply = filch_none();
    starting   start = { .child = child };
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (child == NULL) return filch_invalid("child is NULL");
    filch_err err = filch_call_with(sched, supervisor, ask_start, &start, deadline_ns, &reply);
    /* Reads start.sent, because `err` does not show whether the request was sent: the supervisor's replies and the
     * failures of this thread use the same error codes. */
    if (!start.sent && child->release != NULL) child->release(child);
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
