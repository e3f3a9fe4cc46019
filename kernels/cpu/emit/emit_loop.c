/* Gives registers to the values of a run, and emits its loop.
 *
 *   push what the caller keeps         pointers of vectors to registers, ones to the frame
 *   loop:  for each operation, sources from registers or memory, the result to a register
 *          next vector, until all elements are done
 *
 * A value gets a register when it is computed, or when an operation cannot take it from memory.
 * Where none is free, the value that is read latest gives its register up. It is read again from
 * where it is: an operand, a number, or a place in the frame. */
#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"

enum {
    MAX_REGISTERS = 31,
    MASK_REGISTER = 1, /* k1, where comparisons of 512 bits put their result */
    N_POINTERS = EMIT_MAX_OPERANDS + EMIT_MAX_VECTORS,
    MAX_DETOURS = 256,
};

static const struct shape_of {
    enum vector_shape shape;
    enum x86_form forms[2];
} shapes[] = {
#define VECTOR_OPERATION(name, shape, four, eight) {VECTOR_##shape, {four, eight}},
#include "kernels/cpu/emit/emit_operations.inc"
};

/* rdi has the list of pointers, and nothing in the loop; rsi the number of elements, rcx the
 * element. */
static const enum x86_gpr pointer_registers[EMIT_MAX_VECTORS] = {
    X86_RAX, X86_RDX, X86_R8, X86_R9, X86_R10, X86_R11, X86_RBX, X86_R12, X86_R13, X86_R14};
enum { N_FREE = 6 }; /* of them; the caller keeps the others */

struct loop {
    struct emitter *e;
    struct x86 *a;
    int register_of[EMIT_MAX_VECTOR_OPS]; /* -1: none */
    int slot_of[EMIT_MAX_VECTOR_OPS];     /* in the frame; -1: none */
    int value_in[MAX_REGISTERS];          /* -1: the register is free */
    int n_registers, vector_bytes;
    int passing;     /* the last register, for what an operation needs in passing */
    unsigned pinned; /* registers that the operation reads */
    int n_slots, at;
    enum x86_gpr pointers[N_POINTERS];
    int one_slots[N_POINTERS], reciprocal_slots[N_POINTERS];
    /* Divisions behind the loop, for vectors with elements that a quotient cannot be had of
     * otherwise: they are jumped to from before `back`. */
    struct detour {
        size_t back;
        int result, dividend;
        struct x86_place divisor;
    } detours[MAX_DETOURS];
    int n_detours;
};

static enum x86_form form_of(const struct loop *l, enum vector_operation operation) {
    enum x86_form form = shapes[operation].forms[l->e->width == 8];
    CHECK(form != X86_N_FORMS);
    return form;
}

/* ---- places ---- */

static struct x86_place in_register(int number) {
    return (struct x86_place){.kind = X86_REGISTER, .number = number};
}

static struct x86_place in_frame(const struct loop *l, int slot) {
    return (struct x86_place){.kind = X86_FRAME, .offset = slot * l->vector_bytes};
}

static struct x86_place element_of(const struct loop *l, const struct vector_op *op) {
    bool is_bool = l->e->pointer_types[op->pointer] == DT_BOOL;
    int vector = is_bool ? l->vector_bytes / l->e->width : l->vector_bytes;
    return (struct x86_place){.kind = X86_ELEMENT,
                              .number = (int)l->pointers[op->pointer],
                              .offset = op->turn * vector,
                              .scale = is_bool            ? 0
                                       : l->e->width == 8 ? 3
                                                          : 2};
}

static struct x86_place number_place(const struct loop *l, uint64_t bits) {
    return (struct x86_place){.kind = X86_CONSTANT, .number = x86_constant(l->a, bits)};
}

/* Where a value is that has no register. A bool has no such place. */
static struct x86_place memory_of(const struct loop *l, int value) {
    const struct vector_op *op = &l->e->ops[value];
    if (op->operation == VECTOR_OP_LOAD)
        return element_of(l, op);
    if (op->operation == VECTOR_OP_ONE)
        return in_frame(l, l->one_slots[op->pointer]);
    if (op->operation == VECTOR_OP_RECIPROCAL)
        return in_frame(l, l->reciprocal_slots[op->pointer]);
    if (op->operation == VECTOR_OP_NUMBER)
        return number_place(l, op->bits);
    CHECK(l->slot_of[value] >= 0);
    return in_frame(l, l->slot_of[value]);
}

/* ---- registers ---- */

static int next_use(const struct loop *l, int value) {
    for (int i = l->at; i <= l->e->ops[value].last_use; i++)
        for (int s = 0; s < l->e->ops[i].n_sources; s++)
            if (l->e->ops[i].source[s] == value)
                return i;
    return EMIT_MAX_VECTOR_OPS;
}

