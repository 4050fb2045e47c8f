/* sort.c - table.sort that can be suspended: other processes run during a long sort, and a comparison may take long or
 * wait.
 *
 * Stock Lua keeps the state of a sort on the C stack. This sort merges runs of 1, 2, 4, ... elements from one list into
 * another and back. The table itself is read at the beginning and written at the end, so an error in a comparison
 * leaves the table unchanged. Elements that compare equal keep their order.
 * Design: docs/design/lua/budgets.md.
 */
#include <lauxlib.h>
#include <limits.h>

#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/value/checks.h"

/* Stack indexes of table.sort: TABLE, LESS (a function or nil), STATE (the struct `sort`), FROM (the list that is
 * read), INTO (the list that is written); during a comparison also the two elements LEFT and RIGHT. */
enum { TABLE = 1, LESS, STATE, FROM, INTO, LEFT, RIGHT };
/* ROUNDS: number of comparisons (some microseconds) between two checks of the budget. BYTES: number of bytes of a
 * compared string that count as one comparison. */
enum { ROUNDS = 256, BYTES = 256 };

typedef enum phase { READ, MERGE, WRITE } phase;

typedef struct sort {
    lua_Integer count, width;
    lua_Integer low, middle, high; /* the two runs being merged: (low, middle] and (middle, high] */
    /* positions of the last element taken from the left run, taken from the right run, and written */
    lua_Integer left, right, out;
    phase       phase;
    unsigned    rounds;
} sort;

static int resume_sort(lua_State *L, int status, lua_KContext ctx);
static int go_on_compared(lua_State *L, int status, lua_KContext ctx);

static lua_Integer least(lua_Integer a, lua_Integer b)
{
    return a < b ? a : b;
}

static void set_runs(sort *s, lua_Integer low)
{
    s->low = s->left = s->out = low;
    s->middle = s->right = least(low + s->width, s->count);
    s->high = least(low + 2 * s->width, s->count);
}

/* Called when two runs have been merged into one: continues with the next two runs, then with runs of double length,
 * and at the end with writing the table. */
static void next_runs(lua_State *L, sort *s)
{
    if (s->high < s->count) {
        set_runs(s, s->high);
        return;
    }
    lua_pushvalue(L, FROM);
    lua_copy(L, INTO, FROM);
    lua_replace(L, INTO);
    s->width *= 2;
    set_runs(s, 0);
    if (s->width >= s->count) s->phase = WRITE, s->out = 0;
}

/* Takes the next element of the left or right run, and writes it to INTO. */
static void put_element(lua_State *L, sort *s, bool right)
{
    lua_rawgeti(L, FROM, right ? ++s->right : ++s->left);
    lua_rawseti(L, INTO, ++s->out);
}

/* Returns true if the element RIGHT is less than the element LEFT. If the program gave a comparison function, returns
 * its result; that function may be interrupted, and then the sort continues later. */
static bool is_right_less(lua_State *L, sort *s)
{
    lua_rawgeti(L, FROM, s->left + 1);
    lua_rawgeti(L, FROM, s->right + 1);
    if (lua_isnil(L, LESS)) {
        if (lua_type(L, LEFT) != LUA_TSTRING) return lua_compare(L, RIGHT, LEFT, LUA_OPLT);
        if (lua_topointer(L, LEFT) == lua_topointer(L, RIGHT))
            return false; /* the same string is not less; comparing a long string with itself would read every byte */
        s->rounds += (unsigned)(lua_rawlen(L, LEFT) / BYTES);
        return lua_compare(L, RIGHT, LEFT, LUA_OPLT);
    }
    lua_pushvalue(L, LESS);
    lua_pushvalue(L, RIGHT);
    lua_pushvalue(L, LEFT);
    lua_callk(L, 2, 1, 0, go_on_compared);
    s->rounds = ROUNDS; /* the budget is checked next, because the function may be a C function that has taken long */
    return lua_toboolean(L, -1);
}

static void merge_one(lua_State *L, sort *s)
{
    if (s->out == s->high) {
        next_runs(L, s);
        return;
    }
    bool right = s->left == s->middle || (s->right < s->high && is_right_less(L, s));
    lua_settop(L, INTO);
    put_element(L, s, right);
}

static int run(lua_State *L)
{
    sort *s = lua_touserdata(L, STATE);
    for (;;) {
        if (++s->rounds >= ROUNDS) {
            s->rounds = 0;
            if (fli_lua_budget_due(L)) fli_lua_pause(L, 0, resume_sort);
        }
        switch (s->phase) {
        case READ:
            lua_geti(L, TABLE, ++s->out);
            lua_rawseti(L, FROM, s->out);
            if (s->out == s->count) s->phase = MERGE, set_runs(s, 0);
            break;
        case MERGE: merge_one(L, s); break;
        case WRITE:
            lua_rawgeti(L, FROM, ++s->out);
            lua_seti(L, TABLE, s->out);
            if (s->out == s->count) return 0;
            break;
        }
    }
}

static int resume_sort(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    return run(L);
}

static int go_on_compared(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    bool right = lua_toboolean(L, -1);
    lua_settop(L, INTO);
    put_element(L, lua_touserdata(L, STATE), right);
    return run(L);
}

static int table_sort(lua_State *L)
{
    fli_lua_check_table(L, 1);
    lua_Integer count = luaL_len(L, 1);
    if (count < 2) return 0;
    fli_lua_check_arg(L, count < INT_MAX, 1, "array too big");
    if (!lua_isnoneornil(L, LESS)) luaL_checktype(L, LESS, LUA_TFUNCTION);
    lua_settop(L, LESS);
    /* space is reserved for at most the real length, because a __len metamethod may return any number */
    int room = (int)least(count, (lua_Integer)lua_rawlen(L, 1));
    *(sort *)lua_newuserdatauv(L, sizeof(sort), 0) = (sort){ .count = count, .width = 1 };
    lua_createtable(L, room, 0);
    lua_createtable(L, room, 0);
    return run(L);
}

const fli_lua_member fli_lua_sort_members[] = {
    { .library = "table", .name = "sort", .fn = table_sort },
    { .name = NULL },
};
