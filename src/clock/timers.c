/* timers.c - see timers.h.
 *
 * An entry is one armed timer, from a slab. Bits of its id: generation:31 | sleep:1 | handle:31, the highest first. The
 * entry of a sleep is one cache line, from a separate slab. All other entries are msg_timers of two cache lines, which
 * also contain the receiver and the message. All fields are protected by the lock of the entry's shard; only
 * `generation` and `shard` may be read without it, to find that lock. A thread that has locked a shard and finds the
 * generation of its id in the entry has locked the right shard, because the shard changes only together with the
 * generation.
 *
 *   FREE    in the slab.
 *   ARMED   in the wheel of the shard.            -> FIRING by a worker that polls, UNREAD or FREE by cancel, FREE by
 *           abandon.
 *   FIRING  held by that worker, without the lock. -> FREE or (a ticker) ARMED, by that worker.
 *   STOPPED cancelled while FIRING.               -> UNREAD or FREE by that worker, VOID by abandon.
 *   VOID    abandoned while FIRING.               -> FREE, by that worker.
 *   UNREAD  a cancelled ticker whose message is in the mailbox; keeps the number of ticks for the message.
 *                                                 -> FREE by abandon, or by remember() when the message was read.
 *
 * A ticker counts its ticks in `unread` and sends a message only for the first unread tick; the count is read when
 * the message is delivered. So a process that is slower than its ticker gets one message with a count, not thousands.
 */
#include "clock/timers.h"

#include <assert.h>
#include <string.h>

#include "base/assert.h"
#include "port/clock.h"
#include "proc/ext.h"
#include "proc/mailbox.h"

enum { FREE, ARMED, FIRING, STOPPED, VOID, UNREAD };

/* Marker value in entry.command: an alarm of the runtime (fli_timers_alarm). */
#define ALARM 0
/* Marker value in entry.command: the timer completes the yield `key` with FILCH_EDEADLINE. The id of FILCH_CMD_SEND can
 * be used for this marker because a send never has a timer. */
#define DEADLINE FILCH_CMD_SEND

/* Maximum number of timers that one batch of fli_timers_poll_some() fires. They fire without a lock; the locks of the
 * shards are taken before and after each batch. */
#define BATCH 64

/* Bit in a timer id and in entry.self. Set: the entry is a sleep, and the handle names an entry of the slab `sleeps`.
 * No process gets the id of a sleep, and stop() refuses an id that a process has guessed. */
#define SLEEP_BIT (UINT32_C(1) << 31)

typedef struct entry {
    fli_timer wheel;
    /* How often the entry was reused.  writes: under the lock of the shard.  reads: any thread, relaxed; the value is
     * reliable only under the lock. */
    FLI_ATOMIC(uint32_t) generation;
    FLI_ATOMIC(uint16_t) shard;   /* index of the entry's shard; written and read like `generation` */
    uint8_t              command; /* FILCH_CMD_SLEEP, _TIMER, _TICKER, _TERMINATE or _CANCEL; ALARM or DEADLINE */
    uint8_t              phase;
    /* handle of the entry in its slab; in a sleep, SLEEP_BIT is set too. Not atomic: set when the entry was made */
    uint32_t self;
    uint32_t slot; /* sleep: the slot of the sleeping process */
    uint64_t key;  /* sleep or DEADLINE: key of the yield that the timer completes */
} entry;

/* An entry of any timer except a sleep. */
typedef struct msg_timer {
    entry    e;
    uint64_t period_ns;   /* ticker: time between two ticks */
    bool     message_due; /* ticker: `unread` is not 0, but the message about these ticks could not be sent */
    uint64_t serial;      /* serial of the process that gets the message or the flag; 0: none */
    uint64_t tag;         /* tag of the timer's message; of an ALARM: the cookie for hooks.alarm */
    /* timer or ticker: the node for its first message, allocated when the timer is armed */
    fli_event_node *node;
    /* Bits: high 32 = generation, low 32 = unread ticks.  writes: the worker that fires the ticker, and the worker that
     * delivers its message (fli_timers_ticks).  Relaxed is enough: it is only a counter. */
    FLI_ATOMIC(uint64_t) unread;
} msg_timer;

/* A sleep has one cache line because 100,000 sleeps of two lines each would take 1,600 pages more. Each page costs a
 * page fault when it is first accessed, and a TLB miss when a sleep ends. See docs/design/timers.md. */
static_assert(sizeof(entry) == 64 && sizeof(msg_timer) <= 128, "a sleep is one cache line, all others are two");
#define MSG_TIMER_SIZE ((sizeof(msg_timer) + 63) / 64 * 64)

static bool is_sleep(const entry *e)
{
    return (e->self & SLEEP_BIT) != 0;
}

