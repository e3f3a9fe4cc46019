/* Encodes calls of Python functions and decodes their results. */
#include "kernels/host/calls/py_message.h"

#include <stdlib.h>

enum { VALUE_ALIGN = 8, ELEMENTS_ALIGN = 64, CALL_HEAD = 24, REQUEST_HEAD = 32, VALUE_HEAD = 16 };

static size_t round_up(size_t at, size_t align) { return (at + align - 1) / align * align; }

/* ---- writing ---- */

static size_t elements_bytes(const struct tensor *t) {
    if (t->dtype != DT_STRING)
        return tensor_size_bytes(t);
    size_t n = (size_t)t->n_elements * sizeof(uint64_t);
    for (int64_t i = 0; i < t->n_elements; i++)
        n += tensor_string(t, i).len;
    return n;
}

/* The offset of a value's elements, when the value may begin at `at`. */
static size_t elements_begin(size_t at, int rank) {
    return round_up(round_up(at, VALUE_ALIGN) + VALUE_HEAD + (size_t)rank * sizeof(int64_t),
                    ELEMENTS_ALIGN);
}

static void write_strings(const struct tensor *t, char *to) {
    char *bytes = to + (size_t)t->n_elements * sizeof(uint64_t);
    for (int64_t i = 0; i < t->n_elements; i++) {
        struct span text = tensor_string(t, i);
        uint64_t len = text.len;
        memcpy(to + (size_t)i * sizeof(len), &len, sizeof(len));
        if (len)
            memcpy(bytes, text.data, len);
        bytes += len;
    }
}

/* `shared`: the place of the elements in shared memory, or 0. */
static size_t write_value(const struct tensor *t, uint64_t shared, char *blob, size_t at) {
    uint32_t head[2] = {t->dtype | (shared ? PY_VALUE_SHARED : 0), t->rank};
    uint64_t size = elements_bytes(t);
    size_t begin = elements_begin(at, t->rank), value = round_up(at, VALUE_ALIGN);
    memset(blob + at, 0, begin - at);
    memcpy(blob + value, head, sizeof(head));
    memcpy(blob + value + sizeof(head), &size, sizeof(size));
    if (t->rank)
        memcpy(blob + value + VALUE_HEAD, tensor_dims(t), (size_t)t->rank * sizeof(int64_t));
    if (shared) {
        memcpy(blob + begin, &shared, sizeof(shared));
        return begin + sizeof(shared);
    }
    if (t->dtype == DT_STRING)
        write_strings(t, blob + begin);
    else if (size)
        memcpy(blob + begin, tensor_cdata(t), size);
    return begin + size;
}

/* Puts a large value into shared memory, where it has room there. */
static uint64_t share(const struct py_call *call, const struct tensor *t) {
    size_t size = tensor_size_bytes(t);
    if (!call->memory || t->dtype == DT_STRING || size < PY_SHARED_MIN_BYTES)
        return 0;
    return py_memory_put(call->memory, tensor_cdata(t), size);
}

static struct status *write_call(const struct py_call *call, uint64_t *shared,
                                 struct allocator *allocator, struct tensor *ret) {
    size_t at = CALL_HEAD + call->token.len;
    for (int i = 0; i < call->n_values; i++) {
        const struct tensor *t = &call->values[i];
        if (dtype_is_object((enum dtype)t->dtype) && t->dtype != DT_STRING)
            return status_new(STATUS_UNIMPLEMENTED,
                              "Unsupported numpy data type %s: input %d of a Python function",
                              dtype_name((enum dtype)t->dtype), i);
        shared[i] = share(call, t);
        at = elements_begin(at, t->rank) + (shared[i] ? sizeof(shared[i]) : elements_bytes(t));
    }
    TRY(tensor_new(allocator, DT_UINT8, (struct shape){1, &(int64_t){(int64_t)at}}, ret));
    char *blob = tensor_data(ret);
    uint32_t head[4] = {call->flags, (uint32_t)call->n_values, (uint32_t)call->token.len, 0};
    memcpy(blob, &call->id, sizeof(call->id));
    memcpy(blob + sizeof(call->id), head, sizeof(head));
    memcpy(blob + CALL_HEAD, call->token.data, call->token.len);
    at = CALL_HEAD + call->token.len;
    for (int i = 0; i < call->n_values; i++)
        at = write_value(&call->values[i], shared[i], blob, at);
    return NULL;
}

struct status *py_call_write(const struct py_call *call, struct allocator *allocator,
                             struct tensor *ret) {
    uint64_t *shared = xcalloc((size_t)call->n_values + 1, sizeof(*shared));
    struct status *st = write_call(call, shared, allocator, ret);
    free(shared);
    return st;
}

/* ---- reading ---- */

static COLD struct status *malformed(const char *what) {
    return status_invalid("a request of a Python function server is malformed: %s", what);
}

struct status *py_request_read(const struct tensor *blob, struct py_request *ret) {
    size_t n = (size_t)blob->n_elements;
    const char *bytes = tensor_cdata(blob);
    uint32_t head[4];
    if (blob->dtype != DT_UINT8 || n < REQUEST_HEAD)
        return malformed("it is shorter than its head");
    memcpy(&ret->server, bytes, sizeof(ret->server));
    memcpy(&ret->id, bytes + 8, sizeof(ret->id));
    memcpy(head, bytes + 16, sizeof(head));
    if (head[0] >= PY_N_REQUEST_KINDS || head[2] > PY_MAX_MESSAGE_BYTES ||
        head[2] > n - REQUEST_HEAD || head[3] > PY_MAX_VALUES)
        return malformed("its head");
    ret->kind = (enum py_request_kind)head[0];
    ret->code = head[1];
    ret->message = (struct span){bytes + REQUEST_HEAD, head[2]};
    ret->n_values = (int)head[3];
    ret->values_at = REQUEST_HEAD + head[2];
    ret->values = (struct span){bytes + ret->values_at, n - ret->values_at};
    return NULL;
}

