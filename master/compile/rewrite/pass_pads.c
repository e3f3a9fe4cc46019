/* Lets a convolution pad its image itself [WP 5.1].
 *
 *   p = Pad(x, [[0,0],[1,1],[2,2],[0,0]])   c = Conv2D(p, w) {padding="VALID"}
 *      =>  c = Conv2D(x, w) {padding="EXPLICIT", explicit_paddings=[0,0,1,1,2,2,0,0]}
 *
 * So do the gradients of the filter, which takes the padded image, too, and of the image:
 *
 *   g = Conv2DBackpropInput(Shape(p), w, d) {padding="VALID"}   r = Slice(g, [0,1,2,0], Shape(x))
 *      =>  r = Conv2DBackpropInput(Shape(x), w, d) {padding="EXPLICIT", …}
 *
 * A Pad is left out only if all that take its value, or ask for its shape, can do without it. It
 * must pad with zeros, at the sides of rows and columns only. The consumers of the Pad inherit its
 * control inputs.
 *
 * The pass is off by default, for two reasons. A filter that is not finite makes NaN of padding
 * that is multiplied by it, and libraries leave padding out. And a Pad that would fail (an image of
 * another rank) fails no longer, or as a convolution. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/graph_rewrite.h"
#include "master/compile/rewrite/simplify.h"

enum { RANK = 4, MAX_WAITS = 64 };

struct padder {
    struct compilation *c;
    struct graph_consumers consumers; /* as the graph was before the pass */
    bool *is_target, *is_reference;   /* by node id */
    struct node *waits[MAX_WAITS];    /* of the present Pad */
    int n_waits;
};

struct pad {
    struct node *node;
    struct node_input x;
    int64_t sides[2 * RANK]; /* before and after, by dimension */
};

/* ---- what is known of nodes ---- */

/* A constant vector or matrix of n numbers, none of which is negative. */
static bool read_ints(const struct node_input *in, int n, int64_t *ret) {
    const struct tensor *t = simplify_const(in);
    if (!t || !dtype_in((enum dtype)t->dtype, DTYPES_INDEX) || t->n_elements != n)
        return false;
    for (int i = 0; i < n; i++) {
        ret[i] = tensor_index_at(t, i);
        if (ret[i] < 0 || ret[i] > INT32_MAX)
            return false;
    }
    return true;
}

static bool read_pad(const struct padder *own, struct node *node, struct pad *ret) {
    if (!node_is_either(node, "Pad", "PadV2") || own->is_target[node->id] || node_has_ref(node) ||
        own->is_reference[node->inputs[0].src->id])
        return false;
    *ret = (struct pad){.node = node, .x = node->inputs[0]};
    if (node->n_data == 3) {
        const struct tensor *value = simplify_const(&node->inputs[2]);
        if (!value || value->rank != 0 || !simplify_const_is(value, 0))
            return false;
    }
    if (!read_ints(&node->inputs[1], 2 * RANK, ret->sides))
        return false;
    const struct tensor *t = simplify_const(&node->inputs[1]);
    return t->rank == 2 && tensor_dim(t, 1) == 2;
}

static bool is_text(const struct node *node, const char *name, const char *text) {
    const struct attr_value *value = node_attr(node, name);
    return value && value->type == ATTR_STRING && span_is(value->s, text);
}

/* Can the convolution pad as the Pad does? */
static bool pads_itself(const struct node *conv, const struct pad *pad) {
    int channel = is_text(conv, "data_format", "NCHW") ? 1 : RANK - 1;
    return strcmp(conv->device, pad->node->device) == 0 && conv->placed == pad->node->placed &&
           !node_has_ref(conv) && pad->sides[0] == 0 && pad->sides[1] == 0 &&
           pad->sides[2 * channel] == 0 && pad->sides[2 * channel + 1] == 0 &&
           (is_text(conv, "padding", "VALID") || is_text(conv, "padding", "EXPLICIT"));
}

/* The only edge from a node's output; NULL: there are several edges from the node, or none. */
static const struct node_output_edge *only_edge(const struct padder *own, const struct node *node) {
    int first = own->consumers.first[node->id];
    return own->consumers.first[node->id + 1] == first + 1 ? &own->consumers.edges[first] : NULL;
}

