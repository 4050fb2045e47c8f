/* kv.c - a key-value service that speaks the Redis protocol: redis-cli and redis-benchmark can use it.
 *
 *     build/examples/kv --port 6380 &
 *     redis-cli -p 6380 set greeting hello
 *
 * PING ECHO GET SET DEL EXISTS INCR DECR INCRBY DECRBY DBSIZE FLUSHALL SELECT 0 QUIT HELLO, and as much of COMMAND and
 * CONFIG as clients ask for when they begin. DEBUG PANIC makes the connection's process fail, to show that no other
 * connection is affected. Nothing expires and nothing is written to disk: it is an example, and the whole service is
 * resp.c, table.c and this.
 *
 * All requests of one read are answered with one write (service.h, connection.c); the table is table.c.
 */
#include <ctype.h>
#include <stdio.h>

#include "resp.h"
#include "service.h"

/* Executes a command; r->args[0] is the command's name. */
typedef service_next (*command_fn)(const resp_request *r, bytes *out);

typedef struct command {
    const char *name;
    int         least, most; /* minimum and maximum number of arguments, including the name; most 0: no maximum */
    command_fn  run;
} command;

static bool is_word(slice text, const char *word)
{
    size_t i = 0;
    for (; i < text.size && word[i] != '\0'; i++) {
        if (toupper((unsigned char)text.at[i]) != word[i]) return false;
    }
    return i == text.size && word[i] == '\0';
}

static service_next do_ping(const resp_request *r, bytes *out)
{
    if (r->count == 1) resp_simple(out, "PONG");
    else resp_bulk(out, r->args[1]);
    return SERVICE_READ;
}

static service_next do_echo(const resp_request *r, bytes *out)
{
    resp_bulk(out, r->args[1]);
    return SERVICE_READ;
}

static service_next do_get(const resp_request *r, bytes *out)
{
    if (table_get(r->args[1], out, resp_bulk_head)) resp_end(out);
    else resp_nothing(out);
    return SERVICE_READ;
}

static service_next do_set(const resp_request *r, bytes *out)
{
    if (r->count > 3) resp_error(out, "syntax error"); /* the options of the SET command of Redis are not supported */
    else if (table_set(r->args[1], r->args[2])) resp_simple(out, "OK");
    else resp_error(out, "out of memory");
    return SERVICE_READ;
}

static service_next for_each(const resp_request *r, bytes *out, bool (*what)(slice key))
{
    int64_t count = 0;
    for (int i = 1; i < r->count; i++) count += what(r->args[i]);
    resp_number(out, count);
    return SERVICE_READ;
}

static service_next do_del(const resp_request *r, bytes *out)
{
    return for_each(r, out, table_delete);
}

static service_next do_exists(const resp_request *r, bytes *out)
{
    return for_each(r, out, table_has);
}

static service_next add(slice key, int64_t by, bytes *out)
{
    int64_t result;
    switch (table_add(key, by, &result)) {
    case TABLE_SUM: resp_number(out, result); break;
    case TABLE_NO_NUMBER: resp_error(out, "value is not an integer or out of range"); break;
    case TABLE_TOO_LARGE: resp_error(out, "increment or decrement would overflow"); break;
    case TABLE_NO_MEMORY: resp_error(out, "out of memory"); break;
    }
    return SERVICE_READ;
}

static service_next do_incr(const resp_request *r, bytes *out)
{
    return add(r->args[1], 1, out);
}

static service_next do_decr(const resp_request *r, bytes *out)
{
    return add(r->args[1], -1, out);
}

/* Parses a 64-bit number. As in Redis, only the canonical form is a number. */
static bool read_number(slice text, int64_t *number)
{
    size_t i = text.size > 0 && text.at[0] == '-';
    bool   negative = i == 1;
    *number = 0;
    if (text.size == 1 && text.at[0] == '0') return true;
    if (i == text.size || text.at[i] < '1' || text.at[i] > '9') return false;
    for (; i < text.size; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return false;
        int digit = text.at[i] - '0';
        if (__builtin_mul_overflow(*number, 10, number)) return false;
        if (__builtin_add_overflow(*number, negative ? -digit : digit, number)) return false;
    }
    return true;
}

static service_next do_incrby(const resp_request *r, bytes *out)
{
    int64_t by;
    if (read_number(r->args[2], &by)) return add(r->args[1], by, out);
    resp_error(out, "value is not an integer or out of range");
    return SERVICE_READ;
}

static service_next do_decrby(const resp_request *r, bytes *out)
{
    int64_t by;
    if (!read_number(r->args[2], &by)) resp_error(out, "value is not an integer or out of range");
    else if (by == INT64_MIN) resp_error(out, "decrement would overflow");
    else return add(r->args[1], -by, out);
    return SERVICE_READ;
}

static void pair(bytes *out, const char *name, const char *value)
{
    resp_bulk(out, (slice){ name, strlen(name) });
    if (value != NULL) resp_bulk(out, (slice){ value, strlen(value) });
}

/* HELLO [version [AUTH name password] [SETNAME name]]: the first command of many clients. Only RESP 2 is supported. */
static service_next do_hello(const resp_request *r, bytes *out)
{
    int64_t version = 2;
    if (r->count > 1 && !read_number(r->args[1], &version)) {
        resp_error(out, "Protocol version is not an integer or out of range");
        return SERVICE_READ;
    }
    if (version != 2) {
        bytes_text(out, "-NOPROTO unsupported protocol version\r\n");
        return SERVICE_READ;
    }
    for (int i = 2; i < r->count;) { /* AUTH and SETNAME are accepted and ignored */
        int size = is_word(r->args[i], "AUTH") ? 3 : is_word(r->args[i], "SETNAME") ? 2 : 0;
        if (size == 0 || r->count - i < size) {
            resp_error(out, "Syntax error in HELLO option");
            return SERVICE_READ;
        }
        i += size;
    }
    resp_array(out, 14);
    pair(out, "server", "filch-kv");
    pair(out, "version", "7.0.0"); /* a version of Redis with the same replies */
    pair(out, "proto", NULL);
    resp_number(out, 2);
    pair(out, "id", NULL);
    resp_number(out, 1);
    pair(out, "mode", "standalone");
    pair(out, "role", "master");
    pair(out, "modules", NULL);
    resp_array(out, 0);
    return SERVICE_READ;
}

