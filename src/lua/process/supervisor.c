/* supervisor.c - the library `supervisor`: starts supervisors, and adds and removes their children.
 *
 *     local pid = supervisor.start { strategy = "one_for_one", children = { { id = "store", "store" } } }
 *
 * The supervisors are C processes of filch_supervisor_type; supervisor_tree.c reads their descriptions. A supervisor
 * answers by messages without a tag. So each request is sent by a small helper process, whose result is the answer:
 * several tasks can ask at the same time, and the caller gets an error if the supervisor ends first.
 *
 * Design: docs/design/lua/supervision.md.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/process/proc.h"
#include "lua/process/supervisor_tree.h"
#include "lua/value/checks.h"

/* ---- the helper process that sends a request ------------------------------------------------------------------- */

typedef enum ask_kind { ASK_UP, ASK_START, ASK_STOP, ASK_LIST, ASK_END } ask_kind;

typedef struct ask {
    ask_kind  kind;
    filch_pid supervisor, waiter;
    bool      links; /* ASK_UP: the caller (`waiter`) is linked with the supervisor when all children are up */
    bool      begun;
    /* ASK_START: the child to start; owned by this struct until the supervisor takes it */
    fli_lua_supervisor_tree *tree;
    char                     id[FILCH_CHILD_ID_MAX + 1];
} ask;

static filch_err ask_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(ask *)self = *(const ask *)filch_as_ptr(args);
    return FILCH_OK;
}

static void ask_close(void *self)
{
    ask *a = self;
    if (a->tree != NULL) fli_lua_supervisor_tree_drop(a->tree);
}

static filch_err put_question(ask *a, filch_sched *sched, filch_pid self)
{
    filch_err err = filch_monitor(sched, self, a->supervisor, 0, NULL);
    if (err != FILCH_OK) return err;
    switch (a->kind) {
    case ASK_UP: return filch_child_await(sched, a->supervisor);
    case ASK_START:
        err = filch_child_start(sched, a->supervisor, fli_lua_supervisor_tree_child(a->tree));
        if (err == FILCH_OK) a->tree = NULL;
        return err;
    case ASK_STOP: return filch_child_stop(sched, a->supervisor, a->id);
    case ASK_LIST: return filch_child_list(sched, a->supervisor);
    default: return filch_cancel(sched, a->supervisor);
    }
}

static filch_err fail_with(const ask *a, filch_err error, filch_out *out)
{
    char words[160];
    switch (error) {
    case FILCH_EDEAD:
        if (a->kind != ASK_STOP) return filch_fail(out, error, filch_str("the supervisor has ended"));
        snprintf(words, sizeof words, "there is no child '%s'", a->id);
        return filch_fail(out, error, filch_str(words));
    case FILCH_EEXISTS:
        return filch_fail(out, error, filch_str("there is a child with this id, or a process with this name, already"));
    case FILCH_ECLOSED: return filch_fail(out, error, filch_str("the supervisor is ending"));
    case FILCH_LUA_EMEMORY: return filch_fail(out, error, filch_str("not enough memory to start the child"));
    default: return error;
    }
}

static filch_err on_answer(const ask *a, const filch_data *answer, filch_out *out)
{
    filch_err error = filch_kind_of(answer) == FILCH_KIND_INT ? (filch_err)filch_as_int(answer) : FILCH_OK;
    if (error != FILCH_OK) return fail_with(a, error, out);
    if (a->kind != ASK_UP) return filch_done(out, *answer);
    /* The link is made after all children are up. If it were made earlier, a failed start would end the caller by the
     * link; but supervisor.start must return an error instead. */
    if (a->links) {
        error = filch_link(filch_out_sched(out), a->waiter, a->supervisor);
        if (error != FILCH_OK) {
            (void)!filch_cancel(filch_out_sched(out), a->supervisor);
            return error;
        }
    }
    return filch_done(out, filch_of_pid(a->supervisor));
}

static filch_err on_end(const ask *a, const filch_event *end, filch_out *out)
{
    if (a->kind == ASK_END) return filch_done(out, filch_none());
    if (a->kind != ASK_UP) return filch_fail(out, FILCH_EDEAD, filch_str("the supervisor has ended"));
    filch_err error = end->error != FILCH_OK ? end->error : FILCH_ECANCELLED;
    bool      words = filch_kind_of(&end->data) == FILCH_KIND_TEXT || filch_kind_of(&end->data) == FILCH_KIND_BYTES;
    if (words) return filch_fail(out, error, end->data);
    return error == FILCH_LUA_EMEMORY ? fail_with(a, error, out) : error;
}

static filch_err ask_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    ask *a = self;
    if (!a->begun) {
        const filch_ctx *ctx = filch_out_ctx(out);
        filch_err        err = put_question(a, filch_ctx_sched(ctx), filch_ctx_self(ctx));
        a->begun = true;
        /* FILCH_EDEAD is not returned: the exit event of the ended supervisor comes too, and on_end() handles it. */
        if (err != FILCH_OK && err != FILCH_EDEAD) return err;
    }
    /* The exit event of the supervisor is delivered before messages that it sent earlier. So all events are searched
     * for an answer, and the exit event counts only if there is none. */
    const filch_event *end = NULL;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].type == FILCH_EVENT_MESSAGE) return on_answer(a, &events[i].data, out);
        if (events[i].type == FILCH_EVENT_EXIT) end = &events[i];
    }
    return end != NULL ? on_end(a, end, out) : filch_idle(out);
}

static const filch_type ask_type = {
    .name = "asks a supervisor", .size = sizeof(ask), .init = ask_init, .step = ask_step, .close = ask_close
};

