/* replay_main.c - a fuzzer as an ordinary program, for compilers without libFuzzer:
 *
 *     fuzz_NAME [FOLDER or FILE]... [--random N] [--seed S]
 *
 * Runs every file, then N inputs made by a small random generator, scaled by FILCH_TEST_SCALE. An input that crashes
 * the program is written to fuzz-failed.input: give that file as the argument to repeat it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "fuzz/bytes.h"

enum { INPUT_MAX = 1 << 16, RANDOM_MAX = 1024 };

static uint8_t  input[INPUT_MAX];
static size_t   input_size;
static uint64_t files, made;

/* A function of the sanitizers; NULL if no sanitizer is linked. It sets the function that the sanitizers call before
 * they end the program. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void leave_input(void)
{
    static const char text[] = "the input is in fuzz-failed.input\n";
    int               fd = open("fuzz-failed.input", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return;
    (void)!write(fd, input, input_size);
    (void)!write(2, text, sizeof text - 1);
    close(fd);
}

static void on_end(int signal_number)
{
    leave_input();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void catch_ends(void)
{
    static const int ends[] = { SIGABRT, SIGILL, SIGTRAP, SIGFPE, SIGSEGV, SIGBUS };
    size_t           count = sizeof ends / sizeof ends[0];
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(leave_input);
        count -= 2; /* leaves out SIGSEGV and SIGBUS, which the sanitizers report themselves */
    }
    for (size_t i = 0; i < count; i++) signal(ends[i], on_end);
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    input_size = fread(input, 1, sizeof input, file);
    fclose(file);
    (void)LLVMFuzzerTestOneInput(input, input_size);
    files++;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Runs the files in the order of their names, because the order of a folder's entries is arbitrary. */
static void run_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    char  *names[4096];
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && count < sizeof names / sizeof names[0];) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        names[count++] = strdup(name);
    }
    closedir(folder);
    qsort(names, count, sizeof names[0], compare);
    for (size_t i = 0; i < count; i++) {
        run_file(names[i]);
        free(names[i]);
    }
}

static void run(const char *path)
{
    struct stat what;
    if (stat(path, &what) == 0 && S_ISDIR(what.st_mode)) run_folder(path);
    else run_file(path);
}

/* Runs random inputs: half of them with bytes of any value, half with only a few byte values, so that operations
 * repeat. */
static void run_random(uint64_t seed)
{
    fli_prng prng;
    fli_prng_init(&prng, seed);
    input_size = fli_prng_below(&prng, RANDOM_MAX);
    uint32_t values = fli_prng_below(&prng, 2) == 0 ? 256 : 1 + fli_prng_below(&prng, 32);
    uint64_t first = fli_prng_next(&prng);
    for (size_t i = 0; i < input_size; i++) {
        input[i] = (uint8_t)fli_prng_mix(values == 256 ? fli_prng_next(&prng) : first + fli_prng_below(&prng, values));
    }
    (void)LLVMFuzzerTestOneInput(input, input_size);
    made++;
}

int main(int argc, char **argv)
{
    uint64_t    count = 0, seed = 1;
    const char *percent = getenv("FILCH_TEST_SCALE");
    catch_ends();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--random") == 0 && i + 1 < argc) count = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = strtoull(argv[++i], NULL, 10);
        else run(argv[i]);
    }
    if (percent != NULL) count = count * strtoull(percent, NULL, 10) / 100;
    for (uint64_t i = 0; i < count; i++) run_random(seed + i);
    printf("%" PRIu64 " files, %" PRIu64 " random inputs: no findings\n", files, made);
    return 0;
}
