/* Reads the attrs of sliding windows and counts their positions. */
#include "common/ops/window.h"

/* ---- attrs ---- */

static struct status *read_padding(const struct node *node, struct window_attrs *attrs) {
    struct span text;
    if (!node_attr(node, "padding"))
        return NULL;
    TRY(node_get_s(node, "padding", &text));
    if (!span_is(text, "VALID") && !span_is(text, "SAME") && !span_is(text, "EXPLICIT"))
        return status_invalid("Unknown padding type: %.*s", (int)text.len, text.data);
    attrs->padding = span_is(text, "VALID")  ? WINDOW_VALID
                     : span_is(text, "SAME") ? WINDOW_SAME
                                             : WINDOW_EXPLICIT;
    return NULL;
}

static struct status *read_format(const struct node *node, struct window_attrs *attrs) {
    static const char *const first[] = {"NCHW", "NCDHW", "CHANNELS_FIRST", "NCHW_VECT_C"};
    struct span text;
    if (!node_attr(node, "data_format"))
        return NULL;
    TRY(node_get_s(node, "data_format", &text));
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        attrs->is_channels_first |= span_is(text, first[i]);
    attrs->is_vect_c = span_is(text, "NCHW_VECT_C");
    return NULL;
}

struct status *window_list_set(const struct window_attrs *attrs, const char *what,
                               const int64_t *values, int n, struct window_list *ret) {
    if (n != attrs->n_spatial + 2)
        return status_invalid("Sliding window %s field must specify %d dimensions, but got: %d",
                              what, attrs->n_spatial + 2, n);
    for (int i = 0; i < n; i++) {
        if (values[i] <= 0)
            return status_invalid("Sliding window %s must be larger than 0, but got: %lld", what,
                                  (long long)values[i]);
    }
    ret->batch = values[0];
    ret->channel = values[window_channel_dim(attrs)];
    for (int i = 0; i < attrs->n_spatial; i++)
        ret->spatial[i] = values[window_spatial_dim(attrs, i)];
    return NULL;
}

static struct status *read_list(const struct node *node, const struct window_attrs *attrs,
                                const char *const *names, const char *what,
                                struct window_list *ret) {
    *ret = (struct window_list){1, 1, {1, 1, 1}};
    for (; *names; names++) {
        if (!node_attr(node, *names))
            continue;
        const struct attr_value *values;
        int64_t numbers[WINDOW_MAX_RANK];
        int n;
        TRY(node_get_list(node, *names, &values, &n));
        /* there, an absent list means dilations of 1 */
        if (n == 0 && strcmp(node->op_name, "Conv") == 0)
            return NULL;
        for (int i = 0; i < MIN(n, WINDOW_MAX_RANK); i++) {
            numbers[i] = values[i].i;
            if (numbers[i] < INT32_MIN || numbers[i] > INT32_MAX)
                return status_invalid("Attr %s has value %lld out of range for an int32", *names,
                                      (long long)numbers[i]);
        }
        return window_list_set(attrs, what, numbers, n, ret);
    }
    return NULL;
}

static struct status *read_explicit(const struct node *node, struct window_attrs *attrs) {
    const struct attr_value *values;
    int n = 0, rank = attrs->n_spatial + 2;
    if (node_attr(node, "explicit_paddings"))
        TRY(node_get_list(node, "explicit_paddings", &values, &n));
    if (attrs->padding != WINDOW_EXPLICIT) {
        if (n != 0)
            return status_invalid("explicit_paddings attribute must be empty if the padding "
                                  "attribute is not EXPLICIT");
        return NULL;
    }
    if (n != 2 * rank)
        return status_invalid("explicit_paddings attribute must contain %d values, but got: %d",
                              2 * rank, n);
    for (int i = 0; i < n; i++) {
        if (values[i].i < 0)
            return status_invalid("All elements of explicit_paddings must be nonnegative");
        if (values[i].i != 0 && (i / 2 == 0 || i / 2 == window_channel_dim(attrs)))
            return status_invalid(
                "Nonzero explicit padding in the batch or depth dimensions is not supported");
    }
    for (int i = 0; i < attrs->n_spatial; i++) {
        attrs->pads[i][0] = values[2 * window_spatial_dim(attrs, i)].i;
        attrs->pads[i][1] = values[2 * window_spatial_dim(attrs, i) + 1].i;
    }
    return NULL;
}

