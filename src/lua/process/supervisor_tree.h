/* supervisor_tree.h - turns the Lua description of a supervisor, a table, into a filch_supervisor.
 *
 * The supervisors are processes of filch_supervisor_type, so supervision works in Lua as in C. The description must
 * live as long as a supervisor refers to it, so the tree is one piece of memory with a reference count. Each supervisor
 * process started from the tree holds one reference; the type of these processes, fli_lua_supervisor_tree_type, adds
 * only this reference to filch_supervisor_type. A child that was added later holds one reference too.
 */
#ifndef FLI_LUA_SUPERVISOR_TREE_H
#define FLI_LUA_SUPERVISOR_TREE_H

#include <filch.h>
#include <lua.h>

#include "lua/process/proc.h"

struct filch_lua;

typedef struct fli_lua_supervisor_tree fli_lua_supervisor_tree;

/* fli_lua_supervisor_tree_read() reads a whole supervisor from the table at `index`,
 * fli_lua_supervisor_tree_read_child() one child. The caller gets one reference. On an invalid table they raise a Lua
 * error that names the place in the table, and free everything. */
fli_lua_supervisor_tree *fli_lua_supervisor_tree_read(lua_State *L, int index);
fli_lua_supervisor_tree *fli_lua_supervisor_tree_read_child(lua_State *L, int index);

void fli_lua_supervisor_tree_drop(fli_lua_supervisor_tree *tree);

/* Returns the spawn options of the supervisor, with its args; valid as long as the tree. */
const filch_spawn_options *fli_lua_supervisor_tree_options(const fli_lua_supervisor_tree *tree);
/* Returns true if the process that starts the supervisor is linked with it (option `link`, by default true). */
bool fli_lua_supervisor_tree_links(const fli_lua_supervisor_tree *tree);
/* Returns the child, valid as long as the tree. When a supervisor takes the child, it also takes one reference to the
 * tree, which child->release drops. */
const filch_child *fli_lua_supervisor_tree_child(const fli_lua_supervisor_tree *tree);

/* Returns the process type of supervisors with Lua processes as children; the host stores the type. */
filch_type fli_lua_supervisor_tree_type(void);

#endif
