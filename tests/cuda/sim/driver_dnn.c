/* cuDNN: the calls that the plugin makes. A descriptor is a record of the host with the attributes
 * that were set. Heuristics name four engines for each convolution, of which some plugins must not
 * take the first ones: it gives other bits in each run, it is compiled at its first use, it rounds
 * to TF32, and the last one does none of that and wants no workspace. A convolution is an operation
 * of the stream that the function gpu_convolution of MILLRACE_SIM_KERNELS computes. What is not
 * finalised, lacks an attribute or does not fit together is refused, and so is an operand that is
 * aligned less than its descriptor says. As in NVIDIA's engines, a filter is read in the order of
 * the images, whatever its strides are. */
#include "kernels/cuda/convolution_args.h"
#include "kernels/cuda/dnn_api.h"
#include "tests/cuda/sim/driver.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The library's numbers. */
enum { DNN_SUCCESS = 0, DNN_BAD_PARAM = 2000, DNN_NOT_SUPPORTED = 3000, DNN_FAILED = 5000 };
enum { MAX_PLANS = 1 << 16 }; /* whose end is noticed */
enum { MAX_ATTRIBUTES = 12, MAX_BYTES = 64, WORKSPACE_BYTES = 768 };
enum { ENGINE_RANDOM, ENGINE_COMPILED, ENGINE_TF32, ENGINE_PLAIN, N_ENGINES };

#define DNN_CALL(name, arguments) EXPORTED int name arguments;
#include "kernels/cuda/dnn_calls.inc"

struct cudnnContext {
    CUstream stream;
};

struct attribute {
    int name;
    int64_t n;
    char bytes[MAX_BYTES];
};
struct cudnnBackendDescriptor {
    int type;
    bool is_final;
    int n;
    struct attribute attributes[MAX_ATTRIBUTES];
    /* of a configuration and an engine, which heuristics fill in */
    int engine;
    struct cudnnBackendDescriptor *graph;
    int64_t workspace_bytes; /* of a plan */
    uint32_t number;         /* of a plan, from 1 */
};

static atomic_uint n_plans;
static atomic_bool destroyed[MAX_PLANS]; /* by a plan's number */

int cudnnCreate(cudnnHandle_t *ret) {
    BEGIN_LIBRARY(cudnnCreate);
    *ret = calloc(1, sizeof **ret);
    return *ret ? DNN_SUCCESS : DNN_FAILED;
}

int cudnnDestroy(cudnnHandle_t handle) {
    BEGIN_DESTROY(cudnnDestroy, handle);
    free(handle);
    return DNN_SUCCESS;
}

int cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
    BEGIN_LIBRARY(cudnnSetStream);
    handle->stream = stream;
    return DNN_SUCCESS;
}

/* ---- descriptors ---- */

int cudnnBackendCreateDescriptor(int type, cudnnBackendDescriptor_t *ret) {
    BEGIN_LIBRARY(cudnnBackendCreateDescriptor);
    *ret = calloc(1, sizeof **ret);
    if (!*ret)
        return DNN_FAILED;
    (*ret)->type = type;
    return DNN_SUCCESS;
}

int cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    BEGIN_DESTROY(cudnnBackendDestroyDescriptor, descriptor);
    if (descriptor->number > 0 && descriptor->number < MAX_PLANS)
        atomic_store(&destroyed[descriptor->number], true);
    memset(descriptor, 0xff, sizeof *descriptor); /* what still uses it is refused */
    free(descriptor);
    return DNN_SUCCESS;
}

static size_t size_of_type(int type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return 4;
    }
}

int cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n,
                             const void *elements) {
    BEGIN_LIBRARY(cudnnBackendSetAttribute);
    size_t size = size_of_type(type) * (size_t)n;
    if (descriptor->is_final || descriptor->n == MAX_ATTRIBUTES || size > MAX_BYTES)
        return DNN_BAD_PARAM;
    struct attribute *attribute = &descriptor->attributes[descriptor->n++];
    attribute->name = name;
    attribute->n = n;
    memcpy(attribute->bytes, elements, size);
    return DNN_SUCCESS;
}

static const struct attribute *find(const struct cudnnBackendDescriptor *descriptor, int name) {
    for (int i = 0; i < descriptor->n; i++)
        if (descriptor->attributes[i].name == name)
            return &descriptor->attributes[i];
    return NULL;
}

/* Copies `size` bytes of an attribute. Returns how many elements it has; 0 if there is none. */
static int64_t read_attribute(const struct cudnnBackendDescriptor *descriptor, int name, void *to,
                              size_t size) {
    const struct attribute *attribute = find(descriptor, name);
    if (!attribute)
        return 0;
    memcpy(to, attribute->bytes, size);
    return attribute->n;
}