static msg_timer *msg_timer_of(entry *e)
{
    FLI_ASSERT(!is_sleep(e));
    return FLI_OUTER(msg_timer, e, e);
}

static void make_sleep(void *object, uint32_t handle)
{
    entry *e = object;
    e->self = handle | SLEEP_BIT;
    fli_atomic_init(&e->generation, 1);
}

static void make_msg_timer(void *object, uint32_t handle)
{
    msg_timer *t = object;
    t->e.self = handle;
    fli_atomic_init(&t->e.generation, 1);
}

filch_err fli_timers_init(fli_timers *timers, fli_runtime *rt, uint32_t shard_count, uint64_t now_ns)
{
    size_t    bytes = shard_count * sizeof *timers->shards;
    filch_err err = FILCH_ENOMEM;
    *timers = (fli_timers){ .rt = rt, .shard_count = shard_count };
    fli_atomic_init(&timers->away_ns, FLI_NEVER);
    timers->shards = fli_zalloc_aligned(&rt->mem, bytes, FLI_LINE);
    if (timers->shards == NULL) goto no_shards;
    err = fli_slab_init(&timers->sleeps, &rt->mem, sizeof(entry), SLEEP_BIT - 1, make_sleep);
    if (err != FILCH_OK) goto no_sleeps;
    err = fli_slab_init(&timers->msg_timers, &rt->mem, MSG_TIMER_SIZE, SLEEP_BIT - 1, make_msg_timer);
    if (err != FILCH_OK) goto no_msg_timers;
    for (uint32_t i = 0; i < shard_count; i++) {
        fli_wheel_init(&timers->shards[i].wheel, now_ns);
        fli_atomic_init(&timers->shards[i].next_ns, FLI_NEVER);
        fli_atomic_init(&timers->shards[i].away, true);
        err = fli_mutex_init(&timers->shards[i].lock);
        if (err == FILCH_OK) continue;
        while (i-- > 0) fli_mutex_fini(&timers->shards[i].lock);
        goto no_lock;
    }
    return FILCH_OK;
no_lock:
    fli_slab_fini(&timers->msg_timers);
no_msg_timers:
    fli_slab_fini(&timers->sleeps);
no_sleeps:
    fli_free_aligned(&rt->mem, timers->shards, bytes, FLI_LINE);
no_shards:
    return err;
}

void fli_timers_fini(fli_timers *timers)
{
    for (uint32_t i = 0; i < timers->shard_count; i++) {
        FLI_ASSERT(timers->shards[i].wheel.count == 0);
        fli_mutex_fini(&timers->shards[i].lock);
    }
    fli_slab_fini(&timers->msg_timers);
    fli_slab_fini(&timers->sleeps);
    fli_free_aligned(&timers->rt->mem, timers->shards, timers->shard_count * sizeof *timers->shards, FLI_LINE);
}

static uint64_t id_of(entry *e)
{
    return ((uint64_t)fli_load_rlx(&e->generation) << 32) | e->self;
}

static void hint_locked(fli_timer_shard *shard)
{
    uint64_t next_ns = fli_wheel_next_ns(&shard->wheel);
    if (next_ns != fli_load_rlx(&shard->next_ns)) fli_store_rlx(&shard->next_ns, next_ns);
    fli_store_rlx(&shard->count, shard->wheel.count);
}

/* Returns the entry to its slab and increments its generation, which has 31 bits and is never 0. */
static void free_locked(fli_timers *timers, fli_timer_shard *shard, entry *e)
{
    uint32_t generation = fli_load_rlx(&e->generation);
    e->phase = FREE;
    fli_store_rlx(&e->generation, generation == INT32_MAX ? 1 : generation + 1);
    if (is_sleep(e)) fli_slab_give(&timers->sleeps, &shard->spare_sleeps, e);
    else fli_slab_give(&timers->msg_timers, &shard->spare_msg_timers, msg_timer_of(e));
}

/* Returns true if the entry is a ticker with a message in a mailbox: then its number of ticks is still needed. If the
 * message could not be sent (message_due), it is in no mailbox. Requires the lock of the shard, and that no worker
 * fires the entry. */
static bool is_unread(entry *e)
{
    if (e->command != FILCH_CMD_TICKER) return false;
    const msg_timer *t = msg_timer_of(e);
    return (uint32_t)fli_load_rlx(&t->unread) != 0 && !t->message_due;
}

/* Frees a cancelled entry; but if its message is still in the mailbox, keeps the entry as UNREAD until the message was
 * read. */
static void cancel_locked(fli_timers *timers, fli_timer_shard *shard, entry *e)
{
    if (is_unread(e)) e->phase = UNREAD;
    else free_locked(timers, shard, e);
}

