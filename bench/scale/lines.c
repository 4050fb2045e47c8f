/* lines.c - see lines.h. */
#include "scale/lines.h"

#include "scale/heap.h"

#define LINE_SHIFT 6
#define PAGE_SHIFT 12
#define PAGE_LINES (1u << (PAGE_SHIFT - LINE_SHIFT))
#define HOLDER_WORDS (SCALE_CORES_MAX / 64)

/* ---- private caches: sets of line numbers, the most recently used first ---- */

#define L1_SETS 256 /* 768 lines: 48 KiB */
#define L1_WAYS 3
#define L2_SETS 4096 /* 32768 lines: 2 MiB */
#define L2_WAYS 8

struct scale_cache {
    uint32_t l1[L1_SETS][L1_WAYS];
    uint32_t l2[L2_SETS][L2_WAYS];
};

/* ---- the directory ---- */

typedef struct line {
    uint64_t holders[HOLDER_WORDS]; /* bit i: core i holds a valid copy */
    scale_ps free_at;               /* time at which the last transfer of this cache line ends */
    int32_t  owner;                 /* number of the core that may write the cache line; or SHARED or UNTOUCHED */
} line;

enum { SHARED = -1, UNTOUCHED = -2 };

typedef struct page {
    uintptr_t number;
    uint32_t  first_line; /* number of the first cache line of the page; 0 is not used */
    line      lines[PAGE_LINES];
} page;

/* Pages are allocated in chunks. */
#define CHUNK_PAGES 128
typedef struct chunk {
    struct chunk *next;
    page          pages[CHUNK_PAGES];
} chunk;

struct scale_lines {
    scale_machine machine;
    page        **table; /* hash table with open addressing; its size is a power of two */
    size_t        size, used;
    chunk        *chunk; /* list of chunks, the newest first; the newest chunk has used % CHUNK_PAGES pages in use */
    uint32_t      sockets[SCALE_CORES_MAX]; /* socket of each core that has accessed a line */
};

scale_lines *scale_lines_create(const scale_machine *machine)
{
    scale_lines *lines = scale_map(sizeof *lines);
    lines->machine = *machine;
    lines->size = 1u << 12;
    lines->table = scale_map(lines->size * sizeof *lines->table);
    return lines;
}

void scale_lines_destroy(scale_lines *lines)
{
    while (lines->chunk != NULL) {
        chunk *next = lines->chunk->next;
        scale_unmap(lines->chunk, sizeof *lines->chunk);
        lines->chunk = next;
    }
    scale_unmap(lines->table, lines->size * sizeof *lines->table);
    scale_unmap(lines, sizeof *lines);
}

void scale_core_init(scale_core *core, uint32_t index, uint32_t socket)
{
    *core = (scale_core){ .index = index, .socket = socket };
    core->cache = scale_map(sizeof *core->cache);
}

void scale_core_fini(scale_core *core)
{
    scale_unmap(core->cache, sizeof *core->cache);
    core->cache = NULL;
}

