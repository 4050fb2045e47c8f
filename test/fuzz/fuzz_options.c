/* fuzz_options.c - every struct that is passed in, with arbitrary fields and arbitrary sizes: options, spawn options,
 * stats, info, report. Invalid ones are refused; the others work; nothing is read or written beyond the size that the
 * struct states.
 *
 * A struct lies at the end of a block of exactly its size, so that the address sanitizer sees an access past it.
 * Pointers to functions and objects are valid or NULL; numbers of threads and allocations are kept small.
 */
#include <stdatomic.h>
#include <stddef.h>

#include <filch.h>

#include "fuzz/bytes.h"
#include "support/alloc.h"

enum { MORE = 64, WORKERS_MOST = 3, NAMES = 3, FIRST = 3, FIRST_SIZE = 40 };

static test_alloc           alloc;
static atomic_uint_fast64_t exits; /* number of on_exit calls; several workers may call on_exit at the same time */

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    (void)user, (void)pid, (void)name, (void)took_ns, (void)finished;
}

static void on_failure(void *user, const filch_failure *failure)
{
    (void)user, (void)failure;
}

static void on_log(void *user, const filch_log_line *line)
{
    (void)user, (void)line;
}

static void on_blackbox(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    (void)user, (void)pid, (void)error, (void)bytes, (void)size;
}

static filch_err on_route(void *user, const filch_package *package)
{
    (void)user, (void)package;
    return FILCH_EUSER;
}

static void on_exit_of(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)error, (void)result;
    exits++;
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type type = { .name = "any", .step = step };

/* Returns a new block of `size` bytes with a copy of `from`, which has `known` bytes. If `size` is smaller than
 * `known`, only the first `size` bytes of `from` are copied. If `size` is larger, the bytes behind the copy are zero,
 * except the last one, which is `rubbish`. */
static void *cut(const void *from, size_t known, size_t size, uint8_t rubbish)
{
    uint8_t *at = malloc(size > 0 ? size : 1);
    if (at == NULL) abort();
    memcpy(at, from, size < known ? size : known);
    if (size > known) {
        memset(at + known, 0, size - known);
        at[size - 1] = rubbish;
    }
    return at;
}

/* Chooses the size that a struct states: usually the right size, sometimes 0, a smaller size or a larger size. A
 * shorter struct ends between two fields, like an older version, because half a pointer cannot be distinguished from a
 * whole one. */
static size_t choose_size(fuzz_bytes *in, size_t right, size_t step)
{
    uint8_t choice = fuzz_byte(in);
    if (choice % 4 != 3) return right;
    size_t size = (size_t)fuzz_byte(in) * (right + MORE) / 255;
    return size < right && size >= sizeof(size_t) ? size / step * step : size;
}

/* ---- options ---- */

/* Chooses the option `blackbox`: a small size, or an invalid one. */
static uint32_t choose_blackbox(fuzz_bytes *in, uint32_t any)
{
    return fuzz_below(in, 8) == 0 ? any | FILCH_BLACKBOX_MAX << 1 : any % 16;
}

static void tame(filch_options *opt, fuzz_bytes *in)
{
    /* Makes valid numbers small. Keeps invalid numbers, because the library must refuse them. */
    if (opt->workers >= 0 && opt->workers <= 1024) opt->workers = 1 + opt->workers % WORKERS_MOST;
    if (fuzz_below(in, 8) != 0) opt->workers = FILCH_NO_WORKERS;
    if (opt->work_queue > 64) opt->work_queue %= 64;
    if (fuzz_below(in, 8) != 0) opt->spare = 0;
    opt->batch_max %= fuzz_below(in, 8) == 0 ? 2048 : 65;
    opt->global_batch %= fuzz_below(in, 8) == 0 ? 512 : 64;
    if (fuzz_below(in, 4) != 0) opt->max_processes %= 1000;
    if (fuzz_below(in, 4) != 0) opt->work_threads %= 8;
    opt->alloc = test_alloc_fn;
    opt->alloc_user = &alloc;
    opt->registry = NULL;
    opt->on_long_step = opt->on_long_step != NULL ? on_long_step : NULL;
    opt->on_failure = opt->on_failure != NULL ? on_failure : NULL;
    opt->on_log = opt->on_log != NULL ? on_log : NULL;
    opt->route = opt->route != NULL ? on_route : NULL;
    opt->on_blackbox = opt->on_blackbox != NULL ? on_blackbox : NULL;
    if (fuzz_below(in, 8) != 0) opt->spare_too = 0;
    opt->blackbox = choose_blackbox(in, opt->blackbox);
    opt->search_ns %= FILCH_MILLISECONDS(1);
    opt->spin_tight %= 100;
    opt->spin_yield %= 100;
    /* Usually no memory limit; otherwise a limit below 1 MiB, which may be too small or large enough. */
    opt->memory_max = opt->memory_max % 4 == 3 ? opt->memory_max % ((size_t)1 << 20) : 0;
}

