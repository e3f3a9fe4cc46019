/* Both halves of an RDMA connection in one process, over the fake device, for tests of what is
 * written from where to where. Loop thread. */
#ifndef MILLRACE_TESTS_UNIT_RPC_RDMA_LINE_H
#define MILLRACE_TESTS_UNIT_RPC_RDMA_LINE_H

#include "rpc/rdma/rdma_in.h"

struct rdma_line {
    struct loop *loop;
    struct rdma_device *device;
    struct rdma_out out;
    struct rdma_in in;
    struct rdma_transfer transfer;
    struct rdma_pending_write pending;
    bool is_granted, is_written, is_received;
    struct status *refused; /* what a handler was told; the test's */
};

/* Opens a device over `verbs`, and a connection. The exporter may be NULL. */
void rdma_line_open(struct rdma_line *line, const struct verbs *verbs,
                    struct rdma_exporter *exporter);
void rdma_line_close(struct rdma_line *line);
/* Writes bytes of one buffer into another. Returns when they have arrived, or the refusal to
 * register one of the two. */
struct status *rdma_line_send(struct rdma_line *line, struct buffer *from, const char *data,
                              struct buffer *to, size_t size_bytes) MUST_USE;

#endif
