/* Estimates the time of ops whose largest input does not tell it, for the CPU's cost rows.
 *
 * Each function answers both readers of kernels/cost.h. Where an execution is at hand, the function
 * looks at the inputs' values: the wanted shape, the limits of a range, the length of a string.
 * Where only shapes are known, it uses the output's size instead. All times are nanoseconds, as
 * doubles, so nothing overflows. */
#include "kernels/cpu/cost_estimates.h"

#include "common/graph/fused.h"
#include "kernels/cpu/fused/fused.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/host/resources/tensor_list.h"
#include "kernels/support/broadcast.h"
#include "kernels/support/isa.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"

enum { MANY = 256 }; /* at most this many elements of a list or a tensor are looked at */

static double of_elements(const struct cost_query *q, double n) {
    return n * (double)q->row->ns_per_element;
}

/* Returns NULL when the input is not there, or only its shape is known. */
static const struct tensor *value_of(const struct cost_query *q, int input) {
    const struct tensor *t = q->ctx && input < q->node->n_data ? &q->ctx->inputs[input] : NULL;
    return t && tensor_has_value(t) ? t : NULL;
}

/* Returns rank -1 when the input is not there. */
static struct shape shape_of(const struct cost_query *q, int input) {
    if (!q->ctx)
        return input < q->node->n_data ? q->in[input] : (struct shape){-1, NULL};
    const struct tensor *t = value_of(q, input);
    return t ? tensor_shape(t) : (struct shape){-1, NULL};
}

static double n_of_shape(struct shape shape) {
    double n = shape.rank >= 0;
    for (int d = 0; d < shape.rank; d++)
        n *= (double)shape.dims[d];
    return n;
}

static double n_of(const struct cost_query *q, int input) {
    if (!q->ctx)
        return n_of_shape(shape_of(q, input));
    const struct tensor *t = value_of(q, input);
    return t ? (double)t->n_elements : 0;
}

/* How many elements the execution makes: `by_values` when the inputs' values are known, else the
 * number of output 0. */
static double n_made(const struct cost_query *q, double by_values) {
    return q->ctx || q->node->n_outputs == 0 ? by_values : n_of_shape(q->out[0]);
}

static bool is_index(const struct tensor *t) {
    return t && (t->dtype == DT_INT32 || t->dtype == DT_INT64);
}

static double index_at(const struct tensor *t, int64_t i) {
    return (double)MAX(tensor_index_at(t, i), (int64_t)0);
}

/* The product of the sizes in an input. It is 0 where a size is bad, because the execution then
 * ends in an error. */
static double product_of(const struct cost_query *q, int input) {
    const struct tensor *t = value_of(q, input);
    double n = 1;
    for (int64_t i = 0; is_index(t) && i < MIN(t->n_elements, (int64_t)SHAPE_MAX_RANK); i++)
        n *= index_at(t, i);
    return n_made(q, is_index(t) ? n : 0);
}

/* ---- the output's shape is an input ---- */

double cost_shape_in_0(const struct cost_query *q) { return of_elements(q, product_of(q, 0)); }
double cost_shape_in_0_and_values(const struct cost_query *q) {
    return of_elements(q, product_of(q, 0) + n_of(q, 1));
}
double cost_shape_in_1(const struct cost_query *q) { return of_elements(q, product_of(q, 1)); }
double cost_shape_in_1_and_all(const struct cost_query *q) {
    return of_elements(q, product_of(q, 1) + n_of(q, 0) + n_of(q, 2));
}
double cost_shape_in_2(const struct cost_query *q) {
    return of_elements(q, product_of(q, 2) + n_of(q, 1));
}
double cost_shape_in_3(const struct cost_query *q) {
    return of_elements(q, product_of(q, 3) + n_of(q, 0));
}
/* Draws product(input 0) numbers for each parameter. Drawing a number takes longer than writing
 * it. */
double cost_draws(const struct cost_query *q) {
    return 20 * n_made(q, product_of(q, 0) * MAX(n_of(q, 1), 1.0));
}
double cost_many_draws(const struct cost_query *q) { return 30 * product_of(q, 0); }
double cost_many_draws_in_2(const struct cost_query *q) { return 30 * product_of(q, 2); }
double cost_random_in_0(const struct cost_query *q) { return 2 * product_of(q, 0); }
double cost_random_in_2(const struct cost_query *q) { return 2 * product_of(q, 2); }
double cost_times_1(const struct cost_query *q) {
    return of_elements(q, n_made(q, MAX(n_of(q, 0), 1.0) * product_of(q, 1)));
}

