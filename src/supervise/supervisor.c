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
#include <stdlib.h>
#include <string.h>

#define STOP_NS FILCH_SECONDS(5)
#define INTENSITY 3
#define INTENSITY_MAX 10000
#define PERIOD_NS FILCH_SECONDS(5)
#define FACTOR_PERCENT 200
#define BACKOFF_MAX_NS FILCH_SECONDS(30)
#define NAME_NS FILCH_MILLISECONDS(1)
#define WHY_MAX 160

/* Tags of sleeps: which child (0: the group), and which sleep of it. */
#define TAG_OF(id, turn) ((uint64_t)(id) << 32 | (turn))

typedef enum kid_state { KID_DOWN, KID_UP, KID_STOPPING } kid_state;

/* Somebody who wants to hear that a child has left. */
typedef struct asker {
    struct asker *next;
    filch_pid     pid;
} asker;

typedef struct kid {
    filch_child spec;
    filch_data  order; /* of a child that came later: what brought it, kept */
    filch_pid   pid;
    uint64_t    started_ns;
    uint32_t    id;                              /* never used again */
    uint32_t    turn;                            /* of its sleeps: an older one does not count */
    uint32_t    streak;                          /* restarts since it was last stable */
    uint8_t     state;                           /* kid_state */
    bool        wanted, must_stop, held, leaves; /* held: until its sleep is over. leaves: when it is down, it goes */
    bool        late;                            /* was not in the description */
    bool        begun;                           /* has been started once */
    bool        ready;                           /* a supervisor: its children are up */
    asker      *askers;                          /* are told when it has left */
} kid;

