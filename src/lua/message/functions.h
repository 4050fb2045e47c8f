/* functions.h - Lua functions that go along when one is started: as upvalues, arguments, or fields of tables among
 * these.
 *
 * A function is written as its code, which is attached (message_refs.h), and its variables. Each function is written
 * once, however many refer to it, so one that calls itself is no trouble. A variable that several of them share is
 * written once too, and shared again where it is read: among themselves they go on as before; with those who stay they
 * share nothing.
 */
#ifndef FLI_LUA_FUNCTIONS_H
#define FLI_LUA_FUNCTIONS_H

#include <filch.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct filch_lua_code;

enum { FLI_LUA_FUNCTIONS_FIRST = 8 };

typedef struct fli_lua_variable {
    const void *id; /* lua_upvalueid */
    uint32_t    function;
    uint8_t     index;
} fli_lua_variable;

/* What has been written so far. Number 0 is the function that is started. The first few need no memory. */
typedef struct fli_lua_functions {
    const void      **closures;
    fli_lua_variable *variables;
    uint32_t          count, room, variable_count, variable_room;
    bool              used; /* somebody refers to one of them */
    const void       *first_closures[FLI_LUA_FUNCTIONS_FIRST];
    fli_lua_variable  first_variables[FLI_LUA_FUNCTIONS_FIRST];
} fli_lua_functions;

/* `main` NULL: what is started is no function. Stays where it is. */
void fli_lua_functions_init(fli_lua_functions *functions, const void *main);
void fli_lua_functions_fini(fli_lua_functions *functions);

/* The number of a closure or variable that has been written; false: it has not. */
bool fli_lua_function_find(const fli_lua_functions *functions, const void *closure, uint32_t *number);
const fli_lua_variable *fli_lua_variable_find(const fli_lua_functions *functions, const void *id);
/* False: no memory. */
bool fli_lua_function_add(fli_lua_functions *functions, const void *closure, uint32_t *number);
bool fli_lua_variable_add(fli_lua_functions *functions, const void *id, uint32_t function, int index);

/* Which upvalue of the function at `index` is the globals; 0 none. */
int fli_lua_env_of(lua_State *L, int index);

/* Code as something to attach: takes the reference, also when it fails. And back; NULL: it is something else. */
filch_err              fli_lua_code_wrap(struct filch_lua_code *code, filch_data *out);
struct filch_lua_code *fli_lua_code_unwrap(const filch_data *data);

#endif
