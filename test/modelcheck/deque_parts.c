/* deque_parts.c - the real deque (sync/deque.h, deque.c) and the LIFO slot beside it (sync/lifo_slot.h), used by an
 * owner and up to three thieves. Every item must be taken exactly once, and the thread that takes it must see what was
 * written into it before the push. An item is a non-atomic number, so a take that is not ordered after the push is a
 * data race. The ring has four slots, so that it grows and slots are reused. */
#include "parts.h"
#include "sync/deque.h"
#include "sync/lifo_slot.h"

#define ITEMS 12

typedef struct item {
    uint32_t value, taken;
} item;

typedef struct table {
    /* thief_deques: the deques of thieves that steal half of the items in one steal */
    fli_deque     deque, thief_deques[3];
    fli_lifo_slot slot;
    item          items[ITEMS];
    uint32_t      made; /* number of items that were pushed; used by the owner only */
    uint32_t      got[FLI_WEAK_THREADS + 1];
} table;

static table *t;

static void setup(void)
{
    fli_mem mem;
    fli_mem_init(&mem, fli_weak_alloc, NULL);
    t = fli_weak_new(sizeof *t);
    fli_lifo_slot_init(&t->slot);
    (void)!fli_deque_init(&t->deque, &mem);
    for (int i = 0; i < 3; i++) (void)!fli_deque_init(&t->thief_deques[i], &mem);
}

static void push(void)
{
    item *it = &t->items[t->made++];
    it->value = 100 + t->made;
    must(fli_deque_push(&t->deque, it), "the deque has space");
}

/* Records that this thread has taken an item. The thread owns the item now, so its non-atomic accesses must be ordered
 * after the push. */
static void take(void *at)
{
    item *it = at;
    must(it != NULL && it >= t->items && it < t->items + ITEMS, "the deque returns an item");
    must(it->value == 101 + (uint32_t)(it - t->items), "the item holds the value that was pushed");
    must(it->taken++ == 0, "no item is taken twice");
    t->got[fli_weak_self]++;
}

static void pop(void)
{
    void *at = fli_deque_pop(&t->deque);
    if (at != NULL) take(at);
}

static void oldest(void)
{
    void *at = fli_deque_take_oldest(&t->deque);
    if (at != NULL) take(at);
}

static fli_steal one_from(fli_deque *from)
{
    void     *at = NULL;
    fli_steal found = fli_deque_steal_one(from, &at);
    if (found == FLI_STEAL_GOT) take(at);
    return found;
}

static void steal_one(void)
{
    (void)one_from(&t->deque);
}

static void steal_two(void)
{
    steal_one();
    steal_one();
}

/* Steals half of the items of the owner's deque into the thief's deque `into`, then pops all items of `into`. */
static void half_into(fli_deque *into)
{
    void    *first = NULL;
    uint32_t count = 0;
    if (fli_deque_steal_half_into(&t->deque, into, &first, &count) != FLI_STEAL_GOT) return;
    take(first);
    void *at;
    while ((at = fli_deque_pop(into)) != NULL) take(at);
}

static void steal_half(void)
{
    half_into(&t->thief_deques[fli_weak_self % 3]);
}

/* Steals half of the items of the owner's deque into thief_deques[0], from which a third thread steals. */
static void steal_half_and_pop(void)
{
    void    *first = NULL;
    uint32_t count = 0;
    if (fli_deque_steal_half_into(&t->deque, &t->thief_deques[0], &first, &count) == FLI_STEAL_GOT) take(first);
    void *at = fli_deque_pop(&t->thief_deques[0]);
    if (at != NULL) take(at);
}

static void steal_from_thief(void)
{
    (void)one_from(&t->thief_deques[0]);
    (void)one_from(&t->thief_deques[0]);
}

/* Takes the remaining items, then checks that each item was taken once. */
static void check(void)
{
    void *at;
    for (int i = -1; i < 3; i++) {
        fli_deque *from = i < 0 ? &t->deque : &t->thief_deques[i];
        uint32_t   n = fli_deque_count(from), left = 0;
        while ((at = fli_deque_pop(from)) != NULL) {
            take(at);
            left++;
        }
        must(n == left, "the count is exact if no other thread uses the deque");
    }
    for (uint32_t i = 0; i < t->made; i++) must(t->items[i].taken == 1, "no item is lost");
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) fli_weak_outcome(t->got[i]);
}

