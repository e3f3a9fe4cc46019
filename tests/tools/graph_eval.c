/* graph_eval: evaluates GraphDefs with our kernels in one small process, for
 * tests/differential/oracle.py.
 *
 * Requests on stdin, replies on stdout, all numbers 32-bit little-endian; "bytes" is a length
 * and that many bytes.
 *
 *   request  length, then: bytes graphdef, n_steps, and per step
 *              n_feeds × (bytes endpoint, bytes tensor_proto), n_fetches × bytes endpoint,
 *              n_targets × bytes node
 *   reply    length, then: code, bytes message; if code is 0, per step
 *              code, bytes message; if code is 0: n_fetches × bytes tensor_proto, n_fetches ×
 *              bytes static_shape
 *
 * A static shape is shape_print's text; of a step whose inference failed, "!" and the message.
 * State (variables, tables) lives as long as the request, a step's container as long as the
 * step. The process ends at the end of stdin.
 *
 * With GRAPH_EVAL_FAILURES=N in the environment, each request is served up to N times more, with
 * the first, second, … allocation of a kernel failing. Every such run must end, with another
 * code than INTERNAL, and free its buffers; else the process says so and aborts. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "tests/tools/test_host.h"
#include "tests/tools/test_polls.h"

enum { MAX_REQUEST_BYTES = 1 << 30 };

/* ---- bytes in and out ---- */

struct reader {
    const char *at, *end;
    bool is_bad;
};

static uint32_t read_u32(struct reader *in) {
    uint32_t value = 0;
    if (in->end - in->at < 4) {
        in->is_bad = true;
        return 0;
    }
    memcpy(&value, in->at, 4);
    in->at += 4;
    return value;
}

static struct span read_bytes(struct reader *in) {
    uint32_t len = read_u32(in);
    if ((size_t)(in->end - in->at) < len) {
        in->is_bad = true;
        len = 0;
    }
    struct span bytes = {in->at, len};
    in->at += len;
    return bytes;
}

static void add_u32(struct str *out, uint32_t value) { str_add_bytes(out, &value, 4); }

static void add_bytes(struct str *out, const void *data, size_t len) {
    add_u32(out, (uint32_t)len);
    str_add_bytes(out, data, len);
}

static void add_status_take(struct str *out, struct status *st) {
    add_u32(out, (uint32_t)status_code(st));
    add_bytes(out, status_message(st), strlen(status_message(st)));
    status_unref(st);
}

