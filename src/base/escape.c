/* escape.c - see escape.h. */
#include "base/escape.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the number of bytes of the UTF-8 character at `s`, which begins with a byte of 0x80 or more, and stores its
 * code point in *code. Returns 0 if the bytes are not UTF-8. */
static size_t decode(const unsigned char *s, size_t size, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t                length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc0 || s[0] >= 0xf8 || length > size) return 0;
    *code = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    bool is_surrogate = *code >= 0xd800 && *code < 0xe000;
    return *code >= least[length] && *code <= 0x10ffff && !is_surrogate ? length : 0;
}

static bool is_control(uint32_t code)
{
    return (code >= 0x80 && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

static size_t escape_ascii(unsigned char c, char *to)
{
    const char *letter = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (letter != NULL) return memcpy(to, letter, 2), 2;
    return (size_t)snprintf(to, FLI_ESCAPE_MAX, "\\x%02x", c);
}

size_t fli_escape_next(const char *text, size_t size, char to[FLI_ESCAPE_MAX], size_t *length)
{
    unsigned char c = (unsigned char)text[0];
    uint32_t      code = 0;
    size_t        used = c < 0x80 ? 0 : decode((const unsigned char *)text, size, &code);
    char          escaped[FLI_ESCAPE_MAX + 1]; /* snprintf writes a NUL, too */
    if (used > 0 && is_control(code)) {
        *length = (size_t)snprintf(escaped, sizeof escaped, "\\u{%x}", (unsigned)code);
        memcpy(to, escaped, *length);
        return used;
    }
    if (used == 0 && (c < 0x20 || (c >= 0x7f && c < 0xa0))) {
        *length = escape_ascii(c, to);
        return 1;
    }
    *length = used > 0 ? used : 1;
    memcpy(to, text, *length);
    return *length;
}

size_t fli_escape(char *to, size_t room, const char *text, size_t size)
{
    size_t done = 0;
    for (size_t at = 0, length; at < size;) {
        char   one[FLI_ESCAPE_MAX];
        size_t used = fli_escape_next(text + at, size - at, one, &length);
        if (length >= room - done) break;
        memcpy(to + done, one, length);
        done += length;
        at += used;
    }
    to[done] = '\0';
    return done;
}

bool fli_escape_is_needed(const char *text, size_t size)
{
    for (size_t at = 0, length; at < size;) {
        char   one[FLI_ESCAPE_MAX];
        size_t used = fli_escape_next(text + at, size - at, one, &length);
        if (length != used || one[0] != text[at]) return true;
        at += used;
    }
    return false;
}
