/* chart_test.c - tests that the drawing of a chart is exactly as expected, that the hash of a run depends on every
 * field of every event, and that no write goes beyond the kept bytes. */
#include "observe/chart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/alloc.h"
#include "support/check.h"

static test_alloc alloc;

static void begin(fli_chart *chart, uint32_t room)
{
    fli_mem mem;
    memset(&alloc, 0, sizeof alloc);
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    ok(fli_chart_init(chart, &mem, room));
}

static void end(fli_chart *chart)
{
    fli_chart_fini(chart);
    test_alloc_balanced(&alloc);
}

static void add(fli_chart *chart, fli_chart_event event)
{
    fli_chart_add(chart, &event);
}

/* Copies the drawing into a static buffer and returns it. */
static const char *drawn(const fli_chart *chart)
{
    static char text[65536];
    size_t      size = 0;
    char       *page = fli_chart_draw(chart, &size);
    assert_non_null(page);
    assert_true(strlen(page) < size && size <= sizeof text);
    strcpy(text, page);
    fli_free(&chart->mem, page, size);
    return text;
}

/* Compares line by line, so that a failure names the line. */
static void is_drawn(const fli_chart *chart, const char *expected)
{
    const char *got = drawn(chart);
    while (*got != '\0' || *expected != '\0') {
        size_t n = strcspn(got, "\n"), m = strcspn(expected, "\n");
        if (n != m || memcmp(got, expected, n) != 0)
            fail_msg("\"%.*s\" is not \"%.*s\"", (int)n, got, (int)m, expected);
        got += n + (got[n] != '\0');
        expected += m + (expected[m] != '\0');
    }
}

#define ADD(...) add(&chart, (fli_chart_event){ __VA_ARGS__ })

