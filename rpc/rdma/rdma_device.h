/* This process' RDMA device: which one, its port and address, its completions on the loop, and a
 * thread for what blocks.
 *
 * The first active port is chosen whose address other hosts can route to. Over Ethernet that is a
 * RoCE v2 address that maps an IPv4 address (::ffff:a.b.c.d), or else any RoCE v2 address that is
 * not link-local; over InfiniBand it is the LID. Ports that do not support WRITE WITH IMM (iWARP)
 * are skipped.
 *
 * Threads: the loop's, unless a function says otherwise. */
#ifndef MILLRACE_RPC_RDMA_RDMA_DEVICE_H
#define MILLRACE_RPC_RDMA_RDMA_DEVICE_H

#include "common/base/pool.h"
#include "rpc/loop.h"
#include "rpc/rdma/rdma_regions.h"
#include "rpc/rdma/verbs.h"

/* What the user asks for: "NAME[:PORT[:GID]]". */
struct rdma_choice {
    char name[64]; /* "": any */
    int port;      /* 0: any */
    int gid;       /* index, -1: any */
};
/* NULL or "" ask for nothing. Errors: INVALID_ARGUMENT. */
struct status *rdma_choice_parse(const char *text, struct rdma_choice *ret) MUST_USE;

struct rdma_port {
    struct ibv_context *context; /* open */
    const char *name;            /* the device's; borrowed from it */
    uint8_t number;
    uint32_t gid_index;
    union ibv_gid gid;
    bool is_ethernet;
    uint16_t lid;
    enum ibv_mtu mtu;
    uint32_t max_message_bytes;
};
/* Opens the first that fits. Errors: FAILED_PRECONDITION, which says what each device lacks. */
struct status *rdma_port_choose(const struct verbs *verbs, const struct rdma_choice *choice,
                                struct rdma_port *ret) MUST_USE;

/* Work for the device's own thread, embedded in its owner: `work` runs there, then `done` on the
 * loop. */
struct rdma_device;
struct rdma_job {
    struct pool_task work_task;
    struct loop_task done_task;
    struct rdma_device *device;
    void (*work)(struct rdma_job *job);
    void (*done)(struct rdma_job *job);
};

struct rdma_device {
    const struct verbs *verbs;
    struct loop *loop;
    struct rdma_port port;
    struct ibv_pd *send_pd; /* of all that is sent */
    struct rdma_regions *regions;
    struct ibv_comp_channel *completions;
    uv_poll_t completions_poll, events_poll;
    struct pool *thread;
    int n_holders; /* queues and jobs: it closes when the last has gone */
    int n_open_polls;
    bool is_closing;
    struct status *broken; /* the device says so: nothing more is opened on it */
};

struct status *rdma_device_open(struct loop *loop, const struct verbs *verbs,
                                const struct rdma_choice *choice,
                                struct rdma_device **ret) MUST_USE;
/* It goes once its queues are closed and its jobs done. Accepts NULL. */
void rdma_device_close(struct rdma_device *device);
void rdma_device_submit(struct rdma_device *device, struct rdma_job *job);
void rdma_device_hold(struct rdma_device *device);
void rdma_device_release(struct rdma_device *device);
void rdma_device_describe(struct rdma_device *device, struct str *out); /* a JSON object */

#endif
