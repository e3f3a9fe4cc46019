/* Slices that are updated where indices say, and whole values: params[slice] = params[slice] op
 * updates[row], dst = a op b. */
#include "kernels/cuda/ops/owners.h"
#include "kernels/support/update_op.h"

/* Integers wrap, which unsigned arithmetic does for both signs. */
template <class T> __device__ static inline T scatter_apply_int(int64_t op, T x, T y) {
    switch (op) {
    case UPDATE_ADD:
        return (T)((uint64_t)x + (uint64_t)y);
    case UPDATE_SUB:
        return (T)((uint64_t)x - (uint64_t)y);
    case UPDATE_MUL:
        return (T)((uint64_t)x * (uint64_t)y);
    case UPDATE_DIV:
        if (y == 0)
            return 0; /* a CPU reports it */
        return y == (T)-1 && (T)-1 < (T)1 ? (T)(0 - (uint64_t)x) : (T)(x / y);
    case UPDATE_MIN:
        return y < x ? y : x;
    case UPDATE_MAX:
        return x < y ? y : x;
    default:
        return y;
    }
}

template <class T> __device__ static inline T scatter_apply_float(int64_t op, T a, T b) {
    typedef typename gpu_wide<T>::type W;
    W x = (W)a, y = (W)b;
    switch (op) {
    case UPDATE_ADD:
        return (T)(x + y);
    case UPDATE_SUB:
        return (T)(x - y);
    case UPDATE_MUL:
        return (T)(x * y);
    case UPDATE_DIV:
        return (T)(x / y);
    case UPDATE_MIN:
        return y < x ? b : a;
    case UPDATE_MAX:
        return x < y ? b : a;
    default:
        return b;
    }
}

#define APPLY_INT(suffix, type)                                               \
    __device__ static inline type scatter_apply(int64_t op, type x, type y) { \
        return scatter_apply_int<type>(op, x, y);                             \
    }
#define APPLY_FLOAT(suffix, type)                                             \
    __device__ static inline type scatter_apply(int64_t op, type x, type y) { \
        return scatter_apply_float<type>(op, x, y);                           \
    }
/* Sums, differences and assignments only. */
#define APPLY_COMPLEX(suffix, type)                                           \
    __device__ static inline type scatter_apply(int64_t op, type x, type y) { \
        return op == UPDATE_ADD ? x + y : op == UPDATE_SUB ? x - y : y;       \
    }
GPU_EACH_INT(APPLY_INT)
GPU_EACH_FLOAT(APPLY_FLOAT)
GPU_EACH_COMPLEX(APPLY_COMPLEX)

template <class T, class Apply> struct scatter_row {
    const scatter_args &args;
    Apply apply;
    __device__ void operator()(int64_t slice, int64_t row, int64_t begin, int64_t end,
                               int step) const {
        T *to = reinterpret_cast<T *>(args.params) + slice * args.slices.len;
        const T *from = reinterpret_cast<const T *>(args.updates) + row * args.slices.len;
        for (int64_t c = begin; c < end; c += step)
            to[c] = apply(to[c], args.updates ? from[c] : pick_scalar_value<T>(args.scalar));
    }
};

template <class T, class Apply>
__device__ static inline void scatter(const scatter_args &args, owner_chunk &chunk, Apply apply) {
    scatter_row<T, Apply> row = {args, apply};
    owner_run(args.slices, args.n_groups, args.n_parts, chunk, row);
}

template <class T> __device__ static inline void scatter_update(const update_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        reinterpret_cast<T *>(args.dst)[i] =
            scatter_apply(args.op, reinterpret_cast<const T *>(args.a)[i],
                          reinterpret_cast<const T *>(args.b)[i]);
}

template <class T> struct scatter_by_op {
    int64_t op;
    __device__ T operator()(T x, T y) const { return scatter_apply(op, x, y); }
};
template <class T> struct scatter_assign {
    __device__ T operator()(T, T y) const { return y; }
};

#define SCATTER(suffix, type)                                     \
    KERNEL(scatter_##suffix, scatter_args) {                      \
        __shared__ owner_chunk chunk;                             \
        scatter<type>(args, chunk, scatter_by_op<type>{args.op}); \
    }                                                             \
    KERNEL(update_##suffix, update_args) { scatter_update<type>(args); }
GPU_EACH_NUMBER(SCATTER)
#define ASSIGN(suffix, type)                                \
    KERNEL(scatter_assign_##suffix, scatter_args) {         \
        __shared__ owner_chunk chunk;                       \
        scatter<type>(args, chunk, scatter_assign<type>{}); \
    }
GPU_EACH_SIZE(ASSIGN)

/* ---- segments ---- */

template <class W> __device__ static inline W segment_merge(int64_t op, W a, W x) {
    switch (op) {
    case UPDATE_ADD:
        return a + x;
    case UPDATE_MUL:
        return a * x;
    case UPDATE_MIN:
        return x < a || x != x ? x : a;
    default:
        return x > a || x != x ? x : a;
    }
}
template <class R>
__device__ static inline gpu_complex<R> segment_merge(int64_t op, gpu_complex<R> a,
                                                      gpu_complex<R> x) {
    return op == UPDATE_ADD ? a + x : a * x;
}
/* Integers wrap. */
__device__ static inline int32_t segment_merge(int64_t op, int32_t a, int32_t x) {
    return op == UPDATE_ADD   ? (int32_t)((uint32_t)a + (uint32_t)x)
           : op == UPDATE_MUL ? (int32_t)((uint32_t)a * (uint32_t)x)
           : op == UPDATE_MIN ? (x < a ? x : a)
                              : (x > a ? x : a);
}

template <class T> struct segment_row {
    typedef typename gpu_wide<T>::type W;
    const segment_args &args;
    __device__ void operator()(int64_t slice, int64_t row, int64_t begin, int64_t end,
                               int step) const {
        W *to = reinterpret_cast<W *>(args.out) + slice * args.slices.len;
        const T *from = reinterpret_cast<const T *>(args.data) + row * args.slices.len;
        for (int64_t c = begin; c < end; c += step)
            to[c] = segment_merge(args.op, to[c], (W)from[c]);
    }
};

#define SEGMENT(suffix, type)                                            \
    KERNEL(segment_##suffix, segment_args) {                             \
        __shared__ owner_chunk chunk;                                    \
        segment_row<type> row = {args};                                  \
        owner_run(args.slices, args.n_groups, args.n_parts, chunk, row); \
    }
GPU_EACH_FLOAT(SEGMENT)
GPU_EACH_COMPLEX(SEGMENT)
SEGMENT(i32, int32_t)

template <class T> __device__ static inline void narrow(const narrow_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        reinterpret_cast<T *>(args.to)[i] = (T) reinterpret_cast<const float *>(args.from)[i];
}
#define NARROW(suffix, type) \
    KERNEL(narrow_##suffix, narrow_args) { narrow<type>(args); }
GPU_EACH_NARROW(NARROW)
