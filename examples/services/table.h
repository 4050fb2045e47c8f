/* table.h - a table of keys and values, both any bytes, for any thread. A call waits at most for the short commands of
 * other threads. */
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

typedef struct slice {
    const char *at;
    size_t      size;
} slice;

/* table_open must be called once, before all other functions; it returns false if there is no memory, or if the system
 * has no random bytes (getrandom). table_close frees everything. */
bool table_open(void);
void table_close(void);

/* Appends the value to `out`, after a header that `head` writes for the value's size. Returns false if the key has no
 * value. */
bool table_get(slice key, bytes *out, void (*head)(bytes *out, size_t size));
/* Sets the value of a key. Returns false if there is no memory; then the old value stays. */
bool table_set(slice key, slice value);
/* Deletes a key and its value. Returns true if the key existed. */
bool table_delete(slice key);
bool table_has(slice key);

typedef enum table_sum { TABLE_SUM, TABLE_NO_NUMBER, TABLE_TOO_LARGE, TABLE_NO_MEMORY } table_sum;
/* Adds `by` to the number in the value, atomically. A missing value counts as 0. */
table_sum table_add(slice key, int64_t by, int64_t *result);

uint64_t table_count(void);
void     table_clear(void);

#endif
