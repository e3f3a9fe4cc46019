/* Reads a checkpoint of either format into a sorted list of tensors. */
#include "tfctl/checkpoint_file.h"

#include <stdlib.h>

#include "common/tensor/text.h"

enum { STATE_MAX_BYTES = 1 << 20 };

/* ---- which checkpoint ---- */

/* model_checkpoint_path: "NAME" of a directory's file `checkpoint`; NAME may be relative to the
 * directory. */
static struct status *find_newest(const char *dir, struct str *ret_prefix) {
    static const char key[] = "model_checkpoint_path:";
    struct str path = STR_INIT, text = STR_INIT, name = STR_INIT;
    str_addf(&path, "%s/checkpoint", dir);
    struct status *st = file_load(&file_system_posix, path.data, STATE_MAX_BYTES, &text);
    const char *at = st ? NULL : strstr(str_text(&text), key);
    struct span in = at ? span_of(at + sizeof(key) - 1) : (struct span){NULL, 0};
    if (!st && (!at || !text_take_quoted(&in, &name)))
        st = status_invalid("%s does not name a checkpoint", path.data);
    if (!st)
        str_addf(ret_prefix, "%s%s%s", name.len > 0 && name.data[0] == '/' ? "" : dir,
                 name.len > 0 && name.data[0] == '/' ? "" : "/", str_text(&name));
    str_fini(&path);
    str_fini(&text);
    str_fini(&name);
    return st;
}

static struct status *find_prefix(const char *path, struct str *ret) {
    static const char end[] = ".index";
    size_t len = strlen(path), n = sizeof(end) - 1;
    if (file_system_posix.kind(&file_system_posix, path) == FILE_KIND_DIR)
        return find_newest(path, ret);
    bool is_index = len > n && strcmp(path + len - n, end) == 0;
    str_add_bytes(ret, path, is_index ? len - n : len);
    return NULL;
}

/* ---- what is in it ---- */

static struct checkpoint_tensor *add(struct checkpoint_file *file, struct span name) {
    if (file->n == file->capacity) {
        file->capacity = file->capacity ? 2 * file->capacity : 64;
        file->tensors = xreallocarray(file->tensors, file->capacity, sizeof(*file->tensors));
    }
    struct checkpoint_tensor *tensor = &file->tensors[file->n++];
    *tensor = (struct checkpoint_tensor){
        .name = {arena_strndup(&file->arena, name.data, name.len), name.len}};
    return tensor;
}

/* The entries of slices, whose names begin with a NUL, belong to their tensors. */
static struct status *list_bundle(struct checkpoint_file *file) {
    struct bundle_iter iter;
    struct status *st = bundle_iter_init(&iter, file->bundle);
    for (; !st && iter.is_valid; st = st ? st : bundle_iter_next(&iter)) {
        if (iter.name.data[0] == '\0')
            continue;
        struct checkpoint_tensor *tensor = add(file, iter.name);
        st = bundle_find(file->bundle, tensor->name, &file->arena, &tensor->entry);
        tensor->dtype = tensor->entry.dtype;
        tensor->shape = tensor->entry.shape;
    }
    bundle_iter_fini(&iter);
    return st;
}

static int by_name(const void *a, const void *b) {
    const struct checkpoint_tensor *x = a, *y = b;
    return table_compare(x->name, y->name);
}

static struct status *list_slices(struct checkpoint_file *file, char *path) {
    const struct slices_tensor *saved;
    TRY(slices_reader_open(&file_system_posix, &path, 1, &file->slices));
    for (size_t i = 0; (saved = slices_reader_at(file->slices, i)); i++) {
        struct checkpoint_tensor *tensor = add(file, slices_tensor_name(saved));
        tensor->saved = saved;
        tensor->dtype = slices_tensor_dtype(saved);
        tensor->shape = slices_tensor_shape(saved);
    }
    if (file->n > 1)
        qsort(file->tensors, file->n, sizeof(*file->tensors), by_name);
    return NULL;
}

struct status *checkpoint_file_open(struct checkpoint_file *file, const char *path) {
    struct str prefix = STR_INIT, index = STR_INIT;
    *file = (struct checkpoint_file){0};
    arena_init(&file->arena);
    TRY(find_prefix(path, &prefix));
    file->prefix = str_detach(&prefix);
    bundle_index_path(file->prefix, &index);
    bool is_old = file_system_posix.kind(&file_system_posix, index.data) != FILE_KIND_FILE &&
                  file_system_posix.kind(&file_system_posix, file->prefix) == FILE_KIND_FILE;
    str_fini(&index);
    if (is_old)
        return list_slices(file, file->prefix);
    TRY(bundle_reader_open(&file_system_posix, file->prefix, &file->bundle));
    return list_bundle(file);
}

void checkpoint_file_fini(struct checkpoint_file *file) {
    bundle_reader_close(file->bundle);
    slices_reader_close(file->slices);
    arena_fini(&file->arena);
    free(file->tensors);
    free(file->prefix);
}

const struct checkpoint_tensor *checkpoint_file_find(const struct checkpoint_file *file,
                                                     struct span name) {
    size_t low = 0, high = file->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = table_compare(file->tensors[middle].name, name);
        if (order == 0)
            return &file->tensors[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

struct status *checkpoint_file_read(const struct checkpoint_file *file,
                                    const struct checkpoint_tensor *tensor, struct tensor *ret) {
    struct arena arena;
    if (file->bundle)
        return bundle_read(file->bundle, tensor->name, &tensor->entry, allocator_host(), ret);
    arena_init(&arena);
    struct tensor_slice all = tensor_slice_all(tensor->shape.rank, &arena);
    struct status *st =
        slices_reader_read(file->slices, tensor->saved, &all, allocator_host(), ret);
    arena_fini(&arena);
    return st;
}
