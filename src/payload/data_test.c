/* data_test.c - payloads: their forms, the ownership of their bytes, and their size limits. */
#include "payload/data.h"

#include <stdlib.h>
#include <string.h>

#include "port/atomic.h"
#include "port/thread.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

static test_alloc alloc;
static fli_mem    mem;

static int begin(void **state)
{
    (void)state;
    memset(&alloc, 0, sizeof alloc);
    fli_mem_init(&mem, test_alloc_fn, &alloc);
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_alloc_balanced(&alloc);
    return 0;
}

static filch_data own(filch_data in)
{
    filch_data out = { .kind = 99 };
    ok(fli_data_own(&mem, 0, &in, &out));
    return out;
}

static int  freed;
static void on_free(void *user, void *bytes, size_t size)
{
    same(size, 5);
    if (user != NULL) ++*(int *)user;
    freed++;
    free(bytes);
}

TEST(value_payloads_need_no_memory)
{
    int        target = 0;
    filch_pid  pid = { 3, 4 };
    filch_data values[] = { filch_none(), filch_int(-7), filch_num(2.5), filch_of_pid(pid), filch_ptr(&target) };
    for (size_t i = 0; i < 5; i++) {
        assert_true(fli_data_is_value_form(&values[i]));
        filch_data out = own(values[i]);
        same(filch_kind_of(&out), i);
        same(fli_data_bytes(&out), 0);
        same(filch_size(&out), 0);
        assert_memory_equal(&out.as, &values[i].as, sizeof out.as);
        fli_data_free(&out);
        same(filch_kind_of(&out), FILCH_KIND_NONE);
    }
    same(filch_as_int(&values[1]), -7);
    assert_true(filch_as_num(&values[2]) == 2.5);
    same(filch_as_pid(&values[3]).serial, 4);
    assert_ptr_equal(filch_as_ptr(&values[4]), &target);
    same(atomic_load(&alloc.asked), 0);
}

/* An event holds up to 24 bytes inline; of a text up to 23 bytes, because its NUL needs one byte. */
TEST(up_to_24_bytes_are_copied_into_the_event_itself)
{
    char bytes[40];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)('a' + i % 26);
    for (size_t size = 0; size <= 33; size++) {
        filch_data out = own(filch_bytes(bytes, size));
        same(out.form, size <= 24 ? FLI_FORM_INLINE : FLI_FORM_BLOCK);
        same(filch_kind_of(&out), FILCH_KIND_BYTES);
        same(filch_size(&out), size);
        if (size > 0) assert_memory_equal(filch_raw(&out), bytes, size);
        fli_data_free(&out);

        char text[40];
        memcpy(text, bytes, size);
        text[size] = '\0';
        out = own(filch_str(text));
        same(out.form, size <= 23 ? FLI_FORM_INLINE : FLI_FORM_BLOCK);
        same(filch_size(&out), size);
        assert_string_equal(filch_text(&out), text);
        assert_ptr_not_equal(filch_text(&out), text);
        fli_data_free(&out);
    }
}

TEST(an_empty_text_or_byte_string_is_a_payload)
{
    filch_data out = own(filch_str(NULL));
    assert_string_equal(filch_text(&out), "");
    same(filch_kind_of(&out), FILCH_KIND_TEXT);
    out = own(filch_bytes(NULL, 0));
    same(filch_size(&out), 0);
    same(filch_kind_of(&out), FILCH_KIND_BYTES);
}

TEST(malformed_payloads_are_refused)
{
    filch_data bad[] = {
        filch_bytes(NULL, 1),
        filch_move(NULL, 5, NULL),
        { .kind = FILCH_KIND_BYTES + 1 },
        { .form = 9 },
        { .kind = FILCH_KIND_TEXT, .form = FLI_FORM_VALUE },
        { .kind = FILCH_KIND_INT, .form = FLI_FORM_LENT },
        { .kind = FILCH_KIND_TEXT, .form = FLI_FORM_INLINE, .small = 25 },
        { .kind = FILCH_KIND_BYTES, .form = FLI_FORM_BLOCK },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        filch_data out = { .kind = 99 };
        same(fli_data_own(&mem, 0, &bad[i], &out), FILCH_EINVAL);
        same(out.kind, 99);
    }
    filch_data endless = filch_bytes("", SIZE_MAX), out = { .kind = 99 };
    same(fli_data_own(&mem, 0, &endless, &out), FILCH_ENOMEM);
    same(out.kind, 99);
}

