/* Draws candidates by weights, which a sampler learns or which are fixed. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/tensor/text.h"
#include "kernels/cpu/random/candidate_internal.h"
#include "kernels/support/io_task.h"

/* ---- learned weights: 1 + how often a class was a true one ----
 *
 * A binary indexed tree [Fenwick 1994]: sums[i] is the weight of classes (i - lowest bit of i, i],
 * with classes counted from 1. Counting an occurrence takes log2(range) steps, and so does finding
 * the class at a position in the total. */

struct learned {
    struct tensor memory;
    int32_t *counts, *sums; /* counts by class; sums[1 …] */
    int32_t range, top;     /* top: the largest power of two that is not above the range */
    int32_t total;
};

static struct status *learned_init(struct candidate_node *node, const struct kernel_init *init) {
    if (node->range >= INT32_MAX)
        return status_invalid("range_max must be below %d, but is %lld", INT32_MAX,
                              (long long)node->range);
    struct learned *learned = xcalloc(1, sizeof(*learned));
    node->weights = learned;
    /* at least 64 elements, because fewer would be stored in the tensor itself, which may move */
    int64_t size = MAX(2 * node->range + 1, (int64_t)64);
    TRY(tensor_new(init->allocator, DT_INT32, (struct shape){1, &size}, &learned->memory));
    learned->counts = tensor_data(&learned->memory);
    learned->sums = learned->counts + node->range;
    learned->range = learned->total = (int32_t)node->range;
    for (int32_t i = 0; i < learned->range; i++) {
        learned->counts[i] = 1;
        learned->sums[i + 1] = (i + 1) & -(i + 1);
    }
    learned->top = 1;
    while (learned->top <= learned->range / 2)
        learned->top *= 2;
    return NULL;
}

static void learned_fini(struct candidate_node *node) {
    struct learned *learned = node->weights;
    if (learned)
        tensor_clear(&learned->memory);
    free(learned);
}

/* Draws a position in the total, and returns the class whose weight covers it. */
static int64_t learned_draw(const struct candidate_node *node, struct philox_words *words) {
    const struct learned *learned = node->weights;
    int32_t place = (int32_t)philox_words_below_u32(words, (uint32_t)learned->total), at = 0;
    for (int32_t step = learned->top; step > 0; step /= 2) {
        if (step > learned->range - at || learned->sums[at + step] > place)
            continue;
        at += step;
        place -= learned->sums[at];
    }
    return at;
}

static float learned_probability(const struct candidate_node *node, int64_t value) {
    const struct learned *learned = node->weights;
    return (float)learned->counts[value] / (float)learned->total;
}

/* The total stays an int32, so occurrences beyond that are not counted. */
static void learned_learn(struct candidate_node *node, const int64_t *values, int64_t n) {
    struct learned *learned = node->weights;
    n = MIN(n, (int64_t)(INT32_MAX - learned->total));
    learned->total += (int32_t)n;
    for (int64_t i = 0; i < n; i++) {
        learned->counts[values[i]]++;
        for (int64_t at = values[i] + 1; at <= learned->range; at += at & -at)
            learned->sums[at]++;
    }
}

const struct candidate_law candidate_learned = {
    .init = learned_init,
    .fini = learned_fini,
    .draw = learned_draw,
    .probability = learned_probability,
    .learn = learned_learn,
};

/* ---- fixed weights, from an attr or a file ----
 *
 * Classes are drawn in constant time by an alias table [Walker 1977]: n equal bins, each shared by
 * at most two classes. */

enum { VOCAB_MAX_BYTES = 1 << 30 };

struct fixed {
    struct str path; /* the file to load */
    float distortion;
    int64_t num_shards, shard;
    int64_t next_id; /* over all shards; the class that the next line gives */
    float *weights;  /* of this shard's classes */
    int64_t n, capacity, n_positive;
    float total;
    /* the alias table: bin i belongs to class i up to `share`, and beyond it to class `other` */
    float *share;
    int32_t *other;
};

