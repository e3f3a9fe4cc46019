/* Runs AddSparseToTensorsMap, AddManySparseToTensorsMap and TakeManySparseFromTensorsMap, which
 * keep sparse tensors in a container under numbers until they are taken. */
#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "kernels/cpu/sparse/sparse_stack.h"
#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list sparse_map_kernels;

enum { SPARSE_MAP_MAX_TENSORS = 1 << 24 };

/* ---- the map ---- */

struct tensors_map {
    struct object object;
    pthread_mutex_t lock;
    struct u64map pieces; /* number + 1 → struct sparse_piece; guarded by lock */
    uint64_t next;        /* guarded by lock */
};

static void tensors_map_free(struct object *object) {
    struct tensors_map *map = (struct tensors_map *)object;
    size_t cursor = 0;
    uint64_t key;
    void *piece;
    while (u64map_next(&map->pieces, &cursor, &key, &piece))
        sparse_pieces_free(piece, 1);
    u64map_fini(&map->pieces);
    pthread_mutex_destroy(&map->lock);
    free(map);
}

static const struct object_type tensors_map_type = {.name = "SparseTensorsMap",
                                                    .free = tensors_map_free};

static struct status *tensors_map_new(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct tensors_map *map = xcalloc(1, sizeof(*map));
    object_init(&map->object, &tensors_map_type);
    pthread_mutex_init(&map->lock, NULL);
    u64map_init(&map->pieces);
    *ret = &map->object;
    return NULL;
}

/* Takes the piece, also when it fails. */
static struct status *tensors_map_add(struct tensors_map *map, struct sparse_piece *piece,
                                      int64_t *ret_number) {
    pthread_mutex_lock(&map->lock);
    bool is_full = map->pieces.n_entries >= SPARSE_MAP_MAX_TENSORS;
    if (!is_full) {
        *ret_number = (int64_t)map->next++;
        u64map_put(&map->pieces, (uint64_t)*ret_number + 1, piece);
    }
    pthread_mutex_unlock(&map->lock);
    if (is_full)
        sparse_pieces_free(piece, 1);
    return is_full ? status_exhausted("A map of sparse tensors holds at most %d",
                                      SPARSE_MAP_MAX_TENSORS)
                   : NULL;
}

/* ---- kernels ---- */

struct map_state {
    char *container, *name;
};

static void map_fini(void *arg) {
    struct map_state *state = arg;
    free(state->container);
    free(state->name);
    free(state);
}

/* Without a shared name, a map has the name of the node that adds to it. The op that takes from the
 * map has to be given this name. */
static struct status *map_init(struct kernel_init *init) {
    struct map_state *state = xcalloc(1, sizeof(*state));
    struct span container = {0}, name = {0};
    init->state = state;
    TRY(node_get_s(init->node, "container", &container));
    TRY(node_get_s(init->node, "shared_name", &name));
    state->container = xstrndup(container.data, container.len);
    state->name = name.len > 0 ? xstrndup(name.data, name.len) : xstrdup(init->node->name);
    return NULL;
}

static struct status *map_of(struct kernel_ctx *ctx, struct tensors_map **ret) {
    const struct map_state *state = ctx->instance->state;
    struct object *object = NULL;
    TRY(ctx->host->resource_lookup_or_create(ctx, state->container, state->name, &tensors_map_type,
                                             tensors_map_new, NULL, &object));
    *ret = (struct tensors_map *)object;
    return NULL;
}

static enum kernel_result add_sparse(struct kernel_ctx *ctx) {
    struct sparse in;
    struct tensors_map *map = NULL;
    int64_t n_dense, number = 0;
    KERNEL_TRY(ctx, sparse_of_inputs(ctx, 0, &in));
    KERNEL_TRY(ctx, sparse_check_dims(in.dims, in.rank, &n_dense));
    struct sparse_piece *piece = sparse_pieces_new(1);
    struct status *st = piece ? map_of(ctx, &map) : status_exhausted("OOM: a sparse tensor");
    if (!st)
        st = variable_keep(ctx, 0, &piece->indices);
    if (!st)
        st = variable_keep(ctx, 1, &piece->values);
    if (!st)
        st = variable_keep(ctx, 2, &piece->shape);
    if (!st)
        st = tensors_map_add(map, piece, &number);
    else
        sparse_pieces_free(piece, 1);
    if (map)
        object_unref(&map->object);
    KERNEL_TRY(ctx, st);
    tensor_init_scalar_i64(&ctx->outputs[0], number);
    return KERNEL_DONE;
}

