/* relations.c - see relations.h. */
#include "fuzz/relations.h"

#include "fuzz/still_clock.h"

/* A notice that a process will get. */
typedef struct notice {
    int              next; /* index of the next notice of the receiver; -1: none */
    filch_event_type type;
    filch_pid        about;
    /* index of the ended process that the notice reports; NO_PROC: that process had ended before the relation was made,
     * or the notice reports no end */
    int       ended;
    bool      any_from, after_link;
    int       group;
    uint64_t  tag;
    filch_err reason; /* of a cancel: its reason; the next field is the deadline of the cancel */
    int64_t   deadline_ns;
} notice;

/* Not a field of `ties`, so that this array is not cleared for each input. */
static notice   notices[NOTICES];
static uint64_t tags;

relations ties;

const char *const tie_names[NAMES] = { "n", "another name", "a name that does not fit into an event, nor into two" };
const char *const tie_groups[GROUPS] = { "g", "a group with a name that is longer than what fits inline" };

void relations_begin(void)
{
    ties.relation_count = ties.relations_live = ties.notice_count = ties.notices_out = 0;
    ties.notice_free = -1;
    tags = 1000;
    for (int i = 0; i < NAMES; i++) ties.owner[i] = NO_PROC;
    for (int i = 0; i < GROUPS; i++) ties.member_count[i] = ties.watcher_count[i] = 0;
}

bool relations_have_room(void)
{
    int most = ties.notices_out + ties.relations_live + 2 * YIELDED_MAX;
    for (int g = 0; g < GROUPS; g++)
        most += (ties.member_count[g] + 2 * YIELDED_MAX) * (ties.watcher_count[g] + YIELDED_MAX);
    return ties.relation_count + 2 * YIELDED_MAX <= RELATIONS && most < NOTICES;
}

uint64_t relations_next_tag(void)
{
    return ++tags;
}

bool relations_closed(void)
{
    return now.closed && !model_inside();
}

filch_err relations_fault(filch_pid pid)
{
    if (pid.serial == 0) return FILCH_EINVAL;
    return pid.node == now.opt.node ? FILCH_OK : now.foreign;
}

/* ---- notices ---- */

static bool is_pid(filch_pid a, filch_pid b)
{
    return a.serial == b.serial && a.node == b.node;
}

/* Adds the notice `what` to those that process `to` will get, unless the process has ended. */
static void add_notice(int to, notice what)
{
    proc *l = &now.procs[to];
    if (!l->alive) return;
    int index = ties.notice_free;
    if (index >= 0) ties.notice_free = notices[index].next;
    else index = ties.notice_count++;
    what.next = -1;
    notices[index] = what;
    if (l->notices < 0) l->notices = index;
    else notices[l->notices_last].next = index;
    l->notices_last = index;
    ties.notices_out++;
}

static void forget(proc *l, int index, int before)
{
    int after = notices[index].next;
    if (before < 0) l->notices = after;
    else notices[before].next = after;
    if (l->notices_last == index) l->notices_last = before;
    notices[index].next = ties.notice_free;
    ties.notice_free = index;
    ties.notices_out--;
}

bool relations_waits(const proc *l)
{
    return l->notices >= 0;
}

/* Returns the first LINK_DOWN notice of the process, or NULL. */
static const notice *first_down(const proc *l)
{
    for (int i = l->notices; i >= 0; i = notices[i].next) {
        if (notices[i].type == FILCH_EVENT_LINK_DOWN) return &notices[i];
    }
    return NULL;
}

bool relations_down(const proc *l)
{
    return !l->traps && first_down(l) != NULL;
}

/* Returns true if the event is the notice `n`. */
static bool is_that(const notice *n, const filch_event *event)
{
    if ((int32_t)n->type != event->type || n->tag != event->tag) return false;
    if (!is_pid(n->about, event->from) && !n->any_from) return false;
    /* A process may watch two groups with the same tag. Notices of different groups may come in any order, so the name
     * of the group is compared too. */
    bool news = n->type == FILCH_EVENT_JOINED || n->type == FILCH_EVENT_LEFT;
    if (news && strcmp(filch_text(&event->data), tie_groups[n->group]) != 0) return false;
    return n->type != FILCH_EVENT_CANCEL || (n->reason == event->error && filch_as_int(&event->data) == n->deadline_ns);
}

