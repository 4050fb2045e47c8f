/* index.h - a hash index of items that the caller owns. An item is a field of the caller's struct; the index allocates
 * only buckets.
 *
 * The index grows and shrinks by single buckets (linear hashing), so no operation moves more than a few short chains:
 * adding the millionth item costs what adding the tenth costs. If there is no memory for more buckets, the chains
 * become longer; adding and removing never fail. The caller does the locking.
 *
 * The order in which chains are walked depends on hashes only if hashes do not depend on addresses. Never let this
 * order be observed otherwise.
 */
#ifndef FLI_BASE_INDEX_H
#define FLI_BASE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

#define FLI_INDEX_FIRST 4 /* buckets inside the index; a power of two. Most indexes hold a few items. */

typedef struct fli_index_item {
    struct fli_index_item *next; /* the next item of the same bucket */
} fli_index_item;

typedef struct fli_index {
    uint64_t (*hash)(const fli_index_item *item); /* returns the same hash as long as the item is in the index */
    uint32_t        count;                        /* items */
    uint32_t        bucket_count;
    fli_index_item *first[FLI_INDEX_FIRST]; /* the first buckets */
    /* The pointers to the arrays of further buckets; more[i] has as many buckets as `first` and more[0] to more[i - 1]
     * together, and is NULL if its array is not allocated. `more` itself is NULL until the first array is needed. */
    fli_index_item ***more;
} fli_index;

void fli_index_init(fli_index *index, uint64_t (*hash)(const fli_index_item *item));
/* Frees the buckets. Items that are still in the index stay with the caller. */
void fli_index_fini(const fli_mem *mem, fli_index *index);

/* Returns the first item of the bucket for `hash`, or NULL. The caller follows `next` and compares keys. */
fli_index_item *fli_index_bucket(const fli_index *index, uint64_t hash);
void            fli_index_add(const fli_mem *mem, fli_index *index, fli_index_item *item);
/* Removes an item. Returns false if it is not in the index. */
bool fli_index_remove(const fli_mem *mem, fli_index *index, fli_index_item *item);
/* Puts `item` into the place of `old`, which has the same hash. */
void fli_index_replace(fli_index *index, fli_index_item *old, fli_index_item *item);
/* Returns any item, or NULL if the index is empty. *cursor is the bucket where the search begins: 0 at the first call,
 * then set by this function. If the caller removes each item that it gets, a call takes constant time on average. */
fli_index_item *fli_index_any(const fli_index *index, uint32_t *cursor);

#endif
