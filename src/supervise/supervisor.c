/* supervisor.c - a process that keeps others running: filch_supervisor_type. A guest: it uses filch.h and nothing else.
 *
 * What should be is in the list of children: each one wanted or not. What is, is in their state. Every step takes in
 * the events and then brings the second closer to the first (reconcile): it stops, from the last to the first and one
 * at a time, whoever has to stop; when nobody has to, it starts, from the first to the last, whoever is wanted and
 * down. A restart of one is a note to start it; a restart of all is a note to stop the others too; the end is a note to
 * stop all and to want nobody. There is no other order of events to get wrong.
 *
 * A child that is a supervisor says when its own children are up; only then the next one is started.
 *
 * INVARIANT  at most one child is being stopped. INVARIANT  nobody is started while somebody has to stop.
 *
 * Children are linked and monitored: the monitor tells of every end; the link takes the children along when the
 * supervisor is ended by force. A supervisor traps links, so it hears when its own parent is gone, and ends in order.
 */
#include <filch.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/versioned.h"
#include "supervise/answer.h"
#include "supervise/kids.h"

#define STOP_NS FILCH_SECONDS(5)
#define INTENSITY 3
#define INTENSITY_MAX 10000
#define PERIOD_NS FILCH_SECONDS(5)
#define FACTOR_PERCENT 200
#define BACKOFF_MAX_NS FILCH_SECONDS(30)
#define NAME_NS FILCH_MILLISECONDS(1)
#define WHY_MAX 160
#define STARTS_MAX 16 /* in one step: then others get their turn */

/* Tags of sleeps: which child (0: the group), and which sleep of it. */
#define TAG_OF(id, turn) ((uint64_t)(id) << 32 | (turn))

typedef fli_kid   kid;
typedef fli_asker asker;

typedef struct supervisor {
    const filch_supervisor *spec;
    filch_sched            *sched;
    filch_memory            memory; /* the scheduler's */
    fli_kids                kids;
    uint32_t                turn;
    uint64_t               *restarts; /* when they were: a ring of `intensity` */
    uint32_t                restart_first, restart_count, intensity;
    bool                    held; /* nobody is started until the sleep is over: one for all, rest for one */
    bool                    ending;
    filch_pid               parent;  /* waits to hear that all are up; nobody: it has, or there is none */
    asker                  *waiters; /* as the parent, by filch_child_await */
    filch_err               error;   /* to end with */
    char                    why[WHY_MAX]; /* in words; empty: as the error says */
} supervisor;

/* Zeroed. */
static void *get(filch_memory memory, size_t size)
{
    void *at = memory.alloc(memory.user, NULL, 0, size);
    return at != NULL ? memset(at, 0, size) : NULL;
}

static void give(filch_memory memory, void *at, size_t size)
{
    if (at != NULL) (void)memory.alloc(memory.user, at, size, 0);
}

/* ---- orders from others ---- */

typedef enum order_kind { ORDER_START, ORDER_STOP, ORDER_LIST, ORDER_AWAIT } order_kind;

static const char are_up; /* what a supervisor tells its parent points here */

/* A shared payload whose `user` is the order: no bytes that another process sends are taken for one (filch_shared_user).
 * Args that are a text, or bytes, follow it: a text with its NUL. */
typedef struct order {
    filch_memory memory; /* its own: it may outlive the scheduler it was given to */
    size_t       size;   /* with what follows */
    order_kind   kind;
    bool         unsent; /* nobody has the child: it is still the caller's */
    filch_data   reply;  /* of an order with a tag: the answer */
    filch_kind   args_kind;
    union {
        struct {
            filch_child child;
            filch_data  value; /* other args */
        } start;
        char stop[FILCH_CHILD_ID_MAX + 1];
    } as;
} order;

static void order_free(void *user, void *bytes, size_t size)
{
    order             *o = bytes;
    const filch_child *child = &o->as.start.child;
    (void)user;
    (void)size;
    if (o->kind == ORDER_START && !o->unsent && child->release != NULL) child->release(child);
    filch_drop(&o->reply);
    give(o->memory, o, o->size);
}

