/* libs.c - see libs.h. */
#include "lua/host/libs.h"

#include <lauxlib.h>
#include <lualib.h>
#include <string.h>

#include "base/assert.h"
#include "lua/host/code.h"
#include "lua/host/entries.h"
#include "lua/host/host.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"

/* The longest name of a library or of a member. Longer names are not looked up, because a lookup takes time
 * proportional to the length of the name. */
enum { MEMBER_NAME_MAX = 64 };

/* The functions of stock Lua that are used unchanged: they cannot access anything outside the process, cannot damage
 * the state, and one call does not run for long inside C. All other functions are replaced (src/lua/stdlib) or left
 * out: io, os except the clock, debug, package, string.dump, collectgarbage. */
static const char *const stock[] = {
    "_G.assert",         "_G.error",    "_G.getmetatable", "_G.next",          "_G.rawequal",
    "_G.rawget",         "_G.rawlen",   "_G.rawset",       "_G.select",        "_G.tonumber",
    "_G.tostring",       "_G.type",     "_G._VERSION",     "coroutine.create", "coroutine.isyieldable",
    "coroutine.running", "string.byte", "string.len",      "string.sub",       "table.pack",
    "math.abs",          "math.acos",   "math.asin",       "math.atan",        "math.ceil",
    "math.cos",          "math.deg",    "math.exp",        "math.floor",       "math.fmod",
    "math.huge",         "math.log",    "math.maxinteger", "math.mininteger",  "math.modf",
    "math.pi",           "math.rad",    "math.sin",        "math.sqrt",        "math.tan",
    "math.tointeger",    "math.type",   "math.ult",        "utf8.charpattern", "utf8.codepoint",
    "utf8.len",          "utf8.offset", "os.difftime",     "debug.traceback",
};

/* Functions that programs call without a check of the budget (entries.h), because they take less than a microsecond
 * whatever their arguments are, or because they check the budget themselves (process.terminate). */
static const char *const brief[] = { "coroutine.isyieldable",
                                     "coroutine.running",
                                     "getmetatable",
                                     "math.type",
                                     "process.terminate",
                                     "rawlen",
                                     "string.len",
                                     "type" };
_Static_assert(sizeof brief / sizeof brief[0] <= FLI_LUA_BRIEF_MAX, "an entry for each brief function");

/* Only channel.inbox has no entry: channel.select recognizes the value by its C function, which an entry would hide.
 * The function only raises an error. */
#define WITHOUT_ENTRY "channel.inbox"

static const char *find_library(const fli_lua_names *names, const char *library)
{
    for (size_t i = 0; i < names->library_count; i++) {
        if (strcmp(names->libraries[i], library) == 0) return names->libraries[i];
    }
    return NULL;
}

/* Returns the index in names->places at which the search for the member `name` of `library` begins. `library` is one of
 * names->libraries, or NULL for the globals. */
static size_t place_of(const char *library, const char *name)
{
    uint64_t hash = (uint64_t)(uintptr_t)library * UINT64_C(0x9E3779B97F4A7C15);
    for (; *name != '\0'; name++) hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001B3);
    return (hash ^ hash >> 32) % FLI_LUA_PLACES;
}

/* Returns the index of the member in names->places, or, if it is not there, the index of the free element to which it
 * would be added. */
static size_t find_place(const fli_lua_names *names, const char *library, const char *name)
{
    size_t place = place_of(library, name);
    for (; names->places[place] != 0; place = (place + 1) % FLI_LUA_PLACES) {
        const fli_lua_member *member = &names->members[names->places[place] - 1];
        if (member->library == library && strcmp(member->name, name) == 0) break;
    }
    return place;
}

/* Returns true if the `size` bytes at `word` are the full name of the member. */
static bool is_name_of(const fli_lua_member *member, const char *word, size_t size)
{
    size_t library = member->library != NULL ? strlen(member->library) + 1 : 0;
    if (size != library + strlen(member->name)) return false;
    if (library > 0 && (memcmp(word, member->library, library - 1) != 0 || word[library - 1] != '.')) return false;
    return memcmp(word + library, member->name, size - library) == 0;
}

static bool is_left_out(const char *without, const fli_lua_member *member)
{
    for (const char *at = without; at != NULL && *at != '\0'; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        if (size > 0 && is_name_of(member, at, size)) return true;
        at += size;
    }
    return false;
}

