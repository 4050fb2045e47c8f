/* process.c - the library `process`: starting, sending, receiving, asking, ending.
 *
 * Calls that can fail for reasons of the outside world answer nil and a text; a wrong argument is a Lua error.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "lua/code.h"
#include "lua/host.h"
#include "lua/libs.h"
#include "lua/proc.h"
#include "lua/times.h"
#include "lua/watch.h"

#define DEFAULT_TIMEOUT_NS FILCH_SECONDS(5)

/* ---- pids and requests ---------------------------------------------------------------------------------------- */

/* Who asked, and which of his questions. */
typedef struct request {
    filch_pid from;
    uint64_t  id;
} request;

static const char request_key; /* its address: the registry's key of their metatable */

static const request *to_request(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &request_key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is ? lua_touserdata(L, index) : NULL;
}

filch_pid fli_lua_check_pid(lua_State *L, int index)
{
    filch_pid      pid = { 0, 0 };
    const request *from = to_request(L, index);
    if (from != NULL) return from->from;
    if (fli_lua_to_pid(L, index, &pid)) return pid;
    if (lua_type(L, index) != LUA_TSTRING) luaL_typeerror(L, index, "pid or name");
    /* A name that nobody has is a pid that nobody has: the call says so. */
    if (filch_whereis(fli_lua_here(L)->sched, lua_tostring(L, index), &pid) != FILCH_OK) {
        pid = (filch_pid){ fli_lua_self(L)->self.node, UINT64_MAX };
    }
    return pid;
}

int fli_lua_pid_text(lua_State *L)
{
    char           text[80];
    filch_pid      pid = { 0, 0 };
    const request *from = to_request(L, 1);
    if (from != NULL) pid = from->from;
    else if (!fli_lua_to_pid(L, 1, &pid)) luaL_typeerror(L, 1, "pid");
    unsigned low = (unsigned)(pid.serial & UINT32_MAX), high = (unsigned)(pid.serial >> 32);
    if (pid.node == fli_lua_self(L)->self.node) snprintf(text, sizeof text, "<%u.%u>", low, high);
    else snprintf(text, sizeof text, "<%016llx:%u.%u>", (unsigned long long)pid.node, low, high);
    lua_pushstring(L, text);
    return 1;
}

static int request_index(lua_State *L)
{
    const request *from = to_request(L, 1);
    if (from == NULL || strcmp(luaL_checkstring(L, 2), "pid") != 0) return 0;
    fli_lua_push_pid(L, from->from);
    return 1;
}

static void push_request(lua_State *L, filch_pid from, uint64_t id)
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
    fli_lua_push_pid(L, fli_lua_here(L)->self);
    return 1;
}

int fli_lua_return_error(lua_State *L, filch_err err)
{
    lua_pushnil(L);
    lua_pushstring(L, filch_err_text(err));
    return 2;
}

int fli_lua_return(lua_State *L, filch_err err)
{
    if (err != FILCH_OK) return fli_lua_return_error(L, err);
    lua_pushboolean(L, 1);
    return 1;
}

/* The words for a process that failed: those it left, or those for the error. */
static void push_words(lua_State *L, const filch_data *data, filch_err error)
{
    bool words = filch_kind_of(data) == FILCH_KIND_TEXT || filch_kind_of(data) == FILCH_KIND_BYTES;
    if (words && filch_size(data) > 0) lua_pushlstring(L, filch_raw(data), filch_size(data));
    else lua_pushstring(L, filch_err_text(error));
}

/* ---- send --------------------------------------------------------------------------------------------------- */

static int return_one(lua_State *L, int status, lua_KContext ctx)
{
    (void)L;
    (void)status;
    (void)ctx;
    return 1;
}

/* After a send: whoever has sent a lot lets the receivers run. */
static int sent(lua_State *L, fli_lua_proc *p, filch_err err)
{
    int results = fli_lua_return(L, err);
    if (err == FILCH_OK && (filch_should_yield(p->out) || fli_lua_is_late(p->runner))) fli_lua_pause(L, 0, return_one);
    return results;
}