static void fixed_add(struct fixed *fixed, float weight, bool is_counted) {
    if (fixed->next_id++ % fixed->num_shards != fixed->shard)
        return;
    if (fixed->n == fixed->capacity) {
        fixed->capacity = MAX((int64_t)64, 2 * fixed->capacity);
        fixed->weights =
            xreallocarray(fixed->weights, (size_t)fixed->capacity, sizeof(*fixed->weights));
    }
    if (is_counted) {
        weight = powf(weight, fixed->distortion);
        fixed->total += weight;
    }
    fixed->n_positive += weight > 0;
    fixed->weights[fixed->n++] = weight;
}

/* Fills the bins: a class with less than an even share is paired with a class that has more. */
static void fixed_build(struct fixed *fixed) {
    int64_t n = fixed->n, n_low = 0, n_high = 0;
    fixed->share = xcalloc((size_t)n, sizeof(*fixed->share));
    fixed->other = xcalloc((size_t)n, sizeof(*fixed->other));
    double *p = xcalloc((size_t)n, sizeof(*p)), sum = 0;
    int32_t *low = xcalloc((size_t)n, sizeof(*low)), *high = xcalloc((size_t)n, sizeof(*high));
    for (int64_t i = 0; i < n; i++)
        sum += fixed->weights[i];
    for (int64_t i = 0; i < n; i++) {
        p[i] = fixed->weights[i] * (float)n / sum;
        fixed->other[i] = (int32_t)i;
        if (p[i] < 1)
            low[n_low++] = (int32_t)i;
        else
            high[n_high++] = (int32_t)i;
    }
    while (n_low > 0 && n_high > 0) {
        int32_t l = low[--n_low], h = high[--n_high];
        fixed->other[l] = h;
        p[h] -= 1 - p[l];
        if (p[h] < 1)
            low[n_low++] = h;
        else
            high[n_high++] = h;
    }
    /* The remaining bins are full except for rounding. */
    while (n_low > 0)
        p[low[--n_low]] = 1;
    while (n_high > 0)
        p[high[--n_high]] = 1;
    for (int64_t i = 0; i < n; i++)
        fixed->share[i] = (float)p[i];
    free(p);
    free(low);
    free(high);
}

static struct status *fixed_finish(struct candidate_node *node) {
    struct fixed *fixed = node->weights;
    if (fixed->n != node->range)
        return status_invalid("range is %lld must be equal to weights size %lld",
                              (long long)node->range, (long long)fixed->n);
    fixed_build(fixed);
    atomic_store(&node->is_ready, true);
    return NULL;
}

/* Reads a line's last field as C reads a number. Blanks around the field are skipped. */
static bool last_field(struct span line, float *ret) {
    const char *comma = line.len > 0 ? memrchr(line.data, ',', line.len) : NULL;
    struct span field =
        comma ? (struct span){comma + 1, (size_t)(line.data + line.len - comma - 1)} : line;
    char *text = xstrndup(field.data, field.len), *end;
    *ret = strtof(text, &end);
    struct span rest = {end, (size_t)(text + field.len - end)};
    text_skip_blanks(&rest);
    bool is_good = end != text && rest.len == 0;
    free(text);
    return is_good;
}

static struct status *fixed_read(struct fixed *fixed, struct span text, int64_t range) {
    while (text.len > 0) {
        const char *end = memchr(text.data, '\n', text.len);
        size_t len = end ? (size_t)(end - text.data) : text.len, taken = len + (end != NULL);
        struct span line = {text.data, len > 0 && text.data[len - 1] == '\r' ? len - 1 : len};
        float weight;
        bool is_ours = fixed->next_id % fixed->num_shards == fixed->shard;
        text.data += taken;
        text.len -= taken;
        if (line.len == 0)
            continue;
        if (is_ours && !last_field(line, &weight))
            return status_invalid("Wrong vocabulary format at line: %.*s",
                                  (int)MIN(line.len, (size_t)200), line.data);
        if (is_ours && fixed->n >= range)
            return status_invalid("range is %lld must be equal to weights size, which is more",
                                  (long long)range);
        fixed_add(fixed, is_ours ? weight : 0, true);
    }
    return NULL;
}