/* Returns true if the notice `n` may be delivered before the notice `earlier`, although `earlier` was caused first. */
static bool may_overtake(const notice *n, const notice *earlier)
{
    bool news = n->type == FILCH_EVENT_JOINED || n->type == FILCH_EVENT_LEFT;
    bool same = earlier->type == FILCH_EVENT_JOINED || earlier->type == FILCH_EVENT_LEFT;
    if (news && same && n->group == earlier->group) return false;
    return !n->after_link || earlier->type != FILCH_EVENT_LINK_DOWN || earlier->ended != n->ended;
}

static void check_notice_data(const notice *n, const filch_event *event)
{
    switch (n->type) {
    case FILCH_EVENT_CANCEL: return;
    case FILCH_EVENT_JOINED:
    case FILCH_EVENT_LEFT: MUST(event->error == FILCH_OK, "a notice of a group with an error"); return;
    default: break;
    }
    if (n->ended != NO_PROC) {
        relations_end_reported(&now.procs[n->ended], event->error, &event->data);
        return;
    }
    MUST(event->error == FILCH_EDEAD, "one that had ended before ended otherwise");
    MUST(filch_kind_of(&event->data) == FILCH_KIND_NONE, "one that had ended before has a result");
}

void relations_read(proc *l, const filch_event *event)
{
    for (int i = l->notices, before = -1; i >= 0; before = i, i = notices[i].next) {
        notice *n = &notices[i];
        if (!is_that(n, event)) continue;
        for (int k = l->notices; k != i; k = notices[k].next) {
            MUST(may_overtake(n, &notices[k]), "notices in another order");
        }
        check_notice_data(n, event);
        if (n->type == FILCH_EVENT_CANCEL) l->reasoned_cancels--;
        forget(l, i, before);
        return;
    }
    MUST(false, "a notice of what did not happen, or a second one");
}

/* ---- monitors, links, and cancels with a reason ---- */

static void add(relation what)
{
    what.live = true;
    ties.relation_list[ties.relation_count++] = what;
    ties.relations_live++;
}

void relations_monitored(int watcher, int target, filch_pid target_pid, uint64_t tag, uint64_t ref)
{
    if (target != NO_PROC && now.procs[target].alive) {
        add((relation){ .kind = RELATION_MONITOR, .a = watcher, .b = target, .tag = tag, .ref = ref });
        return;
    }
    add_notice(watcher, (notice){ .type = FILCH_EVENT_EXIT, .about = target_pid, .ended = NO_PROC, .tag = tag });
}

relation *relations_find(relation_kind kind, int a, int b)
{
    for (int i = 0; i < ties.relation_count; i++) {
        relation *at = &ties.relation_list[i];
        if (!at->live || at->kind != kind) continue;
        if ((at->a == a && at->b == b) || (kind == RELATION_LINK && at->a == b && at->b == a)) return at;
    }
    return NULL;
}

void relations_untied(relation *b)
{
    b->live = false;
    ties.relations_live--;
}

void relations_linked(int a, filch_pid a_pid, int b, filch_pid b_pid)
{
    bool a_alive = a != NO_PROC && now.procs[a].alive, b_alive = b != NO_PROC && now.procs[b].alive;
    if (a_alive && b_alive) {
        if (relations_find(RELATION_LINK, a, b) == NULL) add((relation){ .kind = RELATION_LINK, .a = a, .b = b });
        return;
    }
    notice down = { .type = FILCH_EVENT_LINK_DOWN, .about = a_alive ? b_pid : a_pid, .ended = NO_PROC };
    add_notice(a_alive ? a : b, down);
}

void relations_cancelled_with(int by, int to, filch_err reason, uint64_t requested_ns, uint64_t deadline_ns)
{
    proc  *l = &now.procs[to];
    notice cancel = { .type = FILCH_EVENT_CANCEL, .ended = NO_PROC, .reason = reason, .any_from = now.dispatching };
    if (by != NO_PROC) cancel.about = now.procs[by].pid;
    if (deadline_ns != FILCH_FOREVER) {
        uint64_t kill_ns = requested_ns + deadline_ns;
        cancel.deadline_ns = (int64_t)deadline_ns;
        l->kills++;
        if (kill_ns < l->kill_ns) l->kill_ns = kill_ns;
    }
    add_notice(to, cancel);
    l->reasoned_cancels++;
}

void relations_spawned(int parent, int child, uint32_t how, uint64_t tag, int name)
{
    bool links = (how & FILCH_SPAWN_LINK) != 0;
    if (links) add((relation){ .kind = RELATION_LINK, .a = parent, .b = child });
    if ((how & FILCH_SPAWN_MONITOR) != 0) {
        add((relation){ .kind = RELATION_MONITOR, .a = parent, .b = child, .tag = tag, .after_link = links });
    }
    now.procs[child].traps = (how & FILCH_SPAWN_TRAP) != 0;
    if (name != NO_PROC) ties.owner[name] = child;
}

