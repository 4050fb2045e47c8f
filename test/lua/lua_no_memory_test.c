/* lua_no_memory_test.c - Lua processes when memory runs out. Every single allocation is made to fail once: in the host
 * and its states, in the heap of a process, in the scheduler. Each time the error is reported, no process waits for
 * ever, and nothing is left behind.
 *
 * The linker puts the functions below in place of libc's and of fli_lua_heap_resize (--wrap in test/CMakeLists.txt).
 * The scheduler has no workers, one thread for jobs, and an allocator of its own. All results of jobs but the last few
 * are awaited. So each run allocates in the same order, almost to its end.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <lua.h>

#include "lua/fixture.h"
#include "lua/host/code.h"
#include "lua/host/host.h"
#include "lua/memory/heap.h"
#include "support/alloc.h"

/* Under the thread sanitizer it takes long to create a Lua host, and the sanitizer's record of longjmps overflows after
 * a hundred thousand longjmps. */
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 20 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif
#else
enum { SLOWER = 1 };
#endif

/* ---- a system that fails ---- */

typedef enum thing { MEMORY, HEAP, LOCK, CONDITION, THREAD, SIGNAL, STACK, REFERENCE, THINGS } thing;

static struct {
    atomic_long held;    /* number of malloc blocks in use */
    atomic_long locks;   /* mutexes in use */
    atomic_int  what;    /* the kind of request that fails */
    atomic_long left;    /* number of requests until the first failure; 0 or less: the failure has happened */
    atomic_long length;  /* number of requests in a row that fail */
    atomic_long refused; /* number of requests that were refused */
} sys = { .what = THINGS };

/* true: requests of this thread are not counted and do not fail */
static __thread bool exempt;

static bool refuses(thing t)
{
    if (exempt || atomic_load(&sys.what) != (int)t) return false;
    long left = atomic_fetch_sub(&sys.left, 1);
    if (left > 1 || left <= 1 - atomic_load(&sys.length)) return false;
    atomic_fetch_add(&sys.refused, 1);
    return true;
}

/* Makes request number `nth` for `t` fail, and the `length` - 1 requests after it. */
static void refuse(thing t, long nth, long length)
{
    atomic_store(&sys.refused, 0);
    atomic_store(&sys.left, nth);
    atomic_store(&sys.length, length);
    atomic_store(&sys.what, (int)t);
}

/* Lets all requests succeed again. Returns true if a request had failed. */
static bool was_refused(void)
{
    atomic_store(&sys.what, THINGS);
    return atomic_load(&sys.refused) > 0;
}

/* Declares the real function and begins its replacement. */
#define INSTEAD(type, name, ...)     \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

static void *held(void *block)
{
    if (block != NULL) atomic_fetch_add(&sys.held, 1);
    return block;
}

INSTEAD(void *, malloc, size_t size)
{
    return refuses(MEMORY) ? NULL : held(__real_malloc(size));
}

INSTEAD(void *, calloc, size_t count, size_t size)
{
    return refuses(MEMORY) ? NULL : held(__real_calloc(count, size));
}

INSTEAD(void *, aligned_alloc, size_t alignment, size_t size)
{
    return refuses(MEMORY) ? NULL : held(__real_aligned_alloc(alignment, size));
}

INSTEAD(char *, strdup, const char *text)
{
    return refuses(MEMORY) ? NULL : held(__real_strdup(text));
}

INSTEAD(void *, realloc, void *old, size_t size)
{
    if (old == NULL) return __wrap_malloc(size);
    return refuses(MEMORY) ? NULL : __real_realloc(old, size);
}

INSTEAD(void, free, void *old)
{
    if (old != NULL) atomic_fetch_sub(&sys.held, 1);
    __real_free(old);
}

INSTEAD(void *, fli_lua_heap_resize, fli_lua_heap *heap, void *old, size_t old_size, size_t size)
{
    /* Lua requires that shrinking a block succeeds, so only a request for more bytes may fail. */
    if (size <= old_size || !refuses(HEAP)) return __real_fli_lua_heap_resize(heap, old, old_size, size);
    heap->refused = true;
    return NULL;
}

