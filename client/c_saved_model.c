/* Loads SavedModels: reads the message by hand, and runs its restore and init operations. */
#include "client/c_saved_model.h"

#include <stdlib.h>

#include "client/c_graph_internal.h"
#include "client/c_import.h"
#include "common/io/file_system.h"
#include "common/tensor/tensor_proto.h"

/* ---- messages: the numbers of their fields ---- */

enum {
    MODEL_META_GRAPH = 2,
    META_INFO = 1,
    META_GRAPH_DEF = 2,
    META_SAVER = 3,
    META_COLLECTION = 4,
    META_SIGNATURE = 5,
    META_ASSET = 6,
    INFO_TAG = 4,
    SAVER_FILENAME = 1,
    SAVER_RESTORE = 3,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    COLLECTION_NODES = 1,
    COLLECTION_ANYS = 5,
    ANYS_VALUE = 1,
    ANY_VALUE = 2,
    NODES_VALUE = 1,
    SIGNATURE_OUTPUTS = 2,
    ASSET_TENSOR = 1,
    ASSET_FILE = 2,
    TENSOR_NAME = 1,
    MAX_MODEL_BYTES = 2147483647, /* as for every message of protobuf */
};

/* The first field with this number, of bytes; empty where there is none. */
static struct span find_field(struct span message, uint32_t number) {
    struct proto_field field;
    while (proto_next(&message, &field) == 1)
        if (proto_field_is(&field, number, 2))
            return field.bytes;
    return (struct span){"", 0};
}

/* The value of a map's entry; empty where there is none. `maps` is the map's field. */
static struct span find_entry(struct span message, uint32_t map, const char *key) {
    struct proto_field field;
    while (proto_next(&message, &field) == 1)
        if (proto_field_is(&field, map, 2) &&
            span_equal(find_field(field.bytes, ENTRY_KEY), span_of(key)))
            return find_field(field.bytes, ENTRY_VALUE);
    return (struct span){"", 0};
}

/* ---- the model ---- */

struct model {
    const char *dir;
    TF_Graph *graph;
    TF_Session *session;
    const TF_Buffer *run_options;
    struct str file; /* saved_model.pb */
    struct span meta_graph;
    struct arena arena;
};

static bool has_tag(struct span info, const char *tag) {
    struct proto_field field;
    while (proto_next(&info, &field) == 1)
        if (proto_field_is(&field, INFO_TAG, 2) && span_equal(field.bytes, span_of(tag)))
            return true;
    return false;
}

static bool has_tags(struct span meta_graph, const char *const *tags, int n) {
    struct span info = find_field(meta_graph, META_INFO), rest = info;
    struct proto_field field;
    int n_there = 0;
    while (proto_next(&rest, &field) == 1)
        n_there += proto_field_is(&field, INFO_TAG, 2);
    for (int i = 0; i < n; i++)
        if (!has_tag(info, tags[i]))
            return false;
    return n_there == n;
}

static struct status *find_meta_graph(struct model *m, const char *const *tags, int n) {
    struct span rest = {str_text(&m->file), m->file.len};
    struct proto_field field;
    if (!proto_is_message(rest))
        return status_invalid("Cannot parse %s/saved_model.pb", m->dir);
    while (proto_next(&rest, &field) == 1)
        if (proto_field_is(&field, MODEL_META_GRAPH, 2) && has_tags(field.bytes, tags, n)) {
            m->meta_graph = field.bytes;
            if (!proto_is_message(field.bytes))
                return status_invalid("Cannot parse a MetaGraphDef of %s/saved_model.pb", m->dir);
            return NULL;
        }
    struct str asked = STR_INIT;
    for (int i = 0; i < n; i++)
        str_addf(&asked, "%s %s", i > 0 ? "," : "", tags[i]);
    struct status *st =
        status_not_found("Could not find meta graph def matching supplied tags: {%s } in %s",
                         str_text(&asked), m->dir);
    str_fini(&asked);
    return st;
}

static bool is_there(struct model *m, const char *name) {
    const struct file_system *fs = &file_system_posix;
    return fs->kind(fs, arena_printf(&m->arena, "%s/%s", m->dir, name)) > FILE_KIND_NONE;
}

