/* supervisor_tree.c - see supervisor_tree.h. */
#include "lua/process/supervisor_tree.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/preempt/budget.h"
#include "lua/process/spawn.h"
#include "lua/value/checks.h"
#include "lua/value/spans.h"

enum { DEPTH_MAX = 32, PATH_MAX_SIZE = 200, CHILDREN_MAX = 1000000 };

/* ---- memory ------------------------------------------------------------------------------------------------- */

/* One block of memory of a tree. All blocks of a tree are on a list and are freed together with the tree. */
typedef struct block {
    struct block *next;
    alignas(max_align_t) char bytes[];
} block;

/* The stored start of a child, used each time the child is started. */
typedef struct kept_start {
    fli_lua_start      start;
    fli_lua_refs       refs; /* blocks attached to start.bytes: blobs, long strings and code */
    struct kept_start *next;
} kept_start;

/* One supervisor of the tree. The supervisor process gets a pointer to this struct as `args`, and finds the tree by its
 * field `tree`. */
typedef struct supervisor_node {
    filch_supervisor         spec;
    fli_lua_supervisor_tree *tree;
} supervisor_node;

struct fli_lua_supervisor_tree {
    /* Number of references: running supervisors, children added later, and the code that reads the tree.  writes: any
     * thread that takes or drops a reference.  PAIR lua.tree */
    FLI_ATOMIC(size_t)  refs;
    struct filch_lua   *lua;
    size_t              counted; /* bytes of the tree in the total of all processes */
    block              *blocks;
    kept_start         *starts;
    supervisor_node    *root; /* set if the tree is a supervisor with its children */
    filch_spawn_options options;
    bool                links;
    filch_child         child; /* set if the tree is one child, for supervisor.start_child */
};

/* Counts `size` bytes of the tree in the total of all processes. Returns false if the limit would be exceeded. */
static bool count_bytes(fli_lua_supervisor_tree *tree, size_t size)
{
    if (!fli_lua_total_take(&tree->lua->total, size)) return false;
    tree->counted += size;
    return true;
}

static int raise_limit(lua_State *L, const fli_lua_supervisor_tree *tree)
{
    return luaL_error(L, "not enough memory for the supervisor: all processes together may hold %I bytes",
                      (LUAI_UACINT)tree->lua->total.max);
}

/* Adds a block for `size` bytes to the tree. Raises an error if memory is short. */
static void *alloc_block(fli_lua_supervisor_tree *tree, lua_State *L, size_t size)
{
    if (!count_bytes(tree, sizeof(block) + size)) raise_limit(L, tree);
    block *b = calloc(1, sizeof *b + size);
    if (b == NULL) luaL_error(L, "not enough memory");
    b->next = tree->blocks;
    tree->blocks = b;
    return b->bytes;
}

static const char *keep_text(fli_lua_supervisor_tree *tree, lua_State *L, const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(alloc_block(tree, L, size), text, size);
}

void fli_lua_supervisor_tree_drop(fli_lua_supervisor_tree *tree)
{
    /* PAIR lua.tree, both halves: all reads of the tree by other threads come before it is freed. */
    if (fli_sub_acqrel(&tree->refs, 1) > 1) return;
    for (kept_start *at = tree->starts; at != NULL; at = at->next) {
        fli_lua_code_drop(at->start.code);
        fli_lua_refs_fini(&at->refs);
    }
    while (tree->blocks != NULL) {
        block *b = tree->blocks;
        tree->blocks = b->next;
        free(b);
    }
    fli_lua_total_give(&tree->lua->total, tree->counted);
    free(tree);
}

/* ---- the process type ------------------------------------------------------------------------------------------- */

/* Returns the offset of the pointer to the tree in the state of the process. The pointer follows the state of
 * filch_supervisor_type. */
static size_t base_size(void)
{
    return (filch_supervisor_type.size + 15) & ~(size_t)15;
}

static fli_lua_supervisor_tree **tree_of(void *self)
{
    return (fli_lua_supervisor_tree **)(void *)((char *)self + base_size());
}

