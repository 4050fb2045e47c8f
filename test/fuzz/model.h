/* model.h - what must be true of processes, messages and yields, told by the program that makes the calls and checked
 * against each answer. It knows the header, not the runtime: lists and numbers, no cleverness.
 *
 * A *life* is one process; a *letter* one message on its way; a *question* one yield. Where the header leaves a choice,
 * the model allows both: a letter whose sender has not been told yet is a MAYBE.
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

/* What a step chose; a new process has chosen nothing yet. */
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
    bool        hears;  /* on_exit was asked for */
    bool        stepping;
    bool        cancel; /* asked for, not yet delivered */
    bool        doomed; /* terminated, or overflowed */
    bool        asked_to; /* messages were sent to it by filch_yield_send: it may overflow before we hear of it */
    bool        upgrading; /* its step ended with upgrade: the old instance is about to be closed */
    bool        next_bare;
    rest        rest;
    uint32_t    instance, next_instance; /* numbers; 0 none */
    const char *next_name;
    const char *name;
    heritage    inherits;
    bool        due_told, due_maybe; /* its deadline has brought its cancel; or may have, together with another */
    uint32_t    max, overflow;
    size_t      bytes;
    int         first, last; /* letters */
    uint32_t    in_hand, in_hand_units; /* letters given to the step that runs */
    uint32_t    outstanding; /* questions */
    uint64_t    dropped, told; /* letters the policy dropped, as far as we know; as far as it was told */
    uint64_t    exits;
    bool        ends; /* its last step has chosen the end */
    filch_err   end_error;
    content     end_result;
    /* relations.h */
    bool        traps;     /* links */
    int         notices, notices_last; /* what it will be told */
    uint32_t    orders;    /* of them, cancels with a reason */
    uint32_t    kills;     /* deadlines that came with them */
    uint64_t    kill_ns;   /* the first of these */
    bool        by_link, by_deadline, by_closing; /* what may have ended it, where it did not itself */
    filch_err   link_root; /* the error that came along the links; 0 not known */
    bool        told_end;  /* somebody was told of such an end, in these words: */
    filch_err   told_error, told_root;
} life;

typedef struct letter {
    int     next; /* of its receiver; -1 none */
    int     from; /* a life, or NOBODY */
    bool    any_from; /* sent on behalf of a process that has ended: the header does not say from whom */
    bool    asked; /* by filch_yield_send */
    bool    maybe; /* the sender has not been told */
    bool    first; /* it was there when its receiver was born, and takes no room */
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
    bool           fresh;      /* asked in the step that runs */
    uint64_t       tag;
    filch_receiver receiver;
    filch_err      error; /* of the answer, where we gave it */
    content        says;
    uint64_t       asked_ns, span_ns; /* of a sleep, timer or ticker */
    uint64_t       ticks;             /* of a timer or ticker: how often it has fired */
    int64_t        id;                /* of a timer or ticker: 0 not known. Of a cancel: what it asked to stop */
    bool           armed;             /* of a sleep, timer or ticker: still to fire */
    bool           stopped;           /* of a ticker: one more message may be under way */
    int            letter, to;        /* of a send; letter -1: gone. to NOBODY: not to a process we know */
    filch_err      otherwise;         /* then the error it must get */
    uint32_t       tie;               /* of a tie or birth: FILCH_CMD_*, the pid it is about, or the number of a name */
    filch_pid      about;             /* or group; NOBODY: none */
    int            name;
    uint64_t       number;            /* of unmonitor: the ref. Of cancel: the deadline. Of members, broadcast: the answer */
    filch_err      reason;            /* of cancel. Of a birth: what its init will say */
    int            child;             /* of a birth, once it has been; NOBODY */
    bool           tried;             /* its init was called */
    uint32_t       how;               /* of a birth: relations, */
    uint64_t       how_tag;           /* and the tag of its monitor */
} question;

