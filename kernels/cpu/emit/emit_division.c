/* Divides by an operand c that stands for all: by a product with its reciprocal and a correction,
 * to the bits of the processor's division, which takes as long as ten products.
 *
 *   r = RN(1/c)    q = RN(x·r)    d = RN(q·c - x)    q' = RN(q - d·r)
 *
 * RN rounds to nearest with p bits. Claim: where nothing underflows or overflows, q' = RN(x/c).
 * The scheme and the ideas are those of P. Markstein, "Computation of elementary functions on the
 * IBM RISC System/6000 processor" (IBM J. Res. Dev. 34, 1990), and of N. Brisebarre, J.-M. Muller
 * and S. K. Raina, "Accelerating correctly rounded floating-point division when the divisor is
 * known in advance" (IEEE Trans. Comput. 53, 2004).
 *
 * Proof. Powers of two scale everything, so let x = X·2^(1-p) and c = C·2^(1-p) be in [1, 2), with
 * integers X and C. If c = 1, all is exact. Otherwise r is in [1/2, 1), and off by at most
 * 2^(-p-1): r = (1 + e)/c with |e| <= C·2^(-2p). So x·r is off x/c by at most x·2^(-p-1).
 * Let u = 2^-p.
 *
 * (1) x < c and q < 1. Numbers from 1/2 to 1 are multiples of u. |x/c - q| is at most x/2 + 1/2
 *     units, less than 1.5, and x - q·c is R·u·2^(1-p) with an integer R. Rounding x/c compares |R|
 *     with C/2 and 3C/2, the points between neighbours of q. x/c is at no such point, because
 *     2^(p+1) does not divide C times an odd number. Rounding q - d·r compares |R|(1 + e):
 *     a) 2|R| >= C + 1:  2|R|(1 + e) >= (C + 1)(1 - C·2^(-2p)) > C, because C(C + 1) < 2^(2p).
 *     b) 2|R| <= C - 1:  2|R|(1 + e) <= (C - 1)(1 + C·2^(-2p)) < C.
 *     c) Let x = 2 - t. t >= 4u, because x < c < 2. Then 2|R| <= C(x + 1) = 3C - C·t, and
 *        2|R|(1 + e) <= 3C - C·t + 3C²·2^(-2p) < 3C, because 3C·2^(-2p) < 3u < t.
 *     d) Where |R| > 2^p, d is rounded, and |R| changes by at most 1. It remains far above C/2. It
 *        remains below 3C/2 if C·t >= 5, as in c). This holds for t >= 6u, because C > X =
 *        (2 - t)·2^(p-1). t = 4u leaves X = 2^p - 2 and C = 2^p - 1, which have q = 1.
 * (2) x < c and q = 1. d = c - x is exact. (C - X)/C is at most 1.5u, so C - X = 1 and
 *     x/c = 1 - 1/C. 1/C is compared with u/2, which is far below, and with 3u/2: q = 1 needs
 *     (1 - 1/C)(1 + C·u²) >= 1 - u/2, therefore C > 0.78·2^p and 1/C < 1.29u.
 * (3) x > c. Then x·r is above 1 and below 2 - u. A unit is 2u. |x/c - q| is less than one unit,
 *     and |R| less than C, so d is exact, and a) and b) hold.
 * (4) x = c. q = 1 is exact; otherwise q = 1 - u, and q' = RN(1 + u·e) = 1.
 *
 * Where it holds: c is in [2^-m, 2^m], and |x| in [2^(1-n), 2^(1+n)] (limits, below). This keeps q
 * normal, and d a multiple of the least number. A zero gives d = +0, and then q - d·r is q with its
 * sign, because c > 0. For any other x in a vector the loop takes the processor's division.
 *
 * It also holds for a larger x unless x·r overflows, because d is exact or far below x, and q' is
 * rounded as x/c is, to infinity as well. If x·r overflows, or x is infinite, then q is infinite, d
 * infinite or NaN, and q' NaN. So is that of a NaN. Therefore only |x| >= 2^(1-n) and q' need
 * a check where the processor has an instruction for the least amount of two vectors. */
#include <string.h>

#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"

static const struct limits {
    double least, most; /* 2^-m, 2^m */
    int n;
} limits[] = {{0x1p-28, 0x1p28, 96}, {0x1p-100, 0x1p100, 900}}; /* of 4 and 8 bytes */

enum emit_division emit_division_by(const void *divisor, int width) {
    const struct limits *of = &limits[width == 8];
    float narrow;
    double c;
    uint64_t bits;
    memcpy(&narrow, divisor, sizeof(narrow));
    c = (double)narrow;
    if (width == 8)
        memcpy(&c, divisor, sizeof(c));
    memcpy(&bits, &c, sizeof(bits));
    if (!(c >= of->least && c <= of->most))
        return EMIT_DIVIDE;
    return bits << 12 == 0 ? EMIT_MULTIPLY : EMIT_CORRECT; /* is the significand 1? */
}

uint64_t emit_division_least(int width) {
    uint64_t n = (uint64_t)limits[width == 8].n;
    return width == 8 ? (1023 + 1 - n) << 52 : (127 + 1 - n) << 23;
}

/* One comparison of integers finds the x that are neither zero nor within the limits. The doubled
 * bits of x have no sign. The offset makes them a distance from those of 2.0, whose amount is
 * compared with the reach. A zero becomes the least integer, whose amount is again negative.
 * Of 8 bytes AVX2 compares only the upper half. Therefore 1 is first taken from the whole, so that
 * a small number is no zero, and the offset gives 1 back to the half. */
uint64_t emit_division_offset(int width) { return width == 8 ? 0x80000001ull << 32 : 1ull << 31; }
uint64_t emit_division_reach(int width) {
    uint64_t n = (uint64_t)limits[width == 8].n;
    return width == 8 ? n << (32 + 21) : n << 24;
}

int emit_divide(struct emitter *e, int x, int c) {
    const struct vector_op *divisor = &e->ops[c];
    if (divisor->operation != VECTOR_OP_ONE)
        return emit_add(e, VECTOR_OP_DIV, x, c, -1, 0);
    e->divisors |= 1ull << divisor->pointer;
    if (e->division == EMIT_DIVIDE)
        return emit_add(e, VECTOR_OP_DIV, x, c, -1, 0);
    int r = emit_add(e, VECTOR_OP_RECIPROCAL, -1, -1, -1, 0);
    e->ops[r].pointer = divisor->pointer;
    return e->division == EMIT_MULTIPLY ? emit_add(e, VECTOR_OP_MUL, x, r, -1, 0)
                                        : emit_add(e, VECTOR_OP_QUOTIENT, x, c, r, 0);
}
