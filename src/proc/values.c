/* values.c - see values.h. A chain outlives schedulers, so its memory comes from malloc. */
#include "proc/values.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "port/atomic.h"

struct filch_values {
    /* Holders: processes, longer chains, the program.  PAIR values.refs */
    FLI_ATOMIC(uint32_t) refs;
    filch_values *parent; /* plain from here: never changes */
    filch_data    data;
    size_t        key_size; /* with its NUL */
    char          key[];
};

static fli_mem plain(void)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    return mem;
}

filch_err filch_values_create(filch_values *parent, const char *key, filch_data data, filch_values **out)
{
    if (key == NULL || out == NULL) return FILCH_EINVAL;
    fli_mem       mem = plain();
    size_t        key_size = strlen(key) + 1;
    filch_values *values = fli_alloc(&mem, sizeof *values + key_size);
    if (values == NULL) return FILCH_ENOMEM;
    filch_err err = filch_keep(&data, &values->data);
    if (err != FILCH_OK) {
        fli_free(&mem, values, sizeof *values + key_size);
        return err;
    }
    fli_atomic_init(&values->refs, 1);
    values->parent = fli_values_hold(parent);
    values->key_size = key_size;
    memcpy(values->key, key, key_size);
    *out = values;
    return FILCH_OK;
}

filch_values *fli_values_hold(filch_values *values)
{
    /* Relaxed: the caller holds a reference, so the count cannot reach zero under us. */
    if (values != NULL) fli_add_rlx(&values->refs, 1);
    return values;
}

void filch_values_drop(filch_values *values)
{
    fli_mem mem = plain();
    /* PAIR values.refs, both halves: every holder's last read comes before the one who frees. */
    while (values != NULL && fli_sub_acqrel(&values->refs, 1) == 1) {
        filch_values *parent = values->parent;
        filch_drop(&values->data);
        fli_free(&mem, values, sizeof *values + values->key_size);
        values = parent;
    }
}

const filch_values *fli_values_link(const filch_values *values, const char **key, const filch_data **data)
{
    *key = values->key;
    *data = &values->data;
    return values->parent;
}

const filch_data *fli_values_find(const filch_values *values, const char *key)
{
    for (; values != NULL; values = values->parent) {
        if (strcmp(values->key, key) == 0) return &values->data;
    }
    return NULL;
}
