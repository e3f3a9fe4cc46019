/* Merges bundles: a sharded save writes one for each task, and the merge commits them together.
 *
 *   index.tmp                   the entries of all, with new shard numbers; written, synced
 *   data files                  renamed to PREFIX.data-XXXXX-of-N, N such that no older file has
 *                               such a name; directories synced
 *   index.tmp → PREFIX.index    directory synced; this is the commit
 *   old files                   the indices of the parts, and older data files of the prefix, are
 *                               removed */
#include <errno.h>
#include <stdlib.h>

#include "common/io/bundle_internal.h"
#include "common/io/temporary.h"

/* A data file that is renamed. */
struct moved {
    char *from, *to;
};

struct merge {
    const struct file_system *fs;
    const char *prefix;
    struct bundle_index index;
    struct moved *files; /* by the new shard number */
    int n_files, capacity;
};

static int add_file(struct merge *merge, char *from_take) {
    if (merge->n_files == merge->capacity) {
        merge->capacity = merge->capacity ? 2 * merge->capacity : 8;
        merge->files = xreallocarray(merge->files, (size_t)merge->capacity, sizeof(*merge->files));
    }
    merge->files[merge->n_files] = (struct moved){from_take, NULL};
    return merge->n_files++;
}

/* ---- entries ---- */

static COLD struct status *differs(const char *prefix, struct span name, const char *how) {
    return status_invalid("Ill-formed partitioned tensor '%.*s' when merging prefix %s: %s",
                          (int)name.len, name.data, prefix, how);
}

static struct status *merge_slices(struct merge *merge, const char *prefix,
                                   struct bundle_item *item, const struct bundle_entry *entry) {
    if (item->entry.dtype != entry->dtype)
        return differs(prefix, item->name, "its parts have different types");
    if (!shape_equal(item->entry.shape, entry->shape))
        return differs(prefix, item->name, "its parts are of tensors of different shapes");
    for (int i = 0; i < entry->n_slices; i++)
        bundle_entry_add_slice(&merge->index, &item->entry, &entry->slices[i]);
    return NULL;
}

static struct status *merge_entry(struct merge *merge, const char *prefix, struct span name,
                                  const struct bundle_entry *entry, const int *shards) {
    struct bundle_item *item = bundle_index_find(&merge->index, name);
    if (item && item->entry.n_slices > 0 && entry->n_slices > 0)
        return merge_slices(merge, prefix, item, entry);
    if (item)
        return status_invalid("Duplicate tensor keyed by %.*s encountered, when merging prefix: %s",
                              (int)name.len, name.data, prefix);
    item = bundle_index_add(&merge->index, name);
    item->entry = *entry;
    item->entry.shape = shape_dup(entry->shape, &merge->index.arena);
    item->entry.slices = NULL;
    item->entry.n_slices = item->entry.slices_capacity = 0;
    for (int i = 0; i < entry->n_slices; i++)
        bundle_entry_add_slice(&merge->index, &item->entry, &entry->slices[i]);
    if (entry->n_slices == 0)
        item->entry.shard = shards[entry->shard];
    return NULL;
}

/* Lists the data files that the entries of a part name; its other files need not exist. */
static int *number_shards(struct merge *merge, struct bundle_reader *reader, const bool *is_used) {
    int n = bundle_reader_n_shards(reader);
    int *numbers = xcalloc((size_t)n + 1, sizeof(*numbers));
    for (int i = 0; i < n; i++) {
        struct str path = STR_INIT;
        bundle_data_path(bundle_reader_prefix(reader), i, n, &path);
        bool is_there = is_used[i] || merge->fs->kind(merge->fs, path.data) == FILE_KIND_FILE;
        if (is_there)
            numbers[i] = add_file(merge, str_detach(&path));
        str_fini(&path);
    }
    return numbers;
}

static struct status *check_shards(struct bundle_reader *reader, bool *is_used) {
    struct bundle_iter iter;
    struct status *st = bundle_iter_init(&iter, reader);
    for (; !st && iter.is_valid; st = bundle_iter_next(&iter)) {
        if (iter.entry.n_slices > 0)
            continue;
        if (iter.entry.shard >= bundle_reader_n_shards(reader)) {
            st = status_new(STATUS_DATA_LOSS, "%s: tensor '%.*s' is in shard %d of %d",
                            bundle_reader_prefix(reader), (int)iter.name.len, iter.name.data,
                            iter.entry.shard, bundle_reader_n_shards(reader));
            break;
        }
        is_used[iter.entry.shard] = true;
    }
    bundle_iter_fini(&iter);
    return st;
}

static struct status *merge_part(struct merge *merge, const char *prefix) {
    struct bundle_reader *reader = NULL;
    struct bundle_iter iter;
    TRY(bundle_reader_open(merge->fs, prefix, &reader));
    bool *is_used = xcalloc((size_t)bundle_reader_n_shards(reader) + 1, sizeof(*is_used));
    struct status *st = check_shards(reader, is_used);
    if (!st) {
        int *shards = number_shards(merge, reader, is_used);
        st = bundle_iter_init(&iter, reader);
        for (; !st && iter.is_valid; st = st ? st : bundle_iter_next(&iter))
            st = merge_entry(merge, prefix, iter.name, &iter.entry, shards);
        bundle_iter_fini(&iter);
        free(shards);
    }
    free(is_used);
    bundle_reader_close(reader);
    return st;
}

