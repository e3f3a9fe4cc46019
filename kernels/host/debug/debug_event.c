/* Writes the messages by hand, as all messages with tensors are written. */
#include "kernels/host/debug/debug_event.h"

#include "common/base/map.h"
#include "common/tensor/element.h"

/* Fields of Event, LogMessage, Summary, Summary.Value, SummaryMetadata, its PluginData, and
 * TensorProto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_GRAPH = 4,
    EVENT_SUMMARY = 5,
    EVENT_LOG_MESSAGE = 6,
    LOG_MESSAGE_TEXT = 2,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_NODE_NAME = 7,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    PLUGIN_CONTENT = 2,
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_CONTENT = 4,
    TENSOR_STRINGS = 8,
};
enum { STRING_HEAD_BYTES = 6 }; /* about what a string needs in addition to its bytes */

static void add_time(struct str *out, int64_t now_us) {
    double value = (double)now_us;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    proto_add_fixed64(out, EVENT_WALL_TIME, bits);
}

static void add_text(struct str *out, uint32_t number, struct span text) {
    if (text.len > 0)
        proto_add_bytes(out, number, text.data, text.len);
}

/* ---- tensors ---- */

/* Which part of the tensor an event has: the elements [begin, end) of strings, the bytes
 * [begin, end) of the content of any other type. */
struct chunk {
    int64_t index, n;
    size_t begin, end;
};

static void add_metadata(const struct debug_tensor *tensor, const struct chunk *chunk,
                         struct str *out) {
    struct str content = STR_INIT;
    str_add(&content, "{\"device\":\"");
    str_add_json_escaped(&content, tensor->device.data, tensor->device.len);
    str_addf(&content, "\",\"outputSlot\":%.*s,\"numChunks\":%lld,\"chunkIndex\":%lld}",
             (int)tensor->slot.len, tensor->slot.data, (long long)chunk->n,
             (long long)chunk->index);
    size_t size = content.len + 16, begin = proto_begin(out, VALUE_METADATA, size),
           plugin = proto_begin(out, METADATA_PLUGIN, size);
    proto_add_bytes(out, PLUGIN_NAME, "debugger", 8);
    proto_add_bytes(out, PLUGIN_CONTENT, content.data, content.len);
    proto_end(out, plugin, size);
    proto_end(out, begin, size);
    str_fini(&content);
}

/* Strings are listed, because clients do not read them from a content. A tensor without shape and
 * content is what clients read as an uninitialized one. */
static void add_tensor(const struct debug_tensor *tensor, const struct chunk *chunk,
                       struct str *out) {
    const struct tensor *t = tensor->t;
    if (t && dtype_is_object(tensor_dtype(t)) && tensor_dtype(t) != DT_STRING) {
        tensor_to_proto(t, out);
        return;
    }
    proto_add_int(out, TENSOR_DTYPE, (uint64_t)(t ? tensor_dtype(t) : tensor->dtype));
    if (!t)
        return;
    proto_add_shape(out, TENSOR_SHAPE, tensor_shape(t));
    if (tensor_dtype(t) == DT_STRING)
        for (size_t i = chunk->begin; i < chunk->end; i++) {
            struct span text = tensor_string(t, (int64_t)i);
            proto_add_bytes(out, TENSOR_STRINGS, text.data, text.len);
        }
    else if (chunk->end > chunk->begin)
        proto_add_bytes(out, TENSOR_CONTENT, (const char *)tensor_cdata(t) + chunk->begin,
                        chunk->end - chunk->begin);
}

static void add_event(const struct debug_tensor *tensor, const struct chunk *chunk,
                      size_t size_bytes, struct str *out) {
    struct str key = STR_INIT;
    size_t size = size_bytes + 2 * tensor->name.len + tensor->device.len + 256;
    str_addf(&key, "%.*s:%.*s:%s", (int)tensor->name.len, tensor->name.data, (int)tensor->slot.len,
             tensor->slot.data, tensor->op);
    str_reserve(out, size);
    add_time(out, tensor->now_us);
    size_t summary = proto_begin(out, EVENT_SUMMARY, size),
           value = proto_begin(out, SUMMARY_VALUE, size);
    add_text(out, VALUE_TAG, tensor->name);
    add_text(out, VALUE_NODE_NAME, (struct span){key.data, key.len});
    size_t proto = proto_begin(out, VALUE_TENSOR, size);
    add_tensor(tensor, chunk, out);
    proto_end(out, proto, size);
    add_metadata(tensor, chunk, out);
    proto_end(out, value, size);
    proto_end(out, summary, size);
    str_fini(&key);
}

