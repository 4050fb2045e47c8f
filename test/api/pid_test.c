/* pid_test.c - a pid names one process for ever: a call with an old or wrong pid affects no process. */
#include <stdatomic.h>
#include <string.h>

#include <filch.h>

#include "port/thread.h"
#include "support/check.h"
#include "support/until.h"

enum { HOLD = FILCH_CMD_USER };

static struct {
    atomic_uint_fast64_t serial;    /* serial number of the pid of the child that lives now; the senders read it */
    atomic_uint_fast64_t children;  /* number of children so far */
    atomic_uint_fast64_t delivered; /* messages read by the process they were sent to */
    atomic_uint_fast64_t astray;    /* messages read by a wrong process */
    atomic_uint_fast64_t reused;    /* number of children that got the slot of the first child */
    atomic_uint_fast64_t probes, wrong_answers;
    atomic_bool          late; /* true: a sender got FILCH_EDEAD, because the child had ended */
    atomic_bool          over;
    filch_pid            first;
    uint64_t             rounds;
    uint32_t             mailbox_max, overflow;
    filch_receiver       receiver; /* receiver of the last HOLD yield */
    atomic_bool          held;
    atomic_uint_fast64_t answers;
} seen;

static uint32_t slot_of(filch_pid pid)
{
    return (uint32_t)pid.serial;
}

static filch_sched *begin(int32_t workers)
{
    memset(&seen, 0, sizeof seen);
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = workers;
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    return sched;
}

/* ---- a million processes in one slot, one after the other ---- */

static filch_err short_lived_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events;
    const filch_ctx *ctx = filch_out_ctx(out);
    atomic_fetch_add(&seen.astray, count); /* no message was sent to this pid, so every message counts as astray */
    return filch_done(out, filch_of_pid(filch_ctx_self(ctx)));
}

static const filch_type short_lived = { .name = "short lived", .step = short_lived_step };

/* State of a process that spawns short-lived children one after the other. The on_exit function of each child sends a
 * message to this process, which then spawns the next child. */
typedef struct respawner {
    filch_sched *sched;
    filch_pid    self;
} respawner;

static void short_lived_gone(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    respawner *n = user;
    if (error != FILCH_OK || filch_as_pid(result).serial != pid.serial) atomic_fetch_add(&seen.wrong_answers, 1);
    if (filch_send(n->sched, n->self, filch_none()) != FILCH_OK) atomic_fetch_add(&seen.wrong_answers, 1);
}

/* Makes every call that takes a pid, with a pid that no live process has. Each call must return `want`. */
static void probe(filch_sched *sched, filch_pid pid, filch_err want)
{
    filch_info info = { .size = sizeof info };
    bool       right = filch_send(sched, pid, filch_str("to the one who was here before")) == want;
    right &= filch_cancel(sched, pid) == want;
    right &= filch_terminate(sched, pid) == want;
    right &= filch_inspect(sched, pid, &info) == want;
    atomic_fetch_add(&seen.probes, 1);
    if (!right) atomic_fetch_add(&seen.wrong_answers, 1);
}

static filch_err respawner_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    respawner *n = self;
    (void)events, (void)count;
    n->sched = filch_out_sched(out);
    n->self = filch_ctx_self(filch_out_ctx(out));
    uint64_t children = atomic_fetch_add(&seen.children, 1);
    if (children > seen.rounds) return filch_done(out, filch_none());
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    options.on_exit = short_lived_gone;
    options.on_exit_user = n;
    filch_pid pid = { 0, 0 };
    filch_err err = filch_spawn(n->sched, &short_lived, &options, &pid);
    if (err != FILCH_OK) return err;
    if (children == 0) seen.first = pid;
    else if (slot_of(pid) == slot_of(seen.first)) atomic_fetch_add(&seen.reused, 1);
    if (children > 0 && (children & (children - 1)) == 0) probe(n->sched, seen.first, FILCH_EDEAD);
    return filch_idle(out);
}

static const filch_type respawner_type = { .name = "respawner", .size = sizeof(respawner), .step = respawner_step };

