/* Reads, prints and intersects slices of tensors. */
#include "common/io/tensor_slice.h"

#include "common/io/ordered_code.h"
#include "common/tensor/tensor_proto.h"
#include "common/tensor/text.h"

/* Each pair of a tensor's slices is compared. */
enum { MAX_SLICES = 16384 };

static struct tensor_slice slice_new(int rank, struct arena *arena) {
    return (struct tensor_slice){rank, arena_array(arena, int64_t, MAX(rank, 1)),
                                 arena_array(arena, int64_t, MAX(rank, 1))};
}

struct tensor_slice tensor_slice_all(int rank, struct arena *arena) {
    struct tensor_slice slice = slice_new(rank, arena);
    for (int i = 0; i < rank; i++)
        slice.lengths[i] = SLICE_ALL;
    return slice;
}

bool tensor_slice_is_all(const struct tensor_slice *slice, struct shape shape) {
    for (int i = 0; i < slice->rank; i++)
        if (slice->lengths[i] != SLICE_ALL &&
            (slice->starts[i] != 0 || slice->lengths[i] != shape.dims[i]))
            return false;
    return true;
}

static void tensor_slice_print(const struct tensor_slice *slice, struct str *out) {
    for (int i = 0; i < slice->rank; i++) {
        str_add(out, i > 0 ? ":" : "");
        if (slice->lengths[i] == SLICE_ALL)
            str_add_char(out, '-');
        else
            str_addf(out, "%lld,%lld", (long long)slice->starts[i], (long long)slice->lengths[i]);
    }
}

const char *tensor_slice_text(const struct tensor_slice *slice, struct arena *arena) {
    struct str text = STR_INIT;
    tensor_slice_print(slice, &text);
    const char *copy = arena_strndup(arena, str_text(&text), text.len);
    str_fini(&text);
    return copy;
}

/* ---- specs ---- */

/* Takes the part up to `separator`. False at the end. */
static bool take_part(struct span *in, char separator, struct span *ret) {
    if (!in->data)
        return false;
    const char *end = in->len > 0 ? memchr(in->data, separator, in->len) : NULL;
    *ret = (struct span){in->data, end ? (size_t)(end - in->data) : in->len};
    *in = end ? (struct span){end + 1, in->len - ret->len - 1} : (struct span){NULL, 0};
    return true;
}

/* Reads a part that is a number; blanks around it are allowed. */
static bool number_of(struct span part, int64_t *ret) {
    struct span in = part;
    if (part.len == 0 || !text_take_int(&in, ret))
        return false;
    text_skip_blanks(&in);
    return in.len == 0;
}

static struct status *parse_extent(struct span part, struct span text, int64_t *ret_start,
                                   int64_t *ret_length) {
    struct span in = part, first, second, rest;
    if (span_is(part, "-")) {
        *ret_start = 0;
        *ret_length = SLICE_ALL;
        return NULL;
    }
    if (!take_part(&in, ',', &first) || !take_part(&in, ',', &second) ||
        (take_part(&in, ',', &rest) && rest.len > 0) || !number_of(first, ret_start) ||
        !number_of(second, ret_length))
        return status_invalid("Expected a pair of numbers or '-' but got '%.*s': string = %.*s",
                              (int)part.len, part.data, (int)text.len, text.data);
    if (*ret_start < 0 || *ret_length <= 0)
        return status_invalid("Expected non-negative start and positive length but got start = "
                              "%lld, length = %lld: string = %.*s",
                              (long long)*ret_start, (long long)*ret_length, (int)text.len,
                              text.data);
    return NULL;
}

static struct status *parse_slice(struct span text, struct arena *arena, struct tensor_slice *ret) {
    struct span in = text, part;
    int64_t starts[SHAPE_MAX_RANK], lengths[SHAPE_MAX_RANK];
    int rank = 0;
    while (take_part(&in, ':', &part)) {
        if (part.len == 0)
            continue;
        if (rank == SHAPE_MAX_RANK)
            return status_invalid("A slice has more than %d dimensions", SHAPE_MAX_RANK);
        TRY(parse_extent(part, text, &starts[rank], &lengths[rank]));
        rank++;
    }
    *ret = slice_new(rank, arena);
    memcpy(ret->starts, starts, (size_t)rank * sizeof(int64_t));
    memcpy(ret->lengths, lengths, (size_t)rank * sizeof(int64_t));
    return NULL;
}

