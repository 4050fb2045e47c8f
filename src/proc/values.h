/* values.h - named values that children inherit: an immutable, reference-counted chain, newest value in front. Two
 * kinds of elements are more than a value: a deadline, and a scope, which lists the processes inside the scope. */
#ifndef FLI_PROC_VALUES_H
#define FLI_PROC_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include <filch.h>

/* The entry of a process in the list of a scope. The lock of the scope protects all fields. */
typedef struct fli_tenant {
    struct fli_tenant *next, *prev; /* neighbours in the list of the scope, a ring; its head is in the scope */
    void              *rt;          /* the fli_runtime of the process; valid while the entry is in the list */
    uint64_t           serial;
} fli_tenant;

/* Takes a reference and returns `values`. NULL is allowed. */
filch_values *fli_values_hold(filch_values *values);

/* Stores key and data of the newest element of the chain in *key and *data. Returns the chain of the older elements;
 * NULL: there is none. */
const filch_values *fli_values_link(const filch_values *values, const char **key, const filch_data **data);

/* Returns the value of the newest element with the key `key`, or NULL. */
const filch_data *fli_values_find(const filch_values *values, const char *key);

/* Returns true if the chain has a deadline or a scope. NULL is allowed. */
bool fli_values_is_special(const filch_values *values);
/* Returns the earliest deadline of the chain; FILCH_FOREVER: none. */
uint64_t fli_values_deadline(const filch_values *values);

/* fli_scope_first() returns the newest scope of a chain. fli_scope_next() returns the newest scope that is older than
 * `scope`. NULL: there is none. */
filch_values *fli_scope_first(filch_values *values);
filch_values *fli_scope_next(filch_values *scope);
/* fli_scope_enter() adds a tenant to the scope, fli_scope_leave() removes it. */
void fli_scope_enter(filch_values *scope, fli_tenant *tenant);
void fli_scope_leave(filch_values *scope, fli_tenant *tenant);
/* Returns the reason with which the scope was cancelled; FILCH_OK: it is not cancelled. With `sure`, the function reads
 * the reason under the scope's lock: if it returns FILCH_OK, each later cancel reaches every tenant that entered before
 * this call. */
filch_err fli_scope_cancelled(filch_values *scope, bool sure);
/* Returns the reason of the newest cancelled scope of the chain; FILCH_OK: no scope is cancelled. NULL is allowed. */
filch_err fli_values_cancelled(filch_values *values);
/* Cancels the scope with `reason` and calls `each` for every tenant, under the scope's lock. Returns false if the
 * scope was cancelled before. */
bool fli_scope_cancel(filch_values *scope, filch_err reason, void (*each)(const fli_tenant *tenant));

#endif
