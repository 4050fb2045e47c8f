/* model.h - a model of processes, messages and yields: the program that makes the calls reports them to the model,
 * which checks each result. It follows the header, not the runtime: lists and numbers, without optimisation.
 *
 * A *life* is one process; a *letter* one message on its way; a *question* one yield. Where the header leaves a choice,
 * the model allows both: a letter without a result for its sender yet is a MAYBE.
 *
 * A finding ends the program (MUST).
 */
#ifndef FILCH_FUZZ_MODEL_H
#define FILCH_FUZZ_MODEL_H

#include <filch.h>

#include "fuzz/parcel.h"
#include "support/alloc.h"

enum { LIVES = 96, LETTERS = 512, QUESTIONS = 512, NOBODY = -1, SCOPES = 16, DEPTH = 6 };

/* The tags of timers and tickers: their messages carry them. */
#define TAG_TIMER (UINT64_C(1) << 40)

/* The status that a step chose; a new process has chosen none yet. */
typedef enum rest { REST_NEW, REST_CONTINUE, REST_WAIT, REST_IDLE, REST_DONE, REST_UPGRADE, REST_NONE } rest;

/* What a process inherits: a value, the scopes it is in (the innermost first), and the earliest deadline. */
typedef struct heritage {
    int64_t  value;
    uint8_t  scopes[DEPTH];
    uint32_t depth;
    uint64_t due_ns; /* FILCH_FOREVER: none */
} heritage;

typedef struct life {
    filch_pid   pid;
    bool        alive;
    bool        bare;   /* its type has neither init nor close */
    bool        hears;  /* it has an on_exit */
    bool        stepping;
    bool        cancel; /* requested, not yet delivered */
    bool        doomed; /* terminated, or overflowed */
    bool        asked_to; /* messages were sent to it by filch_yield_send: it may overflow before the model knows */
    bool        upgrading; /* its step ended with upgrade: the old instance is about to be closed */
    bool        next_bare;
    rest        rest;
    uint32_t    instance, next_instance; /* numbers; 0 none */
    const char *next_name;
    const char *name;
    heritage    inherits;
    bool        due_told, due_maybe; /* its deadline has caused its cancel; or may have, together with another cause */
    uint32_t    max, overflow;
    size_t      bytes;
    int         first, last; /* letters */
    uint32_t    in_hand, in_hand_units; /* letters given to the present step */
    uint32_t    outstanding; /* questions */
    uint64_t    dropped, told; /* letters that the policy dropped, as far as known; and as far as reported to the
                                * process */
    uint64_t    exits;
    bool        ends; /* its last step has chosen to end */
    filch_err   end_error;
    content     end_result;
    /* relations.h */
    bool        traps;     /* links */
    int         notices, notices_last; /* notices that it will get */
    uint32_t    orders;    /* of them, cancels with a reason */
    uint32_t    kills;     /* deadlines of these cancels */
    uint64_t    kill_ns;   /* the earliest of these deadlines */
    bool        by_link, by_deadline, by_closing; /* possible causes of its end, other than its own status */
    filch_err   link_root; /* the error that came along the links; 0: not known */
    bool        told_end;  /* an exit notice with these fields was delivered: */
    filch_err   told_error, told_root;
} life;

typedef struct letter {
    int     next; /* of its receiver; -1 none */
    int     from; /* a life, or none */
    bool    any_from; /* sent for a process that has ended: the header does not specify `from` */
    bool    asked; /* by filch_yield_send */
    bool    maybe; /* the sender has not got the result yet */
    bool    first; /* one of the first messages of its receiver, which count against no limit */
    content says;
    int     question;
} letter;

typedef enum errand {
    ASK_OWN, ASK_UNKNOWN, ASK_SLEEP, ASK_TIMER, ASK_TICKER, ASK_CANCEL, ASK_SEND, ASK_TIE,
    ASK_BIRTH /* spawn and exec */
} errand;
typedef enum stage { STAGE_OPEN, STAGE_ANSWERED, STAGE_READ, STAGE_VOID } stage;

