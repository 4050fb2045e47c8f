/* functions.h - Lua functions that are sent along with a spawn: as upvalues, as arguments, or as fields of tables among
 * upvalues and arguments.
 *
 * A function is written as its code, which is attached (message_refs.h), and its variables. Each function is written
 * once, however many values refer to it; so a function that calls itself is no special case. A variable that several
 * functions share is written once too, and shared again by their copies in the new process. Copies and originals share
 * nothing.
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
    const void *id; /* result of lua_upvalueid */
    uint32_t    function;
    uint8_t     index;
} fli_lua_variable;

/* The functions and variables (upvalues) that a spawn has written so far, each with a number. Number 0 is the function
 * that the new process runs. The first few entries are stored in the struct itself. */
typedef struct fli_lua_functions {
    const void      **closures;
    fli_lua_variable *variables;
    uint32_t          count, room, variable_count, variable_room;
    bool              used; /* a function or a shared variable was written: the reader needs a list of functions */
    const void       *first_closures[FLI_LUA_FUNCTIONS_FIRST];
    fli_lua_variable  first_variables[FLI_LUA_FUNCTIONS_FIRST];
} fli_lua_functions;

/* `main` is the function that the new process runs, or NULL if it runs a file or module. The struct must not be moved
 * after this call, because it points to itself. */
void fli_lua_functions_init(fli_lua_functions *functions, const void *main);
void fli_lua_functions_fini(fli_lua_functions *functions);

/* fli_lua_function_find() sets *number to the number of the closure. It returns false if the closure has not been
 * written so far. fli_lua_variable_find() returns the entry of the variable, or NULL if the variable has not been
 * written so far. */
bool fli_lua_function_find(const fli_lua_functions *functions, const void *closure, uint32_t *number);
const fli_lua_variable *fli_lua_variable_find(const fli_lua_functions *functions, const void *id);
/* fli_lua_function_add() and fli_lua_variable_add() add an entry, and return false if memory is short. */
bool fli_lua_function_add(fli_lua_functions *functions, const void *closure, uint32_t *number);
bool fli_lua_variable_add(fli_lua_functions *functions, const void *id, uint32_t function, int index);

/* Returns the number of the upvalue that holds the globals (_ENV) in the function at `index`; 0: the function has
 * none. */
int fli_lua_env_of(lua_State *L, int index);

/* fli_lua_code_wrap() makes a block of `code` that can be attached to a message; it takes the caller's reference to the
 * code, also on failure. fli_lua_code_unwrap() returns the code of such a block, or NULL for any other block. */
filch_err              fli_lua_code_wrap(struct filch_lua_code *code, filch_data *out);
struct filch_lua_code *fli_lua_code_unwrap(const filch_data *data);

#endif
