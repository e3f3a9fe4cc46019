/* Runs strided copies; see strided.h. The two innermost loops are a kernel per element size and
 * pattern. The other loops count indices like an odometer. */
#include "kernels/support/strided.h"

#include "kernels/support/transpose.h"

/* A copy of fewer output bytes than this never leaves its thread. */
enum { PARALLEL_MIN_BYTES = 256 * 1024 };

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
        inner(to, from, &in);
        return;
    }
    int64_t index[STRIDED_MAX_LOOPS];
    memset(index, 0, sizeof(index[0]) * (size_t)n_outer);
    int64_t to_at = 0, from_at = 0;
    for (;;) {
        inner(to + to_at * (int64_t)size, from + from_at * (int64_t)size, &in);
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
    order_loops(s);
    inner_fn *inner = inner_for(dtype);
    if (!pool || n * (int64_t)size < PARALLEL_MIN_BYTES) {
        walk(s, inner, size, to, from);
        return;
    }
    /* order_loops may have swapped the loops, so the widest is searched again */
    for (int i = 0; i < s->n_loops; i++) {
        if (s->dims[i] > s->dims[widest])
            widest = i;
    }
    struct share share = {s, inner, size, to, from, (int)widest};
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
