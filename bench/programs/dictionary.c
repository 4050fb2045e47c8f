/* dictionary.c - 64 clients and a server that holds a map from numbers to numbers. Nine of ten requests are a get, the
 * others a put, and each has a reply. --size is the number of requests. */
#include "programs.h"

#include <string.h>

enum { CLIENTS = 64, KEYS = 10000, SLOTS = 32768, NONE = -1 };

struct request {
    int64_t key, value; /* value NONE: a get */
};

static int64_t value_of(int64_t key)
{
    return 7 * key + 1;
}

/* ---- server: a hash map with linear probing ---- */

struct entry {
    int64_t key, value;
    bool    used;
};

struct server {
    struct entry *map;
    int64_t       puts;
};

static struct entry *find(struct entry *map, int64_t key)
{
    uint64_t at = (uint64_t)key * UINT64_C(11400714819323198485) >> 49;
    while (map[at % SLOTS].used && map[at % SLOTS].key != key) at++;
    return &map[at % SLOTS];
}

static filch_err server_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct server *server = self;
    for (size_t i = 0; i < count; i++) {
        struct request request;
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        memcpy(&request, filch_raw(&events[i].data), sizeof request);
        struct entry *entry = find(server->map, request.key);
        int64_t       reply = entry->used ? entry->value : NONE;
        if (request.value != NONE) {
            *entry = (struct entry){ request.key, request.value, true };
            reply = ++server->puts;
        }
        filch_err err = send_to(out, events[i].from, filch_int(reply));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

/* ---- clients ---- */

struct client {
    filch_pid      server;
    uint64_t       left, random;
    struct request last;
    int64_t        right;
};

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct client *client = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        int64_t reply = filch_as_int(&events[0].data);
        if (client->last.value != NONE) client->right += reply > 0;
        else client->right += reply == NONE || reply == value_of(client->last.key);
    }
    if (client->left == 0) {
        report(client->right);
        return filch_done(out, filch_none());
    }
    client->left--;
    int64_t key = (int64_t)(bench_random(&client->random) >> 33) % KEYS;
    client->last = (struct request){ key, bench_random(&client->random) % 10 == 0 ? value_of(key) : NONE };
    filch_err err = send_to(out, client->server, filch_bytes(&client->last, sizeof client->last));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type server_type = {
    .name = "server", .size = sizeof(struct server), .init = copy_state, .step = server_step
};
static const filch_type client_type = {
    .name = "client", .size = sizeof(struct client), .init = copy_state, .step = client_step
};

bool dictionary(uint64_t variant)
{
    (void)variant;
    uint64_t each = run.size / CLIENTS + 1;
    bench_start(&run, NULL);
    filch_pid server = start(&server_type, &(struct server){ .map = bench_alloc(SLOTS, sizeof(struct entry)) });
    bench_quiet(&run);
    expect_results(CLIENTS);
    bench_begin(&run);
    for (uint64_t i = 0; i < CLIENTS; i++) {
        start(&client_type, &(struct client){ .server = server, .left = each, .random = 7919 * (i + 1) });
    }
    int64_t right = wait_for_results();
    bench_end(&run, CLIENTS * each);
    return right == (int64_t)(CLIENTS * each);
}
