/* patterns.c - string.find, match, gmatch and gsub, with the results of stock Lua.
 *
 * The work of the matcher is counted in steps of about 10 ns: one item of the pattern at one position, SET_BYTES bytes
 * of a set, or SAME_BYTES bytes that are compared with a capture.
 *
 * A pattern that backtracks without end, such as ('a'):rep(3000):find(('.-'):rep(30) .. 'b'), fails after STEPS_MAX
 * steps at one position of the text. Matching at one position cannot be interrupted, so without this limit it would
 * occupy a worker for years. Between two positions, inside a replacement text, and in the function that gsub calls,
 * other processes may run.
 * Design: docs/design/lua/budgets.md.
 */
#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

#include "lua/host/libs.h"
#include "lua/preempt/budget.h"
#include "lua/preempt/moves.h"
#include "lua/process/proc.h"
#include "lua/value/checks.h"
#include "lua/value/text.h"

enum { CAPTURES_MAX = 32, DEPTH_MAX = 200, STEPS_MAX = 2000000 };
/* LOOK_STEPS: number of steps, at all positions together, between two checks of the budget: about 0.2 ms. */
enum { LOOK_STEPS = 20000, SET_BYTES = 8, SAME_BYTES = 64 };
/* Values of `size` of a capture. OPEN: the capture has no end yet. POSITION: a position capture, which has no text. */
enum { OPEN = -1, POSITION = -2 };

typedef struct capture {
    const char *at;
    ptrdiff_t   size;
} capture;

typedef struct matcher {
    lua_State  *L;
    const char *text, *text_end, *pattern_end;
    int         count, depth;
    uint64_t    steps;     /* steps so far, at all positions of the text together */
    uint64_t    steps_end; /* number of steps at which the match at this position fails */
    uint64_t    look_at;   /* number of steps at which the budget is checked */
    capture     captures[CAPTURES_MAX];
} matcher;

static const char *match_here(matcher *m, const char *s, const char *p);

static void step(matcher *m)
{
    if (++m->steps > m->steps_end)
        luaL_error(m->L, "the pattern takes too long: it backtracks too often, or its sets are too long for this text; "
                         "make it simpler");
}

/* Called between two positions. Returns true if the caller must save its state and pause. */
static bool is_due(matcher *m)
{
    if (m->steps < m->look_at) return false;
    m->look_at = m->steps + LOOK_STEPS;
    return fli_lua_budget_due(m->L);
}

/* ---- one character ------------------------------------------------------------------------------------------- */

/* Returns the end of the item at p: a character, an escape, or a set. Precondition: p is not the end of the pattern. */
static const char *item_end(matcher *m, const char *p)
{
    const char *from = p;
    char        c = *p++;
    if (c == '%') {
        if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
        return p + 1;
    }
    if (c != '[') return p;
    if (p < m->pattern_end && *p == '^') p++;
    do { /* a ']' directly after the '[' is a member of the set */
        if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
        c = *p++;
        if (c == '%') {
            if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
            p++;
        }
    } while (p == m->pattern_end || *p != ']');
    m->steps += (uint64_t)(p - from) / SET_BYTES;
    return p + 1;
}

static bool in_class(int c, int letter)
{
    bool is;
    switch (tolower(letter)) {
    case 'a': is = isalpha(c) != 0; break;
    case 'c': is = iscntrl(c) != 0; break;
    case 'd': is = isdigit(c) != 0; break;
    case 'g': is = isgraph(c) != 0; break;
    case 'l': is = islower(c) != 0; break;
    case 'p': is = ispunct(c) != 0; break;
    case 's': is = isspace(c) != 0; break;
    case 'u': is = isupper(c) != 0; break;
    case 'w': is = isalnum(c) != 0; break;
    case 'x': is = isxdigit(c) != 0; break;
    default: return letter == c;
    }
    return isupper(letter) ? !is : is;
}

