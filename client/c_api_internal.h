/* What the client's files share: the structs behind the opaque names. */
#ifndef MILLRACE_CLIENT_C_API_INTERNAL_H
#define MILLRACE_CLIENT_C_API_INTERNAL_H

#include "client/c_api.h"
#include "common/base/status.h"
#include "common/tensor/tensor.h"

struct TF_Status {
    struct status *status;
};

struct TF_Tensor {
    struct tensor value;
};

/* Sets the caller's TF_Status; takes `status_take`. */
void tf_status_set(TF_Status *to, struct status *status_take);
TF_Tensor *tf_tensor_new(struct tensor *value_take);

#endif
