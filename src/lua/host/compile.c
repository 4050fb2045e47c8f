/* compile.c - see compile.h. The parser asks for the text piece by piece, and the clock is read each time. The time
 * that the parser takes for one piece is short, with one exception: it grows with the square of the number of jumps
 * that wait for one label. So the jumps are counted before. */
#include "lua/host/compile.h"

#include <lauxlib.h>
#include <string.h>

#include "port/clock.h"

enum { PIECE = 512 };

typedef struct pieces {
    const char *at, *end;
    uint64_t    limit_ns, began_ns;
} pieces;

static const char *next_piece(lua_State *L, void *user, size_t *size)
{
    pieces     *p = user;
    const char *at = p->at;
    if (p->limit_ns != 0 && fli_clock_cpu_ns() - p->began_ns >= p->limit_ns)
        luaL_error(L, "the code takes too long to compile: split it into modules");
    *size = (size_t)(p->end - at) < PIECE ? (size_t)(p->end - at) : PIECE;
    p->at += *size;
    return *size > 0 ? at : NULL;
}

static size_t count_words(const char *text, size_t size, const char *word)
{
    size_t      count = 0, length = strlen(word);
    const char *end = text + size;
    while ((text = memmem(text, (size_t)(end - text), word, length)) != NULL) {
        count++;
        text += length;
    }
    return count;
}

int fli_lua_compile(lua_State *L, const char *text, size_t size, const char *name, uint64_t limit_ns)
{
    pieces p = { .at = text, .end = text + size, .limit_ns = limit_ns };
    if (limit_ns != 0) {
        if (count_words(text, size, "goto") + count_words(text, size, "break") > FLI_LUA_JUMPS_MAX) {
            lua_pushfstring(L, "more than %d times goto or break in one text: split it into modules",
                            FLI_LUA_JUMPS_MAX);
            return LUA_ERRSYNTAX;
        }
        p.began_ns = fli_clock_cpu_ns();
    }
    return lua_load(L, next_piece, &p, name, "t");
}
