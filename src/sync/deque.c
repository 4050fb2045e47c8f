/* deque.c - a worker's local deque: the "tagged top" deque. One owner pushes and pops at the bottom, any number of
 * thieves take from the top, up to half of the items in one CAS. The ring grows when it is full.
 *
 *     word = tag:32 | top:32      bottom:32      items have the indices top, top+1, ... bottom-1
 *
 *     push   slot[bottom] = item;  bottom = bottom+1 (release)
 *     pop    bottom = bottom-1 (release);  word.tag += 1 (acq_rel);  taken if the top found is not above bottom,
 *            otherwise bottom is restored to its old value (release)
 *     under  bottom = mark (release);  word.tag += 1 (acq_rel);  slots from there, or from the top found if that is
 *            above it, move up by one;  bottom = old bottom+1 (release): a pop of many, and a push of them and one more
 *     steal  load word (acquire), bottom (acquire), ring (acquire);  copy n slots;  CAS word: top -> top+n (acq_rel)
 *
 * INVARIANT  an item is in at most one slot with an index in [top, bottom), and leaves that slot by one pop or one
 *            claim.
 * INVARIANT  top <= bottom, except inside a pop that has lost its item to a thief: there top == bottom+1; and inside
 *            push_under, which may have lost several items.
 * INVARIANT  bottom - top never exceeds the slots of the current ring.
 * INVARIANT  top and tag never go back; every store to bottom is release.
 * Indices are 32 bits and wrap; "above" and "below" mean the sign of a difference, which is sound because there are
 * never more than FLI_DEQUE_SLOTS_MAX items.
 *
 * Why no item is lost or doubled.
 * 1. Pops (add) and claims (CAS) are read-modify-writes of one word: they stand in one order, and each sees exactly
 *    what the one before it left.
 * 2. A claim succeeds only if no pop and no other claim came between the thief's load of the word and its CAS. The pops
 *    before that load: the load acquires from the word, and read-modify-writes do not break a release sequence, so the
 *    thief's later load of bottom sees the bottom of the last of those pops, or a newer one. So the range it claims
 *    holds no index that a pop has removed. A deque that does not change the word in a pop gets this wrong: there
 *    the owner can pop items of the range, and the CAS still succeeds.
 * 3. One pop may have lowered bottom without having added its tag yet. If the thief still saw the old bottom and its
 *    claim comes first, the pop finds the new top in the word it adds to. The index is either below that top, then the
 *    thief has it and the pop puts bottom back; or not, then the claim did not reach it. There is one owner, so there
 *    is at most one such pop, and top is at most one above bottom.
 * 4. Contents. A thief reads slots below a bottom that it acquired. Every store to bottom is release, the lowering
 *    ones too, so whichever it read, all earlier pushes are visible: slot, ring, and what the item points to. A slot is
 *    reused only after the owner has acquired a top above its index. A thief that saw the older word then fails its
 *    CAS and discards what it read; a thief with a successful CAS did its reads before that acquire. Slots are
 *    relaxed atomics only so that the discarded reads are legal.
 * 5. Growth. The new ring holds all of [top, bottom) before it is published with release; the old one is not written
 *    again and lives until fini. A thief with the old ring read a bottom from before the growth (the ring is loaded
 *    after bottom, PAIR deque.bottom orders them), so all it can claim is in the old ring too.
 * 6. Nothing needs a store to be ordered before a later load of another word; so there is no fence and no seq_cst.
 *
 * Wrapping of the tag. A wrong claim needs a thief stopped between its load and its CAS while the word returns to
 * the same value: the pops in between are a multiple of 2^32, and so are the items claimed, and one of the two is
 * not zero. With 2.3 ns for a push and a pop (a fast machine, and an owner that does nothing else) that is 10 s at
 * least, and then the thief must go on while the word has just that one of its 2^32 values: a pop earlier or later the
 * CAS fails as it should. A thief can be stopped for that long (a debugger, a suspended guest); that it also hits the
 * one pop is a chance of one in 2^32 for each such stop. This is accepted. The remedy would be a word of
 * 128 bits, which not every machine can add to in one piece.
 *
 * Memory. Outgrown rings are kept because a thief may read one for an unbounded time. Their memory is bounded: each is
 * half the size of the next, so all of them together are smaller than the current one, and that has fewer than twice
 * the slots of the most items it was ever asked to hold at once. The ring does not shrink.
 *
 * Not done here: unparking workers, choosing a victim, fairness between old and new items (the owner has take_oldest).
 * Rejected: a pop without a read-modify-write and "steal half" by one CAS (unsound, point 2); the same with one CAS per
 * stolen item and a fence in pop (sound; pop and steal both measured slower); top and bottom in one word (push pays a
 * read-modify-write too); a fixed ring that spills into the global queue (a lock on the path of a spawn storm).
 * Design: docs/design/run-queues.md.
 */
#include "sync/deque.h"

/* Returns the size of a ring, rounded up to whole cache lines so that no data of another worker shares a line with
 * the slots. */
