/* Computes convolutions of floats by oneDNN. A primitive is made once for each shape and direction,
 * and all nodes, steps and threads share it.
 *
 * Activations keep TensorFlow's layout (channels last). The filter is reordered into the layout
 * that the primitive wants, once for each execution. The batch is split into equal shares. Each
 * share runs on one thread of our pool with the same primitive. The filter gradients of the shares
 * are added in order.
 *
 *   in, out   [n, spatial, c] ──────────────┐
 *   filter    [spatial, i, o] ── reorder ── primitive (per share) ── result
 *
 * conv_gemm.c computes what oneDNN refuses, or would compute with its reference code. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/onednn.h"
#include "kernels/support/scratch.h"

enum {
    MAX_PRIMITIVES = 1024, /* how many are kept; further ones are made for each execution */
    MAX_FILTER_SHARES = 16,
    LEAST_SHARE = 4000000,        /* multiplications that are worth waking a thread */
    LEAST_GROUPED_SHARE = 500000, /* with groups each multiplication is slower */
};

struct primitive_key {
    struct conv_shape shape; /* the shape of one share */
    int64_t direction;
};

/* A primitive is immutable once it is in the table. It is never freed then, since MAX_PRIMITIVES
 * bounds their number. */
struct primitive {
    struct primitive_key key;
    bool is_usable; /* false: oneDNN has no good implementation for the shape */
    bool reorders;  /* the primitive wants a filter layout of its own */
    dnnl_primitive_t compute, reorder;
    dnnl_memory_desc_t in, out, filter, own_filter, scratch;
    int64_t filter_bytes, scratch_bytes; /* the size of own_filter */
    struct primitive *next;
};

/* ---- making a primitive ---- */

struct layout {
    int n_dims, n_spatial, first; /* leading spatial dimensions of size one are left out */
    bool is_grouped;
};

static struct layout layout_of(const struct conv_shape *s) {
    int first = s->in[0] == 1 && s->out[0] == 1 && s->window[0] == 1 ? 1 : 0;
    return (struct layout){
        .n_dims = 5 - first, .n_spatial = 3 - first, .first = first, .is_grouped = s->groups > 1};
}

static dnnl_status_t describe_activation(const struct onednn *lib, const struct conv_shape *s,
                                         const int64_t spatial[3], int64_t channels,
                                         dnnl_memory_desc_t *ret) {
    struct layout layout = layout_of(s);
    dnnl_dims_t dims = {s->batch, channels};
    for (int i = 0; i < layout.n_spatial; i++)
        dims[2 + i] = spatial[layout.first + i];
    return lib->memory_desc_init_by_tag(ret, layout.n_dims, dims, dnnl_f32,
                                        layout.n_dims == 4 ? dnnl_nhwc : dnnl_ndhwc);
}

static dnnl_status_t describe_filter(const struct onednn *lib, const struct conv_shape *s, bool any,
                                     dnnl_memory_desc_t *ret) {
    struct layout layout = layout_of(s);
    int64_t group_in = s->in_channels / s->groups, group_out = s->out_channels / s->groups,
            step = group_in * s->out_channels;
    dnnl_dims_t dims, strides;
    int n = 0;
    if (layout.is_grouped)
        dims[n] = s->groups, strides[n++] = group_out;
    dims[n] = group_out, strides[n++] = 1;
    dims[n] = group_in, strides[n++] = s->out_channels;
    for (int i = layout.n_spatial - 1; i >= 0; i--) {
        dims[n + i] = s->window[layout.first + i];
        strides[n + i] = step;
        step *= dims[n + i];
    }
    n += layout.n_spatial;
    if (any)
        return lib->memory_desc_init_by_tag(ret, n, dims, dnnl_f32, dnnl_format_tag_any);
    return lib->memory_desc_init_by_strides(ret, n, dims, dnnl_f32, strides);
}

