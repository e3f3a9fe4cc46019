/* Runs strided copies; see strided.h. The two innermost loops are a kernel per element size and
 * pattern. The other loops count indices like an odometer. */
#include "kernels/support/strided.h"

#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/transpose.h"

/* A copy of fewer output bytes than this never leaves its thread. */
enum { PARALLEL_MIN_BYTES = 256 * 1024 };

/* Elements that are copied without asking whether anybody wants them: some milliseconds. A piece
 * has at least INNER_ROWS rows, of which a transpose makes whole blocks. */
enum { INNER_MOST = 1 << 18, INNER_ROWS = 64 };
/* The same for the memory between elements that are far apart. */
enum { FAR_ELEMENTS = 1 << 20 };

/* The two innermost loops: n1 iterations of n0 iterations. */
struct inner {
    int64_t n1, n0;
    int64_t from1, from0, to1, to0;
};

#define NAME(x) x##_u8
#define T uint8_t
#include "kernels/support/strided_inner.inc"
#define NAME(x) x##_u16
#define T uint16_t
#include "kernels/support/strided_inner.inc"
#define NAME(x) x##_u32
#define T uint32_t
#include "kernels/support/strided_inner.inc"
#define NAME(x) x##_u64
#define T uint64_t
#include "kernels/support/strided_inner.inc"
#define NAME(x) x##_u128
#define T struct wide_element
#include "kernels/support/strided_inner.inc"

static void inner_object(char *to_bytes, const char *from_bytes, const struct inner *in) {
    struct object **to = (struct object **)(void *)to_bytes;
    struct object *const *from = (struct object *const *)(const void *)from_bytes;
    for (int64_t i1 = 0; i1 < in->n1; i1++) {
        for (int64_t i0 = 0; i0 < in->n0; i0++) {
            struct object **at = &to[i1 * in->to1 + i0 * in->to0], *old = *at;
            *at = object_ref(from[i1 * in->from1 + i0 * in->from0]);
            object_unref(old);
        }
    }
}

typedef void inner_fn(char *to, const char *from, const struct inner *in);

static inner_fn *inner_for(enum dtype dtype) {
    if (dtype_is_object(dtype))
        return inner_object;
    switch (dtype_size(dtype)) {
    case 1:
        return inner_u8;
    case 2:
        return inner_u16;
    case 4:
        return inner_u32;
    case 8:
        return inner_u64;
    default:
        return inner_u128;
    }
}

static void swap_loops(struct strided *s, int a, int b) {
    int64_t dims = s->dims[a], from = s->from[a], to = s->to[a];
    s->dims[a] = s->dims[b];
    s->from[a] = s->from[b];
    s->to[a] = s->to[b];
    s->dims[b] = dims;
    s->from[b] = from;
    s->to[b] = to;
}

/* When the innermost loop walks `to` element by element, the loop that walks `from` element by
 * element is moved next to it. The two loops are then a blocked transpose. */
static void order_loops(struct strided *s) {
    int last = s->n_loops - 1;
    if (last < 1 || s->to[last] != 1 || s->from[last] == 1 || s->from[last] == 0)
        return;
    for (int i = 0; i < last - 1; i++) {
        if (s->from[i] == 1) {
            swap_loops(s, i, last - 1);
            return;
        }
    }
}

/* Runs the two innermost loops, which may be all of a copy, in pieces of some milliseconds. False:
 * nobody wants the rest. */
static COLD bool run_inner_pieces(inner_fn *inner, size_t size, char *to, const char *from,
                                  const struct inner *in) {
    int64_t rows = MAX(INNER_MOST / MAX(in->n0, (int64_t)1), INNER_ROWS);
    struct inner piece = *in;
    for (int64_t i = 0; i < in->n1 && (i == 0 || !pool_is_unwanted()); i += rows) {
        piece.n1 = MIN(rows, in->n1 - i);
        inner(to + i * in->to1 * (int64_t)size, from + i * in->from1 * (int64_t)size, &piece);
    }
    return !pool_is_unwanted();
}

static inline bool run_inner(inner_fn *inner, size_t size, char *to, const char *from,
                             const struct inner *in) {
    if (unlikely(in->n1 > INNER_ROWS && in->n1 * in->n0 > INNER_MOST))
        return run_inner_pieces(inner, size, to, from, in);
    inner(to, from, in);
    return true;
}

