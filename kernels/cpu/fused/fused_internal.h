/* What the files of the fused kernel share.
 *
 * The operands of instructions are values. Values are numbered as in common/graph/fused.h: first
 * the node's inputs, then the instructions. */
#ifndef MILLRACE_KERNELS_CPU_FUSED_FUSED_INTERNAL_H
#define MILLRACE_KERNELS_CPU_FUSED_FUSED_INTERNAL_H

#include "common/base/arena.h"
#include "common/graph/fused.h"
#include "kernels/cpu/emit/emit.h"
#include "kernels/support/block_engine.h"

enum {
    /* An instruction with more runs only by its own kernel. */
    FUSED_MAX_OPERANDS = 64,
    /* of a step: operands and results */
    FUSED_MAX_POINTERS = FUSED_MAX_OPERANDS + EMIT_MAX_VECTORS,
    /* A program with more inputs and instructions runs only one instruction after the other. */
    FUSED_MAX_VALUES = 256,
};

/* fused_engines.c: the engine of a row with this compute function, or NULL. */
const struct block_engine *fused_engine_find(kernel_fn *compute);

/* ---- what init prepares ---- */

struct fused_instruction {
    struct kernel_instance kernel;
    const struct block_engine *engine;
    enum block_shapes shapes;
    const int *operands; /* n_operands values */
    /* by operand: does nobody read its value afterwards, the node's outputs included? */
    const bool *is_last_use;
    int n_operands;
    bool is_reduction;     /* operand 1, an input of the node, has the axes */
    double ns_per_element; /* in a block */
    size_t size;           /* of an element of the result */
    int output;            /* the first output of the node that is the result, or -1 */
    /* how it becomes code; NULL: only the engine runs it */
    const struct emit_row *row;
    enum dtype in; /* of the last operand */
};

struct fused_state {
    struct fused_program program;
    struct fused_instruction *instructions; /* in the arena of the program's graph */
    int n_inputs, n_instructions, n_outputs;
    bool has_product;    /* instruction 0 is a product; all others have an engine */
    bool reduces;        /* there are reductions, and no product */
    bool gathers;        /* instruction 0 is a GatherV2, and 1, the only result, reduces it */
    bool may_fail;       /* an engine may find an element outside of its op's domain */
    bool can_be_scalars; /* all instructions take scalars */
    bool can_be_blocks;  /* no instruction is BLOCK_NEVER */
    double ns_per_element;
    /* of a program that reduces */
    const bool *is_axes; /* by input */
    struct fused_rows_plans *plans;
    /* for runs of instructions */
    const uint64_t *readers; /* by value: the instructions that read it, a bit each */
    struct fused_codes *codes;
};

static inline int fused_n_values(const struct fused_state *state) {
    return state->n_inputs + state->n_instructions;
}

/* ---- runs of instructions as one piece of code (fused_codes.c) ---- */

/* Consecutive instructions of a program, compiled to one loop (kernels/cpu/emit). What only they
 * read is in no memory. */
struct fused_code {
    const struct emit_code *code;
    int operands[EMIT_MAX_OPERANDS]; /* n_operands values */
    int results[EMIT_MAX_VECTORS];   /* n_results instructions whose values others read */
    int n_operands, n_results;
};

struct fused_codes *fused_codes_new(void);
void fused_codes_free(struct fused_codes *codes); /* accepts NULL */
/* How many of the instructions can become one run: 0, or at least 2. `members` has n instructions
 * in their order. */
int fused_code_length(const struct fused_state *state, const int *members, int n);
/* Finds the code of a run, or makes it. `is_one`, by value: one element of the operand stands for
 * all. False: the engines have to run the instructions. */
bool fused_code_find(const struct fused_state *state, const int *members, int n, const bool *is_one,
                     struct fused_code *ret);
/* The same for the longest run with which n instructions begin that there is code for. Returns its
 * length; 0: there is none. Each execution asks for every run of its program. */
int fused_code_find_longest(const struct fused_state *state, const int *members, int n,
                            const bool *is_one, struct fused_code *ret);

/* ---- one execution of small values (fused_small.c) ---- */

