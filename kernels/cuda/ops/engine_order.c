/* Launches sorts and scans (order.h). */
#include "kernels/cuda/ops/order.h"

#include <stdio.h>

#include "kernels/cuda/ops/engine_internal.h"

static struct gpu_stem order_scan_stem = {"order_scan"};
static struct gpu_stem radix_count_stem = {"radix_count"};
static struct gpu_stem radix_place_stem = {"radix_place"};
static struct gpu_stem order_keys_stem = {"order_keys"};
static struct gpu_stem order_index_stem = {"order_index"};
static struct gpu_stem order_stem = {"order"};

enum {
    SCAN_ONE_MOST = 16 * SCAN_TILE_LEN, /* values that one block scans alone */
    MAX_TILE_BLOCKS = 1 << 16,
};

struct status *order_longs(struct kernel_ctx *ctx, int64_t n, struct buffer **ret) {
    return gpu_scratch(ctx, (size_t)n * sizeof(int64_t), ret);
}

static struct gpu_grid tile_grid(int64_t n_tiles) {
    return (struct gpu_grid){.n_blocks = (unsigned)MIN(n_tiles, (int64_t)MAX_TILE_BLOCKS),
                             .n_threads = ORDER_THREADS};
}

/* ---- scans ---- */

static struct status *scan_one(struct kernel_ctx *ctx, int64_t *values, int64_t n, int64_t *total) {
    struct scan_args args = {.values = values, .n = n, .total = total};
    return engine_launch(ctx, &order_scan_stem, "one", tile_grid(1), &args);
}

static struct status *scan_by_tiles(struct kernel_ctx *ctx, struct scan_args *args,
                                    int64_t n_tiles) {
    TRY(engine_launch(ctx, &order_scan_stem, "sums", tile_grid(n_tiles), args));
    TRY(scan_one(ctx, args->tiles, n_tiles, args->total));
    return engine_launch(ctx, &order_scan_stem, "tiles", tile_grid(n_tiles), args);
}

struct status *order_scan(struct kernel_ctx *ctx, int64_t *values, int64_t n, int64_t *total) {
    if (n <= SCAN_ONE_MOST)
        return scan_one(ctx, values, n, total);
    int64_t n_tiles = (n + SCAN_TILE_LEN - 1) / SCAN_TILE_LEN;
    struct buffer *tiles = NULL;
    TRY(order_longs(ctx, n_tiles + 1, &tiles));
    struct scan_args args = {
        .values = values, .tiles = order_longs_of(tiles), .total = total, .n = n};
    struct status *st = scan_by_tiles(ctx, &args, n_tiles);
    buffer_unref(tiles);
    return st;
}

/* ---- sorts ---- */

size_t order_position_bytes(int64_t n) {
    return n <= INT32_MAX ? sizeof(int32_t) : sizeof(int64_t);
}

int order_n_bits(uint64_t v) {
    int n = 0;
    for (; v; v >>= 1)
        n++;
    return n;
}

struct order_positions order_positions_of(const struct order_sort *sort) {
    return (struct order_positions){sort->positions ? sort->positions->data : NULL,
                                    (int64_t)order_position_bytes(sort->n)};
}

void order_sort_fini(struct order_sort *sort) {
    buffer_unref(sort->keys);
    buffer_unref(sort->positions);
    sort->keys = sort->positions = NULL;
}

/* One pass; the sorted keys and positions replace those of `sort`. */
static struct status *radix_pass(struct kernel_ctx *ctx, struct order_sort *sort, int shift,
                                 int64_t *counts, int64_t n_tiles) {
    size_t position_bytes = order_position_bytes(sort->n);
    struct buffer *keys = NULL, *positions = NULL;
    char suffix[16];
    snprintf(suffix, sizeof suffix, "%s_%s", gpu_size_suffix(sort->key_bytes),
             gpu_size_suffix(position_bytes));
    struct status *st = gpu_scratch(ctx, (size_t)sort->n * sort->key_bytes, &keys);
    if (!st)
        st = gpu_scratch(ctx, (size_t)sort->n * position_bytes, &positions);
    if (st)
        goto out;
    struct radix_args args = {.keys = sort->keys->data,
                              .positions = order_positions_of(sort),
                              .to_keys = keys->data,
                              .to_positions = positions->data,
                              .counts = counts,
                              .n = sort->n,
                              .n_tiles = n_tiles,
                              .shift = shift};
    TRY_OUT(engine_launch(ctx, &radix_count_stem, gpu_size_suffix(sort->key_bytes),
                          tile_grid(n_tiles), &args));
    TRY_OUT(order_scan(ctx, counts, RADIX_DIGITS * n_tiles, NULL));
    TRY_OUT(engine_launch(ctx, &radix_place_stem, suffix, tile_grid(n_tiles), &args));
    order_sort_fini(sort);
    sort->keys = keys;
    sort->positions = positions;
    return NULL;
out:
    buffer_unref(keys);
    buffer_unref(positions);
    return st;
}

struct status *order_sort_run(struct kernel_ctx *ctx, struct order_sort *sort) {
    int64_t n_tiles = (sort->n + RADIX_TILE_LEN - 1) / RADIX_TILE_LEN;
    struct buffer *counts = NULL;
    TRY(order_longs(ctx, RADIX_DIGITS * n_tiles + 1, &counts));
    struct status *st = NULL;
    /* at least one pass, so that there are positions */
    for (int shift = 0; !st && (shift == 0 || shift < sort->n_bits); shift += RADIX_BITS)
        st = radix_pass(ctx, sort, shift, order_longs_of(counts), n_tiles);
    buffer_unref(counts);
    return st;
}

/* ---- keys ---- */

struct status *order_keys(struct kernel_ctx *ctx, struct order_sort *sort, enum dtype dtype,
                          const void *from, bool is_descending) {
    size_t size = dtype_size(dtype);
    sort->key_bytes = size == 8 ? 8 : 4;
    sort->n_bits = 8 * (int)size;
    TRY(gpu_scratch(ctx, (size_t)sort->n * sort->key_bytes, &sort->keys));
    struct keys_args args = {from, sort->keys->data, sort->n, is_descending};
    return engine_launch_for(ctx, &order_keys_stem, gpu_dtype_suffix(dtype), sort->n, &args);
}

struct status *order_index_keys(struct kernel_ctx *ctx, struct order_sort *sort, enum dtype dtype,
                                const void *indices, int64_t n_valid) {
    sort->key_bytes = n_valid < UINT32_MAX ? 4 : 8;
    sort->n_bits = order_n_bits((uint64_t)n_valid);
    TRY(gpu_scratch(ctx, (size_t)sort->n * sort->key_bytes, &sort->keys));
    struct index_keys_args args = {.indices = indices,
                                   .keys = sort->keys->data,
                                   .index = engine_index(dtype),
                                   .n = sort->n,
                                   .n_valid = n_valid,
                                   .key_bytes = (int64_t)sort->key_bytes};
    return engine_launch_for(ctx, &order_index_stem, "keys", sort->n, &args);
}

struct status *order_bounds(struct kernel_ctx *ctx, const void *keys, int64_t kind, int64_t n,
                            int64_t n_values, int64_t *firsts) {
    struct bounds_args args = {keys, kind, firsts, n, n_values};
    return engine_launch_for(ctx, &order_stem, "bounds", n_values + 1, &args);
}
