/* Keeps memory registered that values are sent from, because a variable is sent many times from the
 * same address.
 *
 * A region is a registered range of addresses. It serves every send from inside the range. Unused
 * regions are unregistered, the least recently used first, while all regions together exceed a
 * limit. They are also unregistered when the allocator returns their memory to the system, because
 * the device would otherwise continue to read the old pages. The allocator announces this for
 * recycled blocks only (buffer_is_recycled). Any other memory is registered for one use.
 *
 * A device's memory is registered in the whole pieces that its allocator maps and unmaps, however
 * few of their bytes are sent. Most values of a GPU thus share a few regions. A value that spans
 * pieces gets a region of all of them.
 *
 * Any thread, except that calls marked "blocks" must not be made on a loop thread. */
#ifndef MILLRACE_RPC_RDMA_RDMA_REGIONS_H
#define MILLRACE_RPC_RDMA_RDMA_REGIONS_H

#include "common/base/str.h"
#include "common/tensor/buffer.h"
#include "rpc/rdma/rdma_memory.h"

struct rdma_regions;
struct rdma_region;

enum { RDMA_REGIONS_MAX = 256 };           /* how many regions are kept */
#define RDMA_REGIONS_MAX_BYTES (4ll << 30) /* the usual max_bytes */

/* Keeps at most `max_bytes` and RDMA_REGIONS_MAX regions, and in addition those that are in use.
 * `verbs` and `pd` are borrowed. Takes the release hook of the host allocator until
 * rdma_regions_free, so a process can have only one at a time. */
struct rdma_regions *rdma_regions_new(const struct verbs *verbs, struct ibv_pd *pd,
                                      int64_t max_bytes);
/* Whoever has devices with a memory of their own calls this before the first use. `exporter` is
 * borrowed. */
void rdma_regions_set_exporter(struct rdma_regions *regions, struct rdma_exporter *exporter);
/* Unregisters all regions; none may be in use. Blocks. Accepts NULL. */
void rdma_regions_free(struct rdma_regions *regions);

/* Returns a kept region that contains these bytes, or NULL. The caller ends its use with
 * rdma_region_release. Does not block. */
struct rdma_region *rdma_regions_find(struct rdma_regions *regions, const char *data,
                                      size_t size_bytes);
/* Registers the bytes, which are part of `buffer`. The caller must hold the buffer until it calls
 * rdma_region_release. Blocks. Errors: those of rdma_register. */
struct status *rdma_regions_add(struct rdma_regions *regions, const struct buffer *buffer,
                                const char *data, size_t size_bytes,
                                struct rdma_region **ret) MUST_USE;
/* Ends a use. Unregisters a region that is not kept, and may then block for a moment; the loop
 * thread calls it all the same. Accepts NULL. */
void rdma_region_release(struct rdma_region *region);
uint32_t rdma_region_key(const struct rdma_region *region); /* for a send from inside the region */

/* Appends a JSON object. */
void rdma_regions_describe(struct rdma_regions *regions, struct str *out);

#endif