enum fused_small_result {
    FUSED_SMALL_DONE,  /* or it has failed */
    FUSED_SMALL_UNFIT, /* nothing has happened: the values are not small, or of several shapes */
    FUSED_SMALL_MIXED, /* as UNFIT, and the instructions take less time one by one */
    FUSED_SMALL_BAD,   /* an element is outside of a domain; the outputs have no meaning */
};
/* Needs a program that can run by blocks. Inputs are left as they are. */
enum fused_small_result fused_run_small(struct kernel_ctx *ctx);
/* For tests: without it, nothing is MIXED, so that small values run by blocks. Default true. Not
 * while a kernel runs. */
void fused_set_mixed(bool is_on);

/* ---- one execution by blocks ---- */

/* A shape that values of this execution have. */
struct fused_class {
    struct shape shape;
    int64_t n_elements;
    int64_t short_dims[TENSOR_INLINE_RANK];
};

struct fused_value {
    int class_of; /* index in the classes */
    size_t size;  /* of an element */
    /* All elements in order. NULL: the value exists only block by block. */
    char *data;
};

struct fused_run {
    struct kernel_ctx *ctx;
    const struct fused_state *state;
    struct arena arena;
    struct fused_class *classes;
    int n_classes;
    struct fused_value *values;
    /* by instruction: the memory of a value that is no output; NULL where there is one stage */
    struct tensor *scratch;
};

/* Does a shape come before another in the order of stages? */
bool fused_class_is_before(const struct fused_class *a, const struct fused_class *b);

/* fused_plan.c: finds the shapes of all values. `product` is that of a product's result, or rank -1
 * where there is none. False: the instructions have to run one by one. */
bool fused_plan_shapes(struct fused_run *run, struct shape product) MUST_USE;
/* Lists the classes of the instructions in an order in which operands come first. Returns how many
 * there are. */
int fused_plan_stages(const struct fused_run *run, int *ret_classes);
/* Gives memory to each value that an output or a later stage needs. */
struct status *fused_plan_memory(struct fused_run *run, const int *stages, int n_stages) MUST_USE;

/* fused_run.c: computes all instructions whose results have the class. Returns nonzero when an
 * element was outside of a domain. */
unsigned fused_run_stage(struct fused_run *run, int class_of);
/* The same, part by part, for a stage that has a product: its elements must be there. The stage is
 * in the run's arena. Its parts may be computed by any threads, and more than once as long as no
 * output has taken over the memory of an input. */
struct fused_stage *fused_stage_new(struct fused_run *run, int class_of);
void fused_stage_run_part(struct fused_stage *stage, int64_t begin, int64_t end);

/* fused_apart.c: runs the instructions one after the other by their own kernels. `product`, which
 * is moved out of, is the result of instruction 0 if that has run; else NULL. */
enum kernel_result fused_run_apart(struct kernel_ctx *ctx, struct tensor *product);
/* Runs an instruction by its own kernel, and clears its operands. Fails as fused_fail does. */
void fused_run_instruction(struct kernel_ctx *ctx, const struct fused_instruction *instruction,
                           struct tensor *operands, struct tensor *ret);
/* Makes n tensors that hold nothing. */
struct tensor *fused_tensors_new(struct arena *arena, int n);
/* An instruction may be several outputs. */
void fused_share_outputs(struct kernel_ctx *ctx, const struct fused_state *state);
/* Fails with the name of the instruction's node. */
enum kernel_result fused_fail(struct kernel_ctx *ctx, const struct fused_instruction *instruction,
                              struct status *status_take);

/* ---- programs that pick rows and reduce them (fused_gather.c) ---- */

/* By the ops, before there are kernels: does the program look so? */
bool fused_is_gather(const struct fused_program *program);
enum kernel_result fused_run_gather(struct kernel_ctx *ctx);

/* ---- programs with reductions (fused_rows.c) ---- */

struct fused_rows_plans *fused_rows_plans_new(void);
void fused_rows_plans_free(struct fused_rows_plans *plans); /* accepts NULL */
enum kernel_result fused_run_rows(struct kernel_ctx *ctx);

/* ---- programs that begin with a product (fused_product.c) ---- */

enum kernel_result fused_run_product(struct kernel_ctx *ctx);

#endif
