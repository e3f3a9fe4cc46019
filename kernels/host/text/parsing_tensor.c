/* Computes ParseTensor, SerializeTensor, DecodeCompressed and Fingerprint, which turn tensors and
 * strings into bytes or back. */
#include <stdlib.h>

#include "common/io/inflate.h"
#include "common/tensor/tensor_pieces.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/support/hashes.h"
#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"

enum { INFLATED_MAX_BYTES = 1 << 30, CLAIM_SPARE_BYTES = 64 << 20 };

/* ---- tensors ---- */

static struct status *decode(struct kernel_ctx *ctx, struct span proto, struct tensor *ret) {
    struct tensor_decoder decoder;
    struct status *st = NULL;
    tensor_decoder_init(&decoder, proto, ctx->instance->allocator);
    while (!st && !tensor_has_value(ret)) {
        int64_t units = 2 * TENSOR_UNITS_PER_MS;
        st = tensor_decoder_run(&decoder, &units, ret);
        if (!st && !tensor_has_value(ret) && unlikely(pool_is_unwanted()))
            st = status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
    }
    tensor_decoder_fini(&decoder);
    return st;
}

/* ParseTensor: reads a serialized TensorProto.
 *   serialized  string, scalar    output  out_type
 * Errors   INVALID_ARGUMENT   no scalar, no TensorProto, another dtype */
enum kernel_result parsing_parse_tensor(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    if (input->rank != 0) {
        struct status *st = status_invalid("Expected `serialized` to be a scalar, got shape: %s",
                                           TENSOR_SHAPE_TEXT(input));
        return kernel_fail(ctx, st);
    }
    struct span proto = tensor_string(input, 0);
    struct tensor value = TENSOR_INIT;
    KERNEL_TRY(ctx, tensor_proto_check_claim(proto, CLAIM_SPARE_BYTES));
    struct status *st = decode(ctx, proto, &value);
    if (st)
        return kernel_fail(ctx,
                           status_prefix_take(st, "Could not parse `serialized` as TensorProto: "));
    if (value.dtype != dtype) {
        st = status_invalid("Type mismatch between parsed tensor (%s) and dtype (%s)",
                            dtype_name((enum dtype)value.dtype), dtype_name(dtype));
        tensor_clear(&value);
        return kernel_fail(ctx, st);
    }
    tensor_move(&ctx->outputs[0], &value);
    return KERNEL_DONE;
}

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_STRING_VAL = 8 };

void parsing_add_tensor(const struct tensor *t, struct str *out) {
    if (t->dtype != DT_STRING) {
        tensor_to_proto(t, out);
        return;
    }
    proto_add_int(out, FIELD_DTYPE, DT_STRING);
    proto_add_shape(out, FIELD_SHAPE, tensor_shape(t));
    for (int64_t i = 0; i < t->n_elements && text_goes_on(i); i++) {
        struct span text = tensor_string(t, i);
        proto_add_bytes(out, FIELD_STRING_VAL, text.data, text.len);
    }
}

/* SerializeTensor: the TensorProto of a tensor. */
enum kernel_result parsing_serialize_tensor(struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    struct str out = STR_INIT;
    size_t content_bytes = 0;
    if (dtype_in((enum dtype)t->dtype, DTYPES_OBJECT)) {
        parsing_add_tensor(t, &out);
    } else {
        tensor_proto_head(t, &out);
        content_bytes = tensor_size_bytes(t);
    }
    struct bytes *bytes = bytes_new_uninit(out.len + content_bytes);
    if (bytes) {
        pool_copy(bytes->data, str_text(&out), out.len);
        pool_copy(bytes->data + out.len, tensor_cdata(t), content_bytes);
    }
    str_fini(&out);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, bytes ? &bytes->object : NULL);
    return KERNEL_DONE;
}

/* ---- DecodeCompressed ---- */

struct compressed_state {
    bool is_plain;
    enum inflate_format format;
};

struct status *parsing_compressed_init(struct kernel_init *init) {
    struct compressed_state *state = xcalloc(1, sizeof(*state));
    struct span type;
    init->state = state;
    TRY(node_get_s(init->node, "compression_type", &type));
    bool is_zlib = type.len == 4 && memcmp(type.data, "ZLIB", 4) == 0,
         is_gzip = type.len == 4 && memcmp(type.data, "GZIP", 4) == 0;
    if (type.len > 0 && !is_zlib && !is_gzip)
        return status_invalid("Only ZLIB, GZIP or NONE are supported compressions");
    state->is_plain = type.len == 0;
    state->format = is_gzip ? INFLATE_GZIP : INFLATE_ZLIB;
    return NULL;
}

