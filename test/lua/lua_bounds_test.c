/* lua_bounds_test.c - boundary values of every format: 0, 1, 15, 16, 31, 32, 255, 256, 65,535, 65,536, 2^31, 2^32,
 * 2^53, 2^63 as messages, as MessagePack and as JSON, compared with independent codecs in bounds.lua; and the functions
 * of `table` and `string` that Filch replaces, with each argument from before the first to after the last position. */
#include "lua/fixture.h"

static fixture w;

static int open_fixture(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    /* larger than the default, because under a sanitizer it takes long to encode a large message */
    options.runaway_ns = FILCH_SECONDS(10);
    fixture_open(&w, 1, &options);
    return 0;
}

#define BOUNDS(name, function)                                 \
    TEST(name)                                                 \
    {                                                          \
        fixture_passes(&w, "require 'bounds'." function "()"); \
    }

BOUNDS(messages_of_every_size_arrive_unchanged, "messages")
BOUNDS(results_and_arguments_of_every_size_arrive_unchanged, "results")
BOUNDS(messagepack_is_encoded_as_specified, "msgpack")
BOUNDS(every_messagepack_form_is_decoded, "msgpack_forms")
BOUNDS(a_truncated_messagepack_value_is_refused, "msgpack_cut")
BOUNDS(json_of_every_size_is_encoded_and_decoded, "json")
BOUNDS(overlapping_table_moves_are_correct, "moves")
BOUNDS(repeated_strings_have_the_right_length, "repeated")

BOUNDS(blob_sub_returns_what_string_sub_returns, "blobs")
BOUNDS(random_numbers_match_the_documented_algorithm, "random")
BOUNDS(time_spans_are_parsed_strictly, "spans")
BOUNDS(an_error_names_a_nested_value_by_its_keys, "paths")

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_fixture, fixture_close_shared)
        T(messages_of_every_size_arrive_unchanged),  T(results_and_arguments_of_every_size_arrive_unchanged),
        T(messagepack_is_encoded_as_specified),      T(every_messagepack_form_is_decoded),
        T(a_truncated_messagepack_value_is_refused), T(json_of_every_size_is_encoded_and_decoded),
        T(overlapping_table_moves_are_correct),      T(repeated_strings_have_the_right_length),
        T(blob_sub_returns_what_string_sub_returns), T(random_numbers_match_the_documented_algorithm),
        T(time_spans_are_parsed_strictly),           T(an_error_names_a_nested_value_by_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
