/* hostcall.c - threads of the host and processes: a call with a deadline, the result of a process, and a full mailbox.
 *
 * The process is an account. It does not distinguish threads from processes: it replies to the sender of a message, by
 * the pid in `from`. Two threads of the host deposit at the same time. Main asks for the sum, waits for the result of
 * an auditing process, and shows what happens when no reply comes.
 */
#include <filch.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define DEPOSITS 1000

struct account {
    int64_t sum;
};

/* A number is a deposit; the reply is the new sum. The reply to a text is the same text, except that the text "silence"
 * gets no reply. */
static filch_err account_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct account *a = self;
    for (size_t i = 0; i < count; i++) {
        const filch_event *e = &events[i];
        filch_err          err = FILCH_OK;
        if (e->type == FILCH_EVENT_CANCEL) return filch_done(out, filch_int(a->sum));
        if (e->type != FILCH_EVENT_MESSAGE) continue;
        if (filch_kind_of(&e->data) == FILCH_KIND_INT) {
            a->sum += filch_as_int(&e->data);
            err = filch_send(filch_out_sched(out), e->from, filch_int(a->sum));
        } else if (strcmp(filch_text(&e->data), "silence") != 0) {
            err = filch_send(filch_out_sched(out), e->from, e->data);
        }
        /* FILCH_EDEAD: the thread that made the call has stopped waiting for the reply */
        if (err != FILCH_OK && err != FILCH_EDEAD) return err;
    }
    return filch_idle(out);
}

static const filch_type account = { .name = "account", .size = sizeof(struct account), .step = account_step };

/* State of a process that computes the sum of the numbers from 1 to `upto`, its argument. */
struct audit {
    int64_t upto;
};

static filch_err audit_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct audit *)self)->upto = filch_as_int(args);
    return FILCH_OK;
}

static filch_err audit_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    int64_t n = ((struct audit *)self)->upto;
    (void)events;
    (void)count;
    return filch_done(out, filch_int(n * (n + 1) / 2));
}

static const filch_type audit = {
    .name = "audit", .size = sizeof(struct audit), .init = audit_init, .step = audit_step
};

struct depositor {
    filch_sched *sched;
    filch_pid    account;
    int          failed;
};

static void *deposit(void *arg)
{
    struct depositor *d = arg;
    for (int i = 0; i < DEPOSITS; i++) {
        if (filch_call(d->sched, d->account, filch_int(1), FILCH_FOREVER, NULL) != FILCH_OK) d->failed++;
    }
    return NULL;
}

int main(void)
{
    filch_sched        *sched;
    filch_spawn_options opt = FILCH_SPAWN_OPTIONS_INIT;
    filch_pid           pid;
    filch_err           ended;
    filch_data          reply = filch_none(), result = filch_none();
    pthread_t           threads[2];
    int                 right = 1;
    if (filch_sched_create(&sched, NULL) != FILCH_OK) return 1;
    opt.mailbox_max = 8; /* if the mailbox is full, a call waits until the mailbox has space */
    opt.overflow = FILCH_OVERFLOW_WAIT;
    if (filch_spawn(sched, &account, &opt, &pid) != FILCH_OK) return 1;

    struct depositor d[2] = { { sched, pid, 0 }, { sched, pid, 0 } };
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, deposit, &d[i]) != 0) return 1;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);

    filch_err err = filch_call(sched, pid, filch_int(0), FILCH_SECONDS(60), &reply);
    printf("%d deposits: %s, the account holds %lld\n", 2 * DEPOSITS, filch_err_text(err),
           (long long)filch_as_int(&reply));
    right &= err == FILCH_OK && filch_as_int(&reply) == 2 * DEPOSITS && d[0].failed + d[1].failed == 0;

    err = filch_call(sched, pid, filch_str("silence"), FILCH_MILLISECONDS(10), NULL);
    printf("a call without a reply: %s\n", filch_err_text(err));
    right &= err == FILCH_EDEADLINE;

    opt = (filch_spawn_options)FILCH_SPAWN_OPTIONS_INIT;
    opt.args = filch_int(100);
    err = filch_spawn_wait(sched, &audit, &opt, FILCH_FOREVER, NULL, &ended, &result);
    printf("an audit: %s, %lld\n", filch_err_text(err), (long long)filch_as_int(&result));
    right &= err == FILCH_OK && ended == FILCH_OK && filch_as_int(&result) == 5050;

    right &= filch_sched_stop(sched, FILCH_SECONDS(60), NULL) == FILCH_OK;
    return right ? 0 : 1;
}
