/* Runs non-max suppression, which chooses boxes greedily by score, and drops boxes that overlap a
 * chosen one. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/support/cancel.h"
#include "kernels/cpu/media/image.h"
#include "common/base/pool_sort.h"
#include "common/tensor/element.h"

extern const struct kernel_list image_suppress_kernels;

/* ---- the engine ---- */

/* How similar two boxes (by number) are. */
typedef float similarity_fn(const void *arg, int64_t a, int64_t b);

struct suppression {
    struct kernel_ctx *ctx;
    const float *scores;
    int64_t n, max_output;
    /* sigma > 0: scores are lowered [Bodla et al. 2017] instead of boxes being dropped at once */
    float similarity_threshold, score_threshold, sigma;
    similarity_fn *similarity;
    const void *arg;
    /* the result, malloc'd */
    int32_t *selected;
    float *selected_scores;
    int64_t n_selected;
};

struct candidate {
    float score;
    int32_t box;
    int64_t n_compared; /* how many of the selected boxes its score was compared with */
};

static bool is_before(const struct candidate *a, const struct candidate *b) {
    return a->score > b->score || (a->score == b->score && a->box < b->box);
}

static void sift_down(struct candidate *heap, int64_t n, int64_t i) {
    for (;;) {
        int64_t best = i;
        for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            best = is_before(&heap[child], &heap[best]) ? child : best;
        if (best == i)
            return;
        struct candidate moved = heap[i];
        heap[i] = heap[best];
        heap[best] = moved;
        i = best;
    }
}

/* Lowers the candidate's score by the selected boxes that it was not compared with yet. True when
 * one of them suppresses the candidate. */
static bool compare_with_selected(const struct suppression *s, struct candidate *candidate) {
    bool is_soft = s->sigma > 0;
    float scale = is_soft ? -0.5f / s->sigma : 0;
    for (int64_t j = s->n_selected - 1; j >= candidate->n_compared; j--) {
        float similarity = s->similarity(s->arg, candidate->box, s->selected[j]);
        if (!is_soft && similarity > s->similarity_threshold)
            return true;
        candidate->score *= is_soft || similarity <= s->similarity_threshold
                                ? expf(scale * similarity * similarity)
                                : 0;
        if (candidate->score <= s->score_threshold)
            break;
    }
    candidate->n_compared = s->n_selected;
    return false;
}

static void suppress(struct suppression *s) {
    struct candidate *heap = xmalloc((size_t)(s->n + 1) * sizeof(*heap));
    int64_t n = 0, n_most = MIN(s->max_output, s->n);
    s->selected = xcalloc((size_t)n_most + 1, sizeof(*s->selected));
    s->selected_scores = xcalloc((size_t)n_most + 1, sizeof(*s->selected_scores));
    s->n_selected = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->scores[i] > s->score_threshold)
            heap[n++] = (struct candidate){s->scores[i], (int32_t)i, 0};
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i);
    /* nobody uses the result of a cancelled step, so it may be incomplete */
    while (n > 0 && s->n_selected < n_most && !kernel_is_cancelled(s->ctx)) {
        float before = heap[0].score;
        bool is_gone = compare_with_selected(s, &heap[0]);
        if (!is_gone && heap[0].score == before) {
            s->selected[s->n_selected] = heap[0].box;
            s->selected_scores[s->n_selected++] = before;
            is_gone = true;
        }
        if (is_gone || !(heap[0].score > s->score_threshold))
            heap[0] = heap[--n];
        sift_down(heap, n, 0);
    }
    free(heap);
}

static void suppression_fini(struct suppression *s) {
    free(s->selected);
    free(s->selected_scores);
}

