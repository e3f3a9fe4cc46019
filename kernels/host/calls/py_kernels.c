/* CPU kernels of Python functions: PyFunc, PyFuncStateless, EagerPyFunc.
 *
 * The process of the client that runs the session serves the function (millrace.py_functions;
 * kernels/host/calls/py_service.h). A PyFunc with the reserved token is the serving step itself. */
#include <stdlib.h>

#include "kernels/host/calls/py_service.h"

extern const struct kernel_list py_kernels;

struct py_state {
    uint32_t flags;
    bool serves;
    char token[];
};

static struct status *py_init(struct kernel_init *init) {
    struct span token;
    TRY(node_get_s(init->node, "token", &token));
    struct py_state *state = xcalloc(1, sizeof(*state) + token.len + 1);
    memcpy(state->token, token.data, token.len);
    state->flags = init->arg ? PY_CALL_EAGER : 0;
    state->serves = !init->arg && span_is(token, PY_SERVE_TOKEN);
    init->state = state;
    if (state->serves && (init->node->n_data != 1 || init->node->n_outputs != 1 ||
                          init->node->out_types[0] != DT_UINT8))
        return status_invalid("a PyFunc of the token " PY_SERVE_TOKEN " serves the functions of a "
                              "client, and has one input and one output of uint8");
    return NULL;
}

static enum kernel_result py_compute(struct kernel_ctx *ctx) {
    const struct py_state *state = ctx->instance->state;
    struct py_service *service = NULL;
    KERNEL_TRY(ctx, py_service_of(ctx, &service));
    enum kernel_result result = state->serves
                                    ? py_service_serve(service, ctx)
                                    : py_service_call(service, ctx, state->token, state->flags);
    py_service_unref(service);
    return result;
}

// clang-format off
static const struct kernel_def rows[] = {
    {"PyFunc", .compute = py_compute, .init = py_init, .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {"PyFuncStateless", .compute = py_compute, .init = py_init, .flags = KERNEL_ASYNC},
    {"EagerPyFunc", .compute = py_compute, .init = py_init, .arg = "",
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list py_kernels = {rows, ARRAY_LEN(rows)};
