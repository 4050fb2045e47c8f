/* answer.c - see answer.h. Uses only the public header filch.h. */
#include "supervise/answer.h"

#include <string.h>

typedef struct answer {
    filch_memory       memory;
    filch_child_answer says;
} answer;

static void answer_free(void *user, void *bytes, size_t size)
{
    answer      *a = bytes;
    filch_memory memory = a->memory;
    (void)user;
    (void)memory.alloc(memory.user, a, size, 0);
}

filch_err fli_answer_make(filch_memory memory, uint64_t tag, filch_data *out)
{
    answer *a = memory.alloc(memory.user, NULL, 0, sizeof *a);
    if (a == NULL) return FILCH_ENOMEM;
    memset(a, 0, sizeof *a);
    a->memory = memory;
    a->says.tag = tag;
    filch_err err = filch_share(a, sizeof *a, answer_free, a, out);
    if (err != FILCH_OK) (void)memory.alloc(memory.user, a, sizeof *a, 0);
    return err;
}

void fli_answer_fill(const filch_data *data, filch_pid pid, filch_err error)
{
    answer *a = filch_shared_user(data, answer_free);
    a->says.pid = pid;
    a->says.error = error;
}

int filch_child_answered(const filch_data *data, filch_child_answer *out)
{
    const answer *a = data != NULL ? filch_shared_user(data, answer_free) : NULL;
    if (a == NULL || out == NULL) return 0;
    *out = a->says;
    return 1;
}
