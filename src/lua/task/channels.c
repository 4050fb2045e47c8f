/* channels.c - the library `channel`: passes values between the tasks of one process; and channel.select.
 *
 * A channel is a userdata. Its first user value is a table with the buffer, a ring at 1 to `capacity`. Its second user
 * value is the task of the timer, for a channel made by time.after or time.every. A value that a waiting sender offers,
 * or that a served receiver gets, is in one table of the process, with the address of the entry (waits.h) as its key.
 *
 * INVARIANT  a receiver waits only while the buffer is empty and no sender waits; a sender waits only while the buffer
 *            is full and no receiver waits.
 * INVARIANT  no task waits at a closed channel.
 *
 * No operation on a channel calls a function of the program or a metamethod, so no other code runs between the
 * beginning and the end of an operation. Besides errors about its arguments, an operation can raise only a memory
 * error, which ends the process.
 */
#include "lua/task/channels.h"

#include <lauxlib.h>

#include "lua/host/libs.h"
#include "lua/preempt/moves.h"
#include "lua/task/waits.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

typedef struct channel {
    lua_Integer capacity;
    lua_Integer first, count; /* `first`: index of the oldest value in the buffer, from 0; `count`: number of values
                                 in it */
    bool          closed;
    fli_lua_queue senders, receivers;
} channel;

enum { BUFFER = 1, TIMER = 2 };                       /* indexes of the user values of a channel */
enum { OFFER_CHANNEL = 1, OFFER_VALUE = 2 };          /* indexes of the user values of a case that ch:sending made */
enum { AS_SEND, AS_RECEIVE, AS_ITERATOR, AS_SELECT }; /* fli_lua_wait.style: which call waits, and so what it returns */
/* stack indexes of a call that waits. CASES: the list of cases, or one channel; WAIT: its wait */
enum { CASES = 1, WAIT = 2 };

static const char channel_key, offer_key, values_key; /* addresses used as registry keys */

/* ---- userdata ------------------------------------------------------------------------------------------------- */

static void *to_userdata(lua_State *L, int index, const char *key)
{
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, key);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is ? lua_touserdata(L, index) : NULL;
}

static channel *check_channel(lua_State *L, int index)
{
    channel *ch = to_userdata(L, index, &channel_key);
    fli_lua_expect(L, ch != NULL, index, "channel");
    return ch;
}

/* Pushes the registry table under `key`, which is created if needed. Returns true if it was created. */
static bool push_table(lua_State *L, const char *key)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE) return false;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
    return true;
}

static int channel_send(lua_State *L);
static int channel_receive(lua_State *L);
static int channel_close(lua_State *L);
static int channel_sending(lua_State *L);
static int channel_room(lua_State *L);
static int channel_waiting(lua_State *L);
static int channel_next(lua_State *L);
static int channel_len(lua_State *L);

FLI_LUA_RETURNING(channel_send)
FLI_LUA_RETURNING(channel_receive)
FLI_LUA_RETURNING(channel_close)
FLI_LUA_RETURNING(channel_sending)
FLI_LUA_RETURNING(channel_room)
FLI_LUA_RETURNING(channel_waiting)
FLI_LUA_RETURNING(channel_next)
FLI_LUA_RETURNING(channel_len)

static void name_metatable(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
}

