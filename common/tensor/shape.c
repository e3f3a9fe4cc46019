/* Compares and prints shapes, and multiplies their sizes without overflow. */
#include "common/tensor/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool shape_is_full(struct shape shape) {
    if (shape.rank < 0)
        return false;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            return false;
    return true;
}

bool shape_equal(struct shape a, struct shape b) {
    if (a.rank != b.rank)
        return false;
    return a.rank <= 0 || memcmp(a.dims, b.dims, (size_t)a.rank * sizeof(a.dims[0])) == 0;
}

bool shape_is_compatible(struct shape a, struct shape b) {
    if (a.rank < 0 || b.rank < 0)
        return true;
    if (a.rank != b.rank)
        return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dims[i] >= 0 && b.dims[i] >= 0 && a.dims[i] != b.dims[i])
            return false;
    return true;
}

static COLD struct status *shape_refused(struct shape shape, const char *why) {
    struct str text = STR_INIT;
    shape_print(shape, &text);
    struct status *st = status_invalid("Shape %s %s", str_text(&text), why);
    str_fini(&text);
    return st;
}

/* The product of the sizes that are not 0 must fit, too: strides are such products, and kernels
 * compute them without checks. */
struct status *shape_n_elements(struct shape shape, int64_t *ret_n) {
    if (shape.rank < 0)
        return status_invalid("Shape is not known");
    if (shape.rank > SHAPE_MAX_RANK)
        return status_invalid("Shape has %d dimensions, above the limit of %d", shape.rank,
                              SHAPE_MAX_RANK);
    int64_t product = 1;
    bool has_zero = false;
    for (int i = 0; i < shape.rank; i++) {
        int64_t size = shape.dims[i];
        if (unlikely(size < 0))
            return shape_refused(shape, "must have only non-negative sizes");
        if (size == 0)
            has_zero = true;
        else if (unlikely(mul_overflows_i64(product, size, &product)))
            return shape_refused(shape, "has too many elements: more than 2^63 - 1");
    }
    *ret_n = has_zero ? 0 : product;
    return NULL;
}

void shape_print(struct shape shape, struct str *out) {
    if (shape.rank < 0) {
        str_add(out, "<unknown>");
        return;
    }
    str_add_char(out, '[');
    for (int i = 0; i < shape.rank; i++) {
        if (i > 0)
            str_add_char(out, ',');
        if (shape.dims[i] == -1)
            str_add_char(out, '?');
        else
            str_addf(out, "%lld", (long long)shape.dims[i]);
    }
    str_add_char(out, ']');
}

struct shape_text shape_to_text(struct shape shape) {
    struct shape_text ret;
    struct str text = STR_INIT;
    shape_print(shape, &text);
    bool is_cut = text.len >= sizeof(ret.text);
    snprintf(ret.text, sizeof(ret.text), "%.*s%s",
             is_cut ? (int)sizeof(ret.text) - 4 : (int)text.len, str_text(&text),
             is_cut ? "..." : "");
    str_fini(&text);
    return ret;
}

struct shape_text shape_index_to_text(struct shape shape, int64_t i) {
    if (shape.rank == 0)
        return (struct shape_text){""};
    int64_t at[SHAPE_MAX_RANK];
    for (int d = shape.rank - 1; d >= 0; d--) {
        at[d] = shape.dims[d] ? i % shape.dims[d] : 0;
        i = shape.dims[d] ? i / shape.dims[d] : 0;
    }
    return shape_to_text((struct shape){shape.rank, at});
}

struct shape shape_dup(struct shape shape, struct arena *arena) {
    if (shape.rank > 0)
        shape.dims = arena_memdup(arena, shape.dims, (size_t)shape.rank * sizeof(shape.dims[0]));
    else
        shape.dims = NULL;
    return shape;
}

struct shape shape_keep(struct shape shape) {
    if (shape.rank <= 0)
        return (struct shape){shape.rank, NULL};
    int64_t *dims = xcalloc((size_t)shape.rank, sizeof(*dims));
    memcpy(dims, shape.dims, (size_t)shape.rank * sizeof(*dims));
    return (struct shape){shape.rank, dims};
}

void shape_free(struct shape shape_take) { free((void *)(uintptr_t)shape_take.dims); }
