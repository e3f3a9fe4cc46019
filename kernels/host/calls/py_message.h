/* The bytes that a worker and the Python process of a client exchange about one call of a Python
 * function: a blob each way, the elements of a uint8 vector (client/python/millrace/_message.py is
 * the other end). Any thread.
 *
 *   call     u64 id  u32 flags  u32 n_values  u32 token length  u32 0
 *            token  values
 *   request  u64 server  u64 id  u32 kind  u32 code  u32 message length  u32 n_values
 *            message  values
 *   value    u32 dtype  u32 rank  u64 size  i64 dims[rank]  elements
 *
 * Numbers are little-endian. A value begins at a multiple of 8 and its elements at a multiple of
 * 64, counted from the blob's begin, so that both ends make views instead of copies. Elements of
 * strings are a u64 length each, then all bytes; size counts both.
 *
 * Where both ends share memory (py_memory.h), a value of PY_SHARED_MIN_BYTES and more that has room
 * there has PY_VALUE_SHARED in its dtype. Its elements in the blob are a u64: the offset of the
 * `size` bytes in that memory. Its receiver frees the block. Strings are never shared. */
#ifndef MILLRACE_KERNELS_HOST_CALLS_PY_MESSAGE_H
#define MILLRACE_KERNELS_HOST_CALLS_PY_MESSAGE_H

#include "common/tensor/tensor.h"
#include "kernels/host/calls/py_memory.h"

/* Flags of a call. */
enum {
    PY_CALL_EAGER = 1,  /* the function takes and returns eager tensors */
    PY_CALL_SHARES = 2, /* its results may be in the memory that both ends share */
};

/* What a request asks for. */
enum py_request_kind {
    /* the server takes calls from now on; calls of an earlier server with its number fail */
    PY_JOIN,
    PY_SERVE, /* the result of the call `id` (0: none), then wait for the next call */
    PY_LEAVE, /* the server takes no more calls; those that it has fail */
    PY_N_REQUEST_KINDS
};

enum { PY_MAX_VALUES = 4096, PY_MAX_MESSAGE_BYTES = 1 << 16, PY_SHARED_MIN_BYTES = 1 << 16 };

#define PY_VALUE_SHARED (UINT32_C(1) << 31)

/* A call as its kernel has it. The token and the tensors are borrowed. */
struct py_call {
    uint64_t id;
    uint32_t flags;
    struct span token;
    const struct tensor *values;
    int n_values;
    struct py_memory *memory; /* borrowed; NULL: nothing is shared */
};

/* Writes the call into a new uint8 vector. Errors: INVALID_ARGUMENT names a dtype that Python
 * cannot be given (resource, variant); RESOURCE_EXHAUSTED. */
struct status *py_call_write(const struct py_call *call, struct allocator *allocator,
                             struct tensor *ret) MUST_USE;

/* A request, decoded. `message` and `values` are in the blob. */
struct py_request {
    uint64_t server, id;
    enum py_request_kind kind;
    uint32_t code;
    struct span message;
    struct span values; /* encoded: py_values_read */
    size_t values_at;   /* where they begin in the blob */
    int n_values;
};

/* Reads all but the values. Errors: INVALID_ARGUMENT for bytes that are no request. */
struct status *py_request_read(const struct tensor *blob, struct py_request *ret) MUST_USE;

/* Reads the n_values values of a request into `ret` (n_values tensors that hold nothing). Large
 * ones are views on the blob, which they share; those in `memory` (NULL: none) are
 * copied. On an error all of `ret` hold nothing. Errors: INVALID_ARGUMENT for malformed bytes,
 * RESOURCE_EXHAUSTED. */
struct status *py_values_read(const struct tensor *blob, const struct py_request *request,
                              struct py_memory *memory, struct allocator *allocator,
                              struct tensor *ret) MUST_USE;

#endif