/* A finalised descriptor of a type that another one names; NULL if there is none. */
static cudnnBackendDescriptor_t child(const struct cudnnBackendDescriptor *descriptor, int name,
                                      int type) {
    const struct attribute *attribute = find(descriptor, name);
    cudnnBackendDescriptor_t value;
    if (!attribute || attribute->n != 1)
        return NULL;
    memcpy(&value, attribute->bytes, sizeof value);
    return value->type == type && value->is_final ? value : NULL;
}

static bool has(const struct cudnnBackendDescriptor *descriptor, const int *names, int n) {
    for (int i = 0; i < n; i++)
        if (!find(descriptor, names[i]))
            return false;
    return true;
}

/* ---- the convolution of a graph ---- */

static int type_of(int data_type) {
    return data_type == CUDNN_DATA_HALF       ? PRODUCTS_F16
           : data_type == CUDNN_DATA_BFLOAT16 ? PRODUCTS_BF16
           : data_type == CUDNN_DATA_FLOAT    ? PRODUCTS_F32
           : data_type == CUDNN_DATA_DOUBLE   ? PRODUCTS_F64
                                              : -1;
}

/* Reads a tensor with 2 or 3 spatial dimensions as one with 3. Returns its type, or -1. */
static int read_tensor(const struct cudnnBackendDescriptor *tensor, int64_t id,
                       struct convolution_tensor *ret) {
    int64_t dims[MAX_BYTES / 8], strides[MAX_BYTES / 8], its_id;
    int type;
    if (!tensor ||
        read_attribute(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &ret->alignment, 8) != 1 ||
        ret->alignment < 1 ||
        read_attribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, &its_id, sizeof its_id) != 1 ||
        read_attribute(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, &type, sizeof type) != 1)
        return -1;
    int64_t rank = read_attribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, dims, sizeof dims);
    if (read_attribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, strides, sizeof strides) != rank ||
        (rank != 4 && rank != 5) || its_id != id)
        return -1;
    ret->dims[2] = 1;
    ret->strides[2] = 0;
    for (int64_t i = 0; i < rank; i++) {
        int64_t at = i < 2 ? i : i + 5 - rank;
        ret->dims[at] = dims[i];
        ret->strides[at] = strides[i];
        if (dims[i] < 1)
            return -1;
    }
    return type_of(type);
}

static bool read_spatial(const struct cudnnBackendDescriptor *window, int name, int64_t other,
                         int64_t ret[3]) {
    const struct attribute *attribute = find(window, name);
    if (!attribute || attribute->n < 2 || attribute->n > 3)
        return false;
    ret[0] = other;
    memcpy(ret + 3 - attribute->n, attribute->bytes, (size_t)attribute->n * 8);
    return true;
}

/* Do the sizes fit together? NVIDIA's engines for a filter's gradient may know one padding for both
 * sides, and then read beyond images where it would give other sizes. */
static bool fits(const struct convolution_args *args, const int64_t after[3]) {
    const int64_t *in = args->in.dims, *filter = args->filter.dims, *out = args->out.dims;
    if (in[0] != out[0] || out[1] != filter[0] || in[1] % filter[1] != 0 ||
        out[1] % (in[1] / filter[1]) != 0)
        return false;
    for (int i = 0; i < 3; i++) {
        int64_t window = (filter[2 + i] - 1) * args->rate[i] + 1,
                space = in[2 + i] + args->pad[i] + after[i] - window;
        if (args->pad[i] < 0 || after[i] < 0 || space < 0 ||
            space / args->stride[i] + 1 != out[2 + i])
            return false;
        int64_t even = in[2 + i] + 2 * args->pad[i] - window;
        if (args->direction == CONVOLUTION_BACKPROP_FILTER &&
            (even < 0 || even / args->stride[i] + 1 != out[2 + i]))
            return false;
    }
    return true;
}

/* The strides that engines use for the filter: channels last, or first. */
static void order_filter(struct convolution_args *args) {
    struct convolution_tensor *filter = &args->filter;
    bool is_last = args->in.strides[1] == 1 && args->out.strides[1] == 1;
    int64_t step = is_last ? filter->dims[1] : 1;
    for (int i = 4; i >= 2; i--) {
        filter->strides[i] = step;
        step *= filter->dims[i];
    }
    filter->strides[1] = is_last ? 1 : step;
    filter->strides[0] = is_last ? step : step * filter->dims[1];
}

