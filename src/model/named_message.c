/* named_message.c - broadcast to a group, and send to a name, as yields. Name and payload are the data of the
 * command, and are freed with it. */
#include <string.h>

#include "model/model.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "proc/send.h"
#include "sched/out.h"
#include "sched/sched.h"

/* A named_message begins with the address of this variable. The handler refuses a payload that does not begin with
 * it. */
static const char magic;

typedef struct named_message {
    const char *magic;
    fli_mem     mem;
    size_t      size; /* bytes allocated for the struct and the name behind it */
    filch_data  data; /* payload of the message; owned */
    char        name[];
} named_message;

static void named_message_free(void *user, void *bytes, size_t size)
{
    named_message *l = bytes;
    fli_mem        mem = l->mem;
    (void)user;
    (void)size;
    fli_data_free(&l->data);
    fli_free(&mem, l, l->size);
}

static filch_err yield_named_message(filch_out *out, uint32_t command, uint64_t tag, const char *name, filch_data data)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_name_is_sound(name)) return filch_invalid("name or group is NULL or not 1 to 255 bytes");
    const fli_runtime *rt = &out->ctx.sched->rt;
    size_t             size = sizeof(named_message) + strlen(name) + 1;
    named_message     *l = fli_alloc(&rt->mem, size);
    if (l == NULL) return FILCH_ENOMEM;
    l->magic = &magic;
    l->mem = rt->mem;
    l->size = size;
    memcpy(l->name, name, size - sizeof *l);
    filch_err err = fli_data_own(&rt->mem, rt->payload_max, &data, &l->data);
    if (err != FILCH_OK) {
        fli_free(&rt->mem, l, size);
        return err;
    }
    err = filch_yield(out, command, tag, filch_move(l, sizeof l->magic, named_message_free));
    if (err == FILCH_OK) return FILCH_OK;
    /* fli_data_undo() gives a moved payload back to the caller of this function, which owns it again after an error. */
    fli_data_undo(&data, &l->data);
    fli_free(&rt->mem, l, size);
    return err;
}

filch_err filch_yield_broadcast(filch_out *out, uint64_t tag, const char *group, filch_data data)
{
    return yield_named_message(out, FILCH_CMD_BROADCAST, tag, group, data);
}

filch_err filch_yield_send_name(filch_out *out, uint64_t tag, const char *name, filch_data data)
{
    return yield_named_message(out, FILCH_CMD_SEND_NAME, tag, name, data);
}

/* Sends the message to the process that has the name l->name. The sender of the message is the process that yielded,
 * not the handler. */
static filch_err send_as(fli_runtime *rt, const filch_command *command, const named_message *l)
{
    filch_pid pid;
    filch_err err = filch_whereis((filch_sched *)rt, l->name, &pid);
    if (err != FILCH_OK) return err;
    /* fli_send() routes a message to a process of another host, as filch_send() does. filch_deliver() does not
     * route. */
    if (pid.node != rt->node_id) return fli_send(rt, fli_current_worker(rt), pid, command->from, &l->data);
    filch_package package = { .to = pid, .from = command->from, .data = l->data };
    return filch_deliver(rt, &package);
}

filch_err fli_named_message_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver)
{
    const named_message *l = filch_raw(&command->data);
    if (filch_size(&command->data) != sizeof l->magic || l->magic != &magic) return FILCH_EINVAL;
    if (command->id == FILCH_CMD_SEND_NAME) {
        filch_err err = send_as(rt, command, l);
        return err == FILCH_OK ? filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK) : err;
    }
    fli_request request = { .op = FILCH_CMD_BROADCAST, .from = command->from, .name = l->name, .data = &l->data };
    filch_err   err = fli_relate(rt, &request);
    return err == FILCH_OK ? filch_complete(receiver, receiver.tag, filch_int((int64_t)request.given), FILCH_OK) : err;
}
