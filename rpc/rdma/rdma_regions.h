/* Registered memory that is sent from: kept, because a variable is sent again and again from the
 * same place.
 *
 * A region covers a range of addresses and is found by any range inside it. Those that nobody
 * uses go, the least recently used first, when their sum exceeds the limit, and at once when the
 * allocator is about to give their memory back to the system: the device would go on reading the
 * old pages. Only what the allocator says that about (buffer_is_recycled) is kept; the rest is
 * registered for one use.
 *
 * Any thread. */
#ifndef MILLRACE_RPC_RDMA_RDMA_REGIONS_H
#define MILLRACE_RPC_RDMA_RDMA_REGIONS_H

#include "common/base/str.h"
#include "common/tensor/buffer.h"
#include "rpc/rdma/rdma_memory.h"

struct rdma_regions;
struct rdma_region;

enum { RDMA_REGIONS_MAX = 256 }; /* kept at a time */
#define RDMA_REGIONS_MAX_BYTES (4ll << 30)

/* `pd` is borrowed. From now on until rdma_regions_free it is told what the host allocator gives
 * back: one at a time in a process. */
struct rdma_regions *rdma_regions_new(const struct verbs *verbs, struct ibv_pd *pd,
                                      int64_t max_bytes);
void rdma_regions_free(struct rdma_regions *regions); /* none is in use any more; accepts NULL */

/* A kept region around these bytes, or NULL. One use for the caller. */
struct rdma_region *rdma_regions_find(struct rdma_regions *regions, const char *data,
                                      size_t size_bytes);
/* Registers the bytes, which lie in `buffer`; the caller holds the buffer as long as the region.
 * Blocks. One use for the caller. */
struct status *rdma_regions_add(struct rdma_regions *regions, const struct buffer *buffer,
                                const char *data, size_t size_bytes,
                                struct rdma_region **ret) MUST_USE;
/* Ends a use; a region that is not kept is withdrawn, which blocks for a moment. Accepts NULL. */
void rdma_region_release(struct rdma_region *region);
uint32_t rdma_region_key(const struct rdma_region *region);

void rdma_regions_describe(struct rdma_regions *regions, struct str *out); /* a JSON object */

#endif
