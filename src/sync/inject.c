/* inject.c - the global queue: two chains through the items, and a lock for each end.
 *
 * INVARIANT  the items from `next` along their links, and then those from `oldest` on, are the queue, in the order they
 *            were put; `newest` is the last.
 * INVARIANT  while nobody is inside, `count` is the length of both chains.
 *
 * It is off the hot path (a worker comes here when its own deque is empty, or by turns for fairness) and moves items in
 * batches, so locks are good enough. Who takes walks along the items, which are cold when another thread has put them: that
 * must not keep those waiting who put. So he takes the whole chain of what was put, which is one step, and hands it out
 * under a lock of his own. What must not cost anything is finding it empty; that is the count, which is read without a
 * lock.
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
    err = fli_mutex_init(&queue->exit);
    if (err != FILCH_OK) {
        fli_mutex_fini(&queue->lock);
        return err;
    }
    queue->oldest = queue->newest = queue->next = NULL;
    queue->link = link;
    fli_atomic_init(&queue->count, 0);
    return FILCH_OK;
}

void fli_inject_fini(fli_inject *queue)
{
    fli_mutex_fini(&queue->exit);
    fli_mutex_fini(&queue->lock);
}

static void **next_of(const fli_inject *queue, void *item)
{
    return (void **)(void *)((char *)item + queue->link);
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
    /* PAIR inject.count, release half: with the count, what happened before the put. The items themselves travel by
     * the lock. Inside it: nobody can take the item before it is counted. */
    (void)fli_add_rel(&queue->count, 1);
    fli_mutex_unlock(&queue->lock);
}

/* Takes over what was put, if everything before has been handed out. */
static void refill_locked(fli_inject *queue)
{
    if (queue->next != NULL) return;
    fli_mutex_lock(&queue->lock);
    queue->next = queue->oldest;
    queue->oldest = NULL;
    fli_mutex_unlock(&queue->lock);
}

size_t fli_inject_take(fli_inject *queue, void **items, size_t max)
{
    if (max == 0 || fli_inject_count(queue) == 0) return 0;
    size_t taken = 0;
    fli_mutex_lock(&queue->exit);
    refill_locked(queue);
    while (taken < max && queue->next != NULL) {
        void *item = queue->next;
        queue->next = *next_of(queue, item);
        items[taken++] = item;
    }
    /* Relaxed would do for the count; release, so that whoever acquires it still finds what came with the puts. */
    if (taken > 0) (void)fli_add_rel(&queue->count, (size_t)0 - taken);
    fli_mutex_unlock(&queue->exit);
    return taken;
}

size_t fli_inject_count(fli_inject *queue)
{
    return fli_load_acq(&queue->count); /* PAIR inject.count, acquire half */
}
