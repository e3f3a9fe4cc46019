/* Runs convolutions by cuDNN (dnn.h).
 *
 * A plan is made once for each kind of convolution (dnn_plan.c), and kept by the device. Plans are
 * made without the device's lock, because one takes some 10 ms: others enqueue meanwhile. cuDNN
 * wants one thread at a time for each handle, so plans are made with one handle, and run with
 * another one.
 *
 * A convolution is a part of its step's segment, and a graph captures what cuDNN enqueues for it
 * (gpu_segments.h). A captured kernel needs its plan for as long as the graph, so the device holds
 * all convolutions that were ever part of a segment until it has freed the graphs. */
#include "kernels/cuda/dnn.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/dnn_packs.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/gpu_trace.h"
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

/* ---- what a device keeps ---- */

struct gpu_dnn {
    pthread_mutex_t planning;  /* held while a plan is made; guards plan_handle */
    cudnnHandle_t plan_handle; /* NULL until the first plan */

    /* What the device's lock guards: */
    cudnnHandle_t run_handle; /* NULL until the first plan */
    CUstream run_stream;      /* the handle's */
    struct dnn_packs packs;
    struct gpu_convolution **held; /* what segments may name */
    int n_held, held_capacity;

    pthread_mutex_t lock; /* guards what follows; never held for long */
    struct strmap kept;   /* kind → struct gpu_convolution */
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

/* No graph and no segment names them any more. With the device's lock, or at its end. */
static void release_held(struct gpu_dnn *device) {
    while (device->n_held > 0) {
        struct gpu_convolution *c = device->held[--device->n_held];
        c->is_held = false;
        convolution_unref(c);
    }
}

/* Without this, the convolutions of all kinds that ever were would be held. */
static struct status *forget_held(struct gpu_device *gpu) {
    TRY(gpu_lock(gpu)); /* ends the segment */
    gpu_segments_forget(gpu);
    gpu_drain(gpu, gpu->compute);
    gpu_graphs_reap(gpu, true);
    release_held(gpu->dnn);
    gpu_unlock(gpu);
    return NULL;
}

/* A part of a segment names the convolution. */
static void hold(struct gpu_dnn *device, struct gpu_convolution *c) {
    if (c->is_held)
        return;
    if (device->n_held == device->held_capacity) {
        device->held_capacity = device->held_capacity * 2 + 64;
        device->held =
            xreallocarray(device->held, (size_t)device->held_capacity, sizeof(*device->held));
    }
    atomic_fetch_add(&c->n_refs, 1);
    c->is_held = true;
    device->held[device->n_held++] = c;
}

static void destroy_handle(cudnnHandle_t handle) {
    if (handle)
        dnn_note(dnn_api.cudnnDestroy(handle), "cudnnDestroy");
}

void gpu_dnn_free(struct gpu_dnn *device) {
    if (!device)
        return;
    forget(device);
    release_held(device);
    free(device->held);
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
    if (!st)
        st = gpu_lock_only(gpu); /* a capture may look whether there is a handle */
    if (st) {
        destroy_handle(run);
        destroy_handle(plan);
        return st;
    }
    gpu->dnn->run_handle = run;
    gpu->dnn->run_stream = gpu->compute;
    gpu_unlock(gpu);
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

/* Returns whether the others were forgotten. */
static bool kept_add(struct gpu_dnn *device, struct gpu_convolution *c) {
    atomic_fetch_add(&c->n_refs, 1);
    pthread_mutex_lock(&device->lock);
    bool is_full = device->kept.n_entries >= MAX_KINDS;
    if (is_full)
        forget(device);
    strmap_put_span(&device->kept, key_of(&c->kind), c);
    pthread_mutex_unlock(&device->lock);
    return is_full;
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
    struct status *st = kept_add(gpu->dnn, *ret) ? forget_held(gpu) : NULL;
    if (st)
        convolution_unref(*ret);
    return st;
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

struct status *gpu_dnn_set_stream(struct gpu_device *gpu, CUstream stream) {
    struct gpu_dnn *device = gpu->dnn;
    if (!device->run_handle || device->run_stream == stream)
        return NULL;
    struct status *st =
        dnn_check(dnn_api.cudnnSetStream(device->run_handle, stream), "cudnnSetStream");
    device->run_stream = st ? NULL : stream;
    return st;
}

/* What decides a convolution of a segment. */
struct convolution_run {
    struct gpu_convolution *c;
    struct dnn_addresses addresses;
};

static struct status *execute(struct gpu_device *gpu, const struct convolution_run *run,
                              CUstream stream) {
    cudnnBackendDescriptor_t pack;
    TRY(gpu_dnn_set_stream(gpu, stream));
    TRY(dnn_pack_get(&gpu->dnn->packs, &run->addresses, &pack));
    return dnn_check(dnn_api.cudnnBackendExecute(gpu->dnn->run_handle, run->c->plan, pack),
                     "cudnnBackendExecute");
}

static struct status *enqueue_convolution(struct gpu_device *gpu, const struct gpu_work *work,
                                          CUstream stream) {
    return gpu_look_take(gpu, execute(gpu, work->args, stream));
}

void gpu_dnn_note_not_captured(const struct gpu_work *work) {
    if (work->enqueue == enqueue_convolution)
        ((const struct convolution_run *)work->args)->c->is_not_captured = true;
}

/* Adds the convolution to the segment, or enqueues it between two segments. With the device's lock.
 */
static struct status *add_locked(struct kernel_ctx *ctx, const struct convolution_run *run) {
    struct gpu_device *gpu = gpu_of(ctx);
    struct gpu_work work = {.enqueue = enqueue_convolution,
                            .args = run,
                            .args_bytes = sizeof *run,
                            .node = ctx->instance->node->name};
    if (run->c->is_not_captured) {
        gpu_segments_end(gpu, DEVICE_ENDS_LIBRARY);
        if (unlikely(gpu->traces))
            gpu_trace_touch(gpu);
        struct status *st = enqueue_convolution(gpu, &work, gpu->compute);
        gpu_count_enqueued(gpu);
        return st;
    }
    hold(gpu->dnn, run->c);
    return gpu_segments_add(gpu, ctx->host_data, &work);
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
    struct buffer *workspace = NULL;
    struct convolution_run run;
    find_operands(job, run.addresses.operands);
    struct convolution_kind kind =
        kind_of(job, run.addresses.operands, (int64_t)gpu->memory.limit_bytes);
    TRY(find_with_workspace(ctx, &kind, &run.c, &workspace));
    run.addresses.workspace = workspace ? workspace->data : NULL;
    struct status *st = gpu_lock_only(gpu);
    if (!st) {
        st = add_locked(ctx, &run);
        gpu_unlock(gpu);
    }
    buffer_unref(workspace);
    convolution_unref(run.c);
    return st;
}
