/* counted.h - what the counting build counts: read-modify-writes, and cache lines that move between threads. A simple
 * model of caches without size limit decides when a line moves. A thread holds a line if it has accessed the line since
 * another thread last wrote it. A write moves the line if another thread holds it; a read moves the line if this thread
 * does not hold it. Each move is counted. Only atomic accesses in Filch's own code are counted, and locking and
 * unlocking, each of which is also one read-modify-write. */
#ifndef COUNTED_H
#define COUNTED_H

#include <stdint.h>

void counted_rmw(const volatile void *at);
void counted_store(const volatile void *at);
void counted_load(const volatile void *at);

/* Returns two counts since the program started, summed over all threads: atomic read-modify-writes, and moves of a
 * cache line from one thread to another. */
void counted_read(uint64_t *rmws, uint64_t *lines);

#endif
