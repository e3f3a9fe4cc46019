/* Makes a plan of a convolution (dnn_plan.h).
 *
 * A convolution is described by descriptors: three tensors, the window, an operation, a graph of
 * that one operation. Heuristics then name engines, best first. The first one is taken that
 *
 *   is compiled already       others take up to a second at their first use, and want NVRTC
 *   gives the same bits       in every run
 *   computes in float         where TF32 is not allowed
 *   needs no more workspace   than the kind says
 *
 * An engine of which cuDNN makes no plan is passed over, with a line in the log unless cuDNN says
 * that it does not support the convolution.
 *
 * Tensors are described as cuDNN names dimensions, batch and channels first; their strides say how
 * they are stored, so channels of images may be last. Engines read filters in the order of the
 * images, whatever their strides say. Padding before and after may differ. */
#include "kernels/cuda/dnn_plan.h"

#include <stdlib.h>

#include "common/base/log.h"

enum { MAX_CONFIGS = 16, MAX_NOTES = 16, MAX_RANK = 5 };

/* ---- the parts of a graph ---- */

static void convolution_free(struct gpu_convolution *c) {
    dnn_destroy(c->plan);
    for (int i = c->n_kept - 1; i >= 0; i--)
        dnn_destroy(c->kept[i]);
    status_unref(c->why_none);
    free(c);
}

void convolution_unref(struct gpu_convolution *c) {
    if (c && atomic_fetch_sub(&c->n_refs, 1) == 1)
        convolution_free(c);
}

/* Creates a descriptor that lives as long as the plan. */
static struct status *keep_new(struct gpu_convolution *c, int type, cudnnBackendDescriptor_t *ret) {
    CHECK(c->n_kept < CONVOLUTION_MAX_KEPT);
    TRY(dnn_create(type, ret));
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
    TRY(dnn_set(*ret, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(dnn_set(*ret, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims));
    TRY(dnn_set(*ret, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides));
    TRY(dnn_set(*ret, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(dnn_set(*ret, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &kind->alignment));
    return dnn_finalize(*ret);
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

/* A filter: dimensions [out, in, window], stored as dnn_filter_is_channels_first says. */
static struct status *new_filter(struct gpu_convolution *c, const struct convolution_kind *kind,
                                 cudnnBackendDescriptor_t *ret) {
    const struct conv_shape *s = &kind->shape;
    bool is_first = kind->has_filter_channels_first;
    int64_t dims[MAX_RANK] = {s->out_channels, s->in_channels / s->groups}, strides[MAX_RANK];
    int skipped = first_spatial(s), n = 3 - skipped;
    int64_t step = is_first ? 1 : dims[1];
    for (int i = n - 1; i >= 0; i--) {
        dims[2 + i] = s->window[skipped + i];
        strides[2 + i] = step;
        step *= dims[2 + i];
    }
    strides[1] = is_first ? step : 1;
    strides[0] = conv_n_positions(s->window) * dims[1];
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
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, s->rate + skipped));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n,
                s->stride + skipped));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
                s->pad_before + skipped));
    TRY(dnn_set(*ret, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, after + skipped));
    return dnn_finalize(*ret);
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
    TRY(dnn_set(operation, operations[direction].alpha, type, 1,
                is_wide ? (const void *)&one_d : &one_f));
    return dnn_set(operation, operations[direction].beta, type, 1,
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
    TRY(dnn_set_descriptor(operation, operations[d].window, window));
    TRY(dnn_set_descriptor(operation, operations[d].in, in));
    TRY(dnn_set_descriptor(operation, operations[d].filter, filter));
    TRY(dnn_set_descriptor(operation, operations[d].out, out));
    TRY(dnn_finalize(operation));
    TRY(keep_new(c, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, ret));
    if (target->handle)
        TRY(dnn_set(*ret, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle));
    TRY(dnn_set_descriptor(*ret, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
    return dnn_finalize(*ret);
}

/* ---- choices ---- */

static bool has_note(const int *notes, int64_t n, int wanted) {
    for (int64_t i = 0; i < MIN(n, (int64_t)MAX_NOTES); i++)
        if (notes[i] == wanted)
            return true;
    return false;
}

/* What is known while engines are tried. */
struct search {
    const struct dnn_target *target;
    const struct convolution_kind *kind;
    struct gpu_convolution *found;
    struct status *failure;       /* of the first engine that failed */
    int64_t least_too_many_bytes; /* of workspace, among engines that want too many; 0: none */
};

static struct status *may_use(const struct convolution_kind *kind, cudnnBackendDescriptor_t config,
                              bool *ret) {
    cudnnBackendDescriptor_t engine = NULL;
    int numerical[MAX_NOTES], behavior[MAX_NOTES];
    int64_t n, n_numerical = 0, n_behavior = 0;
    TRY(dnn_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    struct status *st =
        dnn_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (!st)
        st = dnn_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                     &n_numerical, numerical);
    if (!st)
        st = dnn_get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES,
                     &n_behavior, behavior);
    dnn_destroy(engine);
    bool is_rounded = has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    /* inputs or partial sums of another type: large values would become infinite */
    bool is_narrowed =
        has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
        has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    *ret = !is_narrowed &&
           !has_note(numerical, n_numerical, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           !has_note(behavior, n_behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) &&
           !(is_rounded && kind->dtype == DT_FLOAT && !kind->allows_tf32);
    return st;
}

/* Takes the plan if it fits. */
static void consider(struct search *search, cudnnBackendDescriptor_t plan,
                     int64_t workspace_bytes) {
    if (workspace_bytes <= search->kind->max_workspace_bytes) {
        search->found->plan = plan;
        search->found->workspace_bytes = workspace_bytes;
        return;
    }
    if (!search->least_too_many_bytes || workspace_bytes < search->least_too_many_bytes)
        search->least_too_many_bytes = workspace_bytes;
}

/* Makes a plan of a configuration, and takes it if it fits. */
static struct status *try_plan(struct search *search, cudnnBackendDescriptor_t config) {
    const struct dnn_target *target = search->target;
    cudnnBackendDescriptor_t plan;
    int64_t n, workspace_bytes = 0;
    TRY(dnn_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    struct status *st =
        target->handle
            ? dnn_set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle)
            : dnn_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target->description);
    if (!st)
        st = dnn_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    int error = st ? 0 : dnn_api.cudnnBackendFinalize(plan);
    if (!st && !dnn_is_unsupported(error))
        st = dnn_check(error, "cudnnBackendFinalize");
    if (!st && error == 0)
        st = dnn_get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                     &workspace_bytes);
    if (!st && error == 0)
        consider(search, plan, workspace_bytes);
    if (!search->found->plan)
        dnn_destroy(plan);
    return st;
}

