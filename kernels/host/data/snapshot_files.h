/* Names and reads the files of a saved dataset, in the format of TensorFlow's Dataset.save:
 *
 *   PATH/snapshot.metadata                   a SnapshotMetadataRecord: the run, whether it is
 *                                            finished, types
 *   PATH/RUN/00000003.shard/00000000.snapshot  TFRecords: each component of each element as a
 *                                            serialized TensorProto
 *
 * The functions block, so they are for I/O threads. */
#ifndef MILLRACE_KERNELS_HOST_DATA_SNAPSHOT_FILES_H
#define MILLRACE_KERNELS_HOST_DATA_SNAPSHOT_FILES_H

#include "common/io/record_sink.h"
#include "kernels/host/data/dataset.h"

struct snapshot_metadata {
    char *run_id;
    int64_t created_us, version, n_elements;
    bool is_finalized;
};
void snapshot_metadata_fini(struct snapshot_metadata *metadata);
enum { SNAPSHOT_VERSION = 2 };

/* Replaces the metadata of the snapshot in `dir`, which exists. The types are the dataset's. */
struct status *snapshot_metadata_write(const char *dir, const struct snapshot_metadata *metadata,
                                       const struct dataset *dataset) MUST_USE;
/* *ret_is_there is false when there is no metadata. Errors: DATA_LOSS, and those of the file
 * system. */
struct status *snapshot_metadata_read(const char *dir, struct snapshot_metadata *ret,
                                      bool *ret_is_there) MUST_USE;

/* Appends "DIR/RUN/00000003.shard", or "SHARD/00000000.snapshot". */
void snapshot_add_shard(struct str *out, const char *dir, const char *run_id, int64_t shard);
void snapshot_add_file(struct str *out, const char *shard, int64_t number);

#endif
