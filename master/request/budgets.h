/* The budgets of a master: limits on what its clients can make grow.
 *
 * Limits on connections and messages are in rpc/grpc/grpc_limits.h. Each budget has a flag, is
 * shown on /statusz, and has a counter in /metrics of what was refused because of it. Any
 * thread. */
#ifndef MILLRACE_MASTER_REQUEST_BUDGETS_H
#define MILLRACE_MASTER_REQUEST_BUDGETS_H

#include "common/base/status.h"
#include "common/base/str.h"

enum budget {
    BUDGET_SESSIONS,
    BUDGET_STEPS,            /* in flight, of all sessions */
    BUDGET_SESSION_STEPS,    /* in flight, of one session */
    BUDGET_SESSION_CLUSTERS, /* clusters that sessions have brought */
    BUDGET_NODES,            /* of one session's graph; also its constants and lists */
    /* of folding in one compiled step: nothing is refused, but nodes stay unfolded */
    BUDGET_FOLD,
    N_BUDGETS
};

/* One row of /statusz. */
struct budget_row {
    int64_t limit, in_use; /* in_use -1: not counted */
};

void budgets_register_metrics(void);
/* Counts a refusal and returns the status that it was given. */
struct status *budget_refused(enum budget budget, struct status *why_take) MUST_USE;
/* Counts a refusal. */
void budget_count(enum budget budget);
/* Appends a JSON object with a member for each budget. */
void budgets_describe(const struct budget_row rows[N_BUDGETS], struct str *out);

#endif
