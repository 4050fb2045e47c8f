/* out_io.c - the I/O yields. They encode a request as the data of a command; filch_io_read() decodes it.
 *
 * The target of the command holds stream and timeout. The data of a read is a `read_request` of 24 bytes, which fits
 * into the event; the data of a write is its payload; the data of a request with a text is a block that begins with a
 * `text_request`. This file makes no system calls, so it is also part of a library without I/O.
 */
#include <string.h>

#include "base/versioned.h"
#include "io/io.h"
#include "payload/data.h"
#include "proc/runtime.h"
#include "sched/out.h"
#include "sched/sched.h"

#define ADDRESS_MAX 128
#define NAME_MAX_BYTES 255
#define PATH_BYTES_MAX 4095
#define SIGNALS_MAX 64
#define SIGNAL_NUMBER_MAX 64
#define READ_MOST 65536
/* Most bytes of a list of arguments: more than operating systems allow, and small enough for 32-bit sizes. */
#define ARGV_MAX (16u << 20)

/* The data of a read command; it fits into the inline bytes of a filch_data. */
typedef struct read_request {
    uint64_t most;
    uint8_t  mark, how, delimiter_size, spare[5];
    uint8_t  delimiter[8];
} read_request;

_Static_assert(sizeof(read_request) == sizeof((filch_data *)NULL)->as.bytes, "fits, and fills it");

/* The header of a request with a text. The struct is followed by: the text (`text_size` bytes with its NUL), the
 * service (`service_size` bytes with its NUL, or 0 for none), and `byte_count` bytes. */
typedef struct text_request {
    uint32_t mark, how;
    uint32_t backlog, text_size, service_size, spare;
    int64_t  number;
    uint64_t byte_count;
} text_request;

#define MARK 0xf1u

static filch_err yield_plain(filch_out *out, uint32_t command, uint64_t tag, filch_stream stream, uint64_t timeout_ns,
                             const filch_data *data)
{
    return fli_out_yield(out, command, tag, (filch_pid){ stream.id, timeout_ns }, data);
}

static filch_err yield_read_request(filch_out *out, uint32_t command, uint64_t tag, filch_stream stream,
                                    uint64_t timeout_ns, read_request what)
{
    what.mark = MARK;
    filch_data data = filch_bytes(&what, sizeof what);
    return yield_plain(out, command, tag, stream, timeout_ns, &data);
}

/* Copies `size` bytes to `at`; `from` may be NULL if `size` is 0. Returns the address after the copied bytes. */
static uint8_t *append(uint8_t *at, const void *from, size_t size)
{
    if (from != NULL && size > 0) memcpy(at, from, size);
    return at + size;
}

static filch_err yield_text_request(filch_out *out, uint32_t command, uint64_t tag, filch_stream stream,
                                    uint64_t timeout_ns, text_request what, const char *text, const char *service,
                                    const void *bytes)
{
    if (out == NULL) return filch_invalid("out is NULL");
    fli_runtime *rt = &out->ctx.sched->rt;
    uint8_t     *at;
    size_t       size = sizeof what + what.text_size + what.service_size + what.byte_count;
    if (size < what.byte_count) return FILCH_ETOOBIG;
    void *block = fli_block_make(&rt->mem, size, &at);
    if (block == NULL) return FILCH_ENOMEM;
    what.mark = MARK;
    memcpy(at, &what, sizeof what);
    uint8_t *end = append(at + sizeof what, text, what.text_size);
    end = append(end, service, what.service_size);
    append(end, bytes, what.byte_count);
    filch_data data = fli_block_cut(block, at, size);
    filch_err  err = yield_plain(out, command, tag, stream, timeout_ns, &data);
    fli_block_drop(block);
    return err;
}

/* Returns the size of `text` with its NUL; 0 if `text` is NULL or longer than `max`. */
static uint32_t measure(const char *text, size_t max)
{
    if (text == NULL) return 0;
    size_t size = strnlen(text, max + 1);
    return size > max ? 0 : (uint32_t)size + 1;
}

/* Returns true if the payload can be written: a text or bytes, which may be empty. */
static bool has_bytes(const filch_data *data)
{
    return data->kind == FILCH_KIND_TEXT || data->kind == FILCH_KIND_BYTES;
}

