/* Decodes RunStepRequest without copies: see request.h. */
#include "master/request/request.h"

#include "common/tensor/tensor_proto.h"

enum { ALIGN_WORTH_BYTES = 4096 }; /* smaller contents are copied in any case */

static struct status *malformed(const char *what) {
    return status_invalid("Malformed RunStepRequest: %s", what);
}

static COLD struct status *too_many_fields(void) {
    return status_exhausted("The request has more than %d feeds, fetches, targets and other fields",
                            REQUEST_MAX_FIELDS);
}

static struct status *count_fields(struct span body, struct run_step_request *request) {
    struct proto_field field;
    int more;
    for (int n = 0; (more = proto_next(&body, &field)) > 0; n++) {
        if (n == REQUEST_MAX_FIELDS)
            return too_many_fields();
        bool is_bytes = field.wire_type == 2;
        request->n_feeds += is_bytes && field.number == 2;
        request->n_fetches += is_bytes && field.number == 3;
        request->n_targets += is_bytes && field.number == 4;
    }
    return more < 0 ? malformed("a field is cut short or has an unknown wire type") : NULL;
}

static struct status *parse_feed(struct span message, struct span *ret_name,
                                 struct span *ret_proto) {
    struct proto_field field;
    int more;
    *ret_name = *ret_proto = (struct span){"", 0};
    while ((more = proto_next(&message, &field)) > 0) {
        if (field.wire_type != 2)
            continue;
        if (field.number == 1)
            *ret_name = field.bytes;
        else if (field.number == 2)
            *ret_proto = field.bytes;
    }
    return more < 0 ? malformed("a feed is cut short") : NULL;
}

/* What a debugger watches. global_step and reset_disk_byte_usage change nothing here. */
static struct status *parse_debug_options(struct span options, struct arena *arena,
                                          struct run_step_request *request) {
    struct span in = options;
    struct proto_field field;
    int n = 0, more;
    while ((more = proto_next(&in, &field)) > 0)
        if (n++ == REQUEST_MAX_FIELDS)
            return too_many_fields();
    if (more < 0)
        return malformed("its options are cut short");
    request->watches = arena_array(arena, struct span, n + 1);
    request->n_watches = 0;
    while (proto_next(&options, &field) > 0)
        if (field.number == 4 && field.wire_type == 2)
            request->watches[request->n_watches++] = field.bytes;
    return NULL;
}

static struct status *parse_options(struct span options, struct arena *arena,
                                    struct run_step_request *request) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&options, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            request->trace_level = (int)field.value;
        else if (field.number == 2 && field.wire_type == 0)
            request->timeout_ms = (int64_t)field.value;
        else if (field.number == 5 && field.wire_type == 0)
            request->output_partition_graphs = field.value != 0;
        else if (field.number == 6 && field.wire_type == 2)
            TRY(parse_debug_options(field.bytes, arena, request));
    }
    return more < 0 ? malformed("its options are cut short") : NULL;
}

struct status *run_step_request_parse(struct span body, struct arena *arena,
                                      struct run_step_request *ret) {
    struct run_step_request request = {
        .session_handle = {"", 0}, .options = {"", 0}, .partial_run_handle = {"", 0}};
    struct proto_field field;
    TRY(count_fields(body, &request));
    request.feed_names = arena_array(arena, struct span, request.n_feeds);
    request.feed_protos = arena_array(arena, struct span, request.n_feeds);
    request.fetches = arena_array(arena, struct span, request.n_fetches);
    request.targets = arena_array(arena, struct span, request.n_targets);
    request.n_feeds = request.n_fetches = request.n_targets = 0;
    while (proto_next(&body, &field) > 0) {
        if (field.wire_type == 0 && field.number == 7)
            request.store_errors_in_response_body = field.value != 0;
        else if (field.wire_type == 0 && field.number == 8)
            request.request_id = field.value;
        if (field.wire_type != 2)
            continue;
        switch (field.number) {
        case 1:
            request.session_handle = field.bytes;
            break;
        case 2:
            TRY(parse_feed(field.bytes, &request.feed_names[request.n_feeds],
                           &request.feed_protos[request.n_feeds]));
            request.n_feeds++;
            break;
        case 3:
            request.fetches[request.n_fetches++] = field.bytes;
            break;
        case 4:
            request.targets[request.n_targets++] = field.bytes;
            break;
        case 5:
            request.options = field.bytes;
            TRY(parse_options(field.bytes, arena, &request));
            break;
        case 6:
            request.partial_run_handle = field.bytes;
            break;
        }
    }
    *ret = request;
    return NULL;
}

/* ---- requests that name what they mean once ---- */

/* The field numbers of a message's repeated names. */
struct name_fields {
    uint32_t feed, fetch, target, connection;
};

static struct status *parse_connection(struct span message, struct span *ret_from,
                                       struct span *ret_to) {
    TRY(request_find_bytes(message, 1, ret_from));
    return request_find_bytes(message, 2, ret_to);
}

