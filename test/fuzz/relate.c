/* relate.c - see relate.h. Chooses a call, makes it, compares its result with the model's, and reports it to the model
 * (relations.h). */
#include "fuzz/relate.h"

#include "fuzz/relations.h"
#include "fuzz/still_clock.h"

int choose_pid(fuzz_bytes *in, filch_pid *pid, filch_err *otherwise)
{
    uint8_t  choice = fuzz_byte(in);
    uint64_t node = now.opt.node;
    *otherwise = FILCH_EDEAD;
    if (choice % 8 != 7 && now.proc_count > 0) {
        int index = (choice / 8 + choice) % now.proc_count;
        *pid = now.procs[index].pid;
        return index;
    }
    uint64_t known = now.proc_count > 0 ? now.procs[0].pid.serial : 1;
    switch (choice / 8 % 6) {
    case 0: *pid = (filch_pid){ 0, 0 }; break;
    case 1: *pid = (filch_pid){ node, 0 }; break;
    case 2: *pid = (filch_pid){ node, UINT64_MAX }; break;
    case 3: *pid = (filch_pid){ node, known + ((uint64_t)fuzz_byte(in) << 32) }; break;
    case 4: *pid = (filch_pid){ node, fuzz_byte(in) }; break;
    default: *pid = (filch_pid){ node + 1, known }; *otherwise = now.foreign;
    }
    return model_find(*pid);
}

uint64_t choose_span(fuzz_bytes *in)
{
    static const uint64_t spans[] = { 0, 1, 4999, 5000, 70000, 1000000, FILCH_SECONDS(3600), FILCH_FOREVER };
    return spans[fuzz_below(in, 8)];
}

/* A pid, and the error that a call about it must return. */
typedef struct chosen_pid {
    filch_pid pid;
    int       proc;
    bool      alive;
    filch_err fault;
} chosen_pid;

/* Chooses a pid. If `self` is true, the pid of the process that is being stepped is likely. */
static chosen_pid choose(fuzz_bytes *in, bool self)
{
    chosen_pid chosen;
    filch_err  unused;
    if (self && now.current != NO_PROC && !now.dispatching && fuzz_below(in, 4) != 3) {
        chosen.proc = now.current;
        chosen.pid = now.procs[now.current].pid;
    } else {
        chosen.proc = choose_pid(in, &chosen.pid, &unused);
    }
    chosen.fault = relations_fault(chosen.pid);
    chosen.alive = chosen.proc != NO_PROC && now.procs[chosen.proc].alive;
    return chosen;
}

/* Returns the error that a call with the pids of `a` and `b` must return, FILCH_OK if none. */
static filch_err fault_of_two(const chosen_pid *a, const chosen_pid *b)
{
    if (relations_closed()) return FILCH_ECLOSED;
    if (a->pid.node == b->pid.node && a->pid.serial == b->pid.serial) return FILCH_EINVAL;
    if (a->fault == FILCH_EDENIED && b->fault == FILCH_EINVAL)
        /* FILCH_EINVAL, not FILCH_EDENIED: if a pid is invalid, the library does not ask the policy of the node */
        return FILCH_EINVAL;
    return a->fault != FILCH_OK ? a->fault : b->fault;
}

static filch_err fault_of_one(const chosen_pid *chosen)
{
    return relations_closed() ? FILCH_ECLOSED : chosen->fault;
}

/* Checks the result `err` of a call against `wanted`. Returns true if the call succeeded, so that the model must record
 * it. */
static bool was_done(filch_err err, filch_err wanted, uint64_t refused, const char *what)
{
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return false;
    MUST(err == wanted, what);
    return err == FILCH_OK;
}

static void monitor(fuzz_bytes *in)
{
    chosen_pid watcher = choose(in, true), target = choose(in, false);
    uint64_t   refused = now.alloc.refused, tag = relations_next_tag(), ref = 0;
    filch_err  wanted = fault_of_two(&watcher, &target);
    filch_err  err = filch_monitor(now.sched, watcher.pid, target.pid, tag, &ref);
    if (wanted == FILCH_OK && !watcher.alive) wanted = FILCH_EDEAD;
    if (!was_done(err, wanted, refused, "a monitor with another result")) return;
    relations_monitored(watcher.proc, target.proc, target.pid, tag, ref);
}

