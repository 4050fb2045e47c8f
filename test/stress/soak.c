/* soak.c - runs all kinds of processes at once, for a given time.
 *
 *     soak SECONDS [WORKERS]
 *
 * One large scheduler runs all the time. Its processes are *ledgers*, which check the order of each sender; *boxes*
 * with small mailboxes of every policy; *requesters*, which send, sleep, and yield for work and for completions from
 * other threads; and a *crowd* of short-lived processes that send to each other, become another type, and are cancelled
 * and killed by foreign threads. At the same time small schedulers of all kinds are created, filled with processes, and
 * stopped while their processes run.
 *
 * Nothing may be lost: messages accepted = read + unread by ended processes + dropped by policy; instances opened =
 * closed; each yield is completed once; memory and resident size stop growing.
 * After STRESS_LIMIT without a message the program prints its state and ends.
 * Exit: 0 no error found; 1 a violation; 2 wrong usage, or the machine failed.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filch.h>

#include "base/prng.h"
#include "port/atomic.h"
#include "port/clock.h"
#include "port/thread.h"
#include "support/stress.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { LEDGERS = 4, BOXES = 10, TALKERS = 32, CROWD = 200, OUTSIDE = 2, POSTMEN = 2, SENDERS = TALKERS + OUTSIDE };
enum { CMD_COMPLETE = FILCH_CMD_USER, DESK = 512, WINDOW = 4096, CROWD_WINDOW = 64, BOX_MAX = 8 };

#define NODE 1

/* Counters of the large scheduler (the test also runs small ones). Relaxed, because they are only compared after all
 * processes have ended. */
#define COUNTS(X) \
    X(opened)     \
    X(closed)     \
    X(spawned)    \
    X(exits) X(sent) X(read) X(dead) X(full) X(dropped) X(drops_read) X(yields) X(answered) X(completed) X(late)

typedef struct counts {
#define X(name) FLI_ATOMIC(uint64_t) name;
    COUNTS(X)
#undef X
} counts;

static counts       now;
static filch_sched *town;
/* true: ended processes are not replaced, and foreign threads send no more messages */
static FLI_ATOMIC(bool) over;
static FLI_ATOMIC(bool) post_over; /* true: yields are not completed any more */
static filch_pid        ledgers[LEDGERS];
/* serial numbers of the pids of all boxes (processes with a limited mailbox) and of the crowd (short-lived
 * processes) */
static FLI_ATOMIC(uint64_t) boxes[BOXES], crowd[CROWD];
/* for each ledger (process that checks the order of its messages): number of messages sent to it and not yet read */
static FLI_ATOMIC(uint64_t) ahead[LEDGERS];
/* for each place of the crowd: number of messages sent to its present process and not yet read. Messages that are sent
 * while the process is replaced may be counted for the wrong one of the two processes, so the number may be a little
 * wrong, or negative, until the next replacement */
static FLI_ATOMIC(int64_t)  waiting[CROWD];
static FLI_ATOMIC(uint64_t) side_messages, side_rounds;
static FLI_ATOMIC(size_t)   town_bytes, side_bytes;

static struct {
    fli_mutex      lock;
    fli_cond       filled;
    filch_receiver post[DESK];
    uint32_t       first, count;
} desk;

/* ---- reports ---- */

#define ADD(name, n) fli_add_rlx(&now.name, (uint64_t)(n))
#define GET(name) fli_load_rlx(&now.name)

static void complain(const char *what)
{
    filch_stats stats = FILCH_STATS_INIT;
    if (town != NULL) (void)!filch_sched_stats(town, &stats);
    fprintf(stderr, "\nsoak: %s\n ", what);
#define X(name) fprintf(stderr, " " #name " %" PRIu64, GET(name));
    COUNTS(X)
#undef X
    fprintf(stderr,
            "\n  spawned %" PRIu64 " ended %" PRIu64 " sent %" PRIu64 " undelivered %" PRIu64 " refused %" PRIu64
            " dropped %" PRIu64 "\n  yields %" PRIu64 " completions %" PRIu64 " late %" PRIu64 " asleep %" PRIu32 "\n",
            stats.spawned, stats.ended, stats.sent, stats.undelivered, stats.refused, stats.dropped, stats.yields,
            stats.completions, stats.late_completions, stats.asleep);
    _exit(1);
}

