/* Infers shapes once more, with measured sizes or guesses where the static shapes say nothing
 * (expected_shapes.h). */
#include "master/compile/cost/expected_shapes.h"

#include <math.h>
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "kernels/infer_eval.h"

enum { UNKNOWN_SIZE = 32 /* elements along a dimension of unknown size */ };

struct shape expected_full_shape(struct arena *arena, struct shape shape) {
    static const int64_t unknown_dims[] = {-1};
    if (shape.rank == SHAPE_UNKNOWN_RANK)
        shape = (struct shape){1, unknown_dims};
    int64_t *dims = arena_array(arena, int64_t, shape.rank + 1);
    for (int d = 0; d < shape.rank; d++)
        dims[d] = shape.dims[d] < 0 ? UNKNOWN_SIZE : shape.dims[d];
    return (struct shape){shape.rank, dims};
}

/* ---- measured sizes ---- */

/* In the table 0 is no number: a rank of 0 is this one. */
static const double NEARLY_NONE = 0.25;

/* 0: not measured */
static double find(struct cost_table *table, const char *beginning, int dim) {
    struct str key = STR_INIT;
    str_add(&key, beginning);
    cost_size_key_end(&key, dim);
    double size = cost_table_find(table, str_text(&key));
    str_fini(&key);
    return size;
}

static void note(struct cost_table *table, const char *beginning, int dim, double size, int64_t n) {
    struct str key = STR_INIT;
    str_add(&key, beginning);
    cost_size_key_end(&key, dim);
    cost_table_note(table, str_text(&key), size, n);
    str_fini(&key);
}

void expected_size_note(const struct compiled_size *size, const double *dims, int rank, int64_t n,
                        struct cost_table *table) {
    struct shape known = size->known;
    if (known.rank != SHAPE_UNKNOWN_RANK && known.rank != rank)
        return;
    if (known.rank == SHAPE_UNKNOWN_RANK)
        note(table, size->key, COST_RANK, fmax(rank, NEARLY_NONE), n);
    for (int d = 0; d < rank; d++)
        if (known.rank == SHAPE_UNKNOWN_RANK || known.dims[d] < 0)
            note(table, size->key, d, fmax(dims[d], 1), n);
}

/* Puts measured sizes in place of unknown ones. False: not all were measured. */
static bool fill(struct cost_table *table, const char *key, struct arena *arena,
                 struct shape *shape) {
    bool is_complete = true;
    if (shape->rank == SHAPE_UNKNOWN_RANK) {
        double rank_row = find(table, key, COST_RANK);
        if (rank_row == 0 || rank_row > SHAPE_MAX_RANK)
            return false;
        int rank = (int)lround(rank_row);
        int64_t *none = arena_array(arena, int64_t, rank + 1);
        for (int d = 0; d < rank; d++)
            none[d] = -1;
        *shape = (struct shape){rank, none};
    }
    int64_t *dims = arena_array(arena, int64_t, shape->rank + 1);
    for (int d = 0; d < shape->rank; d++) {
        double size = shape->dims[d] < 0 ? find(table, key, d) : 0;
        dims[d] = size > 0 ? (int64_t)llround(size) : shape->dims[d];
        is_complete &= dims[d] >= 0;
    }
    shape->dims = dims;
    return is_complete;
}

/* ---- inference ---- */

/* Hands its first input on, into a loop, around it or out of it. What a loop makes of a value is
 * not known before, so it is taken to keep the shape with which it enters. */
