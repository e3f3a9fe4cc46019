/* Registers memory with the RDMA device. */
#include "rpc/rdma/rdma_memory.h"

#include <errno.h>
#include <unistd.h>

#include "common/base/log.h"

struct rdma_memory rdma_memory_of(struct rdma_exporter *exporter, const struct buffer *buffer,
                                  const char *data, size_t size_bytes) {
    return (struct rdma_memory){.kind = buffer_is_of_device(buffer) ? RDMA_MEMORY_DEVICE
                                                                    : RDMA_MEMORY_HOST,
                                .data = data,
                                .size_bytes = size_bytes,
                                .buffer = buffer,
                                .exporter = exporter};
}

static int access_of(enum rdma_right right) {
    return right == RDMA_WRITTEN_BY_PEER ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
}

static struct status *register_host(const struct verbs *verbs, struct ibv_pd *pd,
                                    const struct rdma_memory *memory, enum rdma_right right,
                                    struct ibv_mr **ret) {
    struct ibv_mr *mr =
        verbs->reg_mr(pd, (void *)(uintptr_t)memory->data, memory->size_bytes, access_of(right));
    if (!mr)
        return status_exhausted(
            "registering %zu bytes for RDMA: %s%s", memory->size_bytes, strerror(errno),
            errno == ENOMEM ? " (is the limit of locked memory, ulimit -l, too low?)" : "");
    *ret = mr;
    return NULL;
}

/* ---- the memory of devices ---- */

/* What a kernel or a provider without dmabuf says. */
static bool is_unsupported(int error) {
    return error == EOPNOTSUPP || error == ENOTSUP || error == ENOSYS || error == EPROTONOSUPPORT;
}

static struct status *register_dmabuf(const struct verbs *verbs, struct ibv_pd *pd,
                                      const struct rdma_memory *memory, enum rdma_right right,
                                      const struct rdma_dmabuf *dmabuf, struct ibv_mr **ret) {
    struct ibv_mr *mr =
        verbs->reg_dmabuf_mr(pd, (uint64_t)(memory->data - dmabuf->start), memory->size_bytes,
                             (uintptr_t)memory->data, dmabuf->fd, access_of(right));
    if (!mr && is_unsupported(errno))
        return status_unimplemented("the RDMA device takes no dmabuf: %s", strerror(errno));
    if (!mr)
        return status_exhausted("registering %zu bytes of %s for RDMA: %s", memory->size_bytes,
                                memory->buffer->allocator->name, strerror(errno));
    *ret = mr;
    return NULL;
}

static struct status *try_device(const struct verbs *verbs, struct ibv_pd *pd,
                                 const struct rdma_memory *memory, enum rdma_right right,
                                 struct ibv_mr **ret) {
    struct rdma_exporter *exporter = memory->exporter;
    struct rdma_dmabuf dmabuf;
    if (!verbs->reg_dmabuf_mr)
        return status_unimplemented("libibverbs is older than 34, and has no dmabuf");
    TRY(exporter->open(exporter, memory->buffer, memory->data, memory->size_bytes, right, &dmabuf));
    struct status *st = register_dmabuf(verbs, pd, memory, right, &dmabuf, ret);
    close(dmabuf.fd);
    return st;
}

/* Keeps the first refusal, and logs it. */
static void note_refusal(struct rdma_exporter *exporter, enum rdma_right right, struct status *st) {
    struct status *none = NULL;
    if (status_code(st) != STATUS_UNIMPLEMENTED)
        return;
    struct status *kept = status_ref(st);
    if (atomic_compare_exchange_strong(&exporter->refusals[right], &none, kept))
        log_event(EVENT_RDMA_DEVICE, "RDMA does not %s the memory of devices: %s",
                  right == RDMA_READ_HERE ? "send" : "write", status_message(st));
    else
        status_unref(kept);
}

static struct status *register_device(const struct verbs *verbs, struct ibv_pd *pd,
                                      const struct rdma_memory *memory, enum rdma_right right,
                                      struct ibv_mr **ret) {
    struct rdma_exporter *exporter = memory->exporter;
    if (!exporter)
        return status_unimplemented("no memory of devices is exported here (dmabuf)");
    struct status *st = atomic_load_explicit(&exporter->refusals[right], memory_order_acquire);
    if (st)
        return status_ref(st);
    st = try_device(verbs, pd, memory, right, ret);
    if (st)
        note_refusal(exporter, right, st);
    return st;
}

void rdma_exporter_fini(struct rdma_exporter *exporter) {
    for (size_t i = 0; i < ARRAY_LEN(exporter->refusals); i++)
        status_unref(atomic_exchange(&exporter->refusals[i], NULL));
}

/* ---- both ---- */

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

void rdma_flush_writes(struct rdma_exporter *exporter, const struct buffer *buffer) {
    if (exporter && buffer_is_of_device(buffer))
        exporter->flush(exporter, buffer);
}
