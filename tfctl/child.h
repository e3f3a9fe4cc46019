/* A process that tfctl starts: a daemon, a probe, or the user's command.
 *
 * It is killed by the kernel when its parent dies (PR_SET_PDEATHSIG), so that no way of ending
 * tfctl leaves it behind. That signal follows the parent's *thread*: start children from a
 * thread that lives as long as they should. The parent has SIGCHLD blocked and reaps. */
#ifndef MILLRACE_TFCTL_CHILD_H
#define MILLRACE_TFCTL_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct child {
    const char *name;  /* "ps/0"; for people */
    char *const *argv; /* argv[0] is found along PATH when it has no '/' */
    /* the user's command: our process group, our stdin, stdout and stderr; else its own group
     * and a pipe */
    bool is_foreground;
    const sigset_t *mask; /* the signal mask it starts with */
    pid_t pid;            /* 0 while it does not run */
    /* not foreground: read end of its stdout and stderr, non-blocking; else and after its end -1 */
    int output_fd;
};

/* Errors: UNAVAILABLE naming the program and the reason; *ret_errno is then why exec failed, or
 * 0. */
struct status *child_start(struct child *child, int *ret_errno) MUST_USE;
void child_signal(const struct child *child, int signo); /* nothing while it does not run */
/* "exited with status 1", "was killed by signal 9 (Killed)". */
void child_describe_end(int wait_status, struct str *out);
int child_exit_code(int wait_status); /* as a shell has it: 128 + signal for a killed one */

/* The processes whose parent is this one: those it started and, as it is a child subreaper,
 * orphans of those. Sends `signo` (0: none) to each that is not in `except`; returns how many
 * there are. */
int children_signal(int signo, const pid_t *except, int n_except);
/* Kills and reaps until this process has no children. */
void children_end(void);

#endif
