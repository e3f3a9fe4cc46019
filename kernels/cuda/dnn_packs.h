/* Variant packs of convolutions: what cuDNN is handed with a plan, the addresses of the operands
 * and of the workspace. For dnn.c.
 *
 * A pack cannot be changed once it is finalised (cuDNN refuses that with BAD_PARAM), and making one
 * takes six calls. A step uses mostly the addresses of the step before it, so packs are kept by
 * their addresses. A pack holds addresses only: it outlives the memory and the plan that it was
 * used with, and serves whatever is at these addresses later. */
#ifndef MILLRACE_KERNELS_CUDA_DNN_PACKS_H
#define MILLRACE_KERNELS_CUDA_DNN_PACKS_H

#include "common/base/status.h"
#include "kernels/cuda/dnn_api.h"

enum { DNN_OPERANDS = 3, DNN_PACK_SETS = 128, DNN_PACK_WAYS = 4 };

struct dnn_addresses {
    const void *operands[DNN_OPERANDS]; /* in the order of their ids */
    const void *workspace;              /* NULL: none */
};

/* Up to DNN_PACK_WAYS packs for each hash of addresses, of which the one that was used least
 * recently makes room. All zero: empty. The device's lock guards it. */
struct dnn_packs {
    struct dnn_pack {
        struct dnn_addresses addresses;
        cudnnBackendDescriptor_t descriptor; /* NULL: none */
        uint64_t last_use;
    } sets[DNN_PACK_SETS][DNN_PACK_WAYS];
    uint64_t n_uses;
};

/* Returns the pack of these addresses, which is valid until the next call. Errors: the library's;
 * nothing is kept then. */
struct status *dnn_pack_get(struct dnn_packs *packs, const struct dnn_addresses *addresses,
                            cudnnBackendDescriptor_t *ret) MUST_USE;
void dnn_packs_clear(struct dnn_packs *packs);

#endif