/* Returns the entry of the handle in `id`, whatever generation the entry has, or NULL if no such entry exists. */
static entry *entry_of(fli_timers *timers, uint64_t id)
{
    uint32_t handle = (uint32_t)id & ~SLEEP_BIT;
    if (((uint32_t)id & SLEEP_BIT) != 0) return fli_slab_find_size(&timers->sleeps, handle, sizeof(entry));
    msg_timer *t = fli_slab_find_size(&timers->msg_timers, handle, MSG_TIMER_SIZE);
    return t != NULL ? &t->e : NULL;
}

/* Finds the entry of timer `id` and locks its shard. Returns NULL without a lock if the timer has fired or was
 * stopped. */
static entry *find_and_lock(fli_timers *timers, uint64_t id, fli_timer_shard **out)
{
    entry *e = entry_of(timers, id);
    if (e == NULL) return NULL;
    uint32_t shard = fli_load_rlx(&e->shard);
    *out = &timers->shards[shard];
    fli_mutex_lock(&(*out)->lock);
    if (id_of(e) == id && fli_load_rlx(&e->shard) == shard && e->phase != FREE) return e;
    fli_mutex_unlock(&(*out)->lock);
    return NULL;
}

/* Stops the timer `id`. `serial` not 0: only if it is a timer or ticker of the process with that serial. `serial` 0:
 * whatever timer it is. Returns true if this call stopped the timer. */
static bool stop(fli_timers *timers, uint64_t id, uint64_t serial)
{
    fli_timer_shard *shard;
    entry           *e = find_and_lock(timers, id, &shard);
    if (e == NULL) return false;
    /* A process can guess ids, so it may stop only its own timers and tickers, and no sleep. */
    bool own = (e->command == FILCH_CMD_TIMER || e->command == FILCH_CMD_TICKER) && msg_timer_of(e)->serial == serial;
    if (serial != 0 && !own) {
        fli_mutex_unlock(&shard->lock);
        return false;
    }
    bool            stopped = e->phase == ARMED || (e->phase == FIRING && e->command == FILCH_CMD_TICKER);
    fli_event_node *node = NULL;
    if (e->phase == ARMED) {
        bool armed = fli_wheel_remove(&shard->wheel, &e->wheel);
        FLI_ASSERT(armed);
        if (!is_sleep(e)) node = msg_timer_of(e)->node;
        if (serial != 0) cancel_locked(timers, shard, e);
        else free_locked(timers, shard, e);
        hint_locked(shard);
    } else if (stopped) {
        e->phase = serial != 0 ? STOPPED : VOID;
    } else if (serial == 0 && e->phase == STOPPED) {
        e->phase = VOID;
    } else if (serial == 0 && e->phase == UNREAD) {
        free_locked(timers, shard, e);
    }
    fli_mutex_unlock(&shard->lock);
    if (node != NULL) fli_full_node_give(timers->rt, fli_current_worker(timers->rt), node);
    return stopped;
}

void fli_timers_abandon(fli_timers *timers, uint64_t id)
{
    (void)stop(timers, id, 0);
}

uint64_t fli_timers_ticks(fli_timers *timers, uint64_t id)
{
    msg_timer *t = fli_slab_find_size(&timers->msg_timers, (uint32_t)id, MSG_TIMER_SIZE);
    uint64_t   unread = t != NULL ? fli_load_rlx(&t->unread) : 0;
    do {
        if (unread >> 32 != id >> 32 || (uint32_t)unread == 0) return 1;
    } while (!fli_cas_weak_rlx(&t->unread, &unread, unread & ~(uint64_t)UINT32_MAX));
    return (uint32_t)unread;
}

/* Adds the timer to the timer list of process `p`, so that the end of `p` stops the timer. Returns false if there is no
 * memory. */
static bool remember(fli_timers *timers, fli_proc *p, uint64_t id)
{
    fli_runtime *rt = timers->rt;
    fli_ext     *ext = fli_ext_get(rt, p);
    if (ext == NULL) return false;
    if (ext->timer_count == ext->timer_cap) {
        /* Before the list grows, removes the timers that have fired or were stopped. */
        uint32_t kept = 0;
        for (uint32_t i = 0; i < ext->timer_count; i++) {
            fli_timer_shard *shard;
            entry           *e = find_and_lock(timers, ext->timers[i], &shard);
            if (e == NULL) continue;
            bool read = e->phase == UNREAD && !is_unread(e);
            if (read) free_locked(timers, shard, e);
            fli_mutex_unlock(&shard->lock);
            if (!read) ext->timers[kept++] = ext->timers[i];
        }
        ext->timer_count = kept;
        if (kept * 2 >= ext->timer_cap) {
            uint32_t  cap = ext->timer_cap == 0 ? 4 : ext->timer_cap * 2;
            uint64_t *ids = fli_resize(&rt->mem, ext->timers, ext->timer_cap * sizeof *ids, cap * sizeof *ids);
            if (ids == NULL) return false;
            ext->timers = ids;
            ext->timer_cap = cap;
        }
    }
    ext->timers[ext->timer_count++] = id;
    return true;
}

