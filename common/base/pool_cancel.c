/* Sets and copies memory in pieces, between which a cancel is seen; see pool_cancel.h. */
#include "common/base/pool_cancel.h"

enum { PIECE_BYTES = POOL_CLEARED_AT_ONCE_BYTES };

void pool_clear(void *to, size_t size) {
    for (size_t at = 0; at < size && (at == 0 || !pool_is_unwanted()); at += PIECE_BYTES)
        memset((char *)to + at, 0, MIN(size - at, (size_t)PIECE_BYTES));
}

void pool_copy_pieces(void *to, const void *from, size_t size) {
    for (size_t at = 0; at < size && (at == 0 || !pool_is_unwanted()); at += PIECE_BYTES)
        memcpy((char *)to + at, (const char *)from + at, MIN(size - at, (size_t)PIECE_BYTES));
}
