/* table.c - see table.h. */
#include "model/table.h"

#include <string.h>

#include "base/assert.h"
#include "base/prng.h"

static uint64_t hash_of(const fli_index_item *item)
{
    /* `item` points to an fli_entry, because the first field of an fli_entry is its fli_index_item */
    return ((const fli_entry *)item)->hash;
}

filch_err fli_table_init(fli_table *table)
{
    fli_index_init(&table->index, hash_of);
    return fli_mutex_init(&table->lock);
}

void fli_table_fini(const fli_mem *mem, fli_table *table)
{
    FLI_ASSERT(table->index.count == 0);
    fli_index_fini(mem, &table->index);
    fli_mutex_fini(&table->lock);
}

int fli_name_is_sound(const char *name)
{
    return name != NULL && name[0] != '\0' && strnlen(name, FLI_NAME_MAX + 1) <= FLI_NAME_MAX;
}

uint64_t fli_name_hash(const char *name)
{
    uint64_t hash = 0;
    for (; *name != '\0'; name++) hash = fli_prng_mix(hash ^ (unsigned char)*name);
    return hash;
}

void *fli_entry_make(const fli_mem *mem, size_t size, const char *name)
{
    size_t     bytes = strlen(name) + 1;
    fli_entry *entry = fli_zalloc(mem, size + bytes);
    if (entry == NULL) return NULL;
    entry->size = size + bytes;
    entry->hash = fli_name_hash(name);
    entry->name = (char *)entry + size;
    memcpy(entry->name, name, bytes);
    return entry;
}

void fli_entry_free(const fli_mem *mem, void *entry)
{
    fli_free(mem, entry, ((fli_entry *)entry)->size);
}

void *fli_table_find(const fli_table *table, const char *name)
{
    uint64_t   hash = fli_name_hash(name);
    fli_entry *entry = (fli_entry *)fli_index_bucket(&table->index, hash);
    while (entry != NULL && (entry->hash != hash || strcmp(entry->name, name) != 0)) {
        entry = (fli_entry *)entry->item.next;
    }
    return entry;
}

void fli_table_add(const fli_mem *mem, fli_table *table, void *entry)
{
    fli_index_add(mem, &table->index, &((fli_entry *)entry)->item);
}

void fli_table_remove(const fli_mem *mem, fli_table *table, void *entry)
{
    (void)fli_index_remove(mem, &table->index, &((fli_entry *)entry)->item);
}