TEST(each_kind_of_event_is_drawn_and_described)
{
    fli_chart  chart;
    filch_data number = filch_int(-7), half = filch_num(0.5), text = filch_str("hello\n"),
               pid = filch_of_pid((filch_pid){ 1, 2 }), bytes = filch_bytes("abc", 3), pointer = filch_ptr(&chart),
               nothing = filch_none();
    begin(&chart, 64);
    fli_chart_name(&chart, 1, "bank");
    fli_chart_name(&chart, 2, "teller");
    ADD(.kind = FLI_CHART_SPAWN, .from = 0, .to = 1, .time_ns = 1);
    ADD(.kind = FLI_CHART_SPAWN, .from = 1, .to = 2, .time_ns = 999);
    ADD(.kind = FLI_CHART_SEND, .from = 1, .to = 2, .data = &number, .time_ns = 1000);
    ADD(.kind = FLI_CHART_SEND, .from = 2, .to = 1, .data = &half, .error = FILCH_EFULL, .time_ns = 1001);
    ADD(.kind = FLI_CHART_SEND, .from = 2, .to = 2, .data = &nothing);
    ADD(.kind = FLI_CHART_SEND, .from = 2, .to = FLI_CHART_UNKNOWN, .data = &pid, .error = FILCH_EUSER + 5);
    ADD(.kind = FLI_CHART_GET, .from = 1, .to = 2, .data = &text);
    ADD(.kind = FLI_CHART_GET, .from = 0, .to = 1, .data = &bytes);
    ADD(.kind = FLI_CHART_GET, .from = 0, .to = 1, .tag = 9, .data = &pointer);
    ADD(.kind = FLI_CHART_RESULT, .to = 2, .tag = 4);
    ADD(.kind = FLI_CHART_RESULT, .to = 2, .tag = 5, .error = FILCH_EDEAD);
    ADD(.kind = FLI_CHART_CANCEL, .to = 2);
    ADD(.kind = FLI_CHART_DROPS, .to = 1, .data = &number);
    ADD(.kind = FLI_CHART_NOTICE, .from = 2, .to = 1, .command = FILCH_EVENT_EXIT, .error = FILCH_ELINK);
    ADD(.kind = FLI_CHART_NOTICE, .from = 2, .to = 1, .command = FILCH_EVENT_LINK_DOWN, .error = FILCH_ELINK);
    ADD(.kind = FLI_CHART_NOTICE, .from = 2, .to = 1, .command = FILCH_EVENT_JOINED, .data = &text);
    ADD(.kind = FLI_CHART_NOTICE, .from = 2, .to = 1, .command = FILCH_EVENT_LEFT, .data = &text);
    static const uint32_t commands[] = { FILCH_CMD_SEND,   FILCH_CMD_SLEEP,        FILCH_CMD_TIMER,
                                         FILCH_CMD_TICKER, FILCH_CMD_TIMER_CANCEL, FILCH_CMD_WORK,
                                         FILCH_CMD_SPAWN,  FILCH_CMD_EXEC,         300 };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        ADD(.kind = FLI_CHART_YIELD, .from = 1, .command = commands[i], .tag = 10 + i);
    }
    ADD(.kind = FLI_CHART_COMPLETION, .to = 1, .tag = 10, .data = &number);
    ADD(.kind = FLI_CHART_NOTE, .from = 1, .text = "all is well");
    ADD(.kind = FLI_CHART_FAULT, .text = "no memory");
    ADD(.kind = FLI_CHART_EXIT, .from = 1, .data = &text);
    ADD(.kind = FLI_CHART_EXIT, .from = 2, .error = FILCH_EUSER + 3);
    ADD(.kind = FLI_CHART_FAIL, .text = "an update was lost");
    static const char expected[] =
        "o-> sends or spawns   * is stepped with   ? yields   = is completed   x ends\n"
        "\n"
        " microseconds    outside   bank#1   teller#2 \n"
        "        0.001       o-------->+                outside spawns bank#1\n"
        "        0.999       |         o-------->+      bank#1 spawns teller#2\n"
        "        1.000       |         o-------->|      bank#1 sends -7 to teller#2\n"
        "        1.001       |         /<--------o      teller#2 sends 0.5 to bank#1: FILCH_EFULL\n"
        "        0.000       |         |         o      teller#2 sends an empty message to teller#2\n"
        "        0.000       |         |         o      teller#2 sends a pid to an unknown process: error 1005\n"
        "        0.000       |         |         *      teller#2 gets \"hello.\" from bank#1\n"
        "        0.000       |         *         |      bank#1 gets 3 bytes from outside\n"
        "        0.000       |         *         |      bank#1 gets a pointer from its timer 9\n"
        "        0.000       |         |         *      teller#2 gets completion 4: ok\n"
        "        0.000       |         |         *      teller#2 gets completion 5: FILCH_EDEAD\n"
        "        0.000       |         |         *      teller#2 is asked to end\n"
        "        0.000       |         *         |      bank#1 is notified of dropped messages: -7\n"
        "        0.000       |         *         |      bank#1 is notified that teller#2 has ended: FILCH_ELINK\n"
        "        0.000       |         *         |      bank#1 is notified that its link with teller#2 is down: "
        "FILCH_ELINK\n"
        "        0.000       |         *         |      bank#1 is notified that teller#2 has joined \"hello.\"\n"
        "        0.000       |         *         |      bank#1 is notified that teller#2 has left \"hello.\"\n"
        "        0.000       |         ?         |      bank#1 yields a send, 10\n"
        "        0.000       |         ?         |      bank#1 yields a sleep, 11\n"
        "        0.000       |         ?         |      bank#1 yields a timer, 12\n"
        "        0.000       |         ?         |      bank#1 yields a ticker, 13\n"
        "        0.000       |         ?         |      bank#1 yields a timer's end, 14\n"
        "        0.000       |         ?         |      bank#1 yields work, 15\n"
        "        0.000       |         ?         |      bank#1 yields a spawn, 16\n"
        "        0.000       |         ?         |      bank#1 yields an exec, 17\n"
        "        0.000       |         ?         |      bank#1 yields command 300, 18\n"
        "        0.000       |         =         |      completion 10 for bank#1: -7\n"
        "        0.000       |         o         |      bank#1: all is well\n"
        "        0.000       |         |         |      fault: no memory\n"
        "        0.000       |         x         |      bank#1 ends: \"hello.\"\n"
        "        0.000       |                   x      teller#2 ends: error 1003\n"
        "        0.000       |                          VIOLATION: an update was lost\n";
    is_drawn(&chart, expected);
    end(&chart);
}

TEST(a_column_is_empty_before_its_process_is_spawned_and_after_it_has_ended)
{
    fli_chart chart;
    begin(&chart, 8);
    fli_chart_name(&chart, 1, "one");
    fli_chart_name(&chart, 2, "two");
    ADD(.kind = FLI_CHART_SPAWN, .from = 1, .to = 2);
    ADD(.kind = FLI_CHART_EXIT, .from = 1);
    ADD(.kind = FLI_CHART_NOTE, .from = 2, .text = "alone");
    ADD(.kind = FLI_CHART_EXIT, .from = 2);
    ADD(.kind = FLI_CHART_FAULT, .text = "none is left");
    static const char expected[] = "o-> sends or spawns   * is stepped with   ? yields   = is completed   x ends\n"
                                   "\n"
                                   " microseconds    one#1    two#2  \n"
                                   "        0.000      o------->+      one#1 spawns two#2\n"
                                   "        0.000      x        |      one#1 ends: ok\n"
                                   "        0.000               o      two#2: alone\n"
                                   "        0.000               x      two#2 ends: ok\n"
                                   "        0.000                      fault: none is left\n";
    is_drawn(&chart, expected);
    end(&chart);
}

