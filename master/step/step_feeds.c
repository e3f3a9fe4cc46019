/* Reads the feeds of a step (step_internal.h). A feed that takes long to decode is decoded by its
 * task, in pieces on its pool, and the master needs its dtype only. Where that is behind very many
 * values, a job of the session finds it. */
#include "master/step/step_internal.h"

#include <limits.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "rpc/wire/wire_values.h"

enum {
    /* by how much a feed may be larger than its message, because the master fills its memory */
    FEED_SPARE_BYTES = 16 << 20,
    FEED_MAX_GROWTH = 16,       /* the same, as a factor, of a feed that its task decodes */
    QUICK_FEED_BYTES = 1 << 20, /* are copied on the loop */
    QUICK_FIELDS = 4096,        /* are looked at on the loop */
};

/* Shall the task decode the feed? Strings must fit their bytes in number, because each takes two at
 * least; of other dtypes the shape may not claim much more memory than the message has. */
static bool is_passed_on(struct span proto, const struct tensor_proto_peek *peek) {
    int64_t size_bytes;
    if (peek->dtype == DT_STRING)
        return peek->n_elements <= (int64_t)proto.len / 2;
    if (dtype_is_object(peek->dtype) ||
        mul_overflows_i64(peek->n_elements, (int64_t)dtype_size(peek->dtype), &size_bytes))
        return false;
    /* Content that is aligned is not even copied. */
    bool is_quick = peek->content.len > 0 &&
                    (peek->content.len <= QUICK_FEED_BYTES ||
                     (peek->dtype != DT_BOOL && (uintptr_t)peek->content.data % 8 == 0));
    return !is_quick && size_bytes <= (int64_t)proto.len * FEED_MAX_GROWTH;
}

/* Reads a feed. Looks at max_fields fields at most for its dtype. *ret_is_late: there are more. */
static struct status *read_feed(struct span name, int position, struct span proto,
                                struct buffer *buffer, int64_t max_fields, struct tensor *ret,
                                bool *ret_is_passed_on, bool *ret_is_late) {
    struct tensor_proto_peek peek;
    struct status *st = NULL;
    enum tensor_proto_peek_result result = PEEK_INVALID; /* decoding tells what is wrong */
    if (proto.len > WIRE_INLINE_PROTO_BYTES)
        result = tensor_proto_peek(proto, max_fields, &peek);
    *ret_is_late = result == PEEK_ENDLESS;
    *ret_is_passed_on = result == PEEK_READ && is_passed_on(proto, &peek);
    if (*ret_is_late)
        return NULL;
    if (*ret_is_passed_on)
        return tensor_new(allocator_host(), peek.dtype, (struct shape){1, &(int64_t){0}}, ret);
    st = tensor_proto_check_claim(proto, FEED_SPARE_BYTES);
    if (!st)
        st = tensor_from_proto(proto, buffer, allocator_host(), ret);
    return st ? status_prefix_take(st, "Invalid TensorProto for feed value %d (%.*s): ", position,
                                   (int)MIN(name.len, (size_t)200), name.data)
              : NULL;
}

struct status *step_decode_feed(struct step *step, struct span name, int position,
                                struct span proto, struct buffer *buffer) {
    bool is_late;
    TRY(read_feed(name, position, proto, buffer, QUICK_FIELDS, &step->feeds[position],
                  &step->is_passed_on[position], &is_late));
    return is_late
               ? status_invalid("The TensorProto for feed value %d (%.*s) has dtype and shape "
                                "behind more than %d values. In a call of a partial run they "
                                "must come first",
                                position, (int)MIN(name.len, (size_t)200), name.data, QUICK_FIELDS)
               : NULL;
}

/* ---- feeds whose dtype is found by a job ---- */

struct late_feeds {
    struct session_job job;
    struct step *step;     /* NULL: it has ended */
    struct buffer *buffer; /* contains the names and TensorProtos; one reference */
    struct status *status;
    int n;
    struct late_feed {
        int position;
        struct span name, proto;
        struct tensor value;
        bool is_passed_on;
    } feeds[];
};

static void late_work(struct session_job *job) {
    struct late_feeds *late = CONTAINER_OF(job, struct late_feeds, job);
    for (int i = 0; i < late->n && !late->status; i++) {
        struct late_feed *feed = &late->feeds[i];
        bool is_late;
        late->status = read_feed(feed->name, feed->position, feed->proto, late->buffer, INT64_MAX,
                                 &feed->value, &feed->is_passed_on, &is_late);
    }
}

static void late_done(struct session_job *job) {
    struct late_feeds *late = CONTAINER_OF(job, struct late_feeds, job);
    struct step *step = late->step;
    struct status *st = late->status;
    for (int i = 0; i < late->n; i++) {
        struct late_feed *feed = &late->feeds[i];
        if (step && !st) {
            tensor_move(&step->feeds[feed->position], &feed->value);
            step->is_passed_on[feed->position] = feed->is_passed_on;
        }
        tensor_clear(&feed->value);
    }
    buffer_unref(late->buffer);
    free(late);
    if (!step) {
        status_unref(st);
        return;
    }
    step->late_feeds = NULL;
    if (st)
        step_cancel(step, st);
    else
        step_executable_settled(&step->wait);
}

void step_feeds_forget(struct step *step) {
    if (step->late_feeds)
        step->late_feeds->step = NULL;
    step->late_feeds = NULL;
}

static void read_late_feeds(struct step *step, const int *positions, int n) {
    const struct run_step_request *request = &step->request;
    size_t size = sizeof(struct late_feeds) + (size_t)n * sizeof(struct late_feed);
    struct late_feeds *late = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!late)
        out_of_memory(size);
    memset(late, 0, size);
    late->step = step;
    late->n = n;
    late->buffer = step->message.buffer ? buffer_ref(step->message.buffer) : NULL;
    for (int i = 0; i < n; i++)
        late->feeds[i] = (struct late_feed){.position = positions[i],
                                            .name = request->feed_names[positions[i]],
                                            .proto = request->feed_protos[positions[i]],
                                            .value = TENSOR_INIT};
    late->job.work = late_work;
    late->job.done = late_done;
    step->late_feeds = late;
    session_run_job(step->session, &late->job);
}

struct status *step_decode_feeds(struct step *step) {
    const struct run_step_request *request = &step->request;
    int n_late = 0, *late = NULL;
    for (int i = 0; i < request->n_feeds; i++) {
        bool is_late;
        struct status *st =
            read_feed(request->feed_names[i], i, request->feed_protos[i], step->message.buffer,
                      QUICK_FIELDS, &step->feeds[i], &step->is_passed_on[i], &is_late);
        if (st) {
            free(late);
            return st;
        }
        if (!is_late)
            continue;
        if (!late)
            late = xcalloc((size_t)request->n_feeds, sizeof(*late));
        late[n_late++] = i;
    }
    if (n_late > 0)
        read_late_feeds(step, late, n_late);
    free(late);
    return NULL;
}
