/* deque_stress.c - the deque under real threads: every item is delivered exactly once.
 *
 *     deque_stress ITEMS THIEVES
 *
 * One owner pushes the numbers 1..ITEMS in bursts of random length and pops in bursts between them; sometimes it takes
 * the oldest item. Thieves take halves of the owner's deque, or of each other's, into their own deques and pop those.
 * Most bursts are short, so that owner and thieves compete for a few items. Every 1024 bursts, if all thieves use the
 * current deque, the owner changes to a new deque, which is small again and whose indices are about to wrap. So growing
 * and wrapping happen often while thieves use the deque.
 *
 * The thread that gets a number clears its bit in a map that begins full. A bit that is already clear was delivered
 * twice; a bit that is left at the end was lost. Each number also has a non-atomic byte, which the owner writes before
 * the push and the thread that takes the item reads. If the deque did not order the push before the take, TSan would
 * report a race, and a weakly ordered machine might read an old byte. So the checks themselves use relaxed operations,
 * and the last thief never steals from the owner: the checks must not add an order that the deque lacks. Memory: 9 bits
 * per item.
 *
 * The first error ends the program, because the deque is in an unknown state then.
 * Exit: 0 no error found; 1 an item was duplicated, lost, invented or overlooked; 2 wrong usage or no memory. A trap is
 * an assertion of the deque itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/prng.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/stress.h"
#include "support/yield_slice.h"
#include "sync/deque.h"

enum { THIEVES_MAX = 64 };

#define SECOND_NS UINT64_C(1000000000)

typedef struct player {
    alignas(FLI_LINE) fli_deque deque; /* deque into which this thief steals; the owner uses game.deques instead */
    /* Number of a round; this thief steals from the owner's deque of this round.  writes: the thief.  reads: the owner.
     * PAIR game.left */
    FLI_ATOMIC(uint32_t) round;
    struct game         *game;
    uint32_t             number; /* number of the player; 0: the owner */
    fli_prng             prng;
    /* the fields from here on are not atomic: used only by the player, read by main after the player was joined */
    uint64_t delivered;
    uint64_t steals, stolen, retries;
} player;

typedef struct game {
    uint64_t              items;
    uint32_t              thieves;
    FLI_ATOMIC(uint64_t) *missing; /* one bit per item; set: no thread has taken the item yet */
    /* One byte per item. Not atomic: written before the push, read by the thread that gets the item. */
    unsigned char *notes;
    uint64_t       begun_ns, printed_ns, growths; /* not atomic: used by the owner only */
    bool           terminal;
    /* Number of times the owner has changed to a new deque; the owner uses deques[round % 2].  writes: the owner.  PAIR
     * game.round */
    alignas(FLI_LINE) FLI_ATOMIC(uint32_t) round;
    /* 1: the owner's last deque is empty and the owner will push no more items.  writes: the owner.  PAIR game.over */
    FLI_ATOMIC(uint32_t) over;
    fli_deque            deques[2];
    player               players[THIEVES_MAX + 1];
} game;

static unsigned char note_of(uint64_t item)
{
    return (unsigned char)(fli_prng_mix(item) | 1);
}

static void complain(const player *p, uint64_t item, const char *what)
{
    fprintf(stderr, "\ndeque: item %" PRIu64 " %s (%s %" PRIu32 ")\n", item, what, p->number == 0 ? "owner" : "thief",
            p->number);
    _exit(1);
}

static void no_memory(void)
{
    fprintf(stderr, "\ndeque: out of memory\n");
    _exit(2);
}

static void deliver(player *p, void *got)
{
    game    *g = p->game;
    uint64_t item = (uintptr_t)got;
    if (item == 0 || item > g->items) complain(p, item, "was never pushed");
    if (g->notes[item] != note_of(item)) complain(p, item, "came before what was written ahead of its push");
    uint64_t bit = UINT64_C(1) << (item % 64);
    /* if the bit is set, subtracting it clears it and changes no other bit */
    if ((fli_add_rlx(&g->missing[item / 64], (uint64_t)0 - bit) & bit) == 0) complain(p, item, "was delivered twice");
    p->delivered++;
}

/* Returns how many items to push or take next: usually a small number, sometimes a large one. */
static uint32_t burst(player *p)
{
    uint32_t bits = fli_prng_below(&p->prng, 64) == 0 ? 11 : fli_prng_below(&p->prng, 6);
    return 1 + fli_prng_below(&p->prng, UINT32_C(1) << bits);
}

