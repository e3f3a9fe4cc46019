/* Opens, connects and closes queue pairs, and reads their completions. */
#include "rpc/rdma/rdma_queue.h"

#include <arpa/inet.h>
#include <errno.h>

#include "common/base/clock.h"

enum { PSN_MASK = 0xffffff, HOP_LIMIT = 64, RNR_WAIT = 12 /* 0.64 ms */, RNR_RETRIES = 6 };
/* Every device takes at least this much. A peer cannot make us divide a value into millions of
 * pieces. */
enum { SMALLEST_MESSAGE_BYTES = 4096 };

static struct status *failed(const struct rdma_queue *queue, enum status_code code,
                             const char *verb, int error) {
    return status_new(code, "%s on RDMA device %s: %s", verb, queue->device->port.name,
                      strerror(error));
}

/* ---- life ---- */

static struct status *to_init(struct rdma_queue *queue) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = queue->device->port.number,
                               .qp_access_flags =
                                   queue->direction == RDMA_RECEIVES ? IBV_ACCESS_REMOTE_WRITE : 0};
    int error = queue->device->verbs->modify_qp(
        queue->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return error ? failed(queue, STATUS_UNAVAILABLE, "modify_qp to INIT", error) : NULL;
}

static struct status *open_parts(struct rdma_queue *queue) {
    struct rdma_device *device = queue->device;
    const struct verbs *verbs = device->verbs;
    bool sends = queue->direction == RDMA_SENDS;
    int depth = sends ? RDMA_SEND_DEPTH : RDMA_RECEIVE_DEPTH;
    if (device->broken)
        return status_ref(device->broken);
    queue->cq = verbs->create_cq(device->port.context, depth, queue, device->completions, 0);
    if (!queue->cq)
        return failed(queue, STATUS_RESOURCE_EXHAUSTED, "create_cq", errno);
    struct ibv_qp_init_attr attr = {.send_cq = queue->cq,
                                    .recv_cq = queue->cq,
                                    .cap = {.max_send_wr = sends ? RDMA_SEND_DEPTH : 1,
                                            .max_recv_wr = sends ? 1 : RDMA_RECEIVE_DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    queue->qp = verbs->create_qp(queue->pd, &attr);
    if (!queue->qp)
        return failed(queue, STATUS_RESOURCE_EXHAUSTED, "create_qp", errno);
    int error = verbs->req_notify_cq(queue->cq, 0);
    return error ? failed(queue, STATUS_UNAVAILABLE, "req_notify_cq", error) : to_init(queue);
}

struct status *rdma_queue_open(struct rdma_queue *queue, struct rdma_device *device,
                               struct ibv_pd *pd, enum rdma_direction direction) {
    *queue = (struct rdma_queue){.device = device,
                                 .direction = direction,
                                 .pd = pd,
                                 .psn = (uint32_t)random_u64() & PSN_MASK,
                                 .on_completion = queue->on_completion,
                                 .on_error = queue->on_error,
                                 .owner = queue->owner};
    rdma_device_hold(device);
    struct status *st = open_parts(queue);
    if (st)
        rdma_queue_close(queue);
    return st;
}

void rdma_queue_close(struct rdma_queue *queue) {
    struct rdma_device *device = queue->device;
    if (!device)
        return;
    if (queue->is_closed_inside)
        *queue->is_closed_inside = true;
    if (queue->qp)
        CHECK(device->verbs->destroy_qp(queue->qp) == 0);
    if (queue->cq)
        CHECK(device->verbs->destroy_cq(queue->cq) == 0);
    queue->qp = NULL;
    queue->cq = NULL;
    queue->device = NULL;
    queue->is_closed_inside = NULL;
    rdma_device_release(device);
}

/* ---- connecting ---- */

void rdma_queue_address(const struct rdma_queue *queue, struct rdma_address *ret) {
    const struct rdma_port *port = &queue->device->port;
    *ret = (struct rdma_address){.qpn = queue->qp->qp_num,
                                 .psn = queue->psn,
                                 .lid = port->lid,
                                 .mtu = (uint32_t)port->mtu,
                                 .is_ethernet = port->is_ethernet,
                                 .max_message_bytes = port->max_message_bytes};
    memcpy(ret->gid, port->gid.raw, sizeof(ret->gid));
}

static struct status *check_address(const struct rdma_queue *queue, const struct rdma_address *to) {
    static const uint8_t none[16];
    const struct rdma_port *port = &queue->device->port;
    if (to->is_ethernet != port->is_ethernet)
        return status_failed_precondition(
            "one end's RDMA device is on Ethernet and the other's on InfiniBand");
    if (to->qpn > PSN_MASK || to->psn > PSN_MASK || to->mtu < IBV_MTU_256 ||
        to->mtu > IBV_MTU_4096 || to->max_message_bytes < SMALLEST_MESSAGE_BYTES ||
        (to->is_ethernet ? memcmp(to->gid, none, sizeof(none)) == 0
                         : to->lid == 0 || to->lid > 0xffff))
        return status_invalid("queue pair %u, packet number %u, LID %u, MTU code %u, messages of "
                              "%llu bytes is no RDMA address",
                              (unsigned)to->qpn, (unsigned)to->psn, (unsigned)to->lid,
                              (unsigned)to->mtu, (unsigned long long)to->max_message_bytes);
    return NULL;
}

static struct status *to_receive(struct rdma_queue *queue, const struct rdma_address *to) {
    const struct rdma_port *port = &queue->device->port;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = (enum ibv_mtu)MIN((uint32_t)port->mtu, to->mtu),
                               .dest_qp_num = to->qpn,
                               .rq_psn = to->psn,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = RNR_WAIT,
                               .ah_attr = {.port_num = port->number,
                                           .dlid = (uint16_t)to->lid,
                                           .is_global = port->is_ethernet}};
    attr.ah_attr.grh.sgid_index = (uint8_t)port->gid_index;
    attr.ah_attr.grh.hop_limit = HOP_LIMIT;
    memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof(to->gid));
    int error = queue->device->verbs->modify_qp(
        queue->qp, &attr,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    return error ? failed(queue, STATUS_UNAVAILABLE, "modify_qp to RTR", error) : NULL;
}

static struct status *to_send(struct rdma_queue *queue) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = RDMA_RETRY_TIMEOUT,
                               .retry_cnt = RDMA_RETRY_COUNT,
                               .rnr_retry = RNR_RETRIES,
                               .sq_psn = queue->psn,
                               .max_rd_atomic = 1};
    int error = queue->device->verbs->modify_qp(queue->qp, &attr,
                                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                    IBV_QP_MAX_QP_RD_ATOMIC);
    return error ? failed(queue, STATUS_UNAVAILABLE, "modify_qp to RTS", error) : NULL;
}

