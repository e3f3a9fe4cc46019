/* Discrete Fourier transforms of one line of any length, in double precision: Stockham's
 * mixed-radix form for lengths whose prime factors are small, Bluestein's chirp form for the
 * others [Van Loan: "Computational Frameworks for the Fast Fourier Transform", 1992, 1.7 and
 * 4.2]. A plan is immutable: lines are transformed on many threads at a time, each with its own
 * scratch. */
#ifndef MILLRACE_KERNELS_CPU_LINALG_FFT_H
#define MILLRACE_KERNELS_CPU_LINALG_FFT_H

#include <complex.h>

#include "common/base/status.h"

struct fft_plan;

/* n >= 1. A plan is shared and kept for the next who wants that length. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *fft_plan_get(int64_t n, struct fft_plan **ret) MUST_USE;
void fft_plan_unref(struct fft_plan *plan); /* accepts NULL */
/* line[k] := Σ_j line[j]·e^(∓2πi·jk/n); the inverse is not divided by n. */
void fft_run(const struct fft_plan *plan, bool inverse, double complex *line,
             double complex *scratch);
int64_t fft_plan_scratch(const struct fft_plan *plan); /* elements that fft_run needs */
/* `lanes` transforms side by side, their parts in arrays of their own: number k of lane l lies
 * at k·lanes + l. One lane is a line. */
void fft_run_lanes(const struct fft_plan *plan, bool inverse, double *re, double *im,
                   double *scratch, int64_t lanes);
/* doubles that fft_run_lanes needs for each lane */
int64_t fft_plan_lane_scratch(const struct fft_plan *plan);

#endif
