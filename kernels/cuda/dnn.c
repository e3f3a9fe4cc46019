/* Runs convolutions by cuDNN (dnn.h).
 *
 * A convolution is described by descriptors: three tensors, the window, an operation, a graph of
 * that one operation. Heuristics then name engines, best first. The first one is taken that
 *
 *   is compiled already       others take up to a second at their first use, and want NVRTC
 *   gives the same bits       in every run
 *   computes in float         where TF32 is not allowed
 *   wants little workspace
 *
 * All that is done once for each kind of convolution. The device keeps the plan that comes of it.
 *
 * Tensors are described as cuDNN names dimensions, batch and channels first; their strides say how
 * they are stored. So channels may be last, and filters are [window, in, out] as clients have them:
 * nothing is transposed. Padding before and after may differ. */
#include "kernels/cuda/dnn.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/dnn_api.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/library.h"

enum { MAX_WORKSPACE_BYTES = 512 << 20, MAX_KINDS = 4096, MAX_CONFIGS = 16, MAX_NOTES = 16 };
enum { MAX_RANK = 5, MAX_KEPT = 8 };

/* Set by gpu_dnn_open, then constant. */
static struct dnn_api dnn;
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
    has_dnn = library && gpu_library_find(library, calls, ARRAY_LEN(calls), &dnn, &why_missing);
}

const char *gpu_dnn_missing(void) {
    return has_dnn || !why_missing.len ? NULL : str_text(&why_missing);
}

static struct status *check(int error, const char *what) {
    return likely(error == 0) ? NULL
                              : status_internal("%s failed with cuDNN status %d", what, error);
}

/* As driver_note. */
static void note(int error, const char *what) {
    if (error)
        log_warning("%s failed with cuDNN status %d", what, error);
}

static bool is_unsupported(int error) {
    return error >= CUDNN_NOT_SUPPORTED_FIRST && error < CUDNN_NOT_SUPPORTED_END;
}

/* ---- descriptors ---- */

static void destroy(cudnnBackendDescriptor_t descriptor) {
    if (descriptor)
        note(dnn.cudnnBackendDestroyDescriptor(descriptor), "cudnnBackendDestroyDescriptor");
}

static struct status *create(int type, cudnnBackendDescriptor_t *ret) {
    return check(dnn.cudnnBackendCreateDescriptor(type, ret), "cudnnBackendCreateDescriptor");
}

static struct status *set(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n,
                          const void *elements) {
    return check(dnn.cudnnBackendSetAttribute(descriptor, name, type, n, elements),
                 "cudnnBackendSetAttribute");
}

