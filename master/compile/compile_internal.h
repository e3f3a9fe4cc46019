/* What the compiler's files share: the passes, and helpers on graphs. For this folder and its
 * tests. */
#ifndef MILLRACE_MASTER_COMPILE_COMPILE_INTERNAL_H
#define MILLRACE_MASTER_COMPILE_COMPILE_INTERNAL_H

#include "master/compile/compile.h"

/* A compilation around an empty graph, which the caller fills; and its end. `signature`,
 * `devices`, `options` are borrowed. */
void compilation_init(struct compilation *c, const struct signature *signature,
                      const struct device_table *devices, const struct compile_options *options,
                      struct pool *pool);
void compilation_fini(struct compilation *c);
/* Runs one pass as the driver does: not when it is switched off; verified and dumped after. */
struct status *compilation_run_pass(struct compilation *c, const struct pass *pass,
                                    bool *ret_changed) MUST_USE;

/* ---- the passes: rows of compile.c's table ---- */
struct status *pass_cut(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_prune(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_inline(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_fold(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_cse(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_datasets(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_place(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_partition(struct compilation *c, bool *ret_changed) MUST_USE;
struct status *pass_functions(struct compilation *c, bool *ret_changed) MUST_USE;

/* Notes the saves that ask for a consistent checkpoint, on a graph that is placed and not cut yet
 * (find_saves.c). */
void compile_find_saves(struct compilation *c);

/* ---- loop frames (frames.c) ---- */

/* Which loop each node belongs to; frame 0 is the root. Enter runs in the parent and makes
 * values in the child, Exit the other way, so a node has a frame that it runs in and one that
 * its outputs live in. All arrays by node id, malloc'd. */
struct loop_frames {
    int *in, *out;
    int *parent; /* by frame; less than the frame's own number; -1 for the root */
    /* by frame: the ancestor (or itself) whose parent is the root; 0 for the root */
    int *outermost;
    int n_frames;
};
/* `order` is the graph's topological order (n_live nodes). */
void loop_frames_init(struct loop_frames *frames, const struct graph *graph,
                      struct node *const *order);
void loop_frames_fini(struct loop_frames *frames);

/* ---- small questions ---- */
/* Enter, Exit, Merge, NextIteration, LoopCond and their Ref forms */
bool node_is_frame_op(const struct node *node);
/* an output of it may be dead while the node is live */
bool node_is_switch(const struct node *node);
bool node_has_ref(const struct node *node); /* an input or output is a reference */
/* calls a function of the library by its name, or has one among its attrs */
bool node_uses_functions(const struct node *node);
/* what pass_inline replaces: calls by name, PartitionedCall, If, While and kin */
bool node_is_call(const struct node *node);
void graph_drop_library(struct graph *graph);
/* Bytes of a Const's value; -1 where the node is no Const with a value. */
int64_t const_size_bytes(const struct node *node);

#endif
