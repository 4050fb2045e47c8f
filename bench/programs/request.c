/* request.c - ten clients, each with a server of its own. A request has a payload of `variant` bytes with a serial
 * number in it, the reply a new payload of the same size with the next number. With variant 0 the payload is the number
 * itself: the price of bytes is the difference. --size is the number of round trips. */
#include "programs.h"

#include <string.h>

enum { PAIRS = 10 };

static uint64_t payload_size;

/* The state of a client or server. `buffer` is the memory in which the next payload is made. */
struct side {
    filch_pid server; /* of a client */
    char     *buffer;
    int64_t   left, serial;
};

static int64_t serial_of(const filch_data *data)
{
    int64_t serial = -1;
    if (payload_size == 0) return filch_as_int(data);
    if (filch_size(data) == payload_size) memcpy(&serial, filch_raw(data), sizeof serial);
    return serial;
}

/* Returns a payload that contains the number `serial`, made in the buffer of `side`. */
static filch_data payload_of(struct side *side, int64_t serial)
{
    if (payload_size == 0) return filch_int(serial);
    memcpy(side->buffer, &serial, sizeof serial);
    return filch_bytes(side->buffer, payload_size);
}

static filch_err server_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct side *server = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        int64_t serial = serial_of(&events[i].data) + 1;
        if (payload_size != 0) memcpy(server->buffer, filch_raw(&events[i].data), payload_size);
        filch_err err = send_to(out, events[i].from, payload_of(server, serial));
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

static filch_err client_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct side *client = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (serial_of(&events[0].data) != client->serial + 1) return FILCH_EUSER;
        client->serial++;
        client->left--;
    }
    if (client->left == 0) {
        report(client->serial);
        return filch_done(out, filch_none());
    }
    filch_err err = send_to(out, client->server, payload_of(client, client->serial));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type server_type = {
    .name = "server", .size = sizeof(struct side), .init = copy_state, .step = server_step
};
static const filch_type client_type = {
    .name = "client", .size = sizeof(struct side), .init = copy_state, .step = client_step
};

bool request(uint64_t variant)
{
    int64_t   each = (int64_t)run.size / PAIRS + 1;
    filch_pid servers[PAIRS];
    payload_size = variant;
    bench_start(&run, NULL);
    for (int i = 0; i < PAIRS; i++)
        servers[i] = start(&server_type, &(struct side){ .buffer = bench_alloc(1, variant) });
    bench_quiet(&run);
    expect_results(PAIRS);
    bench_begin(&run);
    for (int i = 0; i < PAIRS; i++) start(&client_type, &(struct side){ servers[i], bench_alloc(1, variant), each, 0 });
    int64_t answered = wait_for_results();
    bench_end(&run, (uint64_t)(PAIRS * each));
    return answered == PAIRS * each;
}
