/* The cut: what a step feeds replaces what computes it; what it fetches gets a node that hands
 * the value out [WP 4.2].
 *
 *   a ──► b ──► c          feed a:0, fetch c:0          _feed_a_0 ──► b ──► c ──► _fetch_c_0
 *
 * Only the fed endpoint is replaced: other outputs of its node, and control edges from it, stay
 * (its effects still happen, as TensorFlow has it; found by experiment with the 2.21 wheel). A
 * placeholder is the exception: it has no effects and fails when it runs, so its control edges
 * go to the feed too. What is left without a consumer is the prune's. One feed node serves all
 * consumers here; the partition makes one per task, since the master holds the bytes and can
 * send them to each.
 *
 * Positions, not names: a fetch asked for twice has two nodes. "a" and "a:0" are one endpoint. */
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "master/compile/compilation.h"

enum { MAX_NEEDS = 64 << 20 };

struct endpoint {
    struct node *node;
    int index;
};

/* Finds the endpoint that a text names. NULL node: the text is malformed or a control edge, or the
 * node does not exist. */
static struct endpoint find_endpoint(const struct graph *graph, const char *text) {
    struct span name;
    struct endpoint endpoint = {NULL, 0};
    if (endpoint_parse(span_of(text), &name, &endpoint.index) && endpoint.index != CONTROL_EDGE)
        endpoint.node = graph_find_span(graph, name);
    return endpoint;
}

static bool is_control(const char *text) {
    struct span name;
    int index;
    return endpoint_parse(span_of(text), &name, &index) && index == CONTROL_EDGE;
}

/* Returns the same text for "a" and "a:0". Any other spelling stays as it is. */
static const char *normal_text(struct arena *arena, const char *text) {
    struct span name;
    int index;
    if (!endpoint_parse(span_of(text), &name, &index) || index == CONTROL_EDGE)
        return text;
    return arena_printf(arena, "%.*s:%d", (int)name.len, name.data, index);
}

/* ---- the signature by itself ---- */

static struct status *check_names(struct compilation *c) {
    const struct signature *signature = c->signature;
    if (signature->n_fetches == 0 && signature->n_targets == 0)
        return status_invalid("Must specify at least one target to fetch or execute.");
    struct strmap fed;
    struct status *st = NULL;
    strmap_init(&fed);
    for (int i = 0; i < signature->n_feeds; i++)
        if (strmap_put(&fed, normal_text(&c->arena, signature->feeds[i]), &fed))
            TRY_OUT(status_invalid("Endpoint \"%s\" fed more than once.", signature->feeds[i]));
    for (int i = 0; signature->n_feeds > 0 && i < signature->n_fetches; i++)
        if (strmap_get(&fed, normal_text(&c->arena, signature->fetches[i])))
            TRY_OUT(status_invalid("%s is both fed and fetched.", signature->fetches[i]));
out:
    strmap_fini(&fed);
    return st;
}

/* ---- against the graph ---- */

static struct status *find_feeds(struct compilation *c, struct endpoint *feeds) {
    for (int i = 0; i < c->signature->n_feeds; i++) {
        const char *text = c->signature->feeds[i];
        feeds[i] = find_endpoint(&c->graph, text);
        const struct node *node = feeds[i].node;
        if (is_control(text))
            return status_invalid("FeedInputs: %s names a control edge, which has no value", text);
        if (!node)
            return status_not_found("FeedInputs: unable to find feed output %s", text);
        if (feeds[i].index >= node->n_outputs)
            return status_invalid("FeedInputs: %s should have output index < %d", text,
                                  node->n_outputs);
        c->feed_types[i] = dtype_base((enum dtype)node->out_types[feeds[i].index]);
    }
    return NULL;
}

static struct status *find_fetches(struct compilation *c, struct endpoint *fetches) {
    for (int i = 0; i < c->signature->n_fetches; i++) {
        const char *text = c->signature->fetches[i];
        fetches[i] = find_endpoint(&c->graph, text);
        const struct node *node = fetches[i].node;
        if (is_control(text))
            return status_invalid("FetchOutputs %s: a control edge has no value", text);
        if (!node)
            return status_not_found("FetchOutputs node %s: not found", text);
        if (node->n_outputs == 0)
            return status_invalid(
                "Tried to fetch data for '%s', which produces no output.  To run to a node but not "
                "fetch any data, pass '%s' as "
                "an argument to the 'target_node_names' argument of the Session::Run API.",
                text, text);
        if (fetches[i].index >= node->n_outputs)
            return status_invalid("FetchOutputs %s: output index too large, must be < %d", text,
                                  node->n_outputs);
        c->fetch_types[i] = dtype_base((enum dtype)node->out_types[fetches[i].index]);
    }
    return NULL;
}

