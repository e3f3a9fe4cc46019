/* Writes and reads the rows about links in replies to pings. */
#include "rpc/wire/link_report.h"

#include "common/tensor/tensor_proto.h"

enum { PONG_LINK = 4, LINK_TASK = 1, LINK_WAY = 2, LINK_LATENCY = 3, LINK_BANDWIDTH = 4 };
enum { ROW_HEAD_BYTES = 3 }; /* the row's tag and length */

const char *const link_way_names[LINK_N_WAYS] = {
    [LINK_WAY_UNKNOWN] = "unknown", [LINK_WAY_TCP] = "tcp",   [LINK_WAY_UNIX] = "unix",
    [LINK_WAY_SHM] = "shm",         [LINK_WAY_RDMA] = "rdma",
};

bool link_report_add(struct str *out, size_t begin, const struct link_report *report) {
    struct str row = STR_INIT;
    proto_add_bytes(&row, LINK_TASK, report->task.data, report->task.len);
    proto_add_int(&row, LINK_WAY, report->way);
    proto_add_int(&row, LINK_LATENCY, report->latency_ns);
    proto_add_int(&row, LINK_BANDWIDTH, report->bytes_per_second);
    bool fits = out->len - begin + row.len + ROW_HEAD_BYTES <= LINK_REPORT_MAX_BYTES;
    if (fits)
        proto_add_bytes(out, PONG_LINK, row.data, row.len);
    str_fini(&row);
    return fits;
}

static bool read_row(struct span row, struct link_report *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct link_report){0};
    while ((rc = proto_next(&row, &field)) > 0) {
        if (field.number == LINK_TASK && field.wire_type == 2)
            ret->task = field.bytes;
        else if (field.number == LINK_WAY && field.wire_type == 0 && field.value < LINK_N_WAYS)
            ret->way = (enum link_way)field.value;
        else if (field.number == LINK_LATENCY && field.wire_type == 0)
            ret->latency_ns = field.value;
        else if (field.number == LINK_BANDWIDTH && field.wire_type == 0)
            ret->bytes_per_second = field.value;
    }
    return rc == 0 && ret->task.len > 0;
}

bool link_report_next(struct span *reply, struct link_report *ret) {
    struct proto_field field;
    while (proto_next(reply, &field) > 0)
        if (field.number == PONG_LINK && field.wire_type == 2 && read_row(field.bytes, ret))
            return true;
    return false;
}
