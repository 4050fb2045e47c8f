/* model.c - see model.h. */
#include "fuzz/model.h"

#include "fuzz/relations.h"
#include "fuzz/still_clock.h"

model_state now;

void model_begin(void)
{
    memset(&now, 0, sizeof now);
    memset(&payload_counts, 0, sizeof payload_counts);
    now.message_free = -1;
    now.current = now.reaping = NO_PROC;
    now.foreign = FILCH_EFOREIGN;
    still_clock_ns = 0;
    relations_begin();
}

int model_find(filch_pid pid)
{
    for (int i = now.proc_count - 1; i >= 0; i--) {
        if (now.procs[i].pid.serial == pid.serial && now.procs[i].pid.node == pid.node) return i;
    }
    return NO_PROC;
}

bool model_inside(void)
{
    return now.current != NO_PROC || now.dispatching || now.reaping != NO_PROC;
}

bool model_lacked_memory(uint64_t refused_before)
{
    return now.alloc.refused != refused_before;
}

bool model_has_room(void)
{
    return (now.message_free >= 0 || now.message_count < MESSAGES) && now.yield_rec_count < YIELD_RECS;
}

bool model_has_messages(int count)
{
    return now.message_count + count < MESSAGES;
}

/* ---- messages ---- */

static uint32_t units(size_t bytes)
{
    return (uint32_t)((bytes + 15) / 16);
}

static int message_add(proc *to, message what)
{
    int index = now.message_free;
    if (index >= 0) now.message_free = now.message_list[index].next;
    else index = now.message_count++;
    what.next = -1;
    now.message_list[index] = what;
    if (to->first < 0) to->first = index;
    else now.message_list[to->last].next = index;
    to->last = index;
    return index;
}

static void message_remove(proc *to, int index)
{
    int before = -1;
    for (int i = to->first; i != index; i = now.message_list[i].next) before = i;
    int after = now.message_list[index].next;
    if (before < 0) to->first = after;
    else now.message_list[before].next = after;
    if (to->last == index) to->last = before;
    if (now.message_list[index].yield_rec >= 0) now.yield_recs[now.message_list[index].yield_rec].message = -1;
    now.message_list[index].next = now.message_free;
    now.message_free = index;
}

/* Lower bounds (count, units) and upper bounds (count_most, units_most) for the messages in a mailbox and for their
 * size in units of 16 bytes, because the model cannot always know the exact numbers. */
typedef struct load {
    uint32_t count, count_most, units, units_most;
    bool     maybes;
} load;

static load load_of(const proc *l)
{
    load sum = { .count_most = l->in_step, .units_most = l->in_step_units };
    for (int i = l->first; i >= 0; i = now.message_list[i].next) {
        uint32_t n = units(now.message_list[i].says.size);
        if (now.message_list[i].first) continue;
        sum.count_most++;
        sum.units_most += n;
        sum.maybes |= now.message_list[i].maybe;
        /* With DROP_OLDEST any message in the mailbox may have been dropped, so no message counts in the lower bound.
         * The model learns later which messages were dropped. */
        if (now.message_list[i].maybe || l->overflow == FILCH_OVERFLOW_DROP_OLDEST) continue;
        sum.count++;
        sum.units += n;
    }
    return sum;
}

/* Returns true if one more message of `size` bytes exceeds a limit of the mailbox of `l`, when the mailbox holds
 * `count` messages with together `sum` units of 16 bytes. */
static bool is_over(const proc *l, uint32_t count, uint32_t sum, size_t size)
{
    return (l->max != 0 && count + 1 > l->max) || (l->bytes != 0 && sum + units(size) > units(l->bytes));
}

/* Checks that the overflow policy of `l` allows `err` as the result of a send to `l`. */
static void check_admission(proc *l, const content *says, filch_err err)
{
    load sum = load_of(l);
    bool limited = l->max != 0 || l->bytes != 0;
    bool must_fail = limited && is_over(l, sum.count, sum.units, says->size);
    bool may_fail = limited && (is_over(l, sum.count_most, sum.units_most, says->size) || sum.maybes);
    bool too_big = l->bytes != 0 && says->size > (size_t)units(l->bytes) * 16;
    MUST((err == FILCH_ETOOBIG) == too_big, "too big for its mailbox, or not");
    if (too_big) return;
    if (err == FILCH_OK) {
        MUST(!must_fail || l->overflow == FILCH_OVERFLOW_DROP_OLDEST, "a message beyond the limit was accepted");
        return;
    }
    MUST(may_fail, "a message within the limit was refused");
    bool drops = l->overflow == FILCH_OVERFLOW_DROP_NEWEST || l->overflow == FILCH_OVERFLOW_DROP_OLDEST;
    MUST(err == (drops ? FILCH_EDROPPED : FILCH_EFULL), "refused, but not as the policy says");
}

