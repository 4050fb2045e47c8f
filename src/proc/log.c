/* log.c - see log.h. Also filch_log(), by which processes write log lines. */
#include "proc/log.h"

#include <stdarg.h>
#include <stdio.h>

static void call_hook(const fli_runtime *rt, filch_log_level level, filch_pid pid, const char *type, filch_err error,
                      const char *text)
{
    filch_log_line line = {
        .size = sizeof line, .level = (int32_t)level, .error = error, .pid = pid, .type = type, .text = text
    };
    rt->on_log(rt->on_log_user, &line);
}

void fli_log(const fli_runtime *rt, filch_log_level level, filch_pid pid, const char *type, filch_err error,
             const char *format, ...)
{
    char    text[FILCH_LOG_MAX];
    va_list args;
    if (rt->on_log == NULL) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    call_hook(rt, level, pid, type, error, text);
}

filch_err filch_log(filch_sched *sched, filch_log_level level, filch_err error, const char *text)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (text == NULL) return filch_invalid("text is NULL");
    if (level < FILCH_LOG_DEBUG || level > FILCH_LOG_ERROR) return filch_invalid("level is not a filch_log_level");
    fli_runtime *rt = (fli_runtime *)sched;
    fli_local   *worker = fli_current_worker(rt);
    filch_pid    pid = { 0, 0 };
    const char  *type = NULL;
    if (rt->on_log == NULL) return FILCH_OK;
    if (worker != NULL && worker->serial != 0 && !worker->dispatching) {
        pid = (filch_pid){ rt->node_id, worker->serial };
        type = fli_type_name(fli_type_of(rt, worker->serial));
    }
    call_hook(rt, level, pid, type, error, text);
    return FILCH_OK;
}
