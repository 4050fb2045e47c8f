/* versioned.c - see versioned.h. */
#include "base/versioned.h"

#include <string.h>

filch_err fli_versioned_read(void *out, size_t known, const void *given, const char *unset, const char *unknown)
{
    size_t size;
    if (given == NULL) return FILCH_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size) return filch_invalid(unset);
    for (size_t i = known; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) return filch_invalid(unknown);
    }
    memcpy(out, given, size < known ? size : known);
    memcpy(out, &known, sizeof known);
    return FILCH_OK;
}
