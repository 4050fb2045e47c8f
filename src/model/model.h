/* model.h - many processes: who watches whom, who hangs together, who has which name. See docs/design/relations.md.
 *
 * A *model* serves one scheduler, or all hosts of a node. It is made when it is first needed.
 *
 * A *bond* is one relation. It is listed with each process it is about (its ends), so that the end of either finds it.
 * Everything about the bonds of a process is under the lock of its *stripe*; a bond with two ends changes under both.
 *
 * Locks are taken in this order: stripes, the lower number first; then those of names and groups (table.h); nothing
 * else is taken under them but the slabs' and the allocator's.
 */
#ifndef FLI_MODEL_MODEL_H
#define FLI_MODEL_MODEL_H

#include <stdalign.h>

#include <filch.h>

#include "model/table.h"
#include "proc/runtime.h"
#include "sched/sched.h"

#ifdef FLI_SMALL
#define FLI_STRIPES 4
#else
#define FLI_STRIPES 64
#endif
#define FLI_HOSTS_MAX 256
#define FLI_NAME_SHARDS 16

typedef enum fli_relation_kind {
    FLI_RELATION_MONITOR = 1, /* endpoint 0 monitors endpoint 1 */
    FLI_RELATION_LINK,        /* endpoints 0 and 1 are linked; their order means nothing */
    /* With endpoint 0 alone: */
    FLI_RELATION_NAME,     /* the process is registered under a name */
    FLI_RELATION_EXEC,     /* a yield waits for the result of the process */
    FLI_RELATION_DEADLINE, /* a timer will cancel or terminate the process */
    FLI_RELATION_MEMBER,   /* the process is a member of a group */
    FLI_RELATION_WATCHER,  /* the process watches a group: gets JOINED and LEFT events */
    FLI_RELATION_SCOPE     /* the process runs inside a scope (proc/values.h) */
} fli_relation_kind;

/* A place in a process's list is a bond and one of its ends: handle * 2 + end; 0 is nowhere. */
typedef struct fli_relation {
    /* Counts the uses: it changes when the bond is taken out of its lists. Three fields are read without the lock, to
     * find it: relaxed, and believed only when the generation is right under the lock that they led to. */
    FLI_ATOMIC(uint32_t) gen;
    uint32_t self;
    union {
        FLI_ATOMIC(uint64_t) serial[2]; /* of each endpoint: MONITOR and LINK */
        /* Every other kind has endpoint 0 alone: */
        struct {
            FLI_ATOMIC(uint64_t) only_serial;
            union {
                FLI_ATOMIC(uint64_t) subject;   /* any of these, to be compared */
                FLI_ATOMIC(uint64_t) name_host; /* NAME: the number of the host in whose table the name is */
                FLI_ATOMIC(uint64_t) exec_key;  /* EXEC: with exec_tag, names the yield that waits for the result */
                FLI_ATOMIC(uint64_t) group;     /* MEMBER, WATCHER: address of the group */
                FLI_ATOMIC(uint64_t) scope;     /* SCOPE: address of the filch_values that is the scope */
            };
        };
    };
    FLI_ATOMIC(uint32_t) hosts; /* of end 0, and shifted by 16 of end 1 */
    uint32_t next[2], prev[2];  /* rings, in the order they were made */
    uint32_t node[2];           /* for the notice to either end; on one host the first does for both */
    uint16_t kind;
    uint16_t supervises; /* of a monitor: end 0 asks end 1 to end when the scheduler stops */
    union {
        uint64_t monitor_tag;      /* MONITOR: tag of the EXIT event */
        void    *name_entry;       /* NAME: its entry in the table of names */
        uint64_t exec_tag;         /* EXEC: see exec_key */
        uint64_t timer;            /* DEADLINE: the timer that cancels or terminates the process */
        void    *membership;       /* MEMBER, WATCHER: its entry in the group */
        struct fli_tenant *tenant; /* SCOPE: its entry in the scope */
    };
} fli_relation;

static_assert(sizeof(fli_relation) == 64, "a bond is one cache line");

/* One scheduler of the model. */
typedef struct fli_host {
    /* NULL: none, or gone.  PAIR host.open */
    FLI_ATOMIC(fli_runtime *) rt;
    FLI_ATOMIC(uint64_t) node_id; /* of its pids; stays when it is gone, for notices that are still to be read */
    /* Threads of other hosts that are using `rt`.  PAIR host.pins */
    FLI_ATOMIC(uint32_t) pins;
    /* The first bond of each process, by slot, in segments as the slab's.  writes: under `grow`, once.  PAIR host.heads
     */
    FLI_ATOMIC(uint32_t *) heads[FLI_SLAB_SEGMENTS];
    filch_route_fn route; /* plain: set before it is used. For pids of no host; NULL: none */
    void          *route_user;
    fli_table      names[FLI_NAME_SHARDS]; /* by hash */
    fli_table      groups;
} fli_host;