/* Replaces the allocator function that Lua calls. */
INSTEAD(void *, fli_lua_heap_alloc, void *heap, void *old, size_t old_size, size_t size)
{
    return __wrap_fli_lua_heap_resize(heap, old, old != NULL ? old_size : 0, size);
}

INSTEAD(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    if (refuses(LOCK)) return ENOMEM;
    atomic_fetch_add(&sys.locks, 1);
    return __real_pthread_mutex_init(mutex, attr);
}

INSTEAD(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    atomic_fetch_sub(&sys.locks, 1);
    return __real_pthread_mutex_destroy(mutex);
}

INSTEAD(int, pthread_cond_init, pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    return refuses(CONDITION) ? ENOMEM : __real_pthread_cond_init(cond, attr);
}

INSTEAD(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return refuses(THREAD) ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

INSTEAD(int, sigaction, int number, const struct sigaction *action, struct sigaction *before)
{
    if (!refuses(SIGNAL)) return __real_sigaction(number, action, before);
    errno = EINVAL;
    return -1;
}

/* Replaces lua_checkstack(). Can be made to fail, as lua_checkstack() fails if the stack is at its limit or there is no
 * memory to grow it. */
INSTEAD(int, lua_checkstack, lua_State *L, int more)
{
    return refuses(STACK) ? 0 : __real_lua_checkstack(L, more);
}

/* Replaces filch_keep(). Can be made to fail, as filch_keep() fails if it must copy a payload and there is no
 * memory. */
INSTEAD(filch_err, filch_keep, const filch_data *data, filch_data *out)
{
    return refuses(REFERENCE) ? FILCH_ENOMEM : __real_filch_keep(data, out);
}

/* ---- the host ---- */

/* Creates a Lua host while request number `nth` for `t` fails. Returns true if a request failed. Checks that
 * filch_lua_create() reported the failure; if `hidden` is true, filch_lua_create() may succeed instead. */
static bool create_without(thing t, long nth, bool hidden)
{
    filch_lua *lua = NULL;
    /* the option `signal` is set below, so that the host requests every kind of resource */
    filch_lua_options all = FILCH_LUA_OPTIONS_INIT;
    long              before = atomic_load(&sys.held), locks = atomic_load(&sys.locks);
    all.signal = SIGURG;
    refuse(t, nth, 1);
    filch_err err = filch_lua_create(&lua, &all);
    bool      refused = was_refused();
    if (err != FILCH_OK) {
        assert_true(refused);
        assert_null(lua);
        assert_true(err == FILCH_ENOMEM || err == FILCH_ESYS);
    } else {
        assert_true(!refused || hidden);
        ok(filch_lua_destroy(lua));
    }
    same(atomic_load(&sys.held), before);
    same(atomic_load(&sys.locks), locks);
    return refused;
}

TEST(a_host_that_cannot_be_created_leaks_nothing)
{
    static const struct {
        thing t;
        long  least;
        /* true: filch_lua_create() may succeed in spite of the failed request; then the host has no templates */
        bool hidden;
    } cases[] = {
        { MEMORY, 20, true }, { LOCK, 8, false }, { CONDITION, 1, false }, { THREAD, 1, false }, { SIGNAL, 1, false }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        long nth = 1;
        while (create_without(cases[i].t, nth, cases[i].hidden)) nth++;
        assert_true(nth > cases[i].least);
    }
}

/* Lua requires that shrinking a block succeeds. Without memory, a block that came from malloc cannot be moved into a
 * chunk of the heap, so it must stay where it is. */
TEST(shrinking_a_heap_needs_no_memory)
{
    static char  first[4096];
    fli_lua_heap heap;
    fli_lua_heap_init(&heap, first, sizeof first, SIZE_MAX);
    char *block = fli_lua_heap_resize(&heap, NULL, 0, 3000), *big = fli_lua_heap_resize(&heap, NULL, 0, 9000);
    memset(block, 'b', 3000);
    (void)fli_lua_heap_resize(&heap, NULL, 0, 1000); /* fills the chunk */
    refuse(MEMORY, 1, 1000000);
    char *shrunk = fli_lua_heap_resize(&heap, block, 3000, 900);
    char *gone = fli_lua_heap_resize(&heap, big, 9000, 500);
    assert_true(was_refused());
    assert_ptr_equal(shrunk, block);
    for (int i = 0; i < 900; i++) same(shrunk[i], 'b');
    assert_null(gone);
    assert_null(fli_lua_heap_resize(&heap, NULL, 0, 0));
    fli_lua_heap_resize(&heap, big, 9000, 0);
    fli_lua_heap_fini(&heap);
}

/* ---- processes ---- */

static test_alloc sched_alloc;

/* An allocator that is exempt from the failures of this test. */
static void *outside(void *user, void *old, size_t old_size, size_t size)
{
    exempt = true;
    void *block = test_alloc_fn(user, old, old_size, size);
    exempt = false;
    return block;
}

static fixture w;
static char    running[64]; /* name of the Lua program that is running, for error messages */

static filch_err start(filch_lua_code **code, const char *chunk)
{
    filch_err err = filch_lua_load(w.lua, chunk, strlen(chunk), "test", code, NULL, 0);
    if (err != FILCH_OK) return err;
    filch_spawn_options     spawn = FILCH_SPAWN_OPTIONS_INIT;
    filch_lua_spawn_options how = FILCH_LUA_SPAWN_OPTIONS_INIT;
    filch_data              args[2] = { filch_str("a text"), filch_int(2) };
    spawn.on_exit = fixture_ended;
    spawn.on_exit_user = &w;
    how.spawn = &spawn;
    how.args = args;
    how.arg_count = 2;
    how.memory_max = 32 << 20;
    return filch_lua_spawn(w.lua, w.sched, *code, &how, NULL);
}

static void open_fixture(void)
{
    memset(&w, 0, sizeof w);
    memset(&sched_alloc, 0, sizeof sched_alloc);
    filch_lua_options lua = FILCH_LUA_OPTIONS_INIT;
    filch_options     sched = FILCH_OPTIONS_INIT;
    lua.print = fixture_print;
    lua.print_user = &w;
    lua.log = fixture_print;
    lua.log_user = &w;
    lua.watch = FILCH_LUA_WATCH_NONE;
    lua.path = LUA_TEST_FOLDER "/?.lua";
    lua.rights = FILCH_LUA_MAY_ENV | FILCH_LUA_MAY_FILES;
    sched.workers = FILCH_NO_WORKERS;
    sched.work_threads = 1;
    sched.alloc = outside;
    sched.alloc_user = &sched_alloc;
    ok(filch_lua_create(&w.lua, &lua));
    ok(filch_sched_create(&w.sched, &sched));
}

static bool is_over(void)
{
    uint32_t ran = 0;
    ok(filch_tick(w.sched, 1, &ran));
    if (atomic_load(&w.over) != 0) return true;
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(w.sched, &stats));
    /* true: a yield waits for a thread of the pool */
    bool awaited = stats.yields != stats.completions + stats.abandoned;
    if (ran == 0 && !awaited && filch_next_timeout(w.sched) == FILCH_FOREVER) fail_msg("%s waits for ever", running);
    return false;
}

