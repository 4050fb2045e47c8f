/* model.h - a model of processes, messages and yields: the program that makes the calls reports them to the model,
 * which checks each result. The model is written from the header filch.h, not from the runtime: lists and numbers,
 * without optimisation.
 *
 * A `proc` is one process, a `message` one message that was sent and not read yet, and a `yield_rec` one yield. Where
 * the header leaves a choice, the model allows both results. A message is marked `maybe` until its sender has got the
 * result of the send.
 *
 * A result that the model does not allow ends the program (MUST).
 */
#ifndef FILCH_FUZZ_MODEL_H
#define FILCH_FUZZ_MODEL_H

#include <filch.h>

#include "fuzz/payload.h"
#include "support/alloc.h"

enum { PROCS = 96, MESSAGES = 512, YIELD_RECS = 512, NO_PROC = -1, SCOPES = 16, DEPTH = 6 };

/* First tag of timers and tickers. The messages of a timer or ticker carry its tag. */
#define TAG_TIMER (UINT64_C(1) << 40)

/* Maximum delay of a timer, and of the end of a process by its deadline. One tick of the timer wheel and a few reads of
 * the clock together take less. */
#define LATE_NS FILCH_MILLISECONDS(1)

/* The status that the last step of a process has chosen. STATUS_NEW: no step has run yet; STATUS_NONE: the step has
 * chosen no status. */
typedef enum last_status {
    STATUS_NEW,
    STATUS_CONTINUE,
    STATUS_WAIT,
    STATUS_IDLE,
    STATUS_DONE,
    STATUS_UPGRADE,
    STATUS_NONE
} last_status;

/* What a process inherits from its parent: a value, the scopes that contain it (the innermost first), and the earliest
 * deadline. */
typedef struct heritage {
    int64_t  value;
    uint8_t  scopes[DEPTH];
    uint32_t depth;
    uint64_t due_ns; /* FILCH_FOREVER: none */
} heritage;

typedef struct proc {
    filch_pid pid;
    bool      alive;
    bool      bare;        /* the type of the process has neither init nor close */
    bool      has_on_exit; /* the process was spawned with an on_exit function */
    bool      stepping;
    bool      cancel; /* a cancel was requested and has not been delivered yet */
    bool      doomed; /* the process was terminated, or its mailbox overflowed */
    /* messages were sent to the process by yields, so its mailbox may overflow before the model knows */
    bool        sent_by_yield;
    bool        upgrading; /* the last step ended with an upgrade: the state of the old type will be closed next */
    bool        next_bare;
    last_status last_status;
    /* instance identifies the state of the process, next_instance the state that an upgrade has made; 0: none */
    uint32_t    instance, next_instance;
    const char *next_name;
    const char *name;
    heritage    inherits;
    /* due_reported: a cancel that the deadline of the process has caused was delivered; due_maybe: a cancel was
     * delivered that the deadline or another cause may have caused */
    bool     due_reported, due_maybe;
    uint32_t max, overflow;
    size_t   bytes;
    int      first, last; /* indices of the first and last message in the mailbox of the process; -1: none */
    /* messages that the present step got: their number, and their size in units of 16 bytes */
    uint32_t in_step, in_step_units;
    uint32_t outstanding; /* number of yields of the process that are not completed */
    /* dropped: number of messages that the overflow policy has dropped, as far as the model knows; drops_reported:
     * number of drops that DROPPED events have reported */
    uint64_t  dropped, drops_reported;
    uint64_t  exits;
    bool      ends; /* the last step of the process has ended the process, by filch_done() or by an error */
    filch_err end_error;
    content   end_result;
    /* Fields of relations.h: */
    bool traps; /* the process traps link failures: they are delivered as LINK_DOWN and do not end the process */
    /* indices of the first and last notice that the process will get; -1: none */
    int      notices, notices_last;
    uint32_t reasoned_cancels; /* number of cancels with a reason among the notices of the process */
    uint32_t kills;            /* number of cancels with a reason that have a deadline */
    uint64_t kill_ns;          /* the earliest deadline of the cancels with a reason */
    /* possible causes of the end of the process, other than its own status */
    bool by_link, by_deadline, by_closing;
    /* error of the process that failed first and ended this process through links; 0: not known */
    filch_err link_root;
    /* an EXIT or LINK_DOWN notice about the process was delivered, with the error reported_error and the root error
     * reported_root */
    bool      end_reported;
    filch_err reported_error, reported_root;
} proc;

