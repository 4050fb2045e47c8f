/* channels.h - functions on channels for the timers that send into them. See channels.c. */
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
/* Gives the value at `value` to a receiver or to the buffer of the channel at `index`. Does nothing if the channel is
 * closed or full. Never waits. */
void fli_lua_channel_offer(lua_State *L, int index, int value);
/* Closes the channel at `index`. */
void fli_lua_channel_close(lua_State *L, int index);
/* fli_lua_channel_set_timer() pops the value on top of the stack and stores it as the timer of the channel at `index`.
 * fli_lua_channel_push_timer() pushes the stored timer. */
void fli_lua_channel_set_timer(lua_State *L, int index);
void fli_lua_channel_push_timer(lua_State *L, int index);

#endif
