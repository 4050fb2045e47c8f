/* table.h - keys and values, both any bytes, for any thread. No call waits for longer than another command takes. */
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

/* Called once, before anything else. Returns false without memory. table_close frees everything, when it is no longer
 * used. */
bool table_open(void);
void table_close(void);

/* Appends the value to `out` after a header that `head` writes for its size. Returns false if there is none. */
bool table_get(slice key, bytes *out, void (*head)(bytes *out, size_t size));
/* Returns false without memory; the old value stays. */
bool table_set(slice key, slice value);
/* Returns true if the key existed. */
bool table_delete(slice key);
bool table_has(slice key);

typedef enum table_sum { TABLE_SUM, TABLE_NO_NUMBER, TABLE_TOO_LARGE, TABLE_NO_MEMORY } table_sum;
/* Adds `by` to the number in the value (no value: 0), atomically. */
table_sum table_add(slice key, int64_t by, int64_t *result);

uint64_t table_count(void);
void     table_clear(void);

#endif
