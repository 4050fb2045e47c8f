/* ending.c - the end of a Lua process: its result, or the text of its error.
 *
 * The traceback is written without allocating memory in Lua, so that a process without memory can still say where it
 * failed.
 */
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/preempt/budget.h"
#include "lua/process/proc.h"

enum { LEVELS_FIRST = 10, LEVELS_LAST = 11, TEXT_MAX = 65536 };

static void add_text(fli_lua_bytes *text, const char *more)
{
    (void)fli_lua_bytes_add(text, more, strlen(more));
}

/* The destination of a traceback: exactly one of the two pointers is set. */
typedef struct sink {
    fli_lua_bytes *bytes;
    luaL_Buffer   *buffer;
} sink;

static void add_trace(const sink *to, const char *more)
{
    if (to->bytes != NULL) add_text(to->bytes, more);
    else luaL_addstring(to->buffer, more);
}

/* Adds one line of the traceback. The names in it are chosen by the script, so they are escaped. */
static void add_level(const sink *to, lua_State *L, lua_Debug *ar)
{
    char line[768], source[LUA_IDSIZE * FLI_ESCAPE_GROWTH], name[128];
    lua_getinfo(L, "Slnt", ar);
    (void)fli_escape(source, sizeof source, ar->short_src, strlen(ar->short_src));
    int    used = ar->currentline > 0 ? snprintf(line, sizeof line, "\n\t%s:%d: in ", source, ar->currentline)
                                      : snprintf(line, sizeof line, "\n\t%s: in ", source);
    size_t at = (size_t)used, room = sizeof line - at;
    if (ar->name != NULL) {
        (void)fli_escape(name, sizeof name, ar->name, strlen(ar->name));
        snprintf(line + at, room, "%s '%s'", ar->namewhat[0] != '\0' ? ar->namewhat : "function", name);
    } else if (*ar->what == 'm') snprintf(line + at, room, "main chunk");
    else if (*ar->what == 'C') snprintf(line + at, room, "?");
    else snprintf(line + at, room, "function <%s:%d>", source, ar->linedefined);
    add_trace(to, line);
    if (ar->istailcall) add_trace(to, "\n\t(...tail calls...)");
}

static int count_levels(lua_State *L)
{
    lua_Debug ar;
    int       low = 1, high = 1;
    while (lua_getstack(L, high, &ar)) {
        low = high;
        high *= 2;
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (lua_getstack(L, middle, &ar)) low = middle + 1;
        else high = middle;
    }
    return high - 1;
}

static void add_traceback(const sink *to, lua_State *L, int first)
{
    lua_Debug ar;
    int       last = count_levels(L), skip_from = last > LEVELS_FIRST + LEVELS_LAST ? LEVELS_FIRST : -1;
    char      line[64];
    add_trace(to, "\nstack traceback:");
    for (int level = first; lua_getstack(L, level, &ar); level++) {
        if (level == skip_from) {
            snprintf(line, sizeof line, "\n\t... (skipping %d levels)", last - LEVELS_LAST - level + 1);
            add_trace(to, line);
            level = last - LEVELS_LAST;
            continue;
        }
        add_level(to, L, &ar);
    }
}

void fli_lua_push_trace(lua_State *L, fli_lua_task *task)
{
    luaL_Buffer buffer; /* a luaL_Buffer, because an error of Lua would leak the memory of an fli_lua_bytes */
    sink        to = { .buffer = &buffer };
    size_t      size;
    const char *words = lua_tolstring(L, 1, &size);
    luaL_buffinit(L, &buffer);
    luaL_addlstring(&buffer, words, size);
    add_traceback(&to, L, 2);
    luaL_pushresult(&buffer);
    task->trace = lua_tostring(L, -1);
    task->said = size;
}

/* Pushes the text of the error at index 1. For a table without __tostring: the string in its field `message`, or, if
 * the field has no string, a text with the type of the error. For any other value: the result of luaL_tolstring(). Runs
 * in a protected call. */
