/* Emits divisions by an operand that stands for all. emit_division.c has the operations, and their
 * proof.
 *
 *   for each vector   q' from the dividend, the divisor and its reciprocal
 *   one check         has a dividend elements for which this is not proved?
 *                     then, behind the loop, the processor's division of these vectors, and back
 */
#include "kernels/cpu/emit/emit_loop.h"

static const uint8_t jump_if_any[] = {0x0f, 0x85, 0, 0, 0, 0};     /* jnz */
static const uint8_t jump_if_not_all[] = {0x0f, 0x83, 0, 0, 0, 0}; /* jnc */

/* Where vectors have 256 bits, the check is of integers (emit_division.c), and of one dividend. */
static void add_narrow_check(struct emit_loop *l, int dividend) {
    static const uint8_t is_any[] = {0x85, 0xff}; /* test edi, edi */
    struct x86 *a = l->a;
    struct x86_place passing = emit_in_register(l->passing);
    int mask = l->passing;
    bool has_halves = l->e->width == 8;
    x86_vector(a, emit_form_of(l, VECTOR_OP_ADD_INT), mask, dividend, emit_in_register(dividend),
               -1);
    if (has_halves)
        x86_vector(a, X86_PADDQ, mask, mask, emit_number_place(l, ~0ull), -1);
    x86_vector(a, X86_PADDD, mask, mask, emit_number_place(l, emit_division_offset(l->e->width)),
               -1);
    x86_vector(a, X86_PABSD, mask, 0, passing, -1);
    x86_vector(a, X86_PCMPGTD, mask, mask, emit_number_place(l, emit_division_reach(l->e->width)),
               -1);
    x86_vector(a, has_halves ? X86_MOVMSKPD : X86_MOVMSKPS, X86_RDI, 0, passing, -1);
    x86_bytes(a, is_any, sizeof(is_any));
    x86_bytes(a, jump_if_any, sizeof(jump_if_any));
}

/* Where vectors have 512 bits: the least amount of all dividends is not too small, and no quotient
 * is NaN. Each comparison is only of elements that have passed those before it. */
static void add_wide_check(struct emit_loop *l, const struct emit_detour *d) {
    static const uint8_t are_all[2][4] = {{0xc5, 0xf8, 0x98, 0xc9},  /* kortestw k1, k1 */
                                          {0xc5, 0xf9, 0x98, 0xc9}}; /* kortestb k1, k1 */
    enum { LEAST_AMOUNT = 0x0a, COMPARE_ORDERED = 0x07 };
    bool is_double = l->e->width == 8;
    enum x86_form range = is_double ? X86_RANGEPD : X86_RANGEPS;
    enum x86_form compare = emit_form_of(l, VECTOR_OP_COMPARE);
    struct x86 *a = l->a;
    int least = d->of[0].dividend;
    for (int i = d->n > 1; i < d->n; i++, least = l->passing)
        x86_vector(a, range, l->passing, least, emit_in_register(d->of[i].dividend), LEAST_AMOUNT);
    x86_vector(a, compare, EMIT_PASSING_MASK, l->passing,
               emit_number_place(l, emit_division_least(l->e->width)), COMPARE_GREATER_EQUAL);
    for (int i = 0; i < d->n; i += 2)
        x86_masked(a, compare, EMIT_PASSING_MASK, EMIT_PASSING_MASK, d->of[i].result,
                   emit_in_register(d->of[i + 1 < d->n ? i + 1 : i].result), COMPARE_ORDERED);
    x86_bytes(a, are_all[is_double], sizeof(are_all[0]));
    x86_bytes(a, jump_if_not_all, sizeof(jump_if_not_all));
}

static struct emit_division_of add_quotient(struct emit_loop *l, const struct vector_op *op) {
    bool is_double = l->e->width == 8;
    int x = emit_use_register(l, op->source[0]);
    struct x86_place c = emit_use_place(l, op->source[1]), r = emit_use_place(l, op->source[2]);
    int q = emit_take_register(l, l->at);
    l->pinned |= 1u << q;
    x86_vector(l->a, is_double ? X86_MULPD : X86_MULPS, q, x, r, -1);
    x86_vector(l->a, X86_MOVUPS, l->passing, 0, emit_in_register(q), -1);
    x86_vector(l->a, is_double ? X86_FMSUB132PD : X86_FMSUB132PS, l->passing, x, c, -1);
    x86_vector(l->a, is_double ? X86_FNMADD231PD : X86_FNMADD231PS, q, l->passing, r, -1);
    return (struct emit_division_of){q, x, c};
}

/* Is the operation a quotient of none of the n results in the detour? */
static bool joins(const struct emit_loop *l, const struct emit_detour *d, int at) {
    const struct vector_op *op = &l->e->ops[at];
    if (emit_shape_of(op) != VECTOR_QUOTIENT || op->last_use < 0)
        return false;
    for (int i = 0; i < d->n; i++)
        if (l->value_in[d->of[i].result] == op->source[0])
            return false;
    return true;
}

/* Their registers stay as they are until the check, which the detours come back to. */
void emit_quotients(struct emit_loop *l) {
    struct emit_detour d = {.n = 0};
    const int first = l->at, most = l->a->is_wide ? EMIT_TURNS : 1;
    int next = first;
    l->pinned = 0;
    do {
        l->at = next++;
        d.of[d.n++] = add_quotient(l, &l->e->ops[l->at]);
        while (next < l->e->n_ops && emit_shape_of(&l->e->ops[next]) == VECTOR_LEAF)
            next++;
    } while (d.n < most && next < l->e->n_ops && joins(l, &d, next));
    if (l->a->is_wide)
        add_wide_check(l, &d);
    else
        add_narrow_check(l, d.of[0].dividend);
    d.back = l->a->size;
    if (l->n_detours == EMIT_MAX_DETOURS)
        l->a->is_full = true;
    else
        l->detours[l->n_detours++] = d;
    const int last = l->at;
    for (l->at = first; l->at < last; l->at++)
        if (emit_shape_of(&l->e->ops[l->at]) != VECTOR_LEAF)
            emit_release_sources(l);
    emit_release_sources(l);
}

void emit_detours(struct emit_loop *l) {
    static const uint8_t jump[] = {0xe9, 0, 0, 0, 0};
    for (int i = 0; i < l->n_detours && !l->a->is_full; i++) {
        const struct emit_detour *d = &l->detours[i];
        x86_patch_i32(l->a, d->back - 4, (int64_t)l->a->size - (int64_t)d->back);
        for (int k = 0; k < d->n; k++)
            x86_vector(l->a, emit_form_of(l, VECTOR_OP_DIV), d->of[k].result, d->of[k].dividend,
                       d->of[k].divisor, -1);
        x86_bytes(l->a, jump, sizeof(jump));
        x86_patch_i32(l->a, l->a->size - 4, (int64_t)d->back - (int64_t)l->a->size);
    }
}