TEST(a_stale_pid_stays_dead_however_often_its_slot_is_reused)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    seen.rounds = scaled(1000000);
    filch_pid pid;
    ok(filch_spawn(sched, &respawner_type, NULL, &pid));
    for (uint32_t ran = 1; ran > 0;) ok(filch_tick(sched, 0, &ran));
    same(atomic_load(&seen.children), seen.rounds + 2);
    same(atomic_load(&seen.reused), seen.rounds); /* all processes had the slot of the first process */
    probe(sched, seen.first, FILCH_EDEAD);
    probe(sched, pid, FILCH_EDEAD);
    assert_true(atomic_load(&seen.probes) > 2);
    same(atomic_load(&seen.wrong_answers), 0);
    same(atomic_load(&seen.astray), 0);
    filch_stats stats = FILCH_STATS_INIT;
    ok(filch_sched_stats(sched, &stats));
    same(stats.undelivered, atomic_load(&seen.probes));
    same(stats.alive, 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

/* ---- messages sent while the receiver ends ---- */

/* The process publishes its pid, lives for a few steps, and reads its messages. Each message contains the pid that it
 * was sent to. */
static filch_err target_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *steps = self, serial = filch_ctx_self(filch_out_ctx(out)).serial;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) continue;
        bool mine = (uint64_t)filch_as_int(&events[i].data) == serial;
        atomic_fetch_add(mine ? &seen.delivered : &seen.astray, 1);
    }
    if (*steps == 0) atomic_store(&seen.serial, serial);
    return (*steps)++ < (serial >> 32) % 32 ? filch_continue(out) : filch_done(out, filch_none());
}

static const filch_type target = { .name = "target", .size = sizeof(uint64_t), .step = target_step };

static void target_gone(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid, (void)error, (void)result;
    respawner *n = user;
    if (filch_send(n->sched, n->self, filch_none()) != FILCH_OK) atomic_fetch_add(&seen.wrong_answers, 1);
}

static filch_err breed(filch_sched *sched, void *respawner_self)
{
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    uint64_t            child = atomic_fetch_add(&seen.children, 1);
    options.on_exit = target_gone;
    options.on_exit_user = respawner_self;
    /* The mailbox of every second child has a limit, so that senders also update the count of its messages. */
    if (child % 2 == 1) {
        options.mailbox_max = 2;
        options.mailbox_bytes = child % 4 == 1 ? 64 : 0;
        options.overflow = (uint32_t)(child / 2 % (FILCH_OVERFLOW_STOP + 1));
    }
    return filch_spawn(sched, &target, &options, NULL);
}

static filch_err breeder_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    respawner *n = self;
    (void)events, (void)count;
    n->sched = filch_out_sched(out);
    n->self = filch_ctx_self(filch_out_ctx(out));
    /* The breeder ends after enough children, if some messages were delivered and at least one came too late. */
    if (atomic_load(&seen.children) >= seen.rounds && atomic_load(&seen.delivered) >= seen.rounds / 100 &&
        atomic_load(&seen.late)) {
        atomic_store(&seen.over, true);
        return filch_done(out, filch_none());
    }
    filch_err err = breed(n->sched, n);
    return err == FILCH_OK ? filch_idle(out) : err;
}

static const filch_type breeding = { .name = "breeder", .size = sizeof(respawner), .step = breeder_step };

typedef struct sender {
    filch_sched *sched;
    uint64_t     node, sent, dead, full, dropped, other;
    fli_thread   thread;
} sender;

static void send_and_send(void *arg)
{
    sender *s = arg;
    while (!atomic_load(&seen.over)) {
        filch_pid pid = { s->node, atomic_load(&seen.serial) };
        if (pid.serial == 0) continue;
        filch_err err = filch_send(s->sched, pid, filch_int((int64_t)pid.serial));
        if (err == FILCH_OK) s->sent++;
        else if (err == FILCH_EDEAD) s->dead++, atomic_store(&seen.late, true);
        else if (err == FILCH_EFULL) s->full++;
        else if (err == FILCH_EDROPPED) s->dropped++;
        else s->other++;
    }
}

