/* answer.c - see answer.h. Uses only the public header filch.h and atomic operations. */
#include "supervise/answer.h"

#include <string.h>

#include "port/atomic.h"

enum { EMPTY, WRITING, WRITTEN };

typedef struct answer {
    filch_memory memory;
    /* Whether `says` and `list` have been written. The thread that changes EMPTY to WRITING is the only one that writes
     * them. That thread stores WRITTEN with release. A thread that loads WRITTEN with acquire may read and send the
     * answer. */
    FLI_ATOMIC(int)    state;
    filch_child_answer says;
    filch_child_info  *list; /* the list of children to which says.children points; NULL: the answer has no list */
} answer;

static void answer_free(void *user, void *bytes, size_t size)
{
    answer      *a = bytes;
    filch_memory memory = a->memory;
    (void)user;
    if (a->list != NULL) (void)memory.alloc(memory.user, a->list, a->says.child_count * sizeof *a->list, 0);
    (void)memory.alloc(memory.user, a, size, 0);
}

filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out)
{
    answer *a = memory.alloc(memory.user, NULL, 0, sizeof *a);
    if (a == NULL) return FILCH_ENOMEM;
    memset(a, 0, sizeof *a);
    a->memory = memory;
    fli_atomic_init(&a->state, EMPTY);
    a->says.tag = tag;
    filch_err err = filch_share(a, sizeof *a, answer_free, a, out);
    if (err != FILCH_OK) (void)memory.alloc(memory.user, a, sizeof *a, 0);
    return err;
}

filch_child_info *fli_answer_list(const filch_data *data, size_t count)
{
    const answer     *a = filch_shared_user(data, answer_free);
    filch_child_info *list = a->memory.alloc(a->memory.user, NULL, 0, count * sizeof *list);
    if (list != NULL) memset(list, 0, count * sizeof *list);
    return list;
}

bool fli_answer_fill(const filch_data *data, filch_pid pid, filch_err error, filch_child_info *list, size_t count)
{
    answer *a = filch_shared_user(data, answer_free);
    int     state = EMPTY;
    if (!fli_cas_acqrel_acq(&a->state, &state, WRITING)) {
        if (list != NULL) (void)a->memory.alloc(a->memory.user, list, count * sizeof *list, 0);
        return state == WRITTEN;
    }
    a->says.pid = pid;
    a->says.error = error;
    a->says.children = a->list = list;
    a->says.child_count = list != NULL ? count : 0;
    fli_store_rel(&a->state, WRITTEN);
    return true;
}

int filch_child_answered(const filch_data *data, filch_child_answer *out)
{
    const answer *a = data != NULL ? filch_shared_user(data, answer_free) : NULL;
    if (a == NULL || out == NULL) return 0;
    *out = a->says;
    return 1;
}
