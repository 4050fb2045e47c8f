/* machine.c - see machine.h. */
#include "scale/machine.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const scale_machine scale_machine_default = {
    .hit = 120,
    .rmw = 700,
    .l2 = 1500,
    .l3 = 40 * SCALE_NS,
    .page = 1700 * SCALE_NS,
    .alloc = 5 * SCALE_NS,
    .clock = 22 * SCALE_NS,
    .pause = 13 * SCALE_NS,
    .near = 70 * SCALE_NS,
    .far = 180 * SCALE_NS,
    .overlap = 4,
    .window = 24,
    .buffers = 16,
    .readers = 4,
    .cores = 32,
    .call = 190 * SCALE_NS,
    .yield = 220 * SCALE_NS,
    .block = 2 * SCALE_US,
    .wake_call = 2 * SCALE_US,
    .wake = 4 * SCALE_US,
    .alarm = 4 * SCALE_US,
    .start = 30 * SCALE_US,
};

/* clang-format off */
#define FIELDS(X) \
    X(hit) X(rmw) X(l2) X(l3) X(page) X(alloc) X(clock) X(pause) X(near) X(far) X(overlap) X(window) X(buffers) X(readers) \
    X(cores) X(call) X(yield) X(block) X(wake_call) X(wake) X(alarm) X(start)
/* clang-format on */

static const struct {
    const char *name;
    size_t      offset;
} fields[] = {
#define FIELD(name) { #name, offsetof(scale_machine, name) },
    FIELDS(FIELD)
#undef FIELD
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

static uint64_t *field_at(scale_machine *machine, size_t i)
{
    return (uint64_t *)(void *)((char *)machine + fields[i].offset);
}

bool scale_machine_set(scale_machine *machine, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals[1] < '0' || equals[1] > '9') return false;
    char *end;
    errno = 0;
    uint64_t value = strtoull(equals + 1, &end, 10);
    if (*end != '\0' || errno != 0) return false;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        size_t length = strlen(fields[i].name);
        if (length != (size_t)(equals - text) || memcmp(fields[i].name, text, length) != 0) continue;
        *field_at(machine, i) = value;
        return true;
    }
    return false;
}