double cost_sampled(const struct cost_query *q) {
    struct shape logits = shape_of(q, 0);
    double n_rows = logits.rank > 0 ? (double)logits.dims[0] : 0;
    return 20 * n_made(q, n_rows * product_of(q, 1)) + 5 * n_of(q, 0);
}

/* The output has a row for each segment, however few rows are summed. */
double cost_segments(const struct cost_query *q) {
    double row = n_of(q, 0) / MAX(n_of(q, 1), 1.0);
    return of_elements(q, n_of(q, 0) + n_made(q, product_of(q, 2) * row));
}

/* As cost_segments, where input 3 says how many rows the output has: gradients of embeddings'
 * sums. */
double cost_sparse_segments(const struct cost_query *q) {
    struct shape data = shape_of(q, 0);
    double row = data.rank > 0 ? n_of(q, 0) / (double)MAX(data.dims[0], (int64_t)1) : 0;
    return of_elements(q, n_of(q, 0) + n_made(q, product_of(q, 3) * row) + n_of(q, 1) * row);
}

static double number_at(const struct tensor *t) {
    switch (t && t->n_elements == 1 ? t->dtype : DT_INVALID) {
    case DT_INT32:
        return *(const int32_t *)tensor_cdata(t);
    case DT_INT64:
        return (double)*(const int64_t *)tensor_cdata(t);
    case DT_FLOAT:
        return (double)*(const float *)tensor_cdata(t);
    case DT_DOUBLE:
        return *(const double *)tensor_cdata(t);
    default:
        return 0;
    }
}

double cost_range(const struct cost_query *q) {
    double n = (number_at(value_of(q, 1)) - number_at(value_of(q, 0))) / number_at(value_of(q, 2));
    n = n_made(q, n);
    return n > 0 ? of_elements(q, n) : 0; /* n is infinite or NaN when delta or a limit is bad */
}

/* Makes a range from start to limit, in steps of delta, for each row. Each of the three may be one
 * number for all rows. */
double cost_ragged_range(const struct cost_query *q) {
    const struct tensor *starts = value_of(q, 0), *limits = value_of(q, 1);
    double n = MAX(n_of(q, 0), MAX(n_of(q, 1), n_of(q, 2))), total = n;
    if (starts && limits && starts->n_elements == 1 && limits->n_elements == 1)
        return of_elements(q, n * cost_range(q));
    for (int64_t i = 0; is_index(limits) && i < MIN(limits->n_elements, (int64_t)MANY); i++)
        total += index_at(limits, i);
    return of_elements(q, total);
}

double cost_projected(const struct cost_query *q) {
    struct shape images = shape_of(q, 0);
    if (images.rank != 4)
        return 0;
    return 10 * n_made(q, (double)images.dims[0] * (double)images.dims[3] * product_of(q, 2));
}

double cost_padded(const struct cost_query *q) {
    const struct tensor *t = value_of(q, 0), *pads = value_of(q, 1);
    double n = 1;
    if (!q->ctx)
        return of_elements(q, n_made(q, 0));
    if (!t || !is_index(pads) || pads->n_elements != 2 * t->rank)
        return 0;
    for (int d = 0; d < t->rank; d++)
        n *= (double)tensor_dim(t, d) + index_at(pads, 2 * d) + index_at(pads, 2 * d + 1);
    return of_elements(q, n);
}

double cost_resized(const struct cost_query *q) {
    struct shape images = shape_of(q, 0);
    if (images.rank != 4)
        return 0;
    return 5 * n_made(q, (double)images.dims[0] * (double)images.dims[3] * product_of(q, 1)) +
           of_elements(q, n_of(q, 0));
}

double cost_cropped(const struct cost_query *q) {
    struct shape images = shape_of(q, 0), boxes = shape_of(q, 1);
    if (images.rank != 4 || boxes.rank != 2)
        return 0;
    return 5 * n_made(q, (double)boxes.dims[0] * (double)images.dims[3] * product_of(q, 3));
}

