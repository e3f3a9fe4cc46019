/* Writes tensors as JSON. */
#include "tfctl/tensor_json.h"

#include "rpc/daemon/page.h"

void tensor_json_add_shape(struct shape shape, struct str *out) {
    page_open(out, "shape", '[');
    for (int i = 0; i < shape.rank; i++)
        page_int(out, NULL, shape.dims[i]);
    page_close(out, ']');
}

void tensor_json_add_type(const struct tensor *t, struct str *out) {
    page_text(out, "dtype", dtype_name((enum dtype)t->dtype));
    tensor_json_add_shape(tensor_shape(t), out);
}

/* A number or bool as tensor_print writes it. JSON has no numbers that are not finite. */
static void add_word(struct span word, struct str *out) {
    static const char *const not_finite[][2] = {
        {"nan", "NaN"}, {"inf", "Infinity"}, {"-inf", "-Infinity"}};
    for (size_t i = 0; i < ARRAY_LEN(not_finite); i++)
        if (span_is(word, not_finite[i][0])) {
            page_text(out, NULL, not_finite[i][1]);
            return;
        }
    page_key(out, NULL);
    str_add_bytes(out, word.data, word.len);
}

/* "(1,2)" */
static void add_complex(struct span word, struct str *out) {
    const char *comma = memchr(word.data, ',', word.len);
    size_t n = (size_t)(comma - word.data);
    page_open(out, NULL, '[');
    add_word((struct span){word.data + 1, n - 1}, out);
    add_word((struct span){comma + 1, word.len - n - 2}, out);
    page_close(out, ']');
}

/* The elements in tensor_print's "float[2]{1, 2}" or "float[9]{1, 2, …}". */
static void add_words(const char *text, struct str *out) {
    const char *at = strchr(text, '{') + 1, *end = text + strlen(text) - 1;
    while (at < end && strncmp(at, "…", strlen("…")) != 0) {
        const char *comma = strstr(at, ", ");
        struct span word = {at, (size_t)((comma ? comma : end) - at)};
        if (*at == '(')
            add_complex(word, out);
        else
            add_word(word, out);
        at = comma ? comma + 2 : end;
    }
}

static void add_string(struct span text, struct str *out) {
    page_key(out, NULL);
    str_add_char(out, '"');
    str_add_json_escaped(out, text.data, text.len);
    str_add_char(out, '"');
}

void tensor_json_add_values(const struct tensor *t, int64_t max_elements, struct str *out) {
    int64_t n = MIN(t->n_elements, max_elements);
    bool is_object = t->dtype == DT_RESOURCE || t->dtype == DT_VARIANT; /* not for clients */
    struct str text = STR_INIT;
    page_open(out, "values", '[');
    if (t->dtype == DT_STRING) {
        for (int64_t i = 0; i < n; i++)
            add_string(tensor_string(t, i), out);
    } else if (!is_object) {
        tensor_print(t, n, &text);
        add_words(str_text(&text), out);
    }
    page_close(out, ']');
    if (n < t->n_elements)
        page_int(out, "values_left_out", t->n_elements - n);
    str_fini(&text);
}
