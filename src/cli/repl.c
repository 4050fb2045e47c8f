/* repl.c - `filch repl`: reads lines, runs them in one process that keeps its state, and prints their values.
 *
 * The main thread reads lines and sends them to a process, the terminal, which passes them to the evaluating process
 * (repl.lua). The terminal is needed because an answer is a message, which only a process can receive. The terminal
 * writes the first letter of each answer into the pipe that the main thread waits for. Ctrl-C cancels the evaluation,
 * or ends the program if no evaluation runs.
 */
#include "cli/repl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/message.h"
#include "cli/program.h"

enum { WORKERS = 1, MEMORY, MAILBOX_BYTES };

const cli_option cli_repl_options[] = {
    { "--workers", "N", "one per CPU", "threads that run processes", WORKERS },
    { "--memory", "SIZE", "16M", "memory that one process may use", MEMORY },
    { "--mailbox-bytes", "SIZE", "0, no limit", "bytes of messages in one mailbox; at the limit sends are refused",
      MAILBOX_BYTES },
    { NULL, NULL, NULL, NULL, 0 },
};

static const char evaluator[] = {
#include "cli/repl.inc"
};

/* ---- the process `terminal` ---- */

typedef struct terminal {
    filch_pid evaluates;
    int       answers; /* descriptor to which the first letter of an answer is written: 'd'one, 'f'ailed, 'm'ore */
} terminal;

static filch_err terminal_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    *(terminal *)self = *(const terminal *)filch_as_ptr(args);
    return FILCH_OK;
}

/* Sends the first letter of an answer to the main thread. */
static void send_answer(const terminal *t, const char *word)
{
    cli_program_wake(t->answers, word[0]);
}

static filch_err terminal_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    const terminal *t = self;
    filch_sched    *sched = filch_out_sched(out);
    bool            over = false;
    for (size_t i = 0; i < count; i++) {
        const filch_event *event = &events[i];
        if (event->type == FILCH_EVENT_CANCEL) over = true;
        if (event->type != FILCH_EVENT_MESSAGE) continue;
        if (event->from.serial == t->evaluates.serial) send_answer(t, filch_raw(&event->data));
        else if (filch_send(sched, t->evaluates, event->data) != FILCH_OK) send_answer(t, "x");
    }
    return over ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type terminal_type = {
    .name = "terminal", .size = sizeof(terminal), .init = terminal_init, .step = terminal_step
};

/* ---- reading ---- */

typedef struct repl {
    cli_program program;
    filch_pid   terminal, evaluates;
    char       *text; /* message for the process `terminal`: the byte \1, then the lines of one input */
    size_t      size;
    char       *read; /* bytes of standard input; the first `line_size` are the line that next_line() returned last */
    size_t      read_size, read_room, line_size;
    bool        is_terminal, failed; /* is_terminal: standard input is a terminal, so prompts are printed */
} repl;

/* Appends a line to r->text. Returns false if there is no memory. */
static bool add_line(repl *r, const char *line, size_t size)
{
    char *more = realloc(r->text, r->size + size + 2);
    if (more == NULL) return false;
    if (r->size == 0) more[r->size++] = '\1';
    memcpy(more + r->size, line, size);
    r->text = more;
    r->size += size;
    return true;
}

/* Waits for the answer to the lines that were sent; ctrl-C cancels their evaluation. Returns the letter of the answer,
 * or 'x' if the evaluating process has ended or SIGTERM has come. */
static char await(repl *r)
{
    for (;;) {
        cli_program_listen(&r->program, -1);
        if (r->program.answer != 0) {
            char got = r->program.answer;
            r->program.answer = 0;
            return got;
        }
        if (r->program.first_over) return 'x';
        if (r->program.signal == SIGTERM) return 'x';
        if (r->program.signal == SIGINT) {
            r->program.signal = 0;
            cli_program_catch_signals();
            (void)!filch_cancel(r->program.sched, r->evaluates);
        }
    }
}

/* Prints that no further lines can be evaluated. Returns false. */
static bool give_up(repl *r, filch_err err)
{
    cli_error("no more lines can be evaluated: %s", filch_err_text(err));
    r->size = 0;
    r->failed = true;
    return false;
}

static bool evaluate(repl *r)
{
    filch_err err = filch_send(r->program.sched, r->terminal, filch_bytes(r->text, r->size));
    if (err != FILCH_OK) return give_up(r, err);
    char how = await(r);
    if (how == 'm') return add_line(r, "\n", 1) || give_up(r, FILCH_ENOMEM);
    if (how == 'f') r->failed = true;
    if (how == 'x' && r->program.signal == 0) /* without a signal, 'x' means that the evaluating process has ended */
        r->program.first_over = true;
    r->size = 0;
    return how != 'x';
}

static void prompt(const repl *r)
{
    if (!r->is_terminal) return;
    cli_show(r->size == 0 ? "> " : ">> ");
}

/* Waits for more bytes of standard input, or for a signal. Returns false at the end of the input,
 * after a signal, if the evaluating process has ended, or if there is no memory. */
