/* Adds nodes for gradient functions (gradient.h) in a short notation. A value is an output of a
 * node: struct node_input.
 *
 *   static void square_grad(struct gradient_ctx *g) {        dy · 2 x
 *       SET(0, MUL(DY(0), MUL(NUM(2), CONJ(IN(0)))));
 *   }
 *
 * Every function adds nodes to the graph and returns their output. After an error
 * (gradient_ctx.status) it adds nothing, so formulas need no checks in between. The type attrs and
 * counts of a new node follow from its inputs. Nodes that are added and not used are pruned later.
 * Only for common/gradients: the macros have short names and need a variable `g`. */
#ifndef MILLRACE_COMMON_GRADIENTS_BUILD_H
#define MILLRACE_COMMON_GRADIENTS_BUILD_H

#include "common/gradients/gradient.h"

/* An attr that does not follow from the inputs; `type` says which member is used. A row of zeros
 * ends a list. */
struct gradient_attr {
    const char *name;
    enum attr_type type;
    union {
        int64_t i;
        bool b;
        enum dtype dtype;
        const char *s;
    };
};

/* ---- the op that is differentiated ---- */

struct node_input gradient_input(const struct gradient_ctx *g, int i);
struct node_input gradient_output(const struct gradient_ctx *g, int i);
/* dL/d output i; zeros where no gradient flows. */
struct node_input gradient_of(struct gradient_ctx *g, int i);
bool gradient_has(const struct gradient_ctx *g, int i);
void gradient_set(struct gradient_ctx *g, int i, struct node_input value);
int64_t gradient_attr_i(struct gradient_ctx *g, const char *name);
bool gradient_attr_b(struct gradient_ctx *g, const char *name);
enum dtype gradient_dtype(struct node_input value); /* base type */

/* ---- nodes ---- */

/* Returns output 0 of a new node. `is_like`: the node takes over the attrs that the differentiated
 * op has as well. `attrs` may be NULL. */
struct node_input gradient_op(struct gradient_ctx *g, const char *op, bool is_like,
                              const struct gradient_attr *attrs, int n_inputs,
                              const struct node_input *inputs);
/* The same with inputs up to GRADIENT_END, so that the macros evaluate them only once and may be
 * nested. */
struct node_input gradient_op_of(struct gradient_ctx *g, const char *op, bool is_like,
                                 const struct gradient_attr *attrs,
                                 const struct node_input *inputs);
#define GRADIENT_END ((struct node_input){NULL, INT32_MIN})
/* A Switch, or, for an index, a _SwitchN. */
struct node_input gradient_switch(struct gradient_ctx *g, struct node_input value,
                                  struct node_input pred, int n_sides);
/* another output of the same node */
struct node_input gradient_second(struct node_input value, int output);

/* a Const */
struct node_input gradient_constant(struct gradient_ctx *g, const struct tensor *value);
/* a scalar of the dtype of `like` */
struct node_input gradient_number(struct gradient_ctx *g, struct node_input like, double value);
struct node_input gradient_i32(struct gradient_ctx *g, int32_t value);
struct node_input gradient_i32s(struct gradient_ctx *g, int n, const int32_t *values);
/* returns `value` itself where it has the dtype */
struct node_input gradient_cast(struct gradient_ctx *g, struct node_input value, enum dtype dtype);
/* returns `value` itself where it is real */
struct node_input gradient_conj(struct gradient_ctx *g, struct node_input value);

#define ATTR_B(name, value)                 \
    {                                       \
        (name), ATTR_BOOL, { .b = (value) } \
    }
#define ATTR_I(name, value)                \
    {                                      \
        (name), ATTR_INT, { .i = (value) } \
    }
#define ATTR_S(name, value)                   \
    {                                         \
        (name), ATTR_STRING, { .s = (value) } \
    }
#define ATTR_T(name, value)                     \
    {                                           \
        (name), ATTR_TYPE, { .dtype = (value) } \
    }
#define ATTRS(...) ((const struct gradient_attr[]){__VA_ARGS__, {NULL, ATTR_STRING, {0}}})

#define GRADIENT_OP(is_like, op, attrs, ...) \
    gradient_op_of(g, op, is_like, attrs, (struct node_input[]){__VA_ARGS__, GRADIENT_END})