static struct status *fixed_load(struct candidate_node *node) {
    struct fixed *fixed = node->weights;
    struct str path = STR_INIT, text = STR_INIT;
    struct status *st = NULL;
    TRY_OUT(io_path((struct span){str_text(&fixed->path), fixed->path.len}, &path));
    TRY_OUT(file_load(&file_system_posix, path.data, VOCAB_MAX_BYTES, &text));
    int64_t n = fixed->n, n_positive = fixed->n_positive, next_id = fixed->next_id;
    st = fixed_read(fixed, (struct span){str_text(&text), text.len}, node->range);
    if (!st)
        st = fixed_finish(node);
    if (st) { /* the next execution tries again */
        fixed->n = n;
        fixed->n_positive = n_positive;
        fixed->next_id = next_id;
        fixed->total = 0;
    }
out:
    str_fini(&path);
    str_fini(&text);
    return st;
}

static struct status *fixed_init(struct candidate_node *node, const struct kernel_init *init) {
    const struct attr_value *unigrams;
    struct span file;
    int64_t num_reserved;
    int n_unigrams;
    struct fixed *fixed = xcalloc(1, sizeof(*fixed));
    node->weights = fixed;
    TRY(node_get_s(init->node, "vocab_file", &file));
    TRY(node_get_list(init->node, "unigrams", &unigrams, &n_unigrams));
    TRY(node_get_f(init->node, "distortion", &fixed->distortion));
    TRY(node_get_i(init->node, "num_reserved_ids", &num_reserved));
    TRY(node_get_i(init->node, "num_shards", &fixed->num_shards));
    TRY(node_get_i(init->node, "shard", &fixed->shard));
    if (file.len == 0 && n_unigrams == 0)
        return status_invalid("Must provide either vocab_file or unigrams.");
    if (file.len > 0 && n_unigrams > 0)
        return status_invalid("Must only provide one of vocab_file and unigrams.");
    if (fixed->num_shards <= 0 || fixed->shard < 0 || fixed->shard >= fixed->num_shards)
        return status_invalid("shard %lld is not one of %lld shards", (long long)fixed->shard,
                              (long long)fixed->num_shards);
    if (node->range > INT32_MAX || num_reserved / fixed->num_shards > node->range)
        return status_invalid("range is %lld must be equal to weights size",
                              (long long)node->range);
    while (fixed->next_id < num_reserved)
        fixed_add(fixed, 0, false);
    fixed->next_id = fixed->n; /* counts this shard's reserved classes only, as TensorFlow does */
    if (file.len > 0) {
        str_add_bytes(&fixed->path, file.data, file.len);
        return NULL;
    }
    for (int i = 0; i < n_unigrams; i++)
        fixed_add(fixed, unigrams[i].f, true);
    return fixed_finish(node);
}

static void fixed_fini(struct candidate_node *node) {
    struct fixed *fixed = node->weights;
    if (!fixed)
        return;
    str_fini(&fixed->path);
    free(fixed->weights);
    free(fixed->share);
    free(fixed->other);
    free(fixed);
}

static int64_t fixed_draw(const struct candidate_node *node, struct philox_words *words) {
    const struct fixed *fixed = node->weights;
    float r = philox_words_f32(words);
    uint32_t bin = philox_words_below_u32(words, (uint32_t)fixed->n);
    return r < fixed->share[bin] ? (int64_t)bin : fixed->other[bin];
}

static float fixed_probability(const struct candidate_node *node, int64_t value) {
    const struct fixed *fixed = node->weights;
    return fixed->weights[value] / fixed->total;
}

static int64_t fixed_n_drawable(const struct candidate_node *node) {
    const struct fixed *fixed = node->weights;
    return fixed->n_positive;
}

const struct candidate_law candidate_fixed = {
    .init = fixed_init,
    .fini = fixed_fini,
    .load = fixed_load,
    .draw = fixed_draw,
    .probability = fixed_probability,
    .n_drawable = fixed_n_drawable,
};
