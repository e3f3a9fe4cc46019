/* Reads functions as text (graph_text.h) and writes them directly as FunctionDefs, the form that a
 * library keeps. For tests. */
#include "common/graph/graph_internal.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "common/tensor/text.h"

enum { MAX_FUNCTION_ATTRS = 32 };

/* The attrs that the first line declares. */
struct declared {
    struct {
        struct span name;
        enum attr_type type;
    } attrs[MAX_FUNCTION_ATTRS];
    int n_attrs;
};

static const char name_chars[] = "_>./-";

static void add_span(struct str *out, uint32_t number, struct span text) {
    proto_add_bytes(out, number, text.data, text.len);
}

/* ---- the head ---- */

static struct status *parse_declared(struct span *in, struct declared *declared) {
    if (!text_take(in, "{"))
        return text_wanted("'{'", *in);
    while (!text_take(in, "}")) {
        if (declared->n_attrs == MAX_FUNCTION_ATTRS ||
            (declared->n_attrs > 0 && !text_take(in, ",")))
            return text_wanted("',' or '}'", *in);
        struct span name = text_take_word(in, "_");
        if (!text_take(in, "="))
            return text_wanted("'='", *in);
        declared->attrs[declared->n_attrs].name = name;
        if (!attr_type_parse(text_take_word(in, "()"), &declared->attrs[declared->n_attrs].type))
            return text_wanted("The type of an attr, such as list(type)", *in);
        declared->n_attrs++;
    }
    return NULL;
}

static struct status *write_arg_type(struct span word, struct span *in,
                                     const struct declared *declared, struct str *out) {
    if (dtype_parse(word) != DT_INVALID) {
        proto_add_int(out, 3, (uint64_t)dtype_parse(word));
        return NULL;
    }
    for (int i = 0; i < declared->n_attrs; i++) {
        if (!span_equal(declared->attrs[i].name, word))
            continue;
        add_span(out, declared->attrs[i].type == ATTR_LIST_TYPE ? 6 : 4, word);
        return NULL;
    }
    return text_wanted("The type of an argument", *in);
}

/* Writes (x: float, y: N*T) as ArgDefs with field number `number`. */
static struct status *write_args(struct span in, const struct declared *declared, uint32_t number,
                                 struct str *out) {
    for (int n = 0; text_skip_blanks(&in), in.len > 0; n++) {
        if (n > 0 && !text_take(&in, ","))
            return text_wanted("',' or ')'", in);
        struct span name = text_take_word(&in, name_chars);
        if (name.len == 0 || !text_take(&in, ":"))
            return text_wanted("name: type", in);
        size_t begin = proto_begin(out, number, 0);
        add_span(out, 1, name);
        struct span word = text_take_word(&in, "_");
        if (text_take(&in, "*")) {
            add_span(out, 5, word);
            word = text_take_word(&in, "_");
        }
        TRY(write_arg_type(word, &in, declared, out));
        proto_end(out, begin, 0);
    }
    return NULL;
}

static struct status *take_parentheses(struct span *in, struct span *ret) {
    text_skip_blanks(in);
    const char *close = in->len > 0 ? memchr(in->data, ')', in->len) : NULL;
    if (!text_take(in, "(") || !close)
        return text_wanted("(…)", *in);
    *ret = (struct span){in->data, (size_t)(close - in->data)};
    *in = (struct span){close + 1, (size_t)(in->data + in->len - close - 1)};
    return NULL;
}

static struct status *write_head(struct span in, struct str *out) {
    struct declared declared = {.n_attrs = 0};
    struct span args, rets;
    text_take_word(&in, ""); /* "function" */
    struct span name = text_take_word(&in, name_chars);
    TRY(take_parentheses(&in, &args));
    if (!text_take(&in, "->"))
        return text_wanted("'->'", in);
    TRY(take_parentheses(&in, &rets));
    struct span ahead = in;
    if (text_take(&ahead, "{") && (text_skip_blanks(&ahead), ahead.len > 0))
        TRY(parse_declared(&in, &declared));
    size_t begin = proto_begin(out, 1, 0);
    add_span(out, 1, name);
    TRY(write_args(args, &declared, 2, out));
    TRY(write_args(rets, &declared, 3, out));
    for (int i = 0; i < declared.n_attrs; i++) {
        size_t attr = proto_begin(out, 4, 0);
        add_span(out, 1, declared.attrs[i].name);
        add_span(out, 2, span_of(attr_type_name(declared.attrs[i].type)));
        proto_end(out, attr, 0);
    }
    proto_add_int(out, 17, text_take(&in, "stateful"));
    proto_end(out, begin, 0);
    return text_take(&in, "{") ? NULL : text_wanted("'{' at the end of the line", in);
}