typedef struct supervisor {
    const filch_supervisor *spec;
    kid                    *kids;
    size_t                  count, room;
    uint32_t                ids, turn;
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
static void *get(size_t size)
{
    void *at = malloc(size);
    return at != NULL ? memset(at, 0, size) : NULL;
}

/* ---- orders from others ---- */

typedef enum order_kind { ORDER_START, ORDER_STOP, ORDER_LIST, ORDER_AWAIT } order_kind;

static const char seal;   /* what an order begins with */
static const char are_up; /* what a supervisor tells its parent points here */

typedef struct order {
    const char *seal;
    order_kind  kind;
    filch_child child;
    filch_data  args; /* kept */
    char        id[FILCH_CHILD_ID_MAX + 1];
} order;

static void order_free(void *user, void *bytes, size_t size)
{
    order *o = bytes;
    (void)user;
    (void)size;
    if (o->child.release != NULL) o->child.release(&o->child);
    filch_drop(&o->args);
    free(o);
}

static filch_err order_send(filch_sched *sched, filch_pid supervisor_pid, order *o)
{
    filch_data data;
    o->seal = &seal;
    filch_err err = filch_share(o, sizeof *o, order_free, NULL, &data);
    if (err == FILCH_OK) {
        err = filch_send(sched, supervisor_pid, data);
        if (err != FILCH_OK) o->child.release = NULL; /* nobody has it: it is still the caller's */
        filch_drop(&data);
        return err;
    }
    o->child.release = NULL;
    order_free(NULL, o, sizeof *o);
    return err;
}

static bool id_is_sound(const char *id)
{
    return id != NULL && id[0] != '\0' && strlen(id) <= FILCH_CHILD_ID_MAX;
}

/* As filch_spawn reads them: of an older header, or of a newer one that asks for nothing we do not know. */
static filch_err read_options(const filch_spawn_options *given, filch_spawn_options *out)
{
    *out = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    if (given == NULL) return FILCH_OK;
    if (given->size < sizeof given->size) return FILCH_EINVAL;
    for (size_t i = sizeof *out; i < given->size; i++) {
        if (((const unsigned char *)given)[i] != 0) return FILCH_EINVAL;
    }
    memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    out->size = sizeof *out;
    return FILCH_OK;
}

static bool child_is_sound(const filch_child *child)
{
    filch_spawn_options opt;
    if (!id_is_sound(child->id) || child->restart > FILCH_TEMPORARY || child->spare != 0) return false;
    if (read_options(child->options, &opt) != FILCH_OK) return false;
    /* A supervisor has a type of its own only where that wraps ours. */
    return child->type != NULL ? child->type->step != NULL : child->supervisor != NULL;
}

filch_err filch_child_start(filch_sched *sched, filch_pid pid, const filch_child *child)
{
    if (sched == NULL || child == NULL || !child_is_sound(child)) return FILCH_EINVAL;
    order *o = get(sizeof *o);
    if (o == NULL) return FILCH_ENOMEM;
    o->kind = ORDER_START;
    o->child = *child;
    filch_spawn_options opt;
    filch_err           err = read_options(child->options, &opt);
    /* Options lend their args, also a filch_move, which filch_keep alone would take. */
    bool bytes = filch_kind_of(&opt.args) == FILCH_KIND_BYTES;
    if (bytes) opt.args = filch_bytes(filch_raw(&opt.args), filch_size(&opt.args));
    if (err == FILCH_OK) err = filch_keep(&opt.args, &o->args);
    if (err != FILCH_OK) {
        free(o);
        return err;
    }
    return order_send(sched, pid, o);
}

static filch_err send_plain(filch_sched *sched, filch_pid pid, order_kind kind, const char *id)
{
    order *o = get(sizeof *o);
    if (o == NULL) return FILCH_ENOMEM;
    o->kind = kind;
    o->args = filch_none();
    if (id != NULL) strcpy(o->id, id);
    return order_send(sched, pid, o);
}

filch_err filch_child_stop(filch_sched *sched, filch_pid pid, const char *id)
{
    return sched != NULL && id_is_sound(id) ? send_plain(sched, pid, ORDER_STOP, id) : FILCH_EINVAL;
}

filch_err filch_child_list(filch_sched *sched, filch_pid pid)
{
    return sched != NULL ? send_plain(sched, pid, ORDER_LIST, NULL) : FILCH_EINVAL;
}

filch_err filch_child_await(filch_sched *sched, filch_pid pid)
{
    return sched != NULL ? send_plain(sched, pid, ORDER_AWAIT, NULL) : FILCH_EINVAL;
}

/* ---- children ---- */

static kid *find_id(supervisor *s, const char *id)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->kids[i].spec.id, id) == 0) return &s->kids[i];
    }
    return NULL;
}

static filch_err add(supervisor *s, const filch_child *spec, kid **out)
{
    if (find_id(s, spec->id) != NULL) return FILCH_EEXISTS;
    if (s->count == s->room) {
        size_t room = s->room == 0 ? 8 : s->room * 2;
        kid   *kids = get(room * sizeof *kids);
        if (kids == NULL) return FILCH_ENOMEM;
        if (s->count > 0) memcpy(kids, s->kids, s->count * sizeof *kids);
        free(s->kids);
        s->kids = kids;
        s->room = room;
    }
    kid *k = &s->kids[s->count++];
    *k = (kid){ .spec = *spec, .order = filch_none(), .id = ++s->ids, .wanted = true };
    if (out != NULL) *out = k;
    return FILCH_OK;
}

static void drop_askers(asker **askers)
{
    while (*askers != NULL) {
        asker *first = *askers;
        *askers = first->next;
        free(first);
    }
}

static void drop(supervisor *s, kid *k)
{
    drop_askers(&k->askers);
    filch_drop(&k->order);
    memmove(k, k + 1, (size_t)(s->kids + s->count - k - 1) * sizeof *k);
    s->count--;
}

static uint64_t stop_ns_of(const kid *k)
{
    if (k->spec.stop_ns != 0) return k->spec.stop_ns;
    /* A supervisor gets the time that its children take. */
    return k->spec.supervisor != NULL ? FILCH_FOREVER : STOP_NS;
}

