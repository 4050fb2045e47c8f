/* curl_stress.c - a library that owns its descriptors, driven by processes: libcurl's multi interface over
 * filch_yield_poll.
 *
 *     curl_stress TRANSFERS
 *
 * Each process runs many transfers at once: libcurl reports which sockets it waits for and when it wants to be called
 * (socket function, timer function), and the process polls and sleeps for it. Every second transfer is cancelled after
 * a few steps, in any state; the server sends an incomplete answer or no answer for a transfer that will be cancelled.
 * The server, which has a thread for each connection, resets some other transfers in the middle. TRANSFERS is divided
 * among schedulers with 0 workers (this thread ticks), 1 and 2 workers.
 *
 * Checked: each transfer ends in the way that its number determines, with every byte; at the end the program has as
 * many descriptors as before, and the scheduler has freed all memory.
 *
 * Exit: 0 no error found; 1 something was lost, mixed up or left open; 2 wrong usage, or the runtime failed.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filch.h>

#include "port/atomic.h"
#include "port/clock.h"
#include "support/alloc.h"
#include "support/descriptors.h"
#include "support/stress.h"
#include "support/yield_slice.h"

enum { DRIVERS = 6, PARALLEL = 12, SOCKETS = 4096, BODY_MAX = 60000 };

typedef struct game {
    filch_sched         *sched;
    uint64_t             transfers;
    uint16_t             port;
    FLI_ATOMIC(uint64_t) next, ended, cancelled, reset, polls, wrong, connections, drivers;
} game;

static game       g;
static test_alloc alloc;

static void wrong(const char *what, uint64_t a, uint64_t b)
{
    fprintf(stderr, "\ncurl_stress: %s (%" PRIu64 ", %" PRIu64 ")\n", what, a, b);
    fli_add_rlx(&g.wrong, 1);
}

/* The functions below decide from the number `n` of a transfer how the transfer ends. */
static bool is_cancelled(uint64_t n)
{
    return n % 2 == 1;
}
static bool is_never_answered(uint64_t n)
{
    return n % 10 == 1;
}
static bool is_reset(uint64_t n)
{
    return n % 10 == 2;
}
static size_t body_size(uint64_t n)
{
    return (size_t)(n * 7919 % BODY_MAX) + 2;
}

/* ---- server: one thread for each connection ---- */

static bool send_all(int fd, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, bytes + done, size - done, MSG_NOSIGNAL);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static void answer(int fd, uint64_t n)
{
    char   head[128];
    size_t size = body_size(n), part = is_reset(n) || is_cancelled(n) ? size / 2 : size;
    char  *body = malloc(size);
    if (body == NULL) return;
    memset(body, (int)('a' + n % 26), size);
    int length =
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", size);
    bool all = send_all(fd, head, (size_t)length) && send_all(fd, body, part / 2);
    if (all) yield_slice();
    if (all) (void)send_all(fd, body + part / 2, part - part / 2);
    free(body);
}

static void *serve(void *arg)
{
    int    fd = (int)(intptr_t)arg;
    char   request[2048] = "";
    size_t used = 0;
    while (used < sizeof request - 1 && strstr(request, "\r\n\r\n") == NULL) {
        ssize_t n = recv(fd, request + used, sizeof request - 1 - used, 0);
        if (n <= 0) break;
        used += (size_t)n;
        request[used] = '\0';
    }
    /* the path of the request is /N, where N is the number of the transfer */
    uint64_t n = strtoull(used > 5 ? request + 5 : "1", NULL, 10);
    if (strstr(request, "\r\n\r\n") != NULL && !is_never_answered(n)) answer(fd, n);
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    if (is_reset(n)) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    else
        while (recv(fd, request, sizeof request, 0) > 0) {} /* reads until the client has closed the connection */
    (void)close(fd);
    fli_add_rel(&g.connections, -1);
    return NULL;
}

static void *listen_on(void *arg)
{
    int            listener = *(int *)arg;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 262144);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t one;
        fli_add_rel(&g.connections, 1);
        if (pthread_create(&one, &detached, serve, (void *)(intptr_t)fd) != 0) {
            fli_add_rel(&g.connections, -1);
            (void)close(fd);
        }
    }
    pthread_attr_destroy(&detached);
    return NULL;
}

static int listen_somewhere(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t          size = sizeof at;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool               good = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 512) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &size) == 0;
    stress_must("listen", good ? FILCH_OK : FILCH_ESYS);
    g.port = ntohs(at.sin_port);
    return fd;
}