static int read_graph(const struct cudnnBackendDescriptor *graph, struct convolution_args *args) {
    static const struct {
        int type, window, in, filter, out, beta;
    } rows[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    for (int d = 0; d < 3; d++) {
        cudnnBackendDescriptor_t operation =
            child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, rows[d].type);
        if (!operation)
            continue;
        cudnnBackendDescriptor_t window =
            child(operation, rows[d].window, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
        const int tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
        int64_t after[3];
        memset(args, 0, sizeof *args);
        args->direction = d;
        args->type = read_tensor(child(operation, rows[d].in, tensor), 1, &args->in);
        int filter = read_tensor(child(operation, rows[d].filter, tensor), 2, &args->filter);
        int out = read_tensor(child(operation, rows[d].out, tensor), 3, &args->out);
        bool is_right =
            window && find(operation, rows[d].beta) && args->type >= 0 && filter == args->type &&
            out == args->type && find(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) &&
            read_spatial(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1, args->stride) &&
            read_spatial(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1, args->rate) &&
            read_spatial(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0, args->pad) &&
            read_spatial(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0, after);
        order_filter(args);
        return is_right && fits(args, after) ? DNN_SUCCESS : DNN_BAD_PARAM;
    }
    return DNN_BAD_PARAM;
}

/* ---- finalising ---- */

static _Atomic int64_t workspace_bytes = WORKSPACE_BYTES;

EXPORTED void simSetWorkspace(int64_t size_bytes) {
    atomic_store(&workspace_bytes, size_bytes > 0 ? size_bytes : WORKSPACE_BYTES);
}

/* The engine for TF32 wants a workspace for every second kind of convolution, and has no plan for
 * some. */
static int64_t workspace_of(const struct cudnnBackendDescriptor *config,
                            const struct convolution_args *args) {
    return config->engine == ENGINE_TF32 && args->out.dims[1] % 2 == 0
               ? atomic_load(&workspace_bytes)
               : 0;
}

static int finalize_plan(struct cudnnBackendDescriptor *plan) {
    struct convolution_args args;
    cudnnBackendDescriptor_t config =
        child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!config || !config->graph || !find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
        return DNN_BAD_PARAM;
    int error = read_graph(config->graph, &args);
    if (!error && config->engine == ENGINE_TF32 && args.out.dims[1] % 3 == 0)
        error = DNN_NOT_SUPPORTED;
    if (!error) {
        plan->workspace_bytes = workspace_of(config, &args);
        plan->number = atomic_fetch_add(&n_plans, 1) + 1;
    }
    return error;
}

bool dnn_plan_is_there(uint32_t plan) {
    return plan >= MAX_PLANS || !atomic_load(&destroyed[plan]);
}

int cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    BEGIN_LIBRARY(cudnnBackendFinalize);
    static const int pack[] = {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                               CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                               CUDNN_ATTR_VARIANT_PACK_WORKSPACE};
    static const int heuristics[] = {CUDNN_ATTR_ENGINEHEUR_MODE,
                                     CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH};
    struct convolution_args args;
    int error = DNN_SUCCESS;
    if (descriptor->is_final)
        return DNN_BAD_PARAM;
    switch (descriptor->type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        error = find(descriptor, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) ? read_graph(descriptor, &args)
                                                                   : DNN_BAD_PARAM;
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        error = has(descriptor, heuristics, 2) ? DNN_SUCCESS : DNN_BAD_PARAM;
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        error = finalize_plan(descriptor);
        break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        error = has(descriptor, pack, 3) ? DNN_SUCCESS : DNN_BAD_PARAM;
        break;
    }
    descriptor->is_final = error == DNN_SUCCESS;
    return error;
}

/* ---- answers ---- */

static int answer_configs(const struct cudnnBackendDescriptor *heuristics, int64_t n_wanted,
                          int64_t *ret_n, cudnnBackendDescriptor_t *configs) {
    cudnnBackendDescriptor_t graph = child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                           CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    int mode = 0;
    read_attribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, &mode, sizeof mode);
    /* the plain engine is the fallback's only */
    int first = mode == CUDNN_HEUR_MODE_FALLBACK ? ENGINE_PLAIN : 0,
        last = mode == CUDNN_HEUR_MODE_FALLBACK ? ENGINE_PLAIN : ENGINE_TF32;
    if (!graph || n_wanted < last - first + 1)
        return DNN_BAD_PARAM;
    *ret_n = last - first + 1;
    for (int i = first; i <= last; i++) {
        configs[i - first]->engine = i;
        configs[i - first]->graph = graph;
        configs[i - first]->is_final = true;
    }
    return DNN_SUCCESS;
}

