/* Declares the generated table of signatures for op_signature.c and its test. */
#ifndef MILLRACE_COMMON_SIGNATURES_OP_SIGNATURE_INTERNAL_H
#define MILLRACE_COMMON_SIGNATURES_OP_SIGNATURE_INTERNAL_H

#include "common/signatures/op_signature.h"

/* Sorted by name as strcmp() orders bytes, without repeats. */
extern const struct op_signature op_signature_table[];
extern const size_t op_signature_table_len;

#endif
