/* fuzz_payload.c - payloads with arbitrary fields. What can be checked is refused (FILCH_EINVAL) and never
 * dereferenced; valid payloads arrive unchanged. Reading is always safe.
 *
 * Left out, because it cannot be checked: a pointer to a block that is not one, and lent or moved bytes at a wrong
 * address. So blocks are always real here, and addresses lead to at least as many bytes as stated.
 */
#include <filch.h>

#include "fuzz/bytes.h"
#include "payload/data.h" /* declares FLI_FORM_*, the forms of a payload */
#include "support/alloc.h"

enum { BYTES = 4096, SHELF = 8 };

static uint8_t    bytes[BYTES + 1];
static test_alloc alloc;
static uint64_t   freed, handed_over;

static void on_free(void *user, void *at, size_t size)
{
    (void)size;
    MUST(user == NULL || user == &alloc, "another user");
    freed++;
    free(at);
}

/* ---- making ---- */

/* Makes a payload with random fields, then corrects the fields that the library cannot check. */
static filch_data any(fuzz_bytes *in, const filch_data *real)
{
    filch_data data;
    fuzz_fill(in, &data, sizeof data);
    if (fuzz_below(in, 4) > 0) data.kind %= 8;
    if (fuzz_below(in, 4) > 0) data.form %= 6;
    switch (data.form) {
    case FLI_FORM_LENT:
        data.as.ref.size %= BYTES;
        data.as.ref.at = fuzz_below(in, 4) == 0 ? NULL : bytes;
        break;
    case FLI_FORM_MOVE:
        if (data.kind == FILCH_KIND_TEXT)
            data.kind = FILCH_KIND_BYTES; /* never a text: no public function makes a text of the form MOVE */
        data.as.move.size %= BYTES;
        data.as.move.free_fn = on_free;
        data.as.move.at = fuzz_below(in, 4) == 0 ? NULL : malloc(BYTES);
        break;
    case FLI_FORM_BLOCK:
        if (real->form == FLI_FORM_BLOCK) data.as = real->as;
        else data.as.ref.block = NULL;
        break;
    default: break;
    }
    return data;
}

/* Returns true if the library must refuse the payload. This function shares no code with the library. */
static bool is_wrong(const filch_data *data)
{
    bool is_bytes = data->kind == FILCH_KIND_TEXT || data->kind == FILCH_KIND_BYTES;
    switch (data->form) {
    case FLI_FORM_VALUE: return is_bytes || data->kind > FILCH_KIND_BYTES;
    case FLI_FORM_INLINE: return !is_bytes || data->small > 24;
    case FLI_FORM_LENT: return !is_bytes || (data->as.ref.at == NULL && data->as.ref.size > 0);
    case FLI_FORM_MOVE: return !is_bytes || data->as.move.at == NULL;
    case FLI_FORM_BLOCK: return !is_bytes || data->as.ref.block == NULL;
    default: return true;
    }
}

static filch_data made(fuzz_bytes *in)
{
    size_t size = fuzz_u64(in) % BYTES;
    switch (fuzz_below(in, 8)) {
    case 0: return filch_int((int64_t)fuzz_u64(in));
    case 1: return filch_num((double)fuzz_u64(in));
    case 2: return filch_of_pid((filch_pid){ fuzz_u64(in), fuzz_u64(in) });
    case 3: return filch_ptr(bytes);
    case 4: return filch_str((const char *)bytes + BYTES - size % 64);
    case 5: return filch_bytes(fuzz_below(in, 4) == 0 ? NULL : bytes, fuzz_below(in, 2) == 0 ? 0 : size);
    case 6: return filch_bytes(bytes, size % 64);
    default: return filch_none();
    }
}

/* ---- reading ---- */

static void read_all(const filch_data *data)
{
    static uint8_t copy[BYTES];
    filch_kind     kind = filch_kind_of(data);
    (void)filch_as_int(data), (void)filch_as_num(data), (void)filch_as_ptr(data), (void)filch_as_pid(data);
    if (kind != FILCH_KIND_INT) MUST(filch_as_int(data) == 0, "a number that is none");
    if (kind != FILCH_KIND_PTR) MUST(filch_as_ptr(data) == NULL, "a pointer that is none");
    if (kind != FILCH_KIND_PID) MUST(filch_as_pid(data).serial == 0, "a pid that is none");
    if (kind != FILCH_KIND_TEXT && kind != FILCH_KIND_BYTES) MUST(filch_raw(data) == NULL, "bytes that are none");
    if (is_wrong(data)) return;
    const uint8_t *at = filch_raw(data);
    size_t         size = filch_size(data);
    MUST(size <= sizeof copy, "more bytes than there ever were");
    /* reads all bytes, so that the address sanitizer checks them */
    if (at != NULL && size > 0) memcpy(copy, at, size);
}

static void check_same(const filch_data *a, const filch_data *b)
{
    MUST(filch_kind_of(a) == filch_kind_of(b) && filch_size(a) == filch_size(b), "another kind or size");
    MUST(filch_as_int(a) == filch_as_int(b) && filch_as_ptr(a) == filch_as_ptr(b), "another value");
    MUST(filch_as_pid(a).serial == filch_as_pid(b).serial, "another pid");
    MUST(filch_size(a) == 0 || memcmp(filch_raw(a), filch_raw(b), filch_size(a)) == 0, "other bytes");
}

