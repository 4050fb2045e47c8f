/* request_test.c - I/O yields without any I/O: handlers of the test replace the real ones and check each request;
 * requests that are damaged or made by hand are refused. */
#include <string.h>

#include "api/fixture.h"

enum { REQUESTS_MAX = 24, BYTES_MAX = 512 };

/* What the handlers got, in order: copies of the commands' bytes, and the results of filch_io_read(). */
static struct {
    size_t    count;
    uint32_t  id[REQUESTS_MAX];
    filch_pid target[REQUESTS_MAX];
    filch_err err[REQUESTS_MAX];
    /* a request points to texts and bytes that are valid only inside the handler; `text`, `service` and `bytes` are
     * copies of them */
    filch_io_request request[REQUESTS_MAX];
    char             text[REQUESTS_MAX][64], service[REQUESTS_MAX][64], bytes[REQUESTS_MAX][64];
    uint8_t          raw[REQUESTS_MAX][BYTES_MAX];
    size_t           raw_size[REQUESTS_MAX];
} requests;

static void copy(char *to, const void *from, size_t size)
{
    if (from != NULL) memcpy(to, from, size < 63 ? size : 63);
}

static filch_err notes(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    size_t            n = requests.count++;
    filch_io_request *r = &requests.request[n];
    (void)user;
    r->size = sizeof *r;
    requests.id[n] = command->id;
    requests.target[n] = command->target;
    requests.err[n] = filch_io_read(command, r);
    copy(requests.text[n], r->text, r->text_size);
    copy(requests.service[n], r->service, r->service != NULL ? strlen(r->service) : 0);
    copy(requests.bytes[n], r->bytes, r->byte_count);
    requests.raw_size[n] = filch_size(&command->data);
    bool fits = requests.raw_size[n] > 0 && requests.raw_size[n] <= BYTES_MAX;
    if (fits) memcpy(requests.raw[n], filch_raw(&command->data), requests.raw_size[n]);
    return filch_complete(receiver, tag, filch_none(), FILCH_OK);
}

static void begin(fixture *w, size_t payload_max)
{
    static const uint32_t ids[] = {
        FILCH_CMD_CONNECT, FILCH_CMD_LISTEN,       FILCH_CMD_ACCEPT,   FILCH_CMD_RESOLVE,    FILCH_CMD_DATAGRAM,
        FILCH_CMD_SEND_TO, FILCH_CMD_RECEIVE_FROM, FILCH_CMD_READ,     FILCH_CMD_WRITE,      FILCH_CMD_CLOSE,
        FILCH_CMD_SEEK,    FILCH_CMD_OPEN,         FILCH_CMD_SHUTDOWN, FILCH_CMD_IO_CANCEL,  FILCH_CMD_RUN,
        FILCH_CMD_EXIT,    FILCH_CMD_KILL,         FILCH_CMD_SIGNALS,  FILCH_CMD_TAG_CANCEL,
    };
    filch_options opt = FILCH_OPTIONS_INIT;
    memset(&requests, 0, sizeof requests);
    opt.payload_max = payload_max;
    ok(filch_registry_create(&opt.registry));
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        filch_err err = filch_registry_remove(opt.registry, ids[i]);
        assert_true(err == FILCH_OK || err == FILCH_ECOMMAND); /* FILCH_ECOMMAND: the library was built without I/O */
        ok(filch_registry_add(opt.registry, ids[i], notes, NULL));
    }
    fixture_begin_with(w, FILCH_NO_WORKERS, opt);
    filch_registry_destroy(opt.registry);
}

/* Runs `play` as the actor `me`. Checks that `play` makes `yields` yields, and that me->note holds no error. */
static void perform(fixture *w, actor *me, play_fn play, size_t yields)
{
    actor_start(w, me, play);
    fixture_tick(w);
    ok(me->note);
    same(requests.count, yields);
    same(me->seen_count, yields);
}

static const filch_stream tenth = { 10 };