static order *order_make(filch_sched *sched, order_kind kind, size_t follow)
{
    filch_memory memory = filch_sched_memory(sched);
    size_t       size = sizeof(order) + follow;
    order       *o = get(memory, size);
    if (o != NULL) *o = (order){ .memory = memory, .size = size, .kind = kind };
    return o;
}

/* Sends it, with a place for the answer if `tag` is not NULL. Takes the order. */
static filch_err order_send(filch_sched *sched, filch_pid supervisor_pid, order *o, const uint64_t *tag)
{
    filch_data data;
    filch_err  err = tag != NULL ? fli_answer_make(o->memory, *tag, &o->reply) : FILCH_OK;
    o->unsent = true;
    if (err == FILCH_OK) err = filch_share(o, o->size, order_free, o, &data);
    if (err != FILCH_OK) {
        order_free(NULL, o, o->size);
        return err;
    }
    o->unsent = false;
    err = filch_send(sched, supervisor_pid, data);
    if (err != FILCH_OK) o->unsent = true; /* we are the only one that holds it */
    filch_drop(&data);
    return err;
}

static bool id_is_sound(const char *id)
{
    return id != NULL && id[0] != '\0' && strlen(id) <= FILCH_CHILD_ID_MAX;
}

static filch_err read_options(const filch_spawn_options *given, filch_spawn_options *out)
{
    return FLI_VERSIONED_READ(out, given, "options", FILCH_SPAWN_OPTIONS_INIT);
}

/* Says why. */
static bool unsound(const char *why)
{
    (void)filch_invalid(why);
    return false;
}

static bool child_is_sound(const filch_child *child, filch_spawn_options *opt)
{
    if (!id_is_sound(child->id)) return unsound("the id of a child is NULL or not 1 to 63 bytes");
    if (child->restart > FILCH_TEMPORARY) return unsound("child.restart is no filch_restart");
    if (child->spare != 0) return unsound("child.spare is not 0");
    if (read_options(child->options, opt) != FILCH_OK) return false;
    /* A supervisor has a type of its own only where that wraps ours. */
    bool runs = child->type != NULL ? child->type->step != NULL : child->supervisor != NULL;
    if (!runs) return unsound("child has neither a type with a step nor a supervisor");
    return true;
}

static filch_err send_start(filch_sched *sched, filch_pid pid, const filch_child *child, const uint64_t *tag)
{
    filch_spawn_options opt;
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (child == NULL) return filch_invalid("child is NULL");
    if (!child_is_sound(child, &opt)) return FILCH_EINVAL;
    const void *bytes = filch_raw(&opt.args);
    size_t      follow = filch_size(&opt.args);
    if (bytes == NULL && follow > 0) return filch_invalid("args is not a payload: NULL bytes with a size, say");
    if (follow > SIZE_MAX / 2) return FILCH_ETOOBIG;
    order *o = order_make(sched, ORDER_START, follow + 1);
    if (o == NULL) return FILCH_ENOMEM;
    o->as.start.child = *child;
    o->args_kind = filch_kind_of(&opt.args);
    if (follow > 0) memcpy(o + 1, bytes, follow);
    if (o->args_kind < FILCH_KIND_TEXT) o->as.start.value = opt.args;
    return order_send(sched, pid, o, tag);
}

filch_err filch_child_start(filch_sched *sched, filch_pid pid, const filch_child *child)
{
    return send_start(sched, pid, child, NULL);
}

filch_err filch_child_start_tagged(filch_sched *sched, filch_pid pid, const filch_child *child, uint64_t tag)
{
    return send_start(sched, pid, child, &tag);
}

static filch_err send_plain(filch_sched *sched, filch_pid pid, order_kind kind, const char *id, const uint64_t *tag)
{
    order *o = order_make(sched, kind, 0);
    if (o == NULL) return FILCH_ENOMEM;
    if (id != NULL) strcpy(o->as.stop, id);
    return order_send(sched, pid, o, tag);
}

static filch_err send_stop(filch_sched *sched, filch_pid pid, const char *id, const uint64_t *tag)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!id_is_sound(id)) return filch_invalid("id is NULL or not 1 to 63 bytes");
    return send_plain(sched, pid, ORDER_STOP, id, tag);
}