struct status *tensor_slice_parse_spec(struct span spec, struct arena *arena,
                                       struct shape *ret_shape, struct tensor_slice *ret_slice,
                                       struct shape *ret_slice_shape) {
    int64_t dims[SHAPE_MAX_RANK], n;
    int rank = 0;
    struct span in = spec, part;
    const char *blank = memrchr(spec.data, ' ', spec.len);
    if (!blank)
        return status_invalid("Need least two elements in shape_and_slice specification: %.*s",
                              (int)spec.len, spec.data);
    struct span slice = {blank + 1, spec.len - (size_t)(blank + 1 - spec.data)};
    TRY(parse_slice(slice, arena, ret_slice));
    in.len = (size_t)(blank - spec.data);
    while (take_part(&in, ' ', &part)) {
        if (rank == SHAPE_MAX_RANK)
            return status_invalid("A shape has more than %d dimensions", SHAPE_MAX_RANK);
        if (!number_of(part, &dims[rank]))
            return status_invalid("Non numerical dimension in shape_and_slice: %.*s", (int)spec.len,
                                  spec.data);
        rank++;
    }
    *ret_shape = shape_dup((struct shape){rank, dims}, arena);
    TRY(shape_n_elements(*ret_shape, &n));
    return tensor_slice_shape(ret_slice, *ret_shape, arena, ret_slice_shape);
}

struct status *tensor_slice_shape(const struct tensor_slice *slice, struct shape shape,
                                  struct arena *arena, struct shape *ret) {
    if (shape.rank != slice->rank)
        return status_invalid("Mismatching ranks: shape = %s, slice = %s", SHAPE_TEXT(shape),
                              tensor_slice_text(slice, arena));
    int64_t *dims = arena_array(arena, int64_t, MAX(shape.rank, 1));
    for (int i = 0; i < shape.rank; i++) {
        bool is_all = slice->lengths[i] == SLICE_ALL;
        if (!is_all && (slice->starts[i] > shape.dims[i] ||
                        slice->lengths[i] > shape.dims[i] - slice->starts[i]))
            return status_invalid("Extent in dimension %d out of bounds: shape = %s, slice = %s", i,
                                  SHAPE_TEXT(shape), tensor_slice_text(slice, arena));
        dims[i] = is_all ? shape.dims[i] : slice->lengths[i];
    }
    *ret = (struct shape){shape.rank, dims};
    return NULL;
}

/* ---- protos and keys ---- */

static bool extent_from_proto(struct span proto, int64_t *ret_start, int64_t *ret_length) {
    struct proto_field field;
    int more;
    *ret_start = 0;
    *ret_length = SLICE_ALL;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            *ret_start = (int64_t)field.value;
        else if (field.number == 2 && field.wire_type == 0)
            *ret_length = (int64_t)field.value;
    }
    bool is_all = *ret_length == SLICE_ALL;
    return more == 0 && *ret_start >= 0 && (is_all ? *ret_start == 0 : *ret_length >= 0);
}

bool tensor_slice_from_proto(struct span proto, struct arena *arena, struct tensor_slice *ret) {
    int64_t starts[SHAPE_MAX_RANK], lengths[SHAPE_MAX_RANK];
    struct proto_field field;
    int rank = 0, more;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number != 1 || field.wire_type != 2)
            continue;
        if (rank == SHAPE_MAX_RANK ||
            !extent_from_proto(field.bytes, &starts[rank], &lengths[rank]))
            return false;
        rank++;
    }
    *ret = slice_new(rank, arena);
    memcpy(ret->starts, starts, (size_t)rank * sizeof(int64_t));
    memcpy(ret->lengths, lengths, (size_t)rank * sizeof(int64_t));
    return more == 0;
}

void tensor_slice_add_proto(const struct tensor_slice *slice, uint32_t number, struct str *out) {
    size_t begin = proto_begin(out, number, 0);
    for (int i = 0; i < slice->rank; i++) {
        size_t extent = proto_begin(out, 1, 0);
        if (slice->lengths[i] != SLICE_ALL) {
            proto_add_int(out, 1, (uint64_t)slice->starts[i]);
            proto_add_tag(out, 2, 0);
            proto_add_varint(out, (uint64_t)slice->lengths[i]);
        }
        proto_end(out, extent, 0);
    }
    proto_end(out, begin, 0);
}

void tensor_slice_add_key(struct span name, const struct tensor_slice *slice, struct str *out) {
    ordered_add_number(out, 0); /* before all names, which are not empty */
    ordered_add_string(out, name);
    ordered_add_number(out, (uint64_t)slice->rank);
    for (int i = 0; i < slice->rank; i++) {
        ordered_add_signed(out, slice->starts[i]);
        ordered_add_signed(out, slice->lengths[i]);
    }
}

/* ---- boxes ---- */

