/* io_rounds_test.c - under overload connections are served in the order in which the poller reported them. A connection
 * with a further request is served again only after all connections of the current poll interval. Other ready processes
 * neither starve the connections nor are starved by them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/io_script.h"

enum { MANY = 40, REQUESTS = 3 };

static fixture w;

/* A connection: the process of `actor` has one end, `stream`, and the test has the other end, `fd`. */
typedef struct connection {
    actor        actor;
    filch_stream stream;
    int          index, fd, served;
} connection;

static connection connections[MANY];
static int        order[MANY * REQUESTS], order_count;
static uint64_t   burners;

static void send_request(connection *t)
{
    (void)!send(t->fd, "?", 1, MSG_NOSIGNAL);
}

/* Works for 100 us, so that the next request on the connection has arrived when the step ends. */
static void work(void)
{
    uint64_t end_ns = fli_clock_ns() + 100000;
    while (fli_clock_ns() < end_ns) {}
}

/* Reads requests. For each request the step plays the client too: it sends the next request on the connection, and then
 * works. */
static filch_err play_serve(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    connection *t = me->user;
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) me->note = filch_stream_take(out, &events[i].data, &t->stream);
        else if (events[i].error != FILCH_OK) return events[i].error;
        else {
            order[order_count++] = t->index;
            if (++t->served < REQUESTS) send_request(t);
            work();
        }
        if (t->served == REQUESTS) return filch_done(out, filch_none());
        me->note |= filch_yield_read(out, 1, t->stream, 0, FILCH_FOREVER);
    }
    return filch_idle(out);
}

/* Creates one connection. Its process runs `play` and owns one end of the connection. */
static void connect_one(int index, play_fn play)
{
    connection *t = &connections[index];
    *t = (connection){ .index = index, .actor = { .user = t } };
    actor_start(&w, &t->actor, play);
    UNTIL(&w, fixture_inspect(&w, t->actor.pid).state == FILCH_STATE_IDLE);
    script server = SCRIPT(DO_LISTEN("127.0.0.1:0"), DO_ADDRESS, DO_ACCEPT, DO_GIVE(t->actor.pid));
    script_start(&w, &server);
    UNTIL(&w, is_ready(&server));
    t->fd = peer_connect(&server);
    script_ends(&w, &server);
}

/* Creates MANY connections, each with a process that reads. */
static void connect_all(void)
{
    order_count = 0;
    for (int i = 0; i < MANY; i++) connect_one(i, play_serve);
    for (int i = 0; i < 3; i++) (void)fixture_tick(&w); /* collects the first readiness report of each connection */
}

static void close_all(void)
{
    for (int i = 0; i < MANY; i++) {
        actor_ends(&w, &connections[i].actor, FILCH_OK);
        ok(connections[i].actor.note);
        close(connections[i].fd);
    }
}

/* Waits for a condition, in ticks of `steps` turns. Each tick reads the clock first. Without the limit of `steps`
 * turns, a tick would not return while processes are always ready. */
#define TURNS_UNTIL(steps, condition)                                       \
    for (patience left = patience_begin(FILCH_SECONDS(2)); !(condition);) { \
        if (w.ticks) ok(filch_tick(w.sched, (steps), NULL));                \
        yield_slice();                                                      \
        assert_false(patience_is_over(&left));                              \
    }

TEST(connections_are_served_in_order_of_readiness_once_per_poll_interval)
{
    fixture_begin(&w, FILCH_NO_WORKERS);
    connect_all();
    for (int i = 0; i < MANY; i++) send_request(&connections[i]);
    TURNS_UNTIL(1, order_count == MANY * REQUESTS);
    /* Fairness picks (every eighth turn, or fewer if steps are short) serve a few connections out of order. But each
     * connection is served exactly once in each round. */
    for (int round = 0; round < REQUESTS; round++) {
        int seen[MANY] = { 0 }, out_of_turn = 0;
        for (int i = 0; i < MANY; i++) {
            int index = order[round * MANY + i];
            same(++seen[index], 1);
            if (round == 0 && i > 0 && index < order[i - 1]) out_of_turn++;
        }
        assert_true(out_of_turn <= MANY / 4);
    }
    close_all();
    fixture_end(&w);
}

/* ---- connections beside other processes that are always ready ---- */

static filch_err burner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    if (has_cancel(events, count)) return filch_done(out, filch_none());
    burners++;
    return filch_continue(out);
}

static const filch_type burner = { .name = "burner", .step = burner_step };

static filch_err play_spawns_and_waits(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    filch_sched *sched = filch_out_sched(out);
    connection  *t = me->user;
    if (has_cancel(events, count)) return FILCH_ECANCELLED;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) me->note = filch_stream_take(out, &events[i].data, &t->stream);
        else if (t->served++ == 0) {
            /* Spawns many processes in the middle of a poll interval. Connections must be served before the deque has
             * shrunk to its earlier length. */
            for (int k = 0; k < 100; k++) me->note |= filch_spawn(sched, &burner, NULL, NULL);
        }
        if (t->served == 2) return filch_done(out, filch_none());
        me->note |= filch_yield_read(out, 1, t->stream, 0, FILCH_FOREVER);
    }
    return filch_idle(out);
}

TEST(many_ready_processes_do_not_keep_descriptors_from_being_polled)
{
    static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 1 };
    for (size_t each = 0; each < COUNT_OF(worker_counts); each++) {
        connection *t = &connections[0];
        burners = 0;
        fixture_begin(&w, worker_counts[each]);
        connect_one(0, play_spawns_and_waits);
        send_request(t);
        TURNS_UNTIL(10, fixture_stats(&w).alive > 50);
        send_request(t);
        TURNS_UNTIL(1000, is_over(&t->actor));
        ok(t->actor.note);
        same(t->actor.exit_error, FILCH_OK);
        close(t->fd);
        fixture_end(&w);
        assert_true(burners > 100); /* the spawned processes have run, not only the connections */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_are_served_in_order_of_readiness_once_per_poll_interval),
        cmocka_unit_test(many_ready_processes_do_not_keep_descriptors_from_being_polled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
