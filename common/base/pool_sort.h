/* Sorts in pieces, between which a cancel is seen (pool_cancel.h). Any thread. */
#ifndef MILLRACE_COMMON_BASE_POOL_SORT_H
#define MILLRACE_COMMON_BASE_POOL_SORT_H

#include "common/base/pool_cancel.h"

/* Sorts n elements of `size` bytes each, as qsort does. Once the work is unwanted it ends early and
 * returns false: the elements are all there, but not in order. Many elements need the memory of as
 * many again; where there is none for them, it sorts without asking. */
bool pool_sort(void *base, int64_t n, size_t size, int (*compare)(const void *, const void *));

#endif
