/* Lists the ops that can be compiled, with the vector operations that each is made of: those of the
 * ops' loops (kernels/cpu/math, kernels/cpu/nn) in the same order, so that results are equal to the
 * bit. A bool is a mask: all bits of the element, or none. */
#include <string.h>

#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"

struct emit_row {
    const char *op;
    dtype_set in; /* of the last operand */
    int (*lower)(struct emitter *e, const struct emit_instruction *instruction, const int *x);
    uint8_t operation, imm; /* for those that share a function */
    dtype_set out;          /* 0: any */
};

/* ---- shorthand ---- */

int emit_add(struct emitter *e, enum vector_operation operation, int a, int b, int c, int imm) {
    struct vector_op *op = &e->ops[e->n_ops];
    if (e->n_ops == EMIT_MAX_VECTOR_OPS - 1) {
        e->is_full = true;
        return 0;
    }
    *op = (struct vector_op){.operation = (uint8_t)operation,
                             .n_sources = (uint8_t)((a >= 0) + (b >= 0) + (c >= 0)),
                             .imm = (uint8_t)imm,
                             .source = {(int16_t)a, (int16_t)b, (int16_t)c},
                             .last_use = -1};
    return e->n_ops++;
}

int emit_bits(struct emitter *e, uint64_t bits) {
    for (int i = 0; i < e->n_numbers; i++)
        if (e->ops[e->numbers[i]].bits == bits)
            return e->numbers[i];
    if (e->n_numbers == X86_MAX_CONSTANTS) {
        e->is_full = true;
        return 0;
    }
    int value = emit_add(e, VECTOR_OP_NUMBER, -1, -1, -1, 0);
    e->ops[value].bits = bits;
    e->numbers[e->n_numbers++] = (int16_t)value;
    return value;
}

static int two(struct emitter *e, enum vector_operation operation, int a, int b) {
    return emit_add(e, operation, a, b, -1, 0);
}
static int one(struct emitter *e, enum vector_operation operation, int a) {
    return emit_add(e, operation, a, -1, -1, 0);
}
static int compare(struct emitter *e, int a, int b, int how) {
    return emit_add(e, VECTOR_OP_COMPARE, a, b, -1, how);
}
/* mask ? yes : no */
static int choose(struct emitter *e, int mask, int yes, int no) {
    return emit_add(e, VECTOR_OP_SELECT, no, yes, mask, 0);
}
int emit_number(struct emitter *e, double x) {
    float narrow = (float)x;
    uint32_t bits;
    uint64_t wide;
    memcpy(&bits, &narrow, sizeof(bits));
    memcpy(&wide, &x, sizeof(wide));
    return emit_bits(e, e->width == 4 ? bits : wide);
}
static int number(struct emitter *e, double x) { return emit_number(e, x); }
static int ones(struct emitter *e) { return emit_bits(e, e->width == 4 ? 0xffffffff : ~0ull); }
static int sign_bit(struct emitter *e) { return emit_bits(e, 1ull << (8 * e->width - 1)); }
static int no(struct emitter *e, int mask) { return two(e, VECTOR_OP_XOR, mask, ones(e)); }

static bool is_float(enum dtype dtype) { return dtype == DT_FLOAT || dtype == DT_DOUBLE; }
static bool is_one(const struct emitter *e, int value) {
    return e->ops[value].operation == VECTOR_OP_ONE;
}

#define LOWER(name)          \
    static int lower_##name( \
        struct emitter *e, const struct emit_instruction *i __attribute__((unused)), const int *x)

/* ---- what is one operation ---- */

LOWER(one) { return one(e, (enum vector_operation)i->row->operation, x[0]); }
LOWER(two) { return two(e, (enum vector_operation)i->row->operation, x[0], x[1]); }
/* Sums and products. Of two NaNs the first is the result, and the loops of the kernels take an
 * operand that stands for all first. */
