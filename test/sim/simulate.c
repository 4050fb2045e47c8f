/* simulate.c - runs workloads under many seeds. `simulate --seeds N` runs N seeds, `simulate --seed S --workload W`
 * replays one. Each schedule is drawn completely from its seed: workload, strategy, mean distance of switches, faults.
 * A violation is printed with these choices and with the command that repeats it exactly. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "sim/engine.h"
#include "sim/workload.h"

typedef struct plan {
    uint64_t        first, seeds;
    bool            one;     /* true: run only one seed, to replay it */
    uint32_t        workers; /* number of workers; 0: drawn from the seed */
    uint32_t        size;
    int             strategy; /* a fli_sim_strategy; -1: drawn from the seed */
    const workload *only;
    bool            faults;
    const char     *trace;
    const char     *program;
    bool            quiet; /* true: print nothing, because this run is an attempt of the shrinker */
} plan;

typedef struct job {
    const workload *what;
    uint32_t        workers, size;
} job;

static void run_job(void *arg)
{
    job *j = arg;
    j->what->run(j->workers, j->size);
}

/* The command that repeats the schedule, printed by the handler of fatal signals. */
static char replay[512];
/* in a run of the shrinker: pipe to which the number of points (possible thread switches) before the violation is
 * written; otherwise -1 */
static int points_pipe = -1;

/* Seed, workers and size of the failed schedule that the shrinker starts from. */
static struct {
    char seed[24], workers[16], size[16];
} failed_as;

static volatile uint64_t schedules; /* number of schedules started so far */

static const workload *last_run; /* workload of the last schedule; last_workers: its number of workers */
static uint32_t        last_workers;
static uint64_t        ran_with[64 + 1]; /* number of schedules for each number of workers */
static const char     *program_name;
static bool            replaying, with_faults;

/* Reports a violation and ends the program. Called in the middle of a schedule, when the state of this process is
 * unusable. */
static void end_with(const char *why, int number)
{
    char line[640];
    if (points_pipe >= 0) {
        uint64_t points = fli_sim_points();
        (void)!write(points_pipe, &points, sizeof points);
        _exit(1);
    }
    int n = snprintf(line, sizeof line, "violation: signal %d (%s)\n  %s\n", number, why, replay);
    (void)!write(STDERR_FILENO, line, (size_t)n);
    /* Replaces this process by the shrinker, which searches a shorter schedule. The timer is stopped and the signal
     * mask is cleared, so that the shrinker gets no signal of this timer and can receive all signals. */
    (void)setitimer(ITIMER_VIRTUAL, &(struct itimerval){ 0 }, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!replaying)
        execl("/proc/self/exe", program_name, "--shrink", failed_as.seed, "--workload", last_run->name, "--workers",
              failed_as.workers, "--size", failed_as.size, with_faults ? NULL : "--no-faults", NULL);
    _exit(1);
}

static void on_fatal(int number)
{
    end_with("a broken invariant ended the program", number);
}

/* limit of CPU time between two points (places where the simulator may switch threads); a whole schedule of many
 * thousand points takes less */
#define POINTLESS_SECONDS 2

/* Handler of the CPU time limit. The simulator ends an endless loop that contains points (places where it may switch
 * threads). This handler ends a loop without points, for example over a list that has become circular. */
static void on_time(int number)
{
    static uint64_t before = UINT64_MAX, schedule;
    uint64_t        points = fli_sim_points();
    if (points == before && schedule == schedules) end_with("a thread loops without reaching a point", number);
    before = points;
    schedule = schedules;
}

static void trace_line(void *user, uint64_t point, uint32_t thread, const char *what)
{
    fprintf(user, "%llu %u %s\n", (unsigned long long)point, thread, what);
}

/* Draws the number of workers. Large numbers are drawn less often, because such runs take long to start and to stop. */
static uint32_t draw_workers(fli_prng *prng)
{
    static const uint32_t numbers[16] = { 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 16, 16, 16, 16, 64 };
    return numbers[fli_prng_below(prng, 16)];
}

