/* thread_calls.h - what can be done with a lock, a condition, a bell and a thread. Included by thread.h, behind its types;
 * the simulator and the explorer have types of their own (src/sim/seam, src/sim/weakseam) and the same calls. */
#ifndef FLI_PORT_THREAD_CALLS_H
#define FLI_PORT_THREAD_CALLS_H

filch_err fli_mutex_init(fli_mutex *mutex);
void      fli_mutex_fini(fli_mutex *mutex);
void      fli_mutex_lock(fli_mutex *mutex);
bool      fli_mutex_try_lock(fli_mutex *mutex);
void      fli_mutex_unlock(fli_mutex *mutex);

filch_err fli_cond_init(fli_cond *cond);
void      fli_cond_fini(fli_cond *cond);
void      fli_cond_signal(fli_cond *cond);
void      fli_cond_broadcast(fli_cond *cond);
void      fli_cond_wait(fli_cond *cond, fli_mutex *mutex);
/* Until signalled or until the monotonic clock reads `until_ns` (UINT64_MAX: for ever). False when the time is up. */
bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);

filch_err fli_parker_init(fli_parker *parker);
void      fli_parker_fini(fli_parker *parker);
/* Thread: any. */
void fli_unpark(fli_parker *parker);
/* Until it rings or the monotonic clock reads `until_ns` (UINT64_MAX: for ever). False when the time is up. Thread: the
 * listener. */
bool fli_park(fli_parker *parker, uint64_t until_ns);

/* Starts a thread that takes no signals, so that the host program's handlers never run on it. `name` up to 15 bytes.
 * Its timed waits end as soon after their time as the system can: no slack is added. */
filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg);
void      fli_thread_join(fli_thread *thread);

/* What a thread does now, as far as the system tells. */
typedef enum fli_thread_mood {
    FLI_THREAD_UNKNOWN,
    FLI_THREAD_RUNS, /* or would, if the system gave it a processor */
    FLI_THREAD_SLEEPS /* in a system call, or stopped */
} fli_thread_mood;
/* Looks at a thread that has been started and not joined. *cpu_ns is the CPU time it has used; 0: unknown. */
fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns);

/* The calling thread wants to start as soon as somebody calls it, and takes shorter turns for that where it has to share
 * a processor: its share stays what it was. Threads and programs that it starts do not inherit the wish. A wish: where the
 * system does not know it, or may not be asked, nothing changes. */
void fli_thread_prompt(void);

void fli_thread_yield(void);

/* The number of this program among those that run: another one after a fork. */
uint64_t fli_program_self(void);

#endif
