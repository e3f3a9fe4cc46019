/* TF_Tensor: a value with its dtype and shape. The functions that read may be called from any
 * thread; a program that writes through TF_TensorData orders its own threads. */
#ifndef MILLRACE_CLIENT_C_TENSOR_H
#define MILLRACE_CLIENT_C_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TF_DataType {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_STRING = 7,
    TF_COMPLEX64 = 8,
    TF_COMPLEX = 8, /* the same */
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_QINT8 = 11,
    TF_QUINT8 = 12,
    TF_QINT32 = 13,
    TF_BFLOAT16 = 14,
    TF_QINT16 = 15,
    TF_QUINT16 = 16,
    TF_UINT16 = 17,
    TF_COMPLEX128 = 18,
    TF_HALF = 19,
    TF_RESOURCE = 20,
    TF_VARIANT = 21,
    TF_UINT32 = 22,
    TF_UINT64 = 23,
    TF_FLOAT8_E5M2 = 24,
    TF_FLOAT8_E4M3FN = 25,
    TF_FLOAT8_E4M3FNUZ = 26,
    TF_FLOAT8_E4M3B11FNUZ = 27,
    TF_FLOAT8_E5M2FNUZ = 28,
    TF_INT4 = 29,
    TF_UINT4 = 30,
    TF_INT2 = 31,
    TF_UINT2 = 32,
    TF_FLOAT4_E2M1FN = 33
} TF_DataType;
/* The size of an element; 0 where elements have no fixed size. */
size_t TF_DataTypeSize(TF_DataType dtype);
typedef struct TF_Tensor TF_Tensor;

/* Takes the elements, of which there may be more bytes than needed. Many bytes that are aligned
 * for their dtype are not copied, and the deallocator is called when nothing uses them any more,
 * on any thread. Others, and all without a deallocator, are copied, and the deallocator is called
 * at once. NULL for an unknown dtype, too few bytes or a bad shape, after the deallocator has
 * been called. Not for strings: MR_NewStringTensor. */
TF_Tensor *TF_NewTensor(TF_DataType dtype, const int64_t *dims, int num_dims, void *data,
                        size_t length, void (*deallocator)(void *data, size_t length, void *arg),
                        void *arg);
/* The elements are undefined. */
TF_Tensor *TF_AllocateTensor(TF_DataType dtype, const int64_t *dims, int num_dims, size_t length);
void TF_DeleteTensor(TF_Tensor *tensor);
/* Replaces the value of a tensor by that of a serialized TensorProto. */
void TF_TensorFromProto(const TF_Buffer *from, TF_Tensor *to, TF_Status *status);
/* Without a tensor, and for a dimension or an element out of range, the functions that follow
 * return -1 for a rank or a size, and else 0, NULL or no bytes. */
TF_DataType TF_TensorType(const TF_Tensor *tensor);
int TF_NumDims(const TF_Tensor *tensor);
int64_t TF_Dim(const TF_Tensor *tensor, int index);
int64_t TF_TensorElementCount(const TF_Tensor *tensor);
size_t TF_TensorByteSize(const TF_Tensor *tensor);
void *TF_TensorData(const TF_Tensor *tensor); /* not for strings */
/* Strings, element by element; NULL for a bad shape, and where a string of some length is NULL. The
 * bytes of MR_StringAt live as long as the tensor. */
TF_Tensor *MR_NewStringTensor(const int64_t *dims, int num_dims, const char *const *data,
                              const size_t *lengths);
const char *MR_StringAt(const TF_Tensor *tensor, int64_t index, size_t *length);

#ifdef __cplusplus
}
#endif
#endif
