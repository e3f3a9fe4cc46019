/* Lends a GPU's memory to RDMA devices: device_ops.export of a GPU.
 *
 * The memory is one range of addresses over steps of 32 MiB (gpu_memory.h). A value may span steps,
 * so a dmabuf is made of all the steps that the value touches. The steps have the same properties,
 * which is what the driver asks for.
 *
 * A write of another device reaches the GPU's memory at some time after the writer was told that it
 * has ended. Unless the driver says that the GPU itself never sees the difference, the write is
 * flushed before anything is enqueued that reads it. */
#include "kernels/cuda/gpu_device.h"

#include "kernels/cuda/driver.h"

static struct status *read_number(struct gpu_device *gpu, CUdevice_attribute attribute, int *ret) {
    CUresult error = gpu->api->cuDeviceGetAttribute(ret, attribute, gpu->cuda_device);
    if (error != CUDA_ERROR_INVALID_VALUE) /* a driver that does not know the attribute */
        return gpu_check(gpu, error, "cuDeviceGetAttribute");
    *ret = 0;
    return NULL;
}

struct status *gpu_export_init(struct gpu_device *gpu) {
    int ordering, options;
    TRY(read_number(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, &ordering));
    TRY(read_number(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &options));
    gpu->needs_flush = ordering < CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
    gpu->is_writable_by_rdma =
        !gpu->needs_flush || (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
    return NULL;
}

static void export_widen(struct device *device, const char **data, size_t *size_bytes) {
    struct gpu_device *gpu = device->state;
    CUdeviceptr start = (CUdeviceptr)*data;
    gpu_memory_widen(&gpu->memory, &start, size_bytes);
    *data = (const char *)(uintptr_t)start; /* NOLINT(performance-no-int-to-ptr) */
}

static struct status *unsupported(const struct gpu_device *gpu, const char *why) {
    return status_unimplemented("GPU %d (%s) cannot be used by RDMA: %s", gpu->ordinal, gpu->bus_id,
                                why);
}

static struct status *export_open(struct device *device, const char *data, size_t size_bytes,
                                  bool is_written, struct device_dmabuf *ret) {
    struct gpu_device *gpu = device->state;
    int fd;
    if (!gpu->memory.is_exportable)
        return unsupported(gpu, "its driver has no dmabuf for memory that is mapped "
                                "(NVIDIA's open kernel modules do)");
    if (is_written && !gpu->is_writable_by_rdma)
        return unsupported(gpu, "its driver cannot flush what other devices write");
    TRY(gpu_enter(gpu));
    export_widen(device, &data, &size_bytes);
    CUresult error = gpu->api->cuMemGetHandleForAddressRange(
        &fd, (CUdeviceptr)data, size_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (error == CUDA_ERROR_NOT_SUPPORTED)
        return unsupported(gpu, "cuMemGetHandleForAddressRange is not supported");
    TRY(gpu_check(gpu, error, "cuMemGetHandleForAddressRange"));
    *ret = (struct device_dmabuf){.fd = fd, .start = data};
    return NULL;
}

/* After a failure nobody knows whether the bytes have arrived. */
static void export_flush_writes(struct device *device) {
    struct gpu_device *gpu = device->state;
    if (!gpu->needs_flush)
        return;
    struct status *st = gpu_enter(gpu);
    if (!st && (st = gpu_call(gpu, cuFlushGPUDirectRDMAWrites,
                              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                              CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)))
        st = gpu_fail_take(gpu, st);
    status_unref(st); /* the device's failure tells it */
}

const struct device_export gpu_export = {
    .widen = export_widen, .open = export_open, .flush_writes = export_flush_writes};
