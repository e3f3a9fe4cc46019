// What libraries compute on a real device, for the simulated one: operations of a stream that run in
// the device process (simEnqueueHostOperation). Plain loops, so that they share nothing with what
// they are compared with.
#include "kernels/cuda/products_args.h"

template <class R> struct complex_of {
    R re, im;
};
template <class T> static T plain(T x, bool) { return x; }
template <class R> static complex_of<R> plain(complex_of<R> x, bool conjugates) {
    return {x.re, conjugates ? -x.im : x.im};
}
static void add(double &sum, double a, double b) { sum += a * b; }
template <class R>
static void add(complex_of<double> &sum, complex_of<R> a, complex_of<R> b) {
    sum.re += (double)a.re * b.re - (double)a.im * b.im;
    sum.im += (double)a.re * b.im + (double)a.im * b.re;
}
template <class R> static complex_of<R> rounded(complex_of<double> sum, complex_of<R>) {
    return {(R)sum.re, (R)sum.im};
}
template <class T> static T rounded(double sum, T) { return T((float)sum); }
static double rounded(double sum, double) { return sum; }

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
                        plain(args.transposes_x ? x[k * args.m + i] : x[i * args.k + k],
                              args.transposes_x && args.conjugates),
                        plain(args.transposes_y ? y[j * args.k + k] : y[k * args.n + j],
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
