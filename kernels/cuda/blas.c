/* Runs matrix products by cuBLASLt (blas.h).
 *
 * cuBLASLt stores matrices column by column. Ours are stored row by row, which is the transposed
 * matrix there. So out = x · y is computed as out' = y' · x', where ' only reads what is stored the
 * other way: nothing is moved.
 *
 * Which algorithm is best is asked once for each kind of product and kept by the device. */
#include "kernels/cuda/blas.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/blas_api.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/library.h"

/* Some algorithms have a block for each product, along a dimension of the grid that has at most
 * 65,535. A power of 2 keeps the alignment of what follows. */
enum { MAX_WORKSPACE_BYTES = 32 << 20, MAX_KINDS = 4096, MAX_PRODUCTS = 1 << 15 };

/* Set by gpu_blas_open, then constant. */
static struct blas_api blas;
static bool has_blas, may_use_tf32;
static struct str why_missing = STR_INIT;

/* ---- the library ---- */

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
static const struct gpu_library_call calls[] = {
#define BLAS_CALL(name, arguments) {#name, offsetof(struct blas_api, name)},
#include "kernels/cuda/blas_calls.inc"
};

void gpu_blas_open(const char *folders, bool allow_tf32, void *simulated) {
    void *library =
        simulated ? simulated : gpu_library_open(folders, names, ARRAY_LEN(names), &why_missing);
    may_use_tf32 = allow_tf32;
    has_blas = library && gpu_library_find(library, calls, ARRAY_LEN(calls), &blas, &why_missing);
}

const char *gpu_blas_missing(void) {
    return has_blas || !why_missing.len ? NULL : str_text(&why_missing);
}

/* ---- choices ---- */