/* Lowers away_ns to `ns`, the next_ns of a shard with an owner that is away. Called after the owner has gone away, and
 * after each write that lowers the next_ns of such a shard.
 *
 * PAIR timers.away, release half. Always a read-modify-write, also if away_ns is low enough already, because
 * collect_away() swaps away_ns before it reads the shards. If this CAS comes before the swap, the worker in
 * collect_away() sees that the owner is away, and sees the next_ns of its shard. If this CAS comes after the swap, it
 * lowers the value that the swap has stored. A load alone could read the old value of away_ns while the worker in
 * collect_away() reads the old value of `away`: then away_ns would be later than the timer.
 *
 * If `ns` is FLI_NEVER, the shard has no timer, and nothing is lowered. A thread that later arms a timer in the shard
 * sees under the lock that the owner is away, and calls this function. */
static void lower_away(fli_timers *timers, uint64_t ns)
{
    if (ns == FLI_NEVER) return;
    uint64_t was = fli_load_rlx(&timers->away_ns);
    while (!fli_cas_acqrel(&timers->away_ns, &was, ns < was ? ns : was)) {}
}

static void arm_locked(fli_timers *timers, fli_timer_shard *shard, entry *e, uint64_t due_ns)
{
    e->phase = ARMED;
    fli_wheel_add(&shard->wheel, &e->wheel, due_ns);
    /* Most timers are due later than the first timer of the wheel; then next_ns stays as it is. */
    if (due_ns >= fli_load_rlx(&shard->next_ns)) {
        fli_store_rlx(&shard->count, shard->wheel.count);
        return;
    }
    hint_locked(shard);
    if (FLI_UNLIKELY(fli_load_rlx(&shard->away))) lower_away(timers, fli_load_rlx(&shard->next_ns));
}

/* Returns a msg_timer without a receiver, or NULL if there is no memory. */
static msg_timer *take_msg_timer(fli_timers *timers, uint32_t shard_index, uint8_t command)
{
    fli_timer_shard *shard = &timers->shards[shard_index];
    fli_mutex_lock(&shard->lock);
    msg_timer *t = fli_slab_take(&timers->msg_timers, &shard->spare_msg_timers);
    if (t != NULL) fli_store_rlx(&t->e.shard, (uint16_t)shard_index);
    fli_mutex_unlock(&shard->lock);
    if (t == NULL) return NULL;
    t->e.command = command;
    t->period_ns = t->serial = t->tag = 0;
    t->node = NULL;
    t->message_due = false;
    return t;
}

static void arm(fli_timers *timers, entry *e, uint64_t due_ns)
{
    fli_timer_shard *shard = &timers->shards[fli_load_rlx(&e->shard)];
    fli_mutex_lock(&shard->lock);
    arm_locked(timers, shard, e, due_ns);
    fli_mutex_unlock(&shard->lock);
}

static void give(fli_timers *timers, entry *e)
{
    fli_timer_shard *shard = &timers->shards[fli_load_rlx(&e->shard)];
    fli_mutex_lock(&shard->lock);
    free_locked(timers, shard, e);
    fli_mutex_unlock(&shard->lock);
}

/* Allocates, fills and arms the entry in one critical section, because sleeps are the most frequent timers. */
static filch_err handle_sleep(fli_timers *timers, fli_local *worker, filch_receiver receiver, uint64_t due_ns)
{
    fli_timer_shard *shard = &timers->shards[worker->index];
    fli_mutex_lock(&shard->lock);
    entry *e = fli_slab_take(&timers->sleeps, &shard->spare_sleeps);
    if (e != NULL) {
        fli_store_rlx(&e->shard, (uint16_t)worker->index);
        e->command = FILCH_CMD_SLEEP;
        e->key = receiver.key;
        e->slot = fli_serial_slot(worker->serial);
        /* The yield's node keeps the id of the timer, so that the end of the process stops the timer. The timer cannot
         * complete the yield before the lock is released. */
        fli_event_node *node = fli_full_node_at(timers->rt, (uint32_t)receiver.key);
        node->data[0] = id_of(e);
        arm_locked(timers, shard, e, due_ns);
    }
    fli_mutex_unlock(&shard->lock);
    return e != NULL ? FILCH_OK : FILCH_ENOMEM;
}

