/* Computes feature crosses; see cross.h. */
#include "kernels/cpu/sparse/cross.h"

#include <stdlib.h>

#include "kernels/support/hashes.h"

static inline bool is_sparse(const struct cross_feature *feature) {
    return tensor_has_value(&feature->owned_splits);
}

static void feature_row(const struct cross_feature *feature, int64_t row, int64_t *ret_first,
                        int64_t *ret_n) {
    const struct tensor *splits = is_sparse(feature) ? &feature->owned_splits : feature->splits;
    if (splits) {
        *ret_first = tensor_index_at(splits, row);
        *ret_n = tensor_index_at(splits, row + 1) - *ret_first;
    } else {
        *ret_first = row * feature->width;
        *ret_n = feature->width;
    }
}

struct status *cross_feature_sparse(struct cross_feature *feature, struct allocator *allocator,
                                    const struct tensor *indices, const struct tensor *values,
                                    int64_t n_rows, bool skips) {
    int64_t n = values->n_elements, columns = tensor_dim(indices, 1), at = 0, n_splits;
    feature->values = values;
    if (add_overflows_i64(n_rows, 1, &n_splits))
        return status_invalid("A batch of %lld rows is too large", (long long)n_rows);
    TRY(tensor_new(allocator, DT_INT64, (struct shape){1, &n_splits}, &feature->owned_splits));
    int64_t *splits = tensor_data(&feature->owned_splits);
    splits[0] = 0;
    for (int64_t row = 0; row < n_rows; row++) {
        while (at < n && (skips ? tensor_index_at(indices, at * columns) <= row
                                : tensor_index_at(indices, at * columns) == row))
            at++;
        splits[row + 1] = at;
    }
    return NULL;
}

struct cross_feature *cross_features_new(int n) {
    size_t size = sizeof(struct cross_feature) * ((size_t)n + 1);
    struct cross_feature *features = aligned_alloc(_Alignof(struct cross_feature), size);
    if (!features)
        out_of_memory(size);
    memset(features, 0, size);
    return features;
}

void cross_features_free(struct cross_feature *features, int n) {
    for (int i = 0; i < n; i++)
        tensor_clear(&features[i].owned_splits);
    free(features);
}

struct status *cross_count(const struct cross *cross, int64_t row, int64_t *ret_n) {
    int64_t product = 1, first, n;
    bool overflows = false;
    for (int i = 0; i < cross->n_features; i++) {
        feature_row(&cross->features[i], row, &first, &n);
        if (n == 0) {
            *ret_n = 0;
            return NULL;
        }
        overflows |= mul_overflows_i64(product, n, &product);
    }
    *ret_n = product;
    return overflows
               ? status_invalid("The crosses of row %lld are too many to count", (long long)row)
               : NULL;
}

/* ---- hashes ---- */

static const uint64_t multiplier = 0xc6a4a7935bd1e995ull;

static inline uint64_t shift_mix(uint64_t v) { return v ^ v >> 47; }

/* Makes one fingerprint of two, in the way that Murmur mixes in a word. The order matters. */
static uint64_t fold(uint64_t a, uint64_t b) {
    uint64_t mixed = (a ^ multiplier ^ shift_mix(b * multiplier) * multiplier) * multiplier;
    return shift_mix(shift_mix(mixed) * multiplier);
}

static uint64_t hash_value(const struct cross *cross, const struct cross_feature *feature,
                           int64_t i) {
    bool is_salted = cross->hash == CROSS_HASH_SALTED;
    if (feature->values->dtype == DT_STRING) {
        struct span text = tensor_string(feature->values, i);
        return is_salted && cross->is_strong
                   ? hash_sip24(text.data, text.len, cross->salt[0], cross->salt[1])
                   : hash_fingerprint64(text.data, text.len);
    }
    int64_t value = tensor_index_at(feature->values, i);
    /* TensorFlow hashes the low half only, and our buckets must be the same */
    enum { HASHED_BYTES = 4 };
    if (is_salted && cross->is_strong)
        return hash_sip24(&value, HASHED_BYTES, cross->salt[0], cross->salt[1]);
    return is_salted && is_sparse(feature) ? hash_fingerprint64(&value, HASHED_BYTES)
                                           : (uint64_t)value;
}

static int64_t hash_combination(const struct cross *cross, const int64_t *places) {
    bool has_key = cross->hash == CROSS_HASH;
    uint64_t hash = cross->key;
    for (int i = 0; i < cross->n_features; i++) {
        uint64_t own = hash_value(cross, &cross->features[i], places[i]);
        hash = i == 0 && !has_key ? own : fold(hash, own);
    }
    return (int64_t)(hash %
                     (cross->n_buckets > 0 ? (uint64_t)cross->n_buckets : (uint64_t)INT64_MAX));
}

/* ---- writing ---- */

static void join_combination(const struct cross *cross, const int64_t *places, struct str *text) {
    str_clear(text);
    for (int i = 0; i < cross->n_features; i++) {
        const struct tensor *values = cross->features[i].values;
        if (i > 0)
            str_add_bytes(text, cross->separator.data, cross->separator.len);
        if (values->dtype == DT_STRING)
            str_add_bytes(text, tensor_string(values, places[i]).data,
                          tensor_string(values, places[i]).len);
        else
            str_addf(text, "%lld", (long long)tensor_index_at(values, places[i]));
    }
}

void cross_write(const struct cross *cross, int64_t row, int64_t first, int64_t n,
                 struct tensor *out) {
    int64_t *places = xcalloc((size_t)cross->n_features + 1, sizeof(*places)), begin, len;
    struct str text = STR_INIT;
    for (int i = 0; i < cross->n_features; i++)
        feature_row(&cross->features[i], row, &places[i], &len);
    for (int64_t at = first; at < first + n; at++) {
        if (cross->hash == CROSS_TEXT) {
            join_combination(cross, places, &text);
            tensor_set_string(out, at, text.data, text.len);
        } else {
            ((int64_t *)tensor_data(out))[at] = hash_combination(cross, places);
        }
        for (int i = cross->n_features - 1; i >= 0; i--) {
            feature_row(&cross->features[i], row, &begin, &len);
            if (++places[i] < begin + len)
                break;
            places[i] = begin;
        }
    }
    str_fini(&text);
    free(places);
}
