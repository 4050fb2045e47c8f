/* blame.c - see blame.h. */
#include "scale/blame.h"

#include <stdlib.h>

/* size of the hash table: a power of two, several times the number of places in the code that access shared memory */
#define SITES 8192

typedef struct site {
    const void      *pc;
    scale_blame_kind kind;
    uint64_t         count;
    scale_ps         waited;
} site;

static site sites[SITES];

void scale_blame(scale_blame_kind kind, const void *pc, scale_ps waited)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)pc * 4 + (uint64_t)kind) * UINT64_C(0x9e3779b97f4a7c15);
    size_t   at = (size_t)(mixed >> 40) % SITES, tries = 0;
    while (sites[at].count > 0 && (sites[at].pc != pc || sites[at].kind != kind)) {
        at = (at + 1) % SITES;
        /* the table is full: this wait is counted only in the totals, not for its place in the code */
        if (++tries == SITES) return;
    }
    sites[at].pc = pc;
    sites[at].kind = kind;
    sites[at].count++;
    sites[at].waited += waited;
}

void scale_blame_clear(void)
{
    for (size_t i = 0; i < SITES; i++) sites[i] = (site){ .pc = NULL };
}

/* Orders sites by time, the longest first, and sites of equal times by address, so that the order is always the
 * same. */
static int longest_first(const void *a, const void *b)
{
    const site *x = a, *y = b;
    if (x->waited != y->waited) return x->waited < y->waited ? 1 : -1;
    return x->pc < y->pc ? -1 : x->pc > y->pc;
}

void scale_blame_print(FILE *out, unsigned count)
{
    static const char *const names[] = { "line", "lock", "wake" };
    static site              sorted[SITES];
    size_t                   used = 0;
    for (size_t i = 0; i < SITES; i++) {
        if (sites[i].count > 0) sorted[used++] = sites[i];
    }
    qsort(sorted, used, sizeof sorted[0], longest_first);
    fputc('[', out);
    for (size_t i = 0; i < used && i < count; i++) {
        fprintf(out, "%s{\"pc\":\"%p\",\"kind\":\"%s\",\"count\":%llu,\"ns\":%.1f}", i > 0 ? "," : "", sorted[i].pc,
                names[sorted[i].kind], (unsigned long long)sorted[i].count, (double)sorted[i].waited / 1000);
    }
    fputc(']', out);
}
