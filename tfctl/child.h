/* A process that tfctl starts: a daemon, a probe, or the user's command.
 *
 * The kernel kills it when its parent dies (PR_SET_PDEATHSIG), so it never outlives tfctl. The
 * signal is sent when the parent's *thread* ends: start children from a thread that lives as
 * long as they should. The parent has SIGCHLD blocked and reaps its children. */
#ifndef MILLRACE_TFCTL_CHILD_H
#define MILLRACE_TFCTL_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct child {
    const char *name;  /* "ps/0", for messages */
    char *const *argv; /* argv[0] is found along PATH when it has no '/' */
    /* true for the user's command: it has our process group, stdin, stdout and stderr. Others
     * have a group of their own and a pipe. */
    bool is_foreground;
    const sigset_t *mask; /* the signal mask it starts with */
    pid_t pid;            /* 0 while it does not run */
    /* not foreground: read end of its stdout and stderr, non-blocking; else and after its end -1 */
    int output_fd;
};

/* Starts it. Errors: UNAVAILABLE, which names the program and the reason; *ret_errno is then the
 * errno of exec, or 0. */
struct status *child_start(struct child *child, int *ret_errno) MUST_USE;
void child_signal(const struct child *child, int signo); /* does nothing when it is not running */
/* Appends "exited with status 1" or "was killed by signal 9 (Killed)". */
void child_describe_end(int wait_status, struct str *out);
int child_exit_code(int wait_status); /* as a shell has it: 128 + signal for a killed one */

/* Sends `signo` (0: none) to each child of this process that is not in `except`, and returns how
 * many there are. The children are those it started and, because it is a child subreaper, their
 * orphans. */
int children_signal(int signo, const pid_t *except, int n_except);
/* Kills and reaps until this process has no children. */
void children_end(void);

#endif