/* ---- the body ---- */

static void write_map_entry(struct str *out, uint32_t number, struct span key, struct span value) {
    size_t begin = proto_begin(out, number, 0);
    add_span(out, 1, key);
    add_span(out, 2, value);
    proto_end(out, begin, 0);
}

static struct status *write_rets(struct span in, struct str *out) {
    for (int n = 0; text_skip_blanks(&in), in.len > 0 && *in.data != '#'; n++) {
        if (n > 0 && !text_take(&in, ","))
            return text_wanted("','", in);
        bool is_control = text_take(&in, "^");
        struct span name = text_take_word(&in, name_chars);
        if (is_control) {
            write_map_entry(out, 6, name, name);
            continue;
        }
        if (!text_take(&in, "="))
            return text_wanted("'='", in);
        write_map_entry(out, 4, name, text_take_word(&in, "_>./-:"));
    }
    return NULL;
}

static struct status *write_attrs(struct graph *graph, const struct op_signature *op,
                                  struct span *in, struct str *out) {
    if (!text_take(in, "{"))
        return NULL;
    for (int n = 0; !text_take(in, "}"); n++) {
        struct attr attr;
        if (n > 0 && !text_take(in, ","))
            return text_wanted("',' or '}'", *in);
        TRY(text_take_attr(graph, op, in, &attr));
        size_t entry = proto_begin(out, 5, 0);
        add_span(out, 1, span_of(attr.name));
        size_t value = proto_begin(out, 2, 0);
        attr_value_to_proto(&attr.value, out);
        proto_end(out, value, 0);
        proto_end(out, entry, 0);
    }
    return NULL;
}

static struct status *write_node(struct graph *graph, struct span in, struct str *out) {
    static const struct op_signature unknown = {.name = ""};
    struct span name = text_take_word(&in, name_chars), inputs;
    if (!text_take(&in, "="))
        return text_wanted("name = Op(inputs)", in);
    struct span op = text_take_word(&in, "_>");
    TRY(take_parentheses(&in, &inputs));
    size_t begin = proto_begin(out, 3, 0);
    add_span(out, 1, name);
    add_span(out, 2, op);
    for (int n = 0; text_skip_blanks(&inputs), inputs.len > 0; n++) {
        if (n > 0 && !text_take(&inputs, ","))
            return text_wanted("','", inputs);
        add_span(out, 3, text_take_word(&inputs, "_>./-:^"));
    }
    const struct op_signature *known = graph_op_lookup_span(graph, op);
    TRY(write_attrs(graph, known ? known : &unknown, &in, out));
    if (text_take(&in, "@"))
        add_span(out, 4, text_take_to_blank(&in));
    proto_end(out, begin, 0);
    text_skip_blanks(&in);
    return in.len == 0 || *in.data == '#' ? NULL : text_wanted("The end of the line", in);
}

static struct status *write_lines(struct graph *graph, const char **text, int *number,
                                  struct str *out) {
    while (**text) {
        const char *end = strchrnul(*text, '\n');
        struct span in = {*text, (size_t)(end - *text)};
        *text = *end ? end + 1 : end;
        ++*number;
        text_skip_blanks(&in);
        if (in.len == 0 || *in.data == '#')
            continue;
        if (text_take(&in, "}"))
            return NULL;
        struct span rest = in;
        if (span_is(text_take_word(&rest, name_chars), "return"))
            TRY(write_rets(rest, out));
        else
            TRY(write_node(graph, in, out));
    }
    return text_wanted("'}'", span_of(""));
}

struct status *function_parse(struct graph *graph, struct span line, const char **text,
                              int *number) {
    struct graph_limits limits;
    struct str def = STR_INIT;
    graph_limits_default(&limits);
    struct status *st = write_head(line, &def);
    if (!st)
        st = write_lines(graph, text, number, &def);
    if (!st)
        st = graph_add_function(graph, (struct span){def.data, def.len}, &limits);
    str_fini(&def);
    return st;
}
