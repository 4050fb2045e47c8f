/* children.c - see children.h. Lists are doubly linked and sorted by number. Indexes are hash tables with chaining that
 * grow with the number of children. */
#include "supervise/children.h"

#include <string.h>

/* Bit mixer (the finalizer of splitmix64): consecutive inputs give unrelated outputs. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t hash_of_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return mix(hash);
}

static uint64_t hash_of_pid(filch_pid pid)
{
    return mix(pid.serial ^ mix(pid.node));
}

void fli_children_init(fli_children *children, filch_memory memory)
{
    *children = (fli_children){ .memory = memory, .room = FLI_CHILDREN_FEW };
    for (int i = 0; i < FLI_CHILDREN_INDEXES; i++) children->heads[i] = children->few[i];
}

/* ---- lists ---- */

static void list_insert(fli_children *children, fli_child_list list, fli_child *c)
{
    /* Searches the position of `c` in the list, beginning with the last child. Usually `c` becomes the first or the
     * last child of the list, because children start from first to last and stop from last to first. */
    fli_child *after = children->last[list], *first = children->first[list];
    if (first != NULL && c->id < first->id) after = NULL;
    while (after != NULL && after->id > c->id) after = after->prev[list];
    fli_child *before = after != NULL ? after->next[list] : first;
    c->prev[list] = after;
    c->next[list] = before;
    if (after != NULL) after->next[list] = c;
    else children->first[list] = c;
    if (before != NULL) before->prev[list] = c;
    else children->last[list] = c;
    c->on |= (uint8_t)(1u << list);
}

static void list_remove(fli_children *children, fli_child_list list, fli_child *c)
{
    if (c->prev[list] != NULL) c->prev[list]->next[list] = c->next[list];
    else children->first[list] = c->next[list];
    if (c->next[list] != NULL) c->next[list]->prev[list] = c->prev[list];
    else children->last[list] = c->prev[list];
    c->on &= (uint8_t) ~(1u << list);
}

static void set_listed(fli_children *children, fli_child_list list, fli_child *c, bool belongs)
{
    bool is = (c->on & (1u << list)) != 0;
    if (belongs && !is) list_insert(children, list, c);
    if (!belongs && is) list_remove(children, list, c);
}

void fli_children_update(fli_children *children, fli_child *c)
{
    set_listed(children, FLI_CHILDREN_TO_START, c, c->wanted && c->state == FLI_CHILD_DOWN && !c->held);
    set_listed(children, FLI_CHILDREN_UNTIMED, c, c->wanted && c->held && c->untimed);
    set_listed(children, FLI_CHILDREN_UNREADY, c, c->state == FLI_CHILD_UP && !c->ready);
    set_listed(children, FLI_CHILDREN_MUST_STOP, c, c->must_stop);
    set_listed(children, FLI_CHILDREN_LEAVING, c, c->leaves);
    bool missing = c->wanted && !(c->state == FLI_CHILD_UP && c->ready);
    if (missing != c->missing) children->missing += missing ? 1 : (size_t)-1;
    c->missing = missing;
    if (c->state == FLI_CHILD_STOPPING) children->stopping = c;
    else if (children->stopping == c) children->stopping = NULL;
}

/* ---- indexes ---- */

static fli_child **head_of(const fli_children *children, fli_child_index index, uint64_t hash)
{
    return &children->heads[index][hash & (children->room - 1)];
}

static void index_insert(fli_children *children, fli_child_index index, fli_child *c, uint64_t hash)
{
    fli_child **head = head_of(children, index, hash);
    c->hash[index] = hash;
    c->chain[index] = *head;
    *head = c;
}

static void index_remove(fli_children *children, fli_child_index index, fli_child *c)
{
    fli_child **at = head_of(children, index, c->hash[index]);
    while (*at != c) at = &(*at)->chain[index]; /* the loop ends because `c` is in this chain */
    *at = c->chain[index];
}

static void free_heads(fli_children *children)
{
    size_t size = children->room * sizeof(fli_child *);
    if (children->heads[0] == children->few[0]) return;
    (void)children->memory.alloc(children->memory.user, children->heads[0], FLI_CHILDREN_INDEXES * size, 0);
}

/* Doubles the hash tables, so that there is about one chain per child. If there is no memory for that, the tables keep
 * their size and the chains get longer. */
