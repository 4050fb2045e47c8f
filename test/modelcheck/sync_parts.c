/* sync_parts.c - the slab that grows while other threads look up handles, the global queue, and the reference count of
 * the registry. */
#include "dispatch/registry.h"
#include "parts.h"
#include "sync/inject.h"
#include "sync/slab.h"

typedef struct thing {
    uint32_t handle; /* not atomic, like `value`: written when the object is created */
    uint32_t value;
    uint8_t  padding[56];
} thing;

/* An object that threads claim through handles with a generation, like the node of a yield. */
typedef struct claimable {
    FLI_ATOMIC(uint32_t) stamp;  /* generation * 2, plus 1 while the object is in use */
    uint32_t             handle; /* not atomic: written when the object is created, and again when it is remade */
    uint8_t              padding[56];
} claimable;

typedef struct queue_item {
    uint32_t value;
    void    *next;
} queue_item;

typedef struct table {
    fli_slab             slab;
    void                *known;
    fli_magazine         magazines[FLI_WEAK_THREADS + 1];
    fli_inject           queue;
    queue_item           queue_items[4];
    FLI_ATOMIC(uint32_t) handle; /* the handle that one thread passes to another */
    FLI_ATOMIC(uint32_t) put_done;
    uint32_t             taken[FLI_WEAK_THREADS + 1], sum[FLI_WEAK_THREADS + 1], found;
    filch_registry      *registry;
} table;

static table *t;

static void make(void *object, uint32_t handle)
{
    ((thing *)object)->handle = handle;
}

static void setup(void)
{
    fli_mem mem;
    fli_mem_init(&mem, fli_weak_alloc, NULL);
    t = fli_weak_new(sizeof *t);
    (void)!fli_slab_init(&t->slab, &mem, sizeof(thing), 100, make);
    (void)!fli_inject_init(&t->queue, &mem, offsetof(queue_item, next));
}

/* ---- slab: segments of 4, 4, 8 ---- */

static uint32_t take(fli_magazine *magazine)
{
    thing *it = fli_slab_take(&t->slab, magazine);
    must(it != NULL, "there is memory");
    must(fli_slab_at(&t->slab, it->handle) == it, "a handle leads to its object");
    it->value = fli_weak_self;
    return it->handle;
}

static void grow(void)
{
    for (int i = 0; i < 5; i++) (void)take(NULL);
}

static void look_up(void)
{
    for (uint32_t handle = 5; handle >= 3; handle--) {
        thing *it = fli_slab_find(&t->slab, handle);
        if (it == NULL) continue;
        must(it->handle == handle, "a handle that is found has an initialised object");
        t->found++;
    }
}

static void look_up_one(void)
{
    thing *it = fli_slab_find(&t->slab, 4);
    if (it != NULL) must(it->handle == 4, "a handle that is found has an initialised object");
}

/* Looks up a handle as the fast path of a send does, which does not check whether the handle is 0. */
static void reach_one(void)
{
    if (!fli_slab_reaches(&t->slab, 4)) return;
    thing *it = fli_slab_at(&t->slab, 4);
    must(it->handle == 4, "a handle that is reached has an initialised object");
}

static void take_four(void)
{
    for (int i = 0; i < 4; i++) (void)take(NULL);
}

/* Takes four objects from the slab and passes the last handle to use_passed(), which looks the handle up without
 * reading the number of made handles (`fresh`). */
static void pass_on(void)
{
    uint32_t handle = 0;
    for (int i = 0; i < 4; i++) handle = take(NULL);
    fli_store_rel(&t->handle, handle);
}

static void use_passed(void)
{
    uint32_t handle = fli_load_acq(&t->handle);
    if (handle == 0) return;
    thing *it = fli_slab_at(&t->slab, handle);
    must(it->handle == handle && it->value == 1, "a handle passed to another thread leads to its object");
}

static void setup_first(void)
{
    setup();
    (void)take(NULL);
}

