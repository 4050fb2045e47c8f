/* fuzz_address.c - socket addresses: parsed from any text, or with any bytes, as the system might fill in the address
 * of a peer. An address that was parsed from a text is written as a text that parses as an equal address. An address
 * from the system is written within FLI_ADDRESS_TEXT_MAX bytes, whatever its length field says. */
#include "fuzz/bytes.h"
#include "port/net.h"

/* Writes the text of `address` to `text`, and to a buffer of `less` bytes. Checks that both texts end with a NUL, that
 * the second is cut only if it does not fit, and that the reported length is that of the whole text. */
static void write_out(const fli_address *address, char text[FLI_ADDRESS_TEXT_MAX], size_t less)
{
    char   shorter[FLI_ADDRESS_TEXT_MAX];
    size_t size = fli_address_write(address, text, FLI_ADDRESS_TEXT_MAX);
    MUST(size < FLI_ADDRESS_TEXT_MAX, "longer than promised");
    MUST(strlen(text) == size, "another length than reported");
    MUST(fli_address_write(address, shorter, less) == size, "the length depends on the room");
    if (less > 0) MUST(strlen(shorter) == (size < less ? size : less - 1), "cut elsewhere");
}

static void try_text(fuzz_bytes *in)
{
    static const char *const begins[] = { "unix:", "unix:@", "[", "127.0.0.1:", "*:", "[fe80::1%", "", "[::1]:" };
    char                     given[300] = "", text[FLI_ADDRESS_TEXT_MAX], again[FLI_ADDRESS_TEXT_MAX];
    fli_address              address, second;
    strcpy(given, begins[fuzz_below(in, 8)]);
    size_t at = strlen(given), size = fuzz_byte(in), less = fuzz_below(in, FLI_ADDRESS_TEXT_MAX);
    fuzz_fill(in, given + at, size);
    given[at + size] = '\0';
    if (!fli_address_read(&address, given)) return;
    write_out(&address, text, less);
    MUST(fli_address_read(&second, text), "what was written is no address");
    MUST(address.size == second.size, "another size");
    MUST(memcmp(address.bytes, second.bytes, address.size) == 0, "another address");
    write_out(&second, again, less);
    MUST(strcmp(text, again) == 0, "another text");
}

static void try_system(fuzz_bytes *in)
{
    /* the numbers of AF_UNIX, AF_INET and AF_INET6, and 0, which is no address family */
    static const uint16_t families[] = { 1, 2, 10, 0 };
    uint8_t               system[256];
    char                  text[FLI_ADDRESS_TEXT_MAX];
    fli_address           address;
    size_t                size = fuzz_byte(in), less = fuzz_below(in, FLI_ADDRESS_TEXT_MAX);
    uint16_t              family = families[fuzz_below(in, 4)];
    memset(system, fuzz_byte(in), sizeof system);
    fuzz_fill(in, system + 2, in->left < sizeof system - 2 ? in->left : sizeof system - 2);
    if (family != 0) memcpy(system, &family, sizeof family);
    fli_address_put(&address, system, size);
    write_out(&address, text, less);
}

int LLVMFuzzerTestOneInput(const uint8_t *at, size_t size)
{
    fuzz_bytes in = { at, size };
    if (fuzz_byte(&in) % 2 == 0) try_text(&in);
    else try_system(&in);
    return 0;
}