static bool is_possible(const filch_options *opt, size_t size, uint8_t rubbish)
{
    /* what the library reads: the fields within `size`, and the defaults of all other fields */
    filch_options read = FILCH_OPTIONS_INIT;
    if (size < sizeof opt->size) return false;
    memcpy(&read, opt, size < sizeof read ? size : sizeof read);
    if (size > sizeof *opt && rubbish != 0) return false;
    if (read.workers < FILCH_NO_WORKERS || read.workers > 1024) return false;
    if (read.batch_max > 1024 || read.global_batch > 256 || read.spare != 0) return false;
    if (read.blackbox > FILCH_BLACKBOX_MAX || read.spare_too != 0) return false;
    return read.max_processes <= UINT32_MAX / 2 && read.work_threads <= 1024;
}

/* The test's own counts of processes, and the limits of the scheduler. */
static struct {
    uint64_t alive, listened, most;
    size_t   payload_max, memory_max;
    bool     alone; /* true: no other thread allocates during a call */
    bool     taken[NAMES];
} books;

/* Returns true if `err` is FILCH_ENOMEM and a memory limit is set, which may have caused it. Checks that the allocated
 * bytes do not exceed the limit. */
static bool lacked_memory(filch_err err)
{
    bool limited = books.memory_max != 0 && books.alone;
    MUST(!limited || alloc.bytes <= books.memory_max, "more memory than memory_max");
    return err == FILCH_ENOMEM && books.memory_max != 0;
}

/* Creates a scheduler with options from the input, and checks the result. Returns NULL if no scheduler was created. */
static filch_sched *create(fuzz_bytes *in)
{
    filch_options opt;
    filch_sched  *sched = NULL;
    fuzz_fill(in, &opt, sizeof opt);
    tame(&opt, in);
    size_t size = choose_size(in, sizeof opt, 8);
    /* Without `alloc` the test could not check the memory; without `workers` there would be one worker per CPU. So a
     * shortened struct always includes both. */
    if (size >= sizeof opt.size && size < offsetof(filch_options, registry)) size = offsetof(filch_options, registry);
    uint8_t rubbish = fuzz_below(in, 4) == 0 ? fuzz_byte(in) : 0;
    opt.size = size;
    filch_options *given = cut(&opt, sizeof opt, size < sizeof opt.size ? sizeof opt.size : size, rubbish);
    given->size = size;
    filch_err err = filch_sched_create(&sched, given);
    free(given);
    bool possible = is_possible(&opt, size, rubbish);
    books.alone = opt.workers == FILCH_NO_WORKERS;
    books.most = opt.max_processes != 0 ? opt.max_processes : 1u << 26;
    books.payload_max = size >= offsetof(filch_options, payload_max) + sizeof opt.payload_max ? opt.payload_max : 0;
    books.memory_max = size >= offsetof(filch_options, memory_max) + sizeof opt.memory_max ? opt.memory_max : 0;
    MUST(err == (possible ? FILCH_OK : FILCH_EINVAL) || (possible && lacked_memory(err)), "create with another answer");
    MUST((err == FILCH_OK) == (sched != NULL), "a scheduler without a success, or the other way round");
    return sched;
}

/* ---- spawn options ---- */

static const char *const names[NAMES] = { "a", "another", "" };
static filch_data        first[FIRST]; /* messages for the spawn options of a process */

/* Chooses a name, messages and relations; the other fields of `opt` come from the input. Returns the index of the name,
 * or -1. */
