/* node_test.c - a value message keeps its kind and value on a machine with unknown byte order. The test undefines
 * __BYTE_ORDER__, so the library reads and writes kind and form as separate fields, as a big-endian machine does. */
#include <string.h>

#undef __BYTE_ORDER__
#define filch_send send_by_name /* compiles the header's inline filch_send() a second time under another name */
#include <filch.h>

#include "proc/mailbox.h"
#include "proc/node.h"
#include "support/bench_runtime.h"

extern inline filch_err filch_send(filch_sched *sched, filch_pid to, filch_data data);

TEST(with_unknown_byte_order_a_value_node_keeps_its_kind)
{
    for (uint8_t kind = FILCH_KIND_NONE; kind <= FILCH_KIND_PTR; kind++) {
        fli_event_node node;
        filch_data     by_word, by_name;
        memset(&node, 0xff, sizeof node);
        memset(&by_word, 0xff, sizeof by_word);
        fli_node_put_value(&node, kind, 7, UINT64_MAX);
        same(node.what, 0);
        same(node.error, 0);
        fli_node_get_value(&node, &by_word);
        fli_node_get_data(&node, &by_name);
        same(by_word.kind, kind);
        same(by_word.form, 0);
        same(by_name.kind, kind);
        same(by_word.as.pid.node, 7);
        same(by_word.as.pid.serial, UINT64_MAX);
    }
}

/* Sends `sent` to `p` and checks that the same value is delivered. */
static void arrives(bench *b, fli_proc *p, filch_data sent)
{
    filch_event     event;
    fli_event_node *node;
    ok(filch_send((filch_sched *)&b->rt, bench_pid(p), sent));
    bench_unstack(b, p);
    same(fli_mail_collect(&b->rt, p, false, &event, &node, 1), 1);
    same(event.data.kind, sent.kind);
    same(filch_size(&event.data), filch_size(&sent));
    if (filch_size(&sent) > 0) assert_memory_equal(filch_raw(&event.data), filch_raw(&sent), filch_size(&sent));
    else same(event.data.as.i, sent.as.i);
    fli_mail_release(&b->rt, &b->worker, p, &event, &node, 1);
}

TEST(with_unknown_byte_order_all_kinds_are_delivered_unchanged)
{
    bench b;
    bench_begin(&b);
    fli_proc *p = bench_spawn(&b, 0, 0, FILCH_OVERFLOW_FAIL);
    arrives(&b, p, filch_none());
    arrives(&b, p, filch_int(-7));
    arrives(&b, p, filch_num(0.5));
    arrives(&b, p, filch_of_pid((filch_pid){ 3, 4 }));
    arrives(&b, p, filch_ptr(&b));
    arrives(&b, p, filch_str("short"));
    arrives(&b, p, filch_str("long enough for a block of its own"));
    arrives(&b, p, filch_bytes("\1\2", 2));
    same(bench_finish(&b, p), 0);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_unknown_byte_order_a_value_node_keeps_its_kind),
        cmocka_unit_test(with_unknown_byte_order_all_kinds_are_delivered_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
