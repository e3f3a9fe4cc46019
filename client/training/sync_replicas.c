/* Adds accumulators of gradients and a queue of tokens. */
#include "client/training/sync_replicas.h"

#include <stdio.h>

#include "client/training/builder_internal.h"
#include "common/tensor/text.h"

struct accumulator {
    MR_Variable *variable;
    TF_Output handle;
    bool is_sparse;
};

struct MR_SyncReplicas {
    MR_Builder *builder;
    MR_Optimizer *optimizer;
    MR_Variable *step;
    TF_Output queue;
    int n_to_aggregate, n_replicas, n_trains;
    struct accumulator *accumulators;
    int n_accumulators;
};

/* Runs with the controls of the builder replaced by one operation; returns those before. */
struct controls {
    TF_Operation **list;
    int n;
};

static struct controls wait_for(MR_Builder *b, TF_Operation **oper) {
    struct controls before = {b->controls, b->n_controls};
    b->controls = oper;
    b->n_controls = oper && *oper ? 1 : 0;
    return before;
}

static void restore_controls(MR_Builder *b, struct controls before) {
    b->controls = before.list;
    b->n_controls = before.n;
}

/* The name has no prefix, so that replicas in Python find the queue. */
static TF_Output add_queue(MR_Builder *b) {
    return MR_Op(b, "FIFOQueueV2",
                 "component_types=[int64], shapes=[[]], capacity=-1, shared_name=\"sync_token_q\"",
                 NULL, 0);
}

MR_SyncReplicas *MR_NewSyncReplicas(MR_Builder *builder, MR_Optimizer *optimizer,
                                    MR_Variable *global_step, int num_to_aggregate,
                                    int num_replicas) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    MR_SyncReplicas *sync = NULL;
    if (!optimizer)
        builder_fail(builder, status_invalid("optimizer is NULL"));
    else if (num_to_aggregate < 1 || num_replicas < 1)
        builder_fail(builder, status_invalid("num_to_aggregate is %d, num_replicas %d",
                                             num_to_aggregate, num_replicas));
    if (builder_is_ok(builder) && variable_check(builder, global_step)) {
        struct controls before = wait_for(builder, NULL);
        const char *device = builder_swap_device(builder, global_step->device);
        sync = arena_new(&builder->arena, MR_SyncReplicas);
        *sync = (MR_SyncReplicas){
            .builder = builder,
            .optimizer = optimizer,
            .step = global_step,
            .queue = add_queue(builder),
            .n_to_aggregate = num_to_aggregate,
            .n_replicas = num_replicas,
        };
        builder_swap_device(builder, device);
        restore_controls(builder, before);
    }
    builder_leave(builder, outer);
    return builder_is_ok(builder) ? sync : NULL;
}

static bool check_sync(MR_Builder *b, const MR_SyncReplicas *sync) {
    if (!sync || sync->builder != b)
        builder_fail(b,
                     status_invalid(sync ? "the replicas are of another builder" : "sync is NULL"));
    return builder_is_ok(b);
}

/* ---- a replica ---- */

static void add_accumulator(MR_SyncReplicas *sync, const MR_Gradient *gradient) {
    MR_Builder *b = sync->builder;
    MR_Variable *v = gradient->variable;
    struct accumulator *made = &sync->accumulators[sync->n_accumulators];
    struct str attrs = STR_INIT, shared_name = STR_INIT;
    *made = (struct accumulator){.variable = v, .is_sparse = gradient->indices.oper != NULL};
    str_addf(&attrs, "dtype=%s, shape=", builder_dtype(v->dtype));
    shape_text(&attrs, v->dims, made->is_sparse ? 0 : v->rank);
    str_addf(&shared_name, "%s:0/grad_accum", v->name);
    str_add(&attrs, ", shared_name=");
    text_add_quoted(&attrs, (struct span){str_text(&shared_name), shared_name.len});
    const char *device = builder_swap_device(b, v->device);
    made->handle =
        MR_Op(b, made->is_sparse ? "SparseConditionalAccumulator" : "ConditionalAccumulator",
              str_text(&attrs), NULL, 0);
    builder_swap_device(b, device);
    sync->n_accumulators++;
    str_fini(&attrs);
    str_fini(&shared_name);
}

