/* spawn_request.c - spawn and exec as yields: a spawn_request owns copies of everything that the options point to.
 * The request is the data of the command and is freed with that data, whether or not the handler was called. */
#include <string.h>

#include "model/model.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "proc/values.h"
#include "sched/out.h"
#include "sched/sched.h"
#include "sched/spawn.h"

/* A spawn_request begins with the address of this variable. The handler refuses a payload that does not begin with
 * it. */
static const char magic;

typedef struct spawn_request {
    const char         *magic;
    fli_mem             mem;
    const filch_type   *type;
    filch_spawn_options opt;  /* copies of the spawn options; all memory that they point to belongs to the request */
    size_t              size; /* bytes allocated for the struct and for the messages and texts behind it */
} spawn_request;

static void spawn_request_free(void *user, void *bytes, size_t size)
{
    spawn_request *request = bytes;
    fli_mem        mem = request->mem;
    (void)user;
    (void)size;
    filch_data *messages = (filch_data *)(uintptr_t)request->opt.messages;
    for (size_t i = 0; i < request->opt.message_count; i++) fli_data_free(&messages[i]);
    fli_data_free(&request->opt.args);
    filch_values_drop(request->opt.values);
    fli_free(&mem, request, request->size);
}

static size_t text_size(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static const char *put_text(char **at, const char *text)
{
    if (text == NULL) return NULL;
    size_t size = text_size(text);
    char  *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

/* Makes a request from the options. Payloads are copied or shared; a moved payload still belongs to the caller. */
static filch_err make_request(const fli_runtime *rt, const filch_type *type, const filch_spawn_options *opt,
                              spawn_request **out)
{
    size_t size =
        sizeof(spawn_request) + opt->message_count * sizeof(filch_data) + text_size(opt->method) + text_size(opt->name);
    spawn_request *request = fli_zalloc(&rt->mem, size);
    if (request == NULL) return FILCH_ENOMEM;
    filch_data *messages = (filch_data *)(request + 1);
    char       *texts = (char *)(messages + opt->message_count);
    request->magic = &magic;
    request->mem = rt->mem;
    request->type = type;
    request->size = size;
    request->opt = *opt;
    request->opt.method = put_text(&texts, opt->method);
    request->opt.name = put_text(&texts, opt->name);
    request->opt.messages = messages;
    request->opt.message_count = 0;
    request->opt.values = NULL;
    filch_data lent = fli_data_lend(&opt->args);
    filch_err  err = fli_data_own(&rt->mem, rt->payload_max, &lent, &request->opt.args);
    if (err != FILCH_OK) request->opt.args = filch_none();
    for (size_t i = 0; err == FILCH_OK && i < opt->message_count; i++) {
        lent = fli_data_lend(&opt->messages[i]);
        err = fli_data_own(&rt->mem, rt->payload_max, &lent, &messages[i]);
        if (err == FILCH_OK) request->opt.message_count++;
    }
    if (err == FILCH_OK) request->opt.values = fli_values_hold(opt->values);
    if (err != FILCH_OK) spawn_request_free(NULL, request, size);
    else *out = request;
    return err;
}

static filch_err yield_spawn_request(filch_out *out, uint32_t command, uint64_t tag, const filch_type *type,
                                     const filch_spawn_options *options)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_type_is_sound(type)) return FILCH_EINVAL;
    filch_spawn_options opt;
    filch_err           err = fli_spawn_options_read(options, &opt);
    if (err != FILCH_OK) return err;
    spawn_request *request;
    err = make_request(&out->ctx.sched->rt, type, &opt, &request);
    if (err != FILCH_OK) return err;
    /* The payload is declared as sizeof(magic) bytes, because size limits apply to the payloads inside the request, not
     * to the request itself. */
    err = filch_yield(out, command, tag, filch_move(request, sizeof request->magic, spawn_request_free));
    if (err != FILCH_OK) spawn_request_free(NULL, request, request->size);
    return err;
}

filch_err filch_yield_spawn(filch_out *out, uint64_t tag, const filch_type *type, const filch_spawn_options *options)
{
    return yield_spawn_request(out, FILCH_CMD_SPAWN, tag, type, options);
}

filch_err filch_yield_exec(filch_out *out, uint64_t tag, const filch_type *type, const filch_spawn_options *options)
{
    return yield_spawn_request(out, FILCH_CMD_EXEC, tag, type, options);
}

filch_err fli_spawn_request_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver)
{
    const spawn_request *request = filch_raw(&command->data);
    if (filch_size(&command->data) != sizeof request->magic || request->magic != &magic) return FILCH_EINVAL;
    uint32_t  relations = request->opt.relations & (FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK | FILCH_SPAWN_SUPERVISED);
    bool      exec = command->id == FILCH_CMD_EXEC;
    fli_birth birth = { .relations = relations,
                        .tag = request->opt.tag,
                        .parent = command->from,
                        .name = request->opt.name,
                        .exec = exec ? &receiver : NULL };
    bool      unrelated = relations == 0 && birth.name == NULL && !exec;
    filch_pid pid;
    filch_err err = fli_spawn((filch_sched *)rt, request->type, &request->opt, unrelated ? NULL : &birth, &pid);
    if (err != FILCH_OK || exec) return err;
    return filch_complete(receiver, receiver.tag, filch_of_pid(pid), FILCH_OK);
}
