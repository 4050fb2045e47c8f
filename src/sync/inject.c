/* inject.c - the global queue: a lock and a chain through the items.
 *
 * INVARIANT  the items from `oldest` along their links are the queue, in the order they were put; `newest` is the last.
 * INVARIANT  outside the lock, `count` is the length of the chain.
 *
 * It is off the hot path (a worker comes here when its own deque is empty, or by turns for fairness) and moves items in
 * batches, so a lock is good enough: an uncontended one costs two read-modify-writes for up to a whole batch. What must
 * not cost anything is finding it empty; that is the count, which is read without the lock.
 *
 * Why the count may be trusted by a worker about to sleep: it asks after it has declared itself asleep, and a putter
 * looks for sleepers after its put. If the putter missed the sleeper, its put happened before the question, and
 * then the question sees that count or a newer one. A lock in `take` would not promise more.
 *
 * Not done here: waking anybody; limits (putting cannot fail).
 * Rejected: a lock-free list (items are reused at once, so it would need tags or epochs, for a path that is not hot).
 */
#include "sync/inject.h"

#include "base/assert.h"

filch_err fli_inject_init(fli_inject *queue, size_t link)
{
    filch_err err = fli_mutex_init(&queue->lock);
    if (err != FILCH_OK) return err;
    queue->oldest = queue->newest = NULL;
    queue->link = link;
    fli_atomic_init(&queue->count, 0);
    return FILCH_OK;
}

void fli_inject_fini(fli_inject *queue)
{
    fli_mutex_fini(&queue->lock);
}

static void **next_of(const fli_inject *queue, void *item)
{
    return (void **)(void *)((char *)item + queue->link);
}

/* Relaxed load: count is written under the lock, which we hold. */
static void set_count_locked(fli_inject *queue, size_t added, size_t taken)
{
    size_t count = fli_load_rlx(&queue->count) + added - taken;
    FLI_ASSERT((count == 0) == (queue->oldest == NULL));
    /* PAIR inject.count, release half: with the count, what happened before the put. The items themselves travel by
     * the lock. */
    fli_store_rel(&queue->count, count);
}

void fli_inject_put(fli_inject *queue, void *item)
{
    FLI_ASSERT(item != NULL);
    *next_of(queue, item) = NULL; /* before the lock: the item is still ours alone */
    fli_mutex_lock(&queue->lock);
    if (queue->oldest == NULL) {
        queue->oldest = item;
    } else {
        *next_of(queue, queue->newest) = item;
    }
    queue->newest = item;
    set_count_locked(queue, 1, 0);
    fli_mutex_unlock(&queue->lock);
}

void fli_inject_put_first(fli_inject *queue, void *item)
{
    FLI_ASSERT(item != NULL);
    fli_mutex_lock(&queue->lock);
    *next_of(queue, item) = queue->oldest;
    if (queue->oldest == NULL) queue->newest = item;
    queue->oldest = item;
    set_count_locked(queue, 1, 0);
    fli_mutex_unlock(&queue->lock);
}

size_t fli_inject_take(fli_inject *queue, void **items, size_t max)
{
    if (max == 0 || fli_inject_count(queue) == 0) return 0;
    size_t taken = 0;
    fli_mutex_lock(&queue->lock);
    while (taken < max && queue->oldest != NULL) {
        void *item = queue->oldest;
        queue->oldest = *next_of(queue, item);
        items[taken++] = item;
    }
    set_count_locked(queue, 0, taken);
    fli_mutex_unlock(&queue->lock);
    return taken;
}

size_t fli_inject_count(fli_inject *queue)
{
    return fli_load_acq(&queue->count); /* PAIR inject.count, acquire half */
}
