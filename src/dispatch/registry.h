/* registry.h - which handler serves which command. Ids up to 255 by array, larger ones by table; frozen before use,
 * read without locks after. Design: docs/design/yields.md. */
#ifndef FLI_DISPATCH_REGISTRY_H
#define FLI_DISPATCH_REGISTRY_H

#include <filch.h>

typedef struct fli_handler {
    filch_handler_fn handle; /* NULL: none */
    void            *user;
} fli_handler;

/* An empty registry with one reference. */
filch_err fli_registry_create(filch_registry **out);

/* Freezes it and takes one more reference; give it back with filch_registry_destroy. */
void fli_registry_use(filch_registry *registry);

/* The handler of `id`, or NULL. Thread: any, once frozen. */
const fli_handler *fli_registry_find(const filch_registry *registry, uint32_t id);

#endif