static void own_push_pop(void)
{
    push();
    push();
    pop();
    pop();
}

static void own_last(void)
{
    push();
    pop();
    push();
    pop();
}

/* Puts four items into the deque. In the model programs with this setup the owner pops until it reaches items that
 * thieves are about to take, and then pushes again. */
static void setup_four(void)
{
    setup();
    for (int i = 0; i < 4; i++) push();
}

static void own_pop_pop_push(void)
{
    pop();
    pop();
    push();
    pop();
}

static void own_pop_three(void)
{
    pop();
    pop();
    pop();
    push();
}

/* The owner pushes a fifth item, which makes the ring grow while thieves read it. */
static void own_grow(void)
{
    push();
    push();
    pop();
}

static void own_oldest(void)
{
    oldest();
    push();
    pop();
    oldest();
}

/* The owner pushes three items, then one more below the last two, so that these two are popped first. */
static void own_under(void)
{
    push();
    uint32_t mark = fli_deque_mark(&t->deque);
    push();
    push();
    item *it = &t->items[t->made++];
    it->value = 100 + t->made;
    must(fli_deque_push_under(&t->deque, it, mark), "the deque has space");
    pop();
    pop();
}

/* The owner pushes five more items. If a thief has taken an item, its slot in the ring is reused; otherwise the ring
 * grows. */
static void own_reuse(void)
{
    push();
    push();
    push();
    push();
    push();
}

static void setup_two(void)
{
    setup();
    push();
    push();
}

static void check_count(void)
{
    /* In the model programs that call check_count(), two items are never taken, so the count is at least two. */
    must(fli_deque_count(&t->deque) >= 2, "an untouched item is always counted");
}

static void own_push_count(void)
{
    push();
    pop();
    push();
    pop();
}

/* Starts with one item. The thief takes the oldest item only after it has seen two items, so the deque is never
 * empty. */
static void setup_one(void)
{
    setup();
    push();
}

static void own_push_one(void)
{
    push();
}

static void steal_if_two(void)
{
    if (fli_deque_count(&t->deque) >= 2) steal_one();
}

static void check_never_empty(void)
{
    must(fli_deque_count(&t->deque) >= 1, "a deque that is never empty is not found empty");
}

/* Puts an item as a worker does: into the LIFO slot, or into the deque if the LIFO slot is full. */
static void put(void)
{
    item *it = &t->items[t->made++];
    it->value = 100 + t->made;
    if (!fli_lifo_slot_put(&t->slot, it)) must(fli_deque_push(&t->deque, it), "the deque has space");
}

static void take_slot(void)
{
    void *at = fli_lifo_slot_take(&t->slot);
    if (at != NULL) take(at);
}

static void take_next(void)
{
    void *at = fli_lifo_slot_take(&t->slot);
    if (at == NULL) at = fli_deque_pop(&t->deque);
    if (at != NULL) take(at);
}

static void own_slot(void)
{
    put();
    take_next();
    put();
    put();
    take_next();
}

/* The owner makes a fairness pick: it moves the item of the LIFO slot to the deque, then takes the oldest item. */
static void own_slot_oldest(void)
{
    put();
    put();
    void *at = fli_lifo_slot_take(&t->slot);
    if (at != NULL) must(fli_deque_push(&t->deque, at), "the deque has space");
    oldest();
    put();
}

/* Steals as a thief does: from the owner's deque first, then from the LIFO slot. */
static void steal_any(void)
{
    if (one_from(&t->deque) == FLI_STEAL_EMPTY) take_slot();
}

static void steal_slot_twice(void)
{
    take_slot();
    take_slot();
}

static void check_slot(void)
{
    take_slot();
    must(!fli_lifo_slot_is_full(&t->slot), "only the owner fills the LIFO slot");
    check();
}

