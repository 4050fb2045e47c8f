/* fuzz_blackbox.c - recordings of any origin, and recordings of real processes.
 *
 * The first byte says what the others are:
 *   a recording, unchanged
 *   the inside of a recording: size and checksum around it are corrected, so that the reader accepts it
 *   the life of a process. When it fails its recording must replay without a difference; changed in one byte or cut
 *   short it must be refused; changed and corrected again it may give any result, but must not crash.
 *
 * A process is a clerk: it obeys its messages, adds every result it gets to a sum, and sends the sum, so that an error
 * shows later. It uses nothing but its state, its events and its context.
 */
#include <filch.h>

#include "fuzz/bytes.h"
#include "fuzz/still_clock.h"
#include "support/alloc.h"

enum { OWN = FILCH_CMD_USER, BOX_MAX = 2 << 20, ACTS_MAX = 16, MESSAGE_MAX = 32, MESSAGES_MAX = 40, STEPS = 64 };

#define BROKEN (FILCH_EUSER + 7)

static test_alloc alloc;
/* moved: number of blocks passed by filch_move; freed: number of these blocks that were freed */
static uint64_t moved, freed;

/* The recording that was made last. */
static struct {
    uint8_t   bytes[BOX_MAX];
    size_t    size;
    uint32_t  count;
    bool      none; /* true: there was no memory for the recording */
    filch_pid pid;
    filch_err error;
} box;

static void on_blackbox(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    MUST(user == &box, "another user");
    box.count++;
    box.pid = pid;
    box.error = error;
    box.none = bytes == NULL;
    box.size = size;
    MUST(size <= BOX_MAX && (size > 0) == (bytes != NULL), "a recording without end, or without bytes");
    if (size > 0) memcpy(box.bytes, bytes, size);
}

/* ---- the clerk ---- */

typedef struct clerk {
    uint64_t sum;
    filch_pid friend, child;
    uint8_t kind; /* identifies the process type of this clerk; there are two types of clerks */
} clerk;

typedef struct old_clerk {
    clerk    as_before;
    uint64_t years[4];
} old_clerk;

static void on_free(void *user, void *bytes, size_t size)
{
    MUST(user == NULL, "another user");
    (void)size;
    freed++;
    free(bytes);
}

static void mix(clerk *me, uint64_t value)
{
    me->sum = (me->sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    me->sum ^= me->sum >> 29;
}

static filch_err clerk_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    clerk *me = self;
    me->friend = filch_as_pid(args);
    mix(me, (uint64_t)filch_as_int(filch_ctx_value(ctx, "speed")) + (method != NULL ? strlen(method) : 0));
    return FILCH_OK;
}

static filch_err old_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    filch_err err = clerk_init(self, ctx, method, args);
    ((clerk *)self)->kind = 1;
    return err;
}

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static filch_err clerk_step(void *self, const filch_event *events, size_t count, filch_out *out);

static const filch_type child_type = { .name = "child", .step = child_step };
static const filch_type clerk_types[] = {
    { .name = "clerk", .size = sizeof(clerk), .init = clerk_init, .step = clerk_step },
    { .name = "old clerk", .size = sizeof(old_clerk), .init = old_init, .step = clerk_step },
};

static filch_err send_moved(filch_sched *sched, filch_pid to, size_t size)
{
    void *block = calloc(1, size + 1);
    if (block == NULL) abort();
    filch_err err = filch_send(sched, to, filch_move(block, size, on_free));
    if (err == FILCH_OK) moved++;
    else free(block);
    return err;
}

static filch_err deliver(filch_sched *sched, const clerk *me)
{
    filch_package package = { .to = me->friend, .from = me->child, .data = filch_num((double)me->sum) };
    return filch_deliver(sched, &package);
}

static filch_err spawn(filch_sched *sched, clerk *me, uint8_t how)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.blackbox = FILCH_BLACKBOX_OFF;
    options.args = filch_int((int64_t)me->sum);
    if (how % 2 == 0) return filch_spawn(sched, &child_type, NULL, &me->child);
    return filch_spawn(sched, &clerk_types[how / 2 % 2], &options, how % 8 == 7 ? NULL : &me->child);
}

