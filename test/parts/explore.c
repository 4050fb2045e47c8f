/* explore.c - the driver: runs the programs, all executions of each, and prints what came out.
 *
 *     explore [--part NAME] [--long] [--bound N] [--spurious N] [--limit N] [--plain] [--replay CHOICES]
 *             [--mutants] [--list]
 *
 * --part takes a name, or the beginning of several. Without --long, large programs run with a bound on preemptions, or
 * not at all; with it the bound is one more, and weak compare-and-swaps fail once for no reason. --bound -1: no bound.
 * --mutants weakens every order in src/ by one step at a time and says which program sees it (--part: only files and
 * lines that contain the text).
 * Exit 1: a violation; its execution is printed, and how to see it again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parts.h"

static const fli_weak_program *const rooms[] = { parts_litmus, parts_deque, parts_proc, parts_yield,
                                                 parts_limit,  parts_sync,  parts_sched };

#define BY_PROGRAM INT32_MIN

static bool more; /* --long */

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct {
    uint64_t executions, violations, programs, incomplete;
    double   time;
} sum;

/* A whole name means that program, anything else all that begin so. */
static bool is_asked(const fli_weak_program *program, const char *part)
{
    for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++) {
        for (const fli_weak_program *other = rooms[r]; other->name != NULL; other++) {
            if (strcmp(other->name, part) == 0) return other == program;
        }
    }
    return strncmp(program->name, part, strlen(part)) == 0;
}

static bool must_fail(const fli_weak_program *program)
{
    return strcmp(program->promise, "a violation") == 0;
}

/* A litmus test says how many outcomes there are. */
static const char *wrong(const fli_weak_program *program, const fli_weak_config *config, const fli_weak_result *result)
{
    if (strncmp(program->name, "litmus_", 7) != 0 || must_fail(program) || config->bound >= 0 || !result->complete)
        return NULL;
    return result->outcomes == strtoull(program->promise, NULL, 10) ? NULL : "not the outcomes that it should have";
}

static const char *bounded(const fli_weak_config *config, const fli_weak_result *result)
{
    static char text[64];
    if (config->bound >= 0)
        snprintf(text, sizeof text, ", %d preemptions%s", config->bound, result->complete ? "" : ", not all");
    else snprintf(text, sizeof text, "%s", result->complete || result->why != NULL ? "" : ", not all");
    return text;
}

static void run(const fli_weak_program *program, const fli_weak_config *given)
{
    fli_weak_config for_it = *given, *config = &for_it;
    if (for_it.bound == BY_PROGRAM) for_it.bound = program->bound == 0 ? -1 : program->bound + (more ? 1 : 0);
    for_it.quiet = must_fail(program);
    double          began = seconds();
    fli_weak_result result = fli_weak_explore(program, config);
    double          took = seconds() - began;
    const char     *why = result.why != NULL ? result.why : wrong(program, config, &result);
    if (must_fail(program)) why = why != NULL ? NULL : "nobody saw that it is wrong";
    sum.programs++;
    sum.executions += result.executions;
    sum.time += took;
    sum.incomplete += !must_fail(program) && !result.complete && why == NULL && config->replay == NULL;
    printf("%-26s %9lu executions, %lu cut, %lu outcomes, %.0f per second%s%s  (%s)\n", program->name,
           (unsigned long)result.executions, (unsigned long)result.cut, (unsigned long)result.outcomes,
           (double)(result.executions + result.cut) / (took > 1e-9 ? took : 1e-9), bounded(config, &result),
           result.loose > 0 ? ", loose stores" : "", program->promise);
    if (why == NULL) return;
    sum.violations++;
    printf("%s: VIOLATION: %s\n", program->name, why);
    if (result.choices[0] != 0) printf("replay: explore --part %s --replay %s\n", program->name, result.choices);
}

/* ---- mutants: every order that is not relaxed, one weaker at a time ---- */

#define SITES_MAX 512

static bool uses[64][SITES_MAX]; /* by program and site */

static const char *order_name(int order)
{
    static const char *const names[] = { "rlx", "acq", "rel", "acqrel" };
    return names[order];
}

/* The text after the last folder but one. */
static const char *short_where(const char *where)
{
    const char *src = strstr(where, "/src/");
    return src != NULL ? src + 5 : where;
}

