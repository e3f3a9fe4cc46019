/* Converts between the client's tensors and ours, for C programs of this repository (tfctl) that
 * link the client library. Programs elsewhere use client/c_api.h alone. Any thread. */
#ifndef MILLRACE_CLIENT_CLIENT_TENSOR_H
#define MILLRACE_CLIENT_CLIENT_TENSOR_H

#include "client/c_api.h"
#include "common/tensor/tensor.h"

/* Wraps `value_take`, which becomes empty. The caller frees the result with TF_DeleteTensor.
 * Never NULL: without memory the process ends. */
TF_Tensor *client_tensor_new(struct tensor *value_take);
/* Makes a tensor with elements of its own, so that writes to one do not change the other. The
 * caller frees *ret with TF_DeleteTensor. Errors: RESOURCE_EXHAUSTED. */
struct status *client_tensor_clone(const struct tensor *from, TF_Tensor **ret) MUST_USE;
/* Returns the value inside; it lives as long as `tensor`. */
const struct tensor *client_tensor_value(const TF_Tensor *tensor);

#endif
