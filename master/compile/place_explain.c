/* Says why each node of a step is where it is, for people. */
#include "master/compile/compile_internal.h"
#include "master/compile/place.h"

static void add_request(const struct node *node, const struct place_group *group,
                        const struct device_info *device, struct str *out) {
    if (group->asked_by == node)
        str_addf(out, "the client asked for %s", group->request->text);
    else
        str_addf(out, "it belongs to %s, for which the client asked for %s", group->asked_by->name,
                 group->request->text);
    if (!device_name_matches(&group->request->name, &device->name))
        str_add(out, ", where it cannot be (soft placement)");
}

static void add_why(enum place_why why, struct str *out) {
    switch (why) {
    case WHY_LOOP:
        str_add(out, "its loop is there");
        return;
    case WHY_SHAPE:
        str_add(out, "it looks only at the shape of a tensor that is there");
        return;
    case WHY_WAITS:
        str_add(out, "most of what it waits for is there");
        return;
    case WHY_CONSUMERS:
        str_add(out, "what uses it is there");
        return;
    case WHY_DEFAULT:
        str_add(out, "nothing asks for another device than the default one");
        return;
    }
}

static void add_reason(const struct node *node, const struct place_group *group,
                       const struct device_info *device, enum place_why why, struct str *out) {
    if (group->pinned >= 0 && (group->pinned_by == node || group->n_members == 1))
        str_add(out, "its state is there");
    else if (group->pinned >= 0)
        str_addf(out, "the state of %s is there", group->pinned_by->name);
    else if (group->reason)
        str_add(out, group->reason);
    else if (group->request)
        add_request(node, group, device, out);
    else
        add_why(why, out);
}

void place_explain(struct placer *placer, struct node *const *order, const uint8_t *why,
                   struct str *out) {
    for (int i = 0; i < placer->graph->n_live; i++) {
        const struct node *node = order[i];
        const struct device_info *device = &placer->devices->devices[node->placed];
        if (node_is_internal(node))
            continue;
        str_addf(out, "%s: (%s): %s: ", node->name, node->op_name, device->full_name);
        add_reason(node, placer_group(placer, node), device, (enum place_why)why[node->id], out);
        str_add_char(out, '\n');
    }
}
