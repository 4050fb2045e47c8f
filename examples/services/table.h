/* table.h - keys and values, both any bytes, for any thread. Nothing here waits for longer than another command takes. */
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

/* Once, before anything else; false: no memory. Gives everything back, when nobody uses it any more. */
bool table_open(void);
void table_close(void);

/* Adds the value to `out` behind a header that `head` writes for its size. False: there is none. */
bool table_get(slice key, bytes *out, void (*head)(bytes *out, size_t size));
/* False: no memory; the old value stays. */
bool table_set(slice key, slice value);
/* Whether it was there. */
bool table_delete(slice key);
bool table_has(slice key);

typedef enum table_sum { TABLE_SUM, TABLE_NO_NUMBER, TABLE_TOO_LARGE, TABLE_NO_MEMORY } table_sum;
/* Adds `by` to the number that the value is (none: 0), in one go. */
table_sum table_add(slice key, int64_t by, int64_t *result);

uint64_t table_count(void);
void     table_clear(void);

#endif
