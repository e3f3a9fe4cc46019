/* The file `checkpoint` of a folder, a CheckpointState in text form: which checkpoints there are,
 * and which is the latest. Any thread; one at a time per folder. */
#ifndef MILLRACE_CLIENT_TRAINING_CHECKPOINT_STATE_H
#define MILLRACE_CLIENT_TRAINING_CHECKPOINT_STATE_H

#include "common/io/file_system.h"

/* Writes the state for these checkpoints, the latest at last, in the folder of the latest. The file
 * is replaced at once, and a power cut leaves the old file or the new one. After success it leaves
 * the new one. */
struct status *checkpoint_state_write(const struct file_system *fs, char *const *paths,
                                      int n) MUST_USE;
/* Reads the path of the latest checkpoint; false when there is none, or its index is missing. */
bool checkpoint_state_read(const struct file_system *fs, const char *folder, struct str *ret_path);
/* Deletes the files of a checkpoint, as far as they exist. */
void checkpoint_delete(const struct file_system *fs, const char *path);

#endif
