/* fuzz_api.c - turns bytes into calls of the public API; a model predicts the result of each call (model.h).
 *
 * One scheduler without workers, one thread, a clock that only the input advances: an input always gives the same run.
 * The host reads its next operation from the input, and so does every step, handler, close and on_exit when it is
 * called. In the input, therefore, the actions of the processes stand between the operations of the host, in the order
 * in which they run.
 */
#include <filch.h>

#include "fuzz/model.h"
#include "fuzz/relate.h"
#include "fuzz/relations.h"
#include "fuzz/still_clock.h"

enum { OWN = FILCH_CMD_USER, KEPT = 4, CHAINS = 3, NODE = 7, FIRST = 3 };
enum { ACTIONS_MAX = 8 }; /* maximum number of actions in one step */

static fuzz_bytes in;

/* Payloads that the test has kept beyond the events that they came from. */
static struct {
    content    says;
    filch_data data;
} kept[KEPT];

static struct {
    filch_values *values;
    heritage      gives;
} chains[CHAINS];

static filch_values *scopes[SCOPES]; /* the first now.scope_count elements are in use */

/* The node (set of hosts) to which the scheduler and the second host `neighbour` belong. NULL: the scheduler does not
 * belong to a node, and there is no second host. */
static filch_node  *node;
static filch_sched *neighbour;

/* The next call of an init function: the method and args that it must get, whether it must fail, and what it has
 * recorded. */
static struct {
    const payload *args;
    const char    *method;
    bool           fails;
    bool           spawns; /* true: filch_spawn() is being called, and the new process is not in the model yet */
    /* the state was closed after init, because there was no memory for the relations of the process */
    bool      unborn;
    bool      refused; /* true: the spawn must fail, because a message in its options is too big */
    uint32_t  number;  /* identifies the state that init has initialised; 0: none */
    filch_pid pid;
    int64_t   value;
} next_init;

/* A spawn that was yielded. The new process gets `number` as its args, by which its init function finds this struct. */
typedef struct spawn_order {
    int64_t     number;
    int         yield_rec; /* index in the model of the yield that requested the spawn; NO_PROC: none */
    const char *method;
    proc        as;
    content     first[FIRST];
    uint32_t    first_count;
} spawn_order;

enum { SPAWN_ORDERS = 8 };
static spawn_order spawn_orders[SPAWN_ORDERS];
static uint32_t    spawn_order_count; /* number of spawns yielded so far; the last SPAWN_ORDERS of them are kept */

static uint64_t   seed; /* counter that makes the content of each payload different */
static uint64_t   long_steps;
static filch_out *stale; /* the `out` of an earlier step, which every call must refuse */

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out);

/* ---- instances ---- */

typedef struct instance {
    uint64_t serial;
    uint32_t number, magic;
    uint8_t  more[]; /* all further bytes of the state; the value of each is the low byte of `number` */
} instance;

enum { MAGIC = 0x11f3, SMALL = sizeof(instance), MIDDLE = 24, LARGE = 300 };

/* Returns true if all `size` bytes at `at` are `value`. Uses memcmp, because the fuzzer's counters make a loop here ten
 * times slower. */