TEST(the_limit_counts_bytes_in_every_form)
{
    char       bytes[40] = { 0 };
    filch_data out = { .kind = 99 }, shared;
    ok(filch_share(malloc(5), 5, on_free, NULL, &shared));
    filch_data forms[] = { filch_bytes(bytes, 5), filch_move(bytes, 5, on_free), shared, own(filch_bytes(bytes, 5)) };
    for (int i = 0; i < 4; i++) {
        same(fli_data_own(&mem, 4, &forms[i], &out), FILCH_ETOOBIG);
        same(out.kind, 99);
    }
    ok(fli_data_own(&mem, 5, &forms[2], &out));
    fli_data_free(&out);
    ok(fli_data_own(&mem, 1, &(filch_data){ .kind = FILCH_KIND_INT }, &out));
    filch_drop(&shared);
}

TEST(moved_bytes_are_freed_once_by_their_own_function)
{
    freed = 0;
    char *bytes = malloc(5);
    memcpy(bytes, "abcd", 5);
    filch_data out = own(filch_move(bytes, 5, on_free));
    assert_ptr_equal(filch_raw(&out), bytes); /* the bytes are not copied */
    same(filch_kind_of(&out), FILCH_KIND_BYTES);
    filch_data other = own(out);
    fli_data_free(&out);
    same(freed, 0);
    fli_data_free(&other);
    same(freed, 1);
    fli_data_free(&other); /* has no effect: the first fli_data_free() has made the payload empty */
    same(freed, 1);
    out = own(filch_move(malloc(5), 5, NULL)); /* NULL: the bytes are freed with free() */
    fli_data_free(&out);
    out = own(filch_move(malloc(5), 0, NULL)); /* 0 bytes, but the memory must be freed */
    fli_data_free(&out);
}

TEST(moved_bytes_of_a_failed_send_are_the_callers_again)
{
    freed = 0;
    char      *bytes = malloc(5);
    filch_data in = filch_move(bytes, 5, on_free), out = own(in);
    fli_data_undo(&in, &out);
    same(freed, 0);
    same(filch_kind_of(&out), FILCH_KIND_NONE);
    test_alloc_balanced(&alloc);
    /* fli_data_undo() has given the bytes back to the caller, so they can be sent again. */
    out = own(in);
    fli_data_free(&out);
    same(freed, 1);
}

TEST(undoing_the_other_forms_gives_back_one_reference)
{
    freed = 0;
    filch_data shared, out;
    char       bytes[40] = { 0 };
    ok(filch_share(malloc(5), 5, on_free, NULL, &shared));
    filch_data forms[] = { shared, filch_bytes(bytes, 3), filch_bytes(bytes, 40), filch_int(4) };
    for (int i = 0; i < 4; i++) {
        out = own(forms[i]);
        fli_data_undo(&forms[i], &out);
    }
    same(freed, 0);
    same(filch_size(&shared), 5);
    filch_drop(&shared);
    same(freed, 1);
}

TEST(no_memory_leaves_the_bytes_with_the_caller)
{
    freed = 0;
    char       bytes[40] = { 0 }, *moved = malloc(5);
    filch_data in[] = { filch_bytes(bytes, 40), filch_move(moved, 5, on_free) };
    for (int i = 0; i < 2; i++) {
        filch_data out = { .kind = 99 };
        test_alloc_fail(&alloc, 1, false);
        same(fli_data_own(&mem, 0, &in[i], &out), FILCH_ENOMEM);
        same(out.kind, 99);
    }
    same(freed, 0);
    free(moved);
}

TEST(shared_bytes_live_as_long_as_their_last_holder)
{
    freed = 0;
    int        count = 0;
    filch_data shared, kept;
    same(filch_share(NULL, 5, on_free, &count, &shared), FILCH_EINVAL);
    same(filch_share(&count, 5, on_free, &count, NULL), FILCH_EINVAL);
    ok(filch_share(malloc(5), 5, on_free, &count, &shared));
    ok(filch_keep(&shared, &kept));
    assert_ptr_equal(filch_raw(&kept), filch_raw(&shared));
    filch_data sent = own(shared);
    filch_drop(&shared);
    fli_data_free(&sent);
    same(count, 0);
    filch_drop(&kept);
    same(count, 1);
    filch_drop(&kept);
    filch_drop(NULL);
    same(count, 1);
}

