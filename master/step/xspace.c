/* Collects events by plane and line, and writes them. */
#include "master/step/xspace.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

/* Fields of XSpace, XPlane, XLine, XEvent, XStat, and of the entries of maps. */
enum { SPACE_PLANES = 1, SPACE_WARNINGS = 3, SPACE_HOSTS = 4 };
enum { PLANE_ID = 1, PLANE_NAME, PLANE_LINES, PLANE_EVENT_NAMES, PLANE_STAT_NAMES, PLANE_STATS };
enum { LINE_ID = 1, LINE_NAME, LINE_TIMESTAMP_NS, LINE_EVENTS };
enum { EVENT_NAME_ID = 1, EVENT_OFFSET_PS, EVENT_DURATION_PS, EVENT_STATS };
enum { STAT_NAME_ID = 1, STAT_UINT64 = 3 };
enum { ENTRY_KEY = 1, ENTRY_VALUE, NAME_ID = 1, NAME_TEXT = 2 };
/* Fields of StepStats and its parts. */
enum { STATS_DEVICE = 1, DEVICE_NAME = 1, DEVICE_NODE = 2 };
enum {
    NODE_NAME = 1,
    NODE_START_US = 2,
    NODE_END_REL_US = 5,
    NODE_LABEL = 8,
    NODE_THREAD = 10,
    NODE_START_NS = 13,
    NODE_END_REL_NS = 16
};

enum { HINT_BYTES = 64, MAX_NAME_BYTES = 1024, STAT_STEP_ID = 1, STAT_START, STAT_END };
static const char host_plane[] = "/host:CPU", environment_plane[] = "Task Environment";

struct xline {
    const char *name;
    int64_t id;
    struct str events;
};

struct xplane {
    const char *name;
    struct strmap lines;       /* by name → struct xline */
    struct strmap event_names; /* → number, from 1 */
    struct str name_entries, stats;
};

void xspace_init(struct xspace *xspace, int64_t start_us, int64_t max_events) {
    *xspace = (struct xspace){.start_us = start_us, .max_events = max_events};
    strmap_init(&xspace->planes);
    arena_init(&xspace->arena);
}

static void plane_fini(struct xplane *plane) {
    struct span name;
    void *line;
    size_t cursor = 0;
    while (strmap_next(&plane->lines, &cursor, &name, &line))
        str_fini(&((struct xline *)line)->events);
    strmap_fini(&plane->lines);
    strmap_fini(&plane->event_names);
    str_fini(&plane->name_entries);
    str_fini(&plane->stats);
}

void xspace_fini(struct xspace *xspace) {
    struct span name;
    void *plane;
    size_t cursor = 0;
    while (strmap_next(&xspace->planes, &cursor, &name, &plane))
        plane_fini(plane);
    strmap_fini(&xspace->planes);
    arena_fini(&xspace->arena);
}

/* ---- planes, lines, names ---- */

static struct xplane *plane_of(struct xspace *xspace, struct span name) {
    struct xplane *plane = strmap_get_span(&xspace->planes, name);
    if (plane)
        return plane;
    plane = arena_alloc(&xspace->arena, sizeof *plane);
    *plane = (struct xplane){.name = arena_strndup(&xspace->arena, name.data, name.len)};
    strmap_init(&plane->lines);
    strmap_init(&plane->event_names);
    strmap_put(&xspace->planes, plane->name, plane);
    return plane;
}

static struct xline *line_of(struct xspace *xspace, struct xplane *plane, const struct str *name) {
    struct xline *line = strmap_get(&plane->lines, str_text(name));
    if (line)
        return line;
    line = arena_alloc(&xspace->arena, sizeof *line);
    *line = (struct xline){.name = arena_strdup(&xspace->arena, str_text(name)),
                           .id = (int64_t)plane->lines.n_entries + 1};
    strmap_put(&plane->lines, line->name, line);
    return line;
}

/* Appends an entry of a map from numbers to names. */
static void add_name(struct str *out, uint32_t field, int64_t id, struct span name) {
    size_t size = name.len + 16, entry = proto_begin(out, field, size);
    proto_add_int(out, ENTRY_KEY, (uint64_t)id);
    size_t value = proto_begin(out, ENTRY_VALUE, size);
    proto_add_int(out, NAME_ID, (uint64_t)id);
    proto_add_bytes(out, NAME_TEXT, name.data, name.len);
    proto_end(out, value, size);
    proto_end(out, entry, size);
}

static int64_t name_id(struct xspace *xspace, struct xplane *plane, struct span name) {
    int64_t id = (int64_t)(intptr_t)strmap_get_span(&plane->event_names, name);
    if (id > 0)
        return id;
    id = (int64_t)plane->event_names.n_entries + 1;
    strmap_put(&plane->event_names, arena_strndup(&xspace->arena, name.data, name.len),
               (void *)(intptr_t)id);
    add_name(&plane->name_entries, PLANE_EVENT_NAMES, id, name);
    return id;
}

