/* A remote slot: memory of the receiver that its peer may write once, by RDMA. */
#ifndef MILLRACE_RPC_RDMA_RDMA_REMOTE_SLOT_H
#define MILLRACE_RPC_RDMA_RDMA_REMOTE_SLOT_H

#include <stdint.h>

struct rdma_remote_slot {
    uint32_t number;  /* arrives with the write, as its immediate value */
    uint32_t key;     /* permits the write; void once the slot is withdrawn */
    uint64_t address; /* where it begins, in the receiver's address space */
};

#endif