static filch_err start(kid *k, filch_sched *sched)
{
    filch_spawn_options opt;
    const filch_type   *type = k->spec.type;
    filch_data          report = filch_ptr((void *)(uintptr_t)&are_up);
    filch_err           err = read_options(k->spec.options, &opt);
    if (err != FILCH_OK) return err;
    if (k->late) opt.args = ((const order *)filch_raw(&k->order))->args;
    if (k->spec.supervisor != NULL) {
        if (type == NULL) type = &filch_supervisor_type;
        opt.args = filch_ptr((void *)(uintptr_t)k->spec.supervisor);
        opt.messages = &report; /* its sender is who wants to hear it back */
        opt.message_count = 1;
        opt.relations |= FILCH_SPAWN_TRAP;
    }
    opt.relations |= FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK;
    opt.tag = k->id;
    k->started_ns = filch_sim_now(sched); /* an attempt counts: who cannot even start is not stable */
    err = filch_spawn(sched, type, &opt, &k->pid);
    if (err != FILCH_OK) return err;
    k->state = KID_UP;
    k->begun = true;
    k->ready = k->spec.supervisor == NULL;
    return FILCH_OK;
}

/* ---- restarting ---- */

/* All have to stop, and nobody is wanted any more. The first reason counts. */
static void end_with(supervisor *s, filch_err error)
{
    if (s->ending) return;
    s->ending = true;
    s->error = error;
    for (size_t i = 0; i < s->count; i++) {
        s->kids[i].wanted = false;
        s->kids[i].must_stop = s->kids[i].state != KID_DOWN;
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
    k->turn = turn;
    /* Without memory for a sleep it is started at once: the intensity still bounds that. */
    bool held = wait > 0 && filch_yield_sleep(out, TAG_OF(alone ? k->id : 0, turn), wait) == FILCH_OK;
    if (alone) k->held = held;
    else s->held = held;
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

static void fail(supervisor *s, kid *k, filch_err why, const filch_data *words, filch_out *out)
{
    uint64_t now_ns = filch_sim_now(filch_ctx_sched(filch_out_ctx(out)));
    uint64_t stable_ns = s->spec->stable_ns != 0 ? s->spec->stable_ns : PERIOD_NS;
    if (!count_restart(s, now_ns)) {
        bool ran = k->begun || k->late; /* one that never began: what stood in its way */
        if (ran && !s->ending) explain(s, k, why, words);
        end_with(s, ran ? FILCH_ELIMIT : why);
        return;
    }
    k->streak = now_ns - k->started_ns >= stable_ns ? 1 : k->streak + 1;
    size_t at = (size_t)(k - s->kids), first = at;
    if (s->spec->strategy == FILCH_ONE_FOR_ALL) first = 0;
    if (s->spec->strategy != FILCH_ONE_FOR_ONE) {
        for (size_t i = first; i < s->count; i++) s->kids[i].must_stop = s->kids[i].state != KID_DOWN;
    }
    hold(s, k, why, out);
}

/* ---- bringing what is closer to what should be ---- */

static void tell(filch_out *out, filch_pid to, filch_data answer)
{
    filch_sched *sched = filch_ctx_sched(filch_out_ctx(out));
    if (to.serial == 0) return;
    /* Whoever has ended, or does not read, does not hear it. One whose answer is too large hears that. */
    filch_err err = filch_send(sched, to, answer);
    if (err == FILCH_ETOOBIG || err == FILCH_ENOMEM) (void)!filch_send(sched, to, filch_int(err));
}

/* Stops the last one that has to. True: somebody is still on the way. */
static bool stop_one(supervisor *s, filch_out *out)
{
    filch_sched *sched = filch_ctx_sched(filch_out_ctx(out));
    for (size_t i = s->count; i-- > 0;) {
        kid *k = &s->kids[i];
        if (k->state == KID_STOPPING) return true;
    }
    for (size_t i = s->count; i-- > 0;) {
        kid *k = &s->kids[i];
        if (!k->must_stop || k->state != KID_UP) continue;
        filch_err err = filch_cancel_with(sched, k->pid, FILCH_ECANCELLED, stop_ns_of(k));
        /* No memory for politeness. If it is dead, the news of it is under way. */
        if (err != FILCH_OK) (void)!filch_terminate(sched, k->pid);
        k->state = KID_STOPPING;
        return true;
    }
    return false;
}

static void start_all(supervisor *s, filch_out *out)
{
    filch_sched *sched = filch_ctx_sched(filch_out_ctx(out));
    for (size_t i = 0; i < s->count && !s->ending && !s->held; i++) {
        kid *k = &s->kids[i];
        if (k->state == KID_UP && !k->ready) return;
        if (!k->wanted || k->state != KID_DOWN || k->held) continue;
        filch_err err = start(k, sched);
        if (err == FILCH_OK && !k->ready) return;
        if (err == FILCH_OK) continue;
        /* At the beginning, and when everything stops, there is nothing to try again. */
        if (!k->begun && !k->late && err != FILCH_EEXISTS) end_with(s, err);
        else if (err == FILCH_ECLOSED) end_with(s, FILCH_OK);
        else fail(s, k, err, NULL, out);
        if (k->held || s->held || s->ending) continue;
        i--; /* without a back-off: again, until there have been too many */
    }
}

static bool is_empty(const supervisor *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].state != KID_DOWN) return false;
    }
    return true;
}

