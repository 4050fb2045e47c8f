/* receive.c - process.receive: the oldest message, or the oldest that a pattern matches.
 *
 * A pattern is compared in two parts. First all of it that is no function, in C; then its functions are called, one
 * after the other, as any code of the program: they can be interrupted, wait, receive by themselves, and fail. While
 * one runs, messages may come and go, so where the search is stays valid only as long as none was removed
 * (fli_lua_proc.removals); otherwise it begins again.
 *
 * The search keeps its place on the stack of the call. It looks at no message twice, unless some were removed since.
 */
#include <lauxlib.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/lib/times.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/stdlib/checks.h"

/* The stack of a call. PATTERN nil: any message. PLACE and REMOVALS: the kept messages before that place do not match,
 * if none was removed since. TESTS: functions of the pattern and what they are to look at, in turn; OPEN: how many of
 * both are left. */
enum { PATTERN = 1, PLACE, REMOVALS, MESSAGE, FROM, TESTS, OPEN };

/* Deadlines that are no times: look once, and if there is nothing let the messages outside come in; then look once
 * more. */
enum { LOOK_TWICE = 0, LOOK_AGAIN = 1 };

/* ---- messages --------------------------------------------------------------------------------------------------- */

void fli_lua_push_words(lua_State *L, const filch_data *data, filch_err error)
{
    bool words = filch_kind_of(data) == FILCH_KIND_TEXT || filch_kind_of(data) == FILCH_KIND_BYTES;
    if (words && filch_size(data) > 0) lua_pushlstring(L, filch_raw(data), filch_size(data));
    else lua_pushstring(L, filch_err_text(error));
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
        fli_lua_push_words(L, message->data, message->error);
        lua_setfield(L, -2, "error");
        return;
    }
    fli_lua_unpack(L, message->data);
    lua_setfield(L, -2, message->type == FILCH_EVENT_EXIT ? "result" : which == 0 ? "count" : "group");
}

/* Pushes a message and its sender. */
static void push_message(lua_State *L, const fli_lua_message *message)
{
    uint64_t     id = 0;
    fli_lua_sort sort = FLI_LUA_VALUE;
    if (message->type != FILCH_EVENT_MESSAGE) push_notice(L, message);
    else if (message->stream.id != 0) fli_lua_push_stream(L, message->stream);
    else sort = fli_lua_unpack_message(L, message->data, &id);
    if (sort == FLI_LUA_REQUEST) fli_lua_push_request(L, message->from, id);
    else fli_lua_push_pid(L, message->from);
}

bool fli_lua_take_oldest(lua_State *L, fli_lua_proc *p)
{
    fli_lua_message message;
    if (!fli_lua_inbox_peek(p, &message)) return false;
    push_message(L, &message);
    fli_lua_inbox_take(p);
    return true;
}

/* ---- patterns --------------------------------------------------------------------------------------------------- */

/* Keeps the function at `pattern` and the value at `value` for later. */
static void add_test(lua_State *L, int pattern, int value)
{
    lua_Integer open = lua_tointeger(L, OPEN);
    if (open == 0) {
        lua_createtable(L, 2, 0);
        lua_replace(L, TESTS);
    }
    lua_pushvalue(L, value);
    lua_rawseti(L, TESTS, open + 1);
    lua_pushvalue(L, pattern);
    lua_rawseti(L, TESTS, open + 2);
    lua_pushinteger(L, open + 2);
    lua_replace(L, OPEN);
}

enum { ROUNDS = 16 }; /* fields between two looks at the budget: strings that are compared may be long */

static bool agrees(lua_State *L, int pattern, int value, int depth);

static bool fields_agree(lua_State *L, int pattern, int value, int depth)
{
    if (!lua_istable(L, value)) return false;
    luaL_checkstack(L, 8, "pattern too deep");
    fli_lua_budget_walk(L);
    lua_pushnil(L);
    for (unsigned rounds = 1; lua_next(L, pattern) != 0; rounds++) {
        if (rounds % ROUNDS == 0) fli_lua_budget_walk(L);
        int top = lua_gettop(L);
        lua_pushvalue(L, top - 1);
        lua_rawget(L, value);
        bool fits = agrees(L, top, top + 1, depth + 1);
        lua_settop(L, fits ? top - 1 : top - 2);
        if (!fits) return false;
    }
    return true;
}

