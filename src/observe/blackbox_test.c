/* blackbox_test.c - tests that reading a recording returns what was written, and that invalid bytes are refused. */
#include "observe/blackbox.h"

#include <stdlib.h>
#include <string.h>

#include "support/alloc.h"
#include "support/check.h"

#define CHECKSUM_SIZE 8

static fli_box_head some_head(void)
{
    return (fli_box_head){ .type_name = "clerk",
                           .state_size = 48,
                           .pid = { 7, 9 },
                           .error = FILCH_EUSER + 3,
                           .lost = true,
                           .missing = 5,
                           .steps = 2,
                           .payload_max = 4096,
                           .send_budget = 256 };
}

/* Writes a recording with an item of every kind. The caller frees it with fli_box_writer_fini. */
static void write_all(fli_box_writer *w, const fli_mem *mem)
{
    fli_box_head head = some_head();
    filch_data   args = filch_str("first"), value = filch_num(2.5);
    filch_pid    some_pid = { 3, 4 };
    char         large[100];
    memset(large, 'x', sizeof large);
    filch_event events[] = {
        { .type = FILCH_EVENT_MESSAGE, .from = { 7, 1 }, .data = filch_int(-42) },
        { .type = FILCH_EVENT_YIELD, .error = FILCH_EDEAD, .tag = UINT64_MAX, .data = filch_of_pid(some_pid) },
        { .type = FILCH_EVENT_MESSAGE, .data = filch_bytes(large, sizeof large) },
        { .type = FILCH_EVENT_MESSAGE, .data = filch_ptr(large) },
    };
    filch_data     sent = filch_str("hello");
    fli_rec_call   call = { .kind = FLI_REC_SEND, .pid = { 7, 1 }, .answer = FILCH_EFULL };
    fli_rec_call   spawn = { .kind = FLI_REC_SPAWN, .pid = { 7, 11 }, .name = "child" };
    fli_rec_result idle = { .status = 3, .calls = 2 }, failed = { .error = FILCH_EUSER + 3 };
    call.data = fli_box_digest_of(&sent);

    fli_box_writer_init(w, mem);
    fli_box_put_head(w, &head);
    fli_box_put_birth(w, "loud", &args, 100);
    fli_box_put_value(w, "speed", &value, 100);
    fli_box_put_born(w);
    fli_box_put_step(w, 3);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) fli_box_put_event(w, &events[i], 10);
    fli_box_put_call(w, &call);
    fli_box_put_call(w, &spawn);
    fli_box_put_result(w, &idle);
    fli_box_put_step(w, 0);
    fli_box_put_result(w, &failed);
    fli_box_put_end(w);
}

static filch_err open_box(fli_box_reader *r, const void *bytes, size_t size)
{
    char      text[160] = "";
    filch_err err = fli_box_open(r, bytes, size, text, sizeof text);
    same(text[0] == '\0', err == FILCH_OK); /* there is an error text exactly if there is an error */
    return err;
}

/* Corrects the checksum after a change of the bytes. The test has its own copy of the hash function, because files on
 * disk depend on the hash: a change of it must be noticed. */
static void fix_checksum(uint8_t *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size - CHECKSUM_SIZE; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < CHECKSUM_SIZE; i++) bytes[size - CHECKSUM_SIZE + i] = (uint8_t)(hash >> (8 * i));
}

TEST(a_recording_is_read_as_it_was_written)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    fli_box_item   item;
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    assert_false(w.failed);
    ok(open_box(&r, w.bytes, w.size));
    assert_string_equal(r.head.type_name, "clerk");
    same(r.head.state_size, 48);
    same(r.head.pid.node, 7);
    same(r.head.pid.serial, 9);
    same(r.head.error, FILCH_EUSER + 3);
    assert_true(r.head.lost);
    same(r.head.missing, 5);
    same(r.head.steps, 2);
    same(r.head.payload_max, 4096);
    same(r.head.send_budget, 256);
    assert_string_equal(r.method, "loud");
    assert_string_equal(filch_text(&r.args), "first");

    same(fli_box_next(&r, &item), FLI_BOX_VALUE);
    assert_string_equal(item.name, "speed");
    assert_true(filch_as_num(&item.event.data) == 2.5);
    same(fli_box_next(&r, &item), FLI_BOX_BORN);
    same(fli_box_next(&r, &item), FLI_BOX_STEP);
    same(item.waiting, 3);
    same(fli_box_next(&r, &item), FLI_BOX_EVENT);
    same(filch_as_int(&item.event.data), -42);
    same(item.event.from.serial, 1);
    same(fli_box_next(&r, &item), FLI_BOX_EVENT);
    same(item.event.type, FILCH_EVENT_YIELD);
    same(item.event.error, FILCH_EDEAD);
    assert_true(item.event.tag == UINT64_MAX);
    same(filch_as_pid(&item.event.data).serial, 4);
    same(fli_box_next(&r, &item), FLI_BOX_EVENT);
    same(filch_size(&item.event.data), 10);
    same(item.cut, 90);
    assert_memory_equal(filch_raw(&item.event.data), "xxxxxxxxxx", 10);
    same(fli_box_next(&r, &item), FLI_BOX_EVENT);
    same(filch_kind_of(&item.event.data), FILCH_KIND_PTR);
    same(fli_box_next(&r, &item), FLI_BOX_CALL);
    same(item.call.kind, FLI_REC_SEND);
    same(item.call.answer, FILCH_EFULL);
    same(item.call.data.size, 5);
    same(fli_box_next(&r, &item), FLI_BOX_CALL);
    assert_string_equal(item.call.name, "child");
    same(fli_box_next(&r, &item), FLI_BOX_RESULT);
    same(item.result.calls, 2);
    same(fli_box_next(&r, &item), FLI_BOX_STEP);
    same(fli_box_next(&r, &item), FLI_BOX_RESULT);
    same(item.result.error, FILCH_EUSER + 3);
    same(fli_box_next(&r, &item), FLI_BOX_END);
    same(fli_box_next(&r, &item), FLI_BOX_END);
    fli_box_writer_fini(&w);
}

