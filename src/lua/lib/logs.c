/* logs.c - the library `log`: writes one line per call, with the time, the level, the process and fields.
 *
 *     log.info("paid", { order = 17 })   ->   2026-11-16T12:00:00.000345Z info <4.1> shop.lua: paid order=17
 *
 * Each call writes exactly one line: control characters are escaped, so that no logged text can look like another line.
 * Values with spaces or quotes are quoted. Fields are sorted by name. Tables inside fields are written to a depth of
 * DEPTH_MAX, with at most FIELDS_MAX fields each. A line is cut at LINE_MAX_BYTES. In a simulation the time is the
 * virtual time in seconds.
 * Page: docs/lua/reference.md.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/escape.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/libs.h"
#include "lua/host/print.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"
#include "port/clock.h"

enum { DEPTH_MAX = 4, FIELDS_MAX = 100, LINE_FIRST = 512, LINE_MAX_BYTES = 64 << 10, ROUNDS = 16 };

/* ---- the line ----------------------------------------------------------------------------------------------- */

/* The line being written. Its bytes are a userdata at stack index `slot`, so that an error leaks nothing. */
typedef struct line {
    lua_State *L;
    int        slot;
    char      *bytes;
    size_t     size, room;
} line;

static void begin_line(line *l, lua_State *L)
{
    *l = (line){ .L = L, .room = LINE_FIRST };
    l->bytes = lua_newuserdatauv(L, l->room, 0);
    l->slot = lua_gettop(L);
}

static void add(line *l, const char *text, size_t size)
{
    if (size > LINE_MAX_BYTES - l->size) size = LINE_MAX_BYTES - l->size;
    if (l->size + size > l->room) {
        size_t room = (l->size + size) * 2;
        char  *more = lua_newuserdatauv(l->L, room, 0);
        memcpy(more, l->bytes, l->size);
        lua_replace(l->L, l->slot);
        l->bytes = more;
        l->room = room;
    }
    if (size > 0) memcpy(l->bytes + l->size, text, size);
    l->size += size;
}

static void add_str(line *l, const char *text)
{
    add(l, text, strlen(text));
}

static void add_escaped(line *l, const char *text, size_t size, bool quoted)
{
    for (size_t i = 0, used, length; i < size && l->size < LINE_MAX_BYTES; i += used) {
        char one[FLI_ESCAPE_MAX];
        used = fli_escape_next(text + i, size - i, one, &length);
        if (quoted && (text[i] == '"' || text[i] == '\\')) add_str(l, "\\");
        add(l, one, length);
    }
}

/* Returns true if a reader could not recognize the end of the value without quotes. */
static bool needs_quotes(const char *text, size_t size)
{
    for (size_t i = 0; i < size && i < LINE_MAX_BYTES; i++) { /* later bytes do not fit into the line */
        if ((unsigned char)text[i] <= ' ' || strchr("\"\\={},", text[i]) != NULL) return true;
    }
    return size == 0;
}

static void add_word(line *l, const char *text, size_t size)
{
    bool quoted = needs_quotes(text, size);
    if (quoted) add_str(l, "\"");
    add_escaped(l, text, size, quoted);
    if (quoted) add_str(l, "\"");
}

/* ---- fields ------------------------------------------------------------------------------------------------- */

/* One field of a table. The key is at stack index `key`; its text (`name`, `size`) is the value above it on the
 * stack. */
typedef struct field {
    const char *name;
    size_t      size;
    int         key;
} field;