static struct status *read_model(struct model *m) {
    if (!is_there(m, "saved_model.pb")) {
        if (is_there(m, "saved_model.pbtxt"))
            return status_unimplemented("%s/saved_model.pbtxt: models as text are not read",
                                        m->dir);
        return status_not_found(
            "Could not find SavedModel .pb or .pbtxt at supplied export directory path: %s",
            m->dir);
    }
    return file_load(&file_system_posix, arena_printf(&m->arena, "%s/saved_model.pb", m->dir),
                     MAX_MODEL_BYTES, &m->file);
}

/* ---- steps ---- */

/* What a step is fed: strings, by the names of tensors. */
struct text_feeds {
    TF_Output *inputs;
    TF_Tensor **values;
    int n;
};

static struct status *find_output(struct model *m, struct span name, TF_Output *ret) {
    struct span node;
    int index;
    if (endpoint_parse(name, &node, &index) && index != CONTROL_EDGE) {
        const char *text = arena_printf(&m->arena, "%.*s", (int)node.len, (const char *)node.data);
        *ret = (TF_Output){TF_GraphOperationByName(m->graph, text), index};
        if (ret->oper)
            return NULL;
    }
    return status_invalid("The SavedModel names '%.*s', which its graph does not have",
                          (int)name.len, (const char *)name.data);
}

static struct status *add_feed(struct model *m, struct text_feeds *feeds, struct span name,
                               const char *text) {
    size_t len = strlen(text);
    TRY(find_output(m, name, &feeds->inputs[feeds->n]));
    feeds->values[feeds->n++] = MR_NewStringTensor(NULL, 0, &text, &len);
    return NULL;
}

/* Where the AssetFileDefs are: TensorFlow 1 has them in a collection, as messages of any type. */
struct assets {
    struct span in;
    uint32_t number;
    bool are_any;
};

static struct assets find_assets(struct span meta_graph) {
    struct span collection = find_entry(meta_graph, META_COLLECTION, "saved_model_assets");
    if (find_field(meta_graph, META_ASSET).len > 0 || collection.len == 0)
        return (struct assets){meta_graph, META_ASSET, false};
    return (struct assets){find_field(collection, COLLECTION_ANYS), ANYS_VALUE, true};
}

/* The next AssetFileDef; false at the end. */
static bool next_asset(struct assets *assets, struct span *ret) {
    struct proto_field field;
    while (proto_next(&assets->in, &field) == 1) {
        if (!proto_field_is(&field, assets->number, 2))
            continue;
        *ret = assets->are_any ? find_field(field.bytes, ANY_VALUE) : field.bytes;
        return true;
    }
    return false;
}

static struct status *feed_assets(struct model *m, struct text_feeds *feeds) {
    struct assets assets = find_assets(m->meta_graph);
    for (struct span asset; next_asset(&assets, &asset);) {
        struct span file = find_field(asset, ASSET_FILE);
        TRY(add_feed(m, feeds, find_field(find_field(asset, ASSET_TENSOR), TENSOR_NAME),
                     arena_printf(&m->arena, "%s/assets/%.*s", m->dir, (int)file.len,
                                  (const char *)file.data)));
    }
    return NULL;
}

/* Runs the operation of this name, fed with the paths of assets, and of the variables if `filename`
 * names where it takes them. */
static struct status *run_operation(struct model *m, struct span name, struct span filename) {
    struct assets assets = find_assets(m->meta_graph);
    int n = 1;
    for (struct span asset; next_asset(&assets, &asset);)
        n++;
    struct text_feeds feeds = {.inputs = arena_array(&m->arena, TF_Output, n),
                               .values = arena_array(&m->arena, TF_Tensor *, n)};
    TF_Output target;
    struct status *st = find_output(m, name, &target);
    if (!st)
        st = feed_assets(m, &feeds);
    if (!st && filename.len > 0)
        st = add_feed(m, &feeds, filename,
                      arena_printf(&m->arena, "%s/variables/variables", m->dir));
    if (!st) {
        TF_Status *status = TF_NewStatus();
        const TF_Operation *targets[] = {target.oper};
        TF_SessionRun(m->session, m->run_options, feeds.inputs, feeds.values, feeds.n, NULL, NULL,
                      0, targets, 1, NULL, status);
        st = status_ref(status->status);
        TF_DeleteStatus(status);
    }
    for (int i = 0; i < feeds.n; i++)
        TF_DeleteTensor(feeds.values[i]);
    return st;
}