static struct status *set_descriptor(cudnnBackendDescriptor_t descriptor, int name,
                                     cudnnBackendDescriptor_t value) {
    return set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static struct status *get(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n_wanted,
                          int64_t *ret_n, void *elements) {
    return check(dnn.cudnnBackendGetAttribute(descriptor, name, type, n_wanted, ret_n, elements),
                 "cudnnBackendGetAttribute");
}

static struct status *finalize(cudnnBackendDescriptor_t descriptor) {
    return check(dnn.cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
}

/* ---- kinds of convolutions ---- */

/* What a device keeps for convolutions of one kind. */
struct gpu_convolution {
    cudnnBackendDescriptor_t kept[MAX_KEPT]; /* what the plan was made of */
    int n_kept;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
};

/* All that decides; compared as bytes. */
struct convolution_kind {
    struct conv_shape shape;
    int64_t alignment; /* of all operands, in bytes */
    int32_t dtype;
    uint8_t direction, is_channels_first;
};

enum { ID_IN = 1, ID_FILTER, ID_OUT };

/* What plans are made for: the GPU of a handle, or one that is only described. */
struct dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t description;
};

static void convolution_free(struct gpu_convolution *c) {
    destroy(c->plan);
    for (int i = c->n_kept - 1; i >= 0; i--)
        destroy(c->kept[i]);
    free(c);
}

/* Creates a descriptor that lives as long as the plan. */
static struct status *keep_new(struct gpu_convolution *c, int type, cudnnBackendDescriptor_t *ret) {
    CHECK(c->n_kept < MAX_KEPT);
    TRY(create(type, ret));
    c->kept[c->n_kept++] = *ret;
    return NULL;
}

static int data_type(enum dtype dtype) {
    return dtype == DT_HALF       ? CUDNN_DATA_HALF
           : dtype == DT_BFLOAT16 ? CUDNN_DATA_BFLOAT16
           : dtype == DT_DOUBLE   ? CUDNN_DATA_DOUBLE
                                  : CUDNN_DATA_FLOAT;
}

/* cuDNN wants two or three spatial dimensions. A convolution of images has size 1 in the first. */
static int first_spatial(const struct conv_shape *s) {
    return s->in[0] == 1 && s->out[0] == 1 && s->window[0] == 1 && s->pad_before[0] == 0;
}

static struct status *new_tensor(struct gpu_convolution *c, const struct convolution_kind *kind,
                                 int64_t id, const int64_t *dims, const int64_t *strides,
                                 cudnnBackendDescriptor_t *ret) {
    int type = data_type((enum dtype)kind->dtype);
    int64_t rank = MAX_RANK - first_spatial(&kind->shape);
    TRY(keep_new(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR, ret));
    TRY(set(*ret, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set(*ret, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims));
    TRY(set(*ret, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides));
    TRY(set(*ret, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(set(*ret, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &kind->alignment));
    return finalize(*ret);
}

/* Images or volumes: dimensions [batch, channels, spatial]. */
static struct status *new_image(struct gpu_convolution *c, const struct convolution_kind *kind,
                                int64_t id, int64_t channels, const int64_t spatial[3],
                                cudnnBackendDescriptor_t *ret) {
    int64_t dims[MAX_RANK] = {kind->shape.batch, channels}, strides[MAX_RANK];
    int skipped = first_spatial(&kind->shape), n = 3 - skipped;
    int64_t step = kind->is_channels_first ? 1 : channels;
    for (int i = n - 1; i >= 0; i--) {
        dims[2 + i] = spatial[skipped + i];
        strides[2 + i] = step;
        step *= dims[2 + i];
    }
    strides[1] = kind->is_channels_first ? step : 1;
    strides[0] = conv_n_positions(spatial) * channels;
    return new_tensor(c, kind, id, dims, strides, ret);
}

/* A filter: dimensions [out, in, window], stored as [window, in, out]. */
static struct status *new_filter(struct gpu_convolution *c, const struct convolution_kind *kind,
                                 cudnnBackendDescriptor_t *ret) {
    const struct conv_shape *s = &kind->shape;
    int64_t dims[MAX_RANK] = {s->out_channels, s->in_channels / s->groups};
    int64_t strides[MAX_RANK] = {1, s->out_channels};
    int skipped = first_spatial(s), n = 3 - skipped;
    int64_t step = dims[0] * dims[1];
    for (int i = n - 1; i >= 0; i--) {
        dims[2 + i] = s->window[skipped + i];
        strides[2 + i] = step;
        step *= dims[2 + i];
    }
    return new_tensor(c, kind, ID_FILTER, dims, strides, ret);
}

static struct status *new_window(struct gpu_convolution *c, const struct convolution_kind *kind,
                                 cudnnBackendDescriptor_t *ret) {
    const struct conv_shape *s = &kind->shape;
    int skipped = first_spatial(s), mode = CUDNN_CROSS_CORRELATION;
    int compute = kind->dtype == DT_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    int64_t n = 3 - skipped, after[3];
    for (int i = 0; i < 3; i++) {
        int64_t end = (s->out[i] - 1) * s->stride[i] + (s->window[i] - 1) * s->rate[i] + 1;
        after[i] = MAX(end - s->in[i] - s->pad_before[i], (int64_t)0);
    }
    TRY(keep_new(c, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, ret));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, s->rate + skipped));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, s->stride + skipped));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
            s->pad_before + skipped));
    TRY(set(*ret, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, after + skipped));
    return finalize(*ret);
}

/* ---- operations ---- */

