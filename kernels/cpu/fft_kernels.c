/* FFT, IFFT, RFFT and IRFFT of one, two and three dimensions, over stacks.
 *
 *   input        Tcomplex or Treal [..., sizes]
 *   fft_length   int32 [rank]        real forms only: the sizes to transform; the input may have more, which are left out
 *   output       complex [..., sizes], real forward: the last size is half and one; real inverse: Treal [..., fft_length]
 *
 * All is done in double precision in a copy, axis by axis from the last (inverse real: to the last), a line at a time.
 *
 * Errors   INVALID_ARGUMENT   ranks, lengths below zero or above the input's
 * Cost     5·n·log2 n flops for n numbers */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/complex_values.h"
#include "kernels/cpu/fft.h"
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
    int64_t lengths[FFT_MAX_RANK];  /* of the transform */
    int64_t in_dims[FFT_MAX_RANK];  /* of the input's last dimensions */
    int64_t out_dims[FFT_MAX_RANK]; /* of the output's */
    int64_t n_stack, n;             /* n: numbers of one transform */
    int64_t in_used;                /* of the input's last dimension */
    const void *from;
    void *to;
    c128 *work; /* n_stack · n */
    struct fft_plan *plans[FFT_MAX_RANK];
    int axis; /* being done */
    atomic_bool out_of_memory;
};

/* ---- into the copy and out of it, a row of the last axis at a time ---- */

/* Where row `row` of the transforms begins in an array whose last dimensions are dims. */
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

static void load_rows(void *arg, int64_t begin, int64_t end) {
    const struct fft_job *job = arg;
    int64_t length = job->lengths[job->kind->rank - 1];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row_offset(job, row, job->in_dims);
        c128 *to = job->work + row * length;
        for (int64_t i = 0; i < length; i++)
            to[i] = i < job->in_used ? c128_load(job->in, job->from, at + i) : 0;
    }
}

static void store_rows(void *arg, int64_t begin, int64_t end) {
    const struct fft_job *job = arg;
    int last = job->kind->rank - 1;
    double scale = job->kind->inverse ? 1 / (double)job->n : 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row_offset(job, row, job->out_dims);
        const c128 *from = job->work + row * job->lengths[last];
        for (int64_t i = 0; i < job->out_dims[last]; i++)
            c128_store(job->out, job->to, at + i, from[i] * scale);
    }
}

/* ---- lines ---- */

/* What a real result's spectrum has beyond its half: the conjugates. */
static void complete_spectrum(c128 *line, int64_t n) {
    line[0] = creal(line[0]);
    for (int64_t k = 1; k <= n / 2; k++) {
        if (2 * k == n)
            line[k] = creal(line[k]);
        else
            line[n - k] = conj(line[k]);
    }
}

static void transform_lines(void *arg, int64_t begin, int64_t end) {
    struct fft_job *job = arg;
    int axis = job->axis;
    bool is_last = axis == job->kind->rank - 1;
    int64_t length = job->lengths[axis], stride = 1;
    for (int i = axis + 1; i < job->kind->rank; i++)
        stride *= job->lengths[i];
    const struct fft_plan *plan = job->plans[axis];
    c128 *line = malloc((size_t)(length + fft_plan_scratch(plan)) * sizeof(*line)), *scratch = line + length;
    if (!line) {
        atomic_store(&job->out_of_memory, true);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        c128 *base = job->work + i / stride * stride * length + i % stride;
        for (int64_t k = 0; k < length; k++)
            line[k] = base[k * stride];
        if (is_last && job->kind->is_real && job->kind->inverse)
            complete_spectrum(line, length);
        fft_run(plan, job->kind->inverse, line, scratch);
        for (int64_t k = 0; k < length; k++)
            base[k * stride] = line[k];
    }
    free(line);
}

static void transform_axis(struct fft_job *job, struct pool *pool, int axis) {
    int64_t length = job->lengths[axis];
    job->axis = axis;
    double cost = (double)length * (3 + 2 * log2((double)length + 1));
    pool_parallel_for(pool, job->n_stack * job->n / length, cost, transform_lines, job);
}

/* ---- one execution ---- */

