// What libraries compute on a real device, for the simulated one: operations of a stream that run in
// the device process (simEnqueueHostOperation). Plain loops, so that they share nothing with what
// they are compared with.
#include "kernels/cuda/convolution_args.h"
#include "kernels/cuda/products_args.h"

#include <stdlib.h>
#include <string.h>

template <class R> struct complex_of { R re, im; };
template <class T> static T plain(T x, bool) { return x; }
template <class R> static complex_of<R> plain(complex_of<R> x, bool conjugates) {
    return {x.re, conjugates ? -x.im : x.im};
}
static void add(double &sum, double a, double b) { sum += a * b; }
template <class R> static void add(complex_of<double> &sum, complex_of<R> a, complex_of<R> b) {
    sum.re += (double)a.re * b.re - (double)a.im * b.im;
    sum.im += (double)a.re * b.im + (double)a.im * b.re;
}
template <class R> static complex_of<R> rounded(complex_of<double> sum, complex_of<R>) {
    return {(R)sum.re, (R)sum.im};
}
template <class T> static T rounded(double sum, T) { return T((float)sum); }
static double rounded(double sum, double) { return sum; }

/* A float as tensor cores take it: 10 bits of the fraction, the nearest, ties to even. */
static float input_of(float x, bool rounds_to_tf32) {
    uint32_t bits;
    if (!rounds_to_tf32)
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits += 0xfffu + (bits >> 13 & 1);
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T> static T input_of(T x, bool) { return x; }

/* Sums in Sum, whatever the type of the elements is. */
template <class T, class Sum> static void multiply(const products_args &args) {
    for (int64_t p = 0; p < args.n_products; p++) {
        const T *x = static_cast<const T *>(args.x) + p * args.x_stride;
        const T *y = static_cast<const T *>(args.y) + p * args.y_stride;
        T *out = static_cast<T *>(args.out) + p * args.m * args.n;
        for (int64_t i = 0; i < args.m; i++) {
            for (int64_t j = 0; j < args.n; j++) {
                Sum sum = {};
                for (int64_t k = 0; k < args.k; k++)
                    add(sum,
                        plain(input_of(args.transposes_x ? x[k * args.m + i] : x[i * args.k + k],
                                       args.rounds_to_tf32),
                              args.transposes_x && args.conjugates),
                        plain(input_of(args.transposes_y ? y[j * args.k + k] : y[k * args.n + j],
                                       args.rounds_to_tf32),
                              args.transposes_y && args.conjugates));
                out[i * args.n + j] = rounded(sum, T());
            }
        }
    }
}

extern "C" __attribute__((visibility("default"))) void gpu_products(const void *args) {
    const products_args &products = *static_cast<const products_args *>(args);
    switch (products.type) {
    case PRODUCTS_F16:
        return multiply<__half, double>(products);
    case PRODUCTS_BF16:
        return multiply<__nv_bfloat16, double>(products);
    case PRODUCTS_F32:
        return multiply<float, double>(products);
    case PRODUCTS_F64:
        return multiply<double, double>(products);
    case PRODUCTS_C64:
        return multiply<complex_of<float>, complex_of<double>>(products);
    case PRODUCTS_C128:
        return multiply<complex_of<double>, complex_of<double>>(products);
    }
}

/* ---- convolutions ---- */

static int64_t place_in(const convolution_tensor &tensor, const int64_t *at) {
    int64_t offset = 0;
    for (int i = 0; i < 5; i++)
        offset += at[i] * tensor.strides[i];
    return offset;
}

/* Calls work(at) for each place of a tensor. */
template <class Work> static void each_place(const convolution_tensor &tensor, Work work) {
    int64_t at[5];
    for (at[0] = 0; at[0] < tensor.dims[0]; at[0]++)
        for (at[1] = 0; at[1] < tensor.dims[1]; at[1]++)
            for (at[2] = 0; at[2] < tensor.dims[2]; at[2]++)
                for (at[3] = 0; at[3] < tensor.dims[3]; at[3]++)
                    for (at[4] = 0; at[4] < tensor.dims[4]; at[4]++)
                        work(at);
}

/* Adds up every product of an element of the output and one of the filter into sums of the result's
 * elements. */
template <class T> static void convolve(const convolution_args &args) {
    const convolution_tensor &result = args.direction == CONVOLUTION_FORWARD          ? args.out
                                       : args.direction == CONVOLUTION_BACKPROP_INPUT ? args.in
                                                                                      : args.filter;
    int64_t last = 0, per_group = args.filter.dims[1],
            out_per_group = args.out.dims[1] / (args.in.dims[1] / per_group);
    for (int i = 0; i < 5; i++)
        last += (result.dims[i] - 1) * result.strides[i];
    double *sums = static_cast<double *>(calloc((size_t)last + 1, sizeof(double)));
    T *in = static_cast<T *>(args.in.at), *filter = static_cast<T *>(args.filter.at),
      *out = static_cast<T *>(args.out.at);
    auto value = [&](T x) { return (double)input_of(x, args.rounds_to_tf32); };
    each_place(args.out, [&](const int64_t *o) {
        int64_t f[5] = {o[1], 0, 0, 0, 0}, i[5] = {o[0], 0, 0, 0, 0};
        for (f[2] = 0; f[2] < args.filter.dims[2]; f[2]++) {
            for (f[3] = 0; f[3] < args.filter.dims[3]; f[3]++) {
                for (f[4] = 0; f[4] < args.filter.dims[4]; f[4]++) {
                    bool is_inside = true;
                    for (int d = 0; d < 3; d++) {
                        i[2 + d] =
                            o[2 + d] * args.stride[d] - args.pad[d] + f[2 + d] * args.rate[d];
                        is_inside &= i[2 + d] >= 0 && i[2 + d] < args.in.dims[2 + d];
                    }
                    for (f[1] = 0; is_inside && f[1] < per_group; f[1]++) {
                        i[1] = o[1] / out_per_group * per_group + f[1];
                        int64_t at_in = place_in(args.in, i), at_filter = place_in(args.filter, f),
                                at_out = place_in(args.out, o);
                        if (args.direction == CONVOLUTION_FORWARD)
                            sums[at_out] += value(in[at_in]) * value(filter[at_filter]);
                        else if (args.direction == CONVOLUTION_BACKPROP_INPUT)
                            sums[at_in] += value(out[at_out]) * value(filter[at_filter]);
                        else
                            sums[at_filter] += value(in[at_in]) * value(out[at_out]);
                    }
                }
            }
        }
    });
    each_place(result, [&](const int64_t *at) {
        int64_t place = place_in(result, at);
        static_cast<T *>(result.at)[place] = rounded(sums[place], T());
    });
    free(sums);
}

extern "C" __attribute__((visibility("default"))) void gpu_convolution(const void *args) {
    const convolution_args &convolution = *static_cast<const convolution_args *>(args);
    switch (convolution.type) {
    case PRODUCTS_F16:
        return convolve<__half>(convolution);
    case PRODUCTS_BF16:
        return convolve<__nv_bfloat16>(convolution);
    case PRODUCTS_F32:
        return convolve<float>(convolution);
    default:
        return convolve<double>(convolution);
    }
}