/* Ends the chunk of strings that begins at chunk->begin. Returns its bytes. */
static size_t end_of_strings(const struct tensor *t, size_t chunk_bytes, struct chunk *chunk) {
    size_t bytes = 0, n = (size_t)t->n_elements;
    for (chunk->end = chunk->begin; chunk->end < n; chunk->end++) {
        size_t next = tensor_string(t, (int64_t)chunk->end).len + STRING_HEAD_BYTES;
        if (chunk_bytes > 0 && chunk->end > chunk->begin && bytes + next > chunk_bytes)
            break;
        bytes += next;
    }
    return bytes;
}

static int64_t count_chunks(const struct tensor *t, size_t chunk_bytes) {
    if (!t || chunk_bytes == 0)
        return 1;
    if (dtype_is_object(tensor_dtype(t)) && tensor_dtype(t) != DT_STRING)
        return 1;
    if (tensor_dtype(t) != DT_STRING)
        return (int64_t)MAX((tensor_size_bytes(t) + chunk_bytes - 1) / chunk_bytes, (size_t)1);
    struct chunk chunk = {0};
    int64_t n = 0;
    do {
        end_of_strings(t, chunk_bytes, &chunk);
        chunk.begin = chunk.end;
        n++;
    } while (chunk.end < (size_t)t->n_elements);
    return n;
}

/* Sets the end of the chunk; returns about how many bytes it has. */
static size_t end_of_chunk(const struct tensor *t, size_t chunk_bytes, struct chunk *chunk) {
    if (!t)
        return 0;
    if (tensor_dtype(t) == DT_STRING)
        return end_of_strings(t, chunk_bytes, chunk);
    if (dtype_is_object(tensor_dtype(t)))
        return tensor_proto_size(t);
    size_t left = tensor_size_bytes(t) - chunk->begin;
    size_t n = chunk_bytes > 0 ? MIN(left, chunk_bytes) : left;
    chunk->end = chunk->begin + n;
    return n;
}

struct status *debug_tensor_events(const struct debug_tensor *tensor, size_t chunk_bytes,
                                   debug_event_fn *each, void *arg) {
    struct chunk chunk = {.n = count_chunks(tensor->t, chunk_bytes)};
    struct str event = STR_INIT;
    struct status *st = NULL;
    for (; !st && chunk.index < chunk.n; chunk.index++) {
        size_t size_bytes = end_of_chunk(tensor->t, chunk_bytes, &chunk);
        str_clear(&event);
        add_event(tensor, &chunk, size_bytes, &event);
        st = each(arg, (struct span){event.data, event.len});
        chunk.begin = chunk.end;
    }
    str_fini(&event);
    return st;
}

/* ---- graphs and metadata ---- */

struct status *debug_graph_events(struct span graph, struct span device, int64_t now_us,
                                  debug_event_fn *each, void *arg) {
    size_t n = MAX((graph.len + DEBUG_CHUNK_BYTES - 1) / DEBUG_CHUNK_BYTES, (size_t)1);
    uint64_t hash = hash_bytes(graph.data, graph.len, 0);
    struct str part = STR_INIT, event = STR_INIT;
    struct status *st = NULL;
    for (size_t i = 0; !st && i < n; i++) {
        size_t begin = i * DEBUG_CHUNK_BYTES;
        str_clear(&part);
        str_clear(&event);
        str_addf(&part, "%llu,%.*s,%lld|%zu|%zu|", (unsigned long long)hash, (int)device.len,
                 device.data, (long long)now_us, i, n);
        str_add_bytes(&part, graph.data + begin, MIN(graph.len - begin, (size_t)DEBUG_CHUNK_BYTES));
        debug_graph_event((struct span){part.data, part.len}, now_us, &event);
        st = each(arg, (struct span){event.data, event.len});
    }
    str_fini(&part);
    str_fini(&event);
    return st;
}

void debug_graph_event(struct span graph, int64_t now_us, struct str *out) {
    add_time(out, now_us);
    proto_add_bytes(out, EVENT_GRAPH, graph.data, graph.len);
}

void debug_metadata_event(struct span metadata, int64_t now_us, struct str *out) {
    add_time(out, now_us);
    size_t begin = proto_begin(out, EVENT_LOG_MESSAGE, metadata.len + 8);
    proto_add_bytes(out, LOG_MESSAGE_TEXT, metadata.data, metadata.len);
    proto_end(out, begin, metadata.len + 8);
}
