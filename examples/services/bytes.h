/* bytes.h - a byte buffer that grows. An all-zero struct is an empty buffer without memory. */
#ifndef SERVICE_BYTES_H
#define SERVICE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    char  *at;
    size_t size, room;
    size_t whole;  /* if the buffer holds replies: end of the last complete reply, set by bytes_mark() */
    bool   failed; /* memory ran out, so bytes are missing at the end of the buffer */
    /* `at` points to memory of another owner: used until it is full, then replaced by allocated memory */
    bool borrowed;
} bytes;

/* Makes space for `size` more bytes at the end. Returns a pointer to the space, or NULL if there is no memory. Does not
 * change b->size: the caller adds the number of bytes it has written. */
static inline char *bytes_room(bytes *b, size_t size)
{
    if (b->room - b->size < size) {
        size_t room = b->room < 512 ? 1024 : b->room * 2;
        if (room < b->size + size) room = b->size + size;
        char *more = realloc(b->borrowed ? NULL : b->at, room);
        if (more == NULL) {
            b->failed = true;
            return NULL;
        }
        if (b->borrowed) memcpy(more, b->at, b->size);
        b->borrowed = false;
        b->at = more;
        b->room = room;
    }
    return b->at + b->size;
}

static inline void bytes_add(bytes *b, const void *from, size_t size)
{
    char *to = bytes_room(b, size);
    if (to == NULL || size == 0) return;
    memcpy(to, from, size);
    b->size += size;
}

static inline void bytes_text(bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

static inline void bytes_free(bytes *b)
{
    if (!b->borrowed) free(b->at);
    *b = (bytes){ .at = NULL };
}

/* Marks all bytes so far as complete: they can be sent even if the bytes appended later must be cut off. */
static inline void bytes_mark(bytes *b)
{
    if (!b->failed) b->whole = b->size;
}

/* Removes the bytes at the end that bytes_mark() has not marked as complete. */
static inline void bytes_cut(bytes *b)
{
    b->size = b->whole;
}

/* Removes the first `size` bytes. If the buffer is empty then, frees its memory. */
static inline void bytes_eat(bytes *b, size_t size)
{
    if (size == b->size) {
        bytes_free(b);
        return;
    }
    memmove(b->at, b->at + size, b->size - size);
    b->size -= size;
}

#endif
