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
 *   scheduler.c  events in virtual time; what happens at one moment happens in an order drawn from
 *                the seed
 *   process.c    processes: a coroutine each; they may be killed, stopped, and go on
 *
 * One thread. All that is random comes from the seed, so a seed is a run: the same events in the
 * same order, told by one hash. */
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

/* Draws: of the schedule, the network, the faults and the processes' own randomness, all from
 * one seed. */
uint64_t sim_random(void);
uint64_t sim_below(uint64_t n);                 /* 0 … n - 1 */
int64_t sim_between(int64_t low, int64_t high); /* both included */
bool sim_chance(int per_thousand);
int64_t sim_now_ns(void);
void sim_pass(int64_t ns); /* time goes on inside an event */
/* Calls run(arg, number) at `when_ns`, or as soon as time has come so far. */
void sim_at(int64_t when_ns, void (*run)(void *arg, uint64_t number), void *arg, uint64_t number);
void sim_begin(uint64_t seed, bool is_traced);
/* Runs events until `is_over`, or until `end_ns`. False: it was not over then. */
bool sim_run_until(bool (*is_over)(void), int64_t end_ns);
uint64_t sim_trace_hash(void);
/* An event of the trace: part of its hash, and shown with --trace. */
void sim_trace(const char *format, ...) PRINTF_LIKE(1, 2);
/* Like it, but only shown: for what is not the same in each run (addresses). */
bool sim_is_traced(void);
/* An invariant is broken: says so, with the seed, and ends this run. */
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
    int signal;     /* that it has not taken yet; 0: none */
    int sends_left; /* then on_last_send is called, inside the call that sends; 0: never */
    void (*on_last_send)(struct sim_process *process);
    bool is_woken;            /* an event that resumes it is on its way, or waits for SIGCONT */
    uint64_t n_parks;         /* a wake-up is for one of them */
    bool is_parked;           /* it waits */
    struct sim_loop *polling; /* … in this loop; NULL: it sleeps */
    int64_t clock_offset_us;  /* its wall clock is ahead by so much */
    struct sim_socket *sockets[SIM_MAX_FDS];
    uint16_t next_port;
    /* struct job, of process.c: what its threads were to do while it is stopped */
    struct list held;
    void (*main)(void *arg);
    void *arg;
    ucontext_t context;
    void *stack;
    void *fake_stack; /* AddressSanitizer's */
};

extern struct sim_process *sim_current; /* whose code runs; NULL: the scheduler's own */
extern int sim_thread;                  /* of the current process; 0: its loop's */

/* Its main runs as an event of its own. `host`: 0 … SIM_MAX_HOSTS - 1, whose address is
 * 10.0.0.(host + 1). */
struct sim_process *sim_process_new(const char *name, int host, void (*main)(void *arg), void *arg);
/* As SIGKILL: nothing of it leaves from now on, and its kernel closes its sockets. A process
 * that kills itself goes on computing until it waits next, for nobody. `is_vanished`: as a power
 * cut of its host, the sockets say nothing to anybody. */
void sim_process_kill(struct sim_process *process, bool is_vanished);
void sim_process_stop(struct sim_process *process);
void sim_process_signal(struct sim_process *process, int signo);
void sim_process_go_on(struct sim_process *process);
/* Something that it may wait for has happened. */
void sim_process_wake(struct sim_process *process, int64_t delay_ns);
/* The process at a host; NULL: there is none. */
struct sim_process *sim_process_at(int host);
bool sim_host_is_off(int host); /* its process vanished, and there is no other yet */

/* Called by a process: it waits until it is woken, or until `deadline_ns` (INT64_MAX: for ever).
 * Does not return to one that was killed. */
void sim_process_park(struct sim_loop *loop, int64_t deadline_ns);
/* Runs a job of one of its threads now, or when it is no longer stopped; not at all once it is
 * dead. */
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
/* All that waits behind a cut goes on by itself, as retransmissions do. */

void sim_sockets_of_dead(struct sim_process *process, bool is_vanished);
/* Resets one connection of the process, drawn at random, as a middlebox might. False: it has
 * none. */
bool sim_reset_some_connection(struct sim_process *process);
struct sim_socket *sim_socket_of(int fd); /* of the current process; NULL: EBADF */
/* What a poll would say: POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP. */
int sim_socket_events(const struct sim_socket *socket);

/* ---- uv.c ---- */
bool sim_loop_is_ready(const struct sim_loop *loop);

#endif