/* Returns the hash of a chart with one event. */
static uint64_t hash_of(fli_chart_event event)
{
    fli_chart chart;
    begin(&chart, 1);
    fli_chart_add(&chart, &event);
    uint64_t hash = chart.hash;
    end(&chart);
    return hash;
}

TEST(the_hash_depends_on_every_field_of_an_event)
{
    filch_data one = filch_int(1), two = filch_int(2), num = filch_num(1), text = filch_str("ab"),
               other = filch_str("ac"), longer = filch_str("abc"), bytes = filch_bytes("ab", 2),
               more = filch_bytes("abc", 3), pid = filch_of_pid((filch_pid){ 1, 2 }),
               pid3 = filch_of_pid((filch_pid){ 1, 3 }), none = filch_none(), num2 = filch_num(2);
    fli_chart_event all[] = {
        { .kind = FLI_CHART_SPAWN },
        { .kind = FLI_CHART_SEND },
        { .from = 1 },
        { .to = 1 },
        { .command = 1 },
        { .error = FILCH_EDEAD },
        { .error = FILCH_EFULL },
        { .tag = 1 },
        { .time_ns = 1 },
        { .text = "ab" },
        { .text = "ba" },
        { .text = "abb" },
        { .data = &one },
        { .data = &two },
        { .data = &num },
        { .data = &num2 },
        { .data = &text },
        { .data = &other },
        { .data = &longer },
        { .data = &bytes },
        { .data = &more },
        { .data = &pid },
        { .data = &pid3 },
        { .data = &none },
    };
    enum { COUNT = sizeof all / sizeof all[0] };
    uint64_t hashes[COUNT];
    for (size_t i = 0; i < COUNT; i++) hashes[i] = hash_of(all[i]);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(hash_of(all[i]) == hashes[i]); /* an equal event has an equal hash */
        for (size_t k = 0; k < i; k++) {
            if (hashes[i] == hashes[k]) fail_msg("events %zu and %zu have one hash", i, k);
        }
    }
    filch_data pointer_a = filch_ptr(&one), pointer_b = filch_ptr(&two);
    assert_true(hash_of((fli_chart_event){ .data = &pointer_a }) == hash_of((fli_chart_event){ .data = &pointer_b }));
}

TEST(the_hash_depends_on_the_order_of_events)
{
    fli_chart one, two;
    begin(&one, 1);
    add(&one, (fli_chart_event){ .from = 1 });
    add(&one, (fli_chart_event){ .from = 2 });
    uint64_t hash = one.hash;
    end(&one);
    begin(&two, 2);
    add(&two, (fli_chart_event){ .from = 2 });
    add(&two, (fli_chart_event){ .from = 1 });
    assert_true(two.hash != hash);
    end(&two);
}

TEST(if_events_do_not_fit_the_last_are_drawn)
{
    for (uint32_t count = 1; count <= 7; count++) {
        fli_chart chart;
        char      wanted[64];
        begin(&chart, 3);
        for (uint32_t i = 1; i <= count; i++) {
            char text[16];
            snprintf(text, sizeof text, "note %u", i);
            ADD(.kind = FLI_CHART_NOTE, .text = text);
        }
        const char *page = drawn(&chart);
        uint32_t    earlier = count > 3 ? count - 3 : 0;
        snprintf(wanted, sizeof wanted, "\n%u earlier events\n", earlier);
        assert_true((strstr(page, wanted) != NULL) == (earlier > 0));
        for (uint32_t i = 1; i <= count; i++) {
            snprintf(wanted, sizeof wanted, "outside: note %u\n", i);
            assert_true((strstr(page, wanted) != NULL) == (i > earlier));
        }
        end(&chart);
    }
}

