/* bytes.h - reads the input of a fuzzer byte by byte (zeros after its last byte), and reports what the fuzzer finds. */
#ifndef FILCH_FUZZ_BYTES_H
#define FILCH_FUZZ_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fuzz_bytes {
    const uint8_t *at;
    size_t         left;
} fuzz_bytes;

/* Runs one input. Called by libFuzzer, or by replay_main.c in builds without libFuzzer. */
int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size);

static inline uint8_t fuzz_byte(fuzz_bytes *in)
{
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

/* Returns the next byte of the input modulo `bound`, or 0 if `bound` is 0. */
static inline uint32_t fuzz_below(fuzz_bytes *in, uint32_t bound)
{
    return bound > 0 ? fuzz_byte(in) % bound : 0;
}

/* Fills `to` with the remaining bytes of the input, then with zeros. */
static inline void fuzz_fill(fuzz_bytes *in, void *to, size_t size)
{
    size_t n = size < in->left ? size : in->left;
    memset(to, 0, size);
    if (n > 0) memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
}

static inline uint64_t fuzz_u64(fuzz_bytes *in)
{
    uint64_t value;
    fuzz_fill(in, &value, sizeof value);
    return value;
}

#define MUST(condition, why)                                           \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (why)); \
            abort();                                                   \
        }                                                              \
    } while (0)

#endif
