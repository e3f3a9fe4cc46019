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
 * The memory of another device (a GPU) is registered by a dmabuf, which its driver makes. This room
 * knows no such drivers: whoever has the devices gives the RDMA device a struct rdma_exporter.
 *
 *   rdma_register ──► exporter.open: dmabuf ──► reg_dmabuf_mr ──► the descriptor is closed; the
 *                                                                 registration keeps the memory
 *   the peer has written ──► rdma_unregister ──► exporter.flush ──► the device finds the bytes
 *
 * Registering pins pages and may take milliseconds, so a loop thread must not do it. Any other
 * thread may. */
#ifndef MILLRACE_RPC_RDMA_RDMA_MEMORY_H
#define MILLRACE_RPC_RDMA_RDMA_MEMORY_H

#include "common/tensor/buffer.h"
#include "rpc/rdma/verbs.h"

/* Where the bytes are: in the host's memory, or in the memory of a device, which the driver
 * exports as a dmabuf. */
enum rdma_memory_kind { RDMA_MEMORY_HOST, RDMA_MEMORY_DEVICE };

/* READ_HERE: this process' queue pairs may send it. WRITTEN_BY_PEER: the peer may write it. */
enum rdma_right { RDMA_READ_HERE, RDMA_WRITTEN_BY_PEER };

/* A dmabuf. Its first byte is the byte at `start` of the device's memory. */
struct rdma_dmabuf {
    int fd;
    const char *start;
};

/* Exports the memory of devices. The functions may be called on any thread that may block. */
struct rdma_exporter {
    /* Grows a range inside of `buffer` to the whole pieces in which the device's memory is
     * allocated and released, so that one registration serves every value in them. Their release
     * is announced (common/tensor/release.h). */
    void (*widen)(struct rdma_exporter *exporter, const struct buffer *buffer, const char **data,
                  size_t *size_bytes);
    /* Makes a dmabuf that contains the bytes. The caller closes its descriptor. Errors:
     * UNIMPLEMENTED for memory that can never be exported with that right; the driver's. */
    struct status *(*open)(struct rdma_exporter *exporter, const struct buffer *buffer,
                           const char *data, size_t size_bytes, enum rdma_right right,
                           struct rdma_dmabuf *ret)MUST_USE;
    /* Makes what an RDMA device has written visible to the work that the device is told to do from
     * now on. If that fails, the device is marked as failed. */
    void (*flush)(struct rdma_exporter *exporter, const struct buffer *buffer);
    /* Why no memory of devices is registered with a right any more, by enum rdma_right: NULL, or
     * what the first refusal said. */
    _Atomic(struct status *) refusals[2];
};
/* Frees what this room keeps in it. */
void rdma_exporter_fini(struct rdma_exporter *exporter);

/* The bytes are borrowed until they are unregistered. Before a device's bytes are registered, the
 * caller has waited until the device has done what it was told to do with them: for what is sent
 * the work that makes the value, for what is received the work that used the memory before. */
struct rdma_memory {
    enum rdma_memory_kind kind;
    const char *data;
    size_t size_bytes;
    /* of a device's memory */
    const struct buffer *buffer;
    struct rdma_exporter *exporter; /* NULL: nothing is exported */
};
/* Describes bytes inside of `buffer`. */
struct rdma_memory rdma_memory_of(struct rdma_exporter *exporter, const struct buffer *buffer,
                                  const char *data, size_t size_bytes);
static inline bool buffer_is_of_device(const struct buffer *buffer) {
    return buffer && (buffer->flags & BUFFER_IS_DEVICE);
}

/* Registers `memory` in the protection domain `pd`, for the one right. Blocks. The caller ends the
 * registration with rdma_unregister. Errors: RESOURCE_EXHAUSTED with the system's reason; for a
 * device's memory UNIMPLEMENTED if its driver, the RDMA device or libibverbs has no dmabuf. The
 * first such refusal is logged, and later ones do not ask again. */
struct status *rdma_register(const struct verbs *verbs, struct ibv_pd *pd,
                             const struct rdma_memory *memory, enum rdma_right right,
                             struct ibv_mr **ret) MUST_USE;
/* Ends a registration. Blocks. Accepts NULL. */
void rdma_unregister(const struct verbs *verbs, struct ibv_mr *mr);
/* The peer has written into the memory, which is unregistered: makes the bytes visible to the
 * device whose memory it is. Does nothing for the host's. Blocks. */
void rdma_flush_writes(struct rdma_exporter *exporter, const struct buffer *buffer);

#endif