struct status *window_attrs_read(const struct node *node, int n_spatial, struct window_attrs *ret) {
    struct window_attrs attrs = {.n_spatial = n_spatial};
    TRY(read_format(node, &attrs));
    TRY(read_padding(node, &attrs));
    TRY(read_list(node, &attrs, (const char *const[]){"ksize", "ksizes", NULL}, "ksize",
                  &attrs.size));
    TRY(read_list(node, &attrs, (const char *const[]){"strides", NULL}, "strides", &attrs.strides));
    TRY(read_list(node, &attrs, (const char *const[]){"dilations", "rates", NULL}, "dilations",
                  &attrs.rates));
    TRY(read_explicit(node, &attrs));
    *ret = attrs;
    return NULL;
}

/* ---- positions ---- */

/* The number of elements from the first tap of the window to its last. */
static struct status *reach_of(int64_t size, int64_t rate, int64_t *ret) {
    if (size < 0)
        return status_invalid("Window size must not be negative: %lld", (long long)size);
    if (mul_overflows_i64(size - 1, rate, ret) || add_overflows_i64(*ret, 1, ret) ||
        *ret > INT64_MAX / 4)
        return status_invalid("Window of %lld taps, %lld apart, is too large", (long long)size,
                              (long long)rate);
    return NULL;
}

struct status *window_fit(const struct window_attrs *attrs, int i, int64_t input, int64_t size,
                          struct window_fit *ret) {
    int64_t stride = attrs->strides.spatial[i], reach, padded;
    TRY(reach_of(size, attrs->rates.spatial[i], &reach));
    *ret = (struct window_fit){.pad_before = attrs->pads[i][0], .pad_after = attrs->pads[i][1]};
    if (input > INT64_MAX / 4 || stride > INT64_MAX / 4)
        return status_invalid("Input of %lld elements, or stride %lld, is too large",
                              (long long)input, (long long)stride);
    if (attrs->padding == WINDOW_SAME) {
        ret->out = input / stride + (input % stride != 0);
        int64_t needed = MAX(0, (ret->out - 1) * stride + reach - input);
        ret->pad_before = needed / 2;
        ret->pad_after = needed - needed / 2;
        return NULL;
    }
    if (add_overflows_i64(input, ret->pad_before, &padded) ||
        add_overflows_i64(padded, ret->pad_after, &padded) || padded > INT64_MAX / 4)
        return status_invalid("Input of %lld elements with its padding is too large",
                              (long long)input);
    ret->out = (padded - reach + stride) / stride;
    if (ret->out < 0)
        return status_invalid("Computed output size would be negative: %lld [input_size: %lld, "
                              "effective_filter_size: %lld, stride: %lld]",
                              (long long)ret->out, (long long)input, (long long)reach,
                              (long long)stride);
    return NULL;
}

struct status *window_fit_static(const struct window_attrs *attrs, int i, int64_t input,
                                 int64_t size, int64_t *ret_out) {
    int64_t reach = 0;
    *ret_out = -1;
    if (size >= 0)
        TRY(reach_of(size, attrs->rates.spatial[i], &reach));
    if (input < 0 || (size < 0 && attrs->padding != WINDOW_SAME))
        return NULL;
    struct window_fit fit;
    TRY(window_fit(attrs, i, input, size < 0 ? 1 : size, &fit));
    int64_t padded = input + attrs->pads[i][0] + attrs->pads[i][1];
    if (attrs->padding != WINDOW_SAME && padded < reach)
        return status_invalid("Negative dimension size caused by subtracting %lld from %lld",
                              (long long)reach, (long long)padded);
    *ret_out = fit.out;
    return NULL;
}
