/* Chooses among functions that compute the same. A library may have several functions with one
 * `api_implements`, each of which states the device type that it is best for
 * (`api_preferred_device`). A call of any of them becomes a call of the one for CPUs, as in
 * TensorFlow's implementation selector. TensorFlow Probability uses this for gamma, Poisson and
 * binomial numbers: kernels on CPUs, loops elsewhere. */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

#include "common/tensor/tensor_proto.h"

struct api {
    struct span implements, device;
};

/* Returns the bytes of an AttrValue; empty if it is not a string. */
static struct span string_of(struct span value) {
    struct proto_field field;
    while (proto_next(&value, &field) > 0)
        if (field.number == 2 && field.wire_type == 2)
            return field.bytes;
    return (struct span){0};
}

/* Reads the FunctionDef's own attrs (field 5, entries of key 1 and value 2). */
static struct api read_api(struct span def) {
    struct proto_field field;
    struct api api = {0};
    while (proto_next(&def, &field) > 0) {
        if (field.number != 5 || field.wire_type != 2)
            continue;
        struct span entry = field.bytes, key = {0}, value = {0};
        while (proto_next(&entry, &field) > 0) {
            if (field.number == 1 && field.wire_type == 2)
                key = field.bytes;
            else if (field.number == 2 && field.wire_type == 2)
                value = string_of(field.bytes);
        }
        if (span_is(key, "api_implements"))
            api.implements = value;
        else if (span_is(key, "api_preferred_device"))
            api.device = value;
    }
    return api;
}

/* They have the same number of arguments and results. Their types are checked when the body is
 * made. */
static bool has_same_sizes(const struct graph_function *a, const struct graph_function *b) {
    return a->signature && b->signature && a->signature->n_inputs == b->signature->n_inputs &&
           a->signature->n_outputs == b->signature->n_outputs;
}

/* Of several the first by name, so that the order of the library does not matter. */
static const char *best_for_cpu(struct graph *graph, const struct graph_function *called) {
    const struct api wanted = read_api(called->def);
    const char *best = NULL;
    size_t cursor = 0;
    struct span name;
    void *value;
    if (wanted.implements.len == 0 || span_is(wanted.device, "CPU"))
        return called->name;
    while (strmap_next(&graph->functions, &cursor, &name, &value)) {
        const struct graph_function *other = value;
        const struct api api = read_api(other->def);
        if (span_equal(api.implements, wanted.implements) && span_is(api.device, "CPU") &&
            has_same_sizes(called, other) && (!best || strcmp(other->name, best) < 0))
            best = other->name;
    }
    return best ? best : called->name;
}

void inline_choose(struct inliner *in, const struct attr_func **function) {
    const char *name = (*function)->name, *chosen = strmap_get(&in->choices, name);
    if (!chosen) {
        const struct graph_function *called = strmap_get(&in->graph->functions, name);
        if (!called)
            return;
        chosen = best_for_cpu(in->graph, called);
        strmap_put(&in->choices, called->name, (void *)(uintptr_t)chosen);
    }
    if (strcmp(chosen, name) == 0)
        return;
    struct attr_func *other = arena_memdup(&in->c->arena, *function, sizeof(**function));
    other->name = chosen;
    *function = other;
}