TEST(a_message_to_an_ending_process_never_reaches_the_next_process_in_its_slot)
{
    for (int32_t workers = 1; workers <= 2; workers++) {
        filch_sched *sched = begin(workers);
        filch_pid    pid;
        sender       senders[2];
        seen.rounds = scaled(100000);
        ok(filch_spawn(sched, &breeding, NULL, &pid));
        for (int i = 0; i < 2; i++) {
            senders[i] = (sender){ .sched = sched, .node = pid.node };
            ok(fli_thread_start(&senders[i].thread, "sender", send_and_send, &senders[i]));
        }
        until(atomic_load(&seen.over));
        uint64_t sent = 0, dead = 0, dropped = 0;
        for (int i = 0; i < 2; i++) {
            fli_thread_join(&senders[i].thread);
            same(senders[i].other, 0);
            sent += senders[i].sent;
            dead += senders[i].dead;
            dropped += senders[i].dropped;
        }
        assert_true(dead > 0);
        same(atomic_load(&seen.astray), 0);
        same(atomic_load(&seen.wrong_answers), 0);
        same(filch_sched_close(sched, FILCH_SECONDS(30), NULL), FILCH_OK);
        filch_stats stats = FILCH_STATS_INIT;
        ok(filch_sched_stats(sched, &stats));
        /* No message was lost: each accepted message was read, or was counted as undelivered or dropped. */
        same(sent, atomic_load(&seen.delivered) + stats.undelivered - dead + stats.dropped - dropped);
        same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
    }
}

/* ---- calls with ended and invalid pids ---- */

static filch_err idle_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self, (void)events, (void)count;
    return filch_idle(out);
}

static const filch_type idle = { .name = "idle", .step = idle_step };

static filch_pid ended_process(filch_sched *sched)
{
    filch_pid pid;
    ok(filch_spawn(sched, &short_lived, NULL, &pid));
    ok(filch_tick(sched, 0, NULL));
    return pid;
}