static struct status *restore(struct model *m) {
    struct span saver = find_field(m->meta_graph, META_SAVER);
    struct span operation = find_field(saver, SAVER_RESTORE);
    if (operation.len == 0 || !is_there(m, "variables/variables.index"))
        return NULL; /* a model without variables */
    return run_operation(m, operation, find_field(saver, SAVER_FILENAME));
}

/* The operation that initialises the model, by one of the three ways to name it; empty: none. */
static struct span init_operation(struct span meta_graph) {
    static const char *const collections[] = {"saved_model_main_op", "legacy_init_op"};
    struct span signature = find_entry(meta_graph, META_SIGNATURE, "__saved_model_init_op"),
                info = find_entry(signature, SIGNATURE_OUTPUTS, "__saved_model_init_op"),
                name = find_field(info, TENSOR_NAME);
    for (size_t i = 0; i < ARRAY_LEN(collections) && name.len == 0; i++) {
        struct span collection = find_entry(meta_graph, META_COLLECTION, collections[i]);
        name = find_field(find_field(collection, COLLECTION_NODES), NODES_VALUE);
    }
    return name;
}

/* ---- the call ---- */

static struct status *import_and_run(struct model *m, const TF_SessionOptions *session_options) {
    struct span graph_def = find_field(m->meta_graph, META_GRAPH_DEF);
    TF_Buffer *buffer = TF_NewBufferFromString(graph_def.data, graph_def.len);
    TF_Status *status = TF_NewStatus();
    TF_GraphImportGraphDef(m->graph, buffer, NULL, status);
    TF_DeleteBuffer(buffer);
    if (TF_GetCode(status) == TF_OK)
        m->session = TF_NewSession(m->graph, session_options, status);
    struct status *st = status_ref(status->status);
    TF_DeleteStatus(status);
    TRY(st);
    TRY(restore(m));
    struct span init = init_operation(m->meta_graph);
    return init.len > 0 ? run_operation(m, init, (struct span){"", 0}) : NULL;
}

static struct status *load(struct model *m, const TF_SessionOptions *session_options,
                           const char *const *tags, int n_tags, TF_Buffer *meta_graph_def) {
    TRY(read_model(m));
    TRY(find_meta_graph(m, tags, n_tags));
    TRY(import_and_run(m, session_options));
    if (meta_graph_def) {
        TF_Buffer *copy = TF_NewBufferFromString(m->meta_graph.data, m->meta_graph.len);
        *meta_graph_def = *copy;
        free(copy);
    }
    return NULL;
}

static struct status *check_arguments(const char *function,
                                      const TF_SessionOptions *session_options,
                                      const char *export_dir, const char *const *tags, int n_tags,
                                      const TF_Graph *graph, const TF_Buffer *meta_graph_def) {
    if (!session_options || !export_dir || !graph || (n_tags > 0 && !tags))
        return null_refused(function, !session_options ? "session_options"
                                      : !export_dir    ? "export_dir"
                                      : !graph         ? "graph"
                                                       : "tags");
    if (n_tags < 0)
        return status_invalid("%s: %d tags", function, n_tags);
    for (int i = 0; i < n_tags; i++)
        if (!tags[i])
            return null_refused(function, "a tag");
    if (meta_graph_def && meta_graph_def->data)
        return status_invalid("%s: Passing non-empty MetaGraphDef is invalid.", function);
    return NULL;
}

TF_Session *TF_LoadSessionFromSavedModel(const TF_SessionOptions *session_options,
                                         const TF_Buffer *run_options, const char *export_dir,
                                         const char *const *tags, int tags_len, TF_Graph *graph,
                                         TF_Buffer *meta_graph_def, TF_Status *status) {
    struct model m = {.dir = export_dir, .graph = graph, .run_options = run_options};
    struct status *st = check_arguments(__func__, session_options, export_dir, tags, tags_len,
                                        graph, meta_graph_def);
    arena_init(&m.arena);
    if (!st)
        st = load(&m, session_options, tags, tags_len, meta_graph_def);
    if (st && m.session) {
        TF_Status *ignored = TF_NewStatus();
        TF_DeleteSession(m.session, ignored);
        TF_DeleteStatus(ignored);
        m.session = NULL;
    }
    str_fini(&m.file);
    arena_fini(&m.arena);
    tf_status_set(status, st);
    return m.session;
}
