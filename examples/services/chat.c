/* chat.c - a chat room for lines of text: nc 127.0.0.1 PORT.
 *
 *     room      one process, named "room": the list of guests and names. Admits guests, announces arrivals and ends.
 *     guest     one process per connection: asks for a name, sends what is typed to all, shows what others say.
 *
 * Lines go to all members of a group (filch_broadcast): one copy, however many read it. A guest with a slow client
 * waits in its write; lines meanwhile stay in its mailbox, whose oldest lines are dropped when it is full. The others
 * are not affected, and the slow client gets a line with the number of missed lines.
 *
 * The room and its guests are linked. A guest that fails (/crash) leaves like any other: the room traps links. A room
 * that fails ends its guests, because their names are lost with it; the supervisor restarts it.
 */
#include <ctype.h>
#include <filch_await.h>
#include <stdio.h>

#include "service.h"

#define NAME_MAX_BYTES 24
#define LINE_MAX_BYTES 1024
#define GUESTS_MAX 10000
#define ROOM "room"       /* the process */
#define PEOPLE "people"   /* the group */
#define WRITE_NS FILCH_SECONDS(30) /* a client that reads nothing for this long is disconnected */

/* ---- room ---- */

typedef struct seat {
    filch_pid pid;
    char      name[NAME_MAX_BYTES + 1];
} seat;

struct room {
    seat  *seats;
    size_t count, size;
};

static void room_close(void *self)
{
    free(((struct room *)self)->seats);
}

static bool name_is_taken(const struct room *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->seats[i].name, name) == 0) return true;
    }
    return false;
}

static seat *take_seat(struct room *r)
{
    if (r->count == r->size) {
        size_t size = r->size == 0 ? 16 : r->size * 2;
        seat  *more = realloc(r->seats, size * sizeof *more);
        if (more == NULL) return NULL;
        r->seats = more;
        r->size = size;
    }
    return &r->seats[r->count];
}

/* Without memory there is no announcement. The room continues: its list matters more. */
static void announce(filch_sched *sched, const char *name, const char *what)
{
    char line[NAME_MAX_BYTES + 32];
    int  n = snprintf(line, sizeof line, "* %s %s\n", name, what);
    (void)!filch_broadcast(sched, PEOPLE, filch_bytes(line, (size_t)n), NULL);
}

/* Gives `pid` a place under `name`. Returns FILCH_EEXISTS if another guest has that name. */
static filch_err seat_for(struct room *r, filch_out *out, filch_pid pid, const char *name)
{
    const filch_ctx *ctx = filch_out_ctx(out);
    filch_sched     *sched = filch_ctx_sched(ctx);
    if (name_is_taken(r, name)) return FILCH_EEXISTS;
    if (r->count == GUESTS_MAX) return FILCH_ELIMIT;
    seat *s = take_seat(r);
    if (s == NULL) return FILCH_ENOMEM;
    filch_err err = filch_monitor(sched, filch_ctx_self(ctx), pid, 0, NULL); /* if it has ended, the EXIT comes at
                                                                              * once */
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
    filch_err    seated = seat_for(r, out, pid, name);
    /* The answer comes before lines of others, and joining after the announcement: a guest does not get its own
     * arrival. */
    filch_err err = filch_send(sched, pid, filch_int(seated));
    if (err == FILCH_OK && seated == FILCH_OK) announce(sched, name, "has joined");
    if (err == FILCH_OK && seated == FILCH_OK) err = filch_join(sched, PEOPLE, pid);
    /* A guest that cannot get its answer or any lines is ended: it would wait for ever. FILCH_EDEAD: its EXIT is on the
     * way. */
    if (err != FILCH_OK && err != FILCH_EDEAD) (void)!filch_terminate(sched, pid);
}

static void see_off(struct room *r, filch_sched *sched, filch_pid pid)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->seats[i].pid.serial != pid.serial) continue;
        announce(sched, r->seats[i].name, "has left");
        r->seats[i] = r->seats[--r->count];
        return;
    }
}

/* A plain step: it only handles events, one after the other. */
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
    char         name[NAME_MAX_BYTES + 1];
};

