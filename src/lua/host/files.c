/* files.c - see files.h. Everything here runs under the host's lock, except reading and compiling. */
#include "lua/host/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/sources.h"
#include "lua/process/proc.h"

enum { FILES_MAX = 4096 };

static fli_lua_file *find(struct filch_lua *lua, const char *path)
{
    for (fli_lua_file *file = lua->files; file != NULL; file = file->next) {
        if (strcmp(file->path, path) == 0) return file;
    }
    return NULL;
}

static fli_lua_file *find_module(struct filch_lua *lua, const char *name)
{
    for (const fli_lua_module *module = lua->modules; module != NULL; module = module->next) {
        if (strcmp(module->name, name) == 0) return module->file;
    }
    return NULL;
}

static fli_lua_code *hold_code(fli_lua_file *file, fli_lua_origin *origin)
{
    *origin = (fli_lua_origin){ .file = file, .version = fli_load_rlx(&file->version) };
    fli_lua_code_hold(file->code);
    return file->code;
}

/* Returns how long compiling a file may take. A file belongs to the program and is compiled once, so its limit is
 * FILE_SHARE times the limit of a text that a script compiles. So a large module loads on a slow processor too. */
enum { FILE_SHARE = 8 };
static uint64_t limit_of_a_file(const struct filch_lua *lua)
{
    return lua->opt.runaway_ns > UINT64_MAX / FILE_SHARE ? UINT64_MAX : lua->opt.runaway_ns * FILE_SHARE;
}

/* Compiles the present content of the file. Sets *hash to the hash of the text, also if the text does not compile. */
static filch_err compile(struct filch_lua *lua, const char *path, fli_lua_code **code, uint64_t *hash, char *text,
                         size_t text_size)
{
    char     *all;
    size_t    size;
    char      name[1024];
    filch_err err = fli_lua_source_read(lua, path, &all, &size, text, text_size);
    if (err != FILCH_OK) return err;
    *hash = fli_lua_hash_of(all, size);
    snprintf(name, sizeof name, "@%s", path);
    err = fli_lua_code_text(lua, all, size, name, limit_of_a_file(lua), code, text, text_size);
    free(all);
    return err;
}

/* Adds the file to the list of known files, unless another thread has added it in the meantime. If memory is short, or
 * the list is full, the file is not added. */
static void add(struct filch_lua *lua, const char *path, fli_lua_code *code, uint64_t hash)
{
    size_t size = strlen(path) + 1;
    if (find(lua, path) != NULL || lua->file_count >= FILES_MAX) return;
    fli_lua_file *file = malloc(sizeof *file + size);
    if (file == NULL) return;
    *file = (fli_lua_file){ .next = lua->files, .code = code, .hash = hash, .bad_hash = hash };
    fli_atomic_init(&file->version, 1);
    fli_atomic_init(&file->logged_version, 0);
    memcpy(file->path, path, size);
    fli_lua_code_hold(code);
    lua->files = file;
    lua->file_count++;
}

static void add_module(struct filch_lua *lua, const char *name, fli_lua_file *file)
{
    size_t          size = strlen(name) + 1;
    fli_lua_module *module = find_module(lua, name) == NULL ? malloc(sizeof *module + size) : NULL;
    if (module == NULL) return;
    *module = (fli_lua_module){ .next = lua->modules, .file = file };
    memcpy(module->name, name, size);
    lua->modules = module;
}

/* Sets *code to the code of the file at `path`. Reads and compiles the file if it is not in the list of known files. */
static filch_err load(struct filch_lua *lua, const char *path, fli_lua_code **code, fli_lua_origin *origin, char *text,
                      size_t text_size)
{
    *origin = (fli_lua_origin){ .file = NULL };
    fli_mutex_lock(&lua->lock);
    fli_lua_file *file = find(lua, path);
    if (file != NULL) *code = hold_code(file, origin);
    fli_mutex_unlock(&lua->lock);
    if (file != NULL) return FILCH_OK;
    uint64_t  hash;
    filch_err err = compile(lua, path, code, &hash, text, text_size);
    if (err != FILCH_OK) return err;
    fli_mutex_lock(&lua->lock);
    add(lua, path, *code, hash);
    file = find(lua, path);
    if (file != NULL) {
        fli_lua_code_drop(*code);
        *code = hold_code(file, origin);
    }
    fli_mutex_unlock(&lua->lock);
    return FILCH_OK;
}

filch_err fli_lua_file_named(struct filch_lua *lua, const char *name, fli_lua_code **code, fli_lua_origin *origin,
                             char *text, size_t text_size)
{
    char path[1024];
    fli_mutex_lock(&lua->lock);
    fli_lua_file *file = find_module(lua, name);
    if (file != NULL) *code = hold_code(file, origin);
    fli_mutex_unlock(&lua->lock);
    if (file != NULL) return FILCH_OK;
    filch_err err = fli_lua_source_find(lua, name, path, sizeof path, text, text_size);
    if (err == FILCH_OK) err = load(lua, path, code, origin, text, text_size);
    if (err != FILCH_OK || origin->file == NULL) return err;
    fli_mutex_lock(&lua->lock);
    add_module(lua, name, origin->file);
    fli_mutex_unlock(&lua->lock);
    return FILCH_OK;
}

fli_lua_code *fli_lua_file_newest(struct filch_lua *lua, fli_lua_file *file, fli_lua_origin *origin)
{
    fli_mutex_lock(&lua->lock);
    fli_lua_code *code = hold_code(file, origin);
    fli_mutex_unlock(&lua->lock);
    return code;
}

/* ---- which process uses which file ----------------------------------------------------------------------------- */