struct status *rdma_queue_connect(struct rdma_queue *queue, const struct rdma_address *to) {
    TRY(check_address(queue, to));
    queue->max_message_bytes =
        MIN((uint64_t)queue->device->port.max_message_bytes, to->max_message_bytes);
    TRY(to_receive(queue, to));
    return queue->direction == RDMA_SENDS ? to_send(queue) : NULL;
}

/* ---- work ---- */

struct status *rdma_queue_post_receive(struct rdma_queue *queue) {
    struct ibv_recv_wr wr = {0}, *bad;
    int error = queue->device->verbs->post_recv(queue->qp, &wr, &bad);
    return error ? failed(queue, STATUS_UNAVAILABLE, "post_recv", error) : NULL;
}

struct status *rdma_queue_post_write(struct rdma_queue *queue, const struct rdma_write *write) {
    struct ibv_sge piece = {
        .addr = (uintptr_t)write->data, .length = write->size_bytes, .lkey = write->key};
    struct ibv_send_wr wr = {.wr_id = write->id,
                             .sg_list = &piece,
                             .num_sge = 1,
                             .opcode =
                                 write->has_number ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(write->number),
                             .wr.rdma = {.remote_addr = write->to, .rkey = write->to_key}};
    struct ibv_send_wr *bad;
    int error = queue->device->verbs->post_send(queue->qp, &wr, &bad);
    return error ? failed(queue, STATUS_UNAVAILABLE, "post_send", error) : NULL;
}

/* ---- completions ---- */

/* The first failed completion states the reason. Those after it were only flushed. */
static void on_bad(struct rdma_queue *queue, const struct ibv_wc *wc) {
    if (queue->is_failed || queue->is_draining)
        return;
    queue->is_failed = true;
    const char *words = queue->device->verbs->wc_status_str(wc->status);
    struct status *why = status_unavailable("RDMA %s: %s (status %d, vendor error 0x%x)",
                                            queue->direction == RDMA_SENDS ? "write" : "receive",
                                            words, (int)wc->status, wc->vendor_err);
    queue->on_error(queue->owner, why);
    status_unref(why);
}

static bool fill_batch(struct rdma_queue *queue) {
    int n = queue->device->verbs->poll_cq(queue->cq, RDMA_COMPLETIONS_AT_ONCE, queue->batch);
    queue->next_in_batch = 0;
    queue->n_batch = n > 0 ? n : 0;
    return n > 0;
}

/* Passes one completion to the owner, and returns false when there is none. The batch is a field of
 * the queue, so that a callback that drains the queue continues with the rest of the batch:
 * completions that were taken from the device must not be lost. */
static bool hand_on(struct rdma_queue *queue) {
    if (queue->next_in_batch == queue->n_batch && !fill_batch(queue))
        return false;
    struct ibv_wc completion = queue->batch[queue->next_in_batch++];
    if (completion.status != IBV_WC_SUCCESS)
        on_bad(queue, &completion);
    else if (!queue->is_failed)
        queue->on_completion(queue->owner, &completion);
    return true;
}

void rdma_queue_drain(struct rdma_queue *queue) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    queue->is_draining = true;
    (void)queue->device->verbs->modify_qp(queue->qp, &attr, IBV_QP_STATE);
    while (hand_on(queue))
        ;
}

/* Asks for the next notice before it reads the completions, so that one that arrives meanwhile is
 * not missed. */
void rdma_queue_on_event(struct rdma_queue *queue) {
    bool is_closed = false;
    queue->is_closed_inside = &is_closed;
    (void)queue->device->verbs->req_notify_cq(queue->cq, 0);
    while (hand_on(queue) && !is_closed)
        ;
    if (!is_closed)
        queue->is_closed_inside = NULL;
}
