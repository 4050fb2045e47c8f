/* payload_test.c - payloads: every kind arrives as it was sent, is copied as seldom as promised, and freed once. */
#include "api/fixture.h"

static fixture w;

/* ---- slip: counts how often a shared block was freed ---- */

typedef struct slip {
    FLI_ATOMIC(uint32_t) freed;
    void                *user, *bytes; /* arguments of the last call of the free function */
    size_t               size;
} slip;

static FLI_ATOMIC(uint32_t) moved_freed;

/* Free function for filch_share: `user` points to a slip. */
static void free_shared(void *user, void *bytes, size_t size)
{
    slip *s = user;
    s->user = user;
    s->bytes = bytes;
    s->size = size;
    free(bytes);
    fli_add_acqrel(&s->freed, 1);
}

/* Free function for filch_move: `user` is NULL. */
static void free_moved(void *user, void *bytes, size_t size)
{
    if (user != NULL || size != 40) abort();
    free(bytes);
    fli_add_acqrel(&moved_freed, 1);
}

static filch_data moved(void)
{
    char *bytes = malloc(40);
    memset(bytes, 'm', 40);
    return filch_move(bytes, 40, free_moved);
}

/* ---- shelf: a receiver that keeps the payloads of its messages ---- */

#define SHELF 16

typedef struct shelf {
    filch_data  kept[SHELF];
    uint32_t    count;
    const void *raw[SHELF]; /* for each message: result of filch_raw() on the event's payload */
    bool        inline_bytes[SHELF], terminated[SHELF];
} shelf;

static filch_err play_keep(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    shelf *s = me->user;
    for (size_t i = 0; i < count; i++) {
        const filch_data *data = &events[i].data;
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        const char *raw = filch_raw(data), *from = (const char *)data, *to = from + sizeof *data;
        s->raw[s->count] = raw;
        s->inline_bytes[s->count] = raw >= from && raw < to;
        s->terminated[s->count] = filch_kind_of(data) == FILCH_KIND_TEXT && filch_text(data)[filch_size(data)] == '\0';
        if (filch_keep(data, &s->kept[s->count++]) != FILCH_OK) me->note = FILCH_ENOMEM;
    }
    return filch_idle(out);
}

static void shelf_clear(shelf *s)
{
    for (uint32_t i = 0; i < s->count; i++) filch_drop(&s->kept[i]);
    *s = (shelf){ .count = 0 };
}

static void actor_stop(actor *a)
{
    ok(filch_cancel(w.sched, a->pid));
    actor_ends(&w, a, FILCH_OK);
}