/* Makes the accumulators for the first replica; finds that of the gradient for the others. */
static const struct accumulator *accumulator_of(MR_SyncReplicas *sync,
                                                const MR_Gradient *gradient) {
    for (int i = 0; i < sync->n_accumulators; i++) {
        const struct accumulator *a = &sync->accumulators[i];
        if (a->variable == gradient->variable && a->is_sparse == (gradient->indices.oper != NULL))
            return a;
    }
    builder_fail(sync->builder, status_invalid("the first replica has no such gradient of '%s'",
                                               gradient->variable->name));
    return NULL;
}

/* Hands in a gradient, on the device of the variable. */
static TF_Operation *hand_in(MR_SyncReplicas *sync, const MR_Gradient *gradient,
                             TF_Output local_step) {
    MR_Builder *b = sync->builder;
    const struct accumulator *a = accumulator_of(sync, gradient);
    if (!a)
        return NULL;
    const char *device = builder_swap_device(b, gradient->variable->device);
    TF_Output out;
    if (a->is_sparse)
        out = MR_Op(b, "SparseAccumulatorApplyGradient", "has_known_shape=false",
                    MR_INPUTS(a->handle, local_step, MR_Cast(b, gradient->indices, TF_INT64),
                              gradient->values,
                              MR_Op(b, "Const", "dtype=int64, value=int64[0]{}", NULL, 0)));
    else
        out = MR_Op(b, "AccumulatorApplyGradient", NULL,
                    MR_INPUTS(a->handle, local_step, gradient->values));
    builder_swap_device(b, device);
    return out.oper;
}

/* Fails when a replica lacks a gradient that the first has: the chief would wait for it. */
static void check_all(MR_SyncReplicas *sync, const MR_Gradient *gradients, int n) {
    for (int i = 0; i < sync->n_accumulators; i++) {
        const MR_Variable *v = sync->accumulators[i].variable;
        int k = 0;
        while (k < n && !(gradients[k].variable == v && gradients[k].values.oper))
            k++;
        if (k == n)
            builder_fail(sync->builder,
                         status_invalid("replica %d has no gradient of '%s', which the first has",
                                        sync->n_trains - 1, v->name));
    }
}

static TF_Operation *take_token(MR_SyncReplicas *sync, const MR_Variable *local_step,
                                TF_Operation *const *handed_in, int n) {
    MR_Builder *b = sync->builder;
    TF_Operation *all = MR_Group(b, NULL, handed_in, n);
    struct controls before = wait_for(b, &all);
    const char *device = builder_swap_device(b, sync->step->device);
    TF_Output token = MR_Op(b, "QueueDequeueV2", "component_types=[int64]", MR_INPUTS(sync->queue));
    builder_swap_device(b, device);
    restore_controls(b, before);
    return MR_Assign(b, local_step, token);
}

static MR_SyncReplica train(MR_SyncReplicas *sync, const MR_Gradient *gradients, int n) {
    MR_Builder *b = sync->builder;
    MR_SyncReplica replica = {NULL, NULL};
    TF_Operation **handed_in = arena_array(&b->arena, TF_Operation *, n + 1);
    const char *name = sync->n_trains == 0
                           ? "sync_rep_local_step"
                           : arena_printf(&b->arena, "sync_rep_local_step_%d", sync->n_trains);
    MR_Variable *local_step = variable_add(b, name, TF_INT64, NULL, 0, MR_Zeros());
    if (local_step) {
        local_step->is_trainable = false;
        local_step->is_local = true;
    }
    TF_Output at = MR_Read(b, local_step);
    bool is_first = sync->n_trains++ == 0;
    if (is_first)
        sync->accumulators = arena_array(&b->arena, struct accumulator, n + 1);
    for (int i = 0; builder_is_ok(b) && i < n; i++) {
        if (!gradients[i].values.oper || !variable_check(b, gradients[i].variable))
            continue;
        if (is_first)
            add_accumulator(sync, &gradients[i]);
        handed_in[i] = hand_in(sync, &gradients[i], at);
    }
    if (builder_is_ok(b))
        check_all(sync, gradients, n);
    if (builder_is_ok(b) && sync->n_accumulators == 0)
        builder_fail(b, status_invalid("no variable has a gradient"));
    if (!builder_is_ok(b))
        return replica;
    replica.train = take_token(sync, local_step, handed_in, n);
    replica.init = MR_Assign(b, local_step, MR_Read(b, sync->step));
    return replica;
}

