/* Reads and writes AttrValue, between the message and the arena of the graph. */
#include "common/graph/graph_internal.h"

#include "common/tensor/tensor_proto.h"

/* Fields of AttrValue. Those of its ListValue have the same numbers, except for functions. */
enum {
    FIELD_LIST = 1,
    FIELD_S = 2,
    FIELD_I = 3,
    FIELD_F = 4,
    FIELD_B = 5,
    FIELD_TYPE = 6,
    FIELD_SHAPE = 7,
    FIELD_TENSOR = 8,
    FIELD_PLACEHOLDER = 9,
    FIELD_LIST_FUNC = 9,
    FIELD_FUNC = 10,
};

/* Nesting levels from one AttrValue to the next: list or NameAttrList, entry, AttrValue. */
enum { LEVELS_PER_VALUE = 3 };

static const struct {
    uint8_t number, wire_type, type;
} element_fields[] = {
    {FIELD_S, 2, ATTR_STRING},      {FIELD_I, 0, ATTR_INT},          {FIELD_F, 5, ATTR_FLOAT},
    {FIELD_B, 0, ATTR_BOOL},        {FIELD_TYPE, 0, ATTR_TYPE},      {FIELD_SHAPE, 2, ATTR_SHAPE},
    {FIELD_TENSOR, 2, ATTR_TENSOR}, {FIELD_LIST_FUNC, 2, ATTR_FUNC},
};

void attr_reader_init(struct attr_reader *reader, struct graph *graph,
                      const struct graph_limits *limits) {
    *reader =
        (struct attr_reader){.graph = graph,
                             .limits = limits,
                             .tensors = allocator_host_new("graph", limits->max_tensor_bytes)};
}

void attr_reader_fini(struct attr_reader *reader) { allocator_host_free(reader->tensors); }

static COLD struct status *malformed(const char *what) {
    return status_invalid("Malformed AttrValue: %s", what);
}

/* ---- single values ---- */

static struct status *read_shape(struct attr_reader *reader, struct span proto,
                                 struct attr_value *ret) {
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    if (!proto_read_shape(proto, dims, &rank))
        return malformed("a shape cannot be read, or has more than 254 dimensions");
    for (int i = 0; i < rank; i++)
        if (dims[i] < -1)
            return malformed("a shape has a size below -1");
    ret->shape = shape_dup((struct shape){rank, dims}, &reader->graph->arena);
    return NULL;
}

static struct status *read_tensor(struct attr_reader *reader, struct span proto,
                                  struct attr_value *ret) {
    struct tensor tensor = TENSOR_INIT;
    TRY(tensor_from_proto(proto, NULL, reader->tensors, &tensor));
    ret->tensor =
        arena_alloc_aligned(&reader->graph->arena, sizeof(tensor), _Alignof(struct tensor));
    tensor_move(ret->tensor, &tensor);
    graph_own_tensors(reader->graph, ret);
    return NULL;
}

static struct status *read_func_attrs(struct attr_reader *reader, struct span proto, int n_attrs,
                                      int depth, struct attr_func *func) {
    struct proto_field field;
    func->attrs = arena_array(&reader->graph->arena, struct attr, n_attrs);
    int n = 0;
    while (proto_next(&proto, &field) > 0) {
        bool is_set;
        if (field.number != 2 || field.wire_type != 2)
            continue;
        TRY(attr_read_entry(reader, field.bytes, NULL, depth + LEVELS_PER_VALUE, &func->attrs[n],
                            &is_set));
        n += is_set;
    }
    func->n_attrs = attrs_sort(func->attrs, n);
    return NULL;
}

static struct status *read_func(struct attr_reader *reader, struct span proto, int depth,
                                struct attr_value *ret) {
    struct attr_func *func = arena_new(&reader->graph->arena, struct attr_func);
    struct proto_field field;
    int more, n_attrs = 0;
    func->name = "";
    for (struct span in = proto; (more = proto_next(&in, &field)) != 0;) {
        if (more < 0)
            return malformed("a function cannot be read");
        if (field.number == 1 && field.wire_type == 2)
            func->name = arena_strndup(&reader->graph->arena, field.bytes.data, field.bytes.len);
        n_attrs += field.number == 2 && field.wire_type == 2;
    }
    if (n_attrs > NODE_MAX_ATTRS)
        return malformed("a function with more than 256 attrs");
    ret->func = func;
    return read_func_attrs(reader, proto, n_attrs, depth, func);
}

