/* Groups, layers and writes the boxes of a placed graph. */
#include "master/service/graph_drawing.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/units.h"
#include "rpc/daemon/page.h"

enum {
    MAX_DEPTH = 12,  /* of scopes */
    BOX_WIDTH = 216, /* for the longest line of wide letters */
    BOX_HEIGHT = 58,
    GAP_X = 26,
    GAP_Y = 44,
    MARGIN = 16,
    BOXES_ABREAST = 6,
    SWEEPS = 4, /* over the layers, to put boxes near what they are joined with */
    MAX_LINE_BYTES = 25,
    MAX_ARROWS = 400,
};

struct box {
    const char *name;               /* of its node or scope */
    const struct placed_node *node; /* if it is a single one */
    const char *device, *why;
    int n_nodes, n_measured;
    double estimate_ns, measured_ns;
    int layer, row, column;
    double order;
    bool is_open; /* while the layers are found */
};

struct arrow {
    int from, to, n; /* boxes, and how many edges */
    bool is_control; /* all of them are */
};

struct drawing {
    const struct placed_graph *graph;
    struct arena arena;
    struct box *boxes;
    int n_boxes;
    int *box_of; /* by node */
    struct arrow *arrows;
    int n_arrows, n_rows, n_columns;
    int *n_in_row;
    int depth; /* of the scopes that are boxes; MAX_DEPTH + 1: each node is one */
    bool has_others;
};

/* ---- boxes ---- */

/* The length of the first `depth` parts of a name, of the whole if it has no more. */
static size_t scope_len(const char *name, int depth) {
    const char *at = name;
    for (int i = 0; i < depth; i++) {
        const char *slash = strchr(at, '/');
        if (!slash)
            return strlen(name);
        at = slash + 1;
    }
    return (size_t)(at - 1 - name);
}

/* Feeds and fetches are boxes of their own: they have names of other nodes. */
static const char *key_of(struct drawing *d, const struct placed_node *node, int depth) {
    bool is_end = strcmp(node->op, "feed") == 0 || strcmp(node->op, "fetch") == 0;
    size_t len = depth > MAX_DEPTH ? strlen(node->name) : scope_len(node->name, depth);
    return arena_printf(&d->arena, "%.*s\n%s\n%s", (int)len, node->name, node->device,
                        is_end || depth > MAX_DEPTH ? node->op : "");
}

static int count_keys(struct drawing *d, int depth) {
    struct strmap seen;
    int n = 0;
    strmap_init(&seen);
    for (int i = 0; i < d->graph->n_nodes && n <= GRAPH_DRAWING_BOXES; i++) {
        const char *key = key_of(d, &d->graph->nodes[i], depth);
        n += strmap_put(&seen, key, d) == NULL;
    }
    strmap_fini(&seen);
    return n;
}

static void choose_depth(struct drawing *d) {
    d->depth = d->graph->n_nodes <= GRAPH_DRAWING_BOXES ? MAX_DEPTH + 1 : MAX_DEPTH;
    while (d->depth > 1 && count_keys(d, d->depth) > GRAPH_DRAWING_BOXES)
        d->depth--;
}

static int add_box(struct drawing *d, const struct placed_node *node, const char *name) {
    d->boxes[d->n_boxes] = (struct box){.name = name, .device = node->device, .why = node->why};
    return d->n_boxes++;
}

/* Scopes get boxes in the order of their first nodes; those that come too late are joined. */
static int find_box(struct drawing *d, struct strmap *by_key, const struct placed_node *node) {
    const char *key = key_of(d, node, d->depth);
    uintptr_t found = (uintptr_t)strmap_get(by_key, key);
    if (found)
        return (int)found - 1;
    const char *name = arena_strndup(&d->arena, key, strcspn(key, "\n"));
    if (d->n_boxes >= GRAPH_DRAWING_BOXES) {
        d->has_others = true;
        key = arena_printf(&d->arena, "\nothers\n%s", node->device);
        name = "others";
        found = (uintptr_t)strmap_get(by_key, key);
        if (found)
            return (int)found - 1;
    }
    int box = add_box(d, node, name);
    strmap_put(by_key, key, (void *)(uintptr_t)(box + 1));
    return box;
}