TEST(a_kept_payload_outlives_the_lent_bytes)
{
    char       text[] = "a text that is longer than an event can hold";
    filch_data lent = filch_str(text);
    same(filch_keep(NULL, &lent), FILCH_EINVAL);
    same(filch_keep(&lent, NULL), FILCH_EINVAL);
    ok(filch_keep(&lent, &lent)); /* source and destination are the same payload */
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(filch_text(&lent), "a text that is longer than an event can hold");
    filch_drop(&lent);
    same(filch_kind_of(&lent), FILCH_KIND_NONE);
}

TEST(reading_a_payload_as_another_kind_is_safe)
{
    filch_data all[] = { filch_none(),    filch_int(1),      filch_num(1),           filch_of_pid((filch_pid){ 1, 1 }),
                         filch_ptr(&mem), filch_str("text"), filch_bytes("bytes", 5) };
    for (int i = 0; i < 7; i++) {
        if (i != FILCH_KIND_INT) same(filch_as_int(&all[i]), 0);
        if (i != FILCH_KIND_NUM) assert_true(filch_as_num(&all[i]) == 0.0);
        if (i != FILCH_KIND_PID) same(filch_as_pid(&all[i]).serial, 0);
        if (i != FILCH_KIND_PTR) assert_null(filch_as_ptr(&all[i]));
        if (i != FILCH_KIND_TEXT) assert_string_equal(filch_text(&all[i]), "");
        if (i < FILCH_KIND_TEXT) assert_null(filch_raw(&all[i]));
        if (i < FILCH_KIND_TEXT) same(filch_size(&all[i]), 0);
    }
    same(filch_kind_of(NULL), FILCH_KIND_NONE);
    same(filch_as_int(NULL), 0);
    assert_true(filch_as_num(NULL) == 0.0);
    same(filch_as_pid(NULL).node, 0);
    assert_null(filch_as_ptr(NULL));
    assert_null(filch_raw(NULL));
    assert_string_equal(filch_text(NULL), "");
    same(filch_size(NULL), 0);
    filch_data move = filch_move(&mem, 3, NULL);
    assert_ptr_equal(filch_raw(&move), &mem);
    same(filch_size(&move), 3);
}

/* ---- threads ---- */

static filch_data      common;
static FLI_ATOMIC(int) holders;

static void hold_and_drop(void *arg)
{
    uint64_t rounds = *(uint64_t *)arg;
    for (uint64_t i = 0; i < rounds; i++) {
        filch_data mine;
        if (filch_keep(&common, &mine) != FILCH_OK || memcmp(filch_raw(&mine), "abcd", 5) != 0) return;
        filch_drop(&mine);
    }
    filch_data mine = common; /* `mine` is the reference to `common` that the test has taken for this thread */
    (void)fli_sub_acqrel(&holders, 1);
    filch_drop(&mine);
}

TEST(the_last_holder_of_many_threads_frees_the_bytes)
{
    uint64_t   rounds = scaled(200000);
    fli_thread threads[3];
    char      *bytes = malloc(5);
    memcpy(bytes, "abcd", 5);
    freed = 0;
    ok(filch_share(bytes, 5, on_free, NULL, &common));
    filch_data extra;
    for (int i = 0; i < 2; i++) ok(filch_keep(&common, &extra));
    fli_store_rlx(&holders, 3);
    for (int i = 0; i < 3; i++) ok(fli_thread_start(&threads[i], "holder", hold_and_drop, &rounds));
    for (int i = 0; i < 3; i++) fli_thread_join(&threads[i]);
    same(fli_load_rlx(&holders), 0);
    same(freed, 1);
}

int main(void)
{
#define WITH_BOOKS(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        WITH_BOOKS(value_payloads_need_no_memory),
        WITH_BOOKS(up_to_24_bytes_are_copied_into_the_event_itself),
        WITH_BOOKS(an_empty_text_or_byte_string_is_a_payload),
        WITH_BOOKS(malformed_payloads_are_refused),
        WITH_BOOKS(the_limit_counts_bytes_in_every_form),
        WITH_BOOKS(moved_bytes_are_freed_once_by_their_own_function),
        WITH_BOOKS(moved_bytes_of_a_failed_send_are_the_callers_again),
        WITH_BOOKS(undoing_the_other_forms_gives_back_one_reference),
        WITH_BOOKS(no_memory_leaves_the_bytes_with_the_caller),
        WITH_BOOKS(shared_bytes_live_as_long_as_their_last_holder),
        WITH_BOOKS(a_kept_payload_outlives_the_lent_bytes),
        WITH_BOOKS(reading_a_payload_as_another_kind_is_safe),
        WITH_BOOKS(the_last_holder_of_many_threads_frees_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