/* Returns what programs get for the function of the member, which has the number `number`. */
static lua_CFunction entry_of(fli_lua_names *names, const fli_lua_member *member, size_t number)
{
    if (is_name_of(member, WITHOUT_ENTRY, strlen(WITHOUT_ENTRY))) return member->fn;
    for (size_t i = 0; i < sizeof brief / sizeof brief[0]; i++) {
        if (!is_name_of(member, brief[i], strlen(brief[i]))) continue;
        names->brief[i] = member->fn;
        return fli_lua_brief(i);
    }
    return fli_lua_checked(number);
}

/* Adds a member. The number of members is fixed by the tables in Filch's sources, so names->places always has a free
 * element. */
static void add(fli_lua_names *names, const fli_lua_member *member)
{
    if (is_left_out(names->without, member)) return;
    const char *library = member->library != NULL ? find_library(names, member->library) : NULL;
    FLI_ASSERT(names->count < FLI_LUA_MEMBERS_MAX);
    if (library == NULL && member->library != NULL) {
        FLI_ASSERT(names->library_count < FLI_LUA_LIBRARIES_MAX);
        library = names->libraries[names->library_count++] = member->library;
    }
    names->members[names->count] = *member;
    names->members[names->count].library = library;
    names->members[names->count].entry = entry_of(names, member, names->count);
    names->places[find_place(names, library, member->name)] = (uint16_t)++names->count;
}

static void add_all(fli_lua_names *names, const fli_lua_member *members)
{
    for (; members->name != NULL; members++) add(names, members);
}

/* Returns the library name in the `size` bytes at `stock_name`, as a string that lives as long as the program. Returns
 * NULL for the globals. */
static const char *library_name(const char *stock_name, size_t size)
{
    static const char *const known[] = { "coroutine", "string", "table", "math", "utf8", "os", "debug" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i]) == size && memcmp(known[i], stock_name, size) == 0) return known[i];
    }
    return NULL; /* the globals */
}

/* The functions of stock Lua are static in its library. So this function opens the libraries in a separate state and
 * reads the functions from there. */
static int harvest(lua_State *L)
{
    fli_lua_names *names = lua_touserdata(L, 1);
    luaL_openlibs(L);
    for (size_t i = 0; i < sizeof stock / sizeof stock[0]; i++) {
        const char    *dot = strchr(stock[i], '.');
        fli_lua_member member = { .library = library_name(stock[i], (size_t)(dot - stock[i])), .name = dot + 1 };
        lua_getglobal(L, member.library != NULL ? member.library : "_G");
        lua_getfield(L, -1, member.name);
        if (lua_iscfunction(L, -1)) member.fn = lua_tocfunction(L, -1);
        else if (lua_isinteger(L, -1)) member.is_integer = true, member.integer = lua_tointeger(L, -1);
        else if (lua_type(L, -1) == LUA_TNUMBER) member.is_number = true, member.number = lua_tonumber(L, -1);
        else if (strcmp(member.name, "charpattern") == 0) member.text = "[\0-\x7F\xC2-\xFD][\x80-\xBF]*";
        else member.text = LUA_VERSION;
        FLI_ASSERT(member.text == NULL || lua_type(L, -1) == LUA_TSTRING); /* Lua 5.4 has all these members */
        add(names, &member);
        lua_settop(L, 1);
    }
    const struct {
        const char    *library, *name;
        lua_CFunction *into;
    } wrapped[] = { { "os", "time", &names->stock_time },         { "os", "date", &names->stock_date },
                    { "os", "clock", &names->stock_clock },       { "string", "format", &names->stock_format },
                    { "string", "pack", &names->stock_pack },     { "string", "packsize", &names->stock_packsize },
                    { "string", "unpack", &names->stock_unpack }, { "math", "max", &names->stock_math_max },
                    { "math", "min", &names->stock_math_min },    { "string", "char", &names->stock_string_char },
                    { "utf8", "char", &names->stock_utf8_char },  { "utf8", "codes", &names->stock_utf8_codes } };
    for (size_t i = 0; i < sizeof wrapped / sizeof wrapped[0]; i++) {
        lua_getglobal(L, wrapped[i].library);
        lua_getfield(L, -1, wrapped[i].name);
        *wrapped[i].into = lua_tocfunction(L, -1);
        FLI_ASSERT(*wrapped[i].into != NULL);
        lua_settop(L, 1);
    }
    for (int lax = 0; lax < 2; lax++) {
        lua_pushcfunction(L, names->stock_utf8_codes);
        lua_pushliteral(L, "");
        lua_pushboolean(L, lax);
        lua_call(L, 2, 1);
        names->stock_next_code[lax] = lua_tocfunction(L, -1);
        FLI_ASSERT(names->stock_next_code[lax] != NULL);
        lua_settop(L, 1);
    }
    return 0;
}

