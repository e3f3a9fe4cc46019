/* Describes pipelines as datasets, which variants hold, and pulls elements through them with
 * iterators.
 *
 *   dataset (immutable, counted)      Map ──► Batch ──► Range   made by kernels, one for each node
 *       │ dataset_iter_new
 *   iterator (one puller at a time)   map ──► batch ──► range   polled by a task (data_task.h)
 *
 * A kind of dataset is a row of functions: how its iterators begin, continue and end. An element is
 * n_components tensors. Each element that an iterator hands out has the types that the dataset
 * declares, so consumers need not check them. Shapes may differ from element to element.
 *
 * After DATA_PENDING an iterator's next is called again from the top, so the iterator keeps what it
 * has collected. After an error it continues with the next element. After the end it returns
 * DATA_END again. It owns the iterators of its inputs.
 *
 * A dataset belongs to one task and cannot be sent. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_H

#include "kernels/host.h"
#include "kernels/host/data/data_task.h"
#include "kernels/kernel.h"

enum { DATASET_MAX_DEPTH = 1000 }; /* of datasets within datasets, since their functions recurse */
enum { CARDINALITY_INFINITE = -1, CARDINALITY_UNKNOWN = -2 };

struct dataset;
struct dataset_iter;
struct seed_log;

struct dataset_kind {
    const char *name;
    /* the sizes of the structs whose first members are struct dataset and struct dataset_iter */
    size_t dataset_size, iter_size;
    /* Prepares an iterator, whose memory is zeroed but for `dataset` and `env`. `end` is called
     * also after a failure. NULL: nothing to do. */
    struct status *(*begin)(struct dataset_iter *iter);
    /* Makes the next element. `out` is n_components tensors that hold nothing; they are set when
     * the result is DATA_ELEMENT. */
    enum data_poll (*next)(struct dataset_iter *iter, struct data_task *task, struct tensor *out);
    void (*end)(struct dataset_iter *iter); /* NULL: nothing to do */
    /* Frees what the kind's struct owns. It may be called on a dataset whose making failed at any
     * step, so the struct may be zeroed in part. NULL: nothing to do. */
    void (*fini)(struct dataset *dataset);
    /* NULL: unknown, or that of input 0 with keeps_cardinality */
    int64_t (*cardinality)(struct dataset *dataset);
    bool keeps_cardinality;
    bool is_transparent; /* hands on input 0's elements: its iterators are those of input 0 */
};

struct dataset {
    struct object object;
    const struct dataset_kind *kind;
    struct dataset **inputs; /* a reference each */
    int n_inputs;
    int depth;
    bool is_map; /* each element is a function of one element of input 0 */
    int n_components;
    uint8_t *types;       /* n_components */
    struct shape *shapes; /* n_components; each owns its sizes */
    /* of the pipelines that begin with it, made for the first; a reference (dataset_random.h) */
    _Atomic(struct seed_owner *) owner;
};

/* The environment that the iterators of one pipeline share. Counted.
 *
 * A dataset may occur twice in a pipeline, as in zip((d, d)). The functions and the seeds of the
 * two occurrences have states of their own. So a dataset with several inputs gives each of them a
 * branch of the environment. An iterator that is made again, as for each round of a repeat, has the
 * environment of the one before it, and continues. */
struct dataset_env {
    _Atomic uint32_t n_refs; /* of the root: those of its branches, too */
    const struct kernel_host *host;
    struct allocator *allocator;
    struct pool *pool, *io_pool;
    struct dataset_env *root;     /* itself, except in a branch */
    struct dataset_env *branches; /* the first of a list; guarded by lock */
    struct dataset_env *next;     /* in the list that this one is in */
    int number;                   /* among the branches of its environment */
    struct seed_owner *owner;     /* a reference; dataset_random.h */
    pthread_mutex_t lock;
    /* functions have the state of the graph that names them, which is kept from step to step */
    bool keeps_functions;
    struct object *scope;   /* of function_fresh; guarded by lock */
    struct seed_log *seeds; /* the root's; guarded by its lock; NULL: draws are not noted */
};

struct dataset_iter {
    struct dataset *dataset; /* a reference */
    struct dataset_env *env; /* a reference */
};

extern const struct object_type dataset_type;

/* ---- environments ---- */
/* For a pipeline that begins with `dataset`: its functions have fresh state, and seeds continue
 * from the pipeline before it. NULL: a kernel reads datasets by itself; their seeds begin again,
 * and the functions' state is kept from step to step. As in TensorFlow. */
struct dataset_env *dataset_env_new(struct kernel_ctx *ctx, struct dataset *dataset);
struct dataset_env *dataset_env_ref(struct dataset_env *env);
void dataset_env_unref(struct dataset_env *env); /* accepts NULL */
/* The environment of input `i` of a dataset with several inputs, always the same branch. Borrowed:
 * `env` owns it. */
struct dataset_env *dataset_env_branch(struct dataset_env *env, int i);

/* ---- datasets ---- */

/* Makes a dataset of a kind, with one reference. Its inputs are the node's first n_inputs inputs.
 * Its types and shapes are those of input 0 until dataset_declare sets others. Errors:
 * INVALID_ARGUMENT when an input holds no dataset or nests too deep. */
struct status *dataset_new(struct kernel_ctx *ctx, const struct dataset_kind *kind, int n_inputs,
                           struct dataset **ret) MUST_USE;
/* Types and shapes from the node's attrs; NULL: output_types, output_shapes. Errors:
 * INVALID_ARGUMENT when the lists differ in length. */