#define MUST(condition, why)             \
    do {                                 \
        if (!(condition)) complain(why); \
    } while (0)

/* ---- memory ---- */

static void *count_alloc(void *user, void *old, size_t old_size, size_t size)
{
    FLI_ATOMIC(size_t) *bytes = user;
    if (size == 0) {
        free(old);
        fli_sub_acqrel(bytes, old_size);
        return NULL;
    }
    void *at = realloc(old, size);
    if (at == NULL) return NULL;
    fli_add_rlx(bytes, size);
    fli_sub_acqrel(bytes, old_size);
    return at;
}

static size_t resident(void)
{
    size_t total = 0, pages = 0;
    FILE  *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%zu %zu", &total, &pages) != 2) pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- messages ---- */

static void note_sent(filch_err err)
{
    switch (err) {
    case FILCH_OK: ADD(sent, 1); break;
    case FILCH_EDEAD: ADD(dead, 1); break;
    case FILCH_EFULL: ADD(full, 1); break;
    case FILCH_EDROPPED: ADD(dropped, 1); break;
    case FILCH_ECLOSED: MUST(fli_load_rlx(&over), "closed, but it is not"); break;
    default: complain(filch_err_name(err));
    }
}

static filch_err post(filch_pid to, filch_data data)
{
    filch_err err = filch_send(town, to, data);
    note_sent(err);
    return err;
}

static filch_pid pid_at(FLI_ATOMIC(uint64_t) *slot)
{
    return (filch_pid){ NODE, fli_load_rlx(slot) };
}

/* Sends the next number of `sender` to a ledger. Returns false, without sending, if the ledger has too many unread
 * messages. */
static bool enter_ledger(uint64_t sender, uint32_t which, uint64_t *number)
{
    if (fli_load_rlx(&ahead[which]) >= WINDOW) return false;
    fli_add_rlx(&ahead[which], 1);
    (void)post(ledgers[which], filch_int((int64_t)(sender << 48 | (*number)++)));
    return true;
}

static char large[200]; /* bytes for payloads that do not fit into an event; never written */

static filch_data any_payload(fli_prng *prng)
{
    switch (fli_prng_below(prng, 4)) {
    case 0: return filch_int(1);
    case 1: return filch_bytes(large, 20);
    case 2: return filch_bytes(large, 1 + fli_prng_below(prng, sizeof large));
    default: return filch_str("a text that is longer than what fits into an event");
    }
}

static void post_to_box(fli_prng *prng)
{
    (void)post(pid_at(&boxes[fli_prng_below(prng, BOXES)]), any_payload(prng));
}

/* Sends a message to a process of the crowd, unless it has too many unread messages. */
static void post_to_crowd(fli_prng *prng)
{
    uint32_t one = fli_prng_below(prng, CROWD);
    if (fli_load_rlx(&waiting[one]) >= CROWD_WINDOW) return;
    fli_add_rlx(&waiting[one], 1);
    if (post(pid_at(&crowd[one]), any_payload(prng)) != FILCH_OK) fli_sub_acqrel(&waiting[one], 1);
}

/* ---- desk: holds the receivers of yields that foreign threads complete ---- */

static filch_err on_complete(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user;
    if (filch_as_int(&command->data) % 4 == 0) {
        ADD(completed, 1);
        return filch_complete(receiver, tag, filch_int((int64_t)tag), FILCH_OK);
    }
    fli_mutex_lock(&desk.lock);
    bool full = desk.count == DESK;
    if (!full) desk.post[(desk.first + desk.count++) % DESK] = receiver;
    fli_cond_signal(&desk.filled);
    fli_mutex_unlock(&desk.lock);
    if (!full) return FILCH_OK;
    ADD(completed, 1);
    return FILCH_EUSER + 1;
}

static void answer(filch_receiver receiver)
{
    filch_err once = filch_complete(receiver, receiver.tag, filch_int((int64_t)receiver.tag), FILCH_OK);
    if (once == FILCH_OK) {
        ADD(completed, 1);
        filch_err twice = filch_complete(receiver, receiver.tag, filch_none(), FILCH_OK);
        MUST(twice == FILCH_ESTALE || twice == FILCH_ECLOSED, "a second completion was taken");
        if (twice == FILCH_ESTALE) ADD(late, 1);
    } else {
        MUST(once == FILCH_ESTALE || once == FILCH_EDEAD || once == FILCH_ECLOSED, "a completion was refused");
        if (once != FILCH_ECLOSED) ADD(late, 1);
    }
}

static void postman(void *arg)
{
    (void)arg;
    fli_mutex_lock(&desk.lock);
    for (;;) {
        while (desk.count == 0 && !fli_load_rlx(&post_over)) fli_cond_wait(&desk.filled, &desk.lock);
        if (desk.count == 0) break;
        filch_receiver receiver = desk.post[desk.first];
        desk.first = (desk.first + 1) % DESK;
        desk.count--;
        fli_mutex_unlock(&desk.lock);
        answer(receiver);
        fli_mutex_lock(&desk.lock);
    }
    fli_mutex_unlock(&desk.lock);
}

/* ---- processes ---- */

static void close_one(void *self)
{
    (void)self;
    ADD(closed, 1);
}

static filch_err open_one(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    *(uint64_t *)self = (uint64_t)filch_as_int(args);
    ADD(opened, 1);
    return FILCH_OK;
}

static bool is_cancelled(const filch_event *events, size_t count)
{
    return count > 0 && events[0].type == FILCH_EVENT_CANCEL;
}

/* Counts the events of a step. Returns the number of completed yields. */
static uint32_t read_mail(const filch_event *events, size_t count)
{
    uint32_t answers = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) ADD(read, 1);
        if (events[i].type == FILCH_EVENT_DROPPED) ADD(drops_read, filch_as_int(&events[i].data));
        answers += events[i].type == FILCH_EVENT_YIELD;
    }
    ADD(answered, answers);
    return answers;
}

