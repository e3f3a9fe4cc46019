/* Builds groups, intersects their requests and chooses their devices (place.h). */
#include "master/compile/place/place.h"

#include <stdlib.h>

#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

enum { NOT_ASKED = -2, NO_DEVICE = -1, MAX_DEVICES_SHOWN = 32, MAX_FAILED_SHOWN = 4 };

/* ---- groups ---- */

static int find_root(struct placer *placer, int id) {
    int *parent = placer->parent;
    while (parent[id] != id)
        id = parent[id] = parent[parent[id]];
    return id;
}

/* The lower id becomes the root. Together with the halving above this is fast enough, and the same
 * in every run. */
static void unite(struct placer *placer, const struct node *a, const struct node *b) {
    int x = find_root(placer, a->id), y = find_root(placer, b->id);
    placer->parent[MAX(x, y)] = MIN(x, y);
}

/* A dataset cannot be sent, so its consumer is on the same device. */
static bool is_dataset(const struct node *node) { return strstr(node->op_name, "Dataset") != NULL; }

/* A node that takes a reference runs where the variable is, and a node that takes a handle runs
 * where the resource is. Exceptions are function calls, whose bodies may use handles of many tasks,
 * and our feeds and fetches, which only carry handles. */
static bool binds(const struct node *node, int position) {
    const struct node_input *in = &node->inputs[position];
    enum dtype type = (enum dtype)in->src->out_types[in->index];
    if (dtype_is_ref((enum dtype)node->in_types[position]))
        return true;
    return (type == DT_RESOURCE || (type == DT_VARIANT && is_dataset(in->src))) &&
           !node_is_internal(node) && !node_is_internal(in->src) && !node_is_call(node) &&
           !node_is_call(in->src);
}

static bool takes_binding(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (binds(node, i))
            return true;
    return false;
}

/* All nodes that name one node in _class are in one group, with that node if it (still) exists.
 * Folding or pruning may have removed it. */
static void unite_class(struct placer *placer, struct strmap *classes, struct node *node) {
    const struct attr_value *list = node_attr(node, "_class");
    if (!list || list->type != ATTR_LIST_STRING)
        return;
    static const char prefix[] = "loc:@";
    size_t len = sizeof(prefix) - 1;
    for (int i = 0; i < list->list.n_values; i++) {
        struct span name = list->list.values[i].s;
        if (name.len <= len || memcmp(name.data, prefix, len) != 0)
            continue;
        name = (struct span){name.data + len, name.len - len};
        struct node *other = strmap_get_span(classes, name);
        if (!other) {
            other = graph_find_span(placer->graph, name);
            other = other ? other : node;
            strmap_put_span(classes, name, other);
        }
        unite(placer, node, other);
    }
}

static void make_groups(struct placer *placer) {
    const struct graph *graph = placer->graph;
    struct strmap classes;
    strmap_init(&classes);
    for (int id = 0; id < graph->n_nodes; id++)
        placer->parent[id] = id;
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        if (node->is_removed)
            continue;
        for (int i = 0; i < node->n_data; i++)
            if (binds(node, i))
                unite(placer, node, node->inputs[i].src);
        unite_class(placer, &classes, node);
    }
    for (int id = 0; id < graph->n_nodes; id++) {
        if (graph->nodes[id]->is_removed)
            continue;
        int root = find_root(placer, id);
        if (!placer->groups[root]) {
            placer->groups[root] = arena_new(placer->arena, struct place_group);
            placer->groups[root]->pinned = placer->groups[root]->device = NO_DEVICE;
            placer->groups[root]->id = root;
        }
        placer->groups[root]->n_members++;
    }
    strmap_fini(&classes);
}

struct place_group *placer_group(struct placer *placer, const struct node *node) {
    return placer->groups[find_root(placer, node->id)];
}

/* ---- requests ---- */

static struct place_request *intern(struct placer *placer, const struct device_name *name) {
    struct str text = STR_INIT;
    device_name_print(name, &text);
    struct place_request *request = strmap_get(&placer->requests, str_text(&text));
    if (!request) {
        request = arena_new(placer->arena, struct place_request);
        *request = (struct place_request){.name = *name,
                                          .text = arena_strdup(placer->arena, str_text(&text)),
                                          .device = NOT_ASKED};
        strmap_put(&placer->requests, request->text, request);
    }
    str_fini(&text);
    return request;
}