static struct status *read_lengths(const struct kernel_ctx *ctx, struct fft_job *job) {
    const struct tensor *in = &ctx->inputs[0], *lengths = job->kind->is_real ? &ctx->inputs[1] : NULL;
    int rank = job->kind->rank;
    if (in->rank < rank)
        return status_invalid("Input must have rank of at least %d but got: %d", rank, in->rank);
    if (lengths && (lengths->rank != 1 || lengths->n_elements != rank))
        return status_invalid("fft_length must have shape [%d]", rank);
    for (int axis = 0; axis < rank; axis++) {
        bool is_half = lengths && job->kind->inverse && axis == rank - 1, halves = lengths && !job->kind->inverse && axis == rank - 1;
        int64_t own = job->in_dims[axis] = tensor_dim(in, in->rank - rank + axis);
        int64_t length = job->lengths[axis] = lengths ? ((const int32_t *)tensor_cdata(lengths))[axis] : own;
        if (length < 0)
            return status_invalid("fft_length[%d] must >= 0, but got: %lld", axis, (long long)length);
        int64_t used = is_half && length > 0 ? length / 2 + 1 : length;
        if (own < used && in->n_elements > 0)
            return status_invalid("Input dimension %d must have length of at least %lld but got: %lld", in->rank - rank + axis,
                                  (long long)used, (long long)own);
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
        job->n *= job->lengths[axis]; /* the output holds about as many: no overflow */
        TRY_OUT(fft_plan_new(job->lengths[axis], &job->plans[axis]));
    }
    job->work = malloc((size_t)(job->n_stack * job->n) * sizeof(*job->work));
    if (!job->work) {
        st = status_exhausted("OOM when allocating the copy of a Fourier transform of %lld numbers", (long long)(job->n_stack * job->n));
        goto out;
    }
    int64_t rows = job->n_stack * job->n / job->lengths[rank - 1];
    double row_cost = (double)job->lengths[rank - 1];
    pool_parallel_for(ctx->pool, rows, row_cost, load_rows, job);
    for (int i = 0; i < rank; i++)
        transform_axis(job, ctx->pool, job->kind->is_real && job->kind->inverse ? i : rank - 1 - i);
    if (atomic_load(&job->out_of_memory))
        st = status_exhausted("OOM when allocating a line of a Fourier transform");
    else
        pool_parallel_for(ctx->pool, rows, row_cost, store_rows, job);
out:
    for (int axis = 0; axis < rank; axis++)
        fft_plan_free(job->plans[axis]);
    free(job->work);
    return st;
}

static struct status *fft_init(struct kernel_init *init) {
    init->state = (void *)(uintptr_t)init->arg;
    return NULL;
}
static void fft_fini(void *state) { (void)state; /* the row's */ }

static enum kernel_result fft_compute(struct kernel_ctx *ctx) {
    struct tensor *in = &ctx->inputs[0];
    struct fft_job job = {.kind = ctx->instance->state, .in = (enum dtype)in->dtype, .out = (enum dtype)ctx->instance->out_types[0]};
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
#define KIND(dimensions)                                                                                                       \
    static const struct fft_kind fft_##dimensions = {dimensions, false, false}, ifft_##dimensions = {dimensions, true, false}, \
                                 rfft_##dimensions = {dimensions, false, true}, irfft_##dimensions = {dimensions, true, true};
KIND(1)
KIND(2)
KIND(3)
#define COMPLEX(op, kind) \
    { (op), {{"Tcomplex", C64 | C128}}, fft_compute, fft_init, fft_fini, &(kind), KERNEL_EXPENSIVE, 20 }
#define REAL(op, kind)                                                                                                              \
    {(op), {{"Treal", DTYPE_BIT(DT_FLOAT)}, {"Tcomplex", C64}}, fft_compute, fft_init, fft_fini, &(kind), KERNEL_EXPENSIVE, 20}, {  \
        (op), {{"Treal", DTYPE_BIT(DT_DOUBLE)}, {"Tcomplex", C128}}, fft_compute, fft_init, fft_fini, &(kind), KERNEL_EXPENSIVE, 20 \
    }

// clang-format off
static const struct kernel_def rows[] = {
    COMPLEX("FFT", fft_1), COMPLEX("FFT2D", fft_2), COMPLEX("FFT3D", fft_3),
    COMPLEX("IFFT", ifft_1), COMPLEX("IFFT2D", ifft_2), COMPLEX("IFFT3D", ifft_3),
    REAL("RFFT", rfft_1), REAL("RFFT2D", rfft_2), REAL("RFFT3D", rfft_3),
    REAL("IRFFT", irfft_1), REAL("IRFFT2D", irfft_2), REAL("IRFFT3D", irfft_3),
};
// clang-format on
const struct kernel_list fft_kernels = {rows, ARRAY_LEN(rows)};