static void make_boxes(struct drawing *d, const struct node_times *times) {
    struct strmap by_key;
    int n = d->graph->n_nodes;
    strmap_init(&by_key);
    choose_depth(d);
    d->boxes = arena_array(&d->arena, struct box, n + 1);
    d->box_of = arena_array(&d->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        const struct placed_node *node = &d->graph->nodes[i];
        struct box *box = &d->boxes[d->box_of[i] = find_box(d, &by_key, node)];
        box->node = box->n_nodes++ == 0 ? node : NULL;
        box->estimate_ns += node->estimate_ns;
        if (times[i].n > 0) {
            box->measured_ns += (double)times[i].total_ns / (double)times[i].n;
            box->n_measured++;
        }
        if (box->why && strcmp(box->why, node->why) != 0)
            box->why = NULL; /* its nodes have several reasons */
    }
    strmap_fini(&by_key);
}

static int by_ends(const void *a, const void *b) {
    const struct arrow *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static void make_arrows(struct drawing *d) {
    int n_edges = 0, n = 0;
    for (int i = 0; i < d->graph->n_nodes; i++)
        n_edges += d->graph->nodes[i].n_inputs;
    struct arrow *all = arena_array(&d->arena, struct arrow, n_edges + 1);
    for (int i = 0; i < d->graph->n_nodes; i++)
        for (int k = 0; k < d->graph->nodes[i].n_inputs; k++) {
            const struct placed_input *input = &d->graph->nodes[i].inputs[k];
            if (d->box_of[input->node] != d->box_of[i])
                all[n++] =
                    (struct arrow){d->box_of[input->node], d->box_of[i], 1, input->is_control};
        }
    qsort(all, (size_t)n, sizeof *all, by_ends);
    d->arrows = all;
    for (int i = 0; i < n; i++) {
        struct arrow *last = d->n_arrows > 0 ? &all[d->n_arrows - 1] : NULL;
        if (last && by_ends(last, &all[i]) == 0) {
            last->n++;
            last->is_control &= all[i].is_control;
        } else {
            all[d->n_arrows++] = all[i];
        }
    }
}

/* ---- layers ---- */

/* A box is below all boxes from which an arrow leads to it. An arrow that closes a circle, as
 * scopes and loops make them, is left out: it leads to a box that is still open. */
static int find_layer(struct drawing *d, int index) {
    struct box *box = &d->boxes[index];
    if (box->layer >= 0 || box->is_open)
        return box->layer;
    int layer = 0;
    box->is_open = true;
    for (int i = 0; i < d->n_arrows; i++)
        if (d->arrows[i].to == index)
            layer = MAX(layer, find_layer(d, d->arrows[i].from) + 1);
    box->is_open = false;
    return box->layer = layer;
}

/* What needs nothing is drawn just above what needs it first. */
static void lower_sources(struct drawing *d) {
    for (int i = 0; i < d->n_boxes; i++) {
        int lowest = INT32_MAX;
        bool is_source = true;
        for (int k = 0; k < d->n_arrows; k++) {
            is_source &= d->arrows[k].to != i;
            if (d->arrows[k].from == i)
                lowest = MIN(lowest, d->boxes[d->arrows[k].to].layer - 1);
        }
        if (is_source && lowest != INT32_MAX && lowest > 0)
            d->boxes[i].layer = lowest;
    }
}

static int by_layer_and_order(const void *a, const void *b) {
    const struct box *x = *(struct box *const *)a, *y = *(struct box *const *)b;
    if (x->layer != y->layer)
        return x->layer - y->layer;
    return x->order != y->order ? (x->order < y->order ? -1 : 1) : (x > y) - (x < y);
}

/* Gives each box its place; a layer of many boxes takes several rows. */
static void place_boxes(struct drawing *d, struct box **sorted) {
    int row = -1, column = 0, layer = -1;
    qsort(sorted, (size_t)d->n_boxes, sizeof *sorted, by_layer_and_order);
    for (int i = 0; i < d->n_boxes; i++) {
        if (sorted[i]->layer != layer || column == BOXES_ABREAST) {
            row++;
            column = 0;
        }
        layer = sorted[i]->layer;
        sorted[i]->row = row;
        sorted[i]->column = column++;
    }
    d->n_rows = row + 1;
}

static void order_boxes(struct drawing *d) {
    struct box **sorted = arena_array(&d->arena, struct box *, d->n_boxes + 1);
    double *sums = arena_array(&d->arena, double, d->n_boxes + 1);
    int *counts = arena_array(&d->arena, int, d->n_boxes + 1);
    for (int i = 0; i < d->n_boxes; i++) {
        sorted[i] = &d->boxes[i];
        d->boxes[i].layer = -1;
        d->boxes[i].order = i;
    }
    for (int i = 0; i < d->n_boxes; i++)
        find_layer(d, i);
    lower_sources(d);
    place_boxes(d, sorted);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        memset(sums, 0, sizeof *sums * (size_t)d->n_boxes);
        memset(counts, 0, sizeof *counts * (size_t)d->n_boxes);
        for (int i = 0; i < d->n_arrows; i++) {
            const struct arrow *arrow = &d->arrows[i];
            sums[arrow->to] += d->boxes[arrow->from].column;
            sums[arrow->from] += d->boxes[arrow->to].column;
            counts[arrow->to]++;
            counts[arrow->from]++;
        }
        for (int i = 0; i < d->n_boxes; i++)
            d->boxes[i].order = counts[i] > 0 ? sums[i] / counts[i] : d->boxes[i].column;
        place_boxes(d, sorted);
    }
}