TEST(values_arrive_as_they_were_sent)
{
    shelf s = { .count = 0 };
    actor a = { .user = &s };
    int   thing = 0;
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_keep);
    filch_pid pid = { UINT64_MAX, 0x123456789abcdef0 };
    ok(filch_send(w.sched, a.pid, filch_none()));
    ok(filch_send(w.sched, a.pid, filch_int(INT64_MIN)));
    ok(filch_send(w.sched, a.pid, filch_int(INT64_MAX)));
    ok(filch_send(w.sched, a.pid, filch_num(-0.125)));
    ok(filch_send(w.sched, a.pid, filch_of_pid(pid)));
    ok(filch_send(w.sched, a.pid, filch_ptr(&thing)));
    ok(filch_send(w.sched, a.pid, filch_str(NULL)));
    ok(filch_send(w.sched, a.pid, filch_bytes(NULL, 0)));
    (void)fixture_tick(&w);
    same(s.count, 8);
    same(filch_kind_of(&s.kept[0]), FILCH_KIND_NONE);
    assert_true(filch_as_int(&s.kept[1]) == INT64_MIN);
    assert_true(filch_as_int(&s.kept[2]) == INT64_MAX);
    same(filch_kind_of(&s.kept[3]), FILCH_KIND_NUM);
    assert_true(filch_as_num(&s.kept[3]) == -0.125);
    assert_true(same_pid(filch_as_pid(&s.kept[4]), pid));
    assert_ptr_equal(filch_as_ptr(&s.kept[5]), &thing);
    same(filch_kind_of(&s.kept[6]), FILCH_KIND_TEXT);
    assert_string_equal(filch_text(&s.kept[6]), "");
    same(filch_kind_of(&s.kept[7]), FILCH_KIND_BYTES);
    same(filch_size(&s.kept[7]), 0);
    shelf_clear(&s);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(texts_keep_their_nul_on_both_sides_of_the_inline_limit)
{
    static const size_t sizes[] = { 0, 1, 22, 23, 24, 25, 26, 1000 };
    shelf               s = { .count = 0 };
    actor               a = { .user = &s };
    char                text[1001], copy[1001];
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_keep);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        memset(text, 'a' + (int)i, sizes[i]);
        text[sizes[i]] = '\0';
        ok(filch_send(w.sched, a.pid, filch_str(text)));
        memset(text, '!', sizeof text); /* overwrites the text, which filch_send() has copied */
        (void)fixture_tick(&w);
        memset(copy, 'a' + (int)i, sizes[i]);
        copy[sizes[i]] = '\0';
        same(s.count, 1);
        assert_true(s.terminated[0]);
        same(filch_size(&s.kept[0]), sizes[i]);
        assert_string_equal(filch_text(&s.kept[0]), copy);
        assert_memory_equal(filch_raw(&s.kept[0]), copy, sizes[i] + 1);
        assert_true(s.inline_bytes[0] == (sizes[i] < 24));
        shelf_clear(&s);
    }
    actor_stop(&a);
    fixture_end(&w);
}

TEST(up_to_24_bytes_are_inside_the_event_and_more_in_one_block)
{
    static const size_t sizes[] = { 0, 1, 23, 24, 25, 4096, 1 << 20 };
    shelf               s = { .count = 0 };
    actor               a = { .user = &s };
    uint8_t            *bytes = malloc(1 << 20);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_keep);
    (void)fixture_tick(&w);
    /* these messages leave spare event nodes at the worker for the later messages */
    for (int i = 0; i < SHELF; i++) ok(filch_send(w.sched, a.pid, filch_bytes("1", 1)));
    (void)fixture_tick(&w);
    shelf_clear(&s);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < sizes[i]; k++) bytes[k] = (uint8_t)(k * 7 + i);
        int64_t blocks = fli_load_rlx(&w.blocks);
        ok(filch_send(w.sched, a.pid, filch_bytes(bytes, sizes[i])));
        same(fli_load_rlx(&w.blocks) - blocks, sizes[i] <= 24 ? 0 : 1);
        (void)fixture_tick(&w);
        same(s.count, 1);
        same(filch_kind_of(&s.kept[0]), FILCH_KIND_BYTES);
        same(filch_size(&s.kept[0]), sizes[i]);
        assert_memory_equal(filch_raw(&s.kept[0]), bytes, sizes[i]);
        assert_true(filch_raw(&s.kept[0]) != bytes);
        assert_true(s.inline_bytes[0] == (sizes[i] <= 24));
        if (sizes[i] > 24)
            assert_ptr_equal(filch_raw(&s.kept[0]), s.raw[0]); /* filch_keep() of a large payload makes no copy */
        shelf_clear(&s);
        same(fli_load_rlx(&w.blocks), blocks);
    }
    free(bytes);
    actor_stop(&a);
    fixture_end(&w);
}

