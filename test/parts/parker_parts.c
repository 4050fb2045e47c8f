/* parker_parts.c - the parker of a worker: the version with a futex, which is used on Linux, and the version with a
 * mutex and a condition (port/parker.c). A thread whose park returns because of an unpark must see the non-atomic
 * memory that was written before the unpark. */
#include "parts.h"
#include "port/thread.h"

/* The version with a mutex, compiled under another name. */
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
    fli_parker           parker;
    lock_parker          lock;
    bool                 of_lock;
    uint32_t             written[2]; /* for each unparking thread: non-atomic memory written before the unpark */
    FLI_ATOMIC(uint32_t) flags[2];
    uint32_t             heard;
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

static void ring(void)
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
    ring();
}

static void unpark_second(void)
{
    t->written[1] = 7;
    ring();
}

/* Two unparks before the park count as one. */
static void set_and_unpark_first(void)
{
    fli_store_rlx(&t->flags[0], 1);
    ring();
}

static void set_and_unpark_second(void)
{
    fli_store_rlx(&t->flags[1], 1);
    ring();
}

static void park_once(void)
{
    must(wait(UINT64_MAX), "a wait without an end ends by a ring");
    must(t->written[0] == 7, "what was done before the ring is seen");
}

/* Parks until both unparks were seen. One return of park may stand for both, but no unpark is lost. */
static void park_until_both(void)
{
    while (fli_load_rlx(&t->flags[0]) + fli_load_rlx(&t->flags[1]) < 2) must(wait(UINT64_MAX), "a ring ends the wait");
}

/* Parks with a timeout. The timeout expires only when no thread can run. */
static void park_with_timeout(void)
{
    t->heard = wait(2000000000);
    if (t->heard) must(t->written[0] == 7, "what was done before the ring is seen");
    else must(wait(UINT64_MAX), "one that came too late ends the next wait");
}

static void park_twice(void)
{
    park_once();
    unpark_second();
    must(wait(UINT64_MAX), "a ring of one's own, too");
}

static void report_outcome(void)
{
    fli_weak_outcome(t->heard);
}

const fli_weak_program parts_parker[] = {
    { .name = "parker_1",
      .promise = "a ring before, at or after falling asleep is heard",
      .setup = setup,
      .threads = { park_once, unpark_first } },
    { .name = "parker_2",
      .promise = "of two who ring neither is missed",
      .setup = setup,
      .threads = { park_until_both, set_and_unpark_first, set_and_unpark_second } },
    { .name = "parker_twice",
      .promise = "a ring that was heard is not heard again",
      .setup = setup,
      .threads = { park_twice, unpark_first } },
    { .name = "parker_timeout",
      .promise = "a wait with an end",
      .setup = setup,
      .threads = { park_with_timeout, unpark_first },
      .check = report_outcome },
    { .name = "parker_lock_1",
      .promise = "the parker out of a lock: an unpark is noticed",
      .setup = setup_lock,
      .threads = { park_once, unpark_first } },
    { .name = "parker_lock_2",
      .promise = "the parker out of a lock: neither of two unparks is missed",
      .setup = setup_lock,
      .threads = { park_until_both, set_and_unpark_first, set_and_unpark_second } },
    { 0 },
};