static bool read_more(repl *r)
{
    struct pollfd waits[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                               { .fd = r->program.wake_pipe[0], .events = POLLIN } };
    while (r->program.signal == 0 && !r->program.first_over) {
        if (poll(waits, 2, -1) < 0) continue;
        if (waits[1].revents != 0) cli_program_listen(&r->program, 0);
        if (waits[0].revents == 0) continue;
        if (r->read_size + 1 >= r->read_room) { /* leaves one byte for a NUL after the last line */
            char *more = realloc(r->read, r->read_room * 2 + 4096);
            if (more == NULL) return false;
            r->read = more;
            r->read_room = r->read_room * 2 + 4096;
        }
        ssize_t size = read(STDIN_FILENO, r->read + r->read_size, r->read_room - r->read_size - 1);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return false;
        r->read_size += (size_t)size;
        return true;
    }
    return false;
}

/* Returns the next line without its newline; the text is valid until the next call. Returns NULL after a signal, or if
 * no text is left and read_more() returns false. */
static char *next_line(repl *r)
{
    r->read_size -= r->line_size;
    if (r->line_size > 0) memmove(r->read, r->read + r->line_size, r->read_size);
    r->line_size = 0;
    char *end = NULL;
    do {
        if (r->read_size > 0) end = memchr(r->read, '\n', r->read_size);
    } while (end == NULL && read_more(r));
    if (r->program.signal != 0 || r->read_size == 0) return NULL;
    /* the last line has no newline; read_more() has left one byte for the NUL */
    if (end == NULL) end = r->read + r->read_size++;
    r->line_size = (size_t)(end - r->read) + 1;
    *end = '\0';
    if (end > r->read && end[-1] == '\r') end[-1] = '\0';
    return r->read;
}

static void read_lines(repl *r)
{
    bool goes_on = true;
    prompt(r);
    for (char *line; goes_on && (line = next_line(r)) != NULL; prompt(r)) {
        if (line[0] == '\0' && r->size == 0) continue;
        if (r->size == 0 && (strcmp(line, "exit") == 0 || strcmp(line, "quit") == 0)) break;
        goes_on = add_line(r, line, strlen(line)) ? evaluate(r) : give_up(r, FILCH_ENOMEM);
    }
    if (r->program.signal != 0) return;
    if (r->size > 0) {
        cli_error("the last line is not complete: an `end`, a bracket or a quote is missing");
        r->failed = true;
    } else if (r->is_terminal) {
        cli_show("\n");
    }
}

static bool read_options(repl *r, const cli_command *self, int argc, char **argv)
{
    cli_args args = { .command = self, .argv = argv, .argc = argc };
    uint64_t number;
    for (int what; (what = cli_next(&args)) != CLI_END;) {
        if (what == CLI_OPERAND) cli_error("repl: takes no argument, and got '%s'", args.value);
        if (what == WORKERS) {
            if (!cli_value_number(&args, 1, 1024, &number)) return false;
            r->program.workers = (int32_t)number;
        } else if (what == MAILBOX_BYTES) {
            if (!cli_value_mailbox(&args, &r->program.lua_options.mailbox_bytes)) return false;
        } else if (what != MEMORY || !cli_value_size(&args, &r->program.lua_options.memory_max)) {
            return false;
        }
    }
    return true;
}

static int refused(filch_err err)
{
    cli_error("repl: cannot start the process that evaluates the lines: %s", filch_err_text(err));
    return CLI_REFUSED;
}

static int start(repl *r)
{
    filch_lua_code *code = NULL;
    filch_err       err = filch_lua_load(r->program.lua, evaluator, sizeof evaluator, "repl.lua", &code, NULL, 0);
    if (err != FILCH_OK) return refused(err);
    int result = cli_program_start(&r->program, code, NULL, 0, &r->evaluates);
    filch_lua_code_drop(r->program.lua, code);
    if (result != CLI_OK) return result;
    terminal            ends = { .evaluates = r->evaluates, .answers = r->program.wake_pipe[1] };
    filch_spawn_options spawn = FILCH_SPAWN_OPTIONS_INIT;
    spawn.args = filch_ptr(&ends);
    err = filch_spawn(r->program.sched, &terminal_type, &spawn, &r->terminal);
    return err == FILCH_OK ? CLI_OK : refused(err);
}

static void greet(void)
{
    char text[128];
    snprintf(text, sizeof text, "filch %s. All lines run in one process; ctrl-D or exit ends it.\n", filch_version());
    cli_show(text);
}

int cli_repl(const cli_command *self, int argc, char **argv)
{
    repl r = { .program = { .lua_options = FILCH_LUA_OPTIONS_INIT, .stop_ns = FILCH_SECONDS(1) },
               .is_terminal = isatty(0) != 0 };
    if (!read_options(&r, self, argc, argv)) return CLI_USAGE;
    int result = cli_program_open(&r.program);
    if (result != CLI_OK) return result;
    result = start(&r);
    if (result == CLI_OK) {
        if (r.is_terminal) greet();
        read_lines(&r);
        if (r.program.first_over && r.program.signal == 0) {
            cli_error("the process that evaluates the lines has ended");
            cli_hint("its variables are lost; `filch repl` starts anew, with --memory SIZE if it needed more memory");
        }
        if (r.program.signal != 0) result = CLI_BY_SIGNAL + r.program.signal;
        else if (r.program.first_over || (r.failed && !r.is_terminal)) result = CLI_FAILED;
    }
    /* Terminates the process instead of cancelling it: the process takes a cancel as a ctrl-C that ends only the
     * evaluation of a line. */
    (void)!filch_terminate(r.program.sched, r.evaluates);
    cli_program_close(&r.program, false);
    free(r.text);
    free(r.read);
    return result;
}
