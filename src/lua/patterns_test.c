/* patterns_test.c - our string.find, match, gmatch and gsub say what stock Lua's say, for any pattern and text. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <string.h>

#include "base/prng.h"
#include "lua/libs.h"
#include "support/check.h"
#include "support/until.h"

static lua_CFunction ours(const char *name)
{
    for (const fli_lua_member *m = fli_lua_pattern_members; m->name != NULL; m++) {
        if (strcmp(m->name, name) == 0) return m->fn;
    }
    return NULL;
}

/* Texts of few letters, so that they match now and then; patterns of pieces that mean something. */
static size_t any_text(fli_prng *prng, char *text)
{
    static const char letters[] = "aabbc(())x=1 .\0%";
    size_t            size = fli_prng_below(prng, 14);
    for (size_t i = 0; i < size; i++) text[i] = letters[fli_prng_below(prng, sizeof letters - 1)];
    text[size] = '\0';
    return size;
}

static void any_pattern(fli_prng *prng, char *pattern)
{
    static const char *const pieces[] = { "a", "b", ".", "%a", "%s", "%d", "%W", "[ab]", "[^a]", "[a-c]", "[]]", "[^]x]", "[%a_]", "(", ")",
                                          "()", "*", "+", "-", "?", "^", "$", "%b()", "%f[%a]", "%f[^a]", "%1", "%2", "%%", "%.", "=", "[",
                                          "%", "x", "[a-]", "[%" };
    pattern[0] = '\0';
    for (uint32_t n = fli_prng_below(prng, 7); n > 0; n--) {
        strcat(pattern, pieces[fli_prng_below(prng, sizeof pieces / sizeof pieces[0])]);
    }
}

static const char script[] =
    "local ours, name, text, pattern, extra, init = ...\n"
    "local stock = string[name]\n"
    "local function run(f)\n"
    "  if name == 'gmatch' then\n"
    "    return pcall(function() local all = {} for a, b in f(text, pattern, init) do all[#all + 1] = tostring(a) .. ':' .. tostring(b) if #all > 40 then break end end return table.concat(all, ',') end)\n"
    "  elseif name == 'gsub' then return pcall(f, text, pattern, extra, init)\n"
    "  elseif name == 'find' then return pcall(f, text, pattern, init, extra == true)\n"
    "  else return pcall(f, text, pattern, init) end\n"
    "end\n"
    "local function words(...) local t = table.pack(...) for i = 1, t.n do t[i] = tostring(t[i]) end return table.concat(t, '|') end\n"
    "local a, b = words(run(stock)), words(run(ours))\n"
    "if a:find('^false') and b:find('^false') then return nil end\n"
    "if a ~= b then return name .. ' [' .. text .. '] [' .. pattern .. '] ' .. tostring(extra) .. ' ' .. tostring(init) .. ': ' .. a .. ' / ' .. b end\n";

TEST(ours_say_what_stock_luas_say)
{
    static const char *const names[] = { "find", "match", "gmatch", "gsub" };
    lua_State               *L = luaL_newstate();
    fli_prng                 prng;
    luaL_openlibs(L);
    ok(luaL_loadstring(L, script));
    fli_prng_init(&prng, 42);
    for (uint64_t i = scaled(200000); i > 0; i--) {
        char        text[32], pattern[64];
        const char *name = names[fli_prng_below(&prng, 4)];
        size_t      size = any_text(&prng, text);
        any_pattern(&prng, pattern);
        lua_pushvalue(L, 1);
        lua_pushcfunction(L, ours(name));
        lua_pushstring(L, name);
        lua_pushlstring(L, text, size);
        lua_pushstring(L, pattern);
        switch (fli_prng_below(&prng, 4)) {
        case 0: lua_pushstring(L, "<%0%1>"); break;
        case 1: lua_pushstring(L, "[%%]"); break;
        case 2: lua_getglobal(L, "tostring"); break;
        default:
            lua_createtable(L, 0, 1);
            lua_pushstring(L, "A");
            lua_setfield(L, -2, "a");
        }
        if (fli_prng_below(&prng, 3) == 0) lua_pushinteger(L, (int)fli_prng_below(&prng, 20) - 6);
        else lua_pushnil(L);
        if (lua_pcall(L, 6, 1, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
        if (!lua_isnil(L, -1)) fail_msg("%s", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    lua_close(L);
}

TEST(a_pattern_that_tries_everything_fails_instead)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    lua_pushcfunction(L, ours("find"));
    ok(luaL_loadstring(L, "return ('a'):rep(3000), ('.-'):rep(30) .. 'b'"));
    lua_call(L, 0, 2);
    same(lua_pcall(L, 2, 1, 0), LUA_ERRRUN);
    assert_non_null(strstr(lua_tostring(L, -1), "takes too long"));
    lua_close(L);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ours_say_what_stock_luas_say),
        cmocka_unit_test(a_pattern_that_tries_everything_fails_instead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
