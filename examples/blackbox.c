/* blackbox.c - a process fails in production; its recording is saved, and fails again when it is replayed.
 *
 * The till adds up the numbers it receives and sends the sum to the ledger. It has a bug that shows with the seventh
 * message. Its scheduler records each process, and writes the recording of the failed one to a file. Then the program
 * plays the developer: it reads the file and replays the till alone, on the main thread. A breakpoint in till_step
 * would stop there, with exactly the recorded events. Last, it shows what a repaired till does with the recording.
 */
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#define NOT_IN_THE_RED (FILCH_EUSER + 1)

/* ---- the ledger ---- */

static filch_err ledger_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    size_t i;
    (void)self;
    for (i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
    }
    return filch_idle(out);
}

static const filch_type ledger = { .name = "ledger", .step = ledger_step };

/* ---- the till: its argument is the pid of the ledger ---- */

struct till {
    filch_pid ledger;
    int64_t   sum;
};

static filch_err till_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct till *t = self;
    (void)ctx;
    if (method != NULL) return FILCH_EMETHOD;
    t->ledger = filch_as_pid(args);
    return FILCH_OK;
}

static filch_err till_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct till *t = self;
    size_t       i;
    for (i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int(t->sum));
        t->sum += filch_as_int(&events[i].data);
        /* the bug: the till does not expect refunds, which make the sum negative */
        if (t->sum < 0) return NOT_IN_THE_RED;
        if (filch_send(filch_out_sched(out), t->ledger, filch_int(t->sum))) return FILCH_EUSER;
    }
    return filch_idle(out);
}

static const filch_type till = { .name = "till", .size = sizeof(struct till), .init = till_init, .step = till_step };

/* The repaired step: a refund takes no more than the sum. The repaired type has the name and state of the old type, so
 * the recording can be replayed with the repaired type. */
static filch_err repaired_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct till *t = self;
    size_t       i;
    for (i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int(t->sum));
        t->sum += filch_as_int(&events[i].data);
        if (t->sum < 0) t->sum = 0;
        if (filch_send(filch_out_sched(out), t->ledger, filch_int(t->sum))) return FILCH_EUSER;
    }
    return filch_idle(out);
}

static const filch_type repaired = {
    .name = "till", .size = sizeof(struct till), .init = till_init, .step = repaired_step
};

/* ---- in production ---- */

struct field {
    FILE *file;
    int   saved;
    sem_t over;
};

static void save(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    struct field *f = user;
    (void)pid;
    printf("the till ended: %s %d; its black box has %u bytes\n", filch_err_text(error), error, (unsigned)size);
    f->saved = bytes != NULL && fwrite(bytes, 1, size, f->file) == size && fflush(f->file) == 0;
    sem_post(&f->over);
}

static filch_err run(struct field *f)
{
    static const int64_t amounts[] = { 20, 5, 10, -15, 30, 40, -200, 7 };
    filch_options        options = FILCH_OPTIONS_INIT;
    filch_spawn_options  how = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched         *sched;
    filch_pid            ledger_pid, till_pid;
    size_t               i;
    /* one message per step, so that the step number in the report is the number of the message */
    options.batch_max = 1;
    options.blackbox = FILCH_BLACKBOX_STEPS;
    options.on_blackbox = save;
    options.on_blackbox_user = f;
    if (filch_sched_create(&sched, &options)) return FILCH_ESYS;
    if (filch_spawn(sched, &ledger, NULL, &ledger_pid)) return FILCH_ESYS;
    how.args = filch_of_pid(ledger_pid);
    if (filch_spawn(sched, &till, &how, &till_pid)) return FILCH_ESYS;
    for (i = 0; i < sizeof amounts / sizeof amounts[0]; i++) {
        filch_err err = filch_send(sched, till_pid, filch_int(amounts[i]));
        /* FILCH_EDEAD: the last message may come after the till has failed */
        if (err != FILCH_OK && err != FILCH_EDEAD) return err;
    }
    while (sem_wait(&f->over) != 0) {}
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL);
}

/* ---- the replay ---- */

static filch_blackbox_report replay(FILE *file, const filch_type *type)
{
    static char           bytes[1 << 16];
    filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
    rewind(file);
    if (filch_blackbox_replay(bytes, fread(bytes, 1, sizeof bytes, file), type, &report)) {
        printf("no replay: %s\n", report.text);
        exit(1);
    }
    printf("%u of %u steps fed; %s; %s\n", (unsigned)report.fed, (unsigned)report.steps,
           report.again ? "failed again" : "did not fail", report.text[0] != '\0' ? report.text : "no difference");
    return report;
}

int main(void)
{
    struct field          f = { .saved = 0 };
    filch_blackbox_report then, now;
    f.file = tmpfile();
    if (f.file == NULL || sem_init(&f.over, 0, 0) != 0) return 1;
    if (run(&f) != FILCH_OK || !f.saved) return 1;
    then = replay(f.file, &till);
    now = replay(f.file, &repaired);
    fclose(f.file);
    return !then.again || then.differs != 0 || then.error != NOT_IN_THE_RED || now.again || now.differs == 0;
}
