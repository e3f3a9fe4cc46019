/* Adds SaveV2 and RestoreV2 for the variables of a builder, and runs them. */
#include "client/training/saver.h"

#include <stdlib.h>

#include "client/c_describe.h"
#include "client/training/builder_internal.h"
#include "client/training/checkpoint_state.h"
#include "common/tensor/text.h"

struct MR_Saver {
    MR_Builder *builder;
    TF_Output path; /* fed */
    TF_Operation *save, *restore;
    int max_to_keep;
    char **kept; /* the checkpoints that `checkpoint` names, the latest at last */
    int n_kept;
    MR_Saver *next; /* of the builder */
};

/* Removes the first n checkpoints from the list. */
static void forget(MR_Saver *saver, int n) {
    for (int i = 0; i < n; i++)
        free(saver->kept[i]);
    saver->n_kept -= n;
    for (int i = 0; i < saver->n_kept; i++)
        saver->kept[i] = saver->kept[i + n];
}

/* ---- operations ---- */

/* "ROWS COLUMNS FIRST,LENGTH:0,COLUMNS" of a part; "" of a whole variable. */
static void add_slice(struct str *out, const MR_Variable *v) {
    if (!v->whole)
        return;
    str_addf(out, "%lld ", (long long)v->n_whole_rows);
    for (int i = 1; i < v->rank; i++)
        str_addf(out, "%lld ", (long long)v->dims[i]);
    str_addf(out, "%lld,%lld", (long long)v->first_row, (long long)v->dims[0]);
    for (int i = 1; i < v->rank; i++)
        str_addf(out, ":0,%lld", (long long)v->dims[i]);
}

static TF_Output add_strings(MR_Builder *b, MR_Variable *const *variables, int n, bool of_slices) {
    struct str attrs = STR_INIT, slice = STR_INIT;
    str_addf(&attrs, "dtype=string, value=string[%d]{", n);
    for (int i = 0; i < n; i++) {
        const MR_Variable *v = variables[i];
        str_clear(&slice);
        if (of_slices)
            add_slice(&slice, v);
        else
            str_add(&slice, v->whole ? v->whole : v->name);
        str_add(&attrs, i > 0 ? ", " : "");
        text_add_quoted(&attrs, (struct span){str_text(&slice), slice.len});
    }
    str_add(&attrs, "}");
    TF_Output out = MR_Op(b, "Const", str_text(&attrs), NULL, 0);
    str_fini(&attrs);
    str_fini(&slice);
    return out;
}

/* Refuses a tensor of another shape than the variable's, which its reads rely on. */
static TF_Output ensure_shape(MR_Builder *b, const MR_Variable *v, TF_Output value) {
    struct str attrs = STR_INIT;
    str_add(&attrs, "shape=");
    shape_text(&attrs, v->dims, v->rank);
    TF_Output out = MR_Op(b, "EnsureShape", str_text(&attrs), &value, 1);
    str_fini(&attrs);
    return out;
}

static void add_operations(MR_Saver *saver, MR_Variable *const *variables, int n) {
    MR_Builder *b = saver->builder;
    struct str dtypes = STR_INIT;
    TF_Output *inputs = arena_array(&b->arena, TF_Output, n + 3);
    TF_Operation **assigns = arena_array(&b->arena, TF_Operation *, n);
    saver->path = inputs[0] = MR_Op(b, "Placeholder", "dtype=string, shape=[]", NULL, 0);
    inputs[1] = add_strings(b, variables, n, false);
    inputs[2] = add_strings(b, variables, n, true);
    for (int i = 0; i < n; i++) {
        inputs[3 + i] = MR_Read(b, variables[i]);
        str_addf(&dtypes, "%s%s", i > 0 ? "," : "dtypes=[", builder_dtype(variables[i]->dtype));
    }
    str_add(&dtypes, "]");
    saver->save = MR_Op(b, "SaveV2", NULL, inputs, n + 3).oper;
    TF_Operation *restored = MR_Op(b, "RestoreV2", str_text(&dtypes), inputs, 3).oper;
    for (int i = 0; i < n && restored; i++)
        assigns[i] =
            MR_Assign(b, variables[i], ensure_shape(b, variables[i], (TF_Output){restored, i}));
    saver->restore = MR_Group(b, NULL, assigns, n);
    str_fini(&dtypes);
}

/* Copies the variables of the builder that are not local to `ret`. */
static int saved_variables(const MR_Builder *b, MR_Variable **ret) {
    int n = 0;
    for (int i = 0; i < b->n_variables; i++)
        if (!b->variables[i]->is_local)
            ret[n++] = b->variables[i];
    return n;
}

static bool check_variables(MR_Builder *b, MR_Variable *const *variables, int n) {
    if (n > 0 && !variables)
        builder_fail(b, status_invalid("variables is NULL"));
    else if (n == 0)
        builder_fail(b, status_invalid("there are no variables to save"));
    for (int i = 0; builder_is_ok(b) && i < n; i++)
        if (variable_check(b, variables[i]))
            for (int k = 0; k < i; k++)
                if (variables[i] == variables[k])
                    builder_fail(
                        b, status_invalid("variable '%s' is there twice", variables[i]->name));
    return builder_is_ok(b);
}