/* The tables of Filch's own libraries. */
static const struct {
    const fli_lua_member *members;
    unsigned              right; /* the right that the host must grant for the library; 0: none */
} tables[] = {
    { fli_lua_base_members, 0 },
    { fli_lua_pairs_members, 0 },
    { fli_lua_process_members, 0 },
    { fli_lua_receive_members, 0 },
    { fli_lua_spawn_members, 0 },
    { fli_lua_upgrade_members, 0 },
    { fli_lua_relation_members, 0 },
    { fli_lua_supervisor_members, 0 },
    { fli_lua_task_members, 0 },
    { fli_lua_channel_members, 0 },
    { fli_lua_timer_members, 0 },
    { fli_lua_time_members, 0 },
    { fli_lua_log_members, 0 },
    { fli_lua_sim_members, 0 },
    { fli_lua_json_members, 0 },
    { fli_lua_msgpack_members, 0 },
    { fli_lua_blob_members, 0 },
    { fli_lua_work_members, 0 },
    { fli_lua_pattern_members, 0 },
    { fli_lua_random_members, 0 },
    { fli_lua_table_members, 0 },
    { fli_lua_sort_members, 0 },
    { fli_lua_iterator_members, 0 },
    { fli_lua_number_members, 0 },
    { fli_lua_string_members, 0 },
    { fli_lua_coroutine_members, 0 },
    { fli_lua_stats_members, 0 },
    { fli_lua_env_members, FILCH_LUA_MAY_ENV },
    { fli_lua_net_members, FILCH_LUA_MAY_NET },
    { fli_lua_fs_members, FILCH_LUA_MAY_FILES },
    { fli_lua_exec_members, FILCH_LUA_MAY_EXEC },
};

bool fli_lua_names_known(const char *without)
{
    for (const char *at = without; at != NULL && *at != '\0'; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        bool   known = size == 0;
        for (size_t i = 0; !known && i < sizeof tables / sizeof tables[0]; i++) {
            for (const fli_lua_member *m = tables[i].members; !known && m->name != NULL; m++)
                known = is_name_of(m, at, size);
        }
        for (size_t i = 0; !known && i < sizeof stock / sizeof stock[0]; i++) {
            const char *name = strncmp(stock[i], "_G.", 3) == 0 ? stock[i] + 3 : stock[i];
            known = strlen(name) == size && memcmp(name, at, size) == 0;
        }
        if (!known) return false;
        at += size;
    }
    return true;
}

bool fli_lua_names_init(fli_lua_names *names, unsigned rights, const char *without)
{
    *names = (fli_lua_names){ .without = without };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if ((tables[i].right & ~rights) == 0) add_all(names, tables[i].members);
    }
    names->may_register = names->places[find_place(names, find_library(names, "process"), "register")] != 0;
    lua_State *L = luaL_newstate();
    if (L == NULL) return false;
    lua_pushcfunction(L, harvest);
    lua_pushlightuserdata(L, names);
    bool fine = lua_pcall(L, 1, 0, 0) == LUA_OK;
    lua_close(L);
    return fine;
}

static const fli_lua_names *names_of(lua_State *L)
{
    return &fli_lua_self(L)->lua->names;
}

/* Returns the member `name` of `library`, or NULL if there is none. `library` is one of names->libraries, or NULL for
 * the globals. */
static const fli_lua_member *find(const fli_lua_names *names, const char *library, const char *name)
{
    uint16_t number = names->places[find_place(names, library, name)];
    return number != 0 ? &names->members[number - 1] : NULL;
}

static void push_member(lua_State *L, const fli_lua_member *member)
{
    if (member->make != NULL) (void)member->make(L);
    else if (member->fn != NULL) lua_pushcfunction(L, member->entry);
    else if (member->is_integer) lua_pushinteger(L, member->integer);
    else if (member->is_number) lua_pushnumber(L, member->number);
    else if (strcmp(member->name, "charpattern") == 0) lua_pushlstring(L, member->text, 14);
    else lua_pushstring(L, member->text);
}

/* ---- libraries ------------------------------------------------------------------------------------------------ */

/* The address of this variable is the registry key of the table that maps names to libraries. */
static const char loaded_key;

static void push_loaded(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_createtable(L, 0, 4);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &loaded_key);
}

/* __index of a library. Upvalue: the name of the library. */
static int library_index(lua_State *L)
{
    size_t size;
    luaL_checktype(L, 1, LUA_TTABLE); /* checked, because a program can call this function with any argument */
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &size) : NULL;
    if (name == NULL || size > MEMBER_NAME_MAX || strlen(name) != size) return 0;
    const fli_lua_member *member = find(names_of(L), lua_touserdata(L, lua_upvalueindex(1)), name);
    if (member == NULL) return 0;
    push_member(L, member);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