/* Is the value the shape of `of`, or a constant? Python makes a constant of a static shape. A
 * constant may also be a smaller size, which cuts off more than the padding: then the gradient's
 * kernel refuses the sizes, since nothing here knows the shape. */
static bool is_size_of(const struct node_input *in, const struct node_input *of) {
    const struct node *src = in->src;
    int64_t sizes[RANK];
    if (!node_is_either(src, "Shape", "ShapeN"))
        return read_ints(in, RANK, sizes);
    const struct node_input *asked = &src->inputs[in->index];
    return asked->src == of->src && asked->index == of->index;
}

/* The Slice that cuts the padding off the gradient of the padded image; NULL: there is none. */
static struct node *cut_back(const struct padder *own, const struct node *conv,
                             const struct pad *pad) {
    int64_t begin[RANK];
    const struct node_output_edge *edge = only_edge(own, conv);
    if (own->is_target[conv->id] || !edge || edge->index != 0 || edge->position != 0 ||
        !node_is_op(edge->dst, "Slice") || !read_ints(&edge->dst->inputs[1], RANK, begin) ||
        edge->dst->in_types[2] != DT_INT32 || !is_size_of(&edge->dst->inputs[2], &pad->x) ||
        strcmp(edge->dst->device, conv->device) != 0)
        return NULL;
    for (int i = 0; i < RANK; i++)
        if (begin[i] != pad->sides[2 * i])
            return NULL;
    return edge->dst;
}

/* Do all that ask for the padded image's shape need it for a gradient whose padding is cut off? */
static bool asks_for_gradients(const struct padder *own, const struct node *shape, int output,
                               const struct pad *pad) {
    for (int k = own->consumers.first[shape->id]; k < own->consumers.first[shape->id + 1]; k++) {
        const struct node_output_edge *edge = &own->consumers.edges[k];
        if (edge->index == output &&
            !(node_is_op(edge->dst, "Conv2DBackpropInput") && edge->position == 0 &&
              pads_itself(edge->dst, pad) && cut_back(own, edge->dst, pad)))
            return false;
    }
    return !own->is_target[shape->id];
}

static bool can_do_without(const struct padder *own, const struct node_output_edge *edge,
                           const struct pad *pad) {
    if (edge->index == CONTROL_EDGE)
        return false;
    if (node_is_either(edge->dst, "Conv2D", "Conv2DBackpropFilter"))
        return edge->position == 0 && pads_itself(edge->dst, pad);
    return node_is_either(edge->dst, "Shape", "ShapeN") &&
           asks_for_gradients(own, edge->dst, edge->position, pad);
}

/* ---- the rewrite ---- */

static bool add_wait(struct padder *own, struct node *node) {
    if (own->n_waits == MAX_WAITS)
        return false;
    own->waits[own->n_waits++] = node;
    return true;
}

static bool add_controls_of(struct padder *own, const struct node *node) {
    for (int i = node->n_data; i < node->n_inputs; i++)
        if (!add_wait(own, node->inputs[i].src))
            return false;
    return true;
}

/* Finds what the Pad waits for but for its image. False: it is too much. */
static bool find_waits(struct padder *own, const struct node *node) {
    own->n_waits = 0;
    for (int i = 1; i < node->n_data; i++) {
        struct node *src = node->inputs[i].src;
        if (!(node_is_op(src, "Const") ? add_controls_of(own, src) : add_wait(own, src)))
            return false;
    }
    return add_controls_of(own, node);
}

static void wait_too(struct padder *own, struct node *node) {
    node_add_controls(&own->c->graph, node, own->waits, own->n_waits);
}

static void set_padding(struct padder *own, struct node *conv, const struct pad *pad) {
    struct attr_value sides[2 * RANK], list = {.type = ATTR_LIST_INT};
    const struct attr_value *before = node_attr(conv, "explicit_paddings");
    bool is_explicit = is_text(conv, "padding", "EXPLICIT");
    for (int i = 0; i < 2 * RANK; i++) {
        sides[i] = (struct attr_value){.type = ATTR_INT, .i = pad->sides[i]};
        if (is_explicit && before && i < before->list.n_values)
            sides[i].i += before->list.values[i].i;
    }
    list.list.values = sides, list.list.n_values = 2 * RANK;
    node_set_attr(&own->c->graph, conv, "explicit_paddings", &list);
    node_set_attr_s(&own->c->graph, conv, "padding", "EXPLICIT");
}