static void grow(fli_children *children)
{
    size_t      room = children->room * 2;
    fli_child **heads =
        children->memory.alloc(children->memory.user, NULL, 0, FLI_CHILDREN_INDEXES * room * sizeof *heads);
    if (heads == NULL) return;
    memset(heads, 0, FLI_CHILDREN_INDEXES * room * sizeof *heads);
    free_heads(children);
    for (int i = 0; i < FLI_CHILDREN_INDEXES; i++) children->heads[i] = heads + (size_t)i * room;
    children->room = room;
    for (fli_child *c = children->first[FLI_CHILDREN_ALL]; c != NULL; c = c->next[FLI_CHILDREN_ALL]) {
        index_insert(children, FLI_CHILDREN_BY_NAME, c, c->hash[FLI_CHILDREN_BY_NAME]);
        index_insert(children, FLI_CHILDREN_BY_ID, c, c->hash[FLI_CHILDREN_BY_ID]);
        if (c->begun) index_insert(children, FLI_CHILDREN_BY_PID, c, c->hash[FLI_CHILDREN_BY_PID]);
    }
}

fli_child *fli_children_named(const fli_children *children, const char *name)
{
    uint64_t   hash = hash_of_name(name);
    fli_child *c = *head_of(children, FLI_CHILDREN_BY_NAME, hash);
    while (c != NULL && (c->hash[FLI_CHILDREN_BY_NAME] != hash || strcmp(c->spec.id, name) != 0))
        c = c->chain[FLI_CHILDREN_BY_NAME];
    return c;
}

fli_child *fli_children_numbered(const fli_children *children, uint32_t id)
{
    fli_child *c = *head_of(children, FLI_CHILDREN_BY_ID, mix(id));
    while (c != NULL && c->id != id) c = c->chain[FLI_CHILDREN_BY_ID];
    return c;
}

fli_child *fli_children_with(const fli_children *children, filch_pid pid)
{
    fli_child *c = *head_of(children, FLI_CHILDREN_BY_PID, hash_of_pid(pid));
    while (c != NULL && (c->pid.serial != pid.serial || c->pid.node != pid.node)) c = c->chain[FLI_CHILDREN_BY_PID];
    return c;
}

/* ---- add and drop ---- */

filch_err fli_children_add(fli_children *children, const filch_child *spec, fli_child **out)
{
    if (fli_children_named(children, spec->id) != NULL) return FILCH_EEXISTS;
    fli_child *c = children->memory.alloc(children->memory.user, NULL, 0, sizeof *c);
    if (c == NULL) return FILCH_ENOMEM;
    if (children->count >= children->room) grow(children);
    *c = (fli_child){ .spec = *spec, .request = filch_none(), .id = ++children->ids, .wanted = true };
    children->count++;
    list_insert(children, FLI_CHILDREN_ALL, c);
    index_insert(children, FLI_CHILDREN_BY_NAME, c, hash_of_name(spec->id));
    index_insert(children, FLI_CHILDREN_BY_ID, c, mix(c->id));
    fli_children_update(children, c);
    if (out != NULL) *out = c;
    return FILCH_OK;
}

void fli_children_started(fli_children *children, fli_child *c, filch_pid pid)
{
    if (c->begun) index_remove(children, FLI_CHILDREN_BY_PID, c);
    c->begun = true;
    c->pid = pid;
    index_insert(children, FLI_CHILDREN_BY_PID, c, hash_of_pid(pid));
}

void fli_waiter_free(filch_memory memory, fli_waiter *waiter)
{
    filch_drop(&waiter->reply);
    filch_drop(&waiter->start);
    (void)memory.alloc(memory.user, waiter, sizeof *waiter, 0);
}

void fli_children_drop(fli_children *children, fli_child *c)
{
    while (c->waiters != NULL) {
        fli_waiter *first = c->waiters;
        c->waiters = first->next;
        fli_waiter_free(children->memory, first);
    }
    for (int list = 0; list < FLI_CHILDREN_LISTS; list++) set_listed(children, (fli_child_list)list, c, false);
    index_remove(children, FLI_CHILDREN_BY_NAME, c);
    index_remove(children, FLI_CHILDREN_BY_ID, c);
    if (c->begun) index_remove(children, FLI_CHILDREN_BY_PID, c);
    if (c->missing) children->missing--;
    if (children->stopping == c) children->stopping = NULL;
    children->count--;
    filch_drop(&c->request);
    (void)children->memory.alloc(children->memory.user, c, sizeof *c, 0);
}

void fli_children_fini(fli_children *children)
{
    while (children->last[FLI_CHILDREN_ALL] != NULL) fli_children_drop(children, children->last[FLI_CHILDREN_ALL]);
    free_heads(children);
}