/* Goes on after a failure. Another engine may do. */
static void pass_over_take(struct search *search, const char *what, struct status *st) {
    if (!st)
        return;
    log_event(EVENT_GPU_TROUBLE, "%s of cuDNN is passed over: %s", what, status_message(st));
    if (!search->failure)
        search->failure = st;
    else
        status_unref(st);
}

/* Takes the configuration if its engine will do, and the configuration then. */
static void try_config(struct search *search, cudnnBackendDescriptor_t *config) {
    bool is_usable = false;
    struct status *st = may_use(search->kind, *config, &is_usable);
    if (!st && is_usable)
        st = try_plan(search, *config);
    if (search->found->plan) {
        search->found->kept[search->found->n_kept++] = *config;
        *config = NULL;
    }
    pass_over_take(search, "An engine", st);
}

/* Takes the first configuration that will do among those that one mode of the heuristics names. */
static struct status *search_mode(struct search *search, cudnnBackendDescriptor_t heuristics,
                                  int mode) {
    cudnnBackendDescriptor_t configs[MAX_CONFIGS] = {NULL};
    struct status *st = NULL;
    int64_t n = 0;
    TRY(dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    int error = dnn_api.cudnnBackendFinalize(heuristics);
    if (dnn_is_unsupported(error))
        return NULL;
    TRY(dnn_check(error, "cudnnBackendFinalize"));
    for (int i = 0; i < MAX_CONFIGS; i++)
        TRY_OUT(dnn_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    TRY_OUT(dnn_get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    MAX_CONFIGS, &n, configs));
    for (int64_t i = 0; i < MIN(n, (int64_t)MAX_CONFIGS) && !search->found->plan; i++)
        try_config(search, &configs[i]);
out:
    for (int i = 0; i < MAX_CONFIGS; i++)
        dnn_destroy(configs[i]);
    return st;
}

static void search_all(struct search *search, cudnnBackendDescriptor_t graph) {
    static const int modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (size_t i = 0; i < ARRAY_LEN(modes) && !search->found->plan; i++) {
        cudnnBackendDescriptor_t heuristics = NULL;
        struct status *st = dnn_create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);
        if (!st)
            st = dnn_set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        if (!st && search->target->description)
            st = dnn_set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                    search->target->description);
        if (!st)
            st = search_mode(search, heuristics, modes[i]);
        dnn_destroy(heuristics);
        pass_over_take(search, "A mode of the heuristics", st);
    }
}

static struct status *why_none(const struct search *search) {
    if (search->least_too_many_bytes)
        return status_exhausted("cuDNN wants at least %lld bytes of workspace for this "
                                "convolution, of which it may have %lld",
                                (long long)search->least_too_many_bytes,
                                (long long)search->kind->max_workspace_bytes);
    return status_unimplemented("cuDNN has no engine for this convolution of %s on this GPU",
                                dtype_name((enum dtype)search->kind->dtype));
}

struct status *convolution_new(const struct dnn_target *target, const struct convolution_kind *kind,
                               struct gpu_convolution **ret) {
    struct gpu_convolution *c = xcalloc(1, sizeof *c);
    struct search search = {.target = target, .kind = kind, .found = c};
    cudnnBackendDescriptor_t graph;
    atomic_init(&c->n_refs, 1);
    memcpy(&c->kind, kind, sizeof *kind); /* with its padding */
    struct status *st = new_graph(c, target, kind, &graph);
    if (!st)
        search_all(&search, graph);
    if (!st && !c->plan && search.failure) {
        st = search.failure;
        search.failure = NULL;
    }
    status_unref(search.failure);
    if (st) {
        convolution_unref(c);
        return st;
    }
    if (!c->plan)
        c->why_none = why_none(&search);
    *ret = c;
    return NULL;
}
