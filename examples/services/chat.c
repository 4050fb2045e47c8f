/* chat.c - a chat room for lines of text. Use it with: nc 127.0.0.1 PORT
 *
 *     room      one process with the name "room": has the list of guests and their names, admits guests, and announces
 *               when a guest joins or leaves.
 *     guest     one process per connection: asks for a name, sends the typed lines to all guests, and shows the lines
 *               of others.
 *
 * Lines go to all members of a group (filch_broadcast): one copy, however many members read it. A guest with a slow
 * client waits in its write. Meanwhile lines stay in its mailbox; when the mailbox is full, its oldest lines are
 * dropped. Other guests are not affected, and the slow client gets a line with the number of missed lines.
 *
 * A line has to arrive within service_may.request_ns of its first byte, and a client has to read within
 * service_may.write_ns; otherwise the client is disconnected. A client that sends nothing stays for as long as it
 * likes, because guests of a chat may only listen; --connections bounds their number.
 *
 * The room and its guests are linked. A guest that fails (/crash) leaves like any other guest, because the room traps
 * links. If the room fails, its guests end, because their names are lost with it; the supervisor restarts the room.
 */
#include <ctype.h>
#include <filch_await.h>
#include <stdio.h>

#include "service.h"

#define NAME_MAX_BYTES 24
#define LINE_MAX_BYTES 1024
#define GUESTS_MAX 10000
#define ROOM "room"     /* name of the room's process */
#define PEOPLE "people" /* name of the group of all guests */

/* ---- room ---- */

typedef struct entry {
    filch_pid pid;
    char      name[NAME_MAX_BYTES + 1];
} entry;

struct room {
    entry *entries;
    size_t count, size;
};

static void room_close(void *self)
{
    free(((struct room *)self)->entries);
}

static bool name_is_taken(const struct room *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->entries[i].name, name) == 0) return true;
    }
    return false;
}

static entry *new_entry(struct room *r)
{
    if (r->count == r->size) {
        size_t size = r->size == 0 ? 16 : r->size * 2;
        entry *more = realloc(r->entries, size * sizeof *more);
        if (more == NULL) return NULL;
        r->entries = more;
        r->size = size;
    }
    return &r->entries[r->count];
}

/* Sends an announcement to all guests. Ignores FILCH_ENOMEM: an announcement may be lost, but the list of guests must
 * stay correct. */
static void announce(filch_sched *sched, const char *name, const char *what)
{
    char line[NAME_MAX_BYTES + 32];
    int  n = snprintf(line, sizeof line, "* %s %s\n", name, what);
    (void)!filch_broadcast(sched, PEOPLE, filch_bytes(line, (size_t)n), NULL);
}

/* Enters `pid` into the list under `name`. Returns FILCH_EEXISTS if another guest has that name. */
static filch_err add_entry(struct room *r, filch_out *out, filch_pid pid, const char *name)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    if (name_is_taken(r, name)) return FILCH_EEXISTS;
    if (r->count == GUESTS_MAX) return FILCH_ELIMIT;
    entry *s = new_entry(r);
    if (s == NULL) return FILCH_ENOMEM;
    /* if the guest has already ended, the room gets its EXIT event at once */
    filch_err err = filch_monitor(sched, filch_ctx_self(ctx), pid, 0, NULL);
    if (err == FILCH_OK) err = filch_link(sched, filch_ctx_self(ctx), pid);
    if (err != FILCH_OK) return err;
    s->pid = pid;
    snprintf(s->name, sizeof s->name, "%s", name);
    r->count++;
    return FILCH_OK;
}

static void admit(struct room *r, filch_out *out, filch_pid pid, const char *name)
{
    filch_sched *sched = filch_out_sched(out);
    filch_err    entered = add_entry(r, out, pid, name);
    /* The guest gets the answer to its name before lines of other guests. The guest joins the group after the
     * announcement, so that it does not get the line about its own arrival. */
    filch_err err = filch_send(sched, pid, filch_int(entered));
    if (err == FILCH_OK && entered == FILCH_OK) announce(sched, name, "has joined");
    if (err == FILCH_OK && entered == FILCH_OK) err = filch_join(sched, PEOPLE, pid);
    /* If the answer could not be sent or the guest could not join, terminates the guest, which would otherwise wait for
     * ever. FILCH_EDEAD: the guest has ended, and its EXIT event will arrive. */
    if (err != FILCH_OK && err != FILCH_EDEAD) (void)!filch_terminate(sched, pid);
}