static filch_err play_all(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static const char *const argv[] = { "one", "", "three", NULL };
    static const int         numbers[] = { 1, 64 };
    filch_socket_options     opt = FILCH_SOCKET_OPTIONS_INIT;
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    opt.timeout_ns = 5;
    opt.backlog = 7;
    opt.flags = FILCH_SOCKET_KEEPALIVE;
    me->note |= filch_yield_connect(out, 0, "a:1", &opt);
    me->note |= filch_yield_listen(out, 1, "b:2", NULL);
    me->note |= filch_yield_accept(out, 2, tenth, 9);
    me->note |= filch_yield_resolve(out, 3, "host", NULL);
    me->note |= filch_yield_resolve(out, 4, NULL, "service");
    me->note |= filch_yield_send_to(out, 5, tenth, "c:3", filch_str("sent"), 4);
    me->note |= filch_yield_receive_from(out, 6, tenth, 0, 3);
    me->note |= filch_yield_read(out, 7, tenth, 0, 2);
    me->note |= filch_yield_read_exactly(out, 8, tenth, 11, 1);
    me->note |= filch_yield_read_until(out, 9, tenth, "12345678", 8, 8, 0);
    me->note |= filch_yield_write(out, 10, tenth, filch_str("written"), 6);
    me->note |= filch_yield_seek(out, 11, tenth, -12, 2);
    me->note |= filch_yield_open(out, 12, "path", FILCH_OPEN_WRITE | FILCH_OPEN_CREATE);
    me->note |= filch_yield_run(out, 13, argv, FILCH_RUN_MERGE);
    me->note |= filch_yield_exit(out, 14, tenth, 13);
    me->note |= filch_yield_kill(out, 15, tenth, 9);
    me->note |= filch_yield_signals(out, 16, numbers, 2);
    me->note |= filch_yield_shutdown(out, 17, tenth);
    me->note |= filch_yield_io_cancel(out, 18, tenth);
    me->note |= filch_yield_close(out, 19, tenth);
    me->note |= filch_yield_datagram(out, 20, "d:4", &opt);
    me->note |= filch_yield_tag_cancel(out, 21, UINT64_MAX);
    return filch_idle(out);
}

TEST(a_users_handler_can_read_every_io_request)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 0);
    perform(&w, &a, play_all, 22);
    for (size_t i = 0; i < 22; i++) ok(requests.err[i]);
    const filch_io_request *r = requests.request;
    assert_string_equal(requests.text[0], "a:1");
    same(r[0].timeout_ns, 5);
    same(r[0].backlog, 7);
    same(r[0].how, FILCH_SOCKET_KEEPALIVE);
    same(r[1].backlog, 1024); /* the default */
    same(r[1].timeout_ns, FILCH_FOREVER);
    same(r[2].stream.id, 10);
    same(r[2].timeout_ns, 9);
    assert_string_equal(requests.text[3], "host");
    assert_null(r[3].service);
    assert_null(r[4].text);
    assert_string_equal(requests.service[4], "service");
    assert_string_equal(requests.text[5], "c:3");
    assert_string_equal(requests.bytes[5], "sent");
    same(r[5].byte_count, 4);
    same(r[6].most, 65536);
    same(r[7].most, 65536);
    same(r[7].how, 0);
    same(r[8].most, 11);
    same(r[8].how, 1);
    same(r[9].how, 2);
    same(r[9].delimiter_size, 8);
    assert_memory_equal(r[9].delimiter, "12345678", 8);
    assert_string_equal(requests.bytes[10], "written");
    same(r[11].number, -12);
    same(r[11].how, 2);
    assert_string_equal(requests.text[12], "path");
    same(r[13].text_size, 4 + 1 + 6);
    assert_memory_equal(requests.text[13], "one\0\0three", 11);
    same(r[14].timeout_ns, 13);
    same(r[15].number, 9);
    same(r[16].byte_count, 2 * sizeof(int));
    assert_string_equal(requests.text[20], "d:4");
    same(r[21].number, -1);
    fixture_end(&w);
}

static filch_err play_empty(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note |= filch_yield_write(out, 0, tenth, filch_str(""), 0);
    me->note |= filch_yield_write(out, 1, tenth, filch_bytes(NULL, 0), 0);
    me->note |= filch_yield_send_to(out, 2, tenth, "a:1", filch_str(NULL), 0);
    if (filch_yield_write(out, 3, tenth, filch_none(), 0) != FILCH_EINVAL) me->note = FILCH_EUSER;
    if (filch_yield_send_to(out, 3, tenth, "a:1", filch_int(5), 0) != FILCH_EINVAL) me->note = FILCH_EUSER + 1;
    return filch_idle(out);
}

