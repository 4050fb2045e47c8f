/* entries.c - see entries.h. */
#include "lua/host/entries.h"

#include "base/assert.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"

static int go_on_call(lua_State *L, int status, lua_KContext number)
{
    (void)status;
    return fli_lua_moves_return(L, fli_lua_self(L)->lua->names.members[number].fn(L));
}

static int call(lua_State *L, size_t number)
{
    fli_lua_budget_enter(L, (lua_KContext)number, go_on_call);
    return fli_lua_moves_return(L, fli_lua_self(L)->lua->names.members[number].fn(L));
}

/* The 256 entries (entries.h) are C functions named by four digits from 0 to 3: entry_0000 to entry_3333. */
#define FOUR(X, n) X(n##0) X(n##1) X(n##2) X(n##3)
#define FOURS(X, n) FOUR(X, n##0) FOUR(X, n##1) FOUR(X, n##2) FOUR(X, n##3)
#define PART(X, n) FOURS(X, n##0) FOURS(X, n##1) FOURS(X, n##2) FOURS(X, n##3)
#define ALL(X) PART(X, 0) PART(X, 1) PART(X, 2) PART(X, 3)

#define NUMBER(n) NUMBER_##n,
enum { ALL(NUMBER) };

#define ENTRY(n)                       \
    static int entry_##n(lua_State *L) \
    {                                  \
        return call(L, NUMBER_##n);    \
    }
ALL(ENTRY)

#define NAME(n) entry_##n,
static const lua_CFunction entries[] = { ALL(NAME) };

/* The entries of brief functions, numbered from 0 on (fli_lua_names.brief). */
#define BRIEF(n)                                                                          \
    static int brief_##n(lua_State *L)                                                    \
    {                                                                                     \
        return fli_lua_moves_return(L, fli_lua_self(L)->lua->names.brief[NUMBER_##n](L)); \
    }
FOUR(BRIEF, 000)
FOUR(BRIEF, 001)

#define BRIEF_NAME(n) brief_##n,
static const lua_CFunction briefs[] = { FOUR(BRIEF_NAME, 000) FOUR(BRIEF_NAME, 001) };

lua_CFunction fli_lua_brief(size_t number)
{
    _Static_assert(sizeof briefs / sizeof briefs[0] == FLI_LUA_BRIEF_MAX, "one entry for each brief function");
    FLI_ASSERT(number < FLI_LUA_BRIEF_MAX);
    return briefs[number];
}

lua_CFunction fli_lua_checked(size_t number)
{
    _Static_assert(sizeof entries / sizeof entries[0] == FLI_LUA_MEMBERS_MAX, "one entry for each member");
    FLI_ASSERT(number < FLI_LUA_MEMBERS_MAX);
    return entries[number];
}