/* Intersection over union of two boxes y1, x1, y2, x2, whose corners may be in any order. */
static float box_overlap(const float *a, const float *b) {
    float ay0 = MIN(a[0], a[2]), ax0 = MIN(a[1], a[3]), ay1 = MAX(a[0], a[2]),
          ax1 = MAX(a[1], a[3]);
    float by0 = MIN(b[0], b[2]), bx0 = MIN(b[1], b[3]), by1 = MAX(b[0], b[2]),
          bx1 = MAX(b[1], b[3]);
    float area_a = (ay1 - ay0) * (ax1 - ax0), area_b = (by1 - by0) * (bx1 - bx0);
    if (area_a <= 0 || area_b <= 0)
        return 0;
    float height = MAX(MIN(ay1, by1) - MAX(ay0, by0), 0.0f),
          width = MAX(MIN(ax1, bx1) - MAX(ax0, bx0), 0.0f);
    float both = height * width;
    return both / (area_a + area_b - both);
}

struct box_list {
    const float *boxes;
    int64_t stride; /* in floats */
};

static float overlap_of_boxes(const void *arg, int64_t a, int64_t b) {
    const struct box_list *list = arg;
    return box_overlap(list->boxes + a * list->stride, list->boxes + b * list->stride);
}

/* As in TensorFlow, the candidate is the column and the selected box the row. */
static float overlap_of_matrix(const void *arg, int64_t a, int64_t b) {
    const struct tensor *overlaps = arg;
    return ((const float *)tensor_cdata(overlaps))[a * tensor_dim(overlaps, 1) + b];
}

/* ---- checks ---- */

struct suppress_state {
    float iou; /* NonMaxSuppression's attr */
    bool pads;
};

static struct status *suppress_init(struct kernel_init *init) {
    struct suppress_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    if (node_attr(init->node, "iou_threshold"))
        TRY(node_get_f(init->node, "iou_threshold", &state->iou));
    if (node_attr(init->node, "pad_to_max_output_size"))
        TRY(node_get_b(init->node, "pad_to_max_output_size", &state->pads));
    return NULL;
}

static struct status *scalar_float(const struct kernel_ctx *ctx, int input, const char *what,
                                   float *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s must be 0-D, got shape %s", what, TENSOR_SHAPE_TEXT(t));
    *ret = (float)tensor_real_at(t, 0);
    return NULL;
}

static struct status *check_fraction(const char *what, float v) {
    return v >= 0 && v <= 1 ? NULL : status_invalid("%s must be in [0, 1]", what);
}

static struct status *check_output_size(const struct tensor *size, int64_t *ret) {
    if (size->rank != 0)
        return status_invalid(
            "max_output_size must be 0-D, got shape %s (Shape must be rank 0 but is rank %d)",
            TENSOR_SHAPE_TEXT(size), size->rank);
    *ret = tensor_index_at(size, 0);
    return *ret >= 0 ? NULL : status_invalid("output size must be non-negative");
}

static struct status *check_inputs(const struct tensor *boxes, const struct tensor *scores,
                                   bool is_matrix) {
    if (boxes->rank != 2)
        return status_invalid("%s must be 2-D%s", is_matrix ? "overlaps" : "boxes",
                              TENSOR_SHAPE_TEXT(boxes));
    if (tensor_dim(boxes, 1) != (is_matrix ? tensor_dim(boxes, 0) : 4))
        return status_invalid(is_matrix ? "overlaps must be square%s"
                                        : "boxes must have 4 columns%s",
                              TENSOR_SHAPE_TEXT(boxes));
    if (scores->rank != 1)
        return status_invalid("scores must be 1-D%s (Shape must be rank 1 but is rank %d)",
                              TENSOR_SHAPE_TEXT(scores), scores->rank);
    if (tensor_dim(scores, 0) != tensor_dim(boxes, 0))
        return status_invalid(
            "scores has incompatible shape (Dimensions must be equal, but are %lld and %lld)",
            (long long)tensor_dim(scores, 0), (long long)tensor_dim(boxes, 0));
    return tensor_dim(boxes, 0) > INT32_MAX ? status_invalid("too many boxes") : NULL;
}

/* ---- NonMaxSuppression, V2 to V5, WithOverlaps ---- */

/* The arg of a row: which inputs and outputs a version has. */
struct suppress_version {
    int n_thresholds; /* how many of these inputs there are, from 3 on: similarity, score, sigma */
    bool is_matrix;   /* input 0 holds overlaps */
};

