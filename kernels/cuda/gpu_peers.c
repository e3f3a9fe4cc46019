/* Connects the GPUs of a task, and copies between those that cannot be (gpu_peers.h). */
#include "kernels/cuda/gpu_peers.h"

#include "common/base/log.h"

/* ---- which devices reach each other ---- */

static struct status *connect_one(struct gpu_device *to, struct gpu_device *from, int *ret_can) {
    int can = 0;
    *ret_can = 0;
    TRY(gpu_call(to, cuDeviceCanAccessPeer, &can, to->cuda_device, from->cuda_device));
    if (!can)
        return NULL;
    TRY(gpu_set_current(to));
    CUresult error = to->api->cuCtxEnablePeerAccess(from->context, 0);
    *ret_can = error == CUDA_SUCCESS || error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (*ret_can)
        return NULL;
    return gpu_check(to, error, "cuCtxEnablePeerAccess");
}

void gpu_peers_connect(struct gpu_device *const *gpus, int n) {
    for (int t = 0; t < n; t++)
        for (int f = 0; f < n; f++) {
            int can;
            if (t == f)
                continue;
            struct status *why = connect_one(gpus[t], gpus[f], &can);
            if (can) {
                gpus[t]->reachable |= UINT32_C(1) << gpus[f]->ordinal;
                gpu_memory_let_use(&gpus[f]->memory, gpus[t]->cuda_device);
            } else {
                log_event(why ? EVENT_GPU_TROUBLE : EVENT_GPU,
                          "GPU %d cannot use the memory of GPU %d, so copies go "
                          "through the host%s%s",
                          gpus[t]->ordinal, gpus[f]->ordinal, why ? ": " : "",
                          why ? status_message(why) : "");
            }
            status_unref(why);
        }
}

/* ---- bridges ---- */

struct status *gpu_peers_bridge(struct gpu_device *to, struct gpu_device *from,
                                struct gpu_bridge **ret) {
    struct gpu_bridge *bridge = &to->bridges[from->ordinal];
    TRY(gpu_enter(to));
    if (!bridge->stream)
        TRY(gpu_call(to, cuStreamCreateWithPriority, &bridge->stream, CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < 2; i++)
        if (!bridge->piece_done[i])
            TRY(gpu_call(to, cuEventCreate, &bridge->piece_done[i], CU_EVENT_DISABLE_TIMING));
    *ret = bridge;
    return NULL;
}

void gpu_peers_close(struct gpu_device *gpu) {
    for (size_t f = 0; f < ARRAY_LEN(gpu->bridges); f++) {
        struct gpu_bridge *bridge = &gpu->bridges[f];
        for (int i = 0; i < 2; i++)
            if (bridge->piece_done[i])
                gpu_give_back(gpu, cuEventDestroy, bridge->piece_done[i]);
        if (bridge->stream)
            gpu_give_back(gpu, cuStreamDestroy, bridge->stream);
    }
}

/* ---- copies through the host ---- */

/* From the source into pinned memory, once the destination has read what was there. */
static struct status *copy_out_piece(const struct gpu_peer_copy *copy, size_t offset, size_t size,
                                     int i) {
    struct gpu_copier *copier = copy->copier;
    struct gpu_device *from = copier->gpu;
    TRY(gpu_enter(from));
    if (offset >= 2 * copy->piece_bytes)
        TRY(gpu_call(from, cuStreamWaitEvent, copier->stream, copy->bridge->piece_done[i], 0));
    TRY(gpu_call(from, cuMemcpyDtoHAsync, copier->pieces.memory[i],
                 (CUdeviceptr)copy->from_data + offset, size, copier->stream));
    return gpu_call(from, cuEventRecord, copier->pieces.done[i], copier->stream);
}

static struct status *copy_in_piece(const struct gpu_peer_copy *copy, size_t offset, size_t size,
                                    int i) {
    struct gpu_copier *copier = copy->copier;
    struct gpu_bridge *bridge = copy->bridge;
    struct gpu_device *to = copy->to;
    TRY(gpu_enter(to));
    TRY(gpu_call(to, cuStreamWaitEvent, bridge->stream, copier->pieces.done[i], 0));
    TRY(gpu_call(to, cuMemcpyHtoDAsync, (CUdeviceptr)copy->to_data + offset,
                 copier->pieces.memory[i], size, bridge->stream));
    return gpu_call(to, cuEventRecord, bridge->piece_done[i], bridge->stream);
}

static struct status *copy_pieces(const struct gpu_peer_copy *copy, int *ret_last) {
    for (size_t offset = 0; offset < copy->size_bytes; offset += copy->piece_bytes) {
        size_t size = MIN(copy->size_bytes - offset, copy->piece_bytes);
        int i = (int)(offset / copy->piece_bytes % 2);
        TRY(copy_out_piece(copy, offset, size, i));
        TRY(copy_in_piece(copy, offset, size, i));
        *ret_last = i;
    }
    return NULL;
}

static struct status *compute_follows(struct gpu_device *to, CUevent event) {
    TRY(gpu_lock(to));
    struct status *st = gpu_call(to, cuStreamWaitEvent, to->compute, event, 0);
    gpu_unlock(to);
    return st;
}

struct status *gpu_peers_copy(const struct gpu_peer_copy *copy) {
    struct gpu_device *from = copy->copier->gpu, *to = copy->to;
    int last = 0;
    struct status *st = copy_pieces(copy, &last);
    if (!st)
        st = compute_follows(to, copy->bridge->piece_done[last]);
    if (!st)
        st = gpu_call(to, cuStreamSynchronize, copy->bridge->stream);
    if (st) { /* a piece may still be on its way */
        gpu_try_set_current(to);
        gpu_drain(to, copy->bridge->stream);
        gpu_try_set_current(from);
        gpu_drain(from, copy->copier->stream);
    }
    gpu_try_set_current(from);
    return st;
}