/* ---- groups ---- */

static void add_group_notices(int group, filch_event_type type, int about)
{
    for (int i = 0; i < ties.watcher_count[group]; i++) {
        add_notice(ties.watchers[group][i], (notice){ .type = type,
                                                      .about = now.procs[about].pid,
                                                      .ended = NO_PROC,
                                                      .tag = ties.watch_tags[group][i],
                                                      .group = group });
    }
}

void relations_joined(int group, int process)
{
    add_group_notices(group, FILCH_EVENT_JOINED, process);
    ties.members[group][ties.member_count[group]++] = process;
}

void relations_watched(int group, int process, uint64_t tag)
{
    ties.watch_tags[group][ties.watcher_count[group]] = tag;
    ties.watchers[group][ties.watcher_count[group]++] = process;
}

/* Removes the newest entry of `process` from a list of members or watchers. filch.h does not specify which entry of the
 * process is removed; the library removes the newest. */
static bool take_out(int *list, uint64_t *tags_too, int *count, int process)
{
    for (int i = *count - 1; i >= 0; i--) {
        if (list[i] != process) continue;
        size_t after = (size_t)(*count - i - 1);
        memmove(&list[i], &list[i + 1], after * sizeof *list);
        if (tags_too != NULL) memmove(&tags_too[i], &tags_too[i + 1], after * sizeof *tags_too);
        (*count)--;
        return true;
    }
    return false;
}

bool relations_left(int group, int process)
{
    if (!take_out(ties.members[group], NULL, &ties.member_count[group], process)) return false;
    add_group_notices(group, FILCH_EVENT_LEFT, process);
    return true;
}

bool relations_unwatched(int group, int process)
{
    return take_out(ties.watchers[group], ties.watch_tags[group], &ties.watcher_count[group], process);
}

/* ---- yields ---- */

static filch_err yielded_pair(const yield_rec *q)
{
    filch_pid self = now.procs[q->proc].pid;
    int       other = model_find(q->about);
    if (is_pid(self, q->about)) return FILCH_EINVAL;
    if (relations_fault(q->about) != FILCH_OK) return relations_fault(q->about);
    if (q->tie == FILCH_CMD_MONITOR) {
        relations_monitored(q->proc, other, q->about, q->tag, 0);
        return FILCH_OK;
    }
    if (q->tie == FILCH_CMD_LINK) {
        relations_linked(q->proc, self, other, q->about);
        return FILCH_OK;
    }
    relation *b = other != NO_PROC ? relations_find(RELATION_LINK, q->proc, other) : NULL;
    if (b != NULL) relations_untied(b);
    return b != NULL ? FILCH_OK : FILCH_ESTALE;
}

/* Returns a number that encodes the list of the members of `group`. */
static uint64_t list_of(int group)
{
    uint64_t sum = 17;
    for (int i = 0; i < ties.member_count[group]; i++) {
        sum = sum * 31 + now.procs[ties.members[group][i]].pid.serial;
    }
    return sum;
}

bool relations_is_list(const yield_rec *q, const filch_data *data)
{
    uint64_t  sum = 17;
    size_t    count = filch_size(data) / sizeof(filch_pid);
    filch_pid pid;
    for (size_t i = 0; i < count; i++) {
        memcpy(&pid, (const char *)filch_raw(data) + i * sizeof pid, sizeof pid);
        if (pid.node != now.opt.node) return false;
        sum = sum * 31 + pid.serial;
    }
    return filch_size(data) % sizeof(filch_pid) == 0 && sum == q->number;
}

/* Returns the predicted result of a yield that ends a monitor, or cancels or terminates a process. */
static filch_err yielded_one(const yield_rec *q)
{
    int       to = model_find(q->about);
    filch_err fault = relations_fault(q->about);
    relation *b = NULL;
    if (q->tie == FILCH_CMD_UNMONITOR) {
        for (int i = 0; i < ties.relation_count; i++) {
            bool is_own = ties.relation_list[i].kind == RELATION_MONITOR && ties.relation_list[i].a == q->proc;
            if (ties.relation_list[i].live && is_own && ties.relation_list[i].ref == q->number && q->number != 0)
                b = &ties.relation_list[i];
        }
        if (b != NULL) relations_untied(b);
        return b != NULL ? FILCH_OK : FILCH_ESTALE;
    }
    if (fault != FILCH_OK) return fault;
    if (to == NO_PROC || !now.procs[to].alive) return FILCH_EDEAD;
    if (q->tie == FILCH_CMD_TERMINATE) now.procs[to].doomed = true;
    else relations_cancelled_with(q->proc, to, q->reason, q->requested_ns, q->number);
    return FILCH_OK;
}