/* Reads a value of `type` from its field. */
static struct status *read_single(struct attr_reader *reader, const struct proto_field *field,
                                  enum attr_type type, int depth, struct attr_value *ret) {
    uint32_t bits = (uint32_t)field->value;
    *ret = (struct attr_value){.type = type};
    switch (type) {
    case ATTR_STRING:
        ret->s =
            (struct span){arena_strndup(&reader->graph->arena, field->bytes.data, field->bytes.len),
                          field->bytes.len};
        return NULL;
    case ATTR_INT:
        ret->i = (int64_t)field->value;
        return NULL;
    case ATTR_FLOAT:
        memcpy(&ret->f, &bits, sizeof(ret->f));
        return NULL;
    case ATTR_BOOL:
        ret->b = field->value != 0;
        return NULL;
    case ATTR_TYPE:
        ret->dtype =
            field->value <= DT_REF_OFFSET + DT_N_TYPES ? (enum dtype)field->value : DT_INVALID;
        return NULL;
    case ATTR_SHAPE:
        return read_shape(reader, field->bytes, ret);
    case ATTR_TENSOR:
        return read_tensor(reader, field->bytes, ret);
    default:
        return read_func(reader, field->bytes, depth, ret);
    }
}

/* ---- lists ---- */

/* The row of element_fields for a field of a ListValue, or -1. Numbers may be packed. */
static int element_row(const struct proto_field *field) {
    for (int i = 0; i < (int)ARRAY_LEN(element_fields); i++)
        if (element_fields[i].number == field->number &&
            (element_fields[i].wire_type == field->wire_type || field->wire_type == 2))
            return i;
    return -1;
}

static bool is_packed(const struct proto_field *field, int row) {
    return field->wire_type == 2 && element_fields[row].wire_type != 2;
}

static int64_t count_elements(const struct proto_field *field, int row) {
    if (!is_packed(field, row))
        return 1;
    if (element_fields[row].wire_type == 5)
        return (int64_t)(field->bytes.len / 4);
    int64_t n = 0;
    for (size_t i = 0; i < field->bytes.len; i++)
        n += (uint8_t)field->bytes.data[i] < 0x80;
    return n;
}

/* Finds the type that all elements have, and their count. */
static struct status *scan_list(struct attr_reader *reader, struct span proto, int *ret_row,
                                int64_t *ret_n) {
    struct proto_field field;
    int more;
    *ret_row = -1;
    *ret_n = 0;
    while ((more = proto_next(&proto, &field)) > 0) {
        int row = element_row(&field);
        if (row < 0)
            continue;
        int64_t n = count_elements(&field, row);
        if (n > 0 && *ret_row >= 0 && row != *ret_row)
            return malformed("a list with elements of several types");
        if (n > 0)
            *ret_row = row;
        *ret_n += n;
    }
    if (more < 0)
        return malformed("a list cannot be read");
    reader->n_list_elements += *ret_n;
    if (reader->n_list_elements > reader->limits->max_list_elements)
        return status_exhausted("The attr lists of a graph have more than %lld elements",
                                (long long)reader->limits->max_list_elements);
    return NULL;
}

static struct status *read_packed(struct attr_reader *reader, const struct proto_field *field,
                                  int row, int depth, struct attr_value **at) {
    struct span in = field->bytes;
    struct proto_field element = {0};
    enum attr_type type = (enum attr_type)element_fields[row].type;
    if (element_fields[row].wire_type == 5 && in.len % 4 != 0)
        return malformed("packed floats cannot be read");
    while (in.len > 0) {
        if (element_fields[row].wire_type == 5) {
            element.value = 0;
            memcpy(&element.value, in.data, 4);
            in.data += 4;
            in.len -= 4;
        } else if (!proto_read_varint(&in, &element.value)) {
            return malformed("packed numbers cannot be read");
        }
        TRY(read_single(reader, &element, type, depth, (*at)++));
    }
    return NULL;
}

static struct status *read_list(struct attr_reader *reader, struct span proto,
                                const struct op_attr_signature *wanted, int depth,
                                struct attr_value *ret) {
    struct proto_field field;
    int row;
    int64_t n;
    TRY(scan_list(reader, proto, &row, &n));
    enum attr_type empty_type =
        wanted && attr_type_is_list(wanted->type) ? wanted->type : ATTR_LIST_STRING;
    *ret = (struct attr_value){
        .type = row < 0 ? empty_type : (enum attr_type)(ATTR_LIST | element_fields[row].type)};
    if (row < 0)
        return NULL;
    struct attr_value *values = arena_alloc(&reader->graph->arena, (size_t)n * sizeof(values[0])),
                      *at = values;
    while (proto_next(&proto, &field) > 0) {
        if (element_row(&field) != row)
            continue;
        if (is_packed(&field, row))
            TRY(read_packed(reader, &field, row, depth, &at));
        else
            TRY(read_single(reader, &field, (enum attr_type)element_fields[row].type, depth, at++));
    }
    ret->list.values = values;
    ret->list.n_values = (int)n;
    return NULL;
}

/* ---- AttrValue ---- */