static void print_progress(game *g, uint64_t pushed)
{
    uint64_t now = fli_clock_ns();
    if (now - g->printed_ns < (g->terminal ? 1 : 20) * SECOND_NS) return;
    g->printed_ns = now;
    printf("%sdeque: %" PRIu64 " of %" PRIu64 " pushed, %" PRIu64 " s%s", g->terminal ? "\r" : "", pushed, g->items,
           (now - g->begun_ns) / SECOND_NS, g->terminal ? "" : "\n");
    fflush(stdout);
}

static void pop_all(player *p, fli_deque *deque)
{
    for (void *got; (got = fli_deque_pop(deque)) != NULL;) deliver(p, got);
}

static void open_deque(fli_deque *deque, uint32_t first_index)
{
    fli_mem mem;
    fli_mem_init(&mem, NULL, NULL);
    if (fli_deque_init(deque, &mem) != FILCH_OK) no_memory();
    fli_atomic_init(&deque->word, first_index);
    fli_atomic_init(&deque->bottom, first_index);
}

static void close_deque(game *g, fli_deque *deque)
{
    for (fli_ring *ring = fli_load_rlx(&deque->ring)->older; ring != NULL; ring = ring->older) g->growths++;
    fli_deque_fini(deque);
}

/* The owner changes to a new deque, which replaces the deque of the previous round. Does nothing if a thief may still
 * use the deque of the previous round. */
static void next_round(player *p)
{
    game    *g = p->game;
    uint32_t round = fli_load_rlx(&g->round); /* relaxed, because only this thread writes `round` */
    for (uint32_t i = 1; i <= g->thieves; i++) {
        if (fli_load_acq(&g->players[i].round) != round) return; /* PAIR game.left, acquire half */
    }
    pop_all(p, &g->deques[round % 2]);
    fli_deque *fresh = &g->deques[(round + 1) % 2];
    close_deque(g, fresh);
    open_deque(fresh, UINT32_MAX - fli_prng_below(&p->prng, 20000));
    fli_store_rel(&g->round, round + 1); /* PAIR game.round, release half */
}

static void take_some(player *p, fli_deque *deque)
{
    bool oldest = fli_prng_below(&p->prng, 16) == 0;
    for (uint32_t n = burst(p); n > 0; n--) {
        void *got = oldest ? fli_deque_take_oldest(deque) : fli_deque_pop(deque);
        if (got == NULL && oldest && (got = fli_deque_pop(deque)) != NULL) {
            complain(p, (uintptr_t)got, "was overlooked by take_oldest");
        }
        if (got == NULL) return;
        deliver(p, got);
    }
}

static void owner(player *p)
{
    game    *g = p->game;
    uint64_t pushed = 0;
    for (uint32_t turn = 1; pushed < g->items; turn++) {
        /* relaxed, because only this thread writes `round` */
        fli_deque *deque = &g->deques[fli_load_rlx(&g->round) % 2];
        for (uint32_t n = burst(p); n > 0 && pushed < g->items; n--) {
            pushed++;
            g->notes[pushed] = note_of(pushed);
            if (!fli_deque_push(deque, (void *)(uintptr_t)pushed)) no_memory();
        }
        take_some(p, deque);
        if (turn % 1024 == 0) {
            next_round(p);
            print_progress(g, pushed);
        }
    }
    pop_all(p, &g->deques[fli_load_rlx(&g->round) % 2]);
    /* PAIR game.over, release half: items not delivered by now are in the deques of thieves */
    fli_store_rel(&g->over, 1);
}

/* Returns the deque from which the thief `p` steals. In half of the cases this is the owner's deque, from which all
 * items come. If there are several thieves, the last thief steals only from other thieves. */
static fli_deque *victim(player *p, uint32_t round)
{
    game    *g = p->game;
    uint32_t number = 1 + fli_prng_below(&p->prng, g->thieves);
    bool     last = p->number == g->thieves && g->thieves > 1;
    if (last && number == p->number) number = 1;
    if (!last && (number == p->number || fli_prng_below(&p->prng, 2) == 0)) return &g->deques[round % 2];
    return &g->players[number].deque;
}

static void thief(void *arg)
{
    player  *p = arg;
    game    *g = p->game;
    uint32_t misses = 0;
    for (;;) {
        /* `over` is read before the search: if `over` is set, no more items are pushed, and the deque of this thief
         * gets only items that this thief steals */
        bool     over = fli_load_acq(&g->over) != 0; /* PAIR game.over, acquire half */
        uint32_t round = fli_load_acq(&g->round);    /* PAIR game.round, acquire half */
        /* PAIR game.left, release half: this thief no longer uses earlier deques */
        fli_store_rel(&p->round, round);
        void    *first;
        uint32_t count;
        switch (fli_deque_steal_half_into(victim(p, round), &p->deque, &first, &count)) {
        case FLI_STEAL_GOT:
            p->steals++;
            p->stolen += count;
            deliver(p, first);
            /* Sometimes leaves the stolen items in its deque for a while, so that other thieves find them. */
            if (fli_prng_below(&p->prng, 16) == 0) yield_slice();
            pop_all(p, &p->deque);
            misses = 0;
            break;
        case FLI_STEAL_RETRY: p->retries++; break;
        case FLI_STEAL_EMPTY:
            if (over) return;
            if (++misses % 64 == 0) yield_slice();
            fli_thread_pause();
            break;
        }
    }
}