static struct status *read_strings(struct span bytes, struct tensor *ret) {
    size_t n = (size_t)ret->n_elements, at = n * sizeof(uint64_t);
    for (size_t i = 0; i < n; i++) {
        uint64_t len;
        memcpy(&len, bytes.data + i * sizeof(len), sizeof(len));
        if (len > bytes.len - at)
            return malformed("a string is longer than its value");
        tensor_set_string(ret, (int64_t)i, bytes.data + at, len);
        at += len;
    }
    return at == bytes.len ? NULL : malformed("bytes behind the last string");
}

/* Reads bools. Any byte other than 0 becomes 1, because other values are no bool. */
static void read_bools(const char *from, size_t n, uint8_t *to) {
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] != 0;
}

/* Reads the elements, which are `size` bytes at `begin` of the blob. */
static struct status *read_elements(const struct tensor *blob, enum dtype dtype, struct shape shape,
                                    size_t begin, size_t size, struct allocator *allocator,
                                    struct tensor *ret) {
    int64_t n;
    TRY(shape_n_elements(shape, &n));
    size_t least = dtype == DT_STRING ? sizeof(uint64_t) : dtype_size(dtype);
    if ((uint64_t)n > size / least || (dtype != DT_STRING && (size_t)n * least != size))
        return malformed("a value's size does not fit its shape");
    char *data = (char *)(uintptr_t)tensor_cdata(blob) + begin;
    bool is_aligned = (uintptr_t)data % ELEMENTS_ALIGN == 0;
    if (dtype != DT_STRING && dtype != DT_BOOL && is_aligned && blob->storage == TENSOR_BUFFER &&
        size > TENSOR_INLINE_BYTES)
        return tensor_view(blob->buffer, data, dtype, shape, ret);
    TRY(tensor_new(allocator, dtype, shape, ret));
    if (dtype == DT_STRING)
        return read_strings((struct span){data, size}, ret);
    if (dtype == DT_BOOL)
        read_bools(data, size, tensor_data(ret));
    else if (size)
        memcpy(tensor_data(ret), data, size);
    return NULL;
}

/* Reads elements that are in shared memory; their place is at `begin` of the blob. */
static struct status *read_shared(const struct tensor *blob, enum dtype dtype, struct shape shape,
                                  size_t begin, size_t size, struct py_memory *memory,
                                  struct allocator *allocator, struct tensor *ret) {
    int64_t n;
    uint64_t place;
    TRY(shape_n_elements(shape, &n));
    if (!memory || dtype == DT_STRING)
        return malformed("a value is not where it says");
    if ((uint64_t)n != size / dtype_size(dtype) || size % dtype_size(dtype) != 0)
        return malformed("a value's size does not fit its shape");
    memcpy(&place, (const char *)tensor_cdata(blob) + begin, sizeof(place));
    if (size > PY_MEMORY_MAX_BYTES)
        return malformed("a value is larger than the shared memory");
    TRY(tensor_new(allocator, dtype, shape, ret));
    struct status *st = py_memory_take(memory, place, tensor_data(ret), size);
    if (!st && dtype == DT_BOOL)
        read_bools(tensor_data(ret), size, tensor_data(ret));
    return st;
}

static struct status *read_value(const struct tensor *blob, size_t *at, struct py_memory *memory,
                                 struct allocator *allocator, struct tensor *ret) {
    size_t n = (size_t)blob->n_elements, value = round_up(*at, VALUE_ALIGN);
    const char *bytes = tensor_cdata(blob);
    uint32_t head[2];
    uint64_t size;
    int64_t dims[SHAPE_MAX_RANK];
    if (value > n || n - value < VALUE_HEAD)
        return malformed("a value is cut off");
    memcpy(head, bytes + value, sizeof(head));
    memcpy(&size, bytes + value + sizeof(head), sizeof(size));
    bool is_shared = head[0] & PY_VALUE_SHARED;
    head[0] &= ~PY_VALUE_SHARED;
    enum dtype dtype = (enum dtype)head[0];
    if (head[0] >= DT_N_TYPES || !dtype_size(dtype) || head[1] > SHAPE_MAX_RANK ||
        (dtype_is_object(dtype) && dtype != DT_STRING))
        return malformed("a value's type or rank");
    size_t begin = elements_begin(*at, (int)head[1]);
    uint64_t in_blob = is_shared ? sizeof(uint64_t) : size;
    if (begin > n || in_blob > n - begin)
        return malformed("a value's elements are cut off");
    if (head[1])
        memcpy(dims, bytes + value + VALUE_HEAD, head[1] * sizeof(int64_t));
    *at = begin + in_blob;
    if (is_shared)
        return read_shared(blob, dtype, (struct shape){(int)head[1], dims}, begin, size, memory,
                           allocator, ret);
    return read_elements(blob, dtype, (struct shape){(int)head[1], dims}, begin, size, allocator,
                         ret);
}

struct status *py_values_read(const struct tensor *blob, const struct py_request *request,
                              struct py_memory *memory, struct allocator *allocator,
                              struct tensor *ret) {
    size_t at = request->values_at;
    struct status *st = NULL;
    for (int i = 0; i < request->n_values && !st; i++)
        st = read_value(blob, &at, memory, allocator, &ret[i]);
    for (int i = 0; i < request->n_values && st; i++)
        tensor_clear(&ret[i]);
    return st;
}
