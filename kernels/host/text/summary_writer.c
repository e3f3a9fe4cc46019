/* Keeps summary writers, resources that append Events to a TensorBoard file, and computes the ops
 * that write Events.
 *
 *   events.out.tfevents.SECONDS.HOST.PID.NUMBER SUFFIX, of records: length (8 bytes), its
 *   checksum, an Event, its checksum
 *
 * Events are kept in memory until there are more than max_queue of them, or flush_millis have
 * passed since the last write. A flush, a close and the end of the resource write them as well. All
 * of this runs on I/O threads. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/io/crc32c.h"
#include "kernels/support/io_task.h"
#include "kernels/support/named_resource.h"
#include "kernels/host/text/summary_internal.h"
#include "kernels/support/variable_input.h"

/* Fields of Event. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_FILE_VERSION, EVENT_GRAPH, EVENT_SUMMARY };

struct writer {
    struct object object;
    /* guards the fields below; only I/O threads take it, and hold it while they write */
    pthread_mutex_t lock;
    char *path;
    int fd;
    int64_t offset, max_queue, flush_ns, flushed_ns;
    int64_t n_pending;
    struct str pending;
};

static void writer_free(struct object *object);
static const struct object_type writer_type = {.name = "tensorflow::SummaryWriterInterface",
                                               .free = writer_free};

static struct span text_span(const struct str *text) {
    return (struct span){text->data, text->len};
}

/* ---- the file ---- */

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The caller holds the lock. */
static struct status *write_pending(struct writer *writer) {
    writer->flushed_ns = now_ns(CLOCK_MONOTONIC);
    if (writer->n_pending == 0)
        return NULL;
    struct status *st = file_write_all(&file_system_posix, writer->fd, writer->path,
                                       writer->pending.data, writer->pending.len, writer->offset);
    /* after a failure the next record overwrites what was written of the lost one */
    writer->offset += st ? 0 : (int64_t)writer->pending.len;
    writer->n_pending = 0;
    str_clear(&writer->pending);
    return st;
}

static void writer_free(struct object *object) {
    struct writer *writer = (struct writer *)object;
    if (writer->fd >= 0) {
        status_unref(write_pending(writer));
        file_system_posix.close(&file_system_posix, writer->fd);
    }
    pthread_mutex_destroy(&writer->lock);
    str_fini(&writer->pending);
    free(writer->path);
    free(writer);
}

static void add_record(struct str *out, struct span event) {
    size_t begin = out->len;
    str_add_little_endian(out, event.len, 8);
    str_add_little_endian(out, crc32c_mask(crc32c(out->data + begin, 8)), 4);
    str_add_bytes(out, event.data, event.len);
    str_add_little_endian(out, crc32c_mask(crc32c(event.data, event.len)), 4);
}

static struct status *append(struct writer *writer, struct span event) {
    struct status *st = NULL;
    pthread_mutex_lock(&writer->lock);
    add_record(&writer->pending, event);
    writer->n_pending++;
    if (writer->n_pending > writer->max_queue ||
        now_ns(CLOCK_MONOTONIC) - writer->flushed_ns >= writer->flush_ns)
        st = write_pending(writer);
    pthread_mutex_unlock(&writer->lock);
    return st;
}

static void begin_event(struct str *event, int64_t step) {
    summary_add_double(event, EVENT_WALL_TIME, (double)now_ns(CLOCK_REALTIME) / 1e9);
    proto_add_int(event, EVENT_STEP, (uint64_t)step);
}

/* ---- making a writer ---- */

struct status *summary_writer_init(struct kernel_init *init) {
    struct named_resource *resource = init->state = xcalloc(1, sizeof(*resource));
    return named_resource_init(resource, init, &writer_type, RESOURCE_BY_NODE_NAME, NULL);
}

void summary_writer_fini(void *state) {
    if (state)
        named_resource_fini(state);
    free(state);
}

/* SummaryWriter: a handle; CreateSummaryFileWriter makes what it names.
 *   writer  resource, scalar */
enum kernel_result summary_writer(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, named_resource_output(ctx, ctx->instance->state));
    return KERNEL_DONE;
}

static struct status *path_of(struct kernel_ctx *ctx, struct str *path) {
    static _Atomic int n_writers;
    struct span dir = tensor_string(kernel_input(ctx, 1), 0),
                suffix = tensor_string(kernel_input(ctx, 4), 0);
    struct str name = STR_INIT;
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0 || strchr(host, '/'))
        host[0] = '\0';
    str_add_bytes(&name, dir.data, dir.len);
    str_addf(&name, "/events.out.tfevents.%010lld.%s.%d.%d", (long long)time(NULL), host,
             (int)getpid(), n_writers++);
    str_add_bytes(&name, suffix.data, suffix.len);
    struct status *st = memchr(suffix.data ? suffix.data : "", '/', suffix.len)
                            ? status_invalid("filename_suffix must not hold a slash: %.*s",
                                             (int)MIN(suffix.len, (size_t)256), suffix.data)
                            : io_path(text_span(&name), path);
    str_fini(&name);
    return st;
}