/* Returns true if c is in the set; p points to the byte after '[', `end` to ']'. */
static bool in_set(matcher *m, int c, const char *p, const char *end)
{
    const char *from = p;
    bool        wanted = *p != '^', found = false;
    if (!wanted) p++;
    while (p < end && !found) {
        if (*p == '%') {
            found = in_class(c, (unsigned char)p[1]);
            p += 2;
        } else if (end - p > 2 && p[1] == '-') {
            found = (unsigned char)p[0] <= c && c <= (unsigned char)p[2];
            p += 3;
        } else {
            found = (unsigned char)*p++ == c;
        }
    }
    m->steps += (uint64_t)(p - from) / SET_BYTES;
    return found == wanted;
}

static bool fits(matcher *m, const char *s, const char *p, const char *end)
{
    if (s == m->text_end) return false;
    int c = (unsigned char)*s;
    switch (*p) {
    case '.': return true;
    case '%': return in_class(c, (unsigned char)p[1]);
    case '[': return in_set(m, c, p + 1, end - 1);
    default: return (unsigned char)*p == c;
    }
}

/* ---- items --------------------------------------------------------------------------------------------------- */

/* Matches as many repetitions as possible, then fewer and fewer until the rest of the pattern matches. */
static const char *match_most(matcher *m, const char *s, const char *p, const char *end)
{
    ptrdiff_t n = 0;
    for (; fits(m, s + n, p, end); n++) step(m);
    for (; n >= 0; n--) {
        const char *found = match_here(m, s + n, end + 1);
        if (found != NULL) return found;
    }
    return NULL;
}

/* Matches as few repetitions as possible, then more and more until the rest of the pattern matches. */
static const char *match_least(matcher *m, const char *s, const char *p, const char *end)
{
    for (;; s++) {
        const char *found = match_here(m, s, end + 1);
        if (found != NULL) return found;
        if (!fits(m, s, p, end)) return NULL;
    }
}

static const char *open_capture(matcher *m, const char *s, const char *p, ptrdiff_t kind)
{
    if (m->count >= CAPTURES_MAX) luaL_error(m->L, "too many captures");
    m->captures[m->count++] = (capture){ .at = s, .size = kind };
    const char *found = match_here(m, s, p);
    if (found == NULL) m->count--;
    return found;
}

static const char *close_capture(matcher *m, const char *s, const char *p)
{
    int last = m->count - 1;
    while (last >= 0 && m->captures[last].size != OPEN) last--;
    if (last < 0) luaL_error(m->L, "invalid pattern capture");
    m->captures[last].size = s - m->captures[last].at;
    const char *found = match_here(m, s, p);
    if (found == NULL) m->captures[last].size = OPEN;
    return found;
}

/* %b(): returns the position after the balancing character, or NULL. */
static const char *match_balanced(matcher *m, const char *s, const char *p)
{
    if (m->pattern_end - p < 2) luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
    if (s == m->text_end || *s != p[0]) return NULL;
    int depth = 1;
    while (++s < m->text_end) {
        step(m);
        if (*s == p[1]) {
            if (--depth == 0) return s + 1;
        } else if (*s == p[0]) {
            depth++;
        }
    }
    return NULL;
}

/* %f[set]: matches between a character outside the set and a character inside. Returns the end of the set in the
 * pattern, or NULL. */
static const char *match_frontier(matcher *m, const char *s, const char *p)
{
    if (p == m->pattern_end || *p != '[') luaL_error(m->L, "missing '[' after '%%f' in pattern");
    const char *end = item_end(m, p);
    int         before = s == m->text ? 0 : (unsigned char)s[-1], after = s == m->text_end ? 0 : (unsigned char)*s;
    return !in_set(m, before, p + 1, end - 1) && in_set(m, after, p + 1, end - 1) ? end : NULL;
}

/* %1: matches the text of an earlier capture again. */
static const char *match_again(matcher *m, const char *s, int digit)
{
    int n = digit - '1';
    if (n < 0 || n >= m->count || m->captures[n].size == OPEN) {
        luaL_error(m->L, "invalid capture index %%%d in pattern", n + 1);
    }
    ptrdiff_t size = m->captures[n].size;
    if (size == POSITION) return NULL; /* a position capture has no text */
    if (m->text_end - s < size) return NULL;
    for (const char *at = m->captures[n].at; size > 0;) {
        ptrdiff_t part = size < SAME_BYTES ? size : SAME_BYTES;
        if (memcmp(at, s, (size_t)part) != 0) return NULL;
        at += part, s += part, size -= part;
        step(m);
    }
    return s;
}

