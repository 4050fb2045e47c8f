/* process.c - the library `process`: sending, requests, ending. Receiving is in receive.c, starting processes in
 * spawn.c, monitors and names in relations.c.
 *
 * Calls that can fail for outside reasons return nil and a text; a wrong argument is a Lua error.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/message/blob.h"
#include "lua/preempt/preempt.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

#define DEFAULT_TIMEOUT_NS FILCH_SECONDS(5)

/* ---- pids and requests ---------------------------------------------------------------------------------------- */

/* A request that a process has received: the process that sent it, and its id. */
typedef struct request {
    filch_pid from;
    uint64_t  id;
} request;

static const char request_key; /* its address is used as the registry key of the metatable of requests */

static const request *to_request(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &request_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is ? lua_touserdata(L, index) : NULL;
}

bool fli_lua_to_request(lua_State *L, int index, filch_pid *from, uint64_t *id)
{
    const request *r = to_request(L, index);
    if (r == NULL) return false;
    *from = r->from;
    *id = r->id;
    return true;
}

filch_pid fli_lua_check_pid(lua_State *L, int index)
{
    filch_pid      pid = { 0, 0 };
    const request *from = to_request(L, index);
    if (from != NULL) return from->from;
    if (fli_lua_to_pid(L, index, &pid)) return pid;
    if (lua_type(L, index) != LUA_TSTRING) luaL_typeerror(L, index, "pid or name");
    /* An unregistered name becomes a pid that no process has: the call then reports that the process does not exist. */
    if (filch_whereis(fli_lua_need_process(L)->sched, fli_lua_whole_text(L, index), &pid) != FILCH_OK) {
        pid = (filch_pid){ fli_lua_self(L)->self.node, UINT64_MAX };
    }
    return pid;
}

void fli_lua_pid_write(const fli_lua_proc *p, filch_pid pid, char text[FLI_LUA_PID_TEXT])
{
    unsigned low = (unsigned)(pid.serial & UINT32_MAX), high = (unsigned)(pid.serial >> 32);
    if (pid.node == p->self.node) snprintf(text, FLI_LUA_PID_TEXT, "<%u.%u>", low, high);
    else snprintf(text, FLI_LUA_PID_TEXT, "<%016llx:%u.%u>", (unsigned long long)pid.node, low, high);
}

int fli_lua_pid_text(lua_State *L)
{
    char           text[FLI_LUA_PID_TEXT];
    filch_pid      pid = { 0, 0 };
    const request *from = to_request(L, 1);
    if (from != NULL) pid = from->from;
    else if (!fli_lua_to_pid(L, 1, &pid)) luaL_typeerror(L, 1, "pid");
    fli_lua_pid_write(fli_lua_self(L), pid, text);
    lua_pushstring(L, text);
    return 1;
}

static int request_index(lua_State *L)
{
    size_t         size;
    const request *from = to_request(L, 1);
    const char    *name = luaL_checklstring(L, 2, &size);
    if (from == NULL || size != 3 || memcmp(name, "pid", size) != 0) return 0;
    fli_lua_push_pid(L, from->from);
    return 1;
}

void fli_lua_push_request(lua_State *L, filch_pid from, uint64_t id)
{
    *(request *)lua_newuserdatauv(L, sizeof(request), 0) = (request){ from, id };
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &request_key) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_createtable(L, 0, 3);
        lua_pushcfunction(L, fli_lua_pid_text);
        lua_setfield(L, -2, "__tostring");
        lua_pushcfunction(L, request_index);
        lua_setfield(L, -2, "__index");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &request_key);
    }
    lua_setmetatable(L, -2);
}

static int process_self(lua_State *L)
{
    fli_lua_push_pid(L, fli_lua_need_process(L)->self);
    return 1;
}

int fli_lua_return_error(lua_State *L, filch_err err)
{
    lua_pushnil(L);
    lua_pushstring(L, filch_err_text(err));
    return 2;
}

