/* What the files of the summary family share. */
#ifndef MILLRACE_KERNELS_CPU_SUMMARY_INTERNAL_H
#define MILLRACE_KERNELS_CPU_SUMMARY_INTERNAL_H

#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"

/* Fields of Summary and Summary.Value. */
enum {
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
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

double summary_number_at(const struct tensor *t, int64_t i);
/* The only string of an input. Errors: INVALID_ARGUMENT "WHAT must be a scalar". */
struct status *summary_scalar_text(const struct kernel_ctx *ctx, int input, const char *what, struct span *ret) MUST_USE;
/* Makes the output, and frees `proto`. */
enum kernel_result summary_end(struct kernel_ctx *ctx, struct str *proto);
void summary_add_float(struct str *out, uint32_t number, float value);   /* writes 0 too */
void summary_add_double(struct str *out, uint32_t number, double value); /* nothing for 0 */

#endif