static dnnl_status_t describe(const struct onednn *lib, enum conv_direction direction,
                              const struct conv_shape *s, const struct primitive *p,
                              const dnnl_memory_desc_t *filter, dnnl_convolution_desc_t *ret) {
    struct layout layout = layout_of(s);
    dnnl_dims_t strides, rates, before, after;
    for (int i = 0; i < layout.n_spatial; i++) {
        int at = layout.first + i;
        strides[i] = s->stride[at];
        rates[i] = s->rate[at] - 1;
        before[i] = s->pad_before[at];
        /* Just enough padding for the last window position. Input beyond it is not read. */
        after[i] = (s->out[at] - 1) * s->stride[at] + (s->window[at] - 1) * s->rate[at] + 1 -
                   s->in[at] - before[i];
    }
    switch (direction) {
    case CONV_FORWARD:
        return lib->dilated_convolution_forward_desc_init(
            ret, dnnl_forward_inference, dnnl_convolution_direct, &p->in, filter, NULL, &p->out,
            strides, rates, before, after);
    case CONV_BACKPROP_INPUT:
        return lib->dilated_convolution_backward_data_desc_init(
            ret, dnnl_convolution_direct, &p->in, filter, &p->out, strides, rates, before, after);
    default:
        return lib->dilated_convolution_backward_weights_desc_init(ret, dnnl_convolution_direct,
                                                                   &p->in, filter, NULL, &p->out,
                                                                   strides, rates, before, after);
    }
}

static bool is_good(const struct onednn *lib, dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    return lib->primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           name && !strstr(name, "ref") && !strstr(name, "gemm");
}

/* The descriptors of gradients need the forward descriptor as a hint. */
static dnnl_primitive_desc_t make_descriptor(const struct onednn *lib,
                                             enum conv_direction direction,
                                             const struct conv_shape *s,
                                             const struct primitive *p) {
    dnnl_memory_desc_t any;
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    if (describe_filter(lib, s, true, &any) != dnnl_success)
        return NULL;
    if (direction != CONV_FORWARD &&
        (describe(lib, CONV_FORWARD, s, p, &any, &description) != dnnl_success ||
         lib->primitive_desc_create(&hint, &description, lib->attr, lib->engine, NULL) !=
             dnnl_success))
        return NULL;
    if (describe(lib, direction, s, p, &any, &description) != dnnl_success ||
        lib->primitive_desc_create(&pd, &description, lib->attr, lib->engine, hint) != dnnl_success)
        pd = NULL;
    if (hint)
        lib->primitive_desc_destroy(hint);
    return pd;
}