static bool hands_on(const struct node *node) {
    static const char *const ops[] = {"Enter", "Merge", "Exit", "RefEnter", "RefMerge", "RefExit"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    return false;
}

/* Lists the value as one to measure. Returns the beginning of its keys. */
static const char *add_size(struct compilation *c, const struct node *node, struct shape known) {
    struct str key = STR_INIT;
    int64_t feed = -1;
    bool is_feed = node_is_op(node, OP_FEED);
    if (is_feed)
        CHECK(node_get_i(node, "index", &feed) == NULL);
    cost_size_key_write(&key, node, known);
    if (c->n_sizes == c->sizes_capacity) {
        struct compiled_size *old = c->sizes;
        c->sizes_capacity = 2 * c->sizes_capacity + 16;
        c->sizes = arena_array(&c->arena, struct compiled_size, c->sizes_capacity);
        if (old)
            memcpy(c->sizes, old, (size_t)c->n_sizes * sizeof(*old));
    }
    struct compiled_size *size = &c->sizes[c->n_sizes++];
    *size = (struct compiled_size){.node = is_feed ? NULL : arena_strdup(&c->arena, node->name),
                                   .feed = (int)feed,
                                   .key = arena_strdup(&c->arena, str_text(&key)),
                                   .known = shape_dup(known, &c->arena)};
    str_fini(&key);
    return size->key;
}

/* Output 0, which nothing but a step tells. Returns whether sizes of it are guesses. */
static bool refine_first(struct compilation *c, const struct node *node, struct shape *shape,
                         struct arena *arena) {
    const char *key = add_size(c, node, *shape);
    bool is_measured = c->options->costs && fill(c->options->costs, key, arena, shape);
    *shape = expected_full_shape(arena, *shape);
    return !is_measured;
}

/* Outputs of one node mostly have one batch. */
static struct shape refine_other(struct shape shape, struct shape first, struct arena *arena) {
    if (shape.rank <= 0 || first.rank <= 0 || shape.dims[0] >= 0)
        return expected_full_shape(arena, shape);
    int64_t *dims = arena_array(arena, int64_t, shape.rank);
    memcpy(dims, shape.dims, (size_t)shape.rank * sizeof(*dims));
    dims[0] = first.dims[0];
    return expected_full_shape(arena, (struct shape){shape.rank, dims});
}

static bool has_guessed_inputs(const struct compilation *c, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (c->is_guessed[node->inputs[i].src->id])
            return true;
    return false;
}

/* Returns whether sizes of the output are guesses. */
static bool refine_output(struct compilation *c, const struct node *node, int output,
                          const struct shape *in, struct shape *out, struct arena *arena) {
    struct shape known = graph_shapes_of(&c->shapes, node, output), *shape = &out[output];
    enum dtype dtype = dtype_base((enum dtype)node->out_types[output]);
    if (shape_is_full(known) || shape->rank == SHAPE_UNKNOWN_RANK)
        *shape = known; /* whatever the shape function makes of guesses */
    if (shape_is_full(*shape))
        return false;
    if (output > 0) {
        *shape = refine_other(*shape, out[0], arena);
        return false;
    }
    if (dtype_is_object(dtype) && dtype != DT_STRING)
        *shape = SHAPE_SCALAR;
    else if (node->n_data > 0 && shape_is_full(in[0]) && hands_on(node))
        *shape = in[0];
    else
        return refine_first(c, node, shape, arena);
    return false;
}

static void refine(void *arg, const struct node *node, const struct shape *in, struct shape *out,
                   struct arena *arena) {
    struct compilation *c = arg;
    bool is_static = true, is_guessed = false;
    for (int i = 0; i < node->n_outputs; i++) {
        is_static &= shape_is_full(graph_shapes_of(&c->shapes, node, i));
        is_guessed |= refine_output(c, node, i, in, out, arena);
    }
    c->is_guessed[node->id] = is_guessed || (!is_static && has_guessed_inputs(c, node));
}

const struct graph_shapes *expected_shapes(struct compilation *c) {
    const struct graph_shapes *known = compilation_shapes(c);
    if (known->n_full == known->n_outputs)
        return known;
    if (c->expected.n_nodes == c->graph.n_nodes)
        return &c->expected;
    struct infer_options options;
    infer_options_with_kernels(&options);
    options.refine = refine;
    options.refine_arg = c;
    graph_shapes_fini(&c->expected);
    graph_shapes_init(&c->expected);
    c->n_sizes = 0;
    c->is_guessed = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    status_unref(graph_infer_shapes(&c->graph, &c->expected, &options)); /* a cycle, as above */
    return &c->expected;
}

bool expected_is_guessed(const struct compilation *c, const struct node *node) {
    return c->expected.n_nodes > node->id && c->is_guessed[node->id];
}

/* ---- the list of a compiled step ---- */

void expected_sizes_keep(struct compilation *c, struct compiled *compiled) {
    struct arena *arena = &compiled->arena;
    compiled->n_sizes = c->n_sizes;
    compiled->sizes = arena_array(arena, struct compiled_size, c->n_sizes + 1);
    for (int i = 0; i < c->n_sizes; i++) {
        const struct compiled_size *size = &c->sizes[i];
        compiled->sizes[i] =
            (struct compiled_size){.node = size->node ? arena_strdup(arena, size->node) : NULL,
                                   .feed = size->feed,
                                   .key = arena_strdup(arena, size->key),
                                   .known = shape_dup(size->known, arena)};
    }
}