/* Matches the item at *p together with its repetition sign. If *go_on is set to true, the caller continues the match at
 * the new *s and *p. Otherwise this function has tried the rest of the pattern too: it returns the end of the match, or
 * NULL. */
static const char *match_item(matcher *m, const char **s, const char **p, bool *go_on)
{
    const char *end = item_end(m, *p);
    char        follows = end < m->pattern_end ? *end : '\0';
    bool        one = fits(m, *s, *p, end);
    *go_on = false;
    switch (follows) {
    case '*': return match_most(m, *s, *p, end);
    case '+': return one ? match_most(m, *s + 1, *p, end) : NULL;
    case '-': return match_least(m, *s, *p, end);
    case '?':
        if (one) {
            const char *found = match_here(m, *s + 1, end + 1);
            if (found != NULL) return found;
        }
        *go_on = true;
        *p = end + 1;
        return NULL;
    default:
        *go_on = one;
        *s += one ? 1 : 0;
        *p = end;
        return NULL;
    }
}

/* Matches the escapes %b, %f and %1 to %9. Returns false if the item is none of them. */
static bool match_special(matcher *m, const char **s, const char **p)
{
    char c = (*p)[1];
    if (c == 'b') {
        *s = match_balanced(m, *s, *p + 2);
        *p += 4;
    } else if (c == 'f') {
        const char *end = match_frontier(m, *s, *p + 2);
        if (end == NULL) *s = NULL;
        else *p = end;
    } else if (c >= '0' && c <= '9') {
        *s = match_again(m, *s, c);
        *p += 2;
    } else {
        return false;
    }
    return true;
}

static const char *match_rest(matcher *m, const char *s, const char *p)
{
    bool go_on = true;
    while (go_on && p != m->pattern_end) {
        step(m);
        switch (*p) {
        case '(':
            if (p + 1 < m->pattern_end && p[1] == ')') return open_capture(m, s, p + 2, POSITION);
            return open_capture(m, s, p + 1, OPEN);
        case ')': return close_capture(m, s, p + 1);
        case '$':
            if (p + 1 == m->pattern_end) return s == m->text_end ? s : NULL;
            break;
        case '%':
            if (p + 1 < m->pattern_end && match_special(m, &s, &p)) {
                if (s == NULL) return NULL;
                continue;
            }
            break;
        default: break;
        }
        const char *found = match_item(m, &s, &p, &go_on);
        if (found != NULL) return found;
    }
    return go_on ? s : NULL;
}

/* Matches the pattern from p on at the position s. Returns the end of the match, or NULL. Counts no step: match_rest()
 * counts one, or matches at once because the pattern has ended. */
static const char *match_here(matcher *m, const char *s, const char *p)
{
    if (++m->depth > DEPTH_MAX) luaL_error(m->L, "pattern too complex");
    const char *found = match_rest(m, s, p);
    m->depth--;
    return found;
}

/* ---- captures ------------------------------------------------------------------------------------------------ */

static void push_capture(matcher *m, int n, const char *from, const char *end)
{
    if (n >= m->count) {
        if (n != 0) luaL_error(m->L, "invalid capture index %%%d", n + 1);
        lua_pushlstring(m->L, from, (size_t)(end - from));
        return;
    }
    const capture *c = &m->captures[n];
    if (c->size == OPEN) luaL_error(m->L, "unfinished capture");
    else if (c->size == POSITION) lua_pushinteger(m->L, c->at - m->text + 1);
    else lua_pushlstring(m->L, c->at, (size_t)c->size);
}

/* Pushes all captures and returns their number. If the pattern has no captures and `from` is not NULL, pushes the whole
 * match. */
static int push_captures(matcher *m, const char *from, const char *end)
{
    int count = m->count == 0 && from != NULL ? 1 : m->count;
    luaL_checkstack(m->L, count, "too many captures");
    for (int n = 0; n < count; n++) push_capture(m, n, from, end);
    return count;
}

static void init(matcher *m, lua_State *L, const char *text, size_t size, const char *pattern_end)
{
    m->L = L;
    m->text = text;
    m->text_end = text + size;
    m->pattern_end = pattern_end;
    m->steps = 0;
    m->look_at = LOOK_STEPS;
}

