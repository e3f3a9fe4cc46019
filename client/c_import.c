/* Imports GraphDefs: options, results, and the import itself. */
#include "client/c_import.h"

#include <stdlib.h>

#include "client/c_import_internal.h"
#include "common/tensor/tensor_proto.h"

/* ---- options ---- */

TF_ImportGraphDefOptions *TF_NewImportGraphDefOptions(void) {
    TF_ImportGraphDefOptions *options = xcalloc(1, sizeof *options);
    arena_init(&options->arena);
    options->prefix = options->device = "";
    return options;
}

void TF_DeleteImportGraphDefOptions(TF_ImportGraphDefOptions *options) {
    if (!options)
        return;
    free(options->mappings);
    free(options->controls);
    free(options->outputs);
    free(options->opers);
    arena_fini(&options->arena);
    free(options);
}

static const char *copy_text(TF_ImportGraphDefOptions *options, const char *text) {
    return arena_strdup(&options->arena, text ? text : "");
}

/* Adds an entry to an array of the options; a power of two is full. */
static void *grow(void *array, int n, size_t size) {
    return (n & (n - 1)) == 0 ? xreallocarray(array, 2 * (size_t)n + 1, size) : array;
}

void TF_ImportGraphDefOptionsSetPrefix(TF_ImportGraphDefOptions *options, const char *prefix) {
    if (!options)
        return;
    options->prefix = copy_text(options, prefix);
}

void TF_ImportGraphDefOptionsSetDefaultDevice(TF_ImportGraphDefOptions *options,
                                              const char *device) {
    if (!options)
        return;
    options->device = copy_text(options, device);
}

void TF_ImportGraphDefOptionsSetUniquifyNames(TF_ImportGraphDefOptions *options,
                                              unsigned char uniquify_names) {
    if (!options)
        return;
    options->uniquifies_names = uniquify_names != 0;
}

void TF_ImportGraphDefOptionsSetUniquifyPrefix(TF_ImportGraphDefOptions *options,
                                               unsigned char uniquify_prefix) {
    if (!options)
        return;
    options->uniquifies_prefix = uniquify_prefix != 0;
}

void TF_ImportGraphDefOptionsAddInputMapping(TF_ImportGraphDefOptions *options,
                                             const char *src_name, int src_index, TF_Output dst) {
    if (!options)
        return;
    options->mappings = grow(options->mappings, options->n_mappings, sizeof *options->mappings);
    options->mappings[options->n_mappings++] =
        (struct input_mapping){copy_text(options, src_name), src_index, dst};
}

void TF_ImportGraphDefOptionsRemapControlDependency(TF_ImportGraphDefOptions *options,
                                                    const char *src_name, TF_Operation *dst) {
    TF_ImportGraphDefOptionsAddInputMapping(options, src_name, CONTROL_EDGE,
                                            (TF_Output){dst, CONTROL_EDGE});
}

void TF_ImportGraphDefOptionsAddControlDependency(TF_ImportGraphDefOptions *options,
                                                  TF_Operation *oper) {
    if (!options)
        return;
    options->controls = grow(options->controls, options->n_controls, sizeof *options->controls);
    options->controls[options->n_controls++] = oper;
}

void TF_ImportGraphDefOptionsAddReturnOutput(TF_ImportGraphDefOptions *options,
                                             const char *oper_name, int index) {
    if (!options)
        return;
    options->outputs = grow(options->outputs, options->n_outputs, sizeof *options->outputs);
    options->outputs[options->n_outputs++] =
        (struct wanted_output){copy_text(options, oper_name), index};
}

int TF_ImportGraphDefOptionsNumReturnOutputs(const TF_ImportGraphDefOptions *options) {
    return options ? options->n_outputs : 0;
}

void TF_ImportGraphDefOptionsAddReturnOperation(TF_ImportGraphDefOptions *options,
                                                const char *oper_name) {
    if (!options)
        return;
    options->opers = grow(options->opers, options->n_opers, sizeof *options->opers);
    options->opers[options->n_opers++] = copy_text(options, oper_name);
}

int TF_ImportGraphDefOptionsNumReturnOperations(const TF_ImportGraphDefOptions *options) {
    return options ? options->n_opers : 0;
}

/* ---- results ---- */

struct TF_ImportGraphDefResults {
    struct arena arena;
    TF_Output *outputs;
    TF_Operation **opers;
    const char **missing_names;
    int *missing_indexes;
    int n_outputs, n_opers, n_missing;
};

void TF_DeleteImportGraphDefResults(TF_ImportGraphDefResults *results) {
    if (!results)
        return;
    arena_fini(&results->arena);
    free(results);
}

