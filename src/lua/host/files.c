/* files.c - see files.h. Everything here runs under the host's lock, except reading and compiling. */
#include "lua/host/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/host/sources.h"
#include "lua/process/proc.h"
#include "port/regular.h"

/* FILES_MAX: largest number of known files. NAMES_MAX: number of names that are kept for one file; further names of the
 * file are looked up in the file system each time. */
enum { FILES_MAX = 4096, NAMES_MAX = 4 };

static fli_lua_file *find(struct filch_lua *lua, const char *real)
{
    for (fli_lua_file *file = lua->files; file != NULL; file = file->next) {
        if (strcmp(file->real, real) == 0) return file;
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
static void add(struct filch_lua *lua, const char *path, const char *real, fli_lua_code *code, uint64_t hash)
{
    size_t size = strlen(path) + 1;
    if (find(lua, real) != NULL || lua->file_count >= FILES_MAX) return;
    fli_lua_file *file = malloc(sizeof *file + size);
    char         *kept = strdup(real);
    if (file == NULL || kept == NULL) {
        free(kept);
        free(file);
        return;
    }
    *file = (fli_lua_file){ .next = lua->files, .code = code, .hash = hash, .bad_hash = hash };
    fli_atomic_init(&file->version, 1);
    fli_atomic_init(&file->logged_version, 0);
    memcpy(file->path, path, size);
    file->real = kept;
    fli_lua_code_hold(code);
    lua->files = file;
    lua->file_count++;
}

static void add_module(struct filch_lua *lua, const char *name, fli_lua_file *file)
{
    size_t size = strlen(name) + 1;
    if (file->name_count >= NAMES_MAX || find_module(lua, name) != NULL) return;
    fli_lua_module *module = malloc(sizeof *module + size);
    if (module == NULL) return;
    file->name_count++;
    *module = (fli_lua_module){ .next = lua->modules, .file = file };
    memcpy(module->name, name, size);
    lua->modules = module;
}

/* Removes all names of the file from the list, or only the name `one` if `one` is not NULL. A removed name is looked up
 * again when a program uses it next. */
static void drop_names(struct filch_lua *lua, fli_lua_file *file, const fli_lua_module *one)
{
    for (fli_lua_module **at = &lua->modules; *at != NULL;) {
        fli_lua_module *module = *at;
        if (module->file != file || (one != NULL && module != one)) {
            at = &module->next;
            continue;
        }
        *at = module->next;
        file->name_count--;
        free(module);
        if (one != NULL) return;
    }
}

/* Sets *code to the code of the file at `path`, whose real path is `real`. Reads and compiles the file if it is not in
 * the list of known files. */
static filch_err load(struct filch_lua *lua, const char *path, const char *real, fli_lua_code **code,
                      fli_lua_origin *origin, char *text, size_t text_size)
{
    *origin = (fli_lua_origin){ .file = NULL };
    fli_mutex_lock(&lua->lock);
    fli_lua_file *file = find(lua, real);
    if (file != NULL) *code = hold_code(file, origin);
    fli_mutex_unlock(&lua->lock);
    if (file != NULL) return FILCH_OK;
    uint64_t      hash;
    fli_lua_code *compiled = NULL;
    filch_err     err = compile(lua, path, &compiled, &hash, text, text_size);
    if (err != FILCH_OK) return err;
    fli_mutex_lock(&lua->lock);
    add(lua, path, real, compiled, hash);
    file = find(lua, real);
    *code = file != NULL ? hold_code(file, origin) : compiled;
    fli_mutex_unlock(&lua->lock);
    if (file != NULL) fli_lua_code_drop(compiled);
    return FILCH_OK;
}

filch_err fli_lua_file_named(struct filch_lua *lua, const char *name, fli_lua_code **code, fli_lua_origin *origin,
                             char *text, size_t text_size)
{
    char path[1024], real[sizeof path];
    fli_mutex_lock(&lua->lock);
    fli_lua_file *file = find_module(lua, name);
    if (file != NULL) *code = hold_code(file, origin);
    fli_mutex_unlock(&lua->lock);
    if (file != NULL) return FILCH_OK;
    filch_err err = fli_lua_source_find(lua, name, path, real, sizeof path, text, text_size);
    if (err == FILCH_OK) err = load(lua, path, real, code, origin, text, text_size);
    if (err != FILCH_OK || origin->file == NULL) return err;
    fli_mutex_lock(&lua->lock);
    /* Adds the name only if the real path of the file is still `real`: a reload may have changed it in the meantime. */
    if (strcmp(origin->file->real, real) == 0) add_module(lua, name, origin->file);
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

/* Returns a list of the subscribed processes that use the file; the caller frees it. Sends no message itself, because
 * it holds the host's lock, and in a simulation a send may run the receiver. */
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

/* Sets file->real again. It changes if a link on the path of the file refers to another file now. Then the other names
 * of this fli_lua_file may still refer to the old file, so all its names are looked up again. */
static void look_up_real(struct filch_lua *lua, fli_lua_file *file)
{
    char real[1024];
    if (!fli_regular_exists(file->path, lua->roots, real, sizeof real) || strcmp(real, file->real) == 0) return;
    char *kept = strdup(real);
    if (kept == NULL) return;
    fli_mutex_lock(&lua->lock);
    char *old = file->real;
    file->real = kept;
    drop_names(lua, file, NULL);
    fli_mutex_unlock(&lua->lock);
    free(old);
}

/* Drops each name that refers to another file now. Finds changes that look_up_real() does not see, because the changed
 * link is not on the path file->path. Walks over the list of names without the lock: new names are added in front, and
 * names are removed only under `reloading`. */
static void look_up_names(struct filch_lua *lua)
{
    char path[1024], real[sizeof path];
    fli_mutex_lock(&lua->reloading);
    fli_mutex_lock(&lua->lock);
    fli_lua_module *module = lua->modules;
    fli_mutex_unlock(&lua->lock);
    for (fli_lua_module *next; module != NULL; module = next) {
        next = module->next;
        if (fli_lua_source_find(lua, module->name, path, real, sizeof path, NULL, 0) != FILCH_OK) continue;
        if (strcmp(real, module->file->real) == 0) continue;
        fli_mutex_lock(&lua->lock);
        drop_names(lua, module->file, module);
        fli_mutex_unlock(&lua->lock);
    }
    fli_mutex_unlock(&lua->reloading);
}

/* Checks whether one file has changed, and compiles it if so. Returns true if there is something to report: new code
 * (*err is FILCH_OK), or a text that does not compile (*err and `text` say why). */
static bool look(struct filch_lua *lua, fli_lua_file *file, filch_err *err, char *text, size_t text_size)
{
    char  *all = NULL;
    size_t size = 0;
    /* A file that does not exist or is empty is probably being written just now: it is not reported, and checked again
     * by the next reload. */
    if (fli_lua_source_read(lua, file->path, &all, &size, NULL, 0) != FILCH_OK) return false;
    uint64_t hash = fli_lua_hash_of(all, size);
    free(all);
    look_up_real(lua, file);
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

filch_err filch_lua_reload(filch_lua *lua, filch_lua_reload_fn report, void *user)
{
    char text[2048];
    if (lua == NULL) return filch_invalid("lua is NULL");
    fli_mutex_lock(&lua->lock);
    /* The loop walks over the list without the lock: no file is ever removed from the list, and new files are added in
     * front of `file`. */
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
        if (report != NULL) report(user, file->path, err, text, notified);
    }
    look_up_names(lua);
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
        free(file->real);
        free(file);
    }
}
