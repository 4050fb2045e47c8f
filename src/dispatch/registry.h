/* registry.h - the table from command ids to handlers: an array for ids up to 255, a hash table for larger ids.
 * The first scheduler that uses a registry freezes it; from then on it is read without locks. Design:
 * docs/design/yields.md. */
#ifndef FLI_DISPATCH_REGISTRY_H
#define FLI_DISPATCH_REGISTRY_H

#include <filch.h>

typedef struct fli_handler {
    filch_handler_fn handle; /* NULL: no handler */
    void            *user;
} fli_handler;

/* Creates an empty registry with one reference. */
filch_err fli_registry_create(filch_registry **out);

/* Freezes the registry and takes one more reference; release it with filch_registry_destroy(). */
void fli_registry_use(filch_registry *registry);

/* Returns the handler of `id`, or NULL. Thread: any, after the registry has been frozen. */
const fli_handler *fli_registry_find(const filch_registry *registry, uint32_t id);

#endif
