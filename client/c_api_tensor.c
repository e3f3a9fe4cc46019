/* Implements TF_Status, TF_Buffer and TF_Tensor with the status and tensor of common/. */
#include "client/c_api.h"

#include <stdlib.h>

#include "client/c_api_internal.h"
#include "client/client_tensor.h"
#include "common/tensor/tensor_proto.h"

/* ---- status ---- */

const char *TF_Version(void) { return MILLRACE_VERSION; }

TF_Status *TF_NewStatus(void) { return xcalloc(1, sizeof(TF_Status)); }

void TF_DeleteStatus(TF_Status *status) {
    if (!status)
        return;
    status_unref(status->status);
    free(status);
}

void tf_status_set(TF_Status *to, struct status *status_take) {
    if (!to) {
        status_unref(status_take);
        return;
    }
    status_unref(to->status);
    to->status = status_take;
}

void TF_SetStatus(TF_Status *status, TF_Code code, const char *message) {
    tf_status_set(status, code == TF_OK
                              ? NULL
                              : status_new((enum status_code)code, "%s", message ? message : ""));
}

TF_Code TF_GetCode(const TF_Status *status) {
    return status ? (TF_Code)status_code(status->status) : TF_INVALID_ARGUMENT;
}

const char *TF_Message(const TF_Status *status) {
    return status ? status_message(status->status) : "status is NULL";
}

/* ---- buffers ---- */

static void free_bytes(void *data, size_t length) { free(data); }

TF_Buffer *TF_NewBuffer(void) { return xcalloc(1, sizeof(TF_Buffer)); }

TF_Buffer *TF_NewBufferFromString(const void *data, size_t length) {
    if (!data && length > 0)
        return NULL;
    TF_Buffer *buffer = TF_NewBuffer();
    void *copy = xmalloc(length + 1);
    if (length > 0)
        memcpy(copy, data, length);
    *buffer = (TF_Buffer){copy, length, free_bytes};
    return buffer;
}

void TF_DeleteBuffer(TF_Buffer *buffer) {
    if (!buffer)
        return;
    if (buffer->data_deallocator)
        buffer->data_deallocator((void *)(uintptr_t)buffer->data, buffer->length);
    free(buffer);
}

TF_Buffer TF_GetBuffer(TF_Buffer *buffer) { return buffer ? *buffer : (TF_Buffer){NULL, 0, NULL}; }

/* ---- tensors ---- */

enum { ADOPT_MIN_BYTES = 4096 }; /* copying less costs less than keeping it */

size_t TF_DataTypeSize(TF_DataType dtype) {
    return dtype_is_known((int)dtype) && !dtype_is_object((enum dtype)dtype)
               ? (size_t)dtype_size((enum dtype)dtype)
               : 0;
}

TF_Tensor *client_tensor_new(struct tensor *value_take) {
    TF_Tensor *tensor = aligned_alloc(64, sizeof *tensor);
    if (!tensor)
        out_of_memory(sizeof *tensor);
    tensor_move(&tensor->value, value_take);
    return tensor;
}

struct status *client_tensor_clone(const struct tensor *from, TF_Tensor **ret) {
    struct tensor copy;
    TRY(tensor_clone(allocator_host(), from, &copy));
    *ret = client_tensor_new(&copy);
    return NULL;
}

const struct tensor *client_tensor_value(const TF_Tensor *tensor) { return &tensor->value; }

static bool has_dims(const int64_t *dims, int num_dims) {
    return num_dims == 0 || (num_dims > 0 && dims);
}

TF_Tensor *TF_AllocateTensor(TF_DataType dtype, const int64_t *dims, int num_dims, size_t length) {
    struct tensor value;
    if (!dtype_is_known((int)dtype) || !dtype_in((enum dtype)dtype, DTYPES_PLAIN) ||
        !has_dims(dims, num_dims))
        return NULL;
    struct status *st =
        tensor_new(allocator_host(), (enum dtype)dtype, (struct shape){num_dims, dims}, &value);
    if (st) {
        status_unref(st);
        return NULL;
    }
    if (tensor_size_bytes(&value) != length) {
        tensor_clear(&value);
        return NULL;
    }
    return client_tensor_new(&value);
}

/* The caller's memory, which the tensor has taken. */
struct adopted {
    void (*deallocator)(void *data, size_t length, void *arg);
    void *data, *arg;
    size_t length;
};

static void release_adopted(void *arg) {
    struct adopted *adopted = arg;
    adopted->deallocator(adopted->data, adopted->length, adopted->arg);
    free(adopted);
}

