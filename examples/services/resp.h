/* resp.h - the Redis protocol (RESP 2): parses requests, appends replies. */
#ifndef KV_RESP_H
#define KV_RESP_H

#include "table.h"

#define RESP_ARGS_MAX 1024                       /* maximal number of arguments of one request */
#define RESP_INLINE_MAX ((size_t)65536)          /* maximal bytes of an inline request (a line of words) */
#define RESP_BULK_MAX ((size_t)64 * 1024 * 1024) /* maximal bytes of one argument */
#define RESP_REQUEST_MAX (2 * RESP_BULK_MAX)     /* maximal bytes of a request */

typedef struct resp_request {
    int   count; /* number of arguments; 0: the request was an empty line */
    slice args[RESP_ARGS_MAX];
} resp_request;

/* Parses the request at the beginning of in[0 .. size); args point into it. Returns the request's size, 0 if it is
 * incomplete, or -1 if it is invalid; then *error is a text for the client. */
int64_t resp_read(const char *in, size_t size, resp_request *request, const char **error);

void resp_simple(bytes *out, const char *text); /* appends +OK */
void resp_error(bytes *out, const char *text);  /* appends -ERR text */
void resp_number(bytes *out, int64_t number);   /* appends :1 */
/* appends the header of a text of `size` bytes, for example "$5" if size is 5; the caller then appends the bytes and
 * calls resp_end */
void resp_bulk_head(bytes *out, size_t size);
void resp_end(bytes *out);
void resp_bulk(bytes *out, slice text); /* appends header and text, for example "$5" and the text "hello" */
void resp_nothing(bytes *out);          /* appends $-1: no value */
/* appends the header of an array of `count` replies, for example "*2" if count is 2; the caller then appends the
 * replies */
void resp_array(bytes *out, int64_t count);

#endif