static const char *match_at(matcher *m, const char *s, const char *p)
{
    m->count = m->depth = 0;
    m->steps_end = m->steps + STEPS_MAX;
    return match_here(m, s, p);
}

/* ---- the functions --------------------------------------------------------------------------------------------- */

/* Returns the position, from 0, where the search begins. A result above `size` means that `first` is behind the end of
 * the text, so nothing matches. */
static size_t begin_at(lua_Integer first, size_t size)
{
    if (first > 0) return (size_t)first - 1;
    if (first == 0 || first < -(lua_Integer)size) return 0;
    return size + (size_t)first;
}

static bool is_plain(const char *pattern, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        switch (pattern[i]) {
        case '^':
        case '$':
        case '*':
        case '+':
        case '?':
        case '.':
        case '(':
        case '[':
        case '%':
        case '-': return false;
        default: break;
        }
    }
    return true;
}

static int find_plain(lua_State *L, const char *text, size_t size, size_t at, const char *pattern, size_t pattern_size)
{
    const char *found = memmem(text + at, size - at, pattern, pattern_size);
    if (found == NULL) return lua_pushnil(L), 1;
    lua_pushinteger(L, found - text + 1);
    lua_pushinteger(L, found - text + (lua_Integer)pattern_size);
    return 2;
}

static int go_on_find(lua_State *L, int status, lua_KContext at);
static int go_on_match(lua_State *L, int status, lua_KContext at);

/* Body of find and match. Stack: the text at 1, the pattern at 2. `at`: the first position to try. */
static int search_from(lua_State *L, bool find, size_t at)
{
    size_t      size, pattern_size;
    const char *text = lua_tolstring(L, 1, &size), *pattern = lua_tolstring(L, 2, &pattern_size);
    bool        anchored = pattern_size > 0 && *pattern == '^';
    matcher     m;
    init(&m, L, text, size, pattern + pattern_size);
    for (const char *s = text + at; s <= m.text_end; s++) {
        if (is_due(&m)) fli_lua_pause(L, s - text, find ? go_on_find : go_on_match);
        const char *end = match_at(&m, s, pattern + anchored);
        if (end != NULL && !find) return push_captures(&m, s, end);
        if (end != NULL) {
            lua_pushinteger(L, s - text + 1);
            lua_pushinteger(L, end - text);
            return push_captures(&m, NULL, NULL) + 2;
        }
        if (anchored) break;
    }
    lua_pushnil(L);
    return 1;
}

static int go_on_find(lua_State *L, int status, lua_KContext at)
{
    (void)status;
    return search_from(L, true, (size_t)at);
}

static int go_on_match(lua_State *L, int status, lua_KContext at)
{
    (void)status;
    return search_from(L, false, (size_t)at);
}

static int search(lua_State *L, bool find)
{
    size_t      size, pattern_size;
    const char *text = luaL_checklstring(L, 1, &size), *pattern = luaL_checklstring(L, 2, &pattern_size);
    size_t      at = begin_at(luaL_optinteger(L, 3, 1), size);
    if (at > size) return lua_pushnil(L), 1;
    if (find && (lua_toboolean(L, 4) || is_plain(pattern, pattern_size))) {
        return find_plain(L, text, size, at, pattern, pattern_size);
    }
    lua_settop(L, 2);
    return search_from(L, find, at);
}

static int string_find(lua_State *L)
{
    return search(L, true);
}

static int string_match(lua_State *L)
{
    return search(L, false);
}

static int go_on_next(lua_State *L, int status, lua_KContext at);

