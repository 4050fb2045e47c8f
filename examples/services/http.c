/* http.c - HTTP/1.1 that says hello: keep-alive, pipelining, HEAD, and an error reply to everything else.
 *
 *     build/examples/http --port 8080 &
 *     curl -i http://127.0.0.1:8080/
 *
 * GET and HEAD of / are answered; /crash makes the connection's process fail, to show that no other connection is
 * affected. The bodies of requests are skipped. All requests of one read are answered with one write (service.h,
 * connection.c). A request head may have 8 KiB and arrive in any pieces.
 */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "service.h"

#define HEAD_MAX ((size_t)8192)
/* If the body of a request has more bytes than this, the connection is closed; the bytes of a shorter body are
 * skipped. */
#define BODY_MAX ((uint64_t)1 << 20)
#define HELLO "Hello, world!\n"

typedef struct text {
    const char *at;
    size_t      size;
} text;

/* Contents of the head of a request. */
typedef struct request {
    text     method, target;
    int      minor;  /* minor version of HTTP/1.x */
    int      status; /* not 0: the request is refused with this status, and the connection closed */
    bool     keep;
    int      hosts;
    bool     has_length;
    uint64_t length;
} request;

/* ---- replies ---- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    default: return "HTTP Version Not Supported";
    }
}

/* Returns the Date header line. It is formatted once per second and thread. */
static const char *date(void)
{
    static _Thread_local time_t of;
    static _Thread_local char   line[64];
    time_t                      now = time(NULL);
    if (now != of) {
        struct tm parts;
        gmtime_r(&now, &parts);
        strftime(line, sizeof line, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
        of = now;
    }
    return line;
}

/* Appends a reply. A Connection header is written only if `keep` differs from the default of HTTP/1.`minor`: close in
 * HTTP/1.0, keep-alive in HTTP/1.1. */
static void reply_with(bytes *out, int status, int minor, bool keep, bool body)
{
    char        head[160];
    const char *what = status == 200 ? HELLO : reason_of(status);
    size_t      size = strlen(what) + (status == 200 ? 0 : 1);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n", status,
                     reason_of(status), size);
    bytes_add(out, head, (size_t)n);
    bytes_text(out, date());
    if (status == 405) bytes_text(out, "Allow: GET, HEAD\r\n");
    if (!keep) bytes_text(out, "Connection: close\r\n");
    else if (minor == 0) bytes_text(out, "Connection: keep-alive\r\n");
    bytes_add(out, "\r\n", 2);
    if (!body) return;
    bytes_text(out, what);
    if (status != 200) bytes_add(out, "\n", 1);
}

/* Appends the reply to the usual request, a GET of "/" with HTTP/1.1 and keep-alive: a constant text and the date. */
static void reply_hello(bytes *out)
{
    static const char before[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n";
    bytes_add(out, before, sizeof before - 1);
    bytes_text(out, date());
    bytes_add(out, "\r\n" HELLO, sizeof "\r\n" HELLO - 1);
}

/* ---- requests ---- */

/* Finds the next line of in[*at .. size); *line excludes the line end. Returns 1 if the line is complete, 0 if it is
 * not complete yet, -1 if it does not end in \r\n. */
static int next_line(const char *in, size_t size, size_t *at, text *line)
{
    const char *end = memchr(in + *at, '\n', size - *at);
    if (end == NULL) return 0;
    *line = (text){ in + *at, (size_t)(end - in) - *at };
    *at += line->size + 1;
    if (line->size == 0 || line->at[line->size - 1] != '\r') return -1;
    line->size--;
    return 1;
}

static bool is_token(text t)
{
    for (size_t i = 0; i < t.size; i++) {
        unsigned char c = (unsigned char)t.at[i];
        if (!isalnum(c) && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL)) return false;
    }
    return t.size > 0;
}

static bool is(text t, const char *word)
{
    return t.size == strlen(word) && strncasecmp(t.at, word, t.size) == 0;
}

/* Parses the request line, METHOD SP TARGET SP HTTP/1.x. Returns the status with which to refuse it, or 0. */
static int read_request_line(text line, request *r)
{
    const char *end = line.at + line.size;
    const char *first = memchr(line.at, ' ', line.size);
    if (first == NULL) return 400;
    const char *second = memchr(first + 1, ' ', (size_t)(end - first - 1));
    if (second == NULL || second == first + 1) return 400;
    r->method = (text){ line.at, (size_t)(first - line.at) };
    r->target = (text){ first + 1, (size_t)(second - first - 1) };
    text version = { second + 1, (size_t)(end - second - 1) };
    if (!is_token(r->method)) return 400;
    for (size_t i = 0; i < r->target.size; i++) {
        if ((unsigned char)r->target.at[i] <= ' ' || r->target.at[i] == 0x7f) return 400;
    }
    if (version.size != 8 || memcmp(version.at, "HTTP/", 5) != 0 || version.at[6] != '.') return 400;
    if (!isdigit((unsigned char)version.at[5]) || !isdigit((unsigned char)version.at[7])) return 400;
    if (version.at[5] != '1') return 505;
    r->minor = version.at[7] > '0';
    r->keep = r->minor == 1;
    return 0;
}

