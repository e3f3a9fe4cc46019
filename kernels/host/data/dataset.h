/* Datasets: descriptions of pipelines, held by variants; and the iterators that pull elements
 * through them.
 *
 *   dataset (immutable, counted)      Map ──► Batch ──► Range          made by kernels, one for each node of the graph
 *       │ dataset_iter_new
 *   iterator (one puller at a time)   map ──► batch ──► range          polled by a task (data_task.h)
 *
 * A kind is a row: how its iterators begin, go on and end. An element is n_components tensors.
 * What a dataset says of its types holds for every element that its iterators hand out, so
 * consumers need not look; shapes may differ from element to element.
 *
 * An iterator's next is called again after DATA_PENDING, from the top: it keeps in itself what
 * it has so far. After an error it goes on with the next element; after the end it answers
 * DATA_END again. It owns its inputs' iterators.
 *
 * Datasets live on one task: they cannot be sent. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_H

#include "kernels/host.h"
#include "kernels/host/data/data_task.h"
#include "kernels/kernel.h"

enum { DATASET_MAX_DEPTH = 1000 }; /* of datasets within datasets: their functions recurse */
enum { CARDINALITY_INFINITE = -1, CARDINALITY_UNKNOWN = -2 };

struct dataset;
struct dataset_iter;

struct dataset_kind {
    const char *name;
    /* of the structs that embed struct dataset and struct dataset_iter first */
    size_t dataset_size, iter_size;
    /* The iterator is zeroed but for its head. After a failure fini is called. NULL: nothing to
     * do. */
    struct status *(*begin)(struct dataset_iter *iter);
    /* `out`: n_components tensors that hold nothing; set when the answer is DATA_ELEMENT. */
    enum data_poll (*next)(struct dataset_iter *iter, struct data_task *task, struct tensor *out);
    void (*end)(struct dataset_iter *iter); /* NULL: nothing to do */
    /* lets go of what the kind's struct holds; NULL: nothing */
    void (*fini)(struct dataset *dataset);
    /* NULL: unknown, or as input 0 where keeps_cardinality */
    int64_t (*cardinality)(struct dataset *dataset);
    bool keeps_cardinality;
};

struct dataset {
    struct object object;
    const struct dataset_kind *kind;
    struct dataset **inputs; /* a reference each */
    int n_inputs;
    int depth;
    int n_components;
    uint8_t *types;       /* n_components */
    struct shape *shapes; /* n_components; each owns its sizes */
};

/* What all iterators of one pipeline share. Counted. */
struct dataset_env {
    _Atomic uint32_t n_refs;
    const struct kernel_host *host;
    struct allocator *allocator;
    struct pool *pool, *io_pool;
    pthread_mutex_t lock;
    struct object *scope; /* function_fresh's; guarded by lock */
};

struct dataset_iter {
    struct dataset *dataset; /* a reference */
    struct dataset_env *env; /* a reference */
};

extern const struct object_type dataset_type;

/* ---- environments ---- */
struct dataset_env *dataset_env_new(struct kernel_ctx *ctx);
struct dataset_env *dataset_env_ref(struct dataset_env *env);
void dataset_env_unref(struct dataset_env *env); /* accepts NULL */

/* ---- datasets ---- */

/* A dataset of a kind with the node's n_inputs dataset inputs, the first ones; its types and
 * shapes are input 0's unless dataset_declare says so. With one reference. Errors:
 * INVALID_ARGUMENT when an input holds no dataset or is too deep. */
struct status *dataset_new(struct kernel_ctx *ctx, const struct dataset_kind *kind, int n_inputs,
                           struct dataset **ret) MUST_USE;
/* Types and shapes from the node's attrs; NULL: output_types, output_shapes. Errors:
 * INVALID_ARGUMENT when the lists differ in length. */
struct status *dataset_declare(struct kernel_ctx *ctx, struct dataset *dataset,
                               const char *types_attr, const char *shapes_attr) MUST_USE;
/* The same from arguments; shapes may be NULL: unknown. Sizes are copied. */
void dataset_set_components(struct dataset *dataset, int n, const uint8_t *types,
                            const struct shape *shapes);
