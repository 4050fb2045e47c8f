/* race.c - a bug that ordinary tests do not show, found, replayed and shown by the simulator, and its fix.
 *
 * Two cashiers pay money into one account. Each reads the balance, adds to it and writes the sum back: two messages,
 * and between them the other may do the same. They work at different times, ten milliseconds apart, so on a quiet
 * machine the bug does not show. Under filch_sim_sweep workers stall, the clock jumps, and steps are interrupted. All
 * of this is drawn from a seed, so that a failing run can be repeated.
 */
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#define CASHIERS 2
#define PAYMENTS 5
#define AMOUNT 10

struct bank {
    /* 1: the cashiers send "add N" instead of "read" and "write N", which avoids the bug */
    int       careful;
    int       balance; /* the account's balance, which main checks at the end */
    filch_pid account;
    sem_t     closed;
};

/* ---- the account: replies to "read" with the balance, "write N" sets it, "add N" adds to it. It ends after a "bye"
 * from each cashier ---- */

struct account {
    struct bank *bank;
    int          byes;
};

static filch_err account_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    (void)ctx;
    (void)method;
    ((struct account *)self)->bank = filch_as_ptr(args);
    return FILCH_OK;
}

static void write_balance(filch_sched *sched, struct bank *bank, int balance)
{
    /* Every write should add one payment. filch_sim_fail has no effect outside a simulation. */
    if (balance != bank->balance + AMOUNT) (void)filch_sim_fail(sched, "a payment is lost");
    bank->balance = balance;
}

static filch_err account_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct account *me = self;
    filch_sched    *sched = filch_out_sched(out);
    for (size_t i = 0; i < count; i++) {
        const char *text = filch_text(&events[i].data);
        int         number;
        if (events[i].type == FILCH_EVENT_CANCEL) return filch_done(out, filch_none());
        if (sscanf(text, "write %d", &number) == 1) write_balance(sched, me->bank, number);
        if (sscanf(text, "add %d", &number) == 1) me->bank->balance += number;
        if (strcmp(text, "bye") == 0) me->byes++;
        if (strcmp(text, "read") != 0) continue;
        if (filch_send(sched, events[i].from, filch_int(me->bank->balance))) return FILCH_EFULL;
    }
    return me->byes == CASHIERS ? filch_done(out, filch_none()) : filch_idle(out);
}

static const filch_type account = {
    .name = "account", .size = sizeof(struct account), .init = account_init, .step = account_step
};

/* ---- cashier: waits, pays AMOUNT into the account, and repeats this ---- */

struct cashier {
    struct bank *bank;
    uint64_t     first_ns; /* time to wait before the first payment */
    int          paid;
};

static filch_err cashier_init(void *self, const filch_ctx *ctx, const char *method, const filch_data *args)
{
    struct cashier *me = self;
    (void)ctx;
    me->bank = filch_as_ptr(args);
    me->first_ns = FILCH_MILLISECONDS(method != NULL ? 20 : 10);
    return FILCH_OK;
}

static filch_err say(const struct cashier *me, filch_out *out, const char *text)
{
    return filch_send(filch_out_sched(out), me->bank->account, filch_str(text));
}

static filch_err sleep_for(filch_out *out, uint64_t span_ns)
{
    filch_err err = filch_yield_sleep(out, 0, span_ns);
    return err == FILCH_OK ? filch_wait(out) : err;
}

/* Completes a payment: sends `text` to the account. */
static filch_err pay(struct cashier *me, filch_out *out, const char *text)
{
    filch_err err = say(me, out, text);
    if (err != FILCH_OK) return err;
    if (++me->paid < PAYMENTS) return sleep_for(out, FILCH_MILLISECONDS(20));
    err = say(me, out, "bye");
    return err == FILCH_OK ? filch_done(out, filch_none()) : err;
}

