/* Stands for libibverbs and a device, so that RDMA is tested without hardware. */
#include "tests/unit/rpc/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/list.h"

struct fake_verbs fake_verbs;

/* ---- what the calls hand out ---- */

struct fake_device {
    struct ibv_device device;
    int index;
};
struct fake_channel {
    struct ibv_comp_channel channel;
    struct list events; /* queues with a notice */
};
struct fake_cq {
    struct ibv_cq cq;
    struct fake_channel *channel;
    struct list link; /* channel->events */
    bool is_armed;
    struct ibv_wc *completions;
    int first, n, capacity;
};
struct fake_qp {
    struct ibv_qp qp;
    struct list link;
    struct ibv_qp_attr attr;
    int n_receives;
    int n_unfinished; /* sends */
};
struct fake_region {
    struct ibv_mr mr;
    struct list link;
    int access;
    char *memory;      /* of the first address */
    int dmabuf;        /* a descriptor of the region's own; -1: host memory */
    off_t file_offset; /* of the first address in it */
    char *mapping;     /* of the dmabuf, from a whole page */
    size_t mapped_bytes;
};
/* What was written into a dmabuf, and is not there yet. */
struct fake_late_write {
    struct list link;
    int dmabuf;
    off_t file_offset;
    size_t size_bytes;
    char bytes[];
};
struct fake_write {
    struct list link;
    struct fake_qp *from; /* NULL: destroyed meanwhile */
    struct ibv_send_wr wr;
    struct ibv_sge piece;
};

static struct fake_device devices[4];
static struct list queue_pairs, writes;
static struct list regions, late_writes; /* guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t may_register = PTHREAD_COND_INITIALIZER;
static uint32_t last_key, last_qpn;

static bool is_failing(const char *call) {
    if (!fake_verbs.failing_call || strcmp(fake_verbs.failing_call, call) != 0)
        return false;
    errno = ENOMEM;
    return true;
}

void fake_verbs_reset(void) {
    CHECK(fake_verbs.n_queue_pairs == 0 && fake_verbs.n_regions == 0 && fake_verbs.n_domains == 0);
    fake_verbs = (struct fake_verbs){.n_ports = 1};
    fake_verbs.ports[0] =
        (struct fake_port){.device = "fake0",
                           .transport = IBV_TRANSPORT_IB,
                           .state = IBV_PORT_ACTIVE,
                           .mtu = IBV_MTU_4096,
                           .max_message_bytes = 8 << 20,
                           .gids = {{{0xfe, 0x80, [15] = 1}, IBV_GID_TYPE_ROCE_V2},
                                    {{[10] = 0xff, 0xff, 10, 77, 0, 1}, IBV_GID_TYPE_ROCE_V2}},
                           .n_gids = 2};
    list_init(&queue_pairs);
    list_init(&writes);
    list_init(&regions);
    list_init(&late_writes);
}

/* ---- devices ---- */

static struct ibv_device **get_device_list(int *ret_n) {
    struct ibv_device **list = calloc(5, sizeof(*list));
    for (int i = 0; i < fake_verbs.n_ports; i++) {
        devices[i].index = i;
        devices[i].device.transport_type = fake_verbs.ports[i].transport;
        list[i] = &devices[i].device;
    }
    *ret_n = fake_verbs.n_ports;
    return list;
}
static void free_device_list(struct ibv_device **list) { free(list); }
static const struct fake_port *port_of(const struct ibv_device *device) {
    return &fake_verbs.ports[CONTAINER_OF(device, struct fake_device, device)->index];
}
static const char *get_device_name(struct ibv_device *device) { return port_of(device)->device; }
static struct ibv_context *open_device(struct ibv_device *device) {
    struct ibv_context *context = calloc(1, sizeof(*context));
    context->device = device;
    context->async_fd = eventfd(0, EFD_CLOEXEC);
    return context;
}
static int close_device(struct ibv_context *context) {
    close(context->async_fd);
    free(context);
    return 0;
}
static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *ret) {
    const struct fake_port *port = port_of(context->device);
    *ret = (struct ibv_port_attr){.state = port->state,
                                  .active_mtu = port->mtu,
                                  .max_msg_sz = port->max_message_bytes,
                                  .gid_tbl_len = 4,
                                  .lid = port->lid,
                                  .link_layer = port->is_infiniband ? IBV_LINK_LAYER_INFINIBAND
                                                                    : IBV_LINK_LAYER_ETHERNET};
    return number == 1 ? 0 : EINVAL;
}
static int query_gid(struct ibv_context *context, uint32_t number, uint32_t index,
                     struct ibv_gid_entry *ret) {
    const struct fake_port *port = port_of(context->device);
    if ((int)index >= port->n_gids)
        return ENODATA;
    *ret = (struct ibv_gid_entry){
        .gid_index = index, .port_num = number, .gid_type = port->gids[index].type};
    memcpy(ret->gid.raw, port->gids[index].raw, 16);
    return 0;
}

