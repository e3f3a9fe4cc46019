/* Runs convolutions by cuDNN (dnn.h).
 *
 * A plan is made once for each kind of convolution (dnn_plan.c), and kept by the device. Plans are
 * made without the device's lock, because one takes some 10 ms: others enqueue meanwhile. cuDNN
 * wants one thread at a time for each handle, so plans are made with one handle, and run with
 * another one. */
#include "kernels/cuda/dnn.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/dnn_packs.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/library.h"

enum { MAX_KINDS = 4096, N_RECENT = 256 };

/* Set by gpu_dnn_open, then constant. */
struct dnn_api dnn_api;
static bool has_dnn, may_use_tf32;
static struct str why_missing = STR_INIT;

static const char *const names[] = {"libcudnn.so.9"};
static const struct gpu_library_call calls[] = {
#define DNN_CALL(name, arguments) {#name, offsetof(struct dnn_api, name)},
#include "kernels/cuda/dnn_calls.inc"
};

void gpu_dnn_open(const char *folders, bool allow_tf32, void *simulated) {
    void *library =
        simulated ? simulated : gpu_library_open(folders, names, ARRAY_LEN(names), &why_missing);
    may_use_tf32 = allow_tf32;
    has_dnn = library && gpu_library_find(library, calls, ARRAY_LEN(calls), &dnn_api, &why_missing);
}

const char *gpu_dnn_missing(void) {
    return has_dnn || !why_missing.len ? NULL : str_text(&why_missing);
}

static struct status *is_missing(void) {
    return status_unimplemented("Convolutions on a GPU need cuDNN: %s", str_text(&why_missing));
}

struct status *dnn_check(int error, const char *what) {
    return likely(error == 0) ? NULL
                              : status_internal("%s failed with cuDNN status %d", what, error);
}

void dnn_note(int error, const char *what) {
    if (error)
        log_event(EVENT_GPU_TROUBLE, "%s failed with cuDNN status %d", what, error);
}

bool dnn_is_unsupported(int error) {
    return error >= CUDNN_NOT_SUPPORTED_FIRST && error < CUDNN_NOT_SUPPORTED_END;
}

/* ---- descriptors ---- */

void dnn_destroy(cudnnBackendDescriptor_t descriptor) {
    if (descriptor)
        dnn_note(dnn_api.cudnnBackendDestroyDescriptor(descriptor),
                 "cudnnBackendDestroyDescriptor");
}

struct status *dnn_create(int type, cudnnBackendDescriptor_t *ret) {
    return dnn_check(dnn_api.cudnnBackendCreateDescriptor(type, ret),
                     "cudnnBackendCreateDescriptor");
}

struct status *dnn_set(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n,
                       const void *elements) {
    return dnn_check(dnn_api.cudnnBackendSetAttribute(descriptor, name, type, n, elements),
                     "cudnnBackendSetAttribute");
}