const char *fli_lua_call_error(filch_err err)
{
    return err == FILCH_EINVAL && filch_err_detail()[0] != '\0' ? filch_err_detail() : filch_err_text(err);
}

int fli_lua_return_refusal(lua_State *L, filch_err err)
{
    lua_pushnil(L);
    lua_pushstring(L, fli_lua_call_error(err));
    return 2;
}

int fli_lua_return(lua_State *L, filch_err err)
{
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- send --------------------------------------------------------------------------------------------------- */

static int return_one(lua_State *L, int status, lua_KContext ctx)
{
    (void)L;
    (void)status;
    (void)ctx;
    return 1;
}

/* Called at the end of a send. Yields if the process has used up its slice, or has sent as many messages as one step
 * should (filch_should_yield), so that the receivers can run. */
static int sent(lua_State *L, fli_lua_proc *p, filch_err err)
{
    int results = fli_lua_return(L, err);
    if (err == FILCH_OK && (filch_should_yield(p->out) || fli_lua_is_late(p->runner))) fli_lua_pause(L, 0, return_one);
    return results;
}

/* Continues a send that waited for space in the receiver's mailbox. Returns the result if the send was completed. If
 * the task was cancelled, raises the cancel; the message may still arrive. */
static int go_on_send(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    (void)ctx;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_task *task = p->current;
    if (task->answered) {
        task->answered = false;
        filch_drop(&task->answer);
        return task->error == FILCH_OK ? fli_lua_return(L, FILCH_OK) : fli_lua_return_error(L, task->error);
    }
    if (task->cancelled) task->awaits = 0;
    fli_lua_check_cancel(L, p);
    return fli_lua_park(L, FLI_LUA_NEVER, 0, go_on_send);
}

/* Returns true if the mailbox of `to` has the policy FILCH_OVERFLOW_WAIT: senders wait while it is full. */
static bool is_waited_for(fli_lua_proc *p, filch_pid to)
{
    filch_info info = { .size = sizeof info };
    return filch_inspect(p->sched, to, &info) == FILCH_OK && info.overflow == FILCH_OVERFLOW_WAIT;
}

/* Sends at once if the mailbox has space. If the mailbox is full and has the policy that senders wait, and if the task
 * can wait, the send becomes a yield with `tag`, which is completed when there is space. Sets *waits if the send has
 * become a yield. */
static filch_err send_or_wait(lua_State *L, fli_lua_proc *p, filch_pid to, filch_data data, uint64_t tag, bool *waits)
{
    filch_err err = filch_send(p->sched, to, data);
    *waits = false;
    if (err != FILCH_EFULL || p->current->cancelled || !fli_lua_can_wait(L, p) || !is_waited_for(p, to)) return err;
    if (!fli_lua_pending_add(p, tag, fli_lua_message_weight(&data))) return FILCH_ENOMEM;
    err = filch_yield_send(p->out, tag, to, data);
    if (err != FILCH_OK) {
        fli_lua_pending_end(p, tag);
        return err;
    }
    p->yields++;
    *waits = true;
    return FILCH_OK;
}

static int await_room(lua_State *L, fli_lua_proc *p, uint64_t tag)
{
    p->current->awaits = tag;
    p->current->asks = false;
    p->current->answered = false;
    return go_on_send(L, LUA_OK, 0);
}

static int process_send(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_need_process(L);
    filch_pid       to = fli_lua_check_pid(L, 1);
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    lua_settop(L, 2);
    if (p->wants_long) fli_lua_long_prepare(L);
    fli_lua_bytes_init(&bytes, p->heap.max);
    if (!fli_lua_pack(L, 2, "message", &bytes, &data, &why)) {
        fli_lua_bytes_fini(&bytes);
        return luaL_error(L, "%s", why.text);
    }
    bool      waits;
    filch_err err = send_or_wait(L, p, to, data, p->next_tag, &waits);
    fli_lua_bytes_sent(&bytes, err == FILCH_OK);
    fli_lua_bytes_fini(&bytes);
    return waits ? await_room(L, p, p->next_tag++) : sent(L, p, err);
}

/* A value that is sent inside a request or reply. `sort`, `id`: kind and id of this message; `waits`: the mailbox was
 * full, and the send has become a yield with `tag`; `why`: the reason if the value cannot be sent. */
typedef struct envelope {
    fli_lua_sort    sort;
    uint64_t        id, tag;
    bool            waits;
    fli_lua_refusal why;
} envelope;

/* Sends the value at `index` inside a request or reply. */
static filch_err send_envelope(lua_State *L, fli_lua_proc *p, filch_pid to, int index, envelope *e)
{
    fli_lua_bytes bytes;
    filch_data    data;
    if (p->wants_long) fli_lua_long_prepare(L);
    fli_lua_bytes_init(&bytes, p->heap.max);
    filch_err err = FILCH_EINVAL;
    e->why.text[0] = '\0';
    e->waits = false;
    if (fli_lua_envelope(&bytes, e->sort, e->id) && fli_lua_encode(L, index, "message", &bytes, &e->why)) {
        err = fli_lua_bytes_data(&bytes, &data) ? send_or_wait(L, p, to, data, e->tag, &e->waits) : FILCH_ENOMEM;
        fli_lua_bytes_sent(&bytes, err == FILCH_OK);
    }
    fli_lua_bytes_fini(&bytes);
    return err;
}

/* ---- request and reply ---------------------------------------------------------------------------------------- */

/* Stops the wait of the current task for a reply or for the EXIT event of a process. */
static void forget_answer(fli_lua_proc *p)
{
    fli_lua_task *task = p->current;
    p->reply_tasks--;
    task->awaits = 0;
    /* If the EXIT event of this monitor is already in the mailbox, take_event() in proc.c drops it: an EXIT event with
     * a tag goes only to the task that waits for the tag, never to process.receive(), and no task waits for this tag
     * any more. */
    if (task->ref != 0) (void)!filch_unmonitor(p->sched, p->self, task->ref);
    task->ref = 0;
}

/* Called when the current task was cancelled before the answer arrived: ends the wait and raises the cancel. */
static void give_up_answer(lua_State *L, fli_lua_proc *p)
{
    forget_answer(p);
    fli_lua_check_cancel(L, p);
}

static int push_answer(lua_State *L, fli_lua_task *task, void (*push)(lua_State *L, const filch_data *answer))
{
    task->answered = false;
    int results = 1;
    if (task->error != FILCH_OK || task->refused) {
        lua_pushnil(L);
        results = 2;
    }
    if (task->error != FILCH_OK) fli_lua_push_words(L, &task->answer, task->error);
    else push(L, &task->answer);
    filch_drop(&task->answer);
    return results;
}

static int go_on_request(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_task *task = p->current;
    /* An answer that has arrived is returned even if the task was cancelled; the next wait then raises the cancel. */
    if (task->answered) {
        forget_answer(p);
        return push_answer(L, task, fli_lua_unpack);
    }
    if (task->cancelled) give_up_answer(L, p);
    if (task->late) {
        forget_answer(p);
        lua_pushnil(L);
        lua_pushliteral(L, "timeout");
        return 2;
    }
    return fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_request);
}

