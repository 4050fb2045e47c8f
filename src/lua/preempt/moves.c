/* moves.c - see moves.h. */
#include "lua/preempt/moves.h"

#include <string.h>

#include "lua/preempt/budget.h"
#include "lua/preempt/preempt.h"

#define IN_CONCAT "a __concat metamethod that cannot be interrupted has made Lua move its stack (a defect of Lua 5.4.4)"

/* Number of active calls that are searched for a metamethod. Lua finds a call in a time that grows with its depth, so
 * the search takes up to about CALLS_MAX^2 / 2 steps, some microseconds. */
enum { CALLS_MAX = 100 };

void fli_lua_moves_note(fli_lua_heap *heap)
{
    fli_lua_proc *p = (fli_lua_proc *)heap; /* `heap` is the first member of fli_lua_proc */
    lua_State    *L = fli_load_rlx(&p->running);
    if (L == NULL) return;
    p->stack_moved = true;
    if (!fli_lua_closing_notes(L)) fli_lua_preempt_arm_returns(L);
}

static bool is_concat(const lua_Debug *call)
{
    return call->name != NULL && strcmp(call->namewhat, "metamethod") == 0 && strcmp(call->name, "concat") == 0;
}

/* Returns true if a __concat metamethod may be active in L. Also returns true in two cases in which this cannot be
 * known: Lua does not record the caller of a function that was called by a tail call, and only CALLS_MAX active calls
 * are examined. */
static bool may_concat(lua_State *L)
{
    lua_Debug call;
    for (int level = 0; level < CALLS_MAX; level++) {
        if (lua_getstack(L, level, &call) == 0) return false;
        if (lua_getinfo(L, "nt", &call) == 0 || call.istailcall || is_concat(&call)) return true;
    }
    return true;
}

bool fli_lua_moves_matter(lua_State *L, fli_lua_proc *p)
{
    if (may_concat(L)) return true;
    for (fli_lua_outer *outer = p->outer; outer != NULL; outer = outer->next)
        outer->stack_moved = outer->stack_moved || may_concat(outer->L);
    p->stack_moved = false;
    return false;
}

/* ---- searching the code of a function for the operator `..` ------------------------------------------------- */

/* The output of lua_dump() for a function without debug information begins with HEADER bytes, the byte of the missing
 * source, two numbers (lines), three bytes, the number of instructions, and the instructions. A number is a sequence of
 * bytes, of which the last one has the bit 0x80. OPCODE: the bits of an instruction that are its opcode. */
enum { HEADER = 32, SOURCE = 1, NUMBERS = 2, BYTES = 3, OPCODE = 0x7f, CONCAT = 53 };

/* A search of this many instructions takes some microseconds. If a longer function has no `..`, it is remembered and
 * not searched again; a function that has `..` ends its process. */
enum { SEARCH_MAX = 1000 };

typedef struct code_search {
    /* What must still be read before the number of instructions: first to_skip bytes, then `numbers` numbers, then
     * `bytes` bytes. */
    int      to_skip, numbers, bytes;
    bool     counted, found;
    uint64_t size;        /* if `counted`: number of instructions */
    uint64_t left;        /* if `counted`: instructions not read yet; otherwise the digits of `size` read so far */
    uint8_t  part[4];     /* bytes of an instruction */
    size_t   part_length; /* bytes in `part` */
} code_search;

static void search_byte(code_search *s, uint8_t byte)
{
    uint32_t instruction;
    if (s->to_skip > 0) {
        s->to_skip--;
    } else if (s->numbers > 0) {
        s->numbers -= (byte & 0x80) != 0;
    } else if (s->bytes > 0) {
        s->bytes--;
    } else if (!s->counted) {
        s->left = (s->left << 7) | (byte & 0x7f);
        s->counted = (byte & 0x80) != 0;
        s->size = s->left;
    } else if (s->left > 0) {
        s->part[s->part_length++] = byte;
        if (s->part_length < sizeof s->part) return;
        memcpy(&instruction, s->part, sizeof instruction);
        s->found = s->found || (instruction & OPCODE) == CONCAT;
        s->part_length = 0;
        s->left--;
    }
}

