/* header.c - a user's file as the compiler sees it: only the public headers, as C99, C11 and C++17, with every warning
 * on. Syntax-checked by the tests header_c99, header_c11, header_cxx17; linked and run by install_test. */
#include <filch.h>
#include <filch_await.h>

/* Structs to which later versions may add fields. Each initialiser must set the field `size`, in C and in C++. */
static const filch_options         options = FILCH_OPTIONS_INIT;
static const filch_spawn_options   spawn_options = FILCH_SPAWN_OPTIONS_INIT;
static const filch_report          report = FILCH_REPORT_INIT;
static const filch_stats           stats = FILCH_STATS_INIT;
static const filch_node_options    node_options = FILCH_NODE_OPTIONS_INIT;
static const filch_socket_options  socket_options = FILCH_SOCKET_OPTIONS_INIT;
static const filch_sim_options     sim_options = FILCH_SIM_OPTIONS_INIT;
static const filch_sim_report      sim_report = FILCH_SIM_REPORT_INIT;
static const filch_blackbox_report box_report = FILCH_BLACKBOX_REPORT_INIT;
static const filch_data            forty_two = FILCH_INT_INIT(42), nowhere = FILCH_PTR_INIT(NULL);

static int sizes_are_set(void)
{
    return options.size == sizeof options && options.workers == 0 && spawn_options.size == sizeof spawn_options &&
           report.size == sizeof report && stats.size == sizeof stats && node_options.size == sizeof node_options &&
           socket_options.size == sizeof socket_options && sim_options.size == sizeof sim_options &&
           sim_report.size == sizeof sim_report && box_report.size == sizeof box_report &&
           filch_as_int(&forty_two) == 42 && filch_kind_of(&nowhere) == FILCH_KIND_PTR;
}

/* A step that awaits. C++ requires locals to be declared above FILCH_BEGIN. */
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

/* Uses each function that has its body in the header. The compiler inlines the function, or calls the exported
 * function of the library when inlining is off. */
static int values_come_back(void)
{
    filch_pid    pid = { 7, 8 };
    filch_stream stream = { 9 };
    int          object = 0;
    filch_data   none = filch_none(), number = filch_int(-5), real = filch_num(0.5), pid_value = filch_of_pid(pid);
    filch_data   pointer = filch_ptr(&object), open = filch_of_stream(stream);
    return filch_kind_of(&none) == FILCH_KIND_NONE && filch_as_int(&number) == -5 && filch_as_num(&real) == 0.5 &&
           filch_as_pid(&pid_value).node == 7 && filch_as_pid(&pid_value).serial == 8 &&
           filch_as_ptr(&pointer) == &object && filch_as_stream(&open).id == 9;
}

int main(void)
{
    uint64_t span = FILCH_SECONDS(1) + FILCH_MILLISECONDS(1) + FILCH_MICROSECONDS(1);
    (void)step;
    (void)close_fn;
    return sizes_are_set() && values_come_back() && filch_version()[0] == '0' && filch_err_text(FILCH_OK) != NULL &&
                   span < FILCH_FOREVER
               ? 0
               : 1;
}
