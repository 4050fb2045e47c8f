/* supervisor.c - a process that starts, stops and restarts others: filch_supervisor_type. Uses only the public header
 * filch.h.
 *
 * The list of children holds the wanted state (each child is wanted or not) and the actual state (down, up, stopping).
 * Each step reads its events, updates both, and then moves the actual state towards the wanted one (reconcile): first
 * it stops the children that must stop, one at a time, from the last to the first; when none is left to stop it starts
 * the children that are wanted and down, from the first to the last. A restart of one child leaves the child wanted;
 * a restart of all also marks the others to be stopped; the end of the supervisor marks all children to be stopped and
 * none wanted. The only action outside reconcile is the first start of a child by a filch_child_start request, which
 * comes at once, whatever the other children do (do_start); only a child with the same id must have left before.
 *
 * A child that is itself a supervisor reports when its own children are up; reconcile starts the next sibling after
 * that.
 *
 * INVARIANT  at most one child is being stopped.
 * INVARIANT  reconcile starts no child while a child must stop.
 *
 * The supervisor links to and monitors each child: the monitor reports every exit; the link ends the children when the
 * supervisor is terminated. The supervisor traps links, so it gets an event when its own parent ends, and then stops
 * its children in order.
 * Design: docs/design/supervision.md.
 */
#include <filch.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/escape.h"
#include "base/versioned.h"
#include "supervise/answer.h"
#include "supervise/children.h"

#define STOP_NS FILCH_SECONDS(5)
#define INTENSITY 3
#define INTENSITY_MAX 10000
#define PERIOD_NS FILCH_SECONDS(5)
#define FACTOR_PERCENT 200
#define BACKOFF_MAX_NS FILCH_SECONDS(30)
#define NAME_NS FILCH_MILLISECONDS(1)
#define WHY_MAX 160
/* Maximal number of children started in one step. The remaining children start in later steps, so that other processes
 * can run between these steps. */
#define STARTS_MAX 16

/* The tag of a back-off sleep. The high 32 bits are the number of the child (0: the sleep is for all children), the low
 * 32 bits are the number of the sleep. */
#define TAG_OF(id, number) ((uint64_t)(id) << 32 | (number))

typedef struct supervisor {
    const filch_supervisor *spec;
    filch_sched            *sched;
    filch_memory            memory; /* allocator of the scheduler */
    fli_children            children;
    uint32_t                sleeps;   /* number of back-off sleeps started */
    uint64_t               *restarts; /* times of the last restarts: a ring buffer of `intensity` entries */
    uint32_t                restart_first, restart_count, intensity;
    /* With the strategies one-for-all and rest-for-one: a back-off is under way, and no child is started until it is
     * over. */
    bool     held;
    bool     untimed; /* if held: no sleep is outstanding that would end the back-off */
    uint64_t due_ns;  /* if held: the time at which the back-off ends */
    bool     ending;
    /* The parent supervisor. It gets one message when all children are up. Serial 0: that message has been sent, or
     * there is no parent. */
    filch_pid parent;
    /* The processes that have called filch_child_await: they get a message when all children are up. */
    fli_waiter *waiters;
    filch_err   error;        /* exit reason of the supervisor */
    char        why[WHY_MAX]; /* text of the exit reason; if empty, the default text of `error` is used */
} supervisor;

/* Allocates zeroed memory. Returns NULL if there is no memory. */
static void *get(filch_memory memory, size_t size)
{
    void *at = memory.alloc(memory.user, NULL, 0, size);
    return at != NULL ? memset(at, 0, size) : NULL;
}

static void give(filch_memory memory, void *at, size_t size)
{
    if (at != NULL) (void)memory.alloc(memory.user, at, size, 0);
}

/* ---- requests from other processes and threads ---- */

typedef enum control_kind { CONTROL_START, CONTROL_STOP, CONTROL_LIST, CONTROL_AWAIT } control_kind;

/* A message with the address of this variable has two meanings. From a child to its supervisor it means: all children
 * of that child are up. From a supervisor to a child it asks for that message. */
static const char children_up;

/* A request, sent as a shared payload. Its `user` pointer is the request itself. The receiver recognises a request by
 * its free function (filch_shared_user), so another process cannot forge a request from bytes. Args of kind text or
 * bytes follow the struct; a text has a NUL at its end. */
typedef struct control {
    /* A copy of the scheduler's allocator, because the request may outlive the scheduler it was sent to. */
    filch_memory memory;
    size_t       size; /* size of the struct and the bytes that follow it */
    control_kind kind;
    /* True if the request was not delivered: then the description of the child still belongs to the caller, so its
     * `release` is not called. */
    bool       unsent;
    filch_data reply; /* the prepared answer; of kind NONE if the request has no tag */
    filch_kind args_kind;
    union {
        struct {
            filch_child child;
            filch_data  value; /* args that are neither text nor bytes */
        } start;
        char stop[FILCH_CHILD_ID_MAX + 1];
    } as;
} control;

