/* Counts what budgets refuse, and describes the budgets. */
#include "master/request/budgets.h"

#include <inttypes.h>

#include "common/base/metrics.h"

static const char *const names[N_BUDGETS] = {"sessions",         "steps", "session_steps",
                                             "session_clusters", "nodes", "fold_ms"};

#define REFUSAL(name_)                                                                          \
    {                                                                                           \
        .kind = METRIC_COUNTER, .name = "millrace_refused_total",                               \
        .labels = "budget=\"" name_ "\"",                                                       \
        .help = "Sessions, steps and graphs refused by a budget; compiled steps whose folding " \
                "ended early"                                                                   \
    }
static struct metric refused[N_BUDGETS] = {
    [BUDGET_SESSIONS] = REFUSAL("sessions"),
    [BUDGET_STEPS] = REFUSAL("steps"),
    [BUDGET_SESSION_STEPS] = REFUSAL("session_steps"),
    [BUDGET_SESSION_CLUSTERS] = REFUSAL("session_clusters"),
    [BUDGET_NODES] = REFUSAL("nodes"),
    [BUDGET_FOLD] = REFUSAL("fold_ms"),
};

void budgets_register_metrics(void) {
    for (int i = 0; i < N_BUDGETS; i++)
        metrics_register(&refused[i]);
}

void budget_count(enum budget budget) { metric_add(&refused[budget], 1); }

struct status *budget_refused(enum budget budget, struct status *why_take) {
    budget_count(budget);
    return why_take;
}

void budgets_describe(const struct budget_row rows[N_BUDGETS], struct str *out) {
    str_add_char(out, '{');
    for (int i = 0; i < N_BUDGETS; i++) {
        str_addf(out, "%s\"%s\": {\"limit\": %" PRId64, i ? ", " : "", names[i], rows[i].limit);
        if (rows[i].in_use >= 0)
            str_addf(out, ", \"in_use\": %" PRId64, rows[i].in_use);
        str_addf(out, ", \"refused\": %" PRId64 "}", metric_get(&refused[i]));
    }
    str_add_char(out, '}');
}
