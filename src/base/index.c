/* index.c - linear hashing. See index.h.
 *
 * Bucket b holds the items whose hash ends in the bits of b: in as many bits as bucket_count needs, or in one bit less
 * if the number formed by these bits is not below bucket_count. Growing adds bucket bucket_count and moves to it a part
 * of one older bucket, its *parent*, which has the same number without the highest bit. Shrinking is the reverse.
 *
 * INVARIANT  bucket_count <= max(count, FLI_INDEX_FIRST) after an add, unless items were removed before.
 * INVARIANT  bucket_count / 4 <= max(count, FLI_INDEX_FIRST) after a remove.
 *
 * Rejected: a table that doubles. The add that doubles it moves every item while the caller holds its lock. Also
 * rejected: open addressing. Removing leaves marks that searches must step over.
 */
#include "base/index.h"

#include <stdbool.h>
#include <string.h>

/* Number of arrays of buckets in `more`, behind the FLI_INDEX_FIRST buckets inside the index. Array i holds
 * FLI_INDEX_FIRST << i buckets; all 28 arrays together make 2^30 buckets. */
#define ARRAYS 28
#define BUCKETS_MAX (UINT32_C(1) << 30)
/* Maximum number of buckets that the removal of one item merges. Shrinking begins when there are four buckets per item,
 * so four merged buckets per removed item keep the number of buckets in step with the number of items. */
#define SHRINK_MAX 4

void fli_index_init(fli_index *index, uint64_t (*hash)(const fli_index_item *item))
{
    memset(index, 0, sizeof *index);
    index->hash = hash;
    index->bucket_count = FLI_INDEX_FIRST;
}

static unsigned highest_bit(uint32_t number)
{
    return 31u - (unsigned)__builtin_clz(number);
}

/* Returns the index in `more` of the array that holds bucket `b`. Requires b >= FLI_INDEX_FIRST. */
static unsigned array_of(uint32_t b)
{
    return highest_bit(b / FLI_INDEX_FIRST);
}

static size_t array_bytes(unsigned array)
{
    return ((size_t)FLI_INDEX_FIRST << array) * sizeof(fli_index_item *);
}

static fli_index_item **bucket_at(const fli_index *index, uint32_t b)
{
    if (b < FLI_INDEX_FIRST) return (fli_index_item **)(uintptr_t)&index->first[b];
    return &index->more[array_of(b)][b - ((uint32_t)FLI_INDEX_FIRST << array_of(b))];
}

static uint32_t parent_of(uint32_t b)
{
    return b & ~(UINT32_C(1) << highest_bit(b));
}

static fli_index_item **bucket_of(const fli_index *index, uint64_t hash)
{
    uint32_t mask = (UINT32_C(2) << highest_bit(index->bucket_count - 1)) - 1, b = (uint32_t)hash & mask;
    return bucket_at(index, b < index->bucket_count ? b : b & (mask >> 1));
}

/* Allocates the array that begins with bucket `b`, if one begins there. Returns false if out of memory. */
static bool array_make(const fli_mem *mem, fli_index *index, uint32_t b)
{
    if ((b & (b - 1)) != 0) return true;
    if (index->more == NULL) index->more = fli_zalloc(mem, ARRAYS * sizeof *index->more);
    if (index->more == NULL) return false;
    fli_index_item **array = fli_alloc(mem, array_bytes(array_of(b)));
    index->more[array_of(b)] = array;
    return array != NULL;
}

static void array_free(const fli_mem *mem, fli_index *index, uint32_t b)
{
    if ((b & (b - 1)) != 0) return;
    fli_free(mem, index->more[array_of(b)], array_bytes(array_of(b)));
    index->more[array_of(b)] = NULL;
}

static void grow(const fli_mem *mem, fli_index *index)
{
    uint32_t b = index->bucket_count;
    if (!array_make(mem, index, b)) return;
    fli_index_item **from = bucket_at(index, parent_of(b)), *item = *from, **to = bucket_at(index, b);
    uint32_t         mask = (UINT32_C(2) << highest_bit(b)) - 1;
    index->bucket_count++;
    while (item != NULL) {
        fli_index_item ***tail = ((uint32_t)index->hash(item) & mask) == b ? &to : &from;
        **tail = item;
        *tail = &item->next;
        item = item->next;
    }
    *from = *to = NULL;
}

static void shrink(const fli_mem *mem, fli_index *index)
{
    uint32_t         b = index->bucket_count - 1;
    fli_index_item **to = bucket_at(index, parent_of(b));
    while (*to != NULL) to = &(*to)->next;
    *to = *bucket_at(index, b);
    index->bucket_count--;
    array_free(mem, index, b);
}

void fli_index_fini(const fli_mem *mem, fli_index *index)
{
    if (index->more == NULL) return;
    for (unsigned i = 0; i < ARRAYS; i++) fli_free(mem, index->more[i], array_bytes(i));
    fli_free(mem, index->more, ARRAYS * sizeof *index->more);
}

fli_index_item *fli_index_bucket(const fli_index *index, uint64_t hash)
{
    return *bucket_of(index, hash);
}

void fli_index_add(const fli_mem *mem, fli_index *index, fli_index_item *item)
{
    if (index->count >= index->bucket_count && index->bucket_count < BUCKETS_MAX) grow(mem, index);
    fli_index_item **bucket = bucket_of(index, index->hash(item));
    item->next = *bucket;
    *bucket = item;
    index->count++;
}

void fli_index_replace(fli_index *index, fli_index_item *old, fli_index_item *item)
{
    fli_index_item **at = bucket_of(index, index->hash(old));
    while (*at != old) at = &(*at)->next;
    item->next = old->next;
    *at = item;
}

bool fli_index_remove(const fli_mem *mem, fli_index *index, fli_index_item *item)
{
    fli_index_item **at = bucket_of(index, index->hash(item));
    while (*at != NULL && *at != item) at = &(*at)->next;
    if (*at == NULL) return false;
    *at = item->next;
    index->count--;
    for (int i = 0; i < SHRINK_MAX && index->bucket_count > FLI_INDEX_FIRST; i++) {
        if (index->count >= index->bucket_count / 4) break;
        shrink(mem, index);
    }
    return true;
}

fli_index_item *fli_index_any(const fli_index *index, uint32_t *cursor)
{
    for (uint32_t i = 0; i < index->bucket_count; i++) {
        uint32_t        b = (uint32_t)(((uint64_t)*cursor + i) % index->bucket_count);
        fli_index_item *item = *bucket_at(index, b);
        if (item == NULL) continue;
        *cursor = b;
        return item;
    }
    return NULL;
}
