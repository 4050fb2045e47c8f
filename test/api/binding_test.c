/* binding_test.c - the library as a binding of another language uses it: loaded at run time, by name, without the
 * header. Functions that the header inlines are exported too, and give identical results. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include <filch.h>

#include "support/check.h"

static void *library;

static void find(const char *name, void *function)
{
    void *at = dlsym(library, name);
    if (at == NULL) fail_msg("the library does not export %s", name);
    memcpy(function, &at, sizeof at);
}

/* Declares the pointer `loaded` and sets it to the exported function `name` of the loaded library. */
#define LOAD(name)            \
    __typeof__(&name) loaded; \
    find(#name, &loaded)

/* Checks that the exported and the inline version of the function `name` make identical payloads. */
#define MAKES_THE_SAME(name, ...)                                          \
    do {                                                                   \
        LOAD(name);                                                        \
        filch_data theirs = loaded(__VA_ARGS__), ours = name(__VA_ARGS__); \
        assert_memory_equal(&theirs, &ours, sizeof ours);                  \
    } while (0)

TEST(a_loaded_library_makes_the_values_that_the_header_makes)
{
    static const int64_t ints[] = { 0, 1, -1, INT64_MIN, INT64_MAX };
    static const double  nums[] = { 0.0, -0.0, 0.5, -1e300, INFINITY };
    MAKES_THE_SAME(filch_value, FILCH_KIND_PID, UINT64_MAX, 7);
    MAKES_THE_SAME(filch_none);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) MAKES_THE_SAME(filch_int, ints[i]);
    for (size_t i = 0; i < sizeof nums / sizeof *nums; i++) MAKES_THE_SAME(filch_num, nums[i]);
    MAKES_THE_SAME(filch_of_pid, (filch_pid){ UINT64_MAX, 2 });
    MAKES_THE_SAME(filch_ptr, &library);
    MAKES_THE_SAME(filch_ptr, NULL);
    MAKES_THE_SAME(filch_of_stream, (filch_stream){ UINT64_MAX - 1 });
    MAKES_THE_SAME(filch_lent, FILCH_KIND_TEXT, &library, 1);
    MAKES_THE_SAME(filch_bytes, &library, SIZE_MAX);
    MAKES_THE_SAME(filch_bytes, NULL, 0);
    MAKES_THE_SAME(filch_str, (const char *)&library);
}

/* The inline and the exported version must return identical results, compared as bytes: numbers, pointers, structs of
 * words. */
#define READS_THE_SAME(name, data)                                       \
    do {                                                                 \
        LOAD(name);                                                      \
        __typeof__(name(data)) theirs = loaded(data), ours = name(data); \
        assert_memory_equal(&theirs, &ours, sizeof ours);                \
    } while (0)

TEST(a_loaded_library_reads_payloads_as_the_header_does)
{
    filch_data inside;
    filch_data lent = filch_str("seven");
    ok(filch_keep(&lent, &inside)); /* `inside` contains the text itself, not a pointer to it */
    filch_data made[] = { filch_none(),
                          filch_int(-7),
                          filch_num(-2.5),
                          filch_of_pid((filch_pid){ 3, UINT64_MAX }),
                          filch_ptr(&library),
                          filch_str("seven"),
                          inside,
                          filch_bytes("\1\2", 2),
                          filch_move(&library, sizeof library, NULL) };
    for (size_t i = 0; i <= sizeof made / sizeof *made; i++) {
        const filch_data *data = i < sizeof made / sizeof *made ? &made[i] : NULL;
        READS_THE_SAME(filch_kind_of, data);
        READS_THE_SAME(filch_as_int, data);
        READS_THE_SAME(filch_as_num, data);
        READS_THE_SAME(filch_as_pid, data);
        READS_THE_SAME(filch_as_ptr, data);
        READS_THE_SAME(filch_as_stream, data);
        READS_THE_SAME(filch_raw, data);
        READS_THE_SAME(filch_size, data);
        LOAD(filch_text);
        assert_string_equal(loaded(data), filch_text(data));
    }
}

/* A payload made by the loaded library passes the checks of the inline functions. */
TEST(a_value_made_by_a_loaded_library_passes_the_inline_checks)
{
    LOAD(filch_int);
    filch_data number = loaded(INT64_MIN);
    same(filch_kind_of(&number), FILCH_KIND_INT);
    assert_true(filch_as_int(&number) == INT64_MIN);
    filch_data kept;
    ok(filch_keep(&number, &kept));
    assert_true(filch_as_int(&kept) == INT64_MIN);
    filch_drop(&kept);
}

struct received {
    int64_t number;
    char    text[8];
};

static struct received received;

