/* The vector operations of exp and similar functions: those of kernels/support/vmath.h and of
 * kernels/cpu/math/math_exp.inc as they are where there is FMA, with the same constants. What is
 * there chosen at the end, because x is too small or too large, is here what the polynomial gives
 * for a limit: 0, infinity or -1. */
#include "kernels/cpu/emit/emit_internal.h"

static int two(struct emitter *e, enum vector_operation operation, int a, int b) {
    return emit_add(e, operation, a, b, -1, 0);
}
/* a · b + c */
static int mul_add(struct emitter *e, int a, int b, int c) {
    return emit_add(e, VECTOR_OP_MUL_ADD, a, b, c, 0);
}
/* c - a · b */
static int mul_sub(struct emitter *e, int a, int b, int c) {
    return emit_add(e, VECTOR_OP_MUL_SUB, a, b, c, 0);
}
static uint64_t sign_of(const struct emitter *e) { return 1ull << (8 * e->width - 1); }
static int sign_bit(struct emitter *e) { return emit_bits(e, sign_of(e)); }

/* coefficients[0]·x^(n-1) + … + coefficients[n-1] */
static int polynomial(struct emitter *e, int x, const double *coefficients, int n) {
    int sum = emit_number(e, coefficients[0]);
    for (int i = 1; i < n; i++)
        sum = mul_add(e, sum, x, emit_number(e, coefficients[i]));
    return sum;
}

/* is NaN ? x + x : y */
static int keep_nan(struct emitter *e, int x, int y) {
    int is_nan = emit_add(e, VECTOR_OP_COMPARE, x, x, -1, COMPARE_UNORDERED);
    return emit_add(e, VECTOR_OP_SELECT, y, two(e, VECTOR_OP_ADD, x, x), is_nan, 0);
}

/* y with the sign of x */
static int copy_sign(struct emitter *e, int y, int x) {
    if (e->is_wide) /* each bit of a mask chooses */
        return emit_add(e, VECTOR_OP_SELECT, y, x, sign_bit(e), 0);
    int sign = two(e, VECTOR_OP_AND, sign_bit(e), x);
    return two(e, VECTOR_OP_OR, two(e, VECTOR_OP_AND_NOT, sign_bit(e), y), sign);
}

/* ---- vmath_reduce_f32, vmath_reduce_f64 ---- */

static const struct exp_numbers {
    double least, most; /* from where on exp is 0 or infinity */
    double log2_e, round, ln2_high, ln2_low;
    double coefficients[10];
    int n_coefficients;
    int bias, n_fraction_bits;
} exp_numbers[] = {
    {-104,
     89,
     0x1.715476p+0,
     12582912.0,
     0x1.62e400p-1,
     0x1.7f7d1cp-20,
     {0x1.6db414p-10, 0x1.123b46p-7, 0x1.55545ep-5, 0x1.555490p-3, 0.5},
     5,
     127,
     23},
    {-746,
     710,
     0x1.71547652b82fep+0,
     0x1.8p52,
     0x1.62e42fefa0000p-1,
     0x1.cf79abc9e3b3ap-40,
     {0x1.af23c2d42b84dp-26, 0x1.288088c0e67a5p-22, 0x1.71de17c442068p-19, 0x1.a019c971b4d98p-16,
      0x1.a01a01a4b9826p-13, 0x1.6c16c1739a511p-10, 0x1.1111111110e65p-7, 0x1.5555555554ca7p-5,
      0x1.5555555555555p-3, 0.5},
     10,
     1023,
     52},
};

struct reduced {
    int em1;
    int n;              /* where vectors have 512 bits */
    int scale1, scale2; /* else 2^n in two factors */
};