static service_next do_dbsize(const resp_request *r, bytes *out)
{
    (void)r;
    resp_number(out, (int64_t)table_count());
    return SERVICE_READ;
}

static service_next do_flushall(const resp_request *r, bytes *out)
{
    (void)r;
    table_clear();
    resp_simple(out, "OK");
    return SERVICE_READ;
}

static service_next do_select(const resp_request *r, bytes *out)
{
    if (r->args[1].size == 1 && r->args[1].at[0] == '0') resp_simple(out, "OK");
    else resp_error(out, "DB index is out of range");
    return SERVICE_READ;
}

static service_next do_quit(const resp_request *r, bytes *out)
{
    (void)r;
    resp_simple(out, "OK");
    return SERVICE_CLOSE;
}

/* COMMAND: redis-cli asks for the names of all commands at its start, for tab completion. An empty list is a valid
 * reply. */
static service_next do_command(const resp_request *r, bytes *out)
{
    (void)r;
    resp_array(out, 0);
    return SERVICE_READ;
}

/* redis-benchmark asks with CONFIG how the data is saved to disk; the reply says that the data is not saved. */
static service_next do_config(const resp_request *r, bytes *out)
{
    if (!is_word(r->args[1], "GET") || r->count != 3) {
        resp_error(out, "only CONFIG GET with one name is supported");
        return SERVICE_READ;
    }
    bool save = is_word(r->args[2], "SAVE"), append = is_word(r->args[2], "APPENDONLY");
    resp_array(out, save || append ? 2 : 0);
    if (save || append) {
        resp_bulk(out, r->args[2]);
        resp_bulk(out, save ? (slice){ "", 0 } : (slice){ "no", 2 });
    }
    return SERVICE_READ;
}

static service_next do_debug(const resp_request *r, bytes *out)
{
    if (is_word(r->args[1], "PANIC")) return SERVICE_FAIL;
    resp_error(out, "DEBUG has PANIC here");
    return SERVICE_READ;
}

/* The table is searched from the start, so common commands come first. */
static const command commands[] = {
    { "GET", 2, 2, do_get },       { "SET", 3, 0, do_set },       { "INCR", 2, 2, do_incr },
    { "PING", 1, 2, do_ping },     { "DEL", 2, 0, do_del },       { "EXISTS", 2, 0, do_exists },
    { "DECR", 2, 2, do_decr },     { "INCRBY", 3, 3, do_incrby }, { "DECRBY", 3, 3, do_decrby },
    { "ECHO", 2, 2, do_echo },     { "DBSIZE", 1, 1, do_dbsize }, { "FLUSHALL", 1, 2, do_flushall },
    { "SELECT", 2, 2, do_select }, { "QUIT", 1, 0, do_quit },     { "COMMAND", 1, 0, do_command },
    { "CONFIG", 2, 0, do_config }, { "DEBUG", 2, 0, do_debug },   { "HELLO", 1, 0, do_hello },
};

/* Appends the error "unknown command 'x'", with the printable part of the name. */
static void unknown(slice name, bytes *out)
{
    char   shown[65];
    size_t size = name.size < sizeof shown - 1 ? name.size : sizeof shown - 1;
    for (size_t i = 0; i < size; i++) shown[i] = (char)(isprint((unsigned char)name.at[i]) ? name.at[i] : '?');
    shown[size] = '\0';
    char text[128];
    snprintf(text, sizeof text, "unknown command '%s'", shown);
    resp_error(out, text);
}

static service_next run(const resp_request *r, bytes *out)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const command *c = &commands[i];
        if (!is_word(r->args[0], c->name)) continue;
        if (r->count >= c->least && (c->most == 0 || r->count <= c->most)) return c->run(r, out);
        char text[96];
        snprintf(text, sizeof text, "wrong number of arguments for '%s' command", c->name);
        for (char *at = text; *at != '\0'; at++) *at = (char)tolower((unsigned char)*at);
        resp_error(out, text);
        return SERVICE_READ;
    }
    unknown(r->args[0], out);
    return SERVICE_READ;
}

static service_next answer(uint64_t *memory, const char *in, size_t size, size_t *used, bytes *reply)
{
    static _Thread_local resp_request request; /* static because it is too large for the stack of a step */
    const char                       *error = NULL;
    (void)memory;
    for (;;) {
        int64_t took = resp_read(in + *used, size - *used, &request, &error);
        if (took == 0) return SERVICE_READ;
        if (took < 0) {
            resp_error(reply, error);
            bytes_mark(reply);
            return SERVICE_CLOSE; /* closes the connection, because the start of the next request is unknown */
        }
        *used += (size_t)took;
        service_next next = request.count > 0 ? run(&request, reply) : SERVICE_READ;
        bytes_mark(reply);
        if (next != SERVICE_READ || reply->failed) return next;
        if (reply->size >= SERVICE_REPLY_BYTES) return SERVICE_AGAIN;
    }
}

int main(int argc, char **argv)
{
    static const service kv = { .name = "kv", .answer = answer };
    if (!table_open()) return 1;
    int code = service_run(&kv, argc, argv);
    table_close();
    return code;
}