TEST(an_empty_text_may_be_written_but_a_number_may_not)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 0);
    perform(&w, &a, play_empty, 3);
    for (size_t i = 0; i < 3; i++) {
        ok(requests.err[i]);
        same(requests.request[i].byte_count, 0);
    }
    fixture_end(&w);
}

static filch_err play_little_room(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note |= filch_yield_read(out, 0, tenth, 1000, 0);
    me->note |= filch_yield_read(out, 1, tenth, 99, 0);
    me->note |= filch_yield_read_exactly(out, 2, tenth, 100, 0);
    if (filch_yield_read_exactly(out, 3, tenth, 101, 0) != FILCH_ETOOBIG) me->note = FILCH_EUSER;
    if (filch_yield_read_until(out, 3, tenth, "x", 1, 101, 0) != FILCH_ETOOBIG) me->note = FILCH_EUSER + 1;
    if (filch_yield_send_to(out, 3, tenth, "a:1", filch_bytes("x", SIZE_MAX), 0) != FILCH_ETOOBIG) {
        me->note = FILCH_EUSER + 2;
    }
    return filch_idle(out);
}

TEST(a_read_requests_no_more_than_payload_max)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 100);
    perform(&w, &a, play_little_room, 3);
    same(requests.request[0].most, 100);
    same(requests.request[1].most, 99);
    same(requests.request[2].most, 100);
    fixture_end(&w);
}

/* A datagram is sent from moved memory: its bytes are copied into the request, and the memory is freed at once. */
static int freed;

static void count_free(void *user, void *bytes, size_t size)
{
    (void)user, (void)bytes, (void)size;
    freed++;
}

static filch_err play_moves(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    static char bytes[40] = "moved";
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note |= filch_yield_send_to(out, 0, tenth, "a:1", filch_move(bytes, 5, count_free), 0);
    me->note |= freed == 1 ? FILCH_OK : FILCH_EUSER;
    if (filch_yield_send_to(NULL, 0, tenth, "a:1", filch_move(bytes, 5, count_free), 0) != FILCH_EINVAL) {
        me->note = FILCH_EUSER + 1;
    }
    if (filch_yield_send_to(out, 0, tenth, "", filch_move(bytes, 5, count_free), 0) != FILCH_EINVAL) {
        me->note = FILCH_EUSER + 2;
    }
    return filch_idle(out);
}

TEST(memory_moved_into_a_datagram_is_freed_once_and_only_if_accepted)
{
    fixture w;
    actor   a = { 0 };
    freed = 0;
    begin(&w, 0);
    perform(&w, &a, play_moves, 1);
    same(freed, 1);
    assert_string_equal(requests.bytes[0], "moved");
    fixture_end(&w);
}

static filch_err play_options(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    struct {
        filch_socket_options known;
        uint64_t             later;
    } newer = { .known = { .size = sizeof newer, .flags = FILCH_SOCKET_GATHER } };
    filch_socket_options older = { .size = offsetof(filch_socket_options, flags),
                                   .timeout_ns = 3,
                                   .flags = UINT32_MAX };
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note |= filch_yield_connect(out, 0, "a:1", &newer.known);
    me->note |= filch_yield_connect(out, 1, "a:1", &older);
    newer.later = 1;
    if (filch_yield_connect(out, 2, "a:1", &newer.known) != FILCH_EINVAL) me->note = FILCH_EUSER;
    return filch_idle(out);
}

TEST(socket_options_of_an_older_and_of_a_newer_header_are_understood)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 0);
    perform(&w, &a, play_options, 2);
    same(requests.request[0].how, FILCH_SOCKET_GATHER);
    same(requests.request[1].how, 0);
    same(requests.request[1].timeout_ns, 3);
    fixture_end(&w);
}