bool fli_lua_file_used(fli_lua_proc *p, const fli_lua_origin *origin)
{
    if (origin->file == NULL) return true;
    fli_lua_used *used = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *used);
    if (used == NULL) return false;
    fli_mutex_lock(&p->lua->lock);
    *used = (fli_lua_used){ .next = p->used, .file = origin->file, .version = origin->version };
    p->used = used;
    fli_mutex_unlock(&p->lua->lock);
    return true;
}

static fli_lua_file *outdated(fli_lua_proc *p, bool seen)
{
    fli_lua_file *found = NULL;
    for (fli_lua_used *used = p->used; used != NULL; used = used->next) {
        uint64_t newest = fli_load_rlx(&used->file->version);
        if (used->version == newest) continue;
        found = used->file;
        if (seen) used->version = newest;
    }
    return found;
}

fli_lua_file *fli_lua_file_outdated(fli_lua_proc *p, bool seen)
{
    fli_mutex_lock(&p->lua->lock);
    fli_lua_file *found = outdated(p, seen);
    fli_mutex_unlock(&p->lua->lock);
    return found;
}

void fli_lua_file_subscribe(fli_lua_proc *p, bool on)
{
    struct filch_lua *lua = p->lua;
    if (p->subscribed == on) return;
    fli_mutex_lock(&lua->lock);
    p->subscribed = on;
    if (on) {
        p->next_subscriber = lua->subscribers;
        p->subscriber_link = &lua->subscribers;
        if (p->next_subscriber != NULL) p->next_subscriber->subscriber_link = &p->next_subscriber;
        lua->subscribers = p;
        lua->subscriber_count++;
    } else {
        *p->subscriber_link = p->next_subscriber;
        if (p->next_subscriber != NULL) p->next_subscriber->subscriber_link = p->subscriber_link;
        lua->subscriber_count--;
    }
    fli_mutex_unlock(&lua->lock);
}

/* ---- checking for changed files --------------------------------------------------------------------------------- */

/* A process that is notified when a file that it uses has changed. */
typedef struct listener {
    filch_sched *sched;
    filch_pid    pid;
} listener;

/* Returns a list of the subscribed processes that use the file. The caller sends the messages after the lock is
 * released, because in a simulation a send may run the receiver. */
static listener *find_listeners(struct filch_lua *lua, const fli_lua_file *file, size_t *count)
{
    *count = 0;
    fli_mutex_lock(&lua->lock);
    listener *all = malloc((lua->subscriber_count + 1) * sizeof *all);
    for (fli_lua_proc *p = lua->subscribers; all != NULL && p != NULL; p = p->next_subscriber) {
        bool uses = false;
        for (const fli_lua_used *used = p->used; used != NULL && !uses; used = used->next) uses = used->file == file;
        if (uses) all[(*count)++] = (listener){ p->sched, p->self };
    }
    fli_mutex_unlock(&lua->lock);
    return all;
}

static uint64_t notify_listeners(struct filch_lua *lua, const fli_lua_file *file)
{
    size_t    count;
    uint64_t  notified = 0;
    listener *all = find_listeners(lua, file, &count);
    for (size_t i = 0; i < count; i++) {
        filch_data note = filch_bytes(fli_lua_outdated, sizeof fli_lua_outdated);
        if (filch_send(all[i].sched, all[i].pid, note) == FILCH_OK) notified++;
    }
    free(all);
    return notified;
}

/* Checks whether one file has changed, and compiles it if so. Returns false if there is nothing to report about the
 * file. */
static bool look(struct filch_lua *lua, fli_lua_file *file, filch_err *err, char *text, size_t text_size)
{
    char  *all = NULL;
    size_t size = 0;
    /* A file that does not exist or is empty is probably being written just now. */
    if (fli_lua_source_read(lua, file->path, &all, &size, NULL, 0) != FILCH_OK) return false;
    uint64_t hash = fli_lua_hash_of(all, size);
    free(all);
    if (size == 0 || hash == file->hash || hash == file->bad_hash) return false;
    fli_lua_code *code;
    *err = compile(lua, file->path, &code, &hash, text, text_size);
    if (*err == FILCH_LUA_ESYNTAX) file->bad_hash = hash;
    if (*err != FILCH_OK) return *err == FILCH_LUA_ESYNTAX;
    fli_mutex_lock(&lua->lock);
    fli_lua_code *old = file->code;
    file->code = code;
    file->hash = file->bad_hash = hash;
    fli_store_rlx(&file->version, fli_load_rlx(&file->version) + 1);
    fli_mutex_unlock(&lua->lock);
    fli_lua_code_drop(old);
    return true;
}

filch_err filch_lua_reload(filch_lua *lua, filch_lua_reload_fn tell, void *user)
{
    char text[2048];
    if (lua == NULL) return FILCH_EINVAL;
    fli_mutex_lock(&lua->lock);
    /* No file is removed from the list, and files added during the loop need no check. */
    fli_lua_file *file = lua->files;
    fli_mutex_unlock(&lua->lock);
    for (; file != NULL; file = file->next) {
        filch_err err = FILCH_OK;
        text[0] = '\0';
        fli_mutex_lock(&lua->reloading);
        bool news = look(lua, file, &err, text, sizeof text);
        fli_mutex_unlock(&lua->reloading);
        if (!news) continue;
        uint64_t notified = err == FILCH_OK ? notify_listeners(lua, file) : 0;
        if (tell != NULL) tell(user, file->path, err, text, notified);
    }
    return FILCH_OK;
}

void fli_lua_files_fini(struct filch_lua *lua)
{
    while (lua->modules != NULL) {
        fli_lua_module *module = lua->modules;
        lua->modules = module->next;
        free(module);
    }
    while (lua->files != NULL) {
        fli_lua_file *file = lua->files;
        lua->files = file->next;
        fli_lua_code_drop(file->code);
        free(file);
    }
}
