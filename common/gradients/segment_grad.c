/* Differentiates segment reductions: each row gets the gradient of its segment (build.h). */
#include "common/gradients/build.h"

/* ---- sorted segments ---- */

static struct node_input rows_of(struct gradient_ctx *g, struct node_input by_segment,
                                 struct node_input ids) {
    return OP("GatherV2", by_segment, ids, I32(0));
}

static void segment_sum_grad(struct gradient_ctx *g) { SET(0, rows_of(g, DY(0), IN(1))); }

static void segment_mean_grad(struct gradient_ctx *g) {
    struct node_input n_more = RESHAPE(SUB(OP("Rank", IN(0)), I32(1)), I32S(1));
    struct node_input shape = CONCAT(SHAPE(IN(1)), OP("Fill", n_more, I32(1)));
    struct node_input n = OP("SegmentSum", OP("Fill", shape, NUM(1)), IN(1));
    SET(0, rows_of(g, DIV(DY(0), n), IN(1)));
}

static void segment_extreme_grad(struct gradient_ctx *g) {
    struct node_input is_it = OP("Equal", IN(0), rows_of(g, OUT(0), IN(1)));
    struct node_input n = OP("SegmentSum", CAST(is_it, DY(0)), IN(1));
    SET(0, WHERE(is_it, rows_of(g, DIV(DY(0), n), IN(1)), NUM(0)));
}

/* The product of the other elements of a segment. Without a 0 in the segment it is computed by a
 * division. For the only 0 it is the product without that 0, and otherwise 0. `sum` and `product`
 * reduce rows to segments, `spread` copies segments to rows. */
struct segments {
    const char *sum, *product;
    struct node_input ids, n; /* n: for the unsorted ops */
    struct node_input row_ids;
};

static struct node_input reduce(struct gradient_ctx *g, const struct segments *by, const char *op,
                                struct node_input rows) {
    return by->n.src ? OP(op, rows, by->ids, by->n) : OP(op, rows, by->ids);
}

static struct node_input product_of_others(struct gradient_ctx *g, const struct segments *by) {
    struct node_input x = IN(0), is_zero = OP("Equal", x, NUM(0));
    struct node_input n_zeros = rows_of(
        g, reduce(g, by, by->sum, OP_WITH("Cast", ATTRS(ATTR_T("DstT", DT_INT32)), is_zero)),
        by->row_ids);
    struct node_input not_zero = WHERE(is_zero, NUM(1), x);
    struct node_input without_zeros = rows_of(g, reduce(g, by, by->product, not_zero), by->row_ids);
    struct node_input by_division = DIV(rows_of(g, OUT(0), by->row_ids), not_zero);
    struct node_input others = WHERE(is_zero, without_zeros, by_division);
    return WHERE(OP("Greater", n_zeros, I32(1)), NUM(0), others);
}

static void segment_prod_grad(struct gradient_ctx *g) {
    struct segments by = {"SegmentSum", "SegmentProd", IN(1), {NULL, 0}, IN(1)};
    SET(0, MUL(rows_of(g, DY(0), IN(1)), product_of_others(g, &by)));
}

/* ---- unsorted segments: rows with negative ids are in no segment ---- */

static struct node_input clipped_ids(struct gradient_ctx *g) {
    return OP("Maximum", IN(1), ZEROS(IN(1)));
}

/* Is the row in a segment? In the shape of the ids, with as many axes of size 1 as a row has
 * axes. */
static struct node_input is_in(struct gradient_ctx *g) {
    struct node_input ids = IN(1), is_it = OP("GreaterEqual", ids, ZEROS(ids));
    struct node_input n_more = SUB(OP("Rank", IN(0)), OP("Rank", ids));
    return RESHAPE(is_it, CONCAT(SHAPE(ids), OP("Fill", RESHAPE(n_more, I32S(1)), I32(1))));
}

static struct node_input rows_or_zeros(struct gradient_ctx *g, struct node_input by_segment) {
    return WHERE(is_in(g), rows_of(g, by_segment, clipped_ids(g)), NUM(0));
}

static void unsorted_segment_sum_grad(struct gradient_ctx *g) { SET(0, rows_or_zeros(g, DY(0))); }

static void unsorted_segment_extreme_grad(struct gradient_ctx *g) {
    struct node_input is_equal = OP("Equal", IN(0), rows_of(g, OUT(0), clipped_ids(g)));
    struct node_input is_it = OP("LogicalAnd", is_equal, is_in(g));
    struct node_input n = OP("UnsortedSegmentSum", CAST(is_it, DY(0)), IN(1), IN(2));
    SET(0, WHERE(is_it, rows_of(g, DIV(DY(0), n), clipped_ids(g)), NUM(0)));
}

static void unsorted_segment_prod_grad(struct gradient_ctx *g) {
    struct segments by = {"UnsortedSegmentSum", "UnsortedSegmentProd", IN(1), IN(2),
                          clipped_ids(g)};
    SET(0, MUL(rows_or_zeros(g, DY(0)), product_of_others(g, &by)));
}

/* ---- sparse segments, whose rows indices choose ---- */

static void sparse_segment(struct gradient_ctx *g, const char *op) {
    SET(0, OP(op, DY(0), IN(1), IN(2), gradient_element(g, SHAPE(IN(0)), 0)));
}

static void sparse_segment_sum_grad(struct gradient_ctx *g) {
    sparse_segment(g, "SparseSegmentSumGrad");
}
static void sparse_segment_mean_grad(struct gradient_ctx *g) {
    sparse_segment(g, "SparseSegmentMeanGrad");
}
static void sparse_segment_sqrt_n_grad(struct gradient_ctx *g) {
    sparse_segment(g, "SparseSegmentSqrtNGrad");
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("SegmentSum", segment_sum_grad),
    GRADIENT("SegmentMean", segment_mean_grad),
    GRADIENT("SegmentProd", segment_prod_grad),
    GRADIENT("SegmentMin", segment_extreme_grad),
    GRADIENT("SegmentMax", segment_extreme_grad),
    GRADIENT("UnsortedSegmentSum", unsorted_segment_sum_grad),
    GRADIENT("UnsortedSegmentProd", unsorted_segment_prod_grad),
    GRADIENT("UnsortedSegmentMin", unsorted_segment_extreme_grad),
    GRADIENT("UnsortedSegmentMax", unsorted_segment_extreme_grad),
    GRADIENT("SparseSegmentSum", sparse_segment_sum_grad),
    GRADIENT("SparseSegmentMean", sparse_segment_mean_grad),
    GRADIENT("SparseSegmentSqrtN", sparse_segment_sqrt_n_grad),
    GRADIENT("SparseSegmentSumWithNumSegments", sparse_segment_sum_grad),
    GRADIENT("SparseSegmentMeanWithNumSegments", sparse_segment_mean_grad),
    GRADIENT("SparseSegmentSqrtNWithNumSegments", sparse_segment_sqrt_n_grad),
    UNDEFINED_GRADIENT("SparseSegmentSumGrad"),
    UNDEFINED_GRADIENT("SparseSegmentMeanGrad"),
    UNDEFINED_GRADIENT("SparseSegmentSqrtNGrad"),
};
// clang-format on

const struct gradient_list segment_gradients = {rows, ARRAY_LEN(rows)};
