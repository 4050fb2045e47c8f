/* receive.c - process.receive: takes the oldest message, or the oldest message that matches a pattern.
 *
 * A pattern is compared in two parts. First everything in it that is not a function is compared in C. Then its
 * functions are called, one after the other, like any code of the program: they can be interrupted, wait, receive
 * messages themselves, and fail. While such a function runs, messages may arrive or be removed. So the saved
 * position of the search is valid only until a message is removed (fli_lua_proc.removals); then the search begins
 * again.
 *
 * The search keeps its position (PLACE) on the stack of the call. It compares a message twice only if messages were
 * removed between the two comparisons.
 */
#include <lauxlib.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

/* Stack indexes of a call. PATTERN: the pattern; nil matches any message. PLACE: a place in the kept messages; the
 * messages before it do not match, as long as p->removals is equal to REMOVALS. MESSAGE, FROM: the message that is
 * being compared. TESTS: list of arguments and functions of the pattern, alternating. OPEN: how many elements of TESTS
 * are left to be called. */
enum { PATTERN = 1, PLACE, REMOVALS, MESSAGE, FROM, TESTS, OPEN };

/* Values in place of a deadline, for a timeout of 0. LOOK_TWICE: the first search; if no message matches, the call
 * pauses once, so that messages in the mailbox arrive, and searches again. LOOK_AGAIN: the second search; if no message
 * matches, the call returns. */
enum { LOOK_TWICE = 0, LOOK_AGAIN = 1 };

/* ---- messages --------------------------------------------------------------------------------------------------- */

void fli_lua_push_words(lua_State *L, const filch_data *data, filch_err error)
{
    bool words = filch_kind_of(data) == FILCH_KIND_TEXT || filch_kind_of(data) == FILCH_KIND_BYTES;
    if (words && filch_size(data) > 0) lua_pushlstring(L, filch_raw(data), filch_size(data));
    else lua_pushstring(L, filch_err_text(error));
}

/* Pushes a notice as a table: { event = "exit", pid = , result = }, { event = "exit", pid = , error = text }, or, for
 * other notices, the name of the event with its own fields. */
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

/* Adds the function at stack index `pattern` to TESTS, and the value at `value` as its argument. The function is called
 * after the rest of the pattern has matched. */
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

enum { ROUNDS = 16 }; /* fields between two checks of the budget; few, because compared strings may be long */

static bool agrees(lua_State *L, int pattern, int value);

/* The recursion ends at the depth of the value: a message is at most FLI_LUA_DEPTH_MAX tables deep, a notice one table
 * more. A table of the pattern is never compared by lua_compare(): its __eq could remove the message at PLACE. */
static bool fields_agree(lua_State *L, int pattern, int value)
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
        bool fits = agrees(L, top, top + 1);
        lua_settop(L, fits ? top - 1 : top - 2);
        if (!fits) return false;
    }
    return true;
}

/* Compares a value with a pattern: a table matches if all its fields match; a function is called later; any other
 * value must be equal. */
static bool agrees(lua_State *L, int pattern, int value)
{
    if (lua_isfunction(L, pattern)) return add_test(L, pattern, value), true;
    if (lua_istable(L, pattern)) return fields_agree(L, pattern, value);
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

/* Finds the next message that matches the pattern, without calling the functions in the pattern. Returns true if there
 * is one: the stack then has the values MESSAGE to OPEN, and PLACE is the place of that message. Otherwise returns
 * false, with PLACE at the end of the list. */
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
            if (agrees(L, PATTERN, MESSAGE)) return true;
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

/* Calls the next function in TESTS; its result is on top of the stack. */
static void call_test(lua_State *L, lua_KContext until_ns)
{
    lua_Integer open = lua_tointeger(L, OPEN);
    lua_pushinteger(L, open - 2);
    lua_replace(L, OPEN);
    lua_rawgeti(L, TESTS, open);
    lua_rawgeti(L, TESTS, open - 1);
    lua_callk(L, 1, 1, until_ns, go_on_test);
}

/* Calls the functions in TESTS that have not been called. Returns true if all of them return true. `fits` is false if a
 * function that was called before has returned false; then calls no function. */
static bool ask(lua_State *L, lua_KContext until_ns, bool fits)
{
    while (fits && lua_tointeger(L, OPEN) > 0) {
        call_test(L, until_ns);
        fits = lua_toboolean(L, -1);
        lua_settop(L, OPEN);
    }
    return fits;
}

/* Ends the comparison of a message: takes the message if `fits`, otherwise moves PLACE behind it. Returns true if the
 * message was taken. */
static bool decide(lua_State *L, fli_lua_proc *p, bool fits)
{
    if (!is_place_valid(L, p)) return false; /* a message was removed, so PLACE is not valid: the search begins again */
    fli_lua_place place = (fli_lua_place)lua_touserdata(L, PLACE);
    if (!fits) return set_place(L, p, &(*place)->next), false;
    fli_lua_inbox_remove(p, place);
    lua_settop(L, FROM);
    return true;
}

/* Continues the search. `looked_at`: the message at PLACE has already been compared, except for functions in TESTS;
 * `fits`: none of the functions called so far has rejected it. Returns true if a message was taken. */
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

/* Called when no message matches: waits for a message, or returns nil and "timeout". `all`: the call has no pattern. */
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
        fli_lua_deferred_cancel_end(p); /* raises a delayed cancel: none of the messages before the cancel matches */
        fli_lua_check_cancel(L, p);
    }
    fli_lua_want_inbox(p);
    return fli_lua_park(L, (uint64_t)until_ns, until_ns, go_on_receive);
}

static int go_on_receive(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    bool          all = lua_isnil(L, PATTERN); /* any message matches, so the process may be upgraded here */
    fli_lua_check_cancel(L, p);
    if (all && p->outdated) fli_lua_upgrade_look(L, p);
    bool found = all ? fli_lua_take_oldest(L, p) : search(L, p, until_ns, false, true);
    return found ? 2 : nothing_yet(L, p, until_ns, all);
}

/* Continues process.receive after a function of the pattern, which was interrupted or waited, has returned. */
static int go_on_test(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc *p = fli_lua_need_process(L);
    bool          fits = lua_toboolean(L, -1);
    lua_settop(L, OPEN);
    /* `late` may be set by a wait inside the function of the pattern. If the deadline of this call has passed, the next
     * park ends at once and sets `late` again. */
    p->current->late = false;
    return search(L, p, until_ns, true, fits) ? 2 : nothing_yet(L, p, until_ns, false);
}

/* Returns true if the only argument is the timeout: a number, or a text that can be read as a span of time. */
static bool is_timeout_alone(lua_State *L)
{
    uint64_t span;
    return lua_isnoneornil(L, 2) && (lua_type(L, 1) == LUA_TNUMBER || fli_lua_to_span(L, 1, &span));
}

/* process.receive([pattern] [, timeout]) -> message, from | nil, "timeout". With two arguments the first is the
 * pattern, even if it could be read as a time. A single argument that can be read as a time is the timeout. */
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
