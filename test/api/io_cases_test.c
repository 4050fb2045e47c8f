/* io_cases_test.c - situations of a server that runs for long: connects that timed out while their process lives on, a
 * port with old connections that linger, datagrams from changing senders. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

#include "api/io_script.h"

static fixture       w;
static const int32_t worker_counts[] = { FILCH_NO_WORKERS, 2 };

/* A listener with a full queue of connections. The system drops new connections to it, as if the host did not
 * answer. */
typedef struct full_listener {
    int  listener, full[8];
    char address[32];
} full_listener;

static void full_listener_open(full_listener *d)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t          size = sizeof at;
    d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok(bind(d->listener, (struct sockaddr *)&at, sizeof at));
    ok(listen(d->listener, 0));
    ok(getsockname(d->listener, (struct sockaddr *)&at, &size));
    for (int i = 0; i < 8; i++) {
        d->full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(d->full[i], (struct sockaddr *)&at, sizeof at);
    }
    snprintf(d->address, sizeof d->address, "127.0.0.1:%u", ntohs(at.sin_port));
}

static void full_listener_close(full_listener *d)
{
    for (int i = 0; i < 8; i++) close(d->full[i]);
    close(d->listener);
}

TEST(connects_that_time_out_leave_no_descriptor_in_a_live_process)
{
    full_listener d;
    full_listener_open(&d);
    FOR_WORKER_COUNTS({
        script client = SCRIPT(DO_CONNECT_WITHIN(d.address, FILCH_MILLISECONDS(2)), DO_PAUSE,
                               DO_CONNECT_WITHIN(d.address, FILCH_MILLISECONDS(2)),
                               DO_CONNECT_WITHIN(d.address, FILCH_MILLISECONDS(2)),
                               DO_CONNECT_WITHIN(d.address, FILCH_MILLISECONDS(2)), DO_PAUSE);
        script_start(&w, &client);
        UNTIL(&w, script_stage(&client) == 1);
        int before = open_descriptors(); /* the poller exists already, so its descriptors are in `before` */
        ok(filch_send(w.sched, client.actor.pid, filch_none()));
        UNTIL(&w, script_stage(&client) == 5);
        for (int i = 2; i < 5; i++) same(client.result[i].error, FILCH_EDEADLINE);
        same(open_descriptors(), before);
        ok(filch_send(w.sched, client.actor.pid, filch_none()));
        script_ends(&w, &client);
    })
    full_listener_close(&d);
}

/* The server closes the connection before the client does, so the old connection stays at the server's port for a while
 * (TIME_WAIT). */
TEST(a_restarted_server_gets_its_port_although_old_connections_linger){ FOR_WORKER_COUNTS({
    script first = SCRIPT(SERVE, DO_CLOSE);
    script_start(&w, &first);
    UNTIL(&w, is_ready(&first));
    int  fd = peer_connect(&first);
    char byte;
    script_ends(&w, &first);
    same(recv(fd, &byte, 1, 0), 0); /* the server has closed the connection */
    close(fd);
    script again = SCRIPT(DO_LISTEN(first.local));
    script_start(&w, &again);
    script_ends(&w, &again);
    same(again.result[0].error, FILCH_OK);
}) }

TEST(each_datagram_has_the_address_of_its_sender)
{
    FOR_WORKER_COUNTS({
        script server = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS, DO_RECEIVE_FROM(0), DO_PAUSE, DO_RECEIVE_FROM(0),
                               DO_PAUSE, DO_RECEIVE_FROM(0));
        script_start(&w, &server);
        UNTIL(&w, is_ready(&server));
        char senders[3][128];
        char sent[3][128];
        for (int i = 0; i < 3; i++) {
            script client = SCRIPT(DO_DATAGRAM("127.0.0.1:0"), DO_ADDRESS, DO_SEND_TO(server.local, "hello"), DO_PAUSE);
            script_start(&w, &client);
            UNTIL(&w, i == 2 ? script_is_over(&server) : script_stage(&server) == 3 + 2 * (uint32_t)i);
            strcpy(senders[i], server.sender);
            strcpy(sent[i], client.local);
            if (i < 2) ok(filch_send(w.sched, server.actor.pid, filch_none()));
            ok(filch_cancel(w.sched, client.actor.pid));
            script_ends(&w, &client);
        }
        script_ends(&w, &server);
        for (int i = 0; i < 3; i++) assert_string_equal(senders[i], sent[i]);
    })
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connects_that_time_out_leave_no_descriptor_in_a_live_process),
        cmocka_unit_test(a_restarted_server_gets_its_port_although_old_connections_linger),
        cmocka_unit_test(each_datagram_has_the_address_of_its_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
