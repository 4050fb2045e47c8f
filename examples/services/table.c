/* table.c - a hash table in 256 stripes, each with its own lock.
 *
 * Why the data does not belong to a process: each command would cost a message to that process and a reply, and the
 * command itself takes less time than either. So a command runs where it was read, in the connection's step, under the
 * lock of a stripe. Two workers rarely need the same stripe of 256, and each locks it only for a look-up and a copy.
 * That is short enough for a step. (An atomic operation on several keys would need an owner, or locks in order.)
 *
 * INVARIANT  an entry is in the slot given by its hash, or after it with no empty slot between.
 *
 * The hash has a random key, so that clients cannot choose keys that all have the same slot. A stripe that is three
 * quarters full doubles, which delays commands for its keys (1/256 of all) once.
 */
#include "table.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>

#define STRIPES 256
#define SLOTS_FIRST 16
#define NUMBER_MAX 24 /* digits of an int64_t, a sign, and a NUL */

typedef struct entry {
    uint64_t hash;
    /* Numbers of bytes. key_size: of the key. size: of the value, which follows the key in `at`. room: of the space for
     * a value. */
    size_t key_size, size, room;
    char   at[];
} entry;

typedef struct stripe {
    _Alignas(128) pthread_mutex_t lock; /* aligned so that two stripes never share a cache line */
    entry **slots;
    size_t  count, mask; /* mask: number of slots minus 1 */
} stripe;

static stripe   stripes[STRIPES];
static uint64_t secret[2];

/* ---- hash function: multiplies eight bytes at a time to 128 bits, and combines the two halves of the product ---- */