/* DecodeCompressed: attr compression_type "", ZLIB or GZIP.
 *   bytes    string
 *   output   string, its shape
 * Errors   DATA_LOSS            corrupt data
 *          RESOURCE_EXHAUSTED   above 1 GiB */
enum kernel_result parsing_decode_compressed(struct kernel_ctx *ctx) {
    const struct compressed_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    if (state->is_plain) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    struct str text = STR_INIT;
    struct status *st = NULL;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && !st; i++) {
        str_clear(&text);
        st = inflate_all(state->format, tensor_string(input, i), INFLATED_MAX_BYTES, &text);
        out[i] = text_new(str_text(&text), text.len);
    }
    str_fini(&text);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* ---- Fingerprint ---- */

static void put_fingerprint(uint8_t *to, const void *data, size_t len) {
    uint64_t hash = hash_fingerprint64(data, len);
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(hash >> (8 * i));
}

/* A row of strings has the fingerprint of all its strings' fingerprints. A row of one string has
 * that string's. */
static void fingerprint_strings(const struct tensor *data, int64_t n_rows, int64_t row_len,
                                uint8_t *out) {
    uint8_t *of_row = xcalloc((size_t)row_len + 1, 8);
    for (int64_t row = 0; row < n_rows && pool_goes_on_rows(row, row_len); row++) {
        for (int64_t i = 0; i < row_len && pool_goes_on(i + 1); i++) {
            struct span text = tensor_string(data, row * row_len + i);
            put_fingerprint(of_row + 8 * i, text.data, text.len);
        }
        if (row_len == 1)
            memcpy(out + 8 * row, of_row, 8);
        else
            put_fingerprint(out + 8 * row, of_row, 8 * (size_t)row_len);
    }
    free(of_row);
}

/* Fingerprint: a hash of each row that never changes, FarmHash's 64 bits, the lowest byte first.
 *   data         T [n, …]
 *   method       string, scalar: "farmhash64"
 *   fingerprint  uint8 [n, 8]
 * Errors   INVALID_ARGUMENT   data a scalar, another method */
enum kernel_result parsing_fingerprint(struct kernel_ctx *ctx) {
    const struct tensor *data = kernel_input(ctx, 0), *method = kernel_input(ctx, 1);
    if (method->rank != 0) {
        struct status *st =
            status_invalid("`method` should be a scalar string: %s", TENSOR_SHAPE_TEXT(method));
        return kernel_fail(ctx, st);
    }
    struct span name = tensor_string(method, 0);
    if (name.len != 10 || memcmp(name.data, "farmhash64", 10) != 0)
        return kernel_fail(
            ctx, status_invalid("Unsupported fingerprint method: %.*s", (int)name.len, name.data));
    if (data->rank < 1)
        return kernel_fail(
            ctx, status_invalid("input data should have at least one dimension, got shape []"));
    if (dtype_in((enum dtype)data->dtype, DTYPES_OBJECT) && data->dtype != DT_STRING)
        return kernel_fail(
            ctx, status_invalid("Unsupported data type: %s", dtype_name((enum dtype)data->dtype)));
    int64_t dims[2] = {tensor_dim(data, 0), 8}, row_len = 1;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_UINT8, (struct shape){2, dims}));
    for (int i = 1; i < data->rank; i++)
        row_len *= tensor_dim(data, i);
    uint8_t *out = tensor_data(&ctx->outputs[0]);
    if (data->dtype == DT_STRING) {
        fingerprint_strings(data, dims[0], row_len, out);
        return KERNEL_DONE;
    }
    size_t row_bytes = (size_t)row_len * dtype_size((enum dtype)data->dtype);
    for (int64_t row = 0; row < dims[0] && pool_goes_on_rows(row, (int64_t)row_bytes); row++)
        put_fingerprint(out + 8 * row, (const char *)tensor_cdata(data) + (size_t)row * row_bytes,
                        row_bytes);
    return KERNEL_DONE;
}