/* Setup of the program that looks up an old handle while the map of segments is replaced by a larger one. */
static void setup_map(void)
{
    setup();
    for (int i = 0; i < 7; i++) (void)take(NULL);
    t->known = fli_slab_at(&t->slab, 5);
}

static void take_one(void)
{
    (void)take(NULL);
}

static void use_known(void)
{
    must(fli_slab_at(&t->slab, 5) == t->known, "an object does not move");
}

/* Takes handles from a magazine and gives them back. No two threads may hold the same handle at the same time. */
static void trade(void)
{
    fli_magazine *mine = &t->magazines[fli_weak_self];
    uint32_t      first = take(mine), second = take(mine), third = take(mine);
    must(first != second && second != third && first != third, "a handle has one user");
    fli_slab_give(&t->slab, mine, fli_slab_at(&t->slab, first));
    fli_slab_give(&t->slab, mine, fli_slab_at(&t->slab, second));
    fli_slab_give(&t->slab, mine, fli_slab_at(&t->slab, third));
    fli_slab_empty(&t->slab, mine);
}

/* ---- slab: memory that is returned to the system. A page has 4 objects, and the depot has 4 spare ones ---- */

static void make_claimable(void *object, uint32_t handle)
{
    claimable *it = object;
    it->handle = handle;
    fli_store_rlx(&it->stamp, 2);
}

/* Reads the generation, then clears it, as the system does a moment later when it discards the memory. */
static uint32_t claimable_generation(void *object)
{
    claimable *it = object;
    uint32_t   generation = fli_load_rlx(&it->stamp) / 2;
    fli_store_rlx(&it->stamp, 0);
    return generation;
}

static void remake_claimable(void *object, uint32_t handle, uint32_t generation)
{
    claimable *it = object;
    it->handle = handle;
    fli_store_rlx(&it->stamp, generation * 2);
}

static const fli_slab_return_ops claimable_ops = { .generation = claimable_generation, .remake = remake_claimable };

#define STALE_HANDLE 5
/* the generation in which object STALE_HANDLE was last used; all other objects were used only in generation 1 */
#define STALE_GENERATION 2

static void use(claimable *it)
{
    fli_store_rlx(&it->stamp, fli_load_rlx(&it->stamp) + 1);
}

static void give_claimable(uint32_t handle)
{
    claimable *it = fli_slab_at(&t->slab, handle);
    fli_store_rlx(&it->stamp, fli_load_rlx(&it->stamp) + 1);
    fli_slab_give(&t->slab, NULL, it);
}

/* Takes 11 objects and gives 8 of them back. Then objects 1 to 3 and 8 are spare in the depot; objects 4 to 7 are a
 * free page, which the next fli_slab_trim() may return to the system; objects 9 to 11 are in use. Object 5 has been
 * used twice, the others once. */
static void setup_return(void)
{
    fli_mem mem;
    fli_mem_init(&mem, fli_weak_alloc, NULL);
    t = fli_weak_new(sizeof *t);
    (void)!fli_slab_init(&t->slab, &mem, sizeof(claimable), 100, make_claimable);
    fli_slab_allow_return(&t->slab, &claimable_ops);
    for (int i = 0; i < 11; i++) use(fli_slab_take(&t->slab, NULL));
    claimable *twice = fli_slab_at(&t->slab, STALE_HANDLE);
    fli_store_rlx(&twice->stamp, STALE_GENERATION * 2 + 1);
    static const uint32_t order[] = { 1, 2, 3, 8, 4, 5, 6, 7 };
    for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++) give_claimable(order[i]);
    must(fli_slab_trim(&t->slab, 0) == 0 && fli_load_rlx(&t->slab.free_pages) == 1, "one page is free");
}

static void return_memory(void)
{
    (void)fli_slab_trim(&t->slab, 10);
}

