/* Differentiates Fourier transforms: the derivative of each is the inverse direction, up to a
 * factor. */
#include "common/gradients/build.h"

static struct node_input size_of(struct gradient_ctx *g, int rank) {
    struct node_input n = gradient_product(g, gradient_inner(g, SHAPE(IN(0)), rank));
    enum dtype real = gradient_dtype(IN(0)) == DT_COMPLEX128 ? DT_DOUBLE : DT_FLOAT;
    return CAST(gradient_cast(g, n, real), DY(0));
}

#define TRANSFORM(name, rank, op, inverse_op)                 \
    static void name##_grad(struct gradient_ctx *g) {         \
        SET(0, MUL(OP(inverse_op, DY(0)), size_of(g, rank))); \
    }                                                         \
    static void i##name##_grad(struct gradient_ctx *g) {      \
        SET(0, DIV(OP(op, DY(0)), size_of(g, rank)));         \
    }

TRANSFORM(fft, 1, "FFT", "IFFT")
TRANSFORM(fft_2d, 2, "FFT2D", "IFFT2D")
TRANSFORM(fft_3d, 3, "FFT3D", "IFFT3D")

/* ---- real transforms along one axis, which keep only one half of the spectrum ---- */

/* Cuts the last axis to n elements, or fills it with zeros. */
static struct node_input resized(struct gradient_ctx *g, struct node_input value,
                                 struct node_input n) {
    struct node_input shape = SHAPE(value), one = I32S(1), outer = gradient_outer(g, shape, 1),
                      there = gradient_element(g, shape, -1);
    struct node_input more = CONCAT(outer, RESHAPE(OP("Maximum", SUB(n, there), I32(0)), one));
    struct node_input axis = SUB(OP("Size", shape), I32(1));
    struct node_input longer =
        OP("ConcatV2", value, OP("Fill", more, gradient_number(g, value, 0)), axis);
    return OP("Slice", longer, OP("ZerosLike", shape), CONCAT(outer, RESHAPE(n, one)));
}

static struct node_input as_complex(struct gradient_ctx *g, struct node_input real) {
    return OP_WITH(
        "Complex",
        ATTRS(ATTR_T("Tout", gradient_dtype(real) == DT_DOUBLE ? DT_COMPLEX128 : DT_COMPLEX64)),
        real, ZEROS(real));
}

/* x [n] taken as [length]: the real part of Σ dy_k e^(2πi·kn/length) over the half. */
static void rfft_grad(struct gradient_ctx *g) {
    struct node_input length = gradient_element(g, IN(1), 0), x = IN(0);
    struct node_input sums = OP("IFFT", resized(g, DY(0), length));
    struct node_input real = OP_WITH("Real", ATTRS(ATTR_T("Tout", gradient_dtype(x))), sums);
    SET(0, resized(g, MUL(real, CAST(length, x)), gradient_element(g, SHAPE(x), -1)));
}

/* The other direction: a frequency that also represents its mirror image counts twice. These are
 * the frequencies below length / 2 except 0. */
static void irfft_grad(struct gradient_ctx *g) {
    struct node_input length = gradient_element(g, IN(1), 0), dy = DY(0), one = I32(1);
    struct node_input half = ADD(OP("FloorDiv", length, I32(2)), one), k = RANGE(half);
    struct node_input is_twice =
        OP("LogicalAnd", OP("Greater", k, I32(0)), OP("Less", MUL(k, I32(2)), length));
    struct node_input weight = DIV(WHERE(is_twice, NUM(2), NUM(1)), CAST(length, dy));
    struct node_input spectrum =
        OP_WITH("RFFT", ATTRS(ATTR_T("Tcomplex", gradient_dtype(IN(0)))), dy, IN(1));
    SET(0, resized(g, MUL(spectrum, as_complex(g, weight)), gradient_element(g, SHAPE(IN(0)), -1)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("FFT", fft_grad),
    GRADIENT("IFFT", ifft_grad),
    GRADIENT("FFT2D", fft_2d_grad),
    GRADIENT("IFFT2D", ifft_2d_grad),
    GRADIENT("FFT3D", fft_3d_grad),
    GRADIENT("IFFT3D", ifft_3d_grad),
    GRADIENT("RFFT", rfft_grad),
    GRADIENT("IRFFT", irfft_grad),
    LATER_GRADIENT("RFFT2D"),
    LATER_GRADIENT("IRFFT2D"),
    LATER_GRADIENT("RFFT3D"),
    LATER_GRADIENT("IRFFT3D"),
};
// clang-format on

const struct gradient_list fft_gradients = {rows, ARRAY_LEN(rows)};
