/* Keeps functions as serialized FunctionDefs, and copies them to and from graphs. */
#include "client/c_function.h"

#include <stdlib.h>

#include "client/c_function_internal.h"
#include "common/tensor/tensor_proto.h"

/* ---- life ---- */

static struct span function_name(struct span def) {
    struct proto_field field, inner;
    struct span name = {"", 0};
    while (proto_next(&def, &field) > 0)
        while (proto_field_is(&field, 1, 2) && proto_next(&field.bytes, &inner) > 0)
            if (proto_field_is(&inner, 1, 2))
                name = inner.bytes;
    return name;
}

struct status *function_new(const char *caller, struct str *def_take, TF_Function **ret) {
    struct span def = {str_text(def_take), def_take->len};
    struct span name = function_name(def);
    *ret = NULL;
    if (!proto_is_message(def) || name.len == 0 || memchr(name.data, '\0', name.len)) {
        str_fini(def_take);
        return status_invalid("%s: Invalid FunctionDef", caller);
    }
    TF_Function *func = xcalloc(1, sizeof *func);
    func->name = xmalloc(name.len + 1);
    memcpy(func->name, name.data, name.len);
    func->name[name.len] = '\0';
    func->def = *def_take;
    *def_take = STR_INIT;
    *ret = func;
    return NULL;
}

TF_Function *TF_FunctionImportFunctionDef(const void *proto, size_t proto_len, TF_Status *status) {
    struct str def = STR_INIT;
    TF_Function *func = NULL;
    if (!proto && proto_len > 0) {
        tf_status_set(status, null_refused(__func__, "proto"));
        return NULL;
    }
    str_add_bytes(&def, proto, proto_len);
    tf_status_set(status, function_new(__func__, &def, &func));
    return func;
}

void TF_DeleteFunction(TF_Function *func) {
    if (!func)
        return;
    str_fini(&func->def);
    free(func->name);
    free(func);
}

const char *TF_FunctionName(TF_Function *func) { return func ? func->name : ""; }

void TF_FunctionToFunctionDef(TF_Function *func, TF_Buffer *output_func_def, TF_Status *status) {
    struct str text = STR_INIT;
    if (!func || !output_func_def) {
        tf_status_set(status, null_refused(__func__, func ? "output_func_def" : "func"));
        return;
    }
    str_add_bytes(&text, str_text(&func->def), func->def.len);
    tf_status_set(status, buffer_fill(__func__, output_func_def, &text));
}

/* ---- attrs ---- */

enum { FIELD_ATTR = 5 };

/* The value of an entry of the attr map, if its key is `name`. */
static bool read_attr(const struct proto_field *field, const char *name, struct span *ret_value) {
    struct span entry = field->bytes, key = {"", 0}, value = {"", 0};
    struct proto_field inner;
    if (!proto_field_is(field, FIELD_ATTR, 2))
        return false;
    while (proto_next(&entry, &inner) > 0) {
        if (proto_field_is(&inner, 1, 2))
            key = inner.bytes;
        else if (proto_field_is(&inner, 2, 2))
            value = inner.bytes;
    }
    *ret_value = value;
    return span_is(key, name);
}

static void set_attr(TF_Function *func, const char *name, struct span value) {
    struct span in = {str_text(&func->def), func->def.len}, old, rest = in;
    struct str out = STR_INIT;
    struct proto_field field;
    while (proto_next(&rest, &field) > 0) {
        if (!read_attr(&field, name, &old))
            str_add_bytes(&out, in.data, (size_t)(rest.data - in.data));
        in = rest;
    }
    size_t entry = proto_begin(&out, FIELD_ATTR, 0);
    proto_add_bytes(&out, 1, name, strlen(name));
    proto_add_bytes(&out, 2, value.data, value.len);
    proto_end(&out, entry, 0);
    str_fini(&func->def);
    func->def = out;
}

void TF_FunctionSetAttrValueProto(TF_Function *func, const char *attr_name, const void *proto,
                                  size_t proto_len, TF_Status *status) {
    struct span value = {proto ? proto : "", proto_len};
    struct status *st = NULL;
    if (!func || !attr_name || (!proto && proto_len > 0))
        st = null_refused(__func__, !func ? "func" : !attr_name ? "attr_name" : "proto");
    else if (!proto_is_message(value))
        st = status_invalid("%s: Unparseable AttrValue proto for attr '%s' of function '%s'",
                            __func__, attr_name, func->name);
    else
        set_attr(func, attr_name, value);
    tf_status_set(status, st);
}

