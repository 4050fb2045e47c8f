/* header_plain.c - the header without bodies (FILCH_NO_INLINE), as a generator of bindings reads it: inline functions
 * are only declared, and come from the library. Built and run by the test header_no_inline; header_no_inline_c99 and
 * _cxx17 check its syntax. */
#define FILCH_NO_INLINE
#include <filch.h>

#ifdef FILCH_SHAPE
#error "bodies are still there"
#endif

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) return filch_done(out, filch_int(filch_as_int(&events[i].data) + 1));
    }
    return filch_idle(out);
}

static void on_exit_fn(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    if (error == FILCH_OK) *(int64_t *)user = filch_as_int(result);
}

int main(void)
{
    filch_type          type = { "plain", 0, NULL, step, NULL, { NULL, NULL, NULL } };
    filch_options       options = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    filch_pid           pid;
    int64_t             result = 0;
    spawn.on_exit = on_exit_fn;
    spawn.on_exit_user = &result;
    options.workers = FILCH_NO_WORKERS;
    if (filch_sched_create(&sched, &options) != FILCH_OK || filch_spawn(sched, &type, &spawn, &pid) != FILCH_OK)
        return 1;
    if (filch_send(sched, pid, filch_int(41)) != FILCH_OK || filch_tick(sched, 0, NULL) != FILCH_OK) return 1;
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL) == FILCH_OK && result == 42 ? 0 : 1;
}
