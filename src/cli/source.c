/* source.c - finds and compiles a program. Error messages show file, line number, the text of the line and a hint. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/escape.h"
#include "cli/message.h"
#include "cli/program.h"

static int missing(const char *file, int why)
{
    cli_error("%s: %s", file, strerror(why));
    if (why == ENOENT) cli_hint("check the path; `filch new NAME` makes a program to start from");
    return CLI_NOT_STARTED;
}

static bool is_folder(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns true if the file is Lua bytecode. Bytecode is never loaded, because it can make the interpreter do anything.
 * Only regular files are checked: other files cannot be rewound. */
static bool is_bytecode(const char *file, const struct stat *st)
{
    FILE *in = S_ISREG(st->st_mode) ? fopen(file, "rb") : NULL;
    int   first = in != NULL ? getc(in) : EOF;
    if (in != NULL) fclose(in);
    return first == 0x1B;
}

int cli_source_find(cli_source *source, const char *name)
{
    struct stat st;
    size_t      size = strlen(name);
    while (size > 1 && name[size - 1] == '/') size--;
    if (size == 0 || size > CLI_PATH_MAX / 2) {
        cli_error("'%s': the path is empty, or longer than %d bytes", name, CLI_PATH_MAX / 2);
        return CLI_USAGE;
    }
    bool folder = is_folder(name);
    snprintf(source->file, sizeof source->file, folder ? "%.*s/main.lua" : "%.*s", (int)size, name);
    if (stat(source->file, &st) != 0) {
        if (!folder) return missing(source->file, errno);
        cli_error("%s: the folder has no main.lua", name);
        cli_hint("add a main.lua, or name the file to run");
        return CLI_NOT_STARTED;
    }
    if (is_bytecode(source->file, &st)) {
        cli_error("%s: is bytecode, and only source can be run", source->file);
        cli_hint("give the .lua file that it was compiled from");
        return CLI_NOT_STARTED;
    }
    const char *slash = strrchr(source->file, '/');
    int         length = slash == NULL ? 1 : slash == source->file ? 0 : (int)(slash - source->file);
    const char *root = slash == NULL ? "." : source->file;
    snprintf(source->path, sizeof source->path, "%.*s/?.lua;%.*s/?/init.lua", length, root, length, root);
    return CLI_OK;
}

/* Prints line `number` of the file, if the file has that line. */
static void show_line(const char *file, long number)
{
    char  line[160];
    FILE *in = fopen(file, "r");
    if (in == NULL) return;
    for (long at = 1; fgets(line, sizeof line, in) != NULL;) {
        bool whole = strchr(line, '\n') != NULL;
        if (at == number) {
            char shown[sizeof line * FLI_ESCAPE_GROWTH];
            line[strcspn(line, "\r\n")] = '\0';
            for (char *tab = line; (tab = strchr(tab, '\t')) != NULL;) *tab = ' ';
            (void)fli_escape(shown, sizeof shown, line, strlen(line));
            cli_say("%s%6ld |%s %s\n", cli_ink_on(stderr, CLI_FAINT), number, cli_ink_on(stderr, CLI_PLAIN), shown);
            break;
        }
        if (whole) at++;
    }
    fclose(in);
}

static const char *hint_for(const char *text, const char *otherwise)
{
    if (strstr(text, "near <eof>") != NULL)
        return "something that was opened is not closed: an `end`, a bracket, a quote";
    if (strstr(text, "unfinished") != NULL) return "a quote or a long bracket is not closed";
    return otherwise;
}

void cli_source_error(const char *file, filch_err err, const char *text, const char *hint)
{
    if (err == FILCH_LUA_ESYNTAX) cli_error("%s", text);
    else cli_error("%s: %s", file, text[0] != '\0' ? text : filch_err_text(err));
    if (err != FILCH_LUA_ESYNTAX) return;
    /* The text is "file:12: what". Lua may cut the start of a long file name, so the line number is searched after
     * ".lua:". */
    const char *colon = strstr(text, ".lua:");
    long        number = colon != NULL ? strtol(colon + 5, NULL, 10) : 0;
    if (number > 0) show_line(file, number);
    cli_hint("%s", hint_for(text, hint));
}

int cli_source_load(const cli_source *source, filch_lua *lua, filch_lua_code **code)
{
    char      text[2048] = "";
    filch_err err = filch_lua_load_file(lua, source->file, code, text, sizeof text);
    if (err == FILCH_OK) return CLI_OK;
    cli_source_error(source->file, err, text, "nothing was started; correct the line and run it again");
    return err == FILCH_ENOMEM ? CLI_REFUSED : CLI_NOT_STARTED;
}
