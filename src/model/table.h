/* table.h - a hash map from texts to entries, under one lock; used for names and groups, not on hot paths.
 *
 * An entry is a struct of the caller that begins with an fli_entry. The hash index (base/index.h) grows and shrinks
 * with the number of entries.
 */
#ifndef FLI_MODEL_TABLE_H
#define FLI_MODEL_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <filch.h>

#include "base/index.h"
#include "base/mem.h"
#include "port/thread.h"

#define FLI_NAME_MAX 255

typedef struct fli_entry {
    fli_index_item item;
    uint64_t       hash;
    size_t         size; /* bytes allocated for the entry, its name included */
    char          *name; /* the key; its text is stored behind the caller's struct */
} fli_entry;

typedef struct fli_table {
    fli_mutex lock; /* protects the table; held by the caller of fli_table_find(), fli_table_add() and
                       fli_table_remove() */
    fli_index index;
} fli_table;

filch_err fli_table_init(fli_table *table);
/* Frees the table, which must be empty. Thread: no other thread uses the table. */
void fli_table_fini(const fli_mem *mem, fli_table *table);

uint64_t fli_name_hash(const char *name);
/* Returns true if `name` is a valid name: 1 to FLI_NAME_MAX bytes. */
int fli_name_is_sound(const char *name);

/* Allocates an entry of `size` bytes, with a copy of `name` behind them. The bytes of the entry after its fli_entry are
 * zero. Returns NULL if out of memory. */
void *fli_entry_make(const fli_mem *mem, size_t size, const char *name);
void  fli_entry_free(const fli_mem *mem, void *entry);

/* The following three functions require the lock of the table. */
void *fli_table_find(const fli_table *table, const char *name);
void  fli_table_add(const fli_mem *mem, fli_table *table, void *entry);
void  fli_table_remove(const fli_mem *mem, fli_table *table, void *entry);

#endif