static void give_up(struct loop *l, int number) {
    int value = l->value_in[number];
    const struct vector_op *op = &l->e->ops[value];
    bool is_leaf = shapes[op->operation].shape == VECTOR_LEAF;
    if (!is_leaf && l->slot_of[value] < 0) {
        l->slot_of[value] = l->n_slots++;
        x86_vector(l->a, X86_STORE_UPS, number, 0, in_frame(l, l->slot_of[value]), -1);
    }
    l->register_of[value] = -1;
    l->value_in[number] = -1;
}

static int take_register(struct loop *l, int value) {
    int found = -1, latest = -1;
    for (int r = 0; r < l->n_registers && (found < 0 || l->value_in[found] >= 0); r++) {
        int use = l->value_in[r] < 0 ? INT32_MAX : next_use(l, l->value_in[r]);
        if (l->pinned >> r & 1 || use <= latest)
            continue;
        latest = use;
        found = r;
    }
    CHECK(found >= 0);
    if (l->value_in[found] >= 0)
        give_up(l, found);
    l->value_in[found] = value;
    l->register_of[value] = found;
    return found;
}

static void load(struct loop *l, int value, int number) {
    const struct vector_op *op = &l->e->ops[value];
    if (op->operation != VECTOR_OP_LOAD_BOOL) {
        x86_vector(l->a, X86_MOVUPS, number, 0, memory_of(l, value), -1);
        return;
    }
    x86_vector(l->a, form_of(l, VECTOR_OP_LOAD_BOOL), number, 0, element_of(l, op), -1);
    x86_vector(l->a, form_of(l, VECTOR_OP_GREATER_INT), number, number, number_place(l, 0), -1);
}

/* The value's register, which stays its own until the operation is there. */
static int use_register(struct loop *l, int value) {
    int number = l->register_of[value];
    if (number < 0) {
        number = take_register(l, value);
        load(l, value, number);
    }
    l->pinned |= 1u << number;
    return number;
}

/* The value's register, or its place in memory where no later operation would gain by a register.
 */
static struct x86_place use_place(struct loop *l, int value) {
    const struct vector_op *op = &l->e->ops[value];
    bool is_cheap = op->operation == VECTOR_OP_ONE || op->operation == VECTOR_OP_RECIPROCAL ||
                    op->operation == VECTOR_OP_NUMBER;
    bool may_stay = op->operation != VECTOR_OP_LOAD_BOOL && (is_cheap || op->last_use == l->at);
    if (l->register_of[value] < 0 && may_stay)
        return memory_of(l, value);
    return in_register(use_register(l, value));
}

static void release_sources(struct loop *l) {
    const struct vector_op *op = &l->e->ops[l->at];
    for (int s = 0; s < op->n_sources; s++) {
        int value = op->source[s], number = l->register_of[value];
        if (number < 0 || l->e->ops[value].last_use > l->at)
            continue;
        l->value_in[number] = l->register_of[value] = -1;
        l->pinned &= ~(1u << number);
    }
}

/* ---- operations ---- */

static void add_store(struct loop *l, const struct vector_op *op) {
    int number = use_register(l, op->source[0]);
    struct x86_place place = element_of(l, op);
    if (op->operation == VECTOR_OP_STORE) {
        x86_vector(l->a, X86_STORE_UPS, number, 0, place, -1);
    } else { /* masks to bytes of 1 and 0 */
        struct x86_place passing = in_register(l->passing);
        x86_vector(l->a, X86_EXTRACTI128, number, 0, passing, 1);
        x86_vector(l->a, X86_PACKSSDW_X, l->passing, number, passing, -1);
        x86_vector(l->a, X86_PACKSSWB_X, l->passing, l->passing, passing, -1);
        if (l->e->width == 8)
            x86_vector(l->a, X86_PACKSSWB_X, l->passing, l->passing, passing, -1);
        x86_vector(l->a, X86_PABSB_X, l->passing, 0, passing, -1);
        x86_vector(l->a, l->e->width == 8 ? X86_MOVD_STORE : X86_MOVQ_STORE, l->passing, 0, place,
                   -1);
    }
    release_sources(l);
}

static bool is_comparison(const struct vector_op *op) {
    return op->operation == VECTOR_OP_COMPARE || op->operation == VECTOR_OP_EQUAL_INT ||
           op->operation == VECTOR_OP_GREATER_INT;
}

