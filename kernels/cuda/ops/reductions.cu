/* Kernels that reduce dimensions: Sum, Prod, Mean, Max, Min, All, Any, EuclideanNorm, L2Loss. See
 * reductions_args.h for how threads share the work.
 *
 * Accumulators are wider than elements, as on a CPU: double for float, unsigned integers that wrap.
 * Those of half and bfloat16 are floats, which have enough digits for them. */
#include "kernels/cuda/ops/complex_math.h"
#include "kernels/cuda/ops/reductions_args.h"

enum { BATCH = 4 }; /* elements that a thread loads before it uses the first */

__device__ static inline int64_t axes_offset(const reduction_axes &axes, int64_t index) {
    int64_t offset = 0;
    GPU_NO_UNROLL for (int d = axes.rank - 1; d > 0; d--) {
        int64_t outer = gpu_divide(axes.dims[d], index);
        offset += (index - outer * axes.dims[d].value) * axes.strides[d];
        index = outer;
    }
    return offset + index * axes.strides[0];
}

/* Op: T, the element; A, the accumulator; first(); step(a, x); merge(a, b); finish(a, count). */
template <class Op> struct reduction {
    typedef typename Op::element T;
    typedef typename Op::accumulator A;

    /* Reduces every n_lanes-th element of [begin, end); offset(i) is where element i is. */
    template <class Offset>
    __device__ static inline A elements_at(const T *in, int64_t begin, int64_t end, int64_t step,
                                           const Offset &offset) {
        A acc = Op::first();
        int64_t i = begin;
        GPU_NO_UNROLL for (; i + (BATCH - 1) * step < end; i += BATCH * step) {
            T x[BATCH];
            for (int j = 0; j < BATCH; j++)
                x[j] = in[offset(i + j * step)];
            for (int j = 0; j < BATCH; j++)
                acc = Op::step(acc, x[j]);
        }
        GPU_NO_UNROLL for (; i < end; i += step)
            acc = Op::step(acc, in[offset(i)]);
        return acc;
    }
    /* The same of output o. */
    __device__ static inline A elements(const reduction_args &args, int64_t o, int64_t begin,
                                        int64_t end) {
        const T *in = static_cast<const T *>(args.in) + axes_offset(args.kept, o);
        const int64_t stride = args.reduced.strides[0];
        if (args.reduced.rank <= 1) /* mostly: rows, columns, all elements */
            return elements_at(in, begin, end, args.n_lanes,
                               [&](int64_t i) { return i * stride; });
        return elements_at(in, begin, end, args.n_lanes,
                           [&](int64_t i) { return axes_offset(args.reduced, i); });
    }
    __device__ static inline A accumulators(const reduction_args &args, int64_t o, int64_t begin) {
        const A *in = static_cast<const A *>(args.in) + o * args.n_reduced;
        A acc = Op::first();
        GPU_NO_UNROLL for (int64_t i = begin; i < args.n_reduced; i += args.n_lanes)
            acc = Op::merge(acc, in[i]);
        return acc;
    }
    __device__ static inline void run(const reduction_args &args) {
        __shared__ A shared[REDUCTION_THREADS];
        const int thread = (int)threadIdx.x, n_lanes = args.n_lanes,
                  width = REDUCTION_THREADS / n_lanes;
        const int column = args.is_column ? thread % width : thread / n_lanes;
        const int lane = args.is_column ? thread / width : thread % n_lanes;
        const int64_t n_units = (args.n_outputs + width - 1) / width * args.n_chunks;
        GPU_NO_UNROLL for (int64_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
            int64_t group = unit / args.n_chunks, number = unit - group * args.n_chunks;
            int64_t o = group * width + column, begin = number * args.chunk;
            int64_t end = begin + args.chunk < args.n_reduced ? begin + args.chunk : args.n_reduced;
            A acc = Op::first();
            if (o < args.n_outputs)
                acc = args.is_last_of_two ? accumulators(args, o, lane)
                                          : elements(args, o, begin + lane, end);
            shared[lane * width + column] = acc;
            __syncthreads();
            GPU_NO_UNROLL for (int half = n_lanes / 2; half > 0; half /= 2) {
                if (lane < half)
                    shared[lane * width + column] =
                        Op::merge(shared[lane * width + column],
                                  shared[(lane + half) * width + column]);
                __syncthreads();
            }
            if (lane == 0 && o < args.n_outputs) {
                if (args.n_chunks > 1)
                    static_cast<A *>(args.out)[o * args.n_chunks + number] = shared[column];
                else
                    static_cast<T *>(args.out)[o] = Op::finish(shared[column], args.count);
            }
            __syncthreads();
        }
    }
};

/* ---- from an element to an accumulator, and back ---- */

