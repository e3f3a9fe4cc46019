/* Reads and checks index tensors; see array_index.h. */
#include "kernels/cpu/array/array_index.h"

#include <stdio.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"

struct status *bad_index_policy_read(const struct node *node, enum bad_index_policy *ret) {
    struct span policy = {"", 0};
    if (node_attr(node, "bad_indices_policy"))
        TRY(node_get_s(node, "bad_indices_policy", &policy));
    if (span_is(policy, "IGNORE"))
        *ret = BAD_INDEX_IS_SKIPPED;
    else if (span_is(policy, "") || span_is(policy, "DEFAULT") || span_is(policy, "ERROR"))
        *ret = BAD_INDEX_FAILS;
    else
        return status_invalid("Unknown bad_indices_policy attribute: %.*s",
                              (int)MIN(policy.len, 64), policy.data);
    return NULL;
}

int64_t index_rows_flatten(const struct tensor *indices, int depth, struct shape shape, int64_t n,
                           int64_t *ret) {
    int64_t first_bad = -1;
    const void *data = tensor_cdata(indices);
    enum dtype dtype = tensor_dtype(indices);
    for (int64_t row = 0; row < n && pool_goes_on(row); row++) {
        uint64_t flat = 0;
        bool is_bad = false;
        for (int d = 0; d < depth; d++) {
            int64_t at = index_of(dtype, data, row * depth + d);
            is_bad |= (uint64_t)at >= (uint64_t)shape.dims[d];
            flat = flat * (uint64_t)shape.dims[d] + (uint64_t)at;
        }
        ret[row] = is_bad ? -1 : (int64_t)flat;
        if (is_bad && first_bad < 0)
            first_bad = row;
    }
    return first_bad;
}

struct status *index_row_bad(const struct tensor *indices, int depth, int64_t row, const char *what,
                             struct shape shape) {
    struct str text = STR_INIT;
    struct shape rows = {indices->rank > 0 ? indices->rank - 1 : 0, tensor_dims(indices)};
    if (rows.rank > 0)
        str_add(&text, SHAPE_INDEX_TEXT(rows, row));
    str_add(&text, " = [");
    for (int d = 0; d < depth; d++)
        str_addf(
            &text, "%s%lld", d ? ", " : "",
            (long long)index_of(tensor_dtype(indices), tensor_cdata(indices), row * depth + d));
    struct status *st = status_invalid("indices%s] does not index into %s %s", str_text(&text),
                                       what, SHAPE_TEXT(shape));
    str_fini(&text);
    return st;
}

/* ---- copying slices ---- */

struct slices {
    enum dtype dtype;
    char *to;
    const char *from;
    const int64_t *at;
    int64_t len;
    size_t bytes; /* of one slice */
};

static void copy_objects(const struct slices *job, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        struct object **to = (struct object **)(void *)job->to + i * job->len;
        struct object *const *from =
            (struct object *const *)(const void *)job->from + job->at[i] * job->len;
        for (int64_t k = 0; job->at[i] >= 0 && k < job->len; k++)
            to[k] = object_ref(from[k]);
    }
}

#define COPY_SINGLES(type)                                        \
    do {                                                          \
        type *to = (type *)(void *)job->to;                       \
        const type *from = (const type *)(const void *)job->from; \
        for (int64_t i = begin; i < end; i++)                     \
            to[i] = job->at[i] >= 0 ? from[job->at[i]] : 0;       \
    } while (0)

static void copy_share(void *arg, int64_t begin, int64_t end) {
    const struct slices *job = arg;
    if (dtype_is_object(job->dtype)) {
        copy_objects(job, begin, end);
    } else if (job->bytes == 4) {
        COPY_SINGLES(uint32_t);
    } else if (job->bytes == 8) {
        COPY_SINGLES(uint64_t);
    } else {
        for (int64_t i = begin; i < end; i++) {
            char *to = job->to + (size_t)i * job->bytes;
            if (job->at[i] >= 0)
                memcpy(to, job->from + (size_t)job->at[i] * job->bytes, job->bytes);
            else
                memset(to, 0, job->bytes);
        }
    }
}

void index_copy_slices(enum dtype dtype, void *to, const void *from, const int64_t *at, int64_t n,
                       int64_t len, struct pool *pool) {
    struct slices job = {dtype, to, from, at, len, (size_t)len * dtype_size(dtype)};
    if (len == 0 || n == 0)
        return;
    pool_parallel_for(pool, n, 4.0 + (double)job.bytes * 0.15, copy_share, &job);
}