static int say(lua_State *L)
{
    if (luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL && lua_istable(L, 1)) {
        lua_pushliteral(L, "message");
        if (lua_rawget(L, 1) == LUA_TSTRING) return 1;
        lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
        return 1;
    }
    luaL_tolstring(L, 1, NULL);
    return 1;
}

/* Appends the text of the error on top of L's stack to `text`. Returns the size of the text without the traceback that
 * fli_lua_push_trace() has added to it. */
static size_t add_error(fli_lua_bytes *text, lua_State *L, const fli_lua_task *task)
{
    size_t      size;
    const char *words = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &size) : NULL;
    if (words == NULL && lua_checkstack(L, 3)) {
        lua_pushcfunction(L, say);
        lua_insert(L, -2);
        if (lua_pcall(L, 1, 1, 0) == LUA_OK) words = lua_tolstring(L, -1, &size);
    }
    if (words == NULL) add_text(text, "(an error object without a text)");
    else (void)fli_lua_bytes_add(text, words, size < TEXT_MAX / 2 ? size : TEXT_MAX / 2);
    /* compares addresses: a string with the same bytes may be the script's own */
    bool traced = task != NULL && words != NULL && words == task->trace;
    return traced && task->said < text->size ? task->said : text->size;
}

/* Calls on_failure, unless the process was cancelled or killed, or on_failure was called before. The first `said` bytes
 * of `text` are words of the script, which are escaped, so that they cannot look like lines that the host writes; the
 * rest is the traceback. If there is no memory for the escaped text, reports only its beginning. */
static void report(fli_lua_proc *p, filch_err error, const char *text, size_t said, size_t size)
{
    const filch_lua_options *opt = &p->lua->opt;
    if (p->reported || error == FILCH_ECANCELLED || error == FILCH_EKILLED) return;
    p->reported = true;
    if (opt->on_failure == NULL) return;
    char few[512], *escaped = NULL;
    if (fli_escape_is_needed(text, said)) {
        size_t room = said * FLI_ESCAPE_GROWTH + 1, rest = size - said;
        escaped = malloc(room + rest);
        size = fli_escape(escaped != NULL ? escaped : few, escaped != NULL ? room : sizeof few, text, said);
        if (escaped != NULL) {
            memcpy(escaped + size, text + said, rest);
            size += rest;
        }
        text = escaped != NULL ? escaped : few;
    }
    opt->on_failure(opt->on_failure_user, p->self, p->code->kind->name, error, text, size);
    free(escaped);
}

void fli_lua_report_end(fli_lua_proc *p)
{
    filch_err   error = filch_close_error(p->sched);
    const char *text = filch_err_text(error);
    if (error != FILCH_OK) report(p, error, text, strlen(text), strlen(text));
}

filch_err fli_lua_fail(fli_lua_proc *p, filch_err error, const void *text, size_t size)
{
    report(p, error, text, size, size);
    return filch_fail(p->out, error, filch_bytes(text, size));
}

static filch_err fail_plain(fli_lua_proc *p, filch_err error)
{
    const char *text = filch_err_text(error);
    return fli_lua_fail(p, error, text, strlen(text));
}

/* Ends the process after process.exit() or process.upgrade(), which raise an error that cannot be caught. */
static filch_err end_exit(fli_lua_proc *p)
{
    if (p->next != NULL) return fli_lua_upgrade_end(p);
    filch_err err = filch_done(p->out, p->rare->result);
    return err == FILCH_OK ? FILCH_OK : fail_plain(p, err);
}

/* The error code and the traceback of the main task's error. They are stored before the pending __close handlers of the
 * main task run, because the calls that the traceback shows have been left when the handlers run. */
typedef struct fli_lua_failure {
    filch_err error; /* FILCH_ECANCELLED or FILCH_LUA_EERROR */
    size_t    size;
    char      trace[];
} fli_lua_failure;

/* Returns what is stored of the error of L (see fli_lua_failure); NULL if L is the coroutine of a task other than the
 * main task, or if the main task has not failed before. */
