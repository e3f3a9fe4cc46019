/* Computes StringJoin, ReduceJoin and UnsortedSegmentJoin. */
#include <stdlib.h>

#include "kernels/host/text/string_internal.h"

struct join_state {
    struct span separator; /* borrowed from the node */
    bool keep_dims;
};

struct status *string_join_init(struct kernel_init *init) {
    struct join_state state = {0};
    TRY(node_get_s(init->node, "separator", &state.separator));
    if (node_attr(init->node, "keep_dims"))
        TRY(node_get_b(init->node, "keep_dims", &state.keep_dims));
    init->state = xmalloc(sizeof(state));
    memcpy(init->state, &state, sizeof(state));
    return NULL;
}

/* StringJoin: joins element by element, with the separator between. A scalar is joined with every
 * element.
 * Errors   INVALID_ARGUMENT   shapes differ */
enum kernel_result string_join(struct kernel_ctx *ctx) {
    const struct join_state *state = ctx->instance->state;
    int n_inputs = ctx->instance->n_inputs;
    const struct tensor *model = NULL;
    for (int i = 0; i < n_inputs; i++) {
        const struct tensor *input = kernel_input(ctx, i);
        if (input->rank == 0)
            continue;
        if (!model)
            model = input;
        if (unlikely(!shape_equal(tensor_shape(model), tensor_shape(input)))) {
            struct status *st = status_invalid("Input shapes do not match: %s vs. %s",
                                               TENSOR_SHAPE_TEXT(model), TENSOR_SHAPE_TEXT(input));
            return kernel_fail(ctx, st);
        }
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, model ? tensor_shape(model) : SHAPE_SCALAR));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < ctx->outputs[0].n_elements && text_goes_on(i); i++) {
        size_t len = n_inputs > 1 ? state->separator.len * (size_t)(n_inputs - 1) : 0;
        for (int k = 0; k < n_inputs; k++)
            len += tensor_string(&ctx->inputs[k], ctx->inputs[k].rank ? i : 0).len;
        struct bytes *joined = bytes_new_uninit(len);
        char *at = joined ? joined->data : NULL;
        for (int k = 0; joined && k < n_inputs; k++) {
            struct span part = tensor_string(&ctx->inputs[k], ctx->inputs[k].rank ? i : 0);
            if (k > 0)
                at = (char *)memcpy(at, state->separator.data, state->separator.len) +
                     state->separator.len;
            at = (char *)memcpy(at, part.data, part.len) + part.len;
        }
        out[i] = joined;
    }
    return KERNEL_DONE;
}

/* ---- ReduceJoin ---- */

/* Reads the dimensions to join over, in the requested order. */
static struct status *join_axes(const struct tensor *inputs, const struct tensor *axes,
                                int *ret_axes, bool *is_joined) {
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t asked = tensor_index_at(axes, i), axis = asked < 0 ? asked + inputs->rank : asked;
        if (unlikely(axis < 0 || axis >= inputs->rank))
            return status_out_of_range(
                "Invalid reduction dimension %lld for input with %d dimension(s)", (long long)asked,
                inputs->rank);
        if (unlikely(is_joined[axis]))
            return status_invalid("Duplicate reduction dimension %lld", (long long)asked);
        is_joined[axis] = true;
        ret_axes[i] = (int)axis; /* at most `rank` of them pass the checks, so there is room */
    }
    return NULL;
}

/* Walks some dimensions of a tensor, of which the last advances fastest. */
struct walk {
    int rank;
    int64_t dims[SHAPE_MAX_RANK], strides[SHAPE_MAX_RANK], index[SHAPE_MAX_RANK];
    int64_t offset;
};

static void walk_add(struct walk *walk, int64_t dim, int64_t stride) {
    walk->dims[walk->rank] = dim;
    walk->strides[walk->rank] = stride;
    walk->index[walk->rank++] = 0;
}

static int64_t walk_n_elements(const struct walk *walk) {
    int64_t n = 1;
    for (int i = 0; i < walk->rank; i++)
        n *= walk->dims[i];
    return n;
}

static void walk_next(struct walk *walk) {
    for (int i = walk->rank; i-- > 0;) {
        walk->offset += walk->strides[i];
        if (++walk->index[i] < walk->dims[i])
            return;
        walk->offset -= walk->dims[i] * walk->strides[i];
        walk->index[i] = 0;
    }
}

/* ReduceJoin: joins the strings along dimensions. The first requested dimension advances fastest.
 *   inputs              string
 *   reduction_indices   int32
 *   output              string, without those dimensions (with size 1 if keep_dims)
 * Errors    OUT_OF_RANGE       no such dimension
 *           INVALID_ARGUMENT   a dimension twice */
