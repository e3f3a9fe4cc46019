/* Bytes of the host that come with the launch: to[i] = bytes[i]. A copy from the host would end a
 * segment (gpu_segments.h), and a graph's kernel can get new arguments. */
#include "kernels/cuda/kernel_language.h"
#include "kernels/cuda/stores_args.h"

/* One block. */
KERNEL(store_bytes, store_args) {
    unsigned char *to = static_cast<unsigned char *>(args.to);
    for (int i = threadIdx.x; i < args.size_bytes; i += blockDim.x)
        to[i] = args.bytes[i];
}
