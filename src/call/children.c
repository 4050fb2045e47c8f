/* children.c - requests to a supervisor from a thread of the host, with their replies. Uses filch.h alone.
 *
 * The requests are sent with a tag, because no other process can make the reply to a tagged request. So a reply of a
 * process that is not a supervisor is told apart from the reply of a supervisor. */
#include <filch.h>

#include <stdbool.h>

#define TAG 1

/* Returns true if the reply is one of the error codes that a supervisor sends when it cannot send its answer: see
 * reply_to() and send_answer() in supervise/supervisor.c. */
static bool is_bare_error(const filch_data *reply)
{
    if (filch_kind_of(reply) != FILCH_KIND_INT) return false;
    int64_t code = filch_as_int(reply);
    return code == FILCH_ENOMEM || code == FILCH_ETOOBIG || code == FILCH_EBUSY;
}

/* Sends a request by `ask` and waits for the reply. If the reply is the answer of a supervisor, writes it to *answer
 * and returns its error. Gives *reply in any case: return it with filch_drop(). */
static filch_err call_supervisor(filch_sched *sched, filch_pid supervisor, filch_ask_fn ask, void *arg,
                                 uint64_t deadline_ns, filch_data *reply, filch_child_answer *answer)
{
    *reply = filch_none();
    filch_err err = filch_call_with(sched, supervisor, ask, arg, deadline_ns, reply);
    if (err != FILCH_OK) return err;
    if (filch_child_answered(reply, answer)) return answer->error;
    if (is_bare_error(reply)) return (filch_err)filch_as_int(reply);
    return filch_invalid("supervisor is not a supervisor: the process sent another message in reply to the request");
}

/* As call_supervisor(), for requests with a reply that is only an error code. */
static filch_err call_for_error(filch_sched *sched, filch_pid supervisor, filch_ask_fn ask, void *arg,
                                uint64_t deadline_ns)
{
    filch_data         reply;
    filch_child_answer answer;
    filch_err          err = call_supervisor(sched, supervisor, ask, arg, deadline_ns, &reply, &answer);
    filch_drop(&reply);
    return err;
}

/* Argument that filch_child_start_wait() lends to ask_start(). ask_start() does not use it after filch_call_with() has
 * returned. */
typedef struct starting {
    const filch_child *child;
    bool               sent; /* the request was sent; whichever process drops it last calls `release` */
} starting;

static filch_err ask_start(filch_sched *sched, filch_pid supervisor, void *arg)
{
    starting *start = arg;
    filch_err err = filch_child_start_tagged(sched, supervisor, start->child, TAG);
    start->sent = err == FILCH_OK;
    return err;
}

static filch_err ask_stop(filch_sched *sched, filch_pid supervisor, void *id)
{
    return filch_child_stop_tagged(sched, supervisor, id, TAG);
}

static filch_err ask_list(filch_sched *sched, filch_pid supervisor, void *unused)
{
    (void)unused;
    return filch_child_list_tagged(sched, supervisor, TAG);
}

static filch_err ask_await(filch_sched *sched, filch_pid supervisor, void *unused)
{
    (void)unused;
    return filch_child_await_tagged(sched, supervisor, TAG);
}

filch_err filch_child_start_wait(filch_sched *sched, filch_pid supervisor, const filch_child *child,
                                 uint64_t deadline_ns, filch_pid *pid)
{
    filch_data         reply;
    filch_child_answer answer;
    starting           start = { .child = child };
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (child == NULL) return filch_invalid("child is NULL");
    filch_err err = call_supervisor(sched, supervisor, ask_start, &start, deadline_ns, &reply, &answer);
    /* Reads start.sent, because `err` does not show whether the request was sent: the supervisor's replies and the
     * failures of this thread use the same error codes. */
    if (!start.sent && child->release != NULL) child->release(child);
    if (err == FILCH_OK && pid != NULL) *pid = answer.pid;
    filch_drop(&reply);
    return err;
}

filch_err filch_child_stop_wait(filch_sched *sched, filch_pid supervisor, const char *id, uint64_t deadline_ns)
{
    if (id == NULL) return filch_invalid("id is NULL");
    return call_for_error(sched, supervisor, ask_stop, (void *)(uintptr_t)id, deadline_ns);
}

filch_err filch_child_list_wait(filch_sched *sched, filch_pid supervisor, uint64_t deadline_ns, filch_data *list)
{
    filch_data         reply;
    filch_child_answer answer;
    filch_err          err = call_supervisor(sched, supervisor, ask_list, NULL, deadline_ns, &reply, &answer);
    if (err == FILCH_OK && list != NULL) {
        /* Without children, answer.children is NULL. Then the empty payload has the address of an empty text. */
        const void *children = answer.child_count > 0 ? (const void *)answer.children : "";
        filch_data  array = filch_bytes(children, answer.child_count * sizeof *answer.children);
        err = filch_keep(&array, list);
    }
    filch_drop(&reply);
    return err;
}

filch_err filch_child_await_wait(filch_sched *sched, filch_pid supervisor, uint64_t deadline_ns)
{
    return call_for_error(sched, supervisor, ask_await, NULL, deadline_ns);
}