static int read_length(text value, request *r)
{
    uint64_t n = 0;
    if (value.size == 0 || value.size > 18) return 400;
    for (size_t i = 0; i < value.size; i++) {
        if (!isdigit((unsigned char)value.at[i])) return 400;
        n = n * 10 + (uint64_t)(value.at[i] - '0');
    }
    if (r->has_length && n != r->length) return 400; /* two different lengths are an attempt at request smuggling */
    r->has_length = true;
    r->length = n;
    return 0;
}

/* Parses the value of a Connection header: a list of words with commas. */
static void read_connection(text value, request *r)
{
    const char *at = value.at, *end = value.at + value.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        text        word = { at, (size_t)(stop - at) };
        while (word.size > 0 && (*word.at == ' ' || *word.at == '\t')) word.at++, word.size--;
        while (word.size > 0 && (word.at[word.size - 1] == ' ' || word.at[word.size - 1] == '\t')) word.size--;
        if (is(word, "close")) r->keep = false;
        if (is(word, "keep-alive") && r->minor == 0) r->keep = true;
        at = stop + 1;
    }
}

/* Parses a header line, NAME: VALUE. Returns the status with which to refuse it, or 0. */
static int read_header(text line, request *r)
{
    const char *colon = memchr(line.at, ':', line.size);
    if (colon == NULL) return 400;
    text name = { line.at, (size_t)(colon - line.at) };
    text value = { colon + 1, line.size - name.size - 1 };
    /* is_token() also refuses folded header lines, which are obsolete and dangerous */
    if (!is_token(name)) return 400;
    while (value.size > 0 && (*value.at == ' ' || *value.at == '\t')) value.at++, value.size--;
    while (value.size > 0 && (value.at[value.size - 1] == ' ' || value.at[value.size - 1] == '\t')) value.size--;
    for (size_t i = 0; i < value.size; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) return 400;
    }
    switch (name.size) { /* the length of the name decides with which header it is compared; other headers are
                            ignored */
    case 4: r->hosts += is(name, "host"); break;
    case 10:
        if (is(name, "connection")) read_connection(value, r);
        break;
    case 14:
        if (is(name, "content-length")) return read_length(value, r);
        break;
    case 17:
        if (is(name, "transfer-encoding")) return 501;
        break;
    default: break;
    }
    return 0;
}

/* Parses the request head at the beginning of in[0 .. size). Returns its size, or 0 if it is incomplete. If it is
 * invalid, r->status is the status with which to refuse it. */
static size_t read_head(const char *in, size_t size, request *r)
{
    size_t at = 0, seen = size < HEAD_MAX ? size : HEAD_MAX;
    text   line;
    bool   first = true;
    *r = (request){ .minor = 1 };
    for (;;) {
        int found = next_line(in, seen, &at, &line);
        if (found == 0) {
            if (seen < HEAD_MAX) return 0;
            r->status = 431;
            return size;
        }
        if (found < 0) r->status = 400;
        else if (line.size == 0 && first) continue; /* an empty line before a request is allowed */
        else if (line.size == 0) break;
        else r->status = first ? read_request_line(line, r) : read_header(line, r);
        if (r->status != 0) return at;
        first = false;
    }
    if (r->minor == 1 ? r->hosts != 1 : r->hosts > 1) r->status = 400;
    else if (r->length > BODY_MAX) r->status = 413;
    return at;
}

static service_next answer_one(const request *r, bytes *reply)
{
    bool head = r->method.size == 4 && memcmp(r->method.at, "HEAD", 4) == 0;
    bool get = r->method.size == 3 && memcmp(r->method.at, "GET", 3) == 0;
    if (r->status != 0) {
        reply_with(reply, r->status, 1, false, !head);
        return SERVICE_CLOSE;
    }
    if (!get && !head) {
        reply_with(reply, 405, r->minor, r->keep, true);
    } else if (r->target.size == 1 && r->target.at[0] == '/') {
        if (get && r->keep && r->minor == 1) reply_hello(reply);
        else reply_with(reply, 200, r->minor, r->keep, get);
    } else if (r->target.size == 6 && memcmp(r->target.at, "/crash", 6) == 0) {
        return SERVICE_FAIL;
    } else {
        reply_with(reply, 404, r->minor, r->keep, get);
    }
    return r->keep ? SERVICE_READ : SERVICE_CLOSE;
}

/* Answers the requests in `in`. `skip` is the number of bytes of the last request's body that have not arrived yet. */
static service_next answer(uint64_t *skip, const char *in, size_t size, size_t *used, bytes *reply)
{
    for (;;) {
        size_t left = size - *used;
        size_t step = *skip < left ? (size_t)*skip : left;
        *used += step;
        *skip -= step;
        left -= step;
        if (left == 0) return SERVICE_READ;
        request r;
        size_t  took = read_head(in + *used, left, &r);
        if (took == 0) return SERVICE_READ;
        *used += took;
        *skip = r.length;
        service_next next = answer_one(&r, reply);
        bytes_mark(reply);
        if (next != SERVICE_READ || reply->failed) return next;
        if (reply->size >= SERVICE_REPLY_BYTES) return SERVICE_AGAIN;
    }
}

int main(int argc, char **argv)
{
    static const service http = {
        .name = "http", .answer = answer, .idle_limit_ns = FILCH_SECONDS(60), .request_ns = FILCH_SECONDS(10)
    };
    return service_run(&http, argc, argv);
}
