/* Decompresses Snappy's block format, in which older checkpoints have their table blocks. Any
 * thread. */
#ifndef MILLRACE_COMMON_IO_SNAPPY_H
#define MILLRACE_COMMON_IO_SNAPPY_H

#include "common/base/str.h"

/* Appends the decompressed bytes. False when malformed; the contents of `out` are undefined
 * then. */
bool snappy_expand(struct span data, struct str *out);

#endif
