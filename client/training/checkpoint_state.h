/* The file `checkpoint` of a folder, a CheckpointState in text form: which checkpoints there are,
 * and which is the latest. Any thread; one at a time per folder. */
#ifndef MILLRACE_CLIENT_TRAINING_CHECKPOINT_STATE_H
#define MILLRACE_CLIENT_TRAINING_CHECKPOINT_STATE_H

#include "common/base/status.h"
#include "common/base/str.h"

/* Writes the state for these checkpoints, the latest at last, in the folder of the latest. The file
 * is replaced at once. */
struct status *checkpoint_state_write(char *const *paths, int n) MUST_USE;
/* Reads the path of the latest checkpoint; false when there is none. */
bool checkpoint_state_read(const char *folder, struct str *ret_path);
/* Deletes the files of a checkpoint, as far as they exist. */
void checkpoint_delete(const char *path);

#endif