static filch_err handle_timer(fli_timers *timers, fli_local *worker, msg_timer *t, const filch_command *command,
                              filch_receiver receiver, uint64_t due_ns)
{
    uint64_t id = id_of(&t->e);
    t->node = fli_node_take(timers->rt, worker);
    if (t->node == NULL) return FILCH_ENOMEM;
    if (!remember(timers, worker->current, id)) {
        fli_full_node_give(timers->rt, worker, t->node);
        return FILCH_ENOMEM;
    }
    t->serial = command->from.serial;
    t->tag = receiver.tag;
    fli_store_rlx(&t->unread, (uint64_t)fli_load_rlx(&t->e.generation) << 32);
    arm(timers, &t->e, due_ns);
    /* Cannot fail: this code runs inside the handler, so the yield is pending and the worker holds the process. */
    return filch_complete(receiver, receiver.tag, filch_int((int64_t)id), FILCH_OK);
}

filch_err fli_timers_handle(fli_timers *timers, const filch_command *command, filch_receiver receiver)
{
    fli_local *worker = fli_current_worker(timers->rt);
    if (filch_kind_of(&command->data) != FILCH_KIND_INT) return FILCH_EINVAL;
    uint64_t value = (uint64_t)filch_as_int(&command->data);
    if (command->id == FILCH_CMD_TIMER_CANCEL) {
        bool stopped = stop(timers, value, command->from.serial);
        return filch_complete(receiver, receiver.tag, filch_int(stopped ? 1 : 0), FILCH_OK);
    }
    if (command->id == FILCH_CMD_TICKER && value == 0) return FILCH_EINVAL;
    uint64_t due_ns = fli_clock_after(fli_now(timers->rt), value);
    if (command->id == FILCH_CMD_SLEEP) return handle_sleep(timers, worker, receiver, due_ns);
    msg_timer *t = take_msg_timer(timers, worker->index, (uint8_t)command->id);
    if (t == NULL) return FILCH_ENOMEM;
    if (command->id == FILCH_CMD_TICKER) t->period_ns = value;
    filch_err err = handle_timer(timers, worker, t, command, receiver, due_ns);
    if (err != FILCH_OK) give(timers, &t->e);
    return err;
}

/* Arms the timer and returns its id. The id is read before the timer is armed, because an armed timer may fire and its
 * entry may be reused. */
static uint64_t armed(fli_timers *timers, msg_timer *t, uint64_t due_ns)
{
    uint64_t id = id_of(&t->e);
    arm(timers, &t->e, due_ns);
    return id;
}

uint64_t fli_timers_alarm(fli_timers *timers, uint64_t due_ns, uint64_t cookie)
{
    fli_local *worker = fli_current_worker(timers->rt);
    msg_timer *t = take_msg_timer(timers, worker != NULL ? worker->index : 0, ALARM);
    if (t == NULL) return 0;
    t->tag = cookie;
    return armed(timers, t, due_ns);
}

uint64_t fli_timers_deadline(fli_timers *timers, filch_receiver receiver, uint64_t due_ns)
{
    msg_timer *t = take_msg_timer(timers, fli_current_worker(timers->rt)->index, DEADLINE);
    if (t == NULL) return 0;
    t->e.key = receiver.key;
    /* The yield's node keeps the id of the timer, so that the end of the process stops the timer. The id is stored
     * before the timer is armed, because an armed timer may complete the yield. */
    fli_full_node_at(timers->rt, (uint32_t)receiver.key)->data[0] = id_of(&t->e);
    return armed(timers, t, due_ns);
}

uint64_t fli_timers_set_flag_later(fli_timers *timers, uint64_t serial, uint64_t delay_ns, uint64_t flag)
{
    fli_local *worker = fli_current_worker(timers->rt);
    uint8_t    command = flag == FLI_KILL ? FILCH_CMD_TERMINATE : FILCH_CMD_CANCEL;
    msg_timer *t = take_msg_timer(timers, worker != NULL ? worker->index : 0, command);
    if (t == NULL) return 0;
    t->serial = serial;
    return armed(timers, t, fli_clock_after(fli_now(timers->rt), delay_ns));
}

static void set_flag(fli_timers *timers, fli_local *worker, uint64_t serial, uint64_t flag)
{
    fli_runtime *rt = timers->rt;
    fli_proc    *p = fli_proc_find(rt, serial);
    if (fli_state_set_flag(&p->state, fli_serial_gen(serial), flag) == FLI_DELIVERY_WOKE)
        rt->hooks.ready(rt, worker, p);
}

/* Sends the message of the timer. Returns false if the receiver has ended, or if there is no memory for the message
 * (possible only from the second message of a ticker on). */
static bool send_message(fli_timers *timers, fli_local *worker, msg_timer *t, uint8_t what, uint64_t data)
{
    fli_event_node *node = t->node != NULL ? t->node : fli_node_take(timers->rt, worker);
    t->node = NULL;
    if (node == NULL) return false;
    node->what = what | FLI_NODE_GENERAL;
    node->sender_worker = 0;
    node->sender = 0;
    node->tag = t->tag;
    filch_data payload = filch_int((int64_t)data);
    fli_node_put_data(node, &payload);
    fli_proc *p = fli_proc_find(timers->rt, t->serial);
    if (fli_mail_post(timers->rt, worker, p, fli_serial_gen(t->serial), node) == FILCH_OK) return true;
    fli_full_node_give(timers->rt, worker, node);
    return false;
}

