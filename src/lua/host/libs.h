/* libs.h - the globals and libraries of a Lua process, each created when the program first uses its name.
 *
 * A state with all libraries takes 20 KB, most of it for names that the process never uses. Here `_G` and each library
 * have an __index that looks up missing names in a table of the host. A process pays only for the names that it uses.
 */
#ifndef FLI_LUA_LIBS_H
#define FLI_LUA_LIBS_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One name of a library, or a global if `library` is NULL. Its value is the first of these that is set: what `make`
 * pushes, the function `fn`, `integer` if `is_integer`, `number` if `is_number`, `text`. */
typedef struct fli_lua_member {
    const char   *library, *name;
    lua_CFunction fn;
    lua_CFunction entry; /* what programs get for `fn`: see entries.h. Set when the member is added. */
    lua_CFunction make;  /* pushes the value when the name is first used; raises only memory errors */
    bool          is_integer, is_number;
    lua_Integer   integer;
    lua_Number    number;
    const char   *text;
} fli_lua_member;

enum { FLI_LUA_MEMBERS_MAX = 256, FLI_LUA_LIBRARIES_MAX = 24, FLI_LUA_PLACES = 1024, FLI_LUA_BRIEF_MAX = 8 };

typedef struct fli_lua_names {
    fli_lua_member members[FLI_LUA_MEMBERS_MAX];
    size_t         count;
    const char    *libraries[FLI_LUA_LIBRARIES_MAX]; /* strings to which members[].library points */
    size_t         library_count;
    const char    *without; /* names that programs do not get, separated by spaces; NULL: none */
    /* false if process.register is in `without`: then the option `name` of process.spawn and of supervisors is refused
     * too, because it also registers a name */
    bool     may_register;
    uint16_t places[FLI_LUA_PLACES]; /* hash table; an element is 0 if it is free, otherwise the number of a member,
                                        counted from 1 */
    lua_CFunction brief[FLI_LUA_BRIEF_MAX]; /* functions that are called without a check of the budget; the other
                                               elements are NULL */
    lua_CFunction stock_time, stock_date, stock_clock, stock_format, stock_pack, stock_packsize, stock_unpack;
    lua_CFunction stock_math_max, stock_math_min, stock_string_char, stock_utf8_char, stock_utf8_codes;
    lua_CFunction stock_next_code[2]; /* the iterators that utf8.codes returns: strict, lax */
} fli_lua_names;

/* Fills `names` with all members of Filch's libraries for which `rights` are granted, and with those functions of stock
 * Lua that are safe (read from a temporary Lua state), except those in `without`. Returns false if memory is short. */
bool fli_lua_names_init(fli_lua_names *names, unsigned rights, const char *without);
/* Returns true if each name in `without` (separated by spaces, such as "process.terminate") is the name of a member. */
bool fli_lua_names_known(const char *without);

/* Sets up _G of a new state so that globals are created when they are first used. May raise memory errors. */
void fli_lua_libs_install(lua_State *L);

/* Creates all globals at once, for a program that changes _G's metatable or lists _G. */
void fli_lua_libs_fill(lua_State *L);

/* Returns true if the value at `index` is a library or a function of a library, and sets *library and *field to its
 * name. Returns false also if the Lua stack cannot grow by four values. Allocates nothing except for this growth of the
 * stack. */
bool fli_lua_name_of(lua_State *L, int index, const char **library, const char **field);
/* Pushes a library, or one field of it; library "" means the globals. Returns false, with nothing pushed, if there is
 * no such name or if the Lua stack cannot grow. */
bool fli_lua_push_named(lua_State *L, const char *library, const char *field);

/* The tables of Filch's own names. Each ends with an entry without a name (NULL). */
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
/* Libraries for which the host must grant a right. */
extern const fli_lua_member fli_lua_env_members[];
extern const fli_lua_member fli_lua_net_members[];
extern const fli_lua_member fli_lua_fs_members[];
extern const fli_lua_member fli_lua_exec_members[];
extern const fli_lua_member fli_lua_pattern_members[];
extern const fli_lua_member fli_lua_random_members[];
extern const fli_lua_member fli_lua_table_members[];
extern const fli_lua_member fli_lua_sort_members[];
extern const fli_lua_member fli_lua_iterator_members[];
extern const fli_lua_member fli_lua_number_members[];
extern const fli_lua_member fli_lua_string_members[];
extern const fli_lua_member fli_lua_coroutine_members[];
extern const fli_lua_member fli_lua_stats_members[];

#endif
