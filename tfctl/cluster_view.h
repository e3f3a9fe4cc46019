/* What a master's pages say about its cluster, and what of it is not well. For `tfctl status` and
 * `tfctl top`. */
#ifndef MILLRACE_TFCTL_CLUSTER_VIEW_H
#define MILLRACE_TFCTL_CLUSTER_VIEW_H

#include "rpc/daemon/page_read.h"
#include "tfctl/page_source.h"

struct cluster_view {
    struct page_value *index, *status, *sessions, *steps; /* the pages /, /statusz, … */
    bool is_ready;                                        /* /readyz says so */
    struct str ready;                                     /* what it says */
};

/* Fetches the pages of a master. After an error there is nothing to free. Errors: UNAVAILABLE, no
 * connection; FAILED_PRECONDITION, it is no master; the page's. */
struct status *cluster_view_fetch(const struct page_source *source, const char *admin,
                                  struct cluster_view *ret) MUST_USE;
void cluster_view_fini(struct cluster_view *view);

struct cluster_counts {
    int64_t n_tasks, n_ready, n_sessions, n_running, n_steps, n_failed;
};
/* n_steps and n_failed are those of the sessions that are open. */
struct cluster_counts cluster_view_count(const struct cluster_view *view);
/* Is the task being drained on purpose, or has it left so? Then it is not counted. */
bool cluster_view_is_drained(const struct page_value *task);
/* The members of /statusz's service that are lists of tasks, and so on. */
const struct page_value *cluster_view_service(const struct cluster_view *view, const char *key);

/* Calls `add` with a line for each thing that is not well: the master is not ready, a task is down
 * or its clock is wrong, a limit is nearly reached, a certificate expires soon. */
void cluster_view_problems(const struct cluster_view *view,
                           void (*add)(void *arg, const char *problem), void *arg);

#endif