enum kernel_result string_reduce_join(struct kernel_ctx *ctx) {
    const struct join_state *state = ctx->instance->state;
    const struct tensor *inputs = kernel_input(ctx, 0), *axes = kernel_input(ctx, 1);
    int chosen[SHAPE_MAX_RANK];
    bool is_joined[SHAPE_MAX_RANK] = {false};
    KERNEL_TRY(ctx, join_axes(inputs, axes, chosen, is_joined));
    if (axes->n_elements == 0) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    int64_t strides[SHAPE_MAX_RANK], dims[SHAPE_MAX_RANK], stride = 1;
    for (int i = inputs->rank; i-- > 0; stride *= inputs->n_elements ? tensor_dim(inputs, i) : 0)
        strides[i] = stride;
    struct walk outer_ends = {0}, inner = {0};
    int out_rank = 0;
    for (int i = 0; i < inputs->rank; i++) {
        if (!is_joined[i])
            walk_add(&outer_ends, tensor_dim(inputs, i), strides[i]);
        if (!is_joined[i] || state->keep_dims)
            dims[out_rank++] = is_joined[i] ? 1 : tensor_dim(inputs, i);
    }
    for (int64_t i = axes->n_elements; i-- > 0;)
        walk_add(&inner, tensor_dim(inputs, chosen[i]), strides[chosen[i]]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, (struct shape){out_rank, dims}));
    if (inputs->n_elements == 0) /* a join without elements is an empty string */
        return KERNEL_DONE;
    struct bytes **out = string_elements(&ctx->outputs[0]);
    int64_t n_joined = walk_n_elements(&inner);
    struct str joined = STR_INIT;
    for (int64_t i = 0; i < ctx->outputs[0].n_elements; i++, walk_next(&outer_ends)) {
        str_clear(&joined);
        for (int64_t k = 0; k < n_joined && text_goes_on(i + k); k++, walk_next(&inner)) {
            struct span part = tensor_string(inputs, outer_ends.offset + inner.offset);
            if (k > 0)
                str_add_bytes(&joined, state->separator.data, state->separator.len);
            str_add_bytes(&joined, part.data, part.len);
        }
        out[i] = text_new(joined.data, joined.len);
    }
    str_fini(&joined);
    return KERNEL_DONE;
}

/* ---- UnsortedSegmentJoin ---- */

static struct status *check_segments(const struct tensor *inputs, const struct tensor *ids,
                                     const struct tensor *n_segments) {
    if (unlikely(n_segments->rank != 0))
        return status_invalid("Number of segments must be a scalar");
    if (unlikely(tensor_index_at(n_segments, 0) < 0))
        return status_invalid("Number of segments must be non-negative but got %lld",
                              (long long)tensor_index_at(n_segments, 0));
    if (unlikely(ids->rank == 0))
        return status_invalid("Segment_id cannot have rank 0");
    if (unlikely(ids->rank > inputs->rank))
        return status_invalid("Segment_id rank %d exceeds the input's rank %d", ids->rank,
                              inputs->rank);
    for (int i = 0; i < ids->rank; i++) {
        if (unlikely(tensor_dim(ids, i) != tensor_dim(inputs, i)))
            return status_invalid(
                "Segment dimension is %lld while input dimension is %lld in rank %d",
                (long long)tensor_dim(ids, i), (long long)tensor_dim(inputs, i), i);
    }
    for (int64_t i = 0; i < ids->n_elements; i++) {
        int64_t id = tensor_index_at(ids, i);
        if (unlikely(id < 0 || id >= tensor_index_at(n_segments, 0)))
            return status_invalid(
                "segment_ids are not allowed to exceed num_segments or to have negative values.");
    }
    return NULL;
}

/* UnsortedSegmentJoin: joins the rows of each segment, in their order. A segment without rows has
 * empty strings.
 *   inputs         string [ids' shape, rest...]
 *   segment_ids    Tindices
 *   num_segments   scalar
 *   output         string [num_segments, rest...]
 * Errors    INVALID_ARGUMENT   shapes, or an id outside of [0, num_segments) */
enum kernel_result string_unsorted_segment_join(struct kernel_ctx *ctx) {
    const struct join_state *state = ctx->instance->state;
    const struct tensor *inputs = kernel_input(ctx, 0), *ids = kernel_input(ctx, 1),
                        *n_segments = kernel_input(ctx, 2);
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    KERNEL_TRY(ctx, check_segments(inputs, ids, n_segments));
    dims[rank++] = tensor_index_at(n_segments, 0);
    for (int i = ids->rank; i < inputs->rank; i++)
        dims[rank++] = tensor_dim(inputs, i);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, (struct shape){rank, dims}));
    int64_t n_out = ctx->outputs[0].n_elements,
            inner = ids->n_elements ? inputs->n_elements / ids->n_elements : 0;
    if (n_out == 0 || inner == 0)
        return KERNEL_DONE;
    /* Computes first the lengths, then the bytes. `places` holds the length of each output with its
     * separators, then how many bytes of it are written. As in TensorFlow, a separator is written
     * only after an output that is not empty. */
    struct bytes **out = string_elements(&ctx->outputs[0]);
    size_t *places = calloc((size_t)n_out, sizeof(*places)), separator_len = state->separator.len;
    if (!places)
        return kernel_fail(ctx,
                           status_exhausted("no memory to join %lld segments", (long long)n_out));
    for (int64_t i = 0; i < inputs->n_elements && text_goes_on(i); i++) {
        int64_t to = tensor_index_at(ids, i / inner) * inner + i % inner;
        places[to] += tensor_string(inputs, i).len + (places[to] ? separator_len : 0);
    }
    bool is_unwanted = pool_is_unwanted(); /* then lengths are missing */
    for (int64_t i = 0; i < n_out && !is_unwanted; i++) {
        out[i] = bytes_new_uninit(places[i]);
        places[i] = 0;
    }
    for (int64_t i = 0; i < inputs->n_elements && !is_unwanted && text_goes_on(i); i++) {
        int64_t to = tensor_index_at(ids, i / inner) * inner + i % inner;
        struct span part = tensor_string(inputs, i);
        if (!out[to])
            continue;
        char *at = out[to]->data;
        if (places[to]) {
            memcpy(at + places[to], state->separator.data, separator_len);
            places[to] += separator_len;
        }
        memcpy(at + places[to], part.data, part.len);
        places[to] += part.len;
    }
    free(places);
    return KERNEL_DONE;
}
