/* What a task has measured of its links to other tasks, as rows in its replies to a master's pings
 * (proto/worker.proto, Ping). A reply has few rows, since a master of an older version reads a
 * reply only up to some length; the task takes turns.
 *
 * Malformed rows are left out. Any thread. */
#ifndef MILLRACE_RPC_WIRE_LINK_REPORT_H
#define MILLRACE_RPC_WIRE_LINK_REPORT_H

#include "common/base/str.h"

/* How the large values of a pair of tasks travel; the numbers are on the wire. */
enum link_way { LINK_WAY_UNKNOWN, LINK_WAY_TCP, LINK_WAY_UNIX, LINK_WAY_SHM, LINK_WAY_RDMA };
enum { LINK_N_WAYS = LINK_WAY_RDMA + 1 };
extern const char *const link_way_names[LINK_N_WAYS];

/* Values from `task` to the task that reports. */
struct link_report {
    struct span task;
    enum link_way way;
    uint64_t latency_ns;       /* half of the shortest recent round trip; 0: not measured */
    uint64_t bytes_per_second; /* of large values over a socket or by RDMA; 0: not measured */
};

enum {
    LINK_REPORT_MAX_BYTES = 400, /* of all rows in one reply */
    LINK_REPLY_MAX_BYTES = 512,  /* of a reply with its rows; longer ones are not read */
};

/* Appends the row, unless the rows that follow `begin` in `out` would then be too long: false. */
bool link_report_add(struct str *out, size_t begin, const struct link_report *report);
/* Takes the next row out of a reply. False: there is none. The name is a span of the reply. */
bool link_report_next(struct span *reply, struct link_report *ret);

#endif