static struct status *parse_names(struct span body, const struct name_fields *fields,
                                  struct arena *arena, struct run_step_request *ret) {
    struct span in = body;
    struct proto_field field;
    int n = 0, more;
    while ((more = proto_next(&in, &field)) > 0)
        if (n++ == REQUEST_MAX_FIELDS)
            return too_many_fields();
    if (more < 0)
        return status_invalid(
            "Malformed request: a field is cut short or has an unknown wire type");
    ret->feed_names = arena_array(arena, struct span, n);
    ret->fetches = arena_array(arena, struct span, n);
    ret->targets = arena_array(arena, struct span, n);
    ret->connect_from = arena_array(arena, struct span, n);
    ret->connect_to = arena_array(arena, struct span, n);
    while (proto_next(&body, &field) > 0) {
        if (field.wire_type != 2)
            continue;
        if (field.number == fields->feed)
            ret->feed_names[ret->n_feeds++] = field.bytes;
        else if (field.number == fields->fetch)
            ret->fetches[ret->n_fetches++] = field.bytes;
        else if (field.number == fields->target)
            ret->targets[ret->n_targets++] = field.bytes;
        else if (field.number == fields->connection) {
            TRY(parse_connection(field.bytes, &ret->connect_from[ret->n_connections],
                                 &ret->connect_to[ret->n_connections]));
            ret->n_connections++;
        }
    }
    return NULL;
}

struct status *partial_run_setup_parse(struct span body, struct arena *arena,
                                       struct run_step_request *ret) {
    static const struct name_fields fields = {
        .feed = 2, .fetch = 3, .target = 4, .connection = UINT32_MAX};
    struct proto_field field;
    *ret = (struct run_step_request){.is_partial = true};
    TRY(request_find_bytes(body, 1, &ret->session_handle));
    TRY(parse_names(body, &fields, arena, ret));
    while (proto_next(&body, &field) > 0)
        if (field.number == 5 && field.wire_type == 0)
            ret->request_id = field.value;
    return NULL;
}

struct status *callable_options_parse(struct span options, struct arena *arena,
                                      struct run_step_request *ret) {
    static const struct name_fields fields = {.feed = 1, .fetch = 2, .target = 3, .connection = 5};
    *ret = (struct run_step_request){.session_handle = {"", 0}};
    TRY(parse_names(options, &fields, arena, ret));
    TRY(request_find_bytes(options, 4, &ret->options));
    return parse_options(ret->options, arena, ret);
}

struct status *run_callable_parse(struct span body, const struct run_step_request *callable,
                                  struct arena *arena, struct run_step_request *ret) {
    struct span in = body;
    struct proto_field field;
    int n = 0, n_fields = 0, more;
    while ((more = proto_next(&in, &field)) > 0) {
        n += field.wire_type == 2 && field.number == 3;
        if (n_fields++ == REQUEST_MAX_FIELDS)
            return too_many_fields();
    }
    if (more < 0)
        return status_invalid(
            "Malformed RunCallableRequest: a field is cut short or has an unknown wire type");
    if (n != callable->n_feeds)
        return status_invalid("The callable takes %d feeds, but the call has %d", callable->n_feeds,
                              n);
    *ret = *callable;
    ret->feed_protos = arena_array(arena, struct span, n + 1);
    n = 0;
    while (proto_next(&body, &field) > 0) {
        if (field.wire_type == 2 && field.number == 3)
            ret->feed_protos[n++] = field.bytes;
        else if (field.wire_type == 0 && field.number == 4)
            ret->request_id = field.value;
    }
    return NULL;
}

/* ---- keys ---- */

static char *put_u32(char *at, size_t value) {
    uint32_t number = (uint32_t)value; /* a message has less than 2 GiB */
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

/* Counts and lengths precede what they count, so no byte in a name can make two requests look
 * alike. */
struct span run_step_request_key(const struct run_step_request *request, struct arena *arena) {
    const struct span *lists[] = {request->feed_names,   request->fetches,    request->targets,
                                  request->connect_from, request->connect_to, request->watches};
    int counts[] = {request->n_feeds,       request->n_fetches,     request->n_targets,
                    request->n_connections, request->n_connections, request->n_watches};
    int n_lists = request->n_watches > 0 ? 6 : request->n_connections > 0 ? 5 : 3;
    size_t len = request->is_partial;
    for (int list = 0; list < n_lists; list++, len += sizeof(uint32_t))
        for (int i = 0; i < counts[list]; i++)
            len += sizeof(uint32_t) + lists[list][i].len;
    char *key = arena_alloc(arena, len), *at = key;
    for (int list = 0; list < n_lists; list++) {
        at = put_u32(at, (size_t)counts[list]);
        for (int i = 0; i < counts[list]; i++) {
            at = put_u32(at, lists[list][i].len);
            memcpy(at, lists[list][i].data, lists[list][i].len);
            at += lists[list][i].len;
        }
    }
    if (request->is_partial)
        *at = 'p';
    return (struct span){key, len};
}

size_t run_step_request_align(struct span head, size_t body_len) {
    static const uint32_t path[] = {2, 2, 4}; /* feed → tensor → tensor_content */
    return grpc_find_large(head, body_len, path, ARRAY_LEN(path), ALIGN_WORTH_BYTES);
}

size_t run_callable_request_align(struct span head, size_t body_len) {
    static const uint32_t path[] = {3, 4}; /* feed → tensor_content */
    return grpc_find_large(head, body_len, path, ARRAY_LEN(path), ALIGN_WORTH_BYTES);
}

/* ---- any request ---- */

struct status *request_find_bytes(struct span message, uint32_t number, struct span *ret) {
    struct proto_field field;
    int more;
    *ret = (struct span){"", 0};
    while ((more = proto_next(&message, &field)) > 0)
        if (field.number == number && field.wire_type == 2)
            *ret = field.bytes;
    return more < 0 ? status_invalid(
                          "Malformed request: a field is cut short or has an unknown wire type")
                    : NULL;
}
