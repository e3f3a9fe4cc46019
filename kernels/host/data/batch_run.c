/* Runs closed batches: joins the rows, calls the function, and hands the results out
 * (kernels/host/data/batcher.h). */
#include "kernels/host.h"
#include "kernels/host/data/batcher.h"

#include <stdlib.h>

#include "kernels/support/rows.h"

/* ---- inputs ---- */

static int count_parts(const struct batch *batch) {
    int n = 0;
    BATCH_FOR_EACH_PART(part, batch)
    n++;
    return n;
}

static struct batch_part *last_part(const struct batch *batch) {
    return LIST_ENTRY(batch->parts.prev, struct batch_part, link);
}

/* The number of rows with padding: the first allowed size that holds the batch. */
static int64_t padded_size(const struct batch *batch) {
    const struct batcher_options *options = &batch->queue->batcher->options;
    for (int i = 0; i < options->n_allowed; i++)
        if (options->allowed[i] >= batch->n_rows)
            return options->allowed[i];
    return batch->n_rows;
}

/* Joins input i of all parts, padded with the first row of the first part. */
static struct status *join_input(const struct batch *batch, int i, const struct tensor **pieces,
                                 struct allocator *allocator, struct tensor *ret) {
    struct tensor row = TENSOR_INIT;
    int n = 0;
    BATCH_FOR_EACH_PART(part, batch)
    pieces[n++] = &part->rows[i];
    if (batch->n_padded > batch->n_rows)
        TRY(tensor_slice_rows(pieces[0], 0, 1, &row));
    for (int64_t pad = batch->n_rows; pad < batch->n_padded; pad++)
        pieces[n++] = &row;
    struct status *st = rows_join(allocator, pieces, n, batch->queue->batcher->pool, ret);
    tensor_clear(&row);
    return st;
}

/* Joins the inputs, which become the first args. The parts do not change while the batch runs. */
static struct status *join_inputs(struct batch *batch, struct allocator *allocator, int n_more) {
    int n_inputs = last_part(batch)->n_inputs;
    struct status *st = NULL;
    BATCH_FOR_EACH_PART(part, batch)
    if (part->n_inputs != n_inputs)
        return status_invalid("Batching inputs must have equal number of edges");
    batch->n_padded = padded_size(batch);
    if (batch->n_padded - batch->n_rows > BATCH_MAX_PADDING)
        return status_exhausted(
            "A batch of %lld rows would be padded to %lld; up to %d rows may be added",
            (long long)batch->n_rows, (long long)batch->n_padded, BATCH_MAX_PADDING);
    TRY(rows_try_new((size_t)n_inputs + (size_t)n_more, &batch->args));
    batch->n_args = n_inputs + n_more;
    const struct tensor **pieces =
        xcalloc((size_t)(count_parts(batch) + (batch->n_padded - batch->n_rows)), sizeof(*pieces));
    for (int i = 0; i < n_inputs && !st; i++)
        st = join_input(batch, i, pieces, allocator, &batch->args[i]);
    free(pieces);
    return st;
}

/* ---- Batch: the last entry gets all rows ---- */

static struct status *set_index(const struct batch *batch, struct allocator *allocator,
                                struct tensor *ret) {
    int64_t dims[2] = {count_parts(batch), 3}, first = 0;
    TRY(tensor_new(allocator, DT_INT64, (struct shape){2, dims}, ret));
    int64_t *at = tensor_data(ret);
    BATCH_FOR_EACH_PART(part, batch) {
        *at++ = part->entry->key;
        *at++ = first;
        first += part->n_rows;
        *at++ = first;
    }
    return NULL;
}

static struct status *set_nothing(const struct batch_part *part, struct tensor *outs) {
    struct batch_entry *entry = part->entry;
    int64_t index_dims[2] = {0, 3};
    for (int i = 0; i < part->n_inputs; i++)
        TRY(tensor_slice_rows(&part->rows[i], 0, 0, &outs[i]));
    return tensor_new(entry->allocator, DT_INT64, (struct shape){2, index_dims},
                      &outs[part->n_inputs]);
}

/* Chooses the last part whose step still runs. */
static struct batch_part *choose_owner(const struct batch *batch) {
    struct batcher *batcher = batch->queue->batcher;
    struct batch_part *found = NULL;
    pthread_mutex_lock(&batcher->lock);
    BATCH_FOR_EACH_PART(part, batch)
    if (!part->entry->status)
        found = part;
    pthread_mutex_unlock(&batcher->lock);
    return found;
}

/* Makes the outputs of Batch. No entry is freed before the end, not even a cancelled one. */
static struct status *join_outputs(struct batch *batch) {
    struct batch_part *chosen = choose_owner(batch);
    if (!chosen)
        return NULL;
    struct batch_entry *owner = chosen->entry;
    TRY(join_inputs(batch, owner->allocator, 0));
    BATCH_FOR_EACH_PART(part, batch) {
        struct tensor *outs = part->entry->outs;
        if (part->entry->n_outputs != part->n_inputs + 2)
            return status_invalid("Wrong number of batched output tensors");
        if (part == chosen) {
            for (int i = 0; i < part->n_inputs; i++)
                tensor_move(&outs[i], &batch->args[i]);
            TRY(set_index(batch, owner->allocator, &outs[part->n_inputs]));
        } else {
            TRY(set_nothing(part, outs));
        }
        tensor_init_scalar_i64(&outs[part->n_inputs + 1], part->entry->key);
    }
    return NULL;
}

/* ---- BatchFunction ---- */