struct product_type {
    enum dtype dtype;
    int type, compute, scale;
};
static const struct product_type types[] = {
    {DT_HALF, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {DT_BFLOAT16, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {DT_FLOAT, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {DT_DOUBLE, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F},
    {DT_COMPLEX64, CUDA_C_32F, CUBLAS_COMPUTE_32F, CUDA_C_32F},
    {DT_COMPLEX128, CUDA_C_64F, CUBLAS_COMPUTE_64F, CUDA_C_64F},
};

static const struct product_type *type_find(enum dtype dtype) {
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

/* All that decides; compared as bytes. */
struct product_kind {
    int64_t m, n, k, n_products, x_stride, y_stride;
    int32_t dtype;
    uint8_t transposes_x, transposes_y, conjugates, alignment; /* 1 << alignment bytes */
};

/* What a device keeps for products of one kind. */
struct gpu_product {
    struct product_kind kind; /* the key under which it is kept */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, out; /* in the order in which cuBLASLt takes them */
    cublasLtMatmulHeuristicResult_t choice;
};

_Static_assert(sizeof(struct product_kind) == 6 * 8 + 4 + 4, "it has no padding");

static struct span key_of(const struct product_kind *kind) {
    return (struct span){(const char *)kind, sizeof *kind};
}

static struct status *check(int error, const char *what) {
    return likely(error == 0) ? NULL
                              : status_internal("%s failed with cuBLAS status %d", what, error);
}

/* As driver_note. */
static void note(int error, const char *what) {
    if (error)
        log_event(EVENT_GPU_TROUBLE, "%s failed with cuBLAS status %d", what, error);
}

static struct status *new_layout(cublasLtMatrixLayout_t *ret, int type, int64_t rows, int64_t cols,
                                 int64_t n, int64_t stride) {
    int32_t count = (int32_t)n;
    TRY(check(blas.cublasLtMatrixLayoutCreate(ret, type, (uint64_t)rows, (uint64_t)cols, rows),
              "cublasLtMatrixLayoutCreate"));
    if (n <= 1)
        return NULL;
    TRY(check(blas.cublasLtMatrixLayoutSetAttribute(*ret, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &count, sizeof count),
              "cublasLtMatrixLayoutSetAttribute"));
    return check(blas.cublasLtMatrixLayoutSetAttribute(
                     *ret, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                 "cublasLtMatrixLayoutSetAttribute");
}

static int operation(bool transposes, bool conjugates) {
    return !transposes ? CUBLAS_OP_N : conjugates ? CUBLAS_OP_C : CUBLAS_OP_T;
}

static struct status *prefer(cublasLtMatmulPreference_t preference, int attribute,
                             const void *value, size_t size) {
    return check(blas.cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                 "cublasLtMatmulPreferenceSetAttribute");
}

/* An algorithm may read packs of elements, whose addresses must be aligned. cuBLASLt assumes 256
 * bytes unless it is told, and rows of a slice may have less. */
static struct status *set_preferences(cublasLtMatmulPreference_t preference, uint8_t alignment) {
    static const int operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t workspace_bytes = MAX_WORKSPACE_BYTES;
    uint32_t alignment_bytes = UINT32_C(1) << alignment;
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
               sizeof workspace_bytes));
    for (size_t i = 0; i < ARRAY_LEN(operands); i++)
        TRY(prefer(preference, operands[i], &alignment_bytes, sizeof alignment_bytes));
    return NULL;
}

static struct status *choose(cublasLtHandle_t handle, struct gpu_product *product) {
    cublasLtMatmulPreference_t preference;
    int n = 0;
    TRY(check(blas.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
    struct status *st = set_preferences(preference, product->kind.alignment);
    int error = st ? 0
                   : blas.cublasLtMatmulAlgoGetHeuristic(
                         handle, product->desc, product->first, product->second, product->out,
                         product->out, preference, 1, &product->choice, &n);
    if (!st && error != CUBLAS_STATUS_NOT_SUPPORTED) /* bfloat16 before compute capability 8.0 */
        st = check(error, "cublasLtMatmulAlgoGetHeuristic");
    note(blas.cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
    if (!st && (n == 0 || product->choice.state != 0))
        st = status_unimplemented("cuBLASLt has no algorithm for this product of %s on this GPU",
                                  dtype_name((enum dtype)product->kind.dtype));
    return st;
}

static void product_free(struct gpu_product *product) {
    if (product->desc)
        note(blas.cublasLtMatmulDescDestroy(product->desc), "cublasLtMatmulDescDestroy");
    if (product->first)
        note(blas.cublasLtMatrixLayoutDestroy(product->first), "cublasLtMatrixLayoutDestroy");
    if (product->second)
        note(blas.cublasLtMatrixLayoutDestroy(product->second), "cublasLtMatrixLayoutDestroy");
    if (product->out)
        note(blas.cublasLtMatrixLayoutDestroy(product->out), "cublasLtMatrixLayoutDestroy");
    free(product);
}

static struct status *product_build(cublasLtHandle_t handle, const struct product_kind *kind,
                                    const struct product_type *type, struct gpu_product *product) {
    int compute = may_use_tf32 && (type->dtype == DT_FLOAT || type->dtype == DT_COMPLEX64)
                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                      : type->compute;
    int first = operation(kind->transposes_y, kind->conjugates),
        second = operation(kind->transposes_x, kind->conjugates);
    int64_t m = kind->m, n = kind->n, k = kind->k;
    TRY(check(blas.cublasLtMatmulDescCreate(&product->desc, compute, type->scale),
              "cublasLtMatmulDescCreate"));
    TRY(check(blas.cublasLtMatmulDescSetAttribute(product->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &first, sizeof first),
              "cublasLtMatmulDescSetAttribute"));
    TRY(check(blas.cublasLtMatmulDescSetAttribute(product->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                                  &second, sizeof second),
              "cublasLtMatmulDescSetAttribute"));
    TRY(new_layout(&product->first, type->type, kind->transposes_y ? k : n,
                   kind->transposes_y ? n : k, kind->n_products, kind->y_stride));
    TRY(new_layout(&product->second, type->type, kind->transposes_x ? m : k,
                   kind->transposes_x ? k : m, kind->n_products, kind->x_stride));
    TRY(new_layout(&product->out, type->type, n, m, kind->n_products, m * n));
    return choose(handle, product);
}

static struct status *product_make(struct gpu_device *gpu, const struct product_kind *kind,
                                   const struct product_type *type, struct gpu_product **ret) {
    if (!gpu->blas_handle)
        TRY(check(blas.cublasLtCreate((cublasLtHandle_t *)&gpu->blas_handle), "cublasLtCreate"));
    if (gpu->products.n_entries >= MAX_KINDS)
        gpu_blas_forget(gpu);
    struct gpu_product *product = xcalloc(1, sizeof *product);
    product->kind = *kind;
    struct status *st = product_build(gpu->blas_handle, kind, type, product);
    if (st) {
        product_free(product);
        return st;
    }
    strmap_put_span(&gpu->products, key_of(&product->kind), product);
    *ret = product;
    return NULL;
}

/* AddressSanitizer looks at the first comparison, and not at a memcmp that is inlined. */
static bool is_same_kind(const struct product_kind *a, const struct product_kind *b) {
    return a->k == b->k && memcmp(a, b, sizeof *a) == 0;
}

/* With the device's lock. `node` tells apart who asks; it is not followed. */
static struct status *product_find(struct gpu_device *gpu, const struct product_kind *kind,
                                   const struct product_type *type, const void *node,
                                   struct gpu_product **ret) {
    uint64_t number = (uintptr_t)node * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct gpu_product **recent = &gpu->recent_products[number % GPU_RECENT_PRODUCTS];
    if (!*recent || !is_same_kind(&(*recent)->kind, kind)) {
        struct gpu_product *product = strmap_get_span(&gpu->products, key_of(kind));
        if (!product)
            TRY(product_make(gpu, kind, type, &product));
        *recent = product;
    }
    *ret = *recent;
    return NULL;
}

void gpu_blas_forget(struct gpu_device *gpu) {
    gpu_segments_end(gpu, DEVICE_ENDS_OTHER_USE); /* work that is held back names products */
    gpu_segments_forget(gpu);
    memset(gpu->recent_products, 0, sizeof gpu->recent_products);
    size_t cursor = 0;
    struct span key;
    void *product;
    while (strmap_next(&gpu->products, &cursor, &key, &product))
        product_free(product);
    strmap_fini(&gpu->products);
    strmap_init(&gpu->products);
}

void gpu_blas_close(struct gpu_device *gpu) {
    gpu_blas_forget(gpu);
    strmap_fini(&gpu->products);
    if (gpu->blas_handle)
        note(blas.cublasLtDestroy(gpu->blas_handle), "cublasLtDestroy");
}

/* ---- products ---- */

static uint8_t alignment_of(const struct device_products *p) {
    uintptr_t bits = (uintptr_t)p->x | (uintptr_t)p->y | (uintptr_t)p->out | 256;
    return (uint8_t)__builtin_ctzll(bits);
}

/* What decides a product of a segment. */
struct product_args {
    const struct gpu_product *product;
    const void *x, *y;
    void *out, *workspace;
    int64_t dtype;
};

static struct status *enqueue_product(struct gpu_device *gpu, const struct gpu_work *work,
                                      CUstream stream) {
    static const float one_f = 1, zero_f = 0;
    static const double one_d = 1, zero_d = 0;
    static const float one_c64[2] = {1, 0}, zero_c64[2] = {0, 0};
    static const double one_c128[2] = {1, 0}, zero_c128[2] = {0, 0};
    const struct product_args *p = work->args;
    const struct gpu_product *product = p->product;
    const void *one = p->dtype == DT_DOUBLE       ? (const void *)&one_d
                      : p->dtype == DT_COMPLEX64  ? (const void *)one_c64
                      : p->dtype == DT_COMPLEX128 ? (const void *)one_c128
                                                  : (const void *)&one_f;
    const void *zero = p->dtype == DT_DOUBLE       ? (const void *)&zero_d
                       : p->dtype == DT_COMPLEX64  ? (const void *)zero_c64
                       : p->dtype == DT_COMPLEX128 ? (const void *)zero_c128
                                                   : (const void *)&zero_f;
    int error = blas.cublasLtMatmul(gpu->blas_handle, product->desc, one, p->y, product->first,
                                    p->x, product->second, zero, p->out, product->out, p->out,
                                    product->out, &product->choice.algo, p->workspace,
                                    product->choice.workspace_bytes, stream);
    return gpu_look_take(gpu, check(error, "cublasLtMatmul"));
}

/* Adds the product to the segment, with the device's lock, unless it wants a workspace that it does
 * not have: then *ret_workspace_bytes is not 0, and the caller allocates it without the lock.
 * Meanwhile others may have made room among the products, so the product is looked up again. */
static struct status *product_add(struct kernel_ctx *ctx, const struct product_kind *kind,
                                  const struct product_type *type, struct product_args *args,
                                  size_t *ret_workspace_bytes) {
    struct gpu_device *gpu = gpu_of(ctx);
    struct gpu_product *product;
    TRY(product_find(gpu, kind, type, ctx->instance, &product));
    *ret_workspace_bytes = args->workspace ? 0 : product->choice.workspace_bytes;
    if (*ret_workspace_bytes > 0)
        return NULL;
    args->product = product;
    struct gpu_work work = {.enqueue = enqueue_product,
                            .args = args,
                            .args_bytes = sizeof *args,
                            .node = ctx->instance->node->name};
    return gpu_segments_add(gpu, ctx->host_data, &work);
}

static struct status *multiply_by_library(struct kernel_ctx *ctx, const struct device_products *p,
                                          const struct product_type *type) {
    struct gpu_device *gpu = gpu_of(ctx);
    struct product_kind kind;
    memset(&kind, 0, sizeof kind); /* compared as bytes */
    kind.m = p->m;
    kind.n = p->n;
    kind.k = p->k;
    kind.n_products = p->n_products;
    kind.x_stride = p->x_stride;
    kind.y_stride = p->y_stride;
    kind.dtype = (int32_t)p->dtype;
    kind.transposes_x = p->transposes_x;
    kind.transposes_y = p->transposes_y;
    kind.conjugates = p->conjugates;
    kind.alignment = alignment_of(p);
    struct product_args args = {NULL, p->x, p->y, p->out, NULL, p->dtype};
    size_t workspace_bytes;
    struct buffer *workspace = NULL;
    TRY(gpu_lock_only(gpu));
    struct status *st = product_add(ctx, &kind, type, &args, &workspace_bytes);
    gpu_unlock(gpu);
    if (st || workspace_bytes == 0)
        return st;
    TRY(gpu_scratch(ctx, workspace_bytes, &workspace));
    args.workspace = workspace->data;
    st = gpu_lock_only(gpu);
    if (!st) {
        st = product_add(ctx, &kind, type, &args, &workspace_bytes);
        gpu_unlock(gpu);
    }
    buffer_unref(workspace);
    return st;
}

struct status *gpu_multiply(struct kernel_ctx *ctx, const struct device_products *p) {
    const struct product_type *type = type_find(p->dtype);
    if (!type)
        return status_unimplemented("No matrix product on a GPU takes the type %s",
                                    dtype_name(p->dtype));
    if (!has_blas)
        return status_unimplemented("Matrix products on a GPU need cuBLASLt: %s",
                                    str_text(&why_missing));
    struct device_products part = *p;
    size_t size = dtype_size(p->dtype);
    for (int64_t done = 0; done < p->n_products; done += part.n_products) {
        part.n_products = MIN(p->n_products - done, (int64_t)MAX_PRODUCTS);
        part.x = p->x + (size_t)(done * p->x_stride) * size;
        part.y = p->y + (size_t)(done * p->y_stride) * size;
        part.out = p->out + (size_t)(done * p->m * p->n) * size;
        TRY(multiply_by_library(ctx, &part, type));
    }
    return NULL;
}