static void walk(const struct strided *s, inner_fn *inner, size_t size, char *to,
                 const char *from) {
    int n_outer = MAX(s->n_loops - 2, 0);
    struct inner in = {1, 1, 0, 0, 0, 0};
    if (s->n_loops >= 1) {
        in.n0 = s->dims[s->n_loops - 1];
        in.from0 = s->from[s->n_loops - 1];
        in.to0 = s->to[s->n_loops - 1];
    }
    if (s->n_loops >= 2) {
        in.n1 = s->dims[s->n_loops - 2];
        in.from1 = s->from[s->n_loops - 2];
        in.to1 = s->to[s->n_loops - 2];
    }
    if (n_outer == 0) {
        run_inner(inner, size, to, from, &in);
        return;
    }
    int64_t n_done = 0;
    int64_t index[STRIDED_MAX_LOOPS];
    memset(index, 0, sizeof(index[0]) * (size_t)n_outer);
    int64_t to_at = 0, from_at = 0;
    for (;;) {
        if (!run_inner(inner, size, to + to_at * (int64_t)size, from + from_at * (int64_t)size,
                       &in))
            return;
        n_done += in.n0 * in.n1;
        if (unlikely(n_done >= INNER_MOST)) {
            if (pool_is_unwanted())
                return;
            n_done = 0;
        }
        int i = n_outer - 1;
        for (; i >= 0; i--) {
            to_at += s->to[i];
            from_at += s->from[i];
            if (++index[i] < s->dims[i])
                break;
            to_at -= s->to[i] * s->dims[i];
            from_at -= s->from[i] * s->dims[i];
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

struct share {
    const struct strided *s;
    inner_fn *inner;
    size_t size;
    char *to;
    const char *from;
    int loop; /* the loop whose iterations are split among the threads */
};

static void run_share(void *arg, int64_t begin, int64_t end) {
    const struct share *share = arg;
    struct strided own;
    own.n_loops = share->s->n_loops;
    size_t loops_bytes = (size_t)own.n_loops * sizeof(own.dims[0]);
    memcpy(own.dims, share->s->dims, loops_bytes);
    memcpy(own.from, share->s->from, loops_bytes);
    memcpy(own.to, share->s->to, loops_bytes);
    own.dims[share->loop] = end - begin;
    int64_t size = (int64_t)share->size;
    walk(&own, share->inner, share->size, share->to + begin * own.to[share->loop] * size,
         share->from + begin * own.from[share->loop] * size);
}

static int widest_loop(const struct strided *s) {
    int widest = 0;
    for (int i = 1; i < s->n_loops; i++)
        if (s->dims[i] > s->dims[widest])
            widest = i;
    return widest;
}

/* Copies few elements that are far apart, as a diagonal's are. Each may be the first that is
 * written to its page, which then takes far longer than the copy. */
static COLD void run_far(const struct share *share) {
    const struct strided *s = share->s;
    int64_t n = s->dims[share->loop],
            step = MAX(FAR_ELEMENTS / MAX(llabs(s->to[share->loop]), (int64_t)1), (int64_t)1);
    for (int64_t begin = 0; begin < n && !pool_is_unwanted(); begin += step)
        run_share((void *)(uintptr_t)share, begin, MIN(begin + step, n));
}

void strided_run(struct strided *s, enum dtype dtype, void *to, const void *from,
                 struct pool *pool) {
    int64_t n = 1, widest = 0;
    for (int i = 0; i < s->n_loops; i++) {
        n *= s->dims[i];
        if (s->dims[i] > s->dims[widest])
            widest = i;
    }
    if (n == 0)
        return;
    size_t size = dtype_size(dtype);
    bool is_run = s->n_loops == 0 || (s->n_loops == 1 && s->from[0] == 1 && s->to[0] == 1);
    if (is_run && n * (int64_t)size < PARALLEL_MIN_BYTES && !dtype_is_object(dtype)) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    bool is_far = s->n_loops > 0 && s->dims[widest] * llabs(s->to[widest]) > FAR_ELEMENTS;
    order_loops(s);
    inner_fn *inner = inner_for(dtype);
    if (n * (int64_t)size < PARALLEL_MIN_BYTES && likely(!is_far)) {
        walk(s, inner, size, to, from);
        return;
    }
    /* order_loops may have swapped the loops, so the widest is searched again */
    widest = widest_loop(s);
    struct share share = {s, inner, size, to, from, (int)widest};
    if (n * (int64_t)size < PARALLEL_MIN_BYTES) {
        run_far(&share);
        return;
    }
    /* Contiguous rows are copied at about 10 GB/s, other elements take a nanosecond each. */
    double element_ns =
        s->from[s->n_loops - 1] == 1 || s->from[s->n_loops - 1] == 0 ? (double)size * 0.1 : 1.0;
    pool_parallel_for(pool, s->dims[widest], element_ns * ((double)n / (double)s->dims[widest]),
                      run_share, &share);
}

void strided_copy_run(enum dtype dtype, void *to, const void *from, int64_t n, struct pool *pool) {
    struct strided s;
    strided_init(&s);
    strided_add(&s, n, 1, 1);
    strided_run(&s, dtype, to, from, pool);
}

void strided_fill(enum dtype dtype, void *to, const void *value, int64_t n, struct pool *pool) {
    struct strided s;
    strided_init(&s);
    strided_add(&s, n, 0, 1);
    strided_run(&s, dtype, to, value, pool);
}
