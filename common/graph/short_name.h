/* Shortens names of nodes and tensors, for records that have no room for long ones. */
#ifndef MILLRACE_COMMON_GRAPH_SHORT_NAME_H
#define MILLRACE_COMMON_GRAPH_SHORT_NAME_H

#include "common/base/str.h"

enum { SHORT_NAME_BYTES = 100 };

/* A name of up to SHORT_NAME_BYTES is returned as it is. A longer one becomes its first bytes, '~'
 * and the 16 hexadecimal digits of a hash of the whole name in `buffer`, so that names that begin
 * alike stay apart. All processes shorten a name alike. Any thread. */
struct span short_name(const char *name, char buffer[SHORT_NAME_BYTES + 1]);

#endif
