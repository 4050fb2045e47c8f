/* prng.h - a small deterministic random number generator: xorshift64*, seeded by one splitmix step. Not for secrets. */
#ifndef FLI_BASE_PRNG_H
#define FLI_BASE_PRNG_H

#include <stdint.h>

typedef struct fli_prng {
    uint64_t state; /* never zero */
} fli_prng;

/* Returns `x` with its bits mixed, so that neighbouring values give unrelated results. */
static inline uint64_t fli_prng_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline void fli_prng_init(fli_prng *prng, uint64_t seed)
{
    uint64_t mixed = fli_prng_mix(seed);
    prng->state = mixed != 0 ? mixed : 1;
}

static inline uint64_t fli_prng_next(fli_prng *prng)
{
    uint64_t x = prng->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    prng->state = x;
    return x * 0x2545f4914f6cdd1du;
}

/* Returns a number from 0 to bound-1; bound > 0. The bias is below bound / 2^32, which is negligible here. */
static inline uint32_t fli_prng_below(fli_prng *prng, uint32_t bound)
{
    return (uint32_t)(((fli_prng_next(prng) >> 32) * (uint64_t)bound) >> 32);
}

#endif