typedef struct ledger {
    uint64_t which;
    uint64_t next[SENDERS];
} ledger;

static filch_err ledger_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    ledger *l = self;
    (void)read_mail(events, count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        uint64_t value = (uint64_t)filch_as_int(&events[i].data), sender = value >> 48;
        MUST(sender < SENDERS && (value & 0xffffffffffff) == l->next[sender], "lost, doubled or overtaken");
        l->next[sender]++;
        fli_sub_acqrel(&ahead[l->which], 1);
    }
    return is_cancelled(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type ledger_type = {
    .name = "ledger", .size = sizeof(ledger), .init = open_one, .step = ledger_step, .close = close_one
};

/* The process reads its messages. Every 64 steps it sleeps, so that its mailbox fills up. */
static filch_err box_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *steps = self;
    (void)read_mail(events, count);
    if (is_cancelled(events, count)) return filch_done(out, filch_none());
    if (++*steps % 64 != 0) return filch_idle(out);
    stress_must("sleep", filch_yield_sleep(out, 1, FILCH_MICROSECONDS(200)));
    ADD(yields, 1);
    return filch_wait(out);
}

static const filch_type box_type = {
    .name = "box", .size = sizeof(uint64_t), .init = open_one, .step = box_step, .close = close_one
};

typedef struct requester {
    uint64_t id;
    fli_prng prng;
    uint64_t numbers[LEDGERS];
    uint64_t yields, due_ns; /* yields: number of yields made. due_ns: due time of the outstanding sleep */
    uint32_t outstanding;
    bool     ending;
} requester;

enum { TAG_COMPLETE, TAG_SLEEP, TAG_SEND, TAG_WORK, TAGS };

static filch_err do_work(void *arg, filch_data *result)
{
    *result = filch_int((int64_t)(intptr_t)arg);
    return FILCH_OK;
}