typedef struct world {
    filch_sched   *sched;
    filch_options  opt;
    test_alloc     alloc;
    bool           closing, closed;
    uint64_t       opened, shut; /* instances */
    uint64_t       forced, forced_most; /* ends that stop must have forced, and may have */
    uint64_t       spawned, ended, failed, steps, asked, answered, late;
    uint64_t       sent, read, to_dead, refused, dropped; /* letters, as far as we know, but first ones */
    uint64_t       first_unread;
    filch_err      reasons[SCOPES]; /* why they were cancelled; FILCH_OK: they are not */
    int            scope_count;
    filch_err      foreign; /* what a call about a process of elsewhere must answer */
    bool           by_name; /* a yield will send to whoever has a name then, or is in a group: nobody may be limited */
    uint64_t       sent_maybe; /* asked sends of which we never heard how they ended */
    bool           vague;      /* there were such: messages cannot be counted exactly */
    life           lives[LIVES];
    int            life_count;
    letter         letters[LETTERS];
    int            letter_count, letter_free;
    question       questions[QUESTIONS];
    int            question_count;
    const filch_event *heard;      /* the last letter of the step that runs, or NULL */
    content            heard_says;
    int            question_fresh; /* the first one asked in the step that runs */
    int            tie_next;       /* the first question that may be a tie whose handler we have not heard of */
    /* Who is calling. */
    int  current;     /* the life that is being stepped, or NOBODY */
    bool dispatching; /* a handler */
    int  buried;      /* close or on_exit of this one, or NOBODY */
    bool posing;      /* filch_deliver: messages come from `as` */
    int  as;
} world;

extern world now;

void model_begin(void);

/* The life of a pid, or NOBODY. */
int model_find(filch_pid pid);

/* Are we called by the runtime, on its own thread? */
bool model_inside(void);

/* Was memory refused since `refused_before`? */
bool model_poor(uint64_t refused_before);

/* Room for one more letter, and one more question? For so many letters? */
bool model_has_room(void);
bool model_has_letters(int count);

/* A filch_send answered `err`. `to` is a life or NOBODY, then `otherwise` is the answer it must have given. */
void model_sent(int to, filch_err otherwise, const content *says, filch_err err, uint64_t refused_before);

/* A letter that was there from the beginning. */
void model_found(int to, int from, const content *says);

/* What the members of a group answer to a message, one after the other: how many take it. -1: nobody can know. */
int model_admits(const int *members, int count, const content *says);
/* It was sent to them, and so many took it. */
void model_broadcast(const int *members, int count, int from, const content *says);

/* Has anybody a limit? */
bool model_limited(void);

/* Why the process is cancelled, as filch_ctx_cancelled says. */
filch_err model_cancelled(const heritage *h);
/* A scope is cancelled. */
void model_cancel_scope(int scope, filch_err reason);

/* A question is asked with the next tag, and was accepted. */
uint64_t  model_next_tag(errand what);
question *model_asked(errand what, uint64_t tag);
void      model_asked_send(question *q, int to, filch_err otherwise, const content *says);

/* Handlers that say nothing (of ties) have been called, up to this question: yields are dispatched in their order. */
void model_ties_done(int until);

/* filch_complete answered `err`. */
void model_completed(question *q, const content *says, filch_err error, filch_err err, uint64_t refused_before);

/* A step begins with these events, and ends. */
void model_step_begin(life *l, const filch_event *events, size_t count);
void model_step_end(life *l, filch_err err, rest status);

/* An instance is closed; a process has ended. */
void model_closed(uint32_t instance, life *l);
void model_exit(life *l, filch_err error, const filch_data *result);

/* Nothing is ready any more, as of `since_ns`: whatever could happen has. */
void model_calm(uint64_t since_ns);

/* filch_inspect said. */
void model_inspected(int index, const filch_info *info);

/* Everybody is dead, the scheduler still answers. */
void model_over(void);

#endif