const fli_weak_program parts_deque[] = {
    { .name = "lifo_slot_1",
      .promise = "three items through the LIFO slot; a thief takes from the slot twice",
      .setup = setup,
      .threads = { own_slot, steal_slot_twice },
      .check = check_slot },
    { .name = "lifo_slot_2",
      .promise = "three items through the LIFO slot; two thieves take from the slot",
      .setup = setup,
      .threads = { own_slot, steal_slot_twice, take_slot },
      .check = check_slot },
    { .name = "lifo_slot_3",
      .promise = "three items through the LIFO slot; two thieves take from the deque or the slot",
      .setup = setup,
      .threads = { own_slot, steal_any, steal_any },
      .check = check_slot },
    { .name = "lifo_slot_oldest",
      .promise = "the LIFO slot is emptied into the deque; two thieves",
      .setup = setup,
      .threads = { own_slot_oldest, steal_any, take_slot },
      .check = check_slot },
    { .name = "deque_push_pop_1",
      .promise = "push, push, pop, pop; a thief",
      .setup = setup,
      .threads = { own_push_pop, steal_two },
      .check = check },
    { .name = "deque_push_pop_2",
      .promise = "push, push, pop, pop; two thieves",
      .setup = setup,
      .threads = { own_push_pop, steal_one, steal_one },
      .check = check },
    { .name = "deque_push_pop_3",
      .promise = "push, push, pop, pop; three thieves",
      .setup = setup,
      .threads = { own_push_pop, steal_one, steal_one, steal_one },
      .check = check },
    { .name = "deque_last_item",
      .promise = "push and pop of the only item, twice; two thieves",
      .setup = setup,
      .threads = { own_last, steal_two, steal_one },
      .check = check },
    { .name = "deque_half_1",
      .promise = "four items, three pops and a push; a thief takes half",
      .setup = setup_four,
      .threads = { own_pop_three, steal_half },
      .check = check },
    { .name = "deque_half_2",
      .promise = "four items, pops and a push; two thieves take half",
      .setup = setup_four,
      .threads = { own_pop_pop_push, steal_half, steal_half },
      .check = check },
    { .name = "deque_half_and_one",
      .promise = "four items, pops and a push; one thief takes half, two take one item",
      .setup = setup_four,
      .threads = { own_pop_pop_push, steal_half, steal_one, steal_one },
      .check = check },
    { .name = "deque_grow_1",
      .promise = "four items, the ring grows; one thief takes half, one takes one item",
      .setup = setup_four,
      .threads = { own_grow, steal_half, steal_one },
      .check = check },
    { .name = "deque_grow_3",
      .promise = "four items, the ring grows; three thieves",
      .setup = setup_four,
      .threads = { own_grow, steal_one, steal_one, steal_half },
      .check = check },
    { .name = "deque_oldest",
      .promise = "the owner takes the oldest; two thieves",
      .setup = setup_two,
      .threads = { own_oldest, steal_one, steal_one },
      .check = check },
    { .name = "deque_under_1",
      .promise = "one item is pushed under the newest two; a thief takes two",
      .setup = setup,
      .threads = { own_under, steal_two },
      .check = check },
    { .name = "deque_under_2",
      .promise = "one item is pushed under the newest two; two thieves",
      .setup = setup,
      .threads = { own_under, steal_half, steal_one },
      .check = check },
    { .name = "deque_reuse",
      .promise = "slots of the ring are reused while a thief reads them",
      .setup = setup_two,
      .threads = { own_reuse, steal_two, steal_one },
      .check = check },
    { .name = "deque_chain",
      .promise = "a second thief steals from the first",
      .setup = setup_four,
      .threads = { own_grow, steal_half_and_pop, steal_from_thief },
      .check = check },
    { .name = "deque_count",
      .promise = "the count includes every item that is not taken",
      .setup = setup_two,
      .threads = { own_push_count, check_count, check_count },
      .check = check },
    { .name = "deque_never_empty",
      .promise = "a deque that is never empty is not found empty",
      .setup = setup_one,
      .threads = { own_push_one, steal_if_two, check_never_empty },
      .check = check },
    { 0 },
};
