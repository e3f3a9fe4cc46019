/* Registering memory with an RDMA device: what it may read or write, and by which key.
 *
 * Rules, which keep a peer from what is not its own:
 *   - what is sent is registered without any right for others: its key only works in this process'
 *   own queue pairs;
 *   - what is received is registered for one transfer, in a protection domain that only that peer's
 *   queue pair belongs to, and withdrawn
 *     before anybody here looks at it. After rdma_unregister has returned no write of anybody
 *     lands there any more.
 *
 * Registering pins pages and may take milliseconds: not on a loop thread. Any other thread. */
#ifndef MILLRACE_RPC_RDMA_RDMA_MEMORY_H
#define MILLRACE_RPC_RDMA_RDMA_MEMORY_H

#include "rpc/rdma/verbs.h"

/* Where the bytes lie. A device with memory of its own adds its row here: exported as a dmabuf,
 * or known by the driver's address. */
enum rdma_memory_kind { RDMA_MEMORY_HOST, RDMA_MEMORY_DEVICE };

enum rdma_right { RDMA_READ_HERE, RDMA_WRITTEN_BY_PEER };

struct rdma_memory {
    enum rdma_memory_kind kind;
    const char *data;
    size_t size_bytes;
};

/* Errors: RESOURCE_EXHAUSTED with the system's words, UNIMPLEMENTED for memory of a device. */
struct status *rdma_register(const struct verbs *verbs, struct ibv_pd *pd,
                             const struct rdma_memory *memory, enum rdma_right right,
                             struct ibv_mr **ret) MUST_USE;
void rdma_unregister(const struct verbs *verbs, struct ibv_mr *mr); /* accepts NULL */

#endif
