/* This process' RDMA device: it is chosen and opened here, its completions arrive on the loop, and
 * a thread of its own does what blocks.
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

/* The device that --rdma-device names: "NAME[:PORT[:GID]]". */
struct rdma_choice {
    char name[64]; /* "": any */
    int port;      /* 0: any */
    int gid;       /* an index; -1: any */
};
/* For NULL and "" every device will do. Errors: INVALID_ARGUMENT, which quotes the text. */
struct status *rdma_choice_parse(const char *text, struct rdma_choice *ret) MUST_USE;

struct rdma_port {
    struct ibv_context *context; /* open; its owner closes it */
    const char *name;            /* the device's; borrowed from it */
    uint8_t number;
    uint32_t gid_index;
    union ibv_gid gid;
    bool is_ethernet;
    uint16_t lid;
    enum ibv_mtu mtu;
    uint32_t max_message_bytes;
};
/* Opens the first port that fits the choice. Errors: FAILED_PRECONDITION, which says for each
 * device what it lacks. */
struct status *rdma_port_choose(const struct verbs *verbs, const struct rdma_choice *choice,
                                struct rdma_port *ret) MUST_USE;

/* Work for the device's own thread. `work` runs on that thread, then `done` on the loop. Embedded
 * in its owner's record, which must live until `done` is called. */
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
    struct ibv_pd *send_pd; /* the protection domain of all memory that is sent */
    struct rdma_regions *regions;
    struct rdma_exporter *exporter; /* NULL: there are no devices with memory of their own */
    struct ibv_comp_channel *completions;
    uv_poll_t completions_poll, events_poll;
    struct pool *thread;
    int n_holders; /* queues and jobs; the device is freed after the last of them */
    int n_open_polls;
    bool is_closing;
    struct status *broken; /* the device has reported a fatal error: no queue is opened on it */
};

/* Opens the device and starts its thread. `verbs` is borrowed. The caller closes the device.
 * Errors: those of rdma_port_choose; UNAVAILABLE, which names the verb that failed. */
struct status *rdma_device_open(struct loop *loop, const struct verbs *verbs,
                                const struct rdma_choice *choice,
                                struct rdma_device **ret) MUST_USE;
/* Lets memory of other devices be sent and received. Called before the first queue is opened. The
 * exporter is borrowed, and must live until the device has been freed. */
void rdma_device_set_exporter(struct rdma_device *device, struct rdma_exporter *exporter);
/* Gives the device up. It is freed on the loop when its queues are closed and its jobs are done.
 * Accepts NULL. */
void rdma_device_close(struct rdma_device *device);
/* Runs the job on the device's thread, in the order of submitting. The job holds the device. */
void rdma_device_submit(struct rdma_device *device, struct rdma_job *job);
/* Keeps the device's memory until rdma_device_release. */
void rdma_device_hold(struct rdma_device *device);
void rdma_device_release(struct rdma_device *device);
void rdma_device_describe(struct rdma_device *device, struct str *out); /* appends a JSON object */

#endif