/* Finds the targets. They are names of nodes; "n:0" and "^n" mean n, as in TensorFlow. */
static struct status *find_targets(struct compilation *c) {
    struct str missing = STR_INIT;
    for (int i = 0; i < c->signature->n_targets; i++) {
        struct span name;
        int index;
        const char *text = c->signature->targets[i];
        c->target_nodes[i] =
            endpoint_parse(span_of(text), &name, &index) ? graph_find_span(&c->graph, name) : NULL;
        if (!c->target_nodes[i])
            str_addf(&missing, "%s ", text);
    }
    struct status *st = missing.len > 0
                            ? status_not_found("PruneForTargets: Some target nodes not found: %s",
                                               str_text(&missing))
                            : NULL;
    str_fini(&missing);
    return st;
}

/* ---- nodes for feeds and fetches ---- */

static bool is_placeholder(const struct node *node) {
    return node_is_op(node, "Placeholder") || node_is_op(node, "PlaceholderV2");
}

/* The shape that the client has stated. It is a hint for the nodes after it. */
static void say_shape(struct graph *graph, struct node *feed, const struct node *placeholder) {
    const struct attr_value *shape =
        is_placeholder(placeholder) ? node_attr(placeholder, "shape") : NULL;
    if (shape && shape->type == ATTR_SHAPE && shape->shape.rank > 0)
        node_set_attr_shape(graph, feed, "_shape", shape->shape);
}

static struct status *add_slot_node(struct compilation *c, const char *op,
                                    const struct endpoint *endpoint, enum dtype type, int position,
                                    struct node **ret) {
    const char *what = strcmp(op, OP_FEED) == 0 ? "_feed" : "_fetch";
    const char *name =
        graph_unique_name(&c->graph, arena_printf(&c->arena, "%s_%s_%d", what, endpoint->node->name,
                                                  endpoint->index));
    struct node *node;
    TRY(graph_add_node(&c->graph, name, op, "", &node));
    node_set_attr_type(&c->graph, node, "T", type);
    node_set_attr_i(&c->graph, node, "index", position);
    if (strcmp(op, OP_FETCH) == 0)
        node_add_input(&c->graph, node, endpoint->node,
                       endpoint->index); /* the value of a reference, if it is one */
    else
        say_shape(&c->graph, node, endpoint->node);
    TRY(node_finish(&c->graph, node));
    *ret = node;
    return NULL;
}

/* The replacements of the outputs of one node, chained from first_feed[node id]. */
struct feed {
    int index;
    struct node *node; /* _MrFeed, or the source of a connection */
    int output;        /* of it */
    const struct feed *next;
};

static struct status *rewire_node(struct node *node, struct feed *const *first_feed, int n_ids) {
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        const struct feed *feed = src->id < n_ids ? first_feed[src->id] : NULL;
        int wanted = i < node->n_data      ? node->inputs[i].index
                     : is_placeholder(src) ? 0
                                           : CONTROL_EDGE;
        while (feed && feed->index != wanted)
            feed = feed->next;
        if (!feed)
            continue;
        if (i < node->n_data && dtype_is_ref((enum dtype)node->in_types[i]))
            return status_invalid(
                "Input %d of node %s was passed %s from %s:0 incompatible with expected %s.\n\t "
                "[[{{node %s}}]]",
                i, node->name, dtype_name((enum dtype)feed->node->out_types[feed->output]),
                feed->node->name, dtype_name((enum dtype)node->in_types[i]), node->name);
        node_set_input(node, i, feed->node, i < node->n_data ? feed->output : CONTROL_EDGE);
    }
    return NULL;
}

static struct status *connect(struct compilation *c, int i, struct feed *row,
                              struct feed **first_feed) {
    const char *from = c->signature->connect_from[i], *to = c->signature->connect_to[i];
    struct endpoint source = find_endpoint(&c->graph, from),
                    replaced = find_endpoint(&c->graph, to);
    if (!source.node || source.index >= source.node->n_outputs)
        return status_invalid("Requested tensor connection from unknown node: \"%s\".", from);
    if (!replaced.node || replaced.index >= replaced.node->n_outputs)
        return status_invalid("Requested tensor connection to unknown node: \"%s\".", to);
    enum dtype have = dtype_base((enum dtype)source.node->out_types[source.index]);
    enum dtype want = dtype_base((enum dtype)replaced.node->out_types[replaced.index]);
    if (have != want)
        return status_invalid(
            "Requested tensor connection from %s (%s) to %s (%s): the types differ", from,
            dtype_name(have), to, dtype_name(want));
    *row = (struct feed){.index = replaced.index,
                         .node = source.node,
                         .output = source.index,
                         .next = first_feed[replaced.node->id]};
    first_feed[replaced.node->id] = row;
    return NULL;
}

