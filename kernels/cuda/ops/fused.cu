/* The kernel of fused programs: an interpreter (fused_args.h). Its instructions are the elementwise
 * ops that the kernels of the single ops are made from, so each value has the bits of theirs. */
#include "kernels/cuda/ops/fused_args.h"
#include "kernels/cuda/ops/fused_ops.h"

/* A value of FUSED_ELEMENTS elements, of a type that the steps know. */
struct alignas(16) fused_slot {
    unsigned char bytes[8 * FUSED_ELEMENTS];
};

template <class T> struct fused_value { T at[FUSED_ELEMENTS]; };

template <class T> __device__ static inline fused_value<T> fused_get(const fused_slot &slot) {
    fused_value<T> value;
    memcpy((void *)&value, slot.bytes, sizeof(value));
    return value;
}
template <class T>
__device__ static inline void fused_set(fused_slot &slot, const fused_value<T> &value) {
    memcpy(slot.bytes, (const void *)&value, sizeof(value));
}

/* The offset of input k at element i of the outputs. */
__device__ static inline int64_t fused_offset(const fused_args &args, int k, int64_t i) {
    if (args.is_flat >> k & 1)
        return i;
    int64_t offset = 0;
    GPU_NO_UNROLL for (int d = args.rank - 1; d >= 0; d--) {
        int64_t outer = d > 0 ? gpu_divide(args.dims[d], i) : 0;
        offset += (i - outer * args.dims[d].value) * args.strides[k][d];
        i = outer;
    }
    return offset;
}

/* Element j of a thread is at first + j · blockDim.x, so that the threads of a warp read and write
 * neighbours. In place of one past the end, the first is computed once more and not stored: another
 * thread's element may have been written already, since outputs take the memory of inputs. */
template <class T>
__device__ __noinline__ static void fused_load(const fused_args &args, int k, int64_t first,
                                               fused_slot &slot) {
    fused_value<T> value;
    if ((args.is_inline | args.is_single) >> k & 1) {
        T one;
        if (args.is_inline >> k & 1)
            memcpy(&one, &args.in[k], sizeof(one));
        else
            one = *reinterpret_cast<const T *>(args.in[k]);
        for (int j = 0; j < FUSED_ELEMENTS; j++)
            value.at[j] = one;
    } else {
        const T *in = reinterpret_cast<const T *>(args.in[k]);
        for (int j = 0; j < FUSED_ELEMENTS; j++) {
            int64_t i = first + (int64_t)j * blockDim.x;
            value.at[j] = in[fused_offset(args, k, i < args.n ? i : first)];
        }
    }
    fused_set(slot, value);
}

template <class T>
__device__ __noinline__ static void fused_store(const fused_args &args, int k, int64_t first,
                                                const fused_slot &slot) {
    fused_value<T> value = fused_get<T>(slot);
    T *out = reinterpret_cast<T *>(args.out[k]);
    for (int j = 0; j < FUSED_ELEMENTS; j++) {
        int64_t i = first + (int64_t)j * blockDim.x;
        if (i < args.n)
            out[i] = value.at[j];
    }
}

/* Not inlined, so that an op takes no registers while others run. */
template <class Op>
__device__ __noinline__ static void fused_apply(const fused_step &step, fused_slot *slots) {
    typedef typename Op::first A;
    typedef typename Op::second B;
    typedef typename Op::third C;
    elementwise_args numbers; /* an op looks only at these two */
    numbers.alpha = step.alpha;
    numbers.cut_bits = step.cut_bits;
    fused_value<A> a = fused_get<A>(slots[step.a]);
    fused_value<B> b = {};
    fused_value<C> c = {};
    if (Op::n_operands > 1)
        b = fused_get<B>(slots[step.b]);
    if (Op::n_operands > 2)
        c = fused_get<C>(slots[step.c]);
    fused_value<typename Op::result> out;
    for (int j = 0; j < FUSED_ELEMENTS; j++)
        out.at[j] = Op::of(a.at[j], b.at[j], c.at[j], numbers);
    fused_set(slots[step.to], out);
}

__device__ static inline void fused_run_step(const fused_args &args, const fused_step &step,
                                             int64_t first, fused_slot *slots) {
    switch (step.kind) {
    case FUSED_LOAD_1:
        return fused_load<uint8_t>(args, step.a, first, slots[step.to]);
    case FUSED_LOAD_2:
        return fused_load<uint16_t>(args, step.a, first, slots[step.to]);
    case FUSED_LOAD_4:
        return fused_load<uint32_t>(args, step.a, first, slots[step.to]);
    case FUSED_LOAD_8:
        return fused_load<uint64_t>(args, step.a, first, slots[step.to]);
    case FUSED_STORE_1:
        return fused_store<uint8_t>(args, step.to, first, slots[step.a]);
    case FUSED_STORE_2:
        return fused_store<uint16_t>(args, step.to, first, slots[step.a]);
    case FUSED_STORE_4:
        return fused_store<uint32_t>(args, step.to, first, slots[step.a]);
    case FUSED_STORE_8:
        return fused_store<uint64_t>(args, step.to, first, slots[step.a]);
#define FUSED_INSTRUCTION(name) \
    case FUSED_##name:          \
        return fused_apply<name##_op>(step, slots);
#include "kernels/cuda/ops/fused_instructions.inc"
#undef FUSED_INSTRUCTION
    }
}

KERNEL(fused, fused_args) {
    fused_slot slots[FUSED_MAX_SLOTS];
    int64_t chunk = (int64_t)blockDim.x * FUSED_ELEMENTS;
    GPU_NO_UNROLL for (int64_t first = blockIdx.x * chunk + threadIdx.x; first < args.n;
                       first += gridDim.x * chunk)
        GPU_NO_UNROLL for (int k = 0; k < args.n_steps; k++)
            fused_run_step(args, args.steps[k], first, slots);
}