typedef struct fli_model {
    fli_mem mem;
    /* Hosts that hold it, and the node.  PAIR model.refs */
    FLI_ATOMIC(uint32_t) refs;
    fli_slab        relations;
    fli_mutex       grow;   /* of heads, and of hosts */
    filch_policy_fn policy; /* plain: set before the second host; NULL: nothing is allowed between hosts */
    void           *policy_user;
    /* By number; made when a host comes, and kept until the end.  PAIR host.open */
    FLI_ATOMIC(fli_host *) hosts[FLI_HOSTS_MAX];
    struct {
        alignas(FLI_LINE) fli_mutex lock;
    } stripes[FLI_STRIPES];
} fli_model;

/* A process, found by its pid. */
typedef struct fli_endpoint {
    fli_runtime *rt;
    uint32_t     host;
    uint64_t     serial;
} fli_endpoint;

/* ---- model.c ---- */

filch_err fli_model_create(const fli_mem *mem, fli_model **out);
void      fli_model_drop(fli_model *m);
/* Adds a host. FILCH_ELIMIT: there are FLI_HOSTS_MAX already. */
filch_err fli_model_add(fli_model *m, fli_runtime *rt, uint32_t *host);
/* The model of `rt`, made if need be. */
FILCH_MUST_USE filch_err fli_model_get(fli_runtime *rt, fli_model **out);

static inline fli_host *fli_host_at(fli_model *m, uint32_t host)
{
    return fli_load_acq(&m->hosts[host]); /* PAIR host.open, acquire half */
}

/* Finds the host of `pid` and keeps it from going away until fli_endpoint_unpin. Says nothing about the process. */
FILCH_MUST_USE filch_err fli_endpoint_pin(fli_model *m, fli_runtime *rt, filch_pid pid, fli_endpoint *out);
void                     fli_endpoint_unpin(fli_model *m, const fli_runtime *rt, const fli_endpoint *endpoint);
/* May a process of `rt`, or a thread that uses it, do `op` to one of the host of `endpoint`? FILCH_EDENIED. */
FILCH_MUST_USE filch_err fli_access_check(fli_model *m, fli_runtime *rt, uint32_t op, const fli_endpoint *endpoint, filch_pid target);

/* ---- relations.c ---- */

FILCH_MUST_USE filch_err fli_relation_make(fli_model *m, fli_relation_kind kind, const fli_endpoint *a, const fli_endpoint *b,
                                       fli_relation **out);
/* The bond of a place; NULL for nowhere. */
static inline fli_relation *fli_relation_at(fli_model *m, uint32_t place)
{
    return place != 0 ? fli_slab_at_size(&m->relations, place / 2, sizeof(fli_relation)) : NULL;
}
/* Gives back one that is in no list and holds no node. */
void fli_relation_free(fli_model *m, fli_relation *relation);

void fli_stripe_lock(fli_model *m, const fli_endpoint *endpoint);
void fli_stripe_unlock(fli_model *m, const fli_endpoint *endpoint);
void fli_stripes_lock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);
void fli_stripes_unlock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);

/* Raises HAS_RELATIONS. Returns false if the process is dead, or was not spawned yet when fli_relation_make() was called. Under the
 * stripe's lock. */
FILCH_MUST_USE bool fli_endpoint_set_related(fli_model *m, const fli_endpoint *endpoint);
/* Lists end `which` of the bond with its process; takes it out again. Under the stripe's lock. */
void fli_relation_list(fli_model *m, fli_relation *relation, unsigned which);
void fli_relation_unlist(fli_model *m, fli_relation *relation, unsigned which);
/* Could the process have bonds, alive or not? Under the stripe's lock. */
bool fli_relation_has_list(fli_model *m, const fli_endpoint *endpoint);
/* The newest bond of the process of this kind and group, or NULL. Under the stripe's lock. */
fli_relation *fli_relation_find(fli_model *m, const fli_endpoint *endpoint, fli_relation_kind kind, uint64_t subject);
/* From now on nobody finds it by its number. Under the locks of its ends. */
void fli_relation_retire(fli_relation *relation);

filch_err fli_monitor(fli_model *m, const fli_endpoint *watcher, const fli_endpoint *target, uint64_t tag, uint64_t *ref);
filch_err fli_unmonitor(fli_model *m, const fli_endpoint *watcher, uint64_t ref);
/* Returns true if a process of the same host supervises `serial`: the process `by`, or with 0 any process. */
bool      fli_supervised(fli_runtime *rt, uint64_t serial, uint64_t by);
filch_err fli_link(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);
filch_err fli_unlink(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);
filch_err fli_birth_make(fli_model *m, fli_runtime *rt, fli_proc *p, uint64_t serial, const fli_birth *birth,
                         bool limited);
