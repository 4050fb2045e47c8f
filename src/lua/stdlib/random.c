/* random.c - math.random and math.randomseed with a generator for each process. Stock Lua seeds its generator by the
 * time and an address, so runs of a simulation could not be repeated. The algorithm is xoshiro256**, as in stock
 * Lua. */
#include <lauxlib.h>
#include <string.h>

#include "base/prng.h"
#include "lua/host/libs.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"

static void seed(fli_lua_proc *p, uint64_t a, uint64_t b)
{
    uint64_t *s = p->rare->random;
    s[0] = fli_prng_mix(a);
    s[1] = fli_prng_mix(s[0] ^ b);
    s[2] = fli_prng_mix(s[1]);
    s[3] = fli_prng_mix(s[2]) | 1;
    p->random_ready = true;
}

/* Returns the process that L belongs to. Allocates memory for its random generator if needed; next() seeds the
 * generator. */
static fli_lua_proc *prepared(lua_State *L)
{
    fli_lua_proc *p = fli_lua_self(L);
    if (fli_lua_rarely(p) == NULL) luaL_error(L, "not enough memory");
    return p;
}

static uint64_t rotate_left(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static uint64_t next(fli_lua_proc *p)
{
    if (!p->random_ready) seed(p, p->seed, p->self.serial);
    uint64_t *s = p->rare->random, result = rotate_left(s[1] * 5, 7) * 9, moved = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= moved;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* Returns a number from 0 to `limit` inclusive, uniformly distributed. */
static uint64_t below(fli_lua_proc *p, uint64_t limit)
{
    if ((limit & (limit + 1)) == 0) return next(p) & limit;
    uint64_t mask = UINT64_MAX >> __builtin_clzll(limit), number;
    do number = next(p) & mask;
    while (number > limit);
    return number;
}

static int math_random(lua_State *L)
{
    fli_lua_proc *p = prepared(L);
    lua_Integer   low = 1, high;
    switch (lua_gettop(L)) {
    case 0: lua_pushnumber(L, (lua_Number)(next(p) >> 11) * 0x1p-53); return 1;
    case 1:
        high = luaL_checkinteger(L, 1);
        if (high == 0) {
            lua_pushinteger(L, (lua_Integer)next(p));
            return 1;
        }
        break;
    case 2:
        low = luaL_checkinteger(L, 1);
        high = luaL_checkinteger(L, 2);
        break;
    default: return luaL_error(L, "wrong number of arguments");
    }
    fli_lua_check_arg(L, low <= high, lua_gettop(L), "interval is empty");
    lua_pushinteger(L, (lua_Integer)(below(p, (uint64_t)high - (uint64_t)low) + (uint64_t)low));
    return 1;
}

/* math.randomseed: without arguments the generator returns to the seed of the process, because a run with any other
 * random seed could not be repeated. */
static int math_randomseed(lua_State *L)
{
    fli_lua_proc *p = prepared(L);
    uint64_t      a = p->seed, b = p->self.serial;
    if (!lua_isnone(L, 1)) {
        lua_Number number = luaL_checknumber(L, 1);
        if (lua_isinteger(L, 1)) a = (uint64_t)lua_tointeger(L, 1);
        else memcpy(&a, &number, sizeof a);
        b = (uint64_t)luaL_optinteger(L, 2, 0);
    }
    seed(p, a, b);
    lua_pushinteger(L, (lua_Integer)a);
    lua_pushinteger(L, (lua_Integer)b);
    return 2;
}

const fli_lua_member fli_lua_random_members[] = {
    { .library = "math", .name = "random", .fn = math_random },
    { .library = "math", .name = "randomseed", .fn = math_randomseed },
    { .name = NULL },
};