/* Fails if code is referenced when no process lives: the cache would keep it until the host is destroyed. Loaded files
 * hold references to their code, so programs that use files are not checked (`uses_files`). */
static bool uses_files = true;

static void expect_unreferenced_codes(void)
{
    if (uses_files) return;
    for (size_t i = 0; i < FLI_LUA_BUCKETS; i++) {
        for (fli_lua_code *code = w.lua->code[i]; code != NULL; code = code->next) {
            size_t refs = fli_load_acq(&code->refs);
            if (refs != 1) fail_msg("%s leaves %zu references to code", running, refs - 1);
        }
    }
}

/* Loads the chunk and runs it to its end. `arm` chooses the kind of requests that fail, beginning with request number
 * `nth` after the load has begun. Returns true if a request failed. */
static bool run_without(const char *chunk, void (*arm)(long nth, long length), long nth, long length)
{
    filch_lua_code *code = NULL;
    long            before = atomic_load(&sys.held);
    open_fixture();
    snprintf(running, sizeof running, "%.20s without %ld+%ld", chunk, nth, length);
    arm(nth, length);
    filch_err err = start(&code, chunk);
    bool      started = err == FILCH_OK;
    if (started) until(is_over());
    bool refused = was_refused() || atomic_load(&sched_alloc.refused) > 0;
    test_alloc_fail(&sched_alloc, 0, false);
    if (started) err = w.error;
    bool fine = err == FILCH_OK || err == FILCH_ENOMEM || err == FILCH_LUA_EMEMORY || err == FILCH_ELINK ||
                err == FILCH_LUA_EERROR;
    if (!fine || (!refused && err != FILCH_OK)) fail_msg("%ld: %s: %s", nth, filch_err_name(err), w.text);
    /* drops the reference of this function to the loaded code */
    filch_lua_code_drop(w.lua, code);
    ok(filch_sched_stop(w.sched, FILCH_SECONDS(60), NULL));
    expect_unreferenced_codes();
    ok(filch_lua_destroy(w.lua));
    if (atomic_load(&sys.held) != before) fail_msg("%s leaves %ld blocks", running, atomic_load(&sys.held) - before);
    test_alloc_balanced(&sched_alloc);
    return refused;
}

