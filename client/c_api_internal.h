/* What the files of the C client share: the structs behind the opaque names. */
#ifndef MILLRACE_CLIENT_C_API_INTERNAL_H
#define MILLRACE_CLIENT_C_API_INTERNAL_H

#include <pthread.h>

#include "client/c_api.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/tensor.h"
#include "rpc/grpc/grpc_client.h"

struct TF_Status {
    struct status *status;
};

struct TF_Tensor {
    struct tensor value;
};

struct TF_DeprecatedSession {
    pthread_mutex_t lock; /* one call at a time; guards all below */
    struct loop *loop;
    struct grpc_client *client;
    char *target;
    struct str config, handle;
    int64_t graph_version, timeout_ms;
    bool is_closed;
};

/* Calls a method of the master and waits for the reply. The caller holds the session's lock. On
 * success the reply's buffer is the caller's. */
struct status *session_call(TF_DeprecatedSession *session, const char *method,
                            const struct str *request, struct grpc_message *ret) MUST_USE;

/* Sets the caller's TF_Status; takes `status_take`. */
void tf_status_set(TF_Status *to, struct status *status_take);

#endif