static bool run_one(const plan *p, uint64_t seed, fli_sim_result *result)
{
    fli_prng prng;
    fli_prng_init(&prng, seed);
    fli_sim_config config = { .seed = seed };
    job            j = { .what = p->only, .size = p->size };
    uint32_t       drawn = fli_prng_below(&prng, workload_count), coin = fli_prng_below(&prng, 2);
    if (j.what == NULL) j.what = &workloads[drawn];
    config.strategy = p->strategy >= 0 ? (fli_sim_strategy)p->strategy : coin ? FLI_SIM_PCT : FLI_SIM_RANDOM;
    config.depth = 2 + fli_prng_below(&prng, 4);
    config.length = 40 * (uint64_t)p->size + 1000;
    if (p->faults) {
        config.spurious = fli_prng_below(&prng, 3) == 0 ? 50 : 0;
        config.weak_fail = fli_prng_below(&prng, 3) == 0 ? 20 : 0;
        config.stall = fli_prng_below(&prng, 3) == 0 ? 5 : 0;
        config.clock_jump = fli_prng_below(&prng, 4) == 0 ? 2 : 0;
    }
    if (p->quiet) config.point_max = 1000000;
    config.check = workload_check;
    config.rest = workload_rest;
    config.check_every = fli_prng_below(&prng, 16) == 0 ? 1 : 64;
    /* drawn last, so that an option --workers does not change the other draws */
    uint32_t some = draw_workers(&prng);
    j.workers = last_workers = p->workers != 0 ? p->workers : some;
    ran_with[j.workers]++;
    FILE *trace = NULL;
    if (p->trace != NULL) {
        trace = fopen(p->trace, "w");
        if (trace == NULL) {
            perror(p->trace);
            exit(2);
        }
        config.trace = true;
        config.trace_line = trace_line;
        config.trace_user = trace;
    }
    snprintf(replay, sizeof replay, "replay with: %s --seed %llu --workload %s --workers %u --size %u%s", p->program,
             (unsigned long long)seed, j.what->name, j.workers, p->size, p->faults ? "" : " --no-faults");
    last_run = j.what;
    snprintf(failed_as.seed, sizeof failed_as.seed, "%llu", (unsigned long long)seed);
    snprintf(failed_as.workers, sizeof failed_as.workers, "%u", j.workers);
    snprintf(failed_as.size, sizeof failed_as.size, "%u", p->size);
    workload_reset();
    schedules++;
    *result = fli_sim_run(&config, run_job, &j);
    if (trace != NULL) fclose(trace);
    if (result->verdict == FLI_SIM_OK) return true;
    if (p->quiet) return false;
    printf("violation: %s\n  workload %s, seed %llu, point %llu, %s\n  %s\n", result->why, j.what->name,
           (unsigned long long)seed, (unsigned long long)result->points,
           config.strategy == FLI_SIM_PCT ? "PCT" : "random walk", replay);
    return false;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the CPU time that this process has used. The printed rate is per CPU time, so that other load on the machine
 * does not change it. */
static double processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Returns the length of the schedule until its violation, in points (places where the simulator may switch threads), or
 * 0 if it has no violation. Runs the schedule in a child process, because it may crash. */
static uint64_t points_of(const plan *p, uint64_t seed)
{
    int   ends[2];
    pid_t child;
    if (pipe(ends) != 0 || (child = fork()) < 0) return 0;
    if (child == 0) {
        fli_sim_result result;
        points_pipe = ends[1];
        /* ends a child that loops without reaching a point; points_of() then returns 0, as for a schedule without a
         * violation */
        alarm(2);
        bool     fine = run_one(p, seed, &result);
        uint64_t points = fine ? 0 : result.points;
        (void)!write(ends[1], &points, sizeof points);
        _exit(fine ? 0 : 1);
    }
    close(ends[1]);
    uint64_t points = 0;
    int      status = 0;
    bool     reported = read(ends[0], &points, sizeof points) == (ssize_t)sizeof points;
    close(ends[0]);
    (void)waitpid(child, &status, 0);
    return reported ? points : 0;
}

#define SHRINK_SECONDS 10

/* Searches a shorter schedule that fails, with fewer workers, fewer messages and other seeds. Prints the shortest one
 * found. */
static void shrink(const plan *failed, uint64_t seed)
{
    plan     best = *failed, tried = *failed;
    uint64_t best_seed = seed, best_points = UINT64_MAX;
    double   began = seconds();
    best.quiet = tried.quiet = true;
    for (uint32_t workers = failed->workers; workers >= 1; workers = workers > 2 ? 2 : workers - 1) {
        for (uint32_t size = failed->size; size >= 8; size /= 2) {
            tried.workers = workers;
            tried.size = size;
            for (uint64_t k = 0; k < 60 && seconds() - began < SHRINK_SECONDS; k++) {
                uint64_t points = points_of(&tried, seed + k);
                if (points == 0 || points >= best_points) continue;
                best = tried;
                best_seed = seed + k;
                best_points = points;
            }
        }
    }
    if (best_points == UINT64_MAX) return;
    printf("  shorter: %llu points, %s --seed %llu --workload %s --workers %u --size %u%s\n",
           (unsigned long long)best_points, best.program, (unsigned long long)best_seed, best.only->name, best.workers,
           best.size, best.faults ? "" : " --no-faults");
}

static int usage(const char *why, const char *what)
{
    if (why != NULL) fprintf(stderr, "simulate: %s%s%s\n", why, what != NULL ? ": " : "", what != NULL ? what : "");
    fprintf(stderr,
            "usage: simulate [--seeds N] [--first S] [--seed S] [--workload NAME] [--workers N|any] [--size MESSAGES]\n"
            "                [--strategy random|pct] [--no-faults] [--trace FILE] [--hash]\nworkloads:\n");
    for (unsigned i = 0; i < workload_count; i++) fprintf(stderr, "  %-8s %s\n", workloads[i].name, workloads[i].about);
    return 2;
}

/* Parses a whole number. Returns false if `text` is not a whole number. */
static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (text == NULL || *text < '0' || *text > '9') return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

int main(int argc, char **argv)
{
    plan     p = { .first = 1, .seeds = 1000, .workers = 4, .size = 1000, .strategy = -1, .faults = true };
    bool     hash = false, shrink_only = false;
    uint64_t value = 0;
    p.program = argv[0];
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(arg, "--no-faults") == 0) {
            p.faults = false;
            continue;
        }
        if (strcmp(arg, "--hash") == 0) {
            hash = true;
            continue;
        }
        i++;
        if (strcmp(arg, "--workload") == 0) {
            for (unsigned k = 0; k < workload_count; k++) {
                if (next != NULL && strcmp(next, workloads[k].name) == 0) p.only = &workloads[k];
            }
            if (p.only == NULL) return usage("no such workload", next);
        } else if (strcmp(arg, "--strategy") == 0) {
            if (next == NULL || (strcmp(next, "pct") != 0 && strcmp(next, "random") != 0))
                return usage("no such strategy", next);
            p.strategy = strcmp(next, "pct") == 0 ? FLI_SIM_PCT : FLI_SIM_RANDOM;
        } else if (strcmp(arg, "--workers") == 0 && next != NULL && strcmp(next, "any") == 0) {
            p.workers = 0;
        } else if (strcmp(arg, "--trace") == 0) {
            if (next == NULL) return usage("--trace needs a file", NULL);
            p.trace = next;
        } else if (!number(next, &value)) {
            return usage("not a number", next != NULL ? next : arg);
        } else if (strcmp(arg, "--seeds") == 0) {
            p.seeds = value;
        } else if (strcmp(arg, "--first") == 0) {
            p.first = value;
        } else if (strcmp(arg, "--seed") == 0) {
            p.first = value;
            p.seeds = 1;
            p.one = true;
        } else if (strcmp(arg, "--shrink") == 0) {
            p.first = value;
            shrink_only = true;
        } else if (strcmp(arg, "--workers") == 0 && value >= 1 && value <= 64) {
            p.workers = (uint32_t)value;
        } else if (strcmp(arg, "--size") == 0 && value >= 1 && value <= 10000000) {
            p.size = (uint32_t)value;
        } else {
            return usage("unknown or out of range", arg);
        }
    }
    program_name = p.program;
    replaying = p.one;
    with_faults = p.faults;
    signal(SIGILL, on_fatal);
    signal(SIGSEGV, on_fatal);
    signal(SIGTRAP, on_fatal);
    signal(SIGVTALRM, on_time);

    if (shrink_only) {
        if (p.only == NULL) return usage("--shrink needs --workload", NULL);
        shrink(&p, p.first);
        return 1;
    }
    struct timeval interval = { .tv_sec = POINTLESS_SECONDS };
    (void)setitimer(ITIMER_VIRTUAL, &(struct itimerval){ interval, interval }, NULL);
    double   began = seconds(), reported = began, worked = processor_seconds();
    bool     live = isatty(STDOUT_FILENO) != 0;
    uint64_t violations = 0, points = 0, switches = 0, sum = 0;
    for (uint64_t i = 0; i < p.seeds; i++) {
        fli_sim_result result;
        if (!run_one(&p, p.first + i, &result) && violations++ == 0 && !p.one) {
            plan one = p;
            one.only = last_run;
            one.workers = last_workers;
            fflush(stdout);
            shrink(&one, p.first + i);
        }
        points += result.points;
        switches += result.switches;
        sum = fli_prng_mix(sum ^ result.hash);
        if (p.one || violations >= 10) {
            p.seeds = i + 1;
            break;
        }
        if (i % 16 == 15 && seconds() - reported > (live ? 0.5 : 30.0)) {
            reported = seconds();
            printf(live ? "\r%llu of %llu schedules, %llu violations " : "%llu of %llu schedules, %llu violations\n",
                   (unsigned long long)i + 1, (unsigned long long)p.seeds, (unsigned long long)violations);
            fflush(stdout);
        }
    }
    double took = seconds() - began;
    worked = processor_seconds() - worked;
    if (live) printf("\r");
    if (hash) printf("hash %016llx\n", (unsigned long long)sum);
    printf("%llu points, %llu switches, %.2f s (%.2f s of processor time)", (unsigned long long)points,
           (unsigned long long)switches, took, worked);
    for (uint32_t n = 1; n <= 64; n++) {
        if (p.workers == 0 && ran_with[n] > 0) printf(", %llu with %u workers", (unsigned long long)ran_with[n], n);
    }
    if (p.workers != 0) printf(", %u workers", p.workers);
    printf("\n");
    printf("sim: %llu schedules, %llu violations, %.0f per second\n", (unsigned long long)p.seeds,
           (unsigned long long)violations, (double)p.seeds / (worked > 1e-9 ? worked : 1e-9));
    return violations > 0 ? 1 : 0;
}
