/* counted.h - what the counting build counts: read-modify-writes, and cache lines that move between threads.
 *
 * Lines are counted by a small model of caches that never run out of room: a line is held by the threads that touched
 * it since it was last written. Writing a line that others hold, or reading one that this thread does not hold, moves
 * it, and is counted. Only atomic accesses of Filch's own code are seen, and taking and giving back a lock, each of
 * which is also one read-modify-write.
 */
#ifndef COUNTED_H
#define COUNTED_H

#include <stdint.h>

void counted_rmw(const volatile void *at);
void counted_store(const volatile void *at);
void counted_load(const volatile void *at);

/* All threads together, since the program began. */
void counted_read(uint64_t *rmws, uint64_t *lines);

#endif