static void count_refusal(proc *l, filch_err err)
{
    if (err == FILCH_EDEAD) now.to_ended++;
    if (err == FILCH_EFULL) now.refused++;
    if (err == FILCH_EDROPPED) {
        now.dropped++;
        l->dropped++;
    }
    if (err == FILCH_EFULL && l->overflow == FILCH_OVERFLOW_STOP) l->doomed = true;
}

void model_sent(int to, filch_err otherwise, const content *says, filch_err err, uint64_t refused_before)
{
    if (!model_inside() && now.closing) {
        MUST(err == FILCH_ECLOSED, "a message from outside after closing");
        return;
    }
    if (err == FILCH_ENOMEM && model_lacked_memory(refused_before)) return;
    if (to == NO_PROC || !now.procs[to].alive) {
        MUST(err == (to == NO_PROC ? otherwise : FILCH_EDEAD), "a message to an unknown pid has another result");
        if (err == FILCH_EDEAD) now.to_ended++;
        return;
    }
    proc *l = &now.procs[to];
    bool  too_big = now.opt.payload_max != 0 && says->size > now.opt.payload_max;
    if (too_big) {
        MUST(err == FILCH_ETOOBIG, "a payload beyond payload_max was accepted");
        return;
    }
    check_admission(l, says, err);
    count_refusal(l, err);
    if (err != FILCH_OK) return;
    now.sent++;
    int from = now.dispatching ? NO_PROC : now.reaping != NO_PROC ? now.reaping : now.current;
    if (now.posing) from = now.as;
    (void)message_add(l, (message){ .from = from, .any_from = now.reaping != NO_PROC, .says = *says, .yield_rec = -1 });
}

void model_first_message(int to, int from, const content *says)
{
    (void)message_add(&now.procs[to], (message){ .from = from, .says = *says, .first = true, .yield_rec = -1 });
}

/* Returns 1 if the mailbox of `l` accepts the message `says` after `before` equal messages, 0 if it refuses the
 * message, -1 if the model cannot know. */
static int admits(const proc *l, const content *says, uint32_t before)
{
    load     sum = load_of(l);
    uint32_t more = before * units(says->size);
    if (l->max == 0 && l->bytes == 0) return 1;
    if (l->bytes != 0 && says->size > (size_t)units(l->bytes) * 16) return 0;
    if (!is_over(l, sum.count_most + before, sum.units_most + more, says->size)) return 1;
    bool drops = l->overflow == FILCH_OVERFLOW_DROP_OLDEST || sum.maybes;
    return !drops && is_over(l, sum.count + before, sum.units + more, says->size) ? 0 : -1;
}

int model_admits(const int *members, int count, const content *says)
{
    int taken = 0;
    for (int i = 0; i < count; i++) {
        uint32_t before = 0;
        for (int k = 0; k < i; k++) before += members[k] == members[i];
        int one = admits(&now.procs[members[i]], says, before);
        /* If a process with a mailbox limit has joined the group more than once, its mailbox may accept the first
         * copies of the message and refuse later copies. The model does not predict how many copies are accepted. */
        if (one < 0 || (before > 0 && (now.procs[members[i]].max != 0 || now.procs[members[i]].bytes != 0))) return -1;
        taken += one;
    }
    return taken;
}

void model_broadcast(const int *members, int count, int from, const content *says)
{
    for (int i = 0; i < count; i++) {
        proc *l = &now.procs[members[i]];
        bool  drops = l->overflow == FILCH_OVERFLOW_DROP_NEWEST;
        if (admits(l, says, 0) == 0) {
            bool too_big = l->bytes != 0 && says->size > (size_t)units(l->bytes) * 16;
            if (!too_big) count_refusal(l, drops ? FILCH_EDROPPED : FILCH_EFULL);
            continue;
        }
        now.sent++;
        (void)message_add(
            l, (message){ .from = from, .any_from = now.reaping != NO_PROC, .says = *says, .yield_rec = -1 });
    }
}

bool model_limited(void)
{
    for (int i = 0; i < now.proc_count; i++) {
        if (now.procs[i].alive && (now.procs[i].max != 0 || now.procs[i].bytes != 0)) return true;
    }
    /* A yielded spawn that is not dispatched yet may create a process with a mailbox limit. */
    for (int i = 0; i < now.yield_rec_count; i++) {
        if (now.yield_recs[i].what == YIELD_SPAWN && !now.yield_recs[i].dispatched) return true;
    }
    return false;
}