static int answer_note(int note, bool has_note, int64_t *ret_n, void *elements) {
    *ret_n = has_note;
    if (has_note)
        memcpy(elements, &note, sizeof note);
    return DNN_SUCCESS;
}

int cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, int name, int type,
                             int64_t n_wanted, int64_t *ret_n, void *elements) {
    BEGIN_LIBRARY(cudnnBackendGetAttribute);
    cudnnBackendDescriptor_t *configs = elements;
    if (!descriptor->is_final || size_of_type(type) == 0)
        return DNN_BAD_PARAM;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return answer_configs(descriptor, n_wanted, ret_n, configs);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        configs[0]->engine = descriptor->engine;
        configs[0]->is_final = true;
        *ret_n = 1;
        return DNN_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return answer_note(descriptor->engine == ENGINE_TF32
                               ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                               : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                           descriptor->engine == ENGINE_TF32 || descriptor->engine == ENGINE_RANDOM,
                           ret_n, elements);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        return answer_note(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                           descriptor->engine == ENGINE_COMPILED, ret_n, elements);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *ret_n = 1;
        *(int64_t *)elements = descriptor->workspace_bytes;
        return DNN_SUCCESS;
    default:
        return DNN_BAD_PARAM;
    }
}

/* ---- running ---- */

static struct sim_range range_of(const struct convolution_tensor *tensor, int type) {
    int64_t last = 0;
    for (int i = 0; i < 5; i++)
        last += (tensor->dims[i] - 1) * tensor->strides[i];
    size_t size = type == PRODUCTS_F64 ? 8 : type == PRODUCTS_F32 ? 4 : 2;
    return (struct sim_range){(CUdeviceptr)tensor->at, (size_t)(last + 1) * size};
}

static bool is_aligned(const struct convolution_tensor *tensor) {
    return (uintptr_t)tensor->at % (uintptr_t)tensor->alignment == 0;
}

int cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                        cudnnBackendDescriptor_t variant_pack) {
    BEGIN_LIBRARY(cudnnBackendExecute);
    struct convolution_args args;
    void *pointers[3], *workspace;
    int64_t ids[3];
    if (!handle || !plan->is_final || !variant_pack->is_final)
        return DNN_BAD_PARAM;
    cudnnBackendDescriptor_t config =
        child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!config || config->engine == ENGINE_RANDOM || config->engine == ENGINE_COMPILED ||
        read_graph(config->graph, &args) != DNN_SUCCESS)
        return DNN_BAD_PARAM;
    int64_t n_ids =
        read_attribute(variant_pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids, sizeof ids);
    int64_t n_pointers = read_attribute(variant_pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        pointers, sizeof pointers);
    if (n_ids != 3 || n_pointers != 3 ||
        read_attribute(variant_pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &workspace,
                       sizeof workspace) != 1)
        return DNN_BAD_PARAM;
    if (ids[0] != 1 || ids[1] != 2 || ids[2] != 3 ||
        (plan->workspace_bytes > 0) != (workspace != NULL))
        return DNN_BAD_PARAM;
    args.in.at = pointers[0];
    args.filter.at = pointers[1];
    args.out.at = pointers[2];
    if (!is_aligned(&args.in) || !is_aligned(&args.filter) || !is_aligned(&args.out))
        return DNN_BAD_PARAM;
    args.rounds_to_tf32 =
        config->engine == ENGINE_TF32 && args.type == PRODUCTS_F32 && sim.rounds_to_tf32;
    struct sim_range in = range_of(&args.in, args.type), filter = range_of(&args.filter, args.type),
                     out = range_of(&args.out, args.type);
    bool is_forward = args.direction == CONVOLUTION_FORWARD,
         makes_input = args.direction == CONVOLUTION_BACKPROP_INPUT;
    struct sim_range reads[] = {makes_input ? out : in, is_forward || makes_input ? filter : out};
    struct sim_range writes[] = {is_forward    ? out
                                 : makes_input ? in
                                               : filter,
                                 {(CUdeviceptr)workspace, (size_t)plan->workspace_bytes}};
    if (simIsNull())
        return DNN_SUCCESS;
    capture_name_plan(plan->number);
    CUresult result = simEnqueueHostOperation(handle->stream, "gpu_convolution", &args, sizeof args,
                                              reads, 2, writes, workspace ? 2 : 1);
    capture_name_plan(0);
    return result == CUDA_SUCCESS ? DNN_SUCCESS : DNN_FAILED;
}
