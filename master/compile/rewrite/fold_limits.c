/* Estimates the cost of folding a node from four sources: the shape function says how large the
 * outputs are, the cost rows say how long the kernel runs, large numbers among the attrs say what
 * neither sees (windows, filter banks), and the lengths of strings say how long new strings are.
 *
 * An estimate that is too high costs nothing but one fold: the worker computes the node then. */
#include "master/compile/rewrite/fold_limits.h"

#include "common/ops/op_def.h"
#include "kernels/cost.h"

enum {
    SMALL_NUMBER = 64,       /* attrs up to it (axes, masks, small windows) do not count */
    MAX_STRINGS = 64 << 10,  /* of one input; looking at more takes too long */
    BYTES_OF_A_PIECE = 64,   /* the memory of a short string that is cut from a longer one */
    DIGITS_OF_A_NUMBER = 32, /* a number that is printed */
};
static const double NS_PER_UNIT = 0.3; /* of work that only the attrs tell */

int64_t fold_value_bytes(const struct tensor *value, int64_t max_bytes) {
    int64_t size = (int64_t)tensor_size_bytes(value);
    for (int64_t i = 0; value->dtype == DT_STRING && i < value->n_elements && size <= max_bytes;
         i++)
        size += (int64_t)tensor_string(value, i).len;
    return size;
}

/* ---- the sizes of the outputs ---- */

/* Infers the shapes of the outputs; what cannot be inferred stays unknown. */
static struct shape *infer_outputs(const struct node *node, int producer,
                                   const struct tensor *inputs, struct arena *scratch) {
    const struct op_def *def = op_def_find(node->op_name);
    int n_in = node->n_data, n_out = node->n_outputs;
    struct shape *in = arena_array(scratch, struct shape, n_in + 1);
    struct shape *in_handles = arena_array(scratch, struct shape, n_in + 1);
    const struct tensor **values = arena_array(scratch, const struct tensor *, n_in + 1);
    struct shape_inference ctx = {
        .node = node,
        .producer = producer,
        .arena = scratch,
        .in = in,
        .in_values = values,
        .in_as_shapes = arena_array(scratch, const struct shape *, n_in + 1),
        .out = arena_array(scratch, struct shape, n_out + 1),
        .in_handle_dtypes = arena_array(scratch, enum dtype, n_in + 1),
        .in_handle_shapes = in_handles,
        .out_handle_dtypes = arena_array(scratch, enum dtype, n_out + 1),
        .out_handle_shapes = arena_array(scratch, struct shape, n_out + 1),
    };
    for (int i = 0; i < n_in; i++) {
        in[i] = tensor_shape(&inputs[i]);
        in_handles[i] = SHAPE_UNKNOWN;
        values[i] = &inputs[i];
    }
    for (int i = 0; i < n_out; i++)
        ctx.out[i] = ctx.out_handle_shapes[i] = SHAPE_UNKNOWN;
    struct status *st = def && def->shape ? def->shape(&ctx) : NULL;
    for (int i = 0; st && i < n_out; i++)
        ctx.out[i] = SHAPE_UNKNOWN; /* the kernel will say what is wrong */
    status_unref(st);
    return ctx.out;
}

/* -1: unknown. INT64_MAX: more than an int64 holds. */
static int64_t n_elements_of(struct shape shape) {
    int64_t n = -1;
    if (!shape_is_full(shape))
        return -1;
    struct status *st = shape_n_elements(shape, &n);
    if (st)
        n = INT64_MAX;
    status_unref(st);
    return n;
}

static bool outputs_fit(const struct fold_limits *limits, const struct node *node,
                        const struct shape *out) {
    for (int i = 0; i < node->n_outputs; i++) {
        int64_t size, n = n_elements_of(out[i]);
        size_t element_bytes = dtype_size(dtype_base((enum dtype)node->out_types[i]));
        if (n >= 0 &&
            (mul_overflows_i64(n, (int64_t)element_bytes, &size) || size > limits->max_bytes))
            return false;
    }
    return true;
}

/* ---- time ---- */

static double largest_number(const struct attr_value *value) {
    double product = 1;
    if (value->type == ATTR_INT)
        return value->i > SMALL_NUMBER ? (double)value->i : 1;
    for (int i = 0; value->type == ATTR_LIST_INT && i < value->list.n_values; i++)
        product *= (double)MAX(value->list.values[i].i, (int64_t)1);
    return product > SMALL_NUMBER ? product : 1;
}

/* The product of what is large among the numbers of the attrs. The number of inputs is none of
 * them, since all inputs are counted. */
static double large_numbers(const struct node *node) {
    double product = 1;
    for (int i = 0; i < node->n_attrs; i++) {
        const struct attr *attr = &node->attrs[i];
        if (attr->name[0] != '_' && strcmp(attr->name, "N") != 0 &&
            strncmp(attr->name, "seed", 4) != 0 && !attr->value.is_placeholder)
            product *= largest_number(&attr->value);
    }
    return product;
}

