/* MR_SummaryWriter: writes numbers of the training into files of events, which TensorBoard reads
 * [WP 9.1]. The operations of the servers write them: a task writes files in a folder that it may
 * use (tf-worker --file-root).
 *
 *   MR_SummaryWriter *writer = MR_NewSummaryWriter(b, "/tmp/logs", MR_Read(b, step));
 *   MR_SummarizeScalar(b, writer, "loss", loss);
 *   … run MR_SummaryOpen(writer) once, MR_SummaryWrite(b, writer) in the steps to be recorded,
 *     MR_SummaryClose(writer) at the end.
 *
 * A builder owns its writers. One thread at a time per builder. */
#ifndef MILLRACE_CLIENT_TRAINING_SUMMARY_H
#define MILLRACE_CLIENT_TRAINING_SUMMARY_H

#include "client/training/builder.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_SummaryWriter MR_SummaryWriter;

/* Adds a writer on the device of the builder; what is written, in whichever session, is for the
 * int64 scalar `step`. Errors: INVALID_ARGUMENT for another dtype. */
MR_SummaryWriter *MR_NewSummaryWriter(MR_Builder *builder, const char *folder, TF_Output step);
/* Adds an operation that writes a number, of any real dtype; it also is among those that
 * MR_SummaryWrite groups. */
TF_Operation *MR_SummarizeScalar(MR_Builder *builder, MR_SummaryWriter *writer, const char *tag,
                                 TF_Output value);
/* The same for how the elements of a tensor are distributed. */
TF_Operation *MR_SummarizeHistogram(MR_Builder *builder, MR_SummaryWriter *writer, const char *tag,
                                    TF_Output values);
/* Adds an operation that runs all of the writer's so far. */
TF_Operation *MR_SummaryWrite(MR_Builder *builder, const MR_SummaryWriter *writer);

/* Operations to be run: open the file; write what is buffered; the same, and close it. NULL where
 * the writer is. */
TF_Operation *MR_SummaryOpen(const MR_SummaryWriter *writer);
TF_Operation *MR_SummaryFlush(const MR_SummaryWriter *writer);
TF_Operation *MR_SummaryClose(const MR_SummaryWriter *writer);

#ifdef __cplusplus
}
#endif
#endif
