/* files.h - the files that processes are started from and require: each read once, and again when somebody asks for it.
 *
 * As in Erlang, what a name stands for does not change because a file did: whoever starts a process while the file is
 * being edited gets the code that everybody has. filch_lua_reload looks at all files that are known. One whose bytes
 * have changed is compiled; if that works it is what its name stands for from now on, for new processes, for children
 * that are started again, and for those that asked to be upgraded (process.upgradable), which are told.
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
    struct filch_lua_code *code;     /* the newest; under the host's lock */
    uint64_t               hash;     /* of the text it was made from; this and the next under `reloading` */
    uint64_t               bad_hash; /* of the last text that could not be compiled: told once */
    /* One more for each time it was taken anew.  writes: under the host's lock.  reads: any. Only a hint that it is
     * time to look, under the lock. */
    FLI_ATOMIC(uint64_t) version;
    /* The last version of which somebody has told that it does not go on with it.  writes and reads: any. Only counts.
     */
    FLI_ATOMIC(uint64_t) told;
    char path[];
} fli_lua_file;

/* A name that a program used, and the file that was found for it. */
typedef struct fli_lua_module {
    struct fli_lua_module *next;
    fli_lua_file          *file;
    char                   name[];
} fli_lua_module;

/* What a process has code from. */
typedef struct fli_lua_used {
    struct fli_lua_used *next;
    fli_lua_file        *file;
    uint64_t             version;
} fli_lua_used;

/* Where code came from: nobody, or a file in some version. */
typedef struct fli_lua_origin {
    fli_lua_file *file;
    uint64_t      version;
} fli_lua_origin;

/* The code that a program calls `name` (sources.h): known already, or read now. Gives *code one reference; `text` gets
 * why not. Beyond a few thousand files one is read each time, and *origin is empty. */
filch_err fli_lua_file_named(struct filch_lua *lua, const char *name, struct filch_lua_code **code,
                             fli_lua_origin *origin, char *text, size_t text_size);

/* The newest code of a file. Gives one reference. */
struct filch_lua_code *fli_lua_file_newest(struct filch_lua *lua, fli_lua_file *file, fli_lua_origin *origin);

/* Notes that the process has code from there. False: no memory. */
bool fli_lua_file_used(struct fli_lua_proc *p, const fli_lua_origin *origin);
/* A file that it uses and that has been taken anew since; NULL: none. With `seen`: from now on it is not one any more.
 */
fli_lua_file *fli_lua_file_outdated(struct fli_lua_proc *p, bool seen);

/* The process wants to be told, or no longer. */
void fli_lua_file_subscribe(struct fli_lua_proc *p, bool on);

void fli_lua_files_fini(struct filch_lua *lua);

#endif
