/* Declares what the files of the import share. */
#ifndef MILLRACE_CLIENT_C_IMPORT_INTERNAL_H
#define MILLRACE_CLIENT_C_IMPORT_INTERNAL_H

#include "client/c_graph_internal.h"
#include "client/c_import.h"

struct input_mapping {
    const char *src_name;
    int src_index; /* CONTROL_EDGE for a control input */
    TF_Output dst;
};

struct wanted_output {
    const char *name;
    int index;
};

struct TF_ImportGraphDefOptions {
    struct arena arena; /* of the names */
    const char *prefix, *device;
    bool uniquifies_names, uniquifies_prefix;
    struct input_mapping *mappings;
    TF_Operation **controls;
    struct wanted_output *outputs;
    const char **opers;
    int n_mappings, n_controls, n_outputs, n_opers;
};

/* A node of the message. */
struct import_node {
    struct span name, op, def;
    const char *new_name;
};

/* One import, from the message to the message with new names. The caller holds the lock of the
 * graph. */
struct import {
    const char *function; /* for errors */
    TF_Graph *graph;
    const TF_ImportGraphDefOptions *options;
    struct arena arena;
    const char *prefix; /* "" or "PREFIX/" */
    struct import_node *nodes;
    int n_nodes;
    struct strmap by_name; /* name in the message → struct import_node */
    struct strmap taken;   /* names of the graph, and all their prefixes */
    bool *is_used;         /* for each mapping */
    struct str out;        /* the message for graph_add_graphdef */
    bool has_new_names;
};

/* Reads the nodes of the message, gives them names and writes the message with these names, mapped
 * inputs, devices and control inputs to `out`. Errors: INVALID_ARGUMENT. RESOURCE_EXHAUSTED:
 * the graph would have more nodes than graph_limits_default allows. */
struct status *import_rewrite(struct import *import, struct span graph_def) MUST_USE;
/* The mapping of an input of the message, or NULL; its index in *ret_at. */
const struct input_mapping *import_find_mapping(const struct import *import, struct span name,
                                                int index, int *ret_at);

#endif