static void see_off(struct room *r, filch_sched *sched, filch_pid pid)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->entries[i].pid.serial != pid.serial) continue;
        announce(sched, r->entries[i].name, "has left");
        r->entries[i] = r->entries[--r->count];
        return;
    }
}

/* This step is written without filch_await: it handles its events one after the other. */
static filch_err room_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct room *r = self;
    filch_sched *sched = filch_out_sched(out);
    filch_err    err = filch_trap_links(out, 1);
    for (size_t i = 0; i < count && err == FILCH_OK; i++) {
        const filch_event *e = &events[i];
        if (e->type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (e->type == FILCH_EVENT_EXIT) see_off(r, sched, e->from);
        if (e->type == FILCH_EVENT_MESSAGE) admit(r, out, e->from, filch_text(&e->data));
    }
    return err == FILCH_OK ? filch_idle(out) : err;
}

static const filch_type room = { .name = "room", .size = sizeof(struct room), .step = room_step, .close = room_close };

/* ---- guest ---- */

struct guest {
    filch_await  at;
    filch_stream stream;
    char         first; /* first byte of the line that is being read; '\0': no line has begun */
    char         name[NAME_MAX_BYTES + 1];
};

/* Copies the line that has been read, g->first and then `rest`, to `to` without its newline. After that no line has
 * begun. */
static void take_line(struct guest *g, const filch_data *rest, char *to, size_t room_for)
{
    size_t size = filch_size(rest);
    if (size > room_for - 2) size = room_for - 2;
    to[0] = g->first;
    if (size > 0) memcpy(to + 1, filch_raw(rest), size);
    size++;
    while (size > 0 && (to[size - 1] == '\n' || to[size - 1] == '\r')) size--;
    to[size] = '\0';
    g->first = '\0';
}

static bool is_name(const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_') return false;
    }
    return size > 0;
}

/* Handles a typed line. Returns FILCH_EEND if the guest leaves. Lines are shown unchanged, except for characters that
 * could move the cursor. */
static filch_err typed(struct guest *g, filch_sched *sched, const filch_data *rest)
{
    char line[LINE_MAX_BYTES + 1], shown[LINE_MAX_BYTES + NAME_MAX_BYTES + 8];
    take_line(g, rest, line, sizeof line);
    if (line[0] == '\0') return FILCH_OK;
    if (strcmp(line, "/quit") == 0) return FILCH_EEND;
    if (strcmp(line, "/crash") == 0) return FILCH_EUSER;
    for (char *at = line; *at != '\0'; at++) {
        if (iscntrl((unsigned char)*at)) *at = ' ';
    }
    int       n = snprintf(shown, sizeof shown, "%s: %s\n", g->name, line);
    filch_err err = filch_broadcast(sched, PEOPLE, filch_bytes(shown, (size_t)n), NULL);
    return err == FILCH_ENOMEM ? FILCH_OK : err; /* without memory the line is lost, but the guest stays connected */
}

/* A line is read by two reads, because only a line that has begun has a deadline: one read waits for its first byte,
 * the other one for the rest. */
static filch_err read_line(struct guest *g, filch_out *out, uint64_t tag, size_t most)
{
    if (g->first == '\0') return filch_yield_read_exactly(out, tag, g->stream, 1, FILCH_FOREVER);
    return filch_yield_read_until(out, tag, g->stream, "\n", 1, most - 1, service_may.request_ns);
}

/* Handles the result of a read. Returns true if the line is complete: the caller then gets it with take_line(). */
static bool has_line(struct guest *g, const filch_data *data)
{
    if (g->first != '\0') return true;
    g->first = *(const char *)filch_raw(data);
    /* A zero byte cannot begin a line, since '\0' means that no line has begun; a space has the same effect. */
    if (g->first == '\0') g->first = ' ';
    return g->first == '\n';
}

static filch_err write_text(struct guest *g, filch_out *out, const char *text)
{
    return filch_yield_write(out, g->at.tag, g->stream, filch_str(text), service_may.write_ns);
}

