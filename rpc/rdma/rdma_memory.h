/* Registers memory with an RDMA device: which addresses the device may read or write, and by which
 * key.
 *
 * Two rules limit what a peer can reach:
 *   - Memory that is sent is registered without rights for other processes. Its key works in queue
 *     pairs of this process only.
 *   - Memory that is received is registered for one transfer, in a protection domain that has only
 *     this peer's queue pair. It is unregistered before this process reads it. After
 *     rdma_unregister has returned, the device writes nothing more into it.
 *
 * Registering pins pages and may take milliseconds, so a loop thread must not do it. Any other
 * thread may. */
#ifndef MILLRACE_RPC_RDMA_RDMA_MEMORY_H
#define MILLRACE_RPC_RDMA_RDMA_MEMORY_H

#include "rpc/rdma/verbs.h"

/* Where the bytes are: in the host's memory, or in the memory of a device, which the driver
 * exports as a dmabuf. */
enum rdma_memory_kind { RDMA_MEMORY_HOST, RDMA_MEMORY_DEVICE };

/* READ_HERE: this process' queue pairs may send it. WRITTEN_BY_PEER: the peer may write it. */
enum rdma_right { RDMA_READ_HERE, RDMA_WRITTEN_BY_PEER };

/* The bytes are borrowed until they are unregistered. */
struct rdma_memory {
    enum rdma_memory_kind kind;
    const char *data;
    size_t size_bytes;
};

/* Registers `memory` in the protection domain `pd`, for the one right. Blocks. The caller ends the
 * registration with rdma_unregister. Errors: RESOURCE_EXHAUSTED with the system's reason,
 * UNIMPLEMENTED for the memory of a device. */
struct status *rdma_register(const struct verbs *verbs, struct ibv_pd *pd,
                             const struct rdma_memory *memory, enum rdma_right right,
                             struct ibv_mr **ret) MUST_USE;
/* Ends a registration. Blocks. Accepts NULL. */
void rdma_unregister(const struct verbs *verbs, struct ibv_mr *mr);

#endif
