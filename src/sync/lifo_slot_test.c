/* lifo_slot_test.c - the LIFO slot: put, take, and that an item is not taken twice. test/modelcheck explores the
 * interleavings. */
#include "sync/lifo_slot.h"

#include "port/thread.h"
#include "support/check.h"

TEST(an_item_that_was_put_is_taken_once)
{
    fli_lifo_slot slot;
    int           item;
    fli_lifo_slot_init(&slot);
    assert_false(fli_lifo_slot_is_full(&slot));
    assert_null(fli_lifo_slot_take(&slot));
    assert_true(fli_lifo_slot_put(&slot, &item));
    assert_true(fli_lifo_slot_is_full(&slot));
    assert_ptr_equal(fli_lifo_slot_take(&slot), &item);
    assert_null(fli_lifo_slot_take(&slot));
}

TEST(a_full_lifo_slot_takes_no_second_item_and_keeps_the_first)
{
    fli_lifo_slot slot;
    int           first, second;
    fli_lifo_slot_init(&slot);
    assert_true(fli_lifo_slot_put(&slot, &first));
    assert_false(fli_lifo_slot_put(&slot, &second));
    assert_ptr_equal(fli_lifo_slot_take(&slot), &first);
    assert_true(fli_lifo_slot_put(&slot, &second));
    assert_ptr_equal(fli_lifo_slot_take(&slot), &second);
}

#define ITEMS 4096

typedef struct item {
    uint32_t value, taken; /* not atomic, so that TSan reports a take that is not ordered after the put */
} item;

static struct {
    fli_lifo_slot    slot;
    item             items[ITEMS];
    FLI_ATOMIC(bool) over;
} table;

static void take_one(void)
{
    item *it = fli_lifo_slot_take(&table.slot);
    if (it == NULL) return;
    if (it->value != (uint32_t)(it - table.items) + 1) fail_msg("the value of a taken item is not seen");
    it->taken++;
}

static void thief(void *unused)
{
    (void)unused;
    while (!fli_load_acq(&table.over)) take_one();
}

TEST(an_owner_and_two_thieves_take_each_item_once)
{
    fli_thread thieves[2];
    fli_lifo_slot_init(&table.slot);
    for (int i = 0; i < 2; i++) ok(fli_thread_start(&thieves[i], "thief", thief, NULL));
    for (uint32_t i = 0; i < ITEMS; i++) {
        table.items[i].value = i + 1;
        while (!fli_lifo_slot_put(&table.slot, &table.items[i])) take_one();
        if (i % 3 == 0) take_one();
    }
    while (fli_lifo_slot_is_full(&table.slot)) take_one();
    fli_store_rel(&table.over, true);
    for (int i = 0; i < 2; i++) fli_thread_join(&thieves[i]);
    for (uint32_t i = 0; i < ITEMS; i++) same(table.items[i].taken, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_item_that_was_put_is_taken_once),
        cmocka_unit_test(a_full_lifo_slot_takes_no_second_item_and_keeps_the_first),
        cmocka_unit_test(an_owner_and_two_thieves_take_each_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