TEST(the_wrong_kind_reads_as_nothing)
{
    int        thing = 0;
    filch_pid  pid = { 1, 2 };
    filch_data all[] = { filch_none(),      filch_int(5),   filch_num(5.5),       filch_of_pid(pid),
                         filch_ptr(&thing), filch_str("x"), filch_bytes("xy", 2), filch_move(&thing, 3, NULL) };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        filch_kind kind = filch_kind_of(&all[i]);
        same(kind, i < 7 ? (filch_kind)i : FILCH_KIND_BYTES);
        bool bytes = kind == FILCH_KIND_BYTES || kind == FILCH_KIND_TEXT;
        if (kind != FILCH_KIND_INT) same(filch_as_int(&all[i]), 0);
        if (kind != FILCH_KIND_NUM) assert_true(filch_as_num(&all[i]) == 0.0);
        if (kind != FILCH_KIND_PID) assert_true(is_null_pid(filch_as_pid(&all[i])));
        if (kind != FILCH_KIND_PTR) assert_null(filch_as_ptr(&all[i]));
        if (kind != FILCH_KIND_TEXT) assert_string_equal(filch_text(&all[i]), "");
        if (bytes) assert_non_null(filch_raw(&all[i]));
        else assert_null(filch_raw(&all[i]));
        same(filch_size(&all[i]), kind == FILCH_KIND_TEXT ? 1 : i == 6 ? 2 : i == 7 ? 3 : 0);
    }
}

/* ---- moved memory ---- */

static filch_err play_greedy(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me;
    return has_cancel(events, count) ? filch_done(out, moved()) : filch_idle(out);
}

static filch_err play_fail(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    (void)me, (void)events;
    return count > 0 ? FILCH_EUSER : filch_idle(out);
}

TEST(moved_memory_is_freed_once_after_the_step_that_read_it)
{
    actor a = { .stage = 0 };
    fli_store_rlx(&moved_freed, 0);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    ok(filch_send(w.sched, a.pid, moved()));
    same(fli_load_rlx(&moved_freed), 0);
    (void)fixture_tick(&w);
    same(fli_load_rlx(&moved_freed), 1);
    ok(filch_send(w.sched, a.pid, filch_move(malloc(10), 10, NULL))); /* NULL means free() */
    ok(filch_send(w.sched, a.pid, filch_move(malloc(1), 0, NULL)));   /* moved memory of size 0 is freed, too */
    actor_stop(&a);
    fixture_end(&w);
}

TEST(moved_memory_that_was_refused_still_belongs_to_the_caller)
{
    actor a = { .stage = 0 }, b = { .stage = 0 };
    fli_store_rlx(&moved_freed, 0);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    actor_stop(&a);
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.mailbox_max = 1;
    actor_start_with(&w, &b, play_idle, opt);
    ok(filch_send(w.sched, b.pid, filch_int(1)));

    filch_data data = moved();
    same(filch_send(w.sched, a.pid, data), FILCH_EDEAD);
    same(filch_send(w.sched, (filch_pid){ a.pid.node + 1, 1 }, data), FILCH_EFOREIGN);
    same(filch_send(w.sched, b.pid, data), FILCH_EFULL);
    same(fli_load_rlx(&moved_freed), 0);
    assert_memory_equal(filch_raw(&data), "mmmm", 4);
    (void)fixture_tick(&w);
    ok(filch_send(w.sched, b.pid, data)); /* the send succeeds when the mailbox has space */
    actor_stop(&b);
    same(fli_load_rlx(&moved_freed), 1);
    fixture_end(&w);
}

TEST(moved_memory_that_is_never_read_is_freed_once)
{
    actor a = { .stage = 0 }, b = { .stage = 0 }, c = { .stage = 0 };
    fli_store_rlx(&moved_freed, 0);
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    ok(filch_send(w.sched, a.pid, moved()));
    ok(filch_terminate(w.sched, a.pid)); /* process a is terminated with unread messages */
    actor_ends(&w, &a, FILCH_EKILLED);
    same(fli_load_rlx(&moved_freed), 1);
    same(fixture_stats(&w).undelivered, 1);

    actor_start(&w, &b, play_fail); /* process b fails in the step that received the message */
    ok(filch_send(w.sched, b.pid, moved()));
    actor_ends(&w, &b, FILCH_EUSER);
    same(fli_load_rlx(&moved_freed), 2);

    actor_start(&w, &c, play_greedy); /* process c sets moved bytes as its result */
    ok(filch_send(w.sched, c.pid, moved()));
    /* the stop cancels process c, which has an unread message */
    ok(filch_sched_close(w.sched, FILCH_SECONDS(60), NULL));
    same(c.exit_error, FILCH_OK);
    same(filch_size(&c.result), 40);
    same(fli_load_rlx(&moved_freed), 3);
    filch_drop(&c.result);
    same(fli_load_rlx(&moved_freed), 4);
    fixture_end(&w);
}