/* Removes the messages that DROP_OLDEST has dropped: those before `index` that have the sender of message `index` and
 * were sent in the same way (directly or by a yield). */
static void skip_dropped(proc *l, int index)
{
    const message came = now.message_list[index];
    for (int i = l->first, next; i != index; i = next) {
        const message *at = &now.message_list[i];
        next = at->next;
        /* A message marked `maybe` was refused or dropped, but its sender has not got the result of the send yet. The
         * message stays in the list until the sender gets the result. */
        if (at->from != came.from || at->asked != came.asked || at->maybe) continue;
        MUST(!at->first, "a first message was dropped");
        l->dropped++;
        message_remove(l, i);
    }
}

/* Finds the message that a process has read, and removes it from the model. Checks that messages of one sender arrive
 * in the order sent. Direct sends and sends by yield have separate orders, because a send by yield happens after the
 * step. */
static void read_message(proc *l, const filch_event *event)
{
    int  from = event->from.serial == 0 ? NO_PROC : model_find(event->from);
    bool passed[2] = { false, false };
    MUST(event->from.serial == 0 || from != NO_PROC, "a message from a process that never was");
    for (int i = l->first; i >= 0; i = now.message_list[i].next) {
        message *at = &now.message_list[i];
        bool     from_sender = at->from == from || (at->any_from && from == NO_PROC);
        if (!from_sender || passed[at->asked]) continue;
        if (!payload_is(&at->says, &event->data)) {
            passed[at->asked] = !at->maybe && (at->first || l->overflow != FILCH_OVERFLOW_DROP_OLDEST);
            continue;
        }
        if (l->overflow == FILCH_OVERFLOW_DROP_OLDEST) skip_dropped(l, i);
        if (at->maybe) now.sent++;
        now.last_read = event;
        now.last_read_says = at->says;
        if (!at->first) {
            now.read++;
            l->in_step++;
            l->in_step_units += units(at->says.size);
        }
        message_remove(l, i);
        return;
    }
    MUST(false, "a message that was not sent, or that was overtaken");
}

/* ---- yields ---- */

uint64_t model_next_tag(yield_kind what)
{
    uint64_t tag = (uint64_t)now.yield_rec_count;
    return what == YIELD_TIMER || what == YIELD_TICKER ? tag | TAG_TIMER : tag;
}

yield_rec *model_yielded(yield_kind what, uint64_t tag)
{
    yield_rec *q = &now.yield_recs[now.yield_rec_count++];
    *q = (yield_rec){ .proc = now.current,
                      .what = what,
                      .tag = tag,
                      .message = -1,
                      .to = NO_PROC,
                      .child = NO_PROC,
                      .requested_ns = still_clock_ns };
    q->armed = what == YIELD_SLEEP || what == YIELD_TIMER || what == YIELD_TICKER;
    now.procs[now.current].outstanding++;
    return q;
}

void model_yielded_send(yield_rec *q, int to, filch_err otherwise, const content *says)
{
    q->to = to;
    q->otherwise = otherwise;
    q->says = *says;
    if (to == NO_PROC || !now.procs[to].alive) return;
    now.procs[to].sent_by_yield = true;
    q->message = message_add(
        &now.procs[to],
        (message){
            .from = q->proc, .asked = true, .maybe = true, .says = *says, .yield_rec = (int)(q - now.yield_recs) });
}

void model_relations_done(int until)
{
    for (; now.tie_next < until; now.tie_next++) {
        yield_rec *q = &now.yield_recs[now.tie_next];
        if ((q->what != YIELD_RELATION && q->what != YIELD_SPAWN) || q->stage != STAGE_OPEN) continue;
        q->error = relations_yielded(q);
        q->dispatched = true;
        /* A FILCH_CMD_EXEC yield that succeeds is completed only when the spawned process ends. */
        if (q->tie != FILCH_CMD_EXEC || q->error != FILCH_OK) q->stage = STAGE_ANSWERED;
    }
    if (until == now.yield_rec_count) now.by_name = false;
}

void model_completed(yield_rec *q, const content *says, filch_err error, filch_err err, uint64_t refused_before)
{
    if (now.closed) {
        MUST(err == FILCH_ECLOSED, "a completion after closing");
        return;
    }
    if (err == FILCH_ENOMEM && model_lacked_memory(refused_before)) return;
    if (q->stage != STAGE_OPEN) {
        MUST(err == FILCH_ESTALE || err == FILCH_EDEAD, "a late completion was taken");
        now.late++;
        return;
    }
    if (now.opt.payload_max != 0 && says->size > now.opt.payload_max) {
        MUST(err == FILCH_ETOOBIG, "a completion beyond payload_max was accepted");
        return;
    }
    MUST(err == FILCH_OK, "a completion was refused");
    q->stage = STAGE_ANSWERED;
    q->says = *says;
    q->error = error;
}