static int compare(const void *a, const void *b)
{
    const field *x = a, *y = b;
    size_t       both = x->size < y->size ? x->size : y->size;
    int          order = memcmp(x->name, y->name, both);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/* Pushes each key of the table and the text of the key. Returns the number of fields, at most FIELDS_MAX. Sets *more if
 * the table has further fields. */
static size_t push_fields(lua_State *L, int table, bool *more)
{
    size_t count = 0;
    *more = false;
    fli_lua_budget_walk(L);
    lua_pushnil(L);
    while (lua_next(L, table) != 0) {
        lua_pop(L, 1); /* pops the value */
        if (count == FIELDS_MAX) {
            *more = true;
            lua_pop(L, 1);
            break;
        }
        luaL_checkstack(L, 8, "too many fields");
        if (count % ROUNDS == ROUNDS - 1) fli_lua_budget_walk(L);
        luaL_tolstring(L, -1, NULL);
        count++;
        lua_pushvalue(L, -2); /* key from which lua_next continues */
    }
    return count;
}

/* Pushes the list of `count` fields sorted by name, whose keys and texts are on the stack from index `key` on. The list
 * is a userdata: on the C stack it would take 2.4 KB for each nested table and each nested call of log, and overflow
 * the stack of a worker. */
static const field *push_list(lua_State *L, int key, size_t count)
{
    field *fields = lua_newuserdatauv(L, count * sizeof *fields, 0);
    for (size_t i = 0; i < count; i++, key += 2) {
        fields[i].key = key;
        fields[i].name = lua_tolstring(L, key + 1, &fields[i].size);
    }
    if (count > 0) qsort(fields, count, sizeof *fields, compare);
    return fields;
}

static void add_value(line *l, int depth);

/* Writes all fields of the table at `table`, with `between` before each except the first. */
static void add_fields(line *l, int table, const char *between, int depth)
{
    lua_State   *L = l->L;
    int          top = lua_gettop(L);
    bool         more;
    size_t       count = push_fields(L, table, &more);
    const field *fields = push_list(L, top + 1, count);
    for (size_t i = 0; i < count && l->size < LINE_MAX_BYTES; i++) {
        if (i > 0) add_str(l, between);
        add_word(l, fields[i].name, fields[i].size);
        add_str(l, "=");
        lua_pushvalue(L, fields[i].key);
        lua_rawget(L, table);
        add_value(l, depth);
    }
    if (more) add_str(l, between), add_str(l, "...");
    lua_settop(L, top);
}

/* Writes the value on top of the stack and pops it. A table without its own __tostring is written with its fields. */
static void add_value(line *l, int depth)
{
    lua_State *L = l->L;
    size_t     size;
    luaL_checkstack(L, 8, "too many fields");
    bool plain = lua_istable(L, -1) && luaL_getmetafield(L, -1, "__tostring") == LUA_TNIL;
    if (lua_istable(L, -1) && plain) {
        add_str(l, "{");
        if (depth < DEPTH_MAX) add_fields(l, lua_gettop(L), ", ", depth + 1);
        else add_str(l, "...");
        add_str(l, "}");
        lua_pop(L, 1);
        return;
    }
    if (!plain && lua_istable(L, -2)) lua_pop(L, 1); /* pops the metafield */
    const char *text = luaL_tolstring(L, -1, &size);
    add_word(l, text, size);
    lua_pop(L, 2);
}

/* ---- log ---------------------------------------------------------------------------------------------------- */

static void add_time(line *l, const fli_lua_proc *p)
{
    char text[64];
    if (p->simulated) {
        uint64_t now = fli_lua_now(p);
        snprintf(text, sizeof text, "%llu.%06llu ", (unsigned long long)(now / 1000000000),
                 (unsigned long long)(now / 1000 % 1000000));
    } else {
        uint64_t  now = fli_clock_wall_ns();
        time_t    seconds = (time_t)(now / 1000000000);
        struct tm day;
        size_t    size = gmtime_r(&seconds, &day) != NULL ? strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &day) : 0;
        snprintf(text + size, sizeof text - size, ".%06lluZ ", (unsigned long long)(now / 1000 % 1000000));
    }
    add_str(l, text);
}

static int write_log(lua_State *L, uint32_t level)
{
    static const char *const names[] = { "debug", "info", "warn", "error" };
    fli_lua_proc            *p = fli_lua_for(L);
    size_t                   size;
    char                     pid[FLI_LUA_PID_TEXT];
    line                     l;
    if (level < p->lua->opt.log_level) return 0;
    luaL_tolstring(L, 1, NULL);
    lua_replace(L, 1);
    lua_settop(L, 2);
    begin_line(&l, L);
    add_time(&l, p);
    add_str(&l, names[level]);
    add_str(&l, " ");
    fli_lua_pid_write(p, p->self, pid);
    add_str(&l, pid);
    add_str(&l, " ");
    add_str(&l, p->code->kind->name); /* the name was escaped when the kind was created */
    add_str(&l, ": ");
    const char *text = lua_tolstring(L, 1, &size);
    add_escaped(&l, text, size, false);
    if (lua_istable(L, 2)) {
        add_str(&l, " ");
        add_fields(&l, 2, " ", 1);
    }
    if (l.size == LINE_MAX_BYTES) memcpy(l.bytes + l.size - 4, "...\n", 4);
    else add_str(&l, "\n");
    fli_lua_log_line(p->lua, l.bytes, l.size);
    return 0;
}

static int log_debug(lua_State *L)
{
    return write_log(L, FILCH_LUA_LOG_DEBUG);
}

static int log_info(lua_State *L)
{
    return write_log(L, FILCH_LUA_LOG_INFO);
}

static int log_warn(lua_State *L)
{
    return write_log(L, FILCH_LUA_LOG_WARN);
}

static int log_error(lua_State *L)
{
    return write_log(L, FILCH_LUA_LOG_ERROR);
}

const fli_lua_member fli_lua_log_members[] = {
    { .library = "log", .name = "debug", .fn = log_debug },
    { .library = "log", .name = "info", .fn = log_info },
    { .library = "log", .name = "warn", .fn = log_warn },
    { .library = "log", .name = "error", .fn = log_error },
    { .name = NULL },
};
