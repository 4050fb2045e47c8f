/* relations.h - the part of the model for monitors, links, names and groups; it predicts which *notices* each process
 * must get, once each, and why a process may have ended. See model.h. */
#ifndef FILCH_FUZZ_RELATIONS_H
#define FILCH_FUZZ_RELATIONS_H

#include "fuzz/model.h"

enum { NAMES = 3, GROUPS = 2, BONDS = 256, MEMBERS = 12, WATCHERS = 4, NOTICES = 768, ASKED = 8 };

typedef enum bond_kind { BOND_MONITOR, BOND_LINK } bond_kind;

typedef struct bond {
    bond_kind kind;
    bool      live;
    bool      after_link; /* made by one spawn with a link: of the two notices, LINK_DOWN comes before EXIT */
    int       a, b;       /* lives. A monitor: a monitors b */
    uint64_t  tag, ref;
} bond;

typedef struct relations {
    bond bonds[BONDS];
    int  bond_count, bonds_live;
    int  owner[NAMES]; /* of a name, or none */
    int  members[GROUPS][MEMBERS + ASKED], member_count[GROUPS];
    int  watchers[GROUPS][WATCHERS + ASKED], watcher_count[GROUPS];
    uint64_t watch_tags[GROUPS][WATCHERS + ASKED];
    int  notice_count, notice_free, notices_out;
} relations;

extern relations ties;

extern const char *const tie_names[NAMES], *const tie_groups[GROUPS];

void relations_begin(void);

/* Returns true if there is room for one more relation, for those yielded in this step (fewer than ASKED), and for all
 * notices that ends would cause. */
bool relations_have_room(void);

/* Returns a new tag for a monitor. */
uint64_t relations_next_tag(void);

/* Returns true for a call from outside while the scheduler is closed. */
bool relations_closed(void);

/* Returns the result of a call about this pid if nothing else is wrong. */
filch_err relations_fault(filch_pid pid);

/* These calls were accepted. */
void relations_monitored(int watcher, int target, filch_pid target_pid, uint64_t tag, uint64_t ref);
void relations_linked(int a, filch_pid a_pid, int b, filch_pid b_pid);
void relations_ordered(int by, int to, filch_err reason, uint64_t asked_ns, uint64_t deadline_ns); /* filch_cancel_with */
void relations_spawned(int parent, int child, uint32_t how, uint64_t tag, int name);
void relations_joined(int group, int who);
void relations_watched(int group, int who, uint64_t tag);

/* A yield of these was dispatched, and there was memory for it. Returns the result it must get. */
filch_err relations_yielded(question *q);
/* Returns true if `data` lists the members as predicted. */
bool relations_is_list(const question *q, const filch_data *data);
/* Records the number in the completion of a monitor by yield. */
void relations_ref(uint64_t tag, uint64_t ref);

/* Returns the live relation of this kind between the two, or NULL. */
bond *relations_find(bond_kind kind, int a, int b);
void  relations_untied(bond *b);

/* Returns false if it is not a member. */
bool relations_left(int group, int who);
bool relations_unwatched(int group, int who);

/* A step gets a notice, or a cancel with a reason. */
void relations_read(life *l, const filch_event *event);

/* Return true if it waits for notices, or for its end because a linked process has failed. */
bool relations_waits(const life *l);
bool relations_down(const life *l);

/* A process is about to be reaped: records what may have been the cause, if not its own status. */
void relations_causes(life *l);
/* The process has ended: adds the notices of all processes with relations to it. */
void relations_ended(life *l);
/* A notice of its end was delivered with these fields. */
void relations_end_told(life *l, filch_err error, const filch_data *result);

/* Checks that all notices were delivered, and names and groups match the model. */
void relations_calm(uint64_t since_ns, uint64_t *armed_most);

#endif
