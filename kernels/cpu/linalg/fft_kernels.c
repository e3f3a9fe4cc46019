/* Runs FFT, IFFT, RFFT and IRFFT of one, two and three dimensions over stacks of signals.
 *
 *   input        Tcomplex or Treal [..., sizes]
 *   fft_length   int32 [rank]     real forms only: the sizes to transform; the input may be larger,
 *                                 and its other elements are left out
 *   output       complex [..., sizes]; forward from real: the last size is half of it plus one;
 *                inverse to real: Treal [..., fft_length]
 *
 * Everything is computed in double precision. A transform of one dimension works row by row.
 * Transforms of two and three dimensions work in a copy, axis by axis. They start with the last
 * axis, except that the inverse to real ends with it.
 *
 * Errors   INVALID_ARGUMENT   ranks, lengths below zero or above the input's
 * Cost     5·n·log2 n flops for n numbers */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/complex_values.h"
#include "kernels/cpu/linalg/fft.h"
#include "kernels/kernel.h"

extern const struct kernel_list fft_kernels;

enum { FFT_MAX_RANK = 3 };

struct fft_kind {
    int rank;
    bool inverse, is_real;
};

struct fft_job {
    const struct fft_kind *kind;
    enum dtype in, out;
    int64_t lengths[FFT_MAX_RANK];  /* sizes of the transform */
    int64_t in_dims[FFT_MAX_RANK];  /* sizes of the input's last dimensions */
    int64_t out_dims[FFT_MAX_RANK]; /* sizes of the output's last dimensions */
    int64_t n_stack, n;             /* n: how many numbers one transform has */
    int64_t in_used;                /* how much of the input's last dimension is used */
    const void *from;
    void *to;
    c128 *work; /* n_stack · n numbers */
    struct fft_plan *plans[FFT_MAX_RANK];
    int axis; /* the axis that is being transformed */
    atomic_bool out_of_memory;
};

/* Lanes that are transformed together: a few vectors wide, and few enough to stay in the cache. */
enum { LANES = 8 };
/* Numbers of a long line that are copied between two questions whether the result is wanted. */
enum { NUMBERS_PER_POLL = 1 << 17 };
static inline bool copy_goes_on(int64_t i) { return i < NUMBERS_PER_POLL || !pool_is_unwanted(); }

/* ---- between the tensors and the copy, a row of the last axis at a time ---- */

/* The offset at which row `row` of the transforms begins in an array whose last dimensions are
 * dims. */
static int64_t row_offset(const struct fft_job *job, int64_t row, const int64_t *dims) {
    int rank = job->kind->rank;
    int64_t offset = 0, scale = dims[rank - 1];
    for (int axis = rank - 2; axis >= 0; axis--) {
        offset += row % job->lengths[axis] * scale;
        row /= job->lengths[axis];
        scale *= dims[axis];
    }
    return offset + row * scale;
}

/* Splits numbers into parts, or joins them: n runs of `lanes`. The numbers of a run are `stride`
 * apart, the parts have no gaps. Runs of a constant length vectorise. */
#define EVERY_RUN(n_lanes, ...)                 \
    for (int64_t k = 0; k < n; k++) {           \
        for (int64_t l = 0; l < n_lanes; l++) { \
            __VA_ARGS__;                        \
        }                                       \
    }
#define NAME(x) x##_f32
#define T float
#include "kernels/cpu/linalg/fft_runs.inc"
#define NAME(x) x##_f64
#define T double
#include "kernels/cpu/linalg/fft_runs.inc"

/* Loads row `row` of the input as parts, which are `step` doubles apart, and adds zeros where the
 * input has no more numbers. */