/* Returns the timer or ticker of `l` with this id, or NULL. */
static yield_rec *timer_of(const proc *l, int64_t id)
{
    for (int i = 0; i < now.yield_rec_count; i++) {
        yield_rec *q = &now.yield_recs[i];
        bool       timer = q->what == YIELD_TIMER || q->what == YIELD_TICKER;
        if (timer && q->id == id && &now.procs[q->proc] == l && id != 0) return q;
    }
    return NULL;
}

static bool is_due(const yield_rec *q, uint64_t ns)
{
    return q->span_ns < ns && q->requested_ns + q->span_ns <= ns;
}

static void read_cancel(proc *l, const yield_rec *q, const filch_event *event)
{
    int64_t    answer = filch_as_int(&event->data);
    yield_rec *timer = timer_of(l, q->id);
    MUST(event->error == FILCH_OK && (answer == 0 || answer == 1), "a cancel completed with an unexpected value");
    if (answer == 1) {
        MUST(timer != NULL && timer->armed, "stopped a timer that was not there");
        timer->armed = false;
        timer->stopped = true;
        return;
    }
    bool sure = timer != NULL && timer->armed && (timer->what == YIELD_TICKER || !is_due(timer, still_clock_ns));
    MUST(!sure, "a timer that was there could not be stopped");
}

static void read_sending(yield_rec *q, const filch_event *event)
{
    proc *to = q->to != NO_PROC ? &now.procs[q->to] : NULL;
    bool  lacks_memory = now.alloc.refused > 0;
    if (event->error == FILCH_OK) {
        MUST(to != NULL, "a message to an unknown pid was sent");
        if (q->message < 0) return;
        now.message_list[q->message].maybe = false;
        now.message_list[q->message].yield_rec = -1;
        q->message = -1;
        now.sent++;
        return;
    }
    if (to == NULL) {
        MUST(event->error == q->otherwise || (lacks_memory && event->error == FILCH_ENOMEM),
             "a message to an unknown pid has another result");
        if (event->error == FILCH_EDEAD) now.to_ended++;
        return;
    }
    MUST(q->message >= 0 || !to->alive, "a message was refused, and arrived");
    bool drops = to->overflow == FILCH_OVERFLOW_DROP_NEWEST || to->overflow == FILCH_OVERFLOW_DROP_OLDEST;
    switch (event->error) {
    case FILCH_EDEAD: MUST(!to->alive, "FILCH_EDEAD for a live process"); break;
    case FILCH_EFULL: MUST(!drops && to->overflow != FILCH_OVERFLOW_WAIT, "full, but the policy says otherwise"); break;
    case FILCH_EDROPPED: MUST(drops, "dropped, but the policy says otherwise"); break;
    case FILCH_ETOOBIG: MUST(to->bytes != 0 && q->says.size > to->bytes, "too big, but it is not"); break;
    default: MUST(event->error == FILCH_ENOMEM && lacks_memory, "a message was refused for no reason"); break;
    }
    count_refusal(to, event->error);
    if (q->message >= 0) message_remove(to, q->message);
}

