/* pending_sends.c - the memory of messages that wait for space in a full mailbox (overflow "wait").
 *
 * Such a message belongs to the scheduler until the yield of the send completes, also if the task no longer waits for
 * it. So the process is charged for its bytes, and for what the scheduler holds besides them, until the completion
 * arrives. Each completion of a yield is looked up here, so the messages are in an index: their number is limited only
 * by the memory limit.
 */
#include "base/index.h"
#include "lua/process/proc.h"

/* What the scheduler holds for a message besides its bytes: two nodes of 64 bytes, for the message and for the yield,
 * and up to 80 bytes of the block with the bytes (its header, and what malloc adds). */
enum { NODES = 2 * 64, BLOCK = 80 };

struct fli_lua_pending_sends {
    fli_index index; /* by tag */
};

typedef struct pending {
    fli_index_item item;
    uint64_t       tag;  /* tag of the yield */
    size_t         size; /* bytes charged, without this struct */
} pending;

static uint64_t tag_of(const fli_index_item *item)
{
    return ((const pending *)(const void *)item)->tag;
}

static void *allocate(void *heap, void *old, size_t old_size, size_t size)
{
    return fli_lua_heap_resize(heap, old, old_size, size);
}

static fli_mem mem_of(fli_lua_proc *p)
{
    return (fli_mem){ .alloc = allocate, .user = &p->heap };
}

/* Returns the index of the messages that wait for space; creates it if needed. Returns NULL if memory is short. */
static fli_index *index_of(fli_lua_proc *p)
{
    fli_lua_rare *rare = fli_lua_rarely(p);
    if (rare == NULL) return NULL;
    if (rare->pending == NULL) {
        rare->pending = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *rare->pending);
        if (rare->pending == NULL) return NULL;
        fli_index_init(&rare->pending->index, tag_of);
    }
    return &rare->pending->index;
}

static bool add(fli_lua_proc *p, uint64_t tag, size_t size)
{
    fli_index *index = index_of(p);
    if (index == NULL || !fli_lua_charge(p, size)) return false;
    pending *added = fli_lua_heap_resize(&p->heap, NULL, 0, sizeof *added);
    if (added == NULL) {
        fli_lua_heap_discharge(&p->heap, size);
        return false;
    }
    *added = (pending){ .tag = tag, .size = size };
    fli_mem mem = mem_of(p);
    fli_index_add(&mem, index, &added->item);
    return true;
}

bool fli_lua_pending_add(fli_lua_proc *p, uint64_t tag, size_t size)
{
    return add(p, tag, size + NODES + BLOCK);
}

void fli_lua_pending_end(fli_lua_proc *p, uint64_t tag)
{
    if (p->rare == NULL || p->rare->pending == NULL) return;
    fli_index      *index = &p->rare->pending->index;
    fli_index_item *item = fli_index_bucket(index, tag);
    while (item != NULL && tag_of(item) != tag) item = item->next;
    if (item == NULL) return;
    pending *ended = (pending *)(void *)item;
    fli_mem  mem = mem_of(p);
    (void)fli_index_remove(&mem, index, item);
    fli_lua_heap_discharge(&p->heap, ended->size);
    fli_lua_heap_resize(&p->heap, ended, sizeof *ended, 0);
}

bool fli_lua_pending_move(fli_lua_proc *from, fli_lua_proc *to)
{
    if (from->rare == NULL || from->rare->pending == NULL) return true;
    fli_index      *index = &from->rare->pending->index;
    fli_mem         mem = mem_of(from);
    uint32_t        cursor = 0;
    fli_index_item *item;
    while ((item = fli_index_any(index, &cursor)) != NULL) {
        pending *moved = (pending *)(void *)item;
        if (!add(to, moved->tag, moved->size)) return false;
        (void)fli_index_remove(&mem, index, item);
    }
    return true;
}