static const fli_lua_failure *failure_of(const fli_lua_proc *p, const lua_State *L)
{
    return L == p->main.L && fli_lua_main_has_failed(p) ? p->rare->failure : NULL;
}

/* Runs the pending __close handlers of L, unless fli_lua_end_later() has closed L, and then makes the text of the
 * error. Both may run Lua code, so p->running is set: the watchdog finds L, and the budget limits the code. If the
 * budget is spent already, runs no Lua code, because the hook that raised the error may have left L without hooks.
 * Returns the size of the text without a traceback. */
static size_t close_and_say(fli_lua_proc *p, lua_State *L, fli_lua_bytes *words)
{
    size_t said = 0;
    p->no_yield++;
    fli_store_rlx(&p->running, L);
    bool closed = failure_of(p, L) != NULL && lua_status(L) == LUA_OK;
    if (!p->runaway && !closed) (void)fli_lua_close_thread(p, L); /* afterwards the error is on top of L's stack */
    /* If L could not be resumed at all, closing L has dropped the error, and L's stack is empty. */
    if (!fli_lua_is_final(p) && lua_gettop(L) == 0) add_text(words, "(an error object without a text)");
    else if (!fli_lua_is_final(p)) said = add_error(words, L, p->current);
    fli_store_rlx(&p->running, NULL);
    p->no_yield--;
    return said;
}

static void add_limit(fli_lua_bytes *words, const char *format, unsigned long long limit)
{
    char text[160];
    snprintf(text, sizeof text, format, limit);
    add_text(words, text);
}

/* Returns the error code for the error on top of L's stack. */
static filch_err code_of(lua_State *L)
{
    bool was_cancelled = lua_type(L, -1) == LUA_TSTRING && strcmp(lua_tostring(L, -1), "cancelled") == 0 &&
                         lua_rawlen(L, -1) == strlen("cancelled");
    return was_cancelled ? FILCH_ECANCELLED : FILCH_LUA_EERROR;
}

bool fli_lua_end_later(fli_lua_proc *p, int status)
{
    lua_State *L = p->main.L;
    (void)fli_lua_ends_with(p, status);
    if (p->out_of_memory || p->runaway || p->next != NULL || lua_status(L) == LUA_OK) return false;
    if (failure_of(p, L) != NULL || fli_lua_rarely(p) == NULL) return false;
    fli_lua_bytes trace;
    fli_lua_bytes_init(&trace, TEXT_MAX);
    if (!p->main.exiting) add_traceback(&(sink){ .bytes = &trace }, L, 0);
    fli_lua_failure *failure = malloc(sizeof *failure + trace.size);
    if (failure != NULL) {
        *failure = (fli_lua_failure){ .error = code_of(L), .size = trace.size };
        memcpy(failure->trace, trace.at, trace.size);
        p->rare->failure = failure;
    }
    fli_lua_bytes_fini(&trace);
    return failure != NULL && fli_lua_closing_main(p);
}

filch_err fli_lua_error_words(fli_lua_proc *p, lua_State *L, int status, fli_lua_bytes *words, size_t *without)
{
    fli_lua_bytes          trace, said;
    const fli_lua_failure *failure = failure_of(p, L);
    fli_lua_bytes_init(&trace, TEXT_MAX);
    fli_lua_bytes_init(&said, TEXT_MAX);
    (void)fli_lua_ends_with(p, status);
    if (failure != NULL) (void)fli_lua_bytes_add(&trace, failure->trace, failure->size);
    else if (p->current == NULL || !p->current->exiting) add_traceback(&(sink){ .bytes = &trace }, L, 0);
    filch_err error = failure != NULL ? failure->error : code_of(L);
    size_t    without_trace = close_and_say(p, L, &said);
    if (p->out_of_memory) {
        add_limit(words,
                  p->heap.over_total ? "not enough memory: all processes together may hold %llu bytes"
                                     : "not enough memory: the process may hold %llu bytes",
                  p->heap.over_total ? p->lua->total.max : p->heap.max);
        error = FILCH_LUA_EMEMORY;
    } else if (p->runaway) {
        add_text(words, p->spent);
        if (!p->simulated && fli_lua_budget_ran_out_of_time(p))
            add_limit(words, ": more than %llu us", p->lua->opt.runaway_ns / 1000);
        error = FILCH_LUA_EBUDGET;
    } else {
        (void)fli_lua_bytes_add(words, said.at, said.size);
    }
    *without = words->size < without_trace || without_trace == 0 ? words->size : without_trace;
    (void)fli_lua_bytes_add(words, trace.at, trace.size);
    fli_lua_bytes_fini(&said);
    fli_lua_bytes_fini(&trace);
    return error;
}

