/* Resolves strided slices (strided_slice.h). */
#include "common/ops/strided_slice.h"

/* The entries for the dimensions of the input, before their sizes are used. */
struct dense {
    int rank;
    int64_t begin[SHAPE_MAX_RANK], end[SHAPE_MAX_RANK], stride[SHAPE_MAX_RANK];
    bool begin_masked[SHAPE_MAX_RANK], end_masked[SHAPE_MAX_RANK], is_shrunk[SHAPE_MAX_RANK];
    /* for each output dimension: that of the input, or SLICE_NEW_AXIS */
    int gather[SHAPE_MAX_RANK], n_gather;
};

struct status *strided_slice_masks_read(const struct node *node, struct strided_slice_masks *ret) {
    int64_t begin, end, ellipsis, new_axis, shrink_axis;
    TRY(node_get_i32(node, "begin_mask", &begin));
    TRY(node_get_i32(node, "end_mask", &end));
    TRY(node_get_i32(node, "ellipsis_mask", &ellipsis));
    TRY(node_get_i32(node, "new_axis_mask", &new_axis));
    TRY(node_get_i32(node, "shrink_axis_mask", &shrink_axis));
    if ((uint64_t)ellipsis & ((uint64_t)ellipsis - 1))
        return status_invalid("Multiple ellipses in slice spec not allowed");
    *ret = (struct strided_slice_masks){(uint64_t)begin, (uint64_t)end, (uint64_t)ellipsis,
                                        (uint64_t)new_axis, (uint64_t)shrink_axis};
    return NULL;
}

static int64_t value_at(const struct tensor *t, int i) {
    return t->dtype == DT_INT16 ? (int64_t)((const int16_t *)tensor_cdata(t))[i]
                                : tensor_index_at(t, i);
}

static bool bit(uint64_t mask, int i) { return i < 64 && (mask >> i & 1); }

static struct status *gather_add(struct dense *dense, int from) {
    if (dense->n_gather >= SHAPE_MAX_RANK)
        return status_invalid("The slice has more than %d dimensions", SHAPE_MAX_RANK);
    dense->gather[dense->n_gather++] = from;
    return NULL;
}

static struct status *add_whole(struct dense *dense, int *at, int until) {
    for (; *at < until; (*at)++) {
        dense->begin[*at] = dense->end[*at] = 0;
        dense->stride[*at] = 1;
        dense->begin_masked[*at] = dense->end_masked[*at] = true;
        dense->is_shrunk[*at] = false;
        TRY(gather_add(dense, *at));
    }
    return NULL;
}

/* Visits the entries one by one. The ellipsis takes the dimensions that the others leave. When none
 * is given, there is one at the end. */
static struct status *dense_build(const struct strided_slice_masks *masks, int rank,
                                  const struct tensor *begin, const struct tensor *end,
                                  const struct tensor *strides, struct dense *dense) {
    int n = (int)strides->n_elements, at = 0, n_new_after = 0;
    bool ellipsis_seen = false;
    dense->rank = rank;
    dense->n_gather = 0;
    for (int i = 0; i < n; i++) {
        if (ellipsis_seen && bit(masks->new_axis, i))
            n_new_after++;
        ellipsis_seen |= bit(masks->ellipsis, i);
    }
    for (int i = 0; i < n; i++) {
        if (bit(masks->ellipsis, i)) {
            TRY(add_whole(dense, &at, MIN(rank - (n - i) + 1 + n_new_after, rank)));
        } else if (bit(masks->new_axis, i)) {
            TRY(gather_add(dense, SLICE_NEW_AXIS));
        } else {
            if (at == rank)
                return status_invalid(
                    "Index out of range using input dim %d; input has only %d dims", at, rank);
            dense->begin[at] = begin ? value_at(begin, i) : 0;
            dense->end[at] = end ? value_at(end, i) : 0;
            dense->stride[at] = value_at(strides, i);
            dense->begin_masked[at] = bit(masks->begin, i);
            dense->end_masked[at] = bit(masks->end, i);
            dense->is_shrunk[at] = bit(masks->shrink_axis, i);
            if (!dense->is_shrunk[at])
                TRY(gather_add(dense, at));
            at++;
        }
    }
    return ellipsis_seen ? NULL : add_whole(dense, &at, rank);
}