TEST(stop_frees_undelivered_messages)
{
    static actor a[8];
    fli_store_rlx(&moved_freed, 0);
    memset(a, 0, sizeof a);
    fixture_begin(&w, 2);
    for (size_t i = 0; i < COUNT_OF(a); i++) actor_start(&w, &a[i], play_idle);
    uint32_t sent = 0;
    for (uint32_t n = fixture_scale(20000, 200); n > 0; n--) {
        ok(filch_send(w.sched, a[n % COUNT_OF(a)].pid, moved()));
        sent++;
    }
    fixture_end(&w);
    same(fli_load_rlx(&moved_freed), sent);
}

/* ---- shared blocks ---- */

TEST(a_shared_block_reaches_many_without_a_copy_and_is_freed_with_the_last)
{
    static shelf s[5];
    static actor a[5];
    slip         paper = { .user = NULL };
    filch_data   data;
    char        *bytes = malloc(100);
    memset(s, 0, sizeof s);
    memset(a, 0, sizeof a);
    ok(filch_share(bytes, 100, free_shared, &paper, &data));
    assert_ptr_equal(filch_shared_user(&data, free_shared), &paper);
    assert_null(filch_shared_user(&data, free_moved));
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        a[i].user = &s[i];
        actor_start(&w, &a[i], play_keep);
        ok(filch_send(w.sched, a[i].pid, data));
        ok(filch_send(w.sched, a[i].pid, data));
    }
    (void)fixture_tick(&w);
    filch_drop(&data);
    same(filch_kind_of(&data), FILCH_KIND_NONE);
    filch_drop(&data); /* dropping an empty payload again is allowed */
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        same(s[i].count, 2);
        assert_ptr_equal(s[i].raw[0], bytes);
        assert_ptr_equal(filch_raw(&s[i].kept[1]), bytes);
        /* filch_shared_user() works on every receiver's copy of the payload */
        assert_ptr_equal(filch_shared_user(&s[i].kept[1], free_shared), &paper);
        actor_stop(&a[i]);
        same(fli_load_rlx(&paper.freed), 0);
        if (i + 1 < COUNT_OF(a)) shelf_clear(&s[i]);
    }
    fixture_end(&w);
    same(fli_load_rlx(&paper.freed), 0); /* the kept payloads are still valid after the scheduler has stopped */
    shelf_clear(&s[COUNT_OF(a) - 1]);
    same(fli_load_rlx(&paper.freed), 1);
    assert_ptr_equal(paper.bytes, bytes);
    assert_ptr_equal(paper.user, &paper);
    same(paper.size, 100);
}

TEST(a_refused_shared_block_is_unchanged)
{
    slip       paper = { .user = NULL };
    filch_data data;
    fixture_begin(&w, FILCH_NO_WORKERS);
    ok(filch_share(malloc(8), 8, free_shared, &paper, &data));
    same(filch_send(w.sched, (filch_pid){ 0, 0 }, data), FILCH_EDEAD);
    same(fli_load_rlx(&paper.freed), 0);
    filch_drop(&data);
    same(fli_load_rlx(&paper.freed), 1);
    ok(filch_share(malloc(8), 8, NULL, NULL, &data)); /* NULL means free() */
    filch_drop(&data);
    fixture_end(&w);
}

