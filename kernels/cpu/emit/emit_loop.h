/* What the files that emit a loop share: which values are in which registers at the operation that
 * is emitted now. */
#ifndef MILLRACE_KERNELS_CPU_EMIT_EMIT_LOOP_H
#define MILLRACE_KERNELS_CPU_EMIT_EMIT_LOOP_H

#include "kernels/cpu/emit/emit_internal.h"

enum {
    EMIT_MAX_REGISTERS = 31,
    EMIT_PASSING_MASK = 1, /* k1, for a comparison's result in passing */
    EMIT_FIRST_MASK = 2,   /* k2 to k7 have values */
    EMIT_N_MASKS = 8,
    EMIT_N_POINTERS = EMIT_MAX_OPERANDS + EMIT_MAX_VECTORS,
    EMIT_MAX_DETOURS = 256,
};

struct emit_loop {
    struct emitter *e;
    struct x86 *a;
    int register_of[EMIT_MAX_VECTOR_OPS]; /* -1: none */
    int slot_of[EMIT_MAX_VECTOR_OPS];     /* in the frame; -1: none */
    int value_in[EMIT_MAX_REGISTERS];     /* -1: the register is free */
    /* The operation that reads the value next, and the one that reads a source of an operation
     * after it. EMIT_MAX_VECTOR_OPS: none does */
    int16_t next_use[EMIT_MAX_VECTOR_OPS], use_after[EMIT_MAX_VECTOR_OPS][3];
    /* A mask that only chooses is in a mask register where vectors have 512 bits. 0: in none */
    uint8_t mask_of[EMIT_MAX_VECTOR_OPS];
    bool is_mask_taken[EMIT_N_MASKS];
    int n_registers, vector_bytes;
    int passing;     /* the last register, for what an operation needs in passing */
    unsigned pinned; /* registers that the operation reads */
    int n_slots, at; /* the operation */
    enum x86_gpr pointers[EMIT_N_POINTERS];
    int one_slots[EMIT_N_POINTERS], reciprocal_slots[EMIT_N_POINTERS];
    /* Divisions behind the loop, for vectors with elements that a quotient cannot be had of
     * otherwise: they are jumped to from before `back`. */
    struct emit_detour {
        size_t back;
        int n;
        struct emit_division_of {
            int result, dividend;
            struct x86_place divisor;
        } of[EMIT_TURNS];
    } detours[EMIT_MAX_DETOURS];
    int n_detours;
};

static inline struct x86_place emit_in_register(int number) {
    return (struct x86_place){.kind = X86_REGISTER, .number = number};
}
static inline struct x86_place emit_in_frame(const struct emit_loop *l, int slot) {
    return (struct x86_place){.kind = X86_FRAME, .offset = slot * l->vector_bytes};
}
static inline struct x86_place emit_number_place(const struct emit_loop *l, uint64_t bits) {
    return (struct x86_place){.kind = X86_CONSTANT, .number = x86_constant(l->a, bits)};
}

/* ---- emit_registers.c ---- */

enum vector_shape emit_shape_of(const struct vector_op *op);
enum x86_form emit_form_of(const struct emit_loop *l, enum vector_operation operation);

struct x86_place emit_element_of(const struct emit_loop *l, const struct vector_op *op);

/* Before the first operation; and after the operations from `from` to l->at. */
void emit_find_uses(struct emit_loop *l);
void emit_pass_uses(struct emit_loop *l, int from);

/* A register for the value, after another value has perhaps given its own up. */
int emit_take_register(struct emit_loop *l, int value);
/* The value's register, which stays its own until the operation is there. */
int emit_use_register(struct emit_loop *l, int value);
/* The value's register, or its place in memory where no later operation would gain by a register.
 */
struct x86_place emit_use_place(struct emit_loop *l, int value);
/* Frees the registers of the sources that no later operation reads. */
void emit_release_sources(struct emit_loop *l);
bool emit_dies_in_register(const struct emit_loop *l, int value);

/* ---- emit_operation.c, emit_quotient.c ---- */

/* Emits the operation l->at, which is no quotient. */
void emit_operation(struct emit_loop *l);
/* Emits the quotient l->at, and those behind it that share its check of ranges. Leaves l->at at the
 * last one. */
void emit_quotients(struct emit_loop *l);
/* Behind the loop. */
void emit_detours(struct emit_loop *l);

#endif
