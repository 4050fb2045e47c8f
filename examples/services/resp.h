/* resp.h - the Redis protocol (RESP 2): parses requests, appends replies. */
#ifndef KV_RESP_H
#define KV_RESP_H

#include "table.h"

#define RESP_ARGS_MAX 1024                      /* of one request */
#define RESP_INLINE_MAX ((size_t)65536)         /* bytes of a request in one line */
#define RESP_BULK_MAX ((size_t)64 * 1024 * 1024) /* bytes of one argument */
#define RESP_REQUEST_MAX (2 * RESP_BULK_MAX)    /* bytes of a request */

typedef struct resp_request {
    int   count; /* 0: an empty line */
    slice args[RESP_ARGS_MAX];
} resp_request;

/* Parses the request at the beginning of in[0 .. size); args point into it. Returns its size, 0 if it is incomplete, -1
 * if it is invalid: then *error is a text for the client. */
int64_t resp_read(const char *in, size_t size, resp_request *request, const char **error);

void resp_simple(bytes *out, const char *text);             /* +OK */
void resp_error(bytes *out, const char *text);              /* -ERR text */
void resp_number(bytes *out, int64_t number);               /* :1 */
void resp_bulk_head(bytes *out, size_t size);               /* $5, before five bytes and resp_end */
void resp_end(bytes *out);
void resp_bulk(bytes *out, slice text);                     /* $5 and the rest */
void resp_nothing(bytes *out);                              /* $-1: no value */
void resp_array(bytes *out, int64_t count);                 /* *2, before two others */

#endif
