/* Finds the features of examples and appends them to ragged matrices
 * (kernels/host/text/parsing_features.h). */
#include "kernels/host/text/parsing_features.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/text/string_internal.h"

/* ---- wanted features ---- */

struct status *feature_types_check(const struct feature_types *types, int n_shapes, int n_splits) {
    if (n_shapes != types->n_dense)
        return status_invalid("len(dense_keys) != len(dense_shapes): %d vs. %d", types->n_dense,
                              n_shapes);
    if (n_splits != types->n_ragged)
        return status_invalid("len(ragged_value_types) != len(ragged_split_types): %d vs. %d",
                              types->n_ragged, n_splits);
    for (int i = 0; i < n_shapes; i++) {
        struct shape shape = types->dense_shapes[i].shape;
        bool is_bad = shape.rank < 0;
        for (int k = 1; k < shape.rank; k++)
            is_bad |= shape.dims[k] < 0;
        if (is_bad)
            return status_invalid("dense_shapes[%d] has unknown rank or unknown inner dimensions",
                                  i);
    }
    return NULL;
}

static struct status *set_dense(struct feature *feature, const struct feature_types *types, int i) {
    feature->shape = types->dense_shapes[i].shape;
    feature->is_variable = feature->shape.rank > 0 && feature->shape.dims[0] < 0;
    struct shape inner = feature->shape;
    if (feature->is_variable)
        inner = (struct shape){inner.rank - 1, inner.dims + 1};
    return shape_n_elements(inner, &feature->stride);
}

struct status *feature_set_init(struct feature_set *set, const struct feature_types *types,
                                bool are_lists) {
    int n_dense_end = types->n_sparse + types->n_dense;
    *set = (struct feature_set){
        .types = types, .n = n_dense_end + types->n_ragged, .are_lists = are_lists};
    strmap_init(&set->by_key);
    set->features = xcalloc((size_t)set->n + 1, sizeof(*set->features));
    for (int i = 0; i < set->n; i++) {
        struct feature *feature = &set->features[i];
        feature->is_of_list = are_lists;
        if (i < types->n_sparse) {
            feature->kind = FEATURE_SPARSE;
            feature->dtype = types->sparse_types[i].dtype;
        } else if (i < n_dense_end) {
            feature->kind = FEATURE_DENSE;
            feature->dtype = types->dense_types[i - types->n_sparse].dtype;
            TRY(set_dense(feature, types, i - types->n_sparse));
        } else {
            feature->kind = FEATURE_RAGGED;
            feature->dtype = types->ragged_types[i - n_dense_end].dtype;
        }
    }
    return NULL;
}

void feature_set_index(struct feature_set *set) {
    for (int i = 0; i < set->n; i++)
        set->features[i].next_same =
            strmap_put_span(&set->by_key, set->features[i].key, &set->features[i]);
}

void feature_set_fini(struct feature_set *set) {
    for (int i = 0; i < set->n; i++) {
        struct feature *feature = &set->features[i];
        for (int64_t k = 0; feature->dtype == DT_STRING && k < feature->n_values; k++)
            object_unref(((struct object **)(void *)feature->values)[k]);
        free(feature->values);
        free(feature->ends.at);
        free(feature->outer_ends.at);
    }
    free(set->features);
    if (set->types)
        strmap_fini(&set->by_key);
}

static COLD struct status *bad_default(const struct feature_set *set, int index,
                                       const struct tensor *default_value, const char *why) {
    struct str wanted = STR_INIT, given = STR_INIT;
    shape_print(set->features[set->types->n_sparse + index].shape, &wanted);
    shape_print(tensor_shape(default_value), &given);
    struct status *st =
        set->is_of_sequence
            ? status_invalid("default_value[%d].shape() == %s != context_dense_shapes[%d] == %s%s",
                             index, str_text(&given), index, str_text(&wanted), why)
            : status_invalid("dense_defaults[%d].shape() == %s is not compatible with "
                             "dense_shapes_[%d] == %s%s",
                             index, str_text(&given), index, str_text(&wanted), why);
    str_fini(&wanted);
    str_fini(&given);
    return st;
}

struct status *feature_set_default(struct feature_set *set, int index,
                                   const struct tensor *default_value) {
    struct feature *feature = &set->features[set->types->n_sparse + index];
    feature->default_value = default_value;
    if (feature->is_variable && default_value->n_elements != 1)
        return bad_default(
            set, index, default_value,
            ", a variable length shape: the default must contain a single element, the padding");
    if (!feature->is_variable && default_value->n_elements > 0 &&
        !shape_equal(tensor_shape(default_value), feature->shape))
        return bad_default(set, index, default_value, "");
    if (default_value->dtype != feature->dtype)
        return status_invalid("dense_defaults[%d].dtype() == %s != dense_types_[%d] == %s", index,
                              dtype_name((enum dtype)default_value->dtype), index,
                              dtype_name(feature->dtype));
    return NULL;
}