static bool is_in_time(const struct fold_limits *limits, const struct node *node,
                       const struct tensor *inputs, const struct shape *out,
                       struct arena *scratch) {
    struct kernel_instance instance = {.node = node,
                                       .cost = cost_find("CPU", node),
                                       .n_inputs = node->n_data,
                                       .n_outputs = node->n_outputs};
    struct kernel_ctx ctx = {.inputs = (struct tensor *)(uintptr_t)inputs, .instance = &instance};
    struct shape *in = arena_array(scratch, struct shape, node->n_data + 1);
    bool is_known = true;
    double n = 1;
    if (cost_is_constant(instance.cost))
        return true;
    for (int i = 0; i < node->n_data; i++) {
        in[i] = tensor_shape(&inputs[i]);
        n = MAX(n, (double)inputs[i].n_elements);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        is_known = is_known && shape_is_full(out[i]);
        n = MAX(n, (double)n_elements_of(out[i]));
    }
    double ns = cost_ns_of_execution(&ctx), factor = large_numbers(node);
    if (is_known)
        ns = MAX(ns, cost_of_shapes("CPU", node, in, out).ns);
    if (factor > 1)
        ns = MAX(ns, n * factor * NS_PER_UNIT);
    return ns <= limits->max_ns;
}

/* ---- strings ---- */

/* The total size of the strings of a node's inputs and attrs. */
struct texts {
    double total;   /* bytes of all inputs */
    double longest; /* the longest string of each input, added up */
    double product; /* of the inputs' bytes, each plus one */
    double attrs;   /* bytes of the strings among the attrs */
    double n;       /* elements of the largest input */
};

/* False: an input has too many strings to look at. */
static bool add_text(const struct tensor *t, struct texts *texts) {
    double total = 0, longest = DIGITS_OF_A_NUMBER;
    if (t->dtype != DT_STRING) {
        total = (double)t->n_elements * DIGITS_OF_A_NUMBER;
    } else if (t->n_elements > MAX_STRINGS) {
        return false;
    } else {
        longest = 0;
        for (int64_t i = 0; i < t->n_elements; i++) {
            double len = (double)tensor_string(t, i).len;
            total += len;
            longest = MAX(longest, len);
        }
    }
    texts->total += total;
    texts->longest += longest;
    texts->product *= 1 + total;
    texts->n = MAX(texts->n, (double)t->n_elements);
    return true;
}

static bool has_strings(const uint8_t *types, int n) {
    for (int i = 0; i < n; i++)
        if (types[i] == DT_STRING)
            return true;
    return false;
}

/* What a decoder makes of compressed bytes is not bounded by their number. */
static bool inflates(const struct node *node) {
    static const char *const prefixes[] = {"DecodeCompressed", "DecodePng",  "DecodeJpeg",
                                           "DecodeGif",        "DecodeBmp",  "DecodeImage",
                                           "DecodeAndCrop",    "DecodeWebP", "DecodeProto"};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(node->op_name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* The bytes of the strings that the node makes, at most. Each result of a join or a format has
 * every input's text and every attr's once; a pattern's replacement may stand for every byte. */
static double made_bytes(const struct node *node, const struct texts *texts,
                         const struct shape *out) {
    double n = MAX(texts->n, (double)n_elements_of(out[0]));
    if (strstr(node->op_name, "RegexReplace"))
        return texts->product * (1 + texts->attrs);
    if (node_is_op(node, "StringNGrams"))
        return (texts->total + texts->n * (1 + texts->attrs)) * large_numbers(node) * SMALL_NUMBER;
    double joined = n * (texts->longest + texts->attrs) * large_numbers(node) + texts->total;
    /* a result of unknown shape may have a piece for each byte */
    return shape_is_full(out[0]) ? joined : joined + texts->total * BYTES_OF_A_PIECE;
}

static bool strings_fit(const struct fold_limits *limits, const struct node *node,
                        const struct tensor *inputs, const struct shape *out) {
    struct texts texts = {.product = 1};
    bool takes = has_strings(node->in_types, node->n_data),
         makes = has_strings(node->out_types, node->n_outputs);
    if (inflates(node))
        return false;
    if ((!takes && !makes) || cost_is_constant(cost_find("CPU", node)))
        return true;
    for (int i = 0; i < node->n_data; i++)
        if (!add_text(&inputs[i], &texts))
            return false;
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].value.type == ATTR_STRING && !node->attrs[i].value.is_placeholder &&
            node->attrs[i].name[0] != '_')
            texts.attrs += (double)node->attrs[i].value.s.len;
    return texts.total <= (double)limits->max_bytes &&
           (!makes || made_bytes(node, &texts, out) <= (double)limits->max_bytes);
}

bool fold_is_within(const struct fold_limits *limits, const struct node *node,
                    const struct tensor *inputs, struct arena *scratch) {
    arena_clear(scratch);
    const struct shape *out = infer_outputs(node, limits->producer, inputs, scratch);
    return outputs_fit(limits, node, out) && is_in_time(limits, node, inputs, out, scratch) &&
           strings_fit(limits, node, inputs, out);
}
