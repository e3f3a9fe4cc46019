/* Copies values of any memory of the host to a GPU, in the order of its compute stream: through
 * pinned memory in four parts, which are filled in turn (gpu_device.h). */
#include "kernels/cuda/gpu_device.h"

struct status *gpu_pinned_new(struct gpu_device *gpu, size_t size_bytes, char **ret) {
    void *memory;
    atomic_fetch_add_explicit(&gpu->memory.n_calls, 1, memory_order_relaxed);
    struct status *st =
        gpu_call(gpu, cuMemHostAlloc, &memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (st)
        return status_suffix_take(st, " (%zu bytes of pinned memory)", size_bytes);
    *ret = memory;
    return NULL;
}

static struct status *stage_open(struct gpu_device *gpu) {
    struct gpu_stage *stage = &gpu->stage;
    for (int i = 0; i < GPU_STAGE_PARTS; i++)
        if (!stage->full[i])
            TRY(gpu_call(gpu, cuEventCreate, &stage->full[i],
                         CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    return gpu_pinned_new(gpu, GPU_STAGE_PARTS * GPU_STAGE_PART_BYTES, &stage->memory);
}

/* Ends the part that is being filled, once the next one may be overwritten. The compute stream has
 * then passed three parts of one MiB, so a wait is rare. After a failure the part is still the one
 * that is being filled. */
static struct status *stage_next_part(struct gpu_device *gpu) {
    struct gpu_stage *stage = &gpu->stage;
    TRY(gpu_call(gpu, cuEventRecord, stage->full[stage->part], gpu->compute));
    stage->is_full[stage->part] = true;
    int next = (stage->part + 1) % GPU_STAGE_PARTS;
    if (stage->is_full[next])
        TRY(gpu_call(gpu, cuEventSynchronize, stage->full[next]));
    stage->is_full[next] = false;
    stage->part = next;
    stage->used_bytes = 0;
    return NULL;
}

static struct status *stage_piece(struct gpu_device *gpu, CUdeviceptr to, const void *from,
                                  size_t size_bytes) {
    struct gpu_stage *stage = &gpu->stage;
    if (!stage->memory)
        TRY(stage_open(gpu));
    if (size_bytes > GPU_STAGE_PART_BYTES - stage->used_bytes)
        TRY(stage_next_part(gpu));
    char *at = stage->memory + (size_t)stage->part * GPU_STAGE_PART_BYTES + stage->used_bytes;
    memcpy(at, from, size_bytes);
    TRY(gpu_call(gpu, cuMemcpyHtoDAsync, to, at, size_bytes, gpu->compute));
    stage->used_bytes += (size_bytes + gpu->alignment - 1) / gpu->alignment * gpu->alignment;
    gpu_count_enqueued(gpu);
    return NULL;
}

struct status *gpu_stage_in(struct gpu_device *gpu, CUdeviceptr to, const void *from,
                            size_t size_bytes) {
    for (size_t done = 0; done < size_bytes;) {
        size_t piece = MIN(size_bytes - done, (size_t)GPU_STAGE_PART_BYTES);
        TRY(stage_piece(gpu, to + done, (const char *)from + done, piece));
        done += piece;
    }
    return NULL;
}

void gpu_stage_close(struct gpu_device *gpu) {
    for (int i = 0; i < GPU_STAGE_PARTS; i++)
        if (gpu->stage.full[i])
            gpu_give_back(gpu, cuEventDestroy, gpu->stage.full[i]);
    if (gpu->stage.memory)
        gpu_give_back(gpu, cuMemFreeHost, gpu->stage.memory);
}