static void add_operation(struct loop *l, const struct vector_op *op) {
    enum vector_shape shape = shapes[op->operation].shape;
    bool has_imm = op->operation == VECTOR_OP_COMPARE || op->operation == VECTOR_OP_ROUND;
    int first = 0, imm = has_imm ? op->imm : -1;
    if (shape != VECTOR_ONE)
        first = use_register(l, op->source[0]);
    if (shape == VECTOR_SELECT)
        imm = use_register(l, op->source[2]) << 4;
    struct x86_place last = use_place(l, op->source[shape != VECTOR_ONE]);
    release_sources(l);
    int result = take_register(l, l->at);
    if (!l->a->is_wide || !is_comparison(op)) {
        x86_vector(l->a, form_of(l, op->operation), result, first, last, imm);
        return;
    }
    x86_vector(l->a, form_of(l, op->operation), MASK_REGISTER, first, last, imm);
    x86_vector(l->a, l->e->width == 8 ? X86_MOVM2Q : X86_MOVM2D, result, 0,
               in_register(MASK_REGISTER), -1);
}

static void swap(int *a, int *b) {
    int c = *a;
    *a = *b;
    *b = c;
}

static bool dies_in_register(const struct loop *l, int value) {
    return l->register_of[value] >= 0 && l->e->ops[value].last_use == l->at;
}

/* The instruction writes to a source's register: one that no later operation reads, or a copy. */
static void add_mul_add(struct loop *l, const struct vector_op *op) {
    enum { FORM_213 = 1, FORM_231 = 2 };
    enum x86_form form = form_of(l, op->operation);
    int a = op->source[0], b = op->source[1], c = op->source[2], result;
    if (dies_in_register(l, b) || l->register_of[a] < 0)
        swap(&a, &b);
    if (dies_in_register(l, c)) {
        result = use_register(l, c);
        int first = use_register(l, a);
        x86_vector(l->a, form + FORM_231, result, first, use_place(l, b), -1);
    } else {
        bool is_copied = !dies_in_register(l, a);
        if (is_copied && l->register_of[b] < 0) /* what is copied comes from memory anyway */
            swap(&a, &b);
        int first = use_register(l, b);
        struct x86_place last = use_place(l, c);
        result = is_copied ? -1 : use_register(l, a);
        if (is_copied) {
            struct x86_place from = use_place(l, a);
            result = take_register(l, l->at);
            x86_vector(l->a, X86_MOVUPS, result, 0, from, -1);
        }
        x86_vector(l->a, form + FORM_213, result, first, last, -1);
    }
    release_sources(l);
    l->value_in[result] = l->at;
    l->register_of[l->at] = result;
}

/* Where vectors have 512 bits: each bit of the mask chooses, and the result is in its place. */
static void add_wide_select(struct loop *l, const struct vector_op *op) {
    enum { MASK_THEN_SECOND = 0xca };
    int mask = op->source[2], yes = use_register(l, op->source[1]);
    struct x86_place no = use_place(l, op->source[0]);
    int result;
    if (dies_in_register(l, mask)) {
        result = use_register(l, mask);
    } else {
        struct x86_place from = use_place(l, mask);
        result = take_register(l, l->at);
        x86_vector(l->a, X86_MOVUPS, result, 0, from, -1);
    }
    x86_vector(l->a, X86_TERNLOG, result, yes, no, MASK_THEN_SECOND);
    release_sources(l);
    l->value_in[result] = l->at;
    l->register_of[l->at] = result;
}

static void add_shift(struct loop *l, const struct vector_op *op) {
    enum { RIGHT = 2, LEFT = 6 };
    int how = op->operation == VECTOR_OP_SHIFT_LEFT ? LEFT : RIGHT;
    int source = use_register(l, op->source[0]);
    release_sources(l);
    int result = take_register(l, l->at);
    x86_vector(l->a, form_of(l, op->operation), how, result, in_register(source), op->imm);
}

