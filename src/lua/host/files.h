/* files.h - the files that processes are started from and that they require: each is read once, and again on
 * filch_lua_reload.
 *
 * As in Erlang, the code that a name refers to does not change when the file changes: a process that is started while
 * the file is being edited gets the same code as all others. filch_lua_reload checks all known files. A file with
 * changed bytes is compiled. If that succeeds, its name refers to the new code: for new processes, for restarted
 * children, and for processes that asked to be upgraded (process.upgradable), which get a message.
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
    struct filch_lua_code *code;     /* newest code; under the host's lock */
    uint64_t               hash;     /* hash of the text of `code`; this and `bad_hash` under `reloading` */
    uint64_t               bad_hash; /* hash of the last text that did not compile, so that it is reported once */
    /* Grows by one each time the file is read again.  writes: under the host's lock.  reads: any thread. Only a hint
     * that the list should be checked under the lock. */
    FLI_ATOMIC(uint64_t) version;
    /* The last version for which a process has logged that it cannot be upgraded to it.  writes and reads: any
     * thread. Only a number: it orders nothing. */
    FLI_ATOMIC(uint64_t) told;
    char path[];
} fli_lua_file;

/* A name that a program used, and the file that was found for it. */
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

/* Where code came from: no file, or a file in one version. */
typedef struct fli_lua_origin {
    fli_lua_file *file;
    uint64_t      version;
} fli_lua_origin;

/* Returns in *code the code that a program calls `name` (sources.h), from the list or read now. Gives *code one
 * reference; on failure `text` gets the reason. When the list is full (a few thousand files), a further file is read
 * each time, and *origin is empty. */
filch_err fli_lua_file_named(struct filch_lua *lua, const char *name, struct filch_lua_code **code,
                             fli_lua_origin *origin, char *text, size_t text_size);

/* Returns the newest code of a file. Gives one reference. */
struct filch_lua_code *fli_lua_file_newest(struct filch_lua *lua, fli_lua_file *file, fli_lua_origin *origin);

/* Records that the process has code from `origin`. Returns false if memory is short. */
bool fli_lua_file_used(struct fli_lua_proc *p, const fli_lua_origin *origin);
/* Returns a file that the process uses and that has been read again since, or NULL if there is none. With `seen`,
 * the file is not returned again for its present version. */
fli_lua_file *fli_lua_file_outdated(struct fli_lua_proc *p, bool seen);

/* The process wants a message when a file that it uses has changed (`on`), or no longer. */
void fli_lua_file_subscribe(struct fli_lua_proc *p, bool on);

void fli_lua_files_fini(struct filch_lua *lua);

#endif
