/* payload.c - see payload.h. */
#include "fuzz/payload.h"

payload_books payload_counts;

/* Fills `to` with says->size bytes that are computed from says->seed: letters for a text, otherwise any bytes. */
static void write_bytes(const content *says, char *to)
{
    uint64_t left = says->seed;
    for (uint32_t i = 0; i < says->size; i++) {
        uint32_t base = says->kind == FILCH_KIND_TEXT ? 26 : 256;
        to[i] = (char)((says->kind == FILCH_KIND_TEXT ? 'a' : 0) + (int)(left % base));
        left = left >= base ? left / base : says->seed + i;
    }
    if (says->kind == FILCH_KIND_TEXT) to[says->size] = '\0';
}

static void *make_block(const content *says)
{
    char *bytes = malloc(says->size > 0 ? says->size : 1);
    if (bytes == NULL) abort();
    write_bytes(says, bytes);
    return bytes;
}

static void on_moved_free(void *user, void *bytes, size_t size)
{
    (void)size;
    MUST(user == NULL, "the user of moved bytes is not NULL");
    payload_counts.freed++;
    free(bytes);
}

static void on_shared_free(void *user, void *bytes, size_t size)
{
    (void)size;
    MUST(user == &payload_counts, "the user of shared bytes is another");
    payload_counts.unshared++;
    free(bytes);
}

static uint32_t choose_size(fuzz_bytes *in)
{
    /* Sizes around 24, because more than 24 bytes do not fit into an event; around 16, the unit of a mailbox limit in
     * bytes; and around 64 and 200, which the test uses as payload_max. */
    static const uint16_t sizes[] = { 0, 1, 8, 15, 16, 17, 22, 23, 24, 25, 32, 64, 65, 200, 201, PAYLOAD_MAX };
    return sizes[fuzz_below(in, sizeof sizes / sizeof sizes[0])];
}

void payload_pack(payload *p, fuzz_bytes *in, uint64_t seed)
{
    p->says = (content){ .seed = seed };
    p->moved = NULL;
    switch (fuzz_below(in, 9)) {
    case 0:
        p->says.kind = FILCH_KIND_INT;
        p->data = filch_int((int64_t)seed);
        return;
    case 1:
        p->says.kind = FILCH_KIND_NUM;
        p->data = filch_num((double)seed);
        return;
    case 2:
        p->says.kind = FILCH_KIND_PID;
        p->data = filch_of_pid((filch_pid){ ~seed, seed });
        return;
    case 3:
        p->says.kind = FILCH_KIND_PTR;
        p->data = filch_ptr((void *)(uintptr_t)seed);
        return;
    case 4:
        p->says.kind = FILCH_KIND_NONE;
        p->data = filch_none();
        return;
    case 5:
        p->says = (content){ .kind = FILCH_KIND_TEXT, .size = choose_size(in), .seed = seed };
        write_bytes(&p->says, p->room);
        p->data = filch_str(p->says.size > 0 || fuzz_below(in, 2) == 0 ? p->room : NULL);
        return;
    case 6:
        p->says = (content){ .kind = FILCH_KIND_BYTES, .size = choose_size(in), .seed = seed };
        p->moved = make_block(&p->says);
        p->data = filch_move(p->moved, p->says.size, on_moved_free);
        return;
    default:
        p->says = (content){ .kind = FILCH_KIND_BYTES, .size = choose_size(in), .seed = seed };
        write_bytes(&p->says, p->room);
        p->data = filch_bytes(p->room, p->says.size);
        return;
    }
}

void payload_sent(payload *p, bool took)
{
    if (p->moved == NULL) return;
    if (took) payload_counts.moved++;
    else free(p->moved);
    p->moved = NULL;
}

bool payload_is_unique(const payload *p)
{
    bool bytes = p->says.kind == FILCH_KIND_TEXT || p->says.kind == FILCH_KIND_BYTES;
    return p->says.kind != FILCH_KIND_NONE && (!bytes || p->says.size >= 8);
}

bool payload_share(content says, filch_data *out)
{
    void *bytes = make_block(&says);
    if (filch_share(bytes, says.size, on_shared_free, &payload_counts, out) != FILCH_OK) {
        free(bytes);
        return false;
    }
    payload_counts.shared++;
    return true;
}

bool payload_is(const content *says, const filch_data *data)
{
    if (filch_kind_of(data) != says->kind || filch_size(data) != says->size) return false;
    filch_pid pid = filch_as_pid(data);
    switch (says->kind) {
    case FILCH_KIND_NONE: return true;
    case FILCH_KIND_INT: return filch_as_int(data) == (int64_t)says->seed;
    case FILCH_KIND_NUM: return filch_as_num(data) == (double)says->seed;
    case FILCH_KIND_PID: return pid.node == ~says->seed && pid.serial == says->seed;
    case FILCH_KIND_PTR: return filch_as_ptr(data) == (void *)(uintptr_t)says->seed;
    default: break;
    }
    char want[PAYLOAD_MAX + 1];
    write_bytes(says, want);
    if (says->kind == FILCH_KIND_TEXT && filch_text(data)[says->size] != '\0') return false;
    return says->size == 0 || memcmp(filch_raw(data), want, says->size) == 0;
}