static filch_err play_too_long(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    char      longer[300], address[130];
    const int numbers[65] = { 1 };
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    char             *endless = malloc((16u << 20) + 1);
    const char *const argv[] = { endless, NULL };
    memset(endless, 'a', 16u << 20);
    endless[16u << 20] = '\0';
    if (filch_yield_run(out, 0, argv, 0) != FILCH_ETOOBIG) me->note = FILCH_EUSER + 4;
    free(endless);
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    memset(address, 'a', sizeof address - 1);
    address[sizeof address - 1] = '\0';
    if (filch_yield_resolve(out, 0, "host", longer) != FILCH_EINVAL) me->note = FILCH_EUSER;
    if (filch_yield_send_to(out, 0, tenth, address, filch_str("x"), 0) != FILCH_EINVAL) me->note = FILCH_EUSER + 1;
    if (filch_yield_signals(out, 0, numbers, 65) != FILCH_EINVAL) me->note = FILCH_EUSER + 2;
    if (filch_yield_open(out, 0, "path", FILCH_OPEN_READ | 1u << 20) != FILCH_EINVAL) me->note = FILCH_EUSER + 3;
    /* a host and a service of the maximum length */
    longer[255] = '\0';
    me->note |= filch_yield_resolve(out, 0, "host", longer);
    address[128] = '\0';
    me->note |= filch_yield_send_to(out, 0, tenth, address, filch_str("x"), 0);
    return filch_idle(out);
}

TEST(texts_that_are_too_long_are_refused_and_the_longest_are_not)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 0);
    perform(&w, &a, play_too_long, 2);
    same(requests.request[1].text_size, 129);
    fixture_end(&w);
}

/* ---- damaged requests ---- */

static filch_err play_samples(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ > 0) return play_idle(me, events, count, out);
    me->note |= filch_yield_read_until(out, 0, tenth, "ab", 2, 9, 0);
    me->note |= filch_yield_resolve(out, 1, "host", "service");
    me->note |= filch_yield_seek(out, 2, tenth, 1, 0);
    return filch_idle(out);
}

/* Returns the result of filch_io_read() for the first `size` bytes of sample `nth`, read as a request of command
 * `id`. */
static filch_err reads(size_t nth, uint32_t id, size_t size)
{
    filch_command    command = { .id = id, .data = filch_bytes(requests.raw[nth], size) };
    filch_io_request request = { .size = sizeof request };
    return filch_io_read(&command, &request);
}

/* Changes byte `at` of sample `nth` to `value`. Returns true if filch_io_read() refuses the changed sample. */
static bool refuses(size_t nth, uint32_t id, size_t at, uint8_t value)
{
    uint8_t was = requests.raw[nth][at];
    requests.raw[nth][at] = value;
    filch_err err = reads(nth, id, requests.raw_size[nth]);
    requests.raw[nth][at] = was;
    same(reads(nth, id, requests.raw_size[nth]), FILCH_OK);
    return err == FILCH_EINVAL;
}

TEST(a_damaged_request_is_refused)
{
    fixture w;
    actor   a = { 0 };
    begin(&w, 0);
    perform(&w, &a, play_samples, 3);
    same(requests.raw_size[0], 24);
    assert_true(refuses(0, FILCH_CMD_READ, 8, 0));  /* the field `mark` of the request is 0, which is invalid */
    assert_true(refuses(0, FILCH_CMD_READ, 9, 3));  /* a kind of read that does not exist */
    assert_true(refuses(0, FILCH_CMD_READ, 10, 9)); /* the size of the delimiter is larger than its field */
    assert_false(refuses(0, FILCH_CMD_READ, 0, 7)); /* valid: only the maximum size of the read is changed */
    same(reads(0, FILCH_CMD_READ, 23), FILCH_EINVAL);
    size_t size = requests.raw_size[1];
    same(size, 40 + 5 + 8);
    assert_true(refuses(1, FILCH_CMD_RESOLVE, 0, 0));          /* the field `mark` of the request is invalid */
    assert_true(refuses(1, FILCH_CMD_RESOLVE, 12, 200));       /* the host is longer than the whole request */
    assert_true(refuses(1, FILCH_CMD_RESOLVE, 32, 1));         /* byte_count is 1, but no bytes follow the texts */
    assert_true(refuses(1, FILCH_CMD_RESOLVE, 40 + 4, 'x'));   /* the host has no NUL at its end */
    assert_true(refuses(1, FILCH_CMD_RESOLVE, size - 1, 'x')); /* the service has no NUL at its end */
    same(reads(1, FILCH_CMD_RESOLVE, 39), FILCH_EINVAL);
    same(reads(1, FILCH_CMD_RESOLVE, size - 1), FILCH_EINVAL);
    ok(reads(1, FILCH_CMD_CONNECT, size)); /* valid: requests for RESOLVE and for CONNECT both contain a text */
    ok(reads(2, FILCH_CMD_SEEK, requests.raw_size[2]));
    /* a seek request is not a valid open request, because it has no path */
    same(reads(2, FILCH_CMD_OPEN, requests.raw_size[2]), FILCH_EINVAL);
    fixture_end(&w);
}

