/* sources.c - see sources.h. */
#include "lua/host/sources.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/host.h"
#include "port/regular.h"

static void set_error_text(char *text, size_t size, const char *what)
{
    if (text != NULL && size > 0) snprintf(text, size, "%s", what);
}

/* ---- roots ------------------------------------------------------------------------------------------------------- */

/* Returns the length of the folder in a template such as "lib/?.lua": the part up to and including the last '/' before
 * the first '?'. */
static size_t folder_of(const char *template, size_t size)
{
    const char *mark = memchr(template, '?', size);
    size_t      used = mark != NULL ? (size_t)(mark - template) : size;
    while (used > 0 && template[used - 1] != '/') used--;
    return used;
}

char *fli_lua_source_roots(const char *path, const char *more)
{
    /* `room` is enough: the folder of a template is not longer than the template, or it is "." */
    size_t room = strlen(path) * 2 + (more != NULL ? strlen(more) : 0) + 8, used = 0;
    char  *roots = malloc(room);
    if (roots == NULL) return NULL;
    for (const char *at = path; at != NULL; at = strchr(at, ';'), at = at != NULL ? at + 1 : NULL) {
        size_t size = folder_of(at, strcspn(at, ";"));
        used += (size_t)snprintf(roots + used, room - used, "%s%.*s", used > 0 ? ";" : "", size > 0 ? (int)size : 1,
                                 size > 0 ? at : ".");
    }
    if (more != NULL) snprintf(roots + used, room - used, ";%s", more);
    return roots;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool ends_with_lua(const char *name)
{
    size_t size = strlen(name);
    return size > 4 && strcmp(name + size - 4, ".lua") == 0;
}

/* Writes to `path` the n-th template (from 0) with the module's name in place of each '?', or an empty path if the
 * result does not fit into `room` bytes. Returns false if there is no n-th template. */
static bool module_file(const char *templates, unsigned n, const char *name, char *path, size_t room)
{
    for (; n > 0; n--) {
        templates = strchr(templates, ';');
        if (templates == NULL) return false;
        templates++;
    }
    size_t used = 0;
    for (; *templates != '\0' && *templates != ';'; templates++) {
        bool   is_mark = *templates == '?';
        size_t size = is_mark ? strlen(name) : 1;
        if (size >= room - used) {
            used = 0; /* too long: leaves the path empty, and no file has an empty path */
            break;
        }
        for (size_t i = 0; i < size; i++) path[used++] = !is_mark ? *templates : name[i] == '.' ? '/' : name[i];
    }
    path[used] = '\0';
    return true;
}

bool fli_lua_is_module(const char *name, size_t size)
{
    if (size == 0 || size > 128 || strstr(name, "..") != NULL || name[0] == '.' || ends_with_lua(name)) return false;
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (!(c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
              (c >= 'A' && c <= 'Z'))) {
            return false;
        }
    }
    return true;
}

static filch_err find_module(const struct filch_lua *lua, const char *name, char *path, char *real, size_t room,
                             char *text, size_t text_size)
{
    char   message[512];
    size_t used = (size_t)snprintf(message, sizeof message, "module '%.64s' not found:", name);
    if (!fli_lua_is_module(name, strlen(name))) {
        snprintf(message, sizeof message,
                 "'%.64s' is not the name of a module: a module's name has letters, digits, '_', '-' and single dots",
                 name);
        set_error_text(text, text_size, message);
        return FILCH_LUA_EFILE;
    }
    for (unsigned n = 0; module_file(lua->path, n, name, path, room); n++) {
        if (fli_regular_exists(path, lua->roots, real, room)) return FILCH_OK;
        if (used >= sizeof message) continue;
        if (path[0] == '\0') used += (size_t)snprintf(message + used, sizeof message - used, " a path is too long");
        else used += (size_t)snprintf(message + used, sizeof message - used, " no file '%s'", path);
    }
    set_error_text(text, text_size, message);
    return FILCH_LUA_EFILE;
}

/* Writes to `path` the n-th root (from 0) followed by the name. If `n` is the number of roots, writes the name alone.
 * Returns false if `n` is larger than the number of roots. */
static bool root_file(const char *roots, unsigned n, const char *name, char *path, size_t room)
{
    for (; n > 0 && roots != NULL; n--) {
        roots = strchr(roots, ';');
        if (roots != NULL) roots++;
        else return n == 1 && (size_t)snprintf(path, room, "%s", name) < room;
    }
    size_t size = strcspn(roots, ";");
    if (name[0] == '/' || size + strlen(name) + 2 > room) path[0] = '\0';
    else snprintf(path, room, "%.*s/%s", (int)size, roots, name);
    return true;
}

/* Finds the file called `name`. The error for a file outside the roots is the same as for a missing file, so that a
 * program cannot learn which files exist outside the roots. */
static filch_err find_file(const struct filch_lua *lua, const char *name, char *path, char *real, size_t room,
                           char *text, size_t text_size)
{
    char message[256];
    if (ends_with_lua(name)) {
        for (unsigned n = 0; root_file(lua->roots, n, name, path, room); n++) {
            if (fli_regular_exists(path, lua->roots, real, room)) return FILCH_OK;
        }
    }
    snprintf(message, sizeof message,
             "cannot open %.128s: code is a regular file that ends with .lua, in the program's folders", name);
    set_error_text(text, text_size, message);
    return FILCH_LUA_EFILE;
}

filch_err fli_lua_source_find(const struct filch_lua *lua, const char *name, char *path, char *real, size_t room,
                              char *text, size_t text_size)
{
    bool is_file = strchr(name, '/') != NULL || ends_with_lua(name);
    return is_file ? find_file(lua, name, path, real, room, text, text_size)
                   : find_module(lua, name, path, real, room, text, text_size);
}

filch_err fli_lua_source_read(const struct filch_lua *lua, const char *path, char **all, size_t *size, char *text,
                              size_t text_size)
{
    char        message[256];
    fli_regular result = fli_regular_read(path, lua->roots, lua->opt.code_max, all, size);
    if (result == FLI_REGULAR_OK) return FILCH_OK;
    if (result == FLI_REGULAR_NO_MEMORY) return FILCH_ENOMEM;
    if (result == FLI_REGULAR_TOO_LARGE) {
        snprintf(message, sizeof message, "%.128s is larger than the %zu bytes that a file of code may have", path,
                 lua->opt.code_max);
    } else {
        snprintf(message, sizeof message, "cannot read %.128s", path);
    }
    set_error_text(text, text_size, message);
    return FILCH_LUA_EFILE;
}