void      fli_ended(fli_runtime *rt, uint64_t serial, filch_err error, const filch_data *result);

static inline uint64_t fli_relation_ref(fli_relation *relation)
{
    return ((uint64_t)fli_load_rlx(&relation->gen) << 32) | relation->self;
}

/* ---- notice.c ---- */

/* What a notice says. `about` NULL: nobody. The payload is shared, never copied: `data` owns its bytes. */
void fli_notice_fill(fli_event_node *node, filch_event_type type, const fli_runtime *to, const fli_endpoint *about, uint64_t tag,
                     filch_err error, const filch_data *data);
/* Hands it over; if the process has ended, it is freed. */
void fli_notice_post(fli_runtime *to, uint64_t serial, fli_event_node *node);

/* ---- names.c ---- */

filch_err fli_name_add(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_name_remove(fli_model *m, fli_runtime *rt, const char *name);
filch_err fli_name_find(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pid);
/* Writes the newest name that the process of `endpoint` has on its own host to name[0 .. FLI_NAME_ROOM). False: it has none.
 * It was HAS_RELATIONS: so the room for its list exists. */
FILCH_MUST_USE bool fli_name_of(fli_model *m, const fli_endpoint *endpoint, char *name);
/* Takes the name away from a process of this host that has ended and has not let go of it yet. No lock is held. */
void fli_name_remove_ended(fli_model *m, fli_runtime *rt, const char *name);
/* In two steps, for a process that is being born: make the entry and its bond; list both. Under the stripe's lock. */
filch_err fli_name_make(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint, fli_relation **out);
filch_err fli_name_list(fli_model *m, fli_relation *relation);
void      fli_name_unmake(fli_model *m, fli_relation *relation);
/* Its process has ended: takes the name out of its table. Under the stripe's lock; the bond is out of its list. */
void fli_name_forget(fli_model *m, fli_relation *relation);

/* The names that processes of other hosts have here go. Thread: no process of the host is left. */
void fli_names_fini(fli_model *m, fli_runtime *rt);

/* ---- groups.c ---- */

filch_err fli_group_join(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_group_leave(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_group_watch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint, uint64_t tag);
filch_err fli_group_unwatch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
/* Up to `room` members, in the order they joined; gives how many there are. */
size_t fli_group_members(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pids, size_t room);

/* All of them, in memory of `rt`, for fli_group_unlist. */
typedef struct fli_pids {
    filch_pid *at;
    size_t     count, room;
} fli_pids;
filch_err fli_group_list(fli_model *m, fli_runtime *rt, const char *name, fli_pids *out);
void      fli_group_unlist(const fli_runtime *rt, const fli_pids *list);

/* Sends to each; *sent is how many took it. */
filch_err fli_group_broadcast(fli_model *m, fli_runtime *rt, const char *name, filch_pid from, const filch_data *data,
                              uint64_t *sent);
/* As fli_name_forget, for a member or watcher. */
void fli_group_forget(fli_model *m, fli_relation *relation);
/* ---- cancel.c ---- */

filch_err fli_cancel_with(fli_model *m, fli_runtime *rt, const fli_endpoint *endpoint, filch_err reason, uint64_t deadline_ns);

/* ---- context.c ---- */

/* The bonds of a process with the deadline and scopes of its values, linked by next[0]; it has entered the scopes. *timer
 * will ask it to end; 0: there is none. */
filch_err fli_context_make(fli_model *m, const fli_endpoint *endpoint, filch_values *values, fli_relation **out, uint64_t *timer);
/* Takes them back. */
void fli_context_undo(fli_model *m, fli_runtime *rt, fli_relation *relations);
/* The process is open now: if it is late already, it is asked to end, and not by the timer. */
void fli_context_begin(fli_endpoint *endpoint, filch_values *values, uint64_t timer);
/* Leaves a scope. The bond is in no list. */
void fli_context_free(fli_model *m, fli_relation *relation);

/* ---- spawn_request.c ---- */

/* The handlers of FILCH_CMD_SPAWN and _EXEC. */
filch_err fli_spawn_request_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

/* ---- named_message.c ---- */

/* The handlers of FILCH_CMD_BROADCAST and _SEND_NAME. */
filch_err fli_named_message_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

/* ---- calls.c ---- */

/* Does what is asked, without asking the tape or the simulator. */
filch_err fli_relate(fli_runtime *rt, fli_request *request);
/* The handler of the model's commands. */
filch_err fli_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

#endif
