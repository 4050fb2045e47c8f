/* patterns_test.c - Filch's string.find, match, gmatch and gsub return the same results as those of stock Lua, for any
 * pattern and text. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <string.h>

#include "base/prng.h"
#include "lua/host/libs.h"
#include "support/check.h"
#include "support/until.h"

static lua_CFunction ours(const char *name)
{
    for (const fli_lua_member *m = fli_lua_pattern_members; m->name != NULL; m++) {
        if (strcmp(m->name, name) == 0) return m->fn;
    }
    return NULL;
}

/* Draws a text of few different characters, so that patterns match sometimes. */
static size_t any_text(fli_prng *prng, char *text)
{
    static const char letters[] = "aabbc(())x=1 .\0%AZ\n";
    size_t            size = fli_prng_below(prng, 14);
    for (size_t i = 0; i < size; i++) text[i] = letters[fli_prng_below(prng, sizeof letters - 1)];
    text[size] = '\0';
    return size;
}

static void any_pattern(fli_prng *prng, char *pattern)
{
    static const char *const pieces[] = { "a",     "b",   ".",     "%a",    "%s",   "%d",     "%W",     "[ab]", "[^a]",
                                          "[a-c]", "[]]", "[^]x]", "[%a_]", "(",    ")",      "()",     "*",    "+",
                                          "-",     "?",   "^",     "$",     "%b()", "%f[%a]", "%f[^a]", "%1",   "%2",
                                          "%%",    "%.",  "=",     "[",     "%",    "x",      "[a-]",   "[%",   "%c",
                                          "%g",    "%l",  "%p",    "%u",    "%x",   "%U",     "(a)",    "(.-)", "(%w)",
                                          "%0",    "%f",  "%b",    "%b(",   "[^",   "[%u%-]", "(()" };
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
    "    return pcall(function() local all = {} for a, b in f(text, pattern, init) do all[#all + 1] = tostring(a) .. "
    "':' .. tostring(b) if #all > 40 then break end end return table.concat(all, ',') end)\n"
    "  elseif name == 'gsub' then return pcall(f, text, pattern, extra, init)\n"
    "  elseif name == 'find' then return pcall(f, text, pattern, init, extra == true)\n"
    "  else return pcall(f, text, pattern, init) end\n"
    "end\n"
    "local function words(...) local t = table.pack(...) for i = 1, t.n do t[i] = tostring(t[i]) end return "
    "table.concat(t, '|') end\n"
    "local a, b = words(run(stock)), words(run(ours))\n"
    "if a:find('^false') and b:find('^false') then return nil end\n"
    "if a ~= b then return name .. ' [' .. text .. '] [' .. pattern .. '] ' .. tostring(extra) .. ' ' .. "
    "tostring(init) .. ': ' .. a .. ' / ' .. b end\n";

TEST(pattern_functions_agree_with_stock_lua_on_random_input)
{
    static const char *const names[] = { "find", "match", "gmatch", "gsub" };
    lua_State               *L = luaL_newstate();
    *(void **)lua_getextraspace(L) = NULL; /* the state belongs to no Lua process, so budgets are not checked */
    fli_prng prng;
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
        switch (fli_prng_below(&prng, 10)) {
        case 0: lua_pushstring(L, "<%0%1>"); break;
        case 1: lua_pushstring(L, "[%%]"); break;
        case 2: lua_getglobal(L, "tostring"); break;
        case 3: lua_pushstring(L, "%2:%9"); break;
        case 4: lua_pushstring(L, "ends with %"); break;
        case 5: lua_pushstring(L, "%a"); break;
        case 6: lua_pushstring(L, "%:"); break;
        case 7: lua_pushnumber(L, 1.5); break;
        case 8: lua_pushboolean(L, 1); break;
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

/* Cases that random patterns hardly ever contain. */
TEST(pattern_functions_agree_with_stock_lua_on_edge_cases)
{
    static const char chunk[] =
        "local find, match, gmatch, gsub = ...\n"
        "local cases = {\n"
        "  { 'find', 'a\\0b', '\\0' }, { 'find', 'a\\0b', '\\0b', 1, true }, { 'find', 'abc', 'b', 10 }, { 'find', '', "
        "'' }, { 'find', 'abc', '', 4 },\n"
        "  { 'find', 'abab', '(ab)%1' }, { 'find', 'abac', '(ab)%1' }, { 'find', 'ab', '()%1' }, { 'match', 'xyxy!', "
        "'((x)y)%1' },\n"
        "  { 'match', ('x'):rep(33), ('(x)'):rep(32) }, { 'match', ('x'):rep(33), ('(x)'):rep(33) }, { 'match', 'abc', "
        "'%' }, { 'match', 'abc', 'a)' },\n"
        "  { 'match', 'abc', '(a' }, { 'match', 'THE (quick) fox', '%((%a+)%)' }, { 'match', 'x', '%f' }, { 'match', "
        "'x', '%fx' }, { 'match', 'x', '%b' }, { 'match', 'x', '%bx' },\n"
        "  { 'gsub', 'abc', '%w', '%%%0' }, { 'gsub', 'abc', 'b', '%' }, { 'gsub', 'abc', 'b', '%q' }, { 'gsub', "
        "'abc', 'b', '%1' }, { 'gsub', 'abc', 'b', '%2' },\n"
        "  { 'gsub', 'abc', 'b', 7 }, { 'gsub', 'abc', 'b', 7.5 }, { 'gsub', 'abc', 'b', {} }, { 'gsub', 'abc', 'b', { "
        "b = {} } }, { 'gsub', 'abc', 'b', { b = 1 } }, { 'gsub', 'abc', 'b', { b = false } },\n"
        "  { 'gsub', 'abc', 'b', function() return {} end }, { 'gsub', 'abc', '(b)()', function(x, at) return x .. at "
        "end }, { 'gsub', 'abc', 'b', true }, { 'gsub', 'abc', 'b' },\n"
        "  { 'gsub', 'abc', '', '-' }, { 'gsub', 'abc', '.', 'x', 2 }, { 'gsub', 'abc', '^.', 'x' }, { 'gsub', 'abc', "
        "'.', 'x', -1 }, { 'gsub', ('x'):rep(3000), 'y', 'z' },\n"
        "  { 'gsub', ('x'):rep(600), 'x', 'ab' }, { 'gsub', ('x'):rep(600), 'x', '%%' }, { 'gsub', {}, 'x', 'y' }, { "
        "'find', 'x' }, { 'match', 'x', 'x', {} }, { 'gsub', 'hello world', '%w+', '%0 %0', 1 },\n"
        "}\n"
        "local function run(f, c)\n"
        "  local t = table.pack(pcall(f, table.unpack(c, 2)))\n"
        "  if not t[1] then return 'refused' end\n"
        "  for i = 1, t.n do t[i] = math.type(t[i]) == 'float' and 'f' .. t[i] or tostring(t[i]) end return "
        "table.concat(t, '|')\n"
        "end\n"
        "local ours, taken = { find = find, match = match, gmatch = gmatch, gsub = gsub }, 0\n"
        "for i, c in ipairs(cases) do\n"
        "  local a, b = run(string[c[1]], c), run(ours[c[1]], c)\n"
        "  if a ~= b then error(i .. ': ' .. c[1] .. ' ' .. tostring(c[3]) .. ': ' .. a .. ' / ' .. b) end\n"
        "  if a ~= 'refused' then taken = taken + 1 end\n"
        "end\n"
        "assert(taken == 27, taken)\n"
        "local fine, why = pcall(find, ('a'):rep(300), ('a?'):rep(300)) assert(not fine and why:find('too complex'), "
        "why)\n"
        "for a, b in gmatch('k=v', '(%w)=(%w)') do assert(a == 'k' and b == 'v') end\n"
        "assert(not pcall(gmatch, 'x')) assert(not pcall(gmatch, 'x', 'x', {}))\n";
    lua_State *L = luaL_newstate();
    *(void **)lua_getextraspace(L) = NULL; /* the state belongs to no Lua process, so budgets are not checked */
    luaL_openlibs(L);
    ok(luaL_loadstring(L, chunk));
    lua_pushcfunction(L, ours("find"));
    lua_pushcfunction(L, ours("match"));
    lua_pushcfunction(L, ours("gmatch"));
    lua_pushcfunction(L, ours("gsub"));
    if (lua_pcall(L, 4, 0, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
    lua_close(L);
}

TEST(a_pattern_with_too_much_backtracking_fails)
{
    lua_State *L = luaL_newstate();
    *(void **)lua_getextraspace(L) = NULL; /* the state belongs to no Lua process, so budgets are not checked */
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
        cmocka_unit_test(pattern_functions_agree_with_stock_lua_on_random_input),
        cmocka_unit_test(pattern_functions_agree_with_stock_lua_on_edge_cases),
        cmocka_unit_test(a_pattern_with_too_much_backtracking_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