/* Makes a matrix of each vector. */
double cost_diagonal(const struct cost_query *q) {
    struct shape t = shape_of(q, 0);
    return t.rank > 0 ? of_elements(q, n_of(q, 0) * (double)t.dims[t.rank - 1]) : 0;
}
/* As cost_diagonal. The numbers of rows and columns are inputs, and -1 where they are not given. */
double cost_diagonal_in(const struct cost_query *q) {
    struct shape t = shape_of(q, 0);
    double last = t.rank > 0 ? (double)t.dims[t.rank - 1] : 0,
           batch = t.rank > 0 ? n_of(q, 0) / MAX(last, 1.0) : 0, rows = number_at(value_of(q, 2)),
           columns = number_at(value_of(q, 3));
    return of_elements(q, n_made(q, batch * MAX(rows, last) * MAX(columns, last)));
}
double cost_diagonal_of_all(const struct cost_query *q) {
    return of_elements(q, n_of(q, 0) * n_of(q, 0));
}

/* ---- outputs whose size follows from several inputs ---- */

double cost_all_inputs(const struct cost_query *q) {
    double n = 0;
    for (int i = 0; i < q->node->n_data; i++)
        n += n_of(q, i);
    return of_elements(q, n);
}

/* The number of elements that the inputs, but those left out, have after they are broadcast. */
static double n_broadcast(const struct cost_query *q, const bool *is_left_out) {
    double n = 1;
    int rank = 0, n_inputs = q->node->n_data;
    for (int i = 0; i < n_inputs; i++)
        rank = MAX(rank, shape_of(q, i).rank);
    for (int d = 1; d <= rank; d++) { /* the last dimension first */
        int64_t size = 1;
        for (int i = 0; i < n_inputs; i++) {
            if (is_left_out && is_left_out[i])
                continue;
            struct shape shape = shape_of(q, i);
            int64_t own = d <= shape.rank ? shape.dims[shape.rank - d] : 1;
            size = own != 1 ? own : size;
        }
        n *= (double)size;
    }
    return n;
}

double cost_broadcast(const struct cost_query *q) { return of_elements(q, n_broadcast(q, NULL)); }

/* A program that begins with a product or a GatherV2, where only shapes are known. */
static double fused_product_of_shapes(const struct cost_query *q) {
    struct fused_program program;
    struct shape in[BROADCAST_MAX_OPERANDS];
    struct status *st = fused_program_read(q->node, &program);
    if (st) {
        status_unref(st);
        return 0;
    }
    const struct node *product = program.instructions[0];
    const struct kernel_def *def = kernel_find(product, "CPU");
    double ns = 0;
    bool is_heavy = def && ((def->flags & KERNEL_PRODUCT) || node_is_op(product, "GatherV2"));
    if (is_heavy && product->n_data <= BROADCAST_MAX_OPERANDS) {
        for (int i = 0; i < product->n_data; i++)
            in[i] = q->in[product->inputs[i].src->id];
        ns = cost_of_shapes("CPU", product, in, q->out).ns;
    }
    fused_program_fini(&program);
    return ns;
}

/* What the inputs are broadcast to, without the axes of reductions. */
static double n_of_fused(const struct cost_query *q) {
    struct fused_program program;
    if (q->ctx)
        return n_broadcast(q, fused_axes_of(q->ctx->instance));
    struct status *st = fused_program_read(q->node, &program);
    if (st) {
        status_unref(st);
        return n_broadcast(q, NULL);
    }
    double n = n_broadcast(q, fused_program_axes(&program));
    fused_program_fini(&program);
    return n;
}

/* The instructions, and the values that are read and written. Where only shapes are known, each
 * instruction has the time of the row. */
double cost_fused(const struct cost_query *q) {
    const struct attr_value *program = node_attr(q->node, "program");
    double product = q->ctx ? fused_product_ns(q->ctx) : fused_product_of_shapes(q);
    if (product > 0)
        return product;
    double n = n_of_fused(q), ns;
    int n_moved = q->node->n_outputs;
    for (int i = 0; i < q->node->n_data; i++)
        n_moved += n_of(q, i) == n;
    if (q->ctx)
        ns = fused_ns_per_element(q->ctx->instance);
    else
        ns = program ? program->list.n_values * fused_instruction_ns((double)q->row->ns_per_element)
                     : 0;
    return n * (ns + FUSED_MOVE_NS * n_moved);
}

/* What a multiplication and an element of the larger input take. For floats one core with AVX-512
 * takes 0.018 ns at 64 x 1024 x 1024, 0.019 at 32 x 128 x 128, and 0.4 for an element at
 * 1 x 1024 x 1024 (bench/kernel_time). A placer asks for the machine of the rows, an execution for
 * this one. */