/* ---- sockets ---- */

static filch_err bad_address(void)
{
    return filch_invalid("address is NULL, empty or over 128 bytes");
}

static filch_err read_options(const filch_socket_options *given, filch_socket_options *out)
{
    const uint32_t known =
        FILCH_SOCKET_SHARED_PORT | FILCH_SOCKET_GATHER | FILCH_SOCKET_KEEPALIVE | FILCH_SOCKET_BROADCAST;
    filch_err err = FLI_VERSIONED_READ(out, given, "options", FILCH_SOCKET_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if (out->timeout_ns == 0) out->timeout_ns = FILCH_FOREVER;
    if (out->backlog == 0) out->backlog = 1024;
    return (out->flags & ~known) == 0 ? FILCH_OK : filch_invalid("options.flags has bits besides FILCH_SOCKET_*");
}

static filch_err yield_address(filch_out *out, uint32_t command, uint64_t tag, const char *address,
                               const filch_socket_options *options)
{
    filch_socket_options opt;
    uint32_t             size = measure(address, ADDRESS_MAX);
    filch_err            err = size > 1 ? read_options(options, &opt) : bad_address();
    if (err != FILCH_OK) return err;
    text_request what = { .how = opt.flags, .backlog = opt.backlog, .text_size = size };
    return yield_text_request(out, command, tag, (filch_stream){ 0 }, opt.timeout_ns, what, address, NULL, NULL);
}

filch_err filch_yield_connect(filch_out *out, uint64_t tag, const char *address, const filch_socket_options *options)
{
    return yield_address(out, FILCH_CMD_CONNECT, tag, address, options);
}

filch_err filch_yield_listen(filch_out *out, uint64_t tag, const char *address, const filch_socket_options *options)
{
    return yield_address(out, FILCH_CMD_LISTEN, tag, address, options);
}

filch_err filch_yield_datagram(filch_out *out, uint64_t tag, const char *address, const filch_socket_options *options)
{
    return yield_address(out, FILCH_CMD_DATAGRAM, tag, address, options);
}

filch_err filch_yield_accept(filch_out *out, uint64_t tag, filch_stream listener, uint64_t timeout_ns)
{
    filch_data nothing = filch_none();
    return yield_plain(out, FILCH_CMD_ACCEPT, tag, listener, timeout_ns, &nothing);
}

filch_err filch_yield_send_to(filch_out *out, uint64_t tag, filch_stream stream, const char *address, filch_data data,
                              uint64_t timeout_ns)
{
    uint32_t size = measure(address, ADDRESS_MAX);
    if (size <= 1) return bad_address();
    if (!has_bytes(&data) || !fli_data_is_sound(&data)) return filch_invalid("data is neither bytes nor a text");
    text_request what = { .text_size = size, .byte_count = filch_size(&data) };
    filch_err    err =
        yield_text_request(out, FILCH_CMD_SEND_TO, tag, stream, timeout_ns, what, address, NULL, filch_raw(&data));
    /* The request has a copy of the bytes, so data that was moved into the call is freed here. */
    if (err == FILCH_OK && data.form == FLI_FORM_MOVE) fli_data_free_moved(&data);
    return err;
}

filch_err filch_yield_receive_from(filch_out *out, uint64_t tag, filch_stream stream, size_t most, uint64_t timeout_ns)
{
    read_request what = { .most = most != 0 ? most : READ_MOST };
    return yield_read_request(out, FILCH_CMD_RECEIVE_FROM, tag, stream, timeout_ns, what);
}

filch_err filch_yield_resolve(filch_out *out, uint64_t tag, const char *host, const char *service)
{
    return filch_yield_resolve_within(out, tag, host, service, FILCH_FOREVER);
}

filch_err filch_yield_resolve_within(filch_out *out, uint64_t tag, const char *host, const char *service,
                                     uint64_t timeout_ns)
{
    uint32_t host_size = measure(host, NAME_MAX_BYTES), service_size = measure(service, NAME_MAX_BYTES);
    if (host == NULL && service == NULL) return filch_invalid("host and service are both NULL");
    if (host != NULL && host_size == 0) return filch_invalid("host is over 255 bytes");
    if (service != NULL && service_size == 0) return filch_invalid("service is over 255 bytes");
    text_request what = { .text_size = host_size, .service_size = service_size };
    return yield_text_request(out, FILCH_CMD_RESOLVE, tag, (filch_stream){ 0 }, timeout_ns, what, host, service, NULL);
}

/* ---- streams ---- */

/* Yields a read. If `what.most` exceeds option payload_max, reduces it for a read of some bytes (FLI_READ_SOME), and
 * returns FILCH_ETOOBIG for other reads. */
static filch_err yield_read(filch_out *out, uint64_t tag, filch_stream stream, uint64_t timeout_ns, read_request what)
{
    if (out == NULL) return filch_invalid("out is NULL");
    size_t max = out->ctx.sched->rt.payload_max;
    if (max != 0 && what.most > max) {
        if (what.how != FLI_READ_SOME) return FILCH_ETOOBIG;
        what.most = max;
    }
    return yield_read_request(out, FILCH_CMD_READ, tag, stream, timeout_ns, what);
}

filch_err filch_yield_read(filch_out *out, uint64_t tag, filch_stream stream, size_t most, uint64_t timeout_ns)
{
    return yield_read(out, tag, stream, timeout_ns,
                      (read_request){ .most = most != 0 ? most : READ_MOST, .how = FLI_READ_SOME });
}

filch_err filch_yield_read_exactly(filch_out *out, uint64_t tag, filch_stream stream, size_t size, uint64_t timeout_ns)
{
    if (size == 0) return filch_invalid("size is 0: read at least 1 byte");
    return yield_read(out, tag, stream, timeout_ns, (read_request){ .most = size, .how = FLI_READ_EXACTLY });
}

filch_err filch_yield_read_until(filch_out *out, uint64_t tag, filch_stream stream, const void *delimiter,
                                 size_t delimiter_size, size_t limit, uint64_t timeout_ns)
{
    read_request what = { .most = limit, .how = FLI_READ_UNTIL, .delimiter_size = (uint8_t)delimiter_size };
    if (delimiter == NULL) return filch_invalid("delimiter is NULL");
    if (delimiter_size == 0 || delimiter_size > sizeof what.delimiter)
        return filch_invalid("delimiter_size is not 1 to 8");
    if (limit < delimiter_size) return filch_invalid("limit is below delimiter_size");
    memcpy(what.delimiter, delimiter, delimiter_size);
    return yield_read(out, tag, stream, timeout_ns, what);
}

filch_err filch_yield_write(filch_out *out, uint64_t tag, filch_stream stream, filch_data data, uint64_t timeout_ns)
{
    if (!has_bytes(&data)) return filch_invalid("data is neither bytes nor a text");
    return yield_plain(out, FILCH_CMD_WRITE, tag, stream, timeout_ns, &data);
}

static filch_err yield_bare(filch_out *out, uint32_t command, uint64_t tag, filch_stream stream)
{
    filch_data nothing = filch_none();
    return yield_plain(out, command, tag, stream, FILCH_FOREVER, &nothing);
}

filch_err filch_yield_shutdown(filch_out *out, uint64_t tag, filch_stream stream)
{
    return yield_bare(out, FILCH_CMD_SHUTDOWN, tag, stream);
}

filch_err filch_yield_close(filch_out *out, uint64_t tag, filch_stream stream)
{
    return yield_bare(out, FILCH_CMD_CLOSE, tag, stream);
}

filch_err filch_yield_io_cancel(filch_out *out, uint64_t tag, filch_stream stream)
{
    return yield_bare(out, FILCH_CMD_IO_CANCEL, tag, stream);
}

filch_err filch_yield_tag_cancel(filch_out *out, uint64_t tag, uint64_t which)
{
    return filch_yield(out, FILCH_CMD_TAG_CANCEL, tag, filch_int((int64_t)which));
}

/* ---- yields about a descriptor of the program: poll it, cancel a poll, adopt it ---- */

static filch_err yield_descriptor(filch_out *out, uint32_t command, uint64_t tag, int fd, uint32_t how,
                                  uint64_t timeout_ns)
{
    if (fd < 0) return filch_invalid("fd is below 0");
    return yield_read_request(out, command, tag, (filch_stream){ 0 }, timeout_ns,
                              (read_request){ .most = (uint64_t)fd, .how = (uint8_t)how });
}

filch_err filch_yield_poll(filch_out *out, uint64_t tag, int fd, uint32_t events, uint64_t timeout_ns)
{
    if (events == 0 || (events & ~(uint32_t)(FILCH_POLL_IN | FILCH_POLL_OUT)) != 0)
        return filch_invalid("events is 0 or has bits besides FILCH_POLL_*");
    return yield_descriptor(out, FILCH_CMD_POLL, tag, fd, events, timeout_ns);
}

filch_err filch_yield_poll_cancel(filch_out *out, uint64_t tag, int fd)
{
    return yield_descriptor(out, FILCH_CMD_POLL_CANCEL, tag, fd, 0, FILCH_FOREVER);
}

filch_err filch_yield_adopt(filch_out *out, uint64_t tag, int fd, uint32_t flags)
{
    if ((flags & ~(uint32_t)FILCH_ADOPT_KEEP) != 0) return filch_invalid("flags has bits besides FILCH_ADOPT_KEEP");
    return yield_descriptor(out, FILCH_CMD_ADOPT, tag, fd, flags, FILCH_FOREVER);
}

/* ---- files, programs, signals ---- */

filch_err filch_yield_open(filch_out *out, uint64_t tag, const char *path, uint32_t flags)
{
    return filch_yield_open_within(out, tag, path, flags, FILCH_FOREVER);
}

filch_err filch_yield_open_within(filch_out *out, uint64_t tag, const char *path, uint32_t flags, uint64_t timeout_ns)
{
    const uint32_t known =
        FILCH_OPEN_READ | FILCH_OPEN_WRITE | FILCH_OPEN_CREATE | FILCH_OPEN_EMPTY | FILCH_OPEN_APPEND | FILCH_OPEN_NEW;
    uint32_t size = measure(path, PATH_BYTES_MAX);
    if (size <= 1) return filch_invalid("path is NULL, empty or over 4095 bytes");
    if ((flags & ~known) != 0) return filch_invalid("flags has bits besides FILCH_OPEN_*");
    if ((flags & (FILCH_OPEN_READ | FILCH_OPEN_WRITE)) == 0)
        return filch_invalid("flags has neither FILCH_OPEN_READ nor FILCH_OPEN_WRITE");
    if ((flags & FILCH_OPEN_WRITE) == 0 && (flags & ~(uint32_t)FILCH_OPEN_READ) != 0)
        return filch_invalid("flags asks to change a file without FILCH_OPEN_WRITE");
    text_request what = { .how = flags, .text_size = size };
    return yield_text_request(out, FILCH_CMD_OPEN, tag, (filch_stream){ 0 }, timeout_ns, what, path, NULL, NULL);
}

filch_err filch_yield_seek(filch_out *out, uint64_t tag, filch_stream stream, int64_t offset, int whence)
{
    if (whence < 0 || whence > 2) return filch_invalid("whence is not 0, 1 or 2");
    text_request what = { .how = (uint32_t)whence, .number = offset };
    return yield_text_request(out, FILCH_CMD_SEEK, tag, stream, FILCH_FOREVER, what, NULL, NULL, NULL);
}

filch_err filch_yield_sync(filch_out *out, uint64_t tag, filch_stream stream, uint32_t flags)
{
    if ((flags & ~(uint32_t)FILCH_SYNC_DATA) != 0) return filch_invalid("flags has bits besides FILCH_SYNC_DATA");
    text_request what = { .how = flags };
    return yield_text_request(out, FILCH_CMD_SYNC, tag, stream, FILCH_FOREVER, what, NULL, NULL, NULL);
}

filch_err filch_yield_truncate(filch_out *out, uint64_t tag, filch_stream stream, uint64_t size)
{
    if (size > INT64_MAX) return filch_invalid("size is over 2^63 - 1");
    text_request what = { .number = (int64_t)size };
    return yield_text_request(out, FILCH_CMD_TRUNCATE, tag, stream, FILCH_FOREVER, what, NULL, NULL, NULL);
}

/* Yields a command with one or two paths. `to` is NULL for commands with one path. */
static filch_err yield_path(filch_out *out, uint32_t command, uint64_t tag, const char *path, const char *to,
                            uint32_t flags)
{
    text_request what = { .how = flags,
                          .text_size = measure(path, PATH_BYTES_MAX),
                          .service_size = measure(to, PATH_BYTES_MAX) };
    if (what.text_size <= 1) return filch_invalid("path is NULL, empty or over 4095 bytes");
    if (command == FILCH_CMD_RENAME && what.service_size <= 1)
        return filch_invalid("to is NULL, empty or over 4095 bytes");
    return yield_text_request(out, command, tag, (filch_stream){ 0 }, FILCH_FOREVER, what, path, to, NULL);
}

filch_err filch_yield_stat(filch_out *out, uint64_t tag, const char *path, uint32_t flags)
{
    if ((flags & ~(uint32_t)FILCH_STAT_LINK) != 0) return filch_invalid("flags has bits besides FILCH_STAT_LINK");
    return yield_path(out, FILCH_CMD_STAT, tag, path, NULL, flags);
}

filch_err filch_yield_rename(filch_out *out, uint64_t tag, const char *from, const char *to, uint32_t flags)
{
    if ((flags & ~(uint32_t)(FILCH_RENAME_NEW | FILCH_RENAME_SYNC)) != 0)
        return filch_invalid("flags has bits besides FILCH_RENAME_*");
    return yield_path(out, FILCH_CMD_RENAME, tag, from, to, flags);
}

filch_err filch_yield_remove(filch_out *out, uint64_t tag, const char *path)
{
    return yield_path(out, FILCH_CMD_REMOVE, tag, path, NULL, 0);
}

filch_err filch_yield_mkdir(filch_out *out, uint64_t tag, const char *path)
{
    return yield_path(out, FILCH_CMD_MKDIR, tag, path, NULL, 0);
}

filch_err filch_yield_rmdir(filch_out *out, uint64_t tag, const char *path)
{
    return yield_path(out, FILCH_CMD_RMDIR, tag, path, NULL, 0);
}

filch_err filch_yield_list(filch_out *out, uint64_t tag, const char *path)
{
    return yield_path(out, FILCH_CMD_LIST, tag, path, NULL, 0);
}

filch_err filch_yield_run(filch_out *out, uint64_t tag, const char *const *argv, uint32_t flags)
{
    filch_run_options options = FILCH_RUN_OPTIONS_INIT;
    options.flags = flags;
    return filch_yield_run_with(out, tag, argv, &options);
}

static filch_err read_run_options(const filch_run_options *given, filch_run_options *out)
{
    const uint32_t known =
        FILCH_RUN_INPUT | FILCH_RUN_OUTPUT | FILCH_RUN_ERRORS | FILCH_RUN_MERGE | FILCH_RUN_SAME_GROUP;
    const uint32_t both = FILCH_RUN_ERRORS | FILCH_RUN_MERGE;
    filch_err      err = FLI_VERSIONED_READ(out, given, "options", FILCH_RUN_OPTIONS_INIT);
    if (err != FILCH_OK) return err;
    if (out->timeout_ns == 0) out->timeout_ns = FILCH_FOREVER;
    if (out->directory != NULL && measure(out->directory, PATH_BYTES_MAX) <= 1) {
        return filch_invalid("options.directory is empty or over 4095 bytes");
    }
    if ((out->flags & ~known) != 0 || (out->flags & both) == both) {
        return filch_invalid("flags has bits besides FILCH_RUN_*, or both FILCH_RUN_ERRORS and FILCH_RUN_MERGE");
    }
    return out->spare == 0 ? FILCH_OK : filch_invalid("options.spare is not 0: begin with the FILCH_*_INIT macro");
}

/* Returns the size of all texts of a NULL-terminated list, each with its NUL. */
static size_t joined_size(const char *const *list)
{
    size_t size = 0;
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) size += strlen(list[i]) + 1;
    return size;
}

