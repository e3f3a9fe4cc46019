/* Elements picked by indices, or placed by where they are: gathers, one-hot rows, bands of matrices,
 * reversed sequences, ranges. */
#include "kernels/cuda/ops/picks.h"

template <class T> __device__ static inline T pick_zero() {
    T zero = {};
    return zero;
}

template <class T> __device__ static inline void gather(const gather_args &args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t column, picked, outer;
        int64_t row = pick_divide(e, args.len, &column);
        int64_t source = pick_divide(row, args.n_picked, &picked); /* batch and outer */
        int64_t batch = pick_divide(source, args.n_outer, &outer);
        int64_t at = pick_index_at(args.indices, args.index, batch * args.n_picked + picked);
        reinterpret_cast<T *>(args.to)[e] =
            at >= 0 && at < args.n_axis
                ? reinterpret_cast<const T *>(
                      args.from)[(source * args.n_axis + at) * args.len + column]
                : pick_zero<T>();
    }
}

template <class T> __device__ static inline void gather_slices(const gather_slices_args &args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t column, row = pick_divide(e, args.slices.len, &column);
        int64_t slice = pick_slice(args.slices, row);
        reinterpret_cast<T *>(args.to)[e] =
            slice >= 0 ? reinterpret_cast<const T *>(args.from)[slice * args.slices.len + column]
                       : pick_zero<T>();
    }
}

template <class T> __device__ static inline void one_hot(const one_hot_args &args) {
    T on = pick_scalar_value<T>(args.on), off = pick_scalar_value<T>(args.off);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t column, place, row = pick_divide(e, args.suffix, &column);
        int64_t prefix = pick_divide(row, args.depth, &place);
        int64_t at = pick_index_at(args.indices, args.index, prefix * args.suffix + column);
        reinterpret_cast<T *>(args.to)[e] = at == place ? on : off;
    }
}

template <class I> __device__ static inline void renumber(const renumber_args &args) {
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        static_cast<I *>(args.to)[i] =
            (I)args.numbers[pick_modulo(static_cast<const I *>(args.from)[i], args.n_numbers)];
}
KERNEL(renumber_i32, renumber_args) { renumber<int32_t>(args); }
KERNEL(renumber_i64, renumber_args) { renumber<int64_t>(args); }

template <class T> __device__ static inline void band(const band_args &args) {
    const T *from = reinterpret_cast<const T *>(args.from);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t column, row;
        pick_divide(pick_divide(e, args.n_cols, &column), args.n_rows, &row);
        bool is_kept = (args.lower < 0 || row - column <= args.lower) &&
                       (args.upper < 0 || column - row <= args.upper);
        reinterpret_cast<T *>(args.to)[e] = is_kept ? from[e] : pick_zero<T>();
    }
}

template <class T>
__device__ static inline void reverse_sequence(const reverse_sequence_args &args) {
    const T *from = reinterpret_cast<const T *>(args.from);
    int64_t n_first = args.batch_is_first ? args.n_batch : args.n_steps,
            n_second = args.batch_is_first ? args.n_steps : args.n_batch;
    int64_t step_stride = args.inner * (args.batch_is_first ? 1 : args.middle * n_second);
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t inner, second, middle, first;
        int64_t left = pick_divide(e, args.inner, &inner);
        left = pick_divide(left, n_second, &second);
        left = pick_divide(left, args.middle, &middle);
        pick_divide(left, n_first, &first);
        int64_t batch = args.batch_is_first ? first : second,
                step = args.batch_is_first ? second : first;
        int64_t length = pick_index_at(args.lengths, args.length, batch);
        length = length > args.n_steps ? args.n_steps : length;
        int64_t source = step < length ? length - 1 - step : step;
        reinterpret_cast<T *>(args.to)[e] = from[e + (source - step) * step_stride];
    }
}