typedef struct message {
    int     next;     /* index of the next message in the mailbox of the receiver; -1: none */
    int     from;     /* index of the sending process, or NO_PROC */
    bool    any_from; /* sent while a close or on_exit function ran: filch.h does not specify `from` of the message */
    bool    asked;    /* sent by filch_yield_send */
    bool    maybe;    /* the sender has not got the result of the send yet */
    bool    first;    /* a message from the spawn options of the receiver; it counts against no mailbox limit */
    content says;
    int     yield_rec;
} message;

typedef enum yield_kind {
    YIELD_OWN,
    YIELD_UNKNOWN,
    YIELD_SLEEP,
    YIELD_TIMER,
    YIELD_TICKER,
    YIELD_CANCEL,
    YIELD_SEND,
    YIELD_RELATION,
    YIELD_SPAWN /* spawn and exec */
} yield_kind;
typedef enum stage { STAGE_OPEN, STAGE_ANSWERED, STAGE_READ, STAGE_VOID } stage;

typedef struct yield_rec {
    int            proc;
    yield_kind     what;
    stage          stage;
    bool           dispatched; /* the handler of this yield has been called */
    uint64_t       tag;
    filch_receiver receiver;
    filch_err      error; /* error of the completion: set by the test, or predicted by the model */
    content        says;
    /* sleep, timer, ticker: time at which it was requested, and its time span */
    uint64_t requested_ns, span_ns;
    uint64_t ticks;   /* timer, ticker: how often it has fired */
    int64_t  id;      /* timer, ticker: its id, 0: not known. Cancel: the id to cancel */
    bool     armed;   /* sleep, timer, ticker: it will fire, or fire again */
    bool     stopped; /* ticker: it was cancelled; one more message may be on its way */
    /* send: index of the message (-1: it is gone) and of the receiver (NO_PROC: unknown to the model) */
    int       message, to;
    filch_err otherwise; /* send to NO_PROC: the error with which the send must complete */
    uint32_t  tie;       /* relation or spawn: its command FILCH_CMD_* */
    /* relation: pid of the other process (about), or index of a name or group, NO_PROC if none (name) */
    filch_pid about;
    int       name;
    uint64_t  number;  /* unmonitor: the reference; cancel: the deadline; members, broadcast: the predicted result */
    filch_err reason;  /* cancel: the reason; spawn: the result of init */
    int       child;   /* spawn: index of the new process, or NO_PROC */
    bool      tried;   /* spawn: init of the new process was called */
    uint32_t  how;     /* spawn: flags FILCH_SPAWN_* of its relations */
    uint64_t  how_tag; /* spawn: the tag of the parent's monitor of the new process */
} yield_rec;

typedef struct model_state {
    filch_sched  *sched;
    filch_options opt;
    test_alloc    alloc;
    bool          closing, closed;
    uint64_t      opened, shut; /* number of states that were initialised, and of states that were closed */
    /* bounds of the number of processes that the stop has ended by force: at least `forced`, at most `forced_most` */
    uint64_t forced, forced_most;
    uint64_t spawned, ended, failed, steps, asked, answered, late;
    /* numbers of messages, as far as the model knows them; messages from spawn options do not count */
    uint64_t  sent, read, to_ended, refused, dropped;
    uint64_t  first_unread;
    filch_err reasons[SCOPES]; /* reason with which each scope was cancelled; FILCH_OK: not cancelled */
    int       scope_count;
    filch_err foreign; /* the result that a call about a process of another host must have */
    /* true: a yield that sends to a group or to a name is not dispatched yet; until then the test spawns no process
     * with a mailbox limit */
    bool     by_name;
    uint64_t sent_maybe; /* number of yielded sends with a result that the model does not know */
    /* a send had a result that the model does not know, so the model cannot count messages exactly */
    bool               vague;
    proc               procs[PROCS];
    int                proc_count;
    message            message_list[MESSAGES];
    int                message_count, message_free;
    yield_rec          yield_recs[YIELD_RECS];
    int                yield_rec_count;
    const filch_event *last_read; /* the last message that the present step has read, or NULL */
    content            last_read_says;
    int                yield_rec_fresh; /* index of the first yield of the present step */
    /* index of the first yield that may make a relation and that, as far as the model knows, has not been dispatched */
    int tie_next;
    /* The next fields say in which callback of the runtime the test is. */
    int  current;     /* index of the process that is being stepped, or NO_PROC */
    bool dispatching; /* a handler is running */
    int  reaping;     /* index of the process with a running close or on_exit function, or NO_PROC */
    bool posing;      /* true: inside filch_deliver(), which sends a message in the name of process `as` */
    int  as;
} model_state;