/* The numbers of an operation's attributes, by direction. */
static const struct {
    int type, alpha, beta, window, in, filter, out;
} operations[CONV_N_DIRECTIONS] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [CONV_BACKPROP_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [CONV_BACKPROP_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static struct status *set_factors(cudnnBackendDescriptor_t operation, int direction, bool is_wide) {
    static const float one_f = 1, zero_f = 0;
    static const double one_d = 1, zero_d = 0;
    int type = is_wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    TRY(set(operation, operations[direction].alpha, type, 1,
            is_wide ? (const void *)&one_d : &one_f));
    return set(operation, operations[direction].beta, type, 1,
               is_wide ? (const void *)&zero_d : &zero_f);
}

/* Makes the graph that has the operation. */
static struct status *new_graph(struct gpu_convolution *c, const struct dnn_target *target,
                                const struct convolution_kind *kind,
                                cudnnBackendDescriptor_t *ret) {
    const struct conv_shape *s = &kind->shape;
    int d = kind->direction;
    cudnnBackendDescriptor_t in, filter, out, window, operation;
    TRY(new_image(c, kind, ID_IN, s->in_channels, s->in, &in));
    TRY(new_filter(c, kind, &filter));
    TRY(new_image(c, kind, ID_OUT, s->out_channels, s->out, &out));
    TRY(new_window(c, kind, &window));
    TRY(keep_new(c, operations[d].type, &operation));
    TRY(set_factors(operation, d, kind->dtype == DT_DOUBLE));
    TRY(set_descriptor(operation, operations[d].window, window));
    TRY(set_descriptor(operation, operations[d].in, in));
    TRY(set_descriptor(operation, operations[d].filter, filter));
    TRY(set_descriptor(operation, operations[d].out, out));
    TRY(finalize(operation));
    TRY(keep_new(c, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, ret));
    if (target->handle)
        TRY(set(*ret, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle));
    TRY(set_descriptor(*ret, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
    return finalize(*ret);
}

/* ---- choices ---- */

static bool has_note(const int *notes, int64_t n, int wanted) {
    for (int64_t i = 0; i < MIN(n, (int64_t)MAX_NOTES); i++)
        if (notes[i] == wanted)
            return true;
    return false;
}

static struct status *may_use(cudnnBackendDescriptor_t config, enum dtype dtype, bool *ret) {
    cudnnBackendDescriptor_t engine = NULL;
    int numerical[MAX_NOTES], behavior[MAX_NOTES];
    int64_t n, n_numerical = 0, n_behavior = 0;
    TRY(create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    struct status *st =
        get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (!st)
        st = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                 &n_numerical, numerical);
    if (!st)
        st = get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES,
                 &n_behavior, behavior);
    destroy(engine);
    bool is_rounded = has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    /* inputs or partial sums of another type: large values would become infinite */
    bool is_narrowed =
        has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
        has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    *ret = !is_narrowed &&
           !has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           !has_note(behavior, n_behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) &&
           !(is_rounded && dtype == DT_FLOAT && !may_use_tf32);
    return st;
}

/* Makes a plan of a configuration. c->plan stays NULL if it does not fit. */
static struct status *try_config(struct gpu_convolution *c, const struct dnn_target *target,
                                 cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t plan;
    int64_t n;
    TRY(create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    struct status *st =
        target->handle
            ? set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle)
            : set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target->description);
    if (!st)
        st = set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    int error = st ? 0 : dnn.cudnnBackendFinalize(plan);
    if (!st && !is_unsupported(error))
        st = check(error, "cudnnBackendFinalize");
    if (!st && error == 0)
        st = get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                 &c->workspace_bytes);
    if (!st && error == 0 && c->workspace_bytes <= MAX_WORKSPACE_BYTES)
        c->plan = plan;
    else
        destroy(plan);
    return st;
}

/* Takes the first of the configurations that one mode of the heuristics names. */
static struct status *choose_of_mode(struct gpu_convolution *c, const struct dnn_target *target,
                                     const struct convolution_kind *kind,
                                     cudnnBackendDescriptor_t heuristics, int mode) {
    cudnnBackendDescriptor_t configs[MAX_CONFIGS] = {NULL};
    struct status *st = NULL;
    int64_t n = 0;
    TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    int error = dnn.cudnnBackendFinalize(heuristics);
    if (is_unsupported(error))
        return NULL;
    TRY(check(error, "cudnnBackendFinalize"));
    for (int i = 0; i < MAX_CONFIGS; i++)
        TRY_OUT(create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    TRY_OUT(get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                MAX_CONFIGS, &n, configs));
    for (int64_t i = 0; i < MIN(n, (int64_t)MAX_CONFIGS) && !c->plan; i++) {
        bool is_usable;
        TRY_OUT(may_use(configs[i], (enum dtype)kind->dtype, &is_usable));
        if (is_usable)
            TRY_OUT(try_config(c, target, configs[i]));
        if (c->plan) {
            c->kept[c->n_kept++] = configs[i];
            configs[i] = NULL;
        }
    }
out:
    for (int i = 0; i < MAX_CONFIGS; i++)
        destroy(configs[i]);
    return st;
}

static struct status *choose(struct gpu_convolution *c, const struct dnn_target *target,
                             const struct convolution_kind *kind, cudnnBackendDescriptor_t graph) {
    static const int modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (size_t i = 0; i < ARRAY_LEN(modes) && !c->plan; i++) {
        cudnnBackendDescriptor_t heuristics;
        TRY(create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
        struct status *st =
            set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        if (!st && target->description)
            st = set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->description);
        if (!st)
            st = choose_of_mode(c, target, kind, heuristics, modes[i]);
        destroy(heuristics);
        if (st)
            return st;
    }
    return c->plan ? NULL
                   : status_unimplemented("cuDNN has no engine for this convolution of %s on "
                                          "this GPU",
                                          dtype_name((enum dtype)kind->dtype));
}

static struct status *convolution_build(const struct dnn_target *target,
                                        const struct convolution_kind *kind,
                                        struct gpu_convolution *c) {
    cudnnBackendDescriptor_t graph;
    TRY(new_graph(c, target, kind, &graph));
    return choose(c, target, kind, graph);
}

static struct status *open_handle(struct gpu_device *gpu) {
    cudnnHandle_t handle;
    if (gpu->dnn_handle)
        return NULL;
    TRY(check(dnn.cudnnCreate(&handle), "cudnnCreate"));
    struct status *st = check(dnn.cudnnSetStream(handle, gpu->compute), "cudnnSetStream");
    if (st)
        note(dnn.cudnnDestroy(handle), "cudnnDestroy");
    else
        gpu->dnn_handle = handle;
    return st;
}

/* With the device's lock. */
static struct status *convolution_find(struct gpu_device *gpu, const struct convolution_kind *kind,
                                       struct gpu_convolution **ret) {
    struct span key = {(const char *)kind, sizeof *kind};
    TRY(open_handle(gpu));
    *ret = strmap_get_span(&gpu->convolutions, key);
    if (*ret)
        return NULL;
    if (gpu->convolutions.n_entries >= MAX_KINDS)
        gpu_dnn_forget(gpu);
    struct gpu_convolution *c = xcalloc(1, sizeof *c);
    struct dnn_target target = {.handle = gpu->dnn_handle};
    struct status *st = convolution_build(&target, kind, c);
    if (st) {
        convolution_free(c);
        return st;
    }
    strmap_put_span(&gpu->convolutions, key, c);
    *ret = c;
    return NULL;
}

void gpu_dnn_forget(struct gpu_device *gpu) {
    size_t cursor = 0;
    struct span key;
    void *convolution;
    while (strmap_next(&gpu->convolutions, &cursor, &key, &convolution))
        convolution_free(convolution);
    strmap_fini(&gpu->convolutions);
    strmap_init(&gpu->convolutions);
}

void gpu_dnn_close(struct gpu_device *gpu) {
    gpu_dnn_forget(gpu);
    strmap_fini(&gpu->convolutions);
    if (gpu->dnn_handle)
        note(dnn.cudnnDestroy(gpu->dnn_handle), "cudnnDestroy");
}

/* ---- convolutions ---- */

/* The operands in the order of their ids. */
static void find_operands(const struct conv_job *job, const void *ret[3]) {
    const struct conv_operands *o = job->operands;
    ret[0] = job->direction == CONV_BACKPROP_INPUT ? o->result : o->in;
    ret[1] = job->direction == CONV_BACKPROP_FILTER ? o->result : o->filter;
    ret[2] = job->direction == CONV_FORWARD ? o->result : o->out;
}

static struct convolution_kind kind_of(const struct conv_job *job, const void *const operands[3]) {
    struct convolution_kind kind;
    uintptr_t bits = 16;
    memset(&kind, 0, sizeof kind); /* compared as bytes */
    for (int i = 0; i < 3; i++)
        bits |= (uintptr_t)operands[i];
    kind.shape = *job->shape;
    kind.alignment = (int64_t)(bits & -bits);
    kind.dtype = (int32_t)job->dtype;
    kind.direction = (uint8_t)job->direction;
    kind.is_channels_first = job->is_channels_first;
    return kind;
}

struct status *gpu_dnn_plan_for(const char *device_json, const struct conv_job *job,
                                int64_t *ret_workspace_bytes) {
    static const void *const aligned[3] = {NULL, NULL, NULL};
    if (!has_dnn)
        return status_unimplemented("Convolutions on a GPU need cuDNN: %s", str_text(&why_missing));
    struct convolution_kind kind = kind_of(job, aligned);
    struct gpu_convolution *c = xcalloc(1, sizeof *c);
    struct dnn_target target = {.handle = NULL};
    struct status *st = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &target.description);
    if (!st)
        st = set(target.description, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 (int64_t)strlen(device_json), device_json);
    if (!st)
        st = finalize(target.description);
    if (!st)
        st = convolution_build(&target, &kind, c);
    if (!st)
        *ret_workspace_bytes = c->workspace_bytes;
    convolution_free(c);
    destroy(target.description);
    return st;
}

