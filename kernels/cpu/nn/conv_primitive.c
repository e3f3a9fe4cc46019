/* Makes oneDNN's primitives of convolutions, and keeps them; see conv_primitive.h. */
#include "kernels/cpu/nn/conv_primitive.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_PRIMITIVES = 1024 /* how many are kept; further ones are made for each execution */ };

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
                              const struct conv_shape *s, const struct conv_primitive *p,
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
                                             const struct conv_primitive *p) {
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
                         struct conv_primitive *p) {
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
                 const struct conv_shape *s, struct conv_primitive *p) {
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

void conv_primitive_free(const struct onednn *lib, struct conv_primitive *p) {
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
    struct conv_primitive *buckets[N_BUCKETS]; /* guarded by lock */
    int n;
} primitives = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t bucket_of(const struct conv_primitive_key *key) {
    const int64_t *words = (const int64_t *)(const void *)key;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(*key) / sizeof(int64_t); i++)
        hash = (hash ^ (uint64_t)words[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash % N_BUCKETS;
}

static struct conv_primitive *find(const struct conv_primitive_key *key, size_t bucket) {
    struct conv_primitive *p = primitives.buckets[bucket];
    while (p && memcmp(&p->key, key, sizeof(*key)) != 0)
        p = p->next;
    return p;
}

/* The primitive is made outside of the lock, so two threads that need the same one at the same time
 * may both make it. */
const struct conv_primitive *conv_primitive_obtain(const struct onednn *lib,
                                                   enum conv_direction direction,
                                                   const struct conv_shape *s,
                                                   struct conv_primitive **ret_owned) {
    struct conv_primitive_key key;
    memset(&key, 0, sizeof(key));
    key.shape = *s;
    key.direction = direction;
    size_t bucket = bucket_of(&key);
    *ret_owned = NULL;
    pthread_mutex_lock(&primitives.lock);
    struct conv_primitive *found = find(&key, bucket);
    pthread_mutex_unlock(&primitives.lock);
    if (found)
        return found;
    struct conv_primitive *made = xcalloc(1, sizeof(*made));
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