static void fill_library(lua_State *L, int table, const char *library)
{
    const fli_lua_names *names = names_of(L);
    for (size_t i = 0; i < names->count; i++) {
        if (names->members[i].library != library) continue;
        lua_pushstring(L, names->members[i].name);
        if (lua_rawget(L, table) == LUA_TNIL) {
            lua_pushstring(L, names->members[i].name);
            push_member(L, &names->members[i]);
            lua_rawset(L, table);
        }
        lua_pop(L, 1);
    }
}

/* Pushes the library `name`, which is one of names->libraries. */
static void push_library(lua_State *L, const char *name)
{
    push_loaded(L);
    if (lua_getfield(L, -1, name) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_createtable(L, 0, 0);
        lua_createtable(L, 0, 1);
        lua_pushlightuserdata(L, (void *)(uintptr_t)name);
        lua_pushcclosure(L, library_index, 1);
        lua_setfield(L, -2, "__index");
        lua_setmetatable(L, -2);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, name);
    }
    lua_remove(L, -2);
}

bool fli_lua_push_named(lua_State *L, const char *library, const char *field)
{
    const fli_lua_names *names = names_of(L);
    if (!lua_checkstack(L, 6)) return false;
    if (field == NULL) {
        const char *own = find_library(names, library);
        if (strcmp(library, "_G") == 0) {
            lua_pushglobaltable(L);
            return true;
        }
        if (own == NULL) return false;
        push_library(L, own);
        return true;
    }
    const char           *own = library[0] != '\0' ? find_library(names, library) : NULL;
    const fli_lua_member *member = own != NULL || library[0] == '\0' ? find(names, own, field) : NULL;
    if (member == NULL) return false;
    push_member(L, member);
    return true;
}

static bool name_of_table(lua_State *L, int index, const char **library)
{
    lua_pushglobaltable(L);
    bool globals = lua_rawequal(L, -1, index);
    lua_pop(L, 1);
    if (globals) {
        *library = "_G";
        return true;
    }
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key) != LUA_TTABLE) return lua_pop(L, 1), false;
    int loaded = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, loaded) != 0) {
        if (lua_rawequal(L, -1, index)) {
            *library = find_library(names_of(L), lua_tostring(L, -2));
            lua_settop(L, loaded - 1);
            return *library != NULL;
        }
        lua_pop(L, 1);
    }
    lua_settop(L, loaded - 1);
    return false;
}

bool fli_lua_name_of(lua_State *L, int index, const char **library, const char **field)
{
    *field = NULL;
    if (!lua_checkstack(L, 4)) return false;
    if (lua_istable(L, index)) return name_of_table(L, index, library);
    lua_CFunction fn = lua_tocfunction(L, index);
    if (fn == NULL) return false;
    if (lua_getupvalue(L, index, 1) != NULL) return lua_pop(L, 1), false;
    const fli_lua_names *names = names_of(L);
    for (size_t i = 0; i < names->count; i++) {
        if (names->members[i].fn == NULL || names->members[i].entry != fn) continue;
        *library = names->members[i].library != NULL ? names->members[i].library : "";
        *field = names->members[i].name;
        return true;
    }
    return false;
}

/* ---- globals -------------------------------------------------------------------------------------------------- */

/* __index of _G. */
static int global_index(lua_State *L)
{
    size_t size;
    luaL_checktype(L, 1, LUA_TTABLE); /* checked, because a program can call this function with any argument */
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &size) : NULL;
    if (name == NULL || size > MEMBER_NAME_MAX || strlen(name) != size) return 0;
    const fli_lua_names  *names = names_of(L);
    const fli_lua_member *member = find(names, NULL, name);
    const char           *library = member == NULL ? find_library(names, name) : NULL;
    if (member != NULL) push_member(L, member);
    else if (library != NULL) push_library(L, library);
    else if (strcmp(name, "_G") == 0) lua_pushvalue(L, 1);
    else return 0;
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

void fli_lua_libs_fill(lua_State *L)
{
    const fli_lua_names *names = names_of(L);
    lua_pushglobaltable(L);
    int globals = lua_gettop(L);
    fill_library(L, globals, NULL);
    for (size_t i = 0; i < names->count; i++) {
        if (names->members[i].library == NULL) continue;
        lua_getfield(L, globals, names->members[i].library); /* __index of _G creates the library */
        lua_pop(L, 1);
    }
    lua_getfield(L, globals, "_G");
    lua_settop(L, globals - 1);
}