extern model_state now;

void model_begin(void);

/* Returns the index of the process with this pid, or NO_PROC. */
int model_find(filch_pid pid);

/* Returns true during a callback from the runtime (step, handler, close, on_exit). */
bool model_inside(void);

/* Returns true if an allocation has failed since the count of failed allocations was `refused_before`. */
bool model_lacked_memory(uint64_t refused_before);

/* model_has_room() returns true if the model can hold one more message and one more yield, model_has_messages() if it
 * can hold `count` more messages. */
bool model_has_room(void);
bool model_has_messages(int count);

/* Tells the model that filch_send returned `err`. `to` is the index of the receiving process, or NO_PROC: then
 * `otherwise` is the result that the call must have had. */
void model_sent(int to, filch_err otherwise, const content *says, filch_err err, uint64_t refused_before);

/* Tells the model that the spawn options of process `to` contain the message `says`. */
void model_first_message(int to, int from, const content *says);

/* Returns how many of the `count` members of a group accept the message `says`; -1 if the model cannot know. */
int model_admits(const int *members, int count, const content *says);
/* Tells the model that the message `says` was sent to these `count` members of a group. The model predicts which of
 * them refuse it. */
void model_broadcast(const int *members, int count, int from, const content *says);

/* Returns true if any process has a mailbox limit. */
bool model_limited(void);

/* Returns the reason with which a scope of `h` was cancelled, or FILCH_OK if no scope was cancelled, as
 * filch_ctx_cancelled() does. */
filch_err model_cancelled(const heritage *h);
/* Tells the model that a scope was cancelled. */
void model_cancel_scope(int scope, filch_err reason);

/* model_next_tag() returns the tag for the next yield. model_yielded() tells the model that a yield was accepted;
 * model_yielded_send() tells it which message a yielded send will send. */
uint64_t   model_next_tag(yield_kind what);
yield_rec *model_yielded(yield_kind what, uint64_t tag);
void       model_yielded_send(yield_rec *q, int to, filch_err otherwise, const content *says);

/* Tells the model that the handlers of relation commands were called for all yields before index `until`. The model
 * cannot observe these handlers; it knows that yields are dispatched in order. */
void model_relations_done(int until);

/* Tells the model that filch_complete returned `err`. */
void model_completed(yield_rec *q, const content *says, filch_err error, filch_err err, uint64_t refused_before);

/* model_step_begin() tells the model that a step begins with these events, model_step_end() that the step ends. */
void model_step_begin(proc *l, const filch_event *events, size_t count);
void model_step_end(proc *l, filch_err err, last_status status);

/* model_closed() tells the model that a state was closed, model_exit() that a process has ended. */
void model_closed(uint32_t instance, proc *l);
void model_exit(proc *l, filch_err error, const filch_data *result);

/* Tells the model that no process has been ready since `since_ns`. Checks that everything that was due has happened. */
void model_check_quiet(uint64_t since_ns);

/* Checks what filch_inspect reported about a process. */
void model_inspected(int index, const filch_info *info);

/* Checks the totals after all processes have ended, while the scheduler can still be inspected. */
void model_over(void);

#endif
