/* sources.h - finds the file for a name of code that a program uses. Only files in the folders of the program are
 * found.
 *
 * The folders (roots) are the folders of the templates in option `path`, and the folders in option `roots`. A name with
 * a '/' or with the ending ".lua" is a file, relative to a root; any other name is a module, found along the path as
 * `require` does. The file must be a regular file, have the ending ".lua", be small (it is read and compiled on a
 * worker), and its real path must lie inside a root.
 */
#ifndef FLI_LUA_SOURCES_H
#define FLI_LUA_SOURCES_H

#include <filch_lua.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns all folders that code may be loaded from (roots), separated by ';': the folders of the templates in `path`,
 * such as "lib/?.lua", and the folders in `more` (may be NULL). The text is allocated by malloc. Returns NULL if memory
 * is short. */
char *fli_lua_source_roots(const char *path, const char *more);

/* Returns true if `name` can be the name of a module for `require`. */
bool fli_lua_is_module(const char *name, size_t size);

/* Finds the file that `name` refers to. Writes its path to `path`, and to `real` its real path without links, which is
 * the same for all names of the file. `path` and `real` have room for `room` bytes each. Does not read the file. */
filch_err fli_lua_source_find(const struct filch_lua *lua, const char *name, char *path, char *real, size_t room,
                              char *text, size_t text_size);

/* Reads the whole file into memory allocated by malloc. */
filch_err fli_lua_source_read(const struct filch_lua *lua, const char *path, char **all, size_t *size, char *text,
                              size_t text_size);

#endif