/* Jumps, to a place that is set later, when an element needs the processor's division. */
static void add_range_check(struct loop *l, int dividend) {
    static const uint8_t is_any[] = {0x85, 0xff};                  /* test edi, edi */
    static const uint8_t is_any_wide[] = {0xc5, 0xf8, 0x98, 0xc9}; /* kortestw k1, k1 */
    static const uint8_t jump[] = {0x0f, 0x85, 0, 0, 0, 0};        /* jnz */
    struct x86 *a = l->a;
    struct x86_place passing = in_register(l->passing);
    int width = l->e->width, mask = l->passing;
    bool has_halves = width == 8 && !a->is_wide, has_words = width == 8 && a->is_wide;
    x86_vector(a, form_of(l, VECTOR_OP_ADD_INT), mask, dividend, in_register(dividend), -1);
    if (has_halves)
        x86_vector(a, X86_PADDQ, mask, mask, number_place(l, ~0ull), -1);
    x86_vector(a, has_words ? X86_PADDQ : X86_PADDD, mask, mask,
               number_place(l, emit_division_offset(width, has_halves)), -1);
    x86_vector(a, has_words ? X86_PABSQ : X86_PABSD, mask, 0, passing, -1);
    x86_vector(a, has_words ? X86_PCMPGTQ : X86_PCMPGTD, a->is_wide ? MASK_REGISTER : mask, mask,
               number_place(l, emit_division_reach(width)), -1);
    if (a->is_wide) {
        x86_bytes(a, is_any_wide, sizeof(is_any_wide));
    } else {
        x86_vector(a, width == 8 ? X86_MOVMSKPD : X86_MOVMSKPS, X86_RDI, 0, passing, -1);
        x86_bytes(a, is_any, sizeof(is_any));
    }
    x86_bytes(a, jump, sizeof(jump));
}

/* emit_division.c has the operations, and their proof. */
static void add_quotient(struct loop *l, const struct vector_op *op) {
    bool is_wide = l->e->width == 8;
    int x = use_register(l, op->source[0]);
    struct x86_place c = use_place(l, op->source[1]), r = use_place(l, op->source[2]);
    int q = take_register(l, l->at);
    x86_vector(l->a, is_wide ? X86_MULPD : X86_MULPS, q, x, r, -1);
    x86_vector(l->a, X86_MOVUPS, l->passing, 0, in_register(q), -1);
    x86_vector(l->a, is_wide ? X86_FMSUB132PD : X86_FMSUB132PS, l->passing, x, c, -1);
    x86_vector(l->a, is_wide ? X86_FNMADD231PD : X86_FNMADD231PS, q, l->passing, r, -1);
    add_range_check(l, x);
    if (l->n_detours == MAX_DETOURS)
        l->a->is_full = true;
    else
        l->detours[l->n_detours++] = (struct detour){l->a->size, q, x, c};
    release_sources(l);
}

static void add_detours(struct loop *l) {
    static const uint8_t jump[] = {0xe9, 0, 0, 0, 0};
    for (int i = 0; i < l->n_detours && !l->a->is_full; i++) {
        const struct detour *d = &l->detours[i];
        x86_patch_i32(l->a, d->back - 4, (int64_t)l->a->size - (int64_t)d->back);
        x86_vector(l->a, form_of(l, VECTOR_OP_DIV), d->result, d->dividend, d->divisor, -1);
        x86_bytes(l->a, jump, sizeof(jump));
        x86_patch_i32(l->a, l->a->size - 4, (int64_t)d->back - (int64_t)l->a->size);
    }
}

static void add_body(struct loop *l) {
    for (l->at = 0; l->at < l->e->n_ops; l->at++) {
        const struct vector_op *op = &l->e->ops[l->at];
        enum vector_shape shape = shapes[op->operation].shape;
        l->pinned = 0;
        if (shape == VECTOR_STORE)
            add_store(l, op);
        else if (shape == VECTOR_QUOTIENT && op->last_use >= 0)
            add_quotient(l, op);
        else if (shape == VECTOR_MUL_ADD && op->last_use >= 0)
            add_mul_add(l, op);
        else if (shape == VECTOR_SELECT && op->last_use >= 0 && l->a->is_wide)
            add_wide_select(l, op);
        else if (shape == VECTOR_SHIFT && op->last_use >= 0)
            add_shift(l, op);
        else if (shape != VECTOR_LEAF && op->last_use >= 0)
            add_operation(l, op);
    }
}

/* ---- the loop ---- */

static const uint8_t frame_pointer[] = {0x48, 0x89, 0xe5};          /* mov rbp, rsp */
static const uint8_t frame_grow[] = {0x48, 0x81, 0xec, 0, 0, 0, 0}; /* sub rsp, imm32 */
static const uint8_t frame_align[] = {0x48, 0x83, 0xe4, 0xc0};      /* and rsp, -64 */
static const uint8_t frame_drop[] = {0x48, 0x8d, 0x65};             /* lea rsp, [rbp + imm8] */
static const uint8_t first_element[] = {0x31, 0xc9};                /* xor ecx, ecx */
static const uint8_t next_vector[] = {0x48, 0x83, 0xc1};            /* add rcx, imm8 */
static const uint8_t is_more[] = {0x48, 0x39, 0xf1, 0x0f, 0x8c, 0, 0, 0, 0}; /* cmp rcx,rsi; jl */
static const uint8_t leave[] = {0xc5, 0xf8, 0x77};                           /* vzeroupper */
static const uint8_t return_to_caller[] = {0xc3};

