/* Declares the kernels of the parsing family. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_PARSING_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_PARSING_INTERNAL_H

#include "kernels/kernel.h"

/* parsing_raw.c */
struct status *parsing_raw_init(struct kernel_init *init);
kernel_fn parsing_decode_raw, parsing_decode_padded_raw;

/* parsing_csv.c */
struct status *parsing_csv_init(struct kernel_init *init);
void parsing_csv_fini(void *state);
kernel_fn parsing_decode_csv;

/* parsing_json.c */
kernel_fn parsing_decode_json_example;

/* parsing_tensor.c */
struct status *parsing_compressed_init(struct kernel_init *init);
kernel_fn parsing_parse_tensor, parsing_serialize_tensor, parsing_decode_compressed,
    parsing_fingerprint;

/* Appends a tensor's TensorProto. Strings are written as string_val, as TensorFlow does. */
void parsing_add_tensor(const struct tensor *t, struct str *out);

/* parsing_example.c */
struct status *parsing_example_init(struct kernel_init *init);
void parsing_example_fini(void *state);
kernel_fn parsing_example, parsing_example_v2, parsing_single_example;

/* parsing_sequence.c */
struct status *parsing_sequence_init(struct kernel_init *init);
kernel_fn parsing_sequence, parsing_sequence_v2, parsing_single_sequence;

#endif
