/* Lets long work on compute threads see that nobody wants its result any more. Any thread. */
#ifndef MILLRACE_COMMON_BASE_POOL_CANCEL_H
#define MILLRACE_COMMON_BASE_POOL_CANCEL_H

#include "common/base/base.h"

/* Answers whether the result of some work is of no use any more; any thread. Once it has said so,
 * it must go on to say so. */
struct pool_cancel {
    bool (*is_unwanted)(void *arg);
    void *arg;
};

/* While it is set on a thread, the loops that this thread starts (pool_parallel_for) ask it every
 * few milliseconds, on each thread that works for them. Once the work is unwanted they leave out
 * the ranges that have not begun, so the caller of pool_parallel_for must drop the result. Until it
 * does, it must not use what it finds there as an index. NULL: loops run to their end. Returns what
 * was set before, for the caller to set again. */
const struct pool_cancel *pool_set_cancel(const struct pool_cancel *cancel);

/* Asks what is set on this thread; false where nothing is. Long work that is no loop of the pool
 * asks it at least once in 10 ms, and ends early, with any result, once it is unwanted. */
bool pool_is_unwanted(void);

/* The condition of a loop over cheap elements: may it go on to element i? Asks once in 65536. */
static inline bool pool_goes_on(int64_t i) { return (i & 0xffff) != 0 || !pool_is_unwanted(); }

/* The same for a loop over rows of `len` elements. */
static inline bool pool_goes_on_rows(int64_t row, int64_t len) {
    return (row * len) >> 16 == ((row - 1) * len) >> 16 || !pool_is_unwanted();
}

/* Runs its statement for pieces [begin, end) of [first, n), one after the other, and asks between
 * two pieces. For a loop that the compiler vectorises, or where a question for each element costs
 * too much: the statement is the loop from begin to end. */
enum { POOL_PIECE = 1 << 16 };
#define POOL_PIECES(begin, end, first, n) POOL_PIECES_OF(POOL_PIECE, begin, end, first, n)
/* The same for rows of `len` elements. */
#define POOL_ROW_PIECES(begin, end, n, len) \
    POOL_PIECES_OF(MAX(POOL_PIECE / MAX((len), (int64_t)1), (int64_t)1), begin, end, 0, n)
#define POOL_PIECES_OF(step, begin, end, first, n)                           \
    for (int64_t begin = (first), end, begin##_step = (step);                \
         begin < (n) && (begin == (first) || likely(!pool_is_unwanted())) && \
         (end = MIN(begin + begin##_step, (n)), true);                       \
         begin = end)

/* Sets memory to zero, or copies it, as memset and memcpy do. Large memory, whose first use takes
 * milliseconds for a page fault each 4 KiB, is left unfinished once the work is unwanted. */
enum { POOL_CLEARED_AT_ONCE_BYTES = 8 << 20 };
void pool_clear(void *to, size_t size);
void pool_copy_pieces(void *to, const void *from, size_t size);
static inline void pool_copy(void *to, const void *from, size_t size) {
    enum { SMALL_BYTES = 1 << 20 };
    if (likely(size > 0 && size <= SMALL_BYTES))
        memcpy(to, from, size);
    else
        pool_copy_pieces(to, from, size);
}

#endif