/* ---- a process that compares its messages with `expected` ---- */

static filch_data expected; /* payload of the message in the mailbox of the process; not owned */
static bool       expects;

static filch_err take(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        MUST(expects, "a message that was refused");
        expects = false;
        read_all(&events[i].data);
        check_same(&events[i].data, &expected);
        if (expected.form == FLI_FORM_LENT && expected.kind == FILCH_KIND_TEXT) {
            MUST(filch_text(&events[i].data)[expected.as.ref.size] == '\0', "a text without its end");
        }
    }
    return filch_idle(out);
}

static const filch_type taker = { .name = "taker", .step = take };

/* Sends a payload to the process. Returns true if the payload was accepted. */
static bool send(filch_sched *sched, filch_pid pid, const filch_data *data, size_t payload_max)
{
    bool      wrong = is_wrong(data), big = payload_max != 0 && filch_size(data) > payload_max;
    bool      moves = data->form == FLI_FORM_MOVE;
    uint64_t  refused = alloc.refused, freed_before = freed;
    filch_err err = filch_send(sched, pid, *data);
    if (err == FILCH_ENOMEM) MUST(alloc.refused != refused, "out of memory, but it is not");
    else MUST(err == (wrong ? FILCH_EINVAL : big ? FILCH_ETOOBIG : FILCH_OK), "a send with another answer");
    MUST(freed == freed_before, "moved bytes were freed too early");
    if (err != FILCH_OK) return false;
    expected = *data;
    expects = true;
    MUST(filch_tick(sched, 0, NULL) == FILCH_OK && !expects, "a message was lost");
    if (moves) {
        handed_over++;
        MUST(freed == freed_before + 1, "moved bytes were not freed");
    }
    return true;
}

/* Keeps a payload by filch_keep(). Returns true if the payload was accepted. */
static bool keep(const filch_data *data, filch_data *out)
{
    filch_data before = *out;
    filch_err  err = filch_keep(data, out);
    MUST(err == (is_wrong(data) ? FILCH_EINVAL : FILCH_OK), "a keep with another answer");
    if (err != FILCH_OK) {
        MUST(memcmp(&before, out, sizeof before) == 0, "a refused keep wrote something");
        return false;
    }
    if (data->form == FLI_FORM_MOVE) handed_over++;
    read_all(out);
    check_same(data, out);
    return true;
}

static void share(fuzz_bytes *in, filch_data *out)
{
    size_t size = fuzz_u64(in) % BYTES;
    void  *at = calloc(1, BYTES);
    filch_drop(out);
    MUST(filch_share(NULL, size, on_free, &alloc, out) == FILCH_EINVAL, "nothing was shared");
    if (filch_share(at, size, on_free, &alloc, out) == FILCH_OK) handed_over++;
    else free(at);
}

static void operate(fuzz_bytes *in, filch_sched *sched, filch_pid pid, size_t payload_max, filch_data *shelf)
{
    filch_data *slot = &shelf[fuzz_below(in, SHELF)], *other = &shelf[fuzz_below(in, SHELF)];
    uint8_t     choice = fuzz_byte(in);
    if (choice % 16 == 0) {
        share(in, slot);
    } else if (choice % 16 == 1) {
        filch_drop(slot);
        MUST(filch_kind_of(slot) == FILCH_KIND_NONE, "dropped, but not empty");
    } else if (choice % 16 == 2) {
        test_alloc_fail(&alloc, choice / 16 % 4, choice / 64 == 1);
    } else {
        bool       forged = choice % 2 == 0;
        filch_data data = choice % 16 == 3 ? *other : forged ? any(in, other) : made(in), fresh = filch_none();
        bool       moves = data.form == FLI_FORM_MOVE && data.as.move.at != NULL, taken;
        read_all(&data);
        if (choice / 16 % 2 == 0) {
            taken = send(sched, pid, &data, payload_max);
        } else {
            taken = keep(&data, &fresh);
            if (taken) filch_drop(slot);
            if (taken) *slot = fresh;
        }
        if (moves && !taken) free(data.as.move.at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes    in = { at, size };
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    filch_pid     pid;
    filch_data    shelf[SHELF];
    for (int i = 0; i < SHELF; i++) shelf[i] = filch_none();
    if (bytes[0] == 0) {
        for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(1 + i % 255);
    }
    memset(&alloc, 0, sizeof alloc);
    freed = handed_over = 0;
    opt.workers = FILCH_NO_WORKERS;
    opt.alloc = test_alloc_fn;
    opt.alloc_user = &alloc;
    opt.node = opt.seed = 1;
    opt.payload_max = fuzz_byte(&in) * 8u;
    MUST(filch_sched_create(&sched, &opt) == FILCH_OK, "no scheduler");
    MUST(filch_spawn(sched, &taker, NULL, &pid) == FILCH_OK, "no taker");
    while (in.left > 0) operate(&in, sched, pid, opt.payload_max, shelf);
    test_alloc_fail(&alloc, 0, false);
    for (int i = 0; i < SHELF; i++) filch_drop(&shelf[i]);
    MUST(filch_sched_stop(sched, FILCH_SECONDS(10), NULL) == FILCH_OK, "no end");
    MUST(freed == handed_over, "handed-over bytes were not freed exactly once");
    MUST(alloc.bytes == 0 && alloc.blocks == 0 && alloc.wrong == 0, "memory was left behind");
    return 0;
}