/* ---- driver: a process that runs transfers of libcurl ---- */

typedef struct transfer {
    CURL    *easy; /* NULL: no transfer */
    uint64_t n, steps;
    size_t   bytes;
    bool     mixed; /* true: the transfer received a byte of another transfer */
} transfer;

typedef struct watched {
    uint32_t events; /* the poll events that libcurl waits for at this descriptor; 0: none */
    uint32_t turn;   /* number of the newest poll of this descriptor: completions of older polls are ignored */
    bool     out, listed;
} watched;

typedef struct driver {
    CURLM   *multi;
    transfer transfers[PARALLEL];
    watched *sockets;
    int     *changed; /* list of the descriptors with changed `events` */
    uint32_t changed_count;
    uint64_t timer_turn;
    long     timer_ms; /* timeout that libcurl has requested; -1: none */
    bool     timer_is_new;
    bool     through;
} driver;

enum { TAG_POLL, TAG_TIMER, TAG_TICK, TAG_CANCEL };

static void list_socket(driver *d, int fd)
{
    if (d->sockets[fd].listed) return;
    d->sockets[fd].listed = true;
    d->changed[d->changed_count++] = fd;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *unused)
{
    driver *d = user;
    (void)easy, (void)unused;
    if (fd < 0 || fd >= SOCKETS) return -1;
    d->sockets[fd].events = what == CURL_POLL_IN      ? FILCH_POLL_IN
                            : what == CURL_POLL_OUT   ? FILCH_POLL_OUT
                            : what == CURL_POLL_INOUT ? FILCH_POLL_IN | FILCH_POLL_OUT
                                                      : 0;
    list_socket(d, fd);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
    driver *d = user;
    (void)multi;
    d->timer_ms = ms;
    d->timer_is_new = true;
    return 0;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *user)
{
    transfer *t = user;
    for (size_t i = 0; i < size * count; i++) t->mixed |= bytes[i] != (char)('a' + t->n % 26);
    t->bytes += size * count;
    return size * count;
}