/* ---- growing ---- */

static void offsets_add(struct offsets *numbers, int64_t value) {
    if (numbers->n == numbers->capacity) {
        numbers->capacity = numbers->capacity ? 2 * numbers->capacity : 16;
        numbers->at = xreallocarray(numbers->at, (size_t)numbers->capacity, sizeof(*numbers->at));
    }
    numbers->at[numbers->n++] = value;
}

/* Makes room for n more elements, and returns where they belong. */
static char *grow(struct feature *feature, int64_t n) {
    size_t size = dtype_size(feature->dtype);
    if (feature->n_values + n > feature->capacity) {
        feature->capacity = MAX(2 * feature->capacity, feature->n_values + n);
        feature->values = xreallocarray(feature->values, (size_t)feature->capacity, size);
    }
    return feature->values + (size_t)feature->n_values * size;
}

static void add_default(struct feature *feature) {
    int64_t n = feature->default_value->n_elements;
    char *to = grow(feature, n);
    if (n == 0)
        return;
    memset(to, 0, (size_t)n * dtype_size(feature->dtype));
    elements_copy(feature->dtype, to, tensor_cdata(feature->default_value), n);
    feature->n_values += n;
}

/* ---- the wire ---- */

enum {
    FIELD_BYTES_LIST = 1,
    FIELD_FLOAT_LIST = 2,
    FIELD_INT64_LIST = 3,
    WIRE_VARINT = 0,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5
};

/* Finds the list in a serialized Feature, the last list if there are several. DT_INVALID where
 * there is none. */
static bool open_feature(struct span feature, enum dtype *ret_dtype, struct span *ret_list) {
    static const enum dtype types[] = {DT_INVALID, DT_STRING, DT_FLOAT, DT_INT64};
    struct proto_field field;
    int more;
    *ret_dtype = DT_INVALID;
    while ((more = proto_next(&feature, &field)) > 0) {
        if (field.number < FIELD_BYTES_LIST || field.number > FIELD_INT64_LIST ||
            field.wire_type != WIRE_BYTES)
            continue;
        *ret_dtype = types[field.number];
        *ret_list = field.bytes;
    }
    return more == 0;
}

static bool add_floats(struct feature *feature, const struct proto_field *field) {
    if (field->wire_type == WIRE_FIXED32) {
        uint32_t bits = (uint32_t)field->value;
        memcpy(grow(feature, 1), &bits, sizeof(bits));
        feature->n_values++;
        return true;
    }
    if (field->wire_type != WIRE_BYTES || field->bytes.len % sizeof(float) != 0)
        return false;
    int64_t n = (int64_t)(field->bytes.len / sizeof(float));
    if (n > 0)
        memcpy(grow(feature, n), field->bytes.data, field->bytes.len);
    feature->n_values += n;
    return true;
}

static bool add_integers(struct feature *feature, const struct proto_field *field) {
    struct span in = field->bytes;
    uint64_t value = field->value;
    if (field->wire_type != WIRE_VARINT && field->wire_type != WIRE_BYTES)
        return false;
    while (field->wire_type == WIRE_VARINT || in.len > 0) {
        if (field->wire_type == WIRE_BYTES && !proto_read_varint(&in, &value))
            return false;
        memcpy(grow(feature, 1), &value, sizeof(value));
        feature->n_values++;
        if (field->wire_type == WIRE_VARINT)
            break;
    }
    return true;
}

static bool add_bytes(struct feature *feature, const struct proto_field *field) {
    if (field->wire_type != WIRE_BYTES)
        return false;
    struct bytes *bytes = bytes_new(field->bytes.data, field->bytes.len);
    memcpy(grow(feature, 1), &bytes, sizeof(struct bytes *));
    feature->n_values++;
    return true;
}

static bool add_list(struct feature *feature, struct span list) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&list, &field)) > 0) {
        if (field.number != 1)
            continue;
        bool is_good = feature->dtype == DT_FLOAT   ? add_floats(feature, &field)
                       : feature->dtype == DT_INT64 ? add_integers(feature, &field)
                                                    : add_bytes(feature, &field);
        if (!is_good)
            return false;
    }
    return more == 0;
}

bool feature_set_find(struct feature_set *set, struct span message) {
    struct proto_field entry, field;
    int more, more_in;
    while ((more = proto_next(&message, &entry)) > 0) {
        struct span key = {"", 0}, value = {"", 0}, in = entry.bytes;
        if (entry.number != 1 || entry.wire_type != WIRE_BYTES)
            continue;
        while ((more_in = proto_next(&in, &field)) > 0) {
            if (field.number == 1 && field.wire_type == WIRE_BYTES)
                key = field.bytes;
            else if (field.number == 2 && field.wire_type == WIRE_BYTES)
                value = field.bytes;
        }
        if (more_in < 0)
            return false;
        for (struct feature *feature = strmap_get_span(&set->by_key, key); feature;
             feature = feature->next_same) {
            feature->found = value;
            feature->is_found = true;
        }
    }
    return more == 0;
}

