/* tree.h - turns the Lua description of a supervisor, a table, into a filch_supervisor.
 *
 * The supervisors are those of filch.h, so they work the same in C and in Lua. The description must live as long as a
 * supervisor refers to it: a tree is one piece of memory with a reference count. Each supervisor process started from
 * it holds one reference (that is all that their type, fli_lua_tree_type, adds to filch_supervisor_type), and so does a
 * child that was added later.
 */
#ifndef FLI_LUA_TREE_H
#define FLI_LUA_TREE_H

#include <filch.h>
#include <lua.h>

#include "lua/process/proc.h"

struct filch_lua;

typedef struct fli_lua_tree fli_lua_tree;

/* Reads the table at `index`: a whole supervisor, or one child. Gives one reference. Raises a Lua error that names
 * the place in the table; frees everything in that case. */
fli_lua_tree *fli_lua_tree_read(lua_State *L, int index);
fli_lua_tree *fli_lua_tree_read_child(lua_State *L, int index);

void fli_lua_tree_drop(fli_lua_tree *tree);

/* Returns the args and options to start the supervisor with; valid as long as the tree. */
const filch_spawn_options *fli_lua_tree_options(const fli_lua_tree *tree);
/* Returns true if the starting process wants to be linked with the supervisor. */
bool fli_lua_tree_links(const fli_lua_tree *tree);
/* Returns the child, valid as long as the tree. If a supervisor takes it, its `release` drops the reference to the
 * tree. */
const filch_child *fli_lua_tree_child(const fli_lua_tree *tree);

/* Returns the type of supervisors with children in Lua; the host stores it. */
filch_type fli_lua_tree_type(void);

#endif
