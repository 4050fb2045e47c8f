/* explore.c - the driver: runs all executions of the chosen programs and prints the results.
 *
 *     explore [--part NAME] [--long] [--total N] [--bound N] [--spurious N] [--limit N] [--plain] [--walks N]
 *             [--seed S] [--replay CHOICES] [--mutants] [--list]
 *
 * --part takes the name of a program, or a prefix of several. Without --long, large programs run with a bound on
 * preemptions, or not at all; with --long the bound is one higher, and each weak compare-and-swap may fail spuriously
 * once. --bound -1: no bound.
 * --total N runs until there have been N executions (--long alone: 100 million): first the programs with their bounds,
 * then each program without the reduction up to PLAIN_MAX executions, then random walks of the programs whose
 * executions were not all explored. At the end a table of all runs is printed.
 * --walks N: only random walks, N of each program.
 * --mutants weakens every memory order in src/ by one step, one at a time, and prints which program detects it (--part:
 * only files and lines that contain the text; --limit: of each program at most N executions each time). Exit 1: the
 * orders that no program detects are not those in kept_orders.txt (orders.c). Exit 1: a violation; its execution is
 * printed, with the command that repeats it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "orders.h"
#include "parts.h"

static const fli_weak_program *const program_lists[] = { parts_litmus, parts_deque,     parts_proc,   parts_yield,
                                                         parts_limit,  parts_sync,      parts_sched,  parts_io,
                                                         parts_parker, parts_safepoint, parts_inline, parts_pool,
                                                         parts_timers };

#define BY_PROGRAM INT32_MIN

static bool more; /* true: the option --long was given */

#define LONG_TOTAL UINT64_C(100000000)
#define ALL_MAX UINT64_C(20000000) /* maximum number of executions of one program in the first pass of --total */
/* maximum number of executions in the first pass of --total, for a program with a bound on preemptions; random walks
 * explore more executions of the program afterwards */
#define BOUNDED_MAX UINT64_C(2000000)
#define PLAIN_MAX UINT64_C(1000000) /* maximum number of executions of one program in the second pass of --total */
#define WALKS_MAX UINT64_C(40000000)
#define PROBE_WALKS 20000
#define AGAIN_MAX 8

#define PROGRAMS_MAX 512
#define PASSES 3 /* number of passes of --total: a program has at most one row in the table for each pass */

/* Returns the CPU time of this process, so that other load on the machine does not count. */
static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static struct {
    uint64_t executions, repeated, violations, programs, incomplete;
    double   time;
} sum;

/* One row of the printed table: the result of one program in one pass. */
static struct row {
    const fli_weak_program *program;
    char                    mode[48];
    fli_weak_result         result;
    double                  took;
} rows[PASSES * PROGRAMS_MAX + AGAIN_MAX];
static uint32_t row_count;
/* value of the option --total; 0: only one pass, and the line of a program is printed when the program ends */
static uint64_t total;

/* Returns true if `part` is the program's name. If no program has that name, returns true if `part` is a prefix of the
 * program's name. */
static bool is_selected(const fli_weak_program *program, const char *part)
{
    for (size_t r = 0; r < sizeof program_lists / sizeof program_lists[0]; r++) {
        for (const fli_weak_program *other = program_lists[r]; other->name != NULL; other++) {
            if (strcmp(other->name, part) == 0) return other == program;
        }
    }
    return strncmp(program->name, part, strlen(part)) == 0;
}

static bool must_fail(const fli_weak_program *program)
{
    return strcmp(program->promise, "a violation") == 0;
}

/* Returns a text that says what is wrong with the result, or NULL. A litmus test must have exactly the expected number
 * of outcomes. */
static const char *wrong(const fli_weak_program *program, const fli_weak_config *config, const fli_weak_result *result)
{
    if (strncmp(program->name, "litmus_", 7) != 0 || must_fail(program) || config->bound >= 0 || !result->complete)
        return NULL;
    return result->outcomes == strtoull(program->promise, NULL, 10) ? NULL : "not the expected number of outcomes";
}

static const char *bounded(const fli_weak_config *config, const fli_weak_result *result)
{
    static char text[64];
    if (config->bound >= 0)
        snprintf(text, sizeof text, ", %d preemptions%s", config->bound, result->complete ? "" : ", not all");
    else snprintf(text, sizeof text, "%s", result->complete || result->why != NULL ? "" : ", not all");
    return text;
}

static bool reported_zero; /* true: the explorer has called on_progress() with 0 executions */

