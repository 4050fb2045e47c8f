/* kids.c - see kids.h. Lists are doubly linked and sorted by number; indexes are chains, which grow with the children.
 */
#include "supervise/kids.h"

#include <string.h>

/* Spreads bits; neighbours come out unrelated. */
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

void fli_kids_init(fli_kids *kids, filch_memory memory)
{
    *kids = (fli_kids){ .memory = memory, .room = FLI_KIDS_FEW };
    for (int i = 0; i < FLI_KIDS_INDEXES; i++) kids->heads[i] = kids->few[i];
}

/* ---- lists ---- */

static void enter(fli_kids *kids, fli_kid_list list, fli_kid *k)
{
    /* Mostly it belongs at one of the ends: children are started from the first to the last, and stopped from the last.
     */
    fli_kid *after = kids->last[list], *first = kids->first[list];
    if (first != NULL && k->id < first->id) after = NULL;
    while (after != NULL && after->id > k->id) after = after->prev[list];
    fli_kid *before = after != NULL ? after->next[list] : first;
    k->prev[list] = after;
    k->next[list] = before;
    if (after != NULL) after->next[list] = k;
    else kids->first[list] = k;
    if (before != NULL) before->prev[list] = k;
    else kids->last[list] = k;
    k->on |= (uint8_t)(1u << list);
}

static void leave(fli_kids *kids, fli_kid_list list, fli_kid *k)
{
    if (k->prev[list] != NULL) k->prev[list]->next[list] = k->next[list];
    else kids->first[list] = k->next[list];
    if (k->next[list] != NULL) k->next[list]->prev[list] = k->prev[list];
    else kids->last[list] = k->prev[list];
    k->on &= (uint8_t) ~(1u << list);
}

static void belong(fli_kids *kids, fli_kid_list list, fli_kid *k, bool belongs)
{
    bool is = (k->on & (1u << list)) != 0;
    if (belongs && !is) enter(kids, list, k);
    if (!belongs && is) leave(kids, list, k);
}

void fli_kids_note(fli_kids *kids, fli_kid *k)
{
    belong(kids, FLI_KIDS_OWED, k, k->wanted && k->state == FLI_KID_DOWN && !k->held);
    belong(kids, FLI_KIDS_UNREADY, k, k->state == FLI_KID_UP && !k->ready);
    belong(kids, FLI_KIDS_MUST_STOP, k, k->must_stop);
    belong(kids, FLI_KIDS_LEAVING, k, k->leaves);
    bool missing = k->wanted && !(k->state == FLI_KID_UP && k->ready);
    if (missing != k->missing) kids->missing += missing ? 1 : (size_t)-1;
    k->missing = missing;
    if (k->state == FLI_KID_STOPPING) kids->stopping = k;
    else if (kids->stopping == k) kids->stopping = NULL;
}

/* ---- indexes ---- */

static fli_kid **head_of(const fli_kids *kids, fli_kid_index index, uint64_t hash)
{
    return &kids->heads[index][hash & (kids->room - 1)];
}

static void put(fli_kids *kids, fli_kid_index index, fli_kid *k, uint64_t hash)
{
    fli_kid **head = head_of(kids, index, hash);
    k->hash[index] = hash;
    k->chain[index] = *head;
    *head = k;
}

static void take_out(fli_kids *kids, fli_kid_index index, fli_kid *k)
{
    fli_kid **at = head_of(kids, index, k->hash[index]);
    while (*at != k) at = &(*at)->chain[index]; /* it is there */
    *at = k->chain[index];
}

static void free_heads(fli_kids *kids)
{
    size_t size = kids->room * sizeof(fli_kid *);
    if (kids->heads[0] == kids->few[0]) return;
    (void)kids->memory.alloc(kids->memory.user, kids->heads[0], FLI_KIDS_INDEXES * size, 0);
}

