/* Sorts pieces and merges them; see pool_sort.h. */
#include "common/base/pool_sort.h"

#include <stdlib.h>

enum { PIECE_LEN = 1 << 15 }; /* a few milliseconds */

struct sort {
    int64_t n;
    size_t size;
    int (*compare)(const void *, const void *);
};

static const char *at(const struct sort *sort, const char *elements, int64_t i) {
    return elements + (size_t)i * sort->size;
}

/* Merges the sorted runs [begin, middle) and [middle, end) of `from` into `to`. False: the work is
 * unwanted, and `to` is not whole. */
static bool merge(const struct sort *sort, const char *from, char *to, int64_t begin,
                  int64_t middle, int64_t end) {
    const char *a = at(sort, from, begin), *b = at(sort, from, middle);
    const char *a_end = b, *b_end = at(sort, from, end);
    to += (size_t)begin * sort->size;
    for (int64_t i = begin; a < a_end && b < b_end; i++, to += sort->size) {
        if (!pool_goes_on(i))
            return false;
        const char **least = sort->compare(a, b) <= 0 ? &a : &b;
        memcpy(to, *least, sort->size);
        *least += sort->size;
    }
    size_t n_left = (size_t)(a_end - a);
    memcpy(to, a, n_left);
    memcpy(to + n_left, b, (size_t)(b_end - b));
    return true;
}

/* Merges neighbours among the sorted runs of `len` elements. */
static bool merge_all(const struct sort *sort, const char *from, char *to, int64_t len) {
    for (int64_t begin = 0; begin < sort->n; begin += 2 * len) {
        int64_t middle = MIN(begin + len, sort->n);
        if (!merge(sort, from, to, begin, middle, MIN(middle + len, sort->n)))
            return false;
    }
    return true;
}

/* Leaves the result in base; `other` has room for as much. */
static bool merge_runs(const struct sort *sort, char *base, char *other) {
    char *from = base, *to = other;
    int64_t len = PIECE_LEN;
    for (; len < sort->n && merge_all(sort, from, to, len); len *= 2) {
        char *merged = to;
        to = from;
        from = merged;
    }
    if (from != base)
        memcpy(base, from, (size_t)sort->n * sort->size);
    return len >= sort->n;
}

bool pool_sort(void *base, int64_t n, size_t size, int (*compare)(const void *, const void *)) {
    struct sort sort = {n, size, compare};
    char *other = n > PIECE_LEN ? malloc((size_t)n * size) : NULL;
    if (!other) {
        if (n > 1)
            qsort(base, (size_t)n, size, compare);
        return true;
    }
    for (int64_t begin = 0; begin < n && (begin == 0 || !pool_is_unwanted()); begin += PIECE_LEN)
        qsort((char *)base + (size_t)begin * size, (size_t)MIN(n - begin, (int64_t)PIECE_LEN), size,
              compare);
    bool is_sorted = merge_runs(&sort, base, other);
    free(other);
    return is_sorted;
}