/* Calls filch_unmonitor() with a valid reference, an old reference, a reference of another process, or 0. */
static void unmonitor(fuzz_bytes *in)
{
    uint8_t    choice = fuzz_byte(in);
    relation  *b = ties.relation_count > 0 ? &ties.relation_list[choice % ties.relation_count] : NULL;
    chosen_pid watcher = choose(in, true);
    if (b == NULL || b->kind != RELATION_MONITOR || choice >= 240) b = NULL;
    else if (choice % 4 != 3) watcher = (chosen_pid){ now.procs[b->a].pid, b->a, now.procs[b->a].alive, FILCH_OK };
    uint64_t  ref = b != NULL ? b->ref : 0;
    filch_err wanted = fault_of_one(&watcher);
    bool      right = b != NULL && b->live && ref != 0 && watcher.proc == b->a;
    if (wanted == FILCH_OK && !right) wanted = FILCH_ESTALE;
    filch_err err = filch_unmonitor(now.sched, watcher.pid, ref);
    if (was_done(err, wanted, UINT64_MAX, "unmonitor with another result")) relations_untied(b);
}

static void tie(fuzz_bytes *in)
{
    chosen_pid a = choose(in, true), b = choose(in, false);
    uint64_t   refused = now.alloc.refused;
    filch_err  wanted = fault_of_two(&a, &b), err = filch_link(now.sched, a.pid, b.pid);
    if (wanted == FILCH_OK && !a.alive && !b.alive) wanted = FILCH_EDEAD;
    if (was_done(err, wanted, refused, "a link with another result")) relations_linked(a.proc, a.pid, b.proc, b.pid);
}

static void untie(fuzz_bytes *in)
{
    uint8_t    choice = fuzz_byte(in);
    relation  *tied = ties.relation_count > 0 ? &ties.relation_list[choice % ties.relation_count] : NULL;
    chosen_pid a = choose(in, true), b = choose(in, false);
    if (tied != NULL && choice % 4 != 3) {
        a = (chosen_pid){ now.procs[tied->a].pid, tied->a, now.procs[tied->a].alive, FILCH_OK };
        b = (chosen_pid){ now.procs[tied->b].pid, tied->b, now.procs[tied->b].alive, FILCH_OK };
    }
    uint64_t  refused = now.alloc.refused;
    relation *link = a.alive && b.alive ? relations_find(RELATION_LINK, a.proc, b.proc) : NULL;
    filch_err wanted = fault_of_two(&a, &b), err = filch_unlink(now.sched, b.pid, a.pid);
    if (wanted != FILCH_OK && wanted != FILCH_ECLOSED) {
        /* Both pids may be wrong. filch_unlink() gets the pids in reversed order, so it may return the error of either
         * pid. */
        MUST(err == FILCH_EINVAL || err == now.foreign || (err == FILCH_ENOMEM && model_lacked_memory(refused)),
             "untied");
        return;
    }
    if (wanted == FILCH_OK && link == NULL) wanted = FILCH_ESTALE;
    if (was_done(err, wanted, refused, "unlink with another result")) relations_untied(link);
}

static void trap(fuzz_bytes *in, filch_out *out)
{
    bool on = fuzz_below(in, 3) != 0;
    MUST(filch_trap_links(NULL, 1) == FILCH_EINVAL, "filch_trap_links accepted a NULL out");
    if (out == NULL) return;
    MUST(filch_trap_links(out, on) == FILCH_OK, "links could not be trapped");
    now.procs[now.current].traps = on;
}

static void cancel_with(fuzz_bytes *in)
{
    static const filch_err reasons[] = { FILCH_ECANCELLED, FILCH_EDEADLINE, FILCH_EUSER + 20, FILCH_OK };
    filch_err              reason = reasons[fuzz_below(in, 4)];
    uint64_t               refused = now.alloc.refused, deadline_ns = choose_span(in);
    chosen_pid             to = choose(in, false);
    filch_err              wanted = reason == FILCH_OK ? FILCH_EINVAL : fault_of_one(&to);
    uint64_t               requested_ns = still_clock_ns;
    if (wanted == FILCH_OK && !to.alive) wanted = FILCH_EDEAD;
    filch_err err = filch_cancel_with(now.sched, to.pid, reason, deadline_ns);
    if (!was_done(err, wanted, refused, "a cancel with another result")) return;
    relations_cancelled_with(now.current, to.proc, reason, requested_ns, deadline_ns);
}

