/* spawn.c - the part of the library `process` that starts processes, and reads the arguments of a spawn. See
 * spawn.h. */
#include "lua/process/spawn.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/message/functions.h"
#include "lua/value/checks.h"

/* Returns the number of bytes for the size at `index`: a number, or a text such as "4MB". */
static size_t check_size(lua_State *L, int index, const char *field)
{
    if (lua_isinteger(L, index) && lua_tointeger(L, index) > 0) return (size_t)lua_tointeger(L, index);
    const char *text = lua_type(L, index) == LUA_TSTRING ? fli_lua_whole_text(L, index) : "";
    bool        is_short = lua_type(L, index) != LUA_TSTRING || lua_rawlen(L, index) <= FLI_LUA_DIGITS_MAX;
    if (text[0] >= '0' && text[0] <= '9' && is_short) {
        static const char *const units[] = { "", "K", "KB", "M", "MB", "G", "GB" };
        char                    *end;
        unsigned long long       number = strtoull(text, &end, 10);
        unsigned                 unit = 0;
        while (unit < 7 && strcmp(end, units[unit]) != 0) unit++;
        if (unit < 7 && number > 0 && number < (UINT64_C(1) << 33)) return (size_t)number << (unit + 1) / 2 * 10;
    }
    luaL_error(L, "%s: a size must be a number of bytes, or a text such as \"4MB\"", field);
    return 0;
}

static uint32_t overflow_of(lua_State *L, int index)
{
    static const char *const names[] = { "fail", "wait", "drop_newest", "drop_oldest", "stop" };
    const char              *name = lua_type(L, index) == LUA_TSTRING ? fli_lua_whole_text(L, index) : NULL;
    for (uint32_t i = 0; name != NULL && i < 5; i++) {
        if (strcmp(name, names[i]) == 0) return i;
    }
    return (uint32_t)luaL_error(L, "overflow: must be one of fail, wait, drop_newest, drop_oldest, stop");
}

const char *fli_lua_plan_name(lua_State *L)
{
    if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "name: must be a text");
    if (!fli_lua_self(L)->lua->names.may_register)
        luaL_error(L, "name: a process cannot take a name, because this program has no process.register");
    return fli_lua_whole_text(L, -1);
}

bool fli_lua_plan_option(lua_State *L, fli_lua_plan *plan, const char *name)
{
    if (strcmp(name, "memory") == 0) {
        size_t most = fli_lua_self(L)->heap.max;
        plan->memory_max = check_size(L, -1, name);
        if (plan->memory_max > most)
            luaL_error(L, "memory: must be at most the limit of the process that spawns, %I bytes", (LUAI_UACINT)most);
    } else if (strcmp(name, "mailbox") == 0) {
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) <= 0 || lua_tointeger(L, -1) > UINT32_MAX) {
            luaL_error(L, "mailbox: must be a number of messages, from 1");
        }
        plan->spawn.mailbox_max = (uint32_t)lua_tointeger(L, -1);
    } else if (strcmp(name, "mailbox_bytes") == 0) {
        plan->spawn.mailbox_bytes = check_size(L, -1, name);
    } else if (strcmp(name, "name") == 0) {
        plan->spawn.name = fli_lua_plan_name(L);
    } else if (strcmp(name, "monitor") == 0 || strcmp(name, "link") == 0 || strcmp(name, "trap") == 0) {
        uint32_t flag = name[0] == 'm' ? FILCH_SPAWN_MONITOR : name[0] == 'l' ? FILCH_SPAWN_LINK : FILCH_SPAWN_TRAP;
        if (lua_toboolean(L, -1)) plan->spawn.relations |= flag;
    } else if (strcmp(name, "overflow") == 0) {
        plan->spawn.overflow = overflow_of(L, -1);
    } else {
        return false;
    }
    return true;
}

void fli_lua_plan_check(lua_State *L, int target)
{
    bool is_function = lua_isfunction(L, target) && !lua_iscfunction(L, target);
    if (is_function || lua_type(L, target) == LUA_TSTRING) return;
    luaL_typeerror(L, target, "Lua function, or name of a module or file");
}

void fli_lua_plan_elements(lua_State *L, fli_lua_plan *plan, int table)
{
    lua_Integer count = (lua_Integer)lua_rawlen(L, table);
    if (count < 1 || count >= 200)
        luaL_error(L, "the first element must be what to run; at most 198 arguments may follow");
    luaL_checkstack(L, (int)count + 8, "too many arguments");
    plan->target = lua_gettop(L) + 1;
    for (lua_Integer i = 1; i <= count; i++) lua_rawgeti(L, table, i);
    plan->last = lua_gettop(L);
    fli_lua_plan_check(L, plan->target);
}

/* Reads process.spawn{ target, args...; memory = , mailbox = }: pushes target and arguments. */
static void read_table(lua_State *L, fli_lua_plan *plan)
{
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        bool named = lua_type(L, -2) == LUA_TSTRING;
        if (named && !fli_lua_plan_option(L, plan, fli_lua_whole_text(L, -2))) {
            luaL_error(L,
                       "process.spawn has no option '%s'; it has name, memory, mailbox, mailbox_bytes, overflow, "
                       "monitor, link, trap",
                       lua_tostring(L, -2));
        }
        lua_pop(L, 1);
    }
    fli_lua_plan_elements(L, plan, 1);
}

