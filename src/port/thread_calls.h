/* thread_calls.h - the operations on locks, conditions, parkers and threads. Included by thread.h, after its types; the
 * simulator and the explorer have types of their own (src/sim/seam, src/sim/weakseam) and the same operations. */
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
/* Waits until `cond` is signalled, or until the monotonic clock reads `until_ns` (UINT64_MAX: for ever). Returns false
 * if the time is up. */
bool fli_cond_wait_until(fli_cond *cond, fli_mutex *mutex, uint64_t until_ns);

filch_err fli_parker_init(fli_parker *parker);
void      fli_parker_fini(fli_parker *parker);
/* Ends the current or the next wait of the parker's thread. Thread: any. */
void fli_unpark(fli_parker *parker);
/* Waits for fli_unpark(), or until the monotonic clock reads `until_ns` (UINT64_MAX: for ever). Returns false when the
 * time is up. Thread: the thread that owns the parker. */
bool fli_park(fli_parker *parker, uint64_t until_ns);

/* Starts a thread that blocks all signals, so that the host program's handlers never run on it. `name` has up to 15
 * bytes. Timed waits of the thread have no timer slack: they end as soon after their time as the system can. */
filch_err fli_thread_start(fli_thread *thread, const char *name, void (*run)(void *arg), void *arg);
void      fli_thread_join(fli_thread *thread);

/* State of a thread, as reported by the system. */
typedef enum fli_thread_mood {
    FLI_THREAD_UNKNOWN,
    FLI_THREAD_RUNS,  /* the thread runs, or would run if it had a CPU */
    FLI_THREAD_SLEEPS /* the thread is blocked in the kernel, or stopped */
} fli_thread_mood;
/* Returns the state of a thread that has been started and not joined. *cpu_ns is the CPU time the thread has used;
 * 0: unknown. */
fli_thread_mood fli_thread_look(fli_thread *thread, uint64_t *cpu_ns);

/* Asks the system to run the calling thread soon after it is woken, and to give it shorter time slices while other
 * threads need its CPU; its share of the CPU time does not change. Threads and programs that the calling thread starts
 * do not inherit this setting. A hint: has no effect if the system does not support or allow it. */
void fli_thread_prompt(void);

void fli_thread_yield(void);

/* Returns the system's process id of this program; a forked child has another id. */
uint64_t fli_program_self(void);

#endif