static int return_three(lua_State *L, int status, lua_KContext ctx)
{
    (void)L, (void)status, (void)ctx;
    return 3;
}

static const char *library_of(lua_State *L, int index)
{
    const char *library = NULL;
    return name_of_table(L, index, &library) ? library : NULL;
}

/* pairs: works like stock Lua's pairs, but for a library or _G it visits all names that exist, also names not used so
 * far. */
static int base_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_callk(L, 1, 3, 0, return_three);
        return 3;
    }
    const char *library = lua_istable(L, 1) ? library_of(L, 1) : NULL;
    if (library != NULL && strcmp(library, "_G") == 0) fli_lua_libs_fill(L);
    else if (library != NULL) fill_library(L, 1, library);
    fli_lua_push_named(L, "", "next");
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

const fli_lua_member fli_lua_pairs_members[] = { { .name = "pairs", .fn = base_pairs }, { .name = NULL } };

/* ---- strings and pids as objects --------------------------------------------------------------------------------- */

/* Arithmetic on strings ("10" + 1) is done by the metatable of strings. The functions here convert and compute like the
 * functions in the metatable of stock Lua. */
static bool to_number(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TNUMBER) {
        lua_pushvalue(L, index);
        return true;
    }
    size_t      size;
    const char *text = lua_tolstring(L, index, &size);
    return text != NULL && lua_type(L, index) == LUA_TSTRING && lua_stringtonumber(L, text) == size + 1;
}

static int go_on_arithmetic(lua_State *L, int status, lua_KContext op)
{
    static const char *const events[] = {
        [LUA_OPADD] = "__add", [LUA_OPSUB] = "__sub", [LUA_OPMUL] = "__mul",  [LUA_OPMOD] = "__mod",
        [LUA_OPPOW] = "__pow", [LUA_OPDIV] = "__div", [LUA_OPIDIV] = "__idiv"
    };
    (void)status;
    lua_settop(L, 2);
    if (to_number(L, 1) && to_number(L, 2)) {
        lua_arith(L, (int)op);
        return 1;
    }
    lua_settop(L, 2);
    if (lua_type(L, 2) == LUA_TSTRING || luaL_getmetafield(L, 2, events[op]) == LUA_TNIL) {
        return luaL_error(L, "attempt to perform arithmetic on a %s value", luaL_typename(L, to_number(L, 1) ? 2 : 1));
    }
    lua_insert(L, -3);
    lua_call(L, 2, 1);
    return 1;
}

#define ARITHMETIC(name, op)                           \
    static int string_##name(lua_State *L)             \
    {                                                  \
        fli_lua_budget_enter(L, op, go_on_arithmetic); \
        return go_on_arithmetic(L, LUA_OK, op);        \
    }
ARITHMETIC(add, LUA_OPADD)
ARITHMETIC(sub, LUA_OPSUB)
ARITHMETIC(mul, LUA_OPMUL)
ARITHMETIC(mod, LUA_OPMOD)
ARITHMETIC(pow, LUA_OPPOW)
ARITHMETIC(div, LUA_OPDIV)
ARITHMETIC(idiv, LUA_OPIDIV)

static int go_on_unm(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    lua_settop(L, 1);
    if (!to_number(L, 1)) return luaL_error(L, "attempt to perform arithmetic on a string value");
    lua_arith(L, LUA_OPUNM);
    return 1;
}

static int string_unm(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_unm);
    return go_on_unm(L, LUA_OK, 0);
}

static const luaL_Reg string_events[] = { { "__add", string_add }, { "__sub", string_sub },   { "__mul", string_mul },
                                          { "__mod", string_mod }, { "__pow", string_pow },   { "__div", string_div },
                                          { "__unm", string_unm }, { "__idiv", string_idiv }, { NULL, NULL } };

/* __index of strings in a new state. At its first call this function replaces itself: it sets __index to the library
 * `string`. */
static int string_index(lua_State *L)
{
    push_library(L, find_library(names_of(L), "string"));
    lua_getmetatable(L, 1);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushvalue(L, 2);
    lua_gettable(L, -2);
    return 1;
}

void fli_lua_libs_install(lua_State *L)
{
    lua_pushglobaltable(L);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, global_index);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);

    lua_pushliteral(L, "");
    lua_createtable(L, 0, 9);
    luaL_setfuncs(L, string_events, 0);
    lua_pushcfunction(L, string_index);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);

    lua_pushlightuserdata(L, NULL);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, fli_lua_pid_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable"); /* hides the metatable, so that a program cannot change the text of pids */
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}