static uint64_t fold(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(slice key)
{
    uint64_t    h = secret[0] ^ key.size, word;
    const char *at = key.at;
    size_t      left = key.size;
    for (; left >= 8; at += 8, left -= 8) {
        memcpy(&word, at, 8);
        h = fold(h ^ word, secret[1] | 1);
    }
    word = 0;
    if (left > 0) memcpy(&word, at, left);
    h = fold(h ^ word, secret[1] | 1);
    return fold(h, secret[0] | 1);
}

/* ---- functions for one stripe; the caller holds the lock of the stripe ---- */

static stripe *lock_stripe(uint64_t hash)
{
    stripe *s = &stripes[hash >> 56];
    pthread_mutex_lock(&s->lock);
    return s;
}

static void unlock_stripe(stripe *s)
{
    pthread_mutex_unlock(&s->lock);
}

/* Returns the index of the slot with `key`, or of the empty slot where `key` belongs. */
static size_t find_locked(const stripe *s, slice key, uint64_t hash)
{
    size_t i = hash & s->mask;
    for (; s->slots[i] != NULL; i = (i + 1) & s->mask) {
        const entry *e = s->slots[i];
        if (e->hash == hash && e->key_size == key.size && memcmp(e->at, key.at, key.size) == 0) break;
    }
    return i;
}

static bool grow_locked(stripe *s)
{
    size_t  mask = s->mask * 2 + 1;
    entry **slots = calloc(mask + 1, sizeof *slots);
    if (slots == NULL) return false;
    for (size_t i = 0; i <= s->mask; i++) {
        if (s->slots[i] == NULL) continue;
        size_t to = s->slots[i]->hash & mask;
        while (slots[to] != NULL) to = (to + 1) & mask;
        slots[to] = s->slots[i];
    }
    free(s->slots);
    s->slots = slots;
    s->mask = mask;
    return true;
}

/* Creates an entry for `key` with space for a value of `room` bytes. */
static entry *entry_make(slice key, uint64_t hash, size_t room)
{
    entry *e = malloc(sizeof *e + key.size + room);
    if (e == NULL) return NULL;
    *e = (entry){ .hash = hash, .key_size = key.size, .room = room };
    memcpy(e->at, key.at, key.size);
    return e;
}

static bool set_locked(stripe *s, slice key, uint64_t hash, slice value)
{
    if (s->count * 4 >= s->mask * 3 && !grow_locked(s)) return false;
    size_t i = find_locked(s, key, hash);
    entry *e = s->slots[i];
    /* Replaces the entry if the new value does not fit, and also if it is much smaller, so that a small value does not
     * keep the memory of a large one. */
    if (e == NULL || e->room < value.size || e->room / 4 > value.size + 64) {
        entry *fresh = entry_make(key, hash, value.size);
        if (fresh == NULL) return false;
        if (e == NULL) s->count++;
        free(e);
        s->slots[i] = e = fresh;
    }
    if (value.size > 0) memcpy(e->at + e->key_size, value.at, value.size);
    e->size = value.size;
    return true;
}

/* Empties slot `i`. Then moves back the entries after it that would no longer be found because of the empty slot. */
static void delete_locked(stripe *s, size_t i)
{
    free(s->slots[i]);
    s->slots[i] = NULL;
    s->count--;
    for (size_t from = (i + 1) & s->mask; s->slots[from] != NULL; from = (from + 1) & s->mask) {
        size_t home = s->slots[from]->hash & s->mask;
        /* the slot given by the entry's hash is after slot `i`, so the entry is still found */
        if (((from - home) & s->mask) < ((from - i) & s->mask)) continue;
        s->slots[i] = s->slots[from];
        s->slots[from] = NULL;
        i = from;
    }
}

/* ---- the table ---- */

bool table_open(void)
{
    if (getrandom(secret, sizeof secret, 0) != sizeof secret) return false;
    for (int i = 0; i < STRIPES; i++) {
        stripes[i].slots = calloc(SLOTS_FIRST, sizeof(entry *));
        if (stripes[i].slots == NULL) return false;
        stripes[i].mask = SLOTS_FIRST - 1;
        pthread_mutex_init(&stripes[i].lock, NULL);
    }
    return true;
}

void table_close(void)
{
    table_clear();
    for (int i = 0; i < STRIPES; i++) {
        free(stripes[i].slots);
        pthread_mutex_destroy(&stripes[i].lock);
    }
}

bool table_get(slice key, bytes *out, void (*head)(bytes *out, size_t size))
{
    uint64_t     hash = hash_of(key);
    stripe      *s = lock_stripe(hash);
    const entry *e = s->slots[find_locked(s, key, hash)];
    if (e != NULL) {
        head(out, e->size);
        bytes_add(out, e->at + e->key_size, e->size);
    }
    unlock_stripe(s);
    return e != NULL;
}

bool table_set(slice key, slice value)
{
    uint64_t hash = hash_of(key);
    stripe  *s = lock_stripe(hash);
    bool     done = set_locked(s, key, hash, value);
    unlock_stripe(s);
    return done;
}

bool table_delete(slice key)
{
    uint64_t hash = hash_of(key);
    stripe  *s = lock_stripe(hash);
    size_t   i = find_locked(s, key, hash);
    bool     there = s->slots[i] != NULL;
    if (there) delete_locked(s, i);
    unlock_stripe(s);
    return there;
}

bool table_has(slice key)
{
    uint64_t hash = hash_of(key);
    stripe  *s = lock_stripe(hash);
    bool     there = s->slots[find_locked(s, key, hash)] != NULL;
    unlock_stripe(s);
    return there;
}

/* Parses the whole value as a number. Returns false unless the number is in canonical form: no spaces, no "+1", no
 * "007". */
static bool number_of(const entry *e, int64_t *number)
{
    char text[NUMBER_MAX], again[NUMBER_MAX];
    if (e->size == 0 || e->size >= sizeof text) return false;
    memcpy(text, e->at + e->key_size, e->size);
    text[e->size] = '\0';
    *number = strtoll(text, NULL, 10);
    return snprintf(again, sizeof again, "%lld", (long long)*number) == (int)e->size &&
           memcmp(text, again, e->size) == 0;
}

static table_sum add_locked(stripe *s, slice key, uint64_t hash, int64_t by, int64_t *result)
{
    char         text[NUMBER_MAX];
    int64_t      number = 0;
    const entry *e = s->slots[find_locked(s, key, hash)];
    if (e != NULL && !number_of(e, &number)) return TABLE_NO_NUMBER;
    if (__builtin_add_overflow(number, by, result)) return TABLE_TOO_LARGE;
    int size = snprintf(text, sizeof text, "%lld", (long long)*result);
    return set_locked(s, key, hash, (slice){ text, (size_t)size }) ? TABLE_SUM : TABLE_NO_MEMORY;
}

table_sum table_add(slice key, int64_t by, int64_t *result)
{
    uint64_t  hash = hash_of(key);
    stripe   *s = lock_stripe(hash);
    table_sum sum = add_locked(s, key, hash, by, result);
    unlock_stripe(s);
    return sum;
}

uint64_t table_count(void)
{
    uint64_t count = 0;
    for (int i = 0; i < STRIPES; i++) {
        pthread_mutex_lock(&stripes[i].lock);
        count += stripes[i].count;
        pthread_mutex_unlock(&stripes[i].lock);
    }
    return count;
}

void table_clear(void)
{
    for (int i = 0; i < STRIPES; i++) {
        stripe *s = &stripes[i];
        pthread_mutex_lock(&s->lock);
        for (size_t k = 0; k <= s->mask; k++) {
            free(s->slots[k]);
            s->slots[k] = NULL;
        }
        s->count = 0;
        pthread_mutex_unlock(&s->lock);
    }
}
