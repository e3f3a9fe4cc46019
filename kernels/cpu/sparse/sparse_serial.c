/* Runs SerializeSparse, SerializeManySparse, DeserializeSparse and DeserializeManySparse: converts
 * a sparse tensor to three elements and back. Each element is a serialized TensorProto, or a
 * variant that holds the tensor. */
#include "common/tensor/tensor_proto.h"
#include "kernels/cpu/sparse/sparse_stack.h"
#include "kernels/kernel.h"
#include "kernels/support/variant_tensors.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list sparse_serial_kernels;

/* A serialized tensor may claim this much memory beyond what its proto justifies. */
enum { SPARE_CLAIM_BYTES = 1 << 20 };

/* Writes the tensor into element i of the output. */
static struct status *put_tensor(struct tensor *out, int64_t i, const struct tensor *t) {
    if (out->dtype == DT_STRING) {
        struct str text = STR_INIT;
        tensor_to_proto(t, &text);
        tensor_set_string(out, i, text.data, text.len);
        str_fini(&text);
        return NULL;
    }
    struct variant_tensors *variant = NULL;
    TRY(variant_tensors_new(&variant_tensor_type, 1, &variant));
    tensor_set_object(out, i, &variant->object);
    tensor_copy(&variant->held[0], t);
    return variant_tensors_seal(variant);
}

static struct status *check_ranks(const struct kernel_ctx *ctx) {
    static const struct {
        const char *name, *kind;
        int rank;
    } wanted[] = {{"indices", "matrix", 2}, {"values", "vector", 1}, {"shape", "vector", 1}};
    for (int i = 0; i < 3; i++)
        if (ctx->inputs[i].rank != wanted[i].rank)
            return status_invalid("Input %s should be a %s but received shape %s", wanted[i].name,
                                  wanted[i].kind, TENSOR_SHAPE_TEXT(&ctx->inputs[i]));
    return NULL;
}

static enum kernel_result serialize_sparse(struct kernel_ctx *ctx) {
    int64_t three = 3;
    KERNEL_TRY(ctx, check_ranks(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0],
                                 (struct shape){1, &three}));
    for (int i = 0; i < 3; i++)
        KERNEL_TRY(ctx, put_tensor(&ctx->outputs[0], i, &ctx->inputs[i]));
    return KERNEL_DONE;
}

static struct status *put_run(struct kernel_ctx *ctx, const struct sparse *in, int64_t row,
                              int64_t begin, int64_t end) {
    struct tensor *out = &ctx->outputs[0];
    struct sparse_piece *piece = sparse_pieces_new(1);
    struct status *st = piece ? sparse_piece_of_run(ctx, in, begin, end, piece)
                              : status_exhausted("OOM: a sparse row");
    const struct tensor *parts[] = {piece ? &piece->indices : NULL, piece ? &piece->values : NULL,
                                    piece ? &piece->shape : NULL};
    for (int i = 0; !st && i < 3; i++)
        st = put_tensor(out, 3 * row + i, parts[i]);
    sparse_pieces_free(piece, 1);
    return st;
}

static enum kernel_result serialize_many_sparse(struct kernel_ctx *ctx) {
    struct sparse in;
    int64_t begin = 0;
    KERNEL_TRY(ctx, sparse_rows_of_inputs(ctx, &in));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0],
                                 (struct shape){2, (int64_t[]){in.dims[0], 3}}));
    for (int64_t row = 0; row < in.dims[0]; row++) {
        enum { ROWS_PER_POLL = 256 };
        if (row % ROWS_PER_POLL == 0)
            KERNEL_TRY(ctx, kernel_loop_check(0));
        int64_t end =
            begin < in.n && sparse_at(&in, begin)[0] == row ? sparse_run_end(&in, begin, 1) : begin;
        KERNEL_TRY(ctx, put_run(ctx, &in, row, begin, end));
        begin = end;
    }
    return KERNEL_DONE;
}

/* ---- deserializing ---- */

static struct status *get_tensor(const struct kernel_ctx *ctx, int64_t i, struct tensor *ret) {
    const struct tensor *in = &ctx->inputs[0];
    struct allocator *allocator = ctx->instance->allocator;
    if (in->dtype == DT_STRING) {
        struct span proto = tensor_string(in, i);
        TRY(tensor_proto_check_claim(proto, SPARE_CLAIM_BYTES));
        return status_prefix_take(tensor_from_proto(proto, NULL, allocator, ret),
                                  "Could not parse serialized proto: ");
    }
    struct variant_tensors *variant = NULL;
    TRY(variant_tensors_at(in, i, &variant_tensor_type, allocator, &variant));
    if (!variant)
        return status_invalid(
            "Could not get a tensor from serialized_sparse[%lld, %lld]: it holds %s",
            (long long)(i / 3), (long long)(i % 3),
            variant_text(((struct object *const *)tensor_cdata(in))[i]));
    tensor_copy(ret, &variant->held[0]);
    variant_tensors_unref(variant);
    return NULL;
}

static struct status *get_pieces(const struct kernel_ctx *ctx, enum dtype dtype,
                                 struct sparse_piece *pieces, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        TRY(get_tensor(ctx, 3 * i, &pieces[i].indices));
        TRY(get_tensor(ctx, 3 * i + 1, &pieces[i].values));
        TRY(get_tensor(ctx, 3 * i + 2, &pieces[i].shape));
        TRY(sparse_piece_check(&pieces[i], dtype, i));
    }
    return NULL;
}

static enum kernel_result deserialize_sparse(struct kernel_ctx *ctx) {
    const struct tensor *in = &ctx->inputs[0];
    enum dtype dtype = (enum dtype)ctx->instance->out_types[1];
    if (in->rank == 0)
        return kernel_fail(ctx, status_invalid("Serialized sparse should have non-zero rank %s",
                                               TENSOR_SHAPE_TEXT(in)));
    if (tensor_dim(in, in->rank - 1) != 3)
        return kernel_fail(
            ctx, status_invalid("Serialized sparse should have 3 as the last dimension %s",
                                TENSOR_SHAPE_TEXT(in)));
    int64_t n = in->n_elements / 3;
    if (n == 0)
        return kernel_fail(ctx, status_invalid("Serialized sparse should have at least 1 "
                                               "serialized tensor, but has a zero dimension %s",
                                               TENSOR_SHAPE_TEXT(in)));
    struct sparse_piece *pieces = sparse_pieces_new(n);
    struct status *st = pieces ? get_pieces(ctx, dtype, pieces, n)
                               : status_exhausted("OOM: %lld sparse tensors", (long long)n);
    if (!st && in->rank == 1) {
        tensor_move(&ctx->outputs[0], &pieces[0].indices);
        tensor_move(&ctx->outputs[1], &pieces[0].values);
        tensor_move(&ctx->outputs[2], &pieces[0].shape);
    } else if (!st) {
        st = sparse_stack(ctx, pieces, n, (struct shape){in->rank - 1, tensor_dims(in)}, dtype);
    }
    sparse_pieces_free(pieces, n);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define FORM (DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_VARIANT))
#define VALUE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SerializeSparse", .constraints = {{"out_type", FORM}}, .compute = serialize_sparse},
    {.op = "SerializeManySparse", .constraints = {{"T", VALUE_TYPES}, {"out_type", FORM}},
        .compute = serialize_many_sparse},
    {.op = "DeserializeSparse", .constraints = {{"Tserialized", FORM}},
        .compute = deserialize_sparse},
    {.op = "DeserializeManySparse", .compute = deserialize_sparse},
};
// clang-format on

const struct kernel_list sparse_serial_kernels = {rows, ARRAY_LEN(rows)};
