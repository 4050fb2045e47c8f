/* model.h - relations between processes: monitors, links, names, groups, deadlines and scopes. See
 * docs/design/relations.md.
 *
 * A *model* serves one scheduler, or all hosts of a node. It is created on first use.
 *
 * A *relation* has one or two endpoints (processes). The relation is listed with the process of each endpoint, so
 * that the end of either process finds the relation. The relations of a process are protected by the lock of its
 * *stripe*; a relation with two endpoints is changed under both locks.
 *
 * Lock order: stripes, the lower number first; then the locks of name and group tables (table.h), or `hubs`. While
 * these locks are held, only the locks of slabs and of the allocator are taken.
 */
#ifndef FLI_MODEL_MODEL_H
#define FLI_MODEL_MODEL_H

#include <stdalign.h>

#include <filch.h>

#include "model/table.h"
#include "port/thread.h"
#include "proc/runtime.h"

#ifdef FLI_SMALL
#define FLI_STRIPES 4
#else
#define FLI_STRIPES 64
#endif
#define FLI_HOSTS_MAX 256
#define FLI_NAME_SHARDS 16
#define FLI_GROUP_SHARDS 16
/* Unit of the bytes that the relations of a process take. */
#define FLI_RELATION_UNIT 16

typedef enum fli_relation_kind {
    FLI_RELATION_MONITOR = 1, /* endpoint 0 monitors endpoint 1 */
    FLI_RELATION_LINK,        /* endpoints 0 and 1 are linked; their order means nothing */
    /* All kinds from NAME on have only endpoint 0, called "the process" below. */
    FLI_RELATION_NAME,     /* the process is registered under a name */
    FLI_RELATION_EXEC,     /* a yield waits for the result of the process */
    FLI_RELATION_DEADLINE, /* a timer will cancel or terminate the process */
    FLI_RELATION_MEMBER,   /* the process is a member of a group */
    FLI_RELATION_WATCHER,  /* the process watches a group: gets JOINED and LEFT events */
    FLI_RELATION_SCOPE,    /* the process runs inside a scope (proc/values.h) */
    /* the process is a hub: it has an index of its links (relations.c). This relation comes first in its list */
    FLI_RELATION_HUB
} fli_relation_kind;

/* A *place* is a position in the list of a process. It names a relation and one of its endpoints: handle of the
 * relation * 2 + endpoint number; 0: none. */
typedef struct fli_relation {
    /* Number of earlier uses of this slab slot; changes when the relation is removed from its lists. `gen`, `serial`
     * and `hosts` are also read without the stripe's lock, to find out which stripe to lock. These reads are relaxed,
     * and their values are used only if the generation still matches when the lock is held. */
    FLI_ATOMIC(uint32_t) gen;
    uint32_t             self;
    union {
        FLI_ATOMIC(uint64_t) serial[2]; /* MONITOR and LINK: the serial of each endpoint */
        /* All kinds except MONITOR and LINK have only endpoint 0. */
        struct {
            FLI_ATOMIC(uint64_t) only_serial;
            union {
                FLI_ATOMIC(uint64_t) name_host; /* NAME: the number of the host that has the name in its table */
                /* EXEC: key of the yield that waits for the result; its tag is exec_tag */
                FLI_ATOMIC(uint64_t) exec_key;
                FLI_ATOMIC(uint64_t) scope; /* SCOPE: address of the filch_values that is the scope */
                /* MEMBER, WATCHER: bytes of the membership, in units of FLI_RELATION_UNIT */
                FLI_ATOMIC(uint64_t) membership_units;
            };
        };
    };
    FLI_ATOMIC(uint32_t) hosts; /* Bits: low 16 = host number of endpoint 0, above = host number of endpoint 1 */
    /* for each endpoint: the next and the previous place in the list of the endpoint's process. The list is a ring in
     * order of creation; a HUB comes first */
    uint32_t next[2], prev[2];
    /* for each endpoint: handle of the event node reserved for the notice to its process; 0: none. A LINK within one
     * host has only node[0], which is used for the notice to either endpoint */
    uint32_t node[2];
    uint16_t kind;
    union {
        uint16_t supervises; /* MONITOR: endpoint 0 is a supervisor that stops endpoint 1 when the scheduler stops */
        /* LINK: the link is in the index of an endpoint that is a hub. Written under the stripe locks of both
         * endpoints, or under the stripe lock of one endpoint and `hubs` */
        uint16_t is_indexed;
        uint16_t is_given; /* all kinds from NAME on: the process itself has not made this relation */
    };
    union {
        uint64_t           monitor_tag; /* MONITOR: tag of the EXIT event */
        void              *name_entry;  /* NAME: the entry of the name in the table of names */
        uint64_t           exec_tag;    /* EXEC: tag of the yield that exec_key names */
        uint64_t           timer;       /* DEADLINE: the timer that cancels or terminates the process */
        void              *membership;  /* MEMBER, WATCHER: the membership in the group */
        struct fli_tenant *tenant;      /* SCOPE: the entry of the process in the scope */
        fli_index         *links;       /* HUB: index of the links of the process; the key is the pair of endpoints */
        fli_index_item     link_item;   /* LINK: its item in the index of an endpoint that is a hub */
    };
} fli_relation;

