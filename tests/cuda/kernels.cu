/* Kernels of the simulated device's own tests: right ones, and ones with a planted bug. */
#include "kernels/cuda/kernel_language.h"

struct map_args {
    const float *x;
    float *y;
    float factor;
    long n;
};

__device__ static long global_index() { return blockIdx.x * (long)blockDim.x + threadIdx.x; }

KERNEL(scale, map_args) {
    long i = global_index();
    if (i < args.n)
        args.y[i] = args.factor * args.x[i];
}

/* Planted: writes one element more than there are. */
KERNEL(scale_beyond, map_args) {
    long i = global_index();
    if (i <= args.n)
        args.y[i] = args.factor;
}

/* Planted: writes a page too far. */
KERNEL(scale_far, map_args) {
    long i = global_index();
    if (i < args.n)
        args.y[i + 4096] = args.factor;
}

/* The sum of each block, by shared memory. */
__device__ static void block_sum(const map_args &args, bool waits) {
    __shared__ float part[256];
    int t = threadIdx.x;
    long i = global_index();
    part[t] = i < args.n ? args.x[i] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        float other = t < step ? part[t + step] : 0.0f;
        if (waits)
            __syncthreads();
        if (t < step)
            part[t] += other;
        if (waits)
            __syncthreads();
    }
    if (t == 0)
        args.y[blockIdx.x] = part[0];
}

KERNEL(sum_blocks, map_args) { block_sum(args, true); }

/* Planted: no barrier between the steps. */
KERNEL(sum_without_barrier, map_args) { block_sum(args, false); }

KERNEL(sum_warps, map_args) {
    long i = global_index();
    float sum = i < args.n ? args.x[i] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(args.y, sum);
}

/* Neighbours pass values on through the warp's part of shared memory. */
__device__ static void rotate_warp(const map_args &args, bool waits) {
    __shared__ float values[256];
    int t = threadIdx.x, neighbour = (t & ~31) + (t + 1) % 32;
    long i = global_index();
    values[t] = args.x[i];
    if (waits)
        __syncwarp();
    args.y[i] = values[neighbour];
}

KERNEL(rotate, map_args) { rotate_warp(args, true); }

/* Planted: no __syncwarp. */
KERNEL(rotate_without_wait, map_args) { rotate_warp(args, false); }

KERNEL(count_even, map_args) {
    long i = global_index();
    bool is_even = i < args.n && (long)args.x[i] % 2 == 0;
    unsigned votes = __ballot_sync(0xffffffffu, is_even);
    if (threadIdx.x % 32 == 0)
        atomicAdd(reinterpret_cast<int *>(args.y), __popc(votes));
}

/* Planted: an update that is not atomic. */
KERNEL(sum_plain, map_args) {
    long i = global_index();
    if (i < args.n)
        args.y[0] += args.x[i];
}

KERNEL(reverse_block, map_args) {
    DYNAMIC_SHARED(float, values);
    int t = threadIdx.x, n = blockDim.x;
    values[t] = args.x[global_index()];
    __syncthreads();
    args.y[global_index()] = values[n - 1 - t];
}

/* Planted: half of the threads never come to the barrier. */
KERNEL(diverge, map_args) {
    __shared__ float value;
    if (threadIdx.x == 0)
        value = args.x[0];
    if (threadIdx.x % 2 == 0)
        __syncthreads();
    if (threadIdx.x == 0)
        args.y[0] = value;
}

/* The last block to come sums up what the others have written. */
KERNEL(sum_last_block, map_args) {
    __shared__ bool is_last;
    float *parts = args.y + 1024;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = args.x[blockIdx.x];
        __threadfence();
        unsigned count = atomicAdd(reinterpret_cast<unsigned *>(args.y + 1), 1u);
        is_last = count == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned b = 0; b < gridDim.x; b++)
            sum += parts[b];
        args.y[0] = sum;
    }
}

struct bytes_args {
    unsigned char *bytes;
    __half *halves;
    long n;
};

/* Neighbouring threads share words, and no element. */
KERNEL(increment_small, bytes_args) {
    long i = global_index();
    if (i < args.n) {
        args.bytes[i] = (unsigned char)(args.bytes[i] + 1);
        args.halves[i] = __float2half(__half2float(args.halves[i]) + 1.0f);
    }
}


/* Planted: uses memory of the host. */
KERNEL(write_host, map_args) { args.y[0] = args.factor; }

/* A function of the host as an operation: y = a b, both square. */
struct product_args {
    const float *a, *b;
    float *y;
    int n;
};

extern "C" void test_product(const void *opaque) {
    const product_args *args = static_cast<const product_args *>(opaque);
    for (int i = 0; i < args->n; i++)
        for (int j = 0; j < args->n; j++) {
            float sum = 0;
            for (int k = 0; k < args->n; k++)
                sum += args->a[i * args->n + k] * args->b[k * args->n + j];
            args->y[i * args->n + j] = sum;
        }
}