/* Adds `ticks` to the unread ticks of the ticker. Sends its message if no message of this ticker is in the mailbox. */
static void tick(fli_timers *timers, fli_local *worker, msg_timer *t, uint64_t ticks)
{
    uint64_t id = id_of(&t->e), unread = fli_load_rlx(&t->unread), sum;
    do {
        sum = (uint32_t)unread + ticks;
        if (sum > UINT32_MAX) sum = UINT32_MAX;
    } while (!fli_cas_weak_rlx(&t->unread, &unread, (unread & ~(uint64_t)UINT32_MAX) | sum));
    /* If there is no memory for the message, the ticks stay counted and the next tick sends the message. */
    if ((uint32_t)unread == 0 || t->message_due) t->message_due = !send_message(timers, worker, t, FLI_NODE_TICK, id);
}

/* Completes the yield that waits for this timer: a sleep, or an I/O operation that has passed its deadline. */
static void complete_yield(fli_timers *timers, const entry *e, filch_err err)
{
    /* filch_complete() requires that its argument `tag` is equal to receiver.tag, so receiver.tag is passed, whatever
     * its value is: the event gets the tag that is stored in the yield. The result is ignored: filch_complete() fails
     * if the process has ended or if the yield was completed before. */
    filch_receiver receiver = { .sched = (filch_sched *)timers->rt, .key = e->key };
    (void)!filch_complete(receiver, receiver.tag, filch_none(), err);
}

/* Returns the time until which a simulation holds the due timer back; FLI_NEVER: the timer fires now. Tickers are not
 * held back, because the time of a tick is counted from the previous tick. Alarms are not held back, because they
 * belong to the runtime. */
static uint64_t hold_back(fli_timers *timers, entry *e)
{
    fli_runtime *rt = timers->rt;
    if (FLI_LIKELY(rt->sim == NULL) || e->command == ALARM || e->command == FILCH_CMD_TICKER) return FLI_NEVER;
    return rt->sim->timer_due(rt, id_of(e), fli_timers_next_ns(timers));
}

/* Fires the timer of `e`. Called without the lock of the shard. Returns the time at which the timer is due again: for a
 * ticker, its next tick; for a timer that a simulation holds back, the end of that delay; otherwise FLI_NEVER. */
static uint64_t fire(fli_timers *timers, fli_local *worker, entry *e, uint64_t now_ns)
{
    uint64_t held_ns = hold_back(timers, e);
    if (FLI_UNLIKELY(held_ns != FLI_NEVER)) return held_ns;
    if (FLI_LIKELY(is_sleep(e))) {
        complete_yield(timers, e, FILCH_OK);
        return FLI_NEVER;
    }
    msg_timer *t = msg_timer_of(e);
    switch (e->command) {
    case ALARM: timers->rt->hooks.alarm(timers->rt, t->tag); return FLI_NEVER;
    case DEADLINE: complete_yield(timers, e, FILCH_EDEADLINE); return FLI_NEVER;
    case FILCH_CMD_TIMER: (void)send_message(timers, worker, t, 0, 1); return FLI_NEVER;
    case FILCH_CMD_TERMINATE: set_flag(timers, worker, t->serial, FLI_KILL); return FLI_NEVER;
    case FILCH_CMD_CANCEL: set_flag(timers, worker, t->serial, FLI_CANCEL); return FLI_NEVER;
    default: {
        uint64_t late = now_ns - e->wheel.due_ns, missed = late / t->period_ns;
        tick(timers, worker, t, 1 + missed);
        return fli_clock_after(e->wheel.due_ns, (1 + missed) * t->period_ns);
    }
    }
}

/* Called after `e` has fired, with the lock of its shard: frees the entry, or arms it for `again_ns`: a ticker for
 * its next tick, or a timer that a simulation holds back. */
static void after_locked(fli_timers *timers, fli_timer_shard *shard, entry *e, uint64_t again_ns)
{
    if (e->phase == STOPPED) {
        cancel_locked(timers, shard, e);
        return;
    }
    if (e->phase == VOID || again_ns == FLI_NEVER) {
        free_locked(timers, shard, e);
        return;
    }
    e->phase = ARMED;
    fli_wheel_add(&shard->wheel, &e->wheel, again_ns);
}

/* Prefetches the memory that firing will touch, for all timers of the batch before the first is fired. The data of a
 * process that slept is no longer in the caches, and sequential cache misses are most of the cost of a timer. A wrong
 * or stale address only wastes a prefetch. */
