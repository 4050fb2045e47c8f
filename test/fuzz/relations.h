/* relations.h - the part of the model that knows who watches whom, who hangs together, who has which name and who is in
 * which group; and so what everybody must be told (a *notice*), once, and why a process may have ended. See model.h.
 */
#ifndef FILCH_FUZZ_RELATIONS_H
#define FILCH_FUZZ_RELATIONS_H

#include "fuzz/model.h"

enum { NAMES = 3, GROUPS = 2, BONDS = 256, MEMBERS = 12, WATCHERS = 4, NOTICES = 768, ASKED = 8 };

typedef enum bond_kind { BOND_MONITOR, BOND_LINK } bond_kind;

typedef struct bond {
    bond_kind kind;
    bool      live;
    bool      after_link; /* made by one spawn with a link: of both, LINK_DOWN comes before EXIT */
    int       a, b;       /* lives. A monitor: a watches b */
    uint64_t  tag, ref;
} bond;

typedef struct relations {
    bond bonds[BONDS];
    int  bond_count, bonds_live;
    int  owner[NAMES]; /* of a name, or NOBODY */
    int  members[GROUPS][MEMBERS + ASKED], member_count[GROUPS];
    int  watchers[GROUPS][WATCHERS + ASKED], watcher_count[GROUPS];
    uint64_t watch_tags[GROUPS][WATCHERS + ASKED];
    int  notice_count, notice_free, notices_out;
} relations;

extern relations ties;

extern const char *const tie_names[NAMES], *const tie_groups[GROUPS];

void relations_begin(void);

/* Room for one more relation and those that were asked for in this step (fewer than ASKED), and for what everybody's
 * end would bring? */
bool relations_have_room(void);

/* A tag for a monitor, unlike all others. */
uint64_t relations_next_tag(void);

/* Somebody calls from outside, and everything is closed. */
bool relations_closed(void);

/* What a call about this pid must answer if nothing else is wrong with it. */
filch_err relations_fault(filch_pid pid);

/* These calls were accepted. */
void relations_monitored(int watcher, int target, filch_pid target_pid, uint64_t tag, uint64_t ref);
void relations_linked(int a, filch_pid a_pid, int b, filch_pid b_pid);
void relations_ordered(int by, int to, filch_err reason, uint64_t asked_ns, uint64_t deadline_ns); /* filch_cancel_with */
void relations_spawned(int parent, int child, uint32_t how, uint64_t tag, int name);
void relations_joined(int group, int who);
void relations_watched(int group, int who, uint64_t tag);

/* A yield of these has been dispatched, and there was memory for it. Gives the answer it must get. */
filch_err relations_yielded(question *q);
/* Are these the members that it has found? */
bool relations_is_list(const question *q, const filch_data *data);
/* The number that a yielded monitor was answered with. */
void relations_ref(uint64_t tag, uint64_t ref);

/* The live bond of this kind between the two, or NULL. */
bond *relations_find(bond_kind kind, int a, int b);
void  relations_untied(bond *b);

/* False: it is none of these. */
bool relations_left(int group, int who);
bool relations_unwatched(int group, int who);

/* A step is given a notice, or a cancel that somebody gave a reason for. */
void relations_read(life *l, const filch_event *event);

/* Does it wait for notices? For the end, because it is linked with one that has failed? */
bool relations_waits(const life *l);
bool relations_down(const life *l);

/* A process is about to be buried: what may have been the cause, where its last step was not? */
void relations_causes(life *l);
/* It is: everybody is told. */
void relations_ended(life *l);
/* Somebody was told of its end in these words. */
void relations_end_told(life *l, filch_err error, const filch_data *result);

/* Everything has been said; names and groups are as we know them. */
void relations_calm(uint64_t since_ns, uint64_t *armed_most);

#endif