static struct status *check_result(const struct batch *batch, const struct tensor *result) {
    if (!tensor_has_value(result))
        return status_invalid("The function returned no value");
    if (result->rank == 0)
        return status_failed_precondition("Batched output tensor has 0 dimensions");
    if (tensor_dim(result, 0) == batch->n_padded)
        return NULL;
    return status_failed_precondition(
        "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes "
        "of the "
        "input tensors. 0th dimension size: %lld; batch size: %lld; padding: %lld",
        (long long)tensor_dim(result, 0), (long long)batch->n_rows,
        (long long)(batch->n_padded - batch->n_rows));
}

static struct status *take_rows(const struct batch *batch, const struct batch_part *part,
                                int64_t first) {
    struct batch_entry *entry = part->entry;
    const uint8_t *types = entry->ctx->instance->out_types;
    struct tensor *outs = entry->outs + (size_t)part->index * (size_t)entry->n_outputs;
    if (entry->n_outputs != batch->n_rets)
        return status_invalid("Wrong number of batched output tensors");
    for (int i = 0; i < batch->n_rets; i++) {
        if (batch->rets[i].dtype != dtype_base((enum dtype)types[i]))
            return status_invalid("Output %d of type %s does not match declared output type %s", i,
                                  dtype_name((enum dtype)batch->rets[i].dtype),
                                  dtype_name((enum dtype)types[i]));
        TRY(tensor_slice_rows(&batch->rets[i], first, first + part->n_rows, &outs[i]));
    }
    return NULL;
}

/* Gives its rows to each entry that still wants them. */
static struct status *hand_out(struct batch *batch) {
    struct batcher *batcher = batch->queue->batcher;
    int64_t first = 0;
    for (int i = 0; i < batch->n_rets; i++)
        TRY(check_result(batch, &batch->rets[i]));
    pthread_mutex_lock(&batcher->lock);
    BATCH_FOR_EACH_PART(part, batch) {
        if (part->entry && !part->entry->status)
            part->entry->status = take_rows(batch, part, first);
        first += part->n_rows;
    }
    pthread_mutex_unlock(&batcher->lock);
    return NULL;
}

static void finish_call(struct batch *batch) {
    struct status *st = batch->call.status;
    batch->call.status = NULL;
    batch->call.function->host->function_finish(&batch->call);
    if (!st)
        st = hand_out(batch);
    batch_finish(batch, st);
}

/* False when another thread is cancelling the call, and will end it. */
static bool leave_call(struct batch *batch) {
    struct batcher *batcher = batch->queue->batcher;
    pthread_mutex_lock(&batcher->lock);
    batch->is_calling = false;
    batch->has_ended_meanwhile = batch->is_cancelling;
    bool is_free = !batch->is_cancelling;
    pthread_mutex_unlock(&batcher->lock);
    return is_free;
}

void batch_on_done(struct function_call *call) {
    struct batch *batch = CONTAINER_OF(call, struct batch, call);
    if (leave_call(batch))
        finish_call(batch);
}

/* Chooses the function that runs, and its captured inputs: those of the last entry that wants the
 * result. That entry may be cancelled at any time. */
static struct function *choose_function(struct batch *batch, struct allocator **ret_allocator) {
    struct batcher *batcher = batch->queue->batcher;
    struct batch_entry *found = NULL;
    pthread_mutex_lock(&batcher->lock);
    BATCH_FOR_EACH_PART(part, batch)
    if (part->entry && !part->entry->status)
        found = part->entry;
    if (found) {
        object_ref(&found->function->object);
        batch->function = found->function;
        batch->n_captured = found->n_captured;
        batch->captured = rows_new(found->n_captured);
        for (int i = 0; i < found->n_captured; i++)
            tensor_copy(&batch->captured[i], &found->captured[i]);
        *ret_allocator = found->allocator;
    }
    pthread_mutex_unlock(&batcher->lock);
    return batch->function;
}

/* Allows cancellations to end the call from here on. False when no entry wants the result any
 * more. */
static bool enter_call(struct batch *batch) {
    struct batcher *batcher = batch->queue->batcher;
    pthread_mutex_lock(&batcher->lock);
    BATCH_FOR_EACH_PART(part, batch)
    batch->is_calling = batch->is_calling || (part->entry && !part->entry->status);
    bool is_wanted = batch->is_calling;
    pthread_mutex_unlock(&batcher->lock);
    return is_wanted;
}

static void call(struct batch *batch, struct function *function) {
    batch->n_rets = function->n_rets;
    batch->rets = rows_new(batch->n_rets);
    batch->call = (struct function_call){.function = function,
                                         .args = batch->args,
                                         .n_args = batch->n_args,
                                         .rets = batch->rets,
                                         .on_done = batch_on_done};
    function->host->function_prepare(&batch->call);
    if (!enter_call(batch)) {
        function->host->function_finish(&batch->call);
        batch_finish(batch, NULL); /* each entry has its own status */
    } else if (function->host->function_call(&batch->call) == KERNEL_DONE && leave_call(batch)) {
        finish_call(batch);
    }
}

static void call_function(struct batch *batch) {
    struct allocator *allocator = NULL;
    struct function *function = choose_function(batch, &allocator);
    if (!function) {
        batch_finish(batch, NULL);
        return;
    }
    struct status *st = join_inputs(batch, allocator, batch->n_captured);
    if (!st && function->n_args > batch->n_args)
        st = status_invalid("Function takes %d argument(s) but %d argument(s) were passed",
                            function->n_args, batch->n_args);
    if (st) {
        batch_finish(batch, st);
        return;
    }
    for (int i = 0; i < batch->n_captured; i++)
        tensor_move(&batch->args[batch->n_args - batch->n_captured + i], &batch->captured[i]);
    call(batch, function);
}

void batch_run(struct pool_task *task) {
    struct batch *batch = CONTAINER_OF(task, struct batch, task);
    if (batch->queue->batcher->options.calls_function)
        call_function(batch);
    else
        batch_finish(batch, join_outputs(batch));
}
