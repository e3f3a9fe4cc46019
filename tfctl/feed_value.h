/* Parses the value of a feed on a command line.
 *
 *   @FILE.npy            the array in the file
 *   3                    int32, a scalar
 *   1.5  1e3  inf        float, a scalar
 *   true  false          bool, a scalar
 *   "text"               string, a scalar; escapes \n \t \" \\ \x07; in a shell 'name="text"'
 *   int64[2,2]{1, 2, 3, 4}   any dtype and shape, as tfctl prints tensors; int64[]{3} is a scalar,
 *                            float[100]{0, …} repeats the last element */
#ifndef MILLRACE_TFCTL_FEED_VALUE_H
#define MILLRACE_TFCTL_FEED_VALUE_H

#include "common/tensor/tensor.h"

/* Errors: INVALID_ARGUMENT for any other text; those of reading the file. */
struct status *feed_value_parse(const char *text, struct tensor *ret) MUST_USE;

#endif