static size_t slot_of(const scale_lines *lines, uintptr_t number)
{
    size_t at = (size_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (lines->size - 1);
    while (lines->table[at] != NULL && lines->table[at]->number != number) at = (at + 1) & (lines->size - 1);
    return at;
}

static void grow(scale_lines *lines)
{
    page **old = lines->table;
    size_t old_size = lines->size;
    lines->size *= 2;
    lines->table = scale_map(lines->size * sizeof *lines->table);
    for (size_t i = 0; i < old_size; i++) {
        if (old[i] != NULL) lines->table[slot_of(lines, old[i]->number)] = old[i];
    }
    scale_unmap(old, old_size * sizeof *old);
}

static page *take_page(scale_lines *lines)
{
    if (lines->used % CHUNK_PAGES == 0) {
        chunk *more = scale_map(sizeof *more);
        more->next = lines->chunk;
        lines->chunk = more;
    }
    return &lines->chunk->pages[lines->used++ % CHUNK_PAGES];
}

static page *add_page(scale_lines *lines, uintptr_t number)
{
    if (lines->used * 2 >= lines->size) grow(lines);
    page *p = take_page(lines);
    p->number = number;
    p->first_line = (uint32_t)(lines->used * PAGE_LINES);
    for (unsigned i = 0; i < PAGE_LINES; i++) p->lines[i].owner = UNTOUCHED;
    lines->table[slot_of(lines, number)] = p;
    return p;
}

/* ---- one core ---- */

/* Makes the cache line `number` the most recently used of its set. Returns true if the line was in the set. */
static inline bool use(uint32_t *set, unsigned ways, uint32_t number)
{
    uint32_t before = number;
    for (unsigned i = 0; i < ways; i++) {
        uint32_t at = set[i];
        set[i] = before;
        if (at == number) return true;
        before = at;
    }
    return false;
}

static inline bool use_l1(scale_core *core, uint32_t number)
{
    uint32_t *set = core->cache->l1[(number ^ number >> 8) % L1_SETS];
    return set[0] == number || use(set, L1_WAYS, number);
}

static bool use_l2(scale_core *core, uint32_t number)
{
    return use(core->cache->l2[(number ^ number >> 12) % L2_SETS], L2_WAYS, number);
}

/* Charges an access to a cache line of which the core has a valid copy; the cost depends on whether the copy is in L1,
 * L2 or L3. */
static inline void charge_own_copy(const scale_machine *machine, scale_core *core, uint32_t number)
{
    if (use_l1(core, number)) return;
    if (use_l2(core, number)) {
        core->counts.l2++;
        core->now += machine->l2;
    } else {
        core->counts.l3++;
        core->now += machine->l3;
    }
}

/* ---- transfers ---- */

static inline bool holds(const line *l, uint32_t core)
{
    return (l->holders[core / 64] >> (core % 64) & 1) != 0;
}

static inline void hold(line *l, uint32_t core)
{
    l->holders[core / 64] |= UINT64_C(1) << (core % 64);
}

typedef struct copies {
    /* near: another core of the same socket holds the cache line; far: a core of another socket holds it */
    bool near, far;
} copies;

static copies other_copies(const scale_lines *lines, const line *l, const scale_core *core)
{
    copies found = { false, false };
    for (unsigned word = 0; word < HOLDER_WORDS; word++) {
        for (uint64_t bits = l->holders[word]; bits != 0; bits &= bits - 1) {
            unsigned other = word * 64 + (unsigned)__builtin_ctzll(bits);
            if (other == core->index) continue;
            if (lines->sockets[other] == core->socket) found.near = true;
            else found.far = true;
        }
    }
    return found;
}

/* Returns the latency of an access that misses. A load takes the nearest copy; a write waits until the farthest copy is
 * invalid. */
static scale_ps latency(const scale_lines *lines, const line *l, scale_core *core, scale_access access)
{
    copies other = other_copies(lines, l, core);
    /* the core already has the only copy of the line, so nothing is transferred */
    if (!other.near && !other.far) return 0;
    bool far = access == SCALE_LOAD ? !other.near : other.far;
    core->counts.transfers++;
    if (far) core->counts.far++;
    return far ? lines->machine.far : lines->machine.near;
}

/* Charges a load miss that begins at `start` and takes the time `lasts`. If at most machine.window accesses lie between
 * this miss and the core's last load miss, the core pays only 1 / overlap of the time, because an out-of-order core
 * overlaps misses. */
static void load_line(const scale_lines *lines, scale_core *core, line *l, scale_ps start, scale_ps lasts)
{
    bool close = core->counts.accesses - core->last_miss <= lines->machine.window;
    core->last_miss = core->counts.accesses;
    core->now = start + (close ? lasts / lines->machine.overlap : lasts);
    l->free_at = start + lasts / lines->machine.readers;
    l->owner = SHARED;
    hold(l, core->index);
}

static void own_line(line *l, const scale_core *core)
{
    for (unsigned word = 0; word < HOLDER_WORDS; word++) l->holders[word] = 0;
    hold(l, core->index);
    l->owner = (int32_t)core->index;
}

static scale_ps transfer(scale_lines *lines, scale_core *core, line *l, scale_access access)
{
    lines->sockets[core->index] = core->socket;
    scale_ps before = core->now, lasts = latency(lines, l, core, access);
    scale_ps start = core->now > l->free_at ? core->now : l->free_at;
    if (access == SCALE_LOAD) {
        load_line(lines, core, l, start, lasts);
    } else {
        own_line(l, core);
        l->free_at = start + lasts;
        if (access == SCALE_RMW) core->now = start + lasts;
        else core->now += lasts / lines->machine.buffers;
        if (l->free_at > core->stores_done) core->stores_done = l->free_at;
    }
    core->counts.stall += core->now - before;
    return core->now - before;
}

/* Advances the core's clock until the transfers for its earlier stores have ended. Returns by how much. */
static scale_ps wait_for_stores(scale_core *core)
{
    if (core->stores_done <= core->now) return 0;
    scale_ps waited = core->stores_done - core->now;
    core->now = core->stores_done;
    core->counts.stall += waited;
    return waited;
}

/* ---- an access ---- */

/* Returns the page of the address `at`. If the page is new, charges a page fault. */
static inline page *page_of(scale_lines *lines, scale_core *core, uintptr_t at)
{
    page *p = lines->table[slot_of(lines, at >> PAGE_SHIFT)];
    if (p != NULL) return p;
    core->counts.pages++;
    core->now += lines->machine.page;
    return add_page(lines, at >> PAGE_SHIFT);
}

/* Models the first access to a cache line: the system has just written zeros to its page, so the line is in the L2
 * cache of this core. */
static void touch_first(scale_lines *lines, scale_core *core, line *l, uint32_t number)
{
    lines->sockets[core->index] = core->socket;
    own_line(l, core);
    (void)use_l2(core, number);
}

scale_ps scale_lines_access(scale_lines *lines, scale_core *core, uintptr_t at, scale_access access)
{
    scale_ps waited = 0;
    core->counts.accesses++;
    core->now += lines->machine.hit;
    if (access == SCALE_RMW) {
        core->counts.rmws++;
        waited = wait_for_stores(core);
        core->now += lines->machine.rmw;
    }
    page    *p = page_of(lines, core, at);
    unsigned index = (unsigned)(at >> LINE_SHIFT) % PAGE_LINES;
    line    *l = &p->lines[index];
    if (l->owner == UNTOUCHED) touch_first(lines, core, l, p->first_line + index);
    if (access == SCALE_LOAD ? holds(l, core->index) : l->owner == (int32_t)core->index) {
        charge_own_copy(&lines->machine, core, p->first_line + index);
        return waited;
    }
    waited += transfer(lines, core, l, access);
    (void)use_l1(core, p->first_line + index);
    (void)use_l2(core, p->first_line + index);
    return waited;
}
