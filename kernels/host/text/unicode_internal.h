/* What the files of the Unicode family share. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_UNICODE_INTERNAL_H
#define MILLRACE_KERNELS_HOST_TEXT_UNICODE_INTERNAL_H

#include "kernels/kernel.h"

enum { UNICODE_MAX = 0x10ffff, UNICODE_REPLACEMENT = 0xfffd };

/* ---- unicode_icu.c: the ICU library, loaded at first use ---- */

/* A text's characters, in some encoding. One thread at a time. */
struct unicode_decoder;
/* Errors: INVALID_ARGUMENT for an encoding that nobody knows; UNIMPLEMENTED where ICU is not
 * installed (UTF-8 needs none). */
struct status *unicode_decoder_new(struct span encoding, struct unicode_decoder **ret) MUST_USE;
void unicode_decoder_free(struct unicode_decoder *decoder); /* accepts NULL */
void unicode_decoder_start(struct unicode_decoder *decoder, struct span text);
/* The next character and how many bytes it took. False at the end. Ill-formed bytes are U+FFFD,
 * with *ret_is_wrong. */
bool unicode_decoder_next(struct unicode_decoder *decoder, int32_t *ret_code, size_t *ret_len,
                          bool *ret_is_wrong);

/* The script of a character by ICU's numbers, -1 for what is none. Errors: UNIMPLEMENTED without
 * ICU. */
struct status *unicode_script_load(void) MUST_USE;
int32_t unicode_script_of(int32_t code); /* after unicode_script_load */

/* ---- unicode_convert.c ---- */
struct status *unicode_init(struct kernel_init *init);
kernel_fn unicode_decode, unicode_encode, unicode_transcode, unicode_script;

#endif
