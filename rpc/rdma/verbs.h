/* Loads libibverbs when it is first needed. No program of ours links the library, so that tasks
 * also run on hosts without it. Building needs its headers; using RDMA needs the library
 * (libibverbs.so.1) and a provider.
 *
 * Every call of the library is made through the table below, so that tests can replace it. Names
 * and contracts are the library's, without the prefix "ibv_". A function that returns a pointer
 * returns NULL on failure, with the reason in errno. A function that returns a number returns the
 * reason, or -1 with the reason in errno. Any thread. Internal to rpc/rdma. */
#ifndef MILLRACE_RPC_RDMA_VERBS_H
#define MILLRACE_RPC_RDMA_VERBS_H

#include <infiniband/verbs.h>

#include "common/base/status.h"

struct verbs {
    struct ibv_device **(*get_device_list)(int *ret_n);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret);
    int (*query_gid)(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *ret);

    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *data, size_t size_bytes, int access);
    /* Registers a part of a dmabuf, under addresses from `iova`. NULL: the library has no such call
     * (it came with rdma-core 34). */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t size_bytes,
                                    uint64_t iova, int fd, int access);
    int (*dereg_mr)(struct ibv_mr *mr);

    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int n, void *arg,
                                struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_arg);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
    int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *ret);

    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);

    int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *ret);
    void (*ack_async_event)(struct ibv_async_event *event);
    const char *(*event_type_str)(enum ibv_event_type type);
    const char *(*wc_status_str)(enum ibv_wc_status status);
};

/* The names of the calls. The library has a symbol for each of the first list. The second list is
 * calls that an older library lacks. The third one is our own functions, which use old signatures
 * of the library or a device's own table. */
// clang-format off
#define VERBS_LIBRARY_CALLS(X) \
    X(get_device_list) X(free_device_list) X(get_device_name) X(open_device) X(close_device) \
    X(alloc_pd) X(dealloc_pd) X(reg_mr) X(dereg_mr) \
    X(create_comp_channel) X(destroy_comp_channel) X(create_cq) X(destroy_cq) X(get_cq_event) \
        X(ack_cq_events) \
    X(create_qp) X(modify_qp) X(destroy_qp) \
    X(get_async_event) X(ack_async_event) X(event_type_str) X(wc_status_str)
#define VERBS_NEWER_CALLS(X) X(reg_dmabuf_mr)
#define VERBS_OWN_CALLS(X) \
    X(query_port) X(query_gid) X(req_notify_cq) X(poll_cq) X(post_send) X(post_recv)
// clang-format on

/* Returns the table of this process; the first call loads the library. Errors: FAILED_PRECONDITION
 * (the kernel has no RDMA devices, the library is not installed, or it lacks a call). One thread at
 * a time. */
struct status *verbs_get(const struct verbs **ret) MUST_USE;

#endif