static void take_completion(requester *t, const filch_event *event)
{
    MUST(event->tag / TAGS <= t->yields && t->outstanding > 0, "a completion without a yield");
    t->outstanding--;
    switch (event->tag % TAGS) {
    case TAG_SEND: note_sent(event->error); break;
    case TAG_SLEEP: MUST(fli_clock_ns() >= t->due_ns && event->error == FILCH_OK, "a sleep was early"); break;
    case TAG_WORK:
        if (event->error == FILCH_EFULL || event->error == FILCH_ECANCELLED) break;
        MUST(filch_as_int(&event->data) == (int64_t)event->tag, "another result");
        break;
    default:
        MUST(event->error == FILCH_EUSER + 1 || filch_as_int(&event->data) == (int64_t)event->tag, "another result");
    }
}

static void make_yield(requester *t, filch_out *out, unsigned what)
{
    uint64_t tag = ++t->yields * TAGS + what, span_ns = fli_prng_below(&t->prng, 300000);
    uint32_t box = fli_prng_below(&t->prng, BOXES);
    switch (what) {
    case TAG_COMPLETE:
        stress_must("yield", filch_yield(out, CMD_COMPLETE, tag, filch_int(fli_prng_below(&t->prng, 8))));
        break;
    case TAG_SEND: stress_must("yield", filch_yield_send(out, tag, pid_at(&boxes[box]), any_payload(&t->prng))); break;
    case TAG_WORK: stress_must("yield", filch_yield_work(out, tag, do_work, (void *)(uintptr_t)tag)); break;
    default: t->due_ns = fli_clock_ns() + span_ns; stress_must("yield", filch_yield_sleep(out, tag, span_ns));
    }
    t->outstanding++;
    ADD(yields, 1);
}

static filch_err requester_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    requester *t = self;
    if (t->prng.state == 0) fli_prng_init(&t->prng, t->id);
    (void)read_mail(events, count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD) take_completion(t, &events[i]);
    }
    t->ending = t->ending || is_cancelled(events, count);
    if (t->ending) return t->outstanding > 0 ? filch_wait(out) : filch_done(out, filch_none());
    bool slow = false, sleeps = false;
    for (uint32_t n = 1 + fli_prng_below(&t->prng, 4); n > 0; n--) {
        uint32_t which = fli_prng_below(&t->prng, LEDGERS);
        switch (fli_prng_below(&t->prng, 8)) {
        case 0: make_yield(t, out, TAG_COMPLETE); break;
        case 1: make_yield(t, out, TAG_SEND); break;
        case 2:
            if (fli_prng_below(&t->prng, 8) == 0) make_yield(t, out, TAG_WORK);
            break;
        case 3: post_to_box(&t->prng); break;
        case 4: post_to_crowd(&t->prng); break;
        default: slow |= !enter_ledger(t->id, which, &t->numbers[which]); break;
        }
    }
    /* Makes only one sleep at a time, because `due_ns` holds only one due time. */
    if (t->outstanding == 0 && (slow || fli_prng_below(&t->prng, 16) == 0)) {
        make_yield(t, out, TAG_SLEEP);
        sleeps = true;
    }
    if (t->outstanding == 0) return filch_continue(out);
    return sleeps || fli_prng_below(&t->prng, 2) == 0 ? filch_wait(out) : filch_idle(out);
}

static const filch_type requester_type = {
    .name = "requester", .size = sizeof(requester), .init = open_one, .step = requester_step, .close = close_one
};

/* ---- the crowd ---- */

typedef struct member {
    uint64_t slot;
    fli_prng prng;
    char     more[64]; /* makes the state too large for the control block */
} member;

static void replace(void *user, filch_pid pid, filch_err error, const filch_data *result);

static filch_err spawn(const filch_type *type, uint64_t arg, uint32_t overflow, filch_exit_fn on_exit, void *user,
                       filch_pid *pid)
{
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int((int64_t)arg);
    opt.mailbox_max = overflow != UINT32_MAX ? BOX_MAX : 0;
    opt.overflow = overflow != UINT32_MAX ? overflow : 0;
    opt.on_exit = on_exit;
    opt.on_exit_user = user;
    filch_err err = filch_spawn(town, type, &opt, pid);
    if (err == FILCH_OK) ADD(spawned, 1);
    return err;
}

static const filch_type member_type, other_type;

