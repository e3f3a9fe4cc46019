/* Requests of clients that serve Python functions, as bytes from strangers.
 *
 *   input   the request's blob (kernels/host/calls/py_message.h) */
#include "kernels/host/calls/py_message.h"
#include "kernels/support/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tensor blob = TENSOR_INIT;
    struct py_request request;
    CHECK(!tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &(int64_t){(int64_t)size}},
                      &blob));
    if (size)
        memcpy(tensor_data(&blob), data, size);
    struct status *st = py_request_read(&blob, &request);
    if (!st) {
        struct tensor *values = rows_new(request.n_values);
        st = py_values_read(&blob, &request, allocator_host(), values);
        for (int i = 0; i < request.n_values && !st; i++)
            CHECK(tensor_has_value(&values[i]));
        rows_free(values, (size_t)request.n_values);
    }
    status_unref(st);
    tensor_clear(&blob);
    return 0;
}