struct status *attr_read(struct attr_reader *reader, struct span proto,
                         const struct op_attr_signature *wanted, int depth, struct attr_value *ret,
                         bool *ret_is_set) {
    struct proto_field field, last = {0};
    int more;
    if (depth + 1 > reader->limits->max_depth)
        return status_invalid("Attrs nest deeper than %d messages", reader->limits->max_depth);
    while ((more = proto_next(&proto, &field)) > 0)
        if (field.number <= FIELD_FUNC)
            last = field; /* the last field of a oneof counts */
    if (more < 0)
        return malformed("its fields cannot be read");
    *ret_is_set = last.number != 0;
    if (last.number == FIELD_LIST && last.wire_type == 2)
        return read_list(reader, last.bytes, wanted, depth + 1, ret);
    if (last.number == FIELD_FUNC && last.wire_type == 2)
        return read_single(reader, &last, ATTR_FUNC, depth, ret);
    if (last.number == FIELD_PLACEHOLDER && last.wire_type == 2) {
        *ret = (struct attr_value){.type = wanted ? wanted->type : ATTR_STRING,
                                   .is_placeholder = true};
        ret->placeholder = arena_strndup(&reader->graph->arena, last.bytes.data, last.bytes.len);
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(element_fields); i++)
        if (element_fields[i].number == last.number &&
            element_fields[i].wire_type == last.wire_type)
            return read_single(reader, &last, (enum attr_type)element_fields[i].type, depth, ret);
    return *ret_is_set ? malformed("a field of the wrong kind") : NULL;
}

struct status *attr_read_entry(struct attr_reader *reader, struct span entry,
                               const struct op_signature *op, int depth, struct attr *ret,
                               bool *ret_is_set) {
    struct span key = {"", 0}, value = {NULL, 0};
    struct proto_field field;
    int more;
    while ((more = proto_next(&entry, &field)) > 0) {
        if (field.wire_type != 2)
            continue;
        if (field.number == 1)
            key = field.bytes;
        else if (field.number == 2)
            value = field.bytes;
    }
    if (more < 0)
        return malformed("an entry of an attr map cannot be read");
    const struct op_attr_signature *known = op ? op_signature_attr_n(op, key.data, key.len) : NULL;
    ret->name = known ? known->name : arena_strndup(&reader->graph->arena, key.data, key.len);
    TRY(attr_read(reader, value, known, depth + 1, &ret->value, ret_is_set));
    return NULL;
}

struct status *attr_value_from_proto(struct graph *graph, struct span proto,
                                     const struct op_attr_signature *wanted,
                                     const struct graph_limits *limits, struct attr_value *ret,
                                     bool *ret_is_set) {
    struct attr_reader reader;
    attr_reader_init(&reader, graph, limits);
    struct status *st = attr_read(&reader, proto, wanted, 0, ret, ret_is_set);
    attr_reader_fini(&reader);
    return st;
}

/* ---- writing ---- */

static void add_varint_field(struct str *out, uint32_t number, uint64_t value) {
    proto_add_tag(out, number, 0);
    proto_add_varint(out, value);
}

/* Writes the member of the oneof even when it is 0, because its presence has a meaning. */
static void single_to_proto(const struct attr_value *value, uint32_t func_number, struct str *out) {
    uint32_t bits;
    size_t begin, hint;
    switch (value->type) {
    case ATTR_STRING:
        proto_add_bytes(out, FIELD_S, value->s.data, value->s.len);
        break;
    case ATTR_INT:
        add_varint_field(out, FIELD_I, (uint64_t)value->i);
        break;
    case ATTR_FLOAT:
        memcpy(&bits, &value->f, sizeof(bits));
        proto_add_fixed32(out, FIELD_F, bits);
        break;
    case ATTR_BOOL:
        add_varint_field(out, FIELD_B, value->b);
        break;
    case ATTR_TYPE:
        add_varint_field(out, FIELD_TYPE, (uint64_t)value->dtype);
        break;
    case ATTR_SHAPE:
        proto_add_shape(out, FIELD_SHAPE, value->shape);
        break;
    case ATTR_TENSOR:
        hint = tensor_proto_size(value->tensor);
        begin = proto_begin(out, FIELD_TENSOR, hint);
        tensor_to_proto(value->tensor, out);
        proto_end(out, begin, hint);
        break;
    case ATTR_FUNC:
        begin = proto_begin(out, func_number, 0);
        proto_add_bytes(out, 1, value->func->name, strlen(value->func->name));
        for (int i = 0; i < value->func->n_attrs; i++) {
            size_t entry = proto_begin(out, 2, 0);
            proto_add_bytes(out, 1, value->func->attrs[i].name, strlen(value->func->attrs[i].name));
            size_t inner = proto_begin(out, 2, 0);
            attr_value_to_proto(&value->func->attrs[i].value, out);
            proto_end(out, inner, 0);
            proto_end(out, entry, 0);
        }
        proto_end(out, begin, 0);
        break;
    default:
        break;
    }
}

void attr_value_to_proto(const struct attr_value *value, struct str *out) {
    if (value->is_placeholder) {
        proto_add_bytes(out, FIELD_PLACEHOLDER, value->placeholder, strlen(value->placeholder));
        return;
    }
    if (!attr_type_is_list(value->type)) {
        single_to_proto(value, FIELD_FUNC, out);
        return;
    }
    size_t begin = proto_begin(out, FIELD_LIST, 0);
    for (int i = 0; i < value->list.n_values; i++)
        single_to_proto(&value->list.values[i], FIELD_LIST_FUNC, out);
    proto_end(out, begin, 0);
}
