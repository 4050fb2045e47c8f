/* functions.c - see functions.h. */
#include "lua/message/functions.h"

#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"

void fli_lua_functions_init(fli_lua_functions *functions, const void *main)
{
    functions->closures = functions->first_closures;
    functions->variables = functions->first_variables;
    functions->room = functions->variable_room = FLI_LUA_FUNCTIONS_FIRST;
    functions->closures[0] = main;
    functions->count = 1;
    functions->variable_count = 0;
    functions->used = false;
}

void fli_lua_functions_fini(fli_lua_functions *functions)
{
    if (functions->closures != functions->first_closures) free(functions->closures);
    if (functions->variables != functions->first_variables) free(functions->variables);
}

bool fli_lua_function_find(const fli_lua_functions *functions, const void *closure, uint32_t *number)
{
    for (*number = 0; *number < functions->count; ++*number) {
        if (functions->closures[*number] == closure) return true;
    }
    return false;
}

const fli_lua_variable *fli_lua_variable_find(const fli_lua_functions *functions, const void *id)
{
    for (uint32_t i = 0; i < functions->variable_count; i++) {
        if (functions->variables[i].id == id) return &functions->variables[i];
    }
    return NULL;
}

/* Doubles the capacity `room` of the array `at`. `first` is the array inside the struct, which must not be freed. */
static void *grow(void *at, const void *first, uint32_t *room, size_t size)
{
    void *more = realloc(at != first ? at : NULL, *room * 2 * size);
    if (more == NULL) return NULL;
    if (at == first) memcpy(more, first, *room * size);
    *room *= 2;
    return more;
}

bool fli_lua_function_add(fli_lua_functions *functions, const void *closure, uint32_t *number)
{
    if (functions->count == functions->room) {
        void *more = grow(functions->closures, functions->first_closures, &functions->room, sizeof closure);
        if (more == NULL) return false;
        functions->closures = more;
    }
    functions->closures[functions->count] = closure;
    *number = functions->count++;
    return true;
}

bool fli_lua_variable_add(fli_lua_functions *functions, const void *id, uint32_t function, int index)
{
    if (functions->variable_count == functions->variable_room) {
        void *more = grow(functions->variables, functions->first_variables, &functions->variable_room,
                          sizeof *functions->variables);
        if (more == NULL) return false;
        functions->variables = more;
    }
    functions->variables[functions->variable_count++] =
        (fli_lua_variable){ .id = id, .function = function, .index = (uint8_t)index };
    return true;
}

int fli_lua_env_of(lua_State *L, int index)
{
    int env = 0;
    lua_pushglobaltable(L);
    for (int i = 1; env == 0 && lua_getupvalue(L, index, i) != NULL; i++) {
        if (lua_rawequal(L, -1, -2)) env = i;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return env;
}

static void drop_code(void *user, void *bytes, size_t size)
{
    (void)bytes;
    (void)size;
    fli_lua_code_drop(user);
}

filch_err fli_lua_code_wrap(fli_lua_code *code, filch_data *out)
{
    filch_err err = filch_share(code->bytes, code->size, drop_code, code, out);
    if (err != FILCH_OK) fli_lua_code_drop(code);
    return err;
}

fli_lua_code *fli_lua_code_unwrap(const filch_data *data)
{
    return filch_shared_user(data, drop_code);
}
