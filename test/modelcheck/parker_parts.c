/* parker_parts.c - the parker of a worker: the version with a futex, which is used on Linux, and the version with a
 * mutex and a condition (port/parker.c). A thread whose park returns because of an unpark must see the non-atomic
 * memory that was written before the unpark. */
#include "parts.h"
#include "port/thread.h"

/* The parker that uses a mutex instead of a futex, compiled here under another name. */
typedef struct lock_parker {
    fli_mutex lock;
    fli_cond  cond;
    bool      signalled;
} lock_parker;
filch_err lock_parker_init(lock_parker *parker);
void      lock_parker_fini(lock_parker *parker);
void      lock_unpark(lock_parker *parker);
bool      lock_park(lock_parker *parker, uint64_t until_ns);

#define FLI_PARKER_OF_LOCK
#define fli_parker lock_parker
#define fli_parker_init lock_parker_init
#define fli_parker_fini lock_parker_fini
#define fli_unpark lock_unpark
#define fli_park lock_park
#include "port/parker.c"
#undef fli_parker
#undef fli_parker_init
#undef fli_parker_fini
#undef fli_unpark
#undef fli_park

static struct {
    fli_parker  parker;
    lock_parker lock;
    bool        of_lock;
    /* for each thread that unparks: non-atomic memory that it writes before the unpark */
    uint32_t             written[2];
    FLI_ATOMIC(uint32_t) flags[2];
    uint32_t             unparked;
} * t;

static void setup(void)
{
    t = fli_weak_new(sizeof *t);
    (void)!fli_parker_init(&t->parker);
    (void)!lock_parker_init(&t->lock);
}

static void setup_lock(void)
{
    setup();
    t->of_lock = true;
}

static void unpark(void)
{
    if (t->of_lock) lock_unpark(&t->lock);
    else fli_unpark(&t->parker);
}

static bool wait(uint64_t until_ns)
{
    return t->of_lock ? lock_park(&t->lock, until_ns) : fli_park(&t->parker, until_ns);
}

static void unpark_first(void)
{
    t->written[0] = 7;
    unpark();
}

static void unpark_second(void)
{
    t->written[1] = 7;
    unpark();
}

/* Sets a flag, then unparks the other thread. Two unparks before the park count as one. */
static void set_and_unpark_first(void)
{
    fli_store_rlx(&t->flags[0], 1);
    unpark();
}

static void set_and_unpark_second(void)
{
    fli_store_rlx(&t->flags[1], 1);
    unpark();
}

static void park_once(void)
{
    must(wait(UINT64_MAX), "a park without a timeout ends by an unpark");
    must(t->written[0] == 7, "a write before the unpark is seen");
}

/* Parks until the flags of both unparking threads are set. Two unparks may make park return only once, but no unpark
 * may be lost. */
static void park_until_both(void)
{
    while (fli_load_rlx(&t->flags[0]) + fli_load_rlx(&t->flags[1]) < 2)
        must(wait(UINT64_MAX), "an unpark ends the park");
}

/* Parks with a timeout. The timeout expires only when no thread can run. */
static void park_with_timeout(void)
{
    t->unparked = wait(2000000000);
    if (t->unparked) must(t->written[0] == 7, "a write before the unpark is seen");
    else must(wait(UINT64_MAX), "an unpark after the timeout ends the next park");
}

static void park_twice(void)
{
    park_once();
    unpark_second();
    must(wait(UINT64_MAX), "an unpark by the same thread ends its park too");
}

static void report_outcome(void)
{
    fli_weak_outcome(t->unparked);
}

const fli_weak_program parts_parker[] = {
    { .name = "parker_1",
      .promise = "an unpark before, during or after the park is not lost",
      .setup = setup,
      .threads = { park_once, unpark_first } },
    { .name = "parker_2",
      .promise = "of two unparks none is lost",
      .setup = setup,
      .threads = { park_until_both, set_and_unpark_first, set_and_unpark_second } },
    { .name = "parker_twice",
      .promise = "an unpark ends only one park",
      .setup = setup,
      .threads = { park_twice, unpark_first } },
    { .name = "parker_timeout",
      .promise = "a park with a timeout",
      .setup = setup,
      .threads = { park_with_timeout, unpark_first },
      .check = report_outcome },
    { .name = "parker_lock_1",
      .promise = "the version with a mutex: an unpark is not lost",
      .setup = setup_lock,
      .threads = { park_once, unpark_first } },
    { .name = "parker_lock_2",
      .promise = "the version with a mutex: of two unparks none is lost",
      .setup = setup_lock,
      .threads = { park_until_both, set_and_unpark_first, set_and_unpark_second } },
    { 0 },
};
