/* Declares what the setters of attrs need of a description (c_describe.c). The caller's thread. */
#ifndef MILLRACE_CLIENT_C_DESCRIBE_H
#define MILLRACE_CLIENT_C_DESCRIBE_H

#include "client/c_graph_internal.h"

/* Keeps the first error, which TF_FinishOperation reports. */
void describe_fail(TF_OperationDescription *desc, struct status *status_take);
/* False for NULL and for a description that is finished. */
bool describe_may_change(const TF_OperationDescription *desc);
/* Copies the value; a value that is set already must be equal. */
void describe_attr(TF_OperationDescription *desc, const char *name, const struct attr_value *value);
/* Adds a colocation group, "loc:@NAME". */
void describe_colocate(TF_OperationDescription *desc, struct span group);

#endif