static size_t ring_size(uint32_t slots)
{
    size_t size = offsetof(fli_ring, slots) + (size_t)slots * sizeof(((fli_ring *)NULL)->slots[0]);
    return (size + FLI_LINE - 1) & ~(size_t)(FLI_LINE - 1);
}

/* Allocates a ring. Its slots are zeroed, because a late thief may read any slot before its CAS fails. */
static fli_ring *ring_create(const fli_mem *mem, uint32_t slots, fli_ring *older)
{
    fli_ring *ring = fli_zalloc_aligned(mem, ring_size(slots), FLI_LINE);
    if (ring == NULL) return NULL;
    ring->mask = slots - 1;
    ring->older = older;
    return ring;
}

filch_err fli_deque_init(fli_deque *deque, const fli_mem *mem)
{
    fli_ring *ring = ring_create(mem, FLI_DEQUE_SLOTS, NULL);
    if (ring == NULL) return FILCH_ENOMEM;
    deque->mem = *mem;
    fli_atomic_init(&deque->word, 0);
    fli_atomic_init(&deque->bottom, 0);
    fli_atomic_init(&deque->ring, ring);
    return FILCH_OK;
}

void fli_deque_fini(fli_deque *deque)
{
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: no other thread uses the deque any more */
    while (ring != NULL) {
        fli_ring *older = ring->older;
        fli_free_aligned(&deque->mem, ring, ring_size(ring->mask + 1), FLI_LINE);
        ring = older;
    }
}

fli_ring *fli_deque_grow(fli_deque *deque)
{
    fli_ring *old = fli_load_rlx(&deque->ring);      /* relaxed: only this thread writes `ring` */
    uint32_t  bottom = fli_load_rlx(&deque->bottom); /* relaxed: only this thread writes `bottom` */
    uint32_t  slots = old->mask + 1;
    if (slots >= FLI_DEQUE_SLOTS_MAX) return NULL;
    fli_ring *ring = ring_create(&deque->mem, slots * 2, old);
    if (ring == NULL) return NULL;
    /* Relaxed: top may be stale, or advance during the copy; then a few items that thieves have taken are copied
     * too, which is harmless. */
    uint32_t top = fli_deque_top(fli_load_rlx(&deque->word));
    FLI_ASSERT(bottom - top <= slots);
    for (uint32_t i = top; i != bottom; i++) {
        fli_store_rlx(&ring->slots[i & ring->mask], fli_load_rlx(&old->slots[i & old->mask]));
    }
    /* PAIR deque.ring, release half: a thief that loads this ring also sees its mask and its items. */
    fli_store_rel(&deque->ring, ring);
    return ring;
}

/* The values that a thief has read from a deque. The thief claims items by a CAS that expects the same `word`. */
typedef struct deque_view {
    uint64_t  word;
    fli_ring *ring;
    uint32_t  count;
} deque_view;

/* Does the three loads of a steal in this order: word, bottom, ring. Points 2 and 5 of the file comment need this
 * order. Returns FLI_STEAL_GOT if there is an item to claim. */
static fli_steal look(fli_deque *from, deque_view *seen)
{
    seen->word = fli_load_acq(&from->word);        /* PAIR deque.word, acquire half */
    uint32_t bottom = fli_load_acq(&from->bottom); /* PAIR deque.bottom, acquire half */
    seen->ring = fli_load_acq(&from->ring);        /* PAIR deque.ring, acquire half */
    seen->count = bottom - fli_deque_top(seen->word);
    /* UINT32_MAX is -1: the owner's pop has lost its item to a thief and has not restored bottom yet, so the deque is
     * empty. A push_under in progress can make the count less than -1; for such a count the next check returns
     * RETRY. */
    if (seen->count == 0 || seen->count == UINT32_MAX) return FLI_STEAL_EMPTY;
    /* The count exceeds the ring if this thread was stopped between its loads, so that the word is stale, or if a
     * push_under is in progress: the caller must retry. */
    if (seen->count > seen->ring->mask + 1) return FLI_STEAL_RETRY;
    return FLI_STEAL_GOT;
}

/* Reads the item with index `nth`, counted from the oldest. The result may be used only after a successful claim(): the
 * slot may have been reused. */
static void *peek(const deque_view *seen, uint32_t nth)
{
    return fli_load_rlx(&seen->ring->slots[(fli_deque_top(seen->word) + nth) & seen->ring->mask]);
}

/* Takes the `count` oldest items. Returns false if another thread has claimed, or the owner has popped, since
 * look(). */
static bool claim(fli_deque *from, deque_view *seen, uint32_t count)
{
    uint64_t tag = seen->word & ~(uint64_t)UINT32_MAX;
    uint64_t wanted = tag | (uint32_t)(fli_deque_top(seen->word) + count);
    /* PAIR deque.word, both halves: this thief's reads of the slots come before the owner's reuse of these slots. A
     * thread that sees the new top also sees the bottom that this thief saw (fli_deque_count needs that). If the CAS
     * fails, the caller discards the items that it has read. */
    return fli_cas_acqrel(&from->word, &seen->word, wanted);
}

/* Grows the ring of `deque`, as far as memory allows, to hold `wanted` more items. Returns how many of them, at most
 * `wanted`, can then be pushed without failing. */
