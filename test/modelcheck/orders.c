/* orders.c - `explore --mutants`: weakens each memory order that is not relaxed, one at a time, and compares the orders
 * that no program needs with the list kept_orders.txt.
 *
 * An order is named by file, function, operation and the weaker order, not by its line, so that the list stays valid
 * when lines move:
 *     sync/deque.h | fli_deque_try_push | load_acq(&deque->word) | rlx
 * If a function has the same operation several times, the second has "#2" behind the operation, and so on.
 *
 * The orders of the list are weakened together: a weaker order only adds executions, so if no program finds a violation
 * then, each of these orders alone survives too. If a program finds one, each half of the list is weakened alone, and
 * so on. All other orders are weakened one at a time.
 */
#include "orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PROGRAMS_MAX 512
#define SITES_MAX 512
#define KEPT_MAX 256
#define NAME_SIZE 256
#define FIRST_EXECUTIONS 20000

/* true: the program (first index) executes the memory access (second index) */
static bool uses[PROGRAMS_MAX][SITES_MAX];

/* The memory orders that kept_orders.txt lists. `site` is NULL if no program executes the memory access, or if its
 * order is not weakened in this run. */
static struct kept {
    char           name[NAME_SIZE];
    fli_weak_site *site;
    int            order;
    bool           known;  /* true: a memory access in src/ has this order */
    bool           judged; /* true: the order was weakened, and the result was printed */
} kept[KEPT_MAX];
static uint32_t kept_count;

static const fli_weak_program *programs[PROGRAMS_MAX]; /* the smallest first */
static uint64_t                executions[PROGRAMS_MAX];
static uint32_t                program_count;
static uint32_t                caught, survived, differences;
static uint64_t                limit; /* maximum number of executions in one run of a program; 0: no limit */

static const char *order_name(int order)
{
    static const char *const names[] = { "rlx", "acq", "rel", "acqrel" };
    return names[order];
}

/* Returns the part of `where` after the folder src/, or NULL if the file is not in that folder. */
static const char *short_where(const char *where)
{
    const char *found = NULL;
    if (strstr(where, "/test/") != NULL) return NULL;
    for (const char *src = strstr(where, "/src/"); src != NULL; src = strstr(src + 1, "/src/")) found = src + 5;
    return found;
}

/* Returns the operation in `where`, which is "FILE:LINE  OPERATION". */
static const char *operation_of(const char *where)
{
    return strstr(where, "  ") + 2;
}

static int line_of(const char *where)
{
    return atoi(strchr(where, ':') + 1);
}

static bool same_operation(const fli_weak_site *a, const fli_weak_site *b)
{
    size_t file = strcspn(a->where, ":");
    return strcspn(b->where, ":") == file && strncmp(a->where, b->where, file) == 0 &&
           strcmp(a->function, b->function) == 0 && strcmp(operation_of(a->where), operation_of(b->where)) == 0;
}

/* Returns how many lines before `site` in the same function do the same operation. */
static uint32_t same_before(const fli_weak_site *site)
{
    uint32_t n = 0;
    for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) {
        const fli_weak_site *other = fli_weak_site_at(i);
        if (same_operation(site, other) && line_of(other->where) < line_of(site->where)) n++;
    }
    return n;
}

/* Writes the name of `site` with its order weakened to `order`, in the form that kept_orders.txt uses. */
static void name_of(const fli_weak_site *site, int order, char name[NAME_SIZE])
{
    const char *file = short_where(site->where);
    char        nth[16] = "";
    uint32_t    before = same_before(site);
    if (before > 0) snprintf(nth, sizeof nth, "#%u", before + 1);
    snprintf(name, NAME_SIZE, "%.*s | %s | %s%s | %s", (int)strcspn(file, ":"), file, site->function,
             operation_of(site->where), nth, order_name(order));
}

/* Reads kept_orders.txt. Indented lines name orders; the paragraph before them is the reason why the orders are kept.
 * Returns false if the file cannot be read, or if an order has no reason. */
static bool read_list(void)
{
    FILE *file = fopen(KEPT_ORDERS, "r");
    if (file == NULL) {
        perror(KEPT_ORDERS);
        return false;
    }
    char line[1024];
    bool reason = false, good = true;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == 0) reason = false;
        if (line[0] != ' ') {
            reason = reason || (line[0] != 0 && line[0] != '#');
            continue;
        }
        FLI_ASSERT(kept_count < KEPT_MAX);
        snprintf(kept[kept_count++].name, NAME_SIZE, "%s", line + strspn(line, " "));
        if (reason) continue;
        printf("orders: no reason is given for: %s\n", line + strspn(line, " "));
        good = false;
    }
    fclose(file);
    return good;
}

static struct kept *find_kept(const char *name)
{
    for (uint32_t i = 0; i < kept_count; i++) {
        if (strcmp(kept[i].name, name) == 0) return &kept[i];
    }
    return NULL;
}

/* Runs one program. Returns its name and the violation, or NULL if there is none. `most`: maximal number of
 * executions; 0: no limit. */
static const char *run(uint32_t p, uint64_t most)
{
    for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) fli_weak_site_at(i)->used = false;
    fli_weak_config config = { .bound = orders_bound_of(programs[p], false), .limit = most, .quiet = true };
    fli_weak_result result = fli_weak_explore(programs[p], &config);
    for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) uses[p][i] |= fli_weak_site_at(i)->used;
    executions[p] = result.executions;
    if (result.why == NULL) return NULL;
    static char text[200];
    snprintf(text, sizeof text, "%s: %s", programs[p]->name, result.why);
    return text;
}

