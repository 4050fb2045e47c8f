/* args.c - see args.h. */
#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/message.h"

const cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++) {
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    }
    return NULL;
}

static size_t count_options(const cli_option *options)
{
    size_t count = 0;
    while (options[count].name != NULL) count++;
    return count;
}

static int unknown(const cli_args *args, const char *word)
{
    const cli_option *options = args->command->options;
    const char       *near = cli_nearest(word, &options->name, count_options(options), sizeof *options);
    cli_error("%s: there is no option '%s'", args->command->name, word);
    if (near != NULL) cli_hint("did you mean %s? `filch help %s` lists the options", near, args->command->name);
    else cli_hint("`filch help %s` lists the options", args->command->name);
    return CLI_BAD;
}

/* Parses one option. `word` is --name or --name=value. */
static int take_option(cli_args *args, const char *word)
{
    size_t size = strcspn(word, "=");
    for (const cli_option *option = args->command->options; option->name != NULL; option++) {
        if (strlen(option->name) != size || memcmp(option->name, word, size) != 0) continue;
        args->option = option;
        args->value = word[size] == '=' ? word + size + 1 : NULL;
        if (option->value == NULL && args->value != NULL) {
            cli_error("%s: %s takes no value, and got '%s'", args->command->name, option->name, args->value);
            return CLI_BAD;
        }
        if (option->value != NULL && args->value == NULL) {
            if (args->at == args->argc) {
                cli_error("%s: %s needs a value: %s %s", args->command->name, option->name, option->name,
                          option->value);
                return CLI_BAD;
            }
            args->value = args->argv[args->at++];
        }
        return option->id;
    }
    return unknown(args, word);
}

int cli_next(cli_args *args)
{
    if (args->at == args->argc) return CLI_END;
    const char *word = args->argv[args->at++];
    if (!args->only_operands && strcmp(word, "--") == 0) {
        args->only_operands = true;
        return cli_next(args);
    }
    if (!args->only_operands && word[0] == '-' && word[1] != '\0') return take_option(args, word);
    if (args->command->operands_last) args->only_operands = true;
    args->value = word;
    return CLI_OPERAND;
}

/* ---- values ---- */

bool cli_value_wrong(const cli_args *args, const char *wanted)
{
    cli_error("%s: %s must be %s, not '%s'", args->command->name, args->option->name, wanted, args->value);
    return false;
}

bool cli_value_number(const cli_args *args, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end, wanted[96];
    errno = 0;
    unsigned long long number = strtoull(args->value, &end, 10);
    bool               digits = args->value[0] >= '0' && args->value[0] <= '9' && *end == '\0';
    if (digits && errno == 0 && number >= min && number <= max) {
        *out = number;
        return true;
    }
    if (max == UINT64_MAX) snprintf(wanted, sizeof wanted, "a whole number from %llu on", (unsigned long long)min);
    else
        snprintf(wanted, sizeof wanted, "a whole number from %llu to %llu", (unsigned long long)min,
                 (unsigned long long)max);
    return cli_value_wrong(args, wanted);
}

/* Parses a size such as 4096, 64K, 8MB or 1G. Returns false if `text` is not one. */
static bool parse_size(const char *text, size_t *out)
{
    static const char units[] = "KMG";
    char             *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    bool               fine = text[0] >= '0' && text[0] <= '9' && errno == 0;
    const char        *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned           shift = unit != NULL ? (unsigned)(unit - units + 1) * 10 : 0;
    if (unit != NULL) end++;
    if (unit != NULL && *end == 'B') end++;
    if (!fine || *end != '\0' || number > (SIZE_MAX >> shift)) return false;
    *out = (size_t)number << shift;
    return true;
}

bool cli_value_size(const cli_args *args, size_t *out)
{
    size_t size;
    if (!parse_size(args->value, &size) || size == 0) return cli_value_wrong(args, "a size such as 64K, 8M or 1G");
    *out = size;
    return true;
}

bool cli_value_mailbox(const cli_args *args, size_t *out)
{
    size_t size;
    if (!parse_size(args->value, &size) || size >= (size_t)1 << 28)
        return cli_value_wrong(args, "a size such as 64K or 8M, below 256M, or 0 for no limit");
    *out = size;
    return true;
}

bool cli_value_time(const cli_args *args, uint64_t *out_ns)
{
    char  *end;
    double number = strtod(args->value, &end);
    double unit = strcmp(end, "ms") == 0 ? 1e6 : *end == '\0' || strcmp(end, "s") == 0 ? 1e9 : 0;
    bool   begins = (args->value[0] >= '0' && args->value[0] <= '9') || args->value[0] == '.';
    if (!begins || unit == 0 || !isfinite(number) || number * unit > 1e15) {
        return cli_value_wrong(args, "a time such as 5, 0.5, 2s or 200ms");
    }
    *out_ns = (uint64_t)llround(number * unit);
    return true;
}
