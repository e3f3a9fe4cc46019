/* What the examples in C share: errors, the digits and Shakespeare's text, and numpy's random
 * numbers, so that an example sees the same batches as its twin in Python. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <millrace/c_api.h>
#include <millrace/training.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GNUC__
#define MAYBE_UNUSED __attribute__((unused))
#else
#define MAYBE_UNUSED
#endif

/* Ends the program where a status is an error. */
MAYBE_UNUSED static void expect_ok(const TF_Status *status) {
    if (TF_GetCode(status) == TF_OK)
        return;
    fprintf(stderr, "%s\n", TF_Message(status));
    exit(1);
}

/* Where a cluster has something. In one process, with MILLRACE_TARGET="", no task is named. */
MAYBE_UNUSED static const char *place(const char *device) {
    const char *target = getenv("MILLRACE_TARGET");
    return target && !*target ? "" : device;
}

MAYBE_UNUSED static TF_Tensor *tensor_of(TF_DataType dtype, const void *data, const int64_t *dims,
                                         int num_dims) {
    size_t length = TF_DataTypeSize(dtype);
    for (int i = 0; i < num_dims; i++)
        length *= (size_t)dims[i];
    TF_Tensor *tensor = TF_AllocateTensor(dtype, dims, num_dims, length);
    memcpy(TF_TensorData(tensor), data, length);
    return tensor;
}

/* Runs a step: feeds two tensors, which are freed, runs `target` (may be NULL), and returns the
 * fetched float. */
MAYBE_UNUSED static float run_step(TF_Session *session, const TF_Output feeds[2], TF_Tensor *x,
                                   TF_Tensor *y, TF_Output fetch, const TF_Operation *target,
                                   TF_Status *status) {
    TF_Tensor *values[2] = {x, y}, *fetched = NULL;
    TF_SessionRun(session, NULL, feeds, values, 2, &fetch, &fetched, 1, &target, target != NULL,
                  NULL, status);
    expect_ok(status);
    float value = *(float *)TF_TensorData(fetched);
    TF_DeleteTensor(x);
    TF_DeleteTensor(y);
    TF_DeleteTensor(fetched);
    return value;
}

/* ---- numpy.random.RandomState: the Mersenne twister [Matsumoto and Nishimura 1998] ---- */

struct random {
    uint32_t state[624];
    int at;
};

MAYBE_UNUSED static struct random random_seed(uint32_t seed) {
    struct random r = {{seed}, 624};
    for (uint32_t i = 1; i < 624; i++)
        r.state[i] = 1812433253u * (r.state[i - 1] ^ (r.state[i - 1] >> 30)) + i;
    return r;
}

static uint32_t random_u32(struct random *r) {
    if (r->at == 624) {
        for (int i = 0; i < 624; i++) {
            uint32_t y = (r->state[i] & 0x80000000u) | (r->state[(i + 1) % 624] & 0x7fffffffu);
            r->state[i] = r->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->at = 0;
    }
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* A number in [0, max]. */
static uint32_t random_up_to(struct random *r, uint32_t max) {
    uint32_t mask = max, value;
    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    do
        value = random_u32(r) & mask;
    while (value > max);
    return value;
}

/* ---- data ---- */

/* Opens a file of examples/data that is compressed with gzip; $MILLRACE_EXAMPLES is the folder
 * examples, where the program does not run in the root of the sources. */
MAYBE_UNUSED static FILE *open_data(const char *name) {
    char command[4096];
    const char *folder = getenv("MILLRACE_EXAMPLES");
    snprintf(command, sizeof command, "gzip -dc '%s/data/%s'", folder ? folder : "examples", name);
    FILE *file = popen(command, "r");
    if (!file) {
        perror(command);
        exit(1);
    }
    return file;
}

/* A megabyte of Shakespeare, all ASCII; the caller frees it. Sets *length. */
MAYBE_UNUSED static char *load_text(size_t *length) {
    enum { MOST = 4 << 20 };
    char *text = malloc(MOST);
    FILE *file = open_data("shakespeare.txt.gz");
    *length = text ? fread(text, 1, MOST - 1, file) : 0;
    pclose(file);
    if (*length == 0) {
        fprintf(stderr, "examples/data/shakespeare.txt.gz cannot be read\n");
        exit(1);
    }
    text[*length] = '\0';
    return text;
}

/* 8x8 grey values, and which digit they are. A fifth is kept for the test. */
struct digits {
    int n_train, n_test;
    float *train_images, *test_images; /* [n][64] */
    int64_t *train_labels, *test_labels;
};

MAYBE_UNUSED static struct digits load_digits(void) {
    enum { N_DIGITS = 1797, N_TEST = N_DIGITS / 5 };
    static float images[N_DIGITS][64], shuffled[N_DIGITS][64];
    static int64_t labels[N_DIGITS], shuffled_labels[N_DIGITS];
    uint32_t order[N_DIGITS];
    FILE *file = open_data("digits.csv.gz");
    int n_read = 0;
    for (int i = 0; i < N_DIGITS; i++) {
        double value = 0;
        for (int k = 0; k < 65; k++) {
            n_read += fscanf(file, k < 64 ? "%lf," : "%lf", &value);
            if (k < 64)
                images[i][k] = (float)(value / 16);
        }
        labels[i] = (int64_t)value;
    }
    pclose(file);
    if (n_read != N_DIGITS * 65) {
        fprintf(stderr, "examples/data/digits.csv.gz cannot be read\n");
        exit(1);
    }
    struct random r = random_seed(0);
    for (uint32_t i = 0; i < N_DIGITS; i++)
        order[i] = i;
    for (uint32_t i = N_DIGITS - 1; i > 0; i--) {
        uint32_t other = random_up_to(&r, i), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < N_DIGITS; i++) {
        memcpy(shuffled[i], images[order[i]], sizeof shuffled[i]);
        shuffled_labels[i] = labels[order[i]];
    }
    return (struct digits){N_DIGITS - N_TEST,        N_TEST,         shuffled[N_TEST], shuffled[0],
                           &shuffled_labels[N_TEST], shuffled_labels};
}

/* Draws a batch; the caller frees the tensors. */
MAYBE_UNUSED static void draw_digits(const struct digits *digits, struct random *r, int n,
                                     TF_Tensor **images, TF_Tensor **labels) {
    *images = TF_AllocateTensor(TF_FLOAT, MR_DIMS(n, 64), (size_t)n * 64 * sizeof(float));
    *labels = TF_AllocateTensor(TF_INT64, MR_DIMS(n), (size_t)n * sizeof(int64_t));
    for (int i = 0; i < n; i++) {
        uint32_t pick = random_up_to(r, (uint32_t)digits->n_train - 1);
        memcpy((float *)TF_TensorData(*images) + 64 * i, digits->train_images + 64 * pick,
               64 * sizeof(float));
        ((int64_t *)TF_TensorData(*labels))[i] = digits->train_labels[pick];
    }
}

#endif
