/* new.c - `filch new NAME`: makes a folder with a small working program and its test. If one of the files cannot be
 * written, removes the folder again. */
#include "cli/new.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/message.h"

enum { NAME_MAX_SIZE = 64 };

/* The templates of the files; %s stands for the name of the program. */
static const struct {
    const char *file, *text;
} files[] = {
    { "main.lua", "-- main.lua - the first process of %s. Run it with: filch run %s\n"
                  "local name = ... -- the first argument on the command line\n"
                  "local counter = process.spawn(\"counter\", 10)\n"
                  "for i = 1, 3 do process.send(counter, { add = i }) end\n"
                  "print(\"hello, \" .. (name or \"world\") .. \": \" .. process.request(counter, \"get\"))\n"
                  "process.cancel(counter)\n" },
    { "counter.lua",
      "-- counter.lua - a process that adds N for each message { add = N }, and replies to \"get\" with the sum.\n"
      "local function main(total)\n"
      "  while true do\n"
      "    local message, from = process.receive()\n"
      "    if message == \"get\" then process.reply(from, total)\n"
      "    else total = total + message.add end\n"
      "  end\n"
      "end\n"
      "return { main = main }\n" },
    { "counter_test.lua",
      "-- counter_test.lua - each function is a test. Run them with: filch test %s\n"
      "-- Each test runs many times in a simulation; a seed decides the order of steps and the time.\n"
      "local tests = {}\n"
      "\n"
      "function tests.adds_up_what_it_is_sent()\n"
      "  local counter = process.spawn(\"counter\", 10)\n"
      "  process.send(counter, { add = 5 })\n"
      "  assert(process.request(counter, \"get\") == 15)\n"
      "end\n"
      "\n"
      "function tests.two_senders_lose_nothing()\n"
      "  local counter, me = process.spawn(\"counter\", 0), process.self()\n"
      "  for _ = 1, 2 do\n"
      "    process.spawn(function()\n"
      "      for _ = 1, 10 do process.send(counter, { add = 1 }) end\n"
      "      process.send(me, \"done\")\n"
      "    end)\n"
      "  end\n"
      "  for _ = 1, 2 do process.receive() end\n"
      "  assert(process.request(counter, \"get\") == 20)\n"
      "end\n"
      "\n"
      "return tests\n" },
    { "README.md", "# %s\n"
                   "\n"
                   "    filch run %s            # run it\n"
                   "    filch test %s           # its tests, each under 100 seeds\n"
                   "\n"
                   "`main.lua` is the first process; `counter.lua` is a process that it starts.\n" },
};
enum { FILES = sizeof files / sizeof files[0] };

static bool is_good_name(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > NAME_MAX_SIZE) return false;
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(i > 0 && ((c >= '0' && c <= '9') || c == '_' || c == '-'))) return false;
    }
    return true;
}

/* Writes the template with `name` in place of each %s. */
static bool write_text(FILE *out, const char *text, const char *name)
{
    for (; *text != '\0'; text++) {
        if (*text == '%') fputs(name, out), text++;
        else putc(*text, out);
    }
    return ferror(out) == 0;
}

static bool write_file(const char *name, size_t which)
{
    char path[NAME_MAX_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", name, files[which].file);
    FILE *out = fopen(path, "wx");
    if (out == NULL) return false;
    bool written = write_text(out, files[which].text, name);
    return fclose(out) == 0 && written;
}

/* Removes the first `count` files of the new folder, and the folder. */
static void take_back(const char *name, size_t count)
{
    char path[NAME_MAX_SIZE + 32];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", name, files[i].file);
        (void)unlink(path);
    }
    (void)rmdir(name);
}

static int make(const char *name)
{
    if (mkdir(name, 0777) != 0) {
        int why = errno;
        cli_error("new: %s: %s", name, strerror(why));
        if (why == EEXIST) cli_hint("existing files are never changed: choose another name");
        return CLI_REFUSED;
    }
    for (size_t i = 0; i < FILES; i++) {
        if (write_file(name, i)) continue;
        cli_error("new: %s/%s: %s", name, files[i].file, strerror(errno));
        take_back(name, i + 1);
        return CLI_REFUSED;
    }
    printf("%s/", name);
    for (size_t i = 0; i < FILES; i++) printf(" %s", files[i].file);
    printf("\nnow: filch run %s\n     filch test %s\n", name, name);
    return CLI_OK;
}

int cli_new(const cli_command *self, int argc, char **argv)
{
    cli_args    args = { .command = self, .argv = argv, .argc = argc };
    const char *name = NULL;
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        if (what == CLI_BAD) return CLI_USAGE;
        if (name != NULL) {
            cli_error("new: takes one name, and got also '%s'", args.value);
            return CLI_USAGE;
        }
        name = args.value;
    }
    if (name == NULL || !is_good_name(name)) {
        if (name == NULL) cli_error("new: the name is missing");
        else cli_error("new: '%s' cannot be the name of a program", name);
        cli_hint("%sa name has letters, digits, '_' and '-' and starts with a letter; it becomes a folder here",
                 name == NULL ? "filch new NAME; " : "");
        return CLI_USAGE;
    }
    return make(name);
}
