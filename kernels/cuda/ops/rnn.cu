/* Kernels of recurrent cells and their gradients (kernels/cpu/nn/rnn_lstm.c, rnn_lstm_grad.c and
 * rnn_gru.c have the formulas). The products are made before. Half is computed in float. */
#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/rnn_args.h"

__device__ static inline float rnn_sigmoid(float x) { return 1 / (1 + expf(-x)); }

template <class T> __device__ static inline float rnn_load(const void *from, int64_t at) {
    return (float)static_cast<const T *>(from)[at];
}
/* What a cell or a gradient gives through a peephole; 0 without peepholes. */
template <class T>
__device__ static inline float lstm_peep(const void *weights, int64_t at, float value) {
    return weights ? value * rnn_load<T>(weights, at) : 0;
}
template <class T> __device__ static inline void rnn_store(void *to, int64_t at, float value) {
    static_cast<T *>(to)[at] = (T)value;
}

/* ---- LSTM ---- */

/* What a gate gets before its function: both products and the bias. */
template <class T>
__device__ static inline float lstm_sum(const lstm_gates_args &args, int64_t row, int64_t column) {
    int64_t at = row * 4 * args.cells.value + column;
    return (args.from_x ? rnn_load<T>(args.from_x, at) : 0) + rnn_load<T>(args.from_h, at) +
           rnn_load<T>(args.b, column);
}

template <class T> __device__ static inline void lstm_gates(const lstm_gates_args &args) {
    const rnn_order &order = args.order;
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t row = gpu_divide(args.cells, e), c = e - row * args.cells.value;
        float before = args.reads_carry ? args.carry[e] : rnn_load<T>(args.cs_prev, e);
        float in_gate = rnn_sigmoid(lstm_sum<T>(args, row, order.i + c) +
                                    lstm_peep<T>(args.wci, c, before));
        float forget = rnn_sigmoid(lstm_sum<T>(args, row, order.f + c) + args.forget_bias +
                                   lstm_peep<T>(args.wcf, c, before));
        float input = tanhf(lstm_sum<T>(args, row, order.ci + c));
        float cell = input * in_gate + before * forget;
        cell = cell > args.limit ? args.limit : cell < -args.limit ? -args.limit : cell;
        float out_gate = rnn_sigmoid(lstm_sum<T>(args, row, order.o + c) +
                                     lstm_peep<T>(args.wco, c, cell));
        float squashed = tanhf(cell);
        if (args.carry)
            args.carry[e] = cell;
        rnn_store<T>(args.i, e, in_gate);
        rnn_store<T>(args.cs, e, cell);
        rnn_store<T>(args.f, e, forget);
        rnn_store<T>(args.o, e, out_gate);
        rnn_store<T>(args.ci, e, input);
        rnn_store<T>(args.co, e, squashed);
        rnn_store<T>(args.h, e, out_gate * squashed);
    }
}

/* Each element of the later gradients is read before it is written. */
template <class T> __device__ static inline void lstm_grad(const lstm_grad_args &args) {
    const rnn_order &order = args.order;
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t row = gpu_divide(args.cells, e), c = e - row * args.cells.value;
        int64_t d = row * 4 * args.cells.value + c;
        float i = rnn_load<T>(args.i, e), f = rnn_load<T>(args.f, e), o = rnn_load<T>(args.o, e),
              ci = rnn_load<T>(args.ci, e), co = rnn_load<T>(args.co, e);
        float dh = rnn_load<T>(args.h_grad, e), dcs = rnn_load<T>(args.cs_grad, e);
        if (args.h_later) {
            dh += rnn_load<T>(args.h_later, e);
            dcs += args.carry ? args.carry[e] : rnn_load<T>(args.cs_prev_grad, e);
        }
        float d_o = o * (1 - o) * co * dh;
        dcs += (1 - co * co) * dh * o + lstm_peep<T>(args.wco, c, d_o);
        float df = f * (1 - f) * dcs * rnn_load<T>(args.cs_prev, e), di = i * (1 - i) * dcs * ci;
        float before =
            dcs * f + lstm_peep<T>(args.wci, c, di) + lstm_peep<T>(args.wcf, c, df);
        rnn_store<T>(args.dicfo, d + order.i, di);
        rnn_store<T>(args.dicfo, d + order.ci, (1 - ci * ci) * dcs * i);
        rnn_store<T>(args.dicfo, d + order.f, df);
        rnn_store<T>(args.dicfo, d + order.o, d_o);
        rnn_store<T>(args.cs_prev_grad, e, before);
        if (args.carry)
            args.carry[e] = before;
    }
}