static void load_row(const struct fft_job *job, int64_t row, double *re, double *im, int64_t step) {
    int64_t length = job->lengths[job->kind->rank - 1], at = row_offset(job, row, job->in_dims);
    int64_t n = MIN(length, job->in_used);
    if (job->in == DT_COMPLEX64 && step == 1) {
        for (int64_t i = 0; i < n && copy_goes_on(i); i += NUMBERS_PER_POLL)
            split_f32((const float *)job->from + 2 * (at + i), 0, 1,
                      MIN(n - i, (int64_t)NUMBERS_PER_POLL), re + i, im + i);
    } else {
        for (int64_t i = 0; i < n; i++) {
            if (i % NUMBERS_PER_POLL == 0 && !copy_goes_on(i))
                return;
            c128 value = c128_load(job->in, job->from, at + i);
            re[i * step] = creal(value);
            im[i * step] = cimag(value);
        }
    }
    for (int64_t i = n; i < length; i++)
        re[i * step] = im[i * step] = 0;
}

static void store_row(const struct fft_job *job, int64_t row, const double *re, const double *im,
                      int64_t step) {
    int last = job->kind->rank - 1;
    double scale = job->kind->inverse ? 1 / (double)job->n : 1;
    int64_t at = row_offset(job, row, job->out_dims), n = job->out_dims[last];
    if (job->out == DT_COMPLEX64 && step == 1) {
        for (int64_t i = 0; i < n && copy_goes_on(i); i += NUMBERS_PER_POLL)
            join_f32((float *)job->to + 2 * (at + i), 0, 1, MIN(n - i, (int64_t)NUMBERS_PER_POLL),
                     re + i, im + i, scale);
    } else {
        for (int64_t i = 0; i < n && (i % NUMBERS_PER_POLL != 0 || copy_goes_on(i)); i++)
            c128_store(job->out, job->to, at + i,
                       CMPLX(re[i * step] * scale, im[i * step] * scale));
    }
}

/* The copy holds each number as its real part followed by its imaginary part. */
static void load_rows(void *arg, int64_t begin, int64_t end) {
    const struct fft_job *job = arg;
    int64_t length = job->lengths[job->kind->rank - 1];
    for (int64_t row = begin; row < end; row++)
        load_row(job, row, (double *)(job->work + row * length),
                 (double *)(job->work + row * length) + 1, 2);
}

static void store_rows(void *arg, int64_t begin, int64_t end) {
    const struct fft_job *job = arg;
    int64_t length = job->lengths[job->kind->rank - 1];
    for (int64_t row = begin; row < end; row++)
        store_row(job, row, (const double *)(job->work + row * length),
                  (const double *)(job->work + row * length) + 1, 2);
}

/* ---- lines ---- */

/* Adds the second half of the spectrum of a real result: the conjugates of the first half. */
static void complete_spectrum(double *re, double *im, int64_t n, int64_t lanes) {
    for (int64_t l = 0; l < lanes; l++) {
        im[l] = 0;
        for (int64_t k = 1; k <= n / 2; k++) {
            re[(n - k) * lanes + l] = re[k * lanes + l];
            im[(n - k) * lanes + l] = 2 * k == n ? 0 : -im[k * lanes + l];
        }
    }
}

/* Transforms `lanes` lines of the axis at re and im. The scratch memory follows them. */
static void transform(const struct fft_job *job, int axis, double *re, double *im, int64_t lanes) {
    int64_t n = job->lengths[axis];
    if (axis == job->kind->rank - 1 && job->kind->is_real && job->kind->inverse)
        complete_spectrum(re, im, n, lanes);
    fft_run_lanes(job->plans[axis], job->kind->inverse, re, im, im + n * lanes, lanes);
}

static double *lanes_new(struct fft_job *job, int axis, int64_t lanes) {
    double *memory = malloc(
        (size_t)(lanes * (2 * job->lengths[axis] + fft_plan_lane_scratch(job->plans[axis]))) *
        sizeof(*memory));
    if (!memory)
        atomic_store(&job->out_of_memory, true);
    return memory;
}

/* One dimension: transforms rows from the input to the output, without a copy of all. The rows are
 * not used as lanes, because loading them so would cost more than it saves. */
static void transform_rows(void *arg, int64_t begin, int64_t end) {
    struct fft_job *job = arg;
    int64_t n = job->lengths[0];
    double *re = lanes_new(job, 0, 1), *im = re + n;
    for (int64_t row = begin; re && row < end; row++) {
        load_row(job, row, re, im, 1);
        transform(job, 0, re, im, 1);
        store_row(job, row, re, im, 1);
    }
    free(re);
}