static void read_answer(proc *l, const filch_event *event)
{
    uint64_t   index = event->tag & ~TAG_TIMER;
    yield_rec *q = &now.yield_recs[index];
    bool       lacks_memory = now.alloc.refused > 0 && event->error == FILCH_ENOMEM;
    MUST(index < (uint64_t)now.yield_rec_count && q->tag == event->tag, "a completion without a yield");
    MUST(&now.procs[q->proc] == l, "a completion of another process");
    MUST(q->stage == STAGE_OPEN || q->stage == STAGE_ANSWERED, "answered twice");
    MUST(event->from.serial == 0, "a completion with a sender");
    switch (q->what) {
    case YIELD_OWN:
        MUST(q->stage == STAGE_ANSWERED, "a completion that was not made");
        MUST(q->error == event->error && payload_is(&q->says, &event->data), "another answer than was given");
        break;
    case YIELD_UNKNOWN: MUST(event->error == FILCH_ECOMMAND, "an unknown command was answered"); break;
    case YIELD_SLEEP:
        MUST(lacks_memory || event->error == FILCH_OK, "a sleep failed");
        MUST(lacks_memory || is_due(q, still_clock_ns), "a sleep was early");
        q->armed = false;
        break;
    case YIELD_TIMER:
    case YIELD_TICKER:
        MUST(lacks_memory || event->error == FILCH_OK, "a timer failed");
        q->id = filch_as_int(&event->data);
        if (lacks_memory) q->armed = false;
        MUST(lacks_memory || q->id != 0, "a timer without an id");
        break;
    case YIELD_CANCEL: read_cancel(l, q, event); break;
    case YIELD_SEND: read_sending(q, event); break;
    case YIELD_RELATION:
        MUST(q->stage == STAGE_ANSWERED && event->error == q->error, "a tie with another answer");
        if (q->tie == FILCH_CMD_MONITOR) relations_ref(q->tag, (uint64_t)filch_as_int(&event->data));
        if (q->tie == FILCH_CMD_BROADCAST && event->error == FILCH_OK) {
            MUST(q->number == (uint64_t)filch_as_int(&event->data), "a broadcast reached another number");
        }
        if (q->tie == FILCH_CMD_MEMBERS && event->error == FILCH_OK) {
            MUST(relations_is_list(q, &event->data), "a group with other members");
        }
        break;
    case YIELD_SPAWN:
        if (q->stage == STAGE_OPEN) {
            MUST(q->dispatched && !now.procs[q->child].alive, "exec was completed while its process runs");
            relations_end_reported(&now.procs[q->child], event->error, &event->data);
            break;
        }
        MUST(event->error == q->error || (q->otherwise != FILCH_OK && event->error == q->otherwise),
             "a spawn with another result");
        if (event->error == FILCH_OK) {
            MUST(model_find(filch_as_pid(&event->data)) == q->child, "a spawn was completed with another pid");
        }
        break;
    }
    q->stage = STAGE_READ;
    l->outstanding--;
    now.answered++;
}

static void read_timer(proc *l, const filch_event *event)
{
    uint64_t   index = event->tag & ~TAG_TIMER;
    yield_rec *q = &now.yield_recs[index];
    MUST(index < (uint64_t)now.yield_rec_count && q->tag == event->tag && &now.procs[q->proc] == l,
         "a message of an unknown timer");
    MUST(event->from.serial == 0 && filch_kind_of(&event->data) == FILCH_KIND_INT, "a timer's message is another");
    MUST(q->armed || (q->what == YIELD_TICKER && q->stopped), "a timer fired twice, or after it was stopped");
    int64_t ticks = filch_as_int(&event->data);
    MUST(ticks >= 1 && (q->what == YIELD_TICKER || ticks == 1), "a timer that fired no time");
    q->ticks += (uint64_t)ticks;
    MUST(q->requested_ns + q->ticks * q->span_ns <= still_clock_ns, "a timer was early");
    q->stopped = false;
    if (q->what == YIELD_TIMER) q->armed = false;
}

/* ---- what is inherited ---- */

filch_err model_cancelled(const heritage *h)
{
    for (uint32_t i = 0; i < h->depth; i++) {
        if (now.reasons[h->scopes[i]] != FILCH_OK) return now.reasons[h->scopes[i]];
    }
    return FILCH_OK;
}

void model_cancel_scope(int scope, filch_err reason)
{
    if (now.reasons[scope] != FILCH_OK) return;
    now.reasons[scope] = reason;
    for (int i = 0; i < now.proc_count; i++) {
        proc *l = &now.procs[i];
        if (!l->alive) continue;
        for (uint32_t k = 0; k < l->inherits.depth; k++) {
            if (l->inherits.scopes[k] == scope) l->cancel = true;
        }
    }
}

/* Checks a cancel without a reason. A cancel without a reason is caused by a call, by a stop or by the deadline of the
 * process; each cause leads to one cancel. */
static void read_plain_cancel(proc *l, filch_err error)
{
    /* If a scope of the process was cancelled, the cancel must carry the reason of the scope. Exception: a stop may
     * have queued its cancel before the scope was cancelled. */
    filch_err reason = model_cancelled(&l->inherits);
    bool      queued = now.closing && error == FILCH_ECANCELLED;
    MUST(error == (reason != FILCH_OK ? reason : FILCH_ECANCELLED) || queued, "a cancel with a wrong reason");
    bool due = l->inherits.due_ns <= still_clock_ns && !l->due_reported;
    if (l->cancel || now.closing) {
        if (due) l->due_maybe = true;
    } else {
        MUST(due, "a cancel without a cause, or a second one");
        l->due_reported = true;
    }
    l->cancel = false;
}

/* ---- steps ---- */

