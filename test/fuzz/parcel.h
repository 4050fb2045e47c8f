/* parcel.h - payloads whose content is known: what was packed can be recognised when it comes out somewhere. */
#ifndef FILCH_FUZZ_PARCEL_H
#define FILCH_FUZZ_PARCEL_H

#include <filch.h>

#include "fuzz/bytes.h"

/* What a payload says: its kind, its size, and a number that makes its bytes. */
typedef struct content {
    uint8_t  kind;
    uint32_t size;
    uint64_t seed;
} content;

enum { PARCEL_MAX = 1024 };

/* A payload ready to go, and what it says. Not to be moved: it may point into itself. */
typedef struct parcel {
    content    says;
    filch_data data;
    void      *moved; /* ours until a call takes it */
    char       room[PARCEL_MAX + 1];
} parcel;

typedef struct parcel_books {
    uint64_t moved, freed;   /* blocks handed over by filch_move, and freed */
    uint64_t shared, unshared; /* by filch_share */
} parcel_books;

extern parcel_books parcels;

/* A payload of the form the input chooses. `seed` makes it unlike others. */
void parcel_pack(parcel *p, fuzz_bytes *in, uint64_t seed);

/* Does it say enough to tell it from all others that were packed? */
bool parcel_is_unique(const parcel *p);

/* After a call that was given it: took says whether the call returned FILCH_OK. */
void parcel_sent(parcel *p, bool took);

/* A shared payload of the given content. False: no memory. */
bool parcel_share(content says, filch_data *out);

bool parcel_is(const content *says, const filch_data *data);

#endif