/* Clamps a begin or end to the dimension. A negative number counts from the end, and the direction
 * of the stride decides the limits. */
static int64_t canonical(int64_t index, int64_t size, bool forward) {
    int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
    int64_t at = index < 0 ? index + size : index;
    return at < low ? low : at > high ? high : at;
}

static int64_t count_steps(int64_t length, int64_t stride) {
    if (length == 0 || (length < 0) != (stride < 0))
        return 0;
    /* Both have the same sign. Unsigned division also handles the most negative stride. */
    uint64_t n = length < 0 ? 0 - (uint64_t)length : (uint64_t)length,
             step = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
    return (int64_t)(n / step + (n % step != 0));
}

static struct status *resolve_dim(const struct dense *dense, int i, int64_t size, bool values_known,
                                  struct strided_slice *ret) {
    int64_t stride = dense->stride[i];
    bool is_whole = dense->begin_masked[i] && dense->end_masked[i], forward = stride > 0;
    if (stride == 0)
        return status_invalid("strides[%d] must be non-zero", i);
    if (dense->is_shrunk[i] && !forward)
        return status_invalid("only stride 1 allowed on non-range indexing.");
    ret->stride[i] = dense->is_shrunk[i] ? 1 : stride;
    ret->begin[i] = 0;
    if (size < 0 || (!values_known && !is_whole)) {
        ret->size[i] = dense->is_shrunk[i] ? 1 : -1;
        return NULL;
    }
    if (dense->is_shrunk[i]) {
        /* one index has no mask */
        int64_t index = dense->begin[i], at = index < 0 ? index + size : index;
        if (values_known && (at < 0 || at >= size))
            return status_invalid("slice index %lld of dimension %d out of bounds.",
                                  (long long)index, i);
        ret->begin[i] = at;
        ret->size[i] = 1;
        return NULL;
    }
    int64_t begin = dense->begin_masked[i] ? (forward ? 0 : size - 1)
                                           : canonical(dense->begin[i], size, forward);
    int64_t end =
        dense->end_masked[i] ? (forward ? size : -1) : canonical(dense->end[i], size, forward);
    ret->begin[i] = begin;
    ret->size[i] = count_steps(end - begin, stride);
    return NULL;
}

struct status *strided_slice_resolve(const struct strided_slice_masks *masks, struct shape in,
                                     const struct tensor *begin, const struct tensor *end,
                                     const struct tensor *strides, struct strided_slice *ret) {
    if (strides->rank != 1 ||
        (begin && (begin->rank != 1 || begin->n_elements != strides->n_elements)) ||
        (end && (end->rank != 1 || end->n_elements != strides->n_elements)) ||
        strides->n_elements > SHAPE_MAX_RANK)
        return status_invalid("Expected begin, end, and strides to be 1D equal size tensors, but "
                              "got ranks %d, %d, %d and %lld, %lld, %lld elements",
                              begin ? begin->rank : 1, end ? end->rank : 1, strides->rank,
                              (long long)(begin ? begin->n_elements : -1),
                              (long long)(end ? end->n_elements : -1),
                              (long long)strides->n_elements);
    struct dense dense;
    TRY(dense_build(masks, in.rank, begin, end, strides, &dense));
    ret->rank = in.rank;
    for (int i = 0; i < in.rank; i++)
        TRY(resolve_dim(&dense, i, in.dims[i], begin && end, ret));
    ret->out_rank = dense.n_gather;
    for (int i = 0; i < dense.n_gather; i++) {
        ret->source[i] = dense.gather[i];
        ret->out[i] = dense.gather[i] == SLICE_NEW_AXIS ? 1 : ret->size[dense.gather[i]];
    }
    return NULL;
}
