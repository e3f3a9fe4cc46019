/* Launches strided copies (moves.cu).
 *
 * Loops are ordered so that the last one walks the output element by element; contiguous elements
 * become wider ones, of up to 16 bytes; a copy that reads along another loop than it writes along
 * becomes a transpose of tiles. */
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/moves_args.h"

static struct gpu_stem move_tiles_stem = {"move_tiles"};
static struct gpu_stem move_one_stem = {"move_one"};
static struct gpu_stem move_batch_stem = {"move_batch"};

_Static_assert((int)MOVE_LOOPS == (int)DEVICE_MOVE_LOOPS, "both count loops");
_Static_assert((int)MOVE_BATCH == (int)DEVICE_MOVE_BATCH, "both count copies");
_Static_assert(sizeof(struct move_batch_args) <= GPU_MAX_ARGS_BYTES, "a launch takes a batch");

static void loop_copy(struct move_loops *to, int64_t at, const struct move_loops *from, int64_t i) {
    to->dims[at] = from->dims[i];
    to->from_strides[at] = from->from_strides[i];
    to->to_strides[at] = from->to_strides[i];
}

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

/* Inserts loop i of `from` among the loops of `to`, which are in the order of their strides in the
 * output, the widest first. */
static void loop_insert(struct move_loops *to, const struct move_loops *from, int64_t i) {
    int64_t at = to->n_loops++;
    for (; at > 0 && magnitude(to->to_strides[at - 1]) < magnitude(from->to_strides[i]); at--)
        loop_copy(to, at, to, at - 1);
    loop_copy(to, at, from, i);
}

/* Merges loops that continue each other. */
static void loops_merge(struct move_loops *loops) {
    int64_t n = 0;
    for (int64_t i = 0; i < loops->n_loops; i++) {
        int64_t dim = loops->dims[i];
        if (n > 0 && loops->from_strides[n - 1] == dim * loops->from_strides[i] &&
            loops->to_strides[n - 1] == dim * loops->to_strides[i]) {
            loops->dims[n - 1] *= dim;
            loops->from_strides[n - 1] = loops->from_strides[i];
            loops->to_strides[n - 1] = loops->to_strides[i];
        } else {
            loop_copy(loops, n++, loops, i);
        }
    }
    loops->n_loops = n;
}

/* Strides, the end and the sizes count elements of the dtype until loops_widen. */
static struct move_loops loops_of(const struct device_move *move) {
    struct move_loops given = {.n_loops = move->n_loops}, loops = {0};
    loops.to = move->to;
    loops.from = move->from;
    for (int i = 0; i < move->n_loops; i++) {
        given.dims[i] = move->dims[i];
        given.from_strides[i] = move->from ? move->from_strides[i] : 0;
        given.to_strides[i] = move->to_strides[i];
    }
    for (int i = 0; i < move->n_loops; i++)
        if (given.dims[i] != 1)
            loop_insert(&loops, &given, i);
    loops_merge(&loops);
    if (loops.n_loops == 0) { /* one element */
        loops.n_loops = 1;
        loops.dims[0] = loops.from_strides[0] = loops.to_strides[0] = 1;
        if (!loops.from)
            loops.from_strides[0] = 0;
    }
    return loops;
}

static int64_t loops_n_elements(const struct move_loops *loops) {
    int64_t n = 1;
    for (int64_t i = 0; i < loops->n_loops; i++)
        n *= loops->dims[i];
    return n;
}

/* Can the copy be made by elements of `by` times the size? */
static bool loops_can_widen(const struct move_loops *loops, int64_t by, size_t size) {
    int64_t last = loops->n_loops - 1;
    if (loops->to_strides[last] != 1 || loops->dims[last] % by != 0 ||
        (loops->from && loops->from_strides[last] != 1))
        return false;
    for (int64_t i = 0; i < last; i++)
        if (loops->to_strides[i] % by != 0 || loops->from_strides[i] % by != 0)
            return false;
    return ((uintptr_t)loops->to | (uintptr_t)loops->from) % size == 0;
}

static void loops_widen(struct move_loops *loops, int64_t by) {
    int64_t last = loops->n_loops - 1;
    loops->dims[last] /= by;
    for (int64_t i = 0; i < last; i++) {
        loops->to_strides[i] /= by;
        loops->from_strides[i] /= by;
    }
}

/* Repeats an element of `size` bytes through the 16 bytes of the value. */
static void value_repeat(const struct device_move *move, size_t size, uint64_t value[2]) {
    for (size_t at = 0; at < 16; at += size)
        memcpy((char *)value + at, move->value, size);
}

/* ---- transposes ---- */

enum { TILE_MIN_SIDE = 16 };