/* x is within the limits. */
static struct reduced reduce(struct emitter *e, int x) {
    const struct exp_numbers *of = &exp_numbers[e->width == 8];
    int round = emit_number(e, of->round);
    int shifted = mul_add(e, x, emit_number(e, of->log2_e), round);
    int n = two(e, VECTOR_OP_SUB, shifted, round);
    int r = mul_sub(e, n, emit_number(e, of->ln2_high), x);
    r = mul_sub(e, n, emit_number(e, of->ln2_low), r);
    int q = polynomial(e, r, of->coefficients, of->n_coefficients);
    int em1 = mul_add(e, two(e, VECTOR_OP_MUL, q, r), r, r);
    if (e->is_wide)
        return (struct reduced){.em1 = em1, .n = n};
    /* The low bits of `shifted` are n. With twice the bias, half of them is the first exponent, and
     * the rest the second. A shift drops all bits above. */
    int both = two(e, VECTOR_OP_ADD_INT, shifted, emit_bits(e, 2 * (uint64_t)of->bias));
    int half = emit_add(e, VECTOR_OP_SHIFT_RIGHT, both, -1, -1, 1);
    int rest = two(e, VECTOR_OP_SUB_INT, both, half);
    return (struct reduced){
        .em1 = em1,
        .scale1 = emit_add(e, VECTOR_OP_SHIFT_LEFT, half, -1, -1, of->n_fraction_bits),
        .scale2 = emit_add(e, VECTOR_OP_SHIFT_LEFT, rest, -1, -1, of->n_fraction_bits)};
}

/* y · 2^n for y from 2^-6 to 2. The product with the first factor is exact, so that one instruction
 * that rounds once gives the same bits. */
static int scale(struct emitter *e, int y, const struct reduced *by) {
    if (e->is_wide)
        return two(e, VECTOR_OP_SCALE, y, by->n);
    return two(e, VECTOR_OP_MUL, two(e, VECTOR_OP_MUL, y, by->scale1), by->scale2);
}

static int least(struct emitter *e, int x) { /* a NaN stays */
    return two(e, VECTOR_OP_MAX, emit_number(e, exp_numbers[e->width == 8].least), x);
}

static int exp_within(struct emitter *e, int x) {
    struct reduced t = reduce(e, x);
    int y = two(e, VECTOR_OP_ADD, t.em1, emit_number(e, 1));
    return scale(e, y, &t);
}

/* ---- functions ---- */

int emit_exp(struct emitter *e, int x) {
    int most = emit_number(e, exp_numbers[e->width == 8].most);
    return exp_within(e, two(e, VECTOR_OP_MIN, most, least(e, x)));
}

int emit_sigmoid(struct emitter *e, int x) {
    int one = emit_number(e, 1);
    int power = exp_within(e, least(e, two(e, VECTOR_OP_OR, sign_bit(e), x)));
    int is_below = emit_add(e, VECTOR_OP_COMPARE, x, emit_number(e, 0), -1, COMPARE_LESS);
    int above = emit_add(e, VECTOR_OP_SELECT, one, power, is_below, 0);
    int y = two(e, VECTOR_OP_DIV, above, two(e, VECTOR_OP_ADD, power, one));
    if (!e->is_wide)
        return keep_nan(e, x, y);
    /* y of a NaN has its bits already, but with the sign set. No other y has that. */
    return two(e, VECTOR_OP_AND, y, two(e, VECTOR_OP_OR, x, emit_bits(e, ~sign_of(e))));
}

int emit_tanh(struct emitter *e, int x) {
    int twice = two(e, VECTOR_OP_OR, sign_bit(e), two(e, VECTOR_OP_ADD, x, x));
    struct reduced t = reduce(e, least(e, twice));
    int power = scale(e, emit_number(e, 1), &t);
    int m = mul_add(e, t.em1, power, two(e, VECTOR_OP_SUB, power, emit_number(e, 1)));
    int y = two(e, VECTOR_OP_DIV, m, two(e, VECTOR_OP_ADD, m, emit_number(e, 2)));
    y = copy_sign(e, y, x);
    return e->is_wide ? y : keep_nan(e, x, y); /* y of a NaN has its bits already */
}