static bool is_all(const void *at, size_t size, uint8_t value)
{
    const uint8_t *bytes = at;
    return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static spawn_order *find_spawn_order(const filch_data *args)
{
    for (uint32_t i = 0; i < SPAWN_ORDERS && filch_kind_of(args) == FILCH_KIND_INT; i++) {
        spawn_order *o = &spawn_orders[i];
        bool         is_order = o->yield_rec != NO_PROC && o->number == filch_as_int(args);
        if (is_order && now.yield_recs[o->yield_rec].stage == STAGE_OPEN && !now.yield_recs[o->yield_rec].dispatched)
            return o;
    }
    return NULL;
}

static void record_spawn(proc *l, const heritage *inherits, filch_pid pid, uint64_t since_ns);

/* Init function for a process that was spawned by a yield. */
static filch_err open_ordered(spawn_order *o, instance *self, size_t size, const filch_ctx *ctx, const char *method)
{
    yield_rec *q = &now.yield_recs[o->yield_rec];
    bool       same = (method == NULL) == (o->method == NULL) && (method == NULL || strcmp(method, o->method) == 0);
    MUST(same, "another method than was yielded");
    MUST(q->child == NO_PROC, "a yielded spawn ran init twice");
    model_relations_done(o->yield_rec);
    q->tried = true;
    if (q->reason != FILCH_OK) return q->reason;
    filch_pid pid = filch_ctx_self(ctx);
    MUST(model_find(pid) == NO_PROC, "a pid was used again");
    o->as.instance = (uint32_t)++now.opened;
    record_spawn(&o->as, &now.procs[q->proc].inherits, pid, still_clock_ns);
    MUST(filch_as_int(filch_ctx_value(ctx, "v")) == o->as.inherits.value, "another inherited value");
    q->child = now.proc_count - 1;
    for (uint32_t i = 0; i < o->first_count; i++) model_first_message(q->child, q->proc, &o->first[i]);
    *self = (instance){ .serial = pid.serial, .number = o->as.instance, .magic = MAGIC };
    memset((char *)self + sizeof *self, (uint8_t)self->number, size - sizeof *self);
    return FILCH_OK;
}

static filch_err open_sized(instance *self, size_t size, const filch_ctx *ctx, const char *method,
                            const filch_data *args)
{
    MUST(is_all(self, size, 0), "the state does not begin as zeros");
    MUST(filch_ctx_sched(ctx) == now.sched, "another scheduler");
    spawn_order *o = next_init.spawns ? NULL : find_spawn_order(args);
    if (o != NULL) return open_ordered(o, self, size, ctx, method);
    MUST(method == next_init.method, "another method");
    MUST(payload_is(&next_init.args->says, args), "other args");
    if (method != NULL && strcmp(method, "known") != 0) return FILCH_EMETHOD;
    if (next_init.fails) return FILCH_EUSER + 7;
    next_init.pid = filch_ctx_self(ctx);
    next_init.value = filch_as_int(filch_ctx_value(ctx, "v"));
    next_init.number = (uint32_t)++now.opened;
    *self = (instance){ .serial = next_init.pid.serial, .number = next_init.number, .magic = MAGIC };
    memset((char *)self + sizeof *self, (uint8_t)next_init.number, size - sizeof *self);
    return FILCH_OK;
}

static proc *check_instance(const instance *self, size_t size)
{
    MUST(self->magic == MAGIC, "this is not an instance");
    MUST(is_all(self->more, size - sizeof *self, (uint8_t)self->number), "the state has been damaged");
    int index = model_find((filch_pid){ NODE, self->serial });
    MUST(index != NO_PROC, "an instance of an unknown process");
    return &now.procs[index];
}

static void send_something(void);

static void close_sized(instance *self, size_t size)
{
    if (next_init.spawns && self->magic == MAGIC && self->number == next_init.number) {
        MUST(!next_init.unborn && (now.alloc.refused > 0 || next_init.refused),
             "a new instance was closed without a reason");
        next_init.unborn = true;
        self->magic = 0;
        now.shut++;
        return;
    }
    proc *l = check_instance(self, size);
    self->magic = 0;
    model_closed(self->number, l);
    if (l->alive || fuzz_below(&in, 4) != 3) return;
    now.reaping = (int)(l - now.procs);
    send_something();
    now.reaping = NO_PROC;
}

#define TYPE(name, SIZE)                                                                                       \
    static filch_err open_##name(void *self, const filch_ctx *ctx, const char *method, const filch_data *args) \
    {                                                                                                          \
        return open_sized(self, SIZE, ctx, method, args);                                                      \
    }                                                                                                          \
    static void close_##name(void *self)                                                                       \
    {                                                                                                          \
        close_sized(self, SIZE);                                                                               \
    }                                                                                                          \
    static filch_err step_##name(void *self, const filch_event *events, size_t count, filch_out *out)          \
    {                                                                                                          \
        proc *l = check_instance(self, SIZE);                                                                  \
        MUST(l->instance == ((instance *)self)->number && !l->bare, "a step of another instance");             \
        return step(self, events, count, out);                                                                 \
    }
TYPE(small, SMALL)
TYPE(middle, MIDDLE)
TYPE(large, LARGE)

static const filch_type types[] = {
    { .name = "small", .size = SMALL, .init = open_small, .step = step_small, .close = close_small },
    { .name = "middle", .size = MIDDLE, .init = open_middle, .step = step_middle, .close = close_middle },
    { .name = "large", .size = LARGE, .init = open_large, .step = step_large, .close = close_large },
    { .name = "bare", .step = step },
};
static const filch_type *const bare = &types[3];

/* ---- actions of the test's thread and of steps ---- */

/* Chooses a payload to send: a new one, a kept one, or the payload of the current event. */
static void choose_payload(payload *p)
{
    uint32_t choice = fuzz_below(&in, 8);
    if (choice == 3 && now.last_read != NULL) {
        p->moved = NULL;
        p->says = now.last_read_says;
        p->data = now.last_read->data;
        return;
    }
    if (choice >= 4 && choice < 4 + KEPT && kept[choice - 4].data.kind != FILCH_KIND_NONE) {
        p->moved = NULL;
        p->says = kept[choice - 4].says;
        p->data = kept[choice - 4].data;
        return;
    }
    payload_pack(p, &in, ++seed);
}

static void send_something(void)
{
    filch_pid pid;
    filch_err otherwise;
    payload   p;
    if (!model_has_room()) return;
    int to = choose_pid(&in, &pid, &otherwise);
    choose_payload(&p);
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_send(now.sched, pid, p.data);
    model_sent(to, otherwise, &p.says, err, refused);
    payload_sent(&p, err == FILCH_OK);
}

static void send_by_name(void)
{
    uint32_t name = fuzz_below(&in, NAMES);
    payload  p;
    if (!model_has_room()) return;
    choose_payload(&p);
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_send_name(now.sched, tie_names[name], p.data);
    if (ties.owner[name] != NO_PROC || relations_closed())
        model_sent(ties.owner[name], FILCH_OK, &p.says, err, refused);
    else
        MUST(err == FILCH_EDEAD || (err == FILCH_ENOMEM && model_lacked_memory(refused)),
             "a message to a name nobody has");
    payload_sent(&p, err == FILCH_OK);
}

/* Sends by name, or calls a function about relations. `out` is NULL outside of steps. */
static void relate(filch_out *out)
{
    uint32_t choice = fuzz_below(&in, 16);
    payload  p;
    if (choice == 15) {
        send_by_name();
    } else if (choice == 14) {
        choose_payload(&p);
        broadcast_something(&in, &p);
    } else if (choice == 13 && out != NULL) {
        choose_payload(&p);
        yield_message(&in, out, &p);
    } else {
        relate_something(&in, out);
    }
}

static void deliver_something(void)
{
    filch_pid pid, from;
    filch_err otherwise, unused;
    payload   p;
    if (!model_has_room()) return;
    int to = choose_pid(&in, &pid, &otherwise);
    now.as = choose_pid(&in, &from, &unused);
    now.posing = true;
    if (now.as == NO_PROC) from = (filch_pid){ 0, 0 };
    choose_payload(&p);
    filch_package package = { .to = pid, .from = from, .data = p.data };
    /* filch_deliver() must return FILCH_EFOREIGN for every pid with another host number, even for an invalid pid. */
    if (pid.node != NODE) otherwise = FILCH_EFOREIGN;
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_deliver(now.sched, &package);
    model_sent(to, otherwise, &p.says, err, refused);
    payload_sent(&p, err == FILCH_OK);
    now.posing = false;
}

static void cancel_or_kill(bool cancel)
{
    filch_pid pid;
    filch_err otherwise;
    int       to = choose_pid(&in, &pid, &otherwise);
    filch_err err = cancel ? filch_cancel(now.sched, pid) : filch_terminate(now.sched, pid);
    if (to == NO_PROC || !now.procs[to].alive) {
        MUST(err == (to == NO_PROC ? otherwise : FILCH_EDEAD),
             "a cancel or terminate of an unknown pid has another result");
        return;
    }
    MUST(err == FILCH_OK, "a cancel or terminate was refused");
    if (cancel) now.procs[to].cancel = true;
    else now.procs[to].doomed = true;
}

static void inspect_something(void)
{
    filch_pid  pid;
    filch_err  otherwise;
    filch_info info = { .size = sizeof info };
    int        to = choose_pid(&in, &pid, &otherwise);
    filch_err  err = filch_inspect(now.sched, pid, &info);
    if (to == NO_PROC && pid.node != NODE && pid.serial != 0) otherwise = FILCH_EFOREIGN;
    bool alive = to != NO_PROC && now.procs[to].alive;
    MUST(err == (alive ? FILCH_OK : to == NO_PROC ? otherwise : FILCH_EDEAD), "inspect has another result");
    if (alive) model_inspected(to, &info);
}

static void on_exit_of(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    int index = model_find(pid);
    MUST(user == &in && index != NO_PROC, "the end of a process that never was");
    model_exit(&now.procs[index], error, result);
    now.reaping = index;
    if (fuzz_below(&in, 4) == 3) send_something();
    now.reaping = NO_PROC;
}

/* Chooses method and args for a process of `type`; the type `bare` accepts neither. Returns the result that a spawn or
 * upgrade with this method and these args must have. */
static filch_err choose_init(payload *args, const filch_type *type)
{
    uint8_t choice = fuzz_byte(&in);
    next_init.number = 0;
    next_init.unborn = false;
    next_init.args = args;
    next_init.method = choice % 4 == 1 ? "known" : choice % 16 == 2 ? "strange" : NULL;
    next_init.fails = choice / 16 == 1;
    *args = (payload){ .data = filch_none() };
    if (choice / 64 == 1) payload_pack(args, &in, ++seed);
    if (type == bare) {
        if (next_init.method != NULL) return FILCH_EMETHOD;
        return args->says.kind == FILCH_KIND_NONE ? FILCH_OK : FILCH_EINVAL;
    }
    if (next_init.method != NULL && strcmp(next_init.method, "known") != 0) return FILCH_EMETHOD;
    return next_init.fails ? FILCH_EUSER + 7 : FILCH_OK;
}

static void choose_limits(proc *l, filch_spawn_options *opt)
{
    static const uint16_t bytes[] = { 0, 1, 16, 17, 100, 1000 };
    uint8_t               choice = fuzz_byte(&in);
    if (choice % 2 == 0 || now.by_name) return;
    l->overflow = opt->overflow = choice / 2 % 5;
    l->max = opt->mailbox_max = choice / 16 % 4;
    l->bytes = opt->mailbox_bytes = choice / 64 == 3 ? bytes[fuzz_below(&in, 6)] : 0;
}

/* Chooses a name and relations for a spawn. Returns the index of the name, or NO_PROC. */
static int choose_ties(filch_spawn_options *opt)
{
    uint8_t choice = fuzz_byte(&in);
    int     name = choice / 8 % 8;
    if (!relations_have_room()) return NO_PROC;
    opt->relations = choice % 8;
    opt->tag = relations_next_tag();
    if (name >= NAMES) return NO_PROC;
    opt->name = tie_names[name];
    return name;
}

/* Returns true if a spawn may fail with `err`. `wanted`: the error that its method and args require, or FILCH_OK;
 * `name`: the index of its name, or NO_PROC; `full`: the process limit is reached. */
static bool is_reason(filch_err err, filch_err wanted, int name, bool full)
{
    if (err == FILCH_EEXISTS) return name != NO_PROC && ties.owner[name] != NO_PROC;
    if (err == FILCH_ELIMIT) return full;
    return err == wanted && err != FILCH_OK;
}

/* Chooses the messages that the spawn options of a process contain. Returns their number; sets *too_big if one is too
 * big. */
static uint32_t choose_first(payload *messages, filch_data *data, content *says, bool *too_big)
{
    uint32_t count = 1 + fuzz_below(&in, FIRST);
    *too_big = false;
    if (!model_has_messages(FIRST)) return 0;
    for (uint32_t i = 0; i < count; i++) {
        payload_pack(&messages[i], &in, ++seed);
        data[i] = messages[i].data;
        says[i] = messages[i].says;
        *too_big = *too_big || (now.opt.payload_max != 0 && says[i].size > now.opt.payload_max);
    }
    return count;
}

/* Tells the model that a process was spawned at `since_ns` or later. */
static void record_spawn(proc *l, const heritage *inherits, filch_pid pid, uint64_t since_ns)
{
    l->pid = pid;
    l->inherits = *inherits;
    bool late = inherits->due_ns <= since_ns;
    if (late) l->due_reported = true;
    l->cancel = late || model_cancelled(inherits) != FILCH_OK;
    now.spawned++;
    now.procs[now.proc_count++] = *l;
}

static void spawn_something(void)
{
    if (now.proc_count == PROCS) return;
    const filch_type   *type = &types[fuzz_below(&in, 4)];
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    proc                l = { .first = -1,
                              .last = -1,
                              .alive = true,
                              .bare = type == bare,
                              .name = type->name,
                              .notices = -1,
                              .notices_last = -1,
                              .kill_ns = UINT64_MAX };
    payload             args;
    filch_err           wanted = choose_init(&args, type);
    uint8_t             choice = fuzz_byte(&in);
    choose_limits(&l, &opt);
    l.has_on_exit = l.bare || choice % 2 == 0;
    if (l.has_on_exit) {
        opt.on_exit = on_exit_of;
        opt.on_exit_user = &in;
    }
    heritage inherited = { .due_ns = FILCH_FOREVER };
    if (now.current != NO_PROC) inherited = now.procs[now.current].inherits;
    if (choice / 2 % 4 < CHAINS && chains[choice / 2 % 4].values != NULL) {
        opt.values = chains[choice / 2 % 4].values;
        inherited = chains[choice / 2 % 4].gives;
    }
    opt.method = next_init.method;
    opt.args = args.data;
    int        name = choice / 8 % 4 == 3 ? choose_ties(&opt) : NO_PROC;
    payload    messages[FIRST];
    filch_data first[FIRST];
    content    first_says[FIRST];
    bool       too_big = false;
    if (choice / 32 == 7) opt.message_count = choose_first(messages, first, first_says, &too_big);
    opt.messages = first;

    uint64_t  refused = now.alloc.refused, alive = now.spawned - now.ended, since_ns = still_clock_ns;
    filch_pid pid = { 1, 1 };
    next_init.spawns = true;
    next_init.refused = too_big;
    /* filch_spawn_on() with the number of the scheduler's own host must have the same result as filch_spawn(). */
    filch_err err =
        seed % 4 == 3 ? filch_spawn_on(now.sched, NODE, type, &opt, &pid) : filch_spawn(now.sched, type, &opt, &pid);
    next_init.spawns = false;
    payload_sent(&args, false); /* args are only lent to the spawn: moved bytes still belong to the caller */
    /* messages in the spawn options are only lent, too */
    for (size_t i = 0; i < opt.message_count; i++) payload_sent(&messages[i], false);
    if ((opt.relations & (FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK)) != 0 &&
        (now.current == NO_PROC || now.dispatching)) {
        MUST(err == FILCH_ESTATE, "a spawn outside of a step made relations");
        return;
    }
    /* while the scheduler closes, a step may spawn until the stop kills the remaining processes */
    if (now.closing && (now.current == NO_PROC || err == FILCH_ECLOSED)) {
        MUST(err == FILCH_ECLOSED, "a spawn from outside succeeded while closing");
        return;
    }
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return;
    bool full = now.opt.max_processes != 0 && alive >= now.opt.max_processes;
    if (err == FILCH_ETOOBIG && too_big) return;
    if (err != FILCH_OK) {
        MUST(is_reason(err, wanted, name, full), "a spawn with another result");
        MUST(pid.node == 1 && pid.serial == 1, "a failed spawn gave a pid");
        return;
    }
    MUST(wanted == FILCH_OK && !full && !is_reason(FILCH_EEXISTS, wanted, name, full), "a spawn that cannot be");
    MUST(!too_big, "a first message beyond payload_max");
    MUST(pid.node == NODE && model_find(pid) == NO_PROC, "a pid was used again");
    if (!l.bare) {
        MUST(next_init.number != 0 && next_init.pid.serial == pid.serial && next_init.value == inherited.value,
             "init did not run, or ran with another pid or value");
        l.instance = next_init.number;
    }
    record_spawn(&l, &inherited, pid, since_ns);
    relations_spawned(now.current, now.proc_count - 1, opt.relations, opt.tag, name);
    for (size_t i = 0; i < opt.message_count; i++) model_first_message(now.proc_count - 1, now.current, &first_says[i]);
}

/* Yields a spawn; the runtime spawns the process after the step. Does nothing while allocations fail. */
static void yield_spawn(filch_out *out)
{
    const filch_type   *type = &types[fuzz_below(&in, 3)];
    uint8_t             choice = fuzz_byte(&in);
    bool                exec = choice % 2 == 1, too_big = false;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    spawn_order        *o = &spawn_orders[spawn_order_count % SPAWN_ORDERS];
    int                 waiting = now.yield_rec_count - now.yield_rec_fresh;
    if (now.proc_count + waiting + 1 >= PROCS || waiting >= SPAWN_ORDERS || now.alloc.fail_at != 0 || !model_has_room())
        return;
    *o = (spawn_order){ .number = (int64_t)++seed, .yield_rec = NO_PROC };
    o->as = (proc){ .first = -1,
                    .last = -1,
                    .alive = true,
                    .name = type->name,
                    .notices = -1,
                    .notices_last = -1,
                    .kill_ns = UINT64_MAX,
                    .has_on_exit = true };
    o->method = choice / 2 % 8 == 1 ? "known" : choice / 2 % 8 == 2 ? "strange" : NULL;
    choose_limits(&o->as, &opt);
    opt.args = filch_int(o->number);
    opt.method = o->method;
    opt.on_exit = on_exit_of;
    opt.on_exit_user = &in;
    int        name = choice / 16 % 4 == 3 ? choose_ties(&opt) : NO_PROC;
    payload    messages[FIRST];
    filch_data first[FIRST];
    if (choice / 64 == 3) opt.message_count = o->first_count = choose_first(messages, first, o->first, &too_big);
    opt.messages = first;
    uint64_t  tag = model_next_tag(YIELD_SPAWN);
    filch_err err = exec ? filch_yield_exec(out, tag, type, &opt) : filch_yield_spawn(out, tag, type, &opt);
    for (uint32_t i = 0; i < o->first_count; i++) payload_sent(&messages[i], false);
    if (too_big) {
        MUST(err == FILCH_ETOOBIG, "a first message beyond payload_max");
        return;
    }
    MUST(err == FILCH_OK, "a spawn could not be yielded");
    yield_rec *q = model_yielded(YIELD_SPAWN, tag);
    o->yield_rec = (int)(q - now.yield_recs);
    spawn_order_count++;
    q->tie = exec ? FILCH_CMD_EXEC : FILCH_CMD_SPAWN;
    q->name = name;
    q->how = opt.relations;
    q->how_tag = opt.tag;
    q->reason = o->method != NULL && strcmp(o->method, "known") != 0 ? FILCH_EMETHOD : FILCH_OK;
}

/* Completes a yield that its handler has not completed. Sometimes completes a yield a second time, or with a wrong
 * tag. */
static void complete_something(void)
{
    if (now.yield_rec_count == 0) return;
    yield_rec *q = &now.yield_recs[fuzz_byte(&in) % now.yield_rec_count];
    if (q->what != YIELD_OWN || !q->dispatched) return;
    payload   p;
    uint8_t   choice = fuzz_byte(&in);
    filch_err error = choice % 4 == 1 ? FILCH_EUSER + 1 : FILCH_OK;
    choose_payload(&p);
    if (choice / 4 % 8 == 1) {
        MUST(filch_complete(q->receiver, q->tag + 1, p.data, error) == FILCH_EINVAL, "a completion with a wrong tag");
        payload_sent(&p, false);
        return;
    }
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_complete(q->receiver, q->tag, p.data, error);
    model_completed(q, &p.says, error, err, refused);
    payload_sent(&p, err == FILCH_OK);
}

/* Replaces a kept payload: by the payload of the message that the step has read last, or by a new payload. */
static void keep_something(void)
{
    uint32_t   slot = fuzz_below(&in, KEPT);
    filch_data fresh;
    content    fresh_says;
    if (now.last_read != NULL) {
        fresh_says = now.last_read_says;
        MUST(filch_keep(&now.last_read->data, &fresh) == FILCH_OK, "a payload could not be kept");
    } else if (fuzz_below(&in, 2) == 0) {
        fresh_says = (content){ .kind = FILCH_KIND_BYTES, .size = fuzz_byte(&in), .seed = ++seed };
        MUST(payload_share(fresh_says, &fresh), "a payload could not be shared");
    } else {
        payload p;
        payload_pack(&p, &in, ++seed);
        MUST(filch_keep(&p.data, &fresh) == FILCH_OK, "a payload could not be kept");
        payload_sent(&p, true);
        fresh_says = p.says;
    }
    filch_drop(&kept[slot].data);
    kept[slot].data = fresh;
    kept[slot].says = fresh_says;
    MUST(payload_is(&fresh_says, &kept[slot].data), "what was kept is another");
}

/* Adds a value, a scope or a deadline at the front of a chain of context values. */
static void link_something(void)
{
    uint32_t      slot = fuzz_below(&in, CHAINS), parent = fuzz_below(&in, CHAINS + 1), what = fuzz_below(&in, 8);
    filch_values *before = parent < CHAINS ? chains[parent].values : NULL, *longer = NULL;
    heritage      gives = { .due_ns = FILCH_FOREVER };
    int64_t       value = (int64_t)++seed;
    if (before != NULL) gives = chains[parent].gives;
    if (what == 7 && now.scope_count < SCOPES && gives.depth < DEPTH) {
        filch_values **scope = &scopes[now.scope_count];
        MUST(filch_values_scope(before, scope) == FILCH_OK, "no scope");
        MUST(filch_values_create(*scope, "w", filch_int(value), &longer) == FILCH_OK, "no values");
        memmove(&gives.scopes[1], gives.scopes, gives.depth++);
        gives.scopes[0] = (uint8_t)now.scope_count;
        now.reasons[now.scope_count++] = FILCH_OK;
    } else if (what == 5) {
        uint64_t span_ns = choose_span(&in), at_ns = still_clock_ns + span_ns;
        if (span_ns > FILCH_FOREVER / 2) at_ns = FILCH_FOREVER;
        MUST(filch_values_deadline(before, at_ns, &longer) == FILCH_OK, "no deadline");
        if (at_ns < gives.due_ns) gives.due_ns = at_ns;
    } else {
        MUST(filch_values_create(before, what % 2 == 0 ? "v" : "w", filch_int(value), &longer) == FILCH_OK,
             "no values");
        if (what % 2 == 0) gives.value = value;
    }
    filch_values_drop(chains[slot].values);
    chains[slot].values = longer;
    chains[slot].gives = gives;
}

static void cancel_scope(void)
{
    uint32_t  choice = fuzz_byte(&in);
    filch_err reason = FILCH_EUSER + 30 + (filch_err)(choice / 64);
    MUST(filch_values_cancel(NULL, reason) == FILCH_EINVAL, "a cancel of a NULL scope was accepted");
    if (now.scope_count == 0) return;
    int scope = (int)(choice % (uint32_t)now.scope_count);
    MUST(filch_values_cancel(scopes[scope], FILCH_OK) == FILCH_EINVAL, "cancelled for no reason");
    MUST(filch_values_cancel(scopes[scope], reason) == FILCH_OK, "a scope could not be cancelled");
    model_cancel_scope(scope, reason);
}

/* ---- handlers ---- */

static filch_err complete_now(yield_rec *q)
{
    payload   p;
    filch_err error = fuzz_below(&in, 4) == 0 ? FILCH_EUSER + 4 : FILCH_OK;
    choose_payload(&p);
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_complete(q->receiver, q->tag, p.data, error);
    model_completed(q, &p.says, error, err, refused);
    payload_sent(&p, err == FILCH_OK);
    return err;
}

/* Called by handlers to return `error`. The runtime then completes the yield with `error`, unless the handler has
 * completed the yield before. */
static filch_err fail_with(yield_rec *q, filch_err error)
{
    content nothing = { .kind = FILCH_KIND_NONE };
    model_completed(q, &nothing, error, q->stage == STAGE_OPEN ? FILCH_OK : FILCH_ESTALE, now.alloc.refused);
    return error;
}

static filch_err on_own(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    yield_rec *q = &now.yield_recs[tag];
    MUST(user == &in && tag < (uint64_t)now.yield_rec_count && q->what == YIELD_OWN,
         "a handler was called for a command that was not yielded");
    MUST(!q->dispatched && q->stage == STAGE_OPEN && receiver.tag == tag, "a command was given twice");
    MUST(command->id == OWN && payload_is(&q->says, &command->data), "another command");
    MUST(model_find(command->from) == q->proc, "a command of another process");
    MUST(filch_yield(stale, OWN, 1, filch_none()) == FILCH_ESTATE, "a yield outside of a step");
    model_relations_done((int)tag);
    q->dispatched = true;
    q->receiver = receiver;
    filch_err err = FILCH_OK;
    now.dispatching = true;
    switch (fuzz_below(&in, 8)) {
    case 1: (void)complete_now(q); break;
    case 2:
        (void)complete_now(q);
        err = fail_with(q, FILCH_EUSER + 2);
        break;
    case 3: err = fail_with(q, FILCH_EUSER + 3); break;
    case 4: send_something(); break;
    case 5:
        (void)complete_now(q);
        (void)complete_now(q);
        break;
    case 6: complete_something(); break;
    case 7: relate(NULL); break;
    default: break;
    }
    now.dispatching = false;
    return err;
}

/* ---- steps ---- */

/* Records a yield in the model if the yield was accepted. */
static yield_rec *record_yield(yield_kind what, uint64_t tag, filch_err err, uint64_t refused)
{
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return NULL;
    MUST(err == FILCH_OK, "a yield was refused");
    return model_yielded(what, tag);
}

static void yield_payload(filch_out *out, yield_kind what)
{
    payload   p;
    filch_pid pid = { 0, 0 };
    filch_err otherwise = FILCH_OK, err;
    int       to = what == YIELD_SEND ? choose_pid(&in, &pid, &otherwise) : NO_PROC;
    /* The message is sent after the step. By then a process with a guessed pid may have been spawned, so a guessed pid
     * gets a serial number that is never used. */
    if (to == NO_PROC && pid.node == NODE) pid.serial = UINT64_MAX;
    uint64_t tag = model_next_tag(what), refused = now.alloc.refused;
    /* A message that is sent by a yield needs unique content, by which the model recognises it on arrival. */
    if (what == YIELD_SEND) payload_pack(&p, &in, ++seed);
    else choose_payload(&p);
    if (what == YIELD_SEND && !payload_is_unique(&p)) {
        payload_sent(&p, false);
        p.says = (content){ .kind = FILCH_KIND_INT, .seed = seed };
        p.data = filch_int((int64_t)seed);
    }
    if (what == YIELD_SEND) err = filch_yield_send(out, tag, pid, p.data);
    else err = filch_yield(out, what == YIELD_OWN ? OWN : OWN + 1u + fuzz_byte(&in), tag, p.data);
    payload_sent(&p, err == FILCH_OK);
    if (now.opt.payload_max != 0 && p.says.size > now.opt.payload_max) {
        MUST(err == FILCH_ETOOBIG || (err == FILCH_ENOMEM && model_lacked_memory(refused)),
             "a command beyond payload_max");
        return;
    }
    yield_rec *q = record_yield(what, tag, err, refused);
    if (q == NULL) return;
    q->says = p.says;
    if (what == YIELD_SEND) model_yielded_send(q, to, otherwise, &p.says);
}

static void yield_clock(filch_out *out, yield_kind what)
{
    uint64_t  tag = model_next_tag(what), refused = now.alloc.refused, span_ns = choose_span(&in);
    filch_err err;
    if (what == YIELD_SLEEP) err = filch_yield_sleep(out, tag, span_ns);
    else if (what == YIELD_TIMER) err = filch_yield_timer(out, tag, span_ns);
    else err = filch_yield_ticker(out, tag, span_ns);
    if (what == YIELD_TICKER && span_ns == 0) {
        MUST(err == FILCH_EINVAL, "a ticker without a period");
        return;
    }
    yield_rec *q = record_yield(what, tag, err, refused);
    if (q != NULL) q->span_ns = span_ns;
}

static void yield_timer_cancel(filch_out *out)
{
    int64_t  id = 0;
    uint8_t  choice = fuzz_byte(&in);
    uint64_t tag = model_next_tag(YIELD_CANCEL), refused = now.alloc.refused;
    if (choice % 8 == 7) id = (int64_t)fuzz_u64(&in);
    /* Chooses the id of one of the last four timers and tickers that have a known id. */
    for (int i = now.yield_rec_count - 1, skip = choice % 8 % 4; choice % 8 != 7 && i >= 0; i--) {
        const yield_rec *q = &now.yield_recs[i];
        if ((q->what != YIELD_TIMER && q->what != YIELD_TICKER) || q->id == 0 || skip-- > 0) continue;
        id = q->id;
        break;
    }
    yield_rec *q = record_yield(YIELD_CANCEL, tag, filch_yield_timer_cancel(out, tag, id), refused);
    if (q != NULL) q->id = id;
}

/* Calls filch_upgrade() with another type and checks the result. */
static bool upgrade(proc *l, filch_out *out)
{
    const filch_type *type = &types[fuzz_below(&in, l->has_on_exit ? 4 : 3)];
    payload           args;
    filch_err         wanted = choose_init(&args, type);
    uint64_t          refused = now.alloc.refused;
    filch_err         err = filch_upgrade(out, type, next_init.method, args.data);
    payload_sent(&args, false);
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return false;
    MUST(err == wanted, "an upgrade with another result");
    if (err != FILCH_OK) return false;
    MUST(type == bare || next_init.pid.serial == l->pid.serial, "an upgrade changed the pid");
    l->next_instance = next_init.number;
    l->next_bare = type == bare;
    l->next_name = type->name;
    return true;
}

static void misuse_inside(filch_out *out)
{
    filch_report report = FILCH_REPORT_INIT;
    uint64_t     refused = now.alloc.refused;
    MUST(filch_tick(now.sched, 1, NULL) == FILCH_ESTATE, "a tick inside a step");
    MUST(filch_sched_stop(now.sched, 0, &report) == FILCH_ESTATE, "a stop inside a step");
    MUST(filch_sched_close(now.sched, 0, NULL) == FILCH_ESTATE, "a close inside a step");
    MUST(filch_upgrade(out, NULL, NULL, filch_none()) == FILCH_EINVAL, "an upgrade to nothing");
    filch_err err = filch_yield(out, OWN, 1, filch_bytes(NULL, 5));
    MUST(err == FILCH_EINVAL || (err == FILCH_ENOMEM && model_lacked_memory(refused)), "a payload of nothing");
    MUST(filch_yield(NULL, OWN, 1, filch_none()) == FILCH_EINVAL, "a yield with a NULL out was accepted");
}

static void act(filch_out *out)
{
    bool    room = model_has_room();
    uint8_t choice = fuzz_byte(&in);
    if (choice >= 192) {
        if (choice < 200) yield_spawn(out);
        else if (choice < 203) cancel_scope();
        else relate(out);
        return;
    }
    switch (choice % 16) {
    case 0:
    case 1: send_something(); break;
    case 2: spawn_something(); break;
    case 3: cancel_or_kill(true); break;
    case 4: cancel_or_kill(false); break;
    case 5:
        if (room) yield_payload(out, YIELD_OWN);
        break;
    case 6:
        if (room) yield_payload(out, YIELD_SEND);
        break;
    case 7:
        if (room) yield_payload(out, YIELD_UNKNOWN);
        break;
    case 8:
        if (room) yield_clock(out, YIELD_SLEEP);
        break;
    case 9:
        if (room) yield_clock(out, YIELD_TIMER);
        break;
    case 10:
        if (room) yield_clock(out, YIELD_TICKER);
        break;
    case 11:
        if (room) yield_timer_cancel(out);
        break;
    case 12: complete_something(); break;
    case 13: inspect_something(); break;
    case 14:
        if (now.last_read != NULL) keep_something();
        else misuse_inside(out);
        break;
    default: deliver_something(); break;
    }
}

/* Checks the result `err` of a call that sets the status of the step to `wanted`. If the step has already called
 * filch_upgrade() successfully (`before`), the call must be refused, and the status stays STATUS_UPGRADE. Returns the
 * status of the step after the call. */
static last_status check_status(filch_err err, last_status before, last_status wanted)
{
    MUST(err == (before == STATUS_UPGRADE ? FILCH_ESTATE : FILCH_OK), "a status with another result");
    return before == STATUS_UPGRADE ? before : wanted;
}

static last_status choose_done(proc *l, filch_out *out, last_status status)
{
    payload p;
    choose_payload(&p);
    uint64_t  refused = now.alloc.refused;
    filch_err err = filch_done(out, p.data);
    payload_sent(&p, err == FILCH_OK);
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return status;
    if (now.opt.payload_max != 0 && p.says.size > now.opt.payload_max) {
        MUST(err == FILCH_ETOOBIG, "a result beyond payload_max");
        return status;
    }
    MUST(err == FILCH_OK, "done was refused");
    l->end_result = p.says;
    return STATUS_DONE;
}

/* Chooses a status for the step. A step calls this function once or twice; the last choice counts. */
static last_status choose_status(proc *l, filch_out *out, bool cancelled, last_status before)
{
    uint8_t choice = fuzz_byte(&in);
    /* A process that is cancelled usually ends. */
    if (cancelled && choice < 192) return choose_done(l, out, before);
    switch (choice % 8) {
    case 1: return check_status(filch_wait(out), before, STATUS_WAIT);
    case 2:
        if (in.left > 0) return check_status(filch_continue(out), before, STATUS_CONTINUE);
        /* the input is used up: the process idles, because the run would never end if a process always continued */
        return check_status(filch_idle(out), before, STATUS_IDLE);
    case 3: return choose_done(l, out, before);
    case 4: return upgrade(l, out) ? STATUS_UPGRADE : before;
    default: return check_status(filch_idle(out), before, STATUS_IDLE);
    }
}

static filch_err step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    int              index = model_find(filch_ctx_self(ctx));
    MUST(index != NO_PROC, "a step of an unknown process");
    proc *l = &now.procs[index];
    (void)self;
    MUST(filch_ctx_sched(ctx) == now.sched, "another scheduler");
    MUST(filch_as_int(filch_ctx_value(ctx, "v")) == l->inherits.value, "another inherited value");
    MUST(filch_ctx_deadline(ctx) == l->inherits.due_ns, "another deadline");
    MUST(filch_ctx_cancelled(ctx) == model_cancelled(&l->inherits), "cancelled, or not");
    stale = out;
    bool cancelled = count > 0 && events[0].type == FILCH_EVENT_CANCEL;
    model_step_begin(l, events, count);
    for (uint32_t i = fuzz_below(&in, ACTIONS_MAX); i > 0; i--) act(out);
    last_status status = choose_status(l, out, cancelled, STATUS_NONE);
    uint8_t     choice = fuzz_byte(&in);
    if (choice % 8 == 1) status = choose_status(l, out, cancelled, status);
    filch_err err = choice / 8 == 1 ? FILCH_EUSER + 9 : FILCH_OK;
    model_step_end(l, err, status);
    return err;
}