/* Iterator of gmatch. Upvalues: text, pattern, position to continue at (from 0), end of the last match (-1: none). */
static int next_match(lua_State *L)
{
    fli_lua_budget_enter(L, 0, go_on_next);
    size_t      size, pattern_size;
    const char *text = lua_tolstring(L, lua_upvalueindex(1), &size);
    const char *pattern = lua_tolstring(L, lua_upvalueindex(2), &pattern_size);
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3)), last = lua_tointeger(L, lua_upvalueindex(4));
    matcher     m;
    init(&m, L, text, size, pattern + pattern_size);
    for (; at <= (lua_Integer)size; at++) {
        if (is_due(&m)) {
            lua_pushinteger(L, at);
            lua_replace(L, lua_upvalueindex(3));
            fli_lua_pause(L, 0, go_on_next);
        }
        const char *end = match_at(&m, text + at, pattern);
        if (end == NULL || end - text == last) continue;
        lua_pushinteger(L, end - text);
        lua_copy(L, -1, lua_upvalueindex(3));
        lua_replace(L, lua_upvalueindex(4));
        return push_captures(&m, text + at, end);
    }
    return 0;
}

static int go_on_next(lua_State *L, int status, lua_KContext at)
{
    (void)status, (void)at;
    return next_match(L);
}

FLI_LUA_RETURNING(next_match)

static int string_gmatch(lua_State *L)
{
    size_t size;
    luaL_checklstring(L, 1, &size);
    luaL_checkstring(L, 2);
    size_t at = begin_at(luaL_optinteger(L, 3, 1), size);
    lua_settop(L, 2);
    lua_pushinteger(L, (lua_Integer)(at > size ? size + 1 : at));
    lua_pushinteger(L, -1);
    lua_pushcclosure(L, returning_next_match, 4);
    return 1;
}

/* Stack indexes of gsub: text, pattern, replacement, the struct `replacing` (STATE), the result so far, and, during a
 * pause inside the replacement text, the struct `matcher` with the captures. */
enum { STATE = 4, RESULT, CAPTURES };

typedef struct replacing {
    size_t      at, copied; /* next position to try; the text before `copied` has been copied to the result */
    size_t      from, end;  /* begin and end of the match that is being replaced */
    size_t      last;       /* end of the last match; SIZE_MAX: none */
    size_t      next;       /* next byte of the replacement text to be read */
    lua_Integer count, max;
    bool        tried; /* the first position was tried */
} replacing;

static void add(lua_State *L, const char *from, size_t size)
{
    fli_lua_text_add(L, RESULT, from, size);
}

static void add_capture(matcher *m, int n, const char *from, const char *end)
{
    size_t size;
    push_capture(m, n, from, end);
    const char *text = lua_tolstring(m->L, -1, &size); /* a position is converted to its digits */
    add(m->L, text, size);
    m->steps += size / SAME_BYTES;
    lua_pop(m->L, 1);
}

static int go_on_text(lua_State *L, int status, lua_KContext ctx);

/* Pauses inside the replacement text. Keeps the captures on the Lua stack: to get them again, the pattern would have to
 * be matched again, which may take 20 ms. */
static void pause_text(const matcher *m)
{
    matcher *kept = lua_newuserdatauv(m->L, sizeof *kept, 0);
    *kept = *m;
    fli_lua_pause(m->L, 0, go_on_text);
}

/* Appends the replacement text from r->next on, with the captures in place of %0 to %9. */
static void add_text(matcher *m, replacing *r)
{
    size_t      size;
    const char *text = lua_tolstring(m->L, 3, &size), *text_end = text + size, *at = text + r->next, *mark;
    const char *from = m->text + r->from, *end = m->text + r->end;
    while ((mark = memchr(at, '%', (size_t)(text_end - at))) != NULL) {
        add(m->L, at, (size_t)(mark - at));
        char c = mark + 1 < text_end ? mark[1] : '\0';
        at = mark + 2;
        if (c == '%') add(m->L, "%", 1);
        else if (c == '0') add(m->L, from, (size_t)(end - from));
        else if (c >= '1' && c <= '9') add_capture(m, c - '1', from, end);
        else luaL_error(m->L, "invalid use of '%%' in replacement string");
        m->steps += 2;
        if (is_due(m)) {
            r->next = (size_t)(at - text);
            pause_text(m);
        }
    }
    add(m->L, at, (size_t)(text_end - at));
}

/* Appends the value on top of the stack, which the table or function returned for the match. If it is nil or false,
 * appends the match itself. */
static void add_value(lua_State *L, const char *text, const replacing *r)
{
    size_t size;
    if (!lua_toboolean(L, -1)) {
        add(L, text + r->from, r->end - r->from);
    } else {
        if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
        const char *value = lua_tolstring(L, -1, &size);
        add(L, value, size);
    }
    lua_settop(L, RESULT);
}