/* ---- memory ---- */

static struct ibv_pd *alloc_pd(struct ibv_context *context) {
    if (is_failing("alloc_pd"))
        return NULL;
    struct ibv_pd *pd = calloc(1, sizeof(*pd));
    pd->context = context;
    fake_verbs.n_domains++;
    return pd;
}
static int dealloc_pd(struct ibv_pd *pd) {
    pthread_mutex_lock(&lock);
    LIST_FOR_EACH (link, &regions)
        CHECK(LIST_ENTRY(link, struct fake_region, link)->mr.pd != pd);
    pthread_mutex_unlock(&lock);
    LIST_FOR_EACH (link, &queue_pairs)
        CHECK(LIST_ENTRY(link, struct fake_qp, link)->qp.pd != pd);
    fake_verbs.n_domains--;
    free(pd);
    return 0;
}

static bool must_fail(int *n) {
    bool must = *n != 0;
    if (*n > 0)
        --*n;
    return must;
}

/* Waits while registering is held. False: this one has to fail. Returns with the lock. */
static bool may_register_now(int access) {
    pthread_mutex_lock(&lock);
    while (fake_verbs.is_registering_held)
        pthread_cond_wait(&may_register, &lock);
    errno = ENOMEM;
    return !must_fail(access & IBV_ACCESS_REMOTE_WRITE ? &fake_verbs.n_registrations_to_fail
                                                       : &fake_verbs.n_sources_to_fail);
}

/* Lock held. */
static struct ibv_mr *add_region(struct ibv_pd *pd, uint64_t address, size_t size_bytes, int access,
                                 const struct fake_region *from) {
    struct fake_region *region = calloc(1, sizeof(*region));
    *region = *from;
    last_key += 0x101;
    region->mr = (struct ibv_mr){.pd = pd,
                                 .addr = (void *)(uintptr_t)address,
                                 .length = size_bytes,
                                 .lkey = last_key,
                                 .rkey = last_key};
    region->access = access;
    list_push_back(&regions, &region->link);
    fake_verbs.n_regions++;
    fake_verbs.n_registered++;
    return &region->mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *data, size_t size_bytes, int access) {
    struct fake_region host = {.memory = data, .dmabuf = -1};
    struct ibv_mr *mr = may_register_now(access)
                            ? add_region(pd, (uintptr_t)data, size_bytes, access, &host)
                            : NULL;
    pthread_mutex_unlock(&lock);
    return mr;
}

static bool map_dmabuf(int fd, uint64_t offset, size_t size_bytes, struct fake_region *ret) {
    enum { PAGE = 4096 };
    off_t start = lseek(fd, 0, SEEK_CUR) + (off_t)offset;
    size_t before = (size_t)start % PAGE;
    ret->dmabuf = dup(fd);
    ret->file_offset = start;
    ret->mapped_bytes = before + size_bytes;
    ret->mapping = mmap(NULL, ret->mapped_bytes, PROT_READ, MAP_SHARED, fd, start - (off_t)before);
    ret->memory = ret->mapping + before;
    return ret->mapping != MAP_FAILED;
}

/* As the kernel is: addresses and the dmabuf's bytes have the same place in a page. */
static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t size_bytes,
                                    uint64_t iova, int fd, int access) {
    enum { PAGE = 4096 };
    struct fake_region dmabuf;
    struct ibv_mr *mr = NULL;
    CHECK(offset % PAGE == iova % PAGE);
    if (may_register_now(access)) {
        errno = fake_verbs.dmabuf_error;
        if (!errno && map_dmabuf(fd, offset, size_bytes, &dmabuf))
            mr = add_region(pd, iova, size_bytes, access, &dmabuf);
    }
    pthread_mutex_unlock(&lock);
    return mr;
}

