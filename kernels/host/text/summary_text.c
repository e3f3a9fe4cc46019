/* Computes ScalarSummary, TensorSummary, TensorSummaryV2 and MergeSummary, which write
 * tensorflow.Summary protos in the wire format. */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/tensor/float16.h"
#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/summary_internal.h"

enum { WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* ---- what the family shares ---- */

double summary_number_at(const struct tensor *t, int64_t i) {
    const void *data = tensor_cdata(t);
    switch (t->dtype) {
    case DT_FLOAT:
        return (double)((const float *)data)[i];
    case DT_DOUBLE:
        return ((const double *)data)[i];
    case DT_HALF:
        return (double)half_to_float(((const uint16_t *)data)[i]);
    case DT_BFLOAT16:
        return (double)bfloat16_to_float(((const uint16_t *)data)[i]);
    case DT_INT8:
        return ((const int8_t *)data)[i];
    case DT_UINT8:
        return ((const uint8_t *)data)[i];
    case DT_INT16:
        return ((const int16_t *)data)[i];
    case DT_UINT16:
        return ((const uint16_t *)data)[i];
    case DT_INT32:
        return ((const int32_t *)data)[i];
    case DT_UINT32:
        return ((const uint32_t *)data)[i];
    case DT_INT64:
        return (double)((const int64_t *)data)[i];
    default:
        return (double)((const uint64_t *)data)[i];
    }
}

float summary_float_at(const struct tensor *t, int64_t i) {
    return t->dtype == DT_FLOAT ? ((const float *)tensor_cdata(t))[i]
                                : (float)summary_number_at(t, i);
}

struct status *summary_scalar_text(const struct kernel_ctx *ctx, int input, const char *what,
                                   struct span *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s must be a scalar", what);
    *ret = tensor_string(t, 0);
    return NULL;
}

enum kernel_result summary_end(struct kernel_ctx *ctx, struct str *proto) {
    struct bytes *bytes = bytes_new(str_text(proto), proto->len);
    str_fini(proto);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, bytes ? &bytes->object : NULL);
    return KERNEL_DONE;
}

void summary_add_float(struct str *out, uint32_t number, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    proto_add_tag(out, number, WIRE_32);
    str_add_little_endian(out, bits, 4);
}

void summary_add_double(struct str *out, uint32_t number, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (bits == 0)
        return;
    proto_add_tag(out, number, WIRE_64);
    str_add_little_endian(out, bits, 8);
}

void summary_add_text(struct str *out, uint32_t number, struct span text) {
    if (text.len > 0)
        proto_add_bytes(out, number, text.data, text.len);
}

/* ---- kernels ---- */

/* ScalarSummary: a value for each tag.
 *   tags      string, any shape
 *   values    T, the same shape
 *   summary   string, scalar: a Summary
 * Errors   INVALID_ARGUMENT   shapes differ */
enum kernel_result summary_scalar(struct kernel_ctx *ctx) {
    const struct tensor *tags = kernel_input(ctx, 0), *values = kernel_input(ctx, 1);
    struct str out = STR_INIT;
    if (!shape_equal(tensor_shape(tags), tensor_shape(values))) {
        struct status *st = status_invalid("tags and values are not the same shape: %s != %s",
                                           TENSOR_SHAPE_TEXT(tags), TENSOR_SHAPE_TEXT(values));
        return kernel_fail(ctx, st);
    }
    for (int64_t i = 0; i < tags->n_elements; i++) {
        struct span tag = tensor_string(tags, i);
        size_t begin = proto_begin(&out, SUMMARY_VALUE, tag.len + 16);
        summary_add_text(&out, VALUE_TAG, tag);
        summary_add_float(&out, VALUE_SIMPLE, summary_float_at(values, i));
        proto_end(&out, begin, tag.len + 16);
    }
    return summary_end(ctx, &out);
}

void summary_add_tensor(struct str *out, const struct tensor *t) {
    size_t size = tensor_proto_size(t), begin = proto_begin(out, VALUE_TENSOR, size);
    parsing_add_tensor(t, out);
    proto_end(out, begin, size);
}

/* TensorSummary: any tensor, under the node's name.
 *   tensor  T    summary  string, scalar: a Summary */
enum kernel_result summary_tensor(struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    const char *name = ctx->instance->node->name;
    struct str out = STR_INIT;
    size_t size = tensor_proto_size(t), begin = proto_begin(&out, SUMMARY_VALUE, size);
    summary_add_text(&out, VALUE_NODE_NAME, (struct span){name, strlen(name)});
    summary_add_tensor(&out, t);
    proto_end(&out, begin, size);
    return summary_end(ctx, &out);
}

/* TensorSummaryV2: with a tag and a serialized SummaryMetadata.
 * Errors   INVALID_ARGUMENT   a tag or metadata that is no scalar */
enum kernel_result summary_tensor_v2(struct kernel_ctx *ctx) {
    struct span tag, metadata;
    const struct tensor *t = kernel_input(ctx, 1);
    struct str out = STR_INIT;
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 0, "tag", &tag));
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 2, "serialized_summary_metadata", &metadata));
    size_t size = tensor_proto_size(t), begin = proto_begin(&out, SUMMARY_VALUE, size);
    summary_add_text(&out, VALUE_TAG, tag);
    summary_add_tensor(&out, t);
    proto_add_bytes(&out, VALUE_METADATA, metadata.data, metadata.len);
    proto_end(&out, begin, size);
    return summary_end(ctx, &out);
}

/* ---- MergeSummary ---- */

/* Reads the tag of a serialized Summary.Value. False when the proto is malformed. */
static bool read_tag(struct span value, struct span *ret) {
    struct proto_field field;
    int more;
    *ret = (struct span){"", 0};
    while ((more = proto_next(&value, &field)) > 0)
        if (field.number == VALUE_TAG && field.wire_type == WIRE_BYTES)
            *ret = field.bytes;
    return more == 0;
}

static struct status *merge_one(struct span summary, struct strmap *tags, struct str *out) {
    struct proto_field field;
    struct span tag;
    int more;
    while ((more = proto_next(&summary, &field)) > 0) {
        if (field.number != SUMMARY_VALUE)
            continue;
        if (field.wire_type != WIRE_BYTES || !read_tag(field.bytes, &tag))
            return status_invalid("Could not parse one of the summary inputs");
        if (tag.len > 0 && strmap_put_span(tags, tag, tags)) /* values of tensors have no tag */
            return status_invalid("Duplicate tag %.*s found in summary inputs", (int)tag.len,
                                  tag.data);
        proto_add_bytes(out, SUMMARY_VALUE, field.bytes.data, field.bytes.len);
    }
    return more < 0 ? status_invalid("Could not parse one of the summary inputs") : NULL;
}

/* MergeSummary: the values of several Summaries as one.
 *   inputs    strings, any shapes
 *   summary   string, scalar
 * Errors   INVALID_ARGUMENT   no Summary; a tag twice */
enum kernel_result summary_merge(struct kernel_ctx *ctx) {
    struct str out = STR_INIT;
    struct strmap tags;
    struct status *st = NULL;
    strmap_init(&tags);
    for (int k = 0; k < ctx->instance->n_inputs; k++)
        for (int64_t i = 0; i < kernel_input(ctx, k)->n_elements && !st; i++)
            st = merge_one(tensor_string(kernel_input(ctx, k), i), &tags, &out);
    strmap_fini(&tags);
    if (!st)
        return summary_end(ctx, &out);
    str_fini(&out);
    return kernel_fail(ctx, st);
}
