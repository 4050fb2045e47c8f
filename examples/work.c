/* work.c - blocking functions run on the work pool, and their results come back as events.
 *
 * A step must never block, because it occupies one of a few threads. Blocking calls (a database, a file, a library) are
 * made by filch_yield_work. Here the process makes five requests at once; each takes 20 ms, and the pool has four
 * threads. The process itself uses no thread while it waits.
 */
#define _POSIX_C_SOURCE 200809L
#include <filch.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define QUESTIONS 5
#define NOT_FOUND (FILCH_EUSER + 404) /* codes from FILCH_EUSER up belong to the program */

static const char *const countries[QUESTIONS] = { "Norway", "Kenya", "Atlantis", "Japan", "Peru" };
static const char *const capitals[QUESTIONS] = { "Oslo", "Nairobi", NULL, "Tokyo", "Lima" };

/* Runs on a thread of the pool. The result and the returned error code complete the yield. */
static filch_err look_up(void *arg, filch_data *result)
{
    const char     *country = arg;
    struct timespec slow = { 0, 20 * 1000 * 1000 };
    nanosleep(&slow, NULL);
    for (int i = 0; i < QUESTIONS; i++) {
        if (capitals[i] == NULL || strcmp(country, countries[i]) != 0) continue;
        *result = filch_str(capitals[i]);
        return FILCH_OK;
    }
    return NOT_FOUND;
}

struct requester {
    int  answers, right;
    char lines[QUESTIONS][40];
};

static filch_err ask(filch_out *out)
{
    for (int i = 0; i < QUESTIONS; i++) {
        /* The tag tells to which request a completion belongs, because completions come in any order. */
        filch_err err = filch_yield_work(out, (uint64_t)i, look_up, (void *)countries[i]);
        if (err != FILCH_OK) return err;
    }
    return filch_wait(out);
}

static filch_err requester_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct requester *a = self;
    if (count == 0) return ask(out);
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        uint64_t    which = events[i].tag;
        const char *answer = events[i].error == FILCH_OK ? filch_text(&events[i].data) : "no such country";
        int         found = events[i].error == FILCH_OK && strcmp(answer, capitals[which]) == 0;
        snprintf(a->lines[which], sizeof a->lines[which], "%-9s %s", countries[which], answer);
        a->right += found || (events[i].error == NOT_FOUND && capitals[which] == NULL);
        a->answers++;
    }
    if (a->answers < QUESTIONS) return filch_wait(out);
    for (int i = 0; i < QUESTIONS; i++) puts(a->lines[i]);
    return filch_done(out, filch_int(a->right));
}

static const filch_type requester = { .name = "requester", .size = sizeof(struct requester), .step = requester_step };

static sem_t over;

static void on_exit_of_requester(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    *(int *)user = error == FILCH_OK ? (int)filch_as_int(result) : -1;
    sem_post(&over);
}

int main(void)
{
    int                 right = -1;
    filch_spawn_options options = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    sem_init(&over, 0, 0);
    options.on_exit = on_exit_of_requester;
    options.on_exit_user = &right;
    if (filch_sched_create(&sched, NULL) || filch_spawn(sched, &requester, &options, NULL)) return 1;
    while (sem_wait(&over) != 0) {}
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL) != FILCH_OK || right != QUESTIONS;
}