static void arm_memory(long nth, long length)
{
    refuse(MEMORY, nth, length);
}

static void arm_heap(long nth, long length)
{
    refuse(HEAP, nth, length);
}

static void arm_sched(long nth, long length)
{
    refuse(THINGS, 0, 0); /* switches off failures of other kinds, which an earlier test may have set */
    atomic_store(&sched_alloc.refused, 0);
    test_alloc_fail(&sched_alloc, (uint64_t)nth, length > 1);
}

/* Each program checks its results with assert, so that a wrong result is an error. The processes that the program
 * starts are linked with it, so that it gets their errors. */
static const char *const programs[] = {
    /* messages of all kinds, kept messages and selective receive; requests; errors with tracebacks */
    "local text, two = ... assert(text == 'a text' and two == 2)\n"
    "local me, list = process.self(), { 1, 2, { 'x' } }\n"
    "local child = process.spawn_linked(function(n)\n"
    "  while true do\n"
    "    local m, from = process.receive({ kind = function(k) return k ~= nil end })\n"
    "    if m.kind == 'end' then return end\n"
    "    assert(process.reply(from, { n, #list, m.value }))\n"
    "  end\n"
    "end, 7)\n"
    "assert(process.send(child, 'kept')) assert(process.send(child, { ('y'):rep(600) }))\n"
    "for i = 1, 3 do\n"
    "  local a = assert(process.request(child, { kind = 'ask', value = ('z'):rep(i * 200) }))\n"
    "  assert(a[1] == 7 and a[2] == 3 and #a[3] == i * 200)\n"
    "end\n"
    "for i = 1, 5 do assert(process.send(me, { i, ('t'):rep(40) })) end\n"
    "assert(process.receive(function(m) return m[1] == 4 end)[1] == 4)\n"
    "assert(process.send(child, { kind = 'end' }))\n"
    "local fine, why = pcall(function() local x = nil; return x.y end) assert(not fine)\n"
    "return { ('r'):rep(500), list }\n",
    /* tasks, channels and timers */
    "local ch = channel.new(2)\n"
    "local t = task.spawn(function() for i = 1, 5 do ch:send({ i }) end ch:close() return 'sent' end)\n"
    "local sum = 0 for v in ch do sum = sum + v[1] end assert(sum == 15 and t:await() == 'sent')\n"
    "assert(#task.all { function() return 1 end, function() time.sleep(0) return 2 end, function() return 3 end } == "
    "3)\n"
    "local sleepers = {} for i = 1, 12 do sleepers[i] = task.spawn(function() time.sleep((13 - i) * 1e-6) return i "
    "end) end\n"
    "for i = 1, 12 do assert(sleepers[i]:await() == i) end\n"
    "assert(channel.select({ channel.new(), channel.inbox }, 0.0001) == nil)\n"
    "assert(task.spawn(function(...) return select('#', ...) end, table.unpack({}, 1, 300)):await() == 300)\n"
    "local co = coroutine.wrap(function() for i = 1, 3 do time.sleep(0) coroutine.yield(i) end end) assert(co() + co() "
    "+ co() == 6)\n",
    /* texts (JSON, patterns, log lines); the first use of each library */
    "local s = json.encode({ 1, 2.5, { a = 'b', c = { true, false } }, ('w'):rep(3000) }) assert(#json.decode(s)[4] == "
    "3000)\n"
    "assert(('x=1, y=2'):gsub('(%w)=(%w)', '%2=%1') == '1=x, 2=y') assert(('abc'):rep(1000, ','):find('c,a', 2000))\n"
    "local keys = {} for k in pairs(string) do keys[#keys + 1] = k end table.sort(keys) assert(#keys > 15)\n"
    "for k in pairs(_G) do keys[#keys + 1] = k end print(table.concat(keys, ' '))\n"
    "log.info('a line', { field = 1 }) assert(load('return 1 + 1')() == 2) assert(require('counter') == "
    "require('counter'))\n"
    "assert(runtime.stats().alive >= 1) assert('10' + 5 == 15) assert(tostring(process.self()):find('<'))\n"
    "local t = setmetatable({}, { __index = function(_, k) return k end }) assert(t.x == 'x') assert(math.random(10) "
    "<= 10)\n"
    "local co = coroutine.create(function(...) return ... end) assert(select('#', coroutine.resume(co, "
    "table.unpack({}, 1, 100))) == 101)\n",
    /* long and shared strings; processes by name; many processes with the same function, so that a template is made */
    "local me, long = process.self(), ('l'):rep(20000)\n"
    "for i = 1, 4 do process.spawn_linked(function(i, s) assert(#s == 20000) assert(process.send(me, { i, s, blob and "
    "blob.new(s) })) end, i, long) end\n"
    "for i = 1, 4 do local m = process.receive() assert(#m[2] == 20000) end\n"
    "local pid = process.spawn_linked('counter', 10) assert(process.send(pid, { 'add', 5 })) "
    "assert(process.request(pid, 'get') == 15)\n"
    "assert(process.exec(function() return long end) == long) assert(process.exec(function() return { 1, 2 } end)[2] "
    "== 2)\n"
    "assert(process.register('me') and process.join('group') and #process.members('group') == 1)\n"
    "assert(process.broadcast('group', { long }) == 1 and process.receive()[1] == long) "
    "assert(process.unregister('me'))\n"
    "local ref = assert(process.monitor(pid)) assert(process.unmonitor(ref)) process.exit({ long })\n",
    /* sends blobs; the receiver sends them on as strings, and strings as blobs */
    "local me = process.self()\n"
    "local b = blob.new(('b'):rep(30000)) local s = ('s'):rep(17000)\n"
    "local pid = process.spawn_linked(function()\n"
    "  local m, from = process.receive()\n"
    "  process.upgrade(function(kept, asked, x) assert(process.reply(asked, { #kept.b, #kept.s, x })) end, m, from, "
    "5)\n"
    "end)\n"
    "local r = assert(process.request(pid, { b = b, s = s, again = b, more = s })) assert(r[1] == 30000 and r[2] == "
    "17000 and r[3] == 5)\n"
    "for i = 1, 3 do assert(process.send(me, { b, s, i })) end for i = 1, 3 do assert(process.receive()[3] == i) end\n"
    "assert(msgpack.decode(msgpack.encode({ 1, 'two', { three = 3.5 } }))[2] == 'two') return b\n",
    /* supervisors: a tree, a restart, a child that is added and removed */
    "local long = ('l'):rep(20000)\n"
    "local function worker(text)\n"
    "  assert(#text == 20000)\n"
    "  while true do local m, from = process.receive() if m == 'fail' then error('on request', 0) end "
    "assert(process.reply(from, m)) end\n"
    "end\n"
    "local top = assert(supervisor.start { name = 'top', intensity = 20, backoff = '1us', children = {\n"
    "  { id = 'a', worker, long, name = 'a' }, { id = 'sub', supervisor = { children = { { worker, long, name = 'b' } "
    "} } } } })\n"
    "assert(process.request('b', 1, '10s') == 1)\n"
    "local old = process.lookup('a')\n"
    "process.send('a', 'fail')\n"
    "for _ = 1, 100 do if (process.lookup('a') or old) ~= old then break end time.sleep(1e-5) end\n"
    "assert(supervisor.start_child(top, { worker, long, id = 'late' }))\n"
    "assert(#supervisor.children(top) == 3)\n"
    "assert(supervisor.stop_child(top, 'late') and supervisor.stop(top))\n",
    /* __close handlers that wait after an error */
    "local function waits(name) return setmetatable({}, { __close = function(_, why) time.sleep(1e-6) error(why .. "
    "name, "
    "0) end }) end\n"
    "local none, why = process.exec(function() local a <close> = waits('a') local b <close> = waits('b') error('x', 0) "
    "end)\n"
    "assert(none == nil and (why:find('xba', 1, true) or why:find('memory', 1, true)), why)\n"
    "none, why = pcall(coroutine.wrap(function() local a <close> = waits('a') local b <close> = waits('b') error('x', "
    "0) "
    "end))\n"
    "assert(not none and why:find('xba', 1, true), why)\n",
    /* jobs on the thread pool: short and long results and errors; jobs that no task awaits, whether they have begun or
     * not */
    "local long, b = ('l'):rep(20000), blob.new(('b'):rep(30000))\n"
    "local function twice(x) return x * 2 end\n"
    "for i = 1, 3 do\n"
    "  local r = assert(work.run(function(t, s, b) return { twice(t[1]), s, b, #s } end, { i }, long, b))\n"
    "  assert(r[1] == 2 * i and r[2] == long and #r[3] == 30000 and r[4] == 20000)\n"
    "end\n"
    "local function why(...) local r, words = work.run(...) assert(r == nil) return words end\n"
    "assert(why(function() local x = nil return x.y end):find('index', 1, true))\n"
    "assert(why(function(s) error({ message = s }) end, long):find('lll', 1, true))\n"
    "assert(why(function() return print end):find('cannot be sent', 1, true))\n"
    "assert(work.run { function(n) return ('r'):rep(n) end, 20000, timeout = '100s' } == ('r'):rep(20000))\n"
    "assert(work.run('reporter') == nil)\n"
    "for i = 1, 3 do task.spawn(function() work.run(function(s) return { s, i } end, long) end) end\n"
    "local r, late = work.run { function(s) return s end, long, timeout = 0 } assert(r == long or late == 'timeout', "
    "late)\n",
    /* upgrades to other code and back to the first code, with messages in the mailbox; a check for changed files */
    "local pid = process.spawn_linked('older', 5)\n"
    "for i = 1, 3 do assert(process.send(pid, { add = 1, ('m'):rep(600) })) end\n"
    "assert(process.request(pid, 'answer later', '10s') == 'answered by the new one')\n"
    "assert(process.send(pid, 'back')) assert(process.send(pid, { add = 1 }))\n"
    "assert(process.request(pid, 'get', '10s')[2] == 9)\n"
    "assert(process.request(pid, { upgrade = 'broken.fails' }, '10s'):find('at the top', 1, true))\n"
    "assert(process.exec(function() process.upgrade(function(t) return #t end, ('u'):rep(20000)) end) == 20000)\n"
    "local up = process.spawn_linked('upgrades') assert(process.request(up, 'hello', '10s')) assert(runtime.reload() "
    "== 0)\n",
    /* this program sends functions that have other functions as upvalues to a new process (process.exec) */
    "local function sum(n) if n <= 0 then return 0 end return n + sum(n - 1) end\n"
    "local shared = 0 local function bump() shared = shared + 1 return shared end local function read() return shared "
    "end\n"
    "local r = assert(process.exec(function(f, x) bump() bump() return { f(3), read(), sum(2), x.g(1) } end, sum, { g "
    "= sum }))\n"
    "assert(r[1] == 6 and r[2] == 2 and r[3] == 3 and r[4] == 1 and shared == 0)\n",
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* Runs the chunk once for each request that can fail, or only for every `stride`-th request, if runs take long. Returns
 * the number of the last request. */
static long sweep(const char *chunk, void (*arm)(long nth, long length), long length, long stride)
{
    uint64_t share = scaled(100);
    long     nth = 1;
    if (share < 25) stride *= (long)(100 / share) * SLOWER;
    while (run_without(chunk, arm, nth, length)) nth += stride;
    return nth;
}

static void arm_thread(long nth, long length)
{
    refuse(THREAD, nth, length);
}

/* Memory runs out while the arguments (functions among them) are being encoded, or after the job was created. */
TEST(out_of_memory_while_starting_a_job_or_process_leaks_nothing)
{
    static const char *const chunks[] = {
        "local function f(x) return x end local long = ('l'):rep(2000)\n"
        "for i = 1, 3 do assert(work.run(function(g, s) return g(s) end, f, long) == long) end\n",
        "local list = { function() return 1 end, function() return 2 end, function() return 3 end, function() return 4 "
        "end,\n"
        "               function() return 5 end, function() return 6 end, function() return 7 end }\n"
        "assert(process.exec(function(s, l) return l[7]() + #s end, ('l'):rep(2000), list) == 2007)\n",
        /* more functions and upvalues than the encoder can hold without allocating memory */
        "local list = {} for i = 1, 20 do local a, b = i, 2 * i list[i] = function() return a + b end end\n"
        "assert(process.exec(function(l) return l[20]() end, list) == 60)\n",
    };
    uses_files = false;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) assert_true(sweep(chunks[i], arm_memory, 1, 1) > 5);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) assert_true(sweep(chunks[i], arm_heap, 2, 1) > 100);
    /* if the pool cannot start a thread, no process may wait for that thread */
    assert_true(sweep(chunks[0], arm_thread, 1, 1) > 1);
    uses_files = true;
}