struct slice_box slice_box_of(const struct tensor_slice *slice, struct shape shape,
                              struct arena *arena) {
    int64_t *starts = arena_array(arena, int64_t, MAX(shape.rank, 1)),
            *sizes = arena_array(arena, int64_t, MAX(shape.rank, 1));
    for (int i = 0; i < shape.rank; i++) {
        starts[i] = slice->starts[i];
        sizes[i] = slice->lengths[i] == SLICE_ALL ? shape.dims[i] : slice->lengths[i];
    }
    return (struct slice_box){shape.rank, starts, sizes};
}

static bool cross(const struct slice_box *a, const struct slice_box *b, int64_t *starts,
                  int64_t *sizes) {
    for (int i = 0; i < a->rank; i++) {
        int64_t start = MAX(a->starts[i], b->starts[i]),
                end = MIN(a->starts[i] + a->sizes[i], b->starts[i] + b->sizes[i]);
        if (start >= end)
            return false;
        starts[i] = start;
        sizes[i] = end - start;
    }
    return true;
}

bool slice_box_cross(const struct slice_box *a, const struct slice_box *b, struct arena *arena,
                     struct slice_box *ret) {
    int64_t starts[SHAPE_MAX_RANK], sizes[SHAPE_MAX_RANK];
    size_t n = (size_t)MAX(a->rank, 1) * sizeof(int64_t);
    if (!cross(a, b, starts, sizes))
        return false;
    *ret =
        (struct slice_box){a->rank, arena_memdup(arena, starts, n), arena_memdup(arena, sizes, n)};
    return true;
}

static int64_t slice_box_n_elements(const struct slice_box *box) {
    int64_t n = 1;
    for (int i = 0; i < box->rank; i++)
        n *= box->sizes[i];
    return n;
}

/* The index, among the elements of a box, of the element with these indices relative to the
 * part. */
static int64_t offset_in(const struct slice_box *box, const struct slice_box *part,
                         const int64_t *index) {
    int64_t offset = 0;
    for (int i = 0; i < box->rank; i++)
        offset = offset * box->sizes[i] + part->starts[i] - box->starts[i] + index[i];
    return offset;
}

void slice_box_copy(enum dtype dtype, const struct slice_box *part,
                    const struct slice_box *from_box, const void *from,
                    const struct slice_box *to_box, void *to) {
    int64_t index[SHAPE_MAX_RANK] = {0}, run = 1;
    size_t size = dtype_size(dtype);
    int outer = part->rank; /* the dimensions from here on are contiguous in both */
    while (outer > 0 && run >= 0) {
        outer--;
        run *= part->sizes[outer];
        if (part->sizes[outer] != from_box->sizes[outer] ||
            part->sizes[outer] != to_box->sizes[outer])
            break;
    }
    for (;;) {
        elements_copy(dtype, (char *)to + (size_t)offset_in(to_box, part, index) * size,
                      (const char *)from + (size_t)offset_in(from_box, part, index) * size, run);
        int d = outer - 1;
        while (d >= 0 && ++index[d] == part->sizes[d])
            index[d--] = 0;
        if (d < 0)
            return;
    }
}

/* ---- covering ---- */

static struct status *check_overlaps(const struct tensor_slice *slices,
                                     const struct slice_box *boxes, int n, struct arena *arena) {
    int64_t starts[SHAPE_MAX_RANK], sizes[SHAPE_MAX_RANK];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (cross(&boxes[i], &boxes[k], starts, sizes))
                return status_invalid("Overlapping slices: existing slice = %s, new slice = %s",
                                      tensor_slice_text(&slices[k], arena),
                                      tensor_slice_text(&slices[i], arena));
    return NULL;
}

struct status *tensor_slices_cover(const struct tensor_slice *slices, int n, struct shape shape,
                                   const struct slice_box *box, struct arena *arena, bool *ret) {
    int64_t starts[SHAPE_MAX_RANK], sizes[SHAPE_MAX_RANK], n_covered = 0;
    struct shape unused;
    if (n > MAX_SLICES)
        return status_exhausted("A tensor of %d slices is beyond the limit of %d", n, MAX_SLICES);
    struct slice_box *boxes = arena_array(arena, struct slice_box, MAX(n, 1));
    for (int i = 0; i < n; i++) {
        TRY(tensor_slice_shape(&slices[i], shape, arena, &unused));
        boxes[i] = slice_box_of(&slices[i], shape, arena);
    }
    TRY(check_overlaps(slices, boxes, n, arena));
    for (int i = 0; i < n; i++)
        if (cross(box, &boxes[i], starts, sizes)) {
            struct slice_box common = {box->rank, starts, sizes};
            n_covered += slice_box_n_elements(&common);
        }
    *ret = n_covered == slice_box_n_elements(box);
    return NULL;
}