static struct status *read_thresholds(const struct kernel_ctx *ctx, struct suppression *s) {
    const struct suppress_version *version = ctx->instance->def->arg;
    const struct suppress_state *state = ctx->instance->state;
    s->similarity_threshold = state->iou;
    s->score_threshold = -INFINITY;
    if (version->n_thresholds > 0)
        TRY(scalar_float(ctx, 3, version->is_matrix ? "overlap_threshold" : "iou_threshold",
                         &s->similarity_threshold));
    if (!version->is_matrix)
        TRY(check_fraction("iou_threshold", s->similarity_threshold));
    if (version->n_thresholds > 1)
        TRY(scalar_float(ctx, 4, "score_threshold", &s->score_threshold));
    if (version->n_thresholds > 2) {
        TRY(scalar_float(ctx, 5, "soft_nms_sigma", &s->sigma));
        if (!(s->sigma >= 0))
            return status_invalid("soft_nms_sigma_val must be non-negative");
    }
    return NULL;
}

static struct status *put_selected(struct kernel_ctx *ctx, const struct suppression *s) {
    const struct suppress_state *state = ctx->instance->state;
    int64_t n = state->pads ? s->max_output : s->n_selected;
    TRY(tensor_new_zeroed(ctx->instance->allocator, DT_INT32, (struct shape){1, &n},
                          &ctx->outputs[0]));
    memcpy(tensor_data(&ctx->outputs[0]), s->selected, (size_t)s->n_selected * sizeof(int32_t));
    int last = ctx->instance->n_outputs - 1;
    if (last == 2) {
        TRY(tensor_new_zeroed(ctx->instance->allocator, (enum dtype)ctx->instance->out_types[1],
                              (struct shape){1, &n}, &ctx->outputs[1]));
        image_store(&ctx->outputs[1], 0, s->n_selected, s->selected_scores);
    }
    if (last > 0)
        tensor_init_scalar_i32(&ctx->outputs[last], (int32_t)s->n_selected);
    return NULL;
}

/* NonMaxSuppression and its versions.
 *   boxes              T [n, 4] (WithOverlaps: overlaps float [n, n])
 *   scores             T [n]
 *   max_output_size    int32 []; the thresholds follow
 *   selected_indices   int32 [m]
 *   selected_scores    T [m] (V5)
 *   valid_outputs      int32 [] (V4, V5) */
static enum kernel_result suppress_compute(struct kernel_ctx *ctx) {
    const struct suppress_version *version = ctx->instance->def->arg;
    const struct tensor *boxes = kernel_input(ctx, 0), *scores = kernel_input(ctx, 1);
    struct suppression s = {.ctx = ctx};
    KERNEL_TRY(ctx, check_output_size(kernel_input(ctx, 2), &s.max_output));
    KERNEL_TRY(ctx, read_thresholds(ctx, &s));
    KERNEL_TRY(ctx, check_inputs(boxes, scores, version->is_matrix));
    float *own_boxes = NULL, *own_scores = NULL;
    struct box_list list = {NULL, 4};
    list.boxes = image_floats(boxes, &own_boxes);
    s.scores = image_floats(scores, &own_scores);
    s.n = tensor_dim(boxes, 0);
    s.similarity = version->is_matrix ? overlap_of_matrix : overlap_of_boxes;
    s.arg = version->is_matrix ? (const void *)boxes : (const void *)&list;
    suppress(&s);
    struct status *st = kernel_check_cancelled(ctx);
    if (!st)
        st = put_selected(ctx, &s);
    suppression_fini(&s);
    free(own_boxes);
    free(own_scores);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- CombinedNonMaxSuppression ---- */

struct combined_state {
    bool pads_per_class, clips;
};

static struct status *combined_init(struct kernel_init *init) {
    struct combined_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "pad_per_class", &state->pads_per_class));
    return node_get_b(init->node, "clip_boxes", &state->clips);
}

struct found {
    float score, class, box[4];
    int64_t order;
};