static int go_on_call(lua_State *L, int status, lua_KContext ctx);
static int go_on_gsub(lua_State *L, int status, lua_KContext ctx);

/* Appends the replacement of the match. A replacement function may be interrupted, so everything needed to continue is
 * stored in *r. */
static void replace(matcher *m, replacing *r, const char *from, const char *end)
{
    lua_State *L = m->L;
    add(L, m->text + r->copied, (size_t)(from - m->text) - r->copied);
    r->from = (size_t)(from - m->text);
    r->end = r->last = r->at = r->copied = (size_t)(end - m->text);
    m->steps += (r->end - r->from) / SET_BYTES; /* counts copying the match as steps, and hashing it if it is a key */
    if (lua_type(L, 3) == LUA_TSTRING) {
        r->next = 0;
        add_text(m, r);
        return;
    }
    m->look_at = 0; /* is_due() checks the budget at its next call: the replacement may be a slow C function */
    if (lua_istable(L, 3)) {
        push_capture(m, 0, from, end);
        lua_gettable(L, 3);
    } else {
        lua_pushvalue(L, 3);
        lua_callk(L, push_captures(m, from, end), 1, 0, go_on_call);
    }
    add_value(L, m->text, r);
}

static int finish_gsub(lua_State *L, const replacing *r)
{
    size_t      size;
    const char *text = lua_tolstring(L, 1, &size);
    add(L, text + r->copied, size - r->copied);
    fli_lua_text_result(L, RESULT);
    lua_pushinteger(L, r->count);
    return 2;
}

static int run_gsub(lua_State *L, replacing *r)
{
    size_t      size, pattern_size;
    const char *text = lua_tolstring(L, 1, &size), *pattern = lua_tolstring(L, 2, &pattern_size);
    bool        anchored = pattern_size > 0 && *pattern == '^';
    matcher     m;
    init(&m, L, text, size, pattern + pattern_size);
    while (r->count < r->max && r->at <= size && !(anchored && r->tried)) {
        if (is_due(&m)) fli_lua_pause(L, 0, go_on_gsub);
        r->tried = true;
        const char *end = match_at(&m, text + r->at, pattern + anchored);
        if (end != NULL && (size_t)(end - text) != r->last) {
            r->count++;
            replace(&m, r, text + r->at, end);
        } else {
            r->at++;
        }
    }
    return finish_gsub(L, r);
}

static int go_on_gsub(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    return run_gsub(L, lua_touserdata(L, STATE));
}

static int go_on_text(lua_State *L, int status, lua_KContext ctx)
{
    replacing *r = lua_touserdata(L, STATE);
    matcher    m = *(const matcher *)lua_touserdata(L, CAPTURES);
    lua_settop(L, RESULT);
    add_text(&m, r);
    return go_on_gsub(L, status, ctx);
}

static int go_on_call(lua_State *L, int status, lua_KContext ctx)
{
    replacing *r = lua_touserdata(L, STATE);
    add_value(L, lua_tostring(L, 1), r);
    return go_on_gsub(L, status, ctx);
}

static int string_gsub(lua_State *L)
{
    size_t size;
    luaL_checklstring(L, 1, &size);
    luaL_checkstring(L, 2);
    int         type = lua_type(L, 3);
    lua_Integer max = luaL_optinteger(L, 4, (lua_Integer)size + 1);
    fli_lua_expect(L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                   "string/function/table");
    if (type == LUA_TNUMBER) lua_tostring(L, 3);
    lua_settop(L, 3);
    replacing *r = lua_newuserdatauv(L, sizeof *r, 0);
    *r = (replacing){ .last = SIZE_MAX, .max = max };
    fli_lua_text_push(L, 64);
    return run_gsub(L, r);
}

const fli_lua_member fli_lua_pattern_members[] = {
    { .library = "string", .name = "find", .fn = string_find },
    { .library = "string", .name = "match", .fn = string_match },
    { .library = "string", .name = "gmatch", .fn = string_gmatch },
    { .library = "string", .name = "gsub", .fn = string_gsub },
    { .name = NULL },
};