TEST(every_truncation_is_refused)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    for (size_t size = 0; size < w.size; size++) {
        /* a separate block of exact size, so that a sanitizer finds a read beyond its end */
        uint8_t *part = malloc(size > 0 ? size : 1);
        memcpy(part, w.bytes, size);
        same(open_box(&r, part, size), FILCH_EINVAL);
        free(part);
    }
    uint8_t *more = calloc(1, w.size + 1);
    memcpy(more, w.bytes, w.size);
    same(open_box(&r, more, w.size + 1), FILCH_EINVAL);
    free(more);
    fli_box_writer_fini(&w);
}

TEST(every_flipped_bit_is_detected)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    for (size_t bit = 0; bit < w.size * 8; bit++) {
        w.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        same(open_box(&r, w.bytes, w.size), FILCH_EINVAL);
        w.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    ok(open_box(&r, w.bytes, w.size));
    fli_box_writer_fini(&w);
}

/* An attacker can write any bytes with a correct checksum. The reader must refuse such a recording, or read it to its
 * end without a read beyond that end. */
TEST(a_forged_recording_is_never_read_beyond_its_end)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    fli_box_item   item;
    size_t         refused = 0, read = 0;
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    uint8_t *forged = malloc(w.size);
    for (size_t i = 0; i < w.size - CHECKSUM_SIZE; i++) {
        static const uint8_t values[] = { 0, 1, 2, 7, 127, 128, 255 };
        for (size_t v = 0; v < sizeof values; v++) {
            memcpy(forged, w.bytes, w.size);
            forged[i] = values[v];
            fix_checksum(forged, w.size);
            if (open_box(&r, forged, w.size) != FILCH_OK) {
                refused++;
                continue;
            }
            while (fli_box_next(&r, &item) != FLI_BOX_END) read += filch_size(&item.event.data) + 1;
            assert_false(r.bad);
        }
    }
    free(forged);
    assert_true(refused > 0 && read > 0);
    fli_box_writer_fini(&w);
}

TEST(another_format_is_named_in_the_error)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    char           text[200] = "";
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    w.bytes[8] = 77;
    fix_checksum(w.bytes, w.size);
    same(fli_box_open(&r, w.bytes, w.size, text, sizeof text), FILCH_EINVAL);
    assert_non_null(strstr(text, "format 77"));
    fli_box_writer_fini(&w);
}