/* A table wants the same fields to agree; a function is asked later; anything else wants the same value. */
static bool agrees(lua_State *L, int pattern, int value, int depth)
{
    if (lua_isfunction(L, pattern)) return add_test(L, pattern, value), true;
    if (lua_istable(L, pattern) && depth < FLI_LUA_DEPTH_MAX) return fields_agree(L, pattern, value, depth);
    return lua_compare(L, pattern, value, LUA_OPEQ);
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

static bool is_place_valid(lua_State *L, const fli_lua_proc *p)
{
    return lua_touserdata(L, PLACE) != NULL && (uint64_t)lua_tointeger(L, REMOVALS) == p->removals;
}

static void set_place(lua_State *L, const fli_lua_proc *p, fli_lua_place place)
{
    lua_settop(L, PATTERN);
    lua_pushlightuserdata(L, (void *)place);
    lua_pushinteger(L, (lua_Integer)p->removals);
}

static int go_on_receive(lua_State *L, int status, lua_KContext until_ns);

/* Finds the next message that agrees with the pattern as far as C can tell. Returns true with MESSAGE to OPEN on the
 * stack, and PLACE its place; false if there is none: then PLACE is the end. */
static bool find_next(lua_State *L, fli_lua_proc *p, lua_KContext until_ns)
{
    filch_err     err;
    fli_lua_place place = is_place_valid(L, p) ? (fli_lua_place)lua_touserdata(L, PLACE) : &p->saved;
    do {
        for (; *place != NULL; place = &(*place)->next) {
            const fli_lua_saved *saved = *place;
            set_place(L, p, place);
            push_message(L, &(fli_lua_message){ &saved->data, saved->from, saved->type, saved->error, saved->stream });
            lua_pushnil(L);
            lua_pushinteger(L, 0);
            if (agrees(L, PATTERN, MESSAGE, 0)) return true;
            if (fli_lua_budget_due(L)) {
                set_place(L, p, &(*place)->next);
                fli_lua_pause(L, until_ns, go_on_receive);
            }
        }
    } while (fli_lua_inbox_keep(p, &err));
    set_place(L, p, place);
    if (err == FILCH_ENOMEM) p->out_of_memory = true;
    if (err != FILCH_OK) luaL_error(L, "%s", filch_err_text(err));
    return false;
}

static int go_on_test(lua_State *L, int status, lua_KContext until_ns);

/* Calls the next function of the pattern; its answer is on top. */
static void call_test(lua_State *L, lua_KContext until_ns)
{
    lua_Integer open = lua_tointeger(L, OPEN);
    lua_pushinteger(L, open - 2);
    lua_replace(L, OPEN);
    lua_rawgeti(L, TESTS, open);
    lua_rawgeti(L, TESTS, open - 1);
    lua_callk(L, 1, 1, until_ns, go_on_test);
}

/* Asks the functions that are left. Returns true if all of them agree. `fits`: what those before have said. */
static bool ask(lua_State *L, lua_KContext until_ns, bool fits)
{
    while (fits && lua_tointeger(L, OPEN) > 0) {
        call_test(L, until_ns);
        fits = lua_toboolean(L, -1);
        lua_settop(L, OPEN);
    }
    return fits;
}

/* After a message was looked at: takes it if it fits, or goes on behind it. Returns true if it was taken. */
static bool decide(lua_State *L, fli_lua_proc *p, bool fits)
{
    if (!is_place_valid(L, p)) return false; /* the search begins again */
    fli_lua_place place = (fli_lua_place)lua_touserdata(L, PLACE);
    if (!fits) return set_place(L, p, &(*place)->next), false;
    fli_lua_inbox_remove(p, place);
    lua_settop(L, FROM);
    return true;
}

/* Searches on. `looked_at`: there is a message, and `fits` says what its functions said so far. Returns true if one was
 * taken. */
static bool search(lua_State *L, fli_lua_proc *p, lua_KContext until_ns, bool looked_at, bool fits)
{
    while (looked_at || find_next(L, p, until_ns)) {
        if (!looked_at) fits = true;
        looked_at = false;
        if (decide(L, p, ask(L, until_ns, fits))) return true;
    }
    return false;
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

/* Nothing fits: waits, or gives up. */
static int nothing_yet(lua_State *L, fli_lua_proc *p, lua_KContext until_ns, bool all)
{
    if (until_ns == LOOK_TWICE) fli_lua_pause(L, LOOK_AGAIN, go_on_receive);
    if (all && p->outdated) fli_lua_upgrade_look(L, p);
    if (p->current->late || until_ns == LOOK_TWICE || until_ns == LOOK_AGAIN) {
        lua_pushnil(L);
        lua_pushliteral(L, "timeout");
        return 2;
    }
    if (p->current == &p->main) {
        fli_lua_farewell_end(p); /* none of the messages before it is wanted */
        fli_lua_check_cancel(L, p);
    }
    fli_lua_want_inbox(p);
    return fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_receive);
}

static int go_on_receive(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    bool          all = lua_isnil(L, PATTERN); /* between two messages: the place to change over */
    fli_lua_check_cancel(L, p);
    if (all && p->outdated) fli_lua_upgrade_look(L, p);
    bool found = all ? fli_lua_take_oldest(L, p) : search(L, p, until_ns, false, true);
    return found ? 2 : nothing_yet(L, p, until_ns, all);
}

/* A function of the pattern was interrupted, or has waited, and has returned now. */
static int go_on_test(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    bool          fits = lua_toboolean(L, -1);
    lua_settop(L, OPEN);
    p->current->late = false; /* of a wait inside the function; our own deadline is looked at when we park */
    return search(L, p, until_ns, true, fits) ? 2 : nothing_yet(L, p, until_ns, false);
}

/* Whether the first argument is the timeout: a number, or a text that reads as a span of time, and no timeout behind
 * it. */
static bool is_timeout_alone(lua_State *L)
{
    uint64_t span;
    return lua_isnoneornil(L, 2) && (lua_type(L, 1) == LUA_TNUMBER || fli_lua_to_span(L, 1, &span));
}

/* process.receive([pattern] [, timeout]) -> message, from | nil, "timeout". With a timeout, what stands before it is
 * the pattern, whatever it is. Without one, a value that is a time is the timeout. */
static int process_receive(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = FLI_LUA_NEVER;
    if (is_timeout_alone(L)) lua_settop(L, 1), lua_pushnil(L), lua_insert(L, 1);
    if (!lua_isnoneornil(L, 2)) {
        uint64_t span = fli_lua_check_span(L, 2);
        until = span == 0 ? LOOK_TWICE : fli_lua_until(p, span);
    }
    lua_settop(L, 1);
    fli_lua_look_begin(L, p);
    return go_on_receive(L, LUA_OK, (lua_KContext)until);
}

const fli_lua_member fli_lua_receive_members[] = {
    { .library = "process", .name = "receive", .fn = process_receive },
    { .name = NULL },
};