static bool is_up(const supervisor *s)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].wanted && (s->kids[i].state != KID_UP || !s->kids[i].ready)) return false;
    }
    return true;
}

/* Tells the parent and whoever else waits, once, that all are up. False: there was no memory or room to tell the parent,
 * which waits for that word. */
static bool report(supervisor *s, filch_out *out)
{
    if (!is_up(s)) return true;
    for (const asker *a = s->waiters; a != NULL; a = a->next) tell(out, a->pid, filch_int(FILCH_OK));
    drop_askers(&s->waiters);
    if (s->parent.serial == 0) return true;
    filch_err err = filch_send(filch_ctx_sched(filch_out_ctx(out)), s->parent, filch_ptr((void *)(uintptr_t)&are_up));
    if (err == FILCH_ENOMEM || err == FILCH_EFULL || err == FILCH_EDROPPED) return false;
    s->parent = (filch_pid){ 0, 0 };
    return true;
}

static filch_err finish(const supervisor *s, filch_out *out)
{
    if (s->error == FILCH_OK) return filch_done(out, filch_none());
    return s->why[0] != '\0' ? filch_fail(out, s->error, filch_str(s->why)) : s->error;
}

static filch_err reconcile(supervisor *s, filch_out *out)
{
    for (;;) {
        if (stop_one(s, out)) return filch_idle(out);
        for (size_t i = s->count; i-- > 0;) {
            kid *k = &s->kids[i];
            if (!k->leaves || k->state != KID_DOWN) continue;
            for (const asker *a = k->askers; a != NULL; a = a->next) tell(out, a->pid, filch_int(FILCH_OK));
            drop(s, k);
        }
        if (s->ending && is_empty(s)) return finish(s, out);
        start_all(s, out);
        bool awaited = s->parent.serial != 0 || s->waiters != NULL;
        if (awaited && !s->ending && !report(s, out)) return filch_continue(out);
        bool more = false;
        for (size_t i = 0; i < s->count; i++) more = more || (s->kids[i].must_stop && s->kids[i].state == KID_UP);
        if (!more && !s->ending) return filch_idle(out);
        if (s->ending && is_empty(s)) continue;
        if (!more) return filch_idle(out);
    }
}

/* ---- events ---- */

