/* What the files of the string family share. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_STRING_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_STRING_INTERNAL_H

#include "kernels/kernel.h"

/* string_text.c: one string to one string or number */
struct status *string_case_init(struct kernel_init *init);
struct status *string_unit_init(struct kernel_init *init);
kernel_fn string_lower, string_upper, string_strip, string_length, string_substr;

/* string_join.c */
struct status *string_join_init(struct kernel_init *init);
kernel_fn string_join, string_reduce_join, string_unsorted_segment_join;

/* string_number.c */
struct status *string_as_string_init(struct kernel_init *init);
kernel_fn string_as_string, string_to_number;
/* The number that a text spells, spaces around it allowed, as StringToNumber reads it. A NUL follows the text. */
bool string_parse_number(enum dtype dtype, struct span text, void *to);

/* string_format.c */
struct status *string_format_init(struct kernel_init *init);
void string_format_fini(void *state);
kernel_fn string_format;

/* string_code.c: hashes and base64 */
struct status *string_hash_init(struct kernel_init *init);
struct status *string_base64_init(struct kernel_init *init);
kernel_fn string_hash, string_encode_base64, string_decode_base64;

/* string_split.c */
struct status *string_split_init(struct kernel_init *init);
kernel_fn string_split, string_split_v2;

/* string_regex.c */
struct status *string_regex_init(struct kernel_init *init);
void string_regex_fini(void *state);
struct status *string_regex_replace_init(struct kernel_init *init);
kernel_fn string_static_regex_match, string_regex_match, string_static_regex_replace, string_regex_replace;

/* string_ngrams.c */
struct status *string_ngrams_init(struct kernel_init *init);
kernel_fn string_ngrams;

/* ---- helpers ---- */

/* The elements of a string tensor that is being made. */
static inline struct bytes **string_elements(struct tensor *t) { return tensor_data(t); }
char *string_shape_text(const struct tensor *t); /* the caller frees it */

/* ---- UTF-8 (utf8.c) ---- */

/* A character starts at every byte that is no continuation byte; bytes before the first start belong to it. */
static inline bool utf8_is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; }
/* The character at text's front, which is not empty; *ret_len bytes. Of ill-formed bytes, the longest beginning of a well-formed character
 * (at least one byte) is one U+FFFD, as the standard recommends. */
uint32_t utf8_decode(struct span text, size_t *ret_len);
/* Case mapping as Unicode has it: one character may become several, and the final sigma has its own form. Ill-formed bytes
 * become U+FFFD. */
void utf8_to_lower(struct span text, struct str *out);
void utf8_to_upper(struct span text, struct str *out);

#endif
