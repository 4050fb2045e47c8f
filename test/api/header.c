/* header.c - what a user's file looks like to the compiler: only our headers, as C99, C11 and C++17, with every warning on.
 * Compiled for its syntax by the tests header_c99, header_c11, header_cxx17; linked and run by install_test. */
#include <filch.h>
#include <filch_await.h>

#ifndef __cplusplus
/* Designated initializers are C's; C++ users write `filch_options o = {}; o.size = sizeof o;`. */
static const filch_options       options = FILCH_OPTIONS_INIT;
static const filch_spawn_options spawn_options = FILCH_SPAWN_OPTIONS_INIT;
static const filch_report        report = FILCH_REPORT_INIT;
static const filch_stats         stats = FILCH_STATS_INIT;
#else
static filch_options       options = {};
static filch_spawn_options spawn_options = {};
static filch_report        report = {};
static filch_stats         stats = {};
#endif

/* A step that awaits. C++ wants locals declared above FILCH_BEGIN. */
typedef struct waiter {
    filch_await at;
    int64_t     sum;
} waiter;

static filch_err waiter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    waiter      *w = (waiter *)self;
    filch_await *at = &w->at;
    FILCH_BEGIN(at, events, count, out);
    while (w->sum < 100) {
        FILCH_AWAIT_MESSAGE(at);
        w->sum += filch_as_int(at->data);
        FILCH_AWAIT(at, filch_yield_sleep(out, at->tag, FILCH_MILLISECONDS(1)));
        if (at->error != FILCH_OK) return at->error;
    }
    FILCH_AWAIT_TAG(at, 1);
    FILCH_AWAIT_YIELD(at);
    FILCH_AWAIT_EVENT(at);
    FILCH_FINALLY(at);
    FILCH_AWAIT(at, filch_yield_sleep(out, at->tag, FILCH_MILLISECONDS(1)));
    FILCH_END(at);
}

static const filch_step_fn  step = waiter_step;
static const filch_close_fn close_fn = filch_await_close;

/* Each function whose body is in the header: inlined, or called when nothing is. */
static int values_come_back(void)
{
    filch_pid    pid = { 7, 8 };
    filch_stream stream = { 9 };
    int          here = 0;
    filch_data   none = filch_none(), number = filch_int(-5), real = filch_num(0.5), who = filch_of_pid(pid);
    filch_data   pointer = filch_ptr(&here), open = filch_of_stream(stream);
    return filch_kind_of(&none) == FILCH_KIND_NONE && filch_as_int(&number) == -5 && filch_as_num(&real) == 0.5 &&
           filch_as_pid(&who).node == 7 && filch_as_pid(&who).serial == 8 && filch_as_ptr(&pointer) == &here &&
           filch_as_stream(&open).id == 9;
}

int main(void)
{
    uint64_t span = FILCH_SECONDS(1) + FILCH_MILLISECONDS(1) + FILCH_MICROSECONDS(1);
    (void)options;
    (void)spawn_options;
    (void)report;
    (void)stats;
    (void)step;
    (void)close_fn;
    return values_come_back() && filch_version()[0] == '0' && filch_err_text(FILCH_OK) != NULL && span < FILCH_FOREVER ? 0 : 1;
}