struct status *dnn_set_descriptor(cudnnBackendDescriptor_t descriptor, int name,
                                  cudnnBackendDescriptor_t value) {
    return dnn_set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

struct status *dnn_get(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n_wanted,
                       int64_t *ret_n, void *elements) {
    return dnn_check(
        dnn_api.cudnnBackendGetAttribute(descriptor, name, type, n_wanted, ret_n, elements),
        "cudnnBackendGetAttribute");
}

struct status *dnn_finalize(cudnnBackendDescriptor_t descriptor) {
    return dnn_check(dnn_api.cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
}

/* ---- what a device keeps ---- */

struct gpu_dnn {
    pthread_mutex_t planning;  /* held while a plan is made; guards plan_handle */
    cudnnHandle_t plan_handle; /* NULL until the first plan */
    cudnnHandle_t run_handle;  /* set before the first plan; used with the device's lock */
    struct dnn_packs packs;    /* used with the device's lock */
    pthread_mutex_t lock;      /* guards what follows; never held for long */
    struct strmap kept;        /* kind → struct gpu_convolution */
    /* What a node has found last, by the node; NULL: nothing. Its kind is mostly the same the next
     * time, and comparing is cheaper than hashing. */
    struct gpu_convolution *recent[N_RECENT];
};

struct gpu_dnn *gpu_dnn_new(void) {
    struct gpu_dnn *device = xcalloc(1, sizeof *device);
    pthread_mutex_init(&device->planning, NULL);
    pthread_mutex_init(&device->lock, NULL);
    strmap_init(&device->kept);
    return device;
}

static void recent_set(struct gpu_convolution **recent, struct gpu_convolution *c) {
    if (c)
        atomic_fetch_add(&c->n_refs, 1);
    convolution_unref(*recent);
    *recent = c;
}

static void forget(struct gpu_dnn *device) {
    for (int i = 0; i < N_RECENT; i++)
        recent_set(&device->recent[i], NULL);
    size_t cursor = 0;
    struct span key;
    void *convolution;
    while (strmap_next(&device->kept, &cursor, &key, &convolution))
        convolution_unref(convolution);
    strmap_fini(&device->kept);
    strmap_init(&device->kept);
}

static void destroy_handle(cudnnHandle_t handle) {
    if (handle)
        dnn_note(dnn_api.cudnnDestroy(handle), "cudnnDestroy");
}

void gpu_dnn_free(struct gpu_dnn *device) {
    if (!device)
        return;
    forget(device);
    strmap_fini(&device->kept);
    dnn_packs_clear(&device->packs);
    destroy_handle(device->run_handle);
    destroy_handle(device->plan_handle);
    pthread_mutex_destroy(&device->planning);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static struct status *open_handles(struct gpu_device *gpu) {
    cudnnHandle_t run = NULL, plan = NULL;
    if (gpu->dnn->plan_handle)
        return NULL;
    struct status *st = dnn_check(dnn_api.cudnnCreate(&run), "cudnnCreate");
    if (!st)
        st = dnn_check(dnn_api.cudnnSetStream(run, gpu->compute), "cudnnSetStream");
    if (!st)
        st = dnn_check(dnn_api.cudnnCreate(&plan), "cudnnCreate");
    if (st) {
        destroy_handle(run);
        return st;
    }
    gpu->dnn->run_handle = run;
    gpu->dnn->plan_handle = plan;
    return NULL;
}

static struct span key_of(const struct convolution_kind *kind) {
    return (struct span){(const char *)kind, sizeof *kind};
}

/* Returns a reference, or NULL. `node` tells apart who asks; it is not followed. */
static struct gpu_convolution *kept_find(struct gpu_dnn *device,
                                         const struct convolution_kind *kind, const void *node) {
    uint64_t number = (uintptr_t)node * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct gpu_convolution **recent = &device->recent[number % N_RECENT];
    pthread_mutex_lock(&device->lock);
    struct gpu_convolution *c = *recent;
    if (!c || memcmp(&c->kind, kind, sizeof *kind) != 0) {
        c = strmap_get_span(&device->kept, key_of(kind));
        if (c)
            recent_set(recent, c);
    }
    if (c)
        atomic_fetch_add(&c->n_refs, 1);
    pthread_mutex_unlock(&device->lock);
    return c;
}

static void kept_add(struct gpu_dnn *device, struct gpu_convolution *c) {
    atomic_fetch_add(&c->n_refs, 1);
    pthread_mutex_lock(&device->lock);
    if (device->kept.n_entries >= MAX_KINDS)
        forget(device);
    strmap_put_span(&device->kept, key_of(&c->kind), c);
    pthread_mutex_unlock(&device->lock);
}

/* With the lock for plans: another thread may have made the plan meanwhile. */
static struct status *make_plan(struct gpu_device *gpu, const struct convolution_kind *kind,
                                const void *node, struct gpu_convolution **ret) {
    *ret = kept_find(gpu->dnn, kind, node);
    if (*ret)
        return NULL;
    TRY(open_handles(gpu));
    struct dnn_target target = {.handle = gpu->dnn->plan_handle};
    TRY(convolution_new(&target, kind, ret));
    kept_add(gpu->dnn, *ret);
    return NULL;
}

/* Finds the plan of a kind. The caller owns a reference. Errors: those of convolution_new, and why
 * there is no plan. */
static struct status *plan_get(struct kernel_ctx *ctx, const struct convolution_kind *kind,
                               struct gpu_convolution **ret) {
    struct gpu_device *gpu = gpu_of(ctx);
    const void *node = ctx->instance;
    struct gpu_convolution *c = kept_find(gpu->dnn, kind, node);
    if (!c) {
        TRY(gpu_enter(gpu));
        pthread_mutex_lock(&gpu->dnn->planning);
        struct status *st = make_plan(gpu, kind, node, &c);
        pthread_mutex_unlock(&gpu->dnn->planning);
        if (st)
            return st;
    }
    struct status *st = status_ref(c->why_none);
    if (st)
        convolution_unref(c);
    else
        *ret = c;
    return st;
}

/* ---- convolutions ---- */

/* The operands in the order of their ids. */
static void find_operands(const struct conv_job *job, const void *ret[DNN_OPERANDS]) {
    const struct conv_operands *o = job->operands;
    ret[0] = job->direction == CONV_BACKPROP_INPUT ? o->result : o->in;
    ret[1] = job->direction == CONV_BACKPROP_FILTER ? o->result : o->filter;
    ret[2] = job->direction == CONV_FORWARD ? o->result : o->out;
}

/* Images of one position are stored alike in both orders, and then cuDNN takes the channels for the
 * last dimension. */
bool dnn_filter_is_channels_first(const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    return job->is_channels_first && (conv_n_positions(s->in) > 1 || conv_n_positions(s->out) > 1);
}

static struct convolution_kind kind_of(const struct conv_job *job,
                                       const void *const operands[DNN_OPERANDS],
                                       int64_t max_workspace_bytes) {
    struct convolution_kind kind;
    uintptr_t bits = 16;
    memset(&kind, 0, sizeof kind); /* compared as bytes */
    for (int i = 0; i < DNN_OPERANDS; i++)
        bits |= (uintptr_t)operands[i];
    kind.shape = *job->shape;
    kind.alignment = (int64_t)(bits & -bits);
    kind.max_workspace_bytes = max_workspace_bytes;
    kind.dtype = (int32_t)job->dtype;
    kind.direction = (uint8_t)job->direction;
    kind.is_channels_first = job->is_channels_first;
    kind.has_filter_channels_first = dnn_filter_is_channels_first(job);
    kind.allows_tf32 = may_use_tf32;
    return kind;
}

struct status *gpu_dnn_plan_for(const char *device_json, const struct conv_job *job,
                                int64_t max_workspace_bytes, int64_t *ret_workspace_bytes) {
    static const void *const aligned[DNN_OPERANDS] = {NULL};
    if (!has_dnn)
        return is_missing();
    struct convolution_kind kind = kind_of(job, aligned, max_workspace_bytes);
    struct gpu_convolution *c = NULL;
    struct dnn_target target = {.handle = NULL};
    struct status *st = dnn_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &target.description);
    if (!st)
        st = dnn_set(target.description, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     (int64_t)strlen(device_json), device_json);
    if (!st)
        st = dnn_finalize(target.description);
    if (!st)
        st = convolution_new(&target, &kind, &c);
    if (!st)
        st = status_ref(c->why_none);
    if (!st)
        *ret_workspace_bytes = c->workspace_bytes;
    convolution_unref(c);
    dnn_destroy(target.description);
    return st;
}

static struct status *execute_locked(struct gpu_device *gpu, const struct gpu_convolution *c,
                                     const struct dnn_addresses *addresses) {
    cudnnBackendDescriptor_t pack;
    TRY(dnn_pack_get(&gpu->dnn->packs, addresses, &pack));
    struct status *st = dnn_check(dnn_api.cudnnBackendExecute(gpu->dnn->run_handle, c->plan, pack),
                                  "cudnnBackendExecute");
    gpu_count_enqueued(gpu);
    return st;
}

/* Allocates the workspace of the best plan whose workspace can be had. Where memory is short, the
 * next engine that wants less takes its place; where none does, the step waits for memory as for
 * any other value. The caller owns the plan and the workspace. */
static struct status *find_with_workspace(struct kernel_ctx *ctx, struct convolution_kind *kind,
                                          struct gpu_convolution **ret,
                                          struct buffer **ret_workspace) {
    struct gpu_convolution *c = NULL;
    TRY(plan_get(ctx, kind, &c));
    struct status *st = NULL;
    while (c->workspace_bytes > 0) {
        st = gpu_scratch_now(ctx, (size_t)c->workspace_bytes, ret_workspace);
        if (!st || status_code(st) != STATUS_RESOURCE_EXHAUSTED)
            break;
        status_unref(st);
        struct gpu_convolution *smaller;
        kind->max_workspace_bytes = c->workspace_bytes - 1;
        struct status *none = plan_get(ctx, kind, &smaller);
        if (none) {
            status_unref(none);
            st = gpu_scratch(ctx, (size_t)c->workspace_bytes, ret_workspace);
            break;
        }
        convolution_unref(c);
        c = smaller;
        st = NULL;
    }
    if (st)
        convolution_unref(c);
    else
        *ret = c;
    return st;
}

struct status *gpu_convolve(struct kernel_ctx *ctx, const struct conv_job *job) {
    if (!has_dnn)
        return is_missing();
    struct gpu_device *gpu = gpu_of(ctx);
    struct gpu_convolution *c = NULL;
    struct buffer *workspace = NULL;
    struct dnn_addresses addresses;
    find_operands(job, addresses.operands);
    struct convolution_kind kind =
        kind_of(job, addresses.operands, (int64_t)gpu->memory.limit_bytes);
    TRY(find_with_workspace(ctx, &kind, &c, &workspace));
    addresses.workspace = workspace ? workspace->data : NULL;
    struct status *st = gpu_lock_for(gpu, DEVICE_ENDS_LIBRARY);
    if (!st) {
        st = execute_locked(gpu, c, &addresses);
        gpu_unlock(gpu);
        st = gpu_look_take(gpu, st);
    }
    buffer_unref(workspace);
    convolution_unref(c);
    return st;
}