/* ---- the host ---- */

static void tick(uint32_t steps, uint32_t *ran)
{
    filch_err err = filch_tick(now.sched, steps, ran);
    MUST(err == (now.closed ? FILCH_ECLOSED : FILCH_OK), "a tick with another result");
    MUST(now.closed || steps == 0 || *ran <= steps, "more steps than requested");
}

/* Runs the scheduler until no process is ready. Then the model checks that everything that was due has happened. A
 * ticker that fires faster than its process reads would keep the process ready for ever, so the number of rounds is
 * bounded. */
static void settle(void)
{
    uint64_t since_ns = 0;
    for (uint32_t i = 0, ran = 1; ran > 0; i++) {
        if (i == 4) return;
        since_ns = still_clock_ns;
        tick(256, &ran);
    }
    model_check_quiet(since_ns);
}

static void look_around(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    uint8_t     choice = fuzz_byte(&in);
    stats.size = choice < 64 ? choice : sizeof stats;
    MUST(filch_sched_stats(now.sched, &stats) == (stats.size < 8 ? FILCH_EINVAL : FILCH_OK), "stats of an odd size");
    MUST(filch_wake_fd(now.sched) >= 0, "no descriptor");
    (void)filch_next_timeout(now.sched);
    MUST(filch_sched_stats(NULL, &stats) == FILCH_EINVAL && filch_tick(NULL, 1, NULL) == FILCH_EINVAL,
         "a NULL scheduler was accepted");
    MUST(filch_send(NULL, (filch_pid){ NODE, 1 }, filch_none()) == FILCH_EINVAL,
         "a send with a NULL scheduler was accepted");
    MUST(filch_spawn_on(now.sched, NODE + 1, bare, NULL, NULL) == now.foreign,
         "a spawn on the other host has another result");
    MUST(filch_spawn_on(now.sched, NODE + 2, bare, NULL, NULL) == FILCH_EFOREIGN,
         "a spawn on an unknown host was accepted");
}