typedef struct question {
    int            life;
    errand         what;
    stage          stage;
    bool           dispatched; /* its handler was called */
    bool           fresh;      /* yielded in the present step */
    uint64_t       tag;
    filch_receiver receiver;
    filch_err      error; /* of the completion, if the model made it */
    content        says;
    uint64_t       asked_ns, span_ns; /* of a sleep, timer or ticker */
    uint64_t       ticks;             /* of a timer or ticker: how often it has fired */
    int64_t        id;                /* of a timer or ticker: its id, 0 not known. Of a cancel: the id to cancel */
    bool           armed;             /* of a sleep, timer or ticker: still to fire */
    bool           stopped;           /* of a ticker: one more message may be on its way */
    int            letter, to;        /* of a send; letter -1: gone. to NOBODY: not a process of the model */
    filch_err      otherwise;         /* then the error it must get */
    uint32_t       tie;               /* of a relation or spawn: FILCH_CMD_*, the pid it is about, or the number of a
                                       * name */
    filch_pid      about;             /* or group, or none */
    int            name;
    uint64_t       number;            /* of unmonitor: the ref. Of cancel: the deadline. Of members, broadcast: the
                                       * result */
    filch_err      reason;            /* of cancel: the reason. Of a spawn: the result of its init */
    int            child;             /* of a spawn: the process, or none */
    bool           tried;             /* its init was called */
    uint32_t       how;               /* of a spawn: relations, */
    uint64_t       how_tag;           /* and the tag of its monitor */
} question;

typedef struct world {
    filch_sched   *sched;
    filch_options  opt;
    test_alloc     alloc;
    bool           closing, closed;
    uint64_t       opened, shut; /* instances */
    uint64_t       forced, forced_most; /* ends that stop must have forced, and upper bound of those */
    uint64_t       spawned, ended, failed, steps, asked, answered, late;
    uint64_t       sent, read, to_dead, refused, dropped; /* letters as far as known, without first messages */
    uint64_t       first_unread;
    filch_err      reasons[SCOPES]; /* reason of their cancel; FILCH_OK: not cancelled */
    int            scope_count;
    filch_err      foreign; /* the result of a call about a process of another node */
    bool           by_name; /* a yield will send to the process that has a name then, or to a group: no process may
                             * have a limit */
    uint64_t       sent_maybe; /* sends by yield with an unknown result */
    bool           vague;      /* there were some: messages cannot be counted exactly */
    life           lives[LIVES];
    int            life_count;
    letter         letters[LETTERS];
    int            letter_count, letter_free;
    question       questions[QUESTIONS];
    int            question_count;
    const filch_event *heard;      /* the last letter of the present step, or NULL */
    content            heard_says;
    int            question_fresh; /* the first question of the present step */
    int            tie_next;       /* the first question that may be a relation with a handler that was not observed */
    /* The caller of the present operation. */
    int  current;     /* the life that is being stepped, or none */
    bool dispatching; /* a handler */
    int  buried;      /* close or on_exit of this life, or none */
    bool posing;      /* filch_deliver: messages come from `as` */
    int  as;
} world;

extern world now;

void model_begin(void);

/* Returns the life of a pid, or NOBODY. */
int model_find(filch_pid pid);

/* Returns true inside a call by the runtime. */
bool model_inside(void);

/* Returns true if an allocation failed since `refused_before`. */
bool model_poor(uint64_t refused_before);

/* Return true if there is room for one more letter and question, or for `count` letters. */
bool model_has_room(void);
bool model_has_letters(int count);

/* A filch_send returned `err`. `to` is a life, or NOBODY: then `otherwise` is the result it must have had. */
void model_sent(int to, filch_err otherwise, const content *says, filch_err err, uint64_t refused_before);

/* Adds one of the first messages of a process. */
void model_found(int to, int from, const content *says);

/* Returns how many members of a group accept a message; -1 if the model cannot know. */
int model_admits(const int *members, int count, const content *says);
/* The message was sent to the members, and `count` accepted it. */
void model_broadcast(const int *members, int count, int from, const content *says);

/* Returns true if any process has a mailbox limit. */
bool model_limited(void);

/* Returns the reason of the cancel, as filch_ctx_cancelled() does. */
filch_err model_cancelled(const heritage *h);
/* A scope is cancelled. */
void model_cancel_scope(int scope, filch_err reason);

/* A yield with the next tag was accepted. */
uint64_t  model_next_tag(errand what);
question *model_asked(errand what, uint64_t tag);
void      model_asked_send(question *q, int to, filch_err otherwise, const content *says);

/* The handlers of relations, which the model cannot observe, have been called up to this question: yields are
 * dispatched in order. */
void model_ties_done(int until);

/* filch_complete returned `err`. */
void model_completed(question *q, const content *says, filch_err error, filch_err err, uint64_t refused_before);

/* A step begins with these events, and ends. */
void model_step_begin(life *l, const filch_event *events, size_t count);
void model_step_end(life *l, filch_err err, rest status);

/* An instance is closed; a process has ended. */
void model_closed(uint32_t instance, life *l);
void model_exit(life *l, filch_err error, const filch_data *result);

/* No process is ready, as of `since_ns`: everything due must have happened. */
void model_calm(uint64_t since_ns);

/* filch_inspect said. */
void model_inspected(int index, const filch_info *info);

/* All processes have ended, the scheduler can still be inspected. */
void model_over(void);

#endif