static filch_err receive_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) {
            LOAD(filch_done);
            return loaded(out, filch_int(received.number));
        }
        LOAD(filch_text);
        received.number += filch_as_int(&events[i].data);
        if (filch_kind_of(&events[i].data) == FILCH_KIND_TEXT) strcpy(received.text, loaded(&events[i].data));
    }
    LOAD(filch_idle);
    return loaded(out);
}

/* The functions of the header that send a payload, or end the process with a payload, are inline: they call exported
 * functions with names that end in _any or _value. The test calls the versions that the loaded library exports. */
TEST(a_loaded_library_sends_values_and_texts_and_ends_with_them)
{
    static const filch_type receiving_type = { .name = "hearer", .step = receive_step };
    filch_sched *(*of_out)(const filch_out *);
    filch_sched *(*of_ctx)(const filch_ctx *);
    __typeof__(&filch_sched_create) create;
    __typeof__(&filch_sched_stop)   stop;
    __typeof__(&filch_spawn)        spawn;
    __typeof__(&filch_tick)         tick;
    LOAD(filch_send);
    find("filch_sched_create", &create);
    find("filch_sched_stop", &stop);
    find("filch_spawn", &spawn);
    find("filch_tick", &tick);
    find("filch_out_sched", &of_out);
    find("filch_ctx_sched", &of_ctx);
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.workers = FILCH_NO_WORKERS;
    filch_sched *sched = NULL;
    filch_pid    pid;
    ok(create(&sched, &opt));
    ok(spawn(sched, &receiving_type, NULL, &pid));
    ok(loaded(sched, pid, filch_int(7)));
    ok(loaded(sched, pid, filch_str("seven")));
    same(loaded(NULL, pid, filch_int(7)), FILCH_EINVAL);
    same(loaded(NULL, pid, filch_str("seven")), FILCH_EINVAL);
    uint32_t ran;
    do ok(tick(sched, 10, &ran));
    while (ran > 0);
    same(received.number, 7);
    assert_string_equal(received.text, "seven");
    assert_null(of_out(NULL));
    assert_null(of_ctx(NULL));
    ok(stop(sched, FILCH_SECONDS(10), NULL));
}

/* The exported functions that inline functions call (names that end in _any or _value) refuse NULL as the scheduler or
 * as `out`, and an empty receiver. */
TEST(the_functions_behind_inline_calls_refuse_null)
{
    __typeof__(&filch_send_any)       send_any;
    __typeof__(&filch_send_value)     send_value;
    __typeof__(&filch_done_any)       done_any;
    __typeof__(&filch_done_value)     done_value;
    __typeof__(&filch_yield_any)      yield_any;
    __typeof__(&filch_yield_value)    yield_value;
    __typeof__(&filch_complete_any)   complete_any;
    __typeof__(&filch_complete_value) complete_value;
    filch_pid                         null_pid = { 0, 0 };
    filch_receiver                    none = { NULL, 0, 0 };
    find("filch_send_any", &send_any);
    find("filch_send_value", &send_value);
    find("filch_done_any", &done_any);
    find("filch_done_value", &done_value);
    same(send_any(NULL, null_pid, filch_str("seven")), FILCH_EINVAL);
    same(send_value(NULL, null_pid, FILCH_KIND_INT, 7, 0), FILCH_EINVAL);
    same(done_any(NULL, filch_str("seven")), FILCH_EINVAL);
    same(done_value(NULL, FILCH_KIND_INT, 7, 0), FILCH_EINVAL);
    find("filch_yield_any", &yield_any);
    find("filch_yield_value", &yield_value);
    find("filch_complete_any", &complete_any);
    find("filch_complete_value", &complete_value);
    same(yield_any(NULL, FILCH_CMD_USER, 1, filch_str("seven")), FILCH_EINVAL);
    same(yield_value(NULL, FILCH_CMD_USER, 1, FILCH_KIND_INT, 7, 0), FILCH_EINVAL);
    same(complete_any(none, filch_str("seven"), FILCH_OK), FILCH_EINVAL);
    same(complete_value(NULL, 0, FILCH_KIND_INT, 7, 0, FILCH_OK), FILCH_EINVAL);
}

static int load(void **state)
{
    (void)state;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    return 0;
}

static int unload(void **state)
{
    (void)state;
    return dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loaded_library_makes_the_values_that_the_header_makes),
        cmocka_unit_test(a_loaded_library_reads_payloads_as_the_header_does),
        cmocka_unit_test(a_value_made_by_a_loaded_library_passes_the_inline_checks),
        cmocka_unit_test(a_loaded_library_sends_values_and_texts_and_ends_with_them),
        cmocka_unit_test(the_functions_behind_inline_calls_refuse_null),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
