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

/* A payload ready to be sent, and its content. The struct must not be copied, because `data` may point into it. */
typedef struct payload {
    content    says;
    filch_data data;
    void      *moved; /* block for filch_move(), owned by the test until a call takes it */
    char       room[PAYLOAD_MAX + 1];
} payload;

typedef struct payload_books {
    /* moved: number of blocks passed by filch_move; freed: number of these blocks that were freed */
    uint64_t moved, freed;
    /* shared: number of payloads shared by filch_share; unshared: number of shared payloads that were released */
    uint64_t shared, unshared;
} payload_books;

extern payload_books payload_counts;

/* Makes a payload of the form that the input chooses. `seed` makes its content differ from the contents of earlier
 * payloads. */
void payload_pack(payload *p, fuzz_bytes *in, uint64_t seed);

/* Returns true if the content differs from the contents of all other payloads that were made. */
bool payload_is_unique(const payload *p);

/* Must be called after the payload was passed to a library call. `took`: the call returned FILCH_OK and so has taken
 * the payload. */
void payload_sent(payload *p, bool took);

/* Makes a shared payload of the given content. Returns false if there is no memory. */
bool payload_share(content says, filch_data *out);

bool payload_is(const content *says, const filch_data *data);

#endif
