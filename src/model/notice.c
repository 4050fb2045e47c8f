/* notice.c - notices: events that the model sends to a process. Their nodes were reserved when the relation was made,
 * so that a notice never fails for lack of memory. See mailbox.h for their order among other events. */
#include "base/assert.h"
#include "model/model.h"
#include "payload/data.h"
#include "proc/mailbox.h"
#include "proc/runtime.h"

void fli_notice_fill(fli_event_node *node, filch_event_type type, const fli_runtime *to, const fli_endpoint *about,
                     uint64_t tag, filch_err error, const filch_data *data)
{
    filch_data shared = filch_none();
    if (data != NULL) {
        /* Cannot fail: `data` owns its bytes (a value, inline bytes, or a counted block), and sharing such a payload
         * needs no memory. */
        filch_err err = fli_data_own(&to->mem, 0, data, &shared);
        FLI_ASSERT(err == FILCH_OK);
    }
    node->what = FLI_NODE_SYSTEM;
    node->notice = (uint32_t)type;
    if (about != NULL && about->rt != to) node->notice |= (about->host + 1) << FLI_NOTICE_HOST;
    node->about = about != NULL ? about->serial : 0;
    node->tag = tag;
    node->error = error;
    fli_node_put_data(node, &shared);
}

void fli_notice_post(fli_runtime *to, uint64_t serial, fli_event_node *node)
{
    fli_local *worker = fli_current_worker(to);
    fli_proc  *p = fli_proc_find(to, serial);
    FLI_ASSERT(p != NULL); /* the process was alive when the relation was made, and slots are never unmapped */
    if (fli_mail_post(to, worker, p, fli_serial_gen(serial), node) == FILCH_OK) return;
    filch_data data = { .kind = FILCH_KIND_NONE };
    fli_node_get_data(node, &data);
    fli_data_free(&data);
    fli_node_give(to, worker, node);
}
