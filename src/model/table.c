/* table.c - see table.h. */
#include "model/table.h"

#include <string.h>

#include "base/assert.h"
#include "base/prng.h"

filch_err fli_table_init(fli_table *table)
{
    memset(table, 0, sizeof *table);
    table->buckets = table->first;
    table->room = FLI_TABLE_FIRST;
    return fli_mutex_init(&table->lock);
}

void fli_table_fini(const fli_mem *mem, fli_table *table)
{
    FLI_ASSERT(table->count == 0);
    if (table->buckets != table->first) fli_free(mem, table->buckets, table->room * sizeof *table->buckets);
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

static fli_entry **bucket_of(const fli_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->room - 1)];
}

void *fli_table_find(const fli_table *table, const char *name)
{
    uint64_t   hash = fli_name_hash(name);
    fli_entry *entry = *bucket_of(table, hash);
    while (entry != NULL && (entry->hash != hash || strcmp(entry->name, name) != 0)) entry = entry->next;
    return entry;
}

static void hang(fli_table *table, fli_entry *entry)
{
    fli_entry **bucket = bucket_of(table, entry->hash);
    entry->next = *bucket;
    *bucket = entry;
}

static void grow(const fli_mem *mem, fli_table *table)
{
    uint32_t    old_room = table->room;
    fli_entry **old = table->buckets, **more = fli_zalloc(mem, old_room * 2 * sizeof *more);
    if (more == NULL) return;
    table->buckets = more;
    table->room = old_room * 2;
    for (uint32_t i = 0; i < old_room; i++) {
        for (fli_entry *entry = old[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            hang(table, entry);
        }
    }
    if (old != table->first) fli_free(mem, old, old_room * sizeof *old);
}

void fli_table_add(const fli_mem *mem, fli_table *table, void *entry)
{
    if (table->count >= table->room && table->room < (1u << 30)) grow(mem, table);
    hang(table, entry);
    table->count++;
}

void fli_table_remove(fli_table *table, void *entry)
{
    fli_entry **at = bucket_of(table, ((fli_entry *)entry)->hash);
    while (*at != entry) at = &(*at)->next;
    *at = ((fli_entry *)entry)->next;
    table->count--;
}
