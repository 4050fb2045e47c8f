/* values_test.c - inherited values: a lookup finds the newest value of a name, and a chain lives as long as it is
 * referenced. */
#include "proc/values.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static int  freed;
static void on_free(void *user, void *bytes, size_t size)
{
    (void)user;
    (void)size;
    freed++;
    free(bytes);
}

TEST(the_newest_value_of_a_name_is_found)
{
    filch_values *one, *two, *three;
    ok(filch_values_create(NULL, "colour", filch_int(1), &one));
    ok(filch_values_create(one, "size", filch_int(2), &two));
    ok(filch_values_create(two, "colour", filch_int(3), &three));
    same(filch_as_int(fli_values_find(three, "colour")), 3);
    same(filch_as_int(fli_values_find(three, "size")), 2);
    /* the older value of "colour" is still in the chain `two`, because chains never change */
    same(filch_as_int(fli_values_find(two, "colour")), 1);
    assert_null(fli_values_find(one, "size"));
    assert_null(fli_values_find(three, "colou"));
    assert_null(fli_values_find(NULL, "colour"));
    filch_values_drop(three);
    filch_values_drop(two);
    filch_values_drop(one);
}

TEST(a_chain_keeps_the_chain_it_extends_alive)
{
    freed = 0;
    filch_values *one, *left, *right;
    ok(filch_values_create(NULL, "block", filch_move(malloc(4), 4, on_free), &one));
    ok(filch_values_create(one, "left", filch_none(), &left));
    ok(filch_values_create(one, "right", filch_none(), &right));
    filch_values_drop(one);
    filch_values_drop(left);
    same(freed, 0);
    same(filch_size(fli_values_find(right, "block")), 4);
    assert_ptr_equal(fli_values_hold(right), right);
    filch_values_drop(right);
    same(freed, 0);
    filch_values_drop(right);
    same(freed, 1);
    filch_values_drop(NULL);
    assert_null(fli_values_hold(NULL));
}

TEST(keys_and_texts_are_copied)
{
    char          key[] = "key", text[] = "some text, longer than twenty-four bytes";
    filch_values *values;
    ok(filch_values_create(NULL, key, filch_str(text), &values));
    memset(key, 'x', 3);
    memset(text, 'x', 10);
    assert_string_equal(filch_text(fli_values_find(values, "key")), "some text, longer than twenty-four bytes");
    filch_values_drop(values);
    ok(filch_values_create(NULL, "", filch_int(5), &values)); /* an empty key is allowed */
    same(filch_as_int(fli_values_find(values, "")), 5);
    filch_values_drop(values);
}

TEST(invalid_keys_and_values_are_refused_and_change_nothing)
{
    filch_values *one, *out = NULL;
    ok(filch_values_create(NULL, "a", filch_int(1), &one));
    same(filch_values_create(one, NULL, filch_int(1), &out), FILCH_EINVAL);
    same(filch_values_create(one, "b", filch_int(1), NULL), FILCH_EINVAL);
    same(filch_values_create(one, "b", filch_bytes(NULL, 3), &out), FILCH_EINVAL);
    assert_null(out);
    filch_values_drop(one); /* frees the whole chain: otherwise the leak check would report a leak */
}

/* filch_values_drop() frees a long chain in a loop, not by recursion, which could overflow the stack. */
TEST(a_very_long_chain_can_be_dropped)
{
    filch_values *chain = NULL;
    for (int i = 0; i < 200000; i++) {
        filch_values *longer;
        ok(filch_values_create(chain, "k", filch_int(i), &longer));
        filch_values_drop(chain);
        chain = longer;
    }
    same(filch_as_int(fli_values_find(chain, "k")), 199999);
    filch_values_drop(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_value_of_a_name_is_found),
        cmocka_unit_test(a_chain_keeps_the_chain_it_extends_alive),
        cmocka_unit_test(keys_and_texts_are_copied),
        cmocka_unit_test(invalid_keys_and_values_are_refused_and_change_nothing),
        cmocka_unit_test(a_very_long_chain_can_be_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
