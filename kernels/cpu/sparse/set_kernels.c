/* Runs set operations along the last dimension of dense or sparse tensors: difference,
 * intersection, union and size. A group is the entries that agree in all other dimensions. A set is
 * the different values of one group. */
#include <stdlib.h>
#include <strings.h>

#include "common/base/pool_sort.h"
#include "common/tensor/element.h"
#include "kernels/cpu/sparse/sparse.h"
#include "kernels/kernel.h"
#include "kernels/support/dims.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list set_kernels;

/* ---- members ---- */

/* An integer, or a string that is borrowed. NULL is the empty string. */
struct member {
    int64_t number;
    const struct bytes *text;
};
struct members {
    struct member *at;
    int64_t n, capacity;
};

static int compare_members(const void *a_, const void *b_) {
    const struct member *a = a_, *b = b_;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    struct span x = bytes_span(a->text), y = bytes_span(b->text);
    size_t shorter = MIN(x.len, y.len);
    int order = shorter > 0 ? memcmp(x.data, y.data, shorter) : 0;
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

static void members_add(struct members *members, struct member member) {
    if (members->n == members->capacity) {
        members->capacity = MAX((int64_t)16, 2 * members->capacity);
        members->at = xreallocarray(members->at, (size_t)members->capacity, sizeof(*members->at));
    }
    members->at[members->n++] = member;
}

/* Collects the different values among [begin, end), in order. */
static void members_collect(struct members *members, const struct tensor *values, int64_t begin,
                            int64_t end) {
    members->n = 0;
    for (int64_t i = begin; i < end && pool_goes_on(i + 1); i++) {
        if (values->dtype == DT_STRING)
            members_add(members,
                        (struct member){0, ((struct bytes *const *)tensor_cdata(values))[i]});
        else
            members_add(members, (struct member){tensor_int_at(values, i), NULL});
    }
    int64_t n = 0;
    if (members->n > 0)
        pool_sort(members->at, members->n, sizeof(*members->at), compare_members);
    for (int64_t i = 0; i < members->n && pool_goes_on(i + 1); i++)
        if (n == 0 || compare_members(&members->at[n - 1], &members->at[i]) != 0)
            members->at[n++] = members->at[i];
    members->n = n;
}

/* ---- one operation ---- */

struct set_state {
    /* whether members of only the first set, of only the second and of both are kept */
    bool keeps_a, keeps_b, keeps_both;
    bool validates;
};

static struct status *set_init(struct kernel_init *init) {
    static const struct {
        const char *name;
        struct set_state state;
    } operations[] = {{"a-b", {.keeps_a = true}},
                      {"b-a", {.keeps_b = true}},
                      {"intersection", {.keeps_both = true}},
                      {"union", {.keeps_a = true, .keeps_b = true, .keeps_both = true}}};
    struct set_state *state = xcalloc(1, sizeof(*state));
    struct span name;
    bool is_known = false;
    init->state = state;
    TRY(node_get_s(init->node, "set_operation", &name));
    for (size_t i = 0; i < ARRAY_LEN(operations); i++) {
        if (name.len == strlen(operations[i].name) &&
            strncasecmp(name.data, operations[i].name, name.len) == 0) {
            *state = operations[i].state;
            is_known = true;
        }
    }
    TRY(node_get_b(init->node, "validate_indices", &state->validates));
    return is_known ? NULL
                    : status_invalid("Invalid set_operation %.*s.", (int)MIN(name.len, (size_t)64),
                                     name.data);
}

/* All results so far: the members of all sets, and for each set that is not empty its group's
 * coordinates and its size. */
struct results {
    struct members members;
    int64_t *places, *sizes; /* n_sets × n_group, n_sets */
    int64_t n_sets, capacity, largest;
    int n_group;
    struct members a, b; /* the members of the present group */
};

static void results_fini(struct results *results) {
    free(results->members.at);
    free(results->places);
    free(results->sizes);
    free(results->a.at);
    free(results->b.at);
}

static void results_add_set(struct results *results, const int64_t *place, int64_t size) {
    size_t n_group = (size_t)results->n_group;
    if (results->n_sets == results->capacity) {
        results->capacity = MAX((int64_t)16, 2 * results->capacity);
        results->places = xreallocarray(results->places, (size_t)results->capacity * n_group,
                                        sizeof(*results->places));
        results->sizes =
            xreallocarray(results->sizes, (size_t)results->capacity, sizeof(*results->sizes));
    }
    memcpy(results->places + (size_t)results->n_sets * n_group, place, n_group * sizeof(*place));
    results->sizes[results->n_sets++] = size;
    results->largest = MAX(results->largest, size);
}

/* Applies the operation to the two sets of the present group, which are both in order. */
static void combine(struct results *results, const struct set_state *state, const int64_t *place) {
    const struct members *a = &results->a, *b = &results->b;
    int64_t before = results->members.n;
    for (int64_t i = 0, j = 0; i < a->n || j < b->n;) {
        int order = i >= a->n ? 1 : j >= b->n ? -1 : compare_members(&a->at[i], &b->at[j]);
        if (order < 0 ? state->keeps_a : order > 0 ? state->keeps_b : state->keeps_both)
            members_add(&results->members, order <= 0 ? a->at[i] : b->at[j]);
        i += order <= 0;
        j += order >= 0;
    }
    if (results->members.n > before)
        results_add_set(results, place, results->members.n - before);
}

static void set_member(struct tensor *t, int64_t i, struct member member) {
    void *data = tensor_data(t);
    switch (dtype_size((enum dtype)t->dtype)) {
    case 1:
        ((uint8_t *)data)[i] = (uint8_t)member.number;
        break;
    case 2:
        ((uint16_t *)data)[i] = (uint16_t)member.number;
        break;
    case 4:
        ((uint32_t *)data)[i] = (uint32_t)member.number;
        break;
    default:
        if (t->dtype == DT_STRING)
            tensor_set_object(
                t, i,
                member.text ? object_ref((struct object *)(uintptr_t)&member.text->object) : NULL);
        else
            ((int64_t *)data)[i] = member.number;
    }
}

static struct status *results_write(struct kernel_ctx *ctx, const struct results *results,
                                    const int64_t *group_dims) {
    int rank = results->n_group + 1;
    int64_t dims[SHAPE_MAX_RANK], at = 0;
    memcpy(dims, group_dims, (size_t)results->n_group * sizeof(*dims));
    dims[results->n_group] = results->largest;
    TRY(sparse_alloc(ctx, 0, results->members.n, rank, (enum dtype)ctx->instance->out_types[1],
                     dims));
    int64_t *to = tensor_data(&ctx->outputs[0]);
    for (int64_t s = 0; s < results->n_sets; s++) {
        for (int64_t i = 0; i < results->sizes[s]; i++, at++) {
            memcpy(to, results->places + s * results->n_group,
                   (size_t)results->n_group * sizeof(*to));
            to[results->n_group] = i;
            to += rank;
            set_member(&ctx->outputs[1], at, results->members.at[at]);
        }
    }
    return NULL;
}

/* ---- inputs ---- */

static struct status *read_sparse(const struct kernel_ctx *ctx, int first, bool validates,
                                  struct sparse *ret) {
    int64_t n_dense;
    if (ctx->inputs[first + 2].rank != 1)
        return status_invalid("Shape must be a 1D tensor.");
    TRY(sparse_check_dims(tensor_cdata(&ctx->inputs[first + 2]), ctx->inputs[first + 2].n_elements,
                          &n_dense));
    if (ctx->inputs[first + 2].n_elements < 2)
        return status_invalid("Invalid rank %lld.", (long long)ctx->inputs[first + 2].n_elements);
    TRY(sparse_of_inputs(ctx, first, ret));
    return validates ? sparse_check(ret, SPARSE_INSIDE | SPARSE_ORDERED) : NULL;
}

/* Entries that were not validated may be outside of the shape. */
static struct status *collect_run(struct members *members, const struct sparse *in, int64_t begin,
                                  int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        for (int d = 0; d < in->rank; d++) {
            int64_t index = sparse_at(in, i)[d];
            if (index >= in->dims[d])
                return status_invalid("indices[%lld, %d] expected < %lld, got %lld.",
                                      (long long)(i - begin), d, (long long)in->dims[d],
                                      (long long)index);
        }
    }
    members_collect(members, in->values, begin, end);
    return NULL;
}