TEST(data_that_is_no_io_request_is_refused)
{
    filch_io_request request = { .size = sizeof request - 1 };
    filch_command    command = { .id = FILCH_CMD_WRITE, .data = filch_str("x") };
    filch_program    program;
    filch_data       bytes = filch_bytes("short", 5);
    same(filch_io_read(&command, &request), FILCH_EINVAL);
    request.size = sizeof request;
    ok(filch_io_read(&command, &request));
    command.data = filch_str("");
    ok(filch_io_read(&command, &request));
    same(request.byte_count, 0);
    command.data = filch_int(5);
    same(filch_io_read(&command, &request), FILCH_EINVAL);
    command.id = FILCH_CMD_SEEK;
    same(filch_io_read(&command, &request), FILCH_EINVAL);
    command.id = FILCH_CMD_READ;
    same(filch_io_read(&command, &request), FILCH_EINVAL);
    same(filch_as_program(&bytes, &program), FILCH_EINVAL);
    same(program.self.id, 0);
}

/* ---- calls on streams ---- */

static filch_out *kept_out;

static filch_err play_keeps(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    char text[8];
    kept_out = out;
    if (filch_stream_address(out, tenth, (filch_address_of)3, text, sizeof text) != FILCH_EINVAL)
        me->note = FILCH_EUSER;
    return play_idle(me, events, count, out);
}

TEST(stream_functions_are_refused_outside_a_step)
{
    fixture    w;
    actor      a = { 0 };
    char       text[8];
    filch_data data = filch_none();
    begin(&w, 0);
    perform(&w, &a, play_keeps, 0);
    filch_stream stream = tenth;
    same(filch_stream_give(kept_out, tenth, a.pid), FILCH_ESTATE);
    same(filch_stream_take(kept_out, &data, &stream), FILCH_ESTATE);
    same(filch_stream_address(kept_out, tenth, FILCH_ADDRESS_LOCAL, text, sizeof text), FILCH_ESTATE);
    same(filch_yield_read(kept_out, 0, tenth, 0, 0), FILCH_ESTATE);
    fixture_end(&w);
}

static filch_err simulated_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_stream_give(out, tenth, filch_ctx_self(filch_out_ctx(out)));
}

static filch_err scenario(filch_sched *sched, void *user)
{
    static const filch_type type = { .name = "simulated", .step = simulated_step };
    (void)user;
    return filch_spawn(sched, &type, NULL, NULL);
}

TEST(a_simulation_has_no_streams_to_give)
{
    filch_sim_report report = FILCH_SIM_REPORT_INIT;
    ok(filch_sim_run(NULL, scenario, NULL, &report));
    same(report.verdict, FILCH_SIM_REFUSED);
    filch_sim_report_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_handler_can_read_every_io_request),
        cmocka_unit_test(an_empty_text_may_be_written_but_a_number_may_not),
        cmocka_unit_test(a_read_requests_no_more_than_payload_max),
        cmocka_unit_test(memory_moved_into_a_datagram_is_freed_once_and_only_if_accepted),
        cmocka_unit_test(socket_options_of_an_older_and_of_a_newer_header_are_understood),
        cmocka_unit_test(texts_that_are_too_long_are_refused_and_the_longest_are_not),
        cmocka_unit_test(a_damaged_request_is_refused),
        cmocka_unit_test(data_that_is_no_io_request_is_refused),
        cmocka_unit_test(stream_functions_are_refused_outside_a_step),
        cmocka_unit_test(a_simulation_has_no_streams_to_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