static char *join(char *at, const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) at = stpcpy(at, list[i]) + 1;
    return at;
}

/* How filch_run_options is encoded as a text_request: the arguments are the text, the environment is the bytes, the
 * directory is the service. `backlog` is 1 if an environment was given, even an empty one. */
filch_err filch_yield_run_with(filch_out *out, uint64_t tag, const char *const *argv, const filch_run_options *options)
{
    filch_run_options opt;
    if (out == NULL) return filch_invalid("out is NULL");
    if (argv == NULL) return filch_invalid("argv is NULL");
    if (argv[0] == NULL || argv[0][0] == '\0') return filch_invalid("argv[0] is NULL or empty");
    filch_err err = read_run_options(options, &opt);
    if (err != FILCH_OK) return err;
    size_t size = joined_size(argv), more = joined_size(opt.environment);
    if (size > ARGV_MAX || more > ARGV_MAX) return FILCH_ETOOBIG;
    fli_runtime *rt = &out->ctx.sched->rt;
    char        *joined = fli_alloc(&rt->mem, size + more);
    if (joined == NULL) return FILCH_ENOMEM;
    (void)join(join(joined, argv), opt.environment);
    text_request what = { .how = opt.flags,
                          .text_size = (uint32_t)size,
                          .byte_count = more,
                          .service_size = measure(opt.directory, PATH_BYTES_MAX),
                          .backlog = opt.environment != NULL };
    err = yield_text_request(out, FILCH_CMD_RUN, tag, (filch_stream){ 0 }, opt.timeout_ns, what, joined, opt.directory,
                             joined + size);
    fli_free(&rt->mem, joined, size + more);
    return err;
}

