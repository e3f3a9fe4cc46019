/* The arguments of the kernels in rnn.cu, as the host fills them and the kernels read them. Values
 * are T unless they are declared as float; T is half or float. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_RNN_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_RNN_ARGS_H

#include "kernels/cuda/ops/division.h"

enum { RNN_THREADS = 256, RNN_MAX_WIDTH = 32 };

/* Where the columns of each gate begin in a row of 4 · cells. */
struct rnn_order {
    int64_t i, ci, f, o;
};

/* ---- LSTM ---- */

/* One step, element by element of [batch, cells]. */
struct lstm_gates_args {
    const void *from_x, *from_h; /* [batch, 4 · cells]; from_x is NULL without inputs */
    const void *cs_prev;         /* read unless reads_carry */
    /* the cells of half in full precision, which the next step reads; NULL for float */
    float *carry;
    const void *b;               /* [4 · cells] */
    const void *wci, *wcf, *wco; /* [cells]; NULL without peepholes */
    void *i, *cs, *f, *o, *ci, *co, *h;
    int64_t n;
    struct gpu_divisor cells;
    struct rnn_order order;
    float forget_bias, limit; /* the cell is clipped to [-limit, limit] */
    int32_t reads_carry;
};

/* One step backwards, element by element of [batch, cells]. */
struct lstm_grad_args {
    const void *cs_prev, *i, *f, *o, *ci, *co, *cs_grad, *h_grad;
    const void *h_later;         /* the gradient of h from the next step; NULL at the last one */
    const void *wci, *wcf, *wco; /* [cells]; NULL without peepholes */
    float *carry;                /* the gradient of cs of half, as above */
    void *cs_prev_grad;          /* without carry it also holds the gradient from the next step */
    void *dicfo;                 /* [batch, 4 · cells], written */
    int64_t n;
    struct gpu_divisor cells;
    struct rnn_order order;
};

/* out[c] = Σ d[row, first + c] · factor[row, c] over all rows; without factors they are 1.
 *
 * A block adds up a chunk of the rows for `width` columns, a power of two, and merges its threads
 * as a tree. A second kernel adds up the chunks in their order. The sizes alone decide all of
 * this, so a result is always the same. */
struct rnn_columns_args {
    const void *d; /* [n_rows, row_len] */
    /* [n_rows, n_columns]: the first n_before rows are in `before`, and the others in `rest` */
    const void *before, *rest;
    void *out;   /* [n_columns] */
    float *sums; /* [n_chunks, n_columns] */
    int64_t n_rows, row_len, first, n_columns, n_before;
    int64_t n_chunks, chunk;
    int32_t width;
};

/* ---- GRU, of float ---- */

struct gru_gates_args {
    const float *from_x, *from_h; /* [batch, 2 · cells]; from_x is NULL without inputs */
    const float *b, *h_prev;
    float *r, *u, *reset; /* reset = r · h_prev */
    int64_t n;
    struct gpu_divisor cells;
};

struct gru_outputs_args {
    const float *from_x, *from_reset; /* [batch, cells]; from_x is NULL without inputs */
    const float *b, *h_prev, *u;
    float *c, *h;
    int64_t n;
    struct gpu_divisor cells;
};

struct gru_grad_args {
    const float *h_prev, *r, *u, *c, *d_h;
    const float *d_reset; /* the gradient of r · h_prev */
    const float *from_ru; /* what the gates add to the gradient of h_prev */
    float *d_c, *d_ru, *d_h_prev;
    int64_t n;
    struct gpu_divisor cells;
};

struct rnn_sum_args { /* out += other */
    float *out;
    const float *other;
    int64_t n;
};

#endif