static filch_err write_missed(struct guest *g, filch_out *out, int64_t lines)
{
    char text[64];
    snprintf(text, sizeof text, "* you missed %lld lines\n", (long long)lines);
    return write_text(g, out, text);
}

static filch_err guest_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    enum { LINE = 1 };
    struct guest *g = self;
    filch_await  *at = &g->at;
    filch_sched  *sched = filch_out_sched(out);
    filch_pid     me = filch_ctx_self(filch_out_ctx(out));
    filch_err     err = FILCH_OK;
    FILCH_BEGIN(at, events, count, out);
    FILCH_AWAIT_MESSAGE(at);
    err = filch_stream_take(out, at->data, &g->stream);
    if (err != FILCH_OK) return err;

    for (;;) { /* repeats until the guest has a free name */
        FILCH_AWAIT(at, write_text(g, out, "* what is your name?\n"));
        if (at->error != FILCH_OK) return filch_done(out, filch_none());
        do {
            FILCH_AWAIT(at, read_line(g, out, at->tag, NAME_MAX_BYTES + 2));
        } while (at->error == FILCH_OK && !has_line(g, at->data));
        if (at->error == FILCH_ETOOBIG) {
            FILCH_AWAIT(at, write_text(g, out, "* a name has at most 24 letters; goodbye\n"));
            return filch_done(out, filch_none());
        }
        if (at->error != FILCH_OK) return filch_done(out, filch_none());
        take_line(g, g->first != '\n' ? at->data : NULL, g->name, sizeof g->name);
        if (!is_name(g->name)) {
            FILCH_AWAIT(at, write_text(g, out, "* a name has only letters, digits, - and _\n"));
            continue;
        }
        err = filch_send_name(sched, ROOM, filch_str(g->name));
        if (err != FILCH_OK) return err;
        FILCH_AWAIT_MESSAGE(at);
        if (filch_as_int(at->data) == FILCH_OK) break;
        FILCH_AWAIT(at, write_text(g, out,
                                   filch_as_int(at->data) == FILCH_EEXISTS ? "* that name is taken\n"
                                                                           : "* the room is full\n"));
    }

    FILCH_AWAIT(at, write_text(g, out, "* welcome; /quit leaves\n"));
    if (at->error != FILCH_OK) return filch_done(out, filch_none());
    err = read_line(g, out, LINE, LINE_MAX_BYTES);
    while (err == FILCH_OK) {
        FILCH_AWAIT_EVENT(at);
        /* a completed read: the guest has begun a line, or typed all of it */
        if (at->event->type == FILCH_EVENT_YIELD && at->event->tag == LINE) {
            if (at->error != FILCH_OK) err = FILCH_EEND;
            else if (has_line(g, at->data)) err = typed(g, sched, g->first != '\n' ? at->data : NULL);
            if (err == FILCH_OK) err = read_line(g, out, LINE, LINE_MAX_BYTES);
        } else if (at->event->type == FILCH_EVENT_MESSAGE && at->event->from.serial != me.serial) {
            FILCH_AWAIT(at, filch_yield_write(out, at->tag, g->stream, *at->data, service_may.write_ns));
            if (at->error != FILCH_OK) err = FILCH_EEND;
        } else if (at->event->type == FILCH_EVENT_DROPPED) {
            FILCH_AWAIT(at, write_missed(g, out, filch_as_int(at->data)));
            if (at->error != FILCH_OK) err = FILCH_EEND;
        }
    }
    return err == FILCH_EEND ? filch_done(out, filch_none()) : err;
    FILCH_END(at);
}

static const filch_type guest = {
    .name = "guest", .size = sizeof(struct guest), .step = guest_step, .close = filch_await_close
};

int main(int argc, char **argv)
{
    static const filch_spawn_options as_room = { .size = sizeof as_room, .name = ROOM };
    static const filch_spawn_options as_guest = { .size = sizeof as_guest,
                                                  .mailbox_max = 256,
                                                  .overflow = FILCH_OVERFLOW_DROP_OLDEST };
    static const filch_child         children[] = { { .id = "room", .type = &room, .options = &as_room } };
    static const service             chat = {
                    .name = "chat", .connection = &guest, .connection_options = &as_guest, .children = children, .child_count = 1
    };
    return service_run(&chat, argc, argv);
}