int emit_erf(struct emitter *e, int x) {
    static const double near[] = {0x1.496a28p-14, -0x1.a3f6fcp-11, 0x1.5405b2p-8, -0x1.b7f90ep-6,
                                  0x1.ce2cf8p-4,  -0x1.81273ep-2,  0x1.20dd74p+0};
    static const double far[] = {-0x1.6bd850p-16, 0x1.cec654p-12, -0x1.138cd8p-8, 0x1.9d0318p-6,
                                 -0x1.bc151ep-4,  -0x1.443566p-1, -0x1.212c0ep+0, 0x1.8a5954p-13};
    int one = emit_number(e, 1), amount = two(e, VECTOR_OP_AND_NOT, sign_bit(e), x);
    int p = polynomial(e, two(e, VECTOR_OP_MUL, x, x), near, 7);
    int inner = two(e, VECTOR_OP_MUL, x, p);
    int limited = two(e, VECTOR_OP_MIN, amount, emit_number(e, 4));
    int power = exp_within(e, polynomial(e, limited, far, 8));
    int outer = copy_sign(e, two(e, VECTOR_OP_SUB, one, power), x);
    int is_inner = emit_add(e, VECTOR_OP_COMPARE, amount, one, -1, COMPARE_LESS_EQUAL);
    int y = emit_add(e, VECTOR_OP_SELECT, outer, inner, is_inner, 0);
    int is_nan = emit_add(e, VECTOR_OP_COMPARE, x, x, -1, COMPARE_UNORDERED);
    return emit_add(e, VECTOR_OP_SELECT, y, x, is_nan, 0);
}

int emit_erfc(struct emitter *e, int x) {
    static const double near[] = {0x1.390962p-14, -0x1.9d2c40p-11, 0x1.52ef08p-8, -0x1.b7cde4p-6,
                                  0x1.ce29aep-4,  -0x1.812722p-2,  0x1.06eba6p-3};
    static const double far[] = {0x1.f16fb2p-4,  -0x1.d897a4p-4, -0x1.ccbc78p-5, 0x1.22313ep-3,
                                 -0x1.c3bcf2p-4, 0x1.3fa5d8p-5,  0x1.6000f2p-5,  -0x1.bd3652p-4,
                                 0x1.e735e4p-4,  -0x1.2c1b62p-5, -0x1.5672a8p-3, 0x1.058672p-1};
    int one = emit_number(e, 1), amount = two(e, VECTOR_OP_AND_NOT, sign_bit(e), x);
    int p = polynomial(e, two(e, VECTOR_OP_MUL, x, x), near, 7);
    int inner = mul_sub(e, x, p, two(e, VECTOR_OP_SUB, one, x));
    int limited = two(e, VECTOR_OP_MIN, amount, emit_number(e, 10.5));
    int z = two(e, VECTOR_OP_DIV, one, limited);
    int q = polynomial(e, two(e, VECTOR_OP_SUB, z, emit_number(e, 0.5)), far, 12);
    int factor = two(e, VECTOR_OP_MUL, z, q), square = two(e, VECTOR_OP_MUL, limited, limited);
    struct reduced t = reduce(e, two(e, VECTOR_OP_XOR, square, sign_bit(e)));
    int error = mul_sub(e, limited, limited, square);
    int em1 = mul_add(e, error, two(e, VECTOR_OP_ADD, t.em1, one), t.em1);
    int right = scale(e, mul_add(e, em1, factor, factor), &t);
    int is_below = emit_add(e, VECTOR_OP_COMPARE, x, emit_number(e, 0), -1, COMPARE_LESS);
    int left = two(e, VECTOR_OP_SUB, emit_number(e, 2), right);
    int outer = emit_add(e, VECTOR_OP_SELECT, right, left, is_below, 0);
    int is_inner = emit_add(e, VECTOR_OP_COMPARE, amount, one, -1, COMPARE_LESS_EQUAL);
    int y = emit_add(e, VECTOR_OP_SELECT, outer, inner, is_inner, 0);
    int is_nan = emit_add(e, VECTOR_OP_COMPARE, x, x, -1, COMPARE_UNORDERED);
    return emit_add(e, VECTOR_OP_SELECT, y, x, is_nan, 0);
}
