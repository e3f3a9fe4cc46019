/* Computes MergeV2Checkpoints: joins the parts of a sharded save into one checkpoint. When the
 * tasks share no file system, a part is fetched from the task that wrote it, and that task's copy
 * is removed after the checkpoint is complete. */
#include <stdlib.h>

#include "common/io/bundle.h"
#include "common/io/file_root.h"
#include "common/io/temporary.h"
#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/host/files/checkpoint_saves.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list checkpoint_merge_kernels;

struct merge_state {
    bool delete_old_dirs, allow_missing_files;
};

static struct status *merge_init(struct kernel_init *init) {
    struct merge_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "delete_old_dirs", &state->delete_old_dirs));
    if (node_attr(init->node, "allow_missing_files"))
        TRY(node_get_b(init->node, "allow_missing_files", &state->allow_missing_files));
    return NULL;
}

struct merge_part {
    char *name;  /* as the client wrote it */
    char *local; /* the local path */
    int owner;   /* the task that the part was fetched from, or -1 */
    struct peer_call call;
    struct str request;
    struct merge_run *run;
};

/* One execution. Parts are fetched one after the other and merged, and then removed at their
 * owners. */
struct merge_run {
    struct kernel_ctx *ctx;
    struct merge_part *parts;
    int n, current;
    struct str destination;
    struct part_fetch fetch;
    char *temporary; /* the local path of the part that is being fetched */
    struct pool_task io_task;
    _Atomic int n_removing;
};

static void end_run(struct merge_run *run, struct status *st_take) {
    struct kernel_ctx *ctx = run->ctx;
    for (int i = 0; i < run->n; i++) {
        free(run->parts[i].name);
        free(run->parts[i].local);
        str_fini(&run->parts[i].request);
    }
    free(run->parts);
    checkpoint_count_save("MergeV2Checkpoints", str_text(&run->destination), st_take);
    str_fini(&run->destination);
    free(run);
    if (st_take)
        kernel_fail(ctx, st_take);
    ctx->host->done(ctx);
}

/* Removes the parts' directories that are empty now, except the checkpoint's own. */
static void remove_dirs(const struct merge_run *run) {
    struct str kept = STR_INIT, dir = STR_INIT;
    file_dir_of(run->destination.data, &kept);
    for (int i = 0; i < run->n; i++) {
        str_clear(&dir);
        file_dir_of(run->parts[i].local, &dir);
        if (strcmp(dir.data, kept.data) != 0)
            file_system_posix.remove_dir(
                &file_system_posix,
                dir.data); /* another part may still be in it, or it was removed already */
    }
    str_fini(&kept);
    str_fini(&dir);
}

/* ---- fetched parts ---- */

static int n_shards_of(const char *prefix) {
    struct bundle_reader *reader = NULL;
    struct status *st = bundle_reader_open(&file_system_posix, prefix, &reader);
    int n = st ? 0 : bundle_reader_n_shards(reader);
    status_unref(st);
    bundle_reader_close(reader);
    return n;
}

/* The save has failed. The owners keep their parts, which the next save of that name replaces. */
static void drop_fetched(const struct merge_run *run) {
    for (int i = 0; i < run->n; i++)
        if (run->parts[i].owner >= 0)
            part_fetch_remove(run->parts[i].local, n_shards_of(run->parts[i].local));
}

static void on_all_removed(struct pool_task *task) {
    end_run(CONTAINER_OF(task, struct merge_run, io_task), NULL);
}

static void removed_one(struct merge_run *run) {
    if (atomic_fetch_sub(&run->n_removing, 1) == 1)
        run->ctx->host->submit_io(run->ctx, &run->io_task);
}

/* When a part could not be removed, because its task has left, the checkpoint is still complete. */
static void on_removed(struct peer_call *call) {
    struct merge_part *part = CONTAINER_OF(call, struct merge_part, call);
    status_unref(call->status);
    str_fini(&call->reply);
    buffer_unref(call->payload);
    removed_one(part->run);
}

static void remove_at_owners(struct merge_run *run) {
    const struct merge_state *state = run->ctx->instance->state;
    run->io_task.run = on_all_removed;
    atomic_store(&run->n_removing, run->n + 1);
    for (int i = 0; i < run->n; i++) {
        struct merge_part *part = &run->parts[i];
        if (part->owner < 0) {
            removed_one(run);
            continue;
        }
        checkpoint_request_print(
            &(struct checkpoint_request){.kind = CHECKPOINT_REMOVE,
                                         .prefix = span_of(part->name),
                                         .shard = INDEX_SHARD,
                                         .removes_dir = state->delete_old_dirs},
            &part->request);
        part->run = run;
        part->call = (struct peer_call){.task = part->owner,
                                        .request = {part->request.data, part->request.len},
                                        .on_done = on_removed};
        run->ctx->host->peer_call_start(run->ctx, &part->call);
    }
    removed_one(run);
}

/* ---- merging ---- */