static void set_channel_metatable(lua_State *L)
{
    static const luaL_Reg methods[] = { { "send", returning_channel_send },
                                        { "receive", returning_channel_receive },
                                        { "close", returning_channel_close },
                                        { "sending", returning_channel_sending },
                                        { "room", returning_channel_room },
                                        { "waiting", returning_channel_waiting },
                                        { NULL, NULL } };
    static const luaL_Reg events[] = { { "__call", returning_channel_next },
                                       { "__len", returning_channel_len },
                                       { NULL, NULL } };
    if (push_table(L, &channel_key)) {
        name_metatable(L, "channel");
        luaL_setfuncs(L, events, 0);
        lua_createtable(L, 0, 6);
        luaL_setfuncs(L, methods, 0);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
}

static void push_channel(lua_State *L, lua_Integer capacity)
{
    channel *ch = lua_newuserdatauv(L, sizeof *ch, 2);
    *ch = (channel){ .capacity = capacity };
    set_channel_metatable(L);
    if (capacity == 0) return;
    lua_newtable(L);
    lua_setiuservalue(L, -2, BUFFER);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

/* Stores the value at stack index `value` as the value that `entry` offers or has received. */
static void entry_value_set(lua_State *L, const fli_lua_entry *entry, int value)
{
    value = lua_absindex(L, value);
    (void)push_table(L, &values_key);
    lua_pushvalue(L, value);
    lua_rawsetp(L, -2, entry);
    lua_pop(L, 1);
}

/* Pushes the value stored for `entry`, and removes it from the table of values. */
static void entry_value_take(lua_State *L, const fli_lua_entry *entry)
{
    (void)push_table(L, &values_key);
    if (lua_rawgetp(L, -1, entry) != LUA_TNIL) {
        lua_pushnil(L);
        lua_rawsetp(L, -3, entry);
    }
    lua_remove(L, -2);
}

/* Adds the value on top of the stack to the buffer, and pops it. */
static void buffer_add(lua_State *L, channel *ch, int channel_at)
{
    (void)lua_getiuservalue(L, channel_at, BUFFER);
    lua_insert(L, -2);
    lua_rawseti(L, -2, (ch->first + ch->count) % ch->capacity + 1);
    lua_pop(L, 1);
    ch->count++;
}

/* Removes the oldest value from the buffer, and pushes it. */
static void buffer_take(lua_State *L, channel *ch, int channel_at)
{
    (void)lua_getiuservalue(L, channel_at, BUFFER);
    lua_rawgeti(L, -1, ch->first + 1);
    lua_pushnil(L);
    lua_rawseti(L, -3, ch->first + 1);
    lua_remove(L, -2);
    ch->first = (ch->first + 1) % ch->capacity;
    ch->count--;
}

/* ---- attempts to send or receive, which never wait -------------------------------------------------------------- */

/* Gives the value to a waiting receiver or puts it into the buffer. Returns false if neither is possible. Raises an
 * error if the channel is closed. */
static bool try_send(lua_State *L, fli_lua_proc *p, channel *ch, int channel_at, int value)
{
    if (ch->closed) luaL_error(L, "send on a closed channel");
    fli_lua_entry *receiver = ch->receivers.first;
    if (receiver != NULL) {
        entry_value_set(L, receiver, value);
        fli_lua_wait_serve(p, receiver, FLI_LUA_PASSED);
        return true;
    }
    if (ch->count == ch->capacity) return false;
    lua_pushvalue(L, value);
    buffer_add(L, ch, channel_at);
    return true;
}

/* Returns true with a value and `true` pushed, or with nil and `false` pushed if the channel is closed and empty.
 * Returns false with nothing pushed if there is no value yet. If this makes space in the buffer, the value of the
 * sender that has waited longest is moved to the buffer. */
static bool try_receive(lua_State *L, fli_lua_proc *p, channel *ch, int channel_at)
{
    fli_lua_entry *sender = ch->senders.first;
    bool           buffered = ch->count > 0;
    if (!buffered && sender == NULL && !ch->closed) return false;
    if (buffered) buffer_take(L, ch, channel_at);
    if (sender != NULL) {
        entry_value_take(L, sender);
        if (buffered) buffer_add(L, ch, channel_at);
        fli_lua_wait_serve(p, sender, FLI_LUA_PASSED);
    } else if (!buffered) {
        lua_pushnil(L);
    }
    lua_pushboolean(L, buffered || sender != NULL);
    return true;
}

static void close_channel(fli_lua_proc *p, channel *ch)
{
    ch->closed = true;
    while (ch->receivers.first != NULL) fli_lua_wait_serve(p, ch->receivers.first, FLI_LUA_CLOSED);
    while (ch->senders.first != NULL) fli_lua_wait_serve(p, ch->senders.first, FLI_LUA_CLOSED);
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

/* Ends a wait, whatever its outcome: removes its entries from all queues, and removes the values that the entries
 * offered and that were not taken. */
static void withdraw(lua_State *L, fli_lua_wait *wait)
{
    fli_lua_wait_leave(wait);
    for (uint32_t i = 0; i < wait->count; i++) {
        if (!wait->entries[i].sends) continue;
        entry_value_take(L, &wait->entries[i]);
        lua_pop(L, 1);
    }
}

/* Pushes the results of a call after another task has ended its wait, and returns their number. Raises an error if the
 * call was a send and the channel was closed. */
static int push_served(lua_State *L, fli_lua_wait *wait)
{
    const fli_lua_entry *entry = wait->served;
    bool                 passed = wait->outcome == FLI_LUA_PASSED;
    withdraw(L, wait);
    if (entry->sends && !passed) return luaL_error(L, "send on a closed channel");
    if (wait->style == AS_SELECT) lua_pushinteger(L, (lua_Integer)(entry - wait->entries) + 1);
    if (wait->style != AS_SEND) entry_value_take(L, entry);
    if (wait->style != AS_ITERATOR) lua_pushboolean(L, passed);
    return wait->style == AS_SELECT ? 3 : wait->style == AS_RECEIVE ? 2 : 1;
}

/* Continues a call that waited. If another task has ended the wait, returns the result of the call, even if this task
 * was cancelled or the timeout has passed; the next wait then raises the cancel. Otherwise, a call that also waits for
 * messages returns a message if one is there, even if the timeout has passed, but not if the task was cancelled. */
static int resume_wait(lua_State *L, int status, lua_KContext until_ns)
{
    (void)status;
    fli_lua_proc   *p = fli_lua_need_process(L);
    fli_lua_wait   *wait = lua_touserdata(L, WAIT);
    bool            cancelled = p->current->cancelled;
    fli_lua_message message;
    if (wait->served != NULL) return push_served(L, wait);
    if (wait->inbox != 0 && !cancelled && fli_lua_inbox_peek(p, &message)) {
        withdraw(L, wait); /* before the message is read, which may raise a memory error */
        (void)fli_lua_take_oldest(L, p);
        lua_pushinteger(L, wait->inbox);
        lua_insert(L, -3);
        return 3;
    }
    if (cancelled || p->current->late) {
        withdraw(L, wait);
        fli_lua_check_cancel(L, p);
        lua_pushnil(L);
        lua_pushliteral(L, "timeout");
        return 2;
    }
    if (wait->inbox != 0) fli_lua_want_inbox(p);
    return fli_lua_wait_park(L, wait, (uint64_t)until_ns, resume_wait);
}

/* Waits at one channel, which is at stack index CASES. For a send, the value to send is at index `value`. */
static int wait_for_one(lua_State *L, fli_lua_proc *p, fli_lua_queue *queue, uint64_t until_ns, int style, int value)
{
    fli_lua_wait_begin(L, p);
    fli_lua_wait *wait = fli_lua_wait_push(L, p, 1);
    wait->style = (uint8_t)style;
    wait->entries[0].sends = style == AS_SEND;
    if (style == AS_SEND) entry_value_set(L, &wait->entries[0], value);
    fli_lua_wait_enter(wait, 0, queue);
    lua_replace(L, WAIT);
    lua_settop(L, WAIT);
    return resume_wait(L, LUA_OK, (lua_KContext)until_ns);
}

/* ---- methods -------------------------------------------------------------------------------------------------- */

/* ch:send(value [, timeout]) -> true | nil, "timeout" */
static int channel_send(lua_State *L)
{
    channel      *ch = check_channel(L, 1);
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_deadline(L, p, 3);
    lua_settop(L, 2);
    if (!try_send(L, p, ch, 1, 2)) return wait_for_one(L, p, &ch->senders, until, AS_SEND, 2);
    lua_pushboolean(L, 1);
    return 1;
}

/* ch:receive([timeout]) -> value, true | nil, false if closed and empty | nil, "timeout" */
static int channel_receive(lua_State *L)
{
    channel      *ch = check_channel(L, 1);
    fli_lua_proc *p = fli_lua_need_process(L);
    uint64_t      until = fli_lua_deadline(L, p, 2);
    lua_settop(L, 2);
    return try_receive(L, p, ch, 1) ? 2 : wait_for_one(L, p, &ch->receivers, until, AS_RECEIVE, 0);
}

/* Iterator function of the loop: for value in ch do ... end */
static int channel_next(lua_State *L)
{
    channel      *ch = check_channel(L, 1);
    fli_lua_proc *p = fli_lua_need_process(L);
    lua_settop(L, 2);
    if (!try_receive(L, p, ch, 1)) return wait_for_one(L, p, &ch->receivers, FLI_LUA_NEVER, AS_ITERATOR, 0);
    lua_pop(L, 1);
    return 1;
}

/* ch:close() -> true if the channel was open */
static int channel_close(lua_State *L)
{
    channel *ch = check_channel(L, 1);
    lua_pushboolean(L, !ch->closed);
    close_channel(fli_lua_self(L), ch);
    return 1;
}

static int channel_len(lua_State *L)
{
    lua_pushinteger(L, check_channel(L, 1)->count);
    return 1;
}

static lua_Integer length(const fli_lua_queue *queue)
{
    lua_Integer count = 0;
    for (const fli_lua_entry *entry = queue->first; entry != NULL; entry = entry->next) count++;
    return count;
}

/* ch:room() -> the number of values that can be sent now without waiting: to receivers, and into the buffer. */
static int channel_room(lua_State *L)
{
    const channel *ch = check_channel(L, 1);
    lua_Integer    receivers = length(&ch->receivers), room = ch->capacity - ch->count;
    /* the sum of both may be too large for a lua_Integer, because the capacity may be the largest integer */
    if (receivers > LUA_MAXINTEGER - room) receivers = LUA_MAXINTEGER - room;
    lua_pushinteger(L, ch->closed ? 0 : receivers + room);
    return 1;
}

/* ch:waiting() -> the number of tasks that wait to send, and the number that wait to receive. */
static int channel_waiting(lua_State *L)
{
    const channel *ch = check_channel(L, 1);
    lua_pushinteger(L, length(&ch->senders));
    lua_pushinteger(L, length(&ch->receivers));
    return 2;
}

/* ch:sending(value) -> a case for channel.select that sends `value`. */
static int channel_sending(lua_State *L)
{
    (void)check_channel(L, 1);
    lua_settop(L, 2);
    (void)lua_newuserdatauv(L, 0, 2);
    lua_insert(L, 1);
    lua_setiuservalue(L, 1, OFFER_VALUE);
    lua_setiuservalue(L, 1, OFFER_CHANNEL);
    if (push_table(L, &offer_key)) name_metatable(L, "channel case");
    lua_setmetatable(L, 1);
    return 1;
}

/* channel.new([capacity]) */
static int channel_new(lua_State *L)
{
    lua_Integer capacity = 0;
    int         whole = 1;
    if (!lua_isnoneornil(L, 1)) capacity = lua_tointegerx(L, 1, &whole);
    if (!whole || lua_type(L, 1) == LUA_TSTRING || capacity < 0)
        luaL_error(L, "channel.new: a channel's capacity is a whole number, 0 or more");
    push_channel(L, capacity);
    return 1;
}

/* channel.inbox: a marker for the messages of the process, as a case of channel.select. */
static int channel_inbox(lua_State *L)
{
    return luaL_error(L, "channel.inbox is a case of channel.select; messages are taken by process.receive");
}

/* ---- select --------------------------------------------------------------------------------------------------- */

/* One case of a select, and the stack indexes of its parts. */
typedef struct offer {
    channel *ch;
    int      channel_at, value_at; /* value_at 0: the case receives */
    bool     inbox;
} offer;

/* Pushes the parts of case `i`: up to three values. */
static offer push_case(lua_State *L, lua_Integer i)
{
    offer c = { .ch = NULL };
    lua_rawgeti(L, CASES, i);
    c.channel_at = lua_gettop(L);
    c.inbox = lua_tocfunction(L, -1) == channel_inbox;
    if (to_userdata(L, -1, &offer_key) != NULL) {
        (void)lua_getiuservalue(L, c.channel_at, OFFER_CHANNEL);
        (void)lua_getiuservalue(L, c.channel_at, OFFER_VALUE);
        c.channel_at++;
        c.value_at = c.channel_at + 1;
    }
    c.ch = to_userdata(L, c.channel_at, &channel_key);
    return c;
}

/* Replaces the list at CASES by a copy, because the program may change its own list while the call waits. */
static void copy_cases(lua_State *L, lua_Integer count)
{
    if (count == 0) luaL_error(L, "channel.select: the first argument must be a list of cases");
    if (count > FLI_LUA_CASES_MAX) luaL_error(L, "channel.select takes at most %d cases", FLI_LUA_CASES_MAX);
    lua_createtable(L, (int)count, 0);
    int copy = lua_gettop(L);
    for (lua_Integer i = 1; i <= count; i++) {
        offer c = push_case(L, i);
        if (c.ch == NULL && !c.inbox)
            luaL_error(L, "channel.select: case %d is not a channel, ch:sending(value) or channel.inbox", (int)i);
        lua_settop(L, copy);
        lua_rawgeti(L, CASES, i);
        lua_rawseti(L, copy, i);
    }
    lua_replace(L, CASES);
}

/* Tries case `i`. Returns the number of results pushed; 0: the case has to wait. */
static int try_case(lua_State *L, fli_lua_proc *p, lua_Integer i)
{
    int   top = lua_gettop(L);
    offer c = push_case(L, i);
    lua_pushinteger(L, i);
    if (c.inbox && fli_lua_take_oldest(L, p)) return 3;
    if (c.value_at != 0 && try_send(L, p, c.ch, c.channel_at, c.value_at)) {
        lua_pushnil(L);
        lua_pushboolean(L, 1);
        return 3;
    }
    if (c.ch != NULL && c.value_at == 0 && try_receive(L, p, c.ch, c.channel_at)) return 3;
    lua_settop(L, top);
    return 0;
}

/* Stores the value that case `i` offers, if the case sends. May raise a memory error. */
static void offer_value(lua_State *L, fli_lua_wait *wait, lua_Integer i)
{
    int   top = lua_gettop(L);
    offer c = push_case(L, i);
    wait->entries[i - 1].sends = c.value_at != 0;
    if (c.value_at != 0) entry_value_set(L, &wait->entries[i - 1], c.value_at);
    lua_settop(L, top);
}

/* Enters the queue of case `i`. Raises no error. */
static void enter_case(lua_State *L, fli_lua_wait *wait, lua_Integer i)
{
    int   top = lua_gettop(L);
    offer c = push_case(L, i);
    if (c.inbox) {
        wait->inbox = (uint32_t)i;
    } else {
        fli_lua_wait_enter(wait, (size_t)i - 1, c.value_at != 0 ? &c.ch->senders : &c.ch->receivers);
    }
    lua_settop(L, top);
}

/* Tries the cases from first to last. Returns the number of results pushed; 0: all cases have to wait. Sets *inbox if
 * the inbox is one of the cases that were tried. */
static int try_cases(lua_State *L, fli_lua_proc *p, lua_Integer count, bool *inbox)
{
    int results = 0;
    for (lua_Integer i = 1; i <= count && results == 0; i++) {
        lua_rawgeti(L, CASES, i);
        *inbox = *inbox || lua_tocfunction(L, -1) == channel_inbox;
        lua_pop(L, 1);
        results = try_case(L, p, i);
    }
    return results;
}

static int wait_for_cases(lua_State *L, fli_lua_proc *p, lua_Integer count, lua_KContext until_ns)
{
    fli_lua_wait_begin(L, p);
    fli_lua_wait *wait = fli_lua_wait_push(L, p, (size_t)count);
    wait->style = AS_SELECT;
    /* stores all values before the wait enters the first queue, because storing a value may raise an error */
    for (lua_Integer i = 1; i <= count; i++) offer_value(L, wait, i);
    for (lua_Integer i = 1; i <= count; i++) enter_case(L, wait, i);
    return resume_wait(L, LUA_OK, until_ns);
}

/* Tries all cases. If channel.inbox is one of them and no case can proceed, messages may still be in the mailbox: while
 * a process waits (filch_wait), the scheduler does not deliver messages to it. So the call pauses once, to let them
 * arrive, and tries all cases again. */
static int select_now(lua_State *L, int status, lua_KContext until_ns)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    lua_Integer   count = (lua_Integer)lua_rawlen(L, CASES);
    bool          inbox = false;
    int           results = try_cases(L, p, count, &inbox);
    if (results > 0) return results;
    if (inbox && status == LUA_OK) fli_lua_pause(L, until_ns, select_now);
    return wait_for_cases(L, p, count, until_ns);
}

/* channel.select(cases [, timeout]) -> number of the case, value, ok | nil, "timeout". Tries the cases in order; if all
 * have to wait, waits until one can proceed. */
static int channel_select(lua_State *L)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    if (!lua_istable(L, 1)) return luaL_error(L, "channel.select: the first argument must be a list of cases");
    uint64_t until = fli_lua_deadline(L, p, 2);
    lua_settop(L, 1);
    copy_cases(L, (lua_Integer)lua_rawlen(L, CASES));
    return select_now(L, LUA_OK, (lua_KContext)until);
}

const fli_lua_member fli_lua_channel_members[] = {
    { .library = "channel", .name = "new", .fn = channel_new },
    { .library = "channel", .name = "select", .fn = channel_select },
    { .library = "channel", .name = "inbox", .fn = channel_inbox },
    { .name = NULL },
};

/* ---- for timers ------------------------------------------------------------------------------------------------- */

void fli_lua_channel_push(lua_State *L)
{
    push_channel(L, 1);
}

bool fli_lua_is_channel(lua_State *L, int index)
{
    return to_userdata(L, index, &channel_key) != NULL;
}

bool fli_lua_channel_is_closed(lua_State *L, int index)
{
    return ((channel *)lua_touserdata(L, index))->closed;
}

void fli_lua_channel_offer(lua_State *L, int index, int value)
{
    channel *ch = lua_touserdata(L, index);
    if (!ch->closed) (void)try_send(L, fli_lua_self(L), ch, index, value);
}

void fli_lua_channel_close(lua_State *L, int index)
{
    close_channel(fli_lua_self(L), lua_touserdata(L, index));
}

void fli_lua_channel_set_timer(lua_State *L, int index)
{
    lua_setiuservalue(L, index, TIMER);
}

void fli_lua_channel_push_timer(lua_State *L, int index)
{
    (void)lua_getiuservalue(L, index, TIMER);
}
