/* parcel.h - payloads with known content, which can be recognised when they arrive. */
#ifndef FILCH_FUZZ_PARCEL_H
#define FILCH_FUZZ_PARCEL_H

#include <filch.h>

#include "fuzz/bytes.h"

/* The content of a payload: its kind, its size, and a number that determines its bytes. */
typedef struct content {
    uint8_t  kind;
    uint32_t size;
    uint64_t seed;
} content;

enum { PARCEL_MAX = 1024 };

/* A payload ready to be sent, and its content. Must not be copied: it may point into itself. */
typedef struct parcel {
    content    says;
    filch_data data;
    void      *moved; /* block for filch_move, owned by the program until a call takes it */
    char       room[PARCEL_MAX + 1];
} parcel;

typedef struct parcel_books {
    uint64_t moved, freed;     /* number of blocks passed by filch_move, and of those freed */
    uint64_t shared, unshared; /* number of payloads shared by filch_share, and of those released */
} parcel_books;

extern parcel_books parcels;

/* Makes a payload of the form that the input chooses. `seed` makes its content different from earlier ones. */
void parcel_pack(parcel *p, fuzz_bytes *in, uint64_t seed);

/* Returns true if the content is different from every other payload that was made. */
bool parcel_is_unique(const parcel *p);

/* Must be called after a call that got the payload. `took`: the call returned FILCH_OK. */
void parcel_sent(parcel *p, bool took);

/* Makes a shared payload of the given content. Returns false if there is no memory. */
bool parcel_share(content says, filch_data *out);

bool parcel_is(const content *says, const filch_data *data);

#endif
