/* payload.h - payloads with known content, which can be recognised when they arrive. */
#ifndef FILCH_FUZZ_PAYLOAD_H
#define FILCH_FUZZ_PAYLOAD_H

#include <filch.h>

#include "fuzz/bytes.h"

/* The content of a payload: its kind, its size, and a number that determines its bytes. */
typedef struct content {
    uint8_t  kind;
    uint32_t size;
    uint64_t seed;
} content;

enum { PAYLOAD_MAX = 1024 };

/* A payload ready to be sent, and its content. Must not be copied: it may point into itself. */
typedef struct payload {
    content    says;
    filch_data data;
    void      *moved; /* block for filch_move, owned by the program until a call takes it */
    char       room[PAYLOAD_MAX + 1];
} payload;

typedef struct payload_books {
    uint64_t moved, freed;     /* number of blocks passed by filch_move, and of those freed */
    uint64_t shared, unshared; /* number of payloads shared by filch_share, and of those released */
} payload_books;

extern payload_books payload_counts;

/* Makes a payload of the form that the input chooses. `seed` makes its content different from earlier ones. */
void payload_pack(payload *p, fuzz_bytes *in, uint64_t seed);

/* Returns true if the content is different from every other payload that was made. */
bool payload_is_unique(const payload *p);

/* Must be called after a call that got the payload. `took`: the call returned FILCH_OK. */
void payload_sent(payload *p, bool took);

/* Makes a shared payload of the given content. Returns false if there is no memory. */
bool payload_share(content says, filch_data *out);

bool payload_is(const content *says, const filch_data *data);

#endif