/* Tries to claim an object through a stale handle: the object has been given back. */
static void claim_stale(void)
{
    claimable *it = fli_slab_find(&t->slab, STALE_HANDLE);
    uint32_t   used = STALE_GENERATION * 2 + 1, seen = used;
    must(fli_load_rlx(&it->stamp) != used, "a stale handle is recognised");
    must(!fli_cas_acqrel(&it->stamp, &seen, used + 1), "a stale handle claims nothing");
}

/* Takes the four spare objects of the depot, and then two objects of the free page. */
static void take_from_page(void)
{
    for (int i = 0; i < 6; i++) {
        claimable *it = fli_slab_take(&t->slab, NULL);
        must(fli_slab_at(&t->slab, it->handle) == it, "a handle leads to its object");
        uint32_t generation = fli_load_rlx(&it->stamp) / 2;
        must(it->handle > 11 || generation >= 2, "no generation of an object is used twice");
        must(it->handle != STALE_HANDLE || generation > STALE_GENERATION, "no generation of an object is used twice");
        use(it);
    }
}

static void check_return(void)
{
    must(t->slab.stored + t->slab.spare_count + 3 + 6 + 1 == fli_load_rlx(&t->slab.fresh), "no object is lost");
    fli_weak_outcome(fli_load_rlx(&t->slab.fresh) * 16 + (uint32_t)(fli_load_rlx(&t->slab.returned_bytes) / 64));
}

static void check_returned(void)
{
    must(t->slab.stored == 4 && fli_load_rlx(&t->slab.returned_bytes) == 4 * sizeof(claimable), "the page is returned");
    take_from_page();
}

static void check_slab(void)
{
    fli_weak_outcome(fli_load_rlx(&t->slab.fresh) * 16 + t->found);
}

static void check_trade(void)
{
    must(fli_slab_is_whole(&t->slab), "every handle is in the depot");
    fli_weak_outcome(fli_load_rlx(&t->slab.fresh));
}

/* ---- the global queue ---- */

static void put(uint32_t i)
{
    t->queue_items[i].value = 100 + i;
    fli_inject_put(&t->queue, &t->queue_items[i]);
}

static void put_two(void)
{
    put(0);
    put(1);
    fli_store_rel(&t->put_done, 1);
}

static void put_one(void)
{
    put(2);
}

static void take_some(void)
{
    void  *items[2];
    size_t n = fli_inject_take(&t->queue, items, 2);
    for (size_t i = 0; i < n; i++) {
        queue_item *it = items[i];
        must(it->value == 100 + (uint32_t)(it - t->queue_items), "a queued item holds the value that was put");
        t->taken[fli_weak_self]++;
        t->sum[fli_weak_self] += it->value;
        it->value = 0;
    }
}

/* `put_done` is set after two puts, and no thread takes an item. So a thread that sees `put_done` must see a count of
 * at least two. */
static void check_count(void)
{
    if (fli_load_acq(&t->put_done) == 1)
        must(fli_inject_count(&t->queue) >= 2, "a put that happened before is counted");
}

/* A thread that sees the count of a put must see what was written before the put. */
static void check_published(void)
{
    if (fli_inject_count(&t->queue) >= 1) t->sum[fli_weak_self] = fli_load_rlx(&t->handle);
    if (fli_inject_count(&t->queue) >= 1)
        must(fli_load_rlx(&t->handle) == 7, "a write before a put is seen with the count");
}

static void prepare_and_put(void)
{
    fli_store_rlx(&t->handle, 7);
    put(0);
}

static void check_queue(void)
{
    fli_weak_self = 0;
    take_some();
    take_some();
    uint32_t taken = 0, sum = 0;
    for (uint32_t i = 0; i <= FLI_WEAK_THREADS; i++) taken += t->taken[i], sum += t->sum[i];
    must(taken == 3 && sum == 303, "every item is taken once");
    fli_weak_outcome(t->taken[0]);
}

/* ---- registry ---- */

static filch_err handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag, (void)receiver;
    return FILCH_OK;
}

