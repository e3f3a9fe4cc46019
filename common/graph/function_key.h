/* What a function that kernels call is known by, between the master that compiled it and the
 * worker that runs it: its name, the attrs that the call states, and the device that it was
 * placed on. */
#ifndef MILLRACE_COMMON_GRAPH_FUNCTION_KEY_H
#define MILLRACE_COMMON_GRAPH_FUNCTION_KEY_H

#include "common/base/str.h"
#include "common/graph/attr.h"

/* Appends the key; device is a full name. Any thread. */
void function_key(const struct attr_func *function, const char *device, struct str *out);

#endif