filch_err filch_child_stop(filch_sched *sched, filch_pid pid, const char *id)
{
    return send_stop(sched, pid, id, NULL);
}

filch_err filch_child_stop_tagged(filch_sched *sched, filch_pid pid, const char *id, uint64_t tag)
{
    return send_stop(sched, pid, id, &tag);
}

filch_err filch_child_list(filch_sched *sched, filch_pid pid)
{
    return sched != NULL ? send_plain(sched, pid, ORDER_LIST, NULL, NULL) : filch_invalid("sched is NULL");
}

filch_err filch_child_await(filch_sched *sched, filch_pid pid)
{
    return sched != NULL ? send_plain(sched, pid, ORDER_AWAIT, NULL, NULL) : filch_invalid("sched is NULL");
}

/* ---- children ---- */

static void drop_askers(const supervisor *s, asker **askers)
{
    while (*askers != NULL) {
        asker *first = *askers;
        *askers = first->next;
        fli_asker_free(s->memory, first);
    }
}

/* It has to stop, if it is up. */
static void must_stop(supervisor *s, kid *k)
{
    k->must_stop = k->state != FLI_KID_DOWN;
    fli_kids_note(&s->kids, k);
}

static uint64_t stop_ns_of(const kid *k)
{
    if (k->spec.stop_ns != 0) return k->spec.stop_ns;
    /* A supervisor gets the time that its children take. */
    return k->spec.supervisor != NULL ? FILCH_FOREVER : STOP_NS;
}

/* The args of a child that came later. */
static filch_data args_of(const kid *k)
{
    const order *o = filch_raw(&k->order);
    if (o->args_kind < FILCH_KIND_TEXT) return o->as.start.value;
    return o->args_kind == FILCH_KIND_TEXT ? filch_str((const char *)(o + 1))
                                           : filch_bytes(o + 1, o->size - sizeof *o - 1);
}

static filch_err start(supervisor *s, kid *k)
{
    filch_spawn_options opt;
    const filch_type   *type = k->spec.type;
    filch_data          report = filch_ptr((void *)(uintptr_t)&are_up);
    filch_err           err = read_options(k->spec.options, &opt);
    if (err != FILCH_OK) return err;
    if (k->late) opt.args = args_of(k);
    if (k->spec.supervisor != NULL) {
        if (type == NULL) type = &filch_supervisor_type;
        opt.args = filch_ptr((void *)(uintptr_t)k->spec.supervisor);
        opt.messages = &report; /* its sender is who wants to hear it back */
        opt.message_count = 1;
        opt.relations |= FILCH_SPAWN_TRAP;
    }
    opt.relations |= FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK | FILCH_SPAWN_SUPERVISED;
    opt.tag = k->id;
    k->started_ns = filch_now(s->sched); /* an attempt counts: who cannot even start is not stable */
    filch_pid pid;
    err = filch_spawn(s->sched, type, &opt, &pid);
    if (err != FILCH_OK) return err;
    fli_kids_born(&s->kids, k, pid);
    k->state = FLI_KID_UP;
    k->ready = k->spec.supervisor == NULL;
    fli_kids_note(&s->kids, k);
    return FILCH_OK;
}

/* ---- restarting ---- */

/* All have to stop, and nobody is wanted any more. The first reason counts. */
static void end_with(supervisor *s, filch_err error)
{
    if (s->ending) return;
    s->ending = true;
    s->error = error;
    for (kid *k = s->kids.first[FLI_KIDS_ALL]; k != NULL; k = k->next[FLI_KIDS_ALL]) {
        k->wanted = false;
        must_stop(s, k);
    }
}

/* Notes a restart. False: there have been too many in too short a time. */
static bool count_restart(supervisor *s, uint64_t now_ns)
{
    uint64_t period_ns = s->spec->period_ns != 0 ? s->spec->period_ns : PERIOD_NS;
    while (s->restart_count > 0 && now_ns - s->restarts[s->restart_first] > period_ns) {
        s->restart_first = (s->restart_first + 1) % s->intensity;
        s->restart_count--;
    }
    if (s->restart_count == s->intensity) return false;
    s->restarts[(s->restart_first + s->restart_count++) % s->intensity] = now_ns;
    return true;
}