static struct status *check_groups(struct shape a, struct shape b) {
    if (a.rank < 2 || b.rank < 2)
        return status_invalid("Shape %s has rank %d < 2", SHAPE_TEXT(a.rank < 2 ? a : b),
                              MIN(a.rank, b.rank));
    struct shape groups[] = {{a.rank - 1, a.dims}, {b.rank - 1, b.dims}};
    return shape_equal(groups[0], groups[1])
               ? NULL
               : status_invalid("Mismatched shapes %s vs %s", SHAPE_TEXT(groups[0]),
                                SHAPE_TEXT(groups[1]));
}

/* ---- kernels ---- */

/* Walks the groups of a dense first set. The second set is dense too, or its groups have the same
 * order. */
static struct status *walk_dense(const struct kernel_ctx *ctx, struct results *results,
                                 const struct tensor *dense_b, const struct sparse *sparse_b) {
    const struct set_state *state = ctx->instance->state;
    const struct tensor *a = &ctx->inputs[0];
    int n_group = results->n_group;
    int64_t n_groups = dims_product(tensor_dims(a), 0, n_group), len_a = tensor_dim(a, n_group),
            next = 0, place[SHAPE_MAX_RANK];
    int64_t len_b = dense_b ? tensor_dim(dense_b, n_group) : 0;
    for (int64_t g = 0; g < n_groups; g++) {
        TRY(kernel_loop_check(0));
        sparse_coordinates(g, tensor_dims(a), n_group, place);
        members_collect(&results->a, a, g * len_a, (g + 1) * len_a);
        results->b.n = 0;
        if (dense_b) {
            members_collect(&results->b, dense_b, g * len_b, (g + 1) * len_b);
        } else if (next < sparse_b->n &&
                   sparse_compare(sparse_at(sparse_b, next), place, n_group) == 0) {
            int64_t end = sparse_run_end(sparse_b, next, n_group);
            TRY(collect_run(&results->b, sparse_b, next, end));
            next = end;
        }
        combine(results, state, place);
    }
    return NULL;
}