static int process_send(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_here(L);
    filch_pid       to = fli_lua_check_pid(L, 1);
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    lua_settop(L, 2);
    fli_lua_bytes_init(&bytes, p->heap.max);
    if (!fli_lua_pack(L, 2, "message", &bytes, &data, &why)) {
        fli_lua_bytes_fini(&bytes);
        return luaL_error(L, "%s", why.text);
    }
    filch_err err = filch_send(p->sched, to, data);
    fli_lua_bytes_sent(&bytes, err == FILCH_OK);
    fli_lua_bytes_fini(&bytes);
    return sent(L, p, err);
}

/* Sends the value at `index` inside a request or reply. */
static filch_err send_envelope(lua_State *L, fli_lua_proc *p, filch_pid to, fli_lua_sort sort, uint64_t id, int index,
                               fli_lua_refusal *why)
{
    fli_lua_bytes bytes;
    fli_lua_bytes_init(&bytes, p->heap.max);
    filch_err err = FILCH_EINVAL;
    why->text[0] = '\0';
    if (fli_lua_envelope(&bytes, sort, id) && fli_lua_encode(L, index, "message", &bytes, why)) {
        err = filch_send(p->sched, to, fli_lua_bytes_data(&bytes));
        fli_lua_bytes_sent(&bytes, err == FILCH_OK);
    }
    fli_lua_bytes_fini(&bytes);
    return err;
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

static bool matches(lua_State *L, int pattern, int value, int depth);

static bool fields_match(lua_State *L, int pattern, int value, int depth)
{
    if (!lua_istable(L, value)) return false;
    luaL_checkstack(L, 6, "pattern too deep");
    lua_pushnil(L);
    while (lua_next(L, pattern) != 0) {
        int top = lua_gettop(L);
        lua_pushvalue(L, top - 1);
        lua_rawget(L, value);
        bool fits = matches(L, top, top + 1, depth + 1);
        lua_settop(L, fits ? top - 1 : top - 2);
        if (!fits) return false;
    }
    return true;
}

/* A function decides by itself; a table wants the same fields to match; anything else the same value. */
static bool matches(lua_State *L, int pattern, int value, int depth)
{
    if (lua_isfunction(L, pattern)) {
        lua_pushvalue(L, pattern);
        lua_pushvalue(L, value);
        lua_call(L, 1, 1);
        bool fits = lua_toboolean(L, -1);
        lua_pop(L, 1);
        return fits;
    }
    if (lua_istable(L, pattern) && depth < FLI_LUA_DEPTH_MAX) return fields_match(L, pattern, value, depth);
    return lua_compare(L, pattern, value, LUA_OPEQ);
}

static void push_from(lua_State *L, const filch_data *data, filch_pid from)
{
    uint64_t id;
    if (fli_lua_sort_of(data, &id) == FLI_LUA_REQUEST) push_request(L, from, id);
    else fli_lua_push_pid(L, from);
}

/* { event = "exit", pid = , result = } or { ..., error = words }, and so on. */
static void push_notice(lua_State *L, const fli_lua_message *message)
{
    static const char *const names[] = { "dropped", "exit", "link_down", "joined", "left" };
    int32_t                  which = message->type - FILCH_EVENT_DROPPED;
    lua_createtable(L, 0, 3);
    lua_pushstring(L, which >= 0 && which < 5 ? names[which] : "?");
    lua_setfield(L, -2, "event");
    fli_lua_push_pid(L, message->from);
    lua_setfield(L, -2, "pid");
    if (message->error != FILCH_OK) {
        push_words(L, message->data, message->error);
        lua_setfield(L, -2, "error");
        return;
    }
    fli_lua_unpack(L, message->data);
    lua_setfield(L, -2, message->type == FILCH_EVENT_EXIT ? "result" : which == 0 ? "count" : "group");
}

/* Pushes a message and its sender. */
static void push_message(lua_State *L, const fli_lua_message *message)
{
    if (message->type == FILCH_EVENT_MESSAGE) {
        fli_lua_unpack(L, message->data);
        push_from(L, message->data, message->from);
    } else {
        push_notice(L, message);
        fli_lua_push_pid(L, message->from);
    }
}

/* Takes the oldest message, if there is one: pushes it and its sender. */
static bool take_oldest(lua_State *L, fli_lua_proc *p)
{
    fli_lua_message message;
    if (!fli_lua_inbox_peek(p, &message)) return false;
    push_message(L, &message);
    fli_lua_inbox_take(p);
    return true;
}

/* Takes the oldest message that the pattern at 1 matches. Looks at none twice. */
static bool take_match(lua_State *L, fli_lua_proc *p)
{
    fli_lua_task *task = p->current;
    filch_err     err;
    if (task->scanned == NULL || task->scanned_removals != p->removals) task->scanned = &p->saved;
    task->scanned_removals = p->removals;
    do {
        for (; *task->scanned != NULL; task->scanned = &(*task->scanned)->next) {
            fli_lua_saved *saved = *task->scanned;
            int            top = lua_gettop(L);
            push_message(L, &(fli_lua_message){ &saved->data, saved->from, saved->type, saved->error });
            if (!matches(L, 1, top + 1, 0)) {
                lua_settop(L, top);
                continue;
            }
            fli_lua_inbox_remove(p, task->scanned);
            task->scanned = NULL;
            return true;
        }
    } while (fli_lua_inbox_keep(p, &err));
    if (err == FILCH_ENOMEM) p->out_of_memory = true;
    if (err != FILCH_OK) luaL_error(L, "%s", filch_err_text(err));
    return false;
}

/* The stack: the pattern or nil. `until_ns` is when to give up. */
static int go_on_receive(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_here(L);
    fli_lua_task *task = p->current;
    fli_lua_check_cancel(L, p);
    bool found = lua_isnil(L, 1) ? take_oldest(L, p) : take_match(L, p);
    if (found) {
        fli_lua_wait_end(p);
        return 2;
    }
    if (task->late || (uint64_t)until_ns == 0) {
        fli_lua_wait_end(p);
        lua_pushnil(L);
        lua_pushliteral(L, "timeout");
        return 2;
    }
    if (!task->inbox) {
        task->inbox = true;
        p->inbox_tasks++;
    }
    return fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_receive);
}