/* Spreads bits; neighbours come out unrelated. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* How long to wait before a restart. The jitter follows from who restarts whom for which time: supervisors that fail
 * together do not come back together, and the same run is the same again. */
static uint64_t backoff_of(const supervisor *s, const kid *k, filch_pid me)
{
    const filch_supervisor *spec = s->spec;
    if (spec->backoff_ns == 0) return 0;
    uint64_t most = spec->backoff_max_ns != 0 ? spec->backoff_max_ns : BACKOFF_MAX_NS, wait = spec->backoff_ns;
    uint64_t percent = spec->backoff_percent != 0 ? spec->backoff_percent : FACTOR_PERCENT;
    for (uint32_t i = 1; i < k->streak && wait < most; i++) {
        bool far = wait / 100 >= most / percent; /* the product would be more, perhaps more than a number holds */
        wait = far ? most : wait / 100 * percent + wait % 100 * percent / 100;
    }
    if (wait > most) wait = most;
    uint64_t spread = wait / 1000 * spec->jitter;
    uint64_t drawn = mix(mix(me.node ^ me.serial) ^ TAG_OF(k->id, k->streak));
    if (spread == 0) return wait;
    wait -= spread / 2;
    return drawn % spread < FILCH_FOREVER - wait ? wait + drawn % spread : FILCH_FOREVER;
}

/* Holds back what the failure of `k` will start again, for its back-off. */
static void hold(supervisor *s, kid *k, filch_err why, filch_out *out)
{
    bool     alone = s->spec->strategy == FILCH_ONE_FOR_ONE;
    uint64_t wait = backoff_of(s, k, filch_ctx_self(filch_out_ctx(out)));
    /* Its name belongs to one that is about to end: the child of a supervisor that was here before us, say. */
    if (why == FILCH_EEXISTS && wait < NAME_NS) wait = NAME_NS;
    uint32_t turn = ++s->turn;
    /* Without memory for a sleep it is started at once: the intensity still bounds that. */
    bool held = wait > 0 && filch_yield_sleep(out, TAG_OF(alone ? k->id : 0, turn), wait) == FILCH_OK;
    if (alone) k->held = held;
    else s->held = held;
    fli_kids_note(&s->kids, k);
}

/* Why it gives up: the last failure, with the first line of the words that came with it. */
static void explain(supervisor *s, const kid *k, filch_err why, const filch_data *words)
{
    filch_kind  kind = filch_kind_of(words);
    bool        said = (kind == FILCH_KIND_TEXT || kind == FILCH_KIND_BYTES) && filch_size(words) > 0;
    const char *text = said ? filch_raw(words) : filch_err_text(why);
    size_t      size = said ? filch_size(words) : strlen(text), line = 0;
    while (line < size && text[line] >= ' ') line++;
    snprintf(s->why, sizeof s->why, "too many restarts, the last of '%s': %.*s", k->spec.id, (int)line, text);
}

/* Tells the host's log which child it is about, and why. */
static void log_failure(const supervisor *s, filch_log_level level, const char *what, const kid *k, filch_err why)
{
    char text[FILCH_LOG_MAX];
    snprintf(text, sizeof text, "%s: '%s', %s", what, k->spec.id, why == FILCH_OK ? "which had ended" : filch_err_text(why));
    (void)filch_log(s->sched, level, why, text);
}

/* The scheduler stops: a child that is down stays down, and its siblings are left to their turn. */
static void give_up(supervisor *s, kid *k)
{
    k->wanted = false;
    fli_kids_note(&s->kids, k);
}

