/* Snappy's block format, reading only: older checkpoints compress their table blocks with it.
 * Any thread. */
#ifndef MILLRACE_COMMON_IO_SNAPPY_H
#define MILLRACE_COMMON_IO_SNAPPY_H

#include "common/base/str.h"

/* Appends what the data stands for; false when malformed (out is then of no use). */
bool snappy_expand(struct span data, struct str *out);

#endif