LOWER(symmetric) {
    bool turns = is_one(e, x[1]) && !is_one(e, x[0]);
    return two(e, (enum vector_operation)i->row->operation, x[turns], x[!turns]);
}
LOWER(round) { return emit_add(e, VECTOR_OP_ROUND, x[0], -1, -1, i->row->imm); }
LOWER(same) { return x[0]; }

/* ---- arithmetic ---- */

LOWER(neg) {
    return is_float(i->in) ? two(e, VECTOR_OP_XOR, x[0], sign_bit(e))
                           : two(e, VECTOR_OP_SUB_INT, emit_bits(e, 0), x[0]);
}
LOWER(abs) {
    if (is_float(i->in))
        return two(e, VECTOR_OP_AND_NOT, sign_bit(e), x[0]);
    if (e->width == 4)
        return one(e, VECTOR_OP_ABS_INT, x[0]);
    int zero = emit_bits(e, 0);
    return choose(e, two(e, VECTOR_OP_GREATER_INT, zero, x[0]),
                  two(e, VECTOR_OP_SUB_INT, zero, x[0]), x[0]);
}
LOWER(square) { return two(e, (enum vector_operation)i->row->operation, x[0], x[0]); }
LOWER(squared_difference) {
    int d = two(e, VECTOR_OP_SUB, x[0], x[1]);
    return two(e, VECTOR_OP_MUL, d, d);
}
LOWER(rsqrt) { return two(e, VECTOR_OP_DIV, number(e, 1), one(e, VECTOR_OP_SQRT, x[0])); }
LOWER(reciprocal) { return two(e, VECTOR_OP_DIV, number(e, 1), x[0]); }
/* x > y || x != x ? x : y, and with less: the processor's gives y for a NaN in either. */
LOWER(extreme) {
    int r = two(e, (enum vector_operation)i->row->operation, x[0], x[1]);
    return choose(e, compare(e, x[0], x[0], COMPARE_UNORDERED), x[0], r);
}
/* x > y ? x : y of 8 bytes */
LOWER(extreme_int) {
    bool is_max = i->row->imm;
    return choose(e, two(e, VECTOR_OP_GREATER_INT, x[!is_max], x[is_max]), x[0], x[1]);
}
LOWER(divide) { return emit_divide(e, x[0], x[1]); }
/* y == 0 ? 0 : x op y */
LOWER(no_nan) {
    bool divides = i->row->operation == VECTOR_OP_DIV;
    int r = divides ? emit_divide(e, x[0], x[1])
                    : two(e, (enum vector_operation)i->row->operation, x[0], x[1]);
    if (divides && is_one(e, x[1]) && e->division != EMIT_DIVIDE)
        return r; /* the divisor is not 0 */
    return two(e, VECTOR_OP_AND_NOT, compare(e, x[1], number(e, 0), COMPARE_EQUAL), r);
}
LOWER(sum) {
    int sum = x[0];
    enum vector_operation add = is_float(i->in) ? VECTOR_OP_ADD : VECTOR_OP_ADD_INT;
    for (int k = 1; k < i->n_operands; k++)
        sum = two(e, add, sum, x[k]);
    return sum;
}

/* ---- comparisons and choices ---- */