static int dereg_mr(struct ibv_mr *mr) {
    struct fake_region *region = CONTAINER_OF(mr, struct fake_region, mr);
    pthread_mutex_lock(&lock);
    list_remove(&region->link);
    fake_verbs.n_regions--;
    pthread_mutex_unlock(&lock);
    if (region->mapping)
        munmap(region->mapping, region->mapped_bytes);
    if (region->dmabuf >= 0)
        close(region->dmabuf);
    free(region);
    return 0;
}

/* Lock held. */
static void write_region(const struct fake_region *region, size_t offset, const char *bytes,
                         size_t size_bytes) {
    if (region->dmabuf < 0) {
        memcpy(region->memory + offset, bytes, size_bytes);
        if (fake_verbs.is_damaging)
            region->memory[offset] ^= 1;
        return;
    }
    struct fake_late_write *late = calloc(1, sizeof(*late) + size_bytes);
    late->dmabuf = dup(region->dmabuf);
    late->file_offset = region->file_offset + (off_t)offset;
    late->size_bytes = size_bytes;
    memcpy(late->bytes, bytes, size_bytes);
    list_push_back(&late_writes, &late->link);
    fake_verbs.n_unflushed++;
}

void fake_verbs_flush_writes(void) {
    struct list *link;
    pthread_mutex_lock(&lock);
    while ((link = list_pop_front(&late_writes))) {
        struct fake_late_write *late = LIST_ENTRY(link, struct fake_late_write, link);
        CHECK(pwrite(late->dmabuf, late->bytes, late->size_bytes, late->file_offset) ==
              (ssize_t)late->size_bytes);
        fake_verbs.n_unflushed--;
        close(late->dmabuf);
        free(late);
    }
    pthread_mutex_unlock(&lock);
}

void fake_verbs_let_register(void) {
    pthread_mutex_lock(&lock);
    fake_verbs.is_registering_held = false;
    pthread_cond_broadcast(&may_register);
    pthread_mutex_unlock(&lock);
}

/* Finds the region of a key, if these bytes of it may be used so. Lock held. */
static struct fake_region *find_region(const struct ibv_pd *pd, uint32_t key, uint64_t address,
                                       size_t size_bytes, int access) {
    LIST_FOR_EACH (link, &regions) {
        struct fake_region *region = LIST_ENTRY(link, struct fake_region, link);
        uint64_t begin = (uintptr_t)region->mr.addr;
        if (region->mr.lkey == key)
            return region->mr.pd == pd && (region->access & access) == access && address >= begin &&
                           address + size_bytes <= begin + region->mr.length
                       ? region
                       : NULL;
    }
    return NULL;
}

/* ---- completion queues ---- */

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context) {
    struct fake_channel *channel = calloc(1, sizeof(*channel));
    channel->channel = (struct ibv_comp_channel){.context = context, .fd = eventfd(0, EFD_CLOEXEC)};
    list_init(&channel->events);
    return &channel->channel;
}
static int destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}
static struct ibv_cq *create_cq(struct ibv_context *context, int n, void *arg,
                                struct ibv_comp_channel *channel, int vector) {
    if (is_failing("create_cq"))
        return NULL;
    struct fake_cq *cq = calloc(1, sizeof(*cq));
    cq->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = arg, .cqe = n};
    cq->channel = CONTAINER_OF(channel, struct fake_channel, channel);
    cq->capacity = n;
    cq->completions = calloc((size_t)n, sizeof(*cq->completions));
    list_init(&cq->link);
    return &cq->cq;
}
static int destroy_cq(struct ibv_cq *base) {
    struct fake_cq *cq = CONTAINER_OF(base, struct fake_cq, cq);
    list_remove(&cq->link);
    free(cq->completions);
    free(cq);
    return 0;
}
static int get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **ret_cq, void **ret_arg) {
    struct fake_channel *channel = CONTAINER_OF(base, struct fake_channel, channel);
    struct list *link = list_pop_front(&channel->events);
    uint64_t count;
    if (!link) {
        (void)!read(base->fd, &count, sizeof(count));
        errno = EAGAIN;
        return -1;
    }
    *ret_cq = &LIST_ENTRY(link, struct fake_cq, link)->cq;
    *ret_arg = (*ret_cq)->cq_context;
    return 0;
}
static void ack_cq_events(struct ibv_cq *cq, unsigned n) {}
static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    CONTAINER_OF(cq, struct fake_cq, cq)->is_armed = true;
    return 0;
}
static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *ret) {
    struct fake_cq *cq = CONTAINER_OF(base, struct fake_cq, cq);
    int i = 0;
    for (; i < n && cq->n > 0; i++) {
        ret[i] = cq->completions[cq->first];
        cq->first = (cq->first + 1) % cq->capacity;
        cq->n--;
    }
    return i;
}
static void complete(struct ibv_cq *base, const struct ibv_wc *wc) {
    struct fake_cq *cq = CONTAINER_OF(base, struct fake_cq, cq);
    uint64_t one = 1;
    CHECK(cq->n < cq->capacity); /* an overrun would be the end of it */
    cq->completions[(cq->first + cq->n++) % cq->capacity] = *wc;
    if (!cq->is_armed)
        return;
    cq->is_armed = false;
    list_remove(&cq->link);
    list_push_back(&cq->channel->events, &cq->link);
    CHECK(write(cq->channel->channel.fd, &one, sizeof(one)) == sizeof(one));
}

