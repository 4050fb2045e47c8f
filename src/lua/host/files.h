/* files.h - the files that processes are started from and that they require: each is read once, and read again by
 * filch_lua_reload if it has changed.
 *
 * As in Erlang, the code that a name refers to does not change when the file changes: a process that is started while
 * the file is being edited gets the same code as all other processes. filch_lua_reload checks all known files. A file
 * with changed bytes is compiled. If that succeeds, its name refers to the new code: for new processes, for restarted
 * children, and for processes that asked to be upgraded (process.upgradable), which get a message.
 *
 * A file is known by its real path. A program can give one file any number of names ("./x.lua", "././x.lua"): all of
 * them refer to one fli_lua_file, and only a few are kept.
 */
#ifndef FLI_LUA_FILES_H
#define FLI_LUA_FILES_H

#include <filch_lua.h>
#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/atomic.h"

struct fli_lua_proc;

typedef struct fli_lua_file {
    struct fli_lua_file   *next;
    struct filch_lua_code *code; /* newest code of the file; protected by the host's lock */
    uint64_t               hash; /* hash of the text of `code`; protected by the host's mutex `reloading` */
    /* hash of the last text that did not compile, so that its error is reported only once; protected by `reloading` */
    uint64_t bad_hash;
    /* 1 for the first code of the file, one more for each newer code that was loaded.  writes: under the host's lock.
     * reads: under the lock, except in log_failure() of upgrade.c, which needs no order. */
    FLI_ATOMIC(uint64_t) version;
    /* The newest version for which log_failure() of upgrade.c has logged that a process could not be upgraded to it.
     * writes and reads: any thread. The number orders no other memory access. */
    FLI_ATOMIC(uint64_t) logged_version;
    unsigned             name_count; /* number of names in the host's list `modules`; protected by the host's lock */
    char *real;   /* real path without links, the same for all names of the file; protected by the host's lock */
    char  path[]; /* path by which the file was first found; filch_lua_reload reads the file again from this path */
} fli_lua_file;

/* A module or file name that a Lua program has used, and the file that was found for this name. */
typedef struct fli_lua_module {
    struct fli_lua_module *next;
    fli_lua_file          *file;
    char                   name[];
} fli_lua_module;

/* A file that a process has code from. */
typedef struct fli_lua_used {
    struct fli_lua_used *next;
    fli_lua_file        *file;
    uint64_t             version;
} fli_lua_used;

/* The origin of some code: a file in one version, or no file (NULL). */
typedef struct fli_lua_origin {
    fli_lua_file *file;
    uint64_t      version;
} fli_lua_origin;

/* Sets *code to the code of the module or file that a Lua program refers to by `name` (sources.h). Reads and compiles
 * the file if it is not in the list of known files. The caller gets one reference to *code; on failure `text` gets the
 * reason. When the list is full (a few thousand files), a file that is not in it is read at each call, and *origin is
 * empty. */
filch_err fli_lua_file_named(struct filch_lua *lua, const char *name, struct filch_lua_code **code,
                             fli_lua_origin *origin, char *text, size_t text_size);

/* Returns the newest code of a file. The caller gets one reference. */
struct filch_lua_code *fli_lua_file_newest(struct filch_lua *lua, fli_lua_file *file, fli_lua_origin *origin);

/* Records that the process has code from `origin`. Returns false if memory is short. */
bool fli_lua_file_used(struct fli_lua_proc *p, const fli_lua_origin *origin);
/* Returns a file that the process has code from and that has been loaded again since, or NULL if there is none. If
 * `seen`, also records the newest versions of all files of the process as used, so that the next call does not return
 * them again. */
fli_lua_file *fli_lua_file_outdated(struct fli_lua_proc *p, bool seen);

/* Adds the process to the list of subscribers if `on`, otherwise removes it. A subscriber gets a message when a file
 * that it uses has changed and was compiled again without an error. */
void fli_lua_file_subscribe(struct fli_lua_proc *p, bool on);

void fli_lua_files_fini(struct filch_lua *lua);

#endif