/* ---- names and groups ---- */

/* Returns an invalid name. */
static const char *unsound(fuzz_bytes *in)
{
    static char long_one[257];
    memset(long_one, 'x', sizeof long_one - 1);
    uint32_t choice = fuzz_below(in, 3);
    return choice == 0 ? NULL : choice == 1 ? "" : long_one;
}

static void misname(fuzz_bytes *in)
{
    const char *name = unsound(in);
    chosen_pid  chosen = choose(in, true);
    filch_pid   pid;
    size_t      count;
    MUST(filch_register(now.sched, name, chosen.pid) == FILCH_EINVAL, "an invalid name was registered");
    MUST(filch_unregister(now.sched, name) == FILCH_EINVAL, "an invalid name was unregistered");
    MUST(filch_whereis(now.sched, name, &pid) == FILCH_EINVAL, "whereis accepted an invalid name");
    MUST(filch_join(now.sched, name, chosen.pid) == FILCH_EINVAL, "an invalid group was joined");
    MUST(filch_members(now.sched, name, NULL, 0, &count) == FILCH_EINVAL, "an invalid group has members");
}

static void register_name(fuzz_bytes *in)
{
    uint32_t   name = fuzz_below(in, NAMES);
    chosen_pid chosen = choose(in, true);
    bool       taken = ties.owner[name] != NO_PROC;
    uint64_t   refused = now.alloc.refused;
    filch_err  wanted = fault_of_one(&chosen), err = filch_register(now.sched, tie_names[name], chosen.pid);
    if (wanted == FILCH_OK && !chosen.alive) wanted = FILCH_EDEAD;
    if (taken && (wanted == FILCH_OK || (wanted == FILCH_EDEAD && err == FILCH_EEXISTS))) wanted = FILCH_EEXISTS;
    if (was_done(err, wanted, refused, "register with another result")) ties.owner[name] = chosen.proc;
}

static void unname(fuzz_bytes *in)
{
    uint32_t  name = fuzz_below(in, NAMES);
    uint64_t  refused = now.alloc.refused;
    filch_err wanted = relations_closed() ? FILCH_ECLOSED : ties.owner[name] == NO_PROC ? FILCH_EDEAD : FILCH_OK;
    filch_err err = filch_unregister(now.sched, tie_names[name]);
    if (was_done(err, wanted, refused, "a name was not taken away")) ties.owner[name] = NO_PROC;
}

static void join(fuzz_bytes *in)
{
    int        group = (int)fuzz_below(in, GROUPS);
    chosen_pid chosen = choose(in, true);
    uint64_t   refused = now.alloc.refused;
    filch_err  wanted = fault_of_one(&chosen);
    if (ties.member_count[group] >= MEMBERS) return;
    if (wanted == FILCH_OK && !chosen.alive) wanted = FILCH_EDEAD;
    filch_err err = filch_join(now.sched, tie_groups[group], chosen.pid);
    if (was_done(err, wanted, refused, "a join with another result")) relations_joined(group, chosen.proc);
}

static void watch(fuzz_bytes *in)
{
    int        group = (int)fuzz_below(in, GROUPS);
    chosen_pid chosen = choose(in, true);
    uint64_t   refused = now.alloc.refused;
    filch_err  wanted = fault_of_one(&chosen);
    if (ties.watcher_count[group] >= WATCHERS) return;
    if (wanted == FILCH_OK && !chosen.alive) wanted = FILCH_EDEAD;
    filch_err err = filch_watch(now.sched, tie_groups[group], chosen.pid, (uint64_t)group);
    if (was_done(err, wanted, refused, "a watch with another result"))
        relations_watched(group, chosen.proc, (uint64_t)group);
}

static void leave(fuzz_bytes *in, bool member)
{
    int        group = (int)fuzz_below(in, GROUPS);
    chosen_pid chosen = choose(in, true);
    uint64_t   refused = now.alloc.refused;
    filch_err  fault = fault_of_one(&chosen);
    filch_err  err = member ? filch_leave(now.sched, tie_groups[group], chosen.pid)
                            : filch_unwatch(now.sched, tie_groups[group], chosen.pid);
    if (err == FILCH_ENOMEM && model_lacked_memory(refused)) return;
    if (fault != FILCH_OK) {
        MUST(err == fault, "leave or unwatch has another result");
        return;
    }
    bool was = chosen.proc != NO_PROC &&
               (member ? relations_left(group, chosen.proc) : relations_unwatched(group, chosen.proc));
    MUST(err == (was ? FILCH_OK : FILCH_ESTALE), "leave or unwatch has another result");
}

