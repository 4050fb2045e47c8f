/* codec.h - converts Lua values to bytes and back, for messages between processes.
 *
 * nil, integers, floats, pids and strings are sent as payloads of their own type, without the bytes described here.
 * Every other value is one block: a mark of four bytes, then one value.
 *
 *   00 nil   01 false   02 true   03 i8   04 i16   05 i32   06 i64   07 f64   (little-endian)
 *   08 n8 bytes   09 n32 bytes       a string
 *   0A a8 p8 ...  0B a32 p32 ...     a table: `a` values for the keys 1, 2, ..., then `p` keys, each with its value
 *   0C node64 serial64               a pid
 *   0D n8 name                       a library, by its name                            } only in the values that
 *   0E n8 name n8 field              a function of a library, by both names            } are sent with a spawn
 *   18 n32 ...                       a function: the n-th attached block is its code;  }
 *                                    its variables follow                              }
 *   19 n32                           the n-th function written so far                  }
 *   1A n32 i8                        a variable: the i-th of the n-th function         }
 *   0F n32                           the n-th block attached (message_refs.h): a blob
 *   13 bytes                         a blob: all bytes up to the end; only outermost
 *   14 n32                           the n-th block attached: a string
 *   16 node64 serial64 id64          a request that needs a reply   } only in the values that a process hands
 *   17 id64                          a stream                       } over to its upgraded code
 *   1B null   1C an empty list        (null.h)
 *   40..7F  the integers 0..63       80..BF  a string of 0..63 bytes       C0..FF  the integers 64..127
 *
 * A request is 10 id64 value, its reply 11 id64 value, a refusal 12 id64 value; only outermost. 15 id64 00 tells a
 * process that a file which it uses has changed.
 *
 * Reading accepts any bytes, and reports those that are not of this form. Writing names a value that cannot be sent,
 * and its place: "message.users[3].callback: a function cannot be sent". Design: docs/design/lua/messages.md.
 */
#ifndef FLI_LUA_CODEC_H
#define FLI_LUA_CODEC_H

#include <filch.h>
#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lua/message/message_refs.h"

enum { FLI_LUA_DEPTH_MAX = 100, FLI_LUA_MARK_SIZE = 4, FLI_LUA_TAG_BLOB = 0x13 };

extern const uint8_t fli_lua_mark[FLI_LUA_MARK_SIZE];
/* The message that tells a process that a file has changed. A Lua program cannot send this message, because a string
 * that begins with the mark (fli_lua_mark) is sent as an encoded value. */
extern const uint8_t fli_lua_outdated[FLI_LUA_MARK_SIZE + 10];

/* Bytes being written. A small number of bytes is stored in the struct itself. */
typedef struct fli_lua_bytes {
    uint8_t                  *at;
    size_t                    size, room, max;
    bool                      by_name;   /* libraries and their functions may be written by name (in a spawn) */
    bool                      hand_over; /* streams and requests may be written (in values for upgraded code) */
    struct fli_lua_functions *functions; /* the functions written so far; NULL: functions are refused */
    bool                      joined;
    bool                      lent;    /* the payload of fli_lua_pack() is lent: its bytes have not been copied yet */
    struct fli_lua_total     *total;   /* the total to which large payloads are charged; NULL: none */
    fli_lua_refs              refs;    /* blocks that the bytes refer to */
    filch_data                payload; /* `at` and `refs` in one payload; valid if `joined` */
    uint8_t                   first[480];
} fli_lua_bytes;

/* The text of the error for a value that cannot be written, with the path of the value. */
typedef struct fli_lua_refusal {
    char text[256];
} fli_lua_refusal;

void fli_lua_bytes_init(fli_lua_bytes *bytes, size_t max);
void fli_lua_bytes_fini(fli_lua_bytes *bytes);
/* Returns the number of bytes that were allocated for `bytes`, without the blocks that they refer to. */
size_t fli_lua_bytes_allocated(const fli_lua_bytes *bytes);
/* Appends `size` bytes. Returns false if memory is short or the limit would be exceeded. */
bool fli_lua_bytes_add(fli_lua_bytes *bytes, const void *from, size_t size);
/* Makes a payload of the bytes. Few bytes stay in the struct `bytes`, and *out only refers to them; many bytes are
 * moved out of `bytes` into the payload. Returns false if memory is short. */