/* Items in a wrong order are refused even if the checksum is correct. */
TEST(items_in_a_wrong_order_are_refused)
{
    fli_mem        mem;
    fli_box_head   head = some_head();
    filch_data     nothing = filch_none();
    filch_event    event = { .type = FILCH_EVENT_MESSAGE, .data = filch_none() };
    fli_rec_call   call = { .kind = FLI_REC_SEND };
    fli_rec_result result = { .status = 1 };
    /* The characters of `order`: s = start of a step, e = event, a = call, o = result, v = a value, b = end of the
     * values, x = end of the recording */
    static const struct {
        const char *order;
        uint64_t    steps;
        bool        sound;
    } cases[] = {
        { "bx", 0, true },      { "bsox", 1, true },   { "bseeaaox", 1, true }, { "vvbsosox", 2, true },
        { "x", 0, false },      { "bsox", 2, false },  { "bsx", 1, false },     { "bseax", 1, false },
        { "bsaeox", 1, false }, { "beox", 0, false },  { "bssox", 2, false },   { "bsovx", 1, false },
        { "bsoox", 1, false },  { "bsobx", 1, false }, { "bsoxx", 1, false },   { "bso", 1, false },
        { "sox", 1, false },
    };
    fli_mem_init(&mem, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fli_box_writer w;
        fli_box_reader r;
        uint8_t        end = FLI_BOX_END;
        head.steps = cases[i].steps;
        fli_box_writer_init(&w, &mem);
        fli_box_put_head(&w, &head);
        fli_box_put_birth(&w, NULL, &nothing, 0);
        for (const char *piece = cases[i].order; *piece != '\0'; piece++) {
            if (*piece == 's') fli_box_put_step(&w, 0);
            if (*piece == 'e') fli_box_put_event(&w, &event, 0);
            if (*piece == 'a') fli_box_put_call(&w, &call);
            if (*piece == 'o') fli_box_put_result(&w, &result);
            if (*piece == 'b') fli_box_put_born(&w);
            if (*piece == 'v') fli_box_put_value(&w, "k", &nothing, 0);
            if (*piece == 'x') fli_box_put(&w, &end, 1);
        }
        /* fli_box_put_end() appends an END byte and a checksum of 8 bytes. The test cuts off the last of these 9 bytes,
         * and fix_checksum() writes a new checksum over the other 8, also over the END byte. So the recording has an
         * END byte only if `order` contains an 'x'. */
        fli_box_put_end(&w);
        w.size--;
        memset(w.bytes + 16, 0, 8);
        w.bytes[16] = (uint8_t)w.size;
        w.bytes[17] = (uint8_t)(w.size >> 8);
        fix_checksum(w.bytes, w.size);
        same(open_box(&r, w.bytes, w.size), cases[i].sound ? FILCH_OK : FILCH_EINVAL);
        fli_box_writer_fini(&w);
    }
}

TEST(a_truncated_recording_is_reported_as_truncated)
{
    fli_mem        mem;
    fli_box_writer w;
    fli_box_reader r;
    char           text[200] = "";
    fli_mem_init(&mem, NULL, NULL);
    write_all(&w, &mem);
    same(fli_box_open(&r, w.bytes, w.size - 1, text, sizeof text), FILCH_EINVAL);
    assert_non_null(strstr(text, "are here"));
    fli_box_writer_fini(&w);
}

TEST(a_writer_without_memory_fails_and_leaks_nothing)
{
    uint64_t asked = 1;
    for (uint64_t nth = 1; nth <= asked; nth++) {
        test_alloc     alloc = { 0 };
        fli_mem        mem;
        fli_box_writer w;
        fli_mem_init(&mem, test_alloc_fn, &alloc);
        if (nth > 1) test_alloc_fail(&alloc, nth - 1, false);
        write_all(&w, &mem);
        if (nth == 1) asked += alloc.asked;
        same(w.failed, nth > 1);
        fli_box_writer_fini(&w);
        test_alloc_balanced(&alloc);
    }
    assert_true(asked > 2);
}

TEST(digests_differ_for_payloads_but_not_for_pointers)
{
    int        a, b;
    filch_data one = filch_int(1), two = filch_int(2), real = filch_num(1), text = filch_str("1"),
               bytes = filch_bytes("1", 1), pointer_a = filch_ptr(&a), pointer_b = filch_ptr(&b);
    assert_true(fli_box_digest_of(&one).hash != fli_box_digest_of(&two).hash);
    assert_true(fli_box_digest_of(&one).kind != fli_box_digest_of(&real).kind);
    assert_true(fli_box_digest_of(&text).kind != fli_box_digest_of(&bytes).kind);
    assert_true(fli_box_digest_of(&text).hash == fli_box_digest_of(&bytes).hash);
    assert_true(fli_box_digest_of(&pointer_a).hash == fli_box_digest_of(&pointer_b).hash);
}

/* A recording shorter than magic, format, version, total size and checksum is reported as too short. */
TEST(bytes_too_short_for_a_head_have_an_error_of_their_own)
{
    enum { SHORTEST = sizeof "FILCHBOX" - 1 + 4 + 4 + 8 + CHECKSUM_SIZE };
    static const char nothing[SHORTEST + 1];
    for (size_t size = 0; size <= SHORTEST + 1; size++) {
        fli_box_reader reader;
        char           text[200];
        same(fli_box_open(&reader, nothing, size, text, sizeof text), FILCH_EINVAL);
        assert_non_null(strstr(text, size < SHORTEST ? "too short for a recording" : "not a recording"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_is_read_as_it_was_written),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(bytes_too_short_for_a_head_have_an_error_of_their_own),
        cmocka_unit_test(every_flipped_bit_is_detected),
        cmocka_unit_test(a_forged_recording_is_never_read_beyond_its_end),
        cmocka_unit_test(another_format_is_named_in_the_error),
        cmocka_unit_test(items_in_a_wrong_order_are_refused),
        cmocka_unit_test(a_truncated_recording_is_reported_as_truncated),
        cmocka_unit_test(a_writer_without_memory_fails_and_leaks_nothing),
        cmocka_unit_test(digests_differ_for_payloads_but_not_for_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