filch_err filch_yield_exit(filch_out *out, uint64_t tag, filch_stream program, uint64_t timeout_ns)
{
    filch_data nothing = filch_none();
    return yield_plain(out, FILCH_CMD_EXIT, tag, program, timeout_ns, &nothing);
}

filch_err filch_yield_kill(filch_out *out, uint64_t tag, filch_stream program, int number)
{
    if (number < 1 || number > SIGNAL_NUMBER_MAX) return filch_invalid("number is not a signal from 1 to 64");
    text_request what = { .number = number };
    return yield_text_request(out, FILCH_CMD_KILL, tag, program, FILCH_FOREVER, what, NULL, NULL, NULL);
}

filch_err filch_yield_signals(filch_out *out, uint64_t tag, const int *numbers, size_t count)
{
    if (numbers == NULL) return filch_invalid("numbers is NULL");
    if (count == 0 || count > SIGNALS_MAX) return filch_invalid("count is not 1 to 64");
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] < 1 || numbers[i] > SIGNAL_NUMBER_MAX)
            return filch_invalid("numbers has an element that is not a signal from 1 to 64");
    }
    text_request what = { .byte_count = count * sizeof *numbers };
    return yield_text_request(out, FILCH_CMD_SIGNALS, tag, (filch_stream){ 0 }, FILCH_FOREVER, what, NULL, NULL,
                              numbers);
}