static filch_err member_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    member *f = self;
    if (f->prng.state == 0) fli_prng_init(&f->prng, fli_clock_ns() + f->slot);
    (void)read_mail(events, count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_MESSAGE) fli_sub_acqrel(&waiting[f->slot], 1);
    }
    if (is_cancelled(events, count)) return filch_done(out, filch_bytes(large, 50));
    switch (fli_prng_below(&f->prng, 16)) {
    case 0: return filch_done(out, filch_none());
    case 1: return FILCH_EUSER + 2;
    case 2:
        return filch_upgrade(out, fli_prng_below(&f->prng, 2) == 0 ? &member_type : &other_type, NULL,
                             filch_int((int64_t)f->slot));
    case 3: return filch_wait(out); /* waits without an outstanding yield, which is an error that ends the process */
    case 4:
    case 5:
        stress_must("yield", filch_yield(out, CMD_COMPLETE, 7, filch_int(fli_prng_below(&f->prng, 8))));
        ADD(yields, 1);
        return filch_wait(out);
    case 6:
        stress_must("yield", filch_yield_sleep(out, 8, fli_prng_below(&f->prng, 100000)));
        ADD(yields, 1);
        return filch_idle(out);
    case 7: return filch_continue(out);
    default: break;
    }
    for (int i = 0; i < 3; i++) post_to_crowd(&f->prng);
    return filch_idle(out);
}

static const filch_type member_type = {
    .name = "face", .size = sizeof(member), .init = open_one, .step = member_step, .close = close_one
};
static const filch_type other_type = {
    .name = "other", .size = sizeof(member) + 500, .init = open_one, .step = member_step, .close = close_one
};

static void spawn_member(uint64_t slot)
{
    filch_pid pid;
    fli_store_rlx(&waiting[slot], 0);
    filch_err err = spawn(&member_type, slot, UINT32_MAX, replace, (void *)(uintptr_t)slot, &pid);
    if (err == FILCH_OK) fli_store_rlx(&crowd[slot], pid.serial);
    else MUST(err == FILCH_ECLOSED && fli_load_rlx(&over), "a member could not be spawned");
}

static void replace_box(void *user, filch_pid pid, filch_err error, const filch_data *result);

static void spawn_box(uint64_t slot)
{
    filch_pid pid;
    filch_err err = spawn(&box_type, slot, (uint32_t)(slot % 5), replace_box, (void *)(uintptr_t)slot, &pid);
    if (err == FILCH_OK) fli_store_rlx(&boxes[slot], pid.serial);
    else MUST(err == FILCH_ECLOSED && fli_load_rlx(&over), "a box could not be spawned");
}

static void replace(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid, (void)error, (void)result;
    ADD(exits, 1);
    /* at the end of the test an ended process is not replaced, because the stop would wait for the new process */
    if (!fli_load_rlx(&over)) spawn_member((uintptr_t)user);
}

static void replace_box(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid, (void)result;
    bool stops = (uintptr_t)user % 5 == FILCH_OVERFLOW_STOP;
    MUST(error == FILCH_OK || (stops && error == FILCH_EOVERFLOW), "a box ended for no reason");
    ADD(exits, 1);
    if (!fli_load_rlx(&over)) spawn_box((uintptr_t)user);
}

/* ---- foreign threads ---- */

static void outsider(void *arg)
{
    uint64_t id = TALKERS + (uint64_t)(uintptr_t)arg, numbers[LEDGERS] = { 0 };
    fli_prng prng;
    fli_prng_init(&prng, id);
    while (!fli_load_rlx(&over)) {
        uint32_t which = fli_prng_below(&prng, LEDGERS), one = fli_prng_below(&prng, CROWD);
        switch (fli_prng_below(&prng, 32)) {
        case 0: (void)!filch_cancel(town, pid_at(&crowd[one])); break;
        case 1: (void)!filch_terminate(town, pid_at(&crowd[one])); break;
        case 2: post_to_box(&prng); break;
        case 3: fli_thread_yield(); break;
        /* Sends a message to a process of the crowd that may have been idle for long. */
        case 4:
        case 5: post_to_crowd(&prng); break;
        default:
            if (!enter_ledger(id, which, &numbers[which])) fli_thread_yield();
            break;
        }
    }
}