/* process.receive([pattern,] [timeout]) -> message, from | nil, "timeout". A timeout alone is a number or a text. */
static int process_receive(lua_State *L)
{
    fli_lua_proc *p = fli_lua_here(L);
    uint64_t      until = FLI_LUA_NEVER;
    int           type = lua_type(L, 1), at = 2;
    if (type == LUA_TNUMBER || type == LUA_TSTRING) at = 1;
    if (!lua_isnoneornil(L, at)) {
        uint64_t span = fli_lua_check_span(L, at);
        until = span == 0 ? 0 : fli_lua_until(p, span);
    }
    if (at == 1 || type == LUA_TNONE) lua_pushnil(L), lua_insert(L, 1);
    else if (type != LUA_TNIL) luaL_argexpected(L, type == LUA_TTABLE || type == LUA_TFUNCTION, 1, "pattern or timeout");
    lua_settop(L, 1);
    fli_lua_wait_begin(L, p);
    p->current->scanned = NULL;
    return go_on_receive(L, LUA_OK, (lua_KContext)until);
}

/* ---- request and reply ---------------------------------------------------------------------------------------- */

/* What a task waits for that somebody else has to answer: forgets it. */
static void forget_answer(fli_lua_proc *p)
{
    fli_lua_task *task = p->current;
    p->reply_tasks--;
    task->awaits = 0;
    fli_lua_wait_end(p);
    /* An EXIT that is under way already finds nobody who waits for it, and its tag says that it is no notice. */
    if (task->ref != 0) (void)!filch_unmonitor(p->sched, p->self, task->ref);
    task->ref = 0;
}

static int push_answer(lua_State *L, fli_lua_task *task)
{
    task->answered = false;
    int results = 1;
    if (task->error != FILCH_OK || task->refused) {
        lua_pushnil(L);
        results = 2;
    }
    if (task->error != FILCH_OK) push_words(L, &task->answer, task->error);
    else fli_lua_unpack(L, &task->answer);
    filch_drop(&task->answer);
    return results;
}

static int go_on_request(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_here(L);
    fli_lua_task *task = p->current;
    if (task->cancelled) {
        forget_answer(p);
        filch_drop(&task->answer);
        fli_lua_check_cancel(L, p);
    }
    if (task->answered) {
        forget_answer(p);
        return push_answer(L, task);
    }
    if (task->late) {
        forget_answer(p);
        lua_pushnil(L);
        lua_pushliteral(L, "timeout");
        return 2;
    }
    return fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_request);
}

