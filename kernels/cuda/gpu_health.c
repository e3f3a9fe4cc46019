/* Finds out that a GPU has failed, and says so once (gpu_device.h).
 *
 *   a sticky error of a call ─────────────────┐
 *   another error, and cuStreamQuery fails ───┼──► failure, Xid ──► device.on_failure
 *   no progress for ten times hang_ns ────────┘
 *
 * The call that sees it first fails with the driver's words, all others say that the device has
 * failed. All fail with UNAVAILABLE: TensorFlow's monitored sessions restore their checkpoint after
 * it, as after the loss of a task, and end after INTERNAL. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/gpu_xid.h"

enum { HANG_FACTOR = 10 };
static const int64_t PROBE_EVERY_NS = INT64_C(10000000000);
/* Probes come once a second. What is longer between two of them counts as so much only: then the
 * process has been stopped (a debugger, a frozen container), and its work for the device, too. */
static const int64_t LONGEST_GAP_NS = INT64_C(2000000000);

/* NVML tells an Xid a little later than the driver the error, so the first error waits for it. */
static struct status *add_xid_take(struct gpu_device *gpu, struct status *st) {
    uint64_t xid = atomic_load(&gpu->last_xid);
    if (!xid && !atomic_load(&gpu->failure)) {
        xid = gpu_xid_next(gpu->xid);
        atomic_store(&gpu->last_xid, xid);
    }
    return xid ? status_suffix_take(st, ", Xid %llu", (unsigned long long)xid) : st;
}

static struct status *unavailable_take(struct status *st) {
    struct status *unavailable = status_unavailable("%s", status_message(st));
    status_unref(st);
    return unavailable;
}

struct status *gpu_fail_take(struct gpu_device *gpu, struct status *st) {
    struct status *none = NULL;
    st = unavailable_take(add_xid_take(gpu, st));
    struct status *failure =
        status_unavailable("GPU %d%s%s%s has failed, so nothing runs on it until its worker is "
                           "started again: %s",
                           gpu->ordinal, gpu->bus_id[0] ? " (" : "", gpu->bus_id,
                           gpu->bus_id[0] ? ")" : "", status_message(st));
    if (!atomic_compare_exchange_strong(&gpu->failure, &none, failure)) {
        status_unref(failure);
        return st;
    }
    log_event(EVENT_GPU_FAILED, "%s", status_message(failure));
    if (gpu->device && gpu->device->on_failure)
        gpu->device->on_failure(gpu->device);
    return st;
}

/* The stream could not be asked: another context is current, or this thread captures, and a driver
 * may refuse most calls then. */
static bool tells_nothing(CUresult error) {
    return error == CUDA_ERROR_INVALID_CONTEXT || (error >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                                                   error <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}

static bool works(struct gpu_device *gpu) {
    if (!gpu->compute)
        return true;
    CUresult error = gpu->api->cuStreamQuery(gpu->compute);
    return error == CUDA_SUCCESS || error == CUDA_ERROR_NOT_READY || tells_nothing(error);
}

struct status *gpu_look_take(struct gpu_device *gpu, struct status *st) {
    return !st || works(gpu) ? st : gpu_fail_take(gpu, st);
}

/* Errors that only say that this call was wrong, or came too early. */
static bool is_harmless(CUresult error) {
    return error == CUDA_ERROR_OUT_OF_MEMORY || error == CUDA_ERROR_NOT_READY ||
           error == CUDA_ERROR_NOT_FOUND || error == CUDA_ERROR_INVALID_VALUE ||
           error == CUDA_ERROR_NOT_SUPPORTED;
}

struct status *gpu_check_failure(struct gpu_device *gpu, CUresult error, const char *call) {
    struct status *st = driver_status(error, call);
    if (driver_error_is_sticky(error))
        return gpu_fail_take(gpu, st);
    return is_harmless(error) ? st : gpu_look_take(gpu, st);
}

const struct status *gpu_failure(struct device *device) {
    struct gpu_device *gpu = device->state;
    return atomic_load_explicit(&gpu->failure, memory_order_acquire);
}

/* ---- probes ---- */

/* Nobody holds the lock for long, unless a call of the driver hangs. */
static bool is_locked(struct gpu_device *gpu) {
    if (pthread_mutex_trylock(&gpu->lock) != 0)
        return true;
    pthread_mutex_unlock(&gpu->lock);
    return false;
}

/* Notes what the device has done since the last probe. Returns for how long it has had work and
 * made no progress. */
static int64_t look_for_progress(struct gpu_device *gpu, int64_t now_ns, bool is_busy) {
    struct gpu_watch *watch = &gpu->watch;
    uint64_t ended = atomic_load(&gpu->ended), enqueued = atomic_load(&gpu->memory.enqueued),
             n_locked = atomic_load(&gpu->n_locked);
    watch->since_ns += MAX(now_ns - watch->looked_ns - LONGEST_GAP_NS, INT64_C(0));
    watch->looked_ns = now_ns;
    if (!is_busy || ended != watch->ended || enqueued != watch->enqueued ||
        n_locked != watch->n_locked) {
        watch->since_ns = now_ns;
        watch->is_named = false;
    }
    watch->ended = ended;
    watch->enqueued = enqueued;
    watch->n_locked = n_locked;
    return now_ns - watch->since_ns;
}

static void end_hang(struct gpu_device *gpu, int64_t stuck_ns) {
    atomic_store(&gpu->is_hung, true);
    status_unref(gpu_fail_take(
        gpu, status_unavailable("it has made no progress for %lld ms, and a call of the driver "
                                "does not return",
                                (long long)(stuck_ns / 1000000))));
    gpu_copiers_abandon(gpu);
}

void gpu_probe(struct device *device, int64_t hang_ns) {
    struct gpu_device *gpu = device->state;
    struct gpu_watch *watch = &gpu->watch;
    int64_t now_ns = clock_now_ns();
    if (gpu_failure(device))
        return;
    bool is_busy = is_locked(gpu) || gpu_copiers_are_busy(gpu);
    int64_t stuck_ns = look_for_progress(gpu, now_ns, is_busy);
    if (stuck_ns >= HANG_FACTOR * hang_ns && is_busy) {
        end_hang(gpu, stuck_ns);
    } else if (stuck_ns >= hang_ns && is_busy && !watch->is_named) {
        watch->is_named = true;
        log_event(EVENT_GPU_TROUBLE, "GPU %d (%s) has made no progress for %lld ms", gpu->ordinal,
                  gpu->bus_id, (long long)(stuck_ns / 1000000));
    } else if (!is_busy && now_ns - watch->probed_ns >= PROBE_EVERY_NS) {
        watch->probed_ns = now_ns;
        gpu_copiers_probe(gpu);
    }
}
