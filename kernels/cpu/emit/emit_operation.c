/* Emits the operations of a loop: mostly one instruction each. */
#include "kernels/cpu/emit/emit_loop.h"

static void add_store(struct emit_loop *l, const struct vector_op *op) {
    int number = emit_use_register(l, op->source[0]);
    struct x86_place place = emit_element_of(l, op);
    if (op->operation == VECTOR_OP_STORE) {
        x86_vector(l->a, X86_STORE_UPS, number, 0, place, -1);
    } else { /* masks to bytes of 1 and 0 */
        struct x86_place passing = emit_in_register(l->passing);
        x86_vector(l->a, X86_EXTRACTI128, number, 0, passing, 1);
        x86_vector(l->a, X86_PACKSSDW_X, l->passing, number, passing, -1);
        x86_vector(l->a, X86_PACKSSWB_X, l->passing, l->passing, passing, -1);
        if (l->e->width == 8)
            x86_vector(l->a, X86_PACKSSWB_X, l->passing, l->passing, passing, -1);
        x86_vector(l->a, X86_PABSB_X, l->passing, 0, passing, -1);
        x86_vector(l->a, l->e->width == 8 ? X86_MOVD_STORE : X86_MOVQ_STORE, l->passing, 0, place,
                   -1);
    }
    emit_release_sources(l);
}

/* ---- comparisons and choices ---- */

static bool is_comparison(const struct vector_op *op) {
    return op->operation == VECTOR_OP_COMPARE || op->operation == VECTOR_OP_EQUAL_INT ||
           op->operation == VECTOR_OP_GREATER_INT;
}

/* Does every operation that reads the value only choose by it? */
static bool only_chooses(const struct emitter *e, int value) {
    enum { CHOICE = 2 };
    for (int i = value + 1; i <= e->ops[value].last_use; i++)
        for (int s = 0; s < e->ops[i].n_sources; s++)
            if (e->ops[i].source[s] == value &&
                (s != CHOICE || emit_shape_of(&e->ops[i]) != VECTOR_SELECT))
                return false;
    return true;
}

static int take_mask(struct emit_loop *l, int value) {
    for (int k = EMIT_FIRST_MASK; k < EMIT_N_MASKS; k++) {
        if (l->is_mask_taken[k])
            continue;
        l->is_mask_taken[k] = true;
        l->mask_of[value] = (uint8_t)k;
        return k;
    }
    return EMIT_PASSING_MASK;
}

/* To a mask register, and from there to a vector unless it is only there to choose. */
static void add_wide_comparison(struct emit_loop *l, const struct vector_op *op) {
    int imm = op->operation == VECTOR_OP_COMPARE ? op->imm : -1;
    int first = emit_use_register(l, op->source[0]), mask = EMIT_PASSING_MASK;
    struct x86_place last = emit_use_place(l, op->source[1]);
    emit_release_sources(l);
    if (only_chooses(l->e, l->at))
        mask = take_mask(l, l->at);
    x86_vector(l->a, emit_form_of(l, op->operation), mask, first, last, imm);
    if (mask == EMIT_PASSING_MASK)
        x86_vector(l->a, l->e->width == 8 ? X86_MOVM2Q : X86_MOVM2D, emit_take_register(l, l->at),
                   0, emit_in_register(mask), -1);
}

static void add_blend(struct emit_loop *l, const struct vector_op *op) {
    int value = op->source[2], mask = l->mask_of[value], no = emit_use_register(l, op->source[0]);
    struct x86_place yes = emit_use_place(l, op->source[1]);
    emit_release_sources(l);
    if (l->e->ops[value].last_use == l->at)
        l->is_mask_taken[mask] = false;
    int result = emit_take_register(l, l->at);
    x86_masked(l->a, l->e->width == 8 ? X86_BLENDMPD : X86_BLENDMPS, mask, result, no, yes, -1);
}

static void add_operation(struct emit_loop *l, const struct vector_op *op) {
    enum vector_shape shape = emit_shape_of(op);
    bool has_imm = op->operation == VECTOR_OP_COMPARE || op->operation == VECTOR_OP_ROUND;
    int first = 0, imm = has_imm ? op->imm : -1;
    if (shape != VECTOR_ONE)
        first = emit_use_register(l, op->source[0]);
    if (shape == VECTOR_SELECT)
        imm = emit_use_register(l, op->source[2]) << 4;
    struct x86_place last = emit_use_place(l, op->source[shape != VECTOR_ONE]);
    emit_release_sources(l);
    int result = emit_take_register(l, l->at);
    x86_vector(l->a, emit_form_of(l, op->operation), result, first, last, imm);
}