static struct status *merge_all(struct merge_run *run) {
    const struct merge_state *state = run->ctx->instance->state;
    const char **prefixes = xcalloc((size_t)run->n + 1, sizeof(*prefixes));
    for (int i = 0; i < run->n; i++)
        prefixes[i] = run->parts[i].local;
    struct status *st = kernel_check_cancelled(run->ctx);
    if (!st)
        st = bundle_merge(&file_system_posix, prefixes, run->n, run->destination.data,
                          state->allow_missing_files);
    free(prefixes);
    return st;
}

static void merge_now(struct merge_run *run) {
    const struct merge_state *state = run->ctx->instance->state;
    struct status *st = merge_all(run);
    if (st) {
        drop_fetched(run);
        end_run(run, st);
        return;
    }
    if (state->delete_old_dirs)
        remove_dirs(run);
    remove_at_owners(run);
}

static bool is_here(const char *prefix) {
    struct str path = STR_INIT;
    bundle_index_path(prefix, &path);
    bool is_there = file_system_posix.kind(&file_system_posix, path.data) != FILE_KIND_NONE;
    str_fini(&path);
    return is_there;
}

static void fetch_rest(struct merge_run *run);

static void on_fetched(struct part_fetch *fetch, struct status *status_take) {
    struct merge_run *run = fetch->record;
    struct merge_part *part = &run->parts[run->current];
    if (!status_take && fetch->task >= 0) {
        part->owner = fetch->task;
        free(part->local);
        part->local = run->temporary;
    } else {
        free(run->temporary);
    }
    run->temporary = NULL;
    if (status_take) {
        drop_fetched(run);
        end_run(run, status_take);
        return;
    }
    run->current++; /* no task has the part; the merge reports what that means */
    fetch_rest(run);
}

/* A path next to the destination, so that a rename stays in its file system. */
static char *temporary_prefix(const struct merge_run *run) {
    struct str path = STR_INIT;
    str_addf(&path, "%s.part", run->destination.data);
    temporary_add_name(&path);
    return str_detach(&path);
}

static struct status *make_destination(const struct merge_run *run) {
    struct str dir = STR_INIT;
    file_dir_of(run->destination.data, &dir);
    struct status *st = file_make_dirs(&file_system_posix, dir.data);
    str_fini(&dir);
    return st;
}

static void fetch_rest(struct merge_run *run) {
    while (run->current < run->n &&
           (!checkpoint_has_peers(run->ctx) || is_here(run->parts[run->current].local)))
        run->current++;
    if (run->current == run->n) {
        merge_now(run);
        return;
    }
    struct status *st = make_destination(run);
    if (st) {
        drop_fetched(run);
        end_run(run, st);
        return;
    }
    run->temporary = temporary_prefix(run);
    run->fetch = (struct part_fetch){.ctx = run->ctx,
                                     .prefix = run->parts[run->current].name,
                                     .local_prefix = run->temporary,
                                     .on_end = on_fetched,
                                     .record = run};
    part_fetch_start(&run->fetch);
}

static struct status *resolve(struct merge_run *run) {
    const struct tensor *parts = kernel_input(run->ctx, 0);
    TRY(io_prefix(tensor_string(kernel_input(run->ctx, 1), 0), &run->destination));
    for (int i = 0; i < run->n; i++) {
        struct span name = tensor_string(parts, i);
        struct str local = STR_INIT;
        run->parts[i].name = xstrndup(name.data, name.len);
        run->parts[i].owner = -1;
        TRY(checkpoint_check_name(name));
        TRY(io_prefix(name, &local));
        run->parts[i].local = str_detach(&local);
    }
    return NULL;
}

static void merge_begin(struct kernel_ctx *ctx) {
    struct merge_run *run = xcalloc(1, sizeof(*run));
    run->ctx = ctx;
    run->n = (int)kernel_input(ctx, 0)->n_elements;
    run->parts = xcalloc((size_t)run->n + 1, sizeof(*run->parts));
    run->destination = STR_INIT;
    for (int i = 0; i < run->n; i++)
        run->parts[i].request = STR_INIT;
    struct status *st = resolve(run);
    if (st)
        end_run(run, st);
    else
        fetch_rest(run);
}

static enum kernel_result merge_compute(struct kernel_ctx *ctx) {
    const struct tensor *parts = kernel_input(ctx, 0), *destination = kernel_input(ctx, 1);
    if (parts->rank != 1)
        return kernel_fail(
            ctx,
            status_invalid("Input checkpoint_prefixes should be an 1-D tensor, got %s instead.",
                           TENSOR_SHAPE_TEXT(parts)));
    if (destination->rank != 0)
        return kernel_fail(
            ctx,
            status_invalid("Input destination_prefix should be a scalar tensor, got %s instead.",
                           TENSOR_SHAPE_TEXT(destination)));
    if (parts->n_elements > BUNDLE_MAX_SHARDS)
        return kernel_fail(ctx, status_invalid("Input checkpoint_prefixes has %lld elements; a "
                                               "checkpoint has at most %d data files",
                                               (long long)parts->n_elements, BUNDLE_MAX_SHARDS));
    return io_start(ctx, merge_begin);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "MergeV2Checkpoints", .compute = merge_compute, .init = merge_init,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list checkpoint_merge_kernels = {rows, ARRAY_LEN(rows)};
