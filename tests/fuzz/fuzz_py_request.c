/* Requests of clients that serve Python functions, as bytes from strangers.
 *
 *   input   the request's blob (kernels/host/calls/py_message.h); its message is also read as the
 *           name of shared memory, and its values may name places in some */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/host/calls/py_message.h"
#include "kernels/support/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small memory of this process, which stays. */
static struct py_memory *shared_memory(void) {
    static struct py_memory *memory;
    char name[128];
    if (memory)
        return memory;
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    snprintf(name, sizeof(name), "%d %d 4096 %032d", getpid(), fd, 0);
    memory = py_memory_open(span_of(name));
    CHECK(memory);
    return memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tensor blob = TENSOR_INIT;
    struct py_request request;
    CHECK(!tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &(int64_t){(int64_t)size}},
                      &blob));
    if (size)
        memcpy(tensor_data(&blob), data, size);
    struct status *st = py_request_read(&blob, &request);
    if (!st) {
        py_memory_unref(py_memory_open(request.message));
        struct tensor *values = rows_new(request.n_values);
        st = py_values_read(&blob, &request, shared_memory(), allocator_host(), values);
        for (int i = 0; i < request.n_values && !st; i++)
            CHECK(tensor_has_value(&values[i]));
        rows_free(values, (size_t)request.n_values);
    }
    status_unref(st);
    tensor_clear(&blob);
    return 0;
}