/* Records the address of the bytes of each message. Forwards the message to the actor in `user`, if there is one. */
static filch_err play_forward(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    actor       *next = me->user;
    filch_sched *sched = filch_out_sched(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        me->stage = (int64_t)(intptr_t)filch_raw(&events[i].data);
        if (next != NULL && filch_send(sched, next->pid, events[i].data) != FILCH_OK) me->note = FILCH_EUSER;
    }
    return filch_idle(out);
}

TEST(a_forwarded_event_is_copied_once_in_total)
{
    static const char text[] = "long enough to need a block of its own";
    static actor      a[4];
    memset(a, 0, sizeof a);
    fixture_begin(&w, FILCH_NO_WORKERS);
    for (size_t i = COUNT_OF(a); i-- > 0;) {
        a[i].user = i + 1 < COUNT_OF(a) ? &a[i + 1] : NULL;
        actor_start(&w, &a[i], play_forward);
    }
    ok(filch_send(w.sched, a[0].pid, filch_str(text)));
    (void)fixture_tick(&w);
    assert_true(a[0].stage != 0 && a[0].stage != (int64_t)(intptr_t)text);
    for (size_t i = 1; i < COUNT_OF(a); i++) {
        assert_true(a[i].stage == a[0].stage);
        assert_true(same_pid(a[i].seen[0].from, a[i - 1].pid));
    }
    fli_store_rlx(&moved_freed, 0);
    filch_data data = moved();
    intptr_t   bytes = (intptr_t)filch_raw(&data);
    ok(filch_send(w.sched, a[0].pid, data)); /* sends moved bytes, which are never copied */
    (void)fixture_tick(&w);
    for (size_t i = 0; i < COUNT_OF(a); i++) assert_true(a[i].stage == bytes);
    same(fli_load_rlx(&moved_freed), 1);
    for (size_t i = 0; i < COUNT_OF(a); i++) actor_stop(&a[i]);
    fixture_end(&w);
}

/* ---- keep and drop ---- */

TEST(keep_copies_borrowed_bytes_and_takes_moved_ones)
{
    char       text[] = "some words that are longer than a payload";
    filch_data data = filch_str(text), kept;
    ok(filch_keep(&data, &kept));
    text[0] = 'S';
    assert_string_equal(filch_text(&kept), "some words that are longer than a payload");
    filch_data again;
    ok(filch_keep(&kept, &again));
    assert_ptr_equal(filch_raw(&again), filch_raw(&kept)); /* `kept` and `again` share the bytes */
    filch_drop(&kept);
    assert_string_equal(filch_text(&again), "some words that are longer than a payload");
    filch_drop(&again);
    assert_string_equal(filch_text(&again), "");

    ok(filch_keep(&data, &data)); /* source and destination of filch_keep() may be the same payload */
    assert_true(filch_raw(&data) != text);
    filch_drop(&data);

    fli_store_rlx(&moved_freed, 0);
    data = moved();
    const void *bytes = filch_raw(&data);
    ok(filch_keep(&data, &data));
    assert_ptr_equal(filch_raw(&data), bytes);
    same(fli_load_rlx(&moved_freed), 0);
    filch_drop(&data);
    same(fli_load_rlx(&moved_freed), 1);

    data = filch_int(3);
    ok(filch_keep(&data, &kept));
    same(filch_as_int(&kept), 3);
    filch_drop(&kept);
    same(filch_kind_of(&kept), FILCH_KIND_NONE);
}

/* ---- blocks in yields, completions and results ---- */

static FLI_ATOMIC(uint32_t) handled;
static filch_data           echo_kept;

/* The handler completes the yield with the payload of the command, and keeps that payload. */
static filch_err handle_echo(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    *(const void **)user = filch_raw(&command->data);
    fli_add_acqrel(&handled, 1);
    filch_err err = filch_keep(&command->data, &echo_kept);
    return err == FILCH_OK ? filch_complete(receiver, tag, command->data, FILCH_OK) : err;
}