void TF_ImportGraphDefResultsReturnOutputs(TF_ImportGraphDefResults *results, int *num_outputs,
                                           TF_Output **outputs) {
    if (num_outputs)
        *num_outputs = results ? results->n_outputs : 0;
    if (outputs)
        *outputs = results ? results->outputs : NULL;
}

void TF_ImportGraphDefResultsReturnOperations(TF_ImportGraphDefResults *results, int *num_opers,
                                              TF_Operation ***opers) {
    if (num_opers)
        *num_opers = results ? results->n_opers : 0;
    if (opers)
        *opers = results ? results->opers : NULL;
}

void TF_ImportGraphDefResultsMissingUnusedInputMappings(TF_ImportGraphDefResults *results,
                                                        int *num_missing_unused_input_mappings,
                                                        const char ***src_names,
                                                        int **src_indexes) {
    if (num_missing_unused_input_mappings)
        *num_missing_unused_input_mappings = results ? results->n_missing : 0;
    if (src_names)
        *src_names = results ? results->missing_names : NULL;
    if (src_indexes)
        *src_indexes = results ? results->missing_indexes : NULL;
}

/* What a node of the message has become; NULL when there is no such node. */
static const struct node *find_imported(const struct import *import, const char *name) {
    const struct import_node *node = strmap_get(&import->by_name, name);
    return node ? graph_find(&import->graph->graph, node->new_name) : NULL;
}

/* Are the outputs and operations that the options ask for there? */
static struct status *check_results(const struct import *import) {
    const TF_ImportGraphDefOptions *options = import->options;
    int at;
    for (int i = 0; i < options->n_outputs; i++) {
        const struct wanted_output *wanted = &options->outputs[i];
        const struct node *node = find_imported(import, wanted->name);
        if (import_find_mapping(import, span_of(wanted->name), wanted->index, &at))
            import->is_used[at] = true;
        else if (!node)
            return status_invalid("Requested return tensor '%s:%d' not found in graph def",
                                  wanted->name, wanted->index);
        else if (wanted->index < 0 || wanted->index >= node->n_outputs)
            return status_invalid("Invalid return output %d of node '%s', which has %d output(s)",
                                  wanted->index, wanted->name, node->n_outputs);
    }
    for (int i = 0; i < options->n_opers; i++)
        if (!find_imported(import, options->opers[i]))
            return status_invalid("Requested return node '%s' not found in graph def",
                                  options->opers[i]);
    return NULL;
}

static void fill_results(const struct import *import, TF_ImportGraphDefResults *results) {
    const TF_ImportGraphDefOptions *options = import->options;
    int at;
    results->outputs = arena_array(&results->arena, TF_Output, options->n_outputs + 1);
    results->opers = arena_array(&results->arena, TF_Operation *, options->n_opers + 1);
    for (int i = 0; i < options->n_outputs; i++) {
        const struct wanted_output *wanted = &options->outputs[i];
        const struct input_mapping *mapping =
            import_find_mapping(import, span_of(wanted->name), wanted->index, &at);
        results->outputs[results->n_outputs++] =
            mapping
                ? mapping->dst
                : (TF_Output){graph_operation(import->graph, find_imported(import, wanted->name)),
                              wanted->index};
    }
    for (int i = 0; i < options->n_opers; i++)
        results->opers[results->n_opers++] =
            graph_operation(import->graph, find_imported(import, options->opers[i]));
}

static void fill_missing(const struct import *import, TF_ImportGraphDefResults *results) {
    const TF_ImportGraphDefOptions *options = import->options;
    results->missing_names = arena_array(&results->arena, const char *, options->n_mappings + 1);
    results->missing_indexes = arena_array(&results->arena, int, options->n_mappings + 1);
    for (int i = 0; i < options->n_mappings; i++) {
        const struct input_mapping *mapping = &options->mappings[i];
        const struct node *node = find_imported(import, mapping->src_name);
        if (import->is_used[i] || (node && mapping->src_index < node->n_outputs))
            continue;
        results->missing_names[results->n_missing] =
            arena_strdup(&results->arena, mapping->src_name);
        results->missing_indexes[results->n_missing++] = mapping->src_index;
    }
}

/* ---- the import ---- */

static struct status *check_options(const struct import *import) {
    const TF_ImportGraphDefOptions *options = import->options;
    for (int i = 0; i < options->n_mappings; i++) {
        const struct input_mapping *mapping = &options->mappings[i];
        TRY(operation_check(import->function, import->graph, mapping->dst.oper));
        if ((mapping->src_index == CONTROL_EDGE) != (mapping->dst.index == CONTROL_EDGE))
            return status_invalid("%s: input mapping of '%s:%d' to output %d of '%s' mixes data "
                                  "and control",
                                  import->function, mapping->src_name, mapping->src_index,
                                  mapping->dst.index, mapping->dst.oper->node->name);
        if (mapping->dst.index != CONTROL_EDGE)
            TRY(output_check(import->function, import->graph, mapping->dst));
    }
    for (int i = 0; i < options->n_controls; i++)
        TRY(operation_check(import->function, import->graph, options->controls[i]));
    return NULL;
}