static filch_err yielded_message(yield_rec *q)
{
    const int *to = q->tie == FILCH_CMD_BROADCAST ? ties.members[q->name] : &ties.owner[q->name];
    int        count = q->tie == FILCH_CMD_BROADCAST ? ties.member_count[q->name] : ties.owner[q->name] != NO_PROC;
    if (q->tie == FILCH_CMD_SEND_NAME && count == 0) return FILCH_EDEAD;
    q->number = (uint64_t)count; /* all members get the message, because no process has a mailbox limit */
    model_broadcast(to, count, q->proc, &q->says);
    return FILCH_OK;
}

static filch_err yielded_spawn(yield_rec *q)
{
    if (q->child != NO_PROC) {
        relations_spawned(q->proc, q->child, q->how, q->how_tag, q->name);
        return FILCH_OK;
    }
    if (q->tried) return q->reason != FILCH_OK ? q->reason : FILCH_EEXISTS;
    bool full = now.opt.max_processes != 0 && now.spawned - now.ended >= now.opt.max_processes;
    bool taken = q->name != NO_PROC && ties.owner[q->name] != NO_PROC;
    MUST(now.closing || full || taken, "a spawn failed without a reason");
    if (taken && full)
        /* if the name is taken and the limit of processes is reached, filch.h does not specify which of FILCH_ELIMIT
         * and FILCH_EEXISTS is returned */
        q->otherwise = FILCH_ELIMIT;
    if (now.closing && (taken || full)) q->otherwise = taken ? FILCH_EEXISTS : FILCH_ELIMIT;
    return now.closing ? FILCH_ECLOSED : taken ? FILCH_EEXISTS : FILCH_ELIMIT;
}

filch_err relations_yielded(yield_rec *q)
{
    bool taken;
    switch (q->tie) {
    case FILCH_CMD_SPAWN:
    case FILCH_CMD_EXEC: return yielded_spawn(q);
    case FILCH_CMD_BROADCAST:
    case FILCH_CMD_SEND_NAME: return yielded_message(q);
    case FILCH_CMD_UNMONITOR:
    case FILCH_CMD_TERMINATE:
    case FILCH_CMD_CANCEL: return yielded_one(q);
    case FILCH_CMD_MEMBERS: {
        size_t size = (size_t)ties.member_count[q->name] * sizeof(filch_pid);
        q->number = list_of(q->name);
        return now.opt.payload_max != 0 && size > now.opt.payload_max ? FILCH_ETOOBIG : FILCH_OK;
    }
    case FILCH_CMD_WATCH: relations_watched(q->name, q->proc, q->tag); return FILCH_OK;
    case FILCH_CMD_UNWATCH: return relations_unwatched(q->name, q->proc) ? FILCH_OK : FILCH_ESTALE;
    case FILCH_CMD_REGISTER:
        if (ties.owner[q->name] != NO_PROC) return FILCH_EEXISTS;
        ties.owner[q->name] = q->proc;
        return FILCH_OK;
    case FILCH_CMD_UNREGISTER:
        taken = ties.owner[q->name] != NO_PROC;
        ties.owner[q->name] = NO_PROC;
        return taken ? FILCH_OK : FILCH_EDEAD;
    case FILCH_CMD_JOIN: relations_joined(q->name, q->proc); return FILCH_OK;
    case FILCH_CMD_LEAVE: return relations_left(q->name, q->proc) ? FILCH_OK : FILCH_ESTALE;
    default: return yielded_pair(q);
    }
}

void relations_ref(uint64_t tag, uint64_t ref)
{
    for (int i = 0; i < ties.relation_count; i++) {
        relation *b = &ties.relation_list[i];
        if (b->kind == RELATION_MONITOR && b->tag == tag) b->ref = ref;
    }
}

/* ---- ends of processes ---- */

/* Returns the error of the ended process that the LINK_DOWN notice `down` reports; FILCH_OK if the model does not know
 * this error. If links ended that process, returns the error of the process that failed first. */
static filch_err root_of(const notice *down)
{
    if (down->ended == NO_PROC) return FILCH_EDEAD;
    const proc *l = &now.procs[down->ended];
    if (l->ends) return l->end_error;
    if (!l->end_reported) return FILCH_OK;
    return l->reported_error == FILCH_ELINK ? l->reported_root : l->reported_error;
}