/* ---- writing ---- */

/* Rows are centred. */
static int x_of(const struct drawing *d, const struct box *box) {
    int n_left_free = d->n_columns - d->n_in_row[box->row];
    return MARGIN + (2 * box->column + n_left_free) * (BOX_WIDTH + GAP_X) / 2;
}
static int y_of(const struct box *box) { return MARGIN + box->row * (BOX_HEIGHT + GAP_Y); }

/* The last part of a long name says most. */
static void add_line(const char *text, struct str *out) {
    size_t len = strlen(text);
    struct str line = STR_INIT;
    if (len > MAX_LINE_BYTES) {
        const char *end = text + len - MAX_LINE_BYTES;
        for (int i = 0; i < 3 && ((unsigned char)*end & 0xC0) == 0x80; i++)
            end++; /* to the start of the next character of UTF-8 */
        str_addf(&line, "…%s", end);
    } else {
        str_add(&line, text);
    }
    page_text(out, NULL, str_text(&line));
    str_fini(&line);
}

static void add_times(const struct box *box, struct str *text) {
    if (box->estimate_ns == 0)
        return;
    str_add(text, "est. ");
    units_add_duration(text, box->estimate_ns / 1e9);
    if (box->n_measured == 0)
        return;
    str_add(text, ", took ");
    units_add_duration(text, box->measured_ns / 1e9);
}

static void add_box_row(const struct drawing *d, const struct box *box, int device,
                        struct str *out) {
    struct str text = STR_INIT;
    page_open(out, NULL, '{');
    page_int(out, "x", x_of(d, box));
    page_int(out, "y", y_of(box));
    page_int(out, "width", BOX_WIDTH);
    page_int(out, "height", BOX_HEIGHT);
    page_int(out, "colour", device);
    str_addf(&text, "%s\n%s\nwhy here: %s", box->name, box->device,
             box->why ? box->why : "its nodes have several reasons");
    page_text(out, "title", str_text(&text));
    page_open(out, "lines", '[');
    str_clear(&text);
    if (box->n_nodes > 1)
        str_addf(&text, "%d nodes", box->n_nodes);
    else
        str_add(&text, box->node ? box->node->op : "");
    page_text(out, NULL, str_text(&text));
    add_line(box->name, out);
    str_clear(&text);
    add_times(box, &text);
    page_text(out, NULL, str_text(&text));
    page_close(out, ']');
    page_close(out, '}');
    str_fini(&text);
}

