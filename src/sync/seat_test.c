/* seat_test.c - room for one item: who puts, who takes, and that nobody gets it twice. Interleavings are explored in
 * test/parts. */
#include "sync/seat.h"

#include "port/thread.h"
#include "support/check.h"

TEST(what_is_put_comes_out_once)
{
    fli_seat seat;
    int      item;
    fli_seat_init(&seat);
    assert_false(fli_seat_is_full(&seat));
    assert_null(fli_seat_take(&seat));
    assert_true(fli_seat_put(&seat, &item));
    assert_true(fli_seat_is_full(&seat));
    assert_ptr_equal(fli_seat_take(&seat), &item);
    assert_null(fli_seat_take(&seat));
}

TEST(a_full_seat_takes_no_second_item_and_keeps_the_first)
{
    fli_seat seat;
    int      first, second;
    fli_seat_init(&seat);
    assert_true(fli_seat_put(&seat, &first));
    assert_false(fli_seat_put(&seat, &second));
    assert_ptr_equal(fli_seat_take(&seat), &first);
    assert_true(fli_seat_put(&seat, &second));
    assert_ptr_equal(fli_seat_take(&seat), &second);
}

#define ITEMS 4096

typedef struct item {
    uint32_t value, taken; /* plain: a take that nothing orders after the put is a race */
} item;

static struct {
    fli_seat         seat;
    item             items[ITEMS];
    FLI_ATOMIC(bool) over;
} table;

static void take_one(void)
{
    item *it = fli_seat_take(&table.seat);
    if (it == NULL) return;
    if (it->value != (uint32_t)(it - table.items) + 1) fail_msg("an item came without what it holds");
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
    fli_seat_init(&table.seat);
    for (int i = 0; i < 2; i++) ok(fli_thread_start(&thieves[i], "thief", thief, NULL));
    for (uint32_t i = 0; i < ITEMS; i++) {
        table.items[i].value = i + 1;
        while (!fli_seat_put(&table.seat, &table.items[i])) take_one();
        if (i % 3 == 0) take_one();
    }
    while (fli_seat_is_full(&table.seat)) take_one();
    fli_store_rel(&table.over, true);
    for (int i = 0; i < 2; i++) fli_thread_join(&thieves[i]);
    for (uint32_t i = 0; i < ITEMS; i++) same(table.items[i].taken, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_comes_out_once),
        cmocka_unit_test(a_full_seat_takes_no_second_item_and_keeps_the_first),
        cmocka_unit_test(an_owner_and_two_thieves_take_each_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