/* Pushes on L the error of the main task, which has failed, and runs its __close handlers or is ready to run them. The
 * outermost call of the main task is run_handlers() of closing.c, which has the error as its second value. */
static void push_error_of_main(fli_lua_proc *p, lua_State *L)
{
    lua_State *main = p->main.L;
    lua_Debug  first;
    if (!lua_getstack(main, count_levels(main), &first)) lua_pushvalue(main, -1); /* run_handlers() has not begun */
    else if (lua_getlocal(main, &first, FLI_LUA_CLOSING_ERROR) == NULL) lua_pushnil(main);
    lua_xmove(main, L, 1);
}

/* Ends the process with the error of the main task, because another task has called process.exit() while the __close
 * handlers of the main task ran. L is the coroutine of the other task, which has been closed. */
static filch_err end_as_main(fli_lua_proc *p, lua_State *L)
{
    const fli_lua_failure *failure = p->rare->failure;
    fli_lua_bytes          words;
    fli_lua_bytes_init(&words, TEXT_MAX);
    lua_settop(L, 0);
    push_error_of_main(p, L);
    p->no_yield++;
    fli_store_rlx(&p->running, L);
    size_t said = add_error(&words, L, NULL);
    fli_store_rlx(&p->running, NULL);
    p->no_yield--;
    (void)fli_lua_bytes_add(&words, failure->trace, failure->size);
    report(p, failure->error, (const char *)words.at, said, words.size);
    filch_err err = filch_fail(p->out, failure->error, filch_bytes(words.at, words.size));
    fli_lua_bytes_fini(&words);
    return err;
}

filch_err fli_lua_end_failed(fli_lua_proc *p, fli_lua_task *task, int status)
{
    fli_lua_bytes words;
    fli_lua_bytes_init(&words, TEXT_MAX);
    size_t    said;
    filch_err error = fli_lua_error_words(p, task->L, status, &words, &said);
    /* If a __close handler spends the budget after process.exit(), the process has failed. If that happens after
     * process.upgrade(), the upgrade still takes place. */
    bool      ended = task->exiting && (!p->runaway || p->next != NULL);
    filch_err err;
    if (!ended) {
        report(p, error, (const char *)words.at, said, words.size);
        err = filch_fail(p->out, error, filch_bytes(words.at, words.size));
    } else if (task != &p->main && fli_lua_main_has_failed(p) && !p->main.exiting) {
        err = end_as_main(p, task->L);
    } else {
        err = end_exit(p);
    }
    fli_lua_bytes_fini(&words);
    return err;
}

filch_err fli_lua_end_done(fli_lua_proc *p, int count)
{
    fli_lua_bytes   bytes;
    fli_lua_refusal why;
    filch_data      result = filch_none();
    fli_lua_bytes_init(&bytes, p->heap.max);
    filch_err err;
    if (count > 0 && !fli_lua_pack(p->L, -count, "result", &bytes, &result, &why)) {
        err = fli_lua_fail(p, p->runaway ? FILCH_LUA_EBUDGET : FILCH_LUA_EERROR, why.text, strlen(why.text));
    } else {
        err = filch_done(p->out, result);
        fli_lua_bytes_sent(&bytes, err == FILCH_OK);
        if (err != FILCH_OK) err = fail_plain(p, err);
    }
    fli_lua_bytes_fini(&bytes);
    return err;
}
