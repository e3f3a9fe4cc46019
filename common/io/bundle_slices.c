/* Joins slices to whole tensors, and reads parts of tensors. */
#include "common/io/bundle_internal.h"

/* A name for messages: the key of a slice has bytes that no terminal shows. */
static COLD struct status *not_enough(struct span name, const struct tensor_slice *slice,
                                      struct arena *arena) {
    return status_invalid(
        "Does not have sufficient slices for partitioned tensor %.*s to restore in slice_spec: %s",
        (int)name.len, name.data, tensor_slice_text(slice, arena));
}

/* Finds the entry of a stored slice, which must agree with the entry of the whole tensor. */
static struct status *find_slice(struct bundle_reader *reader, struct span name,
                                 const struct bundle_entry *whole,
                                 const struct tensor_slice *stored, struct arena *arena,
                                 struct bundle_entry *ret) {
    struct str key = STR_INIT;
    struct shape shape;
    tensor_slice_add_key(name, stored, &key);
    struct status *st = bundle_find(reader, (struct span){key.data, key.len}, arena, ret);
    if (!st)
        st = tensor_slice_shape(stored, whole->shape, arena, &shape);
    if (!st && (ret->dtype != whole->dtype || !shape_equal(ret->shape, shape) || ret->n_slices > 0))
        st = status_new(STATUS_DATA_LOSS,
                        "%s: tensor '%.*s': its slice %s has another type or shape",
                        bundle_reader_prefix(reader), (int)name.len, name.data,
                        tensor_slice_text(stored, arena));
    str_fini(&key);
    return st;
}

/* Reads one stored slice and copies its part of `box` to `out`. */
static struct status *copy_from(struct bundle_reader *reader, struct span name,
                                const struct bundle_entry *whole, const struct tensor_slice *stored,
                                const struct slice_box *box, struct allocator *allocator,
                                struct arena *arena, struct tensor *out) {
    struct slice_box from = slice_box_of(stored, whole->shape, arena), part;
    struct bundle_entry entry;
    struct tensor t = TENSOR_INIT;
    if (!slice_box_cross(&from, box, arena, &part))
        return NULL;
    TRY(find_slice(reader, name, whole, stored, arena, &entry));
    TRY(bundle_read_own(reader, name, &entry, allocator, &t));
    slice_box_copy(entry.dtype, &part, &from, tensor_cdata(&t), box, tensor_data(out));
    tensor_clear(&t);
    return NULL;
}

/* Allocates memory only for what the slices in the index cover. Each of them needs an entry and
 * bytes in a file, so a false index fails soon. */
static struct status *assemble(struct bundle_reader *reader, struct span name,
                               const struct bundle_entry *entry, const struct tensor_slice *slice,
                               struct allocator *allocator, struct arena *arena,
                               struct tensor *ret) {
    struct slice_box box = slice_box_of(slice, entry->shape, arena);
    struct tensor out = TENSOR_INIT;
    struct shape shape;
    bool is_covered = false;
    TRY(tensor_slice_shape(slice, entry->shape, arena, &shape));
    TRY(tensor_slices_cover(entry->slices, entry->n_slices, entry->shape, &box, arena,
                            &is_covered));
    if (!is_covered)
        return not_enough(name, slice, arena);
    TRY(tensor_new(allocator, entry->dtype, shape, &out));
    struct status *st = NULL;
    for (int i = 0; !st && i < entry->n_slices && out.n_elements > 0; i++)
        st = copy_from(reader, name, entry, &entry->slices[i], &box, allocator, arena, &out);
    if (st)
        tensor_clear(&out);
    else
        tensor_move(ret, &out);
    return st;
}

/* Reads a part of a tensor that is stored whole. */
static struct status *cut(struct bundle_reader *reader, struct span name,
                          const struct bundle_entry *entry, const struct tensor_slice *slice,
                          struct allocator *allocator, struct arena *arena, struct tensor *ret) {
    struct tensor_slice all = tensor_slice_all(entry->shape.rank, arena);
    struct slice_box from = slice_box_of(&all, entry->shape, arena),
                     box = slice_box_of(slice, entry->shape, arena);
    struct tensor whole = TENSOR_INIT;
    struct shape shape;
    TRY(tensor_slice_shape(slice, entry->shape, arena, &shape));
    TRY(bundle_read_own(reader, name, entry, allocator, &whole));
    struct status *st = tensor_new(allocator, entry->dtype, shape, ret);
    if (!st && ret->n_elements > 0)
        slice_box_copy(entry->dtype, &box, &from, tensor_cdata(&whole), &box, tensor_data(ret));
    tensor_clear(&whole);
    return st;
}

struct status *bundle_read_slice(struct bundle_reader *reader, struct span name,
                                 const struct bundle_entry *entry, const struct tensor_slice *slice,
                                 struct allocator *allocator, struct tensor *ret) {
    struct arena arena;
    struct status *st;
    arena_init(&arena);
    if (entry->n_slices > 0)
        st = assemble(reader, name, entry, slice, allocator, &arena, ret);
    else if (tensor_slice_is_all(slice, entry->shape))
        st = bundle_read_own(reader, name, entry, allocator, ret);
    else
        st = cut(reader, name, entry, slice, allocator, &arena, ret);
    arena_fini(&arena);
    return st;
}

struct status *bundle_read(struct bundle_reader *reader, struct span name,
                           const struct bundle_entry *entry, struct allocator *allocator,
                           struct tensor *ret) {
    struct arena arena;
    if (entry->n_slices == 0)
        return bundle_read_own(reader, name, entry, allocator, ret);
    arena_init(&arena);
    struct tensor_slice all = tensor_slice_all(entry->shape.rank, &arena);
    struct status *st = bundle_read_slice(reader, name, entry, &all, allocator, ret);
    arena_fini(&arena);
    return st;
}

struct status *bundle_visit_pieces(struct bundle_reader *reader, struct span name,
                                   const struct bundle_entry *entry,
                                   const struct tensor_slice *slice, bundle_visit_fn *visit,
                                   void *arg) {
    struct arena arena;
    struct bundle_entry piece;
    struct slice_box part;
    if (entry->n_slices == 0)
        return visit(arg, entry);
    arena_init(&arena);
    struct tensor_slice all = tensor_slice_all(entry->shape.rank, &arena);
    struct slice_box box = slice_box_of(slice ? slice : &all, entry->shape, &arena);
    struct status *st = NULL;
    for (int i = 0; !st && i < entry->n_slices; i++) {
        struct slice_box from = slice_box_of(&entry->slices[i], entry->shape, &arena);
        if (!slice_box_cross(&from, &box, &arena, &part))
            continue;
        st = find_slice(reader, name, entry, &entry->slices[i], &arena, &piece);
        if (!st)
            st = visit(arg, &piece);
    }
    arena_fini(&arena);
    return st;
}
