/* short_node_test.c - values that foreign threads send take nodes of 32 bytes. They are delivered like other messages
 * and in their order, and go back to their own slab. */
#include "proc/mailbox.h"
#include "proc/send.h"
#include "support/bench_runtime.h"

static const filch_pid no_sender = { 0, 0 };

/* Sends as a foreign thread does. */
static filch_err send_foreign(bench *b, fli_proc *p, filch_data data)
{
    return fli_send(&b->rt, NULL, bench_pid(p), no_sender, &data);
}

static bool head_is_short(fli_proc *p)
{
    return (fli_word_head(fli_state_peek(&p->state)) & FLI_SHORT_BIT) != 0;
}

/* Collects up to `max` events, checks that they are the messages with the numbers from `first` on, and releases them.
 * Returns the number of events. */
static uint32_t take(bench *b, fli_proc *p, int64_t first, uint32_t max)
{
    filch_event     events[BENCH_EVENTS];
    fli_event_node *nodes[BENCH_EVENTS];
    uint32_t        count = fli_mail_collect(&b->rt, p, false, events, nodes, max);
    for (uint32_t i = 0; i < count; i++) {
        same(events[i].type, FILCH_EVENT_MESSAGE);
        same(filch_as_int(&events[i].data), first + i);
    }
    fli_mail_release(&b->rt, &b->worker, p, events, nodes, count);
    return count;
}

TEST(only_a_value_of_a_foreign_thread_to_an_unlimited_mailbox_takes_a_short_node)
{
    bench b;
    bench_begin(&b);
    fli_proc  *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL), *limited = bench_spawn(&b, 5, 0, FILCH_OVERFLOW_FAIL);
    filch_data number = filch_int(1);
    ok(send_foreign(&b, p, number));
    assert_true(head_is_short(p));
    ok(send_foreign(&b, p, filch_bytes("bytes", 5)));
    assert_false(head_is_short(p));
    ok(fli_send(&b.rt, &b.worker, bench_pid(p), no_sender, &number));
    assert_false(head_is_short(p));
    /* This message is one that another scheduler has routed here. */
    ok(fli_send(&b.rt, NULL, bench_pid(p), (filch_pid){ 99, 7 }, &number));
    assert_false(head_is_short(p));
    ok(send_foreign(&b, limited, number));
    assert_false(head_is_short(limited));
    /* Leaves a spare node, as a worker does before it parks */
    fli_store_rlx(&b.rt.spare_node, fli_node_take(&b.rt, &b.worker));
    ok(send_foreign(&b, p, number));
    assert_false(head_is_short(p));
    assert_null(fli_load_rlx(&b.rt.spare_node));
    same(bench_finish(&b, p), 5);
    same(bench_finish(&b, limited), 1);
    bench_end(&b);
}

