/* table.h - a map from texts to entries, under one lock: names, and groups. Not for hot paths.
 *
 * Entries are the caller's, with a fli_entry in front. The order in which they hang in a bucket is nowhere to be seen.
 */
#ifndef FLI_MODEL_TABLE_H
#define FLI_MODEL_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/mem.h"
#include "port/thread.h"

#define FLI_NAME_MAX 255
#define FLI_TABLE_FIRST 16

typedef struct fli_entry {
    struct fli_entry *next;
    uint64_t          hash;
    size_t            size; /* of the whole entry, for freeing it */
    char             *name; /* behind the caller's part */
} fli_entry;

typedef struct fli_table {
    fli_mutex   lock; /* public: callers hold it around everything below */
    fli_entry **buckets;
    uint32_t    room, count;
    fli_entry  *first[FLI_TABLE_FIRST]; /* the buckets, as long as they do */
} fli_table;

filch_err fli_table_init(fli_table *table);
/* Thread: nobody else. It is empty. */
void fli_table_fini(const fli_mem *mem, fli_table *table);

uint64_t fli_name_hash(const char *name);
/* Is it a name: 1 to FLI_NAME_MAX bytes? */
int fli_name_is_sound(const char *name);

/* An entry of `size` bytes, zeroed but for its fli_entry, with a copy of `name`. NULL: no memory. */
void *fli_entry_make(const fli_mem *mem, size_t size, const char *name);
void  fli_entry_free(const fli_mem *mem, void *entry);

/* Under the lock. Growing is best effort: without memory the buckets become longer. */
void *fli_table_find(const fli_table *table, const char *name);
void  fli_table_add(const fli_mem *mem, fli_table *table, void *entry);
void  fli_table_remove(fli_table *table, void *entry);

#endif
