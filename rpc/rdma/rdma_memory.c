/* Registers memory with the RDMA device. */
#include "rpc/rdma/rdma_memory.h"

#include <errno.h>

static struct status *register_host(const struct verbs *verbs, struct ibv_pd *pd,
                                    const struct rdma_memory *memory, enum rdma_right right,
                                    struct ibv_mr **ret) {
    int access =
        right == RDMA_WRITTEN_BY_PEER ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
    struct ibv_mr *mr =
        verbs->reg_mr(pd, (void *)(uintptr_t)memory->data, memory->size_bytes, access);
    if (!mr)
        return status_exhausted(
            "registering %zu bytes for RDMA: %s%s", memory->size_bytes, strerror(errno),
            errno == ENOMEM ? " (is the limit of locked memory, ulimit -l, too low?)" : "");
    *ret = mr;
    return NULL;
}

static struct status *register_device(const struct verbs *verbs, struct ibv_pd *pd,
                                      const struct rdma_memory *memory, enum rdma_right right,
                                      struct ibv_mr **ret) {
    return status_unimplemented("registering a device's own memory for RDMA (dmabuf)");
}

struct status *rdma_register(const struct verbs *verbs, struct ibv_pd *pd,
                             const struct rdma_memory *memory, enum rdma_right right,
                             struct ibv_mr **ret) {
    static struct status *(*const by_kind[])(const struct verbs *verbs, struct ibv_pd *pd,
                                             const struct rdma_memory *memory,
                                             enum rdma_right right, struct ibv_mr **ret) = {
        [RDMA_MEMORY_HOST] = register_host,
        [RDMA_MEMORY_DEVICE] = register_device,
    };
    return by_kind[memory->kind](verbs, pd, memory, right, ret);
}

/* dereg_mr fails only for an unknown region, or for one that is bound to a memory window. Neither
 * is possible here. */
void rdma_unregister(const struct verbs *verbs, struct ibv_mr *mr) {
    if (mr)
        CHECK(verbs->dereg_mr(mr) == 0);
}
