/* inject.c - the global queue: a lock, a ring of pointers, and a chain through the items that is used when the ring
 * cannot grow.
 *
 * INVARIANT  the items in the ring, followed by those from `oldest` along their links, are the queue, in the order they
 *            were put; `newest` is the last of the chain.
 * INVARIANT  outside the lock, `count` is the number of items in the ring and in the chain together.
 *
 * The global queue is off the hot path (a worker uses it when its local deque is empty, and at every fairness pick)
 * and moves items in batches, so a lock is good enough: without contention it costs two read-modify-writes for up to
 * a whole batch. A check of an empty queue must be cheap; for this purpose `count` is read without the lock.
 *
 * Why a ring. An item that another thread has put is not in the cache. Walking a chain of such items means one cache
 * miss for each, under the lock: of 100,000 processes spawned by a foreign thread, 1,600 pushes found the lock held and
 * slept. Pointers that are side by side are taken without touching the items. If the queue needs a larger ring than
 * RING_MOST, or than there is memory for, it continues as a chain; items that are put while there is a chain go to its
 * end. See docs/design/run-queues.md.
 *
 * Why a worker that is about to park may trust the count: it reads the count after it has declared itself parked,
 * and a put is followed by a check for parked workers. If the putting thread missed the worker, its put happened
 * before the worker's read, and the read sees that count or a newer one. A lock in `take` would not promise more.
 *
 * Not done here: unparking workers; limits (putting cannot fail). Rejected: a lock-free list (items are reused at once,
 * so it would need tags or epochs, for a path that is not hot); a second lock for taking (four more read-modify-writes
 * for a message of a foreign thread).
 */
#include "sync/inject.h"

#include "base/assert.h"

#ifdef FLI_SMALL
#define RING_FIRST 2
#define RING_KEPT 4
#define RING_MOST 8
#else
#define RING_FIRST 64
/* places of the largest ring that an empty queue keeps; a larger ring is freed when the queue becomes empty */
#define RING_KEPT 1024
/* maximum number of places of a ring (512 KiB). Growing a ring to this size copies 256 KiB, which takes about 20 us
 * under the lock */
#define RING_MOST 65536
#endif

filch_err fli_inject_init(fli_inject *queue, const fli_mem *mem, size_t link)
{
    filch_err err = fli_mutex_init(&queue->lock);
    if (err != FILCH_OK) return err;
    queue->ring = NULL;
    queue->room = queue->first = queue->length = 0;
    queue->oldest = queue->newest = NULL;
    queue->link = link;
    queue->mem = *mem;
    fli_atomic_init(&queue->count, 0);
    return FILCH_OK;
}

void fli_inject_fini(fli_inject *queue)
{
    fli_free(&queue->mem, queue->ring, queue->room * sizeof *queue->ring);
    fli_mutex_fini(&queue->lock);
}

static void **next_of(const fli_inject *queue, void *item)
{
    return (void **)(void *)((char *)item + queue->link);
}

/* Returns the address of the i-th place of the ring, counted from the oldest item. */
static void **place(const fli_inject *queue, size_t i)
{
    return &queue->ring[(queue->first + i) & (queue->room - 1)];
}

/* Returns true if the ring has a free place. If the ring is full, first tries to grow it, up to RING_MOST places. */
static bool has_room_locked(fli_inject *queue)
{
    if (FLI_LIKELY(queue->length < queue->room)) return true;
    if (queue->room == RING_MOST) return false;
    size_t room = queue->room == 0 ? RING_FIRST : 2 * queue->room;
    void **ring = fli_alloc(&queue->mem, room * sizeof *ring);
    if (ring == NULL) return false;
    for (size_t i = 0; i < queue->length; i++) ring[i] = *place(queue, i);
    fli_free(&queue->mem, queue->ring, queue->room * sizeof *ring);
    queue->ring = ring;
    queue->room = room;
    queue->first = 0;
    return true;
}

/* Adds `added` to the count and subtracts `taken`. The load is relaxed, because the count is written under the lock,
 * which the caller holds. */
static void set_count_locked(fli_inject *queue, size_t added, size_t taken)
{
    size_t count = fli_load_rlx(&queue->count) + added - taken;
    FLI_ASSERT((count == 0) == (queue->length == 0 && queue->oldest == NULL));
    /* PAIR inject.count, release half: a thread that reads this count sees what the putting thread did before the put.
     * The items themselves are published by the lock. */
    fli_store_rel(&queue->count, count);
}

static void append_locked(fli_inject *queue, void *item)
{
    *next_of(queue, item) = NULL;
    if (queue->oldest == NULL) {
        queue->oldest = item;
    } else {
        *next_of(queue, queue->newest) = item;
    }
    queue->newest = item;
}

/* Puts `item` at the front of the chain. */
static void prepend_locked(fli_inject *queue, void *item)
{
    *next_of(queue, item) = queue->oldest;
    if (queue->oldest == NULL) queue->newest = item;
    queue->oldest = item;
}

void fli_inject_put(fli_inject *queue, void *item)
{
    FLI_ASSERT(item != NULL);
    fli_mutex_lock(&queue->lock);
    if (FLI_LIKELY(queue->oldest == NULL && has_room_locked(queue))) *place(queue, queue->length++) = item;
    else append_locked(queue, item);
    set_count_locked(queue, 1, 0);
    fli_mutex_unlock(&queue->lock);
}

void fli_inject_put_first(fli_inject *queue, void *item)
{
    FLI_ASSERT(item != NULL);
    fli_mutex_lock(&queue->lock);
    bool ring = has_room_locked(queue);
    if (!ring && queue->room > 0) {
        /* Moves the newest item of the ring to the front of the chain, to free a place in the ring. The order is kept,
         * because that item is older than all items of the chain. */
        prepend_locked(queue, *place(queue, --queue->length));
        ring = true;
    }
    if (ring) {
        queue->length++;
        queue->first--;
        *place(queue, 0) = item;
    } else {
        prepend_locked(queue, item);
    }
    set_count_locked(queue, 1, 0);
    fli_mutex_unlock(&queue->lock);
}

/* If the ring is empty and larger than RING_KEPT, takes it from the queue and returns it, so that the caller frees it
 * outside the lock. Otherwise returns NULL. */
static void **retire_locked(fli_inject *queue, size_t *room)
{
    if (FLI_LIKELY(queue->length > 0 || queue->room <= RING_KEPT)) return NULL;
    void **ring = queue->ring;
    *room = queue->room;
    queue->ring = NULL;
    queue->room = queue->first = 0;
    return ring;
}

size_t fli_inject_take(fli_inject *queue, void **items, size_t max)
{
    if (max == 0 || fli_inject_count(queue) == 0) return 0;
    size_t taken = 0, room = 0;
    fli_mutex_lock(&queue->lock);
    for (; taken < max && taken < queue->length; taken++) items[taken] = *place(queue, taken);
    queue->first += taken;
    queue->length -= taken;
    while (taken < max && queue->oldest != NULL) {
        void *item = queue->oldest;
        queue->oldest = *next_of(queue, item);
        items[taken++] = item;
    }
    set_count_locked(queue, 0, taken);
    void **ring = retire_locked(queue, &room);
    fli_mutex_unlock(&queue->lock);
    fli_free(&queue->mem, ring, room * sizeof *ring);
    return taken;
}

size_t fli_inject_count(fli_inject *queue)
{
    return fli_load_acq(&queue->count); /* PAIR inject.count, acquire half */
}
