/* What the rooms of the compiler share: the passes, and helpers on graphs. For these rooms and
 * their tests. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_COMPILATION_H
#define MILLRACE_MASTER_COMPILE_COMPILATION_H

#include "common/graph/control_flow.h"
#include "master/compile/compile.h"

/* A compilation with an empty graph, which the caller fills. `signature`, `devices` and `options`
 * are borrowed until compilation_fini. */
void compilation_init(struct compilation *c, const struct signature *signature,
                      const struct device_table *devices, const struct compile_options *options,
                      struct pool *pool);
void compilation_fini(struct compilation *c);
/* Runs one pass as compile_step does: it is skipped if it is switched off; the graph is verified
 * and dumped after it. */
struct status *compilation_run_pass(struct compilation *c, const struct pass *pass,
                                    bool *ret_changed) MUST_USE;

/* The static shapes of c->graph, inferred at the first call and kept for the passes after it. Nodes
 * that were added since the last call are inferred in this one. compilation_run_pass drops the
 * shapes after a pass that changed the graph, unless its row says that it keeps them. A pass that
 * asks again after it gave nodes other inputs or attrs calls compilation_drop_shapes before. A hint
 * (common/ops/infer.h): on a cycle without NextIteration nothing new is known. Borrowed, valid
 * until the next of these calls. */
const struct graph_shapes *compilation_shapes(struct compilation *c);
void compilation_drop_shapes(struct compilation *c);

/* ---- the passes: rows of compile.c's table ---- */
struct status *pass_cut(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_prune(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_inline(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_simplify(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_invariants(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_fold(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_branches(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_cse(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_pads(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_transposes(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_waits(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_controls(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_datasets(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_place(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_debug(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_fuse(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_contract(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_gathers(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_delays(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_partition(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_functions(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_debug_graphs(struct compilation *c, bool *ret_changed) MUST_USE;

/* Finds the saves that ask for a consistent checkpoint, and the tasks whose values they take. The
 * graph is placed and not partitioned (find_saves.c). */
void compile_find_saves(struct compilation *c);

/* ---- predicates (predicates.c) ---- */
bool node_has_ref(const struct node *node); /* is one of its inputs or outputs a reference? */
/* Is its op a function of the library, or one of its attrs a function? */
bool node_uses_functions(const struct node *node);
/* The value of the Const that the node is, or hands on through Identities; NULL: there is none. */
const struct tensor *const_behind(const struct node *node);
/* graph_find_references, which costs little here if no node has a reference. malloc'd. */
bool *compile_references(const struct graph *graph);
/* Which nodes are targets of the step, by node id. In the compilation's arena. */
bool *compile_targets(struct compilation *c);
/* Which feeds each node depends on, by node id: a bit for each feed. For passes that make one node
 * of several, which in a partial run must depend on the same feeds. *ret is NULL if the run is not
 * partial; of more than 64 feeds no two nodes have equal sets. In the compilation's arena. */
struct status *compile_feed_sets(struct compilation *c, uint64_t **ret) MUST_USE;
static inline bool feed_sets_are_equal(const uint64_t *sets, const struct node *a,
                                       const struct node *b) {
    return !sets || sets[a->id] == sets[b->id];
}
/* May the node be left out, or run once more, if nobody takes its outputs: has it no state, effect,
 * reference, handle or variant, makes no frame, calls nothing and checks nothing (pass_waits.c)? */
bool node_may_be_left_out(const struct node *node);
void graph_drop_library(struct graph *graph);
/* The bytes of a Const's value, its strings included; -1 if the node is not a Const with a value.
 * Passes ask it for each edge, so counting strings ends beyond CONST_COUNTED_BYTES. */
enum { CONST_COUNTED_BYTES = 64 << 10 };
int64_t const_size_bytes(const struct node *node);

#endif
