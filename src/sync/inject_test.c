/* inject_test.c - the global queue keeps order, hands out batches, and loses nothing between threads. */
#include "sync/inject.h"

#include "support/check.h"

typedef struct thing {
    int   number;
    void *link; /* not first, so that the offset matters */
    int   taken;
} thing;

static void begin(fli_inject *queue)
{
    ok(fli_inject_init(queue, offsetof(thing, link)));
}

static void put(fli_inject *queue, thing *things, int from, int to)
{
    for (int i = from; i <= to; i++) {
        things[i].number = i;
        fli_inject_put(queue, &things[i]);
    }
}

static void expect(fli_inject *queue, size_t max, int from, int to)
{
    void  *got[16] = { NULL };
    size_t n = fli_inject_take(queue, got, max);
    same(n, to - from + 1);
    for (size_t i = 0; i < n; i++) same(((thing *)got[i])->number, from + (int)i);
    assert_null(got[n]); /* nothing written behind them */
}

TEST(first_in_is_first_out)
{
    fli_inject queue;
    thing      things[8];
    begin(&queue);
    put(&queue, things, 0, 2);
    expect(&queue, 1, 0, 0);
    put(&queue, things, 3, 3);
    expect(&queue, 1, 1, 1);
    expect(&queue, 1, 2, 2);
    expect(&queue, 1, 3, 3);
    expect(&queue, 1, 0, -1);
    /* Empty and in use again, with the same items. */
    put(&queue, things, 0, 1);
    expect(&queue, 1, 0, 0);
    expect(&queue, 1, 1, 1);
    fli_inject_fini(&queue);
}

TEST(a_batch_is_the_oldest_in_order_and_no_more_than_asked_for)
{
    fli_inject queue;
    thing      things[12];
    begin(&queue);
    put(&queue, things, 0, 11);
    expect(&queue, 0, 0, -1);
    expect(&queue, 5, 0, 4);
    expect(&queue, 7, 5, 11);
    expect(&queue, 7, 0, -1);
    put(&queue, things, 0, 2);
    expect(&queue, 15, 0, 2);
    expect(&queue, 15, 0, -1);
    fli_inject_fini(&queue);
}

static void put_first(fli_inject *queue, thing *things, int number)
{
    things[number].number = number;
    fli_inject_put_first(queue, &things[number]);
}

TEST(what_is_put_first_is_taken_first)
{
    fli_inject queue;
    thing      things[8];
    begin(&queue);
    put_first(&queue, things, 1); /* it is the newest, too */
    put(&queue, things, 2, 3);
    put_first(&queue, things, 0);
    same(fli_inject_count(&queue), 4);
    expect(&queue, 3, 0, 2);
    put(&queue, things, 4, 4);
    expect(&queue, 8, 3, 4);
    expect(&queue, 1, 0, -1);
    put_first(&queue, things, 0); /* empty, but once it was not */
    put(&queue, things, 1, 2);
    expect(&queue, 8, 0, 2);
    fli_inject_fini(&queue);
}

TEST(count_is_exact_when_nobody_is_at_work)
{
    fli_inject queue;
    thing      things[6];
    begin(&queue);
    same(fli_inject_count(&queue), 0);
    put(&queue, things, 0, 5);
    same(fli_inject_count(&queue), 6);
    expect(&queue, 4, 0, 3);
    same(fli_inject_count(&queue), 2);
    expect(&queue, 4, 4, 5);
    same(fli_inject_count(&queue), 0);
    fli_inject_fini(&queue);
}

enum { PUTTERS = 3, TAKERS = 2, EACH = 20000 };

typedef struct crowd {
    fli_inject queue;
    thing      things[PUTTERS][EACH];
    FLI_ATOMIC(size_t) taken;
} crowd;

typedef struct member {
    crowd *crowd;
    int    who;
    int    wrong; /* plain: the member's until it is joined */
} member;

static void putter(void *arg)
{
    member *m = arg;
    for (int i = 0; i < EACH; i++) {
        thing *t = &m->crowd->things[m->who][i];
        t->number = m->who * EACH + i;
        fli_inject_put(&m->crowd->queue, t);
    }
}

static void taker(void *arg)
{
    member *m = arg;
    int     last[PUTTERS];
    for (int i = 0; i < PUTTERS; i++) last[i] = -1;
    while (fli_load_acq(&m->crowd->taken) < (size_t)PUTTERS * EACH) {
        void  *got[7];
        size_t n = fli_inject_take(&m->crowd->queue, got, 7);
        if (n == 0) fli_thread_yield();
        for (size_t i = 0; i < n; i++) {
            thing *t = got[i];
            int    who = t->number / EACH;
            if (t->number <= last[who] || t->taken++ != 0) m->wrong++;
            last[who] = t->number;
        }
        (void)fli_add_acqrel(&m->crowd->taken, n);
    }
}

TEST(many_threads_lose_nothing_and_keep_each_putters_order)
{
    static crowd c; /* zeroed, and too large for the stack */
    member       members[PUTTERS + TAKERS];
    fli_thread   threads[PUTTERS + TAKERS];
    begin(&c.queue);
    for (int i = 0; i < PUTTERS + TAKERS; i++) {
        members[i] = (member){ .crowd = &c, .who = i };
        ok(fli_thread_start(&threads[i], "inject", i < PUTTERS ? putter : taker, &members[i]));
    }
    for (int i = 0; i < PUTTERS + TAKERS; i++) {
        fli_thread_join(&threads[i]);
        same(members[i].wrong, 0);
    }
    for (int i = 0; i < PUTTERS; i++) {
        for (int j = 0; j < EACH; j++) same(c.things[i][j].taken, 1);
    }
    same(fli_inject_count(&c.queue), 0);
    fli_inject_fini(&c.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_is_first_out),
        cmocka_unit_test(a_batch_is_the_oldest_in_order_and_no_more_than_asked_for),
        cmocka_unit_test(what_is_put_first_is_taken_first),
        cmocka_unit_test(count_is_exact_when_nobody_is_at_work),
        cmocka_unit_test(many_threads_lose_nothing_and_keep_each_putters_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
