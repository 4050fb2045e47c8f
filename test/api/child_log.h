/* child_log.h - for the tests of supervisors: children that record their starts and closes, and that end on request. */
#ifndef FILCH_TEST_CHILD_LOG_H
#define FILCH_TEST_CHILD_LOG_H

#include <stdio.h>

#include "api/fixture.h"

#define FAILURE (FILCH_EUSER + 3)

/* ---- child_log: the starts and ends of the children of a supervisor ---- */

enum { CHILD_LOG_MAX = 4096, CHILD_COUNT = 16 };

static struct {
    char         entries[CHILD_LOG_MAX][4]; /* "+a": child a was started; "-a": child a was closed */
    size_t       count;
    filch_pid    pids[CHILD_COUNT]; /* the last pid that each child had */
    uint64_t     times_ns[CHILD_LOG_MAX];
    int          alive;
    int          refuse[CHILD_COUNT]; /* for each child: how many of its next init calls fail */
    filch_err    gone;                /* the error with which the supervisor has ended */
    char         end_text[200];
    int          exit_count;
    filch_sched *sched;
} child_log;

static inline void child_log_add(char sign, char letter, filch_sched *sched)
{
    if (child_log.count == CHILD_LOG_MAX) return;
    child_log.times_ns[child_log.count] = filch_now(sched);
    snprintf(child_log.entries[child_log.count++], 4, "%c%c", sign, letter);
}

/* Returns all entries from the n-th on, separated by blanks. */
static inline const char *child_log_from(size_t n)
{
    static char text[CHILD_LOG_MAX * 4];
    text[0] = '\0';
    for (; n < child_log.count; n++) {
        strcat(text, text[0] != '\0' ? " " : "");
        strcat(text, child_log.entries[n]);
    }
    return text;
}

struct child {
    filch_sched *sched;
    char         letter;
    bool         stubborn; /* the child ignores a cancel */
};

static inline filch_err child_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct child *c = self;
    int64_t       which = filch_as_int(args);
    (void)method;
    c->sched = filch_ctx_sched(ctx);
    c->letter = (char)('a' + (which & 15));
    c->stubborn = which >= 16;
    if (child_log.refuse[which & 15] > 0) {
        child_log.refuse[which & 15]--;
        return FAILURE;
    }
    child_log.pids[which & 15] = filch_ctx_self(ctx);
    child_log.alive++;
    child_log_add('+', c->letter, c->sched);
    return FILCH_OK;
}

/* A message ends the child: 0 without an error, any other number with that number as the error. */
static inline filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const struct child *c = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL && !c->stubborn) return filch_done(out, filch_none());
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        filch_err err = (filch_err)filch_as_int(&events[i].data);
        return err != FILCH_OK ? err : filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static inline void child_close(void *self)
{
    const struct child *c = self;
    child_log.alive--;
    child_log_add('-', c->letter, c->sched);
}

static const filch_type child_type = {
    .name = "child", .size = sizeof(struct child), .init = child_init, .step = child_step, .close = child_close
};

#define OPTIONS(n)                                                     \
    {                                                                  \
        .size = sizeof(filch_spawn_options), .args = FILCH_INT_INIT(n) \
    }
static const filch_spawn_options args_of[] = { OPTIONS(0), OPTIONS(1), OPTIONS(2), OPTIONS(3), OPTIONS(17) };
#define ARGS(n) &args_of[n]

static inline void on_gone(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user;
    (void)pid;
    snprintf(child_log.end_text, sizeof child_log.end_text, "%s", filch_text(result));
    child_log.gone = error;
    child_log.exit_count++;
}

static inline filch_pid supervise(filch_sched *sched, const filch_supervisor *spec)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid = { 0, 0 };
    memset(&child_log, 0, sizeof child_log);
    opt.on_exit = on_gone;
    ok(filch_supervise(sched, spec, &opt, &pid));
    return pid;
}

static const filch_child three[] = {
    { .id = "a", .type = &child_type, .options = ARGS(0) },
    { .id = "b", .type = &child_type, .options = ARGS(1) },
    { .id = "c", .type = &child_type, .options = ARGS(2) },
};

static inline void send_child(fixture *w, int which, int64_t what)
{
    ok(filch_send(w->sched, child_log.pids[which], filch_int(what)));
    fixture_tick(w);
}

#endif
