/* sources.h - where the code that a program names comes from: its own folders, and nowhere else.
 *
 * The folders (roots) are those of the templates of option `path`, and those of option `roots`. A name with a '/' or
 * that ends with ".lua" is a file, relative to a root; any other is a module, found along the path as `require` does.
 * Either must be a regular file whose real path lies inside a root, end with ".lua", and be small: it is read and
 * compiled on a worker.
 */
#ifndef FLI_LUA_SOURCES_H
#define FLI_LUA_SOURCES_H

#include <filch_lua.h>
#include <stdbool.h>
#include <stddef.h>

/* The roots of a path and `more` (may be NULL), separated by ';'. malloc's; NULL: no memory. */
char *fli_lua_source_roots(const char *path, const char *more);

/* Whether `name` may be the name of a module: what `require` takes. */
bool fli_lua_is_module(const char *name, size_t size);

/* The path of the file that `name` stands for. Reads nothing of it. */
filch_err fli_lua_source_find(const struct filch_lua *lua, const char *name, char *path, size_t room, char *text,
                              size_t text_size);

/* All of that file, malloc's. */
filch_err fli_lua_source_read(const struct filch_lua *lua, const char *path, char **all, size_t *size, char *text,
                              size_t text_size);

#endif