/* The loop that the copy reads along, if tiles pay; else -1. */
static int64_t tile_loop(const struct move_loops *loops) {
    int64_t last = loops->n_loops - 1;
    if (!loops->from || loops->to_strides[last] != 1 || loops->from_strides[last] == 1 ||
        loops->from_strides[last] == 0 || loops->dims[last] < TILE_MIN_SIDE)
        return -1;
    for (int64_t i = 0; i < last; i++)
        if (loops->from_strides[i] == 1 && loops->dims[i] >= TILE_MIN_SIDE)
            return i;
    return -1;
}

static struct status *launch_tiles(struct kernel_ctx *ctx, const struct move_loops *loops,
                                   int64_t along, size_t size) {
    enum { MAX_BLOCKS = 1 << 20 };
    int64_t last = loops->n_loops - 1, turns = 1;
    struct move_tiles_args args = {.to = loops->to,
                                   .from = loops->from,
                                   .n_a = loops->dims[last],
                                   .n_b = loops->dims[along],
                                   .from_a = loops->from_strides[last],
                                   .to_b = loops->to_strides[along]};
    for (int64_t i = 0; i < last; i++) {
        if (i == along)
            continue;
        args.dims[args.n_loops] = loops->dims[i];
        args.from_strides[args.n_loops] = loops->from_strides[i];
        args.to_strides[args.n_loops++] = loops->to_strides[i];
        turns *= loops->dims[i];
    }
    args.n_tiles =
        turns * ((args.n_a + MOVE_TILE - 1) / MOVE_TILE) * ((args.n_b + MOVE_TILE - 1) / MOVE_TILE);
    struct gpu_grid grid = {.n_blocks = (unsigned)MIN(args.n_tiles, (int64_t)MAX_BLOCKS),
                            .n_threads = MOVE_TILE * MOVE_TILE_ROWS};
    return engine_launch(ctx, &move_tiles_stem, gpu_size_suffix(size), grid, &args);
}

/* ---- one copy, several copies ---- */

static bool is_run(const struct move_loops *loops) {
    return loops->n_loops == 1 && loops->to_strides[0] == 1 && loops->from_strides[0] == 1 &&
           loops->from;
}

static size_t widest(const struct move_loops *loops, int n, size_t element_bytes) {
    size_t size = 16;
    for (; size > element_bytes; size /= 2) {
        bool can = true;
        for (int i = 0; i < n && can; i++)
            can = loops_can_widen(&loops[i], (int64_t)(size / element_bytes), size);
        if (can)
            break;
    }
    return size;
}

static struct status *move_one(struct kernel_ctx *ctx, size_t element_bytes,
                               const struct device_move *move) {
    struct move_one_args args = {loops_of(move)};
    struct move_loops *loops = &args.loops;
    if (is_run(loops))
        return gpu_copy_within(ctx, loops->to, loops->from, (size_t)loops->dims[0] * element_bytes);
    int64_t along = tile_loop(loops);
    if (along >= 0)
        return launch_tiles(ctx, loops, along, element_bytes);
    size_t size = widest(loops, 1, element_bytes);
    loops_widen(loops, (int64_t)(size / element_bytes));
    if (!loops->from)
        value_repeat(move, element_bytes, loops->value);
    loops->end = loops_n_elements(loops);
    return engine_launch_for(ctx, &move_one_stem, gpu_size_suffix(size), loops->end, &args);
}

struct status *engine_move(struct kernel_ctx *ctx, size_t element_bytes,
                           const struct device_move *moves, int n) {
    struct move_batch_args args = {.n_copies = 0};
    if (n == 1)
        return move_one(ctx, element_bytes, &moves[0]);
    for (int i = 0; i < n; i++) {
        struct move_loops loops = loops_of(&moves[i]);
        if (tile_loop(&loops) >= 0) {
            TRY(move_one(ctx, element_bytes, &moves[i]));
            continue;
        }
        if (!loops.from)
            value_repeat(&moves[i], element_bytes, loops.value);
        args.loops[args.n_copies++] = loops;
    }
    if (args.n_copies == 0)
        return NULL;
    size_t size = widest(args.loops, (int)args.n_copies, element_bytes);
    int64_t end = 0;
    for (int64_t i = 0; i < args.n_copies; i++) {
        loops_widen(&args.loops[i], (int64_t)(size / element_bytes));
        end += loops_n_elements(&args.loops[i]);
        args.loops[i].end = end;
    }
    return engine_launch_for(ctx, &move_batch_stem, gpu_size_suffix(size), end, &args);
}

/* A launch and no fill, because a graph's launch may be given another address. */
struct status *engine_zero(struct kernel_ctx *ctx, void *to, size_t size_bytes) {
    struct device_move zeroes = {
        .to = to, .n_loops = 1, .dims = {(int64_t)size_bytes}, .to_strides = {1}};
    return size_bytes == 0 ? NULL : engine_move(ctx, 1, &zeroes, 1);
}
