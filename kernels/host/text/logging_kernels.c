/* Computes the ops of the logging family: Abort, Assert, Print, PrintV2, Timestamp. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/io/file_system.h"
#include "kernels/kernel.h"
#include "kernels/support/element_text.h"

extern const struct kernel_list logging_kernels;

/* ---- values as text ---- */

struct summary {
    const struct tensor *t;
    int64_t limit, next; /* limit: how many elements to show; next: the index of the next element */
    struct str *out;
};

static void add_dim(struct summary *s, int dim) {
    int64_t n = tensor_dim(s->t, dim);
    for (int64_t i = 0; i < n && dim == s->t->rank - 1; i++) {
        if (s->next >= s->limit) {
            if (dim > 0)
                str_add(s->out, "...");
            return;
        }
        if (i > 0)
            str_add_char(s->out, ' ');
        element_text_add(s->t, s->next++, false, s->out);
    }
    for (int64_t i = 0; i < n && dim < s->t->rank - 1 && s->next < s->limit; i++) {
        str_add_char(s->out, '[');
        add_dim(s, dim + 1);
        str_add_char(s->out, ']');
    }
}

/* Writes "[[1 2][3...]...]": at most `limit` elements, or all when it is negative. Each row is in
 * brackets, with "..." where the text stops. */
static void add_summary(struct str *out, const struct tensor *t, int64_t limit) {
    struct summary s = {
        .t = t, .limit = limit < 0 || limit > t->n_elements ? t->n_elements : limit, .out = out};
    str_add_char(out, '[');
    if (t->rank == 0 && s.limit > 0)
        element_text_add(t, 0, false, out);
    else if (t->rank > 0 && s.limit > 0)
        add_dim(&s, 0);
    if (s.limit < t->n_elements)
        str_add(out, "...");
    str_add_char(out, ']');
}

/* ---- Abort: ends the step, not the task, which others use too ---- */

static struct status *abort_init(struct kernel_init *init) {
    struct span message;
    TRY(node_get_s(init->node, "error_msg", &message));
    init->state = xstrndup(message.data, message.len);
    return NULL;
}

static enum kernel_result abort_compute(struct kernel_ctx *ctx) {
    return kernel_fail(ctx,
                       status_new(STATUS_ABORTED, "Abort: %s", (const char *)ctx->instance->state));
}

/* ---- Assert ---- */

struct assert_state {
    int64_t summarize;
};

static struct status *assert_init(struct kernel_init *init) {
    struct assert_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_i(init->node, "summarize", &state->summarize);
}

static COLD enum kernel_result assert_failed(struct kernel_ctx *ctx) {
    const struct assert_state *state = ctx->instance->state;
    struct str text = STR_INIT;
    for (int i = 1; i < ctx->instance->n_inputs; i++) {
        str_add(&text, i > 1 ? " " : "");
        add_summary(&text, kernel_input(ctx, i), state->summarize);
    }
    struct status *st = status_invalid("assertion failed: %s", str_text(&text));
    str_fini(&text);
    return kernel_fail(ctx, st);
}

static enum kernel_result assert_compute(struct kernel_ctx *ctx) {
    const struct tensor *condition = kernel_input(ctx, 0);
    if (unlikely(condition->rank != 0))
        return kernel_fail(
            ctx, status_invalid("In[0] should be a scalar: %s", TENSOR_SHAPE_TEXT(condition)));
    return likely(*(const uint8_t *)tensor_cdata(condition)) ? KERNEL_DONE : assert_failed(ctx);
}

enum { MAX_PRINT_BYTES = 1 << 20 }; /* in the log */

/* A log of JSON lines must not have others between them. Otherwise one call for each text, so that
 * lines of several threads stay whole. */
static void print_to_stderr(const struct str *text) {
    size_t len = text->len;
    if (!log_is_json()) {
        fwrite(str_text(text), 1, text->len, stderr);
        return;
    }
    while (len > 0 && text->data[len - 1] == '\n')
        len--;
    log_event(EVENT_GRAPH_PRINT, "%.*s", (int)MIN(len, (size_t)MAX_PRINT_BYTES), str_text(text));
}

/* ---- Print ---- */

struct print_state {
    char *message;
    int64_t first_n, summarize;
    _Atomic int64_t n_calls;
};

static void print_fini(void *arg) {
    struct print_state *state = arg;
    free(state->message);
    free(state);
}

static struct status *print_init(struct kernel_init *init) {
    struct print_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span message = {0};
    TRY(node_get_s(init->node, "message", &message));
    state->message = xstrndup(message.data, message.len);
    TRY(node_get_i(init->node, "first_n", &state->first_n));
    return node_get_i(init->node, "summarize", &state->summarize);
}

