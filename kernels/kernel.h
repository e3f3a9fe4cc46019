/* The kernel interface: how a device computes an op. A kernel is a row in its family's list
 * (kernels/cpu/X_kernels.c).
 *
 * Life: a plan chooses the first row whose op, device and dtypes fit and calls its init once per
 * node; init reads attrs and makes state. The executor calls compute once per execution of the
 * node, from any number of threads at a time on the same state. fini is called when the plan is
 * freed. State is immutable after init unless it guards itself.
 *
 * compute answers KERNEL_DONE (outputs are set, or kernel_fail was called) or KERNEL_PENDING
 * (asynchronous kernels only: it will call ctx->host->done(ctx) exactly once, later, on any
 * thread, never inside compute; inputs and outputs stay valid until then). Kernels never block
 * and never see dead inputs.
 *
 * A kernel reaches its host only through ctx->host (kernels/host.h). It knows nothing of graphs
 * in the making, of wires or of other nodes. */
#ifndef MILLRACE_KERNELS_KERNEL_H
#define MILLRACE_KERNELS_KERNEL_H

#include "common/base/pool.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/tensor/tensor.h"

enum kernel_result { KERNEL_DONE, KERNEL_PENDING };

struct device_engine;
struct kernel_ctx;
struct kernel_host;
typedef enum kernel_result kernel_fn(struct kernel_ctx *ctx);

enum kernel_flags {
    KERNEL_ASYNC = 1, /* may answer KERNEL_PENDING */
    /* reads or changes something beyond its inputs: never folded, never merged */
    KERNEL_STATEFUL = 2,
    /* The state belongs to the node in its session: all plans of the session share it (random
     * streams), and so do nodes with the same node_state_name. It must not point into the node,
     * which it outlives. */
    KERNEL_SESSION_STATE = 16,
    /* Of a stateful kernel: it may be cut short anywhere, since its effect (a random stream that
     * moves on) happens at once, before its long work. */
    KERNEL_STOPPABLE = 128,
    /* Each element of the one output depends only on the elements at its place of the inputs, after
     * these have been broadcast: the op may become part of a fused program (common/graph/fused.h),
     * whose kernel has an entry for the row's compute function. */
    KERNEL_ELEMENTWISE = 256,
    /* A failure of compute says already which node it is of (a fused program: which of the nodes
     * that it stands for), so the caller does not add the name. */
    KERNEL_NAMES_NODES = 512,
    /* A product, which calls ctx->epilogue as struct kernel_epilogue says: the op may be the first
     * instruction of a fused program. */
    KERNEL_PRODUCT = 1024,
    /* An input of a reference variable without a value is taken as the reference (TENSOR_REF). For
     * other kernels such a variable fails the step. */
    KERNEL_TAKES_UNINITIALIZED = 2048,
    /* ---- rows of a device with a memory of its own ---- */
    /* The CPU's row of the op computes it: all its arguments are in host memory, or it touches no
     * element itself (Reshape, Shape, ReadVariableOp), or it hands the elements to the device's
     * engine (kernel_instance.engine: Transpose, ApplyAdam). Its allocator is the host's if all
     * its outputs are there, else the device's. */
    KERNEL_OF_CPU = 32,
    /* An input that is a small value in host memory (TENSOR_INLINE) is taken as it is, because the
     * kernel passes it along with its launch. */
    KERNEL_TAKES_INLINE = 64,
};

enum { KERNEL_MAX_CONSTRAINTS = 4 };

/* What init may read and set. */
struct kernel_init {
    const struct node *node;
    struct allocator *allocator; /* of the node's device; outlives the state */
    const char *device;          /* full name of the node's device */
    /* NULL outside of a worker (folding): only stateless kernels run then */
    const struct kernel_host *host;
    const void *arg; /* the row's `arg` */
    /* Set to the row's; init may choose a narrower one, by dtype for example. */
    kernel_fn *compute;
    void *state; /* NULL; init may set it; freed by the row's fini */
    /* > 0: the state is this many bytes without pointers that are never written again; instances
     * with equal bytes share one copy. */
    size_t plain_state_bytes;
};