static_assert(sizeof(fli_relation) == 64, "a relation is one cache line");

/* The list of relations of a process. Protected by the lock of the process's stripe. */
typedef struct fli_relation_list_head {
    uint32_t first; /* the first place in the list; 0: the list is empty */
    /* Approximate size of the relations, in units of FLI_RELATION_UNIT, modulo 2^32. `units`: relations that the
     * process has made. `given_units`: relations that others have made for it (FLI_RELATION_NAME and the kinds after
     * it) */
    uint32_t units, given_units;
} fli_relation_list_head;

/* The groups of a host that belong to one shard (by the hash of their names), with their memberships. */
typedef struct fli_group_shard {
    fli_table table;       /* the groups by name; the lock of this table protects the whole shard */
    fli_index memberships; /* index of members and watchers; the key is group, process and kind (groups.c) */
} fli_group_shard;

/* A host: one of the schedulers of the program that share this model. Contains its runtime and what other hosts need to
 * know about it. */
typedef struct fli_host {
    /* The runtime of the host; NULL: not set yet, or the scheduler is being destroyed.  PAIR host.open */
    FLI_ATOMIC(fli_runtime *) rt;
    FLI_ATOMIC(uint64_t) node_id; /* node id of the host's pids; kept after the end of the host, for notices that are
                                     delivered later */
    /* Number of threads of other hosts that are using `rt`.  PAIR host.pins */
    FLI_ATOMIC(uint32_t) pins;
    /* For each process slot of the host: the list of relations of the process in that slot. Allocated in segments, like
     * the process slab.  writes: once, under `grow`.  PAIR host.heads */
    FLI_ATOMIC(fli_relation_list_head *) heads[FLI_SLAB_SEGMENTS];
    /* route function for pids that belong to no host of this model; NULL: none. Not atomic: set before the host is
     * used */
    filch_route_fn  route;
    void           *route_user;
    fli_table       names[FLI_NAME_SHARDS];   /* tables of registered names; the hash of a name selects the table */
    fli_group_shard groups[FLI_GROUP_SHARDS]; /* the hash of a group's name selects the shard */
} fli_host;

typedef struct fli_model {
    fli_mem mem;
    /* Number of references to this struct: one for each host, and one for the filch_node.  PAIR model.refs */
    FLI_ATOMIC(uint32_t) refs;
    fli_slab             relations;
    fli_mutex            grow; /* protects the allocation of fli_host.heads and the adding of hosts */
    /* held while the links of a process that becomes a hub (a process with an index of its links) are put into its
     * index: make_hub() in relations.c */
    fli_mutex hubs;
    /* decides which operations between hosts are allowed; NULL: none. Not atomic: set before the first host is added */
    filch_policy_fn policy;
    void           *policy_user;
    /* Hosts by number; an fli_host is freed with the model, not earlier.  PAIR host.open */
    FLI_ATOMIC(fli_host *) hosts[FLI_HOSTS_MAX];
    struct {
        alignas(FLI_LINE) fli_mutex lock;
    } stripes[FLI_STRIPES];
} fli_model;

/* A process, given by its host and serial. The process may have ended. */
typedef struct fli_endpoint {
    fli_runtime *rt;
    uint32_t     host;
    uint64_t     serial;
} fli_endpoint;

/* ---- model.c ---- */

extern const fli_model_ops fli_model_table;

filch_err fli_model_create(const fli_mem *mem, fli_model **out);
void      fli_model_drop(fli_model *m);
/* Adds `rt` as a host and stores its number in *host. FILCH_ELIMIT: the model has FLI_HOSTS_MAX hosts. FILCH_EEXISTS: a
 * host with this node id exists, or existed. */
filch_err fli_model_add(fli_model *m, fli_runtime *rt, uint32_t *host);
/* Stores the model of `rt` in *out. If `rt` has no model yet, creates one. */
FILCH_MUST_USE filch_err fli_model_get(fli_runtime *rt, fli_model **out);

static inline fli_host *fli_host_at(fli_model *m, uint32_t host)
{
    return fli_load_acq(&m->hosts[host]); /* PAIR host.open, acquire half */
}

