/* Estimates what computing a constant node would take, before it is computed. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_REWRITE_FOLD_LIMITS_H
#define MILLRACE_MASTER_COMPILE_REWRITE_FOLD_LIMITS_H

#include "common/graph/graph.h"

struct fold_limits {
    int64_t max_bytes; /* of one output, its strings included */
    double max_ns;     /* of the kernel, on one core */
    int producer;      /* the graph's producer version */
};

/* False when the node would exceed a limit, as far as its op, its attrs and its inputs tell. There
 * are node->n_data inputs, borrowed, which may be wrong in every way. `scratch` is cleared. */
bool fold_is_within(const struct fold_limits *limits, const struct node *node,
                    const struct tensor *inputs, struct arena *scratch);

/* The bytes of a value, its strings included. Counting ends beyond max_bytes, since a value may
 * have many millions of strings. */
int64_t fold_value_bytes(const struct tensor *value, int64_t max_bytes);

#endif