/* Starts nine functions. The cache of started functions has eight entries. It keeps the functions in the Lua registry,
 * so the registry grows in this test. If there is no memory for the cache, the process must be started nevertheless,
 * with all its arguments. */
TEST(a_function_that_cannot_be_cached_is_started_with_its_arguments)
{
#define START "start(function(x, y) return y or 'lost' end)"
    static const char chunk[] =
        "local lost = 0\n"
        "local function start(f)\n"
        "  local fine, y = pcall(process.exec, f, 6, 7)\n"
        "  if y == 'lost' or tostring(y):find('cannot be sent', 1, true) then lost = lost + 1 end\n"
        "end\n" START " " START " " START "\n" START " " START " " START "\n" START " " START " " START "\n"
        "return lost\n";
    long nth = 1, passed = 0;
    for (; run_without(chunk, arm_heap, nth, 2); nth++) {
        if (w.error != FILCH_OK) continue;
        same(w.number, 0);
        passed++;
    }
    assert_true(nth > 100 && passed > 5);
}

TEST(out_of_memory_while_receiving_a_long_string_leaks_nothing)
{
    static const char *const chunks[] = {
        "local me, long = process.self(), ('l'):rep(20000) process.send(me, long) assert(process.receive() == long)\n",
        "assert(#process.exec(function() return ('l'):rep(20000) end) == 20000)\n",
        "assert(#work.run(function() return ('l'):rep(20000) end) == 20000)\n",
    };
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) assert_true(sweep(chunks[i], arm_heap, 2, 1) > 30);
}