/* ---- calls without a yield ---- */

/* Checks whether a call about streams is allowed: returns FILCH_OK inside a step of a scheduler that is not simulated,
 * otherwise an error. The functions below that call may_ask() are not recorded, because a replay has no streams. */
static filch_err may_ask(const filch_out *out)
{
    if (out == NULL) return filch_invalid("out is NULL");
    if (!fli_out_is_stepping(out)) return FILCH_ESTATE;
    return fli_simulator_refuses(&out->ctx.sched->rt, "I/O") ? FILCH_ESTATE : FILCH_OK;
}

filch_err filch_stream_give(filch_out *out, filch_stream stream, filch_pid to)
{
    filch_err err = may_ask(out);
    return err == FILCH_OK ? fli_io_give(&out->ctx.sched->io, fli_current_worker(&out->ctx.sched->rt), stream, to)
                           : err;
}

filch_err filch_stream_take(filch_out *out, const filch_data *data, filch_stream *stream)
{
    if (data == NULL) return filch_invalid("data is NULL");
    if (stream == NULL) return filch_invalid("stream is NULL");
    filch_err err = may_ask(out);
    return err == FILCH_OK ? fli_io_take(&out->ctx.sched->io, fli_current_worker(&out->ctx.sched->rt), data, stream)
                           : err;
}

