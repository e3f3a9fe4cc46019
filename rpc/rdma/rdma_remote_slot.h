/* Where an RDMA write may go: what a receiver grants, and its peer is told. */
#ifndef MILLRACE_RPC_RDMA_RDMA_REMOTE_SLOT_H
#define MILLRACE_RPC_RDMA_RDMA_REMOTE_SLOT_H

#include <stdint.h>

struct rdma_remote_slot {
    uint32_t number; /* of the line's places; comes back as the write's immediate value */
    uint32_t key;
    uint64_t address;
};

#endif