/* The search for 'x' keeps the first message (300 KB), which counts against the memory of the process until it is read.
 * If there is no memory to keep it, the process collects its garbage and tries again; the first attempt must not
 * count. */
TEST(a_message_that_is_kept_at_the_second_attempt_counts_once)
{
    static const char chunk[] = "local me, list = process.self(), {}\n"
                                "collectgarbage()\n"
                                "local before = collectgarbage('count')\n"
                                "for i = 1, 20 do list[i] = ('z'):rep(15000) end\n"
                                "process.send(me, list)\n"
                                "list = nil\n"
                                "process.send(me, 'x')\n"
                                "assert(process.receive('x') == 'x')\n"
                                "assert(#process.receive() == 20)\n"
                                "collectgarbage()\n"
                                "return math.floor(collectgarbage('count') - before)\n";
    long              nth = 1, passed = 0;
    for (w.error = FILCH_ENOMEM; run_without(chunk, arm_heap, nth, 1); nth++, w.error = FILCH_ENOMEM) {
        if (w.error != FILCH_OK) continue;
        if (w.number > 100) fail_msg("without request %ld: %ld KiB more", nth, (long)w.number);
        passed++;
    }
    assert_true(passed > 10);
}

TEST(any_failed_host_allocation_ends_in_a_result_or_an_error)
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        assert_true(sweep(programs[i], arm_memory, 1, 1) > 5);
        /* request number `nth` and all later requests fail */
        assert_true(sweep(programs[i], arm_memory, 1000000, 3) > 5);
    }
}