static void fail(supervisor *s, kid *k, filch_err why, const filch_data *words, filch_out *out)
{
    if (filch_sched_stopping(s->sched)) {
        give_up(s, k);
        return;
    }
    uint64_t now_ns = filch_now(s->sched);
    uint64_t stable_ns = s->spec->stable_ns != 0 ? s->spec->stable_ns : PERIOD_NS;
    if (!count_restart(s, now_ns)) {
        if (k->begun && !s->ending) explain(s, k, why, words);
        if (!s->ending) log_failure(s, FILCH_LOG_ERROR, "gives up", k, why);
        end_with(s, k->begun ? FILCH_ELIMIT : why); /* one that never began: what stood in its way */
        return;
    }
    k->streak = now_ns - k->started_ns >= stable_ns ? 1 : k->streak + 1;
    if (!s->ending) log_failure(s, FILCH_LOG_WARNING, "starts a child again", k, why);
    kid *first = s->spec->strategy == FILCH_ONE_FOR_ALL ? s->kids.first[FLI_KIDS_ALL] : k;
    if (s->spec->strategy == FILCH_ONE_FOR_ONE) first = NULL;
    for (kid *other = first; other != NULL; other = other->next[FLI_KIDS_ALL]) must_stop(s, other);
    hold(s, k, why, out);
}

/* ---- bringing what is closer to what should be ---- */

static void tell(const supervisor *s, filch_pid to, filch_data answer)
{
    if (to.serial == 0) return;
    /* Whoever has ended, or does not read, does not hear it. One whose answer is too large hears that. */
    filch_err err = filch_send(s->sched, to, answer);
    if (err == FILCH_ETOOBIG || err == FILCH_ENOMEM) (void)!filch_send(s->sched, to, filch_int(err));
}

/* Answers an order about a child. `reply` is none if the order has no tag. */
static void answer(const supervisor *s, filch_pid to, const filch_data *reply, filch_pid pid, filch_err error)
{
    if (filch_kind_of(reply) == FILCH_KIND_NONE) {
        tell(s, to, error == FILCH_OK && pid.serial != 0 ? filch_of_pid(pid) : filch_int(error));
        return;
    }
    fli_answer_fill(reply, pid, error);
    tell(s, to, *reply);
}

/* Stops the last one that has to. True: somebody is still on the way. */
static bool stop_one(supervisor *s)
{
    kid *k = s->kids.last[FLI_KIDS_MUST_STOP];
    if (s->kids.stopping != NULL) return true;
    if (k == NULL) return false;
    filch_err err = filch_cancel_with(s->sched, k->pid, FILCH_ECANCELLED, stop_ns_of(k));
    /* No memory for politeness. If it is dead, the news of it is under way. */
    if (err != FILCH_OK) (void)!filch_terminate(s->sched, k->pid);
    k->state = FLI_KID_STOPPING;
    fli_kids_note(&s->kids, k);
    return true;
}

static bool somebody_must_stop(const supervisor *s)
{
    return s->kids.first[FLI_KIDS_MUST_STOP] != NULL;
}

/* Starts whoever is owed, in order, up to the first supervisor whose children are not up. False: some are left for the
 * next step. */
static bool start_all(supervisor *s, filch_out *out)
{
    const kid *barrier = s->kids.first[FLI_KIDS_UNREADY];
    kid       *k;
    for (int started = 0; (k = s->kids.first[FLI_KIDS_OWED]) != NULL && !s->held; started++) {
        if (barrier != NULL && barrier->id < k->id) return true;
        if (started == STARTS_MAX) return false;
        filch_err err = start(s, k);
        if (err == FILCH_OK && !k->ready) return true;
        if (err == FILCH_OK) continue;
        /* When the scheduler stops, and at the beginning, there is nothing to try again. */
        if (err == FILCH_ECLOSED) give_up(s, k);
        else if (!k->begun && err != FILCH_EEXISTS) end_with(s, err);
        else fail(s, k, err, NULL, out);
        if (s->ending || somebody_must_stop(s)) return true; /* first things first */
        /* Without a back-off it is still the first that is owed: again, until there have been too many. */
    }
    return true;
}

/* Tells the parent and whoever else waits, once, that all are up. False: there was no memory or room to tell the parent,
 * which waits for that word. */
static bool report(supervisor *s)
{
    if (s->kids.missing > 0) return true;
    for (const asker *a = s->waiters; a != NULL; a = a->next) tell(s, a->pid, filch_int(FILCH_OK));
    drop_askers(s, &s->waiters);
    if (s->parent.serial == 0) return true;
    filch_err err = filch_send(s->sched, s->parent, filch_ptr((void *)(uintptr_t)&are_up));
    if (err == FILCH_ENOMEM || err == FILCH_EFULL || err == FILCH_EDROPPED) return false;
    s->parent = (filch_pid){ 0, 0 };
    return true;
}