/* One row: an implementation and where it applies. Its costs are in a row of kernels/cost.h. */
struct kernel_def {
    const char *op;
    struct {
        const char *attr; /* a type attr of the op; NULL ends the list */
        dtype_set types;
    } constraints[KERNEL_MAX_CONSTRAINTS];
    kernel_fn *compute;
    struct status *(*init)(struct kernel_init *init); /* NULL: nothing to prepare */
    void (*fini)(void *state);                        /* NULL: free() */
    const void *arg;                                  /* the family's: a loop table, a variant */
    uint32_t flags;
    /* Of a device with a memory of its own: the names of the arguments that are in host memory,
     * with NULL at the end. NULL: none. Not looked at for a CPU. */
    const char *const *host_args;
};

/* The part of a context that is the same for every execution; kernel_instance_init makes it. */
struct kernel_instance {
    const struct node *node; /* borrowed from the plan */
    const struct kernel_def *def;
    kernel_fn *compute;
    void *state;
    const struct cost_row *cost; /* kernels/cost.h */
    struct allocator *allocator;
    /* NULL when the allocator's memory is the host's; else what a kernel of the CPU hands the
     * elements to (kernels/support/device_engine.h) */
    const struct device_engine *engine;
    const char *device;
    int n_inputs, n_outputs;
    const uint8_t *in_types, *out_types;
    uint32_t plain_state_bytes;
    bool is_state_shared; /* a session, or another instance of the plan, owns the state */
};

/* What a kernel with KERNEL_PRODUCT calls, so that the elementwise ops behind a product find its
 * elements in a cache. */
struct kernel_epilogue {
    /* Makes output 0, which kernel_alloc_product asks for. */
    struct status *(*begin)(struct kernel_ctx *ctx, enum dtype dtype, struct shape shape);
    /* Takes the elements [begin, end) of output 0, which the kernel does not look at again. A
     * kernel hands over either all elements or none. It may compute the whole product once more,
     * and hand all of it over again. Any thread, several at a time. */
    void (*take)(const struct kernel_ctx *ctx, int64_t begin, int64_t end);
};

struct kernel_ctx {
    /* n_inputs values. The kernel may move one out (kernel_forward_or_alloc, kernel_pass); the
     * executor clears the rest. */
    struct tensor *inputs;
    struct tensor *outputs; /* n_outputs, holding nothing; the kernel sets each one, or fails */
    const struct kernel_instance *instance;
    const struct kernel_host *host;
    struct pool *pool; /* for pool_parallel_for; may be NULL */
    void *host_data;   /* of the host; kernels do not look at it */
    uint64_t step_id;
    struct status *status;                  /* NULL, or the failure */
    const struct kernel_epilogue *epilogue; /* NULL: nothing is behind the kernel */
};

/* Finds the row for a node on a device type ("CPU") and runs its init. Errors: "No OpKernel was
 * registered to support Op 'X' used by {{node n}} with these attrs …" naming the dtypes asked
 * and the rows there are: UNIMPLEMENTED when the op has no row at all, INVALID_ARGUMENT when it
 * has rows for other dtypes; whatever init says. All with `[[{{node n}}]]` added. */
struct status *kernel_instance_init(struct kernel_instance *instance, const struct node *node,
                                    const char *device_type, const char *device,
                                    struct allocator *allocator,
                                    const struct kernel_host *host) MUST_USE;
void kernel_instance_fini(struct kernel_instance *instance); /* accepts an all-zero one */

/* The row for a node, or NULL. Any thread. */
const struct kernel_def *kernel_find(const struct node *node, const char *device_type);
/* Does the op have a row for any dtypes? */
bool kernel_op_is_supported(const char *op, const char *device_type);
/* Does the state of the op's nodes belong to the session (KERNEL_SESSION_STATE)? */
bool kernel_op_has_session_state(const char *op, const char *device_type);
/* The rows of a device type by index 0, 1, …; NULL past the last. For docs and table tests. */
const struct kernel_def *kernel_at(const char *device_type, size_t index);

/* Runs one stateless node outside of any plan: what folding and tests use. inputs are borrowed;
 * outputs must hold nothing and own their values after. `host` may be NULL. Asynchronous kernels
 * are UNIMPLEMENTED here. */