static void add_stat(struct str *out, uint32_t field, int64_t id, uint64_t value) {
    size_t begin = proto_begin(out, field, HINT_BYTES);
    proto_add_int(out, STAT_NAME_ID, (uint64_t)id);
    proto_add_int(out, STAT_UINT64, value);
    proto_end(out, begin, HINT_BYTES);
}

static void add_event(struct xspace *xspace, struct xplane *plane, const struct str *line_name,
                      struct span name, int64_t start_ns, int64_t duration_ns, uint64_t step_id) {
    int64_t offset_ns = start_ns - xspace->start_us * 1000;
    if (offset_ns < 0 || offset_ns > INT64_MAX / 1000 || duration_ns > INT64_MAX / 1000)
        return;
    if (xspace->n_events >= xspace->max_events) {
        xspace->n_left_out++;
        return;
    }
    struct xline *line = line_of(xspace, plane, line_name);
    size_t begin = proto_begin(&line->events, LINE_EVENTS, HINT_BYTES);
    proto_add_int(&line->events, EVENT_NAME_ID, (uint64_t)name_id(xspace, plane, name));
    proto_add_int(&line->events, EVENT_OFFSET_PS, (uint64_t)offset_ns * 1000);
    proto_add_int(&line->events, EVENT_DURATION_PS, (uint64_t)MAX(duration_ns, (int64_t)0) * 1000);
    add_stat(&line->events, EVENT_STATS, STAT_STEP_ID, step_id);
    proto_end(&line->events, begin, HINT_BYTES);
    xspace->n_events++;
}

void xspace_add_step(struct xspace *xspace, const char *session, uint64_t step_id, int64_t start_us,
                     int64_t duration_us) {
    struct str line = STR_INIT;
    str_addf(&line, "session %s", session);
    add_event(xspace, plane_of(xspace, span_of(host_plane)), &line, span_of("SessionRun"),
              start_us * 1000, duration_us * 1000, step_id);
    str_fini(&line);
}

/* ---- traces ---- */

struct row {
    struct span name, label;
    uint64_t start_us, end_rel_us, thread, start_ns, end_rel_ns;
};

static void read_row(struct span bytes, struct row *ret) {
    struct proto_field field;
    *ret = (struct row){.name = {"", 0}, .label = {"", 0}};
    while (proto_next(&bytes, &field) > 0) {
        if (field.wire_type == 2 && field.number == NODE_NAME)
            ret->name = field.bytes;
        else if (field.wire_type == 2 && field.number == NODE_LABEL)
            ret->label = field.bytes;
        else if (field.wire_type == 0 && field.number == NODE_START_US)
            ret->start_us = field.value;
        else if (field.wire_type == 0 && field.number == NODE_END_REL_US)
            ret->end_rel_us = field.value;
        else if (field.wire_type == 0 && field.number == NODE_THREAD)
            ret->thread = field.value;
        else if (field.wire_type == 0 && field.number == NODE_START_NS)
            ret->start_ns = field.value;
        else if (field.wire_type == 0 && field.number == NODE_END_REL_NS)
            ret->end_rel_ns = field.value;
    }
    if (ret->start_ns == 0 && ret->start_us <= UINT64_MAX / 1000)
        ret->start_ns = ret->start_us * 1000;
    if (ret->end_rel_ns == 0 && ret->end_rel_us <= UINT64_MAX / 1000)
        ret->end_rel_ns = ret->end_rel_us * 1000;
    ret->name.len = MIN(ret->name.len, (size_t)MAX_NAME_BYTES);
}

/* The op of the label "NAME = OP(…)"; empty if the label has another form. */
static struct span op_of(const struct row *row) {
    size_t from = row->name.len + 3, to = from;
    if (row->label.len <= from || memcmp(row->label.data, row->name.data, row->name.len) != 0 ||
        memcmp(row->label.data + row->name.len, " = ", 3) != 0)
        return (struct span){"", 0};
    while (to < row->label.len && to - from < MAX_NAME_BYTES && row->label.data[to] != '(')
        to++;
    return (struct span){row->label.data + from, to - from};
}

/* "/job:ps/replica:0/task:0" of a device's name. */
static struct span task_of(struct span device) {
    static const char part[] = "/device:";
    const char *at = device.len > 0 ? memmem(device.data, device.len, part, strlen(part)) : NULL;
    return at ? (struct span){device.data, (size_t)(at - device.data)} : device;
}

