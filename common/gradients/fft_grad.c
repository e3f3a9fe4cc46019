/* Derivatives of the Fourier transforms. */
#include "common/gradients/gradient.h"

extern const struct gradient_list fft_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("FFT"), LATER_GRADIENT("IFFT"), LATER_GRADIENT("FFT2D"), LATER_GRADIENT("IFFT2D"), LATER_GRADIENT("FFT3D"),
    LATER_GRADIENT("IFFT3D"), LATER_GRADIENT("RFFT"), LATER_GRADIENT("IRFFT"), LATER_GRADIENT("RFFT2D"), LATER_GRADIENT("IRFFT2D"),
    LATER_GRADIENT("RFFT3D"), LATER_GRADIENT("IRFFT3D"),
};
// clang-format on
const struct gradient_list fft_gradients = {rows, ARRAY_LEN(rows)};