static void hear_of_exit(supervisor *s, const filch_event *event, filch_out *out)
{
    kid *k = NULL;
    for (size_t i = 0; i < s->count; i++) {
        bool same = s->kids[i].pid.serial == event->from.serial && s->kids[i].pid.node == event->from.node;
        if (s->kids[i].state != KID_DOWN && same) k = &s->kids[i];
    }
    if (k == NULL) return;
    bool stopped = k->state == KID_STOPPING;
    bool asked = stopped || k->must_stop; /* it went before it was its turn */
    bool well = event->error == FILCH_OK && !stopped;
    k->state = KID_DOWN;
    k->must_stop = false;
    if (k->spec.restart == FILCH_TEMPORARY || (k->spec.restart == FILCH_TRANSIENT && well)) {
        k->wanted = false; /* also when it was stopped for the sake of others: they come back, it does not */
        k->leaves = k->leaves || k->spec.restart == FILCH_TEMPORARY;
    } else if (!asked && !s->ending) {
        fail(s, k, event->error, &event->data, out);
    }
}

static void hear_of_sleep(supervisor *s, uint64_t tag)
{
    uint32_t id = (uint32_t)(tag >> 32);
    if (id == 0) {
        if ((uint32_t)tag == s->turn) s->held = false;
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].id == id && s->kids[i].turn == (uint32_t)tag) s->kids[i].held = false;
    }
}

static void obey_start(supervisor *s, const order *o, const filch_data *data, filch_pid from, filch_out *out)
{
    kid      *k;
    filch_err err = s->ending ? FILCH_ECLOSED : add(s, &o->child, &k);
    if (err == FILCH_OK) {
        k->late = true;
        err = filch_keep(data, &k->order);
        if (err == FILCH_OK) err = start(k, filch_ctx_sched(filch_out_ctx(out)));
        if (err != FILCH_OK) drop(s, k);
    }
    tell(out, from, err == FILCH_OK ? filch_of_pid(k->pid) : filch_int(err));
}

static void obey_stop(supervisor *s, const order *o, filch_pid from, filch_out *out)
{
    kid   *k = find_id(s, o->id);
    asker *a = k != NULL && from.serial != 0 ? get(sizeof *a) : NULL;
    if (k == NULL || (a == NULL && from.serial != 0)) {
        tell(out, from, filch_int(k == NULL ? FILCH_EDEAD : FILCH_ENOMEM));
        return;
    }
    if (a != NULL) {
        *a = (asker){ .next = k->askers, .pid = from };
        k->askers = a;
    }
    k->wanted = k->held = false;
    k->leaves = true;
    k->must_stop = k->state != KID_DOWN;
}

/* Answered when all are up, which may be in this very step. */
static void obey_await(supervisor *s, filch_pid from, filch_out *out)
{
    asker *a = from.serial != 0 ? get(sizeof *a) : NULL;
    if (a == NULL) {
        tell(out, from, filch_int(FILCH_ENOMEM));
        return;
    }
    *a = (asker){ .next = s->waiters, .pid = from };
    s->waiters = a;
}

static void obey_list(supervisor *s, filch_pid from, filch_out *out)
{
    filch_child_info *list = get((s->count > 0 ? s->count : 1) * sizeof *list);
    if (list == NULL) {
        tell(out, from, filch_int(FILCH_ENOMEM));
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        const kid *k = &s->kids[i];
        strcpy(list[i].id, k->spec.id);
        list[i].running = k->state != KID_DOWN;
        if (list[i].running) list[i].pid = k->pid;
        list[i].restarts = k->streak;
    }
    tell(out, from, filch_bytes(list, s->count * sizeof *list));
    free(list);
}

/* From our parent, who wants to hear it; or from a child. */
static void hear_of_start(supervisor *s, filch_pid from)
{
    kid *k = NULL;
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].pid.serial == from.serial && s->kids[i].pid.node == from.node) k = &s->kids[i];
    }
    if (k != NULL) k->ready = true;
    else s->parent = from;
}

