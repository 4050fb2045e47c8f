/* registry_test.c - handlers are found for small and large command ids, and a registry in use cannot be changed. */
#include "dispatch/registry.h"

#include "support/check.h"

static filch_err handle(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    (void)tag;
    (void)receiver;
    return FILCH_OK;
}

static filch_registry *begin(void)
{
    filch_registry *registry;
    ok(fli_registry_create(&registry));
    return registry;
}

/* Returns the user pointer that the tests register together with the handler of `id`: the id as a pointer. */
static void *user_of(uint32_t id)
{
    return (void *)(uintptr_t)id;
}

TEST(small_and_large_ids_are_found)
{
    const uint32_t  ids[] = { 1, 2, 254, 255, 256, 257, 4096, 1u << 31, UINT32_MAX - 1, UINT32_MAX };
    filch_registry *registry = begin();
    for (size_t i = 0; i < 10; i++) {
        assert_null(fli_registry_find(registry, ids[i]));
        ok(filch_registry_add(registry, ids[i], handle, user_of(ids[i])));
    }
    for (size_t i = 0; i < 10; i++) {
        const fli_handler *found = fli_registry_find(registry, ids[i]);
        assert_non_null(found);
        assert_ptr_equal(found->user, user_of(ids[i]));
        assert_true(found->handle == handle);
        same(filch_registry_add(registry, ids[i], handle, NULL), FILCH_EEXISTS);
        assert_ptr_equal(fli_registry_find(registry, ids[i])->user, user_of(ids[i]));
    }
    assert_null(fli_registry_find(registry, 3));
    assert_null(fli_registry_find(registry, 258));
    assert_null(fli_registry_find(registry, 0));
    filch_registry_destroy(registry);
}

TEST(the_table_of_large_ids_grows)
{
    enum { MANY = 20000 };
    filch_registry *registry = begin();
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t id = 256 + i * 2654435u % 4000000u;
        ok(filch_registry_add(registry, id, handle, user_of(id)));
        /* id 256, added first, is found after every growth of the table */
        assert_ptr_equal(fli_registry_find(registry, 256)->user, user_of(256));
    }
    uint32_t found = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t id = 256 + i * 2654435u % 4000000u;
        assert_ptr_equal(fli_registry_find(registry, id)->user, user_of(id));
    }
    for (uint32_t id = 0; id < 4000256; id += 7) found += fli_registry_find(registry, id) != NULL;
    assert_in_range(found, 1, MANY);
    filch_registry_destroy(registry);
}

TEST(no_handler_can_be_added_to_a_registry_in_use)
{
    filch_registry *registry = begin();
    ok(filch_registry_add(registry, 300, handle, NULL));
    fli_registry_use(registry);
    same(filch_registry_add(registry, 301, handle, NULL), FILCH_EFROZEN);
    same(filch_registry_add(registry, 5, handle, NULL), FILCH_EFROZEN);
    same(filch_registry_add(registry, 300, handle, NULL), FILCH_EFROZEN);
    assert_non_null(fli_registry_find(registry, 300));
    fli_registry_use(registry);
    /* Each of the three holders (the program and two schedulers) drops its reference; the last call frees the registry.
     */
    filch_registry_destroy(registry);
    filch_registry_destroy(registry);
    assert_non_null(fli_registry_find(registry, 300));
    filch_registry_destroy(registry);
}

TEST(bad_arguments_are_refused)
{
    filch_registry *registry = begin();
    same(filch_registry_add(NULL, 1, handle, NULL), FILCH_EINVAL);
    same(filch_registry_add(registry, 0, handle, NULL), FILCH_EINVAL);
    same(filch_registry_add(registry, 1, NULL, NULL), FILCH_EINVAL);
    assert_null(fli_registry_find(registry, 1));
    filch_registry_destroy(registry);
    filch_registry_destroy(NULL);
    same(filch_registry_create(NULL), FILCH_EINVAL);
}

TEST(a_new_registry_knows_the_built_in_commands)
{
    const uint32_t  ids[] = { FILCH_CMD_SEND,   FILCH_CMD_SLEEP,        FILCH_CMD_TIMER,
                              FILCH_CMD_TICKER, FILCH_CMD_TIMER_CANCEL, FILCH_CMD_WORK };
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    for (int i = 0; i < 6; i++) same(filch_registry_add(registry, ids[i], handle, NULL), FILCH_EEXISTS);
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle, NULL));
    filch_registry_destroy(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_large_ids_are_found),
        cmocka_unit_test(the_table_of_large_ids_grows),
        cmocka_unit_test(no_handler_can_be_added_to_a_registry_in_use),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(a_new_registry_knows_the_built_in_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