static void add_arrow_row(const struct drawing *d, const struct arrow *arrow, struct str *out) {
    const struct box *from = &d->boxes[arrow->from], *to = &d->boxes[arrow->to];
    page_open(out, NULL, '{');
    page_int(out, "from", arrow->from);
    page_int(out, "to", arrow->to);
    page_int(out, "x1", x_of(d, from) + BOX_WIDTH / 2);
    page_int(out, "y1", y_of(from) + BOX_HEIGHT);
    page_int(out, "x2", x_of(d, to) + BOX_WIDTH / 2);
    page_int(out, "y2", y_of(to));
    page_bool(out, "is_control", arrow->is_control);
    page_bool(out, "is_between_devices", strcmp(from->device, to->device) != 0);
    page_int(out, "edges", arrow->n);
    page_close(out, '}');
}

static void add_grouping(const struct drawing *d, struct str *out) {
    struct str text = STR_INIT;
    if (d->depth > MAX_DEPTH)
        str_add(&text, "each node is a box");
    else
        str_addf(&text, "%d nodes in %d boxes: by device and the first %d parts of their names",
                 d->graph->n_nodes, d->n_boxes, d->depth);
    if (d->has_others)
        str_add(&text, "; boxes called \"others\" have what was too much");
    if (d->n_arrows > MAX_ARROWS)
        str_addf(&text, "; %d of %d arrows are drawn", MAX_ARROWS, d->n_arrows);
    page_text(out, "grouping", str_text(&text));
    str_fini(&text);
}

static void write_drawing(struct drawing *d, struct str *out) {
    struct strmap devices;
    const char **names = arena_array(&d->arena, const char *, d->n_boxes + 1);
    int n_devices = 0;
    strmap_init(&devices);
    add_grouping(d, out);
    d->n_in_row = arena_array(&d->arena, int, d->n_rows + 1);
    for (int i = 0; i < d->n_boxes; i++) {
        d->n_in_row[d->boxes[i].row]++;
        d->n_columns = MAX(d->n_columns, d->boxes[i].column + 1);
    }
    page_open(out, "drawing", '{');
    page_int(out, "width", 2 * MARGIN + d->n_columns * (BOX_WIDTH + GAP_X) - GAP_X);
    page_int(out, "height", 2 * MARGIN + d->n_rows * (BOX_HEIGHT + GAP_Y) - GAP_Y);
    page_open(out, "boxes", '[');
    for (int i = 0; i < d->n_boxes; i++) {
        uintptr_t device = (uintptr_t)strmap_get(&devices, d->boxes[i].device);
        if (!device) {
            names[n_devices++] = d->boxes[i].device;
            device = (uintptr_t)n_devices;
            strmap_put(&devices, d->boxes[i].device, (void *)device);
        }
        add_box_row(d, &d->boxes[i], (int)device - 1, out);
    }
    page_close(out, ']');
    page_open(out, "arrows", '[');
    for (int i = 0; i < MIN(d->n_arrows, (int)MAX_ARROWS); i++)
        add_arrow_row(d, &d->arrows[i], out);
    page_close(out, ']');
    page_open(out, "colours", '[');
    for (int i = 0; i < n_devices; i++)
        page_text(out, NULL, names[i]);
    page_close(out, ']');
    page_close(out, '}');
    strmap_fini(&devices);
}

void graph_drawing_write(const struct placed_graph *graph, const struct node_times *times,
                         struct str *out) {
    struct drawing d = {.graph = graph};
    arena_init(&d.arena);
    make_boxes(&d, times);
    make_arrows(&d);
    order_boxes(&d);
    write_drawing(&d, out);
    arena_fini(&d.arena);
}