static filch_err play_echo(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    switch (me->stage++) {
    case 0: {
        filch_err err = filch_yield(out, FILCH_CMD_USER, 9, moved());
        return err == FILCH_OK ? filch_wait(out) : err;
    }
    default:
        if (count != 1 || events[0].type != FILCH_EVENT_YIELD || events[0].error != FILCH_OK) return FILCH_EUSER;
        return filch_done(out, events[0].data);
    }
}

TEST(one_block_goes_through_yield_completion_and_result_without_a_copy)
{
    const void     *in_handler = NULL;
    filch_registry *registry;
    ok(filch_registry_create(&registry));
    ok(filch_registry_add(registry, FILCH_CMD_USER, handle_echo, &in_handler));
    filch_options opt = FILCH_OPTIONS_INIT;
    opt.registry = registry;
    fli_store_rlx(&moved_freed, 0);
    fixture_begin_with(&w, 1, opt);
    filch_registry_destroy(registry);
    actor a = { .stage = 0 };
    actor_start(&w, &a, play_echo);
    UNTIL(&w, is_over(&a));
    same(a.exit_error, FILCH_OK);
    assert_ptr_equal(filch_raw(&a.result), in_handler);
    filch_drop(&a.result);
    same(fli_load_rlx(&moved_freed), 0);
    assert_ptr_equal(filch_raw(&echo_kept), in_handler);
    filch_drop(&echo_kept);
    /* A stopped scheduler has dropped its own references. */
    fixture_end(&w);
    same(fli_load_rlx(&moved_freed), 1);
}

/* ---- many threads ---- */

static filch_data common;

static filch_err play_fan(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    actor       *others = me->user;
    filch_sched *sched = filch_out_sched(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, events[i].data);
        if (filch_size(&events[i].data) != 64) continue;
        if (me->stage-- > 0 && filch_send(sched, others[me->stage % 4].pid, events[i].data) != FILCH_OK) me->note = 1;
    }
    return filch_idle(out);
}

TEST(one_block_passed_around_by_all_workers_is_freed_once)
{
    static actor a[4];
    slip         paper = { .user = NULL };
    memset(a, 0, sizeof a);
    ok(filch_share(malloc(64), 64, free_shared, &paper, &common));
    fixture_begin(&w, 4);
    uint32_t rounds = fixture_scale(20000, 100);
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        a[i].user = a;
        a[i].stage = rounds;
        a[i].inits = 0;
    }
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
        actor_start_with(&w, &a[i], play_fan, opt);
    }
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        for (int k = 0; k < 8; k++) ok(filch_send(w.sched, a[i].pid, common));
    }
    filch_drop(&common);
    UNTIL(&w, fli_load_acq(&paper.freed) > 0);
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        actor_stop(&a[i]);
        same(a[i].note, 0);
    }
    fixture_end(&w);
    same(fli_load_rlx(&paper.freed), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_arrive_as_they_were_sent),
        cmocka_unit_test(texts_keep_their_nul_on_both_sides_of_the_inline_limit),
        cmocka_unit_test(up_to_24_bytes_are_inside_the_event_and_more_in_one_block),
        cmocka_unit_test(the_wrong_kind_reads_as_nothing),
        cmocka_unit_test(moved_memory_is_freed_once_after_the_step_that_read_it),
        cmocka_unit_test(moved_memory_that_was_refused_still_belongs_to_the_caller),
        cmocka_unit_test(moved_memory_that_is_never_read_is_freed_once),
        cmocka_unit_test(stop_frees_undelivered_messages),
        cmocka_unit_test(a_shared_block_reaches_many_without_a_copy_and_is_freed_with_the_last),
        cmocka_unit_test(a_refused_shared_block_is_unchanged),
        cmocka_unit_test(a_forwarded_event_is_copied_once_in_total),
        cmocka_unit_test(keep_copies_borrowed_bytes_and_takes_moved_ones),
        cmocka_unit_test(one_block_goes_through_yield_completion_and_result_without_a_copy),
        cmocka_unit_test(one_block_passed_around_by_all_workers_is_freed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