static int choose_more(fuzz_bytes *in, filch_spawn_options *opt)
{
    static const char bytes[FIRST_SIZE];
    int               name = (int)fuzz_below(in, 8);
    opt->name = name < NAMES ? names[name] : NULL;
    first[0] = filch_int(1);
    first[1] = filch_bytes(bytes, FIRST_SIZE);
    first[2] = filch_bytes(NULL, FIRST_SIZE); /* an invalid payload; a spawn with it is refused */
    opt->messages = fuzz_below(in, 4) == 0 ? first : NULL;
    if (fuzz_below(in, 8) != 0) opt->message_count = opt->messages != NULL ? opt->message_count % (FIRST + 1) : 0;
    else opt->message_count = opt->messages != NULL ? (size_t)UINT32_MAX + 1 + opt->message_count % 8 : 1;
    if (fuzz_below(in, 8) != 0) opt->relations &= FILCH_SPAWN_TRAP;
    if (fuzz_below(in, 8) != 0) opt->spare_too = 0;
    return name < NAMES ? name : -1;
}

/* Returns true if the library must refuse the struct, whatever the state of the scheduler. */
static bool is_wrong(const filch_spawn_options *read, size_t size, uint8_t rubbish)
{
    if (size < sizeof read->size || (size > sizeof *read && rubbish != 0)) return true;
    if (read->overflow > FILCH_OVERFLOW_STOP || read->spare != 0 || read->spare_too != 0) return true;
    if (read->blackbox > FILCH_BLACKBOX_MAX && read->blackbox != FILCH_BLACKBOX_OFF) return true;
    if (read->relations > FILCH_SPAWN_ALL || read->message_count > UINT32_MAX) return true;
    return (read->messages == NULL && read->message_count > 0) || (read->name != NULL && read->name[0] == '\0');
}

/* Returns true if a spawn with the options `read` may fail with `err`. */
static bool is_reason(const filch_spawn_options *read, int name, filch_err err)
{
    switch (err) {
    case FILCH_ELIMIT: return books.alive >= books.most;
    case FILCH_EEXISTS: return read->name != NULL && books.taken[name];
    case FILCH_ESTATE: return (read->relations & (FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK)) != 0;
    case FILCH_ETOOBIG: return read->message_count > 1 && books.payload_max != 0 && books.payload_max < FIRST_SIZE;
    case FILCH_EINVAL: return read->message_count > 2;
    default: return false;
    }
}

static bool is_refused(const filch_spawn_options *read, int name)
{
    return is_reason(read, name, FILCH_ELIMIT) || is_reason(read, name, FILCH_EEXISTS) ||
           is_reason(read, name, FILCH_ESTATE) || is_reason(read, name, FILCH_ETOOBIG) ||
           is_reason(read, name, FILCH_EINVAL);
}

static void spawn(fuzz_bytes *in, filch_sched *sched)
{
    filch_spawn_options opt;
    fuzz_fill(in, &opt, sizeof opt);
    opt.method = fuzz_below(in, 8) == 0 ? "any" : NULL;
    if (fuzz_below(in, 8) != 0) opt.args = filch_none();
    opt.args.as.ref.at = NULL;
    opt.args.as.ref.block = NULL;
    opt.values = NULL;
    if (fuzz_below(in, 4) != 0) opt.overflow %= 6;
    if (fuzz_below(in, 4) != 0) opt.mailbox_max %= 1u << 24;
    if (fuzz_below(in, 4) != 0) opt.mailbox_bytes %= (size_t)1 << 30;
    opt.blackbox = choose_blackbox(in, opt.blackbox);
    if (fuzz_below(in, 8) != 0) opt.spare = 0;
    opt.on_exit = opt.on_exit != NULL ? on_exit_of : NULL;
    int                 name = choose_more(in, &opt);
    size_t              size = choose_size(in, sizeof opt, 8);
    uint8_t             rubbish = fuzz_below(in, 4) == 0 ? fuzz_byte(in) : 0;
    filch_spawn_options read = FILCH_SPAWN_OPTIONS_INIT;
    opt.size = size;
    filch_spawn_options *given = cut(&opt, sizeof opt, size < sizeof opt.size ? sizeof opt.size : size, rubbish);
    given->size = size;
    memcpy(&read, &opt, size < sizeof read ? size : sizeof read);
    filch_pid pid;
    filch_err err = filch_spawn(sched, &type, given, &pid);
    free(given);
    bool wrong = is_wrong(&read, size, rubbish);
    if (wrong) MUST(err == FILCH_EINVAL, "impossible spawn options were taken");
    /* The library decides how large a mailbox limit may be; small limits must be accepted. */
    bool large = read.mailbox_max >= 1u << 22 || read.mailbox_bytes >= 1u << 27;
    if (read.method != NULL || read.args.kind != FILCH_KIND_NONE || read.args.form != 0) {
        MUST(err != FILCH_OK, "a type without init took a method or args");
        return;
    }
    if (!wrong && lacked_memory(err)) return;
    if (!wrong && !large) {
        MUST(err == FILCH_OK ? !is_refused(&read, name) : is_reason(&read, name, err), "a spawn with another result");
    }
    if (err != FILCH_OK) return;
    books.alive++;
    books.listened += read.on_exit != NULL;
    if (read.name != NULL) books.taken[name] = true;
    filch_err sent = filch_send(sched, pid, filch_int(1));
    MUST(sent == FILCH_OK || lacked_memory(sent), "the first message was refused");
}