/* How many bytes a tensor has; false for one that cannot be, and for strings. */
static bool find_size(TF_DataType dtype, struct shape shape, size_t *ret_bytes) {
    int64_t n_elements, n_bytes;
    size_t element = TF_DataTypeSize(dtype);
    struct status *st = element > 0 ? shape_n_elements(shape, &n_elements) : NULL;
    bool is_good = element > 0 && !st && !mul_overflows_i64(n_elements, (int64_t)element, &n_bytes);
    status_unref(st);
    if (is_good)
        *ret_bytes = (size_t)n_bytes;
    return is_good;
}

static TF_Tensor *adopt(TF_DataType dtype, struct shape shape, const struct adopted *memory) {
    struct tensor value;
    struct adopted *kept = xmalloc(sizeof *kept);
    *kept = *memory;
    struct buffer *buffer = buffer_wrap(memory->data, memory->length, release_adopted, kept);
    struct status *st = tensor_view(buffer, memory->data, (enum dtype)dtype, shape, &value);
    CHECK(!st);
    buffer_unref(buffer);
    return client_tensor_new(&value);
}

/* As TensorFlow's, it takes more bytes than the tensor has. */
TF_Tensor *TF_NewTensor(TF_DataType dtype, const int64_t *dims, int num_dims, void *data,
                        size_t length, void (*deallocator)(void *data, size_t length, void *arg),
                        void *arg) {
    struct shape shape = {num_dims, dims};
    TF_Tensor *tensor = NULL;
    size_t size;
    bool is_good = has_dims(dims, num_dims) && find_size(dtype, shape, &size) && size <= length &&
                   (data || size == 0);
    if (is_good && deallocator && size >= ADOPT_MIN_BYTES &&
        (uintptr_t)data % TF_DataTypeSize(dtype) == 0)
        return adopt(dtype, shape, &(struct adopted){deallocator, data, arg, length});
    if (is_good)
        tensor = TF_AllocateTensor(dtype, dims, num_dims, size);
    if (tensor && size)
        memcpy(tensor_data(&tensor->value), data, size);
    if (deallocator)
        deallocator(data, length, arg);
    return tensor;
}

void TF_TensorFromProto(const TF_Buffer *from, TF_Tensor *to, TF_Status *status) {
    struct tensor value = TENSOR_INIT;
    struct status *st = NULL;
    if (!from || !to)
        st = status_invalid("%s is NULL", from ? "to" : "from");
    else
        st = tensor_from_proto((struct span){from->data ? from->data : "", from->length}, NULL,
                               allocator_host(), &value);
    st = status_prefix_take(st, "%s: ", __func__);
    if (!st) {
        tensor_clear(&to->value);
        to->value = value;
    }
    tf_status_set(status, st);
}

void TF_DeleteTensor(TF_Tensor *tensor) {
    if (!tensor)
        return;
    tensor_clear(&tensor->value);
    free(tensor);
}

TF_DataType TF_TensorType(const TF_Tensor *tensor) {
    return tensor ? (TF_DataType)tensor->value.dtype : (TF_DataType)0;
}
int TF_NumDims(const TF_Tensor *tensor) { return tensor ? tensor->value.rank : -1; }
int64_t TF_Dim(const TF_Tensor *tensor, int index) {
    bool is_there = tensor && index >= 0 && index < tensor->value.rank;
    return is_there ? tensor_dim(&tensor->value, index) : -1;
}
int64_t TF_TensorElementCount(const TF_Tensor *tensor) {
    return tensor ? tensor->value.n_elements : 0;
}
size_t TF_TensorByteSize(const TF_Tensor *tensor) {
    return tensor ? tensor_size_bytes(&tensor->value) : 0;
}
void *TF_TensorData(const TF_Tensor *tensor) {
    return tensor ? (void *)(uintptr_t)tensor_cdata(&tensor->value) : NULL;
}

TF_Tensor *MR_NewStringTensor(const int64_t *dims, int num_dims, const char *const *data,
                              const size_t *lengths) {
    struct tensor value;
    if (!has_dims(dims, num_dims))
        return NULL;
    struct status *st =
        tensor_new(allocator_host(), DT_STRING, (struct shape){num_dims, dims}, &value);
    if (st) {
        status_unref(st);
        return NULL;
    }
    bool is_good = value.n_elements == 0 || (data && lengths);
    for (int64_t i = 0; is_good && i < value.n_elements; i++) {
        is_good = data[i] || lengths[i] == 0;
        if (is_good)
            tensor_set_string(&value, i, data[i] ? data[i] : "", lengths[i]);
    }
    if (is_good)
        return client_tensor_new(&value);
    tensor_clear(&value);
    return NULL;
}

const char *MR_StringAt(const TF_Tensor *tensor, int64_t index, size_t *length) {
    bool is_there = tensor && tensor->value.dtype == DT_STRING && index >= 0 &&
                    index < tensor->value.n_elements;
    struct span bytes = is_there ? tensor_string(&tensor->value, index) : (struct span){"", 0};
    if (length)
        *length = bytes.len;
    return bytes.data;
}