/* Our mailbox has a limit and dropped messages: the word of a child may have been among them, so ask for it again. */
static void ask_again(const supervisor *s, filch_out *out)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].state != KID_UP || s->kids[i].ready) continue;
        tell(out, s->kids[i].pid, filch_ptr((void *)(uintptr_t)&are_up));
    }
}

static void obey(supervisor *s, const filch_event *event, filch_out *out)
{
    if (filch_as_ptr(&event->data) == &are_up) {
        hear_of_start(s, event->from);
        return;
    }
    const order *o = filch_raw(&event->data);
    if (filch_size(&event->data) != sizeof *o || o->seal != &seal) return; /* no order: nobody's business */
    switch (o->kind) {
    case ORDER_START: obey_start(s, o, &event->data, event->from, out); break;
    case ORDER_STOP: obey_stop(s, o, event->from, out); break;
    case ORDER_AWAIT: obey_await(s, event->from, out); break;
    default: obey_list(s, event->from, out); break;
    }
}

static bool is_child(const supervisor *s, filch_pid pid)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->kids[i].pid.serial == pid.serial && s->kids[i].pid.node == pid.node) return true;
    }
    return false;
}

static filch_err supervisor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    supervisor *s = self;
    filch_err   err = filch_trap_links(out, 1);
    if (err != FILCH_OK) return err;
    for (size_t i = 0; i < count; i++) {
        switch (events[i].type) {
        case FILCH_EVENT_CANCEL: end_with(s, FILCH_OK); break;
        case FILCH_EVENT_EXIT: hear_of_exit(s, &events[i], out); break;
        case FILCH_EVENT_YIELD: hear_of_sleep(s, events[i].tag); break;
        case FILCH_EVENT_MESSAGE: obey(s, &events[i], out); break;
        case FILCH_EVENT_DROPPED: ask_again(s, out); break;
        case FILCH_EVENT_LINK_DOWN:
            /* Of a child, it comes before its EXIT: it still is one. Otherwise the one we belong to is gone. */
            if (!is_child(s, events[i].from)) end_with(s, FILCH_ELINK);
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
    while (s->count > 0) drop(s, &s->kids[s->count - 1]);
    drop_askers(&s->waiters);
    free(s->kids);
    free(s->restarts);
}

static bool spec_is_sound(const filch_supervisor *spec)
{
    return spec->strategy <= FILCH_REST_FOR_ONE && spec->jitter <= 1000 &&
           (spec->intensity <= INTENSITY_MAX || spec->intensity == FILCH_NO_RESTARTS) &&
           (spec->children != NULL || spec->child_count == 0) && spec->spare == 0;
}

static filch_err supervisor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    supervisor             *s = self;
    const filch_supervisor *spec = filch_as_ptr(args);
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    if (spec == NULL || !spec_is_sound(spec)) return FILCH_EINVAL;
    s->spec = spec;
    if (spec->intensity != FILCH_NO_RESTARTS) s->intensity = spec->intensity != 0 ? spec->intensity : INTENSITY;
    filch_err err = FILCH_OK;
    if (s->intensity > 0) {
        s->restarts = malloc(s->intensity * sizeof *s->restarts);
        if (s->restarts == NULL) err = FILCH_ENOMEM;
    }
    for (size_t i = 0; err == FILCH_OK && i < spec->child_count; i++) {
        err = child_is_sound(&spec->children[i]) ? add(s, &spec->children[i], NULL) : FILCH_EINVAL;
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
    if (sched == NULL || spec == NULL) return FILCH_EINVAL;
    filch_spawn_options opt;
    filch_err           err = read_options(options, &opt);
    if (err != FILCH_OK) return err;
    opt.args = filch_ptr((void *)(uintptr_t)spec);
    opt.relations |= FILCH_SPAWN_TRAP;
    return filch_spawn(sched, &filch_supervisor_type, &opt, pid);
}