static filch_err finish(const supervisor *s, filch_out *out)
{
    if (s->error == FILCH_OK) return filch_done(out, filch_none());
    return s->why[0] != '\0' ? filch_fail(out, s->error, filch_str(s->why)) : s->error;
}

static void obey_start(supervisor *s, const filch_data *data, filch_pid from)
{
    const order *o = filch_raw(data);
    kid         *k = NULL;
    filch_err    err = s->ending ? FILCH_ECLOSED : fli_kids_add(&s->kids, &o->as.start.child, &k);
    if (err == FILCH_OK) err = filch_keep(data, &k->order);
    if (err == FILCH_OK) {
        k->late = true;
        err = start(s, k);
    }
    answer(s, from, &o->reply, err == FILCH_OK ? k->pid : (filch_pid){ 0, 0 }, err);
    if (err != FILCH_OK && k != NULL) fli_kids_drop(&s->kids, k);
}

/* It is not wanted any more. */
static void send_away(supervisor *s, kid *k)
{
    k->wanted = k->held = false;
    k->leaves = true;
    must_stop(s, k);
}

/* Does what waited for a child to leave: answers those that stopped it, then starts the next one of that id. A stop that
 * came after that start is for the next one, and what came after it waits for that to leave. Takes the list. */
static void answer_askers(supervisor *s, asker *askers)
{
    kid *next = NULL;
    for (asker *a; (a = askers) != NULL;) {
        bool starts = filch_kind_of(&a->start) != FILCH_KIND_NONE;
        if (!starts && next != NULL) {
            send_away(s, next);
            next->askers = askers;
            return;
        }
        if (starts) {
            obey_start(s, &a->start, a->pid);
            next = fli_kids_named(&s->kids, ((const order *)filch_raw(&a->start))->as.start.child.id);
        } else {
            answer(s, a->pid, &a->reply, (filch_pid){ 0, 0 }, FILCH_OK);
        }
        askers = a->next;
        fli_asker_free(s->memory, a);
    }
}

/* Those who were asked to leave, and are down, are forgotten. */
static void let_leave(supervisor *s)
{
    for (kid *k = s->kids.last[FLI_KIDS_LEAVING], *before; k != NULL; k = before) {
        before = k->prev[FLI_KIDS_LEAVING];
        if (k->state != FLI_KID_DOWN) continue; /* started below, and asked to leave again */
        asker *askers = k->askers;
        k->askers = NULL;
        fli_kids_drop(&s->kids, k);
        answer_askers(s, askers);
    }
}

static filch_err reconcile(supervisor *s, filch_out *out)
{
    for (;;) {
        if (stop_one(s)) return filch_idle(out);
        /* Here everybody who had to stop is down: those who leave, and at the end all of them. */
        let_leave(s);
        if (s->ending) return finish(s, out);
        if (!start_all(s, out)) return filch_continue(out);
        if (s->ending || somebody_must_stop(s)) continue;
        bool awaited = s->parent.serial != 0 || s->waiters != NULL;
        return awaited && !report(s) ? filch_continue(out) : filch_idle(out);
    }
}

/* ---- events ---- */

static void hear_of_exit(supervisor *s, const filch_event *event, filch_out *out)
{
    kid *k = fli_kids_with(&s->kids, event->from);
    if (k == NULL || k->state == FLI_KID_DOWN) return; /* somebody has us watch a stranger */
    bool stopped = k->state == FLI_KID_STOPPING;
    bool asked = stopped || k->must_stop; /* it went before it was its turn */
    bool well = event->error == FILCH_OK && !stopped;
    k->state = FLI_KID_DOWN;
    k->must_stop = false;
    if (k->spec.restart == FILCH_TEMPORARY || (k->spec.restart == FILCH_TRANSIENT && well)) {
        k->wanted = false; /* also when it was stopped for the sake of others: they come back, it does not */
        if (k->spec.restart == FILCH_TEMPORARY) k->leaves = true;
    }
    fli_kids_note(&s->kids, k);
    if (k->wanted && !asked) fail(s, k, event->error, &event->data, out);
}

