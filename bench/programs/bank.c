/* bank.c - 100 tellers transfer money among 1,000 accounts, one transfer at a time each. A teller sends the order to
 * the account that pays, that account sends the money on, and the account that receives it replies to the teller:
 * three messages, two of them of 24 bytes. --size is the number of transfers. */
#include "programs.h"

#include <string.h>

enum { ACCOUNTS = 1000, TELLERS = 100, FIRST_BALANCE = 1000 };

static filch_pid accounts[ACCOUNTS];

/* In a message to the account that pays, `peer` is the account to be paid, and `amount` is above 0. In a message to the
 * account that is paid, `peer` is the teller, and `amount` is below 0. */
struct order {
    filch_pid peer;
    int64_t   amount;
};

struct account {
    int64_t balance;
};

static filch_err account_order(struct account *account, const filch_event *event, filch_out *out)
{
    struct order order;
    memcpy(&order, filch_raw(&event->data), sizeof order);
    if (order.amount < 0) {
        account->balance -= order.amount;
        return send_to(out, order.peer, filch_int(1));
    }
    if (order.amount > account->balance) return send_to(out, event->from, filch_int(0));
    account->balance -= order.amount;
    struct order credit = { event->from, -order.amount };
    return send_to(out, order.peer, filch_bytes(&credit, sizeof credit));
}

static filch_err account_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct account *account = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        if (filch_size(&events[i].data) != sizeof(struct order)) { /* the bank closes */
            report(account->balance);
            return filch_done(out, filch_none());
        }
        filch_err err = account_order(account, &events[i], out);
        if (err != FILCH_OK) return err;
    }
    return filch_idle(out);
}

struct teller {
    uint64_t left, random;
    int64_t  answered;
};

static filch_err teller_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct teller *teller = self;
    if (count > 0) {
        if (events[0].type != FILCH_EVENT_MESSAGE) return FILCH_ECANCELLED;
        teller->answered++;
    }
    if (teller->left == 0) {
        report(teller->answered);
        return filch_done(out, filch_none());
    }
    teller->left--;
    uint64_t     from = bench_random(&teller->random) % ACCOUNTS;
    uint64_t     to = (from + 1 + bench_random(&teller->random) % (ACCOUNTS - 1)) % ACCOUNTS;
    struct order order = { accounts[to], 1 + (int64_t)(bench_random(&teller->random) % 100) };
    filch_err    err = send_to(out, accounts[from], filch_bytes(&order, sizeof order));
    return err != FILCH_OK ? err : filch_idle(out);
}

static const filch_type account_type = {
    .name = "account", .size = sizeof(struct account), .init = copy_state, .step = account_step
};
static const filch_type teller_type = {
    .name = "teller", .size = sizeof(struct teller), .init = copy_state, .step = teller_step
};

bool bank(uint64_t variant)
{
    (void)variant;
    uint64_t each = run.size / TELLERS + 1;
    bench_start(&run, NULL);
    for (int i = 0; i < ACCOUNTS; i++) accounts[i] = start(&account_type, &(struct account){ FIRST_BALANCE });
    bench_quiet(&run);
    expect_results(TELLERS);
    bench_begin(&run);
    for (uint64_t i = 0; i < TELLERS; i++) start(&teller_type, &(struct teller){ each, 7919 * (i + 1), 0 });
    int64_t answered = wait_for_results();
    bench_end(&run, TELLERS * each);
    expect_results(ACCOUNTS);
    for (int i = 0; i < ACCOUNTS; i++) bench_send(&run, accounts[i], filch_none());
    return wait_for_results() == ACCOUNTS * FIRST_BALANCE && answered == (int64_t)(TELLERS * each);
}