static void begin(driver *d, transfer *t)
{
    uint64_t n = fli_add_rlx(&g.next, 1);
    char     url[64];
    *t = (transfer){ .easy = NULL };
    if (n >= g.transfers) return;
    *t = (transfer){ .easy = curl_easy_init(), .n = n };
    snprintf(url, sizeof url, "http://127.0.0.1:%u/%" PRIu64, g.port, n);
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(t->easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    if (curl_multi_add_handle(d->multi, t->easy) != CURLM_OK) wrong("a transfer cannot begin", n, 0);
}

static void end(driver *d, transfer *t)
{
    curl_multi_remove_handle(d->multi, t->easy);
    curl_easy_cleanup(t->easy);
    fli_add_rlx(&g.ended, 1);
    begin(d, t);
}

static void judge(const transfer *t, CURLcode result)
{
    if (t->mixed) wrong("bytes of another transfer", t->n, t->bytes);
    if (is_cancelled(t->n)) wrong("a cancelled transfer was answered", t->n, result);
    if (is_reset(t->n)) {
        fli_add_rlx(&g.reset, 1);
        if (result == CURLE_OK) wrong("a reset transfer is whole", t->n, t->bytes);
    } else if (result != CURLE_OK || t->bytes != body_size(t->n)) {
        wrong("a transfer is not whole", t->n, t->bytes);
    }
}

static void end_some(driver *d)
{
    int left;
    for (CURLMsg *said; (said = curl_multi_info_read(d->multi, &left)) != NULL;) {
        transfer *t = NULL;
        CURLcode  result = said->data.result;
        if (said->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(said->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        judge(t, result);
        end(d, t);
    }
    for (int i = 0; i < PARALLEL; i++) {
        transfer *t = &d->transfers[i];
        if (t->easy == NULL || !is_cancelled(t->n) || t->steps++ < t->n % 7) continue;
        fli_add_rlx(&g.cancelled, 1);
        end(d, t);
    }
}

static uint64_t tag_of(int kind, uint64_t number)
{
    return number << 2 | (uint64_t)kind;
}

/* Yields what libcurl has requested since the last step: for each descriptor in `changed`, a cancel of its outstanding
 * poll and a new poll; for a new timeout, a sleep. */
static filch_err make_yields(driver *d, filch_out *out)
{
    filch_err err = FILCH_OK;
    for (uint32_t i = 0; i < d->changed_count; i++) {
        int      fd = d->changed[i];
        watched *s = &d->sockets[fd];
        s->listed = false;
        if (s->out) err |= filch_yield_poll_cancel(out, tag_of(TAG_CANCEL, 0), fd);
        s->out = s->events != 0;
        s->turn++;
        uint64_t number = (uint64_t)s->turn << 16 | (uint64_t)fd;
        if (s->out) err |= filch_yield_poll(out, tag_of(TAG_POLL, number), fd, s->events, FILCH_SECONDS(100));
        if (s->out) fli_add_rlx(&g.polls, 1);
    }
    d->changed_count = 0;
    if (d->timer_is_new && d->timer_ms >= 0) {
        uint64_t delay_ns = FILCH_MILLISECONDS((uint64_t)d->timer_ms);
        err |= filch_yield_sleep(out, tag_of(TAG_TIMER, ++d->timer_turn), delay_ns);
    }
    /* libcurl has removed its timeout: a new turn makes the driver ignore the completion of the outstanding sleep */
    if (d->timer_is_new && d->timer_ms < 0) d->timer_turn++;
    d->timer_is_new = false;
    return err;
}

static void read_poll(driver *d, const filch_event *event)
{
    int      fd = (int)(event->tag >> 2 & 0xffff), running, ready = (int)filch_as_int(&event->data);
    watched *s = &d->sockets[fd];
    /* ignores the completion of a poll that was cancelled, or that completed while it was being cancelled */
    if (s->turn != (uint32_t)(event->tag >> 18)) return;
    s->out = false;
    if (event->error != FILCH_OK) {
        wrong("a poll fails", (uint64_t)event->error, (uint64_t)fd);
        return;
    }
    int mask = ((ready & FILCH_POLL_IN) != 0 ? CURL_CSELECT_IN : 0) |
               ((ready & FILCH_POLL_OUT) != 0 ? CURL_CSELECT_OUT : 0) |
               ((ready & (FILCH_POLL_ERROR | FILCH_POLL_HANGUP)) != 0 ? CURL_CSELECT_ERR : 0);
    list_socket(d, fd); /* lists the descriptor again, because libcurl may still want events of it */
    curl_multi_socket_action(d->multi, fd, mask, &running);
}

static filch_err driver_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    driver *d = self;
    int     running;
    if (count == 0) {
        for (int i = 0; i < PARALLEL; i++) begin(d, &d->transfers[i]);
        if (filch_yield_sleep(out, tag_of(TAG_TICK, 0), FILCH_MILLISECONDS(1)) != FILCH_OK) return FILCH_EUSER;
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_YIELD) continue;
        switch (events[i].tag & 3) {
        case TAG_POLL: read_poll(d, &events[i]); break;
        case TAG_TIMER:
            if (events[i].tag >> 2 == d->timer_turn) {
                curl_multi_socket_action(d->multi, CURL_SOCKET_TIMEOUT, 0, &running);
            }
            break;
        /* a sleep that is made again each time it ends, so that transfers without events are cancelled too */
        case TAG_TICK:
            if (filch_yield_sleep(out, tag_of(TAG_TICK, 0), FILCH_MILLISECONDS(1)) != FILCH_OK) return FILCH_EUSER;
            break;
        default: break;
        }
    }
    end_some(d);
    bool any = false;
    for (int i = 0; i < PARALLEL; i++) any |= d->transfers[i].easy != NULL;
    if (!any) return filch_done(out, filch_none());
    return make_yields(d, out) == FILCH_OK ? filch_idle(out) : FILCH_EUSER;
}

static filch_err driver_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    driver *d = self;
    (void)ctx, (void)method, (void)args;
    d->multi = curl_multi_init();
    d->sockets = calloc(SOCKETS, sizeof *d->sockets);
    d->changed = calloc(SOCKETS, sizeof *d->changed);
    d->timer_ms = -1;
    if (d->multi == NULL || d->sockets == NULL || d->changed == NULL) return FILCH_ENOMEM;
    curl_multi_setopt(d->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(d->multi, CURLMOPT_SOCKETDATA, d);
    curl_multi_setopt(d->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(d->multi, CURLMOPT_TIMERDATA, d);
    return FILCH_OK;
}

static void driver_close(void *self)
{
    driver *d = self;
    for (int i = 0; i < PARALLEL; i++) {
        if (d->transfers[i].easy == NULL) continue;
        curl_multi_remove_handle(d->multi, d->transfers[i].easy);
        curl_easy_cleanup(d->transfers[i].easy);
    }
    curl_multi_cleanup(d->multi);
    free(d->sockets);
    free(d->changed);
}

static const filch_type driver_type = {
    .name = "driver", .size = sizeof(driver), .init = driver_init, .step = driver_step, .close = driver_close
};

static void driver_exit(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)user, (void)pid, (void)result;
    if (error != FILCH_OK) wrong("a driver fails", (uint64_t)error, 0);
    fli_add_rel(&g.drivers, -1);
}

/* ---- runs ---- */

/* Waits until the last driver has ended. With `ticks`, calls filch_tick() while it waits. */
static void wait_for_all(bool ticks)
{
    uint64_t seen = 0, until_ns = fli_clock_ns() + STRESS_LIMIT;
    while (fli_load_acq(&g.drivers) > 0) {
        struct pollfd wake = { .fd = ticks ? filch_wake_fd(g.sched) : -1, .events = POLLIN };
        (void)poll(&wake, 1, 1);
        if (ticks) stress_must("tick", filch_tick(g.sched, 0, NULL));
        uint64_t progress = fli_load_rlx(&g.ended) + fli_load_rlx(&g.polls);
        if (progress != seen) until_ns = fli_clock_ns() + STRESS_LIMIT;
        seen = progress;
        if (fli_clock_ns() < until_ns) continue;
        wrong("nothing moves any more", fli_load_rlx(&g.ended), g.transfers);
        _exit(1);
    }
}

static bool play(uint64_t transfers, int32_t workers)
{
    filch_options       opt = FILCH_OPTIONS_INIT;
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    pthread_t           server;
    int                 before = open_descriptors();
    memset(&g, 0, sizeof g);
    memset(&alloc, 0, sizeof alloc);
    g.transfers = transfers;
    int listener = listen_somewhere();
    stress_must("thread", pthread_create(&server, NULL, listen_on, &listener) == 0 ? FILCH_OK : FILCH_ESYS);
    opt.workers = workers;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    spawn.on_exit = driver_exit;
    fli_store_rlx(&g.drivers, DRIVERS);
    stress_must("create", filch_sched_create(&g.sched, &opt));
    for (int i = 0; i < DRIVERS; i++) stress_must("spawn", filch_spawn(g.sched, &driver_type, &spawn, NULL));
    wait_for_all(workers == FILCH_NO_WORKERS);
    filch_err err = filch_sched_stop(g.sched, FILCH_SECONDS(60), NULL);
    if (err != FILCH_OK) wrong("stop", (uint64_t)err, 0);
    if (fli_load_rlx(&g.ended) != transfers) wrong("transfers are missing", fli_load_rlx(&g.ended), transfers);
    /* The server closes a connection only after the client has closed it, so the server's threads end by themselves. */
    (void)shutdown(listener, SHUT_RDWR);
    (void)pthread_join(server, NULL);
    for (uint64_t late_ns = fli_clock_ns() + STRESS_LIMIT; fli_load_acq(&g.connections) > 0;) {
        (void)poll(NULL, 0, 1);
        if (fli_clock_ns() > late_ns) wrong("connections are left open", fli_load_rlx(&g.connections), 0);
        if (fli_clock_ns() > late_ns) return false;
    }
    (void)close(listener);
    if (open_descriptors() != before)
        wrong("descriptors are left open", (uint64_t)open_descriptors(), (uint64_t)before);
    if (atomic_load(&alloc.bytes) != 0) wrong("bytes are left", atomic_load(&alloc.bytes), 0);
    if (atomic_load(&alloc.wrong) != 0) wrong("bytes came back wrong", atomic_load(&alloc.wrong), 0);
    printf("%d workers: %" PRIu64 " transfers, %" PRIu64 " cancelled, %" PRIu64 " reset, %" PRIu64 " polls\n",
           workers == FILCH_NO_WORKERS ? 0 : workers, fli_load_rlx(&g.ended), fli_load_rlx(&g.cancelled),
           fli_load_rlx(&g.reset), fli_load_rlx(&g.polls));
    return fli_load_rlx(&g.wrong) == 0;
}

int main(int argc, char **argv)
{
    static const int32_t workers[] = { FILCH_NO_WORKERS, 1, 2 };
    uint64_t             transfers;
    if (argc != 2 || !stress_parse(argv[1], 1, UINT64_MAX / 2, &transfers)) {
        fprintf(stderr, "usage: curl_stress TRANSFERS\n");
        return 2;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    bool good = true;
    for (int i = 0; i < 3 && good; i++) good = play(transfers / 3 + 1, workers[i]);
    curl_global_cleanup();
    return good ? 0 : 1;
}
