/* Kernels of Softmax, LogSoftmax and the two cross entropies, row by row. Narrow floats are
 * computed in float. The sums of a row are a tree of its lanes' sums, and a lane adds in tiles: a
 * long sum loses precision. */
#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/reductions_args.h"

/* A block works on REDUCTION_THREADS / n_lanes rows at a time. */
template <class W> struct row_team {
    int lane, row, n_lanes;
    W *shared; /* an element for each thread of the block */

    __device__ row_team(int n_lanes_, W *shared_)
        : lane((int)threadIdx.x % n_lanes_), row((int)threadIdx.x / n_lanes_), n_lanes(n_lanes_),
          shared(shared_) {}
    __device__ W *mine() const { return shared + row * n_lanes + lane; }
    /* Every thread of the block calls these. The result is the same for all lanes of a row. */
    __device__ W sum(W value) const {
        *mine() = value;
        __syncthreads();
        for (int half = n_lanes / 2; half > 0; half /= 2) {
            if (lane < half)
                *mine() += mine()[half];
            __syncthreads();
        }
        W total = shared[row * n_lanes];
        __syncthreads();
        return total;
    }
    __device__ W greatest(W value) const {
        *mine() = value;
        __syncthreads();
        for (int half = n_lanes / 2; half > 0; half /= 2) {
            if (lane < half)
                *mine() = mine()[half] > *mine() ? mine()[half] : *mine();
            __syncthreads();
        }
        W top = shared[row * n_lanes];
        __syncthreads();
        return top;
    }
};

/* A lane's sum. */
template <class W> struct tiled_sum {
    enum { TILE = 64 };
    W tiles, tile;
    int n;

    __device__ tiled_sum() : tiles(0), tile(0), n(0) {}
    __device__ void add(W value) {
        tile += value;
        if (++n == TILE) {
            tiles += tile;
            tile = 0;
            n = 0;
        }
    }
    __device__ W total() const { return tiles + tile; }
};

/* How the rows of a launch are read. */
template <class T> struct softmax_rows {
    typedef typename gpu_wide<T>::type W;
    const softmax_args &args;
    const row_team<W> &team;
    int64_t row;
    bool is_row;

    __device__ W at(int64_t column) const {
        return (W) static_cast<const T *>(
            args.in)[row * args.in_row_step + column * args.in_step];
    }
    __device__ W label(int64_t column) const {
        return (W) static_cast<const T *>(
            args.labels)[row * args.label_row_step + column * args.label_step];
    }
    /* The greatest number of a row, and the sum of e^(x - greatest). A row without finite numbers
     * has the sum NaN. */
    __device__ W sum_of_powers(W *greatest) const {
        W top = -(W)INFINITY;
        tiled_sum<W> sum;
        for (int64_t i = team.lane; is_row && i < args.n_columns; i += team.n_lanes) {
            W x = at(i);
            top = x > top ? x : top;
        }
        top = team.greatest(top);
        for (int64_t i = team.lane; is_row && i < args.n_columns; i += team.n_lanes)
            sum.add(exp(at(i) - top));
        *greatest = top;
        return team.sum(sum.total());
    }
};

/* Calls `work` for each row. Lanes of a row that does not exist still reach every barrier. */
template <class T, class Work>
__device__ static inline void each_row(const softmax_args &args, Work work) {
    typedef typename gpu_wide<T>::type W;
    __shared__ W shared[REDUCTION_THREADS];
    row_team<W> team(args.n_lanes, shared);
    const int64_t width = REDUCTION_THREADS / args.n_lanes;
    for (int64_t first = blockIdx.x * width; first < args.n_rows; first += gridDim.x * width) {
        int64_t row = first + team.row;
        softmax_rows<T> rows = {args, team, row, row < args.n_rows};
        work(rows, static_cast<T *>(args.out) + row * args.n_columns);
    }
}

struct softmax_work {
    template <class T> __device__ void operator()(const softmax_rows<T> &rows, T *out) const {
        typedef typename gpu_wide<T>::type W;
        W top, scale = 1 / rows.sum_of_powers(&top);
        for (int64_t i = rows.team.lane; rows.is_row && i < rows.args.n_columns;
             i += rows.team.n_lanes)
            out[i] = (T)(exp(rows.at(i) - top) * scale);
    }
};

struct log_softmax_work {
    template <class T> __device__ void operator()(const softmax_rows<T> &rows, T *out) const {
        typedef typename gpu_wide<T>::type W;
        W top, log_sum = log(rows.sum_of_powers(&top));
        for (int64_t i = rows.team.lane; rows.is_row && i < rows.args.n_columns;
             i += rows.team.n_lanes)
            out[i] = (T)(rows.at(i) - top - log_sum);
    }
};

/* loss = Σ labels · (log Σ e^(x - top) - (x - top)); backprop = softmax - labels. The backprop may
 * have the memory of the features. */
struct cross_entropy_work {
    template <class T> __device__ void operator()(const softmax_rows<T> &rows, T *out) const {
        typedef typename gpu_wide<T>::type W;
        W top, sum = rows.sum_of_powers(&top), scale = 1 / sum, log_sum = log(sum);
        tiled_sum<W> losses;
        for (int64_t i = rows.team.lane; rows.is_row && i < rows.args.n_columns;
             i += rows.team.n_lanes) {
            W below = rows.at(i) - top, label = rows.label(i);
            losses.add(label * (log_sum - below));
            out[i] = (T)(exp(below) * scale - label);
        }
        W loss = rows.team.sum(losses.total());
        if (rows.is_row && rows.team.lane == 0)
            static_cast<T *>(rows.args.loss)[rows.row] = (T)loss;
    }
};

/* A class outside of the row gives NaN for the loss and the gradient of its row, as TensorFlow's
 * GPU kernel has it: the host would have to wait to see the mistake. */
struct sparse_cross_entropy_work {
    template <class T> __device__ void operator()(const softmax_rows<T> &rows, T *out) const {
        typedef typename gpu_wide<T>::type W;
        const softmax_args &args = rows.args;
        int64_t label = -1;
        if (rows.is_row)
            label = args.class_bytes == 4
                        ? (int64_t) static_cast<const int32_t *>(args.labels)[rows.row]
                        : static_cast<const int64_t *>(args.labels)[rows.row];
        bool is_class = label >= 0 && label < args.n_columns;
        W at_label = is_class ? rows.at(label) : (W)NAN;
        /* every lane has read its row's number before the gradient takes over the memory */
        W top, sum = rows.sum_of_powers(&top), scale = 1 / sum;
        for (int64_t i = rows.team.lane; rows.is_row && i < args.n_columns;
             i += rows.team.n_lanes) {
            W share = exp(rows.at(i) - top) * scale;
            out[i] = (T)(is_class ? share - (W)(i == label) : (W)NAN);
        }
        if (rows.is_row && rows.team.lane == 0)
            static_cast<T *>(args.loss)[rows.row] = (T)(log(sum) - (at_label - top));
    }
};

#define SOFTMAX(suffix, T)                                                                      \
    KERNEL(softmax_##suffix, softmax_args) { each_row<T>(args, softmax_work()); }               \
    KERNEL(log_softmax_##suffix, softmax_args) { each_row<T>(args, log_softmax_work()); }       \
    KERNEL(cross_entropy_##suffix, softmax_args) { each_row<T>(args, cross_entropy_work()); }   \
    KERNEL(sparse_cross_entropy_##suffix, softmax_args) {                                       \
        each_row<T>(args, sparse_cross_entropy_work());                                         \
    }
GPU_EACH_FLOAT(SOFTMAX)
