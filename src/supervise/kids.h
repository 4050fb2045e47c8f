/* kids.h - the children of a supervisor: in the order in which they are started, and found by id, number or pid.
 *
 * A supervisor may have a hundred thousand of them, and each of its steps is about a few. So those that something is to
 * be done about are on lists of their own, in the same order, and fli_kids_note puts a child onto the lists where it
 * belongs after each change. Whatever a step does takes time for those it is about, not for all.
 *
 * INVARIANT  after fli_kids_note, a child is on a list exactly if what is written there holds for it.
 */
#ifndef FLI_SUPERVISE_KIDS_H
#define FLI_SUPERVISE_KIDS_H

#include <filch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fli_kid_state { FLI_KID_DOWN, FLI_KID_UP, FLI_KID_STOPPING } fli_kid_state;

typedef enum fli_kid_list {
    FLI_KIDS_ALL,
    FLI_KIDS_OWED,      /* wanted, down, and not held back */
    FLI_KIDS_UNREADY,   /* up, a supervisor whose children are not */
    FLI_KIDS_MUST_STOP, /* or is being stopped already */
    FLI_KIDS_LEAVING,   /* goes when it is down */
    FLI_KIDS_LISTS
} fli_kid_list;

typedef enum fli_kid_index { FLI_KIDS_BY_NAME, FLI_KIDS_BY_ID, FLI_KIDS_BY_PID, FLI_KIDS_INDEXES } fli_kid_index;

/* A process that wants to hear that a child has left; or an order that waits for that. */
typedef struct fli_asker {
    struct fli_asker *next;
    filch_pid         pid;
    filch_data        reply; /* kept: the answer, if the order has a tag (answer.h) */
    filch_data        start; /* kept: the order of a child with the same id, which comes next */
} fli_asker;

/* Frees an asker with what it keeps. */
void fli_asker_free(filch_memory memory, fli_asker *asker);

typedef struct fli_kid {
    filch_child spec;
    filch_data  order; /* of a child that came later: what brought it, kept */
    filch_pid   pid;   /* the last one */
    uint64_t    started_ns;
    uint32_t    id;                   /* ascending, never used again */
    uint32_t    streak;               /* restarts since it was last stable */
    uint8_t     state;                /* fli_kid_state */
    bool        must_stop;            /* it is up, or being stopped already */
    bool        wanted, held, leaves; /* held: until its sleep is over. leaves: when it is down, it goes */
    bool        late;                 /* was not in the description */
    bool        begun;                /* has been started once */
    bool        ready;                /* a supervisor: its children are up */
    fli_asker  *askers;               /* are told when it has left */

    /* Of kids.c. */
    uint8_t         on;      /* lists, a bit each */
    bool            missing; /* counted in `missing` */
    struct fli_kid *next[FLI_KIDS_LISTS], *prev[FLI_KIDS_LISTS];
    struct fli_kid *chain[FLI_KIDS_INDEXES];
    uint64_t        hash[FLI_KIDS_INDEXES];
} fli_kid;

enum { FLI_KIDS_FEW = 4 };

typedef struct fli_kids {
    filch_memory memory;
    fli_kid     *first[FLI_KIDS_LISTS], *last[FLI_KIDS_LISTS];
    size_t       count;
    size_t       missing;  /* wanted, and not up and ready */
    fli_kid     *stopping; /* at most one is */
    uint32_t     ids;
    fli_kid    **heads[FLI_KIDS_INDEXES]; /* `room` of them; NULL: few[] */
    size_t       room;
    fli_kid     *few[FLI_KIDS_INDEXES][FLI_KIDS_FEW];
} fli_kids;

void fli_kids_init(fli_kids *kids, filch_memory memory);
/* Drops all. */
void fli_kids_fini(fli_kids *kids);

/* A new one behind the others, wanted and down. FILCH_EEXISTS: the id is taken; FILCH_ENOMEM. */
filch_err fli_kids_add(fli_kids *kids, const filch_child *spec, fli_kid **out);
void      fli_kids_drop(fli_kids *kids, fli_kid *k);

/* To be called after each change of a child's fields. */
void fli_kids_note(fli_kids *kids, fli_kid *k);
/* The child has been started as `pid`. The pid before it is forgotten. */
void fli_kids_born(fli_kids *kids, fli_kid *k, filch_pid pid);

/* NULL: there is none. */
fli_kid *fli_kids_named(const fli_kids *kids, const char *name);
fli_kid *fli_kids_numbered(const fli_kids *kids, uint32_t id);
fli_kid *fli_kids_with(const fli_kids *kids, filch_pid pid);

#endif
