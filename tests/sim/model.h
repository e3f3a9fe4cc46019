/* What a variable may hold, as its one writer knows: a set of values. An answer narrows it, a
 * failure that does not say whether the step was done widens it, and an answer that no value of
 * the set explains is a broken promise: a step lost, done twice, or done after its end.
 */
#ifndef MILLRACE_TESTS_SIM_MODEL_H
#define MILLRACE_TESTS_SIM_MODEL_H

#include "common/base/base.h"

#define MODEL_UNSET INT64_MIN

enum { MODEL_MAX_VALUES = 256 };
enum model_op { MODEL_SET, MODEL_ADD, MODEL_READ };
enum model_outcome { MODEL_DONE, MODEL_UNKNOWN, MODEL_WAS_UNSET };

struct model {
    int64_t values[MODEL_MAX_VALUES];
    int n;
};

void model_init(struct model *model); /* unset */
/* The task has restarted while nothing was under way. */
void model_lose(struct model *model);
/* `may_be_lost`: the task was restarted while the step ran. False: no value explains the
 * outcome; `result` of an add or a read. */
bool model_apply(struct model *model, enum model_op op, int64_t operand, enum model_outcome outcome,
                 int64_t result, bool may_be_lost);

#endif