/* A graph of many nodes names few devices, so each spelling is parsed once. */
static struct status *parse_requests(struct placer *placer) {
    struct strmap spellings;
    struct status *st = NULL;
    strmap_init(&spellings);
    for (int id = 0; id < placer->graph->n_nodes; id++) {
        const struct node *node = placer->graph->nodes[id];
        if (node->is_removed || node->device[0] == '\0')
            continue;
        placer->asked[id] = strmap_get(&spellings, node->device);
        if (placer->asked[id])
            continue;
        struct device_name name;
        st = device_name_parse(span_of(node->device), &name);
        if (st) {
            st = status_suffix_take(st, " in node: {{node %s}}\n\t [[{{node %s}}]]", node->name,
                                    node->name);
            break;
        }
        placer->asked[id] = intern(placer, &name);
        strmap_put(&spellings, node->device, placer->asked[id]);
    }
    strmap_fini(&spellings);
    return st;
}

struct status *placer_init(struct placer *placer, const struct graph *graph,
                           const struct device_table *devices,
                           const struct compile_options *options, struct arena *arena) {
    *placer =
        (struct placer){.graph = graph, .devices = devices, .options = options, .arena = arena};
    strmap_init(&placer->requests);
    if (devices->default_device < 0)
        return status_unavailable("The cluster has no devices to place nodes on");
    placer->parent = arena_array(arena, int, graph->n_nodes + 1);
    placer->groups = arena_array(arena, struct place_group *, graph->n_nodes + 1);
    placer->asked = arena_array(arena, struct place_request *, graph->n_nodes + 1);
    TRY(parse_requests(placer));
    make_groups(placer);
    placer_find_types(placer);
    return NULL;
}

void placer_fini(struct placer *placer) { strmap_fini(&placer->requests); }

/* ---- messages ---- */

static void print_devices(const struct device_table *devices, struct str *out) {
    for (int i = 0; i < devices->n_devices && i < MAX_DEVICES_SHOWN; i++)
        str_addf(out, "%s%s", i > 0 ? ", " : "", devices->devices[i].full_name);
    if (devices->n_devices > MAX_DEVICES_SHOWN)
        str_addf(out, ", and %d more", devices->n_devices - MAX_DEVICES_SHOWN);
}

/* The devices that were asked for and have failed, each with the reason. */
static void print_failed(const struct device_table *devices, const struct device_name *asked,
                         struct str *out) {
    int n = 0;
    for (int i = 0; i < devices->n_failed; i++)
        if (device_name_matches(asked, &devices->failed[i].name) && n++ < MAX_FAILED_SHOWN)
            str_addf(out, " %s is not available: %.500s.", devices->failed[i].full_name,
                     devices->failed[i].why);
    if (n > MAX_FAILED_SHOWN)
        str_addf(out, " Nor are %d more.", n - MAX_FAILED_SHOWN);
}

static COLD struct status *no_such_device(const struct placer *placer, const struct node *node,
                                          const struct place_request *request) {
    struct str devices = STR_INIT, failed = STR_INIT;
    print_devices(placer->devices, &devices);
    print_failed(placer->devices, &request->name, &failed);
    bool is_gpu = strcmp(request->name.type, "GPU") == 0 && !placer->options->allow_soft_placement;
    struct status *st = status_invalid(
        "Cannot assign a device for operation %s: {{node %s}} was explicitly assigned to %s but "
        "available devices are [ %s ]. "
        "Make sure the device specification refers to a valid device.%s%s\n\t [[{{node %s}}]]",
        node->name, node->name, request->text, str_text(&devices), str_text(&failed),
        is_gpu ? " The requested device is a GPU; allow_soft_placement would let it run on the CPU."
               : "",
        node->name);
    str_fini(&devices);
    str_fini(&failed);
    return st;
}

static COLD struct status *conflict(const struct placer *placer, const struct node *node,
                                    const struct place_request *asked, const struct node *other,
                                    const char *other_device) {
    struct str devices = STR_INIT;
    print_devices(placer->devices, &devices);
    struct status *st =
        status_invalid("Cannot assign a device for operation %s: Could not satisfy explicit device "
                       "specification '%s' because the node "
                       "{{colocation_node %s}} was colocated with a group of nodes that required "
                       "incompatible device '%s' (of "
                       "{{colocation_node %s}}). All available devices [%s].\n\t [[{{node %s}}]]",
                       node->name, asked->text, node->name, other_device, other->name,
                       str_text(&devices), node->name);
    str_fini(&devices);
    return st;
}