TEST(calls_on_ended_processes_are_refused_and_messages_to_them_counted)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    filch_pid    pid = ended_process(sched);
    filch_stats  stats = FILCH_STATS_INIT;
    filch_info   info = { .size = sizeof info };
    char         bytes[100] = "";
    same(filch_send(sched, pid, filch_int(1)), FILCH_EDEAD);
    same(filch_send(sched, pid, filch_bytes(bytes, sizeof bytes)), FILCH_EDEAD);
    same(filch_send(sched, pid, filch_move(bytes, sizeof bytes, NULL)), FILCH_EDEAD); /* refused: the bytes are not
                                                                                       * freed */
    same(filch_deliver(sched, &(filch_package){ .to = pid, .data = filch_none() }), FILCH_EDEAD);
    ok(filch_sched_stats(sched, &stats));
    same(stats.undelivered, 4);
    same(filch_cancel(sched, pid), FILCH_EDEAD);
    same(filch_terminate(sched, pid), FILCH_EDEAD);
    same(filch_inspect(sched, pid, &info), FILCH_EDEAD);
    ok(filch_sched_stats(sched, &stats));
    same(stats.undelivered, 4); /* only messages count as undelivered, other calls do not */
    same(stats.sent, 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

TEST(messages_unread_at_the_end_of_their_process_are_counted)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    filch_pid    pid;
    filch_stats  stats = FILCH_STATS_INIT;
    ok(filch_spawn(sched, &idle, NULL, &pid));
    for (int i = 0; i < 10; i++)
        ok(filch_send(sched, pid, filch_str("a text that is too long to be kept in the event")));
    ok(filch_terminate(sched, pid));
    ok(filch_tick(sched, 0, NULL));
    ok(filch_sched_stats(sched, &stats));
    same(stats.sent, 10);
    same(stats.undelivered, 10);
    same(stats.failed, 1);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

TEST(pids_that_never_existed_are_dead_or_foreign)
{
    filch_sched *sched = begin(FILCH_NO_WORKERS);
    filch_pid    pid;
    ok(filch_spawn(sched, &idle, NULL, &pid));
    const uint64_t one_slot = 1, one_gen = UINT64_C(1) << 32;
    const uint64_t serials[] = {
        0,                                  /* the invalid pid */
        slot_of(pid),                       /* the slot of `pid`, combined with generation 0 */
        pid.serial & ~UINT64_C(0xffffffff), /* the generation of `pid`, combined with slot 0 */
        pid.serial + one_gen,               /* the next generation of the slot */
        pid.serial - one_gen,               /* the previous generation of the slot */
        /* a generation that no process can have: it is larger than the largest generation, FLI_GEN_LAST (2^24 - 1) */
        pid.serial + (one_gen << 26),
        pid.serial + (one_gen << 12),      /* a generation that differs from the right one only in its high bits */
        pid.serial + one_slot,             /* the next slot, which is allocated but not used, or not allocated */
        pid.serial | UINT64_C(0xffffffff), /* a slot far away */
        UINT64_MAX,
    };
    for (size_t i = 0; i < sizeof serials / sizeof *serials; i++) {
        probe(sched, (filch_pid){ pid.node, serials[i] }, FILCH_EDEAD);
        probe(sched, (filch_pid){ pid.node + 1, serials[i] }, serials[i] == 0 ? FILCH_EDEAD : FILCH_EFOREIGN);
        probe(sched, (filch_pid){ 0, serials[i] }, serials[i] == 0 ? FILCH_EDEAD : FILCH_EFOREIGN);
    }
    same(atomic_load(&seen.wrong_answers), 0);
    probe(sched, (filch_pid){ ~pid.node, pid.serial }, FILCH_EFOREIGN);
    same(atomic_load(&seen.wrong_answers), 0);
    filch_info info = { .size = sizeof info };
    ok(filch_inspect(sched, pid, &info)); /* the live process was not affected */
    ok(filch_send(sched, pid, filch_int(1)));
    same(filch_sched_stop(sched, 0, NULL), FILCH_EDEADLINE);
}

/* ---- late completions ---- */

static filch_err hold(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    (void)user, (void)command, (void)tag;
    seen.receiver = receiver;
    atomic_store(&seen.held, true);
    return FILCH_OK;
}

/* The process makes a yield and waits for its completion, `rounds` times; then it ends. */
static filch_err asking_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    uint64_t *yield_count = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        atomic_fetch_add(&seen.answers, 1);
        /* Each completion must carry the tag of its yield. A completion for an earlier yield would carry an older
         * tag. */
        if (events[i].tag != *yield_count || (uint64_t)filch_as_int(&events[i].data) != *yield_count) {
            atomic_fetch_add(&seen.astray, 1);
        }
    }
    if (*yield_count == seen.rounds) return filch_done(out, filch_none());
    filch_err err = filch_yield(out, HOLD, ++*yield_count, filch_none());
    return err == FILCH_OK ? filch_wait(out) : err;
}

static const filch_type asking = { .name = "asking", .size = sizeof(uint64_t), .step = asking_step };

static filch_sched *begin_asking(uint64_t rounds, filch_pid *pid)
{
    memset(&seen, 0, sizeof seen);
    seen.rounds = rounds;
    filch_options options = FILCH_OPTIONS_INIT;
    options.workers = FILCH_NO_WORKERS;
    options.payload_max = 100;
    ok(filch_registry_create(&options.registry));
    ok(filch_registry_add(options.registry, HOLD, hold, NULL));
    filch_sched *sched;
    ok(filch_sched_create(&sched, &options));
    filch_registry_destroy(options.registry);
    ok(filch_spawn(sched, &asking, NULL, pid));
    ok(filch_tick(sched, 0, NULL));
    assert_true(atomic_load(&seen.held));
    return sched;
}