static void add_row(struct xspace *xspace, struct span device, struct span bytes,
                    uint64_t step_id) {
    struct str line = STR_INIT, name = STR_INIT;
    struct row row;
    read_row(bytes, &row);
    struct span task = task_of(device), op = op_of(&row);
    bool is_stream = device.len > 0 && memmem(device.data, device.len, "/stream:", 8) != NULL;
    const char *node = row.label.len > 0 ? memmem(row.label.data, row.label.len, "@@", 2) : NULL;
    if (is_stream && node) /* the kernel that it was */
        str_addf(&name, "%.*s ", (int)MIN(node - row.label.data, MAX_NAME_BYTES), row.label.data);
    str_add_bytes(&name, row.name.data, row.name.len);
    if (op.len > 0)
        str_addf(&name, ":%.*s", (int)op.len, op.data);
    if (is_stream)
        str_add(&line, "stream");
    else if (span_is(row.name, "RecvTensor"))
        str_addf(&line, "%.*s receives", (int)task.len, task.data);
    else
        str_addf(&line, "%.*s thread %" PRIu64, (int)task.len, task.data, row.thread);
    if (name.len > 0 && row.start_ns <= INT64_MAX && row.end_rel_ns <= INT64_MAX)
        add_event(xspace, plane_of(xspace, is_stream ? device : span_of(host_plane)), &line,
                  (struct span){name.data, name.len}, (int64_t)row.start_ns,
                  (int64_t)row.end_rel_ns, step_id);
    str_fini(&line);
    str_fini(&name);
}

void xspace_add_trace(struct xspace *xspace, struct span step_stats, uint64_t step_id) {
    struct proto_field device, field;
    while (proto_next(&step_stats, &device) > 0) {
        struct span name = {"", 0}, in = device.bytes;
        if (!proto_field_is(&device, STATS_DEVICE, 2))
            continue;
        while (proto_next(&in, &field) > 0)
            if (proto_field_is(&field, DEVICE_NAME, 2))
                name =
                    (struct span){field.bytes.data, MIN(field.bytes.len, (size_t)MAX_NAME_BYTES)};
        in = device.bytes;
        while (proto_next(&in, &field) > 0)
            if (proto_field_is(&field, DEVICE_NODE, 2))
                add_row(xspace, name, field.bytes, step_id);
    }
}

/* ---- writing ---- */

static void write_line(const struct xspace *xspace, const struct xline *line, struct str *out) {
    size_t size = line->events.len + strlen(line->name) + HINT_BYTES,
           begin = proto_begin(out, PLANE_LINES, size);
    proto_add_int(out, LINE_ID, (uint64_t)line->id);
    proto_add_bytes(out, LINE_NAME, line->name, strlen(line->name));
    proto_add_int(out, LINE_TIMESTAMP_NS, (uint64_t)xspace->start_us * 1000);
    str_add_bytes(out, line->events.data, line->events.len);
    proto_end(out, begin, size);
}

static void write_plane(const struct xspace *xspace, const struct xplane *plane, int64_t id,
                        struct str *out) {
    struct str bytes = STR_INIT;
    struct span name;
    void *line;
    size_t cursor = 0;
    proto_add_int(&bytes, PLANE_ID, (uint64_t)id);
    proto_add_bytes(&bytes, PLANE_NAME, plane->name, strlen(plane->name));
    while (strmap_next(&plane->lines, &cursor, &name, &line))
        write_line(xspace, line, &bytes);
    str_add_bytes(&bytes, plane->name_entries.data, plane->name_entries.len);
    add_name(&bytes, PLANE_STAT_NAMES, STAT_STEP_ID, span_of("step_id"));
    add_name(&bytes, PLANE_STAT_NAMES, STAT_START, span_of("profile_start_time"));
    add_name(&bytes, PLANE_STAT_NAMES, STAT_END, span_of("profile_stop_time"));
    str_add_bytes(&bytes, plane->stats.data, plane->stats.len);
    proto_add_bytes(out, SPACE_PLANES, bytes.data, bytes.len);
    str_fini(&bytes);
}

void xspace_write(struct xspace *xspace, int64_t end_us, const char *host, struct str *out) {
    struct xplane *environment = plane_of(xspace, span_of(environment_plane));
    struct span name;
    void *plane;
    size_t cursor = 0;
    int64_t id = 0;
    add_stat(&environment->stats, PLANE_STATS, STAT_START, (uint64_t)xspace->start_us * 1000);
    add_stat(&environment->stats, PLANE_STATS, STAT_END, (uint64_t)end_us * 1000);
    while (strmap_next(&xspace->planes, &cursor, &name, &plane))
        write_plane(xspace, plane, id++, out);
    if (xspace->n_left_out > 0) {
        struct str warning = STR_INIT;
        str_addf(&warning, "%" PRId64 " more events were left out", xspace->n_left_out);
        proto_add_bytes(out, SPACE_WARNINGS, warning.data, warning.len);
        str_fini(&warning);
    }
    proto_add_bytes(out, SPACE_HOSTS, host, strlen(host));
}
