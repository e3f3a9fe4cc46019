/* MR_Saver: writes variables to checkpoints and reads them back [WP 3.3, OSDI 4.3], in TensorFlow's
 * format and with the names of tf.compat.v1.train.Saver. Parts of a variable are one tensor there.
 *
 * One task writes and reads all files: that of the first variable. The program itself keeps the
 * file `checkpoint` beside them, which names the latest, and deletes old checkpoints, so it must
 * see the same folder as that task. Give absolute paths.
 *
 * A builder owns its savers. One thread at a time per saver. */
#ifndef MILLRACE_CLIENT_TRAINING_SAVER_H
#define MILLRACE_CLIENT_TRAINING_SAVER_H

#include "client/training/variable.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Saver MR_Saver;

/* Adds operations that save and restore these variables; num_variables -1 means all that the
 * builder has now, slots of optimizers and the global step among them, except the local steps of
 * MR_SyncTrain. Of the checkpoints that this saver wrote, the last max_to_keep stay, and the file
 * `checkpoint` names them; 0 keeps all, and the file names only the latest. */
MR_Saver *MR_NewSaver(MR_Builder *builder, MR_Variable *const *variables, int num_variables,
                      int max_to_keep);
/* Writes a checkpoint PREFIX-STEP, or PREFIX with step -1, and returns this path, which lives until
 * the saver's next call; NULL on errors. Old checkpoints are deleted after the file
 * `checkpoint` is on the disk. Errors: those of the step, and of writing that file, after which no
 * checkpoint is deleted before the next save. */
const char *MR_Save(MR_Saver *saver, TF_Session *session, const char *prefix, int64_t step,
                    TF_Status *status);
/* Errors: NOT_FOUND when there is no such checkpoint, or a variable is not in it; INVALID_ARGUMENT
 * for another shape. */
void MR_Restore(MR_Saver *saver, TF_Session *session, const char *path, TF_Status *status);
/* Reads the file `checkpoint` of a folder. Returns 1 and sets `path` to the latest checkpoint; 0
 * when the folder has none, its index is missing, or the path does not fit in max_length bytes with
 * its NUL. */
unsigned char MR_LatestCheckpoint(const char *folder, char *path, size_t max_length);

#ifdef __cplusplus
}
#endif
#endif