/* Does one action. Returns true if the action ends the step; then the step returns `err`. */
static bool act(clerk *me, fuzz_bytes *todo, filch_out *out, filch_err *err)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    uint8_t          what = fuzz_byte(todo), how = what / 16;
    filch_err        said = FILCH_OK;
    switch (what % 16) {
    case 0: said = filch_send(sched, how % 2 == 0 ? me->friend : me->child, filch_int((int64_t)me->sum)); break;
    case 1: said = filch_send(sched, filch_ctx_self(ctx), filch_bytes(todo->at, todo->left)); break;
    case 2: said = send_moved(sched, me->friend, how * 7u); break;
    case 3: said = spawn(sched, me, how); break;
    case 4: said = filch_cancel(sched, me->child); break;
    case 5: said = filch_terminate(sched, me->child); break;
    case 6: said = deliver(sched, me); break;
    case 7: said = filch_yield_sleep(out, me->sum, how * 1000u); break;
    case 8: said = filch_yield(out, OWN + how % 2u, me->sum, filch_bytes(me, how)); break;
    case 9: said = filch_yield_send(out, me->sum, me->friend, filch_of_pid(me->child)); break;
    case 10: said = filch_yield_timer(out, me->sum, how * 1000u); break;
    case 11:
        *err = filch_upgrade(out, &clerk_types[how % 2], how % 4 == 3 ? "late" : NULL, filch_of_pid(me->friend));
        return true;
    case 12: *err = filch_done(out, filch_bytes(&me->sum, sizeof me->sum)); return true;
    case 13: *err = BROKEN + how % 2; return true;
    case 14: *err = how % 4 == 0 ? FILCH_OK : how % 4 == 1 ? filch_wait(out) : filch_continue(out); return true;
    default: mix(me, (uint64_t)filch_should_yield(out)); break;
    }
    mix(me, (uint64_t)said + what);
    return false;
}

static filch_err clerk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    clerk    *me = self;
    filch_err err;
    for (size_t i = 0; i < count; i++) {
        const filch_data *data = &events[i].data;
        fuzz_bytes        todo = { filch_raw(data), filch_size(data) };
        filch_kind        kind = filch_kind_of(data);
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int((int64_t)me->sum));
        mix(me, events[i].tag + (uint64_t)events[i].error + (uint64_t)events[i].type + events[i].from.serial);
        mix(me, (uint64_t)filch_as_int(data) + filch_as_pid(data).serial + (uint64_t)kind);
        if (events[i].type != FILCH_EVENT_MESSAGE) {
            for (size_t b = 0; b < todo.left; b++) mix(me, todo.at[b]);
            continue;
        }
        for (int acts = 0; todo.left > 0 && acts < ACTS_MAX; acts++) {
            if (act(me, &todo, out, &err)) return err;
        }
    }
    return filch_idle(out);
}

static filch_err on_own(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    if (filch_size(&command->data) % 3 == 1) return BROKEN;
    return filch_complete(receiver, tag, filch_str("yes, of course"), FILCH_OK);
}

/* ---- recordings ---- */

/* Corrects the size and the checksum of a changed recording. This code follows the description of the format, and
 * shares no code with the library. */
static void seal(uint8_t *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    memcpy(bytes, "FILCHBOX\1\0\0\0", 12);
    for (size_t i = 0; i < 8; i++) bytes[16 + i] = (uint8_t)((uint64_t)size >> (8 * i));
    for (size_t i = 0; i < size - 8; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < 8; i++) bytes[size - 8 + i] = (uint8_t)(hash >> (8 * i));
}

static void *on_pointer(void *user, uint64_t step, void *was)
{
    (void)step;
    MUST(user == &box, "another user");
    return was;
}