TEST(every_value_arrives_unchanged_in_a_short_node_and_has_no_sender)
{
    bench            b;
    filch_event      events[BENCH_EVENTS];
    fli_event_node  *nodes[BENCH_EVENTS];
    const filch_data sent[] = { filch_none(), filch_int(INT64_MIN), filch_num(-0.5),
                                filch_of_pid((filch_pid){ UINT64_MAX, UINT64_MAX - 1 }), filch_ptr(events) };
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    memset(events, 0xff, sizeof events);
    for (size_t i = 0; i < 5; i++) ok(send_foreign(&b, p, sent[i]));
    bench_unstack(&b, p);
    same(b.worker.remote_events, 0); /* 0: no worker has sent these messages */
    same(fli_mail_collect(&b.rt, p, false, events, nodes, BENCH_EVENTS), 5);
    for (size_t i = 0; i < 5; i++) {
        same(events[i].type, FILCH_EVENT_MESSAGE);
        same(events[i].error, FILCH_OK);
        same(events[i].tag, 0);
        same(events[i].from.node, 0);
        same(events[i].from.serial, 0);
        same(events[i].data.kind, sent[i].kind);
        same(events[i].data.form, FLI_FORM_VALUE);
        assert_memory_equal(&events[i].data.as, &sent[i].as, 16);
    }
    fli_mail_release(&b.rt, &b.worker, p, events, nodes, 5);
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(short_and_full_nodes_in_one_mailbox_keep_their_order)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    int64_t   sent = 0, read = 0;
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 1 + round % 7; i++, sent++) {
            filch_data number = filch_int(sent);
            bool       foreign = (round + i) % 3 != 0;
            ok(foreign ? send_foreign(&b, p, number) : fli_send(&b.rt, &b.worker, bench_pid(p), bench_pid(p), &number));
        }
        /* If the mailbox has a short node, fli_mail_take_plain() takes nothing and returns 0. */
        fli_event_node *nodes[BENCH_EVENTS];
        bool            bytes = false, mixed = round % 7 > 1;
        uint64_t        word = fli_state_look(&p->state);
        if (mixed) same(fli_mail_take_plain(&b.rt, p, word, nodes, BENCH_EVENTS, &bytes), 0);
        bench_unstack(&b, p);
        read += take(&b, p, read, 2);
    }
    while (read < sent) read += take(&b, p, read, 3);
    assert_true(bench_settle(&b, p, FLI_IDLE)); /* frees the node of the last message, which the mailbox head named */
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

TEST(unread_short_nodes_go_back_to_their_slab)
{
    bench b;
    bench_begin(&b);
    for (uint32_t round = 0; round < 3; round++) {
        fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
        for (int64_t i = 0; i < 10; i++) ok(send_foreign(&b, p, filch_int(i)));
        bench_unstack(&b, p);
        same(take(&b, p, 0, 4), 4);
        for (int64_t i = 10; i < 15; i++) ok(send_foreign(&b, p, filch_int(i)));
        same(bench_finish(&b, p), 11);
        same(bench_nodes_out(&b), 0);
    }
    bench_end(&b);
}

TEST(a_backlog_takes_little_more_than_32_bytes_a_message)
{
    enum { MANY = 1 << 14 };
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    ok(send_foreign(&b, p, filch_int(0)));
    size_t before = atomic_load(&b.alloc.bytes);
    /* Sends until no handle is left: of the MANY handles of the slab, handle 0 names no node, and the first send took
     * one before this loop. */
    for (int64_t i = 1; i < MANY - 1; i++) ok(send_foreign(&b, p, filch_int(i)));
    assert_in_range(atomic_load(&b.alloc.bytes) - before, (MANY - 1024) * 32, MANY * (32 + 12) + 4096);
    same(bench_finish(&b, p), MANY - 1);
    bench_end(&b);
}

TEST(a_send_without_memory_for_a_short_node_is_refused)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    /* the allocation that fails: 1 the map, 2 the segment, 3 the list of free objects */
    for (uint64_t nth = 1; nth <= 3; nth++) {
        test_alloc_fail(&b.alloc, nth, false);
        same(send_foreign(&b, p, filch_int(1)), FILCH_ENOMEM);
    }
    test_alloc_fail(&b.alloc, 0, false);
    ok(send_foreign(&b, p, filch_int(1)));
    same(bench_finish(&b, p), 1);
    same(send_foreign(&b, p, filch_int(1)), FILCH_EDEAD);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_value_of_a_foreign_thread_to_an_unlimited_mailbox_takes_a_short_node),
        cmocka_unit_test(every_value_arrives_unchanged_in_a_short_node_and_has_no_sender),
        cmocka_unit_test(short_and_full_nodes_in_one_mailbox_keep_their_order),
        cmocka_unit_test(unread_short_nodes_go_back_to_their_slab),
        cmocka_unit_test(a_backlog_takes_little_more_than_32_bytes_a_message),
        cmocka_unit_test(a_send_without_memory_for_a_short_node_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