static enum kernel_result dense_to_dense(struct kernel_ctx *ctx) {
    const struct tensor *a = &ctx->inputs[0], *b = &ctx->inputs[1];
    KERNEL_TRY(ctx, check_groups(tensor_shape(a), tensor_shape(b)));
    struct results results = {.n_group = a->rank - 1};
    struct status *st = walk_dense(ctx, &results, b, NULL);
    if (!st)
        st = results_write(ctx, &results, tensor_dims(a));
    results_fini(&results);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result dense_to_sparse(struct kernel_ctx *ctx) {
    const struct set_state *state = ctx->instance->state;
    const struct tensor *a = &ctx->inputs[0];
    struct sparse b;
    KERNEL_TRY(ctx, read_sparse(ctx, 1, state->validates, &b));
    KERNEL_TRY(ctx, check_groups(tensor_shape(a), (struct shape){b.rank, b.dims}));
    struct results results = {.n_group = a->rank - 1};
    struct status *st = walk_dense(ctx, &results, NULL, &b);
    if (!st)
        st = results_write(ctx, &results, tensor_dims(a));
    results_fini(&results);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static struct status *walk_sparse(const struct set_state *state, struct results *results,
                                  const struct sparse *a, const struct sparse *b) {
    for (int64_t i = 0, j = 0; i < a->n || j < b->n;) {
        int order = i >= a->n ? 1
                    : j >= b->n
                        ? -1
                        : sparse_compare(sparse_at(a, i), sparse_at(b, j), results->n_group);
        const int64_t *place = order <= 0 ? sparse_at(a, i) : sparse_at(b, j);
        int64_t end_a = order <= 0 ? sparse_run_end(a, i, results->n_group) : i;
        int64_t end_b = order >= 0 ? sparse_run_end(b, j, results->n_group) : j;
        TRY(kernel_loop_check(0));
        TRY(collect_run(&results->a, a, i, end_a));
        TRY(collect_run(&results->b, b, j, end_b));
        combine(results, state, place);
        i = end_a;
        j = end_b;
    }
    return NULL;
}

static enum kernel_result sparse_to_sparse(struct kernel_ctx *ctx) {
    const struct set_state *state = ctx->instance->state;
    struct sparse a, b;
    KERNEL_TRY(ctx, read_sparse(ctx, 0, state->validates, &a));
    KERNEL_TRY(ctx, read_sparse(ctx, 3, state->validates, &b));
    KERNEL_TRY(ctx, check_groups((struct shape){a.rank, a.dims}, (struct shape){b.rank, b.dims}));
    struct results results = {.n_group = a.rank - 1};
    struct status *st = walk_sparse(state, &results, &a, &b);
    if (!st)
        st = results_write(ctx, &results, a.dims);
    results_fini(&results);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static struct status *size_init(struct kernel_init *init) {
    struct set_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "validate_indices", &state->validates);
}

static enum kernel_result set_size(struct kernel_ctx *ctx) {
    const struct set_state *state = ctx->instance->state;
    struct sparse in;
    struct members members = {0};
    struct status *st = NULL;
    KERNEL_TRY(ctx, read_sparse(ctx, 0, state->validates, &in));
    int n_group = in.rank - 1;
    KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, DT_INT32,
                                      (struct shape){n_group, in.dims}, &ctx->outputs[0]));
    for (int64_t begin = 0, end; begin < in.n && !st; begin = end) {
        end = sparse_run_end(&in, begin, n_group);
        st = collect_run(&members, &in, begin, end);
        int64_t place = sparse_at(&in, begin)[0];
        for (int d = 1; !st && d < n_group; d++)
            place = (int64_t)((uint64_t)place * (uint64_t)in.dims[d] +
                              (uint64_t)sparse_at(&in, begin)[d]);
        if (!st && (place < 0 || place >= ctx->outputs[0].n_elements))
            st = status_invalid("Index out of range, %lld vs %s", (long long)place,
                                SHAPE_TEXT((struct shape){n_group, in.dims}));
        if (!st)
            ((int32_t *)tensor_data(&ctx->outputs[0]))[place] = (int32_t)members.n;
    }
    free(members.at);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define MEMBER_TYPES \
    (DTYPES_SIGNED_INT | DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_UINT16) | DTYPE_BIT(DT_STRING))
// clang-format off
#define SETS(name, function, prepare) {.op = (name), .constraints = {{"T", MEMBER_TYPES}}, \
    .compute = function, .init = prepare}
static const struct kernel_def rows[] = {
    SETS("DenseToDenseSetOperation", dense_to_dense, set_init),
    SETS("DenseToSparseSetOperation", dense_to_sparse, set_init),
    SETS("SparseToSparseSetOperation", sparse_to_sparse, set_init),
    SETS("SetSize", set_size, size_init),
};
// clang-format on

const struct kernel_list set_kernels = {rows, ARRAY_LEN(rows)};
