/* Keeps the failures of work that was held back until its steps ask for them (gpu_segments.h). */
#include <stdlib.h>

#include "kernels/cuda/gpu_device.h"

void gpu_segments_fail_take(struct gpu_device *gpu, const void *owner, struct status *st_take) {
    struct gpu_segments *s = &gpu->segments;
    struct gpu_late_failure *failure = xcalloc(1, sizeof *failure);
    *failure = (struct gpu_late_failure){.owner = owner, .status = st_take};
    pthread_mutex_lock(&s->failures_lock);
    failure->next = s->failures;
    s->failures = failure;
    atomic_store(&s->has_failures, true);
    pthread_mutex_unlock(&s->failures_lock);
}

static struct gpu_late_failure **failure_find(struct gpu_segments *s, const void *owner) {
    struct gpu_late_failure **at = &s->failures;
    while (*at && (*at)->owner != owner)
        at = &(*at)->next;
    return at;
}

struct status *gpu_segments_see_failure(struct gpu_device *gpu, const void *owner) {
    struct gpu_segments *s = &gpu->segments;
    if (likely(!atomic_load(&s->has_failures)))
        return NULL;
    pthread_mutex_lock(&s->failures_lock);
    struct gpu_late_failure *failure = *failure_find(s, owner);
    struct status *st = failure ? status_ref(failure->status) : NULL;
    pthread_mutex_unlock(&s->failures_lock);
    return st;
}

struct status *gpu_segments_take_failure(struct gpu_device *gpu, const void *owner) {
    struct gpu_segments *s = &gpu->segments;
    if (likely(!atomic_load(&s->has_failures)))
        return NULL;
    pthread_mutex_lock(&s->failures_lock);
    struct gpu_late_failure **at = failure_find(s, owner), *failure = *at;
    struct status *st = failure ? failure->status : NULL;
    if (failure)
        *at = failure->next;
    free(failure);
    atomic_store(&s->has_failures, s->failures != NULL);
    pthread_mutex_unlock(&s->failures_lock);
    return st;
}

void gpu_segments_forget_failures(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    for (struct gpu_late_failure *failure = s->failures, *next; failure; failure = next) {
        next = failure->next;
        status_unref(failure->status);
        free(failure);
    }
    s->failures = NULL;
}
