/* err.c - texts for error codes, and the version. */
#include <stddef.h>

#include <filch.h>

typedef struct row {
    const char *name, *text;
} row;

static const row rows[] = {
#define ROW(name, value, text) [value] = { #name, text },
    FILCH_ERR_MAP(ROW)
#undef ROW
};

static const row *find(filch_err err)
{
    static const row unknown = { "unknown", "unknown error" };
    static const row user = { "FILCH_EUSER", "application error" };
    if (err >= FILCH_EUSER) return &user;
    if (err < 0 || (size_t)err >= sizeof rows / sizeof rows[0]) return &unknown;
    /* no name: the number lies between two groups of codes and is no error code */
    return rows[err].name != NULL ? &rows[err] : &unknown;
}

const char *filch_err_text(filch_err err)
{
    return find(err)->text;
}

const char *filch_err_name(filch_err err)
{
    return find(err)->name;
}

/* Why the last call of this thread that returned FILCH_EINVAL was refused: a constant text. See
 * docs/design/diagnostics.md. */
static __thread const char *detail = "";

filch_err filch_invalid(const char *text)
{
    detail = text != NULL ? text : "";
    return FILCH_EINVAL;
}

const char *filch_err_detail(void)
{
    return detail;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *filch_version(void)
{
    return TEXT(FILCH_VERSION_MAJOR) "." TEXT(FILCH_VERSION_MINOR) "." TEXT(FILCH_VERSION_PATCH);
}
