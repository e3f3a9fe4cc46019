/* cuBLASLt: the calls that the plugin makes. A handle, a description, a layout are records of the
 * host, and a product is an operation of the stream that the function gpu_products of
 * MILLRACE_SIM_KERNELS computes. A product is refused whose layouts do not fit together, which uses
 * what was given back, or whose operands are less aligned than the heuristics were told. */
#include "kernels/cuda/blas_api.h"
#include "kernels/cuda/products_args.h"
#include "tests/cuda/sim/driver.h"
#include <stdlib.h>
#include <string.h>

/* The library's numbers. */
enum { BLAS_SUCCESS = 0, BLAS_NO_MEMORY = 3, BLAS_INVALID_VALUE = 7, BLAS_FAILED = 13 };
/* Every second kind of product wants this much. */
enum { WORKSPACE_BYTES = 512 };
/* In the order A, B, C, D. An algorithm wants no more than a pack's alignment. */
enum { N_OPERANDS = 4, USUAL_ALIGNMENT = 256, PACK_BYTES = 16, MAX_BATCH = 65535 };

#define BLAS_CALL(name, arguments) EXPORTED int name arguments;
#include "kernels/cuda/blas_calls.inc"

struct cublasLtContext {
    int unused;
};
struct cublasLtMatmulDescOpaque {
    int compute, scale, transposes_a, transposes_b; /* CUBLAS_OP_… */
};
struct cublasLtMatrixLayoutOpaque {
    int type;
    uint64_t rows, cols; /* stored column by column */
    int32_t n;
    int64_t stride;
};
struct cublasLtMatmulPreferenceOpaque {
    uint64_t workspace_bytes;
    uint32_t alignment[N_OPERANDS];
};

static int make(void *ret, size_t size) {
    void *made = calloc(1, size);
    *(void **)ret = made;
    return made != NULL ? BLAS_SUCCESS : BLAS_NO_MEMORY;
}

int cublasLtCreate(cublasLtHandle_t *ret) {
    BEGIN_LIBRARY(cublasLtCreate);
    return make(ret, sizeof **ret);
}

int cublasLtDestroy(cublasLtHandle_t handle) {
    BEGIN_DESTROY(cublasLtDestroy, handle);
    free(handle);
    return BLAS_SUCCESS;
}

int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *ret, int compute, int scale) {
    BEGIN_LIBRARY(cublasLtMatmulDescCreate);
    int error = make(ret, sizeof **ret);
    if (error == BLAS_SUCCESS) {
        (*ret)->compute = compute;
        (*ret)->scale = scale;
    }
    return error;
}

int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    BEGIN_DESTROY(cublasLtMatmulDescDestroy, desc);
    free(desc);
    return BLAS_SUCCESS;
}

int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute, const void *value,
                                   size_t size) {
    BEGIN_LIBRARY(cublasLtMatmulDescSetAttribute);
    if (size != sizeof(int) ||
        (attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB))
        return BLAS_INVALID_VALUE;
    memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &desc->transposes_a : &desc->transposes_b,
           value, size);
    return BLAS_SUCCESS;
}

int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *ret, int type, uint64_t rows, uint64_t cols,
                               int64_t ld) {
    BEGIN_LIBRARY(cublasLtMatrixLayoutCreate);
    if (ld != (int64_t)rows)
        return BLAS_INVALID_VALUE;
    int error = make(ret, sizeof **ret);
    if (error == BLAS_SUCCESS)
        **ret = (struct cublasLtMatrixLayoutOpaque){type, rows, cols, 1, 0};
    return error;
}

int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    BEGIN_DESTROY(cublasLtMatrixLayoutDestroy, layout);
    free(layout);
    return BLAS_SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, int attribute,
                                     const void *value, size_t size) {
    BEGIN_LIBRARY(cublasLtMatrixLayoutSetAttribute);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == sizeof layout->n)
        memcpy(&layout->n, value, size);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
             size == sizeof layout->stride)
        memcpy(&layout->stride, value, size);
    else
        return BLAS_INVALID_VALUE;
    return BLAS_SUCCESS;
}

int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *ret) {
    BEGIN_LIBRARY(cublasLtMatmulPreferenceCreate);
    int error = make(ret, sizeof **ret);
    for (int i = 0; error == BLAS_SUCCESS && i < N_OPERANDS; i++)
        (*ret)->alignment[i] = USUAL_ALIGNMENT;
    return error;
}

int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    BEGIN_DESTROY(cublasLtMatmulPreferenceDestroy, preference);
    free(preference);
    return BLAS_SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int attribute,
                                         const void *value, size_t size) {
    BEGIN_LIBRARY(cublasLtMatmulPreferenceSetAttribute);
    int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(uint64_t))
        memcpy(&preference->workspace_bytes, value, size);
    else if (operand >= 0 && operand < N_OPERANDS && size == sizeof *preference->alignment)
        memcpy(&preference->alignment[operand], value, size);
    else
        return BLAS_INVALID_VALUE;
    return BLAS_SUCCESS;
}

/* ---- products ---- */