/* Writer function of lua_dump(): searches one piece of the dump. Ends the dump when a `..` was found or all
 * instructions of the function have been read. */
static int search_piece(lua_State *L, const void *piece, size_t size, void *user)
{
    code_search *s = user;
    (void)L;
    for (size_t i = 0; i < size && !s->found; i++) search_byte(s, ((const uint8_t *)piece)[i]);
    return s->found || (s->counted && s->left == 0);
}

/* The address of this variable is the registry key of a table with weak keys: the functions that are longer than
 * SEARCH_MAX and have no `..` operator. */
static const char known_key;

/* Returns true if the function on top of the stack is in the table of `known_key`. */
static bool is_known(lua_State *L)
{
    int  function = lua_gettop(L);
    bool known = false;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &known_key) == LUA_TTABLE) {
        lua_pushvalue(L, function);
        known = lua_rawget(L, -2) != LUA_TNIL;
    }
    lua_settop(L, function);
    return known;
}

/* Adds the function on top of the stack to the table of `known_key`. */
static void add_known(lua_State *L)
{
    int function = lua_gettop(L);
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &known_key) != LUA_TTABLE) {
        lua_createtable(L, 0, 1);
        lua_createtable(L, 0, 1);
        lua_pushliteral(L, "k");
        lua_setfield(L, -2, "__mode");
        lua_setmetatable(L, -2);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &known_key);
    }
    lua_pushvalue(L, function);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_settop(L, function);
}

/* Returns true if the Lua function on top of the stack has a `..` operator. A long function without `..` is searched
 * only once, however many of its calls return. */
static bool function_concats(lua_State *L)
{
    code_search s = { .to_skip = HEADER + SOURCE, .numbers = NUMBERS, .bytes = BYTES };
    if (is_known(L)) return false;
    (void)lua_dump(L, search_piece, &s, 1);
    if (s.found || s.size <= SEARCH_MAX) return s.found;
    add_known(L);
    (void)fli_lua_budget_due(L); /* raises the final error if the budget is spent */
    return false;
}

/* Returns true if the caller of the running function is a function in Lua that has a `..` operator. */
static bool caller_concats(lua_State *L)
{
    lua_Debug caller;
    if (lua_getstack(L, 1, &caller) == 0 || lua_getinfo(L, "f", &caller) == 0) return false;
    bool concats = !lua_iscfunction(L, -1) && function_concats(L);
    lua_pop(L, 1);
    return concats;
}

/* ------------------------------------------------------------------------------------------------------------- */

void fli_lua_moves_check(lua_State *L, fli_lua_proc *p, lua_Debug *call)
{
    if (!p->stack_moved || lua_getinfo(L, "nt", call) == 0) return;
    /* Lua does not know the name of a function that was called by a tail call, so the caller's code is searched
     * instead. */
    if (is_concat(call) || (call->istailcall && caller_concats(L))) (void)fli_lua_budget_stop(L, p, IN_CONCAT);
}

static int return_results(lua_State *L, int status, lua_KContext count)
{
    (void)L, (void)status;
    return (int)count;
}

int fli_lua_moves_pause(lua_State *L, fli_lua_proc *p, int count)
{
    if (!fli_lua_moves_matter(L, p)) return count;
    if (!fli_lua_can_pause(L, p)) {
        /* fli_lua_moves_note() has set the hook only in the coroutine that ran when the stack moved. L may be another
         * coroutine, so the hook is set in L too. */
        fli_lua_preempt_arm_returns(L);
        return count;
    }
    /* Removes the hook: it would also run when this C function returns after the pause, and running the hook could move
     * the stack again. */
    fli_lua_preempt_disarm(L, p);
    p->why = FLI_LUA_BY_PAUSE;
    return lua_yieldk(L, 0, count, return_results);
}