/* Which program sees it? NULL: none. */
static const char *caught_by(const fli_weak_program *const *programs, uint32_t count, uint32_t site)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!uses[i][site]) continue;
        fli_weak_config config = { .bound = programs[i]->bound == 0 ? -1 : programs[i]->bound, .quiet = true };
        fli_weak_result result = fli_weak_explore(programs[i], &config);
        if (result.why == NULL) continue;
        static char text[200];
        snprintf(text, sizeof text, "%s: %s", programs[i]->name, result.why);
        return text;
    }
    return NULL;
}

static int mutants(const char *part)
{
    const fli_weak_program *programs[64];
    uint32_t                count = 0, caught = 0, survived = 0;
    for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++) {
        for (const fli_weak_program *program = rooms[r]; program->name != NULL; program++) {
            if (program->rare || strncmp(program->name, "litmus_", 7) == 0) continue;
            for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) fli_weak_site_at(i)->used = false;
            fli_weak_config config = { .bound = program->bound == 0 ? -1 : program->bound };
            (void)fli_weak_explore(program, &config);
            for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) uses[count][i] = fli_weak_site_at(i)->used;
            programs[count++] = program;
        }
    }
    for (uint32_t i = 0; fli_weak_site_at(i) != NULL; i++) {
        const fli_weak_site site = *fli_weak_site_at(i);
        /* Orders of the programs themselves are not in question. */
        if (strstr(site.where, "/src/") == NULL || strstr(site.where, part) == NULL) continue;
        for (int order = site.order - 1; order >= 0; order--) {
            if ((order & ~site.order) != 0 || (site.order == FLI_WEAK_ACQREL && order == FLI_WEAK_RLX)) continue;
            fli_weak_weaken(site.where, order);
            const char *by = caught_by(programs, count, i);
            fli_weak_weaken(NULL, 0);
            if (by != NULL) caught++;
            else survived++;
            printf("%-9s %-70s to %s  %s\n", by != NULL ? "caught" : "SURVIVES", short_where(site.where),
                   order_name(order), by != NULL ? by : "");
        }
    }
    printf("mutants: %u caught, %u survive\n", caught, survived);
    return 0;
}

int main(int argc, char **argv)
{
    fli_weak_config config = { .bound = BY_PROGRAM };
    const char     *part = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool list = false, mutate = false;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--list") == 0) list = true;
        else if (strcmp(argv[i], "--mutants") == 0) mutate = true;
        else if (strcmp(argv[i], "--plain") == 0) config.plain = true;
        else if (strcmp(argv[i], "--long") == 0) more = true, config.spurious = 1;
        else if (strcmp(argv[i], "--part") == 0) part = next, i++;
        else if (strcmp(argv[i], "--bound") == 0) config.bound = atoi(next), i++;
        else if (strcmp(argv[i], "--spurious") == 0) config.spurious = (uint32_t)atoi(next), i++;
        else if (strcmp(argv[i], "--limit") == 0) config.limit = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--replay") == 0) config.replay = next, i++;
        else {
            fprintf(
                stderr,
                "usage: explore [--part NAME] [--long] [--bound N] [--spurious N] [--limit N] [--plain] [--mutants] "
                "[--replay CHOICES] [--list]\n");
            return 2;
        }
    }
    if (mutate) return mutants(part);
    for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++) {
        for (const fli_weak_program *program = rooms[r]; program->name != NULL; program++) {
            if (!is_asked(program, part)) continue;
            if (program->rare && !more && *part == 0 && !list) continue;
            if (list) printf("%-26s %s\n", program->name, program->promise);
            else run(program, &config);
        }
    }
    if (list) return 0;
    printf("parts: %lu executions, %lu violations, %.0f per second", (unsigned long)sum.executions,
           (unsigned long)sum.violations, (double)sum.executions / (sum.time > 1e-9 ? sum.time : 1e-9));
    if (sum.incomplete > 0)
        printf("; %lu of %lu programs not to their end", (unsigned long)sum.incomplete, (unsigned long)sum.programs);
    printf("\n");
    return sum.violations > 0 || sum.programs == 0 ? 1 : 0;
}