MR_Saver *MR_NewSaver(MR_Builder *builder, MR_Variable *const *variables, int num_variables,
                      int max_to_keep) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    MR_Saver *saver = NULL;
    MR_Variable **all = arena_array(&builder->arena, MR_Variable *, builder->n_variables + 1);
    int n = num_variables < 0 ? saved_variables(builder, all) : num_variables;
    MR_Variable *const *chosen = num_variables < 0 ? all : variables;
    if (max_to_keep < 0)
        builder_fail(builder, status_invalid("max_to_keep is %d", max_to_keep));
    if (check_variables(builder, chosen, n)) {
        saver = arena_new(&builder->arena, MR_Saver);
        saver->builder = builder;
        saver->max_to_keep = max_to_keep;
        saver->next = builder->savers;
        builder->savers = saver;
        const char *device = builder_swap_device(builder, chosen[0]->device);
        int n_controls = builder->n_controls;
        builder->n_controls = 0;
        add_operations(saver, chosen, n);
        builder->n_controls = n_controls;
        builder_swap_device(builder, device);
    }
    builder_leave(builder, outer);
    return builder_is_ok(builder) ? saver : NULL;
}

void savers_free(MR_Saver *first) {
    for (MR_Saver *saver = first; saver; saver = saver->next) {
        forget(saver, saver->n_kept);
        free(saver->kept);
    }
}

/* ---- steps ---- */

static void run(const MR_Saver *saver, TF_Session *session, const char *path,
                const TF_Operation *target, TF_Status *status) {
    size_t length = strlen(path);
    TF_Tensor *value = MR_NewStringTensor(NULL, 0, &path, &length);
    TF_SessionRun(session, NULL, &saver->path, &value, 1, NULL, NULL, 0, &target, 1, NULL, status);
    TF_DeleteTensor(value);
}

static struct status *check_call(const char *function, const MR_Saver *saver,
                                 const TF_Session *session, const char *path, const char *what) {
    if (!saver || !session || !path)
        return status_invalid("%s: %s is NULL", function,
                              !saver     ? "saver"
                              : !session ? "session"
                                         : what);
    return NULL;
}

/* Counts a new checkpoint among those that are kept. */
static void keep(MR_Saver *saver, const char *path) {
    int n = 0;
    if (saver->max_to_keep == 0)
        forget(saver, saver->n_kept);
    saver->kept = xreallocarray(saver->kept, (size_t)saver->n_kept + 1, sizeof *saver->kept);
    for (int i = 0; i < saver->n_kept; i++) {
        if (strcmp(saver->kept[i], path) == 0)
            free(saver->kept[i]);
        else
            saver->kept[n++] = saver->kept[i];
    }
    saver->kept[n++] = xstrdup(path);
    saver->n_kept = n;
}

/* Names the checkpoints that stay in the file `checkpoint`, and deletes the others then. */
static struct status *delete_old(MR_Saver *saver) {
    int n_old = saver->max_to_keep > 0 ? MAX(saver->n_kept - saver->max_to_keep, 0) : 0;
    TRY(checkpoint_state_write(&file_system_posix, saver->kept + n_old, saver->n_kept - n_old));
    for (int i = 0; i < n_old; i++)
        checkpoint_delete(&file_system_posix, saver->kept[i]);
    forget(saver, n_old);
    return NULL;
}

const char *MR_Save(MR_Saver *saver, TF_Session *session, const char *prefix, int64_t step,
                    TF_Status *status) {
    struct status *st = check_call(__func__, saver, session, prefix, "prefix");
    if (st) {
        tf_status_set(status, st);
        return NULL;
    }
    if (!status)
        return NULL;
    struct str path = STR_INIT;
    str_add(&path, prefix);
    if (step >= 0)
        str_addf(&path, "-%lld", (long long)step);
    run(saver, session, str_text(&path), saver->save, status);
    if (TF_GetCode(status) == TF_OK) {
        keep(saver, str_text(&path));
        tf_status_set(status, status_prefix_take(delete_old(saver), "%s: ", __func__));
    }
    str_fini(&path);
    return TF_GetCode(status) == TF_OK ? saver->kept[saver->n_kept - 1] : NULL;
}

void MR_Restore(MR_Saver *saver, TF_Session *session, const char *path, TF_Status *status) {
    struct status *st = check_call(__func__, saver, session, path, "path");
    if (st)
        tf_status_set(status, st);
    else
        run(saver, session, path, saver->restore, status);
}

unsigned char MR_LatestCheckpoint(const char *folder, char *path, size_t max_length) {
    struct str found = STR_INIT;
    bool is_found = folder && path && checkpoint_state_read(&file_system_posix, folder, &found) &&
                    found.len < max_length;
    if (is_found)
        memcpy(path, str_text(&found), found.len + 1);
    str_fini(&found);
    return is_found;
}