LOWER(compare) { return compare(e, x[0], x[1], i->row->imm); }
LOWER(equal_int) {
    int r = two(e, VECTOR_OP_EQUAL_INT, x[0], x[1]);
    return i->row->imm ? no(e, r) : r;
}
/* x > y with imm 0, and its three relatives: bit 0 exchanges the operands, bit 1 denies */
LOWER(order_int) {
    bool turns = i->row->imm & 1;
    int r = two(e, VECTOR_OP_GREATER_INT, x[turns], x[!turns]);
    return i->row->imm & 2 ? no(e, r) : r;
}
LOWER(equal_bool) {
    int r = two(e, VECTOR_OP_XOR, x[0], x[1]);
    return i->row->imm ? r : no(e, r);
}
LOWER(not ) { return no(e, x[0]); }
LOWER(is_nan) { return compare(e, x[0], x[0], COMPARE_UNORDERED); }
LOWER(is_finite) {
    int magnitude = two(e, VECTOR_OP_AND_NOT, sign_bit(e), x[0]);
    return compare(e, magnitude, number(e, __builtin_inf()), i->row->imm);
}
LOWER(select) { return choose(e, x[0], x[1], x[2]); }
/* high < x ? (high < low ? low : high) : (x < low ? low : x) */
LOWER(clip) {
    int low = x[1], high = x[2];
    int upper = choose(e, compare(e, high, low, COMPARE_LESS), low, high);
    int inner = choose(e, compare(e, x[0], low, COMPARE_LESS), low, x[0]);
    return choose(e, compare(e, high, x[0], COMPARE_LESS), upper, inner);
}
LOWER(mask_to_number) {
    return two(e, VECTOR_OP_AND, x[0], is_float(i->out) ? number(e, 1) : emit_bits(e, 1));
}
LOWER(number_to_mask) {
    return is_float(i->in) ? compare(e, x[0], number(e, 0), COMPARE_NOT_EQUAL)
                           : no(e, two(e, VECTOR_OP_EQUAL_INT, x[0], emit_bits(e, 0)));
}

/* ---- activations and gradients ---- */

LOWER(relu) {
    int zero = emit_bits(e, 0);
    return is_float(i->in)
               ? two(e, VECTOR_OP_AND_NOT, compare(e, x[0], zero, COMPARE_LESS_EQUAL), x[0])
               : two(e, VECTOR_OP_AND, two(e, VECTOR_OP_GREATER_INT, x[0], zero), x[0]);
}
LOWER(relu_grad) {
    int above = compare(e, x[1], number(e, 0), COMPARE_GREATER);
    return two(e, VECTOR_OP_MUL, x[0], two(e, VECTOR_OP_AND, above, number(e, 1)));
}
LOWER(relu6) {
    int low = choose(e, compare(e, x[0], number(e, 6), COMPARE_GREATER), number(e, 6), x[0]);
    return two(e, VECTOR_OP_AND_NOT, compare(e, x[0], number(e, 0), COMPARE_LESS_EQUAL), low);
}
LOWER(relu6_grad) {
    int within = two(e, VECTOR_OP_AND, compare(e, x[1], number(e, 0), COMPARE_GREATER),
                     compare(e, x[1], number(e, 6), COMPARE_LESS));
    return two(e, VECTOR_OP_MUL, x[0], two(e, VECTOR_OP_AND, within, number(e, 1)));
}
/* x is the function's value, y the gradient */
LOWER(sigmoid_grad) {
    int product = two(e, VECTOR_OP_MUL, x[1], x[0]);
    return two(e, VECTOR_OP_MUL, product, two(e, VECTOR_OP_SUB, number(e, 1), x[0]));
}
LOWER(tanh_grad) {
    int square = two(e, VECTOR_OP_MUL, x[0], x[0]);
    return two(e, VECTOR_OP_MUL, x[1], two(e, VECTOR_OP_SUB, number(e, 1), square));
}
/* A gradient of 0 stays 0. */
static int unless_zero(struct emitter *e, int gradient, int r) {
    return two(e, VECTOR_OP_AND_NOT, compare(e, gradient, number(e, 0), COMPARE_EQUAL), r);
}
LOWER(sqrt_grad) {
    int half = two(e, VECTOR_OP_MUL, number(e, 0.5), x[1]);
    return unless_zero(e, x[1], two(e, VECTOR_OP_DIV, half, x[0]));
}
LOWER(rsqrt_grad) {
    int r = two(e, VECTOR_OP_MUL, number(e, -0.5), x[1]);
    for (int k = 0; k < 3; k++)
        r = two(e, VECTOR_OP_MUL, r, x[0]);
    return unless_zero(e, x[1], r);
}