void TF_FunctionGetAttrValueProto(TF_Function *func, const char *attr_name,
                                  TF_Buffer *output_attr_value, TF_Status *status) {
    struct str text = STR_INIT;
    struct proto_field field;
    struct span value;
    if (!func || !attr_name || !output_attr_value) {
        tf_status_set(status, null_refused(__func__, !func        ? "func"
                                                     : !attr_name ? "attr_name"
                                                                  : "output_attr_value"));
        return;
    }
    struct span def = {str_text(&func->def), func->def.len};
    while (proto_next(&def, &field) > 0)
        if (read_attr(&field, attr_name, &value)) {
            str_add_bytes(&text, value.data, value.len);
            tf_status_set(status, buffer_fill(__func__, output_attr_value, &text));
            return;
        }
    tf_status_set(status, status_invalid("%s: Function '%s' has no attr named '%s'.", __func__,
                                         func->name, attr_name));
}

/* ---- libraries ---- */

/* May the function have this gradient? It has one at most. The lock is held. */
static struct status *check_gradient(const struct graph *graph, const TF_Function *func,
                                     const TF_Function *grad) {
    for (int i = 0; i < graph->n_gradient_defs; i++) {
        struct span def = graph->gradient_defs[i], name = {"", 0}, gradient = {"", 0};
        struct proto_field field;
        while (proto_next(&def, &field) > 0)
            if (proto_field_is(&field, 1, 2))
                name = field.bytes;
            else if (proto_field_is(&field, 2, 2))
                gradient = field.bytes;
        if (span_is(name, func->name) && !span_is(gradient, grad->name))
            return status_invalid("Cannot assign gradient function '%s' to '%s' because it already "
                                  "has gradient function '%.*s'",
                                  grad->name, func->name, (int)MIN(gradient.len, (size_t)256),
                                  gradient.data);
    }
    return NULL;
}

void TF_GraphCopyFunction(TF_Graph *graph, const TF_Function *func, const TF_Function *grad,
                          TF_Status *status) {
    struct graph_limits limits;
    struct str message = STR_INIT;
    if (!graph || !func) {
        tf_status_set(status, null_refused(__func__, graph ? "func" : "graph"));
        return;
    }
    graph_limits_default(&limits);
    size_t library = proto_begin(&message, 2, 0);
    proto_add_bytes(&message, 1, str_text(&func->def), func->def.len);
    if (grad) {
        proto_add_bytes(&message, 1, str_text(&grad->def), grad->def.len);
        size_t gradient = proto_begin(&message, 2, 0);
        proto_add_bytes(&message, 1, func->name, strlen(func->name));
        proto_add_bytes(&message, 2, grad->name, strlen(grad->name));
        proto_end(&message, gradient, 0);
    }
    proto_end(&message, library, 0);
    pthread_mutex_lock(&graph->lock);
    struct status *st = grad ? check_gradient(&graph->graph, func, grad) : NULL;
    if (!st)
        st = graph_add_graphdef(&graph->graph, (struct span){str_text(&message), message.len},
                                &limits);
    pthread_mutex_unlock(&graph->lock);
    str_fini(&message);
    tf_status_set(status, status_prefix_take(st, "%s: ", __func__));
}

int TF_GraphNumFunctions(TF_Graph *graph) {
    if (!graph)
        return 0;
    pthread_mutex_lock(&graph->lock);
    int n = (int)graph->graph.functions.n_entries;
    pthread_mutex_unlock(&graph->lock);
    return n;
}

int TF_GraphGetFunctions(TF_Graph *graph, TF_Function **funcs, int max_func, TF_Status *status) {
    struct status *st = NULL;
    struct span name;
    void *value;
    size_t cursor = 0;
    int n = 0;
    if (!graph || (max_func > 0 && !funcs)) {
        tf_status_set(status, null_refused(__func__, graph ? "funcs" : "graph"));
        return 0;
    }
    pthread_mutex_lock(&graph->lock);
    while (!st && n < max_func && strmap_next(&graph->graph.functions, &cursor, &name, &value)) {
        const struct graph_function *function = value;
        struct str def = STR_INIT;
        str_add_bytes(&def, function->def.data, function->def.len);
        st = function_new(__func__, &def, &funcs[n]);
        n += !st;
    }
    pthread_mutex_unlock(&graph->lock);
    tf_status_set(status, st);
    return n;
}
