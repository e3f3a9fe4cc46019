/* Launches the kernels of direct.cu: convolutions of int32. */
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/ops/direct_args.h"
#include "kernels/cuda/ops/engine_internal.h"

static struct gpu_stem forward_stem = {"direct_forward"};
static struct gpu_stem backprop_input_stem = {"direct_backprop_input"};

struct status *engine_convolve_directly(struct kernel_ctx *ctx, const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    bool is_first = job->is_channels_first, is_forward = job->direction == CONV_FORWARD;
    struct direct_args args = {
        .in = job->operands->in,
        .filter = job->operands->filter,
        .out = job->operands->out,
        .result = job->operands->result,
        .from = engine_window_grid(s->in, s->batch, s->in_channels, is_first),
        .to = engine_window_grid(s->out, s->batch, s->out_channels, is_first),
        .group_in = s->in_channels / s->groups,
        .group_out = s->out_channels / s->groups,
        .out_channels = s->out_channels,
        .is_channels_first = is_first};
    for (int i = 0; i < 3; i++) {
        args.window[i] = s->window[i];
        args.stride[i] = s->stride[i];
        args.rate[i] = s->rate[i];
        args.pad[i] = s->pad_before[i];
    }
    args.n = s->batch * (is_forward ? args.to.image : args.from.image);
    return engine_launch_for(ctx, is_forward ? &forward_stem : &backprop_input_stem,
                             gpu_dtype_suffix(job->dtype), args.n, &args);
}