static bool read_full(void *data, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = read(STDIN_FILENO, (char *)data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static bool write_full(const void *data, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = write(STDOUT_FILENO, (const char *)data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* ---- one request ---- */

struct step_request {
    struct test_feed *feeds;
    const char **fetches, **targets;
    int n_feeds, n_fetches, n_targets;
};

static int read_count(struct reader *in) {
    uint32_t n = read_u32(in);
    if ((size_t)n * 4 > (size_t)(in->end - in->at)) {
        in->is_bad = true;
        n = 0;
    }
    return (int)n;
}

static const char **read_names(struct reader *in, struct arena *arena, int *ret_n) {
    int n = *ret_n = read_count(in);
    const char **names = arena_array(arena, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        struct span name = read_bytes(in);
        names[i] = arena_strndup(arena, name.data, name.len);
    }
    return names;
}

static struct status *read_step(struct reader *in, struct arena *arena, struct step_request *ret) {
    ret->n_feeds = 0;
    int n_feeds = read_count(in);
    size_t size = sizeof(*ret->feeds) * (size_t)(n_feeds + 1);
    ret->feeds = arena_alloc_aligned(arena, size, _Alignof(struct test_feed));
    memset(ret->feeds, 0, size);
    struct status *st = NULL;
    for (int i = 0; i < n_feeds; i++) {
        struct span endpoint = read_bytes(in), proto = read_bytes(in);
        ret->feeds[i].endpoint = arena_strndup(arena, endpoint.data, endpoint.len);
        ret->n_feeds = i + 1;
        if (!st)
            st = tensor_from_proto(proto, NULL, allocator_host(), &ret->feeds[i].value);
    }
    ret->fetches = read_names(in, arena, &ret->n_fetches);
    ret->targets = read_names(in, arena, &ret->n_targets);
    if (in->is_bad && !st)
        st = status_invalid("Malformed request");
    return st;
}

static void run_step(struct test_graph *graph, const struct step_request *step, struct str *out) {
    size_t size = sizeof(struct tensor) * (size_t)(step->n_fetches + 1);
    struct tensor *values = aligned_alloc(_Alignof(struct tensor), size);
    char **shapes = xcalloc((size_t)step->n_fetches + 1, sizeof(*shapes));
    CHECK(values);
    memset(values, 0, size);
    struct status *st = test_graph_run(graph, step->feeds, step->n_feeds, step->fetches,
                                       step->n_fetches, step->targets, step->n_targets, values);
    bool is_ok = !st;
    add_status_take(out, st);
    for (int i = 0; is_ok && i < step->n_fetches; i++) {
        struct str proto = STR_INIT;
        tensor_to_proto(&values[i], &proto);
        add_bytes(out, str_text(&proto), proto.len);
        str_fini(&proto);
        tensor_clear(&values[i]);
    }
    if (is_ok) {
        st = test_graph_infer(graph, step->fetches, step->n_fetches, shapes);
        struct str failure = STR_INIT;
        str_addf(&failure, "!%s", status_message(st));
        for (int i = 0; i < step->n_fetches; i++) {
            const char *text = st ? str_text(&failure) : shapes[i];
            add_bytes(out, text, strlen(text));
            free(shapes[i]);
        }
        str_fini(&failure);
        status_unref(st);
    }
    free(shapes);
    free(values);
}

/* ---- an allocator that fails once ---- */

static _Atomic int n_until_failure = INT_MAX; /* below 0: it has failed */

static struct buffer *alloc_or_fail(struct allocator *allocator, size_t size) {
    if (n_until_failure != INT_MAX && n_until_failure-- == 0)
        return NULL;
    return buffer_alloc(allocator_host(), size);
}
static struct allocator failing = {.name = "failing", .alloc = alloc_or_fail};

static bool has_failed(const struct str *out, size_t at) {
    uint32_t code;
    memcpy(&code, out->data + at, sizeof(code));
    return code != STATUS_OK;
}

/* Does the step's part of a reply, which begins at `at`, say that the kernels broke? */
static bool is_broken(const struct str *out, size_t at) {
    uint32_t code;
    memcpy(&code, out->data + at, sizeof(code));
    return code == STATUS_INTERNAL || code == STATUS_DEADLINE_EXCEEDED;
}

/* A run in which an allocation has failed ends with the step that failed: later ones might wait for
 * what it did not do. */
static void evaluate(struct span request, struct str *out, bool *ret_breaks) {
    struct reader in = {request.data, request.data + request.len, false};
    struct test_host *host = test_host_new(1);
    struct test_graph graph;
    struct graph_limits limits;
    struct arena arena;
    arena_init(&arena);
    test_graph_init(&graph, host);
    graph.allocator = &failing;
    *ret_breaks = false;
    graph_limits_default(&limits);
    struct status *st = graph_add_graphdef(&graph.graph, read_bytes(&in), &limits);
    if (!st)
        st = test_graph_prepare(&graph);
    uint32_t n_steps = read_u32(&in);
    bool is_ok = !st;
    add_status_take(out, st);
    for (uint32_t i = 0; is_ok && i < n_steps && !in.is_bad; i++) {
        struct step_request step;
        size_t at = out->len;
        st = read_step(&in, &arena, &step);
        if (st)
            add_status_take(out, st);
        else
            run_step(&graph, &step, out);
        *ret_breaks |= is_broken(out, at);
        is_ok = !has_failed(out, at) || n_until_failure >= 0;
        for (int f = 0; f < step.n_feeds; f++)
            tensor_clear(&step.feeds[f].value);
    }
    test_graph_fini(&graph);
    test_host_free(host);
    arena_fini(&arena);
}

static void serve(struct span request, struct str *out, int n_failures) {
    bool breaks, breaks_then;
    n_until_failure = INT_MAX;
    evaluate(request, out, &breaks);
    for (int k = 0; k < n_failures && !breaks; k++) {
        struct str unread = STR_INIT;
        n_until_failure = k;
        int64_t before = allocator_host()->in_use_bytes;
        evaluate(request, &unread, &breaks_then);
        int64_t kept = allocator_host()->in_use_bytes - before;
        bool was_reached = n_until_failure < 0;
        if (was_reached && (breaks_then || kept > 0)) {
            fprintf(stderr, "graph_eval: broken after allocation %d has failed, %lld bytes kept\n",
                    k, (long long)kept);
            fwrite(str_text(&unread), 1, MIN(unread.len, (size_t)400), stderr);
            abort();
        }
        str_fini(&unread);
        if (!was_reached)
            break;
    }
}

int main(void) {
    const char *failures = getenv("GRAPH_EVAL_FAILURES");
    int n_failures = failures ? (int)strtol(failures, NULL, 10) : 0;
    uint32_t len;
    test_polls_init();
    while (read_full(&len, 4)) {
        if (len > MAX_REQUEST_BYTES)
            return 1;
        char *request = xmalloc((size_t)len + 1);
        if (!read_full(request, len)) {
            free(request);
            return 1;
        }
        struct str out = STR_INIT;
        serve((struct span){request, len}, &out, n_failures);
        free(request);
        uint32_t reply_len = (uint32_t)out.len;
        bool is_ok = write_full(&reply_len, 4) && write_full(str_text(&out), out.len);
        str_fini(&out);
        if (!is_ok)
            return 1;
    }
    return 0;
}
