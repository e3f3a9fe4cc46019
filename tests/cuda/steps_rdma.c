/* Modes of cuda_steps: an RDMA device, which is a fake one, reads and writes the memory of GPUs. */
#include "tests/cuda/steps.h"

#include <semaphore.h>
#include <stdio.h>

#include "tests/unit/rpc/fake_verbs.h"
#include "tests/unit/rpc/rdma_line.h"
#include "worker/device_export.h"

/* 40 MB, so a value spans two or three of the steps of 32 MiB in which memory is mapped. */
enum { N = 10000000 };

static sem_t has_ended;

/* ---- devices ---- */

static void on_waited(struct device_wait *wait) { sem_post(&has_ended); }
static void on_copied(struct device_copy *copy) { sem_post(&has_ended); }

static struct status *await_device(struct device *device) {
    struct device_wait wait = {.on_done = on_waited};
    if (!device->ops->wait_start(device, &wait))
        sem_wait(&has_ended);
    return wait.status;
}

static struct status *copy(struct device *src, struct device *dst, const struct tensor *from,
                           struct tensor *ret) {
    struct device *device = src ? src : dst;
    struct device_copy copy = {.src = src,
                               .dst = dst,
                               .allocator = dst ? dst->allocator : allocator_host(),
                               .ret = ret,
                               .on_done = on_copied};
    tensor_copy(&copy.from, from);
    if (!device->ops->copy_start(device, &copy))
        sem_wait(&has_ended);
    return copy.status;
}

static float element(int64_t i) { return (float)(i % 65521) * 0.25f; }

static void make_value(struct tensor *ret) {
    int64_t n = N;
    struct status *st = tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, ret);
    CHECK(!st);
    float *data = tensor_data(ret);
    for (int64_t i = 0; i < N; i++)
        data[i] = element(i);
}

static bool is_value(const struct tensor *value) {
    const float *data = tensor_cdata(value);
    for (int64_t i = 0; i < N; i++)
        if (data[i] != element(i))
            return false;
    return true;
}

/* ---- a value on one GPU, and memory for it on another ---- */

struct line_transfer {
    struct device *from, *to;
    struct device_exporter exporter;
    struct rdma_line line;
    struct tensor value, received;
};

static void transfer_init(struct line_transfer *transfer) {
    struct tensor host = TENSOR_INIT;
    *transfer = (struct line_transfer){.from = &devices[N_CPUS],
                                       .to = &devices[N_CPUS + 1],
                                       .value = TENSOR_INIT,
                                       .received = TENSOR_INIT};
    sem_init(&has_ended, 0, 0);
    fake_verbs_reset();
    driver.on_flush(fake_verbs_flush_writes);
    device_exporter_init(&transfer->exporter, devices, n_devices);
    rdma_line_open(&transfer->line, &fake_verbs_table, &transfer->exporter.exporter);
    make_value(&host);
    struct status *st = copy(NULL, transfer->from, &host, &transfer->value);
    CHECK(!st);
    tensor_clear(&host);
    int64_t n = N;
    st = tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &host);
    CHECK(!st);
    st = copy(NULL, transfer->to, &host, &transfer->received);
    CHECK(!st);
    tensor_clear(&host);
    /* The value has been made, and nothing that was enqueued uses the other memory. */
    st = await_device(transfer->from);
    CHECK(!st);
    st = await_device(transfer->to);
    CHECK(!st);
}

static struct status *transfer_run(struct line_transfer *transfer) {
    return rdma_line_send(&transfer->line, transfer->value.buffer, transfer->value.data,
                          transfer->received.buffer, tensor_size_bytes(&transfer->value));
}

static void transfer_fini(struct line_transfer *transfer) {
    rdma_line_close(&transfer->line);
    tensor_clear(&transfer->value);
    tensor_clear(&transfer->received);
    device_exporter_fini(&transfer->exporter);
    driver.on_flush(NULL);
    sem_destroy(&has_ended);
}

static bool is_told(const char *what, struct status *st_take, enum status_code code,
                    const char *expected) {
    bool is_well =
        st_take && status_code(st_take) == code && strstr(status_message(st_take), expected);
    printf("%s: %s\n", what, st_take ? status_message(st_take) : "ok");
    status_unref(st_take);
    return is_well;
}

bool run_rdma(void) {
    struct line_transfer transfer;
    struct tensor host = TENSOR_INIT;
    transfer_init(&transfer);
    struct status *st = transfer_run(&transfer);
    if (!st)
        st = copy(transfer.to, NULL, &transfer.received, &host);
    bool is_well = !st && is_value(&host);
    printf("transfer: %s\n", st ? status_message(st) : is_well ? "ok" : "other values");
    status_unref(st);
    /* Once more, from the region that is kept. */
    uint64_t n_registered = fake_verbs.n_registered;
    st = transfer_run(&transfer);
    is_well &= !st && fake_verbs.n_registered == n_registered + 1 && fake_verbs.n_regions == 1;
    is_well &= driver.count("cuFlushGPUDirectRDMAWrites") == 2;
    is_well &= driver.count("cuMemGetHandleForAddressRange") == 3;
    printf("again: %s, %d regions\n", st ? status_message(st) : "ok", (int)fake_verbs.n_regions);
    status_unref(st);
    tensor_clear(&host);
    transfer_fini(&transfer);
    return is_well && fake_verbs.n_regions == 0;
}

static bool fails(struct line_transfer *transfer, const char *call, CUresult error,
                  enum status_code code, const char *expected) {
    CHECK(driver.fail(call, 1, error) == 0);
    return is_told(call, transfer_run(transfer), code, expected);
}

/* A driver that cannot export is asked once. One that cannot flush leaves bytes of which nobody
 * knows whether they have arrived, so the device is given up. */
bool run_rdma_failures(void) {
    static const char *const export_call = "cuMemGetHandleForAddressRange";
    struct line_transfer transfer;
    transfer_init(&transfer);
    bool is_well = fails(&transfer, export_call, CUDA_ERROR_INVALID_VALUE, STATUS_INTERNAL,
                         "cuMemGetHandleForAddressRange failed");
    is_well &= fails(&transfer, export_call, CUDA_ERROR_NOT_SUPPORTED, STATUS_UNIMPLEMENTED,
                     "GPU 1 (0000:02:00.0) cannot be used by RDMA");
    unsigned long n = driver.count(export_call);
    is_well &= is_told("asked again", transfer_run(&transfer), STATUS_UNIMPLEMENTED,
                       "cannot be used by RDMA");
    is_well &= driver.count(export_call) == n;
    transfer_fini(&transfer);

    transfer_init(&transfer);
    CHECK(driver.fail("cuFlushGPUDirectRDMAWrites", 1, CUDA_ERROR_UNKNOWN) == 0);
    struct status *st = transfer_run(&transfer);
    is_well &= !st;
    status_unref(st);
    is_well &= is_told("flush", await_device(transfer.to), STATUS_UNAVAILABLE,
                       "cuFlushGPUDirectRDMAWrites failed");
    transfer_fini(&transfer);
    return is_well;
}
