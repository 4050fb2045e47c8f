/* tree.h - what a supervisor is told to keep running, as Lua describes it: a table becomes a filch_supervisor.
 *
 * The supervisors are those of filch.h, so they mean the same in C and in Lua. What they are described by must stay as
 * long as one of them refers to it: a tree is one piece of memory with a count. Each supervisor process started from it
 * holds one (their type, fli_lua_tree_type, wraps filch_supervisor_type for nothing else), and so does a child that
 * came later.
 */
#ifndef FLI_LUA_TREE_H
#define FLI_LUA_TREE_H

#include <filch.h>
#include <lua.h>

#include "lua/process/proc.h"

struct filch_lua;

typedef struct fli_lua_tree fli_lua_tree;

/* Reads the table at `index`: a whole supervisor, or one child of one. Gives one reference. Raises a Lua error that
 * names the place, and leaves nothing behind then. */
fli_lua_tree *fli_lua_tree_read(lua_State *L, int index);
fli_lua_tree *fli_lua_tree_read_child(lua_State *L, int index);

void fli_lua_tree_drop(fli_lua_tree *tree);

/* How its supervisor is started: args and options; lent by the tree. */
const filch_spawn_options *fli_lua_tree_options(const fli_lua_tree *tree);
/* Whether the starter wants to be linked with it. */
bool fli_lua_tree_links(const fli_lua_tree *tree);
/* The child, lent. When the supervisor has taken it, its `release` gives back the reference. */
const filch_child *fli_lua_tree_child(const fli_lua_tree *tree);

/* The type of supervisors with children in Lua; `lua` keeps it. */
filch_type fli_lua_tree_type(void);

#endif