/* Prints the progress: on a terminal twice per second, otherwise every 30 seconds. */
static void print_progress(const fli_weak_program *program, uint64_t executions)
{
    static time_t printed;
    static double printed_s;
    bool          live = isatty(STDOUT_FILENO) != 0;
    time_t        now = time(NULL);
    if (live ? seconds() - printed_s < 0.5 : now - printed < 30) return;
    printed = now;
    printed_s = seconds();
    printf(live ? "\r%-26s %11lu of %lu executions, %lu violations "
                : "%-26s %11lu of %lu executions, %lu violations\n",
           program->name, (unsigned long)(sum.executions - sum.repeated + executions), (unsigned long)total,
           (unsigned long)sum.violations);
    fflush(stdout);
}

static void on_progress(const fli_weak_program *program, uint64_t executions)
{
    if (executions == 0) reported_zero = true;
    if (total > 0) print_progress(program, executions);
}

static const char *mode_of(const fli_weak_config *config)
{
    if (config->walks > 0) return "walks";
    return config->plain ? "no reduction" : "reduced";
}

static double rate(const fli_weak_result *result, double took)
{
    return (double)(result->executions + result->cut) / (took > 1e-9 ? took : 1e-9);
}

/* Explores one program and prints or stores the result. Returns false if the exploration ended before all executions of
 * the program were explored. */
static bool run(const fli_weak_program *program, const fli_weak_config *given)
{
    fli_weak_config for_it = *given, *config = &for_it;
    if (for_it.bound == BY_PROGRAM) for_it.bound = orders_bound_of(program, more);
    for_it.quiet = must_fail(program);
    double          began = seconds();
    fli_weak_result result = fli_weak_explore(program, config);
    double          took = seconds() - began;
    const char     *why = result.why != NULL ? result.why : wrong(program, config, &result);
    if (must_fail(program)) why = why != NULL ? NULL : "the planted error was not detected";
    if (why == NULL && reported_zero) why = "a progress of 0 executions was told";
    sum.programs++;
    sum.executions += result.executions;
    sum.repeated += config->replay == NULL ? result.executions - result.distinct : 0;
    sum.time += took;
    sum.incomplete += !must_fail(program) && !result.complete && why == NULL && config->replay == NULL;
    if (total > 0) {
        FLI_ASSERT(row_count < sizeof rows / sizeof rows[0]);
        struct row *row = &rows[row_count++];
        *row = (struct row){ .program = program, .result = result, .took = took };
        snprintf(row->mode, sizeof row->mode, "%s%s", mode_of(config),
                 config->walks > 0 ? "" : bounded(config, &result));
    } else {
        printf("%-26s %9lu executions, %lu cut, %lu outcomes, %.0f per second%s%s  (%s)\n", program->name,
               (unsigned long)result.executions, (unsigned long)result.cut, (unsigned long)result.outcomes,
               rate(&result, took), bounded(config, &result), result.loose > 0 ? ", loose stores" : "",
               program->promise);
    }
    if (why == NULL) return result.complete;
    sum.violations++;
    printf("%s: VIOLATION: %s\n", program->name, why);
    if (result.choices[0] != 0) printf("replay: explore --part %s --replay %s\n", program->name, result.choices);
    return true; /* after a violation the exploration of the program counts as complete */
}

/* Collects the programs that the command line names, at most `max`. Returns their number. */
static uint32_t selected(const fli_weak_program **programs, uint32_t max, const char *part, bool rare)
{
    uint32_t count = 0;
    for (size_t r = 0; r < sizeof program_lists / sizeof program_lists[0]; r++) {
        for (const fli_weak_program *program = program_lists[r]; program->name != NULL; program++) {
            if (!is_selected(program, part) || (program->rare && !rare)) continue;
            FLI_ASSERT(count < max);
            programs[count++] = program;
        }
    }
    return count;
}

static void print_table(void)
{
    double slowest = 0;
    printf("\n%-26s %-30s %11s %11s %9s %9s %11s\n", "program", "mode", "executions", "different", "outcomes",
           "seconds", "per second");
    for (uint32_t i = 0; i < row_count; i++) {
        const struct row *row = &rows[i];
        printf("%-26s %-30s %11lu %11lu %9lu %9.2f ", row->program->name, row->mode,
               (unsigned long)row->result.executions, (unsigned long)row->result.distinct,
               (unsigned long)row->result.outcomes, row->took);
        /* A run of less than 0.05 s is too short to compute a rate, because the clock is too coarse. */
        if (row->took < 0.05) {
            printf("%11s\n", "-");
            continue;
        }
        double per_second = rate(&row->result, row->took);
        if (slowest == 0 || per_second < slowest) slowest = per_second;
        printf("%11.0f\n", per_second);
    }
    printf("\nthe slowest: %.0f per second of processor time\n", slowest);
}

