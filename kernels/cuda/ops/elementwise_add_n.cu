/* Kernels of AddN. See elementwise_forms.h. */
#include "kernels/cuda/ops/elementwise_forms.h"

/* Adds up to ADD_N_MAX operands. Narrow floats are added in float, and their sum is rounded once
 * for each launch. `out` may be any of the operands. */
template <class T, class W> __device__ static inline void add_n(const struct add_n_args &args) {
    enum { N = ELEMENTWISE_VECTOR_BYTES / sizeof(T) };
    typedef elementwise_pack<T, N> pack;
    int64_t n_packs = args.is_vector ? args.n / N : 0;
    for (int64_t i = gpu_thread(); i < n_packs; i += gpu_n_threads()) {
        pack first = static_cast<const pack *>(args.in[0])[i];
        W sum[N];
        for (int j = 0; j < N; j++)
            sum[j] = (W)first.at[j];
        for (int k = 1; k < args.n_inputs; k++) {
            pack more = static_cast<const pack *>(args.in[k])[i];
            for (int j = 0; j < N; j++)
                sum[j] = sum[j] + (W)more.at[j];
        }
        for (int j = 0; j < N; j++)
            first.at[j] = (T)sum[j];
        static_cast<pack *>(args.out)[i] = first;
    }
    for (int64_t i = n_packs * N + gpu_thread(); i < args.n; i += gpu_n_threads()) {
        W sum = (W)static_cast<const T *>(args.in[0])[i];
        for (int k = 1; k < args.n_inputs; k++)
            sum = sum + (W)static_cast<const T *>(args.in[k])[i];
        static_cast<T *>(args.out)[i] = (T)sum;
    }
}
#define ADD_N(suffix, T, W) \
    KERNEL(add_n_##suffix, add_n_args) { add_n<T, W>(args); }
EACH_NARROW(ADD_N, float)
ADD_N(f32, float, float)
ADD_N(f64, double, double)
ADD_N(i64, int64_t, uint64_t)
ADD_N(u32, uint32_t, uint32_t)
ADD_N(c64, gpu_complex<float>, gpu_complex<float>)
ADD_N(c128, gpu_complex<double>, gpu_complex<double>)