typedef gpu_complex<double> wide_complex;
template <class To, class From> struct reduction_cast {
    __device__ static inline To of(From x) { return (To)x; }
};
template <class To, class From> struct reduction_cast<gpu_complex<To>, gpu_complex<From>> {
    __device__ static inline gpu_complex<To> of(gpu_complex<From> z) {
        return gpu_complex<To>((To)z.re, (To)z.im);
    }
};

/* ---- ops: suffix, element, accumulator, name, FIRST, STEP, MERGE, FINISH ---- */

#define REDUCTION(suffix, T, A, name, FIRST, STEP, MERGE, FINISH)                                \
    struct name##_##suffix##_reduction {                                                         \
        typedef T element;                                                                       \
        typedef A accumulator;                                                                   \
        __device__ static inline A first() { return FIRST; }                                     \
        __device__ static inline A step(A a, T element_) {                                       \
            const A x = reduction_cast<A, T>::of(element_);                                      \
            return STEP;                                                                         \
        }                                                                                        \
        __device__ static inline A merge(A a, A b) { return MERGE; }                             \
        __device__ static inline T finish(A a, int64_t count) {                                  \
            (void)count;                                                                         \
            return reduction_cast<T, A>::of(FINISH);                                             \
        }                                                                                        \
    };                                                                                           \
    KERNEL(name##_##suffix, reduction_args) { reduction<name##_##suffix##_reduction>::run(args); }
#define OF_FLOATS(...)                                 \
    REDUCTION(f16, __half, float, __VA_ARGS__)         \
    REDUCTION(bf16, __nv_bfloat16, float, __VA_ARGS__) \
    REDUCTION(f32, float, double, __VA_ARGS__)         \
    REDUCTION(f64, double, double, __VA_ARGS__)
#define OF_I64(...) REDUCTION(i64, int64_t, uint64_t, __VA_ARGS__)

#define OF_COMPLEX(...)                                      \
    REDUCTION(c64, gpu_complex<float>, wide_complex, __VA_ARGS__) \
    REDUCTION(c128, wide_complex, wide_complex, __VA_ARGS__)

OF_FLOATS(reduce_sum, 0, a + x, a + b, a)
OF_I64(reduce_sum, 0, a + x, a + b, a)
OF_COMPLEX(reduce_sum, wide_complex(0), a + x, a + b, a)
OF_FLOATS(reduce_prod, 1, a * x, a * b, a)
OF_I64(reduce_prod, 1, a * x, a * b, a)
REDUCTION(i32, int32_t, uint32_t, reduce_prod, 1, a * x, a * b, a)
OF_COMPLEX(reduce_prod, wide_complex(1), a * x, a * b, a)
OF_FLOATS(reduce_mean, 0, a + x, a + b, a / (double)count)
OF_COMPLEX(reduce_mean, wide_complex(0), a + x, a + b,
           count == 0 ? wide_complex(0)
                      : wide_complex(a.re / (double)count, a.im / (double)count))

/* The greatest and the least are not widened. A NaN stays. */
#define EXTREME(suffix, T, name, FIRST, MERGE) \
    REDUCTION(suffix, T, T, name, FIRST, merge(a, x), MERGE, a)
#define NARROW_EXTREME(suffix, T, name, FIRST, MERGE) \
    REDUCTION(suffix, T, float, name, FIRST, merge(a, x), MERGE, a)
#define EXTREMES(name, FIRST, MERGE)                       \
    NARROW_EXTREME(f16, __half, name, FIRST, MERGE)        \
    NARROW_EXTREME(bf16, __nv_bfloat16, name, FIRST, MERGE) \
    EXTREME(f32, float, name, FIRST, MERGE)                \
    EXTREME(f64, double, name, FIRST, MERGE)
EXTREMES(reduce_max, -INFINITY, b > a || b != b ? b : a)
EXTREME(i64, int64_t, reduce_max, INT64_MIN, b > a ? b : a)
EXTREMES(reduce_min, INFINITY, b < a || b != b ? b : a)

REDUCTION(bool, uint8_t, uint32_t, reduce_all, 1, a & (x != 0), a & b, a)
REDUCTION(bool, uint8_t, uint32_t, reduce_any, 0, a | (x != 0), a | b, a)

OF_FLOATS(reduce_norm, 0, a + x * x, a + b, sqrt(a))
#define SQUARE_OF_SIZE wide_complex(a.re + x.re * x.re + x.im * x.im)
OF_COMPLEX(reduce_norm, wide_complex(0), SQUARE_OF_SIZE, a + b, wide_complex(sqrt(a.re)))
/* L2Loss */
OF_FLOATS(reduce_half_square, 0, a + x * x, a + b, a / 2)
