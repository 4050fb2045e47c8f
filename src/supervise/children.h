/* children.h - the children of a supervisor: in start order, and found by id, number or pid.
 *
 * A supervisor may have 100,000 children, and one step concerns a few of them. Children that need an action are
 * therefore also on lists of their own, in start order. fli_children_update() puts a child on the lists where it
 * belongs and takes it off the others. The cost of a step depends on the children it concerns, not on all.
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
    FLI_CHILDREN_TO_START,  /* wanted, down, not delayed by a back-off */
    FLI_CHILDREN_UNREADY,   /* a supervisor that is up, but some of its own children are not */
    FLI_CHILDREN_MUST_STOP, /* to be stopped, or being stopped */
    FLI_CHILDREN_LEAVING,   /* removed as soon as it is down */
    FLI_CHILDREN_LISTS
} fli_child_list;

typedef enum fli_child_index {
    FLI_CHILDREN_BY_NAME,
    FLI_CHILDREN_BY_ID,
    FLI_CHILDREN_BY_PID,
    FLI_CHILDREN_INDEXES
} fli_child_index;

/* A process that gets an answer when a child has left; or a start request that waits for that. */
typedef struct fli_waiter {
    struct fli_waiter *next;
    filch_pid          pid;
    filch_data         reply; /* kept: the prepared answer, if the request has a tag (answer.h) */
    filch_data         start; /* kept: the request to start the next child with this id */
} fli_waiter;

/* Frees `waiter` and its two payloads. */
void fli_waiter_free(filch_memory memory, fli_waiter *waiter);

typedef struct fli_child {
    filch_child spec;
    filch_data  request; /* kept: the start request, if the child was added at run time */
    filch_pid   pid;     /* of its newest process */
    uint64_t    started_ns;
    uint32_t    id;                   /* ascending, never reused */
    uint32_t    restart_streak;       /* restarts since it was last stable */
    uint8_t     state;                /* fli_child_state */
    bool        must_stop;            /* to be stopped, or being stopped */
    bool        wanted, held, leaves; /* held: start delayed by a back-off. leaves: removed as soon as it is down */
    bool        late;                 /* added at run time: not in filch_supervisor.children */
    bool        begun;                /* has been started at least once */
    bool        ready;                /* for a supervisor: all its own children are up */
    fli_waiter *waiters;              /* get their answer when it has left */

    /* Used by children.c only. */
    uint8_t           on;      /* lists it is on: one bit per fli_child_list */
    bool              missing; /* counted in fli_children.missing */
    struct fli_child *next[FLI_CHILDREN_LISTS], *prev[FLI_CHILDREN_LISTS];
    struct fli_child *chain[FLI_CHILDREN_INDEXES];
    uint64_t          hash[FLI_CHILDREN_INDEXES];
} fli_child;

enum { FLI_CHILDREN_FEW = 4 };

typedef struct fli_children {
    filch_memory memory;
    fli_child   *first[FLI_CHILDREN_LISTS], *last[FLI_CHILDREN_LISTS];
    size_t       count;
    size_t       missing;  /* children that are wanted and not yet up and ready */
    fli_child   *stopping; /* the child being stopped: at most one. NULL: none */
    uint32_t     ids;
    fli_child  **heads[FLI_CHILDREN_INDEXES]; /* hash table of `room` chains per index; few[] while there are few */
    size_t       room;
    fli_child   *few[FLI_CHILDREN_INDEXES][FLI_CHILDREN_FEW];
} fli_children;

void fli_children_init(fli_children *children, filch_memory memory);
/* Drops all children. */
void fli_children_fini(fli_children *children);

/* Appends a child, wanted and down. Errors: FILCH_EEXISTS: the id is taken; FILCH_ENOMEM. */
filch_err fli_children_add(fli_children *children, const filch_child *spec, fli_child **out);
void      fli_children_drop(fli_children *children, fli_child *c);

/* Updates the lists and counts. Call it after each change of a child's fields. */
void fli_children_update(fli_children *children, fli_child *c);
/* Records that the child runs as `pid`, and forgets its previous pid. */
void fli_children_started(fli_children *children, fli_child *c, filch_pid pid);

/* Return the child with that name, number or newest pid, or NULL. */
fli_child *fli_children_named(const fli_children *children, const char *name);
fli_child *fli_children_numbered(const fli_children *children, uint32_t id);
fli_child *fli_children_with(const fli_children *children, filch_pid pid);

#endif
