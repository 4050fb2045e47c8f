/* inject_test.c - the global queue keeps the order, takes items in batches, and loses no item between threads. */
#include "sync/inject.h"

#include <string.h>

#include "base/prng.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/until.h"

typedef struct thing {
    int   number;
    void *link; /* not the first field, so that a wrong offset of the link is noticed */
    int   taken;
} thing;

static test_alloc memory;

static void begin(fli_inject *queue)
{
    fli_mem mem;
    memset(&memory, 0, sizeof memory);
    fli_mem_init(&mem, test_alloc_fn, &memory);
    ok(fli_inject_init(queue, &mem, offsetof(thing, link)));
}

static void end(fli_inject *queue)
{
    fli_inject_fini(queue);
    test_alloc_balanced(&memory);
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
    assert_null(got[n]); /* fli_inject_take() has not written behind the items that it took */
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
    /* The queue was emptied and is used again, with the same items. */
    put(&queue, things, 0, 1);
    expect(&queue, 1, 0, 0);
    expect(&queue, 1, 1, 1);
    end(&queue);
}

TEST(a_batch_is_the_oldest_items_in_order_and_at_most_max)
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
    end(&queue);
}

static void put_first(fli_inject *queue, thing *things, int number)
{
    things[number].number = number;
    fli_inject_put_first(queue, &things[number]);
}

/* Puts items at the front of a non-empty queue, of a new empty queue, and of a queue that has become empty. */
static void put_first_and_take(fli_inject *queue)
{
    thing things[8];
    put_first(queue, things, 1); /* the only item is both the oldest and the newest */
    put(queue, things, 2, 3);
    put_first(queue, things, 0);
    same(fli_inject_count(queue), 4);
    expect(queue, 3, 0, 2);
    put(queue, things, 4, 4);
    expect(queue, 8, 3, 4);
    expect(queue, 1, 0, -1);
    put_first(queue, things, 0);
    put(queue, things, 1, 2);
    expect(queue, 8, 0, 2);
}

TEST(an_item_put_first_is_taken_first)
{
    fli_inject queue;
    begin(&queue);
    put_first_and_take(&queue);
    end(&queue);
}

TEST(count_is_exact_without_concurrent_calls)
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
    end(&queue);
}

/* ---- the queue compared with an array as a model; allocations may be refused ---- */

enum { MANY = 70000 }; /* more items than the largest ring holds */

typedef struct model {
    fli_inject queue;
    thing      things[MANY];
    int        order[3 * MANY]; /* numbers of the queued things, in order, from index `first` to index `last` - 1 */
    size_t     first, last;
} model;

static void model_put(model *m, bool to_front)
{
    /* Each put uses the next thing. A thing is used again after MANY puts, when it is no longer queued. */
    static int next;
    thing     *t = &m->things[next];
    t->number = next;
    next = (next + 1) % MANY;
    if (to_front) {
        m->order[--m->first] = t->number;
        fli_inject_put_first(&m->queue, t);
    } else {
        m->order[m->last++] = t->number;
        fli_inject_put(&m->queue, t);
    }
    same(fli_inject_count(&m->queue), m->last - m->first);
}

static void model_take(model *m, size_t max)
{
    void  *got[16];
    size_t n = fli_inject_take(&m->queue, got, max), left = m->last - m->first;
    same(n, max < left ? max : left);
    for (size_t i = 0; i < n; i++) same(((thing *)got[i])->number, m->order[m->first++]);
}

/* Runs random operations. During the first two thirds of the rounds, all allocations from number `nth` on are refused
 * (0: none is refused). */
static void play(model *m, uint64_t nth, uint64_t seed)
{
    fli_prng prng;
    fli_prng_init(&prng, seed);
    begin(&m->queue);
    m->first = m->last = MANY;
    for (int round = 0; round < 6000; round++) {
        if (round == 0 && nth > 0) test_alloc_fail(&memory, nth, true);
        if (round == 4000) test_alloc_fail(&memory, 0, false);
        uint32_t what = fli_prng_below(&prng, 100);
        /* for 500 rounds the queue mostly fills, for the next 500 it mostly empties */
        bool rises = round / 500 % 2 == 0;
        if (what < (rises ? 60u : 30u)) model_put(m, fli_prng_below(&prng, 8) == 0);
        else model_take(m, fli_prng_below(&prng, rises ? 2 : 6));
        if (m->last == m->first) m->first = m->last = MANY;
    }
    while (m->last > m->first) model_take(m, 16);
    same(fli_inject_count(&m->queue), 0);
    end(&m->queue);
}

