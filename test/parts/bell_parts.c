/* bell_parts.c - the bell on which a worker sleeps: the one that ships, over a futex, and the one out of a lock (port/bell.c).
 * What is written before a ring is plain memory, read after the wait that hears it. */
#include "parts.h"
#include "port/thread.h"

/* The other one, under another name. */
typedef struct lock_bell {
    fli_mutex lock;
    fli_cond  cond;
    bool      rung;
} lock_bell;
filch_err lock_bell_init(lock_bell *bell);
void      lock_bell_fini(lock_bell *bell);
void      lock_bell_ring(lock_bell *bell);
bool      lock_bell_wait(lock_bell *bell, uint64_t until_ns);

#define FLI_BELL_OF_LOCK
#define fli_bell lock_bell
#define fli_bell_init lock_bell_init
#define fli_bell_fini lock_bell_fini
#define fli_bell_ring lock_bell_ring
#define fli_bell_wait lock_bell_wait
#include "port/bell.c"
#undef fli_bell
#undef fli_bell_init
#undef fli_bell_fini
#undef fli_bell_ring
#undef fli_bell_wait

static struct {
    fli_bell  bell;
    lock_bell lock;
    bool      of_lock;
    uint32_t  left[2]; /* by the two who ring: what they wrote before */
    FLI_ATOMIC(uint32_t) told[2];
    uint32_t heard;
} * t;

static void setup(void)
{
    t = fli_weak_new(sizeof *t);
    (void)!fli_bell_init(&t->bell);
    (void)!lock_bell_init(&t->lock);
}

static void setup_lock(void)
{
    setup();
    t->of_lock = true;
}

static void ring(void)
{
    if (t->of_lock) lock_bell_ring(&t->lock);
    else fli_bell_ring(&t->bell);
}

static bool wait(uint64_t until_ns)
{
    return t->of_lock ? lock_bell_wait(&t->lock, until_ns) : fli_bell_wait(&t->bell, until_ns);
}

static void ring_first(void)
{
    t->left[0] = 7;
    ring();
}

static void ring_second(void)
{
    t->left[1] = 7;
    ring();
}

/* Rings that come before the wait count as one. */
static void tell_first(void)
{
    fli_store_rlx(&t->told[0], 1);
    ring();
}

static void tell_second(void)
{
    fli_store_rlx(&t->told[1], 1);
    ring();
}

static void hear(void)
{
    must(wait(UINT64_MAX), "a wait without an end ends by a ring");
    must(t->left[0] == 7, "what was done before the ring is seen");
}

/* Until both have been heard of: a ring for one may stand for both, but none is lost. */
static void hear_both(void)
{
    while (fli_load_rlx(&t->told[0]) + fli_load_rlx(&t->told[1]) < 2) must(wait(UINT64_MAX), "a ring ends the wait");
}

/* With an end that comes when nobody can go on. */
static void hear_in_time(void)
{
    t->heard = wait(2000000000);
    if (t->heard) must(t->left[0] == 7, "what was done before the ring is seen");
    else must(wait(UINT64_MAX), "one that came too late ends the next wait");
}

static void hear_twice(void)
{
    hear();
    ring_second();
    must(wait(UINT64_MAX), "a ring of one's own, too");
}

static void tell(void)
{
    fli_weak_outcome(t->heard);
}

const fli_weak_program parts_bell[] = {
    { .name = "bell_1", .promise = "a ring before, at or after falling asleep is heard", .setup = setup,
      .threads = { hear, ring_first } },
    { .name = "bell_2", .promise = "of two who ring neither is missed", .setup = setup,
      .threads = { hear_both, tell_first, tell_second } },
    { .name = "bell_twice", .promise = "a ring that was heard is not heard again", .setup = setup,
      .threads = { hear_twice, ring_first } },
    { .name = "bell_in_time", .promise = "a wait with an end", .setup = setup,
      .threads = { hear_in_time, ring_first }, .check = tell },
    { .name = "bell_lock_1", .promise = "the bell out of a lock: a ring is heard", .setup = setup_lock,
      .threads = { hear, ring_first } },
    { .name = "bell_lock_2", .promise = "the bell out of a lock: of two who ring neither is missed", .setup = setup_lock,
      .threads = { hear_both, tell_first, tell_second } },
    { 0 },
};