void relations_causes(proc *l)
{
    const notice *down = first_down(l);
    l->by_link = !l->traps && down != NULL;
    l->link_root = down != NULL ? root_of(down) : FILCH_OK;
    l->by_deadline = l->kill_ns <= still_clock_ns;
    l->by_closing = now.closing;
}

void relations_end_reported(proc *l, filch_err error, const filch_data *result)
{
    if (l->ends) {
        MUST(error == l->end_error, "an end with another error");
        MUST(payload_is(&l->end_result, result), "an end with another result");
        return;
    }
    bool      stops = l->overflow == FILCH_OVERFLOW_STOP && (l->max != 0 || l->bytes != 0);
    bool      killed = l->doomed && (error == FILCH_EKILLED || (error == FILCH_EOVERFLOW && stops));
    bool      overflowed = error == FILCH_EOVERFLOW && stops && l->sent_by_yield;
    bool      late = l->by_deadline && error == FILCH_EKILLED;
    bool      linked = l->by_link && error == FILCH_ELINK;
    filch_err root = (filch_err)filch_as_int(result);
    bool      stopped = l->by_closing && error == FILCH_ECANCELLED;
    MUST(killed || overflowed || late || linked || stopped, "an end without a cause");
    if (linked) {
        MUST(filch_kind_of(result) == FILCH_KIND_INT && root != FILCH_OK,
             "ended by a link, but without the error of the link");
        MUST(l->link_root == FILCH_OK || l->link_root == root, "another error came along the links");
    } else {
        MUST(filch_kind_of(result) == FILCH_KIND_NONE, "a forced end with a result");
    }
    MUST(!l->end_reported || (l->reported_error == error && l->reported_root == root),
         "one end was reported in two ways");
    l->end_reported = true;
    l->reported_error = error;
    l->reported_root = root;
}

static void end_relation(relation *b, int self, bool failed)
{
    int other = b->a == self ? b->b : b->a;
    relations_untied(b);
    if (b->kind == RELATION_LINK && failed) {
        add_notice(other, (notice){ .type = FILCH_EVENT_LINK_DOWN, .about = now.procs[self].pid, .ended = self });
    } else if (b->kind == RELATION_MONITOR && b->b == self) {
        add_notice(other, (notice){ .type = FILCH_EVENT_EXIT,
                                    .about = now.procs[self].pid,
                                    .ended = self,
                                    .tag = b->tag,
                                    .after_link = b->after_link });
    }
}

void relations_ended(proc *l)
{
    int  self = (int)(l - now.procs);
    bool failed = !l->ends || l->end_error != FILCH_OK;
    while (l->notices >= 0) forget(l, l->notices, -1);
    for (int i = 0; i < NAMES; i++) {
        if (ties.owner[i] == self) ties.owner[i] = NO_PROC;
    }
    for (int g = 0; g < GROUPS; g++) {
        while (relations_unwatched(g, self)) {}
        while (relations_left(g, self)) {}
    }
    if (ties.relations_live == 0) return;
    for (int i = 0; i < ties.relation_count; i++) {
        relation *b = &ties.relation_list[i];
        if (b->live && (b->a == self || b->b == self)) end_relation(b, self, failed);
    }
}

/* ---- checks that are made when no process is ready ---- */

static void check_group(int group)
{
    filch_pid pids[MEMBERS + YIELDED_MAX];
    size_t    count = 99;
    MUST(filch_members(now.sched, tie_groups[group], pids, MEMBERS + YIELDED_MAX, &count) == FILCH_OK, "no members");
    MUST(count == (size_t)ties.member_count[group], "members are miscounted");
    for (size_t i = 0; i < count; i++) MUST(is_pid(pids[i], now.procs[ties.members[group][i]].pid), "another member");
}

void relations_check_quiet(uint64_t since_ns, uint64_t *armed_most)
{
    for (int i = 0; i < now.proc_count; i++) {
        const proc *l = &now.procs[i];
        if (!l->alive) continue;
        MUST(l->notices < 0, "a notice was lost");
        MUST(since_ns < LATE_NS || l->kill_ns > since_ns - LATE_NS, "a deadline has passed, and the process is alive");
        *armed_most += l->kills;
    }
    for (int i = 0; i < NAMES; i++) {
        filch_pid pid = { 0, 0 };
        filch_err err = filch_whereis(now.sched, tie_names[i], &pid);
        MUST(err == (ties.owner[i] == NO_PROC ? FILCH_EDEAD : FILCH_OK), "a name is taken, or it is not");
        MUST(err != FILCH_OK || is_pid(pid, now.procs[ties.owner[i]].pid), "another process has the name");
    }
    for (int g = 0; g < GROUPS; g++) check_group(g);
}
