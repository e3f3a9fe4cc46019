/* Keeps the set of values that a variable may have. */
#include "tests/sim/model.h"

void model_init(struct model *model) {
    model->n = 1;
    model->values[0] = MODEL_UNSET;
}

void model_lose(struct model *model) { model_init(model); }

static void add(struct model *model, int64_t value) {
    for (int i = 0; i < model->n; i++)
        if (model->values[i] == value)
            return;
    CHECK(model->n < MODEL_MAX_VALUES);
    model->values[model->n++] = value;
}

static int64_t after(enum model_op op, int64_t operand, int64_t value) {
    if (op == MODEL_SET)
        return operand;
    return op == MODEL_ADD && value != MODEL_UNSET ? value + operand : value;
}

/* Whether the outcome can be had from `value`. */
static bool explains(enum model_op op, int64_t operand, int64_t value, enum model_outcome outcome,
                     int64_t result) {
    if (outcome == MODEL_WAS_UNSET)
        return value == MODEL_UNSET && op != MODEL_SET;
    return op == MODEL_SET || (value != MODEL_UNSET && after(op, operand, value) == result);
}

bool model_apply(struct model *model, enum model_op op, int64_t operand, enum model_outcome outcome,
                 int64_t result, bool may_be_lost) {
    struct model before = *model;
    bool is_explained = outcome == MODEL_UNKNOWN;
    if (may_be_lost)
        add(&before, MODEL_UNSET);
    model->n = 0;
    for (int i = 0; i < before.n; i++) {
        if (outcome == MODEL_UNKNOWN) {
            add(model, before.values[i]);
            add(model, after(op, operand, before.values[i]));
        } else if (explains(op, operand, before.values[i], outcome, result)) {
            is_explained = true;
            add(model,
                outcome == MODEL_DONE ? after(op, operand, before.values[i]) : before.values[i]);
        }
    }
    if (!is_explained) {
        *model = before;
        return false;
    }
    if (may_be_lost) { /* it was done before the restart, which took it away; or after */
        model_init(model);
        if (op == MODEL_SET)
            add(model, operand);
    }
    return true;
}