/* After one refused request Lua collects garbage and tries again. Two refused requests in a row are final, and so is a
 * heap that stays full. */
TEST(any_failed_heap_allocation_ends_its_process_with_an_error)
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        /* the last three programs take long, so only every third request is tried */
        long often = i < PROGRAMS - 3 ? 1 : 3;
        assert_true(sweep(programs[i], arm_heap, 1, 7 * often) > 100);
        assert_true(sweep(programs[i], arm_heap, 2, often) > 100);
        assert_true(sweep(programs[i], arm_heap, 1000000, 5 * often) > 100);
    }
}

TEST(any_failed_scheduler_allocation_ends_in_a_result_or_an_error)
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        (void)sweep(programs[i], arm_sched, 1, 1);
        (void)sweep(programs[i], arm_sched, 2, 1);
    }
}

static void arm_stack(long nth, long length)
{
    refuse(STACK, nth, length);
}

static void arm_reference(long nth, long length)
{
    refuse(REFERENCE, nth, length);
}

/* No program waits for a certain message: if the stack is full and has no space for the value of a message, the message
 * is delivered as its bytes, in a string. */
static const char *const stack_programs[] = {
    "local me, b, s = process.self(), blob.new(('b'):rep(30000)), ('s'):rep(17000)\n"
    "for i = 1, 2 do assert(process.send(me, { { { b, s, me } }, i })) local m = process.receive() assert(#m[1][1][1] "
    "== 30000 and m[2] == i) end\n"
    "assert(#json.decode(json.encode { { { 1 } } })[1][1] == 1) assert(#msgpack.decode(msgpack.encode { { { 1 } } "
    "})[1][1] == 1)\n"
    "local fine, why = pcall(function() local x = nil return x.y end) assert(not fine and #why > 5)\n",
    "local function sum(n) if n <= 0 then return 0 end return n + sum(n - 1) end\n"
    "local shared = 0 local function bump() shared = shared + 1 return shared end local function read() return shared "
    "end\n"
    "for i = 1, 2 do\n"
    "  local r = assert(process.exec(function(f, x) bump() bump() return { f(3), read(), sum(2), x.g(1), math.type(1) "
    "} end, sum, { g = sum }))\n"
    "  assert(r[1] == 6 and r[2] == 2 and r[3] == 3 and r[4] == 1 and r[5] == 'integer' and shared == 0)\n"
    "end\n"
    "assert(process.exec(function() process.upgrade(function(t) return #t end, ('u'):rep(20000)) end) == 20000)\n"
    "assert(work.run(function(t) return { t[1] } end, { 5 })[1] == 5) local fine, why = pcall(error, { message = 'the "
    "end' }) assert(not fine)\n",
};

