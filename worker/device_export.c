/* Finds the device whose memory a buffer is in, and asks it for a dmabuf. */
#include "worker/device_export.h"

static struct device *owner_of(const struct rdma_exporter *exporter, const struct buffer *buffer) {
    const struct device_exporter *all = CONTAINER_OF(exporter, struct device_exporter, exporter);
    for (int i = 0; i < all->n_devices; i++)
        if (all->devices[i].allocator == buffer->allocator && all->devices[i].ops &&
            all->devices[i].ops->export)
            return &all->devices[i];
    return NULL;
}

static void widen(struct rdma_exporter *exporter, const struct buffer *buffer, const char **data,
                  size_t *size_bytes) {
    struct device *device = owner_of(exporter, buffer);
    if (device)
        device->ops->export->widen(device, data, size_bytes);
}

static struct status *open_dmabuf(struct rdma_exporter *exporter, const struct buffer *buffer,
                                  const char *data, size_t size_bytes, enum rdma_right right,
                                  struct rdma_dmabuf *ret) {
    struct device *device = owner_of(exporter, buffer);
    struct device_dmabuf dmabuf;
    if (!device)
        return status_unimplemented("%s lends its memory to nobody", buffer->allocator->name);
    TRY(device->ops->export->open(device, data, size_bytes, right == RDMA_WRITTEN_BY_PEER,
                                  &dmabuf));
    *ret = (struct rdma_dmabuf){.fd = dmabuf.fd, .start = dmabuf.start};
    return NULL;
}

static void flush_writes(struct rdma_exporter *exporter, const struct buffer *buffer) {
    struct device *device = owner_of(exporter, buffer);
    if (device)
        device->ops->export->flush_writes(device);
}

void device_exporter_init(struct device_exporter *all, struct device *devices, int n_devices) {
    *all = (struct device_exporter){
        .exporter = {.widen = widen, .open = open_dmabuf, .flush = flush_writes},
        .devices = devices,
        .n_devices = n_devices};
}

void device_exporter_fini(struct device_exporter *all) { rdma_exporter_fini(&all->exporter); }
