/* CUDA's device language for the host's C++ compiler: the same .cu becomes a shared object whose
 * kernels the device process runs (-include this file, -x c++). A thread of a kernel is a fiber.
 * What the language has and this file lacks is added here when a kernel needs it. */
#ifndef MILLRACE_TESTS_CUDA_SIM_DEVICE_RUNTIME_H
#define MILLRACE_TESTS_CUDA_SIM_DEVICE_RUNTIME_H

#define MILLRACE_SIMULATED_DEVICE 1

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Blocks run one after another on one thread of the process, so a thread's static memory is a
 * block's. The device process fills it with NaN before each block. */
#define __shared__ static thread_local

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

/* ---- what the device process provides (grid.c) ---- */

extern "C" {
struct sim_thread_view {
    uint3 index; /* threadIdx */
};
extern struct sim_thread_view *sim_thread;
extern uint3 sim_block, sim_block_size, sim_grid_size;
void sim_barrier(const char *file, int line);
void sim_warp_barrier(unsigned mask, const char *file, int line);
/* Each lane of mask gives value and gets that of lane source. */
unsigned long sim_shuffle(unsigned mask, unsigned long value, int source, const char *file,
                          int line);
/* A bit for each lane of mask whose value is value; see sim_ballot for predicates. */
unsigned sim_match(unsigned mask, unsigned long value, const char *file, int line);
unsigned sim_ballot(unsigned mask, int predicate, const char *file, int line);
unsigned sim_lane(void);
unsigned sim_active_mask(void);
void *sim_dynamic_shared(void);
void sim_assert_failed(const char *what, const char *file, int line);

/* How the device process finds and calls a kernel. */
struct sim_kernel {
    unsigned size, alignment; /* of the arguments */
    void (*call)(const void *args);
};
}

#define threadIdx (sim_thread->index)
#define blockIdx sim_block
#define blockDim sim_block_size
#define gridDim sim_grid_size
static const int warpSize = 32;

#define KERNEL(name, type)                                                                    \
    extern "C" void name(type args);                                                          \
    static void sim_call_##name(const void *args) { name(*static_cast<const type *>(args)); } \
    extern "C" __attribute__((used, visibility("default")))                                   \
    const sim_kernel sim_kernel_##name = {sizeof(type), alignof(type), sim_call_##name};      \
    static_assert(std::is_trivially_copyable<type>::value, "a kernel's argument is copied");  \
    extern "C" void name(type args)

#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(sim_dynamic_shared())

#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : sim_assert_failed(#condition, __FILE__, __LINE__))

/* ---- barriers and warps ---- */

#define __syncthreads() sim_barrier(__FILE__, __LINE__)
#define SIM_FULL_WARP 0xffffffffu
#define SIM_SELECT(_1, name, ...) name
#define __syncwarp(...) sim_warp_barrier(SIM_MASK(__VA_ARGS__), __FILE__, __LINE__)
#define SIM_MASK(...) sim_mask(__VA_ARGS__)
static inline unsigned sim_mask(unsigned mask = SIM_FULL_WARP) { return mask; }
#define __activemask() sim_active_mask()
#define __ballot_sync(mask, predicate) sim_ballot(mask, (predicate) != 0, __FILE__, __LINE__)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == (unsigned)(mask))
#define __match_any_sync(mask, value) sim_match(mask, sim_bits(value), __FILE__, __LINE__)
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() {}

template <class T> static inline unsigned long sim_bits(T value) {
    static_assert(sizeof(T) <= 8, "a lane passes on up to eight bytes");
    unsigned long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
static inline T sim_shuffled(unsigned mask, T value, int source, const char *file, int line) {
    unsigned long bits = sim_shuffle(mask, sim_bits(value), source, file, line);
    T result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
/* The source lane of each kind of shuffle, inside the lane's group of width lanes. */
static inline int sim_source_of(int lane, int width) {
    return (int)(sim_lane() & ~(unsigned)(width - 1)) + (lane & (width - 1));
}
static inline int sim_source_up(unsigned delta, int width) {
    int lane = (int)sim_lane(), first = lane & ~(width - 1);
    return lane - (int)delta < first ? lane : lane - (int)delta;
}
static inline int sim_source_down(unsigned delta, int width) {
    int lane = (int)sim_lane(), end = (lane & ~(width - 1)) + width;
    return lane + (int)delta >= end ? lane : lane + (int)delta;
}
static inline int sim_source_xor(int bits, int width) {
    int lane = (int)sim_lane(), source = lane ^ bits;
    return source >= (lane & ~(width - 1)) + width ? lane : source;
}
#define SIM_WIDTH(...) sim_width(__VA_ARGS__)
static inline int sim_width(int width = 32) { return width; }
#define __shfl_sync(mask, value, lane, ...) \
    sim_shuffled(mask, value, sim_source_of(lane, SIM_WIDTH(__VA_ARGS__)), __FILE__, __LINE__)
#define __shfl_up_sync(mask, value, delta, ...) \
    sim_shuffled(mask, value, sim_source_up(delta, SIM_WIDTH(__VA_ARGS__)), __FILE__, __LINE__)
#define __shfl_down_sync(mask, value, delta, ...) \
    sim_shuffled(mask, value, sim_source_down(delta, SIM_WIDTH(__VA_ARGS__)), __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, bits, ...) \
    sim_shuffled(mask, value, sim_source_xor(bits, SIM_WIDTH(__VA_ARGS__)), __FILE__, __LINE__)

#include "tests/cuda/sim/device_runtime_numbers.h"

#endif