static struct status *open_file(struct writer *writer) {
    const struct file_system *fs = &file_system_posix;
    struct str dir = STR_INIT, event = STR_INIT;
    file_dir_of(writer->path, &dir);
    struct status *st = file_make_dirs(fs, dir.data);
    str_fini(&dir);
    TRY(st);
    writer->fd = fs->open(fs, writer->path, FILE_CREATE);
    if (writer->fd < 0)
        return file_failed(writer->path, writer->fd);
    begin_event(&event, 0);
    proto_add_bytes(&event, EVENT_FILE_VERSION, "brain.Event:2", 13);
    add_record(&writer->pending, text_span(&event));
    writer->n_pending = 1;
    str_fini(&event);
    return write_pending(writer);
}

static struct status *make_writer(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct str path = STR_INIT;
    (void)arg;
    struct status *st = path_of(ctx, &path);
    if (st) {
        str_fini(&path);
        return st;
    }
    struct writer *writer = xcalloc(1, sizeof(*writer));
    object_init(&writer->object, &writer_type);
    pthread_mutex_init(&writer->lock, NULL);
    writer->path = str_detach(&path);
    writer->fd = -1;
    writer->max_queue = *(const int32_t *)tensor_cdata(kernel_input(ctx, 2));
    writer->flush_ns = (int64_t) * (const int32_t *)tensor_cdata(kernel_input(ctx, 3)) * 1000000;
    st = open_file(writer);
    if (st) {
        object_unref(&writer->object);
        return st;
    }
    *ret = &writer->object;
    return NULL;
}

static struct status *create_body(struct kernel_ctx *ctx) {
    const struct resource_handle *handle;
    struct object *found = NULL;
    TRY(handle_of_input(ctx, 0, &handle));
    TRY(ctx->host->handle_lookup_or_create(ctx, handle, &writer_type, make_writer, NULL, &found));
    object_unref(found);
    return NULL;
}

/* CreateSummaryFileWriter: opens a new file in logdir, unless the handle's writer exists already.
 *   writer                    resource
 *   logdir, filename_suffix   string scalars
 *   max_queue, flush_millis   int32 scalars
 * Errors   INVALID_ARGUMENT    no scalars
 *          PERMISSION_DENIED   a directory outside of the roots
 *          those of the file system */
enum kernel_result summary_writer_create(struct kernel_ctx *ctx) {
    static const char *const names[] = {"writer", "logdir", "max_queue", "flush_millis",
                                        "filename_suffix"};
    for (int i = 1; i < 5; i++) {
        if (kernel_input(ctx, i)->rank != 0)
            return kernel_fail(ctx, status_invalid("%s must be a scalar, got shape %s", names[i],
                                                   TENSOR_SHAPE_TEXT(kernel_input(ctx, i))));
    }
    return io_run(ctx, create_body);
}

/* ---- flushing, closing ---- */

static struct status *writer_of(struct kernel_ctx *ctx, struct writer **ret) {
    struct object *found = NULL;
    TRY(named_resource_of(ctx, 0, &writer_type, &found));
    *ret = (struct writer *)found;
    return NULL;
}

static struct status *flush_body(struct kernel_ctx *ctx) {
    struct writer *writer;
    TRY(writer_of(ctx, &writer));
    pthread_mutex_lock(&writer->lock);
    struct status *st = write_pending(writer);
    pthread_mutex_unlock(&writer->lock);
    object_unref(&writer->object);
    return st;
}

enum kernel_result summary_writer_flush(struct kernel_ctx *ctx) { return io_run(ctx, flush_body); }

static struct status *close_body(struct kernel_ctx *ctx) {
    const struct resource_handle *handle;
    TRY(handle_of_input(ctx, 0, &handle));
    TRY(flush_body(ctx));
    return ctx->host->resource_delete(ctx, handle);
}

enum kernel_result summary_writer_close(struct kernel_ctx *ctx) { return io_run(ctx, close_body); }

/* ---- writing ---- */

struct write_state {
    int64_t max; /* max_images or max_outputs */
};

struct status *summary_write_init(struct kernel_init *init) {
    struct write_state *state = init->state = xcalloc(1, sizeof(*state));
    if (node_attr(init->node, "max_images"))
        return node_get_i(init->node, "max_images", &state->max);
    if (node_attr(init->node, "max_outputs"))
        return node_get_i(init->node, "max_outputs", &state->max);
    return NULL;
}

static struct status *add_scalar(const struct kernel_ctx *ctx, struct span tag,
                                 struct str *summary) {
    const struct tensor *value = kernel_input(ctx, 3);
    if (value->n_elements != 1)
        return status_invalid("value must be a scalar, got shape %s", TENSOR_SHAPE_TEXT(value));
    size_t begin = proto_begin(summary, SUMMARY_VALUE, tag.len + 16);
    summary_add_text(summary, VALUE_TAG, tag);
    summary_add_float(summary, VALUE_SIMPLE, summary_float_at(value, 0));
    proto_end(summary, begin, tag.len + 16);
    return NULL;
}