/* Starts the helper process and waits for its end. */
static int ask_and_wait(lua_State *L, fli_lua_proc *p, ask *a, void (*push)(lua_State *L, const filch_data *answer))
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    uint64_t            tag = p->next_tag++;
    a->waiter = p->self;
    options.args = filch_ptr(a);
    options.relations = FILCH_SPAWN_MONITOR;
    options.tag = tag;
    filch_err err = filch_spawn(p->sched, &ask_type, &options, NULL);
    if (err == FILCH_OK) return fli_lua_await_end(L, p, tag, push);
    if (a->tree != NULL) fli_lua_supervisor_tree_drop(a->tree);
    if (a->kind == ASK_UP) (void)!filch_cancel(p->sched, a->supervisor);
    return fli_lua_return_error(L, err);
}

/* ---- the library ------------------------------------------------------------------------------------------------ */

static void push_true(lua_State *L, const filch_data *answer)
{
    (void)answer;
    lua_pushboolean(L, 1);
}

static void push_list(lua_State *L, const filch_data *answer)
{
    const filch_child_info *list = filch_raw(answer);
    size_t                  count = filch_size(answer) / sizeof *list;
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        filch_child_info info;
        memcpy(&info, (const char *)list + i * sizeof info, sizeof info);
        lua_createtable(L, 0, 4);
        lua_pushstring(L, info.id);
        lua_setfield(L, -2, "id");
        if (info.running) {
            fli_lua_push_pid(L, info.pid);
            lua_setfield(L, -2, "pid");
        }
        lua_pushboolean(L, info.running != 0);
        lua_setfield(L, -2, "running");
        lua_pushinteger(L, info.restarts);
        lua_setfield(L, -2, "restarts");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* Returns the supervisor at index 1. Raises an error if that process is not a supervisor, because other processes must
 * not get messages meant for supervisors. */
static filch_pid check_supervisor(lua_State *L, fli_lua_proc *p)
{
    filch_info info = { .size = sizeof info };
    filch_pid  pid = fli_lua_check_pid(L, 1);
    if (filch_inspect(p->sched, pid, &info) == FILCH_OK && info.name != filch_supervisor_type.name) {
        luaL_argerror(L, 1, "this process is not a supervisor: pass a pid that supervisor.start returned");
    }
    return pid;
}

/* supervisor.start(description) -> pid | nil, reason. Returns when all children are up or the start has failed. */
static int supervisor_start(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    lua_settop(L, 1);
    fli_lua_wait_begin(L, p);
    fli_lua_supervisor_tree *tree = fli_lua_supervisor_tree_read(L, 1);
    filch_spawn_options      options = *fli_lua_supervisor_tree_options(tree);
    ask                      a = { .kind = ASK_UP, .links = fli_lua_supervisor_tree_links(tree) };
    filch_err                err = filch_spawn(p->sched, &p->lua->tree_type, &options, &a.supervisor);
    fli_lua_supervisor_tree_drop(tree);
    if (err == FILCH_OK) return ask_and_wait(L, p, &a, fli_lua_unpack);
    if (err == FILCH_EEXISTS) {
        lua_pushnil(L);
        lua_pushliteral(L, "two children have the same id, or the supervisor's name is taken");
        return 2;
    }
    return fli_lua_return_refusal(L, err);
}

/* supervisor.start_child(supervisor, child) -> pid | nil, reason. */
static int supervisor_start_child(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    lua_settop(L, 2);
    ask a = { .kind = ASK_START, .supervisor = check_supervisor(L, p) };
    fli_lua_wait_begin(L, p);
    a.tree = fli_lua_supervisor_tree_read_child(L, 2);
    return ask_and_wait(L, p, &a, fli_lua_unpack);
}

/* supervisor.stop_child(supervisor, id) -> true | nil, reason. Returns when the child has ended. The supervisor removes
 * the child from its list. */
static int supervisor_stop_child(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    ask           a = { .kind = ASK_STOP, .supervisor = check_supervisor(L, p) };
    size_t        size;
    const char   *id = fli_lua_check_text(L, 2);
    size = strlen(id);
    fli_lua_check_arg(L, size > 0 && size <= FILCH_CHILD_ID_MAX, 2, "an id has 1 to 63 bytes");
    memcpy(a.id, id, size + 1);
    fli_lua_wait_begin(L, p);
    return ask_and_wait(L, p, &a, push_true);
}

/* supervisor.children(supervisor) -> { { id = , pid = , running = , restarts = }, ... } in order | nil, reason. */
static int supervisor_children(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    ask           a = { .kind = ASK_LIST, .supervisor = check_supervisor(L, p) };
    fli_lua_wait_begin(L, p);
    return ask_and_wait(L, p, &a, push_list);
}

/* supervisor.stop(supervisor) -> true. Returns when the supervisor and its children have ended; the supervisor ends the
 * last child first. */
static int supervisor_stop(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    ask           a = { .kind = ASK_END, .supervisor = check_supervisor(L, p) };
    fli_lua_wait_begin(L, p);
    return ask_and_wait(L, p, &a, push_true);
}

const fli_lua_member fli_lua_supervisor_members[] = {
    { .library = "supervisor", .name = "start", .fn = supervisor_start },
    { .library = "supervisor", .name = "start_child", .fn = supervisor_start_child },
    { .library = "supervisor", .name = "stop_child", .fn = supervisor_stop_child },
    { .library = "supervisor", .name = "children", .fn = supervisor_children },
    { .library = "supervisor", .name = "stop", .fn = supervisor_stop },
    { .name = NULL },
};
