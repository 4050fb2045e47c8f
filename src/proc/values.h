/* values.h - named values that children inherit: an immutable, counted chain, newest in front. */
#ifndef FLI_PROC_VALUES_H
#define FLI_PROC_VALUES_H

#include <filch.h>

/* Takes one more reference and returns the same chain. NULL is fine. */
filch_values *fli_values_hold(filch_values *values);

/* Shows one link of a chain and gives the next older one; NULL after the last. */
const filch_values *fli_values_link(const filch_values *values, const char **key, const filch_data **data);

/* The newest value under `key`, or NULL. */
const filch_data *fli_values_find(const filch_values *values, const char *key);

#endif
