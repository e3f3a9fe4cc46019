/* What a function that kernels call is known by, between the master that compiled it and the
 * worker that runs it.
 *
 * Two nodes may name one function with different attrs. The master compares the attrs themselves,
 * numbers the different ones (an instance each), and writes the number into the func attr of each
 * node. So a key is short whatever the attrs hold, and no two instances have the same key. */
#ifndef MILLRACE_COMMON_GRAPH_FUNCTION_KEY_H
#define MILLRACE_COMMON_GRAPH_FUNCTION_KEY_H

#include "common/base/str.h"
#include "common/graph/attr.h"

/* An attr of an attr_func: the number of the instance, an int. Without it, the number is 0. */
#define FUNCTION_INSTANCE_ATTR "_instance"

/* Appends the key "name#instance@device"; device is a full name, which has no '@'. Any thread. */
void function_key(const struct attr_func *function, const char *device, struct str *out);
/* Do the two name the same instance as far as a client says: equal names and attrs, except for
 * FUNCTION_INSTANCE_ATTR? Any thread. */
bool function_is_same_instance(const struct attr_func *a, const struct attr_func *b);
/* Appends bytes that are equal for the same instance only: the name and all attrs, in full. Any
 * thread. */
void function_identity(const struct attr_func *function, struct str *out);

#endif