/* Makes code from the function at `index`, and writes its upvalues into `bytes`. */
static filch_err plan_function(lua_State *L, fli_lua_proc *p, int index, fli_lua_bytes *bytes, fli_lua_start *start,
                               fli_lua_refusal *why)
{
    int env = fli_lua_env_of(L, index);
    lua_pushvalue(L, index);
    filch_err err = fli_lua_code_known(p, L, env, &start->code);
    lua_pop(L, 1);
    fli_lua_code_refusal(p->lua, err, why->text, sizeof why->text);
    if (err != FILCH_OK) return err;
    for (int i = 1; i <= start->code->upvalues; i++) {
        char root[96];
        if (i == env) continue;
        snprintf(root, sizeof root, "upvalue '%.80s'", lua_getupvalue(L, index, i));
        lua_pop(L, 1);
        if (!fli_lua_encode_variable(L, index, i, root, bytes, why)) return FILCH_EINVAL;
    }
    return FILCH_OK;
}

/* Makes code from the file ("jobs/count.lua") or the module ("jobs.count") named at `index`. When the process runs, the
 * function `main` of that code is called if it exists. */
static filch_err plan_name(lua_State *L, fli_lua_proc *p, int index, fli_lua_start *start, fli_lua_refusal *why)
{
    size_t      size;
    const char *name = lua_tolstring(L, index, &size);
    start->method = "main";
    start->method_optional = true;
    if (strlen(name) != size) {
        snprintf(why->text, sizeof why->text, "the name of a module or file has no zero byte");
        return FILCH_LUA_EFILE;
    }
    return fli_lua_file_named(p->lua, name, &start->code, &start->origin, why->text, sizeof why->text);
}

filch_err fli_lua_plan_start(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan, fli_lua_bytes *bytes,
                             fli_lua_start *start, fli_lua_refusal *why)
{
    *start =
        (fli_lua_start){ .lua = p->lua, .memory_max = plan->memory_max, .seed = fli_prng_mix(p->seed + p->next_tag++) };
    fli_lua_functions functions;
    fli_lua_functions_init(&functions, lua_topointer(L, plan->target));
    why->text[0] = '\0';
    bytes->by_name = true;
    bytes->functions = &functions;
    filch_err err = FILCH_OK;
    if (lua_isfunction(L, plan->target)) err = plan_function(L, p, plan->target, bytes, start, why);
    else if (!lua_isnil(L, plan->target)) err = plan_name(L, p, plan->target, start, why);
    else start->code = fli_lua_file_newest(p->lua, p->file, &start->origin), start->method = "main";
    /* Upgraded code has its own functions, so functions and libraries are not handed over to it. */
    if (bytes->hand_over) bytes->by_name = false, bytes->functions = NULL;
    for (int i = plan->target + 1; err == FILCH_OK && i <= plan->last; i++) {
        char root[32];
        snprintf(root, sizeof root, "argument %d", i - plan->target);
        if (!fli_lua_encode(L, i, root, bytes, why)) err = FILCH_EINVAL;
    }
    bytes->by_name = false;
    bytes->functions = NULL;
    start->functions = functions.used;
    fli_lua_functions_fini(&functions);
    start->bytes = bytes->at;
    start->size = bytes->size;
    start->refs = &bytes->refs;
    start->arg_count = (size_t)(plan->last - plan->target);
    return err;
}

/* Starts the process that `plan` describes. Only the last call in this function can raise a Lua error. */
static filch_pid spawn(lua_State *L, fli_lua_proc *p, const fli_lua_plan *plan)
{
    fli_lua_bytes       bytes;
    fli_lua_refusal     why;
    fli_lua_start       start;
    filch_spawn_options options = plan->spawn;
    filch_pid           pid = { 0, 0 };
    fli_lua_bytes_init(&bytes, p->heap.max);
    filch_err err = fli_lua_plan_start(L, p, plan, &bytes, &start, &why);
    if (err == FILCH_OK) {
        start.text = why.text;
        start.text_size = sizeof why.text;
        options.args = filch_ptr(&start);
        fli_lua_limit_mailbox(p->lua, &options);
        err = filch_spawn(p->sched, &start.code->kind->type, &options, &pid);
    }
    fli_lua_code_drop(start.code);
    fli_lua_bytes_fini(&bytes);
    if (err != FILCH_OK) luaL_error(L, "%s", why.text[0] != '\0' ? why.text : fli_lua_call_error(err));
    return pid;
}

/* Reads the arguments of process.spawn and similar functions, which begin at stack index 1, and starts the process. */
static filch_pid spawn_with(lua_State *L, uint32_t relations, uint64_t tag)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    fli_lua_plan  plan = {
         .target = 1, .last = lua_gettop(L), .memory_max = p->heap.max, .spawn = FILCH_SPAWN_OPTIONS_INIT
    };
    if (lua_istable(L, 1)) read_table(L, &plan);
    else fli_lua_plan_check(L, 1);
    plan.spawn.relations |= relations;
    plan.spawn.tag = tag;
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

/* process.exec(arguments as for spawn) -> the result of the new process | nil, the reason of its failure. Waits for the
 * end of the new process. */
static int process_exec(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      tag = p->next_tag++;
    fli_lua_wait_begin(L, p);
    (void)spawn_with(L, FILCH_SPAWN_MONITOR, tag);
    return fli_lua_await_end(L, p, tag, fli_lua_unpack);
}

const fli_lua_member fli_lua_spawn_members[] = {
    { .library = "process", .name = "spawn", .fn = process_spawn },
    { .library = "process", .name = "spawn_monitored", .fn = process_spawn_monitored },
    { .library = "process", .name = "spawn_linked", .fn = process_spawn_linked },
    { .library = "process", .name = "exec", .fn = process_exec },
    { .name = NULL },
};