static void broadcast_one(struct loop *l, int pointer) {
    struct x86 *a = l->a;
    struct x86_place element = {.kind = X86_ELEMENT, .number = X86_RAX},
                     passing = in_register(l->passing);
    x86_load_pointer(a, X86_RAX, pointer);
    if (l->e->pointer_types[pointer] == DT_BOOL) { /* twice: zero?, and not that */
        x86_vector(a, X86_BROADCASTB, l->passing, 0, element, -1);
        x86_vector(a, X86_PCMPEQB, l->passing, l->passing, number_place(l, 0), -1);
        x86_vector(a, X86_PCMPEQB, l->passing, l->passing, number_place(l, 0), -1);
    } else {
        x86_vector(a, l->e->width == 8 ? X86_BROADCASTSD : X86_BROADCASTSS, l->passing, 0, element,
                   -1);
    }
    l->one_slots[pointer] = l->n_slots++;
    x86_vector(a, X86_STORE_UPS, passing.number, 0, in_frame(l, l->one_slots[pointer]), -1);
}

static void add_reciprocal(struct loop *l, int pointer) {
    static const uint64_t one[] = {0x3f800000, 0x3ff0000000000000};
    x86_vector(l->a, X86_MOVUPS, l->passing, 0, number_place(l, one[l->e->width == 8]), -1);
    x86_vector(l->a, form_of(l, VECTOR_OP_DIV), l->passing, l->passing,
               in_frame(l, l->one_slots[pointer]), -1);
    l->reciprocal_slots[pointer] = l->n_slots++;
    x86_vector(l->a, X86_STORE_UPS, l->passing, 0, in_frame(l, l->reciprocal_slots[pointer]), -1);
}

static void add_pointers(struct loop *l) {
    int n = 0;
    for (int i = 0; i < l->e->n_pointers; i++) {
        if (l->e->is_one[i])
            broadcast_one(l, i);
        if (l->e->division != EMIT_DIVIDE && l->e->divisors >> i & 1)
            add_reciprocal(l, i);
    }
    for (int i = 0; i < l->e->n_pointers; i++) {
        if (l->e->is_one[i])
            continue;
        CHECK(n < EMIT_MAX_VECTORS);
        l->pointers[i] = pointer_registers[n++];
        x86_load_pointer(l->a, l->pointers[i], i);
    }
}

void emit_loop(struct emitter *e, struct x86 *a) {
    struct loop l = {.e = e,
                     .a = a,
                     .vector_bytes = a->is_wide ? 64 : 32,
                     .n_registers = a->is_wide ? 31 : 15,
                     .passing = a->is_wide ? 31 : 15};
    int n_vectors = 0;
    for (int i = 0; i < e->n_ops; i++)
        l.register_of[i] = l.slot_of[i] = -1;
    for (int r = 0; r < MAX_REGISTERS; r++)
        l.value_in[r] = -1;
    for (int i = 0; i < e->n_pointers; i++)
        n_vectors += !e->is_one[i];
    x86_push(a, X86_RBP);
    x86_bytes(a, frame_pointer, sizeof(frame_pointer));
    for (int i = N_FREE; i < n_vectors; i++)
        x86_push(a, pointer_registers[i]);
    x86_bytes(a, frame_grow, sizeof(frame_grow));
    size_t frame_at = a->size - 4;
    x86_bytes(a, frame_align, sizeof(frame_align));
    x86_bytes(a, first_element, sizeof(first_element));
    add_pointers(&l);
    size_t begin = a->size;
    add_body(&l);
    uint8_t step = (uint8_t)(e->n_turns * l.vector_bytes / e->width);
    x86_bytes(a, next_vector, sizeof(next_vector));
    x86_bytes(a, &step, 1);
    x86_bytes(a, is_more, sizeof(is_more));
    x86_patch_i32(a, a->size - 4, (int64_t)begin - (int64_t)a->size);
    x86_bytes(a, leave, sizeof(leave));
    x86_bytes(a, frame_drop, sizeof(frame_drop));
    uint8_t pushed = (uint8_t)(-8 * MAX(n_vectors - N_FREE, 0));
    x86_bytes(a, &pushed, 1);
    for (int i = n_vectors - 1; i >= N_FREE; i--)
        x86_pop(a, pointer_registers[i]);
    x86_pop(a, X86_RBP);
    x86_bytes(a, return_to_caller, sizeof(return_to_caller));
    add_detours(&l);
    x86_patch_i32(a, frame_at, (int64_t)(l.n_slots * l.vector_bytes));
    x86_finish(a);
}