/* Makes one later allocation fail, or that allocation and all after it, or lets all allocations succeed again. */
static void starve(void)
{
    uint8_t choice = fuzz_byte(&in);
    test_alloc_fail(&now.alloc, choice % 4 == 0 ? 0 : 1u + choice / 8, choice % 4 == 3);
}

static void close_all(void)
{
    filch_report report = FILCH_REPORT_INIT;
    uint64_t     ended = now.ended, deadline_ns = fuzz_below(&in, 2) == 0 ? FILCH_MILLISECONDS(1) : 0;
    now.closing = true;
    filch_err err = filch_sched_close(now.sched, deadline_ns, &report);
    now.closed = true;
    MUST(err == (report.forced > 0 ? FILCH_EDEADLINE : FILCH_OK), "a close with another result");
    MUST(report.ended + report.forced == now.spawned - ended && report.stuck == 0, "the report is miscounted");
    MUST(report.forced >= now.forced && report.forced <= now.forced_most, "force is miscounted");
    /* `omitted` counts the processes that could not be listed because there was no memory. */
    MUST(report.count <= report.forced && report.count + report.omitted >= report.forced, "stragglers are missing");
    for (size_t i = 0; i < report.count; i++) {
        int index = model_find(report.stragglers[i].pid);
        MUST(index != NO_PROC && !now.procs[index].ends, "a straggler that is none");
        MUST(report.stragglers[i].waiting == now.procs[index].outstanding, "a straggler's yields are miscounted");
        MUST(strcmp(report.stragglers[i].name, now.procs[index].name) == 0, "another straggler's name");
    }
    filch_report_free(&report);
    model_over();
}