static void swap(int *a, int *b) {
    int c = *a;
    *a = *b;
    *b = c;
}

/* The instruction writes to a source's register: one that no later operation reads, or a copy. */
static void add_mul_add(struct emit_loop *l, const struct vector_op *op) {
    enum { FORM_213 = 1, FORM_231 = 2 };
    enum x86_form form = emit_form_of(l, op->operation);
    int a = op->source[0], b = op->source[1], c = op->source[2], result;
    if (emit_dies_in_register(l, b) || l->register_of[a] < 0)
        swap(&a, &b);
    if (emit_dies_in_register(l, c)) {
        result = emit_use_register(l, c);
        int first = emit_use_register(l, a);
        x86_vector(l->a, form + FORM_231, result, first, emit_use_place(l, b), -1);
    } else {
        bool is_copied = !emit_dies_in_register(l, a);
        if (is_copied && l->register_of[b] < 0) /* what is copied comes from memory anyway */
            swap(&a, &b);
        int first = emit_use_register(l, b);
        struct x86_place last = emit_use_place(l, c);
        result = is_copied ? -1 : emit_use_register(l, a);
        if (is_copied) {
            struct x86_place from = emit_use_place(l, a);
            result = emit_take_register(l, l->at);
            x86_vector(l->a, X86_MOVUPS, result, 0, from, -1);
        }
        x86_vector(l->a, form + FORM_213, result, first, last, -1);
    }
    emit_release_sources(l);
    l->value_in[result] = l->at;
    l->register_of[l->at] = result;
}

/* Where vectors have 512 bits, each bit of a mask chooses. The result is in the place of a source
 * that no later operation reads, or of a copy of the mask. */
static void add_wide_select(struct emit_loop *l, const struct vector_op *op) {
    enum { MASK_YES_NO = 0xca, NO_YES_MASK = 0xd8 }; /* the result by bits of all three */
    int no = op->source[0], yes = op->source[1], mask = op->source[2];
    bool is_in_no = no != yes && no != mask && emit_dies_in_register(l, no);
    int in_place = is_in_no ? no : mask, result;
    int second = emit_use_register(l, yes);
    struct x86_place last = emit_use_place(l, is_in_no ? mask : no);
    if (emit_dies_in_register(l, in_place)) {
        result = emit_use_register(l, in_place);
    } else {
        struct x86_place from = emit_use_place(l, mask);
        result = emit_take_register(l, l->at);
        x86_vector(l->a, X86_MOVUPS, result, 0, from, -1);
    }
    x86_vector(l->a, X86_TERNLOG, result, second, last, is_in_no ? NO_YES_MASK : MASK_YES_NO);
    emit_release_sources(l);
    l->value_in[result] = l->at;
    l->register_of[l->at] = result;
}

static void add_shift(struct emit_loop *l, const struct vector_op *op) {
    enum { RIGHT = 2, LEFT = 6 };
    int how = op->operation == VECTOR_OP_SHIFT_LEFT ? LEFT : RIGHT;
    int source = emit_use_register(l, op->source[0]);
    emit_release_sources(l);
    int result = emit_take_register(l, l->at);
    x86_vector(l->a, emit_form_of(l, op->operation), how, result, emit_in_register(source),
               op->imm);
}

void emit_operation(struct emit_loop *l) {
    const struct vector_op *op = &l->e->ops[l->at];
    enum vector_shape shape = emit_shape_of(op);
    l->pinned = 0;
    if (shape == VECTOR_STORE)
        add_store(l, op);
    else if (shape == VECTOR_LEAF || op->last_use < 0)
        return;
    else if (shape == VECTOR_MUL_ADD)
        add_mul_add(l, op);
    else if (shape == VECTOR_SELECT && l->a->is_wide)
        (l->mask_of[op->source[2]] ? add_blend : add_wide_select)(l, op);
    else if (shape == VECTOR_SHIFT)
        add_shift(l, op);
    else if (l->a->is_wide && is_comparison(op))
        add_wide_comparison(l, op);
    else
        add_operation(l, op);
}