filch_err filch_stream_address(filch_out *out, filch_stream stream, filch_address_of which, char *text, size_t room)
{
    if (text == NULL) return filch_invalid("text is NULL");
    if (room == 0) return filch_invalid("room is 0");
    if ((unsigned)which > FILCH_ADDRESS_SENDER) return filch_invalid("which is not a filch_address_of");
    filch_err err = may_ask(out);
    if (err != FILCH_OK) return err;
    return fli_io_address(&out->ctx.sched->io, fli_current_worker(&out->ctx.sched->rt), stream, which, text, room);
}

/* ---- decoding ---- */

filch_err filch_as_program(const filch_data *data, filch_program *program)
{
    if (program == NULL) return filch_invalid("program is NULL");
    memset(program, 0, sizeof *program);
    if (filch_kind_of(data) != FILCH_KIND_BYTES || filch_size(data) != sizeof *program)
        return filch_invalid("data is not what filch_yield_run completed with");
    memcpy(program, filch_raw(data), sizeof *program);
    return FILCH_OK;
}

filch_err filch_as_file_info(const filch_data *data, filch_file_info *info)
{
    if (info == NULL) return filch_invalid("info is NULL");
    if (info->size < sizeof info->size) return filch_invalid("info.size is not set: set it to sizeof(filch_file_info)");
    size_t room = info->size < sizeof *info ? info->size : sizeof *info, size = info->size;
    memset(info, 0, room);
    info->size = size;
    if (filch_kind_of(data) != FILCH_KIND_BYTES || filch_size(data) != sizeof *info)
        return filch_invalid("data is not what filch_yield_stat completed with");
    memcpy(info, filch_raw(data), room);
    info->size = size;
    return FILCH_OK;
}

