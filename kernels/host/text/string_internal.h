/* Declares the kernels of the string family. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_STRING_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_STRING_INTERNAL_H

#include "common/base/pool_cancel.h"
#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"

/* The spaces of C's isspace, in any locale. */
static inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
struct span skip_spaces(struct span text);  /* without the leading spaces (string_text.c) */
struct span strip_spaces(struct span text); /* without the spaces at both ends (string_text.c) */

/* string_text.c: ops from one string to one string or number */
struct status *string_case_init(struct kernel_init *init);
struct status *string_unit_init(struct kernel_init *init);
kernel_fn string_lower, string_upper, string_strip, string_length, string_substr;

/* string_join.c */
struct status *string_join_init(struct kernel_init *init);
kernel_fn string_join, string_reduce_join, string_unsorted_segment_join;

/* string_number.c */
struct status *string_as_string_init(struct kernel_init *init);
kernel_fn string_as_string, string_to_number;
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
kernel_fn string_static_regex_match, string_regex_match, string_static_regex_replace,
    string_regex_replace;

/* string_ngrams.c */
struct status *string_ngrams_init(struct kernel_init *init);
kernel_fn string_ngrams;

/* ---- helpers ---- */

/* May a loop over texts go on to element i? False once nobody wants the result any more. */
static inline bool text_goes_on(int64_t i) {
    enum { TEXTS_PER_POLL = 4096 };
    return i % TEXTS_PER_POLL != 0 || !pool_is_unwanted();
}

/* The end of the part of a text that begins at `at` and is worked on without asking: some
 * milliseconds of work. 0 once nobody wants the result any more. */
static inline size_t text_part_end(size_t at, size_t len) {
    enum { BYTES_PER_POLL = 1 << 19 };
    return unlikely(at > 0 && pool_is_unwanted()) ? 0 : MIN(len, at + BYTES_PER_POLL);
}

/* Counts a kernel's work, so that a kernel that runs long notices the end of its step. */
struct text_work {
    struct kernel_ctx *ctx;
    int64_t n; /* units since the last check */
};
enum { TEXT_CHECK_UNITS = 1 << 17 }; /* a unit is 10 to 50 ns: checks every few milliseconds */

/* Counts n units, and now and then checks whether the step has been cancelled. Errors:
 * CANCELLED. */
static inline struct status *text_work_add(struct text_work *work, int64_t n) {
    work->n += n;
    if (likely(work->n < TEXT_CHECK_UNITS))
        return NULL;
    work->n = 0;
    return kernel_check_cancelled(work->ctx);
}

/* bytes_new for a text that may take long to copy. Its content is not whole once nobody wants the
 * result. */
static inline struct bytes *text_new(const char *data, size_t len) {
    struct bytes *bytes = bytes_new_uninit(len);
    if (bytes)
        pool_copy(bytes->data, data, len);
    return bytes;
}

/* The elements of a string tensor that the kernel is making. */
static inline struct bytes **string_elements(struct tensor *t) { return tensor_data(t); }

#endif