/* ---- structs that the library fills in ---- */

static void look(fuzz_bytes *in, filch_sched *sched)
{
    filch_stats  stats = FILCH_STATS_INIT;
    filch_info   info = { .size = sizeof info };
    size_t       size = choose_size(in, sizeof stats, 1), info_size = choose_size(in, sizeof info, 1);
    filch_stats *given = cut(&stats, sizeof stats, size < sizeof stats.size ? sizeof stats.size : size, 0);
    filch_info  *asked = cut(&info, sizeof info, info_size < sizeof info.size ? sizeof info.size : info_size, 0);
    given->size = size;
    asked->size = info_size;
    MUST(filch_sched_stats(sched, given) == (size < sizeof stats.size ? FILCH_EINVAL : FILCH_OK), "stats");
    MUST(size < sizeof stats.size || given->size <= sizeof stats, "stats state a size that is too large");
    filch_pid pid = { fuzz_u64(in), fuzz_u64(in) };
    filch_err err = filch_inspect(sched, pid, asked);
    MUST(err != FILCH_OK || info_size >= sizeof info.size, "inspect of no size");
    free(given);
    free(asked);
}

/* Stops the scheduler. Before the call all fields of the report contain `rubbish`, except `size`. */
static void stop(filch_sched *sched, uint64_t alive, uint8_t rubbish, size_t size)
{
    filch_report report;
    memset(&report, rubbish, sizeof report);
    filch_report *given = cut(&report, sizeof report, size < sizeof report.size ? sizeof report.size : size, 1);
    given->size = size;
    filch_err err = filch_sched_stop(sched, FILCH_SECONDS(10), given);
    if (size < offsetof(filch_report, terminated)) { /* smaller than any version of the struct, so the stop must fail */
        MUST(err == FILCH_EINVAL, "a report that is too small");
        filch_report_free(given);
        err = filch_sched_stop(sched, FILCH_SECONDS(10), NULL);
    } else {
        MUST(given->ended == alive && given->forced == 0 && given->count == 0, "the report is miscounted");
        filch_report_free(given);
    }
    MUST(err == FILCH_OK, "no end");
    free(given);
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes in = { at, size };
    memset(&alloc, 0, sizeof alloc);
    memset(&books, 0, sizeof books);
    exits = 0;
    uint8_t      rubbish = fuzz_byte(&in);
    size_t       report_size = choose_size(&in, sizeof(filch_report), 1);
    filch_sched *sched = create(&in);
    if (sched != NULL) {
        while (in.left > 0) {
            if (fuzz_below(&in, 4) == 0) look(&in, sched);
            else if (books.alive < 50) spawn(&in, sched);
            else break;
        }
        if (filch_wake_fd(sched) >= 0) MUST(filch_tick(sched, 0, NULL) == FILCH_OK, "a tick failed");
        stop(sched, books.alive, rubbish, report_size);
    }
    MUST(exits == books.listened, "on_exit was not called for every end");
    MUST(alloc.bytes == 0 && alloc.blocks == 0 && alloc.wrong == 0, "memory was left behind");
    return 0;
}