/* WriteSummary's inputs: writer, step, tensor, tag, metadata. */
static struct status *add_any(const struct kernel_ctx *ctx, struct str *summary) {
    struct span tag, metadata;
    const struct tensor *t = kernel_input(ctx, 2);
    TRY(summary_scalar_text(ctx, 3, "tag", &tag));
    TRY(summary_scalar_text(ctx, 4, "summary_metadata", &metadata));
    size_t size = tensor_proto_size(t) + tag.len + metadata.len,
           begin = proto_begin(summary, SUMMARY_VALUE, size);
    summary_add_text(summary, VALUE_TAG, tag);
    summary_add_tensor(summary, t);
    summary_add_text(summary, VALUE_METADATA, metadata);
    proto_end(summary, begin, size);
    return NULL;
}

static struct status *check_proto(struct span proto, const char *what) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
    }
    return more < 0 ? status_new(STATUS_DATA_LOSS, "Bad %s binary proto tensor string", what)
                    : NULL;
}

/* Adds the values of the Summary that the op describes. All ops except WriteSummary and
 * WriteRawProtoSummary have their tag in input 2. */
static struct status *add_values(const struct kernel_ctx *ctx, enum summary_write kind,
                                 struct str *summary) {
    const struct write_state *state = ctx->instance->state;
    struct span tag;
    if (kind == SUMMARY_WRITE_ANY)
        return add_any(ctx, summary);
    TRY(summary_scalar_text(ctx, 2, kind == SUMMARY_WRITE_RAW ? "tensor" : "tag", &tag));
    switch (kind) {
    case SUMMARY_WRITE_SCALAR:
        return add_scalar(ctx, tag, summary);
    case SUMMARY_WRITE_HISTOGRAM:
        return summary_add_histogram(ctx, tag, kernel_input(ctx, 3), summary);
    case SUMMARY_WRITE_IMAGE:
        if (kernel_input(ctx, 4)->dtype != DT_UINT8)
            return status_invalid("bad_color must be uint8");
        return summary_add_images(kernel_input(ctx, 3), tag, kernel_input(ctx, 4), state->max,
                                  summary);
    case SUMMARY_WRITE_AUDIO:
        if (kernel_input(ctx, 4)->n_elements != 1)
            return status_invalid("sample_rate must be a scalar, got shape %s",
                                  TENSOR_SHAPE_TEXT(kernel_input(ctx, 4)));
        return summary_add_audio(kernel_input(ctx, 3), tag,
                                 *(const float *)tensor_cdata(kernel_input(ctx, 4)), state->max,
                                 summary);
    default:
        str_add_bytes(summary, tag.data, tag.len);
        return check_proto(tag, "tf.compat.v1.Summary");
    }
}

static struct status *make_event(const struct kernel_ctx *ctx, enum summary_write kind,
                                 struct str *event) {
    struct span whole;
    if (kind == SUMMARY_WRITE_EVENT) {
        TRY(summary_scalar_text(ctx, 1, "event", &whole));
        str_add_bytes(event, whole.data, whole.len);
        return check_proto(whole, "tf.Event");
    }
    const struct tensor *step = kernel_input(ctx, 1);
    if (step->rank != 0)
        return status_invalid("step must be a scalar, got shape %s", TENSOR_SHAPE_TEXT(step));
    begin_event(event, *(const int64_t *)tensor_cdata(step));
    if (kind == SUMMARY_WRITE_GRAPH) {
        TRY(summary_scalar_text(ctx, 2, "tensor", &whole));
        TRY(check_proto(whole, "tf.GraphDef"));
        proto_add_bytes(event, EVENT_GRAPH, whole.data, whole.len);
        return NULL;
    }
    struct str summary = STR_INIT;
    struct status *st = add_values(ctx, kind, &summary);
    if (!st)
        proto_add_bytes(event, EVENT_SUMMARY, str_text(&summary), summary.len);
    str_fini(&summary);
    return st;
}

static struct status *write_body(struct kernel_ctx *ctx) {
    enum summary_write kind = (enum summary_write)(intptr_t)ctx->instance->def->arg;
    struct str event = STR_INIT;
    struct writer *writer;
    TRY(writer_of(ctx, &writer));
    struct status *st = make_event(ctx, kind, &event);
    if (!st)
        st = append(writer, text_span(&event));
    str_fini(&event);
    object_unref(&writer->object);
    return st;
}

/* WriteScalarSummary, WriteHistogramSummary, WriteImageSummary, WriteAudioSummary: (writer, step,
 * tag, values …). WriteSummary: (writer, step, tensor, tag, metadata). WriteRawProtoSummary,
 * WriteGraphSummary: (writer, step, a serialized proto). ImportEvent: (writer, a serialized Event).
 * Errors   NOT_FOUND          no writer of that name
 *          INVALID_ARGUMENT   what the summaries' ops refuse
 *          DATA_LOSS          a malformed proto */
enum kernel_result summary_write(struct kernel_ctx *ctx) { return io_run(ctx, write_body); }