/* Makes the Slice the gradient of the image that is not padded. */
static struct status *be_gradient(struct padder *own, struct node *slice, const struct pad *pad) {
    struct graph *graph = &own->c->graph;
    const struct node *conv = slice->inputs[0].src;
    struct node_input begin = slice->inputs[1], sizes = slice->inputs[2];
    int n = slice->n_inputs - slice->n_data + conv->n_inputs - conv->n_data, n_waits = 0;
    struct node **waits = arena_array(&own->c->arena, struct node *, n + 1);
    for (int i = slice->n_data; i < slice->n_inputs; i++)
        waits[n_waits++] = slice->inputs[i].src;
    for (int i = conv->n_data; i < conv->n_inputs; i++)
        waits[n_waits++] = conv->inputs[i].src;
    if (!node_is_op(begin.src, "Const") || begin.src->n_inputs > 0)
        waits[n_waits++] = begin.src;
    node_change_op(graph, slice, conv->op_name);
    for (int i = 0; i < conv->n_attrs; i++)
        if (conv->attrs[i].name[0] != '_')
            node_set_attr(graph, slice, conv->attrs[i].name, &conv->attrs[i].value);
    set_padding(own, slice, pad);
    node_add_input(graph, slice, sizes.src, sizes.index);
    for (int i = 1; i < 3; i++)
        node_add_input(graph, slice, conv->inputs[i].src, conv->inputs[i].index);
    TRY(node_finish(graph, slice));
    node_add_controls(graph, slice, waits, n_waits);
    wait_too(own, slice);
    return NULL;
}

static struct status *rewrite_gradients(struct padder *own, const struct node *shape, int output,
                                        const struct pad *pad) {
    for (int k = own->consumers.first[shape->id]; k < own->consumers.first[shape->id + 1]; k++) {
        const struct node_output_edge *edge = &own->consumers.edges[k];
        if (edge->index == output)
            TRY(be_gradient(own, cut_back(own, edge->dst, pad), pad));
    }
    return NULL;
}

static struct status *leave_out(struct padder *own, const struct pad *pad) {
    int first = own->consumers.first[pad->node->id], last = own->consumers.first[pad->node->id + 1];
    for (int k = first; k < last; k++) {
        const struct node_output_edge *edge = &own->consumers.edges[k];
        struct node *dst = edge->dst;
        if (node_is_either(dst, "Shape", "ShapeN"))
            TRY(rewrite_gradients(own, dst, edge->position, pad));
        else
            set_padding(own, dst, pad);
        node_set_input(dst, edge->position, pad->x.src, pad->x.index);
        wait_too(own, dst);
    }
    return NULL;
}

static struct status *look_at_pad(struct padder *own, struct node *node, bool *ret_changed) {
    struct pad pad;
    int first = own->consumers.first[node->id], last = own->consumers.first[node->id + 1];
    if (first == last || !read_pad(own, node, &pad) || !find_waits(own, node))
        return NULL;
    for (int k = first; k < last; k++)
        if (!can_do_without(own, &own->consumers.edges[k], &pad))
            return NULL;
    *ret_changed = true;
    return leave_out(own, &pad);
}

struct status *pass_pads(struct compilation *c, bool *ret_changed) {
    struct padder own = {.c = c};
    struct status *st = NULL;
    int n_nodes = c->graph.n_nodes;
    graph_consumers_init(&own.consumers, &c->graph);
    own.is_reference = compile_references(&c->graph);
    own.is_target = compile_targets(c);
    for (int i = 0; i < n_nodes && !st; i++)
        if (!c->graph.nodes[i]->is_removed)
            st = look_at_pad(&own, c->graph.nodes[i], ret_changed);
    graph_consumers_fini(&own.consumers);
    free(own.is_reference);
    return st;
}
