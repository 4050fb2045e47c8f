/* resp.c - parses requests, writes replies.
 *
 * A request is "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n": the number of arguments, and before each its size. Or it is a line of
 * words, as typed by hand. Sizes are checked before they are used; an incomplete request is parsed again from its
 * beginning when more bytes have come, which costs no more than its few headers.
 */
#include "resp.h"

#define CUT (-1)   /* returned if the input is incomplete */
#define WRONG (-2) /* returned if the header has no number, or a number out of range */

/* Returns the number in the header line at in[*at], and moves *at behind the line. Returns CUT if the line is
 * incomplete, WRONG if it has no number from 0 to `most`. */
static int64_t header(const char *in, size_t size, size_t *at, int64_t most)
{
    int64_t n = 0;
    size_t  i = *at + 1;
    for (; i < size && in[i] >= '0' && in[i] <= '9'; i++) {
        n = n * 10 + (in[i] - '0');
        if (n > most) return WRONG;
    }
    if (i == size) return i - *at > 16 ? WRONG : CUT;
    if (i == *at + 1 || in[i] != '\r') return WRONG;
    if (i + 1 == size) return CUT;
    if (in[i + 1] != '\n') return WRONG;
    *at = i + 2;
    return n;
}

static int64_t read_array(const char *in, size_t size, resp_request *request, const char **error)
{
    size_t  at = 0;
    int64_t count = header(in, size, &at, RESP_ARGS_MAX);
    if (count == CUT) return 0;
    *error = "Protocol error: invalid multibulk length";
    if (count == WRONG) return -1;
    request->count = (int)count;
    for (int i = 0; i < count; i++) {
        if (at == size) return 0;
        *error = "Protocol error: expected '$'";
        if (in[at] != '$') return -1;
        *error = "Protocol error: invalid bulk length";
        int64_t bulk = header(in, size, &at, (int64_t)RESP_BULK_MAX);
        if (bulk == CUT) return 0;
        if (bulk == WRONG) return -1;
        if (at + (size_t)bulk + 2 > RESP_REQUEST_MAX) return -1;
        if (size - at < (size_t)bulk + 2) return 0;
        request->args[i] = (slice){ in + at, (size_t)bulk };
        at += (size_t)bulk;
        *error = "Protocol error: a bulk string does not end with CR LF";
        if (in[at] != '\r' || in[at + 1] != '\n') return -1;
        at += 2;
    }
    return (int64_t)at;
}

static int64_t read_line(const char *in, size_t size, resp_request *request, const char **error)
{
    const char *end = memchr(in, '\n', size);
    *error = "Protocol error: too big inline request";
    if (end == NULL) return size > RESP_INLINE_MAX ? -1 : 0;
    if ((size_t)(end - in) > RESP_INLINE_MAX) return -1;
    *error = "Protocol error: too many words";
    request->count = 0;
    for (const char *at = in; at < end;) {
        const char *word = at;
        while (at < end && *at != ' ' && *at != '\t' && *at != '\r') at++;
        if (at > word) {
            if (request->count == RESP_ARGS_MAX) return -1;
            request->args[request->count++] = (slice){ word, (size_t)(at - word) };
        }
        if (at < end) at++;
    }
    return end - in + 1;
}

int64_t resp_read(const char *in, size_t size, resp_request *request, const char **error)
{
    if (size == 0) return 0;
    return in[0] == '*' ? read_array(in, size, request, error) : read_line(in, size, request, error);
}

/* ---- replies ---- */

void resp_end(bytes *out)
{
    bytes_add(out, "\r\n", 2);
}

void resp_simple(bytes *out, const char *text)
{
    bytes_add(out, "+", 1);
    bytes_text(out, text);
    resp_end(out);
}

void resp_error(bytes *out, const char *text)
{
    bytes_add(out, "-ERR ", 5);
    bytes_text(out, text);
    resp_end(out);
}

/* Appends a line: a letter, a number, and the end of the line. */
static void line(bytes *out, char letter, int64_t number)
{
    char     text[24];
    char    *at = text + sizeof text;
    uint64_t n = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *--at = '\n';
    *--at = '\r';
    do *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    if (number < 0) *--at = '-';
    *--at = letter;
    bytes_add(out, at, (size_t)(text + sizeof text - at));
}

void resp_number(bytes *out, int64_t number)
{
    line(out, ':', number);
}

void resp_bulk_head(bytes *out, size_t size)
{
    line(out, '$', (int64_t)size);
}

void resp_array(bytes *out, int64_t count)
{
    line(out, '*', count);
}

void resp_bulk(bytes *out, slice text)
{
    resp_bulk_head(out, text.size);
    bytes_add(out, text.at, text.size);
    resp_end(out);
}

void resp_nothing(bytes *out)
{
    bytes_add(out, "$-1\r\n", 5);
}
