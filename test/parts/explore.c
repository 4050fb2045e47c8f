/* explore.c - the driver: runs the programs, all executions of each, and prints what came out.
 *
 *     explore [--part NAME] [--bound N] [--spurious N] [--limit N] [--plain] [--replay CHOICES] [--list]
 *
 * --part takes the beginning of a name. Exit 1: a violation; its execution is printed, and how to see it again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parts.h"

static const fli_weak_program *const rooms[] = { parts_litmus, parts_deque, parts_proc, parts_yield, parts_limit, parts_sync, parts_sched };

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

static bool must_fail(const fli_weak_program *program)
{
    return strcmp(program->promise, "a violation") == 0;
}

/* A litmus test says how many outcomes there are. */
static const char *wrong(const fli_weak_program *program, const fli_weak_config *config, const fli_weak_result *result)
{
    if (strncmp(program->name, "litmus_", 7) != 0 || must_fail(program) || config->bound >= 0 || !result->complete) return NULL;
    return result->outcomes == strtoull(program->promise, NULL, 10) ? NULL : "not the outcomes that it should have";
}

static void run(const fli_weak_program *program, const fli_weak_config *config)
{
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
           (double)(result.executions + result.cut) / (took > 1e-9 ? took : 1e-9), result.complete ? "" : ", not all",
           result.loose > 0 ? ", LOOSE STORES" : "", program->promise);
    if (why == NULL) return;
    sum.violations++;
    printf("%s: VIOLATION: %s\n", program->name, why);
    if (result.choices[0] != 0) printf("replay: explore --part %s --replay %s\n", program->name, result.choices);
}

int main(int argc, char **argv)
{
    fli_weak_config config = { .bound = -1, .spurious = 0 };
    const char     *part = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool            list = false;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--list") == 0) list = true;
        else if (strcmp(argv[i], "--plain") == 0) config.plain = true;
        else if (strcmp(argv[i], "--part") == 0) part = next, i++;
        else if (strcmp(argv[i], "--bound") == 0) config.bound = atoi(next), i++;
        else if (strcmp(argv[i], "--spurious") == 0) config.spurious = (uint32_t)atoi(next), i++;
        else if (strcmp(argv[i], "--limit") == 0) config.limit = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--replay") == 0) config.replay = next, i++;
        else {
            fprintf(stderr, "usage: explore [--part NAME] [--bound N] [--spurious N] [--limit N] [--plain] "
                            "[--replay CHOICES] [--list]\n");
            return 2;
        }
    }
    for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++) {
        for (const fli_weak_program *program = rooms[r]; program->name != NULL; program++) {
            if (strncmp(program->name, part, strlen(part)) != 0) continue;
            if (list) printf("%-26s %s\n", program->name, program->promise);
            else run(program, &config);
        }
    }
    if (list) return 0;
    printf("parts: %lu executions, %lu violations, %.0f per second", (unsigned long)sum.executions,
           (unsigned long)sum.violations, (double)sum.executions / (sum.time > 1e-9 ? sum.time : 1e-9));
    if (sum.incomplete > 0) printf("; %lu of %lu programs not to their end", (unsigned long)sum.incomplete, (unsigned long)sum.programs);
    printf("\n");
    return sum.violations > 0 || sum.programs == 0 ? 1 : 0;
}