static void operate(void)
{
    model_relations_done(now.yield_rec_count);
    uint32_t ran = 0;
    uint8_t  choice = fuzz_byte(&in);
    if (choice >= 200) {
        if (choice < 206) cancel_scope();
        else relate(NULL);
        return;
    }
    switch (choice % 20) {
    case 0:
    case 1: spawn_something(); break;
    case 2:
    case 3: send_something(); break;
    case 4:
    case 5: tick(1 + fuzz_below(&in, 8), &ran); break;
    case 6:
    case 7:
        if (!now.closed) settle();
        break;
    case 8: cancel_or_kill(true); break;
    case 9: cancel_or_kill(false); break;
    case 10:
    case 11: complete_something(); break;
    case 12: still_clock_ns += fuzz_below(&in, 4) == 0 ? FILCH_MILLISECONDS(10) : 30000; break;
    case 13: inspect_something(); break;
    case 14: look_around(); break;
    case 15: starve(); break;
    case 16: keep_something(); break;
    case 17: link_something(); break;
    case 18: deliver_something(); break;
    default:
        if (!now.closed && fuzz_below(&in, 8) == 7) close_all();
    }
}

static void on_long_step(void *user, filch_pid pid, const char *name, uint64_t took_ns, int finished)
{
    /* true: a process that the runtime itself has spawned (sched/refuser.c) */
    bool internal = strcmp(name, "filch.refuse") == 0;
    MUST(user == &in && (internal || model_find(pid) != NO_PROC), "a long step of an unknown process");
    MUST(took_ns > 0 && finished == 1, "a long step with invalid arguments");
    if (!internal) long_steps++;
}

