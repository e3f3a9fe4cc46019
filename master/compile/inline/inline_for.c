/* The bounds of a For loop, worked out before it begins (inline.h): the loop counts from start
 * by delta until it meets `end`, one comparison an iteration whatever delta's sign. With d =
 * limit - start in 64 bits:
 *
 *   end = start + ⌈d / delta⌉ · delta       may lie beyond 32 bits; it wraps as the counter does
 *   valid: d is 0, or has delta's sign      else the step fails */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

struct bounds {
    struct inliner *in;
    const struct inline_call *call;
    struct node *entry;
    struct status *status; /* the first error */
};

static struct status *add(struct bounds *b, const char *op, enum dtype cast_to,
                          const struct node_input *inputs, int n, struct node **ret) {
    TRY(inline_node(b->in, b->call, "bounds", op,
                    cast_to == DT_INVALID ? endpoint_type(inputs[0]) : DT_INVALID, ret));
    if (cast_to != DT_INVALID) {
        node_set_attr_type(b->in->graph, *ret, "SrcT", endpoint_type(inputs[0]));
        node_set_attr_type(b->in->graph, *ret, "DstT", cast_to);
    }
    for (int i = 0; i < n; i++)
        node_add_input(b->in->graph, *ret, inputs[i].src, inputs[i].index);
    TRY(node_finish(b->in->graph, *ret));
    if (b->entry)
        node_add_control(b->in->graph, *ret, b->entry);
    return NULL;
}

static struct node_input of_one(struct bounds *b, const char *op, struct node_input a) {
    struct node_input made = {NULL, 0};
    if (!b->status)
        b->status = add(b, op, DT_INVALID, &a, 1, &made.src);
    return made;
}

static struct node_input of_two(struct bounds *b, const char *op, struct node_input a,
                                struct node_input c) {
    struct node_input made = {NULL, 0}, inputs[] = {a, c};
    if (!b->status)
        b->status = add(b, op, DT_INVALID, inputs, 2, &made.src);
    return made;
}

static struct node_input cast(struct bounds *b, struct node_input a, enum dtype to) {
    struct node_input made = {NULL, 0};
    if (!b->status)
        b->status = add(b, "Cast", to, &a, 1, &made.src);
    return made;
}

static struct status *add_check(struct bounds *b, struct node_input is_valid, struct node **ret) {
    struct graph *graph = b->in->graph;
    const struct node *node = b->call->node;
    const struct node_input data[] = {{NULL, 0}, node->inputs[0], node->inputs[1], node->inputs[2]};
    static const char text[] = "Invalid start/limit/delta:";
    struct attr_value types[ARRAY_LEN(data)];
    struct tensor message = TENSOR_INIT;
    struct node *words;
    TRY(inline_node(b->in, b->call, "bounds", "Const", DT_INVALID, &words));
    TRY(tensor_new(allocator_host(), DT_STRING, SHAPE_SCALAR, &message));
    tensor_set_string(&message, 0, text, sizeof(text) - 1);
    node_set_attr_type(graph, words, "dtype", DT_STRING);
    node_set_attr_tensor(graph, words, "value", &message);
    tensor_clear(&message);
    TRY(node_finish(graph, words));
    TRY(inline_node(b->in, b->call, "bounds", "Assert", DT_INVALID, ret));
    node_add_input(graph, *ret, is_valid.src, is_valid.index);
    for (size_t i = 0; i < ARRAY_LEN(data); i++) {
        types[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = i == 0 ? DT_STRING : DT_INT32};
        node_add_input(graph, *ret, i == 0 ? words : data[i].src, i == 0 ? 0 : data[i].index);
    }
    node_set_attr(graph, *ret, "T",
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {types, ARRAY_LEN(types)}});
    TRY(node_finish(graph, *ret));
    if (b->entry)
        node_add_control(graph, words, b->entry);
    return NULL;
}

struct status *inline_for_bounds(struct inliner *in, const struct inline_call *call,
                                 struct node *entry, struct node_input *ret_end,
                                 struct node **ret_checked) {
    struct bounds b = {.in = in, .call = call, .entry = entry};
    struct node_input start = cast(&b, call->node->inputs[0], DT_INT64),
                      delta = cast(&b, call->node->inputs[2], DT_INT64);
    struct node_input limit = cast(&b, call->node->inputs[1], DT_INT64),
                      distance = of_two(&b, "Sub", limit, start);
    struct node_input sign = of_one(&b, "Sign", distance), delta_sign = of_one(&b, "Sign", delta);
    struct node_input is_valid =
        of_two(&b, "GreaterEqual", of_two(&b, "Mul", sign, delta_sign), of_one(&b, "Abs", sign));
    /* A delta of 0 is valid if there is nothing to do; the division is by 1 instead. */
    struct node_input is_zero =
        of_two(&b, "Sub", of_one(&b, "OnesLike", delta), of_one(&b, "Abs", delta_sign));
    struct node_input n =
        of_two(&b, "FloorDiv", of_one(&b, "Neg", distance), of_two(&b, "AddV2", delta, is_zero));
    *ret_end = cast(&b, of_two(&b, "Sub", start, of_two(&b, "Mul", n, delta)), DT_INT32);
    TRY(b.status);
    return add_check(&b, is_valid, ret_checked);
}
