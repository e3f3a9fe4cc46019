/* What norm.cu and norm_packs.cu share: pivots, and how the threads of a block merge what they have
 * found for the same channels. Device code only. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_NORM_TREE_H
#define MILLRACE_KERNELS_CUDA_OPS_NORM_TREE_H

#include "kernels/cuda/ops/norm_args.h"

/* The pivot of a channel with the first value x: x, unless x - pivot could overflow. */
__device__ static inline float norm_pivot(float x) { return fabsf(x) < 1e37f ? x : 0; }

/* Merges `mine` of all threads whose numbers are equal modulo `width`, in an order that the width
 * decides. Every thread of the block calls it; the first `width` threads have the results in
 * `shared`, which has an element for each thread. */
template <class T> __device__ static inline void norm_tree(T *shared, int width, const T &mine) {
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = NORM_THREADS / 2; half >= width; half /= 2) {
        if ((int)threadIdx.x < half)
            shared[threadIdx.x].merge(shared[threadIdx.x + half]);
        __syncthreads();
    }
}

#endif