TEST(a_second_completion_returns_estale_and_has_no_effect)
{
    filch_pid      pid;
    filch_sched   *sched = begin_asking(2, &pid);
    filch_receiver receiver = seen.receiver;
    filch_stats    stats = FILCH_STATS_INIT;
    char           bytes[101] = "";
    same(filch_complete((filch_receiver){ 0 }, 0, filch_none(), FILCH_OK), FILCH_EINVAL);
    same(filch_complete(receiver, 2, filch_none(), FILCH_OK), FILCH_EINVAL); /* wrong tag */
    /* FILCH_ETOOBIG leaves the yield outstanding */
    same(filch_complete(receiver, 1, filch_bytes(bytes, sizeof bytes), FILCH_OK), FILCH_ETOOBIG);
    same(filch_complete(receiver, 1, filch_int(1), FILCH_OK), FILCH_OK);
    same(filch_complete(receiver, 1, filch_int(9), FILCH_OK), FILCH_ESTALE);
    ok(filch_tick(sched, 0, NULL));
    /* the second yield may use the node of the first yield, but the old receiver does not complete it */
    same(filch_complete(receiver, 1, filch_int(9), FILCH_OK), FILCH_ESTALE);
    same(filch_complete(receiver, 1, filch_move(bytes, 10, NULL), FILCH_OK), FILCH_ESTALE); /* refused: the bytes are
                                                                                             * not freed */
    ok(filch_tick(sched, 0, NULL));
    same(atomic_load(&seen.answers), 1);
    same(filch_complete(seen.receiver, 2, filch_int(2), FILCH_OK), FILCH_OK);
    ok(filch_tick(sched, 0, NULL));
    same(atomic_load(&seen.answers), 2);
    same(atomic_load(&seen.astray), 0);
    ok(filch_sched_stats(sched, &stats));
    same(stats.completions, 2);
    same(stats.late_completions, 3);
    same(stats.alive, 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

TEST(a_completion_for_an_ended_process_returns_estale_and_has_no_effect)
{
    filch_pid    pid;
    filch_sched *sched = begin_asking(2, &pid);
    filch_stats  stats = FILCH_STATS_INIT;
    ok(filch_terminate(sched, pid));
    ok(filch_tick(sched, 0, NULL));
    same(filch_complete(seen.receiver, 1, filch_int(1), FILCH_OK), FILCH_ESTALE);
    ok(filch_sched_stats(sched, &stats));
    same(stats.late_completions, 1);
    same(stats.completions, 0);
    same(stats.undelivered, 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

TEST(a_stale_receiver_never_completes_a_later_yield)
{
    filch_pid      pid;
    uint64_t       rounds = scaled(300000);
    filch_sched   *sched = begin_asking(rounds, &pid);
    filch_receiver first = seen.receiver;
    uint64_t       reused = 0;
    for (uint64_t i = 1; i <= rounds; i++) {
        filch_receiver now = seen.receiver;
        if (i > 1) same(filch_complete(first, 1, filch_int(-1), FILCH_OK), FILCH_ESTALE);
        reused += i > 1 && (uint32_t)now.key == (uint32_t)first.key;
        ok(filch_complete(now, i, filch_int((int64_t)i), FILCH_OK));
        ok(filch_tick(sched, 0, NULL));
    }
    assert_true(rounds < 100 || reused > rounds / 3); /* enough yields used the node of an earlier yield */
    same(atomic_load(&seen.answers), rounds);
    same(atomic_load(&seen.astray), 0);
    same(filch_sched_stop(sched, 0, NULL), FILCH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stale_pid_stays_dead_however_often_its_slot_is_reused),
        cmocka_unit_test(a_message_to_an_ending_process_never_reaches_the_next_process_in_its_slot),
        cmocka_unit_test(calls_on_ended_processes_are_refused_and_messages_to_them_counted),
        cmocka_unit_test(messages_unread_at_the_end_of_their_process_are_counted),
        cmocka_unit_test(pids_that_never_existed_are_dead_or_foreign),
        cmocka_unit_test(a_second_completion_returns_estale_and_has_no_effect),
        cmocka_unit_test(a_completion_for_an_ended_process_returns_estale_and_has_no_effect),
        cmocka_unit_test(a_stale_receiver_never_completes_a_later_yield),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