static uint32_t make_room(fli_deque *deque, uint32_t wanted)
{
    for (;;) {
        uint32_t bottom = fli_load_rlx(&deque->bottom); /* relaxed: only this thread writes `bottom` */
        /* PAIR deque.word, acquire half: as in fli_deque_try_push(). */
        uint32_t used = bottom - fli_deque_top(fli_load_acq(&deque->word));
        uint32_t room = fli_load_rlx(&deque->ring)->mask + 1 - used;
        if (room >= wanted) return wanted;
        if (fli_deque_grow(deque) == NULL) return room;
    }
}

fli_steal fli_deque_steal_half_into(fli_deque *from, fli_deque *into, void **first, uint32_t *count)
{
    FLI_ASSERT(from != into);
    deque_view seen;
    fli_steal  found = look(from, &seen);
    if (found != FLI_STEAL_GOT) return found;
    uint32_t n = seen.count - seen.count / 2;
    if (n > FLI_DEQUE_STEAL_MAX) n = FLI_DEQUE_STEAL_MAX;
    /* Grows `into` before the claim, because every claimed item except the first must have a slot in `into`. */
    uint32_t rest = make_room(into, n - 1);

    void     *oldest = peek(&seen, 0);
    uint32_t  bottom = fli_load_rlx(&into->bottom); /* relaxed: only this thread writes `bottom` and `ring` */
    fli_ring *ring = fli_load_rlx(&into->ring);
    /* Copies the items after the oldest directly into free slots of `into`, in reverse order, so that the owner of
     * `into` pops the oldest of them first. These slots are above bottom, so no thief reads them; if the claim fails,
     * the copies are never read. */
    for (uint32_t i = 0; i < rest; i++) {
        fli_store_rlx(&ring->slots[(bottom + i) & ring->mask], peek(&seen, rest - i));
    }
    if (!claim(from, &seen, rest + 1)) return FLI_STEAL_RETRY;
    /* PAIR deque.bottom, release half: publishes all moved items at once, as fli_deque_try_push() publishes one. */
    if (rest > 0) fli_store_rel(&into->bottom, bottom + rest);
    *first = oldest;
    *count = rest + 1;
    return FLI_STEAL_GOT;
}

fli_steal fli_deque_steal_one(fli_deque *from, void **item)
{
    deque_view seen;
    fli_steal  found = look(from, &seen);
    if (found != FLI_STEAL_GOT) return found;
    void *oldest = peek(&seen, 0);
    if (!claim(from, &seen, 1)) return FLI_STEAL_RETRY;
    *item = oldest;
    return FLI_STEAL_GOT;
}

/* The owner's view of bottom and ring is exact, so a claim fails only if a thief has taken an item: the loop ends
 * after at most as many iterations as there are items. */
void *fli_deque_take_oldest(fli_deque *deque)
{
    void     *item = NULL;
    fli_steal found;
    do {
        found = fli_deque_steal_one(deque, &item);
    } while (found == FLI_STEAL_RETRY);
    return item;
}

/* Takes all items above the mark by lowering bottom once, as fli_deque_pop() takes one item. Then moves them up by one
 * slot, puts `item` below them, and publishes all of them again. */
bool fli_deque_push_under(fli_deque *deque, void *item, uint32_t mark)
{
    FLI_ASSERT(item != NULL);
    uint32_t bottom = fli_load_rlx(&deque->bottom); /* relaxed: only this thread writes `bottom` */
    if (bottom == mark) return fli_deque_push(deque, item);
    if (make_room(deque, 1) == 0) return false;
    fli_store_rel(&deque->bottom, mark); /* PAIR deque.bottom, release half: as in fli_deque_pop() */
    /* PAIR deque.word, both halves: as in fli_deque_pop(). */
    uint32_t top = fli_deque_top(fli_add_acqrel(&deque->word, FLI_DEQUE_TAG_ONE));
    /* Skips items that thieves have taken: the remaining items begin at top. */
    uint32_t  from = (int32_t)(top - mark) > 0 ? top : mark;
    fli_ring *ring = fli_load_rlx(&deque->ring); /* relaxed: only this thread writes the ring and its slots */
    for (uint32_t i = bottom; i != from; i--) {
        fli_store_rlx(&ring->slots[i & ring->mask], fli_load_rlx(&ring->slots[(i - 1) & ring->mask]));
    }
    fli_store_rlx(&ring->slots[from & ring->mask], item);
    fli_store_rel(&deque->bottom, bottom + 1); /* PAIR deque.bottom, release half: as in fli_deque_try_push() */
    return true;
}

uint32_t fli_deque_count(fli_deque *deque)
{
    /* PAIR deque.word, acquire half: the word is loaded before bottom, so that bottom is at least as new as top and an
     * item that no thread has taken is always counted. Bottom is loaded relaxed, because the caller gets a number: it
     * reads no item before it has stolen or popped it. */
    uint32_t top = fli_deque_top(fli_load_acq(&deque->word));
    int32_t  count = (int32_t)(fli_load_rlx(&deque->bottom) - top);
    return count > 0 ? (uint32_t)count : 0;
}
