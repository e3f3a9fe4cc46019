/* Runs ExtractImagePatches and ExtractVolumePatches: puts what a sliding window covers into the
 * channels.
 *
 *   input    T [batch, spatial, channels]
 *   patches  T [batch, out spatial, taps · channels], tap by tap; zeros outside of the input
 *
 * Errors   INVALID_ARGUMENT   an input of another rank, sizes that do not fit
 *          UNIMPLEMENTED      sizes, strides or rates of batch or channels */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/conv_internal.h"

struct patches_state {
    struct window_attrs attrs;
    enum dtype dtype;
};

/* Numbers below 1 have a message and a code of their own. */
static struct status *check_range(const struct node *node) {
    static const char *const names[] = {"ksizes", "strides", "rates"};
    for (int i = 0; i < 3; i++) {
        const struct attr_value *values;
        int n;
        if (!node_attr(node, names[i]))
            continue;
        TRY(node_get_list(node, names[i], &values, &n));
        for (int k = 0; k < n; k++) {
            if (values[k].i <= 0)
                return status_out_of_range("%s is out of range.", names[i]);
        }
    }
    return NULL;
}

struct status *patches_init(struct kernel_init *init) {
    struct patches_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(check_range(init->node));
    TRY(window_attrs_read(init->node, *(const int *)init->arg, &state->attrs));
    const struct window_list *lists[] = {&state->attrs.size, &state->attrs.strides,
                                         &state->attrs.rates};
    static const char *const names[] = {"ksizes", "strides", "rates"};
    for (int i = 0; i < 3; i++) {
        if (lists[i]->batch != 1 || lists[i]->channel != 1)
            return status_unimplemented("Only support %s across space.", names[i]);
    }
    return NULL;
}

struct patches_job {
    const struct conv_shape *shape;
    const char *in;
    char *out;
    int64_t pixel; /* bytes */
};

enum { LARGE_PIXEL = 1 << 16 }; /* bytes that are worth a question */

static void copy_position(const struct patches_job *job, const char *image,
                          const int64_t position[3], char *to) {
    const struct conv_shape *s = job->shape;
    int64_t tap[3], at[3];
    for (tap[0] = 0; tap[0] < s->window[0]; tap[0]++) {
        for (tap[1] = 0; tap[1] < s->window[1]; tap[1]++) {
            for (tap[2] = 0; tap[2] < s->window[2]; tap[2]++, to += job->pixel) {
                if (unlikely(job->pixel >= LARGE_PIXEL) && pool_is_unwanted())
                    return;
                bool is_inside = true;
                for (int i = 0; i < 3; i++) {
                    at[i] = position[i] * s->stride[i] - s->pad_before[i] + tap[i] * s->rate[i];
                    is_inside &= at[i] >= 0 && at[i] < s->in[i];
                }
                if (is_inside)
                    pool_copy(to,
                              image + ((at[0] * s->in[1] + at[1]) * s->in[2] + at[2]) * job->pixel,
                              (size_t)job->pixel);
                else
                    pool_clear(to, (size_t)job->pixel);
            }
        }
    }
}

static void positions_range(void *arg, int64_t begin, int64_t end) {
    const struct patches_job *job = arg;
    const struct conv_shape *s = job->shape;
    int64_t n_positions = conv_n_positions(s->out),
            patch = conv_n_positions(s->window) * job->pixel,
            image = conv_n_positions(s->in) * job->pixel;
    for (; begin < end; begin++) {
        int64_t rest = begin % n_positions, position[3];
        for (int i = 2; i >= 0; i--) {
            position[i] = rest % s->out[i];
            rest /= s->out[i];
        }
        copy_position(job, job->in + begin / n_positions * image, position,
                      job->out + begin * patch);
    }
}

enum kernel_result patches_compute(struct kernel_ctx *ctx) {
    const struct patches_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    int n_spatial = state->attrs.n_spatial, rank = n_spatial + 2;
    struct conv_shape s = {.in = {1, 1, 1},
                           .out = {1, 1, 1},
                           .window = {1, 1, 1},
                           .stride = {1, 1, 1},
                           .rate = {1, 1, 1}};
    int64_t dims[WINDOW_MAX_RANK];
    if (in->rank != rank)
        return kernel_fail(
            ctx, status_invalid("input must be %d-dimensional, but has rank %d", rank, in->rank));
    s.batch = dims[0] = tensor_dim(in, 0);
    s.in_channels = dims[rank - 1] = tensor_dim(in, rank - 1);
    for (int i = 0; i < n_spatial; i++) {
        KERNEL_TRY(ctx, conv_fit_dim(&state->attrs, i, tensor_dim(in, 1 + i),
                                     state->attrs.size.spatial[i], &s, &dims[1 + i]));
        if (mul_overflows_i64(dims[rank - 1], state->attrs.size.spatial[i], &dims[rank - 1]))
            return kernel_fail(ctx, status_invalid("Depth of the patches is beyond 2**63 - 1"));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, (struct shape){rank, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    struct patches_job job = {&s, tensor_cdata(in), tensor_data(&ctx->outputs[0]),
                              s.in_channels * (int64_t)dtype_size(state->dtype)};
    int64_t n_positions = s.batch * conv_n_positions(s.out);
    double cost_ns = (double)conv_n_positions(s.window) * (5 + (double)job.pixel * 0.05);
    pool_parallel_for(ctx->pool, n_positions, cost_ns, positions_range, &job);
    return KERNEL_DONE;
}