/* Parks the task until the answer for `tag` has arrived or until `until`. */
static int await_answer(lua_State *L, fli_lua_proc *p, uint64_t tag, uint64_t until)
{
    p->current->awaits = tag;
    p->current->asks = true;
    p->current->answered = false;
    p->reply_tasks++;
    return go_on_request(L, LUA_OK, (lua_KContext)until);
}

/* process.request(pid, message [, timeout]) -> answer | nil, why. */
static int process_request(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    filch_pid     to = fli_lua_check_pid(L, 1);
    uint64_t      span = lua_isnoneornil(L, 3) ? DEFAULT_TIMEOUT_NS : fli_lua_check_span(L, 3);
    uint64_t      until = fli_lua_until(p, span), id = p->next_tag++;
    envelope      e = { .sort = FLI_LUA_REQUEST, .id = id, .tag = id };
    lua_settop(L, 2);
    fli_lua_wait_begin(L, p);
    filch_err err = send_envelope(L, p, to, 2, &e);
    if (e.why.text[0] != '\0') return luaL_error(L, "%s", e.why.text);
    if (err != FILCH_OK) return fli_lua_return_refusal(L, err);
    p->current->ref = 0;
    if (filch_monitor(p->sched, p->self, to, id, &p->current->ref) != FILCH_OK) p->current->ref = 0;
    return await_answer(L, p, id, until);
}