/* Output 0 becomes the dataset; takes the reference. */
enum kernel_result dataset_output(struct kernel_ctx *ctx, struct dataset *dataset_take);
/* The same, or the failure. */
enum kernel_result dataset_finish(struct kernel_ctx *ctx, struct dataset *dataset_take,
                                  struct status *status_take);
/* A dataset made while a pipeline runs (a window). */
struct dataset *dataset_new_bare(const struct dataset_kind *kind, int depth);
void dataset_unref(struct dataset *dataset); /* accepts NULL */
static inline struct dataset *dataset_ref(struct dataset *dataset) {
    object_ref(&dataset->object);
    return dataset;
}
/* The dataset that a scalar variant holds, borrowed. Errors: INVALID_ARGUMENT. */
struct status *dataset_of(const struct tensor *t, struct dataset **ret) MUST_USE;
int64_t dataset_cardinality(struct dataset *dataset);

/* ---- iterators ---- */
struct status *dataset_iter_new(struct dataset *dataset, struct dataset_env *env,
                                struct dataset_iter **ret) MUST_USE;
void dataset_iter_free(struct dataset_iter *iter); /* accepts NULL; no task is polling it */
/* The next element, or PENDING when the task's time is over, or FAILED when it is cancelled. */
enum data_poll dataset_iter_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out);

/* An iterator over input 0, where a kind has one more: its struct begins with this. */
struct dataset_iter_one {
    struct dataset_iter iter;
    struct dataset_iter *input;
};
struct status *dataset_begin_one(struct dataset_iter *iter); /* kinds' begin and end */
void dataset_end_one(struct dataset_iter *iter);

/* ---- elements ---- */
struct tensor *element_new(int n); /* aligned, holding nothing; never NULL */
void element_clear(struct tensor *tensors, int n);
void element_free(struct tensor *tensors, int n); /* clears; accepts NULL */
void element_move(struct tensor *to, struct tensor *from, int n);
void element_copy(struct tensor *to, const struct tensor *from, int n);
/* Row `at` of a tensor of rank 1 or more. */
struct status *dataset_row_of(const struct tensor *t, int64_t at, struct tensor *ret) MUST_USE;

/* ---- functions ---- */

/* A function with what it has captured: part of a dataset. */
struct dataset_fn {
    struct function *function;
    struct tensor *captured;
    int n_captured;
};
/* From the attr, and inputs [first, first + n) of the node. */
struct status *dataset_fn_init(struct kernel_ctx *ctx, const char *attr, int first, int n,
                               struct dataset_fn *ret) MUST_USE;
void dataset_fn_fini(struct dataset_fn *fn);
/* Errors: INVALID_ARGUMENT when the function's results are not of these types. */
struct status *dataset_fn_check(const struct dataset_fn *fn, const uint8_t *types, int n) MUST_USE;
/* Are the outputs, which are set, of the shapes that the node declares? Errors:
 * INVALID_ARGUMENT. */
struct status *dataset_check_outputs(const struct kernel_ctx *ctx) MUST_USE;
/* How many inputs an op's list argument has in this node: the length of the list(type) attr. */
int dataset_list_length(const struct kernel_ctx *ctx, const char *attr);

/* A call of it: part of an iterator; one at a time. */
struct dataset_call {
    struct data_call call;
    struct function *function; /* fresh: a reference */
    struct tensor *args;       /* n_inputs to be filled, then what is captured */
    struct tensor *rets;       /* function->n_rets */
    int n_inputs, n_args;
    bool is_running;
};
struct status *dataset_call_init(struct dataset_call *call, const struct dataset_fn *fn,
                                 struct dataset_env *env, int n_inputs) MUST_USE;
void dataset_call_fini(struct dataset_call *call); /* not running; accepts a zeroed one */
/* Starts it with the args, or looks whether it has ended: DATA_ELEMENT: `rets` are set, to be
 * moved out; the inputs are cleared then. */
enum data_poll dataset_call_poll(struct dataset_call *call, struct data_task *task);

/* ---- small questions to inputs ---- */
/* A scalar input of integers or bool. Errors: INVALID_ARGUMENT naming it. */
struct status *dataset_scalar_i64(struct kernel_ctx *ctx, int input, const char *name,
                                  int64_t *ret) MUST_USE;
struct status *dataset_scalar_bool(struct kernel_ctx *ctx, int input, const char *name,
                                   bool *ret) MUST_USE;

#endif