static COLD struct status *two_places(const struct placer *placer, const struct node *node,
                                      const struct place_group *group) {
    return status_invalid("Cannot colocate nodes {{colocation_node %s}} and {{colocation_node "
                          "%s}}: they have state on '%s' and on '%s'"
                          "\n\t [[{{node %s}}]]",
                          node->name, group->pinned_by->name,
                          placer->devices->devices[node->placed].full_name,
                          placer->devices->devices[group->pinned].full_name, node->name);
}

/* ---- merging ---- */

static void give_up_type(struct device_name *name) {
    name->type[0] = '\0';
    name->id = -1;
}

static bool may_be_on(const struct placer *placer, const struct place_request *request,
                      int device) {
    const struct device_name *full = &placer->devices->devices[device].name;
    struct device_name name = request->name;
    if (device_name_matches(&name, full))
        return true;
    give_up_type(&name);
    return placer->options->allow_soft_placement && device_name_matches(&name, full);
}

static bool merge_softly(const struct placer *placer, struct device_name *into,
                         const struct device_name *other) {
    if (device_name_intersect(into, other))
        return true;
    if (!placer->options->allow_soft_placement)
        return false;
    struct device_name a = *into, b = *other;
    give_up_type(&a);
    give_up_type(&b);
    if (!device_name_intersect(&a, &b))
        return false;
    *into = a;
    return true;
}

static struct status *merge_request(struct placer *placer, const struct node *node,
                                    bool gives_way) {
    struct place_group *group = placer_group(placer, node);
    struct place_request *asked = placer->asked[node->id];
    if (group->pinned >= 0) {
        if (gives_way || may_be_on(placer, asked, group->pinned))
            return NULL;
        return conflict(placer, node, asked, group->pinned_by,
                        placer->devices->devices[group->pinned].full_name);
    }
    if (!group->request) {
        group->request = asked;
        group->asked_by = node;
        group->is_strict = !gives_way;
        return NULL;
    }
    if (group->request == asked)
        return NULL;
    struct device_name name = group->request->name;
    if (!merge_softly(placer, &name, &asked->name)) {
        if (gives_way && group->is_strict)
            return NULL;
        return conflict(placer, node, asked, group->asked_by, group->request->text);
    }
    struct place_request *merged = intern(placer, &name);
    if (merged == asked)
        group->asked_by = node; /* the more exact one */
    group->request = merged;
    return NULL;
}

/* How well the node says whose state holds a group: a variable, a queue or the like is better than
 * the random initial value of one. */
static int state_rank(const struct node *node) {
    int rank = node_is_stateful(node);
    for (int i = 0; rank == 1 && i < node->n_outputs; i++)
        rank += dtype_is_ref((enum dtype)node->out_types[i]) || node->out_types[i] == DT_RESOURCE;
    return rank;
}

static struct status *merge_pins(struct placer *placer, bool only_wanted) {
    for (int id = 0; id < placer->graph->n_nodes; id++) {
        const struct node *node = placer->graph->nodes[id];
        if (node->is_removed || node->placed < 0)
            continue;
        struct place_group *group = placer_group(placer, node);
        if (only_wanted && !group->is_wanted)
            continue;
        if (node->placed >= placer->devices->n_devices)
            return status_internal(
                "{{node %s}} was placed on device %d of another device table; this one has %d",
                node->name, node->placed, placer->devices->n_devices);
        if (group->pinned >= 0 && group->pinned != node->placed)
            return two_places(placer, node, group);
        bool is_first = group->pinned < 0;
        group->pinned = node->placed;
        if (is_first || state_rank(node) > state_rank(group->pinned_by))
            group->pinned_by = node;
    }
    return NULL;
}

/* Requests that may be ignored are merged last, whatever the order of the nodes. */
static struct status *merge_requests(struct placer *placer, bool only_wanted) {
    for (int round = 0; round < 2; round++) {
        for (int id = 0; id < placer->graph->n_nodes; id++) {
            const struct node *node = placer->graph->nodes[id];
            if (!placer->asked[id] || node->placed >= 0)
                continue;
            bool gives_way = takes_binding(node);
            if (gives_way == (round == 1) &&
                (!only_wanted || placer_group(placer, node)->is_wanted))
                TRY(merge_request(placer, node, gives_way));
        }
    }
    return NULL;
}

/* ---- choosing ---- */

/* Of the devices that match, those of the session's default task are first, then those of its job,
 * then the order of the table (in which CPU:0 is the first of a task). So "/cpu:0" and "/task:1"
 * mean the default task or its job. */