static void choose_options(filch_registry *registry)
{
    static const uint16_t batches[] = { 0, 1, 2, 3, 8, 64 }, payloads[] = { 0, 0, 16, 64, 200, 1024 };
    uint8_t               choice = fuzz_byte(&in);
    now.opt = (filch_options)FILCH_OPTIONS_INIT;
    now.opt.workers = FILCH_NO_WORKERS;
    now.opt.alloc = test_alloc_fn;
    now.opt.alloc_user = &now.alloc;
    now.opt.registry = registry;
    now.opt.node = NODE;
    now.opt.seed = 1;
    now.opt.batch_max = batches[choice % 6];
    now.opt.payload_max = payloads[choice / 6 % 6];
    now.opt.max_processes = choice % 16 == 1 ? 3 : 0;
    choice = fuzz_byte(&in);
    now.opt.fair_every = choice % 4;
    now.opt.global_batch = choice / 4 % 4;
    now.opt.send_budget = choice / 16 % 4;
    if (choice / 64 == 1) {
        now.opt.long_step_ns = 1;
        now.opt.on_long_step = on_long_step;
        now.opt.on_long_step_user = &in;
    }
    if (choice / 64 == 2) starve();
}

/* Creates a scheduler alone, or as a host of a node with a second host that has no processes. Without a policy the node
 * allows no traffic between its hosts. */
