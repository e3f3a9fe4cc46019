/* Decodes, encodes and releases large tensors in pieces, so that the thread can do other work in
 * between: tensors of many or long strings, and decoding those of numbers that are listed.
 *
 * The work is counted in units of about 100 ns: an element, a field, or TENSOR_UNIT_BYTES bytes. A
 * call takes what it does from *units, and returns when that is used up or the work is done. Any
 * thread, one at a time for each decoder, encoder or tensor. */
#ifndef MILLRACE_COMMON_TENSOR_TENSOR_PIECES_H
#define MILLRACE_COMMON_TENSOR_TENSOR_PIECES_H

#include "common/base/pool.h"
#include "common/base/str.h"
#include "common/tensor/tensor.h"

enum { TENSOR_UNIT_BYTES = 256, TENSOR_UNITS_PER_MS = 10000 };

/* What the fields of a TensorProto say, apart from lists of elements. */
struct tensor_parts {
    uint64_t type; /* enum dtype, once checked */
    int rank;
    int64_t dims[SHAPE_MAX_RANK];
    struct span content;
};

enum tensor_decoder_phase {
    DECODER_FIELDS,
    DECODER_LENGTHS, /* of the strings in tensor_content */
    DECODER_CONTENT,
    DECODER_LIST,
    DECODER_PLAIN_CONTENT, /* plain dtypes */
    DECODER_PLAIN_LIST,
    DECODER_PLAIN_REPEAT,
    DECODER_DONE,
};

struct tensor_decoder {
    struct span proto, fields; /* all of it; what has not been visited yet */
    struct allocator *allocator;
    enum tensor_decoder_phase phase;
    struct tensor_parts parts;
    /* of tensor_content, or of a packed field of numbers: what has not been read yet */
    struct span lengths, bytes;
    uint64_t total_bytes;
    int64_t n_elements, n_done;
    struct tensor value;  /* n_done elements are set */
    struct bytes *string; /* a long string that is being copied, from `from` */
    struct span from;
    size_t n_copied;
    bool is_list_over;   /* the last value is being repeated */
    size_t n_bytes;      /* of numbers: how many bytes have been stored */
    size_t listed_bytes; /* how many of them are not repeated */
};

/* `proto` and the allocator must outlive the decoder. */
void tensor_decoder_init(struct tensor_decoder *decoder, struct span proto,
                         struct allocator *allocator);
/* Sets *ret, which must hold nothing, once the whole value has been decoded. Errors: as
 * tensor_from_proto; the decoder is of no use then. */
struct status *tensor_decoder_run(struct tensor_decoder *decoder, int64_t *units,
                                  struct tensor *ret) MUST_USE;
void tensor_decoder_fini(struct tensor_decoder *decoder); /* accepts an all-zero one */

/* Writes the TensorProto of a tensor of strings to `out`. */
struct tensor_encoder {
    const struct tensor *value;
    struct str out;
    size_t content_bytes;
    int phase;
    int64_t n_done;  /* elements of this phase */
    size_t n_copied; /* bytes of element n_done */
};
/* The tensor must outlive the encoder. */
void tensor_encoder_init(struct tensor_encoder *encoder, const struct tensor *value);
/* True: encoder->out is complete, and the caller may take it. */
bool tensor_encoder_run(struct tensor_encoder *encoder, int64_t *units);
void tensor_encoder_fini(struct tensor_encoder *encoder); /* accepts an all-zero one */

/* Would decoding, encoding or releasing the tensor take long: more than about 100 us? Looks at a
 * limited number of its strings. */
bool tensor_has_much_text(const struct tensor *t);
/* Releases elements of a tensor that nobody else holds; what is shared is released at once. True:
 * the tensor holds nothing now. */
bool tensor_release(struct tensor *t, int64_t *units);
/* Releases a tensor of much text on the pool, in pieces of 2 ms; every other tensor at once, as
 * tensor_clear does. The tensor holds nothing afterwards. NULL pool: always at once. */
void tensor_release_later(struct pool *pool, struct tensor *t);

#endif