static int products_type_of(int type) {
    switch (type) {
    case CUDA_R_16F:
        return PRODUCTS_F16;
    case CUDA_R_16BF:
        return PRODUCTS_BF16;
    case CUDA_R_32F:
        return PRODUCTS_F32;
    case CUDA_R_64F:
        return PRODUCTS_F64;
    case CUDA_C_32F:
        return PRODUCTS_C64;
    default:
        return type == CUDA_C_64F ? PRODUCTS_C128 : -1;
    }
}

static size_t element_bytes(enum products_type type) {
    return type <= PRODUCTS_BF16 ? 2 : type == PRODUCTS_F32 ? 4 : type == PRODUCTS_C128 ? 16 : 8;
}

/* Column by column, d = op(a) · op(b) is what row by row is d = op(b) · op(a): x is b, y is a. */
static int plan(const struct cublasLtMatmulDescOpaque *desc,
                const struct cublasLtMatrixLayoutOpaque *a,
                const struct cublasLtMatrixLayoutOpaque *b,
                const struct cublasLtMatrixLayoutOpaque *d, struct products_args *ret) {
    bool is_a_plain = desc->transposes_a == CUBLAS_OP_N,
         is_b_plain = desc->transposes_b == CUBLAS_OP_N;
    uint64_t k = is_a_plain ? a->cols : a->rows;
    int type = products_type_of(d->type);
    if ((is_a_plain ? a->rows : a->cols) != d->rows ||
        (is_b_plain ? b->cols : b->rows) != d->cols || (is_b_plain ? b->rows : b->cols) != k ||
        a->type != d->type || b->type != d->type || a->n != d->n || b->n != d->n || type < 0)
        return BLAS_INVALID_VALUE;
    *ret = (struct products_args){.m = (int64_t)d->cols,
                                  .n = (int64_t)d->rows,
                                  .k = (int64_t)k,
                                  .n_products = d->n,
                                  .x_stride = b->stride,
                                  .y_stride = a->stride,
                                  .type = type,
                                  .transposes_x = !is_b_plain,
                                  .transposes_y = !is_a_plain,
                                  .conjugates = desc->transposes_a == CUBLAS_OP_C ||
                                                desc->transposes_b == CUBLAS_OP_C};
    return d->n == 1 || d->stride == ret->m * ret->n ? BLAS_SUCCESS : BLAS_INVALID_VALUE;
}

int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t preference, int n_wanted,
                                   cublasLtMatmulHeuristicResult_t *ret, int *ret_n) {
    BEGIN_LIBRARY(cublasLtMatmulAlgoGetHeuristic);
    struct products_args args;
    int error = plan(desc, a, b, d, &args);
    if (error != BLAS_SUCCESS || handle == NULL || c != d || n_wanted < 1)
        return BLAS_INVALID_VALUE;
    if (args.n_products > MAX_BATCH)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < N_OPERANDS; i++)
        ret->algo.data[i] =
            preference->alignment[i] < PACK_BYTES ? preference->alignment[i] : PACK_BYTES;
    ret->workspace_bytes = args.m % 2 == 0 ? WORKSPACE_BYTES : 0;
    if (ret->workspace_bytes > preference->workspace_bytes)
        return BLAS_INVALID_VALUE;
    *ret_n = 1;
    return BLAS_SUCCESS;
}

static bool is_aligned(const cublasLtMatmulAlgo_t *algo, const void *a, const void *b,
                       const void *c, const void *d) {
    const void *operands[N_OPERANDS] = {a, b, c, d};
    for (int i = 0; i < N_OPERANDS; i++)
        if (algo->data[i] == 0 || (uintptr_t)operands[i] % algo->data[i] != 0)
            return false;
    return true;
}

static size_t extent(int64_t matrix, int64_t stride, int64_t n) {
    return (size_t)(matrix + (n - 1) * stride);
}

int cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                   const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                   cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                   cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                   CUstream stream) {
    BEGIN_LIBRARY(cublasLtMatmul);
    struct products_args args;
    int error = plan(desc, a_layout, b_layout, d_layout, &args);
    if (error != BLAS_SUCCESS || handle == NULL || c != d || c_layout != d_layout || algo == NULL ||
        alpha == NULL || beta == NULL || (workspace_bytes > 0) != (workspace != NULL) ||
        !is_aligned(algo, a, b, c, d))
        return BLAS_INVALID_VALUE;
    args.rounds_to_tf32 = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 &&
                          args.type == PRODUCTS_F32 && sim.rounds_to_tf32;
    args.x = b;
    args.y = a;
    args.out = d;
    size_t size = element_bytes((enum products_type)args.type);
    struct sim_range reads[] = {
        {(CUdeviceptr)args.x, size * extent(args.m * args.k, args.x_stride, args.n_products)},
        {(CUdeviceptr)args.y, size * extent(args.k * args.n, args.y_stride, args.n_products)}};
    struct sim_range writes[] = {
        {(CUdeviceptr)args.out, size * (size_t)(args.m * args.n * args.n_products)},
        {(CUdeviceptr)workspace, workspace_bytes}};
    if (simIsNull())
        return BLAS_SUCCESS;
    CUresult result = simEnqueueHostOperation(stream, "gpu_products", &args, sizeof args, reads, 2,
                                              writes, workspace_bytes > 0 ? 2 : 1);
    return result == CUDA_SUCCESS ? BLAS_SUCCESS : BLAS_FAILED;
}