struct combined_job {
    struct kernel_ctx *ctx;
    const struct combined_state *state;
    const float *boxes, *scores;
    int64_t n_boxes, n_per_box, n_classes, per_class, n_out;
    float iou, score;
    float *out_boxes, *out_scores, *out_classes;
    int32_t *out_n;
};

static int compare_found(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void combined_class(const struct combined_job *job, int64_t image, int64_t class,
                           float *scores, struct found *found, int64_t *n) {
    const float *all = job->scores + image * job->n_boxes * job->n_classes + class;
    for (int64_t i = 0; i < job->n_boxes; i++)
        scores[i] = all[i * job->n_classes];
    struct box_list list = {
        job->boxes + (image * job->n_boxes * job->n_per_box + (job->n_per_box > 1 ? class : 0)) * 4,
        job->n_per_box * 4};
    struct suppression s = {.ctx = job->ctx,
                            .scores = scores,
                            .n = job->n_boxes,
                            .max_output = job->per_class,
                            .similarity_threshold = job->iou,
                            .score_threshold = job->score,
                            .similarity = overlap_of_boxes,
                            .arg = &list};
    suppress(&s);
    for (int64_t i = 0; i < s.n_selected; i++, (*n)++) {
        found[*n] =
            (struct found){.score = s.selected_scores[i], .class = (float)class, .order = *n};
        memcpy(found[*n].box, list.boxes + s.selected[i] * list.stride, sizeof(found[*n].box));
    }
    suppression_fini(&s);
}

static void combined_range(void *arg, int64_t begin, int64_t end) {
    const struct combined_job *job = arg;
    int64_t most = MIN(job->per_class, job->n_boxes) * job->n_classes;
    float *scores = xmalloc((size_t)(job->n_boxes + 1) * sizeof(*scores));
    struct found *found = xmalloc((size_t)(most + 1) * sizeof(*found));
    for (int64_t image = begin; image < end; image++) {
        int64_t n = 0;
        for (int64_t class = 0; class < job->n_classes; class ++)
            combined_class(job, image, class, scores, found, &n);
        pool_sort(found, n, sizeof(*found), compare_found);
        n = MIN(n, job->n_out);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = image * job->n_out + i;
            job->out_scores[at] = found[i].score;
            job->out_classes[at] = found[i].class;
            for (int k = 0; k < 4; k++)
                job->out_boxes[4 * at + k] =
                    job->state->clips ? MAX(MIN(found[i].box[k], 1.0f), 0.0f) : found[i].box[k];
        }
        job->out_n[image] = (int32_t)n;
    }
    free(scores);
    free(found);
}

static struct status *positive_scalar(const struct kernel_ctx *ctx, int input, const char *what,
                                      int64_t *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s must be 0-D, got shape %s", what, TENSOR_SHAPE_TEXT(t));
    *ret = tensor_index_at(t, 0);
    return *ret > 0 ? NULL : status_invalid("%s must be > 0", what);
}

static struct status *combined_read(const struct kernel_ctx *ctx, struct combined_job *job) {
    const struct tensor *boxes = kernel_input(ctx, 0), *scores = kernel_input(ctx, 1);
    int64_t total = 0, all = 0;
    if (boxes->rank != 4)
        return status_invalid("boxes must be 4-D%s", TENSOR_SHAPE_TEXT(boxes));
    if (scores->rank != 3)
        return status_invalid("scores must be 3-D%s", TENSOR_SHAPE_TEXT(scores));
    if (tensor_dim(boxes, 0) != tensor_dim(scores, 0))
        return status_invalid("boxes and scores must have same batch size");
    job->n_boxes = tensor_dim(boxes, 1);
    job->n_per_box = tensor_dim(boxes, 2);
    job->n_classes = tensor_dim(scores, 2);
    TRY(positive_scalar(ctx, 2, "max_size_per_class", &job->per_class));
    TRY(positive_scalar(ctx, 3, "max_total_size", &total));
    if (total > 4 * 1024 * 1024)
        return status_invalid("max_total_size is too large: %lld", (long long)total);
    TRY(scalar_float(ctx, 4, "iou_threshold", &job->iou));
    TRY(scalar_float(ctx, 5, "score_threshold", &job->score));
    TRY(check_fraction("iou_threshold", job->iou));
    if (tensor_dim(boxes, 3) != 4)
        return status_invalid("boxes must have 4 columns");
    if (tensor_dim(scores, 1) != job->n_boxes)
        return status_invalid("scores has incompatible shape");
    if (job->n_per_box != 1 && job->n_per_box != job->n_classes)
        return status_invalid(
            "third dimension of boxes must be either 1 or equal to the third dimension of scores");
    if (mul_overflows_i64(job->per_class, job->n_classes, &all))
        all = INT64_MAX;
    job->n_out = job->state->pads_per_class ? MIN(total, all) : total;
    return NULL;
}