#define OP(op, ...) GRADIENT_OP(false, op, NULL, __VA_ARGS__)
#define OP_WITH(op, attrs, ...) GRADIENT_OP(false, op, attrs, __VA_ARGS__)
#define LIKE(op, ...) GRADIENT_OP(true, op, NULL, __VA_ARGS__)
#define LIKE_WITH(op, attrs, ...) GRADIENT_OP(true, op, attrs, __VA_ARGS__)

#define IN(i) gradient_input(g, i)
#define OUT(i) gradient_output(g, i)
#define DY(i) gradient_of(g, i)
#define SET(i, value) gradient_set(g, i, value)
#define SECOND(value) gradient_second(value, 1)

#define NUM(value) gradient_number(g, gradient_of(g, 0), value)
#define CONJ(value) gradient_conj(g, value)
#define CAST(value, like) gradient_cast(g, value, gradient_dtype(like))
#define NEG(a) OP("Neg", a)
#define ADD(a, b) OP("AddV2", a, b)
#define SUB(a, b) OP("Sub", a, b)
#define MUL(a, b) OP("Mul", a, b)
#define DIV(a, b) OP("RealDiv", a, b)
#define SQUARE(a) OP("Square", a)
#define ZEROS(a) OP("ZerosLike", a)
#define WHERE(condition, a, b) OP("SelectV2", condition, a, b)

/* ---- shapes: int32 vectors and scalars (build_shape.c) ---- */

#define I32(value) gradient_i32(g, value)
#define I32S(...) \
    gradient_i32s(g, (int)ARRAY_LEN(((int32_t[]){__VA_ARGS__})), (int32_t[]){__VA_ARGS__})
#define SHAPE(a) OP("Shape", a)
#define SHAPE_AS(a, like) OP_WITH("Shape", ATTRS(ATTR_T("out_type", gradient_dtype(like))), a)
#define RESHAPE(a, shape) OP("Reshape", a, shape)
#define RESHAPE_LIKE(a, like) OP("Reshape", a, SHAPE(like))
#define SUM(a, axes) OP("Sum", a, axes)
#define SUM_KEPT(a, axes) OP_WITH("Sum", ATTRS(ATTR_B("keep_dims", true)), a, axes)
#define RANGE(n) OP("Range", I32(0), n, I32(1))
#define EXPAND(a, axis) OP("ExpandDims", a, I32(axis))
#define CONCAT(...) gradient_concat(g, (struct node_input[]){__VA_ARGS__, GRADIENT_END})

/* Joins vectors, up to GRADIENT_END. */
struct node_input gradient_concat(struct gradient_ctx *g, const struct node_input *vectors);
/* Elements [begin, end) of a vector; begin and end are scalars. */
struct node_input gradient_slice(struct gradient_ctx *g, struct node_input vector,
                                 struct node_input begin, struct node_input end);
/* element i as a scalar; a negative i counts from the end */
struct node_input gradient_element(struct gradient_ctx *g, struct node_input vector, int32_t i);
/* the product of the elements */
struct node_input gradient_product(struct gradient_ctx *g, struct node_input vector);
/* The part of a shape before its last n axes, and the last n. */
struct node_input gradient_outer(struct gradient_ctx *g, struct node_input shape, int32_t n);
struct node_input gradient_inner(struct gradient_ctx *g, struct node_input shape, int32_t n);
/* Zeros for a gradient: of the dtype and shape of `like`, or of the shape of the variable whose
 * handle it is, and then of `dtype`. */
struct node_input gradient_zeros(struct gradient_ctx *g, struct node_input like, enum dtype dtype);
/* `value` summed over the axes along which `to` was broadcast; it has the shape of `to`. */
struct node_input gradient_unbroadcast(struct gradient_ctx *g, struct node_input value,
                                       struct node_input to);
/* The axes of a reduction of `x` as a vector of numbers from 0 on; the shape of `x` with 1 for
 * these axes. */
struct node_input gradient_axes(struct gradient_ctx *g, struct node_input x,
                                struct node_input axes);
struct node_input gradient_kept_shape(struct gradient_ctx *g, struct node_input x,
                                      struct node_input axes);
/* The product of matrices over batches, each adjoint if requested; the adjoint. */
struct node_input gradient_matmul(struct gradient_ctx *g, struct node_input a, bool adj_a,
                                  struct node_input b, bool adj_b);
struct node_input gradient_adjoint(struct gradient_ctx *g, struct node_input a);

#define UNBROADCAST(value, to) gradient_unbroadcast(g, value, to)
/* dL/d input i of an op that broadcasts its inputs. */
#define SET_SUM(i, value) SET(i, UNBROADCAST(value, IN(i)))

#endif