static model the_model; /* static: a `model` is too large for the stack */

TEST(order_and_count_agree_with_a_model_with_memory_and_without)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        for (uint64_t nth = 0; nth <= 4; nth++) play(&the_model, nth, seed);
    }
}

TEST(without_memory_every_item_is_still_queued_in_order)
{
    fli_inject queue;
    begin(&queue);
    test_alloc_fail(&memory, 1, true);
    put_first_and_take(&queue);
    end(&queue);
}

/* A full ring that cannot grow, with its first item at every possible place: put_first moves only the newest item of
 * the ring to the chain. */
TEST(a_put_first_into_a_full_ring_without_memory_moves_only_the_newest)
{
    fli_inject   queue;
    static thing things[2000];
    begin(&queue);
    put(&queue, things, 0, 0);
    size_t room = queue.room;
    expect(&queue, 1, 0, 0);
    test_alloc_fail(&memory, 1, true);
    for (size_t turn = 0; turn < room; turn++) {
        int last = (int)room;
        put(&queue, things, 1, last);
        same(queue.room, room);
        put_first(&queue, things, 0);
        put(&queue, things, last + 1, last + 1);
        for (int i = 0; i <= last + 1; i++) expect(&queue, 1, i, i);
        /* this put and the take after it make the next iteration begin one place further in the ring */
        put(&queue, things, 0, 0);
        expect(&queue, 1, 0, 0);
    }
    end(&queue);
}

TEST(a_long_queue_gives_its_memory_back_when_it_is_empty)
{
    model *m = &the_model;
    begin(&m->queue);
    m->first = m->last = MANY;
    for (int i = 0; i < MANY; i++) model_put(m, false);
    size_t most = atomic_load(&memory.bytes);
    while (m->last > m->first) model_take(m, 16);
    assert_true(atomic_load(&memory.bytes) < most);
    same(atomic_load(&memory.bytes), 0);
    m->first = m->last = MANY;
    for (int i = 0; i < 2; i++) model_put(m, false); /* a queue of two items keeps its ring when it becomes empty */
    size_t few = atomic_load(&memory.asked);
    while (m->last > m->first) model_take(m, 16);
    model_put(m, false);
    same(atomic_load(&memory.asked), few);
    model_take(m, 1);
    end(&m->queue);
}

enum { PUTTERS = 3, TAKERS = 2, EACH = 20000 };

typedef struct crowd {
    fli_inject         queue;
    thing              things[PUTTERS][EACH];
    FLI_ATOMIC(size_t) taken;
} crowd;

typedef struct member {
    crowd *crowd;
    int    putter_index;
    /* number of errors that the thread has found. Not atomic: used by this thread alone until it is joined */
    int wrong;
} member;

static void putter(void *arg)
{
    member *m = arg;
    for (int i = 0; i < EACH; i++) {
        thing *t = &m->crowd->things[m->putter_index][i];
        t->number = m->putter_index * EACH + i;
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
        if (n == 0) yield_slice();
        for (size_t i = 0; i < n; i++) {
            thing *t = got[i];
            int    putter_index = t->number / EACH;
            if (t->number <= last[putter_index] || t->taken++ != 0) m->wrong++;
            last[putter_index] = t->number;
        }
        (void)fli_add_acqrel(&m->crowd->taken, n);
    }
}

TEST(many_threads_lose_no_item_and_keep_the_order_of_each_putter)
{
    static crowd c; /* static: zeroed, and too large for the stack */
    member       members[PUTTERS + TAKERS];
    fli_thread   threads[PUTTERS + TAKERS];
    begin(&c.queue);
    for (int i = 0; i < PUTTERS + TAKERS; i++) {
        members[i] = (member){ .crowd = &c, .putter_index = i };
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
    end(&c.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_is_first_out),
        cmocka_unit_test(a_batch_is_the_oldest_items_in_order_and_at_most_max),
        cmocka_unit_test(an_item_put_first_is_taken_first),
        cmocka_unit_test(count_is_exact_without_concurrent_calls),
        cmocka_unit_test(order_and_count_agree_with_a_model_with_memory_and_without),
        cmocka_unit_test(without_memory_every_item_is_still_queued_in_order),
        cmocka_unit_test(a_put_first_into_a_full_ring_without_memory_moves_only_the_newest),
        cmocka_unit_test(a_long_queue_gives_its_memory_back_when_it_is_empty),
        cmocka_unit_test(many_threads_lose_no_item_and_keep_the_order_of_each_putter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