/* ---- queue pairs ---- */

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    if (is_failing("create_qp"))
        return NULL;
    struct fake_qp *qp = calloc(1, sizeof(*qp));
    qp->qp = (struct ibv_qp){
        .pd = pd, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .qp_num = 0x100 + ++last_qpn};
    list_push_back(&queue_pairs, &qp->link);
    fake_verbs.n_queue_pairs++;
    return &qp->qp;
}

static void flush(struct fake_qp *qp) {
    for (; qp->n_receives > 0; qp->n_receives--)
        complete(qp->qp.recv_cq, &(struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR});
}

static int modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask) {
    static const enum ibv_qp_state before[] = {
        [IBV_QPS_INIT] = IBV_QPS_RESET, [IBV_QPS_RTR] = IBV_QPS_INIT, [IBV_QPS_RTS] = IBV_QPS_RTR};
    struct fake_qp *qp = CONTAINER_OF(base, struct fake_qp, qp);
    if (attr->qp_state != IBV_QPS_ERR &&
        (is_failing("modify_qp") || base->state != before[attr->qp_state]))
        return EINVAL;
    if (attr->qp_state == IBV_QPS_INIT)
        qp->attr.qp_access_flags = attr->qp_access_flags;
    if (attr->qp_state == IBV_QPS_RTR) {
        qp->attr.dest_qp_num = attr->dest_qp_num;
        qp->attr.rq_psn = attr->rq_psn;
        qp->attr.path_mtu = attr->path_mtu;
    }
    if (attr->qp_state == IBV_QPS_RTS) {
        CHECK(attr->retry_cnt < 7 && attr->timeout > 0); /* else it would try for ever */
        qp->attr.sq_psn = attr->sq_psn;
    }
    base->state = attr->qp_state;
    if (attr->qp_state == IBV_QPS_ERR)
        flush(qp);
    return 0;
}
static int destroy_qp(struct ibv_qp *base) {
    struct fake_qp *qp = CONTAINER_OF(base, struct fake_qp, qp);
    LIST_FOR_EACH_SAFE (link, next, &writes)
        if (LIST_ENTRY(link, struct fake_write, link)->from == qp) {
            list_remove(link);
            fake_verbs.n_waiting--;
            free(LIST_ENTRY(link, struct fake_write, link));
        }
    list_remove(&qp->link);
    fake_verbs.n_queue_pairs--;
    free(qp);
    return 0;
}

static struct fake_qp *find_qp(uint32_t number) {
    LIST_FOR_EACH (link, &queue_pairs)
        if (LIST_ENTRY(link, struct fake_qp, link)->qp.qp_num == number)
            return LIST_ENTRY(link, struct fake_qp, link);
    return NULL;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad) {
    CONTAINER_OF(qp, struct fake_qp, qp)->n_receives++;
    return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad) {
    struct fake_qp *qp = CONTAINER_OF(base, struct fake_qp, qp);
    if (is_failing("post_send") || base->state < IBV_QPS_RTS)
        return EINVAL;
    struct fake_write *write = calloc(1, sizeof(*write));
    write->from = qp;
    write->wr = *wr;
    write->piece = *wr->sg_list;
    list_push_back(&writes, &write->link);
    fake_verbs.n_waiting++;
    if (!fake_verbs.is_held)
        fake_verbs_run(-1);
    return 0;
}

/* ---- the network ---- */