static void hear_of_sleep(supervisor *s, uint64_t tag)
{
    uint32_t id = (uint32_t)(tag >> 32);
    if (id == 0) {
        if ((uint32_t)tag == s->turn) s->held = false;
        return;
    }
    kid *k = fli_kids_numbered(&s->kids, id);
    if (k == NULL) return;
    k->held = false;
    fli_kids_note(&s->kids, k);
}

/* One more at the end of the list. Returns it, or NULL without memory: then that is the answer. */
static asker *add_asker(const supervisor *s, asker **askers, filch_pid from, const filch_data *reply)
{
    asker *a = get(s->memory, sizeof *a);
    if (a == NULL) {
        answer(s, from, reply, (filch_pid){ 0, 0 }, FILCH_ENOMEM);
        return NULL;
    }
    a->pid = from;
    (void)!filch_keep(reply, &a->reply); /* shared, or none: needs no memory */
    while (*askers != NULL) askers = &(*askers)->next;
    return *askers = a;
}

/* Starts a child; if its id belongs to one that is leaving, when that has left. */
static void hear_start(supervisor *s, const filch_event *event)
{
    const order *o = filch_raw(&event->data);
    kid         *k = s->ending ? NULL : fli_kids_named(&s->kids, o->as.start.child.id);
    if (k == NULL || !k->leaves) {
        obey_start(s, &event->data, event->from);
        return;
    }
    asker *a = add_asker(s, &k->askers, event->from, &o->reply);
    if (a != NULL) (void)!filch_keep(&event->data, &a->start);
}

static void obey_stop(supervisor *s, const order *o, filch_pid from)
{
    kid *k = fli_kids_named(&s->kids, o->as.stop);
    if (k == NULL) {
        answer(s, from, &o->reply, (filch_pid){ 0, 0 }, FILCH_EDEAD);
        return;
    }
    if (from.serial != 0 && add_asker(s, &k->askers, from, &o->reply) == NULL) return;
    send_away(s, k);
}

static void obey_list(supervisor *s, filch_pid from)
{
    size_t            size = s->kids.count * sizeof(filch_child_info);
    filch_child_info *list = size > 0 ? get(s->memory, size) : NULL;
    if (list == NULL && size > 0) {
        tell(s, from, filch_int(FILCH_ENOMEM));
        return;
    }
    filch_child_info *info = list;
    for (const kid *k = s->kids.first[FLI_KIDS_ALL]; k != NULL; k = k->next[FLI_KIDS_ALL], info++) {
        strcpy(info->id, k->spec.id);
        info->running = k->state != FLI_KID_DOWN;
        if (info->running) info->pid = k->pid;
        info->restarts = k->streak;
    }
    tell(s, from, filch_bytes(list, size));
    give(s->memory, list, size);
}

/* From our parent, who wants to hear it; or from a child. */
static void hear_of_start(supervisor *s, filch_pid from)
{
    kid *k = fli_kids_with(&s->kids, from);
    if (k == NULL) {
        s->parent = from;
        return;
    }
    k->ready = true;
    fli_kids_note(&s->kids, k);
}

/* Our mailbox has a limit and dropped messages: the word of a child may have been among them, so ask for it again. */
static void ask_again(const supervisor *s)
{
    for (const kid *k = s->kids.first[FLI_KIDS_UNREADY]; k != NULL; k = k->next[FLI_KIDS_UNREADY]) {
        tell(s, k->pid, filch_ptr((void *)(uintptr_t)&are_up));
    }
}

static void obey(supervisor *s, const filch_event *event)
{
    if (filch_as_ptr(&event->data) == &are_up) {
        hear_of_start(s, event->from);
        return;
    }
    const order *o = filch_shared_user(&event->data, order_free);
    if (o == NULL) return; /* no order: nobody's business */
    switch (o->kind) {
    case ORDER_START: hear_start(s, event); break;
    case ORDER_STOP: obey_stop(s, o, event->from); break;
    /* Answered when all are up, which may be in this very step. */
    case ORDER_AWAIT:
        if (event->from.serial != 0) (void)add_asker(s, &s->waiters, event->from, &o->reply);
        break;
    default: obey_list(s, event->from); break;
    }
}