struct product_ns {
    double multiply, element;
};
static struct product_ns product_ns(const struct cost_query *q) {
    if (q->node->in_types[0] != DT_FLOAT || (q->ctx && !cpu_has_avx2()))
        return (struct product_ns){0.1, (double)q->row->ns_per_element};
    return (struct product_ns){q->ctx && !cpu_has_avx512() ? 2 * 0.018 : 0.018, 0.4};
}

/* Takes rows · depth · columns multiplications. */
double cost_matrix_product(const struct cost_query *q) {
    struct shape a = shape_of(q, 0), b = shape_of(q, 1);
    double n_a = n_of(q, 0), n_b = n_of(q, 1);
    bool transposes = false;
    if (a.rank < 2 || b.rank < 2 || n_a == 0 || n_b == 0)
        return 0;
    status_unref(
        node_get_b(q->node, q->node->op_name[0] == 'M' ? "transpose_a" : "adj_x", &transposes));
    double depth = (double)a.dims[a.rank - (transposes ? 2 : 1)];
    double columns = (double)b.dims[b.rank - 1] * (double)b.dims[b.rank - 2] / depth;
    struct product_ns ns = product_ns(q);
    return ns.element * MAX(n_a, n_b) + ns.multiply * n_a * MAX(columns, 1.0);
}

/* An upper limit for two operands, whatever the equation says. */
double cost_einsum(const struct cost_query *q) {
    struct shape a = shape_of(q, 0), b = shape_of(q, 1);
    double columns = a.rank >= 0 && a.rank <= 1 && b.rank >= 0 ? n_of(q, 1) : 1;
    if (b.rank > 1) {
        int64_t least = INT64_MAX;
        for (int d = 0; d < b.rank; d++)
            least = MIN(least, b.dims[d]);
        columns = n_of(q, 1) / (double)MAX(least, (int64_t)1);
    }
    return of_elements(q, MAX(n_of(q, 0), n_of(q, 1))) + 0.1 * n_of(q, 0) * columns;
}

double cost_sparse_product(const struct cost_query *q) {
    struct shape b = shape_of(q, 3);
    double columns = b.rank == 2 ? (double)MAX(b.dims[0], b.dims[1]) : 1;
    return n_of(q, 1) * columns + of_elements(q, n_of(q, 3));
}

/* ---- ops that copy a small part of a large input ---- */

/* Copies `n` slices. */
static double slices(enum dtype dtype, double n_slices, double slice_len) {
    double element = dtype_is_object(dtype) ? 20 : (double)dtype_size(dtype) * 0.1;
    return n_slices * (5 + slice_len * element);
}

static double gathered(const struct cost_query *q, enum dtype dtype, struct shape from,
                       int64_t axis, int64_t n_batch_dims) {
    axis = axis < 0 ? axis + from.rank : axis;
    if (axis < 0 || axis >= from.rank || from.dims[axis] == 0)
        return 0;
    double outer = 1, inner = 1;
    /* the indices have the batch dimensions as well */
    for (int64_t d = MAX(n_batch_dims, (int64_t)0); d < axis; d++)
        outer *= (double)from.dims[d];
    for (int d = (int)axis + 1; d < from.rank; d++)
        inner *= (double)from.dims[d];
    return slices(dtype, outer * n_of(q, 1), inner);
}

/* For shapes only: copies the output's elements in as many slices as there are indices. */
static double gathered_output(const struct cost_query *q) {
    double n_indices = MAX(n_of(q, 1), 1.0);
    return slices((enum dtype)q->node->out_types[0], n_indices, n_made(q, 0) / n_indices);
}

double cost_gather(const struct cost_query *q) {
    const struct tensor *from = value_of(q, 0), *axis = value_of(q, 2);
    int64_t n_batch_dims = 0;
    if (!q->ctx)
        return gathered_output(q);
    if (!from)
        return 0;
    if (axis && shape_of(q, 1).rank > 1)
        status_unref(node_get_i(q->node, "batch_dims", &n_batch_dims));
    return gathered(q, (enum dtype)from->dtype, tensor_shape(from),
                    is_index(axis) && axis->n_elements == 1 ? tensor_index_at(axis, 0) : 0,
                    n_batch_dims);
}

