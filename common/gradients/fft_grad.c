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

/* ---- real transforms, which keep only one half of the spectrum of their last axis ---- */

/* Cuts the last `rank` axes to these sizes, or fills them with zeros. */
static struct node_input resized(struct gradient_ctx *g, struct node_input value, int rank,
                                 struct node_input sizes) {
    struct node_input shape = SHAPE(value), outer = gradient_outer(g, shape, rank);
    struct node_input more =
        OP("Maximum", SUB(sizes, gradient_inner(g, shape, rank)), ZEROS(sizes));
    struct node_input after = CONCAT(ZEROS(outer), more);
    struct node_input longer =
        OP("Pad", value, OP_WITH("Pack", ATTRS(ATTR_I("axis", 1)), ZEROS(after), after));
    return OP("Slice", longer, ZEROS(shape), CONCAT(outer, sizes));
}

static struct node_input as_complex(struct gradient_ctx *g, struct node_input real) {
    return OP_WITH(
        "Complex",
        ATTRS(ATTR_T("Tout", gradient_dtype(real) == DT_DOUBLE ? DT_COMPLEX128 : DT_COMPLEX64)),
        real, ZEROS(real));
}

/* x taken as [lengths]: the real part of Σ dy_k e^(2πi·kn/length) over the half. */
static void real_transform(struct gradient_ctx *g, int rank, const char *op) {
    struct node_input lengths = IN(1), x = IN(0);
    struct node_input sums = OP(op, resized(g, DY(0), rank, lengths));
    struct node_input real = OP_WITH("Real", ATTRS(ATTR_T("Tout", gradient_dtype(x))), sums);
    struct node_input all = MUL(real, CAST(gradient_product(g, lengths), x));
    SET(0, resized(g, all, rank, gradient_inner(g, SHAPE(x), rank)));
}

/* The other direction: a frequency that also represents its mirror image counts twice. These are
 * the frequencies below length / 2 except 0, along the last axis. */
static void real_inverse(struct gradient_ctx *g, int rank, const char *op) {
    struct node_input lengths = IN(1), length = gradient_element(g, lengths, -1), dy = DY(0);
    struct node_input k = RANGE(ADD(OP("FloorDiv", length, I32(2)), I32(1)));
    struct node_input is_twice =
        OP("LogicalAnd", OP("Greater", k, I32(0)), OP("Less", MUL(k, I32(2)), length));
    struct node_input weight =
        DIV(WHERE(is_twice, NUM(2), NUM(1)), CAST(gradient_product(g, lengths), dy));
    struct node_input spectrum =
        OP_WITH(op, ATTRS(ATTR_T("Tcomplex", gradient_dtype(IN(0)))), dy, lengths);
    SET(0, resized(g, MUL(spectrum, as_complex(g, weight)), rank,
                   gradient_inner(g, SHAPE(IN(0)), rank)));
}

#define REAL_TRANSFORM(name, rank, op, complex_inverse)  \
    static void r##name##_grad(struct gradient_ctx *g) { \
        real_transform(g, rank, complex_inverse);        \
    }                                                    \
    static void ir##name##_grad(struct gradient_ctx *g) { real_inverse(g, rank, op); }

REAL_TRANSFORM(fft, 1, "RFFT", "IFFT")
REAL_TRANSFORM(fft_2d, 2, "RFFT2D", "IFFT2D")
REAL_TRANSFORM(fft_3d, 3, "RFFT3D", "IFFT3D")

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
    GRADIENT("RFFT2D", rfft_2d_grad),
    GRADIENT("IRFFT2D", irfft_2d_grad),
    GRADIENT("RFFT3D", rfft_3d_grad),
    GRADIENT("IRFFT3D", irfft_3d_grad),
};
// clang-format on

const struct gradient_list fft_gradients = {rows, ARRAY_LEN(rows)};