static filch_err tree_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    const supervisor_node *n = filch_as_ptr(args);
    if (n == NULL) return FILCH_EINVAL;
    filch_err err = filch_supervisor_type.init(self, ctx, method, args);
    if (err != FILCH_OK) return err;
    *tree_of(self) = n->tree;
    fli_add_rlx(&n->tree->refs, 1);
    fli_add_rlx(&n->tree->lua->alive, 1);
    return FILCH_OK;
}

static filch_err tree_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    return filch_supervisor_type.step(self, events, count, out);
}

static void tree_close(void *self)
{
    fli_lua_supervisor_tree *tree = *tree_of(self);
    struct filch_lua        *lua = tree->lua;
    filch_supervisor_type.close(self);
    fli_lua_supervisor_tree_drop(tree);
    (void)fli_add_rel(&lua->alive, (uint64_t)-1); /* PAIR lua.alive, release half, as in fli_lua_close() */
}

filch_type fli_lua_supervisor_tree_type(void)
{
    return (filch_type){ .name = filch_supervisor_type.name,
                         .size = base_size() + sizeof(fli_lua_supervisor_tree *),
                         .init = tree_init,
                         .step = tree_step,
                         .close = tree_close };
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

typedef struct reader {
    fli_lua_proc            *p;
    fli_lua_supervisor_tree *tree;
    unsigned                 depth;
    bool                     one_child;
    char                     path[PATH_MAX_SIZE]; /* path to the value being read, for error messages */
} reader;

/* Returns the index in `names` of the text on top of the stack. Raises an error if the text is not one of `names`. */
static uint32_t read_choice(lua_State *L, const char *field, const char *const *names, uint32_t count)
{
    char all[160] = "";
    for (uint32_t i = 0; i < count; i++) {
        bool text = lua_type(L, -1) == LUA_TSTRING;
        if (text && strcmp(fli_lua_whole_text(L, -1), names[i]) == 0) return i;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    }
    if (lua_type(L, -1) == LUA_TSTRING) luaL_error(L, "%s is '%s'; it can be %s", field, lua_tostring(L, -1), all);
    return (uint32_t)luaL_error(L, "%s is a %s; it can be %s", field, luaL_typename(L, -1), all);
}

/* Reads a span of time. A span of 0 becomes 1 ns, because 0 would mean the default in C. */
static uint64_t read_span(lua_State *L, const char *field)
{
    uint64_t ns;
    if (!fli_lua_to_span(L, -1, &ns)) {
        luaL_error(L, "%s: a time must be a number of seconds, or a text such as \"1.5s\" or \"200ms\"", field);
    }
    return ns > 0 ? ns : 1;
}

static double read_number(lua_State *L, const char *field, double low, double high, const char *what)
{
    double number = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : low - 1;
    if (!(number >= low && number <= high)) luaL_error(L, "%s: %s", field, what);
    return number;
}

static void read_supervisor(lua_State *L, reader *r, int index, supervisor_node *out);
static void read_child(lua_State *L, reader *r, int index, const char *by_default, filch_child *out);

/* Pushes the key and the value of the next field of the table at `index` whose key is a text. A field with another key
 * is skipped if `list`; otherwise it raises an error. Returns false if there is no further field. */
static bool next_field(lua_State *L, int index, bool list)
{
    while (lua_next(L, index) != 0) {
        if (lua_type(L, -2) == LUA_TSTRING) return true;
        if (!list) luaL_error(L, "a value without a name: fields are written as name = value");
        lua_pop(L, 1);
    }
    return false;
}

static void enter_field(reader *r, const char *name, lua_Integer place)
{
    size_t used = strlen(r->path);
    if (place > 0) snprintf(r->path + used, sizeof r->path - used, "%s%s[%lld]", used > 0 ? "." : "", name, place);
    else snprintf(r->path + used, sizeof r->path - used, "%s%s", used > 0 ? "." : "", name);
}

static void read_children(lua_State *L, reader *r, filch_supervisor *out)
{
    int list = lua_gettop(L);
    if (!lua_istable(L, list)) luaL_error(L, "children: must be a list of tables, not a %s", luaL_typename(L, list));
    lua_Integer count = (lua_Integer)lua_rawlen(L, list);
    if (count > CHILDREN_MAX) luaL_error(L, "children: must be at most %d, not %I", CHILDREN_MAX, (LUAI_UACINT)count);
    lua_pushnil(L);
    while (lua_next(L, list) != 0) {
        if (!lua_isinteger(L, -2)) luaL_error(L, "children: must be a list, in the order in which they are started");
        lua_pop(L, 1);
    }
    filch_child *children = alloc_block(r->tree, L, (size_t)count * sizeof *children);
    size_t       path_size = strlen(r->path);
    for (lua_Integer i = 1; i <= count; i++) {
        char id[32];
        snprintf(id, sizeof id, "#%lld", i);
        enter_field(r, "children", i);
        lua_rawgeti(L, list, i);
        read_child(L, r, lua_gettop(L), id, &children[i - 1]);
        lua_settop(L, list);
        r->path[path_size] = '\0';
    }
    out->children = children;
    out->child_count = (size_t)count;
}

/* Reads the options `name` and `link`. Only the outermost supervisor has them, because it is the only one that a Lua
 * process starts. Returns false if `name` is none of these options, or if the supervisor is not the outermost. */
static bool read_outer(lua_State *L, reader *r, const char *name)
{
    fli_lua_supervisor_tree *tree = r->tree;
    if (r->depth > 1 || r->one_child) return false;
    if (strcmp(name, "name") == 0) {
        tree->options.name = keep_text(tree, L, fli_lua_plan_name(L));
    } else if (strcmp(name, "link") == 0) {
        tree->links = lua_toboolean(L, -1);
    } else {
        return false;
    }
    return true;
}

static void read_field(lua_State *L, reader *r, const char *name, filch_supervisor *out)
{
    static const char *const strategies[] = { "one_for_one", "one_for_all", "rest_for_one" };
    if (strcmp(name, "children") == 0) {
        read_children(L, r, out);
    } else if (strcmp(name, "strategy") == 0) {
        out->strategy = read_choice(L, name, strategies, 3);
    } else if (strcmp(name, "intensity") == 0) {
        double n = read_number(L, name, 0, 10000, "must be the restarts allowed within `period`, 0 to 10000");
        out->intensity = n >= 1 ? (uint32_t)n : FILCH_NO_RESTARTS;
    } else if (strcmp(name, "period") == 0) {
        out->period_ns = read_span(L, name);
    } else if (strcmp(name, "backoff") == 0) {
        out->backoff_ns = read_span(L, name);
    } else if (strcmp(name, "backoff_max") == 0) {
        out->backoff_max_ns = read_span(L, name);
    } else if (strcmp(name, "backoff_factor") == 0) {
        out->backoff_percent =
            (uint32_t)(read_number(L, name, 1, 1000, "must be the factor between two back-offs, 1 to 1000") * 100 +
                       0.5);
    } else if (strcmp(name, "jitter") == 0) {
        out->jitter = (uint32_t)(read_number(L, name, 0, 1, "must be a part of the back-off, 0 to 1") * 1000 + 0.5);
    } else if (strcmp(name, "stable") == 0) {
        out->stable_ns = read_span(L, name);
    } else if (!read_outer(L, r, name)) {
        luaL_error(
            L,
            "a supervisor has no field '%s'; it has strategy, intensity, period, backoff, backoff_max, backoff_factor, "
            "jitter, stable, children%s",
            name, r->depth > 1 || r->one_child ? "" : ", name, link");
    }
}

static void read_supervisor(lua_State *L, reader *r, int index, supervisor_node *out)
{
    if (!lua_istable(L, index))
        luaL_error(L, "a supervisor is described by a table, not a %s", luaL_typename(L, index));
    if (++r->depth > DEPTH_MAX) luaL_error(L, "supervisors are nested too deep: at most %d levels", DEPTH_MAX);
    luaL_checkstack(L, 16, NULL);
    out->tree = r->tree;
    lua_pushnil(L);
    while (next_field(L, index, false)) {
        read_field(L, r, fli_lua_whole_text(L, -2), &out->spec);
        lua_pop(L, 1);
    }
    r->depth--;
}

/* Reads a child that is a supervisor. */
static void read_subtree(lua_State *L, reader *r, filch_child *out)
{
    supervisor_node *below = alloc_block(r->tree, L, sizeof *below);
    size_t           path_size = strlen(r->path);
    enter_field(r, "supervisor", 0);
    read_supervisor(L, r, lua_gettop(L), below);
    r->path[path_size] = '\0';
    out->supervisor = &below->spec;
    out->type = &r->p->lua->tree_type;
}

/* Reads the function or name that a child runs, its arguments, and the upvalues of the function. The result is stored
 * for all starts of the child. */
static kept_start *read_start(lua_State *L, reader *r, fli_lua_plan *plan, int index)
{
    fli_lua_supervisor_tree *tree = r->tree;
    kept_start              *kept = alloc_block(tree, L, sizeof *kept);
    fli_lua_bytes            bytes;
    fli_lua_refusal          why;
    fli_lua_plan_elements(L, plan, index);
    fli_lua_bytes_init(&bytes, r->p->heap.max);
    filch_err err = fli_lua_plan_start(L, r->p, plan, &bytes, &kept->start, &why);
    if (kept->start.code != NULL) {
        kept->next = tree->starts;
        tree->starts = kept;
    }
    bool fits = err != FILCH_OK || count_bytes(tree, sizeof(block) + bytes.size + fli_lua_refs_allocated(&bytes.refs));
    block *b = err == FILCH_OK && fits ? calloc(1, sizeof *b + bytes.size) : NULL;
    if (b != NULL) {
        b->next = tree->blocks;
        tree->blocks = b;
        memcpy(b->bytes, bytes.at, bytes.size);
        kept->start.bytes = (const uint8_t *)b->bytes;
        kept->start.again = true;
        kept->refs = bytes.refs;
        kept->start.refs = &kept->refs;
        bytes.refs = (fli_lua_refs){ .count = 0 };
    }
    fli_lua_bytes_fini(&bytes);
    if (!fits) raise_limit(L, tree);
    if (err == FILCH_OK && b == NULL) luaL_error(L, "not enough memory");
    if (err != FILCH_OK) luaL_error(L, "%s", why.text[0] != '\0' ? why.text : filch_err_text(err));
    return kept;
}

static bool read_child_field(lua_State *L, reader *r, const char *name, filch_child *out, fli_lua_plan *plan)
{
    static const char *const kinds[] = { "permanent", "transient", "temporary" };
    if (strcmp(name, "id") == 0) {
        size_t size = 0;
        if (lua_type(L, -1) == LUA_TSTRING) lua_tolstring(L, -1, &size);
        if (size == 0 || size > FILCH_CHILD_ID_MAX)
            luaL_error(L, "id: must be a text of 1 to %d bytes", FILCH_CHILD_ID_MAX);
        out->id = keep_text(r->tree, L, fli_lua_whole_text(L, -1));
    } else if (strcmp(name, "restart") == 0) {
        out->restart = read_choice(L, name, kinds, 3);
    } else if (strcmp(name, "stop") == 0) {
        out->stop_ns = read_span(L, name);
    } else if (strcmp(name, "supervisor") == 0) {
        read_subtree(L, r, out);
    } else if (strcmp(name, "link") == 0 || strcmp(name, "monitor") == 0) {
        luaL_error(L, "%s: leave this out, a child is always linked with its supervisor and monitored by it", name);
    } else {
        return fli_lua_plan_option(L, plan, name);
    }
    return true;
}

static void read_child(lua_State *L, reader *r, int index, const char *by_default, filch_child *out)
{
    fli_lua_plan plan = { .memory_max = r->p->heap.max, .spawn = FILCH_SPAWN_OPTIONS_INIT };
    if (!lua_istable(L, index)) luaL_error(L, "a child is described by a table, not a %s", luaL_typename(L, index));
    luaL_checkstack(L, 16, NULL);
    fli_lua_budget_walk(L);
    lua_pushnil(L);
    while (next_field(L, index, true)) {
        const char *name = fli_lua_whole_text(L, -2);
        if (!read_child_field(L, r, name, out, &plan)) {
            luaL_error(
                L,
                "a child has no field '%s'; it has id, restart, stop, supervisor, and the options of process.spawn: "
                "name, memory, mailbox, mailbox_bytes, overflow, trap",
                name);
        }
        lua_pop(L, 1);
    }
    if (out->id == NULL) out->id = keep_text(r->tree, L, by_default);
    filch_spawn_options *options = alloc_block(r->tree, L, sizeof *options);
    *options = plan.spawn;
    if (options->name != NULL) options->name = keep_text(r->tree, L, options->name);
    out->options = options;
    if (out->supervisor != NULL) {
        if (lua_rawlen(L, index) > 0) luaL_error(L, "a child is a supervisor or has something to run, not both");
        return;
    }
    if (lua_rawlen(L, index) == 0) {
        luaL_error(L,
                   "'%s' has nothing to run: { \"worker\", arguments... }, { function, ... } or { supervisor = {...} }",
                   out->id);
    }
    kept_start *kept = read_start(L, r, &plan, index);
    out->type = &kept->start.code->kind->type;
    options->args = filch_ptr(&kept->start);
    fli_lua_limit_mailbox(r->p->lua, options);
}

/* ---- functions for other files -------------------------------------------------------------------------------- */

static void release(const filch_child *child)
{
    const fli_lua_supervisor_tree *tree =
        (const fli_lua_supervisor_tree *)(const void *)((const char *)child->options -
                                                        offsetof(fli_lua_supervisor_tree, options));
    fli_lua_supervisor_tree_drop((fli_lua_supervisor_tree *)(uintptr_t)tree);
}

/* Lua function that runs in a protected call. Its arguments are the table and the reader. */
static int read_protected(lua_State *L)
{
    reader                  *r = lua_touserdata(L, 2);
    fli_lua_supervisor_tree *tree = r->tree;
    lua_settop(L, 1);
    if (r->one_child) {
        char id[64];
        snprintf(id, sizeof id, "#%u.%u.%llu", (unsigned)(r->p->self.serial & UINT32_MAX),
                 (unsigned)(r->p->self.serial >> 32), (unsigned long long)r->p->next_tag++);
        read_child(L, r, 1, id, &tree->child);
        /* fli_lua_supervisor_tree_read_child() needs this copy: child->release gets only the child, and computes the
         * address of the tree from child->options. So the options must be in the tree struct. */
        tree->options = *tree->child.options;
        tree->child.options = &tree->options;
        tree->child.release = release;
        return 0;
    }
    tree->root = alloc_block(tree, L, sizeof *tree->root);
    read_supervisor(L, r, 1, tree->root);
    tree->options.args = filch_ptr(&tree->root->spec);
    tree->options.relations = FILCH_SPAWN_TRAP;
    return 0;
}

static fli_lua_supervisor_tree *read_tree(lua_State *L, int index, bool one_child)
{
    fli_lua_proc *p = fli_lua_need_process(L);
    reader        r = { .p = p, .one_child = one_child, .path = "" };
    luaL_checkstack(L, 8, NULL);
    lua_pushcfunction(L, read_protected);
    lua_pushvalue(L, index);
    lua_pushlightuserdata(L, &r);
    r.tree = calloc(1, sizeof *r.tree);
    if (r.tree == NULL) luaL_error(L, "not enough memory");
    r.tree->lua = p->lua;
    r.tree->links = true;
    r.tree->options = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    fli_atomic_init(&r.tree->refs, 1);
    int status = lua_pcall(L, 2, 0, 0);
    if (status == LUA_OK) return r.tree;
    fli_lua_supervisor_tree_drop(r.tree);
    if (status != LUA_ERRRUN || lua_type(L, -1) != LUA_TSTRING) lua_error(L);
    luaL_error(L, "%s%s%s", r.path, r.path[0] != '\0' ? ": " : "", lua_tostring(L, -1));
    return NULL;
}

fli_lua_supervisor_tree *fli_lua_supervisor_tree_read(lua_State *L, int index)
{
    return read_tree(L, index, false);
}

fli_lua_supervisor_tree *fli_lua_supervisor_tree_read_child(lua_State *L, int index)
{
    return read_tree(L, index, true);
}

const filch_spawn_options *fli_lua_supervisor_tree_options(const fli_lua_supervisor_tree *tree)
{
    return &tree->options;
}

bool fli_lua_supervisor_tree_links(const fli_lua_supervisor_tree *tree)
{
    return tree->links;
}

const filch_child *fli_lua_supervisor_tree_child(const fli_lua_supervisor_tree *tree)
{
    return &tree->child;
}