/* CombinedNonMaxSuppression: selects for each image the best boxes of all classes, padded with
 * zeros.
 *   boxes   float [batch, n, 1 or classes, 4]     scores  float [batch, n, classes]
 *   outputs float [batch, m, 4], [batch, m], [batch, m], int32 [batch] */
static enum kernel_result combined(struct kernel_ctx *ctx) {
    struct combined_job job = {.ctx = ctx, .state = ctx->instance->state};
    struct allocator *allocator = ctx->instance->allocator;
    KERNEL_TRY(ctx, combined_read(ctx, &job));
    int64_t dims[3] = {tensor_dim(kernel_input(ctx, 0), 0), job.n_out, 4};
    KERNEL_TRY(ctx,
               tensor_new_zeroed(allocator, DT_FLOAT, (struct shape){3, dims}, &ctx->outputs[0]));
    KERNEL_TRY(ctx,
               tensor_new_zeroed(allocator, DT_FLOAT, (struct shape){2, dims}, &ctx->outputs[1]));
    KERNEL_TRY(ctx,
               tensor_new_zeroed(allocator, DT_FLOAT, (struct shape){2, dims}, &ctx->outputs[2]));
    KERNEL_TRY(ctx,
               tensor_new_zeroed(allocator, DT_INT32, (struct shape){1, dims}, &ctx->outputs[3]));
    job.boxes = tensor_cdata(kernel_input(ctx, 0));
    job.scores = tensor_cdata(kernel_input(ctx, 1));
    job.out_boxes = tensor_data(&ctx->outputs[0]);
    job.out_scores = tensor_data(&ctx->outputs[1]);
    job.out_classes = tensor_data(&ctx->outputs[2]);
    job.out_n = tensor_data(&ctx->outputs[3]);
    pool_parallel_for(ctx->pool, dims[0],
                      100.0 * (double)(job.n_boxes + 1) * (double)(job.n_classes + 1),
                      combined_range, &job);
    KERNEL_TRY(ctx, kernel_check_cancelled(ctx));
    return KERNEL_DONE;
}

static const struct suppress_version v1 = {0, false}, v2 = {1, false}, v3 = {2, false},
                                     v5 = {3, false}, matrix = {2, true};
#define PIXELS (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "NonMaxSuppression", .compute = suppress_compute, .init = suppress_init, .arg = &v1},
    {.op = "NonMaxSuppressionV2", {{"T", PIXELS}, {"T_threshold", PIXELS}},
        .compute = suppress_compute, .init = suppress_init, .arg = &v2},
    {.op = "NonMaxSuppressionV3", {{"T", PIXELS}, {"T_threshold", PIXELS}},
        .compute = suppress_compute, .init = suppress_init, .arg = &v3},
    {.op = "NonMaxSuppressionV4", {{"T", PIXELS}, {"T_threshold", PIXELS}},
        .compute = suppress_compute, .init = suppress_init, .arg = &v3},
    {.op = "NonMaxSuppressionV5", {{"T", PIXELS}}, .compute = suppress_compute,
        .init = suppress_init, .arg = &v5},
    {.op = "NonMaxSuppressionWithOverlaps", .compute = suppress_compute, .init = suppress_init,
        .arg = &matrix},
    {.op = "CombinedNonMaxSuppression", .compute = combined, .init = combined_init},
};
// clang-format on

const struct kernel_list image_suppress_kernels = {rows, ARRAY_LEN(rows)};
