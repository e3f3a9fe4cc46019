/* Writes numbers and strings as bytes that sort like them. Checkpoints store slices of tensors
 * under such keys. Any thread.
 *
 *   number   its big-endian bytes without leading zeros, after a byte that counts them
 *   string   its bytes, 00 as 00 FF and FF as FF 00, then 00 01
 *   signed   big-endian two's complement in as few bytes as it fits; as many leading bits say how
 *            many, inverted below zero */
#ifndef MILLRACE_COMMON_IO_ORDERED_CODE_H
#define MILLRACE_COMMON_IO_ORDERED_CODE_H

#include "common/base/str.h"

void ordered_add_number(struct str *out, uint64_t value);
void ordered_add_string(struct str *out, struct span text);
void ordered_add_signed(struct str *out, int64_t value);

#endif
