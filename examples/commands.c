/* commands.c - a command of your own: a process yields it, a thread of yours completes it.
 *
 * The built-in commands (sleep, timer, work, send) are handlers in a registry. An application adds its own, from
 * FILCH_CMD_USER up. A handler starts the work and returns at once; the thread that has the result, any thread, passes
 * it to filch_complete. That is how a database client or a device is connected. Here the service is one thread with a
 * queue that turns text into capitals.
 */
#include <ctype.h>
#include <filch.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CMD_SHOUT = FILCH_CMD_USER };

/* ---- the service: a thread and its queue ---- */

struct request {
    struct request *next;
    filch_receiver  receiver; /* identifies the yield in the call of filch_complete() */
    uint64_t        tag;
    filch_data      text;
};

static struct service {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    struct request *first, **end;
    int             closing;
} service = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .end = &service.first };

/* The handler. Runs on a worker right after the step that made the yield, so it must not block. */
static filch_err on_shout(void *user, const filch_command *command, uint64_t tag, filch_receiver receiver)
{
    struct service *s = user;
    struct request *r = malloc(sizeof *r);
    if (r == NULL) return FILCH_ENOMEM; /* an error returned by a handler completes the yield with that error */
    *r = (struct request){ .receiver = receiver, .tag = tag };
    /* the command's payload is valid only during this call, so a reference is kept */
    filch_err err = filch_keep(&command->data, &r->text);
    if (err != FILCH_OK) {
        free(r);
        return err;
    }
    pthread_mutex_lock(&s->lock);
    *s->end = r;
    s->end = &r->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return FILCH_OK;
}

static void answer(struct request *r)
{
    char   loud[64];
    size_t n = 0;
    for (const char *c = filch_text(&r->text); *c != '\0' && n + 1 < sizeof loud; c++) {
        loud[n++] = (char)toupper((unsigned char)*c);
    }
    loud[n] = '\0';
    /* FILCH_ESTALE and FILCH_EDEAD mean that the process has ended. An error is only printed. */
    filch_err err = filch_complete(r->receiver, r->tag, filch_str(loud), FILCH_OK);
    if (err != FILCH_OK) fprintf(stderr, "commands: %s\n", filch_err_text(err));
    filch_drop(&r->text);
    free(r);
}

static void *serve(void *user)
{
    struct service *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct request *r = s->first;
        if (r == NULL && s->closing) break;
        if (r == NULL) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->first = r->next;
        if (s->first == NULL) s->end = &s->first;
        pthread_mutex_unlock(&s->lock);
        answer(r);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void service_stop(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = 1;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

/* ---- a process that uses the command ---- */

static const char *const quiet[] = { "one", "two", "three" };
static const char *const expected[] = { "ONE", "TWO", "THREE" };
enum { WORDS = sizeof quiet / sizeof quiet[0] };

struct shouter {
    size_t asked, right;
};

static filch_err shouter_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    struct shouter *s = self;
    for (size_t i = 0; i < count; i++) {
        if (events[i].type == FILCH_EVENT_CANCEL) return FILCH_ECANCELLED;
        if (events[i].error != FILCH_OK) return events[i].error;
        printf("%s -> %s\n", quiet[events[i].tag], filch_text(&events[i].data));
        s->right += strcmp(filch_text(&events[i].data), expected[events[i].tag]) == 0;
    }
    if (s->asked == WORDS) return filch_done(out, filch_int((int64_t)s->right));
    filch_err err = filch_yield(out, CMD_SHOUT, s->asked, filch_str(quiet[s->asked]));
    s->asked++;
    return err != FILCH_OK ? err : filch_wait(out);
}

static const filch_type shouter = { .name = "shouter", .size = sizeof(struct shouter), .step = shouter_step };

/* ---- main ---- */

static sem_t over;

static void on_exit_of_shouter(void *user, filch_pid pid, filch_err error, const filch_data *result)
{
    (void)pid;
    *(int *)user = error == FILCH_OK ? (int)filch_as_int(result) : -1;
    sem_post(&over);
}

int main(void)
{
    int                 right = -1;
    filch_options       options = FILCH_OPTIONS_INIT;
    filch_spawn_options how = FILCH_SPAWN_OPTIONS_INIT;
    filch_sched        *sched;
    how.on_exit = on_exit_of_shouter;
    how.on_exit_user = &right;

    sem_init(&over, 0, 0);
    if (filch_registry_create(&options.registry)) return 1;
    if (filch_registry_add(options.registry, CMD_SHOUT, on_shout, &service)) return 1;
    if (pthread_create(&service.thread, NULL, serve, &service) != 0) return 1;
    if (filch_sched_create(&sched, &options)) return 1; /* from now on no command can be added to the registry */
    /* the scheduler keeps a reference of its own to the registry */
    filch_registry_destroy(options.registry);
    if (filch_spawn(sched, &shouter, &how, NULL)) return 1;
    while (sem_wait(&over) != 0) {}

    /* The service stops first: its thread uses receivers, which are invalid once the scheduler is freed. */
    service_stop(&service);
    return filch_sched_stop(sched, FILCH_SECONDS(5), NULL) != FILCH_OK || right != WORDS;
}
