/* Represents shapes, complete or partial, and prints them. Inference works with partial ones.
 *
 * The rank is at most 254, as in TensorFlow. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_SHAPE_H
#define MILLRACE_COMMON_TENSOR_SHAPE_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum { SHAPE_MAX_RANK = 254, SHAPE_UNKNOWN_RANK = -1 };

/* A possibly partial shape with borrowed sizes. dims[i] == -1 where a size is unknown; rank ==
 * -1 where the rank is. */
struct shape {
    int rank;
    const int64_t *dims;
};
#define SHAPE_UNKNOWN ((struct shape){SHAPE_UNKNOWN_RANK, NULL})
#define SHAPE_SCALAR ((struct shape){0, NULL})

bool shape_is_full(struct shape shape); /* rank and all sizes known */
/* an unknown size equals only an unknown size */
bool shape_equal(struct shape a, struct shape b);
/* could the two be equal once all sizes are known? */
bool shape_is_compatible(struct shape a, struct shape b);
/* The product of the sizes of a full shape. Errors: INVALID_ARGUMENT for a negative size, rank >
 * 254, or a product beyond int64. */
struct status *shape_n_elements(struct shape shape, int64_t *ret_n) MUST_USE;
/* "[2,?,3]", "[]", "<unknown>". */
void shape_print(struct shape shape, struct str *out);
struct shape shape_dup(struct shape shape, struct arena *arena);
/* A copy that owns its sizes; the caller frees it with shape_free. */
struct shape shape_keep(struct shape shape);
void shape_free(struct shape shape_take);

/* What shape_print writes, as an argument of a message: SHAPE_TEXT(shape) is a string that lives
 * until the end of the full expression. A text that is too long is cut and ends with "...". */
struct shape_text {
    char text[512];
};
struct shape_text shape_to_text(struct shape shape);
#define SHAPE_TEXT(...) (shape_to_text(__VA_ARGS__).text)
/* "[1,0]": the coordinates of element i in row-major order; "" where the rank is 0. */
struct shape_text shape_index_to_text(struct shape shape, int64_t i);
#define SHAPE_INDEX_TEXT(shape, i) (shape_index_to_text(shape, i).text)

#endif