MR_SyncReplica MR_SyncTrain(MR_Builder *builder, MR_SyncReplicas *sync,
                            const MR_Gradient *gradients, int num_gradients) {
    const char *outer;
    MR_SyncReplica replica = {NULL, NULL};
    if (!builder_enter(builder, __func__, &outer))
        return replica;
    if (num_gradients < 0 || !gradients)
        builder_fail(builder, gradients ? status_invalid("%d gradients", num_gradients)
                                        : status_invalid("gradients is NULL"));
    if (check_sync(builder, sync))
        replica = train(sync, gradients, num_gradients);
    builder_leave(builder, outer);
    return replica;
}

/* ---- the chief ---- */

/* Adds the mean of the gradients of a variable, which waits until there are enough. */
static MR_Gradient take_mean(const MR_SyncReplicas *sync, const struct accumulator *a) {
    MR_Builder *b = sync->builder;
    MR_Gradient mean = {a->variable, NO_OUTPUT, NO_OUTPUT};
    char attrs[64];
    snprintf(attrs, sizeof attrs, "dtype=%s", builder_dtype(a->variable->dtype));
    const char *device = builder_swap_device(b, a->variable->device);
    TF_Output n = MR_Scalar(b, TF_INT32, sync->n_to_aggregate);
    if (a->is_sparse) {
        mean.indices = MR_Op(b, "SparseAccumulatorTakeGradient", attrs, MR_INPUTS(a->handle, n));
        mean.values = (TF_Output){mean.indices.oper, 1};
    } else {
        mean.values = MR_Op(b, "AccumulatorTakeGradient", attrs, MR_INPUTS(a->handle, n));
    }
    builder_swap_device(b, device);
    return mean;
}

/* Puts tokens with the number of the step into the queue. */
static TF_Operation *hand_out(const MR_SyncReplicas *sync, TF_Operation *after, int n_tokens) {
    MR_Builder *b = sync->builder;
    struct controls before = wait_for(b, &after);
    const char *device = builder_swap_device(b, sync->step->device);
    TF_Output tokens =
        MR_Binary(b, "Fill", MR_Ints(b, (const int64_t[]){n_tokens}, 1), MR_Read(b, sync->step));
    TF_Output out = MR_Binary(b, "QueueEnqueueManyV2", sync->queue, tokens);
    builder_swap_device(b, device);
    restore_controls(b, before);
    return out.oper;
}

static bool check_chief(MR_Builder *b, const MR_SyncReplicas *sync) {
    if (check_sync(b, sync) && sync->n_accumulators == 0)
        builder_fail(b, status_invalid("MR_SyncTrain has not been called"));
    return builder_is_ok(b);
}

TF_Operation *MR_SyncUpdate(MR_Builder *builder, MR_SyncReplicas *sync) {
    const char *outer;
    TF_Operation *oper = NULL;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (check_chief(builder, sync)) {
        int n = sync->n_accumulators;
        MR_Gradient *means = arena_array(&builder->arena, MR_Gradient, n);
        for (int i = 0; i < n; i++)
            means[i] = take_mean(sync, &sync->accumulators[i]);
        TF_Operation *applied = MR_ApplyGradients(builder, sync->optimizer, means, n, sync->step);
        oper = hand_out(sync, applied, MAX(sync->n_replicas, sync->n_to_aggregate));
    }
    builder_leave(builder, outer);
    return oper;
}

TF_Operation *MR_SyncInitialize(MR_Builder *builder, MR_SyncReplicas *sync) {
    const char *outer;
    TF_Operation *oper = NULL;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (check_chief(builder, sync)) {
        TF_Operation **set = arena_array(&builder->arena, TF_Operation *, sync->n_accumulators + 1);
        TF_Output step = MR_Read(builder, sync->step);
        for (int i = 0; i < sync->n_accumulators; i++) {
            const struct accumulator *a = &sync->accumulators[i];
            const char *device = builder_swap_device(builder, a->variable->device);
            set[i] = MR_Binary(builder, "AccumulatorSetGlobalStep", a->handle, step).oper;
            builder_swap_device(builder, device);
        }
        TF_Operation *all = MR_Group(builder, NULL, set, sync->n_accumulators);
        /* as many as a step needs beyond one of each replica */
        oper = hand_out(sync, all, MAX(sync->n_to_aggregate - sync->n_replicas, 0));
    }
    builder_leave(builder, outer);
    return oper;
}

TF_Operation *MR_SyncClose(MR_Builder *builder, MR_SyncReplicas *sync) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (check_sync(builder, sync)) {
        const char *device = builder_swap_device(builder, sync->step->device);
        out = MR_Unary(builder, "QueueCloseV2", sync->queue);
        builder_swap_device(builder, device);
    }
    builder_leave(builder, outer);
    return out.oper;
}