/* ---- small schedulers that are created and stopped beside the large one ---- */

typedef struct side_proc {
    uint64_t seed;
    fli_prng prng;
    int64_t  timer;
} side_proc;

static FLI_ATOMIC(uint64_t) side_procs_opened, side_procs_closed;

static filch_err open_side_proc(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx, (void)method;
    ((side_proc *)self)->seed = (uint64_t)filch_as_int(args);
    fli_add_rlx(&side_procs_opened, 1);
    return FILCH_OK;
}

static void close_side_proc(void *self)
{
    (void)self;
    fli_add_rlx(&side_procs_closed, 1);
}

static filch_err side_proc_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    side_proc *g = self;
    if (g->prng.state == 0) fli_prng_init(&g->prng, g->seed);
    fli_add_rlx(&side_messages, count);
    /* One in eight processes ignores the cancel, so that the stop has to kill it. */
    if (is_cancelled(events, count) && g->seed % 8 != 0) return filch_done(out, filch_none());
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_YIELD && events[i].tag == 2) g->timer = filch_as_int(&events[i].data);
    }
    uint64_t span_ns = fli_prng_below(&g->prng, 500000);
    switch (fli_prng_below(&g->prng, 12)) {
    case 0: stress_must("yield", filch_yield_timer(out, 2, span_ns)); break;
    case 1: stress_must("yield", filch_yield_ticker(out, 2, span_ns + 50000)); break;
    case 2: stress_must("yield", filch_yield_timer_cancel(out, 3, g->timer)); break;
    case 3: stress_must("yield", filch_yield_work(out, 4, do_work, NULL)); break;
    /* a sleep that usually does not end before this scheduler is stopped */
    case 4: stress_must("yield", filch_yield_sleep(out, 5, span_ns * 1000)); break;
    case 5: return filch_continue(out);
    case 6: return fli_prng_below(&g->prng, 4) == 0 ? filch_done(out, filch_none()) : filch_idle(out);
    default: return filch_idle(out);
    }
    return fli_prng_below(&g->prng, 2) == 0 ? filch_wait(out) : filch_idle(out);
}

static const filch_type side_proc_type = {
    .name = "side", .size = sizeof(side_proc), .init = open_side_proc, .step = side_proc_step, .close = close_side_proc
};

static void side_round(fli_prng *prng)
{
    enum { SIDE_PROCS = 100 };
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pids[SIDE_PROCS];
    filch_report  report = FILCH_REPORT_INIT;
    opt.workers = (int32_t)fli_prng_below(prng, 4) - 1;
    if (opt.workers == 0) opt.workers = 4;
    opt.alloc = count_alloc;
    opt.alloc_user = &side_bytes;
    opt.work_threads = 1 + fli_prng_below(prng, 3);
    stress_must("create", filch_sched_create(&sched, &opt));
    for (int i = 0; i < SIDE_PROCS; i++) {
        filch_spawn_options spawn_opt = FILCH_SPAWN_OPTIONS_INIT;
        spawn_opt.args = filch_int((int64_t)fli_prng_next(prng) & 0xffffff);
        stress_must("spawn", filch_spawn(sched, &side_proc_type, &spawn_opt, &pids[i]));
    }
    for (int i = 0; i < 2000; i++) {
        filch_err err = filch_send(sched, pids[fli_prng_below(prng, SIDE_PROCS)], any_payload(prng));
        MUST(err == FILCH_OK || err == FILCH_EDEAD, "a process of a small scheduler could not be reached");
        if (opt.workers < 0 && i % 16 == 0) stress_must("tick", filch_tick(sched, 20, NULL));
        if (i % 64 == 0) fli_thread_yield();
    }
    uint64_t  deadline_ns = fli_prng_below(prng, 3) == 0 ? 0 : FILCH_MILLISECONDS(fli_prng_below(prng, 20));
    filch_err err;
    do err = filch_sched_stop(sched, deadline_ns, &report);
    while (err == FILCH_EBUSY && (filch_report_free(&report), true));
    MUST(err == FILCH_OK || err == FILCH_EDEADLINE, "stop has another result");
    MUST(report.count + report.omitted == report.forced, "stragglers are missing");
    filch_report_free(&report);
    MUST(fli_load_rlx(&side_procs_opened) == fli_load_rlx(&side_procs_closed),
         "an instance of a small scheduler was not closed exactly once");
    MUST(fli_load_acq(&side_bytes) == 0, "a scheduler left memory behind");
    fli_add_rlx(&side_rounds, 1);
}