static void control_free(void *user, void *bytes, size_t size)
{
    control           *o = bytes;
    const filch_child *child = &o->as.start.child;
    (void)user;
    (void)size;
    if (o->kind == CONTROL_START && !o->unsent && child->release != NULL) child->release(child);
    filch_drop(&o->reply);
    give(o->memory, o, o->size);
}

static control *control_make(filch_sched *sched, control_kind kind, size_t follow)
{
    filch_memory memory = filch_sched_memory(sched);
    size_t       size = sizeof(control) + follow;
    control     *o = get(memory, size);
    if (o != NULL) *o = (control){ .memory = memory, .size = size, .kind = kind };
    return o;
}

/* Sends the request and takes ownership of it. If `tag` is not NULL, also allocates the answer. */
static filch_err control_send(filch_sched *sched, filch_pid supervisor_pid, control *o, const uint64_t *tag)
{
    filch_data data;
    filch_err  err = tag != NULL ? fli_answer_make(o->memory, *tag, &o->reply) : FILCH_OK;
    o->unsent = true;
    if (err == FILCH_OK) err = filch_share(o, o->size, control_free, o, &data);
    if (err != FILCH_OK) {
        control_free(NULL, o, o->size);
        return err;
    }
    o->unsent = false;
    err = filch_send(sched, supervisor_pid, data);
    if (err != FILCH_OK) o->unsent = true; /* the send failed, so filch_drop() below frees the request */
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

/* Sets `why` as the error text of this thread. Returns false. */
static bool unsound(const char *why)
{
    (void)filch_invalid(why);
    return false;
}

static bool is_unreserved(const filch_type *type)
{
    return type->reserved[0] == NULL && type->reserved[1] == NULL && type->reserved[2] == NULL;
}

static bool child_is_sound(const filch_child *child, filch_spawn_options *opt)
{
    if (!id_is_sound(child->id)) return unsound("child.id is NULL or not 1 to 63 bytes");
    if (child->restart > FILCH_TEMPORARY) return unsound("child.restart is not a filch_restart");
    if (child->spare != 0) return unsound("child.spare is not 0: it is reserved and must be 0");
    if (read_options(child->options, opt) != FILCH_OK) return false;
    /* A child with spec.supervisor needs no type. If it has a type, that type wraps filch_supervisor_type. */
    bool runs = child->type != NULL ? child->type->step != NULL : child->supervisor != NULL;
    if (!runs) return unsound("child has neither a type with a step nor a supervisor");
    if (child->type != NULL && !is_unreserved(child->type))
        return unsound("child.type.reserved is not NULL: it is reserved and must be NULL");
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
    if (bytes == NULL && follow > 0)
        return filch_invalid("args is not a valid payload: NULL bytes with a size, for example");
    if (follow > SIZE_MAX / 2) return FILCH_ETOOBIG;
    control *o = control_make(sched, CONTROL_START, follow + 1);
    if (o == NULL) return FILCH_ENOMEM;
    o->as.start.child = *child;
    o->args_kind = filch_kind_of(&opt.args);
    if (follow > 0) memcpy(o + 1, bytes, follow);
    if (o->args_kind < FILCH_KIND_TEXT) o->as.start.value = opt.args;
    return control_send(sched, pid, o, tag);
}

filch_err filch_child_start(filch_sched *sched, filch_pid pid, const filch_child *child)
{
    return send_start(sched, pid, child, NULL);
}

filch_err filch_child_start_tagged(filch_sched *sched, filch_pid pid, const filch_child *child, uint64_t tag)
{
    return send_start(sched, pid, child, &tag);
}

static filch_err send_control(filch_sched *sched, filch_pid pid, control_kind kind, const char *id, const uint64_t *tag)
{
    control *o = control_make(sched, kind, 0);
    if (o == NULL) return FILCH_ENOMEM;
    if (id != NULL) strcpy(o->as.stop, id);
    return control_send(sched, pid, o, tag);
}

static filch_err send_stop(filch_sched *sched, filch_pid pid, const char *id, const uint64_t *tag)
{
    if (sched == NULL) return filch_invalid("sched is NULL");
    if (!id_is_sound(id)) return filch_invalid("id is NULL or not 1 to 63 bytes");
    return send_control(sched, pid, CONTROL_STOP, id, tag);
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
    return sched != NULL ? send_control(sched, pid, CONTROL_LIST, NULL, NULL) : filch_invalid("sched is NULL");
}

filch_err filch_child_list_tagged(filch_sched *sched, filch_pid pid, uint64_t tag)
{
    return sched != NULL ? send_control(sched, pid, CONTROL_LIST, NULL, &tag) : filch_invalid("sched is NULL");
}

filch_err filch_child_await(filch_sched *sched, filch_pid pid)
{
    return sched != NULL ? send_control(sched, pid, CONTROL_AWAIT, NULL, NULL) : filch_invalid("sched is NULL");
}

filch_err filch_child_await_tagged(filch_sched *sched, filch_pid pid, uint64_t tag)
{
    return sched != NULL ? send_control(sched, pid, CONTROL_AWAIT, NULL, &tag) : filch_invalid("sched is NULL");
}

/* ---- children ---- */

static void drop_waiters(const supervisor *s, fli_waiter **waiters)
{
    while (*waiters != NULL) {
        fli_waiter *first = *waiters;
        *waiters = first->next;
        fli_waiter_free(s->memory, first);
    }
}

/* Marks the child to be stopped, unless it is down. */
static void must_stop(supervisor *s, fli_child *c)
{
    c->must_stop = c->state != FLI_CHILD_DOWN;
    fli_children_update(&s->children, c);
}

static uint64_t stop_ns_of(const fli_child *c)
{
    if (c->spec.stop_ns != 0) return c->spec.stop_ns;
    /* A child that is a supervisor has as much time as its own children need. */
    return c->spec.supervisor != NULL ? FILCH_FOREVER : STOP_NS;
}

/* Returns the args of a child that was added at run time. */
static filch_data args_of(const fli_child *c)
{
    const control *o = filch_raw(&c->request);
    if (o->args_kind < FILCH_KIND_TEXT) return o->as.start.value;
    return o->args_kind == FILCH_KIND_TEXT ? filch_str((const char *)(o + 1))
                                           : filch_bytes(o + 1, o->size - sizeof *o - 1);
}

static filch_err start(supervisor *s, fli_child *c)
{
    filch_spawn_options opt;
    const filch_type   *type = c->spec.type;
    filch_data          report = filch_ptr((void *)(uintptr_t)&children_up);
    filch_err           err = read_options(c->spec.options, &opt);
    if (err != FILCH_OK) return err;
    if (c->late) opt.args = args_of(c);
    if (c->spec.supervisor != NULL) {
        if (type == NULL) type = &filch_supervisor_type;
        opt.args = filch_ptr((void *)(uintptr_t)c->spec.supervisor);
        opt.messages = &report; /* asks the child to send children_up when all its own children are up */
        opt.message_count = 1;
        opt.relations |= FILCH_SPAWN_TRAP;
    }
    opt.relations |= FILCH_SPAWN_MONITOR | FILCH_SPAWN_LINK | FILCH_SPAWN_SUPERVISED;
    opt.tag = c->id;
    c->started_ns = filch_now(s->sched); /* set before the attempt, so that a failed start does not count as stable */
    filch_pid pid;
    err = filch_spawn(s->sched, type, &opt, &pid);
    if (err != FILCH_OK) return err;
    fli_children_started(&s->children, c, pid);
    c->state = FLI_CHILD_UP;
    c->ready = c->spec.supervisor == NULL;
    fli_children_update(&s->children, c);
    return FILCH_OK;
}

/* ---- restarting ---- */

/* Starts to end the supervisor with `error`: all children must stop and none is wanted. If it is called again, the
 * `error` of the first call is kept. */
static void end_with(supervisor *s, filch_err error)
{
    if (s->ending) return;
    s->ending = true;
    s->error = error;
    for (fli_child *c = s->children.first[FLI_CHILDREN_ALL]; c != NULL; c = c->next[FLI_CHILDREN_ALL]) {
        c->wanted = false;
        must_stop(s, c);
    }
}

/* Counts a restart, and returns true. If `intensity` restarts within the period have been counted already, counts
 * nothing and returns false. */
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

/* Bit mixer (splitmix64): consecutive inputs give unrelated outputs. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns the delay before a restart. The random part (jitter) is a hash of supervisor, child and restart number. So
 * supervisors that fail together restart at different times, and a replayed run has the same delays. */
static uint64_t backoff_of(const supervisor *s, const fli_child *c, filch_pid me)
{
    const filch_supervisor *spec = s->spec;
    if (spec->backoff_ns == 0) return 0;
    uint64_t most = spec->backoff_max_ns != 0 ? spec->backoff_max_ns : BACKOFF_MAX_NS, wait = spec->backoff_ns;
    uint64_t percent = spec->backoff_percent != 0 ? spec->backoff_percent : FACTOR_PERCENT;
    for (uint32_t i = 1; i < c->restart_streak && wait < most; i++) {
        bool far = wait / 100 >= most / percent; /* wait * percent / 100 would exceed `most` and might overflow */
        wait = far ? most : wait / 100 * percent + wait % 100 * percent / 100;
    }
    if (wait > most) wait = most;
    uint64_t spread = wait / 1000 * spec->jitter;
    uint64_t drawn = mix(mix(me.node ^ me.serial) ^ TAG_OF(c->id, c->restart_streak));
    if (spread == 0) return wait;
    wait -= spread / 2;
    return drawn % spread < FILCH_FOREVER - wait ? wait + drawn % spread : FILCH_FOREVER;
}

/* Yields a sleep for the back-off of the child with the number `id`, or of all children if `id` is 0. Returns false if
 * there is no memory. */
static bool sleep_for(supervisor *s, uint32_t id, uint64_t wait_ns, filch_out *out)
{
    return filch_yield_sleep(out, TAG_OF(id, ++s->sleeps), wait_ns) == FILCH_OK;
}

/* Called when `c` has failed: delays the restart of `c`, or of all children that restart with it, by the back-off of
 * `c`. */
static void hold(supervisor *s, fli_child *c, filch_err why, filch_out *out)
{
    bool     alone = s->spec->strategy == FILCH_ONE_FOR_ONE;
    uint64_t wait = backoff_of(s, c, filch_ctx_self(filch_out_ctx(out)));
    /* FILCH_EEXISTS: the name that the child registers still belongs to a process that is about to end, for example to
     * a child of a supervisor that ran before this one. So the back-off is at least NAME_NS. */
    if (why == FILCH_EEXISTS && wait < NAME_NS) wait = NAME_NS;
    uint64_t now_ns = filch_now(s->sched), due_ns = wait < FILCH_FOREVER - now_ns ? now_ns + wait : FILCH_FOREVER;
    bool     held = wait > 0, untimed = held && !sleep_for(s, alone ? c->id : 0, wait, out);
    if (alone) {
        c->held = held;
        c->untimed = untimed;
        c->due_ns = due_ns;
    } else {
        s->held = held;
        s->untimed = untimed;
        s->due_ns = due_ns;
    }
    fli_children_update(&s->children, c);
}

/* Called in each step, for the back-offs that have no sleep because there was no memory for one. Ends each of these
 * back-offs if its time has passed, and yields a sleep for each of the others if there is memory now. */
static void retry_sleeps(supervisor *s, filch_out *out)
{
    fli_child *next = s->children.first[FLI_CHILDREN_UNTIMED];
    if (next == NULL && !(s->held && s->untimed)) return;
    uint64_t now_ns = filch_now(s->sched);
    if (s->held && s->untimed) {
        s->held = s->due_ns > now_ns;
        if (s->held) s->untimed = !sleep_for(s, 0, s->due_ns - now_ns, out);
    }
    /* true: the call of sleep_for() for a child has failed, and would fail for the following children too */
    bool lacking = false;
    for (fli_child *c; (c = next) != NULL;) {
        next = c->next[FLI_CHILDREN_UNTIMED];
        c->held = c->due_ns > now_ns;
        if (c->held && !lacking) lacking = c->untimed = !sleep_for(s, c->id, c->due_ns - now_ns, out);
        fli_children_update(&s->children, c);
    }
}

/* Ends the step. If a back-off has no sleep, the supervisor does not go idle: each of its steps checks whether the time
 * of the back-off has passed. */
static filch_err rest(const supervisor *s, filch_out *out)
{
    bool polls = s->children.first[FLI_CHILDREN_UNTIMED] != NULL || (s->held && s->untimed && !s->ending);
    return polls ? filch_continue(out) : filch_idle(out);
}

/* Writes the exit text of the supervisor: the child that failed last, and the first line of its failure text. */
static void explain(supervisor *s, const fli_child *c, filch_err why, const filch_data *words)
{
    filch_kind  kind = filch_kind_of(words);
    bool        said = (kind == FILCH_KIND_TEXT || kind == FILCH_KIND_BYTES) && filch_size(words) > 0;
    const char *text = said ? filch_raw(words) : filch_err_text(why);
    size_t      size = said ? filch_size(words) : strlen(text), line = 0;
    while (line < size && text[line] >= ' ') line++;
    snprintf(s->why, sizeof s->why, "too many restarts, the last of '%s': %.*s", c->spec.id, (int)line, text);
}

/* Writes a line to the scheduler's log hook: which child failed, and why. The id is escaped, because a script may have
 * chosen it. */
static void log_failure(const supervisor *s, filch_log_level level, const char *what, const fli_child *c, filch_err why)
{
    char text[FILCH_LOG_MAX], id[160]; /* an id that becomes longer by the escapes is cut */
    (void)fli_escape(id, sizeof id, c->spec.id, strlen(c->spec.id));
    snprintf(text, sizeof text, "%s: '%s', %s", what, id, why == FILCH_OK ? "which had ended" : filch_err_text(why));
    (void)filch_log(s->sched, level, why, text);
}

/* Called if the scheduler is stopping: the child `c` stays down, and its siblings are not restarted. */
static void give_up(supervisor *s, fli_child *c)
{
    c->wanted = false;
    fli_children_update(&s->children, c);
}

static void fail(supervisor *s, fli_child *c, filch_err why, const filch_data *words, filch_out *out)
{
    if (filch_sched_stopping(s->sched)) {
        give_up(s, c);
        return;
    }
    uint64_t now_ns = filch_now(s->sched);
    uint64_t stable_ns = s->spec->stable_ns != 0 ? s->spec->stable_ns : PERIOD_NS;
    if (!count_restart(s, now_ns)) {
        if (c->begun && !s->ending) explain(s, c, why, words);
        if (!s->ending) log_failure(s, FILCH_LOG_ERROR, "gives up", c, why);
        /* if the child was never started, the supervisor ends with the error of the failed start */
        end_with(s, c->begun ? FILCH_ELIMIT : why);
        return;
    }
    c->restart_streak = now_ns - c->started_ns >= stable_ns ? 1 : c->restart_streak + 1;
    if (!s->ending) log_failure(s, FILCH_LOG_WARNING, "starts a child again", c, why);
    fli_child *first = s->spec->strategy == FILCH_ONE_FOR_ALL ? s->children.first[FLI_CHILDREN_ALL] : c;
    if (s->spec->strategy == FILCH_ONE_FOR_ONE) first = NULL;
    for (fli_child *other = first; other != NULL; other = other->next[FLI_CHILDREN_ALL]) must_stop(s, other);
    hold(s, c, why, out);
}

/* ---- moving the actual state towards the wanted one ---- */

static void reply_to(const supervisor *s, filch_pid to, filch_data answer)
{
    if (to.serial == 0) return;
    /* If the receiver has ended or has a full mailbox, the error of filch_send is ignored. If the answer is too large,
     * or there is no memory for it, the error code is sent instead of the answer. */
    filch_err err = filch_send(s->sched, to, answer);
    if (err == FILCH_ETOOBIG || err == FILCH_ENOMEM) (void)!filch_send(s->sched, to, filch_int(err));
}

/* Sends the answer to a tagged request. `ready` is false if another supervisor, to which a process has forwarded the
 * request, is writing the answer just now. The receiver could then read a half-written answer, so an error code is sent
 * instead. */
static void send_answer(const supervisor *s, filch_pid to, const filch_data *answer, bool ready)
{
    reply_to(s, to, ready ? *answer : filch_int(FILCH_EBUSY));
}

/* Answers a request to the process `to`. `reply`: the prepared answer; of kind NONE if the request has no
 * tag. */
static void send_reply(const supervisor *s, filch_pid to, const filch_data *reply, filch_pid pid, filch_err error)
{
    if (filch_kind_of(reply) == FILCH_KIND_NONE) {
        reply_to(s, to, error == FILCH_OK && pid.serial != 0 ? filch_of_pid(pid) : filch_int(error));
        return;
    }
    send_answer(s, to, reply, fli_answer_fill(reply, pid, error, NULL, 0));
}

/* Starts to stop the last child that must stop, unless another child is being stopped. Returns false if no child has to
 * be stopped and none is being stopped. */
static bool stop_one(supervisor *s)
{
    fli_child *c = s->children.last[FLI_CHILDREN_MUST_STOP];
    if (s->children.stopping != NULL) return true;
    if (c == NULL) return false;
    filch_err err = filch_cancel_with(s->sched, c->pid, FILCH_ECANCELLED, stop_ns_of(c));
    /* If the cancel with a deadline fails because there is no memory, the child is terminated instead. If it fails
     * because the child has ended, the EXIT event of the child will arrive. */
    if (err != FILCH_OK) (void)!filch_terminate(s->sched, c->pid);
    c->state = FLI_CHILD_STOPPING;
    fli_children_update(&s->children, c);
    return true;
}

static bool any_must_stop(const supervisor *s)
{
    return s->children.first[FLI_CHILDREN_MUST_STOP] != NULL;
}

/* Starts the children that are wanted and down, in order. If it comes to a child that is a supervisor, and not all
 * children of that child are up yet, starts no further child. Returns false if it has started STARTS_MAX children and
 * others are left for the next step. */
static bool start_all(supervisor *s, filch_out *out)
{
    const fli_child *barrier = s->children.first[FLI_CHILDREN_UNREADY];
    fli_child       *c;
    for (int started = 0; (c = s->children.first[FLI_CHILDREN_TO_START]) != NULL && !s->held; started++) {
        if (barrier != NULL && barrier->id < c->id) return true;
        if (started == STARTS_MAX) return false;
        filch_err err = start(s, c);
        if (err == FILCH_OK && !c->ready) return true;
        if (err == FILCH_OK) continue;
        /* A failed start is not repeated if the scheduler is stopping. If the first start of a child fails, the
         * supervisor ends, except for FILCH_EEXISTS: then the name of the child is still in use, and the start is
         * repeated. */
        if (err == FILCH_ECLOSED) give_up(s, c);
        else if (!c->begun && err != FILCH_EEXISTS) end_with(s, err);
        else fail(s, c, err, NULL, out);
        if (s->ending || any_must_stop(s)) return true; /* children must be stopped before others are started */
        /* If the failed child has no back-off, the next iteration tries to start it again, until count_restart()
         * refuses. */
    }
    return true;
}

/* If all children are up, reports this once to the parent and to the waiters. Returns false if the message to the
 * parent could not be sent because of missing memory or a full mailbox. The parent waits for the message, so the caller
 * must try again. */
static bool report(supervisor *s)
{
    if (s->children.missing > 0) return true;
    for (const fli_waiter *a = s->waiters; a != NULL; a = a->next)
        send_reply(s, a->pid, &a->reply, (filch_pid){ 0, 0 }, FILCH_OK);
    drop_waiters(s, &s->waiters);
    if (s->parent.serial == 0) return true;
    filch_err err = filch_send(s->sched, s->parent, filch_ptr((void *)(uintptr_t)&children_up));
    if (err == FILCH_ENOMEM || err == FILCH_EFULL || err == FILCH_EDROPPED) return false;
    s->parent = (filch_pid){ 0, 0 };
    return true;
}

static filch_err finish(const supervisor *s, filch_out *out)
{
    if (s->error == FILCH_OK) return filch_done(out, filch_none());
    return s->why[0] != '\0' ? filch_fail(out, s->error, filch_str(s->why)) : s->error;
}

static void do_start(supervisor *s, const filch_data *data, filch_pid from)
{
    const control *o = filch_raw(data);
    fli_child     *c = NULL;
    filch_err      err = s->ending ? FILCH_ECLOSED : fli_children_add(&s->children, &o->as.start.child, &c);
    if (err == FILCH_OK) err = filch_keep(data, &c->request);
    if (err == FILCH_OK) {
        c->late = true;
        err = start(s, c);
    }
    send_reply(s, from, &o->reply, err == FILCH_OK ? c->pid : (filch_pid){ 0, 0 }, err);
    if (err != FILCH_OK && c != NULL) fli_children_drop(&s->children, c);
}

/* Marks the child to be stopped, and to be removed as soon as it is down. */
static void remove_child(supervisor *s, fli_child *c)
{
    c->wanted = c->held = false;
    c->leaves = true;
    must_stop(s, c);
}

/* Serves the requests that have waited for a child to leave, in order of arrival: answers each stop request; for a
 * start request, starts a new child with the id of the child that has left. A stop request after a start request
 * concerns the new child: that stop request and all later requests wait until the new child has left. Takes ownership
 * of the list. */
static void answer_waiters(supervisor *s, fli_waiter *waiters)
{
    fli_child *next = NULL;
    for (fli_waiter *a; (a = waiters) != NULL;) {
        bool starts = filch_kind_of(&a->start) != FILCH_KIND_NONE;
        if (!starts && next != NULL) {
            remove_child(s, next);
            next->waiters = waiters;
            return;
        }
        if (starts) {
            do_start(s, &a->start, a->pid);
            next = fli_children_named(&s->children, ((const control *)filch_raw(&a->start))->as.start.child.id);
        } else {
            send_reply(s, a->pid, &a->reply, (filch_pid){ 0, 0 }, FILCH_OK);
        }
        waiters = a->next;
        fli_waiter_free(s->memory, a);
    }
}

/* Removes the children that are leaving and are down. */
static void drop_left(supervisor *s)
{
    for (fli_child *c = s->children.last[FLI_CHILDREN_LEAVING], *before; c != NULL; c = before) {
        before = c->prev[FLI_CHILDREN_LEAVING];
        /* answer_waiters() may add a child that leaves at once. The new child has a higher id than `c`, and this loop
         * goes from higher to lower ids, so it does not reach the new child. */
        FLI_ASSERT(c->state == FLI_CHILD_DOWN);
        fli_waiter *waiters = c->waiters;
        c->waiters = NULL;
        fli_children_drop(&s->children, c);
        answer_waiters(s, waiters);
    }
}

static filch_err reconcile(supervisor *s, filch_out *out)
{
    for (;;) {
        if (stop_one(s)) return rest(s, out);
        /* No child has to be stopped now: every child that had to stop is down. */
        drop_left(s);
        if (s->ending) return finish(s, out);
        if (!start_all(s, out)) return filch_continue(out);
        if (s->ending || any_must_stop(s)) continue;
        bool awaited = s->parent.serial != 0 || s->waiters != NULL;
        return awaited && !report(s) ? filch_continue(out) : rest(s, out);
    }
}

/* ---- events ---- */

static void on_exit_event(supervisor *s, const filch_event *event, filch_out *out)
{
    fli_child *c = fli_children_with(&s->children, event->from);
    if (c == NULL || c->state == FLI_CHILD_DOWN)
        return; /* the process is not a child: another part of the program made this supervisor monitor it */
    bool stopped = c->state == FLI_CHILD_STOPPING;
    /* If must_stop is set but the state is not STOPPING, the child ended by itself before the supervisor stopped it. It
     * counts as stopped: its end is not counted as a failure. */
    bool asked = stopped || c->must_stop;
    bool well = event->error == FILCH_OK && !stopped;
    c->state = FLI_CHILD_DOWN;
    c->must_stop = false;
    if (c->spec.restart == FILCH_TEMPORARY || (c->spec.restart == FILCH_TRANSIENT && well)) {
        /* A temporary child is not restarted even if it was stopped because a sibling failed. */
        c->wanted = false;
        if (c->spec.restart == FILCH_TEMPORARY) c->leaves = true;
    }
    fli_children_update(&s->children, c);
    if (c->wanted && !asked) fail(s, c, event->error, &event->data, out);
}

/* Handles the completion of a sleep. An error means that there was no memory for the sleep: the back-off goes on, and
 * retry_sleeps() tries again. */
static void on_sleep_over(supervisor *s, uint64_t tag, filch_err error)
{
    uint32_t id = (uint32_t)(tag >> 32);
    if (id == 0) {
        if ((uint32_t)tag != s->sleeps) return;
        s->untimed = error != FILCH_OK;
        s->held = s->held && s->untimed;
        return;
    }
    fli_child *c = fli_children_numbered(&s->children, id);
    if (c == NULL) return;
    c->untimed = error != FILCH_OK;
    c->held = c->held && c->untimed;
    fli_children_update(&s->children, c);
}

/* Appends a waiter and returns it. If there is no memory, answers the request with FILCH_ENOMEM and returns NULL. */
static fli_waiter *add_waiter(const supervisor *s, fli_waiter **waiters, filch_pid from, const filch_data *reply)
{
    fli_waiter *a = get(s->memory, sizeof *a);
    if (a == NULL) {
        send_reply(s, from, reply, (filch_pid){ 0, 0 }, FILCH_ENOMEM);
        return NULL;
    }
    a->pid = from;
    (void)!filch_keep(reply, &a->reply); /* cannot fail: the payload is shared or of kind NONE */
    while (*waiters != NULL) waiters = &(*waiters)->next;
    return *waiters = a;
}

/* Handles a start request: starts the child now. If the id of the child belongs to a child that is leaving, the request
 * waits until that child has left. */
static void on_start(supervisor *s, const filch_event *event)
{
    const control *o = filch_raw(&event->data);
    fli_child     *c = s->ending ? NULL : fli_children_named(&s->children, o->as.start.child.id);
    if (c == NULL || !c->leaves) {
        do_start(s, &event->data, event->from);
        return;
    }
    fli_waiter *a = add_waiter(s, &c->waiters, event->from, &o->reply);
    if (a != NULL) (void)!filch_keep(&event->data, &a->start);
}

static void do_stop(supervisor *s, const control *o, filch_pid from)
{
    fli_child *c = fli_children_named(&s->children, o->as.stop);
    if (c == NULL) {
        send_reply(s, from, &o->reply, (filch_pid){ 0, 0 }, FILCH_EDEAD);
        return;
    }
    if (from.serial != 0 && add_waiter(s, &c->waiters, from, &o->reply) == NULL) return;
    remove_child(s, c);
}

/* Fills `info`, an array of zeroed elements, one for each child. */
static void describe_children(const supervisor *s, filch_child_info *info)
{
    for (const fli_child *c = s->children.first[FLI_CHILDREN_ALL]; c != NULL; c = c->next[FLI_CHILDREN_ALL], info++) {
        strcpy(info->id, c->spec.id);
        info->running = c->state != FLI_CHILD_DOWN;
        if (info->running) info->pid = c->pid;
        info->restarts = c->restart_streak;
    }
}

/* The list is part of the answer if the request has a tag. Otherwise the list is the answer. */
static void do_list(supervisor *s, const control *o, filch_pid from)
{
    bool              tagged = filch_kind_of(&o->reply) != FILCH_KIND_NONE;
    size_t            count = s->children.count, size = count * sizeof(filch_child_info);
    filch_child_info *list = NULL;
    if (count > 0) list = tagged ? fli_answer_list(&o->reply, count) : get(s->memory, size);
    if (list == NULL && count > 0) {
        send_reply(s, from, &o->reply, (filch_pid){ 0, 0 }, FILCH_ENOMEM);
        return;
    }
    describe_children(s, list);
    if (tagged) {
        send_answer(s, from, &o->reply, fli_answer_fill(&o->reply, (filch_pid){ 0, 0 }, FILCH_OK, list, count));
        return;
    }
    reply_to(s, from, filch_bytes(list, size));
    give(s->memory, list, size);
}

/* Handles the message `children_up`. From the parent, the message asks for a report; from a child, it is the report. */
static void on_up(supervisor *s, filch_pid from)
{
    fli_child *c = fli_children_with(&s->children, from);
    if (c == NULL) {
        s->parent = from;
        return;
    }
    c->ready = true;
    fli_children_update(&s->children, c);
}

/* Called after the full mailbox has dropped messages. The message `children_up` of a child may have been among them. So
 * the supervisor sends each child that is not ready a new request for this message. */
static void ask_up_again(const supervisor *s)
{
    for (const fli_child *c = s->children.first[FLI_CHILDREN_UNREADY]; c != NULL; c = c->next[FLI_CHILDREN_UNREADY]) {
        reply_to(s, c->pid, filch_ptr((void *)(uintptr_t)&children_up));
    }
}

static void on_message(supervisor *s, const filch_event *event)
{
    if (filch_as_ptr(&event->data) == &children_up) {
        on_up(s, event->from);
        return;
    }
    const control *o = filch_shared_user(&event->data, control_free);
    if (o == NULL) return; /* the message is no request, and is ignored */
    switch (o->kind) {
    case CONTROL_START: on_start(s, event); break;
    case CONTROL_STOP: do_stop(s, o, event->from); break;
    /* The request is answered when all children are up, possibly at the end of this step. */
    case CONTROL_AWAIT:
        if (event->from.serial != 0) (void)add_waiter(s, &s->waiters, event->from, &o->reply);
        break;
    default: do_list(s, o, event->from); break;
    }
}

static filch_err supervisor_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    supervisor *s = self;
    (void)!filch_trap_links(out, 1); /* cannot fail inside a step */
    for (size_t i = 0; i < count; i++) {
        switch (events[i].type) {
        case FILCH_EVENT_CANCEL: end_with(s, FILCH_OK); break;
        case FILCH_EVENT_EXIT: on_exit_event(s, &events[i], out); break;
        case FILCH_EVENT_YIELD: on_sleep_over(s, events[i].tag, events[i].error); break;
        case FILCH_EVENT_MESSAGE: on_message(s, &events[i]); break;
        case FILCH_EVENT_DROPPED: ask_up_again(s); break;
        case FILCH_EVENT_LINK_DOWN:
            /* A child's LINK_DOWN comes before its EXIT event, so a child is still found here. If the sender is no
             * child, it is the parent; the end of the parent also ends this supervisor. */
            if (fli_children_with(&s->children, events[i].from) == NULL) end_with(s, FILCH_ELINK);
            break;
        default: break;
        }
    }
    retry_sleeps(s, out);
    return reconcile(s, out);
}