/* Sends to every member of a group, in order. Does nothing if the model cannot know which members accept the
 * message. */
static void broadcast(fuzz_bytes *in, payload *p)
{
    int group = (int)fuzz_below(in, GROUPS),
        taken = model_admits(ties.members[group], ties.member_count[group], &p->says);
    uint64_t  sent = 99;
    filch_err wanted = relations_closed() ? FILCH_ECLOSED : FILCH_OK;
    if (taken < 0 || now.alloc.fail_at != 0 || !model_has_messages(ties.member_count[group])) {
        payload_sent(p, false);
        return;
    }
    if (wanted == FILCH_OK && now.opt.payload_max != 0 && p->says.size > now.opt.payload_max) wanted = FILCH_ETOOBIG;
    filch_err err = filch_broadcast(now.sched, tie_groups[group], p->data, &sent);
    MUST(err == wanted, "a broadcast with another result");
    payload_sent(p, err == FILCH_OK);
    if (err != FILCH_OK) return;
    MUST(sent == (uint64_t)taken, "a broadcast reached another number");
    model_broadcast(ties.members[group], ties.member_count[group], now.dispatching ? NO_PROC : now.current, &p->says);
}

void broadcast_something(fuzz_bytes *in, payload *p)
{
    MUST(filch_broadcast(now.sched, "", p->data, NULL) == FILCH_EINVAL, "a broadcast to an invalid group");
    broadcast(in, p);
}

/* ---- yields ---- */

typedef struct yield_plan {
    uint32_t  what;
    filch_pid pid;
    int       name;
    uint64_t  number;
    filch_err reason;
} yield_plan;

static filch_err make_yield(filch_out *out, const yield_plan *w, uint64_t tag)
{
    switch (w->what) {
    case FILCH_CMD_MONITOR: return filch_yield_monitor(out, tag, w->pid);
    case FILCH_CMD_UNMONITOR: return filch_yield_unmonitor(out, tag, w->number);
    case FILCH_CMD_LINK: return filch_yield_link(out, tag, w->pid);
    case FILCH_CMD_UNLINK: return filch_yield_unlink(out, tag, w->pid);
    case FILCH_CMD_TERMINATE: return filch_yield_terminate(out, tag, w->pid);
    case FILCH_CMD_CANCEL: return filch_yield_cancel(out, tag, w->pid, w->reason, w->number);
    case FILCH_CMD_REGISTER: return filch_yield_register(out, tag, tie_names[w->name]);
    case FILCH_CMD_UNREGISTER: return filch_yield_unregister(out, tag, tie_names[w->name]);
    case FILCH_CMD_JOIN: return filch_yield_join(out, tag, tie_groups[w->name]);
    case FILCH_CMD_WATCH: return filch_yield_watch(out, tag, tie_groups[w->name]);
    case FILCH_CMD_UNWATCH: return filch_yield_unwatch(out, tag, tie_groups[w->name]);
    case FILCH_CMD_MEMBERS: return filch_yield_members(out, tag, tie_groups[w->name]);
    default: return filch_yield_leave(out, tag, tie_groups[w->name]);
    }
}

/* Returns the reference of a monitor of any process, or 0. */
static uint64_t choose_ref(fuzz_bytes *in)
{
    uint8_t         choice = fuzz_byte(in);
    const relation *b = ties.relation_count > 0 ? &ties.relation_list[choice % ties.relation_count] : NULL;
    return b != NULL && b->kind == RELATION_MONITOR ? b->ref : 0;
}