void model_step_begin(proc *l, const filch_event *events, size_t count)
{
    bool answers = false, messages = false, plain_cancel = false;
    model_relations_done(now.yield_rec_count);
    MUST(l->alive && !l->stepping && now.current == NO_PROC, "a step of an ended process, or inside a step");
    MUST(!l->doomed, "a step after a terminate");
    MUST(count <= (now.opt.batch_max != 0 ? now.opt.batch_max : 64), "more events than batch_max");
    bool cancelled = count > 0 && events[0].type == FILCH_EVENT_CANCEL;
    MUST(((!l->cancel || now.closing) && l->reasoned_cancels == 0) || cancelled, "a cancel did not come first");
    MUST(!relations_down(l), "a step of a process with a failed link");
    l->stepping = true;
    now.current = (int)(l - now.procs);
    now.yield_rec_fresh = now.yield_rec_count;
    now.last_read = NULL;
    now.steps++;
    for (size_t i = 0; i < count; i++) {
        switch (events[i].type) {
        case FILCH_EVENT_MESSAGE:
            messages = true;
            if ((events[i].tag & TAG_TIMER) != 0) read_timer(l, &events[i]);
            else read_message(l, &events[i]);
            break;
        case FILCH_EVENT_YIELD:
            answers = true;
            read_answer(l, &events[i]);
            break;
        case FILCH_EVENT_CANCEL:
            answers = true;
            MUST(i == 0 || events[i - 1].type == FILCH_EVENT_CANCEL || now.closing, "a late cancel");
            if (filch_kind_of(&events[i].data) == FILCH_KIND_INT) {
                relations_read(l, &events[i]);
                break;
            }
            /* A cancel is the first event of its step, except a cancel by a stop, which arrives after all earlier
             * events. */
            MUST(!plain_cancel && (i == 0 || now.closing), "a second cancel");
            plain_cancel = true;
            read_plain_cancel(l, events[i].error);
            break;
        case FILCH_EVENT_DROPPED:
            MUST(filch_as_int(&events[i].data) > 0, "nothing was dropped");
            l->drops_reported += (uint64_t)filch_as_int(&events[i].data);
            break;
        case FILCH_EVENT_EXIT:
        case FILCH_EVENT_LINK_DOWN:
        case FILCH_EVENT_JOINED:
        case FILCH_EVENT_LEFT:
            answers = true;
            MUST(!messages, "a notice came after a message");
            relations_read(l, &events[i]);
            break;
        default: MUST(false, "an event of no type");
        }
    }
    /* A batch that contains a message although further notices wait must be full: if the previous batch was full and
     * had no space for messages, the runtime reserves one event of this batch for a message. */
    bool full = count == (now.opt.batch_max != 0 ? now.opt.batch_max : 64);
    MUST(!messages || full || !relations_waits(l), "a message came before a notice");
    MUST(l->last_status != STATUS_IDLE || count > 0, "an idle process was stepped for nothing");
    MUST(l->last_status != STATUS_WAIT || answers, "a waiting process was stepped without a completion");
}

/* Removes the yields of the present step from the model. Called when the step has failed: its yields are never
 * dispatched. */
static void forget_fresh(proc *l)
{
    for (int i = now.yield_rec_fresh; i < now.yield_rec_count; i++) {
        yield_rec *q = &now.yield_recs[i];
        q->stage = STAGE_VOID;
        q->armed = false;
        l->outstanding--;
        if (q->message >= 0) message_remove(&now.procs[q->to], q->message);
    }
}

void model_step_end(proc *l, filch_err err, last_status status)
{
    if (err == FILCH_OK && status == STATUS_NONE) err = FILCH_ENOSTATUS;
    if (err == FILCH_OK && status == STATUS_WAIT && l->outstanding == 0) err = FILCH_ENOYIELD;
    if (err != FILCH_OK) forget_fresh(l);
    else now.asked += (uint64_t)(now.yield_rec_count - now.yield_rec_fresh);
    l->in_step = l->in_step_units = 0;
    l->stepping = false;
    l->last_status = status == STATUS_UPGRADE ? STATUS_CONTINUE : status;
    now.current = NO_PROC;
    now.last_read = NULL;
    if (err != FILCH_OK || status == STATUS_DONE) {
        l->ends = true;
        l->end_error = err;
        if (err != FILCH_OK) l->end_result = (content){ .kind = FILCH_KIND_NONE };
    } else if (status == STATUS_UPGRADE) {
        l->upgrading = !l->bare;
        if (l->bare) l->instance = l->next_instance;
        if (l->bare) l->next_instance = 0;
        l->bare = l->next_bare;
        l->name = l->next_name;
    }
}

/* ---- ends of processes ---- */