/* Replaces the inputs in one sweep over all edges, whatever the number of feeds. */
static struct status *cut_feeds(struct compilation *c, const struct endpoint *feeds) {
    int n_feeds = c->signature->n_feeds, n_connections = c->signature->n_connections,
        n_ids = c->graph.n_nodes;
    if (n_feeds + n_connections == 0)
        return NULL;
    struct feed *rows = arena_array(&c->arena, struct feed, n_feeds + n_connections);
    struct feed **first_feed = arena_array(&c->arena, struct feed *, n_ids + 1);
    for (int i = 0; i < n_feeds; i++) {
        int id = feeds[i].node->id;
        rows[i] = (struct feed){.index = feeds[i].index, .next = first_feed[id]};
        first_feed[id] = &rows[i];
        TRY(add_slot_node(c, OP_FEED, &feeds[i], c->feed_types[i], i, &rows[i].node));
    }
    for (int i = 0; i < n_connections; i++)
        TRY(connect(c, i, &rows[n_feeds + i], first_feed));
    for (int id = 0; id < n_ids; id++)
        if (!c->graph.nodes[id]->is_removed)
            TRY(rewire_node(c->graph.nodes[id], first_feed, n_ids));
    if (n_connections > 0) { /* a connection may have closed a cycle */
        struct node **order;
        TRY(graph_topological_order(&c->graph, &order));
        free(order);
    }
    return NULL;
}

/* ---- partial runs ---- */

/* Marks the feeds that one fetch depends on, over data and control edges. */
static void find_needs(struct compilation *c, struct node *fetch, bool *is_seen,
                       struct node **stack, uint64_t *ret_needs) {
    int n_stack = 0, n_ids = c->graph.n_nodes;
    memset(is_seen, 0, (size_t)n_ids * sizeof(*is_seen));
    stack[n_stack++] = fetch;
    while (n_stack > 0) {
        const struct node *node = stack[--n_stack];
        int64_t position;
        if (node_is_op(node, OP_FEED)) {
            CHECK(node_get_i(node, "index", &position) == NULL);
            feed_set_add(ret_needs, (int)position);
        }
        for (int i = 0; i < node->n_inputs; i++) {
            struct node *src = node->inputs[i].src;
            if (is_seen[src->id])
                continue;
            is_seen[src->id] = true;
            stack[n_stack++] = src;
        }
    }
}

static struct status *find_feed_needs(struct compilation *c) {
    int n_feeds = c->signature->n_feeds, n_fetches = c->signature->n_fetches;
    if ((int64_t)n_feeds * n_fetches > MAX_NEEDS)
        return status_exhausted("A partial run of %d feeds and %d fetches is too large", n_feeds,
                                n_fetches);
    bool *is_seen = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*is_seen));
    struct node **stack = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*stack));
    size_t n_words = FEED_SET_WORDS(n_feeds);
    c->feed_needs =
        arena_zalloc(&c->arena, ((size_t)n_fetches * n_words + 1) * sizeof(*c->feed_needs));
    for (int i = 0; i < n_fetches; i++)
        find_needs(c, c->fetch_nodes[i], is_seen, stack, &c->feed_needs[(size_t)i * n_words]);
    free(is_seen);
    free(stack);
    return NULL;
}

struct status *pass_cut(struct compilation *c, bool *ret_changed) {
    const struct signature *signature = c->signature;
    TRY(check_names(c));
    struct endpoint *feeds = arena_array(&c->arena, struct endpoint, signature->n_feeds + 1);
    struct endpoint *fetches = arena_array(&c->arena, struct endpoint, signature->n_fetches + 1);
    c->feed_types = arena_array(&c->arena, enum dtype, signature->n_feeds + 1);
    c->fetch_types = arena_array(&c->arena, enum dtype, signature->n_fetches + 1);
    c->fetch_nodes = arena_array(&c->arena, struct node *, signature->n_fetches + 1);
    c->target_nodes = arena_array(&c->arena, struct node *, signature->n_targets + 1);
    c->n_targets = signature->n_targets;
    TRY(find_feeds(c, feeds));
    TRY(find_fetches(c, fetches));
    TRY(find_targets(c));
    TRY(cut_feeds(c, feeds));
    for (int i = 0; i < signature->n_fetches; i++)
        TRY(add_slot_node(c, OP_FETCH, &fetches[i], c->fetch_types[i], i, &c->fetch_nodes[i]));
    if (signature->is_partial)
        TRY(find_feed_needs(c));
    *ret_changed = signature->n_feeds + signature->n_fetches > 0;
    return NULL;
}
