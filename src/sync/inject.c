/* inject.c - the global queue: a lock, a ring of pointers, and a chain through the items for want of a larger ring.
 *
 * INVARIANT  the items in the ring, and then those from `oldest` along their links, are the queue, in the order they were
 *            put; `newest` is the last of the chain.
 * INVARIANT  outside the lock, `count` is the length of both.
 *
 * It is off the hot path (a worker comes here when its own deque is empty, or by turns for fairness) and moves items in
 * batches, so a lock is good enough: an uncontended one costs two read-modify-writes for up to a whole batch. What must
 * not cost anything is finding it empty; that is the count, which is read without the lock.
 *
 * Why a ring. An item that another thread has put is cold. Who walks along a chain of them waits for each, and holds the
 * lock all the while: of 100,000 processes begun from outside, 1,600 found it held, and slept. Pointers that lie side by
 * side are taken without a look at what they point to. A queue that needs a larger ring than there may be, or than there
 * is memory for, goes on as a chain; whoever is put while there is a chain joins its end. See docs/design/timers.md.
 *
 * Why the count may be trusted by a worker about to sleep: it asks after it has declared itself asleep, and a putter
 * looks for sleepers after its put. If the putter missed the sleeper, its put happened before the question, and
 * then the question sees that count or a newer one. A lock in `take` would not promise more.
 *
 * Not done here: waking anybody; limits (putting cannot fail).
 * Rejected: a lock-free list (items are reused at once, so it would need tags or epochs, for a path that is not hot); a
 * second lock for those who take (four more read-modify-writes for a message from outside).
 */
#include "sync/inject.h"

#include "base/assert.h"

#ifdef FLI_SMALL
#define RING_FIRST 2
#define RING_KEPT 4
#define RING_MOST 8
#else
#define RING_FIRST 64
#define RING_KEPT 1024  /* a larger one is given back when the queue is empty */
#define RING_MOST 65536 /* half a megabyte: moving half of it to a larger one takes some 20 us, under the lock */
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

/* The i-th place of the ring. */
static void **place(const fli_inject *queue, size_t i)
{
    return &queue->ring[(queue->first + i) & (queue->room - 1)];
}

/* Room for one more in the ring? Makes some, if it may and can. */
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

/* Relaxed load: count is written under the lock, which we hold. */
static void set_count_locked(fli_inject *queue, size_t added, size_t taken)
{
    size_t count = fli_load_rlx(&queue->count) + added - taken;
    FLI_ASSERT((count == 0) == (queue->length == 0 && queue->oldest == NULL));
    /* PAIR inject.count, release half: with the count, what happened before the put. The items themselves travel by
     * the lock. */
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

/* To the beginning of the chain. */
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
        /* The newest of the ring makes room: it is older than the chain. */
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

/* Takes the ring away, if it is empty and large: nobody needs it for a while. */
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
