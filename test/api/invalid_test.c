/* invalid_test.c - calls every public function with every bad argument: each call returns FILCH_EINVAL and a text that
 * names the argument. The test invalid_covers fails if a function of filch.h is not in this file. */
#include <stdio.h>
#include <string.h>

#include "api/fixture.h"

/* text of the first call with an unexpected result; none_wrong() asserts that there is none, because code on a worker
 * cannot assert */
static char wrong[400];

static void expect(const char *call, filch_err err, const char *word)
{
    const char *detail = filch_err_detail();
    if (wrong[0] == '\0' && (err != FILCH_EINVAL || strncmp(detail, word, strlen(word)) != 0)) {
        snprintf(wrong, sizeof wrong, "%.200s: %s, \"%s\" instead of \"%s...\"", call, filch_err_name(err), detail,
                 word);
    }
    (void)filch_invalid("nothing was said");
}

/* Checks that the call is refused and that the error text begins with `word`. */
#define refused(call, word) expect(#call, (call), word)

static void none_wrong(void)
{
    if (wrong[0] != '\0') fail_msg("%s", wrong);
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type   stepless = { .name = "stepless" }, type = { .name = "type", .step = step };
static const filch_type   future = { .name = "future", .step = step, .reserved = { NULL, NULL, &type } };
static const filch_pid    null_pid;
static const char         longest[300] = { [0 ... 298] = 'x' };
static const filch_stream stream = { 1 };

#define BAD_TEXTS(text, word)               \
    do {                                    \
        const char *bad;                    \
        bad = NULL, refused(text, word);    \
        bad = "", refused(text, word);      \
        bad = longest, refused(text, word); \
    } while (0)

/* ---- inside a step ---- */

static void bad_statuses(filch_out *out)
{
    refused(filch_close_unread(NULL, 1), "sched");
    refused(filch_continue(NULL), "out");
    refused(filch_wait(NULL), "out");
    refused(filch_idle(NULL), "out");
    refused(filch_done(NULL, filch_none()), "out");
    refused(filch_done(out, filch_bytes(NULL, 1)), "data");
    refused(filch_fail(NULL, FILCH_EUSER, filch_none()), "out");
    refused(filch_fail(out, FILCH_OK, filch_none()), "error");
    refused(filch_upgrade(NULL, &type, NULL, filch_none()), "out");
    refused(filch_upgrade(out, NULL, NULL, filch_none()), "type");
    refused(filch_upgrade(out, &stepless, NULL, filch_none()), "type.step");
    refused(filch_upgrade(out, &future, NULL, filch_none()), "type.reserved");
    refused(filch_upgrade(out, &type, NULL, filch_int(1)), "args");
    refused(filch_trap_links(NULL, 1), "out");
}

static void bad_yields(filch_out *out)
{
    filch_spawn_options none = { 0 };
    refused(filch_yield(NULL, FILCH_CMD_USER, 1, filch_none()), "out");
    refused(filch_yield(NULL, FILCH_CMD_USER, 1, filch_str("a text")), "out");
    refused(filch_yield(out, FILCH_CMD_USER, 1, filch_bytes(NULL, 1)), "data");
    refused(filch_yield_sleep(NULL, 1, 1), "out");
    refused(filch_yield_timer(NULL, 1, 1), "out");
    refused(filch_yield_ticker(NULL, 1, 1), "out");
    refused(filch_yield_ticker(out, 1, 0), "period_ns");
    refused(filch_yield_timer_cancel(NULL, 1, 1), "out");
    refused(filch_yield_work(NULL, 1, NULL, NULL), "fn");
    refused(filch_yield_work(out, 1, NULL, NULL), "fn");
    refused(filch_yield_send(NULL, 1, null_pid, filch_none()), "out");
    refused(filch_yield_send(out, 1, null_pid, filch_bytes(NULL, 1)), "data");
    refused(filch_yield_spawn(NULL, 1, &type, NULL), "out");
    refused(filch_yield_spawn(out, 1, NULL, NULL), "type");
    refused(filch_yield_spawn(out, 1, &stepless, NULL), "type.step");
    refused(filch_yield_spawn(out, 1, &future, NULL), "type.reserved");
    refused(filch_yield_spawn(out, 1, &type, &none), "options.size");
    refused(filch_yield_exec(NULL, 1, &type, NULL), "out");
    refused(filch_yield_exec(out, 1, NULL, NULL), "type");
    refused(filch_yield_exec(out, 1, &type, &none), "options.size");
    refused(filch_yield_terminate(NULL, 1, null_pid), "out");
    refused(filch_yield_cancel(NULL, 1, null_pid, FILCH_EUSER, 1), "out");
    refused(filch_yield_cancel(out, 1, null_pid, FILCH_OK, 1), "reason");
    refused(filch_yield_monitor(NULL, 1, null_pid), "out");
    refused(filch_yield_unmonitor(NULL, 1, 1), "out");
    refused(filch_yield_link(NULL, 1, null_pid), "out");
    refused(filch_yield_unlink(NULL, 1, null_pid), "out");
    refused(filch_yield_register(NULL, 1, "name"), "out");
    BAD_TEXTS(filch_yield_register(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_unregister(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_join(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_leave(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_watch(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_unwatch(out, 1, bad), "name");
    BAD_TEXTS(filch_yield_members(out, 1, bad), "name");
    refused(filch_yield_send_name(NULL, 1, "name", filch_none()), "out");
    BAD_TEXTS(filch_yield_send_name(out, 1, bad, filch_none()), "name or group");
    refused(filch_yield_broadcast(NULL, 1, "name", filch_none()), "out");
    BAD_TEXTS(filch_yield_broadcast(out, 1, bad, filch_none()), "name or group");
}

static void bad_io(filch_out *out)
{
    static const char *const empty[] = { "", NULL }, *const none[] = { NULL }, *const good[] = { "true", NULL };
    static const int     no_signal[] = { 0 }, signals[] = { 1 };
    filch_socket_options unset = { 0 }, flags = FILCH_SOCKET_OPTIONS_INIT;
    filch_stream         taken;
    filch_data           data = filch_none();
    char                 text[8];
    flags.flags = 1u << 20;
    refused(filch_yield_connect(NULL, 1, "127.0.0.1:1", NULL), "out");
    BAD_TEXTS(filch_yield_connect(out, 1, bad, NULL), "address");
    refused(filch_yield_connect(out, 1, "127.0.0.1:1", &unset), "options.size");
    refused(filch_yield_connect(out, 1, "127.0.0.1:1", &flags), "options.flags");
    refused(filch_yield_listen(out, 1, NULL, NULL), "address");
    refused(filch_yield_datagram(out, 1, NULL, NULL), "address");
    refused(filch_yield_accept(NULL, 1, stream, 0), "out");
    refused(filch_yield_send_to(out, 1, stream, NULL, filch_str("x"), 0), "address");
    refused(filch_yield_send_to(out, 1, stream, "127.0.0.1:1", filch_int(1), 0), "data");
    refused(filch_yield_receive_from(NULL, 1, stream, 0, 0), "out");
    refused(filch_yield_resolve(out, 1, NULL, NULL), "host");
    refused(filch_yield_resolve(out, 1, longest, NULL), "host");
    refused(filch_yield_resolve(out, 1, NULL, longest), "service");
    refused(filch_yield_read(NULL, 1, stream, 0, 0), "out");
    refused(filch_yield_read_exactly(out, 1, stream, 0, 0), "size");
    refused(filch_yield_read_until(out, 1, stream, NULL, 1, 1, 0), "delimiter is");
    refused(filch_yield_read_until(out, 1, stream, "x", 0, 1, 0), "delimiter_size");
    refused(filch_yield_read_until(out, 1, stream, "123456789", 9, 9, 0), "delimiter_size");
    refused(filch_yield_read_until(out, 1, stream, "xx", 2, 1, 0), "limit");
    refused(filch_yield_write(NULL, 1, stream, filch_str("x"), 0), "out");
    refused(filch_yield_write(out, 1, stream, filch_int(1), 0), "data");
    refused(filch_yield_shutdown(NULL, 1, stream), "out");
    refused(filch_yield_close(NULL, 1, stream), "out");
    refused(filch_yield_io_cancel(NULL, 1, stream), "out");
    refused(filch_yield_open(out, 1, NULL, FILCH_OPEN_READ), "path");
    refused(filch_yield_open(out, 1, "", FILCH_OPEN_READ), "path");
    refused(filch_yield_open(out, 1, "p", 1u << 20), "flags has bits");
    refused(filch_yield_open(out, 1, "p", 0), "flags has neither");
    refused(filch_yield_open(out, 1, "p", FILCH_OPEN_READ | FILCH_OPEN_CREATE), "flags asks");
    refused(filch_yield_seek(out, 1, stream, 0, 3), "whence");
    refused(filch_yield_seek(NULL, 1, stream, 0, 0), "out");
    refused(filch_yield_run(NULL, 1, good, 0), "out");
    refused(filch_yield_run(out, 1, NULL, 0), "argv");
    refused(filch_yield_run(out, 1, none, 0), "argv[0]");
    refused(filch_yield_run(out, 1, empty, 0), "argv[0]");
    refused(filch_yield_run(out, 1, good, 1u << 20), "flags");
    filch_run_options no_run = { 0 }, run = FILCH_RUN_OPTIONS_INIT;
    refused(filch_yield_run_with(out, 1, NULL, &run), "argv");
    refused(filch_yield_run_with(out, 1, good, &no_run), "options.size");
    run.directory = "";
    refused(filch_yield_run_with(out, 1, good, &run), "options.directory");
    refused(filch_yield_open_within(out, 1, NULL, FILCH_OPEN_READ, 1), "path");
    refused(filch_yield_resolve_within(out, 1, NULL, NULL, 1), "host");
    refused(filch_yield_work_within(out, 1, NULL, NULL, 1), "fn");
    refused(filch_yield_exit(NULL, 1, stream, 0), "out");
    refused(filch_yield_kill(out, 1, stream, 0), "number");
    refused(filch_yield_kill(NULL, 1, stream, 9), "out");
    refused(filch_yield_signals(out, 1, NULL, 1), "numbers");
    refused(filch_yield_signals(out, 1, signals, 0), "count");
    refused(filch_yield_signals(out, 1, no_signal, 1), "numbers");
    refused(filch_stream_give(NULL, stream, null_pid), "out");
    refused(filch_stream_take(out, NULL, &taken), "data");
    refused(filch_stream_take(out, &data, NULL), "stream");
    refused(filch_stream_address(out, stream, FILCH_ADDRESS_LOCAL, NULL, 8), "text");
    refused(filch_stream_address(out, stream, FILCH_ADDRESS_LOCAL, text, 0), "room");
    refused(filch_stream_address(out, stream, (filch_address_of)9, text, 8), "which");
    refused(filch_stream_address(NULL, stream, FILCH_ADDRESS_LOCAL, text, 8), "out");
}

static void bad_files(filch_out *out)
{
    refused(filch_yield_poll(out, 1, -1, FILCH_POLL_IN, 0), "fd");
    refused(filch_yield_poll(out, 1, 0, 0, 0), "events");
    refused(filch_yield_poll(out, 1, 0, 1u << 20, 0), "events");
    refused(filch_yield_poll(NULL, 1, 0, FILCH_POLL_IN, 0), "out");
    refused(filch_yield_poll_cancel(out, 1, -1), "fd");
    refused(filch_yield_tag_cancel(NULL, 1, 1), "out");
    refused(filch_yield_adopt(out, 1, -1, 0), "fd");
    refused(filch_yield_adopt(out, 1, 0, 1u << 20), "flags");
    refused(filch_yield_sync(NULL, 1, stream, 0), "out");
    refused(filch_yield_sync(out, 1, stream, 1u << 20), "flags");
    refused(filch_yield_truncate(NULL, 1, stream, 0), "out");
    refused(filch_yield_truncate(out, 1, stream, UINT64_MAX), "size");
    refused(filch_yield_stat(out, 1, NULL, 0), "path");
    refused(filch_yield_stat(out, 1, "p", 1u << 20), "flags");
    refused(filch_yield_rename(out, 1, NULL, "to", 0), "path");
    refused(filch_yield_rename(out, 1, "from", NULL, 0), "to");
    refused(filch_yield_rename(out, 1, "from", "to", 1u << 20), "flags");
    refused(filch_yield_remove(out, 1, ""), "path");
    refused(filch_yield_mkdir(out, 1, ""), "path");
    refused(filch_yield_rmdir(out, 1, ""), "path");
    refused(filch_yield_list(out, 1, ""), "path");
    refused(filch_yield_list(NULL, 1, "p"), "out");
}

static filch_err play_bad(actor *me, const filch_event *events, size_t count, filch_out *out)
{
    if (me->stage++ == 0) {
        bad_statuses(out);
        bad_yields(out);
        bad_io(out);
        bad_files(out);
    }
    return play_idle(me, events, count, out);
}

TEST(a_step_can_read_which_argument_was_wrong)
{
    fixture w;
    actor   a = { 0 };
    wrong[0] = '\0';
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_bad);
    fixture_tick(&w);
    fixture_end(&w);
    none_wrong();
}

/* ---- from a foreign thread ---- */

static filch_err handler(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    (void)command;
    (void)tag;
    (void)receiver;
    return FILCH_OK;
}

TEST(invalid_payload_context_and_registry_arguments_are_named)
{
    filch_data      data = filch_none();
    filch_values   *values = NULL, *plain = NULL;
    filch_registry *registry = NULL;
    wrong[0] = '\0';
    refused(filch_share(NULL, 1, NULL, NULL, &data), "bytes");
    refused(filch_share(&data, 1, NULL, NULL, NULL), "out");
    refused(filch_keep(NULL, &data), "data");
    refused(filch_keep(&data, NULL), "out");
    data = filch_bytes(NULL, 1);
    refused(filch_keep(&data, &data), "data");
    refused(filch_values_create(NULL, NULL, filch_none(), &values), "key");
    refused(filch_values_create(NULL, "key", filch_none(), NULL), "out");
    refused(filch_values_create(NULL, "key", filch_bytes(NULL, 1), &values), "data");
    refused(filch_values_deadline(NULL, 1, NULL), "out");
    refused(filch_values_scope(NULL, NULL), "out");
    ok(filch_values_scope(NULL, &values));
    ok(filch_values_create(values, "key", filch_none(), &plain));
    refused(filch_values_cancel(NULL, FILCH_EUSER), "scope");
    refused(filch_values_cancel(plain, FILCH_EUSER), "scope");
    refused(filch_values_cancel(values, FILCH_OK), "reason");
    filch_values_drop(plain);
    filch_values_drop(values);
    refused(filch_registry_create(NULL), "out");
    ok(filch_registry_create(&registry));
    refused(filch_registry_add(NULL, FILCH_CMD_USER, handler, NULL), "registry");
    refused(filch_registry_add(registry, 0, handler, NULL), "id");
    refused(filch_registry_add(registry, FILCH_CMD_USER, NULL, NULL), "handler");
    refused(filch_registry_remove(NULL, FILCH_CMD_USER), "registry");
    refused(filch_registry_remove(registry, 0), "id");
    filch_registry_destroy(registry);
    none_wrong();
}

/* Checks that filch_sched_create() refuses options in which `field` has the value `value`. */
#define OPTION(field, value, word)                       \
    do {                                                 \
        filch_options opt = FILCH_OPTIONS_INIT;          \
        opt.field = (value);                             \
        refused(filch_sched_create(&sched, &opt), word); \
    } while (0)

TEST(the_error_detail_names_the_wrong_option)
{
    filch_sched  *sched = NULL;
    filch_options zero = { 0 };
    struct {
        filch_options known;
        uint64_t      more;
    } longer = { .known = FILCH_OPTIONS_INIT, .more = 1 };
    filch_node        *node = NULL;
    filch_node_options no_size = { 0 };
    wrong[0] = '\0';
    longer.known.size = sizeof longer;
    refused(filch_sched_create(NULL, NULL), "out");
    refused(filch_sched_create(&sched, &zero), "options.size is not set: begin with FILCH_OPTIONS_INIT");
    refused(filch_sched_create(&sched, &longer.known), "options sets a field that this version");
    OPTION(workers, -2, "options.workers");
    OPTION(workers, 1025, "options.workers is over 1024");
    OPTION(max_processes, UINT32_MAX, "options.max_processes");
    OPTION(batch_max, 1025, "options.batch_max is over 1024");
    OPTION(global_batch, 257, "options.global_batch is over 256");
    OPTION(work_threads, 1025, "options.work_threads is over 1024");
    OPTION(blackbox, FILCH_BLACKBOX_MAX + 1, "options.blackbox");
    OPTION(spare_too, 1, "options.spare");
    assert_null(sched);
    refused(filch_node_create(NULL, NULL), "out");
    refused(filch_node_create(&node, &no_size), "options.size is not set: begin with FILCH_NODE_OPTIONS_INIT");
    refused(filch_node_add(NULL, NULL, &sched), "node");
    ok(filch_node_create(&node, NULL));
    refused(filch_node_add(node, NULL, NULL), "out");
    refused(filch_node_add(node, &zero, &sched), "options.size");
    filch_node_destroy(node);
    none_wrong();
}

#define SPAWN_OPTION(field, value, word)                        \
    do {                                                        \
        filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;     \
        opt.field = (value);                                    \
        refused(filch_spawn(w.sched, &type, &opt, NULL), word); \
    } while (0)

TEST(invalid_spawn_arguments_are_named)
{
    fixture             w;
    filch_spawn_options zero = { 0 };
    wrong[0] = '\0';
    fixture_begin(&w, FILCH_NO_WORKERS);
    refused(filch_spawn(NULL, &type, NULL, NULL), "sched");
    refused(filch_spawn(w.sched, NULL, NULL, NULL), "type");
    refused(filch_spawn(w.sched, &stepless, NULL, NULL), "type.step");
    for (size_t i = 0; i < COUNT_OF(type.reserved); i++) {
        filch_type reserving = type;
        reserving.reserved[i] = &type;
        refused(filch_spawn(w.sched, &reserving, NULL, NULL), "type.reserved");
    }
    refused(filch_spawn(w.sched, &type, &zero, NULL), "options.size is not set: begin with FILCH_SPAWN_OPTIONS_INIT");
    SPAWN_OPTION(args, filch_int(1), "args");
    SPAWN_OPTION(overflow, FILCH_OVERFLOW_STOP + 1, "options.overflow");
    SPAWN_OPTION(mailbox_max, 1u << 23, "options.mailbox_max");
    SPAWN_OPTION(mailbox_bytes, (size_t)1 << 40, "options.mailbox_bytes");
    SPAWN_OPTION(blackbox, FILCH_BLACKBOX_MAX + 1, "options.blackbox");
    SPAWN_OPTION(spare_too, 1, "options.spare");
    SPAWN_OPTION(relations, 8, "options.relations");
    SPAWN_OPTION(message_count, 1, "options.messages");
    SPAWN_OPTION(name, "", "options.name");
    SPAWN_OPTION(name, longest, "options.name");
    refused(filch_spawn_on(NULL, 1, &type, NULL, NULL), "sched");
    refused(filch_spawn_on(w.sched, 1, NULL, NULL, NULL), "type");
    refused(filch_spawn_on(w.sched, 1, &stepless, NULL, NULL), "type.step");
    refused(filch_spawn_on(w.sched, 1, &future, NULL, NULL), "type.reserved");
    refused(filch_spawn_wait(NULL, &type, NULL, 0, NULL, NULL, NULL), "sched");
    fixture_end(&w);
    none_wrong();
}

TEST(invalid_message_and_relation_arguments_are_named)
{
    fixture       w;
    actor         a = { 0 };
    filch_pid     pid;
    size_t        count;
    filch_package package = { .to = { 1, 1 } };
    filch_info    info = { 0 };
    filch_stats   stats = { 0 };
    filch_report  report = { 0 };
    wrong[0] = '\0';
    fixture_begin(&w, FILCH_NO_WORKERS);
    actor_start(&w, &a, play_idle);
    pid = a.pid;
    refused(filch_send(NULL, pid, filch_none()), "sched");
    refused(filch_send(w.sched, pid, filch_bytes(NULL, 1)), "data");
    refused(filch_send(w.sched, pid, filch_move(NULL, 1, NULL)), "data");
    refused(filch_deliver(NULL, &package), "sched");
    refused(filch_deliver(w.sched, NULL), "package");
    refused(filch_cancel(NULL, pid), "sched");
    refused(filch_cancel_with(NULL, pid, FILCH_EUSER, 1), "sched");
    refused(filch_cancel_with(w.sched, pid, FILCH_OK, 1), "reason");
    refused(filch_terminate(NULL, pid), "sched");
    refused(filch_inspect(NULL, pid, &info), "sched");
    refused(filch_inspect(w.sched, pid, NULL), "info");
    refused(filch_inspect(w.sched, pid, &info), "info.size");
    refused(filch_monitor(NULL, pid, pid, 1, NULL), "sched");
    refused(filch_monitor(w.sched, pid, pid, 1, NULL), "pid is given twice");
    refused(filch_monitor(w.sched, pid, null_pid, 1, NULL), "pid is {0, 0}");
    refused(filch_unmonitor(NULL, pid, 1), "sched");
    refused(filch_unmonitor(w.sched, null_pid, 1), "pid");
    refused(filch_link(NULL, pid, pid), "sched");
    refused(filch_link(w.sched, pid, pid), "pid is given twice");
    refused(filch_unlink(NULL, pid, pid), "sched");
    refused(filch_unlink(w.sched, null_pid, pid), "pid");
    refused(filch_register(NULL, "name", pid), "sched");
    BAD_TEXTS(filch_register(w.sched, bad, pid), "name");
    refused(filch_unregister(NULL, "name"), "sched");
    BAD_TEXTS(filch_unregister(w.sched, bad), "name");
    refused(filch_whereis(NULL, "name", &pid), "sched");
    refused(filch_whereis(w.sched, "name", NULL), "pid");
    BAD_TEXTS(filch_whereis(w.sched, bad, &pid), "name");
    refused(filch_send_name(NULL, "name", filch_none()), "sched");
    BAD_TEXTS(filch_send_name(w.sched, bad, filch_none()), "name");
    BAD_TEXTS(filch_join(w.sched, bad, pid), "group");
    BAD_TEXTS(filch_leave(w.sched, bad, pid), "group");
    BAD_TEXTS(filch_watch(w.sched, bad, pid, 1), "group");
    BAD_TEXTS(filch_unwatch(w.sched, bad, pid), "group");
    refused(filch_members(NULL, "g", NULL, 0, &count), "sched");
    refused(filch_members(w.sched, "g", NULL, 0, NULL), "count");
    refused(filch_members(w.sched, "g", NULL, 1, &count), "pids");
    BAD_TEXTS(filch_members(w.sched, bad, NULL, 0, &count), "group");
    refused(filch_broadcast(NULL, "g", filch_none(), NULL), "sched");
    BAD_TEXTS(filch_broadcast(w.sched, bad, filch_none(), NULL), "group");
    refused(filch_sched_stats(NULL, &stats), "sched");
    refused(filch_sched_stats(w.sched, NULL), "stats");
    refused(filch_sched_stats(w.sched, &stats), "stats.size");
    refused(filch_tick(NULL, 0, NULL), "sched");
    refused(filch_log(NULL, FILCH_LOG_INFO, FILCH_OK, "x"), "sched");
    refused(filch_log(w.sched, FILCH_LOG_INFO, FILCH_OK, NULL), "text");
    refused(filch_log(w.sched, (filch_log_level)9, FILCH_OK, "x"), "level");
    refused(filch_sched_stop(NULL, 0, NULL), "sched");
    refused(filch_sched_stop(w.sched, 0, &report), "report.size");
    refused(filch_sched_close(NULL, 0, NULL), "sched");
    filch_stop_options stop = FILCH_STOP_OPTIONS_INIT, no_stop = { 0 };
    refused(filch_sched_stop_with(NULL, &stop, NULL), "sched");
    refused(filch_sched_stop_with(w.sched, NULL, NULL), "options");
    refused(filch_sched_stop_with(w.sched, &no_stop, NULL), "options.size");
    stop.flags = 1u << 20;
    refused(filch_sched_stop_with(w.sched, &stop, NULL), "options.flags");
    refused(filch_call(NULL, pid, filch_none(), 0, NULL), "sched");
    refused(filch_send_wait(NULL, pid, filch_none(), 0), "sched");
    refused(filch_sched_wait(NULL, pid, 0, NULL, NULL), "sched");
    fixture_end(&w);
    none_wrong();
}

TEST(invalid_arguments_of_waiting_calls_are_named)
{
    fixture w;
    char    bytes[1];
    wrong[0] = '\0';
    fixture_begin(&w, 1);
    refused(filch_call(w.sched, (filch_pid){ 1, 1 }, filch_move(bytes, 1, NULL), 1, NULL), "data is a filch_move");
    refused(filch_call(w.sched, (filch_pid){ 1, 1 }, filch_bytes(NULL, 1), 1, NULL), "data");
    refused(filch_send_wait(w.sched, (filch_pid){ 1, 1 }, filch_move(bytes, 1, NULL), 1), "data is a filch_move");
    refused(filch_spawn_wait(w.sched, NULL, NULL, 0, NULL, NULL, NULL), "type");
    fixture_end(&w);
    none_wrong();
}

#define SPEC(field, value, word)                                    \
    do {                                                            \
        filch_supervisor spec = { .field = (value) };               \
        refused(filch_supervise(w.sched, &spec, NULL, NULL), word); \
    } while (0)

#define CHILD(field, value, word)                                    \
    do {                                                             \
        filch_child child = { .id = "id", .type = &type };           \
        child.field = (value);                                       \
        refused(filch_child_start(w.sched, null_pid, &child), word); \
    } while (0)

TEST(invalid_supervisor_arguments_are_named)
{
    fixture             w;
    filch_supervisor    sound = { 0 };
    filch_spawn_options zero = { 0 };
    wrong[0] = '\0';
    fixture_begin(&w, FILCH_NO_WORKERS);
    refused(filch_supervise(NULL, &sound, NULL, NULL), "sched");
    refused(filch_supervise(w.sched, NULL, NULL, NULL), "spec");
    refused(filch_supervise(w.sched, &sound, &zero, NULL), "options.size");
    refused(filch_spawn(w.sched, &filch_supervisor_type, NULL, NULL), "args");
    SPEC(strategy, 9, "spec.strategy");
    SPEC(jitter, 1001, "spec.jitter");
    SPEC(intensity, 10001, "spec.intensity");
    SPEC(child_count, 1, "spec.children");
    SPEC(spare, 1, "spec.spare");
    refused(filch_child_start(NULL, null_pid, NULL), "sched");
    refused(filch_child_start(w.sched, null_pid, NULL), "child");
    CHILD(id, NULL, "child.id");
    CHILD(id, "", "child.id");
    CHILD(id, longest, "child.id");
    CHILD(type, NULL, "child has neither");
    CHILD(type, &stepless, "child has neither");
    CHILD(type, &future, "child.type.reserved");
    CHILD(restart, 9, "child.restart");
    CHILD(spare, 1, "child.spare");
    CHILD(options, &zero, "options.size");
    refused(filch_child_stop(NULL, null_pid, "id"), "sched");
    refused(filch_child_stop(w.sched, null_pid, NULL), "id");
    refused(filch_child_stop(w.sched, null_pid, longest), "id");
    refused(filch_child_list(NULL, null_pid), "sched");
    refused(filch_child_start_tagged(NULL, null_pid, NULL, 1), "sched");
    refused(filch_child_start_tagged(w.sched, null_pid, NULL, 1), "child");
    refused(filch_child_stop_tagged(NULL, null_pid, "id", 1), "sched");
    refused(filch_child_stop_tagged(w.sched, null_pid, NULL, 1), "id");
    refused(filch_child_list_tagged(NULL, null_pid, 1), "sched");
    refused(filch_child_await_tagged(NULL, null_pid, 1), "sched");
    refused(filch_child_start_wait(NULL, null_pid, &(filch_child){ .id = "id" }, 0, NULL), "sched");
    refused(filch_child_start_wait(w.sched, null_pid, NULL, 0, NULL), "child");
    refused(filch_child_stop_wait(NULL, null_pid, "id", 0), "sched");
    refused(filch_child_stop_wait(w.sched, null_pid, NULL, 0), "id");
    refused(filch_child_list_wait(NULL, null_pid, 0, NULL), "sched");
    refused(filch_child_await_wait(NULL, null_pid, 0), "sched");
    refused(filch_call_with(NULL, null_pid, NULL, NULL, 0, NULL), "sched");
    refused(filch_call_with(w.sched, null_pid, NULL, NULL, 0, NULL), "ask");
    refused(filch_child_await(NULL, null_pid), "sched");
    fixture_end(&w);
    none_wrong();
}

static filch_err scenario(filch_sched *sched, void *user)
{
    (void)user;
    refused(filch_sim_fail(sched, NULL), "text");
    refused(filch_sim_note(sched, NULL), "text");
    refused(filch_sim_later(sched, 1, NULL, NULL), "fn");
    return FILCH_OK;
}

#define SIM_OPTION(field, value, word)                               \
    do {                                                             \
        filch_sim_options opt = FILCH_SIM_OPTIONS_INIT;              \
        opt.field = (value);                                         \
        refused(filch_sim_run(&opt, scenario, NULL, &report), word); \
    } while (0)

TEST(invalid_simulation_and_recording_arguments_are_named)
{
    filch_sim_report      report = FILCH_SIM_REPORT_INIT, unset = { 0 };
    filch_sim_options     zero = { 0 };
    filch_options         no_size = { 0 };
    filch_blackbox_report box = FILCH_BLACKBOX_REPORT_INIT, no_box = { 0 };
    filch_io_request      request = { .size = sizeof request }, no_request = { 0 };
    filch_command         command = { .id = FILCH_CMD_READ };
    filch_program         program;
    filch_data            data = filch_int(1);
    filch_receiver        receiver = { NULL, 0, 7 };
    wrong[0] = '\0';
    refused(filch_sim_run(NULL, NULL, NULL, &report), "scenario");
    refused(filch_sim_run(NULL, scenario, NULL, NULL), "report");
    refused(filch_sim_run(NULL, scenario, NULL, &unset), "report.size");
    refused(filch_sim_run(&zero, scenario, NULL, &report), "options.size");
    refused(filch_sim_sweep(NULL, 1, 0, scenario, NULL, &report), "count");
    SIM_OPTION(workers, 65, "options.workers");
    SIM_OPTION(chart_events, 1000001, "options.chart_events");
    SIM_OPTION(blocked_ok, 2, "options.blocked_ok");
    SIM_OPTION(whole_steps, 2, "options.whole_steps");
    SIM_OPTION(stall, 1001, "options.stall");
    SIM_OPTION(sched, &no_size, "options.sched.size");
    refused(filch_sim_fail(NULL, "x"), "sched");
    refused(filch_sim_note(NULL, "x"), "sched");
    refused(filch_sim_later(NULL, 1, NULL, NULL), "fn");
    ok(filch_sim_run(NULL, scenario, NULL, &report));
    filch_sim_report_free(&report);
    refused(filch_blackbox_replay("x", 1, &type, NULL), "report");
    refused(filch_blackbox_replay("x", 1, &type, &no_box), "report.size");
    refused(filch_blackbox_replay(NULL, 1, &type, &box), "bytes");
    refused(filch_blackbox_replay("x", 1, NULL, &box), "type");
    refused(filch_blackbox_replay("x", 1, &stepless, &box), "type.step");
    refused(filch_blackbox_replay("x", 1, &future, &box), "type.reserved");
    refused(filch_blackbox_replay("x", 1, &type, &box), "bytes is not a whole recording");
    refused(filch_io_read(NULL, &request), "command");
    refused(filch_io_read(&command, NULL), "request");
    refused(filch_io_read(&command, &no_request), "request.size");
    refused(filch_io_read(&command, &request), "command is not one");
    refused(filch_as_program(&data, NULL), "program");
    refused(filch_as_program(&data, &program), "data");
    filch_file_info info = { .size = sizeof info }, no_info = { 0 };
    const char     *entry;
    size_t          at = 0;
    refused(filch_as_file_info(&data, NULL), "info");
    refused(filch_as_file_info(&data, &no_info), "info.size");
    refused(filch_as_file_info(&data, &info), "data");
    refused(filch_as_entry(&data, &at, NULL, NULL), "name");
    refused(filch_as_entry(&data, NULL, &entry, NULL), "at");
    refused(filch_as_entry(&data, &at, &entry, NULL), "data");
    refused(filch_complete(receiver, 8, filch_none(), FILCH_OK), "tag");
    refused(filch_complete(receiver, 7, filch_none(), FILCH_OK), "receiver");
    refused(filch_invalid("a text of your own"), "a text of your own");
    refused(filch_invalid(NULL), "");
    none_wrong();
}

static void other_thread(void *arg)
{
    *(const char **)arg = filch_err_detail();
    (void)filch_invalid("of the other thread");
}

TEST(each_thread_has_its_own_text)
{
    fli_thread  thread;
    const char *seen = NULL;
    same(filch_send(NULL, null_pid, filch_none()), FILCH_EINVAL);
    ok(fli_thread_start(&thread, "other", other_thread, &seen));
    fli_thread_join(&thread);
    assert_string_equal(seen, "");
    assert_string_equal(filch_err_detail(), "sched is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_can_read_which_argument_was_wrong),
        cmocka_unit_test(invalid_payload_context_and_registry_arguments_are_named),
        cmocka_unit_test(the_error_detail_names_the_wrong_option),
        cmocka_unit_test(invalid_spawn_arguments_are_named),
        cmocka_unit_test(invalid_message_and_relation_arguments_are_named),
        cmocka_unit_test(invalid_arguments_of_waiting_calls_are_named),
        cmocka_unit_test(invalid_supervisor_arguments_are_named),
        cmocka_unit_test(invalid_simulation_and_recording_arguments_are_named),
        cmocka_unit_test(each_thread_has_its_own_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
