/* Reads a checkpoint of either format as a sorted list of tensors. One thread. */
#ifndef MILLRACE_TFCTL_CHECKPOINT_FILE_H
#define MILLRACE_TFCTL_CHECKPOINT_FILE_H

#include "common/io/bundle.h"
#include "common/io/slices_file.h"

struct checkpoint_tensor {
    struct span name;
    enum dtype dtype;
    struct shape shape;
    struct bundle_entry entry;         /* of a bundle */
    const struct slices_tensor *saved; /* of the older format */
};

struct checkpoint_file {
    char *prefix;
    struct bundle_reader *bundle; /* or */
    struct slices_reader *slices;
    struct arena arena;
    struct checkpoint_tensor *tensors; /* by name */
    size_t n, capacity;
};

/* `path` is a prefix, its ".index" file, a file of the older format, or a directory with a file
 * `checkpoint` that names the newest. Errors: those of the file system; DATA_LOSS. Call
 * checkpoint_file_fini always. */
struct status *checkpoint_file_open(struct checkpoint_file *file, const char *path) MUST_USE;
void checkpoint_file_fini(struct checkpoint_file *file);
/* Returns NULL when there is no tensor of that name. */
const struct checkpoint_tensor *checkpoint_file_find(const struct checkpoint_file *file,
                                                     struct span name);
struct status *checkpoint_file_read(const struct checkpoint_file *file,
                                    const struct checkpoint_tensor *tensor,
                                    struct tensor *ret) MUST_USE;

#endif
