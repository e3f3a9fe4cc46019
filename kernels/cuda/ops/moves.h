/* Where an element of a strided copy is. Device code only. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_MOVES_H
#define MILLRACE_KERNELS_CUDA_OPS_MOVES_H

#include "kernels/cuda/ops/device_types.h"
#include "kernels/cuda/ops/moves_args.h"

struct move_place {
    int64_t from, to;
};

/* Element e of a copy: where it is read and where it is written. `N` is as wide as the number of
 * elements needs. */
template <class N> __device__ static inline move_place move_find(const move_loops &loops, N e) {
    move_place place = {0, 0};
    for (int d = (int)loops.n_loops - 1; d > 0; d--) {
        N dim = (N)loops.dims[d], turn = e / dim, at = e - turn * dim;
        place.from += (int64_t)at * loops.from_strides[d];
        place.to += (int64_t)at * loops.to_strides[d];
        e = turn;
    }
    place.from += (int64_t)e * loops.from_strides[0];
    place.to += (int64_t)e * loops.to_strides[0];
    return place;
}

#endif
