/* A cluster in one process, in virtual time: the daemons' own objects over a simulated system.
 *
 *   production   master/ worker/ kernels/ rpc/ client/ common/        linked as they are
 *   ─────────────────────────────────────────────────────────────
 *   uv.c         libuv's calls: a loop that is one process of the simulation        (instead of
 *                libuv)
 *   network.c    sockets, links between hosts         ┐
 *   system.c     clock, randomness, thread identity   ┘ behind the system's own calls   (ld --wrap)
 *   pool.c       pool and I/O threads: jobs are events                              (instead of
 *                common/base/pool.c)
 *   log.c        log lines: part of the trace                                       (instead of
 *                common/base/log.c)
 *   scheduler.c  events in virtual time; the seed decides the order of events of the same moment
 *   process.c    processes: a coroutine each; they may be killed, stopped and continued
 *
 * One thread. All random numbers are drawn from the seed, so a seed repeats a run: the same events
 * in the same order. A hash of the trace shows that two runs are the same. */
#ifndef MILLRACE_TESTS_SIM_SIM_H
#define MILLRACE_TESTS_SIM_SIM_H

#include <netinet/in.h>
#include <ucontext.h>

#include "common/base/list.h"
#include "common/base/str.h"

enum {
    SIM_MAX_HOSTS = 16,
    SIM_MAX_PROCESSES = 512, /* over a run: a restart is another process */
    SIM_MAX_FDS = 512,       /* of one process */
    SIM_FIRST_FD = 1 << 20,  /* below: the real system's. A multiple of SIM_MAX_FDS */
    SIM_MAX_THREADS = 16,
};

static const int64_t SIM_US = 1000, SIM_MS = 1000000, SIM_SECOND = 1000000000;

/* ---- scheduler.c ---- */

/* Random numbers for the schedule, the network, the faults and the processes, from one seed. */
uint64_t sim_random(void);
uint64_t sim_below(uint64_t n);                 /* 0 … n - 1 */
int64_t sim_between(int64_t low, int64_t high); /* both included */
bool sim_chance(int per_thousand);
int64_t sim_now_ns(void);
void sim_pass(int64_t ns); /* advances the time within an event */
/* Calls run(arg, number) at `when_ns`, or at once when that time has passed. */
void sim_at(int64_t when_ns, void (*run)(void *arg, uint64_t number), void *arg, uint64_t number);
void sim_begin(uint64_t seed, bool is_traced);
/* Runs events until `is_over` returns true, or until `end_ns`. Returns what `is_over` says. */
bool sim_run_until(bool (*is_over)(void), int64_t end_ns);
uint64_t sim_trace_hash(void);
/* Adds an event to the trace and to its hash. --trace shows it. */
void sim_trace(const char *format, ...) PRINTF_LIKE(1, 2);
/* Is the trace shown? For output that must not be in the hash, because it differs from run to run
 * (addresses). */
bool sim_is_traced(void);
/* Reports a broken invariant with the seed, and ends the run. */
void sim_fail(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));
extern void (*sim_on_fail)(const char *message); /* reports and does not return */

/* ---- process.c ---- */

struct sim_loop;
struct sim_socket;

struct sim_process {
    int id, host;
    char name[48];
    bool is_alive;   /* false: killed, or its main has returned */
    bool is_stopped; /* SIGSTOP */
    bool has_vanished;
    int signal;     /* a signal that it has not taken yet; 0: none */
    int sends_left; /* the last of these sends calls on_last_send; 0: never */
    void (*on_last_send)(struct sim_process *process);
    bool is_woken;            /* an event that resumes it is scheduled, or waits for SIGCONT */
    uint64_t n_parks;         /* a wake-up is for one park */
    bool is_parked;           /* it waits */
    struct sim_loop *polling; /* … in this loop; NULL: it sleeps */
    int64_t clock_offset_us;  /* how much its wall clock is ahead */
    struct sim_socket *sockets[SIM_MAX_FDS];
    uint16_t next_port;
    /* struct job of process.c: the jobs of its threads, while it is stopped */
    struct list held;
    void (*main)(void *arg);
    void *arg;
    ucontext_t context;
    void *stack;
    void *fake_stack; /* AddressSanitizer's */
};

extern struct sim_process *sim_current; /* whose code runs; NULL: the scheduler's own */
extern int sim_thread;                  /* of the current process; 0: its loop's */

/* Starts a process; `main` runs as an event of its own. The address of `host`, which is 0 …
 * SIM_MAX_HOSTS - 1, is 10.0.0.(host + 1). */
struct sim_process *sim_process_new(const char *name, int host, void (*main)(void *arg), void *arg);
/* Kills the process as SIGKILL does: it sends nothing more, and its kernel closes its sockets. A
 * process that kills itself computes until its next wait, without effect. With `is_vanished` it
 * ends as in a power cut of its host, without a word to its peers. */
void sim_process_kill(struct sim_process *process, bool is_vanished);
void sim_process_stop(struct sim_process *process);
void sim_process_signal(struct sim_process *process, int signo);
void sim_process_continue(struct sim_process *process);
/* Resumes the process after the delay, because something that it may wait for has happened. */
void sim_process_wake(struct sim_process *process, int64_t delay_ns);
/* The process at a host, or NULL. */
struct sim_process *sim_process_at(int host);
bool sim_host_is_off(int host); /* its process has vanished, and no other has started */

/* Makes the calling process wait until it is woken, or until `deadline_ns` (INT64_MAX: for ever).
 * Does not return when the process has been killed. */
void sim_process_park(struct sim_loop *loop, int64_t deadline_ns);
/* Runs a job of one of the process' threads: now, or when the process is no longer stopped. A dead
 * process runs nothing. */
void sim_process_run(struct sim_process *process, int thread, void (*run)(void *arg), void *arg);
/* Sleeps without a loop: for scripts of clients. */
void sim_sleep(int64_t ns);

/* ---- network.c ---- */

struct sim_link {
    int64_t latency_ns, jitter_ns;
    bool is_cut;
};
void sim_network_begin(void);
struct sim_link *sim_link_between(int from_host, int to_host);
/* After a cut, waiting segments are sent without further calls, as retransmissions are. */

void sim_sockets_of_dead(struct sim_process *process, bool is_vanished);
/* Resets a random connection of the process, as a middlebox might. Returns false when the process
 * has no connection. */
bool sim_reset_some_connection(struct sim_process *process);
struct sim_socket *sim_socket_of(int fd); /* of the current process; NULL: EBADF */
/* The events that poll would report: POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP. */
int sim_socket_events(const struct sim_socket *socket);

/* ---- uv.c ---- */
bool sim_loop_is_ready(const struct sim_loop *loop);

#endif
