/* paths.c - commands on paths: stat, rename, remove, directories. Each command is a job for the work pool, with its
 * paths behind it in one allocation. Only the yield refers to the job, so the end of the process does not affect it. */
#include <string.h>

#include "io/stream.h"
#include "payload/data.h"
#include "port/path.h"

#define LIST_MAX ((size_t)16 << 20)

typedef struct path_job {
    fli_job        job;
    fli_io        *io;
    filch_receiver receiver;
    uint32_t       command, flags;
    char          *path, *to; /* NULL: the request does not have this path */
    size_t         size;      /* size of the allocation: the struct and the texts behind it */
} path_job;

static void end(path_job *p, filch_err err, filch_data data)
{
    fli_op_complete(p->receiver, err, data);
    fli_free(&p->io->rt->mem, p, p->size);
}

static void complete_info(path_job *p)
{
    filch_file_info info;
    int             why = fli_path_stat(p->path, (p->flags & FILCH_STAT_LINK) != 0, &info);
    if (why == 0) end(p, FILCH_OK, filch_bytes(&info, sizeof info));
    else end(p, fli_io_error(-why), filch_int(-why));
}

static void complete_list(path_job *p)
{
    const fli_mem *mem = &p->io->rt->mem;
    char          *bytes;
    size_t         room, size;
    int            why = fli_path_list(mem, p->path, LIST_MAX, &bytes, &room, &size);
    if (why != 0) {
        end(p, fli_io_error(-why), filch_int(-why));
        return;
    }
    end(p, FILCH_OK, filch_bytes(bytes, size));
    fli_free(mem, bytes, room);
}

static void run(fli_job *job)
{
    path_job *p = FLI_OUTER(path_job, job, job);
    int       why;
    switch (p->command) {
    case FILCH_CMD_STAT: complete_info(p); return;
    case FILCH_CMD_LIST: complete_list(p); return;
    case FILCH_CMD_RENAME: why = fli_path_rename(p->path, p->to, p->flags); break;
    case FILCH_CMD_REMOVE: why = fli_path_unlink(p->path); break;
    case FILCH_CMD_MKDIR: why = fli_path_mkdir(p->path); break;
    default: why = fli_path_rmdir(p->path); break;
    }
    end(p, why == 0 ? FILCH_OK : fli_io_error(-why), why == 0 ? filch_none() : filch_int(-why));
}

static void cancel(fli_job *job)
{
    end(FLI_OUTER(path_job, job, job), FILCH_ECANCELLED, filch_none());
}

filch_err fli_paths_handle(fli_io *io, const filch_command *command, const filch_io_request *request,
                           filch_receiver receiver)
{
    size_t    to_size = request->service != NULL ? strlen(request->service) + 1 : 0;
    size_t    size = sizeof(path_job) + request->text_size + to_size;
    path_job *p = fli_alloc(&io->rt->mem, size);
    if (p == NULL) return FILCH_ENOMEM;
    char *texts = (char *)(p + 1);
    *p = (path_job){ .io = io, .receiver = receiver, .command = command->id, .flags = request->how, .size = size };
    p->job = (fli_job){ .run = run,
                        .cancel = cancel,
                        .owner = { command->from.serial, receiver.tag, command->id },
                        .key = receiver.key,
                        .lane = FLI_LANE_OPEN };
    p->path = memcpy(texts, request->text, request->text_size);
    if (to_size > 0) p->to = memcpy(texts + request->text_size, request->service, to_size);
    filch_err err = fli_workpool_submit(io->pool, &p->job);
    if (err != FILCH_OK) fli_free(&io->rt->mem, p, size);
    return err == FILCH_ECLOSED ? FILCH_ECANCELLED : err;
}