void yield_tie(fuzz_bytes *in, filch_out *out)
{
    static const uint32_t  all[] = { FILCH_CMD_MONITOR,    FILCH_CMD_LINK,      FILCH_CMD_UNLINK, FILCH_CMD_REGISTER,
                                     FILCH_CMD_UNREGISTER, FILCH_CMD_JOIN,      FILCH_CMD_LEAVE,  FILCH_CMD_MONITOR,
                                     FILCH_CMD_CANCEL,     FILCH_CMD_TERMINATE, FILCH_CMD_WATCH,  FILCH_CMD_UNWATCH,
                                     FILCH_CMD_MEMBERS,    FILCH_CMD_UNMONITOR, FILCH_CMD_CANCEL, FILCH_CMD_JOIN };
    static const filch_err reasons[] = { FILCH_ECANCELLED, FILCH_EUSER + 21 };
    yield_plan             w = { .what = all[fuzz_below(in, 16)] };
    bool                   pids = w.what <= FILCH_CMD_UNLINK;
    bool                   group = w.what >= FILCH_CMD_JOIN && w.what <= FILCH_CMD_UNWATCH;
    w.name = (int)fuzz_below(in, group ? GROUPS : NAMES);
    w.pid = choose(in, false).pid;
    if (w.what == FILCH_CMD_UNMONITOR) w.number = choose_ref(in);
    if (w.what == FILCH_CMD_CANCEL) {
        w.reason = reasons[fuzz_below(in, 2)];
        w.number = choose_span(in);
        MUST(filch_yield_cancel(out, 1, w.pid, FILCH_OK, 0) == FILCH_EINVAL, "a cancel without a reason");
    }
    if (!model_has_room() || !relations_have_room() || now.alloc.fail_at != 0) return;
    if (w.what == FILCH_CMD_JOIN && ties.member_count[w.name] >= MEMBERS) return;
    if (w.what == FILCH_CMD_WATCH && ties.watcher_count[w.name] >= WATCHERS) return;
    uint64_t    tag = model_next_tag(YIELD_RELATION);
    const char *text = group ? tie_groups[w.name] : tie_names[w.name];
    /* The payload of a cancel command has 16 bytes; the size is compared with payload_max below. */
    size_t    size = !pids ? strlen(text) : w.what == FILCH_CMD_CANCEL ? 16 : 0;
    filch_err err = make_yield(out, &w, tag);
    if (now.opt.payload_max != 0 && size > now.opt.payload_max) {
        MUST(err == FILCH_ETOOBIG, "a name beyond payload_max");
        return;
    }
    MUST(err == FILCH_OK, "a relation could not be yielded");
    yield_rec *q = model_yielded(YIELD_RELATION, tag);
    q->tie = w.what;
    q->about = w.pid;
    q->name = w.name;
    q->number = w.number;
    q->reason = w.reason;
}

void yield_message(fuzz_bytes *in, filch_out *out, payload *p)
{
    bool     group = fuzz_below(in, 2) == 0;
    int      name = (int)fuzz_below(in, group ? GROUPS : NAMES);
    uint64_t tag = model_next_tag(YIELD_RELATION);
    bool     room = model_has_room() && model_has_messages(MEMBERS + YIELDED_MAX);
    if (!room || now.alloc.fail_at != 0 || model_limited()) {
        payload_sent(p, false);
        return;
    }
    filch_err err = group ? filch_yield_broadcast(out, tag, tie_groups[name], p->data)
                          : filch_yield_send_name(out, tag, tie_names[name], p->data);
    payload_sent(p, err == FILCH_OK);
    if (now.opt.payload_max != 0 && p->says.size > now.opt.payload_max) {
        MUST(err == FILCH_ETOOBIG, "a message beyond payload_max");
        return;
    }
    MUST(err == FILCH_OK, "a message could not be yielded");
    yield_rec *q = model_yielded(YIELD_RELATION, tag);
    q->tie = group ? FILCH_CMD_BROADCAST : FILCH_CMD_SEND_NAME;
    q->name = name;
    q->says = p->says;
    now.by_name = true;
}

void relate_something(fuzz_bytes *in, filch_out *out)
{
    uint32_t choice = fuzz_byte(in);
    if (!relations_have_room()) return;
    if (choice >= 192 && out != NULL) {
        yield_tie(in, out);
        return;
    }
    switch (choice % 16) {
    case 0:
    case 1: monitor(in); break;
    case 2: unmonitor(in); break;
    case 3:
    case 4: tie(in); break;
    case 5: untie(in); break;
    case 6: trap(in, out); break;
    case 7: cancel_with(in); break;
    case 8:
    case 9: register_name(in); break;
    case 10: unname(in); break;
    case 11: join(in); break;
    case 12: watch(in); break;
    case 13: leave(in, true); break;
    case 14: leave(in, false); break;
    default: misname(in); break;
    }
}