void feature_set_reset(struct feature_set *set) {
    for (int i = 0; i < set->n; i++)
        set->features[i].is_found = false;
}

/* ---- reading an example's features ---- */

static COLD struct status *wrong(const struct feature *feature, const struct feature_place *place,
                                 const char *what) {
    return status_invalid("Name: %.*s, Key: %.*s, Index: %lld.  %s", (int)place->name.len,
                          place->name.data, (int)feature->key.len, feature->key.data,
                          (long long)place->index, what);
}

static COLD struct status *wrong_size(const struct feature *feature,
                                      const struct feature_place *place, int64_t n) {
    struct str text = STR_INIT;
    if (feature->is_of_list)
        str_addf(&text,
                 "Number of %s values != expected.  Values size: %lld is not consistent with the "
                 "output shape of each step of the feature list: ",
                 dtype_name(feature->dtype), (long long)n);
    else if (feature->is_variable)
        str_addf(&text,
                 "Number of %s values is not a multiple of stride length. Saw %lld values but "
                 "output shape is: ",
                 dtype_name(feature->dtype), (long long)n);
    else
        str_addf(&text, "Number of %s values != expected.  Values size: %lld but output shape: ",
                 dtype_name(feature->dtype), (long long)n);
    shape_print(feature->shape, &text);
    struct status *st = wrong(feature, place, text.data);
    str_fini(&text);
    return st;
}

/* Reads a serialized Feature as the next row. *ret_is_there is false when it holds no list. */
static struct status *take_row(struct feature *feature, const struct feature_place *place,
                               struct span message, bool *ret_is_there) {
    enum dtype dtype;
    struct span list;
    int64_t before = feature->n_values;
    if (!open_feature(message, &dtype, &list))
        return wrong(feature, place, "Can't parse serialized Example.");
    *ret_is_there = dtype != DT_INVALID;
    if (!*ret_is_there)
        return NULL;
    if (dtype != feature->dtype) {
        char text[128];
        snprintf(text, sizeof(text), "Data types don't match. Data type: %s but expected type: %s",
                 dtype_name(dtype), dtype_name(feature->dtype));
        return wrong(feature, place, text);
    }
    if (!add_list(feature, list))
        return wrong(feature, place, "Can't parse serialized Example.");
    int64_t n = feature->n_values - before;
    bool is_right = feature->is_variable ? (feature->stride > 0 ? n % feature->stride == 0 : n == 0)
                                         : n == feature->stride;
    return feature->kind != FEATURE_DENSE || is_right ? NULL : wrong_size(feature, place, n);
}

static struct status *take_feature(struct feature *feature, const struct feature_place *place) {
    bool is_there = false;
    if (feature->is_found)
        TRY(take_row(feature, place, feature->found, &is_there));
    if (!is_there && feature->kind == FEATURE_DENSE && !feature->is_variable) {
        if (!feature->default_value || feature->default_value->n_elements != feature->stride ||
            (feature->default_value->n_elements == 0 && feature->stride > 0))
            return status_invalid(
                "Name: %.*s, Feature: %.*s (data type: %s) is required but could not be found.",
                (int)place->name.len, place->name.data, (int)feature->key.len, feature->key.data,
                dtype_name(feature->dtype));
        add_default(feature);
    }
    offsets_add(&feature->ends, feature->n_values);
    return NULL;
}

/* Reads a serialized FeatureList, with a row for each step. */
static struct status *take_list(struct feature *feature, const struct feature_place *place) {
    struct span message = feature->is_found ? feature->found : (struct span){"", 0};
    struct proto_field field;
    int more;
    if (!feature->is_found && feature->kind == FEATURE_DENSE && !feature->is_optional)
        return status_invalid(
            "Name: %.*s, Feature list '%.*s' is required but could not be found.  Did you mean to "
            "include it in "
            "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
            (int)place->name.len, place->name.data, (int)feature->key.len, feature->key.data);
    while ((more = proto_next(&message, &field)) > 0) {
        bool is_there;
        if (field.number != 1 || field.wire_type != WIRE_BYTES)
            continue;
        TRY(take_row(feature, place, field.bytes, &is_there));
        if (!is_there && feature->kind == FEATURE_DENSE && feature->stride > 0)
            return wrong_size(feature, place, 0);
        offsets_add(&feature->ends, feature->n_values);
    }
    if (more < 0)
        return wrong(feature, place, "Can't parse serialized Example.");
    offsets_add(&feature->outer_ends, feature->ends.n);
    return NULL;
}

struct status *feature_set_take(struct feature_set *set, const struct feature_place *place) {
    for (int i = 0; i < set->n; i++)
        TRY((set->are_lists ? take_list : take_feature)(&set->features[i], place));
    return NULL;
}