/* ---- the main scheduler ---- */

static void town_create(int32_t workers)
{
    filch_options   opt = FILCH_OPTIONS_INIT;
    filch_registry *registry;
    stress_must("registry", filch_registry_create(&registry));
    stress_must("registry", filch_registry_add(registry, CMD_COMPLETE, on_complete, NULL));
    opt.workers = workers;
    opt.registry = registry;
    opt.node = NODE;
    opt.alloc = count_alloc;
    opt.alloc_user = &town_bytes;
    stress_must("create", filch_sched_create(&town, &opt));
    filch_registry_destroy(registry);
    filch_pid pid;
    for (uint64_t i = 0; i < LEDGERS; i++) {
        stress_must("spawn", spawn(&ledger_type, i, UINT32_MAX, NULL, NULL, &ledgers[i]));
    }
    for (uint64_t i = 0; i < BOXES; i++) spawn_box(i);
    for (uint64_t i = 0; i < CROWD; i++) spawn_member(i);
    for (uint64_t i = 0; i < TALKERS; i++)
        stress_must("spawn", spawn(&requester_type, i, UINT32_MAX, NULL, NULL, &pid));
}

/* Called when all processes have ended, while the statistics are still readable. Checks that the counters add up. */
static void check_books(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    stress_must("stats", filch_sched_stats(town, &stats));
    MUST(stats.alive == 0 && stats.spawned == GET(spawned) && stats.ended == GET(spawned), "processes are miscounted");
    MUST(GET(opened) == GET(closed), "an instance was not closed exactly once");
    MUST(stats.sent == GET(sent), "messages are miscounted");
    MUST(stats.refused == GET(full), "refused messages are miscounted");
    uint64_t unread = stats.undelivered - GET(dead), trimmed = stats.dropped - GET(dropped);
    MUST(stats.undelivered >= GET(dead) && stats.dropped >= GET(dropped), "refusals are miscounted");
    MUST(GET(sent) == GET(read) + unread + trimmed, "messages have vanished, or multiplied");
    MUST(GET(drops_read) <= stats.dropped, "more drops were reported than happened");
    MUST(stats.yields == GET(yields) && GET(answered) <= stats.completions, "yields are miscounted");
    MUST(stats.completions <= stats.yields && stats.late_completions >= GET(late), "completions are miscounted");
    MUST(stats.timers == 0, "timers are left");
}

typedef struct memory {
    size_t warm_bytes, warm_resident; /* maximum of the allocated bytes and of the resident size during the warm-up */
} memory;

/* Checks that the memory in use is at most twice the maximum of the warm-up plus 8 MB (resident size: plus 32 MB).
 * Steady growth exceeds this limit sooner or later; peaks do not. A peak comes when the system lets a thread wait, for
 * example a postman (a thread that completes yields): then the processes that wait for this thread do not read their
 * messages. The senders limit the unread messages, so a peak has the same maximum however long the thread waits.
 * LEDGERS * WINDOW + CROWD * CROWD_WINDOW are about 30,000 nodes of 64 bytes. Slabs grow by doubling, and with the
 * option `alloc` they keep their memory: twice 2 MB. The payloads of the crowd's messages, at most 250 bytes each, take
 * 3 MB. Together that is less than 8 MB. */
static void watch_memory(memory *m, bool warm)
{
    size_t bytes = fli_load_rlx(&town_bytes), pages = resident();
    if (!warm) {
        if (bytes > m->warm_bytes) m->warm_bytes = bytes;
        if (pages > m->warm_resident) m->warm_resident = pages;
        return;
    }
    MUST(bytes <= m->warm_bytes * 2 + (8u << 20), "the scheduler's memory grows");
    MUST(SANITIZED || pages <= m->warm_resident * 2 + (32u << 20), "the resident size grows");
}

