/* Compiles a run of elementwise instructions to one loop of machine code (x86-64 with AVX2), whose
 * temporaries stay in vector registers. Each operand is read once, and only results are written.
 *
 * The results have the bits that the loops of the ops' own kernels give (kernels/cpu/math,
 * kernels/cpu/nn): a row of the table (emit_rows.c) has the same operations in the same order.
 *
 * A run has one width: all its elements have 4 bytes, or all have 8. A bool has the width of the
 * others. Any thread, unless a function says otherwise. */
#ifndef MILLRACE_KERNELS_CPU_EMIT_EMIT_H
#define MILLRACE_KERNELS_CPU_EMIT_EMIT_H

#include "common/tensor/dtype.h"

enum {
    EMIT_MAX_VECTORS = 10, /* operands with all elements, and results: a pointer's register each */
    EMIT_MAX_OPERANDS = 32,
    EMIT_MAX_INSTRUCTIONS = 64,
};

/* Is code made and run? No where the processor has no AVX2, where the system has refused to execute
 * memory that was written, and where emit_set_on has switched it off. */
bool emit_is_on(void);
/* Before any kernel is made. Default true. */
void emit_set_on(bool is_on);

/* How many runs have been compiled in this process. */
int64_t emit_n_compiled(void);

/* What can be compiled: an op with the dtypes of its last operand and of its result. */
struct emit_row;
/* Returns NULL where there is no row. */
const struct emit_row *emit_row_find(const char *op, enum dtype in, enum dtype out);
/* The bytes of an element: 4, 8, or 0 where all are bool. */
int emit_width(enum dtype in, enum dtype out);

struct emit_instruction {
    const struct emit_row *row;
    enum dtype in, out; /* as in emit_row_find */
    /* n_operands values: below the run's n_operands an operand of the run, from there on the result
     * of an instruction */
    const int *operands;
    int n_operands;
};

struct emit_run {
    const enum dtype *operands; /* the dtypes of n_operands */
    uint64_t ones;              /* bit k: operand k is one element that stands for all */
    int n_operands;
    const struct emit_instruction *instructions;
    int n_instructions;
    const int *results; /* the numbers of n_results instructions */
    int n_results;
};

/* Is there a pointer's register for each operand with all elements, and each result? */
static inline bool emit_vectors_fit(int n_operands, uint64_t ones, int n_results) {
    return n_operands - __builtin_popcountll(ones) + n_results <= EMIT_MAX_VECTORS;
}

/* Returns NULL where the run is too large, or code is off. */
struct emit_code *emit_code_new(const struct emit_run *run);
void emit_code_free(struct emit_code *code);

/* Computes n elements. The pointers are those of the operands, and then those of the results. A
 * result may be an operand of its size that no later instruction of the run reads; otherwise it
 * overlaps nothing. */
void emit_code_run(const struct emit_code *code, void *const *pointers, int64_t n);

#endif