TEST(any_failed_stack_growth_ends_in_a_result_or_an_error)
{
    for (size_t i = 0; i < sizeof stack_programs / sizeof stack_programs[0]; i++) {
        assert_true(sweep(stack_programs[i], arm_stack, 1, 2) > 20);
        assert_true(sweep(stack_programs[i], arm_stack, 1000000, 15) > 20);
    }
}

TEST(any_failed_payload_reference_ends_in_a_result_or_an_error)
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        (void)sweep(programs[i], arm_reference, 1, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_cannot_be_created_leaks_nothing),
        cmocka_unit_test(shrinking_a_heap_needs_no_memory),
        cmocka_unit_test(out_of_memory_while_starting_a_job_or_process_leaks_nothing),
        cmocka_unit_test(a_function_that_cannot_be_cached_is_started_with_its_arguments),
        cmocka_unit_test(out_of_memory_while_receiving_a_long_string_leaks_nothing),
        cmocka_unit_test(a_message_that_is_kept_at_the_second_attempt_counts_once),
        cmocka_unit_test(any_failed_host_allocation_ends_in_a_result_or_an_error),
        cmocka_unit_test(any_failed_heap_allocation_ends_its_process_with_an_error),
        cmocka_unit_test(any_failed_scheduler_allocation_ends_in_a_result_or_an_error),
        cmocka_unit_test(any_failed_stack_growth_ends_in_a_result_or_an_error),
        cmocka_unit_test(any_failed_payload_reference_ends_in_a_result_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
