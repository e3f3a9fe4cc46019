/* A fused program: several elementwise nodes and reductions of one device as one node, _MrFused,
 * whose kernel computes them block by block, so that what one hands to the next never reaches
 * memory [WP 5.1].
 *
 *   a = Mul(x, y)   b = AddV2(a, x)   c = Tanh(b)      b is also taken elsewhere
 *      =>  c = _MrFused(x, y) {program=[&Mul{T=float}, &AddV2{T=float}, &Tanh{T=float}],
 *                              names=["a", "b", "c"], operands=[0, 1, 2, 0, 3], results=[1, 2]}
 *
 * An instruction is an op with its attrs. `operands` has the operands of all instructions, one
 * after the other: below the number of the node's inputs an input, from there on the instruction
 * with that number less the number of inputs, which is an earlier one. `names` are those of the
 * nodes that the instructions were, for messages and statistics. `results` has the instruction that
 * each output is. The result of every instruction is what its own kernel computes, to the bit.
 *
 * An instruction may be a reduction over the last dimensions (Sum, Mean, Max, …), whose axes are an
 * input of the node. Rows are then computed while a cache has them, with what is reduced of them.
 *
 * The first instruction may be a product (MatMul, Conv2D): the others are then computed on its
 * elements while a cache has them.
 *
 * The master's compiler makes such nodes (master/compile/fuse/pass_fuse.c), a worker's kernel runs
 * them (kernels/cpu/fused). Threads: as graph.h has it. */
#ifndef MILLRACE_COMMON_GRAPH_FUSED_H
#define MILLRACE_COMMON_GRAPH_FUSED_H

#include "common/graph/graph.h"

#define OP_FUSED "_MrFused"

enum { FUSED_MAX_INSTRUCTIONS = 64 };

/* A node's program, as a graph of its own. */
struct fused_program {
    struct graph graph;
    struct node **inputs;       /* n_inputs Placeholders with the dtypes of the node's inputs */
    struct node **instructions; /* n_instructions, each after those it takes values of */
    int *results;               /* by output of the node: the number of an instruction */
    int n_inputs, n_instructions, n_outputs;
};

/* Reads the program of an _MrFused node. Errors: INVALID_ARGUMENT, which names the node: attrs that
 * do not fit together, an operand that does not exist yet, types that do not agree, more than
 * FUSED_MAX_INSTRUCTIONS. *ret is to be given to fused_program_fini after success only. */
struct status *fused_program_read(const struct node *node, struct fused_program *ret) MUST_USE;
void fused_program_fini(struct fused_program *program);

/* Makes one _MrFused node of n_members nodes of a graph, which are in an order in which producers
 * come first and have one output each. `is_result`, by member: its value is taken outside of the
 * group. Data and control inputs of the node are those of the members from outside of the group.
 * The last member becomes the node, with its name, device and place; the others are removed. Data
 * edges to the members from outside must be changed by the caller, before, to the last member and
 * the position among the results; control edges to the last member.
 * Errors: those of node_finish. */
struct status *fused_node_make(struct graph *graph, struct node *const *members, int n_members,
                               const bool *is_result) MUST_USE;

/* Puts a node of one output in front of the program of an _MrFused node, as its first instruction.
 * Nobody else takes the producer's value or waits for it; it is removed. Errors: those of
 * node_finish. */
struct status *fused_node_prepend(struct graph *graph, struct node *node,
                                  struct node *producer) MUST_USE;

#endif