LOWER(exp) { return emit_exp(e, x[0]); }
LOWER(tanh) { return emit_tanh(e, x[0]); }
LOWER(sigmoid) { return emit_sigmoid(e, x[0]); }
LOWER(erf) { return emit_erf(e, x[0]); }
LOWER(erfc) { return emit_erfc(e, x[0]); }

/* ---- the table ---- */

#define F32 DTYPE_BIT(DT_FLOAT)
#define FLOATS (F32 | DTYPE_BIT(DT_DOUBLE))
#define I32 DTYPE_BIT(DT_INT32)
#define U32 DTYPE_BIT(DT_UINT32)
#define I64 DTYPE_BIT(DT_INT64)
#define SIGNED (I32 | I64)
#define INTS (SIGNED | U32 | DTYPE_BIT(DT_UINT64))
#define BOOL DTYPE_BIT(DT_BOOL)
#define BY(function, operation) lower_##function, VECTOR_OP_##operation
#define HOW(function, imm) lower_##function, 0, imm
#define OWN(function) lower_##function

// clang-format off
static const struct emit_row rows[] = {
    {"AddV2", FLOATS, BY(symmetric, ADD)},         {"AddV2", INTS, BY(two, ADD_INT)},
    {"Add", FLOATS, BY(symmetric, ADD)},           {"Add", SIGNED, BY(two, ADD_INT)},
    {"BiasAdd", FLOATS, BY(symmetric, ADD)},
    {"Sub", FLOATS, BY(two, SUB)},                 {"Sub", INTS, BY(two, SUB_INT)},
    {"Mul", FLOATS, BY(symmetric, MUL)},           {"Mul", I32 | U32, BY(two, MUL_INT)},
    {"RealDiv", FLOATS, OWN(divide)},              {"Div", FLOATS, OWN(divide)},
    {"DivNoNan", FLOATS, BY(no_nan, DIV)},         {"MulNoNan", FLOATS, BY(no_nan, MUL)},
    {"Maximum", FLOATS, BY(extreme, MAX)},         {"Minimum", FLOATS, BY(extreme, MIN)},
    {"Maximum", I32, BY(two, MAX_INT)},            {"Minimum", I32, BY(two, MIN_INT)},
    {"Maximum", U32, BY(two, MAX_UINT)},           {"Minimum", U32, BY(two, MIN_UINT)},
    {"Maximum", I64, HOW(extreme_int, 1)},         {"Minimum", I64, HOW(extreme_int, 0)},
    {"SquaredDifference", FLOATS, OWN(squared_difference)},
    {"Neg", FLOATS | SIGNED, OWN(neg)},            {"Abs", FLOATS | SIGNED, OWN(abs)},
    {"Square", FLOATS, BY(square, MUL)},           {"Square", I32 | U32, BY(square, MUL_INT)},
    {"Sqrt", FLOATS, BY(one, SQRT)},               {"Rsqrt", FLOATS, OWN(rsqrt)},
    {"Reciprocal", FLOATS, OWN(reciprocal)},       {"Inv", FLOATS, OWN(reciprocal)},
    {"Floor", FLOATS, HOW(round, ROUND_DOWN)},     {"Ceil", FLOATS, HOW(round, ROUND_UP)},
    {"Round", FLOATS, HOW(round, ROUND_EVEN)},     {"Rint", FLOATS, HOW(round, ROUND_EVEN)},
    {"AddN", FLOATS | INTS, OWN(sum)},             {"AccumulateNV2", FLOATS | INTS, OWN(sum)},

    {"Less", FLOATS, HOW(compare, COMPARE_LESS)},  {"Less", SIGNED, HOW(order_int, 1)},
    {"LessEqual", FLOATS, HOW(compare, COMPARE_LESS_EQUAL)},
    {"LessEqual", SIGNED, HOW(order_int, 2)},
    {"Greater", FLOATS, HOW(compare, COMPARE_GREATER)}, {"Greater", SIGNED, HOW(order_int, 0)},
    {"GreaterEqual", FLOATS, HOW(compare, COMPARE_GREATER_EQUAL)},
    {"GreaterEqual", SIGNED, HOW(order_int, 3)},
    {"Equal", FLOATS, HOW(compare, COMPARE_EQUAL)},     {"Equal", INTS, HOW(equal_int, 0)},
    {"NotEqual", FLOATS, HOW(compare, COMPARE_NOT_EQUAL)}, {"NotEqual", INTS, HOW(equal_int, 1)},
    {"Equal", BOOL, HOW(equal_bool, 0)},           {"NotEqual", BOOL, HOW(equal_bool, 1)},
    {"LogicalAnd", BOOL, BY(two, AND)},            {"LogicalOr", BOOL, BY(two, OR)},
    {"LogicalNot", BOOL, OWN(not)},                {"Invert", INTS, OWN(not)},
    {"BitwiseAnd", INTS, BY(two, AND)},            {"BitwiseOr", INTS, BY(two, OR)},
    {"BitwiseXor", INTS, BY(two, XOR)},
    {"IsNan", FLOATS, OWN(is_nan)},                {"IsInf", FLOATS, HOW(is_finite, COMPARE_EQUAL)},
    {"IsFinite", FLOATS, HOW(is_finite, COMPARE_LESS)},
    {"Select", FLOATS | INTS, OWN(select)},        {"SelectV2", FLOATS | INTS, OWN(select)},
    {"ClipByValue", FLOATS, OWN(clip)},
    {"Cast", BOOL, OWN(mask_to_number), .out = FLOATS | INTS},
    {"Cast", FLOATS | INTS, OWN(number_to_mask), .out = BOOL},
    {"Cast", I32, BY(one, INT_TO_FLOAT), .out = F32},
    {"Cast", I32 | U32, OWN(same), .out = I32 | U32},
    {"Cast", I64 | DTYPE_BIT(DT_UINT64), OWN(same), .out = I64 | DTYPE_BIT(DT_UINT64)},

    {"Relu", FLOATS | SIGNED, OWN(relu)},          {"ReluGrad", FLOATS, OWN(relu_grad)},
    {"Relu6", FLOATS, OWN(relu6)},                 {"Relu6Grad", FLOATS, OWN(relu6_grad)},
    {"SigmoidGrad", FLOATS, OWN(sigmoid_grad)},    {"TanhGrad", FLOATS, OWN(tanh_grad)},
    {"SqrtGrad", FLOATS, OWN(sqrt_grad)},          {"RsqrtGrad", FLOATS, OWN(rsqrt_grad)},
    {"Exp", FLOATS, OWN(exp)},                     {"Tanh", FLOATS, OWN(tanh)},
    {"Sigmoid", FLOATS, OWN(sigmoid)},             {"Erf", F32, OWN(erf)},
    {"Erfc", F32, OWN(erfc)},
};
// clang-format on

int emit_width(enum dtype in, enum dtype out) {
    int a = in == DT_BOOL ? 0 : (int)dtype_size(in), b = out == DT_BOOL ? 0 : (int)dtype_size(out);
    return a ? a : b;
}

const struct emit_row *emit_row_find(const char *op, enum dtype in, enum dtype out) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (dtype_in(in, rows[i].in) && (!rows[i].out || dtype_in(out, rows[i].out)) &&
            strcmp(rows[i].op, op) == 0)
            return &rows[i];
    return NULL;
}

int emit_row_lower(struct emitter *e, const struct emit_instruction *instruction,
                   const int *values) {
    return instruction->row->lower(e, instruction, values);
}

bool emit_row_at(size_t i, const char **ret_op, dtype_set *ret_in, dtype_set *ret_out) {
    if (i >= ARRAY_LEN(rows))
        return false;
    *ret_op = rows[i].op;
    *ret_in = rows[i].in;
    *ret_out = rows[i].out;
    return true;
}