/* Splits `lanes` lines into parts, or joins them again. */
static void copy_lines(double *base, int64_t stride, int64_t n, int64_t lanes, double *re,
                       double *im, bool splits) {
    for (int64_t k = 0; k < n && copy_goes_on(k * lanes); k += NUMBERS_PER_POLL / LANES) {
        int64_t count = MIN(n - k, (int64_t)NUMBERS_PER_POLL / LANES), at = k * lanes;
        double *line = base + 2 * k * stride;
        if (splits)
            split_f64(line, stride, count, lanes, re + at, im + at);
        else
            join_f64(line, stride, count, lanes, re + at, im + at, 1);
    }
}

/* Transforms lines along an axis of the copy. For other axes than the last, neighbouring lines are
 * lanes as they are stored. */
static void transform_lines(void *arg, int64_t begin, int64_t end) {
    struct fft_job *job = arg;
    int axis = job->axis;
    int64_t n = job->lengths[axis], stride = 1;
    for (int i = axis + 1; i < job->kind->rank; i++)
        stride *= job->lengths[i];
    double *memory = lanes_new(job, axis, MIN((int64_t)LANES, stride));
    for (int64_t i = begin, lanes; memory && i < end; i += lanes) {
        lanes = MIN(MIN((int64_t)LANES, end - i), stride - i % stride);
        double *base = (double *)(job->work + i / stride * stride * n + i % stride), *re = memory,
               *im = re + n * lanes;
        copy_lines(base, stride, n, lanes, re, im, true);
        transform(job, axis, re, im, lanes);
        copy_lines(base, stride, n, lanes, re, im, false);
    }
    free(memory);
}

static void transform_axis(struct fft_job *job, struct pool *pool, int axis) {
    int64_t length = job->lengths[axis];
    job->axis = axis;
    double cost = (double)length * (2 + log2((double)length + 1));
    pool_parallel_for(pool, job->n_stack * job->n / length, cost, transform_lines, job);
}

/* ---- one execution ---- */

static struct status *read_lengths(const struct kernel_ctx *ctx, struct fft_job *job) {
    const struct tensor *in = &ctx->inputs[0],
                        *lengths = job->kind->is_real ? &ctx->inputs[1] : NULL;
    int rank = job->kind->rank;
    if (in->rank < rank)
        return status_invalid("Input must have rank of at least %d but got: %d", rank, in->rank);
    if (lengths && (lengths->rank != 1 || lengths->n_elements != rank))
        return status_invalid("fft_length must have shape [%d]", rank);
    for (int axis = 0; axis < rank; axis++) {
        bool is_half = lengths && job->kind->inverse && axis == rank - 1,
             halves = lengths && !job->kind->inverse && axis == rank - 1;
        int64_t own = job->in_dims[axis] = tensor_dim(in, in->rank - rank + axis);
        int64_t length = job->lengths[axis] =
            lengths ? ((const int32_t *)tensor_cdata(lengths))[axis] : own;
        if (length < 0)
            return status_invalid("fft_length[%d] must >= 0, but got: %lld", axis,
                                  (long long)length);
        int64_t used = is_half && length > 0 ? length / 2 + 1 : length;
        if (own > 0 && own < used)
            return status_invalid(
                "Input dimension %d must have length of at least %lld but got: %lld",
                in->rank - rank + axis, (long long)used, (long long)own);
        job->out_dims[axis] = halves && length > 0 ? length / 2 + 1 : length;
        if (axis == rank - 1)
            job->in_used = used;
    }
    return NULL;
}

