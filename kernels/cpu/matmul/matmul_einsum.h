/* What the files of Einsum share: how an operand's elements are walked, and the roles of labels
 * once they are known (matmul_einsum.c). */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_EINSUM_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_EINSUM_H

#include "common/ops/einsum_equation.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/kernel.h"

struct einsum_state {
    struct einsum_equation equation;
    enum dtype dtype, compute;
};

struct axis {
    int64_t size, stride; /* in elements of the strided side */
};
struct walk {
    int n_axes, n_summed; /* the last n_summed axes are summed */
    struct axis axes[SHAPE_MAX_RANK];
};

static inline int64_t walk_elements(const struct walk *walk, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= walk->axes[i].size;
    return n;
}

/* Is it a plain copy? */
static inline bool walk_is_contiguous(const struct walk *walk) {
    int64_t stride = 1;
    for (int i = walk->n_axes - 1; i >= 0; i--) {
        if (walk->axes[i].stride != stride)
            return false;
        stride *= walk->axes[i].size;
    }
    return walk->n_summed == 0;
}

struct operand {
    uint16_t labels[SHAPE_MAX_RANK]; /* each label once, in the order of the dimensions */
    int n_labels;
    int64_t stride[EINSUM_N_LABELS];
    bool has[EINSUM_N_LABELS];
    struct walk walk;
    const void *data;
    void *memory; /* malloc'd, or NULL */
};

struct einsum_job {
    const struct einsum_state *state;
    struct operand in[EINSUM_MAX_INPUTS], out;
    int64_t size[EINSUM_N_LABELS];
    int64_t n_batch, rows, inner, columns;
    const char *a, *b;
    char *c;
    struct matmul_division division; /* of the only product */
    int64_t unit_rows, units;        /* the rows of a unit of work; the units of each product */
};

/* Computes output 0 on the device of the node: as on a host, with copies, sums and products of its
 * engine. The walks are planned, and the output is made and has elements. Errors: the device's. */
struct status *einsum_run_on_device(struct kernel_ctx *ctx, struct einsum_job *job) MUST_USE;

#endif
