/* Makes the datasets that save their input's elements in files, and that read what was saved. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_SNAPSHOT_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_SNAPSHOT_H

#include "kernels/host/data/dataset.h"

/* A dataset of the same elements as `input`, which an iterator saves in the directory `dir`, a path
 * of the system, as it hands them out. `shard_fn` says in which shard an element is saved; NULL:
 * all in one. Takes the function. With one reference. */
struct dataset *dataset_save_new(struct dataset *input, const char *dir, struct span compression,
                                 struct dataset_fn *shard_fn_take);
/* A dataset of what `reader_fn` makes of the dataset of the shards' datasets, which were saved in
 * `dir`. The caller sets its components before it is iterated. Takes the function. */
struct dataset *dataset_load_new(const char *dir, struct span compression,
                                 struct dataset_fn *reader_fn_take);

#endif