/* Finds the host of `pid` and pins the host until fli_endpoint_unpin(), so that the host is not destroyed. Does not
 * check whether the process is alive. */
FILCH_MUST_USE filch_err fli_endpoint_pin(fli_model *m, fli_runtime *rt, filch_pid pid, fli_endpoint *out);
void                     fli_endpoint_unpin(fli_model *m, const fli_runtime *rt, const fli_endpoint *endpoint);
/* Asks the policy hook whether a process of `rt` may do `op` to `target`, a process of the host of `endpoint`. Returns
 * FILCH_OK without asking if that host is `rt` itself; FILCH_EDENIED if the policy refuses. */
FILCH_MUST_USE filch_err fli_access_check(fli_model *m, fli_runtime *rt, uint32_t op, const fli_endpoint *endpoint,
                                          filch_pid target);

/* ---- relations.c ---- */

FILCH_MUST_USE filch_err fli_relation_make(fli_model *m, fli_relation_kind kind, const fli_endpoint *a,
                                           const fli_endpoint *b, fli_relation **out);
/* Returns the relation that is at `place`, a position in the list of a process (see *place* at fli_relation): the
 * handle of the relation * 2 + the number of one of its endpoints. Returns NULL if `place` is 0. */
static inline fli_relation *fli_relation_at(fli_model *m, uint32_t place)
{
    return place != 0 ? fli_slab_at_size(&m->relations, place / 2, sizeof(fli_relation)) : NULL;
}
/* Frees a relation that is in no list and has no reserved node. */
void fli_relation_free(fli_model *m, fli_relation *relation);

void fli_stripe_lock(fli_model *m, const fli_endpoint *endpoint);
void fli_stripe_unlock(fli_model *m, const fli_endpoint *endpoint);
void fli_stripes_lock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);
void fli_stripes_unlock(fli_model *m, const fli_endpoint *a, const fli_endpoint *b);

/* Sets HAS_RELATIONS in the state word of the process. Returns false if the process has ended, or was not spawned yet
 * when fli_relation_make() was called. Requires the lock of the process's stripe. */
FILCH_MUST_USE bool fli_endpoint_set_related(fli_model *m, const fli_endpoint *endpoint);
/* fli_relation_list() adds endpoint `which` of the relation to the list of that endpoint's process,
 * fli_relation_unlist() removes it. Both require the lock of the process's stripe. */
void fli_relation_list(fli_model *m, fli_relation *relation, unsigned which);
void fli_relation_unlist(fli_model *m, fli_relation *relation, unsigned which);
/* Returns true if the process is alive and the list head of its slot is allocated. Requires the lock of the process's
 * stripe. */
bool fli_relation_has_list(fli_model *m, const fli_endpoint *endpoint);
/* Returns the NAME relation of the newest name that the process has on its own host, or NULL. Walks all relations of
 * the process. Requires the lock of the process's stripe. */
fli_relation *fli_relation_newest_name(fli_model *m, const fli_endpoint *endpoint);
/* Sets relation_bytes and given_bytes of *info for the process. Sets nothing if it has ended. */
void fli_relation_bytes(fli_model *m, const fli_endpoint *endpoint, filch_info *info);
/* Increments the generation, so that a number that fli_relation_ref() returned earlier no longer names the relation.
 * Requires the stripe locks of its endpoints. */
void fli_relation_retire(fli_relation *relation);

filch_err fli_monitor(fli_model *m, const fli_endpoint *watcher, const fli_endpoint *target, uint64_t tag,
                      uint64_t *ref);
filch_err fli_unmonitor(fli_model *m, const fli_endpoint *watcher, uint64_t ref);
/* Returns true if the process `serial` of `rt` is supervised: by the process with serial `by` of the same host, or by
 * any process of this host if `by` is 0. */
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

/* Fills `node` with a notice for a process of `to`. `about` NULL: the notice is about no process. `data` must own its
 * bytes; the notice takes a reference instead of a copy. */
void fli_notice_fill(fli_event_node *node, filch_event_type type, const fli_runtime *to, const fli_endpoint *about,
                     uint64_t tag, filch_err error, const filch_data *data);
/* Pushes the notice to the process `serial` of `to`, or frees the notice if that process has ended. */
void fli_notice_post(fli_runtime *to, uint64_t serial, fli_event_node *node);

/* ---- names.c ---- */