static struct status *add_run(struct kernel_ctx *ctx, struct tensors_map *map,
                              const struct sparse *in, int64_t begin, int64_t end,
                              int64_t *ret_number) {
    struct sparse_piece *piece = sparse_pieces_new(1);
    struct status *st = piece ? sparse_piece_of_run(ctx, in, begin, end, piece)
                              : status_exhausted("OOM: a sparse row");
    if (st) {
        sparse_pieces_free(piece, 1);
        return st;
    }
    return tensors_map_add(map, piece, ret_number);
}

/* Adds the rows. Rows with entries get their numbers first, then the empty ones. */
static struct status *add_rows(struct kernel_ctx *ctx, struct tensors_map *map,
                               const struct sparse *in) {
    int64_t *numbers = tensor_data(&ctx->outputs[0]), n_rows = in->dims[0], begin = 0, n_runs = 0;
    for (int64_t row = 0; row < n_rows && pool_goes_on(row + 1); row++)
        numbers[row] = -1;
    for (int64_t end; begin < in->n; begin = end) {
        TRY(kernel_loop_check(n_runs++));
        end = sparse_run_end(in, begin, 1);
        TRY(add_run(ctx, map, in, begin, end, &numbers[sparse_at(in, begin)[0]]));
    }
    for (int64_t row = 0; row < n_rows; row++)
        if (numbers[row] < 0)
            TRY(add_run(ctx, map, in, 0, 0, &numbers[row]));
    return NULL;
}

static enum kernel_result add_many_sparse(struct kernel_ctx *ctx) {
    struct sparse in;
    struct tensors_map *map = NULL;
    KERNEL_TRY(ctx, sparse_rows_of_inputs(ctx, &in));
    if (in.dims[0] > SPARSE_MAP_MAX_TENSORS)
        return kernel_fail(ctx, status_exhausted("A map of sparse tensors holds at most %d",
                                                 SPARSE_MAP_MAX_TENSORS));
    KERNEL_TRY(ctx, map_of(ctx, &map));
    struct status *st = kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &in.dims[0]});
    if (!st)
        st = add_rows(ctx, map, &in);
    object_unref(&map->object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static struct status *take_pieces(struct kernel_ctx *ctx, struct tensors_map *map,
                                  struct sparse_piece *pieces, int64_t n, enum dtype dtype) {
    const struct map_state *state = ctx->instance->state;
    for (int64_t i = 0; i < n; i++) {
        int64_t number = tensor_index_at(&ctx->inputs[0], i);
        pthread_mutex_lock(&map->lock);
        struct sparse_piece *piece =
            number >= 0 ? u64map_remove(&map->pieces, (uint64_t)number + 1) : NULL;
        pthread_mutex_unlock(&map->lock);
        if (!piece)
            return status_invalid("Unable to find SparseTensor: %lld in map: %s", (long long)number,
                                  state->name);
        tensor_move(&pieces[i].indices, &piece->indices);
        tensor_move(&pieces[i].values, &piece->values);
        tensor_move(&pieces[i].shape, &piece->shape);
        sparse_pieces_free(piece, 1);
        TRY(sparse_piece_check(&pieces[i], dtype, i));
    }
    return NULL;
}

static enum kernel_result take_many_sparse(struct kernel_ctx *ctx) {
    const struct tensor *numbers = &ctx->inputs[0];
    struct tensors_map *map = NULL;
    enum dtype dtype = (enum dtype)ctx->instance->out_types[1];
    int64_t n = numbers->n_elements;
    if (numbers->rank != 1)
        return kernel_fail(ctx,
                           status_invalid("sparse_handles should be a vector but received shape %s",
                                          TENSOR_SHAPE_TEXT(numbers)));
    if (n == 0)
        return kernel_fail(
            ctx, status_invalid(
                     "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"));
    KERNEL_TRY(ctx, map_of(ctx, &map));
    struct sparse_piece *pieces = sparse_pieces_new(n);
    struct status *st = pieces ? take_pieces(ctx, map, pieces, n, dtype)
                               : status_exhausted("OOM: %lld sparse tensors", (long long)n);
    if (!st)
        st = sparse_stack(ctx, pieces, n, (struct shape){1, &n}, dtype);
    sparse_pieces_free(pieces, n);
    object_unref(&map->object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
// clang-format off
#define MAP .init = map_init, .fini = map_fini, .flags = KERNEL_STATEFUL
static const struct kernel_def rows[] = {
    {.op = "AddSparseToTensorsMap", .compute = add_sparse, MAP},
    {.op = "AddManySparseToTensorsMap", .constraints = {{"T", VALUE_TYPES}},
        .compute = add_many_sparse, MAP},
    {.op = "TakeManySparseFromTensorsMap", .constraints = {{"dtype", VALUE_TYPES}},
        .compute = take_many_sparse, MAP},
};
// clang-format on

const struct kernel_list sparse_map_kernels = {rows, ARRAY_LEN(rows)};