static void print_progress(uint64_t began_ns, bool live)
{
    fprintf(stderr,
            "%ssoak: %4" PRIu64 " s, %" PRIu64 " messages, %" PRIu64 " lives, %" PRIu64
            " schedulers, %zu KB, resident %zu MB%s",
            live ? "\r" : "", (fli_clock_ns() - began_ns) / FILCH_SECONDS(1), GET(read), GET(spawned),
            fli_load_rlx(&side_rounds), fli_load_rlx(&town_bytes) / 1024, resident() >> 20, live ? "\033[K" : "\n");
}

static void run(uint64_t seconds)
{
    uint64_t began_ns = fli_clock_ns(), end_ns = began_ns + FILCH_SECONDS(seconds);
    uint64_t warm_ns = began_ns + FILCH_SECONDS(seconds) / 4, print_ns = began_ns + FILCH_SECONDS(60);
    uint64_t look_ns = began_ns, moved_ns = began_ns, read_before = 0;
    bool     live = isatty(2) == 1;
    memory   m = { 0 };
    fli_prng prng;
    fli_prng_init(&prng, 1);
    for (uint64_t now_ns = began_ns; now_ns < end_ns; now_ns = fli_clock_ns()) {
        side_round(&prng);
        if (GET(read) != read_before) moved_ns = now_ns;
        MUST(now_ns - moved_ns < STRESS_LIMIT, "no message for a minute");
        read_before = GET(read);
        if (now_ns < look_ns) continue;
        look_ns += FILCH_SECONDS(1) / 4;
        watch_memory(&m, now_ns > warm_ns);
        if (live || now_ns >= print_ns) print_progress(began_ns, live);
        if (now_ns >= print_ns) print_ns += FILCH_SECONDS(60);
    }
    if (live) fputs("\r\033[K", stderr);
}

static void stop_all(fli_thread *outside, fli_thread *postmen)
{
    filch_report report = FILCH_REPORT_INIT;
    fli_store_rlx(&over, true);
    for (int i = 0; i < OUTSIDE; i++) fli_thread_join(&outside[i]);
    filch_err err = filch_sched_close(town, STRESS_LIMIT, &report);
    MUST(err == FILCH_OK && report.forced == 0, "not everybody has ended");
    filch_report_free(&report);
    fli_mutex_lock(&desk.lock);
    fli_store_rlx(&post_over, true);
    fli_cond_broadcast(&desk.filled);
    fli_mutex_unlock(&desk.lock);
    for (int i = 0; i < POSTMEN; i++) fli_thread_join(&postmen[i]);
    check_books();
    MUST(filch_sched_stop(town, 0, NULL) == FILCH_OK, "stop after close");
    town = NULL;
    MUST(fli_load_acq(&town_bytes) == 0, "memory was left behind");
}

int main(int argc, char **argv)
{
    uint64_t   seconds = 0, workers = 0;
    fli_thread outside[OUTSIDE], postmen[POSTMEN];
    bool       good = argc >= 2 && argc <= 3 && stress_parse(argv[1], 0, 1u << 30, &seconds);
    if (!good || (argc == 3 && !stress_parse(argv[2], 0, 1024, &workers))) {
        fprintf(stderr, "usage: soak SECONDS [WORKERS]\n");
        return 2;
    }
    if (seconds == 0) seconds = 1;
    stress_must("lock", fli_mutex_init(&desk.lock));
    stress_must("condition", fli_cond_init(&desk.filled));
    town_create((int32_t)workers);
    for (int i = 0; i < POSTMEN; i++) stress_must("thread", fli_thread_start(&postmen[i], "postman", postman, NULL));
    for (intptr_t i = 0; i < OUTSIDE; i++) {
        stress_must("thread", fli_thread_start(&outside[i], "outside", outsider, (void *)i));
    }
    run(seconds);
    stop_all(outside, postmen);
    uint64_t messages = GET(read) + fli_load_rlx(&side_messages);
    printf("soak: %" PRIu64 " s, %" PRIu64 " messages, no violations\n", seconds, messages);
    return 0;
}
