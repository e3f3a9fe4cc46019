/* Derivatives of Fourier transforms: each is, but for a factor, the other direction. */
#include "common/gradients/build.h"

static struct node_input size_of(struct gradient_ctx *g, int rank) {
    struct node_input n = gradient_product(g, gradient_inner(g, SHAPE(IN(0)), rank));
    enum dtype real = gradient_dtype(IN(0)) == DT_COMPLEX128 ? DT_DOUBLE : DT_FLOAT;
    return CAST(gradient_cast(g, n, real), DY(0));
}

#define TRANSFORM(name, rank, op, inverse_op)                                                                 \
    static void name##_grad(struct gradient_ctx *g) { SET(0, MUL(OP(inverse_op, DY(0)), size_of(g, rank))); } \
    static void i##name##_grad(struct gradient_ctx *g) { SET(0, DIV(OP(op, DY(0)), size_of(g, rank))); }

TRANSFORM(fft, 1, "FFT", "IFFT")
TRANSFORM(fft_2d, 2, "FFT2D", "IFFT2D")
TRANSFORM(fft_3d, 3, "FFT3D", "IFFT3D")

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("FFT", fft_grad),
    GRADIENT("IFFT", ifft_grad),
    GRADIENT("FFT2D", fft_2d_grad),
    GRADIENT("IFFT2D", ifft_2d_grad),
    GRADIENT("FFT3D", fft_3d_grad),
    GRADIENT("IFFT3D", ifft_3d_grad),
    LATER_GRADIENT("RFFT"),
    LATER_GRADIENT("IRFFT"),
    LATER_GRADIENT("RFFT2D"),
    LATER_GRADIENT("IRFFT2D"),
    LATER_GRADIENT("RFFT3D"),
    LATER_GRADIENT("IRFFT3D"),
};
// clang-format on

const struct gradient_list fft_gradients = {rows, ARRAY_LEN(rows)};