/* An entry of a directory listing is one byte with its kind, the name, and a NUL: io/paths.c. */
filch_err filch_as_entry(const filch_data *data, size_t *at, const char **name, filch_file_kind *kind)
{
    if (name == NULL) return filch_invalid("name is NULL");
    *name = NULL;
    if (at == NULL) return filch_invalid("at is NULL");
    if (filch_kind_of(data) != FILCH_KIND_BYTES || *at > filch_size(data))
        return filch_invalid("data is not what filch_yield_list completed with");
    size_t      left = filch_size(data) - *at;
    const char *entry = (const char *)filch_raw(data) + *at;
    if (left == 0) return FILCH_EEND;
    const char *end = left > 2 ? memchr(entry + 1, '\0', left - 1) : NULL;
    if (end == NULL || end == entry + 1 || entry[0] < FILCH_FILE_REGULAR || entry[0] > FILCH_FILE_OTHER) {
        return filch_invalid("data is not what filch_yield_list completed with");
    }
    *name = entry + 1;
    if (kind != NULL) *kind = (filch_file_kind)entry[0];
    *at += (size_t)(end - entry) + 1;
    return FILCH_OK;
}

static filch_err not_io(void)
{
    return filch_invalid("command is not one that the I/O functions made");
}

static filch_err open_read_request(const filch_data *data, filch_io_request *request)
{
    read_request what;
    if (filch_kind_of(data) != FILCH_KIND_BYTES || filch_size(data) != sizeof what) return not_io();
    memcpy(&what, filch_raw(data), sizeof what);
    if (what.mark != MARK || what.how > FLI_READ_UNTIL || what.delimiter_size > sizeof what.delimiter) {
        return not_io();
    }
    request->most = what.most;
    request->how = what.how;
    request->delimiter_size = what.delimiter_size;
    memcpy(request->delimiter, what.delimiter, sizeof what.delimiter);
    return FILCH_OK;
}