/* Replays the first `size` bytes from a block of exactly that size, so that a read past the end is seen. */
static filch_err replay(const void *bytes, size_t size, int which, bool pointers, filch_blackbox_report *report)
{
    void *block = malloc(size > 0 ? size : 1);
    if (block == NULL) abort();
    if (size > 0) memcpy(block, bytes, size);
    *report = (filch_blackbox_report)FILCH_BLACKBOX_REPORT_INIT;
    if (pointers) report->pointer = on_pointer;
    report->pointer_user = &box;
    filch_err err = filch_blackbox_replay(block, size, &clerk_types[which], report);
    free(block);
    MUST(memchr(report->text, 0, sizeof report->text) != NULL, "a text without an end");
    MUST(err == FILCH_OK || err == FILCH_EINVAL, "a replay with another answer");
    MUST(err == FILCH_OK || (report->text[0] != '\0' && report->fed == 0), "refused without a text");
    MUST(report->fed <= report->steps && report->differs <= report->fed, "more than there is");
    MUST(report->again == 0 || report->error == report->recorded, "again, but not the same");
    return err;
}

static void replay_anything(const void *bytes, size_t size, bool pointers)
{
    filch_blackbox_report report;
    if (replay(bytes, size, 0, pointers, &report) == FILCH_EINVAL) (void)replay(bytes, size, 1, pointers, &report);
}

/* Replays an unchanged recording, and checks that the replay finds no difference. Differences are allowed if
 * `no_memory`: memory ran out during the recorded run, and a recording does not contain failed allocations. */
static void replay_faithfully(bool no_memory, bool pointers)
{
    filch_blackbox_report report;
    filch_err             err = replay(box.bytes, box.size, 0, true, &report);
    int                   which = err == FILCH_EINVAL ? 1 : 0;
    if (which == 1) err = replay(box.bytes, box.size, 1, true, &report);
    MUST(err == FILCH_OK, "a recording was refused");
    MUST(report.pid.serial == box.pid.serial && report.recorded == box.error, "the recording of another process");
    MUST((report.missing > 0) == (report.partial == 1), "partial, or not");
    MUST(report.lost == 0 || no_memory, "memory ran out, but it did not");
    MUST(report.pointers == 0 || pointers, "a pointer that was not sent");
    if (report.partial != 0 || no_memory) return;
    MUST(report.differs == 0, report.text);
    MUST(report.fed == report.steps && report.again == 1, "it did not fail again");
}

/* Changes or cuts a recording and replays it. */
static void replay_damaged(fuzz_bytes *in, bool pointers)
{
    filch_blackbox_report report;
    size_t                at = fuzz_u64(in) % box.size, less = fuzz_u64(in) % box.size;
    uint8_t               change = fuzz_byte(in);
    MUST(replay(box.bytes, less, 0, true, &report) == FILCH_EINVAL, "a recording that was cut short was believed");
    box.bytes[at] ^= change != 0 ? change : 1;
    MUST(replay(box.bytes, box.size, 0, true, &report) == FILCH_EINVAL, "a changed recording was believed");
    MUST(replay(box.bytes, box.size, 1, true, &report) == FILCH_EINVAL, "a changed recording was believed");
    for (uint32_t more = fuzz_below(in, 8); more > 0; more--) {
        at = fuzz_u64(in) % box.size;
        box.bytes[at] = fuzz_byte(in);
    }
    seal(box.bytes, box.size);
    replay_anything(box.bytes, box.size, pointers);
}

/* ---- one input: spawns a recorded process, lets it run, and replays it ---- */

static filch_values *make_values(uint8_t choice)
{
    filch_values *older = NULL, *values = NULL;
    if (choice % 4 == 0) return NULL;
    MUST(filch_values_create(NULL, "speed", filch_int(choice), &older) == FILCH_OK, "no values");
    MUST(filch_values_create(older, "name", choice % 4 == 1 ? filch_ptr(&box) : filch_str("Bob"), &values) == FILCH_OK,
         "no values");
    filch_values_drop(older);
    return values;
}