static struct status *execute_locked(struct gpu_device *gpu, const struct gpu_convolution *c,
                                     const void *const operands[3], void *workspace) {
    static const int64_t ids[] = {ID_IN, ID_FILTER, ID_OUT};
    cudnnBackendDescriptor_t pack;
    TRY(create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    struct status *st =
        set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ARRAY_LEN(ids), ids);
    if (!st)
        st = set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, ARRAY_LEN(ids),
                 operands);
    if (!st)
        st = set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!st)
        st = finalize(pack);
    if (!st) {
        st = check(dnn.cudnnBackendExecute(gpu->dnn_handle, c->plan, pack), "cudnnBackendExecute");
        gpu_count_enqueued(gpu);
    }
    destroy(pack);
    return st;
}

struct status *gpu_convolve(struct kernel_ctx *ctx, const struct conv_job *job) {
    if (!has_dnn)
        return status_unimplemented("Convolutions on a GPU need cuDNN: %s", str_text(&why_missing));
    struct gpu_device *gpu = gpu_of(ctx);
    struct gpu_convolution *c;
    struct buffer *workspace = NULL;
    const void *operands[3];
    find_operands(job, operands);
    struct convolution_kind kind = kind_of(job, operands);
    TRY(gpu_lock(gpu));
    struct status *st = convolution_find(gpu, &kind, &c);
    int64_t workspace_bytes = st ? 0 : c->workspace_bytes;
    gpu_unlock(gpu);
    if (st)
        return st;
    if (workspace_bytes > 0)
        TRY(gpu_scratch(ctx, (size_t)workspace_bytes, &workspace));
    st = gpu_lock(gpu);
    if (!st) {
        st = convolution_find(gpu, &kind, &c); /* others may have made room meanwhile */
        if (!st)
            st = execute_locked(gpu, c, operands, workspace ? workspace->data : NULL);
        gpu_unlock(gpu);
    }
    buffer_unref(workspace);
    return st;
}