static void reap(proc *l)
{
    int self = (int)(l - now.procs);
    relations_causes(l);
    l->alive = false;
    now.ended++;
    if (now.closing && !l->ends) {
        now.forced_most++;
        now.forced += !l->doomed && !l->sent_by_yield && !l->by_link && !l->by_deadline;
    }
    if (!l->ends || l->end_error != FILCH_OK) now.failed++;
    while (l->first >= 0) {
        now.first_unread += now.message_list[l->first].first;
        if (now.message_list[l->first].maybe) {
            now.sent_maybe++;
            now.vague = true;
        }
        message_remove(l, l->first);
    }
    for (int i = 0; i < now.yield_rec_count; i++) {
        yield_rec *q = &now.yield_recs[i];
        if (q->proc != self) continue;
        q->armed = false;
        if (q->stage != STAGE_READ && q->what == YIELD_SEND) now.vague = true;
        if (q->stage != STAGE_READ) q->stage = STAGE_VOID;
    }
    relations_ended(l);
}

void model_closed(uint32_t instance, proc *l)
{
    if (now.current == NO_PROC) model_relations_done(now.yield_rec_count);
    now.shut++;
    if (l->stepping || instance == l->next_instance) {
        if (l->upgrading) MUST(false, "the new instance was closed, not the old one");
        MUST(instance == l->next_instance, "an instance was closed during its step");
        l->next_instance = 0;
        return;
    }
    MUST(instance == l->instance, "an instance was closed twice");
    l->instance = 0;
    if (!l->upgrading) {
        reap(l);
        return;
    }
    l->upgrading = false;
    l->instance = l->next_instance;
    l->next_instance = 0;
}

void model_exit(proc *l, filch_err error, const filch_data *result)
{
    model_relations_done(now.yield_rec_count);
    MUST(l->exits++ == 0, "on_exit was called twice for one end");
    MUST(l->alive == l->bare, "on_exit was called before close");
    if (l->alive) relations_causes(l);
    relations_end_reported(l, error, result);
    if (l->alive) reap(l);
}

/* ---- checks that are made when no process is ready ---- */

static void check_idle_mailbox(proc *l)
{
    bool maybes = false;
    for (int i = l->first, next; i >= 0; i = next) {
        message *at = &now.message_list[i];
        next = at->next;
        if (at->maybe) {
            MUST(now.yield_recs[at->yield_rec].stage == STAGE_VOID, "a sender waits for room that is there");
            maybes = true;
            now.sent_maybe++;
            now.vague = true;
        } else {
            MUST(l->overflow == FILCH_OVERFLOW_DROP_OLDEST && (l->max != 0 || l->bytes != 0), "a message was lost");
            MUST(!at->first, "a first message was lost");
            l->dropped++;
        }
        message_remove(l, i);
    }
    if (maybes) l->dropped = l->drops_reported;
    MUST(l->dropped == l->drops_reported || now.vague, "other drops were reported than happened");
    l->dropped = l->drops_reported;
}

static void check_open_yields(uint64_t since_ns, uint64_t *armed, uint64_t *armed_most)
{
    for (int i = 0; i < now.yield_rec_count; i++) {
        const yield_rec *q = &now.yield_recs[i];
        const proc      *l = &now.procs[q->proc];
        if (!l->alive || q->stage == STAGE_VOID) continue;
        MUST(q->stage != STAGE_ANSWERED, "a completion was lost");
        if (q->stage == STAGE_OPEN && q->what != YIELD_OWN && q->what != YIELD_SLEEP) {
            bool waits = q->what == YIELD_SEND && q->to != NO_PROC && now.procs[q->to].alive &&
                         now.procs[q->to].overflow == FILCH_OVERFLOW_WAIT &&
                         now.procs[q->to].last_status == STATUS_WAIT;
            if (q->what == YIELD_SPAWN) waits = q->dispatched && now.procs[q->child].alive;
            MUST(waits, "a built-in command did not complete");
        }
        if (q->stage == STAGE_OPEN && q->what == YIELD_OWN) MUST(q->dispatched, "a handler was not called");
        if (!q->armed) continue;
        bool due = is_due(q, since_ns > LATE_NS ? since_ns - LATE_NS : 0) && q->what != YIELD_TICKER;
        MUST(!due || (q->what == YIELD_TIMER && l->last_status == STATUS_WAIT), "a timer did not fire");
        (*armed_most)++;
        if (q->what == YIELD_TICKER || q->what == YIELD_SLEEP || !is_due(q, still_clock_ns)) (*armed)++;
        else if (l->last_status != STATUS_WAIT) (*armed)++;
    }
}