static void fetch(fli_timers *timers, entry *const *batch, uint32_t n)
{
    fli_runtime *rt = timers->rt;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_sleep(batch[i])) continue;
        fli_proc *p = fli_slab_at(&rt->procs, batch[i]->slot);
        FLI_FETCH(fli_full_node_at(rt, (uint32_t)batch[i]->key));
        FLI_FETCH(p);
        FLI_FETCH(&p->load);
    }
}

/* Timers that have left their wheels and are about to fire. */
typedef struct fire_batch {
    entry   *batch[BATCH];
    uint64_t again_ns[BATCH];
    uint32_t count;
} fire_batch;

/* Returns true if the calling worker should fire the timers of `shard` now. A worker fires the timers of its own shard
 * (`own`) when they are due. It fires the timers of another shard only if the owner of that shard is away, or late by
 * FLI_TIMERS_HELP_NS: otherwise all workers that read the clock would take the lock of a due shard at the same time. */
static bool is_due(const fli_timer_shard *shard, bool own, uint64_t now_ns)
{
    uint64_t next_ns = fli_load_rlx(&shard->next_ns);
    if (FLI_LIKELY(next_ns > now_ns)) return false;
    return own || fli_load_rlx(&shard->away) || now_ns - next_ns >= FLI_TIMERS_HELP_NS;
}

/* Moves due timers from the wheel of `shard` to the batch, until the batch has `room` timers. `own`: the wheel of the
 * calling worker. The wheel of another worker is skipped if its lock is held. */
static void collect(fli_timer_shard *shard, bool own, uint64_t now_ns, uint32_t room, fire_batch *r)
{
    if (FLI_LIKELY(!is_due(shard, own, now_ns)) || r->count == room) return;
    if (own) fli_mutex_lock(&shard->lock);
    else if (!fli_mutex_try_lock(&shard->lock)) return;
    fli_wheel_fetch(&shard->wheel, now_ns);
    for (fli_timer *t; r->count < room && (t = fli_wheel_expire(&shard->wheel, now_ns)) != NULL; r->count++) {
        r->batch[r->count] = FLI_OUTER(entry, wheel, t);
        r->batch[r->count]->phase = FIRING;
    }
    hint_locked(shard);
    fli_mutex_unlock(&shard->lock);
}

/* Collects due timers from the wheels of `others` shards other than `mine`. Begins with the shard at which the last
 * call for `mine` ended. */
static void collect_others(fli_timers *timers, fli_timer_shard *mine, uint32_t others, uint64_t now_ns, uint32_t room,
                           fire_batch *r)
{
    uint32_t at = mine->next_other, n = timers->shard_count;
    for (uint32_t i = 0; i < others && r->count < room; i++) {
        if (&timers->shards[at] == mine) at = at + 1 < n ? at + 1 : 0;
        collect(&timers->shards[at], false, now_ns, room, r);
        at = at + 1 < n ? at + 1 : 0;
    }
    mine->next_other = at;
}

/* Frees or rearms the fired timers of the batch from index `i` on, up to the last one that belongs to the same wheel as
 * timer `i`. Returns the index of the first timer of the next wheel. */
static uint32_t settle_fired(fli_timers *timers, const fire_batch *r, uint32_t i)
{
    uint32_t         index = fli_load_rlx(&r->batch[i]->shard);
    fli_timer_shard *shard = &timers->shards[index];
    fli_mutex_lock(&shard->lock);
    /* An entry that is FIRING belongs to this worker: no other thread changes its shard before after_locked(). */
    do after_locked(timers, shard, r->batch[i], r->again_ns[i]);
    while (++i < r->count && fli_load_rlx(&r->batch[i]->shard) == index);
    hint_locked(shard);
    if (FLI_UNLIKELY(fli_load_rlx(&shard->away))) lower_away(timers, fli_load_rlx(&shard->next_ns));
    fli_mutex_unlock(&shard->lock);
    return i;
}

static uint64_t next_away_ns(const fli_timers *timers, const fli_timer_shard *mine)
{
    uint64_t next = FLI_NEVER;
    for (uint32_t i = 0; i < timers->shard_count; i++) {
        const fli_timer_shard *shard = &timers->shards[i];
        if (shard == mine || !fli_load_rlx(&shard->away)) continue;
        uint64_t ns = fli_load_rlx(&shard->next_ns);
        if (ns < next) next = ns;
    }
    return next;
}

/* Collects from the wheels of owners that are away, if one of their timers is due. Only the worker that finds by its
 * swap that away_ns has passed looks at the wheels. Then this worker lowers away_ns to the time of the next timer of
 * the owners that are away. */