/* Returns how many different executions must still be run to reach `total`. */
static uint64_t missing(void)
{
    uint64_t done = sum.executions - sum.repeated;
    return done < total ? total - done : 0;
}

/* Sorts the programs by the number of different executions that a few random walks find, the smallest number first. A
 * program with few different executions does not use up its share of `total`, and the programs after it in the order
 * run the remaining executions. The walks that are made here count as part of the share of each program. */
static void sort_by_distinct(const fli_weak_program **programs, uint32_t count, const fli_weak_config *given)
{
    uint64_t        distinct_walks[PROGRAMS_MAX];
    fli_weak_config probe = *given;
    probe.walks = PROBE_WALKS;
    probe.quiet = true;
    for (uint32_t i = 0; i < count; i++) {
        const fli_weak_program *program = programs[i];
        uint64_t                distinct = fli_weak_explore(program, &probe).distinct;
        uint32_t                at = i;
        for (; at > 0 && distinct_walks[at - 1] > distinct; at--) {
            programs[at] = programs[at - 1];
            distinct_walks[at] = distinct_walks[at - 1];
        }
        programs[at] = program;
        distinct_walks[at] = distinct;
    }
}

/* Explores the `count` programs in several passes, until `total` different executions have been run. */
static void run_total(const fli_weak_program *const *programs, uint32_t count, const fli_weak_config *given)
{
    const fli_weak_program *open[PROGRAMS_MAX];
    uint32_t                open_count = 0;
    fli_weak_config         all = *given, plain = *given, walks = *given;
    for (uint32_t i = 0; i < count; i++) {
        all.limit = programs[i]->bound == 0 ? ALL_MAX : BOUNDED_MAX;
        (void)run(programs[i], &all);
    }
    plain.plain = true;
    plain.bound = -1;
    plain.limit = PLAIN_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (!must_fail(programs[i]) && !run(programs[i], &plain)) open[open_count++] = programs[i];
    }
    walks.bound = -1;
    sort_by_distinct(open, open_count, &walks);
    for (uint32_t i = 0; i < open_count && missing() > 0; i++) {
        uint64_t share = missing() / (open_count - i) + 1;
        walks.walks = share < WALKS_MAX ? share : WALKS_MAX;
        (void)run(open[i], &walks);
    }
    /* Random walks that repeat an earlier execution do not count, so some executions may still be missing. Then the
     * last program, which repeats least, makes more walks with other seeds: a few more than are missing. */
    for (int again = 0; again < AGAIN_MAX && open_count > 0 && missing() > 0 && sum.violations == 0; again++) {
        walks.seed++;
        walks.walks = missing() + missing() / 4 + 1000;
        (void)run(open[open_count - 1], &walks);
    }
    sum.incomplete = open_count;
    sum.programs = count;
    print_table();
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
        else if (strcmp(argv[i], "--total") == 0) total = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--walks") == 0) config.walks = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--seed") == 0) config.seed = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--limit") == 0) config.limit = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--replay") == 0) config.replay = next, i++;
        else {
            fprintf(
                stderr,
                "usage: explore [--part NAME] [--long] [--total N] [--bound N] [--spurious N] [--limit N] [--plain]\n"
                "               [--walks N] [--seed S] [--mutants] [--replay CHOICES] [--list]\n");
            return 2;
        }
    }
    if (mutate) {
        const fli_weak_program *all[PROGRAMS_MAX];
        return orders_weaken(all, selected(all, PROGRAMS_MAX, "", false), part, config.limit);
    }
    if (more && *part == 0 && total == 0) total = LONG_TOTAL;
    const fli_weak_program *programs[PROGRAMS_MAX];
    uint32_t                count = selected(programs, PROGRAMS_MAX, part, more || *part != 0 || list || total > 0);
    config.progress = on_progress;
    if (total > 0 && !list) run_total(programs, count, &config);
    for (uint32_t i = 0; i < count && (total == 0 || list); i++) {
        if (list) printf("%-26s %s\n", programs[i]->name, programs[i]->promise);
        else (void)run(programs[i], &config);
    }
    if (list) return 0;
    printf("modelcheck: %lu executions, %lu violations, %.0f per second", (unsigned long)sum.executions,
           (unsigned long)sum.violations, (double)sum.executions / (sum.time > 1e-9 ? sum.time : 1e-9));
    if (sum.repeated > 0) printf("; %lu walks repeated an earlier one", (unsigned long)sum.repeated);
    if (sum.incomplete > 0)
        printf("; %lu of %lu programs not completely explored", (unsigned long)sum.incomplete,
               (unsigned long)sum.programs);
    printf("\n");
    return sum.violations > 0 || sum.programs == 0 ? 1 : 0;
}
