/* libs.h - what a Lua process finds without asking for it: globals and libraries, each made when it is first named.
 *
 * A state that holds every library takes 20 KB, most of it for names that the process never uses. Here a global that
 * does not exist yet is looked up in a table of the host (`_G` has an __index), and the same goes for the fields of a
 * library. So a process pays for what it names.
 */
#ifndef FLI_LUA_LIBS_H
#define FLI_LUA_LIBS_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One name of one library; library NULL: a global. Without fn it is the number, or if that is no number the text. */
typedef struct fli_lua_member {
    const char   *library, *name;
    lua_CFunction fn;
    lua_CFunction make; /* pushes the value; raises only memory errors */
    bool          is_integer, is_number;
    lua_Integer   integer;
    lua_Number    number;
    const char   *text;
} fli_lua_member;

enum { FLI_LUA_MEMBERS_MAX = 256, FLI_LUA_LIBRARIES_MAX = 24, FLI_LUA_PLACES = 1024 };

typedef struct fli_lua_names {
    fli_lua_member members[FLI_LUA_MEMBERS_MAX];
    size_t         count;
    const char    *libraries[FLI_LUA_LIBRARIES_MAX]; /* members refer to these very strings */
    size_t         library_count;
    const char    *without;                /* those that are left out, separated by spaces; NULL: none */
    uint16_t       places[FLI_LUA_PLACES]; /* by hash: number of the member, from 1 */
    lua_CFunction  stock_time, stock_date, stock_clock, stock_format, stock_pack, stock_packsize, stock_unpack;
    lua_CFunction  stock_math_max, stock_math_min, stock_string_char, stock_utf8_char;
} fli_lua_names;

/* Collects the names: ours, and of stock Lua those that are safe. Uses a state of its own. False: no memory. */
bool fli_lua_names_init(fli_lua_names *names, unsigned rights, const char *without);
/* Whether each of `without` is the name of a member: "process.terminate", separated by spaces. */
bool fli_lua_names_known(const char *without);

/* Makes a new state's globals: looked up when used. May raise memory errors. */
void fli_lua_libs_install(lua_State *L);

/* Everything at once, for a program that changes _G's metatable or lists _G. */
void fli_lua_libs_fill(lua_State *L);

/* The name of the library table or function at `index`. Allocates nothing. */
bool fli_lua_name_of(lua_State *L, int index, const char **library, const char **field);
/* Pushes a library, or one field of it; library "" are the globals. False, with nothing pushed: no such name. */
bool fli_lua_push_named(lua_State *L, const char *library, const char *field);

/* The tables of our own names, each ended by a NULL name. */
extern const fli_lua_member fli_lua_base_members[];
extern const fli_lua_member fli_lua_pairs_members[];
extern const fli_lua_member fli_lua_process_members[];
extern const fli_lua_member fli_lua_receive_members[];
extern const fli_lua_member fli_lua_spawn_members[];
extern const fli_lua_member fli_lua_upgrade_members[];
extern const fli_lua_member fli_lua_relation_members[];
extern const fli_lua_member fli_lua_supervisor_members[];
extern const fli_lua_member fli_lua_task_members[];
extern const fli_lua_member fli_lua_channel_members[];
extern const fli_lua_member fli_lua_timer_members[];
extern const fli_lua_member fli_lua_time_members[];
extern const fli_lua_member fli_lua_log_members[];
extern const fli_lua_member fli_lua_sim_members[];
extern const fli_lua_member fli_lua_json_members[];
extern const fli_lua_member fli_lua_msgpack_members[];
extern const fli_lua_member fli_lua_blob_members[];
extern const fli_lua_member fli_lua_work_members[];
/* Those that the host has to allow. */
extern const fli_lua_member fli_lua_env_members[];
extern const fli_lua_member fli_lua_net_members[];
extern const fli_lua_member fli_lua_fs_members[];
extern const fli_lua_member fli_lua_exec_members[];
extern const fli_lua_member fli_lua_pattern_members[];
extern const fli_lua_member fli_lua_random_members[];
extern const fli_lua_member fli_lua_table_members[];
extern const fli_lua_member fli_lua_sort_members[];
extern const fli_lua_member fli_lua_number_members[];
extern const fli_lua_member fli_lua_string_members[];
extern const fli_lua_member fli_lua_coroutine_members[];
extern const fli_lua_member fli_lua_stats_members[];

#endif