static void send_actions(fuzz_bytes *in, filch_sched *sched, filch_pid pid, bool *pointers)
{
    uint8_t    order[MESSAGE_MAX];
    uint32_t   choice = fuzz_byte(in), size = choice % (MESSAGE_MAX + 1);
    filch_data data;
    if (choice >= 240) {
        data = choice % 4 == 0 ? filch_ptr(&box) : choice % 4 == 1 ? filch_str("") : filch_int((int64_t)fuzz_u64(in));
        *pointers = *pointers || choice % 4 == 0;
    } else {
        if (size > in->left) size = (uint32_t)in->left;
        fuzz_fill(in, order, size);
        data = filch_bytes(order, size);
    }
    (void)!filch_send(sched, pid, data);
    if (choice % 4 != 3) (void)!filch_tick(sched, 1 + choice % 8, NULL);
}

static void live(fuzz_bytes *in)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_registry     *registry;
    filch_sched        *sched;
    filch_pid friend, pid;
    uint8_t choice = fuzz_byte(in), starve = fuzz_byte(in);
    bool    pointers = choice % 4 == 1;
    MUST(filch_registry_create(&registry) == FILCH_OK, "no registry");
    MUST(filch_registry_add(registry, OWN, on_own, NULL) == FILCH_OK, "no command");
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    opt.registry = registry;
    opt.node = opt.seed = 7;
    opt.on_blackbox = on_blackbox;
    opt.on_blackbox_user = &box;
    opt.payload_max = choice / 4 % 4 == 1 ? 12 : 0;
    opt.send_budget = choice / 16 % 4;
    opt.batch_max = choice / 64 % 4;
    how.blackbox = fuzz_below(in, 4) == 0 ? 1 + fuzz_below(in, 8) : STEPS;
    how.method = choice % 8 == 5 ? "careful" : NULL;
    how.values = make_values(choice);
    MUST(filch_sched_create(&sched, &opt) == FILCH_OK, "no scheduler");
    MUST(filch_spawn(sched, &child_type, NULL, &friend) == FILCH_OK, "no friend");
    how.args = filch_of_pid(friend);
    MUST(filch_spawn(sched, &clerk_types[choice % 2], &how, &pid) == FILCH_OK, "no clerk");
    if (starve % 8 == 7) test_alloc_fail(&alloc, 1u + starve / 8, starve >= 128);
    for (int i = 0; in->left > 0 && box.count == 0 && i < MESSAGES_MAX; i++) send_actions(in, sched, pid, &pointers);
    bool no_memory = alloc.refused > 0;
    if (box.count > 0 && !box.none) {
        replay_faithfully(no_memory, pointers);
        replay_damaged(in, choice % 2 == 0);
    }
    test_alloc_fail(&alloc, 0, false);
    MUST(box.count <= 1 && (!box.none || no_memory), "a recording too many, or none");
    filch_err err = filch_sched_stop(sched, FILCH_MILLISECONDS(1), NULL);
    MUST(err == FILCH_OK || err == FILCH_EDEADLINE, "no end");
    filch_registry_destroy(registry);
    filch_values_drop(how.values);
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes     in = { at, size };
    static uint8_t whole[4096 + 64];
    memset(&alloc, 0, sizeof alloc);
    box.count = 0;
    box.none = false;
    moved = freed = still_clock_ns = 0;
    switch (fuzz_below(&in, 8)) {
    case 0: replay_anything(in.at, in.left, true); break;
    case 1:
    case 2: {
        size_t inside = in.left < 4096 ? in.left : 4096;
        memset(whole, 0, 24);
        fuzz_fill(&in, whole + 24, inside);
        seal(whole, 24 + inside + 8);
        replay_anything(whole, 24 + inside + 8, true);
        break;
    }
    default: live(&in); break;
    }
    MUST(moved == freed, "a payload was not freed exactly once");
    MUST(alloc.bytes == 0 && alloc.blocks == 0 && alloc.wrong == 0, "memory was left behind");
    return 0;
}