/* Runs the programs that execute a memory access whose order is weakened now; if `all` is true, runs all programs.
 * Returns the last violation; NULL if there is none. */
static const char *find_violation(bool all)
{
    const char *found = NULL;
    for (uint32_t p = 0; p < program_count && (found == NULL || all); p++) {
        bool is_used = all;
        for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) {
            if (uses[p][i] && fli_weak_site_at(i)->now != fli_weak_site_at(i)->order) is_used = true;
        }
        const char *by = is_used ? run(p, limit) : NULL;
        if (by != NULL) found = by;
    }
    return found;
}

static void swap_programs(uint32_t a, uint32_t b)
{
    const fli_weak_program *program = programs[a];
    uint64_t                n = executions[a];
    static bool             row[SITES_MAX];
    memcpy(row, uses[a], sizeof row);
    memcpy(uses[a], uses[b], sizeof row);
    memcpy(uses[b], row, sizeof row);
    programs[a] = programs[b];
    programs[b] = program;
    executions[a] = executions[b];
    executions[b] = n;
}

/* Runs the first executions of each program without weakened orders; these executions contain nearly all memory
 * accesses of the program. Then sorts the programs, the smallest first, because a small program often detects a
 * weakened order. Litmus tests contain no code of src/ and are left out. */
static void look_at_programs(const fli_weak_program *const *given, uint32_t count)
{
    for (uint32_t g = 0; g < count; g++) {
        if (strncmp(given[g]->name, "litmus_", 7) == 0) continue;
        FLI_ASSERT(program_count < PROGRAMS_MAX);
        programs[program_count] = given[g];
        (void)run(program_count++, FIRST_EXECUTIONS);
    }
    for (uint32_t n = 1; n < program_count; n++) {
        for (uint32_t p = n; p > 0 && executions[p - 1] > executions[p]; p--) swap_programs(p - 1, p);
    }
}

static void report(const char *name, const fli_weak_site *site, const char *by)
{
    if (by != NULL) caught++;
    else survived++;
    printf("%-9s %s  (line %d)  %s\n", by != NULL ? "caught" : "SURVIVES", name, line_of(site->where),
           by != NULL ? by : "");
}

/* Weakens the orders kept[from] to kept[to - 1] together. If a program finds a violation, weakens each half of these
 * orders alone. `all`: runs all programs, also those that execute none of these orders. */
static void weaken_kept(uint32_t from, uint32_t to, bool all)
{
    for (uint32_t k = from; k < to; k++) {
        if (kept[k].site != NULL) fli_weak_weaken(kept[k].site, kept[k].order);
    }
    const char *by = find_violation(all);
    fli_weak_restore();
    if (by != NULL && to - from > 1) {
        weaken_kept(from, from + (to - from) / 2, false);
        weaken_kept(from + (to - from) / 2, to, false);
        return;
    }
    for (uint32_t k = from; k < to; k++) {
        if (kept[k].site == NULL) continue;
        kept[k].judged = true;
        report(kept[k].name, kept[k].site, by);
        if (by == NULL) continue;
        printf("orders: a program needs this order, but the list has it: %s\n", kept[k].name);
        differences++;
    }
}

/* Weakens an order that is not in kept_orders.txt. */
static void weaken_other(fli_weak_site *site, int order, const char *name)
{
    fli_weak_weaken(site, order);
    const char *by = find_violation(false);
    fli_weak_restore();
    report(name, site, by);
    if (by != NULL) return;
    printf("orders: no program needs this order, and the list does not have it: %s\n", name);
    differences++;
}

/* Finds the entry of kept_orders.txt for one order of `site`. If there is no entry, weakens the order if `others` is
 * true. `chosen`: the order is to be weakened in this run. */
static void visit(fli_weak_site *site, int order, bool chosen, bool others)
{
    char name[NAME_SIZE];
    name_of(site, order, name);
    struct kept *k = find_kept(name);
    if (k == NULL) {
        if (chosen && others) weaken_other(site, order, name);
        return;
    }
    k->known = true;
    k->order = order;
    k->site = chosen ? site : NULL;
}

/* Visits the release half and the acquire half of each memory order in src/, but no orders in the model programs. */
static void visit_all(const char *part, bool others)
{
    for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) {
        fli_weak_site *site = fli_weak_site_at(i);
        if (short_where(site->where) == NULL) continue;
        bool chosen = strstr(site->where, part) != NULL;
        if ((site->order & FLI_WEAK_REL) != 0) visit(site, site->order & ~FLI_WEAK_REL, chosen, others);
        if ((site->order & FLI_WEAK_ACQ) != 0) visit(site, site->order & ~FLI_WEAK_ACQ, chosen, others);
    }
}

int orders_weaken(const fli_weak_program *const *given, uint32_t count, const char *part, uint64_t most)
{
    if (!read_list()) return 1;
    limit = most;
    look_at_programs(given, count);
    visit_all(part, false);
    /* Runs all programs to their ends, so that afterwards `uses` is complete. */
    weaken_kept(0, kept_count, true);
    visit_all(part, true);
    for (uint32_t k = 0; k < kept_count; k++) {
        if (kept[k].site != NULL && !kept[k].judged) weaken_kept(k, k + 1, false);
        if (kept[k].known) continue;
        printf("orders: no program executes this order, but the list has it: %s\n", kept[k].name);
        differences++;
    }
    printf("mutants: %u caught, %u survive; %u differences from the list\n", caught, survived, differences);
    return differences > 0 ? 1 : 0;
}