struct status *dataset_declare(struct kernel_ctx *ctx, struct dataset *dataset,
                               const char *types_attr, const char *shapes_attr) MUST_USE;
/* The same from arguments; shapes may be NULL: unknown. Sizes are copied. */
void dataset_set_components(struct dataset *dataset, int n, const uint8_t *types,
                            const struct shape *shapes);
/* Sets output 0 to the dataset. Takes the reference. */
enum kernel_result dataset_output(struct kernel_ctx *ctx, struct dataset *dataset_take);
/* Sets output 0 to the dataset, or fails with the status if there is one. Takes both. */
enum kernel_result dataset_finish(struct kernel_ctx *ctx, struct dataset *dataset_take,
                                  struct status *status_take);
/* Makes a dataset while a pipeline runs, such as a window. The caller sets its components. */
struct dataset *dataset_new_bare(const struct dataset_kind *kind, int depth);
void dataset_unref(struct dataset *dataset); /* accepts NULL */
static inline struct dataset *dataset_ref(struct dataset *dataset) {
    object_ref(&dataset->object);
    return dataset;
}
/* Finds the dataset that a scalar variant holds. Borrowed. Errors: INVALID_ARGUMENT. */
struct status *dataset_of(const struct tensor *t, struct dataset **ret) MUST_USE;
int64_t dataset_cardinality(struct dataset *dataset);

/* ---- iterators ---- */
struct status *dataset_iter_new(struct dataset *dataset, struct dataset_env *env,
                                struct dataset_iter **ret) MUST_USE;
void dataset_iter_free(struct dataset_iter *iter); /* accepts NULL; no task may be polling it */
/* Makes the next element. DATA_PENDING also when the task's time slice is over, DATA_FAILED also
 * when the task is cancelled. */
enum data_poll dataset_iter_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out);

/* An iterator over input 0. Kinds with one input begin their struct with it. */
struct dataset_iter_one {
    struct dataset_iter iter;
    struct dataset_iter *input;
};
/* for `begin` and `end` of such kinds */
struct status *dataset_begin_one(struct dataset_iter *iter);
void dataset_end_one(struct dataset_iter *iter);

/* ---- elements ---- */
struct tensor *element_new(int n); /* aligned tensors that hold nothing; never NULL */
void element_clear(struct tensor *tensors, int n);
void element_free(struct tensor *tensors, int n); /* clears; accepts NULL */
void element_move(struct tensor *to, struct tensor *from, int n);
void element_copy(struct tensor *to, const struct tensor *from, int n);
/* Sets element `at` of the variant tensor `to` to a variant that holds the tensor *part, which is
 * moved. Errors: INVALID_ARGUMENT when variants nest too deep. */
struct status *element_wrap(struct tensor *part, struct tensor *to, int64_t at) MUST_USE;
/* Sets *ret to row `at` of a tensor of rank 1 or more, as a view where possible. */
struct status *dataset_row_of(const struct tensor *t, int64_t at, struct tensor *ret) MUST_USE;

/* ---- functions ---- */

/* A function with its captured tensors: part of a dataset. */
struct dataset_fn {
    struct function *function;
    struct tensor *captured;
    int n_captured;
};
/* Reads the function from the attr, and its captured tensors from the node's inputs [first, first +
 * n). */
struct status *dataset_fn_init(struct kernel_ctx *ctx, const char *attr, int first, int n,
                               struct dataset_fn *ret) MUST_USE;
void dataset_fn_fini(struct dataset_fn *fn);
/* Errors: INVALID_ARGUMENT when the function's results are not of these types. */
struct status *dataset_fn_check(const struct dataset_fn *fn, const uint8_t *types, int n) MUST_USE;
/* Checks that the outputs, which are set, have the shapes that the node declares. Errors:
 * INVALID_ARGUMENT. */
struct status *dataset_check_outputs(const struct kernel_ctx *ctx) MUST_USE;
/* The number of inputs in an op's list argument: the length of the list(type) attr. */
int dataset_list_length(const struct kernel_ctx *ctx, const char *attr);

/* A call of such a function: part of an iterator. One call runs at a time. */
struct dataset_call {
    struct data_call call;
    struct function *function; /* made by function_fresh; a reference */
    struct tensor *args;       /* n_inputs that the iterator fills, then the captured tensors */
    struct tensor *rets;       /* function->n_rets */
    int n_inputs, n_args;
    bool is_running;
};
struct status *dataset_call_init(struct dataset_call *call, const struct dataset_fn *fn,
                                 struct dataset_env *env, int n_inputs) MUST_USE;
void dataset_call_fini(struct dataset_call *call); /* must not be running; accepts a zeroed call */
/* Starts the call with its args, or checks whether it has ended. DATA_ELEMENT: `rets` are set, for
 * the caller to move out, and the first n_inputs args are cleared. */
enum data_poll dataset_call_poll(struct dataset_call *call, struct data_task *task);

/* ---- helpers of kernels ---- */

/* A kernel's row: an op whose output is a dataset. */
#define DATASET_KERNEL(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL }

/* Read a scalar input of integers or bool. Errors: INVALID_ARGUMENT naming the input. */
struct status *dataset_scalar_i64(struct kernel_ctx *ctx, int input, const char *name,
                                  int64_t *ret) MUST_USE;
struct status *dataset_scalar_bool(struct kernel_ctx *ctx, int input, const char *name,
                                   bool *ret) MUST_USE;

#endif
