/* Collects and writes the index of a bundle, and finds the existing data files of a prefix. */
#include <pthread.h>
#include <stdlib.h>

#include "common/io/bundle_internal.h"
#include "common/io/temporary.h"

void bundle_index_init(struct bundle_index *index) {
    *index = (struct bundle_index){0};
    arena_init(&index->arena);
    strmap_init(&index->by_name);
}

void bundle_index_fini(struct bundle_index *index) {
    strmap_fini(&index->by_name);
    arena_fini(&index->arena);
    free(index->items);
}

struct bundle_item *bundle_index_find(const struct bundle_index *index, struct span name) {
    return strmap_get_span(&index->by_name, name);
}

struct bundle_item *bundle_index_add(struct bundle_index *index, struct span name) {
    struct bundle_item *item = arena_new(&index->arena, struct bundle_item);
    item->name = (struct span){arena_memdup(&index->arena, name.data, name.len), name.len};
    if (index->n == index->capacity) {
        index->capacity = index->capacity ? 2 * index->capacity : 64;
        index->items = xreallocarray(index->items, index->capacity, sizeof(*index->items));
    }
    index->items[index->n++] = item;
    strmap_put_span(&index->by_name, item->name, item);
    return item;
}

static int by_name(const void *a, const void *b) {
    return table_compare((*(struct bundle_item *const *)a)->name,
                         (*(struct bundle_item *const *)b)->name);
}

static struct status *add_rows(struct table_writer *table, const struct bundle_index *index,
                               int n_shards) {
    struct str proto = STR_INIT;
    bundle_header_print(n_shards, &proto);
    struct status *st =
        table_writer_add(table, (struct span){"", 0}, (struct span){proto.data, proto.len});
    for (size_t i = 0; !st && i < index->n; i++) {
        str_clear(&proto);
        bundle_entry_print(&index->items[i]->entry, &proto);
        st = table_writer_add(table, index->items[i]->name,
                              (struct span){str_text(&proto), proto.len});
    }
    str_fini(&proto);
    return st;
}

struct status *bundle_index_write(struct bundle_index *index, const struct file_system *fs,
                                  const char *path, int n_shards) {
    struct file_sink sink = FILE_SINK_INIT;
    struct table_writer table;
    TRY(file_sink_open(&sink, fs, path));
    if (index->n > 1)
        qsort(index->items, index->n, sizeof(*index->items), by_name);
    table_writer_init(&table, &sink);
    struct status *st = add_rows(&table, index, n_shards);
    if (!st)
        st = table_writer_finish(&table);
    if (!st)
        st = file_sink_finish(&sink);
    table_writer_fini(&table);
    file_sink_fini(&sink);
    if (st)
        fs->unlink(fs, path);
    return st;
}

void bundle_entry_add_slice(struct bundle_index *index, struct bundle_entry *entry,
                            const struct tensor_slice *slice) {
    if (entry->n_slices == entry->slices_capacity) {
        int capacity = MAX(8, 2 * entry->slices_capacity);
        struct tensor_slice *slices = arena_array(&index->arena, struct tensor_slice, capacity);
        for (int i = 0; i < entry->n_slices; i++)
            slices[i] = entry->slices[i];
        entry->slices = slices;
        entry->slices_capacity = capacity;
    }
    size_t n = (size_t)MAX(slice->rank, 1) * sizeof(int64_t);
    entry->slices[entry->n_slices++] =
        (struct tensor_slice){slice->rank, arena_memdup(&index->arena, slice->starts, n),
                              arena_memdup(&index->arena, slice->lengths, n)};
}

/* ---- what is there under the prefix ---- */

struct old_scan {
    const char *base;
    struct bundle_old *old;
};

static void on_file(void *arg, const char *name) {
    struct old_scan *scan = arg;
    struct bundle_old *old = scan->old;
    int shard, n_shards;
    if (!bundle_data_name(scan->base, name, &shard, &n_shards))
        return;
    if (old->n == old->capacity) {
        old->capacity = old->capacity ? 2 * old->capacity : 8;
        old->items = xreallocarray(old->items, old->capacity, sizeof(*old->items));
    }
    old->items[old->n++] = (struct bundle_old_file){shard, n_shards};
}

struct status *bundle_old_find(struct bundle_old *old, const struct file_system *fs,
                               const char *prefix) {
    struct str dir = STR_INIT;
    struct old_scan scan = {file_base_of(prefix), old};
    *old = (struct bundle_old){0};
    file_dir_of(prefix, &dir);
    int error = fs->list(fs, dir.data, on_file, &scan);
    struct status *st = error < 0 ? file_failed(dir.data, error) : NULL;
    str_fini(&dir);
    return st;
}

int bundle_old_free_number(const struct bundle_old *old, int at_least) {
    for (int n = at_least;; n++) {
        bool is_taken = false;
        for (size_t i = 0; i < old->n; i++)
            is_taken = is_taken || old->items[i].n_shards == n;
        if (!is_taken)
            return n;
    }
}

void bundle_old_remove(const struct bundle_old *old, const struct file_system *fs,
                       const char *prefix) {
    struct str path = STR_INIT;
    for (size_t i = 0; i < old->n; i++) {
        str_clear(&path);
        bundle_data_path(prefix, old->items[i].shard, old->items[i].n_shards, &path);
        fs->unlink(fs, path.data); /* nothing depends on its result */
    }
    str_fini(&path);
}

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

void bundle_names_lock(void) { CHECK(pthread_mutex_lock(&names_lock) == 0); }
void bundle_names_unlock(void) { CHECK(pthread_mutex_unlock(&names_lock) == 0); }

void bundle_old_fini(struct bundle_old *old) { free(old->items); }

char *bundle_temporary_path(const char *prefix, const char *what) {
    struct str path = STR_INIT;
    str_addf(&path, "%s.%s", prefix, what);
    temporary_add_name(&path);
    return str_detach(&path);
}

struct status *bundle_make_dir_of(const struct file_system *fs, const char *prefix) {
    struct str dir = STR_INIT;
    file_dir_of(prefix, &dir);
    struct status *st = file_make_dirs(fs, dir.data);
    str_fini(&dir);
    return st;
}
