/* children.h - the children of a supervisor: in start order, and found by id, number or pid.
 *
 * A supervisor may have 100,000 children, but one step concerns only a few of them. Children that need an action are
 * therefore also on separate lists, one for each action, in start order. fli_children_update() puts a child on the
 * lists where it belongs and takes it off the others. So the cost of a step depends on the number of children it
 * concerns, not on the number of all children.
 *
 * INVARIANT  after fli_children_update(), a child is on a list exactly if the condition written at that list holds for
 * it.
 */
#ifndef FLI_SUPERVISE_CHILDREN_H
#define FLI_SUPERVISE_CHILDREN_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fli_child_state { FLI_CHILD_DOWN, FLI_CHILD_UP, FLI_CHILD_STOPPING } fli_child_state;

typedef enum fli_child_list {
    FLI_CHILDREN_ALL,
    FLI_CHILDREN_TO_START,  /* the child is wanted, down, and not delayed by a back-off */
    FLI_CHILDREN_UNTIMED,   /* the child is delayed by a back-off for which there is no sleep, for lack of memory */
    FLI_CHILDREN_UNREADY,   /* the child is a supervisor that is up, but some of its own children are not up yet */
    FLI_CHILDREN_MUST_STOP, /* the child must be stopped or is being stopped */
    FLI_CHILDREN_LEAVING,   /* the child will be removed as soon as it is down */
    FLI_CHILDREN_LISTS
} fli_child_list;

typedef enum fli_child_index {
    FLI_CHILDREN_BY_NAME,
    FLI_CHILDREN_BY_ID,
    FLI_CHILDREN_BY_PID,
    FLI_CHILDREN_INDEXES
} fli_child_index;

/* A request that waits until a child has left its supervisor. Without `start` it is a stop request: when the child has
 * left, the process `pid` gets an answer. With `start` it is a start request: when the child has left, the new child is
 * started. */
typedef struct fli_waiter {
    struct fli_waiter *next;
    filch_pid          pid;
    filch_data         reply; /* the prepared answer if the request has a tag (answer.h); kept by filch_keep */
    filch_data         start; /* the request to start a new child with the same id; of kind NONE for a stop request;
                                 kept by filch_keep */
} fli_waiter;

/* Frees `waiter` and its two payloads. */
void fli_waiter_free(filch_memory memory, fli_waiter *waiter);

typedef struct fli_child {
    filch_child spec;
    filch_data  request; /* the start request, if the child was added at run time; kept by filch_keep */
    filch_pid   pid;     /* pid of the child's newest process */
    uint64_t    started_ns;
    uint64_t    due_ns;         /* if held: the time at which the back-off ends */
    uint32_t    id;             /* number of the child: the number of a later child is higher; never reused */
    uint32_t    restart_streak; /* number of restarts since the child last ran for stable_ns */
    uint8_t     state;          /* a fli_child_state */
    bool        must_stop;      /* the child must be stopped or is being stopped */
    /* wanted: the child should be up, so it is started if it is down. held: the start is delayed by a back-off. leaves:
     * the child is removed as soon as it is down */
    bool        wanted, held, leaves;
    bool        untimed; /* if held: no sleep is outstanding that would end the back-off */
    bool        late;    /* the child was added at run time: it is not in filch_supervisor.children */
    bool        begun;   /* the child has been started at least once */
    bool        ready;   /* for a child that is a supervisor: all its own children are up */
    fli_waiter *waiters; /* requests that wait until this child has left its supervisor */

    /* The fields below are used by children.c only. */
    uint8_t           on;      /* the lists that contain the child, as bits: bit i for the fli_child_list i */
    bool              missing; /* the child is counted in fli_children.missing */
    struct fli_child *next[FLI_CHILDREN_LISTS], *prev[FLI_CHILDREN_LISTS];
    struct fli_child *chain[FLI_CHILDREN_INDEXES];
    uint64_t          hash[FLI_CHILDREN_INDEXES];
} fli_child;

enum { FLI_CHILDREN_FEW = 4 };

typedef struct fli_children {
    filch_memory memory;
    fli_child   *first[FLI_CHILDREN_LISTS], *last[FLI_CHILDREN_LISTS];
    size_t       count;
    size_t       missing;  /* number of children that are wanted and are not both up and ready */
    fli_child   *stopping; /* the child that is being stopped; NULL: none */
    uint32_t     ids;
    /* Hash tables, one per index, with `room` chains each. few[] is their memory while there are few children. */
    fli_child **heads[FLI_CHILDREN_INDEXES];
    size_t      room;
    fli_child  *few[FLI_CHILDREN_INDEXES][FLI_CHILDREN_FEW];
} fli_children;

void fli_children_init(fli_children *children, filch_memory memory);
/* Removes and frees all children. */
void fli_children_fini(fli_children *children);

/* Appends a new child with the state FLI_CHILD_DOWN and with `wanted` set. Errors: FILCH_EEXISTS if another child has
 * this id, FILCH_ENOMEM. */
filch_err fli_children_add(fli_children *children, const filch_child *spec, fli_child **out);
void      fli_children_drop(fli_children *children, fli_child *c);

/* Updates the lists and counters of `children`. Must be called after each change of a field of `c`. */
void fli_children_update(fli_children *children, fli_child *c);
/* Records that the child runs as the process `pid`. From now on fli_children_with() finds it by this pid, and no longer
 * by its previous pid. */
void fli_children_started(fli_children *children, fli_child *c, filch_pid pid);

/* Each of these functions returns a child, or NULL if there is no such child: the child with this name (its id in
 * filch_child), with this number, or with `pid` as its newest process. */
fli_child *fli_children_named(const fli_children *children, const char *name);
fli_child *fli_children_numbered(const fli_children *children, uint32_t id);
fli_child *fli_children_with(const fli_children *children, filch_pid pid);

#endif
