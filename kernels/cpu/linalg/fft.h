/* Computes discrete Fourier transforms of lines of any length in double precision. Lengths with
 * small prime factors use Stockham's mixed-radix form, the others Bluestein's chirp form [Van Loan:
 * "Computational Frameworks for the Fast Fourier Transform", 1992, 1.7 and 4.2]. A plan is
 * immutable, so many threads may transform lines with it at a time, each with its own scratch
 * memory. */
#ifndef MILLRACE_KERNELS_CPU_LINALG_FFT_H
#define MILLRACE_KERNELS_CPU_LINALG_FFT_H

#include <complex.h>

#include "common/base/status.h"

struct fft_plan;

/* Returns the plan for length n >= 1. Plans are shared, and one is kept for the next caller of the
 * same length. The caller calls fft_plan_unref. Errors: RESOURCE_EXHAUSTED. */
struct status *fft_plan_get(int64_t n, struct fft_plan **ret) MUST_USE;
void fft_plan_unref(struct fft_plan *plan); /* Accepts NULL. */
/* line[k] := Σ_j line[j]·e^(∓2πi·jk/n). The inverse is not divided by n. `scratch` has
 * fft_plan_scratch(plan) elements. */
void fft_run(const struct fft_plan *plan, bool inverse, double complex *line,
             double complex *scratch);
/* Returns how many elements of scratch memory fft_run needs. */
int64_t fft_plan_scratch(const struct fft_plan *plan);
/* Runs `lanes` transforms side by side, with real and imaginary parts in arrays of their own.
 * Number k of lane l is at index k·lanes + l. */
void fft_run_lanes(const struct fft_plan *plan, bool inverse, double *re, double *im,
                   double *scratch, int64_t lanes);
/* Returns how many doubles of scratch memory fft_run_lanes needs per lane. */
int64_t fft_plan_lane_scratch(const struct fft_plan *plan);

#endif