/* Parks until the answer tagged `tag` is there. */
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
    fli_lua_proc   *p = fli_lua_here(L);
    filch_pid       to = fli_lua_check_pid(L, 1);
    uint64_t        span = lua_isnoneornil(L, 3) ? DEFAULT_TIMEOUT_NS : fli_lua_check_span(L, 3);
    uint64_t        until = fli_lua_until(p, span), id = p->next_tag++;
    fli_lua_refusal why;
    lua_settop(L, 2);
    fli_lua_wait_begin(L, p);
    filch_err err = send_envelope(L, p, to, FLI_LUA_REQUEST, id, 2, &why);
    if (why.text[0] != '\0') return luaL_error(L, "%s", why.text);
    if (err != FILCH_OK) return fli_lua_return_error(L, err);
    p->current->ref = 0;
    if (filch_monitor(p->sched, p->self, to, id, &p->current->ref) != FILCH_OK) p->current->ref = 0;
    return await_answer(L, p, id, until);
}

/* process.reply(from, answer) or process.reply(from, nil, why). */
static int process_reply(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_here(L);
    const request  *from = to_request(L, 1);
    fli_lua_refusal why;
    if (from == NULL) return luaL_typeerror(L, 1, "request");
    bool refused = !lua_isnoneornil(L, 3);
    lua_settop(L, 3);
    filch_err err = send_envelope(L, p, from->from, refused ? FLI_LUA_FAILURE : FLI_LUA_REPLY, from->id,
                                  refused ? 3 : 2, &why);
    if (why.text[0] != '\0') return luaL_error(L, "%s", why.text);
    return sent(L, p, err);
}

/* ---- spawn -------------------------------------------------------------------------------------------------- */

/* What a spawn is made of; the target and its arguments are at `target` and behind. */
typedef struct start_plan {
    int                 target, last;
    size_t              memory_max;
    filch_spawn_options spawn;
} start_plan;

/* "4MB" as bytes. */
static size_t check_size(lua_State *L, int index, const char *field)
{
    if (lua_isinteger(L, index) && lua_tointeger(L, index) > 0) return (size_t)lua_tointeger(L, index);
    if (lua_type(L, index) == LUA_TSTRING) {
        unsigned long long number;
        char               unit[3] = "";
        int                read = sscanf(lua_tostring(L, index), "%llu%2s", &number, unit);
        unsigned           shift = unit[0] == 'K' ? 10 : unit[0] == 'M' ? 20 : unit[0] == 'G' ? 30 : 0;
        if (read >= 1 && number > 0 && number < (UINT64_C(1) << 33)) return (size_t)number << shift;
    }
    luaL_error(L, "%s: a size is a number of bytes, or a text as \"4MB\"", field);
    return 0;
}

static uint32_t overflow_of(lua_State *L, int index)
{
    static const char *const names[] = { "fail", "wait", "drop_newest", "drop_oldest", "stop" };
    const char              *name = lua_tostring(L, index);
    for (uint32_t i = 0; name != NULL && i < 5; i++) {
        if (strcmp(name, names[i]) == 0) return i;
    }
    return (uint32_t)luaL_error(L, "overflow: one of fail, wait, drop_newest, drop_oldest, stop");
}

/* One named field of process.spawn{...}; value on top. */
static void read_option(lua_State *L, start_plan *plan, const char *name)
{
    if (strcmp(name, "memory") == 0) {
        plan->memory_max = check_size(L, -1, name);
    } else if (strcmp(name, "mailbox") == 0) {
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) <= 0 || lua_tointeger(L, -1) > UINT32_MAX) {
            luaL_error(L, "mailbox: a number of messages");
        }
        plan->spawn.mailbox_max = (uint32_t)lua_tointeger(L, -1);
    } else if (strcmp(name, "mailbox_bytes") == 0) {
        plan->spawn.mailbox_bytes = check_size(L, -1, name);
    } else if (strcmp(name, "name") == 0) {
        plan->spawn.name = luaL_checkstring(L, -1); /* stays in the table */
    } else if (strcmp(name, "monitor") == 0 || strcmp(name, "link") == 0 || strcmp(name, "trap") == 0) {
        uint32_t flag = name[0] == 'm' ? FILCH_SPAWN_MONITOR : name[0] == 'l' ? FILCH_SPAWN_LINK : FILCH_SPAWN_TRAP;
        if (lua_toboolean(L, -1)) plan->spawn.relations |= flag;
    } else if (strcmp(name, "overflow") == 0) {
        plan->spawn.overflow = overflow_of(L, -1);
    } else {
        luaL_error(L, "process.spawn has no option '%s'", name);
    }
}

