/* lua_bounds_test.c - boundary values of every format: 0, 1, 15, 16, 31, 32, 255, 256, 65,535, 65,536, 2^31, 2^32,
 * 2^53, 2^63 as messages, as MessagePack and as JSON, compared with independent codecs in bounds.lua; and the functions
 * of `table` and `string` that Filch replaces, with each argument from before the first to after the last position. */
#include "lua/world.h"

static world w;

static int open_world(void **state)
{
    filch_lua_options options = FILCH_LUA_OPTIONS_INIT;
    *state = &w;
    options.runaway_ns = FILCH_SECONDS(10); /* under a sanitizer a large message takes longer than the default */
    world_open(&w, 1, &options);
    return 0;
}

#define BOUNDS(name, function)                               \
    TEST(name)                                               \
    {                                                        \
        world_passes(&w, "require 'bounds'." function "()"); \
    }

BOUNDS(messages_of_every_size_arrive_as_they_were_sent, "messages")
BOUNDS(results_and_arguments_of_every_size_arrive, "results")
BOUNDS(messagepack_is_what_the_specification_says, "msgpack")
BOUNDS(every_form_of_messagepack_is_read, "msgpack_forms")
BOUNDS(no_beginning_of_a_messagepack_value_is_one, "msgpack_cut")
BOUNDS(json_of_every_size_is_read_and_written, "json")
BOUNDS(moves_that_overlap_by_any_number_are_right, "moves")
BOUNDS(repeated_strings_are_as_long_as_they_should_be, "repeated")

BOUNDS(parts_of_blobs_are_those_of_strings, "blobs")
BOUNDS(random_numbers_are_those_of_the_algorithm, "random")
BOUNDS(spans_of_time_are_read_to_the_letter, "spans")
BOUNDS(a_place_in_a_value_is_named_by_its_keys, "paths")

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_world, world_close_shared)
        T(messages_of_every_size_arrive_as_they_were_sent),
        T(results_and_arguments_of_every_size_arrive),
        T(messagepack_is_what_the_specification_says),
        T(every_form_of_messagepack_is_read),
        T(no_beginning_of_a_messagepack_value_is_one),
        T(json_of_every_size_is_read_and_written),
        T(moves_that_overlap_by_any_number_are_right),
        T(repeated_strings_are_as_long_as_they_should_be),
        T(parts_of_blobs_are_those_of_strings),
        T(random_numbers_are_those_of_the_algorithm),
        T(spans_of_time_are_read_to_the_letter),
        T(a_place_in_a_value_is_named_by_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