/* ---- the type ---- */

static void supervisor_close(void *self)
{
    supervisor *s = self;
    fli_children_fini(&s->children);
    drop_waiters(s, &s->waiters);
    give(s->memory, s->restarts, s->intensity * sizeof *s->restarts);
}

static bool spec_is_sound(const filch_supervisor *spec)
{
    bool bounded = spec->intensity <= INTENSITY_MAX || spec->intensity == FILCH_NO_RESTARTS;
    if (spec->strategy > FILCH_REST_FOR_ONE) return unsound("spec.strategy is not a filch_strategy");
    if (spec->jitter > 1000) return unsound("spec.jitter is over 1000");
    if (!bounded) return unsound("spec.intensity is over 10000 and not FILCH_NO_RESTARTS");
    if (spec->children == NULL && spec->child_count != 0)
        return unsound("spec.children is NULL although child_count is not 0");
    if (spec->spare != 0) return unsound("spec.spare is not 0: it is reserved and must be 0");
    return true;
}

static filch_err supervisor_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    supervisor             *s = self;
    const filch_supervisor *spec = filch_as_ptr(args);
    if (method != NULL) return FILCH_EMETHOD;
    if (spec == NULL) return filch_invalid("args is not a filch_ptr to a filch_supervisor");
    if (!spec_is_sound(spec)) return FILCH_EINVAL;
    s->spec = spec;
    s->sched = filch_ctx_sched(ctx);
    s->memory = filch_sched_memory(s->sched);
    fli_children_init(&s->children, s->memory);
    if (spec->intensity != FILCH_NO_RESTARTS) s->intensity = spec->intensity != 0 ? spec->intensity : INTENSITY;
    filch_err err = FILCH_OK;
    if (s->intensity > 0) {
        s->restarts = get(s->memory, s->intensity * sizeof *s->restarts);
        if (s->restarts == NULL) err = FILCH_ENOMEM;
    }
    for (size_t i = 0; err == FILCH_OK && i < spec->child_count; i++) {
        filch_spawn_options opt;
        bool                sound = child_is_sound(&spec->children[i], &opt);
        err = sound ? fli_children_add(&s->children, &spec->children[i], NULL) : FILCH_EINVAL;
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
