/* Declares the kernels of the Unicode family and its decoder of texts. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_UNICODE_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_UNICODE_INTERNAL_H

#include "kernels/kernel.h"

enum { UNICODE_MAX = 0x10ffff, UNICODE_REPLACEMENT = 0xfffd };

/* ---- unicode_icu.c: uses the ICU library, which it loads at first use ---- */

/* Decodes a text in some encoding to characters. One thread at a time. */
struct unicode_decoder;
/* Errors: INVALID_ARGUMENT for an unknown encoding; UNIMPLEMENTED when ICU is not installed and the
 * encoding is not UTF-8. */
struct status *unicode_decoder_new(struct span encoding, struct unicode_decoder **ret) MUST_USE;
void unicode_decoder_free(struct unicode_decoder *decoder); /* accepts NULL */
void unicode_decoder_start(struct unicode_decoder *decoder, struct span text);
/* Sets *ret_code to the next character and *ret_len to the number of its bytes. False at the end.
 * Ill-formed bytes are U+FFFD, with *ret_is_wrong set. */
bool unicode_decoder_next(struct unicode_decoder *decoder, int32_t *ret_code, size_t *ret_len,
                          bool *ret_is_wrong);

/* Loads ICU. Errors: UNIMPLEMENTED when ICU is not installed. */
struct status *unicode_script_load(void) MUST_USE;
/* Returns the script of a character by ICU's numbers, or -1 when `code` is no character. Call
 * unicode_script_load first. */
int32_t unicode_script_of(int32_t code);

/* ---- unicode_convert.c ---- */
struct status *unicode_init(struct kernel_init *init);
kernel_fn unicode_decode, unicode_encode, unicode_transcode, unicode_script;

#endif
