/* values.h - named values that children inherit: an immutable, counted chain, newest in front. Two kinds of links are
 * more than values: deadlines, and scopes, which know the processes that live in them. */
#ifndef FLI_PROC_VALUES_H
#define FLI_PROC_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

/* A process that lives in a scope. Under the scope's lock. */
typedef struct fli_tenant {
    struct fli_tenant *next, *prev; /* a ring with the scope's head */
    void              *rt;          /* its fli_runtime; alive as long as it is listed */
    uint64_t           serial;
} fli_tenant;

/* Takes one more reference and returns the same chain. NULL is fine. */
filch_values *fli_values_hold(filch_values *values);

/* Shows one link of a chain and gives the next older one; NULL after the last. */
const filch_values *fli_values_link(const filch_values *values, const char **key, const filch_data **data);

/* The newest value under `key`, or NULL. */
const filch_data *fli_values_find(const filch_values *values, const char *key);

/* Is there a deadline or a scope in it? NULL is fine. */
bool fli_values_is_special(const filch_values *values);
/* The earliest deadline; FILCH_FOREVER: none. */
uint64_t fli_values_deadline(const filch_values *values);

/* The newest scope of a chain, or NULL. From a scope on: the next older one is fli_scope_next(scope). */
filch_values *fli_scope_first(filch_values *values);
filch_values *fli_scope_next(filch_values *scope);
/* Lists a tenant, and takes it out again. */
void fli_scope_enter(filch_values *scope, fli_tenant *tenant);
void fli_scope_leave(filch_values *scope, fli_tenant *tenant);
/* Why it was cancelled; FILCH_OK: it was not. With `sure`, whoever has entered before this is seen by every later
 * cancel. */
filch_err fli_scope_cancelled(filch_values *scope, bool sure);
/* Marks it; calls `each` for every tenant, under the lock. False: it was cancelled before. */
bool fli_scope_cancel(filch_values *scope, filch_err reason, void (*each)(const fli_tenant *tenant));

#endif