/* One head per child. Without memory the chains get longer, and that is all. */
static void grow(fli_kids *kids)
{
    size_t    room = kids->room * 2;
    fli_kid **heads = kids->memory.alloc(kids->memory.user, NULL, 0, FLI_KIDS_INDEXES * room * sizeof *heads);
    if (heads == NULL) return;
    memset(heads, 0, FLI_KIDS_INDEXES * room * sizeof *heads);
    free_heads(kids);
    for (int i = 0; i < FLI_KIDS_INDEXES; i++) kids->heads[i] = heads + (size_t)i * room;
    kids->room = room;
    for (fli_kid *k = kids->first[FLI_KIDS_ALL]; k != NULL; k = k->next[FLI_KIDS_ALL]) {
        put(kids, FLI_KIDS_BY_NAME, k, k->hash[FLI_KIDS_BY_NAME]);
        put(kids, FLI_KIDS_BY_ID, k, k->hash[FLI_KIDS_BY_ID]);
        if (k->begun) put(kids, FLI_KIDS_BY_PID, k, k->hash[FLI_KIDS_BY_PID]);
    }
}

fli_kid *fli_kids_named(const fli_kids *kids, const char *name)
{
    uint64_t hash = hash_of_name(name);
    fli_kid *k = *head_of(kids, FLI_KIDS_BY_NAME, hash);
    while (k != NULL && (k->hash[FLI_KIDS_BY_NAME] != hash || strcmp(k->spec.id, name) != 0))
        k = k->chain[FLI_KIDS_BY_NAME];
    return k;
}

fli_kid *fli_kids_numbered(const fli_kids *kids, uint32_t id)
{
    fli_kid *k = *head_of(kids, FLI_KIDS_BY_ID, mix(id));
    while (k != NULL && k->id != id) k = k->chain[FLI_KIDS_BY_ID];
    return k;
}

fli_kid *fli_kids_with(const fli_kids *kids, filch_pid pid)
{
    fli_kid *k = *head_of(kids, FLI_KIDS_BY_PID, hash_of_pid(pid));
    while (k != NULL && (k->pid.serial != pid.serial || k->pid.node != pid.node)) k = k->chain[FLI_KIDS_BY_PID];
    return k;
}

/* ---- coming and going ---- */

filch_err fli_kids_add(fli_kids *kids, const filch_child *spec, fli_kid **out)
{
    if (fli_kids_named(kids, spec->id) != NULL) return FILCH_EEXISTS;
    fli_kid *k = kids->memory.alloc(kids->memory.user, NULL, 0, sizeof *k);
    if (k == NULL) return FILCH_ENOMEM;
    if (kids->count >= kids->room) grow(kids);
    *k = (fli_kid){ .spec = *spec, .order = filch_none(), .id = ++kids->ids, .wanted = true };
    kids->count++;
    enter(kids, FLI_KIDS_ALL, k);
    put(kids, FLI_KIDS_BY_NAME, k, hash_of_name(spec->id));
    put(kids, FLI_KIDS_BY_ID, k, mix(k->id));
    fli_kids_note(kids, k);
    if (out != NULL) *out = k;
    return FILCH_OK;
}

void fli_kids_born(fli_kids *kids, fli_kid *k, filch_pid pid)
{
    if (k->begun) take_out(kids, FLI_KIDS_BY_PID, k);
    k->begun = true;
    k->pid = pid;
    put(kids, FLI_KIDS_BY_PID, k, hash_of_pid(pid));
}

void fli_asker_free(filch_memory memory, fli_asker *asker)
{
    filch_drop(&asker->reply);
    filch_drop(&asker->start);
    (void)memory.alloc(memory.user, asker, sizeof *asker, 0);
}

void fli_kids_drop(fli_kids *kids, fli_kid *k)
{
    while (k->askers != NULL) {
        fli_asker *first = k->askers;
        k->askers = first->next;
        fli_asker_free(kids->memory, first);
    }
    for (int list = 0; list < FLI_KIDS_LISTS; list++) belong(kids, (fli_kid_list)list, k, false);
    take_out(kids, FLI_KIDS_BY_NAME, k);
    take_out(kids, FLI_KIDS_BY_ID, k);
    if (k->begun) take_out(kids, FLI_KIDS_BY_PID, k);
    if (k->missing) kids->missing--;
    if (kids->stopping == k) kids->stopping = NULL;
    kids->count--;
    filch_drop(&k->order);
    (void)kids->memory.alloc(kids->memory.user, k, sizeof *k, 0);
}

void fli_kids_fini(fli_kids *kids)
{
    while (kids->last[FLI_KIDS_ALL] != NULL) fli_kids_drop(kids, kids->last[FLI_KIDS_ALL]);
    free_heads(kids);
}