/* process.reply(from, answer) or process.reply(from, nil, why). */
static int process_reply(lua_State *L)
{
    fli_lua_proc  *p = fli_lua_need_process(L);
    const request *from = to_request(L, 1);
    if (from == NULL) return luaL_typeerror(L, 1, "request");
    bool refused = !lua_isnoneornil(L, 3);
    lua_settop(L, 3);
    envelope  e = { .sort = refused ? FLI_LUA_FAILURE : FLI_LUA_REPLY, .id = from->id, .tag = p->next_tag };
    filch_err err = send_envelope(L, p, from->from, refused ? 3 : 2, &e);
    if (e.why.text[0] != '\0') return luaL_error(L, "%s", e.why.text);
    return e.waits ? await_room(L, p, p->next_tag++) : sent(L, p, err);
}

/* ---- waiting for the end of another process --------------------------------------------------------------------- */

typedef void (*push_fn)(lua_State *L, const filch_data *answer);

static int go_on_await_end(lua_State *L, int status, lua_KContext push)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_task *task = p->current;
    /* A result that has arrived is returned even if the task was cancelled; the next wait then raises the cancel. */
    if (!task->answered) {
        if (task->cancelled) give_up_answer(L, p);
        return fli_lua_park(L, FLI_LUA_NEVER, push, go_on_await_end);
    }
    forget_answer(p);
    return push_answer(L, task, (push_fn)push);
}

int fli_lua_await_end(lua_State *L, fli_lua_proc *p, uint64_t tag, push_fn push)
{
    p->current->awaits = tag;
    p->current->asks = false;
    p->current->answered = false;
    p->current->ref = 0;
    p->reply_tasks++;
    return go_on_await_end(L, LUA_OK, (lua_KContext)push);
}

/* ---- ending ------------------------------------------------------------------------------------------------- */

/* process.exit([result]): ends this process from any place, as if its main function had returned `result`. */
static int process_exit(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_need_process(L);
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    lua_settop(L, 1);
    fli_lua_bytes_init(&bytes, p->heap.max);
    bool sendable = fli_lua_pack(L, 1, "result", &bytes, &data, &why);
    if (sendable && fli_lua_rarely(p) != NULL) {
        filch_drop(&p->rare->result);
        p->current->exiting = fli_lua_bytes_keep(&bytes, &data, &p->rare->result) == FILCH_OK;
    }
    fli_lua_bytes_fini(&bytes);
    if (!sendable) return luaL_error(L, "%s", why.text);
    if (!p->current->exiting) return luaL_error(L, "not enough memory");
    lua_pushliteral(L, "exit");
    return lua_error(L);
}

const fli_lua_member fli_lua_process_members[] = {
    { .library = "process", .name = "self", .fn = process_self },
    { .library = "process", .name = "send", .fn = process_send },
    { .library = "process", .name = "request", .fn = process_request },
    { .library = "process", .name = "reply", .fn = process_reply },
    { .library = "process", .name = "exit", .fn = process_exit },
    { .name = NULL },
};
