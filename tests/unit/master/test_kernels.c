/* Kernels for the tests of folding and placement. They replace kernels/cpu/cpu_kernels.c, so that
 * the tests depend on the passes and not on the list of kernels. The linker takes this list instead
 * of the library's. */
#include "tests/unit/master/test_kernels.h"

#include "kernels/kernel.h"

static int n_calls;

int test_kernels_n_calls(void) { return n_calls; }

static enum kernel_result add(struct kernel_ctx *ctx) {
    n_calls++;
    const struct tensor *a = kernel_input(ctx, 0), *b = kernel_input(ctx, 1);
    if (a->n_elements != b->n_elements)
        return kernel_fail(ctx, status_invalid("Incompatible shapes"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, tensor_shape(a)));
    for (int64_t i = 0; i < a->n_elements; i++)
        ((float *)tensor_data(&ctx->outputs[0]))[i] =
            ((const float *)tensor_cdata(a))[i] + ((const float *)tensor_cdata(b))[i];
    return KERNEL_DONE;
}

/* Two halves of a vector. */
static enum kernel_result split(struct kernel_ctx *ctx) {
    n_calls++;
    const struct tensor *value = kernel_input(ctx, 1);
    int64_t half = value->n_elements / 2;
    KERNEL_TRY(ctx, tensor_slice_rows(value, 0, half, &ctx->outputs[0]));
    KERNEL_TRY(ctx, tensor_slice_rows(value, half, 2 * half, &ctx->outputs[1]));
    return KERNEL_DONE;
}

static enum kernel_result fill(struct kernel_ctx *ctx) {
    n_calls++;
    int64_t n = tensor_index_at(kernel_input(ctx, 0), 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){1, &n}));
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(&ctx->outputs[0]))[i] =
            *(const float *)tensor_cdata(kernel_input(ctx, 1));
    return KERNEL_DONE;
}

static enum kernel_result identity(struct kernel_ctx *ctx) {
    n_calls++;
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static enum kernel_result join(struct kernel_ctx *ctx) {
    n_calls++;
    struct str text = STR_INIT;
    for (int i = 0; i < 2; i++)
        str_add_bytes(&text, tensor_string(kernel_input(ctx, i), 0).data,
                      tensor_string(kernel_input(ctx, i), 0).len);
    struct bytes *bytes = bytes_new(text.data, text.len);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, bytes ? &bytes->object : NULL);
    str_fini(&text);
    return KERNEL_DONE;
}

#define FLOAT                        \
    {                                \
        { "T", DTYPE_BIT(DT_FLOAT) } \
    }

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "AddV2",      .constraints = FLOAT, .compute = add},
    {.op = "Split",      .constraints = FLOAT, .compute = split},
    {.op = "Fill",       .compute = fill},
    {.op = "Identity",   .compute = identity},
    {.op = "NoOp",       .compute = identity},
    {.op = "StringJoin", .compute = join},
    {.op = "MapDataset", .compute = identity, .flags = KERNEL_STATEFUL},
    {.op = "RandomUniform", .compute = identity, .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "QueueDequeueV2", .compute = identity, .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    /* elementwise, as far as passes can tell */
    {.op = "Tanh",       .constraints = FLOAT, .compute = add, .flags = KERNEL_ELEMENTWISE},
    {.op = "Maximum",    .constraints = FLOAT, .compute = add, .flags = KERNEL_ELEMENTWISE},
    {.op = "Minimum",    .constraints = FLOAT, .compute = add, .flags = KERNEL_ELEMENTWISE},
    {.op = "Max",        .constraints = FLOAT, .compute = add},
    {.op = "Sum",        .constraints = FLOAT, .compute = add},
    {.op = "ReadFile",   .compute = identity, .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
};
static const struct kernel_def gpu_rows[] = {
    {.op = "AddV2",      .constraints = FLOAT, .compute = add},
    {.op = "Tanh",       .constraints = FLOAT, .compute = add, .flags = KERNEL_ELEMENTWISE},
    {.op = "Maximum",    .constraints = FLOAT, .compute = add, .flags = KERNEL_ELEMENTWISE},
    {.op = "Minimum",    .constraints = FLOAT, .compute = add},
    {.op = "Sum",        .constraints = FLOAT, .compute = add},
    {.op = "Const",      .compute = identity},
    {.op = "VariableV2", .compute = identity},
    {.op = "Assign",     .compute = identity},
};
// clang-format on

static const struct kernel_list list = {rows, ARRAY_LEN(rows)},
                                gpu_list = {gpu_rows, ARRAY_LEN(gpu_rows)};
const struct kernel_list *const cpu_kernel_lists[] = {&list};
const size_t n_cpu_kernel_lists = 1;
static const struct kernel_list *const gpu_kernel_lists[] = {&gpu_list};

void test_kernels_add_gpu(void) { kernel_add_device_type("GPU", gpu_kernel_lists, 1); }