TEST(a_text_is_cut_when_it_is_longer_than_what_is_kept)
{
    for (size_t size = FLI_CHART_SHOWN - 3; size <= FLI_CHART_SHOWN + 2; size++) {
        fli_chart chart;
        char      text[FLI_CHART_SHOWN + 8] = "", wanted[FLI_CHART_SHOWN + 32];
        bool      cut = size > FLI_CHART_SHOWN - 1;
        memset(text, 'x', size);
        filch_data data = filch_str(text);
        begin(&chart, 4);
        ADD(.kind = FLI_CHART_NOTE, .text = text);
        ADD(.kind = FLI_CHART_EXIT, .data = &data);
        ADD(.kind = FLI_CHART_FAIL, .text = text);
        const char *page = drawn(&chart);
        int         shown = (int)(cut ? FLI_CHART_SHOWN - 1 : size);
        snprintf(wanted, sizeof wanted, "outside: %.*s%s\n", shown, text, cut ? "..." : "");
        assert_non_null(strstr(page, wanted));
        snprintf(wanted, sizeof wanted, "ends: \"%.*s%s\"\n", shown, text, cut ? "..." : "");
        assert_non_null(strstr(page, wanted));
        snprintf(wanted, sizeof wanted, "VIOLATION: %.*s%s\n", shown, text, cut ? "..." : "");
        assert_non_null(strstr(page, wanted));
        end(&chart);
    }
}

TEST(characters_that_cannot_be_shown_are_dots)
{
    fli_chart chart;
    begin(&chart, 1);
    ADD(.kind = FLI_CHART_NOTE, .text = " ~\x1f\x7f\x80\xff!");
    assert_non_null(strstr(drawn(&chart), "outside:  ~....!\n"));
    end(&chart);
}

TEST(names_are_stored_for_any_process_number)
{
    static const uint32_t numbers[] = { 1, 31, 32, 63, 64, 65, 127, 128, 129, 1000, 4096 };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fli_chart chart;
        char      label[FLI_CHART_LABEL_MAX], wanted[FLI_CHART_LABEL_MAX];
        begin(&chart, 1);
        for (uint32_t n = numbers[i] > 2 ? numbers[i] - 2 : 1; n <= numbers[i] + 2; n++)
            fli_chart_name(&chart, n, "clerk");
        for (uint32_t n = numbers[i] > 2 ? numbers[i] - 2 : 1; n <= numbers[i] + 2; n++) {
            snprintf(wanted, sizeof wanted, "clerk#%u", n);
            fli_chart_label(&chart, n, label, sizeof label);
            assert_string_equal(label, wanted);
        }
        snprintf(wanted, sizeof wanted, "?#%u", numbers[i] + 3);
        fli_chart_label(&chart, numbers[i] + 3, label, sizeof label);
        assert_string_equal(label, wanted);
        fli_chart_label(&chart, 5000000, label, sizeof label);
        assert_string_equal(label, "?#5000000");
        end(&chart);
    }
}

TEST(the_ten_processes_named_last_have_a_column)
{
    fli_chart chart;
    begin(&chart, 64);
    for (uint32_t i = 1; i <= 12; i++) {
        fli_chart_name(&chart, i, "p");
        ADD(.kind = FLI_CHART_NOTE, .from = i, .text = "here");
    }
    const char *page = drawn(&chart), *head = strstr(page, "microseconds");
    char        line[512];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(head, "\n"), head);
    assert_string_equal(
        line,
        "microseconds     p#3      p#4      p#5      p#6      p#7      p#8      p#9      p#10     p#11     p#12  ");
    assert_non_null(strstr(page, "p#1: here\n"));
    end(&chart);
}

/* Drawing allocates several times. If any of these allocations fails, fli_chart_draw returns NULL. */
TEST(drawing_without_memory_returns_null)
{
    fli_chart chart;
    size_t    size;
    begin(&chart, 512);
    for (int i = 0; i < 512; i++)
        ADD(.kind = FLI_CHART_NOTE, .text = "a long note that fills pages, one after the other");
    for (uint64_t nth = 1; nth <= 4; nth++) {
        test_alloc_fail(&alloc, nth, false);
        assert_null(fli_chart_draw(&chart, &size));
    }
    test_alloc_fail(&alloc, 0, false);
    assert_true(strlen(drawn(&chart)) > 20000);
    end(&chart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_event_is_drawn_and_described),
        cmocka_unit_test(a_column_is_empty_before_its_process_is_spawned_and_after_it_has_ended),
        cmocka_unit_test(the_hash_depends_on_every_field_of_an_event),
        cmocka_unit_test(the_hash_depends_on_the_order_of_events),
        cmocka_unit_test(if_events_do_not_fit_the_last_are_drawn),
        cmocka_unit_test(a_text_is_cut_when_it_is_longer_than_what_is_kept),
        cmocka_unit_test(characters_that_cannot_be_shown_are_dots),
        cmocka_unit_test(names_are_stored_for_any_process_number),
        cmocka_unit_test(the_ten_processes_named_last_have_a_column),
        cmocka_unit_test(drawing_without_memory_returns_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
