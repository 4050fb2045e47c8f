/* registry.c - see registry.h.
 *
 * INVARIANT  once `frozen` is set only `refs` changes, so readers need no lock. A scheduler freezes its registry
 *            before it starts its threads, so the threads see all handlers.
 */
#include "dispatch/registry.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/prng.h"
#include "port/atomic.h"

#define SMALL_IDS 256

typedef struct row {
    uint32_t    id; /* command id; 0: the row is empty */
    fli_handler handler;
} row;

struct filch_registry {
    /* Number of references: one by the program, one by each scheduler.  PAIR registry.refs */
    FLI_ATOMIC(uint32_t) refs;
    /* Set when the first scheduler uses the registry.  PAIR registry.freeze */
    FLI_ATOMIC(bool) frozen;
    fli_mem          mem;
    fli_handler      small[SMALL_IDS];
    row     *rows; /* hash table with open addressing; its size is a power of two, and it is at most half full */
    uint32_t row_room, row_count;
};

filch_err fli_registry_create(filch_registry **out)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    filch_registry *registry = fli_zalloc(&mem, sizeof *registry);
    if (registry == NULL) return FILCH_ENOMEM;
    registry->mem = mem;
    fli_atomic_init(&registry->refs, 1);
    *out = registry;
    return FILCH_OK;
}

/* Returns the row of `id`, or the empty row into which `id` is to be inserted. */
static row *place(row *rows, uint32_t room, uint32_t id)
{
    uint32_t i = (uint32_t)fli_prng_mix(id) & (room - 1);
    while (rows[i].id != 0 && rows[i].id != id) i = (i + 1) & (room - 1);
    return &rows[i];
}

static bool grow(filch_registry *registry)
{
    uint32_t room = registry->row_room == 0 ? 16 : registry->row_room * 2;
    row     *rows = fli_zalloc(&registry->mem, room * sizeof *rows);
    if (rows == NULL) return false;
    for (uint32_t i = 0; i < registry->row_room; i++) {
        row *old = &registry->rows[i];
        if (old->id != 0) *place(rows, room, old->id) = *old;
    }
    fli_free(&registry->mem, registry->rows, registry->row_room * sizeof *rows);
    registry->rows = rows;
    registry->row_room = room;
    return true;
}

filch_err filch_registry_add(filch_registry *registry, uint32_t id, filch_handler_fn handler, void *user)
{
    if (registry == NULL) return filch_invalid("registry is NULL");
    if (handler == NULL) return filch_invalid("handler is NULL");
    if (id == 0) return filch_invalid("id is 0, which is no command");
    if (fli_load_acq(&registry->frozen)) return FILCH_EFROZEN; /* PAIR registry.freeze, acquire half */
    if (fli_registry_find(registry, id) != NULL) return FILCH_EEXISTS;
    fli_handler entry = { .handle = handler, .user = user };
    if (id < SMALL_IDS) {
        registry->small[id] = entry;
        return FILCH_OK;
    }
    if (registry->row_count * 2 >= registry->row_room && !grow(registry)) return FILCH_ENOMEM;
    row *at = place(registry->rows, registry->row_room, id);
    /* if the row of `id` exists because its handler was removed, the row is already counted */
    if (at->id == 0) registry->row_count++;
    *at = (row){ .id = id, .handler = entry };
    return FILCH_OK;
}

filch_err filch_registry_remove(filch_registry *registry, uint32_t id)
{
    if (registry == NULL) return filch_invalid("registry is NULL");
    if (id == 0) return filch_invalid("id is 0, which is no command");
    if (fli_load_acq(&registry->frozen)) return FILCH_EFROZEN; /* PAIR registry.freeze, acquire half */
    if (fli_registry_find(registry, id) == NULL) return FILCH_ECOMMAND;
    if (id < SMALL_IDS) registry->small[id] = (fli_handler){ NULL, NULL };
    else place(registry->rows, registry->row_room, id)->handler = (fli_handler){ NULL, NULL };
    return FILCH_OK;
}

const fli_handler *fli_registry_find(const filch_registry *registry, uint32_t id)
{
    if (id < SMALL_IDS) return registry->small[id].handle != NULL ? &registry->small[id] : NULL;
    if (registry->row_room == 0) return NULL;
    const row *found = place(registry->rows, registry->row_room, id);
    return found->id == id && found->handler.handle != NULL ? &found->handler : NULL;
}

void fli_registry_use(filch_registry *registry)
{
    fli_add_rlx(&registry->refs, 1);        /* relaxed: the caller holds a reference, so the count is not 0 */
    fli_store_rel(&registry->frozen, true); /* PAIR registry.freeze, release half */
}

void filch_registry_destroy(filch_registry *registry)
{
    /* PAIR registry.refs, both halves: the last reads of all other holders happen before the registry is freed. */
    if (registry == NULL || fli_sub_acqrel(&registry->refs, 1) != 1) return;
    fli_mem mem = registry->mem;
    fli_free(&mem, registry->rows, registry->row_room * sizeof *registry->rows);
    fli_free(&mem, registry, sizeof *registry);
}
