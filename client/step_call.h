/* Writes RunStep requests and reads their replies, for blocking and for asynchronous steps. */
#ifndef MILLRACE_CLIENT_STEP_CALL_H
#define MILLRACE_CLIENT_STEP_CALL_H

#include "client/c_api_internal.h"

/* One step, or with `handle` a part of a partial run. All borrowed. */
struct step_spec {
    const TF_Buffer *run_options; /* or NULL */
    const char *handle;           /* of the partial run; NULL: none */
    const char *const *input_names, *const *output_names, *const *target_names;
    TF_Tensor *const *inputs;
    int ninputs, noutputs, ntargets;
};

/* Appends the request of a session. Large feeds are shared, not copied. Any thread. */
void step_request_write(const struct str *session_handle, const struct step_spec *step,
                        struct grpc_body *out);
/* Returns where the contents of the first large fetch start, so that they arrive aligned. */
size_t step_reply_align(struct span head, size_t body_len);
/* Fills outputs[0 … noutputs) with new tensors of the caller's, in the order of the names, and
 * run_metadata unless it is NULL. On an error all outputs are NULL. Errors: those of the step;
 * INTERNAL for a malformed reply, or one without a fetch; RESOURCE_EXHAUSTED for a fetch whose few
 * bytes claim a large tensor. Any thread. */
struct status *step_reply_take(const struct grpc_message *reply, const char *const *output_names,
                               TF_Tensor **outputs, int noutputs, TF_Buffer *run_metadata) MUST_USE;
/* Runs a step, or a part of a partial run, and waits for its end. Errors: those of the session, and
 * as step_reply_take. Any thread. */
struct status *session_run_step(TF_DeprecatedSession *session, const struct step_spec *step,
                                TF_Tensor **outputs, TF_Buffer *run_metadata) MUST_USE;
/* Begins a partial run that will have these feeds, fetches and targets. *ret_handle is freed with
 * TF_DeletePRunHandle. Any thread. */
struct status *session_set_up_partial_run(TF_DeprecatedSession *session,
                                          const struct step_spec *step,
                                          const char **ret_handle) MUST_USE;
/* Appends a name as the server expects it: "a" means "a:0" (TensorFlow's server never answers a
 * fetch without an index). */
void step_endpoint_name(const char *name, struct str *out);

#endif