#define PICK_KERNELS(suffix, type)                                                    \
    KERNEL(gather_##suffix, gather_args) { gather<type>(args); }                      \
    KERNEL(gather_slices_##suffix, gather_slices_args) { gather_slices<type>(args); } \
    KERNEL(one_hot_##suffix, one_hot_args) { one_hot<type>(args); }                   \
    KERNEL(band_##suffix, band_args) { band<type>(args); }                            \
    KERNEL(reverse_sequence_##suffix, reverse_sequence_args) { reverse_sequence<type>(args); }
GPU_EACH_SIZE(PICK_KERNELS)

template <class R> __device__ static inline void conjugate(const conjugate_args &args) {
    gpu_complex<R> *at = reinterpret_cast<gpu_complex<R> *>(args.at);
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads())
        at[i].im = -at[i].im;
}
KERNEL(conjugate_c64, conjugate_args) { conjugate<float>(args); }
KERNEL(conjugate_c128, conjugate_args) { conjugate<double>(args); }

/* ---- the gradient of MirrorPad ---- */

/* The positions in a padded dimension that element x of the inside was copied to. */
struct mirror_images {
    int64_t at[3];
    int n;
};
__device__ static inline mirror_images mirror_find(int64_t x, int64_t size, int64_t before,
                                                   int64_t after, int64_t offset) {
    mirror_images images = {{before + x, 0, 0}, 1};
    int64_t left = before - 1 + offset - x, right = before + 2 * size - 1 - offset - x;
    if (left >= 0 && left < before)
        images.at[images.n++] = left;
    if (right >= before + size && right < before + size + after)
        images.at[images.n++] = right;
    return images;
}

template <class T> __device__ static inline void mirror_grad(const mirror_args &args) {
    typedef typename gpu_wide<T>::type W;
    const T *from = reinterpret_cast<const T *>(args.from);
    int rank = (int)args.rank;
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        mirror_images images[MIRROR_MAX_RANK];
        int64_t strides[MIRROR_MAX_RANK], left = e, stride = 1;
        int turn[MIRROR_MAX_RANK];
        for (int d = rank - 1; d >= 0; d--) {
            int64_t x;
            left = pick_divide(left, args.dims[d], &x);
            images[d] = mirror_find(x, args.dims[d], args.before[d], args.after[d], args.offset);
            strides[d] = stride;
            stride *= args.before[d] + args.dims[d] + args.after[d];
            turn[d] = 0;
        }
        W sum = 0;
        for (int d = 0; d >= 0;) { /* all combinations of images, like an odometer */
            int64_t at = 0;
            for (int i = 0; i < rank; i++)
                at += images[i].at[turn[i]] * strides[i];
            sum += (W)from[at];
            for (d = rank - 1; d >= 0 && ++turn[d] == images[d].n; d--)
                turn[d] = 0;
        }
        reinterpret_cast<T *>(args.to)[e] = (T)sum;
    }
}
#define MIRROR(suffix, type) \
    KERNEL(mirror_grad_##suffix, mirror_args) { mirror_grad<type>(args); }
GPU_EACH_FLOAT(MIRROR)

/* Each product and sum is rounded to the type, as on a CPU. Integers wrap. */
template <class T> __device__ static inline void range(const range_args &args) {
    typedef typename gpu_wide<T>::type W;
    W first = (W) * reinterpret_cast<const T *>(&args.start),
      by = (W) * reinterpret_cast<const T *>(&args.delta);
    for (int64_t i = gpu_thread(); i < args.n; i += gpu_n_threads()) {
        T turn = (T)(W)i, product = (T)((W)turn * by);
        reinterpret_cast<T *>(args.to)[i] = (T)(first + (W)product);
    }
}
#define RANGE(suffix, type) \
    KERNEL(range_##suffix, range_args) { range<type>(args); }
GPU_EACH_FLOAT(RANGE)
KERNEL(range_i64, range_args) { range<uint64_t>(args); }
