/* What the bundle_*.c files share: an index in the making, and what lies under a prefix already. */
#ifndef MILLRACE_COMMON_IO_BUNDLE_INTERNAL_H
#define MILLRACE_COMMON_IO_BUNDLE_INTERNAL_H

#include "common/base/map.h"
#include "common/io/bundle.h"

/* ---- an index in the making ---- */

struct bundle_item {
    struct span name; /* a tensor's, or a slice's key */
    struct bundle_entry entry;
};

struct bundle_index {
    struct arena arena;
    struct bundle_item **items;
    size_t n, capacity;
    struct strmap by_name;
};
void bundle_index_init(struct bundle_index *index);
void bundle_index_fini(struct bundle_index *index);
/* NULL: none */
struct bundle_item *bundle_index_find(const struct bundle_index *index, struct span name);
/* an empty one; the name must be new */
struct bundle_item *bundle_index_add(struct bundle_index *index, struct span name);
/* One more slice of a partitioned tensor; copied. */
void bundle_entry_add_slice(struct bundle_index *index, struct bundle_entry *entry,
                            const struct tensor_slice *slice);
/* Writes and syncs the file; sorts the items. After an error there is no file. */
struct status *bundle_index_write(struct bundle_index *index, const struct file_system *fs,
                                  const char *path, int n_shards) MUST_USE;

/* ---- the data files under a prefix ---- */

struct bundle_old_file {
    int shard, n_shards;
};
struct bundle_old {
    struct bundle_old_file *items;
    size_t n, capacity;
};
struct status *bundle_old_find(struct bundle_old *old, const struct file_system *fs,
                               const char *prefix) MUST_USE;
/* The first number of shards, from at_least on, that no file's name has. */
int bundle_old_free_number(const struct bundle_old *old, int at_least);
void bundle_old_remove(const struct bundle_old *old, const struct file_system *fs,
                       const char *prefix);
void bundle_old_fini(struct bundle_old *old);

/* Held by whoever looks at the data files of a prefix, gives names to new ones and removes older
 * ones: two that did so for one prefix at a time would remove or replace what the other has just
 * reported. One for the process, as a directory has more than one spelling and a merge takes
 * files of several prefixes; the data are written and synced before, so what is held up is
 * short. Other processes are not held up: each of them saves to prefixes of its own. */
void bundle_names_lock(void);
void bundle_names_unlock(void);

/* ---- reading ---- */

/* The bytes that an entry itself has: of a whole tensor, or of one slice. */
struct status *bundle_read_own(struct bundle_reader *reader, struct span name,
                               const struct bundle_entry *entry, struct allocator *allocator,
                               struct tensor *ret) MUST_USE;

/* ---- files ---- */

struct status *bundle_make_dir_of(const struct file_system *fs, const char *prefix) MUST_USE;
char *bundle_temporary_path(const char *prefix, const char *what); /* malloc'd; new each time */

#endif