bool fli_lua_bytes_data(fli_lua_bytes *bytes, filch_data *out);
/* Called after the payload of fli_lua_bytes_data() was passed to a function. If that function took ownership of the
 * payload (`taken`), `bytes` no longer owns the bytes of that payload. */
void fli_lua_bytes_sent(fli_lua_bytes *bytes, bool taken);
/* Makes *out a payload with the content of `data` (from fli_lua_pack) that outlives `bytes`. The caller gets one
 * reference. The payload counts in the total of all processes, unless it is small. */
filch_err fli_lua_bytes_keep(fli_lua_bytes *bytes, const filch_data *data, filch_data *out);

/* Appends the value at `index`. `root` is the name of the value in errors, such as "message". Raises no Lua error.
 * Returns false if the value cannot be written or takes too long (fli_lua_budget_over). */
bool fli_lua_encode(lua_State *L, int index, const char *root, fli_lua_bytes *bytes, fli_lua_refusal *why);

/* Appends the i-th upvalue of the function at `index`. This function has number 0 in bytes->functions. */
bool fli_lua_encode_variable(lua_State *L, int index, int i, const char *root, fli_lua_bytes *bytes,
                             fli_lua_refusal *why);

/* Makes a payload of the value at `index`. Nil, numbers, pids, blobs, and strings that do not begin with the mark
 * (fli_lua_mark) need no encoding; any other value is encoded into `bytes`. Returns false, with the reason in *why, if
 * the value cannot be encoded. */
bool fli_lua_pack(lua_State *L, int index, const char *root, fli_lua_bytes *bytes, filch_data *out,
                  fli_lua_refusal *why);

/* Sets the attached blocks for the values that this thread reads next: those values may refer to these blocks. NULL:
 * there are no attached blocks. */
void fli_lua_attach(const fli_lua_refs *refs);
/* Sets the list of functions for the values that this thread reads next: those values may refer to the functions in the
 * list at stack index `list`. The first element of the list is the function with number 0. */
void fli_lua_attach_functions(int list);
/* Reads one value from *at and sets the i-th upvalue of the function at `index` to it. Moves *at behind the value.
 * Returns false if the bytes are not valid. */
bool fli_lua_decode_variable(lua_State *L, int index, int i, const uint8_t **at, const uint8_t *end);

/* Pushes the value at *at and moves *at behind it. Returns false, with nothing pushed, if the bytes do not have the
 * form that the head of this file describes. Raises only memory errors and the error of a spent budget. */
bool fli_lua_decode(lua_State *L, const uint8_t **at, const uint8_t *end);

/* The sort of a message, which its outermost tag determines. */
typedef enum fli_lua_sort {
    FLI_LUA_VALUE,
    FLI_LUA_REQUEST,
    FLI_LUA_REPLY,
    FLI_LUA_FAILURE,
    FLI_LUA_OUTDATED
} fli_lua_sort;
fli_lua_sort fli_lua_sort_of(const filch_data *data, uint64_t *id);

/* Begins a request or a reply: writes the mark (fli_lua_mark), the tag for `sort`, and `id`. The caller appends the
 * value. */
bool fli_lua_envelope(fli_lua_bytes *bytes, fli_lua_sort sort, uint64_t id);

/* Does what fli_lua_unpack() does, and returns the sort of the message. For a request or a reply, sets *id to its
 * id. */
fli_lua_sort fli_lua_unpack_message(lua_State *L, const filch_data *data, uint64_t *id);

/* Pushes the value of a payload: always exactly one value. Bytes that begin with the mark (fli_lua_mark), but do not
 * have the form that the head of this file describes, are pushed as a string. */
void fli_lua_unpack(lua_State *L, const filch_data *data);

/* Pushes a pid. Pids of this scheduler are light userdata: they are equal if they name the same process. */
void fli_lua_push_pid(lua_State *L, filch_pid pid);
bool fli_lua_to_pid(lua_State *L, int index, filch_pid *pid);

#endif
