/* What clients can make grow in a master, apart from connections and messages
 * (rpc/grpc/grpc_limits.h): each has a flag, is shown on /statusz and counted in /metrics when
 * something is refused because of it. */
#ifndef MILLRACE_MASTER_REQUEST_BUDGETS_H
#define MILLRACE_MASTER_REQUEST_BUDGETS_H

#include "common/base/status.h"
#include "common/base/str.h"

enum budget {
    BUDGET_SESSIONS,
    BUDGET_STEPS,         /* in flight, of all sessions */
    BUDGET_SESSION_STEPS, /* in flight, of one session */
    BUDGET_NODES,         /* of one session's graph; also its constants and lists */
    /* time and bytes of folding in one compiled step: refuses nothing, but leaves nodes unfolded */
    BUDGET_FOLD,
    N_BUDGETS
};

/* One row of /statusz. */
struct budget_row {
    int64_t limit, in_use; /* in_use -1: not counted */
};

void budgets_register_metrics(void);
/* Counts, and hands the status on. Any thread. */
struct status *budget_refused(enum budget budget, struct status *why_take) MUST_USE;
void budget_count(enum budget budget);
/* Appends a JSON object with a member for each budget. */
void budgets_describe(const struct budget_row rows[N_BUDGETS], struct str *out);

#endif