/* process.spawn{ target, args...; memory = , mailbox = }: puts target and arguments on the stack. */
static void read_table(lua_State *L, start_plan *plan)
{
    lua_Integer count = (lua_Integer)lua_rawlen(L, 1);
    lua_settop(L, 1);
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) read_option(L, plan, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    luaL_argcheck(L, count >= 1 && count < 200, 1, "the first element is what to run");
    luaL_checkstack(L, (int)count + 8, "too many arguments");
    for (lua_Integer i = 1; i <= count; i++) lua_rawgeti(L, 1, i);
    plan->target = 2;
    plan->last = lua_gettop(L);
}

/* Which upvalue of the function at `index` is the globals; 0 none. */
static int find_env(lua_State *L, int index)
{
    int env = 0;
    lua_pushglobaltable(L);
    for (int i = 1; env == 0 && lua_getupvalue(L, index, i) != NULL; i++) {
        if (lua_rawequal(L, -1, -2)) env = i;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return env;
}

/* The code of a function, and its upvalues into `bytes`. */
static filch_err plan_function(lua_State *L, fli_lua_proc *p, int index, fli_lua_bytes *bytes, fli_lua_start *start,
                               fli_lua_refusal *why)
{
    int env = find_env(L, index);
    lua_pushvalue(L, index);
    filch_err err = fli_lua_code_known(p, L, env, &start->code);
    lua_pop(L, 1);
    if (err != FILCH_OK) return err;
    const char *name;
    bytes->by_name = true;
    for (int i = 1; (name = lua_getupvalue(L, index, i)) != NULL; i++) {
        char root[96];
        snprintf(root, sizeof root, "upvalue '%.80s'", name);
        if (i != env && !fli_lua_encode(L, -1, root, bytes, why)) return FILCH_EINVAL;
        lua_pop(L, 1);
    }
    bytes->by_name = false;
    return FILCH_OK;
}

/* The code of a file ("jobs/count.lua") or a module ("jobs.count"). Its function `main`, if it has one, goes on. */
static filch_err plan_name(lua_State *L, fli_lua_proc *p, int index, fli_lua_start *start, fli_lua_refusal *why)
{
    const char *name = lua_tostring(L, index);
    size_t      size = strlen(name);
    bool        is_file = strchr(name, '/') != NULL || (size > 4 && strcmp(name + size - 4, ".lua") == 0);
    start->method = "main";
    start->method_optional = true;
    return is_file ? fli_lua_code_file(p->lua, name, &start->code, why->text, sizeof why->text)
                   : fli_lua_code_module(p->lua, name, &start->code, why->text, sizeof why->text);
}

/* Starts what the plan says; nothing in here raises but at the end. */
static filch_pid spawn(lua_State *L, fli_lua_proc *p, const start_plan *plan)
{
    fli_lua_bytes       bytes;
    fli_lua_refusal     why = { "" };
    fli_lua_start       start = { .lua = p->lua, .memory_max = plan->memory_max, .text = why.text,
                                  .text_size = sizeof why.text, .seed = fli_prng_mix(p->seed + p->next_tag++) };
    filch_spawn_options options = plan->spawn;
    filch_pid           pid = { 0, 0 };
    bool                sendable = true;
    fli_lua_bytes_init(&bytes, p->heap.max);
    filch_err err = lua_isfunction(L, plan->target) ? plan_function(L, p, plan->target, &bytes, &start, &why)
                                                    : plan_name(L, p, plan->target, &start, &why);
    for (int i = plan->target + 1; err == FILCH_OK && sendable && i <= plan->last; i++) {
        char root[32];
        snprintf(root, sizeof root, "argument %d", i - plan->target);
        sendable = fli_lua_encode(L, i, root, &bytes, &why);
    }
    if (err == FILCH_OK && sendable) {
        start.bytes = bytes.at;
        start.size = bytes.size;
        start.arg_count = (size_t)(plan->last - plan->target);
        options.args = filch_ptr(&start);
        err = filch_spawn(p->sched, &start.code->kind->type, &options, &pid);
    }
    fli_lua_code_drop(start.code);
    fli_lua_bytes_fini(&bytes);
    if (err != FILCH_OK || !sendable) luaL_error(L, "%s", why.text[0] != '\0' ? why.text : filch_err_text(err));
    return pid;
}

/* The arguments of a spawn, whichever it is. */
static filch_pid spawn_with(lua_State *L, uint32_t relations, uint64_t tag)
{
    fli_lua_proc *p = fli_lua_here(L);
    start_plan    plan = { .target = 1, .last = lua_gettop(L), .memory_max = p->heap.max,
                           .spawn = FILCH_SPAWN_OPTIONS_INIT };
    if (lua_istable(L, 1)) read_table(L, &plan);
    plan.spawn.relations |= relations;
    plan.spawn.tag = tag;
    bool is_function = lua_isfunction(L, plan.target) && !lua_iscfunction(L, plan.target);
    if (!is_function && lua_type(L, plan.target) != LUA_TSTRING) {
        luaL_typeerror(L, plan.target, "Lua function, or name of a module or file");
    }
    luaL_checkstack(L, 8, NULL);
    return spawn(L, p, &plan);
}

/* process.spawn(function or name, args...) or process.spawn{ function or name, args...; options } -> pid. */
static int process_spawn(lua_State *L)
{
    fli_lua_push_pid(L, spawn_with(L, 0, 0));
    return 1;
}

static int process_spawn_monitored(lua_State *L)
{
    fli_lua_push_pid(L, spawn_with(L, FILCH_SPAWN_MONITOR, 0));
    return 1;
}

static int process_spawn_linked(lua_State *L)
{
    fli_lua_push_pid(L, spawn_with(L, FILCH_SPAWN_LINK, 0));
    return 1;
}

static int go_on_exec(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    fli_lua_proc *p = fli_lua_here(L);
    fli_lua_task *task = p->current;
    if (task->cancelled) {
        forget_answer(p);
        filch_drop(&task->answer);
        fli_lua_check_cancel(L, p);
    }
    if (!task->answered) return fli_lua_park(L, FLI_LUA_NEVER, ctx, go_on_exec);
    forget_answer(p);
    return push_answer(L, task);
}

/* process.exec(as spawn) -> its result | nil, why it failed. Waits for its end. */
static int process_exec(lua_State *L)
{
    fli_lua_proc *p = fli_lua_here(L);
    uint64_t      tag = p->next_tag++;
    fli_lua_wait_begin(L, p);
    (void)spawn_with(L, FILCH_SPAWN_MONITOR, tag);
    p->current->awaits = tag;
    p->current->asks = false;
    p->current->answered = false;
    p->current->ref = 0;
    p->reply_tasks++;
    return go_on_exec(L, LUA_OK, 0);
}

/* ---- ending ------------------------------------------------------------------------------------------------- */

/* process.exit([result]): ends this process, wherever it is called, as if its main function had returned. */
static int process_exit(lua_State *L)
{
    fli_lua_proc   *p = fli_lua_here(L);
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      data;
    lua_settop(L, 1);
    fli_lua_bytes_init(&bytes, p->heap.max);
    bool sendable = fli_lua_pack(L, 1, "result", &bytes, &data, &why);
    if (sendable) {
        filch_drop(&p->result);
        bool lent = filch_kind_of(&data) == FILCH_KIND_BYTES;
        if (lent) data = filch_bytes(filch_raw(&data), filch_size(&data));
        p->exiting = filch_keep(&data, &p->result) == FILCH_OK;
    }
    fli_lua_bytes_fini(&bytes);
    if (!sendable) return luaL_error(L, "%s", why.text);
    if (!p->exiting) return luaL_error(L, "not enough memory");
    lua_pushliteral(L, "exit");
    return lua_error(L);
}

const fli_lua_member fli_lua_process_members[] = {
    { .library = "process", .name = "self", .fn = process_self },
    { .library = "process", .name = "spawn", .fn = process_spawn },
    { .library = "process", .name = "spawn_monitored", .fn = process_spawn_monitored },
    { .library = "process", .name = "spawn_linked", .fn = process_spawn_linked },
    { .library = "process", .name = "exec", .fn = process_exec },
    { .library = "process", .name = "send", .fn = process_send },
    { .library = "process", .name = "receive", .fn = process_receive },
    { .library = "process", .name = "request", .fn = process_request },
    { .library = "process", .name = "reply", .fn = process_reply },
    { .library = "process", .name = "exit", .fn = process_exit },
    { .name = NULL },
};
