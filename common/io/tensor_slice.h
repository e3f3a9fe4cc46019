/* Describes a part of a tensor by a start and a length in each dimension. Partitioned variables are
 * saved as such slices.
 *
 *   text    "0,10:-"          rows 0 to 9, all columns; "-" is a whole dimension
 *   spec    "20 5 0,10:-"     the shape of the whole tensor, then the slice
 *   key     the slice's key in the table of a checkpoint (common/io/ordered_code.h)
 *
 * Sizes are borrowed or in an arena. Any thread. */
#ifndef MILLRACE_COMMON_IO_TENSOR_SLICE_H
#define MILLRACE_COMMON_IO_TENSOR_SLICE_H

#include "common/base/arena.h"
#include "common/tensor/tensor.h"

enum { SLICE_ALL = -1 };

struct tensor_slice {
    int rank;
    int64_t *starts;
    int64_t *lengths; /* SLICE_ALL: the whole dimension; the start is 0 then */
};

struct tensor_slice tensor_slice_all(int rank, struct arena *arena);
bool tensor_slice_is_all(const struct tensor_slice *slice, struct shape shape);

/* Reads a spec. Errors: INVALID_ARGUMENT, also where the slice does not fit the shape; with
 * TensorFlow's words. */
struct status *tensor_slice_parse_spec(struct span spec, struct arena *arena,
                                       struct shape *ret_shape, struct tensor_slice *ret_slice,
                                       struct shape *ret_slice_shape) MUST_USE;
/* The shape that the slice has in a tensor of shape `shape`. Errors: INVALID_ARGUMENT where it does
 * not fit. */
struct status *tensor_slice_shape(const struct tensor_slice *slice, struct shape shape,
                                  struct arena *arena, struct shape *ret) MUST_USE;
const char *tensor_slice_text(const struct tensor_slice *slice, struct arena *arena);

/* Reads a TensorSliceProto. False when malformed: negative starts, no length, too many
 * dimensions. */
bool tensor_slice_from_proto(struct span proto, struct arena *arena, struct tensor_slice *ret);
void tensor_slice_add_proto(const struct tensor_slice *slice, uint32_t number, struct str *out);
void tensor_slice_add_key(struct span name, const struct tensor_slice *slice, struct str *out);

/* ---- boxes: slices of a known shape ---- */

/* Starts and sizes in every dimension. */
struct slice_box {
    int rank;
    const int64_t *starts, *sizes;
};
/* The box of a slice of a tensor of shape `shape`, which the slice must fit. */
struct slice_box slice_box_of(const struct tensor_slice *slice, struct shape shape,
                              struct arena *arena);
/* The part that both cover; false where they have no element in common. */
bool slice_box_cross(const struct slice_box *a, const struct slice_box *b, struct arena *arena,
                     struct slice_box *ret);
/* Copies `part`, which both boxes cover, from `from`, the elements of from_box, to `to`, the
 * elements of to_box. Objects are shared. */
void slice_box_copy(enum dtype dtype, const struct slice_box *part,
                    const struct slice_box *from_box, const void *from,
                    const struct slice_box *to_box, void *to);

/* ---- the slices that a checkpoint has of one tensor ---- */

/* Do the slices cover all of `box`? No two slices may overlap. Errors: INVALID_ARGUMENT
 * "Overlapping slices", RESOURCE_EXHAUSTED. */
struct status *tensor_slices_cover(const struct tensor_slice *slices, int n, struct shape shape,
                                   const struct slice_box *box, struct arena *arena,
                                   bool *ret) MUST_USE;

#endif