/* ---- sums of columns ---- */

template <class T> __device__ static inline void rnn_columns(const rnn_columns_args &args) {
    __shared__ float shared[RNN_THREADS];
    int64_t n_groups = (args.n_columns + args.width - 1) / args.width;
    int64_t chunk = blockIdx.x / n_groups;
    int64_t c = blockIdx.x % n_groups * args.width + threadIdx.x % args.width;
    int64_t end = (chunk + 1) * args.chunk;
    end = c >= args.n_columns ? 0 : end < args.n_rows ? end : args.n_rows;
    float sum = 0;
    for (int64_t r = chunk * args.chunk + threadIdx.x / args.width; r < end;
         r += RNN_THREADS / args.width) {
        float value = rnn_load<T>(args.d, r * args.row_len + args.first + c);
        if (args.before)
            value *= r < args.n_before
                         ? rnn_load<T>(args.before, r * args.n_columns + c)
                         : rnn_load<T>(args.rest, (r - args.n_before) * args.n_columns + c);
        sum += value;
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = RNN_THREADS / 2; half >= args.width; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (c < args.n_columns && (int)threadIdx.x < args.width)
        args.sums[chunk * args.n_columns + c] = shared[threadIdx.x];
}

template <class T> __device__ static inline void rnn_merge(const rnn_columns_args &args) {
    for (int64_t c = gpu_thread(); c < args.n_columns; c += gpu_n_threads()) {
        float sum = 0;
        for (int64_t chunk = 0; chunk < args.n_chunks; chunk++)
            sum += args.sums[chunk * args.n_columns + c];
        rnn_store<T>(args.out, c, sum);
    }
}

#define RNN(suffix, T)                                                           \
    KERNEL(lstm_gates_##suffix, lstm_gates_args) { lstm_gates<T>(args); }        \
    KERNEL(lstm_grad_##suffix, lstm_grad_args) { lstm_grad<T>(args); }           \
    KERNEL(rnn_columns_##suffix, rnn_columns_args) { rnn_columns<T>(args); }     \
    KERNEL(rnn_merge_##suffix, rnn_columns_args) { rnn_merge<T>(args); }
RNN(f16, __half)
RNN(f32, float)

/* ---- GRU ---- */

KERNEL(gru_gates_f32, gru_gates_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t n = args.cells.value, row = gpu_divide(args.cells, e), c = e - row * n;
        int64_t at = row * 2 * n + c;
        float zr = args.from_h[at] + args.b[c], zu = args.from_h[at + n] + args.b[n + c];
        if (args.from_x) {
            zr += args.from_x[at];
            zu += args.from_x[at + n];
        }
        float r = rnn_sigmoid(zr);
        args.r[e] = r;
        args.u[e] = rnn_sigmoid(zu);
        args.reset[e] = r * args.h_prev[e];
    }
}

KERNEL(gru_outputs_f32, gru_outputs_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t row = gpu_divide(args.cells, e);
        float z = args.from_reset[e] + args.b[e - row * args.cells.value];
        float c = tanhf(args.from_x ? z + args.from_x[e] : z), u = args.u[e];
        args.c[e] = c;
        args.h[e] = u * args.h_prev[e] + (1 - u) * c;
    }
}

/* The gradient before tanh. */
KERNEL(gru_grad_candidate_f32, gru_grad_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        float c = args.c[e];
        args.d_c[e] = args.d_h[e] * (1 - args.u[e]) * (1 - c * c);
    }
}

/* The gradient before the gates. */
KERNEL(gru_grad_gates_f32, gru_grad_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads()) {
        int64_t n = args.cells.value, row = gpu_divide(args.cells, e);
        float r = args.r[e], u = args.u[e], h_prev = args.h_prev[e];
        float *d = args.d_ru + row * 2 * n + e - row * n;
        d[0] = args.d_reset[e] * h_prev * r * (1 - r);
        d[n] = args.d_h[e] * (h_prev - args.c[e]) * u * (1 - u);
    }
}

KERNEL(gru_grad_state_f32, gru_grad_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads())
        args.d_h_prev[e] =
            args.d_reset[e] * args.r[e] + args.d_h[e] * args.u[e] + args.from_ru[e];
}

KERNEL(rnn_sum_f32, rnn_sum_args) {
    for (int64_t e = gpu_thread(); e < args.n; e += gpu_n_threads())
        args.out[e] += args.other[e];
}