static void collect_away(fli_timers *timers, fli_timer_shard *mine, uint64_t now_ns, uint32_t room, fire_batch *r)
{
    if (FLI_LIKELY(fli_load_rlx(&timers->away_ns) > now_ns) || r->count == room) return;
    uint64_t left = fli_swap_acqrel(&timers->away_ns, FLI_NEVER); /* PAIR timers.away, acquire half */
    for (uint32_t i = 0; left <= now_ns && i < timers->shard_count; i++) {
        fli_timer_shard *shard = &timers->shards[i];
        if (shard == mine || !fli_load_rlx(&shard->away)) continue;
        collect(shard, false, now_ns, room, r);
    }
    if (left <= now_ns) left = next_away_ns(timers, mine);
    lower_away(timers, left);
}

/* Number of wheels of other workers that fli_timers_poll_near() looks at. It is constant, so that the cost of a clock
 * reading does not grow with the number of workers. */
#define OTHERS_NEAR 2

static uint32_t poll(fli_timers *timers, uint64_t now_ns, uint32_t most, uint32_t others)
{
    fli_local       *worker = fli_current_worker(timers->rt);
    fli_timer_shard *mine = &timers->shards[worker->index];
    uint32_t         fired = 0, room;
    fire_batch       r;
    if (others >= timers->shard_count) others = timers->shard_count - 1;
    do {
        bool mine_first = (mine->polls++ & 1) != 0;
        r.count = 0;
        room = most - fired < BATCH ? most - fired : BATCH;
        if (mine_first) collect(mine, true, now_ns, room, &r);
        collect_others(timers, mine, others, now_ns, room, &r);
        if (!mine_first) collect(mine, true, now_ns, room, &r);
        collect_away(timers, mine, now_ns, room, &r);
        fetch(timers, r.batch, r.count);
        for (uint32_t i = 0; i < r.count; i++) r.again_ns[i] = fire(timers, worker, r.batch[i], now_ns);
        for (uint32_t i = 0; i < r.count;) i = settle_fired(timers, &r, i);
        fired += r.count;
    } while (r.count == BATCH && fired < most);
    return fired;
}

uint32_t fli_timers_poll(fli_timers *timers, uint64_t now_ns)
{
    return poll(timers, now_ns, UINT32_MAX, UINT32_MAX);
}

uint32_t fli_timers_poll_some(fli_timers *timers, uint64_t now_ns, uint32_t most)
{
    return poll(timers, now_ns, most, UINT32_MAX);
}

uint32_t fli_timers_poll_near(fli_timers *timers, uint64_t now_ns, uint32_t most)
{
    return poll(timers, now_ns, most, OTHERS_NEAR);
}

void fli_timers_set_away(fli_timers *timers, uint32_t index, bool away)
{
    fli_timer_shard *shard = &timers->shards[index];
    if (!away) {
        fli_store_rlx(&shard->away, false);
        return;
    }
    /* The store to `away` is made under the lock. So a thread that arms a timer in this shard either has written
     * next_ns before the store, or sees that the owner is away. */
    fli_mutex_lock(&shard->lock);
    fli_store_rlx(&shard->away, true);
    uint64_t next_ns = fli_load_rlx(&shard->next_ns);
    fli_mutex_unlock(&shard->lock);
    lower_away(timers, next_ns);
}

uint64_t fli_timers_next_ns(const fli_timers *timers)
{
    uint64_t next = FLI_NEVER;
    for (uint32_t i = 0; i < timers->shard_count; i++) {
        uint64_t ns = fli_load_rlx(&timers->shards[i].next_ns);
        if (ns < next) next = ns;
    }
    return next;
}

uint64_t fli_timers_help_ns(const fli_timers *timers, uint32_t index)
{
    uint64_t next = FLI_NEVER;
    for (uint32_t i = 0; i < timers->shard_count; i++) {
        const fli_timer_shard *shard = &timers->shards[i];
        uint64_t               ns = fli_load_rlx(&shard->next_ns);
        if (ns >= next) continue;
        if (i != index && !fli_load_rlx(&shard->away)) ns = fli_clock_after(ns, FLI_TIMERS_HELP_NS);
        if (ns < next) next = ns;
    }
    return next;
}

uint64_t fli_timers_late_ns(const fli_timers *timers, uint32_t index, uint64_t now_ns)
{
    uint64_t next_ns = fli_load_rlx(&timers->shards[index].next_ns), away_ns = fli_load_rlx(&timers->away_ns);
    if (away_ns < next_ns) next_ns = away_ns;
    return next_ns < now_ns ? now_ns - next_ns : 0;
}

bool fli_timers_any(const fli_timers *timers)
{
    for (uint32_t i = 0; i < timers->shard_count; i++) {
        if (fli_load_rlx(&timers->shards[i].next_ns) != FLI_NEVER) return true;
    }
    return false;
}

uint64_t fli_timers_count(const fli_timers *timers)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < timers->shard_count; i++) count += fli_load_rlx(&timers->shards[i].count);
    return count;
}