static void check_stats(uint64_t armed, uint64_t armed_most)
{
    filch_stats stats = FILCH_STATS_INIT;
    MUST(filch_sched_stats(now.sched, &stats) == FILCH_OK, "no stats");
    /* number of processes that the runtime itself has spawned to refuse the waiting senders of ended processes
     * (sched/refuser.c) */
    uint64_t internal = stats.spawned - now.spawned;
    MUST(stats.spawned >= now.spawned && stats.ended - now.ended == internal, "processes are miscounted");
    MUST(internal <= now.ended, "more processes of the runtime than processes have ended");
    MUST(stats.failed == now.failed, "failures are miscounted");
    MUST(stats.alive == now.spawned - now.ended, "live processes are miscounted");
    MUST(internal == 0 ? stats.steps == now.steps : stats.steps > now.steps, "steps are miscounted");
    MUST(stats.yields == now.asked, "yields are miscounted");
    MUST(stats.completions >= now.answered && stats.late_completions >= now.late, "completions are miscounted");
    MUST(stats.timers >= armed && stats.timers <= armed_most, "timers are miscounted");
    MUST(now.opt.long_step_ns == 0 || stats.long_steps == stats.steps, "long steps are miscounted");
    if (now.vague) return;
    MUST(stats.sent >= now.sent && stats.refused >= now.refused, "messages are miscounted");
    MUST(stats.dropped >= now.dropped && stats.undelivered >= now.to_ended, "refusals are miscounted");
}

void model_check_quiet(uint64_t since_ns)
{
    uint64_t armed = 0, armed_most = 0;
    model_relations_done(now.yield_rec_count);
    for (int i = 0; i < now.proc_count; i++) {
        proc      *l = &now.procs[i];
        filch_info info = { .size = sizeof info };
        filch_err  err = filch_inspect(now.sched, l->pid, &info);
        MUST(err == (l->alive ? FILCH_OK : FILCH_EDEAD), "inspect has another result");
        MUST(l->alive || l->exits == (l->has_on_exit ? 1 : 0), "on_exit was not called for an end");
        if (!l->alive) continue;
        MUST(!l->doomed && !l->cancel, "a cancel or terminate had no effect");
        bool late =
            l->inherits.due_ns != FILCH_FOREVER && since_ns > LATE_NS && l->inherits.due_ns < since_ns - LATE_NS;
        MUST(!late || l->due_reported || l->due_maybe, "its deadline has passed, and it was not cancelled");
        armed_most += l->inherits.due_ns != FILCH_FOREVER;
        MUST(l->last_status == STATUS_IDLE || l->last_status == STATUS_WAIT, "a ready process was forgotten");
        MUST(info.state == (l->last_status == STATUS_IDLE ? FILCH_STATE_IDLE : FILCH_STATE_BLOCKED), "another state");
        if (l->last_status == STATUS_IDLE) check_idle_mailbox(l);
        else MUST(l->outstanding > 0, "waits for nothing");
    }
    check_open_yields(since_ns, &armed, &armed_most);
    relations_check_quiet(since_ns, &armed_most);
    check_stats(armed, armed_most);
    if (armed_most == 0) MUST(filch_next_timeout(now.sched) == FILCH_FOREVER, "a timeout for nothing");
}

void model_inspected(int index, const filch_info *info)
{
    const proc *l = &now.procs[index];
    load        sum = load_of(l);
    MUST(strcmp(info->name, l->name) == 0, "another name");
    MUST(l->stepping == (info->state == FILCH_STATE_RUNNING), "running, or not");
    if (l->max == 0 && l->bytes == 0) return;
    MUST(info->messages >= sum.count && info->messages <= sum.count_most, "the mailbox is miscounted");
}

void model_over(void)
{
    filch_stats stats = FILCH_STATS_INIT;
    uint64_t    timers = 0;
    MUST(filch_sched_stats(now.sched, &stats) == FILCH_OK, "no stats");
    check_stats(0, 0);
    relations_check_quiet(0, &timers);
    MUST(now.spawned == now.ended, "a process is left");
    for (int i = 0; i < now.proc_count; i++) {
        MUST(!now.procs[i].alive && now.procs[i].exits == (now.procs[i].has_on_exit ? 1 : 0),
             "on_exit was not called for an end");
    }
    if (now.vague) return;
    for (int i = 0; i < now.yield_rec_count; i++) {
        timers += now.yield_recs[i].what == YIELD_TIMER || now.yield_recs[i].what == YIELD_TICKER;
    }
    /* Every accepted message is counted as read, undelivered, or dropped. An unread message of a timer counts as
     * undelivered. */
    MUST(stats.sent == now.sent && stats.refused == now.refused, "messages are miscounted");
    uint64_t gone = now.read + (stats.undelivered - now.to_ended - now.first_unread) + (stats.dropped - now.dropped);
    MUST(gone >= now.sent && gone <= now.sent + timers, "messages have vanished, or multiplied");
}