static filch_err supervisor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    supervisor *s = self;
    (void)!filch_trap_links(out, 1); /* inside a step it cannot fail */
    for (size_t i = 0; i < count; i++) {
        switch (events[i].type) {
        case FILCH_EVENT_CANCEL: end_with(s, FILCH_OK); break;
        case FILCH_EVENT_EXIT: hear_of_exit(s, &events[i], out); break;
        case FILCH_EVENT_YIELD: hear_of_sleep(s, events[i].tag); break;
        case FILCH_EVENT_MESSAGE: obey(s, &events[i]); break;
        case FILCH_EVENT_DROPPED: ask_again(s); break;
        case FILCH_EVENT_LINK_DOWN:
            /* Of a child, it comes before its EXIT: it still is one. Otherwise the one we belong to is gone. */
            if (fli_kids_with(&s->kids, events[i].from) == NULL) end_with(s, FILCH_ELINK);
            break;
        default: break;
        }
    }
    return reconcile(s, out);
}

/* ---- the type ---- */

static void supervisor_close(void *self)
{
    supervisor *s = self;
    fli_kids_fini(&s->kids);
    drop_askers(s, &s->waiters);
    give(s->memory, s->restarts, s->intensity * sizeof *s->restarts);
}

static bool spec_is_sound(const filch_supervisor *spec)
{
    bool bounded = spec->intensity <= INTENSITY_MAX || spec->intensity == FILCH_NO_RESTARTS;
    if (spec->strategy > FILCH_REST_FOR_ONE) return unsound("spec.strategy is no filch_strategy");
    if (spec->jitter > 1000) return unsound("spec.jitter is over 1000");
    if (!bounded) return unsound("spec.intensity is over 10000");
    if (spec->children == NULL && spec->child_count != 0) return unsound("spec.children is NULL, child_count is not 0");
    if (spec->spare != 0) return unsound("spec.spare is not 0");
    return true;
}

static filch_err supervisor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    supervisor             *s = self;
    const filch_supervisor *spec = filch_as_ptr(args);
    if (method != NULL) return FILCH_EMETHOD;
    if (spec == NULL) return filch_invalid("args is no filch_ptr to a filch_supervisor");
    if (!spec_is_sound(spec)) return FILCH_EINVAL;
    s->spec = spec;
    s->sched = filch_ctx_sched(ctx);
    s->memory = filch_sched_memory(s->sched);
    fli_kids_init(&s->kids, s->memory);
    if (spec->intensity != FILCH_NO_RESTARTS) s->intensity = spec->intensity != 0 ? spec->intensity : INTENSITY;
    filch_err err = FILCH_OK;
    if (s->intensity > 0) {
        s->restarts = get(s->memory, s->intensity * sizeof *s->restarts);
        if (s->restarts == NULL) err = FILCH_ENOMEM;
    }
    for (size_t i = 0; err == FILCH_OK && i < spec->child_count; i++) {
        filch_spawn_options opt;
        bool sound = child_is_sound(&spec->children[i], &opt);
        err = sound ? fli_kids_add(&s->kids, &spec->children[i], NULL) : FILCH_EINVAL;
    }
    if (err != FILCH_OK) supervisor_close(s);
    return err;
}

const filch_type filch_supervisor_type = {
    .name = "supervisor",
    .size = sizeof(supervisor),
    .init = supervisor_init,
    .step = supervisor_step,
    .close = supervisor_close,
};

filch_err filch_supervise(filch_sched *sched, const filch_supervisor *spec, const filch_spawn_options *options,
                          filch_pid *pid)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (spec == NULL) return filch_invalid("spec is NULL");
    filch_spawn_options opt;
    filch_err           err = read_options(options, &opt);
    if (err != FILCH_OK) return err;
    opt.args = filch_ptr((void *)(uintptr_t)spec);
    opt.relations |= FILCH_SPAWN_TRAP;
    return filch_spawn(sched, &filch_supervisor_type, &opt, pid);
}