/* Checks that every bit of `missing` is clear, and that the counts of all players add up to the number of items. */
static bool check(game *g, uint64_t delivered)
{
    uint64_t lost = 0, example = 0;
    for (uint64_t item = 1; item <= g->items; item++) {
        if ((fli_load_rlx(&g->missing[item / 64]) >> (item % 64) & 1) == 0) continue;
        if (lost++ == 0) example = item;
    }
    if (lost > 0) {
        fprintf(stderr, "\ndeque: %" PRIu64 " items were lost, the first is %" PRIu64 "\n", lost, example);
    } else if (delivered != g->items) {
        fprintf(stderr, "\ndeque: %" PRIu64 " deliveries of %" PRIu64 " items\n", delivered, g->items);
    }
    return lost == 0 && delivered == g->items;
}

static void begin(game *g, uint64_t items, uint32_t thieves)
{
    g->items = items;
    g->thieves = thieves;
    g->terminal = isatty(STDOUT_FILENO) != 0;
    size_t words = (size_t)(items / 64 + 1);
    g->missing = malloc(words * sizeof *g->missing);
    g->notes = calloc((size_t)items + 1, 1);
    if (g->missing == NULL || g->notes == NULL) no_memory();
    for (size_t i = 0; i < words; i++) fli_atomic_init(&g->missing[i], UINT64_MAX);
    open_deque(&g->deques[0], 0);
    open_deque(&g->deques[1], 0);
    for (uint32_t i = 0; i <= thieves; i++) {
        player *p = &g->players[i];
        p->game = g;
        p->number = i;
        fli_prng_init(&p->prng, i);
        open_deque(&p->deque, UINT32_MAX - 1000);
    }
    g->begun_ns = g->printed_ns = fli_clock_ns();
}

static uint64_t play(game *g)
{
    fli_thread threads[THIEVES_MAX];
    for (uint32_t i = 0; i < g->thieves; i++) {
        if (fli_thread_start(&threads[i], "thief", thief, &g->players[i + 1]) != FILCH_OK) {
            fprintf(stderr, "deque: cannot start a thread\n");
            exit(2);
        }
    }
    owner(&g->players[0]);
    uint64_t delivered = g->players[0].delivered;
    for (uint32_t i = 0; i < g->thieves; i++) {
        fli_thread_join(&threads[i]);
        delivered += g->players[i + 1].delivered;
    }
    return delivered;
}

static void end(game *g)
{
    close_deque(g, &g->deques[0]);
    close_deque(g, &g->deques[1]);
    for (uint32_t i = 0; i <= g->thieves; i++) fli_deque_fini(&g->players[i].deque);
    free(g->notes);
    free((void *)g->missing);
}

static void print_totals(game *g)
{
    uint64_t steals = 0, stolen = 0, retries = 0;
    for (uint32_t i = 1; i <= g->thieves; i++) {
        steals += g->players[i].steals;
        stolen += g->players[i].stolen;
        retries += g->players[i].retries;
    }
    printf("%sdeque: %" PRIu64 " steals moved %" PRIu64 " items, %" PRIu64 " claims came late; %" PRIu32
           " deques grew %" PRIu64 " times\n",
           g->terminal ? "\r" : "", steals, stolen, retries, fli_load_rlx(&g->round) + 1, g->growths);
    printf("deque: %" PRIu64 " items, each delivered exactly once (%" PRIu32 " thieves, %.1f s)\n", g->items,
           g->thieves, (double)(fli_clock_ns() - g->begun_ns) / (double)SECOND_NS);
}

int main(int argc, char **argv)
{
    static game g;
    uint64_t    items, thieves;
    if (argc != 3 || !stress_parse(argv[1], 1, UINT64_C(1) << 40, &items) ||
        !stress_parse(argv[2], 1, THIEVES_MAX, &thieves)) {
        fprintf(stderr, "usage: deque_stress ITEMS THIEVES   (at most 2^40 and %d; 9 bits of memory an item)\n",
                THIEVES_MAX);
        return 2;
    }
    begin(&g, items, (uint32_t)thieves);
    uint64_t delivered = play(&g);
    bool     well = check(&g, delivered);
    end(&g);
    if (well) print_totals(&g);
    return well ? 0 : 1;
}