static filch_err create(void)
{
    filch_node_options how = FILCH_NODE_OPTIONS_INIT;
    filch_options      other = now.opt;
    node = NULL;
    neighbour = NULL;
    if (fuzz_below(&in, 4) != 3) return filch_sched_create(&now.sched, &now.opt);
    how.alloc = test_alloc_fn;
    how.alloc_user = &now.alloc;
    filch_err err = filch_node_create(&node, &how);
    if (err != FILCH_OK) return err;
    err = filch_node_add(node, &now.opt, &now.sched);
    if (err != FILCH_OK) return err;
    MUST(filch_node_add(node, &now.opt, &neighbour) != FILCH_OK, "two hosts with one number");
    other.node = NODE + 1;
    other.on_long_step = NULL;
    other.long_step_ns = 0;
    if (filch_node_add(node, &other, &neighbour) != FILCH_OK) neighbour = NULL;
    else now.foreign = FILCH_EDENIED;
    return FILCH_OK;
}

static void clean_up(void)
{
    for (int i = 0; i < KEPT; i++) filch_drop(&kept[i].data);
    for (int i = 0; i < CHAINS; i++) {
        filch_values_drop(chains[i].values);
        chains[i].values = NULL;
    }
    for (int i = 0; i < now.scope_count; i++) filch_values_drop(scopes[i]);
    MUST(now.opened == now.shut, "an instance was not closed exactly once");
    MUST(payload_counts.moved == payload_counts.freed && payload_counts.shared == payload_counts.unshared,
         "a payload was not freed exactly once");
    MUST(now.alloc.bytes == 0 && now.alloc.blocks == 0 && now.alloc.wrong == 0, "memory was left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    filch_registry *registry;
    in = (fuzz_bytes){ at, size < 4096 ? size : 4096 };
    seed = long_steps = 0;
    spawn_order_count = 0;
    for (int i = 0; i < SPAWN_ORDERS; i++) spawn_orders[i].yield_rec = NO_PROC;
    model_begin();
    MUST(filch_registry_create(&registry) == FILCH_OK, "no registry");
    MUST(filch_registry_add(registry, OWN, on_own, &in) == FILCH_OK, "no command");
    choose_options(registry);
    filch_err err = create();
    MUST(err == FILCH_OK || (err == FILCH_ENOMEM && now.alloc.refused > 0), "create has another result");
    if (err == FILCH_OK) {
        while (in.left > 0) operate();
        if (!now.closed) settle();
        if (!now.closed) close_all();
        send_something();
        spawn_something();
        complete_something();
        MUST(filch_next_timeout(now.sched) == FILCH_FOREVER, "a timeout after closing");
        MUST(long_steps == 0 || long_steps == now.steps, "long steps are miscounted");
        MUST(filch_sched_stop(now.sched, 0, NULL) == FILCH_OK, "stop after close");
    }
    if (neighbour != NULL) MUST(filch_sched_stop(neighbour, 0, NULL) == FILCH_OK, "the neighbour did not stop");
    filch_node_destroy(node);
    filch_registry_destroy(registry);
    clean_up();
    return 0;
}
