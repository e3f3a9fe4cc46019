/* Gives registers to the values of a run.
 *
 * A value gets a register when it is computed, or when an operation cannot take it from memory.
 * Where none is free, the value that is read latest gives its register up. It is read again from
 * where it is: an operand, a number, or a place in the frame. */
#include "kernels/cpu/emit/emit_loop.h"

#include "common/base/base.h"

static const struct shape_of {
    enum vector_shape shape;
    enum x86_form forms[2];
} shapes[] = {
#define VECTOR_OPERATION(name, shape, four, eight) {VECTOR_##shape, {four, eight}},
#include "kernels/cpu/emit/emit_operations.inc"
};

enum vector_shape emit_shape_of(const struct vector_op *op) { return shapes[op->operation].shape; }

enum x86_form emit_form_of(const struct emit_loop *l, enum vector_operation operation) {
    enum x86_form form = shapes[operation].forms[l->e->width == 8];
    CHECK(form != X86_N_FORMS);
    return form;
}

/* ---- places ---- */

struct x86_place emit_element_of(const struct emit_loop *l, const struct vector_op *op) {
    bool is_bool = l->e->pointer_types[op->pointer] == DT_BOOL;
    int vector = is_bool ? l->vector_bytes / l->e->width : l->vector_bytes;
    return (struct x86_place){.kind = X86_ELEMENT,
                              .number = (int)l->pointers[op->pointer],
                              .offset = op->turn * vector,
                              .scale = is_bool            ? 0
                                       : l->e->width == 8 ? 3
                                                          : 2};
}

/* Where a value is that has no register. A bool has no such place. */
static struct x86_place memory_of(const struct emit_loop *l, int value) {
    const struct vector_op *op = &l->e->ops[value];
    if (op->operation == VECTOR_OP_LOAD)
        return emit_element_of(l, op);
    if (op->operation == VECTOR_OP_ONE)
        return emit_in_frame(l, l->one_slots[op->pointer]);
    if (op->operation == VECTOR_OP_RECIPROCAL)
        return emit_in_frame(l, l->reciprocal_slots[op->pointer]);
    if (op->operation == VECTOR_OP_NUMBER)
        return emit_number_place(l, op->bits);
    CHECK(l->slot_of[value] >= 0);
    return emit_in_frame(l, l->slot_of[value]);
}

/* ---- registers ---- */

void emit_find_uses(struct emit_loop *l) {
    for (int i = 0; i < l->e->n_ops; i++)
        l->next_use[i] = EMIT_MAX_VECTOR_OPS;
    for (int i = l->e->n_ops - 1; i >= 0; i--) {
        const struct vector_op *op = &l->e->ops[i];
        for (int s = 0; s < op->n_sources; s++)
            l->use_after[i][s] = l->next_use[op->source[s]];
        for (int s = 0; s < op->n_sources; s++)
            l->next_use[op->source[s]] = (int16_t)i;
    }
}
void emit_pass_uses(struct emit_loop *l, int from) {
    for (int i = from; i <= l->at; i++)
        for (int s = 0; s < l->e->ops[i].n_sources; s++)
            l->next_use[l->e->ops[i].source[s]] = l->use_after[i][s];
}

static void give_up(struct emit_loop *l, int number) {
    int value = l->value_in[number];
    const struct vector_op *op = &l->e->ops[value];
    bool is_leaf = emit_shape_of(op) == VECTOR_LEAF;
    if (!is_leaf && l->slot_of[value] < 0) {
        l->slot_of[value] = l->n_slots++;
        x86_vector(l->a, X86_STORE_UPS, number, 0, emit_in_frame(l, l->slot_of[value]), -1);
    }
    l->register_of[value] = -1;
    l->value_in[number] = -1;
}

int emit_take_register(struct emit_loop *l, int value) {
    int found = -1, latest = -1;
    for (int r = 0; r < l->n_registers && (found < 0 || l->value_in[found] >= 0); r++) {
        int use = l->value_in[r] < 0 ? INT32_MAX : l->next_use[l->value_in[r]];
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

static void load(struct emit_loop *l, int value, int number) {
    const struct vector_op *op = &l->e->ops[value];
    if (op->operation != VECTOR_OP_LOAD_BOOL) {
        x86_vector(l->a, X86_MOVUPS, number, 0, memory_of(l, value), -1);
        return;
    }
    x86_vector(l->a, emit_form_of(l, VECTOR_OP_LOAD_BOOL), number, 0, emit_element_of(l, op), -1);
    x86_vector(l->a, emit_form_of(l, VECTOR_OP_GREATER_INT), number, number,
               emit_number_place(l, 0), -1);
}

int emit_use_register(struct emit_loop *l, int value) {
    int number = l->register_of[value];
    if (number < 0) {
        number = emit_take_register(l, value);
        load(l, value, number);
    }
    l->pinned |= 1u << number;
    return number;
}

static bool has_free(const struct emit_loop *l) {
    for (int r = 0; r < l->n_registers; r++)
        if (l->value_in[r] < 0)
            return true;
    return false;
}

struct x86_place emit_use_place(struct emit_loop *l, int value) {
    const struct vector_op *op = &l->e->ops[value];
    bool is_cheap = op->operation == VECTOR_OP_ONE || op->operation == VECTOR_OP_RECIPROCAL ||
                    op->operation == VECTOR_OP_NUMBER;
    if (is_cheap && l->a->is_wide && op->last_use > l->at && has_free(l))
        return emit_in_register(emit_use_register(l, value));
    bool may_stay = op->operation != VECTOR_OP_LOAD_BOOL && (is_cheap || op->last_use == l->at);
    if (l->register_of[value] < 0 && may_stay)
        return memory_of(l, value);
    return emit_in_register(emit_use_register(l, value));
}

void emit_release_sources(struct emit_loop *l) {
    const struct vector_op *op = &l->e->ops[l->at];
    for (int s = 0; s < op->n_sources; s++) {
        int value = op->source[s], number = l->register_of[value];
        if (number < 0 || l->e->ops[value].last_use > l->at)
            continue;
        l->value_in[number] = l->register_of[value] = -1;
        l->pinned &= ~(1u << number);
    }
}

bool emit_dies_in_register(const struct emit_loop *l, int value) {
    return l->register_of[value] >= 0 && l->e->ops[value].last_use == l->at;
}
