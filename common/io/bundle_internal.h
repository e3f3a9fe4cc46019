/* Declares what the bundle_*.c files share: the index that is being written, and the existing data
 * files of a prefix. */
#ifndef MILLRACE_COMMON_IO_BUNDLE_INTERNAL_H
#define MILLRACE_COMMON_IO_BUNDLE_INTERNAL_H

#include "common/base/map.h"
#include "common/io/bundle.h"

/* ---- the index that is being written ---- */

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
/* NULL: no such entry */
struct bundle_item *bundle_index_find(const struct bundle_index *index, struct span name);
/* adds an empty entry; the name must be new */
struct bundle_item *bundle_index_add(struct bundle_index *index, struct span name);
/* Adds a copy of a slice to the entry of a partitioned tensor. */
void bundle_entry_add_slice(struct bundle_index *index, struct bundle_entry *entry,
                            const struct tensor_slice *slice);
/* Sorts the items, writes the file and syncs it. After an error the file does not exist. */
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
/* The lowest number of shards, from at_least on, that no existing file has in its name. */
int bundle_old_free_number(const struct bundle_old *old, int at_least);
void bundle_old_remove(const struct bundle_old *old, const struct file_system *fs,
                       const char *prefix);
void bundle_old_fini(struct bundle_old *old);

/* The lock under which a save looks at the data files of a prefix, names new ones and removes old
 * ones. Without it two saves to one prefix could remove or replace files of each other. There is
 * one lock for the process, since a directory may have several names and a merge takes files of
 * several prefixes. Data are written and synced before, so the lock is held briefly. Other
 * processes save to other prefixes and need no lock. */
void bundle_names_lock(void);
void bundle_names_unlock(void);

/* ---- reading ---- */

/* Reads the bytes of the entry itself: a whole tensor, or one slice. */
struct status *bundle_read_own(struct bundle_reader *reader, struct span name,
                               const struct bundle_entry *entry, struct allocator *allocator,
                               struct tensor *ret) MUST_USE;

/* ---- files ---- */

struct status *bundle_make_dir_of(const struct file_system *fs, const char *prefix) MUST_USE;
/* malloc'd; a new name each time */
char *bundle_temporary_path(const char *prefix, const char *what);

#endif