/* Decodes a request about a descriptor. The number of the descriptor is in the field `most` of the encoded request. */
static filch_err open_descriptor(const filch_data *data, filch_io_request *request)
{
    read_request what;
    if (filch_kind_of(data) != FILCH_KIND_BYTES || filch_size(data) != sizeof what) return not_io();
    memcpy(&what, filch_raw(data), sizeof what);
    if (what.mark != MARK || what.most > INT32_MAX || what.how > (FILCH_POLL_IN | FILCH_POLL_OUT)) return not_io();
    request->number = (int64_t)what.most;
    request->how = what.how;
    return FILCH_OK;
}

static filch_err open_text_request(const filch_data *data, filch_io_request *request)
{
    text_request what;
    size_t       size = filch_size(data);
    if (filch_kind_of(data) != FILCH_KIND_BYTES || size < sizeof what) return not_io();
    const char *at = filch_raw(data);
    memcpy(&what, at, sizeof what);
    uint64_t texts = (uint64_t)what.text_size + what.service_size;
    if (what.mark != MARK || texts > size - sizeof what || what.byte_count != size - sizeof what - texts) {
        return not_io();
    }
    const char *text = at + sizeof what, *service = text + what.text_size;
    if (what.text_size > 0 && text[what.text_size - 1] != '\0') return not_io();
    if (what.service_size > 0 && service[what.service_size - 1] != '\0') return not_io();
    request->how = what.how;
    request->backlog = what.backlog;
    request->number = what.number;
    request->text = what.text_size > 0 ? text : NULL;
    request->text_size = what.text_size;
    request->service = what.service_size > 0 ? service : NULL;
    request->bytes = service + what.service_size;
    request->byte_count = what.byte_count;
    return FILCH_OK;
}

filch_err filch_io_read(const filch_command *command, filch_io_request *request)
{
    if (command == NULL) return filch_invalid("command is NULL");
    if (request == NULL) return filch_invalid("request is NULL");
    if (request->size < sizeof *request)
        return filch_invalid("request.size is not set: set it to sizeof(filch_io_request)");
    *request = (filch_io_request){ .size = request->size,
                                   .stream = { command->target.node },
                                   .timeout_ns = command->target.serial };
    const filch_data *data = &command->data;
    switch (command->id) {
    case FILCH_CMD_READ:
    case FILCH_CMD_RECEIVE_FROM: return open_read_request(data, request);
    case FILCH_CMD_POLL:
    case FILCH_CMD_POLL_CANCEL:
    case FILCH_CMD_ADOPT: return open_descriptor(data, request);
    case FILCH_CMD_TAG_CANCEL:
        request->number = filch_as_int(data);
        return filch_kind_of(data) == FILCH_KIND_INT ? FILCH_OK : not_io();
    case FILCH_CMD_WRITE:
        request->bytes = filch_raw(data);
        request->byte_count = filch_size(data);
        return has_bytes(data) ? FILCH_OK : not_io();
    case FILCH_CMD_CONNECT:
    case FILCH_CMD_LISTEN:
    case FILCH_CMD_DATAGRAM:
    case FILCH_CMD_SEND_TO:
    case FILCH_CMD_OPEN:
    case FILCH_CMD_STAT:
    case FILCH_CMD_RENAME:
    case FILCH_CMD_REMOVE:
    case FILCH_CMD_MKDIR:
    case FILCH_CMD_RMDIR:
    case FILCH_CMD_LIST:
    case FILCH_CMD_RUN: {
        filch_err err = open_text_request(data, request);
        if (err == FILCH_OK && command->id == FILCH_CMD_RENAME && request->service == NULL) return not_io();
        return err == FILCH_OK && request->text == NULL ? not_io() : err;
    }
    case FILCH_CMD_RESOLVE:
    case FILCH_CMD_SEEK:
    case FILCH_CMD_SYNC:
    case FILCH_CMD_TRUNCATE:
    case FILCH_CMD_KILL:
    case FILCH_CMD_SIGNALS: return open_text_request(data, request);
    case FILCH_CMD_ACCEPT:
    case FILCH_CMD_CLOSE:
    case FILCH_CMD_SHUTDOWN:
    case FILCH_CMD_IO_CANCEL:
    case FILCH_CMD_EXIT: return FILCH_OK;
    default: return not_io();
    }
}
