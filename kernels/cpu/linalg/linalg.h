/* Linear algebra on stacks of matrices: what the engine (linalg.c), the routines for one matrix
 * (linalg_*.inc, compiled once per element type) and the rows (linalg_kernels.c) share.
 *
 * The engine checks the inputs, makes the outputs, converts half, and calls the op's routine for
 * every matrix of the stack, over the pool. Tensors store matrices by rows and LAPACK by columns.
 * So a routine transposes the matrix, or uses that LAPACK sees Aᵀ. */
#ifndef MILLRACE_KERNELS_CPU_LINALG_LINALG_H
#define MILLRACE_KERNELS_CPU_LINALG_LINALG_H

#include <complex.h>

#include "common/base/pool_cancel.h"
#include "kernels/support/broadcast.h"
#include "kernels/cpu/linalg/lapack.h"
#include "kernels/kernel.h"

enum { LINALG_MAX_INPUTS = 4, LINALG_MAX_OUTPUTS = 3 };

struct linalg_op;
struct linalg_problem;
/* Solves one problem. Errors: INVALID_ARGUMENT when there is no answer, RESOURCE_EXHAUSTED. */
typedef struct status *linalg_fn(struct linalg_problem *p);
/* A check reads the shapes of the inputs and fills the plan. Errors: INVALID_ARGUMENT. */
struct linalg_plan;
typedef struct status *linalg_check(const struct kernel_ctx *ctx, struct linalg_plan *plan);

struct linalg_op {
    linalg_fn *f32, *f64, *c64, *c128;
    linalg_check *check;
    double weight; /* time of a real problem ÷ that of a matrix product of its size */
};

struct linalg_state {
    const struct linalg_op *op;
    linalg_fn *fn;
    enum dtype in, compute;  /* the input's type, and the type to compute in (float for half) */
    bool adjoint, lower;     /* solvers */
    bool full_matrices;      /* Qr, Svd */
    bool vectors;            /* decompositions: whether vectors are wanted */
    bool fast;               /* MatrixSolveLs */
    bool pivoting, perturbs; /* TridiagonalSolve */
    enum dtype index;        /* Lu's permutation */
};

struct linalg_plan {
    const struct linalg_state *state;
    int64_t m, n, k; /* the matrix is m by n; the other operand has k columns */
    int64_t n_problems;
    struct shape stack; /* the dimensions before the matrices' */
    /* memory for a plan; used when broadcasts is true, for the stacks of two inputs */
    struct broadcast *broadcast;
    bool broadcasts;
    /* elements of one problem; 0: all problems share one value */
    int64_t in_elements[LINALG_MAX_INPUTS];
    int n_matrix_inputs;
    struct {
        enum dtype dtype;
        /* rank of one problem's part of the output; -1: the whole output is a scalar zero */
        int rank;
        int64_t dims[2];
    } out[LINALG_MAX_OUTPUTS];
    double l2;
    double cost_ns; /* of one problem */
};

struct linalg_problem {
    const struct linalg_state *state;
    const struct lapack *lapack;
    const void *in[LINALG_MAX_INPUTS];
    void *out[LINALG_MAX_OUTPUTS]; /* NULL when the output is not wanted */
    int64_t m, n, k;
    double l2;
    void *scratch; /* kept from one problem to the next */
    size_t scratch_size;
};

/* Returns memory of at least `size` bytes, aligned to 64 bytes, which is valid until the next call.
 * NULL when there is no memory. */
void *linalg_scratch(struct linalg_problem *p, size_t size) MUST_USE;
COLD struct status *linalg_no_memory(void) NEVER_NULL;
COLD struct status *linalg_not_invertible(void) NEVER_NULL;

/* May a loop over the rows of an n by n matrix go on? False once nobody wants the result, and the
 * routine then returns at once. */
static inline bool linalg_goes_on(int64_t n) {
    enum { WORTH_ASKING = 128 };
    return n < WORTH_ASKING || !pool_is_unwanted();
}

kernel_fn linalg_compute;
struct status *linalg_init(struct kernel_init *init);
/* Fills in what most ops have in common, for an input of rank 2 or more: the stack, m and n.
 * Errors: INVALID_ARGUMENT. */
struct status *linalg_plan_stack(const struct kernel_ctx *ctx, struct linalg_plan *plan,
                                 int n_inputs) MUST_USE;

/* The routines that exist for each element type. */
// clang-format off
#define LINALG_ROUTINES(X)                                                       \
    X(cholesky) X(cholesky_grad) X(determinant) X(log_determinant) X(inverse)    \
    X(solve) X(triangular_solve) X(banded_solve) X(lu) X(qr) X(svd)              \
    X(self_adjoint_eig) X(self_adjoint_eig_v1) X(solve_ls) X(tridiagonal_solve)  \
    X(tridiagonal_matmul)
// clang-format on
#define LINALG_DECLARE(name) \
    linalg_fn linalg_##name##_f32, linalg_##name##_f64, linalg_##name##_c64, linalg_##name##_c128;
LINALG_ROUTINES(LINALG_DECLARE)
/* These compute every type in complex128. */
linalg_fn linalg_eig, linalg_square_root, linalg_logarithm;

/* The checks; see linalg_checks.c. */
linalg_check linalg_check_cholesky, linalg_check_cholesky_grad, linalg_check_square,
    linalg_check_determinant, linalg_check_log_determinant, linalg_check_solve,
    linalg_check_triangular_solve, linalg_check_banded_solve, linalg_check_lu, linalg_check_qr,
    linalg_check_svd, linalg_check_self_adjoint_eig, linalg_check_self_adjoint_eig_v1,
    linalg_check_eig, linalg_check_solve_ls, linalg_check_tridiagonal_solve,
    linalg_check_tridiagonal_matmul;

#endif