filch_err fli_name_add(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_name_remove(fli_model *m, fli_runtime *rt, const char *name);
filch_err fli_name_find(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pid);
/* Writes the newest name that the process has on its own host to name[0 .. FLI_NAME_ROOM). Returns false if the process
 * has no name. Requires that HAS_RELATIONS was set for the process, so that its list exists. */
FILCH_MUST_USE bool fli_name_of(fli_model *m, const fli_endpoint *endpoint, char *name);
/* Removes the name from the table if the process with this name is on this host and has ended, but fli_ended() has not
 * removed the name yet. The caller must hold no lock. */
void fli_name_remove_ended(fli_model *m, fli_runtime *rt, const char *name);
/* The two steps of a registration: fli_name_make() allocates the table entry and the relation; fli_name_list() adds the
 * entry to its table and the relation to the list of the process, and requires the lock of the process's stripe.
 * fli_name_unmake() frees an entry and a relation that were not listed. */
filch_err fli_name_make(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint,
                        fli_relation **out);
filch_err fli_name_list(fli_model *m, fli_relation *relation);
void      fli_name_unmake(fli_model *m, fli_relation *relation);
/* Returns the bytes of the entry of a NAME relation. */
size_t fli_name_size(const fli_relation *relation);
/* Removes the entry of the name from its table, when the process ends or loses the name. Requires the lock of the
 * process's stripe, and a relation that is no longer listed. */
void fli_name_forget(fli_model *m, fli_relation *relation);

/* Removes the names that processes of other hosts have in the tables of host `rt`. Thread: the one that destroys the
 * scheduler, when no process of the host is left. */
void fli_names_fini(fli_model *m, fli_runtime *rt);

/* ---- groups.c ---- */

filch_err fli_group_shard_init(fli_group_shard *shard);
void      fli_group_shard_fini(const fli_mem *mem, fli_group_shard *shard);

filch_err fli_group_join(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_group_leave(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
filch_err fli_group_watch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint, uint64_t tag);
filch_err fli_group_unwatch(fli_model *m, fli_runtime *rt, const char *name, const fli_endpoint *endpoint);
/* Writes the pids of up to `room` living members to `pids`, in the order in which they joined. Returns the number of
 * all living members. */
size_t fli_group_members(fli_model *m, fli_runtime *rt, const char *name, filch_pid *pids, size_t room);

/* All members of a group, allocated by fli_group_list() and freed by fli_group_unlist(). */
typedef struct fli_pids {
    filch_pid *at;
    size_t     count, room;
} fli_pids;
filch_err fli_group_list(fli_model *m, fli_runtime *rt, const char *name, fli_pids *out);
void      fli_group_unlist(const fli_runtime *rt, const fli_pids *list);

/* Sends `data` to each member of the group. Stores the number of members that accepted the message in *sent. */
filch_err fli_group_broadcast(fli_model *m, fli_runtime *rt, const char *name, filch_pid from, const filch_data *data,
                              uint64_t *sent);
/* Removes a member or watcher from its group after the end of its process. Requires the lock of the process's stripe,
 * and a relation that is no longer listed. */
void fli_group_forget(fli_model *m, fli_relation *relation);
/* ---- cancel.c ---- */

filch_err fli_cancel_with(fli_model *m, fli_runtime *rt, const fli_endpoint *endpoint, filch_err reason,
                          uint64_t deadline_ns);

/* ---- context.c ---- */

/* Makes the relations of a new process for the deadline and the scopes in `values`, and enters the scopes. *out is the
 * first relation; they are linked by next[0]. *timer is the timer that will cancel the process at its deadline; 0:
 * none. */
filch_err fli_context_make(fli_model *m, const fli_endpoint *endpoint, filch_values *values, fli_relation **out,
                           uint64_t *timer);
/* Undoes fli_context_make() for a process that is not opened. */
void fli_context_undo(fli_model *m, fli_runtime *rt, fli_relation *relations);
/* Called right after the process was opened. Cancels the process if one of its scopes is cancelled, or if its deadline
 * has passed. Stops `timer` if the deadline has passed. */
void fli_context_begin(fli_endpoint *endpoint, filch_values *values, uint64_t timer);
/* Leaves the scope of a relation that is no longer listed, and frees the relation. */
void fli_context_free(fli_model *m, fli_relation *relation);

/* ---- spawn_request.c ---- */

/* Handles FILCH_CMD_SPAWN and FILCH_CMD_EXEC. */
filch_err fli_spawn_request_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

/* ---- named_message.c ---- */

/* Handles FILCH_CMD_BROADCAST and FILCH_CMD_SEND_NAME. */
filch_err fli_named_message_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

/* ---- calls.c ---- */

/* Carries out the request. Does not call the hooks of recording and simulation. */
filch_err fli_relate(fli_runtime *rt, fli_request *request);
/* The handler of the commands of src/model. */
filch_err fli_handle(fli_runtime *rt, const filch_command *command, filch_receiver receiver);

#endif