static struct status *run(struct kernel_ctx *ctx, struct fft_job *job) {
    struct status *st = NULL;
    int rank = job->kind->rank;
    job->n = 1;
    for (int axis = 0; axis < rank; axis++) {
        /* cannot overflow, because the output holds about as many numbers */
        job->n *= job->lengths[axis];
        TRY_OUT(fft_plan_get(job->lengths[axis], &job->plans[axis]));
    }
    int64_t rows = job->n_stack * job->n / job->lengths[rank - 1];
    if (rank == 1) {
        pool_parallel_for(ctx->pool, rows, (double)job->n * (2 + log2((double)job->n + 1)),
                          transform_rows, job);
        goto done;
    }
    job->work = malloc((size_t)(job->n_stack * job->n) * sizeof(*job->work));
    if (!job->work) {
        st = status_exhausted("OOM when allocating the copy of a Fourier transform of %lld numbers",
                              (long long)(job->n_stack * job->n));
        goto out;
    }
    double row_cost = (double)job->lengths[rank - 1];
    pool_parallel_for(ctx->pool, rows, row_cost, load_rows, job);
    for (int i = 0; i < rank; i++)
        transform_axis(job, ctx->pool, job->kind->is_real && job->kind->inverse ? i : rank - 1 - i);
    if (!atomic_load(&job->out_of_memory))
        pool_parallel_for(ctx->pool, rows, row_cost, store_rows, job);
done:
    if (atomic_load(&job->out_of_memory))
        st = status_exhausted("OOM when allocating a line of a Fourier transform");
out:
    for (int axis = 0; axis < rank; axis++)
        fft_plan_unref(job->plans[axis]);
    free(job->work);
    return st;
}

static struct status *fft_init(struct kernel_init *init) {
    init->state = (void *)(uintptr_t)init->arg;
    return NULL;
}
static void fft_fini(void *state) { (void)state; /* the state belongs to the row */ }

static enum kernel_result fft_compute(struct kernel_ctx *ctx) {
    struct tensor *in = &ctx->inputs[0];
    struct fft_job job = {.kind = ctx->instance->state,
                          .in = (enum dtype)in->dtype,
                          .out = (enum dtype)ctx->instance->out_types[0]};
    int64_t dims[SHAPE_MAX_RANK];
    KERNEL_TRY(ctx, read_lengths(ctx, &job));
    int stack = in->rank - job.kind->rank;
    memcpy(dims, tensor_dims(in), (size_t)stack * sizeof(*dims));
    memcpy(dims + stack, job.out_dims, (size_t)job.kind->rank * sizeof(*dims));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.out, (struct shape){in->rank, dims}));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    if (in->n_elements == 0) {
        memset(tensor_data(out), 0, tensor_size_bytes(out));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, shape_n_elements((struct shape){stack, dims}, &job.n_stack));
    job.from = tensor_cdata(in);
    job.to = tensor_data(out);
    KERNEL_TRY(ctx, run(ctx, &job));
    return KERNEL_DONE;
}

#define C64 DTYPE_BIT(DT_COMPLEX64)
#define C128 DTYPE_BIT(DT_COMPLEX128)
#define KIND(dimensions)                                                        \
    static const struct fft_kind fft_##dimensions = {dimensions, false, false}, \
                                 ifft_##dimensions = {dimensions, true, false}, \
                                 rfft_##dimensions = {dimensions, false, true}, \
                                 irfft_##dimensions = {dimensions, true, true};
KIND(1)
KIND(2)
KIND(3)
#define ROW(op, kind, ...) \
    { (op), {__VA_ARGS__}, fft_compute, fft_init, fft_fini, &(kind) }
#define COMPLEX(op, kind) ROW(op, kind, {"Tcomplex", C64 | C128})
#define REAL(op, kind)                                                \
    ROW(op, kind, {"Treal", DTYPE_BIT(DT_FLOAT)}, {"Tcomplex", C64}), \
        ROW(op, kind, {"Treal", DTYPE_BIT(DT_DOUBLE)}, {"Tcomplex", C128})

// clang-format off
static const struct kernel_def rows[] = {
    COMPLEX("FFT", fft_1), COMPLEX("FFT2D", fft_2), COMPLEX("FFT3D", fft_3),
    COMPLEX("IFFT", ifft_1), COMPLEX("IFFT2D", ifft_2), COMPLEX("IFFT3D", ifft_3),
    REAL("RFFT", rfft_1), REAL("RFFT2D", rfft_2), REAL("RFFT3D", rfft_3),
    REAL("IRFFT", irfft_1), REAL("IRFFT2D", irfft_2), REAL("IRFFT3D", irfft_3),
};
// clang-format on
const struct kernel_list fft_kernels = {rows, ARRAY_LEN(rows)};