static bool make_reorder(const struct onednn *lib, enum conv_direction direction,
                         struct primitive *p) {
    bool is_result = direction == CONV_BACKPROP_FILTER;
    const dnnl_memory_desc_t *from = is_result ? &p->own_filter : &p->filter,
                             *to = is_result ? &p->filter : &p->own_filter;
    dnnl_primitive_desc_t pd = NULL;
    if (lib->reorder_primitive_desc_create(&pd, from, lib->engine, to, lib->engine, lib->attr) !=
        dnnl_success)
        return false;
    const dnnl_memory_desc_t *scratch =
        lib->primitive_desc_query_md(pd, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
    bool ok = (!scratch || lib->memory_desc_get_size(scratch) == 0) &&
              lib->primitive_create(&p->reorder, pd) == dnnl_success;
    lib->primitive_desc_destroy(pd);
    return ok;
}

static bool fill(const struct onednn *lib, enum conv_direction direction,
                 const struct conv_shape *s, struct primitive *p) {
    if (describe_activation(lib, s, s->in, s->in_channels, &p->in) != dnnl_success ||
        describe_activation(lib, s, s->out, s->out_channels, &p->out) != dnnl_success ||
        describe_filter(lib, s, false, &p->filter) != dnnl_success)
        return false;
    dnnl_primitive_desc_t pd = make_descriptor(lib, direction, s, p);
    if (!pd)
        return false;
    int filter_arg = direction == CONV_BACKPROP_FILTER ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
    bool ok = is_good(lib, pd) && lib->primitive_create(&p->compute, pd) == dnnl_success;
    if (ok) {
        p->own_filter = *lib->primitive_desc_query_md(pd, dnnl_query_exec_arg_md, filter_arg);
        p->scratch = *lib->primitive_desc_query_md(pd, dnnl_query_exec_arg_md, DNNL_ARG_SCRATCHPAD);
        p->filter_bytes = (int64_t)lib->memory_desc_get_size(&p->own_filter);
        p->scratch_bytes = (int64_t)lib->memory_desc_get_size(&p->scratch);
        p->reorders = !lib->memory_desc_equal(&p->own_filter, &p->filter);
        ok = !p->reorders || make_reorder(lib, direction, p);
    }
    lib->primitive_desc_destroy(pd);
    return ok;
}

static void primitive_free(const struct onednn *lib, struct primitive *p) {
    if (p->compute)
        lib->primitive_destroy(p->compute);
    if (p->reorder)
        lib->primitive_destroy(p->reorder);
    free(p);
}

/* ---- the table of primitives ---- */

enum { N_BUCKETS = 256 };
static struct {
    pthread_mutex_t lock;
    struct primitive *buckets[N_BUCKETS]; /* guarded by lock */
    int n;
} primitives = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t bucket_of(const struct primitive_key *key) {
    const int64_t *words = (const int64_t *)(const void *)key;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(*key) / sizeof(int64_t); i++)
        hash = (hash ^ (uint64_t)words[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash % N_BUCKETS;
}

static struct primitive *find(const struct primitive_key *key, size_t bucket) {
    struct primitive *p = primitives.buckets[bucket];
    while (p && memcmp(&p->key, key, sizeof(*key)) != 0)
        p = p->next;
    return p;
}

/* Returns the primitive of a share. *ret_owned is what the caller frees, and NULL when the table
 * keeps the primitive. The primitive is made outside of the lock, so two threads that need the same
 * one at the same time may both make it. */
static const struct primitive *obtain(const struct onednn *lib, enum conv_direction direction,
                                      const struct conv_shape *s, struct primitive **ret_owned) {
    struct primitive_key key;
    memset(&key, 0, sizeof(key));
    key.shape = *s;
    key.direction = direction;
    size_t bucket = bucket_of(&key);
    *ret_owned = NULL;
    pthread_mutex_lock(&primitives.lock);
    struct primitive *found = find(&key, bucket);
    pthread_mutex_unlock(&primitives.lock);
    if (found)
        return found;
    struct primitive *made = xcalloc(1, sizeof(*made));
    made->key = key;
    made->is_usable = fill(lib, direction, s, made);
    pthread_mutex_lock(&primitives.lock);
    found = find(&key, bucket);
    if (!found && primitives.n < MAX_PRIMITIVES) {
        primitives.n++;
        made->next = primitives.buckets[bucket];
        primitives.buckets[bucket] = made;
        pthread_mutex_unlock(&primitives.lock);
        return made;
    }
    pthread_mutex_unlock(&primitives.lock);
    *ret_owned = made;
    return made;
}

/* ---- executing ---- */

struct onednn_job {
    const struct kernel_ctx *ctx;
    const struct primitive *primitive;
    enum conv_direction direction;
    const struct conv_operands *operands;
    /* in the primitive's layout; for the filter's gradient one for each share */
    char *filter;
    int64_t in_bytes, out_bytes; /* of one share */
    struct status *failure;      /* the first failure */
};

static struct status *execute(const struct onednn *lib, dnnl_primitive_t primitive, int n,
                              const int *args, const dnnl_memory_desc_t *const *descriptions,
                              void *const *data) {
    dnnl_exec_arg_t bound[4];
    dnnl_status_t status = dnnl_success;
    int n_made = 0;
    for (; n_made < n && status == dnnl_success; n_made++) {
        bound[n_made] = (dnnl_exec_arg_t){.arg = args[n_made]};
        status = lib->memory_create(&bound[n_made].memory, descriptions[n_made], lib->engine,
                                    data[n_made]);
        if (status != dnnl_success)
            break;
    }
    if (status == dnnl_success)
        status = lib->primitive_execute(primitive, lib->stream, n, bound);
    while (n_made-- > 0)
        lib->memory_destroy(bound[n_made].memory);
    return status == dnnl_success ? NULL
                                  : status_internal("oneDNN failed with status %d", (int)status);
}

static struct status *run_share(const struct onednn_job *job, int64_t share) {
    const struct primitive *p = job->primitive;
    const struct conv_operands *o = job->operands;
    const struct onednn *lib = onednn_get();
    struct tensor scratch = TENSOR_INIT;
    void *scratch_data;
    TRY(scratch_new(job->ctx, DT_UINT8, MAX(p->scratch_bytes, 1), 1, &scratch, &scratch_data));
    bool is_forward = job->direction == CONV_FORWARD,
         is_filter = job->direction == CONV_BACKPROP_FILTER;
    char *in = (char *)(uintptr_t)(job->direction == CONV_BACKPROP_INPUT ? o->result : o->in) +
               share * job->in_bytes;
    char *out = (char *)(uintptr_t)(is_forward ? o->result : o->out) + share * job->out_bytes;
    char *filter = job->filter + (is_filter ? share * p->filter_bytes : 0);
    const int args[] = {job->direction == CONV_BACKPROP_INPUT ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
                        is_filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
                        is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD};
    struct status *st =
        execute(lib, p->compute, 4, args,
                (const dnnl_memory_desc_t *const[]){&p->in, &p->own_filter, &p->out, &p->scratch},
                (void *const[]){in, filter, out, scratch_data});
    tensor_clear(&scratch);
    return st;
}

static void shares_range(void *arg, int64_t begin, int64_t end) {
    struct onednn_job *job = arg;
    for (; begin < end; begin++) {
        struct status *st = run_share(job, begin), *none = NULL;
        if (st && !__atomic_compare_exchange_n(&job->failure, &none, st, false, __ATOMIC_ACQ_REL,
                                               __ATOMIC_ACQUIRE))
            status_unref(st);
    }
}

VECTOR_CLONES
static void add_floats(float *to, const float *from, int64_t n) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static struct status *reorder_filter(const struct primitive *p, bool is_result, void *plain,
                                     void *own) {
    const struct onednn *lib = onednn_get();
    const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    if (is_result)
        return execute(lib, p->reorder, 2, args,
                       (const dnnl_memory_desc_t *const[]){&p->own_filter, &p->filter},
                       (void *const[]){own, plain});
    return execute(lib, p->reorder, 2, args,
                   (const dnnl_memory_desc_t *const[]){&p->filter, &p->own_filter},
                   (void *const[]){plain, own});
}

static struct status *run_primitive(const struct kernel_ctx *ctx, const struct primitive *p,
                                    enum conv_direction direction, int64_t n_shares, double cost_ns,
                                    const struct conv_operands *operands) {
    const struct conv_shape *share = &p->key.shape;
    struct onednn_job job = {
        .ctx = ctx, .primitive = p, .direction = direction, .operands = operands};
    job.in_bytes =
        share->batch * conv_n_positions(share->in) * share->in_channels * (int64_t)sizeof(float);
    job.out_bytes =
        share->batch * conv_n_positions(share->out) * share->out_channels * (int64_t)sizeof(float);
    bool is_result = direction == CONV_BACKPROP_FILTER;
    void *plain = is_result ? operands->result : (void *)(uintptr_t)operands->filter;
    struct tensor scratch = TENSOR_INIT;
    struct status *st = NULL;
    job.filter = plain;
    if (p->reorders || (is_result && n_shares > 1))
        TRY_OUT(scratch_new(ctx, DT_UINT8, is_result ? n_shares : 1, p->filter_bytes, &scratch,
                            &job.filter));
    if (p->reorders && !is_result)
        TRY_OUT(reorder_filter(p, false, plain, job.filter));
    pool_parallel_for(ctx->pool, n_shares, cost_ns, shares_range, &job);
    TRY_OUT(job.failure);
    if (!is_result)
        goto out;
    for (int64_t i = 1; i < n_shares; i++)
        add_floats((float *)(void *)job.filter, (float *)(void *)(job.filter + i * p->filter_bytes),
                   p->filter_bytes / 4);
    if (p->reorders)
        st = reorder_filter(p, true, plain, job.filter);
    else if (job.filter != plain)
        memcpy(plain, job.filter, (size_t)p->filter_bytes);
out:
    tensor_clear(&scratch);
    return st;
}

/* oneDNN's generated code counts bytes in 32 bits in some places. */
static bool fits(const struct conv_shape *s) {
    const double limit = 1u << 29;
    return (double)s->batch * (double)s->in_channels * (double)conv_n_positions(s->in) < limit &&
           (double)s->batch * (double)s->out_channels * (double)conv_n_positions(s->out) < limit;
}

struct status *conv_by_onednn(const struct kernel_ctx *ctx, enum conv_direction direction,
                              const struct conv_shape *shape, const struct conv_operands *operands,
                              bool *ret_done) {
    *ret_done = false;
    const struct onednn *lib = onednn_get();
    if (!lib)
        return NULL;
    int64_t images =
        conv_images_per_share(shape, shape->groups > 1 ? LEAST_GROUPED_SHARE : LEAST_SHARE);
    if (!fits(shape))
        return NULL;
    while (direction == CONV_BACKPROP_FILTER &&
           (shape->batch / images > MAX_FILTER_SHARES || shape->batch % images != 0))
        images++;
    struct conv_shape share = *shape;
    share.batch = images;
    struct primitive *owned;
    const struct primitive *p = obtain(lib, direction, &share, &owned);
    struct status *st = NULL;
    if (p->is_usable) {
        st = run_primitive(
            ctx, p, direction, shape->batch / images,
            conv_n_multiplications(&share) * (shape->groups > 1 ? 0.04 : 0.01) + 2000, operands);
        *ret_done = true;
    }
    if (owned)
        primitive_free(lib, owned);
    return st;
}