/* Copies a line without its newline. */
static void cut_line(const filch_data *data, char *to, size_t room_for)
{
    const char *from = filch_raw(data);
    size_t      size = filch_size(data);
    while (size > 0 && (from[size - 1] == '\n' || from[size - 1] == '\r')) size--;
    if (size >= room_for) size = room_for - 1;
    if (size > 0) memcpy(to, from, size);
    to[size] = '\0';
}

static bool is_name(const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_') return false;
    }
    return size > 0;
}

/* Handles a typed line. Returns FILCH_EEND to leave. Lines are shown unchanged, except for characters that could move
 * the cursor. */
static filch_err typed(struct guest *g, filch_sched *sched, const filch_data *data)
{
    char line[LINE_MAX_BYTES + 1], shown[LINE_MAX_BYTES + NAME_MAX_BYTES + 8];
    cut_line(data, line, sizeof line);
    if (line[0] == '\0') return FILCH_OK;
    if (strcmp(line, "/quit") == 0) return FILCH_EEND;
    if (strcmp(line, "/crash") == 0) return FILCH_EUSER;
    for (char *at = line; *at != '\0'; at++) {
        if (iscntrl((unsigned char)*at)) *at = ' ';
    }
    int n = snprintf(shown, sizeof shown, "%s: %s\n", g->name, line);
    filch_err err = filch_broadcast(sched, PEOPLE, filch_bytes(shown, (size_t)n), NULL);
    return err == FILCH_ENOMEM ? FILCH_OK : err; /* the line is lost, the guest stays */
}

static filch_err read_line(struct guest *g, filch_out *out, uint64_t tag, size_t most)
{
    return filch_yield_read_until(out, tag, g->stream, "\n", 1, most, FILCH_FOREVER);
}

static filch_err write_text(struct guest *g, filch_out *out, const char *text)
{
    return filch_yield_write(out, g->at.tag, g->stream, filch_str(text), WRITE_NS);
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

    for (;;) { /* a name */
        FILCH_AWAIT(at, write_text(g, out, "* what is your name?\n"));
        if (at->error != FILCH_OK) return filch_done(out, filch_none());
        FILCH_AWAIT(at, read_line(g, out, at->tag, NAME_MAX_BYTES + 2));
        if (at->error == FILCH_ETOOBIG) {
            FILCH_AWAIT(at, write_text(g, out, "* a name has at most 24 letters; goodbye\n"));
            return filch_done(out, filch_none());
        }
        if (at->error != FILCH_OK) return filch_done(out, filch_none());
        cut_line(at->data, g->name, sizeof g->name);
        if (!is_name(g->name)) {
            FILCH_AWAIT(at, write_text(g, out, "* letters, digits, - and _, please\n"));
            continue;
        }
        err = filch_send_name(sched, ROOM, filch_str(g->name));
        if (err != FILCH_OK) return err;
        FILCH_AWAIT_MESSAGE(at);
        if (filch_as_int(at->data) == FILCH_OK) break;
        FILCH_AWAIT(at, write_text(g, out, filch_as_int(at->data) == FILCH_EEXISTS ? "* that name is taken\n"
                                                                                   : "* the room is full\n"));
    }

    FILCH_AWAIT(at, write_text(g, out, "* welcome; /quit leaves\n"));
    if (at->error != FILCH_OK) return filch_done(out, filch_none());
    err = read_line(g, out, LINE, LINE_MAX_BYTES);
    while (err == FILCH_OK) {
        FILCH_AWAIT_EVENT(at);
        if (at->event->type == FILCH_EVENT_YIELD && at->event->tag == LINE) { /* something was typed */
            err = at->error == FILCH_OK ? typed(g, sched, at->data) : FILCH_EEND;
            if (err == FILCH_OK) err = read_line(g, out, LINE, LINE_MAX_BYTES);
        } else if (at->event->type == FILCH_EVENT_MESSAGE && at->event->from.serial != me.serial) {
            FILCH_AWAIT(at, filch_yield_write(out, at->tag, g->stream, *at->data, WRITE_NS));
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
    static const filch_spawn_options as_guest = {
        .size = sizeof as_guest, .mailbox_max = 256, .overflow = FILCH_OVERFLOW_DROP_OLDEST
    };
    static const filch_child children[] = { { .id = "room", .type = &room, .options = &as_room } };
    static const service     chat = {
            .name = "chat", .connection = &guest, .connection_options = &as_guest, .children = children, .child_count = 1
    };
    return service_run(&chat, argc, argv);
}