static void setup_registry(void)
{
    setup();
    (void)!fli_registry_create(&t->registry);
    must(filch_registry_add(t->registry, 5, handler, NULL) == FILCH_OK, "a handler is added");
    must(filch_registry_add(t->registry, 5000, handler, NULL) == FILCH_OK, "a handler is added");
    fli_registry_use(t->registry);
    fli_registry_use(t->registry);
}

static void hold(void)
{
    must(fli_registry_find(t->registry, 5) != NULL && fli_registry_find(t->registry, 5000) != NULL,
         "handlers are found");
    must(filch_registry_add(t->registry, 6, handler, NULL) == FILCH_EFROZEN, "a registry in use accepts no handler");
    filch_registry_destroy(t->registry);
}

/* One thread adds the last handler and freezes the registry. Another thread that sees the registry frozen must find
 * that handler. */
static void setup_freeze(void)
{
    setup();
    (void)!fli_registry_create(&t->registry);
    must(filch_registry_add(t->registry, 5, handler, NULL) == FILCH_OK, "a handler is added");
}

static void add_and_freeze(void)
{
    must(filch_registry_add(t->registry, 5000, handler, NULL) == FILCH_OK, "a handler is added");
    fli_registry_use(t->registry);
}

/* Tries to add a handler for an id that exists already. This changes nothing, and the error tells whether the registry
 * is frozen. */
static void find_if_frozen(void)
{
    if (filch_registry_add(t->registry, 5, handler, NULL) != FILCH_EFROZEN) return;
    must(fli_registry_find(t->registry, 5000) != NULL, "a frozen registry is complete");
    t->found++;
}

static void check_frozen(void)
{
    fli_weak_outcome(t->found);
}

const fli_weak_program parts_sync[] = {
    { .name = "slab_grow_1",
      .promise = "handles are looked up while the slab grows",
      .setup = setup,
      .threads = { grow, look_up },
      .check = check_slab },
    { .name = "slab_grow_2",
      .promise = "two threads grow the slab, one looks up",
      .setup = setup,
      .threads = { take_four, take_four, look_up_one },
      .check = check_slab },
    { .name = "slab_reach",
      .promise = "a handle is looked up on the fast path while objects are made",
      .setup = setup_first,
      .threads = { take_four, reach_one } },
    { .name = "slab_pass",
      .promise = "a handle is passed to another thread",
      .setup = setup,
      .threads = { pass_on, use_passed, look_up_one },
      .check = check_slab },
    { .name = "slab_map",
      .promise = "an old handle is looked up while the map grows",
      .setup = setup_map,
      .threads = { take_one, use_known, use_known },
      .check = check_slab },
    { .name = "slab_trade",
      .promise = "three magazines trade with the depot",
      .setup = setup,
      .threads = { trade, trade, trade },
      .check = check_trade },
    { .name = "slab_return_1",
      .promise = "memory is returned while stale handles are used",
      .setup = setup_return,
      .threads = { return_memory, claim_stale, take_from_page },
      .check = check_return },
    { .name = "slab_return_2",
      .promise = "two threads return memory, one uses a stale handle",
      .setup = setup_return,
      .threads = { return_memory, return_memory, claim_stale },
      .check = check_returned },
    { .name = "inject_take",
      .promise = "two threads put, one takes",
      .setup = setup,
      .threads = { put_two, put_one, take_some },
      .check = check_queue },
    { .name = "inject_count",
      .promise = "a put that happened before is counted",
      .setup = setup,
      .threads = { put_two, check_count, put_one } },
    { .name = "inject_publish",
      .promise = "a write before a put is seen with the count",
      .setup = setup,
      .threads = { prepare_and_put, check_published } },
    { .name = "registry_freeze",
      .promise = "a frozen registry is complete",
      .setup = setup_freeze,
      .threads = { add_and_freeze, find_if_frozen },
      .check = check_frozen },
    { .name = "registry_holders",
      .promise = "the last of three holders frees the registry",
      .setup = setup_registry,
      .threads = { hold, hold, hold } },
    { 0 },
};
