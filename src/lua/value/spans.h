/* spans.h - spans of time as Lua programs write them: a number of seconds, or a text such as "1.5s", "200ms", "2m".
 * Page: docs/lua/reference.md. */
#ifndef FLI_LUA_SPANS_H
#define FLI_LUA_SPANS_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#define FLI_LUA_NEVER UINT64_MAX

/* Returns the span at `index` in nanoseconds; infinity is FLI_LUA_NEVER. Raises an error if the value is not a span. A
 * text of more than FLI_LUA_DIGITS_MAX bytes is not a span. */
uint64_t fli_lua_check_span(lua_State *L, int index);
/* Does what fli_lua_check_span() does, but returns false if the value is not a span. */
bool fli_lua_to_span(lua_State *L, int index, uint64_t *span_ns);

#endif
