/* relations.h - the part of the model for monitors, links, names and groups; it predicts which *notices* each process
 * must get, once each, and why a process may have ended. See model.h. */
#ifndef FILCH_FUZZ_RELATIONS_H
#define FILCH_FUZZ_RELATIONS_H

#include "fuzz/model.h"

enum { NAMES = 3, GROUPS = 2, RELATIONS = 256, MEMBERS = 12, WATCHERS = 4, NOTICES = 768, YIELDED_MAX = 8 };

typedef enum relation_kind { RELATION_MONITOR, RELATION_LINK } relation_kind;

typedef struct relation {
    relation_kind kind;
    bool          live;
    /* of a monitor: the spawn that made it also made a link, so LINK_DOWN is delivered before EXIT */
    bool     after_link;
    int      a, b; /* indices of two processes; in a monitor, process a monitors process b */
    uint64_t tag, ref;
} relation;

typedef struct relations {
    relation relation_list[RELATIONS];
    int      relation_count, relations_live;
    int      owner[NAMES]; /* for each name: index of its owner, or NO_PROC */
    int      members[GROUPS][MEMBERS + YIELDED_MAX], member_count[GROUPS];
    int      watchers[GROUPS][WATCHERS + YIELDED_MAX], watcher_count[GROUPS];
    uint64_t watch_tags[GROUPS][WATCHERS + YIELDED_MAX];
    int      notice_count, notice_free, notices_out;
} relations;

extern relations ties;

extern const char *const tie_names[NAMES], *const tie_groups[GROUPS];

void relations_begin(void);

/* Returns true if the model can hold one more relation, the relations yielded in this step (fewer than YIELDED_MAX),
 * and the notices of all ends of processes. */
bool relations_have_room(void);

/* Returns a new tag for a monitor. */
uint64_t relations_next_tag(void);

/* Returns true if calls from outside of callbacks must fail because the scheduler is closed. */
bool relations_closed(void);

/* Returns the result that a call with this pid must have, unless another argument is wrong. */
filch_err relations_fault(filch_pid pid);

/* Each function of this group tells the model that one call was accepted. */
void relations_monitored(int watcher, int target, filch_pid target_pid, uint64_t tag, uint64_t ref);
void relations_linked(int a, filch_pid a_pid, int b, filch_pid b_pid);
void relations_cancelled_with(int by, int to, filch_err reason, uint64_t requested_ns,
                              uint64_t deadline_ns); /* filch_cancel_with */
void relations_spawned(int parent, int child, uint32_t how, uint64_t tag, int name);
void relations_joined(int group, int process);
void relations_watched(int group, int process, uint64_t tag);

/* Tells the model that the yield `q`, which makes or removes a relation, was dispatched while no allocation failed.
 * Returns the result with which the yield must complete. */
filch_err relations_yielded(yield_rec *q);
/* Returns true if `data` lists the members of the group as the model predicted for `q`. */
bool relations_is_list(const yield_rec *q, const filch_data *data);
/* Records the reference with which a yielded monitor was completed. */
void relations_ref(uint64_t tag, uint64_t ref);

/* Returns the live relation of kind `kind` between the processes a and b, or NULL. */
relation *relations_find(relation_kind kind, int a, int b);
void      relations_untied(relation *b);

/* relations_left() records that `process` left the group, relations_unwatched() that it no longer watches the group.
 * Both return false if `process` was no member or no watcher. */
bool relations_left(int group, int process);
bool relations_unwatched(int group, int process);

/* Tells the model that a step of `l` receives a notice, or a cancel with a reason. */
void relations_read(proc *l, const filch_event *event);

/* relations_waits() returns true if notices are still to be delivered to the process, relations_down() if the process
 * will end because a linked process has failed. */
bool relations_waits(const proc *l);
bool relations_down(const proc *l);

/* Records what may have caused the end of a process, other than its own status. Called before the close function of the
 * process. */
void relations_causes(proc *l);
/* Tells the model that `l` has ended: adds the notices for all processes that have relations to `l`. */
void relations_ended(proc *l);
/* Tells the model that a notice of the end of `l` was delivered with `error` and `result`. */
void relations_end_reported(proc *l, filch_err error, const filch_data *result);

/* Checks that all notices were delivered, and names and groups match the model. */
void relations_check_quiet(uint64_t since_ns, uint64_t *armed_most);

#endif