static enum ibv_wc_status carry_out(struct fake_write *write, struct fake_qp **ret_to) {
    struct fake_qp *from = write->from, *to = find_qp(from->attr.dest_qp_num);
    const struct ibv_send_wr *wr = &write->wr;
    const struct ibv_sge *piece = &write->piece;
    if (from->qp.state == IBV_QPS_ERR)
        return IBV_WC_WR_FLUSH_ERR;
    const struct fake_region *source =
        find_region(from->qp.pd, piece->lkey, piece->addr, piece->length, 0);
    if (!source)
        return IBV_WC_LOC_PROT_ERR;
    if (fake_verbs.is_silent || !to || to->qp.state < IBV_QPS_RTR || to->qp.state == IBV_QPS_ERR ||
        to->attr.dest_qp_num != from->qp.qp_num || to->attr.rq_psn != from->attr.sq_psn)
        return IBV_WC_RETRY_EXC_ERR;
    *ret_to = to;
    const struct fake_region *slot =
        find_region(to->qp.pd, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, piece->length,
                    IBV_ACCESS_REMOTE_WRITE);
    if (!(to->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) || !slot)
        return IBV_WC_REM_ACCESS_ERR;
    if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && to->n_receives == 0)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    write_region(slot, wr->wr.rdma.remote_addr - (uintptr_t)slot->mr.addr,
                 source->memory + (piece->addr - (uintptr_t)source->mr.addr), piece->length);
    return IBV_WC_SUCCESS;
}

static void end_write(struct fake_write *write) {
    struct fake_qp *from = write->from, *to = NULL;
    pthread_mutex_lock(&lock);
    enum ibv_wc_status status = carry_out(write, &to);
    pthread_mutex_unlock(&lock);
    fake_verbs.n_writes++;
    fake_verbs.largest_write_bytes = MAX(fake_verbs.largest_write_bytes, write->piece.length);
    if (status == IBV_WC_SUCCESS && write->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        to->n_receives--;
        fake_verbs.n_numbers++;
        complete(to->qp.recv_cq, &(struct ibv_wc){.status = status,
                                                  .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                  .imm_data = write->wr.imm_data,
                                                  .wc_flags = IBV_WC_WITH_IMM});
    }
    if (status == IBV_WC_REM_ACCESS_ERR) {
        to->qp.state = IBV_QPS_ERR;
        flush(to);
    }
    if (status != IBV_WC_SUCCESS)
        from->qp.state = IBV_QPS_ERR;
    complete(
        from->qp.send_cq,
        &(struct ibv_wc){.status = status, .wr_id = write->wr.wr_id, .opcode = IBV_WC_RDMA_WRITE});
}

void fake_verbs_run(int n) {
    for (struct list *link; n != 0 && (link = list_pop_front(&writes)); n--) {
        struct fake_write *write = LIST_ENTRY(link, struct fake_write, link);
        fake_verbs.n_waiting--;
        end_write(write);
        free(write);
    }
}

void fake_verbs_forge_number(uint32_t number) {
    LIST_FOR_EACH (link, &queue_pairs) {
        struct fake_qp *qp = LIST_ENTRY(link, struct fake_qp, link);
        if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
            continue;
        qp->n_receives--;
        complete(qp->qp.recv_cq, &(struct ibv_wc){.status = IBV_WC_SUCCESS,
                                                  .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                  .imm_data = htonl(number)});
    }
}

void fake_verbs_break_receivers(void) {
    LIST_FOR_EACH (link, &queue_pairs) {
        struct fake_qp *qp = LIST_ENTRY(link, struct fake_qp, link);
        if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
            continue;
        qp->qp.state = IBV_QPS_ERR;
        flush(qp);
    }
}

/* ---- words ---- */

static int get_async_event(struct ibv_context *context, struct ibv_async_event *ret) {
    errno = EAGAIN;
    return -1;
}
static void ack_async_event(struct ibv_async_event *event) {}
static const char *event_type_str(enum ibv_event_type type) { return "an event"; }
static const char *wc_status_str(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
        return "remote access error";
    case IBV_WC_RETRY_EXC_ERR:
        return "transport retry counter exceeded";
    case IBV_WC_LOC_PROT_ERR:
        return "local protection error";
    default:
        return "another error";
    }
}

#define CALL(name) .name = name,
const struct verbs fake_verbs_table = {VERBS_LIBRARY_CALLS(CALL) VERBS_NEWER_CALLS(CALL)
                                           VERBS_OWN_CALLS(CALL)};
#undef CALL
