/* The shapes that values are taken to have, for estimates (cost_estimate.h): the static shapes
 * where those are full. Others have sizes that only a step knows: a client feeds batches of any
 * size, a dataset does not say its sizes. Such a size is what sampled steps have measured of the
 * node (cost_table.h), else a guess. The shape functions carry it on to the nodes behind it, so a
 * batch has one size in all of the step.
 *
 *   _feed_x_0 [?,784] ─ measured ─► [128,784] ─► MatMul [128,1024] ─► Relu [128,1024]
 *
 * For the compiler's rooms. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_COST_EXPECTED_SHAPES_H
#define MILLRACE_MASTER_COMPILE_COST_EXPECTED_SHAPES_H

#include "master/compile/compilation.h"
#include "master/compile/cost/cost_table.h"

/* A value of which sampled steps measure the sizes, since its inputs' shapes do not tell them:
 * output 0 of a node. */
struct compiled_size {
    const char *node;   /* its name in traces; NULL for a feed */
    int feed;           /* position in the signature */
    const char *key;    /* the beginning of its keys (cost_size_key_write) */
    struct shape known; /* the static shape */
};

/* The shapes of c->graph, inferred at the first call after a change, as compilation_shapes.
 * Borrowed until the next of these calls. */
const struct graph_shapes *expected_shapes(struct compilation *c);
/* Do the shapes of the node's outputs come from a guess? Only after expected_shapes. */
bool expected_is_guessed(const struct compilation *c, const struct node *node);
/* The shape with a guess in place of each unknown size, in the arena. */
struct shape expected_full_shape(struct arena *arena, struct shape shape);

/* Hands the list of values to measure on to the result. */
void expected_sizes_keep(struct compilation *c, struct compiled *compiled);
/* Puts measured sizes of a value into the table; `n` steps or executions had them on average. Any
 * thread. */
void expected_size_note(const struct compiled_size *size, const double *dims, int rank, int64_t n,
                        struct cost_table *table);

#endif
