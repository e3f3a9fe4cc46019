/* What the files of this folder share: a run as a list of vector operations, each of which is
 * mostly one instruction of the processor. A value is the number of the operation that makes it. */
#ifndef MILLRACE_KERNELS_CPU_EMIT_EMIT_INTERNAL_H
#define MILLRACE_KERNELS_CPU_EMIT_EMIT_INTERNAL_H

#include "kernels/cpu/emit/emit.h"
#include "kernels/cpu/emit/emit_x86.h"

/* How the operation's instruction takes its sources. */
enum vector_shape {
    VECTOR_LEAF,    /* there is none: the value is in memory until a register needs it */
    VECTOR_TWO,     /* result, source 0, source 1 */
    VECTOR_ONE,     /* result, source 0 */
    VECTOR_SELECT,  /* source 0, or source 1 where the mask, source 2, is set */
    VECTOR_MUL_ADD, /* source 2 plus or minus source 0 · source 1; three forms, behind each other */
    VECTOR_SHIFT,   /* result, source 0, by imm bits */
    VECTOR_QUOTIENT, /* source 0 / source 1, whose reciprocal is source 2 */
    VECTOR_STORE,
};

enum vector_operation {
#define VECTOR_OPERATION(name, ...) VECTOR_OP_##name,
#include "kernels/cpu/emit/emit_operations.inc"
};

/* The processor's numbers of comparisons, and of ways to round. */
enum {
    COMPARE_EQUAL = 0x00,
    COMPARE_UNORDERED = 0x03,
    COMPARE_NOT_EQUAL = 0x04,
    COMPARE_LESS = 0x11,
    COMPARE_LESS_EQUAL = 0x12,
    COMPARE_GREATER_EQUAL = 0x1d,
    COMPARE_GREATER = 0x1e,
    ROUND_EVEN = 0x08,
    ROUND_DOWN = 0x09,
    ROUND_UP = 0x0a,
};

struct vector_op {
    uint8_t operation, n_sources;
    uint8_t imm;
    uint8_t pointer; /* of a LOAD, ONE, RECIPROCAL or STORE */
    uint8_t turn;    /* of a LOAD or STORE: which of the loop's vectors it has */
    int16_t source[3];
    int16_t last_use; /* the last operation that reads the value; -1: none does */
    uint64_t bits;    /* of a NUMBER */
};

enum {
    EMIT_MAX_VECTOR_OPS = 2048,
    /* Vectors that an iteration of the loop computes side by side, so that one does not wait for
     * another. */
    EMIT_TURNS = 4,
};

/* How code divides by an operand that stands for all. The others need divisors of which
 * emit_division_by says so. */
enum emit_division {
    EMIT_DIVIDE,
    EMIT_MULTIPLY, /* by a power of two */
    EMIT_CORRECT,  /* the product with the reciprocal, and a correction */
    EMIT_N_DIVISIONS
};

/* A run on its way to code. */
struct emitter {
    struct vector_op ops[EMIT_MAX_VECTOR_OPS];
    int n_ops, width;
    bool is_wide;                       /* vectors have 512 bits */
    int n_turns;                        /* vectors of an iteration: EMIT_TURNS, or 1 */
    int16_t numbers[X86_MAX_CONSTANTS]; /* the values that are a NUMBER */
    int n_numbers;
    bool is_full;
    uint8_t n_pointers;
    enum emit_division division;
    uint64_t divisors; /* bit k: operand k stands for all, and something is divided by it */
    enum dtype pointer_types[EMIT_MAX_OPERANDS + EMIT_MAX_VECTORS];
    bool is_one[EMIT_MAX_OPERANDS + EMIT_MAX_VECTORS];
};

/* Returns the value. Sources that the operation does not have are -1. */
int emit_add(struct emitter *e, enum vector_operation operation, int a, int b, int c, int imm);
/* The same number in all elements: by its bits, and rounded to the width. */
int emit_bits(struct emitter *e, uint64_t bits);
int emit_number(struct emitter *e, double x);

/* emit_rows.c: adds the operations of an instruction; returns the result's value. */
int emit_row_lower(struct emitter *e, const struct emit_instruction *instruction,
                   const int *values);
/* For tests: the table's rows. False: there are no more. */
bool emit_row_at(size_t i, const char **ret_op, dtype_set *ret_in, dtype_set *ret_out);

/* emit_functions.c: exp and similar functions, as vmath.h computes them. erf and erfc only of
 * floats. */
int emit_exp(struct emitter *e, int x);
int emit_tanh(struct emitter *e, int x);
int emit_sigmoid(struct emitter *e, int x);
int emit_erf(struct emitter *e, int x);
int emit_erfc(struct emitter *e, int x);

/* emit_division.c: x / c as `division` of the emitter says. */
int emit_divide(struct emitter *e, int x, int c);
/* Says how to divide by an element. EMIT_CORRECT is also right where EMIT_MULTIPLY is. */
enum emit_division emit_division_by(const void *divisor, int width);
/* For the loop's comparisons of a dividend: of 256 bits with the offset and the reach, of 512 with
 * the bits of the least amount. */
uint64_t emit_division_offset(int width);
uint64_t emit_division_reach(int width);
uint64_t emit_division_least(int width);

/* Before code is made; for tests. Default: vectors of 512 bits where the processor has them. */
void emit_set_wide(bool may_be_wide);

/* emit_lower.c: the operations of a run. */
void emit_lower(struct emitter *e, const struct emit_run *run);

/* emit_loop.c: makes the function of a run. Its arguments are the pointers, operands first, and a
 * number of elements that is a positive multiple of those of n_turns vectors. */
void emit_loop(struct emitter *e, struct x86 *a);

#endif
