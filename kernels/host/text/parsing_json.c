/* Computes DecodeJSONExample, which translates tf.train.Example from JSON to its wire format. It
 * follows protobuf's JSON mapping: camelCase or the proto's own names, bytes in base64, 64-bit
 * integers as numbers or texts, "NaN" and "Infinity" as texts. null is a missing value, and in a
 * list it is zero or an empty text.
 *
 * jansson is used here as well as in rpc/, because reading JSON is this op's work, and no lower
 * room reads JSON. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"

enum { FIELD_BYTES_LIST = 1, FIELD_FLOAT_LIST = 2, FIELD_INT64_LIST = 3, HINT = 64 };

static COLD struct status *wrong(const char *what) {
    return status_invalid("Error while parsing JSON: %s", what);
}

/* ---- values ---- */

/* Decodes base64 in either alphabet, padded or not. */
static struct status *add_bytes(const json_t *value, struct str *out) {
    struct str bytes = STR_INIT;
    const char *text = json_is_null(value) ? "" : json_string_value(value);
    size_t len = text ? strlen(text) : 0;
    unsigned bits = 0;
    int n_bits = 0;
    if (!text)
        return wrong("bytes are a text in base64");
    for (int i = 0; i < 2 && len > 0 && text[len - 1] == '='; i++)
        len--;
    bool is_good = len % 4 != 1;
    for (size_t i = 0; i < len && is_good; i++) {
        int digit = base64_digit(text[i]);
        is_good = digit >= 0;
        bits = bits << 6 | (unsigned)(digit & 63);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            str_add_char(&bytes, (char)(bits >> n_bits & 0xff));
        }
    }
    if (is_good)
        proto_add_bytes(out, 1, str_text(&bytes), bytes.len);
    str_fini(&bytes);
    return is_good ? NULL : wrong("bytes are no base64");
}

static struct status *add_float(const json_t *value, struct str *out) {
    double number = json_number_value(value);
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        char *end;
        bool is_name = strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 ||
                       strcmp(text, "-Infinity") == 0;
        number = strtod(text, &end);
        if (end == text || *end || (!is_name && !isfinite(number)))
            return wrong("no float");
    } else if (!json_is_number(value) && !json_is_null(value)) {
        return wrong("no float");
    }
    float narrow = (float)number;
    if (isinf(narrow) && !isinf(number))
        return wrong("beyond a float's range");
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    proto_add_fixed32(out, 1, bits);
    return NULL;
}

static struct status *add_integer(const json_t *value, struct str *out) {
    long long number = json_integer_value(value);
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        char *end;
        errno = 0;
        number = strtoll(text, &end, 10);
        if (end == text || *end || errno)
            return wrong("no 64-bit integer");
    } else if (json_is_real(value)) { /* 1.0 and 1e3 are integers as well */
        double real = json_real_value(value);
        if (real != floor(real) || real < -9223372036854775808.0 || real >= 9223372036854775808.0)
            return wrong("no 64-bit integer");
        number = (long long)real;
    } else if (!json_is_integer(value) && !json_is_null(value)) {
        return wrong("no 64-bit integer");
    }
    proto_add_tag(out, 1, 0);
    proto_add_varint(out, (uint64_t)number);
    return NULL;
}

/* ---- messages ---- */

static bool is_field(const char *key, const char *camel, const char *own) {
    return strcmp(key, camel) == 0 || strcmp(key, own) == 0;
}

/* Adds the values of an array. A value without an array counts as an array of one. As protobuf's
 * JSON reader does, each value becomes a field of its own. */
static struct status *add_values(const json_t *values, int field, struct str *out) {
    static struct status *(*const add[])(const json_t *, struct str *) = {NULL, add_bytes,
                                                                          add_float, add_integer};
    if (!json_is_array(values))
        return add[field](values, out);
    for (size_t i = 0; i < json_array_size(values); i++)
        TRY(add[field](json_array_get(values, i), out));
    return NULL;
}

static struct status *add_list(const json_t *list, int field, struct str *out) {
    const char *key;
    json_t *value;
    if (!json_is_object(list))
        return wrong("a list is an object with value");
    size_t begin = proto_begin(out, (uint32_t)field, HINT);
    json_object_foreach((json_t *)(uintptr_t)list, key, value) {
        if (strcmp(key, "value") != 0)
            return status_invalid("Error while parsing JSON: no such field: '%s'", key);
        if (!json_is_null(value))
            TRY(add_values(value, field, out));
    }
    proto_end(out, begin, HINT);
    return NULL;
}

static struct status *add_feature(const json_t *feature, struct str *out) {
    const char *key;
    json_t *value;
    int n = 0;
    if (!json_is_object(feature))
        return wrong("a feature is an object");
    json_object_foreach((json_t *)(uintptr_t)feature, key, value) {
        int field = is_field(key, "bytesList", "bytes_list")   ? FIELD_BYTES_LIST
                    : is_field(key, "floatList", "float_list") ? FIELD_FLOAT_LIST
                    : is_field(key, "int64List", "int64_list") ? FIELD_INT64_LIST
                                                               : 0;
        if (field == 0)
            return status_invalid("Error while parsing JSON: no such field: '%s'", key);
        if (json_is_null(value))
            continue;
        if (n++ > 0)
            return wrong("a feature has one list only");
        TRY(add_list(value, field, out));
    }
    return NULL;
}

static struct status *add_features(const json_t *features, struct str *out) {
    const char *key, *name;
    json_t *map, *feature;
    if (!json_is_object(features))
        return wrong("features is no object");
    json_object_foreach((json_t *)(uintptr_t)features, key, map) {
        if (strcmp(key, "feature") != 0)
            return status_invalid("Error while parsing JSON: no such field: '%s'", key);
        if (json_is_null(map))
            continue;
        if (!json_is_object(map))
            return wrong("feature is no object");
        json_object_foreach(map, name, feature) {
            size_t entry = proto_begin(out, 1, HINT);
            proto_add_bytes(out, 1, name, strlen(name));
            size_t begin = proto_begin(out, 2, HINT);
            TRY(add_feature(feature, out));
            proto_end(out, begin, HINT);
            proto_end(out, entry, HINT);
        }
    }
    return NULL;
}

static struct status *add_example(const json_t *example, struct str *out) {
    const char *key;
    json_t *value;
    if (!json_is_object(example))
        return wrong("an Example is an object");
    json_object_foreach((json_t *)(uintptr_t)example, key, value) {
        if (strcmp(key, "features") != 0)
            return status_invalid("Error while parsing JSON: no such field: '%s'", key);
        if (json_is_null(value))
            continue;
        size_t begin = proto_begin(out, 1, HINT);
        TRY(add_features(value, out));
        proto_end(out, begin, HINT);
    }
    return NULL;
}

/* DecodeJSONExample
 *   json_examples    string
 *   binary_examples  string, its shape: serialized Examples
 * Errors   INVALID_ARGUMENT   no JSON, or not of an Example */
enum kernel_result parsing_decode_json_example(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    struct str text = STR_INIT;
    struct status *st = NULL;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements && !st; i++) {
        enum { TEXTS_PER_CHECK = 64 };
        struct span json = tensor_string(input, i);
        if (i % TEXTS_PER_CHECK == 0 && (st = kernel_check_cancelled(ctx)) != NULL)
            break;
        json_error_t error;
        json_t *root = json_loadb(json.data, json.len, JSON_REJECT_DUPLICATES, &error);
        str_clear(&text);
        st = root ? add_example(root, &text) : wrong(error.text);
        json_decref(root);
        out[i] = st ? NULL : text_new(str_text(&text), text.len);
    }
    str_fini(&text);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}
