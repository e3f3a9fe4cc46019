/* Declares the kernels of the summary family, and what they append to Summary protos. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_SUMMARY_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_SUMMARY_INTERNAL_H

#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"

/* Fields of Summary and Summary.Value. */
enum {
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,
    VALUE_AUDIO = 6,
    VALUE_NODE_NAME = 7,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
};

/* summary_text.c */
kernel_fn summary_scalar, summary_tensor, summary_tensor_v2, summary_merge;
/* summary_histogram.c */
kernel_fn summary_histogram;
/* summary_audio.c */
struct status *summary_audio_init(struct kernel_init *init);
kernel_fn summary_audio;

/* summary_image.c */
struct status *summary_image_init(struct kernel_init *init);
void summary_image_fini(void *state);
kernel_fn summary_image;
/* summary_writer.c; the `arg` of summary_write's kernel rows */
enum summary_write {
    SUMMARY_WRITE_ANY,
    SUMMARY_WRITE_RAW,
    SUMMARY_WRITE_SCALAR,
    SUMMARY_WRITE_HISTOGRAM,
    SUMMARY_WRITE_IMAGE,
    SUMMARY_WRITE_AUDIO,
    SUMMARY_WRITE_GRAPH,
    SUMMARY_WRITE_EVENT,
};
struct status *summary_writer_init(struct kernel_init *init);
void summary_writer_fini(void *state);
struct status *summary_write_init(struct kernel_init *init);
kernel_fn summary_writer, summary_writer_create, summary_writer_flush, summary_writer_close,
    summary_write;

/* ---- appending values to a Summary ---- */

/* Errors: INVALID_ARGUMENT for NaN or infinity. */
struct status *summary_add_histogram(const struct kernel_ctx *ctx, struct span tag,
                                     const struct tensor *values, struct str *out) MUST_USE;
/* Appends the first max_outputs sounds of a tensor [batch, frames] or [batch, frames, channels].
 * Errors: INVALID_ARGUMENT. */
struct status *summary_add_audio(const struct tensor *t, struct span tag, float rate,
                                 int64_t max_outputs, struct str *out) MUST_USE;
/* Appends the first max_images pictures of a tensor [batch, height, width, channels]. bad_color,
 * uint8 with at least one element for each channel, replaces pixels that are not finite. Errors:
 * INVALID_ARGUMENT. */
struct status *summary_add_images(const struct tensor *t, struct span tag,
                                  const struct tensor *bad_color, int64_t max_images,
                                  struct str *out) MUST_USE;
void summary_add_tensor(struct str *out, const struct tensor *t);
/* omits an empty text, as proto3 does */
void summary_add_text(struct str *out, uint32_t number, struct span text);

/* Element i. */
double summary_number_at(const struct tensor *t, int64_t i);
/* The same as a float. A float is taken as it is: a conversion would make zero of a denormal number
 * on a thread that runs kernels. */
float summary_float_at(const struct tensor *t, int64_t i);
/* Reads a scalar string input. Errors: INVALID_ARGUMENT "WHAT must be a scalar". */
struct status *summary_scalar_text(const struct kernel_ctx *ctx, int input, const char *what,
                                   struct span *ret) MUST_USE;
/* Sets output 0 to the proto's bytes, and frees `proto`. */
enum kernel_result summary_end(struct kernel_ctx *ctx, struct str *proto);
void summary_add_float(struct str *out, uint32_t number, float value);   /* writes zeros, too */
void summary_add_double(struct str *out, uint32_t number, double value); /* omits zeros */

#endif
