/* entries.h - the C functions that programs call: each checks the budget of the process before it calls the function of
 * the library.
 *
 * Stock Lua and Filch's C functions call other functions in loops that run no Lua instruction, so no hook runs between
 * two calls: pending __close handlers after an error, the operands of `..`, the values of string.format, the arguments
 * of print, the comparisons of a sort. The called function may be a C function that takes milliseconds, such as
 * utf8.len with a text of megabytes as a metamethod. A check at the beginning of every function bounds each such loop.
 *
 * A C function has no room for the number of its member, and a closure would take memory in every process. So there is
 * one *entry* for each number of a member (fli_lua_names.members).
 */
#ifndef FLI_LUA_ENTRIES_H
#define FLI_LUA_ENTRIES_H

#include <lua.h>
#include <stddef.h>

/* Returns the entry of member `number`: a function that checks the budget, and then calls the member's `fn`. */
lua_CFunction fli_lua_checked(size_t number);
/* Returns the entry of brief function `number` (fli_lua_names.brief): it calls the function without a check of the
 * budget. Like all entries, it pauses the process when the function returns, if a stack has moved: moves.h. */
lua_CFunction fli_lua_brief(size_t number);

#endif