static int best_match(const struct device_table *devices, const struct device_name *pattern) {
    const struct device_info *by_default = &devices->devices[devices->default_device];
    int best = NO_DEVICE, best_rank = -1;
    for (int i = 0; i < devices->n_devices; i++) {
        const struct device_info *device = &devices->devices[i];
        if (!device_name_matches(pattern, &device->name))
            continue;
        int rank = device->task == by_default->task                      ? 2
                   : strcmp(device->name.job, by_default->name.job) == 0 ? 1
                                                                         : 0;
        if (rank <= best_rank)
            continue;
        best = i;
        best_rank = rank;
    }
    return best;
}

static int request_device(const struct placer *placer, struct place_request *request) {
    if (request->device != NOT_ASKED)
        return request->device;
    request->device = best_match(placer->devices, &request->name);
    if (request->device == NO_DEVICE && placer->options->allow_soft_placement) {
        struct device_name name = request->name;
        give_up_type(&name);
        request->device = best_match(placer->devices, &name);
    }
    return request->device;
}

bool device_is_first_of_type(const struct device_table *devices, int device) {
    for (int i = devices->tasks[devices->devices[device].task].first_device; i < device; i++)
        if (strcmp(devices->devices[i].type, devices->devices[device].type) == 0)
            return false;
    return true;
}

/* Does the request leave several tasks to the cost model? */
static bool request_is_open(const struct placer *placer, const struct place_request *request) {
    const struct device_table *devices = placer->devices;
    int task = -1;
    if (placer->options->placement == PLACEMENT_SIMPLE)
        return false;
    for (int i = 0; i < devices->n_devices; i++) {
        if (!device_is_first_of_type(devices, i) ||
            !device_name_matches(&request->name, &devices->devices[i].name))
            continue;
        if (task >= 0 && devices->devices[i].task != task)
            return true;
        task = devices->devices[i].task;
    }
    return false;
}

bool node_lacks_kernel(const struct node *node, const struct device_table *devices, int device) {
    const char *type = devices->devices[device].name.type;
    if (strcmp(type, "CPU") == 0 || !kernel_at(type, 0) || kernel_find(node, type))
        return false;
    return kernel_op_is_supported(node->op_name, type) ||
           kernel_op_is_supported(node->op_name, "CPU");
}

/* Devices of other types may lack a kernel. With soft placement the whole group is placed on its
 * task's CPU, otherwise the client gets the reason. */
static struct status *check_kernels(struct placer *placer, bool only_wanted) {
    for (int id = 0; id < placer->graph->n_nodes; id++) {
        const struct node *node = placer->graph->nodes[id];
        struct place_group *group = node->is_removed ? NULL : placer_group(placer, node);
        if (!group || group->device < 0 || group->pinned >= 0 || (only_wanted && !group->is_wanted))
            continue;
        if (!node_lacks_kernel(node, placer->devices, group->device))
            continue;
        const char *type = placer->devices->devices[group->device].name.type;
        if (!placer->options->allow_soft_placement)
            return status_invalid("Cannot assign a device for operation %s: Could not satisfy "
                                  "explicit device specification '%s' because no supported "
                                  "kernel for %s devices is available.\n\t [[{{node %s}}]]",
                                  node->name, group->request->text, type, node->name);
        group->device = device_host(placer->devices, group->device);
        group->is_open = false;
    }
    return NULL;
}

/* A request that fits no device is refused when the graph arrives, as in TensorFlow, although
 * perhaps no step needs the node. */
static struct status *check_requests(struct placer *placer) {
    for (int id = 0; id < placer->graph->n_nodes; id++)
        if (placer->asked[id] && placer->graph->nodes[id]->placed < 0 &&
            request_device(placer, placer->asked[id]) == NO_DEVICE)
            return no_such_device(placer, placer->graph->nodes[id], placer->asked[id]);
    return NULL;
}

struct status *placer_settle(struct placer *placer, bool only_wanted) {
    TRY(merge_pins(placer, only_wanted));
    TRY(merge_requests(placer, only_wanted));
    for (int id = 0; id < placer->graph->n_nodes; id++) {
        struct place_group *group = placer->groups[id];
        if (!group || (only_wanted && !group->is_wanted))
            continue;
        if (group->pinned >= 0)
            group->device = group->pinned;
        else if (group->request)
            group->device = request_device(placer, group->request);
        if (group->pinned < 0 && group->request && !only_wanted)
            group->is_open = request_is_open(placer, group->request);
        if (group->device >= 0)
            group->device = placer_best_device(placer, group, group->device);
        if (group->request && group->device < 0)
            return no_such_device(placer, group->asked_by, group->request);
    }
    if (only_wanted)
        TRY(check_requests(placer));
    return check_kernels(placer, only_wanted);
}