static enum kernel_result print_compute(struct kernel_ctx *ctx) {
    struct print_state *state = ctx->instance->state;
    if (state->first_n < 0 ||
        atomic_fetch_add_explicit(&state->n_calls, 1, memory_order_relaxed) < state->first_n) {
        struct str text = STR_INIT;
        str_add(&text, state->message);
        for (int i = 1; i < ctx->instance->n_inputs; i++)
            add_summary(&text, kernel_input(ctx, i), state->summarize);
        str_add_char(&text, '\n');
        print_to_stderr(&text);
        str_fini(&text);
    }
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* ---- PrintV2 ---- */

enum print_stream { TO_STDERR, TO_STDOUT, TO_LOG, TO_FILE };

struct print_v2_state {
    enum print_stream stream;
    enum log_level level;
    char *path, *end;
    size_t end_len;
};

static void print_v2_fini(void *arg) {
    struct print_v2_state *state = arg;
    free(state->path);
    free(state->end);
    free(state);
}

static const struct {
    const char *name;
    enum print_stream stream;
    enum log_level level;
} print_streams[] = {
    {"stdout", TO_STDOUT, LOG_INFO},   {"stderr", TO_STDERR, LOG_INFO},
    {"log(info)", TO_LOG, LOG_INFO},   {"log(warning)", TO_LOG, LOG_WARNING},
    {"log(error)", TO_LOG, LOG_ERROR},
};
static const char file_prefix[] = "file://";

static struct status *print_v2_init(struct kernel_init *init) {
    struct print_v2_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span stream = {0}, end = {0};
    TRY(node_get_s(init->node, "output_stream", &stream));
    TRY(node_get_s(init->node, "end", &end));
    state->end = xstrndup(end.data, end.len);
    state->end_len = end.len;
    for (size_t i = 0; i < ARRAY_LEN(print_streams); i++) {
        if (span_is(stream, print_streams[i].name)) {
            state->stream = print_streams[i].stream;
            state->level = print_streams[i].level;
            return NULL;
        }
    }
    size_t len = strlen(file_prefix);
    if (stream.len <= len || memcmp(stream.data, file_prefix, len) != 0)
        return status_invalid("Unknown output stream: %.*s, Valid streams are: stdout stderr "
                              "log(info) log(warning) log(error)",
                              (int)stream.len, stream.data);
    state->stream = TO_FILE;
    state->path = xstrndup(stream.data + len, stream.len - len);
    return NULL;
}

static struct status *append_to_file(const char *path, const struct str *text) {
    const struct file_system *fs = &file_system_posix;
    int fd = fs->open(fs, path, FILE_APPEND);
    if (fd < 0)
        return status_failed_precondition("Cannot open %s to print to: %s", path, strerror(-fd));
    struct status *st = file_write_all(fs, fd, path, str_text(text), text->len, 0);
    int error = fs->close(fs, fd);
    if (!st && error)
        st = file_failed(path, error);
    return st;
}

static enum kernel_result print_v2(struct kernel_ctx *ctx) {
    const struct print_v2_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank != 0)
        return kernel_fail(ctx, status_invalid("Input is expected to be scalar, but got %s",
                                               TENSOR_SHAPE_TEXT(in)));
    struct span line = tensor_string(in, 0);
    struct status *st = NULL;
    struct str text = STR_INIT;
    str_add_bytes(&text, line.data, line.len);
    str_add_bytes(&text, state->end, state->end_len);
    if (state->stream == TO_LOG) {
        log_event_at(EVENT_GRAPH_PRINT, state->level, "%.*s",
                     (int)MIN(line.len, (size_t)MAX_PRINT_BYTES), line.data);
    } else if (state->stream == TO_FILE) {
        st = append_to_file(state->path, &text);
    } else if (state->stream == TO_STDERR) {
        print_to_stderr(&text);
    } else {
        fwrite(str_text(&text), 1, text.len, stdout);
        fflush(stdout);
    }
    str_fini(&text);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result timestamp(struct kernel_ctx *ctx) {
    double seconds = (double)clock_wall_us() / 1e6;
    tensor_init_scalar(&ctx->outputs[0], DT_DOUBLE, &seconds);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Abort", .compute = abort_compute, .init = abort_init, .fini = free,
     .flags = KERNEL_STATEFUL},
    {.op = "Assert", .compute = assert_compute, .init = assert_init, .flags = KERNEL_STATEFUL},
    {.op = "Print", .compute = print_compute, .init = print_init, .fini = print_fini,
     .flags = KERNEL_STATEFUL},
    {.op = "PrintV2", .compute = print_v2, .init = print_v2_init, .fini = print_v2_fini,
     .flags = KERNEL_STATEFUL},
    {.op = "Timestamp", .compute = timestamp, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list logging_kernels = {rows, ARRAY_LEN(rows)};