/* An op that does not fit the version of the GraphDef is refused, then the lower version counts. */
static struct status *add_nodes(struct import *import) {
    struct graph *graph = &import->graph->graph;
    struct graph_limits limits;
    int producer = graph->producer, min_consumer = graph->min_consumer;
    int first_id = graph->n_nodes;
    graph_limits_default(&limits);
    struct status *st =
        graph_add_graphdef(graph, (struct span){str_text(&import->out), import->out.len}, &limits);
    if (!st && (st = check_results(import)) == NULL)
        st = graph_take_nodes(import->graph, first_id);
    if (st) {
        graph_drop_nodes(import->graph, first_id);
        graph_track_operations(import->graph);
        graph->producer = producer;
        graph->min_consumer = min_consumer;
    } else {
        graph->producer = MIN(producer, graph->producer);
    }
    return st;
}

/* The lock is held. */
static struct status *run_import(struct import *import, struct span graph_def,
                                 TF_ImportGraphDefResults *results) {
    TRY(check_options(import));
    TRY(import_rewrite(import, graph_def));
    TRY(add_nodes(import));
    fill_results(import, results);
    fill_missing(import, results);
    return NULL;
}

static struct status *import_graph(const char *function, TF_Graph *graph,
                                   const TF_Buffer *graph_def,
                                   const TF_ImportGraphDefOptions *options,
                                   TF_ImportGraphDefResults **ret) {
    static const TF_ImportGraphDefOptions none = {.prefix = "", .device = ""};
    *ret = NULL;
    if (!graph || !graph_def)
        return null_refused(function, graph ? "graph_def" : "graph");
    struct import import = {
        .function = function, .graph = graph, .options = options ? options : &none};
    TF_ImportGraphDefResults *results = xcalloc(1, sizeof *results);
    arena_init(&results->arena);
    arena_init(&import.arena);
    strmap_init(&import.by_name);
    strmap_init(&import.taken);
    import.is_used = arena_array(&import.arena, bool, import.options->n_mappings + 1);
    pthread_mutex_lock(&graph->lock);
    struct span message = {"", 0};
    if (graph_def->data)
        message = (struct span){graph_def->data, graph_def->length};
    struct status *st = run_import(&import, message, results);
    pthread_mutex_unlock(&graph->lock);
    str_fini(&import.out);
    strmap_fini(&import.by_name);
    strmap_fini(&import.taken);
    arena_fini(&import.arena);
    if (st)
        TF_DeleteImportGraphDefResults(results);
    else
        *ret = results;
    return st;
}

TF_ImportGraphDefResults *TF_GraphImportGraphDefWithResults(TF_Graph *graph,
                                                            const TF_Buffer *graph_def,
                                                            const TF_ImportGraphDefOptions *options,
                                                            TF_Status *status) {
    TF_ImportGraphDefResults *results;
    tf_status_set(status, import_graph(__func__, graph, graph_def, options, &results));
    return results;
}

void TF_GraphImportGraphDefWithReturnOutputs(TF_Graph *graph, const TF_Buffer *graph_def,
                                             const TF_ImportGraphDefOptions *options,
                                             TF_Output *return_outputs, int num_return_outputs,
                                             TF_Status *status) {
    int n_wanted = options ? options->n_outputs : 0;
    TF_ImportGraphDefResults *results = NULL;
    struct status *st = NULL;
    if (num_return_outputs != n_wanted)
        st = status_invalid("%s: 'num_return_outputs' is %d, the options ask for %d", __func__,
                            num_return_outputs, n_wanted);
    else if (n_wanted > 0 && !return_outputs)
        st = null_refused(__func__, "return_outputs");
    else
        st = import_graph(__func__, graph, graph_def, options, &results);
    if (!st && n_wanted > 0)
        memcpy(return_outputs, results->outputs, (size_t)n_wanted * sizeof *return_outputs);
    TF_DeleteImportGraphDefResults(results);
    tf_status_set(status, st);
}

void TF_GraphImportGraphDef(TF_Graph *graph, const TF_Buffer *graph_def,
                            const TF_ImportGraphDefOptions *options, TF_Status *status) {
    TF_ImportGraphDefResults *results;
    tf_status_set(status, import_graph(__func__, graph, graph_def, options, &results));
    TF_DeleteImportGraphDefResults(results);
}
