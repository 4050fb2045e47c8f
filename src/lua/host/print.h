/* print.h - the output of `print` and `log`: goes to the host's functions, or to standard output and standard error.
 * Writing there never blocks a worker (port/output.h). */
#ifndef FLI_LUA_PRINT_H
#define FLI_LUA_PRINT_H

#include <filch_lua.h>
#include <lua.h>

struct filch_lua;

filch_err fli_lua_print_init(struct filch_lua *lua);
void      fli_lua_print_fini(struct filch_lua *lua);

/* The global function print. */
int fli_lua_print(lua_State *L);
/* Writes one line, which ends with a newline, to the output of `log`. A line that standard error cannot take is
 * dropped; the next line that is written is preceded by the number of dropped lines. */
void fli_lua_log_line(struct filch_lua *lua, const char *text, size_t size);

#endif