static filch_err cashier_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct cashier *me = self;
    char            text[32];
    if (count == 0) return sleep_for(out, me->first_ns); /* the first step has no events */
    switch (events[0].type) {
    case FILCH_EVENT_YIELD: /* the sleep is over */
        snprintf(text, sizeof text, "add %d", AMOUNT);
        if (me->bank->careful) return pay(me, out, text);
        return say(me, out, "read") ? FILCH_EFULL : filch_idle(out);
    case FILCH_EVENT_MESSAGE: /* the reply to "read": the balance */
        snprintf(text, sizeof text, "write %d", (int)filch_as_int(&events[0].data) + AMOUNT);
        return pay(me, out, text);
    default: return filch_done(out, filch_none());
    }
}

static const filch_type cashier = {
    .name = "cashier", .size = sizeof(struct cashier), .init = cashier_init, .step = cashier_step
};

/* ---- functions that start the account and the cashiers, on threads and in the simulator ---- */

static void on_exit_of_account(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    struct bank *bank = user;
    (void)pid;
    (void)error;
    (void)result;
    sem_post(&bank->closed);
}

static filch_err open_bank(filch_sched *sched, void *user)
{
    struct bank        *bank = user;
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    bank->balance = 0;
    options.args = filch_ptr(bank);
    options.on_exit = on_exit_of_account;
    options.on_exit_user = bank;
    filch_err err = filch_spawn(sched, &account, &options, &bank->account);
    options.on_exit = NULL;
    if (err == FILCH_OK) err = filch_spawn(sched, &cashier, &options, NULL);
    options.method = "later";
    if (err == FILCH_OK) err = filch_spawn(sched, &cashier, &options, NULL);
    return err;
}

static filch_err audit(filch_sched *sched, void *user)
{
    struct bank *bank = user;
    char         text[64];
    if (bank->balance == CASHIERS * PAYMENTS * AMOUNT) return FILCH_OK;
    snprintf(text, sizeof text, "%d was paid in, %d is there", CASHIERS * PAYMENTS * AMOUNT, bank->balance);
    return filch_sim_fail(sched, text);
}

/* Runs the bank on real threads. */
static int run_for_real(struct bank *bank)
{
    filch_sched *sched;
    if (filch_sched_create(&sched, NULL)) return -1;
    if (open_bank(sched, bank)) return -1;
    while (sem_wait(&bank->closed) != 0) {}
    if (filch_sched_stop(sched, FILCH_SECONDS(5), NULL)) return -1;
    return bank->balance;
}

int main(void)
{
    struct bank       bank = { .careful = 0 };
    filch_sim_options options = FILCH_SIM_OPTIONS_INIT;
    filch_sim_report  found = FILCH_SIM_REPORT_INIT, again = FILCH_SIM_REPORT_INIT, cured = FILCH_SIM_REPORT_INIT;
    sem_init(&bank.closed, 0, 0);
    printf("on threads: %d was paid in, %d is there\n\n", CASHIERS * PAYMENTS * AMOUNT, run_for_real(&bank));

    /* Finds the bug: tries seeds until a run fails. */
    options.check = audit;
    options.stall = 20;
    options.clock_jump = 20;
    options.jump_ns = FILCH_MILLISECONDS(30);
    if (filch_sim_sweep(&options, 1, 10000, open_bank, &bank, &found)) return 1;
    printf("after %d runs, seed %d: %s\n", (int)found.runs, (int)found.seed, found.text);

    /* Replays the failing run with its seed, which gives the same run again. Prints only the last events of the run. */
    options.seed = found.seed;
    options.chart_events = 24;
    if (filch_sim_run(&options, open_bank, &bank, &again)) return 1;
    printf("\n%s\n", again.chart);
    int replayed = found.verdict == FILCH_SIM_FAILED && again.hash == found.hash;

    /* Runs the version without the bug with 1000 seeds. */
    bank.careful = 1;
    if (filch_sim_sweep(&options, 1, 1000, open_bank, &bank, &cured)) return 1;
    printf("cured: %d runs, %s\n", (int)cured.runs, cured.verdict == FILCH_SIM_OK ? "all well" : cured.text);
    int survived = cured.verdict == FILCH_SIM_OK;
    filch_sim_report_free(&found);
    filch_sim_report_free(&again);
    filch_sim_report_free(&cured);
    return replayed && survived ? 0 : 1;
}
