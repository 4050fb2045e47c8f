/* channels.h - channels, for the timers that send into them. See channels.c. */
#ifndef FLI_LUA_CHANNELS_H
#define FLI_LUA_CHANNELS_H

#include <lua.h>
#include <stdbool.h>

/* Pushes a channel with a buffer for one value. */
void fli_lua_channel_push(lua_State *L);
/* Returns true if the value at `index` is a channel. */
bool fli_lua_is_channel(lua_State *L, int index);
/* Returns true if the channel at `index` has been closed. */
bool fli_lua_channel_is_closed(lua_State *L, int index);
/* Gives the value at `value` to a receiver or the buffer of the channel at `index`, if it is open and has room. Never
 * waits. */
void fli_lua_channel_offer(lua_State *L, int index, int value);
/* Closes the channel at `index`. */
void fli_lua_channel_close(lua_State *L, int index);
/* Sets the value on top as the timer of the channel at `index`, and pops it; pushes that timer. */
void fli_lua_channel_set_timer(lua_State *L, int index);
void fli_lua_channel_push_timer(lua_State *L, int index);

#endif