struct status *kernel_eval(const struct node *node, struct allocator *allocator, struct pool *pool,
                           const struct kernel_host *host, void *host_data,
                           const struct tensor *inputs, struct tensor *outputs) MUST_USE;

/* ---- helpers for compute ---- */

/* Records the failure (takes the status); the first one stays. `return kernel_fail(ctx,
 * status_invalid(…));` */
enum kernel_result kernel_fail(struct kernel_ctx *ctx, struct status *status_take);
#define KERNEL_TRY(ctx, expression)                 \
    do {                                            \
        struct status *kernel_try_ = (expression);  \
        if (unlikely(kernel_try_ != NULL))          \
            return kernel_fail((ctx), kernel_try_); \
    } while (0)

/* A fresh value in the memory of the instance's allocator, all its bits zero if is_zeroed. On a
 * device the node is noted as its holder. *ret must hold nothing. */
struct status *kernel_new_on_device(struct kernel_ctx *ctx, enum dtype dtype, struct shape shape,
                                    bool is_zeroed, struct tensor *ret) MUST_USE;
static inline struct status *kernel_new(struct kernel_ctx *ctx, enum dtype dtype,
                                        struct shape shape, struct tensor *ret) {
    return unlikely(ctx->instance->engine != NULL)
               ? kernel_new_on_device(ctx, dtype, shape, false, ret)
               : tensor_new(ctx->instance->allocator, dtype, shape, ret);
}
/* The same, as an output. */
static inline struct status *kernel_alloc(struct kernel_ctx *ctx, int output, enum dtype dtype,
                                          struct shape shape) {
    return kernel_new(ctx, dtype, shape, &ctx->outputs[output]);
}
/* Output 0 of a kernel with KERNEL_PRODUCT. */
static inline struct status *kernel_alloc_product(struct kernel_ctx *ctx, enum dtype dtype,
                                                  struct shape shape) {
    return ctx->epilogue ? ctx->epilogue->begin(ctx, dtype, shape)
                         : kernel_alloc(ctx, 0, dtype, shape);
}
/* Hands elements of a product over. */
static inline void kernel_hand_over(const struct kernel_ctx *ctx, int64_t begin, int64_t end) {
    if (ctx->epilogue)
        ctx->epilogue->take(ctx, begin, end);
}
/* The same, with all bits zero. */
static inline struct status *kernel_alloc_zeroed(struct kernel_ctx *ctx, int output,
                                                 enum dtype dtype, struct shape shape) {
    struct tensor *ret = &ctx->outputs[output];
    return unlikely(ctx->instance->engine != NULL)
               ? kernel_new_on_device(ctx, dtype, shape, true, ret)
               : tensor_new_zeroed(ctx->instance->allocator, dtype, shape, ret);
}
/* Makes output `output`: in input `input`'s memory when nobody else holds that memory and its
 * number and size of elements fit, else in fresh memory. After success ctx->inputs[input] may hold
 * nothing, so read its data through a pointer taken before the call, and write element i only after
 * reading element i. */
struct status *kernel_forward_or_alloc(struct kernel_ctx *ctx, int input, int output,
                                       enum dtype dtype, struct shape shape) MUST_USE;
/* Says whether outputs may take an input's memory; they may by default. Without it a wrong result
 * shows that a kernel writes what another still needs. Call it before threads start. */
void kernel_set_in_place(bool is_allowed);
/* Moves input `input` to output `output`, as Identity does. */
void kernel_pass(struct kernel_ctx *ctx, int input, int output);
kernel_fn kernel_identity; /* moves input 0 to output 0 */

static inline const struct tensor *kernel_input(const struct kernel_ctx *ctx, int i) {
    return &ctx->inputs[i];
}

/* ---- tables ---- */
struct kernel_list {
    const struct kernel_def *rows;
    size_t n_rows;
};
/* The families of common/ops/families.inc; a device plugin adds its own. */
extern const struct kernel_list *const cpu_kernel_lists[];
extern const size_t n_cpu_kernel_lists;
/* Adds a device type's rows (a plugin at load). Before threads start. */
void kernel_add_device_type(const char *device_type, const struct kernel_list *const *lists,
                            size_t n_lists);

#endif