static double gathered_nd(const struct cost_query *q, enum dtype dtype, struct shape from) {
    struct shape indices = shape_of(q, 1);
    if (from.rank < 0 || indices.rank < 1)
        return 0;
    double inner = 1, n_slices = 1;
    for (int64_t d = indices.dims[indices.rank - 1]; d < from.rank; d++)
        inner *= (double)from.dims[d];
    for (int d = 0; d + 1 < indices.rank; d++)
        n_slices *= (double)indices.dims[d];
    return slices(dtype, n_slices, inner);
}

double cost_gather_nd(const struct cost_query *q) {
    return gathered_nd(q, (enum dtype)q->node->in_types[0], shape_of(q, 0));
}

/* Applies `estimate` to the present value of the variable that input 0's handle names. */
static double of_variable(const struct cost_query *q,
                          double (*estimate)(const struct cost_query *q, enum dtype dtype,
                                             struct shape from)) {
    struct variable *variable;
    struct status *st = variable_of_input((struct kernel_ctx *)q->ctx, 0, &variable);
    if (st) {
        status_unref(st);
        return 0;
    }
    pthread_mutex_lock(&variable->lock);
    const struct tensor *value = &variable->value;
    double ns =
        tensor_has_value(value) ? estimate(q, (enum dtype)value->dtype, tensor_shape(value)) : 0;
    pthread_mutex_unlock(&variable->lock);
    object_unref(&variable->object);
    return ns;
}

static double gathered_rows(const struct cost_query *q, enum dtype dtype, struct shape from) {
    return gathered(q, dtype, from, 0, 0);
}
double cost_resource_gather(const struct cost_query *q) {
    return q->ctx ? of_variable(q, gathered_rows) : gathered_output(q);
}
double cost_resource_gather_nd(const struct cost_query *q) {
    return q->ctx ? of_variable(q, gathered_nd) : gathered_output(q);
}

/* The table is not read as a whole. What counts is the rows that are copied, read and written, and
 * the indices. */
double cost_bytes_gather(const struct cost_query *q) {
    const struct node *node = q->node;
    return n_of_shape(q->in[1]) * (double)dtype_size((enum dtype)node->in_types[1]) +
           2 * n_of_shape(q->out[0]) * (double)dtype_size((enum dtype)node->out_types[0]);
}

/* ---- containers ---- */

/* Copies `n` elements like `t`. */
static double of_alike(const struct tensor *t, double n) {
    return tensor_has_value(t) ? slices((enum dtype)t->dtype, n, (double)t->n_elements) : 0;
}

double cost_tensor_array(const struct cost_query *q) {
    struct tensor_array *array;
    if (!q->ctx)
        return gathered_output(q);
    struct status *st = tensor_array_of_input((struct kernel_ctx *)q->ctx, &array);
    if (st) {
        status_unref(st);
        return 0;
    }
    pthread_mutex_lock(&array->lock);
    double ns = 0;
    for (int64_t i = 0; ns == 0 && i < MIN(array->n, (int64_t)MANY); i++)
        ns = of_alike(&array->elements[i].value, (double)array->n);
    pthread_mutex_unlock(&array->lock);
    object_unref(&array->object);
    return ns;
}

double cost_tensor_list(const struct cost_query *q) {
    const struct tensor *t = value_of(q, 0);
    const struct object *object = t && t->dtype == DT_VARIANT && t->n_elements == 1
                                      ? *(struct object *const *)tensor_cdata(t)
                                      : NULL;
    if (!q->ctx)
        return gathered_output(q);
    if (!object || object->type != &tensor_list_type)
        return 0;
    const struct tensor_list *list = CONTAINER_OF(object, const struct tensor_list, object);
    double ns = 0;
    for (int64_t i = 0; ns == 0 && i < MIN(list->n, (int64_t)MANY); i++)
        ns = of_alike(&list->elements[i], (double)list->n);
    return ns;
}

/* ---- strings: their bytes ---- */

double cost_text(const struct cost_query *q) {
    double ns = 0;
    for (int i = 0; i < q->node->n_data; i++) {
        const struct tensor *t = value_of(q, i);
        ns += of_elements(q, n_of(q, i));
        for (int64_t k = 0; t && t->dtype == DT_STRING && k < t->n_elements && ns <= COST_HEAVY_NS;
             k++)
            ns += 20 + 2 * (double)tensor_string(t, k).len;
    }
    return ns;
}

double cost_joined_segments(const struct cost_query *q) {
    return 20 * product_of(q, 2) + cost_text(q);
}