static struct status *merge_parts(struct merge *merge, const char *const *prefixes, int n,
                                  bool allow_missing) {
    int n_found = 0;
    for (int i = 0; i < n; i++) {
        struct status *st = merge_part(merge, prefixes[i]);
        if (!st) {
            n_found++;
        } else if (allow_missing && status_code(st) == STATUS_NOT_FOUND) {
            status_unref(st);
        } else if (status_code(st) == STATUS_NOT_FOUND) {
            struct status *missing =
                status_invalid("allow_missing_files was set to false and %s did not exist: %s",
                               prefixes[i], status_message(st));
            status_unref(st);
            return missing;
        } else {
            return st;
        }
    }
    return n_found > 0 ? NULL
                       : status_invalid(
                             "At least one prefix checkpoint file must exist, but none was found.");
}

/* ---- files ---- */

static void rename_back(struct merge *merge, int n) {
    for (int i = 0; i < n; i++)
        merge->fs->rename(merge->fs, merge->files[i].to, merge->files[i].from);
}

/* Syncs the directories of both names of each rename. Files with a common directory are mostly
 * adjacent, so it is synced once for them. */
static struct status *sync_dirs(struct merge *merge) {
    struct str last = STR_INIT, dir = STR_INIT;
    struct status *st = merge->n_files > 0 ? file_sync_dir_of(merge->fs, merge->files[0].to) : NULL;
    for (int i = 0; !st && i < merge->n_files; i++) {
        str_clear(&dir);
        file_dir_of(merge->files[i].from, &dir);
        if (strcmp(str_text(&last), dir.data) != 0)
            st = file_sync_dir_of(merge->fs, merge->files[i].from);
        str_clear(&last);
        str_add(&last, dir.data);
    }
    str_fini(&last);
    str_fini(&dir);
    return st;
}

static struct status *rename_data(struct merge *merge, int n_shards) {
    struct status *st = NULL;
    int n_done = 0;
    for (; !st && n_done < merge->n_files; n_done += !st) {
        struct str to = STR_INIT;
        bundle_data_path(merge->prefix, n_done, n_shards, &to);
        merge->files[n_done].to = str_detach(&to);
        int error =
            merge->fs->rename(merge->fs, merge->files[n_done].from, merge->files[n_done].to);
        if (error < 0)
            st = file_failed(merge->files[n_done].from, error);
    }
    if (!st)
        st = sync_dirs(merge);
    if (st)
        rename_back(merge, n_done);
    return st;
}

static struct status *commit(struct merge *merge, const char *index_tmp, const char *index_path,
                             int n_shards) {
    const struct file_system *fs = merge->fs;
    TRY(bundle_index_write(&merge->index, fs, index_tmp, n_shards));
    struct status *st = rename_data(merge, n_shards);
    int error = st ? 0 : fs->rename(fs, index_tmp, index_path);
    if (error < 0) {
        rename_back(merge, merge->n_files);
        st = file_failed(index_path, error);
    }
    if (st)
        fs->unlink(fs, index_tmp);
    return st ? st : file_sync_dir_of(fs, index_path);
}

static void remove_part_indices(struct merge *merge, const char *const *prefixes, int n) {
    struct str path = STR_INIT;
    for (int i = 0; i < n; i++) {
        if (strcmp(prefixes[i], merge->prefix) == 0)
            continue;
        str_clear(&path);
        bundle_index_path(prefixes[i], &path);
        merge->fs->unlink(merge->fs, path.data);
    }
    str_fini(&path);
}

static bool is_moved_from(const struct merge *merge, const char *path) {
    for (int i = 0; i < merge->n_files; i++)
        if (strcmp(merge->files[i].from, path) == 0)
            return true;
    return false;
}

/* Leaves out the files that the merge itself renames: a checkpoint may be merged into its own
 * name. */
static void forget_moved(struct merge *merge, struct bundle_old *old) {
    size_t n = 0;
    for (size_t i = 0; i < old->n; i++) {
        struct str path = STR_INIT;
        bundle_data_path(merge->prefix, old->items[i].shard, old->items[i].n_shards, &path);
        if (!is_moved_from(merge, path.data))
            old->items[n++] = old->items[i];
        str_fini(&path);
    }
    old->n = n;
}

static void merge_fini(struct merge *merge) {
    for (int i = 0; i < merge->n_files; i++) {
        free(merge->files[i].from);
        free(merge->files[i].to);
    }
    free(merge->files);
    bundle_index_fini(&merge->index);
}

/* Called with the lock of names: until they are renamed, the files of the parts are those that
 * their indices name. */
static struct status *merge_locked(const struct file_system *fs, const char *const *prefixes, int n,
                                   const char *merged_prefix, bool allow_missing) {
    struct merge merge = {.fs = fs, .prefix = merged_prefix};
    struct bundle_old old = {0};
    struct str index_path = STR_INIT;
    struct status *st = NULL;
    char *index_tmp = bundle_temporary_path(merged_prefix, "index");
    bundle_index_init(&merge.index);
    TRY_OUT(merge_parts(&merge, prefixes, n, allow_missing));
    TRY_OUT(bundle_old_find(&old, fs, merged_prefix));
    bundle_index_path(merged_prefix, &index_path);
    TRY_OUT(commit(&merge, index_tmp, index_path.data,
                   bundle_old_free_number(&old, MAX(merge.n_files, 1))));
    remove_part_indices(&merge, prefixes, n);
    forget_moved(&merge, &old);
    bundle_old_remove(&old, fs, merged_prefix);
out:
    free(index_tmp);
    str_fini(&index_path);
    bundle_old_fini(&old);
    merge_fini(&merge);
    return st;
}

struct status *bundle_merge(const struct file_system *fs, const char *const *prefixes, int n,
                            const char *merged_prefix, bool allow_missing) {
    TRY(bundle_make_dir_of(fs, merged_prefix));
    bundle_names_lock();
    struct status *st = merge_locked(fs, prefixes, n, merged_prefix, allow_missing);
    bundle_names_unlock();
    if (!st)
        temporary_collect(fs, merged_prefix);
    return st;
}
